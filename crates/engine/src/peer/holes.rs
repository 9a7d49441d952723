//! A catch-up in which long runs of regions are dirty asks what is there before it reads: holes are neither read nor sent as data, so
//! a sparse volume costs what it holds.
//!
//! A run is asked about for up to 128 MiB, with its range locked: no write comes between the answer and the piece
//! of the cut that says so. One question at a time; what holds data is then read without asking again. Short holes are read.

use crate::common::Common;
use crate::context::Cx;
use crate::ids::*;
use crate::limits::{HOLE_BYTES_MIN, REGION_BYTES, ZERO_PART_BYTES_MAX};
use crate::peer::Peer;
use crate::peer::cuts::CutRead;
use crate::shared::slots::Op;
use crate::{Output, Store};

/// What a cut knows of where its walk stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    /// A question is under way.
    pub is_asking: bool,
    /// The volume holds data, or short holes, from the walk's place up to this region.
    pub data_until: Option<(VolumeId, u64)>,
}

impl Peer {
    /// Asks what is at the beginning of a long run instead of reading it. True: it did, or must first hear an answer.
    pub fn asks_for_hole(&mut self, common: &mut Common, cx: &mut Cx, volume: VolumeId, first: u64) -> bool {
        let Some(asked) = self.cut.as_ref().map(|cut| cut.asked) else { return false };
        if asked.is_asking {
            return true;
        }
        if asked.data_until.is_some_and(|(of, until)| of == volume && first < until) {
            return false;
        }
        let Some((_, next)) = common.volumes.of(volume).next_of_cut(first, u64::MAX, ZERO_PART_BYTES_MAX) else {
            return false;
        };
        let size = common.volumes.of(volume).config.size_bytes;
        let offset = first * REGION_BYTES;
        let length = (next * REGION_BYTES).min(size) - offset;
        let Some(cut) = self.cut.as_mut().filter(|_| length >= HOLE_BYTES_MIN) else { return false };
        cut.asked.is_asking = true;
        cut.reads += 1;
        let question = CutRead { cut: cut.name, volume, offset, length, save: false };
        let slot = common.slots.insert(Op::CutHole(question));
        common.volumes.of(volume).occupy(slot, offset, length, Seq::NONE, false);
        let (token, store) = (Token::new(common.id(), slot), Store::Volume(common.id(), volume));
        cx.out.push_back(Output::FindHole { token, store, offset, length });
        true
    }
}
