//! The superblock's updates: one in flight at a time, and what goes on once one is durable.

mod superblock_changes;

pub(crate) use superblock_changes::{
    all_rejoin, gives_window, is_detached, is_unfilled, keep_over, overwrites_own, queue_is_logged, queue_is_redone,
    set_aside, set_aside_by_primary, without_devices,
};

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::context::Cx;
use crate::formats::cell::RELIED_ON_FROM;
use crate::formats::identity::{Identity, Role};
use crate::formats::superblock::Superblock;
use crate::formats::undo::UndoStore;
use crate::ids::*;
use crate::shared::flushes::FlushWaiter;
use crate::shared::operation_slots::{OperationSlots, SlotOperation};
use crate::shared::promotion::PromotionAnswer;
use crate::state::Broken;
use crate::time::Wall;
use crate::{CommandResult, RefusalCode, Store, WriteBytes};

/// What goes on once a superblock update is durable.
#[derive(Debug)]
pub(crate) enum AfterSuper {
    Ready,
    SyncReady {
        number: u64,
    },
    Applied {
        upto: Seq,
        wall: Wall,
    },
    Promoted {
        id: CommandId,
        answer: PromotionAnswer,
    },
    Demoted {
        id: CommandId,
        text: String,
        warn: bool,
    },
    Answer {
        id: CommandId,
        result: CommandResult,
    },
    /// Both slots say that the rollback point is gone; an operator who gave it up gets the answer.
    PointGone {
        answer: Option<(CommandId, String)>,
    },
    /// Both copies were declared equal; `is_first`: they were not before.
    AssumedEqual {
        id: CommandId,
        is_first: bool,
    },
    /// The rollback point was found damaged.
    PointDamaged,
    RollingBack,
    RollbackGivenUp,
    /// A promotion is not made after all: this node is the copy that it was, at the rollback point if it went back to that.
    StaysSecondary {
        id: CommandId,
        code: RefusalCode,
        why: &'static str,
    },
    FlushRecorded {
        volume: VolumeId,
        through: Seq,
        waiters: Vec<FlushWaiter>,
    },
    FlushFailed {
        waiters: Vec<FlushWaiter>,
    },
    NewGeneration,
    /// Both slots say that the log of the queue counts, or that it does not.
    QueueLogOpened,
    QueueLogClosed,
    /// Both slots say that what it holds is written once more.
    QueueRedo,
    /// A peer window may be given that is so long.
    WindowRecorded {
        window: Duration,
    },
    /// A fork is resolved: this node's content was chosen.
    ForkKept {
        id: CommandId,
        text: String,
    },
    ReplayCounted,
    Reconciled,
    ServedUnverified,
    /// The export waits for its operator, to whom it is `reported` why.
    StaysClosed {
        reported: Option<String>,
    },
    Stopped,
}

/// Superblock updates, one in flight at a time. What they say is changed in `said`; whoever changes it saves it.
#[derive(Debug, Default)]
pub(crate) struct SuperWriter {
    pub(super) current: Superblock,
    /// Who this node is on record. The peer is told of no role before.
    durable: Identity,
    writing: Identity,
    in_flight: bool,
    dirty: bool,
    /// That a flush failed is still to be recorded.
    lost_caches: bool,
    /// The same of the run before a reset: the start takes it for what it is.
    lost_before: bool,
    /// What follows, and from which update.
    after: Vec<(u64, AfterSuper)>,
    /// What the last update says of [`SuperWriter::durable_batches`].
    counted: (u64, u64),
}

impl SuperWriter {
    /// What stood on record when this run began.
    pub fn take_up(&mut self, current: Superblock, durable: Identity) {
        (self.current, self.durable) = (current, durable);
    }

    pub fn durable(&self) -> Identity {
        self.durable
    }

    pub fn is_writing(&self) -> bool {
        self.in_flight
    }

    /// That a flush failed is not on record yet.
    pub fn has_lost_caches(&self) -> bool {
        self.lost_caches
    }

    /// What the next start of this process has to know and no record may tell: caches of the run before lost something.
    pub fn lost_unrecorded(&self) -> bool {
        self.lost_caches || self.lost_before
    }

    /// The run before this one was reset, and this is what it could not record.
    pub fn follows_loss(&mut self, lost: bool) {
        self.lost_before = lost;
    }

    /// Something of this kind follows from an update that is not durable yet.
    pub fn awaits(&self, kind: impl Fn(&AfterSuper) -> bool) -> bool {
        self.after.iter().any(|(_, then)| kind(then))
    }

    /// A rollback point is gone, and not yet in both slots.
    pub fn drops_point(&self) -> bool {
        self.awaits(|then| matches!(then, AfterSuper::PointGone { .. }))
    }

    pub fn forget(&mut self, kind: impl Fn(&AfterSuper) -> bool) {
        self.after.retain(|(_, then)| !kind(then));
    }

    /// The next update that anything may follow from.
    fn next_relied_on(&self) -> u64 {
        (self.current.update + 1).max(RELIED_ON_FROM)
    }

    /// Writes the superblock as it is now; `then` follows once it is durable.
    pub fn save(&mut self, undo: &UndoStore, slots: &mut OperationSlots, cx: &mut Cx, then: Option<AfterSuper>) {
        // An update in flight carries the older content: this one lands with the next.
        let next = self.next_relied_on();
        self.after.extend(then.map(|then| (next, then)));
        if self.in_flight {
            self.dirty = true;
        } else {
            self.write(undo, slots, cx);
        }
    }

    /// As [`SuperWriter::save`], for what nothing else on the disk would tell: `then` follows once both slots say it, so that an
    /// update which the device confirmed and never wrote takes nothing back (P9).
    pub fn save_in_both_slots(&mut self, undo: &UndoStore, slots: &mut OperationSlots, cx: &mut Cx, then: AfterSuper) {
        self.after_both_slots(then);
        self.save(undo, slots, cx, None);
    }

    /// `then` follows once both slots say it; the caller saves.
    pub fn after_both_slots(&mut self, then: AfterSuper) {
        self.after.push((self.next_relied_on() + 1, then));
    }

    fn write(&mut self, undo: &UndoStore, slots: &mut OperationSlots, cx: &mut Cx) {
        let point = &mut self.current.rollback_point;
        if point.id != 0 && undo.mark() == Some(point.id) {
            point.batches = undo.durable_batches();
            point.reserved_bytes = undo.reserved_bytes();
        }
        self.counted = self.durable_batches(undo);
        self.writing = self.current.identity;
        self.current.update += 1;
        (self.in_flight, self.dirty) = (true, false);
        let token = slots.start(SlotOperation::Superblock);
        let parts = alloc::vec![WriteBytes::Meta(self.current.encode())];
        cx.write(token, Store::Superblock(slots.group()), self.current.slot_offset(), parts, true);
    }

    /// An update's write has ended; true if it takes back what was reported to the peer of this node's role.
    pub fn written(&mut self, ok: bool) -> Result<bool, Broken> {
        self.in_flight = false;
        if !ok {
            // Its slot may be torn: should anything be written after it, then there again, and not over what is whole.
            self.current.update += 1;
            return Err(Broken::Superblock);
        }
        self.lost_caches &= self.dirty;
        // Of a start nothing is written before what it makes of that is said.
        self.lost_before = false;
        let recorded = self.durable;
        if !self.waits_for_the_other_slot() {
            self.durable = self.writing;
        }
        Ok(recorded.role != self.durable.role)
    }

    /// What follows from the update that is durable now; the next one is written if anything waits for it.
    pub fn followers(&mut self, undo: &UndoStore, slots: &mut OperationSlots, cx: &mut Cx) -> Vec<AfterSuper> {
        let durable = self.current.update;
        let (now, later): (Vec<_>, Vec<_>) =
            core::mem::take(&mut self.after).into_iter().partition(|(at, _)| *at <= durable);
        self.after = later;
        if self.dirty || durable < RELIED_ON_FROM || !self.after.is_empty() {
            self.write(undo, slots, cx);
        }
        now.into_iter().map(|(_, then)| then).collect()
    }

    /// All that waits for an update, whether that will ever be durable or not.
    pub fn take_followers(&mut self) -> Vec<AfterSuper> {
        core::mem::take(&mut self.after).into_iter().map(|(_, then)| then).collect()
    }

    /// Of the journal and of the undo store, as the next update will count them.
    fn durable_batches(&self, undo: &UndoStore) -> (u64, u64) {
        let point = self.current.rollback_point.id;
        let saves = point != 0 && undo.mark() == Some(point);
        (self.current.confirmed_ordinal, if saves { undo.durable_batches() } else { 0 })
    }

    pub fn counts_too_few(&self, undo: &UndoStore) -> bool {
        self.counted != self.durable_batches(undo)
    }

    /// A role that stands in one slot may still be taken back.
    fn waits_for_the_other_slot(&self) -> bool {
        let durable = self.current.update;
        let takes_role = |then: &AfterSuper| matches!(then, AfterSuper::Demoted { .. } | AfterSuper::Promoted { .. });
        self.after.iter().any(|(at, then)| *at > durable && takes_role(then))
    }

    /// What the caches held may be lost, as after a power loss: the next start treats it so.
    pub fn caches_lost(&mut self) {
        if self.current.identity.role == Role::Primary && self.current.boot != 0 {
            self.current.boot = 0;
            self.lost_caches = true;
        }
    }
}
