//! A node that is stopped says so: its peer need not take it for a fault.

use std::time::Duration;

use engine::limits::KIB;
use engine::marks::Mark;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, Input};
use sim::story::{FOR_EVER, GROUP, MILLISECOND, SECOND, options};
use sim::swarm::Options;
use sim::world::World;

#[test]
fn the_peer_of_a_stopped_node_knows_why_the_link_is_down() {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    world.input(1, Input::Stop);
    world.until("stopped", |world| !world.nodes[1].up());
    world.pass(50 * MILLISECOND);
    assert_eq!(world.figures(0).peer.link_reason, "the peer was stopped");
    assert_eq!(world.mark(0, Mark::GoodbyeHeard), 1);
    // A kill says nothing.
    world.until("back", |world| world.nodes[1].up());
    world.settle();
    world.crash(1, false, FOR_EVER);
    world.pass(50 * MILLISECOND);
    assert_eq!(world.figures(0).peer.link_reason, "reset");
}

#[test]
fn a_group_that_is_stopped_before_it_knew_who_it_is_says_nothing() {
    for moment in 0..200 {
        let mut options = options(Mode::Async, Policy::Degrade);
        (options.pairs, options.disk_ns) = (vec![[0, 1]; 3], (MILLISECOND, 4 * MILLISECOND));
        (options.volumes, options.volume_bytes) = (1, 64 * KIB);
        let mut world = World::for_story(options);
        world.pass(moment * MILLISECOND / 5);
        // One group may be through with its start and take its time, another is not.
        world.input(moment as usize % 2, Input::Stop);
        world.pass(200 * MILLISECOND);
    }
}

/// Under `hold` a write waits for the link, another one for its range, and the disk takes longer than a stop waits: when the
/// range is free the second one is told what the first one was.
#[test]
fn a_write_that_waits_for_its_range_does_not_keep_a_node_from_stopping() {
    let mut world = World::in_peace(options(Mode::Sync, Policy::Hold(Duration::from_secs(3600))));
    let id = world.write(0, 0, 4 * KIB);
    assert!(world.answer(id).0);
    world.cut([false; 2]);
    world.pass(10 * SECOND);
    world.nodes[0].trouble.stalled_until = world.now + 5 * SECOND;
    let (first, second) = (world.write(0, 0, 4 * KIB), world.write(0, 0, 4 * KIB));
    world.pass(MILLISECOND);
    world.input(0, Input::Stop);
    world.until("stopped", |world| !world.nodes[0].up());
    assert_eq!((world.reply(first), world.reply(second)), (Some(false), Some(false)));
}

/// A secondary whose journal is full of what its primary has not flushed is stopped. What it drops it had confirmed as
/// received.
#[test]
fn a_stop_with_a_full_journal_takes_no_confirmation_back() {
    for mode in [Mode::Async, Mode::Nearsync] {
        let mut world = World::in_peace(Options {
            journal_bytes: 384 * KIB,
            window_bytes: 192 * KIB,
            start_alone_ms: 600_000,
            wait_limit_ms: 100_000,
            ..options(mode, Policy::Degrade)
        });
        for n in 0..4 {
            let id = world.write((n % 2) as u16, n / 2 * 256 * KIB, 8 * KIB);
            assert!(world.answer(id).0);
        }
        world.pass(6 * SECOND);
        world.nodes[0].trouble.stalled_until = world.now + 60 * SECOND;
        for n in 0..70 {
            world.write((n % 2) as u16, n / 2 * 8 * KIB, 8 * KIB);
            world.pass(5 * MILLISECOND);
        }
        world.pass(SECOND);
        assert!(world.figures(1).unapplied_bytes > 0, "{:?}", world.glance(1, GROUP));
        world.input(1, Input::Stop);
        world.pass(10 * SECOND);
        world.nodes[0].trouble.stalled_until = 0;
        world.pass(60 * SECOND);
        world.until("both are up", |world| world.nodes.iter().all(|node| node.up()));
        if world.glance(0, GROUP).is_some_and(|glance| glance.state == State::Logging) {
            world.order(0, Command::Sync { full: false });
        }
        world.settle();
    }
}

fn explains(world: &World, node: usize, what: &str) -> bool {
    world.nodes[node].engine.as_ref().is_some_and(|engine| engine.explain(GROUP).contains(what))
}

/// A start that goes on with a rollback is told to stop, and its last record fails: the node never stops.
#[test]
fn a_start_whose_rollback_cannot_be_recorded_can_be_stopped() {
    let mut world = World::in_peace(Options { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) });
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..14 {
        let id = world.write(n % 2, u64::from(n) * 60 * KIB, 36 * KIB);
        assert!(world.answer(id).0);
    }
    let before = world.images_of(1);
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.until("a part is overwritten", |world| {
        world.images_of(1) != before && world.figures(1).rollback_point.is_some_and(|p| p.used_bytes > 200 * KIB)
    });
    world.cut([false; 2]);
    world.command(1, GROUP, Command::Promote { force: true, entropy: 7 });
    while !explains(&world, 1, "WriteBack") {
        world.pass(50_000);
    }
    world.crash(1, true, MILLISECOND);
    while !explains(&world, 1, "WriteBack") {
        world.pass(20_000);
    }
    world.nodes[1].trouble.fail_next_record = true;
    world.input(1, Input::Stop);
    let limit = world.now + 300 * SECOND;
    while world.nodes[1].up() && world.now < limit {
        world.pass(100 * MILLISECOND);
    }
    assert!(!world.nodes[1].up(), "five minutes later it has not stopped");
}
