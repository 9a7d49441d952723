//! The flushes of one volume of a primary: how far it is flushed, one flush at a time, and who waits for which.

use alloc::vec::Vec;

use crate::ids::{RequestId, Seq};
use crate::injected_fault::{Fault, injected};

/// Someone waits for a flush.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushWaiter {
    pub who: FlushRequester,
    /// A flush through here must be on record before the answer.
    pub record: Seq,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum FlushRequester {
    Request(RequestId),
    /// A write with FUA, by its slot.
    Write(u32),
    /// The engine's own: so that bits can clear, or a stop can finish.
    Engine,
}

#[derive(Debug, Default)]
pub(crate) struct Flushes {
    /// Flush point on record.
    recorded: Seq,
    /// Every write of this volume up to here is flushed.
    through: Seq,
    /// A flush is under way; on success `through` rises to this.
    under_way: Option<Seq>,
    /// Served by the flush under way, and by the one after it.
    now: Vec<FlushWaiter>,
    next: Vec<FlushWaiter>,
    /// Wait for a flush that covers more than is complete: it begins when that is.
    later: Vec<FlushWaiter>,
    /// Bytes written and not covered by a flush yet.
    unflushed_bytes: u64,
    /// A flush failed: nothing is acknowledged any more (rule 12).
    latched: bool,
}

impl Flushes {
    /// In a run that begins. A flush that is under way covers nothing of it.
    pub fn of_new_run(&self) -> Flushes {
        Flushes { under_way: self.under_way.map(|_| Seq::NONE), ..Flushes::default() }
    }

    /// A start goes on from a log, and has flushed what that holds.
    pub fn go_on_from(&mut self, through: Seq) {
        self.through = through;
    }

    pub fn through(&self) -> Seq {
        self.through
    }

    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    pub fn has_failed(&self) -> bool {
        self.latched
    }

    /// One may begin.
    pub fn may_begin(&self) -> bool {
        self.under_way.is_none() && !self.latched
    }

    pub fn unflushed_bytes(&self) -> u64 {
        self.unflushed_bytes
    }

    /// Nothing that was written may be lost with the caches.
    pub fn are_drained(&self) -> bool {
        self.unflushed_bytes == 0 && self.may_begin()
    }

    pub fn wrote(&mut self, bytes: u64) {
        self.unflushed_bytes += bytes;
    }

    /// Waits for a flush of what is complete now; true: it is to begin.
    #[must_use]
    pub fn wait(&mut self, waiter: FlushWaiter) -> bool {
        if self.under_way.is_none() {
            self.now.push(waiter);
            return true;
        }
        // The one under way may have begun before the waiter's writes were complete.
        let line = if injected(Fault::FlushJoined) { &mut self.now } else { &mut self.next };
        line.push(waiter);
        false
    }

    pub fn begin(&mut self, through: Seq) {
        self.under_way = Some(through);
        self.unflushed_bytes = 0;
    }

    /// Somebody waits for the flush that begins next.
    pub fn has_next(&self) -> bool {
        !self.now.is_empty()
    }

    /// Those who wait for more than was complete get it when that is, up to here; true: a flush for them is to begin.
    #[must_use]
    pub fn serve_late(&mut self, complete: Seq) -> bool {
        if self.under_way.is_some() || self.later.is_empty() {
            return false;
        }
        self.now.extend(self.later.extract_if(.., |waiter| waiter.record <= complete));
        !self.now.is_empty()
    }

    /// Whoever waits, also for a flush that will never begin.
    pub fn take_waiters(&mut self) -> Vec<FlushWaiter> {
        let mut waiters = core::mem::take(&mut self.now);
        waiters.append(&mut self.next);
        waiters.append(&mut self.later);
        waiters
    }

    /// The flush under way has ended: through where, and for whom. If it failed, for all.
    pub fn ended(&mut self, ok: bool) -> (Seq, Vec<FlushWaiter>) {
        let through = self.under_way.take().expect("one flush at a time");
        let mut waiters = core::mem::take(&mut self.now);
        self.now = core::mem::take(&mut self.next);
        if ok {
            self.through = self.through.max(through);
            // An older write was still in flight: the flush point is not past the overwrite yet. To flush again before that write
            // is done would bring it no further.
            self.later.extend(waiters.extract_if(.., |waiter| waiter.record > through));
        } else {
            self.latched = true;
            waiters.append(&mut self.now);
            waiters.append(&mut self.later);
        }
        (through, waiters)
    }

    // ---- on record ---------------------------------------------------------------------------------------------------

    /// What must be on record before a flush that covers `overwrote` is acknowledged, if it is not.
    pub fn record_due(&self, overwrote: Seq) -> Seq {
        if overwrote > self.recorded { overwrote } else { Seq::NONE }
    }

    pub fn needs_record(&self, waiter: &FlushWaiter) -> bool {
        waiter.record > self.recorded
    }

    pub fn recorded(&mut self, through: Seq) {
        self.recorded = self.recorded.max(through);
    }

    /// The write in this slot waits for a flush: one through here must be on record before its answer.
    pub fn record_for(&mut self, slot: u32, record: Seq) {
        let mut waiters = self.now.iter_mut().chain(&mut self.next).chain(&mut self.later);
        if let Some(waiter) = waiters.find(|waiter| matches!(waiter.who, FlushRequester::Write(of) if of == slot)) {
            waiter.record = record;
        }
    }
}
