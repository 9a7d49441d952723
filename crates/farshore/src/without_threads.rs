//! For tests of what a system does not give that has no more threads.

use std::process::Command;
use std::thread::Builder;

/// A stack of this size is larger than any memory: with it no thread can be started.
const STACK: (&str, &str) = ("RUST_MIN_STACK", "1152921504606846976");

/// Whether this process can start no thread. Elsewhere the test of this name is run in a process that cannot, and there it goes on.
pub fn has_no_threads(test: &str) -> bool {
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
