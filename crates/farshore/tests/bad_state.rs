//! State directories that are full, read-only, damaged, of a newer version, or somebody else's.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use crate::common::damage::{
    SMALL, at_rest, edit_newer, fails_with, heals_with, in_step, is_refused, not_taken_up, reseal, rot, state,
};
use crate::common::{GROUP, Pair, Side};
use engine::cell::{BYTES, SLOT_BYTES};

// proves: P9
#[test]
fn one_damaged_copy_changes_nothing_and_is_named() {
    for copy in 0..4 {
        let mut pair = at_rest();
        for node in Side::BOTH {
            rot(&state(&pair, node, "superblock"), copy * BYTES + 200);
            pair.serve(node);
        }
        pair.wait_for(Side::Near, "replicating");
        for node in Side::BOTH {
            let log = pair.log(node);
            assert!(log.contains("a copy of the superblock is damaged"), "copy {copy} at {node:?}: {log}");
        }
        let resynced = &pair.status(Side::Near)["resync"];
        assert!(resynced.is_null(), "copy {copy}: nothing is compared or sent again: {resynced}");
        pair.stop_both();
        pair.assert_equal(&["data"]);
    }
}

#[test]
fn a_torn_newest_slot_is_gone_on_without() {
    let mut pair = at_rest();
    for node in Side::BOTH {
        edit_newer(&state(&pair, node, "superblock"), |copy| copy[200] ^= 1);
        pair.serve(node);
    }
    pair.wait_for(Side::Near, "replicating");
    pair.qemu_io(Side::Near, "data", &["write -P 8 1M 64k", "flush"]);
    pair.stop_both();
    pair.assert_equal(&["data"]);
}

// proves: P9
#[test]
fn four_damaged_copies_are_refused() {
    for node in Side::BOTH {
        let pair = at_rest();
        (0..4).for_each(|copy| rot(&state(&pair, node, "superblock"), copy * BYTES + 200));
        fails_with(pair, node, &["superblock", "damaged", "sync in full from the other node"]);
    }
}

// proves: P9
/// The slot that a write went astray over may have been the newer one.
#[test]
fn a_slot_overwritten_by_another_block_is_refused() {
    let pair = at_rest();
    let path = state(&pair, Side::Far, "superblock");
    let mut bytes = fs::read(&path).expect("there");
    let (first, second) = bytes.split_at_mut(SLOT_BYTES as usize);
    first.copy_from_slice(second);
    fs::write(&path, bytes).expect("written");
    fails_with(pair, Side::Far, &["went astray", "sync in full from the other node"]);
}

// proves: rule 23
#[test]
fn another_version_is_refused_and_named() {
    for (version, parts) in [
        (engine::superblock::VERSION as u8 + 1, ["newer version of farshore", "upgrade this node"]),
        (1, ["version 1", "never released"]),
    ] {
        let pair = at_rest();
        // The other version wrote one slot; the one beside it is this version's past.
        edit_newer(&state(&pair, Side::Near, "superblock"), |copy| {
            copy[8] = version;
            reseal(copy);
        });
        fails_with(pair, Side::Near, &parts);
    }
}

#[test]
fn the_state_of_another_group_is_refused() {
    let pair = at_rest();
    pair.edit_config("groups.g.", "groups.other.");
    pair.edit_config("groups.g]", "groups.other]");
    let groups = pair.path("near").join("state/groups");
    fs::rename(groups.join(GROUP), groups.join("other")).expect("renamed");
    fails_with(pair, Side::Near, &["another cluster or group"]);
}

#[track_caller]
fn is_no_sound_configuration(pair: &Pair, node: Side, parts: &[&str]) {
    let (code, said) = pair.output_of(node, &["config", "check"]);
    assert_eq!(code, 2, "{said}");
    parts.iter().for_each(|part| assert!(said.contains(part), "no {part:?} in: {said}"));
}

/// Both nodes read one configuration, so they would agree that the bits of one volume are another's.
#[test]
fn volumes_under_other_names_are_refused() {
    let mut pair = in_step();
    pair.kill(Side::Far);
    pair.qemu_io(Side::Near, "data", &["write -P 9 512k 64k", "flush"]);
    pair.kill(Side::Near);
    pair.edit_config("volumes.data", "volumes.renamed");
    for node in Side::BOTH {
        let parts = ["its volumes are renamed in the configuration, and were data", "old names"];
        is_refused(&mut pair, node, &parts);
    }
    let secret = pair.path("secret");
    fs::rename(&secret, pair.path("elsewhere")).expect("renamed");
    is_no_sound_configuration(&pair, Side::Near, &["secret"]);
    fs::rename(pair.path("elsewhere"), &secret).expect("renamed back");
    pair.edit_config("volumes.renamed", "volumes.data");
    heals_with(pair, Side::Near, &[]);
}

/// Nodes are numbered in the order of their names: each would take its superblock for the other one's.
#[test]
fn nodes_under_other_names_are_refused() {
    let mut pair = at_rest();
    let text = fs::read_to_string(pair.config()).expect("a configuration");
    let renamed = text.replace("near = ", "aaa = ").replace("nodes.near]", "nodes.aaa]").replace("\"near\"", "\"aaa\"");
    fs::write(pair.config(), renamed).expect("written");
    let parts = ["its nodes are aaa, far in the configuration, and were far, near", "old names"];
    is_refused(&mut pair, Side::Far, &parts);
    is_no_sound_configuration(&pair, Side::Far, &parts);
    fs::write(pair.config(), text).expect("written back");
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.wait_for(Side::Near, "replicating");
    pair.stop_both();
}

/// A new one would have the role of the configuration, whoever was promoted since.
#[test]
fn a_group_under_another_name_is_refused() {
    let mut pair = at_rest();
    let rename = |pair: &Pair, from: &str, to: &str| {
        pair.edit_config(&format!("groups.{from}."), &format!("groups.{to}."));
        pair.edit_config(&format!("groups.{from}]"), &format!("groups.{to}]"));
    };
    rename(&pair, GROUP, "other");
    let groups = pair.path("near").join("state/groups");
    for node in Side::BOTH {
        let parts = ["it is new here", "group g, which the configuration does not name", "old name back"];
        is_refused(&mut pair, node, &parts);
        is_no_sound_configuration(&pair, node, &parts);
    }
    assert!(!groups.join("other").exists());
    rename(&pair, "other", GROUP);
    pair.serve(Side::Near);
    pair.serve(Side::Far);
    pair.wait_for(Side::Near, "replicating");
    pair.stop_both();
    // Gone for good: a group of the same shape may begin.
    rename(&pair, GROUP, "other");
    fs::remove_dir_all(groups.join(GROUP)).expect("there");
    pair.done(Side::Near, &["accept-device", "other", "data", "--content-is-good"]);
    pair.serve(Side::Near);
}

/// A file system that is taken away again at the end.
pub struct Tmpfs(PathBuf);

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // A daemon that is still there holds it until its end.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

pub fn tmpfs(pair: &Pair, node: Side, options: &str) -> Option<Tmpfs> {
    let location = pair.path(node.name()).join("state");
    fs::create_dir_all(&location).expect("a directory");
    let words = ["-t", "tmpfs", "-o", options, "farshore-test"];
    let mounted = Command::new("mount").args(words).arg(&location).output().ok()?.status.success();
    mounted.then_some(Tmpfs(location))
}

// proves: P8
#[test]
fn full_and_read_only_state_directories_are_refused() {
    let mut pair = Pair::new(&SMALL);
    let before = pair.content(Side::Near, "data");
    // The journal alone has 16 MiB.
    let Some(full) = tmpfs(&pair, Side::Near, "size=1m,mode=0700") else {
        eprintln!(
            "SKIPPED full_and_read_only_state_directories_are_refused: it needs root to mount a small file system"
        );
        return;
    };
    let said = not_taken_up(&mut pair, Side::Near);
    assert!(["no room for", "journal", "free space"].iter().all(|part| said.contains(part)), "{said}");
    assert!(!state(&pair, Side::Near, "journal").exists(), "no half-made file is left");
    drop(full);
    let read_only = tmpfs(&pair, Side::Near, "size=1m,mode=0700,ro").expect("mounted before");
    let (code, said) = pair.output_of(Side::Near, &["serve"]);
    let parts = ["near/state cannot be written", "Read-only file system", "make it writable"];
    assert!(code == 2 && parts.iter().all(|part| said.contains(part)), "{code}: {said}");
    assert!(pair.content(Side::Near, "data") == before, "{said}");
    drop(read_only);
}

// proves: P8
/// A sync had filled the state disk, the primary died, and the promotion was refused: it wanted room for a new file.
#[test]
fn a_full_state_disk_takes_a_promotion() {
    let mut pair = Pair::new(&SMALL);
    let Some(full) = tmpfs(&pair, Side::Far, "size=32m,mode=0700") else {
        eprintln!("SKIPPED a_full_state_disk_takes_a_promotion: it needs root to mount a small file system");
        return;
    };
    pair.first_sync();
    pair.wait_for_rest(Side::Near);
    let mut ballast = fs::File::create(pair.path("far/state/ballast")).expect("there is room");
    while ballast.write_all(&[7; 4096]).is_ok() {}
    pair.kill(Side::Near);
    let before = pair.status(Side::Far);
    pair.promote_by_force(Side::Far);
    let after = pair.status(Side::Far);
    assert_eq!(after["role"], "primary", "{after}");
    assert_ne!(after["term"], before["term"], "an attached device of before is not this primary's");
    pair.kill(Side::Far);
    drop(full);
}

#[test]
fn a_state_directory_open_to_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let pair = Pair::new(&SMALL);
    let state = pair.path("near").join("state");
    fs::create_dir(&state).expect("a directory");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).expect("opened");
    for command in [&["serve"][..], &["config", "check"]] {
        let (code, said) = pair.output_of(Side::Near, command);
        assert!(code == 2 && said.contains("chmod 0700"), "{command:?} {code}: {said}");
    }
}

/// What is empty says nothing; it is not taken for a file that never was.
#[test]
fn emptied_state_files_are_named_and_refused() {
    for (name, parts) in [
        ("volumes", ["volumes is empty", "restore it"]),
        ("nodes", ["nodes is empty", "restore it"]),
        ("devices", ["the record of its devices is damaged", "accept-device"]),
        ("superblock", ["superblock has a size of 0 bytes", "restart the daemon"]),
        ("journal", ["journal has a size of 0 bytes", "restart the daemon"]),
        ("bitmap", ["bitmap has a size of 0 bytes", "restart the daemon"]),
    ] {
        let mut pair = at_rest();
        fs::write(state(&pair, Side::Far, name), "").expect("emptied");
        is_refused(&mut pair, Side::Far, &parts);
    }
}

/// What it held would be gone without a word, and so would the way back.
#[test]
fn an_emptied_undo_store_of_a_sync_under_way_keeps_its_group_closed() {
    let mut pair = in_step();
    pair.done(Side::Near, &["link", "set", "rate=64kbit/s", "compression=off"]);
    pair.done(Side::Near, &["sync", GROUP, "--full"]);
    pair.until("there is an image before the sync", |pair| {
        pair.done(Side::Far, &["mark", "list", GROUP]).contains("before-sync-")
    });
    pair.kill(Side::Far);
    fs::write(state(&pair, Side::Far, "undo"), "").expect("emptied");
    is_refused(&mut pair, Side::Far, &["undo is empty, though it holds a rollback point: restore it; or remove it"]);
}

/// A policy that an operator has set is not given up because a file lost its content.
#[test]
fn emptied_overrides_do_not_count_as_nothing_set() {
    let mut pair = in_step();
    pair.done(Side::Near, &["set", GROUP, "policy=strict"]);
    pair.stop_both();
    let overrides = pair.path("near/state/overrides.toml");
    let whole = fs::read(&overrides).expect("written by 'set'");
    for end in [0, whole.len() / 2, whole.len() - 1] {
        fs::write(&overrides, &whole[..end]).expect("cut");
        for command in [&["serve"][..], &["config", "check"]] {
            let (code, said) = pair.output_of(Side::Near, command);
            assert_eq!(code, 2, "{command:?} {end}: {said}");
            for part in ["overrides.toml", "what 'farshore set' changed is not known", "Restore the file; or remove it"]
            {
                assert!(said.contains(part), "{command:?} {end}: no {part:?} in: {said}");
            }
        }
    }
    fs::write(&overrides, whole).expect("restored");
    pair.serve(Side::Near);
    assert_eq!(pair.status(Side::Near)["settings"]["policy"]["value"], "strict");
}

/// The same of the link's own.
#[test]
fn emptied_link_settings_do_not_count_as_nothing_set() {
    let mut pair = in_step();
    pair.done(Side::Near, &["link", "set", "buffers=8MiB"]);
    pair.stop_both();
    let file = pair.path("near/state/link.toml");
    let whole = fs::read(&file).expect("written by 'link set'");
    for end in [0, whole.len() - 1] {
        fs::write(&file, &whole[..end]).expect("cut");
        for command in [&["serve"][..], &["config", "check"]] {
            let (code, said) = pair.output_of(Side::Near, command);
            assert_eq!(code, 2, "{command:?} {end}: {said}");
            for part in ["link.toml", "what 'farshore link set' changed is not known"] {
                assert!(said.contains(part), "{command:?} {end}: no {part:?} in: {said}");
            }
        }
    }
    fs::write(&file, whole).expect("restored");
    pair.serve(Side::Near);
}
