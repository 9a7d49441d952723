//! Regions travel in the one ordered stream (rule 7): a region is read under a lock on its range, takes its number at
//! that moment, and is sent between the live writes with lower and higher numbers. So the secondary applies a resync like
//! any other stream, and at the number of `SyncEnd` it equals the primary at that number.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use crate::common::Common;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Decision;
use crate::formats::wire::{Header, Kind, SyncBegin, flags};
use crate::ids::*;
use crate::limits::{self, REGION_BYTES};
use crate::peer::Peer;
use crate::peer::queue::{Body, Item, cost};
use crate::peer::stall::unreadable;
use crate::planted::{Fault, planted};
use crate::records::bits::AfterBits;
use crate::shared::marks::Mark;
use crate::shared::slots::Op;
use crate::shared::time::Mono;
use crate::shared::volume::Conflict;
use crate::state::{Mode, State};
use crate::{Event, IoDone, IoError, Output, Slice, Store};
use alloc::string::String;

/// Failed reads of regions, one after the other and with a pause behind each, before the group gives up.
pub(crate) const READ_FAILURES_MAX: u32 = 8;

/// A range to be sent or compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
}

impl Range {
    /// Payload of its read in the queue: that of a comparison has none.
    pub fn queued_bytes(&self, compare: bool) -> u64 {
        if compare { 0 } else { self.length }
    }
}

/// One read under way, or waiting for its range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResyncRead {
    pub range: Range,
    pub compare: bool,
    /// Its numbers: one for each part, so that no frame keeps a slow link busy for long (rule 25).
    pub first: Seq,
    last: Seq,
    part_bytes: u64,
    /// The pass it belongs to; a read of an older pass is forgotten.
    pub pass: u64,
}

/// A pass over the dirty regions.
#[derive(Debug)]
pub(crate) struct Resync {
    pub pass: u64,
    /// The peer was told of it.
    pub begun: bool,
    /// The peer is ready for it.
    pub ready: bool,
    /// In a running stream, for regions that a failed local write left dirty: the secondary stays consistent.
    pub repair: bool,
    /// Next region to look at.
    volume: usize,
    region: u64,
    pub reads: usize,
    /// What reads that wait for their range will hold: they are in no queue yet.
    pub waiting_bytes: u64,
    pub probes: BTreeMap<Seq, Range>,
    /// Ranges found different, or whose read failed.
    pub resend: VecDeque<Range>,
    pub failures: u32,
    /// After a read that failed nothing is read before this.
    pub reads_again_at: Mono,
    /// When it last had room in the queue for a read, or nothing to read.
    pub had_room_at: Mono,
    pub end: Option<Seq>,
    pub total_bytes: u64,
    pub done_bytes: u64,
    pub sent_bytes: u64,
}

/// What a pass reads next.
pub(crate) struct NextRead {
    pub range: Range,
    pub compare: bool,
    /// The region at which the walk goes on; `None`: it is of what is sent again.
    goes_on_at: Option<u64>,
}

impl ResyncRead {
    pub fn volume(&self) -> VolumeId {
        self.range.volume
    }
}

impl Resync {
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
    pub fn begins(&self, pass: u64) -> bool {
        self.pass == pass && !self.begun
    }

    pub fn new(now: Mono, pass: u64, repair: bool, total_bytes: u64) -> Resync {
        Resync {
            pass,
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

impl Common {
    /// Everything is to be sent; that it is stands on disk before it begins (rule 6).
    pub fn mark_everything(&mut self, cx: &mut Cx) {
        for volume in self.volumes.iter_mut() {
            volume.dirty.set_all();
            volume.doubt = None;
        }
        self.sb.current.compare = false;
        self.bits().save(cx, AfterBits::FullSync);
    }
}

impl Peer {
    pub fn begin_full_sync(&mut self, common: &mut Common, cx: &mut Cx) {
        if !self.reconcile.may_sync_in_full() || !self.full_is_wanted(common) {
            return;
        }
        let fits = common.state == State::Logging && common.lifecycle.is_running() && common.greeting.hello().is_some();
        let sb = &common.sb.current;
        let changed = sb.changed_outside && !planted(Fault::ChangedSentUnasked);
        let held = sb.held_in_logging || changed || common.settings.mode == Mode::Logging;
        if !fits || held || matches!(self.decision(common), None | Some(Decision::Refuse(_))) {
            return;
        }
        if !cx.may_sync {
            // Another group took the place while this one's bits were being stored.
            self.waits_for_turn(common, true);
            return;
        }
        self.begin_sync(common, cx, true);
    }

    /// From logging: whether a sync may begin by itself. If not, the state says why.
    pub fn may_autosync(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        if common.greeting.hello().is_none() {
            return false;
        }
        let waits = if common.settings.mode == Mode::Logging {
            Some("mode is logging")
        } else if common.sb.current.held_in_logging {
            Some("waiting for 'sync': the operator holds the group in logging")
        } else if common.sb.current.changed_outside && !planted(Fault::ChangedSentUnasked) {
            Some(crate::CHANGED_OUTSIDE)
        } else if !(common.settings.autosync || self.wanted.is_update() || self.full_is_wanted(common)) {
            Some("waiting for 'sync': autosync is off")
        } else {
            None
        };
        if let Some(waits) = waits {
            let why = match self.decision(common) {
                // That one would be refused.
                Some(Decision::NeedsFullSync(why)) if !self.full_is_wanted(common) => {
                    alloc::format!("{why}")
                }
                Some(Decision::Refuse(why)) => alloc::format!("{why}"),
                _ => waits.into(),
            };
            self.transition(common, cx, State::Logging, &why);
            return false;
        }
        let healthy = common.greeting.hello().is_some_and(|h| !h.failed) && !self.generation_due;
        let may = match self.decision(common) {
            Some(Decision::UpdateSync | Decision::Continue(_)) => true,
            Some(Decision::NeedsFullSync(_)) => self.full_is_wanted(common),
            _ => false,
        };
        if let Some(wait) = self.stall.left_alone_for(cx.now.mono) {
            if healthy && may {
                self.transition(common, cx, State::Logging, self.stall.pause_words());
            }
            common.set_timer(cx, GroupTimer::Autosync, wait);
            return false;
        }
        healthy && may
    }

    /// Starts reads while the stream has use for them. True: live writes leave it no room, and it will not come to its end beside them.
    pub fn pump_resync(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        self.announce_sync(common, cx);
        loop {
            let reads = self.resync.as_ref().filter(|r| r.ready && r.end.is_none());
            let Some(resync) = reads.filter(|_| !self.waits_to_resume(common)) else { return false };
            let busy = resync.reads >= limits::RESYNC_READS_MAX
                || cx.now.mono < resync.reads_again_at
                || self.queue.unsent_sync_bytes() + resync.waiting_bytes >= cx.peer.resync_backlog_bytes()
                || resync.probes.len() >= limits::PROBES_IN_FLIGHT_MAX;
            if busy {
                return false;
            }
            let next = self.next_read(common, cx);
            if next
                .as_ref()
                .is_some_and(|next| !self.has_room_for_sync(common, cx, next.range.queued_bytes(next.compare)))
            {
                return self.is_starved(common, cx.now.mono);
            }
            if let Some(resync) = self.resync.as_mut() {
                resync.had_room_at = cx.now.mono;
            }
            match next {
                Some(next) => self.read_range(common, cx, next),
                None if self.end_pass(common, cx) => {}
                None => return false,
            }
        }
    }

    /// What was read for a pass takes its place in the queue. `Err`: it cannot be read, and the sync cannot go on.
    pub fn place_read(
        &mut self,
        common: &mut Common,
        cx: &mut Cx,
        read: &ResyncRead,
        result: Result<IoDone, IoError>,
    ) -> Result<(), String> {
        let range = read.range;
        let Some(resync) = self.resync.as_mut().filter(|resync| resync.pass == read.pass) else { return Ok(()) };
        resync.reads -= 1;
        let body = match result {
            Ok(IoDone::Payload { zero: true, .. }) => Body::Zero { no_hole: false },
            Ok(IoDone::Payload { buf, .. }) => {
                resync.sent_bytes += range.length;
                common.counters.shipped_bytes += range.length;
                Body::Data(Slice { buf, start: 0, length: range.length as u32 })
            }
            Ok(IoDone::Hash(hash)) => {
                resync.probes.insert(read.first, range);
                common.counters.compared_bytes += range.length;
                Body::Probe(hash)
            }
            Ok(IoDone::Done | IoDone::Meta(_) | IoDone::Summed { .. } | IoDone::Run { .. }) => {
                unreachable!("a read answers with what was read")
            }
            Err(_) => {
                if cx.now.mono >= resync.reads_again_at {
                    // Others that were under way beside it say nothing new.
                    resync.failures += 1;
                    resync.reads_again_at = cx.now.mono.plus(limits::REPAIR_AFTER);
                }
                resync.resend.push_back(range);
                Body::Void
            }
        };
        let voided = matches!(body, Body::Void);
        if !voided {
            resync.failures = 0;
        }
        if !voided && !read.compare {
            resync.done_bytes += range.length;
        }
        let failures = resync.failures;
        self.fill_parts(read, &body);
        if voided {
            common.volumes.of(range.volume).mark_uncovered(range.offset, range.length);
            common.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER);
        }
        common.counters.resynced_bytes += range.length;
        // Its bits clear after a local flush; nothing else may ask for one.
        common.set_timer(cx, GroupTimer::LocalFlush, limits::LOCAL_FLUSH_AFTER);
        if failures < READ_FAILURES_MAX {
            return Ok(());
        }
        let why = unreadable(range.volume, range.offset);
        let is_repair = self.resync.as_ref().is_some_and(|r| r.repair);
        if !is_repair || planted(Fault::RepairEndsStream) {
            return Err(why);
        }
        self.put_off_repair(common, cx, &why);
        Ok(())
    }

    /// A pass over the dirty regions is under way, or a mere repair.
    pub fn syncs_in_stream(&self) -> bool {
        self.resync.is_some()
    }
}

impl Peer {
    pub fn begin_sync(&mut self, common: &mut Common, cx: &mut Cx, full: bool) {
        if cx.peer.link.is_none() {
            return;
        }
        let compare = common.volumes.iter().any(|v| v.doubt.is_some());
        let dirty_bytes = common.volumes.dirty_bytes();
        cx.marks.hit(match (full, compare) {
            (true, _) => Mark::FullSyncBegan,
            (_, true) => Mark::CompareSyncBegan,
            _ if dirty_bytes == 0 => Mark::SyncNothingDirty,
            _ => Mark::UpdateSyncBegan,
        });
        common.counters.syncs += 1;
        cx.event(common.id(), Event::SyncBegan { full, compare, dirty_bytes });
        match (full, compare) {
            (true, _) => self.begin_catch_up(common, cx, "full sync"),
            // What is dirty is not known: most of it is answered by a hash, in the stream.
            (_, true) => {
                let why = "update sync; what was being written when this primary stopped is compared";
                self.begin_sync_in_stream(common, cx, why);
            }
            _ => self.begin_catch_up(common, cx, "update sync"),
        }
    }

    /// A sync whose live writes travel beside the regions; it ends in order (rule 7).
    pub fn begin_sync_in_stream(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        let dirty_bytes = common.volumes.dirty_bytes();
        self.begin_stream(cx);
        self.stream_began = self.numbers.last();
        self.passes += 1;
        self.resync = Some(Resync::new(cx.now.mono, self.passes, false, dirty_bytes));
        self.transition(common, cx, State::Syncing, why);
        self.watch_sync(common, cx);
    }

    /// What the regions carry is durable here before the peer hears of them, and so is all that it may have of an earlier
    /// stream: after a crash it must not be ahead of us. Live writes go on, and wait in the queue.
    pub fn announce_sync(&mut self, common: &mut Common, cx: &mut Cx) {
        let Some(resync) = self.resync.as_ref().filter(|r| !r.begun) else { return };
        let (attempt, nothing_dirty, link) = (resync.pass, resync.total_bytes == 0, cx.peer.link);
        let recorded = !self.generation_due;
        let Some(link) = link.filter(|_| self.numbers.flushed_through(common, cx, self.stream_began) && recorded)
        else {
            return;
        };
        let from = common.place(self.stream_began);
        let dirty_bytes = common.volumes.iter().map(|v| v.surely_dirty_bytes()).sum();
        let parent = common.sb.current.identity.parent;
        let to = common.greeting.run();
        let begin = SyncBegin { from, parent, to, nothing_dirty, dirty_bytes, cut: 0, attempt };
        cx.send_control(link, Kind::SyncBegin, common.id(), begin.encode());
        self.stall.moved(cx.now.mono);
        if let Some(resync) = self.resync.as_mut() {
            resync.begun = true;
        }
    }

    /// A sync is under way, by cuts or in the stream; not a mere repair.
    pub fn syncs(&self) -> bool {
        self.cut.is_some() || self.resync.as_ref().is_some_and(|r| !r.repair)
    }

    pub fn peer_sync_ready(&mut self, common: &mut Common, cx: &mut Cx, header: &Header) {
        if !self.was_begun(header.offset) {
            return common.protocol_error(cx, "an answer to a sync that was not begun");
        }
        self.stall.answered(cx.now.mono);
        if common.state == State::Logging {
            common.set_timer(cx, GroupTimer::Autosync, Duration::ZERO);
        }
        if let Some(from) = self.cut.as_mut().and_then(|cut| cut.peer_is_ready(common, cx.now.mono, header.offset)) {
            return self.peer_took_up(common, from, true);
        }
        // An answer to a begin that was abandoned meanwhile is nobody's.
        let waiting = self.resync.as_mut().filter(|r| !r.ready && r.pass == header.offset);
        let (Some(resync), Some(stream)) = (waiting, self.stream.as_mut()) else { return };
        resync.ready = true;
        stream.open = true;
        let dirty = resync.total_bytes > 0;
        self.peer_took_up(common, common.place(self.stream_began), dirty);
    }

    /// It has taken up our history: should this sync end early, the next meeting starts from here.
    fn peer_took_up(&mut self, common: &mut Common, begin: Position, dirty: bool) {
        common.sb.current.alone = false;
        // Until now the order stood: what ends before the peer has heard of it is begun again.
        self.forget_orders();
        let ours = common.sb.current.identity;
        common.greeting.took_up(&ours, begin, dirty);
    }

    /// Whole regions: of a small queue no read takes more than a quarter beyond the half that a sync may fill, and of memory what there is
    /// for it.
    fn longest_sync_read(&self, common: &Common, cx: &Cx) -> u64 {
        let most = cx.peer.part_bytes.min(common.settings.queue_bytes / 4).min(self.sync_memory_bytes(common, cx));
        (most / REGION_BYTES * REGION_BYTES).max(REGION_BYTES)
    }

    /// What is to be read next; it stays the next until the read begins.
    pub fn next_read(&mut self, common: &mut Common, cx: &mut Cx) -> Option<NextRead> {
        let longest_read = self.longest_sync_read(common, cx);
        let resync = self.resync.as_mut()?;
        if let Some(&range) = resync.resend.front() {
            let length = range.length.min(longest_read);
            return Some(NextRead { range: Range { length, ..range }, compare: false, goes_on_at: None });
        }
        while let Some(volume) = common.volumes.get(resync.volume) {
            let mut skipped = 0;
            let found = volume.next_to_ship(resync.region, &mut skipped);
            if skipped > 0 {
                cx.marks.hit(Mark::ResyncSkippedCovered);
            }
            let Some(first) = found else {
                resync.volume += 1;
                resync.region = 0;
                continue;
            };
            let mut next = first + 1;
            let size = volume.config.size_bytes;
            let compare = volume.in_doubt(first);
            let longest = if compare { limits::PROBE_BYTES } else { longest_read };
            let goes_on = |next: u64| volume.must_ship(next) && volume.in_doubt(next) == compare;
            while (next + 1 - first) * REGION_BYTES <= longest && next * REGION_BYTES < size && goes_on(next) {
                next += 1;
            }
            // What was skipped is not looked at again.
            resync.region = first;
            let offset = first * REGION_BYTES;
            let length = (next * REGION_BYTES).min(size) - offset;
            let leaves_tail = compare && length > 4096 && planted(Fault::CompareLeavesTail);
            let length = if leaves_tail { length / 4096 * 4096 } else { length };
            let range = Range { volume: VolumeId(resync.volume as u16), offset, length };
            return Some(NextRead { range, compare, goes_on_at: Some(next) });
        }
        None
    }

    pub fn read_range(&mut self, common: &mut Common, cx: &mut Cx, next: NextRead) {
        let NextRead { range, compare, .. } = next;
        let resync = self.resync.as_mut().expect("a pass is under way");
        resync.begins_read(&next);
        let pass = resync.pass;
        let slot = common.slots.insert(Op::Resync(ResyncRead {
            range,
            compare,
            first: Seq::NONE,
            last: Seq::NONE,
            part_bytes: 0,
            pass,
        }));
        match common.volumes.of(range.volume).conflict(range.offset, range.length) {
            Some(Conflict::Write) if planted(Fault::ResyncReadRaces) => self.admit_resync_read(common, cx, slot),
            None => self.admit_resync_read(common, cx, slot),
            Some(conflict) => {
                if conflict == Conflict::Write {
                    cx.marks.hit(Mark::ResyncWaitedForWrite);
                }
                if let Some(resync) = self.resync.as_mut() {
                    resync.waiting_bytes += next.range.queued_bytes(next.compare);
                }
                common.volumes.of(range.volume).wait_for_range(slot, range.offset, range.length, false);
            }
        }
    }

    /// What a read waited for has its range free.
    pub fn admit_waiting_read(&mut self, common: &mut Common, cx: &mut Cx, slot: u32) {
        let Some(&Op::Resync(read)) = common.slots.get(slot) else { unreachable!("the slot waits for a resync read") };
        let Some(resync) = self.resync.as_mut().filter(|resync| resync.pass == read.pass) else {
            // The stream ended while the read waited for its range.
            common.volumes.of(read.range.volume).let_go(slot);
            common.slots.take(slot);
            return;
        };
        resync.waiting_bytes -= read.range.queued_bytes(read.compare);
        self.admit_resync_read(common, cx, slot);
    }

    /// The range is free: lock it, take the number, read.
    fn admit_resync_read(&mut self, common: &mut Common, cx: &mut Cx, slot: u32) {
        let Some(&Op::Resync(mut read)) = common.slots.get(slot) else { unreachable!("the slot is a resync read's") };
        let Range { volume, offset, length } = read.range;
        let wall = self.numbers.stamp(cx);
        read.part_bytes = if read.compare { length } else { cx.peer.part_bytes };
        let parts = length.div_ceil(read.part_bytes);
        (read.first, read.last) = self.numbers.give_many(parts);
        let (mut done, mut seq) = (0, read.first);
        while done < length {
            let part = read.part_bytes.min(length - done);
            self.queue.push(Item {
                seq,
                volume,
                offset: offset + done,
                length: part,
                wall,
                flags: flags::RESYNC,
                body: Body::Pending,
                cost_bytes: cost(if read.compare { 0 } else { part }),
            });
            done += part;
            seq = seq.next();
        }
        if let Some(op) = common.slots.get_resync(slot) {
            *op = read;
        }
        common.volumes.of(volume).mark_shipped(offset, length, read.last);
        common.volumes.of(volume).occupy(slot, offset, length, read.first, false);
        let (token, store) = (Token::new(common.id(), slot), Store::Volume(common.id(), volume));
        cx.out.push_back(if read.compare {
            Output::ReadHash { token, store, offset, length: length as u32 }
        } else {
            Output::Read { token, store, offset, length: length as u32, crc: None }
        });
    }

    /// Gives each part of a read its share of what was read.
    pub fn fill_parts(&mut self, read: &ResyncRead, body: &Body) {
        let mut start = 0;
        for seq in (read.first.0..=read.last.0).map(Seq) {
            if !matches!(body, Body::Data(_)) {
                self.queue.lighten(seq, cost(0));
            }
            let Some(item) = self.queue.get_mut(seq) else { continue };
            item.body = match body {
                Body::Data(whole) => {
                    Body::Data(Slice { buf: whole.buf.clone(), start: start as u32, length: item.length as u32 })
                }
                other => other.clone(),
            };
            start += read.part_bytes;
        }
    }

    /// The peer's answer to a hash.
    pub fn probe_result(&mut self, common: &mut Common, cx: &mut Cx, header: &Header) {
        let sent = self.sent_through();
        let Some(resync) = self.resync.as_mut().filter(|r| r.probes.contains_key(&header.seq)) else {
            return;
        };
        if header.seq > sent {
            return common.protocol_error(cx, "an answer to a comparison that was not sent to it");
        }
        let Some(range) = resync.probes.remove(&header.seq) else { return };
        self.stall.moved(cx.now.mono);
        if header.flags & flags::EQUAL != 0 || planted(Fault::ProbeAlwaysEqual) {
            cx.marks.hit(Mark::ProbeEqual);
            resync.done_bytes += range.length;
            return;
        }
        cx.marks.hit(Mark::ProbeDiffered);
        resync.resend.push_back(range);
        common.volumes.of(range.volume).mark_uncovered(range.offset, range.length);
    }

    /// Nothing is left to read: when all answers are in, the end takes its number. True: there is something left.
    pub fn end_pass(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        let Some(resync) = self.resync.as_mut() else { return false };
        if resync.reads > 0 || !resync.probes.is_empty() {
            return false;
        }
        let mut skipped = 0;
        let left = common.volumes.iter().position(|v| v.next_to_ship(0, &mut skipped).is_some());
        if let Some(volume) = left {
            // A local write failed behind the walk.
            (resync.volume, resync.region) = (volume, 0);
            return true;
        }
        if resync.repair {
            self.repair_ended(common);
            return false;
        }
        let wall = self.numbers.stamp(cx);
        let seq = self.numbers.give();
        self.queue.push(Item {
            seq,
            volume: VolumeId(0),
            offset: 0,
            length: 0,
            wall,
            flags: 0,
            body: Body::SyncEnd,
            cost_bytes: cost(0),
        });
        if let Some(resync) = self.resync.as_mut() {
            resync.end = Some(seq);
        }
        false
    }

    /// The sync is over once the peer applied its end.
    pub fn sync_progress(&mut self, common: &mut Common, cx: &mut Cx) {
        let (Some(resync), Some(stream)) = (self.resync.as_ref(), self.stream.as_mut()) else {
            return;
        };
        if resync.end.is_none_or(|end| end > stream.applied) {
            return;
        }
        stream.catching_up_since = cx.now.mono;
        let applied = stream.applied;
        let sent_bytes = resync.sent_bytes + core::mem::take(&mut self.catch_up.sent_bytes);
        self.resync = None;
        common.volumes.iter_mut().for_each(|volume| volume.doubt = None);
        if core::mem::take(&mut common.sb.current.compare) {
            common.save(cx, None);
        }
        common.tidy_bits(cx);
        cx.event(common.id(), Event::SyncEnded { sent_bytes });
        self.stall.sync_ended();
        common.greeting.became_whole(common.sb.current.identity.generation);
        // It holds a whole image again.
        common.confirmed(common.place(applied));
        self.transition(common, cx, State::CatchingUp, "the sync is done");
    }
}

impl Common {}
