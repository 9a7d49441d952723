//! Trim and write-zeroes reach the far side as ranges, not as bytes, in their position in the write order.

use engine::limits::KIB;
use engine::state::{Mode, Policy};
use sim::scenarios::ScenarioWorld;
use sim::scenarios::options;

// proves: rule 3, rule 16
#[test]
fn zeroed_ranges_are_replicated_in_order() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for volume in 0..2 {
        let id = world.write(volume, 0, 512 * KIB);
        assert!(world.answer(id).0);
    }
    world.drain();
    let before = world.data_sent_bytes()[0];
    let trimmed = world.zero(0, 64 * KIB, 256 * KIB, false);
    let zeroed = world.zero(1, 4 * KIB, 128 * KIB, true);
    // Issued while those are under way: it must win on both sides.
    let over = world.write(0, 96 * KIB, 4 * KIB);
    let again = world.zero(1, 0, 8 * KIB, false);
    for id in [trimmed, zeroed, over, again] {
        assert!(world.answer(id).0);
    }
    world.drain();
    assert_eq!(world.data_sent_bytes()[0] - before, 4 * KIB);
    let images = world.images_of(1);
    let is_zero =
        |volume: usize, from: u64, to: u64| images[volume][from as usize..to as usize].iter().all(|b| *b == 0);
    assert!(is_zero(0, 64 * KIB, 96 * KIB) && is_zero(0, 100 * KIB, 320 * KIB) && is_zero(1, 0, 132 * KIB));
    assert!(!is_zero(0, 96 * KIB, 100 * KIB) && !is_zero(0, 0, 64 * KIB) && !is_zero(0, 320 * KIB, 321 * KIB));
}
