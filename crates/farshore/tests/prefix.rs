//! At random instants under load the secondary is killed; what its restart makes of journal and volumes must be a
//! prefix of all writes, over all volumes together. It may lack writes, it may never mix.

use crate::common::load::{Load, LoadPlan, Run};
use crate::common::{Node, Pair, Plan, Random};

const VOLUMES: &[&str] = &["data", "log", "temp"];
const INSTANTS: u64 = 20;

#[test]
fn a_killed_secondary_holds_a_prefix_at_every_instant() {
    let mut pair = Pair::replicating(&Plan { volumes: VOLUMES, volume_bytes: 2 << 20, ..Plan::default() });
    let run = Run::on_zeroes(1, VOLUMES);
    let load = Load::start(&pair, Node::Near, &run, LoadPlan::crowded(VOLUMES));
    let mut random = Random::new(77);
    let mut held = Vec::new();
    for _ in 0..INSTANTS {
        load.wait_for_more(&mut pair, 10 + random.below(400));
        pair.kill(Node::Far);
        load.pause(&mut pair);

        pair.serve_alone(Node::Far);
        pair.until("its journal is applied", |pair| pair.status(Node::Far)["journal"]["bytes"] == 0);
        assert!(pair.stop(Node::Far).success(), "{}", pair.log(Node::Far));
        let report = run.judge(&pair, Node::Far);
        held.push((report.included_writes, report.lost_writes));

        pair.serve(Node::Far);
        load.resume();
        pair.wait_for(Node::Near, "replicating");
    }
    load.stop();
    println!("(writes held, writes lost) at each instant: {held:?}");
    let replays = pair.log(Node::Far).matches("were replayed from the journal").count();
    assert!(
        replays as u64 > INSTANTS / 2,
        "only {replays} instants left something to replay:\n{}",
        pair.log(Node::Far)
    );
    assert!(held.is_sorted_by_key(|(included, _)| *included), "a later instant holds more: {held:?}");
    pair.wait_for_rest(Node::Near);
    pair.stop_both();
    pair.assert_equal(VOLUMES);
    assert_eq!(run.judge(&pair, Node::Far).lost_writes, 0);
}
