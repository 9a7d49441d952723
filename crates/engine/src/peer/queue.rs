//! What waits to be sent, and what was sent but is not durable at the peer: one run of consecutive numbers.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use crate::Slice;
use crate::formats::wire::flags;
use crate::ids::{Seq, VolumeId};
use crate::injected_fault::{Fault, injected};
use crate::shared::cost::cost;
use crate::shared::volume_traffic::VolumeQueues;
use crate::status::QueuePeaks;
use crate::time::{Mono, Wall};

#[derive(Clone, Debug)]
pub(crate) enum ItemBody {
    /// A resync or compare read is under way; what follows waits, the order has no gaps.
    Pending,
    Data(Slice),
    /// Its bytes stand in the disk queue alone.
    OnDisk,
    /// They are on their way back into memory.
    Fetching,
    Zero {
        no_hole: bool,
    },
    Void,
    Probe([u8; 32]),
    SyncEnd,
}

impl ItemBody {
    /// Its bytes are read from a disk of this node before it can be sent.
    pub fn is_awaited(&self) -> bool {
        match self {
            ItemBody::OnDisk => !injected(Fault::SpilledSentAsZeroes),
            ItemBody::Pending | ItemBody::Fetching => true,
            _ => false,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct QueueItem {
    pub seq: Seq,
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
    pub wall: Wall,
    pub flags: u16,
    pub body: ItemBody,
    /// What it counts against the queue's limit.
    pub cost_bytes: u64,
}

impl QueueItem {
    /// What its content costs in memory, beyond its bookkeeping.
    fn content_cost(&self) -> u64 {
        self.cost_bytes.saturating_sub(cost(0))
    }

    /// What it does not cost in memory, as its bytes stand on disk alone.
    fn disk_cost(&self) -> u64 {
        if matches!(self.body, ItemBody::OnDisk) { self.content_cost() } else { 0 }
    }

    fn sync_bytes(&self) -> u64 {
        if self.flags & flags::RESYNC != 0 { self.cost_bytes } else { 0 }
    }
}

#[derive(Default)]
pub(crate) struct StreamQueue {
    items: VecDeque<QueueItem>,
    /// Index of the first unsent item in `items`.
    unsent_from: usize,
    /// When each of those before it was sent.
    sent_at: VecDeque<Mono>,
    bytes: u64,
    /// Of that, what stands on disk alone.
    disk_bytes: u64,
    /// Of that, what a sync put there.
    sync_bytes: u64,
    unsent_bytes: u64,
    /// Of that, what a sync put there.
    unsent_sync_bytes: u64,
    /// The last number that came in, or the one before the first.
    last: Seq,
    /// Nothing behind this number is in the log, and so nothing of that may be sent; `None`: there is no log.
    logged: Option<Seq>,
    record: QueueRecord,
}

/// What the queues of a group have seen, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueRecord {
    /// Since the node started, and since it was told to forget peaks.
    pub peaks: QueuePeaks,
    pub late_peaks: QueuePeaks,
    pub spilled_bytes: u64,
    /// What came in, and what went out as it was durable at the peer.
    pub entered_bytes: u64,
    pub left_bytes: u64,
    pub volumes: VolumeQueues,
}

/// What a queue holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueFill {
    pub bytes: u64,
    pub items: u64,
}

impl QueueRecord {
    fn saw(&mut self, now: &QueuePeaks) {
        self.peaks.raise(now);
        self.late_peaks.raise(now);
    }
}

impl fmt::Debug for StreamQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of them unsent in {} items", self.unsent_bytes, self.items.len())
    }
}

impl StreamQueue {
    /// For numbers after `last`; `record` is of the group's earlier ones.
    pub fn new(last: Seq, record: QueueRecord) -> StreamQueue {
        StreamQueue { last, record, ..StreamQueue::default() }
    }

    pub fn last(&self) -> Seq {
        self.last
    }

    pub fn record(&self) -> &QueueRecord {
        &self.record
    }

    /// The peaks that people look at begin with what is there now.
    pub fn forget_peaks(&mut self) {
        self.record.late_peaks = self.holds();
        self.record.volumes.forget_peaks();
    }

    /// So much stands in its log now.
    pub fn log_holds(&mut self, log_bytes: u64) {
        self.record.saw(&QueuePeaks { log_bytes, ..QueuePeaks::default() });
    }

    fn holds(&self) -> QueuePeaks {
        let (bytes, items) = (self.memory_bytes(), self.len());
        QueuePeaks { bytes, items, waiting_bytes: self.bytes, disk_bytes: self.disk_bytes, ..QueuePeaks::default() }
    }

    pub fn push(&mut self, item: QueueItem) {
        assert_eq!(self.last.next(), item.seq, "the queue is one run of consecutive numbers");
        self.last = item.seq;
        self.bytes += item.cost_bytes;
        self.disk_bytes += item.disk_cost();
        self.record.entered_bytes += item.cost_bytes;
        self.record.volumes.enter(item.volume, item.cost_bytes);
        self.sync_bytes += item.sync_bytes();
        self.unsent_bytes += item.cost_bytes;
        self.unsent_sync_bytes += item.sync_bytes();
        self.items.push_back(item);
        self.record.saw(&self.holds());
    }

    pub fn get_mut(&mut self, seq: Seq) -> Option<&mut QueueItem> {
        let first = self.items.front()?.seq;
        self.items.get_mut(usize::try_from(seq.0.checked_sub(first.0)?).ok()?)
    }

    /// The next item to send, if its bytes are at hand.
    pub fn next_ready(&self) -> Option<&QueueItem> {
        self.items.get(self.unsent_from).filter(|item| !self.is_awaited(item))
    }

    /// Items that are not sent, in order.
    pub fn unsent(&self) -> impl Iterator<Item = &QueueItem> {
        self.items.range(self.unsent_from..)
    }

    /// It may not be sent yet: its bytes are not at hand, or not in the log.
    pub fn is_awaited(&self, item: &QueueItem) -> bool {
        item.body.is_awaited() || self.logged.is_some_and(|logged| item.seq > logged)
    }

    /// Numbers up to here are in the log, and no others may be sent.
    pub fn gate(&mut self, logged: Option<Seq>) {
        self.logged = logged;
    }

    /// What came in behind this number.
    pub fn after(&self, seq: Seq) -> impl Iterator<Item = &QueueItem> {
        let first = self.items.front().map_or(self.last.next(), |item| item.seq);
        let skipped = (seq.0 + 1).saturating_sub(first.0);
        self.items.range((skipped as usize).min(self.items.len())..)
    }

    /// What is to be sent next is still being read from this node's own disk, or written to its log.
    pub fn waits_for_read(&self) -> bool {
        self.items.get(self.unsent_from).is_some_and(|item| self.is_awaited(item))
    }

    /// The primary's time of the oldest item.
    pub fn oldest(&self) -> Option<Wall> {
        self.items.front().map(|item| item.wall)
    }

    /// Since when the oldest item is on its way to the peer, or there and not durable.
    pub fn oldest_sent(&self) -> Option<Mono> {
        self.sent_at.front().copied()
    }

    /// The next item counts as sent.
    pub fn advance(&mut self, now: Mono) {
        self.sent_at.push_back(now);
        let item = &self.items[self.unsent_from];
        self.unsent_bytes -= item.cost_bytes;
        self.unsent_sync_bytes -= item.sync_bytes();
        self.unsent_from += 1;
    }

    /// The oldest number not sent yet.
    pub fn first_unsent(&self) -> Option<Seq> {
        self.items.get(self.unsent_from).map(|item| item.seq)
    }

    /// The peer has confirmed all that was sent.
    pub fn nothing_is_on_its_way(&self) -> bool {
        self.unsent_from == 0
    }

    /// The number never becomes a write; no-op if it was confirmed already.
    pub fn void(&mut self, seq: Seq) {
        let Some(item) = self.get_mut(seq) else { return };
        let disk_cost = item.disk_cost();
        item.body = ItemBody::Void;
        item.length = 0;
        self.disk_bytes -= disk_cost;
    }

    /// Numbers whose content is still being read, with their ranges.
    pub fn pending(&self) -> Vec<(Seq, VolumeId, u64, u64)> {
        let pending = self.items.iter().filter(|item| matches!(item.body, ItemBody::Pending));
        pending.map(|item| (item.seq, item.volume, item.offset, item.length)).collect()
    }

    /// Numbers of comparisons that are not confirmed.
    pub fn probes(&self) -> Vec<Seq> {
        let probes = self.items.iter().filter(|item| matches!(item.body, ItemBody::Probe(_)));
        probes.map(|item| item.seq).collect()
    }

    /// Everything up to `durable` is safe at the peer, to which it was sent.
    pub fn confirm(&mut self, durable: Seq) {
        while self.items.front().is_some_and(|item| item.seq <= durable) {
            assert!(self.unsent_from > 0, "what was not sent is not confirmed");
            let item = self.items.pop_front().expect("front was there");
            self.sent_at.pop_front();
            self.unsent_from -= 1;
            self.bytes -= item.cost_bytes;
            self.disk_bytes -= item.disk_cost();
            self.record.left_bytes += item.cost_bytes;
            self.record.volumes.leave(item.volume, item.cost_bytes);
            self.sync_bytes -= item.sync_bytes();
        }
    }

    /// After a reconnect: send again from `received` on.
    pub fn rewind(&mut self, received: Seq) {
        self.unsent_from = self.items.iter().take_while(|item| item.seq <= received).count();
        self.sent_at.truncate(self.unsent_from);
        let unsent = || self.items.iter().skip(self.unsent_from);
        (self.unsent_bytes, self.unsent_sync_bytes) =
            (unsent().map(|i| i.cost_bytes).sum(), unsent().map(QueueItem::sync_bytes).sum());
    }

    /// The last number that was handed to the link: the peer can have no later one.
    pub fn sent_through(&self) -> Seq {
        self.first_unsent().map_or(self.last, |seq| Seq(seq.0 - 1))
    }

    /// The number before the oldest kept.
    pub fn kept_after(&self) -> Seq {
        self.items.front().map_or(self.last, |item| Seq(item.seq.0 - 1))
    }

    /// The bytes turned out to be fewer than was reserved for them: a region of zeroes needs none.
    pub fn lighten(&mut self, seq: Seq, cost_bytes: u64) {
        let Some(item) = self.get_mut(seq) else { return };
        let saved = item.cost_bytes.saturating_sub(cost_bytes);
        item.cost_bytes -= saved;
        let (of_a_sync, volume) = (if item.flags & flags::RESYNC != 0 { saved } else { 0 }, item.volume);
        self.bytes -= saved;
        self.record.entered_bytes -= saved;
        self.record.volumes.lighten(volume, saved);
        self.sync_bytes -= of_a_sync;
        self.unsent_bytes -= saved;
        self.unsent_sync_bytes -= of_a_sync;
    }

    /// What is in memory behind the oldest so many bytes, and before `until`: numbers and lengths.
    pub fn backlog(&self, stays_bytes: u64, until: Seq) -> Vec<(Seq, u32)> {
        let mut ahead = 0;
        let behind = |item: &QueueItem| {
            ahead += item.content_cost();
            match &item.body {
                ItemBody::Data(slice) if ahead > stays_bytes && item.sync_bytes() == 0 => {
                    Some((item.seq, slice.length))
                }
                _ => None,
            }
        };
        self.items.iter().take_while(|item| item.seq < until).filter_map(behind).collect()
    }

    // ---- the disk queue ----------------------------------------------------------------------------------------------

    /// The bytes of this number, if they are in memory.
    pub fn content(&mut self, seq: Seq) -> Option<Slice> {
        match &self.get_mut(seq)?.body {
            ItemBody::Data(slice) => Some(slice.clone()),
            _ => None,
        }
    }

    pub fn is_on_disk(&mut self, seq: Seq) -> bool {
        self.get_mut(seq).is_some_and(|item| matches!(item.body, ItemBody::OnDisk))
    }

    pub fn is_being_fetched(&mut self, seq: Seq) -> bool {
        self.get_mut(seq).is_some_and(|item| matches!(item.body, ItemBody::Fetching))
    }

    /// Its bytes are written to the disk queue: memory lets go of them. False: nobody needs them there.
    pub fn leave_memory(&mut self, seq: Seq) -> bool {
        let Some(content) = self.let_go(seq) else { return false };
        self.record.spilled_bytes += content;
        true
    }

    /// Its bytes stand in the disk queue, and memory holds them no more: so many; `None`: it did not.
    pub fn let_go(&mut self, seq: Seq) -> Option<u64> {
        let item = self.get_mut(seq).filter(|item| matches!(item.body, ItemBody::Data(_)))?;
        item.body = ItemBody::OnDisk;
        let content = item.content_cost();
        self.disk_bytes += content;
        self.record.saw(&self.holds());
        Some(content)
    }

    /// Its bytes are asked for, and cost memory from now on.
    pub fn begin_fetch(&mut self, seq: Seq) {
        let item = self.get_mut(seq).expect("it is queued");
        let disk_cost = item.disk_cost();
        item.body = ItemBody::Fetching;
        self.disk_bytes -= disk_cost;
    }

    /// They are back, unless the number was confirmed or became void meanwhile; `None`: they were not read.
    pub fn end_fetch(&mut self, seq: Seq, content: Option<Slice>) {
        let Some(item) = self.get_mut(seq).filter(|item| matches!(item.body, ItemBody::Fetching)) else { return };
        item.body = content.map_or(ItemBody::OnDisk, ItemBody::Data);
        let disk_cost = item.disk_cost();
        self.disk_bytes += disk_cost;
    }

    /// Each item is of one volume.
    pub fn check_volumes(&self) {
        assert_eq!(self.record.volumes.sum(), (self.bytes, self.len()), "the queue of a group is that of its volumes");
    }

    // ---- what it holds -----------------------------------------------------------------------------------------------

    /// All of it, in memory or on disk.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn memory_bytes(&self) -> u64 {
        self.bytes - self.disk_bytes
    }

    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    pub fn sync_bytes(&self) -> u64 {
        self.sync_bytes
    }

    pub fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }

    pub fn unsent_sync_bytes(&self) -> u64 {
        self.unsent_sync_bytes
    }

    pub fn len(&self) -> u64 {
        self.items.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buf;
    use alloc::sync::Arc;

    fn item(seq: u64) -> QueueItem {
        QueueItem {
            seq: Seq(seq),
            volume: VolumeId(0),
            offset: 0,
            length: 0,
            wall: Wall(seq),
            flags: 0,
            body: ItemBody::Void,
            cost_bytes: 10,
        }
    }

    // proves: rule 4
    #[test]
    fn sending_confirming_and_rewinding_keep_one_run() {
        let mut q = StreamQueue::new(Seq(4), QueueRecord::default());
        (5..=9).for_each(|n| q.push(item(n)));
        (0..3).for_each(|n| q.advance(Mono(n)));
        assert_eq!(q.oldest_sent(), Some(Mono(0)));
        q.confirm(Seq(6));
        assert_eq!(q.oldest_sent(), Some(Mono(2)));
        assert_eq!((q.len(), q.bytes(), q.unsent_bytes(), q.kept_after()), (3, 30, 20, Seq(6)));
        assert_eq!(q.next_ready().map(|i| i.seq), Some(Seq(8)));
        q.rewind(Seq(6));
        assert_eq!(q.oldest_sent(), None);
        assert_eq!((q.next_ready().map(|i| i.seq), q.unsent_bytes()), (Some(Seq(7)), 30));
        assert_eq!(q.first_unsent(), Some(Seq(7)), "never sent since the rewind");
    }

    // proves: rule 4
    #[test]
    fn an_item_without_its_bytes_holds_up_what_follows() {
        let mut q = StreamQueue::default();
        q.push(QueueItem { body: ItemBody::Pending, ..item(1) });
        q.push(item(2));
        assert!(q.next_ready().is_none());
        q.get_mut(Seq(1)).expect("queued").body = ItemBody::Void;
        assert_eq!(q.next_ready().map(|i| i.seq), Some(Seq(1)));
    }

    #[test]
    fn peaks_begin_anew_with_what_is_there_and_sums_go_on() {
        let mut q = StreamQueue::new(Seq::NONE, QueueRecord::default());
        (1..=4).for_each(|n| q.push(item(n)));
        (0..3).for_each(|n| q.advance(Mono(n)));
        q.confirm(Seq(3));
        q.forget_peaks();
        q.push(item(5));
        let record = q.record().clone();
        assert_eq!((record.peaks.bytes, record.peaks.items), (40, 4));
        assert_eq!((record.late_peaks.bytes, record.late_peaks.items), (20, 2));
        assert_eq!((record.entered_bytes, record.left_bytes), (50, 30));
        let mut next = StreamQueue::new(Seq(5), record);
        next.push(item(6));
        assert_eq!((next.record().peaks.bytes, next.record().entered_bytes), (40, 60), "of all queues");
    }

    // proves: P8
    /// The peak was that of memory, which lets go of what stands on disk.
    #[test]
    fn what_waits_on_disk_counts_in_the_peak() {
        let mut q = StreamQueue::default();
        let content = || Slice { buf: Buf::new(Arc::new(())), start: 0, length: 4096 };
        let data =
            |seq| QueueItem { body: ItemBody::Data(content()), length: 4096, cost_bytes: cost(4096), ..item(seq) };
        for n in 1..=4 {
            q.push(data(n));
            q.leave_memory(Seq(n));
        }
        let QueuePeaks { bytes, items, waiting_bytes, disk_bytes, .. } = q.record().peaks;
        assert_eq!((items, waiting_bytes, disk_bytes), (4, 4 * cost(4096), 4 * (cost(4096) - cost(0))));
        assert!(bytes < 2 * cost(4096), "{bytes}");
        q.advance(Mono(1));
        q.confirm(Seq(1));
        q.forget_peaks();
        assert_eq!(q.record().late_peaks.waiting_bytes, 3 * cost(4096));
        q.log_holds(7);
        assert_eq!((q.record().late_peaks.log_bytes, q.record().late_peaks.items), (7, 3));
    }

    /// A sync read ahead of the link without end: nothing of it counted as standing unsent.
    #[test]
    fn what_a_sync_has_standing_unsent_is_known() {
        let mut q = StreamQueue::default();
        let of_a_sync = |seq| QueueItem { flags: flags::RESYNC, ..item(seq) };
        q.push(of_a_sync(1));
        q.push(item(2));
        q.push(of_a_sync(3));
        q.push(of_a_sync(4));
        assert_eq!((q.unsent_bytes(), q.unsent_sync_bytes()), (40, 30));
        q.advance(Mono(1));
        q.advance(Mono(2));
        assert_eq!(q.unsent_sync_bytes(), 20);
        q.lighten(Seq(3), 4);
        assert_eq!(q.unsent_sync_bytes(), 14, "a region of zeroes");
        q.rewind(Seq::NONE);
        assert_eq!(q.unsent_sync_bytes(), 24, "all of it is to be sent again");
    }
}
