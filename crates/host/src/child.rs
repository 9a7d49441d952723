//! Programs that are started and must not outlive who started them.

use std::io;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};

/// Has the kernel kill the program when the calling *thread* ends, however that comes: to be called by the thread that starts the
/// program and waits for it. Programs that the program starts are not killed with it.
///
/// With this the process is forked instead of being started beside its own memory; who starts programs often would notice.
pub fn end_with_this_thread(command: &mut Command) {
    let us = std::process::id();
    let arm = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Whoever ended before that sends no signal.
        if parent_id() == us { Ok(()) } else { Err(io::Error::from(Errno::SRCH)) }
    };
    // SAFETY: between fork and exec only what a signal handler may call is allowed: `arm` makes two system calls, takes no lock and
    // allocates nothing (an error of a number is a number).
    unsafe { command.pre_exec(arm) };
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_program_ends_with_the_thread_that_started_it() {
        let started = std::thread::spawn(|| {
            let mut command = Command::new("/bin/sleep");
            end_with_this_thread(command.arg("1000"));
            command.spawn().expect("it starts")
        });
        let mut child = started.join().expect("it starts");
        assert_eq!(child.wait().expect("it ends").signal(), Some(Signal::KILL.as_raw()));
    }
}
