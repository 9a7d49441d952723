//! Both nodes wrote alone, and a full sync ends that. What only the node that is given up held is overwritten by then, and stands in a delta
//! before the sync has ended. A checker compares each delta with the copy as it was before.
// proves: P6

use engine::coverage::CoveragePoint;
use engine::identity::Role;
use engine::limits::{KIB, MIB};
use engine::state::{Pause, State};
use engine::{Command, CommandResult, IoError, RefusalCode, Store};
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld};

use crate::forks::{NEW, OLD, answer_of, durable, in_peace, is_set_back, keep, meet, tag, yields};

/// The old primary writes alone here and there, the other one is promoted by force and writes; then they meet.
pub(crate) fn forked_from(mut world: ScenarioWorld) -> ScenarioWorld {
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

pub(crate) fn forked() -> ScenarioWorld {
    forked_from(in_peace())
}

/// The other node is demoted, and `node` is told to overwrite it.
pub(crate) fn begins(world: &mut ScenarioWorld, node: usize) {
    begins_by(world, node, Command::Sync { full: true });
}

fn begins_by(world: &mut ScenarioWorld, node: usize, order: Command) {
    assert!(!matches!(world.order(1 - node, Command::Demote), CommandResult::Refused(_)));
    if node == OLD {
        // Its history is to be the newer one.
        assert!(!matches!(world.order(OLD, Command::Demote), CommandResult::Refused(_)));
        assert!(!matches!(world.promote(OLD, true), CommandResult::Refused(_)));
    }
    world.until("they know of it", |world| world.figures(node).peer.role == Some(Role::Secondary));
    let answer = world.order(node, order);
    assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
}

pub(crate) fn deltas(world: &ScenarioWorld, node: usize) -> u64 {
    world.coverage(node, CoveragePoint::SyncLeftDelta)
}

fn is_paused(world: &ScenarioWorld, node: usize) -> bool {
    world.figures(node).state == State::Paused(Pause::DeltaUnsaved)
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
    world.until("it waits", |world| world.figures(OLD).state == State::Paused(Pause::HistoryFull));
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

/// All of the sync is written, and there is no space for its delta.
fn without_delta() -> ScenarioWorld {
    let mut world = forked();
    world.cluster[OLD].storage.trouble.delta_full_until = FOR_EVER;
    begins(&mut world, NEW);
    world.until("it waits", |world| is_paused(world, OLD));
    world
}

/// One place of the undo store rots while the delta of it cannot be saved yet.
fn rots(world: &mut ScenarioWorld) {
    let disk = world.cluster[OLD].storage.disk_mut(Store::Undo(GROUP));
    let mut content = disk.view().to_vec();
    // The first block behind the first index.
    content[4096 + 77] ^= 0x10;
    disk.restore(content);
}

/// A place of the undo store rots before it was copied: that place is missing in the delta, which says so, and the sync ends.
#[test]
fn a_rotten_place_of_the_undo_store_is_missing_in_the_delta_and_ends_no_sync() {
    let mut world = without_delta();
    rots(&mut world);
    world.cluster[OLD].storage.trouble.delta_full_until = 0;
    world.drain();
    assert_eq!(deltas(&world, OLD), 1);
    let saved = world.figures(OLD).saved_delta.expect("it is saved");
    assert!(saved.lost_ranges == 1 && saved.lost_bytes > 0 && saved.ranges > 1 && saved.bytes > 0, "{saved:?}");
}

/// A file that may not become so large, or too many deltas: nothing is overwritten unsaved, and each has its own sentence.
#[test]
fn a_delta_that_no_file_takes_is_waited_for_with_its_own_reason() {
    for (error, words) in [(IoError::TooLarge, "takes no file"), (IoError::TooManyDeltas, "earlier deltas")] {
        let mut world = forked();
        world.cluster[OLD].storage.trouble.delta_fails = Some(error);
        begins(&mut world, NEW);
        world.until("it waits", |world| is_paused(world, OLD));
        world.pass(5 * SECOND);
        let reason = world.figures(OLD).reason;
        assert!(reason.contains(words) && reason.contains("--discard"), "{reason}");
        world.cluster[OLD].storage.trouble.delta_fails = None;
        world.drain();
        assert_eq!(deltas(&world, OLD), 1);
        // An order that resolves the fork says the same.
        let mut world = forked();
        world.cluster[OLD].storage.trouble.delta_fails = Some(error);
        let kept = keep(&mut world, NEW, false);
        yields(&mut world, OLD);
        let answer = answer_of(&mut world, kept);
        assert!(matches!(&answer, CommandResult::Refused(why) if why.to_string().contains(words)), "{answer:?}");
    }
}

/// Once there is space again it is copied, and no longer called paused; and a pause is told once, also while a stream goes on behind the sync.
#[test]
fn a_pause_for_a_delta_is_told_once_and_ends_with_the_first_batch() {
    let mut world = without_delta();
    for n in 0..20 {
        let id = world.write(0, n * 8 * KIB, 4 * KIB);
        world.answer(id);
        world.pass(SECOND / 2);
        assert!(is_paused(&world, OLD), "{n}");
    }
    assert_eq!(world.coverage(OLD, CoveragePoint::SyncWithoutDelta), 1);
    world.cluster[OLD].storage.trouble.delta_full_until = 0;
    let mut goes_on = 0;
    while deltas(&world, OLD) == 0 {
        world.pass(MILLISECOND / 10);
        goes_on += u64::from(!is_paused(&world, OLD) && deltas(&world, OLD) == 0);
    }
    assert!(goes_on > 0, "it is being saved, and still called paused");
    world.drain();
}

/// A promotion while only the delta is missing goes back to this node's own history: refusal and answer say so, and what to do for the other image.
#[test]
fn a_promotion_while_only_the_delta_is_missing_says_which_history_it_is_of() {
    let mut world = without_delta();
    let theirs = world.images_of(NEW);
    world.cut([false; 2]);
    world.pass(SECOND);
    let refusal = world.refusal(OLD, Command::Promote { force: false, entropy: 7 });
    assert!(refusal.to_string().contains("--discard") && refusal.to_string().contains("own history"), "{refusal}");
    let answer = world.promote(OLD, true);
    assert!(matches!(&answer, CommandResult::Warning(text) if text.contains("own history")), "{answer:?}");
    assert_ne!(world.images_of(OLD), theirs);
    // As advised: what was synced is what is promoted then.
    let mut world = without_delta();
    let theirs = world.images_of(NEW);
    world.cut([false; 2]);
    world.pass(SECOND);
    let name = world.figures(OLD).rollback_point.expect("it is kept").name;
    assert!(matches!(world.order(OLD, Command::DropRollbackPoint { name, discard: true }), CommandResult::Done(_)));
    world.pass(SECOND);
    let answer = world.promote(OLD, true);
    assert!(matches!(&answer, CommandResult::Warning(text) if !text.contains("own history")), "{answer:?}");
    assert_eq!(world.images_of(OLD), theirs);
}

/// Neither node calls it a full history, and the words are about the delta.
#[test]
fn both_nodes_say_that_the_delta_is_what_a_sync_waits_for() {
    let mut world = without_delta();
    world.pass(5 * SECOND);
    for node in [OLD, NEW] {
        let reason = world.figures(node).reason;
        assert!(reason.contains("delta") && !reason.contains("history full"), "node {node}: {reason}");
    }
}

/// A fork of volumes so small that a full sync of them goes in the stream: what is written behind its end comes at once.
fn forked_in_stream() -> ScenarioWorld {
    let small = sim::options::SimOptions {
        volume_bytes: 64 * KIB,
        queue_bytes: MIB,
        ..sim::scenarios::options(engine::state::Mode::Async, engine::state::Policy::Degrade)
    };
    let mut world = ScenarioWorld::in_peace(small);
    world.write_done(0, 0, 64 * KIB);
    world.drain();
    world.cut([false; 2]);
    world.write_done(0, 0, 16 * KIB);
    world.write_done(1, 0, 16 * KIB);
    world.pass(10 * SECOND);
    assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
    world.write_done(0, 32 * KIB, 8 * KIB);
    meet(&mut world);
    world
}

/// In the stream, too: what comes behind the end of the sync waits, and does not end a pause that is told anew each second.
#[test]
fn a_pause_for_a_delta_does_not_flap_in_the_stream() {
    let mut world = forked_in_stream();
    world.cluster[OLD].storage.trouble.delta_full_until = FOR_EVER;
    let snapshots = world.coverage(NEW, CoveragePoint::SnapshotBegan);
    begins_by(&mut world, NEW, Command::SendAll);
    world.until("it waits", |world| is_paused(world, OLD));
    assert_eq!(world.coverage(NEW, CoveragePoint::SnapshotBegan), snapshots, "it goes in the stream");
    for n in 0..40 {
        let id = world.write(0, n % 16 * 4 * KIB, 4 * KIB);
        world.answer(id);
        world.pass(SECOND / 4);
        assert!(is_paused(&world, OLD), "{n}");
    }
    assert_eq!(world.coverage(OLD, CoveragePoint::SyncWithoutDelta), 1);
    world.cluster[OLD].storage.trouble.delta_full_until = 0;
    world.drain();
    assert_eq!(deltas(&world, OLD), 1);
}

/// The head lands while the sync is given up, or undone: the delta is whole then, stays, and the node says so.
#[test]
fn a_delta_that_becomes_whole_in_the_last_moment_is_kept_and_told() {
    let mut kept = [0; 2];
    for (step, discard) in (0..60u64).flat_map(|step| [(step, false), (step, true)]) {
        let mut world = forked();
        begins(&mut world, NEW);
        while world.cluster[OLD].storage.disk_if_any(Store::Delta(GROUP)).is_none() {
            world.pass(10_000);
        }
        world.pass(step * 25_000 + 1);
        let Some(point) = world.figures(OLD).rollback_point else { continue };
        match discard {
            true => world.command(OLD, GROUP, Command::DropRollbackPoint { name: point.name, discard }),
            false => world.command(OLD, GROUP, Command::Promote { force: true, entropy: 7 }),
        };
        world.pass(SECOND);
        let file = world.cluster[OLD].storage.disk_if_any(Store::Delta(GROUP)).map_or(&[][..], |disk| disk.durable());
        let is_whole = file.get(..4096).is_some_and(|head| engine::delta::DeltaHead::decode(head).is_some());
        let has_ended = deltas(&world, OLD) > 0;
        assert_eq!(world.figures(OLD).saved_delta.is_some(), is_whole, "step {step}, discard {discard}");
        kept[usize::from(discard)] += u64::from(is_whole && !has_ended);
    }
    assert!(kept[0] > 0 && kept[1] > 0, "{kept:?}");
}
