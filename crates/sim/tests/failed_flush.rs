//! A device that fails a flush may have dropped what it was to make durable, and reads go on as if nothing were wrong.
//! The machine does not restart; the next start of the daemon treats it as a power loss all the same, and has the peer
//! asked.
// proves: rule 12

use engine::Input;
use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Broken, State};
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, unflushed};

fn failed(world: &ScenarioWorld, broken: Broken) -> bool {
    world.glance(0, GROUP).is_some_and(|glance| glance.state == State::Failed(broken))
}

/// The daemon starts again on the same machine.
fn fetches_what_was_lost(mut world: ScenarioWorld, confirmed: &[Vec<u8>]) {
    assert!(lacks(&world, confirmed), "something was lost");
    world.pass(SECOND);
    world.crash(0, false, SECOND);
    comes_back_with(world, confirmed);
}

fn comes_back_with(mut world: ScenarioWorld, confirmed: &[Vec<u8>]) {
    world.until("its export is open", |world| world.cluster[0].serves(GROUP));
    assert_eq!(world.coverage(0, CoveragePoint::TailPulled), 1);
    assert!(!lacks(&world, confirmed), "all that the peer had is here again");
    world.drain();
}

/// Behind what was confirmed before, a scenario writes more.
fn lacks(world: &ScenarioWorld, confirmed: &[Vec<u8>]) -> bool {
    world.images_of(0).iter().zip(confirmed).any(|(held, confirmed)| held[..800 << 10] != confirmed[..800 << 10])
}

// proves: P1
#[test]
fn what_a_failed_flush_lost_and_the_peer_confirmed_is_fetched_by_the_next_start() {
    let mut world = unflushed();
    let confirmed = world.images_of(1);
    world.cluster[0].storage.trouble.fail_next_flush = true;
    let flush = world.flush(0);
    assert!(!world.answer(flush).0, "it is no flush");
    let write = world.write(1, 0, 4 * KIB);
    assert!(!world.answer(write).0, "nothing is acknowledged any more");
    assert!(failed(&world, Broken::VolumeFlush));
    fetches_what_was_lost(world, &confirmed);
}

// proves: P4
/// A FUA write lands after the flush has failed. It would have the volume flushed once more, for there are other
/// writes; that would succeed, and bring nothing back of what was lost.
#[test]
fn what_a_failed_flush_lost_is_not_called_durable_by_a_later_one() {
    let mut world = unflushed();
    // Volume 0 alone has something to flush.
    let flush = world.flush(1);
    assert!(world.answer(flush).0);
    // Its last extent is hot: what comes there is written at once.
    world.write_done(0, 928 * KIB, 4 * KIB);
    let confirmed = world.images_of(1);
    let near = &mut world.cluster[0].storage.trouble;
    (near.slow_until, near.fail_next_flush) = (u64::MAX, true);
    let flush = world.flush(0);
    world.cluster[0].storage.trouble.slow_until = 0;
    world.write(0, 900 * KIB, 8 * KIB);
    let landing = world.now() + 40 * MILLISECOND;
    world.cluster[0].storage.trouble.stalled_until = landing;
    let fua = world.write_fua(0, 960 * KIB, 8 * KIB);
    world.cluster[0].storage.trouble.stalled_until = 0;
    assert!(!world.answer(flush).0 && failed(&world, Broken::VolumeFlush));
    assert!(world.now() < landing);
    world.pass(50 * MILLISECOND);
    assert_eq!(world.reply(fua), Some(false));
    fetches_what_was_lost(world, &confirmed);
}

/// The group had failed already, of its activity log.
#[test]
fn what_a_failed_flush_lost_in_a_failed_group_is_fetched_all_the_same() {
    let mut world = unflushed();
    let confirmed = world.images_of(1);
    let near = &mut world.cluster[0].storage.trouble;
    (near.slow_until, near.fail_next_flush) = (u64::MAX, true);
    let flush = world.flush(0);
    let near = &mut world.cluster[0].storage.trouble;
    (near.slow_until, near.fail_next_record) = (0, true);
    // Its extent is cold.
    let write = world.write(0, 32 * KIB, 4 * KIB);
    assert!(!world.answer(write).0 && failed(&world, Broken::Bits));
    assert_eq!(world.reply(flush), None);
    assert!(!world.answer(flush).0);
    fetches_what_was_lost(world, &confirmed);
}

/// One bad moment of a disk takes the flush, and the record of it: that is tried again, though the group has failed.
#[test]
fn what_a_failed_flush_lost_is_fetched_though_it_could_not_be_recorded_at_once() {
    let mut world = unflushed();
    let confirmed = world.images_of(1);
    let near = &mut world.cluster[0].storage.trouble;
    (near.fail_next_flush, near.fail_next_record) = (true, true);
    let flush = world.flush(0);
    assert!(!world.answer(flush).0 && failed(&world, Broken::VolumeFlush));
    world.pass(SECOND);
    assert!(!world.cluster[0].storage.trouble.fail_next_record);
    fetches_what_was_lost(world, &confirmed);
}

/// The daemon is killed in the moment in which its client hears of it.
#[test]
fn what_a_failed_flush_lost_is_on_record_before_anybody_hears_of_it() {
    let mut world = unflushed();
    let confirmed = world.images_of(1);
    world.cluster[0].storage.trouble.fail_next_flush = true;
    let flush = world.flush(0);
    while world.reply(flush).is_none() {
        world.pass(1000);
    }
    assert_eq!(world.reply(flush), Some(false));
    world.crash(0, false, SECOND);
    comes_back_with(world, &confirmed);
}

/// The same, and the daemon is stopped before the second it takes.
#[test]
fn what_a_failed_flush_lost_is_on_record_before_a_stop_has_ended() {
    let mut world = unflushed();
    let confirmed = world.images_of(1);
    let near = &mut world.cluster[0].storage.trouble;
    (near.fail_next_flush, near.fail_next_record) = (true, true);
    let flush = world.flush(0);
    assert!(!world.answer(flush).0 && failed(&world, Broken::VolumeFlush));
    world.pass(300 * MILLISECOND);
    assert!(!world.cluster[0].storage.trouble.fail_next_record && lacks(&world, &confirmed));
    world.input(0, Input::Stop);
    world.until("it has stopped", |world| !world.cluster[0].up());
    world.boot(0);
    comes_back_with(world, &confirmed);
}
