//! Whole clusters of engines in virtual time, with disks that forget and paths that are cut. One seed is one run, and
//! always the same run. Judges live outside the engine; a run is first under fire, then healed, and must converge.

#![forbid(unsafe_code)]

mod awaited;
pub mod crowd;
pub mod damage;
mod devices;
pub mod disk;
mod drawn;
pub mod enumerate;
pub mod faults;
pub mod gates;
pub mod judge;
pub mod liar;
pub mod net;
pub mod node;
mod openings;
pub mod operator;
pub mod oracle;
pub mod outside;
pub mod payload;
mod pulled;
pub mod rng;
pub mod runner;
pub mod script;
pub mod sparse;
pub mod storage;
pub mod story;
pub mod swarm;
pub mod trip;
pub mod watch;
pub mod wide;
pub mod workload;
pub mod world;

use engine::GroupId;

use crate::node::Trouble;
use crate::oracle::{Failure, Oracle};
use crate::swarm::Options;
use crate::world::{Tally, World};

const SECOND: u64 = 1_000_000_000;

/// Virtual time after which a healed world must be in step.
const HEAL_LIMIT: u64 = 600 * SECOND;

/// Faults that each seed has at least; one that found nothing to do does not count.
const FAULTS_MIN: u64 = 6;

/// Virtual time by which a seed has had its least of everything.
const SEED_LIMIT: u64 = 3000 * SECOND;

/// Runs one seed: safety under fire, then healing and convergence.
pub fn run_seed(seed: u64, verbose: bool) -> (Result<(), Failure>, Tally) {
    run(Options::draw(seed), verbose)
}

pub(crate) fn run(options: Options, verbose: bool) -> (Result<(), Failure>, Tally) {
    let mut world = World::new(options, verbose);
    world.log(format_args!("{:?}", world.options));
    // The first sync, in peace.
    world.run_until(20 * SECOND);
    world.start_clients();
    let mut until = world.now;
    let enough = |w: &World| {
        w.over
            || w.judge.writes >= w.options.writes
                && w.judge.overlaps * 10 >= w.judge.writes
                && w.tally.faults >= FAULTS_MIN
                && w.tally.crashes.iter().all(|c| *c > 0)
    };
    while world.verdict.is_ok() && !enough(&world) && until < SEED_LIMIT {
        until += SECOND / 10;
        world.run_until(until);
    }
    if world.verdict.is_ok() && !enough(&world) {
        let Tally { faults, crashes, .. } = &world.tally;
        let what = format!(
            "{} writes, {} of them overlapping, {faults} faults and {crashes:?} crashes are fewer than each seed has",
            world.judge.writes, world.judge.overlaps
        );
        world.fail(Failure::new(Oracle::Liveness, what));
    }
    heal(&mut world);
    world.conclude()
}

/// Strikes of a skirmish.
const SKIRMISH_STRIKES: usize = 120;

/// Virtual time after which a skirmish ends though it had fewer.
const SKIRMISH_LIMIT: u64 = 600 * SECOND;

/// Runs a seed's skirmish: commands and faults without a pause, from the first sync on or from before it; then healing and
/// convergence.
pub fn run_skirmish(seed: u64, verbose: bool) -> (Result<(), Failure>, Tally) {
    let mut world = World::new(Options::draw_skirmish(seed), verbose);
    world.log(format_args!("{:?}", world.options));
    let peace = *world.rng.pick(&[0, SECOND, 20 * SECOND]);
    world.run_until(peace);
    world.start_clients();
    while world.verdict.is_ok() && world.strikes < SKIRMISH_STRIKES && world.now < SKIRMISH_LIMIT {
        let until = world.now + SECOND / 10;
        world.run_until(until);
    }
    heal(&mut world);
    world.conclude()
}

/// No more faults, no more writes: everything must come back, answer, and become equal.
pub fn heal(world: &mut World) {
    if world.verdict.is_err() || world.over {
        return;
    }
    world.log(format_args!("healing"));
    world.healing = true;
    world.restore_path();
    for node in &mut world.nodes {
        // What a stalled disk holds back stays held back until its time.
        node.trouble = Trouble { stalled_until: node.trouble.stalled_until, ..Trouble::default() };
    }
    let groups: Vec<GroupId> = (0..world.options.groups()).map(GroupId).collect();
    let limit = world.now + HEAL_LIMIT;
    while world.verdict.is_ok() && !world.over && world.now < limit {
        let until = world.now + SECOND / 2;
        world.run_until(until);
        if world.judge.pending() == 0 && groups.iter().all(|g| world.in_step(*g) || world.is_lost(*g)) {
            break;
        }
    }
    for group in groups {
        if world.verdict.is_ok() && !world.over && !world.is_lost(group) {
            judge_rest(world, group);
        }
    }
}

/// The group is in step, both its copies are equal, and the secondary's is the prefix that it claims.
fn judge_rest(world: &mut World, group: GroupId) {
    let [a, b] = world.options.pairs[group.0 as usize];
    if !world.in_step(group) || world.judge.pending() > 0 {
        let primary = world.operator.authority(group);
        let what = format!(
            "group {} is not in step {} s after healing; {} requests unanswered; primary {:?}; secondary {:?}",
            group.0,
            HEAL_LIMIT / SECOND,
            world.judge.pending(),
            world.glance(primary, group),
            world.glance(world.other(group, primary), group),
        );
        for node in [a, b] {
            let inside = world.nodes[node].engine.as_ref().map(|e| e.explain(group));
            world.log(format_args!("node {node}: {inside:?}"));
        }
        world.log(format_args!("{}", world.net.explain()));
        return world.fail(Failure::new(Oracle::Liveness, what));
    }
    let (x, y) = (world.nodes[a].views(group), world.nodes[b].views(group));
    if let Err(failure) = world.judge.check_equal(group, &x, &y) {
        return world.fail(failure);
    }
    world.check_larger_part(group);
    let secondary = world.other(group, world.operator.authority(group));
    world.check_secondary(secondary, group);
}

impl World {
    /// The verdict and the counts.
    pub fn conclude(mut self) -> (Result<(), Failure>, Tally) {
        let mut tally = std::mem::take(&mut self.tally);
        for engine in self.nodes.iter().filter_map(|node| node.engine.as_ref()) {
            tally.marks.add(engine.marks());
        }
        tally.writes = self.judge.writes;
        tally.overlaps = self.judge.overlaps;
        tally.prefix_checks = self.judge.prefix_checks;
        tally.coverage_checks = self.watch.coverage_checks;
        tally.virtual_ns = self.now;
        tally.unjudged = u64::from(self.over);
        (self.verdict, tally)
    }
}
