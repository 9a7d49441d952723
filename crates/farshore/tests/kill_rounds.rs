//! Either node is killed under load, again and again, in both ends of the scale of modes. What was acknowledged is there
//! afterwards, on both sides, and both sides are equal.

use crate::common::load::{Load, LoadPlan, Run};
use crate::common::{GROUP, Node, Pair, Plan, Random};

const VOLUMES: &[&str] = &["data", "log", "temp"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Secondary,
    /// It comes back as the primary that it was.
    Primary,
    /// Its peer is promoted before it comes back.
    PrimaryForGood,
}

const ROUNDS: [(Blow, &str); 6] = [
    (Blow::Secondary, "sync"),
    (Blow::Primary, "async"),
    (Blow::PrimaryForGood, "sync"),
    (Blow::Primary, "sync"),
    (Blow::PrimaryForGood, "async"),
    (Blow::Secondary, "async"),
];

#[test]
fn both_nodes_are_killed_in_turn_under_load() {
    let mut pair = Pair::replicating(&Plan { volumes: VOLUMES, volume_bytes: 2 << 20, ..Plan::default() });
    pair.stop_both();
    let mut random = Random::new(5);
    let mut primary = Node::Near;
    for (number, (blow, mode)) in ROUNDS.into_iter().enumerate() {
        println!("round {number}: {blow:?} in {mode}, {} is primary", primary.name());
        let run = Run::on_content(number as u64, &pair, primary, VOLUMES);
        Node::BOTH.into_iter().for_each(|node| pair.serve(node));
        pair.done(primary, &["set", GROUP, &format!("mode={mode}")]);
        pair.wait_for(primary, "replicating");
        let load = Load::start(&pair, primary, &run, LoadPlan::crowded(VOLUMES));
        load.wait_for_more(&mut pair, 50 + random.below(600));
        match blow {
            Blow::Secondary => secondary_falls(&mut pair, primary, load),
            Blow::Primary => {
                pair.kill(primary);
                load.abandon();
                pair.serve(primary);
                pair.wait_for(primary, "replicating");
            }
            Blow::PrimaryForGood => {
                primary_falls_for_good(&mut pair, primary, load, &run, mode);
                primary = primary.other();
            }
        }
        pair.wait_for_rest(primary);
        pair.stop_from(primary);
        pair.assert_equal(VOLUMES);
        let report = run.judge(&pair, primary);
        assert!(report.included_writes > 0, "{report:?}");
        assert!(blow == Blow::PrimaryForGood || report.lost_writes == 0, "{blow:?} in {mode}: {report:?}");
    }
}

fn secondary_falls(pair: &mut Pair, primary: Node, load: Load) {
    pair.kill(primary.other());
    load.wait_for_more(pair, 200);
    pair.serve(primary.other());
    load.wait_for_more(pair, 200);
    pair.wait_for(primary, "replicating");
    load.wait_for_more(pair, 200);
    load.stop();
}

fn primary_falls_for_good(pair: &mut Pair, primary: Node, load: Load, run: &Run, mode: &str) {
    pair.kill(primary);
    load.abandon();
    let heir = primary.other();
    pair.promote_by_force(heir);
    assert!(pair.stop(heir).success(), "{}", pair.log(heir));
    let report = run.judge(pair, heir);
    println!("promoted in {mode}: {} writes held, {} lost", report.included_writes, report.lost_writes);
    assert!(mode != "sync" || report.lost_writes == 0, "{report:?}\n{}", pair.log(heir));
    pair.serve(heir);
    pair.return_as_secondary(primary);
}
