//! The disk of a primary is dead: one command has the other node serve its clients, and it takes over again once another disk is filled.
// proves: rule 13, rule 11, P6

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forgetful::ForgetfulStore;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use crate::common::damage::store_of_group;
use crate::common::{Background, GROUP, Pair, PairPlan, Side, expect, must_skip, must_skip_stores};

const MIB: u64 = 1 << 20;
const VOLUMES: [&str; 2] = ["data", "log"];

fn is_primary(pair: &Pair, node: Side) -> bool {
    pair.status(node)["role"] == "primary"
}

/// A pair in `sync` with so many volumes, which are equal.
pub(crate) fn pair(volumes: usize, group: &str) -> (Pair, ForgetfulStore) {
    let (mut pair, store) = new_pair(volumes, "sync", group);
    first_sync(&mut pair);
    (pair, store)
}

/// The disk of `data` is a store of its own at near, which dies when that is told to.
fn new_pair(volumes: usize, mode: &str, group: &str) -> (Pair, ForgetfulStore) {
    let plan = PairPlan { volumes: &VOLUMES[..volumes], volume_bytes: 4 * MIB, mode, group, ..PairPlan::DEFAULT };
    let pair = Pair::new(&plan);
    let at = pair.path("store");
    fs::create_dir(&at).expect("a directory");
    let store = ForgetfulStore::mount(&at).expect("FUSE and root: asked before");
    File::create(at.join("data")).and_then(|disk| disk.set_len(4 * MIB)).expect("a disk");
    fs::remove_file(pair.device(Side::Near, "data")).expect("it was there");
    symlink(at.join("data"), pair.device(Side::Near, "data")).expect("a link");
    (pair, store)
}

fn first_sync(pair: &mut Pair) {
    pair.first_sync();
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
}

/// Whatever is asked of the disk fails from now on, and by that the group.
fn dies(pair: &mut Pair, store: &ForgetfulStore) {
    store.fail_requests();
    let _ = pair.try_qemu_io(Side::Near, "data", &["write -P 9 2M 64k", "flush"]);
    pair.until("the group has failed", |pair| pair.status(Side::Near)["state"] == "failed");
}

/// Both volumes have something that the copy lacks, and one's disk is dead.
fn behind_and_dead() -> (Pair, ForgetfulStore) {
    let (mut pair, store) = new_pair(2, "async", "");
    pair.lay_relay();
    first_sync(&mut pair);
    pair.qemu_io(Side::Near, "log", &["write -P 5 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.relay().cut();
    pair.until("near sees it", |pair| pair.status(Side::Near)["peers"][0]["link"] != "connected");
    for volume in VOLUMES {
        pair.qemu_io(Side::Near, volume, &["write -P 9 0 64k", "flush"]);
    }
    dies(&mut pair, &store);
    pair.relay().restore();
    pair.until("they meet", |pair| pair.status(Side::Near)["peers"][0]["link"] == "connected");
    (pair, store)
}

// proves: P1, P2
/// The command is meant for the node whose disk died; the other one has what counts, and gives it up for nobody's slip.
#[test]
fn the_good_copy_is_not_detached_for_the_dead_disk_of_its_primary() {
    if must_skip_stores("the_good_copy_is_not_detached_for_the_dead_disk_of_its_primary") {
        return;
    }
    let (mut pair, store) = pair(2, "");
    dies(&mut pair, &store);
    pair.until("far knows", |pair| pair.status(Side::Far)["state"] == "failed");
    let detach = ["group", "detach", GROUP, "data"];
    let words = ["nothing was changed", "near is the primary, and its half of the group has failed", "--on near"];
    expect(&pair.run(Side::Far, &detach), 2, &words);
    let detached = |pair: &Pair, node| pair.status(node)["volumes"][0]["detached"] == true;
    assert!(!detached(&pair, Side::Far));
    pair.done(Side::Far, &["group", "detach", GROUP, "data", "--on", "near"]);
    assert!(detached(&pair, Side::Near) && !detached(&pair, Side::Far));
}

// proves: P1
/// A disk is missing, and another volume is named by mistake; by force that is on record, and taken back by a word.
#[test]
fn a_healthy_volume_is_not_detached_for_the_missing_disk_of_another_one() {
    let mut pair = Pair::new(&PairPlan { volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    pair.first_sync();
    pair.wait_for_rest(Side::Near);
    pair.done(Side::Near, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "data", &["write -P 9 0 64k", "flush"]);
    assert!(pair.stop(Side::Near).success());
    let (log, away) = (pair.device(Side::Near, "log"), pair.path("away"));
    fs::rename(&log, &away).expect("moved");
    pair.serve(Side::Near);
    let detach = ["group", "detach", GROUP, "data"];
    expect(&pair.run(Side::Near, &detach), 2, &["nothing was changed", "nothing is known to be wrong with the disk"]);
    expect(&pair.run(Side::Near, &[&detach[..], &["--force"]].concat()), 2, &["it is on record", "not taken up"]);
    expect(&pair.run(Side::Near, &["group", "attach", GROUP, "data"]), 2, &["it is on record", "not taken up"]);
    fs::rename(&away, &log).expect("moved back");
    pair.done(Side::Near, &["reset", GROUP]);
    pair.until("it serves", |pair| pair.try_qemu_io(Side::Near, "data", &["read -P 9 0 64k"]).0);
    pair.done(Side::Near, &["sync", GROUP, "--wait"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// Another disk at the same path, as large, and empty.
fn has_another_disk(pair: &Pair) {
    let path = pair.device(Side::Near, "data");
    let _ = fs::remove_file(&path);
    File::create(&path).and_then(|disk| disk.set_len(4 * MIB)).expect("another disk");
}

pub(crate) fn until_served_by_far(pair: &mut Pair) {
    pair.until("it is served", |pair| pair.try_qemu_io(Side::Near, "data", &["read -P 5 0 1M"]).0);
    assert!(is_primary(pair, Side::Far) && !is_primary(pair, Side::Near));
    pair.qemu_io(Side::Near, "data", &["write -P 6 1M 1M", "flush"]);
}

/// Another disk is attached and filled, and near takes over again by itself.
fn until_home(mut pair: Pair, volumes: usize) {
    has_another_disk(&pair);
    pair.done(Side::Near, &["group", "attach", GROUP, "data"]);
    pair.qemu_io(Side::Near, "data", &["read -P 5 0 1M", "read -P 6 1M 1M"]);
    pair.until("it is filled", |pair| {
        pair.output_of(Side::Near, &["sync", GROUP, "--volume", "data", "--wait"]).0 == 0
    });
    pair.until("it takes over again", |pair| {
        is_primary(pair, Side::Near) && Side::BOTH.iter().all(|node| pair.status(*node)["reverse"].is_null())
    });
    assert!(!is_primary(&pair, Side::Far));
    pair.qemu_io(Side::Near, "data", &["read -P 5 0 1M", "read -P 6 1M 1M", "write -P 7 3M 64k", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES[..volumes]);
}

/// With one volume the only way was a forced promotion, to which clients had to be moved; with several the disk had to be left out first.
#[test]
fn one_command_has_clients_of_a_dead_disk_served_by_the_other_node() {
    if must_skip_stores("one_command_has_clients_of_a_dead_disk_served_by_the_other_node") {
        return;
    }
    for volumes in [1, 2] {
        let (mut pair, store) = pair(volumes, "");
        dies(&mut pair, &store);
        let reverse = ["sync", GROUP, "--reverse"];
        let asked = [
            "nothing was changed",
            "the disk of volume data has failed",
            "cannot be saved",
            "'farshore reset g'",
            "--yes",
        ];
        expect(&pair.run(Side::Near, &reverse), 2, &asked);
        let status = pair.status(Side::Near);
        assert!(status["state"] == "failed" && status["volumes"][0]["detached"] != true, "{status}");
        if volumes == 1 {
            let last = ["left with no volume", "'farshore sync g --reverse --yes' has node far serve"];
            expect(&pair.run(Side::Near, &["group", "detach", GROUP, "data"]), 2, &last);
        }
        let said = pair.done(Side::Near, &["sync", GROUP, "--reverse", "--yes"]);
        assert!(said.contains("node far serves the clients of this node"), "{said}");
        until_served_by_far(&mut pair);
        if volumes == 2 {
            pair.qemu_io(Side::Near, "log", &["write -P 8 0 64k", "flush"]);
        }
        expect(&pair.run(Side::Near, &["sync", GROUP, "--reverse", "--yes"]), 0, &["under way already"]);
        // Restarts change nothing of it.
        for node in Side::BOTH {
            pair.kill(node);
            pair.serve(node);
        }
        pair.until("it is served", |pair| pair.try_qemu_io(Side::Near, "data", &["read -P 6 1M 1M"]).0);
        drop(store);
        until_home(pair, volumes);
    }
}

/// The daemon starts while the disk is missing, or hangs.
#[test]
fn a_primary_that_starts_without_its_disk_is_served_by_the_other_node() {
    if must_skip_stores("a_primary_that_starts_without_its_disk_is_served_by_the_other_node") {
        return;
    }
    for volumes in [1, 2] {
        let (mut pair, store) = pair(volumes, "");
        assert!(pair.stop(Side::Near).success());
        match volumes {
            1 => fs::remove_file(pair.device(Side::Near, "data")).expect("a link"),
            _ => store.hang(),
        }
        pair.serve(Side::Near);
        assert_eq!(pair.status(Side::Near)["state"], "failed");
        let asked = ["nothing was changed", "the disk of volume data has failed", "--yes"];
        expect(&pair.run(Side::Near, &["sync", GROUP, "--reverse"]), 2, &asked);
        pair.done(Side::Near, &["sync", GROUP, "--reverse", "--yes"]);
        until_served_by_far(&mut pair);
        drop(store);
        until_home(pair, volumes);
    }
}

/// The daemon starts without the disk, and the group is not taken up: what its records say counts as well before anything is changed.
#[test]
fn what_a_group_that_is_not_taken_up_would_lose_is_looked_for_in_its_records() {
    let test = "what_a_group_that_is_not_taken_up_would_lose_is_looked_for_in_its_records";
    let plan = PairPlan { volumes: &VOLUMES, volume_bytes: 4 * MIB, ..PairPlan::DEFAULT };
    let mut pair = Pair::new(&plan);
    let Some(_full) = crate::bad_state::tmpfs(&pair, Side::Near, "size=60m,mode=0700") else {
        crate::common::must_skip(test, &[("to mount a file system", false)]);
        return;
    };
    let (disk, link) = (pair.path("disk"), pair.device(Side::Near, "data"));
    fs::rename(&link, &disk).and_then(|()| symlink(&disk, &link)).expect("a link");
    first_sync(&mut pair);
    pair.done(Side::Near, &["logging", GROUP, "--volume", "log"]);
    pair.qemu_io(Side::Near, "log", &["write -P 7 0 64k", "flush"]);
    let begins_without = |pair: &mut Pair| {
        assert!(pair.stop(Side::Near).success());
        fs::remove_file(&link).expect("a link");
        pair.serve(Side::Near);
        assert_eq!(pair.status(Side::Near)["state"], "failed");
    };
    let is_untouched = |pair: &mut Pair| {
        for node in Side::BOTH {
            let is_begun = !pair.status(node)["reverse"].is_null();
            assert_eq!((is_primary(pair, node), is_begun), (node == Side::Near, false));
        }
        assert!(pair.status(Side::Near)["volumes"][0]["detached"] != true);
        symlink(&disk, &link).expect("a link");
        pair.done(Side::Near, &["reset", GROUP]);
    };
    let yes = ["sync", GROUP, "--reverse", "--yes"];
    begins_without(&mut pair);
    let aside = ["nothing was changed", "volume log", "set aside", "'farshore sync g --volume log'"];
    expect(&pair.run(Side::Near, &yes), 2, &aside);
    is_untouched(&mut pair);
    pair.until("they have met", |pair| pair.status(Side::Near)["peers"][0]["link"] == "connected");
    pair.done(Side::Near, &["sync", GROUP, "--volume", "log", "--wait"]);
    pair.done(Side::Near, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "log", &["write -P 8 0 64k", "flush"]);
    begins_without(&mut pair);
    let room = ["nothing was changed", "where the two differ is 64", "free in its state directory", "--discard"];
    expect(&pair.run(Side::Near, &yes), 2, &room);
    is_untouched(&mut pair);
    pair.qemu_io(Side::Near, "log", &["read -P 8 0 64k"]);
}

/// What is refused has not begun: the group has failed still, no volume is detached, and clients that are attached stay.
#[test]
fn what_is_refused_leaves_a_failed_primary_as_it_is() {
    if must_skip_stores("what_is_refused_leaves_a_failed_primary_as_it_is") {
        return;
    }
    let (mut pair, store) = pair(2, "hooks.before_demote = [\"/bin/false\"]\n");
    let client = pair.start_qemu_io(Side::Near, "log", &["read 0 4k", "sleep 60000"]);
    pair.until("it is attached", |pair| pair.status(Side::Near)["volumes"][1]["clients"] == 1);
    dies(&mut pair, &store);
    let yes = ["sync", GROUP, "--reverse", "--yes"];
    let term = pair.status(Side::Near)["term"].clone();
    let is_untouched = |pair: &mut Pair| {
        let status = pair.status(Side::Near);
        assert_eq!(status["term"], term, "attached devices go on");
        assert!(status["state"] == "failed" && status["volumes"][0]["detached"] != true, "{status}");
        pair.until("nothing is left of it", |pair| {
            Side::BOTH.iter().all(|node| pair.status(*node)["reverse"].is_null())
        });
        assert!(is_primary(pair, Side::Near) && !is_primary(pair, Side::Far));
    };
    expect(&pair.run(Side::Near, &yes), 2, &["1 client is attached", "--close-clients"]);
    is_untouched(&mut pair);
    drop(client);
    pair.until("it has left", |pair| pair.status(Side::Near)["volumes"][1]["clients"] == 0);
    expect(&pair.run(Side::Near, &yes), 2, &["before_demote", "nothing was demoted"]);
    is_untouched(&mut pair);
    pair.kill(Side::Far);
    expect(&pair.run(Side::Near, &[&yes[..], &["--skip-hooks"]].concat()), 2, &["nothing was changed", "node far"]);
    pair.serve(Side::Far);
    is_untouched(&mut pair);
    pair.until("it is done", |pair| pair.output_of(Side::Near, &[&yes[..], &["--skip-hooks"]].concat()).0 == 0);
    until_served_by_far(&mut pair);
    drop(store);
}

/// Whichever daemon dies, and whenever: the same command, typed again, has clients served.
#[test]
fn a_kill_at_any_moment_is_finished_by_the_same_command() {
    if must_skip_stores("a_kill_at_any_moment_is_finished_by_the_same_command") {
        return;
    }
    let near = [50, 100, 150, 200, 300, 450, 700].map(|wait_ms| (Side::Near, wait_ms));
    let far = [100, 200, 300, 500].map(|wait_ms| (Side::Far, wait_ms));
    let moments = near.into_iter().chain(far);
    for (round, (victim, wait_ms)) in moments.enumerate() {
        let (mut pair, store) = pair(1 + round % 2, "");
        dies(&mut pair, &store);
        let words = ["sync", GROUP, "--reverse", "--yes"];
        let typed = Background::start(pair.command(Side::Near, &words));
        std::thread::sleep(Duration::from_millis(wait_ms));
        pair.kill(victim);
        pair.serve(victim);
        let (_, said) = typed.finish(&mut pair);
        println!("{} after {wait_ms} ms: {}", victim.name(), said.trim());
        pair.until("the same command is taken", |pair| {
            let (code, said) = pair.output_of(Side::Near, &words);
            assert!(!said.contains("histories-apart") && !said.contains("farshore resolve"), "{said}");
            code < 2
        });
        until_served_by_far(&mut pair);
        drop(store);
        until_home(pair, 1 + round % 2);
    }
}

/// The same where the daemon dies in the middle of it, whenever: what it had begun it finishes, or has not begun.
#[test]
fn a_kill_leaves_one_moment_of_all_volumes() {
    if must_skip_stores("a_kill_leaves_one_moment_of_all_volumes") {
        return;
    }
    for wait_ms in [60, 90, 120, 150, 190, 230, 300] {
        let (mut pair, store) = behind_and_dead();
        let words = ["sync", GROUP, "--reverse", "--yes"];
        let typed = Background::start(pair.command(Side::Near, &words));
        std::thread::sleep(Duration::from_millis(wait_ms));
        pair.kill(Side::Near);
        pair.serve(Side::Near);
        let (_, said) = typed.finish(&mut pair);
        println!("after {wait_ms} ms: {}", said.trim());
        pair.until("the same command is taken", |pair| pair.output_of(Side::Near, &words).0 < 2);
        until_served_by_far(&mut pair);
        pair.qemu_io(Side::Near, "log", &["read -P 5 0 1M"]);
        drop(store);
    }
}

/// What the other volume had alone was sent to a copy that lacks the dead one's: no moment had both.
#[test]
fn what_is_served_is_one_moment_of_all_volumes() {
    if must_skip_stores("what_is_served_is_one_moment_of_all_volumes") {
        return;
    }
    let (mut pair, store) = behind_and_dead();
    pair.until("it is done", |pair| pair.output_of(Side::Near, &["sync", GROUP, "--reverse", "--yes"]).0 == 0);
    until_served_by_far(&mut pair);
    pair.qemu_io(Side::Near, "log", &["read -P 5 0 1M"]);
    let delta = pair.path("near/state/groups").join(GROUP).join("delta");
    pair.until("what the other volume had alone is saved", |_| delta.exists());
    drop(store);
    until_home(pair, 2);
}

fn record(pair: &Pair) -> PathBuf {
    pair.path("near/state/groups").join(GROUP).join("reverse")
}

/// As a daemon leaves it that ends between that an operator has agreed on the loss of this volume and the demotion.
pub(crate) fn is_agreed_on(pair: &Pair, volume: &str) {
    let text = format!("farshore reverse 1\nplace home gives-up\nwithout-dead {volume}\n");
    let text = format!("{text}checksum {:08x}\n", crc32c::crc32c(text.as_bytes()));
    fs::write(record(pair), text).expect("a record");
}

/// The other node had got ready before that: it is about to start, and has the other record.
pub(crate) fn is_announced(pair: &Pair) {
    let text = "farshore reverse 1\nplace server\n";
    let text = format!("{text}checksum {:08x}\n", crc32c::crc32c(text.as_bytes()));
    fs::write(pair.path("far/state/groups").join(GROUP).join("reverse"), text).expect("a record");
}

/// Two volumes that are equal, with something in each.
pub(crate) fn two_volumes() -> Pair {
    let group = "queue.memory = \"1MiB\"\n";
    let mut pair = Pair::new(&PairPlan { volumes: &VOLUMES, volume_bytes: 4 * MIB, group, ..PairPlan::DEFAULT });
    pair.first_sync();
    VOLUMES.iter().for_each(|volume| pair.qemu_io(Side::Near, volume, &["write -P 5 0 1M", "flush"]));
    pair.wait_for_rest(Side::Near);
    pair
}

/// The disk that was given up is left out, and the node starts before its demotion is on record; the other one is away.
fn left_out_and_started() -> Pair {
    let mut pair = two_volumes();
    pair.done(Side::Near, &["group", "detach", GROUP, "data", "--force"]);
    assert!(pair.stop(Side::Near).success());
    pair.kill(Side::Far);
    is_agreed_on(&pair, "data");
    is_announced(&pair);
    pair.serve(Side::Near);
    pair
}

/// Clients came back to a node that was about to be demoted, were answered, and what they wrote was given up.
#[test]
fn no_client_is_answered_between_a_start_and_the_demotion() {
    let mut pair = left_out_and_started();
    let (began, mut acknowledged) = (Instant::now(), Vec::new());
    for pattern in 10..30 {
        let write = format!("write -P {pattern} {} 64k", pattern * 65536);
        let mut client = pair.start_qemu_io(Side::Near, "log", &[&write, "flush"]);
        let until = Instant::now() + Duration::from_millis(200);
        while !client.has_ended() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        if client.has_ended() && client.finish(&mut pair).0 {
            acknowledged.push(pattern);
        }
    }
    println!("{acknowledged:?} of {:?}", began.elapsed());
    pair.until("it is demoted", |pair| !is_primary(pair, Side::Near));
    pair.serve(Side::Far);
    until_served_by_far(&mut pair);
    for pattern in acknowledged {
        pair.qemu_io(Side::Near, "log", &[&format!("read -P {pattern} {} 64k", pattern * 65536)]);
    }
    until_home(pair, 2);
}

/// A disk that came late was given up with the one that was agreed on.
#[test]
fn a_start_gives_up_no_disk_that_nobody_agreed_on() {
    let mut pair = two_volumes();
    pair.stop_both();
    is_announced(&pair);
    pair.serve(Side::Far);
    let aside = |pair: &Pair| VOLUMES.map(|volume| (pair.device(Side::Near, volume), pair.path(volume)));
    aside(&pair).iter().for_each(|(disk, at)| fs::rename(disk, at).expect("a disk"));
    is_agreed_on(&pair, "data");
    let before = fs::read(record(&pair)).expect("a record");
    pair.serve(Side::Near);
    pair.until("it says what it waits for", |pair| {
        pair.status(Side::Near)["reverse"]["why"].as_str().is_some_and(|why| why.contains("volume log"))
    });
    let status = pair.status(Side::Near);
    assert_eq!((&status["role"], &status["reverse"]["home"]), (&"primary".into(), &"near".into()), "{status}");
    assert!(VOLUMES.iter().enumerate().all(|(at, _)| status["volumes"][at]["detached"] != true), "{status}");
    assert_eq!(fs::read(record(&pair)).expect("a record"), before);
    let [_, (disk, at)] = aside(&pair);
    fs::rename(at, disk).expect("a disk");
    until_served_by_far(&mut pair);
    let status = pair.status(Side::Near);
    assert!(status["volumes"][0]["detached"] == true && status["volumes"][1]["detached"] != true, "{status}");
    until_home(pair, 2);
}

/// A primary with all of its disks was demoted, as one of them had been missing before.
#[test]
fn a_disk_that_is_good_again_is_not_given_up() {
    let mut pair = two_volumes();
    assert!(pair.stop(Side::Near).success());
    is_agreed_on(&pair, "data");
    pair.serve(Side::Near);
    pair.until("nothing is left of it", |pair| !record(pair).exists());
    assert!(!pair.log(Side::Near).contains("was demoted"), "{}", pair.log(Side::Near));
    assert!(is_primary(&pair, Side::Near) && pair.status(Side::Near)["volumes"][0]["detached"] != true);
    VOLUMES
        .iter()
        .for_each(|volume| pair.qemu_io(Side::Near, volume, &["read -P 5 0 1M", "write -P 6 1M 64k", "flush"]));
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// What was on record of a demotion that was done held until the other node was promoted: the next start sent nothing for good, and one behind a
/// forced promotion demoted again.
#[test]
fn nothing_of_a_dead_disk_outlives_the_demotion() {
    let mut pair = left_out_and_started();
    pair.until("it is demoted", |pair| !is_primary(pair, Side::Near));
    pair.until("it is not on record", |pair| {
        fs::read_to_string(record(pair)).is_ok_and(|text| !text.contains("without-dead"))
    });
    // The daemon ended before that.
    assert!(pair.stop(Side::Near).success());
    is_agreed_on(&pair, "data");
    pair.serve(Side::Near);
    pair.until("it is promoted", |pair| {
        pair.output_of(Side::Near, &["promote", GROUP, "--force", "--skip-hooks"]).0 < 2
    });
    assert!(!record(&pair).exists());
    pair.qemu_io(Side::Near, "log", &["write -P 7 1M 64k", "flush"]);
    pair.serve(Side::Far);
    pair.until("they have met", |pair| pair.status(Side::Near)["peers"][0]["link"] == "connected");
    let _ = pair.output_of(Side::Near, &["resolve", GROUP, "--keep", "near"]);
    pair.wait_for_rest(Side::Near);
    pair.kill(Side::Far);
    pair.qemu_io(Side::Near, "log", &["write -P 8 0 1M", "write -P 8 1M 1M", "write -P 8 2M 1M", "flush"]);
    pair.serve(Side::Far);
    pair.wait_for_rest(Side::Near);
    assert!(is_primary(&pair, Side::Near));
    pair.stop_both();
    pair.assert_equal(&["log"]);
}

/// Another group, whose writers the daemon has wait until both nodes have met again, when the first one begins anew.
const BESIDE: &str = "[groups.h]\nprimary = \"near\"\nsecondary = \"far\"\nmode = \"sync\"\njournal = \"16MiB\"\nwindow = \"4MiB\"\nqueue.disk = 0\n\
                      [groups.h.volumes.web]\nnear = \"near/web\"\nfar = \"far/web\"\n";

/// Both groups are in step, over a relay.
pub(crate) fn serves_another_group_beside(pair: &mut Pair) {
    for node in Side::BOTH {
        File::create(pair.device(node, "web")).and_then(|disk| disk.set_len(4 * MIB)).expect("a disk");
    }
    let text = fs::read_to_string(pair.config()).expect("a configuration");
    fs::write(pair.config(), text + BESIDE).expect("written");
    pair.lay_relay();
    first_sync(pair);
    pair.done(Side::Near, &["sync", "h", "--full", "--wait"]);
}

/// The answer was that the reverse sync is over, and then the node was demoted.
#[test]
fn a_node_that_was_promoted_by_force_is_not_demoted_behind_that() {
    let mut pair = Pair::new(&PairPlan { volumes: &VOLUMES, volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    serves_another_group_beside(&mut pair);
    pair.stop_both();
    fs::remove_file(pair.device(Side::Near, "data")).expect("a disk");
    is_agreed_on(&pair, "data");
    is_announced(&pair);
    Side::BOTH.iter().for_each(|node| pair.serve(*node));
    let promote = serde_json::json!({ "request": "promote", "group": GROUP, "force": true });
    let (until, mut is_cut) = (Instant::now() + Duration::from_secs(30), false);
    loop {
        let reply = pair.ask(Side::Near, &promote).to_string();
        if reply.contains("the reverse sync is over") {
            break;
        }
        if reply.contains("is under way already") && !is_cut {
            // The group begins anew without its disk, and behind that the daemon waits for the other group's link.
            pair.relay().cut();
            is_cut = true;
        }
        assert!(Instant::now() < until, "{reply}\n{}", pair.log(Side::Near));
    }
    let until = Instant::now() + Duration::from_secs(12);
    while Instant::now() < until {
        assert!(is_primary(&pair, Side::Near), "{}", pair.log(Side::Near));
    }
    pair.until("it serves", |pair| pair.try_qemu_io(Side::Near, "log", &["write -P 7 1M 64k", "flush"]).0);
}

/// A file that nobody changes or removes, root neither, until this is dropped.
struct Unchangeable(PathBuf);

impl Unchangeable {
    fn new(path: PathBuf) -> std::io::Result<Unchangeable> {
        set_unchangeable(&path, true).map(|()| Unchangeable(path))
    }
}

impl Drop for Unchangeable {
    fn drop(&mut self) {
        let _ = set_unchangeable(&self.0, false);
    }
}

fn set_unchangeable(path: &Path, is_so: bool) -> std::io::Result<()> {
    let file = File::open(path)?;
    let mut flags = ioctl_getflags(&file)?;
    flags.set(IFlags::IMMUTABLE, is_so);
    Ok(ioctl_setflags(&file, flags)?)
}

/// Near is about to start, with a record that it is to be demoted without the volume `data`, which nobody can change or remove.
fn record_that_stays(pair: &Pair, test: &str) -> Option<Unchangeable> {
    is_agreed_on(pair, "data");
    let kept = Unchangeable::new(record(pair));
    if let Err(why) = &kept {
        must_skip(test, &[(&format!("root, and files that nobody can remove ({why})"), false)]);
    }
    kept.ok()
}

fn says_that_it_stays(pair: &Pair) -> bool {
    pair.status(Side::Near)["reverse"]["why"].as_str().is_some_and(|why| why.contains("cannot be written"))
}

/// A file that was taken up meanwhile had it send what only this node had, although the next start would have given that up.
#[test]
fn a_primary_that_stands_still_sends_nothing_by_another_file() {
    let mut pair = two_volumes();
    pair.kill(Side::Far);
    pair.qemu_io(Side::Near, "log", &["write -P 6 0 64k", "flush"]);
    assert!(pair.stop(Side::Near).success());
    let Some(kept) = record_that_stays(&pair, "a_primary_that_stands_still_sends_nothing_by_another_file") else {
        return;
    };
    pair.serve(Side::Near);
    pair.serve(Side::Far);
    pair.until("it is not demoted, and waits", |pair| says_that_it_stays(pair));
    pair.until("they meet", |pair| pair.status(Side::Near)["peers"][0]["link"] == "connected");
    pair.edit_config("queue.memory = \"1MiB\"", "queue.memory = \"2MiB\"");
    pair.done(Side::Near, &["config", "apply"]);
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        let status = pair.status(Side::Near);
        assert!(status["role"] == "primary" && status["state"] == "logging", "{status}");
    }
    drop(kept);
    pair.until("nothing is left of it", |pair| !record(pair).exists());
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// The exports were closed for good, and the answer was that this node serves its own clients alone.
#[test]
fn a_forced_promotion_opens_what_waits_for_a_record_to_go() {
    let mut pair = two_volumes();
    assert!(pair.stop(Side::Near).success());
    let Some(kept) = record_that_stays(&pair, "a_forced_promotion_opens_what_waits_for_a_record_to_go") else { return };
    pair.serve(Side::Near);
    pair.until("it waits", |pair| says_that_it_stays(pair));
    assert!(!pair.try_qemu_io(Side::Near, "log", &["read 0 4k"]).0, "the next start would give up what is written");
    let (code, said) = pair.output_of(Side::Near, &["promote", GROUP, "--force"]);
    assert!(code < 2 && said.contains("this node serves its own clients alone"), "{said}");
    pair.until("it does", |pair| pair.try_qemu_io(Side::Near, "log", &["write -P 7 0 64k", "flush"]).0);
    drop(kept);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&VOLUMES);
}

/// The daemon ended between a promotion by force and the end of the record: the next one demoted the node again.
#[test]
fn no_node_is_promoted_that_the_next_start_would_demote() {
    let mut pair = left_out_and_started();
    pair.until("it is demoted", |pair| !is_primary(pair, Side::Near));
    assert!(pair.stop(Side::Near).success());
    let Some(kept) = record_that_stays(&pair, "no_node_is_promoted_that_the_next_start_would_demote") else { return };
    pair.serve(Side::Near);
    let promote = ["promote", GROUP, "--force", "--skip-hooks"];
    pair.until("it is refused", |pair| pair.output_of(Side::Near, &promote).1.contains("cannot be written"));
    assert!(!is_primary(&pair, Side::Near));
    drop(kept);
    pair.until("it is promoted", |pair| pair.output_of(Side::Near, &promote).0 < 2);
    pair.qemu_io(Side::Near, "log", &["write -P 7 1M 64k", "flush"]);
    pair.kill(Side::Near);
    pair.serve(Side::Near);
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        assert!(is_primary(&pair, Side::Near), "{}", pair.log(Side::Near));
    }
    pair.until("it serves", |pair| pair.try_qemu_io(Side::Near, "log", &["read -P 7 1M 64k"]).0);
}

/// The command before near's demotion goes on, which ran so many times.
fn command_goes_on(pair: &Pair, run: usize) {
    fs::write(pair.path(&format!("hook.{run}")), "").expect("written");
}

/// A reverse sync leaves its dead disk out, and meanwhile somebody else begins to demote the node, whose command runs, and will say no.
fn goes_beside_a_demotion(pair: &mut Pair) -> (Background, Background) {
    let (hook, ran) = (pair.path("hook"), pair.path("ran"));
    let script = format!(
        "#!/bin/sh\necho >> {}\nwhile ! [ -e $0.$(wc -l < {0}) ]; do sleep 0.05; done\n[ $(wc -l < {0}) != 2 ]\n",
        ran.display()
    );
    fs::write(&hook, script).expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("its mode");
    let line = format!("hooks.before_demote = [\"{}\"]\njournal = \"16MiB\"\n", hook.display());
    pair.edit_config("journal = \"16MiB\"\n", &line);
    let runs = || fs::read_to_string(&ran).unwrap_or_default().lines().count();
    serves_another_group_beside(pair);
    assert!(pair.stop(Side::Near).success());
    fs::remove_file(pair.device(Side::Near, "data")).expect("a disk");
    pair.serve(Side::Near);
    pair.until("they meet", |pair| pair.status(Side::Near)["peers"][0]["link"] == "connected");
    let typed = Background::start(pair.command(Side::Near, &["sync", GROUP, "--reverse", "--yes"]));
    pair.until("it is about to begin", |_| runs() == 1);
    // The group begins anew without its disk, and behind that the daemon waits for the other group's link.
    pair.relay().cut();
    command_goes_on(pair, 1);
    let mut demotion = None;
    pair.until("somebody else begins to demote it", |pair| {
        let again = demotion.as_mut().is_none_or(Background::has_ended);
        if again {
            demotion = Some(Background::start(pair.command(Side::Near, &["demote", GROUP])));
        }
        runs() == 2
    });
    (typed, demotion.expect("it was typed"))
}

/// The reverse sync was refused, and its record could not be removed at once: a stop behind that opened the exports, and nobody was answered there.
#[test]
fn a_stop_lets_go_of_those_that_were_held_for_a_demotion() {
    let mut pair = Pair::new(&PairPlan { volumes: &VOLUMES, volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    let (typed, demotion) = goes_beside_a_demotion(&mut pair);
    let kept = Unchangeable::new(record(&pair));
    pair.relay().restore();
    let (is_done, said) = typed.finish(&mut pair);
    assert!(!is_done && said.contains("a demotion is under way already"), "{said}");
    command_goes_on(&pair, 2);
    demotion.finish(&mut pair);
    // Its group has begun anew, and serves once it has met the peer.
    pair.until("they have met", |pair| pair.status(Side::Near)["protection"] != "none");
    if let Err(why) = &kept {
        let needed = format!("root, and files that nobody can remove ({why})");
        must_skip("a_stop_lets_go_of_those_that_were_held_for_a_demotion", &[(&needed, false)]);
        return;
    }
    assert!(pair.status(Side::Near)["reverse"]["why"].to_string().contains("cannot be written"));
    drop(kept);
    let said = pair.done(Side::Near, &["sync", GROUP, "--reverse", "--stop"]);
    // The daemon tries to remove the record as well, now and then, and tells the other node behind that.
    let words = ["this node is the primary", "nothing to do", "does not serve the clients of node near any more"];
    assert!(words.iter().any(|word| said.contains(word)), "{said}");
    let at_far = pair.path("far/state/groups").join(GROUP).join("reverse");
    assert!(!at_far.exists(), "the other node has not heard of that");
    let mut client = pair.start_qemu_io(Side::Near, "log", &["write -P 6 0 64k", "flush"]);
    let until = Instant::now() + Duration::from_secs(20);
    while !client.has_ended() {
        assert!(Instant::now() < until, "it waits for good: {}", pair.log(Side::Near));
    }
    let (is_done, said) = client.finish(&mut pair);
    assert!(is_done, "{said}");
}

/// The state disk answered nothing for 20 s just when the record of a reverse sync that was refused was to go: what was refused was carried
/// out when that disk answered again.
#[test]
fn what_is_refused_is_not_carried_out_when_the_state_disk_answers_again() {
    if must_skip_stores("what_is_refused_is_not_carried_out_when_the_state_disk_answers_again") {
        return;
    }
    let mut pair = Pair::new(&PairPlan { volumes: &VOLUMES, volume_bytes: 4 * MIB, ..PairPlan::DEFAULT });
    let store = store_of_group(&pair, Side::Near);
    let (typed, demotion) = goes_beside_a_demotion(&mut pair);
    store.hang();
    let hung = Instant::now();
    let (is_done, said) = typed.finish(&mut pair);
    assert!(!is_done && said.contains("is the primary still"), "{said}");
    std::thread::sleep(Duration::from_secs(20).saturating_sub(hung.elapsed()));
    store.answer_again();
    command_goes_on(&pair, 2);
    let (is_done, said) = demotion.finish(&mut pair);
    assert!(!is_done, "{said}");
    pair.relay().restore();
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        assert!(is_primary(&pair, Side::Near), "{}", pair.log(Side::Near));
    }
    pair.until("nothing is left of it", |pair| !record(pair).exists());
    command_goes_on(&pair, 3);
    pair.until("it is done", |pair| pair.output_of(Side::Near, &["sync", GROUP, "--reverse", "--yes"]).0 < 2);
    until_served_by_far(&mut pair);
}
