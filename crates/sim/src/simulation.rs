//! A world and who acts in it, from the first sync to the verdict: first under fire, then healed.

mod mirrored;

use engine::GroupId;

use crate::actors::clients::WriteClients;
use crate::actors::faults::FaultInjector;
use crate::actors::operator::Operator;
use crate::actors::viewers::Viewers;
use crate::actors::{copies_records, restores_records};
use crate::checkers::marks;
use crate::nodes::storage::DiskTrouble;
use crate::options::SimOptions;
use crate::oracle::{Oracle, OracleFailure};
use crate::tally::RunTally;
use crate::world::{ActorCue, World, WorldEvent};

const SECOND: u64 = 1_000_000_000;

/// Virtual time after which a healed world must be in step.
const HEAL_LIMIT: u64 = 600 * SECOND;

/// Faults that each seed has at least; one that found nothing to do does not count.
const FAULTS_MIN: u64 = 6;

/// Virtual time by which a seed has had its least of everything.
const SEED_LIMIT: u64 = 3000 * SECOND;

/// Strikes of a skirmish.
const SKIRMISH_STRIKES: usize = 120;

/// Virtual time after which a skirmish ends though it had fewer.
const SKIRMISH_LIMIT: u64 = 600 * SECOND;

/// One of so many seeds has a life as well.
const LIFE_EVERY: u64 = 4;

/// What befalls a life.
const LIFE_STRIKES: usize = 90;

/// Faults that a crowd goes through before it is healed.
const CROWD_STRIKES: usize = 8;

/// Virtual time by which it had them.
const CROWD_LIMIT: u64 = 300 * SECOND;

/// How a run ended, and what it came to.
pub type RunOutcome = (Result<(), OracleFailure>, RunTally);

/// Runs a seed; each of its steps is told, or none.
pub type SeedRun = fn(u64, bool) -> RunOutcome;

/// One of so many seeds has a crowd as well.
const CROWD_EVERY: u64 = 32;

/// Runs all that a seed has: its skirmish, in one of 4 its life, in one of 32 its crowd, then itself.
pub fn run_seed(seed: u64, verbose: bool) -> RunOutcome {
    let (has_crowd, has_life) = (seed % CROWD_EVERY == CROWD_EVERY / 2, seed % LIFE_EVERY == 1);
    let runs: [(bool, SeedRun); 3] = [(has_life, run_life), (has_crowd, run_crowd), (true, run_long)];
    let (mut verdict, mut tally) = run_skirmish(seed, verbose);
    for (has_it, run) in runs {
        if has_it && verdict.is_ok() {
            let (ended, came_to) = run(seed, verbose);
            verdict = ended;
            tally.add(&came_to);
        }
    }
    (verdict, tally)
}

/// Safety under fire, then healing and convergence.
fn run_long(seed: u64, verbose: bool) -> RunOutcome {
    run(SimOptions::draw(seed), verbose)
}

/// Runs a seed in a world with wide volumes, whatever else it draws.
pub fn run_wide(seed: u64, verbose: bool) -> RunOutcome {
    run(SimOptions::draw_wide(seed), verbose)
}

fn run(options: SimOptions, verbose: bool) -> RunOutcome {
    let mut simulation = Simulation::announced(options, verbose);
    // The first sync, in peace.
    simulation.run_until(20 * SECOND);
    simulation.start_clients();
    let mut until = simulation.world.now();
    while simulation.world.goes_on() && !simulation.had_its_least() && until < SEED_LIMIT {
        until += SECOND / 10;
        simulation.run_until(until);
    }
    simulation.check_least();
    simulation.heal();
    simulation.world.conclude()
}

/// Runs a seed's skirmish: commands and faults without a pause, from the first sync on or from before it; then healing and
/// convergence.
pub fn run_skirmish(seed: u64, verbose: bool) -> RunOutcome {
    let simulation = Simulation::announced(SimOptions::draw_skirmish(seed), verbose);
    simulation.strikes([0, SECOND, 20 * SECOND], SKIRMISH_STRIKES, SKIRMISH_LIMIT)
}

/// Runs a seed's life: groups that get other volumes, and lose disks; then healing and convergence.
pub fn run_life(seed: u64, verbose: bool) -> RunOutcome {
    let simulation = Simulation::announced(SimOptions::draw_life(seed), verbose);
    simulation.strikes([5 * SECOND, 5 * SECOND, 20 * SECOND], LIFE_STRIKES, SKIRMISH_LIMIT)
}

/// Runs a seed's crowd: faults that have everybody catch up, then healing and convergence.
pub fn run_crowd(seed: u64, verbose: bool) -> RunOutcome {
    let simulation = Simulation::announced(SimOptions::draw_crowd(seed), verbose);
    simulation.strikes([0, 5 * SECOND, 30 * SECOND], CROWD_STRIKES, CROWD_LIMIT)
}

/// With the feature, all of a process that has no option for it runs with the fault that `FARSHORE_INJECT` names: scenarios, for what seeds do not show.
fn may_inject() {
    #[cfg(feature = "injected-faults")]
    if let Ok(fault) = std::env::var("FARSHORE_INJECT") {
        assert!(engine::injected_fault::inject(&fault), "there is no fault {fault}");
    }
}

pub struct Simulation {
    pub world: World,
    operator: Operator,
    faults: FaultInjector,
    clients: WriteClients,
    viewers: Viewers,
}

impl Simulation {
    pub fn new(options: SimOptions, verbose: bool) -> Simulation {
        may_inject();
        let first_records = mirrored::first_records(&options);
        Simulation {
            world: World::new(options, first_records, verbose),
            operator: Operator::default(),
            faults: FaultInjector::default(),
            clients: WriteClients::default(),
            viewers: Viewers::default(),
        }
    }

    /// The same, which says first what its world is.
    pub fn announced(options: SimOptions, verbose: bool) -> Simulation {
        let simulation = Simulation::new(options, verbose);
        simulation.world.log(format_args!("{:?}", simulation.world.cluster.options));
        simulation
    }

    /// Runs until `until` or a verdict.
    pub fn run_until(&mut self, until: u64) {
        while let Some(cue) = self.world.run_to_cue(until) {
            self.act(cue);
        }
    }

    pub fn pass(&mut self, time_ns: u64) {
        self.run_until(self.world.now() + time_ns);
    }

    fn act(&mut self, cue: ActorCue) {
        let world = &mut self.world;
        match cue {
            ActorCue::Client => self.clients.act(world),
            ActorCue::Fault => self.faults.act(world, &mut self.operator, &mut self.clients),
            ActorCue::Operator if world.unattended => {}
            ActorCue::Operator => {
                self.operator.act(world);
                self.viewers.act(world);
            }
            ActorCue::MidSync(group) => {
                if self.operator.mid_sync(world, group) {
                    self.clients.set_burst(0);
                }
            }
            ActorCue::Copy(_) | ActorCue::Restore(_) if self.faults.is_over() => {}
            ActorCue::Copy(group) => copies_records(world, group),
            ActorCue::Restore(copy) => restores_records(world, &self.operator, copy),
        }
    }

    fn start_clients(&mut self) {
        self.world.timeline.schedule(1, WorldEvent::Cue(ActorCue::Client));
        self.world.timeline.schedule(1, WorldEvent::Cue(ActorCue::Fault));
        if self.world.cluster.options.slow_delay_ns > 0 {
            self.world.timeline.schedule(1, WorldEvent::LinesChange);
        }
    }

    /// After one of these times so many strikes at most, within a limit; then it is healed.
    fn strikes(mut self, peace: [u64; 3], strikes_max: usize, limit: u64) -> RunOutcome {
        let peace = *self.world.rng.pick(&peace);
        self.run_until(peace);
        self.start_clients();
        while self.world.verdict().is_ok() && self.faults.strikes() < strikes_max && self.world.now() < limit {
            self.pass(SECOND / 10);
        }
        self.heal();
        self.world.conclude()
    }

    fn had_its_least(&self) -> bool {
        let (writes, overlaps) = self.world.checkers.writes.writes();
        let tally = &self.world.tally;
        writes >= self.world.cluster.options.writes
            && overlaps * 10 >= writes
            && tally.faults >= FAULTS_MIN
            && tally.crashes.iter().all(|c| *c > 0)
    }

    fn check_least(&mut self) {
        if !self.world.goes_on() || self.had_its_least() {
            return;
        }
        let (writes, overlaps) = self.world.checkers.writes.writes();
        let RunTally { faults, crashes, .. } = &self.world.tally;
        let what = format!(
            "{writes} writes, {overlaps} of them overlapping, {faults} faults and {crashes:?} crashes are fewer than each seed has"
        );
        self.world.fail(OracleFailure::new(Oracle::Liveness, what));
    }

    /// No more faults, no more writes: everything must come back, answer, and become equal.
    pub fn heal(&mut self) {
        if !self.world.goes_on() {
            return;
        }
        self.world.log(format_args!("healing"));
        self.operator.heals();
        self.viewers.heal();
        self.faults.end();
        self.clients.fall_silent();
        self.world.restore_path();
        self.world.is_steady = true;
        self.world.network.set_delay(self.world.cluster.options.delay_ns);
        for node in self.world.cluster.iter_mut() {
            // What a stalled disk holds back stays held back until its time.
            let trouble = &mut node.storage.trouble;
            *trouble = DiskTrouble { stalled_until: trouble.stalled_until, ..DiskTrouble::default() };
        }
        let limit = self.world.now() + HEAL_LIMIT;
        while self.world.goes_on() && self.world.now() < limit {
            self.pass(SECOND / 2);
            let mut groups = self.world.cluster.groups();
            if self.world.checkers.writes.pending() == 0 && groups.all(|group| self.in_step_or_lost(group)) {
                break;
            }
        }
        for group in self.world.cluster.groups() {
            if self.world.goes_on() && !self.world.checkers.is_lost(&self.world.cluster, group) {
                self.check_rest(group);
            }
        }
    }

    fn in_step_or_lost(&self, group: GroupId) -> bool {
        let cluster = &self.world.cluster;
        cluster.in_step(group) && marks::are_settled(cluster, group) || self.world.checkers.is_lost(cluster, group)
    }

    /// The group is in step, both its copies are equal, and the secondary's is the prefix that it claims.
    fn check_rest(&mut self, group: GroupId) {
        let world = &mut self.world;
        let pending = world.checkers.writes.pending();
        if world.cluster.in_step(group) && pending == 0 {
            let at_rest = world.checkers.check_rest(&world.cluster, group);
            return world.check(at_rest);
        }
        let what = format!(
            "group {} is not in step {} s after healing; {pending} requests unanswered; primary {:?}; secondary {:?}",
            group.0,
            HEAL_LIMIT / SECOND,
            world.glance(world.cluster.primary(group), group),
            world.glance(world.cluster.secondary(group), group),
        );
        world.explain();
        world.fail(OracleFailure::new(Oracle::Liveness, what));
    }
}
