//! What both halves of a group use: what it is set to, its state, its volumes, its records.

pub mod acting;
pub mod export;
pub mod given_window;
pub mod numbers;
pub mod writers;

use alloc::format;
use core::time::Duration;

use crate::common::acting::ActingSettings;
use crate::common::given_window::GivenWindow;
use crate::common::numbers::WriteNumbers;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::cell::CellHead;
use crate::formats::identity::Role;
use crate::formats::undo::UndoStore;
use crate::ids::*;
use crate::records::activity::ActivityLog;
use crate::records::bits::{BitmapWriter, StoredBits};
use crate::records::marks::MarkTable;
use crate::records::record::{AfterSuper, SuperWriter, all_rejoin};
use crate::records::start::GroupStart;
use crate::shared::clock::ClockNews;
use crate::shared::lifecycle::{AfterRollback, Lifecycle, Phase};
use crate::shared::memory::MemoryWish;
use crate::shared::operation_slots::OperationSlots;
use crate::shared::peer_copy::PeerCopy;
use crate::shared::room_waits::RoomWaits;
use crate::shared::standing::Standing;
use crate::shared::volumes::Volumes;
use crate::shared::wakes::{Wake, Wakes};
use crate::status::StepSpan;
use crate::time::{Mono, Wall};
use crate::{Event, GroupConfig, Output, limits};

/// Counters for people.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupCounters {
    pub room_waits: RoomWaits,
    pub writes: u64,
    pub written_bytes: u64,
    /// Of that, what is not of a volume set aside: what a stream has to carry.
    pub ordered_bytes: u64,
    pub streamed_bytes: u64,
    pub joined_writes: u64,
    pub joined_frames: u64,
    pub folded_writes: u64,
    pub folded_bytes: u64,
    /// What the peer takes at once: the newest, and when it was sent; the largest.
    pub step: Option<(Mono, StepSpan)>,
    pub step_hwm: StepSpan,
    pub resynced_bytes: u64,
    pub compared_bytes: u64,
    pub shipped_bytes: u64,
    pub pulled_bytes: u64,
    pub syncs: u64,
}

impl GroupCounters {
    /// What was left out, in writes and bytes, and what the peer takes at once.
    pub fn note_sent(&mut self, (writes, bytes): (u64, u64), step: Option<StepSpan>, now: Mono) {
        self.folded_writes += writes;
        self.folded_bytes += bytes;
        if let Some(step) = step {
            (self.step, self.step_hwm) = (Some((now, step)), self.step_hwm.max(step));
        }
    }

    /// Of the last minute.
    pub fn step_of_late(&self, now: Mono) -> Option<StepSpan> {
        self.step.filter(|(at, _)| now.since(*at) <= Duration::from_secs(60)).map(|(_, step)| step)
    }
}

pub(crate) struct GroupCommon {
    pub config: GroupConfig,
    pub node: NodeId,
    pub settings: ActingSettings,
    pub lifecycle: Lifecycle,
    pub standing: Standing,
    pub sb: SuperWriter,
    pub volumes: Volumes,
    pub numbers: WriteNumbers,
    pub bitmap: BitmapWriter,
    pub activity: ActivityLog,
    pub marks: MarkTable,
    pub slots: OperationSlots,
    /// Either half's: what is overwritten since the newest mark.
    pub undo: UndoStore,
    clock: ClockNews,
    /// Not served yet, since then: what the peer confirmed of the run before may be missing here.
    fenced: Option<Mono>,
    /// Not opened, whatever else is known: the peer, which is connected, has not said who it is since a reset.
    awaits_peer: bool,
    pub window: GivenWindow,
    pub counters: GroupCounters,
    pub memory: MemoryWish,
    wakes: Wakes,
}

impl GroupCommon {
    pub fn new(node: NodeId, config: GroupConfig) -> GroupCommon {
        GroupCommon {
            node,
            settings: ActingSettings::new(config.settings),
            lifecycle: Lifecycle::new(),
            standing: Standing::new(),
            sb: SuperWriter::default(),
            volumes: Volumes::new(&config.volumes),
            numbers: WriteNumbers::default(),
            bitmap: BitmapWriter::new(config.volumes.iter().map(|v| v.size_bytes)),
            activity: ActivityLog::new(config.activity),
            marks: MarkTable::default(),
            slots: OperationSlots::new(config.id),
            undo: UndoStore::new(config.history_bytes),
            clock: ClockNews::default(),
            fenced: None,
            awaits_peer: false,
            window: GivenWindow::default(),
            counters: GroupCounters::default(),
            memory: MemoryWish::default(),
            wakes: Wakes::default(),
            config,
        }
    }
}

impl GroupCommon {
    pub fn id(&self) -> GroupId {
        self.config.id
    }

    /// What may have come true by what this input changed.
    pub fn wake(&mut self, wake: Wake) {
        self.wakes.push(wake);
    }

    pub fn next_wake(&mut self) -> Option<Wake> {
        self.wakes.next()
    }

    /// Somebody may go on, and was not looked at yet.
    pub fn has_wakes(&self) -> bool {
        !self.wakes.is_empty() || self.bitmap.is_overdue()
    }

    /// Writes the superblock as it is now; `then` follows once it is durable.
    pub fn save(&mut self, cx: &mut Cx, then: Option<AfterSuper>) {
        self.sb.save(&self.undo, &mut self.slots, cx, then);
    }

    /// A sync has ended. What it left out may still have to be compared.
    pub fn compared(&mut self, cx: &mut Cx) {
        if !self.volumes.copies().any(PeerCopy::has_unverified) && self.sb.compares(false) {
            self.save(cx, None);
        }
    }

    /// Volumes that are set aside are part of the order again: of a sync that begins.
    pub fn all_rejoin(&mut self, cx: &mut Cx) {
        let aside = self.sb.aside.without(&self.sb.detached);
        if !aside.is_empty() {
            aside.iter().for_each(|volume| cx.event(self.id(), Event::Rejoins { volume }));
            all_rejoin(&mut self.sb);
            self.volumes.set_aside(&self.sb.aside);
            self.save(cx, None);
        }
    }

    /// As [`GroupCommon::save`]; `then` follows once both slots say it.
    pub fn save_in_both_slots(&mut self, cx: &mut Cx, then: AfterSuper) {
        self.sb.save_in_both_slots(&self.undo, &mut self.slots, cx, then);
    }

    /// The group has failed, but what its caches lost is the one thing that the next start has to know.
    pub fn record_again(&mut self, cx: &mut Cx) {
        if self.sb.has_lost_caches() && !self.sb.is_writing() && !self.lifecycle.has_stopped() {
            self.save(cx, None);
        }
    }

    pub fn cell_head(&self) -> CellHead {
        CellHead { node: self.node, peer: self.config.peer, tag: self.config.tag, ..CellHead::default() }
    }

    pub fn bits(&mut self) -> StoredBits<'_> {
        StoredBits {
            head: self.cell_head(),
            writer: &mut self.bitmap,
            activity: &mut self.activity,
            volumes: &mut self.volumes,
            slots: &mut self.slots,
            config: self.config.activity,
            confirmed: self.sb.confirmed,
        }
    }

    /// The records, for a start.
    pub fn start(&mut self) -> GroupStart<'_> {
        GroupStart {
            node: self.node,
            config: &self.config,
            lifecycle: &mut self.lifecycle,
            sb: &mut self.sb,
            bitmap: &mut self.bitmap,
            activity: &mut self.activity,
            volumes: &mut self.volumes,
            slots: &mut self.slots,
            undo: &self.undo,
            marks: &mut self.marks,
        }
    }

    /// Clears on disk what is clear in memory: on a primary, which clears bits all the time, a few cells at a time.
    pub fn tidy_bits(&mut self, cx: &mut Cx) {
        let most = if self.role() == Role::Primary { limits::TIDY_CELLS } else { usize::MAX };
        if self.bits().tidy(cx, most) {
            self.set_timer(cx, GroupTimer::TidyBits, limits::TIDY_BITS_AFTER);
        }
    }

    pub fn has_failed(&self) -> bool {
        self.lifecycle.broken().is_some()
    }

    pub fn role(&self) -> Role {
        self.sb.identity.role
    }

    /// The wall clock that stamps writes was looked at: whether it stands `behind` their stamps.
    pub fn say_of_clock(&mut self, cx: &mut Cx, behind: Option<Duration>, stamp: Wall, whose: &str) {
        if let Some(note) = self.clock.news(cx.now.mono, behind, stamp, whose) {
            cx.event(self.id(), Event::Note(note));
        }
    }

    // ---- tokens and operations -------------------------------------------------------------------------------------

    /// A number of this primary's present run.
    pub fn position(&self, seq: Seq) -> Position {
        let identity = &self.sb.identity;
        Position { generation: identity.generation, incarnation: identity.incarnation, seq }
    }

    /// It is not known yet who this node is. A rollback that was cut short is finished first.
    pub fn is_starting(&self) -> bool {
        match self.lifecycle.phase() {
            // One that failed on the way says so, to operators and to its peer.
            _ if self.has_failed() => false,
            Phase::Starting(_) => true,
            Phase::RollingBack(then) => then == AfterRollback::Start,
            _ => false,
        }
    }

    /// The peer broke the protocol: this session ends.
    pub fn protocol_error(&self, cx: &mut Cx, what: &str) {
        self.end_session(cx, &format!("the peer sent {what}"));
    }

    /// This node ends the session: what is still under way in it is not listened to.
    pub fn end_session(&self, cx: &mut Cx, why: &str) {
        if let Some(link) = cx.peer.link {
            cx.refused = true;
            let reason = format!("group {}: {why}", self.id().0);
            cx.out.push_back(Output::CloseLink { link, reason });
        }
    }

    pub fn set_timer(&self, cx: &mut Cx, timer: GroupTimer, after: Duration) {
        let (key, at) = (TimerKey::Group(self.id(), timer), cx.now.mono.plus(after));
        if timer == GroupTimer::Autosync {
            // It may stand as far ahead as a peer is left alone: a repair, or that peer's answer, does not wait for that.
            cx.timers.set_sooner(key, at);
        } else {
            cx.timers.set_if_idle(key, at);
        }
    }
}
