//! What the node asks of a group: its permits to start and to sync, to speak on the link, and what it holds of what all share.

use alloc::string::String;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::{Decision, Identity, Role};
use crate::formats::superblock::Superblock;
use crate::formats::wire::FrameHeader;
use crate::group::{Group, handover, reset};
use crate::ids::{NodeId, RequestId, VolumeId};
use crate::peer::forks::next_union;
use crate::peer::logging;
use crate::peer::orders::PermitEvents;
use crate::peer::verify;
use crate::records::start::CannotStart;
use crate::shared::lifecycle::StartStage;
use crate::shared::link::LinkUse;
use crate::shared::memory::{MemoryWish, reserve};
use crate::state::{Broken, State};
use crate::{Request, SendPayload};

impl Group {
    /// What both halves use, to be looked at.
    pub fn common(&self) -> &GroupCommon {
        &self.common
    }

    pub fn peer(&self) -> NodeId {
        self.common.config.peer
    }

    pub fn request(&mut self, cx: &mut Cx, volume: VolumeId, id: RequestId, request: Request) {
        if let Some(request) = handover::hold(self, volume, id, request) {
            self.primary.request(&mut self.common, cx, volume, id, request);
        }
    }

    /// It is its turn to start, if it has not.
    pub fn start(&mut self, cx: &mut Cx, entropy: u64, boot: u128) {
        if !self.common.lifecycle.is_at(StartStage::Idle) {
            return;
        }
        match self.refused.take() {
            Some(why) => self.start_failed(cx, CannotStart::new(Broken::Device, why)),
            None => {
                let entropy = reset::entropy(self, entropy);
                self.common.numbers.seed(entropy);
                self.common.start().begin(cx, entropy, boot);
            }
        }
    }

    /// It is not taken up in this run; who it was, as far as that is known.
    pub fn refuse(&mut self, why: String, recorded: Option<Identity>) {
        assert!(self.common.lifecycle.is_at(StartStage::Idle), "it has not begun to start");
        self.refused = Some(why);
        if let Some(identity) = recorded {
            self.common.sb.take_up(Superblock { identity, ..Superblock::default() }, identity);
        }
    }

    /// What is worth doing once per turn: land batches, start reads of a sync, acknowledge.
    pub fn end_turn(&mut self, cx: &mut Cx) {
        self.secondary.replica.land(&mut self.common, cx);
        self.pump_sync(cx);
        logging::pump(&mut self.primary.peer.outbox, &mut self.common, cx);
        self.run_wakes(cx);
        self.secondary.send_due_ack(&mut self.common, cx);
    }

    /// A sync goes on; writers who wait for memory are before it.
    fn pump_sync(&mut self, cx: &mut Cx) {
        self.primary.wake_for_memory(&mut self.common);
        self.run_wakes(cx);
        self.primary.pump_resync(&mut self.common, cx);
        if !self.handover.holds() {
            // The peer would never have the last number.
            verify::pump(&mut self.primary.peer, &mut self.common, cx);
        }
        self.run_wakes(cx);
    }

    /// The next frame for the link, which has credit for one: what the peer asked for goes first.
    pub fn next_frame(&mut self, cx: &mut Cx) -> Option<(FrameHeader, SendPayload)> {
        self.pump_sync(cx);
        let answers = self.common.role() == Role::Secondary && self.common.lifecycle.is_running();
        if answers && !self.common.has_failed() {
            let others_bytes = self.shown().held_bytes() - self.primary.peer.outbox.answers.held_bytes();
            let (common, answers) = (&mut self.common, &mut self.primary.peer.outbox.answers);
            answers.read_ahead(common, cx, others_bytes);
            if let Some(answer) = answers.next(common, cx) {
                return Some(answer);
            }
        } else {
            self.primary.peer.outbox.answers.forget();
            if let Some(frame) = next_union(&mut self.primary.peer, &self.common, cx) {
                return Some(frame);
            }
        }
        self.primary.peer.next_frame(&mut self.common, cx)
    }

    // ---- what is shared ----------------------------------------------------------------------------------------------

    /// What the pool lets it hold however short memory is.
    pub fn reserve_bytes(&self) -> u64 {
        reserve(self.common.config.window_bytes)
    }

    /// What the node's pool knows last that this group holds.
    pub fn counted_bytes(&self) -> u64 {
        self.counted_bytes
    }

    /// The group's position in the line for memory.
    pub fn memory(&mut self) -> &mut MemoryWish {
        &mut self.common.memory
    }

    /// What the pool is to know: what was held, and what is.
    pub fn count_memory(&mut self) -> (u64, u64) {
        let held = self.shown().held_bytes();
        (core::mem::replace(&mut self.counted_bytes, held), held)
    }

    /// What the link is to know, if it is something new: what it had, and what it has.
    /// `leaves`: nothing from here on.
    pub fn count_link_use(&mut self, leaves: bool) -> Option<(LinkUse, LinkUse)> {
        let now = if leaves { LinkUse::default() } else { self.primary.peer.outbox.link_use(&self.common) };
        let before = core::mem::replace(&mut self.counted_use, now);
        (before != now).then_some((before, now))
    }

    /// What became of permits to sync in this input, once.
    pub fn take_permit_events(&mut self) -> PermitEvents {
        self.primary.peer.wanted.take_permit_events()
    }

    /// Begins a sync that an operator typed; what he is told.
    pub fn begins(&mut self, cx: &mut Cx, full: bool) -> &'static str {
        let begins = self.primary.request_sync(&mut self.common, cx, full);
        if !begins {
            return "the sync begins by itself when it is its turn: other groups of this node are syncing";
        }
        if full || self.primary.peer.outbox.syncs() {
            "sync began"
        } else {
            "the sync begins as soon as it is known what the peer holds"
        }
    }

    /// A permit for a sync is this group's, if it still has use for it.
    pub fn sync_permitted(&mut self, cx: &mut Cx) {
        if self.primary.peer.waits_to_resume(&self.common) && self.primary.peer.outbox.syncs() {
            return self.primary.peer.resume(&mut self.common, cx);
        }
        let may = self.common.role() == Role::Primary
            && self.common.lifecycle.is_running()
            && !self.common.has_failed()
            && self.primary.peer.greeting.hello().is_some_and(|h| !h.failed)
            && !matches!(self.primary.peer.decision(&self.common), None | Some(Decision::Refuse(_)));
        if may && self.primary.peer.wants_full(&self.common) {
            self.primary.request_sync(&mut self.common, cx, true);
        } else if self.shown().state() == State::Logging {
            self.primary.try_autosync(&mut self.common, cx);
        }
    }
}
