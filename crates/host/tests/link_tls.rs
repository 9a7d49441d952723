//! Encrypted links over loopback, and everybody who has no business on them: refused with a sentence, never a hang.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::certificates::{CLUSTER, Dates, TestCertificates, tls_client};
use engine::wire::{FrameHeader, FrameKind};
use engine::{Buf, FramePayload, GroupId, LinkId, NodeId, SendPayload, Seq, SessionId, Slice};
use host::buffers::{Buffer, Pool};
use host::link::{
    ClusterSecret, FrameOptions, LinkBounds, LinkConfig, LinkEvents, LinkPeer, LinkSender, Links, Ourselves, PeerInfo,
    SocketOptions, Versions,
};
use host::tls::{Clients, CredentialStore, Credentials, MemberIdentity, Paths};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::LocalSet;

/// Longest that anything here may take: far above what it needs on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// What a node was told.
#[derive(Default)]
struct TlsSeenEvents {
    up: RefCell<Vec<(Rc<LinkSender>, SessionId, PeerInfo)>>,
    down: RefCell<Vec<String>>,
    frames: RefCell<Vec<(FrameHeader, FramePayload)>>,
    refused: RefCell<Vec<(String, String)>>,
    differ: RefCell<Vec<String>>,
    changed: Notify,
}

impl LinkEvents for TlsSeenEvents {
    fn up(&self, _peer: NodeId, _link: LinkId, session: SessionId, sender: Rc<LinkSender>, info: PeerInfo) {
        self.differ.borrow_mut().extend(info.definitions.clone());
        self.up.borrow_mut().push((sender, session, info));
        self.changed.notify_waiters();
    }

    fn down(&self, _link: LinkId, reason: String) {
        self.down.borrow_mut().push(reason);
        self.changed.notify_waiters();
    }

    fn frame(&self, _link: LinkId, header: FrameHeader, payload: FramePayload) {
        self.frames.borrow_mut().push((header, payload));
        self.changed.notify_waiters();
    }

    fn heard(&self, _link: LinkId) {}

    fn sent(&self, _link: LinkId, _bytes: u64) {
        self.changed.notify_waiters();
    }

    fn turn_done(&self) {}

    fn refused(&self, who: String, why: String) {
        self.refused.borrow_mut().push((who, why));
        self.changed.notify_waiters();
    }
}

impl TlsSeenEvents {
    async fn until(&self, what: &str, mut holds: impl FnMut(&TlsSeenEvents) -> bool) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if holds(self) {
                    return;
                }
                changed.await;
            }
        };
        let ended = tokio::time::timeout(DEADLINE, wait).await;
        assert!(ended.is_ok(), "{what} did not come; refused {:?}, down {:?}", self.refused, self.down);
    }

    /// Waits for a refusal that says this, and sees that it names the address.
    async fn refused_with(&self, words: &str) {
        self.until(words, |seen| seen.refused.borrow().iter().any(|(_, why)| why.contains(words))).await;
        let refused = self.refused.borrow();
        let (who, why) = refused.iter().find(|(_, why)| why.contains(words)).unwrap();
        assert!(who.contains("127.0.0.1"), "{who} names no address");
        assert!(self.up.borrow().is_empty() && why.split(' ').count() > 6, "{why}");
    }

    fn sender(&self) -> Rc<LinkSender> {
        self.up.borrow().last().expect("a link is up").0.clone()
    }
}

struct TlsNode {
    seen: Rc<TlsSeenEvents>,
    links: Links,
}

impl TlsNode {
    fn start(name: &str, peer: &str, peer_address: SocketAddr, tls: Option<CredentialStore>) -> TlsNode {
        TlsNode::meaning("group a", Duration::ZERO, (name, peer, peer_address), tls)
    }

    /// With these definitions; complaints are repeated after this time.
    fn meaning(
        definitions: &str,
        repeat_after: Duration,
        who: (&str, &str, SocketAddr),
        tls: Option<CredentialStore>,
    ) -> TlsNode {
        TlsNode::of_cluster(CLUSTER, definitions, repeat_after, who, tls)
    }

    /// The same for one that belongs to this cluster.
    fn of_cluster(
        cluster: &str,
        definitions: &str,
        repeat_after: Duration,
        (name, peer, peer_address): (&str, &str, SocketAddr),
        tls: Option<CredentialStore>,
    ) -> TlsNode {
        let ours = Ourselves {
            cluster: cluster.into(),
            node: name.into(),
            peers: vec![peer.into()],
            secret: ClusterSecret::new(b"correct horse battery staple"),
            definitions: definitions.into(),
            versions: Versions::OURS,
        };
        let config = LinkConfig {
            control: None,
            volumes: None,
            ours,
            peers: vec![LinkPeer { id: NodeId(0), name: peer.into(), address: peer_address }],
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            tls,
            socket: SocketOptions::default(),
            flow: FrameOptions::default(),
            bounds: LinkBounds {
                auth_timeout: Duration::from_secs(2),
                backoff_min: Duration::from_millis(5),
                backoff_max: Duration::from_millis(50),
                repeat_after,
                ..LinkBounds::default()
            },
        };
        let seen = Rc::new(TlsSeenEvents::default());
        let links = Links::start(config, Pool::new(64 << 20), seen.clone()).expect("loopback can be bound");
        TlsNode { seen, links }
    }

    /// Listens; nobody is where it would dial.
    fn west(tls: Option<CredentialStore>) -> TlsNode {
        TlsNode::start("west", "east", "127.0.0.1:9".parse().unwrap(), tls)
    }

    /// Dials.
    fn east(address: SocketAddr, tls: Option<CredentialStore>) -> TlsNode {
        TlsNode::start("east", "west", address, tls)
    }

    fn address(&self) -> SocketAddr {
        self.links.addresses()[0]
    }

    async fn is_up(&self, times: usize) {
        self.seen.until("a link", |seen| seen.up.borrow().len() >= times).await;
    }
}

fn run<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async { tokio::time::timeout(DEADLINE, test).await.expect("the test hangs") })
}

/// What happens to bytes on the way from the dialer to the acceptor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mischief {
    None,
    /// The next piece arrives with a bit changed.
    Flip,
    /// The next piece is announced as longer than it may be.
    Oversize,
    /// Nothing is read any more.
    Stop,
}

/// A stretch of cable between dialer and acceptor.
struct TestCable {
    address: SocketAddr,
    mischief: Rc<Cell<Mischief>>,
    /// All that the dialers have said.
    said: Rc<RefCell<Vec<u8>>>,
}

async fn cable(to: SocketAddr) -> TestCable {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (mischief, said) = (Rc::new(Cell::new(Mischief::None)), Rc::<RefCell<Vec<u8>>>::default());
    let (acts, hears) = (mischief.clone(), said.clone());
    tokio::task::spawn_local(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(to).await else { continue };
            let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
            tokio::task::spawn_local(carry(near_read, far_write, acts.clone(), hears.clone()));
            tokio::task::spawn_local(carry(far_read, near_write, Rc::new(Cell::new(Mischief::None)), Rc::default()));
        }
    });
    TestCable { address, mischief, said }
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mischief: Rc<Cell<Mischief>>,
    said: Rc<RefCell<Vec<u8>>>,
) {
    let mut buffer = vec![0; 70_000];
    let mut turn = 0;
    loop {
        if mischief.get() == Mischief::Stop {
            std::future::pending::<()>().await;
        }
        // Pieces of every length, so that records are cut everywhere.
        turn = (turn * 75 + 74) % 65_537;
        let Ok(count @ 1..) = from.read(&mut buffer[..1 + turn]).await else { return };
        said.borrow_mut().extend(&buffer[..count]);
        match mischief.replace(Mischief::None) {
            Mischief::Flip => buffer[count - 1] ^= 1,
            Mischief::Oversize => buffer[..5.min(count)].copy_from_slice(&[23, 3, 3, 0xff, 0xff][..5.min(count)]),
            same => mischief.set(same),
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

fn data(session: SessionId, number: u64, length: usize) -> (FrameHeader, SendPayload) {
    let mut buffer = Buffer::detached(length);
    buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at as u64 * 31 + number) as u8);
    let header = FrameHeader {
        seq: Seq(number),
        length: length as u64,
        ..FrameHeader::new(FrameKind::Data, session, GroupId(1))
    };
    (header, SendPayload::Data(Slice { buf: Buf::new(Arc::new(buffer)), start: 0, length: length as u32 }))
}

/// Sends frames of many sizes and sees each arrive whole and in order.
async fn exchange(from: &TlsNode, to: &TlsNode, count: u64) {
    let session = from.seen.up.borrow().last().unwrap().1;
    let before = to.seen.frames.borrow().len();
    let length = |number: u64| [1, 96, 4096, 16_384, 65_537, 1 << 20][number as usize % 6];
    for number in 0..count {
        let (header, payload) = data(session, number, length(number));
        let sender = from.seen.sender();
        sender.push(header, payload);
        if number % 3 == 0 {
            sender.flush();
        }
        if number % 12 == 11 {
            sender.flush();
            to.seen.until("frames", |seen| (seen.frames.borrow().len() - before) as u64 > number - 6).await;
        }
    }
    from.seen.sender().flush();
    to.seen.until("all frames", |seen| (seen.frames.borrow().len() - before) as u64 == count).await;
    for (number, (header, payload)) in to.seen.frames.borrow()[before..].iter().enumerate() {
        let FramePayload::Data(buffer) = payload else { panic!("data is data") };
        let buffer = buffer.get::<Buffer>().unwrap();
        assert_eq!((header.seq.0 as usize, buffer.len()), (number, length(number as u64)));
        assert!(buffer.iter().enumerate().all(|(at, byte)| *byte == (at * 31 + number) as u8), "frame {number}");
    }
    from.seen.until("all is sent", |_| from.seen.sender().queued_bytes() == 0).await;
}

/// Two nodes whose certificates are in order, with a cable between them.
async fn linked(certificates: &TestCertificates) -> (TlsNode, TlsNode, TestCable) {
    linked_by([certificates.node("west", "east", Dates::Now), certificates.node("east", "west", Dates::Now)].map(Some))
        .await
}

/// The same by these credentials, the acceptor's first, or by none.
async fn linked_by([accepts, dials]: [Option<CredentialStore>; 2]) -> (TlsNode, TlsNode, TestCable) {
    let west = TlsNode::west(accepts);
    let cable = cable(west.address()).await;
    let east = TlsNode::east(cable.address, dials);
    west.is_up(1).await;
    east.is_up(1).await;
    (east, west, cable)
}

#[test]
fn frames_travel_encrypted_and_whole_both_ways() {
    run(async {
        let certificates = TestCertificates::new();
        let (east, west, cable) = linked(&certificates).await;
        exchange(&east, &west, 60).await;
        exchange(&west, &east, 60).await;
        let marker = b"nobody on the way reads this, nor this, nor this";
        let session = east.seen.up.borrow()[0].1;
        let sender = east.seen.sender();
        sender.push(FrameHeader::new(FrameKind::Ack, session, GroupId(1)), SendPayload::Control(marker.to_vec()));
        sender.flush();
        west.seen.until("the marker", |seen| seen.frames.borrow().len() == 61).await;
        let said = cable.said.borrow();
        assert!(said.len() > 10 << 20, "{} bytes went over the cable", said.len());
        assert!(!said.windows(16).any(|window| window == &marker[..16]), "it could be read on the way");
        let info = &west.seen.up.borrow()[0].2;
        let certificate = info.certificate.as_ref().expect("it showed one");
        assert_eq!(certificate.identity, Some(MemberIdentity::node(CLUSTER, "east")));
        assert_eq!((info.key, info.name.as_str()), (east.seen.up.borrow()[0].2.key, "east"));
    });
}

/// Two nodes that do not accept each other; what the log of each says.
async fn refused(east: CredentialStore, west: CredentialStore, by_east: &str, by_west: &str) {
    let west = TlsNode::west(Some(west));
    let east = TlsNode::east(west.address(), Some(east));
    west.seen.refused_with(by_west).await;
    east.seen.refused_with(by_east).await;
}

// proves: P10
#[test]
fn another_authority_is_refused() {
    run(async {
        for name in ["authority", "another"] {
            let (certificates, other) = (TestCertificates::of("authority"), TestCertificates::of(name));
            let (foreign, sound) =
                (other.node("east", "west", Dates::Now), certificates.node("west", "east", Dates::Now));
            // The dialer looks first, and says so.
            refused(foreign, sound, "not of this cluster's authority", "does not know this node's authority").await;
        }
    });
}

// proves: P10
#[test]
fn another_nodes_certificate_is_refused_on_either_side() {
    run(async {
        let certificates = TestCertificates::new();
        let store = |name: &str, peer: &str| certificates.node(name, peer, Dates::Now);
        let wrong = "certificate is that of node \"north\", expected was";
        let seen = "not the one it expects";
        refused(store("north", "west"), store("west", "east"), seen, wrong).await;
        refused(store("east", "west"), store("north", "east"), wrong, seen).await;
    });
}

#[test]
fn a_node_that_speaks_for_another_is_refused() {
    run(async {
        let certificates = TestCertificates::new();
        let us = MemberIdentity::node(CLUSTER, "west");
        let peers = ["east".to_owned(), "beta".to_owned()];
        let loaded = Credentials::load(&certificates.issue("west", &us, Dates::Now), &us, &peers, &Clients::Certified);
        let west = TlsNode::west(Some(CredentialStore::new(loaded.unwrap())));
        // It is let in as beta, and then says that it is east.
        let _east = TlsNode::east(west.address(), Some(certificates.node("beta", "west", Dates::Now)));
        west.seen.refused_with("says that it is node \"east\", and its certificate is that of node \"beta\"").await;
    });
}

/// It named itself as a third node with other definitions, and that node was spoken ill of, beyond any limit.
#[test]
fn nothing_that_is_said_for_another_node_is_believed() {
    run(async {
        let certificates = TestCertificates::new();
        let us = MemberIdentity::node(CLUSTER, "west");
        let peers = ["east".to_owned(), "beta".to_owned()];
        let loaded = Credentials::load(&certificates.issue("west", &us, Dates::Now), &us, &peers, &Clients::Certified);
        let west = TlsNode::west(Some(CredentialStore::new(loaded.unwrap())));
        let beta = certificates.node("beta", "west", Dates::Now);
        let who = ("east", "west", west.address());
        let impostor = TlsNode::meaning("group b", Duration::ZERO, who, Some(beta));
        let words = "says that it is node \"east\", and its certificate is that of node \"beta\"";
        west.seen.refused_with(words).await;
        impostor.seen.until("it was refused", |seen| seen.refused.borrow().len() > 3).await;
        assert!(west.seen.differ.borrow().is_empty(), "{:?}", west.seen.differ);
        assert!(impostor.seen.differ.borrow().is_empty(), "it was not told what this node means");
    });
}

/// A peer may belong to another cluster each time: that is told once in a while.
#[test]
fn a_peer_that_says_something_else_each_time_fills_no_log() {
    run(async {
        let nobody = "127.0.0.1:9".parse().unwrap();
        let west = TlsNode::meaning("group a", Duration::from_secs(3600), ("west", "east", nobody), None);
        for number in 0..5 {
            let who = ("east", "west", west.address());
            let east = TlsNode::of_cluster(&format!("cluster{number}"), "group a", Duration::ZERO, who, None);
            east.seen.refused_with(&format!("this node to \"cluster{number}\"")).await;
        }
        let refused = west.seen.refused.borrow();
        let seen: Vec<_> = refused.iter().filter(|(_, why)| why.contains("belongs to cluster")).collect();
        assert!(seen.len() == 1 && seen[0].1.contains("cluster0"), "{refused:?}");
    });
}

// proves: P10
#[test]
fn certificates_out_of_their_time_are_refused_on_either_side() {
    run(async {
        for (dates, said) in [(Dates::Past, "its certificate expired on"), (Dates::Future, "is not valid before")] {
            let certificates = TestCertificates::new();
            let east = |dates| certificates.node("east", "west", dates);
            let west = |dates| certificates.node("west", "east", dates);
            let seen = "this node's certificate has expired, or is not valid yet";
            refused(east(dates), west(Dates::Now), seen, said).await;
            refused(east(Dates::Now), west(dates), said, seen).await;
        }
    });
}

#[test]
fn plain_and_encrypted_ends_distinguish_each_other() {
    run(async {
        let certificates = TestCertificates::new();
        let west = TlsNode::west(Some(certificates.node("west", "east", Dates::Now)));
        let _plain = TlsNode::east(west.address(), None);
        west.seen.refused_with("does not speak TLS here").await;
        let west = TlsNode::west(None);
        let east = TlsNode::east(west.address(), Some(certificates.node("east", "west", Dates::Now)));
        west.seen.refused_with("it speaks TLS, and this node does not").await;
        east.seen.refused_with("does not speak TLS here").await;
    });
}

/// Says these bytes to a listening node, then waits for the end of the conversation; all it answered.
async fn say(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // It may hang up before it has heard all.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    // A reset is an end as well.
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

/// The opening of a TLS 1.2 client: no list of versions, and suites of that time.
fn hello_of_tls_1_2() -> Vec<u8> {
    let groups = [0, 10, 0, 4, 0, 2, 0, 23];
    let signatures = [0, 13, 0, 4, 0, 2, 4, 3];
    let extensions = [&groups[..], &signatures].concat();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 4, 0xc0, 0x2b, 0xc0, 0x2f, 1, 0, 0, extensions.len() as u8]);
    body.extend(extensions);
    let message = [&[1, 0, 0, body.len() as u8][..], &body].concat();
    [&[22, 3, 1, 0, message.len() as u8][..], &message].concat()
}

#[test]
fn an_older_tls_is_refused() {
    run(async {
        let certificates = TestCertificates::new();
        let west = TlsNode::west(Some(certificates.node("west", "east", Dates::Now)));
        let answer = say(west.address(), &hello_of_tls_1_2()).await;
        assert_eq!(answer[..1], [21], "an alert and nothing else: {answer:?}");
        west.seen.refused_with("it cannot speak TLS 1.3").await;
    });
}

// proves: P10
#[test]
fn a_client_without_a_certificate_is_refused() {
    run(async {
        let certificates = TestCertificates::new();
        let west = TlsNode::west(Some(certificates.node("west", "east", Dates::Now)));
        visit(west.address(), tls_client(&certificates, None)).await;
        west.seen.refused_with("it presented no certificate").await;
    });
}

/// Carries a TLS client's handshake to its end, whatever that is.
async fn visit(address: SocketAddr, mut client: rustls::ClientConnection) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    loop {
        let mut out = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut out).unwrap();
        }
        stream.write_all(&out).await.unwrap();
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).await.unwrap_or(0);
        let taken = client.read_tls(&mut &bytes[..count]);
        if count == 0 || taken.is_err() || client.process_new_packets().is_err() {
            return;
        }
    }
}

// proves: P10
#[test]
fn a_replayed_handshake_is_refused() {
    run(async {
        let certificates = TestCertificates::new();
        let (east, west, cable) = linked(&certificates).await;
        let heard = cable.said.borrow().clone();
        drop(east);
        let again = TlsNode::west(Some(certificates.node("west", "east", Dates::Now)));
        say(again.address(), &heard).await;
        again.seen.refused_with("does not decrypt").await;
        drop(west);
    });
}

#[test]
fn changed_bytes_end_the_link_and_the_next_one_works() {
    run(async {
        let certificates = TestCertificates::new();
        for (mischief, words) in [(Mischief::Flip, "does not decrypt"), (Mischief::Oversize, "longer than TLS allows")]
        {
            let (east, west, cable) = linked(&certificates).await;
            cable.mischief.set(mischief);
            let (header, payload) = data(east.seen.up.borrow()[0].1, 0, 4096);
            east.seen.sender().push(header, payload);
            east.seen.sender().flush();
            west.seen.until("the end", |seen| !seen.down.borrow().is_empty()).await;
            let reason = west.seen.down.borrow()[0].clone();
            assert!(reason.contains(words), "{reason}");
            assert!(west.seen.frames.borrow().is_empty(), "nothing of it got in");
            west.is_up(2).await;
            east.is_up(2).await;
            exchange(&east, &west, 12).await;
        }
    });
}

#[test]
fn a_peer_that_stops_reading_holds_nobody_up() {
    run(async {
        let certificates = TestCertificates::new();
        let (east, _west, cable) = linked(&certificates).await;
        let session = east.seen.up.borrow()[0].1;
        cable.mischief.set(Mischief::Stop);
        for number in 0..32 {
            let (header, payload) = data(session, number, 1 << 20);
            east.seen.sender().push(header, payload);
            east.seen.sender().flush();
        }
        assert!(east.seen.sender().queued_bytes() > 16 << 20, "the rest waits on this side");
        east.seen.sender().close("the test ends it");
        east.seen.until("the end", |seen| seen.down.borrow().len() == 1).await;
    });
}

#[test]
fn dribbled_and_endless_handshakes_are_cut_off() {
    run(async {
        let certificates = TestCertificates::new();
        let west = TlsNode::west(Some(certificates.node("west", "east", Dates::Now)));
        let mut streams = Vec::new();
        for _ in 0..40 {
            let mut stream = TcpStream::connect(west.address()).await.unwrap();
            // A record that is announced and then comes a byte at a time.
            stream.write_all(&[22, 3, 1, 0x3f, 0xff, 1]).await.unwrap();
            streams.push(stream);
        }
        west.seen.refused_with("connections were waiting to prove who they are").await;
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        let dribble = async {
            loop {
                ticks.tick().await;
                for stream in &mut streams {
                    let _ = stream.write(&[0]).await;
                }
            }
        };
        tokio::select! {
            () = dribble => unreachable!("it goes on for ever"),
            () = west.seen.refused_with("it did not prove who it is within 2s") => {}
        }
        // A greeting of 60 KiB, whole and quick.
        let mut endless = vec![1, 0, 0xea, 0x60];
        endless.resize(40_000, 0);
        let records: Vec<u8> = endless
            .chunks(16_000)
            .flat_map(|chunk| [&[22, 3, 1][..], &(chunk.len() as u16).to_be_bytes(), chunk].concat())
            .collect();
        say(west.address(), &records).await;
        west.seen.refused_with("without finishing the TLS handshake").await;
        // A friend still gets in.
        let east = TlsNode::east(west.address(), Some(certificates.node("east", "west", Dates::Now)));
        east.is_up(1).await;
    });
}

#[test]
fn an_nbd_clients_certificate_opens_no_link() {
    run(async {
        let certificates = TestCertificates::new();
        let west = TlsNode::west(Some(certificates.node("west", "east", Dates::Now)));
        let own = certificates.issue("backup", &MemberIdentity::client(CLUSTER, "backup"), Dates::Now);
        visit(west.address(), tls_client(&certificates, Some(&own))).await;
        west.seen.refused_with("that of the client \"backup\"").await;
    });
}

#[test]
fn a_connection_meant_for_something_else_is_no_link() {
    run(async {
        let certificates = TestCertificates::new();
        let west = TlsNode::west(Some(certificates.node("west", "east", Dates::Now)));
        // A certificate of the right node, and no word of a link.
        let own = certificates.issue("east", &MemberIdentity::node(CLUSTER, "east"), Dates::Now);
        visit(west.address(), tls_client(&certificates, Some(&own))).await;
        west.seen.refused_with("it is no end of a link").await;
    });
}

// proves: P10
/// Either end notices, whoever dialed; and the peer stays outside.
#[test]
fn a_link_of_a_peer_that_is_believed_no_more_ends_at_once() {
    run(async {
        for revoked in ["east", "west"] {
            let certificates = TestCertificates::new();
            let stores = ["east", "west"].map(|name| certificates.node(name, other_than(name), Dates::Now));
            let west = TlsNode::west(Some(stores[1].clone()));
            let east = TlsNode::east(west.address(), Some(stores[0].clone()));
            west.is_up(1).await;
            east.is_up(1).await;
            certificates.revoke(revoked);
            let checking_node = other_than(revoked);
            let us = MemberIdentity::node(CLUSTER, checking_node);
            // As a renewal reads them: nothing has changed but the list.
            let own = Paths {
                authority: certificates.path("ca.crt"),
                certificate: certificates.path(&format!("{checking_node}.crt")),
                key: certificates.path(&format!("{checking_node}.key")),
            };
            let again = Credentials::load(&own, &us, &[revoked.to_owned()], &Clients::Certified).unwrap();
            let (checking, store) = if checking_node == "west" { (&west, &stores[1]) } else { (&east, &stores[0]) };
            let before = store.current();
            assert!(
                before.lacks_some_of(&again) && !again.lacks_some_of(&before),
                "a list that lost a line is looked at twice"
            );
            store.replace(again);
            checking.seen.until("the end", |seen| !seen.down.borrow().is_empty()).await;
            let reason = checking.seen.down.borrow()[0].clone();
            assert!(reason.contains("believed no more") && reason.contains("revoked"), "{reason}");
            let refused =
                |seen: &TlsSeenEvents| seen.refused.borrow().iter().any(|(_, why)| why.contains("was revoked"));
            checking.seen.until("a refusal", refused).await;
            assert_eq!(checking.seen.up.borrow().len(), 1);
        }
    });
}

fn other_than(name: &str) -> &'static str {
    if name == "west" { "east" } else { "west" }
}

#[test]
fn new_credentials_serve_the_next_connection() {
    run(async {
        let certificates = TestCertificates::new();
        let store = certificates.node("west", "east", Dates::Now);
        let west = TlsNode::west(Some(store.clone()));
        let east = TlsNode::east(west.address(), Some(certificates.node("east", "west", Dates::Now)));
        east.is_up(1).await;
        let us = MemberIdentity::node(CLUSTER, "west");
        let renewed =
            Credentials::load(&certificates.issue("west", &us, Dates::Now), &us, &["east".into()], &Clients::Certified);
        store.replace(renewed.unwrap());
        exchange(&east, &west, 6).await;
        west.seen.sender().close("the certificates were replaced");
        east.is_up(2).await;
        west.is_up(2).await;
        exchange(&east, &west, 12).await;
        let shown = |at: usize| east.seen.up.borrow()[at].2.certificate.clone().unwrap().fingerprint;
        assert_ne!(shown(0), shown(1));
        assert_eq!(shown(1), store.current().own.fingerprint);
    });
}

/// Nothing has happened to the link since it came up.
fn assert_untouched(nodes: [&TlsNode; 2]) {
    for node in nodes {
        assert_eq!(node.seen.up.borrow().len(), 1);
        assert!(node.seen.down.borrow().is_empty(), "{:?}", node.seen.down);
    }
}

/// Somebody on the way has recorded all that a dialer said, and says it to the same node, in whole or in part, while that session
/// goes on.
#[test]
fn a_session_that_is_played_back_opens_nothing_and_disturbs_nobody() {
    run(async {
        let certificates = TestCertificates::new();
        let with_tls =
            [certificates.node("west", "east", Dates::Now), certificates.node("east", "west", Dates::Now)].map(Some);
        for (tls, sentence) in [(with_tls, "does not decrypt"), ([None, None], "the secret")] {
            let (east, west, cable) = linked_by(tls).await;
            exchange(&east, &west, 6).await;
            let said = cable.said.borrow().clone();
            for length in [said.len(), said.len() / 2, 4096] {
                let before = west.seen.refused.borrow().len();
                tokio::join!(say(west.address(), &said[..length]), exchange(&east, &west, 6));
                west.seen.until("a refusal", |seen| seen.refused.borrow().len() > before).await;
                let (who, why) = west.seen.refused.borrow()[before].clone();
                assert!(who.contains("127.0.0.1") && why.contains(sentence), "{who}: {why}");
            }
            exchange(&west, &east, 6).await;
            assert_untouched([&east, &west]);
        }
    });
}

/// Certificates are renewed on both sides, again and again, while frames travel and unauthenticated peers with every kind of wrong certificate knock.
#[test]
fn renewals_and_unauthenticated_peers_do_not_touch_a_link_under_load() {
    const RENEWALS: usize = 12;
    run(async {
        let certificates = TestCertificates::new();
        let stores = [("west", "east"), ("east", "west")].map(|(name, peer)| certificates.node(name, peer, Dates::Now));
        let (east, west, _cable) = linked_by(stores.clone().map(Some)).await;
        let others = TestCertificates::of("another");
        let wrong: Vec<Paths> = vec![
            others.issue("east", &MemberIdentity::node(CLUSTER, "east"), Dates::Now),
            certificates.issue("late", &MemberIdentity::node(CLUSTER, "east"), Dates::Past),
            certificates.issue("north", &MemberIdentity::node(CLUSTER, "north"), Dates::Now),
            certificates.issue("backup", &MemberIdentity::client(CLUSTER, "backup"), Dates::Now),
        ];
        let knocking = async {
            for own in wrong.iter().cycle().take(2 * RENEWALS) {
                visit(west.address(), tls_client(&certificates, Some(own))).await;
            }
        };
        let renewing = async {
            for _ in 0..RENEWALS {
                for (store, (name, peer)) in stores.iter().zip([("west", "east"), ("east", "west")]) {
                    let us = MemberIdentity::node(CLUSTER, name);
                    let own = certificates.issue(name, &us, Dates::Now);
                    store.replace(Credentials::load(&own, &us, &[peer.into()], &Clients::Certified).unwrap());
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(exchange(&east, &west, 48), knocking, renewing);
        assert_untouched([&east, &west]);
        west.seen.until("refusals", |seen| seen.refused.borrow().len() >= 2 * RENEWALS).await;
        for words in ["authority", "expired", "\"north\"", "the client \"backup\""] {
            assert!(west.seen.refused.borrow().iter().any(|(_, why)| why.contains(words)), "{words}");
        }
        // The next connection shows what was issued last.
        west.seen.sender().close("to connect anew");
        east.is_up(2).await;
        let shown = east.seen.up.borrow()[1].2.certificate.clone().unwrap().fingerprint;
        assert_eq!(shown, stores[0].current().own.fingerprint);
    });
}
