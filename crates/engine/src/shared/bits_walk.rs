//! A walk over dirty regions that are named to the peer: frames of words, made as the link takes them.

use alloc::vec::Vec;

use crate::SendPayload;
use crate::formats::wire::{FrameHeader, flags};
use crate::ids::VolumeId;
use crate::injected_fault::{Fault, injected};
use crate::limits::{GIB, REGION_BYTES};
use crate::shared::volumes::Volumes;

/// Words of dirty bits in one frame.
pub(crate) const BITS_WORDS: usize = 4096;

/// Of what lies behind 8 GiB, where the fault is injected.
const DISPLACED_REGIONS: u64 = 8 * GIB / REGION_BYTES;

/// Where a walk over the dirty regions of all volumes goes on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BitsWalk {
    volume: usize,
    region: u64,
    /// Frames so far.
    frames: u64,
}

impl BitsWalk {
    /// How many frames it has come to, without the last.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// The next words, under a header of this kind. The last frame has none, and is flagged as such.
    pub fn next(&mut self, header: FrameHeader, volumes: &Volumes) -> (FrameHeader, SendPayload) {
        while let Some(volume) = volumes.get(self.volume) {
            let Some((first, words)) = volume.copy.dirty.run_of_words(self.region, BITS_WORDS as u64) else {
                (self.volume, self.region) = (self.volume + 1, 0);
                continue;
            };
            self.region = (first + words.len() as u64) * 64;
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let offset = first * 64;
            self.frames += 1;
            let offset = if injected(Fault::BitsDisplaced) { offset % DISPLACED_REGIONS } else { offset };
            let header = FrameHeader { volume: VolumeId(self.volume as u16), offset, ..header };
            return (header, SendPayload::Control(bytes));
        }
        (FrameHeader { flags: flags::LAST, ..header }, SendPayload::None)
    }
}

/// Joins the words of such a frame into the bits here; true: it is the last. `None`: not what an honest peer sends, whose volumes have
/// these sizes.
pub(crate) fn join_words(
    volumes: &mut Volumes,
    their_bytes: &[u64],
    header: &FrameHeader,
    words: &[u8],
) -> Option<bool> {
    let at = usize::from(header.volume.0);
    let (theirs, volume) = (*their_bytes.get(at)?, volumes.get_mut(at)?);
    let last = header.offset.checked_add(words.len() as u64 * 8)?;
    let in_words = words.len().is_multiple_of(8) && header.offset.is_multiple_of(64);
    // Its volume may be larger than ours.
    if !in_words || last > crate::formats::bitmap::regions(theirs).next_multiple_of(64) {
        return None;
    }
    for (at, word) in words.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(word.try_into().ok()?);
        volume.copy.dirty.join_word(header.offset / 64 + at as u64, word);
    }
    Some(header.flags & flags::LAST != 0)
}

const _: () = assert!(BITS_WORDS * 8 <= crate::limits::CONTROL_BYTES_MAX as usize);
