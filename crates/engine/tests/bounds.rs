//! Bounds that rest on one another.

use engine::limits::{HISTORY_BYTES_MIN, SAVE_HELD_BYTES_MAX};
use engine::wire::Kind;

#[test]
fn the_smallest_undo_store_has_room_for_what_is_saved_at_once() {
    const { assert!(HISTORY_BYTES_MIN >= 8 * SAVE_HELD_BYTES_MAX) };
}

#[test]
fn a_frame_of_a_kind_that_carries_nothing_may_announce_nothing() {
    let empty = [Kind::Void, Kind::Zero, Kind::SyncEnd, Kind::SyncReady, Kind::ProbeResult, Kind::Pull, Kind::BitsAsk];
    assert_eq!(empty.map(Kind::payload_max), [0; 7]);
}
