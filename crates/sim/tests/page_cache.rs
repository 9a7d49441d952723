//! A killed process leaves in the page cache what it had not made durable, and the next one reads it as if it were. A power
//! loss then takes it back.

use engine::limits::KIB;
use engine::state::{Mode, Policy};
use engine::{ActivityConfig, Command, CommandResult, Store};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options, serves};

const BITMAP: Store = Store::Bitmap(GROUP);

// proves: P3, rule 2
#[test]
fn bits_that_a_killed_start_was_writing_are_durable_before_the_log_is_emptied() {
    let activity = ActivityConfig { extent_bytes: 64 * KIB, extents: 4 };
    let mut world = ScenarioWorld::in_peace(SimOptions { activity, ..options(Mode::Async, Policy::Degrade) });
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..4 {
        world.write_done((n % 2) as u16, n / 2 * 64 * KIB, 8 * KIB);
    }
    world.cut([false; 2]);
    world.crash(0, false, SECOND);
    let records = [Store::Activity(GROUP), BITMAP];
    let before = records.map(|store| world.cluster[0].disk(store).durable().to_vec());
    world.until("it stored the bits of its hot extents and serves", serves);
    world.crash(0, false, SECOND);
    // As if the kill had come while it was storing them: they stand in the page cache alone.
    let stored = world.cluster[0].disk(BITMAP).view().to_vec();
    let now = world.now();
    for (store, before) in records.into_iter().zip(before) {
        world.cluster[0].disk_mut(store).restore(before);
    }
    let bitmap = world.cluster[0].disk_mut(BITMAP);
    let length = stored.len() as u64;
    let write = bitmap.begin_write(0, stored);
    bitmap.end_write(now, write, 0, length, false);
    world.until("it serves again", serves);
    world.cluster[0].disk_mut(BITMAP).will_keep(|_| false);
    world.crash(0, true, SECOND);
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    world.restore_path();
    let answer = world.order(0, Command::Sync { full: false });
    assert!(!matches!(answer, CommandResult::Refused(_)), "{answer:?}");
    world.drain();
}

// proves: rule 1
/// The flush that clears bits meets one under way that does not cover the last write, and nobody writes after that.
#[test]
fn bits_clear_though_the_flush_for_it_met_another_one() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.pass(20 * SECOND);
    world.write_done(0, 0, 4 * KIB);
    world.pass(4500 * MILLISECOND);
    // It takes a second, the write beside it does not.
    world.cluster[0].storage.trouble.stalled_until = world.now() + SECOND;
    let flush = world.flush(0);
    world.cluster[0].storage.trouble.stalled_until = 0;
    world.pass(10 * MILLISECOND);
    let id = world.write(0, 64 * KIB, 4 * KIB);
    assert!(world.answer(id).0 && world.reply(flush).is_none());
    world.pass(20 * SECOND);
    assert_eq!(world.figures(0).peer.dirty_bytes, 0);
}
