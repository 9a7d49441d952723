//! What is overwritten before it was sent is left out, and the peer takes what is sent in steps.
// proves: rule 20

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Fold, Mode, Policy, State};
use engine::{Command, CommandResult, Fallback, GroupId, RequestId, VerifyOrder};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

const PRIMARY: usize = 0;
const SECONDARY: usize = 1;
const BLOCK: u64 = 4 * KIB;
const COUNT: u64 = 60;

fn world_with(options: SimOptions) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(SimOptions { bytes_per_s: 100_000, folds: true, ..options });
    world.write_done(1, 512 * KIB, 8 * KIB);
    world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating);
    world.drain();
    world
}

/// The link takes its time, so that writes wait for it.
fn slow(mode: Mode) -> ScenarioWorld {
    world_with(options(mode, Policy::Degrade))
}

/// Some blocks of two volumes over and over again, now and then a hole, and larger writes across them.
fn rewrites(world: &mut ScenarioWorld) {
    for n in 0..COUNT {
        let (volume, block) = ((n % 2) as u16, n * 7 % 5);
        match n % 13 {
            12 => {
                let hole = world.zero(volume, block * BLOCK, 2 * BLOCK, false);
                world.answer(hole);
            }
            11 => _ = world.write_done(volume, block * BLOCK + 512, 3 * BLOCK),
            _ => _ = world.write_done(volume, block * BLOCK, BLOCK),
        }
    }
    for volume in 0..2 {
        let flush = world.flush(volume);
        world.answer(flush);
    }
}

fn folded(world: &ScenarioWorld) -> u64 {
    world.figures(PRIMARY).folded_writes
}

#[test]
fn a_block_that_is_written_again_and_again_goes_once() {
    let mut world = slow(Mode::Async);
    let before = world.figures(PRIMARY);
    (0..COUNT).for_each(|n| _ = world.write_done(0, n % 3 * 2 * BLOCK, BLOCK));
    let flush = world.flush(0);
    world.answer(flush);
    world.drain();
    let after = world.figures(PRIMARY);
    assert!(after.folded_writes > COUNT / 3, "{} of {COUNT}", after.folded_writes);
    let streamed = after.streamed_bytes - before.streamed_bytes;
    assert_eq!(streamed + after.folded_bytes, COUNT * BLOCK, "each is sent or left out");
    assert!(world.coverage(PRIMARY, CoveragePoint::EpochFolded) > 0);
    let (step, most) = (after.step.expect("of late"), after.step_hwm);
    assert!(step.bytes > 0 && step.bytes <= most.bytes && most.bytes <= COUNT * BLOCK, "{step:?} {most:?}");
    assert!(step.time <= most.time && most.time <= Duration::from_secs(1) && !most.time.is_zero(), "{most:?}");
    world.pass(70 * SECOND);
    assert_eq!((world.figures(PRIMARY).step, world.figures(PRIMARY).step_hwm), (None, most));
}

#[test]
fn what_is_left_of_many_writes_is_what_they_left() {
    let mut world = slow(Mode::Async);
    rewrites(&mut world);
    world.drain();
    assert!(folded(&world) > 10, "{}", folded(&world));
}

/// Each time a node loses its power, or is killed, at another moment: what it holds then is some moment of the order.
#[test]
fn a_node_that_dies_has_all_of_a_step_or_nothing() {
    let mut met = 0;
    for node in [PRIMARY, SECONDARY] {
        for moment in 0..40 {
            let mut world = slow(Mode::Async);
            rewrites(&mut world);
            world.pass(moment * 40 * MILLISECOND);
            met += u64::from(folded(&world) > 0 && !world.in_step());
            world.crash(node, moment % 2 == 0, SECOND / 5);
            world.pass(SECOND);
            world.unattended = false;
            world.drain();
        }
    }
    assert!(met > 30, "{met}");
}

/// What came of a step is forgotten with its session, and comes again.
#[test]
fn a_link_that_is_lost_in_the_middle_of_a_step_loses_the_step() {
    let mut met = 0;
    for moment in 0..40 {
        let mut world = slow(Mode::Async);
        rewrites(&mut world);
        world.pass(moment * 40 * MILLISECOND);
        world.cut([false; 2]);
        world.pass(6 * SECOND);
        world.cut([true; 2]);
        world.drain();
        met += world.coverage(PRIMARY, CoveragePoint::QueueRewound);
    }
    assert!(met > 10, "{met}");
}

/// It does not wait for the end of a step that will not come, and stands where the last one ended.
#[test]
fn a_peer_that_is_promoted_in_the_middle_of_a_step_stands_before_it() {
    let mut met = 0;
    for moment in 0..40 {
        let mut world = slow(Mode::Async);
        rewrites(&mut world);
        world.pass(moment * 40 * MILLISECOND);
        met += u64::from(folded(&world) > 0 && !world.in_step());
        world.cut([false; 2]);
        world.crash(PRIMARY, true, 20 * SECOND);
        let promoted = world.promote(SECONDARY, true);
        assert!(matches!(promoted, CommandResult::Done(_) | CommandResult::Warning(_)), "{promoted:?}");
        world.pass(SECOND);
        assert!(world.serves(GROUP));
    }
    assert!(met > 10, "{met}");
}

/// Neither a demotion nor a stop of either node waits for ever, and both nodes hold the same after it.
#[test]
fn a_clean_end_in_the_middle_of_a_step_is_one() {
    for moment in 0..12 {
        let mut world = slow(Mode::Async);
        rewrites(&mut world);
        world.pass(moment * 130 * MILLISECOND);
        world.stop((moment % 2) as usize);
        let mut world = slow(Mode::Async);
        rewrites(&mut world);
        world.pass(moment * 130 * MILLISECOND);
        assert!(matches!(world.order(PRIMARY, Command::Demote), CommandResult::Done(_)));
        world.pass(SECOND);
        assert!(matches!(world.promote(SECONDARY, false), CommandResult::Done(_)));
    }
}

/// A comparison has its place in the order.
#[test]
fn a_verify_in_the_backlog_finds_nothing() {
    let mut world = slow(Mode::Async);
    rewrites(&mut world);
    let whole = VerifyOrder { rate_bytes_per_s: None, sample_percent: 100, repair: false, entropy: 7, by_timer: false };
    assert!(matches!(world.order(PRIMARY, Command::Verify(whole)), CommandResult::Done(_)));
    rewrites(&mut world);
    world.drain();
    assert!(folded(&world) > 0);
}

/// Somebody waits for each write there, and there is no backlog.
#[test]
fn nothing_is_left_out_under_a_promise_nor_before_it_is_flushed_here() {
    for mode in [Mode::Sync, Mode::Nearsync] {
        let mut world = slow(mode);
        let requests: Vec<_> = (0..40).map(|n| world.write(0, n % 2 * BLOCK, BLOCK)).collect();
        let flush = world.flush(0);
        requests.into_iter().chain([flush]).for_each(|id| _ = world.answer(id));
        world.drain();
        assert_eq!(folded(&world), 0, "{mode:?}");
    }
    let mut world = slow(Mode::Async);
    (0..20).for_each(|n| _ = world.write_done(0, n % 2 * BLOCK, BLOCK));
    world.drain();
    assert_eq!(folded(&world), 0);
}

/// While all of it stands in memory, and in the log of the queue too, a backlog folds as without a disk queue.
#[test]
fn beside_a_disk_queue_what_stands_in_memory_is_folded() {
    let of = |queue_disk_bytes, queue_durable| {
        let base = options(Mode::Async, Policy::Degrade);
        let mut world = world_with(SimOptions { queue_disk_bytes, queue_durable, ..base });
        rewrites(&mut world);
        world.drain();
        assert_eq!(world.figures(PRIMARY).queue.spilled_bytes, 0);
        folded(&world)
    };
    for queue_durable in [false, true] {
        assert!(of(2 << 20, queue_durable) > 10, "{queue_durable}");
    }
}

// proves: P8
/// Memory lets go of what the disk queue takes: it is no part of a step before it was read back, so no step waits for room that its own end makes.
#[test]
fn what_memory_lets_go_of_is_not_folded_before_it_is_read_back() {
    let mut all = 0;
    for queue_bytes in [48 * KIB, 192 * KIB, 320 * KIB, 512 * KIB] {
        let base = options(Mode::Async, Policy::Degrade);
        let base = SimOptions { queue_bytes, queue_disk_bytes: 2 << 20, wait_limit_ms: 10_000, ..base };
        let mut world = world_with(base);
        let resynced = world.figures(PRIMARY).resynced_bytes;
        for _ in 0..6 {
            rewrites(&mut world);
        }
        assert!(world.figures(PRIMARY).queue.spilled_bytes > 0);
        world.drain();
        assert_eq!(world.figures(PRIMARY).resynced_bytes, resynced, "the order was kept");
        all += folded(&world);
    }
    assert!(all > 10, "{all}");
}

/// From one frame to the next, in either direction.
#[test]
fn whether_a_backlog_is_folded_is_changed_while_it_waits() {
    let mut world = slow(Mode::Async);
    world.set(GROUP, |settings| settings.fold = Fold::Never);
    rewrites(&mut world);
    world.pass(SECOND / 2);
    assert_eq!(folded(&world), 0);
    world.set(GROUP, |settings| settings.fold = Fold::Auto);
    rewrites(&mut world);
    world.pass(SECOND);
    let so_far = folded(&world);
    assert!(so_far > 0);
    world.set(GROUP, |settings| settings.fold = Fold::Never);
    world.drain();
    rewrites(&mut world);
    world.drain();
    // A step that had begun is sent to its end.
    assert!(folded(&world) < so_far + COUNT, "{} of {so_far}", folded(&world));
}

/// A window and a journal that hold hardly more than a few writes: nothing waits for room that does not come.
#[test]
fn little_room_at_the_peer_makes_small_steps() {
    let mut all = 0;
    for window_bytes in [40 * KIB, 64 * KIB, 128 * KIB, 192 * KIB] {
        let base = options(Mode::Async, Policy::Degrade);
        let mut world = world_with(SimOptions { window_bytes, journal_bytes: 2 * window_bytes, ..base });
        for _ in 0..3 {
            rewrites(&mut world);
            world.drain();
        }
        all += folded(&world);
    }
    assert!(all > 0);
}

/// So many clients of pages of 8 KiB, each of whom writes again as soon as it is answered, and one who flushes.
struct PageWriters {
    under_way: Vec<Option<RequestId>>,
    flush: Option<RequestId>,
    asked: u64,
}

impl PageWriters {
    fn new(count: usize) -> PageWriters {
        PageWriters { under_way: vec![None; count], flush: None, asked: 0 }
    }

    /// The page of each write is what `page` says. True: they wrote for all of that time.
    fn write(
        &mut self,
        world: &mut ScenarioWorld,
        time_ns: u64,
        page: impl Fn(u64) -> u64,
        done: impl Fn(&ScenarioWorld) -> bool,
    ) -> bool {
        let until = world.now() + time_ns;
        let is_free = |world: &ScenarioWorld, id: Option<RequestId>| id.is_none_or(|id| world.reply(id).is_some());
        while world.now() < until && !done(world) {
            for at in 0..self.under_way.len() {
                if is_free(world, self.under_way[at]) {
                    self.under_way[at] = Some(world.write(0, page(self.asked) * PAGE, PAGE));
                    self.asked += 1;
                }
            }
            if is_free(world, self.flush) {
                self.flush = Some(world.flush(0));
            }
            world.pass(5 * MILLISECOND);
        }
        world.now() >= until
    }
}

const PAGE: u64 = 8 * KIB;

/// Hot pages that hardly fold: one of eight is the one before once more.
fn hardly_folds(n: u64) -> u64 {
    (n - u64::from(n % 8 == 7)) * 37 % 128
}

// proves: P5, rule 17
/// The queue is full all the time, and room comes once a second with the end of a step: the order is kept, as it is with a write at a time.
#[test]
fn writers_at_the_speed_of_the_link_are_not_held_up_by_steps() {
    for folds in [false, true] {
        let base =
            SimOptions { folds, bytes_per_s: 100_000, queue_bytes: 512 * KIB, ..options(Mode::Async, Policy::Degrade) };
        let mut world = ScenarioWorld::in_peace(SimOptions { wait_limit_ms: 10_000, ..base });
        world.drain();
        let resynced = world.figures(PRIMARY).resynced_bytes;
        let is_alone = |world: &ScenarioWorld| world.figures(PRIMARY).state == State::Logging;
        let whole = PageWriters::new(1).write(&mut world, 60 * SECOND, hardly_folds, is_alone);
        let figures = world.figures(PRIMARY);
        assert!(whole, "{folds}: {}", figures.reason);
        assert!(figures.queue.waits.sum().as_secs() > 30, "{folds}: they wait: {:?}", figures.queue);
        assert_eq!(folded(&world) > 20, folds, "{}", folded(&world));
        world.drain();
        assert_eq!(world.figures(PRIMARY).resynced_bytes, resynced, "{folds}: the order was kept");
    }
}

// proves: P5, rule 17
/// The same for a ladder: the line carries what is written, so it is not slow, though room comes once a second. Where more is written than it
/// carries it is.
#[test]
fn room_that_comes_in_steps_is_no_slow_line() {
    for (folds, writers) in [(false, 1), (true, 1), (false, 40), (true, 40)] {
        let base =
            SimOptions { folds, bytes_per_s: 100_000, queue_bytes: 512 * KIB, ..options(Mode::Async, Policy::Degrade) };
        let [latency, after, return_after] = [200, 500, 5000].map(Duration::from_millis);
        let fallback = Some(Fallback { mode: Mode::Superasync, latency, after, lag: None, return_after });
        let mut world = ScenarioWorld::in_peace(SimOptions { wait_limit_ms: 10_000, fallback, ..base });
        world.drain();
        let is_down = |world: &ScenarioWorld| world.figures(PRIMARY).ladder.is_some();
        let whole = PageWriters::new(writers).write(&mut world, 60 * SECOND, hardly_folds, is_down);
        assert_eq!(whole, writers == 1, "{folds}, {writers}: {:?}", world.figures(PRIMARY).ladder);
        assert!(writers > 1 || (folded(&world) > 20) == folds, "{}", folded(&world));
        world.drain();
    }
}

// proves: P5
/// Groups of one primary on one link, each with a backlog: none waits for its first confirmation until a second of the link went to each.
#[test]
fn groups_that_share_a_link_take_short_steps() {
    let groups: Vec<GroupId> = (0..8).map(|n| GroupId(2 * n)).collect();
    let base = SimOptions {
        pairs: vec![[0, 1]; 15],
        volumes: 1,
        window_bytes: MIB,
        journal_bytes: 2 * MIB,
        ..options(Mode::Async, Policy::Degrade)
    };
    let mut world = ScenarioWorld::new(SimOptions { folds: true, bytes_per_s: 100_000, ..base });
    world.pass(SECOND);
    for group in &groups {
        world.command(PRIMARY, *group, Command::Sync { full: true });
        world.until("synced", |world| world.cluster.in_step(*group));
    }
    let queued = |world: &ScenarioWorld, group: GroupId| {
        world.cluster[PRIMARY].engine().expect("up").status_of(group).expect("there").queue.items
    };
    for group in &groups {
        for n in 0..40 {
            world.write_to(*group, 0, hardly_folds(n) * PAGE, PAGE);
        }
    }
    world.pass(5 * MILLISECOND);
    for group in &groups {
        world.flush_at(*group, 0);
    }
    let began = world.now();
    let all = groups.iter().map(|group| queued(&world, *group)).collect::<Vec<_>>();
    world.until("each is confirmed something", |world| {
        groups.iter().zip(&all).all(|(group, all)| queued(world, *group) < *all)
    });
    let took = world.now() - began;
    assert!(took < 5 * SECOND, "{took} ns");
}

// proves: rule 17
/// The peer's volume takes nothing, and what is sent is durable there: a stream that holds a part of the window back for a step stands
/// for the peer all the same.
#[test]
fn who_waits_for_window_to_fold_waits_for_the_peer() {
    let base = SimOptions {
        bytes_per_s: 400_000,
        folds: true,
        queue_bytes: 512 * KIB,
        ..options(Mode::Async, Policy::Degrade)
    };
    let mut world = ScenarioWorld::in_peace(SimOptions { wait_limit_ms: 4_000, ..base });
    world.drain();
    world.cluster[SECONDARY].storage.trouble.full_until = ALWAYS;
    let is_alone = |world: &ScenarioWorld| world.figures(PRIMARY).state == State::Logging;
    let whole = PageWriters::new(1).write(&mut world, 40 * SECOND, |n| n % 2 * 3, is_alone);
    assert!(!whole, "the window ends: {:?}", world.figures(PRIMARY).queue);
    assert!(world.coverage(PRIMARY, CoveragePoint::FoldAwaited) > 0);
    assert!(world.coverage(SECONDARY, CoveragePoint::ApplyPaused) > 0);
    let reason = world.figures(PRIMARY).reason;
    assert!(!reason.contains("more is written than"), "{reason}");
    assert_eq!(world.coverage(PRIMARY, CoveragePoint::LinkWasFull), 0);
}

// proves: P8, rule 22
/// The primary is ordered to log in the middle of a step: what came of it is given back although the session goes on.
#[test]
fn what_came_of_a_step_is_given_back_when_its_primary_logs() {
    let mut met = 0;
    for moment in 0..20 {
        let mut world = slow(Mode::Async);
        rewrites(&mut world);
        world.pass(moment * 80 * MILLISECOND);
        met += u64::from(folded(&world) > 0 && !world.in_step());
        assert!(matches!(world.order(PRIMARY, Command::Logging), CommandResult::Done(_)));
        world.pass(3 * SECOND);
        let held = world.cluster[SECONDARY].storage.payload().get(&GROUP).map_or(0, |meters| meters.queued.bytes());
        assert_eq!(held, 0, "{moment}: at the peer");
        assert!(matches!(world.order(PRIMARY, Command::Sync { full: false }), CommandResult::Done(_)));
        world.drain();
    }
    assert!(met > 4, "{met}");
}

// proves: P8
/// A small disk queue that is slow to take what memory lets go of, and then is full: what has left memory comes back by a few writes at a
/// time, and a step that waits for more of that before its end waits for ever.
#[test]
fn a_full_disk_queue_and_a_step_do_not_wait_for_each_other() {
    let mut all = 0;
    for takes in (1..=30).map(|n| n * 20 * MILLISECOND) {
        let base =
            SimOptions { queue_bytes: 128 * KIB, queue_disk_bytes: 256 * KIB, ..options(Mode::Async, Policy::Degrade) };
        let base = SimOptions { window_bytes: 4 * MIB, journal_bytes: 8 * MIB, wait_limit_ms: 30_000, ..base };
        let mut world = ScenarioWorld::in_peace(SimOptions { folds: true, bytes_per_s: 100_000, ..base });
        // The rate of a link is known once it was busy.
        (0..20).for_each(|n| _ = world.write_done(1, n * 16 * KIB, 16 * KIB));
        world.drain();
        let resynced = world.figures(PRIMARY).resynced_bytes;
        world.cluster[PRIMARY].storage.trouble.queue_ns = takes;
        PageWriters::new(48).write(&mut world, 8 * SECOND, hardly_folds, |_| false);
        world.cluster[PRIMARY].storage.trouble.queue_ns = 0;
        assert!(world.figures(PRIMARY).queue.spilled_bytes > 0);
        world.drain();
        assert_eq!(world.figures(PRIMARY).resynced_bytes, resynced, "{takes} ns: the order was kept");
        all += folded(&world);
    }
    assert!(all > 10, "{all}");
}
