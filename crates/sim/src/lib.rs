//! Whole clusters of engines in virtual time, with disks that forget and paths that are cut. One seed is one run, and
//! always the same run. Judges live outside the engine; a run is first under fire, then healed, and must converge.

#![forbid(unsafe_code)]

pub mod disk;
pub mod judge;
pub mod net;
pub mod node;
pub mod operator;
pub mod rng;
pub mod story;
pub mod swarm;
pub mod workload;
pub mod world;

use engine::GroupId;

use crate::swarm::Options;
use crate::world::{Failure, Tally, World};

const SECOND: u64 = 1_000_000_000;

/// Virtual time after which a healed world must be in step.
const HEAL_LIMIT: u64 = 600 * SECOND;

/// Runs one seed: safety under fire, then healing and convergence.
pub fn run_seed(seed: u64, verbose: bool) -> (Result<(), Failure>, Tally) {
    let mut world = World::new(Options::draw(seed), verbose);
    world.log(format_args!("{:?}", world.options));
    // The first sync, in peace.
    world.run_until(20 * SECOND);
    world.start_clients();
    let mut until = world.now;
    let enough = |w: &World| {
        w.judge.writes >= w.options.writes
            && w.judge.overlaps * 10 >= w.judge.writes
            && w.tally.faults >= 6
            && w.tally.crashes.iter().all(|c| *c > 0)
    };
    while world.verdict.is_ok() && !enough(&world) && until < 3000 * SECOND {
        until += SECOND / 10;
        world.run_until(until);
    }
    heal(&mut world);
    let mut tally = std::mem::take(&mut world.tally);
    for node in &world.nodes {
        if let Some(engine) = &node.engine {
            tally.marks.add(engine.marks());
        }
    }
    tally.writes = world.judge.writes;
    tally.overlaps = world.judge.overlaps;
    tally.prefix_checks = world.judge.prefix_checks;
    tally.virtual_ns = world.now;
    (world.verdict, tally)
}

/// No more faults, no more writes: everything must come back, answer, and become equal.
fn heal(world: &mut World) {
    if world.verdict.is_err() {
        return;
    }
    world.log(format_args!("healing"));
    world.healing = true;
    world.restore_path();
    for node in &mut world.nodes {
        node.trouble = Default::default();
    }
    let groups: Vec<GroupId> = (0..world.options.groups).map(GroupId).collect();
    let limit = world.now + HEAL_LIMIT;
    while world.verdict.is_ok() && world.now < limit {
        let until = world.now + SECOND / 2;
        world.run_until(until);
        if world.judge.pending() == 0 && groups.iter().all(|g| world.in_step(*g)) {
            break;
        }
    }
    if world.verdict.is_err() {
        return;
    }
    for group in groups {
        if !world.in_step(group) || world.judge.pending() > 0 {
            let primary = world.operator.authority(group);
            let what = format!(
                "group {} is not in step {} s after healing; {} requests unanswered; primary {:?}; secondary {:?}",
                group.0,
                HEAL_LIMIT / SECOND,
                world.judge.pending(),
                world.glance(primary, group),
                world.glance(1 - primary, group),
            );
            for node in &world.nodes {
                let inside = node.engine.as_ref().map(|e| e.explain(group));
                world.log(format_args!("node {}: {inside:?}", node.id));
            }
            return world.fail(Failure::Liveness(what));
        }
        let (a, b) = (world.nodes[0].images(group), world.nodes[1].images(group));
        if let Err(v) = world.judge.check_equal(group, &a, &b) {
            return world.fail(v.into());
        }
        let secondary = 1 - world.operator.authority(group);
        world.check_secondary(secondary, group);
    }
}
