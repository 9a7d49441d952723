//! Roles change over an emulated WAN, under writers: nothing that was acknowledged is lost, in any mode; a cable that is out for five
//! seconds costs neither the order nor a resync.

use std::time::{Duration, Instant};

use crate::common::load::{LoadPlan, WriterLoad, WriterRun};
use crate::common::wan::WanGuard;
use crate::common::{Background, GROUP, Pair, PairPlan, Side};

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
    for mode in ["sync", "nearsync", "async", "superasync"] {
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
    pair.until("five seconds are over", |_| cut.elapsed() >= Duration::from_secs(5));
    load.wait_for_more(&mut pair, 10);
    let meanwhile = load.take_longest();
    wan.control(&["restore"]);
    pair.wait_for(Side::Near, "replicating");
    load.wait_for_more(&mut pair, 200);
    let after = load.take_longest();
    println!("longest write: {before:?} before, {meanwhile:?} from the cut on, {after:?} from the return on");
    // The bar is a second; these builds are slow, and the machine may be busy.
    assert!(meanwhile < Duration::from_secs(3), "a writer waited {meanwhile:?} from the cut on");
    load.stop();
    let status = pair.status(Side::Near);
    assert_eq!((&status["generation"], &status["protection"]), (&generation, &"both-durable".into()));
    assert_eq!(pair.counter(Side::Near, "group.g.resynced_bytes"), 0, "the order stands");
    stop_both(&mut pair, Side::Near);
    assert_eq!(run.check(&pair, Side::Far).lost_writes, 0);
    pair.assert_equal(VOLUMES);
}

// proves: P2, rule 8
/// The recipe of docs/book/operate/bulk-load.md: one volume is loaded at its disk's speed and travels later, the writers of the other one go
/// on in `sync` meanwhile, and nothing of either is lost.
#[test]
fn a_volume_is_loaded_beside_writers_that_go_on_in_sync() {
    const LOG: &[&str] = &["log"];
    let Some(wan) = WanGuard::start("roles_over_wan", &LINE) else { return };
    let mut pair = wan.pair(&PairPlan { mode: "sync", volume_bytes: 48 << 20, ..PairPlan::default() });
    wan.serve(&mut pair);
    pair.sync_fully(Side::Near);
    pair.wait_for(Side::Near, "replicating");
    let run = WriterRun::on_zeroes(1, LOG);
    let plan = LoadPlan { writers_per_volume: 1, depth: 1, sectors_max: 8, volumes: LOG, ..load() };
    let load = WriterLoad::start(&pair, Side::Near, &run, plan);
    load.wait_for_more(&mut pair, 100);
    let before = load.take_longest();
    pair.done(Side::Near, &["logging", GROUP, "--volume", "data"]);
    let begun = Instant::now();
    pair.qemu_io(Side::Near, "data", &["write -P 7 0 32M", "flush"]);
    let loaded = begun.elapsed();
    load.wait_for_more(&mut pair, 100);
    let beside = load.take_longest();
    let status = pair.status(Side::Near);
    assert!(status["volumes"][0]["dirty_bytes"].as_u64() >= Some(32 << 20), "nothing of it travelled: {status}");
    assert_eq!((&status["state"], &status["protection"]), (&"replicating".into(), &"both-durable".into()));
    pair.done(Side::Near, &["sync", GROUP, "--volume", "data", "--wait"]);
    pair.wait_for(Side::Near, "replicating");
    load.wait_for_more(&mut pair, 100);
    let after = load.take_longest();
    println!(
        "32 MiB loaded in {loaded:?}; longest write of the other: {before:?} before, {beside:?} beside, {after:?} until it has rejoined"
    );
    load.stop();
    stop_both(&mut pair, Side::Near);
    assert_eq!(run.check(&pair, Side::Far).lost_writes, 0);
    pair.assert_equal(VOLUMES);
}

// proves: P1, P6
/// Either daemon dies amid a failback: the verb typed again brings the failback to its end, and nothing is lost.
#[test]
fn a_failback_that_was_killed_is_typed_again() {
    let Some(wan) = WanGuard::start("roles_over_wan", &LINE) else { return };
    for victim in Side::BOTH {
        let mut pair = wan.pair(&PairPlan { mode: "async", volume_bytes: 24 << 20, ..PairPlan::default() });
        wan.serve(&mut pair);
        pair.sync_fully(Side::Near);
        pair.wait_for_rest(Side::Near);
        pair.done(Side::Near, &["switchover", GROUP, "--to", "far"]);
        pair.wait_for(Side::Far, "replicating");
        pair.done(Side::Far, &["logging", GROUP]);
        // More than a second of the line, so that the kill meets the sync of the failback.
        pair.qemu_io(Side::Far, "data", &["write -P 5 0 16M", "flush"]);
        let typed = Background::start(pair.command(Side::Far, &["failback", GROUP]));
        pair.until("the sync has begun", |pair| pair.status(Side::Far)["state"] == "syncing");
        pair.kill(victim);
        wan.serve_one(&mut pair, victim);
        // It ends with its own daemon, and outlives the other one.
        let (_, said) = typed.finish(&mut pair);
        println!("{} was killed: {}", victim.name(), said.trim());
        pair.until("the failback, typed again, is done", |pair| pair.output_of(Side::Far, &["failback", GROUP]).0 == 0);
        assert_eq!(Side::BOTH.map(|node| pair.status(node)["role"].clone()), ["primary", "secondary"]);
        pair.wait_for(Side::Near, "replicating");
        pair.qemu_io(Side::Near, "data", &["read -P 5 0 16M"]);
        stop_both(&mut pair, Side::Near);
        pair.assert_equal(VOLUMES);
    }
}
