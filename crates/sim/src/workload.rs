//! What clients ask.

use std::rc::Rc;

use engine::{GroupId, Input, Request, RequestId, VolumeId};

use crate::disk::SECTOR;
use crate::judge::{Asked, Fill, content};
use crate::payload::Payload;
use crate::world::{Event, World};

impl World {
    pub fn start_clients(&mut self) {
        self.schedule(1, Event::Client);
        self.schedule(1, Event::Fault);
    }

    pub fn client_step(&mut self) {
        // Between the bursts a trickle goes on.
        let mean = self.options.think_ns * if self.burst > 0 { 1 } else { 30 };
        let think = self.rng.below(2 * mean);
        if !self.healing {
            self.schedule(think, Event::Client);
        }
        let group = GroupId(self.rng.below(u64::from(self.options.groups())) as u32);
        let node = self.operator.authority(group);
        let open = self.nodes[node].up() && self.nodes[node].serving.contains(&group);
        if open && self.judge.pending_on(node, group) < self.options.depth {
            self.burst = self.burst.saturating_sub(1);
            self.ask(node, group);
        }
    }

    fn ask(&mut self, node: usize, group: GroupId) {
        let options = Rc::clone(&self.options);
        let volume = VolumeId(self.rng.below(u64::from(options.volumes)) as u16);
        let id = RequestId(self.next_request);
        self.next_request += 1;
        if self.rng.percent(6) {
            self.judge.issued(id, node, group, Asked::Flush { volume, covers: Vec::new() }, self.now);
            return self.input(node, Input::Request { group, volume, id, request: Request::Flush });
        }
        let sectors = options.image_bytes() / SECTOR as u64;
        let longest = if self.rng.percent(10) { 256 } else { 16 };
        let count = self.rng.between(1, longest);
        let span = if self.rng.percent(options.hot_percent) { sectors / 8 } else { sectors };
        let target = self.judge.recent(group, volume).filter(|_| self.rng.percent(options.overlap_percent));
        let first = match target {
            Some((at, long)) => (at + self.rng.below(long)).min(sectors - count),
            None => self.rng.below(span.max(count + 1) - count),
        };
        let offset = first * SECTOR as u64;
        let fit = |length: u64| options.spread.as_ref().map_or(length, |spread| spread.fit(offset, length));
        let length = fit(count * SECTOR as u64);
        let count = length / SECTOR as u64;
        let fua = self.rng.percent(5);
        let zero = self.rng.percent(8);
        let fill = if zero { Fill::Zero } else { Fill::Stamp(self.judge.stamp(group)) };
        self.judge.issued(id, node, group, Asked::Write { volume, offset, length, fill, fua }, self.now);
        let offset = options.placed(offset);
        let request = if zero {
            Request::Zero { offset, length, no_hole: self.rng.percent(50), fua }
        } else {
            let data = content(fill, volume, first..first + count);
            let buf = Payload::handed_over(data, self.nodes[node].queued(group));
            Request::Write { offset, length, buf, fua }
        };
        self.input(node, Input::Request { group, volume, id, request });
    }
}
