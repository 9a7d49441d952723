//! A node that is stopped says so: its peer need not take it for a fault.

use std::time::Duration;

use engine::Input;
use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Policy};
use sim::scenarios::{FOR_EVER, MILLISECOND, SECOND, ScenarioWorld, options};

#[test]
fn the_peer_of_a_stopped_node_knows_why_the_link_is_down() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.input(1, Input::Stop);
    world.until("stopped", |world| !world.cluster[1].up());
    world.pass(50 * MILLISECOND);
    assert_eq!(world.figures(0).peer.link_reason, "the peer was stopped");
    assert_eq!(world.coverage(0, CoveragePoint::GoodbyeHeard), 1);
    // A kill says nothing.
    world.until("back", |world| world.cluster[1].up());
    world.drain();
    world.crash(1, false, FOR_EVER);
    world.pass(50 * MILLISECOND);
    assert_eq!(world.figures(0).peer.link_reason, "reset");
}

/// Seed 131. A group that is stopped before its start knows its identity does not answer the peer's greeting with its clock: that would
/// end the session as a breach of protocol.
#[test]
fn a_group_that_is_stopped_before_it_knew_who_it_is_says_nothing() {
    for moment in 0..200 {
        let mut options = options(Mode::Async, Policy::Degrade);
        (options.pairs, options.disk_ns) = (vec![[0, 1]; 3], (MILLISECOND, 4 * MILLISECOND));
        (options.volumes, options.volume_bytes) = (1, 64 * KIB);
        let mut world = ScenarioWorld::new(options);
        world.pass(moment * MILLISECOND / 5);
        // One group may be through with its start and take its time, another is not.
        world.input(moment as usize % 2, Input::Stop);
        world.pass(200 * MILLISECOND);
    }
}

/// Under `hold` a write waits for the link, another one for its range, and the disk takes longer than a stop waits: when the
/// range is free the second one is told what the first one was.
#[test]
fn a_write_that_waits_for_its_range_does_not_keep_a_node_from_stopping() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Hold(Duration::from_secs(3600))));
    world.write_done(0, 0, 4 * KIB);
    world.cut([false; 2]);
    world.pass(10 * SECOND);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 5 * SECOND;
    let (first, second) = (world.write(0, 0, 4 * KIB), world.write(0, 0, 4 * KIB));
    world.pass(MILLISECOND);
    world.input(0, Input::Stop);
    world.until("stopped", |world| !world.cluster[0].up());
    assert_eq!((world.reply(first), world.reply(second)), (Some(false), Some(false)));
}
