//! Both halves of one truth, played against each other: what a primary records of its flushes, and what its secondary keeps. After a
//! power loss of the primary the two together must give back whatever was acknowledged (P1, P4).

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::VolumeConfig;
use crate::durability::kept::KeptWrites;
use crate::formats::wire::{FlushPoints, VolumeRange};
use crate::ids::{Incarnation, RequestId, Seq, VolumeId, mix};
use crate::shared::flushes::{FlushRequester, FlushWaiter};
use crate::shared::volume::Volume;

const BLOCKS: u64 = 6;
const BLOCK: u64 = 4096;

/// A version of a block is the number of the write that it holds; 0 before the first.
type BlockVersions = [u64; BLOCKS as usize];

struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = mix(self.0, 1);
        self.0 % limit
    }
}

/// A write on its way to the primary's disk.
struct WriteUnderWay {
    slot: u32,
    block: u64,
    seq: u64,
}

/// A write on its way to the secondary, with what its frame says of the primary's flushes.
struct FrameUnderWay {
    seq: u64,
    block: u64,
    flushed: Seq,
}

/// A flush that the primary is to acknowledge once it is on record.
struct RecordUnderWay {
    through: Seq,
    waiters: Vec<FlushWaiter>,
}

/// A primary with one volume, its secondary, and what lies between them.
struct ModelledPair {
    volume: Volume,
    last: u64,
    streamed: bool,
    writing: Vec<WriteUnderWay>,
    /// Of the disk: what it answers, what it cannot lose, and what a flush under way will make of that.
    cache: BlockVersions,
    stable: BlockVersions,
    flushing: Option<BlockVersions>,
    /// By the request: what was complete when its flush was asked for.
    asked: Vec<BlockVersions>,
    recording: Option<RecordUnderWay>,
    /// The primary's superblock.
    recorded: Seq,
    /// Numbers and blocks that are not sent yet.
    queue: VecDeque<(u64, u64)>,
    link: VecDeque<FrameUnderWay>,
    kept: KeptWrites,
    copy: BlockVersions,
    landed: u64,
    /// What clients were promised is durable on the primary.
    flushed: BlockVersions,
}

fn range(block: u64) -> VolumeRange {
    VolumeRange { volume: VolumeId(0), offset: block * BLOCK, length: BLOCK }
}

impl ModelledPair {
    fn new() -> ModelledPair {
        let config =
            VolumeConfig { size_bytes: BLOCKS * BLOCK, block_bytes: BLOCK, changed_outside: false, is_detached: false };
        ModelledPair {
            volume: Volume::new(config),
            last: 0,
            streamed: true,
            writing: Vec::new(),
            cache: BlockVersions::default(),
            stable: BlockVersions::default(),
            flushing: None,
            asked: Vec::new(),
            recording: None,
            recorded: Seq::NONE,
            queue: VecDeque::new(),
            link: VecDeque::new(),
            kept: KeptWrites::of_stream(Seq::NONE),
            copy: BlockVersions::default(),
            landed: 0,
            flushed: BlockVersions::default(),
        }
    }

    fn write(&mut self, block: u64) {
        if self.volume.is_busy(block * BLOCK, BLOCK) {
            return;
        }
        self.last += 1;
        let (slot, seq) = (self.last as u32, Seq(self.last));
        let at = (block * BLOCK, BLOCK);
        self.volume.occupy(slot, at.0, at.1, Seq(u64::MAX), true);
        self.volume.number(slot, at, (seq, seq), self.streamed);
        self.writing.push(WriteUnderWay { slot, block, seq: seq.0 });
        if self.streamed {
            self.queue.push_back((seq.0, block));
        }
    }

    fn complete(&mut self, which: usize) {
        let done = self.writing.swap_remove(which);
        self.volume.release(done.slot);
        self.volume.flushes.wrote(BLOCK);
        self.cache[done.block as usize] = done.seq;
        self.serve_late();
    }

    fn serve_late(&mut self) {
        if self.volume.flushes.serve_late(self.volume.complete_through(Seq(self.last))) {
            self.begin_flush();
        }
    }

    fn begin_flush(&mut self) {
        let through = self.volume.complete_through(Seq(self.last));
        self.volume.flushes.begin(through);
        self.flushing = Some(self.cache);
    }

    /// Without a record where the secondary has all there is: under the promise of `sync` it has what was acknowledged.
    fn ask_flush(&mut self) {
        self.asked.push(self.cache);
        let who = FlushRequester::Request(RequestId(self.asked.len() as u64 - 1));
        let both_have_it = self.streamed && self.landed == self.last;
        let record = if both_have_it { Seq::NONE } else { self.volume.record_due() };
        if self.volume.flushes.wait(FlushWaiter { who, record }) {
            self.begin_flush();
        }
    }

    fn end_flush(&mut self) {
        let Some(flushed) = self.flushing.take() else { return };
        self.stable = flushed;
        let (through, waiters) = self.volume.flushes.ended(true);
        let (recorded, plain): (Vec<_>, Vec<_>) =
            waiters.into_iter().partition(|waiter| self.volume.flushes.needs_record(waiter));
        self.answer(&plain);
        match &mut self.recording {
            _ if recorded.is_empty() => {}
            Some(under_way) => {
                under_way.through = under_way.through.max(through);
                under_way.waiters.extend(recorded);
            }
            None => self.recording = Some(RecordUnderWay { through, waiters: recorded }),
        }
        if self.volume.flushes.has_next() {
            self.begin_flush();
        }
        self.serve_late();
    }

    fn end_record(&mut self) {
        let Some(RecordUnderWay { through, waiters }) = self.recording.take() else { return };
        self.recorded = through;
        self.volume.flushes.recorded(through);
        self.volume.copy.forget_kept(through);
        self.answer(&waiters);
    }

    fn answer(&mut self, waiters: &[FlushWaiter]) {
        for waiter in waiters {
            let FlushRequester::Request(id) = waiter.who else { unreachable!("only clients ask here") };
            let promised = self.asked[id.0 as usize];
            self.flushed = core::array::from_fn(|block| self.flushed[block].max(promised[block]));
        }
    }

    /// It may have been flushed here long before it is sent.
    fn send(&mut self) {
        if let Some((seq, block)) = self.queue.pop_front() {
            let flushed = self.volume.flush_point(Seq(self.last));
            self.link.push_back(FrameUnderWay { seq, block, flushed });
        }
    }

    fn land(&mut self) {
        let Some(frame) = self.link.pop_front() else { return };
        self.kept.flushed_by_primary(Seq(frame.flushed.0.min(frame.seq)));
        self.kept.landed(Seq(frame.seq), Seq(frame.seq), range(frame.block));
        self.copy[frame.block as usize] = frame.seq;
        self.landed = frame.seq;
        self.kept.check_invariants(Seq(self.landed), Seq::NONE);
    }

    /// A report of the primary's flush point, and the secondary's word of what it keeps no more.
    fn report(&mut self) {
        self.kept.flushed_by_primary(self.volume.flush_point(Seq(self.last)).min(Seq(self.landed)));
        self.volume.copy.forget_kept(self.kept.floor());
    }

    /// From now on writes are not sent; of what is on its way nothing arrives.
    fn cut(&mut self) {
        self.streamed = false;
        self.queue.clear();
        self.link.clear();
    }

    /// The primary loses its power, comes back, and fetches what the secondary names. What stands on its disk then.
    fn after_power_loss(&self, draws: &mut Draws) -> BlockVersions {
        let mut disk: BlockVersions = core::array::from_fn(|block| {
            let under_way = self.writing.iter().filter(|write| write.block == block as u64).map(|write| write.seq);
            let possible: Vec<u64> = [self.stable[block], self.cache[block]].into_iter().chain(under_way).collect();
            possible[draws.below(possible.len() as u64) as usize]
        });
        let points = FlushPoints { incarnation: Incarnation(1), volumes: vec![self.recorded] };
        for lost in self.kept.beyond(&points) {
            let block = (lost.offset / BLOCK) as usize;
            disk[block] = self.copy[block];
        }
        disk
    }

    fn check_power_loss(&self, draws: &mut Draws) {
        let disk = self.after_power_loss(draws);
        for (block, version) in disk.into_iter().enumerate() {
            assert!(version >= self.flushed[block], "block {block}: {version} over a flush of {}", self.flushed[block]);
            assert!(
                version >= self.copy[block],
                "block {block}: {version}, and the peer confirmed {}",
                self.copy[block]
            );
        }
    }
}

// proves: P1, P4
/// Writers from busy to rare, so that the secondary lags behind in some and has everything in others.
#[test]
fn a_primary_that_lost_power_gets_back_what_was_confirmed_and_nothing_older() {
    let mut draws = Draws(11);
    for run in 0..4_000 {
        let mut pair = ModelledPair::new();
        let writes = 1 + run % 6;
        let cut_at = draws.below(120);
        for step in 0..120 {
            match draws.below(11 + writes) {
                0..3 if !pair.writing.is_empty() => {
                    let which = draws.below(pair.writing.len() as u64) as usize;
                    pair.complete(which);
                }
                3 => pair.ask_flush(),
                4 => pair.end_flush(),
                5 => pair.end_record(),
                6..8 => pair.send(),
                8..10 => pair.land(),
                10 if pair.streamed => pair.report(),
                11.. => {
                    let block = draws.below(BLOCKS);
                    pair.write(block);
                }
                _ => {}
            }
            if step == cut_at {
                pair.cut();
            }
            pair.check_power_loss(&mut draws);
        }
    }
}
