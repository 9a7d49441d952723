//! A group that has failed leaves nobody waiting: neither clients nor operators, nor a node that is to stop.

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Pause, Policy, State};
use engine::{Command, CommandResult, Input};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, at_rest, node_failed, options};

fn failed(world: &ScenarioWorld) -> bool {
    node_failed(world, 0)
}

/// Alone, with regions that a demotion has to store.
fn with_dirty_regions() -> ScenarioWorld {
    let mut world = at_rest();
    world.cut([false; 2]);
    world.write_done(0, 0, 8 * KIB);
    world.pass(10 * SECOND);
    let flush = world.flush(0);
    assert!(world.answer(flush).0);
    world
}

/// Two writes want one range, and the record of a generation fails while the first of them is under way.
#[test]
fn a_write_that_waits_for_its_range_is_answered() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for volume in 0..2 {
        world.write_done(volume, 0, 4 * KIB);
    }
    world.drain();
    world.cluster[0].storage.trouble.stalled_until = world.now() + 50 * MILLISECOND;
    world.write(0, 0, 4 * KIB);
    world.cluster[0].storage.trouble.stalled_until = 0;
    // What is written now is of a new generation.
    world.set_mode(GROUP, Mode::Logging);
    world.cluster[0].storage.trouble.fail_next_record = true;
    let other = world.write(1, 0, 4 * KIB);
    let waits = world.write(0, 0, 4 * KIB);
    assert!(!world.answer(other).0 && failed(&world));
    assert_eq!(world.reply(waits), None, "it waits");
    assert!(!world.answer(waits).0);
}

#[test]
fn a_node_whose_demotion_failed_can_be_stopped() {
    let mut world = at_rest();
    world.cluster[0].storage.trouble.fail_next_record = true;
    let why = world.refused(0, Command::Demote);
    assert!(why.contains("superblock could not be written"), "{why}");
    world.input(0, Input::Stop);
    world.until("it has stopped", |world| !world.cluster[0].up());
}

/// Sparse scenario 497955: both nodes are primary in one session, and the record of the demotion of one of them fails. What the other one
/// says of its clock after that was confirmed by a node that had last said that it is the primary.
#[test]
fn a_node_whose_demotion_failed_confirms_nothing() {
    let hold = Policy::Hold(std::time::Duration::from_secs(5));
    let mut world = ScenarioWorld::in_peace(SimOptions { delay_ns: 20 * MILLISECOND, ..options(Mode::Sync, hold) });
    world.cut([false; 2]);
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
    world.pass(1_600 * MILLISECOND);
    world.cluster[1].storage.trouble.fail_next_record = true;
    let why = world.refused(1, Command::Demote);
    assert!(node_failed(&world, 1) && why.contains("superblock could not be written"), "{why}");
    world.pass(SECOND);
    // The session is the same: its ticks arrive.
    world.restore_path();
    // The wire's checker objects to a confirmation of a primary.
    world.pass(20 * SECOND);
}

// proves: rule 6
/// A demotion stores the dirty regions first.
#[test]
fn a_demotion_whose_bits_cannot_be_stored_is_refused() {
    let mut world = with_dirty_regions();
    world.cluster[0].storage.trouble.fail_next_record = true;
    let CommandResult::Refused(why) = world.order(0, Command::Demote) else { panic!("demoted") };
    assert!(failed(&world) && why.text.contains("dirty regions"), "{why}");
}

/// An order's record is under way when a demotion begins to store its bits; it fails, and then the bits are stored.
#[test]
fn a_demotion_whose_bits_are_stored_too_late_is_refused() {
    let mut world = with_dirty_regions();
    world.cluster[0].storage.trouble.fail_next_record = true;
    let logging = world.command(0, GROUP, Command::Logging);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 20 * MILLISECOND;
    let demoted = world.command(0, GROUP, Command::Demote);
    world.cluster[0].storage.trouble.stalled_until = 0;
    world.pass(SECOND);
    assert!(failed(&world));
    for order in [logging, demoted] {
        assert!(matches!(world.cluster.ledger.result(order), Some(CommandResult::Refused(_))));
    }
}

/// A region of the primary cannot be read for a quarter of an hour: no sync can end, and nobody who does not want that region is
/// kept from anything.
#[test]
fn a_primary_that_cannot_read_for_a_sync_goes_on_serving() {
    for killed in [false, true] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
        world.cut([false; 2]);
        world.write_done(0, 0, 64 * KIB);
        if killed {
            // What was hot is compared, in the stream.
            world.crash(0, false, SECOND);
        }
        world.cluster[0].storage.trouble.read_errors_until = ALWAYS;
        world.restore_path();
        for _ in 0..90 {
            world.pass(10 * SECOND);
            assert!(!failed(&world), "{}", world.figures(0).reason);
            let id = world.write(1, 0, 4 * KIB);
            assert!(world.answer(id).0, "{}", world.figures(0).reason);
        }
        let why = world.figures(0).reason;
        assert!(why.contains("could not be read"), "{why}");
        world.cluster[0].storage.trouble.read_errors_until = 0;
        world.drain();
    }
}

/// The superblock that would say that the rollback point is given up cannot be written.
#[test]
fn giving_the_rollback_point_up_is_refused_when_it_cannot_be_recorded() {
    let tight = SimOptions { bytes_per_s: 400_000, history_bytes: 160 * KIB, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(tight);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..14 {
        world.write_done(n % 2, u64::from(n) * 60 * KIB, 36 * KIB);
    }
    world.order(0, Command::Sync { full: false });
    let is_full = |world: &ScenarioWorld| world.figures(1).state == State::Paused(Pause::HistoryFull);
    world.until("its history is full", is_full);
    world.pass(2 * SECOND);
    let name = world.figures(1).rollback_point.expect("taken").name;
    world.cluster[1].storage.trouble.fail_next_record = true;
    let why = world.refused(1, Command::DropRollbackPoint { name, discard: false });
    assert!(node_failed(&world, 1) && why.contains("superblock could not be written"), "{why}");
}

/// A primary that was killed has what was hot compared, in the stream: its peer is in the middle of a sync with writes in
/// its journal that wait to be saved.
fn stands_in_a_sync() -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..24 {
        world.write_done(n % 2, u64::from(n) * 40 * KIB, 40 * KIB);
    }
    world.drain();
    world.write_done(0, 0, 4 * KIB);
    world.crash(0, false, SECOND);
    while !world.glance(1, GROUP).is_some_and(|glance| glance.identity.inconsistent) {
        world.pass(MILLISECOND / 5);
    }
    let (now, far) = (world.now(), &mut world.cluster[1].storage.trouble);
    (far.read_errors_until, far.stalled_until) = (ALWAYS, now + 100 * MILLISECOND);
    for n in 0..12 {
        world.write(0, n * 12 * KIB, 4 * KIB);
    }
    world.pass(300 * MILLISECOND);
    world.cut([false; 2]);
    world.crash(1, false, FOR_EVER);
    world.cluster[1].storage.trouble.read_errors_until = 0;
    world
}

/// Of what a start saves a batch cannot be written, and the group fails; what is read beside it ends well.
#[test]
fn a_start_that_failed_does_not_go_on() {
    let mut seen = 0;
    for late in 0..40 {
        let mut world = stands_in_a_sync();
        world.boot(1);
        world.pass(late * MILLISECOND / 10);
        world.cluster[1].storage.trouble.fail_next_record = true;
        let limit = world.now() + 20 * MILLISECOND;
        while !node_failed(&world, 1) && world.now() < limit {
            world.pass(5_000);
        }
        let has_failed = node_failed(&world, 1);
        world.cluster[1].storage.trouble.fail_next_record = false;
        world.pass(SECOND);
        assert_eq!(node_failed(&world, 1), has_failed, "{late}");
        seen += u32::from(has_failed);
    }
    assert!(seen > 3, "{seen}");
}

// proves: rule 11
/// Its volume fails while the journal is replayed.
#[test]
fn a_group_that_failed_at_its_start_says_so() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cluster[1].storage.trouble.full_until = ALWAYS;
    for n in 0..8 {
        world.write_done(0, n * 8 * KIB, 4 * KIB);
    }
    world.pass(500 * MILLISECOND);
    world.crash(1, false, FOR_EVER);
    let far = &mut world.cluster[1].storage.trouble;
    (far.full_until, far.apply_errors_until) = (0, ALWAYS);
    world.boot(1);
    world.until("it fails", |world| node_failed(world, 1));
    world.pass(30 * SECOND);
    let why = world.refused(1, Command::Promote { force: true, entropy: 9 });
    assert!(why.contains("failed"), "{why}");
    assert!(world.figures(0).reason.contains("failed"), "{}", world.figures(0).reason);
}

/// Seed 503817: the record that drops a rollback point fails while the next snapshot waits for it. The group fails, and nothing begins
/// over what it left.
#[test]
fn a_sync_that_waits_for_a_record_that_fails_does_not_begin() {
    let mut met = 0;
    for step in 0..120 {
        let mut world = ScenarioWorld::in_peace(SimOptions {
            bytes_per_s: 400_000,
            disk_ns: (5_000_000, 60_000_000),
            ..options(Mode::Async, Policy::Degrade)
        });
        for n in 0..64 {
            world.write_done(n % 2, u64::from(n) / 2 * 32 * KIB, 32 * KIB);
        }
        world.drain();
        assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
        for n in 0..64 {
            world.write_done(n % 2, u64::from(n) / 2 * 32 * KIB, 32 * KIB);
        }
        world.command(0, GROUP, Command::Sync { full: false });
        world.until("a snapshot", |world| world.figures(1).rollback_point.is_some());
        for n in 0..40 {
            world.write(0, n * 16 * KIB, 4 * KIB);
        }
        let ended = world.coverage(0, CoveragePoint::SnapshotEnded);
        while world.coverage(0, CoveragePoint::SnapshotEnded) == ended {
            world.pass(100_000);
        }
        world.pass(step * MILLISECOND);
        world.cluster[1].storage.trouble.fail_next_record = true;
        world.pass(2 * SECOND);
        met += u32::from(world.cluster[1].status_of(GROUP).is_some_and(|now| matches!(now.state, State::Failed(_))));
    }
    assert!(met > 0);
}
