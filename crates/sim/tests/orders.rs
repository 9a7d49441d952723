//! What an operator ordered, and was told had begun, is carried out whatever else happens in that moment.

use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult};
use sim::story::{GROUP, MILLISECOND, SECOND, options};
use sim::swarm::Options;
use sim::world::World;

fn goes_on(world: &mut World) {
    world.pass(60 * SECOND);
    let state = world.glance(0, GROUP).map(|glance| glance.state);
    assert_eq!(state, Some(State::Replicating), "{}", world.figures(0).reason);
}

/// In step; from here on nothing begins by itself.
fn without_autosync(options: Options) -> World {
    let mut world = World::in_peace(options);
    world.set(GROUP, |settings| settings.autosync = false);
    world.pass(SECOND);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.pass(SECOND);
    world
}

/// The peer's state directory was replaced: only a full sync makes it whole.
fn with_a_blank_peer() -> World {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    world.watch.spoiled.insert((GROUP, 1));
    world.replaces_spoiled_records_of(1);
    world.pass(10 * SECOND);
    world
}

fn full_sync_beside_the_first_write(world: &mut World) {
    let sync = world.command(0, GROUP, Command::Sync { full: true });
    let id = world.write(0, 0, 4 * KIB);
    assert!(world.answer(id).0);
    world.until("it is answered", |world| world.operator.results.contains_key(&sync));
    assert!(matches!(world.operator.results[&sync], CommandResult::Done(_)));
}

/// While it stores its bits the first write alone has a generation recorded, and then the peer is told of that.
#[test]
fn a_full_sync_survives_the_first_write_alone() {
    for mut world in [without_autosync(options(Mode::Async, Policy::Degrade)), with_a_blank_peer()] {
        full_sync_beside_the_first_write(&mut world);
        goes_on(&mut world);
    }
}

/// There is so much to send that it goes by cuts, and it begins while the generation is being recorded.
#[test]
fn an_update_sync_by_cuts_survives_the_first_write_alone() {
    let slow = Options { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) };
    let mut world = without_autosync(slow);
    for volume in 0..2 {
        for region in 0..32 {
            let id = world.write(volume, region * 32 * KIB, 4 * KIB);
            assert!(world.answer(id).0);
        }
    }
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.until("regions travel", |world| {
        world.figures(0).sync.is_some_and(|sync| sync.cut.is_some() && sync.done_bytes > 200 * KIB)
    });
    // The operator needs the link for something else for a while.
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.pass(10 * SECOND);
    world.nodes[0].trouble.slow_until = world.now + 30 * MILLISECOND;
    let id = world.write(0, 0, 4 * KIB);
    world.pass(MILLISECOND);
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    assert!(world.answer(id).0);
    goes_on(&mut world);
}

/// At every moment up to the peer's word that it is ready.
#[test]
fn a_full_sync_survives_a_link_that_goes_while_it_begins() {
    for instant in 0..16 {
        let mut world = with_a_blank_peer();
        let sync = world.command(0, GROUP, Command::Sync { full: true });
        world.pass(instant * MILLISECOND / 4);
        world.cut([false; 2]);
        world.pass(10 * SECOND);
        assert!(matches!(world.operator.results[&sync], CommandResult::Done(_)));
        world.restore_path();
        goes_on(&mut world);
    }
}

/// The peer's disk stands still as it is to take up the sync: the attempt is given up, the order is not.
#[test]
fn a_full_sync_survives_a_peer_that_stands_still_while_it_begins() {
    let mut world = with_a_blank_peer();
    world.nodes[1].trouble.stalled_until = world.now + 100 * SECOND;
    assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
    world.pass(240 * SECOND);
    goes_on(&mut world);
}

/// A peer that stands still, and a write that waits for it under this policy.
fn held(policy: Policy) -> (World, engine::RequestId) {
    let mut world = World::in_peace(Options { wait_limit_ms: 15_000, ..options(Mode::Sync, policy) });
    world.nodes[1].trouble.stalled_until = world.now + 20 * SECOND;
    let id = world.write(0, 0, 4 * KIB);
    world.pass(500 * MILLISECOND);
    assert_eq!(world.reply(id), None);
    (world, id)
}

#[test]
fn writers_go_on_when_the_mode_becomes_async() {
    for policy in [Policy::Degrade, Policy::Strict] {
        let (mut world, id) = held(policy);
        world.set(GROUP, |settings| settings.mode = Mode::Async);
        assert_eq!(world.reply(id), Some(true), "not only those that come later");
        world.settle();
    }
}

/// Nobody waits any more whose limit could run out: the queue keeps the order.
#[test]
fn a_queue_is_kept_when_the_mode_became_async_before_the_link_went() {
    let (mut world, _) = held(Policy::Strict);
    world.set(GROUP, |settings| settings.mode = Mode::Async);
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    let state = world.glance(0, GROUP).map(|glance| glance.state);
    assert_eq!(state, Some(State::Queuing), "{}", world.figures(0).reason);
}
