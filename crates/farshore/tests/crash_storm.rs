//! Nodes are killed singly and together, also while they still recover from the time before, with a queue so small that
//! it often becomes dirty regions. Nothing acknowledged is missing at the end, and both sides are equal.

use crate::common::load::{LoadPlan, WriterLoad, WriterRun};
use crate::common::{GROUP, Pair, PairPlan, Side, TestRandom};

const VOLUMES: &[&str] = &["data", "log", "temp"];
const MODES: [&str; 3] = ["async", "sync", "nearsync"];
const KILLS: u64 = 5;

// proves: P1, P3
#[test]
fn nodes_fall_while_they_recover() {
    fall_while_they_recover("queue.memory = \"1MiB\"", &MODES);
}

// proves: P1, P3
/// Each start goes on from the log of the queue.
#[test]
fn nodes_fall_while_they_recover_from_a_log_of_the_queue() {
    let queue = "queue.memory = \"1MiB\"\nqueue.disk = \"64MiB\"\nqueue.durable = true";
    fall_while_they_recover(queue, &["async", "sync"]);
}

fn fall_while_they_recover(group: &str, modes: &[&str]) {
    let mut pair =
        Pair::replicating(&PairPlan { volumes: VOLUMES, volume_bytes: 2 << 20, group, ..PairPlan::default() });
    let mut random = TestRandom::new(31);
    let plan = LoadPlan::crowded(VOLUMES);
    for (number, mode) in modes.iter().enumerate() {
        pair.wait_for_rest(Side::Near);
        pair.stop_both();
        let run = WriterRun::on_content(number as u64, &pair, Side::Near, VOLUMES);
        Side::BOTH.into_iter().for_each(|node| pair.serve(node));
        pair.done(Side::Near, &["set", GROUP, &format!("mode={mode}")]);
        let mut load = WriterLoad::start(&pair, Side::Near, &run, plan);
        for _ in 0..KILLS {
            load.wait_for_more(&mut pair, random.below(400));
            load = kill_some(&mut pair, random.below(4), load, &run, plan);
        }
        load.stop();
        pair.wait_for_rest(Side::Near);
        pair.stop_both();
        let report = run.check(&pair, Side::Near);
        println!("{mode}: {} writes", report.included_writes);
        assert_eq!(report.lost_writes, 0, "{mode}: {report:?}");
        pair.assert_equal(VOLUMES);
        Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    }
}

/// Kills one node or both and starts them again at once; the load that goes on.
fn kill_some(pair: &mut Pair, whom: u64, load: WriterLoad, run: &WriterRun, plan: LoadPlan) -> WriterLoad {
    match whom {
        0 | 1 => {
            pair.kill(Side::Far);
            load.wait_for_more(pair, whom * 200);
            pair.serve(Side::Far);
            return load;
        }
        2 => {
            pair.kill(Side::Near);
            load.abandon();
            pair.serve(Side::Near);
        }
        _ => {
            Side::BOTH.into_iter().for_each(|node| pair.kill(node));
            load.abandon();
            Side::BOTH.into_iter().for_each(|node| pair.serve(node));
        }
    }
    WriterLoad::start(pair, Side::Near, run, plan)
}
