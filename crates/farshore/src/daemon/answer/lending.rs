//! What a change of role means where one node serves the clients of the other (docs/book/decisions/0063-reverse-sync.md).

use std::time::{Duration, Instant};

use engine::identity::Role;
use engine::state::{Broken, State};
use engine::status::GroupStatus;
use engine::{Command, GroupId, RefusalCode};
use host::driver::{ClientsOrder, ForwardStatus, Gone};
use settings::NodeName;
use settings::limits::{REVERSE_AGAIN_AFTER, REVERSE_HANDOVER_PATIENCE, REVERSE_QUIET_PATIENCE};
use tokio::time::sleep;

use super::Desk;
use crate::api::refusals::{DeskRefusal, RefusalView};
use crate::api::{ApiRequest, Reply};
use crate::daemon::reverses::{ReverseId, ReversePlace};
use crate::daemon::role_hooks::Candidate;

/// How often it is looked whether requests have ended, or a step.
pub(super) const QUIET_LOOK: Duration = Duration::from_millis(5);

/// An end of a reverse sync that is under way is waited for so long by whoever types another change of role.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Before this node becomes the primary: another term begins, unless the peer has served the clients of this node, and nobody else's, until it was
/// demoted. That only the peer knows. If an operator had it serve others, what waits here may be older than what those have written, and so may
/// what a device has not heard the answer to. The error: nothing is promoted.
pub(super) async fn begins_term(
    desk: &Desk,
    (name, now): (&str, &GroupStatus),
    peer: &NodeName,
    force: bool,
) -> Result<Result<Option<String>, Reply>, Gone> {
    let is_home = desk.reverses.is_home(name);
    // Whoever has seen what is given up is not served by the peer.
    let owes_term = desk.reverses.home(name).is_some_and(|home| home.owes_term());
    if is_home && !force {
        match asks(desk, name, peer, false).await {
            Ok(true) if !owes_term => return Ok(Ok(None)),
            Ok(true) => {}
            Ok(false) => {
                if let Err(why) = cut_off(desk, (name, now.id), peer).await? {
                    let message = format!("{name}: {why}; the node was not promoted");
                    return Ok(Err(Reply::refused(DeskRefusal::StateDiskSilent, message)));
                }
            }
            Err(why) => return Ok(Err(unknown_server(name, now, peer, &why))),
        }
    }
    // What was asked in the term before is not to land in this one, here or at the peer, and whoever comes from here on is served by nobody before
    // the promotion: that may take minutes.
    desk.control.clients(now.id, ClientsOrder::Part).await?;
    desk.control.part_with_held(now.id).await?;
    let begun = desk.terms.begin(name).await;
    Ok(begun.map_err(|why| {
        Reply::failed(DeskRefusal::TermNotRecorded, format!("{name}: {why}; the node was not promoted"))
    }))
}

/// This node is about to be promoted by a word, and has it on record that it serves the clients of its peer. The record goes where the peer has none of
/// that: its exports would be closed to everybody. Else, what to say of that.
pub(super) async fn serves_still(desk: &Desk, name: &str, peer: &NodeName) -> Result<Option<String>, Gone> {
    if !desk.reverses.is_server(name) {
        return Ok(None);
    }
    let id = desk.reverses.id(name);
    // What cannot be read is ended by an operator.
    let is_over = desk.reverses.why(name).is_none() && asks(desk, name, peer, true).await == Ok(false);
    if is_over && desk.reverses.id(name) == id && serves(desk, name, (false, id)).await?.is_ok() {
        return Ok(None);
    }
    Ok(Some(format!(
        "its exports are for clients of node {peer} alone, in a reverse sync: 'farshore sync {name} --reverse --stop' here opens them for others"
    )))
}

fn unknown_server(name: &str, now: &GroupStatus, peer: &NodeName, why: &str) -> Reply {
    let (code, why) = Candidate::of(now).no_promotion(false).unwrap_or_else(|| {
        let why = format!(
            "node {peer} does not say whether it has served clients of this node alone: {why}; --force promotes this node all the same, and cuts \
             its clients off"
        );
        (RefusalCode::PeerSilent, why)
    });
    Reply::refused(code, format!("{name}: {why}"))
}

/// Whether this node serves the clients of the peer, or has its own served there.
pub(super) fn has_part(desk: &Desk, asked: &ApiRequest) -> Reply {
    let ApiRequest::InReverse { group: name, is_home, reverse, ends } = asked else {
        unreachable!("it is asked for nothing else")
    };
    if let Err(unknown) = desk.find(name) {
        return unknown;
    }
    // Home asks the node that is to serve before it is demoted, and while its commands run that one may be told to stop.
    let is_refused = if *is_home { desk.reverses.is_going_over(name) } else { desk.role_changes.is_changing(name) };
    if *ends && is_refused {
        return is_changing(desk, name);
    }
    let is_placed = if *is_home { desk.reverses.is_home(name) } else { desk.reverses.is_server(name) };
    match is_placed && desk.reverses.is_of(name, ReverseId(*reverse)) {
        true => Reply::unchanged(format!("{name}: it is on record at node {}", desk.node)),
        false => {
            let message = format!("{name}: there is no such reverse sync on record at node {}", desk.node);
            Reply::refused(DeskRefusal::ReverseOver, message)
        }
    }
}

pub(super) fn is_changing(desk: &Desk, name: &str) -> Reply {
    let message = format!("{name}: node {} is changing its role just now", desk.node);
    Reply::refused(RefusalCode::RoleChanging, message)
}

/// The request that asks whether the peer has this part in the reverse sync that is on record here. `ends`: nothing of it is to be under way there.
pub(super) fn in_reverse(desk: &Desk, name: &str, (is_home, ends): (bool, bool)) -> ApiRequest {
    ApiRequest::InReverse { group: name.to_owned(), is_home, reverse: desk.reverses.id(name).0, ends }
}

/// Whether the peer serves the clients of this node, or has its own served here, by its own record.
///
/// # Errors
/// Why it does not say.
pub(super) async fn asks(desk: &Desk, name: &str, peer: &NodeName, is_home: bool) -> Result<bool, String> {
    let reply = (desk.ask_peer)(peer.to_string(), in_reverse(desk, name, (is_home, false))).await;
    match is_over_there(&reply) {
        true => Ok(false),
        false => answered(reply).map(|()| true),
    }
}

/// The last question before this node is demoted for the peer to serve its clients: commands may have run for minutes since the peer got ready, and
/// an operator may have told it to stop meanwhile, or be about to: that asks here, and is refused from now on.
///
/// # Errors
/// The answer to whoever began it.
pub(super) async fn is_expected(desk: &Desk, name: &str, peer: &NodeName) -> Result<(), Reply> {
    let reply = (desk.ask_peer)(peer.to_string(), in_reverse(desk, name, (false, true))).await;
    let refused = |(refusal, why): (RefusalView, String)| {
        Reply::refused(refusal, format!("{name}: nothing was changed: node {peer} {why}"))
    };
    speaks_against(reply).map_err(refused)
}

/// What the peer says against it, or that it says nothing.
fn speaks_against(reply: Result<Reply, String>) -> Result<(), (RefusalView, String)> {
    if is_over_there(&reply) {
        let why = "was told meanwhile to serve no clients of this node".to_owned();
        return Err((DeskRefusal::ReverseOver.into(), why));
    }
    // It is there, and does something else just now: that is no silence.
    let is_changing = matches!(&reply, Ok(Reply::Error { refusal: Some(refusal), .. })
        if refusal.code == RefusalCode::RoleChanging.word());
    let refusal = if is_changing { RefusalCode::RoleChanging.into() } else { DeskRefusal::PeerNotReached.into() };
    answered(reply)
        .map_err(|why| (refusal, format!("does not say whether it is to serve clients of this node still: {why}")))
}

/// What waits here must not land behind what others have written at the peer since. The error: the record is there still, and so are they.
pub(super) async fn cut_off(
    desk: &Desk,
    (name, id): (&str, GroupId),
    peer: &NodeName,
) -> Result<Result<(), String>, Gone> {
    if let Err(why) = desk.reverses.end(name).await {
        desk.reverses.refused(name, why.clone(), REVERSE_AGAIN_AFTER);
        return Ok(Err(why));
    }
    tracing::warn!("{name}: node {peer} was told to serve the clients of this node no more: they are cut off");
    desk.control.clients(id, ClientsOrder::Part).await?;
    desk.control.part_with_held(id).await?;
    Ok(Ok(()))
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
pub(super) async fn serves(
    desk: &Desk,
    name: &str,
    (is_server, id): (bool, ReverseId),
) -> Result<Result<(), Reply>, Gone> {
    let (group_id, group) = match desk.find_taken_up(name) {
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
        true => desk.reverses.record(name, ReversePlace::Server, id).await,
        false => desk.reverses.end(name).await,
    };
    if let Err(why) = recorded {
        return Ok(Err(Reply::refused(DeskRefusal::StateDiskSilent, format!("{name}: nothing was changed: {why}"))));
    }
    let to = is_server.then(|| desk.config().node_id(peer));
    desk.control.lend(group_id, to).await?;
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
            // They were held for it, if this node was the primary still.
            desk.control.clients(id, ClientsOrder::GoOn).await?;
        }
        ReversePlace::Server => desk.control.lend(id, None).await?,
    }
    Ok(true)
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
    let reverse = desk.reverses.id(name);
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
    if let Some(warning) = serves_again(desk, name, peer, reverse).await {
        tracing::warn!("{name}: {warning}");
    }
    Ok(())
}

/// The clients are served here again, or were never served elsewhere.
pub(super) async fn is_over(desk: &Desk, (name, id): (&str, GroupId), peer: &NodeName) -> Result<(), Gone> {
    // As where it never began: the record is to go first.
    let is_still = desk.reverses.is_still(name);
    if !is_still && desk.control.is_held(id).await? {
        desk.control.clients(id, ClientsOrder::GoOn).await?;
    }
    let reverse = desk.reverses.id(name);
    match desk.reverses.end(name).await {
        Ok(()) => tracing::info!("{name}: the reverse sync is over: this node is the primary"),
        Err(why) => {
            desk.reverses.refused(name, why, REVERSE_AGAIN_AFTER);
            return Ok(());
        }
    }
    if is_still {
        stands_still_no_more(desk, name, id).await?;
        desk.control.clients(id, ClientsOrder::GoOn).await?;
    }
    // A peer that is secondary serves nobody, told or not.
    if let Some(warning) = serves_again(desk, name, peer, reverse).await {
        tracing::warn!("{name}: {warning}");
    }
    Ok(())
}

/// A change of role is typed here that is no step of a reverse sync. One that is over, or has not begun, and whose record is there still, ends first:
/// by that record its clients would be served by the peer, and this node would take over again. The answer, if it does not end.
pub(super) async fn ends_before(desk: &Desk, name: &str) -> Result<Option<Reply>, Gone> {
    let Ok((id, group)) = desk.find_taken_up(name) else { return Ok(None) };
    let Some(peer) = group.peer_of(&desk.node) else { return Ok(None) };
    let until = Instant::now() + END_PATIENCE;
    // Another change of role has this one refused, and beside a begin whichever takes its turn first is made.
    let is_begun = || desk.reverses.is_begun(name) || desk.reverses.left_over(name).is_some();
    while desk.reverses.is_home(name) && !is_begun() && !desk.role_changes.is_changing(name) {
        let now = desk.status_of(id).await?;
        if now.is_none_or(|now| now.starting || now.role == Role::Secondary || role_is_unknown(&now)) {
            return Ok(None);
        }
        if desk.reverses.begins_step(name) {
            let ended = is_over(desk, (name, id), peer).await;
            desk.reverses.is_done(name);
            ended?;
            return Ok(desk.reverses.is_home(name).then(|| {
                let why = desk.reverses.why(name).unwrap_or_default();
                let message = format!(
                    "{name}: nothing was changed: the record of a reverse sync that is over is there still: {why}"
                );
                Reply::refused(DeskRefusal::ReverseUnderWay, message)
            }));
        }
        if Instant::now() >= until {
            return Ok(Some(is_being_begun(name)));
        }
        sleep(QUIET_LOOK).await;
    }
    Ok(None)
}

/// The peer hears that its clients are served at home. A word that is lost it asks for. What it says against that is a warning: promoted for clients
/// that never came it serves nobody.
pub(super) async fn serves_again(desk: &Desk, name: &str, peer: &NodeName, reverse: ReverseId) -> Option<String> {
    match (desk.ask_peer)(peer.to_string(), ends(name, true, reverse)).await {
        Ok(Reply::Error { message, .. }) => Some(format!("node {peer} says: {message}")),
        _ => None,
    }
}

/// The peer serves no clients of this node any more; or they are served here again. `reverse`: what this is about, so that it may come late.
pub(super) fn ends(name: &str, home_serves: bool, reverse: ReverseId) -> ApiRequest {
    ApiRequest::Lend { group: name.to_owned(), skip_hooks: false, ends: true, home_serves, reverse: reverse.0 }
}

pub(super) fn is_being_begun(name: &str) -> Reply {
    let message = format!(
        "{name}: nothing was changed: a reverse sync is being begun, or comes to its end: 'farshore status {name}', then type this again"
    );
    Reply::refused(DeskRefusal::ReverseUnderWay, message)
}

pub(super) async fn is_primary(desk: &Desk, id: GroupId) -> Result<bool, Gone> {
    Ok(desk.status_of(id).await?.is_some_and(|now| now.role == Role::Primary && !now.starting))
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

/// The peer hands over now: requests of clients wait until it has, and none is at the peer. If it does not, they go on there a little later.
pub(super) async fn comes_to_rest(desk: &Desk, name: &str) -> Result<Reply, Gone> {
    let id = match desk.find_taken_up(name) {
        Ok((id, _)) => id,
        Err(unknown) => return Ok(unknown),
    };
    if !desk.reverses.is_home(name) {
        let message = format!("{name}: no clients of node {} are served elsewhere", desk.node);
        return Ok(Reply::refused(DeskRefusal::ReverseOver, message));
    }
    if desk.role_changes.is_changing(name) {
        return Ok(is_changing(desk, name));
    }
    desk.reverses.refused(name, "the other node hands over".to_owned(), REVERSE_HANDOVER_PATIENCE);
    desk.control.clients(id, ClientsOrder::Pause).await?;
    if is_quiet(desk, id).await? {
        return Ok(Reply::ok(format!("{name}: requests of clients wait at node {}", desk.node)));
    }
    desk.control.clients(id, ClientsOrder::Forward).await?;
    let message = format!("{name}: requests that are under way have no answer within {REVERSE_QUIET_PATIENCE:?}");
    Ok(Reply::refused(DeskRefusal::ReverseUnderWay, message))
}

/// The peer does not say whether it serves the clients of this node: nothing is done before it does. It serves them no more: they are cut off. Whether
/// it goes on.
pub(super) async fn is_served(desk: &Desk, (name, id): (&str, GroupId), peer: &NodeName) -> Result<bool, Gone> {
    match asks(desk, name, peer, false).await {
        Ok(true) => return Ok(true),
        // What cannot be recorded is tried again.
        Ok(false) => _ = cut_off(desk, (name, id), peer).await?,
        Err(why) => desk.reverses.refused(name, why, REVERSE_AGAIN_AFTER),
    }
    Ok(false)
}

async fn is_quiet(desk: &Desk, id: GroupId) -> Result<bool, Gone> {
    let until = Instant::now() + REVERSE_QUIET_PATIENCE;
    while Instant::now() < until {
        let snapshot = desk.control.snapshot().await?;
        let forward = snapshot.groups.into_iter().find(|found| found.status.id == id).and_then(|found| found.forward);
        match forward {
            Some(ForwardStatus { is_quiet: false, .. }) => sleep(QUIET_LOOK).await,
            _ => return Ok(true),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that ends the reverse sync in this moment was taken for one that is away: this node was demoted for it, and nobody served.
    #[test]
    fn a_peer_that_is_changing_its_role_is_not_away() {
        let code = |reply| speaks_against(reply).map_err(|(refusal, _)| refusal.code);
        let refused = |refusal: RefusalView| Ok(Reply::refused(refusal, "db: no"));
        assert_eq!(code(Ok(Reply::ok("db: it is on record"))), Ok(()));
        assert_eq!(code(refused(DeskRefusal::ReverseOver.into())), Err("reverse-over".to_owned()));
        assert_eq!(code(refused(RefusalCode::RoleChanging.into())), Err("role-changing".to_owned()));
        assert_eq!(code(refused(DeskRefusal::UnknownGroup.into())), Err("peer-not-reached".to_owned()));
        assert_eq!(code(Err("timed out".to_owned())), Err("peer-not-reached".to_owned()));
    }
}
