//! What clients ask, and what goes wrong.

use std::rc::Rc;
use std::sync::Arc;

use engine::{Buf, GroupId, Input, Request, RequestId, VolumeId};

use crate::disk::SECTOR;
use crate::judge::{Asked, Fill, sector_bytes};
use crate::operator::Plan;
use crate::swarm::Fault;
use crate::world::{Event, World};

const SECOND: u64 = 1_000_000_000;

impl World {
    pub fn start_clients(&mut self) {
        self.schedule(1, Event::Client);
        let every = self.options.fault_every_ns;
        self.schedule(every, Event::Fault);
    }

    pub fn client_step(&mut self) {
        // With the writes done that the seed owes, a trickle goes on until the faults are done too.
        let mean = self.options.think_ns * if self.judge.writes < self.options.writes { 1 } else { 30 };
        let think = self.rng.below(2 * mean);
        if !self.healing {
            self.schedule(think, Event::Client);
        }
        let group = GroupId(self.rng.below(u64::from(self.options.groups)) as u32);
        let node = self.operator.authority(group);
        let open = self.nodes[node].up() && self.nodes[node].serving.contains(&group);
        if open && self.judge.pending_on(node, group) < self.options.depth {
            self.ask(node, group);
        }
    }

    fn ask(&mut self, node: usize, group: GroupId) {
        let options = Rc::clone(&self.options);
        let volume = VolumeId(self.rng.below(u64::from(options.volumes)) as u16);
        let id = RequestId(self.next_request);
        self.next_request += 1;
        if self.rng.percent(6) {
            self.judge.issued(id, node, group, Asked::Flush { volume, covers: Vec::new() });
            return self.input(node, Input::Request { group, volume, id, request: Request::Flush });
        }
        let sectors = options.volume_bytes / SECTOR as u64;
        let longest = if self.rng.percent(10) { 256 } else { 16 };
        let count = self.rng.between(1, longest);
        let span = if self.rng.percent(options.hot_percent) { sectors / 8 } else { sectors };
        let target = self.judge.recent(group, volume).filter(|_| self.rng.percent(options.overlap_percent));
        let first = match target {
            Some((at, long)) => (at + self.rng.below(long)).min(sectors - count),
            None => self.rng.below(span.max(count + 1) - count),
        };
        let (offset, length) = (first * SECTOR as u64, count * SECTOR as u64);
        let fua = self.rng.percent(5);
        let zero = self.rng.percent(8);
        let fill = if zero { Fill::Zero } else { Fill::Stamp(self.judge.stamp(group)) };
        self.judge.issued(id, node, group, Asked::Write { volume, offset, length, fill, fua });
        let request = if zero {
            Request::Zero { offset, length, no_hole: self.rng.percent(50), fua }
        } else {
            let data: Vec<u8> = (first..first + count).flat_map(|s| sector_bytes(fill, volume, s)).collect();
            Request::Write { offset, length, buf: Buf::new(Arc::new(data)), fua }
        };
        self.input(node, Input::Request { group, volume, id, request });
    }

    pub fn fault_step(&mut self) {
        if self.healing {
            return;
        }
        let every = self.options.fault_every_ns;
        let wait = self.rng.between(every / 2, every * 3 / 2);
        self.schedule(wait, Event::Fault);
        let options = Rc::clone(&self.options);
        // In half of the worlds a stall is left to itself, or none would ever last.
        if options.seed.is_multiple_of(2) && self.nodes.iter().any(|node| node.trouble.stalled_until > self.now) {
            return;
        }
        // The first faults are the ones every seed must have.
        let turn = self.tally.faults as usize;
        let fault = options.faults.get(turn).copied().unwrap_or(*self.rng.pick(&options.faults));
        self.tally.faults += 1;
        self.log(format_args!("fault: {fault:?}"));
        self.strike(fault);
    }

    pub fn strike(&mut self, fault: Fault) {
        let now = self.now;
        let group = GroupId(self.rng.below(u64::from(self.options.groups)) as u32);
        let primary = self.operator.authority(group);
        let secondary = 1 - primary;
        let down = self.rng.between(SECOND / 10, 3 * SECOND);
        let calm = self.operator.plans.values().all(|p| *p == Plan::None)
            && self.nodes.iter().all(|node| node.trouble.stalled_until <= now);
        match fault {
            Fault::KillPrimary => self.crash(primary, false, down),
            Fault::KillSecondary => self.crash(secondary, false, down),
            Fault::PowerPrimary => self.crash(primary, true, down),
            Fault::PowerSecondary => self.crash(secondary, true, down),
            Fault::PowerBoth => {
                self.crash(primary, true, down);
                let other = self.rng.between(SECOND / 10, 3 * SECOND);
                self.crash(secondary, true, other);
            }
            Fault::CleanRestart => {
                let node = self.rng.below(2) as usize;
                self.input(node, Input::Stop);
            }
            Fault::Cut => self.cut([false; 2]),
            Fault::CutOneWay => {
                let way = self.rng.percent(50);
                self.cut([way, !way]);
            }
            Fault::Flap => {
                self.cut([false; 2]);
                self.restore_path();
                if let Some(id) = self.connections.values().find(|c| c.open[0]).map(|c| c.id) {
                    self.schedule(1, Event::ConnectionDown { connection: id, end: 0, reason: "flap" });
                    self.schedule(2, Event::ConnectionDown { connection: id, end: 1, reason: "flap" });
                }
            }
            Fault::DuplicateSession => {
                if self.path.passes == [true; 2] && self.nodes.iter().all(|n| n.up()) {
                    self.connect();
                }
            }
            Fault::LocalWriteErrors => self.nodes[primary].trouble.write_errors_until = now + SECOND / 2,
            Fault::FlushFails => {
                let node = self.rng.below(2) as usize;
                self.nodes[node].trouble.fail_next_flush = true;
            }
            Fault::SecondaryFull => self.nodes[secondary].trouble.full_until = now + 2 * SECOND,
            Fault::ReadErrors => self.nodes[primary].trouble.read_errors_until = now + SECOND,
            Fault::SlowSecondary => self.nodes[secondary].trouble.slow_until = now + 2 * SECOND,
            // Longer than a sync may stand still; seldom, as little else happens meanwhile.
            Fault::StalledSecondary if calm && self.rng.percent(20) => {
                self.nodes[secondary].trouble.stalled_until = now + 100 * SECOND;
            }
            Fault::StalledSecondary => {}
            Fault::ModeChange => {
                let mode = *self.rng.pick(&engine::state::Mode::ALL);
                self.set_mode(group, mode);
            }
            Fault::Switchover | Fault::Failover if calm => self.change_primary(group, fault),
            Fault::Switchover | Fault::Failover => {}
            Fault::OperatorLogging => {
                self.command(primary, group, engine::Command::Logging);
            }
            Fault::FullSync => {
                self.command(primary, group, engine::Command::Sync { full: true });
            }
        }
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
            self.crash(1 - primary, true, SECOND / 10);
        }
        self.operator.plans.insert(group, Plan::FailOver { asked: None });
    }

    fn cut(&mut self, passes: [bool; 2]) {
        self.path.passes = passes;
        let back = self.rng.between(SECOND / 10, 12 * SECOND);
        // Restoring is an event of the path; a fault already under way is simply overtaken.
        self.schedule(back, Event::Restore);
    }
}
