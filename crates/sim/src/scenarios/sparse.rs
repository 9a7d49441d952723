//! Sparse scenarios: a few blocks, a few writes, and much time between them. Where a seed's clients never stop, here everything
//! comes to rest between two steps, or is cut short in the midst of one. Each is drawn from its number, takes some hundred
//! virtual seconds and about ten real milliseconds, and ends healed and checked like a seed.

mod drawn;
mod openings;

use std::time::Duration;

use engine::limits::KIB;
use engine::state::{Degrade, Mode, Policy};
use engine::{Command, Input, NodeId, StartAlone, VolumeId};

use super::{GROUP, SECOND};
use crate::checkers::writes::ClientRequest;
use crate::nodes::node::{CleanStop, OutsideWrite};
use crate::options::SimOptions;
use crate::simulation::{RunOutcome, Simulation};
use crate::stamps::{SECTOR, SectorFill};
use crate::trips::{Instant, Trip};
use crate::world::World;

/// The unit of every write.
const BLOCK: u64 = 4 * KIB;

/// Requests that may wait for their answers at once.
const DEPTH: usize = 48;

/// How long the first sync may take.
const PEACE_NS: u64 = 20 * SECOND;

/// A member of the group by its part, as it is when the step comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupMember {
    /// Who served last.
    Primary,
    Secondary,
}

/// A range of whole blocks.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    pub volume: u16,
    pub first: u64,
    pub count: u64,
}

/// What a disk does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskDefect {
    /// Of those to come the one of this number.
    RecordFails(u64),
    FlushFails,
    WritesFail,
    AppliesFail,
    ReadsFail,
    /// Each read fails, and not some of them.
    Unreadable,
    VolumesFull,
    RecordsFull,
    Slow,
    Stalls,
}

/// One thing that happens in a scenario.
#[derive(Clone, Debug)]
pub enum SparseStep {
    Write {
        at: Blocks,
        fua: bool,
    },
    Zero {
        at: Blocks,
        no_hole: bool,
    },
    /// Several writes at once.
    Burst(Vec<Blocks>),
    Flush {
        volume: u16,
    },
    Cable([bool; 2]),
    /// Both ends drop the connection, or one does.
    Flap,
    HalfOpen,
    Crash {
        whom: GroupMember,
        power: bool,
        down_ns: u64,
    },
    PowerOfBoth {
        down_ns: [u64; 2],
    },
    /// A crash at an instant to come.
    Trip {
        whom: GroupMember,
        kind: Instant,
        at: u64,
        after: bool,
        power: bool,
        down_ns: u64,
    },
    /// A clean stop; what somebody writes meanwhile.
    Stop {
        whom: GroupMember,
        down_ns: u64,
        outside: Vec<Blocks>,
    },
    Order {
        whom: GroupMember,
        command: Command,
    },
    /// Typed at one of them, clients are held for so long.
    Switchover {
        whom: GroupMember,
        to: GroupMember,
        limit: Duration,
    },
    Mode(Mode),
    Policy(Policy),
    Degrade(Degrade),
    StartAlone(StartAlone),
    Autosync(bool),
    Queue {
        bytes: u64,
        items: u64,
    },
    WaitLimit(Duration),
    DropPoint(GroupMember),
    /// The node has so much larger devices at its next start.
    Grow {
        whom: GroupMember,
        bytes: u64,
    },
    Defect {
        whom: GroupMember,
        defect: DiskDefect,
        for_ns: u64,
    },
}

/// A world, and what happens in it: each step so long after the one before it.
#[derive(Clone, Debug)]
pub struct SparseScenario {
    pub options: SimOptions,
    /// So much longer than a write takes a flush of a volume, by node.
    pub flush_ns: [u64; 2],
    pub steps: Vec<(u64, SparseStep)>,
    /// After the last step it goes on for so long.
    pub epilogue_ns: u64,
}

impl SparseScenario {
    /// The scenario with these steps only; what came between them is waited for all the same.
    pub fn only(&self, kept: &[usize]) -> SparseScenario {
        let mut steps = Vec::new();
        let mut pause = 0;
        for (at, (before, step)) in self.steps.iter().enumerate() {
            pause += before;
            if kept.contains(&at) {
                steps.push((std::mem::take(&mut pause), step.clone()));
            }
        }
        SparseScenario { steps, epilogue_ns: pause + self.epilogue_ns, ..self.clone() }
    }

    /// Plays it and heals the world.
    pub fn run(&self, verbose: bool) -> RunOutcome {
        let mut simulation = Simulation::announced(self.options.clone(), verbose);
        simulation.world.unattended = true;
        simulation.run_until(SECOND / 2);
        if self.options.spread.is_none() {
            let world = &mut simulation.world;
            world.command(world.cluster.primary(GROUP), GROUP, Command::Sync { full: true });
        }
        while simulation.world.verdict().is_ok()
            && !simulation.world.cluster.in_step(GROUP)
            && simulation.world.now() < PEACE_NS
        {
            simulation.pass(SECOND / 20);
        }
        for (node, flush_ns) in simulation.world.cluster.iter_mut().zip(self.flush_ns) {
            node.storage.trouble.flush_ns = flush_ns;
        }
        for (number, (pause, step)) in self.steps.iter().enumerate() {
            simulation.pass(*pause);
            if simulation.world.verdict().is_err() {
                break;
            }
            simulation.world.log(format_args!("step {number}: {step:?}"));
            step.play(&mut simulation.world);
        }
        simulation.pass(self.epilogue_ns);
        simulation.world.unattended = false;
        simulation.heal();
        simulation.world.conclude()
    }
}

/// Plays one scenario.
pub fn run_sparse(number: u64, verbose: bool) -> RunOutcome {
    SparseScenario::draw(number).run(verbose)
}

// ---- how it is played ----------------------------------------------------------------------------------------------------

impl GroupMember {
    fn node(self, world: &World) -> usize {
        if self == GroupMember::Primary { world.cluster.primary(GROUP) } else { world.cluster.secondary(GROUP) }
    }
}

impl SparseStep {
    fn play(&self, world: &mut World) {
        match self {
            SparseStep::Write { at, fua } => at.ask(world, false, *fua, false),
            SparseStep::Zero { at, no_hole } => at.ask(world, true, false, *no_hole),
            SparseStep::Burst(writes) => writes.iter().for_each(|at| at.ask(world, false, false, false)),
            SparseStep::Flush { volume } if takes_requests(world) => _ = world.flush_at(GROUP, *volume),
            SparseStep::Flush { .. } => {}
            SparseStep::Cable(passes) => world.cut(*passes),
            SparseStep::Flap => world.flap([0, 1]),
            SparseStep::HalfOpen => world.half_open([0, 1]),
            SparseStep::Crash { whom, power, down_ns } => world.crash(whom.node(world), *power, *down_ns),
            SparseStep::PowerOfBoth { down_ns } => (0..2).for_each(|node| world.crash(node, true, down_ns[node])),
            SparseStep::Trip { whom, kind, at, after, power, down_ns } => {
                let (node, power, down_ns) = (whom.node(world), *power, *down_ns);
                world.trips.set_next(Trip { node, kind: *kind, at: *at, after: *after, power, down_ns });
            }
            SparseStep::Stop { whom, down_ns, outside } => stop(world, whom.node(world), *down_ns, outside),
            SparseStep::Order { whom, command } => {
                let node = whom.node(world);
                if world.cluster[node].up() {
                    world.command(node, GROUP, command.clone());
                }
            }
            SparseStep::Switchover { whom, to, limit } => {
                let (node, to) = (whom.node(world), NodeId(to.node(world) as u16));
                if world.cluster[node].up() {
                    world.command(
                        node,
                        GROUP,
                        Command::Switchover { to, limit: *limit, closes_export: false, only_asks: false },
                    );
                }
            }
            SparseStep::Grow { whom, bytes } => {
                let node = whom.node(world);
                world.cluster[node].storage.grows_by(*bytes);
            }
            SparseStep::Defect { whom, defect, for_ns } => defect.spoil(world, whom.node(world), *for_ns),
            SparseStep::DropPoint(whom) => {
                let node = whom.node(world);
                if let Some(name) = world.cluster.rollback_point(node, GROUP) {
                    world.command(node, GROUP, Command::DropRollbackPoint { name, discard: true });
                }
            }
            _ => self.change_settings(world),
        }
    }

    fn change_settings(&self, world: &mut World) {
        world.set(GROUP, |settings| match self {
            SparseStep::Mode(mode) => settings.mode = *mode,
            SparseStep::Policy(policy) => settings.policy = *policy,
            SparseStep::Degrade(degrade) => settings.degrade = *degrade,
            SparseStep::StartAlone(start_alone) => settings.start_alone = *start_alone,
            SparseStep::Autosync(autosync) => settings.autosync = *autosync,
            SparseStep::Queue { bytes, items } => (settings.queue_bytes, settings.queue_items) = (*bytes, *items),
            SparseStep::WaitLimit(limit) => settings.wait_limit = *limit,
            _ => {}
        });
    }
}

fn takes_requests(world: &World) -> bool {
    world.serves(GROUP) && world.checkers.writes.pending_on(world.cluster.primary(GROUP), GROUP) < DEPTH
}

impl Blocks {
    /// A client writes them, or zeroes.
    fn ask(self, world: &mut World, zero: bool, fua: bool, no_hole: bool) {
        if !takes_requests(world) {
            return;
        }
        let (volume, offset) = (VolumeId(self.volume), self.first * BLOCK);
        let options = &world.cluster.options;
        // The last block may be cut short.
        let length = options.fit(offset, (self.count * BLOCK).min(options.image_bytes() - offset));
        let fill = if zero { SectorFill::Zero } else { SectorFill::Stamp(world.checkers.writes.stamp(GROUP)) };
        let asked = ClientRequest::Write { volume, offset, length, fill, fua };
        world.ask(world.cluster.primary(GROUP), GROUP, asked, no_hole);
    }
}

fn stop(world: &mut World, node: usize, down_ns: u64, outside: &[Blocks]) {
    if !world.cluster[node].up() {
        return;
    }
    let (per_block, all) = (BLOCK / SECTOR as u64, world.cluster.options.image_bytes() / SECTOR as u64);
    let range = |at: &Blocks| {
        let first = at.first * per_block;
        let sectors = (at.count * per_block).min(all - first);
        OutsideWrite { group: GROUP, volume: VolumeId(at.volume), first, sectors }
    };
    world.cluster[node].plans_stop(CleanStop {
        down_ns,
        outside: outside.iter().map(range).collect(),
        takes_up_volumes: false,
    });
    world.input(node, Input::Stop);
}

impl DiskDefect {
    fn spoil(self, world: &mut World, node: usize, for_ns: u64) {
        let until = world.now() + for_ns;
        let trouble = &mut world.cluster[node].storage.trouble;
        match self {
            DiskDefect::RecordFails(nth) => trouble.fail_record_in = nth,
            DiskDefect::FlushFails => trouble.fail_next_flush = true,
            DiskDefect::WritesFail => trouble.write_errors_until = until,
            DiskDefect::AppliesFail => trouble.apply_errors_until = until,
            DiskDefect::ReadsFail => trouble.read_errors_until = until,
            DiskDefect::Unreadable => trouble.unreadable_until = until,
            DiskDefect::VolumesFull => (trouble.full_until, trouble.serving_full_until) = (until, until),
            DiskDefect::RecordsFull => trouble.state_full_until = until,
            DiskDefect::Slow => trouble.slow_until = until,
            DiskDefect::Stalls => trouble.stalled_until = until,
        }
    }
}
