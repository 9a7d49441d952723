//! The secondary's disk answers nothing any more while its link lives: one write waits `wait_limit`, the group falls to
//! logging, and nothing is tried over and over.
// proves: rule 17

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Pause, Policy, State};
use engine::{Command, CommandResult};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

#[test]
fn a_stall_trips_the_wait_limit_once() {
    // Room for all that is written while the next sync stalls too: a full queue is another scenario.
    let roomy = SimOptions { queue_bytes: 8 * MIB, ..options(Mode::Sync, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(roomy);
    let connections = world.network.connections();
    world.cluster[1].storage.trouble.stalled_until = world.now() + 40 * SECOND;
    let first = world.write(0, 0, 4 * KIB);
    let (done, after) = world.answer(first);
    assert!(done && (900 * MILLISECOND..1200 * MILLISECOND).contains(&after), "{after} ns");
    assert_eq!(world.glance(0, GROUP).map(|g| g.state), Some(State::Logging));
    let mut longest = 0;
    for n in 0..300u64 {
        let id = world.write((n % 2) as u16, n * 2 * KIB, 2 * KIB);
        longest = longest.max(world.answer(id).1);
        world.pass(100 * MILLISECOND);
    }
    assert!(longest <= 1200 * MILLISECOND, "{longest} ns");
    assert_eq!(world.coverage(0, CoveragePoint::WaitLimitTripped), 1, "in 30 s");
    assert_eq!(world.network.connections(), connections, "a slow peer is not a dead peer");
    world.drain();
}

#[test]
fn a_full_queue_does_not_make_anyone_wait_for_it_again() {
    // The queue of the second attempt fills long before the peer answers.
    let mut world =
        ScenarioWorld::in_peace(SimOptions { queue_bytes: 128 * KIB, ..options(Mode::Sync, Policy::Degrade) });
    world.cluster[1].storage.trouble.stalled_until = world.now() + 60 * SECOND;
    let mut waited = 0;
    for n in 0..400u64 {
        let id = world.write((n % 2) as u16, n * 2 * KIB, 4 * KIB);
        let (done, after) = world.answer(id);
        assert!(done && after <= 1200 * MILLISECOND, "write {n}: {after} ns");
        waited += u32::from(after > 100 * MILLISECOND);
        world.pass(100 * MILLISECOND);
    }
    assert_eq!((world.coverage(0, CoveragePoint::WaitLimitTripped), waited), (1, 1), "in 40 s");
    // Not every 5 s: 5, 10, 20 s at most. By snapshots no writer waits at all.
    let again = world.coverage(0, CoveragePoint::StalledAgain);
    assert!(again <= 3, "{again} attempts");
    world.drain();
}

/// A link that is seldom busy is measured at the rate of its load: a slow link that carries heartbeats needs that, so that a sync of
/// minutes is not given up.
#[test]
fn a_sync_that_stands_still_is_given_up_and_a_slow_one_is_not() {
    let slow = SimOptions { bytes_per_s: 8_000, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::new(slow);
    world.pass(SECOND);
    world.order(0, Command::Sync { full: true });
    // 2 MiB at 8 kB/s, with old content in them: minutes, and never a doubt.
    world.drain();
    assert!(world.now() > 60 * SECOND, "{} ns", world.now());
    assert_eq!(world.coverage(0, CoveragePoint::SyncStalled), 0);
    world.cluster[1].storage.trouble.stalled_until = world.now() + 200 * SECOND;
    world.order(0, Command::Sync { full: true });
    let began = world.now();
    world.until("given up", |world| world.coverage(0, CoveragePoint::SyncStalled) == 1);
    assert!(world.now() - began <= 65 * SECOND);
    assert_eq!(world.glance(0, GROUP).map(|g| g.state), Some(State::Logging));
    world.drain();
}

/// It was paused when its time was looked at, and nobody looked again. What comes after a pause is watched as well.
#[test]
fn a_sync_that_was_paused_is_still_watched() {
    let tight = SimOptions { bytes_per_s: 100_000, history_bytes: 160 * KIB, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(tight);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..14u64 {
        world.write_done((n % 2) as u16, n * 60 * KIB, 36 * KIB);
    }
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    let is = |world: &ScenarioWorld, state| world.glance(0, GROUP).is_some_and(|glance| glance.state == state);
    world.until("paused", |world| is(world, State::Paused(Pause::HistoryFull)));
    world.pass(70 * SECOND);
    assert_eq!(world.coverage(0, CoveragePoint::SyncStalled), 0);
    let name = world.figures(1).rollback_point.expect("taken").name;
    assert!(matches!(world.order(1, Command::DropRollbackPoint { name, discard: false }), CommandResult::Done(_)));
    world.until("it goes on", |world| is(world, State::Syncing));
    world.cluster[1].storage.trouble.stalled_until = world.now() + 200 * SECOND;
    let goes_on = world.now();
    world.until("given up", |world| world.coverage(0, CoveragePoint::SyncStalled) == 1);
    assert!((55 * SECOND..=65 * SECOND).contains(&(world.now() - goes_on)));
    assert!(is(&world, State::Logging));
    world.drain();
}

/// However long it would be left alone by then, and whoever ordered the sync.
#[test]
fn an_answer_of_a_peer_that_was_given_up_begins_the_next_sync() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..8 {
        world.write_done(0, n * 64 * KIB, 4 * KIB);
    }
    let back = world.now() + 380 * SECOND;
    world.cluster[1].storage.trouble.stalled_until = back;
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.pass(379 * SECOND);
    assert_eq!(world.coverage(0, CoveragePoint::SyncStalled), 5, "the wait doubles, also for a sync that was ordered");
    assert_eq!(world.glance(0, GROUP).map(|g| g.state), Some(State::Logging));
    world.until("in step", |world| world.in_step());
    assert!(world.now() - back < 10 * SECOND, "{} ns after the answer", world.now() - back);
}

/// It was asked for nothing while the primary's own disk stood still, and then had a moment for its answer.
#[test]
fn a_peer_is_not_called_stalled_for_the_time_in_which_nothing_was_sent_to_it() {
    let far = SimOptions { delay_ns: 40 * MILLISECOND, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(far);
    // The first sync is not watched any more.
    world.pass(70 * SECOND);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.write_done(0, 0, 64 * KIB);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 60 * SECOND - 20 * MILLISECOND;
    world.command(0, GROUP, Command::Sync { full: false });
    world.pass(59 * SECOND);
    assert_eq!(world.glance(0, GROUP).map(|g| g.state), Some(State::Syncing));
    world.pass(100 * SECOND);
    assert_eq!(world.coverage(0, CoveragePoint::SyncStalled), 0);
    world.drain();
}
