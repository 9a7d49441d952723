//! The landing log: a ring of batches. A batch is one index block, then its payloads; it is valid as a whole or not at
//! all, and it says where and when it belongs, so that a stale or misplaced one is never replayed. The log of a primary's queue holds
//! batches of the same form.
//!
//! Written in order, several in flight; what counts as durable is the unbroken run from the head. Space is reused only
//! after a superblock that starts replay behind it is durable.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::formats::codec::{FieldDecoder, IndexBlock};
use crate::formats::superblock::JournalHead;
use crate::ids::{Generation, Incarnation, MarkId, NodeId, Seq, VolumeId};
use crate::limits::{META_BLOCK_BYTES, PART_BYTES_MAX};
use crate::time::Wall;

/// Format versions: 3 has records that stand for several numbers, says a batch's first one, and has marks; 2 distinguishes resynced regions from writes,
/// and snapshots from streams, and says where a volume is set aside; 1 was never released.
pub const VERSION: u16 = 3;
/// The index block of a batch.
pub const INDEX_BYTES: usize = META_BLOCK_BYTES as usize;
const FIXED_BYTES: usize = 128;
const ENTRY_BYTES: usize = 48;
/// Records one batch can hold.
pub const ENTRIES_MAX: usize = (INDEX_BYTES - FIXED_BYTES - 4) / ENTRY_BYTES;
// One batch holds an epoch.
const _: () = assert!(crate::limits::EPOCH_FRAMES_MAX <= ENTRIES_MAX);
// A record of version 2 stands for one number.
const JOURNAL: IndexBlock =
    IndexBlock { magic: *b"FSHBATCH", version: VERSION, oldest: 2, bytes: INDEX_BYTES, entries_max: ENTRIES_MAX };
const QUEUE: IndexBlock = IndexBlock { magic: *b"FSHQUEUB", version: QUEUE_VERSION, oldest: 1, ..JOURNAL };

/// The version of a batch in the log of a queue: 2 says its first number, as a journal's 3 does.
pub const QUEUE_VERSION: u16 = 2;

/// Where batches stand. Neither kind is ever taken for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOf {
    /// A secondary's journal.
    Journal,
    /// The log of a primary's queue: each payload begins on a block.
    Queue,
}

impl BatchOf {
    const fn block(self) -> IndexBlock {
        match self {
            BatchOf::Journal => JOURNAL,
            BatchOf::Queue => QUEUE,
        }
    }

    /// The version that this program writes.
    pub fn version(self) -> u16 {
        self.block().version
    }
}

/// What a record does to its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    Data = 1,
    Zero = 2,
    /// Takes its number, does nothing.
    Void = 3,
    /// The sync ends here.
    SyncEnd = 4,
}

/// One record's line in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    pub seq: Seq,
    pub kind: RecordKind,
    pub no_hole: bool,
    /// A region of a sync, not a write of its own.
    pub resync: bool,
    /// Void: from here on the volume is set aside.
    pub sets_aside: bool,
    /// Void: a mark, whose id stands in `offset`.
    pub mark: bool,
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
    pub wall: Wall,
    /// Where its payload starts, from the start of the batch; 0 without payload.
    pub payload_at: u32,
    pub payload_bytes: u32,
    pub payload_crc: u32,
}

/// A batch's index block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalIndex {
    pub tag: u64,
    /// Where in the ring it belongs.
    pub ring_offset: u64,
    pub ordinal: u64,
    /// The run of the node that wrote it.
    pub boot: Incarnation,
    /// Whose writes these are.
    pub origin: NodeId,
    pub generation: Generation,
    pub incarnation: Incarnation,
    /// The snapshot whose numbers these are; 0: the stream of writes.
    pub snapshot: u64,
    /// In the log of a queue: batches below this ordinal were durable when this one was issued. In a journal 0.
    pub durable_below: u64,
    pub bytes: u32,
    /// The first number of the batch. A record stands for all numbers after the one before it.
    pub first: Seq,
    pub entries: Vec<JournalEntry>,
}

/// A batch of a version that is not read. These fields stand in the same place in every version of the index block: by them a left-over is
/// distinguished from what must not be passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherVersionBatch {
    pub version: u16,
    pub tag: u64,
    pub place: JournalHead,
    /// The run of the node that wrote it.
    pub boot: Incarnation,
}

impl JournalIndex {
    pub fn encode(&self, of: BatchOf) -> Vec<u8> {
        let mut w = of.block().begin(self.entries.len());
        w.u32(self.bytes);
        w.u64(self.tag);
        w.u64(self.ring_offset);
        w.u64(self.ordinal);
        w.u64(self.boot.0);
        w.generation(self.generation);
        w.u64(self.incarnation.0);
        w.u16(self.origin.0);
        w.pad_to(80);
        w.u64(self.snapshot);
        w.u64(self.durable_below);
        w.u64(self.first.0);
        w.pad_to(FIXED_BYTES);
        for e in &self.entries {
            w.u64(e.seq.0);
            w.u64(e.offset);
            w.u64(e.length);
            w.u64(e.wall.0);
            w.u32(e.payload_at);
            w.u32(e.payload_bytes);
            w.u32(e.payload_crc);
            w.u16(e.volume.0);
            w.u8(e.kind as u8);
            let bits = u8::from(e.no_hole) | u8::from(e.resync) << 1 | u8::from(e.sets_aside) << 2;
            w.u8(bits | u8::from(e.mark) << 5);
        }
        w.sealed(INDEX_BYTES)
    }

    /// A whole index block, or `None`. The caller still checks that it belongs where it was found.
    pub fn decode(of: BatchOf, block: &[u8]) -> Option<JournalIndex> {
        let (count, mut r) = of.block().open(block)?;
        let mut index = JournalIndex {
            bytes: r.u32()?,
            tag: r.u64()?,
            ring_offset: r.u64()?,
            ordinal: r.u64()?,
            boot: Incarnation(r.u64()?),
            generation: r.generation()?,
            incarnation: Incarnation(r.u64()?),
            origin: NodeId(r.u16()?),
            snapshot: FieldDecoder(&block[80..]).u64()?,
            durable_below: FieldDecoder(&block[88..]).u64()?,
            first: Seq(FieldDecoder(&block[96..]).u64()?),
            entries: Vec::with_capacity(count),
        };
        let mut r = FieldDecoder(&block[FIXED_BYTES..]);
        for _ in 0..count {
            index.entries.push(decode_entry(&mut r, index.bytes)?);
        }
        // So it is in the versions that do not say it.
        if index.first == Seq::NONE {
            index.first = index.entries.first().map_or(Seq::NONE, |entry| entry.seq);
        }
        let is_laid_out = |e: &JournalEntry| u64::from(e.payload_at).is_multiple_of(META_BLOCK_BYTES);
        (of == BatchOf::Journal || index.entries.iter().all(is_laid_out)).then_some(index)
    }

    /// What an index block says of itself that is whole but of a version that this program does not read.
    pub fn of_other_version(of: BatchOf, block: &[u8]) -> Option<OtherVersionBatch> {
        let (version, mut r) = of.block().of_other_version(block)?;
        let _bytes = r.u32()?;
        let tag = r.u64()?;
        let place = JournalHead { offset: r.u64()?, ordinal: r.u64()? };
        Some(OtherVersionBatch { version, tag, place, boot: Incarnation(r.u64()?) })
    }

    /// Its records follow each other.
    pub fn is_in_order(&self) -> bool {
        let mut next = Some(self.first.0);
        let follows = |e: &JournalEntry| {
            let fits = next.is_some_and(|next| e.seq.0 >= next);
            next = e.seq.0.checked_add(1);
            fits
        };
        self.entries.iter().all(follows)
    }

    /// Each record's first number, in order.
    pub fn firsts(&self) -> impl Iterator<Item = Seq> + '_ {
        core::iter::once(self.first).chain(self.entries.iter().map(|e| e.seq.next()))
    }

    /// The last record's number.
    pub fn last(&self) -> Seq {
        self.entries.last().map_or(Seq::NONE, |e| e.seq)
    }
}

/// What an entry may have: no hole, resync, set aside, mark.
const ENTRY_BITS: u8 = 1 | 2 | 4 | 32;

fn decode_entry(r: &mut FieldDecoder<'_>, batch_bytes: u32) -> Option<JournalEntry> {
    let (seq, offset, length, wall) = (Seq(r.u64()?), r.u64()?, r.u64()?, Wall(r.u64()?));
    let (payload_at, payload_bytes, payload_crc) = (r.u32()?, r.u32()?, r.u32()?);
    let volume = VolumeId(r.u16()?);
    let kind = match r.u8()? {
        1 => RecordKind::Data,
        2 => RecordKind::Zero,
        3 => RecordKind::Void,
        4 => RecordKind::SyncEnd,
        _ => return None,
    };
    let bits = r.u8()?;
    let (no_hole, resync, sets_aside, mark) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0, bits & 32 != 0);
    let end = payload_at.checked_add(payload_bytes)?;
    let fits = u64::from(payload_bytes) <= PART_BYTES_MAX && end <= batch_bytes;
    let agrees = bits & !ENTRY_BITS == 0
        && (!mark || kind == RecordKind::Void && length == 0 && MarkId::read(offset).is_some())
        && (kind == RecordKind::Data) == (payload_bytes > 0)
        && (kind != RecordKind::Data || length == u64::from(payload_bytes));
    (fits && agrees).then_some(JournalEntry {
        seq,
        kind,
        no_hole,
        resync,
        sets_aside,
        mark,
        volume,
        offset,
        length,
        wall,
        payload_at,
        payload_bytes,
        payload_crc,
    })
}

/// A batch that replay may still need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveBatch {
    pub offset: u64,
    pub ordinal: u64,
    pub last: Seq,
}

/// Where batches go.
#[derive(Debug)]
pub(crate) struct JournalRing {
    bytes: u64,
    tail: u64,
    next_ordinal: u64,
    live: VecDeque<LiveBatch>,
}

impl JournalRing {
    /// An empty ring that goes on at `head`.
    pub fn new(bytes: u64, head: JournalHead) -> JournalRing {
        JournalRing { bytes, tail: head.offset, next_ordinal: head.ordinal, live: VecDeque::new() }
    }

    /// A ring that goes on at `next` behind batches that are still needed.
    pub fn with(bytes: u64, next: JournalHead, live: Vec<LiveBatch>) -> JournalRing {
        JournalRing { live: live.into(), ..JournalRing::new(bytes, next) }
    }

    /// Room for a batch of `bytes`: its offset and ordinal; `None` until older batches are trimmed.
    pub fn allocate(&mut self, bytes: u64, last: Seq) -> Option<(u64, u64)> {
        assert!(bytes < self.bytes / 2, "a batch must leave room for the next");
        let fits_at_tail = self.tail + bytes <= self.bytes;
        let offset = match self.live.front() {
            None => {
                if fits_at_tail {
                    self.tail
                } else {
                    0
                }
            }
            Some(head) if self.tail > head.offset => {
                if fits_at_tail {
                    self.tail
                } else if bytes < head.offset {
                    0
                } else {
                    return None;
                }
            }
            Some(head) => {
                if self.tail + bytes < head.offset {
                    self.tail
                } else {
                    return None;
                }
            }
        };
        let ordinal = self.next_ordinal;
        self.next_ordinal += 1;
        self.live.push_back(LiveBatch { offset, ordinal, last });
        self.tail = offset + bytes;
        Some((offset, ordinal))
    }

    /// Where replay would begin if everything up to `applied` were left out.
    pub fn head_after(&self, applied: Seq) -> JournalHead {
        match self.live.iter().find(|b| b.last > applied) {
            Some(b) => JournalHead { offset: b.offset, ordinal: b.ordinal },
            None => JournalHead { offset: self.tail, ordinal: self.next_ordinal },
        }
    }

    /// A superblock with this head is durable: what lies before is free.
    /// The last number that is gone with it, if anything is.
    pub fn trim(&mut self, head: JournalHead) -> Option<Seq> {
        let mut gone = None;
        while self.live.front().is_some_and(|b| b.ordinal < head.ordinal) {
            gone = self.live.pop_front().map(|b| b.last);
        }
        gone
    }

    /// The last number of the batch before this head, if that still takes up space.
    pub fn last_before(&self, head: JournalHead) -> Option<Seq> {
        self.live.iter().take_while(|batch| batch.ordinal < head.ordinal).last().map(|batch| batch.last)
    }

    pub fn next_ordinal(&self) -> u64 {
        self.next_ordinal
    }

    /// Batches that end at or before this number take up space.
    pub fn has_before(&self, seq: Seq) -> bool {
        self.live.front().is_some_and(|b| b.last <= seq)
    }

    pub fn is_half_full(&self) -> bool {
        self.used_bytes() >= self.bytes / 2
    }

    /// What lies between head and tail.
    pub fn used_bytes(&self) -> u64 {
        self.from(self.live.front())
    }

    /// What of that would be left if everything up to `applied` were left out.
    pub fn used_bytes_after(&self, applied: Seq) -> u64 {
        self.from(self.live.get(self.live.partition_point(|batch| batch.last <= applied)))
    }

    fn from(&self, head: Option<&LiveBatch>) -> u64 {
        let Some(head) = head else { return 0 };
        if self.tail > head.offset { self.tail - head.offset } else { self.bytes - head.offset + self.tail }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn sample() -> JournalIndex {
        JournalIndex {
            tag: 1,
            ring_offset: 4096,
            ordinal: 9,
            boot: Incarnation(2),
            origin: NodeId(3),
            generation: Generation { number: 1, tag: 5 },
            incarnation: Incarnation(4),
            snapshot: 9,
            durable_below: 0,
            bytes: 12288,
            first: Seq(5),
            entries: vec![
                JournalEntry {
                    seq: Seq(7),
                    kind: RecordKind::Data,
                    no_hole: false,
                    resync: false,
                    sets_aside: false,
                    mark: false,
                    volume: VolumeId(1),
                    offset: 512,
                    length: 8192,
                    wall: Wall(3),
                    payload_at: 4096,
                    payload_bytes: 8192,
                    payload_crc: 77,
                },
                JournalEntry {
                    seq: Seq(8),
                    kind: RecordKind::Void,
                    no_hole: true,
                    resync: true,
                    sets_aside: false,
                    mark: false,
                    volume: VolumeId(0),
                    offset: 0,
                    length: 0,
                    wall: Wall(4),
                    payload_at: 0,
                    payload_bytes: 0,
                    payload_crc: 0,
                },
            ],
        }
    }

    // proves: P9
    #[test]
    fn an_index_comes_back_and_every_flipped_byte_is_noticed() {
        let image = sample().encode(BatchOf::Journal);
        assert_eq!(JournalIndex::decode(BatchOf::Journal, &image), Some(sample()));
        for at in 0..INDEX_BYTES {
            let mut bad = image.clone();
            bad[at] ^= 0x40;
            assert_eq!(JournalIndex::decode(BatchOf::Journal, &bad), None, "byte {at}");
        }
    }

    // proves: P9
    #[test]
    fn a_batch_of_a_queue_is_none_of_a_journal_and_its_payloads_begin_on_blocks() {
        let image = sample().encode(BatchOf::Queue);
        assert_eq!(JournalIndex::decode(BatchOf::Queue, &image), Some(sample()));
        assert_eq!(JournalIndex::decode(BatchOf::Journal, &image), None);
        assert_eq!(JournalIndex::decode(BatchOf::Queue, &sample().encode(BatchOf::Journal)), None);
        assert_eq!(JournalIndex::of_other_version(BatchOf::Journal, &image), None, "it is another kind");
        let mut index = sample();
        (index.bytes, index.entries[0].payload_at) = (16384, 4608);
        assert!(JournalIndex::decode(BatchOf::Journal, &index.encode(BatchOf::Journal)).is_some());
        assert_eq!(JournalIndex::decode(BatchOf::Queue, &index.encode(BatchOf::Queue)), None);
    }

    #[test]
    fn another_version_is_distinguished_from_damage() {
        let (index, mut image) = (sample(), sample().encode(BatchOf::Journal));
        assert_eq!(JournalIndex::of_other_version(BatchOf::Journal, &image), None);
        image[8] = 9;
        assert_eq!(
            (JournalIndex::decode(BatchOf::Journal, &image), JournalIndex::of_other_version(BatchOf::Journal, &image)),
            (None, None),
            "damaged"
        );
        let crc = crc32c::crc32c(&image[..INDEX_BYTES - 4]);
        image[INDEX_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        let place = JournalHead { offset: index.ring_offset, ordinal: index.ordinal };
        let found = OtherVersionBatch { version: 9, tag: index.tag, place, boot: index.boot };
        assert_eq!(JournalIndex::of_other_version(BatchOf::Journal, &image), Some(found));
    }

    // proves: rule 4
    #[test]
    fn a_batch_whose_records_do_not_follow_each_other_is_in_no_order() {
        let in_order = |first: u64, numbers: [u64; 2]| {
            let mut index = JournalIndex { first: Seq(first), ..sample() };
            index.entries.iter_mut().zip(numbers).for_each(|(e, seq)| e.seq = Seq(seq));
            index.is_in_order().then(|| index.firsts().take(2).map(|seq| seq.0).collect::<Vec<_>>())
        };
        assert_eq!(in_order(7, [7, 8]), Some(vec![7, 8]));
        assert_eq!(in_order(5, [7, 12]), Some(vec![5, 8]), "each stands for those after the one before it");
        assert_eq!((in_order(8, [7, 8]), in_order(7, [7, 7]), in_order(1, [u64::MAX, 8])), (None, None, None));
    }

    #[test]
    fn an_entry_that_reaches_past_its_batch_is_refused() {
        let mut index = sample();
        index.bytes = 12287;
        assert_eq!(JournalIndex::decode(BatchOf::Journal, &index.encode(BatchOf::Journal)), None);
    }

    #[test]
    fn the_ring_wraps_and_never_overwrites_what_replay_needs() {
        let mut ring = JournalRing::new(10_000, JournalHead::default());
        assert_eq!(ring.allocate(4000, Seq(1)), Some((0, 0)));
        assert_eq!(ring.allocate(4000, Seq(2)), Some((4000, 1)));
        assert_eq!(ring.allocate(4000, Seq(3)), None);
        let head = ring.head_after(Seq(1));
        assert_eq!(head, JournalHead { offset: 4000, ordinal: 1 });
        ring.trim(head);
        assert_eq!(ring.allocate(3999, Seq(3)), Some((0, 2)));
        assert_eq!(ring.allocate(2000, Seq(4)), None, "the tail may not reach the head");
        ring.trim(ring.head_after(Seq(3)));
        assert!(ring.live.is_empty());
        assert_eq!(ring.allocate(4000, Seq(5)), Some((3999, 3)));
    }
}
