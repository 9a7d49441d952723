//! How the data thread learns that completions wait: the ring's own descriptor, an event for the workers, a timer for
//! modelled latencies, and a note to itself for requests that completed inline.
//!
//! Readiness is edge-triggered: each ring of a bell is one event, so the counters behind event and timer are never read.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// A descriptor that this module owns and never replaces: what makes its registration sound.
struct Watched(OwnedFd);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn watch(fd: OwnedFd) -> std::io::Result<AsyncFd<Watched>> {
    // SAFETY: `Watched` owns its descriptor, keeps it open until it is dropped and always names the same one.
    unsafe { AsyncFd::register_with_interest(Watched(fd), Interest::READABLE) }.map_err(Into::into)
}

pub(super) struct Signals {
    ring: Option<AsyncFd<Watched>>,
    workers: AsyncFd<Watched>,
    timer: AsyncFd<Watched>,
    own: Notify,
}

impl Signals {
    /// `ring` is a duplicate of the ring's descriptor. Must run inside a tokio runtime with I/O enabled.
    pub fn new(ring: Option<OwnedFd>) -> std::io::Result<Signals> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Signals {
            ring: ring.map(watch).transpose()?,
            workers: watch(event)?,
            timer: watch(timer)?,
            own: Notify::new(),
        })
    }

    /// A handle by which workers ring the bell.
    pub fn worker_bell(&self) -> std::io::Result<OwnedFd> {
        self.workers.get_ref().0.try_clone()
    }

    /// Completions wait that no descriptor will tell of.
    pub fn note(&self) {
        self.own.notify_one();
    }

    /// Wakes the thread after `delay`, instead of at any earlier set time.
    pub fn wake_after(&self, delay: Duration) {
        // Zero would disarm the timer.
        let delay = delay.max(Duration::from_nanos(1));
        let it_value = Timespec { tv_sec: delay.as_secs() as i64, tv_nsec: i64::from(delay.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        rustix::time::timerfd_settime(&self.timer.get_ref().0, TimerfdTimerFlags::empty(), &once)
            .expect("a timer of our own takes a valid time");
    }

    async fn wait(&self) {
        // Each branch clears only the readiness it consumed; whoever waits must then collect completions.
        tokio::select! {
            () = self.own.notified() => {}
            () = readable(self.ring.as_ref()), if self.ring.is_some() => {}
            () = readable(Some(&self.workers)) => {}
            () = readable(Some(&self.timer)) => {}
        }
    }
}

async fn readable(fd: Option<&AsyncFd<Watched>>) {
    let Some(fd) = fd else {
        return std::future::pending().await;
    };
    // An error means that the runtime is shutting down; then there is nothing left to wait for.
    if let Ok(mut ready) = fd.readable().await {
        ready.clear_ready();
    }
}

/// Resolves when a file engine may have completions; held apart from the engine, so that waiting does not borrow it.
#[derive(Clone)]
pub struct Readiness(pub(super) Rc<Signals>);

impl Readiness {
    /// Returns when completions may wait; call [`super::FileEngine::completions`] after each return. One waiter at a
    /// time.
    pub async fn wait(&self) {
        self.0.wait().await;
    }
}
