//! A real daemon on a disk that fails one call of its life: of its first start, its writers, its demotion, its end. Nothing that was
//! acknowledged is lost, it neither hangs nor panics, says which file it was and what to do, and serves again when the disk does.
//!
//! Calls far apart are tried; `FARSHORE_EACH_CALL=1` tries each.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::time::Duration;

use crate::common::{DEADLINE, GROUP, Node, Pair, Plan, SERVES_ALONE, Start, must_skip_stores};
use rustix::io::Errno;

const SMALL: Plan =
    Plan { volumes: &["data"], volume_bytes: 128 << 10, group: SERVES_ALONE, forgets: true, ..Plan::DEFAULT };

/// What became of a life.
#[derive(Debug, Default)]
struct Life {
    /// The start was refused, or the end failed.
    ended: Option<ExitStatus>,
    /// It failed a request or a command of ours.
    refused: Vec<String>,
    is_flushed: bool,
    is_demoted: bool,
}

fn live(pair: &mut Pair) -> Life {
    let mut life = Life::default();
    if let Start::Ended(status) = pair.serve_or_end(Node::Near) {
        life.ended = Some(status);
        return life;
    }
    let (is_flushed, said) =
        pair.try_qemu_io(Node::Near, "data", &["write -P 5 0 64k", "write -f -P 6 64k 4k", "flush"]);
    life.is_flushed = is_flushed;
    life.refused.extend((!is_flushed).then_some(said));
    // It may be demoted, or have failed by now.
    let (code, said) = pair.told(Node::Near, &["demote", GROUP]);
    life.is_demoted = code < 2;
    life.refused.extend((!life.is_demoted).then_some(said));
    let status = pair.stop(Node::Near);
    life.ended = (!status.success()).then_some(status);
    life
}

/// Whether it came to that call.
fn fails_at(calls: u64, errno: Errno) -> bool {
    let case = format!("{} at call {calls}", if errno == Errno::IO { "EIO" } else { "ENOSPC" });
    let mut pair = Pair::new(&SMALL);
    pair.fail_call_after(Node::Near, calls, errno.raw_os_error());
    let life = live(&mut pair);
    let failed = pair.fail_no_call(Node::Near);
    let log = pair.log(Node::Near);
    let is_told = life.ended.is_some() || !life.refused.is_empty();
    let near = pair.path("near").display().to_string();
    let is_named = log.lines().any(|line| line.contains(&near) && line.contains("rror"));
    let Life { is_flushed, is_demoted, .. } = life;
    println!("{case}, {failed:?}: told: {is_told}, named: {is_named}, flushed: {is_flushed}, demoted: {is_demoted}");
    assert!(!log.contains("panicked"), "{case}: {log}");
    if let Some(status) = life.ended {
        assert!(status.code().is_some(), "{case}: {status}\n{log}");
    }
    assert!(failed.is_some() || !is_told, "{case}: nothing failed: {life:?}\n{log}");
    // A read or an open may only look whether something is possible, and a socket's file may stay behind at the end.
    let is_harmless = matches!(failed, None | Some("read" | "open")) || (failed == Some("names") && life.is_demoted);
    assert!(is_named || is_harmless, "{case}: no file is named: {life:?}\n{log}");
    assert!(is_named || !is_told, "{case}: no file is named: {life:?}\n{log}");
    pair.lose_power(&[Node::Near], calls);
    let role = |pair: &Pair| pair.status(Node::Near)["role"].as_str().map(str::to_owned);
    pair.serve(Node::Near);
    assert!(!life.is_demoted || role(&pair).as_deref() == Some("secondary"), "{case}: the demotion is forgotten");
    assert_ne!(
        pair.status(Node::Near)["state"],
        "failed",
        "{case}: {}\n{}",
        pair.status(Node::Near),
        pair.log(Node::Near)
    );
    assert!(pair.stop(Node::Near).success(), "{case}: {}", pair.log(Node::Near));
    if life.is_flushed {
        let content = pair.content(Node::Near, "data");
        let is_kept = content[..64 << 10].iter().all(|byte| *byte == 5)
            && content[64 << 10..68 << 10].iter().all(|byte| *byte == 6);
        assert!(is_kept, "{case}: what was flushed is lost");
    }
    failed.is_some()
}

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
    let plan = Plan { volumes: &["data"], volume_bytes: 1 << 20, mode: "sync", forgets: true, ..Plan::DEFAULT };
    let mut pair = Pair::replicating(&plan);
    for (round, calls) in (1u8..).zip(0..) {
        let errno = if calls % 2 == 0 { Errno::IO } else { Errno::NOSPC };
        pair.wait_for(Node::Near, "replicating");
        pair.fail_call_after(Node::Far, calls, errno.raw_os_error());
        let writes = [format!("write -P {round} 0 64k"), format!("write -f -P {round} 512k 4k"), "flush".to_owned()];
        pair.qemu_io(Node::Near, "data", &writes.each_ref().map(String::as_str));
        pair.until("the secondary has it, or says that it failed", |pair| {
            let status = pair.status(Node::Near);
            status["state"] != "replicating" || status["peers"][0]["dirty_bytes"] == 0
        });
        let (failed, state) = (pair.fail_no_call(Node::Far), pair.status(Node::Far)["state"].to_string());
        println!("error {} at call {calls}, {failed:?}: the secondary is {state}", errno.raw_os_error());
        let log = pair.log(Node::Far);
        assert!(!log.contains("panicked"), "{log}");
        pair.lose_power(&[Node::Far], calls);
        pair.serve(Node::Far);
        if failed.is_none() {
            assert!(calls > 5, "{calls} calls are too few to be all");
            break;
        }
        let far = pair.path("far").display().to_string();
        let is_named = log.lines().any(|line| line.contains(&far) && line.contains("failed on"));
        assert!(is_named || state == "\"replicating\"", "no file is named: {log}");
    }
    pair.wait_for(Node::Near, "replicating");
    pair.wait_for_rest(Node::Near);
    pair.stop_both();
    pair.assert_equal(&["data"]);
}

/// A control connection made before the disk hangs: afterwards its path leads nowhere.
struct Line(BufReader<UnixStream>);

impl Line {
    fn connect(pair: &Pair) -> Line {
        let stream = UnixStream::connect(pair.path("near/state/control.sock")).expect("the daemon listens");
        Line(BufReader::new(stream))
    }

    fn ask(&mut self, request: &str) {
        writeln!(self.0.get_mut(), "{request}").expect("the daemon reads");
    }

    /// The answer, if it comes in time.
    fn answer(&mut self, within: Duration) -> Option<String> {
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
    pair.serve(Node::Near);
    let (mut changes, mut looks) = (Line::connect(&pair), Line::connect(&pair));
    pair.hang(Node::Near);
    changes.ask(r#"{"request":"set","group":"g","settings":{"mode":"sync"}}"#);
    assert_eq!(changes.answer(Duration::from_millis(300)), None, "the disk does not hang");
    for request in ["status", "counters", "status"] {
        looks.ask(&format!(r#"{{"request":"{request}"}}"#));
        let answer = looks.answer(Duration::from_secs(5)).expect("who looks is answered");
        assert!(answer.contains(&format!("\"reply\":\"{request}\"")), "{answer}");
    }
    pair.answer_again(Node::Near);
    let answer = changes.answer(DEADLINE).expect("the change is done");
    assert!(answer.contains("\"reply\":\"ok\""), "{answer}");
    assert!(pair.stop(Node::Near).success(), "{}", pair.log(Node::Near));
}
