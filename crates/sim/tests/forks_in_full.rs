//! Both nodes wrote alone, and a full sync ends that. What only the node that is given up held is overwritten by then, and stands in a delta
//! before the sync has ended. A checker compares each delta with the copy as it was before.
// proves: P6

use engine::coverage::CoveragePoint;
use engine::identity::Role;
use engine::limits::KIB;
use engine::state::{Pause, State};
use engine::{Command, CommandResult, RefusalCode, Store};
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld};

use crate::forks::{NEW, OLD, answer_of, durable, in_peace, is_set_back, keep, meet, tag, yields};

/// The old primary writes alone here and there, the other one is promoted by force and writes; then they meet.
fn forked_from(mut world: ScenarioWorld) -> ScenarioWorld {
    world.cut([false; 2]);
    for n in 0..12 {
        world.write_done((n % 2) as u16, n * 64 * KIB, (4 + n) * KIB);
    }
    world.pass(10 * SECOND);
    assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
    world.write_done(0, 4 * KIB, 16 * KIB);
    world.write_done(1, 896 * KIB, 8 * KIB);
    meet(&mut world);
    world
}

fn forked() -> ScenarioWorld {
    forked_from(in_peace())
}

/// The other node is demoted, and `node` is told to overwrite it.
fn begins(world: &mut ScenarioWorld, node: usize) {
    assert!(!matches!(world.order(1 - node, Command::Demote), CommandResult::Refused(_)));
    if node == OLD {
        // Its history is to be the newer one.
        assert!(!matches!(world.order(OLD, Command::Demote), CommandResult::Refused(_)));
        assert!(!matches!(world.promote(OLD, true), CommandResult::Refused(_)));
    }
    world.until("they know of it", |world| world.figures(node).peer.role == Some(Role::Secondary));
    let answer = world.order(node, Command::Sync { full: true });
    assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
}

fn deltas(world: &ScenarioWorld, node: usize) -> u64 {
    world.coverage(node, CoveragePoint::SyncLeftDelta)
}

fn is_paused(world: &ScenarioWorld, node: usize) -> bool {
    world.figures(node).state == State::Paused(Pause::HistoryFull)
}

#[test]
fn a_full_sync_over_a_fork_leaves_a_delta() {
    for node in [NEW, OLD] {
        let mut world = forked();
        let theirs = world.images_of(1 - node);
        begins(&mut world, node);
        let ours = world.images_of(node);
        world.drain();
        assert_eq!((deltas(&world, 1 - node), deltas(&world, node)), (1, 0));
        assert_eq!(world.images_of(1 - node), ours);
        assert_ne!(ours, theirs);
        // And on it goes: what is overwritten from here on is of the history that counts.
        world.write_done(0, 700 * KIB, 8 * KIB);
        world.drain();
        world.order(node, Command::Sync { full: true });
        world.pass(SECOND);
        world.drain();
        assert_eq!(deltas(&world, 1 - node), 1);
    }
}

/// A machine comes back as it was before it confirmed more, and is promoted: what differs is dirty nowhere, and only a full sync ends it.
#[test]
fn a_fork_that_no_bits_cover_leaves_a_delta() {
    let mut world = in_peace();
    world.pass(20 * SECOND);
    let old = durable(&world, NEW);
    world.write_done(0, 0, 64 * KIB);
    world.drain();
    world.until("every bit is clear", |world| world.figures(OLD).volumes.iter().all(|v| v.dirty_bytes == 0));
    world.pass(20 * SECOND);
    world.cut([false; 2]);
    is_set_back(&mut world, NEW, old);
    world.until("it is back", |world| world.cluster[NEW].is_ready(GROUP));
    assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
    world.write_done(1, 256 * KIB, 16 * KIB);
    meet(&mut world);
    let over = tag(&world, OLD);
    let refusal = world.refusal(NEW, Command::Keep { over, discard: false, by_policy: false });
    assert_eq!(refusal.code, RefusalCode::ForkUnbounded, "{refusal}");
    begins(&mut world, NEW);
    world.drain();
    assert_eq!(deltas(&world, OLD), 1);
}

/// Whoever is killed when, what only one node had can be read when the sync has ended.
#[test]
fn a_crash_at_any_moment_of_a_full_sync_over_a_fork_loses_nothing_of_it() {
    let (mut in_the_midst, mut again) = (0, 0);
    for step in 0..40u64 {
        for (node, power) in [(OLD, false), (OLD, true), (NEW, true)] {
            let mut world = forked();
            begins(&mut world, NEW);
            world.pass(step * 250_000 + 1);
            in_the_midst += u64::from(world.recorded(OLD).rollback_point.is_of_fork);
            world.crash(node, power, SECOND);
            world.pass(2 * SECOND);
            world.until("it is back", |world| world.cluster[node].is_ready(GROUP));
            world.pass(5 * SECOND);
            if world.glance(NEW, GROUP).is_some_and(|it| it.state == State::Logging) {
                // The order was not on record yet.
                world.order(NEW, Command::Sync { full: true });
            }
            world.drain();
            again += u64::from(deltas(&world, OLD) > 1);
            assert!(deltas(&world, OLD) > 0 || node == OLD, "step {step}: node {node} crashed");
            assert!(!world.recorded(OLD).rollback_point.is_of_fork);
        }
    }
    assert!(in_the_midst > 20, "{in_the_midst}");
    assert!(again < 12, "{again}: a delta that is whole is saved a second time only if its sync had not ended");
}

/// The link goes in the midst of it, and the other node ends what it has.
#[test]
fn a_link_that_is_lost_in_a_full_sync_over_a_fork_changes_nothing() {
    for step in 0..24u64 {
        let mut world = forked();
        begins(&mut world, NEW);
        world.pass(step * 400_000 + 1);
        world.cut([false; 2]);
        world.pass(10 * SECOND);
        world.restore_path();
        world.pass(10 * SECOND);
        if world.glance(NEW, GROUP).is_some_and(|it| it.state == State::Logging) {
            world.order(NEW, Command::Sync { full: true });
        }
        world.drain();
        assert_eq!(deltas(&world, OLD), 1, "step {step}");
    }
}

/// There is no space for the delta: the sync does not end, and goes on by itself once there is.
#[test]
fn without_space_for_the_delta_the_sync_waits_until_there_is_some() {
    let mut world = forked();
    world.cluster[OLD].storage.trouble.delta_full_until = FOR_EVER;
    begins(&mut world, NEW);
    world.until("it waits", |world| is_paused(world, OLD));
    world.pass(90 * SECOND);
    assert!(is_paused(&world, NEW), "it is no peer that stands still: {}", world.figures(NEW).reason);
    assert!(world.figures(OLD).reason.contains("--discard"), "{}", world.figures(OLD).reason);
    assert!(world.recorded(OLD).rollback_point.is_of_fork && world.recorded(OLD).identity.inconsistent);
    world.cluster[OLD].storage.trouble.delta_full_until = 0;
    world.drain();
    assert_eq!(deltas(&world, OLD), 1);
}

/// What is to become a delta is given up by an operator's word alone.
#[test]
fn a_point_of_a_fork_is_given_up_only_if_that_is_said() {
    let mut world = forked();
    world.cluster[OLD].storage.trouble.delta_full_until = FOR_EVER;
    begins(&mut world, NEW);
    world.until("it waits", |world| is_paused(world, OLD));
    let point = world.figures(OLD).rollback_point.expect("it is kept");
    assert!(point.is_of_fork);
    let drop = |discard| Command::DropRollbackPoint { name: point.name.clone(), discard };
    let refusal = world.refusal(OLD, drop(false));
    assert_eq!(refusal.code, RefusalCode::DeltaUnsaved, "{refusal}");
    let answer = world.order(OLD, drop(true));
    assert!(matches!(&answer, CommandResult::Done(text) if text.contains("no delta")), "{answer:?}");
    world.drain();
    assert_eq!(deltas(&world, OLD), 0);
    assert!(world.figures(OLD).rollback_point.is_none());
}

/// The history is too small for what differs: the sync waits in its midst, and nothing is given up without a word.
#[test]
fn a_history_that_is_too_small_for_a_fork_loses_nothing_of_it() {
    let small = sim::options::SimOptions {
        history_bytes: 48 * KIB,
        ..sim::scenarios::options(engine::state::Mode::Async, engine::state::Policy::Degrade)
    };
    let mut world = ScenarioWorld::in_peace(small);
    world.write_done(0, 0, 256 * KIB);
    world.drain();
    let mut world = forked_from(world);
    begins(&mut world, NEW);
    world.until("it waits", |world| is_paused(world, OLD));
    let name = world.figures(OLD).rollback_point.expect("it is kept").name;
    let refusal = world.refusal(OLD, Command::DropRollbackPoint { name: name.clone(), discard: false });
    assert_eq!(refusal.code, RefusalCode::DeltaUnsaved, "{refusal}");
    // The way back is there all the while.
    let answer = world.order(NEW, Command::Logging);
    assert!(!matches!(answer, CommandResult::Refused(_)), "{answer:?}");
    assert!(!matches!(world.promote(OLD, true), CommandResult::Refused(_)));
    assert!(!world.recorded(OLD).rollback_point.is_of_fork);
}

/// Its promotion undoes the sync while the delta is being saved: nothing was given up.
#[test]
fn a_promotion_in_a_full_sync_over_a_fork_takes_what_was_there_back() {
    for step in 0..16u64 {
        let mut world = forked();
        let theirs = world.images_of(OLD);
        begins(&mut world, NEW);
        world.until("it is overwritten", |world| world.recorded(OLD).identity.inconsistent);
        world.pass(step * 500_000 + 1);
        world.cut([false; 2]);
        world.pass(SECOND);
        let has_ended = !world.recorded(OLD).identity.inconsistent;
        assert!(!matches!(world.promote(OLD, true), CommandResult::Refused(_)));
        assert!(!world.recorded(OLD).rollback_point.is_of_fork);
        if !has_ended {
            assert_eq!(world.images_of(OLD), theirs, "step {step}");
        }
    }
}

/// The disk of the delta fails for a while, and answers nothing for a while: the sync ends behind that, and the primary does not take its peer
/// for one that stands still for good.
#[test]
fn a_disk_that_hangs_while_the_delta_is_saved_is_waited_for() {
    for step in 0..12u64 {
        let mut world = forked();
        begins(&mut world, NEW);
        world.pass(4 * MILLISECOND + step * 300_000);
        world.cluster[OLD].storage.trouble.stalled_until = world.now() + 30 * SECOND;
        world.pass(30 * SECOND);
        world.drain();
        assert_eq!(deltas(&world, OLD), 1, "step {step}");
    }
}

/// The daemon is stopped while the delta cannot be saved: it stops, and the next one begins the sync anew and saves it.
#[test]
fn a_stop_does_not_wait_for_a_delta_that_cannot_be_saved() {
    let mut world = forked();
    world.cluster[OLD].storage.trouble.delta_full_until = FOR_EVER;
    begins(&mut world, NEW);
    world.until("it waits", |world| is_paused(world, OLD));
    world.stop(OLD);
    world.cluster[OLD].storage.trouble.delta_full_until = 0;
    world.boot_changed(OLD);
    world.drain();
    assert_eq!(deltas(&world, OLD), 1);
}

/// An order resolved the fork: what was to be saved is saved, or given up, and the sync behind it saves nothing again.
#[test]
fn a_fork_that_an_order_resolved_leaves_no_second_delta() {
    for discard in [false, true] {
        let mut world = forked();
        let kept = keep(&mut world, NEW, discard);
        yields(&mut world, OLD);
        let answer = answer_of(&mut world, kept);
        assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
        // In another session than that of the order.
        world.cut([false; 2]);
        world.pass(10 * SECOND);
        world.restore_path();
        world.drain();
        assert_eq!(deltas(&world, OLD), 0);
        assert_eq!(world.cluster[OLD].storage.disk_if_any(Store::Delta(GROUP)).is_some(), !discard);
    }
}
