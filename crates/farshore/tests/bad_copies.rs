//! State directories restored from an old copy, or copied and used twice: found out before anything is overwritten.

use std::fs;
use std::path::Path;

use crate::common::damage::{at_rest, directory, fails_with, in_step, state};
use crate::common::{GROUP, Pair, Side};

/// Everything in a directory, one level deep.
fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("listed") {
        let path = entry.expect("listed").path();
        fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copied");
    }
}

/// A pair at rest whose node has an old copy of its directory and its volume beside it, and has run, written and been killed since.
fn with_old_copy(node: Side) -> (Pair, std::path::PathBuf) {
    let mut pair = at_rest();
    let old = pair.path("old");
    copy(&directory(&pair, node), &old);
    fs::copy(pair.device(node, "data"), pair.path("old-volume")).expect("copied");
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.wait_for(Side::Near, "replicating");
    pair.qemu_io(Side::Near, "data", &["write -P 9 256k 256k", "flush"]);
    pair.until("the write has arrived", |pair| pair.status(Side::Near)["peers"][0]["dirty_bytes"] == 0);
    Side::BOTH.into_iter().for_each(|node| pair.kill(node));
    (pair, old)
}

// proves: P9
#[test]
fn an_old_superblock_beside_newer_files_is_refused() {
    for (node, newer) in [(Side::Near, "activity log"), (Side::Far, "journal")] {
        let (pair, old) = with_old_copy(node);
        fs::copy(old.join("superblock"), state(&pair, node, "superblock")).expect("restored");
        let words = format!("the superblock is older than the {newer} beside it");
        fails_with(pair, node, &[&words, "an old copy was restored"]);
    }
}

// proves: P6
#[test]
fn a_primary_with_an_old_directory_overwrites_nothing() {
    let (pair, old) = with_old_copy(Side::Near);
    copy(&old, &directory(&pair, Side::Near));
    is_named_and_overwrites_nothing(pair);
}

// proves: P6
/// A clone of the whole machine, made while it was off and started in its stead: no fingerprint tells, but the peer has seen more
/// of the run that the clone begins.
#[test]
fn a_clone_of_the_primary_overwrites_nothing() {
    let (pair, old) = with_old_copy(Side::Near);
    copy(&old, &directory(&pair, Side::Near));
    fs::copy(pair.path("old-volume"), pair.device(Side::Near, "data")).expect("restored");
    is_named_and_overwrites_nothing(pair);
}

fn is_named_and_overwrites_nothing(mut pair: Pair) {
    let far = pair.content(Side::Far, "data");
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.until("the old copy is named", |pair| {
        pair.status(Side::Near)["reason"].to_string().contains("state directory is older than its peer")
    });
    pair.stop_both();
    assert!(pair.content(Side::Far, "data") == far, "the newer copy was overwritten");
}

// proves: P3
#[test]
fn a_secondary_with_an_old_directory_is_not_believed() {
    let (mut pair, old) = with_old_copy(Side::Far);
    copy(&old, &directory(&pair, Side::Far));
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.until("only a full sync will do", |pair| pair.status(Side::Near)["reason"].to_string().contains("--full"));
    pair.sync_fully(Side::Near);
    pair.wait_for(Side::Near, "replicating");
    pair.stop_both();
    pair.assert_equal(&["data"]);
}

/// The far node serves until it has confirmed a write, and is killed.
fn confirms_a_write(pair: &mut Pair) {
    pair.serve(Side::Far);
    pair.wait_for(Side::Near, "replicating");
    pair.qemu_io(Side::Near, "data", &["write -P 9 256k 256k", "flush"]);
    pair.until("the write is applied", |pair| pair.status(Side::Near)["peers"][0]["dirty_bytes"] == 0);
    pair.kill(Side::Far);
}

/// What came back from an old copy is not believed, and a full sync mends it.
fn is_named_and_made_whole(mut pair: Pair) {
    pair.until("the contradiction is named", |pair| {
        let reason = pair.status(Side::Near)["reason"].to_string();
        reason.contains("had confirmed") && reason.contains("--full")
    });
    pair.sync_fully(Side::Near);
    pair.wait_for(Side::Near, "replicating");
    pair.stop_both();
    pair.assert_equal(&["data"]);
}

// proves: P3
/// The copy was taken while the daemon ran, so no fingerprint tells; the primary remembers what was confirmed to it.
#[test]
fn a_secondary_that_takes_its_word_back_is_made_whole() {
    let mut pair = in_step();
    pair.kill(Side::Far);
    let old = pair.path("old");
    copy(&directory(&pair, Side::Far), &old);
    confirms_a_write(&mut pair);
    copy(&old, &directory(&pair, Side::Far));
    pair.serve(Side::Far);
    is_named_and_made_whole(pair);
}

// proves: P3
/// The same with the volume, a whole machine from a snapshot; and the primary, which no fingerprint and no memory helps, was
/// stopped meanwhile, cleanly, so that its activity log does not count either.
#[test]
fn a_restarted_primary_does_not_believe_a_restored_secondary() {
    let mut pair = in_step();
    pair.kill(Side::Far);
    let (old, old_volume) = (pair.path("old"), pair.path("old-volume"));
    copy(&directory(&pair, Side::Far), &old);
    fs::copy(pair.device(Side::Far, "data"), &old_volume).expect("copied");
    confirms_a_write(&mut pair);
    pair.stop(Side::Near);
    copy(&old, &directory(&pair, Side::Far));
    fs::copy(&old_volume, pair.device(Side::Far, "data")).expect("restored");
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    is_named_and_made_whole(pair);
}

#[test]
fn the_peers_directory_is_refused() {
    for node in Side::BOTH {
        let pair = at_rest();
        copy(&directory(&pair, node.other()), &directory(&pair, node));
        fails_with(pair, node, &["written by the other node", "give each node its own back"]);
    }
}

#[test]
fn a_second_daemon_on_a_copy_of_the_directory_is_refused() {
    let mut pair = at_rest();
    copy(&directory(&pair, Side::Near), &pair.path("near/copy/groups").join(GROUP));
    pair.serve(Side::Near);
    let text = fs::read_to_string(pair.config()).expect("there");
    let locations = [("near/state", "near/copy")];
    let text = locations.iter().fold(text, |text, (from, to)| text.replace(from, to));
    let config = pair.path("copy.toml");
    fs::write(&config, text).expect("written");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_farshore"))
        .args(["serve", "--node", "near", "--config"])
        .arg(&config)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("near/data is locked by process"), "{said}");
    pair.qemu_io(Side::Near, "data", &["write -P 3 0 4k", "flush"]);
    pair.stop(Side::Near);
}
