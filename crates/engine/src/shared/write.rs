//! A write under way: what it is, what its writer waits for, and how far it came.

use crate::ids::*;
use crate::records::activity::Pins;
use crate::shared::cost::cost;
use crate::shared::time::Mono;
use crate::{Buf, IoError, limits};

/// What the writer waits for at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Local,
    Received,
    Durable,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Data(Buf),
    Zero { no_hole: bool },
}

/// How far the write came on the local volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    Waiting,
    Writing,
    Flushing,
    Done,
}

/// One write, trim or write-zeroes.
#[derive(Clone, Debug)]
pub(crate) struct WriteOp {
    pub id: RequestId,
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
    pub what: What,
    pub fua: bool,
    pub since: Mono,
    /// Its place in the order of arrival.
    pub came: u64,
    pub first: Seq,
    pub last: Seq,
    pub level: Level,
    pub local: Local,
    pub failed: Option<IoError>,
    /// Nothing more is expected of the peer.
    pub remote_done: bool,
    /// The writer has its answer (early, under policy `strict`).
    pub answered: bool,
    /// Its places in the activity log.
    pub pins: Pins,
}

impl WriteOp {
    pub fn data(id: RequestId, volume: VolumeId, offset: u64, length: u64, buf: Buf, fua: bool, now: Mono) -> WriteOp {
        WriteOp::new(id, volume, offset, length, What::Data(buf), fua, now)
    }

    pub fn zero(
        id: RequestId,
        volume: VolumeId,
        offset: u64,
        length: u64,
        no_hole: bool,
        fua: bool,
        now: Mono,
    ) -> WriteOp {
        WriteOp::new(id, volume, offset, length, What::Zero { no_hole }, fua, now)
    }

    fn new(id: RequestId, volume: VolumeId, offset: u64, length: u64, what: What, fua: bool, since: Mono) -> WriteOp {
        assert!(
            length > 0 && length.is_multiple_of(limits::SECTOR_BYTES) && offset.is_multiple_of(limits::SECTOR_BYTES)
        );
        WriteOp {
            id,
            volume,
            offset,
            length,
            what,
            fua,
            since,
            came: 0,
            first: Seq::NONE,
            last: Seq::NONE,
            level: Level::Local,
            local: Local::Waiting,
            failed: None,
            remote_done: true,
            answered: false,
            pins: Pins::default(),
        }
    }

    /// Parts of at most this size get numbers of their own.
    pub fn part_bytes(&self, part_bytes: u64) -> u64 {
        match self.what {
            What::Data(_) => part_bytes,
            What::Zero { .. } => limits::ZERO_PART_BYTES_MAX,
        }
    }

    pub fn range(&self) -> (VolumeId, u64, u64) {
        (self.volume, self.offset, self.length)
    }

    pub fn cost_bytes(&self, part_bytes: u64) -> (u64, u64) {
        let parts = self.length.div_ceil(self.part_bytes(part_bytes));
        let payload = if matches!(self.what, What::Data(_)) { self.length } else { 0 };
        (cost(payload) + (parts - 1) * limits::ITEM_OVERHEAD_BYTES, parts)
    }
}
