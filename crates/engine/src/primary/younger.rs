//! In `superasync` the younger image counts, and not the order: what is overwritten again and again travels once in a snapshot, and each
//! time in the queue.
//!
//! ```text
//! writers at twice the link's rate, all of them in 128 MiB; the link carries 12.5 MB/s
//! queue:      grows by 12.5 MB/s; after five minutes the copy is 150 s old
//! snapshots:  128 MiB each, 11 s; the copy is 11 to 22 s old for ever
//! ```
//! A queue whose writes are all of other places has nothing to win by that, and keeps its order.

use alloc::format;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::injected_fault::{Fault, injected};
use crate::limits;
use crate::primary::Primary;
use crate::primary::disk_queue::go_on_by_snapshots;
use crate::shared::coverage::CoveragePoint;
use crate::state::{Mode, State};

/// Looks, once a second, what leaves the queue, and whether snapshots would bring a younger image.
pub(crate) fn look_at_queue(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx) {
    let (fill, record) = primary.peer.outbox.queued();
    let queued_bytes = primary.peer.outbox.stream().map_or(fill.bytes, |stream| stream.queue().bytes());
    primary.drain.look(cx.now.mono, record.left_bytes, queued_bytes);
    prefer_younger_image(primary, common, cx);
}

fn prefer_younger_image(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx) {
    let in_order = match primary.peer.state(common) {
        State::Replicating => true,
        // Behind an outage, when the queue is longest.
        State::CatchingUp => !injected(Fault::YoungerImageLate),
        _ => false,
    };
    let streams = common.settings.mode == Mode::Superasync && in_order;
    let Some(stream) = primary.peer.outbox.stream().filter(|stream| streams && stream.is_open()) else { return };
    let Some(rate) = primary.drain.per_second() else { return };
    let (queued, dirty) = (stream.queue().bytes(), dirty_bytes(common));
    // What streams goes on streaming until a sync may begin.
    let may_sync = cx.may_sync && common.settings.autosync && common.lifecycle.is_running();
    if may_sync && snapshots_are_younger(queued, dirty, rate) {
        cx.coverage.hit(CoveragePoint::QueueLeftForYoungerImage);
        let seconds = queued / rate.max(1);
        let why = format!(
            "what is queued would take {seconds} s to send, and a snapshot less than half of that: in superasync the younger image counts"
        );
        go_on_by_snapshots(primary, common, cx, &why);
    }
}

/// What a snapshot would send: nothing of a volume that is set aside, or has no device at the peer.
fn dirty_bytes(common: &GroupCommon) -> u64 {
    if injected(Fault::AsideCountsAsDirty) {
        return common.volumes.dirty_bytes();
    }
    common.volumes.dirty_bytes_to_send()
}

/// Whether what is queued takes too long to send, and what is dirty at most half as long. `rate`: bytes per second.
fn snapshots_are_younger(queued_bytes: u64, dirty_bytes: u64, rate: u64) -> bool {
    queued_bytes >= rate.saturating_mul(limits::SUPERASYNC_QUEUE_TIME.as_secs()) && dirty_bytes <= queued_bytes / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MIB;

    #[test]
    fn the_order_is_left_only_where_a_snapshot_takes_half_as_long() {
        let rate = 12 * MIB;
        assert!(!snapshots_are_younger(19 * rate, 0, rate), "the queue is short");
        assert!(snapshots_are_younger(20 * rate, 10 * rate, rate));
        assert!(!snapshots_are_younger(20 * rate, 11 * rate, rate), "nearly all are of other places");
        assert!(!snapshots_are_younger(u64::MAX / 2, 0, u64::MAX), "no number wraps");
    }
}
