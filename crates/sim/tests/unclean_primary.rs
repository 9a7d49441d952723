//! A primary that crashed does not know what differs: it compares, and ships only what does.

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, PROBE_BYTES};
use engine::state::{Mode, Policy};
use sim::scenarios::{SECOND, ScenarioWorld, options};

// proves: P3, rule 2
#[test]
fn a_crashed_primary_compares_and_ships_what_differs() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..16 {
        world.write_done(0, n * 32 * KIB, 32 * KIB);
    }
    world.drain();
    world.cut([false; 2]);
    for (volume, offset) in [(0, 0), (0, 4 * KIB), (1, 512 * KIB)] {
        world.write_done(volume, offset, 4 * KIB);
    }
    world.crash(0, false, SECOND);
    world.pass(2 * SECOND);
    let before = world.data_sent_bytes().to_vec();
    world.restore_path();
    world.drain();
    let sent = world.data_sent_bytes()[0] - before[0];
    assert!((12 * KIB..=2 * PROBE_BYTES).contains(&sent), "{sent} bytes for two places that differ");
    assert_eq!(
        (world.coverage(0, CoveragePoint::ProbeDiffered), world.coverage(0, CoveragePoint::UncleanPrimaryStart)),
        (2, 1)
    );
    // Three extents of 256 KiB were being written, and nothing else is looked at.
    assert_eq!(world.coverage(0, CoveragePoint::ProbeEqual) + 2, 3 * 256 * KIB / PROBE_BYTES);
}

#[test]
fn a_crashed_primary_whose_peer_has_everything_ships_nothing() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    world.write_done(1, 8 * KIB, 64 * KIB);
    world.drain();
    let before = world.data_sent_bytes()[0];
    world.crash(0, false, SECOND);
    world.pass(2 * SECOND);
    world.drain();
    assert_eq!(world.data_sent_bytes()[0], before);
}
