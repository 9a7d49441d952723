//! A peer that is authenticated and wrong, over a real socket: an engine behind the real links, and at the other end a test that
//! holds the secret. What waits for a peer that asks and never reads is bounded, here as in the engine; what nobody may send ends
//! the connection with a sentence.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::identity::{Identity, Role};
use engine::wire::{FrameHeader, FrameKind, GroupHello, SyncBegin};
use engine::*;
use host::buffers::Pool;
use host::link::auth::{Handshake, PREFIX_BYTES};
use host::link::{
    Attempt, ClusterSecret, FrameOptions, LinkBounds, LinkConfig, LinkEvents, LinkPeer, LinkSender, Links, Ourselves,
    PeerInfo, SocketOptions, Versions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

const DEADLINE: Duration = Duration::from_secs(120);
const GROUP: GroupId = GroupId(0);
const VOLUME_BYTES: u64 = 1 << 20;
/// All that may wait for a peer, with one group.
const UNSENT_MAX: u64 = limits::UNSENT_BYTES_MAX
    + 2 * limits::PART_BYTES_MAX
    + limits::CONTROL_UNSENT_BYTES_MAX
    + limits::CONTROL_UNSENT_BYTES_PER_GROUP;

/// An engine, its links, and disks that answer at once.
struct Victim {
    began: Instant,
    node: RefCell<Node>,
    sender: RefCell<Option<Rc<LinkSender>>>,
    down: RefCell<Vec<String>>,
    queued_max: RefCell<u64>,
}

impl Victim {
    fn new() -> Victim {
        let volume =
            VolumeConfig { size_bytes: VOLUME_BYTES, block_bytes: 4096, changed_outside: false, is_detached: false };
        let group = GroupConfig {
            id: GROUP,
            tag: 1,
            peer: NodeId(0),
            starts_as: Role::Secondary,
            meets_peer_first: false,
            volumes: vec![volume],
            settings: Settings::default(),
            journal_bytes: limits::JOURNAL_BYTES_MIN,
            window_bytes: limits::WINDOW_BYTES_MIN,
            activity: ActivityConfig::default(),
            history_bytes: limits::HISTORY_BYTES_MIN,
            view_bytes: 0,
            queue_disk_bytes: 0,
            queue_durable: false,
            queue_file: 0,
        };
        let node = Node::new(NodeConfig {
            node: NodeId(1),
            groups: vec![group],
            link_timeout: limits::LINK_TIMEOUT_DEFAULT,
            memory_bytes: limits::MEMORY_BYTES_MIN,
            syncs_at_once: limits::SYNCS_AT_ONCE,
        });
        let (node, sender, down) = (RefCell::new(node), RefCell::default(), RefCell::default());
        let victim = Victim { began: Instant::now(), node, sender, down, queued_max: RefCell::default() };
        victim.handle(Input::Start { entropy: 1, boot: 1 });
        victim
    }

    fn handle(&self, input: Input) {
        let now = Now { mono: Mono(self.began.elapsed().as_nanos() as u64 + 1), wall: Wall(1) };
        let mut node = self.node.borrow_mut();
        node.handle(now, input);
        while let Some(output) = node.poll_output() {
            let done = match output {
                Output::ReadMeta { token, length, .. } => (token, IoDone::Meta(vec![0; length as usize])),
                Output::Write { token, .. } | Output::Zero { token, .. } | Output::Flush { token, .. } => {
                    (token, IoDone::Done)
                }
                Output::Send { header, payload, .. } => {
                    self.sender.borrow().iter().for_each(|sender| sender.push(header, payload.clone()));
                    continue;
                }
                Output::CloseLink { reason, .. } => {
                    self.sender.borrow().iter().for_each(|sender| sender.close(&reason));
                    continue;
                }
                _ => continue,
            };
            node.handle(now, Input::Io { token: done.0, result: Ok(done.1) });
        }
        if let Some(sender) = self.sender.borrow().as_ref() {
            sender.flush();
            let queued_max = &mut *self.queued_max.borrow_mut();
            *queued_max = (*queued_max).max(sender.queued_bytes());
        }
    }
}

impl LinkEvents for Victim {
    fn up(&self, peer: NodeId, link: LinkId, session: SessionId, sender: Rc<LinkSender>, _: PeerInfo) {
        *self.sender.borrow_mut() = Some(sender);
        self.handle(Input::LinkUp { peer, link, session, apart: Vec::new() });
    }

    fn down(&self, link: LinkId, reason: String) {
        *self.sender.borrow_mut() = None;
        self.handle(Input::LinkDown { link, reason: reason.clone() });
        self.down.borrow_mut().push(reason);
    }

    fn frame(&self, link: LinkId, header: FrameHeader, payload: FramePayload) {
        self.handle(Input::Frame { link, header, payload });
    }

    fn heard(&self, link: LinkId) {
        self.handle(Input::Heard { link });
    }

    fn sent(&self, link: LinkId, bytes: u64) {
        self.handle(Input::Sent { link, bytes });
    }

    fn turn_done(&self) {}

    fn refused(&self, _: String, _: String) {}
}

fn ours(node: &str, peer: &str) -> Ourselves {
    Ourselves {
        cluster: "harbour".into(),
        node: node.into(),
        peers: vec![peer.into()],
        secret: ClusterSecret::new(b"correct horse battery staple"),
        definitions: "group a".into(),
        versions: Versions::OURS,
    }
}

/// What the hostile peer does once it is believed; then why its connection ended.
fn against<F: Future<Output = ()>>(bad_frames: impl FnOnce(TcpStream, SessionId) -> F) -> (String, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let test = async {
        let victim = Rc::new(Victim::new());
        let config = LinkConfig {
            control: None,
            volumes: None,
            ours: ours("west", "east"),
            peers: vec![LinkPeer {
                id: NodeId(0),
                name: "east".into(),
                address: SocketAddr::from(([127, 0, 0, 1], 9)),
            }],
            listen: vec!["127.0.0.1:0".parse().expect("an address")],
            tls: None,
            socket: SocketOptions::default(),
            flow: FrameOptions::default(),
            bounds: LinkBounds::default(),
        };
        let links = Links::start(config, Pool::new(64 << 20), victim.clone()).expect("loopback can be bound");
        let (stream, session) = shake(links.addresses()[0]).await;
        bad_frames(stream, session).await;
        while victim.down.borrow().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let reason = victim.down.borrow()[0].clone();
        (reason, *victim.queued_max.borrow())
    };
    LocalSet::new().block_on(&runtime, async { tokio::time::timeout(DEADLINE, test).await.expect("the test hangs") })
}

/// A dialer by hand that holds the secret.
async fn shake(address: SocketAddr) -> (TcpStream, SessionId) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let attempt = Attempt { run: 1, number: 1 };
    let (mut handshake, hello) = Handshake::dial(Rc::new(ours("east", "west")), "west", [3; 32], attempt);
    stream.write_all(&hello).await.expect("it reads");
    loop {
        let mut prefix = [0; PREFIX_BYTES];
        stream.read_exact(&mut prefix).await.expect("it answers");
        let mut body = vec![0; handshake.body_bytes(&prefix).expect("a message")];
        stream.read_exact(&mut body).await.expect("it answers");
        let step = handshake.receive(&prefix, &body);
        stream.write_all(&step.send).await.expect("it reads");
        if let Some(outcome) = step.outcome {
            return (stream, outcome.expect("it is believed").session);
        }
    }
}

fn frame(header: FrameHeader, payload: &[u8]) -> Vec<u8> {
    [&header.sealed(payload).encode()[..], payload].concat()
}

fn hello(session: SessionId) -> Vec<u8> {
    let identity = Identity {
        role: Role::Primary,
        generation: Generation { number: 3, tag: 33 },
        incarnation: Incarnation(7),
        ..Identity::default()
    };
    let says = GroupHello { identity, volume_bytes: vec![VOLUME_BYTES], ..GroupHello::default() };
    frame(FrameHeader::new(FrameKind::GroupHello, session, GROUP), &says.encode())
}

// proves: P10
#[test]
fn a_peer_that_asks_and_never_reads_is_parted_with_before_much_waits_for_it() {
    let (reason, queued) = against(async |mut stream, session| {
        stream.write_all(&hello(session)).await.expect("it reads");
        // For another run of it: each is answered with who it is.
        let begin = SyncBegin {
            from: Position { generation: Generation { number: 3, tag: 33 }, incarnation: Incarnation(7), seq: Seq(0) },
            parent: Position::default(),
            to: Incarnation(99),
            nothing_dirty: false,
            dirty_bytes: 0,
            dirty_units: 0,
            left_out_bytes: 0,
            snapshot: 0,
            attempt: 1,
            aside: engine::VolumeSet::default(),
            is_resolved: false,
        };
        let beat = frame(FrameHeader::new(FrameKind::Heartbeat, session, GROUP), &[1; 8]);
        let many =
            [beat, frame(FrameHeader::new(FrameKind::SyncBegin, session, GROUP), &begin.encode())].concat().repeat(500);
        // Until it is shown the door: the kernel's buffers hold some MiB of answers besides.
        for _ in 0..2000 {
            if stream.write_all(&many).await.is_err() {
                return;
            }
        }
        panic!("it is listened to without end");
    });
    assert!(reason.contains("asks and does not read"), "{reason}");
    assert!(queued <= UNSENT_MAX, "{queued} bytes waited, at most {UNSENT_MAX} may");
}

#[test]
fn heartbeats_that_are_never_read_back_hold_little_and_end_nothing() {
    let (reason, queued) = against(async |mut stream, session| {
        let beats = frame(FrameHeader::new(FrameKind::Heartbeat, session, GROUP), &[1; 8]).repeat(1000);
        for _ in 0..200 {
            stream.write_all(&beats).await.expect("it reads on");
        }
    });
    // It was the hostile peer who went.
    assert!(!reason.contains("does not read"), "{reason}");
    let most = limits::UNSENT_BYTES_MAX + limits::CLOGGED_BYTES;
    assert!(queued <= most, "{queued} bytes waited, at most {most} may");
}

#[test]
fn what_nobody_may_send_ends_the_connection_with_a_sentence() {
    let far = |session| FrameHeader { seq: Seq(u64::MAX), ..FrameHeader::new(FrameKind::Void, session, GROUP) };
    type BadMessage = Box<dyn Fn(SessionId) -> Vec<u8>>;
    let bad_frames: [(BadMessage, &str); 4] = [
        (Box::new(move |s| frame(far(s), &[])), "the sequence 18446744073709551615, further than anything counts"),
        (
            Box::new(|s| frame(FrameHeader::new(FrameKind::Heartbeat, s, GROUP), &[0; 60_000])),
            "announced 60000 bytes for a Heartbeat",
        ),
        (
            Box::new(|s| frame(FrameHeader::new(FrameKind::Tick, s, GroupId(77)), &[0, 0])),
            "group number 77, which it does not share",
        ),
        (Box::new(|s| frame(FrameHeader::new(FrameKind::BitsAsk, s, GROUP), &[])), "before it said who it is"),
    ];
    for (bad_frame, sentence) in bad_frames {
        let (reason, _) = against(async |mut stream, session| {
            stream.write_all(&bad_frame(session)).await.expect("it reads");
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
        assert!(reason.contains(sentence), "{reason:?}, not {sentence:?}");
    }
}
