//! A queue whose log a start goes on from.
// proves: rule 10

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Degrade, Mode, Policy, State};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{MILLISECOND, SECOND, ScenarioWorld, may_inject, options, serves};

const PRIMARY: usize = 0;

/// A quarter of a MiB in memory, and a log of this size.
fn logged(queue_disk_bytes: u64) -> SimOptions {
    SimOptions {
        queue_bytes: 256 * KIB,
        queue_disk_bytes,
        queue_durable: true,
        wait_limit_ms: 10_000,
        degrade: Degrade::Queue,
        bytes_per_s: 4_000_000,
        ..options(Mode::Async, Policy::Degrade)
    }
}

fn opened(world: &ScenarioWorld) -> u64 {
    world.coverage(PRIMARY, CoveragePoint::QueueLogOpened)
}

fn in_step(options: SimOptions) -> ScenarioWorld {
    may_inject();
    let mut world = ScenarioWorld::in_peace(options);
    world.write_done(0, 0, 8 * KIB);
    world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating);
    world.until("the log is open", |world| opened(world) > 0);
    world
}

/// Writers take turns, each after the one before: so many KiB in writes of 12 KiB. The longest wait.
fn writes(world: &mut ScenarioWorld, kib: u64) -> u64 {
    (0..kib / 12).map(|n| world.write_done((n % 2) as u16, n * 20 * KIB % (960 * KIB), 12 * KIB)).max().unwrap_or(0)
}

/// The path is back, and all that was queued arrives in its order.
fn drains_in_order(world: &mut ScenarioWorld, resynced_before: u64) {
    world.restore_path();
    world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating && world.in_step());
    world.drain();
    let figures = world.figures(PRIMARY);
    assert_eq!(figures.resynced_bytes, resynced_before, "no resync");
    assert_eq!((figures.queue.disk_bytes, figures.queue.items), (0, 0));
}

/// What is logged leaves memory, and comes back from the log: ten times as much as memory holds.
#[test]
fn what_has_no_room_in_memory_is_sent_from_the_log() {
    let mut world = in_step(logged(8 * MIB));
    let resynced = world.figures(PRIMARY).resynced_bytes;
    world.cut([false; 2]);
    let longest = writes(&mut world, 2500);
    assert!(longest < 100 * MILLISECOND, "{longest} ns");
    let figures = world.figures(PRIMARY);
    assert!(figures.queue.bytes <= 256 * KIB && figures.queue.disk_bytes > 2 * MIB, "{:?}", figures.queue);
    world.pass(8 * SECOND);
    assert_eq!(world.figures(PRIMARY).state, State::Queuing);
    drains_in_order(&mut world, resynced);
    assert!(world.coverage(PRIMARY, CoveragePoint::QueueFetched) > 0);
}

/// The log goes round its ring many times, and lets go of what the peer has and both nodes have flushed.
#[test]
fn the_log_goes_round() {
    let mut world = in_step(logged(MIB));
    let resynced = world.figures(PRIMARY).resynced_bytes;
    (0..10).for_each(|_| _ = writes(&mut world, 600));
    drains_in_order(&mut world, resynced);
    assert_eq!(opened(&world), 1, "it stayed open");
}

/// A log that cannot be written closes: nobody waits for it for good, and the queue keeps its order.
#[test]
fn a_log_that_cannot_be_written_closes_and_opens_again() {
    let mut world = in_step(logged(4 * MIB));
    let resynced = world.figures(PRIMARY).resynced_bytes;
    world.cluster[PRIMARY].storage.trouble.queue_full_until = ALWAYS;
    writes(&mut world, 60);
    assert!(world.coverage(PRIMARY, CoveragePoint::QueueLogClosed) > 0);
    world.cluster[PRIMARY].storage.trouble.queue_full_until = 0;
    writes(&mut world, 60);
    world.until("it is open again", |world| opened(world) > 1);
    drains_in_order(&mut world, resynced);
}

/// How the primary goes down.
#[derive(Clone, Copy, Debug)]
enum Down {
    Kill,
    PowerLoss,
}

const BOTH: [Down; 2] = [Down::Kill, Down::PowerLoss];

fn goes_down(world: &mut ScenarioWorld, down: Down) {
    world.crash(PRIMARY, matches!(down, Down::PowerLoss), SECOND);
    world.until("it serves", serves);
}

/// The link is down, the queue is full of writes, and the primary is killed or loses its power: the queue goes on, and the peer gets it in
/// its order.
#[test]
fn a_primary_that_goes_down_goes_on_in_order() {
    for down in BOTH {
        let mut world = in_step(logged(8 * MIB));
        world.cut([false; 2]);
        writes(&mut world, 1200);
        goes_down(&mut world, down);
        assert_eq!(world.figures(PRIMARY).state, State::Queuing, "{down:?}");
        writes(&mut world, 60);
        drains_in_order(&mut world, 0);
        assert_eq!(world.coverage(PRIMARY, CoveragePoint::RunTakenUp), 1);
    }
}
