//! In `sync`, losing the primary loses nothing: killed at random moments under five writers, every write that it
//! acknowledged is on the node that takes over.

mod common;

use common::load::{Load, LoadPlan, Run};
use common::{Node, Pair, Plan, Random};

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
        pair.stop_from(heir);
        pair.assert_equal(VOLUMES);
        primary = heir;
    }
}
