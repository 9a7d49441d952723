//! Ctrl-C and its kin, seen at every wait, so that everything started is ended the ordinary way.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

/// How long a wait may overlook a signal.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The user asked to stop.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Whether someone asked to stop. Clones see the same.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

fn untaken(error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("signals cannot be taken, so nothing could be cleaned up after Ctrl-C: {error}"),
    )
}

impl Interrupt {
    /// Nobody asks: a signal does what it does without us.
    pub fn never() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    /// Listen for SIGINT, SIGTERM and SIGHUP from now on.
    ///
    /// # Errors
    /// The signals cannot be taken.
    pub fn listen() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let flag = asked.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut signals = {
            let _inside = runtime.enter();
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
                .map(signal)
                .into_iter()
                .collect::<io::Result<Vec<_>>>()
                .map_err(untaken)?
        };
        let listen = async move {
            let [interrupt, terminate, hangup] = &mut signals[..] else { unreachable!("three signals") };
            tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} _ = hangup.recv() => {} }
            flag.store(true, Ordering::Release);
        };
        std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(listen))?;
        Ok(Self(asked))
    }

    /// # Errors
    /// [`Interrupted`], if someone asked to stop.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Acquire) { Err(Interrupted) } else { Ok(()) }
    }

    /// Wait, unless someone asks to stop.
    ///
    /// # Errors
    /// As [`Interrupt::check`].
    pub fn pause(&self, length: Duration) -> Result<(), Interrupted> {
        let end = Instant::now() + length;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}
