//! Nodes are killed singly and together, also while they still recover from the time before, with a queue so small that
//! it often becomes dirty regions. Nothing acknowledged is missing at the end, and both sides are equal.

use crate::common::load::{Load, LoadPlan, Run};
use crate::common::{GROUP, Node, Pair, Plan, Random};

const VOLUMES: &[&str] = &["data", "log", "temp"];
const MODES: [&str; 3] = ["async", "sync", "nearsync"];
const KILLS: u64 = 5;

#[test]
fn nodes_fall_while_they_recover() {
    let group = "queue.memory = \"1MiB\"";
    let mut pair = Pair::replicating(&Plan { volumes: VOLUMES, volume_bytes: 2 << 20, group, ..Plan::default() });
    let mut random = Random::new(31);
    let plan = LoadPlan::crowded(VOLUMES);
    for (number, mode) in MODES.into_iter().enumerate() {
        pair.wait_for_rest(Node::Near);
        pair.stop_both();
        let run = Run::on_content(number as u64, &pair, Node::Near, VOLUMES);
        Node::BOTH.into_iter().for_each(|node| pair.serve(node));
        pair.done(Node::Near, &["set", GROUP, &format!("mode={mode}")]);
        let mut load = Load::start(&pair, Node::Near, &run, plan);
        for _ in 0..KILLS {
            load.wait_for_more(&mut pair, random.below(400));
            load = kill_some(&mut pair, random.below(4), load, &run, plan);
        }
        load.stop();
        pair.wait_for_rest(Node::Near);
        pair.stop_both();
        let report = run.judge(&pair, Node::Near);
        println!("{mode}: {} writes", report.included_writes);
        assert_eq!(report.lost_writes, 0, "{mode}: {report:?}");
        pair.assert_equal(VOLUMES);
        Node::BOTH.into_iter().for_each(|node| pair.serve(node));
    }
}

/// Kills one node or both and starts them again at once; the load that goes on.
fn kill_some(pair: &mut Pair, whom: u64, load: Load, run: &Run, plan: LoadPlan) -> Load {
    match whom {
        0 | 1 => {
            pair.kill(Node::Far);
            load.wait_for_more(pair, whom * 200);
            pair.serve(Node::Far);
            return load;
        }
        2 => {
            pair.kill(Node::Near);
            load.abandon();
            pair.serve(Node::Near);
        }
        _ => {
            Node::BOTH.into_iter().for_each(|node| pair.kill(node));
            load.abandon();
            Node::BOTH.into_iter().for_each(|node| pair.serve(node));
        }
    }
    Load::start(pair, Node::Near, run, plan)
}
