//! What each volume of a group costs: its part of the queue, of what travels, and of the bitmap.

use alloc::vec::Vec;

use crate::ids::VolumeId;

/// What of the group's queue is a volume's: bytes as the queue counts them, in memory and on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeQueue {
    pub bytes: u64,
    pub items: u64,
    /// The most since the node started, and since peaks were forgotten.
    pub peak_bytes: u64,
    pub peak_items: u64,
    pub late_peak_bytes: u64,
    pub late_peak_items: u64,
}

/// Bytes since the group started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeTraffic {
    /// Writes that were put on the link, each time they were sent; and regions, by syncs.
    pub streamed_bytes: u64,
    pub shipped_bytes: u64,
    /// Written to the bitmap. The activity log is the group's.
    pub bitmap_bytes: u64,
}

/// Each volume's part of a queue. Together they are the queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeQueues(Vec<VolumeQueue>);

impl VolumeQueues {
    pub fn of(&self, volume: VolumeId) -> VolumeQueue {
        self.0.get(usize::from(volume.0)).copied().unwrap_or_default()
    }

    pub fn enter(&mut self, volume: VolumeId, bytes: u64) {
        let queue = self.slot(volume);
        (queue.bytes, queue.items) = (queue.bytes + bytes, queue.items + 1);
        queue.peak_bytes = queue.peak_bytes.max(queue.bytes);
        queue.peak_items = queue.peak_items.max(queue.items);
        queue.late_peak_bytes = queue.late_peak_bytes.max(queue.bytes);
        queue.late_peak_items = queue.late_peak_items.max(queue.items);
    }

    pub fn leave(&mut self, volume: VolumeId, bytes: u64) {
        let queue = self.slot(volume);
        (queue.bytes, queue.items) = (queue.bytes - bytes, queue.items - 1);
    }

    /// An item turned out to be so much smaller.
    pub fn lighten(&mut self, volume: VolumeId, bytes: u64) {
        self.slot(volume).bytes -= bytes;
    }

    /// The queue has ended, and peaks stay.
    pub fn emptied(&mut self) {
        self.0.iter_mut().for_each(|queue| (queue.bytes, queue.items) = (0, 0));
    }

    /// The peaks that people look at begin with what is there now.
    pub fn forget_peaks(&mut self) {
        let forget =
            |queue: &mut VolumeQueue| (queue.late_peak_bytes, queue.late_peak_items) = (queue.bytes, queue.items);
        self.0.iter_mut().for_each(forget);
    }

    /// Bytes and items of all volumes.
    pub fn sum(&self) -> (u64, u64) {
        self.0.iter().fold((0, 0), |(bytes, items), queue| (bytes + queue.bytes, items + queue.items))
    }

    fn slot(&mut self, volume: VolumeId) -> &mut VolumeQueue {
        let index = usize::from(volume.0);
        if index >= self.0.len() {
            self.0.resize(index + 1, VolumeQueue::default());
        }
        &mut self.0[index]
    }
}

/// What a volume sent, and wrote to the bitmap.
#[derive(Debug, Default)]
pub(crate) struct TrafficMeter(VolumeTraffic);

impl TrafficMeter {
    pub fn figures(&self) -> VolumeTraffic {
        self.0
    }

    pub fn streamed(&mut self, bytes: u64) {
        self.0.streamed_bytes += bytes;
    }

    pub fn shipped(&mut self, bytes: u64) {
        self.0.shipped_bytes += bytes;
    }

    pub fn stored_bits(&mut self, bytes: u64) {
        self.0.bitmap_bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_queue_make_the_whole_and_have_peaks_of_their_own() {
        let mut queues = VolumeQueues::default();
        queues.enter(VolumeId(1), 100);
        queues.enter(VolumeId(0), 10);
        queues.enter(VolumeId(1), 50);
        assert_eq!(queues.sum(), (160, 3));
        queues.leave(VolumeId(1), 100);
        queues.lighten(VolumeId(1), 20);
        assert_eq!(queues.sum(), (40, 2));
        let log = queues.of(VolumeId(1));
        assert_eq!((log.bytes, log.items, log.peak_bytes, log.peak_items), (30, 1, 150, 2));
        queues.forget_peaks();
        assert_eq!((queues.of(VolumeId(1)).late_peak_bytes, queues.of(VolumeId(1)).peak_bytes), (30, 150));
        queues.emptied();
        assert_eq!((queues.sum(), queues.of(VolumeId(1)).peak_bytes), ((0, 0), 150));
        assert_eq!(queues.of(VolumeId(7)), VolumeQueue::default(), "it never wrote");
    }
}
