//! The receiving side: receive in order, land in the journal, confirm, apply behind in order, flush, confirm again.
//!
//! ```text
//! receive -> landing -> batch (journal, durable) -> to_apply -> volumes -> flush -> superblock -> applied, trim
//!   received                durable                                                            applied
//! ```
//! Nothing reaches a volume before it is durable in the journal: so a crash at any point leaves volumes + journal =
//! a prefix of the write order (P2), once replayed.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use crate::durability::kept::KeptWrites;
use crate::durability::saving::Ticket;
use crate::formats::identity::Role;
use crate::formats::journal::{ENTRIES_MAX, Entry, INDEX_BYTES, Index, RecordKind, Ring};
use crate::formats::superblock::JournalHead;
use crate::formats::wire::{FlushPoints, Header, Kind, SyncBegin, Tick, VolumeRange, flags};
use crate::group::{Cx, Group, GroupTimer, Phase};
use crate::ids::*;
use crate::limits;
use crate::peer::cuts::CutPlace;
use crate::peer::queue::cost;
use crate::planted::{Fault, planted};
use crate::records::record::AfterSuper;
use crate::secondary::window::Window;
use crate::shared::marks::Mark;
use crate::shared::memory::reserve;
use crate::shared::slots::Op;
use crate::shared::time::Wall;
use crate::state::{Broken, Pause, State};
use crate::{Buf, Bytes, FramePayload, Output, SendPayload, Slice, Store};

/// What a record does, with its bytes.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Data(Buf),
    Zero {
        no_hole: bool,
    },
    Void,
    SyncEnd,
    /// Compare this range with the primary's hash.
    Probe([u8; 32]),
}

#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub seq: Seq,
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
    pub wall: Wall,
    pub crc: u32,
    pub content: Content,
    /// What it counts against the window.
    pub cost: u64,
    /// A region of a sync, not a write of its own.
    pub resync: bool,
}

impl Record {
    pub fn payload_bytes(&self) -> u64 {
        if matches!(self.content, Content::Data(_)) { self.length } else { 0 }
    }

    /// Whether it changes what stands on its volume.
    pub fn overwrites(&self) -> bool {
        matches!(self.content, Content::Data(_) | Content::Zero { .. })
    }

    /// Whether both reach into one block of the device (rule 3).
    pub fn touches(&self, other: &Record, block_bytes: u64) -> bool {
        let blocks = |r: &Record| (r.offset / block_bytes, (r.offset + r.length).div_ceil(block_bytes));
        let ((a, a_end), (b, b_end)) = (blocks(self), blocks(other));
        self.volume == other.volume && self.length > 0 && other.length > 0 && a < b_end && b < a_end
    }
}

#[derive(Debug)]
pub(crate) struct Batch {
    pub ordinal: u64,
    pub last: Seq,
    pub records: Vec<Record>,
    pub done: bool,
}

#[derive(Debug)]
pub(crate) struct Applying {
    pub record: Record,
    pub done: bool,
}

/// A flush cycle: everything written up to `upto` becomes durable on the volumes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle {
    pub upto: Seq,
    pub wall: Wall,
    pub head: JournalHead,
    pub flushes: usize,
    pub failed: bool,
}

/// A stream that waits to begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning {
    pub begin: SyncBegin,
    /// Names this attempt: a newer one overtakes it.
    pub number: u64,
    /// The superblock that names the stream is being written.
    pub recording: bool,
}

#[derive(Debug)]
pub(crate) struct Replica {
    pub generation: Generation,
    pub incarnation: Incarnation,
    /// The numbers below are a cut's, not the stream's.
    pub cut: Option<CutPlace>,
    pub received: Seq,
    /// The primary's time of that record.
    pub received_wall: Wall,
    pub durable: Seq,
    /// Written to the volumes up to here, not yet flushed.
    pub written: Seq,
    pub written_wall: Wall,
    pub applied: Seq,
    pub applied_wall: Wall,
    pub landing: VecDeque<Record>,
    pub batches: VecDeque<Batch>,
    pub to_apply: VecDeque<Record>,
    /// What they overwrite is being saved.
    pub saving: VecDeque<(Record, Ticket)>,
    pub applying: VecDeque<Applying>,
    pub ring: Ring,
    pub window: Window,
    pub unflushed_bytes: u64,
    pub unflushed_volumes: Vec<VolumeId>,
    pub cycle: Option<Cycle>,
    /// The sync's end is written but not recorded.
    pub sync_end: Option<Seq>,
    /// What the primary of the last sync said of its volumes.
    pub primary_bytes: Vec<u64>,
    /// A stream waits to begin until what came before is applied.
    pub beginning: Option<Beginning>,
    pub begins: u64,
    pub paused: Option<Pause>,
    /// It is tried whether there is space again; until something gets on, the pause goes on being told.
    pub retrying: bool,
    /// A sync has ended, and bits that it settled still stand on disk.
    pub bits_forgotten: bool,
    pub kept: KeptWrites,
    /// No record up to here comes back from the journal at a start.
    pub noted: Seq,
    /// The primary asks for what it may have lost; answered once all is applied.
    /// With the number of the question.
    pub tail_asked: Option<(FlushPoints, Seq)>,
    pub want_received: bool,
    pub ack_due: bool,
    /// A primary sends on this session.
    pub streaming: bool,
}

impl Replica {
    pub fn new(window_bytes: u64, journal_bytes: u64) -> Replica {
        Replica {
            generation: Generation::BLANK,
            incarnation: Incarnation(0),
            cut: None,
            received: Seq::NONE,
            received_wall: Wall(0),
            durable: Seq::NONE,
            written: Seq::NONE,
            written_wall: Wall(0),
            applied: Seq::NONE,
            applied_wall: Wall(0),
            landing: VecDeque::new(),
            batches: VecDeque::new(),
            to_apply: VecDeque::new(),
            saving: VecDeque::new(),
            applying: VecDeque::new(),
            ring: Ring::new(journal_bytes, JournalHead::default()),
            window: Window::new(window_bytes, reserve(window_bytes)),
            unflushed_bytes: 0,
            unflushed_volumes: Vec::new(),
            cycle: None,
            sync_end: None,
            primary_bytes: Vec::new(),
            beginning: None,
            begins: 0,
            paused: None,
            retrying: false,
            bits_forgotten: false,
            kept: KeptWrites::default(),
            noted: Seq::NONE,
            tail_asked: None,
            want_received: false,
            ack_due: false,
            streaming: false,
        }
    }

    /// In a cut: the place it leads to. Its numbers are nobody's place in the write order.
    pub fn position(&self) -> Position {
        if let Some(cut) = self.cut {
            return cut.from;
        }
        Position { generation: self.generation, incarnation: self.incarnation, seq: self.received }
    }

    /// Everything up to `position` is applied and recorded.
    pub fn stand_at(&mut self, position: Position, wall: Wall) {
        (self.generation, self.incarnation) = (position.generation, position.incarnation);
        self.cut = None;
        let seq = position.seq;
        (self.received, self.durable, self.written, self.applied) = (seq, seq, seq, seq);
        (self.received_wall, self.written_wall, self.applied_wall) = (wall, wall, wall);
    }

    /// Another stream begins: its primary has flushed what it sent before.
    pub fn begin_stream(&mut self, begin: &SyncBegin, wall: Wall) {
        self.stand_at(begin.from, wall);
        (self.kept, self.noted) = (KeptWrites::of_stream(begin.from.seq), begin.from.seq);
        if begin.cut > 0 {
            self.expect_cut(begin);
            self.kept = KeptWrites::of_cut();
        }
    }

    /// These are durable: their ranges are kept for a primary that loses its power.
    pub fn remember(&mut self, records: &[Record]) {
        for record in records.iter().filter(|record| !record.resync && record.overwrites()) {
            let range = VolumeRange { volume: record.volume, offset: record.offset, length: record.length };
            self.kept.landed(record.seq, range);
        }
    }

    /// A start has read back all that the journal holds.
    pub fn kept_from_journal(&mut self, given_up: Seq) {
        self.kept.read_back(self.applied, given_up);
        if planted(Fault::KeptLostAtStart) {
            _ = self.kept.give_up(self.applied);
        }
        self.noted = self.kept.floor();
    }

    /// A former replica's journal goes on where it was, should this node become secondary again.
    pub fn after_promotion(config: &crate::GroupConfig, old: &Replica) -> Replica {
        let mut new = Replica::new(config.window_bytes, config.journal_bytes);
        new.ring = Ring::new(config.journal_bytes, old.ring.head_after(Seq(u64::MAX)));
        new
    }

    pub fn new_session(&mut self) {
        self.window.restart();
        self.streaming = false;
        self.beginning = None;
    }

    pub fn lost_session(&mut self) {
        self.streaming = false;
        self.beginning = None;
        self.tail_asked = None;
        self.ack_due = false;
        self.window.restart();
    }

    /// Nothing is applied before the next try.
    pub fn stands_still(&self) -> bool {
        self.paused.is_some() && !self.retrying
    }

    /// The journal is short of space that the primary's flush would free, or has freed.
    pub fn is_pressed(&self) -> bool {
        !self.landing.is_empty() || self.wants_flush()
    }

    /// Half of what it can keep for a primary that has not flushed is in use.
    pub fn wants_flush(&self) -> bool {
        self.ring.is_half_full() || self.kept.len() >= limits::KEPT_MAX / 2
    }

    /// Batches are applied and flushed on both sides, and still take up the journal.
    pub fn can_trim(&self) -> bool {
        self.ring.has_before(self.applied.min(self.kept.floor()))
    }

    pub fn is_idle(&self) -> bool {
        self.landing.is_empty() && self.has_landed()
    }

    /// What has landed is applied, flushed and recorded.
    fn has_landed(&self) -> bool {
        self.batches.is_empty()
            && self.to_apply.is_empty()
            && self.saving.is_empty()
            && self.applying.is_empty()
            && self.cycle.is_none()
            && self.applied == self.written
    }

    /// The journal is full of what the primary may not have flushed: what was received lands when the primary says that it
    /// has, and not before.
    pub fn waits_for_primary(&self) -> bool {
        !self.landing.is_empty() && self.has_landed() && !self.can_trim()
    }

    /// Forgets what was received and has not landed; how many writes. None of them was confirmed as durable.
    pub fn drop_unlanded(&mut self) -> usize {
        let dropped = self.landing.len();
        self.landing.drain(..).for_each(|record| self.window.release(record.cost));
        // What has landed is applied.
        (self.received, self.received_wall) = (self.durable, self.written_wall);
        // What was confirmed as received is not taken back: until the next stream nothing is.
        self.streaming = false;
        dropped
    }

    /// Records read back from the journal, to be applied as they were going to be.
    pub fn replay(&mut self, records: Vec<Record>) {
        let (last, wall) = records.last().map_or((self.durable, self.received_wall), |r| (r.seq, r.wall));
        (self.received, self.durable, self.received_wall) = (last, last, wall);
        self.to_apply.extend(records);
    }

    /// Replay has put everything on the volumes.
    pub fn replayed(&mut self) -> bool {
        self.to_apply.is_empty() && self.saving.is_empty() && self.applying.is_empty()
    }

    /// Replay met the end of a sync.
    pub fn take_sync_end(&mut self) -> bool {
        self.sync_end.take().is_some()
    }

    pub fn written_wall(&self) -> Wall {
        self.written_wall
    }

    /// The primary's time of all that was received; an idle primary's clock goes on.
    pub fn newest_wall(&self) -> Wall {
        self.received_wall.max(self.applied_wall)
    }

    /// Forgets what was received and not applied; the ranges it was for.
    pub fn drop_unapplied(&mut self) -> Vec<(VolumeId, u64, u64)> {
        let batched = self.batches.drain(..).flat_map(|batch| batch.records);
        let saving = self.saving.drain(..).map(|(record, _)| record);
        let applying = self.applying.drain(..).map(|a| a.record);
        let all = self.landing.drain(..).chain(batched).chain(self.to_apply.drain(..)).chain(saving).chain(applying);
        let changes = all.filter(|record| record.overwrites()).map(|r| (r.volume, r.offset, r.length)).collect();
        self.window.forget_held();
        self.unflushed_bytes = 0;
        (self.paused, self.retrying, self.sync_end, self.cycle) = (None, false, None, None);
        self.unflushed_volumes.clear();
        changes
    }

    /// The group has failed and applies nothing more: others of this node want the memory. What is under way goes when it
    /// completes; what is durable stands in the journal for the next start.
    pub fn let_go(&mut self, is_under_way: impl Fn(Seq) -> bool) {
        let saving = self.saving.drain(..).map(|(record, _)| record);
        let waiting = self.landing.drain(..).chain(self.to_apply.drain(..)).chain(saving);
        waiting.for_each(|record| self.window.release(record.cost));
        let landed: Vec<u64> = self.batches.iter().filter(|b| b.done).map(|b| b.ordinal).collect();
        landed.into_iter().for_each(|ordinal| self.let_go_of_batch(ordinal));
        for at in (0..self.applying.len()).rev() {
            let Applying { record, done } = &self.applying[at];
            if *done || !is_under_way(record.seq) {
                self.let_go_of_applying(at);
            }
        }
    }

    fn let_go_of_batch(&mut self, ordinal: u64) {
        let Some(at) = self.batches.iter().position(|b| b.ordinal == ordinal) else { return };
        let records = self.batches.remove(at).into_iter().flat_map(|batch| batch.records);
        records.for_each(|record| self.window.release(record.cost));
    }

    pub fn let_go_of_applying(&mut self, at: usize) {
        if let Some(Applying { record, .. }) = self.applying.remove(at) {
            self.window.release(record.cost);
        }
    }

    /// Records waiting to be applied, in bytes of memory.
    pub fn unapplied_bytes(&self) -> u64 {
        self.window.held_bytes()
    }
}

impl Group {
    // ---- receiving -------------------------------------------------------------------------------------------------

    pub fn receive(&mut self, cx: &mut Cx, header: &Header, payload: FramePayload) {
        let receives = self.role() == Role::Secondary && matches!(self.phase, Phase::Running);
        if matches!(self.state, State::Failed(_)) || !receives {
            // Failed, stopping, or promoted: the peer will learn it, the session is about to end.
            return;
        }
        if self.role() == Role::Primary {
            // Promoted while it was on its way; the peer was told.
            return;
        }
        let expected = self.replica.received.next();
        let ours =
            header.incarnation == self.replica.incarnation && header.generation_tag == self.replica.generation.tag;
        if !ours && self.replica.beginning.is_none() {
            // Of a primary that was overtaken: this node was promoted while it was on its way, and is demoted again.
            return;
        }
        if self.replica.beginning.is_some() {
            let what = format!("number {} before this node was ready for its sync", header.seq.0);
            return self.protocol_error(cx, &what);
        }
        if header.seq != expected {
            return self.protocol_error(cx, &format!("number {} where {} was expected", header.seq.0, expected.0));
        }
        if !self.range_fits(header) {
            return self.protocol_error(cx, &format!("number {} for a range outside its volume", header.seq.0));
        }
        let Some(content) = content_of(header, payload) else {
            return self.protocol_error(cx, &format!("number {} without its payload", header.seq.0));
        };
        let payload_bytes = if matches!(content, Content::Data(_)) { u64::from(header.payload_bytes) } else { 0 };
        // What says nothing of a range may still name one.
        let (volume, offset, length) = match content {
            Content::Void | Content::SyncEnd => (VolumeId(0), 0, 0),
            _ => (header.volume, header.offset, header.length),
        };
        let record = Record {
            seq: header.seq,
            volume,
            offset,
            length,
            wall: header.wall,
            crc: header.payload_crc,
            content,
            cost: cost(payload_bytes),
            resync: header.flags & flags::RESYNC != 0,
        };
        let replica = &mut self.replica;
        if !replica.window.receive(record.cost) {
            return self.protocol_error(cx, "more than the window allows");
        }
        (replica.received, replica.received_wall) = (header.seq, header.wall);
        replica.streaming = true;
        replica.landing.push_back(record);
        replica.kept.flushed_by_primary(header.flushed.min(header.seq));
        self.trim_if_pressed(cx);
        let replica = &mut self.replica;
        if header.flags & flags::WANT_RECEIVED != 0 {
            replica.want_received = true;
            replica.ack_due = true;
        }
    }

    fn range_fits(&self, header: &Header) -> bool {
        if matches!(header.kind, Kind::Void | Kind::SyncEnd) {
            return true;
        }
        let Some(volume) = self.volumes.get(usize::from(header.volume.0)) else { return false };
        let aligned =
            header.offset.is_multiple_of(limits::SECTOR_BYTES) && header.length.is_multiple_of(limits::SECTOR_BYTES);
        // A comparison is read into memory: its length is bounded like a payload's (P10).
        let longest = match header.kind {
            Kind::Probe => limits::PROBE_BYTES,
            Kind::Zero => limits::ZERO_PART_BYTES_MAX,
            _ => limits::PART_BYTES_MAX,
        };
        let end = header.offset.checked_add(header.length);
        aligned && (1..=longest).contains(&header.length) && end.is_some_and(|end| end <= volume.config.size_bytes)
    }

    // ---- landing ---------------------------------------------------------------------------------------------------

    /// Gathers what has arrived into batches; called when a turn's inputs are handled, so that what arrives together
    /// lands together.
    pub fn land(&mut self, cx: &mut Cx) {
        while !self.replica.landing.is_empty() && self.replica.batches.len() < limits::BATCHES_IN_FLIGHT_MAX {
            // With batches under way a small one waits for company: group commit.
            let gathered: u64 = self.replica.landing.iter().map(Record::payload_bytes).sum();
            if self.replica.batches.len() > 1 && gathered < limits::BATCH_BYTES_MAX / 4 {
                return;
            }
            if !self.land_batch(cx) {
                return;
            }
        }
    }

    fn land_batch(&mut self, cx: &mut Cx) -> bool {
        let replica = &mut self.replica;
        let batch_max = limits::BATCH_BYTES_MAX.min(replica.ring.bytes() / 4);
        let (mut count, mut bytes) = (0, INDEX_BYTES as u64);
        for record in replica.landing.iter().take(ENTRIES_MAX) {
            if count > 0 && bytes + record.payload_bytes() > batch_max {
                break;
            }
            bytes += record.payload_bytes();
            count += 1;
        }
        let bytes = bytes.next_multiple_of(limits::META_BLOCK_BYTES);
        let last = replica.landing[count - 1].seq;
        let tail_before = replica.ring.head_after(Seq(u64::MAX)).offset;
        let remembers = replica.kept.len() + count <= limits::KEPT_MAX;
        let Some((offset, ordinal)) = remembers.then(|| replica.ring.place(bytes, last)).flatten() else {
            cx.marks.hit(Mark::JournalFullWaited);
            self.replica.ack_due = true;
            self.flush_replica(cx);
            return false;
        };
        if offset < tail_before {
            cx.marks.hit(Mark::JournalWrapped);
        }
        let records: Vec<Record> = replica.landing.drain(..count).collect();
        let (index, parts) = self.batch_parts(&records, offset, ordinal, bytes as u32);
        debug_assert_eq!(index.last(), last);
        let mut all = vec![Bytes::Meta(index.encode())];
        all.extend(parts);
        if planted(Fault::ApplyBeforeJournal) {
            self.replica.to_apply.extend(records.iter().cloned());
        }
        self.replica.batches.push_back(Batch { ordinal, last, records, done: false });
        if planted(Fault::AckBeforeJournal) {
            (self.replica.durable, self.replica.ack_due) = (last, true);
        }
        let token = self.start_op(Op::JournalBatch { ordinal });
        cx.out.push_back(Output::Write {
            token,
            store: Store::Journal(self.id()),
            offset,
            parts: all,
            durable: true,
            waits_for_peer: true,
        });
        true
    }

    fn batch_parts(&self, records: &[Record], ring_offset: u64, ordinal: u64, bytes: u32) -> (Index, Vec<Bytes>) {
        let identity = &self.sb.current.identity;
        let mut at = INDEX_BYTES as u32;
        let mut entries = Vec::with_capacity(records.len());
        let mut parts = Vec::new();
        for record in records {
            let payload_bytes = record.payload_bytes() as u32;
            if let Content::Data(buf) = &record.content {
                parts.push(Bytes::Payload(Slice { buf: buf.clone(), start: 0, length: payload_bytes }));
            }
            entries.push(Entry {
                seq: record.seq,
                kind: self.kind_in_journal(record),
                no_hole: matches!(record.content, Content::Zero { no_hole: true }),
                resync: record.resync,
                volume: record.volume,
                offset: record.offset,
                length: record.length,
                wall: record.wall,
                payload_at: if payload_bytes > 0 { at } else { 0 },
                payload_bytes,
                payload_crc: if payload_bytes > 0 { record.crc } else { 0 },
            });
            at += payload_bytes;
        }
        let padding = bytes - at;
        if padding > 0 {
            parts.push(Bytes::Meta(vec![0; padding as usize]));
        }
        let index = Index {
            tag: self.config.tag,
            ring_offset,
            ordinal,
            boot: identity.incarnation,
            origin: self.config.peer,
            generation: self.replica.generation,
            incarnation: self.replica.incarnation,
            cut: self.replica.cut.map_or(0, |cut| cut.name),
            bytes,
            entries,
        };
        (index, parts)
    }

    /// The end of a sync that makes this copy smaller is not replayed: the size that it is to have is known to this run alone. The sync
    /// begins anew then, as the primary was not told that it had ended.
    fn kind_in_journal(&self, record: &Record) -> RecordKind {
        match record.kind() {
            RecordKind::SyncEnd if self.shrinks_when_whole() => RecordKind::Void,
            kind => kind,
        }
    }

    pub fn batch_done(&mut self, cx: &mut Cx, ordinal: u64, ok: bool) {
        if !ok {
            self.fail(cx, Broken::Journal);
        }
        let replica = &mut self.replica;
        if matches!(self.state, State::Failed(_)) {
            // What of it is durable the next start finds.
            return replica.let_go_of_batch(ordinal);
        }
        if let Some(batch) = replica.batches.iter_mut().find(|b| b.ordinal == ordinal) {
            batch.done = true;
        }
        // Durable is the unbroken run: a later batch that finished first waits.
        if let Some(batch) = replica.batches.iter().find(|b| b.done && planted(Fault::DurableOverGap)) {
            replica.durable = replica.durable.max(batch.last);
            replica.ack_due = true;
        }
        while replica.batches.front().is_some_and(|b| b.done) {
            let batch = replica.batches.pop_front().expect("front was there");
            replica.durable = replica.durable.max(batch.last);
            if replica.cut.is_none() {
                // What had landed of a cut is not replayed: it is no damage when it is not there.
                self.sb.current.confirmed_ordinal = batch.ordinal + 1;
            }
            replica.ack_due = true;
            replica.remember(&batch.records);
            if !planted(Fault::ApplyBeforeJournal) {
                replica.to_apply.extend(batch.records);
            }
        }
        self.set_timer(cx, GroupTimer::ApplyFlush, limits::APPLY_FLUSH_AFTER);
        self.apply(cx);
    }

    // ---- a stream begins ---------------------------------------------------------------------------------------------

    pub fn sync_begin(&mut self, cx: &mut Cx, begin: SyncBegin) {
        if begin.from.generation.is_blank() {
            return self.protocol_error(cx, "a sync of a blank history");
        }
        let welcome = self.role() == Role::Secondary && matches!(self.phase, Phase::Running);
        let same_run = begin.to == self.sb.current.identity.incarnation;
        if !welcome || !same_run || matches!(self.state, State::Failed(_)) {
            // Promoted or failed while it was on its way, and perhaps demoted again: the peer learns it.
            return self.say_hello(cx, Kind::GroupState);
        }
        if !self.is_of_the_peer(begin.from, begin.parent) {
            return self.protocol_error(cx, "a sync of another run or history than its own");
        }
        self.replica.streaming = false;
        // Another stream begins only when its primary has flushed what it sent before.
        self.replica.kept.flushed_by_primary(self.replica.received);
        self.replica.begins += 1;
        self.replica.beginning = Some(Beginning { begin, number: self.replica.begins, recording: false });
        self.replica.ack_due = true;
        self.proceed_sync_begin(cx);
    }

    /// What came before is applied and recorded first; then the new stream's identity is, and `inconsistent` with it,
    /// before anything of it is accepted.
    pub fn proceed_sync_begin(&mut self, cx: &mut Cx) {
        let Some(Beginning { begin, number, recording: false }) = self.replica.beginning else { return };
        // One that was overtaken while it is recorded is waited for: however many come, one record is under way.
        let records = self.sb.after.iter().any(|(_, then)| matches!(then, AfterSuper::SyncReady { .. }));
        if records || !self.replica_at_rest(cx) {
            return;
        }
        self.replica.beginning = Some(Beginning { begin, number, recording: true });
        self.take_rollback_point(cx, &begin);
        self.begin_sizes(cx);
        self.reserve_for_sync(&begin);
        let identity = &mut self.sb.current.identity;
        identity.generation = begin.from.generation;
        identity.parent = begin.parent;
        identity.position = begin.from;
        identity.inconsistent |= !begin.nothing_dirty && !planted(Fault::SyncNotMarked);
        identity.handed_over = false;
        identity.continued = false;
        (self.sb.current.given_up, self.sb.current.changed_outside) = (Seq::NONE, false);
        self.sb.current.journal = self.replica.ring.head_after(Seq(u64::MAX));
        _ = self.replica.ring.trim(self.sb.current.journal);
        let wall = self.replica.applied_wall;
        self.replica.begin_stream(&begin, wall);
        self.save_in_both_slots(cx, AfterSuper::SyncReady { number });
    }

    pub fn sync_ready(&mut self, cx: &mut Cx, number: u64) {
        let Some(Beginning { begin, .. }) = self.replica.beginning.filter(|b| b.number == number) else { return };
        self.replica.beginning = None;
        self.replica.streaming = true;
        self.replica.ack_due = true;
        // The window is counted per stream, from its first frame on both ends.
        self.replica.window.restart();
        if let Some(link) = cx.peer.link {
            let header = Header { offset: begin.attempt, ..Header::new(Kind::SyncReady, cx.peer.session, self.id()) };
            cx.send(link, header, SendPayload::None);
        }
    }

    /// Nobody will make room in a journal full of what a primary has not flushed: what has not landed is given up. It was
    /// never confirmed as durable, and a primary that is still there sends it again.
    pub fn give_up_unlanded(&mut self, cx: &mut Cx) {
        self.land(cx);
        if !self.replica.waits_for_primary() {
            return;
        }
        let dropped = self.replica.drop_unlanded();
        let note = format!(
            "{dropped} writes that were received and not yet durable are dropped: the journal is full of what the primary \
             may not have flushed ('journal' makes it larger)"
        );
        cx.event(self.id(), crate::Event::Note(note));
    }

    /// Nothing that landed is kept for the primary any more, though it may have lost it: that goes on record with the next update,
    /// which is also the first to use the journal's space.
    pub fn give_up_kept(&mut self, given_up: Seq) {
        if self.replica.kept.give_up(self.replica.durable) && !planted(Fault::GivenUpForgotten) {
            self.sb.current.given_up = self.sb.current.given_up.max(given_up);
        }
    }

    /// Everything received is applied, flushed and recorded.
    pub fn replica_at_rest(&mut self, cx: &mut Cx) -> bool {
        self.land(cx);
        if self.replica.applied < self.replica.written {
            self.flush_replica(cx);
        }
        self.replica.is_idle()
            && self.saver.is_idle()
            && self.replica.applied == self.replica.received
            && !self.slots.saves()
    }

    // ---- the primary's clock -----------------------------------------------------------------------------------------

    pub fn primary_tick(&mut self, cx: &mut Cx, header: &Header, payload: &[u8]) -> Option<()> {
        let tick = Tick::decode(payload)?;
        if self.role() != Role::Secondary || !matches!(self.phase, Phase::Running) {
            // Promoted meanwhile, or about to be: no confirmations are owed.
            return Some(());
        }
        let state = tick.state;
        self.hear_primary(cx, header, tick);
        let replica = &mut self.replica;
        if header.incarnation == replica.incarnation {
            replica.kept.flushed_by_primary(header.flushed.min(replica.durable));
        }
        match state {
            // Nothing comes before a new stream begins.
            State::Logging | State::Failed(_) => replica.window.restart(),
            _ => replica.window.seen(header.offset),
        }
        // The session may outlive the run whose stream this was: numbers of another one say nothing of what is here.
        let in_order = replica.streaming && replica.cut.is_none() && header.incarnation == replica.incarnation;
        if in_order && header.seq == replica.applied && replica.applied == replica.received {
            let recalls = replica.window.recalls();
            replica.window.recall();
            if replica.window.recalls() > recalls {
                cx.marks.hit(Mark::WindowTakenBack);
            }
            replica.applied_wall = replica.applied_wall.max(header.wall);
            replica.ack_due = true;
        }
        // After a reconnect the primary goes on without a SyncBegin: it waits for our confirmations.
        if matches!(state, State::CatchingUp | State::Replicating | State::Paused(_)) && replica.beginning.is_none() {
            replica.ack_due |= !core::mem::replace(&mut replica.streaming, true);
        }
        self.trim_if_pressed(cx);
        Some(())
    }
}

impl Record {
    fn kind(&self) -> RecordKind {
        match self.content {
            Content::Data(_) => RecordKind::Data,
            Content::Zero { .. } => RecordKind::Zero,
            // A comparison changes nothing; its number must still be there.
            Content::Void | Content::Probe(_) => RecordKind::Void,
            Content::SyncEnd => RecordKind::SyncEnd,
        }
    }
}

fn content_of(header: &Header, payload: FramePayload) -> Option<Content> {
    Some(match (header.kind, payload) {
        (Kind::Data, FramePayload::Data(buf)) => Content::Data(buf),
        (Kind::Zero, FramePayload::None) => Content::Zero { no_hole: header.flags & flags::NO_HOLE != 0 },
        (Kind::Void, FramePayload::None) => Content::Void,
        (Kind::SyncEnd, FramePayload::None) => Content::SyncEnd,
        (Kind::Probe, FramePayload::Control(hash)) => Content::Probe(hash.try_into().ok()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two records that have nothing in common were applied one after the other, or two of one block side by side (rule 3).
    #[test]
    fn records_touch_where_both_reach_into_one_block() {
        let record = |volume, offset, length| Record {
            seq: Seq(1),
            volume: VolumeId(volume),
            offset,
            length,
            wall: Wall(0),
            crc: 0,
            content: Content::Void,
            cost: 0,
            resync: false,
        };
        let touches = |a: &Record, b: &Record| {
            assert_eq!(a.touches(b, 4096), b.touches(a, 4096));
            a.touches(b, 4096)
        };
        let one = record(0, 4096, 512);
        assert!(touches(&one, &record(0, 7680, 512)), "one block, other bytes");
        assert!(touches(&one, &record(0, 0, 4097)));
        assert!(!touches(&one, &record(0, 8192, 512)) && !touches(&one, &record(0, 0, 4096)), "the blocks beside it");
        assert!(!touches(&one, &record(1, 4096, 512)), "another volume");
        assert!(!touches(&one, &record(0, 4096, 0)), "nothing of it");
    }
}
