//! Either node is killed under load, again and again, in both ends of the scale of modes. What was acknowledged is there
//! afterwards, on both sides, and both sides are equal.

use crate::common::load::{LoadPlan, WriterLoad, WriterRun};
use crate::common::{GROUP, Pair, PairPlan, Side, TestRandom};

const VOLUMES: &[&str] = &["data", "log", "temp"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillKind {
    Secondary,
    /// It comes back as the primary that it was.
    Primary,
    /// Its peer is promoted before it comes back.
    PrimaryForGood,
}

const ROUNDS: [(KillKind, &str); 6] = [
    (KillKind::Secondary, "sync"),
    (KillKind::Primary, "async"),
    (KillKind::PrimaryForGood, "sync"),
    (KillKind::Primary, "sync"),
    (KillKind::PrimaryForGood, "async"),
    (KillKind::Secondary, "async"),
];

// proves: P1, P3
#[test]
fn both_nodes_are_killed_in_turn_under_load() {
    let mut pair = Pair::replicating(&PairPlan { volumes: VOLUMES, volume_bytes: 2 << 20, ..PairPlan::default() });
    pair.stop_both();
    let mut random = TestRandom::new(5);
    let mut primary = Side::Near;
    for (number, (blow, mode)) in ROUNDS.into_iter().enumerate() {
        println!("round {number}: {blow:?} in {mode}, {} is primary", primary.name());
        let run = WriterRun::on_content(number as u64, &pair, primary, VOLUMES);
        Side::BOTH.into_iter().for_each(|node| pair.serve(node));
        pair.done(primary, &["set", GROUP, &format!("mode={mode}")]);
        pair.wait_for(primary, "replicating");
        let load = WriterLoad::start(&pair, primary, &run, LoadPlan::crowded(VOLUMES));
        load.wait_for_more(&mut pair, 50 + random.below(600));
        match blow {
            KillKind::Secondary => secondary_falls(&mut pair, primary, load),
            KillKind::Primary => {
                pair.kill(primary);
                load.abandon();
                pair.serve(primary);
                pair.wait_for(primary, "replicating");
            }
            KillKind::PrimaryForGood => {
                primary_falls_for_good(&mut pair, primary, load, &run, mode);
                primary = primary.other();
            }
        }
        pair.wait_for_rest(primary);
        pair.stop_from(primary);
        pair.assert_equal(VOLUMES);
        let report = run.check(&pair, primary);
        assert!(report.included_writes > 0, "{report:?}");
        assert!(blow == KillKind::PrimaryForGood || report.lost_writes == 0, "{blow:?} in {mode}: {report:?}");
    }
}

fn secondary_falls(pair: &mut Pair, primary: Side, load: WriterLoad) {
    pair.kill(primary.other());
    load.wait_for_more(pair, 200);
    pair.serve(primary.other());
    load.wait_for_more(pair, 200);
    pair.wait_for(primary, "replicating");
    load.wait_for_more(pair, 200);
    load.stop();
}

fn primary_falls_for_good(pair: &mut Pair, primary: Side, load: WriterLoad, run: &WriterRun, mode: &str) {
    pair.kill(primary);
    load.abandon();
    let heir = primary.other();
    pair.promote_by_force(heir);
    assert!(pair.stop(heir).success(), "{}", pair.log(heir));
    let report = run.check(pair, heir);
    println!("promoted in {mode}: {} writes held, {} lost", report.included_writes, report.lost_writes);
    assert!(mode != "sync" || report.lost_writes == 0, "{report:?}\n{}", pair.log(heir));
    pair.serve(heir);
    pair.return_as_secondary(primary);
}
