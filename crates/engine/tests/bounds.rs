//! Bounds that rest on one another.

use engine::limits::{HISTORY_BYTES_MIN, SAVE_HELD_BYTES_MAX};
use engine::wire::FrameKind;

#[test]
fn the_smallest_undo_store_has_room_for_what_is_saved_at_once() {
    const { assert!(HISTORY_BYTES_MIN >= 8 * SAVE_HELD_BYTES_MAX) };
}

#[test]
fn a_frame_of_a_kind_that_carries_nothing_may_announce_nothing() {
    let empty = [
        FrameKind::Void,
        FrameKind::Zero,
        FrameKind::SyncEnd,
        FrameKind::SyncReady,
        FrameKind::ProbeResult,
        FrameKind::Pull,
        FrameKind::BitsAsk,
    ];
    assert_eq!(empty.map(FrameKind::payload_max), [0; 7]);
}
