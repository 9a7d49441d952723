//! The primary is lost while it overwrites its copy. What stood there before the sync must come back, whole, whatever
//! happens on the way.

use std::rc::Rc;

use crate::sync_semaphore::one_permit;
use engine::coverage::CoveragePoint;
use engine::identity::Role;
use engine::limits::{KIB, MIB};
use engine::state::{Broken, Mode, Pause, Policy, State};
use engine::{Command, CommandResult, GroupId, Store};
use sim::nodes::disk::SimDisk;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

const NEAR: usize = 0;
const FAR: usize = 1;

pub(crate) fn slow() -> SimOptions {
    SimOptions { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) }
}

/// A pair in step, then writes that the copy does not get; the images of the copy as it stays.
fn behind(options: SimOptions) -> (ScenarioWorld, Vec<Vec<u8>>) {
    let mut world = ScenarioWorld::in_peace(options);
    for n in 0..20 {
        world.write_done(n % 2, u64::from(n) * 44 * KIB, 12 * KIB);
    }
    world.drain();
    let before = world.images_of(FAR);
    assert!(matches!(world.order(NEAR, Command::Logging), CommandResult::Done(_)));
    for n in 0..14 {
        world.write_done(n % 2, u64::from(n) * 60 * KIB, 36 * KIB);
    }
    let id = world.zero(0, 300 * KIB, 90 * KIB, false);
    assert!(world.answer(id).0);
    (world, before)
}

fn begin_sync(world: &mut ScenarioWorld) {
    let began = world.order(NEAR, Command::Sync { full: false });
    assert!(matches!(began, CommandResult::Done(_)), "{began:?}");
}

/// The same with a sync that has overwritten a part of the copy.
pub(crate) fn mid_sync(options: SimOptions) -> (ScenarioWorld, Vec<Vec<u8>>) {
    let (mut world, before) = behind(options);
    begin_sync(&mut world);
    world.until("a part is overwritten", |world| world.images_of(FAR) != before && used(world) > 200 * KIB);
    assert!(world.glance(FAR, GROUP).expect("up").identity.inconsistent);
    (world, before)
}

fn used(world: &ScenarioWorld) -> u64 {
    world.figures(FAR).rollback_point.map_or(0, |point| point.used_bytes)
}

fn point(world: &ScenarioWorld) -> Option<String> {
    world.figures(FAR).rollback_point.map(|point| point.name)
}

/// The old primary is back: it gives its own writes up and follows.
fn follow(world: &mut ScenarioWorld) {
    if !world.cluster[NEAR].up() {
        world.boot(NEAR);
    }
    world.restore_path();
    world.pass(2 * SECOND);
    let demoted = world.order(NEAR, Command::Demote);
    assert!(!matches!(demoted, CommandResult::Refused(_)), "{demoted:?}");
    world.pass(SECOND);
    assert!(matches!(world.order(FAR, Command::SendAll), CommandResult::Done(_)));
    world.drain();
}

// proves: P2, rule 9, rule 14
#[test]
fn a_promotion_in_mid_sync_gives_the_image_before_it() {
    let (mut world, before) = mid_sync(slow());
    let (position, _) = world.figures(FAR).promotable.expect("the point");
    world.crash(NEAR, true, FOR_EVER);
    world.pass(100 * MILLISECOND);
    let refused = match world.promote(FAR, false) {
        CommandResult::Refused(why) => why.text,
        other => panic!("unforced: {other:?}"),
    };
    assert!(refused.contains(&format!("at sequence {}", position.seq.0)), "{refused}");
    let CommandResult::Warning(text) = world.promote(FAR, true) else { panic!("not promoted") };
    assert!(text.contains(&format!("sequence {} of", position.seq.0)) && text.contains("UTC"), "{text}");
    assert_eq!(world.images_of(FAR), before);
    assert_eq!(world.coverage(FAR, CoveragePoint::RolledBack), 1);
    follow(&mut world);
}

// proves: P2, rule 9
/// The power of the promoted node fails at every step of the way back, and again while it recovers from that.
#[test]
fn a_crash_at_any_step_of_the_rollback_is_recovered_from() {
    let (mut resumed, mut promoted_first_time) = (0, 0);
    for step in 0..60 {
        let (mut world, before) = mid_sync(slow());
        world.crash(NEAR, true, FOR_EVER);
        world.pass(50 * MILLISECOND);
        let entropy = world.rng.draw();
        let id = world.command(FAR, GROUP, Command::Promote { force: true, entropy });
        world.pass(step * 100_000);
        world.crash(FAR, true, MILLISECOND);
        if step % 2 == 1 {
            world.pass(MILLISECOND + step * 70_000);
            world.crash(FAR, true, MILLISECOND);
        }
        world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.running));
        resumed += world.coverage(FAR, CoveragePoint::RollbackResumed);
        if world.cluster.ledger.result(id).is_some() {
            promoted_first_time += 1;
        } else if world.glance(FAR, GROUP).is_some_and(|g| g.identity.role == engine::identity::Role::Secondary) {
            let again = world.promote(FAR, true);
            assert!(!matches!(again, CommandResult::Refused(_)), "step {step}: {again:?}");
        }
        assert_eq!(world.images_of(FAR), before, "step {step}");
    }
    assert!(resumed > 3 && promoted_first_time > 3, "{resumed} resumed, {promoted_first_time} done before");
}

// proves: P3, rule 6
/// It went back, and was not promoted after all: what it undid, the primary sends again.
#[test]
fn undone_ranges_converge_when_the_primary_is_back() {
    let (mut world, before) = mid_sync(slow());
    world.cut([false; 2]);
    let entropy = world.rng.draw();
    world.command(FAR, GROUP, Command::Promote { force: true, entropy });
    let writes_back =
        |world: &ScenarioWorld| world.cluster[FAR].explain(GROUP).map(|inside| inside.contains("WriteBack"));
    while writes_back(&world) != Some(true) {
        world.pass(50_000);
    }
    world.crash(FAR, true, MILLISECOND);
    world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.running));
    assert_eq!(world.coverage(FAR, CoveragePoint::RollbackResumed), 1);
    assert_eq!(world.images_of(FAR), before);
    assert!(world.figures(FAR).volumes.iter().any(|volume| volume.dirty_bytes > 0), "bits tell what was undone");
    assert!(!world.glance(FAR, GROUP).expect("up").identity.inconsistent);
    // Both lose power once more: the bits are durable.
    world.crash(FAR, true, MILLISECOND);
    world.crash(NEAR, true, MILLISECOND);
    world.restore_path();
    world.pass(SECOND);
    assert!(!matches!(world.order(NEAR, Command::Sync { full: false }), CommandResult::Refused(_)));
    world.drain();
    assert!(world.coverage(NEAR, CoveragePoint::BitsJoined) > 0);
}

/// A comparison has begun and overwritten nothing. The copy is promoted by force, loses its power on the way back, and comes
/// back as the secondary it was: it is no old copy, and follows.
#[test]
fn a_rollback_that_undid_nothing_needs_no_full_sync() {
    let resumed: usize = (0..40).map(|step| usize::from(back_to_where_it_stands(step * 100_000))).sum();
    assert!(resumed > 0);
}

/// Its power fails so long after the promotion was typed. Whether it went back at its start, and is no primary.
fn back_to_where_it_stands(dies_after_ns: u64) -> bool {
    let mut world = ScenarioWorld::in_peace(SimOptions { disk_ns: (200_000, 400_000), ..slow() });
    for n in 0..8 {
        world.write_done(n % 2, u64::from(n) / 2 * 256 * KIB, 4 * KIB);
    }
    world.drain();
    let before = world.images_of(1);
    world.crash(0, false, MILLISECOND);
    let compares = |world: &ScenarioWorld| world.coverage(0, CoveragePoint::CompareSyncBegan) > 0;
    let taken_up = |world: &ScenarioWorld| world.glance(1, GROUP).is_some_and(|g| g.identity.inconsistent);
    world.until("the comparison began", |world| compares(world) && taken_up(world));
    world.pass(2 * MILLISECOND);
    assert!(taken_up(&world), "it goes on");
    world.cut([false; 2]);
    let entropy = world.rng.draw();
    world.command(1, GROUP, Command::Promote { force: true, entropy });
    world.pass(dies_after_ns);
    world.crash(1, true, MILLISECOND);
    world.until("it is back", |world| world.glance(1, GROUP).is_some_and(|g| g.running));
    let identity = world.glance(1, GROUP).expect("up").identity;
    if world.coverage(1, CoveragePoint::RollbackResumed) == 0 || identity.role == Role::Primary {
        return false;
    }
    assert!(!identity.inconsistent);
    assert!(world.images_of(1) == before);
    world.restore_path();
    world.drain();
    true
}

/// It meets its peer while it still goes back: it says who it is once, when that is known, and misses nothing it is asked.
#[test]
fn a_node_that_goes_back_at_its_start_greets_when_it_is_through() {
    let (mut world, before) = mid_sync(slow());
    let rolls_back =
        |world: &ScenarioWorld| world.cluster[FAR].explain(GROUP).is_some_and(|inside| inside.contains("WriteBack"));
    world.cut([false; 2]);
    let entropy = world.rng.draw();
    world.command(FAR, GROUP, Command::Promote { force: true, entropy });
    while !rolls_back(&world) {
        world.pass(50_000);
    }
    world.crash(FAR, true, MILLISECOND);
    world.restore_path();
    while !rolls_back(&world) {
        world.pass(20_000);
    }
    world.cluster[FAR].storage.trouble.slow_until = world.now() + SECOND;
    world.connect([NEAR, FAR]);
    world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.running));
    assert_eq!(world.coverage(FAR, CoveragePoint::RollbackResumed), 1);
    assert_eq!(world.images_of(FAR), before);
    world.drain();
    assert_eq!(world.coverage(NEAR, CoveragePoint::BitsJoined), 1);
}

// proves: P2, rule 9
#[test]
fn an_interrupted_sync_keeps_the_first_point() {
    let (mut world, before) = mid_sync(slow());
    let first = point(&world);
    for _ in 0..2 {
        world.cut([false; 2]);
        world.pass(SECOND);
        world.crash(FAR, true, MILLISECOND);
        world.pass(SECOND);
        world.restore_path();
        let seen = used(&world);
        world.until("it goes on", |world| used(world) > seen + 40 * KIB);
        assert_eq!(point(&world), first);
    }
    assert!(world.coverage(FAR, CoveragePoint::RollbackPointKept) > 0);
    world.crash(NEAR, false, FOR_EVER);
    assert!(matches!(world.promote(FAR, true), CommandResult::Warning(_)));
    assert_eq!(world.images_of(FAR), before);
    follow(&mut world);
}

// proves: rule 9
#[test]
fn the_point_is_gone_when_the_sync_has_ended() {
    let (mut world, _) = mid_sync(slow());
    world.drain();
    assert_eq!(point(&world), None);
    assert_eq!(world.cluster[FAR].explain(GROUP).map(|inside| inside.contains("inconsistent: true")), Some(false));
    // And the next sync has a point of its own.
    world.order(NEAR, Command::Logging);
    world.write_done(1, 0, 600 * KIB);
    world.order(NEAR, Command::Sync { full: false });
    world.until("a point is taken", |world| point(world).is_some());
    world.drain();
}

fn tight() -> SimOptions {
    SimOptions { history_bytes: 160 * KIB, ..slow() }
}

/// A sync that the undo store has no room for; both nodes say so.
fn history_full() -> (ScenarioWorld, Vec<Vec<u8>>) {
    let (mut world, before) = behind(tight());
    begin_sync(&mut world);
    world.until("the primary says why", |world| {
        world.glance(NEAR, GROUP).is_some_and(|g| g.state == State::Paused(Pause::HistoryFull))
    });
    assert_eq!(world.figures(FAR).state, State::Paused(Pause::HistoryFull));
    assert!(world.figures(NEAR).reason.contains("mark drop"), "{}", world.figures(NEAR).reason);
    assert_eq!(world.images_of(FAR), before, "nothing was overwritten before its space was reserved");
    (world, before)
}

// proves: P8, rule 9
#[test]
fn with_the_history_full_the_point_can_be_given_up_by_name() {
    let (mut world, before) = history_full();
    let name = point(&world).expect("taken");
    let why = world.refused(FAR, Command::DropRollbackPoint { name: "before-sync-0".into(), discard: false });
    assert!(why.contains(&name), "{why}");
    world.refused(NEAR, Command::DropRollbackPoint { name: name.clone(), discard: false });
    let dropped = world.order(FAR, Command::DropRollbackPoint { name, discard: false });
    assert!(matches!(dropped, CommandResult::Done(_)), "{dropped:?}");
    world.until("it is overwritten now", |world| world.images_of(FAR) != before);
    let CommandResult::Refused(why) = world.promote(FAR, true) else { panic!("promoted a mixture") };
    assert!(why.text.contains("given up"), "{why}");
    world.drain();
}

fn give_space(world: &mut ScenarioWorld) {
    world.cluster.options = Rc::new(SimOptions { history_bytes: 4 * MIB, ..(*world.cluster.options).clone() });
    for node in world.cluster.iter_mut() {
        let mut content = node.disk(Store::Undo(GROUP)).view().to_vec();
        content.resize(4 * MIB as usize, 0);
        node.storage.replace(Store::Undo(GROUP), SimDisk::new(content));
    }
}

// proves: P8, rule 9
#[test]
fn with_the_history_full_more_space_lets_it_go_on() {
    let (mut world, before) = history_full();
    let name = point(&world);
    world.crash(FAR, false, FOR_EVER);
    give_space(&mut world);
    world.boot(FAR);
    world.until("it goes on", |world| world.cluster[FAR].up() && used(world) > 60 * KIB);
    assert_eq!(point(&world), name);
    world.crash(NEAR, false, FOR_EVER);
    assert!(matches!(world.promote(FAR, true), CommandResult::Warning(_)));
    assert_eq!(world.images_of(FAR), before);
    follow(&mut world);
}

// proves: P2, P8, rule 9
#[test]
fn with_the_history_full_a_promotion_gives_the_image() {
    let (mut world, before) = history_full();
    world.crash(NEAR, false, FOR_EVER);
    assert!(matches!(world.promote(FAR, true), CommandResult::Warning(_)));
    assert_eq!(world.images_of(FAR), before);
    give_space(&mut world);
    follow(&mut world);
}

/// The node starts with a full history: whether its journal has more for it or the primary comes again with it, both ways
/// out are open.
#[test]
fn a_start_with_the_history_full_has_its_ways_out() {
    for drop in [true, false] {
        let (mut world, before) = history_full();
        world.pass(SECOND);
        world.crash(FAR, true, MILLISECOND);
        world.cut([false; 2]);
        world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.running || g.paused.is_some()));
        let name = point(&world).expect("kept");
        if drop {
            world.restore_path();
            world.until("it stands still", stands_still);
            let dropped = world.order(FAR, Command::DropRollbackPoint { name, discard: false });
            assert!(matches!(dropped, CommandResult::Done(_)), "{dropped:?}");
            world.drain();
        } else {
            assert!(matches!(world.promote(FAR, true), CommandResult::Warning(_)));
            assert_eq!(world.images_of(FAR), before);
            world.crash(NEAR, false, FOR_EVER);
            give_space(&mut world);
            follow(&mut world);
        }
    }
}

/// It is connected, and cannot say what it is: its primary does not go on reporting why the link was lost.
#[test]
fn a_primary_reports_that_it_waits_for_a_secondary_with_a_full_history() {
    let (mut world, _) = killed_with_the_history_full(500 * KIB);
    world.restore_path();
    world.until("it is back, and stands still again", stands_still);
    world.until("it is connected", |world| world.figures(NEAR).peer.link == engine::status::LinkStatus::Connected);
    world.pass(4 * SECOND);
    let reason = world.figures(NEAR).reason;
    assert!(
        reason.contains("its half of the group has not answered yet") && reason.contains("waits for space"),
        "{reason}"
    );
    let CommandResult::Warning(reply) = world.order(NEAR, Command::Sync { full: false }) else { panic!("no word") };
    assert!(reply.contains("has not started"), "{reply}");
    let name = point(&world).expect("kept");
    assert!(matches!(world.order(FAR, Command::DropRollbackPoint { name, discard: false }), CommandResult::Done(_)));
    world.drain();
}

/// It is connected to its primary, and its start stands still.
fn connected_and_stands_still() -> ScenarioWorld {
    let (mut world, _) = killed_with_the_history_full(500 * KIB);
    world.restore_path();
    world.until("it is back, and stands still again", stands_still);
    world.until("it is connected", |world| world.figures(NEAR).peer.link == engine::status::LinkStatus::Connected);
    world.pass(SECOND);
    world
}

/// A promotion out of a start that stands still is answered as what it is: with the primary there, whoever has not been met yet.
#[test]
fn a_promotion_out_of_a_start_knows_the_primary_that_is_connected() {
    let mut world = connected_and_stands_still();
    let entropy = world.rng.draw();
    let why = world.refused(FAR, Command::Promote { force: false, entropy });
    assert!(why.contains("the peer is primary and connected"), "{why}");
    let CommandResult::Warning(reply) = world.promote(FAR, true) else { panic!("no warning") };
    assert!(reply.contains("both nodes are primary now"), "{reply}");
}

/// What the primary said while the start stood still is not what counts when the way back is over, if it was demoted meanwhile.
#[test]
fn a_primary_demoted_during_the_way_back_is_not_taken_for_one() {
    let mut world = connected_and_stands_still();
    world.cluster[FAR].storage.trouble.slow_until = world.now() + 5 * SECOND;
    let entropy = world.rng.draw();
    let promotion = world.command(FAR, GROUP, Command::Promote { force: true, entropy });
    let demoted = world.order(NEAR, Command::Demote);
    assert!(!matches!(demoted, CommandResult::Refused(_)), "{demoted:?}");
    world.pass(20 * MILLISECOND);
    assert!(world.cluster.ledger.result(promotion).is_none(), "it is on its way back");
    world.until("promoted", |world| world.cluster.ledger.result(promotion).is_some());
    world.pass(SECOND);
    let reason = world.figures(FAR).reason;
    assert!(!reason.contains("both nodes"), "{reason}");
    assert_eq!(world.figures(FAR).peer.role, Some(engine::identity::Role::Secondary));
}

fn stands_still(world: &ScenarioWorld) -> bool {
    world.glance(FAR, GROUP).is_some_and(|g| g.paused == Some(Pause::HistoryFull))
}

/// A sync in the stream that the undo store has no room for; the secondary loses its power over it, and the link. The images it
/// had before.
fn killed_with_the_history_full(history_bytes: u64) -> (ScenarioWorld, Vec<Vec<u8>>) {
    let (mut world, before) = behind(SimOptions { history_bytes, ..slow() });
    // After a kill a sync compares, and goes in the stream.
    world.crash(NEAR, false, MILLISECOND);
    world.pass(SECOND);
    begin_sync(&mut world);
    world.until("it stands still", stands_still);
    world.pass(300 * MILLISECOND);
    world.cut([false; 2]);
    world.crash(FAR, true, MILLISECOND);
    (world, before)
}

/// Seed 41003677. A start that has its journal still to read is told to go back, and a store fails before that is on record: the
/// next start reads the journal of the run before, all of it.
#[test]
fn a_way_back_that_was_not_recorded_leaves_the_journal_to_be_read() {
    let (mut world, _) = killed_with_the_history_full(500 * KIB);
    world.until("it is back, and stands still again", stands_still);
    world.cluster[FAR].storage.trouble.fail_next_record = true;
    let CommandResult::Refused(why) = world.promote(FAR, true) else { panic!("the bits could not be stored") };
    assert!(why.text.contains("a reset goes on"), "{why}");
    world.restore_path();
    world.pass(SECOND);
    world.crash(FAR, false, MILLISECOND);
    world.until("it stands still as before", stands_still);
    let name = point(&world).expect("kept");
    assert!(matches!(world.order(FAR, Command::DropRollbackPoint { name, discard: false }), CommandResult::Done(_)));
    world.drain();
    assert_eq!(world.coverage(FAR, CoveragePoint::JournalDamaged), 0);
}

/// The end of a sync stands in the journal and is not recorded when the secondary dies. An update of the start that is under way when
/// replay ends is followed by another one: that must not call whole what the volumes' caches may still lose.
#[test]
fn a_start_records_the_end_of_a_sync_behind_the_flush() {
    for step in 0..16 {
        let (mut world, before) = behind(slow());
        // After a kill a sync compares, and goes in the stream.
        world.crash(NEAR, false, MILLISECOND);
        world.pass(SECOND);
        begin_sync(&mut world);
        world.until("a part is overwritten", |world| world.images_of(FAR) != before && used(world) > 100 * KIB);
        world.cluster[FAR].storage.trouble.flush_ns = 60 * SECOND;
        world.until("the end has landed", sync_end_landed);
        world.cut([false; 2]);
        world.crash(FAR, false, MILLISECOND);
        world.until("it is back", |world| world.cluster[FAR].up());
        // At some moment of the replay the disks stand still, so that the batches are counted meanwhile.
        world.pass(step * 100_000);
        let began = world.now();
        let trouble = &mut world.cluster[FAR].storage.trouble;
        (trouble.flush_ns, trouble.superblock_ns) = (20 * SECOND, 3 * SECOND);
        trouble.stalled_until = began + 400 * MILLISECOND;
        while world.now() < began + 12 * SECOND {
            world.pass(10 * MILLISECOND);
            assert!(world.recorded(FAR).identity.inconsistent, "nothing is flushed yet: step {step}");
        }
        assert!(world.coverage(FAR, CoveragePoint::JournalReplayedRecords) > 0);
        let trouble = &mut world.cluster[FAR].storage.trouble;
        (trouble.flush_ns, trouble.superblock_ns) = (0, 0);
        world.crash(FAR, true, SECOND);
        world.restore_path();
        world.drain();
    }
}

/// The journal holds the end of a sync.
fn sync_end_landed(world: &ScenarioWorld) -> bool {
    let journal = world.cluster[FAR].disk(Store::Journal(GROUP)).view();
    let indexes = journal
        .chunks_exact(4096)
        .filter_map(|block| engine::journal::JournalIndex::decode(engine::journal::BatchOf::Journal, block));
    indexes.flat_map(|index| index.entries).any(|entry| entry.kind == engine::journal::RecordKind::SyncEnd)
}

/// The same node goes back, and its power fails on the way. Batches of its journal that it had no room to read again
/// are nothing that it lacks from now on.
#[test]
fn what_a_start_with_the_history_full_went_back_to_is_an_image() {
    let mut unread = 0;
    for (history, step) in [500, 600, 660].into_iter().flat_map(|history| (2..8).map(move |step| (history, step))) {
        let (mut world, before) = killed_with_the_history_full(history * KIB);
        world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.running || g.paused.is_some()));
        let counted = world.recorded(FAR).confirmed_ordinal;
        let entropy = world.rng.draw();
        world.command(FAR, GROUP, Command::Promote { force: true, entropy });
        world.pass(step * 100_000);
        world.crash(FAR, true, MILLISECOND);
        world.pass(2 * SECOND);
        if world.coverage(FAR, CoveragePoint::RollbackResumed) == 0 {
            continue;
        }
        unread += u32::from(world.recorded(FAR).confirmed_ordinal < counted);
        assert_eq!(world.images_of(FAR), before);
        world.crash(FAR, false, MILLISECOND);
        world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.running || g.paused.is_some()));
        assert_eq!(world.coverage(FAR, CoveragePoint::JournalDamaged), 0, "{history}, {step}");
        assert!(matches!(world.promote(FAR, true), CommandResult::Warning(_)));
        assert_eq!(world.images_of(FAR), before);
    }
    assert!(unread > 5, "{unread}");
}

// proves: P9
/// A batch that the superblock counts is rotten: that is no torn tail. It is named, and nothing is rolled back to it.
#[test]
fn a_rotten_undo_store_is_named_and_never_played_back() {
    let (mut world, _) = mid_sync(slow());
    world.pass(SECOND);
    world.cut([false; 2]);
    world.pass(SECOND);
    world.crash(FAR, false, FOR_EVER);
    let mut content = world.cluster[FAR].disk(Store::Undo(GROUP)).view().to_vec();
    content[40] ^= 1;
    world.cluster[FAR].storage.replace(Store::Undo(GROUP), SimDisk::new(content));
    world.boot(FAR);
    world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.running));
    let error = world.figures(FAR).rollback_point.and_then(|point| point.damaged).expect("named");
    assert!(error.contains("damaged at byte 0"), "{error}");
    assert_eq!(world.figures(FAR).promotable, None);
    let CommandResult::Refused(why) = world.promote(FAR, true) else { panic!("promoted a mixture") };
    assert!(why.text.contains("damaged at byte 0"), "{why}");
    world.restore_path();
    world.drain();
    assert_eq!(point(&world), None);
}

// proves: P9
/// Content rotted after the start: found when it is read back, in the middle of the way.
#[test]
fn rot_met_on_the_way_back_ends_the_rollback_with_a_sentence() {
    let (mut world, _) = mid_sync(slow());
    world.cut([false; 2]);
    world.pass(SECOND);
    world.crash(FAR, false, FOR_EVER);
    let mut rotten = world.cluster[FAR].disk(Store::Undo(GROUP)).view().to_vec();
    // In the content of the first batch.
    rotten[4096 + 100] ^= 1;
    world.cluster[FAR].storage.replace(Store::Undo(GROUP), SimDisk::new(rotten));
    world.boot(FAR);
    world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.running));
    let CommandResult::Refused(why) = world.promote(FAR, true) else { panic!("promoted a mixture") };
    assert!(why.text.contains("damaged at byte"), "{why}");
    let CommandResult::Refused(why) = world.promote(FAR, true) else { panic!("promoted a mixture") };
    assert!(why.text.contains("no consistent image"), "{why}");
    world.restore_path();
    world.drain();
}

/// A promotion has gone back to the point, and then it cannot be recorded: it is refused, and the copy goes on as the follower of the
/// history that it had taken up, however long it stands failed before it restarts.
#[test]
fn a_promotion_that_is_refused_after_the_way_back_costs_no_full_sync() {
    let mut followed = [0; 2];
    for (wait, draws) in [0, 30].into_iter().flat_map(|wait| (0..6).map(move |draws| (wait, draws))) {
        let (mut world, before) = mid_sync(slow());
        // What a failed write leaves on the disk is another one each time.
        (0..draws).for_each(|_| _ = world.rng.draw());
        world.cut([false; 2]);
        world.pass(6 * SECOND);
        // The primary goes on alone, in another generation.
        world.write_done(0, 0, 4 * KIB);
        let entropy = world.rng.draw();
        let order = world.command(FAR, GROUP, Command::Promote { force: true, entropy });
        let writes_back = |world: &ScenarioWorld| {
            world.cluster[FAR].explain(GROUP).is_some_and(|inside| inside.contains("WriteBack"))
        };
        while !writes_back(&world) {
            world.pass(50_000);
        }
        world.cluster[FAR].storage.trouble.fail_next_record = true;
        world.until("it is answered", |world| world.cluster.ledger.result(order).is_some());
        assert!(matches!(world.cluster.ledger.result(order), Some(CommandResult::Refused(_))));
        assert_eq!(world.glance(FAR, GROUP).map(|g| g.state), Some(State::Failed(Broken::Superblock)));
        world.pass(wait * SECOND);
        world.crash(FAR, false, MILLISECOND);
        world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.running));
        assert_eq!(world.images_of(FAR), before);
        if world.glance(FAR, GROUP).is_some_and(|glance| glance.identity.role == Role::Primary) {
            // The write that failed stands there all the same.
            continue;
        }
        followed[usize::from(wait > 0)] += 1;
        world.restore_path();
        // An update sync begins by itself.
        world.drain();
    }
    assert!(followed.iter().all(|count| *count > 0), "{followed:?}");
}

// proves: P3, rule 6
/// The copy went back and holds bits of its own. While it is asked for them a full sync is typed, which waits for its turn, and is taken
/// back: the bits are asked for again, as the update sync that follows sends only what is known to differ.
#[test]
fn a_full_sync_that_never_began_spares_no_question() {
    let busy = GroupId(2);
    let mut world = ScenarioWorld::new(SimOptions { delay_ns: 20 * MILLISECOND, ..one_permit(400_000) });
    world.pass(SECOND);
    for group in [GROUP, busy] {
        world.command(NEAR, group, Command::Sync { full: true });
        world.until("in step", |world| world.cluster.in_step(group));
    }
    world.command(NEAR, GROUP, Command::Logging);
    for n in 0..14 {
        world.write_done(n % 2, u64::from(n) * 60 * KIB, 60 * KIB);
    }
    begin_sync(&mut world);
    world.until("a part is overwritten", |world| used(world) > 200 * KIB);
    world.command(NEAR, busy, Command::Logging);
    world.pass(MILLISECOND);
    world.cut([false; 2]);
    let entropy = world.rng.draw();
    world.command(FAR, GROUP, Command::Promote { force: true, entropy });
    let writes_back =
        |world: &ScenarioWorld| world.cluster[FAR].explain(GROUP).is_some_and(|inside| inside.contains("WriteBack"));
    while !writes_back(&world) {
        world.pass(50_000);
        assert!(world.now() < 60 * SECOND);
    }
    world.crash(FAR, true, MILLISECOND);
    world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.running));
    assert!(world.figures(FAR).volumes.iter().any(|volume| volume.dirty_bytes > 0));
    for n in 0..16 {
        world.write_to(busy, 0, n * 60 * KIB, 36 * KIB);
    }
    world.pass(20 * SECOND);
    world.restore_path();
    while !world.figures(NEAR).reason.contains("asking the peer which blocks differ") {
        world.pass(MILLISECOND);
        assert!(world.now() < 120 * SECOND, "{}", world.figures(NEAR).reason);
    }
    world.pass(2 * MILLISECOND);
    world.command(NEAR, busy, Command::Sync { full: true });
    world.pass(2 * MILLISECOND);
    let takes_permit = world.cluster[NEAR].engine().expect("up").status_of(busy).expect("there");
    assert_eq!(takes_permit.state, State::Syncing, "{}", takes_permit.reason);
    assert!(world.figures(NEAR).reason.contains("asking the peer which blocks differ"));
    for command in [Command::Sync { full: true }, Command::Logging, Command::Sync { full: false }] {
        world.command(NEAR, GROUP, command);
        world.pass(30 * MILLISECOND);
    }
    world.drain();
    assert!(world.coverage(NEAR, CoveragePoint::BitsJoined) > 0);
}
