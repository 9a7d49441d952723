//! The recipe of docs/book/operate/dead-disk.md with real daemons: one disk of the secondary is gone, the other volume goes on in order, and
//! the lost one comes back on an empty disk.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forgetful::ForgetfulStore;
use serde_json::Value;

use crate::common::damage::store_of_group;
use crate::common::{Background, GROUP, Pair, PairPlan, Side, expect, must_skip_stores};
use crate::resolve::forked;

const MIB: u64 = 1 << 20;

fn volume(pair: &Pair, node: Side, key: &str) -> bool {
    pair.status(node)["volumes"][0][key] == true
}

fn warns(pair: &Pair, node: Side, part: &str) -> bool {
    let status = pair.status(node);
    let warnings = status["warnings"].as_array().into_iter().flatten();
    warnings.filter_map(|warning| warning.as_str()).any(|warning| warning.contains(part))
}

/// A disk of that size takes the place of the one of the volume `data`.
fn replaces(pair: &Pair, node: Side, bytes: u64) {
    let path = pair.device(node, "data");
    let _ = fs::remove_file(&path);
    File::create(&path).and_then(|disk| disk.set_len(bytes)).expect("a disk");
}

// proves: rule 11, P2, P3
#[test]
fn a_group_goes_on_without_a_dead_disk_of_the_secondary_and_takes_another_one() {
    let mut pair = Pair::replicating(&PairPlan { mode: "sync", volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    pair.qemu_io(Side::Near, "data", &["write -P 3 0 1M", "flush"]);
    pair.wait_for(Side::Near, "replicating");
    // The daemon starts while the disk is missing.
    assert!(pair.stop(Side::Far).success());
    fs::remove_file(pair.device(Side::Far, "data")).expect("it was there");
    pair.serve(Side::Far);
    expect(
        &pair.run(Side::Far, &["group", "detach", GROUP, "data"]),
        0,
        &["volume data is detached", "group attach g data"],
    );
    expect(&pair.run(Side::Far, &["group", "detach", GROUP, "data"]), 0, &["is detached already; nothing to do"]);
    expect(&pair.run(Side::Far, &["group", "detach", GROUP, "log"]), 2, &["left with no volume"]);
    pair.wait_for(Side::Near, "replicating");
    pair.qemu_io(Side::Near, "data", &["write -P 4 1M 1M", "flush"]);
    pair.qemu_io(Side::Near, "log", &["write -P 5 0 1M", "flush"]);
    pair.until("the far node says it", |pair| {
        volume(pair, Side::Far, "detached") && volume(pair, Side::Far, "set_aside")
    });
    pair.until("the near node says it", |pair| warns(pair, Side::Near, "volume data is detached on far"));
    assert!(volume(&pair, Side::Near, "set_aside") && !volume(&pair, Side::Near, "detached"));
    expect(&pair.run(Side::Near, &["sync", GROUP, "--volume", "data"]), 2, &["detached on the peer"]);
    expect(&pair.run(Side::Near, &["switchover", GROUP, "--to", "far"]), 2, &["without volume data"]);
    // Restarts change nothing of it.
    assert!(pair.stop(Side::Far).success() && pair.stop(Side::Near).success());
    pair.serve(Side::Far);
    pair.serve(Side::Near);
    pair.wait_for(Side::Near, "replicating");
    assert!(volume(&pair, Side::Far, "detached"));
    // Another disk: one that is too small, then one that is larger.
    expect(&pair.run(Side::Far, &["group", "attach", GROUP, "data"]), 2, &["does not exist"]);
    replaces(&pair, Side::Far, MIB);
    expect(&pair.run(Side::Far, &["group", "attach", GROUP, "data"]), 2, &["nothing was changed", "as large at least"]);
    replaces(&pair, Side::Far, 6 * MIB);
    expect(&pair.run(Side::Far, &["group", "attach", GROUP, "data"]), 0, &["has a disk again", "sync g --volume data"]);
    expect(&pair.run(Side::Far, &["group", "attach", GROUP, "data"]), 0, &["is not detached; nothing to do"]);
    pair.until("it is known", |pair| !warns(pair, Side::Near, "is detached on far"));
    pair.wait_for(Side::Near, "replicating");
    // Nothing of the volume is on it yet.
    assert!(
        volume(&pair, Side::Far, "unfilled")
            && warns(&pair, Side::Far, "volume data has a disk here that no sync has filled")
    );
    let refused = pair.run(Side::Far, &["promote", GROUP, "--force"]);
    expect(&refused, 2, &["volume data has a disk here that no sync has filled", "farshore group detach g NAME"]);
    pair.done(Side::Near, &["sync", GROUP, "--volume", "data", "--wait"]);
    assert!(!volume(&pair, Side::Far, "unfilled"));
    for node in Side::BOTH {
        pair.until("it has rejoined", |pair| !volume(pair, node, "set_aside"));
    }
    pair.qemu_io(Side::Near, "data", &["write -P 6 2M 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["log"]);
    let (near, far) = (pair.content(Side::Near, "data"), pair.content(Side::Far, "data"));
    assert!(far.len() > near.len() && far[..near.len()] == near, "all of it was sent");
}

// proves: P1, P6
#[test]
fn a_primary_closes_the_export_of_a_volume_without_a_disk_and_serves_the_others() {
    let mut pair = Pair::replicating(&PairPlan { mode: "async", volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    pair.qemu_io(Side::Near, "data", &["write -P 3 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    let user = pair.start_qemu_io(Side::Near, "data", &["sleep 5000"]);
    pair.until("it is attached", |pair| pair.status(Side::Near)["volumes"][0]["clients"] == 1);
    expect(&pair.run(Side::Near, &["group", "detach", GROUP, "data"]), 2, &["1 client is attached", "--close-clients"]);
    let other =
        pair.start_qemu_io(Side::Near, "log", &["write -P 4 0 64k", "sleep 3000", "write -P 5 64k 64k", "flush"]);
    pair.until("it is attached", |pair| pair.status(Side::Near)["volumes"][1]["clients"] == 1);
    expect(
        &pair.run(Side::Near, &["group", "detach", GROUP, "data", "--close-clients"]),
        0,
        &["volume data is detached: its export is closed, and the copy on far stays as it is"],
    );
    let (is_fine, said) = other.finish(&mut pair);
    assert!(is_fine, "a client of the other volume went on: {said}");
    drop(user);
    pair.wait_for(Side::Near, "replicating");
    assert!(volume(&pair, Side::Near, "detached"));
    assert_eq!(pair.status(Side::Near)["volumes"][0]["clients"], 0);
    // What counts of it stands on the other node alone.
    pair.until("far has heard of it", |pair| warns(pair, Side::Far, "is detached on near"));
    expect(&pair.run(Side::Far, &["group", "detach", GROUP, "data"]), 2, &["nothing was changed", "stands here alone"]);
    expect(
        &pair.run(Side::Near, &["group", "attach", GROUP, "data"]),
        2,
        &["stands on far", "demote g", "promote g --force"],
    );
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

// proves: P5, P8
/// The disk that came cannot be opened: that cost all volumes of the group, and `group detach` did not help either.
#[test]
fn a_disk_that_cannot_be_opened_is_put_back() {
    let mut pair = Pair::replicating(&PairPlan { volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    let path = pair.device(Side::Far, "data");
    fs::remove_file(&path).expect("it was there");
    pair.done(Side::Far, &["group", "detach", GROUP, "data"]);
    pair.wait_for(Side::Near, "replicating");
    for _ in 0..2 {
        std::os::unix::fs::symlink(pair.device(Side::Far, "log"), &path).expect("a link");
        expect(
            &pair.run(Side::Far, &["group", "attach", GROUP, "data"]),
            2,
            &["nothing was changed, and the group goes on without the disk", "two volumes cannot share a device"],
        );
        pair.wait_for(Side::Near, "replicating");
        pair.until("it is told", |pair| volume(pair, Side::Far, "detached") && !volume(pair, Side::Far, "unfilled"));
        fs::remove_file(&path).expect("it was there");
        // What is on record is what was before.
        assert!(pair.stop(Side::Far).success());
        pair.serve(Side::Far);
        expect(&pair.run(Side::Far, &["group", "detach", GROUP, "data"]), 0, &["nothing to do"]);
    }
    replaces(&pair, Side::Far, 4 * MIB);
    pair.done(Side::Far, &["group", "attach", GROUP, "data"]);
    pair.until("it is known", |pair| !warns(pair, Side::Near, "is detached on far"));
    pair.done(Side::Near, &["sync", GROUP, "--volume", "data", "--wait"]);
    pair.qemu_io(Side::Near, "data", &["write -P 6 2M 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

// proves: P8
/// A detached volume left the group, and came again under its name: the record of its dead disk took the group down.
#[test]
fn a_detached_volume_leaves_the_group_and_comes_again() {
    let mut pair = Pair::replicating(&PairPlan { volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    pair.qemu_io(Side::Near, "data", &["write -P 3 0 1M", "flush"]);
    pair.qemu_io(Side::Near, "log", &["write -P 4 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    fs::remove_file(pair.device(Side::Far, "data")).expect("it was there");
    pair.done(Side::Far, &["group", "detach", GROUP, "data"]);
    pair.wait_for(Side::Near, "replicating");
    let with = fs::read_to_string(pair.config()).expect("the configuration is there");
    let device = |node| pair.device(node, "data").display().to_string();
    let table =
        format!("[groups.{GROUP}.volumes.data]\nnear = \"{}\"\nfar = \"{}\"\n", device(Side::Near), device(Side::Far));
    let without = with.replace(&table, "");
    assert_ne!(with, without);
    fs::write(pair.config(), &without).expect("written");
    for node in [Side::Far, Side::Near] {
        pair.done(node, &["config", "apply"]);
    }
    pair.wait_for(Side::Near, "replicating");
    replaces(&pair, Side::Far, 6 * MIB);
    fs::write(pair.config(), &with).expect("written");
    for node in [Side::Far, Side::Near] {
        pair.done(node, &["config", "apply"]);
    }
    pair.wait_for(Side::Near, "replicating");
    // Whose content counts of what came somebody has to say.
    pair.done(Side::Near, &["sync", GROUP, "--volume", "data", "--wait"]);
    for node in Side::BOTH {
        pair.until("it is one of them", |pair| {
            ["detached", "unfilled", "set_aside"].iter().all(|key| !volume(pair, node, key))
        });
    }
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["log"]);
    let (near, far) = (pair.content(Side::Near, "data"), pair.content(Side::Far, "data"));
    assert!(far.len() > near.len() && far[..near.len()] == near, "all of it was sent");
}

// proves: P8
/// The kernel gave the dead disk's name to the disk of another volume: no daemon of the machine started any more.
#[test]
fn the_path_of_a_dead_disk_that_leads_to_another_volume_stops_nobody() {
    let mut pair = Pair::replicating(&PairPlan { volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    let path = pair.device(Side::Far, "data");
    fs::remove_file(&path).expect("it was there");
    pair.done(Side::Far, &["group", "detach", GROUP, "data"]);
    pair.wait_for(Side::Near, "replicating");
    std::os::unix::fs::symlink(pair.device(Side::Far, "log"), &path).expect("a link");
    for node in Side::BOTH {
        assert!(pair.stop(node).success());
        pair.serve(node);
    }
    pair.wait_for(Side::Near, "replicating");
    assert!(volume(&pair, Side::Far, "detached"));
    let text = fs::read_to_string(pair.config()).expect("the configuration is there");
    let group = format!("[groups.{GROUP}]\n");
    assert!(text.contains(&group), "{text}");
    fs::write(pair.config(), text.replace(&group, &format!("{group}wait_limit = \"7s\"\n"))).expect("written");
    for node in Side::BOTH {
        let (code, said) = pair.output_of(node, &["config", "check"]);
        assert!(code < 2, "{said}");
        pair.done(node, &["config", "apply"]);
    }
    pair.until("it holds", |pair| {
        Side::BOTH.iter().all(|node| pair.status(*node)["settings"]["wait_limit"]["value"] == "7s")
    });
    // It stays what it is: the other volume's disk.
    expect(&pair.run(Side::Far, &["group", "attach", GROUP, "data"]), 2, &["two volumes cannot share a device"]);
    pair.qemu_io(Side::Near, "log", &["write -P 6 0 64k", "flush"]);
    pair.wait_for_rest(Side::Near);
    fs::remove_file(&path).expect("the link");
    pair.stop_both();
    pair.assert_equal(&["log"]);
}

// proves: P1, P2
/// Nothing is wrong with the disk, and the other node does not have what stands on it: it is not given up by a word.
#[test]
fn what_stands_on_one_node_alone_is_not_detached_by_a_word() {
    let mut pair = Pair::new(&PairPlan { volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    pair.serve(Side::Near);
    pair.serve(Side::Far);
    let detach = ["group", "detach", GROUP, "data"];
    let refused = |pair: &Pair, node, why: &str| {
        expect(
            &pair.run(node, &detach),
            2,
            &["nothing was changed", "nothing is known to be wrong with the disk", why],
        );
        assert!(!volume(pair, node, "detached"));
    };
    // Nothing was ever synced.
    pair.until("they meet", |pair| pair.status(Side::Near)["peers"][0]["link"] == "connected");
    refused(&pair, Side::Near, "far does not have all of it");
    pair.done(Side::Near, &["sync", GROUP, "--full", "--wait"]);
    pair.done(Side::Near, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "data", &["write -P 3 0 1M", "flush"]);
    refused(&pair, Side::Near, "far does not have all of it (the group is in logging)");
    pair.done(Side::Near, &["sync", GROUP, "--wait"]);
    pair.wait_for_rest(Side::Near);
    // The primary may be gone for good.
    assert!(pair.stop(Side::Near).success());
    pair.until("it is away", |pair| pair.status(Side::Far)["peers"][0]["link"] != "connected");
    refused(&pair, Side::Far, "near is not heard as the primary");
    pair.serve(Side::Near);
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Far, &detach);
    pair.until("the near node knows", |pair| warns(pair, Side::Near, "volume data is detached on far"));
    refused(&pair, Side::Near, "it is detached on far");
    pair.done(Side::Near, &["group", "detach", GROUP, "data", "--force"]);
    assert!(volume(&pair, Side::Near, "detached"));
}

// proves: P6
/// The old primary of a fork is the secondary by a word: what it wrote alone stands there alone.
#[test]
fn what_a_fork_has_here_alone_is_not_detached_by_a_word() {
    let mut pair = forked();
    expect(&pair.run(Side::Near, &["demote", GROUP]), 1, &["may differ from the peer"]);
    let detach = ["group", "detach", GROUP, "data"];
    pair.until("far is heard as the primary", |pair| {
        let (code, said) = pair.output_of(Side::Near, &detach);
        assert!(code == 2 && said.contains("nothing was changed"), "{said}");
        said.contains("far may lack 64 KiB of it") && said.contains("resolve the fork")
    });
    assert!(!volume(&pair, Side::Near, "detached"));
    pair.done(Side::Near, &["resolve", GROUP, "--keep", "far"]);
    pair.wait_for_rest(Side::Far);
    pair.done(Side::Near, &detach);
}

// proves: P2, P8
/// The other volume's device is another one, and what that means was said: the first one is detached still, also for a group that begins anew.
#[test]
fn a_group_that_begins_anew_is_without_its_dead_disk_still() {
    let mut pair = Pair::replicating(&PairPlan { volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    pair.qemu_io(Side::Near, "log", &["write -P 4 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    let replace_log = |pair: &Pair, node| {
        let (log, other) = (pair.device(node, "log"), pair.device(node, "log").with_extension("other"));
        fs::copy(&log, &other).expect("copied");
        fs::rename(other, log).expect("renamed");
    };
    for (node, content) in [(Side::Far, "--rebuild"), (Side::Near, "--content-is-good")] {
        pair.done(node, &["group", "detach", GROUP, "data", "--force", "--close-clients"]);
        assert!(pair.stop(node).success());
        fs::remove_file(pair.device(node, "data")).expect("it was there");
        replace_log(&pair, node);
        pair.done(node, &["accept-device", GROUP, "log", content]);
        for _ in 0..2 {
            pair.serve(node);
            assert!(volume(&pair, node, "detached") && volume(&pair, node, "set_aside"), "{}", pair.status(node));
            assert!(pair.stop(node).success());
        }
        pair.serve(node);
    }
    pair.until("they meet", |pair| pair.status(Side::Near)["peers"][0]["link"] == "connected");
    pair.done(Side::Near, &["sync", GROUP, "--full", "--wait"]);
    pair.wait_for(Side::Near, "replicating");
    pair.stop_both();
    pair.assert_equal(&["log"]);
}

// proves: P8
/// The disk hangs: the group left when it had its answer, and nobody brought it back.
#[test]
fn a_group_whose_disk_hangs_begins_anew_once_it_answers() {
    if must_skip_stores("a_group_whose_disk_hangs_begins_anew_once_it_answers") {
        return;
    }
    let mut pair = Pair::new(&PairPlan { volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    fs::create_dir(pair.path("store")).expect("a directory");
    let store = ForgetfulStore::mount(&pair.path("store")).expect("FUSE and root: asked before");
    let (path, hangs) = (pair.device(Side::Far, "data"), pair.path("store/data"));
    File::create(&hangs).and_then(|disk| disk.set_len(4 * MIB)).expect("a disk");
    pair.edit_config(&path.display().to_string(), &hangs.display().to_string());
    pair.first_sync();
    pair.wait_for(Side::Near, "replicating");
    store.hang();
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 64k", "flush"]);
    std::thread::sleep(Duration::from_secs(2));
    let answer_of = |pair: &Pair, words: &[&str]| {
        let output = pair.run(Side::Far, &[words, &["--json"]].concat());
        let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        (output.status.code(), list["answers"][0].clone())
    };
    let (code, late) = answer_of(&pair, &["group", "detach", GROUP, "data"]);
    let said = late["message"].to_string();
    assert!(
        code == Some(2) && said.contains("it is on record") && said.contains("starts anew when it has that"),
        "{code:?}: {late}"
    );
    assert_eq!((&late["result"], &late["refusal"]["code"]), (&"running".into(), &"not-done-yet".into()), "{late}");
    let id = late["operation"].as_str().expect("its name");
    let (code, told) = answer_of(&pair, &["wait", id, "--timeout", "1s"]);
    assert_eq!((code, &told["result"]), (Some(2), &"running".into()), "{told}");
    // The run that has the disk still is shown without it: the same was taken at the other node, and nobody had what counted.
    assert!(volume(&pair, Side::Far, "detached"), "{}", pair.status(Side::Far));
    store.answer_again();
    // Its operation went on for ever.
    let (code, told) = answer_of(&pair, &["wait", id, "--timeout", "60s"]);
    assert_eq!((code, &told["result"]), (Some(0), &"done".into()), "{told}");
    assert!(told["message"].to_string().contains("has come to rest and started anew"), "{told}");
    pair.until("it is back", |pair| volume(pair, Side::Far, "detached"));
    pair.wait_for(Side::Near, "replicating");
    pair.qemu_io(Side::Near, "log", &["write -P 6 0 64k", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["log"]);
}

// proves: P8
/// The state disk of a secondary hung while a volume waited to be filled there: whatever was typed at it for the primary waited too, and was carried
/// out when nobody waited any more.
#[test]
fn what_is_for_the_primary_waits_for_no_state_disk_of_the_secondary() {
    if must_skip_stores("what_is_for_the_primary_waits_for_no_state_disk_of_the_secondary") {
        return;
    }
    let mut pair = Pair::new(&PairPlan { volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    let store = store_of_group(&pair, Side::Far);
    pair.first_sync();
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Far, &["group", "detach", GROUP, "data"]);
    pair.done(Side::Far, &["group", "attach", GROUP, "data"]);
    pair.until("it waits to be filled", |pair| volume(pair, Side::Far, "unfilled"));
    pair.wait_for(Side::Near, "replicating");
    store.hang();
    let mut typed = Background::start(pair.command(Side::Far, &["verify", GROUP, "--stop"]));
    let until = Instant::now() + Duration::from_secs(8);
    while !typed.has_ended() {
        assert!(Instant::now() < until, "it waits for the disk");
        std::thread::sleep(Duration::from_millis(20));
    }
    store.answer_again();
    let (is_done, said) = typed.finish(&mut pair);
    assert!(is_done && said.contains("nothing to do"), "{said}");
}

// proves: P8
/// What was late came back by another command: the run that goes on was shown without its disk for good, as the one before was to be.
#[test]
fn a_late_group_that_another_command_brings_back_is_late_no_more() {
    if must_skip_stores("a_late_group_that_another_command_brings_back_is_late_no_more") {
        return;
    }
    let mut pair = Pair::new(&PairPlan { volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    fs::create_dir(pair.path("store")).expect("a directory");
    let store = ForgetfulStore::mount(&pair.path("store")).expect("FUSE and root: asked before");
    let (path, hangs) = (pair.device(Side::Far, "data"), pair.path("store/data"));
    File::create(&hangs).and_then(|disk| disk.set_len(4 * MIB)).expect("a disk");
    pair.edit_config(&path.display().to_string(), &hangs.display().to_string());
    pair.first_sync();
    pair.wait_for(Side::Near, "replicating");
    store.hang();
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 64k", "flush"]);
    std::thread::sleep(Duration::from_secs(2));
    expect(&pair.run(Side::Far, &["group", "detach", GROUP, "data"]), 2, &["starts anew when it has that"]);
    // It waits until the group has left, and brings it back itself.
    let attach = Background::start(pair.command(Side::Far, &["group", "attach", GROUP, "data"]));
    std::thread::sleep(Duration::from_secs(1));
    store.answer_again();
    let (is_done, said) = attach.finish(&mut pair);
    assert!(is_done && said.contains("is on its disk as before"), "{said}");
    pair.until("it is shown as it is", |pair| !volume(pair, Side::Far, "detached"));
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    assert!(pair.content(Side::Near, "data") == fs::read(&hangs).expect("readable"), "the copies differ");
}

/// On the secondary the disk of "data" is attached while that of "log" hangs, so the group comes to rest late; by then the first is gone, and the
/// other one answers again. Also where the other one is.
fn attached_late(volumes: &'static [&'static str]) -> (Pair, HangingDisk) {
    let mut pair = Pair::new(&PairPlan { volumes, volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    fs::create_dir(pair.path("store")).expect("a directory");
    let store = ForgetfulStore::mount(&pair.path("store")).expect("FUSE and root: asked before");
    let (path, hangs) = (pair.device(Side::Far, "log"), pair.path("store/log"));
    File::create(&hangs).and_then(|disk| disk.set_len(4 * MIB)).expect("a disk");
    pair.edit_config(&path.display().to_string(), &hangs.display().to_string());
    pair.first_sync();
    pair.wait_for(Side::Near, "replicating");
    let data = pair.device(Side::Far, "data");
    fs::remove_file(&data).expect("it was there");
    pair.done(Side::Far, &["group", "detach", GROUP, "data"]);
    pair.wait_for(Side::Near, "replicating");
    store.hang();
    pair.qemu_io(Side::Near, "log", &["write -P 5 0 64k", "flush"]);
    std::thread::sleep(Duration::from_secs(2));
    File::create(&data).and_then(|disk| disk.set_len(4 * MIB)).expect("another disk");
    expect(&pair.run(Side::Far, &["group", "attach", GROUP, "data"]), 2, &["starts anew when it has that"]);
    fs::remove_file(&data).expect("it was there");
    store.answer_again();
    (pair, HangingDisk { path: hangs, _store: store })
}

/// A disk on a store that can hang; the store is there for as long as this.
struct HangingDisk {
    path: PathBuf,
    _store: ForgetfulStore,
}

// proves: P5, P8
/// The disk that came could not be opened when the group had come to rest at last: all volumes of the group were down, where an attach that is
/// not late goes on without the disk.
#[test]
fn a_disk_that_cannot_be_opened_is_put_back_when_the_group_was_late() {
    if must_skip_stores("a_disk_that_cannot_be_opened_is_put_back_when_the_group_was_late") {
        return;
    }
    let (mut pair, hangs) = attached_late(&["data", "log"]);
    pair.until("it is put back", |pair| {
        pair.log(Side::Far).contains("nothing was changed, and the group goes on without the disk")
    });
    pair.until("it is told", |pair| volume(pair, Side::Far, "detached"));
    pair.wait_for(Side::Near, "replicating");
    pair.qemu_io(Side::Near, "log", &["write -P 6 1M 64k", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    assert!(pair.content(Side::Near, "log") == fs::read(&hangs.path).expect("readable"), "the copies differ");
}

// proves: P8
/// A disk was detached just when another one, which had come late, could not be opened: what was on record before the one was written over what the
/// other had recorded.
#[test]
fn what_is_detached_while_a_late_disk_is_put_back_stays_detached() {
    if must_skip_stores("what_is_detached_while_a_late_disk_is_put_back_stays_detached") {
        return;
    }
    let (mut pair, _hangs) = attached_late(&["data", "log", "web"]);
    pair.until("it begins anew", |pair| pair.log(Side::Far).contains("it has come to rest, and begins anew"));
    pair.done(Side::Far, &["group", "detach", GROUP, "log", "--force"]);
    let detached = |pair: &Pair, at: usize| pair.status(Side::Far)["volumes"][at]["detached"] == true;
    for _ in 0..2 {
        pair.until("both are detached", |pair| detached(pair, 0) && detached(pair, 1) && !detached(pair, 2));
        pair.wait_for(Side::Near, "replicating");
        // Of what is on record the next start tells.
        assert!(pair.stop(Side::Far).success());
        pair.serve(Side::Far);
    }
    assert!(pair.log(Side::Far).contains("nothing was changed, and the group goes on without the disk"));
}

// proves: P8
/// The group does not come to rest for a changed configuration: the operation of `config apply` went on for ever.
#[test]
fn an_apply_that_a_hanging_disk_breaks_off_ends_once_the_disk_answers() {
    if must_skip_stores("an_apply_that_a_hanging_disk_breaks_off_ends_once_the_disk_answers") {
        return;
    }
    let mut pair = Pair::new(&PairPlan { volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    fs::create_dir(pair.path("store")).expect("a directory");
    let store = ForgetfulStore::mount(&pair.path("store")).expect("FUSE and root: asked before");
    let (path, hangs) = (pair.device(Side::Far, "log"), pair.path("store/log"));
    File::create(&hangs).and_then(|disk| disk.set_len(4 * MIB)).expect("a disk");
    pair.edit_config(&path.display().to_string(), &hangs.display().to_string());
    pair.first_sync();
    pair.wait_for(Side::Near, "replicating");
    // The volume on the store leaves: nothing is asked of its disk before the group has come to rest.
    let text = fs::read_to_string(pair.config()).expect("there");
    let (kept, _) = text.split_once("[groups.g.volumes.log]").expect("the last table");
    fs::write(pair.config(), kept).expect("written");
    store.hang();
    pair.qemu_io(Side::Near, "log", &["write -P 5 0 64k", "flush"]);
    std::thread::sleep(Duration::from_secs(2));
    let answer_of = |pair: &Pair, words: &[&str]| {
        let output = pair.run(Side::Far, &[words, &["--json"]].concat());
        let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        (output.status.code(), list["answers"][0].clone())
    };
    let (code, late) = answer_of(&pair, &["config", "apply"]);
    assert_eq!((code, &late["result"]), (Some(2), &"running".into()), "{late}");
    assert_eq!(late["refusal"]["code"], "not-done-yet", "{late}");
    let id = late["operation"].as_str().expect("its name");
    let (code, told) = answer_of(&pair, &["wait", id, "--timeout", "1s"]);
    assert_eq!((code, &told["result"]), (Some(2), &"running".into()), "{told}");
    store.answer_again();
    let (code, told) = answer_of(&pair, &["wait", id, "--timeout", "60s"]);
    let refusal = serde_json::json!({ "code": "apply-again", "retry": "later" });
    assert_eq!((code, &told["result"], &told["refusal"]), (Some(2), &"stopped".into(), &refusal), "{told}");
    let (code, said) = pair.output_of(Side::Far, &["config", "apply"]);
    assert!(code < 2, "{code}: {said}\n{}", pair.log(Side::Far));
    pair.done(Side::Near, &["config", "apply"]);
    pair.wait_for(Side::Near, "replicating");
    pair.stop_both();
    pair.assert_equal(&["data"]);
}
