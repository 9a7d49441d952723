//! Many wait for one thing: it costs what it wakes, no stack, and no device more than it has to do.

use engine::limits::KIB;
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult, RequestId};
use sim::options::SimOptions;
use sim::scenarios::{MILLISECOND, SECOND, ScenarioWorld, options};

/// The flush has to be on record past a write over what the peer keeps, and an older write is still on its way to the disk. The flush
/// was repeated, one after the other, until it was there.
#[test]
fn a_flush_behind_a_slow_write_flushes_the_device_once_more_and_not_all_the_time() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.write_done(0, 0, 4 * KIB);
    world.cluster[0].storage.trouble.stalled_until = world.now() + SECOND;
    let slow = world.write(0, 64 * KIB, 4 * KIB);
    world.cluster[0].storage.trouble.stalled_until = 0;
    let over = world.write(0, 0, 4 * KIB);
    assert!(world.answer(over).0 && world.reply(slow).is_none());
    let before = world.cluster[0].storage.volume_flushes();
    let flush = world.flush(0);
    let (done, after) = world.answer(flush);
    let flushes = world.cluster[0].storage.volume_flushes() - before;
    assert!(done && after > 900 * MILLISECOND, "{after} ns");
    assert!(flushes <= 3, "{flushes} flushes in {after} ns");
    world.drain();
}

/// So many write one sector; the disk has not answered the first. Then the queue is made so small that there is no room for them
/// any more, which the first finds out that gets the range.
fn in_a_queue_made_smaller(writes: u64) -> (ScenarioWorld, Vec<RequestId>) {
    let large = SimOptions {
        queue_bytes: 1 << 30,
        memory_bytes: 4 << 30,
        bytes_per_s: 4_000_000,
        wait_limit_ms: 60_000,
        ..options(Mode::Async, Policy::Degrade)
    };
    let mut world = ScenarioWorld::in_peace(large);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 100 * MILLISECOND;
    let ids = (0..writes).map(|_| world.write(0, 0, 512)).collect();
    world.cluster[0].storage.trouble.stalled_until = 0;
    let mut settings = world.figures(0).settings;
    settings.queue_bytes = 1 << 20;
    assert!(matches!(world.order(0, Command::Set(settings)), CommandResult::Done(_)));
    (world, ids)
}

/// Each of them gave its range back and woke the next, a level of stack deeper.
#[test]
fn thousands_who_wait_for_a_block_and_find_no_room_need_no_stack() {
    let scenario = || {
        let (mut world, ids) = in_a_queue_made_smaller(6_000);
        world.until("all are answered", |world| ids.iter().all(|id| world.reply(*id) == Some(true)));
        world.drain();
    };
    // Forty bytes for each of them.
    let small = std::thread::Builder::new().stack_size(256 << 10).spawn(scenario).expect("a thread");
    small.join().expect("the scenario ends well");
}

/// Who waits for room again is older than those who came meanwhile.
#[test]
fn who_waits_for_room_again_goes_before_those_who_came_later() {
    let (mut world, early) = in_a_queue_made_smaller(1000);
    let late: Vec<_> = (0..100).map(|n| world.write(1, n * 512, 512)).collect();
    assert_eq!(world.figures(0).queue.blocked_writers, 100);
    world.until("someone who came late is answered", |world| late.iter().any(|id| world.reply(*id).is_some()));
    let waiting = early.iter().filter(|id| world.reply(**id).is_none()).count();
    assert!(waiting < 250, "{waiting} of {} who came before still wait", early.len());
    world.drain();
}
