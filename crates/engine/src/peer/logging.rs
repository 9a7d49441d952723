//! The log of the queue: what the stream carries stands in the queue's file before it is written here or sent, and a start goes on from it.
//!
//! ```text
//! closed -> filling: each number goes into the log, and waits for that     (a stream in order, nothing set aside)
//! filling -> opening: the cell, then the superblock, each in both slots    (the peer, and every flush here, is past the log's beginning)
//! opening -> live: a start finds in the log whatever the peer may lack
//! any     -> closed: off the superblock, in both slots, before a write goes on that is not in the log
//! ```
//! * A number's batch is durable before its local write begins, and before its frame is sent.
//! * Space is given out again only after the cell that needs it no more is durable: the peer has applied what stood there, and every
//!   volume here has flushed it.
//! * The log counts if the superblock says so, and not otherwise.
//! * Nobody waits for its disk alone for longer than `wait_limit`, and in `superasync` hardly at all: then it closes.

use alloc::format;
use core::time::Duration;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::cell::{CELL_BYTES, RELIED_ON_FROM};
use crate::formats::identity::{DecisionRow, Identity};
use crate::formats::journal::{JournalRing, RecordKind};
use crate::formats::queue_log::{self, QueueCell};
use crate::formats::superblock::JournalHead;
use crate::ids::Seq;
use crate::injected_fault::{Fault, injected};
use crate::limits::{QUEUE_CELL_AFTER, RESYNC_HOLD_OFF};
use crate::peer::outbox::Outbox;
use crate::peer::queue_log::{Appended, CellWriter, LogStage};
use crate::peer::queue_redo::{Next, QueueRedo};
use crate::peer::sending::Sending;
use crate::peer::stream::{PeerStream, queue_of, stands_in_queue};
use crate::records::record::{AfterSuper, queue_is_logged, queue_is_redone};
use crate::records::start::{CannotStart, read_meta};
use crate::shared::coverage::CoveragePoint;
use crate::shared::lifecycle::StartStage;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::wakes::Wake;
use crate::state::{Broken, Mode};
use crate::status::{QueueLogState, QueueLogStatus};
use crate::time::Mono;
use crate::{Event, IoError, IoResult, Output, Store};

/// Why the log is closed then, and stays so until the region has left.
const REPAIRS: &str = "a local write failed, and its region is to be read and sent";

/// Once a turn: the log opens and fills as far as it may, and takes what has numbers.
pub(crate) fn pump(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) {
    let has_log = outbox.log.is_wanted() || outbox.log.gates();
    if !has_log || common.has_failed() || common.lifecycle.has_stopped() || common.is_starting() {
        return;
    }
    if outbox.log.gates() && !may_log(outbox, common) {
        close(outbox, common, cx, "a volume left the order");
    }
    begin_filling(outbox, common, cx);
    outbox.log.note_whether_it_counts(cx.now.mono, common.serves() && outbox.log.is_wanted());
    let Outbox { log, sending, .. } = outbox;
    let before = log.taken;
    if let Some(stream) = sending.stream_mut().filter(|_| log.gates()) {
        let queue = queue_of(stream);
        while let Some((index, parts)) = log.next_batch(common, queue, cx.now.mono) {
            cx.coverage.hit(CoveragePoint::QueueLogged);
            common.set_timer(cx, GroupTimer::QueueLog, QUEUE_CELL_AFTER.min(patience(common)));
            let token = common.slots.start(SlotOperation::QueueAppend { ordinal: index.ordinal });
            let (store, offset) = (Store::Queue(common.id()), index.ring_offset);
            cx.out.push_back(Output::Append { token, store, offset, index, parts });
        }
        if injected(Fault::SentBeforeLogged) {
            queue.gate(None);
        }
        log.release_logged(common);
    }
    if outbox.log.taken > before {
        note_fill(outbox);
    }
    begin_opening(outbox, common, cx);
}

/// What the log holds for the peer counts in its peak.
pub(crate) fn note_fill(outbox: &mut Outbox) {
    if let (Some((log_bytes, _)), Some(stream)) = (filled(outbox), outbox.sending.stream_mut()) {
        queue_of(stream).log_holds(log_bytes);
    }
}

/// What the log holds for the peer, or is to hold, and may; `None`: it takes nothing.
fn filled(outbox: &Outbox) -> Option<(u64, u64)> {
    let stream = outbox.stream()?;
    outbox.log.filled(stream.queue(), stream.clears_through(), outbox.reserved.both())
}

/// How long the disk of the log may take for a batch.
fn patience(common: &GroupCommon) -> Duration {
    common.settings.own_disk_limit(common.settings.mode == Mode::Superasync)
}

/// The stream carries whatever is written.
fn may_log(outbox: &Outbox, common: &GroupCommon) -> bool {
    let in_order = outbox.stream().is_some_and(|stream| !stream.syncs());
    in_order && common.sb.aside.is_empty() && common.sb.detached.is_empty()
}

fn begin_filling(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) {
    let log = &outbox.log;
    let is_due = log.stage == LogStage::Closed && log.is_wanted && cx.now.mono >= log.not_before;
    if !is_due || obstacle(outbox, common).is_some() || common.numbers.generation_is_due() {
        return;
    }
    if common.sb.queue_logged {
        return close(outbox, common, cx, "it begins anew");
    }
    let Outbox { log, sending, .. } = outbox;
    let last = common.numbers.last();
    let next = log.ring.as_ref().map_or(JournalHead { offset: 0, ordinal: 1 }, |ring| ring.head_after(Seq(u64::MAX)));
    log.ring = Some(JournalRing::new(log.ring_bytes(), next));
    (log.stage, log.taken, log.logged) = (LogStage::Filling { after: last }, last, last);
    let begun = common.sb.identity.incarnation;
    log.cell.durable = QueueCell { before: (begun, last), begun, ..QueueCell::default() };
    if let Some(stream) = sending.stream_mut() {
        let queue = queue_of(stream);
        queue.gate(Some(last));
        log.entered_bytes = queue.record().entered_bytes;
    }
}

/// Why a log that is closed does not begin anew.
fn obstacle(outbox: &Outbox, common: &GroupCommon) -> Option<&'static str> {
    let log = &outbox.log;
    let is_quiet = log.under_way.is_empty() && log.parked.is_empty() && !log.is_closing && log.cell.writing.is_none();
    let obstacles = [
        (outbox.stream().is_none_or(PeerStream::syncs), "there is no stream in order"),
        (!common.sb.aside.is_empty() || !common.sb.detached.is_empty(), "a volume is no part of the order"),
        (outbox.syncs_in_stream(), "dirty regions are being sent"),
        (common.volumes.copies().any(|copy| copy.next_to_ship(0).is_some()), REPAIRS),
        // It is still to be read from its place in the ring.
        (outbox.disk.is_in_use(), "what left memory before is still to be sent"),
        (common.sb.needs_verification(), "what a crash left is not compared yet"),
        (!is_quiet, "its disk, or that of the records, has not answered yet"),
        (!common.lifecycle.is_running(), "the group does not run"),
    ];
    obstacles.into_iter().find(|(is_so, _)| *is_so).map(|(_, why)| why)
}

/// What people are told of it. Of a node that serves nobody there is no log.
pub(crate) fn shown(outbox: &Outbox, common: &GroupCommon, now: Mono) -> QueueLogStatus {
    let log = &outbox.log;
    if !log.is_wanted() || !common.serves() {
        return QueueLogStatus::default();
    }
    let (state, why) = match log.stage {
        LogStage::Live => (QueueLogState::Live, ""),
        LogStage::Closed if now < log.not_before => (QueueLogState::Closed, log.why_closed),
        LogStage::Closed => (QueueLogState::Closed, obstacle(outbox, common).unwrap_or(log.why_closed)),
        LogStage::Filling { .. } | LogStage::Opening => {
            let why = "the peer has not applied, or a volume here has not flushed, what was written before it began";
            (QueueLogState::Filling, why)
        }
    };
    QueueLogStatus { state, why, off_for: log.off_for(now), filled: filled(outbox) }
}

/// Whatever the peer may lack from here on is in the log.
fn begin_opening(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) {
    let LogStage::Filling { after } = outbox.log.stage else { return };
    let Some(stream) = outbox.stream() else { return };
    let is_done = stream.clears_through() >= after && !stream.has_pass() && common.lifecycle.is_running();
    if !is_done || outbox.log.cell.writing.is_some() || common.volumes.copies().any(|c| c.next_to_ship(0).is_some()) {
        return;
    }
    if !common.flushed_through(cx, after) {
        return;
    }
    let log = &mut outbox.log;
    let Some(cell) = log.cell_for(common, after, after) else { return };
    log.stage = LogStage::Opening;
    log.write_cell(common, cx, cell);
}

/// A batch is durable, or could not be written.
pub(crate) fn appended(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx, ordinal: u64, result: IoResult) {
    let is_short = outbox.is_short_of_memory(common, cx);
    let Outbox { log, sending, disk, .. } = outbox;
    let mut queue = sending.stream_mut().filter(|_| log.gates()).map(queue_of);
    let done = log.appended(ordinal, result, |seq, at, length, crc| {
        if let Some(queue) = queue.as_deref_mut()
            && (is_short || disk.is_in_use())
            && queue.leave_memory(seq)
        {
            disk.stands_at(seq, at, length, crc);
        }
    });
    match done {
        Appended::Through(logged) => {
            if let Some(queue) = queue {
                queue.gate(Some(logged));
            }
            log.release_logged(common);
            common.set_timer(cx, GroupTimer::QueueLog, QUEUE_CELL_AFTER);
            common.wake(Wake::Room);
        }
        Appended::Failed(error) => {
            cx.coverage.hit(CoveragePoint::QueueLogFailed);
            let why = if error == IoError::NoSpace { "its file system is full" } else { "its disk refuses a write" };
            log.not_before = cx.now.mono.plus(RESYNC_HOLD_OFF);
            close(outbox, common, cx, why);
        }
    }
}

/// The head has moved, or more is durable: the cell says so. Or its disk hangs.
pub(crate) fn cell_due(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) {
    if outbox.log.hangs(cx.now.mono, patience(common)) && !injected(Fault::HungLogWaitedFor) {
        cx.coverage.hit(CoveragePoint::QueueLogHung);
        if common.settings.mode == Mode::Superasync {
            // A disk that is merely slow would have writers wait for it again at once.
            outbox.log.not_before = cx.now.mono.plus(RESYNC_HOLD_OFF);
        }
        close(outbox, common, cx, "its disk has not answered in time");
    }
    if !outbox.log.under_way.is_empty() {
        common.set_timer(cx, GroupTimer::QueueLog, QUEUE_CELL_AFTER.min(patience(common)));
    }
    if !outbox.log.gates() || common.has_failed() || common.lifecycle.has_stopped() {
        return;
    }
    let Some(applied) = outbox.stream().map(|stream| stream.clears_through()) else { return };
    let flushed = common.flush_point();
    let through = if injected(Fault::LogHeadTooFar) { applied.max(flushed) } else { applied.min(flushed) };
    let log = &mut outbox.log;
    if log.ring.as_ref().is_some_and(JournalRing::is_half_full) {
        common.flush_where(cx, |volume| volume.flushes.unflushed_bytes() > 0);
    }
    if matches!(log.stage, LogStage::Filling { .. }) {
        log.trim_unread(common, through);
        // A full ring waits for a flush of this node.
        if log.makes_room(applied) {
            common.set_timer(cx, GroupTimer::QueueLog, QUEUE_CELL_AFTER);
        }
        return;
    }
    if log.cell.writing.is_some() || log.stage == LogStage::Opening {
        return common.set_timer(cx, GroupTimer::QueueLog, QUEUE_CELL_AFTER);
    }
    let Some(cell) = log.cell_for(common, through, flushed) else { return };
    if cell != log.cell.durable {
        log.write_cell(common, cx, cell);
    }
    if log.makes_room(applied) {
        common.set_timer(cx, GroupTimer::QueueLog, QUEUE_CELL_AFTER);
    }
}

/// The cell was written, or could not be.
pub(crate) fn cell_written(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx, result: IoResult) {
    let log = &mut outbox.log;
    let Some(cell) = log.cell.writing.take() else { return };
    if result.is_err() {
        // Nobody knows what stands there.
        log.cell.is_known = false;
        log.not_before = cx.now.mono.plus(RESYNC_HOLD_OFF);
        return close(outbox, common, cx, "its disk refuses a write");
    }
    log.cell.is_known = true;
    if log.stage == LogStage::Closed {
        return;
    }
    let is_in_both = log.cell.is_in_both(&cell);
    if log.cell.update < RELIED_ON_FROM || log.stage == LogStage::Opening && !is_in_both {
        return log.write_cell(common, cx, cell);
    }
    log.cell.durable = cell;
    if log.stage == LogStage::Opening {
        queue_is_logged(&mut common.sb, Some(queue_log::name_of(cell.begun)));
        return common.save_in_both_slots(cx, AfterSuper::QueueLogOpened);
    }
    if let Some(ring) = &mut log.ring
        && ring.trim(cell.head).is_some()
    {
        common.wake(Wake::Room);
    }
}

/// The superblock says that the log counts.
pub(crate) fn opened(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) {
    if outbox.log.stage == LogStage::Opening && common.sb.queue_logged {
        cx.coverage.hit(CoveragePoint::QueueLogOpened);
        outbox.log.stage = LogStage::Live;
        cx.event(common.id(), Event::QueueLog { is_live: true });
        common.set_timer(cx, GroupTimer::QueueLog, QUEUE_CELL_AFTER);
    }
}

/// Something happens that the log does not tell. What waits for the log goes on once the superblock says that it counts no more.
pub(crate) fn close(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx, why: &'static str) {
    let log = &mut outbox.log;
    let was_live = log.is_live();
    (log.stage, log.why_closed) = (LogStage::Closed, why);
    // A generation of its own takes the log off as well, and may be on its way to the record.
    let is_on_record = common.sb.queue_logged || log.ring.is_some() && common.numbers.generation_is_due();
    if is_on_record && !injected(Fault::LogKeptOpen) {
        cx.coverage.hit(CoveragePoint::QueueLogClosed);
        queue_is_logged(&mut common.sb, None);
        log.is_closing = true;
        common.save_in_both_slots(cx, AfterSuper::QueueLogClosed);
    }
    if was_live {
        cx.event(common.id(), Event::QueueLog { is_live: false });
        cx.event(common.id(), Event::Note(alloc::format!("the log of the queue counts no more: {why}")));
    }
    if !log.is_closing {
        lets_go(outbox, common);
    }
}

/// Both slots say that the log counts no more.
pub(crate) fn closed(outbox: &mut Outbox, common: &mut GroupCommon) {
    outbox.log.is_closing = false;
    lets_go(outbox, common);
    common.wake(Wake::Covered);
    common.wake(Wake::Room);
}

/// Nothing waits for the log any more.
fn lets_go(outbox: &mut Outbox, common: &mut GroupCommon) {
    let Outbox { log, sending, .. } = outbox;
    if let Some(stream) = sending.stream_mut() {
        queue_of(stream).gate(None);
    }
    for slot in log.take_parked() {
        common.wake(Wake::Write(slot));
    }
}

/// A sync is about to be announced: what it sends has numbers that are in no log. False: first the superblock says so.
pub(crate) fn lets_sync(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) -> bool {
    if !outbox.log.gates() && common.sb.queue_logged && !injected(Fault::LogKeptOpen) {
        close(outbox, common, cx, "a sync begins");
    }
    !outbox.log.is_closing
}

/// Regions are about to be read, each with a number from then on. In the log every later write would wait for a read that hangs. False: first the
/// superblock says that the log counts no more.
pub(crate) fn lets_repair(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) -> bool {
    if outbox.log.gates() {
        close(outbox, common, cx, REPAIRS);
    }
    !outbox.log.is_closing
}

/// A write is about to have its number. True: the log does not take it, and has to be off the superblock first.
pub(crate) fn waits_for_close(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx, slot: u32) -> bool {
    if !outbox.log.is_wanted() && !common.sb.queue_logged && !outbox.log.is_closing {
        return false;
    }
    let op = common.slots.write_ref(slot);
    let is_taken = outbox.log.gates()
        && outbox.streams()
        && !outbox.passes_by(common, op.volume)
        && outbox.log.could_hold(op, cx.peer.part_bytes);
    if !is_taken && (outbox.log.gates() || common.sb.queue_logged) {
        close(outbox, common, cx, "a write goes on that it cannot hold");
    }
    outbox.log.is_closing
}

/// The stream has ended. What has numbers and is not on its way into the log never gets there.
pub(crate) fn stream_ended(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) {
    let log = &mut outbox.log;
    // Also a mark's: nobody waits for that.
    let is_left = log.parked.back().is_some_and(|&(last, _)| last > log.taken)
        || log.gates() && common.numbers.last() > log.taken;
    let was_live = log.is_live();
    if is_left || !was_live && log.gates() {
        close(outbox, common, cx, "the stream has ended");
    } else if was_live {
        // What it holds still counts, until a write goes on without it.
        (log.stage, log.why_closed) = (LogStage::Closed, "the stream has ended");
        cx.event(common.id(), Event::QueueLog { is_live: false });
    }
}

// ---- a start goes on -------------------------------------------------------------------------------------------------

/// What the volumes hold is what the log says, flushed, and this run is on record: the queue stands as it stood. Numbers go on. False: the
/// queue is to be left.
pub(crate) fn take_up(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) -> bool {
    let Some(redo) = outbox.log.redo.take() else { return true };
    let (last, before) = (redo.last, redo.cell.before.1);
    common.numbers.go_on(last, redo.wall);
    for volume in common.volumes.iter_mut() {
        if !volume.copy.is_aside() && !redo.has_grown {
            volume.copy.is_equal();
        }
        volume.flushes.go_on_from(last);
    }
    let log = &mut outbox.log;
    let mut stream = PeerStream::new(before, cx.now.mono, core::mem::take(&mut outbox.record), None);
    for (entry, at) in &redo.entries {
        queue_of(&mut stream).push(QueueRedo::item(entry));
        if entry.payload_bytes > 0 {
            outbox.disk.stands_at(entry.seq, *at, entry.payload_bytes, entry.payload_crc);
        }
        if entry.kind != RecordKind::Void && !injected(Fault::LogBitsForgotten) {
            common.volumes.copy_of(entry.volume).set_written(entry.offset, entry.length, entry.seq, true);
        }
    }
    let queue = queue_of(&mut stream);
    queue.gate(Some(last));
    // Whether the peer has any of it, nobody knows.
    (0..queue.len()).for_each(|_| queue.advance(cx.now.mono));
    log.entered_bytes = queue.record().entered_bytes;
    stands_in_queue(&mut stream, common.settings.mode.promises(), cx.now.mono);
    outbox.sending = Sending::Stream(stream);
    log.ring = Some(JournalRing::with(log.ring_bytes(), redo.next, redo.live));
    (log.stage, log.taken, log.logged, log.earlier) = (LogStage::Live, last, last, redo.runs);
    log.cell = CellWriter::found(redo.update, redo.cell);
    cx.event(common.id(), Event::RunGoesOn { at: common.position(last) });
    common.set_timer(cx, GroupTimer::QueueLog, QUEUE_CELL_AFTER);
    redo.goes_on && goes_on(outbox, common) && may_log(outbox, common)
}

/// A queue that a start found in the log is kept.
fn goes_on(outbox: &Outbox, common: &GroupCommon) -> bool {
    let is_held = common.sb.held_in_logging || common.settings.mode == Mode::Logging;
    let is_whole = common.sb.aside.is_empty() && common.volumes.detached().is_empty();
    !is_held && is_whole && outbox.log.is_wanted
}

/// A peer that stands in an earlier run whose numbers the log holds, or held: `None`: in another one.
pub(crate) fn row_of_earlier(outbox: &Outbox, common: &GroupCommon, theirs: &Identity) -> Option<DecisionRow> {
    let (log, at) = (&outbox.log, theirs.position);
    // The queue holds them also if the log was closed meanwhile.
    let kept_after = outbox.stream()?.queue().kept_after();
    // A run that gave no number stands where the one before it ended.
    let (_, last) = log.earlier.iter().rfind(|(run, _)| *run <= at.incarnation)?;
    if at.generation != common.sb.identity.generation || theirs.inconsistent {
        return None;
    }
    if at.seq > *last {
        return Some(DecisionRow::PastOurLast);
    }
    (kept_after <= at.seq).then_some(DecisionRow::InEarlierQueue)
}

// ---- a start reads it ------------------------------------------------------------------------------------------------

/// Whether a start is to look at the log.
pub(crate) fn may_redo(outbox: &Outbox, common: &GroupCommon) -> bool {
    // Whatever the settings say now: an earlier start may have written a part of it again.
    common.sb.queue_logged && outbox.log.ring_bytes() > 0 && !common.sb.changed_outside
}

pub(crate) fn begin_redo(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) {
    let has_grown = common.sb.sizes != common.volumes.sizes();
    outbox.log.redo = Some(QueueRedo::new(has_grown));
    common.lifecycle.enter_stage(StartStage::QueueFlush);
    let token = common.slots.start(SlotOperation::StartRead);
    cx.out.push_back(Output::Flush { token, store: Store::Queue(common.config.id) });
}

/// Something of the log was read, or written to a volume.
pub(crate) fn redo_done(
    outbox: &mut Outbox,
    common: &mut GroupCommon,
    cx: &mut Cx,
    result: IoResult,
) -> Result<(), CannotStart> {
    let ring_bytes = outbox.log.ring_bytes();
    let Some(redo) = outbox.log.redo.as_mut() else { return Ok(()) };
    let next = match common.lifecycle.stage() {
        // What was read then may stand in a cache alone.
        Some(StartStage::QueueFlush) if result.is_err() => Next::Dropped("its file cannot be flushed".into()),
        Some(StartStage::QueueFlush) => {
            common.lifecycle.enter_stage(StartStage::QueueHead);
            read_meta(&mut common.slots, cx, Store::Queue(common.config.id), ring_bytes, CELL_BYTES as u32);
            Next::GoesOn
        }
        Some(StartStage::QueueHead) => redo.cell_read(common, cx, ring_bytes, result)?,
        Some(StartStage::QueueRead) => redo.read_done(common, cx, ring_bytes, result)?,
        _ => return redo.write_done(common, cx, result),
    };
    match next {
        Next::GoesOn => Ok(()),
        Next::Ended => match redo.lacks(common) {
            Some(why) => drop_log(outbox, common, cx, &why),
            None => {
                cx.coverage.hit(CoveragePoint::QueueRedone);
                begin_writing(redo, common, cx);
                Ok(())
            }
        },
        Next::Dropped(why) => drop_log(outbox, common, cx, &why),
    }
}

/// What the log holds is on the volumes: nothing is missing that a power loss may have taken, and what differs from the peer is known. This run
/// is recorded next. If its queue is not kept, the log counts no more from there on: no later start forgets what no number of the log tells of.
pub(crate) fn redo_flushed(outbox: &mut Outbox, common: &mut GroupCommon) {
    let goes_on = goes_on(outbox, common);
    if let Some(redo) = &mut outbox.log.redo {
        queue_is_redone(&mut common.sb, false);
        common.sb.clear_unverified_run(common.volumes.len());
        _ = redo.has_grown || common.sb.compares(false);
        redo.goes_on = goes_on && !redo.has_grown;
        if !redo.goes_on {
            queue_is_logged(&mut common.sb, None);
        }
    }
}

/// The log is whole. Older content stands on the volumes while it is written again: from here on no start may go on without it.
fn begin_writing(redo: &mut QueueRedo, common: &mut GroupCommon, cx: &mut Cx) {
    if !redo.is_due() {
        return common.start().flush_then_record(cx);
    }
    common.lifecycle.enter_stage(StartStage::QueueMark);
    queue_is_redone(&mut common.sb, true);
    common.save_in_both_slots(cx, AfterSuper::QueueRedo);
}

/// Both slots say so.
pub(crate) fn redo_marked(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx) {
    if let Some(redo) = outbox.log.redo.as_mut().filter(|_| common.lifecycle.is_at(StartStage::QueueMark)) {
        redo.write_next(common, cx);
    }
}

/// The start goes on without it: what differs from the peer stands in the bits, as in a group that has no log.
fn drop_log(outbox: &mut Outbox, common: &mut GroupCommon, cx: &mut Cx, why: &str) -> Result<(), CannotStart> {
    cx.coverage.hit(CoveragePoint::QueueLogDropped);
    outbox.log.redo = None;
    may_go_on_without(common, why)?;
    queue_is_logged(&mut common.sb, None);
    let note = format!("the log of the queue does not count: {why}. What may differ from the peer is sent by a sync");
    cx.event(common.id(), Event::Note(note));
    common.start().flush_then_record(cx);
    Ok(())
}

/// A start does not look at the log.
pub(crate) fn goes_on_without(common: &mut GroupCommon) -> Result<(), CannotStart> {
    may_go_on_without(common, "its file is not there, or has another size than 'queue.disk' says")?;
    queue_is_logged(&mut common.sb, None);
    Ok(())
}

/// No, if an earlier start was cut short while it wrote what the log holds: older content may stand where newer had stood.
fn may_go_on_without(common: &GroupCommon, why: &str) -> Result<(), CannotStart> {
    if !common.sb.queue_redo {
        return Ok(());
    }
    let why = format!(
        "the log of the queue cannot be used: {why}. An earlier start was cut short while it wrote what that log holds, so the volumes may \
         hold older content. Bring the file 'queue' back as it was and type 'farshore reset GROUP', or promote the peer; then remove the \
         group's state directory here and sync in full from there. If there is no peer either, and what stands here is to count: stop the \
         daemon, remove that directory, and type 'farshore accept-device GROUP VOLUME... --content-is-good'"
    );
    Err(CannotStart::new(Broken::Journal, why))
}
