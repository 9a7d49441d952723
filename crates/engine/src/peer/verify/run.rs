//! One verify: how far its walk is, what it has to look at again, and what it has found.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use crate::VerifyOrder;
use crate::formats::bitmap::region_span;
use crate::ids::{Seq, SessionId, VolumeId, mix};
use crate::injected_fault::{Fault, injected};
use crate::limits::{self, PROBE_BYTES, REGION_BYTES};
use crate::shared::reads::SyncRange;
use crate::shared::volumes::Volumes;
use crate::status::{VerifyDifference, VerifyStatus, VerifyTotals};
use crate::time::Mono;

/// What is known of a range that is to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// As the walk came to it.
    Chunk,
    /// A region of a chunk that differed.
    Region,
    /// It differed, and was to be sent again.
    Repaired,
}

/// A range that is to be compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    pub range: SyncRange,
    pub look: Look,
    /// How often this node could not read it.
    pub failures: u32,
}

/// The stream in which comparisons travel, and its session: of another one neither hashes nor numbers say anything.
pub(super) type Stretch = (SessionId, u64);

#[derive(Debug)]
pub(super) struct VerifyRun {
    pub order: VerifyOrder,
    began: Mono,
    /// The copy was known to differ before.
    pub differed_before: bool,
    travels_in: Option<Stretch>,
    /// Where the walk goes on.
    volume: usize,
    offset: u64,
    walked_bytes: u64,
    again: VecDeque<Looked>,
    /// Being read, or waiting for their range, by slot.
    reading: BTreeMap<u32, Looked>,
    /// Handed to the stream, and not answered.
    probes: BTreeMap<Seq, Looked>,
    /// A volume was set aside meanwhile, and not compared.
    pub leaves_volume: bool,
    /// Since then nothing is left to do but what waits for a repair.
    lacks_since: Option<Mono>,
    /// Nothing is read before this.
    pub reads_at: Mono,
    pub totals: VerifyTotals,
    named: Vec<VerifyDifference>,
}

/// What a verify finds to do.
pub(super) enum NextLook {
    Read(Looked),
    /// For answers, for a repair, or for a range to be readable.
    Waits,
    /// All is compared.
    Through,
}

impl VerifyRun {
    pub fn new(order: VerifyOrder, now: Mono, differed_before: bool) -> VerifyRun {
        VerifyRun {
            order,
            began: now,
            differed_before,
            travels_in: None,
            volume: 0,
            offset: 0,
            walked_bytes: 0,
            again: VecDeque::new(),
            reading: BTreeMap::new(),
            probes: BTreeMap::new(),
            leaves_volume: false,
            lacks_since: None,
            reads_at: now,
            totals: VerifyTotals::default(),
            named: Vec::new(),
        }
    }

    // ---- the stream ----------------------------------------------------------------------------------------------------

    /// It travels in this one from here on. True: in another one than before, and what was under way begins again.
    pub fn travels_in(&mut self, stretch: Option<Stretch>) -> bool {
        let changes = self.travels_in != stretch;
        if changes {
            self.travels_in = stretch;
            self.again.extend(core::mem::take(&mut self.probes).into_values());
            self.again.extend(core::mem::take(&mut self.reading).into_values());
        }
        changes
    }

    /// Something is read, or waits for an answer.
    pub fn is_under_way(&self) -> bool {
        !self.reading.is_empty() || !self.probes.is_empty()
    }

    /// No more of it may be under way at once.
    pub fn is_full(&self) -> bool {
        self.reading.len() >= limits::VERIFY_READS_MAX
            || self.reading.len() + self.probes.len() >= limits::VERIFY_PROBES_MAX
    }

    pub fn begins_read(&mut self, slot: u32, looked: Looked) {
        self.reading.insert(slot, looked);
    }

    pub fn ends_read(&mut self, slot: u32) -> Option<Looked> {
        self.reading.remove(&slot)
    }

    pub fn is_asked(&mut self, seq: Seq, looked: Looked) {
        self.probes.insert(seq, looked);
    }

    pub fn asks(&self, seq: Seq) -> bool {
        self.probes.contains_key(&seq)
    }

    pub fn is_answered(&mut self, seq: Seq) -> Option<Looked> {
        self.probes.remove(&seq)
    }

    // ---- what comes next -----------------------------------------------------------------------------------------------

    pub fn look_again(&mut self, looked: Looked) {
        self.again.push_back(looked);
    }

    /// What is to be looked at again goes first. Where both copies are known to differ nothing is compared before that is repaired.
    /// What is not repaired for long, as this node cannot read it, is left out.
    pub fn next(&mut self, volumes: &Volumes, now: Mono) -> NextLook {
        let next = self.look(volumes);
        if !matches!(next, NextLook::Waits) || self.is_under_way() {
            self.lacks_since = None;
            return next;
        }
        if now.since(*self.lacks_since.get_or_insert(now)) < limits::VERIFY_LEAVES_OUT_AFTER {
            return next;
        }
        self.lacks_since = None;
        core::mem::take(&mut self.again).into_iter().for_each(|looked| self.leaves_out(looked));
        self.look(volumes)
    }

    fn look(&mut self, volumes: &Volumes) -> NextLook {
        for _ in 0..self.again.len() {
            let Some(looked) = self.again.pop_front() else { break };
            if self.is_gone(volumes, &looked.range) {
                continue;
            }
            if volumes[usize::from(looked.range.volume.0)].copy.is_aside() {
                self.leaves_volume = true;
                self.leaves_out(looked);
                continue;
            }
            if !lacks(volumes, &looked.range) {
                return NextLook::Read(looked);
            }
            self.again.push_back(looked);
        }
        while self.again.len() < limits::VERIFY_AGAIN_MAX {
            let Some(range) = self.walk(volumes) else {
                let through = self.again.is_empty() && !self.is_under_way();
                return if through { NextLook::Through } else { NextLook::Waits };
            };
            let looked = Looked { range, look: Look::Chunk, failures: 0 };
            if !lacks(volumes, &range) {
                return NextLook::Read(looked);
            }
            self.again.push_back(looked);
        }
        NextLook::Waits
    }

    /// The next range of the sample.
    fn walk(&mut self, volumes: &Volumes) -> Option<SyncRange> {
        while let Some(volume) = volumes.get(self.volume) {
            let (offset, size) = (self.offset, volume.size_bytes());
            if offset < size && volume.copy.is_aside() {
                self.leaves_volume = true;
                self.walked_bytes += size - offset;
                self.offset = size;
                continue;
            }
            if offset >= size {
                (self.volume, self.offset) = (self.volume + 1, 0);
                continue;
            }
            let length = PROBE_BYTES.min(size - offset);
            self.offset += length;
            self.walked_bytes += length;
            let chunk = offset / PROBE_BYTES;
            let is_left_out = injected(Fault::VerifySkipsRange) && chunk % 3 == 2;
            if !is_left_out && self.is_in_sample(self.volume as u64, chunk, size.div_ceil(PROBE_BYTES)) {
                return Some(SyncRange { volume: VolumeId(self.volume as u16), offset, length });
            }
        }
        None
    }

    /// Of each volume one chunk at least is.
    fn is_in_sample(&self, volume: u64, chunk: u64, chunks: u64) -> bool {
        let seed = mix(self.order.entropy, volume);
        self.order.is_full() || chunk == seed % chunks || mix(seed, chunk) % 100 < u64::from(self.order.sample_percent)
    }

    /// Its volume has become smaller since.
    fn is_gone(&self, volumes: &Volumes, range: &SyncRange) -> bool {
        !volumes.contain(range.volume, range.offset, range.length)
    }

    // ---- what was found ------------------------------------------------------------------------------------------------

    pub fn is_equal(&mut self, looked: Looked) {
        self.totals.compared_bytes += looked.range.length;
        if looked.look == Look::Repaired {
            self.totals.repaired_bytes += looked.range.length;
        }
    }

    /// A chunk is looked at region by region. False: it is no longer than one.
    pub fn narrows(&mut self, looked: Looked) -> bool {
        let SyncRange { volume, offset, length } = looked.range;
        let (first, last) = region_span(offset, length);
        if first == last {
            return false;
        }
        for region in first..=last {
            let from = region * REGION_BYTES;
            let range = SyncRange { volume, offset: from, length: REGION_BYTES.min(offset + length - from) };
            self.again.push_back(Looked { range, look: Look::Region, ..looked });
        }
        true
    }

    /// A region differs. `unreadable`: the peer could not read it. True: it is one of the first, which are named.
    pub fn differs(&mut self, range: SyncRange, unreadable: bool) -> bool {
        let SyncRange { volume, offset, length } = range;
        self.totals.differing_bytes += length;
        let is_named = self.named.len() < limits::VERIFY_NAMED_MAX;
        if is_named {
            self.named.push(VerifyDifference { volume, offset, length, unreadable });
        }
        is_named
    }

    /// This node cannot read it, or not again.
    pub fn leaves_out(&mut self, looked: Looked) {
        let length = looked.range.length;
        match looked.look {
            Look::Repaired => self.totals.compared_bytes += length,
            Look::Chunk | Look::Region => self.totals.unread_bytes += length,
        }
    }

    pub fn status(&self, volumes: &Volumes, now: Mono, waits: bool) -> VerifyStatus {
        VerifyStatus {
            order: self.order,
            since: now.since(self.began),
            waits,
            walked_bytes: self.walked_bytes,
            total_bytes: volumes.iter().map(|volume| volume.size_bytes()).sum(),
            totals: self.totals,
            named: self.named.clone(),
        }
    }

    /// Ranges that differ, the first of them.
    pub fn into_named(self) -> Vec<VerifyDifference> {
        self.named
    }

    /// So long the next read waits, for the rate's sake, after one of so many bytes.
    pub fn spends(&mut self, now: Mono, bytes: u64) {
        if let Some(rate) = self.order.rate_bytes_per_s {
            let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
            let wait = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
            self.reads_at = self.reads_at.max(now).plus(wait);
        }
    }
}

/// Both copies are known to differ there, or may.
pub(super) fn lacks(volumes: &Volumes, range: &SyncRange) -> bool {
    let copy = volumes.get(usize::from(range.volume.0)).map(|volume| &volume.copy);
    copy.is_some_and(|copy| copy.must_ship_in(range.offset, range.length))
}
