//! The superblock's updates: one in flight at a time, and what goes on once one is durable.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::common::{Common, Phase};
use crate::context::{Cx, GroupTimer};
use crate::formats::cell::RELIED_ON_FROM;
use crate::formats::identity::{Identity, Role};
use crate::formats::superblock::Superblock;
use crate::group::roles::PromotionAnswer;
use crate::ids::*;
use crate::planted::{Fault, planted};
use crate::shared::slots::Op;
use crate::shared::time::Wall;
use crate::shared::volume::FlushWaiter;
use crate::state::Broken;
use crate::{Bytes, CommandResult, Output, Store, limits};

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
    /// The rollback point is given up.
    PointGone {
        answer: Option<(CommandId, String)>,
    },
    /// The rollback point was found damaged.
    PointDamaged,
    RollingBack,
    RollbackGivenUp,
    FlushRecorded {
        volume: VolumeId,
        through: Seq,
        waiters: Vec<FlushWaiter>,
    },
    FlushFailed {
        waiters: Vec<FlushWaiter>,
    },
    NewGeneration,
    ReplayCounted,
    Settled,
    ServedInDoubt,
    /// The export waits for its operator, who is `told` why.
    StaysClosed {
        told: Option<String>,
    },
    Stopped,
}

/// Superblock updates, one in flight at a time.
#[derive(Debug, Default)]
pub(crate) struct SuperWriter {
    pub current: Superblock,
    /// Who this node is on record. The peer is told of no role before.
    pub durable: Identity,
    writing: Identity,
    pub in_flight: bool,
    dirty: bool,
    /// That a flush failed is still to be recorded.
    pub lost_caches: bool,
    pub after: Vec<(u64, AfterSuper)>,
    /// What the last update says of [`Group::durable_batches`].
    counted: (u64, u64),
}

impl SuperWriter {
    /// The next update that anything may follow from.
    fn next_relied_on(&self) -> u64 {
        (self.current.update + 1).max(RELIED_ON_FROM)
    }
}

impl Common {
    /// Writes the superblock as it is now; `then` follows once it is durable.
    pub fn save(&mut self, cx: &mut Cx, then: Option<AfterSuper>) {
        if let Some(then) = then {
            // An update in flight carries the older content: this one lands with the next.
            self.sb.after.push((self.sb.next_relied_on(), then));
        }
        if self.sb.in_flight {
            self.sb.dirty = true;
        } else {
            self.write_superblock(cx);
        }
    }

    /// As [`Group::save`], for what nothing else on the disk would tell: `then` follows once both slots say it, so that an
    /// update which the device confirmed and never wrote takes nothing back (P9).
    pub fn save_in_both_slots(&mut self, cx: &mut Cx, then: AfterSuper) {
        self.sb.after.push((self.sb.next_relied_on() + 1, then));
        self.save(cx, None);
    }

    /// `then` follows once the next update is durable; the caller saves.
    pub fn after_next_save(&mut self, then: AfterSuper) {
        self.sb.after.push((self.sb.next_relied_on(), then));
    }

    /// An update's write has ended; true if it takes back what the peer was told of this node's role.
    pub fn superblock_written(&mut self, ok: bool) -> Result<bool, Broken> {
        self.sb.in_flight = false;
        if !ok {
            // Its slot may be torn: should anything be written after it, then there again, and not over what is whole.
            self.sb.current.update += 1;
            return Err(Broken::Superblock);
        }
        self.sb.lost_caches &= self.sb.dirty;
        let told = self.sb.durable;
        if !self.waits_for_the_other_slot() {
            self.sb.durable = self.sb.writing;
        }
        Ok(told.role != self.sb.durable.role)
    }

    /// What follows from the update that is durable now; the next one is written if anything waits for it.
    pub fn followers_of_update(&mut self, cx: &mut Cx) -> Vec<AfterSuper> {
        let durable = self.sb.current.update;
        let (now, later): (Vec<_>, Vec<_>) =
            core::mem::take(&mut self.sb.after).into_iter().partition(|(at, _)| *at <= durable);
        self.sb.after = later;
        if self.sb.dirty || durable < RELIED_ON_FROM || !self.sb.after.is_empty() {
            self.write_superblock(cx);
        }
        now.into_iter().map(|(_, then)| then).collect()
    }

    /// A fault on purpose: what follows goes on before its update is durable.
    pub fn followers_of_nothing(&mut self) -> Vec<AfterSuper> {
        if !planted(Fault::RecordNotAwaited) {
            return Vec::new();
        }
        core::mem::take(&mut self.sb.after).into_iter().map(|(_, then)| then).collect()
    }

    pub fn write_superblock(&mut self, cx: &mut Cx) {
        self.note_rollback_point();
        self.sb.counted = self.durable_batches();
        self.sb.writing = self.sb.current.identity;
        self.sb.current.update += 1;
        self.sb.in_flight = true;
        self.sb.dirty = false;
        let token = self.slots.start(Op::Superblock);
        cx.out.push_back(Output::Write {
            token,
            store: Store::Superblock(self.id()),
            offset: self.sb.current.slot_offset(),
            parts: alloc::vec![Bytes::Meta(self.sb.current.encode())],
            durable: true,
            waits_for_peer: false,
        });
    }

    /// Of the journal and of the undo store, as the next update will count them.
    fn durable_batches(&self) -> (u64, u64) {
        let point = self.sb.current.rollback_point.id;
        let saves = point != 0 && self.saver.store.mark() == Some(point);
        (self.sb.current.confirmed_ordinal, if saves { self.saver.store.durable_batches() } else { 0 })
    }

    pub fn counts_too_few(&self) -> bool {
        self.sb.counted != self.durable_batches()
    }

    /// A role that stands in one slot may still be taken back.
    fn waits_for_the_other_slot(&self) -> bool {
        let durable = self.sb.current.update;
        let takes_role = |then: &AfterSuper| matches!(then, AfterSuper::Demoted { .. } | AfterSuper::Promoted { .. });
        self.sb.after.iter().any(|(at, then)| *at > durable && takes_role(then))
    }

    /// What the caches held may be lost, as after a power loss: the next start treats it so.
    pub fn caches_lost(&mut self) {
        if self.role() == Role::Primary && self.sb.current.boot != 0 {
            self.sb.current.boot = 0;
            self.sb.lost_caches = true;
        }
    }

    /// The group has failed, but what its caches lost is the one thing that the next start has to know.
    pub fn record_again(&mut self, cx: &mut Cx) {
        if self.sb.lost_caches && !self.sb.in_flight && !matches!(self.phase, Phase::Stopped) {
            self.save(cx, None);
        }
    }

    /// The superblock could not be written: whoever waits for it is told, and what caches lost is tried again.
    pub fn update_failed(&mut self, cx: &mut Cx) {
        for (_, then) in core::mem::take(&mut self.sb.after) {
            match then {
                AfterSuper::FlushRecorded { waiters, .. } | AfterSuper::FlushFailed { waiters } => {
                    self.flush_failed(cx, waiters);
                }
                AfterSuper::Answer { id, .. } | AfterSuper::PointGone { answer: Some((id, _)) } => {
                    cx.refuse(id, Broken::Superblock.words());
                }
                AfterSuper::Promoted { id, .. } | AfterSuper::Demoted { id, .. } => {
                    self.phase = Phase::Running;
                    // One of its slots may say it.
                    let why = format!(
                        "{}; it is not known whether the new role is on record: put that right and restart farshore here, and see \
                         'farshore status' before another node gets a role",
                        Broken::Superblock.words()
                    );
                    cx.refuse(id, &why);
                }
                _ => {}
            }
        }
        if self.sb.lost_caches {
            self.set_timer(cx, GroupTimer::RecordAgain, limits::RECORD_AGAIN_AFTER);
        }
    }
}
