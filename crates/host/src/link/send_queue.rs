//! Frames on their way out: queued, packed where that is worth it, held back by a rate, and gathered into vectored writes.
//!
//! On a link that packs, frames wait until the kernel has taken those before, and then go on together, packed, or as they
//! are where that is not worth it ([`packer`](super::packer)), and no faster than allowed ([`limiter`](super::limiter));
//! all numbers are of the frames' own bytes, whatever went over the line.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::wire::{FrameHeader, FrameKind, HEADER_BYTES};
use engine::{SendPayload, Slice};

use super::limiter::RateLimiter;
use super::link_stream::LinkStream;
use super::packer::{BATCH_BYTES, Packer, PackingState};
use super::{Amount, FrameOptions};
use crate::buffers::Buffer;
use crate::tls::ChannelError;

/// Slices of one vectored write: 64 frames of one payload each; the kernel's own bound is 1 024.
const SLICES_MAX: usize = 128;
const _: () = assert!(engine::limits::SLICES_MAX < SLICES_MAX);

enum OutgoingPayload {
    None,
    Control(Vec<u8>),
    Data(Arc<Buffer>, Range<usize>),
    Gathered(Vec<(Arc<Buffer>, Range<usize>)>),
}

impl OutgoingPayload {
    /// As they follow each other on the wire.
    fn parts(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let (one, more): (&[u8], &[_]) = match self {
            OutgoingPayload::None => (&[], &[]),
            OutgoingPayload::Control(bytes) => (bytes, &[]),
            OutgoingPayload::Data(buffer, range) => (&buffer[range.clone()], &[]),
            OutgoingPayload::Gathered(pieces) => (&[], pieces),
        };
        std::iter::once(one).chain(more.iter().map(|(buffer, range)| &buffer[range.clone()]))
    }

    fn new(payload: SendPayload) -> OutgoingPayload {
        match payload {
            SendPayload::None => OutgoingPayload::None,
            SendPayload::Control(bytes) => OutgoingPayload::Control(bytes),
            SendPayload::Data(slice) => {
                let (buffer, range) = content_of(&slice);
                OutgoingPayload::Data(buffer, range)
            }
            SendPayload::Gathered(slices) => OutgoingPayload::Gathered(slices.iter().map(content_of).collect()),
        }
    }
}

fn content_of(slice: &Slice) -> (Arc<Buffer>, Range<usize>) {
    let buffer = slice.buf.shared::<Buffer>().expect("payload is always one of this host's buffers");
    let range = slice.start as usize..slice.start as usize + slice.length as usize;
    assert!(range.end <= buffer.len(), "a slice lies inside its buffer");
    (buffer, range)
}

struct OutgoingFrame {
    header: [u8; HEADER_BYTES],
    payload: OutgoingPayload,
    is_heartbeat: bool,
    /// Of header and payload.
    len: usize,
}

impl OutgoingFrame {
    fn new(header: FrameHeader, payload: SendPayload) -> OutgoingFrame {
        let payload = OutgoingPayload::new(payload);
        let is_heartbeat = matches!(header.kind, FrameKind::Heartbeat | FrameKind::HeartbeatEcho);
        let header = header.sealed_parts(payload.parts()).encode();
        OutgoingFrame {
            len: HEADER_BYTES + payload.parts().map(<[u8]>::len).sum::<usize>(),
            header,
            payload,
            is_heartbeat,
        }
    }

    fn parts(&self) -> impl Iterator<Item = &[u8]> + Clone {
        std::iter::once(&self.header[..]).chain(self.payload.parts())
    }
}

/// What goes to the kernel next.
enum OutgoingUnit {
    Frame(OutgoingFrame),
    /// Frames in their envelope, and what they were before.
    Packed(Vec<u8>, u64),
}

impl OutgoingUnit {
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (packed, frame): (&[u8], _) = match self {
            OutgoingUnit::Frame(frame) => (&[], Some(frame.parts())),
            OutgoingUnit::Packed(bytes, _) => (bytes, None),
        };
        std::iter::once(packed).chain(frame.into_iter().flatten())
    }

    fn len(&self) -> usize {
        match self {
            OutgoingUnit::Frame(frame) => frame.len,
            OutgoingUnit::Packed(bytes, _) => bytes.len(),
        }
    }

    /// Bytes of frames in its first `taken` bytes.
    fn plain_bytes(&self, taken: usize) -> u64 {
        match self {
            OutgoingUnit::Frame(_) => taken as u64,
            OutgoingUnit::Packed(bytes, plain_bytes) => plain_bytes * taken as u64 / bytes.len() as u64,
        }
    }
}

/// What came of a write.
pub(super) struct SendResult {
    pub bytes: usize,
    /// The socket took less than it was offered.
    pub is_full: bool,
    pub now: Instant,
}

/// Frames the kernel has not taken yet.
#[derive(Default)]
pub(super) struct SendQueue {
    frames: VecDeque<OutgoingUnit>,
    /// Bytes of the first one that the kernel has taken.
    taken_of_first: usize,
    /// On a link that packs or has a rate: what follows.
    waiting: VecDeque<OutgoingFrame>,
    packer: Option<Packer>,
    limiter: Option<RateLimiter>,
    /// Of frames, as all numbers here.
    queued_bytes: u64,
    /// Of these, what the line has encrypted and the kernel has not taken.
    sealed_bytes: u64,
    /// Taken since the data path last heard of it.
    unreported_bytes: u64,
    sent: Amount,
    /// Of these, what did not go from where it stood.
    copied_bytes: u64,
}

impl SendQueue {
    /// Seals a frame (length and checksum of its payload) and queues it.
    pub fn push(&mut self, header: FrameHeader, payload: SendPayload) {
        self.push_frame(OutgoingFrame::new(header, payload));
    }

    fn push_frame(&mut self, frame: OutgoingFrame) {
        self.queued_bytes += frame.len as u64;
        // Whether the peer is alive is not asked in the queue. What is with the kernel ends with a whole frame.
        let is_urgent = self.limiter.is_some() && frame.is_heartbeat;
        if self.takes_turns() && !is_urgent {
            self.waiting.push_back(frame);
        } else {
            self.frames.push_back(OutgoingUnit::Frame(frame));
        }
    }

    /// Frames do not go to the kernel at once.
    fn takes_turns(&self) -> bool {
        self.packer.is_some() || self.limiter.is_some()
    }

    /// Other ways, or none; what waits goes on under them.
    pub fn set_flow(&mut self, flow: Option<FrameOptions>) {
        let (packer, rate) = flow.map_or((None, None), |flow| (Packer::new(flow.compression), flow.rate));
        let is_same = self.packer.as_ref().map(Packer::wanted) == packer.as_ref().map(Packer::wanted);
        if !is_same {
            self.packer = packer;
        }
        if self.limiter.map(|limiter| limiter.bytes_per_second()) != rate {
            self.limiter = rate.map(|rate| RateLimiter::new(rate, Instant::now()));
        }
        if !self.takes_turns() {
            self.frames.extend(self.waiting.drain(..).map(OutgoingUnit::Frame));
        }
    }

    pub fn clear(&mut self) {
        self.frames.clear();
        self.waiting.clear();
    }

    /// How long what waits is held back by the rate; `None`: it is not.
    pub fn pause(&mut self, now: Instant) -> Option<Duration> {
        if !self.frames.is_empty() || self.waiting.is_empty() {
            return None;
        }
        self.limiter.as_mut()?.pause(now)
    }

    /// Frames are packed, or may be: so they wait for others until all before them is with the kernel.
    pub fn gathers(&self) -> bool {
        self.packer
            .as_ref()
            .is_some_and(|packer| matches!(packer.doing(), PackingState::Packing(_) | PackingState::Nothing))
    }

    /// Bytes of frames that the kernel has not taken.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// What the kernel took since this was last asked.
    pub fn take_unreported_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.unreported_bytes)
    }

    pub fn sent(&self) -> Amount {
        self.sent
    }

    /// Bytes of frames sent that were copied on their way to the kernel.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    pub fn doing(&self) -> PackingState {
        self.packer.as_ref().map_or(PackingState::Off, Packer::doing)
    }

    /// One vectored write of what may go now.
    ///
    /// # Errors
    /// The line is of no more use.
    pub fn send(&mut self, line: &LinkStream) -> Result<SendResult, ChannelError> {
        self.prepare(Instant::now());
        let (bytes, offered) = {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.gather(&mut slices);
            let offered: usize = slices[..count].iter().map(|slice| slice.len()).sum();
            (line.try_write(&mut slices[..count])?, offered)
        };
        let is_anew = line.is_encrypted();
        self.took(bytes, line.is_pending(), is_anew);
        let now = Instant::now();
        let is_full = bytes < offered || line.is_pending();
        // A rate is a line's as well.
        let is_held = self.pause(now).is_some();
        if let Some(packer) = &mut self.packer {
            packer.line_took(now, bytes as u64, is_full || is_held);
        }
        Ok(SendResult { bytes, is_full, now })
    }

    /// Takes from what waits, as far as the rate allows and up to a first batch that is worth packing. While nothing is, the
    /// kernel is offered as much as without a packer.
    fn prepare(&mut self, now: Instant) {
        if !self.frames.is_empty() && (self.limiter.is_some() || self.gathers()) {
            return;
        }
        while !self.waiting.is_empty() && self.frames.len() < SLICES_MAX / 2 {
            if let Some(limiter) = &mut self.limiter
                && limiter.pause(now).is_some()
            {
                return;
            }
            let (count, bytes) = self.batch();
            let parts = self.waiting.range(..count).flat_map(OutgoingFrame::parts);
            let packed = self.packer.as_mut().and_then(|packer| packer.pack(now, parts));
            let is_packed = packed.is_some();
            if let Some(limiter) = &mut self.limiter {
                limiter.pay(packed.as_ref().map_or(bytes, Vec::len) as u64);
            }
            let frames = self.waiting.drain(..count);
            match packed {
                Some(packed) => self.frames.push_back(OutgoingUnit::Packed(packed, bytes as u64)),
                None => self.frames.extend(frames.map(OutgoingUnit::Frame)),
            }
            if is_packed {
                return;
            }
        }
    }

    /// Frames that go on together: those that are packed together, or one.
    fn batch(&self) -> (usize, usize) {
        let (mut count, mut bytes) = (1, self.waiting[0].len);
        while let Some(next) = self.waiting.get(count)
            && self.packer.is_some()
            && bytes + next.len <= BATCH_BYTES
        {
            (count, bytes) = (count + 1, bytes + next.len);
        }
        (count, bytes)
    }

    fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let (mut count, mut skip) = (0, self.taken_of_first);
        for part in self.frames.iter().flat_map(OutgoingUnit::parts) {
            let rest = &part[skip.min(part.len())..];
            skip -= part.len() - rest.len();
            if rest.is_empty() {
                continue;
            }
            if count == SLICES_MAX {
                break;
            }
            slices[count] = IoSlice::new(rest);
            count += 1;
        }
        count
    }

    /// The line took care of so many bytes; `is_sealed`: some of them wait in it for the kernel; `is_anew`: it copies what it is given.
    fn took(&mut self, bytes: usize, is_sealed: bool, is_anew: bool) {
        let (mut left, mut plain_bytes) = (bytes, 0);
        while left > 0 {
            let first = self.frames.front().expect("no more is taken than was given");
            let step = left.min(first.len() - self.taken_of_first);
            let taken = self.taken_of_first + step;
            let plain = first.plain_bytes(taken) - first.plain_bytes(self.taken_of_first);
            plain_bytes += plain;
            if is_anew || matches!(first, OutgoingUnit::Packed(..)) {
                self.copied_bytes += plain;
            }
            self.taken_of_first = taken;
            if taken == first.len() {
                self.frames.pop_front();
                self.taken_of_first = 0;
            }
            left -= step;
        }
        self.sent.wire_bytes += bytes as u64;
        self.sent.plain_bytes += plain_bytes;
        self.sealed_bytes += plain_bytes;
        if !is_sealed {
            self.queued_bytes -= self.sealed_bytes;
            self.unreported_bytes += self.sealed_bytes;
            self.sealed_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::packer::{Compression, Method};
    use super::*;
    use engine::{Buf, GroupId, SessionId};

    #[test]
    fn partial_writes_continue_at_the_right_byte() {
        let mut queue = SendQueue::default();
        let mut all = Vec::new();
        for n in 0..6u8 {
            let buffer = Arc::new(Buffer::detached(64));
            let slice = Slice { buf: Buf::new(buffer), start: 8, length: 40 };
            let payload = match n % 4 {
                0 => SendPayload::None,
                1 => SendPayload::Control(vec![n; 17]),
                2 => SendPayload::Data(slice),
                _ => SendPayload::Gathered(vec![slice.clone(), Slice { start: 0, length: 3, ..slice }]),
            };
            let header = FrameHeader::new(FrameKind::Tick, SessionId(1), GroupId(u32::from(n)));
            let frame = OutgoingFrame::new(header, payload);
            all.extend(frame.parts().collect::<Vec<_>>().concat());
            queue.push_frame(frame);
        }
        let mut rest = &all[..];
        for step in [1, 95, 3, 110, 1, 50].into_iter().cycle() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = queue.gather(&mut slices);
            let gathered: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).collect();
            assert_eq!(gathered, rest);
            assert_eq!(queue.queued_bytes, rest.len() as u64);
            if rest.is_empty() {
                break;
            }
            let step = step.min(rest.len());
            queue.took(step, false, step % 2 == 1);
            rest = &rest[step..];
        }
        assert_eq!(queue.unreported_bytes, all.len() as u64);
        assert!(queue.frames.is_empty());
    }

    // proves: rule 4
    #[test]
    fn content_that_stands_in_several_places_goes_out_from_there() {
        let buffer = Arc::new(Buffer::detached(8192));
        let (first, second) = (buffer[..4096].as_ptr(), buffer[4096..].as_ptr());
        let slice = |start| Slice { buf: Buf::new(buffer.clone()), start, length: 4096 };
        let header = FrameHeader { length: 8192, ..FrameHeader::new(FrameKind::Data, SessionId(1), GroupId(1)) };
        let mut queue = SendQueue::default();
        queue.push(header, SendPayload::Gathered(vec![slice(4096), slice(0)]));
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = queue.gather(&mut slices);
        let places: Vec<_> = slices[1..count].iter().map(|slice| slice.as_ptr()).collect();
        assert_eq!(places, [second, first], "no byte of it is copied");
        let sealed = FrameHeader::decode(slices[0][..].try_into().expect("a header")).expect("a good one");
        let payload = [&buffer[4096..], &buffer[..4096]].concat();
        assert_eq!(sealed.check_payload(&payload), Ok(()));
        queue.took(HEADER_BYTES + 4096, false, false);
        assert_eq!(queue.copied_bytes(), 0);
        queue.took(4096, false, true);
        assert_eq!(queue.copied_bytes(), 4096, "an encrypted line writes it anew");
    }

    #[test]
    fn what_is_packed_counts_as_copied() {
        let mut queue = SendQueue { packer: Packer::new(Compression::Always(Method::Lz4)), ..SendQueue::default() };
        let header = FrameHeader::new(FrameKind::Tick, SessionId(1), GroupId(1));
        queue.push(header, SendPayload::Control(vec![7; 4096]));
        queue.prepare(Instant::now());
        let packed = queue.frames[0].len();
        queue.took(packed, false, false);
        assert_eq!(queue.copied_bytes(), queue.sent().plain_bytes);
    }

    // proves: P10
    /// More pieces wait than one write takes: what is left goes with the next.
    #[test]
    fn a_write_takes_as_many_pieces_as_it_can() {
        let buffer = Arc::new(Buffer::detached(64));
        let slice = Slice { buf: Buf::new(buffer), start: 0, length: 64 };
        let mut queue = SendQueue::default();
        let mut left = 0;
        for _ in 0..5 {
            let pieces = vec![slice.clone(); engine::limits::SLICES_MAX];
            left += HEADER_BYTES + 64 * pieces.len();
            queue.push(FrameHeader::new(FrameKind::Data, SessionId(1), GroupId(1)), SendPayload::Gathered(pieces));
        }
        while left > 0 {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = queue.gather(&mut slices);
            let offered: usize = slices[..count].iter().map(|slice| slice.len()).sum();
            assert!(offered == left || count == SLICES_MAX);
            queue.took(offered, false, false);
            left -= offered;
        }
        assert!(queue.frames.is_empty());
    }

    /// What the kernel is offered of three frames, of which the last two come when the first was already offered.
    fn offered(wanted: Compression) -> (usize, u64) {
        let mut queue = SendQueue { packer: Packer::new(wanted), ..SendQueue::default() };
        for n in 0..3 {
            let header = FrameHeader::new(FrameKind::Tick, SessionId(1), GroupId(1));
            queue.push(header, SendPayload::Control(vec![n; 4096]));
            queue.prepare(Instant::now());
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = queue.gather(&mut slices);
        (slices[..count].iter().map(|slice| slice.len()).sum(), queue.queued_bytes)
    }

    #[test]
    fn frames_wait_for_each_other_only_where_they_are_packed() {
        let (without, all) = offered(Compression::Off);
        assert_eq!(without as u64, all);
        // Nobody has waited for the line: nothing is packed.
        assert_eq!(offered(Compression::Auto), (without, all));
        let (packed, all) = offered(Compression::Always(Method::Lz4));
        assert!((packed as u64) < all / 3, "the first one alone, and smaller: {packed} of {all}");
    }
}
