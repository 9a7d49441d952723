//! What clients ask.

use std::rc::Rc;

use engine::{GroupId, Input, Request, RequestId, VolumeId};

use crate::disk::SECTOR;
use crate::judge::{Asked, Fill, content};
use crate::payload::Payload;
use crate::world::{Event, World};

/// A database writes pages of this size,
const DATABASE_BLOCK_BYTES: u64 = 8 << 10;
/// these few over and over,
const DATABASE_HOT_BLOCKS: u64 = 4;
/// and has a checkpoint once in so many requests.
const DATABASE_TURNS_TO_CHECKPOINT: u64 = 256;

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
        if self.options.is_database() {
            return self.ask_as_database(node, group);
        }
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

    /// A database: an entry of its log, in sequence, in the first volume; its flush; one of a few hot blocks of another volume. Now
    /// and then a checkpoint: that volume is flushed.
    fn ask_as_database(&mut self, node: usize, group: GroupId) {
        let options = Rc::clone(&self.options);
        let turn = self.turns.entry(group).or_default();
        *turn += 1;
        let (turn, hot) = (*turn, VolumeId(1 + self.rng.below(u64::from(options.volumes) - 1) as u16));
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let flushed = match turn % 4 {
            1 => Some(VolumeId(0)),
            3 if turn.is_multiple_of(DATABASE_TURNS_TO_CHECKPOINT - 1) => Some(hot),
            _ => None,
        };
        if let Some(volume) = flushed {
            self.judge.issued(id, node, group, Asked::Flush { volume, covers: Vec::new() }, self.now);
            return self.input(node, Input::Request { group, volume, id, request: Request::Flush });
        }
        let blocks = options.volume_bytes / DATABASE_BLOCK_BYTES;
        let (volume, block) = match turn % 4 {
            0 => (VolumeId(0), turn / 4 % blocks),
            _ => (hot, self.rng.below(DATABASE_HOT_BLOCKS)),
        };
        let (offset, length) = (block * DATABASE_BLOCK_BYTES, DATABASE_BLOCK_BYTES);
        let fill = Fill::Stamp(self.judge.stamp(group));
        self.judge.issued(id, node, group, Asked::Write { volume, offset, length, fill, fua: false }, self.now);
        let sectors = offset / SECTOR as u64..(offset + length) / SECTOR as u64;
        let buf = Payload::handed_over(content(fill, volume, sectors), self.nodes[node].queued(group));
        self.input(
            node,
            Input::Request { group, volume, id, request: Request::Write { offset, length, buf, fua: false } },
        );
    }
}
