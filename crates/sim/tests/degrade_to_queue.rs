//! The peer of a group in `sync` or `nearsync` is away for a moment, and its policy is `degrade` with `degrade = queue`: nobody waits for
//! long, the order is kept, and the group comes back without a resync. Who was promised both nodes before has both.
// proves: rule 10

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::identity::DecisionRow;
use engine::limits::{KIB, MIB};
use engine::state::{Degrade, Mode, Pause, Policy, Protection, State};
use engine::{Command, CommandResult};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

/// The queue holds all that is written here, and the limit of a single write is longer than any outage.
fn queued(mode: Mode) -> SimOptions {
    let roomy = SimOptions { queue_bytes: 8 * MIB, wait_limit_ms: 30_000, ..options(mode, Policy::Degrade) };
    SimOptions { degrade: Degrade::Queue, ..roomy }
}

/// A group in step, whose first primary answers under the mode's promise.
fn in_step(options: SimOptions) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options);
    world.write_done(0, 0, 8 * KIB);
    world.until("the promise holds", |world| state(world) == State::Replicating);
    world
}

fn state(world: &ScenarioWorld) -> State {
    world.figures(0).state
}

fn protection(world: &ScenarioWorld) -> Protection {
    world.figures(0).protection
}

/// Writers take turns for so long, each after the one before and a pause: the longest wait.
fn writes_for(world: &mut ScenarioWorld, time_ns: u64) -> u64 {
    let (until, mut longest) = (world.now() + time_ns, 0);
    for n in 0.. {
        if world.now() >= until {
            break;
        }
        longest = longest.max(world.write_done((n % 2) as u16, n * 12 * KIB % (960 * KIB), 8 * KIB));
        world.pass(20 * MILLISECOND);
    }
    longest
}

/// The path is back: the group is in step again, in order, and nothing was compared or sent as a region.
fn comes_back_in_order(world: &mut ScenarioWorld, resynced_before: u64) {
    world.restore_path();
    world.until("the promise holds again", |world| state(world) == State::Replicating);
    world.drain();
    let is_whole = matches!(protection(world), Protection::BothDurable | Protection::BothReceived);
    assert!(is_whole, "{}", protection(world).word());
    assert_eq!(world.figures(0).resynced_bytes, resynced_before, "no resync");
    assert!(world.write_done(0, 64 * KIB, 8 * KIB) < SECOND, "and the promise can be kept");
}

// proves: rule 5, rule 17
/// A cable is out for 5 s while writers write: none waits longer than a second or ten round trips.
#[test]
fn a_cable_out_for_five_seconds_costs_neither_the_order_nor_much_of_anyones_time() {
    for mode in [Mode::Sync, Mode::Nearsync] {
        for delay_ns in [MILLISECOND, 25 * MILLISECOND, 50 * MILLISECOND, 100 * MILLISECOND] {
            let mut world = in_step(SimOptions { delay_ns, ..queued(mode) });
            let (resynced, generation) = (world.figures(0).resynced_bytes, world.recorded(0).identity.generation);
            writes_for(&mut world, SECOND);
            world.cut([false; 2]);
            let longest = writes_for(&mut world, 5 * SECOND);
            assert!(longest <= SECOND.max(20 * delay_ns), "{mode:?} over {delay_ns} ns: {longest} ns");
            assert_eq!(protection(&world), Protection::Queued, "{}", world.figures(0).reason);
            assert!(world.coverage(0, CoveragePoint::SilentPeerLeftBehind) > 0);
            comes_back_in_order(&mut world, resynced);
            assert_eq!(world.recorded(0).identity.generation, generation, "the order went on, and so the generation");
        }
    }
}

/// Nobody writes while the cable is out.
#[test]
fn a_cable_out_without_a_writer_leaves_nothing_behind() {
    let mut world = in_step(queued(Mode::Sync));
    let resynced = world.figures(0).resynced_bytes;
    world.cut([false; 2]);
    world.pass(8 * SECOND);
    assert_eq!((state(&world), protection(&world)), (State::Queuing, Protection::Queued));
    comes_back_in_order(&mut world, resynced);
}

/// The outage is longer than the link's timeout, and both lose their session.
#[test]
fn a_lost_link_keeps_the_order_too() {
    let mut world = in_step(queued(Mode::Sync));
    let resynced = world.figures(0).resynced_bytes;
    world.cut([false; 2]);
    let longest = writes_for(&mut world, 12 * SECOND);
    assert!(longest <= SECOND, "{longest} ns");
    assert_eq!((state(&world), protection(&world)), (State::Queuing, Protection::Queued));
    comes_back_in_order(&mut world, resynced);
    assert!(world.coverage(0, CoveragePoint::QueueContinued) > 0);
    assert_eq!(world.coverage(0, CoveragePoint::GenerationContinued), 0);
}

// proves: P3, P8
/// When the queue is full its own policy decides, as in `async`: with the link down the regions are dirty, and nobody waits.
#[test]
fn a_queue_that_runs_full_falls_to_logging() {
    let mut world = in_step(SimOptions { queue_bytes: 128 * KIB, ..queued(Mode::Sync) });
    world.cut([false; 2]);
    let longest = writes_for(&mut world, 12 * SECOND);
    assert!(longest <= SECOND, "{longest} ns");
    assert_eq!((state(&world), protection(&world)), (State::Logging, Protection::LocalOnly));
    assert!(world.coverage(0, CoveragePoint::GenerationContinued) > 0, "what follows is a generation of its own");
    world.restore_path();
    world.until("in step again", |world| state(world) == State::Replicating);
    world.drain();
}

// proves: P1, P4
/// What was answered alone under `sync` is on the primary's own disk, without a flush.
#[test]
fn a_primary_that_loses_its_power_in_the_window_has_what_it_answered_alone() {
    let mut world = in_step(queued(Mode::Sync));
    // The peer has it and keeps it, and this node has not flushed it.
    world.write_done(0, 128 * KIB, 16 * KIB);
    world.cut([false; 2]);
    writes_for(&mut world, 7 * SECOND);
    world.write_done(0, 132 * KIB, 8 * KIB);
    assert!(world.coverage(0, CoveragePoint::FlushPointRecorded) > 0);
    let ours = world.images_of(0);
    world.crash(0, true, SECOND);
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    assert_eq!(world.images_of(0), ours);
    world.restore_path();
    world.drain();
    assert_eq!(world.images_of(0), ours, "nothing older was fetched over it");
}

// proves: P4
/// The same while the peer is only slow: its writer was under way when it was answered alone.
#[test]
fn who_waited_when_the_peer_was_left_behind_is_durable_here() {
    let mut world = in_step(queued(Mode::Sync));
    world.write_done(0, 128 * KIB, 16 * KIB);
    world.cut([false; 2]);
    let id = world.write(0, 132 * KIB, 8 * KIB);
    assert!(world.answer(id).0);
    assert!(world.coverage(0, CoveragePoint::FlushPointRecorded) > 0);
    let ours = world.images_of(0);
    world.crash(0, true, SECOND);
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    world.restore_path();
    world.drain();
    assert_eq!(world.images_of(0), ours);
}

// proves: P1, P4
/// The link ended while this node's own disk still wrote: what the peer keeps of before is not brought back over it.
#[test]
fn who_was_still_writing_here_when_the_link_ended_is_durable_here() {
    let mut world = in_step(queued(Mode::Sync));
    world.write_done(0, 128 * KIB, 16 * KIB);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 2 * SECOND;
    let id = world.write(0, 132 * KIB, 8 * KIB);
    world.crash(1, false, 60 * SECOND);
    assert!(world.answer(id).0);
    assert!(world.coverage(0, CoveragePoint::FlushPointRecorded) > 0);
    let ours = world.images_of(0);
    world.crash(0, true, SECOND);
    world.drain();
    assert_eq!(world.images_of(0), ours, "nothing older was fetched over it");
}

// proves: rule 17
/// Writers who go on while the backlog drains wait no longer than for the cable when the promise is taken up again.
#[test]
fn nobody_waits_for_the_backlog_when_the_promise_returns() {
    let mut world = in_step(SimOptions { bytes_per_s: 500_000, delay_ns: MILLISECOND, ..queued(Mode::Sync) });
    world.cut([false; 2]);
    let longest = writes_for(&mut world, 10 * SECOND);
    assert!(longest <= SECOND, "{longest} ns");
    world.restore_path();
    let (until, mut longest) = (world.now() + 120 * SECOND, 0);
    while state(&world) != State::Replicating && world.now() < until {
        longest = longest.max(writes_for(&mut world, 100 * MILLISECOND));
    }
    longest = longest.max(writes_for(&mut world, 5 * SECOND));
    assert_eq!(state(&world), State::Replicating);
    assert!(longest <= 1200 * MILLISECOND, "{longest} ns");
    world.drain();
}

// proves: P8
/// The queue is full and nobody waits for the peer, only for room: a silent peer is left behind all the same.
#[test]
fn who_waits_for_room_alone_is_not_kept_by_a_pulled_cable() {
    let mut world = in_step(SimOptions { queue_bytes: 128 * KIB, ..queued(Mode::Nearsync) });
    world.cluster[1].storage.trouble.stalled_until = world.now() + 60 * SECOND;
    let mut waits = world.write(0, 0, 8 * KIB);
    for n in 1..100 {
        world.pass(20 * MILLISECOND);
        if world.reply(waits).is_none() {
            break;
        }
        waits = world.write(0, n * 8 * KIB, 8 * KIB);
    }
    assert!(world.reply(waits).is_none(), "the queue is full of what the peer received");
    world.cut([false; 2]);
    world.pass(1200 * MILLISECOND);
    assert!(world.reply(waits).is_some(), "{}", world.figures(0).reason);
    world.restore_path();
    world.until("in step again", |world| state(world) == State::Replicating);
    world.drain();
}

// proves: P2
/// Its journal has what it confirmed, and the queue goes on from there.
#[test]
fn a_secondary_that_loses_its_power_in_the_window_goes_on_in_order() {
    let mut world = in_step(queued(Mode::Sync));
    let resynced = world.figures(0).resynced_bytes;
    writes_for(&mut world, SECOND);
    world.cut([false; 2]);
    world.crash(1, true, 2 * SECOND);
    writes_for(&mut world, 7 * SECOND);
    comes_back_in_order(&mut world, resynced);
}

// proves: P6, rule 5
/// The peer is promoted by force while the old primary goes on alone in the numbers of the run that the peer followed.
#[test]
fn a_promotion_in_the_window_is_a_fork_with_a_tail() {
    let mut world = in_step(queued(Mode::Sync));
    world.cut([false; 2]);
    writes_for(&mut world, 7 * SECOND);
    assert_eq!(state(&world), State::Queuing);
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
    world.write_done(0, 4 * KIB, 16 * KIB);
    let images = |world: &ScenarioWorld| (world.images_of(0), world.images_of(1));
    let before = images(&world);
    assert_ne!(before.0, before.1);
    world.restore_path();
    world.pass(20 * SECOND);
    assert!(world.figures(0).reason.contains("both nodes are primary"), "{}", world.figures(0).reason);
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
    world.until("the tail is found", |world| world.tally.rows.contains(&DecisionRow::ForkByBits));
    world.pass(20 * SECOND);
    assert_eq!(images(&world), before, "nothing is overwritten, nothing is joined");
    world.refused(1, Command::Sync { full: false });
    assert!(matches!(world.order(1, Command::Sync { full: true }), CommandResult::Done(_)));
    world.drain();
    assert_eq!(world.images_of(0), before.1);
}

// proves: P6, rule 5
/// The same, and the peer is a secondary again when they meet: the queue does not go on into its history.
#[test]
fn a_peer_that_was_promoted_and_demoted_in_the_window_is_not_sent_the_queue() {
    let mut world = in_step(queued(Mode::Sync));
    world.cut([false; 2]);
    writes_for(&mut world, 7 * SECOND);
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
    world.write_done(0, 4 * KIB, 16 * KIB);
    assert!(!matches!(world.order(1, Command::Demote), CommandResult::Refused(_)));
    let theirs = world.images_of(1);
    world.restore_path();
    world.until("the fork is found", |world| world.tally.rows.contains(&DecisionRow::PeerIsNewer));
    world.pass(20 * SECOND);
    assert_eq!(world.images_of(1), theirs);
    assert_eq!(protection(&world), Protection::LocalOnly);
}

// proves: rule 17
/// The peer's disk hangs, and its link lives: one write waits `wait_limit`, and nobody behind it.
#[test]
fn a_stalled_peer_is_left_behind_once() {
    for mode in [Mode::Sync, Mode::Nearsync] {
        let mut world = in_step(SimOptions { wait_limit_ms: 1000, window_bytes: 256 * KIB, ..queued(mode) });
        let (resynced, connections) = (world.figures(0).resynced_bytes, world.network.connections());
        world.cluster[1].storage.trouble.stalled_until = world.now() + 30 * SECOND;
        let longest = writes_for(&mut world, 20 * SECOND);
        assert!(longest <= 1200 * MILLISECOND, "{longest} ns");
        let trips = world.coverage(0, CoveragePoint::WaitLimitTripped);
        // In `nearsync` the peer has room in its memory for a while.
        assert!(trips == 1 || mode == Mode::Nearsync && trips == 0, "{trips} in 20 s");
        assert_eq!(world.network.connections(), connections, "a slow peer is not a dead peer");
        if trips == 1 {
            assert_eq!((state(&world), protection(&world)), (State::CatchingUp, Protection::Queued));
        }
        comes_back_in_order(&mut world, resynced);
    }
}

// proves: P8, rule 17
/// The peer hangs for longer than the queue lasts: a writer waits for room as long as one may wait, and nobody behind it.
#[test]
fn a_queue_that_runs_full_beside_a_stalled_peer_decides_as_in_async() {
    let tight = SimOptions { wait_limit_ms: 1000, queue_bytes: 128 * KIB, ..queued(Mode::Sync) };
    let mut world = in_step(tight);
    world.cluster[1].storage.trouble.stalled_until = world.now() + 60 * SECOND;
    let longest = writes_for(&mut world, 20 * SECOND);
    assert!(longest <= 1200 * MILLISECOND, "{longest} ns");
    assert_eq!(world.coverage(0, CoveragePoint::WaitLimitTripped), 2, "for the peer, then for room");
    assert_eq!(protection(&world), Protection::LocalOnly);
    world.until("in step again", |world| state(world) == State::Replicating);
    world.drain();
}

/// A link with room for less than is written: nobody is promised again what would take longer than a write may wait.
#[test]
fn a_backlog_that_takes_too_long_is_no_reason_to_promise() {
    let slow = SimOptions { bytes_per_s: 100_000, wait_limit_ms: 4000, ..queued(Mode::Sync) };
    let mut world = in_step(slow);
    let resynced = world.figures(0).resynced_bytes;
    world.cut([false; 2]);
    writes_for(&mut world, 10 * SECOND);
    world.restore_path();
    world.until("the queue goes on", |world| state(world) == State::CatchingUp);
    let longest = writes_for(&mut world, 10 * SECOND);
    assert!(longest < SECOND, "{longest} ns");
    assert_eq!((state(&world), protection(&world)), (State::CatchingUp, Protection::Queued));
    comes_back_in_order(&mut world, resynced);
}

/// Under `hold` the window comes first; what follows it is the same.
#[test]
fn behind_a_peer_window_the_queue_keeps_the_order() {
    let hold = Policy::Hold(Duration::from_secs(4));
    let mut world = in_step(SimOptions { policy: hold, ..queued(Mode::Sync) });
    let resynced = world.figures(0).resynced_bytes;
    world.cut([false; 2]);
    let held = world.write(1, 4096, 8192);
    world.until("the window opens", |world| state(world) == State::Holding);
    world.pass(3 * SECOND);
    assert_eq!((world.reply(held), protection(&world)), (None, Protection::Held));
    assert!(world.answer(held).0);
    assert_eq!((state(&world), protection(&world)), (State::Queuing, Protection::Queued));
    let longest = writes_for(&mut world, 3 * SECOND);
    assert!(longest <= 100 * MILLISECOND, "{longest} ns");
    comes_back_in_order(&mut world, resynced);
    assert_eq!(world.coverage(0, CoveragePoint::HoldEnded), 1);
}

/// Writers are held, and the operator types that they need not be.
#[test]
fn strict_that_becomes_degrade_while_writers_are_held_keeps_the_order() {
    let mut world = in_step(SimOptions { policy: Policy::Strict, wait_limit_ms: 60_000, ..queued(Mode::Sync) });
    let resynced = world.figures(0).resynced_bytes;
    world.cut([false; 2]);
    let held = world.write(1, 4096, 8192);
    world.pass(8 * SECOND);
    assert_eq!((world.reply(held), state(&world)), (None, State::Holding));
    world.set(GROUP, |settings| settings.policy = Policy::Degrade);
    assert!(world.answer(held).0);
    assert_eq!((state(&world), protection(&world)), (State::Queuing, Protection::Queued));
    comes_back_in_order(&mut world, resynced);
}

/// The secondary has no space for replicated writes: its journal fills, and one writer waits for it.
#[test]
fn a_paused_peer_is_left_behind_too() {
    let tight = SimOptions { wait_limit_ms: 1000, journal_bytes: 512 * KIB, ..queued(Mode::Sync) };
    let mut world = in_step(tight);
    world.cluster[1].storage.trouble.full_until = world.now() + 25 * SECOND;
    let longest = writes_for(&mut world, 20 * SECOND);
    assert!(longest <= 1200 * MILLISECOND, "{longest} ns");
    assert_eq!((state(&world), protection(&world)), (State::Paused(Pause::PeerFull), Protection::Queued));
    assert_eq!(world.figures(0).reason, Pause::PeerFull.words(), "what the peer waits for is what people have to know");
    world.until("in step again", |world| state(world) == State::Replicating);
    world.drain();
    assert_eq!(world.coverage(0, CoveragePoint::UpdateSyncBegan), 0);
}
