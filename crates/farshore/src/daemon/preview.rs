//! What a connection of a group's nodes comes to, as the data path decides it now. Nothing is done.

use engine::identity::{Decision, Role};
use engine::limits::REGION_BYTES;
use engine::state::State;
use engine::status::GroupStatus;
use engine::{GroupId, RefusalCode};
use host::driver::DriverSnapshot;
use settings::{ConfiguredGroup, NodeName};

use super::view::with_names;
use crate::api::{CONNECT_SCHEMA, ConnectPreview, Reply, Verdict};

/// The answer of a node.
pub(super) fn answer(node: &NodeName, group: &ConfiguredGroup, id: GroupId, snapshot: &DriverSnapshot) -> Reply {
    let Some(found) = snapshot.groups.iter().find(|found| found.status.id == id) else {
        return Reply::refused(RefusalCode::GroupStarting, format!("{}: the group is starting", group.name));
    };
    let link = snapshot.links.iter().find(|link| link.peer == found.status.peer.node);
    let rate = link.and_then(|link| link.reading.as_ref()).map(|reading| reading.now.delivery_bytes_per_s);
    Reply::ConnectPreview(Box::new(of(node, group, &found.status, rate)))
}

/// `link_rate`: what the link carries, where that is known.
fn of(node: &NodeName, group: &ConfiguredGroup, now: &GroupStatus, link_rate: Option<u64>) -> ConnectPreview {
    let peer = group.peer_of(node).map(ToString::to_string).unwrap_or_default();
    let group_bytes = now.volumes.iter().fold(0, |sum: u64, volume| sum.saturating_add(volume.size_bytes));
    let reason = with_names(group, &now.reason);
    let (verdict, message, bytes) = decided(group, now, (&peer, group_bytes), &reason);
    let both_are_primary = (now.role, now.peer.role) == (Role::Primary, Some(Role::Primary));
    let fork = now.meeting.filter(|_| both_are_primary).map(|meeting| (now.peer.dirty_bytes, meeting.peer_dirty_bytes));
    let sends = matches!(verdict, Verdict::UnderWay | Verdict::GoOn | Verdict::UpdateSync | Verdict::FullSyncNeeded);
    let waits = sends && now.state == State::Logging && !reason.is_empty();
    let rate_bytes_per_s = now.peer.rate_bytes_per_s.max(link_rate).filter(|rate| *rate > 0);
    ConnectPreview {
        schema: CONNECT_SCHEMA.to_owned(),
        node: node.to_string(),
        group: group.name.to_string(),
        verdict,
        message,
        from: sends.then(|| node.to_string()),
        to: sends.then(|| peer.clone()),
        peer,
        regions: bytes.div_ceil(REGION_BYTES),
        region_bytes: REGION_BYTES,
        bytes,
        written_here_bytes: fork.map(|(here, _)| here),
        written_there_bytes: fork.map(|(_, there)| there),
        group_bytes,
        rate_bytes_per_s,
        seconds: rate_bytes_per_s.map(|rate| bytes as f64 / rate as f64),
        waits_for: waits.then_some(reason),
    }
}

/// The verdict, why, and how much there is to be sent at most.
fn decided(
    group: &ConfiguredGroup,
    now: &GroupStatus,
    (peer, group_bytes): (&str, u64),
    reason: &str,
) -> (Verdict, String, u64) {
    let dirty_bytes = now.peer.dirty_bytes;
    let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    if let State::Failed(_) = now.state {
        return (Verdict::Refused, format!("this node's half of the group has failed{because}"), 0);
    }
    if now.role == Role::Secondary {
        return match now.peer.role {
            Some(Role::Secondary) => (Verdict::Idle, "both nodes are secondary; promote one".to_owned(), 0),
            Some(Role::Primary) => {
                let name = &group.name;
                let why = format!(
                    "this node is the secondary: ask the primary {peer}, which knows what is to be sent: 'farshore connect {name} \
                     --dry-run' there"
                );
                (Verdict::Unknown, why, 0)
            }
            None => {
                let why = "this node is the secondary, and the primary, which knows what is to be sent, is not there";
                (Verdict::Unknown, why.to_owned(), 0)
            }
        };
    }
    if matches!(now.state, State::Syncing | State::CatchingUp | State::Replicating | State::Paused(_)) {
        let message = format!("the nodes are connected, and the group is {}{because}", now.state.word());
        return (Verdict::UnderWay, message, dirty_bytes.max(now.queue.bytes));
    }
    let Some(meeting) = now.meeting else {
        let message = format!("the peer is not connected, or its half of the group has not said who it is{because}");
        return (Verdict::Unknown, message, dirty_bytes.max(now.queue.bytes));
    };
    if meeting.peer_failed {
        return (Verdict::PeerFailed, "the peer's half of the group has failed, see 'status' there".to_owned(), 0);
    }
    match meeting.decision {
        Decision::Continue(seq) => {
            let message = format!("the peer has everything up to sequence {}: what came after goes on in order", seq.0);
            (Verdict::GoOn, message, now.queue.bytes)
        }
        Decision::UpdateSync => {
            let bytes = dirty_bytes.saturating_add(meeting.peer_dirty_bytes).min(group_bytes);
            (Verdict::UpdateSync, "the peer lacks the dirty regions only".to_owned(), bytes)
        }
        Decision::NeedsFullSync(why) => (Verdict::FullSyncNeeded, with_names(group, &why.to_string()), group_bytes),
        Decision::Refuse(why) => (Verdict::Refused, with_names(group, &why.to_string()), 0),
        Decision::Idle => (Verdict::Idle, "both nodes are secondary; promote one".to_owned(), 0),
    }
}
