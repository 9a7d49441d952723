//! What a secondary answers to a primary that needs verification.

use alloc::vec::Vec;

use crate::formats::wire::VolumeRange;
use crate::ids::Seq;

/// What the primary may have lost of what was confirmed to it.
#[derive(Debug)]
pub(crate) struct KeptTail {
    /// The question that it answers.
    pub question: Seq,
    pub ranges: Vec<VolumeRange>,
    /// More was confirmed than is named, and nobody knows what.
    pub unknown: bool,
}
