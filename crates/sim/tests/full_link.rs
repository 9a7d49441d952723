//! Writers fill the link, and a sync has to come to its end beside them: the recovery point goes on.

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy, State};
use engine::wire::HEADER_BYTES;
use engine::{Command, CommandResult};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

const BYTES_PER_S: u64 = 1_000_000;
const WRITE_BYTES: u64 = 16 * KIB;

fn slow_and_far(queue_bytes: u64) -> SimOptions {
    SimOptions {
        volumes: 1,
        volume_bytes: 16 * MIB,
        queue_bytes,
        journal_bytes: 64 * MIB,
        window_bytes: 16 * MIB,
        history_bytes: 128 * MIB,
        memory_bytes: 256 * MIB,
        activity: engine::ActivityConfig { extent_bytes: MIB, extents: 64 },
        delay_ns: 20 * MILLISECOND,
        bytes_per_s: BYTES_PER_S,
        wait_limit_ms: 10_000,
        ..options(Mode::Async, Policy::Degrade)
    }
}

/// What became of a sync beside writers who write so many thousandths of what the link carries, for a minute.
#[derive(Debug)]
struct SyncBesideWriters {
    ended_after_ms: Option<u64>,
    longest_without_new_point_ms: u64,
    snapshots: u64,
}

fn sync_beside(load: u64, queue_bytes: u64) -> SyncBesideWriters {
    let mut world = ScenarioWorld::in_peace(slow_and_far(queue_bytes));
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    // More than goes in the stream at once: a snapshot comes first.
    for n in 0..32 {
        world.write(0, n * 32 * KIB, 32 * KIB);
    }
    world.pass(SECOND);
    world.command(0, GROUP, Command::Sync { full: false });
    world.until("it goes in the stream", |world| world.figures(0).sync.is_some_and(|sync| sync.snapshot.is_none()));
    // A burst of a second and a half stands in its queue.
    for n in 0..96 {
        world.write(0, 8 * MIB + n * WRITE_BYTES, WRITE_BYTES);
    }
    let every = (WRITE_BYTES + HEADER_BYTES as u64) * 1_000_000_000 / BYTES_PER_S * 1000 / load;
    let (began, mut point, mut point_at) = (world.now(), None, world.now());
    let (mut longest, mut ended) = (0, None);
    let mut n = 0;
    while world.now() < began + 60 * SECOND {
        world.write(0, n % 256 * WRITE_BYTES, WRITE_BYTES);
        n += 1;
        world.pass(every);
        let figures = world.figures(0);
        let now_point = figures.peer.recovery_point.map(|(seq, _)| seq);
        if now_point > point {
            (point, point_at) = (now_point, world.now());
        }
        longest = longest.max(world.now() - point_at);
        if ended.is_none() && figures.state == State::Replicating {
            ended = Some((world.now() - began) / MILLISECOND);
        }
    }
    SyncBesideWriters {
        ended_after_ms: ended,
        longest_without_new_point_ms: longest / MILLISECOND,
        snapshots: world.coverage(0, CoveragePoint::SnapshotBegan),
    }
}

// proves: P5, rule 8
/// With room in the queue the sync takes its share beside them; where they fill half of a small queue for good, it goes on by snapshots.
#[test]
fn the_recovery_point_goes_on_when_writers_fill_the_link() {
    for queue_bytes in [3 * MIB, 8 * MIB, 64 * MIB] {
        for load in [500, 950, 980, 1000, 1020, 1200] {
            let beside = sync_beside(load, queue_bytes);
            println!("{load} thousandths, queue of {} MiB: {beside:?}", queue_bytes / MIB);
            let small = queue_bytes == 3 * MIB;
            // Far beyond the link a queue of some seconds fills as well, and snapshots take over.
            let most = if small || load > 1020 { 15_000 } else { 3_000 };
            assert!(beside.longest_without_new_point_ms <= most, "{load}, {queue_bytes}: {beside:?}");
            assert!(beside.ended_after_ms.is_some_and(|after| after <= 5_000), "{load}: {beside:?}");
            assert!(!small || load <= 1020 || beside.snapshots > 2, "{beside:?}");
        }
    }
}
