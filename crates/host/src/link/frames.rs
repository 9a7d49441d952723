//! Bytes of a stream become frames, without a byte of I/O: the caller reads into [`FrameReader::space`] and takes frames
//! out with [`FrameReader::next`].
//!
//! A sorting office: everything lands on one large table; small letters are read off the table, and for a parcel that is
//! only half there a crate is fetched, so that its rest goes straight into the crate and never over the table.
//!
//! What must hold:
//! * nothing is allocated before a header passed its own checksum, its session and its kind's length;
//! * payload of volume content is copied at most once (off the table), what had not arrived yet not at all;
//! * after the first violation the reader must be dropped: where the next frame begins is then unknown.

use std::fmt;
use std::io::IoSliceMut;
use std::sync::Arc;

use engine::wire::{FrameError, HEADER_BYTES, Header};
use engine::{Buf, FramePayload, SessionId, limits};

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
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Frame(error) => error.fmt(f),
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

/// What comes next.
#[derive(Debug)]
pub enum Next {
    /// A frame, header and payload checked.
    Frame(Header, FramePayload),
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
    header: Option<Header>,
    /// The payload that is being filled, and how far.
    data: Option<(Buffer, usize)>,
}

impl FrameReader {
    pub fn new(session: SessionId) -> FrameReader {
        FrameReader { session, chunk: vec![0; CHUNK_BYTES].into(), start: 0, end: 0, header: None, data: None }
    }

    /// Bytes of an unfinished frame have arrived: an end of the stream now is a truncation.
    pub fn is_inside_frame(&self) -> bool {
        self.start != self.end || self.header.is_some()
    }

    /// Where the next bytes belong, in this order. Never empty after [`Next::Bytes`].
    pub fn space(&mut self) -> [IoSliceMut<'_>; 2] {
        if self.start > 0 {
            self.chunk.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let rest: &mut [u8] = match &mut self.data {
            Some((buffer, filled)) => &mut buffer[*filled..],
            None => &mut [],
        };
        [IoSliceMut::new(rest), IoSliceMut::new(&mut self.chunk[self.end..])]
    }

    /// `count` bytes were written to the slices of [`FrameReader::space`].
    pub fn filled(&mut self, count: usize) {
        let mut on_table = count;
        if let Some((buffer, filled)) = &mut self.data {
            let into_buffer = count.min(buffer.len() - *filled);
            *filled += into_buffer;
            on_table -= into_buffer;
        }
        self.end += on_table;
        assert!(self.end <= self.chunk.len(), "more was filled than there was space");
    }

    /// The next frame. `take` fetches a buffer of exactly so many bytes for volume content.
    pub fn next(&mut self, take: impl FnOnce(usize) -> Option<Buffer>) -> Result<Next, StreamError> {
        let Some(header) = self.take_header()? else { return Ok(Next::Bytes) };
        let length = header.payload_bytes as usize;
        if !header.kind.carries_data() {
            return self.control(header, length);
        }
        if self.data.is_none() {
            let Some(buffer) = take(length) else { return Ok(Next::Buffer(length)) };
            assert_eq!(buffer.len(), length, "the pool gives what was asked for");
            self.data = Some((buffer, 0));
        }
        self.fill_from_table();
        match self.data.take() {
            Some((buffer, filled)) if filled == length => {
                header.check_payload(&buffer)?;
                self.header = None;
                Ok(Next::Frame(header, FramePayload::Data(Buf::new(Arc::new(buffer)))))
            }
            unfinished => {
                self.data = unfinished;
                Ok(Next::Bytes)
            }
        }
    }

    fn take_header(&mut self) -> Result<Option<Header>, StreamError> {
        if self.header.is_some() {
            return Ok(self.header);
        }
        let Some(bytes) = self.chunk[self.start..self.end].first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::decode(bytes)?;
        if header.session != self.session {
            return Err(StreamError::WrongSession { ours: self.session, theirs: header.session });
        }
        if header.kind.carries_data() && header.payload_bytes == 0 {
            return Err(StreamError::EmptyData);
        }
        self.start += HEADER_BYTES;
        self.header = Some(header);
        Ok(self.header)
    }

    fn control(&mut self, header: Header, length: usize) -> Result<Next, StreamError> {
        let Some(payload) = self.chunk[self.start..self.end].get(..length) else { return Ok(Next::Bytes) };
        header.check_payload(payload)?;
        let payload = if length == 0 { FramePayload::None } else { FramePayload::Control(payload.to_vec()) };
        self.start += length;
        self.header = None;
        Ok(Next::Frame(header, payload))
    }

    fn fill_from_table(&mut self) {
        let Some((buffer, filled)) = &mut self.data else { return };
        let count = (buffer.len() - *filled).min(self.end - self.start);
        buffer[*filled..*filled + count].copy_from_slice(&self.chunk[self.start..self.start + count]);
        *filled += count;
        self.start += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::GroupId;
    use engine::wire::Kind;

    const SESSION: SessionId = SessionId(9);

    fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
        let mut header = Header::new(kind, SESSION, GroupId(1)).sealed(payload);
        header.length = if kind.carries_data() { payload.len() as u64 } else { 0 };
        [&header.encode()[..], payload].concat()
    }

    /// Feeds `bytes` in pieces of the lengths that `piece` gives; payloads of all frames, then the error if any.
    fn read(bytes: &[u8], mut piece: impl FnMut() -> usize) -> (Vec<(Kind, Vec<u8>)>, Option<StreamError>) {
        let mut reader = FrameReader::new(SESSION);
        let (mut frames, mut rest) = (Vec::new(), bytes);
        loop {
            match reader.next(|length| Some(Buffer::detached(length))) {
                Err(error) => return (frames, Some(error)),
                Ok(Next::Buffer(_)) => unreachable!("buffers are always to be had here"),
                Ok(Next::Frame(header, payload)) => {
                    let bytes = match payload {
                        FramePayload::None => Vec::new(),
                        FramePayload::Control(bytes) => bytes,
                        FramePayload::Data(buf) => buf.get::<Buffer>().expect("a host buffer").to_vec(),
                    };
                    frames.push((header.kind, bytes));
                }
                Ok(Next::Bytes) => {
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

    fn stream() -> (Vec<u8>, Vec<(Kind, Vec<u8>)>) {
        let big: Vec<u8> = (0..limits::PART_BYTES_MAX).map(|n| (n * 7 % 251) as u8).collect();
        let frames = vec![
            (Kind::GroupHello, vec![3; limits::CONTROL_BYTES_MAX as usize]),
            (Kind::Data, big),
            (Kind::Void, Vec::new()),
            (Kind::Data, vec![5; 512]),
            (Kind::Probe, vec![6; 32]),
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
        let bytes: Vec<u8> = (0..5).flat_map(|n| frame(Kind::Data, &[n; 600])).collect();
        assert_eq!(read(&bytes, || 1).0.len(), 5);
    }

    #[test]
    fn without_a_buffer_nothing_moves_until_one_is_free() {
        let mut reader = FrameReader::new(SESSION);
        let bytes = frame(Kind::Data, &[1; 512]);
        let [_, mut table] = reader.space();
        table[..bytes.len()].copy_from_slice(&bytes);
        reader.filled(bytes.len());
        for _ in 0..3 {
            assert!(matches!(reader.next(|_| None), Ok(Next::Buffer(512))));
        }
        assert!(matches!(reader.next(|n| Some(Buffer::detached(n))), Ok(Next::Frame(..))));
        assert!(!reader.is_inside_frame());
    }

    #[test]
    fn damage_another_session_and_empty_data_end_the_stream() {
        let good = frame(Kind::Data, &[1; 512]);
        for bit in (0..good.len() * 8).step_by(13) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(read(&bad, || 4096).1, Some(StreamError::Frame(_))), "bit {bit}");
        }
        let foreign = Header::new(Kind::Void, SessionId(8), GroupId(1)).encode();
        assert_eq!(read(&foreign, || 96).1, Some(StreamError::WrongSession { ours: SESSION, theirs: SessionId(8) }));
        assert_eq!(read(&frame(Kind::Data, &[]), || 96).1, Some(StreamError::EmptyData));
    }

    #[test]
    fn every_violation_is_a_sentence() {
        let errors = [
            StreamError::WrongSession { ours: SESSION, theirs: SessionId(8) },
            StreamError::EmptyData,
            FrameError::HeaderDamaged.into(),
        ];
        for error in errors {
            assert!(error.to_string().split(' ').count() > 4, "{error}");
        }
    }
}
