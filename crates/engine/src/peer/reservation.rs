//! Room reserved for writes that wait for a range, for a record, or for memory.

/// What of the queue's room is not free any more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueReservation {
    bytes: u64,
    items: u64,
}

impl QueueReservation {
    /// Bytes and items.
    pub fn both(self) -> (u64, u64) {
        (self.bytes, self.items)
    }

    pub fn items(self) -> u64 {
        self.items
    }

    pub fn bytes(self) -> u64 {
        self.bytes
    }

    pub fn keep(&mut self, (bytes, items): (u64, u64)) {
        (self.bytes, self.items) = (self.bytes + bytes, self.items + items);
    }

    pub fn give_back(&mut self, (bytes, items): (u64, u64)) {
        (self.bytes, self.items) = (self.bytes - bytes, self.items - items);
    }
}
