//! What a change of role means where one node serves the clients of the other (docs/book/decisions/0063-reverse-sync.md).

use engine::GroupId;
use host::driver::{ClientsOrder, Gone};

use super::Desk;
use crate::api::Reply;
use crate::api::refusals::DeskRefusal;
use crate::daemon::reverses::ReversePlace;

/// The term of a node whose clients are served by its peer goes on: that hands over what they have seen.
pub(super) async fn begins_term(desk: &Desk, name: &str, force: bool) -> Result<Result<Option<String>, String>, Gone> {
    if desk.reverses.is_home(name) && !force {
        return Ok(Ok(None));
    }
    Ok(desk.terms.begin(name).await)
}

/// From now on the exports of this node are for the clients of the peer, or not any more. The answer, if it cannot be.
pub(super) async fn serves(desk: &Desk, name: &str, is_server: bool) -> Result<Result<(), Reply>, Gone> {
    let (id, group) = match desk.find_taken_up(name) {
        Ok(found) => found,
        Err(unknown) => return Ok(Err(unknown)),
    };
    let Some(peer) = group.peer_of(&desk.node) else { return Ok(Ok(())) };
    if desk.reverses.is_home(name) {
        let message =
            format!("{name}: node {} is in a reverse sync of its own: 'farshore status {name}' there", desk.node);
        return Ok(if is_server { Err(Reply::refused(DeskRefusal::ReverseUnderWay, message)) } else { Ok(()) });
    }
    let recorded = match is_server {
        true => desk.reverses.record(name, ReversePlace::Server).await,
        false => desk.reverses.end(name).await,
    };
    if let Err(why) = recorded {
        return Ok(Err(Reply::refused(DeskRefusal::StateDiskSilent, format!("{name}: nothing was changed: {why}"))));
    }
    let to = is_server.then(|| desk.config().node_id(peer));
    desk.control.lend(id, to).await?;
    Ok(Ok(()))
}

/// An operator has promoted this node by force: whatever was agreed on with the peer counts no more. True: something was.
pub(super) async fn is_forced(desk: &Desk, name: &str, id: GroupId) -> Result<bool, Gone> {
    let Some(place) = desk.reverses.place(name) else { return Ok(false) };
    if let Err(why) = desk.reverses.end(name).await {
        tracing::warn!("{name}: {why}");
    }
    match place {
        ReversePlace::Home { .. } => desk.control.clients(id, ClientsOrder::Part).await?,
        ReversePlace::Server => desk.control.lend(id, None).await?,
    }
    Ok(true)
}

/// This node is the secondary now: it serves nobody.
pub(super) async fn is_demoted(desk: &Desk, name: &str, id: GroupId) -> Result<(), Gone> {
    if desk.reverses.is_server(name) {
        if let Err(why) = desk.reverses.end(name).await {
            tracing::warn!("{name}: {why}");
        }
        desk.control.lend(id, None).await?;
    }
    Ok(())
}
