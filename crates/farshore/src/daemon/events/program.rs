//! A hook's command: started in a process group of its own, given what it is to know, and ended when its time is up. The one way in which
//! the daemon runs programs of others: those that are told of events, and those around a change of role.

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process_group};
use settings::ConfiguredHook;
use units::exact::duration_text;

use super::attempt::AttemptFailure;
use super::queue::BoundedQueue;
use crate::events::EventRecord;

/// Where programs that the command calls are looked for, unless the daemon has a path of its own.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Pauses between two looks whether it has ended: the first, and the longest.
const LOOK_FIRST: Duration = Duration::from_millis(2);
const LOOK_MAX: Duration = Duration::from_millis(50);

/// A program to be run, as it is given to the system.
pub(in crate::daemon) struct ProgramRun<'a> {
    /// The program by its whole path, and its arguments.
    pub command: &'a [String],
    /// How long it may take.
    pub timeout: Duration,
    /// What stands in its environment beside `PATH`, and nothing else does.
    pub environment: Vec<(&'static str, String)>,
    /// What it reads from its standard input; no more than a pipe holds.
    pub input: &'a str,
    /// Becomes true once it runs: until then a disk may keep it from that.
    pub is_started: &'a AtomicBool,
}

/// Tells a hook of an event once, by its command.
///
/// # Errors
/// As [`run`].
pub(super) fn of_event(
    hook: &ConfiguredHook,
    config_file: &Path,
    event: &EventRecord,
    queue: &BoundedQueue<EventRecord>,
) -> Result<(), AttemptFailure> {
    let environment = environment(hook, config_file, event);
    let program = ProgramRun {
        command: &hook.command,
        timeout: hook.timeout,
        environment,
        input: &event.line(),
        is_started: &AtomicBool::new(false),
    };
    run(&program, |pause| queue.is_closed_within(pause))
}

/// Runs the program once, and waits for its end, or until nobody waits for that any more: `ends` is asked whether it is so within a time.
///
/// # Errors
/// It may not be started as others could change it, or cannot be; it says no by its exit code, or takes too long: then its process group
/// was killed. The same where it is not waited for. It is not started once its time is up: a disk may have taken that long to find it.
pub(in crate::daemon) fn run(run: &ProgramRun, ends: impl Fn(Duration) -> bool) -> Result<(), AttemptFailure> {
    let deadline = Instant::now() + run.timeout;
    let limit = || duration_text(run.timeout);
    let program = run.command.first().map(String::as_str).unwrap_or_default();
    if let Some(why) = settings::wrong_program(Path::new(program)) {
        return Err(AttemptFailure::Failed(format!("it was not started: {why}")));
    }
    if ends(Duration::ZERO) {
        return Err(AttemptFailure::Ending);
    }
    if Instant::now() >= deadline {
        return Err(AttemptFailure::Failed(format!(
            "it could not be looked at within {}, and was not started",
            limit()
        )));
    }
    let mut child =
        start(run).map_err(|error| AttemptFailure::Failed(format!("{program} cannot be started: {error}")))?;
    run.is_started.store(true, Ordering::Relaxed);
    if let Some(mut input) = child.stdin.take() {
        // A pipe holds a whole event, so this does not wait. Whoever does not read it has its reasons.
        let _ = input.write_all(run.input.as_bytes());
    }
    let mut pause = LOOK_FIRST;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(AttemptFailure::Failed(how_it_ended(status))),
            Ok(None) => {}
            Err(error) => return Err(AttemptFailure::Failed(format!("it cannot be waited for: {error}"))),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            end(&mut child);
            return Err(AttemptFailure::Failed(format!("it did not end within {} and was killed", limit())));
        }
        if ends(pause.min(left)) {
            end(&mut child);
            return Err(AttemptFailure::Ending);
        }
        pause = (pause * 2).min(LOOK_MAX);
    }
}

fn start(run: &ProgramRun) -> std::io::Result<Child> {
    let (program, arguments) = run.command.split_first().expect("a checked hook without an address has a command");
    let mut command = Command::new(program);
    command.args(arguments).current_dir("/").process_group(0);
    // What it says to standard error goes where the daemon's log goes.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
    // No variable can hold a zero byte, and what a command was given for a group may have one.
    let environment = run.environment.iter().map(|(name, value)| (name, value.replace('\0', "")));
    command.env_clear().env("PATH", program_path()).envs(environment);
    // A daemon that is killed leaves no program behind that tells of the past.
    host::child::end_with_this_thread(&mut command);
    command.spawn()
}

/// Where programs that it calls are looked for.
fn program_path() -> String {
    std::env::var("PATH").unwrap_or_else(|_| PATH.to_owned())
}

/// What a command finds in its environment besides, and nothing else.
fn environment(hook: &ConfiguredHook, config_file: &Path, event: &EventRecord) -> Vec<(&'static str, String)> {
    let unix_ms = i64::try_from(event.time_unix_ms).ok();
    let time = unix_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok()).map(|time| time.to_string());
    let all = [
        ("FARSHORE_HOOK", Some(hook.name.to_string())),
        ("FARSHORE_CONFIG", Some(absolute_text(config_file))),
        ("FARSHORE_NODE", Some(event.node.clone())),
        ("FARSHORE_EVENT", Some(event.kind.clone())),
        ("FARSHORE_EVENT_NUMBER", Some(event.number.to_string())),
        ("FARSHORE_EVENT_TIME", time),
        ("FARSHORE_GROUP", event.group.clone()),
        ("FARSHORE_PEER", event.peer.clone()),
        ("FARSHORE_TEXT", Some(event.text.clone())),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A path for a program that begins in another directory.
pub(in crate::daemon) fn absolute_text(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// Kills its whole group, and itself where it has left that, and takes its end.
fn end(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.kill();
    let _ = child.wait();
}

fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with exit code {code}"),
        (None, Some(signal)) => format!("it was ended by signal {signal}"),
        (None, None) => "it ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use settings::events::EventKind;

    use super::*;
    use crate::events::NewEvent;

    fn attempt(script: &str, timeout: Duration, queue: &BoundedQueue<EventRecord>) -> Result<(), AttemptFailure> {
        let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let hook = ConfiguredHook { command, timeout, ..ConfiguredHook::default() };
        let event = NewEvent::at(5, EventKind::LinkLost, "it\0 ended").of_peer("be\0ta").of_group("d\0b");
        let event = event.numbered(7, "alpha");
        of_event(&hook, Path::new("/f.toml"), &event, queue)
    }

    #[test]
    fn a_command_finds_the_event_and_nothing_of_the_daemon() {
        let queue = BoundedQueue::new(1);
        let long = Duration::from_secs(60);
        let looks = "read line; case \"$line\" in *'\"kind\":\"link-lost\"'*) ;; *) exit 3;; esac; \
                     [ \"$FARSHORE_EVENT $FARSHORE_EVENT_NUMBER $FARSHORE_NODE $FARSHORE_PEER $FARSHORE_GROUP\" = \
                     'link-lost 7 alpha beta db' ] && [ \"$FARSHORE_TEXT\" = 'it ended' ] && [ \"$FARSHORE_CONFIG\" = /f.toml ] && \
                     [ \"$FARSHORE_EVENT_TIME\" = 1970-01-01T00:00:00.005Z ] && [ -z \"$CARGO_MANIFEST_DIR\" ] && [ \"$(pwd)\" = / ]";
        assert_eq!(attempt(looks, long, &queue), Ok(()));
        assert_eq!(attempt("exit 0", long, &queue), Ok(()), "it need not read");
        let failed = |text: &str| Err(AttemptFailure::Failed(text.to_owned()));
        assert_eq!(attempt("exit 3", long, &queue), failed("it ended with exit code 3"));
        assert_eq!(attempt("kill -9 $$", long, &queue), failed("it was ended by signal 9"));
    }

    /// Looked at before each start: what others may write to is not run by the daemon's rights.
    #[test]
    fn a_program_that_others_can_write_to_is_not_started() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let (program, ran) = (directory.path().join("hook"), directory.path().join("ran"));
        std::fs::write(&program, format!("#!/bin/sh\necho x >> {}\n", ran.display())).expect("written");
        let hook = ConfiguredHook {
            command: vec![program.display().to_string()],
            timeout: Duration::from_secs(60),
            ..ConfiguredHook::default()
        };
        let event = NewEvent::at(5, EventKind::LinkLost, "it ended").numbered(7, "alpha");
        let with_mode = |mode| {
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).expect("its mode");
            of_event(&hook, Path::new("/f.toml"), &event, &BoundedQueue::new(1))
        };
        assert_eq!((with_mode(0o755), ran.exists()), (Ok(()), true));
        std::fs::remove_file(&ran).expect("it ran");
        let Err(AttemptFailure::Failed(why)) = with_mode(0o777) else { panic!("it was run") };
        assert!(why.starts_with("it was not started: ") && why.contains("chmod go-w") && !ran.exists(), "{why}");
    }

    /// Its children go with it, or each event would leave one more.
    #[test]
    fn a_command_that_hangs_is_ended_with_its_children() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let hung = attempt(&script, Duration::from_millis(300), &BoundedQueue::new(1));
        assert_eq!(hung, Err(AttemptFailure::Failed("it did not end within 300ms and was killed".to_owned())));
        let pid = std::fs::read_to_string(&file).expect("it began");
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        let lives = || !state().is_empty() && !state().contains(") Z ");
        // It is dead for good, and may take a moment to be gone.
        let deadline = Instant::now() + Duration::from_secs(30);
        while lives() && Instant::now() < deadline {
            std::thread::sleep(LOOK_MAX);
        }
        assert!(!lives(), "its child lives: {}", state());
    }

    #[test]
    fn a_daemon_that_ends_waits_for_no_command() {
        let queue = BoundedQueue::new(1);
        queue.close();
        let started = Instant::now();
        let directory = tempfile::tempdir().expect("a directory");
        let ran = directory.path().join("ran");
        let script = format!("echo > {}; sleep 1000", ran.display());
        assert_eq!(attempt(&script, Duration::from_secs(500), &queue), Err(AttemptFailure::Ending));
        assert!(started.elapsed() < Duration::from_secs(30));
        assert!(!ran.exists(), "nobody waits for it any more");
    }

    /// A disk that hung over its path let it start when whoever asked had long gone: a fence, of a node that was primary by then.
    #[test]
    fn a_command_whose_time_is_up_is_not_started() {
        let directory = tempfile::tempdir().expect("a directory");
        let ran = directory.path().join("ran");
        let late = attempt(&format!("echo > {}", ran.display()), Duration::ZERO, &BoundedQueue::new(1));
        assert!(matches!(&late, Err(AttemptFailure::Failed(why)) if why.ends_with("and was not started")), "{late:?}");
        assert!(!ran.exists());
    }
}
