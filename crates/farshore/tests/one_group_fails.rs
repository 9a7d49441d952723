//! A group that cannot be opened is failed and says why; the node's other groups serve, and it serves again when it can be opened.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{GROUP, Pair, PairPlan, Side};
use serde_json::Value;

const SMALL: PairPlan = PairPlan { volumes: &["data"], volume_bytes: 2 << 20, mode: "sync", ..PairPlan::DEFAULT };

/// Groups `g` and `h`, both in step.
pub fn two_groups() -> Pair {
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
    pair
}

pub fn status_of(pair: &Pair, node: Side, name: &str) -> Value {
    let output = pair.run(node, &["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("status is JSON");
    let groups = status["groups"].as_array().expect("a list");
    groups.iter().find(|group| group["name"] == name).cloned().expect("the group is there")
}

/// Group `h` is failed on `node` with these words wherever somebody may look, and `g` serves.
#[track_caller]
fn only_h_fails(pair: &mut Pair, node: Side, parts: &[&str]) {
    pair.serve(node);
    pair.done(Side::Near, &["wait", GROUP, "--for", "replicating", "--timeout", "90s"]);
    pair.qemu_io(Side::Near, "data", &["write -P 5 0 64k", "flush"]);
    let status = status_of(pair, node, "h");
    assert_eq!(status["state"], "failed", "{parts:?}: {status}\n{}", pair.log(node));
    let (code, text) = pair.output_of(node, &["status", "h"]);
    assert_eq!(code, 1, "{text}");
    let mut reported =
        vec![("status", status["reason"].to_string()), ("text", text.replace("\n", " ")), ("log", pair.log(node))];
    for verb in
        [&["sync", "h", "--full"][..], &["demote", "h"], &["promote", "h", "--force"], &["set", "h", "mode=async"]]
    {
        let (code, said) = pair.output_of(node, verb);
        assert_eq!(code, 2, "{verb:?}: {said}");
        reported.push((verb[0], said));
    }
    for (location, said) in &reported {
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [&["it cannot be opened: ", "restart the daemon"], parts].concat() {
            assert!(words.contains(part), "{location}: no {part:?} in: {said}");
        }
    }
    // Without a superblock nobody knows who this node was: a secondary does not take its word as that of its primary.
    let is_unknown = parts.iter().any(|part| part.contains("superblock is missing"));
    let why = match is_unknown && node == Side::Near {
        true => "the peer is connected and does not say that it serves the group",
        false => "its half of the group has failed",
    };
    pair.until("the peer says so", |pair| status_of(pair, node.other(), "h")["reason"].to_string().contains(why));
}

/// Killed, as a clean stop would ask about a file that changed its name.
#[track_caller]
fn both_serve(pair: &mut Pair, node: Side) {
    pair.kill(node);
    pair.serve(node);
    for group in [GROUP, "h"] {
        pair.done(Side::Near, &["wait", group, "--for", "replicating", "--timeout", "90s"]);
    }
    pair.kill(node);
}

fn aside(path: &Path) -> PathBuf {
    path.with_extension("aside")
}

#[test]
fn a_device_that_cannot_be_opened_keeps_one_group_down() {
    let mut pair = two_groups();
    for node in Side::BOTH {
        pair.kill(node);
        let volume = pair.path(&format!("{}-h", node.name()));
        let away = |path: &Path| fs::rename(path, aside(path)).expect("taken away");
        let back = |path: &Path| fs::rename(aside(path), path).expect("put back");

        away(&volume);
        let missing = format!("it cannot be opened: volume h/data: {} does not exist", volume.display());
        only_h_fails(&mut pair, node, &[&missing]);
        let (code, said) = pair.output_of(node, &["config", "check"]);
        assert!(code == 2 && said.contains("does not exist; attach the device"), "{said}");
        back(&volume);
        both_serve(&mut pair, node);

        away(&volume);
        fs::create_dir(&volume).expect("a directory");
        only_h_fails(&mut pair, node, &["is a directory; a volume must be"]);
        pair.kill(node);
        fs::remove_dir(&volume).expect("removed");
        back(&volume);

        let held = fs::File::open(&volume).expect("there");
        held.try_lock().expect("free");
        only_h_fails(&mut pair, node, &["is locked by ", "stop that program"]);
        drop(held);
        both_serve(&mut pair, node);

        let file = fs::OpenOptions::new().write(true).open(&volume).expect("there");
        file.set_len((2 << 20) + 100).expect("odd");
        only_h_fails(&mut pair, node, &["which is no multiple of 512"]);
        file.set_len(2 << 20).expect("its own size");
        pair.kill(node);
        pair.serve(node);
    }
}

#[test]
fn a_state_file_that_cannot_be_opened_keeps_one_group_down() {
    let mut pair = two_groups();
    for node in Side::BOTH {
        for (name, part) in [
            ("journal", "journal is no regular file; only a file that farshore made"),
            ("bitmap", "has 4 KiB where 16 KiB is expected; a volume was given another size"),
            ("superblock", "superblock is missing, though its journal is there"),
        ] {
            pair.kill(node);
            let path = pair.path(node.name()).join("state/groups/h").join(name);
            fs::rename(&path, aside(&path)).expect("taken away");
            match name {
                "journal" => drop(std::os::unix::net::UnixListener::bind(&path).expect("no file")),
                "bitmap" => fs::write(&path, [0; 4096]).expect("too short"),
                _ => {}
            }
            only_h_fails(&mut pair, node, &[part]);
            let _ = fs::remove_file(&path);
            fs::rename(aside(&path), &path).expect("put back");
            both_serve(&mut pair, node);
            pair.serve(node);
        }
    }
}
