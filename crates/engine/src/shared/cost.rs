//! What a write or a frame costs: memory here or at the peer, bytes on the wire.

use crate::SendPayload;
use crate::formats::wire::HEADER_BYTES;
use crate::injected_fault::{Fault, injected};
use crate::limits::{ITEM_OVERHEAD_BYTES, META_BLOCK_BYTES};

/// What a write of this payload counts against the limit: the memory it really holds (rule 22), which comes in whole
/// blocks.
pub(crate) fn cost(payload_bytes: u64) -> u64 {
    let payload_bytes = if injected(Fault::PayloadNotCounted) { 0 } else { payload_bytes };
    payload_bytes.next_multiple_of(META_BLOCK_BYTES) + ITEM_OVERHEAD_BYTES
}

/// What one frame counts against the peer's window: the memory it costs there. A hash fits into the bookkeeping.
pub(crate) fn frame_cost(payload: &SendPayload) -> u64 {
    match payload {
        SendPayload::None | SendPayload::Control(_) => cost(0),
        SendPayload::Data(_) | SendPayload::Gathered(_) => cost(data_bytes(payload)),
    }
}

/// What one frame is on the wire.
pub(crate) fn frame_bytes(payload: &SendPayload) -> u64 {
    let payload_bytes = match payload {
        SendPayload::Control(bytes) => bytes.len() as u64,
        _ => data_bytes(payload),
    };
    payload_bytes + HEADER_BYTES as u64
}

/// Content of a volume in it.
pub(crate) fn data_bytes(payload: &SendPayload) -> u64 {
    match payload {
        SendPayload::None | SendPayload::Control(_) => 0,
        SendPayload::Data(slice) => u64::from(slice.length),
        SendPayload::Gathered(slices) => slices.iter().map(|slice| u64::from(slice.length)).sum(),
    }
}
