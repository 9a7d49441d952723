//! What happened: in `sync` a FUA write over another one was on the local disk and waited for the peer, and since the peer would
//! have it too, no flush was put on record. The peer died before it arrived, the writer was answered, then the primary lost
//! power: the older write, which the peer had kept, was pulled over the newer one that FUA had made durable (P4).
// proves: P4

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Policy};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

/// The reset arrives `delay_ms` after the peer died; the disks of both need 2 ms.
fn left_alone(delay_ms: u64, flush_beside: bool) -> ScenarioWorld {
    let sync = options(Mode::Sync, Policy::Degrade);
    let disk_ns = (2 * MILLISECOND, 2 * MILLISECOND);
    let mut world = ScenarioWorld::in_peace(SimOptions { delay_ns: delay_ms * MILLISECOND, disk_ns, ..sync });
    world.write_done(0, 0, 8 * KIB);
    world.crash(1, false, 3 * SECOND);
    let newer = world.write_fua(0, 4 * KIB, 8 * KIB);
    if flush_beside {
        world.pass(MILLISECOND);
        world.flush(0);
    }
    assert!(world.answer(newer).0, "answered alone");
    assert_eq!(world.coverage(0, CoveragePoint::FlushPointRecorded), 1);
    world
}

/// The checker sees to it that what FUA promised is there when the export opens.
fn loses_power(mut world: ScenarioWorld) {
    let ours = world.images_of(0);
    world.crash(0, true, SECOND);
    world.until("it serves again", |world| world.cluster[0].serves(GROUP));
    assert_eq!(
        world.images_of(0)[0][4 * KIB as usize..12 * KIB as usize],
        ours[0][4 * KIB as usize..12 * KIB as usize]
    );
    world.drain();
}

#[test]
fn fua_that_waited_for_the_peer_goes_on_record_when_it_is_answered_alone() {
    loses_power(left_alone(10, false));
}

/// A flush was under way when the write was done, so FUA waits for the next one, which was asked for under the promise.
#[test]
fn fua_whose_flush_was_under_way_goes_on_record_too() {
    loses_power(left_alone(4, true));
}
