//! In `sync`, losing the primary loses nothing: killed at random moments under five writers, every write that it
//! acknowledged is on the node that takes over. In the middle of a sync that node goes back to the image before it.

use crate::common::load::{LoadPlan, WriterLoad, WriterRun};
use crate::common::{GROUP, Pair, PairPlan, Side, TestRandom, schema};

const VOLUMES: &[&str] = &["a", "b", "c", "d", "e"];
const FAILOVERS: u64 = 6;

// proves: P1
#[test]
fn no_acknowledged_write_is_lost_by_a_failover() {
    let plan = PairPlan { volumes: VOLUMES, volume_bytes: 1 << 20, mode: "sync", ..PairPlan::default() };
    let mut pair = Pair::replicating(&plan);
    assert_eq!(pair.status(Side::Near)["protection"], "both-durable");
    pair.stop_both();
    let load = LoadPlan { writers_per_volume: 1, depth: 4, ..LoadPlan::crowded(VOLUMES) };
    let mut random = TestRandom::new(19);
    let mut primary = Side::Near;
    for number in 0..FAILOVERS {
        let run = WriterRun::on_content(number, &pair, primary, VOLUMES);
        Side::BOTH.into_iter().for_each(|node| pair.serve(node));
        // A mode that was set is kept by the node it was set on; this one is the configuration's on both.
        pair.wait_for(primary, "replicating");
        let load = WriterLoad::start(&pair, primary, &run, load);
        load.wait_for_more(&mut pair, 1 + random.below(500));
        pair.kill(primary);
        load.abandon();

        let heir = primary.other();
        pair.promote_by_force(heir);
        pair.qemu_io(heir, "a", &["read 0 1M"]);
        assert!(pair.stop(heir).success(), "{}", pair.log(heir));
        let report = run.check(&pair, heir);
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
fn image(pair: &Pair, node: Side) -> Vec<u8> {
    std::fs::read(pair.device(node, "data")).expect("the volume reads")
}

// proves: P2
/// Over a line of 8 Mbit/s the primary dies when a part of its copy is overwritten.
#[test]
fn a_secondary_promoted_in_mid_sync_is_the_image_before_it() {
    let head = "[link]\nrate = \"8Mbit/s\"";
    let mut pair =
        Pair::replicating(&PairPlan { volumes: &["data"], head, group: "history = \"64MiB\"", ..PairPlan::default() });
    pair.qemu_io(Side::Near, "data", &["write -P 1 0 2M", "write -P 2 3M 64k", "flush"]);
    pair.until("all is applied", |pair| pair.status(Side::Near)["peers"][0]["dirty_bytes"] == 0);
    let before = image(&pair, Side::Far);
    assert!(before == image(&pair, Side::Near));

    pair.done(Side::Near, &["logging", GROUP]);
    pair.qemu_io(Side::Near, "data", &["write -P 3 0 8M", "flush"]);
    pair.done(Side::Near, &["sync", GROUP]);
    pair.until("a part is overwritten", |pair| image(pair, Side::Far) != before);
    let marks = |pair: &Pair| pair.done(Side::Far, &["mark", "list", GROUP]);
    assert!(marks(&pair).contains("before-sync-"), "{}", marks(&pair));
    let kept = pair.done(Side::Far, &["mark", "list", GROUP, "--json"]);
    schema::seen(&serde_json::from_str(&kept).expect("JSON"));
    pair.kill(Side::Near);
    assert!(image(&pair, Side::Far) != before, "it is in the middle of the sync");

    pair.promote_by_force(Side::Far);
    assert!(image(&pair, Side::Far) == before, "the image before the sync, whole");
    assert!(!marks(&pair).contains("before-sync-"), "{}", marks(&pair));
    pair.qemu_io(Side::Far, "data", &["read -P 1 0 2M", "read -P 2 3M 64k", "write -P 4 1M 64k", "flush"]);

    pair.return_as_secondary(Side::Near);
    pair.stop_from(Side::Far);
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.wait_for_rest(Side::Far);
    pair.stop_from(Side::Far);
    pair.assert_equal(&["data"]);
}
