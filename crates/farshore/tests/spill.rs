//! A queue that has no room in memory goes to disk, in order, and comes back; and what becomes of it when that cannot be.

use std::fs;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::common::damage::{directory, edit_newer, reseal, state};
use crate::common::{GROUP, Pair, PairPlan, Side, expect};

const VOLUMES: &[&str] = &["data"];
const MIB: u64 = 1 << 20;
/// Twenty times what memory has room for.
const ON_DISK: &str = "queue.memory = \"1MiB\"\nqueue.disk = \"64MiB\"\n";

const PLAN: PairPlan = PairPlan {
    volumes: VOLUMES,
    volume_bytes: 32 << 20,
    group: ON_DISK,
    head: "[link]\ntimeout = \"1s\"",
    ..PairPlan::DEFAULT
};

/// A pair in step over a line that can be cut.
fn over_a_relay(group: &str) -> Pair {
    let mut pair = Pair::new(&PairPlan { group, ..PLAN });
    pair.lay_relay();
    pair.first_sync();
    pair.wait_for_rest(Side::Near);
    pair
}

/// The line is cut, and the primary knows.
fn cut(pair: &Pair) {
    pair.relay().cut();
    pair.wait_for(Side::Near, "queuing");
}

/// So many MiB in writes of 64 KiB with values of their own. Each place is written twice, so that the order shows.
fn write(pair: &Pair, mib: u64) {
    let command = |number: u64| {
        let (value, place) = (1 + number % 251, number / 2);
        format!("write -P {value} {}k 64k", place * 64)
    };
    let commands: Vec<String> = (0..mib * 16).map(command).collect();
    pair.qemu_io(Side::Near, "data", &commands.iter().map(String::as_str).collect::<Vec<_>>());
}

fn queue(pair: &Pair) -> Value {
    pair.status(Side::Near)["queue"].clone()
}

/// The line is there again: all is sent, and both nodes hold the same.
fn heals(mut pair: Pair) {
    pair.relay().restore();
    pair.wait_for(Side::Near, "replicating");
    pair.wait_for_rest(Side::Near);
    assert_eq!(queue(&pair)["disk_bytes"], 0, "{}", pair.log(Side::Near));
    pair.stop_both();
    pair.assert_equal(VOLUMES);
}

fn resynced(pair: &Pair) -> u64 {
    pair.counter(Side::Near, "group.g.resynced_bytes")
}

// proves: P2, P5
#[test]
fn what_has_no_room_in_memory_waits_on_disk_and_is_sent_in_order() {
    let mut pair = over_a_relay(ON_DISK);
    let before = resynced(&pair);
    cut(&pair);
    write(&pair, 20);
    let status = pair.status(Side::Near);
    assert_eq!((&status["state"], &status["protection"]), (&"queuing".into(), &"queued".into()), "{status}");
    let queue = &status["queue"];
    let bytes = |key: &str| queue[key].as_u64().unwrap_or_else(|| panic!("{key}: {queue}"));
    assert!(bytes("disk_bytes") > 16 * MIB && bytes("bytes") <= MIB, "{queue}");
    assert!(bytes("disk_bytes_hwm") >= bytes("disk_bytes") && bytes("spilled_bytes") >= bytes("disk_bytes"), "{queue}");
    let oldest = queue["oldest_unconfirmed_s"].as_f64().unwrap_or_else(|| panic!("nothing waits: {queue}"));
    let peer = &status["peers"][0];
    assert!(oldest > 0.0 && Some(oldest) <= peer["lag_seconds"].as_f64(), "{oldest}: {peer}");
    assert_eq!(peer["lag_items"], queue["items"], "{status}");
    assert_eq!(pair.status(Side::Far)["peers"][0]["lag_items"], Value::Null, "it does not hear its primary");
    // What waits is on disk for the most part, and its peak is of both.
    let waiting = bytes("bytes") + bytes("disk_bytes");
    for peak in ["waiting_bytes_hwm", "reset_waiting_bytes_hwm"] {
        assert!(bytes(peak) >= waiting, "{peak} of {waiting}: {queue}");
    }
    let stats = pair.done(Side::Near, &["stats", "200ms", "1", "--json", "--group", GROUP]);
    let stats: Value = serde_json::from_str(stats.trim()).expect("a document");
    let shown = &stats["groups"][0]["queue"];
    assert!(shown["reset_waiting_bytes_hwm"].as_u64() >= Some(waiting), "{shown}");
    let table = pair.done(Side::Near, &["stats", "200ms", "1"]);
    let size = |text: &str| text.split_once(" MiB").and_then(|(number, _)| number.trim().parse::<f64>().ok());
    let row = table.lines().nth(1).unwrap_or_default();
    let (waits, peak) = row.split_once(" writes").unwrap_or_default();
    let waits = waits.rsplit_once(" MiB, ").and_then(|(before, _)| before.rsplit("  ").next()?.trim().parse().ok());
    assert!(waits > Some(16.0) && size(peak) >= waits, "PEAK is less than WAITS: {table}");
    assert_eq!((bytes("disk_limit_bytes"), &queue["disk_failed"]), (64 * MIB, &false.into()));
    for words in [&["queue", GROUP][..], &["status", GROUP]] {
        let page = pair.done(Side::Near, words);
        assert!(page.contains("On disk") && page.contains("of 64 MiB"), "{page}");
    }
    assert!(pair.counter(Side::Near, "group.g.queue_disk_bytes") > 16 * MIB);
    assert!(pair.counter(Side::Near, "group.g.spilled_bytes") > 16 * MIB);
    pair.relay().restore();
    pair.wait_for(Side::Near, "replicating");
    assert_eq!(resynced(&pair), before, "there was a resync:\n{}", pair.log(Side::Near));
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["queue", GROUP, "--reset-peaks"]);
    let queue = &pair.status(Side::Near)["queue"];
    let bytes = |key: &str| queue[key].as_u64().unwrap_or_else(|| panic!("{key}: {queue}"));
    assert_eq!(queue["oldest_unconfirmed_s"], 0.0, "nothing waits: {queue}");
    assert_eq!((bytes("reset_waiting_bytes_hwm"), bytes("reset_disk_bytes_hwm")), (0, 0), "{queue}");
    assert!(bytes("waiting_bytes_hwm") >= waiting && bytes("disk_bytes_hwm") > 16 * MIB, "{queue}");
    assert!(queue["reset_lag_hwm_s"].as_f64() < queue["lag_hwm_s"].as_f64(), "{queue}");
    heals(pair);
}

// proves: P3, P8
#[test]
fn a_disk_queue_that_is_full_becomes_dirty_regions() {
    let pair = over_a_relay("queue.memory = \"1MiB\"\nqueue.disk = \"8MiB\"\n");
    let before = resynced(&pair);
    cut(&pair);
    write(&pair, 24);
    pair.wait_for(Side::Near, "logging");
    let status = pair.status(Side::Near);
    let has_words = |text: &str| text.contains("queue is full");
    assert!(has_words(&status["reason"].to_string()) || has_words(&pair.log(Side::Near)), "{status}");
    assert!(pair.log(Side::Near).contains("became dirty regions"), "{}", pair.log(Side::Near));
    assert_eq!(status["queue"]["disk_bytes"], 0, "nothing of it is needed");
    pair.relay().restore();
    pair.wait_for(Side::Near, "replicating");
    assert!(resynced(&pair) > before, "nothing was synced");
    heals(pair);
}

// proves: P2, P5
/// The file is there for as long as a run, and holds nothing that a start would read.
#[test]
fn a_primary_that_is_killed_forgets_its_disk_queue() {
    let mut pair = over_a_relay(ON_DISK);
    cut(&pair);
    write(&pair, 8);
    assert!(queue(&pair)["disk_bytes"].as_u64() > Some(4 * MIB));
    pair.kill(Side::Near);
    pair.serve(Side::Near);
    assert_eq!(queue(&pair)["disk_bytes"], 0);
    heals(pair);
}

// proves: P9
#[test]
fn what_rotted_in_the_disk_queue_is_not_sent() {
    let pair = over_a_relay(ON_DISK);
    let before = resynced(&pair);
    cut(&pair);
    write(&pair, 8);
    let path = pair.path("near/state/groups/g/queue");
    let file = fs::File::options().write(true).open(&path).expect("there");
    file.write_all_at(&vec![0xee; 64 << 20], 0).and_then(|()| file.sync_all()).expect("written");
    pair.relay().restore();
    pair.wait_for(Side::Near, "replicating");
    let log = pair.log(Side::Near);
    assert!(log.contains("queue holds bytes whose checksum does not match"), "{log}");
    assert!(log.contains("what stands in the disk queue is damaged"), "{log}");
    assert!(resynced(&pair) > before, "nothing was synced");
    heals(pair);
}

// proves: P8
/// Where its space cannot be had, the group goes on without, and the log has the numbers.
#[test]
fn without_space_to_reserve_a_group_has_no_disk_queue() {
    let pair = over_a_relay("queue.memory = \"1MiB\"\nqueue.disk = \"16TiB\"\n");
    let words = ["goes on without a disk queue", "queue needs 16 TiB and has to leave", "'queue.when_full' say"];
    for node in Side::BOTH {
        let log = pair.log(node);
        assert!(words.iter().all(|words| log.contains(words)), "{log}");
        assert!(!pair.path(node.name()).join("state/groups/g/queue").exists());
    }
    let status = pair.status(Side::Near);
    assert_eq!(status["queue"]["disk_limit_bytes"], 0, "{status}");
    assert!(status["warnings"].to_string().contains("there is no disk queue"), "{status}");
    // As it was before there were disk queues.
    cut(&pair);
    write(&pair, 4);
    pair.wait_for(Side::Near, "logging");
    heals(pair);
}

#[test]
fn another_size_counts_when_the_group_starts_anew() {
    let pair = over_a_relay(ON_DISK);
    let path = |node: Side| pair.path(node.name()).join("state/groups/g/queue");
    let size = |node| fs::metadata(path(node)).map_or(0, |facts| facts.len());
    assert_eq!(Side::BOTH.map(size), [64 * MIB; 2], "either node may be primary");
    expect(&pair.run(Side::Near, &["set", GROUP, "queue.disk=16MiB"]), 2, &["config apply"]);
    for (from, to, bytes) in [("\"64MiB\"", "\"16MiB\"", 16 * MIB), ("\"16MiB\"", "0", 0)] {
        pair.edit_config(&format!("queue.disk = {from}"), &format!("queue.disk = {to}"));
        pair.done(Side::Near, &["config", "apply"]);
        pair.wait_for(Side::Near, "replicating");
        assert_eq!(size(Side::Near), bytes, "{}", pair.log(Side::Near));
        assert_eq!(queue(&pair)["disk_limit_bytes"], bytes);
    }
    assert!(!path(Side::Near).exists() && size(Side::Far) == 64 * MIB);
}

#[test]
fn what_a_full_queue_does_is_set_while_it_runs() {
    let mut pair = over_a_relay(ON_DISK);
    let shown = |pair: &Pair| pair.status(Side::Near)["settings"]["queue.when_full"]["value"].clone();
    assert_eq!(shown(&pair), "block");
    pair.done(Side::Near, &["set", GROUP, "queue.when_full=bitmap"]);
    assert_eq!(shown(&pair), "bitmap");
    expect(&pair.run(Side::Near, &["set", GROUP, "queue.when_full=blok"]), 2, &["did you mean \"block\"?"]);
    assert!(pair.stop(Side::Near).success());
    pair.serve(Side::Near);
    assert_eq!(shown(&pair), "bitmap");
    heals(pair);
}

// proves: P2, P5
/// Every setting of the queue that `set` knows is changed while writes wait for a line that is away: it counts at once, no resync follows, and it
/// counts behind a restart too.
#[test]
fn each_setting_of_the_queue_changes_under_load() {
    const CHANGES: &[(&str, &str)] = &[
        ("queue.memory", "2MiB"),
        ("queue.items", "5000"),
        ("queue.when_full", "block"),
        ("queue.pace", "20% to 90%"),
        ("fold", "never"),
        ("link.weight", "20"),
        ("fallback", "superasync"),
        ("fallback_latency", "300ms"),
        ("fallback_after", "2s"),
        ("fallback_lag", "10m"),
        ("return_after", "1m"),
    ];
    let mut pair = over_a_relay(ON_DISK);
    let before = resynced(&pair);
    let settings = pair.status(Side::Near)["settings"].clone();
    let settings = settings.as_object().expect("by their keys");
    let of_the_queue = |key: &&String| {
        ["queue.", "fold", "fallback", "return_after", "link.weight"].iter().any(|begin| key.starts_with(begin))
    };
    for key in settings.keys().filter(of_the_queue) {
        assert!(CHANGES.iter().any(|(known, _)| known == key), "{key} is not tried here");
    }
    cut(&pair);
    for (at, (key, value)) in CHANGES.iter().enumerate() {
        write(&pair, 1 + at as u64 % 2);
        pair.done(Side::Near, &["set", GROUP, &format!("{key}={value}")]);
        assert_eq!(pair.status(Side::Near)["settings"][key]["value"], *value, "{key}");
    }
    assert_eq!(pair.status(Side::Near)["state"], "queuing", "{}", pair.log(Side::Near));
    pair.relay().restore();
    pair.wait_for(Side::Near, "replicating");
    pair.wait_for_rest(Side::Near);
    assert_eq!(resynced(&pair), before, "there was a resync:\n{}", pair.log(Side::Near));
    assert!(pair.stop(Side::Near).success());
    pair.serve(Side::Near);
    for (key, value) in CHANGES {
        let shown = pair.status(Side::Near)["settings"][key].clone();
        assert_eq!((&shown["value"], &shown["origin"]), (&(*value).into(), &"set".into()), "{key}: {shown}");
    }
    heals(pair);
}

// proves: P2, P5
/// With `queue.durable` the file is a log: a primary that is killed under its writers goes on in order, and nothing is synced.
#[test]
fn a_primary_that_is_killed_goes_on_from_its_log() {
    let logged = format!("{ON_DISK}queue.durable = true\n");
    let mut pair = over_a_relay(&logged);
    pair.until("the log is open", |pair| pair.log(Side::Near).contains("the queue stands in its log"));
    cut(&pair);
    write(&pair, 16);
    let writes: Vec<String> = (0..256).map(|n| format!("write -P {} {}k 64k", 1 + n % 200, n * 64)).collect();
    let writes: Vec<&str> = writes.iter().map(String::as_str).collect();
    let writer = pair.start_qemu_io(Side::Near, "data", &writes);
    std::thread::sleep(std::time::Duration::from_millis(200));
    pair.kill(Side::Near);
    let _ = writer.output();
    pair.serve(Side::Near);
    let status = pair.status(Side::Near);
    assert_eq!(status["state"], "queuing", "{status}\n{}", pair.log(Side::Near));
    let shown = queue(&pair);
    assert!(shown["disk_bytes"].as_u64() > Some(4 * MIB), "{status}");
    assert_eq!((&shown["log"], &shown["log_why"], &shown["log_off_s"]), (&"live".into(), &Value::Null, &Value::Null));
    assert!(shown["log_bytes"].as_u64() > Some(4 * MIB), "{shown}");
    for words in [&["queue", GROUP][..], &["status", GROUP]] {
        let page = pair.done(Side::Near, words);
        assert!(page.contains("Log  ") && page.contains("live; "), "{page}");
    }
    let file = state(&pair, Side::Near, "queue");
    let found =
        std::process::Command::new(env!("CARGO_BIN_EXE_farshore")).arg("inspect").arg(file).output().expect("run");
    let found = String::from_utf8_lossy(&found.stdout);
    assert!(found.contains("yes: the superblock beside it says so") && !found.contains("warning"), "{found}");
    write(&pair, 1);
    pair.relay().restore();
    pair.wait_for(Side::Near, "replicating");
    assert_eq!(resynced(&pair), 0, "there was a resync:\n{}", pair.log(Side::Near));
    heals(pair);
}

/// A start was cut short while it wrote the log to the volumes, and the log is gone.
fn loses_a_log_that_is_needed(pair: &mut Pair) -> std::path::PathBuf {
    pair.until("the log is open", |pair| queue(pair)["log"] == "live");
    cut(pair);
    write(pair, 4);
    pair.kill(Side::Near);
    edit_newer(&state(pair, Side::Near, "superblock"), |copy| {
        // Its flag 'queue redo' (docs/book/format.md).
        let flags = u16::from_le_bytes([copy[14], copy[15]]) | 2048;
        copy[14..16].copy_from_slice(&flags.to_le_bytes());
        reseal(copy);
    });
    let (queue, lost) = (state(pair, Side::Near, "queue"), pair.path("lost"));
    fs::rename(&queue, &lost).expect("moved");
    pair.serve(Side::Near);
    pair.wait_for(Side::Near, "failed");
    lost
}

// proves: P4
/// Without it the volumes may hold older content: the group stays down until the log is back, or the operator has given up what it held.
#[test]
fn a_log_that_a_start_still_needs_is_not_given_up_unasked() {
    let logged = format!("{ON_DISK}queue.durable = true\n");
    let mut pair = over_a_relay(&logged);
    let lost = loses_a_log_that_is_needed(&mut pair);
    let refused = |pair: &Pair| {
        let reason = pair.status(Side::Near)["reason"].to_string();
        let words = ["log of the queue cannot be used", "promote the peer", "accept-device"];
        assert!(words.iter().all(|word| reason.contains(word)), "{reason}");
        assert!(!pair.try_qemu_io(Side::Near, "data", &["read 0 4k"]).0, "it is served");
    };
    refused(&pair);
    let _ = pair.output_of(Side::Near, &["reset", GROUP]);
    pair.wait_for(Side::Near, "failed");
    refused(&pair);
    // The file is back.
    fs::rename(&lost, state(&pair, Side::Near, "queue")).expect("moved");
    pair.done(Side::Near, &["reset", GROUP]);
    pair.wait_for(Side::Near, "queuing");
    pair.relay().restore();
    pair.wait_for(Side::Near, "replicating");
    pair.wait_for_rest(Side::Near);
    // Lost for good, and so is the peer: what stands here is to count.
    loses_a_log_that_is_needed(&mut pair);
    refused(&pair);
    pair.stop(Side::Near);
    fs::rename(directory(&pair, Side::Near), pair.path("old")).expect("moved");
    pair.done(Side::Near, &["accept-device", GROUP, "data", "--content-is-good"]);
    pair.serve(Side::Near);
    pair.relay().restore();
    pair.until("the nodes have met", |pair| pair.status(Side::Near)["peers"][0]["link"] == "connected");
    pair.done(Side::Near, &["sync", GROUP, "--full", "--wait"]);
    heals(pair);
}
