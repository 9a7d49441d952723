//! A real daemon on a disk that fails one call of its life: of its first start, its writers, its demotion, its end. Nothing that was
//! acknowledged is lost, it neither hangs nor panics, says which file it was and what to do, and serves again when the disk does.
//!
//! Calls far apart are tried; `FARSHORE_EACH_CALL=1` tries each.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::time::Duration;

use crate::common::{DEADLINE, DaemonStart, GROUP, Pair, PairPlan, SERVES_ALONE, Side, must_skip_stores};
use rustix::io::Errno;

const SMALL: PairPlan =
    PairPlan { volumes: &["data"], volume_bytes: 128 << 10, group: SERVES_ALONE, forgets: true, ..PairPlan::DEFAULT };

/// What became of a life.
#[derive(Debug, Default)]
struct DaemonLife {
    /// The start was refused, or the end failed.
    ended: Option<ExitStatus>,
    /// It failed a request or a command of ours.
    refused: Vec<String>,
    is_flushed: bool,
    is_demoted: bool,
}

fn live(pair: &mut Pair) -> DaemonLife {
    let mut life = DaemonLife::default();
    if let DaemonStart::Ended(status) = pair.serve_or_end(Side::Near) {
        life.ended = Some(status);
        return life;
    }
    let (is_flushed, said) =
        pair.try_qemu_io(Side::Near, "data", &["write -P 5 0 64k", "write -f -P 6 64k 4k", "flush"]);
    life.is_flushed = is_flushed;
    life.refused.extend((!is_flushed).then_some(said));
    // It may be demoted, or have failed by now.
    let (code, said) = pair.output_of(Side::Near, &["demote", GROUP]);
    life.is_demoted = code < 2;
    life.refused.extend((!life.is_demoted).then_some(said));
    let status = pair.stop(Side::Near);
    life.ended = (!status.success()).then_some(status);
    life
}

/// Whether it came to that call.
fn fails_at(calls: u64, errno: Errno) -> bool {
    let errors = if errno == Errno::IO { "EIO" } else { "ENOSPC" };
    let mut pair = Pair::new(&SMALL);
    pair.fail_call_after(Side::Near, calls, errno.raw_os_error());
    let life = live(&mut pair);
    let failed = pair.fail_no_call(Side::Near);
    let flushes = pair.failed_flush_of(Side::Near).map(|file| format!(", a flush of {}", file.display()));
    let case = format!("{errors} at call {calls}{}", flushes.unwrap_or_default());
    let log = pair.log(Side::Near);
    let is_reported = life.ended.is_some() || !life.refused.is_empty();
    let near = pair.path("near").display().to_string();
    let is_named = log.lines().any(|line| line.contains(&near) && line.contains("rror"));
    let DaemonLife { is_flushed, is_demoted, .. } = life;
    println!(
        "{case}, {failed:?}: told: {is_reported}, named: {is_named}, flushed: {is_flushed}, demoted: {is_demoted}"
    );
    assert!(!log.contains("panicked"), "{case}: {log}");
    if let Some(status) = life.ended {
        assert!(status.code().is_some(), "{case}: {status}\n{log}");
    }
    assert!(failed.is_some() || !is_reported, "{case}: nothing failed: {life:?}\n{log}");
    // A read or an open may only look whether something is possible, and a socket's file may stay behind at the end.
    let is_harmless = matches!(failed, None | Some("read" | "open")) || (failed == Some("names") && life.is_demoted);
    assert!(is_named || is_harmless, "{case}: no file is named: {life:?}\n{log}");
    assert!(is_named || !is_reported, "{case}: no file is named: {life:?}\n{log}");
    pair.lose_power(&[Side::Near], calls);
    let role = |pair: &Pair| pair.status(Side::Near)["role"].as_str().map(str::to_owned);
    pair.serve(Side::Near);
    assert!(!life.is_demoted || role(&pair).as_deref() == Some("secondary"), "{case}: the demotion is forgotten");
    assert_ne!(
        pair.status(Side::Near)["state"],
        "failed",
        "{case}: {}\n{}",
        pair.status(Side::Near),
        pair.log(Side::Near)
    );
    assert!(pair.stop(Side::Near).success(), "{case}: {}", pair.log(Side::Near));
    if life.is_flushed {
        let content = pair.content(Side::Near, "data");
        let is_kept = content[..64 << 10].iter().all(|byte| *byte == 5)
            && content[64 << 10..68 << 10].iter().all(|byte| *byte == 6);
        assert!(is_kept, "{case}: what was flushed is lost");
    }
    failed.is_some()
}

// proves: P4, P8
#[test]
fn a_daemon_meets_one_call_that_fails() {
    if must_skip_stores("a_daemon_meets_one_call_that_fails") {
        return;
    }
    let step = if std::env::var_os("FARSHORE_EACH_CALL").is_some() { 1 } else { 5 };
    let mut calls = 0;
    // Of two errors by turns.
    while fails_at(calls, if calls % 2 == 0 { Errno::IO } else { Errno::NOSPC }) {
        calls += step;
    }
    println!("a daemon's life takes some {calls} calls");
    assert!(calls > 60, "{calls} calls are too few to be all");
}

/// Its primary's clients notice nothing; after a power loss on top, both nodes become equal again.
#[test]
fn a_secondary_meets_one_call_that_fails() {
    if must_skip_stores("a_secondary_meets_one_call_that_fails") {
        return;
    }
    let plan = PairPlan { volumes: &["data"], volume_bytes: 1 << 20, mode: "sync", forgets: true, ..PairPlan::DEFAULT };
    let mut pair = Pair::replicating(&plan);
    for (round, calls) in (1u8..).zip(0..) {
        let errno = if calls % 2 == 0 { Errno::IO } else { Errno::NOSPC };
        pair.wait_for(Side::Near, "replicating");
        pair.fail_call_after(Side::Far, calls, errno.raw_os_error());
        let writes = [format!("write -P {round} 0 64k"), format!("write -f -P {round} 512k 4k"), "flush".to_owned()];
        pair.qemu_io(Side::Near, "data", &writes.each_ref().map(String::as_str));
        pair.until("the secondary has it, or says that it failed", |pair| {
            let status = pair.status(Side::Near);
            status["state"] != "replicating" || status["peers"][0]["dirty_bytes"] == 0
        });
        let (failed, state) = (pair.fail_no_call(Side::Far), pair.status(Side::Far)["state"].to_string());
        println!("error {} at call {calls}, {failed:?}: the secondary is {state}", errno.raw_os_error());
        let log = pair.log(Side::Far);
        assert!(!log.contains("panicked"), "{log}");
        pair.lose_power(&[Side::Far], calls);
        pair.serve(Side::Far);
        if failed.is_none() {
            assert!(calls > 5, "{calls} calls are too few to be all");
            break;
        }
        let far = pair.path("far").display().to_string();
        let is_named = log.lines().any(|line| line.contains(&far) && line.contains("failed on"));
        assert!(is_named || state == "\"replicating\"", "no file is named: {log}");
    }
    pair.wait_for(Side::Near, "replicating");
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data"]);
}

/// A control connection made before the disk hangs: afterwards its path leads nowhere.
pub(crate) struct ControlLine(BufReader<UnixStream>);

impl ControlLine {
    pub(crate) fn connect(pair: &Pair) -> ControlLine {
        let stream = UnixStream::connect(pair.path("near/state/control.sock")).expect("the daemon listens");
        ControlLine(BufReader::new(stream))
    }

    pub(crate) fn ask(&mut self, request: &str) {
        writeln!(self.0.get_mut(), "{request}").expect("the daemon reads");
    }

    /// The answer, if it comes in time.
    pub(crate) fn answer(&mut self, within: Duration) -> Option<String> {
        self.0.get_mut().set_read_timeout(Some(within)).expect("a timeout");
        let mut line = String::new();
        self.0.read_line(&mut line).ok().map(|_| line)
    }
}

/// A change that waits for the disk held a lock that everybody needs who only looks.
#[test]
fn who_looks_is_answered_while_a_change_waits_for_the_disk() {
    if must_skip_stores("who_looks_is_answered_while_a_change_waits_for_the_disk") {
        return;
    }
    let mut pair = Pair::new(&SMALL);
    pair.serve(Side::Near);
    let (mut changes, mut looks) = (ControlLine::connect(&pair), ControlLine::connect(&pair));
    pair.hang(Side::Near);
    changes.ask(r#"{"request":"set","group":"g","settings":{"mode":"sync"}}"#);
    assert_eq!(changes.answer(Duration::from_millis(300)), None, "the disk does not hang");
    for request in ["status", "counters", "status"] {
        looks.ask(&format!(r#"{{"request":"{request}"}}"#));
        let answer = looks.answer(Duration::from_secs(5)).expect("who looks is answered");
        assert!(answer.contains(&format!("\"reply\":\"{request}\"")), "{answer}");
    }
    pair.answer_again(Side::Near);
    let answer = changes.answer(DEADLINE).expect("the change is done");
    assert!(answer.contains("\"reply\":\"ok\""), "{answer}");
    assert!(pair.stop(Side::Near).success(), "{}", pair.log(Side::Near));
}
