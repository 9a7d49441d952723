//! A queue that has no room in memory goes on in the disk queue, in order: no resync, whatever the link does meanwhile.
// proves: rule 10

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MEMORY_GROUP_BYTES, MIB};
use engine::state::{Degrade, Mode, Policy, State, WhenFull};
use engine::{Command, CommandResult, Store, VolumeId};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

const PRIMARY: usize = 0;
const SECONDARY: usize = 1;

/// A quarter of a MiB in memory, and a disk queue of this size.
fn small_memory(queue_disk_bytes: u64) -> SimOptions {
    SimOptions {
        queue_bytes: 256 * KIB,
        queue_disk_bytes,
        wait_limit_ms: 10_000,
        degrade: Degrade::Queue,
        bytes_per_s: 4_000_000,
        ..options(Mode::Async, Policy::Degrade)
    }
}

fn in_step(options: SimOptions) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options);
    world.write_done(0, 0, 8 * KIB);
    world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating);
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

// proves: P2, P5, rule 4
/// With the link down, ten times as much is written as memory holds: the queue keeps its order, and nobody waits for the link.
#[test]
fn an_outage_costs_no_resync_while_the_disk_queue_has_room() {
    let mut world = in_step(small_memory(4 * MIB));
    let resynced = world.figures(PRIMARY).resynced_bytes;
    world.cut([false; 2]);
    let longest = writes(&mut world, 2500);
    assert!(longest < 100 * MILLISECOND, "{longest} ns");
    let figures = world.figures(PRIMARY);
    assert!(figures.queue.bytes <= 256 * KIB && figures.queue.disk_bytes > 2 * MIB, "{:?}", figures.queue);
    world.pass(8 * SECOND);
    assert_eq!(world.figures(PRIMARY).state, State::Queuing);
    drains_in_order(&mut world, resynced);
    assert!(world.coverage(PRIMARY, CoveragePoint::QueueSpilled) > 0);
    assert!(world.coverage(PRIMARY, CoveragePoint::QueueFetched) > 0);
}

// proves: P8
/// What stands on disk still costs memory its place. What was queued before the disk queue was needed leaves memory, too, but for what is sent
/// next: else half of memory held that until the link was back, and the queue was full at a third of the writes.
#[test]
fn small_writes_fill_the_disk_queue_and_not_the_memory_of_their_places() {
    for queued_before in [0, 20] {
        let mut world = in_step(small_memory(8 * MIB));
        let resynced = world.figures(PRIMARY).resynced_bytes;
        // Some are on their way when the link goes.
        (0..queued_before).for_each(|n| _ = world.write((n % 2) as u16, n * 4 * KIB, 4 * KIB));
        world.cut([false; 2]);
        for n in 0..560 {
            let longest = world.write_done((n % 2) as u16, n * 12 * KIB % (960 * KIB), 4 * KIB);
            assert!(longest < 100 * MILLISECOND, "{longest} ns");
        }
        world.pass(8 * SECOND);
        let figures = world.figures(PRIMARY);
        assert_eq!(figures.state, State::Queuing, "{:?}", figures.queue);
        drains_in_order(&mut world, resynced);
    }
}

// proves: P8
/// After an outage of 20 s the peaks say how much waited, in memory and on disk, and how old the copy was; and they begin anew where somebody
/// wants that.
#[test]
fn peaks_are_of_all_that_waited_and_of_the_oldest_copy() {
    for queue_durable in [false, true] {
        let mut world = in_step(SimOptions { queue_durable, ..small_memory(8 * MIB) });
        world.pass(SECOND);
        world.cut([false; 2]);
        writes(&mut world, 2000);
        world.pass(20 * SECOND);
        let queue = world.figures(PRIMARY).queue;
        let resynced = world.figures(PRIMARY).resynced_bytes;
        drains_in_order(&mut world, resynced);
        world.pass(5 * SECOND);
        let peaks = world.figures(PRIMARY).queue.peaks;
        assert!(peaks.waiting_bytes >= queue.bytes + queue.disk_bytes && peaks.waiting_bytes < 2500 * KIB, "{peaks:?}");
        assert!(peaks.bytes <= 300 * KIB && peaks.disk_bytes >= queue.disk_bytes, "{peaks:?}");
        assert!(peaks.log_bytes >= queue.log.filled.map_or(0, |(bytes, _)| bytes), "{peaks:?}");
        assert_eq!(peaks.log_bytes > 2000 * KIB, queue_durable, "{peaks:?}");
        let lag = peaks.lag.expect("it is known").as_secs();
        assert!((20..30).contains(&lag), "{peaks:?}");
        assert_eq!(world.figures(PRIMARY).queue.late_peaks, peaks, "nobody had them begin anew");
        world.order(PRIMARY, Command::ForgetPeaks);
        world.write_done(0, 0, 12 * KIB);
        world.pass(SECOND);
        let queue = world.figures(PRIMARY).queue;
        assert_eq!(queue.peaks, peaks, "those since the start stay");
        let late = queue.late_peaks;
        assert!(late.waiting_bytes < 20 * KIB && late.disk_bytes == 0 && late.log_bytes < 40 * KIB, "{late:?}");
        assert!(late.lag.is_some_and(|lag| lag.as_secs() < 2), "{late:?}");
    }
}

/// Twice as much is written as the link carries: no writer waits for the link, and memory takes over again once all has arrived.
#[test]
fn writers_faster_than_the_link_go_on_at_their_own_pace() {
    for _ in 0..2 {
        let mut world = in_step(SimOptions { bytes_per_s: 400_000, ..small_memory(4 * MIB) });
        let resynced = world.figures(PRIMARY).resynced_bytes;
        let longest = writes(&mut world, 2000);
        assert!(longest < 100 * MILLISECOND, "{longest} ns");
        drains_in_order(&mut world, resynced);
        let spilled = world.figures(PRIMARY).queue.spilled_bytes;
        world.write_done(0, 0, 12 * KIB);
        world.drain();
        assert_eq!(world.figures(PRIMARY).queue.spilled_bytes, spilled, "memory takes over again");
    }
}

/// One write is larger than all of memory's queue: it waits for the disk queue, and not until the link has carried all before it.
#[test]
fn a_write_larger_than_memory_goes_to_the_disk_queue() {
    for link_is_up in [true, false] {
        let mut world = in_step(SimOptions { bytes_per_s: 50_000, ..small_memory(8 * MIB) });
        let resynced = world.figures(PRIMARY).resynced_bytes;
        if !link_is_up {
            world.cut([false; 2]);
        }
        for n in 0..3 {
            writes(&mut world, 100);
            let waited = world.write_done(n % 2, 0, 512 * KIB);
            assert!(waited < SECOND / 2, "{waited} ns");
        }
        drains_in_order(&mut world, resynced);
    }
}

/// One write is most of memory's queue, which is not full enough for the disk queue to be in use: it is, for this one.
#[test]
fn a_write_that_memory_has_no_room_for_beside_others_goes_to_the_disk_queue() {
    let mut world = in_step(SimOptions { bytes_per_s: 50_000, ..small_memory(8 * MIB) });
    let resynced = world.figures(PRIMARY).resynced_bytes;
    for n in 0..4 {
        let waited = world.write_done(n % 2, u64::from(n) * 192 * KIB, [96, 192][usize::from(n > 0)] * KIB);
        assert!(waited < SECOND / 2, "write {n}: {waited} ns");
    }
    drains_in_order(&mut world, resynced);
}

// proves: P8, rule 22
/// The same where the node's memory is short, and not the queue's: one write is as large as all that the group may hold.
#[test]
fn a_write_larger_than_the_nodes_memory_goes_to_the_disk_queue() {
    for link_is_up in [true, false] {
        let mut world = in_step(SimOptions {
            bytes_per_s: 50_000,
            queue_bytes: 16 * MIB,
            window_bytes: 4 * MIB,
            journal_bytes: 16 * MIB,
            memory_bytes: MEMORY_GROUP_BYTES,
            ..small_memory(16 * MIB)
        });
        let resynced = world.figures(PRIMARY).resynced_bytes;
        if !link_is_up {
            world.cut([false; 2]);
        }
        for n in 0..2 {
            writes(&mut world, 900);
            let queue = world.figures(PRIMARY).queue;
            assert!(queue.disk_bytes > 0, "{queue:?}");
            let waited = world.write_done(n, 0, MIB);
            assert!(waited < SECOND / 2, "{waited} ns");
        }
        drains_in_order(&mut world, resynced);
    }
}

/// The ring is gone round many times, and the link is lost again and again meanwhile: sent once more, or read once more.
#[test]
fn a_ring_that_wraps_keeps_the_order_over_lost_links() {
    let mut world = in_step(SimOptions { bytes_per_s: 2_000_000, ..small_memory(MIB) });
    let resynced = world.figures(PRIMARY).resynced_bytes;
    for round in 0..12 {
        world.cut([false; 2]);
        writes(&mut world, 600);
        world.restore_path();
        // The cut comes while what was spilled is being read back, sent, or confirmed.
        world.pass(SECOND / 2 + round * 70 * MILLISECOND);
    }
    drains_in_order(&mut world, resynced);
    assert!(world.figures(PRIMARY).queue.spilled_bytes > 3 * MIB, "{:?}", world.figures(PRIMARY).queue);
}

/// The ring is full for seconds: writers wait for places that the peer frees, each for a moment, and nothing in it is written over before.
#[test]
fn a_ring_that_stays_full_keeps_its_order() {
    let mut world = in_step(SimOptions { bytes_per_s: 400_000, ..small_memory(512 * KIB) });
    let resynced = world.figures(PRIMARY).resynced_bytes;
    let longest = writes(&mut world, 3000);
    assert!((20 * MILLISECOND..SECOND).contains(&longest), "it was full: {longest} ns");
    drains_in_order(&mut world, resynced);
    assert_eq!(world.coverage(PRIMARY, CoveragePoint::QueueFetchFailed), 0);
}

// proves: rule 10
/// Memory and disk are full: `queue.when_full` decides. Either way what was written is dirty, and an update sync brings it.
#[test]
fn a_full_disk_queue_falls_to_the_bitmap() {
    for when_full in WhenFull::ALL {
        let mut world = in_step(SimOptions { when_full, ..small_memory(512 * KIB) });
        world.cut([false; 2]);
        let longest = writes(&mut world, 1500);
        assert!(longest <= 11 * SECOND, "{longest} ns");
        world.pass(8 * SECOND);
        assert_eq!(world.figures(PRIMARY).state, State::Logging, "{when_full:?}");
        world.restore_path();
        world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating);
        world.drain();
        assert!(world.figures(PRIMARY).resynced_bytes > 0);
    }
}

/// `queue.when_full = "bitmap"`: with the link up too nobody waits for room.
#[test]
fn nobody_waits_for_a_slow_link_where_a_full_queue_goes_to_the_bitmap() {
    let slow = SimOptions { bytes_per_s: 100_000, when_full: WhenFull::Bitmap, ..small_memory(0) };
    let mut world = in_step(slow);
    let longest = writes(&mut world, 1500);
    assert!(longest < SECOND, "{longest} ns");
    assert!(world.coverage(PRIMARY, CoveragePoint::QueueFullToBitmap) > 0);
    world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating);
    world.drain();
}

/// `superasync`: nobody waits for the link, whatever `queue.when_full` says, and the copy grows younger all the time.
#[test]
fn in_superasync_nobody_waits_and_the_copy_follows_twice_the_links_rate() {
    for queue_disk_bytes in [0, 512 * KIB] {
        let slow = SimOptions { bytes_per_s: 200_000, modes: vec![Mode::Superasync], ..small_memory(queue_disk_bytes) };
        let mut world = in_step(slow);
        let (mut longest, mut newest, mut changed, mut oldest) = (0, None, world.now(), 0);
        for _ in 0..240 {
            longest = writes(&mut world, 200).max(longest);
            world.pass(SECOND / 2);
            let image = world.figures(SECONDARY).promotable;
            assert!(image.is_some(), "it can be promoted at every look");
            if image != newest {
                (newest, changed) = (image, world.now());
            }
            oldest = oldest.max(world.now() - changed);
        }
        assert!(longest < 100 * MILLISECOND, "{longest} ns");
        assert!(oldest <= 30 * SECOND, "the image stood still for {} s", oldest / SECOND);
        assert!(world.coverage(PRIMARY, CoveragePoint::QueueFullToBitmap) > 0);
        world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating);
        world.drain();
    }
}

/// For two minutes twice as much is written as the link carries, all of it in two small volumes: the order is left for snapshots before the
/// disk queue is full, no writer waits, and the copy stays less than 30 s old.
#[test]
fn in_superasync_the_younger_image_counts() {
    let world = in_step(twice_the_link());
    the_younger_image_counts(world);
}

// proves: P5
/// The same beside a bulk load: volumes that are set aside, all of them dirty, are no part of what a snapshot would send.
#[test]
fn in_superasync_the_younger_image_counts_beside_volumes_set_aside() {
    let mut world = in_step(SimOptions { volumes: 8, ..twice_the_link() });
    for volume in 2..8 {
        assert!(matches!(world.order(PRIMARY, Command::SetAside { volume: VolumeId(volume) }), CommandResult::Done(_)));
        (0..16).for_each(|n| _ = world.write_done(volume, n * 64 * KIB, 64 * KIB));
    }
    the_younger_image_counts(world);
}

/// A line of 200 kB/s, and a disk queue that is never full.
fn twice_the_link() -> SimOptions {
    let modes = vec![Mode::Superasync];
    SimOptions { bytes_per_s: 200_000, modes, queue_bytes: 2 * MIB, ..small_memory(64 * MIB) }
}

fn the_younger_image_counts(mut world: ScenarioWorld) {
    let wall_of_image = |world: &mut ScenarioWorld| world.figures(SECONDARY).promotable.map(|(_, wall)| wall.0);
    world.pass(2 * SECOND);
    let skew = wall_of_image(&mut world).expect("both are equal") - world.now();
    let (mut longest, mut oldest) = (0, 0);
    for n in 0..240 * 16 {
        longest = world.write_done((n % 2) as u16, n * 20 * KIB % (960 * KIB), 12 * KIB).max(longest);
        if n % 16 != 0 {
            continue;
        }
        world.pass(SECOND / 2);
        let wall = wall_of_image(&mut world).expect("it can be promoted at every look");
        oldest = (world.now() + skew).saturating_sub(wall).max(oldest);
    }
    assert!(longest < 100 * MILLISECOND, "{longest} ns");
    assert!(oldest <= 30 * SECOND, "the image was {} s old", oldest / SECOND);
    assert_eq!(world.coverage(PRIMARY, CoveragePoint::QueueLeftForYoungerImage), 1, "the stream is not tried in vain");
    let volumes = world.figures(PRIMARY).volumes;
    for (volume, _) in (0..).map(VolumeId).zip(&volumes).filter(|(_, status)| status.is_aside) {
        world.until("a sync may begin", |world| world.figures(PRIMARY).state == State::Replicating);
        assert!(matches!(world.order(PRIMARY, Command::Rejoin { volume }), CommandResult::Done(_)));
    }
    world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating);
    world.drain();
}

// proves: P5
/// The link was down for long, and what was queued meanwhile, ten times the same places, would take two minutes to send: a snapshot brings a younger
/// image within seconds.
#[test]
fn in_superasync_the_younger_image_counts_behind_an_outage_too() {
    let mut world = in_step(twice_the_link());
    world.cut([false; 2]);
    (0..120).for_each(|_| _ = writes(&mut world, 200));
    assert_eq!(world.figures(PRIMARY).state, State::Queuing);
    let before = world.figures(SECONDARY).promotable.map(|(seq, _)| seq);
    world.restore_path();
    let back = world.now();
    world.until("the image is younger", |world| {
        let is_left = world.coverage(PRIMARY, CoveragePoint::QueueLeftForYoungerImage) > 0;
        is_left && world.in_step() && world.figures(SECONDARY).promotable.map(|(seq, _)| seq) != before
    });
    let took = world.now() - back;
    assert!(took < 40 * SECOND, "{} s", took / SECOND);
    world.drain();
}

/// No sync begins by itself there: a queue that was left would stay left, and the copy as old as it was.
#[test]
fn in_superasync_a_queue_is_left_only_where_a_sync_may_begin() {
    let modes = vec![Mode::Superasync];
    let slow = SimOptions { bytes_per_s: 200_000, modes, queue_bytes: 2 * MIB, ..small_memory(64 * MIB) };
    let mut world = in_step(slow);
    world.set(GROUP, |settings| settings.autosync = false);
    let resynced = world.figures(PRIMARY).resynced_bytes;
    (0..60).for_each(|_| _ = writes(&mut world, 200));
    assert_eq!(world.coverage(PRIMARY, CoveragePoint::QueueLeftForYoungerImage), 0);
    drains_in_order(&mut world, resynced);
}

/// The same, but every place is written once: no snapshot would be quicker, and the queue keeps its order.
#[test]
fn in_superasync_a_queue_of_which_all_has_to_travel_keeps_its_order() {
    let slow = SimOptions { bytes_per_s: 20_000, modes: vec![Mode::Superasync], ..small_memory(64 * MIB) };
    let mut world = in_step(slow);
    let resynced = world.figures(PRIMARY).resynced_bytes;
    for n in 0..75 {
        world.write_done((n % 2) as u16, n / 2 * 24 * KIB, 24 * KIB);
        world.pass(SECOND / 2);
    }
    drains_in_order(&mut world, resynced);
    assert_eq!(world.coverage(PRIMARY, CoveragePoint::QueueLeftForYoungerImage), 0);
}

/// The disk queue cannot be written: memory goes on alone, and what stands on disk is still sent in order.
#[test]
fn a_disk_queue_that_cannot_be_written_keeps_what_it_has() {
    let mut world = in_step(small_memory(4 * MIB));
    let resynced = world.figures(PRIMARY).resynced_bytes;
    world.cut([false; 2]);
    writes(&mut world, 600);
    world.cluster[PRIMARY].storage.trouble.state_full_until = world.now() + 60 * SECOND;
    writes(&mut world, 24);
    world.pass(SECOND / 10);
    assert!(world.figures(PRIMARY).queue.disk_has_failed, "{:?}", world.figures(PRIMARY).queue);
    world.pass(8 * SECOND);
    assert_eq!(world.figures(PRIMARY).state, State::Queuing);
    drains_in_order(&mut world, resynced);
}

/// Each batch of the disk queue takes less than `wait_limit`, and a writer waits for many of them: no longer than `wait_limit` in all.
#[test]
fn a_slow_disk_queue_holds_nobody_longer_than_wait_limit() {
    let mut world = in_step(SimOptions { wait_limit_ms: 2000, bytes_per_s: 20_000, ..small_memory(8 * MIB) });
    world.cluster[PRIMARY].storage.trouble.queue_ns = 3 * SECOND / 2;
    let asked: Vec<_> = (0..200).map(|n| world.write((n % 2) as u16, n / 2 * 8 * KIB % (960 * KIB), 8 * KIB)).collect();
    let began = world.now();
    assert!(asked.into_iter().all(|id| world.answer(id).0));
    let longest = world.now() - began;
    assert!((2 * SECOND..3 * SECOND).contains(&longest), "{longest} ns");
    assert!(world.coverage(PRIMARY, CoveragePoint::QueueSpilled) > 0);
}

// proves: P8, rule 10
/// The same where nobody waits for room: the order is given up instead, with the link up and down, and an update sync brings what was queued.
#[test]
fn in_superasync_a_slow_disk_queue_holds_nobody_up() {
    let slow = SimOptions { bytes_per_s: 20_000, ..small_memory(8 * MIB) };
    for (mode, when_full) in [(Mode::Superasync, WhenFull::Block), (Mode::Async, WhenFull::Bitmap)] {
        for cut in [false, true] {
            let mut world = in_step(SimOptions { modes: vec![mode], when_full, ..slow.clone() });
            if cut {
                world.cut([false; 2]);
            }
            for queue_ns in [3 * SECOND / 2, 60 * SECOND] {
                world.cluster[PRIMARY].storage.trouble.queue_ns = queue_ns;
                let write = |n: u64| ((n % 2) as u16, n / 2 * 8 * KIB % (960 * KIB));
                let began = world.now();
                let asked: Vec<_> = (0..200).map(write).map(|(volume, at)| world.write(volume, at, 8 * KIB)).collect();
                assert!(asked.into_iter().all(|id| world.answer(id).0));
                let longest = world.now() - began;
                assert!(longest < 250 * MILLISECOND, "{mode:?}, cut {cut}: {longest} ns");
            }
            assert!(world.coverage(PRIMARY, CoveragePoint::QueueSpilled) > 0);
            world.cluster[PRIMARY].storage.trouble.queue_ns = 0;
            world.restore_path();
            world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating && world.in_step());
            world.drain();
        }
    }
}

// proves: P9, rule 10
/// What stands in the disk queue is damaged, or cannot be read: it is never sent, and the regions are dirty.
#[test]
fn what_cannot_be_read_back_costs_the_order_and_no_content() {
    for damaged in [true, false] {
        let mut world = in_step(small_memory(4 * MIB));
        world.cut([false; 2]);
        writes(&mut world, 1500);
        if damaged {
            world.cluster[PRIMARY].disk_mut(Store::Queue(GROUP)).rot_all();
        } else {
            world.cluster[PRIMARY].storage.trouble.read_errors_until = ALWAYS;
        }
        world.restore_path();
        world.until("the order is given up", |world| world.coverage(PRIMARY, CoveragePoint::QueueFetchFailed) > 0);
        world.cluster[PRIMARY].storage.trouble.read_errors_until = 0;
        world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating);
        world.drain();
        assert!(world.figures(PRIMARY).resynced_bytes > 0, "an update sync brought it");
    }
}

// proves: P1, P3
/// The primary dies with its disk queue full: what was written is dirty, and nothing of the disk queue is believed afterwards.
#[test]
fn a_disk_queue_says_nothing_after_a_start() {
    let mut world = in_step(small_memory(4 * MIB));
    world.cut([false; 2]);
    writes(&mut world, 1500);
    world.crash(PRIMARY, true, SECOND);
    world.restore_path();
    world.pass(2 * SECOND);
    world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating);
    world.drain();
    assert_eq!(world.figures(PRIMARY).queue.disk_bytes, 0);
}

// proves: P8
/// The disk of the queue's file refuses a flush, and nothing in that file counts for a start: neither node asks for one.
#[test]
fn a_start_asks_nothing_of_a_disk_queue_that_says_nothing() {
    let mut world = in_step(small_memory(4 * MIB));
    for node in [PRIMARY, SECONDARY] {
        world.cluster[node].storage.trouble.queue_flush_fails = true;
        world.crash(node, node == PRIMARY, SECOND);
    }
    world.pass(2 * SECOND);
    world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating);
    writes(&mut world, 600);
    world.drain();
}

// proves: P2, P5, rule 4
/// For ten minutes the link is down, and writers go on at its full rate. The queue keeps the order, and while it drains, for as long again, the
/// peer dies now and then: each time it comes back with a prefix of that order.
#[test]
fn ten_minutes_without_the_link_at_its_full_rate_cost_no_order() {
    const RATE: u64 = 100_000;
    let mut world = in_step(SimOptions { bytes_per_s: RATE, queue_bytes: 8 * MIB, ..small_memory(64 * MIB) });
    let resynced = world.figures(PRIMARY).resynced_bytes;
    world.cut([false; 2]);
    let (began, mut longest, mut written) = (world.now(), 0, 0);
    while world.now() < began + 600 * SECOND {
        let n = written / (24 * KIB);
        longest = world.write_done((n % 2) as u16, n * 20 * KIB % (960 * KIB), 24 * KIB).max(longest);
        written += 24 * KIB;
        let due = began + written * (SECOND / RATE);
        world.pass(due.saturating_sub(world.now()));
    }
    assert!(longest < 100 * MILLISECOND, "{longest} ns");
    let figures = world.figures(PRIMARY);
    assert!(figures.state == State::Queuing && figures.queue.disk_bytes > 50 * MIB, "{:?}", figures.queue);
    world.restore_path();
    let checks = world.checkers.writes.prefix_checks();
    for round in 0..8 {
        world.pass(40 * SECOND + round * 700 * MILLISECOND);
        assert!(world.figures(PRIMARY).queue.disk_bytes > MIB, "it drains");
        world.crash(SECONDARY, round % 2 == 0, SECOND);
    }
    drains_in_order(&mut world, resynced);
    assert!(world.checkers.writes.prefix_checks() >= checks + 8);
}

// proves: P8, rule 4
/// Memory and items of the queue are made smaller than what they hold while the ring is in use: the order is kept, and nobody waits longer than
/// until the queue is as small as that.
#[test]
fn a_queue_made_smaller_than_what_it_holds_keeps_its_order() {
    for (queue_bytes, queue_items) in [(64 * KIB, 100_000), (MIB, 20), (64 * KIB, 20)] {
        let mut world = in_step(SimOptions { bytes_per_s: 800_000, queue_bytes: MIB, ..small_memory(8 * MIB) });
        let resynced = world.figures(PRIMARY).resynced_bytes;
        writes(&mut world, 4000);
        let queue = world.figures(PRIMARY).queue;
        assert!(queue.bytes > 256 * KIB && queue.items > 100 && queue.disk_bytes > MIB, "{queue:?}");
        world.set(GROUP, |settings| (settings.queue_bytes, settings.queue_items) = (queue_bytes, queue_items));
        let longest = writes(&mut world, 600);
        assert!(longest < 10 * SECOND, "{longest} ns");
        assert!(longest > SECOND || queue_items > 20, "{longest} ns");
        drains_in_order(&mut world, resynced);
    }
}

// proves: P8
/// The peer's disk stands still for a moment, and its window takes four times what memory holds. What was read back and sent waits for the peer in its
/// places on disk, and not in memory: nobody waits while the ring has room.
#[test]
fn what_was_sent_and_is_not_confirmed_takes_no_memory_from_writers() {
    let wide =
        SimOptions { bytes_per_s: 1_000_000, window_bytes: MIB, journal_bytes: 4 * MIB, ..small_memory(8 * MIB) };
    let mut world = in_step(wide);
    let resynced = world.figures(PRIMARY).resynced_bytes;
    world.cluster[SECONDARY].storage.trouble.stalled_until = world.now() + 5 * SECOND;
    let longest = writes(&mut world, 1500);
    assert!(longest < 100 * MILLISECOND, "{longest} ns");
    world.cluster[SECONDARY].storage.trouble.stalled_until = 0;
    drains_in_order(&mut world, resynced);
}

/// In `sync` the queue keeps the order of those who were answered alone, on disk too.
#[test]
fn who_was_answered_alone_in_sync_stays_in_order_on_disk() {
    let mut world = in_step(SimOptions { modes: vec![Mode::Sync], ..small_memory(4 * MIB) });
    let resynced = world.figures(PRIMARY).resynced_bytes;
    world.cut([false; 2]);
    writes(&mut world, 2000);
    assert!(world.figures(PRIMARY).queue.disk_bytes > MIB);
    drains_in_order(&mut world, resynced);
}
