//! Online verify: the copy is compared with this primary's volumes while writers go on.
//!
//! ```text
//! range locked -> read -> number, into the stream (Probe) -> the secondary comes to that number, reads, compares -> answer
//!    writes to the range wait     the lock ends                writes behind it wait there
//! ```
//! * A range is locked against local writes while it is read (rule 7), and takes its number before the lock ends: what was read is what
//!   the range holds at that position of the order. The secondary compares at the same position. So no write is taken for a difference.
//! * The number is taken behind the read, so that no write of another range stands behind it in the queue.
//! * A chunk that differs is compared again region by region. What is known to differ is not compared before it is repaired.
//! * Only a stream in its order carries comparisons. With another stream, or another session, what had no answer begins again.
//! * It yields: to what stands unsent, to the rate it was given, and to memory. Progress is kept in memory only.

mod run;

use alloc::format;
use alloc::string::{String, ToString};

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::identity::{Decision, Role};
use crate::formats::wire::{FrameHeader, flags};
use crate::ids::{CommandId, Token};
use crate::injected_fault::{Fault, injected};
use crate::limits;
use crate::peer::stream::{PeerStream, name_of, push_probe};
use crate::peer::verify::run::{Look, Looked, NextLook, Stretch, VerifyRun, lacks};
use crate::peer::{Peer, logging};
use crate::shared::cost::cost;
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::PEER_FAILED;
use crate::shared::lifecycle::Phase;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::reads::{SyncRange, VerifyRead};
use crate::shared::volume::Conflict;
use crate::shared::wakes::Wake;
use crate::state::{CopyDoubts, Mode, State};
use crate::status::{VerifiedStatus, VerifyStatus};
use crate::time::Mono;
use crate::{CommandResult, Event, IoDone, IoResult, Output, RefusalCode, Store, VerifyOrder};

/// A verify under way, and what came of the last one.
#[derive(Debug, Default)]
pub(crate) struct Verification {
    run: Option<VerifyRun>,
    /// Counts runs, and the streams that each travelled in.
    stretch: u64,
    last: Option<VerifiedStatus>,
}

impl Verification {
    /// What came of the last one, since this daemon started.
    pub fn last(&self) -> Option<&VerifiedStatus> {
        self.last.as_ref()
    }

    /// The run, if a read of this stretch is one of it.
    fn of_stretch(&mut self, stretch: u64) -> Option<&mut VerifyRun> {
        self.run.as_mut().filter(|_| stretch == self.stretch)
    }

    fn end(&mut self, given_up: Option<&str>, cx: &Cx) {
        self.stretch += 1;
        let Some(run) = self.run.take() else { return };
        let VerifyRun { order, totals, leaves_volume, .. } = run;
        let given_up = given_up.map(ToString::to_string);
        let (ended, named) = (cx.now.wall, run.into_named());
        self.last = Some(VerifiedStatus { order, leaves_volume, ended, totals, named, given_up });
    }
}

// ---- orders ----------------------------------------------------------------------------------------------------------

pub(crate) fn command(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx, id: CommandId, order: VerifyOrder) {
    let waits = match may_verify(peer, common) {
        Ok(waits) => waits,
        Err((code, why)) => return cx.refuse(id, code, why),
    };
    if let Some(run) = &mut peer.verify.run {
        if !gives_way(run, order) {
            let result = ordered_again(run, order, cx.now.mono);
            return cx.answer(id, result);
        }
        cx.coverage.hit(CoveragePoint::VerifyGaveWay);
        give_up(peer, common, cx, "an operator ordered another one, and this one had begun by itself");
    }
    peer.verify.stretch += 1;
    peer.verify.run = Some(VerifyRun::new(order, cx.now.mono, common.sb.doubts.differs));
    tell_begin(common, cx, order);
    cx.answer(
        id,
        match waits {
            Some(why) => CommandResult::Warning(format!("the verify begins as soon as the peer is in step: {why}")),
            None => CommandResult::Done("the verify began".into()),
        },
    );
}

fn tell_begin(common: &GroupCommon, cx: &mut Cx, order: VerifyOrder) {
    let VerifyOrder { sample_percent, repair, by_timer, .. } = order;
    cx.event(common.id(), Event::VerifyBegan { sample_percent, repair, by_timer });
}

/// Nobody typed the one under way, and what is typed now is of another kind.
fn gives_way(run: &VerifyRun, order: VerifyOrder) -> bool {
    run.order.by_timer && !order.by_timer && !is_of_kind(run, order)
}

fn is_of_kind(run: &VerifyRun, order: VerifyOrder) -> bool {
    (run.order.sample_percent, run.order.repair) == (order.sample_percent, order.repair)
}

/// A verify is ordered while one is under way: the same goes on, and may get another rate. Whoever typed it has it from here on.
fn ordered_again(run: &mut VerifyRun, order: VerifyOrder, now: Mono) -> CommandResult {
    if order.by_timer {
        return CommandResult::Unchanged("a verify is under way already; nothing to do".into());
    }
    if !is_of_kind(run, order) {
        let why = "a verify of another kind is under way: 'farshore verify GROUP --stop' ends it";
        return CommandResult::Refused(crate::Refusal::new(RefusalCode::VerifyUnderWay, why));
    }
    run.order.by_timer = false;
    if run.order.rate_bytes_per_s == order.rate_bytes_per_s {
        return CommandResult::Unchanged("a verify is under way already; nothing to do".into());
    }
    (run.order.rate_bytes_per_s, run.reads_at) = (order.rate_bytes_per_s, now);
    CommandResult::Done("the verify under way goes on at the new rate".into())
}

/// `Ok`: it may begin, and what it waits for, if anything. `Err`: it would never.
fn may_verify(peer: &Peer, common: &GroupCommon) -> Result<Option<String>, (RefusalCode, String)> {
    if common.role() != Role::Primary {
        return Err((RefusalCode::NotPrimary, "this node is the secondary; run 'verify' on the primary".into()));
    }
    if common.settings.mode == Mode::Logging {
        let why =
            "the mode is 'logging', and nothing is compared without the write order; first 'set GROUP mode=async'";
        return Err((RefusalCode::ModeLogging, why.into()));
    }
    match peer.decision(common) {
        Some(Decision::Refuse(why)) => return Err((RefusalCode::HistoriesApart, format!("{why}"))),
        Some(Decision::NeedsFullSync(why)) => return Err((RefusalCode::NeedsFullSync, format!("{why}"))),
        _ => {}
    }
    if peer.greeting.hello().is_some_and(|hello| hello.failed) {
        return Err((RefusalCode::PeerFailed, PEER_FAILED.into()));
    }
    let why = common.standing.why();
    Ok((!in_order(peer, common)).then(|| if why.is_empty() { peer.state(common).word().into() } else { why.into() }))
}

pub(crate) fn command_stop(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx, id: CommandId) {
    if common.role() != Role::Primary {
        let why = "this node is the secondary; a verify runs on the primary";
        return cx.refuse(id, RefusalCode::NotPrimary, why);
    }
    if peer.verify.run.is_none() {
        return cx.answer(id, CommandResult::Unchanged("no verify is under way; nothing to do".into()));
    }
    give_up(peer, common, cx, "stopped by the operator");
    cx.answer(id, CommandResult::Done("the verify is stopped".into()));
}

fn give_up(peer: &mut Peer, common: &GroupCommon, cx: &mut Cx, why: &str) {
    peer.verify.end(Some(why), cx);
    cx.event(common.id(), Event::Note(format!("the verify has not come to its end: {why}")));
}

// ---- it goes on ------------------------------------------------------------------------------------------------------

/// Frames of the stream are applied in their order, and nothing else travels in it but what a local write left behind.
fn in_order(peer: &Peer, common: &GroupCommon) -> bool {
    matches!(peer.state(common), State::CatchingUp | State::Replicating)
}

fn stretch(peer: &Peer, cx: &Cx) -> Option<Stretch> {
    let stream = peer.outbox.stream().filter(|stream| stream.is_open() && cx.peer.link.is_some())?;
    Some((cx.peer.session, name_of(stream)))
}

/// What is under way is of the stream as it is now; what is not begins again.
pub(crate) fn follow_stream(peer: &mut Peer, cx: &mut Cx) {
    let stretch = stretch(peer, cx);
    let Some(run) = &mut peer.verify.run else { return };
    let was_under_way = run.is_under_way();
    if run.travels_in(stretch) {
        peer.verify.stretch += 1;
        if was_under_way {
            cx.coverage.hit(CoveragePoint::VerifyInterrupted);
        }
    }
}

/// Starts reads while there is room for them. Called whenever a turn ends.
pub(crate) fn pump(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx) {
    if peer.verify.run.is_none() {
        return;
    }
    if common.role() != Role::Primary || common.has_failed() {
        return give_up(peer, common, cx, "this node is not the group's primary any more, or the group has failed");
    }
    follow_stream(peer, cx);
    while common.lifecycle.is_running() && in_order(peer, common) && may_read(peer, common, cx) {
        let Some(run) = &mut peer.verify.run else { return };
        match run.next(&common.volumes, cx.now.mono) {
            NextLook::Read(looked) => begin_read(peer, common, cx, looked),
            NextLook::Waits => return,
            NextLook::Through => return ended(peer, common, cx),
        }
    }
}

fn may_read(peer: &Peer, common: &GroupCommon, cx: &mut Cx) -> bool {
    let (Some(run), Some(stream)) = (&peer.verify.run, peer.outbox.stream()) else { return false };
    if run.reads_at > cx.now.mono {
        // Another rate may have moved it.
        cx.timers.set(TimerKey::Group(common.id(), GroupTimer::Verify), run.reads_at);
        return false;
    }
    let yields = stream.queue().unsent_bytes() > limits::VERIFY_UNSENT_BYTES_MAX || cx.peer.is_clogged;
    !yields && !run.is_full() && peer.outbox.has_room_for_sync(common, cx, cost(0))
}

fn begin_read(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx, looked: Looked) {
    let SyncRange { volume, offset, length } = looked.range;
    let read = VerifyRead { range: looked.range, stretch: peer.verify.stretch };
    let slot = common.slots.insert(SlotOperation::Verify(read));
    if let Some(run) = &mut peer.verify.run {
        run.begins_read(slot, looked);
        run.spends(cx.now.mono, length);
    }
    match common.volumes.of(volume).conflict(offset, length) {
        Some(conflict) if !injected(Fault::VerifyReadUnlocked) => {
            if conflict == Conflict::Write {
                cx.coverage.hit(CoveragePoint::VerifyWaitedForWrite);
            }
            common.volumes.of(volume).wait_for_range(slot, offset, length, false);
        }
        _ => read_range(common, cx, slot, looked.range),
    }
}

/// What waited for its range has it free.
pub(crate) fn admit_waiting(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx, slot: u32) {
    follow_stream(peer, cx);
    let Some(&SlotOperation::Verify(VerifyRead { range, stretch })) = common.slots.get(slot) else {
        unreachable!("the slot waits for a read of a verify")
    };
    if let Some(run) = peer.verify.of_stretch(stretch) {
        if !lacks(&common.volumes, &range) {
            return read_range(common, cx, slot, range);
        }
        // A write that it waited for has failed.
        run.ends_read(slot).into_iter().for_each(|looked| run.look_again(looked));
    }
    common.slots.take(slot);
    common.volumes.of(range.volume).let_go(slot);
}

/// The range is free: lock it and read.
fn read_range(common: &mut GroupCommon, cx: &mut Cx, slot: u32, range: SyncRange) {
    let SyncRange { volume, offset, length } = range;
    if !injected(Fault::VerifyReadUnlocked) {
        common.volumes.of(volume).occupy(slot, offset, length, crate::ids::Seq::NONE, false);
    }
    let (token, store) = (Token::new(common.id(), slot), Store::Volume(common.id(), volume));
    cx.out.push_back(Output::ReadHash { token, store, offset, length: length as u32 });
}

/// The range was read: its number is taken before anybody else gets the range.
pub(crate) fn read_done(
    peer: &mut Peer,
    common: &mut GroupCommon,
    cx: &mut Cx,
    (slot, read): (u32, VerifyRead),
    result: IoResult,
) {
    let VerifyRead { range, stretch } = read;
    follow_stream(peer, cx);
    let counts = common.lifecycle.is_running() && in_order(peer, common);
    let Peer { verify, outbox, .. } = peer;
    if let Some(run) = verify.of_stretch(stretch)
        && let Some(looked) = run.ends_read(slot)
    {
        match (result, outbox.sending.stream_mut().filter(|_| counts)) {
            (Ok(IoDone::Hash(hash)), Some(stream)) => {
                common.counters.compared_bytes += range.length;
                run.is_asked(push_probe(stream, common, cx, range, hash), looked);
            }
            // It is paused, or on its way to another role.
            (Ok(_), _) => run.look_again(looked),
            (Err(_), _) => could_not_read(run, cx, looked),
        }
    }
    common.slots.take(slot);
    if !injected(Fault::VerifyReadUnlocked) {
        common.volumes.of(range.volume).release(slot);
    }
    common.wake(Wake::Range(range.volume));
}

fn could_not_read(run: &mut VerifyRun, cx: &Cx, looked: Looked) {
    let failures = looked.failures + 1;
    if failures >= limits::VERIFY_TRIES_MAX {
        return run.leaves_out(looked);
    }
    run.reads_at = run.reads_at.max(cx.now.mono.plus(limits::REPAIR_AFTER));
    run.look_again(Looked { failures, ..looked });
}

/// What was compared was another copy, or is sent anew: the verify under way begins anew.
pub(crate) fn begins_anew(peer: &mut Peer, common: &GroupCommon, cx: &mut Cx, why: &str) {
    let Some(run) = &mut peer.verify.run else { return };
    let order = run.order;
    *run = VerifyRun::new(order, cx.now.mono, common.sb.doubts.differs);
    peer.verify.stretch += 1;
    cx.coverage.hit(CoveragePoint::VerifyBeganAnew);
    cx.event(common.id(), Event::Note(format!("the verify under way begins anew: {why}")));
    tell_begin(common, cx, order);
}

// ---- answers ---------------------------------------------------------------------------------------------------------

/// The peer's answer to a hash: of a verify, or of a sync.
pub(crate) fn probe_result(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx, header: &FrameHeader) {
    follow_stream(peer, cx);
    let sent = peer.outbox.stream().map(|stream| stream.queue().sent_through());
    let Some(run) = peer.verify.run.as_mut().filter(|run| run.asks(header.seq)) else {
        return peer.probe_result(common, cx, header);
    };
    if sent.is_none_or(|sent| header.seq > sent) {
        return common.protocol_error(cx, "an answer to a comparison that was not sent to it");
    }
    let Some(looked) = run.is_answered(header.seq) else { return };
    if header.flags & flags::EQUAL != 0 {
        cx.coverage.hit(CoveragePoint::ProbeEqual);
        if looked.look == Look::Repaired {
            cx.coverage.hit(CoveragePoint::VerifyRepaired);
        }
        return run.is_equal(looked);
    }
    if common.lifecycle.phase() == Phase::Recording && !injected(Fault::VerifySetsLateBit) {
        // The bits are stored already: one that is set now a crash would not find.
        run.look_again(looked);
        return doubt(peer, common, cx, CopyDoubts { differs: true, ..common.sb.doubts });
    }
    if run.narrows(looked) {
        return cx.coverage.hit(CoveragePoint::VerifyNarrowed);
    }
    differs(peer, common, cx, looked, header.flags & flags::UNREADABLE != 0);
}

/// At one position of the order both copies differ in a region. It may be of a write that failed here since: then it is dirty already.
fn differs(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx, looked: Looked, unreadable: bool) {
    let Some(run) = &mut peer.verify.run else { return };
    let SyncRange { volume, offset, length } = looked.range;
    if looked.look != Look::Repaired {
        if run.differs(looked.range, unreadable) {
            cx.event(common.id(), Event::VerifyDiffers { volume, offset, length, unreadable });
        }
        doubt(peer, common, cx, CopyDoubts { differs: true, ..common.sb.doubts });
    }
    let Some(run) = &mut peer.verify.run else { return };
    if !run.order.repair || looked.look == Look::Repaired {
        // One that differs though it was sent again: the peer's disk does not keep what is written to it.
        run.totals.compared_bytes += length;
        return;
    }
    run.look_again(Looked { look: Look::Repaired, ..looked });
    common.volumes.copy_of(volume).set_uncovered(offset, length);
    // No number of the log tells of it.
    logging::close(&mut peer.outbox, common, cx, "a verify found a difference");
    peer.repair.is_due();
    common.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER);
}

/// What speaks against the copy goes on record, here and at the peer.
fn doubt(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx, doubts: CopyDoubts) {
    if common.sb.doubts(doubts) {
        common.save(cx, None);
        peer.report_primary_state(common, cx);
    }
}

/// All that was to be compared was, each range at one position of the order.
fn ended(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx) {
    let Some(VerifyRun { order, totals, differed_before, leaves_volume, .. }) = peer.verify.run else { return };
    cx.coverage.hit(CoveragePoint::VerifyEnded);
    peer.verify.end(None, cx);
    let is_whole = order.is_full() && totals.unread_bytes == 0 && !leaves_volume;
    let is_left = totals.left_bytes() > 0;
    if leaves_volume {
        cx.event(common.id(), Event::Note("the verify left out a volume that is set aside".into()));
    }
    // A sample, or one that could not read all, says nothing of the rest.
    let differs = is_left || !is_whole && differed_before;
    let assumed_equal = common.sb.doubts.assumed_equal && !is_whole;
    doubt(peer, common, cx, CopyDoubts { assumed_equal, differs });
    cx.event(common.id(), Event::VerifyEnded { sample_percent: order.sample_percent, totals });
}

// ---- for people ------------------------------------------------------------------------------------------------------

/// How far a verify is; `None`: none is under way.
pub(crate) fn status(peer: &Peer, common: &GroupCommon, now: Mono) -> Option<VerifyStatus> {
    let waits = !in_order(peer, common) || peer.outbox.stream().is_none_or(|stream| !PeerStream::is_open(stream));
    peer.verify.run.as_ref().map(|run| run.status(&common.volumes, now, waits))
}
