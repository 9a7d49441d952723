//! The main job, end to end: two real daemons, a real NBD client, equal volumes at the end.

use crate::common::{GROUP, Pair, PairPlan, Side};

const VOLUMES: [&str; 2] = ["data", "log"];

// proves: P5
#[test]
fn writes_reach_the_far_side_in_every_mode() {
    let mut pair = Pair::replicating(&PairPlan::default());
    let first = ["write -P 1 0 1M", "write -P 2 4M 64k", "discard 512k 64k", "write -z 8M 1M", "flush"];
    pair.qemu_io(Side::Near, "data", &first);
    for (number, mode) in ["sync", "nearsync", "async", "logging"].into_iter().enumerate() {
        pair.done(Side::Near, &["set", GROUP, &format!("mode={mode}")]);
        if mode != "logging" {
            pair.wait_for(Side::Near, "replicating");
        }
        let at = 1 + number;
        pair.qemu_io(Side::Near, "log", &[&format!("write -P {} {at}M 128k", 10 + at), "flush"]);
    }
    let status = pair.status(Side::Near);
    assert_eq!(status["protection"], "local-only", "{status}");
    assert!(status["peers"][0]["dirty_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{status}");
    pair.done(Side::Near, &["set", GROUP, "mode=sync"]);
    pair.done(Side::Near, &["sync", GROUP, "--wait"]);
    assert_eq!(pair.status(Side::Near)["protection"], "both-durable");
    pair.qemu_io(Side::Near, "data", &["write -f -P 3 12M 1M", "read -P 3 12M 1M"]);
    assert_eq!(pair.counter(Side::Near, "nbd.trim.done"), 1);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
    let data = pair.content(Side::Far, "data");
    assert!(data[..512 << 10].iter().all(|byte| *byte == 1) && data[12 << 20..13 << 20].iter().all(|byte| *byte == 3));
    assert!(pair.content(Side::Far, "log")[4 << 20..][..128 << 10].iter().all(|byte| *byte == 14));
}

// proves: P7
#[test]
fn a_clean_stop_needs_no_resync_and_a_change_behind_our_back_is_found() {
    let mut pair = Pair::replicating(&PairPlan::default());
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 2M", "flush"]);
    pair.until("every dirty bit is cleared", |pair| pair.status(Side::Near)["peers"][0]["dirty_bytes"] == 0);
    pair.stop_both();
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.wait_for(Side::Near, "replicating");
    assert_eq!(pair.counter(Side::Near, "group.g.resynced_bytes"), 0);
    pair.stop_both();

    // A stop that was killed before it took fingerprints is no reason to distrust the copies.
    for location in ["near", "far"] {
        let taken = pair.path(&format!("{location}/state/groups/g/fingerprints"));
        std::fs::remove_file(taken).expect("a clean stop takes them");
    }
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.wait_for(Side::Near, "replicating");
    assert_eq!(pair.counter(Side::Near, "group.g.resynced_bytes"), 0);
    pair.stop_both();

    let mut changed = pair.content(Side::Near, "data");
    changed[5 << 20] = 99;
    std::fs::write(pair.device(Side::Near, "data"), &changed).expect("the volume is written behind our back");
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.until("the operator is asked", |pair| {
        pair.status(Side::Near)["reason"].to_string().contains("'farshore sync g'")
    });
    // Typed at the other node it is no answer: the question stands on the primary.
    let (code, said) = pair.output_of(Side::Far, &["sync", GROUP]);
    assert!(code == 2 && said.contains("node near says: g: an operator has to choose whose content counts"), "{said}");
    assert!(said.contains("--on near"), "{said}");
    pair.done(Side::Far, &["sync", GROUP, "--on", "near", "--wait"]);
    assert!(pair.log(Side::Near).contains("was changed since the last clean stop"), "{}", pair.log(Side::Near));
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
    assert_eq!(pair.content(Side::Far, "data")[5 << 20], 99);
}

// proves: P5
#[test]
fn crashes_of_either_node_heal_by_themselves() {
    let mut pair = Pair::replicating(&PairPlan::default());
    for round in 0..2 {
        for node in Side::BOTH {
            pair.qemu_io(Side::Near, "data", &[&format!("write -P {} {round}M 1M", 20 + round)]);
            pair.kill(node);
            if node == Side::Far {
                pair.qemu_io(Side::Near, "log", &[&format!("write -P {} {round}M 1M", 30 + round), "flush"]);
            }
            pair.serve(node);
            pair.wait_for(Side::Near, "replicating");
        }
    }
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

// proves: P6, rule 14
#[test]
fn the_far_side_is_promoted_and_the_old_primary_follows() {
    let mut pair = Pair::replicating(&PairPlan { mode: "sync", ..PairPlan::default() });
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    let (code, said) = pair.output_of(Side::Far, &["promote", GROUP]);
    assert!(code == 2 && said.contains("primary and connected"), "{code}: {said}");
    pair.kill(Side::Near);
    let (code, said) = pair.output_of(Side::Far, &["promote", GROUP]);
    assert!(code == 2 && said.contains("--force"), "{code}: {said}");
    let (code, said) = pair.output_of(Side::Far, &["promote", GROUP, "--force"]);
    assert_eq!(code, 1, "a forced promotion warns: {said}");
    assert!(
        !said.contains("done") && said.contains("sequence") && said.lines().count() == 1,
        "it says what it did: {said}"
    );
    pair.qemu_io(Side::Far, "data", &["read -P 5 0 1M", "write -P 6 1M 1M", "flush"]);

    pair.serve(Side::Near);
    pair.until("both nodes see the fork", |pair| {
        let reasons = Side::BOTH.map(|node| pair.status(node)["reason"].to_string());
        reasons.iter().all(|reason| reason.contains("both nodes are primary"))
    });
    let (code, said) = pair.output_of(Side::Near, &["demote", GROUP]);
    assert!(code < 2 && said.contains("the peer is primary") && !said.contains("needs --force"), "{said}");
    pair.until_fork_is_over(Side::Far);
    pair.done(Side::Far, &["sync", GROUP, "--full", "--wait"]);
    let (served, _) = pair.try_qemu_io(Side::Near, "data", &["read 0 4k"]);
    assert!(!served, "a secondary has no export");
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
    assert!(pair.content(Side::Near, "data")[1 << 20..2 << 20].iter().all(|byte| *byte == 6));
}

/// A demotion closed the exports under a mounted file system, said "done", and a database's flush failed.
#[test]
fn a_demotion_cuts_no_client_off_unasked() {
    let mut pair = Pair::replicating(&PairPlan::default());
    let client = pair.start_qemu_io(Side::Near, "data", &["write -P 7 0 64k", "sleep 60000"]);
    pair.until("the client is attached", |pair| pair.status(Side::Near)["volumes"][0]["clients"] == 1);
    let (code, said) = pair.output_of(Side::Near, &["demote", GROUP]);
    assert!(code == 2 && said.contains("1 client is attached"), "{code}: {said}");
    for expected in ["data: the socket file (qemu-io, process ", "attached for ", "--close-clients"] {
        assert!(said.contains(expected), "{expected:?} is missing: {said}");
    }
    let status = pair.status(Side::Near);
    assert_eq!((&status["role"], &status["state"]), (&"primary".into(), &"replicating".into()), "{status}");
    pair.qemu_io(Side::Near, "data", &["read -P 7 0 64k", "write -P 8 1M 64k", "flush"]);
    let (code, said) = pair.output_of(Side::Near, &["demote", GROUP, "--close-clients"]);
    assert!(
        code == 0 && said.contains("1 NBD client is cut off, it fails") && said.contains("(qemu-io, process "),
        "{code}: {said}"
    );
    drop(client);
    pair.done(Side::Far, &["promote", GROUP]);
    pair.qemu_io(Side::Far, "data", &["read -P 7 0 64k", "read -P 8 1M 64k"]);
    // Whoever has just disconnected is in nobody's way.
    pair.done(Side::Far, &["demote", GROUP]);
    pair.done(Side::Near, &["promote", GROUP]);
    let _client = pair.start_qemu_io(Side::Near, "data", &["read 0 4k", "sleep 60000"]);
    pair.until("the client is attached", |pair| pair.status(Side::Near)["volumes"][0]["clients"] == 1);
    pair.stop_both();
    let log = pair.log(Side::Near);
    assert!(log.contains("1 NBD client is cut off") && log.contains("(qemu-io, process "), "{log}");
}

#[test]
fn nodes_that_mean_different_groups_say_so() {
    let mut pair = Pair::new(&PairPlan::default());
    pair.serve(Side::Near);
    pair.edit_config("volumes.log]", "volumes.logs]");
    pair.serve(Side::Far);
    pair.until("the difference is shown", |pair| {
        let reason = pair.status(Side::Far)["peers"][0]["link_reason"].to_string();
        reason.contains("other definitions") && reason.contains("logs")
    });
}

#[test]
fn a_second_daemon_on_the_same_state_is_refused() {
    let mut pair = Pair::new(&PairPlan::default());
    pair.serve(Side::Near);
    let (code, said) = pair.output_of(Side::Near, &["serve"]);
    assert!(code == 2 && said.contains("locked by"), "{code}: {said}");
    assert!(pair.stop(Side::Near).success());
}
