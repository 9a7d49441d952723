//! The payload that an engine holds: each buffer the world hands to one counts itself for as long as it lives. So what a
//! node holds in memory is known without asking it (rule 22).

use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

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

/// Bytes that nobody changes any more. Engines, disks and paths hold the same write at the same time; its bytes are in memory
/// once.
#[derive(Clone, Debug)]
pub struct SharedBytes {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

/// Runs of zeroes up to this length share one buffer.
const ZEROES_BYTES: usize = 1 << 20;

impl SharedBytes {
    pub fn zeroes(bytes: usize) -> SharedBytes {
        static ZEROES: LazyLock<Arc<Vec<u8>>> = LazyLock::new(|| Arc::new(vec![0; ZEROES_BYTES]));
        let is_known = bytes <= ZEROES_BYTES;
        let zeroes = if is_known { ZEROES.clone() } else { Arc::new(vec![0; bytes]) };
        SharedBytes { bytes: zeroes, range: 0..bytes }
    }

    /// The bytes, without a copy where nobody else holds them.
    pub fn into_vec(self) -> Vec<u8> {
        let whole = self.range == (0..self.bytes.len());
        if whole { Arc::unwrap_or_clone(self.bytes) } else { self.to_vec() }
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> SharedBytes {
        SharedBytes { range: 0..bytes.len(), bytes: Arc::new(bytes) }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

/// Bytes that count while an engine holds them.
pub struct Payload {
    bytes: SharedBytes,
    meter: PayloadMeter,
}

impl Payload {
    pub fn handed_over(bytes: impl Into<SharedBytes>, meter: &PayloadMeter) -> Buf {
        let bytes = bytes.into();
        meter.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Buf::new(Arc::new(Payload { bytes, meter: meter.clone() }))
    }
}

/// What a slice of one of these buffers holds.
pub fn slice_of(slice: &Slice) -> SharedBytes {
    let payload = slice.buf.get::<Payload>().expect("the simulator's buffers count themselves");
    let start = payload.bytes.range.start + slice.start as usize;
    let range = start..start + slice.length as usize;
    assert!(range.end <= payload.bytes.range.end, "a slice lies within its buffer");
    SharedBytes { bytes: payload.bytes.bytes.clone(), range }
}

/// What stands in several places, as the wire has it.
pub fn joined(slices: &[Slice]) -> SharedBytes {
    slices.iter().flat_map(|slice| slice_of(slice).to_vec()).collect::<Vec<u8>>().into()
}

pub fn bytes_of(bytes: WriteBytes) -> SharedBytes {
    match bytes {
        WriteBytes::Payload(slice) => slice_of(&slice),
        WriteBytes::Meta(bytes) => bytes.into(),
    }
}

/// Whether all bytes are zero: a block at a time, which the compiler makes vector instructions of.
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|block| block.iter().fold(0, |all, byte| all | byte) == 0)
}

/// A header sums its payload up, and there is no other such sum to be had here.
pub fn crc32c(data: &[u8]) -> u32 {
    FrameHeader::new(FrameKind::Data, SessionId(0), GroupId(0)).sealed(data).payload_crc
}

/// A hash that is good enough to tell two contents apart in a world without an adversary (FNV-1a of words that are turned, four lanes):
/// a tenth of a run's time went into one of bytes.
pub fn hash(data: &[u8]) -> [u8; 32] {
    let mut lanes = [0xcbf2_9ce4_8422_2325u64 ^ data.len() as u64; 4];
    let mut blocks = data.chunks_exact(32);
    for block in &mut blocks {
        for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(8)) {
            *lane = mixed(*lane, u64::from_le_bytes(word.try_into().expect("eight bytes")));
        }
    }
    for (i, byte) in blocks.remainder().iter().enumerate() {
        lanes[i % 4] = mixed(lanes[i % 4], u64::from(*byte));
    }
    let mut out = [0; 32];
    for (chunk, lane) in out.chunks_mut(8).zip(lanes) {
        chunk.copy_from_slice(&lane.to_le_bytes());
    }
    out
}

/// Turned, because a product carries a difference upwards alone.
fn mixed(lane: u64, word: u64) -> u64 {
    (lane ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
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

    #[test]
    fn a_slice_shares_its_bytes_and_does_not_count() {
        let meter = PayloadMeter::default();
        let buf = Payload::handed_over((0..200).collect::<Vec<u8>>(), &meter);
        let shared = slice_of(&Slice { buf: buf.clone(), start: 10, length: 20 });
        let again = Payload::handed_over(shared.clone(), &meter);
        assert_eq!(meter.bytes(), 220);
        drop((buf, again));
        assert_eq!((meter.bytes(), shared.into_vec()), (0, (10..30).collect::<Vec<u8>>()));
    }

    #[test]
    fn zeroes_are_told_from_anything_else_at_every_place() {
        for length in [0, 1, 63, 64, 65, 512] {
            assert!(is_zero(&SharedBytes::zeroes(length)));
            for at in 0..length {
                let mut bytes = vec![0; length];
                bytes[at] = 0x80;
                assert!(!is_zero(&bytes));
            }
        }
        assert_eq!(SharedBytes::zeroes(2 * ZEROES_BYTES).len(), 2 * ZEROES_BYTES);
    }
}
