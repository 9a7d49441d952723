//! Frames on the link: one fixed header, then the payload. Byte by byte in docs/book/protocol.md.
//!
//! A frame is believed in three steps: the header's own checksum, then its session, then the payload's checksum. Only a
//! checked header says how much to read, and never more than [`FrameKind::payload_max`].

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::formats::codec::{FieldDecoder, FieldEncoder};
pub use crate::formats::flush_points::FlushPoints;
use crate::formats::group_settings::{decode_settings, encode_settings};
use crate::formats::identity::{Confirmed, Identity, Role};
use crate::formats::marks;
use crate::ids::{GroupId, Incarnation, NodeId, Position, Seq, SessionId, VolumeId, VolumeSet};
use crate::limits::{CONTROL_BYTES_MAX, NUMBER_MAX, PART_BYTES_MAX, RUN_MAX, VOLUME_BYTES_MAX, WALL_MAX};
use crate::settings::Settings;
use crate::state::{CopyDoubts, Mode, Pause, State};
use crate::time::Wall;

/// Bytes of a frame header.
pub const HEADER_BYTES: usize = 96;

/// "FSHR" read as little-endian.
pub const MAGIC: u32 = u32::from_le_bytes(*b"FSHR");

/// Payload of a heartbeat, and of its echo.
pub const HEARTBEAT_BYTES: u64 = 8;

/// Protocol versions, newest first, each with the reason for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Version {
    /// Both nodes report how far behind the peer may be before a mode falls back. 8 (a frame may stand for several numbers, and be one of an epoch; both nodes report whether they fold; a Void may be a mark (MarkTerms, MarkThere)), 7 (both nodes report what degrading leaves of the order, what becomes of a full queue, how writers are paced and what a mode falls back to, GroupState says that its sender
    /// hands over, Tick says what speaks against the copy and which mode writers are answered in, and ProbeResult whether its range could be read. A node says in its hello what its peer had confirmed, where it went back to,
    /// and over which history it keeps its own; a fork is resolved by Union and Saved; SyncBegin says that a fork was resolved by an order; Ack tells a delta that cannot be saved from a full history; SyncBegin and Void say which volumes are set aside, and a hello which are detached; a secondary asks for the peer window (WindowAsk, Window)), 6 (SyncBegin says what is left out, as the secondary
    /// has applied it), 5 (both nodes report their settings, a primary its group's sizes, how far behind its secondary is, and its clock), 4
    /// (SyncBegin names the run of the secondary that it is for, questions have numbers that their answers repeat), 3 (frames may travel
    /// packed), 2 (flush points in every frame, snapshots, dirty bits and lost writes asked back, feature bits) and 1 (one ordered stream per
    /// group, three confirmations, sync in the stream) were never released.
    V9 = 9,
}

pub const VERSION: Version = Version::V9;

/// What a frame is. The discriminant is the byte on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum FrameKind {
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
    /// Primary: this number never became a write, or one of a volume that is set aside.
    Void = 6,
    /// Primary: compare this range by hash at this position of the order.
    Probe = 7,
    /// Secondary: the answer, `flags` bit 0 set when the hashes were equal.
    ProbeResult = 8,
    /// Primary: all regions dirty at the stream's begin have been sent; consistent from here.
    SyncEnd = 9,
    /// Secondary: the three confirmations and the window.
    Ack = 10,
    /// Primary: its clock, its mode and state, how far behind the secondary is. Payload: [`Tick`].
    Tick = 11,
    /// Either: I am here; payload is a time that only the sender reads.
    Heartbeat = 12,
    /// Either: the heartbeat's payload sent back.
    HeartbeatEcho = 13,
    /// Either: this node's role, health or settings for the group changed; payload as in GroupHello.
    GroupState = 14,
    /// Either: the session ends by intent; payload is a sentence.
    Goodbye = 15,
    /// Primary: which ranges did you confirm behind these flush points? Payload: [`FlushPoints`].
    TailAsk = 16,
    /// Secondary: those ranges, [`flags::LAST`] with the last of them. Payload: [`encode_ranges`].
    Tail = 17,
    /// Primary: send this range as it is on your volume.
    Pull = 18,
    /// Secondary: the range's bytes.
    Pulled = 19,
    /// Primary: send your dirty regions.
    BitsAsk = 20,
    /// Secondary: words of dirty bits of `volume` from region `offset` on, [`flags::LAST`] with the last of them.
    Bits = 21,
    /// Primary whose content was chosen: words of the dirty bits of both nodes, as in `Bits`: save what you hold there. The last one has in
    /// `length` how many came before it.
    Union = 22,
    /// Secondary: the answer: it is saved, `length` bytes; or why not, in `flags`.
    Saved = 23,
    /// Secondary: for how long will you answer nobody without me? `seq` numbers the question, `offset` is the newest `Window` it heard.
    WindowAsk = 24,
    /// Primary: for `length` ms from here on, in answer to the question `seq`. 0: what was said before is taken back. `offset` numbers it.
    Window = 25,
    /// Primary: a mark as it is on its side. `seq` numbers what is said. Payload: [`crate::marks::Mark`].
    MarkTerms = 26,
    /// Secondary: the mark that `offset` names is durable here, at the number `seq` of the run and history of the header; or
    /// [`flags::UNKNOWN`]: it is not here, and will not come. `length` repeats the number of the terms. [`flags::LAST`]: no mark, but the question
    /// whether there are more to tell of.
    MarkThere = 27,
}

impl FrameKind {
    pub fn from_byte(byte: u8) -> Option<FrameKind> {
        use FrameKind::*;
        const ALL: [FrameKind; 27] = [
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
            TailAsk,
            Tail,
            Pull,
            Pulled,
            BitsAsk,
            Bits,
            Union,
            Saved,
            WindowAsk,
            Window,
            MarkTerms,
            MarkThere,
        ];
        ALL.into_iter().find(|k| *k as u8 == byte)
    }

    /// The role that it takes to send it; `None`: either.
    pub fn sender(self) -> Option<Role> {
        use FrameKind::*;
        match self {
            SyncBegin | Data | Zero | Void | Probe | SyncEnd | Tick | TailAsk | Pull | BitsAsk | Union | Window
            | MarkTerms => Some(Role::Primary),
            SyncReady | ProbeResult | Ack | Tail | Pulled | Bits | Saved | WindowAsk | MarkThere => {
                Some(Role::Secondary)
            }
            GroupHello | Heartbeat | HeartbeatEcho | GroupState | Goodbye => None,
        }
    }

    /// Whether it is of a stream: it has a number.
    pub fn is_numbered(self) -> bool {
        matches!(self, FrameKind::Data | FrameKind::Zero | FrameKind::Void | FrameKind::Probe | FrameKind::SyncEnd)
    }

    /// Whether the payload is volume content (goes to aligned memory) or a few control bytes.
    pub fn carries_data(self) -> bool {
        matches!(self, FrameKind::Data | FrameKind::Pulled)
    }

    /// Largest payload this kind may announce.
    pub fn payload_max(self) -> u64 {
        match self {
            FrameKind::Data | FrameKind::Pulled => PART_BYTES_MAX,
            FrameKind::Void | FrameKind::Zero | FrameKind::SyncEnd | FrameKind::SyncReady | FrameKind::ProbeResult => 0,
            FrameKind::Pull | FrameKind::BitsAsk | FrameKind::Saved | FrameKind::WindowAsk | FrameKind::Window => 0,
            FrameKind::MarkThere => 0,
            FrameKind::MarkTerms => marks::SLOT_BYTES as u64,
            FrameKind::Probe => 32,
            FrameKind::Heartbeat | FrameKind::HeartbeatEcho => HEARTBEAT_BYTES,
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
    /// Tail, Bits, Union, and of an epoch: nothing follows. MarkTerms: no mark, those of this session are all. MarkThere: no mark, are those of this session
    /// all?
    pub const LAST: u16 = 16;
    /// Tail: more was confirmed than is named, and nobody knows what. MarkThere: there is no such mark.
    pub const UNKNOWN: u16 = 32;
    /// ProbeResult: the range could not be read there.
    pub const UNREADABLE: u16 = 64;
    /// Saved: it is not, for want of space.
    pub const NO_SPACE: u16 = 128;
    /// Saved: it is not, as a disk failed.
    pub const FAILED: u16 = 256;
    /// Void: of what is written to `volume` from here on nothing is sent.
    pub const SETS_ASIDE: u16 = 512;
    /// Saved: it is not, as its file would be larger than its file system allows.
    pub const TOO_LARGE: u16 = 1024;
    /// Saved: it is not, as too many earlier deltas are kept.
    pub const TOO_MANY: u16 = 2048;
    /// Data, Zero, Void: one step with those before and behind it that have the flag, the last one with `LAST`.
    pub const EPOCH: u16 = 4096;
    /// Void: a mark, whose id stands in `offset`.
    pub const MARK: u16 = 8192;
}

/// A frame's header, decoded. Fields that a kind does not use are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub kind: FrameKind,
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
    /// Frames of a stream, Tick: every write of the sender's volumes up to here is flushed there.
    pub flushed: Seq,
    /// Data, and whatever is of an epoch: it stands for so many numbers before its own too.
    pub more: u32,
}

/// Why a header is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    NotAFrame,
    HeaderDamaged,
    VersionUnknown(u8),
    KindUnknown(u8),
    PayloadTooLong {
        kind: FrameKind,
        bytes: u32,
    },
    PayloadDamaged {
        kind: FrameKind,
        group: GroupId,
        seq: Seq,
    },
    LengthsDisagree,
    /// It stands for numbers that it cannot stand for.
    RunImpossible {
        kind: FrameKind,
        seq: Seq,
        more: u32,
    },
    /// A number that nobody comes to by counting, or a time after 2262.
    OutOfReach {
        kind: FrameKind,
        field: &'static str,
        number: u64,
    },
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
            FrameError::RunImpossible { kind, seq, more } => {
                write!(
                    f,
                    "the peer sent a {kind:?} frame for {more} numbers before {}, which it cannot stand for",
                    seq.0
                )
            }
            FrameError::OutOfReach { kind, field, number } => {
                write!(f, "the peer sent a {kind:?} frame with the {field} {number}, further than anything counts")
            }
        }
    }
}

impl FrameHeader {
    /// A header of `kind` with all else empty; the sender fills what the kind needs.
    pub fn new(kind: FrameKind, session: SessionId, group: GroupId) -> FrameHeader {
        FrameHeader {
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
            flushed: Seq::NONE,
            more: 0,
        }
    }

    /// The first number that it stands for.
    pub fn first(&self) -> Seq {
        Seq(self.seq.0 - u64::from(self.more))
    }

    /// Fills in the payload's length and checksum. The engine leaves this to the sender of the bytes.
    pub fn sealed(self, payload: &[u8]) -> FrameHeader {
        self.sealed_parts(core::iter::once(payload))
    }

    /// The same for a payload that stands in several places.
    pub fn sealed_parts<'a>(mut self, parts: impl Iterator<Item = &'a [u8]>) -> FrameHeader {
        (self.payload_bytes, self.payload_crc) =
            parts.fold((0, 0), |(bytes, crc), part| (bytes + part.len() as u32, crc32c::crc32c_append(crc, part)));
        self
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut w = FieldEncoder(Vec::with_capacity(HEADER_BYTES));
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
        w.u64(self.flushed.0);
        w.u32(self.more);
        let crc = crc32c::crc32c(&w.0);
        w.u32(crc);
        w.0.try_into().expect("the fields above fill exactly one header")
    }

    /// Checks and decodes a header: magic, checksum, version, kind, lengths, in this order.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<FrameHeader, FrameError> {
        let mut r = FieldDecoder(bytes);
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
        let kind = FrameKind::from_byte(kind_byte).ok_or(FrameError::KindUnknown(kind_byte))?;
        let header = FrameHeader::fields(kind, &mut r).ok_or(FrameError::HeaderDamaged)?;
        if u64::from(header.payload_bytes) > kind.payload_max() {
            return Err(FrameError::PayloadTooLong { kind, bytes: header.payload_bytes });
        }
        if kind.carries_data() && header.length != u64::from(header.payload_bytes) {
            return Err(FrameError::LengthsDisagree);
        }
        if let Some((field, number)) = header.out_of_reach() {
            return Err(FrameError::OutOfReach { kind, field, number });
        }
        if !header.may_stand_for_more() {
            return Err(FrameError::RunImpossible { kind, seq: header.seq, more: header.more });
        }
        Ok(header)
    }

    /// What an epoch can be of.
    pub fn may_be_of_epoch(&self) -> bool {
        matches!(self.kind, FrameKind::Data | FrameKind::Zero | FrameKind::Void)
    }

    /// Only what is written has neighbours; a number has others before it, but not without bound.
    fn may_stand_for_more(&self) -> bool {
        let more = u64::from(self.more);
        let is_write = self.kind == FrameKind::Data || self.flags & flags::EPOCH != 0 && self.may_be_of_epoch();
        more == 0 || is_write && more < self.seq.0 && more < RUN_MAX
    }

    /// A field that is further than anything counts: what is behind this check adds without a thought.
    fn out_of_reach(&self) -> Option<(&'static str, u64)> {
        let counts = [
            ("sequence", self.seq.0),
            ("incarnation", self.incarnation.0),
            ("offset", self.offset),
            ("length", self.length),
            ("flush point", self.flushed.0),
        ];
        let far = counts.into_iter().find(|(_, number)| *number > NUMBER_MAX);
        far.or(Some(("time", self.wall.0)).filter(|(_, wall)| *wall > WALL_MAX))
    }

    fn fields(kind: FrameKind, r: &mut FieldDecoder<'_>) -> Option<FrameHeader> {
        Some(FrameHeader {
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
            flushed: Seq(r.u64()?),
            more: r.u32()?,
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
    pub paused: Option<Pause>,
    /// The primary's flush point that is noted durably: what it covers is not kept any more.
    pub noted: Seq,
    /// The journal fills with writes that the primary has not flushed: please do.
    pub wants_flush: bool,
}

impl Ack {
    /// Why these confirmations cannot be, after those before them, from a peer that was sent numbers through `sent`.
    pub fn contradicts(&self, before: [Seq; 3], sent: Seq) -> Option<&'static str> {
        let now = [self.received, self.durable, self.applied];
        if !now.is_sorted_by(|a, b| a >= b) {
            return Some("an acknowledgement of more than it received");
        }
        if self.received > sent {
            return Some("an acknowledgement of numbers that were not sent to it");
        }
        now.iter().zip(before).any(|(now, before)| *now < before).then_some("an acknowledgement that goes back")
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut w = FieldEncoder::default();
        w.u64(self.received.0);
        w.u64(self.durable.0);
        w.u64(self.applied.0);
        w.u64(self.granted_bytes);
        w.u64(self.applied_wall.0);
        let paused = match self.paused {
            None => 0,
            Some(Pause::PeerFull) => 1,
            Some(Pause::HistoryFull) => 5,
            Some(Pause::DeltaUnsaved) => 9,
        };
        w.u8(paused | u8::from(self.wants_flush) << 1);
        w.u64(self.noted.0);
        w.0
    }

    pub fn decode(bytes: &[u8]) -> Option<Ack> {
        let mut r = FieldDecoder(bytes);
        let (received, durable, applied) = (Seq(r.number()?), Seq(r.number()?), Seq(r.number()?));
        let (granted_bytes, applied_wall, bits) = (r.number()?, r.wall()?, r.u8()?);
        let paused = match bits & 13 {
            0 => None,
            1 => Some(Pause::PeerFull),
            5 => Some(Pause::HistoryFull),
            9 => Some(Pause::DeltaUnsaved),
            _ => return None,
        };
        let (wants_flush, noted) = (bits & 2 != 0, Seq(r.number()?));
        let ack = Ack { received, durable, applied, granted_bytes, applied_wall, paused, noted, wants_flush };
        (bits <= 15 && r.is_empty()).then_some(ack)
    }
}

/// Payload of a `Tick`: how the group does, as its primary sees it. What it shows of the copy the secondary shows too (rule 19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    pub state: State,
    /// As it is set.
    pub mode: Mode,
    /// As writers are answered: another one while the mode ladder is down.
    pub acts_as: Mode,
    /// What is not durable at the secondary yet.
    pub lag_bytes: u64,
    /// How old what it can present is; `None`: unknown.
    pub lag: Option<Duration>,
    /// Regions that may differ.
    pub dirty_bytes: u64,
    /// The primary's wall clock as it stands: the header's stamp never goes back, and this does.
    pub clock: Wall,
    /// What speaks against the copy.
    pub doubts: CopyDoubts,
}

/// In the place of a lag that is not known.
const LAG_UNKNOWN: u64 = u64::MAX;

impl Tick {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = FieldEncoder::default();
        w.u8(self.state.kind() as u8);
        w.u8(self.mode.number());
        w.u8(self.acts_as.number());
        w.u64(self.lag_bytes);
        w.u64(self.lag.map_or(LAG_UNKNOWN, |lag| (lag.as_nanos() as u64).min(NUMBER_MAX)));
        w.u64(self.dirty_bytes);
        w.u64(self.clock.0.min(WALL_MAX));
        w.u8(u8::from(self.doubts.assumed_equal) | u8::from(self.doubts.differs) << 1);
        w.0
    }

    pub fn decode(bytes: &[u8]) -> Option<Tick> {
        let mut r = FieldDecoder(bytes);
        let (state, mode) = (State::from_kind(r.u8()?)?, Mode::from_number(r.u8()?)?);
        let acts_as = Mode::from_number(r.u8()?)?;
        let (lag_bytes, lag) = (r.number()?, r.u64()?);
        let lag = match lag {
            LAG_UNKNOWN => None,
            ns => Some(Duration::from_nanos(Some(ns).filter(|ns| *ns <= NUMBER_MAX)?)),
        };
        let (dirty_bytes, clock, bits) = (r.number()?, r.wall()?, r.u8().filter(|bits| bits & !3 == 0)?);
        let doubts = CopyDoubts { assumed_equal: bits & 1 != 0, differs: bits & 2 != 0 };
        r.is_empty().then_some(Tick { state, mode, acts_as, lag_bytes, lag, dirty_bytes, clock, doubts })
    }
}

/// What one node says of itself and one group: payload of `GroupHello` and `GroupState`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GroupHello {
    pub identity: Identity,
    /// Where the sender stands as a primary or last stood as a secondary.
    pub granted_bytes: u64,
    pub dirty_bytes: u64,
    pub failed: bool,
    /// A secondary's: a promotion would give no image.
    pub lacks_image: bool,
    /// A secondary's that was primary: it handed over, on record, and the reader is to be promoted.
    pub grants: bool,
    /// What the sender can do besides what its protocol version says; unknown bits are for the reader to ignore.
    pub features: u64,
    /// What the sender cannot do without; a bit the reader does not know is a refusal.
    pub required: u64,
    /// As they are on the sender: a promotion there serves by them.
    pub settings: Settings,
    /// What the peer had confirmed to the sender: in this run, or in the last history of which the sender was primary.
    pub confirmed: Confirmed,
    /// The image before a sync that the sender went back to, the last time; blank: none. What it undid for it is dirty there.
    pub went_back_to: Position,
    /// The tag of the generation over which the sender keeps its own content, by an operator's order; 0: none.
    pub keeps_over: u64,
    /// The tag of the generation for which the sender was demoted in this session, by an operator's order; 0: none.
    pub yields_to: u64,
    /// That order to keep its own content is the policy's: nobody typed it, and it discards nothing.
    pub keeps_by_policy: bool,
    /// The policy would have the sender give its content up for the reader's.
    pub would_yield: bool,
    /// A primary's: the sizes of the group. A secondary's: what its devices hold.
    pub volume_bytes: Vec<u64>,
    /// Volumes that are detached at the sender: of these it holds nothing.
    pub detached: VolumeSet,
    /// A secondary's: volumes whose devices no sync has filled, and none is about to.
    pub unfilled: VolumeSet,
}

/// Feature bits this program knows. None so far.
pub const FEATURES_KNOWN: u64 = 0;

impl GroupHello {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = FieldEncoder::default();
        self.identity.encode(&mut w);
        w.u64(self.granted_bytes);
        w.u64(self.dirty_bytes);
        let flags = [self.failed, self.lacks_image, self.grants, self.keeps_by_policy, self.would_yield];
        w.u8(flags.into_iter().enumerate().fold(0, |bits, (at, flag)| bits | u8::from(flag) << at));
        w.u64(self.features);
        w.u64(self.required);
        encode_settings(&self.settings, &mut w);
        self.confirmed.encode(&mut w);
        w.position(self.went_back_to);
        w.u64(self.keeps_over);
        w.u64(self.yields_to);
        w.u16(self.volume_bytes.len() as u16);
        for size in &self.volume_bytes {
            w.u64(*size);
        }
        [self.detached, self.unfilled].iter().flat_map(VolumeSet::words).for_each(|word| w.u64(word));
        w.0
    }

    pub fn decode(bytes: &[u8]) -> Option<GroupHello> {
        let mut r = FieldDecoder(bytes);
        let identity = Identity::decode(&mut r).filter(Identity::is_in_reach)?;
        // A flag that this version does not have is no hello of this version: what may come later has `features`.
        let (granted_bytes, dirty_bytes, flags) = (r.number()?, r.number()?, r.u8().filter(|flags| flags & !31 == 0)?);
        let (features, required) = (r.u64()?, r.u64()?);
        let settings = decode_settings(&mut r)?;
        let confirmed = Confirmed { position: r.peers_position()?, image: r.peers_position()? };
        let (went_back_to, keeps_over, yields_to) = (r.peers_position()?, r.u64()?, r.u64()?);
        let count = usize::from(r.u16()?);
        if count > crate::limits::VOLUMES_MAX {
            return None;
        }
        let mut volume_bytes = Vec::with_capacity(count);
        for _ in 0..count {
            volume_bytes.push(r.u64().filter(|size| *size <= VOLUME_BYTES_MAX)?);
        }
        let (detached, unfilled) = (decode_volumes(&mut r)?, decode_volumes(&mut r)?);
        (r.is_empty() && detached.end().max(unfilled.end()) <= count).then_some(GroupHello {
            identity,
            granted_bytes,
            dirty_bytes,
            failed: flags & 1 != 0,
            lacks_image: flags & 2 != 0,
            grants: flags & 4 != 0,
            features,
            required,
            settings,
            confirmed,
            went_back_to,
            keeps_over,
            yields_to,
            keeps_by_policy: flags & 8 != 0,
            would_yield: flags & 16 != 0,
            volume_bytes,
            detached,
            unfilled,
        })
    }
}

/// A range of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeRange {
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
}

/// Bytes of one range in a `Tail` frame.
pub const RANGE_BYTES: usize = 18;
/// Ranges in one `Tail` frame.
pub const RANGES_MAX: usize = CONTROL_BYTES_MAX as usize / RANGE_BYTES;

/// Payload of `Tail`: [`RANGE_BYTES`] for each range.
pub fn encode_ranges(ranges: &[VolumeRange]) -> Vec<u8> {
    let mut w = FieldEncoder::default();
    for range in ranges {
        w.u16(range.volume.0);
        w.u64(range.offset);
        w.u64(range.length);
    }
    w.0
}

pub fn decode_ranges(bytes: &[u8]) -> Option<Vec<VolumeRange>> {
    if !bytes.len().is_multiple_of(RANGE_BYTES) {
        return None;
    }
    let mut r = FieldDecoder(bytes);
    (0..bytes.len() / RANGE_BYTES)
        .map(|_| Some(VolumeRange { volume: VolumeId(r.u16()?), offset: r.number()?, length: r.number()? }))
        .collect()
}

/// Payload of `SyncBegin`: how the secondary's copy will be made whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncBegin {
    /// The stream's history, and the number before its first.
    pub from: Position,
    /// The history this one grew from.
    pub parent: Position,
    /// The secondary's own run that this was decided on. It has another one since if it was promoted in between: then the begin
    /// is not for it.
    pub to: Incarnation,
    /// Nothing differs: the secondary stays consistent.
    pub nothing_dirty: bool,
    /// What is sure to be sent of the dirty regions: the secondary reserves room for what it overwrites.
    pub dirty_bytes: u64,
    /// Units of [`crate::limits::SAVE_UNIT_BYTES`] with something of that: saved as a whole each takes room for itself and an index.
    pub dirty_units: u64,
    /// What is dirty and not sent, as the secondary applied it in a snapshot that was cut short. By that the secondary knows how much of
    /// what it has saved is of this sync.
    pub left_out_bytes: u64,
    /// Names the snapshot whose regions follow, as they were at `from`; its frames have numbers of their own from 1 on.
    /// 0: the ordered stream of writes, and regions between them.
    pub snapshot: u64,
    /// Names this begin; `SyncReady` repeats it in `offset`, so that an answer to an abandoned begin is distinguished.
    pub attempt: u64,
    /// Volumes that are set aside: nothing of them is sent, and they are no part of the image that it makes.
    pub aside: VolumeSet,
    /// The two histories parted, and an order resolved that: what the secondary held of its own is saved, or was given up by that order.
    pub is_resolved: bool,
}

impl SyncBegin {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = FieldEncoder::default();
        w.position(self.from);
        w.position(self.parent);
        w.u64(self.to.0);
        w.u8(u8::from(self.nothing_dirty) | u8::from(self.is_resolved) << 1);
        w.u64(self.dirty_bytes);
        w.u64(self.dirty_units);
        w.u64(self.left_out_bytes);
        w.u64(self.snapshot);
        w.u64(self.attempt);
        self.aside.words().into_iter().for_each(|word| w.u64(word));
        w.0
    }

    pub fn decode(bytes: &[u8]) -> Option<SyncBegin> {
        let mut r = FieldDecoder(bytes);
        let (from, parent, to) = (r.peers_position()?, r.peers_position()?, Incarnation(r.number()?));
        let flags = r.u8().filter(|flags| flags & !3 == 0)?;
        let (dirty_bytes, dirty_units) = (r.number()?, r.number()?);
        let (left_out_bytes, snapshot, attempt) = (r.number()?, r.number()?, r.number()?);
        let aside = decode_volumes(&mut r)?;
        let begin = SyncBegin {
            from,
            parent,
            to,
            nothing_dirty: flags & 1 != 0,
            dirty_bytes,
            dirty_units,
            left_out_bytes,
            snapshot,
            attempt,
            aside,
            is_resolved: flags & 2 != 0,
        };
        r.is_empty().then_some(begin)
    }
}

/// A bit for each volume that a group may have.
fn decode_volumes(r: &mut FieldDecoder<'_>) -> Option<VolumeSet> {
    let mut words = VolumeSet::default().words();
    for word in &mut words {
        *word = r.u64()?;
    }
    Some(VolumeSet::from_words(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> FrameHeader {
        FrameHeader {
            seq: Seq(7),
            offset: 4096,
            length: 5,
            ..FrameHeader::new(FrameKind::Data, SessionId(9), GroupId(3))
        }
        .sealed(b"hello")
    }

    #[test]
    fn a_payload_in_several_places_has_the_sum_of_the_whole() {
        let parts: [&[u8]; 4] = [b"he", b"", b"l", b"lo"];
        assert_eq!(sample().sealed_parts(parts.into_iter()), sample());
        assert_eq!(sample().sealed_parts(core::iter::empty()), sample().sealed(b""));
    }

    // proves: rule 4, P10
    #[test]
    fn a_frame_stands_for_no_numbers_that_it_cannot_stand_for() {
        let decoded = |kind: FrameKind, seq: u64, more: u32| {
            let length = if kind.carries_data() { 5 } else { 0 };
            let mut header = FrameHeader { kind, seq: Seq(seq), length, more, ..sample() };
            header = header.sealed(if kind.carries_data() { b"hello" } else { b"" });
            FrameHeader::decode(&header.encode()).map(|header| header.first().0)
        };
        assert_eq!((decoded(FrameKind::Data, 7, 6), decoded(FrameKind::Data, 7, 0)), (Ok(1), Ok(7)));
        for (kind, seq, more) in [
            (FrameKind::Data, 7, 7),
            (FrameKind::Data, 0, 1),
            (FrameKind::Data, 1 << 40, RUN_MAX as u32),
            (FrameKind::Zero, 7, 1),
            (FrameKind::Void, 7, 1),
            (FrameKind::SyncEnd, 7, 1),
            (FrameKind::Tick, 7, 1),
        ] {
            assert_eq!(decoded(kind, seq, more), Err(FrameError::RunImpossible { kind, seq: Seq(seq), more }));
        }
    }

    #[test]
    fn a_frame_comes_back_as_it_went() {
        let header = sample();
        assert_eq!(FrameHeader::decode(&header.encode()), Ok(header));
        assert_eq!(header.check_payload(b"hello"), Ok(()));
        assert!(header.check_payload(b"hellp").is_err());
    }

    // proves: P9
    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let good = sample().encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(FrameHeader::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn lengths_beyond_the_kind_are_refused_before_anything_is_read() {
        let mut header = sample();
        header.payload_bytes = PART_BYTES_MAX as u32 + 1;
        assert!(matches!(FrameHeader::decode(&header.encode()), Err(FrameError::PayloadTooLong { .. })));
        header.payload_bytes = 6;
        assert_eq!(FrameHeader::decode(&header.encode()), Err(FrameError::LengthsDisagree));
    }

    #[test]
    fn control_payloads_come_back_and_reject_other_lengths() {
        let ack = Ack {
            received: Seq(5),
            durable: Seq(4),
            applied: Seq(3),
            granted_bytes: 77,
            applied_wall: Wall(9),
            paused: Some(Pause::HistoryFull),
            noted: Seq(2),
            wants_flush: false,
        };
        assert_eq!(Ack::decode(&ack.encode()), Some(ack));
        assert_eq!(Ack::decode(&ack.encode()[1..]), None);
        let hello = GroupHello { volume_bytes: alloc::vec![1 << 30, 512], dirty_bytes: 8, ..GroupHello::default() };
        let bytes = hello.encode();
        assert_eq!(GroupHello::decode(&bytes), Some(hello));
        for end in 0..bytes.len() {
            assert_eq!(GroupHello::decode(&bytes[..end]), None, "cut at {end}");
        }
    }
}
