//! Edges of the state table that take a fault within a moment too short for seeds.

use std::time::Duration;

use engine::state::{Mode, Pause, Policy, State};
use engine::{Command, CommandResult};
use sim::nodes::storage::ALWAYS;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

fn is(world: &ScenarioWorld, wanted: State) -> bool {
    world.glance(0, GROUP).is_some_and(|glance| glance.state == wanted)
}

#[test]
fn a_link_lost_while_catching_up_holds_the_writers_too() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Hold(Duration::from_secs(600))));
    // A backlog that the far disk keeps from being durable for a while.
    world.cluster[1].storage.trouble.slow_until = world.now() + 60 * SECOND;
    for n in 0..40 {
        world.write(0, n * 16384, 16384);
    }
    world.pass(20 * MILLISECOND);
    let settings = engine::Settings { mode: Mode::Sync, ..world.cluster.ledger.settings(GROUP) };
    let reply = world.order(0, Command::Set(settings));
    assert!(matches!(reply, CommandResult::Done(_)) && is(&world, State::CatchingUp));
    world.cut([false; 2]);
    world.until("the link is given up", |world| is(world, State::Holding));
    assert!(world.tally.edges.contains(&("catching-up", "holding")));
    let id = world.write(1, 0, 4096);
    world.pass(30 * SECOND);
    assert_eq!(world.reply(id), None, "nothing is acknowledged alone while the window is open");
    world.restore_path();
    assert!(world.answer(id).0, "the peer came back");
    world.drain();
}

// proves: rule 11, rule 12
#[test]
fn a_flush_that_fails_while_writers_are_held_fails_the_group() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Strict));
    world.cut([false; 2]);
    world.until("the window opens", |world| is(world, State::Holding));
    world.cluster[0].storage.trouble.fail_next_flush = true;
    // The group flushes by itself within five seconds of a write, so that its bit can clear.
    world.write(0, 65536, 4096);
    world.until("the group fails", |world| matches!(world.glance(0, GROUP).map(|g| g.state), Some(State::Failed(_))));
    assert!(world.tally.edges.contains(&("holding", "failed")));
}

// proves: rule 11, rule 12
#[test]
fn a_flush_that_fails_while_the_queue_waits_for_the_link_fails_the_group() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    world.until("the link is given up", |world| is(world, State::Queuing));
    world.cluster[0].storage.trouble.fail_next_flush = true;
    world.write(0, 65536, 4096);
    world.until("the group fails", |world| matches!(world.glance(0, GROUP).map(|g| g.state), Some(State::Failed(_))));
    assert!(world.tally.edges.contains(&("queuing", "failed")));
}

// proves: P8
#[test]
fn a_secondary_that_runs_full_pauses_a_backlog_too() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    for n in 0..24 {
        world.write(0, n * 16384, 16384);
        world.pass(5 * MILLISECOND);
    }
    world.until("the queue waits for the link", |world| is(world, State::Queuing));
    let (until, trouble) = (world.now() + 60 * SECOND, &mut world.cluster[1].storage.trouble);
    (trouble.full_until, trouble.slow_until) = (until, until);
    world.restore_path();
    world.until("it pauses", |world| world.tally.edges.contains(&("catching-up", "paused")));
    world.cluster[1].storage.trouble = Default::default();
    world.drain();
}

/// A secondary without space, and then without a link: the state its primary goes to.
fn loses_the_link_while_paused(mode: Mode, policy: Policy) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(mode, policy));
    world.cluster[1].storage.trouble.full_until = ALWAYS;
    world.write(0, 65536, 4096);
    world.until("it pauses", |world| is(world, State::Paused(Pause::PeerFull)));
    world.cut([false; 2]);
    world
}

#[test]
fn a_link_lost_while_paused_leaves_the_queue_waiting() {
    let mut world = loses_the_link_while_paused(Mode::Async, Policy::Degrade);
    world.until("the queue waits for the link", |world| is(world, State::Queuing));
    assert!(world.tally.edges.contains(&("paused", "queuing")));
    world.cluster[1].storage.trouble = Default::default();
    world.restore_path();
    world.drain();
}

#[test]
fn a_link_lost_while_paused_holds_the_writers() {
    let mut world = loses_the_link_while_paused(Mode::Sync, Policy::Strict);
    world.until("the window opens", |world| is(world, State::Holding));
    assert!(world.tally.edges.contains(&("paused", "holding")));
    world.cluster[1].storage.trouble = Default::default();
    world.restore_path();
    world.drain();
}

// proves: rule 19
/// The wall clock is set back by an hour while the peer is away: the age of the copy goes on, and is not reported as none.
#[test]
fn the_lag_is_reported_after_the_clock_was_set_back() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    world.write_done(0, 0, 4096);
    world.cluster[0].skews(-(3600 * SECOND as i64));
    world.pass(60 * SECOND);
    let lag = world.figures(0).peer.lag.expect("the peer's image is known");
    assert!((55..75).contains(&lag.as_secs()), "{lag:?}");
    world.restore_path();
    world.drain();
    assert_eq!(world.figures(0).peer.lag.map(|lag| lag.as_secs()), Some(0));
}
