//! A reverse sync between two real daemons: the other node serves the clients of this one, and this one takes over again by itself.
// proves: rule 13

use std::time::{Duration, Instant};

use crate::common::damage::store_of_group;
use crate::common::load::{LoadPlan, WriterLoad, WriterRun};
use crate::common::{Background, GROUP, Pair, PairPlan, Side, expect, must_skip_stores};
use crate::dead_primary::is_announced;

const VOLUMES: [&str; 2] = ["data", "log"];
const MIB: u64 = 1 << 20;

fn plan(mode: &'static str) -> PairPlan<'static> {
    PairPlan { mode, volume_bytes: 8 * MIB, ..PairPlan::DEFAULT }
}

fn is_primary(pair: &Pair, node: Side) -> bool {
    pair.status(node)["role"] == "primary"
}

fn writers(pair: &Pair, node: Side, run: &WriterRun) -> WriterLoad {
    WriterLoad::start(pair, node, run, LoadPlan { flush_one_in: 16, ..LoadPlan::crowded(&VOLUMES) })
}

/// The node serves its clients itself again, and nothing is left of it on either.
pub(crate) fn until_home(pair: &mut Pair, home: Side) {
    pair.until("it takes over again", |pair| {
        is_primary(pair, home) && Side::BOTH.iter().all(|node| pair.status(*node)["reverse"].is_null())
    });
    assert!(!is_primary(pair, home.other()));
    for node in Side::BOTH {
        let record = pair.path(node.name()).join("state/groups").join(GROUP).join("reverse");
        pair.until("its record is gone", |_| !record.exists());
    }
}

/// As a daemon of near leaves it that ends right behind its demotion.
fn records_what_is_given_up(pair: &Pair) -> std::path::PathBuf {
    let record = pair.path("near/state/groups").join(GROUP).join("reverse");
    let text = "farshore reverse 1\nplace home gives-up\n";
    std::fs::write(&record, format!("{text}checksum {:08x}\n", crc32c::crc32c(text.as_bytes()))).expect("written");
    record
}

/// All that was acknowledged is on both nodes, which are equal.
fn assert_kept(mut pair: Pair, primary: Side, run: &WriterRun) {
    pair.wait_for_rest(primary);
    let promised = run.acknowledged();
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
    Side::BOTH.iter().for_each(|node| run.assert_kept(&pair, *node, &promised));
}

/// An order to sync needs a peer: the link may come back after the clients' own connections.
fn sync_once_met(pair: &mut Pair, primary: Side) {
    pair.until("the nodes have met", |pair| pair.status(primary)["peers"][0]["link"] == "connected");
    pair.done(primary, &["sync", GROUP]);
}

/// The primary has changed, and syncs nothing: the reverse sync stays where it is.
pub(crate) fn served_by_far(pair: &mut Pair) {
    let said = pair.done(Side::Near, &["sync", GROUP, "--reverse", "--full"]);
    assert!(said.contains("node far serves the clients of this node"), "{said}");
    pair.done(Side::Far, &["logging", GROUP]);
    assert!(is_primary(pair, Side::Far) && !is_primary(pair, Side::Near));
}

#[test]
fn writers_go_on_through_a_reverse_sync_in_each_mode() {
    for mode in ["sync", "nearsync", "async", "superasync"] {
        let mut pair = Pair::replicating(&plan(mode));
        let run = WriterRun::on_zeroes(1, &VOLUMES);
        let load = writers(&pair, Side::Near, &run);
        load.wait_for_more(&mut pair, 200);
        load.take_longest();
        let said = pair.done(Side::Near, &["sync", GROUP, "--reverse", "--full"]);
        assert!(said.contains("node far serves the clients of this node"), "{said}");
        let (code, said) = pair.output_of(Side::Near, &["sync", GROUP, "--reverse"]);
        assert!(code == 0 && said.contains("under way already"), "{code}: {said}");
        load.wait_for_more(&mut pair, 200);
        until_home(&mut pair, Side::Near);
        load.wait_for_more(&mut pair, 200);
        println!("{mode}: the longest request took {:?}", load.take_longest());
        load.stop();
        assert_kept(pair, Side::Near, &run);
    }
}

#[test]
fn with_certificates_too() {
    let mut pair = Pair::new(&PairPlan { head: "[tls]\ndirectory = \"tls\"\n", ..plan("sync") });
    pair.certify();
    pair.first_sync();
    let run = WriterRun::on_zeroes(2, &VOLUMES);
    let load = writers(&pair, Side::Near, &run);
    load.wait_for_more(&mut pair, 100);
    served_by_far(&mut pair);
    load.wait_for_more(&mut pair, 200);
    let status = pair.status(Side::Near);
    assert_eq!((&status["reverse"]["home"], &status["reverse"]["server"]), (&"near".into(), &"far".into()), "{status}");
    pair.done(Side::Far, &["sync", GROUP]);
    until_home(&mut pair, Side::Near);
    load.wait_for_more(&mut pair, 100);
    load.stop();
    assert_kept(pair, Side::Near, &run);
}

/// Nobody else comes to the exports of the node that serves, and both say what goes on.
#[test]
fn the_node_that_serves_has_no_exports_for_others() {
    let mut pair = Pair::replicating(&plan("async"));
    served_by_far(&mut pair);
    pair.qemu_io(
        Side::Near,
        "data",
        &["write -P 7 0 64k", "read -P 7 0 64k", "flush", "discard 1M 64k", "write -z 2M 64k"],
    );
    let (is_done, said) = pair.try_qemu_io(Side::Far, "data", &["read 0 512"]);
    assert!(!is_done, "{said}");
    let shown = pair.done(Side::Near, &["status", GROUP, "--local"]);
    assert!(
        shown.contains("clients served from far") && shown.contains("clients of near are served from far"),
        "{shown}"
    );
    let shown = pair.done(Side::Far, &["status", GROUP, "--local"]);
    assert!(shown.contains("for clients of near"), "{shown}");
    // Typed where it is not: nothing is done.
    expect(&pair.run(Side::Far, &["sync", GROUP, "--reverse"]), 2, &["serves the clients of node near"]);
    // It ends where it stands.
    let said = pair.done(Side::Near, &["sync", GROUP, "--reverse", "--stop"]);
    assert!(said.contains("node far stays the primary"), "{said}");
    expect(&pair.run(Side::Near, &["sync", GROUP, "--reverse", "--stop"]), 0, &["nothing to do"]);
    assert!(!pair.try_qemu_io(Side::Near, "data", &["read 0 512"]).0, "it serves nobody");
    pair.qemu_io(Side::Far, "data", &["read -P 7 0 64k"]);
    pair.done(Side::Far, &["sync", GROUP, "--wait"]);
    pair.wait_for_rest(Side::Far);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// Requests wait while the node that serves is away, and none fails.
#[test]
fn a_killed_server_costs_its_clients_a_wait() {
    let mut pair = Pair::replicating(&plan("async"));
    let run = WriterRun::on_zeroes(3, &VOLUMES);
    let load = writers(&pair, Side::Near, &run);
    load.wait_for_more(&mut pair, 100);
    served_by_far(&mut pair);
    for _ in 0..3 {
        load.wait_for_more(&mut pair, 100);
        pair.kill(Side::Far);
        pair.serve(Side::Far);
    }
    load.wait_for_more(&mut pair, 100);
    println!("the longest request took {:?}", load.take_longest());
    sync_once_met(&mut pair, Side::Far);
    until_home(&mut pair, Side::Near);
    load.wait_for_more(&mut pair, 100);
    load.stop();
    assert_kept(pair, Side::Near, &run);
}

/// A daemon that starts anew serves its clients by the other node again, and ends the reverse sync.
#[test]
fn a_killed_home_goes_on_with_it() {
    let mut pair = Pair::replicating(&plan("async"));
    served_by_far(&mut pair);
    pair.qemu_io(Side::Near, "data", &["write -P 3 0 64k"]);
    pair.kill(Side::Near);
    pair.serve(Side::Near);
    pair.until("its exports are open", |pair| pair.try_qemu_io(Side::Near, "data", &["read -P 3 0 64k"]).0);
    assert!(is_primary(&pair, Side::Far));
    sync_once_met(&mut pair, Side::Far);
    until_home(&mut pair, Side::Near);
    pair.qemu_io(Side::Near, "data", &["read -P 3 0 64k", "write -P 4 64k 64k", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// The line is cut: the link and the clients' way alike.
#[test]
fn a_cut_line_costs_clients_a_wait() {
    let mut pair = Pair::new(&plan("async"));
    pair.lay_relay();
    pair.first_sync();
    // Only far is reached by near without the relay: so it is far that has the clients.
    pair.done(Side::Near, &["switchover", GROUP, "--to", "far"]);
    pair.wait_for(Side::Far, "replicating");
    let run = WriterRun::on_zeroes(4, &VOLUMES);
    let load = writers(&pair, Side::Far, &run);
    load.wait_for_more(&mut pair, 100);
    pair.done(Side::Far, &["sync", GROUP, "--reverse", "--full"]);
    pair.done(Side::Near, &["logging", GROUP]);
    load.wait_for_more(&mut pair, 100);
    pair.relay().cut();
    pair.until("both see it", |pair| pair.status(Side::Near)["peers"][0]["link"] != "connected");
    pair.relay().restore();
    load.wait_for_more(&mut pair, 100);
    println!("the longest request took {:?}", load.take_longest());
    sync_once_met(&mut pair, Side::Near);
    until_home(&mut pair, Side::Far);
    load.wait_for_more(&mut pair, 100);
    load.stop();
    assert_kept(pair, Side::Far, &run);
}

/// What the copy lacks is given up by a word only, and is saved.
#[test]
fn what_the_other_node_lacks_is_asked_about() {
    let mut pair = Pair::replicating(&plan("async"));
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "data", &["write -P 6 0 64k", "flush"]);
    expect(&pair.run(Side::Near, &["sync", GROUP, "--reverse"]), 2, &["nothing was changed", "is lost", "--yes"]);
    let user = pair.start_qemu_io(Side::Near, "data", &["read -P 6 0 64k", "sleep 60000"]);
    pair.until("it is attached", |pair| pair.status(Side::Near)["volumes"][0]["clients"] == 1);
    expect(
        &pair.run(Side::Near, &["sync", GROUP, "--reverse", "--yes"]),
        2,
        &["1 client is attached", "--close-clients"],
    );
    let before = pair.counter(Side::Far, "group.g.resynced_bytes");
    let said = pair.done(Side::Near, &["sync", GROUP, "--reverse", "--yes", "--close-clients"]);
    assert!(said.contains("node far serves the clients of this node"), "{said}");
    drop(user);
    pair.until("clients come again", |pair| pair.try_qemu_io(Side::Near, "data", &["read -P 5 0 1M"]).0);
    until_home(&mut pair, Side::Near);
    let sent = pair.counter(Side::Far, "group.g.resynced_bytes") - before;
    println!("{sent} bytes were sent");
    assert!(sent <= MIB, "what differs, in whole regions: {sent}");
    assert!(pair.path("near/state/groups").join(GROUP).join("delta").exists(), "it was saved");
    pair.qemu_io(Side::Near, "data", &["read -P 5 0 1M", "write -P 8 0 4k", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// The disk of a volume is dead on the primary: its clients are served from the copy, until another disk holds all of it.
#[test]
fn a_dead_disk_of_the_primary_is_served_by_the_other_node() {
    let mut pair = Pair::replicating(&plan("sync"));
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["group", "detach", GROUP, "data", "--force"]);
    pair.wait_for(Side::Near, "replicating");
    let before = "volume data was detached here before: node far serves what it has of that as it stands";
    expect(&pair.run(Side::Near, &["sync", GROUP, "--reverse"]), 2, &["nothing was changed", before, "--yes"]);
    expect(&pair.run(Side::Near, &["sync", GROUP, "--reverse", "--yes"]), 1, &["warning", before]);
    pair.until("it is served", |pair| pair.try_qemu_io(Side::Near, "data", &["read -P 5 0 1M"]).0);
    pair.qemu_io(Side::Near, "data", &["write -P 6 1M 1M", "flush"]);
    pair.qemu_io(Side::Near, "log", &["write -P 7 0 64k", "flush"]);
    let disk = pair.device(Side::Near, "data");
    std::fs::remove_file(&disk).and_then(|()| std::fs::File::create(&disk)?.set_len(8 * MIB)).expect("another disk");
    pair.done(Side::Near, &["group", "attach", GROUP, "data"]);
    pair.qemu_io(Side::Near, "data", &["read -P 6 1M 1M"]);
    pair.until("it can be filled", |pair| pair.output_of(Side::Far, &["sync", GROUP, "--volume", "data"]).0 == 0);
    until_home(&mut pair, Side::Near);
    pair.qemu_io(Side::Near, "data", &["read -P 5 0 1M", "read -P 6 1M 1M"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// Whatever is refused changes nothing of what goes on; and whoever forces the node that serves opens its exports to everybody.
#[test]
fn a_promotion_that_is_refused_ends_no_reverse_sync_and_a_forced_one_does() {
    let mut pair = Pair::replicating(&plan("sync"));
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 64k", "flush"]);
    pair.done(Side::Near, &["group", "detach", GROUP, "log", "--force"]);
    pair.wait_for(Side::Near, "replicating");
    assert_eq!(pair.output_of(Side::Near, &["sync", GROUP, "--reverse", "--yes"]).0, 1);
    pair.until("it is served", |pair| pair.try_qemu_io(Side::Near, "data", &["read -P 5 0 64k"]).0);
    expect(&pair.run(Side::Near, &["promote", GROUP, "--in-window"]), 2, &["no peer window proves"]);
    pair.qemu_io(Side::Near, "data", &["write -P 6 64k 64k", "flush"]);
    let forced = pair.run(Side::Far, &["promote", GROUP, "--force", "--yes"]);
    expect(&forced, 0, &["the reverse sync is over"]);
    pair.qemu_io(Side::Far, "data", &["read -P 6 64k 64k"]);
}

// proves: rule 13
/// The group of the node that serves fails under clients at work, and is reset: they wait for that, and nothing that was answered is lost.
#[test]
fn a_server_whose_group_fails_costs_its_clients_a_wait() {
    if must_skip_stores("a_server_whose_group_fails_costs_its_clients_a_wait") {
        return;
    }
    let mut pair = Pair::replicating(&PairPlan { forgets: true, ..plan("async") });
    served_by_far(&mut pair);
    let mut waits = 0;
    for calls in 0..8 {
        pair.until("it is served", |pair| pair.try_qemu_io(Side::Near, "data", &["read 0 4k"]).0);
        pair.fail_call_after(Side::Far, calls, rustix::io::Errno::IO.raw_os_error());
        let pattern = calls + 1;
        let mut client = pair.start_qemu_io(Side::Near, "data", &[&format!("write -f -P {pattern} 0 64k"), "flush"]);
        pair.until("it is done, or the group has failed", |pair| {
            client.has_ended() || pair.status(Side::Far)["state"] == "failed"
        });
        std::thread::sleep(Duration::from_millis(300));
        let failed = pair.fail_no_call(Side::Far);
        let has_failed = pair.status(Side::Far)["state"] == "failed";
        if has_failed {
            waits += u32::from(!client.has_ended());
            pair.done(Side::Far, &["reset", GROUP]);
        }
        let (is_done, said) = client.finish(&mut pair);
        println!("call {calls}, {failed:?}: the group failed: {has_failed}, the client was served: {is_done}");
        assert!(is_done || !has_failed, "call {calls}, {failed:?}: {said}\n{}", pair.log(Side::Far));
        if is_done {
            pair.qemu_io(Side::Near, "data", &[&format!("read -P {pattern} 0 64k")]);
        }
    }
    assert!(waits > 0, "no failure of the group was met");
    sync_once_met(&mut pair, Side::Far);
    until_home(&mut pair, Side::Near);
    pair.qemu_io(Side::Near, "data", &["write -P 99 0 64k", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// At its end the other node orders something here: what would be refused then is refused before anything is changed.
#[test]
fn a_node_that_obeys_no_peer_begins_no_reverse_sync() {
    let mut pair = Pair::new(&PairPlan { node: "peer_commands = \"read\"\n", ..plan("async") });
    pair.first_sync();
    let output = pair.run(Side::Near, &["sync", GROUP, "--reverse", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let answer = &document["answers"][0];
    assert_eq!((output.status.code(), &answer["refusal"]["code"]), (Some(2), &"peer-forbids".into()), "{document}");
    let message = answer["message"].to_string();
    assert!(message.contains("nothing was changed") && message.contains("[nodes.near]"), "{message}");
    assert!(is_primary(&pair, Side::Near) && Side::BOTH.iter().all(|node| pair.status(*node)["reverse"].is_null()));
    assert!(!pair.path("near/state/groups").join(GROUP).join("reverse").exists());
    pair.qemu_io(Side::Near, "data", &["write -P 1 0 4k"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

#[test]
fn a_reverse_sync_that_cannot_be_is_refused_in_words() {
    let mut pair = Pair::replicating(&plan("async"));
    for (node, words, exit, part) in [
        (Side::Far, &["sync", GROUP, "--reverse"][..], 2, "this node is the secondary: type it on node near"),
        (Side::Near, &["sync", "h", "--reverse"][..], 2, "no group"),
        (Side::Near, &["sync", GROUP, "--reverse", "--stop"][..], 0, "nothing to do"),
        (Side::Near, &["sync", GROUP, "--stop"][..], 3, "--reverse"),
        (Side::Near, &["sync", GROUP, "--reverse", "--stop", "--full"][..], 3, "--full"),
        (Side::Near, &["sync", GROUP, "--reverse", "--volume", "data"][..], 3, "--volume"),
    ] {
        let (code, said) = pair.output_of(node, words);
        assert!(code == exit && said.contains(part), "{words:?} {code}: {said}");
    }
    pair.kill(Side::Far);
    pair.until("the link is down", |pair| pair.status(Side::Near)["state"] != "replicating");
    expect(&pair.run(Side::Near, &["sync", GROUP, "--reverse"]), 2, &["node far is not connected"]);
    assert!(is_primary(&pair, Side::Near));
    pair.qemu_io(Side::Near, "data", &["write -P 1 0 4k"]);
    pair.stop(Side::Near);
}

#[test]
fn what_the_other_node_has_no_image_of_is_no_content_that_counts() {
    let mut pair = Pair::new(&plan("async"));
    Side::BOTH.iter().for_each(|node| pair.serve(*node));
    pair.until("the nodes have met", |pair| pair.status(Side::Near)["peers"][0]["link"] == "connected");
    let mut said = String::new();
    pair.until("it is refused for that", |pair| {
        let (code, words) = pair.output_of(Side::Near, &["sync", GROUP, "--reverse", "--yes"]);
        assert_eq!(code, 2, "{words}");
        said = words;
        said.contains("no sync to it was ever completed")
    });
    assert!(is_primary(&pair, Side::Near) && pair.status(Side::Near)["reverse"].is_null(), "{said}");
    pair.sync_fully(Side::Near);
    pair.done(Side::Near, &["logging", GROUP, "--volume", "log"]);
    expect(
        &pair.run(Side::Near, &["sync", GROUP, "--reverse", "--yes"]),
        2,
        &["volume log is set aside", "sync g --volume log"],
    );
    pair.stop_both();
}

#[test]
fn of_two_nodes_on_which_it_is_typed_at_once_one_is_served_by_the_other() {
    let mut pair = Pair::replicating(&plan("async"));
    let typed = Side::BOTH.map(|node| Background::start(pair.command(node, &["sync", GROUP, "--reverse"])));
    let ended = typed.map(|typed| typed.finish(&mut pair));
    assert_eq!(ended.iter().filter(|(is_done, _)| *is_done).count(), 1, "{ended:?}");
    until_home(&mut pair, Side::Near);
    pair.qemu_io(Side::Near, "data", &["write -P 1 0 4k", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// Typed twice on one node, while the first one waited for the disk: the second one took the record of the first.
#[test]
fn of_two_that_are_typed_beside_a_silent_disk_one_is_carried_out() {
    if must_skip_stores("of_two_that_are_typed_beside_a_silent_disk_one_is_carried_out") {
        return;
    }
    let mut pair = Pair::replicating(&PairPlan { forgets: true, ..plan("async") });
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "data", &["write -P 6 0 64k", "flush"]);
    pair.hang(Side::Near);
    let words = ["sync", GROUP, "--reverse", "--yes"];
    let typed = [0, 1].map(|_| {
        let typed = Background::start(pair.command(Side::Near, &words));
        std::thread::sleep(Duration::from_millis(500));
        typed
    });
    pair.answer_again(Side::Near);
    let ended = typed.map(|typed| typed.finish(&mut pair));
    let is_told =
        |said: &str| ["under way already", "a reverse sync is being begun"].iter().any(|part| said.contains(part));
    let begun = ended.iter().filter(|(is_done, said)| *is_done && !is_told(said)).count();
    assert!(begun == 1 && ended.iter().any(|(_, said)| is_told(said)), "{ended:?}");
    pair.until("it is served", |pair| pair.try_qemu_io(Side::Near, "data", &["read -P 5 0 1M"]).0);
    until_home(&mut pair, Side::Near);
    pair.qemu_io(Side::Near, "data", &["read -P 5 0 1M"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// The operator's word ends it: clients are cut off, as they may see other content from then on.
#[test]
fn a_forced_promotion_at_home_ends_it() {
    let mut pair = Pair::replicating(&plan("async"));
    served_by_far(&mut pair);
    let term = pair.status(Side::Near)["term"].clone();
    pair.kill(Side::Far);
    pair.until("far is away", |pair| pair.status(Side::Near)["peers"][0]["link"] != "connected");
    pair.promote_by_force(Side::Near);
    assert!(is_primary(&pair, Side::Near) && pair.status(Side::Near)["reverse"].is_null());
    assert_ne!(pair.status(Side::Near)["term"], term);
    pair.qemu_io(Side::Near, "data", &["write -P 1 0 4k", "flush"]);
    pair.stop(Side::Near);
}

/// Whoever waited for it heard that this node was primary again as he had ordered.
#[test]
fn whoever_waits_for_a_reverse_sync_hears_that_it_was_ended_by_force() {
    let mut pair = Pair::replicating(&plan("async"));
    let output = pair.run(Side::Near, &["sync", GROUP, "--reverse", "--full", "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it answers as JSON");
    let operation = answer["answers"][0]["operation"].as_str().expect("its name").to_owned();
    pair.kill(Side::Far);
    pair.until("far is away", |pair| pair.status(Side::Near)["peers"][0]["link"] != "connected");
    let waits = Background::start(pair.command(Side::Near, &["wait", &operation]));
    pair.promote_by_force(Side::Near);
    let output = waits.output();
    expect(&output, 2, &["was ended by 'promote --force' here"]);
    pair.stop(Side::Near);
}

/// What nobody can read may be the record of a node whose clients are served here: it was taken for one of a handover that came to nothing.
#[test]
fn a_record_that_cannot_be_read_stays_until_somebody_ends_it() {
    let mut pair = Pair::replicating(&plan("async"));
    pair.stop(Side::Far);
    let record = pair.path("far/state/groups").join(GROUP).join("reverse");
    std::fs::write(&record, "farshore reverse 1\nplace home\nchecksum 00000000\n").expect("written");
    pair.serve(Side::Far);
    pair.wait_for(Side::Near, "replicating");
    // Longer than a handover is waited for that does not come.
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert!(record.exists() && pair.log(Side::Far).contains("is damaged"), "{}", pair.log(Side::Far));
    pair.done(Side::Far, &["sync", GROUP, "--reverse", "--stop"]);
    assert!(!record.exists());
    pair.stop_both();
}

/// The daemon ended between the demotion and the end of the term of those who had seen what is given up. Another one begins once, and before
/// the other node serves anybody.
#[test]
fn a_term_ends_before_the_other_nodes_content_is_served() {
    let mut pair = Pair::replicating(&plan("async"));
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["demote", GROUP]);
    pair.stop_both();
    let record = records_what_is_given_up(&pair);
    is_announced(&pair);
    let term = pair.path("near/state/groups").join(GROUP).join("term");
    let term = || std::fs::read_to_string(&term).expect("on record");
    let before = term();
    pair.serve(Side::Near);
    pair.until("another term has begun", |_| {
        std::fs::read_to_string(&record).is_ok_and(|text| text.contains(" new-term"))
    });
    let after = term();
    assert_ne!(after, before);
    pair.kill(Side::Near);
    pair.serve(Side::Near);
    pair.serve(Side::Far);
    pair.until("it is served", |pair| pair.try_qemu_io(Side::Near, "data", &["read -P 5 0 1M"]).0);
    assert_eq!(term(), after, "who came in that one goes on");
    until_home(&mut pair, Side::Near);
    assert_eq!(term(), after);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

// proves: P6
/// A node was the primary for clients of its own, and just starting when it was told to serve those of its peer: its own were shut out.
#[test]
fn a_node_that_starts_as_the_primary_of_its_own_clients_is_not_lent() {
    if must_skip_stores("a_node_that_starts_as_the_primary_of_its_own_clients_is_not_lent") {
        return;
    }
    let mut pair = Pair::new(&plan("async"));
    let store = store_of_group(&pair, Side::Far);
    pair.lay_relay();
    pair.first_sync();
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["demote", GROUP]);
    pair.done(Side::Far, &["promote", GROUP]);
    pair.wait_for_rest(Side::Far);
    assert!(pair.stop(Side::Near).success());
    let record = |node: Side| pair.path(node.name()).join("state/groups").join(GROUP).join("reverse");
    let (home, server) = (record(Side::Near), record(Side::Far));
    assert_eq!(records_what_is_given_up(&pair), home);
    // Until both have met it orders nothing by itself.
    pair.relay().cut();
    pair.serve(Side::Near);
    let is_starting = |pair: &Pair| pair.status(Side::Far)["starting"] == true;
    // Its half starts anew, and its disk stands still in the midst of that.
    let reset = (60..).step_by(7).find_map(|calls| {
        assert!(calls < 400, "it never stood still while it was starting");
        // Each in an extent that nobody has written to since the start.
        let mut places = VOLUMES.iter().flat_map(|volume| ["0", "4M"].map(|at| (volume, at))).cycle();
        pair.until("far has failed", |pair| {
            store.fail_call_after(0, rustix::io::Errno::IO.raw_os_error());
            let (volume, at) = places.next().expect("it goes on");
            let _ = pair.try_qemu_io(Side::Far, volume, &[&format!("write -P 6 {at} 64k"), "flush"]);
            pair.status(Side::Far)["state"] == "failed"
        });
        store.fail_no_call();
        store.hang_after_calls(calls);
        let mut reset = Background::start(pair.command(Side::Far, &["reset", GROUP]));
        let until = Instant::now() + Duration::from_millis(500);
        while Instant::now() < until && !reset.has_ended() {
            std::thread::sleep(Duration::from_millis(10));
        }
        if !reset.has_ended() && is_starting(&pair) {
            return Some(reset);
        }
        store.answer_again();
        reset.finish(&mut pair);
        None
    });
    let typed = Background::start(pair.command(Side::Near, &["sync", GROUP, "--reverse"]));
    pair.relay().restore();
    // It is told by then.
    std::thread::sleep(Duration::from_secs(2));
    assert!(is_starting(&pair), "{}", pair.log(Side::Far));
    store.answer_again();
    reset.expect("it was typed").finish(&mut pair);
    let (is_done, said) = typed.finish(&mut pair);
    assert!(!is_done && said.contains("serves its own clients alone"), "{said}");
    pair.until("near serves nobody any more", |_| !home.exists());
    assert!(!server.exists() && pair.status(Side::Far)["reverse"].is_null(), "{}", pair.log(Side::Far));
    pair.until("far serves", |pair| pair.try_qemu_io(Side::Far, "data", &["write -P 7 0 64k", "flush"]).0);
}

/// Whichever daemon dies, and whenever: the clients' node is primary in the end, and nothing that was acknowledged is lost.
#[test]
fn a_kill_at_any_moment_leaves_nothing_half_done() {
    let mut pair = Pair::replicating(&plan("async"));
    for (round, wait_ms) in [0, 60, 150, 400, 900, 1800].into_iter().enumerate() {
        for victim in Side::BOTH {
            let pattern = 1 + 2 * round + victim as usize;
            pair.qemu_io(Side::Near, "data", &[&format!("write -P {pattern} 0 1M"), "flush"]);
            pair.wait_for_rest(Side::Near);
            let typed = Background::start(pair.command(Side::Near, &["sync", GROUP, "--reverse", "--full"]));
            std::thread::sleep(Duration::from_millis(wait_ms));
            pair.kill(victim);
            pair.serve(victim);
            let (_, said) = typed.finish(&mut pair);
            println!("{} after {wait_ms} ms: {}", victim.name(), said.trim());
            until_home(&mut pair, Side::Near);
            pair.until("they are in step", |pair| pair.status(Side::Near)["state"] == "replicating");
            pair.qemu_io(Side::Near, "data", &[&format!("read -P {pattern} 0 1M")]);
        }
    }
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

// proves: P6, P8
/// Too little room to save what is given up is said before anything is changed, and nobody was promoted for it.
#[test]
fn what_is_given_up_needs_room_before_anything_is_changed() {
    let test = "what_is_given_up_needs_room_before_anything_is_changed";
    let mut pair = Pair::new(&plan("async"));
    let Some(_full) = crate::bad_state::tmpfs(&pair, Side::Near, "size=60m,mode=0700") else {
        crate::common::must_skip(test, &[("to mount a file system", false)]);
        return;
    };
    pair.first_sync();
    pair.done(Side::Near, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "data", &["write -P 6 0 64k", "flush"]);
    let yes = ["sync", GROUP, "--reverse", "--yes"];
    expect(&pair.run(Side::Near, &yes), 2, &["nothing was changed", "free in its state directory", "--discard"]);
    for node in Side::BOTH {
        assert_eq!(
            (is_primary(&pair, node), &pair.status(node)["reverse"]),
            (node == Side::Near, &serde_json::Value::Null)
        );
    }
    pair.qemu_io(Side::Near, "data", &["read -P 6 0 64k"]);
    pair.done(Side::Near, &[&yes[..], &["--discard"]].concat());
    until_home(&mut pair, Side::Near);
    pair.qemu_io(Side::Near, "data", &["read -P 0 0 64k"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

// proves: rule 13, P6
/// Whichever daemon dies, and whenever, while the copy takes over with what it has: the two are never primary at once, and the same command finishes it.
#[test]
fn a_kill_at_any_moment_of_what_gives_something_up_is_finished_by_the_same_command() {
    let mut pair = Pair::replicating(&plan("async"));
    let moments = [0, 40, 80, 130, 200, 300, 500, 900];
    for (round, (wait_ms, victim)) in
        moments.into_iter().flat_map(|wait_ms| Side::BOTH.map(|victim| (wait_ms, victim))).enumerate()
    {
        let (kept, given_up) = (1 + 2 * round, 2 + 2 * round);
        pair.qemu_io(Side::Near, "data", &[&format!("write -P {kept} 0 1M"), "flush"]);
        pair.wait_for_rest(Side::Near);
        pair.done(Side::Near, &["logging", GROUP]);
        pair.qemu_io(Side::Near, "data", &[&format!("write -P {given_up} 0 64k"), "flush"]);
        let words = ["sync", GROUP, "--reverse", "--yes"];
        let typed = Background::start(pair.command(Side::Near, &words));
        std::thread::sleep(Duration::from_millis(wait_ms));
        pair.kill(victim);
        pair.serve(victim);
        let (_, said) = typed.finish(&mut pair);
        println!("{} after {wait_ms} ms: {}", victim.name(), said.trim());
        let read = format!("read -P {kept} 0 1M");
        pair.until("the copy's content is here", |pair| {
            for node in Side::BOTH {
                let reason = pair.status(node)["reason"].to_string();
                assert!(!reason.contains("both nodes are primary"), "{} after {wait_ms} ms: {reason}", victim.name());
            }
            let is_home = is_primary(pair, Side::Near) && pair.status(Side::Near)["reverse"].is_null();
            if is_home && !pair.try_qemu_io(Side::Near, "data", &[&read]).0 {
                // It had not begun.
                let (_, said) = pair.output_of(Side::Near, &words);
                println!("typed again: {}", said.trim());
                return false;
            }
            is_home
        });
        until_home(&mut pair, Side::Near);
        pair.until("they are in step", |pair| pair.status(Side::Near)["state"] == "replicating");
        pair.qemu_io(Side::Near, "data", &[&read]);
    }
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// The copy lacks nothing, and no stream says so: nothing is there to be given up, and the way is the same.
#[test]
fn a_copy_that_lacks_nothing_serves_also_where_nothing_streams() {
    let mut pair = Pair::replicating(&plan("async"));
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 64k", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["logging", GROUP]);
    pair.done(Side::Near, &["sync", GROUP, "--reverse", "--yes"]);
    until_home(&mut pair, Side::Near);
    pair.qemu_io(Side::Near, "data", &["read -P 5 0 64k", "write -P 6 0 64k", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// A directory of a pair, with all that is in it, into another one or over it: files stay the ones that they are.
fn copies(pair: &Pair, from: &str, to: &str) {
    let copied = std::process::Command::new("cp").args(["-a", "-T"]).args([pair.path(from), pair.path(to)]).status();
    assert!(copied.expect("cp runs").success());
}

// proves: P6
/// The copy is an older one than it had confirmed, and its content is to count: no bits tell what differs, so all is compared and what differs is sent.
#[test]
fn an_older_copy_whose_content_counts_is_sent_in_full() {
    let mut pair = Pair::replicating(&plan("async"));
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    let (far, old) = ("far", "far-old");
    pair.kill(Side::Far);
    copies(&pair, far, old);
    pair.serve(Side::Far);
    pair.until("the nodes have met", |pair| pair.status(Side::Near)["state"] == "replicating");
    pair.qemu_io(Side::Near, "data", &["write -P 6 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.until("nothing of it is dirty any more", |pair| pair.status(Side::Near)["volumes"][0]["dirty_bytes"] == 0);
    pair.kill(Side::Far);
    copies(&pair, old, far);
    pair.serve(Side::Far);
    pair.until("it is seen", |pair| {
        pair.status(Side::Near)["reason"].to_string().contains("an old copy of its state directory")
    });
    pair.done(Side::Near, &["sync", GROUP, "--reverse", "--yes"]);
    pair.until("it is served", |pair| pair.try_qemu_io(Side::Near, "data", &["read -P 5 0 1M"]).0);
    until_home(&mut pair, Side::Near);
    pair.qemu_io(Side::Near, "data", &["read -P 5 0 1M"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}
