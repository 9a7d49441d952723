//! The queue between memory and disk: what goes to the disk queue, and what comes back.
//!
//! Writes go to disk once memory is half full, and behind others that do. While the disk queue is in use a quarter of memory is for what
//! comes back from it: so a ring that is full drains at the link's rate too.

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::ids::Seq;
use crate::limits::{DISK_QUEUE_BATCH_BYTES, META_BLOCK_BYTES, QUEUE_CELL_AFTER};
use crate::peer::disk_queue::{DiskQueue, FetchFailed};
use crate::peer::outbox::Outbox;
use crate::peer::queue_log::QueueLog;
use crate::peer::stream::{PeerStream, queue_of};
use crate::shared::coverage::CoveragePoint;
use crate::shared::operation_slots::SlotOperation;
use crate::{IoError, IoResult, Output, Store};
use alloc::vec;
use core::time::Duration;

/// Of this limit, the oldest stays in memory where the disk queue begins. All behind it goes to disk, also what was queued before, and what was sent
/// on a link that may be dead: else it would hold half of memory until the link is back, and leave little for the places of what is on disk.
pub(in crate::peer) fn stays_in_memory(limit: u64) -> u64 {
    limit / 8
}

impl Outbox {
    /// Writes from this number on are queued.
    pub(super) fn spill_from(&mut self, common: &mut GroupCommon, cx: &mut Cx, first: Seq) {
        if common.config.queue_disk_bytes == 0 || self.log.is_wanted() {
            // What the log takes leaves memory once it stands there.
            return;
        }
        let is_short = self.is_short_of_memory(common, cx);
        let Some(stream) = self.sending.stream_mut() else { return };
        if !is_short && !self.disk.is_in_use() {
            return;
        }
        let queue = queue_of(stream);
        if !self.disk.is_in_use() {
            let stays = stays_in_memory(common.settings.queue_bytes.min(cx.allowance));
            let backlog = queue.backlog(stays, first);
            backlog.into_iter().for_each(|part| self.disk.take(vec![part]));
        }
        let parts = (first.0..=queue.last().0).map(Seq).map_while(|seq| Some((seq, queue.content(seq)?.length)));
        self.disk.take(parts.collect());
        self.pump_spill(common, cx);
    }

    pub(in crate::peer) fn is_short_of_memory(&self, common: &GroupCommon, cx: &Cx) -> bool {
        let held = self.stream().map_or(0, PeerStream::held_bytes) + self.reserved.bytes();
        let is_short = |held: u64, limit: u64| held > limit / 2;
        is_short(held, common.settings.queue_bytes) || is_short(self.outgoing_bytes(), cx.allowance)
    }

    /// Of this limit, what writers may fill.
    pub(super) fn for_writers(&self, limit: u64) -> u64 {
        if self.disk.is_in_use() { limit - limit / 4 } else { limit }
    }

    /// Writes the next batch, if none is being written.
    fn pump_spill(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let has_plenty = |held: u64, limit: u64| held < limit / 4;
        let outgoing = self.outgoing_bytes();
        let Some(stream) = self.sending.stream_mut() else { return };
        if has_plenty(stream.held_bytes(), common.settings.queue_bytes) && has_plenty(outgoing, cx.allowance) {
            self.disk.is_not_needed();
        }
        let Some((offset, parts)) = self.disk.begin_spill(queue_of(stream), cx.now.mono) else { return };
        cx.coverage.hit(CoveragePoint::QueueSpilled);
        let token = common.slots.start(SlotOperation::QueueSpill);
        cx.out.push_back(Output::Spill { token, store: Store::Queue(common.id()), offset, parts });
    }

    /// A batch stands on disk, or could not be written: memory goes on alone then.
    pub fn queue_spilled(&mut self, common: &mut GroupCommon, cx: &mut Cx, result: IoResult) -> Result<(), IoError> {
        let done = self.disk.spilled(self.sending.stream_mut().map(queue_of), result);
        self.pump_spill(common, cx);
        done
    }

    /// Reads ahead what is to be sent soon.
    pub fn fetch_ahead(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if !self.disk.is_in_use() {
            return;
        }
        let room = self.room_for_fetch(common, cx);
        let Some(stream) = self.sending.stream_mut().filter(|stream| stream.is_open()) else { return };
        let Some((offset, parts)) = self.disk.begin_fetch(queue_of(stream), room) else { return };
        cx.coverage.hit(CoveragePoint::QueueFetched);
        let token = common.slots.start(SlotOperation::QueueFetch);
        cx.out.push_back(Output::Fetch { token, store: Store::Queue(common.id()), offset, parts });
    }

    /// An eighth of what the queue may hold in memory, as far as that is free: what is read ahead leaves writers their room.
    fn room_for_fetch(&self, common: &GroupCommon, cx: &Cx) -> u64 {
        let held = self.stream().map_or(0, PeerStream::held_bytes) + self.reserved.bytes();
        let limit = common.settings.queue_bytes;
        let free = limit.saturating_sub(held).min(cx.allowance.saturating_sub(self.outgoing_bytes()));
        let eighth = limit.min(cx.allowance) / 8;
        free.min(eighth.max(META_BLOCK_BYTES)).min(DISK_QUEUE_BATCH_BYTES)
    }

    /// What was read back is in memory again, or is lost.
    pub fn queue_fetched(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        result: IoResult,
    ) -> Result<(), FetchFailed> {
        let done = self.disk.fetched(self.sending.stream_mut().map(queue_of), result);
        self.pump_spill(common, cx);
        done
    }

    /// The peer has more of the queue: its places are free.
    pub(in crate::peer) fn free_disk_queue(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        if self.log.gates() {
            common.set_timer(cx, GroupTimer::QueueLog, QUEUE_CELL_AFTER);
        }
        let Some(stream) = self.stream().filter(|_| self.disk.is_in_use()) else { return };
        self.disk.confirm(stream.queue().kept_after());
        self.pump_spill(common, cx);
    }

    /// The queue goes on where the peer stands.
    pub fn rewind_disk_queue(&mut self) {
        self.disk.rewind();
    }

    pub fn disk_has_failed(&self) -> bool {
        self.disk.has_failed()
    }

    /// Whoever waits for room waits for this node's disk alone, and not long.
    pub fn disk_makes_room(&self, cx: &Cx, limit: Duration) -> bool {
        let applied = self.stream().map_or(Seq::NONE, PeerStream::clears_through);
        self.disk.makes_room(cx.now.mono, limit) || self.log.makes_room(applied)
    }

    /// The disk queue has room for this much of one write.
    pub(super) fn disk_takes(&self, bytes: u64) -> bool {
        if self.log.is_wanted() { self.log.gates() } else { self.disk.has_space_for(bytes) }
    }

    /// Before anything is queued.
    pub fn has_disk_queue(&mut self, size_bytes: u64, is_logged: bool) {
        self.disk = DiskQueue::new(size_bytes);
        self.log = QueueLog::new(size_bytes, is_logged);
    }
}
