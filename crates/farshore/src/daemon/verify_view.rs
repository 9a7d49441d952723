//! A verify, and what speaks against a copy, in the words of the control socket.

use engine::Wall;
use engine::status::{GroupStatus, VerifiedStatus, VerifyDifference, VerifyStatus};
use settings::ConfiguredGroup;

use crate::api::{DifferenceView, VerifiedView, VerifyView};

pub(super) fn running(group: &ConfiguredGroup, run: &VerifyStatus) -> VerifyView {
    let VerifyStatus { order, since, waits, walked_bytes, total_bytes, totals, named } = run;
    VerifyView {
        repair: order.repair,
        by_timer: order.by_timer,
        sample_percent: order.sample_percent,
        rate_limit_bytes_per_s: order.rate_bytes_per_s,
        waits: *waits,
        since_s: since.as_secs_f64(),
        done_bytes: *walked_bytes,
        total_bytes: *total_bytes,
        compared_bytes: totals.compared_bytes,
        differing_bytes: totals.differing_bytes,
        repaired_bytes: totals.repaired_bytes,
        unread_bytes: totals.unread_bytes,
        differences: differences(group, named),
    }
}

pub(super) fn ended(group: &ConfiguredGroup, run: &VerifiedStatus) -> VerifiedView {
    let VerifiedStatus { order, leaves_volume, ended, totals, named, given_up } = run;
    VerifiedView {
        time: (*ended != Wall::default()).then(|| units::exact::time_text(ended.0)),
        repair: order.repair,
        by_timer: order.by_timer,
        leaves_volume: *leaves_volume,
        sample_percent: order.sample_percent,
        compared_bytes: totals.compared_bytes,
        differing_bytes: totals.differing_bytes,
        repaired_bytes: totals.repaired_bytes,
        unread_bytes: totals.unread_bytes,
        given_up: given_up.clone(),
        differences: differences(group, named),
    }
}

fn differences(group: &ConfiguredGroup, named: &[VerifyDifference]) -> Vec<DifferenceView> {
    let volume = |found: &VerifyDifference| group.volumes.get(usize::from(found.volume.0));
    let one = |found: &VerifyDifference| DifferenceView {
        volume: volume(found).map(|volume| volume.name.to_string()).unwrap_or_default(),
        offset_bytes: found.offset,
        bytes: found.length,
        unreadable: found.unreadable,
    };
    named.iter().map(one).collect()
}

/// What speaks against the copy.
pub(super) fn warnings(group: &ConfiguredGroup, now: &GroupStatus) -> Vec<String> {
    let name = &group.name;
    let assumed = now.doubts.assumed_equal.then(|| {
        format!(
            "both copies were declared equal by an operator, and nobody has compared them since: 'farshore verify {name}' does, while \
             writers go on"
        )
    });
    let differs = now.doubts.differs.then(|| {
        format!(
            "a verify found blocks that differ between the nodes: 'farshore verify {name} --repair' sends the primary's content again, if \
             that is what counts; 'farshore events {name}' has the ranges"
        )
    });
    assumed.into_iter().chain(differs).collect()
}
