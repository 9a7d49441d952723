//! More groups of whole daemons want a full sync than may sync at once.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{Background, GROUP, Pair, PairPlan, Side};
use serde_json::Value;

const SMALL: PairPlan = PairPlan { volumes: &["data"], volume_bytes: VOLUME_BYTES, ..PairPlan::DEFAULT };
const VOLUME_BYTES: u64 = 1 << 20;
/// As many as may sync at once; what they carry takes minutes over a slow link.
const BUSY: [&str; 4] = ["a", "b", "c", "d"];
/// They are in step, and are to be synced all the same.
const WAITING: [&str; 2] = ["y", GROUP];

fn volume(pair: &Pair, node: Side, group: &str) -> PathBuf {
    pair.path(&format!("{}-{group}", node.name()))
}

/// The pair's own group and five more.
fn six_groups() -> Pair {
    let pair = Pair::new(&SMALL);
    let mut text = fs::read_to_string(pair.config()).expect("there");
    for group in [&BUSY[..], &["y"]].concat() {
        text += &format!("[groups.{group}]\nprimary = \"near\"\nsecondary = \"far\"\n");
        text += &format!("journal = \"16MiB\"\nwindow = \"4MiB\"\nqueue.disk = 0\n[groups.{group}.volumes.data]\n");
        for node in Side::BOTH {
            let path = volume(&pair, node, group);
            fs::File::create(&path).and_then(|file| file.set_len(VOLUME_BYTES)).expect("a volume");
            text += &format!("{} = {path:?}\n", node.name());
        }
    }
    fs::write(pair.config(), text).expect("written");
    pair
}

fn status_of(pair: &Pair, group: &str) -> Value {
    pair.ask(Side::Near, &serde_json::json!({ "request": "status", "group": group }))["groups"][0].clone()
}

/// What `sync GROUP --full --wait` says on standard error, by when it says it.
fn said(pair: &Pair, group: &str) -> String {
    fs::read_to_string(pair.path(&format!("said-{group}"))).unwrap_or_default()
}

fn order(pair: &Pair, group: &str) -> Background {
    let command = pair.command(Side::Near, &["sync", group, "--full", "--wait"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$@\" 2> \"$0\""]).arg(pair.path(&format!("said-{group}")));
    shell.arg(command.get_program()).args(command.get_args());
    Background::start(shell)
}

/// That a group replicated already was taken for the end of a sync that had not begun.
#[test]
fn whoever_waits_for_a_sync_in_line_waits_for_that_one() {
    let mut pair = six_groups();
    pair.first_sync();
    pair.until("all groups have met their peer", |pair| {
        let reason = |group: &&str| status_of(pair, group)["reason"].to_string();
        [&BUSY[..], &["y"]].concat().iter().all(|group| reason(group).contains("never been synced"))
    });
    pair.done(Side::Near, &["sync", "y", "--full", "--wait"]);
    let synced = |pair: &Pair, group: &str| pair.counter(Side::Near, &format!("group.{group}.resynced_bytes"));
    let before = WAITING.map(|group| synced(&pair, group));
    let (content, file) = (noise(VOLUME_BYTES as usize), pair.path("noise"));
    fs::write(&file, &content).expect("written");
    for group in BUSY {
        let uri = pair.uri(Side::Near, "data").replace(&format!("/{GROUP}/"), &format!("/{group}/"));
        let mut convert = Command::new("qemu-img");
        convert.args(["convert", "-n", "-f", "raw", "-O", "raw"]).arg(&file).arg(uri);
        let output = convert.output().expect("qemu-img is installed (apt: qemu-utils)");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    pair.done(Side::Near, &["link", "set", "rate=64kbit/s", "compression=off"]);
    let mut orders: Vec<_> = BUSY.map(|group| (group, order(&pair, group))).into_iter().collect();
    pair.until("four sync", |pair| BUSY.iter().all(|group| status_of(pair, group)["state"] == "syncing"));
    for (number, group) in WAITING.into_iter().enumerate() {
        orders.push((group, order(&pair, group)));
        let line =
            format!("{group} waits for its turn: other groups of this node are syncing; it is number {}", number + 1);
        pair.until("it says where it stands", |pair| said(pair, group).contains(&line));
        let status = status_of(&pair, group);
        assert_eq!((status["state"].as_str(), status["sync_ordered"].as_bool()), (Some("replicating"), Some(true)));
    }
    for (group, order) in &mut orders {
        assert!(!order.has_ended(), "{group}: its sync has not been made: {}", said(&pair, group));
    }
    assert_eq!(WAITING.map(|group| synced(&pair, group)), before);
    pair.done(Side::Near, &["link", "set", "rate=unlimited"]);
    for (group, order) in orders {
        let (is_done, reported) = order.finish(&mut pair);
        assert!(is_done && reported.contains("the copy is up to date"), "{group}: {reported}{}", said(&pair, group));
        let status = status_of(&pair, group);
        assert_eq!((status["state"].as_str(), status["sync_ordered"].as_bool()), (Some("replicating"), Some(false)));
    }
    for (group, before) in WAITING.into_iter().zip(before) {
        assert!(synced(&pair, group) >= before + VOLUME_BYTES, "{group} was not synced again");
    }
    pair.stop_both();
    for group in BUSY {
        let images = Side::BOTH.map(|node| fs::read(volume(&pair, node, group)).expect("there"));
        assert!(images[0] == content && images[1] == content, "{group}: the volumes differ");
    }
}

/// Bytes that are no zeroes and do not repeat.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(&mut next).take(count).collect()
}
