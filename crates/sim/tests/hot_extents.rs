//! A write to an extent that the activity log names costs no record, though its confirmation is one that records carry.

use engine::Store;
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use sim::story::{GROUP, SECOND, options};
use sim::world::World;

#[test]
fn a_thousand_writes_to_a_hot_extent_write_no_record() {
    for mode in [Mode::Async, Mode::Sync] {
        let mut world = World::in_peace(options(mode, Policy::Degrade));
        let id = world.write(0, 0, 4 * KIB);
        assert!(world.answer(id).0);
        // What the first sync left on disk is cleared there in its own time.
        world.settle();
        world.pass(30 * SECOND);
        let stores = [Store::Superblock(GROUP), Store::Bitmap(GROUP), Store::Activity(GROUP)];
        let records = |world: &World| stores.map(|store| world.nodes[0].disks[&store].view().to_vec());
        let before = records(&world);
        for write in 0..1000 {
            let id = world.write(0, write % 64 * 4 * KIB, 4 * KIB);
            assert!(world.answer(id).0);
        }
        world.settle();
        world.pass(30 * SECOND);
        assert_eq!(world.figures(0).state, State::Replicating);
        assert!(records(&world) == before, "a record was written");
    }
}
