//! A command that breaks down: that is a bug, and ends with a sentence and an exit code of ours all the same.
//!
//! A daemon that runs has its own way to tell of it, from `daemon::run` on.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{catch_unwind, set_hook};
use std::process::ExitCode;

use crate::log;
use crate::outcome::Exit;

/// Runs the command of this process: one that breaks down has failed, and says where. What it holds is given back on the way, such
/// as the file of a disk test.
pub fn told(command: fn() -> ExitCode) -> ExitCode {
    set_hook(Box::new(|panic| {
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            log::last_word(&backtrace.to_string());
        }
        log::last_word(&sentence(&panic.to_string()));
    }));
    caught(command)
}

fn caught(command: fn() -> ExitCode) -> ExitCode {
    catch_unwind(command).unwrap_or_else(|_| {
        log::finish();
        Exit::Failed.into()
    })
}

/// Of what the language says: that it panicked, where, and over what.
fn sentence(panic: &str) -> String {
    let panic = panic.replace('\n', " ");
    format!("the command broke down: it {panic}; this is a bug: please report this line and what was typed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_down_has_failed_and_says_where() {
        let ended = caught(|| panic!("a bug"));
        assert_eq!(format!("{ended:?}"), format!("{:?}", ExitCode::from(2)));
        assert_eq!(
            sentence("panicked at src/x.rs:1:2:\nattempt to add with overflow"),
            "the command broke down: it panicked at src/x.rs:1:2: attempt to add with overflow; this is a bug: please report \
             this line and what was typed"
        );
    }
}
