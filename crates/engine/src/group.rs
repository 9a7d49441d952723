//! A group: volumes that share one write order, queue, mode and role. This file owns the outermost state and routes;
//! a write's life is in `primary/`, the receiving side in `secondary/`, regions in `peer/`, start in `group/start.rs`.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::{Confirmed, Identity, Role};
use crate::formats::wire::{FrameHeader, FrameKind, GroupHello};
use crate::ids::*;
use crate::primary::Primary;
use crate::secondary::Secondary;
use crate::shared::lifecycle::AfterRollback;
use crate::shared::link::LinkUse;
use crate::shared::memory::reserve;
use crate::shared::operation_slots::SlotOperation;
use crate::state::{Broken, State};
use crate::time::Now;
use crate::{GroupConfig, IoDone, IoError, SendPayload, limits};

pub(crate) struct Group {
    /// What both halves use.
    common: GroupCommon,
    primary: Primary,
    secondary: Secondary,
    /// Stop as soon as the change of role is done.
    stop_wanted: bool,
    /// Why it is not taken up in this run: [`crate::Node::refuse`].
    refused: Option<String>,
    /// What the node's pool knows last that this group holds.
    counted_bytes: u64,
    /// What the link counts of it.
    counted_use: LinkUse,
    /// What the pool lets it hold however short memory is.
    reserve_bytes: u64,
}

impl Group {
    pub fn new(node: NodeId, config: GroupConfig) -> Group {
        Group {
            primary: Primary::new(),
            secondary: Secondary::new(&config),
            stop_wanted: false,
            refused: None,
            counted_bytes: 0,
            counted_use: LinkUse::default(),
            reserve_bytes: reserve(config.window_bytes),
            common: GroupCommon::new(node, config),
        }
    }

    /// Memory this group holds or has promised to take: what counts against the node's pool (rule 22).
    pub fn held_bytes(&self) -> u64 {
        let lease = if self.common.role() == Role::Secondary { self.secondary.lease_bytes() } else { 0 };
        self.primary.peer.outbox.outgoing_bytes(&self.common) + lease
    }

    /// The next frame of what the peer asked for.
    pub fn answer_frame(&mut self, cx: &mut Cx) -> Option<(FrameHeader, SendPayload)> {
        let answers = self.common.role() == Role::Secondary && self.common.lifecycle.is_running();
        if !answers || self.common.has_failed() {
            self.common.answers.forget();
            return None;
        }
        let others_bytes = self.held_bytes() - self.common.answers.held_bytes();
        let GroupCommon { answers, slots, volumes, memory, .. } = &mut self.common;
        memory.note(answers.read_ahead(cx, slots, others_bytes));
        answers.next(cx, volumes)
    }

    /// A completed operation.
    pub fn io(&mut self, cx: &mut Cx, slot: u32, result: Result<IoDone, IoError>) {
        match self.common.slots.get(slot) {
            Some(SlotOperation::Write(_)) => {
                return self.primary.write_done(&mut self.common, cx, slot, result.map(|_| ()));
            }
            Some(SlotOperation::Resync(_)) => return self.primary.resync_read_done(&mut self.common, cx, slot, result),
            Some(SlotOperation::Snapshot(_)) => {
                return self.primary.snapshot_read_done(&mut self.common, cx, slot, result);
            }
            Some(&SlotOperation::SnapshotHole(question)) => {
                return self.primary.hole_found(&mut self.common, cx, slot, question, result);
            }
            Some(SlotOperation::SnapshotSpill(_)) => {
                return self.primary.spill_done(&mut self.common, cx, slot, result.map(|_| ()));
            }
            Some(_) => {}
            None => unreachable!("a completion for slot {slot}, which is free"),
        }
        let done = match self.common.slots.take(slot) {
            Some(SlotOperation::LocalFlush(volume)) => {
                self.primary.local_flush_done(&mut self.common, cx, volume, result.is_ok())
            }
            Some(SlotOperation::PullRead { range, session, question }) => {
                let answers = self.common.role() == Role::Secondary;
                self.common.answers.pull_read(cx, answers, range, (session, question), result)
            }
            Some(SlotOperation::PullWrite { bytes }) => {
                self.primary.peer.reconcile.pull_written(&mut self.common, cx, bytes, result.is_ok())
            }
            Some(SlotOperation::PullFlush) => {
                self.primary.peer.reconcile.pull_flushed(&mut self.common, cx, result.is_ok())
            }
            Some(SlotOperation::Apply { seq }) => self.secondary.apply_done(&mut self.common, cx, seq, result),
            Some(SlotOperation::ReplicaFlush) => {
                self.secondary.replica_flush_done(&mut self.common, cx, result.is_ok())
            }
            Some(SlotOperation::SaveRead { piece }) => {
                self.secondary.save_read_done(&mut self.common, cx, piece, result)
            }
            Some(SlotOperation::SaveBatch { last_piece }) => {
                self.secondary.save_batch_done(&mut self.common, cx, last_piece, result.map(|_| ()))
            }
            Some(SlotOperation::RestoreRead(saved)) => {
                self.secondary.restore_read_done(&mut self.common, cx, saved, result)
            }
            Some(SlotOperation::RestoreWrite(saved)) => {
                self.secondary.restore_write_done(&mut self.common, cx, saved, result.map(|_| ()))
            }
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
    fn io_done(&mut self, cx: &mut Cx, op: SlotOperation, result: Result<IoDone, IoError>) {
        match op {
            SlotOperation::Superblock => self.super_done(cx, result.is_ok()),
            SlotOperation::BitmapCell { index, words } => self.cell_written(cx, index, &words, result.is_ok()),
            SlotOperation::ActivityCell => self.activity_written(cx, result.is_ok()),
            SlotOperation::JournalBatch { ordinal } => {
                if result.is_err() {
                    self.fail(cx, Broken::Journal);
                }
                self.secondary.batch_done(&mut self.common, cx, ordinal);
            }
            SlotOperation::StartRead => match self.start_read_done(cx, result) {
                Ok(()) => self.bits_saved(cx),
                Err(cannot) => self.start_failed(cx, cannot),
            },
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

    /// A store broke: stop acknowledging, drop the stream, say so; only a restart helps (rule 12).
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
        if self.primary.peer.outbox.streams() {
            self.primary.end_stream(&mut self.common, cx, broken.words());
        }
        self.primary.drop_snapshot(&mut self.common, cx);
        self.primary.peer.transition(&mut self.common, cx, State::Failed(broken), broken.words());
        if self.common.role() == Role::Secondary {
            let slots = &self.common.slots;
            self.secondary.let_go(|seq| slots.applies(seq));
            self.common.set_timer(cx, GroupTimer::ApplyFlush, crate::limits::APPLY_FLUSH_AFTER);
        }
        self.primary.fail_waiting(&mut self.common, cx);
        if let Some(link) = cx.peer.link {
            let hello = self.make_hello();
            cx.send_control(link, FrameKind::GroupState, self.common.id(), hello.encode());
        }
    }

    // ---- the peer --------------------------------------------------------------------------------------------------

    pub fn identity(&self) -> Identity {
        match self.common.role() {
            Role::Primary => self.primary.peer.outbox.numbers.identity_sent(&self.common),
            Role::Secondary => Identity { position: self.secondary.position(), ..self.common.sb.identity },
        }
    }

    /// Who the peer may take this node for: it has the role that is on record, also while another one is being recorded, and
    /// when that failed.
    fn own_identity(&self) -> Identity {
        let durable = self.common.sb.durable();
        if durable.role == self.common.role() {
            return self.identity();
        }
        let position = match durable.role {
            Role::Primary => Position {
                generation: durable.generation,
                incarnation: durable.incarnation,
                seq: self.primary.peer.outbox.numbers.last(),
            },
            Role::Secondary => self.secondary.position(),
        };
        Identity { position, ..durable }
    }

    pub fn make_hello(&self) -> GroupHello {
        let identity = self.own_identity();
        GroupHello {
            identity,
            granted_bytes: self.secondary.granted_bytes(),
            dirty_bytes: self.common.volumes.dirty_bytes(),
            failed: self.common.has_failed(),
            features: 0,
            required: 0,
            settings: self.common.settings,
            volume_bytes: self.common.volumes.announced_sizes(identity.role),
        }
    }

    /// A session with the peer begins: say who we are.
    pub fn link_up(&mut self, cx: &mut Cx) {
        self.common.greeting.forget();
        self.secondary.report_is_past();
        self.common.answers.forget();
        self.primary.peer.session_begins(cx);
        if self.common.is_starting() || self.common.lifecycle.has_stopped() {
            return;
        }
        self.secondary.new_session();
        self.say_hello(cx, FrameKind::GroupHello);
        self.common.set_timer(cx, GroupTimer::Greeting, limits::GREETING_LATE_AFTER);
    }

    pub fn say_hello(&mut self, cx: &mut Cx, kind: FrameKind) {
        if let Some(link) = cx.peer.link {
            let hello = self.make_hello();
            cx.send_control(link, kind, self.common.id(), hello.encode());
        }
    }

    pub fn link_down(&mut self, cx: &mut Cx, why: &str) {
        self.common.greeting.forget();
        self.secondary.report_is_past();
        self.common.answers.forget();
        self.primary.peer.reconcile.session_ends();
        match self.common.role() {
            Role::Primary => self.primary.stream_lost(&mut self.common, cx, why),
            Role::Secondary => self.secondary.lost_session(),
        }
    }

    pub fn frame(&mut self, cx: &mut Cx, header: FrameHeader, payload: crate::FramePayload) {
        if self.common.greeting.unfit().is_some() && header.kind.sender().is_some() {
            // Of a peer that does not fit nothing is acted on; the other groups of the session go on.
            return;
        }
        if self.common.lifecycle.has_stopped() {
            // It may never have known who it is. Other groups of the node are still on their way.
            return;
        }
        if let Some(what) = self.contradiction(&header) {
            return self.common.protocol_error(cx, &what);
        }
        let control = match &payload {
            crate::FramePayload::Control(bytes) => bytes.as_slice(),
            _ => &[],
        };
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
                self.primary.peer.probe_result(&mut self.common, cx, &header);
                Some(())
            }
            FrameKind::SyncBegin => crate::formats::wire::SyncBegin::decode(control).map(|b| self.sync_begin(cx, b)),
            FrameKind::Tick => self.secondary.primary_tick(&mut self.common, cx, &header, control),
            FrameKind::Data | FrameKind::Zero | FrameKind::Void | FrameKind::Probe | FrameKind::SyncEnd => {
                self.secondary.receive(&mut self.common, cx, &header, payload);
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
        match timer {
            GroupTimer::Waits => self.primary.check_waits(&mut self.common, cx),
            GroupTimer::LocalFlush => self.primary.peer.outbox.numbers.flush_for_bits(&mut self.common, cx),
            GroupTimer::RecordAgain => self.record_again(cx),
            GroupTimer::Greeting => self.primary.peer.not_greeted(&mut self.common, cx),
            GroupTimer::Tick => self.primary.peer.send_tick(&mut self.common, cx),
            GroupTimer::HoldEnd => self.primary.hold_ended(&mut self.common, cx),
            GroupTimer::Autosync => {
                self.primary.try_autosync(&mut self.common, cx);
                self.bits_saved(cx);
            }
            GroupTimer::Snapshot => self.primary.peer.snapshot_due(&mut self.common, cx),
            GroupTimer::Stall => self.primary.check_stall(&mut self.common, cx),
            GroupTimer::CatchUp => self.primary.take_up_promise(&mut self.common, cx),
            GroupTimer::ApplyFlush => {
                self.secondary.flush_replica(&mut self.common, cx);
                self.secondary.count_batches(&mut self.common, cx);
            }
            GroupTimer::ApplyRetry => self.secondary.retry_apply(&mut self.common, cx),
            // `proceed` looks at the deadline.
            GroupTimer::Drain => {}
            GroupTimer::TidyBits => self.common.tidy_bits(cx),
            GroupTimer::StartAlone => self.primary.peer.reconcile.start_alone(&mut self.common, cx),
        }
    }

    // ---- invariants ------------------------------------------------------------------------------------------------

    /// What must hold after every input.
    pub fn check_invariants(&self) {
        if cfg!(feature = "injected-faults") {
            return;
        }
        self.primary.peer.check_invariants(&self.common);
        let reported = self.common.sb.confirmed != Confirmed::default();
        assert!(self.common.role() == Role::Primary || !reported, "nobody confirms anything to a secondary");
        assert!(!self.common.bitmap.is_overdue(), "what waits for bits that are stored goes on at once");
        self.secondary.check_invariants();
    }

    /// Writes are stamped by a clock that never goes back: how far this node's stands behind it, if that is worth a word.
    pub fn clock_behind(&self, now: Now) -> Option<Duration> {
        match self.common.role() {
            Role::Primary => self.primary.peer.outbox.numbers.clock_behind(now),
            Role::Secondary => self.secondary.primary_clock_ahead(),
        }
    }
}

pub mod contradiction;
pub mod meeting;
pub mod orders;
pub mod receiving;
pub mod records;
pub mod roles;
pub mod scheduling;
pub mod start;
pub mod status;
