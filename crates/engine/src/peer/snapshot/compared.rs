//! Regions of which it is not known whether they differ are compared before they are sent: the peer gets a hash, and answers whether its
//! copy has the same. Only what differs is read again, and sent.
//!
//! ```text
//! unshipped -> asked (hash read, sent) -> equal: the peer has it
//!     ^                |                  differs: its regions are asked one by one; those that differ are read and sent
//!     +--- a write ----+ saved and sent, whatever the answer is
//! ```
//! * Nothing but the snapshot changes the peer's copy meanwhile, and no region of it twice. So an answer holds until the end.
//! * A region that waits for its answer is saved ahead of a write like any other that was not shipped: what is sent of it, if it is, is
//!   what stood there at the mark.
//! * What stands beside a difference does not travel. Where nearly all differs it is not asked for one by one: that only costs reads.
//! * So many hashes are under way that a round trip is hidden; the peer's window counts each.

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::bitmap::region_span;
use crate::formats::wire::{FrameHeader, flags};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::limits::{PROBE_BYTES, REGION_BYTES, SNAPSHOT_PROBES_MAX};
use crate::peer::pause::unreadable;
use crate::peer::snapshot::{CatchUpSnapshot, GivenUp};
use crate::shared::coverage::CoveragePoint;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::reads::{SnapshotRead, SyncRange};
use crate::shared::volumes::Volumes;
use crate::{IoDone, IoResult, Output, Store};
use alloc::collections::{BTreeMap, VecDeque};

/// What a snapshot compares.
#[derive(Debug, Default)]
pub(super) struct SnapshotProbes {
    reads: usize,
    /// Hashes that are read and not sent.
    hashed: VecDeque<(SyncRange, [u8; 32])>,
    /// Sent, and without an answer.
    asked: BTreeMap<Seq, SyncRange>,
    /// Found different: their regions are asked for one by one.
    narrowed: VecDeque<SyncRange>,
    density: Density,
    /// Regions found different, and not read yet.
    differing: VecDeque<SyncRange>,
    equal_bytes: u64,
}

impl SnapshotProbes {
    /// Another hash may be read.
    fn has_room(&self) -> bool {
        self.reads + self.hashed.len() + self.asked.len() + self.differing.len() < SNAPSHOT_PROBES_MAX
    }

    /// What was found different is sent, neighbours as one.
    fn is_different(&mut self, range: SyncRange) {
        let back = self.differing.back_mut();
        match back.filter(|back| back.volume == range.volume && back.offset + back.length == range.offset) {
            Some(back) => back.length += range.length,
            None => self.differing.push_back(range),
        }
    }

    /// Reads of hashes that are under way: nothing of them stays in memory.
    pub fn reads(&self) -> usize {
        self.reads
    }

    /// The next hash to be sent; it is not taken yet.
    pub fn next(&self) -> Option<(SyncRange, [u8; 32])> {
        self.hashed.front().copied()
    }

    /// It is sent with this number.
    pub fn take_next(&mut self, number: Seq) {
        if let Some((range, _)) = self.hashed.pop_front() {
            self.asked.insert(number, range);
        }
    }

    /// What the peer was found to have, and was not sent.
    pub fn equal_bytes(&self) -> u64 {
        self.equal_bytes
    }
}

/// How much of what differed was found to differ region by region, of late.
#[derive(Debug, Default)]
struct Density {
    regions: u64,
    differing: u64,
    /// Ranges that were sent whole, one after the other.
    whole: u64,
}

impl Density {
    /// Regions of which this is known before it counts, and from which on what is older counts half.
    const KNOWN: u64 = 512;
    /// Of so many ranges one is asked for region by region all the same: what comes may differ less.
    const LOOK_AGAIN: u64 = 16;

    fn note(&mut self, differs: bool) {
        self.regions += 1;
        self.differing += u64::from(differs);
        if self.regions >= 2 * Density::KNOWN {
            (self.regions, self.differing) = (self.regions / 2, self.differing / 2);
        }
    }

    /// A range differs: whether its regions are asked for one by one.
    fn narrows(&mut self) -> bool {
        let is_dense = self.regions >= Density::KNOWN && self.differing * 32 >= self.regions * 31;
        self.whole = if is_dense { (self.whole + 1) % Density::LOOK_AGAIN } else { 0 };
        self.whole == 0
    }
}

/// Of a run of regions what is compared or sent as one: up to which region, and whether it is compared.
pub(super) fn alike(volumes: &mut Volumes, volume: VolumeId, first: u64, next: u64) -> (u64, bool) {
    let copy = volumes.copy_of(volume);
    let compare = copy.needs_verification(first);
    let most = if compare { next.min(first + PROBE_BYTES / REGION_BYTES) } else { next };
    let end = (first + 1..most).find(|region| copy.needs_verification(*region) != compare);
    (end.unwrap_or(most), compare)
}

impl CatchUpSnapshot {
    /// Reads the hash of regions `first..next` under a lock on their range. False: enough of them are under way.
    pub(super) fn compare(
        &mut self,
        common: &mut GroupCommon,
        cx: &mut Cx,
        volume: VolumeId,
        (first, next): (u64, u64),
    ) -> bool {
        if !self.probes.has_room() {
            return false;
        }
        let offset = first * REGION_BYTES;
        let held = common.volumes.of(volume);
        let length = (next * REGION_BYTES).min(held.size_bytes()) - offset;
        held.copy.ask_of_snapshot(first, next);
        self.reads += 1;
        self.probes.reads += 1;
        let read = SnapshotRead { snapshot: self.name, volume, offset, length, save: false, compare: true };
        let slot = common.slots.insert(SlotOperation::Snapshot(read));
        common.volumes.of(volume).occupy(slot, offset, length, Seq::NONE, false);
        let (token, store) = (Token::new(common.id(), slot), Store::Volume(common.id(), volume));
        cx.out.push_back(Output::ReadHash { token, store, offset, length: length as u32 });
        true
    }

    /// The hash of a range is to be sent, unless a write has come there meanwhile.
    pub(super) fn hash_is_read(
        &mut self,
        common: &mut GroupCommon,
        read: &SnapshotRead,
        result: IoResult,
    ) -> Result<(), GivenUp> {
        self.reads -= 1;
        self.probes.reads -= 1;
        let Ok(IoDone::Hash(hash)) = result else {
            return Err(GivenUp::own_store(unreadable(read.volume, read.offset)));
        };
        common.counters.compared_bytes += read.length;
        let (first, last) = region_span(read.offset, read.length);
        if common.volumes.copy_of(read.volume).asked_in(first, last) > 0 {
            let SnapshotRead { volume, offset, length, .. } = *read;
            self.probes.hashed.push_back((SyncRange { volume, offset, length }, hash));
        }
        Ok(())
    }

    /// The next run of regions that the peer answered to be different.
    pub(super) fn next_differing(&mut self, common: &GroupCommon, longest: u64) -> Option<(VolumeId, u64, u64)> {
        next_unshipped(&mut self.probes.differing, common, longest)
    }

    /// The next region of a range that was found different. It may have to be read at once: its hash was overtaken by a write.
    pub(super) fn next_narrowed(&mut self, common: &GroupCommon) -> Option<(VolumeId, u64, u64)> {
        next_unshipped(&mut self.probes.narrowed, common, REGION_BYTES)
    }

    /// The peer's answer to a hash. False: nobody asked for it.
    pub fn probe_result(&mut self, common: &mut GroupCommon, cx: &mut Cx, header: &FrameHeader) -> bool {
        let Some(range) = self.probes.asked.remove(&header.seq) else { return false };
        let is_equal = header.flags & flags::EQUAL != 0 || injected(Fault::ProbeAlwaysEqual);
        let (first, last) = region_span(range.offset, range.length);
        let copy = common.volumes.copy_of(range.volume);
        let regions = copy.asked_in(first, last);
        if first == last && regions > 0 {
            self.probes.density.note(!is_equal);
        }
        cx.coverage.hit(if regions == 0 {
            CoveragePoint::SnapshotProbeOvertaken
        } else if is_equal {
            copy.is_answered_equal(first, last);
            let bytes = (regions * REGION_BYTES).min(range.length);
            self.done_bytes += bytes;
            self.probes.equal_bytes += bytes;
            common.counters.resynced_bytes += bytes;
            CoveragePoint::SnapshotProbeEqual
        } else if first < last && self.probes.density.narrows() {
            copy.ask_again(first, last);
            self.probes.narrowed.push_back(range);
            CoveragePoint::SnapshotProbeNarrowed
        } else {
            copy.ask_no_more(first, last);
            self.probes.is_different(range);
            CoveragePoint::SnapshotProbeDiffered
        });
        true
    }
}

/// The next run of these ranges that can be read now. What was saved meanwhile is done; to what somebody holds the walk comes again.
fn next_unshipped(
    ranges: &mut VecDeque<SyncRange>,
    common: &GroupCommon,
    longest: u64,
) -> Option<(VolumeId, u64, u64)> {
    loop {
        let SyncRange { volume, offset, length } = *ranges.front()?;
        let (first, last) = region_span(offset, length);
        let found = common.volumes.get(usize::from(volume.0))?.next_of_snapshot(first, last, longest);
        if let Some((first, next)) = found {
            return Some((volume, first, next));
        }
        ranges.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nearly_all_differs_few_ranges_are_narrowed_and_more_again_when_less_does() {
        let mut density = Density::default();
        let narrowed = |density: &mut Density| (0..160).filter(|_| density.narrows()).count();
        assert_eq!(narrowed(&mut density), 160, "nothing is known");
        (0..600).for_each(|_| density.note(true));
        assert_eq!(narrowed(&mut density), 10);
        (0..100).for_each(|_| density.note(false));
        assert_eq!(narrowed(&mut density), 160);
    }
}
