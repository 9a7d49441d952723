//! A group: volumes that share one write order, queue, mode and role. This file owns the outermost state and routes;
//! a write's life is in `primary/`, the receiving side in `secondary/`, regions in `peer/`, start in `group/start.rs`.

use alloc::format;
use alloc::string::String;

use crate::common::GroupCommon;
use crate::common::given_window::window_ended;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::{Confirmed, Role};
use crate::formats::wire::{FrameHeader, FrameKind, GroupHello};
use crate::group::handover::Handover;
use crate::group::marks::MarkDesk;
use crate::group::reset::GroupReset;
use crate::ids::*;
use crate::peer::forks::would_yield;
use crate::peer::{Peer, logging, verify};
use crate::primary::steps::{is_lowered, look_at_ladder};
use crate::primary::younger::look_at_queue;
use crate::primary::{Primary, disk_queue};
use crate::secondary::Secondary;
use crate::secondary::delta::delta_is_to_be_shown;
use crate::shared::lifecycle::AfterRollback;
use crate::shared::link::LinkUse;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::wakes::Wake;
use crate::state::Broken;
use crate::{GroupConfig, IoResult};

pub(crate) struct Group {
    /// What both halves use.
    common: GroupCommon,
    primary: Primary,
    secondary: Secondary,
    handover: Handover,
    marks: MarkDesk,
    /// Stop as soon as the change of role is done.
    stop_wanted: bool,
    /// Why it is not taken up in this run: [`crate::Node::refuse`].
    refused: Option<String>,
    /// It is being started anew, or was and has not met its peer since.
    reset: Option<GroupReset>,
    /// It has left the node and come again, and the link that fell by that comes up again: it has not met its peer since.
    link_comes: bool,
    /// What the node's pool knows last that this group holds.
    counted_bytes: u64,
    /// What the link counts of it.
    counted_use: LinkUse,
}

impl Group {
    pub fn new(node: NodeId, config: GroupConfig) -> Group {
        let mut primary = Primary::default();
        primary.peer.outbox.has_disk_queue(config.queue_disk_bytes, config.queue_durable);
        Group {
            primary,
            secondary: Secondary::new(&config),
            handover: Handover::new(),
            marks: MarkDesk::default(),
            stop_wanted: false,
            refused: None,
            reset: None,
            link_comes: false,
            counted_bytes: 0,
            counted_use: LinkUse::default(),
            common: GroupCommon::new(node, config),
        }
    }

    /// A completed operation.
    pub fn io(&mut self, cx: &mut Cx, slot: u32, result: IoResult) {
        let Group { common, primary, secondary, .. } = &mut *self;
        match common.slots.get(slot) {
            Some(SlotOperation::Write(_)) => return primary.write_done(common, cx, slot, result.map(|_| ())),
            Some(SlotOperation::Resync(_)) => return primary.resync_read_done(common, cx, slot, result),
            Some(&SlotOperation::Verify(read)) => {
                return verify::read_done(&mut primary.peer, common, cx, (slot, read), result);
            }
            Some(SlotOperation::Snapshot(_)) => return primary.snapshot_read_done(common, cx, slot, result),
            Some(&SlotOperation::SnapshotHole(question)) => {
                return primary.hole_found(common, cx, slot, question, result);
            }
            Some(SlotOperation::SnapshotSpill(_)) => return primary.spill_done(common, cx, slot, result.map(|_| ())),
            Some(_) => {}
            None => unreachable!("a completion for slot {slot}, which is free"),
        }
        let done = match common.slots.take(slot) {
            Some(SlotOperation::LocalFlush(volume)) => primary.local_flush_done(common, cx, volume, result.is_ok()),
            Some(SlotOperation::PullRead { range, session, question }) => {
                primary.peer.outbox.answers.pull_read(common, cx, range, (session, question), result)
            }
            Some(SlotOperation::PullWrite { bytes }) => {
                let Peer { reconcile, greeting, .. } = &mut primary.peer;
                reconcile.pull_written(common, cx, greeting, (bytes, result.is_ok()))
            }
            Some(SlotOperation::PullFlush) => {
                let Peer { reconcile, greeting, .. } = &mut primary.peer;
                reconcile.pull_flushed(common, cx, greeting, result.is_ok())
            }
            Some(SlotOperation::Apply { seq }) => secondary.replica.apply_done(common, cx, seq, result),
            Some(SlotOperation::ReplicaFlush) => secondary.replica.replica_flush_done(common, cx, result.is_ok()),
            Some(SlotOperation::SaveRead { of, piece }) => {
                secondary.replica.save_read_done(common, cx, (of, piece), result)
            }
            Some(SlotOperation::SaveBatch { of, last_piece }) => {
                secondary.replica.save_batch_done(common, cx, (of, last_piece), result)
            }
            Some(SlotOperation::RestoreRead(saved)) => secondary.restored(common, cx, saved, true, result),
            Some(SlotOperation::Delta(part)) => {
                secondary.delta_done(common, cx, part, result);
                if delta_is_to_be_shown(secondary, cx) {
                    self.say_hello(cx, FrameKind::GroupState);
                }
                Ok(())
            }
            Some(SlotOperation::QueueSpill) => {
                disk_queue::queue_spilled(primary, common, cx, result);
                Ok(())
            }
            Some(SlotOperation::QueueFetch) => {
                disk_queue::queue_fetched(primary, common, cx, result);
                Ok(())
            }
            Some(SlotOperation::RestoreWrite(saved)) => secondary.restored(common, cx, saved, false, result),
            Some(op) => {
                self.io_done(cx, op, result);
                Ok(())
            }
            None => unreachable!("a completion for slot {slot}, which is free"),
        };
        if let Err(broken) = done {
            self.fail(cx, broken);
        }
    }

    /// Those after which the group itself sees to what broke.
    fn io_done(&mut self, cx: &mut Cx, op: SlotOperation, result: IoResult) {
        match op {
            SlotOperation::Superblock => self.super_done(cx, result.is_ok()),
            SlotOperation::BitmapCell { index, words } => self.cell_written(cx, index, &words, result.is_ok()),
            SlotOperation::MarksCell => marks::cell_written(self, cx, result),
            SlotOperation::ActivityCell => self.activity_written(cx, result.is_ok()),
            SlotOperation::JournalBatch { ordinal } => {
                if result.is_err() {
                    self.fail(cx, Broken::Journal);
                }
                self.secondary.replica.batch_done(&mut self.common, cx, ordinal);
            }
            SlotOperation::StartRead => match self.start_read_done(cx, result) {
                Ok(()) => {}
                Err(cannot) => self.start_failed(cx, cannot),
            },
            SlotOperation::QueueAppend { ordinal } => {
                logging::appended(&mut self.primary.peer.outbox, &mut self.common, cx, ordinal, result);
            }
            SlotOperation::QueueCell => {
                logging::cell_written(&mut self.primary.peer.outbox, &mut self.common, cx, result);
            }
            SlotOperation::ViewRead(op) => views::read_done(self, cx, op, result),
            SlotOperation::SnapshotFetch(spilled) => self.primary.spilled_read(&mut self.common, cx, spilled, result),
            SlotOperation::RestoreFlush => match self.secondary.restore_flushed(&mut self.common, cx, result.is_ok()) {
                Ok(None) => {}
                Ok(Some(AfterRollback::Promote(promotion))) => self.store_promotion_bits(cx, promotion),
                Ok(Some(AfterRollback::Start)) => self.common.start().record(cx),
                Err(broken) => self.fail(cx, broken),
            },
            _ => unreachable!("handled above"),
        }
    }

    /// A store broke: stop acknowledging, drop the stream, say so; only a new start helps (rule 12).
    pub fn fail(&mut self, cx: &mut Cx, broken: Broken) {
        if broken == Broken::VolumeFlush && !self.common.sb.has_lost_caches() {
            self.common.sb.caches_lost();
            if self.common.sb.has_lost_caches() {
                self.common.save(cx, None);
            }
        }
        if self.common.has_failed() {
            return;
        }
        if self.common.sb.lost_unrecorded() {
            // What the run before a reset could not record is this one's to record, once it knows its superblock.
            self.common.sb.caches_lost();
        }
        if self.primary.peer.outbox.streams() {
            self.primary.end_stream(&mut self.common, cx, broken.words());
        }
        self.primary.drop_snapshot(&mut self.common, cx);
        for slot in self.primary.peer.outbox.log.take_parked() {
            self.common.wake(Wake::Write(slot));
        }
        self.common.lifecycle.fail(broken);
        self.primary.peer.report_state(&mut self.common, cx, broken.words());
        if self.common.role() == Role::Secondary {
            let slots = &self.common.slots;
            self.secondary.replica.let_go(|seq| slots.applies(seq));
            self.common.set_timer(cx, GroupTimer::ApplyFlush, crate::limits::APPLY_FLUSH_AFTER);
        }
        self.primary.fail_waiting(&mut self.common, cx);
        handover::fail(self, cx);
        self.say_hello(cx, FrameKind::GroupState);
    }

    // ---- the peer --------------------------------------------------------------------------------------------------

    /// A session with the peer begins: say who we are.
    pub fn link_up(&mut self, cx: &mut Cx) {
        reset::begin_round(self, cx, 0);
    }

    pub fn say_hello(&mut self, cx: &mut Cx, kind: FrameKind) {
        if let Some(link) = cx.peer.link {
            self.primary.peer.said_to_yield = would_yield(&self.primary.peer, &self.common);
            let (kind, seq) = self.primary.peer.greeting.greets(kind);
            let header = FrameHeader { seq, ..FrameHeader::new(kind, cx.peer.session, self.common.id()) };
            cx.send(link, header, crate::SendPayload::Control(self.shown().hello().encode()));
        }
    }

    pub fn link_down(&mut self, cx: &mut Cx, why: &str) {
        self.secondary.primary_report.is_past();
        self.primary.peer.session_ends();
        self.marks.session_ends();
        match self.common.role() {
            Role::Primary => self.primary.stream_lost(&mut self.common, cx, why),
            Role::Secondary => self.secondary.lost_session(cx),
        }
        reset::open_when_met(self, cx);
    }

    pub fn frame(&mut self, cx: &mut Cx, header: FrameHeader, payload: crate::FramePayload) {
        if !reset::is_of_this_round(self, cx, &header, &payload) {
            return;
        }
        if self.primary.peer.greeting.unfit().is_some() && header.kind.sender().is_some() {
            // Of a peer that does not fit nothing is acted on; the other groups of the session go on.
            return;
        }
        if self.common.lifecycle.has_stopped() {
            // It may never have known who it is. Other groups of the node are still on their way.
            return;
        }
        let heard = !self.common.is_starting();
        if let Some(what) = self.primary.peer.greeting.contradiction(&header, self.common.config.peer, heard) {
            return self.common.protocol_error(cx, &what);
        }
        let control = payload.control();
        let parsed = match header.kind {
            FrameKind::GroupHello => GroupHello::decode(control).map(|h| self.peer_hello(cx, h)),
            FrameKind::GroupState => GroupHello::decode(control).map(|h| self.peer_changed(cx, h)),
            FrameKind::SyncReady => {
                self.primary.peer.peer_sync_ready(&mut self.common, cx, &header);
                Some(())
            }
            FrameKind::Ack => crate::formats::wire::Ack::decode(control)
                .map(|ack| self.primary.ack(&mut self.common, cx, ack, header.offset)),
            FrameKind::ProbeResult => {
                verify::probe_result(&mut self.primary.peer, &mut self.common, cx, &header);
                Some(())
            }
            FrameKind::SyncBegin => crate::formats::wire::SyncBegin::decode(control)
                .filter(|begin| begin.aside.end() <= self.common.volumes.len())
                .map(|begin| self.sync_begin(cx, begin)),
            FrameKind::Tick => self.secondary.primary_tick(&mut self.common, cx, &header, control),
            FrameKind::Data | FrameKind::Zero | FrameKind::Void | FrameKind::Probe | FrameKind::SyncEnd => {
                self.secondary.receive(&mut self.common, cx, &header, payload);
                Some(())
            }
            FrameKind::WindowAsk => {
                peer_window::asked(self, cx, &header);
                Some(())
            }
            FrameKind::Window => {
                peer_window::heard(self, cx, &header);
                Some(())
            }
            FrameKind::Union => {
                self.secondary.union_named(&mut self.common, cx, &self.primary.peer.greeting, &header, control)
            }
            FrameKind::MarkTerms | FrameKind::MarkThere => marks::frame(self, cx, &header, control),
            FrameKind::Saved => {
                forks::saved(self, cx, &header);
                Some(())
            }
            FrameKind::TailAsk
            | FrameKind::Tail
            | FrameKind::Pull
            | FrameKind::Pulled
            | FrameKind::BitsAsk
            | FrameKind::Bits => self.starting_frame(cx, &header, &payload),
            FrameKind::Heartbeat | FrameKind::HeartbeatEcho | FrameKind::Goodbye => None,
        };
        if parsed.is_none() {
            self.common.protocol_error(cx, &format!("a {:?} frame with a payload it cannot have", header.kind));
        }
    }

    // ---- timers ----------------------------------------------------------------------------------------------------

    pub fn timer(&mut self, cx: &mut Cx, timer: GroupTimer) {
        // What the caches lost goes on record also while a reset waits for a disk.
        let records = timer == GroupTimer::RecordAgain && !reset::is_closed(self);
        if reset::comes_to_rest(self) && !records {
            return;
        }
        match timer {
            GroupTimer::Waits => self.primary.check_waits(&mut self.common, cx),
            GroupTimer::Ladder => look_at_ladder(&mut self.primary, &mut self.common, cx),
            GroupTimer::LocalFlush => self.common.flush_for_bits(cx),
            GroupTimer::RecordAgain => self.common.record_again(cx),
            GroupTimer::Greeting => self.primary.peer.not_greeted(&mut self.common, cx),
            GroupTimer::Tick => {
                self.primary.peer.send_tick(&mut self.common, cx);
                look_at_queue(&mut self.primary, &mut self.common, cx);
            }
            GroupTimer::Window => window_ended(&mut self.common, cx),
            GroupTimer::WindowAsk => peer_window::ask(self, cx),
            GroupTimer::HoldEnd => self.primary.hold_ended(&mut self.common, cx),
            GroupTimer::Autosync => self.primary.try_autosync(&mut self.common, cx),
            GroupTimer::Snapshot => self.primary.peer.snapshot_due(&mut self.common, cx),
            GroupTimer::Stall => self.primary.check_stall(&mut self.common, cx),
            GroupTimer::CatchUp => self.primary.take_up_promise(&mut self.common, cx),
            GroupTimer::ApplyFlush => {
                self.secondary.replica.flush_replica(&mut self.common, cx);
                self.secondary.count_batches(&mut self.common, cx);
            }
            GroupTimer::ApplyRetry => self.secondary.retry_apply(&mut self.common, cx),
            // `proceed` looks at the deadline; a verify goes on when the turn ends.
            GroupTimer::Pace => self.common.wake(Wake::Room),
            GroupTimer::Drain | GroupTimer::Verify | GroupTimer::Yield => {}
            GroupTimer::QueueLog => logging::cell_due(&mut self.primary.peer.outbox, &mut self.common, cx),
            GroupTimer::Views => views::look(self, cx),
            GroupTimer::TidyBits => self.common.tidy_bits(cx),
            GroupTimer::StartAlone if reset::has_to_meet(self) => reset::open_when_met(self, cx),
            GroupTimer::StartAlone => {
                let Peer { reconcile, greeting, .. } = &mut self.primary.peer;
                reconcile.start_alone(&mut self.common, cx, greeting);
            }
        }
    }

    // ---- invariants ------------------------------------------------------------------------------------------------

    /// What must hold after every input.
    pub fn check_invariants(&self) {
        if cfg!(feature = "injected-faults") {
            return;
        }
        self.primary.peer.check_invariants(&self.common);
        assert!(!reset::is_closed(self) || self.common.slots.are_idle(), "nothing is asked of stores that are closed");
        assert_eq!(
            is_lowered(&self.primary),
            self.common.settings.is_lowered(),
            "the ladder says by which mode the group acts"
        );
        self.handover.check_invariants(self.common.role());
        let reported = self.common.sb.confirmed != Confirmed::default();
        assert!(self.common.role() == Role::Primary || !reported, "nobody confirms anything to a secondary");
        assert!(!self.common.has_wakes(), "whoever may go on was looked at");
        let outbox = &self.primary.peer.outbox;
        let may_wait = outbox.streams() && !outbox.syncs();
        assert!(
            may_wait || self.primary.waiters().nobody_waits_for_room(),
            "writers wait for room of a stream in step alone"
        );
        let is_copy = self.common.role() == Role::Secondary && self.common.lifecycle.is_running();
        self.secondary.replica.views.check_invariants(is_copy && !self.common.has_failed());
        self.secondary.replica.journal().check_invariants(self.secondary.replica.progress().durable_on_disk());
    }
}

pub mod demotion;
pub mod equal;
pub mod forks;
pub mod handover;
pub mod lent;
pub mod marks;
pub mod meeting;
pub mod orders;
pub mod peer_window;
pub mod receiving;
pub mod records;
pub mod reset;
pub mod roles;
pub mod scheduling;
pub mod start;
pub mod status;
pub mod views;
pub mod wakes;
