//! Frames on the link: one fixed header, then the payload. Byte by byte in docs/protocol.md.
//!
//! A frame is believed in three steps: the header's own checksum, then its session, then the payload's checksum. Only a
//! checked header says how much to read, and never more than [`Kind::payload_max`].

use alloc::vec::Vec;
use core::fmt;

use crate::codec::{Reader, Writer};
use crate::ids::{GroupId, Incarnation, NodeId, Position, Seq, SessionId, VolumeId};
use crate::limits::{CONTROL_BYTES_MAX, PART_BYTES_MAX};
use crate::time::Wall;

/// Bytes of a frame header.
pub const HEADER_BYTES: usize = 96;

/// "FSHR" read as little-endian.
pub const MAGIC: u32 = u32::from_le_bytes(*b"FSHR");

/// Protocol versions, newest first, each with the reason for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Version {
    /// The first: one ordered stream per group, three confirmations, sync in the stream.
    V1 = 1,
}

pub const VERSION: Version = Version::V1;

/// What a frame is. The discriminant is the byte on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Who and where a node stands with one group; first frame of each group on a session, both ways.
    GroupHello = 1,
    /// Primary: a stream begins at `seq`; what was before is covered by the dirty regions to come.
    SyncBegin = 2,
    /// Secondary: ready to receive that stream; `offset` repeats the begin's attempt.
    SyncReady = 3,
    /// Primary: a write, `length` bytes of payload at `offset`.
    Data = 4,
    /// Primary: the range reads as zeroes from here on.
    Zero = 5,
    /// Primary: this number never became a write.
    Void = 6,
    /// Primary: compare this range by hash at this place of the order.
    Probe = 7,
    /// Secondary: the answer, `flags` bit 0 set when the hashes were equal.
    ProbeResult = 8,
    /// Primary: all regions dirty at the stream's begin have been sent; consistent from here.
    SyncEnd = 9,
    /// Secondary: the three confirmations and the window.
    Ack = 10,
    /// Primary: its clock, its mode and state; sent when idle.
    Tick = 11,
    /// Either: I am here; payload is a time that only the sender reads.
    Heartbeat = 12,
    /// Either: the heartbeat's payload sent back.
    HeartbeatEcho = 13,
    /// Either: this node's role or health for the group changed; payload as in GroupHello.
    GroupState = 14,
    /// Either: the session ends by intent; payload is a sentence.
    Goodbye = 15,
}

impl Kind {
    pub fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::*;
        const ALL: [Kind; 15] = [
            GroupHello,
            SyncBegin,
            SyncReady,
            Data,
            Zero,
            Void,
            Probe,
            ProbeResult,
            SyncEnd,
            Ack,
            Tick,
            Heartbeat,
            HeartbeatEcho,
            GroupState,
            Goodbye,
        ];
        ALL.into_iter().find(|k| *k as u8 == byte)
    }

    /// Whether the payload is volume content (goes to aligned memory) or a few control bytes.
    pub fn carries_data(self) -> bool {
        self == Kind::Data
    }

    /// Largest payload this kind may announce.
    pub fn payload_max(self) -> u64 {
        match self {
            Kind::Data => PART_BYTES_MAX,
            Kind::Void | Kind::Zero | Kind::SyncEnd | Kind::SyncReady | Kind::ProbeResult => 0,
            Kind::Probe => 32,
            _ => CONTROL_BYTES_MAX,
        }
    }
}

/// Flags of a frame.
pub mod flags {
    /// Data: the writer waits for `received`: acknowledge receipt at once.
    pub const WANT_RECEIVED: u16 = 1;
    /// Data, Zero: this is resync, not a live write.
    pub const RESYNC: u16 = 2;
    /// Zero: the range must stay allocated.
    pub const NO_HOLE: u16 = 4;
    /// ProbeResult: hashes were equal.
    pub const EQUAL: u16 = 8;
}

/// A frame's header, decoded. Fields that a kind does not use are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub flags: u16,
    pub session: SessionId,
    pub group: GroupId,
    pub volume: VolumeId,
    /// Whose order the number belongs to.
    pub origin: NodeId,
    pub incarnation: Incarnation,
    pub generation_tag: u64,
    pub seq: Seq,
    pub offset: u64,
    /// Length of the range on the volume; for `Data` equal to the payload's length.
    pub length: u64,
    /// The primary's stamp of the write order.
    pub wall: Wall,
    pub payload_bytes: u32,
    pub payload_crc: u32,
}

/// Why a header is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    NotAFrame,
    HeaderDamaged,
    VersionUnknown(u8),
    KindUnknown(u8),
    PayloadTooLong { kind: Kind, bytes: u32 },
    PayloadDamaged { kind: Kind, group: GroupId, seq: Seq },
    LengthsDisagree,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::NotAFrame => write!(f, "the peer sent bytes that are not a frame"),
            FrameError::HeaderDamaged => write!(f, "a frame header arrived damaged (its checksum differs)"),
            FrameError::VersionUnknown(v) => {
                write!(f, "the peer speaks protocol version {v}, this node speaks {}", VERSION as u8)
            }
            FrameError::KindUnknown(k) => write!(f, "the peer sent a frame of unknown kind {k}"),
            FrameError::PayloadTooLong { kind, bytes } => {
                write!(
                    f,
                    "the peer announced {bytes} bytes for a {kind:?} frame, at most {} are allowed",
                    kind.payload_max()
                )
            }
            FrameError::PayloadDamaged { kind, group, seq } => write!(
                f,
                "the payload of a {kind:?} frame (group {}, sequence {}) arrived damaged (its checksum differs)",
                group.0, seq.0
            ),
            FrameError::LengthsDisagree => write!(f, "a data frame's range and payload differ in length"),
        }
    }
}

impl Header {
    /// A header of `kind` with all else empty; the sender fills what the kind needs.
    pub fn new(kind: Kind, session: SessionId, group: GroupId) -> Header {
        Header {
            kind,
            flags: 0,
            session,
            group,
            volume: VolumeId(0),
            origin: NodeId(0),
            incarnation: Incarnation(0),
            generation_tag: 0,
            seq: Seq::NONE,
            offset: 0,
            length: 0,
            wall: Wall(0),
            payload_bytes: 0,
            payload_crc: 0,
        }
    }

    /// Fills in the payload's length and checksum. The engine leaves this to the sender of the bytes.
    pub fn sealed(mut self, payload: &[u8]) -> Header {
        self.payload_bytes = payload.len() as u32;
        self.payload_crc = crc32c::crc32c(payload);
        self
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut w = Writer(Vec::with_capacity(HEADER_BYTES));
        w.u32(MAGIC);
        w.u8(VERSION as u8);
        w.u8(self.kind as u8);
        w.u16(self.flags);
        w.u64(self.session.0);
        w.u64(self.incarnation.0);
        w.u64(self.generation_tag);
        w.u64(self.seq.0);
        w.u64(self.offset);
        w.u64(self.length);
        w.u64(self.wall.0);
        w.u32(self.group.0);
        w.u16(self.volume.0);
        w.u16(self.origin.0);
        w.u32(self.payload_bytes);
        w.u32(self.payload_crc);
        w.pad_to(HEADER_BYTES - 4);
        let crc = crc32c::crc32c(&w.0);
        w.u32(crc);
        w.0.try_into().expect("the fields above fill exactly one header")
    }

    /// Checks and decodes a header: magic, checksum, version, kind, lengths, in this order.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
        let mut r = Reader(bytes);
        let magic = r.u32().unwrap_or_default();
        if magic != MAGIC {
            return Err(FrameError::NotAFrame);
        }
        let stored = u32::from_le_bytes([bytes[92], bytes[93], bytes[94], bytes[95]]);
        if crc32c::crc32c(&bytes[..HEADER_BYTES - 4]) != stored {
            return Err(FrameError::HeaderDamaged);
        }
        let version = r.u8().unwrap_or_default();
        if version != VERSION as u8 {
            return Err(FrameError::VersionUnknown(version));
        }
        let kind_byte = r.u8().unwrap_or_default();
        let kind = Kind::from_byte(kind_byte).ok_or(FrameError::KindUnknown(kind_byte))?;
        let header = Header::fields(kind, &mut r).ok_or(FrameError::HeaderDamaged)?;
        if u64::from(header.payload_bytes) > kind.payload_max() {
            return Err(FrameError::PayloadTooLong { kind, bytes: header.payload_bytes });
        }
        if kind.carries_data() && header.length != u64::from(header.payload_bytes) {
            return Err(FrameError::LengthsDisagree);
        }
        Ok(header)
    }

    fn fields(kind: Kind, r: &mut Reader<'_>) -> Option<Header> {
        Some(Header {
            kind,
            flags: r.u16()?,
            session: SessionId(r.u64()?),
            incarnation: Incarnation(r.u64()?),
            generation_tag: r.u64()?,
            seq: Seq(r.u64()?),
            offset: r.u64()?,
            length: r.u64()?,
            wall: Wall(r.u64()?),
            group: GroupId(r.u32()?),
            volume: VolumeId(r.u16()?),
            origin: NodeId(r.u16()?),
            payload_bytes: r.u32()?,
            payload_crc: r.u32()?,
        })
    }

    /// Checks the payload that followed this header.
    pub fn check_payload(&self, payload: &[u8]) -> Result<(), FrameError> {
        if payload.len() == self.payload_bytes as usize && crc32c::crc32c(payload) == self.payload_crc {
            Ok(())
        } else {
            Err(FrameError::PayloadDamaged { kind: self.kind, group: self.group, seq: self.seq })
        }
    }
}

/// Payload of an `Ack`. The header's `offset` says how often the grant went back on this stream; ticks repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ack {
    pub received: Seq,
    pub durable: Seq,
    pub applied: Seq,
    /// Bytes, counted as the memory they cost the secondary, that the primary may have sent on this stream in total.
    pub granted_bytes: u64,
    /// The primary's stamp of the last applied write.
    pub applied_wall: Wall,
    /// Apply stands still for want of space.
    pub paused: bool,
}

impl Ack {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u64(self.received.0);
        w.u64(self.durable.0);
        w.u64(self.applied.0);
        w.u64(self.granted_bytes);
        w.u64(self.applied_wall.0);
        w.u8(u8::from(self.paused));
        w.0
    }

    pub fn decode(bytes: &[u8]) -> Option<Ack> {
        let mut r = Reader(bytes);
        let ack = Ack {
            received: Seq(r.u64()?),
            durable: Seq(r.u64()?),
            applied: Seq(r.u64()?),
            granted_bytes: r.u64()?,
            applied_wall: Wall(r.u64()?),
            paused: r.u8()? != 0,
        };
        r.is_empty().then_some(ack)
    }
}

/// What one node says of itself and one group: payload of `GroupHello` and `GroupState`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GroupHello {
    pub identity: crate::identity::Identity,
    /// Where the sender stands as a primary or last stood as a secondary.
    pub granted_bytes: u64,
    pub dirty_bytes: u64,
    /// Empty when healthy.
    pub failed: bool,
    pub volume_bytes: Vec<u64>,
}

impl GroupHello {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        self.identity.encode(&mut w);
        w.u64(self.granted_bytes);
        w.u64(self.dirty_bytes);
        w.u8(u8::from(self.failed));
        w.u16(self.volume_bytes.len() as u16);
        for size in &self.volume_bytes {
            w.u64(*size);
        }
        w.0
    }

    pub fn decode(bytes: &[u8]) -> Option<GroupHello> {
        let mut r = Reader(bytes);
        let identity = crate::identity::Identity::decode(&mut r)?;
        let (granted_bytes, dirty_bytes, failed) = (r.u64()?, r.u64()?, r.u8()? != 0);
        let count = usize::from(r.u16()?);
        if count > crate::limits::VOLUMES_MAX {
            return None;
        }
        let mut volume_bytes = Vec::with_capacity(count);
        for _ in 0..count {
            volume_bytes.push(r.u64()?);
        }
        r.is_empty().then_some(GroupHello { identity, granted_bytes, dirty_bytes, failed, volume_bytes })
    }
}

/// Payload of `SyncBegin`: how the secondary's copy will be made whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncBegin {
    /// The stream's history, and the number before its first.
    pub from: Position,
    /// The history this one grew from.
    pub parent: Position,
    /// Nothing differs: the secondary stays consistent.
    pub nothing_dirty: bool,
    /// Names this begin; `SyncReady` repeats it in `offset`, so that an answer to an abandoned begin is told apart.
    pub attempt: u64,
}

impl SyncBegin {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.position(self.from);
        w.position(self.parent);
        w.u8(u8::from(self.nothing_dirty));
        w.u64(self.attempt);
        w.0
    }

    pub fn decode(bytes: &[u8]) -> Option<SyncBegin> {
        let mut r = Reader(bytes);
        let begin =
            SyncBegin { from: r.position()?, parent: r.position()?, nothing_dirty: r.u8()? != 0, attempt: r.u64()? };
        r.is_empty().then_some(begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        Header { seq: Seq(7), offset: 4096, length: 5, ..Header::new(Kind::Data, SessionId(9), GroupId(3)) }
            .sealed(b"hello")
    }

    #[test]
    fn a_frame_comes_back_as_it_went() {
        let header = sample();
        assert_eq!(Header::decode(&header.encode()), Ok(header));
        assert_eq!(header.check_payload(b"hello"), Ok(()));
        assert!(header.check_payload(b"hellp").is_err());
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let good = sample().encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn lengths_beyond_the_kind_are_refused_before_anything_is_read() {
        let mut header = sample();
        header.payload_bytes = PART_BYTES_MAX as u32 + 1;
        assert!(matches!(Header::decode(&header.encode()), Err(FrameError::PayloadTooLong { .. })));
        header.payload_bytes = 6;
        assert_eq!(Header::decode(&header.encode()), Err(FrameError::LengthsDisagree));
    }

    #[test]
    fn control_payloads_come_back_and_reject_other_lengths() {
        let ack = Ack {
            received: Seq(5),
            durable: Seq(4),
            applied: Seq(3),
            granted_bytes: 77,
            applied_wall: Wall(9),
            paused: true,
        };
        assert_eq!(Ack::decode(&ack.encode()), Some(ack));
        assert_eq!(Ack::decode(&ack.encode()[1..]), None);
        let hello = GroupHello { volume_bytes: alloc::vec![1 << 30, 512], dirty_bytes: 8, ..GroupHello::default() };
        let bytes = hello.encode();
        assert_eq!(GroupHello::decode(&bytes), Some(hello));
        for cut in 0..bytes.len() {
            assert_eq!(GroupHello::decode(&bytes[..cut]), None, "cut at {cut}");
        }
    }
}
