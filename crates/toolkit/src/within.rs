//! Waits for what may hang, no longer than one is willing to.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// What a job brings, unless it takes longer than `patience`; then it goes on by itself, for nobody. Where the system gives no
/// thread for it, it is waited for to its end: slow is better than never.
pub fn within<T, F>(patience: Duration, job: F) -> Option<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (job_to, given) = mpsc::channel::<F>();
    let (answer_to, answer) = mpsc::channel();
    let work = move || {
        if let Ok(job) = given.recv() {
            // Nobody listens any more when it took too long.
            let _ = answer_to.send(job());
        }
    };
    let Ok(thread) = Builder::new().spawn(work) else { return Some(job()) };
    let _ = job_to.send(job);
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

/// Why there is no thread, and what to do.
pub fn no_thread(error: std::io::Error) -> String {
    format!("the system gives this program no further thread: {error}; end other programs, or raise the limit of tasks")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::process::Command;

    /// Whether this process can start no thread, as each would get a stack that is larger than any memory. Elsewhere the test of
    /// this name is run in such a process, and there it goes on.
    pub(crate) fn has_no_threads(test: &str) -> bool {
        const STACK: (&str, &str) = ("RUST_MIN_STACK", "1152921504606846976");
        if std::env::var(STACK.0).is_ok_and(|bytes| bytes == STACK.1) {
            assert!(Builder::new().spawn(|| ()).is_err(), "a thread was started");
            return true;
        }
        let mut again = Command::new(std::env::current_exe().expect("a program"));
        let ran = again.args(["--exact", test, "--test-threads=1"]).env(STACK.0, STACK.1).output().expect("it runs");
        let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        false
    }

    #[test]
    fn what_breaks_down_does_not_hang() {
        assert_eq!(within(Duration::MAX, || 7), Some(7));
        let hung = within::<(), _>(Duration::ZERO, || {
            loop {
                std::thread::park();
            }
        });
        assert_eq!(hung, None);
        let broken = std::panic::catch_unwind(|| within(Duration::MAX, || panic!("a bug")));
        assert_eq!(broken.expect_err("the same bug").downcast_ref(), Some(&"a bug"));
    }

    #[test]
    fn without_a_thread_the_job_is_done_all_the_same() {
        if has_no_threads("within::tests::without_a_thread_the_job_is_done_all_the_same") {
            assert_eq!(within(Duration::ZERO, || 7), Some(7));
        }
    }
}
