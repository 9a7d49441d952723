//! State files with something wrong, and what must come of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use engine::cell::{BYTES, CELL_BYTES};
use forgetful::ForgetfulStore;

use super::{GROUP, Pair, PairPlan, Side};

/// With an undo store that can be read whole and copied.
pub const SMALL: PairPlan =
    PairPlan { volumes: &["data"], volume_bytes: 2 << 20, group: "history = \"64MiB\"", ..PairPlan::DEFAULT };

/// The group's own directory.
pub fn directory(pair: &Pair, node: Side) -> PathBuf {
    pair.path(node.name()).join("state/groups").join(GROUP)
}

pub fn state(pair: &Pair, node: Side, name: &str) -> PathBuf {
    directory(pair, node).join(name)
}

/// A pair that is in step, with something on its volumes.
pub fn in_step() -> Pair {
    let mut pair = Pair::replicating(&SMALL);
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 1M", "flush"]);
    pair.until("every dirty bit is cleared", |pair| pair.status(Side::Near)["peers"][0]["dirty_bytes"] == 0);
    pair
}

/// The same, stopped cleanly.
pub fn at_rest() -> Pair {
    let mut pair = in_step();
    pair.stop_both();
    pair
}

/// Changes a file in place.
pub fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("there");
    change(&mut bytes);
    fs::write(path, bytes).expect("written");
}

/// One bit at this byte.
pub fn rot(path: &Path, at: usize) {
    edit(path, |bytes| bytes[at] ^= 1);
}

/// Both copies of the newer slot of each cell of a file.
pub fn edit_newer(path: &Path, mut change: impl FnMut(&mut [u8])) {
    let update = |slot: &[u8]| u64::from_le_bytes(slot[16..24].try_into().expect("eight bytes"));
    edit(path, |bytes| {
        for cell in bytes.chunks_mut(CELL_BYTES as usize) {
            let (first, second) = cell.split_at_mut(2 * BYTES);
            let newer = if update(second) > update(first) { second } else { first };
            newer.chunks_mut(BYTES).for_each(&mut change);
        }
    });
}

/// All four copies of each cell of a file.
pub fn rot_all(path: &Path) {
    edit(path, |bytes| bytes.chunks_mut(BYTES).for_each(|copy| copy[100] ^= 1));
}

/// Gives a changed block a good checksum again.
pub fn reseal(block: &mut [u8]) {
    let (content, stored) = block.split_at_mut(BYTES - 4);
    stored.copy_from_slice(&crc32c_of(content).to_le_bytes());
}

/// The engine's checksum, by way of a frame.
fn crc32c_of(bytes: &[u8]) -> u32 {
    use engine::wire::{FrameHeader, FrameKind};
    FrameHeader::new(FrameKind::Data, engine::SessionId(0), engine::GroupId(0)).sealed(bytes).payload_crc
}

/// The group must be refused with a sentence that has these parts, served to nobody, and its volume untouched.
#[track_caller]
pub fn fails_with(mut pair: Pair, node: Side, parts: &[&str]) {
    let volume = pair.content(node, "data");
    pair.serve(node);
    pair.until(&format!("the group has failed: {parts:?}"), |pair| {
        let reason = pair.status(node)["reason"].to_string();
        pair.status(node)["state"] == "failed" && parts.iter().all(|part| reason.contains(part))
    });
    let (served, _) = pair.try_qemu_io(node, "data", &["write 0 4k"]);
    assert!(!served, "a failed group has no export");
    let (code, said) = pair.output_of(node, &["promote", GROUP, "--force"]);
    assert_eq!(code, 2, "{said}");
    pair.stop(node);
    assert!(pair.content(node, "data") == volume, "a volume was touched");
}

/// The group must not be taken up, for a reason that has these parts, and its files must be as they were.
#[track_caller]
pub fn is_refused(pair: &mut Pair, node: Side, parts: &[&str]) {
    let read = |pair: &Pair| {
        let names =
            fs::read_dir(directory(pair, node)).expect("a directory").map(|entry| entry.expect("listed").path());
        let mut files: Vec<_> = names.map(|path| (fs::read(&path).expect("readable"), path)).collect();
        files.sort_by(|(_, a), (_, b)| a.cmp(b));
        files
    };
    let (before, volume) = (read(pair), pair.content(node, "data"));
    let said = not_taken_up(pair, node);
    parts.iter().for_each(|part| assert!(said.contains(part), "no {part:?} in: {said}"));
    assert!(pair.content(node, "data") == volume, "{said}");
    assert!(read(pair) == before, "a file was changed: {said}");
}

/// The daemon runs and does not take the group up; what it says of it. It is stopped again.
#[track_caller]
pub fn not_taken_up(pair: &mut Pair, node: Side) -> String {
    pair.serve(node);
    let status = pair.status(node);
    assert_eq!(status["state"], "failed", "{status}\n{}", pair.log(node));
    assert!(pair.stop(node).success(), "{}", pair.log(node));
    status["reason"].as_str().expect("a sentence").to_owned()
}

/// Both nodes must come to be in step again, the log of `node` must say these parts, and the volumes be equal.
#[track_caller]
pub fn heals_with(mut pair: Pair, node: Side, parts: &[&str]) {
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.wait_for(Side::Near, "replicating");
    let log = pair.log(node);
    parts.iter().for_each(|part| assert!(log.contains(part), "no {part:?} in: {log}"));
    pair.qemu_io(Side::Near, "data", &["write -P 9 512k 64k", "flush"]);
    pair.stop_both();
    pair.assert_equal(&["data"]);
}

/// What a node that never ran will have of the group stands in a store of its own, which can hang while the daemon is asked and answers.
pub fn store_of_group(pair: &Pair, node: Side) -> ForgetfulStore {
    let groups = pair.path(node.name()).join("state/groups");
    let at = groups.join(GROUP);
    fs::create_dir_all(&at).expect("a directory");
    for directory in [groups.parent().expect("the state directory"), &groups, &at] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).expect("its mode");
    }
    ForgetfulStore::mount(&at).expect("FUSE and root: ask must_skip first")
}
