//! `farshore reset`: a group that failed is taken up again, and its daemon, its other groups and the link go on.
// proves: rule 12

use std::fs;

use crate::common::{GROUP, Side};
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
