//! How much one link carries over loopback, plain and encrypted, and what that costs: both ends share one thread.
//!
//! `cargo run --release -p host --example link_speed`

#[allow(dead_code, reason = "most of it is for tests")]
#[path = "../tests/certificates/mod.rs"]
mod certificates;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use certificates::{CLUSTER, Dates, TestCertificates};
use engine::wire::{FrameHeader, FrameKind};
use engine::{Buf, FramePayload, GroupId, LinkId, NodeId, SendPayload, Seq, SessionId, Slice};
use host::buffers::{Buffer, Pool};
use host::link::{
    ClusterSecret, FrameOptions, LinkBounds, LinkConfig, LinkEvents, LinkPeer, LinkSender, Links, Ourselves, PeerInfo,
    SocketOptions, Versions,
};
use host::tls::CredentialStore;
use tokio::sync::Notify;
use tokio::task::LocalSet;

/// Payload sent in each round.
const ROUND_BYTES: usize = 1 << 30;
/// What may be on its way: a window as the engine grants one.
const WINDOW_BYTES: usize = 8 << 20;
const ROUNDS: usize = 5;

#[derive(Default)]
struct SpeedListener {
    up: RefCell<Option<(Rc<LinkSender>, SessionId)>>,
    received_bytes: Cell<usize>,
    changed: Notify,
}

impl LinkEvents for SpeedListener {
    fn up(&self, _: NodeId, _: LinkId, session: SessionId, sender: Rc<LinkSender>, _: PeerInfo) {
        self.up.replace(Some((sender, session)));
        self.changed.notify_one();
    }

    fn down(&self, _: LinkId, reason: String) {
        panic!("the link fell: {reason}");
    }

    fn frame(&self, _: LinkId, header: FrameHeader, _: FramePayload) {
        self.received_bytes.set(self.received_bytes.get() + header.payload_bytes as usize);
    }

    fn heard(&self, _: LinkId) {}

    fn sent(&self, _: LinkId, _: u64) {}

    fn turn_done(&self) {
        self.changed.notify_one();
    }

    fn refused(&self, who: String, why: String) {
        println!("{who}: {why}");
    }
}

fn node(name: &str, peer: &str, peer_address: SocketAddr, tls: Option<CredentialStore>) -> (Rc<SpeedListener>, Links) {
    let ours = Ourselves {
        cluster: CLUSTER.into(),
        node: name.into(),
        peers: vec![peer.into()],
        secret: ClusterSecret::new(b"correct horse battery staple"),
        definitions: String::new(),
        versions: Versions::OURS,
    };
    let peers = vec![LinkPeer { id: NodeId(0), name: peer.into(), address: peer_address }];
    let listen = vec!["127.0.0.1:0".parse().expect("an address")];
    let config = LinkConfig {
        control: None,
        volumes: None,
        ours,
        peers,
        listen,
        tls,
        socket: SocketOptions::default(),
        flow: FrameOptions::default(),
        bounds: LinkBounds::default(),
    };
    let ear = Rc::new(SpeedListener::default());
    let links = Links::start(config, Pool::new(256 << 20), ear.clone()).expect("loopback can be bound");
    (ear, links)
}

/// Sends one round in frames of this size; how long it took.
async fn round(from: &SpeedListener, to: &SpeedListener, frame_bytes: usize) -> Duration {
    let (sender, session) = from.up.borrow().clone().expect("the link is up");
    let buffer = Buf::new(Arc::new(Buffer::detached(frame_bytes)));
    let (began, before) = (Instant::now(), to.received_bytes.get());
    let mut sent = 0;
    while to.received_bytes.get() - before < ROUND_BYTES {
        while sent < ROUND_BYTES && sent - (to.received_bytes.get() - before) < WINDOW_BYTES {
            let slice = Slice { buf: buffer.clone(), start: 0, length: frame_bytes as u32 };
            let seq = Seq((sent / frame_bytes) as u64);
            let length = frame_bytes as u64;
            let header = FrameHeader { seq, length, ..FrameHeader::new(FrameKind::Data, session, GroupId(1)) };
            sender.push(header, SendPayload::Data(slice));
            sent += frame_bytes;
        }
        sender.flush();
        to.changed.notified().await;
    }
    began.elapsed()
}

async fn measure(tls: Option<(CredentialStore, CredentialStore)>) {
    let word = if tls.is_some() { "TLS 1.3" } else { "plain" };
    let (east, west) = tls.unzip();
    let (to, west) = node("west", "east", "127.0.0.1:9".parse().expect("an address"), west);
    let (from, _east) = node("east", "west", west.addresses()[0], east);
    while from.up.borrow().is_none() || to.up.borrow().is_none() {
        from.changed.notified().await;
    }
    for frame_bytes in [4 << 10, 64 << 10, 1 << 20] {
        let mut rates = Vec::new();
        for _ in 0..ROUNDS {
            rates.push(ROUND_BYTES as f64 / round(&from, &to, frame_bytes).await.as_secs_f64() / 1e6);
        }
        rates.sort_by(f64::total_cmp);
        let (low, median, high) = (rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]);
        println!("{word:>8}  frames of {:>4} KiB  {median:>6.0} MB/s  ({low:.0} to {high:.0})", frame_bytes >> 10);
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let certificates = TestCertificates::new();
        measure(None).await;
        measure(Some((certificates.node("east", "west", Dates::Now), certificates.node("west", "east", Dates::Now))))
            .await;
    });
}
