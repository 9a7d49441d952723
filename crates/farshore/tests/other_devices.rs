//! Another file or device stands where a volume was, or somebody wrote to a volume of a primary while its daemon was stopped. What
//! is there is not served under the volume's name, and never overwrites the peer's copy before the operator has said so.
// proves: P7

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::damage::{edit, rot, state};
use crate::common::{GROUP, Pair, PairPlan, Side, is_root, must_skip};

const PLAN: PairPlan = PairPlan { volumes: &["data", "log"], volume_bytes: 4 << 20, mode: "sync", ..PairPlan::DEFAULT };
const SMALL: PairPlan = PairPlan { volumes: &["data"], ..PLAN };

#[derive(Clone, Copy, Debug)]
enum TestStop {
    Clean,
    Killed,
}

const STOPS: [TestStop; 2] = [TestStop::Clean, TestStop::Killed];

/// Both nodes in step, with 5 on `data` and 6 on `log`, and no bit left.
fn in_step(plan: &PairPlan) -> Pair {
    let mut pair = Pair::replicating(plan);
    fill(&mut pair, plan);
    pair
}

fn fill(pair: &mut Pair, plan: &PairPlan) {
    for (volume, byte) in plan.volumes.iter().zip(["5", "6"]) {
        pair.qemu_io(Side::Near, volume, &[&format!("write -P {byte} 0 1M"), "flush"]);
    }
    pair.wait_for(Side::Near, "replicating");
    pair.until("every dirty bit is cleared", |pair| pair.status(Side::Near)["peers"][0]["dirty_bytes"] == 0);
}

fn end(pair: &mut Pair, node: Side, stop: TestStop) {
    match stop {
        TestStop::Clean => assert!(pair.stop(node).success(), "{}", pair.log(node)),
        TestStop::Killed => pair.kill(node),
    }
}

/// An empty file of its size takes a volume's place.
fn replace(path: &Path) {
    let size = fs::metadata(path).expect("there").len();
    fs::remove_file(path).expect("removed");
    fs::File::create(path).and_then(|file| file.set_len(size)).expect("an empty file");
}

fn exchange(one: &Path, other: &Path) {
    let aside = one.with_extension("aside");
    fs::rename(one, &aside).expect("renamed");
    fs::rename(other, one).expect("renamed");
    fs::rename(&aside, other).expect("renamed");
}

/// The group is refused in these words, serves nobody, and stays so while its peer is connected.
#[track_caller]
fn is_refused(pair: &mut Pair, node: Side, parts: &[&str]) {
    pair.until("the nodes have met", |pair| pair.status(node)["peers"][0]["link"] == "connected");
    let status = pair.status(node);
    let reason = status["reason"].to_string();
    assert_eq!(status["state"], "failed", "{status}\n{}", pair.log(node));
    for part in [&["refused: volume ", "'farshore accept-device g ", " --rebuild'"], parts].concat() {
        assert!(reason.contains(part), "no {part:?} in: {reason}");
    }
    let (served, _) = pair.try_qemu_io(node, "data", &["read 0 4k"]);
    assert!(!served, "a group that is refused has no export");
    for order in [&["sync", GROUP, "--full"][..], &["demote", GROUP], &["promote", GROUP, "--force"]] {
        let (code, said) = pair.output_of(node, order);
        assert_eq!(code, 2, "{order:?}: {said}");
    }
    let peer = pair.status(node.other());
    assert_ne!(peer["state"], "replicating", "{peer}");
    // Long enough for any sync that should not be.
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(pair.status(node)["state"], "failed");
}

/// A file's new name shows in its times, and a device's new number in what the kernel counts: after a clean stop it may be asked
/// whether anything was written.
fn goes_on(pair: &mut Pair) {
    pair.until("the group goes on", |pair| {
        let status = pair.status(Side::Near);
        if status["reason"].to_string().contains("'farshore sync g' here") {
            pair.done(Side::Near, &["sync", GROUP]);
        }
        status["state"] == "replicating"
    });
}

fn content(pair: &Pair, node: Side, volume: &str) -> Vec<u8> {
    fs::read(pair.device(node, volume)).expect("readable")
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Node by node: how many bytes of syncs have come to it or left it.
fn shipped(pair: &Pair, node: Side) -> u64 {
    pair.counter(node, "group.g.shipped_bytes") + pair.counter(node, "group.g.compared_bytes")
}

#[test]
fn an_empty_file_in_the_place_of_a_primarys_volume_overwrites_nothing() {
    for stop in STOPS {
        let mut pair = in_step(&SMALL);
        end(&mut pair, Side::Near, stop);
        let good = content(&pair, Side::Far, "data");
        replace(&pair.device(Side::Near, "data"));
        let (code, said) = pair.output_of(Side::Near, &["config", "check"]);
        assert!(code == 2 && said.contains("is not the device that is recorded"), "{stop:?}: {said}");
        pair.serve(Side::Near);
        is_refused(&mut pair, Side::Near, &["g/data", "a file (inode ", "--content-is-good'"]);
        assert!(content(&pair, Side::Far, "data") == good, "{stop:?}: the peer's copy was touched");
        assert!(is_zero(&content(&pair, Side::Near, "data")), "{stop:?}: the new file was touched");

        let (code, said) = pair.output_of(Side::Near, &["accept-device", GROUP, "data"]);
        assert!(code == 3 && said.contains("--rebuild"), "{said}");
        let said = pair.done(Side::Near, &["accept-device", GROUP, "data", "--rebuild"]);
        assert!(said.contains("begins anew on near as secondary"), "{said}");
        assert!(pair.stop(Side::Near).success());
        pair.serve(Side::Near);
        assert_eq!(pair.status(Side::Near)["role"], "secondary", "{stop:?}");
        pair.promote_by_force(Side::Far);
        pair.qemu_io(Side::Far, "data", &["read -P 5 0 1M"]);
        pair.sync_fully(Side::Far);
        pair.stop_from(Side::Far);
        pair.assert_equal(&["data"]);
        assert!(content(&pair, Side::Near, "data") == good);
        // What was accepted is what is recorded now.
        Side::BOTH.into_iter().for_each(|node| pair.serve(node));
        pair.wait_for(Side::Far, "replicating");
        let said = pair.done(Side::Near, &["accept-device", GROUP, "data", "--rebuild"]);
        assert!(said.contains("there is nothing to accept"), "{said}");
    }
}

#[test]
fn exchanged_volumes_are_refused_and_serve_again_in_their_places() {
    for stop in STOPS {
        let mut pair = in_step(&PLAN);
        let (data, log) = (pair.device(Side::Near, "data"), pair.device(Side::Near, "log"));
        end(&mut pair, Side::Near, stop);
        exchange(&data, &log);
        pair.serve(Side::Near);
        let parts =
            ["that is the device of volume g/log", "that is the device of volume g/data", "accept-device g data log"];
        is_refused(&mut pair, Side::Near, &parts);
        let (code, said) = pair.output_of(Side::Near, &["accept-device", GROUP, "data", "--rebuild"]);
        assert!(code == 2 && said.contains("name log as well"), "{said}");
        assert!(pair.stop(Side::Near).success());
        exchange(&data, &log);
        pair.serve(Side::Near);
        goes_on(&mut pair);
        pair.qemu_io(Side::Near, "data", &["read -P 5 0 1M"]);
        pair.qemu_io(Side::Near, "log", &["read -P 6 0 1M"]);
        pair.stop_both();
        pair.assert_equal(&["data", "log"]);
    }
}

#[test]
fn another_device_of_a_secondary_is_not_synced_onto() {
    for stop in STOPS {
        let mut pair = in_step(&PLAN);
        end(&mut pair, Side::Far, stop);
        pair.qemu_io(Side::Near, "log", &["write -P 9 2M 64k", "flush"]);
        replace(&pair.device(Side::Far, "log"));
        pair.serve(Side::Far);
        is_refused(&mut pair, Side::Far, &["g/log"]);
        let reason = pair.status(Side::Near)["reason"].to_string();
        assert!(reason.contains("its half of the group has failed"), "{reason}");
        assert!(is_zero(&content(&pair, Side::Far, "log")), "{stop:?}");
        let (code, said) = pair.output_of(Side::Far, &["accept-device", GROUP, "log", "--content-is-good"]);
        assert!(code == 2 && said.contains("--rebuild"), "{said}");
        pair.done(Side::Far, &["accept-device", GROUP, "log", "--rebuild"]);
        assert!(pair.stop(Side::Far).success());
        pair.serve(Side::Far);
        pair.until("the primary asks for a full sync", |pair| {
            pair.status(Side::Near)["reason"].to_string().contains("--full")
        });
        pair.sync_fully(Side::Near);
        pair.stop_both();
        pair.assert_equal(&["data", "log"]);
    }
}

#[test]
fn content_that_counts_is_served_and_sent_when_that_is_ordered() {
    for stop in STOPS {
        let mut pair = in_step(&SMALL);
        end(&mut pair, Side::Near, stop);
        let good = content(&pair, Side::Far, "data");
        // Copied back from a backup: another inode, and older content.
        let (path, backup) = (pair.device(Side::Near, "data"), pair.path("backup"));
        fs::write(&backup, vec![8; good.len()]).expect("a backup");
        fs::rename(&backup, &path).expect("put back");
        pair.serve(Side::Near);
        is_refused(&mut pair, Side::Near, &["g/data"]);
        let said = pair.done(Side::Near, &["accept-device", GROUP, "data", "--content-is-good"]);
        assert!(said.contains("begins anew on near as primary") && said.contains("sync g --full"), "{said}");
        assert!(pair.stop(Side::Near).success());
        for _ in 0..2 {
            pair.serve(Side::Near);
            pair.until("the nodes have met", |pair| pair.status(Side::Near)["reason"].to_string().contains("--full"));
            pair.qemu_io(Side::Near, "data", &["read -P 8 0 1M"]);
            let (code, said) = pair.output_of(Side::Near, &["sync", GROUP]);
            assert!(code == 2 && said.contains("--full"), "{stop:?}: {said}");
            assert!(content(&pair, Side::Far, "data") == good, "{stop:?}: the peer's copy was touched");
            pair.kill(Side::Near);
        }
        pair.serve(Side::Near);
        pair.sync_fully(Side::Near);
        pair.stop_both();
        pair.assert_equal(&["data"]);
        assert_eq!(content(&pair, Side::Near, "data")[0], 8);
    }
}

/// Not one byte goes to the peer before the operator has said whose content counts, over restarts of both kinds.
#[test]
fn what_was_written_behind_a_primarys_back_waits_for_an_order() {
    for keeps_peer in [false, true] {
        let mut pair = in_step(&SMALL);
        pair.stop_both();
        edit(&pair.device(Side::Near, "data"), |bytes| bytes[300_000] = 99);
        for stop in [TestStop::Killed, TestStop::Clean, TestStop::Clean] {
            Side::BOTH.into_iter().for_each(|node| pair.serve(node));
            pair.until("the operator is asked", |pair| {
                let reason = pair.status(Side::Near)["reason"].to_string();
                reason.contains("a volume was changed") && reason.contains("'farshore sync g'")
            });
            pair.done(Side::Near, &["set", GROUP, "autosync=true"]);
            pair.qemu_io(Side::Near, "data", &["write -P 9 2M 64k", "flush"]);
            std::thread::sleep(std::time::Duration::from_secs(1));
            assert_eq!(pair.status(Side::Near)["state"], "logging");
            assert_eq!(shipped(&pair, Side::Near), 0);
            end(&mut pair, Side::Near, stop);
            end(&mut pair, Side::Far, stop);
        }
        assert_eq!(content(&pair, Side::Far, "data")[300_000], 5);
        Side::BOTH.into_iter().for_each(|node| pair.serve(node));
        let counts = if keeps_peer { Side::Far } else { Side::Near };
        if keeps_peer {
            let (code, said) = pair.output_of(Side::Near, &["demote", GROUP]);
            assert_eq!(code, 1, "{said}");
            pair.promote_by_force(Side::Far);
            pair.sync_fully(Side::Far);
        } else {
            pair.until("the nodes have met", |pair| pair.status(Side::Near)["peers"][0]["link"] == "connected");
            pair.done(Side::Near, &["sync", GROUP, "--wait"]);
            assert_eq!(pair.status(Side::Near)["settings"]["autosync"]["value"], "true");
        }
        pair.stop_from(counts);
        pair.assert_equal(&["data"]);
        assert_eq!(content(&pair, Side::Near, "data")[300_000], if keeps_peer { 5 } else { 99 });
        // Asked once, and answered.
        Side::BOTH.into_iter().for_each(|node| pair.serve(node));
        pair.wait_for(counts, "replicating");
    }
}

#[test]
fn the_other_groups_go_on() {
    let mut pair = Pair::new(&SMALL);
    let (near, far) = (pair.path("near-h"), pair.path("far-h"));
    for path in [&near, &far] {
        fs::File::create(path).and_then(|file| file.set_len(2 << 20)).expect("a volume");
    }
    let mut text = fs::read_to_string(pair.config()).expect("there");
    text += &format!(
        "[groups.h]\nprimary = \"near\"\nsecondary = \"far\"\njournal = \"16MiB\"\nwindow = \"4MiB\"\nqueue.disk = 0\n\
         [groups.h.volumes.data]\nnear = {near:?}\nfar = {far:?}\n"
    );
    fs::write(pair.config(), text).expect("written");
    pair.first_sync();
    pair.done(Side::Near, &["sync", "h", "--full", "--wait"]);
    pair.kill(Side::Near);
    replace(&pair.device(Side::Near, "data"));
    pair.serve(Side::Near);
    is_refused(&mut pair, Side::Near, &["g/data"]);
    pair.done(Side::Near, &["wait", "h", "--for", "replicating", "--timeout", "90s"]);
    assert!(pair.stop(Side::Near).success());
}

#[test]
fn a_damaged_or_missing_record_of_the_devices_is_asked_about() {
    let mut pair = in_step(&SMALL);
    assert!(pair.stop(Side::Near).success());
    let record = state(&pair, Side::Near, "devices");
    let sound = fs::read(&record).expect("there");
    rot(&record, 60);
    pair.serve(Side::Near);
    is_refused(&mut pair, Side::Near, &["the record of its devices is damaged"]);
    pair.kill(Side::Near);
    fs::remove_file(&record).expect("there");
    pair.serve(Side::Near);
    is_refused(&mut pair, Side::Near, &["the record of its devices is missing", "accept-device"]);
    pair.kill(Side::Near);
    fs::write(&record, sound).expect("restored");
    pair.serve(Side::Near);
    pair.wait_for(Side::Near, "replicating");
}

// --- Loop devices ---

/// Runs a tool as root; nothing when it cannot be.
fn tool(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Detached at the end, however that comes.
struct AttachedLoop(String);

impl AttachedLoop {
    fn attach(options: &[&str], file: &Path) -> Option<AttachedLoop> {
        let file = file.to_str().expect("text");
        tool("losetup", &[&["--find", "--show"], options, &[file]].concat()).map(AttachedLoop)
    }
}

impl Drop for AttachedLoop {
    fn drop(&mut self) {
        let _ = tool("losetup", &["--detach", &self.0]);
    }
}

fn skips_loops(test: &str) -> bool {
    let has_loops = is_root() && tool("losetup", &["--find"]).is_some();
    must_skip(test, &[("root and loop devices", has_loops)])
}

/// `/dev/sdb` and `/dev/sdc` after a reboot.
#[test]
fn devices_that_exchange_their_names_are_distinguished() {
    if skips_loops("devices_that_exchange_their_names_are_distinguished") {
        return;
    }
    for stop in STOPS {
        let mut pair = Pair::new(&PLAN);
        let files = ["data", "log"].map(|volume| pair.device(Side::Near, volume));
        let loops = [0, 1].map(|at| AttachedLoop::attach(&[], &files[at]).expect("a loop device"));
        for (file, device) in files.iter().zip(&loops) {
            pair.edit_config(&format!("near = \"{}\"", file.display()), &format!("near = \"{}\"", device.0));
        }
        pair.first_sync();
        fill(&mut pair, &PLAN);
        end(&mut pair, Side::Near, stop);
        let before = content(&pair, Side::Far, "data");
        loops.iter().for_each(|device| _ = tool("losetup", &["--detach", &device.0]).expect("detached"));
        for (device, file) in loops.iter().zip(files.iter().rev()) {
            tool("losetup", &[&device.0, file.to_str().expect("text")]).expect("attached");
        }
        pair.serve(Side::Near);
        is_refused(&mut pair, Side::Near, &["a loop device upon a file (inode ", "that is the device of volume g/log"]);
        assert!(content(&pair, Side::Far, "data") == before, "{stop:?}: the peer's copy was touched");
        assert!(pair.stop(Side::Near).success());

        // The same devices, each under the name of the other: what the configuration says counts.
        let text = fs::read_to_string(pair.config()).expect("there");
        let [one, other] = [0, 1].map(|at| format!("near = \"{}\"", loops[at].0));
        let text = text.replace(&one, "near = aside").replace(&other, &one).replace("near = aside", &other);
        fs::write(pair.config(), text).expect("written");
        pair.serve(Side::Near);
        goes_on(&mut pair);
        pair.stop_both();
        pair.assert_equal(&["data", "log"]);
    }
}

#[test]
fn two_ways_to_the_same_bytes_are_no_two_volumes() {
    if skips_loops("two_ways_to_the_same_bytes_are_no_two_volumes") {
        return;
    }
    let pair = Pair::new(&PLAN);
    let (data, log) = (pair.device(Side::Near, "data"), pair.device(Side::Near, "log"));
    let text = fs::read_to_string(pair.config()).expect("there");
    let refuses = |one: &str, other: &str, sentence: Option<&str>| {
        let [at_data, at_log] = [&data, &log].map(|path| format!("near = \"{}\"", path.display()));
        let text = text.replace(&at_log, "near = LOG").replace(&at_data, &format!("near = {one:?}"));
        let text = text.replace("near = LOG", &format!("near = {other:?}"));
        fs::write(pair.config(), text).expect("written");
        let (code, said) = pair.output_of(Side::Near, &["config", "check"]);
        match sentence {
            None => assert_eq!(code, 0, "{one} {other}: {said}"),
            Some(sentence) => {
                assert!(code == 2 && said.contains(sentence), "{one} {other}: {said}");
                let (code, said) = pair.output_of(Side::Near, &["serve"]);
                assert!(code == 2 && said.contains(sentence), "{one} {other}: {said}");
            }
        }
    };
    let file = data.to_str().expect("text");
    let whole = AttachedLoop::attach(&[], &data).expect("a loop device");
    refuses(file, &whole.0, Some("lies on the same bytes as"));
    let again = AttachedLoop::attach(&[], &data).expect("a loop device");
    refuses(&whole.0, &again.0, Some("lies on the same bytes as"));
    let first = AttachedLoop::attach(&["--sizelimit", "1048576"], &data).expect("a loop device");
    let second =
        AttachedLoop::attach(&["--offset", "1048576", "--sizelimit", "1048576"], &data).expect("a loop device");
    refuses(&first.0, &whole.0, Some("lies on the same bytes as"));
    refuses(&first.0, &second.0, None);
    let upon = AttachedLoop::attach(&[], Path::new(&second.0)).expect("a loop device upon another");
    refuses(&whole.0, &upon.0, Some("lies on the same bytes as"));
    refuses(&first.0, &upon.0, None);

    let (hard, soft) = (pair.path("hard"), pair.path("soft"));
    fs::hard_link(&log, &hard).expect("a link");
    std::os::unix::fs::symlink(&log, &soft).expect("a link");
    let file = log.to_str().expect("text").to_owned();
    for alias in [hard, soft] {
        refuses(&file, alias.to_str().expect("text"), Some("is the same thing as"));
    }
}
