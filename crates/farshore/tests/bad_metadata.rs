//! Journal, bitmap, activity log and undo store that are rotten, cut short, or of another version, and a volume that
//! shrank: each is named, and repaired by rule or refused.

use std::fs;
use std::path::Path;

use crate::common::damage::{
    SMALL, at_rest, edit, edit_newer, fails_with, heals_with, in_step, is_refused, reseal, rot, rot_all, state,
};
use crate::common::{Pair, PairPlan, Side, must_skip_stores};
use engine::cell::BYTES;

/// Cuts a file to half its size.
fn halve(path: &Path) {
    edit(path, |bytes| bytes.truncate(bytes.len() / 2));
}

/// A secondary that was killed with batches in its journal that it has not recorded as applied.
fn killed_secondary() -> Pair {
    let mut pair = in_step();
    for n in 0..8 {
        pair.qemu_io(Side::Near, "data", &[&format!("write -P {} {n}00k 64k", n + 1), "flush"]);
    }
    pair.kill(Side::Far);
    pair.kill(Side::Near);
    pair
}

fn killed_primary() -> Pair {
    let mut pair = in_step();
    pair.qemu_io(Side::Near, "data", &["write -P 8 64k 64k"]);
    Side::BOTH.into_iter().for_each(|node| pair.kill(node));
    pair
}

// proves: P9
#[test]
fn one_rotten_copy_of_bitmap_or_log_costs_nothing() {
    for name in ["bitmap", "activity"] {
        for copy in [0, 1, 2, 3] {
            let pair = killed_primary();
            rot(&state(&pair, Side::Near, name), copy * engine::cell::BYTES + 100);
            let log = {
                let mut pair = pair;
                Side::BOTH.into_iter().for_each(|node| pair.serve(node));
                pair.wait_for(Side::Near, "replicating");
                let log = pair.log(Side::Near);
                pair.stop_both();
                pair.assert_equal(&["data"]);
                log
            };
            assert!(
                !log.contains("all of it will be compared") && !log.contains("every region"),
                "{name} {copy}: {log}"
            );
        }
    }
}

#[test]
fn one_block_that_cannot_be_read_costs_nothing() {
    if must_skip_stores("one_block_that_cannot_be_read_costs_nothing") {
        return;
    }
    for copy in 0..4 {
        let mut pair = Pair::replicating(&PairPlan { forgets: true, ..SMALL });
        pair.qemu_io(Side::Near, "data", &["write -P 8 64k 64k", "flush"]);
        Side::BOTH.into_iter().for_each(|node| pair.kill(node));
        let block = copy * BYTES as u64..(copy + 1) * BYTES as u64;
        for (node, name) in
            Side::BOTH.into_iter().flat_map(|node| ["superblock", "bitmap", "activity"].map(|name| (node, name)))
        {
            pair.refuse_reads(node, &state(&pair, node, name), block.clone());
        }
        Side::BOTH.into_iter().for_each(|node| pair.serve(node));
        pair.wait_for(Side::Near, "replicating");
        for node in Side::BOTH {
            let log = pair.log(node);
            assert!(log.contains("/superblock"), "the file is named: {log}");
            assert!(!log.contains("all of it will be compared") && !log.contains("every region"), "{copy}: {log}");
        }
        pair.stop_both();
        pair.assert_equal(&["data"]);
    }
}

// proves: P3, P9
#[test]
fn a_lost_cell_of_the_bitmap_costs_a_comparison_not_the_truth() {
    let pair = at_rest();
    rot_all(&state(&pair, Side::Near, "bitmap"));
    heals_with(pair, Side::Near, &["the stored dirty regions of volume 1", "are damaged"]);
}

// proves: P3, P9
#[test]
fn a_lost_activity_log_after_a_crash_costs_a_comparison_not_the_truth() {
    let pair = killed_primary();
    rot_all(&state(&pair, Side::Near, "activity"));
    heals_with(pair, Side::Near, &["the activity log is damaged: every region will be compared"]);
}

#[test]
fn a_missing_activity_log_after_a_crash_is_made_and_named() {
    let pair = killed_primary();
    fs::remove_file(state(&pair, Side::Near, "activity")).expect("removed");
    heals_with(pair, Side::Near, &["the activity log is damaged: every region will be compared"]);
}

// proves: P9
#[test]
fn files_that_were_cut_short_are_refused() {
    for (name, parts) in [
        ("superblock", ["superblock", "cut short"]),
        ("journal", ["journal", "give 'journal' its old value"]),
        ("bitmap", ["bitmap", "cut short"]),
        ("activity", ["activity", "the last stop was not clean"]),
    ] {
        let mut pair = killed_primary();
        halve(&state(&pair, Side::Near, name));
        is_refused(&mut pair, Side::Near, &parts);
    }
}

#[test]
fn a_missing_superblock_beside_other_files_is_refused() {
    let mut pair = at_rest();
    fs::remove_file(state(&pair, Side::Near, "superblock")).expect("removed");
    is_refused(&mut pair, Side::Near, &["superblock is missing, though its journal is there", "restore it"]);
}

// proves: P9
/// Which of them are named depends on what the superblock counted when the node was killed; the scenario with each of both is
/// told in the engine's `left_over_batch.rs`.
#[test]
fn the_writes_of_rotten_batches_come_again() {
    let pair = killed_secondary();
    // Every batch of the run that was killed.
    edit(&state(&pair, Side::Far, "journal"), |bytes| {
        for block in bytes.chunks_mut(4096).filter(|block| block.starts_with(b"FSHBATCH")) {
            block[200] ^= 1;
        }
    });
    heals_with(pair, Side::Far, &[]);
}

// proves: rule 23
#[test]
fn a_journal_of_a_newer_version_is_refused() {
    let pair = killed_secondary();
    edit(&state(&pair, Side::Far, "journal"), |bytes| {
        for block in bytes.chunks_mut(4096).filter(|block| block.starts_with(b"FSHBATCH")) {
            block[8] = 9;
            reseal(block);
        }
    });
    fails_with(pair, Side::Far, &["the journal is of a newer version", "format version 9", "upgrade this node"]);
}

// proves: rule 23
#[test]
fn a_bitmap_or_log_of_a_newer_version_is_refused() {
    for (name, words) in
        [("bitmap", "the bitmap is of a newer version"), ("activity", "the activity log is of a newer version")]
    {
        let pair = at_rest();
        edit_newer(&state(&pair, Side::Near, name), |copy| {
            copy[8] = 9;
            reseal(copy);
        });
        fails_with(pair, Side::Near, &[words, "format version 9", "upgrade this node"]);
    }
}

// proves: rule 21
#[test]
fn a_volume_that_shrank_is_refused_with_both_numbers() {
    for node in Side::BOTH {
        let pair = at_rest();
        let volume = fs::OpenOptions::new().write(true).open(pair.device(node, "data")).expect("there");
        volume.set_len(1 << 20).expect("cut");
        fails_with(pair, node, &["volume data", "shrank", "1048576", "2097152", "give it its old size back"]);
    }
}

#[test]
fn the_activity_log_takes_another_size_after_a_clean_stop_only() {
    let mut pair = killed_primary();
    pair.edit_config("[groups.g]", "[groups.g]\nactivity.extents = 600");
    is_refused(&mut pair, Side::Near, &["activity", "give 'activity.extents' its old value"]);
    let pair = at_rest();
    pair.edit_config("[groups.g]", "[groups.g]\nactivity.extents = 600");
    heals_with(pair, Side::Near, &[]);
}

#[test]
fn the_undo_store_grows_and_shrinks_when_it_holds_nothing() {
    let mut pair = at_rest();
    for (from, to, bytes) in [("64MiB", "1GiB", 1u64 << 30), ("1GiB", "65MiB", 65 << 20)] {
        pair.edit_config(from, to);
        Side::BOTH.into_iter().for_each(|node| pair.serve(node));
        pair.wait_for(Side::Near, "replicating");
        pair.stop_both();
        for node in Side::BOTH {
            assert_eq!(fs::metadata(state(&pair, node, "undo")).expect("there").len(), bytes);
        }
    }
    pair.assert_equal(&["data"]);
}
