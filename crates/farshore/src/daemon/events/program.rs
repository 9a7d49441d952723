//! A hook's command: started in a group of its own, given the event, and ended when its time is up.

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
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

/// Runs the command once, and waits for its end or for the queue's: then the daemon ends.
///
/// # Errors
/// It may not be started as others could change it, or cannot be; it says no by its exit code, or takes too long: then its process group
/// was killed.
pub(super) fn run(
    hook: &ConfiguredHook,
    config_file: &Path,
    event: &EventRecord,
    queue: &BoundedQueue<EventRecord>,
) -> Result<(), AttemptFailure> {
    let program = hook.command.first().map(String::as_str).unwrap_or_default();
    if let Some(why) = settings::wrong_program(Path::new(program)) {
        return Err(AttemptFailure::Failed(format!("it was not started: {why}")));
    }
    let mut child = start(hook, config_file, event)
        .map_err(|error| AttemptFailure::Failed(format!("{program} cannot be started: {error}")))?;
    if let Some(mut input) = child.stdin.take() {
        // A pipe holds a whole event, so this does not wait. Whoever does not read it has its reasons.
        let _ = input.write_all(event.line().as_bytes());
    }
    let deadline = Instant::now() + hook.timeout;
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
            let limit = duration_text(hook.timeout);
            return Err(AttemptFailure::Failed(format!("it did not end within {limit} and was killed")));
        }
        if queue.is_closed_within(pause.min(left)) {
            end(&mut child);
            return Err(AttemptFailure::Ending);
        }
        pause = (pause * 2).min(LOOK_MAX);
    }
}

fn start(hook: &ConfiguredHook, config_file: &Path, event: &EventRecord) -> std::io::Result<Child> {
    let (program, arguments) = hook.command.split_first().expect("a checked hook without an address has a command");
    let mut command = Command::new(program);
    command.args(arguments).current_dir("/").process_group(0);
    // What it says to standard error goes where the daemon's log goes.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
    command.env_clear().envs(environment(hook, config_file, event));
    // A daemon that is killed leaves no program behind that tells of the past.
    host::child::end_with_this_thread(&mut command);
    command.spawn()
}

/// What a command finds in its environment, and nothing else.
fn environment(hook: &ConfiguredHook, config_file: &Path, event: &EventRecord) -> Vec<(&'static str, String)> {
    let unix_ms = i64::try_from(event.time_unix_ms).ok();
    let time = unix_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok()).map(|time| time.to_string());
    let config_file = std::path::absolute(config_file).unwrap_or_else(|_| config_file.to_owned());
    let all = [
        ("PATH", std::env::var("PATH").ok().or_else(|| Some(PATH.to_owned()))),
        ("FARSHORE_HOOK", Some(hook.name.to_string())),
        ("FARSHORE_CONFIG", Some(config_file.display().to_string())),
        ("FARSHORE_NODE", Some(event.node.clone())),
        ("FARSHORE_EVENT", Some(event.kind.clone())),
        ("FARSHORE_EVENT_NUMBER", Some(event.number.to_string())),
        ("FARSHORE_EVENT_TIME", time),
        ("FARSHORE_GROUP", event.group.clone()),
        ("FARSHORE_PEER", event.peer.clone()),
        ("FARSHORE_TEXT", Some(event.text.clone())),
    ];
    // No variable can hold a zero byte, and what a command was given for a group may have one.
    all.into_iter().filter_map(|(name, value)| Some((name, value?.replace('\0', "")))).collect()
}

/// Kills its whole group, and takes its end.
fn end(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
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
        run(&hook, Path::new("/f.toml"), &event, queue)
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
            run(&hook, Path::new("/f.toml"), &event, &BoundedQueue::new(1))
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
        assert_eq!(attempt("sleep 1000", Duration::from_secs(500), &queue), Err(AttemptFailure::Ending));
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
