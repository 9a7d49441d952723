//! Orders that meet something under way: what they wait for, and what they say has been reached.

use engine::identity::Role;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, node_failed, options};

/// All that may differ after an unclean stop is compared, and that goes in the stream, with a number for each range.
fn comparing() -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(SimOptions {
        volume_bytes: 64 * MIB,
        volumes: 1,
        queue_bytes: 8 * MIB,
        journal_bytes: 4 * MIB,
        window_bytes: 2 * MIB,
        activity: engine::ActivityConfig { extent_bytes: MIB, extents: 64 },
        history_bytes: 128 * MIB,
        disk_ns: (2 * MILLISECOND, 4 * MILLISECOND),
        delay_ns: 10 * MILLISECOND,
        bytes_per_s: 1_000_000,
        ..options(Mode::Async, Policy::Degrade)
    });
    for n in 0..64 {
        world.write_done(0, n * MIB, 4 * KIB);
    }
    world.pass(10 * SECOND);
    world.crash(0, false, SECOND);
    // It takes a while, for this node reads slowly: sixteen at a time, a third of a second each.
    world.cluster[0].storage.trouble.slow_until = world.now() + 60 * SECOND;
    world.cluster[0].storage.trouble.flush_ns = 500 * MILLISECOND;
    world.pass(2 * SECOND);
    world.until("the comparison is under way", |world| world.figures(0).sync.is_some_and(|sync| sync.done_bytes > 0));
    world
}

/// Each number that the sync gives is to be flushed here, so while it goes on there is always something that is not; and the export
/// is closed meanwhile.
#[test]
fn a_demotion_does_not_wait_for_the_end_of_a_sync() {
    let mut world = comparing();
    let began = world.now();
    let result = world.order(0, Command::Demote);
    let waited = world.now() - began;
    assert!(waited < 12 * SECOND, "it took {} ms", waited / MILLISECOND);
    assert!(matches!(&result, CommandResult::Warning(text) if text.contains("may differ")), "{result:?}");
}

/// As for a demotion: a stop in mid-sync does not wait until there is nothing left to flush.
#[test]
fn a_stop_does_not_wait_for_the_end_of_a_sync() {
    let mut world = comparing();
    let began = world.now();
    world.stop(0);
    let waited = world.now() - began;
    assert!(waited < 4 * SECOND, "it took {} ms", waited / MILLISECOND);
    world.boot(0);
    world.drain();
}

/// Types a command and looks again every 50 us until it is answered.
fn quickly(world: &mut ScenarioWorld, node: usize, command: Command) -> CommandResult {
    let id = world.command(node, GROUP, command);
    let limit = world.now() + 20 * SECOND;
    while world.cluster.ledger.result(id).is_none() {
        assert!(world.now() < limit, "it is not answered");
        world.pass(50_000);
    }
    world.cluster.ledger.result(id).cloned().expect("answered")
}

/// The old primary follows the new one, and has just taken up the end of its sync: on its slow disk the bits that this reconciled are
/// being cleared, while the other one hands over.
fn handed_over_while_bits_are_cleared(seed: u64) -> ScenarioWorld {
    // So small that its sync is one in the stream.
    let mut world = ScenarioWorld::in_peace(SimOptions {
        seed: 2 * seed,
        volume_bytes: 64 * KIB,
        ..options(Mode::Async, Policy::Degrade)
    });
    world.write_done(1, 0, 8 * KIB);
    world.pass(30 * SECOND);
    world.crash(0, true, 2 * SECOND);
    world.pass(SECOND);
    assert!(!matches!(world.promote(1, true), CommandResult::Refused(_)));
    world.write_done(0, 0, 8 * KIB);
    world.pass(20 * SECOND);
    assert!(!matches!(world.order(0, Command::Demote), CommandResult::Refused(_)));
    assert!(!matches!(world.order(1, Command::SendAll), CommandResult::Refused(_)));
    world.cluster[0].storage.trouble.slow_until = world.now() + 600 * SECOND;
    let limit = world.now() + 20 * SECOND;
    while world.glance(1, GROUP).is_none_or(|glance| glance.state != State::Replicating) {
        assert!(world.now() < limit, "it does not end");
        world.pass(50_000);
    }
    let handed_over = quickly(&mut world, 1, Command::Demote);
    assert!(matches!(handed_over, CommandResult::Done(_)), "{handed_over:?}");
    world.pass(2 * MILLISECOND);
    world
}

/// A store fails while the promotion is being recorded: it is on record, but nothing is opened, and the operator hears why.
#[test]
fn a_promotion_of_a_group_that_fails_meanwhile_opens_nothing() {
    let mut seen = 0;
    for seed in 0..24 {
        let mut world = handed_over_while_bits_are_cleared(seed);
        world.cluster[0].storage.trouble.fail_next_record = true;
        let result = quickly(&mut world, 0, Command::Promote { force: false, entropy: 9 });
        let record_fails = matches!(&result, CommandResult::Refused(why) if why.text.contains("superblock"));
        if node_failed(&world, 0) && !record_fails {
            seen += 1;
            assert_eq!(world.recorded(0).identity.role, Role::Primary);
            assert!(matches!(&result, CommandResult::Refused(why) if why.text.contains("dirty regions")), "{result:?}");
            assert!(!world.cluster[0].serves(GROUP), "a failed group is opened");
        }
        // A restart helps.
        world.crash(0, false, SECOND);
        world.pass(10 * SECOND);
        assert!(!node_failed(&world, 0));
    }
    assert!(seen > 2, "{seen}");
}

/// What a sync is about to overwrite cannot be read for two seconds, and then it can.
#[test]
fn reads_for_the_undo_store_that_fail_for_a_moment_are_tried_again() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..8 {
        world.write_done(0, n * 64 * KIB, 32 * KIB);
    }
    world.drain();
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..8 {
        world.write_done(0, n * 64 * KIB, 32 * KIB);
    }
    world.pass(6 * SECOND);
    world.cluster[1].storage.trouble.read_errors_until = ALWAYS;
    assert!(!matches!(world.order(0, Command::Sync { full: false }), CommandResult::Refused(_)));
    world.pass(2 * SECOND);
    world.cluster[1].storage.trouble.read_errors_until = 0;
    assert!(!node_failed(&world, 1), "{}", world.figures(1).reason);
    world.drain();
}

/// The same on the primary, whose clients would be cut off: what it compared, and found to differ, cannot be read for a moment.
#[test]
fn reads_for_a_sync_that_fail_for_a_moment_are_tried_again() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    for n in 0..4 {
        world.write_done(0, n * 64 * KIB, 32 * KIB);
    }
    world.crash(0, false, SECOND);
    world.restore_path();
    world.pass(SECOND);
    world.cluster[0].storage.trouble.read_errors_until = ALWAYS;
    world.pass(3 * SECOND);
    world.cluster[0].storage.trouble.read_errors_until = 0;
    assert!(!node_failed(&world, 0), "{}", world.figures(0).reason);
    world.drain();
}

/// A secondary that cannot read what it is asked to compare for a moment lets it be sent: its half of the group goes on.
#[test]
fn reads_for_a_comparison_that_fail_for_a_moment_do_not_fail_the_secondary() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    for n in 0..4 {
        world.write_done(0, n * 64 * KIB, 32 * KIB);
    }
    world.crash(0, false, SECOND);
    world.pass(2 * SECOND);
    world.cluster[1].storage.trouble.read_errors_until = ALWAYS;
    world.restore_path();
    world.pass(3 * SECOND);
    world.cluster[1].storage.trouble.read_errors_until = 0;
    assert!(!node_failed(&world, 1), "{}", world.figures(1).reason);
    world.drain();
}
