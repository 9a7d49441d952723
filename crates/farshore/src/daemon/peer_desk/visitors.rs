//! Answering the daemons of peers: what they may ask is a list here, and nothing else is done for them.
//!
//! A peer's request goes to this node's own desk, which knows of no other node: what was carried here is never carried on.

use std::rc::Rc;
use std::time::Duration;

use host::link::control::{ControlError, ControlVisit, ControlVisits};
use settings::PeerCommands;
use settings::limits::{API_IO_TIMEOUT, API_LOOK_TIMEOUT, PEER_ANSWER_TIMEOUT, PEER_EVENTS_BYTES_MAX};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::answer::Desk;
use crate::api::server::{Asker, Handler, understood};
use crate::api::{ApiRequest, ErrorCode, Reply};
use crate::events::EventRecord;

/// What a request is to a node that is asked by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Carried<'a> {
    /// It looks.
    Look,
    /// It changes this group.
    Order(&'a str),
    /// It is for the machine where it is typed, and the word for it.
    Never(&'static str),
}

/// The list. A new request has to be put into it.
pub(in crate::daemon) fn carried(request: &ApiRequest) -> Carried<'_> {
    match request {
        ApiRequest::Status { .. }
        | ApiRequest::Counters
        | ApiRequest::Clients { .. }
        | ApiRequest::Events { .. }
        | ApiRequest::LinkHistory { .. } => Carried::Look,
        ApiRequest::Logging { group }
        | ApiRequest::Sync { group, .. }
        | ApiRequest::Set { group, .. }
        | ApiRequest::Demote { group, .. }
        | ApiRequest::Promote { group, .. }
        | ApiRequest::DropMark { group, .. } => Carried::Order(group),
        ApiRequest::SetLink { .. } => Carried::Never("link set"),
        ApiRequest::Record { .. } => Carried::Never("record"),
        // What was carried once is not carried on.
        ApiRequest::On { .. } => Carried::Never("--on"),
        ApiRequest::StatusOfBoth { .. } => Carried::Never("a status of both nodes"),
    }
}

/// Answers whoever comes through the door until the links have ended.
pub(in crate::daemon) async fn serve(mut visits: ControlVisits, desk: Rc<Desk>, may: PeerCommands) {
    let patience = |request: &ApiRequest| if request.is_look() { API_LOOK_TIMEOUT } else { PEER_ANSWER_TIMEOUT };
    let answering = desk.clone();
    let answer = move |request, asker| {
        let desk = answering.clone();
        async move { desk.answer(request, asker).await }
    };
    let desk = Rc::new(VisitorDesk { handler: Handler::new(answer, patience), desk, may });
    let mut visitors = JoinSet::new();
    while let Some(visit) = visits.next().await {
        while visitors.try_join_next().is_some() {}
        let desk = desk.clone();
        visitors.spawn_local(async move {
            let who = format!("node {} at {}", visit.peer(), visit.address());
            if let Err(error) = desk.converse(visit).await {
                tracing::debug!("the control connection of {who} came to nothing: {error}");
            }
        });
    }
}

struct VisitorDesk<H> {
    handler: Handler<H>,
    desk: Rc<Desk>,
    may: PeerCommands,
}

impl<H, F> VisitorDesk<H>
where
    H: Fn(ApiRequest, Asker) -> F,
    F: Future<Output = Reply> + 'static,
{
    /// One request, one reply.
    async fn converse(&self, visit: ControlVisit) -> Result<(), ControlError> {
        let peer = visit.peer().to_owned();
        let serving = visit.open()?;
        let line = in_time(API_IO_TIMEOUT, serving.request()).await?;
        let reply = match understood(&line) {
            Ok(request) => self.answer(&peer, request).await,
            Err(refusal) => refusal,
        };
        let line = serde_json::to_vec(&reply).map_err(std::io::Error::from)?;
        in_time(API_IO_TIMEOUT, serving.reply(&line)).await
    }

    async fn answer(&self, peer: &str, request: ApiRequest) -> Reply {
        if let Err(why) = self.admit(peer, &request) {
            tracing::warn!("node {peer} was refused what it asked for: {why}");
            return Reply::error(ErrorCode::Refused, why);
        }
        if let Carried::Order(_) = carried(&request)
            && let Ok(text) = serde_json::to_string(&request)
        {
            tracing::info!("node {peer} orders: {text}");
        }
        let mut reply = self.handler.answer(request, Asker { node: Some(peer.to_owned()), ..Asker::default() }).await;
        self.leave_shared(peer, &mut reply);
        reply
    }

    fn admit(&self, peer: &str, request: &ApiRequest) -> Result<(), String> {
        let node = self.desk.node();
        let forbids = |what| {
            let word = self.may.as_str();
            Err(format!(
                "node {node} lets its peers {what} (peer_commands = \"{word}\" in [nodes.{node}]): type it there"
            ))
        };
        match (carried(request), self.may) {
            (Carried::Never(what), _) => Err(format!("node {node} does not do this for another node: {what}")),
            (_, PeerCommands::None) => forbids("ask nothing"),
            (Carried::Order(_), PeerCommands::Read) => forbids("look, and order nothing"),
            (Carried::Order(group), PeerCommands::All) if !self.desk.shares(group, peer) => {
                Err(format!("nodes {node} and {peer} have no group {group:?} with each other"))
            }
            (Carried::Order(_) | Carried::Look, _) => Ok(()),
        }
    }

    /// What the two do not share is none of the peer's business.
    fn leave_shared(&self, peer: &str, reply: &mut Reply) {
        match reply {
            Reply::Status(status) => {
                status.groups.retain(|group| self.desk.shares(&group.name, peer));
                status.links.retain(|link| link.node == peer);
            }
            Reply::Clients(list) => list
                .clients
                .retain(|client| client.export.split_once('/').is_some_and(|(group, _)| self.desk.shares(group, peer))),
            Reply::Events(page) => {
                let about_others = |event: &EventRecord| event.peer.as_ref().is_some_and(|about| about != peer);
                let shares =
                    |event: &EventRecord| event.group.as_ref().is_none_or(|group| self.desk.shares(group, peer));
                page.events.retain(|event| shares(event) && !about_others(event));
                page.shorten(PEER_EVENTS_BYTES_MAX);
            }
            _ => {}
        }
    }
}

async fn in_time<T>(limit: Duration, work: impl Future<Output = Result<T, ControlError>>) -> Result<T, ControlError> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
}
