//! How a reverse sync ends, or does not begin, where two things meet: an operator's word, a command of the configuration, or the end of a daemon.
// proves: rule 13

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use forgetful::ForgetfulStore;

use crate::common::load::{LoadPlan, WriterLoad, WriterRun};
use crate::common::{Background, DEADLINE, GROUP, Pair, PairPlan, Side, expect, must_skip_stores};
use crate::dead_primary::{is_agreed_on, is_announced, pair as with_dying_disk, two_volumes, until_served_by_far};
use crate::disk_calls::ControlLine;
use crate::reverse_sync::{served_by_far, until_home};
use crate::role_hooks::{pair as with_hooks, ran, with_hooks as hooked};

const STOP: [&str; 4] = ["sync", GROUP, "--reverse", "--stop"];
const MIB: u64 = 1 << 20;

/// A command before a demotion.
const BEFORE_DEMOTE: &str = "hooks.before_demote = HOOK\nhooks.timeout = \"60s\"";
/// It lasts as long as the file `slow` is there.
const SLOW: &str = "while [ -e \"$(dirname $0)/slow\" ]; do sleep 0.1; done";

fn plan() -> PairPlan<'static> {
    PairPlan { volume_bytes: 8 * MIB, ..PairPlan::DEFAULT }
}

pub(crate) fn is_primary(pair: &Pair, node: Side) -> bool {
    pair.status(node)["role"] == "primary"
}

pub(crate) fn record(pair: &Pair, node: Side) -> PathBuf {
    pair.path(node.name()).join("state/groups").join(GROUP).join("reverse")
}

/// Near serves clients of far, which is reached through a relay; it is told to stop while that is cut, and others write to it. Of a client of far
/// that waits meanwhile; and the term of far.
fn stopped_behind_a_cut() -> (Pair, Background, serde_json::Value) {
    let mut pair = Pair::new(&plan());
    pair.lay_relay();
    pair.first_sync();
    pair.done(Side::Near, &["switchover", GROUP, "--to", "far"]);
    pair.wait_for(Side::Far, "replicating");
    pair.done(Side::Far, &["sync", GROUP, "--reverse", "--full"]);
    pair.done(Side::Near, &["logging", GROUP]);
    pair.until("it is served", |pair| pair.try_qemu_io(Side::Far, "data", &["read 0 64k"]).0);
    let term = pair.status(Side::Far)["term"].clone();
    pair.relay().cut();
    let old = pair.start_qemu_io(Side::Far, "data", &["write -P 9 0 64k"]);
    pair.until("both see it", |pair| pair.status(Side::Near)["peers"][0]["link"] != "connected");
    pair.done(Side::Near, &STOP);
    pair.qemu_io(Side::Near, "data", &["write -P 6 0 64k", "flush"]);
    pair.relay().restore();
    pair.until("the link is back", |pair| pair.output_of(Side::Near, &["sync", GROUP]).0 == 0);
    (pair, old, term)
}

// proves: P1, rule 13
/// The node that serves is told to stop while the line is cut, and others write there: what waits at home is cut off, and does not land over that.
#[test]
fn what_waited_at_home_does_not_land_where_a_reverse_sync_was_stopped() {
    let (mut pair, old, _) = stopped_behind_a_cut();
    let (is_done, said) = old.finish(&mut pair);
    assert!(!is_done, "{said}");
    assert!(is_primary(&pair, Side::Near) && !is_primary(&pair, Side::Far));
    pair.qemu_io(Side::Near, "data", &["read -P 6 0 64k"]);
}

// proves: P1, P6
/// Behind a stop the node that had served was demoted: the one at home took over by itself, in order and in its old term, as if nobody else had
/// written.
#[test]
fn what_waited_at_home_does_not_land_behind_a_stop_and_a_demotion() {
    let (mut pair, old, term) = stopped_behind_a_cut();
    pair.until("all is on its way", |pair| pair.status(Side::Near)["state"] == "replicating");
    pair.done(Side::Near, &["demote", GROUP]);
    let (is_done, said) = old.finish(&mut pair);
    assert!(!is_done, "{said}");
    pair.until("nothing is left of it", |pair| !record(pair, Side::Far).exists());
    assert!(Side::BOTH.iter().all(|node| !is_primary(&pair, *node)), "nobody asked for a promotion");
    pair.until("far is promoted by hand", |pair| pair.output_of(Side::Far, &["promote", GROUP]).0 < 2);
    assert_ne!(pair.status(Side::Far)["term"], term);
    pair.qemu_io(Side::Far, "data", &["read -P 6 0 64k"]);
}

// proves: P1, P6
/// The same where the operator has home take over: devices that are attached there are in another term.
#[test]
fn a_switchover_behind_a_stop_begins_a_term() {
    let (mut pair, old, term) = stopped_behind_a_cut();
    pair.until("it hands over", |pair| pair.output_of(Side::Near, &["switchover", GROUP, "--to", "far"]).0 < 2);
    let (is_done, said) = old.finish(&mut pair);
    assert!(!is_done, "{said}");
    pair.until("far is the primary", |pair| is_primary(pair, Side::Far));
    assert_ne!(pair.status(Side::Far)["term"], term);
    pair.until("nothing is left of it", |pair| !record(pair, Side::Far).exists());
    pair.qemu_io(Side::Far, "data", &["read -P 6 0 64k"]);
}

/// A node that lacks a disk is never equal, and asked nobody: its clients waited for good.
#[test]
fn a_home_that_lacks_a_disk_hears_that_it_is_over() {
    let mut pair = Pair::replicating(&plan());
    pair.done(Side::Near, &["group", "detach", GROUP, "log", "--force"]);
    pair.wait_for(Side::Near, "replicating");
    assert_eq!(pair.output_of(Side::Near, &["sync", GROUP, "--reverse", "--yes"]).0, 1);
    pair.until("it is served", |pair| pair.try_qemu_io(Side::Near, "data", &["read 0 64k"]).0);
    let client = pair.start_qemu_io(Side::Near, "data", &["read 0 64k", "sleep 4000", "write -P 9 0 64k"]);
    pair.until("it is attached", |pair| pair.status(Side::Near)["volumes"][0]["clients"] == 1);
    // A promotion by force that is refused ends nothing: devices are served by far still.
    pair.done(Side::Far, &["logging", GROUP]);
    pair.done(Side::Near, &["group", "attach", GROUP, "log"]);
    let term = pair.status(Side::Near)["term"].clone();
    expect(&pair.run(Side::Near, &["promote", GROUP, "--force", "--yes"]), 2, &["no sync has filled"]);
    assert_eq!(pair.status(Side::Near)["term"], term);
    pair.done(Side::Far, &STOP);
    pair.qemu_io(Side::Far, "data", &["write -P 6 0 64k", "flush"]);
    let (is_done, said) = client.finish(&mut pair);
    assert!(!is_done, "{said}");
    pair.until("nothing is left of it", |pair| !record(pair, Side::Near).exists());
    pair.qemu_io(Side::Far, "data", &["read -P 6 0 64k"]);
}

/// As a daemon leaves it that has this part in a reverse sync.
pub(crate) fn has_part(pair: &Pair, node: Side, place: &str) {
    let text = format!("farshore reverse 1\nplace {place}\n");
    let text = format!("{text}checksum {:08x}\n", crc32c::crc32c(text.as_bytes()));
    fs::write(record(pair, node), text).expect("a record");
}

/// The other node was lost between the demotion of this one and its own promotion, and is promoted later: clients waited until both were equal, or
/// for good where no sync began.
#[test]
fn clients_go_on_once_the_node_that_serves_is_primary_after_all() {
    let mut pair = Pair::replicating(&plan());
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 64k", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["demote", GROUP]);
    pair.stop_both();
    has_part(&pair, Side::Near, "home");
    has_part(&pair, Side::Far, "server");
    Side::BOTH.iter().for_each(|node| pair.serve(*node));
    // Near is not to be equal before its clients go on.
    pair.until("far is promoted", |pair| pair.output_of(Side::Far, &["logging", GROUP]).0 == 0);
    let mut client = pair.start_qemu_io(Side::Near, "data", &["read -P 5 0 64k", "write -P 7 64k 64k", "flush"]);
    let until = Instant::now() + Duration::from_secs(30);
    while !client.has_ended() {
        assert!(Instant::now() < until, "{}\n{}", pair.status(Side::Near)["reverse"], pair.log(Side::Near));
        std::thread::sleep(Duration::from_millis(50));
    }
    let (is_done, said) = client.finish(&mut pair);
    assert!(is_done, "{said}");
    let (is_open, said) = pair.try_qemu_io(Side::Far, "data", &["read 0 512"]);
    assert!(!is_open, "{said}");
    pair.done(Side::Far, &["sync", GROUP]);
    until_home(&mut pair, Side::Near);
    pair.qemu_io(Side::Near, "data", &["read -P 5 0 64k", "read -P 7 64k 64k"]);
}

// proves: P1, P6
/// The other node was told to serve nobody's clients before it was promoted for them, or is demoted since: the order to promote it was given again
/// each few seconds, and nobody asked what it had been told.
#[test]
fn a_node_that_was_told_to_stop_is_not_promoted_for_its_peer_again() {
    let mut pair = Pair::replicating(&plan());
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["demote", GROUP]);
    pair.stop_both();
    has_part(&pair, Side::Near, "home gives-up new-term");
    Side::BOTH.iter().for_each(|node| pair.serve(*node));
    pair.until("near has heard that it is over", |pair| !record(pair, Side::Near).exists());
    assert!(Side::BOTH.iter().all(|node| !is_primary(&pair, *node)), "{}", pair.log(Side::Far));
    assert!(!record(&pair, Side::Far).exists());
    // Near has handed over: far alone is promoted by a word, for its own clients.
    pair.done(Side::Far, &["promote", GROUP]);
    pair.qemu_io(Side::Far, "data", &["write -P 3 0 64k", "flush"]);
}

// proves: rule 13
/// A volume was detached on the node that serves between home's demotion and its own promotion: it was promoted without that volume, and clients found
/// none of that name.
#[test]
fn a_node_without_a_volume_is_not_promoted_for_its_peer() {
    let mut pair = Pair::replicating(&plan());
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["demote", GROUP]);
    pair.done(Side::Far, &["group", "detach", GROUP, "log", "--force"]);
    pair.stop_both();
    has_part(&pair, Side::Near, "home gives-up new-term");
    has_part(&pair, Side::Far, "server");
    Side::BOTH.iter().for_each(|node| pair.serve(*node));
    pair.until("near has tried", |pair| {
        assert!(!is_primary(pair, Side::Far), "{}", pair.log(Side::Far));
        pair.status(Side::Near)["reverse"]["why"].to_string().contains("a volume is detached here")
    });
    assert!(record(&pair, Side::Far).exists());
}

/// Right behind the end of a reverse sync, while its record was there still, a change of role was taken for a part of it: the clients were held and
/// forwarded, and near took over again by itself.
#[test]
fn what_is_typed_behind_the_end_of_a_reverse_sync_is_no_part_of_it() {
    let mut pair = Pair::replicating(&plan());
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["demote", GROUP]);
    pair.stop_both();
    has_part(&pair, Side::Near, "home");
    has_part(&pair, Side::Far, "server");
    Side::BOTH.iter().for_each(|node| pair.serve(*node));
    pair.until("far is promoted", |pair| pair.output_of(Side::Far, &["logging", GROUP]).0 == 0);
    // The record cannot be removed.
    fs::remove_file(record(&pair, Side::Near)).and_then(|()| fs::create_dir(record(&pair, Side::Near))).expect("made");
    pair.done(Side::Far, &["sync", GROUP]);
    pair.until("near is the primary", |pair| is_primary(pair, Side::Near));
    pair.wait_for(Side::Near, "replicating");
    let parts = ["nothing was changed", "the record of a reverse sync that is over is there still"];
    for words in [&["switchover", GROUP, "--to", "far"][..], &["demote", GROUP]] {
        expect(&pair.run(Side::Near, words), 2, &parts);
        assert!(is_primary(&pair, Side::Near) && !is_primary(&pair, Side::Far));
    }
    fs::remove_dir(record(&pair, Side::Near)).expect("removed");
    pair.done(Side::Near, &["switchover", GROUP, "--to", "far"]);
    assert!(Side::BOTH.iter().all(|node| !record(&pair, *node).exists()));
    pair.qemu_io(Side::Far, "data", &["write -P 3 0 64k", "flush"]);
    // Near would have taken over by then.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(is_primary(&pair, Side::Far) && !is_primary(&pair, Side::Near));
}

/// A reverse sync that is being begun: near runs its command before the demotion.
fn being_begun() -> (Pair, Background) {
    let mut pair = with_hooks(BEFORE_DEMOTE, SLOW);
    pair.wait_for_rest(Side::Near);
    fs::write(pair.path("slow"), "").expect("written");
    let typed = Background::start(pair.command(Side::Near, &["sync", GROUP, "--reverse", "--full"]));
    let ran = ran(&pair);
    pair.until("near's command runs", |_| ran.exists());
    (pair, typed)
}

fn goes_on(pair: &mut Pair, typed: Background) {
    fs::remove_file(pair.path("slow")).expect("it was there");
    let (is_done, said) = typed.finish(pair);
    assert!(is_done && said.contains("node far serves the clients of this node"), "{said}");
    until_home(pair, Side::Near);
    pair.qemu_io(Side::Near, "data", &["write -P 8 0 4k", "flush"]);
}

// proves: P1, P6
/// Clients were held for a demotion of which nobody knew whether it is on record. Told to stop before the reset they waited on, and what they had asked
/// landed at the next promotion, over what others had written at the other node.
#[test]
fn what_was_held_for_a_demotion_of_which_nobody_knows_lands_nowhere() {
    if must_skip_stores("what_was_held_for_a_demotion_of_which_nobody_knows_lands_nowhere") {
        return;
    }
    let mut pair = Pair::new(&PairPlan { forgets: true, ..plan() });
    let ran = hooked(&pair, BEFORE_DEMOTE, SLOW);
    pair.first_sync();
    // The write of the superblock is one of these calls.
    let mut calls = [3, 2, 4, 1, 5, 0, 6, 7].iter().cycle();
    let client = loop {
        pair.wait_for_rest(Side::Near);
        let _ = fs::remove_file(&ran);
        fs::write(pair.path("slow"), "").expect("written");
        let typed = Background::start(pair.command(Side::Near, &["sync", GROUP, "--reverse"]));
        pair.until("near's command runs", |_| ran.exists());
        let client = pair.start_qemu_io(Side::Near, "data", &["sleep 800", "write -P 9 0 64k", "flush"]);
        pair.until("it is attached", |pair| pair.status(Side::Near)["volumes"][0]["clients"] == 1);
        pair.fail_call_after(Side::Near, *calls.next().expect("they cycle"), rustix::io::Errno::IO.raw_os_error());
        fs::remove_file(pair.path("slow")).expect("it was there");
        let (_, said) = typed.finish(&mut pair);
        println!("{:?}: {said}", pair.fail_no_call(Side::Near));
        let is_unknown = said.contains("it is not known whether the new role is on record");
        if is_unknown {
            expect(&pair.run(Side::Near, &STOP), 0, &["the exports of this node are closed"]);
            pair.done(Side::Near, &["reset", GROUP]);
            if !is_primary(&pair, Side::Near) {
                break client;
            }
        }
        drop(client);
        if pair.status(Side::Near)["state"] == "failed" {
            pair.done(Side::Near, &["reset", GROUP]);
        }
        until_home(&mut pair, Side::Near);
        let _ = pair.output_of(Side::Near, &["sync", GROUP]);
    };
    // It has asked by then, if it was not cut off.
    std::thread::sleep(Duration::from_millis(500));
    pair.until("far is promoted", |pair| pair.output_of(Side::Far, &["promote", GROUP, "--force", "--yes"]).0 < 2);
    pair.qemu_io(Side::Far, "data", &["write -P 6 0 64k", "flush"]);
    let _ = pair.output_of(Side::Far, &["sync", GROUP]);
    pair.wait_for(Side::Far, "replicating");
    pair.until("it hands over", |pair| pair.output_of(Side::Far, &["switchover", GROUP, "--to", "near"]).0 < 2);
    let (is_done, said) = client.finish(&mut pair);
    assert!(!is_done, "{said}");
    pair.until("near is the primary", |pair| is_primary(pair, Side::Near));
    pair.qemu_io(Side::Near, "data", &["read -P 6 0 64k"]);
}

// proves: P1, P6
/// The node that served handed over, and nobody knows whether the promotion is on record. The record of the reverse sync went, and clients were left
/// waiting with nothing that leads to them: what they had asked would have landed at some later promotion, over what others wrote.
#[test]
fn who_waits_for_a_take_over_of_which_nobody_knows_is_not_left_behind() {
    if must_skip_stores("who_waits_for_a_take_over_of_which_nobody_knows_is_not_left_behind") {
        return;
    }
    let mut pair = Pair::new(&PairPlan { forgets: true, ..plan() });
    let ran = hooked(&pair, BEFORE_DEMOTE, &format!("[ $FARSHORE_NODE = near ] || {SLOW}"));
    pair.first_sync();
    let mut calls = [2, 3, 1, 4, 0, 5, 6, 7].iter().cycle();
    let client = loop {
        pair.wait_for_rest(Side::Near);
        let _ = fs::remove_file(&ran);
        fs::write(pair.path("slow"), "").expect("written");
        pair.done(Side::Near, &["sync", GROUP, "--reverse"]);
        let is_far = |line: &str| line.starts_with("before_demote far");
        pair.until("far's command runs", |_| fs::read_to_string(&ran).unwrap_or_default().lines().any(is_far));
        let client = pair.start_qemu_io(Side::Near, "data", &["sleep 1000", "write -P 9 0 64k", "flush"]);
        pair.until("it is attached", |pair| pair.status(Side::Near)["volumes"][0]["clients"] == 1);
        pair.fail_call_after(Side::Near, *calls.next().expect("they cycle"), rustix::io::Errno::IO.raw_os_error());
        fs::remove_file(pair.path("slow")).expect("it was there");
        pair.until("it is over, one way or the other", |pair| {
            pair.status(Side::Near)["state"] == "failed" || !record(pair, Side::Near).exists()
        });
        println!("{:?}: {}", pair.fail_no_call(Side::Near), pair.status(Side::Near)["reason"]);
        // Whoever ends a record does so within this time.
        std::thread::sleep(Duration::from_millis(300));
        if pair.status(Side::Near)["state"] == "failed" {
            let is_promoted = is_primary(&pair, Side::Near);
            let stands = record(&pair, Side::Near).exists();
            pair.done(Side::Near, &["reset", GROUP]);
            if is_promoted && !is_primary(&pair, Side::Near) {
                assert!(stands, "its record is gone");
                break client;
            }
        }
        drop(client);
        let _ = pair.output_of(Side::Near, &["sync", GROUP, "--reverse", "--stop"]);
        until_home(&mut pair, Side::Near);
        let _ = pair.output_of(Side::Near, &["sync", GROUP]);
    };
    pair.until("far is promoted", |pair| pair.output_of(Side::Far, &["promote", GROUP, "--force", "--yes"]).0 < 2);
    pair.qemu_io(Side::Far, "data", &["write -P 6 0 64k", "flush"]);
    // Near finds out within half a minute that far serves its own clients alone; an operator is faster.
    let _ = pair.output_of(Side::Near, &STOP);
    let (is_done, said) = client.finish(&mut pair);
    assert!(!is_done, "{said}");
    assert!(!record(&pair, Side::Near).exists());
    let _ = pair.output_of(Side::Far, &["sync", GROUP]);
    pair.wait_for(Side::Far, "replicating");
    pair.until("it hands over", |pair| pair.output_of(Side::Far, &["switchover", GROUP, "--to", "near"]).0 < 2);
    pair.until("near is the primary", |pair| is_primary(pair, Side::Near));
    pair.qemu_io(Side::Near, "data", &["read -P 6 0 64k"]);
}

/// The answer was that it had not begun, and then it went on without a record: nobody was ever to take over again.
#[test]
fn what_is_being_begun_is_not_stopped_beside_that() {
    let (mut pair, typed) = being_begun();
    expect(&pair.run(Side::Near, &STOP), 2, &["nothing was changed"]);
    assert!(record(&pair, Side::Near).exists());
    goes_on(&mut pair, typed);
}

// proves: rule 13
/// The node that was to serve was told to stop while a command ran here: this node was demoted all the same, its clients were cut off, and nobody was
/// primary; or the other node was the primary for its own clients.
#[test]
fn a_reverse_sync_that_was_stopped_at_the_other_node_changes_no_role() {
    let (mut pair, typed) = being_begun();
    let client =
        pair.start_qemu_io(Side::Near, "data", &["write -P 7 0 64k", "sleep 2500", "write -P 8 0 64k", "flush"]);
    let is_refused = |pair: &mut Pair, typed: Background| {
        expect(&pair.run(Side::Far, &STOP), 0, &["does not serve the clients of node near"]);
        fs::remove_file(pair.path("slow")).expect("it was there");
        let (is_done, said) = typed.finish(pair);
        assert!(!is_done && said.contains("was told meanwhile to serve no clients of this node"), "{said}");
        assert!(is_primary(pair, Side::Near) && !is_primary(pair, Side::Far) && !record(pair, Side::Near).exists());
    };
    is_refused(&mut pair, typed);
    let (is_done, said) = client.finish(&mut pair);
    assert!(is_done, "{said}");
    // The same where something is given up.
    pair.done(Side::Near, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "data", &["write -P 9 0 64k", "flush"]);
    fs::write(pair.path("slow"), "").expect("written");
    fs::remove_file(ran(&pair)).expect("it ran");
    let typed = Background::start(pair.command(Side::Near, &["sync", GROUP, "--reverse", "--yes"]));
    pair.until("near's command runs", |pair| ran(pair).exists());
    is_refused(&mut pair, typed);
    pair.qemu_io(Side::Near, "data", &["read -P 9 0 64k", "write -P 8 0 64k", "flush"]);
}

// proves: P1
/// Near had asked for the last time, and was being demoted: far was told to stop beside that, and was the primary for its own clients a moment later,
/// while what near's clients had asked was lost to them.
#[test]
fn a_node_that_is_about_to_serve_is_not_told_to_stop_while_the_other_one_is_demoted() {
    if must_skip_stores("a_node_that_is_about_to_serve_is_not_told_to_stop_while_the_other_one_is_demoted") {
        return;
    }
    let mut pair = Pair::new(&PairPlan { forgets: true, ..plan() });
    let ran = hooked(&pair, BEFORE_DEMOTE, SLOW);
    pair.first_sync();
    pair.wait_for_rest(Side::Near);
    fs::write(pair.path("slow"), "").expect("written");
    let typed = Background::start(pair.command(Side::Near, &["sync", GROUP, "--reverse", "--full"]));
    pair.until("near's command runs", |_| ran.exists());
    let mut line = ControlLine::connect(&pair);
    // Nothing of the demotion comes on record.
    pair.hang(Side::Near);
    fs::remove_file(pair.path("slow")).expect("it was there");
    pair.until("near is being demoted", |_| {
        line.ask(r#"{"request":"status","group":"g"}"#);
        line.answer(DEADLINE).expect("a status").contains("\"handover\":{")
    });
    expect(&pair.run(Side::Far, &STOP), 2, &["nothing was changed", "node near says", "is changing its role"]);
    pair.answer_again(Side::Near);
    let (is_done, said) = typed.finish(&mut pair);
    assert!(is_done && record(&pair, Side::Far).exists(), "{said}");
    until_home(&mut pair, Side::Near);
}

/// Clients were held while the command behind the demotion ran, although the other node served by then; or that was promoted behind the command only.
#[test]
fn clients_are_served_while_a_command_behind_the_demotion_runs() {
    let mut pair = with_hooks("hooks.after_demote = HOOK\nhooks.timeout = \"60s\"", SLOW);
    pair.wait_for_rest(Side::Near);
    for (yes, pattern) in [(&[][..], 7), (&["--yes"], 8)] {
        fs::write(pair.path("slow"), "").expect("written");
        let typed = Background::start(pair.command(Side::Near, &[&["sync", GROUP, "--reverse"], yes].concat()));
        let ran = ran(&pair);
        pair.until("near's command runs", |_| ran.exists());
        let write = format!("write -P {pattern} 0 64k");
        pair.until("it is served", |pair| pair.try_qemu_io(Side::Near, "data", &[&write, "flush"]).0);
        assert!(is_primary(&pair, Side::Far) && pair.path("slow").exists());
        goes_on(&mut pair, typed);
        pair.qemu_io(Side::Near, "data", &["read -P 8 0 4k", &format!("read -P {pattern} 4k 60k")]);
        pair.wait_for(Side::Near, "replicating");
        pair.done(Side::Near, &["logging", GROUP]);
        pair.qemu_io(Side::Near, "data", &["write -P 9 0 64k", "flush"]);
        fs::remove_file(&ran).expect("it ran");
    }
}

/// Clients were held for as long as commands ran that might have it refused.
#[test]
fn clients_are_served_while_a_command_before_a_reverse_sync_runs() {
    let (mut pair, typed) = being_begun();
    let mut client = pair.start_qemu_io(Side::Near, "data", &["write -P 7 0 64k", "flush"]);
    let until = Instant::now() + Duration::from_secs(10);
    while !client.has_ended() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(client.has_ended(), "it waits for the command");
    goes_on(&mut pair, typed);
}

/// The other node had forgotten by its restart that it is to serve, and ended the record of that: it was an ordinary primary then.
#[test]
fn a_restart_of_the_node_that_is_to_serve_forgets_nothing() {
    let (mut pair, typed) = being_begun();
    pair.kill(Side::Far);
    pair.serve(Side::Far);
    pair.wait_for(Side::Near, "replicating");
    // Longer than a handover is waited for that does not come.
    std::thread::sleep(Duration::from_secs(6));
    goes_on(&mut pair, typed);
}

/// Far serves, and runs its command before it hands over to near again.
fn being_ended() -> Pair {
    let mut pair = with_hooks(BEFORE_DEMOTE, &format!("[ $FARSHORE_NODE = near ] || {SLOW}"));
    pair.wait_for_rest(Side::Near);
    fs::write(pair.path("slow"), "").expect("written");
    pair.done(Side::Near, &["sync", GROUP, "--reverse"]);
    let ran = ran(&pair);
    pair.until("far's command runs", |_| {
        fs::read_to_string(&ran).unwrap_or_default().lines().any(|line| line.starts_with("before_demote far"))
    });
    pair
}

/// Clients waited for as long as the command ran; one that took longer than an answer may had the end refused each time, for the connections of the
/// very clients that were to come back.
#[test]
fn clients_are_served_while_a_command_before_the_end_runs() {
    let mut pair = being_ended();
    let mut client = pair.start_qemu_io(Side::Near, "data", &["write -P 7 0 64k", "flush"]);
    let until = Instant::now() + Duration::from_secs(10);
    while !client.has_ended() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(client.has_ended(), "it waits for the command");
    let load = WriterLoad::start(&pair, Side::Near, &WriterRun::on_zeroes(7, &["log"]), LoadPlan::crowded(&["log"]));
    load.wait_for_more(&mut pair, 100);
    fs::remove_file(pair.path("slow")).expect("it was there");
    until_home(&mut pair, Side::Near);
    load.wait_for_more(&mut pair, 100);
    load.stop();
    pair.qemu_io(Side::Near, "data", &["read -P 7 0 64k"]);
}

// proves: P1
/// The answer was that its own exports are open, and then it was demoted: what was written there meanwhile was overwritten by what waited at home.
#[test]
fn a_node_that_hands_over_is_not_told_to_stop_beside_that() {
    let mut pair = being_ended();
    expect(&pair.run(Side::Far, &STOP), 2, &["a switchover is under way already"]);
    // Home does not wait for the answer any more, and heard that it was stopped: then it took over.
    pair.kill(Side::Near);
    pair.serve(Side::Near);
    pair.until("near is told that it goes on", |pair| {
        pair.status(Side::Near)["reverse"]["why"].to_string().contains("is under way already")
    });
    expect(&pair.run(Side::Near, &STOP), 2, &["nothing was changed", "node far says", "is changing its role"]);
    fs::remove_file(pair.path("slow")).expect("it was there");
    until_home(&mut pair, Side::Near);
}

// proves: P1
/// A promotion by force at home goes over content of which nobody says that it is in order. The other node hands over beside that, and has home come to
/// rest: clients went on as if the promotion were in order. The term had begun before the command: a device that was attached while that ran, and
/// served by the other node, went on over the older content; and of a promotion that was refused, devices that were served well failed later.
#[test]
fn a_forced_promotion_cuts_clients_off_whatever_the_other_node_is_about_to_do() {
    let lines = "hooks.before_demote = HOOK\nhooks.before_promote = HOOK\nhooks.timeout = \"60s\"";
    let script = "while [ -e \"$0.$FARSHORE_HOOK.$FARSHORE_NODE\" ]; do sleep 0.1; done\n! [ -e \"$0.fails\" ]";
    let mut pair = with_hooks(lines, script);
    pair.wait_for_rest(Side::Near);
    let (demotes, promotes) = (pair.path("hook.before_demote.far"), pair.path("hook.before_promote.near"));
    fs::write(&demotes, "").expect("written");
    pair.done(Side::Near, &["sync", GROUP, "--reverse"]);
    let has_run = |pair: &Pair, line: &str| fs::read_to_string(ran(pair)).is_ok_and(|text| text.contains(line));
    pair.until("far's command runs", |pair| has_run(pair, "before_demote far"));
    let client =
        pair.start_qemu_io(Side::Near, "data", &["write -P 7 0 64k", "sleep 2500", "write -P 8 0 64k", "flush"]);
    pair.until("it is attached", |pair| pair.status(Side::Near)["volumes"][0]["clients"] == 1);
    let term = |pair: &Pair| pair.status(Side::Near)["term"].clone();
    let before = term(&pair);
    fs::write(pair.path("hook.fails"), "").expect("written");
    expect(&pair.run(Side::Near, &["promote", GROUP, "--force"]), 2, &["before_promote"]);
    assert_eq!(term(&pair), before, "far serves them on");
    fs::remove_file(pair.path("hook.fails")).expect("it was there");
    fs::remove_file(ran(&pair)).expect("it ran");
    fs::write(&promotes, "").expect("written");
    let typed = Background::start(pair.command(Side::Near, &["promote", GROUP, "--force"]));
    pair.until("near's command runs", |pair| has_run(pair, "before_promote near far g yes"));
    assert_eq!(term(&pair), before, "whoever is attached now is served by far");
    fs::remove_file(&demotes).expect("it was there");
    std::thread::sleep(Duration::from_millis(700));
    fs::remove_file(&promotes).expect("it was there");
    let (_, said) = typed.finish(&mut pair);
    assert!(is_primary(&pair, Side::Near), "{said}");
    assert_ne!(term(&pair), before);
    let (is_done, said) = client.finish(&mut pair);
    assert!(!is_done, "{said}");
}

// proves: P1, P6
/// Home had asked the other node before its command ran, which took minutes: what was typed there meanwhile went unseen.
#[test]
fn what_others_wrote_while_a_command_ran_at_home_is_not_overwritten_by_what_waits() {
    let mut pair = with_hooks("hooks.before_promote = HOOK\nhooks.timeout = \"60s\"", SLOW);
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["switchover", GROUP, "--to", "far"]);
    pair.wait_for_rest(Side::Far);
    pair.done(Side::Far, &["demote", GROUP]);
    pair.stop_both();
    has_part(&pair, Side::Near, "home");
    has_part(&pair, Side::Far, "server");
    let _ = fs::remove_file(ran(&pair));
    fs::write(pair.path("slow"), "").expect("written");
    Side::BOTH.iter().for_each(|node| pair.serve(*node));
    pair.until("near is about to be promoted", |pair| ran(pair).exists());
    let client = pair.start_qemu_io(Side::Near, "data", &["write -P 9 0 64k", "flush"]);
    pair.done(Side::Far, &["promote", GROUP, "--force", "--skip-hooks"]);
    pair.qemu_io(Side::Far, "data", &["write -P 6 0 64k", "flush"]);
    pair.until("near is synced", |pair| {
        let _ = pair.output_of(Side::Far, &["sync", GROUP]);
        pair.status(Side::Far)["state"] == "replicating"
    });
    pair.done(Side::Far, &["demote", GROUP]);
    // It is heard by then.
    std::thread::sleep(Duration::from_millis(300));
    fs::remove_file(pair.path("slow")).expect("it was there");
    let (is_done, said) = client.finish(&mut pair);
    assert!(!is_done, "{said}");
    pair.until("near is promoted", |pair| {
        is_primary(pair, Side::Near) || pair.output_of(Side::Near, &["promote", GROUP]).0 < 2
    });
    // Its role is shown a moment before its export is open.
    pair.until("it serves", |pair| pair.try_qemu_io(Side::Near, "data", &["read -P 6 0 64k"]).0);
}

/// The number of the reverse sync that this node has on record.
fn number(pair: &Pair, node: Side) -> u64 {
    let text = fs::read_to_string(record(pair, node)).expect("a record");
    let id = text.lines().find_map(|line| line.strip_prefix("id ")).expect("which one it is");
    u64::from_str_radix(id, 16).expect("a number")
}

/// A word about an earlier one came late, and ended the next one.
#[test]
fn a_late_word_about_an_earlier_reverse_sync_ends_nothing() {
    let mut pair = Pair::replicating(&plan());
    served_by_far(&mut pair);
    let this = number(&pair, Side::Far);
    assert_eq!(number(&pair, Side::Near), this);
    let ends = |pair: &Pair, reverse: u64, home_serves: bool| {
        let order = serde_json::json!({ "request": "lend", "group": GROUP, "ends": true, "home_serves": home_serves, "reverse": reverse });
        let reply = pair.ask(Side::Near, &serde_json::json!({ "request": "on", "node": "far", "order": order }));
        println!("{reply}");
        reply["unchanged"] == true
    };
    for home_serves in [false, true] {
        assert!(ends(&pair, this ^ 1, home_serves) && record(&pair, Side::Far).exists());
    }
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 64k", "flush"]);
    assert!(!ends(&pair, this, false) && !record(&pair, Side::Far).exists());
    pair.until("its exports are open", |pair| pair.try_qemu_io(Side::Far, "data", &["read -P 7 0 64k"]).0);
}

/// The word that a reverse sync has not begun was lost. The node that was to serve is promoted for clients of its own before it has asked: its exports
/// were closed to everybody, and the answer was that it is done.
#[test]
fn a_node_that_is_to_serve_nobody_elses_clients_is_open_once_it_is_promoted() {
    let mut pair = Pair::replicating(&plan());
    pair.wait_for_rest(Side::Near);
    pair.stop(Side::Far);
    has_part(&pair, Side::Far, "server");
    pair.serve(Side::Far);
    pair.wait_for(Side::Near, "replicating");
    pair.done(Side::Near, &["demote", GROUP]);
    pair.until("far has heard", |pair| pair.output_of(Side::Far, &["promote", GROUP]).0 == 0);
    assert!(!record(&pair, Side::Far).exists());
    pair.qemu_io(Side::Far, "data", &["write -P 3 0 64k", "flush"]);
}

/// Typed on the node that had served, it had that demoted before home refused it: nobody was primary.
#[test]
fn a_reverse_sync_beside_one_that_was_stopped_leaves_a_primary() {
    let (mut pair, old, _) = stopped_behind_a_cut();
    pair.done(Side::Near, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "data", &["write -P 7 64k 64k", "flush"]);
    let (code, said) = pair.output_of(Side::Near, &["sync", GROUP, "--reverse", "--yes", "--discard"]);
    println!("{code}: {said}");
    assert!(code < 2 || is_primary(&pair, Side::Near), "{said}");
    let _ = old.finish(&mut pair);
}

/// Refused without a change it was carried out seconds later: the next start served nobody, and never took over.
#[test]
fn a_stop_that_the_state_disk_refuses_is_not_carried_out_later() {
    if must_skip_stores("a_stop_that_the_state_disk_refuses_is_not_carried_out_later") {
        return;
    }
    let mut pair = Pair::replicating(&PairPlan { forgets: true, ..plan() });
    pair.done(Side::Near, &["sync", GROUP, "--reverse", "--full"]);
    // The record is not written again, and near is not equal.
    let is_ordered = |pair: &Pair| !fs::read_to_string(record(pair, Side::Near)).expect("a record").contains("full");
    pair.until("the full sync is ordered", |pair| is_ordered(pair));
    pair.done(Side::Far, &["logging", GROUP]);
    let mut line = ControlLine::connect(&pair);
    pair.hang(Side::Near);
    line.ask(r#"{"request":"reverse","group":"g","stop":true}"#);
    let answer = line.answer(DEADLINE).expect("it is refused");
    assert!(answer.contains("is not written after"), "{answer}");
    pair.answer_again(Side::Near);
    std::thread::sleep(Duration::from_secs(5));
    assert!(record(&pair, Side::Near).exists());
    pair.kill(Side::Near);
    pair.serve(Side::Near);
    pair.until("it is served", |pair| pair.try_qemu_io(Side::Near, "data", &["read 0 4k"]).0);
}

/// The node that serves was away as home was told to stop: typed again, that told it nothing either, and it served nobody.
#[test]
fn a_stop_that_did_not_reach_the_node_that_serves_is_typed_again() {
    let mut pair = Pair::replicating(&plan());
    served_by_far(&mut pair);
    pair.kill(Side::Far);
    expect(&pair.run(Side::Near, &STOP), 1, &["node far was not told"]);
    // Nothing is on record here any more: whether there is at far is not known.
    expect(&pair.run(Side::Near, &STOP), 1, &["no reverse sync is on record at node near", "node far was not told"]);
    pair.serve(Side::Far);
    pair.until("they have met", |pair| pair.status(Side::Near)["peers"][0]["link"] == "connected");
    let (is_open, said) = pair.try_qemu_io(Side::Far, "data", &["read 0 4k"]);
    assert!(!is_open, "{said}");
    expect(&pair.run(Side::Near, &STOP), 0, &["node far"]);
    pair.until("its exports are open", |pair| pair.try_qemu_io(Side::Far, "data", &["read 0 4k"]).0);
}

// proves: P6
/// A start that went on with a dead disk met one refusal, forgot it, and sent later moments of the other volumes.
#[test]
fn a_start_that_is_refused_goes_on_without_the_dead_disk_later() {
    let mut pair = two_volumes();
    pair.done(Side::Near, &["group", "detach", GROUP, "data", "--force"]);
    pair.stop_both();
    is_announced(&pair);
    pair.serve(Side::Far);
    // The disk of the other volume is dead as well, and the record cannot be replaced.
    fs::remove_file(pair.device(Side::Near, "log")).expect("a disk");
    is_agreed_on(&pair, "data log");
    let unfinished = record(&pair, Side::Near).with_file_name("reverse.new");
    fs::create_dir_all(unfinished.join("in-the-way")).expect("made");
    pair.serve(Side::Near);
    pair.until("it is refused", |pair| pair.log(Side::Near).contains("nothing was changed"));
    std::thread::sleep(Duration::from_secs(1));
    let text = fs::read_to_string(record(&pair, Side::Near)).expect("a record");
    assert!(text.contains("without-dead data log") && is_primary(&pair, Side::Near), "{text}");
    assert!(!pair.status(Side::Near)["reverse"]["why"].is_null());
    fs::remove_dir_all(&unfinished).expect("removed");
    until_served_by_far(&mut pair);
}

/// Near starts, with a record that it is to be demoted without the volume `data`, and the flush of that volume's disk hangs.
fn hangs_in_its_start(pair: &mut Pair, store: &ForgetfulStore) -> Background {
    let is_starting = |pair: &Pair| {
        let status = pair.run(Side::Near, &["status", "--json", "--local"]).stdout;
        serde_json::from_slice::<serde_json::Value>(&status).is_ok_and(|now| now["groups"][0]["starting"] == true)
    };
    // That flush is the last that is asked of it.
    let begun = (1..10).rev().find_map(|calls| {
        is_agreed_on(pair, "data");
        store.hang_after_calls(calls);
        let mut serve = Command::new(env!("CARGO_BIN_EXE_farshore"));
        serve.args(["serve", "--node", "near", "--config"]).arg(pair.config());
        let daemon = Background::start(serve);
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            if is_starting(pair) {
                std::thread::sleep(Duration::from_millis(500));
                if is_starting(pair) {
                    println!("it hangs behind {calls} calls");
                    return Some(daemon);
                }
            }
        }
        store.answer_again();
        None
    });
    begun.expect("it stands still while it is starting")
}

// proves: P6
/// Home was about to come up as the primary, and its operator was told to promote the other node by force: both would have served.
#[test]
fn a_reverse_sync_is_not_stopped_while_home_is_starting() {
    if must_skip_stores("a_reverse_sync_is_not_stopped_while_home_is_starting") {
        return;
    }
    let (mut pair, store) = with_dying_disk(2, "");
    assert!(pair.stop(Side::Near).success());
    let daemon = hangs_in_its_start(&mut pair, &store);
    expect(&pair.run(Side::Near, &STOP), 2, &["nothing was changed", "the group is starting", "try again"]);
    assert!(record(&pair, Side::Near).exists());
    store.answer_again();
    pair.until("it is stopped", |pair| pair.output_of(Side::Near, &STOP).0 == 0);
    pair.until("near serves", |pair| pair.try_qemu_io(Side::Near, "data", &["read -P 5 0 1M"]).0);
    drop(daemon);
}
