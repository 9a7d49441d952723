//! A catch-up in which long runs of regions are dirty asks what is there before it reads: holes are neither read nor sent as data, so
//! a sparse volume costs what it holds.
//!
//! A run is asked about for up to 128 MiB, with its range locked: no write comes between the answer and the piece
//! of the snapshot that says so. One question at a time; what holds data is then read without asking again. Short holes are read.

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::ids::*;
use crate::limits::{HOLE_BYTES_MIN, REGION_BYTES, ZERO_PART_BYTES_MAX};
use crate::peer::snapshot::CatchUpSnapshot;
use crate::shared::coverage::CoveragePoint;
use crate::shared::operation_slots::SlotOperation;
use crate::shared::reads::SnapshotRead;
use crate::{IoDone, IoResult, Output, Store};

/// What a snapshot knows of where its walk stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HoleQuestion {
    /// A question is under way.
    pub is_asking: bool,
    /// The volume holds data, or short holes, from the walk's position up to this region.
    data_until: Option<(VolumeId, u64)>,
}

impl CatchUpSnapshot {
    /// Asks what is at the beginning of a long run instead of reading it. True: it did.
    pub fn asks_for_hole(&mut self, common: &mut GroupCommon, cx: &mut Cx, volume: VolumeId, first: u64) -> bool {
        if self.asked.data_until.is_some_and(|(of, until)| of == volume && first < until) {
            return false;
        }
        let Some((_, next)) = common.volumes.of(volume).next_of_snapshot(first, u64::MAX, ZERO_PART_BYTES_MAX) else {
            return false;
        };
        let size = common.volumes.of(volume).size_bytes();
        let offset = first * REGION_BYTES;
        let length = (next * REGION_BYTES).min(size) - offset;
        if length < HOLE_BYTES_MIN {
            return false;
        }
        self.asked.is_asking = true;
        self.reads += 1;
        let question = SnapshotRead { snapshot: self.name, volume, offset, length, save: false, compare: false };
        let slot = common.slots.insert(SlotOperation::SnapshotHole(question));
        common.volumes.of(volume).occupy(slot, offset, length, Seq::NONE, false);
        let (token, store) = (Token::new(common.id(), slot), Store::Volume(common.id(), volume));
        cx.out.push_back(Output::FindHole { token, store, offset, length });
        true
    }

    /// What is not known to be a hole is read.
    pub fn hole_found(&mut self, common: &mut GroupCommon, cx: &mut Cx, question: SnapshotRead, result: IoResult) {
        let SnapshotRead { volume, offset, length, snapshot, .. } = question;
        if self.name != snapshot {
            return;
        }
        self.reads -= 1;
        let (run, is_hole) = match result {
            Ok(IoDone::Run { length: run, is_hole }) => (run.min(length), is_hole),
            _ => (0, false),
        };
        let first = offset / REGION_BYTES;
        // A last region that is cut short by the volume's end is whole if the run reaches that.
        let regions = if run == length { length.div_ceil(REGION_BYTES) } else { run / REGION_BYTES };
        let bytes = (regions * REGION_BYTES).min(length);
        self.asked.is_asking = false;
        if is_hole && bytes >= HOLE_BYTES_MIN {
            cx.coverage.hit(CoveragePoint::HoleFound);
            self.hold(volume, offset, bytes, None, false);
            self.walk_from(volume, first + regions);
            common.volumes.copy_of(volume).take_for_snapshot(first, first + regions);
            common.counters.resynced_bytes += bytes;
        } else {
            let until = first + regions.max(HOLE_BYTES_MIN / REGION_BYTES);
            self.asked.data_until = Some((volume, until));
            self.walk_from(volume, first);
        }
    }
}
