//! Locks that are held a moment longer than their holder lives.

use std::time::{Duration, Instant};

use host::disk::volume::OpenError;

/// How long a lock is waited for: what a killed daemon had given to the kernel holds its files until it is done.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// Until when a file may be held by somebody.
#[derive(Clone, Copy)]
pub(super) struct Patience(Instant);

impl Patience {
    pub fn new() -> Patience {
        Patience(Instant::now() + LOCK_PATIENCE)
    }

    /// Opens something that nobody else may hold, or says who does.
    pub fn free<T>(self, open: impl Fn() -> Result<T, OpenError>) -> Result<T, OpenError> {
        loop {
            match open() {
                Err(OpenError::Locked { .. } | OpenError::InUse { .. }) if Instant::now() < self.0 => {
                    std::thread::sleep(LOCK_RETRY);
                }
                result => return result,
            }
        }
    }
}
