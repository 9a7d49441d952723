//! Both nodes lose power in the same instant, in `sync`, with writes under way: whatever was acknowledged is on both.

use engine::VolumeId;
use engine::limits::KIB;
use engine::state::{Mode, Policy};
use sim::scenarios::{SECOND, ScenarioWorld, options};
use sim::stamps::SECTOR;
use sim::stamps::{SectorFill, sector_bytes};

// proves: P1
#[test]
fn what_was_acknowledged_in_sync_is_on_both() {
    for round in 0..12u64 {
        let mut drawn = options(Mode::Sync, Policy::Degrade);
        drawn.seed = 2 + 6 * round;
        let mut world = ScenarioWorld::in_peace(drawn);
        let mut asked = Vec::new();
        for n in 0..60u64 {
            // Each in its own place, so that nothing acknowledged is overwritten; the stamp is the one drawn next.
            let (volume, offset) = ((n % 2) as u16, n / 2 * 16 * KIB);
            asked.push((world.write(volume, offset, 8 * KIB), volume, offset, n));
            world.pass(SECOND / 1000 + round * 40_000);
        }
        let first_stamp = stamp_at(&world, 0, 0);
        let done: Vec<_> = asked.iter().filter(|asked| world.reply(asked.0) == Some(true)).copied().collect();
        assert!(done.len() > 20 && done.len() < 60, "{} of 60 acknowledged", done.len());
        world.crash(0, true, SECOND);
        world.crash(1, true, SECOND * 2);
        world.until("both are back", |world| world.cluster.iter().all(|node| node.up()));
        world.drain();
        for node in 0..2 {
            let images = world.images_of(node);
            for (_, volume, offset, n) in &done {
                let sector = offset / SECTOR as u64;
                let expected = sector_bytes(SectorFill::Stamp(first_stamp + n), VolumeId(*volume), sector);
                let found = &images[usize::from(*volume)][*offset as usize..][..SECTOR];
                assert!(found == expected, "round {round}: node {node} lost write {n}");
            }
        }
    }
}

/// Which write the sector at the start of a volume holds.
fn stamp_at(world: &ScenarioWorld, node: usize, volume: usize) -> u64 {
    u64::from_le_bytes(world.images_of(node)[volume][..8].try_into().expect("eight bytes"))
}
