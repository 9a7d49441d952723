//! Sparse scenarios: a few blocks, a few writes, and much time between them. Where a seed's clients never stop, here everything
//! comes to rest between two steps, or is cut short in the midst of one. Each is drawn from its number, takes some hundred
//! virtual seconds and about ten real milliseconds, and ends healed and judged like a seed.

use std::time::Duration;

use engine::limits::KIB;
use engine::state::{Mode, Policy};
use engine::{Command, GroupId, Input, Request, RequestId, StartAlone, VolumeId};

use crate::disk::SECTOR;
use crate::heal;
use crate::judge::{Asked, Fill, content};
use crate::oracle::Failure;
use crate::outside::{Outside, Stop};
use crate::payload::Payload;
use crate::story::{GROUP, SECOND};
use crate::swarm::Options;
use crate::trip::{Instant, Trip};
use crate::world::{Tally, World};

/// The unit of every write.
pub(crate) const BLOCK: u64 = 4 * KIB;

/// Requests that may wait for their answers at once.
const DEPTH: usize = 48;

/// How long the first sync may take.
const PEACE_NS: u64 = 20 * SECOND;

/// A member of the group by its part, as it is when the step comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
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
pub enum Defect {
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
pub enum Step {
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
        whom: Whom,
        power: bool,
        down_ns: u64,
    },
    PowerOfBoth {
        down_ns: [u64; 2],
    },
    /// A crash at an instant to come.
    Trip {
        whom: Whom,
        kind: Instant,
        at: u64,
        after: bool,
        power: bool,
        down_ns: u64,
    },
    /// A clean stop; what somebody writes meanwhile.
    Stop {
        whom: Whom,
        down_ns: u64,
        outside: Vec<Blocks>,
    },
    Order {
        whom: Whom,
        command: Command,
    },
    Mode(Mode),
    Policy(Policy),
    StartAlone(StartAlone),
    Autosync(bool),
    Queue {
        bytes: u64,
        items: u64,
    },
    WaitLimit(Duration),
    DropPoint(Whom),
    /// The node has so much larger devices at its next start.
    Grow {
        whom: Whom,
        bytes: u64,
    },
    Defect {
        whom: Whom,
        defect: Defect,
        for_ns: u64,
    },
}

/// A world, and what happens in it: each step so long after the one before it.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub options: Options,
    /// So much longer than a write takes a flush of a volume, by node.
    pub flush_ns: [u64; 2],
    pub steps: Vec<(u64, Step)>,
    /// After the last step it goes on for so long.
    pub epilogue_ns: u64,
}

impl Scenario {
    /// The scenario with these steps only; what came between them is waited for all the same.
    pub fn only(&self, kept: &[usize]) -> Scenario {
        let mut steps = Vec::new();
        let mut pause = 0;
        for (at, (before, step)) in self.steps.iter().enumerate() {
            pause += before;
            if kept.contains(&at) {
                steps.push((std::mem::take(&mut pause), step.clone()));
            }
        }
        Scenario { steps, epilogue_ns: pause + self.epilogue_ns, ..self.clone() }
    }

    /// Plays it, heals the world and judges it.
    pub fn run(&self, verbose: bool) -> (Result<(), Failure>, Tally) {
        let mut world = World::new(self.options.clone(), verbose);
        world.log(format_args!("{:?}", self.options));
        world.operator.rests = true;
        world.run_until(SECOND / 2);
        let primary = world.operator.authority(GROUP);
        if self.options.spread.is_none() {
            world.command(primary, GROUP, Command::Sync { full: true });
        }
        while world.verdict.is_ok() && !world.in_step(GROUP) && world.now < PEACE_NS {
            world.run_until(world.now + SECOND / 20);
        }
        world.nodes.iter_mut().zip(self.flush_ns).for_each(|(node, flush_ns)| node.trouble.flush_ns = flush_ns);
        for (number, (pause, step)) in self.steps.iter().enumerate() {
            world.run_until(world.now + pause);
            if world.verdict.is_err() {
                break;
            }
            world.log(format_args!("step {number}: {step:?}"));
            world.play(step);
        }
        world.run_until(world.now + self.epilogue_ns);
        world.operator.rests = false;
        heal(&mut world);
        world.conclude()
    }
}

/// Plays one scenario and judges it.
pub fn run_sparse(number: u64, verbose: bool) -> (Result<(), Failure>, Tally) {
    Scenario::draw(number).run(verbose)
}

// ---- how it is played ----------------------------------------------------------------------------------------------------

impl World {
    fn who(&self, whom: Whom) -> usize {
        let primary = self.operator.authority(GROUP);
        if whom == Whom::Primary { primary } else { self.other(GROUP, primary) }
    }

    fn play(&mut self, step: &Step) {
        match step {
            Step::Write { at, fua } => {
                let fill = Fill::Stamp(self.judge.stamp(GROUP));
                self.client_writes(*at, fill, *fua, false);
            }
            Step::Zero { at, no_hole } => self.client_writes(*at, Fill::Zero, false, *no_hole),
            Step::Burst(writes) => {
                for at in writes {
                    let fill = Fill::Stamp(self.judge.stamp(GROUP));
                    self.client_writes(*at, fill, false, false);
                }
            }
            Step::Flush { volume } if self.takes_requests() => _ = self.flush(*volume),
            Step::Flush { .. } => {}
            Step::Cable(passes) => self.cut(*passes),
            Step::Flap => self.flap([0, 1]),
            Step::HalfOpen => self.half_open([0, 1]),
            Step::Crash { whom, power, down_ns } => self.crash(self.who(*whom), *power, *down_ns),
            Step::PowerOfBoth { down_ns } => (0..2).for_each(|node| self.crash(node, true, down_ns[node])),
            Step::Trip { whom, kind, at, after, power, down_ns } => {
                let node = self.who(*whom);
                self.trips.counted[node] = [0; 2];
                let trip = Trip { node, kind: *kind, at: *at, after: *after, power: *power, down_ns: *down_ns };
                self.trips.due = vec![trip];
            }
            Step::Stop { whom, down_ns, outside } => self.stops(self.who(*whom), *down_ns, outside),
            Step::Order { whom, command } => {
                let node = self.who(*whom);
                if self.nodes[node].up() {
                    self.command(node, GROUP, command.clone());
                }
            }
            Step::Grow { whom, bytes } => {
                let node = self.who(*whom);
                self.nodes[node].grows_bytes += bytes;
            }
            Step::Defect { whom, defect, for_ns } => self.spoils(self.who(*whom), *defect, *for_ns),
            Step::DropPoint(whom) => {
                let node = self.who(*whom);
                if let Some(name) = self.rollback_point(node, GROUP) {
                    self.command(node, GROUP, Command::DropRollbackPoint { name });
                }
            }
            _ => self.changes_settings(step),
        }
    }

    fn changes_settings(&mut self, step: &Step) {
        self.set(GROUP, |settings| match step {
            Step::Mode(mode) => settings.mode = *mode,
            Step::Policy(policy) => settings.policy = *policy,
            Step::StartAlone(start_alone) => settings.start_alone = *start_alone,
            Step::Autosync(autosync) => settings.autosync = *autosync,
            Step::Queue { bytes, items } => (settings.queue_bytes, settings.queue_items) = (*bytes, *items),
            Step::WaitLimit(limit) => settings.wait_limit = *limit,
            _ => {}
        });
    }

    fn takes_requests(&self) -> bool {
        let node = self.operator.authority(GROUP);
        let serves = self.nodes[node].up() && self.nodes[node].serving.contains(&GROUP);
        serves && self.judge.pending_on(node, GROUP) < DEPTH
    }

    fn client_writes(&mut self, at: Blocks, fill: Fill, fua: bool, no_hole: bool) {
        if !self.takes_requests() {
            return;
        }
        let node = self.operator.authority(GROUP);
        let (volume, image) = (VolumeId(at.volume), at.first * BLOCK);
        // The last block may be cut short.
        let mut length = (at.count * BLOCK).min(self.options.image_bytes() - image);
        if let Some(spread) = &self.options.spread {
            length = spread.fit(image, length);
        }
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let asked = Asked::Write { volume, offset: image, length, fill, fua };
        self.judge.issued(id, node, GROUP, asked, self.now);
        let offset = self.options.placed(image);
        let request = match fill {
            Fill::Zero => Request::Zero { offset, length, no_hole, fua },
            Fill::Stamp(_) => {
                let sectors = image / SECTOR as u64..(image + length) / SECTOR as u64;
                let buf = Payload::handed_over(content(fill, volume, sectors), self.nodes[node].queued(GROUP));
                Request::Write { offset, length, buf, fua }
            }
        };
        self.input(node, Input::Request { group: GROUP, volume, id, request });
    }

    fn stops(&mut self, node: usize, down_ns: u64, outside: &[Blocks]) {
        if !self.nodes[node].up() {
            return;
        }
        let (per_block, all) = (BLOCK / SECTOR as u64, self.options.image_bytes() / SECTOR as u64);
        let range = |at: &Blocks| {
            let first = at.first * per_block;
            let sectors = (at.count * per_block).min(all - first);
            Outside { group: GroupId(0), volume: VolumeId(at.volume), first, sectors }
        };
        self.nodes[node].stop = Some(Stop { down_ns, outside: outside.iter().map(range).collect() });
        self.input(node, Input::Stop);
    }

    fn spoils(&mut self, node: usize, defect: Defect, for_ns: u64) {
        let until = self.now + for_ns;
        let trouble = &mut self.nodes[node].trouble;
        match defect {
            Defect::RecordFails(nth) => trouble.fail_record_in = nth,
            Defect::FlushFails => trouble.fail_next_flush = true,
            Defect::WritesFail => trouble.write_errors_until = until,
            Defect::AppliesFail => trouble.apply_errors_until = until,
            Defect::ReadsFail => trouble.read_errors_until = until,
            Defect::Unreadable => trouble.unreadable_until = until,
            Defect::VolumesFull => (trouble.full_until, trouble.serving_full_until) = (until, until),
            Defect::RecordsFull => trouble.state_full_until = until,
            Defect::Slow => trouble.slow_until = until,
            Defect::Stalls => trouble.stalled_until = until,
        }
    }
}
