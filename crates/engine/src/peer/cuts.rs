//! Catching up by cuts (rule 8): freeze the dirty bitmap at a mark, ship those regions as they were at the mark, make
//! that one atomic step on the secondary, and begin again with what was written meanwhile.
//!
//! ```text
//! freeze (mark = last number) -> flush -> SyncBegin{cut} .. SyncReady -> regions, numbered 1, 2, .. -> SyncEnd
//!    writes go on: a bit for the next cut, nothing is queued                              applied: those bits clear
//! ```
//! It is like photographing a page that is being written on. The photograph is of one moment; the pen never stops, but
//! where it is about to touch a part not yet taken, that part is copied first: that copy is all a writer ever waits for.
//!
//! * Every cut is a new consistent point, so the recovery point moves however much is written.
//! * When what is left is small, or shrinks no more, and the link carries what is written, the last step is the sync in
//!   the stream (`resync.rs`), which ends in order. What does not fit in there comes back here.
//! * No bit clears but by the cut's end, applied at the peer; what was written since the freeze keeps its own.
//! * A cut lives as long as its session: nothing of it is kept to be continued.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::common::Common;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::bitmap::Bitmap;
use crate::formats::wire::{Ack, Header, Kind, SyncBegin, flags};
use crate::ids::*;
use crate::limits::{self, KIB, REGION_BYTES};
use crate::peer::Peer;
use crate::peer::cut_saves::Spilled;
use crate::peer::holes::Asked;
use crate::planted::{Fault, planted};
use crate::primary::write::frame_cost;
use crate::shared::marks::Mark;
use crate::shared::slots::Op;
use crate::shared::time::{Mono, Wall};
use crate::shared::volume::Volume;
use crate::state::State;
use crate::{Buf, Output, SendPayload, Slice, Store};

/// A volume's part in a cut: two bits per region, only while a cut is under way.
#[derive(Debug)]
pub(crate) struct CutBits {
    /// Of the cut, and not read yet.
    unshipped: Bitmap,
    /// Touched since the freeze: what stays dirty when the cut is done.
    written: Bitmap,
}

/// What catching up showed so far; lives from a sync's begin to its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CatchUp {
    /// Cuts begun.
    cuts: u64,
    /// Bytes of the last cut.
    last_bytes: u64,
    rates: Option<Rates>,
    pub sent_bytes: u64,
    /// Live writes did not fit the stream: not again before this.
    no_stream_before: Mono,
    /// It was paused and could go on, but others have its place.
    pub resumes: bool,
}

/// What the last cut showed, in bytes per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// All that clients wrote: what a stream would have to carry.
    written: u64,
    /// Regions they dirtied, each counted once: what the next cut has to carry.
    pub dirtied: u64,
    pub carried: u64,
}

/// The next step of a catch-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Stream,
    Cut,
    /// A cut, but not yet: so little would be in it.
    CutLater,
}

impl CatchUp {
    /// What follows with this much dirty; `small`: what the stream takes along with live writes.
    fn step(&self, now: Mono, dirty_bytes: u64, small: u64) -> Step {
        let fits = self.rates.is_none_or(|r| r.written <= r.carried / 10 * 9) && now >= self.no_stream_before;
        let shrinks = self.cuts == 0 || dirty_bytes <= self.last_bytes / 4 * 3;
        if dirty_bytes == 0 || (fits && (dirty_bytes <= small || !shrinks)) {
            Step::Stream
        } else if dirty_bytes <= small && self.cuts > 0 {
            Step::CutLater
        } else {
            Step::Cut
        }
    }
}

/// A range being read for a cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutRead {
    /// The cut it belongs to; a read of an older one is forgotten.
    pub cut: u64,
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
    /// A write waits for it.
    pub save: bool,
}

/// The longest run that one read takes of a cut which may hold `room`, all in bytes: a quarter of it, or a region. So what is
/// read while a write waits fits beside it.
pub(crate) fn longest_read(longest: u64, room: u64) -> u64 {
    longest.min(room / 4).max(REGION_BYTES)
}

/// A range as it was at the mark, to be sent; `buf` is `None` where it is zero.
#[derive(Debug)]
struct Piece {
    volume: VolumeId,
    offset: u64,
    length: u64,
    sent: u64,
    buf: Option<Buf>,
}

/// The cut under way, or the one just done when the next has time.
#[derive(Debug)]
pub(crate) struct Cut {
    /// Names it: no other of this incarnation has the same.
    pub name: u64,
    /// The mark: the image it makes is the one after this number.
    pub from: Position,
    pub wall: Wall,
    frozen_at: Mono,
    /// What clients had written in all by then.
    written_before: u64,
    /// The volumes are flushed through the mark, and the peer was told of it.
    begun: bool,
    /// When the peer was ready for it.
    pub open_since: Option<Mono>,
    /// Where the walk over the regions goes on.
    volume: usize,
    region: u64,
    /// What is known of what it will find there.
    pub asked: Asked,
    pub reads: usize,
    pub reading_bytes: u64,
    /// Saved ahead of a write; these go first.
    saved: VecDeque<Piece>,
    walked: VecDeque<Piece>,
    pub held_bytes: u64,
    /// Saved in the undo store.
    pub spilled: VecDeque<Spilled>,
    /// Writes that wait until there is memory to save what they overwrite.
    pub waiting: VecDeque<u32>,
    pub granted_bytes: u64,
    /// How often the peer's grant went back in this cut.
    pub recalls: u64,
    sent_bytes: u64,
    pub sent: Seq,
    pub confirmed: Ack,
    pub end: Option<Seq>,
    pub done: bool,
    pub total_bytes: u64,
    pub done_bytes: u64,
    pub payload_bytes: u64,
}

impl Cut {
    fn new(name: u64, from: Position, wall: Wall, now: Mono, written_before: u64, total_bytes: u64) -> Cut {
        Cut {
            name,
            from,
            wall,
            frozen_at: now,
            written_before,
            begun: false,
            open_since: None,
            volume: 0,
            region: 0,
            asked: Asked::default(),
            reads: 0,
            reading_bytes: 0,
            saved: VecDeque::new(),
            walked: VecDeque::new(),
            held_bytes: 0,
            spilled: VecDeque::new(),
            waiting: VecDeque::new(),
            granted_bytes: 0,
            recalls: 0,
            sent_bytes: 0,
            sent: Seq::NONE,
            confirmed: Ack::default(),
            end: None,
            done: false,
            total_bytes,
            done_bytes: 0,
            payload_bytes: 0,
        }
    }

    /// Memory it holds or is about to.
    pub fn memory_bytes(&self) -> u64 {
        self.held_bytes + self.reading_bytes
    }

    /// Something was sent that the peer has not dealt with.
    pub fn peer_owes(&self) -> bool {
        self.begun && (self.open_since.is_none() || self.confirmed.applied < self.sent)
    }

    pub fn ships(&self) -> bool {
        self.open_since.is_some() && self.end.is_none()
    }

    /// Content to be sent is at hand.
    pub fn hold(&mut self, volume: VolumeId, offset: u64, length: u64, buf: Option<Buf>, first: bool) {
        self.held_bytes += if buf.is_some() { length } else { 0 };
        let piece = Piece { volume, offset, length, sent: 0, buf };
        if first { self.saved.push_back(piece) } else { self.walked.push_back(piece) }
    }

    /// The walk goes on here.
    pub fn walk_from(&mut self, volume: VolumeId, region: u64) {
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
            queue.pop_front();
        }
    }
}

/// A cut being received, or the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutPlace {
    /// As its primary names it.
    pub name: u64,
    /// The image it makes; this node's place once it is done.
    pub from: Position,
}

impl CutBits {
    pub fn touch(&mut self, region: u64) {
        self.written.set(region);
    }
}

impl Volume {
    /// A cut begins: what is dirty now belongs to it.
    fn freeze(&mut self) {
        let written = Bitmap::new(self.config.size_bytes);
        self.cut = Some(CutBits { unshipped: self.dirty.clone(), written });
    }

    /// The cut is applied at the peer: only what was touched since the freeze may differ.
    pub fn settle_cut(&mut self) {
        let Some(bits) = self.cut.take() else { return };
        self.doubt = None;
        let mut from = 0;
        while let Some(region) = self.dirty.next_set(from) {
            if !bits.written.get(region) || planted(Fault::CutClearsAll) {
                self.dirty.clear(region);
            }
            from = region + 1;
        }
    }

    fn written_bytes(&self) -> u64 {
        self.cut.as_ref().map_or(0, |bits| bits.written.dirty_bytes())
    }

    fn all_shipped(&self) -> bool {
        self.cut.as_ref().is_none_or(|bits| bits.unshipped.is_clean())
    }

    /// The first run of regions at or after `from` that can be read now, at most `longest` bytes; `to`: not beyond this
    /// region. A region that is being written is passed over.
    pub fn next_of_cut(&self, from: u64, to: u64, longest: u64) -> Option<(u64, u64)> {
        let bits = self.cut.as_ref()?;
        let size = self.config.size_bytes;
        let ready = |region: u64| {
            let start = region * REGION_BYTES;
            start < size
                && region <= to
                && bits.unshipped.get(region)
                && !self.is_busy(start, REGION_BYTES.min(size - start))
        };
        let mut first = bits.unshipped.next_set(from).filter(|region| *region <= to)?;
        while !ready(first) {
            first = bits.unshipped.next_set(first + 1).filter(|region| *region <= to)?;
        }
        let mut next = first + 1;
        while (next + 1 - first) * REGION_BYTES <= longest && ready(next) {
            next += 1;
        }
        Some((first, next))
    }

    pub fn take_for_cut(&mut self, first: u64, next: u64) {
        let Some(bits) = self.cut.as_mut() else { return };
        (first..next).for_each(|region| bits.unshipped.clear(region));
    }

    pub fn unshipped_in(&self, first: u64, last: u64) -> u64 {
        self.cut.as_ref().map_or(0, |bits| bits.unshipped.count_in(first, last))
    }
}

impl Peer {
    // ---- what comes next -------------------------------------------------------------------------------------------

    /// A sync begins: how, follows from what is dirty.
    pub fn begin_catch_up(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        let CatchUp { no_stream_before, .. } = self.catch_up;
        self.catch_up = CatchUp { no_stream_before, ..CatchUp::default() };
        self.next_step(common, cx, why);
    }

    pub fn next_step(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        let small = common.small_bytes(cx);
        match self.catch_up.step(cx.now.mono, common.volumes.dirty_bytes(), small) {
            Step::Stream => {
                self.cut = None;
                self.begin_sync_in_stream(common, cx, why);
            }
            Step::Cut => self.begin_cut(common, cx, why),
            Step::CutLater => {
                let since = self.cut.as_ref().map_or(cx.now.mono, |cut| cut.frozen_at);
                let wait = since.plus(limits::CUT_EVERY).since(cx.now.mono).max(Duration::from_millis(1));
                cx.timers.set(TimerKey::Group(common.id(), GroupTimer::Cut), cx.now.mono.plus(wait));
            }
        }
    }

    /// It is time for the next cut.
    pub fn cut_due(&mut self, common: &mut Common, cx: &mut Cx) {
        if !self.cut.as_ref().is_some_and(|cut| cut.done) || !common.lifecycle.is_running() {
            return;
        }
        if common.volumes.dirty_bytes() == 0 {
            return self.next_step(common, cx, "update sync");
        }
        self.begin_cut(common, cx, "update sync");
    }

    /// Cuts go on for a while before the stream is tried again.
    pub fn keep_from_stream(&mut self, now: Mono) {
        self.catch_up.no_stream_before = now.plus(limits::STREAM_AGAIN_AFTER);
    }

    // ---- a cut begins ----------------------------------------------------------------------------------------------

    pub fn begin_cut(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        cx.marks.hit(Mark::CutBegan);
        let wall = self.numbers.stamp(cx);
        self.passes += 1;
        let (from, total_bytes) = (common.place(self.numbers.last()), common.volumes.dirty_bytes());
        common.volumes.iter_mut().for_each(Volume::freeze);
        self.cut = Some(Cut::new(self.passes, from, wall, cx.now.mono, common.counters.written_bytes, total_bytes));
        self.catch_up.cuts += 1;
        self.catch_up.last_bytes = total_bytes;
        let reason = self.cut_reason(why);
        self.transition(common, cx, State::Syncing, &reason);
        self.watch_sync(common, cx);
    }

    /// What the peer gets is durable here before it hears of it: after a crash it must not be ahead of us.
    pub fn announce_cut(&mut self, common: &mut Common, cx: &mut Cx) {
        let Some(cut) = self.cut.as_ref().filter(|cut| !cut.begun) else { return };
        let (name, from, dirty_bytes, link) = (cut.name, cut.from, cut.total_bytes, cx.peer.link);
        let flushed = self.numbers.flushed_through(common, cx, from.seq) || planted(Fault::CutUnflushed);
        let Some(link) = link.filter(|_| flushed && !self.generation_due) else { return };
        let parent = common.sb.current.identity.parent;
        let to = common.greeting.run();
        let begin = SyncBegin { from, parent, to, nothing_dirty: false, dirty_bytes, cut: name, attempt: name };
        cx.send_control(link, Kind::SyncBegin, common.id(), begin.encode());
        self.stall.moved(cx.now.mono);
        if let Some(cut) = self.cut.as_mut() {
            cut.begun = true;
        }
    }

    fn cut_reason(&self, why: &str) -> String {
        let number = self.catch_up.cuts;
        match self.catch_up.rates.filter(|r| r.dirtied > r.carried) {
            None => format!("cut {number}: {why}"),
            Some(Rates { dirtied, carried, .. }) => format!(
                "cut {number}: writers dirty {} KiB/s, {} KiB/s reach the peer: {} KiB/s are missing to catch up",
                dirtied / KIB,
                carried / KIB,
                (dirtied - carried).div_ceil(KIB)
            ),
        }
    }

    /// What the last cut showed, while a catch-up goes by cuts.
    pub fn cut_rates(&self) -> Option<Rates> {
        self.catch_up.rates.filter(|_| self.cut.is_some())
    }

    /// A sync goes by cuts; beside a stream there is none.
    pub fn goes_by_cuts(&self) -> bool {
        self.cut.is_some()
    }

    /// Cuts begun in this catch-up, while it goes by cuts.
    pub fn cut_number(&self) -> Option<u64> {
        self.cut.as_ref().map(|_| self.catch_up.cuts)
    }

    /// The cut of this name is still to be announced.
    pub fn cut_begins(&self, name: u64) -> bool {
        self.cut.as_ref().is_some_and(|cut| cut.name == name && !cut.begun)
    }

    /// The peer's answer to a begin: if it is this cut's, the mark.
    pub fn peer_ready_for_cut(&mut self, common: &mut Common, now: Mono, attempt: u64) -> Option<Position> {
        let cut = self.cut.as_mut().filter(|cut| cut.name == attempt && cut.open_since.is_none())?;
        cut.open_since = Some(now);
        let from = cut.from;
        // It keeps nothing of what came before: that is flushed here.
        common.volumes.iter_mut().for_each(|volume| volume.forget_kept(from.seq));
        Some(from)
    }

    /// The next run to read: from where the walk stands, then what it passed over.
    pub fn next_of_cut(&mut self, common: &mut Common, longest: u64) -> Option<(VolumeId, u64, u64)> {
        let cut = self.cut.as_ref()?;
        let (at, region) = (cut.volume, cut.region);
        let order = (at..common.volumes.len()).chain(0..=at);
        let found = order.enumerate().find_map(|(step, index)| {
            let from = if step == 0 { region } else { 0 };
            let (first, next) = common.volumes[index].next_of_cut(from, u64::MAX, longest)?;
            Some((index, first, next))
        });
        let (index, first, next) = found?;
        let cut = self.cut.as_mut()?;
        (cut.volume, cut.region) = (index, next);
        Some((VolumeId(index as u16), first, next))
    }

    /// What a cut may hold in memory: the queue, which is empty meanwhile, would have had as much.
    pub fn cut_room(&self, common: &Common, cx: &Cx) -> u64 {
        let others = self.outgoing_bytes(common) - self.cut.as_ref().map_or(0, Cut::memory_bytes);
        common.settings.queue_bytes.min(cx.allowance.saturating_sub(others))
    }

    /// Reads regions `first..next` under a lock on their range.
    pub fn read_for_cut(
        &mut self,
        common: &mut Common,
        cx: &mut Cx,
        volume: VolumeId,
        first: u64,
        next: u64,
        save: bool,
    ) {
        let size = common.volumes.of(volume).config.size_bytes;
        let offset = first * REGION_BYTES;
        let length = (next * REGION_BYTES).min(size) - offset;
        let cut = self.cut.as_mut().expect("a cut is under way");
        cut.reads += 1;
        cut.reading_bytes += length;
        let read = CutRead { cut: cut.name, volume, offset, length, save };
        let slot = common.slots.insert(Op::Cut(read));
        let held = common.volumes.of(volume);
        held.take_for_cut(first, next);
        held.occupy(slot, offset, length, Seq::NONE, false);
        let (token, store) = (Token::new(common.id(), slot), Store::Volume(common.id(), volume));
        let length = length as u32;
        cx.out.push_back(if save {
            Output::ReadSummed { token, store, offset, length }
        } else {
            Output::Read { token, store, offset, length, crc: None }
        });
    }

    // ---- sending and confirming ------------------------------------------------------------------------------------

    /// The next frame of the cut, if the peer's window allows it.
    pub fn next_cut_frame(&mut self, common: &mut Common, cx: &mut Cx) -> Option<(Header, SendPayload)> {
        let read = common.volumes.iter().all(Volume::all_shipped);
        let identity = common.sb.current.identity;
        let (origin, group) = (common.node, common.id());
        let cut = self.cut.as_mut().filter(|cut| cut.ships())?;
        let (kind, volume, offset, length, payload) = match cut.next_part(cx.peer.part_bytes) {
            Some((volume, offset, length, payload)) => {
                let kind = if matches!(payload, SendPayload::Data(_)) { Kind::Data } else { Kind::Zero };
                (kind, volume, offset, length, payload)
            }
            None if (read && cut.reads == 0 && cut.spilled.is_empty()) || planted(Fault::CutEndsEarly) => {
                (Kind::SyncEnd, VolumeId(0), 0, 0, SendPayload::None)
            }
            None => return None,
        };
        let bytes = frame_cost(&payload);
        if cut.sent_bytes + bytes > cut.granted_bytes {
            return None;
        }
        if !cut.peer_owes() {
            self.stall.moved(cx.now.mono);
        }
        cut.sent_bytes += bytes;
        cut.sent = cut.sent.next();
        if kind == Kind::SyncEnd {
            cut.end = Some(cut.sent);
        } else {
            cut.take_part(length);
        }
        let header = Header {
            flags: flags::RESYNC,
            volume,
            origin,
            incarnation: identity.incarnation,
            generation_tag: identity.generation.tag,
            seq: cut.sent,
            offset,
            length,
            wall: cut.wall,
            ..Header::new(kind, cx.peer.session, group)
        };
        Some((header, payload))
    }

    pub fn measure(&mut self, common: &mut Common, cx: &Cx) {
        let Some(cut) = self.cut.as_ref() else { return };
        let per_second = |bytes: u64, time: Duration| {
            (u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1_000_000)).min(u128::from(u64::MAX)) as u64
        };
        let life = cx.now.mono.since(cut.frozen_at);
        let travel = cut.open_since.map_or(life, |since| cx.now.mono.since(since));
        let carried = match cx.peer.rate {
            // A link that was never busy for long was not measured: then what the cut covered is all that is known.
            None => per_second(cut.done_bytes, travel),
            // The stream was tried, and did not fit: other groups take their part of what the link carries.
            Some(_) if cx.now.mono < self.catch_up.no_stream_before => per_second(cut.payload_bytes, travel),
            Some(rate) => rate.max(per_second(cut.payload_bytes, travel)),
        };
        let dirtied = common.volumes.iter().map(Volume::written_bytes).sum();
        let written = common.counters.written_bytes - cut.written_before;
        self.catch_up.rates =
            Some(Rates { written: per_second(written, life), dirtied: per_second(dirtied, life), carried });
    }
}

impl Common {
    /// What the stream may take along with live writes: what the link carries in a moment, and little enough that the
    /// queue has room for the writes that come meanwhile.
    fn small_bytes(&self, cx: &Cx) -> u64 {
        let tail = cx.peer.rate.map_or(limits::CUT_TAIL_BYTES_UNMEASURED, |rate| rate * limits::CUT_TAIL.as_secs());
        tail.min(self.settings.queue_bytes / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VolumeConfig;
    use crate::limits::MIB;

    const R: u64 = REGION_BYTES;

    fn volume() -> Volume {
        Volume::new(VolumeConfig { size_bytes: 8 * R, block_bytes: 4096, changed_outside: false })
    }

    fn after(last_bytes: u64, written: u64, carried: u64) -> CatchUp {
        let rates = Some(Rates { written, dirtied: written, carried });
        CatchUp { cuts: 1, last_bytes, rates, ..CatchUp::default() }
    }

    #[test]
    fn much_goes_by_cuts_and_what_is_small_or_shrinks_no_more_by_the_stream_if_it_fits() {
        let now = Mono(1);
        let first = CatchUp::default();
        assert_eq!(first.step(now, 0, MIB), Step::Stream);
        assert_eq!(first.step(now, MIB, MIB), Step::Stream);
        assert_eq!(first.step(now, MIB + 1, MIB), Step::Cut);
        let fits = after(100 * MIB, 80, 100);
        assert_eq!(fits.step(now, 50 * MIB, MIB), Step::Cut, "it shrinks");
        assert_eq!(fits.step(now, 90 * MIB, MIB), Step::Stream, "it does not");
        assert_eq!(fits.step(now, MIB, MIB), Step::Stream);
        let does_not = after(100 * MIB, 100, 100);
        assert_eq!(does_not.step(now, 90 * MIB, MIB), Step::Cut);
        assert_eq!(does_not.step(now, MIB, MIB), Step::CutLater);
        assert_eq!(does_not.step(now, 0, MIB), Step::Stream);
        let tried = CatchUp { no_stream_before: Mono(2), ..fits };
        assert_eq!(tried.step(now, MIB, MIB), Step::CutLater, "the stream was tried a moment ago");
        assert_eq!(tried.step(Mono(2), MIB, MIB), Step::Stream);
    }

    #[test]
    fn bits_of_a_cut_clear_at_its_end_but_for_what_was_written_since() {
        let mut v = volume();
        v.mark_write(0, 2 * R, Seq(1), false);
        v.freeze();
        v.mark_write(R, 512, Seq(2), false);
        v.mark_write(5 * R, 512, Seq(3), false);
        v.mark_uncovered(7 * R, 512);
        assert_eq!(v.written_bytes(), 3 * R);
        v.settle_cut();
        let dirty: alloc::vec::Vec<u64> = (0..8).filter(|region| v.dirty.get(*region)).collect();
        assert_eq!(dirty, [1, 5, 7]);
    }

    #[test]
    fn the_walk_takes_runs_and_passes_over_what_is_being_written() {
        let mut v = volume();
        v.mark_write(0, 6 * R, Seq(1), false);
        v.freeze();
        v.occupy(9, 2 * R, 512, Seq(1), true);
        assert_eq!(v.next_of_cut(0, u64::MAX, 8 * R), Some((0, 2)));
        assert_eq!(v.next_of_cut(0, u64::MAX, R), Some((0, 1)));
        v.take_for_cut(0, 2);
        assert_eq!(v.next_of_cut(0, u64::MAX, 8 * R), Some((3, 6)));
        assert_eq!(v.next_of_cut(0, 2, 8 * R), None, "nothing up to there can be read now");
        v.take_for_cut(3, 6);
        v.release(9);
        assert_eq!((v.unshipped_in(0, 7), v.all_shipped()), (1, false));
        assert_eq!(v.next_of_cut(0, u64::MAX, 8 * R), Some((2, 3)));
    }
}
