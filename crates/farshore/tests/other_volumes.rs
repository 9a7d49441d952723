//! A group goes on with other volumes (decision 68): they come, leave, and go from one group to another, with the group's history, and what
//! stays is not sent again.

use std::fs::{self, File};
use std::thread::sleep;
use std::time::Duration;

use crate::common::{DaemonStart, GROUP, Pair, PairPlan, Side, expect};

const MIB: u64 = 1 << 20;

/// A volume's table for `group`, with devices of its name.
fn table(group: &str, volume: &str) -> String {
    format!("[groups.{group}.volumes.{volume}]\nnear = \"near/{volume}\"\nfar = \"far/{volume}\"\n")
}

/// The table as the pair writes it.
fn first_table(pair: &Pair, volume: &str) -> String {
    let device = |node| pair.device(node, volume).display().to_string();
    let (near, far) = (device(Side::Near), device(Side::Far));
    format!("[groups.{GROUP}.volumes.{volume}]\nnear = \"{near}\"\nfar = \"{far}\"\n")
}

fn text(pair: &Pair) -> String {
    fs::read_to_string(pair.config()).expect("the configuration is there")
}

fn become_text(pair: &Pair, text: &str) {
    fs::write(pair.config(), text).expect("written");
}

/// A device of 4 MiB whose first bytes are these.
fn device(pair: &Pair, node: Side, volume: &str, content: &[u8]) {
    let path = pair.device(node, volume);
    fs::write(&path, content).expect("written");
    File::options().write(true).open(path).and_then(|file| file.set_len(4 * MIB)).expect("room");
}

fn pattern(byte: u8, blocks: u64) -> Vec<u8> {
    (0..blocks).flat_map(|at| [[byte, at as u8, (at >> 8) as u8, 1]; 1024].concat()).collect()
}

fn status_of(pair: &Pair, node: Side, group: &str) -> serde_json::Value {
    let output = pair.run(node, &["status", group, "--json", "--local"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    status["groups"][0].clone()
}

fn until_in_step(pair: &mut Pair, group: &str) {
    pair.until("the group is in step", |pair| {
        let status = status_of(pair, Side::Near, group);
        status["state"] == "replicating" && status["peers"][0]["dirty_bytes"] == 0
    });
}

/// What came is set aside, and stays as it is, until this is typed.
fn word(pair: &mut Pair, group: &str, volume: &str) {
    let is_there = |pair: &Pair, node| status_of(pair, node, group)["peers"][0]["link"] == "connected";
    pair.until("both nodes meet", |pair| {
        let waits = status_of(pair, Side::Near, group)["reason"].to_string().contains("no order is left");
        is_there(pair, Side::Near) && (waits || status_of(pair, Side::Near, group)["state"] == "replicating")
    });
    assert!(flag(pair, Side::Near, (group, volume), "set_aside"));
    assert!(flag(pair, Side::Far, (group, volume), "set_aside"));
    pair.done(Side::Near, &["sync", group, "--volume", volume]);
}

fn flag(pair: &Pair, node: Side, (group, volume): (&str, &str), key: &str) -> bool {
    let status = status_of(pair, node, group);
    let volumes = status["volumes"].as_array().cloned().unwrap_or_default();
    volumes.iter().any(|one| one["name"] == volume && one[key] == true)
}

fn apply_on_both(pair: &mut Pair) {
    Side::BOTH.into_iter().for_each(|node| drop(pair.done(node, &["config", "apply"])));
}

fn volumes_of(pair: &Pair, node: Side, group: &str) -> Vec<String> {
    let status = status_of(pair, node, group);
    let volumes = status["volumes"].as_array().cloned().unwrap_or_default();
    volumes.iter().map(|volume| volume["name"].as_str().unwrap_or_default().to_owned()).collect()
}

// proves: P2, rule 6
/// Half of what the new volume holds stands on the other node already. The other half travels, and nothing of the volumes that stay; a client
/// of one of those goes on writing.
#[test]
fn a_volume_comes_beside_one_that_is_written_to() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.qemu_io(Side::Near, "log", &["write -P 7 0 8M", "flush"]);
    pair.wait_for_rest(Side::Near);
    device(&pair, Side::Near, "a", &pattern(3, 256));
    device(&pair, Side::Far, "a", &pattern(3, 128));
    let commands: Vec<String> =
        (0..80).flat_map(|at| [format!("write -P {} {}k 4k", at + 1, at * 64), "sleep 100".to_owned()]).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let client = pair.start_qemu_io(Side::Near, "data", &commands);
    pair.until("it is attached", |pair| status_of(pair, Side::Near, GROUP)["volumes"][0]["clients"] == 1);
    let old = text(&pair);
    become_text(&pair, &(old + &table(GROUP, "a")));
    expect(
        &pair.run(Side::Near, &["config", "plan"]),
        0,
        &[
            "restart  g: volume a comes: it is set aside until 'farshore sync g --volume a' on near",
            "sends what differs from near to far",
            "1 client attached: their requests wait meanwhile",
        ],
    );
    let position = |pair: &Pair| status_of(pair, Side::Far, GROUP)["generation"].clone();
    let generation = position(&pair);
    pair.done(Side::Far, &["config", "apply"]);
    assert_eq!(volumes_of(&pair, Side::Far, GROUP), ["a", "data", "log"]);
    assert_eq!(position(&pair), generation, "it is the same history");
    let refused = pair.run(Side::Far, &["promote", GROUP]);
    expect(&refused, 2, &["volume a has a disk here that no sync has filled"]);
    pair.done(Side::Near, &["config", "apply"]);
    pair.until("the others are in order", |pair| status_of(pair, Side::Near, GROUP)["state"] == "replicating");
    assert!(flag(&pair, Side::Far, (GROUP, "a"), "unfilled"));
    // Typed where that content stands it was carried to the other node, as if nothing were there.
    let carried = pair.run(Side::Far, &["sync", GROUP, "--volume", "a"]);
    expect(&carried, 2, &["what stands on the volume's device here would be overwritten", "or here with '--on near'"]);
    let there = fs::read(pair.device(Side::Far, "a")).expect("there");
    assert!(
        there[..512 << 10] == pattern(3, 128) && there[512 << 10..].iter().all(|byte| *byte == 0),
        "nobody ordered it"
    );
    word(&mut pair, GROUP, "a");
    until_in_step(&mut pair, GROUP);
    let (is_fine, said) = client.finish(&mut pair);
    assert!(is_fine, "{said}");
    pair.wait_for_rest(Side::Near);
    let shipped = pair.counter(Side::Near, "group.g.shipped_bytes");
    let written = 80 * 4096;
    assert!((MIB / 2..=MIB / 2 + written).contains(&shipped), "{shipped} bytes");
    let sent = pair.counter(Side::Near, "group.g.resynced_bytes");
    // What is compared and differs counts twice.
    assert!(sent <= 4 * MIB + shipped + written, "nothing of the others is compared: {sent} bytes");
    // It is one of the group's volumes from now on.
    pair.qemu_io(Side::Near, "a", &["read -P 3 0 1", "write -P 9 1M 64k", "flush"]);
    pair.wait_for_rest(Side::Near);
    for node in Side::BOTH {
        pair.until("nothing is set aside", |pair| status_of(pair, node, GROUP)["volumes"][0]["set_aside"] == false);
    }
    pair.stop_both();
    pair.assert_equal(&["a", "data", "log"]);
}

// proves: P3
/// It leaves in front of the others, which changes their positions, and comes again: then all of it is compared, and nothing sent.
#[test]
fn a_volume_leaves_and_comes_again() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 1M", "flush"]);
    pair.qemu_io(Side::Near, "log", &["write -P 6 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    let (old, data) = (text(&pair), first_table(&pair, "data"));
    let without = old.replace(&data, "");
    assert_ne!(old, without);
    become_text(&pair, &without);
    let client = pair.start_qemu_io(Side::Near, "data", &["read 0 4k", "sleep 60000"]);
    pair.until("it is attached", |pair| status_of(pair, Side::Near, GROUP)["volumes"][0]["clients"] == 1);
    let refused = pair.run(Side::Near, &["config", "apply"]);
    expect(&refused, 2, &["1 client is attached", "--close-clients"]);
    assert_eq!(volumes_of(&pair, Side::Near, GROUP), ["data", "log"]);
    pair.done(Side::Near, &["config", "apply", "--close-clients"]);
    drop(client);
    // Until the other node has the same file the two do not meet, and what is written is dirty, or queued.
    pair.until("it is served without the peer", |pair| {
        pair.try_qemu_io(Side::Near, "log", &["write -P 8 2M 64k", "flush"]).0
    });
    pair.done(Side::Far, &["config", "apply"]);
    until_in_step(&mut pair, GROUP);
    assert!(pair.counter(Side::Near, "group.g.resynced_bytes") <= 128 << 10, "what was written alone travels");
    let kept = fs::read(pair.device(Side::Near, "data")).expect("there");
    assert!(kept[..MIB as usize].iter().all(|byte| *byte == 5), "its device keeps its bytes");

    become_text(&pair, &old);
    apply_on_both(&mut pair);
    word(&mut pair, GROUP, "data");
    until_in_step(&mut pair, GROUP);
    assert_eq!(pair.counter(Side::Near, "group.g.shipped_bytes"), 0, "both have it");
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
    assert!(pair.content(Side::Far, "log")[2 << 20..(2 << 20) + (64 << 10)].iter().all(|byte| *byte == 8));
}

#[test]
fn a_volume_goes_from_one_group_to_another() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    for node in Side::BOTH {
        device(&pair, node, "web", &[]);
    }
    let head = "\n[groups.h]\nprimary = \"near\"\nsecondary = \"far\"\nmode = \"async\"\nstart_alone = \"serve\"\njournal = \"16MiB\"\nwindow = \"4MiB\"\nqueue.disk = 0\n";
    become_text(&pair, &(text(&pair) + head + &table("h", "web")));
    pair.first_sync();
    pair.done(Side::Near, &["sync", "h", "--full", "--wait"]);
    pair.qemu_io(Side::Near, "log", &["write -P 6 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    let log = first_table(&pair, "log");
    let moved = text(&pair).replace(&log, "") + &log.replace("[groups.g.", "[groups.h.");
    become_text(&pair, &moved);
    expect(&pair.run(Side::Near, &["config", "plan"]), 0, &["g: volume log leaves", "h: volume log comes"]);
    apply_on_both(&mut pair);
    word(&mut pair, "h", "log");
    for (group, volumes) in [(GROUP, vec!["data"]), ("h", vec!["log", "web"])] {
        until_in_step(&mut pair, group);
        Side::BOTH.into_iter().for_each(|node| assert_eq!(volumes_of(&pair, node, group), volumes));
    }
    let uri = pair.uri(Side::Near, "log").replace(&format!("{GROUP}/log"), "h/log");
    let mut qemu = std::process::Command::new("qemu-io");
    let output =
        qemu.args(["-f", "raw", &uri, "-c", "read -P 6 0 1M", "-c", "write -P 4 1M 64k", "-c", "flush"]).output();
    let output = output.expect("qemu-io runs");
    assert!(output.status.success(), "{output:?}");
    until_in_step(&mut pair, "h");
    pair.stop_both();
    pair.assert_equal(&["data", "log", "web"]);
}

// proves: P1
/// The device was once in a group with another primary, and that group left the file. What the node was to the device's group since counts.
#[test]
fn a_volume_is_not_judged_by_a_group_that_left_before() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    for (node, volume) in Side::BOTH.into_iter().flat_map(|node| [(node, "web"), (node, "mail")]) {
        device(&pair, node, volume, &[]);
    }
    let head = |group: &str, primary: &str, secondary: &str| {
        format!(
            "\n[groups.{group}]\nprimary = \"{primary}\"\nsecondary = \"{secondary}\"\nmode = \"async\"\nstart_alone = \"serve\"\n\
             journal = \"16MiB\"\nwindow = \"4MiB\"\nqueue.disk = 0\n"
        )
    };
    let alone = text(&pair);
    become_text(&pair, &(alone.clone() + &head("h", "far", "near") + &table("h", "web")));
    pair.first_sync();
    pair.done(Side::Far, &["sync", "h", "--full", "--wait"]);
    become_text(&pair, &alone);
    apply_on_both(&mut pair);
    let with_k = alone.clone() + &head("k", "near", "far") + &table("k", "mail");
    become_text(&pair, &(with_k.clone() + &table("k", "web")));
    apply_on_both(&mut pair);
    pair.until("they meet", |pair| status_of(pair, Side::Near, "k")["peers"][0]["link"] == "connected");
    pair.done(Side::Near, &["sync", "k", "--full", "--wait"]);
    until_in_step(&mut pair, "k");
    become_text(&pair, &(with_k + &table(GROUP, "web")));
    expect(&pair.run(Side::Near, &["config", "plan"]), 0, &["k: volume web leaves", "g: volume web comes"]);
    apply_on_both(&mut pair);
    word(&mut pair, GROUP, "web");
    until_in_step(&mut pair, GROUP);
}

// proves: P3, P6, P7
/// The primary's disk is exchanged for a blank one, by taking the volume out of the file and putting it in again. The only copy stands on the
/// other node: it stays there, and is what a forced promotion serves.
#[test]
fn a_blank_disk_that_comes_overwrites_nothing() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.qemu_io(Side::Near, "log", &["write -P 6 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    let (old, log) = (text(&pair), first_table(&pair, "log"));
    become_text(&pair, &old.replace(&log, ""));
    pair.done(Side::Near, &["config", "apply"]);
    let device = pair.device(Side::Near, "log");
    let bytes = fs::metadata(&device).expect("there").len();
    fs::remove_file(&device).expect("it is gone");
    File::create(&device).and_then(|file| file.set_len(bytes)).expect("a blank one");
    become_text(&pair, &old);
    pair.done(Side::Near, &["config", "apply"]);
    pair.until("the others are in order", |pair| status_of(pair, Side::Near, GROUP)["state"] == "replicating");
    pair.qemu_io(Side::Near, "data", &["write -P 4 0 1M", "flush"]);
    pair.until("it is told", |pair| flag(pair, Side::Far, (GROUP, "log"), "set_aside"));
    sleep(Duration::from_secs(2));
    assert!(flag(&pair, Side::Near, (GROUP, "log"), "set_aside"));
    let there = fs::read(pair.device(Side::Far, "log")).expect("there");
    assert!(there[..MIB as usize].iter().all(|byte| *byte == 6), "the only copy");
    assert!(!flag(&pair, Side::Far, (GROUP, "log"), "unfilled"), "nothing came there");
    pair.stop_both();
}

// proves: P1, P6
/// What counts of it stands on the node that is primary of the one group, and the other node is primary of the other.
#[test]
fn a_volume_does_not_go_to_a_group_with_another_primary() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    Side::BOTH.into_iter().for_each(|node| device(&pair, node, "web", &[]));
    let head = "\n[groups.h]\nprimary = \"far\"\nsecondary = \"near\"\nmode = \"async\"\nstart_alone = \"serve\"\njournal = \"16MiB\"\nwindow = \"4MiB\"\nqueue.disk = 0\n";
    become_text(&pair, &(text(&pair) + head + &table("h", "web")));
    pair.first_sync();
    pair.done(Side::Far, &["sync", "h", "--full", "--wait"]);
    let (old, log) = (text(&pair), first_table(&pair, "log"));
    become_text(&pair, &(old.replace(&log, "") + &log.replace("[groups.g.", "[groups.h.")));
    for node in Side::BOTH {
        expect(&pair.run(node, &["config", "plan"]), 0, &["not now: the device of volume log is volume log of g"]);
        let refused = pair.run(node, &["config", "apply"]);
        expect(
            &refused,
            2,
            &["nothing was changed: h: the device of volume log", "First 'farshore switchover g', or of h,"],
        );
        assert_eq!(volumes_of(&pair, node, GROUP), ["data", "log"]);
    }
    // Nor in two steps.
    become_text(&pair, &old.replace(&log, ""));
    apply_on_both(&mut pair);
    become_text(&pair, &(old.replace(&log, "") + &log.replace("[groups.g.", "[groups.h.")));
    for node in Side::BOTH {
        expect(&pair.run(node, &["config", "apply"]), 2, &["was volume log of g", "groups/g/left"]);
    }
    pair.stop_both();
}

// proves: P3, P7
/// By a slip each table has one device of either volume. Nothing compares names with devices, so nothing passes for equal before it was compared.
#[test]
fn volumes_under_new_names_are_compared() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 64k", "flush"]);
    pair.qemu_io(Side::Near, "log", &["write -P 6 0 64k", "flush"]);
    pair.wait_for_rest(Side::Near);
    let (data, log) = (first_table(&pair, "data"), first_table(&pair, "log"));
    let far = |volume| format!("far = \"{}\"", pair.device(Side::Far, volume).display());
    let one = data.replace("volumes.data]", "volumes.one]").replace(&far("data"), &far("log"));
    let two = log.replace("volumes.log]", "volumes.two]").replace(&far("log"), &far("data"));
    become_text(&pair, &(text(&pair).replace(&data, "").replace(&log, "") + &one + &two));
    let plan = pair.run(Side::Far, &["config", "plan"]);
    expect(
        &plan,
        0,
        &[
            "volume one is volume log under a new name; as nothing tells whether the other node calls the same volume so",
        ],
    );
    Side::BOTH.into_iter().for_each(|node| drop(pair.done(node, &["config", "apply", "--close-clients"])));
    // No order is left, and nobody is answered as if there were a copy.
    word(&mut pair, GROUP, "one");
    word(&mut pair, GROUP, "two");
    until_in_step(&mut pair, GROUP);
    pair.stop_both();
    for (near, far) in [("data", "log"), ("log", "data")] {
        assert!(pair.content(Side::Near, near) == pair.content(Side::Far, far), "{near} is {far} there");
    }
}

// proves: P2, P3
/// Names are exchanged on the primary alone, step by step: in the end both nodes have the names that they had. What either calls by a name is
/// another volume, and nothing passes for its copy before somebody has said so.
#[test]
fn names_that_one_node_exchanged_pass_for_nothing() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 64k", "flush"]);
    pair.qemu_io(Side::Near, "log", &["write -P 6 0 64k", "flush"]);
    pair.wait_for_rest(Side::Near);
    let old = text(&pair);
    let (data, log) = (first_table(&pair, "data"), first_table(&pair, "log"));
    let (to_log, to_data) =
        (log.replace("volumes.log]", "volumes.data]"), data.replace("volumes.data]", "volumes.log]"));
    let between = data.replace("volumes.data]", "volumes.tmp]");
    let rest = old.replace(&data, "").replace(&log, "");
    for tables in [between.clone() + &log, between + &to_log, to_data + &to_log] {
        become_text(&pair, &(rest.clone() + &tables));
        pair.done(Side::Near, &["config", "apply", "--close-clients"]);
    }
    pair.until("nothing is in order", |pair| {
        status_of(pair, Side::Near, GROUP)["reason"].to_string().contains("no order is left")
    });
    for volume in ["data", "log"] {
        assert!(flag(&pair, Side::Near, (GROUP, volume), "set_aside"));
        pair.done(Side::Near, &["sync", GROUP, "--volume", volume]);
    }
    until_in_step(&mut pair, GROUP);
    pair.stop_both();
    // What the primary calls so counts: under the file's names its devices are exchanged.
    for (near, far) in [("data", "log"), ("log", "data")] {
        assert!(pair.content(Side::Near, near) == pair.content(Side::Far, far), "{near} is {far} there");
    }
}

// proves: P1
/// The copy has a new name for its volume, the primary not yet, and is lost: what stands here is all that was acknowledged.
#[test]
fn a_copy_under_a_new_name_can_be_promoted() {
    let mut pair = Pair::replicating(&PairPlan { volumes: &["data"], mode: "sync", ..PairPlan::DEFAULT });
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 64k", "flush"]);
    pair.wait_for_rest(Side::Near);
    become_text(&pair, &text(&pair).replace("volumes.data]", "volumes.base]"));
    pair.done(Side::Far, &["config", "apply"]);
    pair.kill(Side::Near);
    expect(&pair.run(Side::Far, &["promote", GROUP]), 2, &["has a new name here"]);
    let promoted = pair.run(Side::Far, &["promote", GROUP, "--force"]);
    assert_eq!(promoted.status.code(), Some(1), "{promoted:?}");
    pair.qemu_io(Side::Far, "base", &["read -P 5 0 64k"]);
}

// proves: P1, P3
/// A volume goes to another group while its own cannot let it go: the one that it goes to waits, or it would write what the other one's bits say
/// nothing of.
#[test]
fn a_start_takes_no_volume_from_a_group_that_holds_it() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    Side::BOTH.into_iter().for_each(|node| device(&pair, node, "web", &[]));
    let head = "\n[groups.h]\nprimary = \"near\"\nsecondary = \"far\"\nmode = \"async\"\nstart_alone = \"serve\"\njournal = \"16MiB\"\nwindow = \"4MiB\"\nqueue.disk = 0\n";
    become_text(&pair, &(text(&pair) + head + &table("h", "web")));
    pair.first_sync();
    pair.done(Side::Near, &["sync", "h", "--full", "--wait"]);
    pair.qemu_io(Side::Near, "log", &["write -P 6 0 64k", "flush"]);
    // No stop of either group is clean. The file has one volume in the other group by then; that one has nothing to be told of its own.
    let (old, log) = (text(&pair), first_table(&pair, "log"));
    pair.kill(Side::Near);
    become_text(&pair, &(old.replace(&log, "") + &log.replace("[groups.g.", "[groups.h.")));
    pair.serve(Side::Near);
    for group in [GROUP, "h"] {
        let (code, shown) = pair.output_of(Side::Near, &["status", group, "--local"]);
        assert!(code != 0 && shown.contains("its last stop was not clean"), "{group}: {shown}");
    }
    // With the old names all is as it was.
    assert!(pair.stop(Side::Near).success());
    become_text(&pair, &old);
    pair.serve(Side::Near);
    until_in_step(&mut pair, GROUP);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

/// Both daemons are stopped, the file is changed, and they start: as `config apply` does it.
#[test]
fn a_start_takes_up_other_volumes_too() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.qemu_io(Side::Near, "log", &["write -P 6 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    device(&pair, Side::Near, "a", &pattern(3, 16));
    device(&pair, Side::Far, "a", &[]);
    // A new name for the device of one of them.
    let renamed = text(&pair).replace("volumes.log]", "volumes.wal]") + &table(GROUP, "a");
    become_text(&pair, &renamed);
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    word(&mut pair, GROUP, "wal");
    pair.until("the one with another name is filled", |pair| {
        status_of(pair, Side::Far, GROUP)["volumes"][2]["unfilled"] == false
    });
    word(&mut pair, GROUP, "a");
    until_in_step(&mut pair, GROUP);
    assert_eq!(volumes_of(&pair, Side::Far, GROUP), ["a", "data", "wal"]);
    let shipped = pair.counter(Side::Near, "group.g.shipped_bytes");
    // What has another name is compared, or travels whole where the first sync behind the start was over before the word; zeroes never do.
    assert!([16 * 4096, 16 * 4096 + (1 << 20)].contains(&shipped), "{shipped}");
    pair.stop_both();
    pair.assert_equal(&["a", "data", "log"]);
}

/// The other node keeps the file of before: they do not meet, and do so again once the first one has it back.
#[test]
fn a_file_that_was_changed_on_one_node_only_is_told() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 4M", "flush"]);
    pair.wait_for_rest(Side::Near);
    device(&pair, Side::Near, "web", &[]);
    let old = text(&pair);
    become_text(&pair, &(old.clone() + &table(GROUP, "web")));
    pair.done(Side::Near, &["config", "apply"]);
    pair.until("the difference is told", |pair| {
        status_of(pair, Side::Near, GROUP)["peers"][0]["link_reason"].to_string().contains("config apply")
    });
    pair.until("it is served without the peer", |pair| pair.try_qemu_io(Side::Near, "web", &["write -P 9 0 64k"]).0);
    pair.qemu_io(Side::Near, "data", &["write -P 6 8M 64k", "flush"]);
    become_text(&pair, &old);
    pair.done(Side::Near, &["config", "apply"]);
    until_in_step(&mut pair, GROUP);
    assert!(pair.counter(Side::Near, "group.g.resynced_bytes") <= 128 << 10);
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}

/// A sync is under way: both nodes say so, nothing stops, and it is done behind it.
#[test]
fn volumes_do_not_change_in_the_midst_of_a_sync() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.done(Side::Near, &["link", "set", "rate=2Mbit/s"]);
    pair.done(Side::Near, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 12M", "flush"]);
    pair.done(Side::Near, &["sync", GROUP]);
    pair.wait_for(Side::Near, "syncing");
    Side::BOTH.into_iter().for_each(|node| device(&pair, node, "web", &[]));
    become_text(&pair, &(text(&pair) + &table(GROUP, "web")));
    expect(&pair.run(Side::Near, &["config", "plan"]), 0, &["volume web comes", "not now: a sync is under way"]);
    for node in Side::BOTH {
        pair.until("it is refused", |pair| {
            let (code, said) = pair.output_of(node, &["config", "apply"]);
            code == 2 && said.contains("nothing was changed: g: a sync")
        });
    }
    assert_eq!(status_of(&pair, Side::Near, GROUP)["state"], "syncing");
    pair.done(Side::Near, &["link", "set", "rate=default"]);
    until_in_step(&mut pair, GROUP);
    apply_on_both(&mut pair);
    word(&mut pair, GROUP, "web");
    until_in_step(&mut pair, GROUP);
    pair.stop_both();
    pair.assert_equal(&["data", "log", "web"]);
}

// proves: P9
/// The daemon is killed at several moments of an apply. What it finds is the set of before or the new one, whole; with a stop that was
/// not clean it asks for the old names.
#[test]
fn an_apply_may_be_killed_at_any_moment() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    pair.qemu_io(Side::Near, "log", &["write -P 6 0 1M", "flush"]);
    pair.wait_for_rest(Side::Near);
    let old = text(&pair);
    for (at, delay) in [5, 30, 80, 200].into_iter().enumerate() {
        let name = format!("a{at}");
        Side::BOTH.into_iter().for_each(|node| device(&pair, node, &name, &pattern(at as u8 + 1, 16)));
        let before = text(&pair);
        let new = before.clone() + &table(GROUP, &name);
        become_text(&pair, &new);
        let mut apply = pair.command(Side::Near, &["config", "apply"]).spawn().expect("it starts");
        sleep(Duration::from_millis(delay));
        pair.kill(Side::Near);
        let _ = apply.wait();
        assert!(matches!(pair.serve_or_end(Side::Near), DaemonStart::Up));
        let status = status_of(&pair, Side::Near, GROUP);
        if status["state"] == "failed" {
            assert!(status["reason"].to_string().contains("its last stop was not clean"), "{status}");
            pair.kill(Side::Near);
            become_text(&pair, &before);
            pair.serve(Side::Near);
            until_in_step(&mut pair, GROUP);
            become_text(&pair, &new);
        }
        apply_on_both(&mut pair);
        word(&mut pair, GROUP, &name);
        until_in_step(&mut pair, GROUP);
        pair.wait_for_rest(Side::Near);
    }
    assert_ne!(old, text(&pair));
    assert_eq!(volumes_of(&pair, Side::Near, GROUP).len(), 6);
    pair.stop_both();
    pair.assert_equal(&["a0", "a1", "a2", "a3", "data", "log"]);
}

/// Nothing is left of the group: that is another group.
#[test]
fn a_set_that_shares_nothing_is_refused() {
    let mut pair = Pair::replicating(&PairPlan::DEFAULT);
    for name in ["one", "two"] {
        device(&pair, Side::Near, name, &[]);
        device(&pair, Side::Far, name, &[]);
    }
    let (data, log) = (first_table(&pair, "data"), first_table(&pair, "log"));
    let tables = table(GROUP, "one") + &table(GROUP, "two");
    become_text(&pair, &(text(&pair).replace(&data, "").replace(&log, "") + &tables));
    expect(
        &pair.run(Side::Near, &["config", "apply"]),
        2,
        &["nothing was changed: g: none of its volumes of before (data, log) is left"],
    );
    pair.stop_both();
}
