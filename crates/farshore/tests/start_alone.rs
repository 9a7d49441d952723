//! A primary that lost its power while its peer is gone: it waits as long as `start_alone` says, serves when it is told to, and asks
//! an operator about what only the peer may have.
// proves: rule 24

use crate::common::load::{LoadPlan, WriterLoad, WriterRun};
use crate::common::{GROUP, Pair, PairPlan, Side, must_skip_stores};

const VOLUMES: &[&str] = &["data"];

/// A primary that lost its power, and with it writes that its peer confirmed; the peer is gone.
fn after_both_are_lost(group: &str) -> Pair {
    let mut pair = Pair::replicating(&PairPlan { volumes: VOLUMES, forgets: true, group, ..PairPlan::default() });
    let run = WriterRun::on_zeroes(0, VOLUMES);
    let load = WriterLoad::start(&pair, Side::Near, &run, LoadPlan::crowded(VOLUMES));
    load.wait_for_more(&mut pair, 100);
    pair.lose_power_when_unflushed(Side::Near, 128 << 10, 1);
    pair.until("the power fails", |pair| !pair.has_power(Side::Near));
    let loss = pair.lose_power(&[Side::Near], 1);
    println!("it lost {loss:?}");
    load.abandon();
    pair.kill(Side::Far);
    pair.serve_alone(Side::Near);
    pair
}

fn is_open(pair: &Pair) -> bool {
    pair.try_qemu_io(Side::Near, VOLUMES[0], &["read 0 512"]).0
}

/// What was written alone is kept, once an operator says so; nothing is overwritten before.
fn keeps_what_was_written_alone(mut pair: Pair) {
    pair.qemu_io(Side::Near, VOLUMES[0], &["write -P 9 1M 64k", "flush"]);
    pair.kill(Side::Near);
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    // Unless the peer's own end came before it had anything durable: then nothing is missing.
    let is_asked = |pair: &Pair| pair.status(Side::Near)["reason"].to_string().contains("this node has served since");
    pair.until("an operator is asked, or need not be", |pair| {
        is_asked(pair) || pair.status(Side::Near)["state"] == "replicating"
    });
    if is_asked(&pair) {
        pair.done(Side::Near, &["sync", GROUP]);
    }
    pair.wait_for(Side::Near, "replicating");
    pair.qemu_io(Side::Near, VOLUMES[0], &["read -P 9 1M 64k"]);
    pair.stop_both();
    pair.assert_equal(VOLUMES);
}

#[test]
fn an_export_that_waits_for_the_peer_opens_when_it_is_ordered_to_serve() {
    if must_skip_stores("an_export_that_waits_for_the_peer_opens_when_it_is_ordered_to_serve") {
        return;
    }
    let pair = after_both_are_lost("start_alone = \"wait 1h\"");
    let reason = pair.status(Side::Near)["reason"].to_string();
    assert!(reason.contains("this node lost power") && reason.contains("start_alone"), "{reason}");
    assert!(!is_open(&pair));
    pair.done(Side::Near, &["set", GROUP, "start_alone=serve"]);
    assert!(is_open(&pair));
    keeps_what_was_written_alone(pair);
}

#[test]
fn a_primary_that_is_to_serve_alone_opens_at_once() {
    if must_skip_stores("a_primary_that_is_to_serve_alone_opens_at_once") {
        return;
    }
    let pair = after_both_are_lost("start_alone = \"serve\"");
    assert!(is_open(&pair));
    keeps_what_was_written_alone(pair);
}
