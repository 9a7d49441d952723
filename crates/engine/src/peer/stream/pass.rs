//! A pass over the dirty regions, in the stream: a region is read under a lock on its range, takes its number at that moment, and
//! is sent between the live writes with lower and higher numbers.

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::wire::{FrameHeader, flags};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::limits::{self, REGION_BYTES};
use crate::peer::pause::unreadable;
use crate::peer::queue::{ItemBody, QueueItem};
use crate::peer::stream::{PeerStream, StreamStage};
use crate::shared::cost::cost;
use crate::shared::coverage::CoveragePoint;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::reads::{ResyncRead, SyncRange};
use crate::shared::volume::Conflict;
use crate::time::Mono;
use crate::{IoDone, IoResult, Output, Slice, Store};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;

/// Failed reads of regions, one after the other and with a pause behind each, before the group gives up.
const READ_FAILURES_MAX: u32 = 8;

/// A pass over the dirty regions.
#[derive(Debug)]
pub(crate) struct SyncPass {
    /// Names it: no other of this incarnation has the same.
    name: u64,
    /// It was announced to the peer.
    begun: bool,
    /// The peer is ready for it.
    ready: bool,
    /// In a running stream, for regions that a failed local write left dirty: the secondary stays consistent.
    repair: bool,
    /// Next region to look at.
    volume: usize,
    region: u64,
    reads: usize,
    /// What reads that wait for their range will hold: they are in no queue yet.
    waiting_bytes: u64,
    probes: BTreeMap<Seq, SyncRange>,
    /// Ranges found different, or whose read failed.
    resend: VecDeque<SyncRange>,
    failures: u32,
    /// After a read that failed nothing is read before this.
    reads_again_at: Mono,
    /// When it last had room in the queue for a read, or nothing to read.
    had_room_at: Mono,
    end: Option<Seq>,
    total_bytes: u64,
    done_bytes: u64,
    sent_bytes: u64,
}

/// What a pass reads next.
pub(crate) struct NextRead {
    range: SyncRange,
    compare: bool,
    /// The region at which the walk goes on; `None`: it is of what is sent again.
    goes_on_at: Option<u64>,
}

impl NextRead {
    /// Payload of its read in the queue.
    pub fn queued_bytes(&self) -> u64 {
        self.range.queued_bytes(self.compare)
    }
}

impl SyncPass {
    pub fn name(&self) -> u64 {
        self.name
    }

    /// A probe that was sent, with all through `sent`, has no answer.
    pub fn awaits_answer(&self, sent: Seq) -> bool {
        self.probes.first_key_value().is_some_and(|(seq, _)| *seq <= sent)
    }

    /// The next read begins: another one is the next.
    fn begins_read(&mut self, next: &NextRead) {
        self.reads += 1;
        if let Some(region) = next.goes_on_at {
            self.region = region;
            return;
        }
        let Some(range) = self.resend.front_mut() else { return };
        range.offset += next.range.length;
        range.length -= next.range.length;
        if range.length == 0 {
            self.resend.pop_front();
        }
    }

    /// The pass of this number is still to be announced.
    fn is_to_begin(&self, name: u64) -> bool {
        self.name == name && !self.begun
    }

    /// Nothing is read: the peer takes up the run of a primary that goes on from its log.
    pub fn take_up(now: Mono, name: u64) -> SyncPass {
        SyncPass { begun: false, ready: false, ..SyncPass::new(now, name, true, 0) }
    }

    pub fn new(now: Mono, name: u64, repair: bool, total_bytes: u64) -> SyncPass {
        SyncPass {
            name,
            begun: repair,
            ready: repair,
            repair,
            volume: 0,
            region: 0,
            reads: 0,
            waiting_bytes: 0,
            probes: BTreeMap::new(),
            resend: VecDeque::new(),
            failures: 0,
            reads_again_at: Mono(0),
            had_room_at: now,
            end: None,
            total_bytes,
            done_bytes: 0,
            sent_bytes: 0,
        }
    }
}

/// How far a pass is that finds nothing more to read.
pub(crate) enum PassEnding {
    /// It found something that was left behind.
    GoesOn,
    /// For answers, or for its end to be applied.
    Waits,
    /// All that a repair was for is sent.
    Repaired,
}

impl PeerStream {
    // ---- what is known of it ---------------------------------------------------------------------------------------

    pub fn has_pass(&self) -> bool {
        self.pass.is_some()
    }

    /// A sync, not a mere repair.
    pub fn syncs(&self) -> bool {
        self.pass.as_ref().is_some_and(|pass| !pass.repair)
    }

    pub fn repairs(&self) -> bool {
        self.pass.as_ref().is_some_and(|pass| pass.repair)
    }

    /// What reads that wait for their range will put into the queue.
    pub fn sync_waiting_bytes(&self) -> u64 {
        self.pass.as_ref().map_or(0, |pass| pass.waiting_bytes)
    }

    /// Since when a sync has had no room for its next read, and waits for nothing else.
    pub fn sync_had_room_at(&self) -> Option<Mono> {
        self.pass.as_ref().filter(|pass| !pass.repair && pass.reads == 0).map(|pass| pass.had_room_at)
    }

    /// Bytes that are dealt with, of how many, and those that went as data.
    pub fn sync_progress(&self) -> Option<(u64, u64, u64)> {
        self.pass.as_ref().map(|pass| (pass.done_bytes, pass.total_bytes, pass.sent_bytes))
    }

    /// What it will get was announced to the peer.
    pub fn is_reported(&self) -> bool {
        self.pass.as_ref().is_none_or(|pass| pass.begun)
    }

    pub fn is_to_begin(&self, name: u64) -> bool {
        self.pass.as_ref().is_some_and(|pass| pass.is_to_begin(name))
    }

    // ---- its beginning and its end ---------------------------------------------------------------------------------

    pub fn begin_pass(&mut self, pass: SyncPass) {
        self.pass = Some(pass);
    }

    /// What it has not read yet stays dirty.
    pub fn drop_pass(&mut self) {
        self.pass = None;
    }

    /// A repair ends. False: there is none.
    pub fn end_repair(&mut self) -> bool {
        let repairs = self.repairs();
        if repairs {
            self.pass = None;
        }
        repairs
    }

    /// As long as it was not announced: the pass's name, the number before the stream's first, and whether nothing is dirty.
    pub fn to_announce(&self) -> Option<(u64, Seq, bool)> {
        let pass = self.pass.as_ref().filter(|pass| !pass.begun)?;
        Some((pass.name, self.began, pass.total_bytes == 0))
    }

    pub fn announced(&mut self) {
        if let Some(pass) = self.pass.as_mut() {
            pass.begun = true;
        }
    }

    /// The peer is ready for the pass of this name: the number before the stream's first, and whether anything is dirty. An answer to a
    /// begin that was abandoned meanwhile is nobody's.
    pub fn peer_is_ready(&mut self, name: u64) -> Option<(Seq, bool)> {
        let pass = self.pass.as_mut().filter(|pass| !pass.ready && pass.name == name)?;
        (pass.ready, self.open) = (true, true);
        Some((self.began, pass.total_bytes > 0))
    }

    /// A sync is over once the peer applied its end: the number through which it has, and the bytes that went as data.
    pub fn end_sync(&mut self, now: Mono) -> Option<(Seq, u64)> {
        let pass = self.pass.as_ref()?;
        if pass.end.is_none_or(|end| end > self.applied_at_peer) {
            return None;
        }
        let ended = (self.applied_at_peer, pass.sent_bytes);
        (self.pass, self.catching_up_since, self.stage) = (None, now, StreamStage::CatchingUp);
        Some(ended)
    }

    // ---- reading ---------------------------------------------------------------------------------------------------

    /// Whether the stream has use for reads.
    pub fn wants_reads(&self, cx: &Cx) -> bool {
        let reads = self.pass.as_ref().filter(|pass| pass.ready && pass.end.is_none());
        reads.is_some_and(|pass| {
            pass.reads < limits::RESYNC_READS_MAX
                && cx.now.mono >= pass.reads_again_at
                && self.queue.unsent_sync_bytes() + pass.waiting_bytes < cx.peer.resync_backlog_bytes()
                && pass.probes.len() < limits::PROBES_IN_FLIGHT_MAX
        })
    }

    /// It has room for a read, or nothing to read.
    pub fn had_room(&mut self, now: Mono) {
        if let Some(pass) = self.pass.as_mut() {
            pass.had_room_at = now;
        }
    }

    /// What is to be read next; it stays the next until the read begins.
    pub fn next_read(&mut self, common: &GroupCommon, cx: &mut Cx, longest_read: u64) -> Option<NextRead> {
        let pass = self.pass.as_mut()?;
        if let Some(&range) = pass.resend.front() {
            let length = range.length.min(longest_read);
            return Some(NextRead { range: SyncRange { length, ..range }, compare: false, goes_on_at: None });
        }
        while let Some(volume) = common.volumes.get(pass.volume) {
            let found = volume.copy.next_to_ship(pass.region);
            if volume.copy.skips(pass.region, found) {
                cx.coverage.hit(CoveragePoint::ResyncSkippedCovered);
            }
            let Some(first) = found else {
                pass.volume += 1;
                pass.region = 0;
                continue;
            };
            let mut next = first + 1;
            let size = volume.size_bytes();
            let compare = volume.copy.needs_verification(first);
            let longest = if compare { limits::PROBE_BYTES } else { longest_read };
            let goes_on = |next: u64| volume.copy.must_ship(next) && volume.copy.needs_verification(next) == compare;
            while (next + 1 - first) * REGION_BYTES <= longest && next * REGION_BYTES < size && goes_on(next) {
                next += 1;
            }
            // What was skipped is not looked at again.
            pass.region = first;
            let offset = first * REGION_BYTES;
            let length = (next * REGION_BYTES).min(size) - offset;
            let leaves_tail = compare && length > 4096 && injected(Fault::CompareLeavesTail);
            let length = if leaves_tail { length / 4096 * 4096 } else { length };
            let range = SyncRange { volume: VolumeId(pass.volume as u16), offset, length };
            return Some(NextRead { range, compare, goes_on_at: Some(next) });
        }
        None
    }

    pub fn read_range(&mut self, common: &mut GroupCommon, cx: &mut Cx, next: &NextRead) {
        let NextRead { range, compare, .. } = *next;
        let pass = self.pass.as_mut().expect("a pass is under way");
        pass.begins_read(next);
        let slot = common.slots.insert(SlotOperation::Resync(ResyncRead {
            range,
            compare,
            first: Seq::NONE,
            last: Seq::NONE,
            part_bytes: 0,
            pass: pass.name,
        }));
        match common.volumes.of(range.volume).conflict(range.offset, range.length) {
            Some(Conflict::Write) if injected(Fault::ResyncReadRaces) => self.admit_read(common, cx, slot),
            None => self.admit_read(common, cx, slot),
            Some(conflict) => {
                if conflict == Conflict::Write {
                    cx.coverage.hit(CoveragePoint::ResyncWaitedForWrite);
                }
                pass.waiting_bytes += next.queued_bytes();
                common.volumes.of(range.volume).wait_for_range(slot, range.offset, range.length, false);
            }
        }
    }

    /// What a read waited for has its range free. False: it is of another stream.
    pub fn admit_waiting_read(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32) -> bool {
        let Some(&SlotOperation::Resync(read)) = common.slots.get(slot) else {
            unreachable!("the slot waits for a resync read")
        };
        let Some(pass) = self.pass.as_mut().filter(|pass| pass.name == read.pass) else { return false };
        pass.waiting_bytes -= read.range.queued_bytes(read.compare);
        self.admit_read(common, cx, slot);
        true
    }

    /// The range is free: lock it, take the number, read.
    fn admit_read(&mut self, common: &mut GroupCommon, cx: &mut Cx, slot: u32) {
        let Some(&SlotOperation::Resync(mut read)) = common.slots.get(slot) else {
            unreachable!("the slot is a resync read's")
        };
        let SyncRange { volume, offset, length } = read.range;
        read.part_bytes = if read.compare { length } else { cx.peer.part_bytes };
        let wall;
        (wall, read.first, read.last) = common.numbers.give(cx, length.div_ceil(read.part_bytes));
        let (mut done, mut seq) = (0, read.first);
        while done < length {
            let part = read.part_bytes.min(length - done);
            self.queue.push(QueueItem {
                seq,
                volume,
                offset: offset + done,
                length: part,
                wall,
                flags: flags::RESYNC,
                body: ItemBody::Pending,
                cost_bytes: cost(if read.compare { 0 } else { part }),
            });
            done += part;
            seq = seq.next();
        }
        if let Some(op) = common.slots.get_resync(slot) {
            *op = read;
        }
        common.volumes.copy_of(volume).set_covered(offset, length, read.last);
        common.volumes.of(volume).occupy(slot, offset, length, read.first, false);
        let (token, store) = (Token::new(common.id(), slot), Store::Volume(common.id(), volume));
        cx.out.push_back(if read.compare {
            Output::ReadHash { token, store, offset, length: length as u32 }
        } else {
            Output::Read { token, store, offset, length: length as u32, crc: None }
        });
    }

    /// What was read enters the queue. `Err`: the region cannot be read, and what says so.
    pub fn accept_read(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        read: &ResyncRead,
        result: IoResult,
    ) -> Result<(), String> {
        let range = read.range;
        let Some(pass) = self.pass.as_mut().filter(|pass| pass.name == read.pass) else { return Ok(()) };
        pass.reads -= 1;
        let body = match result {
            Ok(IoDone::Payload { zero: true, .. }) => ItemBody::Zero { no_hole: false },
            Ok(IoDone::Payload { buf, .. }) => {
                pass.sent_bytes += range.length;
                common.counters.shipped_bytes += range.length;
                common.volumes.of(range.volume).traffic.shipped(range.length);
                ItemBody::Data(Slice { buf, start: 0, length: range.length as u32 })
            }
            Ok(IoDone::Hash(hash)) => {
                pass.probes.insert(read.first, range);
                common.counters.compared_bytes += range.length;
                ItemBody::Probe(hash)
            }
            Ok(IoDone::Done | IoDone::Meta(_) | IoDone::Summed { .. } | IoDone::Sums(_) | IoDone::Run { .. }) => {
                unreachable!("a read answers with what was read")
            }
            Err(_) => {
                if cx.now.mono >= pass.reads_again_at {
                    // Others that were under way beside it say nothing new.
                    pass.failures += 1;
                    pass.reads_again_at = cx.now.mono.plus(limits::REPAIR_AFTER);
                }
                pass.resend.push_back(range);
                ItemBody::Void
            }
        };
        let voided = matches!(body, ItemBody::Void);
        if !voided {
            pass.failures = 0;
        }
        if !voided && !read.compare {
            pass.done_bytes += range.length;
        }
        let failures = pass.failures;
        self.fill_parts(read, &body);
        if voided {
            common.volumes.copy_of(range.volume).set_uncovered(range.offset, range.length);
            common.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER);
        }
        common.counters.resynced_bytes += range.length;
        // Its bits clear after a local flush; nothing else may ask for one.
        common.set_timer(cx, GroupTimer::LocalFlush, limits::LOCAL_FLUSH_AFTER);
        if failures < READ_FAILURES_MAX { Ok(()) } else { Err(unreadable(range.volume, range.offset)) }
    }

    /// Gives each part of a read its share of what was read.
    fn fill_parts(&mut self, read: &ResyncRead, body: &ItemBody) {
        let mut start = 0;
        for seq in (read.first.0..=read.last.0).map(Seq) {
            if !matches!(body, ItemBody::Data(_)) {
                self.queue.lighten(seq, cost(0));
            }
            let Some(item) = self.queue.get_mut(seq) else { continue };
            item.body = match body {
                ItemBody::Data(whole) => {
                    ItemBody::Data(Slice { buf: whole.buf.clone(), start: start as u32, length: item.length as u32 })
                }
                other => other.clone(),
            };
            start += read.part_bytes;
        }
    }

    /// The peer's answer to a hash. `Ok(false)`: nobody asked for it. `Err`: it had nothing to answer.
    pub fn probe_result(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        header: &FrameHeader,
    ) -> Result<bool, &'static str> {
        let sent = self.queue.sent_through();
        let Some(pass) = self.pass.as_mut() else { return Ok(false) };
        if pass.probes.contains_key(&header.seq) && header.seq > sent {
            return Err("an answer to a comparison that was not sent to it");
        }
        let Some(range) = pass.probes.remove(&header.seq) else { return Ok(false) };
        if header.flags & flags::EQUAL != 0 || injected(Fault::ProbeAlwaysEqual) {
            cx.coverage.hit(CoveragePoint::ProbeEqual);
            pass.done_bytes += range.length;
            return Ok(true);
        }
        cx.coverage.hit(CoveragePoint::ProbeDiffered);
        pass.resend.push_back(range);
        common.volumes.copy_of(range.volume).set_uncovered(range.offset, range.length);
        Ok(true)
    }

    /// Nothing is left to read: when all answers are in, the end takes its number.
    pub fn end_pass(&mut self, common: &mut GroupCommon, cx: &Cx) -> PassEnding {
        let Some(pass) = self.pass.as_mut() else { return PassEnding::Waits };
        if pass.reads > 0 || !pass.probes.is_empty() {
            return PassEnding::Waits;
        }
        let left = common.volumes.copies().position(|copy| copy.next_to_ship(0).is_some());
        if let Some(volume) = left {
            // A local write failed behind the walk.
            (pass.volume, pass.region) = (volume, 0);
            return PassEnding::GoesOn;
        }
        if pass.repair {
            return PassEnding::Repaired;
        }
        let (wall, seq, _) = common.numbers.give(cx, 1);
        pass.end = Some(seq);
        self.queue.push(QueueItem {
            seq,
            volume: VolumeId(0),
            offset: 0,
            length: 0,
            wall,
            flags: 0,
            body: ItemBody::SyncEnd,
            cost_bytes: cost(0),
        });
        PassEnding::Waits
    }
}
