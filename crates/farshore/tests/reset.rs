//! `farshore reset`: a group that failed is taken up again, and its daemon, its other groups and the link go on.
// proves: rule 12

use std::fs;

use engine::cell::BYTES;
use engine::superblock::Superblock;

use crate::common::{GROUP, Pair, PairPlan, Side, must_skip_stores};
use crate::one_group_fails::{status_of, two_groups};

// proves: P7
/// The device of one of two groups is away when the daemon starts, and comes back while it runs.
#[test]
fn a_group_whose_device_came_back_is_reset() {
    let mut pair = two_groups();
    for node in Side::BOTH {
        pair.kill(node);
        let volume = pair.path(&format!("{}-h", node.name()));
        let aside = volume.with_extension("aside");
        fs::rename(&volume, &aside).expect("taken away");
        pair.serve(node);
        let process = pair.pid(node);
        assert_eq!(status_of(&pair, node, "h")["state"], "failed");
        // The cause is still there: the same words.
        let (code, said) = pair.output_of(node, &["reset", "h"]);
        assert!(code == 2 && said.contains("does not exist"), "{said}");
        assert_eq!(status_of(&pair, node, "h")["state"], "failed");
        fs::rename(&aside, &volume).expect("put back");
        let said = pair.done(node, &["reset", "h"]);
        assert!(said.contains("h: reset; the group has started anew"), "{said}");
        for group in [GROUP, "h"] {
            pair.done(Side::Near, &["wait", group, "--for", "replicating", "--timeout", "90s"]);
        }
        assert_eq!(pair.pid(node), process, "the daemon lives on");
        // Orders are taken again.
        pair.done(node, &["set", "h", "wait_limit=9s"]);
        pair.kill(node);
        pair.serve(node);
        pair.done(Side::Near, &["wait", "h", "--for", "replicating", "--timeout", "90s"]);
    }
}

// proves: P7
/// Another disk with content of its own was taken up by a reset. A device that was attached before would have gone on over it: the term
/// that begins with other content was on disk only, and the daemon told the old one.
#[test]
fn a_reset_that_finds_other_content_begins_another_term() {
    let mut pair = two_groups();
    pair.kill(Side::Near);
    let volume = pair.path("near-h");
    fs::rename(&volume, volume.with_extension("old")).expect("taken away");
    fs::copy(volume.with_extension("old"), &volume).expect("another disk");
    pair.serve(Side::Near);
    let before = status_of(&pair, Side::Near, "h");
    assert_eq!(before["state"], "failed");
    let said = pair.output_of(Side::Near, &["accept-device", "h", "data", "--content-is-good"]);
    assert_eq!(said.0, 0, "{said:?}");
    pair.done(Side::Near, &["reset", "h"]);
    let after = status_of(&pair, Side::Near, "h");
    let recorded = fs::read_to_string(pair.path("near/state/groups/h/term")).expect("on record");
    assert_ne!(after["term"], before["term"]);
    assert_eq!(after["term"], recorded.trim(), "{after}");
}

// proves: P1, P4
/// What a failed flush lost is on record, as is that it failed. An attached device went on in the run after it, and its next flush answered for
/// writes that were gone.
#[test]
fn a_term_ends_where_a_flush_failed() {
    let mut pair = two_groups();
    let term = |pair: &crate::common::Pair| status_of(pair, Side::Near, "h")["term"].clone();
    let before = term(&pair);
    pair.kill(Side::Near);
    pair.serve(Side::Near);
    assert_eq!(term(&pair), before, "no process takes writes with it");
    pair.kill(Side::Near);
    let path = pair.path("near/state/groups/h/superblock");
    let mut bytes = fs::read(&path).expect("read");
    let copies: Vec<_> = bytes.chunks(BYTES).filter_map(|copy| Superblock::decode(copy).ok()).collect();
    let found = copies.iter().max_by_key(|copy| copy.update).expect("one that is whole").clone();
    let failed = Superblock { boot: 0, ..found.clone() }.encode();
    for copy in bytes.chunks_mut(BYTES).filter(|copy| Superblock::decode(copy).as_ref() == Ok(&found)) {
        copy.copy_from_slice(&failed[..BYTES]);
    }
    fs::write(&path, bytes).expect("written");
    pair.serve(Side::Near);
    assert_ne!(term(&pair), before);
    pair.done(Side::Near, &["wait", "h", "--for", "replicating", "--timeout", "90s"]);
}

/// The verb can be repeated, for several groups and for all.
#[test]
fn what_has_not_failed_has_nothing_to_do() {
    let mut pair = two_groups();
    for words in [&["reset", GROUP][..], &["reset", GROUP, "h"], &["reset", "--all"]] {
        let said = pair.done(Side::Near, words);
        assert!(said.contains("the group has not failed; nothing to do"), "{said}");
    }
    let said = pair.done(Side::Near, &["reset", GROUP, "--on", "far", "--json"]);
    assert!(said.contains("farshore-answer/1") && said.contains("unchanged"), "{said}");
    let (code, said) = pair.output_of(Side::Near, &["reset", "none"]);
    assert!(code >= 2 && said.contains("no group"), "{said}");
    pair.wait_for_rest(Side::Near);
}

// proves: rule 12
/// The flush of one volume fails: status, the refusal of a reverse sync and the answer to the reset name that volume, and the answer says
/// whose content counts.
#[test]
fn a_reset_says_which_volume_had_failed_and_where_content_goes() {
    if must_skip_stores("a_reset_says_which_volume_had_failed_and_where_content_goes") {
        return;
    }
    for node in Side::BOTH {
        let plan = PairPlan { volume_bytes: 1 << 20, mode: "sync", forgets: true, ..PairPlan::DEFAULT };
        let mut pair = Pair::replicating(&plan);
        let mut calls = 0;
        pair.until("the flush of a volume fails", |pair| {
            pair.wait_for(Side::Near, "replicating");
            pair.fail_call_after(node, calls, rustix::io::Errno::IO.raw_os_error());
            calls = (calls + 1) % 12;
            let _ = pair.try_qemu_io(Side::Near, "log", &["write -P 5 0 64k", "flush"]);
            std::thread::sleep(std::time::Duration::from_millis(300));
            let _ = pair.fail_no_call(node);
            if pair.status(node)["state"] != "failed" {
                return false;
            }
            let is_flush = pair.status(node)["reason"].to_string().contains("volume's flush failed");
            if !is_flush {
                pair.done(node, &["reset", GROUP]);
            }
            is_flush
        });
        let reason = pair.status(node)["reason"].to_string();
        assert!(reason.contains("volume log: a volume's flush failed"), "{reason}");
        let (way, reverse) = match node {
            Side::Near => ("what is here counts, and goes to far", "the disk of volume log has failed here"),
            Side::Far => ("the content of near comes here", "this node is the secondary: type it on node near"),
        };
        let (code, said) = pair.output_of(node, &["sync", GROUP, "--reverse"]);
        assert!(code == 2 && said.contains(reverse), "{said}");
        let said = pair.done(node, &["reset", GROUP]);
        for part in ["the group has started anew, as ", way, "; it had failed: volume log: a volume's flush failed"] {
            assert!(said.contains(part), "no {part:?} in: {said}");
        }
        pair.wait_for(Side::Near, "replicating");
    }
}

// proves: rule 12
/// The same of the files that a group has beside its volumes: the journal of the secondary, and the bits of the primary.
#[test]
fn a_reset_says_that_a_journal_or_the_bits_had_failed() {
    if must_skip_stores("a_reset_says_that_a_journal_or_the_bits_had_failed") {
        return;
    }
    for (node, cause, way) in [
        (Side::Far, "the journal could not be written or read", "the content of near comes here"),
        (
            Side::Near,
            "dirty regions or its activity log could not be written or read",
            "what is here counts, and goes to far",
        ),
    ] {
        let plan = PairPlan { volume_bytes: 256 << 20, mode: "sync", forgets: true, ..PairPlan::DEFAULT };
        let mut pair = Pair::replicating(&plan);
        let (mut calls, mut place) = (0, 0);
        pair.until("the file fails", |pair| {
            pair.wait_for(Side::Near, "replicating");
            pair.fail_call_after(node, calls, rustix::io::Errno::IO.raw_os_error());
            (calls, place) = ((calls + 1) % 12, (place + 5) % 256);
            // Another extent each time: it has to enter the activity log first.
            let _ = pair.try_qemu_io(Side::Near, "log", &[&format!("write -P 5 {place}M 64k"), "flush"]);
            std::thread::sleep(std::time::Duration::from_millis(300));
            let _ = pair.fail_no_call(node);
            if pair.status(node)["state"] != "failed" {
                return false;
            }
            let is_it = pair.status(node)["reason"].to_string().contains(cause);
            if !is_it {
                pair.done(node, &["reset", GROUP]);
            }
            is_it
        });
        let said = pair.done(node, &["reset", GROUP]);
        for part in ["the group has started anew, as ", way, "; it had failed: ", cause] {
            assert!(said.contains(part), "no {part:?} in: {said}");
        }
        pair.wait_for(Side::Near, "replicating");
        pair.wait_for_rest(Side::Near);
        pair.stop_both();
        pair.assert_equal(&["data", "log"]);
    }
}
