//! The secondary's journal has wrapped and its last batch is torn: replay ends before it, and the whole batch of an older
//! round that stands behind it is left alone.
// proves: P2, P9

use engine::coverage::CoveragePoint;
use engine::journal::{BatchOf, INDEX_BYTES, JournalIndex};
use engine::limits::KIB;
use engine::state::{Mode, Policy};
use engine::superblock::Superblock;
use engine::{Seq, Store};
use sim::checkers::facts::KnownFact;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options};
use sim::stamps::SECTOR;

const FAR: usize = 1;

/// The batches that replay would take, first to last, and the whole ones in other places.
fn batches(world: &ScenarioWorld) -> (Vec<JournalIndex>, Vec<JournalIndex>) {
    let head = world.recorded(FAR).journal;
    let ring = world.cluster[FAR].disk(Store::Journal(GROUP)).view();
    let mut all: Vec<JournalIndex> = ring
        .chunks_exact(INDEX_BYTES)
        .enumerate()
        .filter_map(|(at, block)| {
            JournalIndex::decode(BatchOf::Journal, block).filter(|index| index.ring_offset == (at * INDEX_BYTES) as u64)
        })
        .collect();
    all.sort_by_key(|index| index.ordinal);
    all.into_iter().partition(|index| index.ordinal >= head.ordinal)
}

#[test]
fn a_torn_tail_is_not_replayed_nor_what_stands_behind_it() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    // Round the ring a few times.
    for n in 0..160u64 {
        world.write_done((n % 2) as u16, n % 25 * 32 * KIB, 20 * KIB);
    }
    world.drain();
    assert!(world.coverage(FAR, CoveragePoint::JournalWrapped) > 1);
    // Each in a batch of its own, and the superblock still says to replay them all.
    for n in 0..4u64 {
        world.write_done(0, n * 32 * KIB, 16 * KIB);
        world.pass(20 * MILLISECOND);
    }
    // One more is being written when the power fails: all but its last sector lands.
    world.cluster[FAR].storage.trouble.stalled_until = FOR_EVER;
    world.write_done(0, 512 * KIB, 16 * KIB);
    world.pass(20 * MILLISECOND);
    let journal = world.cluster[FAR].disk_mut(Store::Journal(GROUP));
    let last = *journal.undecided().last().expect("the batch is being written");
    journal.will_keep(|sector| sector != last);
    world.cut([false; 2]);
    world.crash(FAR, true, SECOND);
    world.cluster[FAR].storage.trouble.stalled_until = 0;
    let (due, stale) = batches(&world);
    let torn = due.last().expect("batches wait");
    assert_eq!(torn.ring_offset + u64::from(torn.bytes), (last + 1) * SECTOR as u64, "the torn one's index is whole");
    assert!(due.len() > 2 && !stale.is_empty(), "{} due, {} stale", due.len(), stale.len());
    let whole = due.iter().rev().nth(1).map(JournalIndex::last);
    world.until("the secondary is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.drained));
    assert_eq!(
        (world.coverage(FAR, CoveragePoint::JournalTornTail), world.coverage(FAR, CoveragePoint::JournalDamaged)),
        (1, 0)
    );
    let identity = world.glance(FAR, GROUP).expect("up").identity;
    let position = identity.position;
    assert_eq!(Some(position.seq), whole, "up to the last whole batch");
    assert!(!identity.inconsistent, "what was never confirmed is missed by nobody");
    assert!(position.seq > Seq::NONE);
    world.restore_path();
    world.drain();
}

/// The end of a sync stands in the journal, not yet on record; behind it a batch that the superblock counts is damaged.
#[test]
fn the_end_of_a_sync_does_not_hide_damage_behind_it() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.write_done(0, 0, 64 * KIB);
    // What was being written is compared, in the stream.
    world.crash(0, false, SECOND);
    world.until("the sync's begin is on record", |world| world.recorded(FAR).identity.inconsistent);
    let in_sync = world.recorded(FAR);
    world.until("in step", |world| world.in_step());
    for n in 0..2 {
        world.write_done(0, (n + 4) * 32 * KIB, 16 * KIB);
        world.pass(SECOND);
    }
    world.cut([false; 2]);
    world.crash(FAR, true, SECOND);
    // An update that counted the batches and did not yet know of the sync's end.
    let Superblock { update, confirmed_ordinal, .. } = world.recorded(FAR);
    let between = Superblock { update: update + 1, confirmed_ordinal, ..in_sync };
    let file = world.cluster[FAR].disk_mut(Store::Superblock(GROUP));
    file.goes_astray(between.slot_offset() as usize, &between.encode());
    let (due, _) = batches(&world);
    let last = due.last().expect("batches wait").ring_offset as usize;
    let journal = world.cluster[FAR].disk_mut(Store::Journal(GROUP));
    journal.goes_astray(last + INDEX_BYTES, &[0xaa; SECTOR]);
    world.checkers.facts.add(KnownFact::Rotten(FAR, Store::Journal(GROUP)));
    world.until("the secondary is back", |world| world.glance(FAR, GROUP).is_some_and(|g| g.running));
    assert_eq!(world.coverage(FAR, CoveragePoint::JournalDamaged), 1);
    assert!(world.glance(FAR, GROUP).expect("up").identity.inconsistent, "later writes may be on the volumes");
}
