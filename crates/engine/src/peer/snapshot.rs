//! One catch-up snapshot: what it has read and saved, what of it was sent and confirmed.

mod compared;
pub mod holes;
pub mod left;
mod saves;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::bitmap::region_span;
use crate::formats::wire::{Ack, FrameHeader, FrameKind, flags};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::limits::{self, REGION_BYTES};
use crate::peer::pause::{PauseCause, unreadable};
use crate::peer::snapshot::compared::{SnapshotProbes, alike};
use crate::peer::snapshot::holes::HoleQuestion;
use crate::shared::cost::frame_cost;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::peer_copy::PeerCopy;
use crate::shared::reads::{SnapshotRead, SpilledRange, SyncRange};
use crate::shared::volumes::{AmountToSend, Volumes};
use crate::state::Pause;
use crate::time::{Mono, Wall};
use crate::{Buf, IoDone, IoResult, Output, SendPayload, Slice, Store};
use alloc::collections::VecDeque;
use alloc::string::String;
use core::time::Duration;

/// The longest run that one read takes of a snapshot which may hold `room`, all in bytes: a quarter of it, or a region. So what is
/// read while a write waits fits beside it.
pub(crate) fn longest_read(longest: u64, room: u64) -> u64 {
    longest.min(room / 4).max(REGION_BYTES)
}

/// Where what was read for a snapshot goes.
pub(crate) enum ReadDestination {
    /// Into memory, to be sent.
    Held,
    /// Into the undo store first; its range stays locked.
    ToSpill { buf: Buf, crc: u32 },
}

/// What the last snapshot showed, in bytes per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotRates {
    /// All that clients wrote to volumes in order: what a stream would have to carry.
    pub written: u64,
    /// Regions they dirtied, each counted once: what the next snapshot has to carry.
    pub dirtied: u64,
    pub carried: u64,
}

/// Why a snapshot cannot be finished.
#[derive(Debug)]
pub(crate) struct GivenUp {
    pub cause: PauseCause,
    pub why: String,
}

impl GivenUp {
    /// A device of this node failed it.
    fn own_store(why: impl Into<String>) -> GivenUp {
        GivenUp { cause: PauseCause::OwnStoreFailed, why: why.into() }
    }
}

/// A range as it was at the mark, to be sent; `buf` is `None` where it is zero.
#[derive(Debug)]
struct SnapshotPiece {
    volume: VolumeId,
    offset: u64,
    length: u64,
    sent: u64,
    buf: Option<Buf>,
}

/// Regions whose last frame has this number.
#[derive(Debug)]
struct ShippedRegions {
    number: Seq,
    volume: VolumeId,
    first: u64,
    last: u64,
}

/// The snapshot under way, or the one just done when the next has time.
#[derive(Debug)]
pub(crate) struct CatchUpSnapshot {
    /// Names it: no other of this incarnation has the same.
    name: u64,
    /// The mark: the image it makes is the one after this number.
    from: Position,
    wall: Wall,
    frozen_at: Mono,
    /// What clients had written in order by then.
    ordered_before: u64,
    /// The volumes are flushed through the mark, and it was announced to the peer.
    begun: bool,
    /// When the peer was ready for it.
    open_since: Option<Mono>,
    /// Where the walk over the regions goes on.
    volume: usize,
    region: u64,
    /// What is known of what it will find there.
    asked: HoleQuestion,
    reads: usize,
    reading_bytes: u64,
    /// Saved ahead of a write; these go first.
    saved: VecDeque<SnapshotPiece>,
    walked: VecDeque<SnapshotPiece>,
    held_bytes: u64,
    /// What is compared before it is sent.
    probes: SnapshotProbes,
    /// Saved in the undo store.
    spilled: VecDeque<SpilledRange>,
    /// Writes that wait until there is memory to save what they overwrite.
    waiting: VecDeque<u32>,
    granted_bytes: u64,
    /// How often the peer's grant went back in this snapshot.
    recalls: u64,
    sent_bytes: u64,
    sent: Seq,
    /// Not applied at the peer yet.
    shipped: VecDeque<ShippedRegions>,
    confirmed: Ack,
    end: Option<Seq>,
    done: bool,
    /// The peer cannot apply.
    paused: Option<Pause>,
    /// What is to be sent for sure.
    to_send: AmountToSend,
    /// And what is to be compared with it.
    total_bytes: u64,
    done_bytes: u64,
    payload_bytes: u64,
}

impl CatchUpSnapshot {
    pub fn new(
        name: u64,
        from: Position,
        wall: Wall,
        now: Mono,
        ordered_before: u64,
        (to_send, total_bytes): (AmountToSend, u64),
    ) -> CatchUpSnapshot {
        CatchUpSnapshot {
            name,
            from,
            wall,
            frozen_at: now,
            ordered_before,
            begun: false,
            open_since: None,
            volume: 0,
            region: 0,
            asked: HoleQuestion::default(),
            reads: 0,
            reading_bytes: 0,
            saved: VecDeque::new(),
            walked: VecDeque::new(),
            held_bytes: 0,
            probes: SnapshotProbes::default(),
            spilled: VecDeque::new(),
            waiting: VecDeque::new(),
            granted_bytes: 0,
            recalls: 0,
            sent_bytes: 0,
            sent: Seq::NONE,
            shipped: VecDeque::new(),
            confirmed: Ack::default(),
            end: None,
            done: false,
            paused: None,
            to_send,
            total_bytes,
            done_bytes: 0,
            payload_bytes: 0,
        }
    }

    pub fn paused(&self) -> Option<Pause> {
        self.paused
    }

    /// The peer cannot apply, or can again.
    pub fn pause(&mut self, paused: Option<Pause>) {
        self.paused = paused;
    }

    /// Memory it holds or is about to.
    pub fn memory_bytes(&self) -> u64 {
        self.held_bytes + self.reading_bytes
    }

    /// Something was sent that the peer has not dealt with.
    pub fn peer_owes(&self) -> bool {
        self.begun && (self.open_since.is_none() || self.confirmed.applied < self.sent)
    }

    fn ships(&self) -> bool {
        self.open_since.is_some() && self.end.is_none()
    }

    /// Content to be sent is at hand.
    pub fn hold(&mut self, volume: VolumeId, offset: u64, length: u64, buf: Option<Buf>, first: bool) {
        self.held_bytes += if buf.is_some() { length } else { 0 };
        let piece = SnapshotPiece { volume, offset, length, sent: 0, buf };
        if first { self.saved.push_back(piece) } else { self.walked.push_back(piece) }
    }

    /// The walk goes on here.
    fn walk_from(&mut self, volume: VolumeId, region: u64) {
        (self.volume, self.region) = (usize::from(volume.0), region);
    }

    /// The next frame's content, at most `part` bytes of it: kind, volume, range, payload. It is not taken yet.
    fn next_part(&self, part: u64) -> Option<(VolumeId, u64, u64, SendPayload)> {
        let piece = self.saved.front().or(self.walked.front())?;
        let longest = if piece.buf.is_some() { part } else { limits::HOLE_PART_BYTES_MAX };
        let length = longest.min(piece.length - piece.sent);
        let payload = match &piece.buf {
            Some(buf) => SendPayload::Data(Slice { buf: buf.clone(), start: piece.sent as u32, length: length as u32 }),
            None => SendPayload::None,
        };
        Some((piece.volume, piece.offset + piece.sent, length, payload))
    }

    fn take_part(&mut self, length: u64) {
        let queue = if self.saved.is_empty() { &mut self.walked } else { &mut self.saved };
        let piece = queue.front_mut().expect("the part was just looked at");
        piece.sent += length;
        self.done_bytes += length;
        self.payload_bytes += if piece.buf.is_some() { length } else { 0 };
        if piece.sent == piece.length {
            self.held_bytes -= if piece.buf.is_some() { piece.length } else { 0 };
            let (first, last) = region_span(piece.offset, piece.length);
            // What is not noted is sent again, should the snapshot be cut short.
            if self.shipped.len() < limits::SHIPPED_PIECES_MAX {
                self.shipped.push_back(ShippedRegions { number: self.sent, volume: piece.volume, first, last });
            }
            queue.pop_front();
        }
    }

    /// The snapshot of this name is this one, and still to be announced.
    pub fn is_to_begin(&self, name: u64) -> bool {
        self.name == name && !self.begun
    }

    fn begin_read(&mut self, bytes: u64) {
        self.reads += 1;
        self.reading_bytes += bytes;
    }

    fn end_read(&mut self, bytes: u64) {
        self.reads -= 1;
        self.reading_bytes -= bytes;
    }

    /// The peer's answer to a begin: if it is this snapshot's, the mark, and the time of that.
    pub fn peer_is_ready(&mut self, common: &mut GroupCommon, now: Mono, attempt: u64) -> Option<(Position, Wall)> {
        if self.name != attempt || self.open_since.is_some() {
            return None;
        }
        self.open_since = Some(now);
        let from = self.from;
        for copy in common.volumes.copies_mut() {
            // It keeps nothing of what came before: that is flushed here.
            copy.forget_kept(from.seq);
            copy.forget_cut_short();
        }
        Some((from, self.wall))
    }

    /// The next run to read: from where the walk stands, then what it passed over.
    fn next_run(&mut self, common: &mut GroupCommon, longest: u64) -> Option<(VolumeId, u64, u64)> {
        let (at, region) = (self.volume, self.region);
        let order = (at..common.volumes.len()).chain(0..=at);
        let found = order.enumerate().find_map(|(step, index)| {
            let from = if step == 0 { region } else { 0 };
            let (first, next) = common.volumes[index].next_of_snapshot(from, u64::MAX, longest)?;
            Some((index, first, next))
        });
        let (index, first, next) = found?;
        (self.volume, self.region) = (index, next);
        Some((VolumeId(index as u16), first, next))
    }

    /// Reads regions `first..next` under a lock on their range.
    pub fn read(&mut self, common: &mut GroupCommon, cx: &mut Cx, volume: VolumeId, first: u64, next: u64, save: bool) {
        let size = common.volumes.of(volume).size_bytes();
        let offset = first * REGION_BYTES;
        let length = (next * REGION_BYTES).min(size) - offset;
        self.begin_read(length);
        let read = SnapshotRead { snapshot: self.name, volume, offset, length, save, compare: false };
        let slot = common.slots.insert(SlotOperation::Snapshot(read));
        let held = common.volumes.of(volume);
        held.copy.take_for_snapshot(first, next);
        held.occupy(slot, offset, length, Seq::NONE, false);
        let (token, store) = (Token::new(common.id(), slot), Store::Volume(common.id(), volume));
        let length = length as u32;
        cx.out.push_back(if save {
            Output::ReadSummed { token, store, offset, length }
        } else {
            Output::Read { token, store, offset, length, crc: None }
        });
    }

    /// The next frame of the snapshot, if the peer's window allows it.
    pub fn next_frame(&mut self, common: &GroupCommon, cx: &Cx) -> Option<(FrameHeader, SendPayload)> {
        if !self.ships() {
            return None;
        }
        let read = common.volumes.copies().all(PeerCopy::all_shipped);
        let identity = common.sb.identity;
        let (origin, group) = (common.node, common.id());
        // What a write may wait for goes first, then what the peer has to read for.
        let hash = self.probes.next().filter(|_| self.saved.is_empty());
        let part = self.next_part(cx.peer.part_bytes);
        let (kind, volume, offset, length, payload) = match (hash, part) {
            (Some((SyncRange { volume, offset, length }, hash)), _) => {
                (FrameKind::Probe, volume, offset, length, SendPayload::Control(hash.to_vec()))
            }
            (None, Some((volume, offset, length, payload))) => {
                let kind = if matches!(payload, SendPayload::Data(_)) { FrameKind::Data } else { FrameKind::Zero };
                (kind, volume, offset, length, payload)
            }
            (None, None)
                if (read && self.reads == 0 && self.spilled.is_empty()) || injected(Fault::SnapshotEndsEarly) =>
            {
                (FrameKind::SyncEnd, VolumeId(0), 0, 0, SendPayload::None)
            }
            (None, None) => return None,
        };
        let bytes = frame_cost(&payload);
        if self.sent_bytes + bytes > self.granted_bytes {
            return None;
        }
        self.sent_bytes += bytes;
        self.sent = self.sent.next();
        match kind {
            FrameKind::SyncEnd => self.end = Some(self.sent),
            FrameKind::Probe => self.probes.take_next(self.sent),
            _ => self.take_part(length),
        }
        let header = FrameHeader {
            flags: flags::RESYNC,
            volume,
            origin,
            incarnation: identity.incarnation,
            generation_tag: identity.generation.tag,
            seq: self.sent,
            offset,
            length,
            wall: self.wall,
            ..FrameHeader::new(kind, cx.peer.session, group)
        };
        Some((header, payload))
    }

    /// Starts the next read, if it may hold more. `room`: bytes of memory for all that it holds. False: nothing is read for now.
    pub fn read_next(&mut self, common: &mut GroupCommon, cx: &mut Cx, room: u64) -> bool {
        let some = self.memory_bytes() > 0;
        let full = self.memory_bytes() >= limits::RESYNC_BACKLOG_BYTES_MAX.min(room / 2);
        if !self.ships() || self.reads >= limits::RESYNC_READS_MAX || (some && full) {
            return false;
        }
        if self.fetch_spilled(common, cx) {
            return true;
        }
        // Until the answer is there the walk does not go on: it would pass over all that the question holds.
        if self.asked.is_asking {
            return false;
        }
        let longest = longest_read(cx.peer.part_bytes, room);
        if let Some((volume, first, next)) = self.next_differing(common, longest) {
            self.read(common, cx, volume, first, next, false);
            return true;
        }
        if let Some((volume, first, next)) = self.next_narrowed(common) {
            let compare = common.volumes.copy_of(volume).needs_verification(first);
            if !compare {
                self.read(common, cx, volume, first, next, false);
            }
            return !compare || self.compare(common, cx, volume, (first, next));
        }
        let Some((volume, first, next)) = self.next_run(common, longest) else {
            return false;
        };
        if self.asks_for_hole(common, cx, volume, first) {
            return false;
        }
        let (next, compare) = alike(&mut common.volumes, volume, first, next);
        if compare && !self.compare(common, cx, volume, (first, next)) {
            self.walk_from(volume, first);
            return false;
        }
        self.walk_from(volume, next);
        if !compare {
            self.read(common, cx, volume, first, next, false);
        }
        true
    }

    /// What was read is held, or is to go to the undo store first. `room`: bytes of memory for all that it holds.
    pub fn accept_read(
        &mut self,
        common: &mut GroupCommon,
        read: &SnapshotRead,
        result: IoResult,
        room: u64,
    ) -> Result<ReadDestination, GivenUp> {
        if read.compare {
            return self.hash_is_read(common, read, result).map(|()| ReadDestination::Held);
        }
        self.end_read(read.length);
        let (buf, crc) = match result {
            Ok(IoDone::Summed { zero: true, .. } | IoDone::Payload { zero: true, .. }) => (None, 0),
            Ok(IoDone::Summed { buf, crc, .. }) => (Some(buf), crc),
            Ok(IoDone::Payload { buf, .. }) => (Some(buf), 0),
            Ok(_) => unreachable!("a read answers with what was read"),
            // A write may be about to overwrite what could not be read: the step cannot be whole.
            Err(_) => return Err(GivenUp::own_store(unreadable(read.volume, read.offset))),
        };
        common.counters.resynced_bytes += read.length;
        let shipped_bytes = if buf.is_some() { read.length } else { 0 };
        common.counters.shipped_bytes += shipped_bytes;
        common.volumes.of(read.volume).traffic.shipped(shipped_bytes);
        match buf {
            Some(buf) if read.save && self.held_bytes + read.length > room / 4 => {
                Ok(ReadDestination::ToSpill { buf, crc })
            }
            buf => {
                self.hold(read.volume, read.offset, read.length, buf, read.save);
                Ok(ReadDestination::Held)
            }
        }
    }

    /// Takes the peer's numbers and its window. `Ok(true)`: it got on. `Err`: what the peer cannot have said.
    pub fn confirm(&mut self, ack: Ack, recalls: u64) -> Result<bool, &'static str> {
        let was = self.confirmed;
        if let Some(what) = ack.contradicts([was.received, was.durable, was.applied], self.sent) {
            return Err(what);
        }
        self.confirmed = ack;
        (self.granted_bytes, self.recalls) = (ack.granted_bytes, recalls);
        Ok((was.received, was.durable, was.applied) != (ack.received, ack.durable, ack.applied))
    }

    /// What the peer has applied: should the snapshot be cut short, it has that.
    pub fn note_applied(&mut self, volumes: &mut Volumes) {
        while let Some(shipped) = self.shipped.front().filter(|shipped| shipped.number <= self.confirmed.applied) {
            volumes.copy_of(shipped.volume).peer_applied(shipped.first, shipped.last);
            self.shipped.pop_front();
        }
    }

    /// The peer has applied its end.
    pub fn is_applied(&self) -> bool {
        self.end.is_some_and(|end| end <= self.confirmed.applied)
    }

    /// Writes that waited until there is memory to save what they overwrite.
    pub fn take_waiting(&mut self) -> VecDeque<u32> {
        core::mem::take(&mut self.waiting)
    }

    pub fn is_named(&self, name: u64) -> bool {
        self.name == name
    }

    /// The step was made; it lives on while the next one has time.
    pub fn is_done(&self) -> bool {
        self.done
    }

    pub fn frozen_at(&self) -> Mono {
        self.frozen_at
    }

    /// How often the peer's grant went back in it.
    pub fn recalls(&self) -> u64 {
        self.recalls
    }

    /// Bytes that are dealt with, of how many, and those that went as data.
    pub fn progress(&self) -> (u64, u64, u64) {
        (self.done_bytes, self.total_bytes, self.payload_bytes)
    }

    /// Its name, its mark and what is in it, as long as it was not announced.
    pub fn to_announce(&self) -> Option<(u64, Position, AmountToSend)> {
        (!self.begun).then_some((self.name, self.from, self.to_send))
    }

    pub fn announced(&mut self) {
        self.begun = true;
    }

    /// Its mark, if the peer heard of it.
    pub fn announced_mark(&self) -> Option<Position> {
        self.begun.then_some(self.from)
    }

    /// Its end was sent, and the peer has not confirmed that.
    pub fn is_awaited(&self) -> bool {
        self.end.is_some() && !self.done
    }

    /// The peer is ready for it and has not applied it.
    pub fn is_open(&self) -> bool {
        self.open_since.is_some() && !self.done
    }

    /// Whether more would be read ahead of a write than there is memory for, and some of what is read leaves it soon.
    pub fn is_short_of_memory(&self, bytes: u64, room: u64) -> bool {
        self.reads > self.probes.reads() && self.memory_bytes() + bytes > room
    }

    /// A write waits until there is memory to save what it overwrites.
    pub fn keep_waiting(&mut self, slot: u32) {
        self.waiting.push_back(slot);
    }

    /// The peer holds the image of its mark: the mark, its time, and the bytes that went as data.
    pub fn end(&mut self) -> (Position, Wall, u64) {
        self.done = true;
        (self.from, self.wall, self.payload_bytes)
    }

    /// What it showed. `shares_link`: the stream was tried, and did not fit: other groups take their part of what the link carries.
    /// `None`: it carried nothing.
    pub fn rates(&self, common: &GroupCommon, cx: &Cx, shares_link: bool) -> Option<SnapshotRates> {
        let carried_bytes = self.done_bytes - self.probes.equal_bytes();
        if carried_bytes == 0 && self.probes.equal_bytes() > 0 {
            return None;
        }
        let per_second = |bytes: u64, time: Duration| {
            (u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1_000_000)).min(u128::from(u64::MAX)) as u64
        };
        let life = cx.now.mono.since(self.frozen_at);
        let travel = self.open_since.map_or(life, |since| cx.now.mono.since(since));
        let carried = match cx.peer.rate {
            // A link that was never busy for long was not measured: then what the snapshot covered is all that is known.
            None => per_second(carried_bytes, travel),
            Some(_) if shares_link => per_second(self.payload_bytes, travel),
            Some(rate) => rate.max(per_second(self.payload_bytes, travel)),
        };
        let dirtied = common.volumes.copies().map(PeerCopy::written_bytes).sum();
        let written = common.counters.ordered_bytes - self.ordered_before;
        Some(SnapshotRates { written: per_second(written, life), dirtied: per_second(dirtied, life), carried })
    }
}
