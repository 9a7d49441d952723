//! Waits for what may hang, no longer than one is willing to.

use std::sync::mpsc;
use std::time::Duration;

/// What a job brings, unless it takes longer than `patience`; then it goes on by itself, for nobody.
pub fn within<T: Send + 'static>(patience: Duration, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = mpsc::channel();
    // Nobody listens any more when it took too long.
    std::thread::spawn(move || drop(tell.send(job())));
    told.recv_timeout(patience).ok()
}
