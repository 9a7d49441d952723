//! Looks at groups for operations that go on behind their answer: syncs, verifies, reverse syncs, and what waits for a group to come to rest.

use std::collections::BTreeMap;
use std::time::Instant;

use engine::identity::Role;
use engine::state::State;
use host::driver::{DriverSnapshot, GroupSnapshot};
use settings::{ConfiguredGroup, NodeName};

use super::Desk;
use crate::api::ApiRequest;
use crate::daemon::operations::{Course, ReverseLook, SyncLook, VerifyLook};
use crate::daemon::{verify_view, view};

/// What ends the operation of a request later than its answer.
pub(super) fn course_of(request: &ApiRequest) -> Option<Course> {
    match request {
        ApiRequest::Sync { full, .. } => Some(Course::sync(*full)),
        ApiRequest::Verify { .. } => Some(Course::verify()),
        ApiRequest::Reverse(order) if !order.stop => Some(Course::reverse()),
        _ => None,
    }
}

/// A look that is begun before the snapshot is asked for: what is over by now is so in the snapshot too.
pub(super) struct AwaitedLook {
    at: Instant,
    /// Numbers of reverse syncs whose clients are at home here, by group.
    homes: BTreeMap<String, u64>,
    /// Those of the last ones, where a forced promotion of this node has ended them.
    forced: BTreeMap<String, u64>,
}

impl AwaitedLook {
    pub fn begin(desk: &Desk) -> AwaitedLook {
        AwaitedLook { at: Instant::now(), homes: desk.reverses.home_numbers(), forced: desk.reverses.forced_numbers() }
    }

    /// Whether one that is waited for has ended.
    pub fn ends(self, desk: &Desk, snapshot: &DriverSnapshot) {
        if !desk.operations.awaits_look() {
            return;
        }
        let config = desk.config();
        desk.operations.groups_are(|group| config.group(group).is_some());
        for group in &snapshot.groups {
            let Some(named) = config.group_by_id(group.status.id) else { continue };
            desk.operations.look(&sync_look(named, group));
            desk.operations.look_at_verify(&verify_look(named, group, self.at));
            let name = named.name.as_str();
            desk.operations.look_at_reverse(&ReverseLook {
                at: self.at,
                group: name,
                peer: named.peer_of(&desk.node).map(NodeName::as_str).unwrap_or_default(),
                home: self.homes.get(name).copied(),
                forced: self.forced.get(name).copied(),
                failed: view::failed_words(named, group).as_deref(),
                is_primary: group.status.role == Role::Primary,
            });
        }
        if !snapshot.groups.iter().any(|group| group.is_leaving) {
            desk.operations.all_are_at_rest();
        }
    }
}

fn sync_look<'a>(named: &'a ConfiguredGroup, group: &GroupSnapshot) -> SyncLook<'a> {
    let now = &group.status;
    SyncLook {
        at: Instant::now(),
        group: named.name.as_str(),
        is_primary: now.role == Role::Primary,
        state: now.state,
        mode: now.mode,
        autosync: now.settings.autosync,
        is_due: now.sync_ordered || now.sync_position.is_some(),
        begins_by_itself: now.syncs_by_itself,
        is_full: group.figures.sync.is_some_and(|pace| pace.full),
        reads_regions: now.reads_regions,
        queued_bytes: now.queue.bytes,
        last: now.identity.position.seq,
        applied: now.peer.recovery_point.map(|(seq, _)| seq),
        why: view::with_names(named, &now.reason),
        left_out: view::left_out(named, now),
    }
}

fn verify_look<'a>(named: &'a ConfiguredGroup, group: &'a GroupSnapshot, at: Instant) -> VerifyLook<'a> {
    let now = &group.status;
    let comparable = now.volumes.iter().filter(|volume| !volume.is_aside);
    VerifyLook {
        at,
        group: named.name.as_str(),
        failed: matches!(now.state, State::Failed(_)).then_some(now.reason.as_str()),
        runs: now.verify.as_ref().map(|run| run.order.entropy),
        ended: now.verified.as_ref().map(|ended| (ended.order.entropy, verify_view::ended(named, ended))),
        comparable_bytes: comparable.map(|volume| volume.size_bytes).sum(),
    }
}
