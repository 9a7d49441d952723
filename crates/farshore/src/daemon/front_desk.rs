//! Where the control socket's requests come first: most are for this node's own desk, some for another node's daemon.
//!
//! What must hold:
//! * an order goes to one node, once; when its answer is lost, that is what the answer says;
//! * who gave an order that is carried is in this node's log of events, whatever came of it: the other node knows only which node asked;
//! * a change of roles is never carried by itself: a script that demotes a node twice must not demote the other one. The node that is to
//!   do that is named;
//! * a switchover is: nothing is lost by it, it names the node that is to be primary, and typed twice it changes nothing;
//! * a full sync is not either: who means to keep the node where it is typed would have that one overwritten.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::RefusalCode;
use engine::identity::Role;
use host::link::control::ControlFailure;
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::answer::Desk;
use super::answer::marks::is_rollback_point;
use super::events::commands::{CommandEnd, CommandSource, CommandText};
use super::events::{CommandUnderWay, EventSender};
use super::peer_desk::PeerDesk;
use super::peer_desk::visitors::{Carried, carried};
use super::typed_words::typed;
use crate::api::refusals::DeskRefusal;
use crate::api::server::Asker;
use crate::api::{ApiRequest, ErrorCode, RefusalView, Reply, SwitchoverOrder};

/// A node that is to yield hears of the one that is kept over the link: it is asked after this time, and so often.
const YIELD_AFTER: Duration = Duration::from_millis(300);
const YIELD_TRIES: u32 = 30;

/// How long an order waits for who gave it. That takes a millisecond.
const WHO_PATIENCE: Duration = Duration::from_millis(500);

pub(super) struct FrontDesk {
    desk: Rc<Desk>,
    peers: Rc<PeerDesk>,
    events: EventSender,
}

impl FrontDesk {
    pub fn new(desk: Rc<Desk>, peers: Rc<PeerDesk>, events: EventSender) -> FrontDesk {
        FrontDesk { desk, peers, events }
    }

    pub async fn answer(&self, request: ApiRequest, asker: Asker) -> Reply {
        match request {
            ApiRequest::On { node, order } => self.answer_on(&node, *order, asker).await,
            ApiRequest::StatusOfBoth { group } => self.status_of_both(group, asker).await,
            ApiRequest::ConnectPreview { group } => self.preview(group, asker).await,
            ApiRequest::Resolve { group, keep, discard, close_clients } => {
                self.resolve((group, keep), discard, close_clients, asker).await
            }
            request => match self.whose(&request).await {
                None => self.desk.answer(request, asker).await,
                Some((peer, _)) if self.fills(&request).await => may_not_fill(&request, &peer),
                Some((peer, why)) if matches!(request, ApiRequest::Sync { .. }) => {
                    let reply = self.carry(&peer, for_whoever_must(request), &why, asker).await;
                    with_who_answers(&peer, reply)
                }
                Some((peer, why)) => self.carry(&peer, request, &why, asker).await,
            },
        }
    }

    /// A request for the node that was named.
    async fn answer_on(&self, node: &str, order: ApiRequest, asker: Asker) -> Reply {
        if node == self.desk.node().as_str() {
            return self.desk.answer(order, asker).await;
        }
        match carried(&order) {
            Carried::Look => match self.peers.ask(node, order).await {
                Ok(reply) => done_on(node, reply),
                Err(why) => Reply::failed(DeskRefusal::PeerNotReached, format!("node {node} does not answer: {why}")),
            },
            Carried::Order(_) => self.carry(node, order, "", asker).await,
            Carried::Never(what) => {
                let message = format!("{what} is not carried to another node; type it on node {node}");
                Reply::coded(ErrorCode::BadRequest, DeskRefusal::NotCarried, message)
            }
        }
    }

    /// The node that is kept is asked first, and waits for the other one to yield. Both orders name the histories as they were looked at
    /// here: what changed since is refused.
    async fn resolve(
        &self,
        (group, keep): (String, String),
        discard: bool,
        close_clients: bool,
        asker: Asker,
    ) -> Reply {
        let fork = match self.desk.fork_in(&group).await {
            Ok(fork) => fork,
            Err(refusal) => return refusal,
        };
        let (here, peer) = (self.desk.node().to_string(), fork.peer.as_str());
        if keep != here && keep != peer {
            let message = format!("{group}: node {keep:?} does not have this group; its nodes are {here} and {peer}");
            return Reply::error(ErrorCode::BadValue, message);
        }
        let is_kept = keep == here;
        let (over, to) = if is_kept { (fork.theirs, fork.ours) } else { (fork.ours, fork.theirs) };
        let keeps = ApiRequest::Keep { group: group.clone(), over, discard, by_policy: false };
        let takes_back = ApiRequest::TakeBack { group: group.clone(), over };
        let yields = ApiRequest::Yield { group, to, discard, close_clients, by_policy: false };
        let second = Asker { operation: Arc::default(), ..asker.clone() };
        let third = second.clone();
        let mut keeping = pin!(self.order(is_kept, peer, keeps, asker));
        let mut yielding = pin!(self.yields(!is_kept, peer, yields, second));
        tokio::select! {
            biased;
            kept = &mut keeping => match kept {
                // It has yielded, and its command behind the demotion may still run.
                Reply::Ok { .. } => with_warnings_of(kept, yielding.await),
                refused => refused,
            },
            yielded = &mut yielding => match yielded {
                Reply::Ok { .. } => with_warnings_of(keeping.await, yielded),
                // Whether the other node was demoted or not: nobody comes to yield to this order later.
                refused => {
                    self.order(is_kept, peer, takes_back, third).await;
                    refused
                }
            },
        }
    }

    /// Has one of the two nodes do it.
    async fn order(&self, is_here: bool, peer: &str, order: ApiRequest, asker: Asker) -> Reply {
        if !is_here {
            return self.carry(peer, order, "", asker).await;
        }
        // Whoever waits for its answer may have to answer before: it goes on all the same, and so does a command that it runs.
        let desk = Rc::clone(&self.desk);
        spawn_local(async move { desk.answer(order, asker).await }).await.expect("an answer does not panic")
    }

    /// It yields once it has heard that the other one keeps its content.
    async fn yields(&self, is_here: bool, peer: &str, order: ApiRequest, asker: Asker) -> Reply {
        let mut tries = YIELD_TRIES;
        loop {
            sleep(YIELD_AFTER).await;
            let asker = Asker { operation: Arc::default(), ..asker.clone() };
            let reply = self.order(is_here, peer, order.clone(), asker).await;
            let not_heard = matches!(&reply, Reply::Error { refusal: Some(refusal), .. }
                if refusal.code == RefusalCode::NotKept.word());
            tries -= 1;
            if !not_heard || tries == 0 {
                return reply;
            }
        }
    }

    async fn status_of_both(&self, group: Option<String>, asker: Asker) -> Reply {
        let mut reply = self.desk.answer(ApiRequest::Status { group: group.clone() }, asker).await;
        if let Reply::Status(status) = &mut reply {
            status.peer_says = self.peers.says(status, group.as_deref()).await;
        }
        reply
    }

    /// The primary knows what would be sent. Where it does not answer, this node says so.
    async fn preview(&self, group: String, asker: Asker) -> Reply {
        let place = self.desk.place_in(&group).await;
        let request = ApiRequest::ConnectPreview { group };
        if let Some(place) = place.filter(|place| place.role == Role::Secondary)
            && let Ok(reply @ Reply::ConnectPreview(_)) = self.peers.ask(&place.peer, request.clone()).await
        {
            return reply;
        }
        self.desk.answer(request, asker).await
    }

    /// The other node, where it is the one that must do this, and why it is.
    async fn whose(&self, request: &ApiRequest) -> Option<(String, String)> {
        if let ApiRequest::Switchover(SwitchoverOrder { group, to, .. }) = request {
            let place = self.desk.place_in(group).await?;
            let hands_over = place.role == Role::Secondary && place.peer_role == Some(Role::Primary);
            let why = format!("{group}: this node is the secondary, and it is the primary that hands over. ");
            return (hands_over && self.desk.is_wanted_here(group, to.as_deref())).then_some((place.peer, why));
        }
        if let ApiRequest::Mark { groups, .. } = request {
            return self.whose_marks(groups).await;
        }
        let (group, role) = match request {
            ApiRequest::Sync { group, full: false, .. }
            | ApiRequest::Logging { group, .. }
            | ApiRequest::Verify { group, .. }
            | ApiRequest::VerifyStop { group }
            | ApiRequest::ResetPeaks { group } => (group, Role::Primary),
            ApiRequest::DropMark { group, name, .. } if is_rollback_point(name) => (group, Role::Secondary),
            ApiRequest::LockMark { group, .. } | ApiRequest::DropMark { group, .. } => (group, Role::Primary),
            _ => return None,
        };
        let place = self.desk.place_in(group).await?;
        let keeps_mark = role == Role::Secondary && place.has_mark;
        let (ours, theirs, peer) = (place.role.word(), role.word(), place.peer);
        let why = format!("{group}: this node is the {ours}, and this is done on the {theirs}. ");
        (place.role != role && !keeps_mark).then_some((peer, why))
    }

    /// It would overwrite what stands on a device of this node that is none of the copy's yet.
    async fn fills(&self, request: &ApiRequest) -> bool {
        let ApiRequest::Sync { group, volume: Some(volume), .. } = request else { return false };
        self.desk.place_in(group).await.is_some_and(|place| place.came.contains(volume))
    }

    /// The node that is the primary of all of these groups, where that is one and the same peer.
    async fn whose_marks(&self, groups: &[String]) -> Option<(String, String)> {
        let mut peers = BTreeSet::new();
        for group in groups {
            let place = self.desk.place_in(group).await?;
            if place.role == Role::Primary {
                return None;
            }
            peers.insert(place.peer);
        }
        let peer = peers.pop_first().filter(|_| peers.is_empty())?;
        let why = format!("{}: this node is the secondary, and marks are set on the primary. ", groups.join(", "));
        Some((peer, why))
    }

    /// Has the peer do it, once, and records who had it done. `why` it is the peer's, as sentences.
    async fn carry(&self, peer: &str, order: ApiRequest, why: &str, asker: Asker) -> Reply {
        let begun = Instant::now();
        let who = CommandSource::look_within(asker, WHO_PATIENCE).await;
        let mut command = CommandUnderWay::new(&self.events, CommandText::of(&order), who, Some(peer), begun);
        let (reply, end) = self.have_done(peer, &order, why).await;
        command.ended(end);
        reply
    }

    /// The answer, and for the log of events what came of it.
    async fn have_done(&self, peer: &str, order: &ApiRequest, why: &str) -> (Reply, CommandEnd) {
        let refused = |result, code, refusal: RefusalView, message: String| {
            let end = CommandEnd::new(result, message.clone()).because(refusal.clone());
            (Reply::coded(code, refusal, message), end)
        };
        match self.peers.order(peer, order).await {
            Ok(reply) => {
                let end = CommandEnd::of(&reply);
                (done_on(peer, reply), end)
            }
            Err(ControlFailure::NotReached(reason)) => {
                let typed = typed(order);
                let message =
                    format!("{why}Nothing was done: node {peer} was not reached: {reason}. Type it there: {typed}");
                refused("not-reached", ErrorCode::Refused, DeskRefusal::PeerNotReached.into(), message)
            }
            Err(ControlFailure::Unknown(reason)) => {
                let (typed, group) = (typed(order), group_of(order));
                let message = format!(
                    "it is not known whether node {peer} has done this: {typed}. It was sent, and then: {reason}. Look before you type \
                     it again: farshore status {group} --on {peer}"
                );
                let command = CommandText::of(order);
                let refusal = command.map(|command| command.lost(DeskRefusal::OutcomeUnknown));
                let refusal = refusal.unwrap_or_else(|| DeskRefusal::OutcomeUnknown.into());
                refused("unknown", ErrorCode::OutcomeUnknown, refusal, message)
            }
        }
    }
}

fn group_of(order: &ApiRequest) -> &str {
    match carried(order) {
        Carried::Order(group) => group,
        Carried::Look | Carried::Never(_) => "",
    }
}

/// The answer to an order whose other half warned of something besides what it did itself: that a node which yielded holds other content is
/// what the order was for.
fn with_warnings_of(mut reply: Reply, half: Reply) -> Reply {
    if let (Reply::Ok { warnings, .. }, Reply::Ok { message, warnings: others, .. }) = (&mut reply, half) {
        warnings.extend(others.into_iter().filter(|warning| !message.ends_with(warning.as_str())));
    }
    reply
}

/// Nobody has named the node that must do it: a `sync` answers no question there, as whoever types it here may not have seen one.
fn for_whoever_must(request: ApiRequest) -> ApiRequest {
    match request {
        ApiRequest::Sync { group, full: false, no_compare, volume, .. } => {
            ApiRequest::Sync { group, full: false, no_compare, answers_nothing: true, volume }
        }
        request => request,
    }
}

/// Whoever brought the content there may mean that it counts.
fn may_not_fill(request: &ApiRequest, peer: &str) -> Reply {
    let group = group_of(request);
    let message = format!(
        "{group}: nothing was changed: this node is the secondary, and what stands on the volume's device here would be overwritten. If it may be, \
         type that on node {peer}, or here with '--on {peer}'"
    );
    Reply::refused(RefusalCode::NotPrimary, message)
}

/// Where the question is answered that stood in the way.
fn with_who_answers(node: &str, mut reply: Reply) -> Reply {
    if let Reply::Error { message, refusal: Some(refusal), .. } = &mut reply
        && refusal.code == RefusalCode::ChoiceNeeded.word()
    {
        let _ = write!(message, ". Whoever knows answers there, or here with '--on {node}'");
    }
    reply
}

/// The answer of another node's daemon, with where it comes from.
fn done_on(node: &str, reply: Reply) -> Reply {
    match reply {
        Reply::Ok { message, warnings, unchanged, operation, may_be_missing, .. } => {
            let (message, done_on) = (format!("done on node {node}: {message}"), Some(node.to_owned()));
            Reply::Ok { message, warnings, done_on, unchanged, operation, may_be_missing }
        }
        Reply::Error { message, code, refusal, operation } => {
            Reply::Error { message: format!("node {node} says: {message}"), code, refusal, operation }
        }
        other => other,
    }
}
