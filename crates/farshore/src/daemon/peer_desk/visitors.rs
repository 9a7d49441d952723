//! Answering the daemons of peers: what they may ask is a list here, and nothing else is done for them.
//!
//! A peer's request goes to this node's own desk, which has no way to order anything from another node: what was carried here is never
//! carried on.

use std::rc::Rc;
use std::time::Duration;

use host::link::control::{ControlError, ControlVisit, ControlVisits};
use host::report_limiter::{REPEAT_AFTER, ReportLimiter, ReportSubject};
use settings::PeerCommands;
use settings::limits::{API_IO_TIMEOUT, API_LOOK_TIMEOUT, PEER_ANSWER_TIMEOUT, PEER_EVENTS_BYTES_MAX};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::answer::Desk;
use crate::api::refusals::DeskRefusal;
use crate::api::server::{Asker, Handler, understood};
use crate::api::{ApiRequest, ErrorCode, Reply, SwitchoverOrder};
use crate::events::{EventRecord, cut};

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
        | ApiRequest::Operation { .. }
        | ApiRequest::ConnectPreview { .. }
        | ApiRequest::ConfigPlan
        | ApiRequest::Marks { .. }
        | ApiRequest::InReverse { .. }
        | ApiRequest::Events { .. }
        | ApiRequest::LinkHistory { .. } => Carried::Look,
        ApiRequest::Logging { group, .. }
        | ApiRequest::Sync { group, .. }
        | ApiRequest::Set { group, .. }
        | ApiRequest::Demote { group, .. }
        | ApiRequest::Promote { group, .. }
        | ApiRequest::Reset { group }
        | ApiRequest::DetachVolume { group, .. }
        | ApiRequest::AttachVolume { group, .. }
        | ApiRequest::Switchover(SwitchoverOrder { group, .. })
        | ApiRequest::TakeOver { group, .. }
        | ApiRequest::Rest { group }
        | ApiRequest::Lend { group, .. }
        | ApiRequest::Verify { group, .. }
        | ApiRequest::VerifyStop { group }
        | ApiRequest::ResetPeaks { group }
        | ApiRequest::AssumeEqual { group }
        | ApiRequest::Keep { group, .. }
        | ApiRequest::TakeBack { group, .. }
        | ApiRequest::Yield { group, .. }
        | ApiRequest::LockMark { group, .. }
        | ApiRequest::DropMark { group, .. } => Carried::Order(group),
        ApiRequest::Mark { groups, .. } => Carried::Order(groups.first().map_or("", String::as_str)),
        ApiRequest::SetLink { .. } => Carried::Never("link set"),
        ApiRequest::ConfigApply { .. } => Carried::Never("config apply"),
        // It is about the clients of the node where it is typed.
        ApiRequest::Reverse(_) => Carried::Never("sync --reverse"),
        // Its two halves are, each by the name of the generation that was looked at.
        ApiRequest::Resolve { .. } => Carried::Never("resolve"),
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
    let (handler, reports) = (Handler::new(answer, patience), ReportLimiter::new(REPEAT_AFTER));
    let desk = Rc::new(VisitorDesk { handler, desk, may, reports });
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
    /// Lines of the log about what peers ask for: the same one, or one of many, is written once in a while. Who ordered what stands in the
    /// log of events.
    reports: ReportLimiter,
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
        if let Err((code, refusal, why)) = self.admit(peer, &request) {
            // It has words of the peer's.
            let why = cut(why);
            if self.is_news(peer, &why) {
                tracing::warn!("node {peer} was refused what it asked for: {why}");
            }
            return Reply::coded(code, refusal, why);
        }
        let request = about_asker(peer, request);
        if let Carried::Order(_) = carried(&request)
            && let Ok(text) = serde_json::to_string(&request).map(cut)
            && self.is_news(peer, &text)
        {
            tracing::info!("node {peer} orders: {text}");
        }
        let mut reply = self.handler.answer(request, Asker { node: Some(peer.to_owned()), ..Asker::default() }).await;
        leave_shared(peer, &mut reply, |group| self.desk.shares(group, peer));
        reply
    }

    fn is_news(&self, peer: &str, line: &str) -> bool {
        self.reports.is_news(ReportSubject::Peer(peer), line)
    }

    fn admit(&self, peer: &str, request: &ApiRequest) -> Result<(), (ErrorCode, DeskRefusal, String)> {
        let node = self.desk.node();
        let refused = |refusal, why| Err((ErrorCode::Refused, refusal, why));
        let forbids = |what| {
            let word = self.may.as_str();
            let why = format!(
                "node {node} lets its peers {what} (peer_commands = \"{word}\" in [nodes.{node}]): type it there"
            );
            refused(DeskRefusal::PeerForbids, why)
        };
        match (carried(request), self.may) {
            (Carried::Never(what), _) => {
                let why = format!("node {node} does not do this for another node: {what}");
                refused(DeskRefusal::NotCarried, why)
            }
            (_, PeerCommands::None) => forbids("ask nothing"),
            (Carried::Order(_), PeerCommands::Read) => forbids("look, and order nothing"),
            (Carried::Look, _) if is_of_another_link(peer, request) => {
                let why = format!("node {node} tells node {peer} of no link but theirs");
                refused(DeskRefusal::PeerForbids, why)
            }
            (Carried::Order(_) | Carried::Look, _) => match unshared(request, |group| self.desk.shares(group, peer)) {
                // This node's own answer would name the groups that it has with others.
                Some(group) => {
                    let why = format!("nodes {node} and {peer} have no group {group:?} with each other");
                    Err((ErrorCode::UnknownGroup, DeskRefusal::UnknownGroup, why))
                }
                None => Ok(()),
            },
        }
    }
}

/// The group that a request names, if the two do not share it.
fn unshared(request: &ApiRequest, shares: impl Fn(&str) -> bool) -> Option<&str> {
    let group = match (carried(request), request) {
        (_, ApiRequest::Mark { groups, .. }) => return groups.iter().map(String::as_str).find(|group| !shares(group)),
        (Carried::Order(group), _) => Some(group),
        (_, ApiRequest::Status { group } | ApiRequest::Clients { group } | ApiRequest::Events { group, .. }) => {
            group.as_deref()
        }
        (
            _,
            ApiRequest::ConnectPreview { group } | ApiRequest::Marks { group } | ApiRequest::InReverse { group, .. },
        ) => Some(group.as_str()),
        _ => None,
    };
    group.filter(|group| !shares(group))
}

/// The history of a link that a node has with somebody else.
fn is_of_another_link(peer: &str, request: &ApiRequest) -> bool {
    matches!(request, ApiRequest::LinkHistory { peer: Some(of), .. } if of != peer)
}

/// Whoever names no link means the one with who asks.
fn about_asker(peer: &str, request: ApiRequest) -> ApiRequest {
    match request {
        ApiRequest::LinkHistory { peer: None, since_unix_ms } => {
            ApiRequest::LinkHistory { peer: Some(peer.to_owned()), since_unix_ms }
        }
        other => other,
    }
}

/// What the two do not share is none of the peer's business.
fn leave_shared(peer: &str, reply: &mut Reply, shares: impl Fn(&str) -> bool) {
    match reply {
        Reply::Status(status) => {
            status.groups.retain(|group| shares(&group.name));
            status.links.retain(|link| link.node == peer);
        }
        Reply::Counters(counters) => counters.counters.retain(|name, _| group_of(name).is_none_or(&shares)),
        Reply::Clients(list) => {
            list.clients.retain(|client| client.export.split_once('/').is_some_and(|(group, _)| shares(group)));
        }
        Reply::Events(page) => {
            let about_others = |event: &EventRecord| event.peer.as_ref().is_some_and(|about| about != peer);
            let is_shared = |event: &EventRecord| event.group.as_ref().is_none_or(|group| shares(group));
            page.events.retain(|event| is_shared(event) && !about_others(event));
            page.shorten(PEER_EVENTS_BYTES_MAX);
        }
        Reply::Operation(operation) if operation.group.as_deref().is_none_or(|group| !shares(group)) => {
            let node = &operation.node;
            let message = format!("nodes {node} and {peer} have no group with each other of which that is one");
            *reply = Reply::refused(DeskRefusal::UnknownOperation, message);
        }
        Reply::Ok { .. }
        | Reply::Error { .. }
        | Reply::LinkHistory(_)
        | Reply::Recorded(_)
        | Reply::Marks(_)
        | Reply::Operation(_)
        | Reply::ConnectPreview(_)
        | Reply::ConfigPlan(_) => {}
    }
}

/// The group that a counter is of, as in `group.db.writes`. Its name may have dots.
fn group_of(counter: &str) -> Option<&str> {
    Some(counter.strip_prefix("group.")?.rsplit_once('.')?.0)
}

async fn in_time<T>(limit: Duration, work: impl Future<Output = Result<T, ControlError>>) -> Result<T, ControlError> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(line: &str) -> Reply {
        let mut reply = Reply::read(line.as_bytes()).expect(line);
        leave_shared("beta", &mut reply, |group| group == "db" || group == "d.b");
        reply
    }

    /// A node with a third one as peer told each of them how much it writes to the other's groups.
    #[test]
    fn a_peer_reads_counters_of_shared_groups_only() {
        let counters =
            r#"{"nbd.stalled":1,"group.db.writes":2,"group.d.b.writes":3,"group.web.writes":4,"group.d.writes":5}"#;
        let Reply::Counters(left) =
            left(&format!(r#"{{"reply":"counters","schema":"s","node":"alpha","counters":{counters}}}"#))
        else {
            panic!("it is one")
        };
        let names: Vec<&str> = left.counters.keys().map(String::as_str).collect();
        assert_eq!(names, ["group.d.b.writes", "group.db.writes", "nbd.stalled"]);
    }

    #[test]
    fn a_peer_hears_of_operations_on_shared_groups_only() {
        let operation = |group: &str| {
            let facts = r#""schema":"s","node":"a","id":"a-0f-7","verb":"set","begun_unix_ms":5,"state":"done""#;
            left(&format!(r#"{{"reply":"operation",{facts}{group}}}"#))
        };
        assert!(matches!(operation(r#","group":"db""#), Reply::Operation(_)));
        for others in [r#","group":"web""#, ""] {
            assert!(matches!(operation(others), Reply::Error { .. }), "{others}");
        }
    }

    #[test]
    fn a_peer_reads_the_history_of_its_own_link_only() {
        let history = |peer: Option<&str>| ApiRequest::LinkHistory { peer: peer.map(str::to_owned), since_unix_ms: 0 };
        assert!(is_of_another_link("beta", &history(Some("gamma"))));
        assert!(!is_of_another_link("beta", &history(Some("beta"))) && !is_of_another_link("beta", &history(None)));
        // A node with a second peer refused, and named it.
        assert_eq!(about_asker("beta", history(None)), history(Some("beta")));
        assert_eq!(about_asker("beta", history(Some("gamma"))), history(Some("gamma")));
    }

    /// A look at a group that nobody has was answered with the names of all groups, and one at a group of others with nothing.
    #[test]
    fn a_peer_is_told_of_no_group_that_it_does_not_share() {
        let group = |name: &str| Some(name.to_owned());
        let events = |group| ApiRequest::Events { group, since_unix_ms: 0, after: 0, limit: None, last: None };
        let requests = |name: &str| {
            let (status, clients) =
                (ApiRequest::Status { group: group(name) }, ApiRequest::Clients { group: group(name) });
            let preview = ApiRequest::ConnectPreview { group: name.to_owned() };
            [
                status,
                clients,
                preview,
                ApiRequest::InReverse { group: name.to_owned(), is_home: false, reverse: None, ends: false },
                events(group(name)),
                ApiRequest::Logging { group: name.to_owned(), volume: None },
            ]
        };
        let shares = |group: &str| group == "db";
        assert!(requests("web").iter().all(|request| unshared(request, shares) == Some("web")));
        assert!(requests("db").iter().all(|request| unshared(request, shares).is_none()));
        for request in [ApiRequest::Status { group: None }, ApiRequest::Counters, events(None)] {
            assert_eq!(unshared(&request, shares), None, "{request:?}");
        }
    }
}
