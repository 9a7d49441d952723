//! Bytes of a stream become frames, without a byte of I/O: the caller reads into [`FrameReader::space`] and takes frames
//! out with [`FrameReader::next`].
//!
//! A sorting office: everything lands on one large table; small letters are read off the table, and for a parcel that is
//! only half there a crate is fetched, so that its rest goes straight into the crate and never over the table.
//!
//! What must hold:
//! * nothing is allocated before a header passed its own checksum, its session and its kind's length;
//! * payload of volume content is copied at most once (off the table), what had not arrived yet not at all; packed frames
//!   ([`envelope`](super::envelope)) are unpacked beside the table first, and then taken from there the same way;
//! * after the first violation the reader must be dropped: where the next frame begins is then unknown.

use std::fmt;
use std::io::IoSliceMut;
use std::sync::Arc;

use engine::wire::{FrameError, FrameHeader, HEADER_BYTES};
use engine::{Buf, FramePayload, SessionId, limits};

use super::Amount;
use super::envelope::{self, ENVELOPE_BYTES, Envelope, PackError};
use crate::buffers::Buffer;

/// Bytes read at once. Four times the largest control frame, so that one is always whole on the table.
pub const CHUNK_BYTES: usize = 256 << 10;

const _: () = assert!(CHUNK_BYTES as u64 >= 2 * (limits::CONTROL_BYTES_MAX + HEADER_BYTES as u64));

/// Why a stream of frames is not believed any further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamError {
    Frame(FrameError),
    /// A frame of another session than this connection's: left over, or forged (rule 18).
    WrongSession {
        ours: SessionId,
        theirs: SessionId,
    },
    /// Volume content without content.
    EmptyData,
    Pack(PackError),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Frame(error) => error.fmt(f),
            StreamError::Pack(error) => error.fmt(f),
            StreamError::WrongSession { ours, theirs } => {
                write!(
                    f,
                    "the peer sent a frame of session {:016x}, this connection is session {:016x}",
                    theirs.0, ours.0
                )
            }
            StreamError::EmptyData => write!(f, "the peer sent a data frame without data"),
        }
    }
}

impl From<FrameError> for StreamError {
    fn from(error: FrameError) -> StreamError {
        StreamError::Frame(error)
    }
}

impl From<PackError> for StreamError {
    fn from(error: PackError) -> StreamError {
        StreamError::Pack(error)
    }
}

/// What comes next.
#[derive(Debug)]
pub enum NextFrame {
    /// A frame, header and payload checked.
    Frame(FrameHeader, FramePayload),
    /// Nothing whole is left: read into [`FrameReader::space`].
    Bytes,
    /// No buffer of this many bytes was to be had: call again when one may be free, and read nothing until then.
    Buffer(usize),
}

/// Cuts a stream of bytes into checked frames of one session.
pub struct FrameReader {
    session: SessionId,
    chunk: Box<[u8]>,
    /// Bytes on the table that are not part of a frame yet: `chunk[start..end]`.
    start: usize,
    end: usize,
    /// A header was taken and its payload is still due.
    header: Option<FrameHeader>,
    /// The payload that is being filled, and how far.
    data: Option<(Buffer, usize)>,
    packed: Packed,
    received: Amount,
}

/// Packed frames, first as they arrive and then unpacked. Memory is fetched when there are any, and kept.
#[derive(Default)]
struct Packed {
    /// Their content is due; so much of it has arrived.
    envelope: Option<(Envelope, usize)>,
    bytes: Vec<u8>,
    /// What was unpacked and not taken: `plain[start..end]`.
    plain: Vec<u8>,
    start: usize,
    end: usize,
}

impl Packed {
    /// What of the content has not arrived.
    fn due(&mut self) -> &mut [u8] {
        match self.envelope {
            Some((envelope, arrived)) => &mut self.bytes[arrived..envelope.packed_bytes as usize],
            None => &mut [],
        }
    }

    fn begin(&mut self, envelope: Envelope) {
        let grow = |memory: &mut Vec<u8>, bytes: u32| {
            if memory.len() < bytes as usize {
                memory.resize(bytes as usize, 0);
            }
        };
        grow(&mut self.bytes, envelope.packed_bytes);
        grow(&mut self.plain, envelope.plain_bytes);
        self.envelope = Some((envelope, 0));
    }

    /// Frames are being taken out of an envelope: until the end of its last one.
    fn is_open(&self) -> bool {
        self.end > 0
    }

    /// What the next bytes of frames are taken from.
    fn or<'a>(&'a self, table: &'a [u8]) -> &'a [u8] {
        if self.is_open() { &self.plain[self.start..self.end] } else { table }
    }
}

impl FrameReader {
    pub fn new(session: SessionId) -> FrameReader {
        FrameReader {
            session,
            chunk: vec![0; CHUNK_BYTES].into(),
            start: 0,
            end: 0,
            header: None,
            data: None,
            packed: Packed::default(),
            received: Amount::default(),
        }
    }

    /// What has arrived, and what it was before it was packed.
    pub fn received(&self) -> Amount {
        self.received
    }

    /// Bytes of an unfinished frame have arrived: an end of the stream now is a truncation.
    pub fn is_inside_frame(&self) -> bool {
        self.start != self.end || self.header.is_some() || self.packed.envelope.is_some()
    }

    /// Where the next bytes belong, in this order. Never empty after [`NextFrame::Bytes`].
    pub fn space(&mut self) -> [IoSliceMut<'_>; 2] {
        if self.start > 0 {
            self.chunk.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let rest: &mut [u8] = match &mut self.data {
            Some((buffer, filled)) => &mut buffer[*filled..],
            None => self.packed.due(),
        };
        [IoSliceMut::new(rest), IoSliceMut::new(&mut self.chunk[self.end..])]
    }

    /// `count` bytes were written to the slices of [`FrameReader::space`].
    pub fn filled(&mut self, count: usize) {
        let mut on_table = count;
        self.received.wire_bytes += count as u64;
        self.received.plain_bytes += count as u64;
        if let Some((buffer, filled)) = &mut self.data {
            let into_buffer = count.min(buffer.len() - *filled);
            *filled += into_buffer;
            on_table -= into_buffer;
        } else if let Some((envelope, arrived)) = &mut self.packed.envelope {
            let into_packed = count.min(envelope.packed_bytes as usize - *arrived);
            *arrived += into_packed;
            on_table -= into_packed;
        }
        self.end += on_table;
        assert!(self.end <= self.chunk.len(), "more was filled than there was space");
    }

    /// The next frame. `take` fetches a buffer of exactly so many bytes for volume content.
    pub fn next(&mut self, take: impl FnOnce(usize) -> Option<Buffer>) -> Result<NextFrame, StreamError> {
        self.unpack()?;
        let Some(header) = self.take_header()? else { return self.wants_bytes() };
        let length = header.payload_bytes as usize;
        if !header.kind.carries_data() {
            return self.control(header, length);
        }
        if self.data.is_none() {
            let Some(buffer) = take(length) else { return Ok(NextFrame::Buffer(length)) };
            assert_eq!(buffer.len(), length, "the pool gives what was asked for");
            self.data = Some((buffer, 0));
        }
        self.fill_from_table();
        match self.data.take() {
            Some((buffer, filled)) if filled == length => {
                header.check_payload(&buffer)?;
                self.header = None;
                Ok(NextFrame::Frame(header, FramePayload::Data(Buf::new(Arc::new(buffer)))))
            }
            unfinished => {
                self.data = unfinished;
                self.wants_bytes()
            }
        }
    }

    /// More has to arrive; out of an envelope nothing more can come.
    fn wants_bytes(&self) -> Result<NextFrame, StreamError> {
        if self.packed.is_open() { Err(PackError::FrameCutShort.into()) } else { Ok(NextFrame::Bytes) }
    }

    fn here(&self) -> &[u8] {
        self.packed.or(&self.chunk[self.start..self.end])
    }

    fn took(&mut self, bytes: usize) {
        if self.packed.is_open() {
            self.packed.start += bytes;
        } else {
            self.start += bytes;
        }
    }

    /// Between two frames: takes an envelope off the table, gathers its content, and unpacks it once it is whole.
    fn unpack(&mut self) -> Result<(), StreamError> {
        if self.header.is_some() || self.packed.start < self.packed.end {
            return Ok(());
        }
        (self.packed.start, self.packed.end) = (0, 0);
        let table = &self.chunk[self.start..self.end];
        if self.packed.envelope.is_none() {
            let Some(bytes) = table.first_chunk::<ENVELOPE_BYTES>() else { return Ok(()) };
            if bytes[..4] != envelope::MAGIC {
                return Ok(());
            }
            self.packed.begin(Envelope::decode(bytes)?);
            self.start += ENVELOPE_BYTES;
        }
        let table = &self.chunk[self.start..self.end];
        let due = self.packed.due();
        let count = due.len().min(table.len());
        due[..count].copy_from_slice(&table[..count]);
        self.start += count;
        let Some((envelope, arrived)) = &mut self.packed.envelope else { return Ok(()) };
        *arrived += count;
        let (packed_bytes, plain_bytes) = (envelope.packed_bytes as usize, envelope.plain_bytes as usize);
        if *arrived < packed_bytes {
            return Ok(());
        }
        envelope.unpack(&self.packed.bytes[..packed_bytes], &mut self.packed.plain[..plain_bytes])?;
        (self.packed.envelope, self.packed.start, self.packed.end) = (None, 0, plain_bytes);
        self.received.plain_bytes += (plain_bytes - packed_bytes - ENVELOPE_BYTES) as u64;
        Ok(())
    }

    fn take_header(&mut self) -> Result<Option<FrameHeader>, StreamError> {
        if self.header.is_some() {
            return Ok(self.header);
        }
        // Packed content may lie behind on the table, but what is due before it comes first.
        if self.packed.envelope.is_some() {
            return Ok(None);
        }
        let Some(bytes) = self.here().first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = FrameHeader::decode(bytes)?;
        if header.session != self.session {
            return Err(StreamError::WrongSession { ours: self.session, theirs: header.session });
        }
        if header.kind.carries_data() && header.payload_bytes == 0 {
            return Err(StreamError::EmptyData);
        }
        self.took(HEADER_BYTES);
        self.header = Some(header);
        Ok(self.header)
    }

    fn control(&mut self, header: FrameHeader, length: usize) -> Result<NextFrame, StreamError> {
        let Some(payload) = self.here().get(..length) else { return self.wants_bytes() };
        header.check_payload(payload)?;
        let payload = if length == 0 { FramePayload::None } else { FramePayload::Control(payload.to_vec()) };
        self.took(length);
        self.header = None;
        Ok(NextFrame::Frame(header, payload))
    }

    fn fill_from_table(&mut self) {
        let Some((buffer, filled)) = &mut self.data else { return };
        let here = self.packed.or(&self.chunk[self.start..self.end]);
        let count = (buffer.len() - *filled).min(here.len());
        buffer[*filled..*filled + count].copy_from_slice(&here[..count]);
        *filled += count;
        self.took(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::GroupId;
    use engine::wire::FrameKind;

    const SESSION: SessionId = SessionId(9);

    fn frame(kind: FrameKind, payload: &[u8]) -> Vec<u8> {
        let mut header = FrameHeader::new(kind, SESSION, GroupId(1)).sealed(payload);
        header.length = if kind.carries_data() { payload.len() as u64 } else { 0 };
        [&header.encode()[..], payload].concat()
    }

    /// Feeds `bytes` in pieces of the lengths that `piece` gives; payloads of all frames, then the error if any.
    fn read(bytes: &[u8], mut piece: impl FnMut() -> usize) -> (Vec<(FrameKind, Vec<u8>)>, Option<StreamError>) {
        let mut reader = FrameReader::new(SESSION);
        let (mut frames, mut rest) = (Vec::new(), bytes);
        loop {
            match reader.next(|length| Some(Buffer::detached(length))) {
                Err(error) => return (frames, Some(error)),
                Ok(NextFrame::Buffer(_)) => unreachable!("buffers are always to be had here"),
                Ok(NextFrame::Frame(header, payload)) => {
                    let bytes = match payload {
                        FramePayload::None => Vec::new(),
                        FramePayload::Control(bytes) => bytes,
                        FramePayload::Data(buf) => buf.get::<Buffer>().expect("a host buffer").to_vec(),
                    };
                    frames.push((header.kind, bytes));
                }
                Ok(NextFrame::Bytes) => {
                    if rest.is_empty() {
                        assert_eq!(reader.is_inside_frame(), frames.len() < 5, "truncation is seen");
                        return (frames, None);
                    }
                    let mut count = piece().min(rest.len());
                    let mut filled = 0;
                    for mut space in reader.space() {
                        let n = space.len().min(count);
                        space[..n].copy_from_slice(&rest[..n]);
                        (rest, count, filled) = (&rest[n..], count - n, filled + n);
                    }
                    assert!(filled > 0, "a reader that wants bytes has space for them");
                    reader.filled(filled);
                }
            }
        }
    }

    fn stream() -> (Vec<u8>, Vec<(FrameKind, Vec<u8>)>) {
        let big: Vec<u8> = (0..limits::PART_BYTES_MAX).map(|n| (n * 7 % 251) as u8).collect();
        let frames = vec![
            (FrameKind::GroupHello, vec![3; limits::CONTROL_BYTES_MAX as usize]),
            (FrameKind::Data, big),
            (FrameKind::Void, Vec::new()),
            (FrameKind::Data, vec![5; 512]),
            (FrameKind::Probe, vec![6; 32]),
        ];
        (frames.iter().flat_map(|(kind, payload)| frame(*kind, payload)).collect(), frames)
    }

    #[test]
    fn any_chunking_gives_the_same_frames() {
        let (bytes, frames) = stream();
        for size in [97, 4096, 65537, 1 << 20, 1 << 22] {
            assert_eq!(read(&bytes, || size), (frames.clone(), None), "pieces of {size}");
        }
        let mut n = 0;
        assert_eq!(
            read(&bytes, || {
                n = n * 75 % 65537 + 1;
                n
            }),
            (frames, None)
        );
    }

    #[test]
    fn single_bytes_give_the_same_frames() {
        let bytes: Vec<u8> = (0..5).flat_map(|n| frame(FrameKind::Data, &[n; 600])).collect();
        assert_eq!(read(&bytes, || 1).0.len(), 5);
    }

    fn packed(plain: &[u8]) -> Vec<u8> {
        let packed = lz4_flex::block::compress(plain);
        let (packed_bytes, plain_bytes) = (packed.len() as u32, plain.len() as u32);
        let envelope = Envelope { packing: envelope::Packing::Lz4, packed_bytes, plain_bytes };
        [&envelope.encode()[..], &packed].concat()
    }

    #[test]
    fn packed_frames_are_the_same_frames_in_any_chunking() {
        let (_, frames) = stream();
        let one = |n: usize| frame(frames[n].0, &frames[n].1);
        let bytes = [packed(&one(0)), packed(&one(1)), one(2), packed(&[one(3), one(2), one(4)].concat())].concat();
        let expected: Vec<_> = [0, 1, 2, 3, 2, 4].map(|n| frames[n].clone()).into();
        for size in [1, 97, 4096, 65537, 1 << 22] {
            assert_eq!(read(&bytes, || size), (expected.clone(), None), "pieces of {size}");
        }
        let whole: usize = expected.iter().map(|(_, payload)| HEADER_BYTES + payload.len()).sum();
        let mut reader = FrameReader::new(SESSION);
        let mut rest = &bytes[..];
        loop {
            match reader.next(|length| Some(Buffer::detached(length))).expect("good frames") {
                NextFrame::Bytes if rest.is_empty() => break,
                NextFrame::Bytes => {
                    let mut filled = 0;
                    for mut space in reader.space() {
                        filled += std::io::Read::read(&mut rest, &mut space).expect("from memory");
                    }
                    reader.filled(filled);
                }
                _ => {}
            }
        }
        let amount = Amount { plain_bytes: whole as u64, wire_bytes: bytes.len() as u64 };
        assert_eq!(reader.received(), amount);
    }

    #[test]
    fn an_envelope_holds_whole_frames_and_comes_only_where_it_may() {
        let data = frame(FrameKind::Data, &[7; 4096]);
        let cut_short = Some(StreamError::Pack(PackError::FrameCutShort));
        for cut in [1, 95, HEADER_BYTES, HEADER_BYTES + 1, data.len() - 1] {
            // The rest follows as it is: nothing may be joined across the edge.
            let front = [data.clone(), data[..cut].to_vec()].concat();
            let bytes = [packed(&front), data[cut..].to_vec()].concat();
            assert_eq!(read(&bytes, || 1 << 20).1, cut_short, "cut at {cut}");
        }
        let inside = [&frame(FrameKind::Void, &[])[..], &packed(&data), &[0; 200]].concat();
        assert_eq!(read(&packed(&inside), || 1 << 20).1, Some(FrameError::NotAFrame.into()));
    }

    #[test]
    fn without_a_buffer_nothing_moves_until_one_is_free() {
        let mut reader = FrameReader::new(SESSION);
        let bytes = frame(FrameKind::Data, &[1; 512]);
        let [_, mut table] = reader.space();
        table[..bytes.len()].copy_from_slice(&bytes);
        reader.filled(bytes.len());
        for _ in 0..3 {
            assert!(matches!(reader.next(|_| None), Ok(NextFrame::Buffer(512))));
        }
        assert!(matches!(reader.next(|n| Some(Buffer::detached(n))), Ok(NextFrame::Frame(..))));
        assert!(!reader.is_inside_frame());
    }

    #[test]
    fn damage_another_session_and_empty_data_end_the_stream() {
        let good = frame(FrameKind::Data, &[1; 512]);
        for bit in (0..good.len() * 8).step_by(13) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(read(&bad, || 4096).1, Some(StreamError::Frame(_))), "bit {bit}");
        }
        let foreign = FrameHeader::new(FrameKind::Void, SessionId(8), GroupId(1)).encode();
        assert_eq!(read(&foreign, || 96).1, Some(StreamError::WrongSession { ours: SESSION, theirs: SessionId(8) }));
        assert_eq!(read(&frame(FrameKind::Data, &[]), || 96).1, Some(StreamError::EmptyData));
    }

    #[test]
    fn every_violation_is_a_sentence() {
        let errors = [
            StreamError::WrongSession { ours: SESSION, theirs: SessionId(8) },
            StreamError::EmptyData,
            FrameError::HeaderDamaged.into(),
            PackError::Damaged.into(),
            PackError::Unknown(3).into(),
            PackError::Lengths { packed: 1, plain: 2 }.into(),
            PackError::DoesNotUnpack { plain: 3 }.into(),
            PackError::FrameCutShort.into(),
        ];
        for error in errors {
            assert!(error.to_string().split(' ').count() > 4, "{error}");
        }
    }
}
