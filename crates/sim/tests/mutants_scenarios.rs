//! Scenarios for small changes of the engine to which nobody else objected (`cargo xtask soak --mutants`): each one is told by what
//! would go wrong.

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Policy, Protection, State};
use engine::{Command, CommandResult, Settings, Store, journal};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options, state};

/// The second loss of the link came longer after the first one than the window lasts, and found it over: its writers were answered
/// alone at once.
#[test]
fn each_loss_of_the_link_has_a_window_of_its_own() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Hold(Duration::from_secs(20))));
    for round in 0..3 {
        world.cut([false; 2]);
        let id = world.write(0, round * 64 * KIB, 4 * KIB);
        world.until("the window opens", |world| state(world) == Some(State::Holding));
        world.pass(12 * SECOND);
        assert_eq!(world.reply(id), None, "round {round}: the window still runs");
        world.restore_path();
        assert!(world.answer(id).0);
        world.drain();
        world.pass(30 * SECOND);
    }
    assert_eq!(
        (world.coverage(0, CoveragePoint::HoldEnded), world.coverage(0, CoveragePoint::DegradeReleasedWriters)),
        (0, 0)
    );
}

/// A node that needs verification was promoted by force while it saw a peer that had been promoted since: it asked that for what it lacks, which a
/// node with a history of its own does not give, and stayed closed.
#[test]
fn what_a_peer_that_went_on_cannot_give_is_not_waited_for() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.loses_power_alone();
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
    world.restore_path();
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
    world.pass(10 * SECOND);
    let needs_verification =
        |world: &ScenarioWorld| world.glance(0, GROUP).is_some_and(|glance| glance.needs_verification);
    assert!(needs_verification(&world));
    assert!(!matches!(world.promote(0, true), CommandResult::Refused(_)));
    assert!(world.cluster[0].serves(GROUP) && !needs_verification(&world), "{}", world.figures(0).reason);
}

// proves: rule 19
/// A primary without writes sent no clock, and its copy seemed to grow older (rule 19).
#[test]
fn the_copy_of_an_idle_primary_does_not_grow_older() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    let copy_at = |world: &ScenarioWorld| world.figures(1).promotable.expect("it is an image").1.0;
    let before = copy_at(&world);
    world.pass(60 * SECOND);
    assert!(copy_at(&world) - before >= 57 * SECOND, "{} ns in a minute", copy_at(&world) - before);
}

#[test]
fn writes_are_counted() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    let count = |world: &ScenarioWorld| (world.figures(0).writes, world.figures(0).written_bytes);
    let (writes, bytes) = count(&world);
    for n in 0..3 {
        world.write_done(0, n * 64 * KIB, 8 * KIB);
    }
    assert_eq!(count(&world), (writes + 3, bytes + 24 * KIB));
}

/// While the link is down and the queue holds, what is written is on its way: status said that it was protected by nothing.
#[test]
fn what_waits_in_the_queue_is_reported_as_queued() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    world.write_done(0, 0, 8 * KIB);
    world.until("the link is down", |world| state(world) == Some(State::Queuing));
    assert_eq!(world.figures(0).protection, Protection::Queued);
    world.restore_path();
    world.drain();
}

/// A sync of a little, beside the writes that go on: it is read into the stream and is no snapshot. The link carries 400 kB/s.
fn syncs_in_stream(mode: Mode) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(SimOptions { bytes_per_s: 400_000, ..options(mode, Policy::Degrade) });
    // So the link is measured.
    for n in 0..16 {
        world.write(0, n * 32 * KIB, 32 * KIB);
    }
    world.drain();
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..6 {
        world.write_done(0, n * 64 * KIB, 32 * KIB);
    }
    assert!(!world.figures(0).sync_ordered, "nobody did");
    world.command(0, GROUP, Command::Sync { full: false });
    world.until("it syncs", |world| state(world) == Some(State::Syncing));
    assert!(world.checkers.wire.syncs_in_stream(GROUP, 1));
    world
}

/// Status said of a sync that it had sent nothing, however long it went on; and that one was ordered, which nobody had.
#[test]
fn status_reports_what_a_sync_has_sent() {
    let mut world = syncs_in_stream(Mode::Async);
    let done = |world: &ScenarioWorld| world.figures(0).sync.is_some_and(|sync| sync.done_bytes > 0);
    world.until("some of it is done", done);
    let sync = world.figures(0).sync.expect("under way");
    assert!(sync.sent_bytes >= sync.done_bytes, "{sync:?}");
}

/// An operator who is to order a full sync read that autosync is off, ordered an update, and was refused.
#[test]
fn a_group_that_needs_a_full_sync_says_so_and_not_what_it_waits_for() {
    let mut world = ScenarioWorld::new(options(Mode::Async, Policy::Degrade));
    world.pass(2 * SECOND);
    let settings = Settings { autosync: true, ..world.cluster.ledger.settings(GROUP) };
    for settings in [Settings { mode: Mode::Logging, ..settings }, Settings { autosync: false, ..settings }] {
        assert!(matches!(world.order(0, Command::Set(settings)), CommandResult::Done(_)));
        world.pass(SECOND);
    }
    let reason = world.figures(0).reason;
    assert!(reason.contains("full") && !reason.contains("autosync"), "{reason}");
    // Nor does it begin by itself what would not do.
    assert!(matches!(world.order(0, Command::Set(settings)), CommandResult::Done(_)));
    world.pass(SECOND);
    assert_eq!(state(&world), Some(State::Logging));
}

/// A peer that is connected and confirms nothing kept writers waiting for ever, under the policy that holds them for a while.
#[test]
fn a_peer_that_confirms_nothing_holds_writers_no_longer_than_the_window() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Hold(Duration::from_secs(3))));
    world.cluster[1].storage.trouble.stalled_until = FOR_EVER;
    let id = world.write(0, 0, 4 * KIB);
    world.pass(3 * SECOND);
    assert_eq!(world.reply(id), None, "the window still runs");
    world.pass(3 * SECOND);
    assert_eq!(world.reply(id), Some(true));
}

/// The operator was told that the queue was full, and made it larger, which helped nobody: it was the memory.
#[test]
fn a_queue_that_ended_for_want_of_memory_says_so() {
    let tight = SimOptions { memory_bytes: 512 * KIB, queue_bytes: 8 << 20, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(tight);
    world.cut([false; 2]);
    world.write_done(0, 0, 4 * KIB);
    world.until("the link is down", |world| state(world) == Some(State::Queuing));
    for n in 0..64 {
        world.write((n % 2) as u16, n / 2 * 32 * KIB, 32 * KIB);
    }
    world.until("it gave up the queue", |world| state(world) == Some(State::Logging));
    let reason = world.figures(0).reason;
    assert!(reason.contains("memory is used up"), "{reason}");
}

/// A sync stood still for want of space at the peer when the link went: its primary went on as if the peer had all that was written
/// before the queue.
#[test]
fn a_sync_that_stands_still_does_not_become_a_queue() {
    let mut world = syncs_in_stream(Mode::Async);
    world.cluster[1].storage.trouble.full_until = ALWAYS;
    world.until("it stands still", |world| matches!(state(world), Some(State::Paused(_))));
    world.cut([false; 2]);
    world.until("the link is down", |world| !matches!(state(world), Some(State::Paused(_))));
    assert_eq!(state(&world), Some(State::Logging), "{}", world.figures(0).reason);
}

// proves: P8, rule 22
/// The room that a write takes in the queue did not count before it stood there: the queue grew past what the operator allows.
#[test]
fn a_queue_holds_no_more_than_it_may() {
    for (queue_bytes, queue_items) in [(300 * KIB, 1000), (8 << 20, 10)] {
        let slow = SimOptions { bytes_per_s: 20_000, wait_limit_ms: 60_000, ..options(Mode::Async, Policy::Degrade) };
        let mut world = ScenarioWorld::in_peace(SimOptions { queue_bytes, queue_items, ..slow });
        world.drain();
        for n in 0..32 {
            world.write((n % 2) as u16, n / 2 * 32 * KIB, 32 * KIB);
            world.pass(20 * MILLISECOND);
        }
        let queue = world.figures(0).queue;
        let almost = queue.peaks.bytes + 40 * KIB > queue_bytes || queue.peaks.items + 4 > queue_items;
        assert!(almost && queue.peaks.bytes <= queue_bytes && queue.peaks.items <= queue_items, "{queue:?}");
    }
}

/// A demotion right after a sync did not wait for the flush after which bits are cleared: what the peer has was sent once more.
#[test]
fn a_demotion_after_a_sync_leaves_no_bit() {
    let mut world = syncs_in_stream(Mode::Async);
    world.until("in step", |world| state(world) == Some(State::Replicating));
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    assert_eq!(world.figures(0).peer.dirty_bytes, 0);
}

/// What a failed flush lost was on record, and a stop waited for that until its time was over.
#[test]
fn a_node_whose_flush_failed_stops_as_soon_as_that_is_on_record() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..24 {
        world.write_done((n % 2) as u16, n * 32 * KIB, 16 * KIB);
    }
    world.pass(200 * MILLISECOND);
    world.cluster[0].storage.trouble.fail_next_flush = true;
    let flush = world.flush(0);
    assert!(!world.answer(flush).0, "it is no flush");
    world.pass(SECOND);
    let before = world.now();
    world.stop(0);
    assert!(world.now() - before < SECOND, "{} ns", world.now() - before);
}

/// A record without payload names no place of one in its batch (docs/book/format.md).
#[test]
fn zeroes_have_no_payload_in_a_batch() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..4 {
        let (write, zeroes) = (world.write(0, n * 64 * KIB, 4 * KIB), world.zero(1, n * 64 * KIB, 64 * KIB, false));
        assert!(world.answer(write).0 && world.answer(zeroes).0);
    }
    world.drain();
    let ring = world.cluster[1].disk(Store::Journal(GROUP)).view();
    let batches = ring
        .chunks_exact(journal::INDEX_BYTES)
        .filter_map(|block| journal::JournalIndex::decode(journal::BatchOf::Journal, block));
    let zeroes = batches.flat_map(|batch| batch.entries).filter(|entry| entry.kind == journal::RecordKind::Zero);
    let offsets: Vec<u32> = zeroes.map(|entry| entry.payload_at).collect();
    assert!(offsets.len() >= 4 && offsets.iter().all(|offset| *offset == 0), "{offsets:?}");
}

// proves: rule 17
/// This node's disk stood still in the middle of a sync, and the peer was given up for showing no progress.
#[test]
fn a_peer_that_waits_for_this_nodes_disk_is_not_given_up() {
    let mut world = syncs_in_stream(Mode::Async);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 150 * SECOND;
    world.pass(140 * SECOND);
    assert_eq!((state(&world), world.coverage(0, CoveragePoint::SyncStalled)), (Some(State::Syncing), 0));
    world.drain();
}

// proves: rule 22
/// A secondary whose primary went on alone held all the memory of the window that had grown, for as long as that lasted.
#[test]
fn a_window_is_small_again_when_the_stream_has_ended() {
    let large = SimOptions {
        window_bytes: 4 << 20,
        queue_bytes: 8 << 20,
        journal_bytes: 16 << 20,
        ..options(Mode::Async, Policy::Degrade)
    };
    let mut world = ScenarioWorld::in_peace(large);
    world.pass(5 * SECOND);
    let lease = |world: &ScenarioWorld| world.cluster[1].engine().expect("up").status()[0].memory_bytes;
    let least = lease(&world);
    world.cluster[1].storage.trouble.slow_until = world.now() + 3 * SECOND;
    for n in 0..60u64 {
        world.write((n % 2) as u16, n / 2 * 32 * KIB, 32 * KIB);
    }
    world.until("it grew", |world| lease(world) > least);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.until("all of it is applied", |world| world.now() > 0 && lease(world) <= least);
}

/// A sync began to a peer whose half has failed, when autosync was set again.
#[test]
fn nothing_begins_by_itself_to_a_peer_that_has_failed() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    let settings = Settings { autosync: true, ..world.cluster.ledger.settings(GROUP) };
    assert!(matches!(world.order(0, Command::Set(Settings { autosync: false, ..settings })), CommandResult::Done(_)));
    world.cluster[1].storage.trouble.apply_errors_until = ALWAYS;
    world.write_done(0, 0, 8 * KIB);
    let failed = |world: &ScenarioWorld| world.glance(1, GROUP).map(|glance| matches!(glance.state, State::Failed(_)));
    world.until("it has failed", |world| failed(world) == Some(true));
    world.pass(SECOND);
    assert!(matches!(world.order(0, Command::Set(settings)), CommandResult::Done(_)));
    world.pass(SECOND);
    assert_eq!(state(&world), Some(State::Logging), "{}", world.figures(0).reason);
    assert_eq!(
        world.coverage(0, CoveragePoint::UpdateSyncBegan) + world.coverage(0, CoveragePoint::SyncNothingDirty),
        0
    );
}

// proves: rule 19
/// The secondary showed no recovery point, or that of an empty volume.
#[test]
fn both_nodes_show_the_same_recovery_point() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..8 {
        world.write_done(0, n * 32 * KIB, 32 * KIB);
    }
    world.drain();
    world.pass(10 * SECOND);
    let [near, far] = [0, 1].map(|node| world.figures(node).peer.recovery_point.map(|(seq, _)| seq));
    assert!(near.is_some() && near == far, "{near:?} and {far:?}");
}
