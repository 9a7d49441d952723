//! Regions travel in the one ordered stream (rule 7): a region is read under a lock on its range, takes its number at
//! that moment, and is sent between the live writes with lower and higher numbers. So the secondary applies a resync like
//! any other stream, and at the number of `SyncEnd` it equals the primary at that number.

use core::time::Duration;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Decision;
use crate::formats::wire::{FrameHeader, FrameKind, SyncBegin};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::peer::catch_up::compare_all;
use crate::peer::detached::{NOTHING_IN_ORDER, fill_all, is_nothing_in_order};
use crate::peer::forks::is_kept_over;
use crate::peer::sending::{Sending, SyncAnnouncement};
use crate::peer::stream::pass::{PassEnding, SyncPass};
use crate::peer::streaming::{confirmed, step_begun};
use crate::peer::{Peer, detached, logging};
use crate::records::bits::AfterBits;
use crate::shared::cost::cost;
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::PEER_FAILED;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::peer_copy::PeerCopy;
use crate::shared::volumes::AmountToSend;
use crate::state::{Mode, Pause, State};
use crate::{Event, IoResult};
use alloc::string::String;

impl Peer {
    pub fn begin_full_sync(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if !self.reconcile.may_sync_in_full() || !self.wants_full(common) {
            return;
        }
        let fits = self.state(common) == State::Logging
            && common.lifecycle.is_running()
            && self.greeting.hello().is_some_and(|h| !h.failed);
        let sb = &common.sb;
        let changed = sb.changed_outside && !injected(Fault::ChangedSentUnasked);
        let held = sb.held_in_logging || changed || common.settings.mode == Mode::Logging;
        if !fits || held || matches!(self.decision(common), None | Some(Decision::Refuse(_))) {
            return;
        }
        if !cx.may_sync {
            // Another group took the permit while this one's bits were being stored.
            self.wanted.wait_for_permit(&self.greeting, true);
            return self.report_state(common, cx, WAITS_FOR_TURN);
        }
        self.begin_sync(common, cx, true);
    }

    /// From logging: whether a sync may begin by itself. If not, the state says why.
    pub fn may_autosync(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        if self.greeting.hello().is_none() {
            return false;
        }
        if let Some(waits) = waits_for_order(self, common) {
            let why = match self.decision(common) {
                // That one would be refused.
                Some(Decision::NeedsFullSync(why)) if !self.wants_full(common) => {
                    alloc::format!("{why}")
                }
                Some(Decision::Refuse(why)) => alloc::format!("{why}"),
                _ => waits.into(),
            };
            self.report_state(common, cx, &why);
            return false;
        }
        if self.greeting.hello().is_some_and(|hello| hello.failed) {
            // Until now a setting may have been what nothing began for.
            self.report_state(common, cx, PEER_FAILED);
            return false;
        }
        let healthy = !common.numbers.generation_is_due();
        let may = match self.decision(common) {
            Some(Decision::UpdateSync | Decision::Continue(_)) => true,
            Some(Decision::NeedsFullSync(_)) => self.wants_full(common),
            _ => false,
        };
        if let Some(wait) = self.stall.left_alone_for(cx.now.mono) {
            if healthy && may {
                self.report_state(common, cx, self.stall.pause_words());
            }
            common.set_timer(cx, GroupTimer::Autosync, wait);
            return false;
        }
        healthy && may
    }

    /// What the peer gets is durable here before it hears of it, and so is all that it may have of an earlier stream: after a crash it
    /// must not be ahead of us. Live writes go on, and wait in the queue, or set their regions dirty for the next snapshot.
    pub fn announce_sync(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let (Some(sync), Some(link)) = (self.outbox.sending.to_announce(common), cx.peer.link) else { return };
        let SyncAnnouncement { attempt, from, by_snapshot, nothing_dirty, .. } = sync;
        let flushed = common.flushed_through(cx, from.seq);
        let flushed = flushed || by_snapshot && injected(Fault::SnapshotUnflushed);
        if !flushed || common.numbers.generation_is_due() || !logging::lets_sync(&mut self.outbox, common, cx) {
            return;
        }
        let AmountToSend { dirty_bytes, dirty_units, left_out_bytes } =
            sync.to_send.unwrap_or_else(|| common.volumes.to_send());
        let parent = common.sb.identity.parent;
        let to = self.greeting.run();
        let snapshot = if by_snapshot { attempt } else { 0 };
        let aside = if injected(Fault::AsideNotAnnounced) { VolumeSet::default() } else { common.sb.aside };
        let is_resolved = self.greeting.hello().is_some_and(|hello| is_kept_over(common, &hello.identity));
        let begin = SyncBegin {
            from,
            parent,
            to,
            nothing_dirty,
            dirty_bytes,
            dirty_units,
            left_out_bytes,
            snapshot,
            attempt,
            aside,
            is_resolved,
        };
        cx.send_control(link, FrameKind::SyncBegin, common.id(), begin.encode());
        self.stall.moved(cx.now.mono);
        self.outbox.sending.announced();
    }
}

/// Why no sync begins before the operator orders one.
pub(crate) fn waits_for_order(peer: &Peer, common: &GroupCommon) -> Option<&'static str> {
    if common.settings.mode == Mode::Logging {
        Some("mode is logging")
    } else if is_nothing_in_order(common) {
        Some(NOTHING_IN_ORDER)
    } else if common.sb.held_in_logging {
        Some(HELD_IN_LOGGING)
    } else if common.sb.changed_outside && !injected(Fault::ChangedSentUnasked) {
        Some(crate::CHANGED_OUTSIDE)
    } else if !(common.settings.autosync || peer.wanted.is_update() || peer.wants_full(common)) {
        Some("waiting for 'sync': autosync is off")
    } else {
        None
    }
}

/// What is to be compared may be what one unclean start found in the activity log: little enough to be compared in the stream.
fn is_of_one_crash(common: &GroupCommon) -> bool {
    let activity = common.config.activity;
    let unverified = common.volumes.dirty_bytes_to_send() - common.volumes.to_send().dirty_bytes;
    unverified <= u64::from(activity.extents) * activity.extent_bytes
}

/// Why a sync that nothing else stands in the way of has not begun.
pub(crate) const WAITS_FOR_TURN: &str = "waiting for its turn: other groups of this node are syncing";

/// Why nothing begins by itself, whether the peer is there or not.
pub(crate) const HELD_IN_LOGGING: &str = "waiting for 'sync': the operator holds the group in logging";

impl Peer {
    pub fn begin_sync(&mut self, common: &mut GroupCommon, cx: &mut Cx, full: bool) {
        if cx.peer.link.is_none() {
            return;
        }
        _ = detached::leave_out(self, common, cx);
        if is_nothing_in_order(common) {
            // Also where an operator asked for one, which takes in what can be.
            self.wanted.forget_orders();
            return self.report_state(common, cx, NOTHING_IN_ORDER);
        }
        let compare = common.volumes.copies().any(|copy| copy.has_unverified() && !copy.is_aside());
        let dirty_bytes = common.volumes.dirty_bytes_to_send();
        cx.coverage.hit(match (full, compare) {
            (true, _) => CoveragePoint::FullSyncBegan,
            (_, true) => CoveragePoint::CompareSyncBegan,
            _ if dirty_bytes == 0 => CoveragePoint::SyncNothingDirty,
            _ => CoveragePoint::UpdateSyncBegan,
        });
        common.counters.syncs += 1;
        cx.event(common.id(), Event::SyncBegan { full, compare, dirty_bytes });
        match (full, compare) {
            (true, false) => self.begin_catch_up(common, cx, "full sync"),
            (true, true) => compare_all(self, common, cx, "full sync; what is equal is not sent"),
            // A full one was cut short: the peer has a part of it, or there is more than a crash leaves.
            (false, true) if common.volumes.copies().any(PeerCopy::has_held) || !is_of_one_crash(common) => {
                compare_all(self, common, cx, "update sync; what was not compared yet is compared");
            }
            // What is dirty is not known: most of it is answered by a hash, in the stream.
            (false, true) => {
                let why = "update sync; what was being written when this primary stopped is compared";
                self.begin_sync_in_stream(common, cx, None, why);
            }
            (false, false) => self.begin_catch_up(common, cx, "update sync"),
        }
        self.catch_up.full = full;
    }

    /// It has taken up our history: should this sync end early, the next meeting starts from here.
    fn peer_took_up(&mut self, common: &mut GroupCommon, begin: Position, dirty: bool) {
        common.sb.peer_took_up();
        // Until now the order stood: what ends before the peer has heard of it is begun again.
        self.wanted.forget_orders();
        // What stands on a device that comes after this one was not ordered to be overwritten.
        self.wanted.is_filled();
        self.greeting.fills(&common.sb.aside);
        let ours = common.sb.identity;
        self.greeting.took_up(&ours, begin, dirty);
    }

    /// A sync whose live writes travel beside the regions; it ends in order (rule 7).
    pub fn begin_sync_in_stream(&mut self, common: &mut GroupCommon, cx: &mut Cx, paused: Option<Pause>, why: &str) {
        self.passes += 1;
        if common.volumes.take_number() {
            // No write's: what was written beside the order has one behind it, and is flushed up to there before the peer hears of it.
            _ = common.numbers.give(cx, 1);
        }
        let pass = SyncPass::new(cx.now.mono, self.passes, false, common.volumes.dirty_bytes_to_send());
        self.outbox.begin_stream(common, cx, Some(pass));
        step_begun(self, common, cx, paused, why);
        self.stall.watch_sync(common, cx);
    }

    pub fn peer_sync_ready(&mut self, common: &mut GroupCommon, cx: &mut Cx, header: &FrameHeader) {
        let attempt = header.offset;
        // It was told of it, or is. What was abandoned meanwhile is still answered.
        if !(1..=self.passes).contains(&attempt) || self.outbox.sending.is_to_begin(attempt) {
            return common.protocol_error(cx, "an answer to a sync that was not begun");
        }
        self.stall.answered(cx.now.mono);
        if self.state(common) == State::Logging {
            common.set_timer(cx, GroupTimer::Autosync, Duration::ZERO);
        }
        match &mut self.outbox.sending {
            Sending::Apart => {}
            Sending::Snapshot(snapshot) => {
                if let Some(mark) = snapshot.peer_is_ready(common, cx.now.mono, attempt) {
                    self.left.peer_is_ready(mark, self.greeting.run());
                    self.peer_took_up(common, mark.0, true);
                }
            }
            Sending::Stream(stream) => {
                let syncs = stream.syncs();
                if let Some((began, dirty)) = stream.peer_is_ready(attempt) {
                    if !syncs {
                        // It was in the same history. An order that waits still stands.
                        common.sb.peer_took_up();
                        let (ours, begin) = (common.sb.identity, common.position(began));
                        return self.greeting.took_up(&ours, begin, false);
                    }
                    self.peer_took_up(common, common.position(began), dirty);
                }
            }
        }
    }

    /// Starts reads while the stream has use for them. True: live writes leave it no room, and it will not come to its end beside them.
    pub fn pump_resync(&mut self, common: &mut GroupCommon, cx: &mut Cx) -> bool {
        let waits = self.waits_to_resume(common);
        while !waits && self.outbox.stream().is_some_and(|stream| stream.wants_reads(cx)) {
            let longest = self.outbox.longest_sync_read(common, cx);
            let next = self.outbox.sending.stream_mut().and_then(|stream| stream.next_read(common, cx, longest));
            if next.as_ref().is_some_and(|next| !self.outbox.has_room_for_sync(common, cx, cost(next.queued_bytes()))) {
                return self.is_starved(common, cx.now.mono);
            }
            let Some(stream) = self.outbox.sending.stream_mut() else { return false };
            stream.had_room(cx.now.mono);
            if let Some(next) = next {
                stream.read_range(common, cx, &next);
                continue;
            }
            match stream.end_pass(common, cx) {
                PassEnding::GoesOn => {}
                PassEnding::Waits => return false,
                PassEnding::Repaired => {
                    self.repair_ended(common);
                    return false;
                }
            }
        }
        false
    }

    /// What was read for a pass enters the queue, and its range is free. `Err`: it cannot be read, and the sync cannot go on.
    pub fn resync_read_done(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        slot: u32,
        result: IoResult,
    ) -> (VolumeId, Result<(), String>) {
        let Some(SlotOperation::Resync(read)) = common.slots.take(slot) else { unreachable!("checked by the caller") };
        let volume = read.range.volume;
        common.volumes.of(volume).release(slot);
        let Some(stream) = self.outbox.sending.stream_mut() else { return (volume, Ok(())) };
        let accepted = stream.accept_read(common, cx, &read, result);
        if !stream.repairs() || injected(Fault::RepairEndsStream) {
            return (volume, accepted);
        }
        if let Err(why) = accepted {
            self.put_off_repair(common, cx, &why);
        }
        (volume, Ok(()))
    }

    /// The peer's answer to a hash.
    pub fn probe_result(&mut self, common: &mut GroupCommon, cx: &mut Cx, header: &FrameHeader) {
        let moved = match &mut self.outbox.sending {
            Sending::Apart => return,
            Sending::Stream(stream) => stream.probe_result(common, cx, header),
            Sending::Snapshot(snapshot) => Ok(snapshot.probe_result(common, cx, header)),
        };
        self.stall.took(common, cx, moved);
    }

    /// The sync is over once the peer applied its end.
    pub fn sync_progress(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let Some((applied, bytes)) = self.outbox.sending.stream_mut().and_then(|stream| stream.end_sync(cx.now.mono))
        else {
            return;
        };
        let sent_bytes = bytes + self.catch_up.take_sent_bytes();
        common.volumes.copies_mut().for_each(|copy| {
            copy.clear_unverified();
            copy.forget_held();
        });
        common.compared(cx);
        common.tidy_bits(cx);
        cx.event(common.id(), Event::SyncEnded { sent_bytes });
        self.stall.sync_ended();
        self.greeting.became_whole(common.sb.identity.generation);
        // It holds a whole image again.
        confirmed(common, &mut self.greeting, common.position(applied));
        self.report_state(common, cx, "the sync is done");
    }
}

/// Everything may differ, and volumes that are set aside with it; that it does stands on disk before it begins (rule 6). A peer that never
/// had an image is sent all of it. Another one's copy is compared, unless an operator knows that it differs.
pub(crate) fn set_all_dirty(peer: &mut Peer, common: &mut GroupCommon, cx: &mut Cx) {
    fill_all(peer);
    // A start from the log would take what is dirty now for what its numbers say.
    if common.sb.queue_logged || peer.outbox.log.gates() {
        logging::close(&mut peer.outbox, common, cx, "a full sync was ordered");
    }
    common.all_rejoin(cx);
    let is_blank = peer.greeting.hello().is_none_or(|hello| hello.identity.is_new());
    if is_blank || peer.wanted.sends_all() {
        common.volumes.copies_mut().for_each(PeerCopy::send_all);
        _ = common.sb.compares(false);
    } else {
        common.volumes.copies_mut().for_each(PeerCopy::compare_all);
        _ = common.sb.compares(true);
        common.save(cx, None);
    }
    common.bits().save(cx, AfterBits::FullSync);
}
