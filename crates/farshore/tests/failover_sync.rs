//! In `sync`, losing the primary loses nothing: killed at random moments under five writers, every write that it
//! acknowledged is on the node that takes over. In the middle of a sync that node goes back to the image before it.

use crate::common::load::{Load, LoadPlan, Run};
use crate::common::{GROUP, Node, Pair, Plan, Random};

const VOLUMES: &[&str] = &["a", "b", "c", "d", "e"];
const FAILOVERS: u64 = 6;

#[test]
fn no_acknowledged_write_is_lost_by_a_failover() {
    let plan = Plan { volumes: VOLUMES, volume_bytes: 1 << 20, mode: "sync", ..Plan::default() };
    let mut pair = Pair::replicating(&plan);
    assert_eq!(pair.status(Node::Near)["protection"], "both-durable");
    pair.stop_both();
    let load = LoadPlan { writers_per_volume: 1, depth: 4, ..LoadPlan::crowded(VOLUMES) };
    let mut random = Random::new(19);
    let mut primary = Node::Near;
    for number in 0..FAILOVERS {
        let run = Run::on_content(number, &pair, primary, VOLUMES);
        Node::BOTH.into_iter().for_each(|node| pair.serve(node));
        // A mode that was set is kept by the node it was set on; this one is the configuration's on both.
        pair.wait_for(primary, "replicating");
        let load = Load::start(&pair, primary, &run, load);
        load.wait_for_more(&mut pair, 1 + random.below(500));
        pair.kill(primary);
        load.abandon();

        let heir = primary.other();
        pair.promote_by_force(heir);
        pair.qemu_io(heir, "a", &["read 0 1M"]);
        assert!(pair.stop(heir).success(), "{}", pair.log(heir));
        let report = run.judge(&pair, heir);
        println!(
            "failover {number} to {}: {} writes held, {} lost",
            heir.name(),
            report.included_writes,
            report.lost_writes
        );
        assert_eq!(report.lost_writes, 0, "failover {number}: {report:?}\n{}", pair.log(heir));

        pair.serve(heir);
        pair.return_as_secondary(primary);
        pair.wait_for_rest(heir);
        pair.stop_from(heir);
        pair.assert_equal(VOLUMES);
        primary = heir;
    }
}

/// A volume as it is, while its daemon runs.
fn image(pair: &Pair, node: Node) -> Vec<u8> {
    std::fs::read(pair.device(node, "data")).expect("the volume reads")
}

/// Over a line of 8 Mbit/s the primary dies when a part of its copy is overwritten.
#[test]
fn a_secondary_promoted_in_mid_sync_is_the_image_before_it() {
    let head = "[link]\nrate = \"8Mbit/s\"";
    let mut pair =
        Pair::replicating(&Plan { volumes: &["data"], head, group: "history = \"64MiB\"", ..Plan::default() });
    pair.qemu_io(Node::Near, "data", &["write -P 1 0 2M", "write -P 2 3M 64k", "flush"]);
    pair.until("all is applied", |pair| pair.status(Node::Near)["peers"][0]["dirty_bytes"] == 0);
    let before = image(&pair, Node::Far);
    assert!(before == image(&pair, Node::Near));

    pair.done(Node::Near, &["logging", GROUP]);
    pair.qemu_io(Node::Near, "data", &["write -P 3 0 8M", "flush"]);
    pair.done(Node::Near, &["sync", GROUP]);
    pair.until("a part is overwritten", |pair| image(pair, Node::Far) != before);
    let marks = |pair: &Pair| pair.done(Node::Far, &["mark", "list", GROUP]);
    assert!(marks(&pair).contains("before-sync-"), "{}", marks(&pair));
    pair.kill(Node::Near);
    assert!(image(&pair, Node::Far) != before, "it is in the middle of the sync");

    pair.promote_by_force(Node::Far);
    assert!(image(&pair, Node::Far) == before, "the image before the sync, whole");
    assert!(!marks(&pair).contains("before-sync-"), "{}", marks(&pair));
    pair.qemu_io(Node::Far, "data", &["read -P 1 0 2M", "read -P 2 3M 64k", "write -P 4 1M 64k", "flush"]);

    pair.return_as_secondary(Node::Near);
    pair.stop_from(Node::Far);
    Node::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.wait_for_rest(Node::Far);
    pair.stop_from(Node::Far);
    pair.assert_equal(&["data"]);
}
