//! `reset`: a group that failed starts anew, and whoever typed that hears why it had failed, and whose content counts from now on.

use std::time::Duration;

use engine::identity::Role;
use engine::{Command, GroupId};
use host::driver::{Gone, GroupSnapshot};
use settings::NodeName;
use tokio::time::timeout;

use super::{Desk, reply};
use crate::api::{ApiRequest, GroupState, Reply};
use crate::daemon::direction::Direction;
use crate::daemon::view;

/// How long the other node's daemon is asked.
const PEER_PATIENCE: Duration = Duration::from_secs(2);

/// Also of a group that was not taken up: it is opened again.
pub(super) async fn reset(desk: &Desk, name: &str) -> Result<Reply, Gone> {
    let (id, group) = match desk.find(name) {
        Ok(found) => found,
        Err(unknown) => return Ok(unknown),
    };
    let failed = snapshot_of(desk, id).await?.and_then(|found| view::failed_words(&group, &found));
    let command = Command::Reset { entropy: host::driver::entropy() };
    let mut reply = reply(&group, desk.control.command(id, command).await?);
    let after = snapshot_of(desk, id).await?.map(|found| found.status);
    if let Reply::Ok { message, unchanged: true, .. } = &mut reply
        && let Some(peer) = group.peer_of(&desk.node)
        && has_failed_at(desk, name, peer).await
    {
        let there = format!("that of node {peer} has: 'farshore reset {name} --on {peer}'");
        *message = format!("{name}: the group has not failed here; {there}");
    }
    if let (Reply::Ok { message, unchanged: false, .. }, Some(after)) = (&mut reply, after) {
        let peer = group.peer_of(&desk.node).map(NodeName::as_str).unwrap_or_default();
        let way = Direction::of(&after).words(after.role == Role::Primary, peer);
        // What was to be done about it is behind the first sentence, and is done.
        let first = failed.as_deref().and_then(|why| why.split(". ").next());
        let why = first.map(|why| format!("; it had failed: {why}")).unwrap_or_default();
        *message += &view::with_names(&group, &format!("; {way}{why}"));
    }
    Ok(reply)
}

/// The other node's half of the group has failed. A daemon that does not say so soon is not waited for.
async fn has_failed_at(desk: &Desk, name: &str, peer: &NodeName) -> bool {
    let request = ApiRequest::Status { group: Some(name.to_owned()) };
    let answer = timeout(PEER_PATIENCE, (desk.ask_peer)(peer.to_string(), request)).await;
    let Ok(Ok(Reply::Status(theirs))) = answer else { return false };
    theirs.groups.iter().any(|group| group.name == name && group.state == GroupState::Failed)
}

/// What the data thread knows of a group.
pub(super) async fn snapshot_of(desk: &Desk, id: GroupId) -> Result<Option<GroupSnapshot>, Gone> {
    Ok(desk.control.snapshot().await?.groups.into_iter().find(|found| found.status.id == id))
}
