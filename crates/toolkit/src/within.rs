//! Waits for what may hang, no longer than one is willing to.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a job brings, unless it takes longer than `patience`; then it goes on by itself, for nobody.
pub fn within<T: Send + 'static>(patience: Duration, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer_to, answer) = mpsc::channel();
    // Nobody listens any more when it took too long.
    let thread = std::thread::spawn(move || drop(answer_to.send(job())));
    match answer.recv_timeout(patience) {
        Ok(brought) => Some(brought),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => broke_down(thread),
    }
}

/// A thread ended without its word: what is wrong with it is wrong here, and no sign of something that hangs.
pub fn broke_down(thread: JoinHandle<()>) -> ! {
    resume_unwind(thread.join().expect_err("it ended without its word"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_down_does_not_hang() {
        assert_eq!(within(Duration::MAX, || 7), Some(7));
        let hung = within::<()>(Duration::ZERO, || {
            loop {
                std::thread::park();
            }
        });
        assert_eq!(hung, None);
        let broken = std::panic::catch_unwind(|| within(Duration::MAX, || panic!("a bug")));
        assert_eq!(broken.expect_err("the same bug").downcast_ref(), Some(&"a bug"));
    }
}
