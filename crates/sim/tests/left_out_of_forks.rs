//! A full sync over a fork does not overwrite all that only the other node has: a volume is set aside or detached meanwhile, an image stands
//! from a sync that was cut short, or the sync is taken back. What is overwritten later stands in a delta as well. A checker compares each
//! delta with the copy as it was before.
// proves: P6

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, RefusalCode, Store, VolumeId};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};
use sim::world::{other_volumes, resets};

use crate::forks::{NEW, OLD, in_peace};
use crate::forks_in_full::{begins, deltas, forked, forked_from};

const LEFT: VolumeId = VolumeId(1);
const REJOIN: Command = Command::Rejoin { volume: LEFT };

type Trouble = fn(&mut ScenarioWorld);
const TROUBLES: [Trouble; 6] = [
    |_| {},
    |world| world.flap([0, 1]),
    |world| world.crash(OLD, false, SECOND),
    |world| world.crash(OLD, true, SECOND),
    |world| world.crash(NEW, false, SECOND),
    |world| world.crash(NEW, true, SECOND),
];

fn ordered(world: &mut ScenarioWorld, node: usize, command: Command) -> String {
    match world.order(node, command) {
        CommandResult::Done(text) | CommandResult::Warning(text) | CommandResult::Unchanged(text) => text,
        CommandResult::Refused(refusal) => panic!("{refusal}"),
    }
}

fn runs(world: &mut ScenarioWorld) {
    let is_up = |world: &ScenarioWorld, node: usize| world.glance(node, GROUP).is_some_and(|glance| glance.running);
    world.until("both run", |world| (0..2).all(|node| is_up(world, node)));
}

/// The sync over the fork has ended, without the volume.
fn has_ended(world: &mut ScenarioWorld) {
    runs(world);
    let is_over = |world: &ScenarioWorld| {
        let record = world.recorded(OLD);
        !record.identity.inconsistent && record.identity.generation == world.recorded(NEW).identity.generation
    };
    let goes_on = |world: &ScenarioWorld| world.figures(NEW).state == State::Replicating;
    world.until("the sync ends", |world| goes_on(world) && is_over(world));
    assert!(world.recorded(OLD).aside.contains(LEFT));
}

/// The volume is set aside before anything of it is sent. What was frozen for a snapshot is without it only in the next one.
fn begins_without(world: &mut ScenarioWorld) {
    begins(world, NEW);
    ordered(world, NEW, Command::SetAside { volume: LEFT });
    world.flap([0, 1]);
    has_ended(world);
}

/// The volume is taken in again: whatever becomes of that, before it has ended there is a delta.
fn is_taken_in(world: &mut ScenarioWorld, trouble: Trouble, after: u64) {
    assert!(world.images_of(OLD)[1] != world.images_of(NEW)[1], "something is left of it");
    let before = head(world);
    ordered(world, NEW, REJOIN);
    world.pass(after);
    trouble(world);
    runs(world);
    world.drain();
    assert!(world.recorded(OLD).aside.is_empty());
    assert_eq!(world.images_of(OLD), world.images_of(NEW));
    assert!(world.recorded(OLD).rollback_point.id == 0);
    let saved = head(world);
    assert!(saved != before && saved.starts_with(b"FSHDELTA"), "the volume was overwritten unsaved");
    // And on it goes: what is set aside from here on is of the history that counts.
    ordered(world, NEW, Command::SetAside { volume: LEFT });
    world.write_done(1, 256 * KIB, 64 * KIB);
    ordered(world, NEW, REJOIN);
    world.drain();
    assert!(head(world) == saved);
}

/// Of the newest delta on the node that is overwritten; empty: there is none.
fn head(world: &ScenarioWorld) -> Vec<u8> {
    let file = world.cluster[OLD].storage.disk_if_any(Store::Delta(GROUP)).map_or(&[][..], |disk| disk.durable());
    file.get(..4096).unwrap_or_default().to_vec()
}

#[test]
fn a_volume_that_is_set_aside_in_a_sync_over_a_fork_leaves_a_delta_when_it_rejoins() {
    for (at, trouble) in TROUBLES.into_iter().enumerate() {
        for after in [0, 2 * MILLISECOND, 30 * MILLISECOND] {
            let mut world = forked();
            begins_without(&mut world);
            assert!(deltas(&world, OLD) >= 1);
            trouble(&mut world);
            has_ended(&mut world);
            is_taken_in(&mut world, TROUBLES[(at + 3) % TROUBLES.len()], after);
        }
    }
}

/// A part of it is overwritten by then.
#[test]
fn a_volume_that_is_set_aside_in_the_midst_is_saved_in_two_parts() {
    for step in 0..12u64 {
        let mut world = forked();
        begins(&mut world, NEW);
        world.pass(MILLISECOND + step * 800_000);
        ordered(&mut world, NEW, Command::SetAside { volume: LEFT });
        has_ended(&mut world);
        world.crash(OLD, step % 2 == 0, SECOND);
        has_ended(&mut world);
        ordered(&mut world, NEW, REJOIN);
        world.drain();
        assert_eq!(world.images_of(OLD), world.images_of(NEW));
        assert!(head(&world).starts_with(b"FSHDELTA"), "step {step}");
    }
}

fn is_detached(world: &mut ScenarioWorld) {
    resets::detaches(world, OLD, GROUP, LEFT);
    world.until("it is on record", |world| world.recorded(OLD).detached.contains(LEFT));
    runs(world);
}

/// Before the sync begins or in its midst; and it comes back with what stood there.
#[test]
fn a_volume_that_was_detached_in_a_sync_over_a_fork_leaves_a_delta_when_it_is_back() {
    for (at, trouble) in TROUBLES.into_iter().enumerate() {
        for is_before in [true, false] {
            let mut world = forked();
            ordered(&mut world, OLD, Command::Demote);
            if is_before {
                is_detached(&mut world);
            }
            world.pass(SECOND);
            world.until("they know of it", |world| world.figures(NEW).reason.contains("sync GROUP --full"));
            ordered(&mut world, NEW, Command::Sync { full: true });
            if !is_before {
                world.pass(3 * MILLISECOND);
                is_detached(&mut world);
            }
            has_ended(&mut world);
            trouble(&mut world);
            has_ended(&mut world);
            assert!(resets::attaches_again(&mut world, OLD, GROUP, LEFT));
            world.until("it is on record", |world| !world.recorded(OLD).detached.contains(LEFT));
            has_ended(&mut world);
            world.until("the peer knows", |world| !world.figures(NEW).volumes[1].is_detached_at_peer);
            is_taken_in(&mut world, TROUBLES[(at + 2) % TROUBLES.len()], 2 * MILLISECOND);
        }
    }
}

/// Under another name it is still what it was.
#[test]
fn a_volume_that_has_a_new_name_since_leaves_a_delta() {
    let mut world = forked();
    begins_without(&mut world);
    world.cluster.file.renames(GROUP, LEFT, 2500);
    for node in [OLD, NEW] {
        world.stop(node);
        other_volumes::takes_up(&mut world, node, usize::MAX).expect("nothing speaks against it");
        world.boot(node);
        runs(&mut world);
    }
    has_ended(&mut world);
    is_taken_in(&mut world, |_| {}, 0);
}

/// Its own content counts again, and it follows later: nothing of that is another history.
#[test]
fn what_is_promoted_owes_no_delta() {
    let mut world = forked();
    begins_without(&mut world);
    assert!(matches!(world.order(NEW, Command::Demote), CommandResult::Warning(_)));
    assert!(matches!(world.promote(OLD, true), CommandResult::Warning(_)));
    ordered(&mut world, OLD, Command::Sync { full: true });
    world.drain();
    let saved = [deltas(&world, OLD), deltas(&world, NEW)];
    assert!(matches!(world.order(OLD, Command::Demote), CommandResult::Done(_)));
    assert!(matches!(world.promote(NEW, false), CommandResult::Done(_)));
    ordered(&mut world, NEW, Command::Sync { full: true });
    world.drain();
    assert_eq!([deltas(&world, OLD), deltas(&world, NEW)], saved);
}

/// Beside a volume that was left out an ordinary sync is cut short. Its mark is not given up unasked, and where it is kept the volume leaves a
/// delta although it rejoins in the midst of that sync.
#[test]
fn the_mark_beside_a_volume_that_was_left_out_is_not_given_up_unasked() {
    let mut world = forked();
    begins_without(&mut world);
    ordered(&mut world, NEW, Command::Logging);
    for n in 0..20 {
        world.write_done(0, n * 44 * KIB, 36 * KIB);
    }
    ordered(&mut world, NEW, Command::Sync { full: false });
    world.until("a part is overwritten", |world| {
        world.figures(OLD).rollback_point.is_some_and(|point| point.used_bytes > 40 * KIB)
    });
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    let point = world.recorded(OLD).rollback_point;
    assert!(point.id != 0 && !point.is_of_fork && world.recorded(OLD).identity.inconsistent);
    let name = world.figures(OLD).rollback_point.expect("it is kept").name;
    let refusal = world.refusal(OLD, Command::DropRollbackPoint { name, discard: false });
    assert_eq!(refusal.code, RefusalCode::DeltaUnsaved, "{refusal}");
    world.restore_path();
    world.until("they meet", |world| world.figures(NEW).state == State::Syncing);
    is_taken_in(&mut world, |_| {}, 0);
}

/// A promotion takes the sync back, and dies on the way: the copy follows its primary with the image that it had before, which is overwritten
/// again.
#[test]
fn a_copy_that_went_back_and_was_not_promoted_leaves_a_delta() {
    let mut met = 0;
    for step in 0..30u64 {
        let mut world = forked();
        begins(&mut world, NEW);
        world.until("it is overwritten", |world| world.recorded(OLD).identity.inconsistent);
        world.pass(3 * MILLISECOND);
        world.cut([false; 2]);
        world.command(OLD, GROUP, Command::Promote { force: true, entropy: 77 });
        world.pass(step * MILLISECOND / 10);
        let record = world.recorded(OLD);
        if !record.rolling_back {
            continue;
        }
        met += 1;
        world.crash(OLD, step % 2 == 0, SECOND);
        runs(&mut world);
        assert_eq!(world.figures(OLD).role, engine::identity::Role::Secondary);
        world.restore_path();
        world.pass(10 * SECOND);
        if world.figures(NEW).state == State::Logging {
            world.order(NEW, Command::Sync { full: true });
        }
        world.drain();
        assert_eq!(deltas(&world, OLD), 1, "step {step}");
    }
    assert!(met > 2, "{met}");
}

// ---- an image that stands from a sync that was cut short ------------------------------------------------------------------

/// An ordinary sync from node `NEW` is cut short in its midst.
fn cut_short() -> ScenarioWorld {
    let slow = SimOptions { bytes_per_s: 1_000_000, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(slow);
    for n in 0..20 {
        world.write_done(n % 2, u64::from(n) * 44 * KIB, 12 * KIB);
    }
    world.drain();
    is_cut_short(&mut world);
    world
}

fn is_cut_short(world: &mut ScenarioWorld) {
    let primary = world.cluster.primary(GROUP);
    ordered(world, primary, Command::Logging);
    for n in 0..24 {
        world.write_done(n % 2, u64::from(n) * 40 * KIB, 36 * KIB);
    }
    ordered(world, primary, Command::Sync { full: false });
    world.until("a part is overwritten", |world| {
        world.figures(1 - primary).rollback_point.is_some_and(|point| point.used_bytes > 100 * KIB)
    });
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    let point = world.recorded(1 - primary).rollback_point;
    assert!(point.id != 0 && !point.is_of_fork);
}

/// What the primary says of a full sync over its peer.
fn said_of_full_sync(world: &mut ScenarioWorld) -> String {
    world.pass(20 * SECOND);
    world.restore_path();
    let primary = world.cluster.primary(GROUP);
    world.until("they meet", |world| world.figures(primary).reason.contains("sync GROUP --full"));
    ordered(world, primary, Command::Sync { full: true })
}

/// The primary was demoted and promoted again: how far its peer came meanwhile, it does not know.
fn begins_anew(world: &mut ScenarioWorld, primary: usize) {
    ordered(world, primary, Command::Demote);
    assert!(!matches!(world.promote(primary, true), CommandResult::Refused(_)));
    world.write_done(0, 800 * KIB, 8 * KIB);
}

#[test]
fn an_image_from_a_sync_that_was_cut_short_is_judged_again() {
    for trouble in [None, Some((1, false)), Some((1, true)), Some((0, true))] {
        let mut world = cut_short();
        begins_anew(&mut world, 0);
        let said = said_of_full_sync(&mut world);
        assert!(said.contains("before it ends the peer saves what it overwrites"), "{said}");
        world.pass(20 * MILLISECOND);
        if let Some((node, power)) = trouble {
            world.crash(node, power, SECOND);
            runs(&mut world);
            world.pass(5 * SECOND);
            if world.figures(0).state == State::Logging {
                world.order(0, Command::Sync { full: true });
            }
        }
        world.drain();
        // The checker holds the answer against what came of it.
        world.pass(SECOND);
        let node_died = trouble.is_some_and(|(node, _)| node == 1);
        assert!(deltas(&world, 1) > 0 || node_died, "{trouble:?}");
        assert!(world.coverage(1, CoveragePoint::PointJudgedAgain) > 0 || node_died);
    }
}

/// Without an image nothing is saved, and nobody says that it is.
#[test]
fn a_copy_without_an_image_saves_nothing_and_the_answer_says_so() {
    let mut world = cut_short();
    let name = world.figures(1).rollback_point.expect("it is kept").name;
    ordered(&mut world, 1, Command::DropRollbackPoint { name, discard: false });
    begins_anew(&mut world, 0);
    let said = said_of_full_sync(&mut world);
    assert!(said.contains("nothing of what it overwrites there is saved"), "{said}");
    world.drain();
    assert_eq!(deltas(&world, 1), 0);
}

/// The same, of a fork from which both nodes started as primaries.
#[test]
fn the_answer_over_a_whole_copy_names_the_file() {
    let mut world = forked_from(in_peace());
    ordered(&mut world, OLD, Command::Demote);
    world.until("they know of it", |world| world.figures(NEW).reason.contains("sync GROUP --full"));
    let said = ordered(&mut world, NEW, Command::Sync { full: true });
    assert!(said.contains("before it ends the peer saves what it overwrites"), "{said}");
}

/// An order to give the mark up is refused: nothing is given up, the delta is compared, and an ordinary sync behind it owes none.
#[test]
fn a_mark_whose_drop_was_refused_is_watched_on() {
    let mut world = cut_short();
    let drop = Command::DropRollbackPoint { name: "before-sync-0".into(), discard: true };
    assert_eq!(world.refusal(1, drop).code, RefusalCode::NoSuchMark);
    begins_anew(&mut world, 0);
    let said = said_of_full_sync(&mut world);
    assert!(said.contains("before it ends the peer saves what it overwrites"), "{said}");
    world.drain();
    world.pass(SECOND);
    assert_eq!(deltas(&world, 1), 1);
    // An ordinary sync in the same history, long enough for the checker to look at its point.
    ordered(&mut world, 0, Command::SetAside { volume: LEFT });
    for n in 0..24 {
        world.write_done(1, n * 40 * KIB, 36 * KIB);
    }
    ordered(&mut world, 0, REJOIN);
    world.drain();
    world.pass(SECOND);
    assert_eq!(deltas(&world, 1), 1);
}
