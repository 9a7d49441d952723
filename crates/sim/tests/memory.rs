//! The node's memory is used up: writers wait as they do for a full queue, the policy acts, and a group that has what it
//! needs is not starved by one whose peer stands still.

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, GroupId};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

/// Room for a window and half as much again, where the queue alone would have a MiB.
fn tight() -> SimOptions {
    SimOptions { memory_bytes: 384 * KIB, ..options(Mode::Async, Policy::Degrade) }
}

// proves: P8, rule 22
#[test]
fn with_the_link_down_used_up_memory_is_a_full_queue() {
    let mut world = ScenarioWorld::in_peace(tight());
    world.crash(1, false, FOR_EVER);
    world.pass(100 * MILLISECOND);
    for n in 0..16u64 {
        let id = world.write((n % 2) as u16, n / 2 * 32 * KIB, 32 * KIB);
        let (done, after) = world.answer(id);
        assert!(done && after <= 50 * MILLISECOND, "write {n} after {after} ns");
    }
    assert_eq!(world.glance(0, GROUP).map(|g| g.state), Some(State::Logging));
    assert!(world.coverage(0, CoveragePoint::MemoryShort) > 0);
    world.boot(1);
    world.drain();
}

// proves: P8, rule 22
#[test]
fn a_stalled_peer_holds_writers_no_longer_than_wait_limit_and_memory_comes_back() {
    let mut world = ScenarioWorld::in_peace(tight());
    world.cluster[1].storage.trouble.stalled_until = world.now() + 20 * SECOND;
    let mut longest = 0;
    for n in 0..60u64 {
        let id = world.write((n % 2) as u16, n / 2 * 32 * KIB, 32 * KIB);
        let (done, after) = world.answer(id);
        assert!(done);
        longest = longest.max(after);
    }
    assert!((900 * MILLISECOND..1200 * MILLISECOND).contains(&longest), "{longest} ns");
    assert_eq!(world.coverage(0, CoveragePoint::WaitLimitTripped), 1);
    world.drain();
    world.pass(5 * SECOND);
    let engine = world.cluster[0].engine().expect("up");
    assert_eq!(engine.shared().memory_bytes, 0, "nothing is held at rest on the primary");
}

// proves: rule 22
#[test]
fn a_window_grows_with_its_use_and_is_given_back() {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { window_bytes: 4 << 20, ..options(Mode::Async, Policy::Degrade) });
    let lease = |world: &ScenarioWorld| world.cluster[1].engine().expect("up").shared().memory_bytes;
    world.pass(5 * SECOND);
    let least = lease(&world);
    assert_eq!(least, engine::limits::MEMORY_GROUP_BYTES);
    // Its disk takes nothing: what is sent is held, up to the window.
    world.cluster[1].storage.trouble.slow_until = world.now() + 3 * SECOND;
    for n in 0..60u64 {
        world.write((n % 2) as u16, n / 2 * 32 * KIB, 32 * KIB);
    }
    world.until("it grew", |world| lease(world) > least);
    world.drain();
    world.pass(5 * SECOND);
    assert_eq!(lease(&world), least, "an idle primary's window is small again");
}

// proves: P8, rule 22
#[test]
fn a_group_whose_peer_stands_still_does_not_starve_the_others() {
    // Groups 0 and 2 have their primary on node 0, group 1 on node 1.
    let tight = SimOptions {
        pairs: vec![[0, 1]; 3],
        memory_bytes: 3 * 256 * KIB + 512 * KIB,
        ..options(Mode::Async, Policy::Degrade)
    };
    let mut world = ScenarioWorld::in_peace(tight);
    let other = GroupId(2);
    let id = world.command(0, other, Command::Sync { full: true });
    world.until("answered", |world| world.cluster.ledger.result(id).is_some());
    world.until("in step", |world| world.cluster.in_step(other));
    // The link is down: both groups fill their queues.
    world.crash(1, false, FOR_EVER);
    world.pass(100 * MILLISECOND);
    let held = |world: &ScenarioWorld, group: u32| {
        world.cluster[0].engine().expect("up").status()[group as usize].memory_bytes
    };
    for n in 0..6u64 {
        let id = world.write(0, n * 64 * KIB, 64 * KIB);
        world.answer(id);
    }
    let hog = held(&world, 0);
    assert!(hog > 256 * KIB, "it borrowed: {hog}");
    let id = world.write_to(other, 0, 0, 128 * KIB);
    let (done, after) = world.answer(id);
    assert!(done && after < 50 * MILLISECOND);
    assert_eq!(world.glance(0, other).map(|g| g.state), Some(State::Queuing), "its own shelf was free");
    assert!(held(&world, 2) >= 128 * KIB);
}

/// A link of 8 MB/s, which is measured, so that parts are long; all that is dirty, 64 MiB from the first byte on, goes in the stream.
fn long_parts(memory_bytes: u64, delay_ns: u64) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(SimOptions {
        volumes: 1,
        volume_bytes: 96 * MIB,
        queue_bytes: 64 * MIB,
        journal_bytes: 64 * MIB,
        window_bytes: 4 * MIB,
        history_bytes: 128 * MIB,
        activity: engine::ActivityConfig { extent_bytes: MIB, extents: 64 },
        memory_bytes,
        delay_ns,
        bytes_per_s: 8_000_000,
        wait_limit_ms: 60_000,
        ..options(Mode::Async, Policy::Degrade)
    });
    world.pass(5 * SECOND);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..512 {
        let id = world.write(0, n * 128 * KIB, 128 * KIB);
        world.answer(id);
    }
    world.pass(10 * SECOND);
    // What it was writing when it stopped is compared, in the stream, and so everything is sent there.
    world.crash(0, true, 100 * MILLISECOND);
    world.pass(5 * SECOND);
    world.command(0, GROUP, Command::Sync { full: false });
    world.until("it goes in the stream, in long parts", |world| sent_by_sync(world) > 16 * MIB);
    world
}

fn sent_by_sync(world: &ScenarioWorld) -> u64 {
    world.figures(0).sync.filter(|sync| sync.snapshot.is_none()).map_or(0, |sync| sync.sent_bytes)
}

fn watched(world: &mut ScenarioWorld, ns: u64) {
    for _ in 0..ns / (5 * MILLISECOND) {
        world.pass(5 * MILLISECOND);
        world.look_around();
    }
}

// proves: rule 22
/// What a sync in the stream has sent stands with a peer whose disk takes nothing, and is held here until it is confirmed. The next
/// region is not read before memory has room for it (rule 22), and when it has, the sync goes on.
#[test]
fn a_sync_reads_no_region_that_memory_has_no_room_for() {
    // Two long parts, and no third.
    let mut world = long_parts(2 * MIB + 256 * KIB, MILLISECOND);
    world.cluster[1].storage.trouble.slow_until = world.now() + 10 * SECOND;
    watched(&mut world, 10 * SECOND);
    world.until("in step", |world| world.in_step());
    world.verdict().as_ref().expect("nobody objects");
}

// proves: P5
/// There is no room for a long part beside what writers have on its way, however long they write, or they alone have more than half of
/// memory on its way: then the parts are shorter.
#[test]
fn a_sync_goes_on_beside_writers_where_memory_has_no_room_for_a_long_part() {
    for delay_ms in [25, 70] {
        let mut world = long_parts(MIB + 128 * KIB, delay_ms * MILLISECOND);
        for n in 0.. {
            assert!(n < 60_000, "{delay_ms} ms: {:?}", world.figures(0).sync);
            world.write(0, 64 * MIB + n % 256 * 8 * KIB, 4 * KIB);
            world.pass(MILLISECOND);
            if world.figures(0).state == State::Replicating {
                break;
            }
        }
        assert_eq!(world.coverage(0, CoveragePoint::SyncTurnedToSnapshots), 0, "{delay_ms} ms");
    }
}

/// A sync has all of memory's share for it where nobody writes, and a large write that comes then finds room beside it all the same: it
/// does not turn the sync to snapshots.
#[test]
fn a_large_write_finds_room_beside_a_sync_that_was_alone() {
    let mut world = long_parts(MIB + 128 * KIB, 25 * MILLISECOND);
    for n in 0.. {
        assert!(n < 2_000, "{:?}", world.figures(0).sync);
        world.write(0, 64 * MIB + n % 64 * 256 * KIB, 256 * KIB);
        world.pass(250 * MILLISECOND);
        if world.figures(0).state == State::Replicating {
            break;
        }
    }
    assert_eq!(world.coverage(0, CoveragePoint::SyncTurnedToSnapshots), 0);
}

// proves: rule 22
/// Reads of a sync wait for writes to a slow disk in their ranges, and live writes take what room there is meanwhile, in memory or in
/// the queue: in that room the reads have their part, for when it is their turn.
#[test]
fn reads_that_wait_for_their_range_count() {
    const QUEUE: u64 = 8 * MIB;
    // A group's part of 2.5 MiB is less than its queue, of 64 MiB it is more.
    for memory_bytes in [2560 * KIB, 64 * MIB] {
        let mut world = ScenarioWorld::in_peace(SimOptions {
            volumes: 1,
            volume_bytes: 32 * MIB,
            queue_bytes: QUEUE,
            journal_bytes: 8 * MIB,
            window_bytes: 4 * MIB,
            history_bytes: 64 * MIB,
            // No write waits for the activity log.
            activity: engine::ActivityConfig { extent_bytes: 32 * MIB, extents: 4 },
            memory_bytes,
            delay_ns: 10 * MILLISECOND,
            bytes_per_s: 20_000_000,
            wait_limit_ms: 60_000,
            ..options(Mode::Async, Policy::Degrade)
        });
        assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
        // Two long parts, little enough for the stream on a link that was measured a moment ago.
        for n in 0..16 {
            world.write_done(0, n * 128 * KIB, 128 * KIB);
        }
        world.command(0, GROUP, Command::Sync { full: false });
        world.pass(10 * MILLISECOND);
        // The sync is announced, and the peer's answer on its way. Clients write into both parts, to a disk that stands still.
        world.cluster[0].storage.trouble.stalled_until = world.now() + SECOND;
        (0..2).for_each(|n| _ = world.write(0, n * MIB + 4 * KIB, 4 * KIB));
        world.until("a read waits", |world| world.coverage(0, CoveragePoint::ResyncWaitedForWrite) > 0);
        // Live writes take all the room that there is, none has to wait for it, and the peer confirms nothing.
        world.cluster[1].storage.trouble.stalled_until = world.now() + 3 * SECOND;
        let shelf = engine::limits::MEMORY_GROUP_BYTES;
        let room = QUEUE.min(shelf + (memory_bytes - shelf) / 5 * 4);
        let held = |world: &ScenarioWorld| world.cluster[0].engine().expect("up").shared().memory_bytes;
        let mut taken = 0;
        let full =
            |world: &ScenarioWorld| if memory_bytes > QUEUE { world.figures(0).queue.bytes } else { held(world) };
        while full(&world) + 132 * KIB <= room && taken < QUEUE {
            world.write(0, 8 * MIB + taken, 128 * KIB);
            taken += 128 * KIB;
        }
        assert!(taken > 0, "the reads leave room for some");
        // The disk goes on, and both parts are read: the checkers look at what is held.
        watched(&mut world, 5 * SECOND);
        world.until("in step", |world| world.in_step());
        world.verdict().as_ref().expect("nobody objects");
    }
}

// proves: rule 22
/// With all that waited to be applied, or to land, and what was under way when its volume failed, or its journal.
#[test]
fn a_group_that_failed_gives_its_memory_back() {
    for journal in [false, true] {
        let large = SimOptions {
            window_bytes: 4 << 20,
            queue_bytes: 8 << 20,
            journal_bytes: 8 << 20,
            ..options(Mode::Async, Policy::Degrade)
        };
        let mut world = ScenarioWorld::in_peace(large);
        world.pass(5 * SECOND);
        let held = |world: &ScenarioWorld| world.cluster[1].engine().expect("up").shared().memory_bytes;
        let least = held(&world);
        let (now, far) = (world.now(), &mut world.cluster[1].storage.trouble);
        (far.full_until, far.slow_until) = (ALWAYS, now + 10 * SECOND);
        let write = |world: &mut ScenarioWorld, n: u64| {
            world.write((n % 2) as u16, n % 32 * 32 * KIB, 32 * KIB);
            world.pass(5 * MILLISECOND);
        };
        (0..60).for_each(|n| write(&mut world, n));
        assert!(held(&world) > 2 * least, "{} of {least}", held(&world));
        let far = &mut world.cluster[1].storage.trouble;
        if journal {
            far.state_full_until = ALWAYS;
        } else {
            (far.full_until, far.apply_errors_until) = (0, ALWAYS);
        }
        (60..70).for_each(|n| write(&mut world, n));
        let failed =
            |world: &ScenarioWorld| world.glance(1, GROUP).is_some_and(|g| matches!(g.state, State::Failed(_)));
        world.until("it fails", failed);
        world.pass(10 * SECOND);
        assert!(held(&world) <= least, "journal: {journal}: {} of {least}", held(&world));
    }
}
