//! Writers who wait, in their lines: for room in the queue, or for the peer.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::ids::Seq;
use crate::injected_fault::{Fault, injected};
use crate::primary::held_up::HeldUp;
use crate::shared::operation_slots::OperationSlots;
use crate::time::Mono;

#[derive(Debug, Default)]
pub(crate) struct WaitingWriters {
    /// In write order.
    for_peer: VecDeque<(Seq, u32)>,
    /// In order of arrival.
    for_room: VecDeque<u32>,
    /// Writes that were asked for in this run.
    came: u64,
    held_up: HeldUp,
    paced: PacedTime,
}

/// For how long the first in line had room, and was slowed down on purpose.
#[derive(Debug, Default)]
struct PacedTime {
    all: Duration,
    /// It goes on, as of then.
    as_of: Option<Mono>,
}

impl PacedTime {
    fn goes_on(&mut self, now: Mono) {
        self.all += self.as_of.map_or(Duration::ZERO, |as_of| now.since(as_of));
        self.as_of = Some(now);
    }
}

impl WaitingWriters {
    /// A write is asked for: its position in the order of arrival.
    pub fn arrive(&mut self) -> u64 {
        self.came += 1;
        self.came
    }

    /// Nobody waits, and nobody is to be told that it is over.
    pub fn is_quiet(&self) -> bool {
        self.for_room.is_empty() && self.for_peer.is_empty() && !self.held_up.is_reported()
    }

    // ---- for room --------------------------------------------------------------------------------------------------

    pub fn nobody_waits_for_room(&self) -> bool {
        self.for_room.is_empty()
    }

    pub fn count_for_room(&self) -> u64 {
        self.for_room.len() as u64
    }

    pub fn first_for_room(&self) -> Option<u32> {
        self.for_room.front().copied()
    }

    pub fn wait_for_room(&mut self, slots: &mut OperationSlots, slot: u32) {
        slots.write(slot).paced_before = self.paced.all;
        let came = slots.write_ref(slot).came();
        let at = self.for_room.partition_point(|&other| slots.write_ref(other).came() < came);
        self.for_room.insert(at, slot);
    }

    /// The first in line has room, or will have none.
    pub fn leave_room(&mut self) -> Option<u32> {
        self.for_room.pop_front()
    }

    /// A writer has waited for room, and need not any more, or failed. Since when nobody wanted that.
    pub fn was_blocked(&mut self, common: &mut GroupCommon, cx: &Cx, slot: u32) -> Mono {
        common.counters.room_waits.note(cx.now.mono.since(common.slots.write(slot).since));
        let since = self.waited_since(common, slot);
        self.held_up.note(cx.now.mono, Some(since), &common.settings);
        common.slots.write(slot).since = since;
        since
    }

    /// The first in line has room, and is slowed down on purpose.
    pub fn is_paced(&mut self, now: Mono) {
        self.paced.goes_on(now);
    }

    /// It has none, or nobody is slowed down.
    pub fn is_not_paced(&mut self) {
        self.paced.as_of = None;
    }

    /// Since when the first writer in line waits for room, and not because it is slowed down.
    pub fn waits_since(&self, common: &GroupCommon) -> Option<Mono> {
        self.for_room.front().map(|&slot| self.waited_since(common, slot))
    }

    /// Since when this writer in line waits for room, and not because it is slowed down.
    pub fn waited_since(&self, common: &GroupCommon, slot: u32) -> Mono {
        let op = common.slots.write_ref(slot);
        let paced = if injected(Fault::PacedTimeCounted) { Duration::ZERO } else { self.paced.all };
        op.since.plus(paced.saturating_sub(op.paced_before))
    }

    // ---- for the peer ----------------------------------------------------------------------------------------------

    pub fn nobody_waits_for_peer(&self) -> bool {
        self.for_peer.is_empty()
    }

    pub fn wait_for_peer(&mut self, last: Seq, slot: u32) {
        self.for_peer.push_back((last, slot));
    }

    /// The first in line, with its last number.
    pub fn first_for_peer(&self) -> Option<(Seq, u32)> {
        self.for_peer.front().copied()
    }

    /// The first in line has what it waits for, or waits no longer.
    pub fn leave_peer(&mut self) -> Option<u32> {
        self.for_peer.pop_front().map(|(_, slot)| slot)
    }

    /// Who stands there in the line.
    pub fn for_peer_at(&self, at: usize) -> Option<u32> {
        self.for_peer.get(at).map(|&(_, slot)| slot)
    }

    // ---- held up ---------------------------------------------------------------------------------------------------

    /// The clock of those who are held up, and what it may show before the policy acts: for status.
    pub fn held_up(&self, common: &GroupCommon, now: Mono) -> (Duration, Option<Duration>) {
        self.held_up.shown(now, self.waits_since(common), &common.settings)
    }

    /// What the peer confirms at once makes room at once, and takes the link so long.
    pub fn step_takes(&mut self, step: Duration) {
        self.held_up.step_takes(step);
    }

    pub fn step(&self) -> Duration {
        self.held_up.step()
    }

    /// Says what that clock shows. True: they were held up for too long.
    pub fn look_at_held_up(&mut self, common: &GroupCommon, cx: &mut Cx, window_open: bool) -> bool {
        self.held_up.look(common, cx, self.waits_since(common), window_open)
    }

    /// People were told that writers are held up, and not yet that it is over.
    pub fn was_held_up(&self) -> bool {
        self.held_up.is_reported()
    }
}

/// The peer window: for how long writers are held whose peer is away.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerWindow {
    until: Option<Mono>,
}

impl PeerWindow {
    /// The next loss of the link opens one of its own.
    pub fn forget(&mut self) {
        self.until = None;
    }

    /// However often the link is lost until the group is in step again, it is one window. Its end.
    pub fn open(&mut self, now: Mono, window: Duration) -> Mono {
        *self.until.get_or_insert(now.plus(window))
    }

    pub fn is_over(&self, now: Mono) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Until when a writer who came at `since` waits.
    pub fn end_for(&self, since: Mono, window: Duration) -> Mono {
        self.until.unwrap_or(since.plus(window))
    }
}
