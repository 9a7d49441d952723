//! One record of one node is damaged. It is named, and what it claimed is believed by nobody: neither by its own next start, however
//! that ends, nor by its peer; and what it does not concern is not lost with it.

use engine::cell;
use engine::coverage::CoveragePoint;
use engine::journal::{BatchOf, INDEX_BYTES, JournalIndex};
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, Store};
use sim::checkers::facts::KnownFact;
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};
use sim::stamps::SECTOR;

const FAR: usize = 1;

/// Batches from the recorded head on.
fn due(world: &ScenarioWorld) -> Vec<JournalIndex> {
    let head = world.recorded(FAR).journal;
    let ring = world.cluster[FAR].disk(Store::Journal(GROUP)).view();
    let mut all: Vec<JournalIndex> = ring
        .chunks_exact(INDEX_BYTES)
        .enumerate()
        .filter_map(|(at, block)| {
            JournalIndex::decode(BatchOf::Journal, block).filter(|i| i.ring_offset == (at * INDEX_BYTES) as u64)
        })
        .filter(|i| i.ordinal >= head.ordinal)
        .collect();
    all.sort_by_key(|index| index.ordinal);
    all
}

// proves: P9
/// The superblock alone reads as zeroes; everything beside it says that the group has lived.
#[test]
fn a_blank_superblock_beside_living_files_is_no_new_group() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.write_done(0, 0, 64 * KIB);
    world.drain();
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    assert!(matches!(world.promote(1, false), CommandResult::Done(_)));
    world.until("turned round", |world| world.glance(1, GROUP).is_some_and(|g| g.state == State::Replicating));
    world.write_done(0, 128 * KIB, 64 * KIB);
    world.pass(5 * SECOND);
    // The old primary, a follower by now, restarts with its superblock blank.
    world.cut([false; 2]);
    world.crash(0, false, SECOND);
    world.checkers.facts.add(KnownFact::Rotten(0, Store::Superblock(GROUP)));
    world.checkers.facts.add(KnownFact::Spoiled(GROUP, 0));
    let disk = world.cluster[0].disk_mut(Store::Superblock(GROUP));
    let size = disk.size();
    disk.goes_astray(0, &vec![0; size]);
    world.pass(10 * SECOND);
    assert!(!world.cluster[0].serves(GROUP), "two copies are writable, and nobody forced anything (P6)");
}

/// A secondary that has applied all it has; its journal still keeps the batches.
fn applied_and_kept() -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    for n in 0..6 {
        world.write_done((n % 2) as u16, n * 64 * KIB, 16 * KIB);
        world.pass(30 * MILLISECOND);
    }
    world.pass(20 * SECOND);
    world
}

// proves: P2, P9
/// Everything was applied and recorded; the payload of a batch that nothing needs is rotten; the primary's site is lost.
#[test]
fn rot_in_a_batch_that_was_applied_leaves_the_image() {
    let mut world = applied_and_kept();
    let all = due(&world);
    let sb = world.recorded(FAR);
    assert!(!all.is_empty() && all.last().expect("some").last() <= sb.identity.position.seq, "all applied, on record");
    let before = world.images_of(FAR);
    world.cut([false; 2]);
    world.crash(FAR, true, SECOND);
    world.checkers.facts.add(KnownFact::Rotten(FAR, Store::Journal(GROUP)));
    let at = all[0].ring_offset as usize + INDEX_BYTES;
    world.cluster[FAR].disk_mut(Store::Journal(GROUP)).goes_astray(at, &[0xaa; SECTOR]);
    world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.running));
    assert!(world.images_of(FAR) == before, "nothing is missing on its volumes");
    let answer = world.promote(FAR, true);
    assert!(!matches!(answer, CommandResult::Refused(_)), "{answer:?}");
}

// proves: P1
/// The same, and the primary loses its power too: what only the peer has is on the peer's volumes.
#[test]
fn rot_in_an_applied_payload_does_not_cost_the_tail() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..24 {
        world.write_done((n % 2) as u16, n * 32 * KIB, 16 * KIB);
        world.pass(10 * MILLISECOND);
    }
    world.pass(900 * MILLISECOND);
    let all = due(&world);
    let sb = world.recorded(FAR);
    assert!(all.last().expect("some").last() <= sb.identity.position.seq, "all applied, on record");
    assert!(all.len() > 2);
    let there = world.images_of(FAR);
    assert!(there == world.images_of(0), "confirmed as applied, all of it");
    world.cut([false; 2]);
    world.crash(FAR, true, SECOND);
    world.crash(0, true, SECOND);
    assert!(world.images_of(0) != there, "the primary lost something");
    world.checkers.facts.add(KnownFact::Rotten(FAR, Store::Journal(GROUP)));
    let at = all[0].ring_offset as usize + INDEX_BYTES;
    world.cluster[FAR].disk_mut(Store::Journal(GROUP)).goes_astray(at, &[0xaa; SECTOR]);
    world.until("both are back", |world| {
        world.glance(FAR, GROUP).is_some_and(|g| g.running) && world.glance(0, GROUP).is_some_and(|g| g.running)
    });
    world.restore_path();
    world.until("it serves", |world| world.cluster[0].serves(GROUP));
    world.pass(20 * SECOND);
    let kept = world.images_of(0) == there;
    let pushed = world.images_of(FAR) != there;
    assert!(kept || !pushed, "old content was pushed over what the peer had confirmed, and nobody was asked (P1)");
}

/// Demoted unverified; its peer's start fails on a damaged record. Promoted again it still needs verification.
#[test]
fn a_failed_peer_verifies_nothing() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.loses_power_alone();
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    assert!(world.images_of(0) != world.images_of(1));
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
    // The peer restarts; something went astray over a slot of its superblock.
    world.crash(1, false, SECOND);
    world.checkers.facts.add(KnownFact::Rotten(1, Store::Superblock(GROUP)));
    world.checkers.facts.add(KnownFact::Spoiled(GROUP, 1));
    let newest = world.recorded(1).slot_offset() as usize;
    let other = (newest + cell::SLOT_BYTES as usize) % cell::CELL_BYTES as usize;
    let disk = world.cluster[1].disk_mut(Store::Superblock(GROUP));
    let whole = disk.durable()[other..other + cell::SLOT_BYTES as usize].to_vec();
    disk.goes_astray(other, &[0x5a; cell::SLOT_BYTES as usize]);
    world.until("its start fails", |world| matches!(world.glance(1, GROUP).map(|g| g.state), Some(State::Failed(_))));
    world.restore_path();
    world.pass(5 * SECOND);
    assert!(world.glance(0, GROUP).expect("up").needs_verification);
    world.promote(0, true);
    let needs_verification = world.glance(0, GROUP).expect("up").needs_verification;
    // The file is restored, as the sentence says.
    world.crash(1, false, SECOND);
    world.cluster[1].disk_mut(Store::Superblock(GROUP)).goes_astray(other, &whole);
    world.pass(20 * SECOND);
    assert!(needs_verification, "a peer that cannot say where it stands reconciled what it has confirmed");
}

/// Batches of the undo store that stand whole in a row.
fn undo_batches(world: &ScenarioWorld) -> Vec<engine::undo::UndoIndex> {
    let file = world.cluster[FAR].disk(Store::Undo(GROUP)).view();
    let mark = world.recorded(FAR).rollback_point.id;
    let mut found: Vec<engine::undo::UndoIndex> = Vec::new();
    let mut at = 0usize;
    while at + 4096 <= file.len() {
        let Some(index) = engine::undo::UndoIndex::decode(&file[at..at + 4096]) else { break };
        if index.mark != mark || index.ordinal != found.len() as u64 + 1 || index.ring_offset != at as u64 {
            break;
        }
        at += index.bytes as usize;
        found.push(index);
    }
    found
}

/// The far side lacks a MiB, and a sync in the stream has begun there, over its volume as it is: after a kill it compares. The
/// image before it.
fn in_mid_sync(full_until: u64) -> (ScenarioWorld, Vec<Vec<u8>>) {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { bytes_per_s: 1_000_000, ..options(Mode::Async, Policy::Degrade) });
    let writes = |world: &mut ScenarioWorld| {
        for n in 0..32 {
            world.write_done(0, n * 32 * KIB, 32 * KIB);
        }
    };
    writes(&mut world);
    world.drain();
    world.pass(10 * SECOND);
    world.cut([false; 2]);
    writes(&mut world);
    let image = world.images_of(FAR);
    world.crash(0, false, SECOND);
    world.cluster[FAR].storage.trouble.full_until = full_until;
    world.restore_path();
    world.until("the sync's begin is on record", |world| world.recorded(FAR).identity.inconsistent);
    (world, image)
}

/// A start in the middle of a sync stands still for a full volume, for as long as that is full. What it has saved until then is
/// counted, so that a batch of it that rots does not pass for a torn one: its ranges have been overwritten.
#[test]
fn what_a_start_that_stands_still_has_saved_is_counted() {
    let mut met = 0;
    for (ms, dt) in (1..5u64).flat_map(|ms| (4..30u64).map(move |dt| (ms * 200, dt))) {
        let (mut world, image) = in_mid_sync(u64::MAX);
        world.pass(ms * MILLISECOND);
        world.cut([false; 2]);
        world.crash(FAR, true, SECOND);
        world.cluster[FAR].storage.trouble.full_until = 0;
        world.until("it starts", |world| world.cluster[FAR].up());
        world.pass(dt * MILLISECOND / 10);
        world.cluster[FAR].storage.trouble.full_until = u64::MAX;
        world.pass(60 * SECOND);
        let counted = world.recorded(FAR).rollback_point.batches as usize;
        let saved = undo_batches(&world);
        let running = world.glance(FAR, GROUP).is_some_and(|g| g.running);
        let changed = world.images_of(FAR) != image;
        if running || saved.is_empty() || !changed {
            continue;
        }
        assert_eq!(saved.len(), counted, "{ms} ms into the sync, {dt} into the start");
        met += 1;
    }
    assert!(met > 0, "never met");
}

// proves: P9
/// One copy of the bitmap's newest slot rots, and a start sees it. When its twin rots later, another one is whole.
#[test]
fn a_rotten_copy_of_the_bitmap_is_named_and_written_anew() {
    let stop = |world: &mut ScenarioWorld| {
        world.input(0, engine::Input::Stop);
        world.until("it has stopped", |world| !world.cluster[0].up());
    };
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..6u64 {
        world.write_done((n % 2) as u16, n * 64 * KIB, 4 * KIB);
        if n == 2 {
            stop(&mut world);
            world.boot(0);
            world.pass(SECOND);
        }
    }
    stop(&mut world);
    let rot = |world: &mut ScenarioWorld, twin: usize| {
        let disk = world.cluster[0].disk_mut(Store::Bitmap(GROUP));
        let update = |at: usize| {
            cell::decode(engine::bitmap::KIND, &disk.durable()[at..at + cell::BYTES]).map_or(0, |(h, _)| h.update)
        };
        let slot = cell::SLOT_BYTES as usize;
        let newest =
            if update(cell::BYTES).max(update(0)) > update(slot + cell::BYTES).max(update(slot)) { 0 } else { slot };
        let at = newest + twin * cell::BYTES + 512;
        let mut sector = disk.durable()[at..at + SECTOR].to_vec();
        sector[9] ^= 1;
        disk.goes_astray(at, &sector);
    };
    rot(&mut world, 0);
    world.boot(0);
    world.pass(60 * SECOND);
    stop(&mut world);
    rot(&mut world, 1);
    world.boot(0);
    world.pass(10 * SECOND);
    let answer = world.order(0, Command::Sync { full: false });
    assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
    world.drain();
}

// proves: P9, rule 11
/// A flush of the secondary's volume fails: the group has failed and stands so until somebody looks. A batch that rots meanwhile
/// does not pass for a torn one while later writes are on the volumes.
#[test]
fn what_a_failed_secondary_had_confirmed_is_counted() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    world.write_done(0, 0, 16 * KIB);
    world.drain();
    world.pass(20 * SECOND);
    world.cluster[FAR].storage.trouble.fail_next_flush = true;
    for n in 0..4u64 {
        world.write_done(0, n * 64 * KIB, 16 * KIB);
        world.pass(10 * MILLISECOND);
    }
    world.until("it fails", |world| matches!(world.glance(FAR, GROUP).map(|g| g.state), Some(State::Failed(_))));
    world.pass(3600 * SECOND);
    let sb = world.recorded(FAR);
    let uncounted = due(&world).into_iter().filter(|index| index.ordinal >= sb.confirmed_ordinal).count();
    assert_eq!(uncounted, 0, "an hour later a record counts what was confirmed");
}

/// The same for the undo store: the first flush in a sync fails.
#[test]
fn what_a_failed_secondary_had_saved_is_counted() {
    let mut met = 0;
    for ms in 1..12u64 {
        let (mut world, _) = in_mid_sync(0);
        world.pass(ms * 30 * MILLISECOND);
        world.cluster[FAR].storage.trouble.fail_next_flush = true;
        world.until("it fails", |world| matches!(world.glance(FAR, GROUP).map(|g| g.state), Some(State::Failed(_))));
        world.pass(600 * SECOND);
        let counted = world.recorded(FAR).rollback_point.batches as usize;
        let saved = undo_batches(&world);
        assert_eq!(saved.len(), counted, "{ms} ms into the sync");
        met += usize::from(counted > 0);
    }
    assert!(met > 0, "never met");
}

/// A sync has landed to its end behind a full volume, with writes after it; one of those rots. The rollback point is whole, and is
/// still one to go back to.
#[test]
fn damage_behind_the_end_of_a_sync_leaves_the_rollback_point() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..8 {
        world.write_done(0, n * 32 * KIB, 16 * KIB);
    }
    world.drain();
    world.pass(10 * SECOND);
    world.cut([false; 2]);
    for n in 0..4 {
        world.write_done(0, n * 32 * KIB, 16 * KIB);
    }
    let image = world.images_of(FAR);
    world.crash(0, false, SECOND);
    world.cluster[FAR].storage.trouble.full_until = u64::MAX;
    world.restore_path();
    world.until("the sync's begin is on record", |world| world.recorded(FAR).identity.inconsistent);
    world.pass(5 * SECOND);
    for n in 0..3 {
        world.write_done(0, (n + 12) * 32 * KIB, 16 * KIB);
        world.pass(SECOND);
    }
    let all = due(&world);
    let ends = all.iter().any(|i| i.entries.iter().any(|e| e.kind == engine::journal::RecordKind::SyncEnd));
    world.cut([false; 2]);
    world.crash(FAR, true, SECOND);
    world.cluster[FAR].storage.trouble.full_until = 0;
    world.checkers.facts.add(KnownFact::Rotten(FAR, Store::Journal(GROUP)));
    let at = all.last().expect("some").ring_offset as usize + INDEX_BYTES;
    world.cluster[FAR].disk_mut(Store::Journal(GROUP)).goes_astray(at, &[0xaa; SECTOR]);
    world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.running));
    assert_eq!(world.coverage(FAR, CoveragePoint::JournalDamaged), 1);
    let answer = world.promote(FAR, true);
    assert!(ends && !matches!(answer, CommandResult::Refused(_)), "{answer:?}");
    assert!(world.images_of(FAR) == image, "the image before the sync, and no mixture");
}

/// What a start has saved and overwritten is on record before it can fail: here its flush of a volume does.
#[test]
fn what_a_failed_start_had_saved_is_counted() {
    let mut met = 0;
    for ms in (1..6u64).map(|n| n * 200) {
        let (mut world, image) = in_mid_sync(u64::MAX);
        world.pass(ms * MILLISECOND);
        world.cut([false; 2]);
        world.crash(FAR, false, SECOND);
        world.cluster[FAR].storage.trouble.full_until = 0;
        world.until("it overwrites", |world| world.cluster[FAR].up() && world.images_of(FAR) != image);
        world.cluster[FAR].storage.trouble.fail_next_flush = true;
        world.until("it fails", |world| matches!(world.glance(FAR, GROUP).map(|g| g.state), Some(State::Failed(_))));
        let counted = world.recorded(FAR).rollback_point.batches as usize;
        assert_eq!(undo_batches(&world).len(), counted, "{ms} ms into the sync");
        met += usize::from(counted > 0);
    }
    assert!(met > 0, "never met");
}

/// A promotion stands still over a full volume; a batch that was confirmed in the moment before it rots.
#[test]
fn what_was_confirmed_before_a_promotion_that_stands_still_is_counted() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    world.write_done(0, 0, 16 * KIB);
    world.drain();
    world.pass(20 * SECOND);
    world.cluster[FAR].storage.trouble.full_until = u64::MAX;
    for n in 0..4u64 {
        world.write_done(0, n * 64 * KIB, 16 * KIB);
    }
    world.cut([false; 2]);
    let entropy = world.rng.draw();
    world.command(FAR, GROUP, Command::Promote { force: true, entropy });
    world.pass(SECOND);
    let struck = due(&world).last().expect("one that is due").ring_offset as usize + INDEX_BYTES;
    world.checkers.facts.add(KnownFact::Rotten(FAR, Store::Journal(GROUP)));
    world.checkers.facts.add(KnownFact::JournalHit(GROUP, FAR));
    world.crash(FAR, false, SECOND);
    world.cluster[FAR].storage.trouble.full_until = 0;
    world.cluster[FAR].disk_mut(Store::Journal(GROUP)).goes_astray(struck, &[0xaa; SECTOR]);
    world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.running));
    assert_eq!(world.coverage(FAR, CoveragePoint::JournalDamaged), 1, "a confirmed batch passes for a torn one");
}
