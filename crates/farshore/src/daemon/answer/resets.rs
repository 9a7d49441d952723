//! `reset`: a group that failed starts anew, and whoever typed that hears why it had failed, and whose content counts from now on.

use engine::identity::Role;
use engine::{Command, GroupId};
use host::driver::{Gone, GroupSnapshot};
use settings::NodeName;

use super::{Desk, reply};
use crate::api::Reply;
use crate::daemon::direction::Direction;
use crate::daemon::view;

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

/// What the data thread knows of a group.
pub(super) async fn snapshot_of(desk: &Desk, id: GroupId) -> Result<Option<GroupSnapshot>, Gone> {
    Ok(desk.control.snapshot().await?.groups.into_iter().find(|found| found.status.id == id))
}
