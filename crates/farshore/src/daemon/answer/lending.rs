//! What a change of role means where one node serves the clients of the other (docs/book/decisions/0063-reverse-sync.md).

use engine::state::{Broken, State};
use engine::status::GroupStatus;
use engine::{Command, GroupId};
use host::driver::{ClientsOrder, Gone};
use settings::NodeName;
use settings::limits::REVERSE_AGAIN_AFTER;

use super::Desk;
use crate::api::refusals::DeskRefusal;
use crate::api::{ApiRequest, Reply};
use crate::daemon::reverses::ReversePlace;

/// The term of a node whose clients are served by its peer goes on: that hands over what they have seen.
pub(super) async fn begins_term(desk: &Desk, name: &str, force: bool) -> Result<Result<Option<String>, String>, Gone> {
    if !force && desk.reverses.home(name).is_some_and(|home| !home.owes_term()) {
        return Ok(Ok(None));
    }
    Ok(desk.terms.begin(name).await)
}

/// This node is the secondary, and what clients have seen here is given up for the peer's content: another term begins with that. It does not
/// begin before: where the demotion is refused nothing has changed for whoever is attached. Whoever came in before leaves, so nobody is served by
/// the peer in the term before. The error: a sentence.
pub(super) async fn gives_content_up(desk: &Desk, name: &str, id: GroupId) -> Result<Result<(), String>, Gone> {
    if desk.reverses.home(name).is_none_or(|home| !home.owes_term()) {
        return Ok(Ok(()));
    }
    if let Err(why) = desk.terms.begin(name).await {
        return Ok(Err(why));
    }
    desk.control.clients(id, ClientsOrder::Part).await?;
    desk.control.part_with_held(id).await?;
    Ok(desk.reverses.has_new_term(name).await.map(drop))
}

/// A group that stood still for a reverse sync sends as its settings say.
pub(super) async fn stands_still_no_more(desk: &Desk, name: &str, id: GroupId) -> Result<(), Gone> {
    if !desk.reverses.stands_still(name, false) {
        return Ok(());
    }
    desk.control.lend(id, None).await?;
    let settings = desk.settings_of_groups().await;
    if let Some((id, settings)) = settings.into_iter().find(|(of, _)| *of == id) {
        desk.control.command(id, Command::Set(settings)).await?;
    }
    Ok(())
}

/// Whether this node is the primary on record only a reset tells: nothing is done on its word before that.
pub(super) fn role_is_unknown(now: &GroupStatus) -> bool {
    now.state == State::Failed(Broken::Superblock)
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
    if let Err(why) = desk.reverses.end_by_force(name).await {
        tracing::warn!("{name}: {why}");
    }
    match place {
        ReversePlace::Home(_) => {
            stands_still_no_more(desk, name, id).await?;
            desk.control.clients(id, ClientsOrder::Part).await?;
        }
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

/// What whoever began it is told.
pub(super) fn begun(name: &str, peer: &NodeName, full: bool) -> String {
    let what = if full { "all of it" } else { "what differs" };
    format!(
        "{name}: node {peer} serves the clients of this node; it sends its content, {what}, and this node takes over again by itself when both \
         are equal"
    )
}

/// Clients are served here as before, and the peer hears of that. If it does not hear, it finds out. Where the record has this node demoted by
/// the next run of the daemon nobody is served before that is gone: what they wrote would be given up. Then it is tried again.
pub(super) async fn never_began(desk: &Desk, (name, id): (&str, GroupId), peer: &NodeName) -> Result<(), Gone> {
    desk.reverses.never_began(name);
    if desk.reverses.is_still(name) {
        if let Err(why) = desk.reverses.end(name).await {
            tracing::warn!("{name}: clients wait until the record of a reverse sync that has not begun is gone: {why}");
            desk.reverses.refused(name, why, REVERSE_AGAIN_AFTER);
            return Ok(());
        }
        stands_still_no_more(desk, name, id).await?;
    }
    desk.control.clients(id, ClientsOrder::GoOn).await?;
    if let Err(why) = desk.reverses.end(name).await {
        tracing::warn!("{name}: {why}");
    }
    let _ = (desk.ask_peer)(peer.to_string(), ends(name, true)).await;
    Ok(())
}

/// The peer serves no clients of this node any more; or they are served here again.
pub(super) fn ends(name: &str, home_serves: bool) -> ApiRequest {
    ApiRequest::Lend { group: name.to_owned(), skip_hooks: false, ends: true, home_serves }
}

pub(super) fn ended_meanwhile(name: &str) -> Reply {
    let message = format!("{name}: an operator has ended the reverse sync meanwhile: 'farshore status {name}'");
    Reply::refused(DeskRefusal::ReverseOver, message)
}

/// The node that served was told to stop.
pub(super) fn is_over_there(reply: &Result<Reply, String>) -> bool {
    let Ok(Reply::Error { refusal: Some(refusal), .. }) = reply else { return false };
    refusal.code == DeskRefusal::ReverseOver.word()
}

/// Why an order to the peer came to nothing.
pub(super) fn answered(reply: Result<Reply, String>) -> Result<(), String> {
    match reply {
        Ok(Reply::Ok { .. }) => Ok(()),
        Ok(Reply::Error { message, .. }) => Err(message),
        Ok(_) => Err("it answers otherwise: are both nodes of one version?".to_owned()),
        Err(why) => Err(why),
    }
}
