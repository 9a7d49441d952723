//! Timers to the microsecond, where the runtime's own count milliseconds.
//!
//! Readiness is edge-triggered: each ring is one event, so the counter behind a timer is never read.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// How late a timer may ring: what is spent looking at the clock instead.
const EARLY: Duration = Duration::from_micros(120);

/// A descriptor that is owned here and never replaced: what makes its registration sound.
pub(crate) struct WatchedDescriptor(OwnedFd);

impl WatchedDescriptor {
    pub fn get(&self) -> &OwnedFd {
        &self.0
    }
}

impl AsRawFd for WatchedDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Watches a descriptor for something to read. Must run inside a tokio runtime with I/O enabled.
pub(crate) fn watch(fd: OwnedFd) -> std::io::Result<AsyncFd<WatchedDescriptor>> {
    // SAFETY: `WatchedDescriptor` owns its descriptor, keeps it open until it is dropped and always names the same one.
    unsafe { AsyncFd::register_with_interest(WatchedDescriptor(fd), Interest::READABLE) }.map_err(Into::into)
}

pub(crate) async fn readable(fd: Option<&AsyncFd<WatchedDescriptor>>) {
    let Some(fd) = fd else {
        return std::future::pending().await;
    };
    // An error means that the runtime is shutting down; then there is nothing left to wait for.
    if let Ok(mut ready) = fd.readable().await {
        ready.clear_ready();
    }
}

/// A kernel timer that rings once each time it is set.
pub(crate) struct Timer(AsyncFd<WatchedDescriptor>);

impl Timer {
    pub fn new() -> std::io::Result<Timer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Timer(watch(rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?)?))
    }

    /// Rings after `delay`, instead of at any earlier set time.
    pub fn set(&self, delay: Duration) {
        // Zero would disarm the timer.
        let delay = delay.max(Duration::from_nanos(1));
        let it_value = Timespec { tv_sec: delay.as_secs() as i64, tv_nsec: i64::from(delay.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        rustix::time::timerfd_settime(self.0.get_ref().get(), TimerfdTimerFlags::empty(), &once)
            .expect("a timer of our own takes a valid time");
    }

    pub async fn rang(&self) {
        readable(Some(&self.0)).await;
    }
}

/// Waits until a moment: by a timer until shortly before, then looking at the clock while others have their turn.
pub struct Pauser(Timer);

impl Pauser {
    /// To be called inside a tokio runtime with I/O enabled.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> std::io::Result<Pauser> {
        Ok(Pauser(Timer::new()?))
    }

    pub async fn until(&self, at: Instant) {
        while let Some(left) = at.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            match left.checked_sub(EARLY).filter(|left| !left.is_zero()) {
                Some(nap) => {
                    self.0.set(nap);
                    self.0.rang().await;
                }
                None => tokio::task::yield_now().await,
            }
        }
    }
}
