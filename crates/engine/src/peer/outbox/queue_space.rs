//! Room in the queue: who has it, and what is reserved for writes that wait for something else.

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::injected_fault::{Fault, injected};
use crate::limits;
use crate::limits::REGION_BYTES;
use crate::peer::outbox::Outbox;
use crate::peer::outbox::spilling::stays_in_memory;
use crate::peer::snapshot::CatchUpSnapshot;
use crate::shared::cost::cost;
use crate::shared::write::WriteStage;

impl Outbox {
    pub fn has_room(&self, common: &mut GroupCommon, cx: &Cx, slot: u32) -> bool {
        let Some(stream) = self.stream() else { return true };
        let lone = stream.queue().is_empty() && self.reserved.items() == 0;
        let needs_none = self.passes_by(common, common.slots.write_ref(slot).range().0);
        if needs_none || injected(Fault::QueueLimitIgnored) {
            return true;
        }
        if !self.log.has_room_for(
            stream.queue(),
            self.reserved.both(),
            common.slots.write_ref(slot),
            cx.peer.part_bytes,
        ) {
            return false;
        }
        if lone {
            return true;
        }
        let (bytes, items) = common.slots.write(slot).cost_bytes(cx.peer.part_bytes);
        // Others leave memory for the disk once that is half full, so memory has room for this one late or never. It lets go of this one
        // too, as soon as it stands on disk.
        let is_taken = self.disk_takes(bytes);
        let fits = |held: u64, limit: u64| {
            let room = if bytes > limit / 2 && is_taken { limit / 8 } else { bytes };
            held + room <= limit
        };
        let of_node = self.for_writers(cx.allowance);
        let memory = match injected(Fault::SpilledNeedsMemory) {
            true => self.outgoing_bytes() + bytes <= of_node,
            false => fits(self.outgoing_bytes(), of_node),
        };
        common.memory.note(!memory);
        memory
            && fits(stream.held_bytes() + self.reserved.bytes(), self.for_writers(common.settings.queue_bytes))
            && stream.queue().len() + self.reserved.items() + items <= common.settings.queue_items
    }

    /// How full the queue is, of 1000 that writers may have: of its bytes in memory and of the ring's places, or of what its log holds for
    /// the peer, of its items, or of what those cost in memory wherever their bytes are. `None`: there is no stream in its order.
    pub fn filled_permille(&self, common: &GroupCommon) -> Option<u64> {
        let stream = self.stream().filter(|stream| !stream.syncs())?;
        let (queue, limit) = (stream.queue(), common.settings.queue_bytes);
        let ring = if self.log.is_wanted() { 0 } else { self.disk.usable_bytes() };
        let of_log = self.log.filled(stream.queue(), stream.clears_through(), self.reserved.both());
        // A quarter of memory is for what comes back from disk.
        let memory = if ring > 0 || of_log.is_some() { limit - limit / 4 } else { limit };
        let share = |held: u64, of: u64| (u128::from(held) * 1000 / u128::from(of.max(1))) as u64;
        let places = if ring > 0 { self.disk.used_bytes() } else { 0 };
        let bytes = queue.memory_bytes() + self.reserved.bytes() + places;
        let (held, of) = of_log.unwrap_or((bytes, memory + ring));
        let items = share(queue.len(), common.settings.queue_items);
        // So is what is sent next, beside a ring.
        let for_places = if ring > 0 { memory - stays_in_memory(limit) } else { memory };
        let places = if memory < limit { share(queue.len() * limits::ITEM_OVERHEAD_BYTES, for_places) } else { 0 };
        Some(share(held, of).max(items).max(places))
    }

    /// A write waits until the range is free; its room in the queue is kept meanwhile.
    pub fn wait_for_range(&mut self, common: &mut GroupCommon, slot: u32, offset: u64, length: u64) {
        self.reserve(common, slot);
        let op = common.slots.write(slot);
        op.enter(WriteStage::ForRange);
        let volume = op.volume;
        common.volumes.of(volume).wait_for_range(slot, offset, length, true);
    }

    /// Room is reserved for a write that waits for something else; none for one that the queue never sees.
    pub fn reserve(&mut self, common: &mut GroupCommon, slot: u32) {
        let op = common.slots.write_ref(slot);
        if self.passes_by(common, op.volume) && !injected(Fault::AsideTakesRoom) {
            return;
        }
        let room = op.cost_bytes(limits::PART_BYTES_MIN);
        self.reserved.keep(room);
        common.slots.write(slot).keep_room(room);
    }

    pub fn unreserve(&mut self, common: &mut GroupCommon, slot: u32) {
        self.reserved.give_back(common.slots.write(slot).give_room_back());
    }

    /// Whole regions: of a small queue no read takes more than a quarter beyond the half that a sync may fill, and of memory what there is
    /// for it.
    pub fn longest_sync_read(&self, common: &GroupCommon, cx: &Cx) -> u64 {
        let memory = self.sync_memory_bytes(cx).saturating_sub(cost(0));
        let most = cx.peer.part_bytes.min(common.settings.queue_bytes / 4).min(memory);
        (most / REGION_BYTES * REGION_BYTES).max(REGION_BYTES)
    }

    /// Half of the queue is for live writes alone. Where nothing is held for the peer the next read of a sync goes out, however scarce
    /// memory is.
    pub fn has_room_for_sync(&self, common: &GroupCommon, cx: &Cx, bytes: u64) -> bool {
        let Some(stream) = self.stream() else { return false };
        let queued = stream.held_bytes();
        let fits = queued == 0 || bytes <= self.sync_memory_bytes(cx);
        queued < common.settings.queue_bytes / 2 && fits && stream.queue().len() < common.settings.queue_items / 2
    }

    /// So much more a sync may hold, in what it reads and has sent until the peer confirms it (rule 22): half of memory, and an eighth
    /// stays free for the next live write, whatever those before it hold.
    pub fn sync_memory_bytes(&self, cx: &Cx) -> u64 {
        let free = cx.allowance.saturating_sub(self.outgoing_bytes() + cx.allowance / 8);
        let Some(stream) = self.stream() else { return free };
        let queue = stream.queue();
        let of_sync = queue.sync_bytes() + stream.sync_waiting_bytes();
        free.min((cx.allowance / 2).saturating_sub(of_sync))
    }

    /// What a snapshot may hold in memory: the queue, which is empty meanwhile, would have had as much.
    pub fn snapshot_room(&self, common: &GroupCommon, cx: &Cx) -> u64 {
        let others = self.outgoing_bytes() - self.sending.snapshot().map_or(0, CatchUpSnapshot::memory_bytes);
        common.settings.queue_bytes.min(cx.allowance.saturating_sub(others))
    }
}
