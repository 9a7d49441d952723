//! Asking the daemons of peers: one request, one reply, by a connection of its own beside the link.
//!
//! Looking and ordering differ in one thing. Who looked in vain looks again; of an order that got no answer it has to be said
//! whether it can have been heard, and it is never sent again by itself.
//!
//! An answer is another machine's word. It is no longer than its question has room for, of the kind that was asked for, and of the node
//! that was asked; else it counts as none.

pub(super) mod visitors;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use host::driver::{LinkSetup, NodeProof};
use host::link::control::{CONTROL_REPLY_BYTES_MAX, ControlDialer, ControlFailure};
use host::link::{ClusterSecret, LinkPeer, Ourselves, Versions};
use settings::limits::{
    PEER_ANSWER_BYTES_MAX, PEER_CLIENTS_BYTES_MAX, PEER_HISTORY_BYTES_MAX, PEER_LOOK_TIMEOUT, PEER_MARKS_BYTES_MAX,
    PEER_ORDER_TIMEOUT, PEER_PAGE_BYTES_MAX, PEER_STATUS_BYTES_MAX, PEER_STATUS_GROUP_BYTES_MAX,
    PEER_STATUS_ROUND_TRIPS, PEER_STATUS_TIMEOUT, PEER_STATUS_VOLUME_BYTES_MAX, PEER_WORD_FRESH,
};
use settings::{Config, NodeName};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;

use super::current_config::CurrentConfig;
use crate::api::{ApiRequest, LinkState, NodeView, PeerSays, Reply};
use crate::events::{EventPage, cut};

/// What answers may take is counted by this.
const ROOM_UNIT_BYTES: usize = 1 << 10;

/// Where this daemon asks those of its peers.
pub(super) struct PeerDesk {
    config: CurrentConfig,
    node: NodeName,
    dialer: ControlDialer,
    /// In the order of their names.
    peers: Vec<KnownPeer>,
}

struct KnownPeer {
    name: String,
    address: SocketAddr,
    bounds: RefCell<ReplyBounds>,
    /// What its answers may take together until they are read.
    room: Semaphore,
    /// All of that room, whether it is taken or not.
    room_units: Cell<u32>,
    /// When its daemon answered last.
    answered: Cell<Option<Instant>>,
    /// Its last words, by the group they are of. One is held while it is asked for, so that all who want to know ask once; and whoever
    /// wants to know of another group waits for none of them.
    words: RefCell<BTreeMap<Option<String>, SharedWord>>,
}

/// `None`: it was not asked for yet.
type SharedWord = Rc<Mutex<Option<PeerWord>>>;

struct PeerWord {
    at: Instant,
    status: NodeView,
}

impl PeerWord {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < PEER_WORD_FRESH
    }
}

/// How long answers of a peer may be.
struct ReplyBounds {
    /// A status or counters, of each group that both nodes have.
    groups: BTreeMap<String, usize>,
}

impl ReplyBounds {
    fn new(config: &Config, node: &NodeName, peer: &str) -> ReplyBounds {
        let shared = config
            .groups_of(node)
            .filter(|group| group.peer_of(node).is_some_and(|other| other.as_str() == peer))
            .map(|group| {
                let volumes_bytes = group.volumes.len() * PEER_STATUS_VOLUME_BYTES_MAX;
                (group.name.to_string(), PEER_STATUS_GROUP_BYTES_MAX + volumes_bytes)
            });
        ReplyBounds { groups: shared.collect() }
    }

    /// Of what is told about all groups, or about one.
    fn status_bytes_max(&self, group: Option<&str>) -> usize {
        let groups_bytes: usize = match group {
            Some(group) => self.groups.get(group).copied().unwrap_or(0),
            None => self.groups.values().sum(),
        };
        (PEER_STATUS_BYTES_MAX + groups_bytes).min(CONTROL_REPLY_BYTES_MAX)
    }

    fn bytes_max(&self, request: &ApiRequest) -> usize {
        match request {
            ApiRequest::Status { group } | ApiRequest::StatusOfBoth { group } => {
                self.status_bytes_max(group.as_deref())
            }
            ApiRequest::Counters => self.status_bytes_max(None),
            ApiRequest::Clients { .. } => PEER_CLIENTS_BYTES_MAX,
            ApiRequest::LinkHistory { .. } => PEER_HISTORY_BYTES_MAX,
            ApiRequest::Events { .. } => PEER_PAGE_BYTES_MAX,
            ApiRequest::On { .. }
            | ApiRequest::Operation { .. }
            | ApiRequest::ConnectPreview { .. }
            | ApiRequest::ConfigPlan
            | ApiRequest::ConfigApply { .. }
            | ApiRequest::Record { .. }
            | ApiRequest::Logging { .. }
            | ApiRequest::Sync { .. }
            | ApiRequest::Set { .. }
            | ApiRequest::SetLink { .. }
            | ApiRequest::Demote { .. }
            | ApiRequest::Promote { .. }
            | ApiRequest::Reset { .. }
            | ApiRequest::DetachVolume { .. }
            | ApiRequest::AttachVolume { .. }
            | ApiRequest::Switchover(_)
            | ApiRequest::TakeOver { .. }
            | ApiRequest::Rest { .. }
            | ApiRequest::Reverse(_)
            | ApiRequest::Lend { .. }
            | ApiRequest::InReverse { .. }
            | ApiRequest::Verify { .. }
            | ApiRequest::VerifyStop { .. }
            | ApiRequest::ResetPeaks { .. }
            | ApiRequest::AssumeEqual { .. }
            | ApiRequest::Resolve { .. }
            | ApiRequest::Keep { .. }
            | ApiRequest::TakeBack { .. }
            | ApiRequest::Yield { .. }
            | ApiRequest::Mark { .. }
            | ApiRequest::LockMark { .. }
            | ApiRequest::DropMark { .. } => PEER_ANSWER_BYTES_MAX,
            ApiRequest::Marks { .. } => PEER_MARKS_BYTES_MAX,
        }
    }

    /// Of all answers that are awaited at once: the longest of each kind, and one more of all groups.
    fn room_bytes(&self) -> usize {
        let once = PEER_ANSWER_BYTES_MAX
            + PEER_CLIENTS_BYTES_MAX
            + PEER_MARKS_BYTES_MAX
            + PEER_HISTORY_BYTES_MAX
            + PEER_PAGE_BYTES_MAX;
        once + 2 * self.status_bytes_max(None)
    }
}

impl PeerDesk {
    /// Asks whom `link` leads to, and proves what it proves. `config` is that of `node`, which is this one.
    pub fn new(link: &LinkSetup, config: CurrentConfig, node: NodeName) -> PeerDesk {
        let now = config.get();
        let (secret, tls) = match &link.proof {
            NodeProof::Secret(bytes) => (ClusterSecret::new(bytes), None),
            // Each encrypted connection has a secret of its own; this one is nobody's.
            NodeProof::Certificates(store) => {
                (ClusterSecret::new(&host::driver::entropy().to_le_bytes()), Some(store.clone()))
            }
        };
        let ours = Ourselves {
            cluster: link.cluster.clone(),
            node: link.node.clone(),
            peers: link.peers.iter().map(|peer| peer.name.clone()).collect(),
            secret,
            definitions: link.definitions.clone(),
            versions: Versions::OURS,
        };
        let known = |peer: &LinkPeer| {
            KnownPeer::new(peer.name.clone(), peer.address, ReplyBounds::new(&now, &node, &peer.name))
        };
        let peers = link.peers.iter().map(known).collect();
        PeerDesk { config, node, peers, dialer: ControlDialer::new(ours, tls) }
    }

    /// Asks a peer's daemon, which answers within [`PEER_LOOK_TIMEOUT`] or not at all.
    ///
    /// # Errors
    /// Why there is no answer, as a sentence about the peer ("it ..."). A refusal is an answer.
    pub async fn ask(&self, peer: &str, request: ApiRequest) -> Result<Reply, String> {
        self.send(peer, &request, PEER_LOOK_TIMEOUT).await.map_err(|failure| failure.to_string())
    }

    /// Has a peer's daemon do something, once; its answer comes within [`PEER_ORDER_TIMEOUT`] or not at all.
    ///
    /// # Errors
    /// Why there is no answer, and whether the peer can have heard the order.
    pub async fn order(&self, peer: &str, request: &ApiRequest) -> Result<Reply, ControlFailure> {
        self.send(peer, request, PEER_ORDER_TIMEOUT).await
    }

    async fn send(&self, peer: &str, request: &ApiRequest, patience: Duration) -> Result<Reply, ControlFailure> {
        let Some(known) = self.peers.iter().find(|known| known.name == peer) else {
            let names: Vec<&str> = self.peers.iter().map(|known| known.name.as_str()).collect();
            let message = format!("it is no peer of this node; its peers are {}", names.join(", "));
            return Err(ControlFailure::NotReached(message));
        };
        let line = serde_json::to_vec(request).map_err(|error| ControlFailure::NotReached(error.to_string()))?;
        known.counts(ReplyBounds::new(&self.config.get(), &self.node, peer));
        let bytes_max = known.bounds.borrow().bytes_max(request);
        let Ok(_room) = known.room.try_acquire_many(units(bytes_max)) else {
            let why = "so many of its answers are awaited already that there is no room for this one; try again";
            return Err(ControlFailure::NotReached(why.to_owned()));
        };
        let reply = self.dialer.ask(peer, known.address, &line, (patience, bytes_max)).await?;
        known.answered.set(Some(Instant::now()));
        let reply = Reply::read(&reply).map_err(|error| {
            let why = cut(error.to_string());
            ControlFailure::Unknown(format!("its answer is not understood: {why}; are both nodes of one version?"))
        })?;
        let is_others = |node: &str| node == self.node.as_str() || self.peers.iter().any(|other| other.name == node);
        held_against(peer, request, reply, is_others).map_err(ControlFailure::Unknown)
    }

    /// What the peers of the groups in `status` say of themselves: of all groups, or of the one named. However dead they are, this
    /// takes no longer than [`PEER_LOOK_TIMEOUT`], and [`PEER_STATUS_TIMEOUT`] where the links say so already.
    pub async fn says(self: &Rc<Self>, status: &NodeView, group: Option<&str>) -> Vec<PeerSays> {
        let mut asking = JoinSet::new();
        for (at, known) in self.peers.iter().enumerate() {
            let shares = status.groups.iter().flat_map(|group| &group.peers).any(|peer| peer.node == known.name);
            if shares {
                let (desk, group) = (self.clone(), group.map(str::to_owned));
                let patience = patience(status, &known.name);
                asking.spawn_local(async move { (at, desk.peers[at].says(&desk, group, patience).await) });
            }
        }
        let mut all = asking.join_all().await;
        all.sort_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, says)| says).collect()
    }
}

impl KnownPeer {
    fn new(name: String, address: SocketAddr, bounds: ReplyBounds) -> KnownPeer {
        let room_units = units(bounds.room_bytes());
        let (room, room_units) = (Semaphore::new(room_units as usize), Cell::new(room_units));
        let bounds = RefCell::new(bounds);
        KnownPeer { name, address, bounds, room, room_units, answered: Cell::new(None), words: RefCell::default() }
    }

    /// Groups may have come or left since it was asked last.
    fn counts(&self, now: ReplyBounds) {
        let more = units(now.room_bytes()).saturating_sub(self.room_units.get());
        // Room that a group leaves behind is kept: answers that are awaited may have it.
        self.room.add_permits(more as usize);
        self.room_units.set(self.room_units.get() + more);
        *self.bounds.borrow_mut() = now;
    }

    /// Where its word of these groups stands. Words that are too old to be shown go.
    fn word_of(&self, group: Option<&str>) -> SharedWord {
        let mut words = self.words.borrow_mut();
        words.retain(|_, word| {
            let is_asked_for = Rc::strong_count(word) > 1;
            is_asked_for || word.try_lock().is_ok_and(|word| word.as_ref().is_some_and(PeerWord::is_fresh))
        });
        words.entry(group.map(str::to_owned)).or_default().clone()
    }

    async fn says(&self, desk: &PeerDesk, group: Option<String>, patience: Duration) -> PeerSays {
        let look = async {
            let word = self.word_of(group.as_deref());
            let mut word = word.lock().await;
            if !word.as_ref().is_some_and(PeerWord::is_fresh) {
                let status = match desk.send(&self.name, &ApiRequest::Status { group }, patience).await {
                    Ok(Reply::Status(status)) => *status,
                    Ok(Reply::Error { message, .. }) => return Err(format!("it refuses to say: {message}")),
                    Ok(_) => return Err("its answer is no status: are both nodes of one version?".to_owned()),
                    Err(failure) => return Err(failure.to_string()),
                };
                *word = Some(PeerWord { at: Instant::now(), status });
            }
            let word = word.as_ref().expect("it was put there");
            Ok((word.at.elapsed(), word.status.clone()))
        };
        let said = tokio::time::timeout(patience, look).await;
        let said = said.unwrap_or_else(|_| Err(format!("it does not answer within {patience:.1?}")));
        let answered_s = self.answered.get().map(|at| at.elapsed().as_secs_f64());
        let nothing = PeerSays { node: self.name.clone(), age_s: None, answered_s, why: None, status: None };
        match said {
            Ok((age, status)) => PeerSays { age_s: Some(age.as_secs_f64()), status: Some(Box::new(status)), ..nothing },
            Err(why) => PeerSays { why: Some(why), ..nothing },
        }
    }
}

/// How long a status waits for a peer's word.
fn patience(status: &NodeView, peer: &str) -> Duration {
    let link = status.links.iter().find(|link| link.node == peer && link.link == LinkState::Connected);
    let round_trip_s = link.and_then(|link| link.tcp.as_ref()).map_or(0.0, |tcp| tcp.rtt_ms / 1000.0);
    let round_trip = Duration::try_from_secs_f64(round_trip_s).unwrap_or_default();
    (PEER_STATUS_TIMEOUT + round_trip * PEER_STATUS_ROUND_TRIPS).min(PEER_LOOK_TIMEOUT)
}

/// Room for so many bytes.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(ROOM_UNIT_BYTES)).unwrap_or(u32::MAX)
}

/// A peer's reply, if it is one to the question, and of the peer alone. `is_others`: the names of nodes that are not the peer.
///
/// # Errors
/// A sentence about the peer ("it ...").
fn held_against(
    peer: &str,
    request: &ApiRequest,
    mut reply: Reply,
    is_others: impl Fn(&str) -> bool,
) -> Result<Reply, String> {
    if !reply.answers(request) {
        let kind = reply.kind();
        return Err(format!("it answered with {kind}, which was not asked for; are both nodes of one version?"));
    }
    if let Some(node) = reply.node().filter(|node| *node != peer) {
        let node = cut(node.to_owned());
        return Err(format!("it answered as node {node:?}; are the addresses in the configuration the right ones?"));
    }
    if let Reply::Events(page) = &mut reply {
        leave_out_others(page, |node| node != peer && is_others(node));
    }
    Ok(reply)
}

/// A node's log has what that node saw. A name that nobody has is its own from before it was renamed.
fn leave_out_others(page: &mut EventPage, is_others: impl Fn(&str) -> bool) {
    let EventPage { node, events, warnings, .. } = page;
    let before = events.len();
    events.retain(|event| !is_others(&event.node));
    let count = before - events.len();
    if count > 0 {
        warnings.push(format!("{count} events in the log of {node} are said to be of other nodes; they are left out"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ErrorCode;

    fn read(line: &str) -> Reply {
        Reply::read(line.as_bytes()).expect(line)
    }

    fn page(node: &str, of: &[&str]) -> Reply {
        let event = |(number, node): (usize, &&str)| {
            format!(r#"{{"schema":"s","number":{number},"time_unix_ms":5,"node":"{node}","kind":"note","text":"x"}}"#)
        };
        let events = of.iter().enumerate().map(event).collect::<Vec<_>>().join(",");
        read(&format!(
            r#"{{"reply":"events","schema":"s","node":"{node}","events":[{events}],"first":1,"last":9,"position":9,"more":false}}"#
        ))
    }

    fn of_beta(request: &ApiRequest, reply: Reply) -> Result<Reply, String> {
        held_against("beta", request, reply, |node| node == "alpha" || node == "beta")
    }

    /// `demote db --on beta`, typed at alpha: beta answered as alpha, and alpha's services were stopped.
    #[test]
    fn a_reply_is_of_the_peer_and_of_the_kind_that_was_asked_for() {
        let status = |node: &str| {
            read(&format!(
                r#"{{"reply":"status","schema":"s","node":"{node}","version":"1","uptime_s":1.0,"groups":[]}}"#
            ))
        };
        let look = ApiRequest::Status { group: None };
        assert_eq!(of_beta(&look, status("beta")), Ok(status("beta")));
        let why = of_beta(&look, status("alpha")).expect_err("it is not alpha");
        assert!(why.starts_with("it answered as node \"alpha\""), "{why}");
        let order = ApiRequest::Demote { group: "db".into(), close_clients: false, skip_hooks: false };
        for (request, reply) in [(&look, Reply::ok("done")), (&look, page("beta", &[])), (&order, status("beta"))] {
            let why = of_beta(request, reply).expect_err("another kind");
            assert!(why.contains("which was not asked for"), "{why}");
        }
        for request in [&look, &order] {
            let refused = Reply::error(ErrorCode::Refused, "no");
            assert_eq!(of_beta(request, refused.clone()), Ok(refused));
        }
    }

    /// Whoever follows alpha's log too would have taken them for alpha's, and its position there from beta.
    #[test]
    fn a_peers_log_has_no_events_of_this_node() {
        let look = ApiRequest::Events { group: None, since_unix_ms: 0, after: 0, limit: None, last: None };
        assert!(of_beta(&look, page("alpha", &[])).is_err());
        let kept = of_beta(&look, page("beta", &["beta", "alpha", "beta-of-before"])).expect("a page");
        let Reply::Events(kept) = kept else { panic!("{kept:?}") };
        let nodes: Vec<_> = kept.events.iter().map(|event| event.node.as_str()).collect();
        assert_eq!(nodes, ["beta", "beta-of-before"]);
        assert!(kept.warnings[0].starts_with("1 events in the log of beta are said to be of other nodes"), "{kept:?}");
    }

    fn bounds(groups: usize) -> ReplyBounds {
        let bytes = PEER_STATUS_GROUP_BYTES_MAX + PEER_STATUS_VOLUME_BYTES_MAX;
        ReplyBounds { groups: (0..groups).map(|number| (format!("g{number}"), bytes)).collect() }
    }

    #[test]
    fn an_answer_has_the_room_that_its_question_needs() {
        let bounds = bounds(1000);
        let status = |group: Option<&str>| bounds.bytes_max(&ApiRequest::Status { group: group.map(str::to_owned) });
        assert_eq!((status(Some("g7")), status(Some("x"))), ((256 + 20) << 10, 256 << 10));
        assert_eq!((status(None), bounds.bytes_max(&ApiRequest::Counters)), ((256 + 20_000) << 10, status(None)));
        let events = ApiRequest::Events { group: None, since_unix_ms: 0, after: 0, limit: None, last: None };
        assert_eq!(bounds.bytes_max(&events), 128 << 10);
        assert_eq!(self::bounds(4096).bytes_max(&ApiRequest::Status { group: None }), CONTROL_REPLY_BYTES_MAX);
    }

    /// Several questions at once, as `status GROUP` for one group after the other, waited for each other.
    #[tokio::test]
    async fn each_group_has_a_word_of_its_own_that_goes_when_it_is_old() {
        let peer = KnownPeer::new("beta".into(), SocketAddr::from(([127, 0, 0, 1], 1)), bounds(2));
        let all = peer.word_of(None);
        let held = all.lock().await;
        let one = peer.word_of(Some("g1"));
        assert!(one.try_lock().is_ok(), "nobody asks for that one");
        assert!(peer.word_of(None).try_lock().is_err(), "all who want to know the same ask once");
        drop(held);
        let Reply::Status(status) =
            read(r#"{"reply":"status","schema":"s","node":"beta","version":"1","uptime_s":1.0,"groups":[]}"#)
        else {
            panic!("it is one")
        };
        *all.lock().await = Some(PeerWord { at: Instant::now(), status: *status });
        drop((all, one));
        assert!(peer.word_of(None).lock().await.is_some(), "it is fresh");
        assert_eq!(peer.words.borrow().len(), 1, "the other is nobody's");
        if let Some(word) = peer.word_of(None).lock().await.as_mut() {
            word.at = Instant::now() - PEER_WORD_FRESH;
        }
        assert!(peer.word_of(None).lock().await.is_none(), "it went");
    }

    /// Groups that came by 'config apply' made the peer's status longer than was taken of it: it was not known any more.
    #[test]
    fn what_a_peer_may_answer_grows_with_the_groups() {
        let peer = KnownPeer::new("beta".into(), SocketAddr::from(([127, 0, 0, 1], 1)), bounds(1));
        let (before, of_all) = (peer.room.available_permits(), bounds(100).status_bytes_max(None));
        peer.counts(bounds(100));
        assert_eq!(peer.bounds.borrow().bytes_max(&ApiRequest::Status { group: None }), of_all);
        let grown = peer.room.available_permits();
        assert_eq!(grown, units(bounds(100).room_bytes()) as usize);
        assert!(grown > before && peer.room.try_acquire_many(units(of_all)).is_ok());
        // Groups leave, and come again: room is not made twice.
        peer.counts(bounds(1));
        peer.counts(bounds(100));
        assert_eq!(peer.room.available_permits(), grown);
    }

    /// Many clients here asked at once, and each answer was held as a whole.
    #[test]
    fn what_a_peer_answers_at_once_has_a_bound() {
        let peer = KnownPeer::new("beta".into(), SocketAddr::from(([127, 0, 0, 1], 1)), bounds(1));
        let history = units(PEER_HISTORY_BYTES_MAX);
        let first = peer.room.try_acquire_many(history).expect("room");
        assert!(peer.room.try_acquire_many(history).is_err(), "one at a time");
        let status = units(peer.bounds.borrow().status_bytes_max(None));
        let others = [0; 4].map(|_| peer.room.try_acquire_many(status).expect("room for what is short"));
        drop((first, others));
        assert!(peer.room.try_acquire_many(history).is_ok());
    }
}
