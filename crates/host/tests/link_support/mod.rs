//! Two ends of a link over loopback, and everything that they were told.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::wire::{FrameHeader, FrameKind};
use engine::{FramePayload, GroupId, LinkId, NodeId, SendPayload, SessionId};
use host::buffers::Pool;
use host::link::{
    ClusterSecret, FrameOptions, LinkBounds, LinkConfig, LinkEvents, LinkPeer, LinkSender, Links, Ourselves, PeerInfo,
    SocketOptions, Versions,
};
use tokio::sync::Notify;
use tokio::task::LocalSet;

/// Longest that anything here may take: far above what it needs on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub type LinkUp = (LinkId, SessionId, Rc<LinkSender>, PeerInfo);

/// Everything a node was told.
#[derive(Default)]
pub struct SeenEvents {
    pub up: RefCell<Vec<LinkUp>>,
    pub down: RefCell<Vec<(LinkId, String)>>,
    pub frames: RefCell<Vec<(FrameHeader, FramePayload)>>,
    pub heard: Cell<u64>,
    pub sent: Cell<u64>,
    pub turns: Cell<u64>,
    pub refused: RefCell<Vec<(String, String)>>,
    pub not_reached: RefCell<Vec<(NodeId, String)>>,
    pub differ: RefCell<Vec<(NodeId, String)>>,
    /// The test is inside a call of its own into a sender.
    pub calling: Cell<bool>,
    /// So many frames follow, each when something was sent.
    pub chatter: Cell<u64>,
    /// So long each frame keeps the data path busy.
    pub labour: Cell<Duration>,
    pub changed: Notify,
}

impl SeenEvents {
    pub fn note(&self) {
        assert!(!self.calling.get(), "an event came from inside a call");
        self.changed.notify_waiters();
    }

    pub fn sender(&self) -> Rc<LinkSender> {
        self.up.borrow().last().expect("a link is up").2.clone()
    }

    pub fn call(&self, call: impl FnOnce(&LinkSender)) {
        let sender = self.sender();
        self.calling.set(true);
        call(&sender);
        self.calling.set(false);
    }

    pub fn say(&self) {
        let (_, session, sender, _) = self.up.borrow().last().expect("a link is up").clone();
        sender.push(FrameHeader::new(FrameKind::Heartbeat, session, GroupId(0)), SendPayload::None);
        sender.flush();
    }

    pub async fn until(&self, mut holds: impl FnMut(&SeenEvents) -> bool) {
        loop {
            let changed = self.changed.notified();
            if holds(self) {
                return;
            }
            changed.await;
        }
    }

    pub async fn refused_with(&self, words: &str) {
        self.until(|seen| seen.refused.borrow().iter().any(|(_, why)| why.contains(words))).await;
        let refused = self.refused.borrow();
        let (who, _) = refused.iter().find(|(_, why)| why.contains(words)).unwrap();
        assert!(who.contains("127.0.0.1"), "{who} names no address");
    }
}

impl LinkEvents for SeenEvents {
    fn up(&self, peer: NodeId, link: LinkId, session: SessionId, sender: Rc<LinkSender>, info: PeerInfo) {
        let open = self.up.borrow().len() - self.down.borrow().len();
        assert_eq!(open, 0, "the older link is reported down before the newer one is up");
        self.differ.borrow_mut().extend(info.definitions.clone().map(|theirs| (peer, theirs)));
        self.up.borrow_mut().push((link, session, sender, info));
        self.note();
    }

    fn down(&self, link: LinkId, reason: String) {
        assert!(self.down.borrow().iter().all(|(other, _)| *other != link), "down twice");
        self.down.borrow_mut().push((link, reason));
        self.note();
    }

    fn frame(&self, link: LinkId, header: FrameHeader, payload: FramePayload) {
        assert_eq!(Some(link), self.up.borrow().last().map(|up| up.0), "a frame of a link that is not up");
        self.frames.borrow_mut().push((header, payload));
        let began = Instant::now();
        while began.elapsed() < self.labour.get() {
            std::hint::spin_loop();
        }
        self.note();
    }

    fn heard(&self, _link: LinkId) {
        self.heard.set(self.heard.get() + 1);
        self.note();
    }

    fn sent(&self, _link: LinkId, bytes: u64) {
        self.sent.set(self.sent.get() + bytes);
        self.note();
        if self.chatter.replace(self.chatter.get().saturating_sub(1)) > 0 {
            self.say();
        }
    }

    fn turn_done(&self) {
        self.turns.set(self.turns.get() + 1);
        self.note();
    }

    fn refused(&self, who: String, why: String) {
        self.refused.borrow_mut().push((who, why));
        self.note();
    }

    fn not_reached(&self, peer: NodeId, why: String) {
        self.not_reached.borrow_mut().push((peer, why));
        self.note();
    }
}

pub fn ours(node: &str, peer: &str) -> Ourselves {
    Ourselves {
        cluster: "harbour".into(),
        node: node.into(),
        peers: vec![peer.into()],
        secret: ClusterSecret::new(b"correct horse battery staple"),
        definitions: "group a".into(),
        versions: Versions::OURS,
    }
}

pub fn config(node: &str, peer: &str, peer_address: SocketAddr) -> LinkConfig {
    LinkConfig {
        control: None,
        volumes: None,
        ours: ours(node, peer),
        peers: vec![LinkPeer { id: NodeId(u16::from(peer == "west")), name: peer.into(), address: peer_address }],
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        tls: None,
        socket: SocketOptions::default(),
        flow: FrameOptions::default(),
        bounds: LinkBounds {
            backoff_min: Duration::from_millis(5),
            backoff_max: Duration::from_millis(50),
            repeat_after: Duration::ZERO,
            ..LinkBounds::default()
        },
    }
}

/// Both up, one of them by a configuration that is changed.
pub async fn pair(change: impl FnOnce(&mut LinkConfig)) -> (LinkNode, LinkNode) {
    let west = LinkNode::west(|_| {});
    let east = LinkNode::east(west.address(), change);
    tokio::join!(east.is_up(1), west.is_up(1));
    (west, east)
}

pub fn nowhere() -> SocketAddr {
    "127.0.0.1:9".parse().unwrap()
}

pub struct LinkNode {
    pub seen: Rc<SeenEvents>,
    pub links: Links,
}

impl LinkNode {
    pub fn start(config: LinkConfig, pool_bytes: usize) -> LinkNode {
        let seen = Rc::new(SeenEvents::default());
        let links = Links::start(config, Pool::new(pool_bytes), seen.clone()).expect("loopback can be bound");
        LinkNode { seen, links }
    }

    pub fn west(change: impl FnOnce(&mut LinkConfig)) -> LinkNode {
        let mut west = config("west", "east", nowhere());
        change(&mut west);
        LinkNode::start(west, 64 << 20)
    }

    pub fn east(address: SocketAddr, change: impl FnOnce(&mut LinkConfig)) -> LinkNode {
        let mut east = config("east", "west", address);
        change(&mut east);
        LinkNode::start(east, 64 << 20)
    }

    pub fn address(&self) -> SocketAddr {
        self.links.addresses()[0]
    }

    pub async fn is_up(&self, times: usize) {
        self.seen.until(|seen| seen.up.borrow().len() >= times).await;
    }
}

pub fn run<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async { tokio::time::timeout(DEADLINE, test).await.expect("the test hangs") })
}
