//! `inspect` on the files of a real pair: sound ones, damaged ones, and those of a daemon that was killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{GROUP, Pair, PairPlan, Side};
use serde_json::Value;

const SMALL: PairPlan =
    PairPlan { volumes: &["data", "log"], volume_bytes: 2 << 20, mode: "sync", ..PairPlan::DEFAULT };
const NAMES: [&str; 5] = ["superblock", "bitmap", "journal", "fingerprints", "activity"];

fn file(pair: &Pair, node: Side, name: &str) -> PathBuf {
    pair.path(node.name()).join("state/groups").join(GROUP).join(name)
}

/// Exit code, what was said as text, and the same as JSON; the files must be as they were.
fn inspect(files: &[PathBuf]) -> (i32, String, Value) {
    let read = |path: &Path| fs::read(path).ok();
    let before: Vec<_> = files.iter().map(|path| read(path)).collect();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farshore"));
        command.arg("inspect").args(words).args(files).output().expect("the binary runs")
    };
    let (text, json) = (run(&[]), run(&["--json"]));
    assert_eq!(text.status.code(), json.status.code());
    assert!(before == files.iter().map(|path| read(path)).collect::<Vec<_>>(), "inspect never writes");
    let said = String::from_utf8_lossy(&[text.stdout, text.stderr].concat()).into_owned();
    (text.status.code().expect("it ends"), said, serde_json::from_slice(&json.stdout).expect("one object"))
}

#[test]
fn the_files_of_a_real_pair_are_explained() {
    let mut pair = Pair::replicating(&SMALL);
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 1M", "flush"]);
    pair.until("every dirty bit is cleared", |pair| pair.status(Side::Near)["peers"][0]["dirty_bytes"] == 0);
    pair.done(Side::Near, &["set", GROUP, "mode=logging"]);
    pair.qemu_io(Side::Near, "log", &["write -P 8 64k 96k", "flush"]);
    pair.stop_both();

    let files = |pair: &Pair, node| NAMES.map(|name| file(pair, node, name)).to_vec();
    let mut near = files(&pair, Side::Near);
    near.push(pair.path("near").join("state/overrides.toml"));
    let (code, said, json) = inspect(&near);
    assert_eq!(code, 0, "{said}");
    for part in
        ["role               primary", "clean: the bitmap", "volume log", "24 of 512 regions dirty", "mode = logging"]
    {
        assert!(said.contains(part), "no {part:?} in: {said}");
    }
    let facts = |json: &Value, at: usize| json["files"][at]["facts"].clone();
    assert_eq!(facts(&json, 1)["maps"][1]["first_ranges"], serde_json::json!([[16, 39]]), "{said}");
    assert_eq!(facts(&json, 3)["volumes"][0]["size_bytes"], 2 << 20);

    let (code, said, _) = inspect(&files(&pair, Side::Far));
    assert!(code == 0 && said.contains("role               secondary"), "{code}: {said}");

    // Damage has its place, and its exit code.
    let journal = file(&pair, Side::Far, "superblock");
    let mut bytes = fs::read(&journal).expect("there");
    bytes[300] ^= 1;
    fs::write(&journal, &bytes).expect("written");
    let (code, said, _) = inspect(std::slice::from_ref(&journal));
    assert!(code == 1 && said.contains("bytes 0 to 4095 (slot 0) are damaged"), "{code}: {said}");
    let (code, said, _) = inspect(&[journal, pair.path("none"), pair.config()]);
    assert!(
        code == 2 && said.contains("none cannot be read") && said.contains("not one of Farshore's"),
        "{code}: {said}"
    );
}

#[test]
fn the_journal_of_a_killed_secondary_is_walked() {
    let mut pair = Pair::replicating(&SMALL);
    for n in 0..8 {
        pair.qemu_io(Side::Near, "data", &[&format!("write -P {} {n}00k 64k", n + 1), "flush"]);
    }
    pair.kill(Side::Far);
    let files = ["journal", "superblock"].map(|name| file(&pair, Side::Far, name)).to_vec();
    let (code, said, json) = inspect(&files);
    let batches = json["files"][0]["facts"]["batches"].as_array().expect("a list").len();
    assert!(code < 2 && said.contains("ends"), "{code}: {said}");
    assert!(batches == 0 || said.contains("checksums ok"), "{said}");
    // Without its superblock it is scanned: then there are batches, left-overs at least.
    let alone = pair.path("journal");
    fs::copy(&files[0], &alone).expect("copied");
    let (code, said, json) = inspect(&[alone]);
    assert!(code < 2 && said.contains("checksums ok"), "{code}: {said}");
    assert!(json["files"][0]["facts"]["records"].as_u64().is_some_and(|records| records >= 8), "{said}");
    pair.serve(Side::Far);
    pair.wait_for(Side::Near, "replicating");
    pair.stop_both();
    pair.assert_equal(&["data", "log"]);
}
