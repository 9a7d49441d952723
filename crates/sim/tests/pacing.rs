//! Writers are slowed down bit by bit before the queue is full, and no policy counts what that costs them.
// proves: rule 10

use std::collections::BTreeMap;
use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy, State};
use engine::{Fallback, QueuePace};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

const PRIMARY: usize = 0;
const SECONDARY: usize = 1;
const BLOCK: u64 = 4 * KIB;
const RATE: u64 = 400_000;
/// A ladder that steps down when anyone waits for 1.5 s.
const BRISK: Fallback = Fallback {
    mode: Mode::Superasync,
    latency: Duration::from_secs(1),
    after: Duration::from_millis(500),
    lag: None,
    return_after: Duration::from_secs(5),
};

fn paced(pace: Option<QueuePace>, queue_disk_bytes: u64) -> ScenarioWorld {
    begins(SimOptions { pace, queue_disk_bytes, ..options(Mode::Async, Policy::Degrade) })
}

fn begins(options: SimOptions) -> ScenarioWorld {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { queue_bytes: MIB, bytes_per_s: RATE, wait_limit_ms: 2000, ..options });
    world.write_done(0, 0, 8 * KIB);
    world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating);
    // The rate of a link is known once it was busy.
    (0..150).for_each(|n| _ = world.write_done(0, n * BLOCK % (512 * KIB), BLOCK));
    world.drain();
    world
}

/// Writers one after the other, each as soon as the one before is answered: how full the queue was, in tenths, and how long each took.
fn writes(world: &mut ScenarioWorld, count: u64) -> BTreeMap<u64, Vec<u64>> {
    let mut took = BTreeMap::<u64, Vec<u64>>::new();
    for n in 0..count {
        let tenth = world.figures(PRIMARY).queue.bytes * 10 / MIB;
        let waited = world.write_done((n % 2) as u16, n / 2 * BLOCK % (512 * KIB), BLOCK);
        took.entry(tenth).or_default().push(waited);
    }
    took
}

fn p99(took: &[u64]) -> u64 {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() * 99 / 100]
}

/// From one tenth of the queue's fill to the next nobody's wait more than doubles, also from the last one that is not slowed down to the first
/// one that is, and the queue is never full.
#[test]
fn no_tenth_of_the_queue_slows_writers_to_less_than_half() {
    for (from, to, tenths) in [(0, 90, 6), (50, 90, 8)] {
        let mut world = paced(QueuePace::new(from, to), 0);
        let took = writes(&mut world, 3000);
        let steps: Vec<_> =
            took.iter().filter(|(_, took)| took.len() >= 10).map(|(tenth, took)| (*tenth, p99(took))).collect();
        assert!(steps.len() >= tenths, "{steps:?}");
        for pair in steps.windows(2) {
            assert!(pair[1].1 <= 2 * pair[0].1 + MILLISECOND / 5, "{from} to {to}: {steps:?}");
        }
        let queue = world.figures(PRIMARY).queue;
        assert!(queue.peaks.bytes < MIB - MIB / 20, "{queue:?}");
        assert_eq!(world.figures(PRIMARY).state, State::Replicating);
        world.drain();
    }
}

/// Without it the same writers go at their own pace until the queue is full.
#[test]
fn without_it_the_queue_becomes_full() {
    let mut world = paced(None, 0);
    writes(&mut world, 3000);
    let queue = world.figures(PRIMARY).queue;
    assert!(queue.peaks.bytes > MIB - MIB / 50, "{queue:?}");
    assert_eq!(world.coverage(PRIMARY, CoveragePoint::WriterPaced), 0);
}

/// Many writers wait because they are slowed down, for longer than `wait_limit` together: the order is kept.
#[test]
fn what_slows_writers_down_is_not_counted_against_the_peer() {
    for queue_disk_bytes in [0, 8 * MIB] {
        let mut world = paced(QueuePace::new(10, 50), queue_disk_bytes);
        let resynced = world.figures(PRIMARY).resynced_bytes;
        let from = world.now();
        for round in 0..12 {
            let asked: Vec<_> = (0..120)
                .map(|n| world.write((n % 2) as u16, (round + n / 2) * 8 * KIB % (512 * KIB), 8 * KIB))
                .collect();
            asked.into_iter().for_each(|id| assert!(world.answer(id).0));
        }
        assert!(world.now() - from > 10 * SECOND, "they were slowed down");
        assert!(world.coverage(PRIMARY, CoveragePoint::WriterPaced) > 0);
        world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating && world.in_step());
        assert_eq!(world.figures(PRIMARY).resynced_bytes, resynced, "no resync");
    }
}

/// Whatever the disk queue, or its log, keeps free for itself, and memory for what comes back from it: the second mark is reached before that.
#[test]
fn the_second_mark_comes_before_the_disk_queue_is_full() {
    // What the peer has applied leaves a log some 200 ms later, and in a log each batch has its index.
    for (queue_durable, queue_disk_bytes, to) in [(false, 2 * MIB, 95), (true, 4 * MIB, 90)] {
        let pace = QueuePace::new(50, to);
        let mut world =
            begins(SimOptions { pace, queue_disk_bytes, queue_durable, ..options(Mode::Async, Policy::Degrade) });
        let mut waiting = std::collections::VecDeque::new();
        let (mut most, mut longest) = (0, Duration::ZERO);
        for n in 0..3000 {
            waiting.push_back(world.write((n % 2) as u16, n / 2 * 8 * KIB % (512 * KIB), 8 * KIB));
            if waiting.len() > 4 {
                assert!(waiting.pop_front().is_some_and(|id| world.answer(id).0));
            }
            let queue = world.figures(PRIMARY).queue;
            most = most.max(queue.bytes + queue.disk_bytes);
            longest = longest.max(queue.held_up);
        }
        assert!(most > 1_900_000, "it was nearly full: {most}");
        // Where the rate was measured, against the batches of the disk queue, makes it 0 to 148 ms, with each write in a frame of its own too.
        assert!(longest < Duration::from_millis(150), "hardly anybody was held up by a full queue: {longest:?}");
        assert!(world.coverage(PRIMARY, CoveragePoint::WriterPaced) > 0);
        assert_eq!(world.coverage(PRIMARY, CoveragePoint::QueueLogOpened) > 0, queue_durable);
    }
}

/// They waited for long because they were slowed down, and then the queue is made smaller: their time without room begins there.
#[test]
fn the_time_in_which_they_were_slowed_down_is_not_counted_once_room_lacks() {
    for fallback in [None, Some(BRISK)] {
        let mut world = paced(QueuePace::new(10, 50), 0);
        world.set(GROUP, |settings| (settings.wait_limit, settings.fallback) = (Duration::from_secs(4), fallback));
        let resynced = world.figures(PRIMARY).resynced_bytes;
        writes(&mut world, 400);
        let waiting: Vec<_> =
            (0..900).map(|n| world.write((n % 2) as u16, n / 2 * BLOCK % (512 * KIB), BLOCK)).collect();
        world.pass(5 * SECOND);
        assert!(world.figures(PRIMARY).queue.blocked_writers > 200, "slowed down for longer than wait_limit");
        assert_eq!(world.figures(PRIMARY).acts_as, Some(Mode::Async), "and that is no slow line");
        world.set(GROUP, |settings| settings.queue_bytes = 384 * KIB);
        assert!(waiting.into_iter().all(|id| world.answer(id).0));
        world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating && world.in_step());
        assert_eq!(world.figures(PRIMARY).resynced_bytes, resynced, "no resync");
        assert_eq!(world.coverage(PRIMARY, CoveragePoint::WaitLimitTripped), 0);
    }
}

/// The cable goes while writers are slowed down: nobody has a link any more whose rate they could keep to, and the queue takes them.
#[test]
fn a_lost_link_ends_the_slowing_down() {
    let mut world = paced(QueuePace::new(10, 50), 8 * MIB);
    writes(&mut world, 1200);
    assert!(world.figures(PRIMARY).queue.paced_to.is_some());
    let resynced = world.figures(PRIMARY).resynced_bytes;
    let waiting: Vec<_> = (0..40).map(|n| world.write((n % 2) as u16, n / 2 * 8 * KIB, 8 * KIB)).collect();
    world.cut([false; 2]);
    world.until("the link is down", |world| world.figures(PRIMARY).state != State::Replicating);
    assert!(waiting.into_iter().all(|id| world.answer(id).0));
    world.pass(SECOND);
    let longest = writes(&mut world, 300).into_values().flatten().max().unwrap_or(0);
    assert!(longest < 100 * MILLISECOND, "{longest} ns");
    assert_eq!(world.figures(PRIMARY).queue.paced_to, None);
    assert_eq!(world.figures(PRIMARY).state, State::Queuing, "the order is kept, whoever waited when the link went");
    world.restore_path();
    world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating && world.in_step());
    assert_eq!(world.figures(PRIMARY).resynced_bytes, resynced, "no resync");
}

/// The peer's daemon is killed while writers wait because they are slowed down: the queue has room, and keeps its order.
#[test]
fn who_is_slowed_down_when_the_link_ends_costs_no_order() {
    let mut world = paced(QueuePace::new(10, 50), 8 * MIB);
    writes(&mut world, 1200);
    let resynced = world.figures(PRIMARY).resynced_bytes;
    let waiting: Vec<_> = (0..200).map(|n| world.write((n % 2) as u16, n / 2 * 4 * KIB, 4 * KIB)).collect();
    world.crash(SECONDARY, false, 5 * SECOND);
    world.until("the link is down", |world| world.figures(PRIMARY).state != State::Replicating);
    assert!(waiting.into_iter().all(|id| world.answer(id).0));
    assert_eq!(world.figures(PRIMARY).state, State::Queuing);
    world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating && world.in_step());
    assert_eq!(world.figures(PRIMARY).resynced_bytes, resynced, "no resync");
}
