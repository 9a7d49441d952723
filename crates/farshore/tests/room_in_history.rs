//! What a sync needs in `history` is said with the size to set: with the order, and while the sync stands still for it.

use crate::common::{GROUP, Pair, PairPlan, Side, expect};

/// A full sync of 64 MiB reserves 72 MiB: its order was taken without a word, and then the group was paused for good.
#[test]
fn too_little_history_for_a_full_sync_is_said_with_the_order_and_in_status() {
    let group = "history = \"64MiB\"";
    let plan = PairPlan { volumes: &["data"], volume_bytes: 64 << 20, group, ..PairPlan::DEFAULT };
    // The first sync keeps no image, so nothing is said: its command has to end with 0.
    let mut pair = Pair::replicating(&plan);
    pair.wait_for_rest(Side::Near);
    let words = "history = \"72MiB\" or more";
    let order = pair.run(Side::Near, &["sync", GROUP, "--full", "--no-compare"]);
    let order = expect(&order, 1, &[words, "restart the daemon of far"]);
    assert!(order.contains(&format!("farshore mark drop {GROUP} NAME")), "{order}");
    pair.until("both nodes say how much it needs", |pair| {
        Side::BOTH.iter().all(|node| {
            let status = pair.status(*node);
            status["state"] == "paused" && status["warnings"].to_string().contains("history = \\\"72MiB\\\" or more")
        })
    });
    let mark = pair.status(Side::Far)["marks"][0]["name"].as_str().expect("the image before the sync").to_owned();
    let (code, said) = pair.output_of(Side::Far, &["mark", "drop", GROUP, &mark]);
    assert!(code < 2, "{said}");
    pair.wait_for(Side::Near, "replicating");
    pair.wait_for_rest(Side::Near);
    for node in Side::BOTH {
        let warnings = pair.status(node)["warnings"].to_string();
        assert!(!warnings.contains("history"), "{}: {warnings}", node.name());
    }
    pair.stop_both();
    pair.assert_equal(&["data"]);
}

/// Four fifths of the default of 1 GiB is what one group gets, whatever was set.
#[test]
fn a_queue_that_memory_cannot_hold_is_set_with_a_warning() {
    let pair = Pair::replicating(&PairPlan { volumes: &["data"], volume_bytes: 1 << 20, ..PairPlan::DEFAULT });
    let words = "queue.memory = \"900MiB\" has no effect above 819 MiB";
    expect(&pair.run(Side::Near, &["set", GROUP, "queue.memory=900MiB"]), 1, &[words, "memory.limit = \"1125MiB\""]);
    pair.done(Side::Near, &["set", GROUP, "mode=sync"]);
    pair.done(Side::Near, &["set", GROUP, "queue.memory=819MiB"]);
}
