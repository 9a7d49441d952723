//! At random instants under load the secondary is killed; what its restart makes of journal and volumes must be a
//! prefix of all writes, over all volumes together. It may lack writes, it may never mix.

use crate::common::load::{LoadPlan, WriterLoad, WriterRun};
use crate::common::{Pair, PairPlan, Side, TestRandom};

const VOLUMES: &[&str] = &["data", "log", "temp"];
const INSTANTS: u64 = 20;

// proves: P2, rule 4
#[test]
fn a_killed_secondary_holds_a_prefix_at_every_instant() {
    let mut pair = Pair::replicating(&PairPlan { volumes: VOLUMES, volume_bytes: 2 << 20, ..PairPlan::default() });
    let run = WriterRun::on_zeroes(1, VOLUMES);
    let load = WriterLoad::start(&pair, Side::Near, &run, LoadPlan::crowded(VOLUMES));
    let mut random = TestRandom::new(77);
    let mut held = Vec::new();
    for _ in 0..INSTANTS {
        load.wait_for_more(&mut pair, 10 + random.below(400));
        pair.kill(Side::Far);
        load.pause(&mut pair);

        pair.serve_alone(Side::Far);
        pair.until("its journal is applied", |pair| pair.status(Side::Far)["journal"]["bytes"] == 0);
        assert!(pair.stop(Side::Far).success(), "{}", pair.log(Side::Far));
        let report = run.check(&pair, Side::Far);
        held.push((report.included_writes, report.lost_writes));

        pair.serve(Side::Far);
        load.resume();
        pair.wait_for(Side::Near, "replicating");
    }
    load.stop();
    println!("(writes held, writes lost) at each instant: {held:?}");
    let replays = pair.log(Side::Far).matches("were replayed from the journal").count();
    assert!(
        replays as u64 > INSTANTS / 2,
        "only {replays} instants left something to replay:\n{}",
        pair.log(Side::Far)
    );
    assert!(held.is_sorted_by_key(|(included, _)| *included), "a later instant holds more: {held:?}");
    pair.wait_for_rest(Side::Near);
    pair.stop_both();
    pair.assert_equal(VOLUMES);
    assert_eq!(run.check(&pair, Side::Far).lost_writes, 0);
}
