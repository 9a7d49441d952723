//! Volumes that cannot be used: each refused with a sentence, none touched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::damage::{at_rest, edit, edit_newer, not_taken_up, reseal, state};
use crate::common::{GROUP, Pair, PairPlan, SERVES_ALONE, Side, must_skip_stores};

const SMALL: PairPlan =
    PairPlan { volumes: &["data"], volume_bytes: 2 << 20, group: SERVES_ALONE, ..PairPlan::DEFAULT };

/// The group must not be taken up, for a reason with all these parts, and the bytes be left alone.
#[track_caller]
fn refused(pair: &mut Pair, node: Side, parts: &[&str], volumes: &[PathBuf]) {
    let before: Vec<_> = volumes.iter().map(|path| fs::read(path).expect("readable")).collect();
    let said = not_taken_up(pair, node);
    for part in parts {
        assert!(said.contains(part), "no {part:?} in: {said}");
    }
    let after: Vec<_> = volumes.iter().map(|path| fs::read(path).expect("readable")).collect();
    assert!(before == after, "a volume changed: {said}");
}

/// What a start would refuse `config check` tells beforehand.
#[track_caller]
fn unsound(pair: &Pair, parts: &[&str]) {
    let (code, said) = pair.output_of(Side::Near, &["config", "check"]);
    assert!(code == 2 && parts.iter().all(|part| said.contains(part)), "{code}, without one of {parts:?}: {said}");
}

fn fill(path: &Path, byte: u8) {
    let length = fs::metadata(path).expect("there").len();
    fs::write(path, vec![byte; usize::try_from(length).expect("small")]).expect("written");
}

/// Runs a tool as root; nothing when it cannot be.
fn tool(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Detached at the end, however that comes.
struct LoopGuard(String);

impl LoopGuard {
    fn attach(options: &[&str], file: &Path) -> Option<LoopGuard> {
        let file = file.to_str().expect("text");
        tool("losetup", &[&["--find", "--show"], options, &[file]].concat()).map(LoopGuard)
    }
}

impl Drop for LoopGuard {
    fn drop(&mut self) {
        let _ = tool("losetup", &["--detach", &self.0]);
    }
}

struct MountGuard(PathBuf);

impl Drop for MountGuard {
    fn drop(&mut self) {
        let _ = tool("umount", &[self.0.to_str().expect("text")]);
    }
}

// proves: rule 21
#[test]
fn a_secondary_that_is_too_small_is_refused_with_both_numbers() {
    let mut pair = Pair::new(&SMALL);
    let far = pair.device(Side::Far, "data");
    fs::OpenOptions::new().write(true).open(&far).and_then(|file| file.set_len(1 << 20)).expect("shortened");
    fill(&far, 7);
    let before = fs::read(&far).expect("there");
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.until("both say why", |pair| {
        Side::BOTH.iter().all(|node| {
            let reason = pair.status(*node)["reason"].to_string();
            reason.contains("1048576 bytes") && reason.contains("2097152 bytes")
        })
    });
    let (code, said) = pair.output_of(Side::Near, &["sync", GROUP, "--full"]);
    assert!(code == 2 && said.contains("1048576") && said.contains("2097152"), "{code}: {said}");
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 64k", "flush"]);
    pair.stop_both();
    assert!(fs::read(&far).expect("there") == before, "the small volume is untouched");
}

#[test]
fn mounted_and_read_only_devices_are_refused() {
    let mut pair = Pair::new(&PairPlan { volume_bytes: 8 << 20, ..SMALL });
    let file = pair.device(Side::Near, "data");
    let Some(device) = LoopGuard::attach(&[], &file) else {
        eprintln!("SKIPPED mounted_and_read_only_devices_are_refused: it needs root and loop devices");
        return;
    };
    let point = pair.path("mounted");
    fs::create_dir(&point).expect("a mount point");
    let location = point.to_str().expect("text");
    tool("mkfs.ext4", &["-q", &device.0]).expect("a file system");
    tool("mount", &[&device.0, location]).expect("mounted");
    let mounted = MountGuard(point.clone());
    pair.edit_config(file.to_str().expect("text"), &device.0);
    refused(&mut pair, Side::Near, &["volume g/data", &device.0, "is mounted at", location, "unmount it first"], &[]);
    unsound(&pair, &[&device.0, "is mounted at", location, "unmount it first"]);
    drop(mounted);
    drop(device);

    let device = LoopGuard::attach(&["--read-only"], &file).expect("a read-only device");
    let text = fs::read_to_string(pair.config()).expect("there");
    let line = text.lines().find(|line| line.starts_with("near = \"/dev/")).expect("the device's line").to_owned();
    pair.edit_config(&line, &format!("near = {:?}", device.0));
    refused(&mut pair, Side::Near, &["volume g/data", "is read-only", "--setrw"], &[file]);
    unsound(&pair, &[&device.0, "is read-only", "--setrw"]);
}

// proves: P7
#[test]
fn a_volume_has_one_daemon() {
    let mut pair = Pair::new(&SMALL);
    pair.serve(Side::Near);
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 64k", "flush"]);
    let mut other = Pair::new(&SMALL);
    let (ours, theirs) = (pair.device(Side::Near, "data"), other.device(Side::Near, "data"));
    other.edit_config(theirs.to_str().expect("text"), ours.to_str().expect("text"));
    refused(&mut other, Side::Near, &["volume g/data", "is locked by", "volumes and state have one owner"], &[ours]);
    unsound(&other, &["is locked by process", "volumes and state have one owner"]);
    // Its own daemon may have them.
    assert!(pair.run(Side::Near, &["config", "check"]).status.success());
    pair.qemu_io(Side::Near, "data", &["read -P 5 0 64k"]);
    assert!(pair.stop(Side::Near).success());
}

// proves: P7
#[test]
fn two_groups_cannot_share_a_device() {
    let pair = Pair::new(&SMALL);
    let device = pair.device(Side::Near, "data");
    // Other names of the same file, which a look at the configuration alone cannot find out.
    let alias = pair.path("alias");
    fs::hard_link(&device, &alias).expect("a second name");
    let spare = pair.path("spare");
    fs::File::create(&spare).and_then(|file| file.set_len(2 << 20)).expect("a file");
    let mut text = fs::read_to_string(pair.config()).expect("there");
    text += &format!(
        "[groups.h]\nprimary = \"near\"\nsecondary = \"far\"\njournal = \"16MiB\"\nwindow = \"4MiB\"\nqueue.disk = 0\n\
         [groups.h.volumes.copy]\nnear = {alias:?}\nfar = {spare:?}\n"
    );
    fs::write(pair.config(), text).expect("written");
    fill(&device, 9);
    // Which of them is right is not known, so neither is served.
    let (code, said) = pair.output_of(Side::Near, &["serve"]);
    assert!(code == 2 && said.contains("alias is the same thing as the device of volume g/data"), "{code}: {said}");
    assert!(said.contains("cannot share a device") && fs::read(&device).expect("there").iter().all(|byte| *byte == 9));
}

// proves: P7
#[test]
fn a_secondary_changed_behind_our_back_is_no_longer_trusted() {
    let mut pair = Pair::replicating(&SMALL);
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 1M", "flush"]);
    pair.until("every dirty bit is cleared", |pair| pair.status(Side::Near)["peers"][0]["dirty_bytes"] == 0);
    pair.stop_both();
    let mut changed = pair.content(Side::Far, "data");
    changed[300_000] = 99;
    fs::write(pair.device(Side::Far, "data"), &changed).expect("written behind our back");
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.until("the primary says why it does not go on", |pair| {
        pair.status(Side::Near)["reason"].to_string().contains("--full")
    });
    let log = pair.log(Side::Far);
    assert!(log.contains("volume g/data was changed since the last clean stop"), "{log}");
    let (code, said) = pair.output_of(Side::Far, &["promote", GROUP, "--force"]);
    assert_eq!(code, 2, "a copy that somebody wrote to is not promoted: {said}");
    let (code, said) = pair.output_of(Side::Near, &["sync", GROUP]);
    assert!(code == 2 && said.contains("--full"), "{code}: {said}");
    assert_ne!(pair.status(Side::Near)["state"], "replicating");
    pair.done(Side::Near, &["sync", GROUP, "--full", "--wait"]);
    pair.stop_both();
    pair.assert_equal(&["data"]);
    assert_eq!(pair.content(Side::Near, "data")[300_000], 7);
}

// proves: P7
/// A start that failed found the change, and left it to be found.
#[test]
fn a_change_is_found_again_until_a_start_is_on_record() {
    for (node, killed) in [(Side::Far, true), (Side::Far, false), (Side::Near, true), (Side::Near, false)] {
        let mut pair = at_rest();
        edit(&pair.device(node, "data"), |bytes| bytes[300_000] = 99);
        let bitmap = state(&pair, node, "bitmap");
        let sound = fs::read(&bitmap).expect("there");
        edit_newer(&bitmap, |copy| {
            copy[8] = 9;
            reseal(copy);
        });
        pair.serve(node);
        pair.until("the group has failed", |pair| pair.status(node)["state"] == "failed");
        if killed {
            pair.kill(node);
        } else {
            assert!(pair.stop(node).success());
        }
        fs::write(&bitmap, sound).expect("restored");
        Side::BOTH.into_iter().for_each(|node| pair.serve(node));
        if node == Side::Far {
            pair.until("the primary says why it does not go on", |pair| {
                pair.status(Side::Near)["reason"].to_string().contains("--full")
            });
            pair.done(Side::Near, &["sync", GROUP, "--full", "--wait"]);
        } else {
            pair.until("the primary asks whose content counts", |pair| {
                pair.status(Side::Near)["reason"].to_string().contains("'farshore sync g' here")
            });
            pair.done(Side::Near, &["sync", GROUP, "--wait"]);
        }
        pair.wait_for(Side::Near, "replicating");
        let found = pair.log(node).matches("volume g/data was changed since the last clean stop").count();
        assert_eq!(found, 2, "{}", pair.log(node));
        pair.stop_both();
        pair.assert_equal(&["data"]);
        assert_eq!(pair.content(Side::Near, "data")[300_000], if node == Side::Near { 99 } else { 7 });
    }
}

/// The primary compares by hashes. One that cannot be taken counts as another, and the secondary says what is wrong with its disk.
#[test]
fn a_secondary_that_cannot_read_what_is_compared_says_so() {
    if must_skip_stores("a_secondary_that_cannot_read_what_is_compared_says_so") {
        return;
    }
    let mut pair = Pair::replicating(&PairPlan { forgets: true, ..SMALL });
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 256k", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.refuse_reads(Side::Far, &pair.device(Side::Far, "data"), 65536..69632);
    pair.done(Side::Near, &["sync", GROUP, "--full"]);
    let reported = format!("read failed on {}", pair.device(Side::Far, "data").display());
    pair.until("the secondary says so", |pair| {
        let status = pair.status(Side::Far).to_string();
        pair.log(Side::Far).contains(&reported) && status.contains(&reported)
    });
    assert!(!pair.log(Side::Near).contains(&reported), "it is not the primary's disk");
}
