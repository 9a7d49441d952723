//! The payload that an engine holds: each buffer the world hands to one counts itself for as long as it lives. So what a
//! node holds in memory is known without asking it (rule 22).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::wire::{FrameHeader, FrameKind};
use engine::{Buf, GroupId, SessionId, Slice, WriteBytes};

/// Bytes of payload that live.
#[derive(Clone, Debug, Default)]
pub struct PayloadMeter(Arc<AtomicU64>);

impl PayloadMeter {
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one node's half of a group holds.
#[derive(Clone, Debug, Default)]
pub struct Meters {
    /// What waits in a queue or a window: counted against `queue.memory`, the window and `memory.limit`.
    pub queued: PayloadMeter,
    /// What is on its way to be saved, written back or pulled: it has bounds of its own.
    pub aside: PayloadMeter,
}

/// Bytes that count while anybody holds them.
pub struct Payload {
    bytes: Vec<u8>,
    meter: PayloadMeter,
}

impl Payload {
    pub fn handed_over(bytes: Vec<u8>, meter: &PayloadMeter) -> Buf {
        meter.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Buf::new(Arc::new(Payload { bytes, meter: meter.clone() }))
    }
}

/// What a slice of one of these buffers holds.
pub fn slice_of(slice: &Slice) -> &[u8] {
    let payload = slice.buf.get::<Payload>().expect("the simulator's buffers count themselves");
    &payload.bytes[slice.start as usize..][..slice.length as usize]
}

pub fn bytes_of(bytes: &WriteBytes) -> &[u8] {
    match bytes {
        WriteBytes::Payload(slice) => slice_of(slice),
        WriteBytes::Meta(bytes) => bytes,
    }
}

/// A header sums its payload up, and there is no other such sum to be had here.
pub fn crc32c(data: &[u8]) -> u32 {
    FrameHeader::new(FrameKind::Data, SessionId(0), GroupId(0)).sealed(data).payload_crc
}

/// A hash that is good enough to tell two contents apart in a world without an adversary (FNV-1a, four lanes).
pub fn hash(data: &[u8]) -> [u8; 32] {
    let mut lanes = [0xcbf2_9ce4_8422_2325u64; 4];
    for (i, byte) in data.iter().enumerate() {
        let lane = &mut lanes[i % 4];
        *lane = (*lane ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
    let mut out = [0; 32];
    for (chunk, lane) in out.chunks_mut(8).zip(lanes) {
        chunk.copy_from_slice(&lane.to_le_bytes());
    }
    out
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.meter.0.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_counts_once_until_the_last_who_holds_it_lets_go() {
        let meter = PayloadMeter::default();
        let buf = Payload::handed_over(vec![1; 512], &meter);
        let other = Payload::handed_over(vec![2; 1024], &meter);
        let shared = buf.clone();
        drop(buf);
        assert_eq!(meter.bytes(), 1536);
        drop((shared, other));
        assert_eq!(meter.bytes(), 0);
    }
}
