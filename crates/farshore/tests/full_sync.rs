//! A full sync compares: of a copy that is equal nothing is sent but hashes.

use crate::common::{Pair, PairPlan, Side};

const VOLUME_BYTES: u64 = 64 << 20;
/// A write of a client in the middle of it, and the regions that it reaches into.
const WRITTEN_BYTES: u64 = 64 << 10;

// proves: P3
/// The first one sends all there is, the second one nothing, and one that is not to compare sends all of it again. Beside a writer, and over a
/// copy that was primary and wrote by itself, it sends what differs.
#[test]
fn a_full_sync_over_an_equal_copy_sends_hashes_alone() {
    let mut pair = Pair::new(&PairPlan { volumes: &["data"], volume_bytes: VOLUME_BYTES, ..PairPlan::DEFAULT });
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.until("the nodes have met", |pair| pair.status(Side::Near)["protection"] != "none");
    for piece in 0..32 {
        let (pattern, at) = (piece + 1, piece * (2 << 20));
        pair.qemu_io(Side::Near, "data", &[&format!("write -P {pattern} {at} {}", 2 << 20)]);
    }
    pair.sync_fully(Side::Near);
    pair.wait_for_rest(Side::Near);
    let first = shipped(&pair);
    assert!(first >= VOLUME_BYTES, "{first} bytes of a first sync");
    // Equal, and a client writes meanwhile.
    let writer = pair.start_qemu_io(Side::Near, "data", &[&format!("write -P 99 5M {WRITTEN_BYTES}"), "flush"]);
    pair.sync_fully(Side::Near);
    assert!(writer.finish(&mut pair).0, "the client is served");
    pair.wait_for_rest(Side::Near);
    let second = shipped(&pair) - first;
    assert!(second <= 2 * WRITTEN_BYTES, "{second} bytes of an equal copy");
    assert!(pair.counter(Side::Near, "group.g.compared_bytes") >= VOLUME_BYTES - 2 * WRITTEN_BYTES);
    // It is taken at its word.
    pair.done(Side::Near, &["sync", "g", "--full", "--no-compare", "--wait"]);
    pair.wait_for_rest(Side::Near);
    let third = shipped(&pair) - first - second;
    assert!(third >= VOLUME_BYTES, "{third} bytes of one that compares nothing");
    pair.stop_both();
    pair.assert_equal(&["data"]);
}

fn shipped(pair: &Pair) -> u64 {
    pair.counter(Side::Near, "group.g.shipped_bytes")
}
