//! A sparse volume costs a full sync what it holds: holes are neither read nor sent as data, and read as zeroes on the other side
//! whatever stood there.

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult};
use sim::options::SimOptions;
use sim::scenarios::{MILLISECOND, SECOND, ScenarioWorld, options};

fn sparse() -> SimOptions {
    SimOptions { volume_bytes: 32 * MIB + 20 * KIB, history_bytes: 256 * MIB, ..options(Mode::Async, Policy::Degrade) }
}

fn logging(world: &mut ScenarioWorld) {
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
}

#[test]
fn a_full_sync_reads_what_the_volume_holds() {
    let mut world = ScenarioWorld::new(sparse());
    world.pass(SECOND);
    let at: Vec<u64> = vec![0, 5 * MIB + 4 * KIB, 31 * MIB, 32 * MIB + 16 * KIB];
    let writes: Vec<_> = at.iter().map(|offset| world.write(0, *offset, 4 * KIB)).collect();
    writes.into_iter().for_each(|id| assert!(world.answer(id).0));
    let before = world.cluster[0].storage.volume_read_bytes();
    assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
    world.drain();
    let read = world.cluster[0].storage.volume_read_bytes() - before;
    let figures = world.figures(0);
    // Volumes of a scenario are not empty from the start.
    let holds = |region: &&[u8]| region.iter().any(|byte| *byte != 0);
    let regions =
        world.images_of(0).iter().map(|image| image.chunks(32 << 10).filter(holds).count() as u64).sum::<u64>();
    let held = regions * 32 * KIB;
    println!("{held} bytes held of 64 MiB, {read} read, {} sent", figures.shipped_bytes);
    assert!(held < 20 * MIB && read <= held + MIB, "{read} bytes read, {held} held");
    assert!(figures.shipped_bytes <= held + MIB, "{} bytes sent", figures.shipped_bytes);
    assert!(figures.resynced_bytes >= 64 * MIB, "all of it is accounted for: {}", figures.resynced_bytes);
}

#[test]
fn a_hole_becomes_zeroes_where_the_secondary_holds_something() {
    let mut world = ScenarioWorld::in_peace(sparse());
    for n in 0..32 {
        world.write_done(0, n * MIB, 512 * KIB);
    }
    world.drain();
    logging(&mut world);
    let id = world.zero(0, MIB, 29 * MIB, false);
    assert!(world.answer(id).0);
    let found = world.coverage(0, CoveragePoint::HoleFound);
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    // Equal on both sides, says draining.
    world.drain();
    assert!(world.coverage(0, CoveragePoint::HoleFound) > found);
}

// proves: rule 7
/// Writers come into the range while it is asked about, and after: they wait for the answer, and their writes come after the hole.
#[test]
fn writes_into_a_hole_that_travels_come_after_it() {
    let mut world = ScenarioWorld::in_peace(sparse());
    logging(&mut world);
    let id = world.zero(0, 0, 30 * MIB, false);
    assert!(world.answer(id).0);
    world.cluster[0].storage.trouble.slow_until = world.now() + 2 * SECOND;
    world.command(0, sim::scenarios::GROUP, Command::Sync { full: false });
    let mut ids = Vec::new();
    for n in 0..400u64 {
        ids.push(world.write(0, n * 7919 % 7600 * 4 * KIB, 4 * KIB));
        world.pass(MILLISECOND);
    }
    world.until("all are answered", |world| ids.iter().all(|id| world.reply(*id) == Some(true)));
    world.drain();
}
