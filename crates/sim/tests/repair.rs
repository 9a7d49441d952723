//! A region whose local write failed is read and sent again, whatever happens to the link meanwhile.

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

// proves: P5, rule 1
#[test]
fn a_link_lost_during_a_repair_does_not_forget_it() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cluster[0].storage.trouble.write_errors_until = world.now() + SECOND / 2;
    for n in 0.. {
        let id = world.write(0, n % 16 * 8 * KIB, 8 * KIB);
        if !world.answer(id).0 {
            break;
        }
    }
    world.cluster[0].storage.trouble.write_errors_until = 0;
    world.cut([false; 2]);
    // What cannot leave keeps the repair waiting behind it.
    for n in 0..24 {
        world.write(1, n * 32 * KIB, 32 * KIB);
        world.pass(MILLISECOND);
    }
    let state = |world: &ScenarioWorld| world.glance(0, GROUP).map(|glance| glance.state);
    world.until("the link is given up", |world| state(world) == Some(State::Queuing));
    world.restore_path();
    world.until("in order again", |world| state(world) == Some(State::Replicating));
    world.drain();
}

/// Seed 29000486. A part of a write that failed stands in a cache. Demoted and promoted again, the node serves an image which a
/// power loss does not change.
#[test]
fn what_a_failed_write_left_is_flushed_before_the_next_run() {
    for seed in 1..=20u64 {
        let mut world = ScenarioWorld::in_peace(SimOptions { seed: 2 * seed, ..options(Mode::Async, Policy::Degrade) });
        world.pass(10 * SECOND);
        assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
        world.cluster[0].storage.trouble.write_errors_until = ALWAYS;
        for n in 0.. {
            let id = world.write(0, n % 8 * 64 * KIB, 64 * KIB);
            if !world.answer(id).0 {
                break;
            }
            let flush = world.flush(0);
            assert!(world.answer(flush).0);
        }
        world.cluster[0].storage.trouble.write_errors_until = 0;
        assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
        assert!(matches!(world.promote(0, true), CommandResult::Warning(_)));
        let served = world.images_of(0);
        world.crash(0, true, FOR_EVER);
        assert!(world.images_of(0) == served, "seed {seed}");
    }
}

/// The peer was given up five times, and is left alone for 80 s; then it is mended, and the operator has it synced.
#[test]
fn a_repair_does_not_wait_as_long_as_a_peer_is_left_alone() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.write_done(0, 0, 4 * KIB);
    world.cluster[1].storage.trouble.stalled_until = world.now() + 1000 * SECOND;
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.until("given up", |world| world.coverage(0, CoveragePoint::SyncStalled) == 5);
    world.cluster[1].storage.trouble.stalled_until = 0;
    world.crash(1, false, SECOND);
    world.pass(2 * SECOND);
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.drain();
    world.cluster[0].storage.trouble.write_errors_until = ALWAYS;
    for n in 0.. {
        let id = world.write(0, n % 16 * 16 * KIB, 4 * KIB);
        if !world.answer(id).0 {
            break;
        }
    }
    world.cluster[0].storage.trouble.write_errors_until = 0;
    let failed = world.now();
    world.until("repaired", |world| world.in_step());
    assert!(world.now() - failed < 5 * SECOND, "{} ns", world.now() - failed);
}

/// A local write has failed, and what its region holds cannot be read.
fn unreadable(world: &mut ScenarioWorld) {
    world.cluster[0].storage.trouble.write_errors_until = ALWAYS;
    for n in 0.. {
        let id = world.write(0, n % 16 * 16 * KIB, 4 * KIB);
        if !world.answer(id).0 {
            break;
        }
    }
    world.cluster[0].storage.trouble.write_errors_until = 0;
    world.cluster[0].storage.trouble.read_errors_until = ALWAYS;
}

// proves: P1
/// However often that fails, the stream goes on: whoever waits in it for the peer is not answered before that has the write.
#[test]
fn a_repair_that_cannot_read_ends_no_stream() {
    for policy in [Policy::Strict, Policy::Degrade] {
        let mut world = ScenarioWorld::in_peace(SimOptions { wait_limit_ms: 60_000, ..options(Mode::Sync, policy) });
        world.pass(5 * SECOND);
        unreadable(&mut world);
        world.cluster[1].storage.trouble.stalled_until = world.now() + 20 * SECOND;
        let id = world.write(1, 0, 8 * KIB);
        let (done, _) = world.answer(id);
        let there = world.images_of(0)[1][..8 << 10] == world.images_of(1)[1][..8 << 10];
        assert!(done && there, "answered, and only here: {}", world.figures(0).reason);
        world.pass(60 * SECOND);
        let figures = world.figures(0);
        assert_eq!(figures.state, State::Replicating);
        assert!(figures.reason.contains("could not be read at byte"), "{}", figures.reason);
        world.cluster[0].storage.trouble.read_errors_until = 0;
        let CommandResult::Done(text) = world.order(0, Command::Sync { full: false }) else { panic!("refused") };
        assert!(text.contains("which is read again now"), "{text}");
        let ordered = world.now();
        world.drain();
        assert!(world.now() - ordered < 20 * SECOND, "{} ns", world.now() - ordered);
        assert_eq!(world.figures(0).reason, "");
    }
}

/// The region's own disk takes long, and what is written since stands behind it.
#[test]
fn a_repair_whose_read_hangs_is_not_said_to_be_a_full_link() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    world.pass(5 * SECOND);
    unreadable(&mut world);
    world.cluster[0].storage.trouble.read_errors_until = 0;
    world.cluster[0].storage.trouble.stalled_until = world.now() + 8 * SECOND;
    world.pass(1500 * MILLISECOND);
    world.cluster[0].storage.trouble.stalled_until = 0;
    world.write_done(1, 0, 8 * KIB);
    let figures = world.figures(0);
    assert!(!figures.reason.contains("link"), "{:?} {}", figures.state, figures.reason);
    world.drain();
}
