//! Packets in flight: one ring of bytes, filled at one end and emptied at the other.
//!
//! A cable, in short: what goes in first comes out first. No allocation per packet, and the kernel
//! gives memory only to the part of the ring that was ever touched.

use std::collections::VecDeque;

/// What is known of a packet in flight beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// When the far end gets it, in nanoseconds of the pipe's clock.
    pub due_ns: u64,
    pub segments: u32,
    /// IP bytes on the wire, every segment with its headers.
    pub wire_bytes: u64,
}

struct PacketSlot {
    start: usize,
    len: usize,
    flight: Flight,
}

pub struct PacketRing {
    bytes: Vec<u8>,
    slots: VecDeque<PacketSlot>,
}

impl PacketRing {
    pub fn new(capacity_bytes: usize) -> PacketRing {
        // Zeroed memory of this size comes from the kernel untouched, so only used pages cost.
        PacketRing { bytes: vec![0; capacity_bytes], slots: VecDeque::with_capacity(4096) }
    }

    /// Room for one more packet behind the others, to be filled by the caller; `None` when full.
    pub fn push(&mut self, len: usize, flight: Flight) -> Option<&mut [u8]> {
        let start = self.find_room(len)?;
        self.slots.push_back(PacketSlot { start, len, flight });
        Some(&mut self.bytes[start..start + len])
    }

    /// The oldest packet.
    pub fn front(&self) -> Option<(Flight, &[u8])> {
        let slot = self.slots.front()?;
        Some((slot.flight, &self.bytes[slot.start..slot.start + slot.len]))
    }

    pub fn pop(&mut self) -> Option<Flight> {
        self.slots.pop_front().map(|slot| slot.flight)
    }

    /// Empties the ring and returns how many segments were in it.
    pub fn clear(&mut self) -> u64 {
        let segments = self.slots.iter().map(|slot| u64::from(slot.flight.segments)).sum();
        self.slots.clear();
        segments
    }

    /// The start of `len` free bytes in one stretch. A packet never wraps round the end.
    fn find_room(&self, len: usize) -> Option<usize> {
        let (Some(oldest), Some(newest)) = (self.slots.front(), self.slots.back()) else {
            return (len <= self.bytes.len()).then_some(0);
        };
        let write_at = newest.start + newest.len;
        // Never filling the last byte before the oldest packet keeps "full" and "empty" apart.
        if write_at > oldest.start {
            if len <= self.bytes.len() - write_at {
                return Some(write_at);
            }
            return (len < oldest.start).then_some(0);
        }
        (write_at + len < oldest.start).then_some(write_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(due_ns: u64) -> Flight {
        Flight { due_ns, segments: 1, wire_bytes: 1 }
    }

    #[test]
    fn packets_come_out_in_order_across_the_end() {
        let mut ring = PacketRing::new(100);
        let (mut pushed, mut popped) = (0u64, 0u64);
        for len in [30usize, 30, 30, 20, 30, 1, 40, 17, 30].into_iter().cycle().take(900) {
            while ring.push(len, flight(pushed)).map(|room| room.fill(pushed as u8)).is_none() {
                let (oldest, bytes) = ring.front().expect("full, so not empty");
                assert_eq!(oldest.due_ns, popped);
                assert!(bytes.iter().all(|&byte| byte == popped as u8), "overwritten in flight");
                ring.pop();
                popped += 1;
            }
            pushed += 1;
        }
        assert!(popped > 800);
    }

    #[test]
    fn a_full_ring_refuses_and_an_emptied_one_accepts() {
        let mut ring = PacketRing::new(64);
        assert!(ring.push(65, flight(0)).is_none());
        assert!(ring.push(64, flight(0)).is_some());
        assert!(ring.push(1, flight(1)).is_none());
        assert_eq!(ring.clear(), 1);
        assert!(ring.front().is_none());
        assert!(ring.push(64, flight(2)).is_some());
    }
}
