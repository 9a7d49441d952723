//! What goes wrong in a seed, and when.

use std::rc::Rc;
use std::time::Duration;

use engine::state::Mode;
use engine::{Command, CommandResult, GroupId, Input, StartAlone, VolumeId};

use crate::disk::SECTOR;
use crate::operator::Plan;
use crate::outside::{Outside, Stop};
use crate::rng::Rng;
use crate::swarm::Options;
use crate::world::{Event, World};

const SECOND: u64 = 1_000_000_000;
const HOUR: i64 = 3_600_000_000_000;

/// Bursts over which a seed's writes are spread.
const ROUNDS: u64 = 10;
/// How long a round waits for everybody to be in step.
const SETTLE_LIMIT: u64 = 15 * SECOND;

/// Where a seed is in its round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A burst begins.
    Load,
    /// In its midst something goes wrong.
    Strike,
    /// Everybody may come to rest.
    Settle { until: u64 },
}

/// What can go wrong; each seed draws some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    KillPrimary,
    KillSecondary,
    PowerPrimary,
    PowerSecondary,
    PowerBoth,
    CleanRestart,
    Cut,
    CutOneWay,
    Swizzle,
    Flap,
    HalfOpen,
    DuplicateSession,
    ClockJump,
    LocalWriteErrors,
    ApplyErrors,
    RecordError,
    FlushFails,
    SecondaryFull,
    ReadErrors,
    SlowSecondary,
    SlowPrimary,
    StalledSecondary,
    /// While a node has no power, a bit of one of its records turns over.
    Rot,
    /// The same, and nothing of its bitmap or its activity log is left whole.
    RotAll,
    /// The same, and a write meant for another place is found over one of its records.
    Astray,
    /// A secondary's records come back as they were a while ago.
    OldCopy,
    /// The secondary's disks are slow, and in their midst its power fails, or the primary's does for good.
    SlowThenPower,
    ModeChange,
    Switchover,
    Failover,
    OperatorLogging,
    FullSync,
    /// Any command, to any node, at any moment.
    Whim,
    /// The same to both nodes at once.
    WhimOfTwo,
}

impl Fault {
    pub const ALL: [Fault; 34] = [
        Fault::KillPrimary,
        Fault::KillSecondary,
        Fault::PowerPrimary,
        Fault::PowerSecondary,
        Fault::PowerBoth,
        Fault::CleanRestart,
        Fault::Cut,
        Fault::CutOneWay,
        Fault::Swizzle,
        Fault::Flap,
        Fault::HalfOpen,
        Fault::DuplicateSession,
        Fault::ClockJump,
        Fault::LocalWriteErrors,
        Fault::ApplyErrors,
        Fault::RecordError,
        Fault::FlushFails,
        Fault::SecondaryFull,
        Fault::ReadErrors,
        Fault::SlowSecondary,
        Fault::SlowPrimary,
        Fault::StalledSecondary,
        Fault::Rot,
        Fault::RotAll,
        Fault::Astray,
        Fault::OldCopy,
        Fault::SlowThenPower,
        Fault::ModeChange,
        Fault::Switchover,
        Fault::Failover,
        Fault::OperatorLogging,
        Fault::FullSync,
        Fault::Whim,
        Fault::WhimOfTwo,
    ];

    /// Every seed kills each node of a group at least once; the rest is drawn, and comes in any order.
    pub fn draw(rng: &mut Rng) -> Vec<Fault> {
        let mut faults = vec![Fault::KillPrimary, Fault::PowerSecondary, Fault::Cut];
        for fault in Fault::ALL.into_iter().filter(|_| rng.percent(35)).collect::<Vec<_>>() {
            let at = rng.between(3, faults.len() as u64);
            faults.insert(at as usize, fault);
        }
        faults
    }

    /// Mostly commands, among a few faults.
    pub fn draw_skirmish(rng: &mut Rng) -> Vec<Fault> {
        let mut faults = vec![Fault::Whim, Fault::Whim, Fault::WhimOfTwo, Fault::DuplicateSession, Fault::CleanRestart];
        faults.extend((0..rng.between(2, 8)).map(|_| *rng.pick(&Fault::ALL)));
        faults
    }
}

impl World {
    /// The rounds of a seed: a burst of writes, a fault or two in its midst, then perhaps peace until everybody is in
    /// step again.
    pub fn fault_step(&mut self) {
        if self.healing {
            return;
        }
        let every = self.options.fault_every_ns;
        if self.options.skirmish {
            self.burst = self.burst.max(self.rng.below(30));
            self.strike_once();
            let pause = self.rng.below(every) * *self.rng.pick(&[1, 1, 1, 10]);
            return self.schedule(pause, Event::Fault);
        }
        let after = match self.stage {
            Stage::Load => {
                self.burst = self.options.writes / ROUNDS;
                self.stage = Stage::Strike;
                self.rng.between(every / 50, every)
            }
            Stage::Strike => {
                self.strike_once();
                if self.rng.percent(35) {
                    self.rng.between(SECOND / 1000, SECOND / 5)
                } else {
                    let peace = if self.rng.percent(65) { SETTLE_LIMIT } else { 0 };
                    self.stage = Stage::Settle { until: self.now + peace };
                    self.rng.between(every / 4, every)
                }
            }
            Stage::Settle { until } => {
                let rest = (0..self.options.groups()).all(|g| self.in_step(GroupId(g)));
                if rest || self.now >= until {
                    self.stage = Stage::Load;
                }
                SECOND / 5
            }
        };
        self.schedule(after, Event::Fault);
    }

    fn strike_once(&mut self) {
        let options = Rc::clone(&self.options);
        // The first faults are the ones every seed must have.
        let fault = options.faults.get(self.strikes).copied().unwrap_or(*self.rng.pick(&options.faults));
        self.strikes += 1;
        self.log(format_args!("fault: {fault:?}"));
        let felt = self.strike(fault);
        self.tally.faults += u64::from(felt);
    }

    /// True if it did something there and then. What does it later, a disk's trouble or records that come back, counts
    /// when it does.
    pub fn strike(&mut self, fault: Fault) -> bool {
        let group = GroupId(self.rng.below(u64::from(self.options.groups())) as u32);
        let primary = self.operator.authority(group);
        let secondary = self.other(group, primary);
        match fault {
            Fault::KillPrimary
            | Fault::KillSecondary
            | Fault::PowerPrimary
            | Fault::PowerSecondary
            | Fault::PowerBoth
            | Fault::CleanRestart => self.take_down(fault, primary, secondary),
            Fault::Cut
            | Fault::CutOneWay
            | Fault::Swizzle
            | Fault::Flap
            | Fault::HalfOpen
            | Fault::DuplicateSession => self.trouble_link(fault, self.options.pairs[group.0 as usize]),
            Fault::ClockJump => {
                let node = self.rng.below(self.nodes.len() as u64) as usize;
                self.nodes[node].wall_skew_ns += self.rng.below(2 * HOUR as u64) as i64 - HOUR;
                true
            }
            Fault::LocalWriteErrors
            | Fault::ApplyErrors
            | Fault::RecordError
            | Fault::FlushFails
            | Fault::SecondaryFull
            | Fault::ReadErrors
            | Fault::SlowSecondary
            | Fault::SlowPrimary => self.trouble_disks(fault, primary, secondary),
            // Longer than a sync may stand still; seldom, as little else happens meanwhile.
            Fault::StalledSecondary => {
                let stalls = self.rng.percent(20) && self.operator.plans.values().all(|p| *p == Plan::None);
                if stalls {
                    self.nodes[secondary].trouble.stalled_until = self.now + 100 * SECOND;
                }
                stalls
            }
            Fault::ModeChange => {
                let mode = *self.rng.pick(&Mode::ALL);
                let before = self.operator.settings(group).mode;
                self.set_mode(group, mode);
                mode != before
            }
            Fault::Rot | Fault::RotAll | Fault::Astray | Fault::OldCopy => self.damage_records(fault, group),
            Fault::SlowThenPower => {
                let node = *self.rng.pick(&[primary, secondary, secondary]);
                self.loses_power_at_work(secondary, node)
            }
            Fault::Switchover | Fault::Failover => {
                let idle = self.operator.plans.values().all(|p| *p == Plan::None);
                if idle {
                    self.change_primary(group, fault);
                }
                idle
            }
            Fault::OperatorLogging => self.types(primary, group, Command::Logging),
            Fault::FullSync => self.types(primary, group, Command::Sync { full: true }),
            Fault::Whim => self.whim(group, primary),
            Fault::WhimOfTwo => {
                let first = self.whim(group, primary);
                self.whim(group, secondary) || first
            }
        }
    }

    /// The disks of `slow` are slow, and while much is on its way to them the power of `node` goes.
    fn loses_power_at_work(&mut self, slow: usize, node: usize) -> bool {
        self.nodes[slow].trouble.slow_until = self.now + SECOND;
        let after = self.rng.between(SECOND / 100, SECOND / 2);
        self.schedule(after, Event::PowerLoss { node });
        self.nodes[node].up()
    }

    /// True unless the node is down or refuses at once.
    fn types(&mut self, node: usize, group: GroupId, command: Command) -> bool {
        let id = self.command(node, group, command);
        self.nodes[node].up() && !matches!(self.operator.results.get(&id), Some(CommandResult::Refused(_)))
    }

    fn take_down(&mut self, fault: Fault, primary: usize, secondary: usize) -> bool {
        let crashes: u64 = self.tally.crashes.iter().sum();
        let down = self.rng.between(SECOND / 10, 3 * SECOND);
        match fault {
            Fault::PowerSecondary if self.rng.percent(50) => return self.loses_power_at_work(secondary, secondary),
            Fault::KillPrimary => self.crash(primary, false, down),
            Fault::KillSecondary => self.crash(secondary, false, down),
            Fault::PowerPrimary => self.crash(primary, true, down),
            Fault::PowerSecondary => self.crash(secondary, true, down),
            Fault::PowerBoth => {
                self.crash(primary, true, down);
                let other = self.rng.between(SECOND / 10, 3 * SECOND);
                self.crash(secondary, true, other);
            }
            _ => {
                let node = *self.rng.pick(&[primary, secondary]);
                let up = self.nodes[node].up();
                // A wide volume would need a full sync after it.
                let fits = self.options.spread.is_none();
                if up && fits && node == secondary && self.rng.percent(25) {
                    self.stops_and_is_written(node, primary);
                }
                self.input(node, Input::Stop);
                return up;
            }
        }
        self.tally.crashes.iter().sum::<u64>() > crashes
    }

    /// While it is stopped somebody writes to a volume of it, of a group in which the other one serves.
    fn stops_and_is_written(&mut self, node: usize, primary: usize) {
        let served = |group: &GroupId| self.nodes[primary].serving.contains(group);
        let Some(group) = self.groups_of(node).into_iter().find(served) else { return };
        let volume = VolumeId(self.rng.below(u64::from(self.options.volumes)) as u16);
        let sectors = self.rng.between(1, 64);
        let first = self.rng.below(self.options.volume_bytes / SECTOR as u64 - sectors);
        let down_ns = self.rng.between(SECOND / 10, 3 * SECOND);
        self.nodes[node].stop = Some(Stop { down_ns, outside: vec![Outside { group, volume, first, sectors }] });
    }

    fn trouble_link(&mut self, fault: Fault, pair: [usize; 2]) -> bool {
        let passed = self.net.paths[&pair].passes != [false; 2];
        let open = self.net.open_between(pair).is_some();
        match fault {
            Fault::Cut => self.cut_for_a_while(pair, [false; 2]),
            Fault::CutOneWay => {
                let way = self.rng.percent(50);
                self.cut_for_a_while(pair, [way, !way]);
            }
            Fault::Swizzle => self.swizzle(),
            Fault::Flap => self.flap(pair),
            Fault::HalfOpen => self.half_open(pair),
            _ => {
                if self.reachable(pair) {
                    self.connect(pair);
                }
                return open && self.reachable(pair);
            }
        }
        if matches!(fault, Fault::Flap | Fault::HalfOpen) { open } else { passed }
    }

    fn trouble_disks(&mut self, fault: Fault, primary: usize, secondary: usize) -> bool {
        let now = self.now;
        let either = *self.rng.pick(&[primary, secondary]);
        match fault {
            Fault::LocalWriteErrors => self.nodes[primary].trouble.write_errors_until = now + SECOND / 2,
            Fault::ApplyErrors => self.nodes[secondary].trouble.apply_errors_until = now + SECOND / 2,
            Fault::RecordError => self.nodes[either].trouble.fail_next_record = true,
            Fault::FlushFails => self.nodes[either].trouble.fail_next_flush = true,
            Fault::SecondaryFull => self.nodes[secondary].trouble.full_until = now + 2 * SECOND,
            Fault::ReadErrors => self.nodes[primary].trouble.read_errors_until = now + SECOND,
            Fault::SlowPrimary => self.nodes[primary].trouble.slow_until = now + 2 * SECOND,
            _ => self.nodes[secondary].trouble.slow_until = now + 2 * SECOND,
        }
        let struck = match fault {
            Fault::LocalWriteErrors | Fault::ReadErrors | Fault::SlowPrimary => primary,
            Fault::RecordError | Fault::FlushFails => either,
            _ => secondary,
        };
        self.nodes[struck].trouble.unfelt += 1;
        false
    }

    /// The trouble of a node's disks shows: the faults that made it count now.
    pub fn felt(&mut self, node: usize) {
        self.tally.faults += std::mem::take(&mut self.nodes[node].trouble.unfelt);
    }

    fn change_primary(&mut self, group: GroupId, fault: Fault) {
        let primary = self.operator.authority(group);
        if fault == Fault::Switchover {
            self.operator.plans.insert(group, Plan::SwitchDemote { asked: None });
            return;
        }
        let power = self.rng.percent(50);
        let down = self.rng.between(4 * SECOND, 7 * SECOND);
        self.crash(primary, power, down);
        if power && self.rng.percent(50) {
            self.crash(self.other(group, primary), true, SECOND / 10);
        }
        self.operator.plans.insert(group, Plan::FailOver { asked: None });
    }

    /// Restoring is an event of the path; a fault already under way is simply overtaken.
    fn cut_for_a_while(&mut self, pair: [usize; 2], passes: [bool; 2]) {
        self.set_path(pair, passes);
        let longest = if self.options.is_database() { 60 * SECOND } else { 12 * SECOND };
        let back = self.rng.between(SECOND / 10, longest);
        self.schedule(back, Event::Cable { pair, passes: [true; 2] });
    }

    /// Every way of every cable is cut, one by one, and they heal in another order.
    fn swizzle(&mut self) {
        let pairs: Vec<[usize; 2]> = self.net.paths.keys().copied().collect();
        for pair in pairs {
            let first = self.rng.percent(50);
            let mut at = 0;
            for passes in [[first, !first], [false; 2], [!first, first], [true; 2]] {
                at += self.rng.between(SECOND / 50, 3 * SECOND);
                self.schedule(at, Event::Cable { pair, passes });
            }
        }
    }

    /// An operator types whatever comes to mind.
    fn whim(&mut self, group: GroupId, node: usize) -> bool {
        let entropy = self.rng.draw();
        let command = match self.rng.below(15) {
            0 => Command::Logging,
            1 => Command::Sync { full: true },
            2 => Command::Sync { full: false },
            3 => Command::Demote,
            4 => Command::Promote { force: true, entropy },
            5 => Command::Promote { force: false, entropy },
            6 => match self.rollback_point(node, group) {
                Some(name) => Command::DropRollbackPoint { name },
                None => return false,
            },
            7 => {
                let policy = Options::policy(&mut self.rng);
                self.set(group, |settings| settings.policy = policy);
                return true;
            }
            8 => {
                let waits = Duration::from_millis(*self.rng.pick(&[0, 500, 5000, 20_000]));
                let start_alone = if waits.is_zero() { StartAlone::Serve } else { StartAlone::Wait(waits) };
                self.set(group, |settings| settings.start_alone = start_alone);
                return true;
            }
            9 => {
                let autosync = self.rng.percent(50);
                self.set(group, |settings| settings.autosync = autosync);
                return true;
            }
            10 => {
                // What waits may be more than the new one: what a node holds is judged by the largest there was.
                let bytes = *self.rng.pick(&[4, 2, 1]);
                let most = self.options.queue_bytes;
                self.set(group, |settings| settings.queue_bytes = most / bytes);
                return true;
            }
            11 => {
                let limit = Duration::from_millis(*self.rng.pick(&[100, 1000, self.options.wait_limit_ms]));
                self.set(group, |settings| settings.wait_limit = limit);
                return true;
            }
            _ => {
                let mode = *self.rng.pick(&Mode::ALL);
                self.set_mode(group, mode);
                return true;
            }
        };
        self.types(node, group, command)
    }
}
