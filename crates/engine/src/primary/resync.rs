//! A sync in the stream: when it begins, and reads while the stream has use for them.

use crate::common::{Common, Phase};
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::{Decision, Role};
use crate::limits::{self};
use crate::peer::queue::Body;
use crate::peer::repair::Repair;
use crate::peer::resync::{READ_FAILURES_MAX, ResyncRead};
use crate::peer::stall::unreadable;
use crate::planted::{Fault, planted};
use crate::primary::Primary;
use crate::shared::slots::Op;
use crate::state::{Mode, State};
use crate::{Event, IoDone, IoError, Slice};

impl Primary {
    // ---- beginning -------------------------------------------------------------------------------------------------

    /// Begins what may begin by itself: an update sync from logging, a repair in a running stream.
    pub fn try_autosync(&mut self, common: &mut Common, cx: &mut Cx) {
        if common.role() != Role::Primary || !matches!(common.phase, Phase::Running) {
            return;
        }
        match common.state {
            State::Logging => self.autosync_from_logging(common, cx),
            State::CatchingUp | State::Replicating if self.peer.resync.is_none() => self.peer.begin_repair(common, cx),
            // A sync or a pause is under way: look again after it.
            _ if self.peer.repair.due => common.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER),
            _ => {}
        }
    }

    fn autosync_from_logging(&mut self, common: &mut Common, cx: &mut Cx) {
        if common.hello.is_none() {
            return;
        }
        let waits = if common.settings.mode == Mode::Logging {
            Some("mode is logging")
        } else if common.sb.current.held_in_logging {
            Some("waiting for 'sync': the operator holds the group in logging")
        } else if common.sb.current.changed_outside && !planted(Fault::ChangedSentUnasked) {
            Some(crate::CHANGED_OUTSIDE)
        } else if !(common.settings.autosync || self.peer.wanted_update || self.peer.full_is_wanted(common)) {
            Some("waiting for 'sync': autosync is off")
        } else {
            None
        };
        if let Some(waits) = waits {
            let why = match self.peer.decision(common) {
                // That one would be refused.
                Some(Decision::NeedsFullSync(why)) if !self.peer.full_is_wanted(common) => {
                    alloc::format!("{why}")
                }
                Some(Decision::Refuse(why)) => alloc::format!("{why}"),
                _ => waits.into(),
            };
            return self.peer.transition(common, cx, State::Logging, &why);
        }
        let healthy = common.hello.as_ref().is_some_and(|h| !h.failed) && !self.peer.generation_due;
        let may = match self.peer.decision(common) {
            Some(Decision::UpdateSync | Decision::Continue(_)) => true,
            Some(Decision::NeedsFullSync(_)) => self.peer.full_is_wanted(common),
            _ => false,
        };
        if cx.now.mono < self.peer.stall.left_alone_until {
            if healthy && may {
                self.peer.transition(common, cx, State::Logging, self.peer.stall.pause_words());
            }
            let wait = self.peer.stall.left_alone_until.since(cx.now.mono);
            return common.set_timer(cx, GroupTimer::Autosync, wait);
        }
        if healthy && may && self.settle(common, cx) {
            self.sync_in_turn(common, cx, false);
        }
    }

    // ---- the pass --------------------------------------------------------------------------------------------------

    /// Starts reads while the stream has use for them. Regions and live writes share the queue: what a sync may have standing
    /// unsent there is its own affair, however much live writes have, or one at full load would never end (P5).
    pub fn pump_resync(&mut self, common: &mut Common, cx: &mut Cx) {
        if self.peer.cut.is_some() {
            return self.pump_cut(common, cx);
        }
        self.peer.announce_sync(common, cx);
        loop {
            let reads = self.peer.resync.as_ref().filter(|r| r.ready && r.end.is_none());
            let Some(resync) = reads.filter(|_| !self.peer.waits_to_resume(common)) else { return };
            let busy = resync.reads >= limits::RESYNC_READS_MAX
                || cx.now.mono < resync.reads_again_at
                || self.peer.queue.unsent_sync_bytes() + resync.waiting_bytes >= cx.peer.resync_backlog_bytes()
                || resync.probes.len() >= limits::PROBES_IN_FLIGHT_MAX;
            if busy {
                return;
            }
            let next = self.peer.next_read(common, cx);
            if next
                .as_ref()
                .is_some_and(|next| !self.peer.has_room_for_sync(common, cx, next.range.queued_bytes(next.compare)))
            {
                return self.look_for_room(common, cx);
            }
            if let Some(resync) = self.peer.resync.as_mut() {
                resync.had_room_at = cx.now.mono;
            }
            match next {
                Some(next) => self.peer.read_range(common, cx, next),
                None if self.peer.end_pass(common, cx) => {}
                None => return,
            }
        }
    }

    pub fn resync_read_done(&mut self, common: &mut Common, cx: &mut Cx, slot: u32, result: Result<IoDone, IoError>) {
        let Some(Op::Resync(read)) = common.slots.take(slot) else { unreachable!("checked by the caller") };
        let range = read.range;
        common.volumes.of(range.volume).release(slot);
        if self.peer.resync.as_ref().is_some_and(|r| r.pass == read.pass) {
            self.place_read(common, cx, &read, result);
        }
        self.wake_range_waiters(common, cx, range.volume);
    }

    fn place_read(&mut self, common: &mut Common, cx: &mut Cx, read: &ResyncRead, result: Result<IoDone, IoError>) {
        let range = read.range;
        let resync = self.peer.resync.as_mut().expect("checked by the caller");
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
        self.peer.fill_parts(read, &body);
        if voided {
            common.volumes.of(range.volume).mark_uncovered(range.offset, range.length);
            common.set_timer(cx, GroupTimer::Autosync, limits::REPAIR_AFTER);
        }
        common.counters.resynced_bytes += range.length;
        // Its bits clear after a local flush; nothing else may ask for one.
        common.set_timer(cx, GroupTimer::LocalFlush, limits::LOCAL_FLUSH_AFTER);
        if failures >= READ_FAILURES_MAX {
            let why = unreadable(range.volume, range.offset);
            if self.peer.resync.as_ref().is_some_and(|r| r.repair) {
                return self.put_off_repair(common, cx, &why);
            }
            self.pause_for_own_store(common, cx, &why);
        }
    }

    /// The region cannot be read, and stays dirty. All else goes on in its order: nobody is answered alone because of it.
    pub fn put_off_repair(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        if planted(Fault::RepairEndsStream) {
            return self.pause_for_own_store(common, cx, why);
        }
        self.peer.resync = None;
        self.peer.void_pending(common);
        self.peer.repair = Repair { due: true, again_at: Some(cx.now.mono.plus(limits::RESYNC_HOLD_OFF_MAX)) };
        cx.event(common.id(), Event::Note(why.into()));
        self.peer.transition(common, cx, common.state, why);
    }

    /// An operator's `sync` waits for nothing. False: nothing is put off.
    pub fn repair_at_once(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        let is_put_off = self.peer.repair.due && self.peer.repair.again_at.is_some();
        if is_put_off {
            self.peer.repair.again_at = Some(cx.now.mono);
            self.try_autosync(common, cx);
        }
        is_put_off
    }
}
