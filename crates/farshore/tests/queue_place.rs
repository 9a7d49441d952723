//! Disk queues on a disk of their own: the setting `queues` of a node.

use std::fs;
use std::path::Path;

use engine::cell::BYTES;
use engine::superblock::Superblock;
use forgetful::ForgetfulStore;

use crate::common::{GROUP, Pair, PairPlan, Side, expect, must_skip_stores};

const MIB: u64 = 1 << 20;

/// A pair in step over a line that can be cut. Both nodes keep their disk queues under `queues`.
fn pair(queues: &Path) -> Pair {
    pair_of(queues, &["data"])
}

fn pair_of(queues: &Path, volumes: &[&str]) -> Pair {
    let node = format!("queues = \"{}\"\n", queues.display());
    let plan = PairPlan {
        volumes,
        volume_bytes: 32 << 20,
        group: "queue.memory = \"1MiB\"\nqueue.disk = \"16MiB\"\n",
        head: "[link]\ntimeout = \"1s\"",
        node: &node,
        ..PairPlan::DEFAULT
    };
    let mut pair = Pair::new(&plan);
    pair.lay_relay();
    pair.first_sync();
    pair.wait_for_rest(Side::Near);
    pair
}

/// The line is cut, and 8 MiB are written for which memory has no room.
fn writes_without_line(pair: &Pair) {
    pair.relay().cut();
    pair.wait_for(Side::Near, "queuing");
    let commands: Vec<String> = (0..128).map(|place| format!("write -P {} {}k 64k", 1 + place, place * 64)).collect();
    pair.qemu_io(Side::Near, "data", &commands.iter().map(String::as_str).collect::<Vec<_>>());
}

fn heals(mut pair: Pair) {
    pair.relay().restore();
    pair.wait_for(Side::Near, "replicating");
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(&["data"]);
}

// proves: P2, P5
#[test]
fn a_queue_lies_in_the_directory_of_its_node_and_holds_what_memory_cannot() {
    let scratch = tempfile::tempdir().expect("a directory");
    let pair = pair(scratch.path());
    let before = pair.counter(Side::Near, "group.g.resynced_bytes");
    for node in Side::BOTH {
        let facts = fs::metadata(scratch.path().join(node.name()).join("g")).expect("the queue of the group");
        assert_eq!(facts.len(), 16 * MIB);
        assert!(!pair.path(node.name()).join("state/groups/g/queue").exists(), "a second one");
    }
    writes_without_line(&pair);
    let queue = pair.status(Side::Near)["queue"].clone();
    assert!(queue["disk_bytes"].as_u64() > Some(4 * MIB), "{queue}");
    pair.relay().restore();
    pair.wait_for(Side::Near, "replicating");
    assert_eq!(pair.counter(Side::Near, "group.g.resynced_bytes"), before, "{}", pair.log(Side::Near));
    heals(pair);
}

// proves: P8
/// Nobody mounted the disk: the groups start without a disk queue, in words, and have it again once it is there.
#[test]
fn without_the_directory_groups_go_on_without_a_disk_queue() {
    let scratch = tempfile::tempdir().expect("a directory");
    let queues = scratch.path().join("disk");
    let mut pair = pair(&queues);
    let log = pair.log(Side::Near);
    let words = ["goes on without a disk queue", "Mount the disk of the directory 'queues'"];
    assert!(words.iter().all(|words| log.contains(words)), "{log}");
    let status = pair.status(Side::Near);
    assert!(status["warnings"].to_string().contains("there is no disk queue"), "{status}");
    assert!(!queues.exists(), "what stands for a disk that is not mounted was written to");
    fs::create_dir(&queues).expect("made");
    assert!(pair.stop(Side::Near).success());
    pair.serve(Side::Near);
    assert_eq!(pair.status(Side::Near)["queue"]["disk_limit_bytes"], 16 * MIB, "{}", pair.log(Side::Near));
    pair.wait_for(Side::Near, "replicating");
    writes_without_line(&pair);
    assert!(pair.status(Side::Near)["queue"]["disk_bytes"].as_u64() > Some(4 * MIB));
    heals(pair);
}

/// Each copy of the superblock of the group.
fn changes_superblock(pair: &Pair, node: Side, change: impl Fn(&mut [u8])) {
    let path = pair.path(node.name()).join("state/groups/g/superblock");
    let mut bytes = fs::read(&path).expect("its superblock");
    bytes.chunks_mut(BYTES).for_each(change);
    fs::write(&path, bytes).expect("written");
}

// proves: P4
/// A start was cut short while it wrote what the queue holds, or the superblock says nothing of that any more. The group is taken out of the file, to
/// come again later: its queue was gone then, and with it what its volumes need.
#[test]
fn a_group_that_leaves_keeps_the_queue_that_its_volumes_need() {
    let group = "queue.disk = \"16MiB\"\n";
    let mut pair = Pair::new(&PairPlan { volumes: &["data"], volume_bytes: 4 * MIB, group, ..PairPlan::DEFAULT });
    pair.first_sync();
    pair.stop_both();
    changes_superblock(&pair, Side::Near, |copy| {
        if let Ok(mut found) = Superblock::decode(copy) {
            found.queue_redo = true;
            copy.copy_from_slice(&found.encode()[..BYTES]);
        }
    });
    changes_superblock(&pair, Side::Far, |copy| copy[200] ^= 1);
    pair.edit_config(group, "queue.disk = \"8MiB\"\n");
    Side::BOTH.iter().for_each(|node| pair.serve(*node));
    assert!(pair.log(Side::Near).contains("set 'queue.disk' and 'queues' back"), "{}", pair.log(Side::Near));
    let text = fs::read_to_string(pair.config()).expect("a configuration");
    let (head, _) = text.split_once("[groups.").expect("its groups come last");
    let other = "[groups.h]\nprimary = \"near\"\nsecondary = \"far\"\nmode = \"async\"\njournal = \"16MiB\"\nwindow = \"4MiB\"\nqueue.disk = 0\n\
                 [groups.h.volumes.web]\nnear = \"near/web\"\nfar = \"far/web\"\n";
    fs::write(pair.config(), head.to_owned() + other).expect("written");
    for node in Side::BOTH {
        fs::File::create(pair.device(node, "web")).and_then(|disk| disk.set_len(4 * MIB)).expect("a disk");
    }
    for node in Side::BOTH {
        let queue = pair.path(node.name()).join("state/groups/g/queue");
        let before = fs::metadata(&queue).map(|facts| facts.len()).ok();
        pair.done(node, &["config", "apply"]);
        assert_eq!(fs::metadata(&queue).map(|facts| facts.len()).ok(), before.filter(|_| before.is_some()));
        assert!(before.is_some() && pair.log(node).contains("its disk queue stays"), "{before:?} {}", pair.log(node));
    }
}

// proves: P1, P8
/// The disk of the queues hangs, which is told beside each volume. No volume is dead by that, and none is given up by a word.
#[test]
fn a_disk_of_queues_that_hangs_makes_no_volume_dead() {
    if must_skip_stores("a_disk_of_queues_that_hangs_makes_no_volume_dead") {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let store = ForgetfulStore::mount(scratch.path()).expect("FUSE and root: asked before");
    let mut pair = pair_of(scratch.path(), &["data", "log"]);
    pair.relay().cut();
    pair.wait_for(Side::Near, "queuing");
    store.hang();
    let commands: Vec<String> = (0..128).map(|place| format!("write -P 7 {}k 64k", place * 64)).collect();
    let writer = pair.start_qemu_io(Side::Near, "data", &commands.iter().map(String::as_str).collect::<Vec<_>>());
    pair.until("it is told", |pair| pair.status(Side::Near)["volumes"][0]["error"].to_string().contains("disk queue"));
    let words = ["nothing was changed", "nothing is known to be wrong with the disk"];
    expect(&pair.run(Side::Near, &["group", "detach", GROUP, "log"]), 2, &words);
    store.answer_again();
    pair.relay().restore();
    writer.finish(&mut pair);
    pair.wait_for(Side::Near, "replicating");
}
