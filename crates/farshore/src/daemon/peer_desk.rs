//! Asking the daemons of peers: one request, one reply, by a connection of its own beside the link.
//!
//! Looking and ordering differ in one thing. Who looked in vain looks again; of an order that got no answer it has to be said
//! whether it can have been heard, and it is never sent again by itself.

pub(super) mod visitors;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use host::driver::{LinkSetup, NodeProof};
use host::link::control::{ControlDialer, ControlFailure};
use host::link::{ClusterSecret, Ourselves, Versions};
use settings::limits::{
    PEER_LOOK_TIMEOUT, PEER_ORDER_TIMEOUT, PEER_STATUS_ROUND_TRIPS, PEER_STATUS_TIMEOUT, PEER_WORD_FRESH,
};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::api::{ApiRequest, LinkState, NodeView, PeerSays, Reply};

/// Where this daemon asks those of its peers.
pub(super) struct PeerDesk {
    dialer: ControlDialer,
    /// In the order of their names.
    peers: Vec<KnownPeer>,
}

struct KnownPeer {
    name: String,
    address: SocketAddr,
    /// When its daemon answered last.
    answered: Cell<Option<Instant>>,
    /// Its last word. Held while it is asked, so that all who want to know ask once.
    word: Mutex<Option<PeerWord>>,
}

struct PeerWord {
    group: Option<String>,
    at: Instant,
    status: NodeView,
}

impl PeerDesk {
    /// Asks whom `link` leads to, and proves what it proves.
    pub fn new(link: &LinkSetup) -> PeerDesk {
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
        let known = link.peers.iter().filter_map(|peer| {
            // A configuration has addresses, no names of hosts.
            let address = peer.address.parse().ok()?;
            Some(KnownPeer { name: peer.name.clone(), address, answered: Cell::new(None), word: Mutex::new(None) })
        });
        PeerDesk { peers: known.collect(), dialer: ControlDialer::new(ours, tls) }
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
        let reply = self.dialer.ask(peer, known.address, &line, patience).await?;
        known.answered.set(Some(Instant::now()));
        serde_json::from_slice(&reply).map_err(|error| {
            ControlFailure::Unknown(format!("its answer is not understood: {error}; are both nodes of one version?"))
        })
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
    async fn says(&self, desk: &PeerDesk, group: Option<String>, patience: Duration) -> PeerSays {
        let look = async {
            let mut word = self.word.lock().await;
            let is_fresh = |word: &PeerWord| word.group == group && word.at.elapsed() < PEER_WORD_FRESH;
            if !word.as_ref().is_some_and(is_fresh) {
                let request = ApiRequest::Status { group: group.clone() };
                let status = match desk.send(&self.name, &request, patience).await {
                    Ok(Reply::Status(status)) => *status,
                    Ok(Reply::Error { message, .. }) => return Err(format!("it refuses to say: {message}")),
                    Ok(_) => return Err("its answer is no status: are both nodes of one version?".to_owned()),
                    Err(failure) => return Err(failure.to_string()),
                };
                *word = Some(PeerWord { group, at: Instant::now(), status });
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
