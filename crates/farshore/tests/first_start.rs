//! A node without any record of a group: its first start, or one whose state directory is not mounted. Volumes that carry data are
//! served by nobody before the operator has said whose content counts.

use std::fs;
use std::os::unix::fs::DirBuilderExt;

use crate::common::{GROUP, Pair, PairPlan, Side};

const SMALL: PairPlan =
    PairPlan { volumes: &["data", "log"], volume_bytes: 4 << 20, mode: "sync", ..PairPlan::DEFAULT };

/// The group is not taken up, says why and what to type, and its volumes are left alone.
#[track_caller]
fn is_not_opened(pair: &mut Pair, node: Side) {
    let before = ["data", "log"].map(|volume| fs::read(pair.device(node, volume)).expect("there"));
    pair.serve(node);
    let status = pair.status(node);
    assert_eq!(status["state"], "failed", "{status}\n{}", pair.log(node));
    let reason = status["reason"].as_str().expect("a sentence");
    for part in [
        "volume g/data carries data (at byte 0), and nothing is recorded of the group on this node",
        "/state is not mounted or was lost: bring it back",
        "'farshore accept-device g data log --content-is-good' (this node's",
        "'farshore accept-device g data log --rebuild' (that of far)",
    ] {
        assert!(reason.contains(part), "no {part:?} in: {reason}");
    }
    assert!(!pair.try_qemu_io(node, "data", &["read 0 4k"]).0, "it has no export");
    let (code, said) = pair.output_of(node, &["promote", GROUP, "--force"]);
    assert!(code == 2 && said.contains("carries data"), "{code}: {said}");
    for (volume, before) in ["data", "log"].iter().zip(before) {
        assert!(fs::read(pair.device(node, volume)).expect("there") == before, "{volume} was touched");
    }
}

// proves: P6
#[test]
fn a_primary_whose_state_directory_is_not_mounted_opens_nothing() {
    for is_promoted_elsewhere in [false, true] {
        let mut pair = Pair::replicating(&SMALL);
        pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
        pair.kill(Side::Near);
        if is_promoted_elsewhere {
            pair.promote_by_force(Side::Far);
            pair.qemu_io(Side::Far, "data", &["write -P 6 0 64k", "flush"]);
        }
        let (state, away) = (pair.path("near/state"), pair.path("near/away"));
        fs::rename(&state, &away).expect("unmounted");
        fs::DirBuilder::new().mode(0o700).create(&state).expect("the mount point");
        is_not_opened(&mut pair, Side::Near);
        let reason = pair.status(Side::Near)["reason"].to_string();
        assert!(reason.contains("nothing is recorded of the group on this node"), "{reason}");
        assert!(pair.stop(Side::Near).success(), "{}", pair.log(Side::Near));
        fs::remove_dir_all(&state).expect("removed");
        fs::rename(&away, &state).expect("mounted");
        if is_promoted_elsewhere {
            pair.return_as_secondary(Side::Near);
            pair.qemu_io(Side::Far, "data", &["read -P 6 0 64k"]);
        } else {
            pair.serve(Side::Near);
            pair.wait_for(Side::Near, "replicating");
            pair.qemu_io(Side::Near, "data", &["read -P 5 0 1M"]);
        }
    }
}

// proves: P6
/// New disks under a new state: that these are blank says nothing of what the peer holds.
#[test]
fn a_primary_on_new_disks_opens_nothing_beside_a_peer_that_has_lived() {
    let mut pair = Pair::replicating(&SMALL);
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.kill(Side::Near);
    pair.kill(Side::Far);
    fs::remove_dir_all(pair.path("near/state")).expect("lost");
    for volume in SMALL.volumes {
        fs::remove_file(pair.device(Side::Near, volume)).expect("lost");
        fs::File::create(pair.device(Side::Near, volume)).and_then(|file| file.set_len(4 << 20)).expect("another one");
    }
    pair.serve(Side::Near);
    let closed = |pair: &mut Pair, words: &str| {
        pair.until(&format!("near says {words:?}"), |pair| {
            pair.status(Side::Near)["reason"].to_string().contains(words)
        });
        let (opened, said) = pair.try_qemu_io(Side::Near, "data", &["read 0 4k"]);
        assert!(!opened, "{said}");
    };
    closed(&mut pair, "the export opens when this node has met its peer");
    assert!(
        pair.log(Side::Near).contains("'farshore set g start_alone=serve' opens it without"),
        "{}",
        pair.log(Side::Near)
    );
    pair.serve(Side::Far);
    closed(&mut pair, "the peer has lived, and the export stays closed until you choose");
    pair.output_of(Side::Near, &["demote", GROUP]);
    pair.promote_by_force(Side::Far);
    pair.qemu_io(Side::Far, "data", &["read -P 5 0 1M"]);
}

/// One node of a new pair, and somebody who does not want to wait for the other.
#[test]
fn a_new_primary_opens_when_it_is_ordered_to_serve_alone() {
    let mut pair = Pair::new(&SMALL);
    pair.serve(Side::Near);
    assert!(!pair.try_qemu_io(Side::Near, "data", &["read 0 4k"]).0);
    pair.done(Side::Near, &["set", GROUP, "start_alone=serve"]);
    pair.until("the export is open", |pair| pair.try_qemu_io(Side::Near, "data", &["write -P 5 0 4k", "flush"]).0);
    pair.done(Side::Near, &["set", GROUP, "start_alone=default"]);
    pair.kill(Side::Near);
    pair.serve(Side::Near);
    pair.qemu_io(Side::Near, "data", &["read -P 5 0 4k"]);
}

// proves: P7
#[test]
fn a_disk_with_data_is_served_when_the_operator_has_said_so() {
    let mut pair = Pair::new(&SMALL);
    fs::write(pair.device(Side::Near, "data"), vec![4; 4 << 20]).expect("written");
    let (code, said) = pair.output_of(Side::Far, &["accept-device", GROUP, "data", "log", "--content-is-good"]);
    assert!(code == 2 && said.contains("far is the secondary of g in the configuration"), "{said}");
    is_not_opened(&mut pair, Side::Near);
    pair.kill(Side::Near);
    // In words, before or after the first start; and again, as often as one likes.
    for _ in 0..2 {
        let said = pair.done(Side::Near, &["accept-device", GROUP, "data", "log", "--content-is-good"]);
        assert!(said.contains("g begins anew on near as primary"), "{said}");
    }
    for _ in 0..2 {
        pair.serve(Side::Near);
        pair.qemu_io(Side::Near, "data", &["read -P 4 0 4M"]);
        pair.kill(Side::Near);
    }
    pair.first_sync();
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

// proves: P7
/// The word is about the devices that were there when it was given.
#[test]
fn another_disk_in_its_place_is_asked_about_again() {
    let mut pair = Pair::new(&SMALL);
    let data = pair.device(Side::Near, "data");
    fs::write(&data, vec![4; 4 << 20]).expect("written");
    pair.done(Side::Near, &["accept-device", GROUP, "data", "log", "--content-is-good"]);
    fs::rename(&data, pair.path("near/aside")).expect("taken away");
    fs::write(&data, vec![7; 4 << 20]).expect("another one");
    is_not_opened(&mut pair, Side::Near);
}

/// This node lost its disk of the state, and the peer has what counts.
#[test]
fn a_node_without_a_record_is_rebuilt_from_its_peer() {
    let mut pair = Pair::replicating(&SMALL);
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.kill(Side::Near);
    fs::remove_dir_all(pair.path("near/state")).expect("lost");
    is_not_opened(&mut pair, Side::Near);
    let said = pair.done(Side::Near, &["accept-device", GROUP, "data", "log", "--rebuild"]);
    assert!(said.contains("g begins anew on near as secondary"), "{said}");
    pair.kill(Side::Near);
    pair.promote_by_force(Side::Far);
    pair.serve(Side::Near);
    assert_eq!(pair.status(Side::Near)["role"], "secondary");
    pair.sync_fully(Side::Far);
    pair.stop_from(Side::Far);
    pair.assert_equal(&["data", "log"]);
}
