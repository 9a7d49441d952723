//! Roles change over an emulated WAN, under writers: nothing that was acknowledged is lost, in any mode; a cable that is out for five
//! seconds costs neither the order nor a resync.

use std::time::{Duration, Instant};

use crate::common::load::{LoadPlan, WriterLoad, WriterRun};
use crate::common::wan::WanGuard;
use crate::common::{GROUP, Pair, PairPlan, Side};

const VOLUMES: &[&str] = &["data", "log"];
const LINE: [&str; 4] = ["--rtt", "20ms", "--rate", "100mbit"];

fn load() -> LoadPlan {
    LoadPlan { flush_one_in: 16, ..LoadPlan::crowded(VOLUMES) }
}

fn stop_both(pair: &mut Pair, primary: Side) {
    pair.wait_for_rest(primary);
    pair.stop_from(primary);
}

// proves: P1, rule 15
/// Writers are at work when the switchover is typed, and are cut off by it; then the same back. What was acknowledged is there, on both.
#[test]
fn a_switchover_under_writers_loses_nothing_in_any_mode() {
    let Some(wan) = WanGuard::start("roles_over_wan", &LINE) else { return };
    for mode in ["sync", "nearsync", "async"] {
        let mut pair = wan.pair(&PairPlan { mode, volume_bytes: 4 << 20, ..PairPlan::default() });
        wan.serve(&mut pair);
        pair.sync_fully(Side::Near);
        stop_both(&mut pair, Side::Near);
        for (number, primary) in [Side::Near, Side::Far].into_iter().enumerate() {
            let heir = primary.other();
            let run = WriterRun::on_content(number as u64, &pair, primary, VOLUMES);
            wan.serve(&mut pair);
            pair.wait_for(primary, "replicating");
            let load = WriterLoad::start(&pair, primary, &run, load());
            load.wait_for_more(&mut pair, 200);
            let begun = Instant::now();
            pair.done(primary, &["switchover", GROUP, "--to", heir.name(), "--close-clients"]);
            let took = begun.elapsed();
            load.abandon();
            assert_eq!(pair.status(heir)["role"], "primary");
            pair.wait_for(heir, "replicating");
            assert_eq!(pair.counter(heir, "group.g.resynced_bytes"), 0, "nothing is sent twice");
            stop_both(&mut pair, heir);
            let report = run.check(&pair, heir);
            println!(
                "{mode} to {}: {} writes, 0 lost, the switchover took {took:?}",
                heir.name(),
                report.included_writes
            );
            assert_eq!(report.lost_writes, 0, "{report:?}\n{}", pair.log(heir));
            pair.assert_equal(VOLUMES);
        }
    }
}

// proves: P3, P8
#[test]
fn a_cable_that_is_out_for_five_seconds_costs_no_resync_in_sync() {
    let Some(wan) = WanGuard::start("roles_over_wan", &LINE) else { return };
    // Room for what the writers write meanwhile, at their full speed.
    let plan =
        PairPlan { mode: "sync", volume_bytes: 4 << 20, group: "queue.memory = \"800MiB\"\n", ..PairPlan::default() };
    let mut pair = wan.pair(&plan);
    wan.serve(&mut pair);
    pair.sync_fully(Side::Near);
    stop_both(&mut pair, Side::Near);
    let run = WriterRun::on_content(1, &pair, Side::Near, VOLUMES);
    wan.serve(&mut pair);
    pair.wait_for(Side::Near, "replicating");
    let generation = pair.status(Side::Near)["generation"].clone();
    let plan = LoadPlan { writers_per_volume: 1, depth: 1, sectors_max: 8, ..load() };
    let load = WriterLoad::start(&pair, Side::Near, &run, plan);
    load.wait_for_more(&mut pair, 200);
    let before = load.take_longest();
    wan.control(&["cut"]);
    let cut = Instant::now();
    pair.until("it queues", |pair| pair.status(Side::Near)["protection"] == "queued");
    let written = load.acknowledged();
    pair.until("five seconds are over", |_| cut.elapsed() >= Duration::from_secs(5));
    assert!(load.acknowledged() > written, "writers go on");
    let meanwhile = load.take_longest();
    wan.control(&["restore"]);
    pair.wait_for(Side::Near, "replicating");
    load.wait_for_more(&mut pair, 200);
    let after = load.take_longest();
    println!("longest write: {before:?} before, {meanwhile:?} from the cut on, {after:?} from the return on");
    load.stop();
    let status = pair.status(Side::Near);
    assert_eq!((&status["generation"], &status["protection"]), (&generation, &"both-durable".into()));
    assert_eq!(pair.counter(Side::Near, "group.g.resynced_bytes"), 0, "the order stands");
    stop_both(&mut pair, Side::Near);
    assert_eq!(run.check(&pair, Side::Far).lost_writes, 0);
    pair.assert_equal(VOLUMES);
}
