//! A full sync overwrites the peer whatever that holds: it is an order about the peer as the operator saw it.

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult};
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

// proves: P6
/// It waits for its bits to be stored. Meanwhile the peer is promoted, acknowledges a write, and is demoted again.
#[test]
fn a_full_sync_does_not_begin_once_the_peer_was_promoted() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.pass(30 * SECOND);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.write_done(0, 0, 8 * KIB);
    let before = world.coverage(0, CoveragePoint::FullSyncBegan);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 3 * SECOND;
    world.command(0, GROUP, Command::Sync { full: true });
    world.pass(10 * MILLISECOND);
    world.cluster[0].storage.trouble.stalled_until = 0;
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
    world.write_done(1, 512 * KIB, 8 * KIB);
    let flush = world.flush(1);
    assert!(world.answer(flush).0);
    let written = world.images_of(1);
    assert!(matches!(world.order(1, Command::Demote), CommandResult::Warning(_)));
    assert_eq!(world.coverage(0, CoveragePoint::FullSyncBegan), before, "it waits");
    world.pass(10 * SECOND);
    assert_eq!(world.coverage(0, CoveragePoint::FullSyncBegan), before);
    assert_eq!(world.images_of(1), written, "that was acknowledged");
    assert!(world.figures(0).reason.contains("the histories fork"), "{}", world.figures(0).reason);
    // Now he knows.
    assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
    world.until("the peer follows", |world| world.images_of(0) == world.images_of(1));
}
