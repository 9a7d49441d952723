//! A write to an extent that the activity log names costs no record, though its confirmation is one that records carry.

use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{ActivityConfig, Command, CommandResult, Store};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

#[test]
fn a_thousand_writes_to_a_hot_extent_write_no_record() {
    for mode in [Mode::Async, Mode::Sync] {
        let mut world = ScenarioWorld::in_peace(options(mode, Policy::Degrade));
        world.write_done(0, 0, 4 * KIB);
        // What the first sync left on disk is cleared there in its own time.
        world.drain();
        world.pass(30 * SECOND);
        let stores = [Store::Superblock(GROUP), Store::Bitmap(GROUP), Store::Activity(GROUP)];
        let records = |world: &ScenarioWorld| stores.map(|store| world.cluster[0].disk(store).view().to_vec());
        let before = records(&world);
        for write in 0..1000 {
            world.write_done(0, write % 64 * 4 * KIB, 4 * KIB);
        }
        world.drain();
        world.pass(30 * SECOND);
        assert_eq!(world.figures(0).state, State::Replicating);
        assert!(records(&world) == before, "a record was written");
    }
}

// proves: rule 2
/// Writers keep every slot of the log in use, each with its next write on its way before the last one is done. A write to another
/// extent gets its slot all the same.
#[test]
fn a_write_to_a_cold_extent_is_not_starved_by_writers_of_hot_ones() {
    for (count, extent_kib, depth) in [(4, 256, 8), (16, 64, 4)] {
        let mut world = ScenarioWorld::in_peace(SimOptions {
            disk_ns: (2 * MILLISECOND, 6 * MILLISECOND),
            activity: ActivityConfig { extent_bytes: extent_kib * KIB, extents: count },
            ..options(Mode::Async, Policy::Degrade)
        });
        assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
        let mut flying = vec![Vec::new(); count as usize];
        let (mut next, mut cold, began) = (0, None, world.now());
        while cold.is_none_or(|id| world.reply(id).is_none()) {
            assert!(world.now() < began + 4 * SECOND, "{count} slots");
            for (extent, flying) in flying.iter_mut().enumerate() {
                flying.retain(|id| world.reply(*id).is_none());
                while flying.len() < depth {
                    next += 1;
                    let at = next % (extent_kib / 4) * 4;
                    flying.push(world.write(0, (extent as u64 * extent_kib + at) * KIB, 4 * KIB));
                }
            }
            world.pass(MILLISECOND / 2);
            if cold.is_none() && world.now() > began + SECOND {
                cold = Some(world.write(1, 0, 4 * KIB));
            }
        }
    }
}
