//! State directories that are full, read-only, damaged, of a newer version, or somebody else's.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use common::{GROUP, Node, Pair, Plan};
use engine::cell::{BYTES, SLOT_BYTES};

const SMALL: Plan = Plan { volumes: &["data"], volume_bytes: 2 << 20, ..Plan::DEFAULT };

fn state(pair: &Pair, node: Node, name: &str) -> PathBuf {
    pair.path(node.name()).join("state/groups").join(GROUP).join(name)
}

/// A pair that was in step and stopped cleanly, with something on its volumes.
fn at_rest() -> Pair {
    let mut pair = Pair::replicating(&SMALL);
    pair.qemu_io(Node::Near, "data", &["write -P 7 0 1M", "flush"]);
    pair.until("every dirty bit is cleared", |pair| pair.status(Node::Near)["peers"][0]["dirty_bytes"] == 0);
    pair.stop_both();
    pair
}

/// Changes the superblock's copies; `true` for those of the newer slot.
fn edit_copies(pair: &Pair, node: Node, mut edit: impl FnMut(&mut [u8], bool)) {
    let path = state(pair, node, "superblock");
    let mut bytes = fs::read(&path).expect("there");
    let update = |slot: &[u8]| u64::from_le_bytes(slot[16..24].try_into().expect("eight bytes"));
    let slot_bytes = SLOT_BYTES as usize;
    let newer = usize::from(update(&bytes[slot_bytes..]) > update(&bytes[..slot_bytes]));
    for (number, copy) in bytes.chunks_mut(BYTES).enumerate() {
        edit(copy, number / 2 == newer);
    }
    fs::write(&path, bytes).expect("written");
}

/// Gives a changed copy a good checksum again.
fn reseal(copy: &mut [u8]) {
    let crc = crc32c_of(&copy[..BYTES - 4]);
    copy[BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
}

/// The group must be refused with a sentence that has these parts, served to nobody, and its volume untouched.
#[track_caller]
fn fails_with(mut pair: Pair, node: Node, parts: &[&str]) {
    let volume = pair.content(node, "data");
    pair.serve(node);
    pair.until(&format!("the group has failed: {parts:?}"), |pair| {
        let reason = pair.status(node)["reason"].to_string();
        pair.status(node)["state"] == "failed" && parts.iter().all(|part| reason.contains(part))
    });
    let (served, _) = pair.try_qemu_io(node, "data", &["write 0 4k"]);
    assert!(!served, "a failed group has no export");
    let (code, said) = pair.told(node, &["promote", GROUP, "--force"]);
    assert_eq!(code, 2, "{said}");
    pair.stop(node);
    assert!(pair.content(node, "data") == volume);
}

#[test]
fn one_damaged_copy_changes_nothing_and_is_named() {
    for copy in 0..4 {
        let mut pair = at_rest();
        for node in Node::BOTH {
            let mut number = 0;
            edit_copies(&pair, node, |bytes, _| {
                bytes[200] ^= u8::from(number == copy);
                number += 1;
            });
            pair.serve(node);
        }
        pair.wait_for(Node::Near, "replicating");
        for node in Node::BOTH {
            let log = pair.log(node);
            assert!(log.contains("a copy of the superblock is damaged"), "copy {copy} at {node:?}: {log}");
        }
        let resynced = &pair.status(Node::Near)["resync"];
        assert!(resynced.is_null(), "copy {copy}: nothing is compared or sent again: {resynced}");
        pair.stop_both();
        pair.assert_equal(&["data"]);
    }
}

#[test]
fn a_torn_newest_slot_is_gone_on_without() {
    let mut pair = at_rest();
    for node in Node::BOTH {
        edit_copies(&pair, node, |copy, newer| copy[200] ^= u8::from(newer));
        pair.serve(node);
    }
    pair.wait_for(Node::Near, "replicating");
    pair.qemu_io(Node::Near, "data", &["write -P 8 1M 64k", "flush"]);
    pair.stop_both();
    pair.assert_equal(&["data"]);
}

#[test]
fn four_damaged_copies_are_refused() {
    for node in Node::BOTH {
        let pair = at_rest();
        edit_copies(&pair, node, |copy, _| copy[200] ^= 1);
        fails_with(pair, node, &["superblock", "damaged", "sync in full from the other node"]);
    }
}

/// The slot that a write went astray over may have been the newer one.
#[test]
fn a_slot_overwritten_by_another_block_is_refused() {
    let pair = at_rest();
    let path = state(&pair, Node::Far, "superblock");
    let mut bytes = fs::read(&path).expect("there");
    let (first, second) = bytes.split_at_mut(SLOT_BYTES as usize);
    first.copy_from_slice(second);
    fs::write(&path, bytes).expect("written");
    fails_with(pair, Node::Far, &["went astray", "sync in full from the other node"]);
}

#[test]
fn another_version_is_refused_and_named() {
    for (version, parts) in
        [(3, ["newer version of farshore", "upgrade this node"]), (1, ["version 1", "never released"])]
    {
        let pair = at_rest();
        // The other version wrote one slot; the one beside it is this version's past.
        edit_copies(&pair, Node::Near, |copy, newer| {
            if newer {
                copy[8] = version;
                reseal(copy);
            }
        });
        fails_with(pair, Node::Near, &parts);
    }
}

/// The engine's checksum, by way of a frame.
fn crc32c_of(bytes: &[u8]) -> u32 {
    use engine::wire::{Header, Kind};
    Header::new(Kind::Data, engine::SessionId(0), engine::GroupId(0)).sealed(bytes).payload_crc
}

#[test]
fn the_state_of_another_group_is_refused() {
    let pair = at_rest();
    pair.edit_config("groups.g.", "groups.other.");
    pair.edit_config("groups.g]", "groups.other]");
    let groups = pair.path("near").join("state/groups");
    fs::rename(groups.join(GROUP), groups.join("other")).expect("renamed");
    fails_with(pair, Node::Near, &["another cluster or group"]);
}

/// A file system that is taken away again at the end.
struct Tmpfs(PathBuf);

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn tmpfs(pair: &Pair, options: &str) -> Option<Tmpfs> {
    let place = pair.path("near").join("state");
    fs::create_dir_all(&place).expect("a directory");
    let words = ["-t", "tmpfs", "-o", options, "farshore-test"];
    let mounted = Command::new("mount").args(words).arg(&place).output().ok()?.status.success();
    mounted.then_some(Tmpfs(place))
}

#[test]
fn full_and_read_only_state_directories_are_refused() {
    let pair = Pair::new(&SMALL);
    let before = pair.content(Node::Near, "data");
    let expect = |parts: &[&str]| {
        let (code, said) = pair.told(Node::Near, &["serve"]);
        assert_eq!(code, 2, "{said}");
        parts.iter().for_each(|part| assert!(said.contains(part), "no {part:?} in: {said}"));
        assert!(pair.content(Node::Near, "data") == before, "{said}");
    };
    // The journal alone has 16 MiB.
    let Some(full) = tmpfs(&pair, "size=1m,mode=0700") else {
        eprintln!(
            "SKIPPED full_and_read_only_state_directories_are_refused: it needs root to mount a small file system"
        );
        return;
    };
    expect(&["no room for", "journal", "free space"]);
    assert!(!state(&pair, Node::Near, "journal").exists(), "no half-made file is left");
    drop(full);
    let read_only = tmpfs(&pair, "size=1m,mode=0700,ro").expect("mounted before");
    expect(&["near/state cannot be written", "Read-only file system", "make it writable"]);
    drop(read_only);
}

#[test]
fn a_state_directory_open_to_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let pair = Pair::new(&SMALL);
    let state = pair.path("near").join("state");
    fs::create_dir(&state).expect("a directory");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).expect("opened");
    let (code, said) = pair.told(Node::Near, &["serve"]);
    assert!(code == 2 && said.contains("chmod 0700"), "{code}: {said}");
}

#[test]
fn damaged_dirty_regions_cost_a_comparison_not_the_truth() {
    let mut pair = at_rest();
    let path = state(&pair, Node::Near, "bitmap");
    let mut image = fs::read(&path).expect("there");
    image[50] ^= 1;
    fs::write(&path, image).expect("written");
    Node::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.wait_for(Node::Near, "replicating");
    assert!(pair.log(Node::Near).contains("dirty regions are damaged"), "{}", pair.log(Node::Near));
    pair.stop_both();
    pair.assert_equal(&["data"]);
}
