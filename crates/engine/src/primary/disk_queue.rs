//! What the disk queue means for writers: it made room, it failed, or it is full like memory.

use alloc::format;
use alloc::string::String;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::limits::OWN_DISK_PATIENCE;
use crate::peer::disk_queue::FetchFailed;
use crate::peer::pause::PauseCause;
use crate::primary::Primary;
use crate::shared::coverage::CoveragePoint;
use crate::shared::wakes::Wake;
use crate::state::Mode;
use crate::{Event, IoError, IoResult, limits};

/// A batch was written to the disk queue, or could not be.
pub(crate) fn queue_spilled(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx, result: IoResult) {
    if let Err(error) = primary.peer.outbox.queue_spilled(common, cx, result) {
        cx.coverage.hit(CoveragePoint::QueueSpillFailed);
        let why = if error == IoError::NoSpace { "its file system is full" } else { "its disk refuses a write" };
        let note = format!(
            "the disk queue takes nothing more: {why}. What it holds is still sent in order; what comes now has to fit in memory"
        );
        cx.event(common.id(), Event::Note(note));
        common.wake(Wake::Waits);
    }
    common.wake(Wake::Room);
}

/// What stood in the disk queue is in memory again. If it cannot be read its regions are dirty, as those of every write are.
pub(crate) fn queue_fetched(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx, result: IoResult) {
    let Err(failed) = primary.peer.outbox.queue_fetched(common, cx, result) else { return };
    cx.coverage.hit(CoveragePoint::QueueFetchFailed);
    let why = match failed {
        FetchFailed::Unreadable => "what stands in the disk queue cannot be read",
        FetchFailed::Damaged => "what stands in the disk queue is damaged",
    };
    primary.fail_held(common, cx);
    give_order_up(primary, common, cx, why, PauseCause::OwnStoreFailed);
}

/// In `superasync`, or with `queue.when_full = "bitmap"`: nobody waits for room.
pub(super) fn leave_full_queue(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx) {
    cx.coverage.hit(CoveragePoint::QueueFullToBitmap);
    let who_says = match common.settings.mode {
        Mode::Superasync => "and in superasync nobody waits for room",
        _ => "and queue.when_full says that nobody waits for room",
    };
    let why = match primary.peer.outbox.disk_makes_room(cx, common.settings.wait_limit) {
        true => format!(
            "this node's disk has not made room in the queue within {} ms {who_says}",
            OWN_DISK_PATIENCE.as_millis()
        ),
        false => what_is_full(common, who_says),
    };
    go_on_by_snapshots(primary, common, cx, &why);
}

/// The order is given up, and what is dirty is sent at once: the link is well, and has nothing else to do.
pub(super) fn go_on_by_snapshots(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
    primary.fall_to_logging(common, cx, why);
    primary.peer.keep_from_stream(cx.now.mono);
    primary.try_autosync(common, cx);
}

/// The peer is well, and this node cannot go on in order: an update sync follows soon.
pub(super) fn give_order_up(
    primary: &mut Primary,
    common: &mut GroupCommon,
    cx: &mut Cx,
    why: &str,
    cause: PauseCause,
) {
    primary.fall_to_logging(common, cx, why);
    primary.peer.pause(cx.now.mono, cause);
    common.set_timer(cx, GroupTimer::Autosync, limits::RESYNC_HOLD_OFF);
}

pub(super) fn what_is_full(common: &GroupCommon, and: &str) -> String {
    let short = common.memory.is_short();
    format!("{} {and}", if short { "the node's memory is used up" } else { "the queue is full" })
}
