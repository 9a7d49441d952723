//! blktrace's binary events, one file per CPU: 48 bytes in the byte order of the machine that wrote them, then `pdu_len`
//! bytes that we pass over. Layout and numbers are the kernel's `blktrace_api.h`.

use super::blkparse::SECTOR_BYTES;
use super::{RecordFault, TraceKind, TraceRecord, VolumeNames, byte_range};

pub const EVENT_BYTES: usize = 48;
/// In the upper three bytes; the lowest is the version.
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;

const ACTION_QUEUE: u32 = 1;
const ACTION_ISSUE: u32 = 7;
const CATEGORY_READ: u32 = 1 << 0;
const CATEGORY_WRITE: u32 = 1 << 1;
const CATEGORY_FLUSH: u32 = 1 << 2;
const CATEGORY_NOTIFY: u32 = 1 << 10;
const CATEGORY_DISCARD: u32 = 1 << 13;
const CATEGORY_FUA: u32 = 1 << 15;

/// What stands at the head of the buffer.
#[derive(Debug, PartialEq, Eq)]
pub enum BlktraceEvent {
    /// This many bytes belong to it; records were added.
    Used(usize),
    Read(usize),
    Passed(usize),
    /// More bytes are needed.
    Short,
}

#[derive(Debug)]
pub struct Blktrace {
    swapped: bool,
    action: u32,
    volumes: VolumeNames,
}

/// Byte order, if these are blktrace's first bytes: `Some(true)` when it is not little-endian.
pub fn byte_order(head: &[u8]) -> Option<bool> {
    let word = u32::from_le_bytes(head.get(..4)?.try_into().ok()?);
    let is_magic = |word: u32| word & 0xffff_ff00 == MAGIC && word & 0xff == VERSION;
    if is_magic(word) { Some(false) } else { is_magic(word.swap_bytes()).then_some(true) }
}

impl Blktrace {
    /// `event` is `Q` or `D`, as in blkparse.
    pub fn new(swapped: bool, event: u8) -> Self {
        let action = if event == b'D' { ACTION_ISSUE } else { ACTION_QUEUE };
        Self { swapped, action, volumes: VolumeNames::default() }
    }

    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if self.swapped { word.swap_bytes() } else { word }
    }

    fn long(&self, bytes: &[u8], at: usize) -> u64 {
        let long = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if self.swapped { long.swap_bytes() } else { long }
    }

    /// Reads one event. A wrong magic number cannot be got over: nothing says where the next event begins.
    pub fn event(&mut self, bytes: &[u8], out: &mut Vec<TraceRecord>) -> Result<BlktraceEvent, RecordFault> {
        if bytes.len() < EVENT_BYTES {
            return Ok(BlktraceEvent::Short);
        }
        if byte_order(bytes) != Some(self.swapped) {
            return Err(RecordFault::Damaged);
        }
        let pdu_bytes = u16::from_le_bytes([bytes[46], bytes[47]]);
        let pdu_bytes = usize::from(if self.swapped { pdu_bytes.swap_bytes() } else { pdu_bytes });
        let total = EVENT_BYTES + pdu_bytes;
        if bytes.len() < total {
            return Ok(BlktraceEvent::Short);
        }
        let (action, category) = (self.word(bytes, 28) & 0xffff, self.word(bytes, 28) >> 16);
        if category & CATEGORY_NOTIFY != 0 || action != self.action {
            return Ok(BlktraceEvent::Passed(total));
        }
        if category & CATEGORY_READ != 0 {
            return Ok(BlktraceEvent::Read(total));
        }
        let time_ns = self.long(bytes, 8);
        let volume = self.volumes.number(&bytes[36..40])?;
        if category & CATEGORY_FLUSH != 0 {
            out.push(TraceRecord { time_ns, volume, kind: TraceKind::Flush, ..TraceRecord::default() });
        }
        let kind = if category & CATEGORY_DISCARD != 0 { TraceKind::Trim } else { TraceKind::Write };
        let length = u64::from(self.word(bytes, 24));
        if length > 0 && category & (CATEGORY_WRITE | CATEGORY_DISCARD) != 0 {
            let offset = self.long(bytes, 16).checked_mul(SECTOR_BYTES).ok_or(RecordFault::OffsetTooLarge)?;
            let (offset, length) = byte_range(offset, length)?;
            let fua = category & CATEGORY_FUA != 0;
            out.push(TraceRecord { time_ns, offset, length, volume, kind, fua, ..TraceRecord::default() });
        }
        Ok(BlktraceEvent::Used(total))
    }
}

/// An event as the kernel writes it on a little-endian machine; for tests and corpora.
pub fn sample_event(time_ns: u64, sector: u64, length: u32, write: bool) -> [u8; EVENT_BYTES] {
    let category = if write { CATEGORY_WRITE } else { CATEGORY_READ } | 1 << 4;
    let mut event = [0; EVENT_BYTES];
    event[..4].copy_from_slice(&(MAGIC | VERSION).to_le_bytes());
    event[8..16].copy_from_slice(&time_ns.to_le_bytes());
    event[16..24].copy_from_slice(&sector.to_le_bytes());
    event[24..28].copy_from_slice(&length.to_le_bytes());
    event[28..32].copy_from_slice(&(category << 16 | ACTION_QUEUE).to_le_bytes());
    event[36..40].copy_from_slice(&(8u32 << 20).to_le_bytes());
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_both_byte_orders() {
        let event = sample_event(1_500, 8, 4096, true);
        let mut out = Vec::new();
        assert_eq!(Blktrace::new(false, b'Q').event(&event, &mut out), Ok(BlktraceEvent::Used(48)));
        assert_eq!(out[0], TraceRecord { time_ns: 1500, offset: 4096, length: 4096, ..TraceRecord::default() });
        let mut swapped = event;
        for (start, width) in
            [(0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4), (40, 4), (44, 2), (46, 2)]
        {
            swapped[start..start + width].reverse();
        }
        assert_eq!(byte_order(&swapped), Some(true));
        let mut again = Vec::new();
        assert_eq!(Blktrace::new(true, b'Q').event(&swapped, &mut again), Ok(BlktraceEvent::Used(48)));
        assert_eq!(again, out);
        assert_eq!(Blktrace::new(false, b'D').event(&event, &mut out), Ok(BlktraceEvent::Passed(48)));
        assert_eq!(
            Blktrace::new(false, b'Q').event(&sample_event(1, 8, 512, false), &mut out),
            Ok(BlktraceEvent::Read(48))
        );
        assert_eq!(Blktrace::new(false, b'Q').event(&event[..47], &mut out), Ok(BlktraceEvent::Short));
        assert_eq!(Blktrace::new(false, b'Q').event(&[7; 48], &mut out), Err(RecordFault::Damaged));
    }
}
