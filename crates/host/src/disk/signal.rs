//! How the data thread learns that completions wait: the ring's own descriptor, an event for the workers, a timer for
//! modelled latencies, and a note to itself for requests that were waited for.
//!
//! Readiness is edge-triggered: each ring of a bell is one event, so the counters behind event and timer are never read.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::event::EventfdFlags;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::timer::{Timer, WatchedDescriptor, readable, watch};

pub(super) struct Signals {
    ring: Option<AsyncFd<WatchedDescriptor>>,
    workers: AsyncFd<WatchedDescriptor>,
    timer: Timer,
    own: Notify,
}

impl Signals {
    /// `ring` is a duplicate of the ring's descriptor. Must run inside a tokio runtime with I/O enabled.
    pub fn new(ring: Option<OwnedFd>) -> std::io::Result<Signals> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Signals {
            ring: ring.map(watch).transpose()?,
            workers: watch(event)?,
            timer: Timer::new()?,
            own: Notify::new(),
        })
    }

    /// A handle by which workers ring the bell.
    pub fn worker_bell(&self) -> std::io::Result<OwnedFd> {
        self.workers.get_ref().get().try_clone()
    }

    /// Completions wait that no descriptor will tell of.
    pub fn note(&self) {
        self.own.notify_one();
    }

    /// Wakes the thread after `delay`, instead of at any earlier set time.
    pub fn wake_after(&self, delay: Duration) {
        self.timer.set(delay);
    }

    async fn wait(&self) {
        // Each branch clears only the readiness it consumed; whoever waits must then collect completions.
        tokio::select! {
            () = self.own.notified() => {}
            () = readable(self.ring.as_ref()), if self.ring.is_some() => {}
            () = readable(Some(&self.workers)) => {}
            () = self.timer.rang() => {}
        }
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
