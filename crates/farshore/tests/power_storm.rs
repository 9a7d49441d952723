//! Power is lost at the worst moments: while nodes recover from the loss before, and at each flush of a first start and of
//! commands that change what a node is.
//! The moment is set by a number of flushes, so it falls between any two steps that are meant to be durable in order.

use crate::common::load::{LoadPlan, WriterLoad, WriterRun};
use crate::common::{Background, GROUP, Pair, PairPlan, Side, TestRandom, must_skip_stores};

const VOLUMES: &[&str] = &["data", "log"];
const MODES: [&str; 3] = ["async", "sync", "nearsync"];
const STRIKES: u64 = 8;

// proves: P4, P5
#[test]
fn power_is_lost_while_nodes_recover() {
    if must_skip_stores("power_is_lost_while_nodes_recover") {
        return;
    }
    // A queue so small that it often becomes dirty regions.
    let group = "queue.memory = \"1MiB\"";
    let plan = PairPlan { volumes: VOLUMES, volume_bytes: 2 << 20, group, forgets: true, ..PairPlan::default() };
    let mut pair = Pair::replicating(&plan);
    let mut random = TestRandom::new(41);
    for (number, mode) in MODES.into_iter().enumerate() {
        pair.wait_for_rest(Side::Near);
        pair.stop_both();
        let run = WriterRun::on_content(number as u64, &pair, Side::Near, VOLUMES);
        Side::BOTH.into_iter().for_each(|node| pair.serve(node));
        pair.done(Side::Near, &["set", GROUP, &format!("mode={mode}")]);
        let mut load = start_load(&mut pair, &run);
        for _ in 0..STRIKES {
            load.wait_for_more(&mut pair, random.below(200));
            load = strike(&mut pair, load, &run, &mut random);
        }
        load.wait_for_more(&mut pair, 100);
        load.stop();
        pair.wait_for_rest(Side::Near);
        pair.stop_both();
        pair.lose_power_at_rest();
        pair.assert_equal(VOLUMES);
        let flushed = run.flushed();
        println!("{mode}: {} writes were flushed", flushed.len());
        run.assert_kept(&pair, Side::Near, &flushed);
        Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    }
}

fn start_load(pair: &mut Pair, run: &WriterRun) -> WriterLoad {
    // A primary that lost its power asks its peer first.
    pair.until("the export is open", |pair| pair.try_qemu_io(Side::Near, VOLUMES[0], &["read 0 512"]).0);
    WriterLoad::start(pair, Side::Near, run, LoadPlan { flush_one_in: 20, ..LoadPlan::crowded(VOLUMES) })
}

/// Some node's power is lost at some flush, and now and then once more while it starts; the load that goes on.
fn strike(pair: &mut Pair, load: WriterLoad, run: &WriterRun, random: &mut TestRandom) -> WriterLoad {
    let whom: &[Side] = match random.below(4) {
        0 => &Side::BOTH,
        1 => &[Side::Near],
        _ => &[Side::Far],
    };
    for node in whom {
        pair.lose_power_after(*node, random.below(100), random.below(1 << 32));
    }
    let goal = load.acknowledged() + 300;
    pair.until("power is lost, or enough written without", |pair| {
        whom.iter().any(|node| !pair.has_power(*node)) || load.acknowledged() >= goal
    });
    let losses = pair.lose_power(whom, random.below(1 << 32));
    println!("{whom:?} lost {losses:?}");
    let load = if whom.contains(&Side::Near) {
        load.abandon();
        run.power_lost();
        run.assert_kept(pair, Side::Near, &run.flushed());
        None
    } else {
        Some(load)
    };
    for node in whom {
        match random.below(2) {
            0 => pair.serve(*node),
            _ => drop(pair.serve_with_a_loss(*node, random.below(12), random.below(1 << 32))),
        }
    }
    load.unwrap_or_else(|| start_load(pair, run))
}

#[test]
fn power_is_lost_at_each_flush_of_a_first_start() {
    if must_skip_stores("power_is_lost_at_each_flush_of_a_first_start") {
        return;
    }
    for node in Side::BOTH {
        let mut flushes = 0;
        while is_hit_and_recovers(node, flushes) {
            flushes += 1;
        }
        println!("{}: a first start flushes {flushes} times", node.name());
        assert!(flushes >= 5, "{} flushes are too few to be all: {flushes}", node.name());
    }
}

/// A new pair of which a node loses its power at that flush of its first start; whether it came to that.
fn is_hit_and_recovers(node: Side, flushes: u64) -> bool {
    let plan = PairPlan { volumes: VOLUMES, volume_bytes: 1 << 20, forgets: true, ..PairPlan::default() };
    let mut pair = Pair::new(&plan);
    let is_hit = pair.serve_with_a_loss(node, flushes, flushes);
    pair.serve(node.other());
    pair.sync_fully(Side::Near);
    pair.stop_both();
    pair.assert_equal(VOLUMES);
    is_hit
}

/// Whether what a command was answered with is on record.
type CommandRecord = fn(&Pair) -> bool;

// proves: rule 5
#[test]
fn what_a_command_confirmed_survives_a_power_loss_at_each_of_its_flushes() {
    if must_skip_stores("what_a_command_confirmed_survives_a_power_loss_at_each_of_its_flushes") {
        return;
    }
    let demoted = |pair: &Pair| pair.status(Side::Near)["role"] == "secondary";
    let set = |pair: &Pair| pair.status(Side::Near)["mode"] == "sync";
    let promoted = |pair: &Pair| pair.status(Side::Far)["role"] == "primary";
    let cases: [(Side, &[&str], CommandRecord); 3] = [
        (Side::Near, &["demote", GROUP], demoted),
        (Side::Near, &["set", GROUP, "mode=sync"], set),
        (Side::Far, &["promote", GROUP, "--force"], promoted),
    ];
    for (node, words, is_done) in cases {
        let mut flushes = 0;
        while is_hit_by_a_command(node, words, flushes, is_done) {
            flushes += 1;
        }
        println!("{words:?} flushes {flushes} times");
        assert!(flushes >= 1, "{words:?} makes nothing durable");
    }
}

/// A new pair of which a node loses its power at that flush of a command; whether it came to that. What the command
/// confirmed is so afterwards; what it did not confirm may be so or not.
fn is_hit_by_a_command(node: Side, words: &[&str], flushes: u64, is_done: fn(&Pair) -> bool) -> bool {
    let plan = PairPlan { volumes: VOLUMES, volume_bytes: 1 << 20, forgets: true, ..PairPlan::default() };
    let mut pair = Pair::replicating(&plan);
    if node == Side::Far {
        pair.kill(Side::Near);
    }
    pair.lose_power_after(node, flushes, flushes);
    let mut command = Background::start(pair.command(node, words));
    pair.until("the command ends, or power", |pair| command.has_ended() || !pair.has_power(node));
    let is_hit = !pair.has_power(node);
    pair.lose_power(&[node], flushes);
    let output = command.output();
    pair.serve(node);
    // 1: done, with a warning.
    let is_confirmed = output.status.code().is_some_and(|code| code < 2);
    assert!(is_hit || is_confirmed, "{words:?}: {output:?}");
    assert!(!is_confirmed || is_done(&pair), "{words:?} is forgotten: {output:?}\n{}", pair.log(node));
    is_hit
}
