//! Two ends over loopback: frames of all kinds both ways, and every kind of bad company.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use engine::wire::{FrameHeader, FrameKind, HEADER_BYTES};
use engine::{Buf, FramePayload, GroupId, NodeId, SendPayload, Seq, SessionId, Slice};
use host::buffers::Buffer;
use host::link::auth::{Authenticated, Handshake, PREFIX_BYTES};
use host::link::envelope::{Envelope, Packing};
use host::link::{
    Attempt, ClusterSecret, Compression, FrameOptions, LinkConfig, LinkSender, Method, Ourselves, PackingState,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::link_support::{DEADLINE, LinkNode, SeenEvents, config, nowhere, ours, pair, run};

struct LinkRandom(u64);

impl LinkRandom {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// What was sent lets the next frames in, and those are sent at once, on and on, with the peer's words in the socket.
#[test]
fn a_node_that_always_has_something_to_send_hears_its_peer() {
    run(async {
        let (west, east) = pair(|_| {}).await;
        west.seen.chatter.set(10_000);
        [&east, &west].iter().for_each(|node| node.seen.say());
        west.seen.until(|seen| !seen.frames.borrow().is_empty()).await;
        assert!(west.seen.chatter.get() > 9_990, "{:?}", west.seen.chatter);
    });
}

/// Frame number `n` of a stream: any kind, any size it may have.
fn make(rng: &mut LinkRandom, session: SessionId, n: u64) -> (FrameHeader, SendPayload) {
    const KINDS: [FrameKind; 9] = [
        FrameKind::Data,
        FrameKind::Data,
        FrameKind::Data,
        FrameKind::GroupHello,
        FrameKind::Void,
        FrameKind::Zero,
        FrameKind::Ack,
        FrameKind::Probe,
        FrameKind::Heartbeat,
    ];
    let kind = KINDS[rng.below(KINDS.len())];
    let mut header = FrameHeader { seq: Seq(n), ..FrameHeader::new(kind, session, GroupId(rng.below(1000) as u32)) };
    let size = match rng.below(20) {
        0 => kind.payload_max() as usize,
        1..5 => rng.below(kind.payload_max() as usize + 1),
        _ => rng.below(kind.payload_max().min(4096) as usize + 1),
    };
    let payload = if kind.carries_data() {
        let (size, start) = (size.max(1), rng.below(512));
        let mut buffer = Buffer::detached(start + size + rng.below(512));
        buffer.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i as u64 * 31 + n) as u8);
        header.length = size as u64;
        let slice = Slice { buf: Buf::new(Arc::new(buffer)), start: start as u32, length: size as u32 };
        in_pieces(rng, slice)
    } else if size > 0 {
        SendPayload::Control((0..size).map(|i| (i as u64 * 13 + n) as u8).collect())
    } else {
        SendPayload::None
    };
    (header, payload)
}

/// One half of them in some pieces.
fn in_pieces(rng: &mut LinkRandom, slice: Slice) -> SendPayload {
    if rng.below(2) == 0 {
        return SendPayload::Data(slice);
    }
    let step = (slice.length / (1 + rng.below(59) as u32)).max(1);
    let count = (slice.length / step).min(engine::limits::SLICES_MAX as u32);
    let piece = |n: u32| {
        let length = if n + 1 == count { slice.length - n * step } else { step };
        Slice { start: slice.start + n * step, length, ..slice.clone() }
    };
    SendPayload::Gathered((0..count).map(piece).collect())
}

fn bytes_of(payload: &SendPayload) -> Vec<u8> {
    match payload {
        SendPayload::None => Vec::new(),
        SendPayload::Control(bytes) => bytes.clone(),
        SendPayload::Data(slice) => content_of(slice),
        SendPayload::Gathered(slices) => slices.iter().flat_map(content_of).collect(),
    }
}

fn content_of(slice: &Slice) -> Vec<u8> {
    slice.buf.get::<Buffer>().unwrap()[slice.start as usize..][..slice.length as usize].to_vec()
}

fn arrived(payload: &FramePayload) -> Vec<u8> {
    match payload {
        FramePayload::None => Vec::new(),
        FramePayload::Control(bytes) => bytes.clone(),
        FramePayload::Data(buf) => buf.get::<Buffer>().unwrap().to_vec(),
    }
}

/// Pushes `count` frames in batches and checks that `to` gets each of them, in order; total bytes pushed.
async fn stream_frames(from: &SeenEvents, to: &SeenEvents, seed: u64, count: u64) -> u64 {
    let session = from.up.borrow().last().unwrap().1;
    let (mut rng, mut checked, mut total) = (LinkRandom(seed), 0, 0);
    let mut pushed: Vec<(FrameHeader, Vec<u8>)> = Vec::new();
    while checked < count {
        let batch = rng.below(50) as u64;
        from.call(|sender| {
            for _ in 0..batch.min(count - pushed.len() as u64) {
                let (header, payload) = make(&mut rng, session, pushed.len() as u64);
                let bytes = bytes_of(&payload);
                total += (HEADER_BYTES + bytes.len()) as u64;
                pushed.push((header.sealed(&bytes), bytes));
                sender.push(header, payload);
            }
            sender.flush();
        });
        // A bounded window, as the engine keeps one.
        let enough =
            if pushed.len() as u64 == count { count } else { checked.max((pushed.len() as u64).saturating_sub(64)) };
        to.until(|to| checked + to.frames.borrow().len() as u64 >= enough).await;
        for (header, payload) in to.frames.take() {
            let (expected, bytes) = &pushed[checked as usize];
            assert_eq!(header, *expected);
            assert!(arrived(&payload) == *bytes, "payload of frame {checked} differs");
            checked += 1;
        }
    }
    from.until(|from| from.sent.get() >= total).await;
    assert_eq!((from.sent.get(), from.sender().queued_bytes()), (total, 0));
    total
}

/// Forwards one connection in pieces of random lengths; `stop_after` bytes of the first direction it resets both.
async fn chop(address: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    tokio::task::spawn_local(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(address).await.unwrap();
            let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
            tokio::task::spawn_local(chop_one_way(near_read, far_write, 11));
            tokio::task::spawn_local(chop_one_way(far_read, near_write, 12));
        }
    });
    here
}

async fn chop_one_way(mut from: tokio::net::tcp::OwnedReadHalf, mut to: tokio::net::tcp::OwnedWriteHalf, seed: u64) {
    let mut rng = LinkRandom(seed);
    let mut buffer = vec![0; 300_000];
    loop {
        let most = if rng.below(4) == 0 { buffer.len() } else { 200 };
        let size = 1 + rng.below(most);
        match from.read(&mut buffer[..size]).await {
            Ok(0) | Err(_) => return,
            Ok(n) if to.write_all(&buffer[..n]).await.is_err() => return,
            Ok(_) => tokio::task::yield_now().await,
        }
    }
}

#[test]
fn thousands_of_frames_of_all_kinds_both_ways() {
    run(async {
        let (west, east) = pair(|_| {}).await;
        let (ours, theirs) = (east.seen.up.borrow()[0].3.clone(), west.seen.up.borrow()[0].3.clone());
        assert_eq!((ours.key, ours.dialed, theirs.dialed), (theirs.key, true, false));
        assert_eq!((ours.name.as_str(), theirs.name.as_str()), ("west", "east"));
        assert_eq!(east.seen.up.borrow()[0].1, west.seen.up.borrow()[0].1);
        tokio::join!(stream_frames(&east.seen, &west.seen, 1, 4000), stream_frames(&west.seen, &east.seen, 2, 4000));
        assert!(west.seen.turns.get() < 8000, "frames of one read share a turn");
    });
}

#[test]
fn any_chunking_on_the_way_changes_nothing() {
    run(async {
        let west = LinkNode::west(|_| {});
        let east = LinkNode::east(chop(west.address()).await, |_| {});
        tokio::join!(east.is_up(1), west.is_up(1));
        tokio::join!(stream_frames(&east.seen, &west.seen, 3, 300), stream_frames(&west.seen, &east.seen, 4, 300));
        assert!(west.seen.heard.get() > 0, "parts of frames are heard");
    });
}

fn packing(compression: Compression) -> impl Fn(&mut LinkConfig) {
    move |config| config.flow.compression = compression
}

#[test]
fn packed_frames_arrive_the_same_and_take_less_of_the_line() {
    run(async {
        let west = LinkNode::west(packing(Compression::Always(Method::Zstd(1))));
        let east = LinkNode::east(chop(west.address()).await, packing(Compression::Always(Method::Lz4)));
        tokio::join!(east.is_up(1), west.is_up(1));
        tokio::join!(stream_frames(&east.seen, &west.seen, 3, 300), stream_frames(&west.seen, &east.seen, 4, 300));
        let (ours, theirs) = (east.seen.sender().carried(), west.seen.sender().carried());
        assert_eq!((ours.sent, theirs.sent), (theirs.received, ours.received), "both ends count alike");
        for (carried, method) in [(ours, Method::Lz4), (theirs, Method::Zstd(1))] {
            assert_eq!(carried.doing, PackingState::Packing(method));
            assert!(carried.sent.plain_bytes > 5 * carried.sent.wire_bytes, "{carried:?}");
        }
    });
}

#[test]
fn packing_begins_and_ends_while_the_link_is_up() {
    run(async {
        let (west, east) = pair(|_| {}).await;
        let ways = [Compression::Always(Method::Zstd(3)), Compression::Off, Compression::Auto];
        for compression in ways {
            let session = east.seen.up.borrow()[0].1;
            let mut rng = LinkRandom(9);
            east.seen.call(|sender| {
                for n in 0..200 {
                    // In the middle of what waits.
                    if n == 100 {
                        east.links.set_flow(FrameOptions { compression, rate: None });
                    }
                    let (header, payload) = make(&mut rng, session, n);
                    sender.push(header, payload);
                }
                sender.flush();
            });
            let mut seqs = Vec::new();
            while seqs.len() < 200 {
                west.seen.until(|seen| !seen.frames.borrow().is_empty()).await;
                seqs.extend(west.seen.frames.take().into_iter().map(|(header, _)| header.seq.0));
            }
            assert!(seqs.into_iter().eq(0..200), "{compression}");
        }
        assert_eq!((east.seen.up.borrow().len(), east.seen.down.borrow().len()), (1, 0), "the same link all along");
    });
}

// proves: rule 25
#[test]
fn a_rate_holds_bulk_and_lets_heartbeats_pass_and_goes_when_it_is_lifted() {
    run(async {
        let (west, east) = pair(|config| config.flow.rate = Some(1)).await;
        let session = east.seen.up.borrow()[0].1;
        let void = |n| FrameHeader { seq: Seq(n), ..FrameHeader::new(FrameKind::Void, session, GroupId(1)) };
        east.seen.call(|sender| {
            (0..100).for_each(|n| sender.push(void(n), SendPayload::None));
            sender.flush();
        });
        east.seen.until(|seen| seen.sent.get() > 0).await;
        // At a byte a second the next one is a minute and a half away.
        east.seen.call(|sender| {
            assert!(sender.carried().is_held);
            sender.push(FrameHeader::new(FrameKind::Heartbeat, session, GroupId(0)), SendPayload::Control(vec![1; 8]));
            sender.flush();
        });
        west.seen.until(|seen| seen.frames.borrow().len() >= 2).await;
        let kinds: Vec<FrameKind> = west.seen.frames.take().into_iter().map(|(header, _)| header.kind).collect();
        assert_eq!(kinds, [FrameKind::Void, FrameKind::Heartbeat]);
        east.links.set_flow(FrameOptions::default());
        west.seen.until(|seen| seen.frames.borrow().len() == 99).await;
        assert!(west.seen.frames.take().into_iter().map(|(header, _)| header.seq.0).eq(1..100));
        assert!(!east.seen.sender().carried().is_held);
    });
}

#[test]
fn a_closed_link_says_its_goodbye_past_the_rate() {
    run(async {
        let (west, east) = pair(|config| config.flow.rate = Some(1)).await;
        let session = east.seen.up.borrow()[0].1;
        east.seen.call(|sender| {
            (0..50)
                .for_each(|_| sender.push(FrameHeader::new(FrameKind::Void, session, GroupId(1)), SendPayload::None));
            sender
                .push(FrameHeader::new(FrameKind::Goodbye, session, GroupId(0)), SendPayload::Control(b"bye".to_vec()));
            sender.flush();
            sender.close("until tomorrow");
        });
        west.seen.until(|seen| seen.frames.borrow().len() == 51).await;
        assert_eq!(west.seen.frames.take().last().map(|(header, _)| header.kind), Some(FrameKind::Goodbye));
    });
}

#[test]
fn many_frames_pushed_before_one_flush_all_arrive() {
    run(async {
        let (west, east) = pair(|_| {}).await;
        let session = east.seen.up.borrow()[0].1;
        let mut rng = LinkRandom(5);
        east.seen.call(|sender| {
            (0..2000).for_each(|n| {
                let (header, payload) = make(&mut rng, session, n);
                sender.push(header, payload);
            });
            sender.flush();
        });
        let mut seqs = Vec::new();
        while seqs.len() < 2000 {
            west.seen.until(|seen| !seen.frames.borrow().is_empty()).await;
            seqs.extend(west.seen.frames.take().into_iter().map(|(header, _)| header.seq.0));
        }
        assert!(seqs.into_iter().eq(0..2000));
    });
}

/// All that had come was taken in at once: 2 500 of the smallest frames, which kept clients of other groups waiting for 100 ms.
#[test]
fn small_frames_without_end_leave_others_their_turns() {
    const FRAMES: usize = 2000;
    run(async {
        let (west, east) = pair(|_| {}).await;
        let session = east.seen.up.borrow()[0].1;
        west.seen.labour.set(Duration::from_micros(100));
        let turns = west.seen.turns.get();
        east.seen.call(|sender| {
            (0..FRAMES)
                .for_each(|_| sender.push(FrameHeader::new(FrameKind::Void, session, GroupId(1)), SendPayload::None));
            sender.flush();
        });
        west.seen.until(|seen| seen.frames.borrow().len() == FRAMES).await;
        let turns = west.seen.turns.get() - turns;
        // 200 ms of work, of which a turn may take one or a little more.
        assert!(turns >= 80, "{FRAMES} frames in {turns} turns");
    });
}

#[test]
fn without_buffers_reading_stops_and_nothing_is_lost() {
    run(async {
        let west = LinkNode::start(config("west", "east", nowhere()), 256 << 10);
        let east = LinkNode::east(west.address(), |_| {});
        tokio::join!(east.is_up(1), west.is_up(1));
        let session = east.seen.up.borrow()[0].1;
        for n in 0..200u64 {
            let mut buffer = Buffer::detached(64 << 10);
            buffer.fill(n as u8);
            let slice = Slice { buf: Buf::new(Arc::new(buffer)), start: 0, length: 64 << 10 };
            let header =
                FrameHeader { seq: Seq(n), length: 64 << 10, ..FrameHeader::new(FrameKind::Data, session, GroupId(0)) };
            east.seen.call(|sender| sender.push(header, SendPayload::Data(slice)));
        }
        east.seen.call(LinkSender::flush);
        // All buffers are out, the peer is silent through no fault of its own, and is said to be heard.
        west.seen.until(|seen| seen.frames.borrow().len() == 4 && seen.heard.get() > 0).await;
        let heard = west.seen.heard.get();
        west.seen.until(|seen| seen.heard.get() > heard).await;
        assert_eq!(west.seen.frames.borrow().len(), 4);
        let mut seen = 0;
        while seen < 200 {
            west.seen.until(|seen| !seen.frames.borrow().is_empty()).await;
            for (header, payload) in west.seen.frames.take() {
                assert_eq!(header.seq.0, seen);
                assert!(arrived(&payload).iter().all(|byte| *byte == seen as u8));
                seen += 1;
            }
        }
    });
}

#[test]
fn a_closed_link_is_down_once_with_its_goodbye_delivered_and_comes_back() {
    run(async {
        let west = LinkNode::west(|_| {});
        let east = LinkNode::east(west.address(), |_| {});
        for round in 1..4 {
            tokio::join!(east.is_up(round), west.is_up(round));
            let goodbye = FrameHeader::new(FrameKind::Goodbye, west.seen.up.borrow()[round - 1].1, GroupId(0));
            west.seen.call(|sender| {
                sender.push(goodbye, SendPayload::Control(b"until tomorrow".to_vec()));
                sender.close("the operator said so");
                sender.push(goodbye, SendPayload::None);
                sender.flush();
            });
            west.seen.until(|seen| seen.down.borrow().len() == round).await;
            east.seen.until(|seen| seen.down.borrow().len() == round).await;
            assert_eq!(west.seen.down.borrow()[round - 1].1, "the operator said so");
            assert_eq!(east.seen.down.borrow()[round - 1].1, "the peer closed the connection");
            let frames = east.seen.frames.take();
            assert_eq!(frames.len(), 1);
            assert_eq!(arrived(&frames[0].1), b"until tomorrow");
        }
    });
}

#[test]
fn a_dialer_finds_an_acceptor_that_starts_later() {
    run(async {
        let address = {
            let held = TcpListener::bind("127.0.0.1:0").await.unwrap();
            held.local_addr().unwrap()
        };
        let east = LinkNode::east(address, |_| {});
        east.seen.refused_with("cannot connect").await;
        let west = LinkNode::west(|config| config.listen = vec![address]);
        tokio::join!(east.is_up(1), west.is_up(1));
    });
}

/// Status forgets the reason when a link comes up: if it falls within a minute, the same reason was held back from it as well.
#[test]
fn why_a_peer_is_not_reached_is_known_each_time_and_logged_once() {
    run(async {
        let address = {
            let held = TcpListener::bind("127.0.0.1:0").await.unwrap();
            held.local_addr().unwrap()
        };
        let east = LinkNode::east(address, |config| config.bounds.repeat_after = DEADLINE);
        east.seen.until(|seen| seen.not_reached.borrow().len() == 3).await;
        assert_eq!(east.seen.refused.borrow().len(), 1);
        for (peer, why) in &*east.seen.not_reached.borrow() {
            let named = why.starts_with("node west at ") && why.contains("cannot connect");
            assert!(*peer == NodeId(1) && named, "{peer:?}: {why}");
        }
    });
}

// proves: P10
#[test]
fn another_secret_is_refused_on_both_sides() {
    run(async {
        let west = LinkNode::west(|_| {});
        let east = LinkNode::east(west.address(), |config| config.ours.secret = ClusterSecret::new(b"guess"));
        tokio::join!(west.seen.refused_with("does not fit"), east.seen.refused_with("refused this node"));
        assert!(west.seen.up.borrow().is_empty() && east.seen.up.borrow().is_empty());
    });
}

// proves: rule 23
#[test]
fn other_definitions_are_shown_to_both_sides() {
    run(async {
        let west = LinkNode::west(|_| {});
        let east = LinkNode::east(west.address(), |config| config.ours.definitions = "group b\n".repeat(50_000));
        west.seen.until(|seen| !seen.differ.borrow().is_empty()).await;
        east.seen.until(|seen| !seen.differ.borrow().is_empty()).await;
        assert_eq!(east.seen.differ.borrow()[0], (NodeId(1), "group a".into()));
        assert_eq!(west.seen.differ.borrow()[0], (NodeId(0), "group b\n".repeat(50_000)));
        // The groups that are the same on both meet all the same.
        assert_eq!((west.seen.up.borrow().len(), east.seen.up.borrow().len()), (1, 1));
    });
}

/// A dialer by hand: the authenticated stream, or what came instead.
async fn shake_by_hand(address: SocketAddr, attempt: Attempt) -> Result<(TcpStream, Authenticated), String> {
    shake_on(TcpStream::connect(address).await.unwrap(), attempt).await
}

async fn shake_on(mut stream: TcpStream, attempt: Attempt) -> Result<(TcpStream, Authenticated), String> {
    let (mut handshake, hello) = Handshake::dial(Rc::new(ours("east", "west")), "west", [3; 32], attempt);
    stream.write_all(&hello).await.map_err(|e| e.to_string())?;
    loop {
        let mut prefix = [0; PREFIX_BYTES];
        stream.read_exact(&mut prefix).await.map_err(|e| e.to_string())?;
        let mut body = vec![0; handshake.body_bytes(&prefix).map_err(|e| e.to_string())?];
        stream.read_exact(&mut body).await.map_err(|e| e.to_string())?;
        let step = handshake.receive(&prefix, &body);
        stream.write_all(&step.send).await.map_err(|e| e.to_string())?;
        match step.outcome {
            Some(Ok(peer)) => return Ok((stream, peer)),
            Some(Err(error)) => return Err(error.to_string()),
            None => {}
        }
    }
}

// proves: rule 18
#[test]
fn the_newer_connection_wins_and_a_late_older_one_is_turned_away() {
    run(async {
        let west = LinkNode::west(|_| {});
        let at = |number| Attempt { run: 1, number };
        let (mut first, _) = shake_by_hand(west.address(), at(1)).await.unwrap();
        west.is_up(1).await;
        let (mut third, peer) = shake_by_hand(west.address(), at(3)).await.unwrap();
        west.is_up(2).await;
        assert!(west.seen.down.borrow()[0].1.contains("newer connection"), "{:?}", west.seen.down.borrow());
        assert!(matches!(first.read(&mut [0; 1]).await, Ok(0) | Err(_)), "the older connection is closed");
        let (mut second, _) = shake_by_hand(west.address(), at(2)).await.unwrap();
        west.seen.refused_with("dialed before").await;
        assert!(matches!(second.read(&mut [0; 1]).await, Ok(0) | Err(_)), "the late one is closed");
        // The one that is up still works.
        let frame = FrameHeader::new(FrameKind::Tick, peer.session, GroupId(7)).sealed(b"").encode();
        third.write_all(&frame).await.unwrap();
        west.seen.until(|seen| seen.frames.borrow().len() == 1).await;
        // The same peer started anew: its numbers begin again, and it wins by coming later.
        let (_fourth, _) = shake_by_hand(west.address(), Attempt { run: 2, number: 1 }).await.unwrap();
        west.is_up(3).await;
    });
}

/// A connection was under way while this node took up a changed file: it came up with the groups of before, which did not meet, until the
/// next connection.
#[test]
fn a_connection_under_way_does_not_come_up_by_definitions_of_before() {
    run(async {
        let west = LinkNode::west(|_| {});
        let attempt = Attempt { run: 1, number: 1 };
        let (mut handshake, hello) = Handshake::dial(Rc::new(ours("east", "west")), "west", [3; 32], attempt);
        let mut stream = TcpStream::connect(west.address()).await.unwrap();
        stream.write_all(&hello).await.unwrap();
        let mut prefix = [0; PREFIX_BYTES];
        stream.read_exact(&mut prefix).await.unwrap();
        let mut body = vec![0; handshake.body_bytes(&prefix).unwrap()];
        stream.read_exact(&mut body).await.unwrap();
        west.links.set_definitions("group b".into());
        stream.write_all(&handshake.receive(&prefix, &body).send).await.unwrap();
        west.seen.refused_with("definitions of groups changed").await;
        assert!(west.seen.up.borrow().is_empty());
        let east = LinkNode::east(west.address(), |config| config.ours.definitions = "group b".into());
        east.is_up(1).await;
        assert!(east.seen.differ.borrow().is_empty());
    });
}

/// Each may take minutes and tell a MiB. A node dials one at a time; one that lies held as many as it liked.
#[test]
fn peers_that_report_other_definitions_are_few_at_a_time() {
    const MOST: usize = 16;
    run(async {
        let west = LinkNode::west(|_| {});
        let mut comparing = Vec::new();
        for number in 1..=MOST as u64 + 1 {
            let ours = Rc::new(Ourselves { definitions: "group b".into(), ..ours("east", "west") });
            let (mut handshake, hello) = Handshake::dial(ours, "west", [3; 32], Attempt { run: 1, number });
            let mut stream = TcpStream::connect(west.address()).await.unwrap();
            stream.write_all(&hello).await.unwrap();
            while !handshake.peer_is_proven() {
                let mut prefix = [0; PREFIX_BYTES];
                if stream.read_exact(&mut prefix).await.is_err() {
                    assert_eq!(comparing.len(), MOST, "all these may tell");
                    break;
                }
                let mut body = vec![0; handshake.body_bytes(&prefix).unwrap()];
                stream.read_exact(&mut body).await.unwrap();
                stream.write_all(&handshake.receive(&prefix, &body).send).await.unwrap();
            }
            comparing.push(stream);
        }
        west.seen.refused_with("telling other definitions").await;
        // Whoever means the same has nothing to tell.
        let _peer = shake_by_hand(west.address(), Attempt { run: 2, number: 1 }).await.unwrap();
        west.is_up(1).await;
        // And their places are free again when they have gone.
        drop(comparing);
        let east = LinkNode::east(west.address(), |config| config.ours.definitions = "group c".into());
        east.seen.until(|seen| !seen.differ.borrow().is_empty()).await;
    });
}

/// Whoever went on after the end was read for a second as fast as it could send, by the thread that serves everybody.
#[test]
fn a_peer_that_goes_on_after_the_end_has_little_of_the_threads_time() {
    const MOST: usize = 64 << 20;
    run(async {
        let west = LinkNode::west(|_| {});
        let (mut stream, _) = shake_by_hand(west.address(), Attempt { run: 1, number: 1 }).await.unwrap();
        west.is_up(1).await;
        west.seen.call(|sender| sender.close("the test ends it"));
        let (more, mut taken) = (vec![0; 256 << 10], 0);
        while let Ok(count @ 1..) = stream.write(&more).await {
            taken += count;
            assert!(taken < MOST, "{taken} bytes were taken after the end");
        }
        println!("{taken} bytes were taken after the end");
    });
}

/// These bytes packed, and said to be so many.
fn packed(plain: &[u8], plain_bytes: u32) -> Vec<u8> {
    let packed = lz4_flex::block::compress(plain);
    let envelope = Envelope { packing: Packing::Lz4, packed_bytes: packed.len() as u32, plain_bytes };
    [&envelope.encode()[..], &packed].concat()
}

#[test]
fn bad_bytes_on_an_authenticated_link_end_it_with_a_sentence() {
    run(async {
        let west = LinkNode::west(|_| {});
        let mut number = 0;
        let good = |session| FrameHeader::new(FrameKind::Ack, session, GroupId(1)).sealed(&[1; 300]);
        let inner = packed(&[0; 1000], 1000);
        type Make<'a> = Box<dyn Fn(SessionId) -> Vec<u8> + 'a>;
        let cases: Vec<(Make<'_>, &str)> = vec![
            (Box::new(|_| b"GET / HTTP/1.1\r\n".repeat(9)), "not a frame"),
            (Box::new(|_| Vec::new()), "closed the connection"),
            (Box::new(|s| good(s).encode()[..50].to_vec()), "middle of a frame"),
            (Box::new(|s| [&good(s).encode()[..], &[1; 299]].concat()), "middle of a frame"),
            (Box::new(|s| [&good(s).encode()[..], &[2; 300]].concat()), "arrived damaged"),
            (Box::new(|s| good(SessionId(s.0 ^ 1)).encode().to_vec()), "of session"),
            (Box::new(|s| FrameHeader { payload_bytes: 1 << 30, ..good(s) }.encode().to_vec()), "announced"),
            (Box::new(|s| FrameHeader::new(FrameKind::Data, s, GroupId(1)).encode().to_vec()), "without data"),
            (Box::new(|_| packed(&[0; 64 << 20], 1 << 20)), "do not unpack into the 1048576 bytes"),
            (Box::new(|_| packed(&[0; 1000], 1001)), "do not unpack into the 1001 bytes"),
            (Box::new(|_| packed(&[0; 1000], 1 << 30)), "announced"),
            (Box::new(|s| packed(&[&good(s).encode()[..], &[1; 299]].concat(), 395)), "ends beyond its envelope"),
            (Box::new(|s| packed(&[&good(s).encode()[..], &[2; 300]].concat(), 396)), "arrived damaged"),
            (Box::new(|_| packed(&inner.repeat(9), 9 * inner.len() as u32)), "not a frame"),
            (Box::new(|_| packed(&[0; 1000], 1000)[..25].to_vec()), "middle of a frame"),
            (
                Box::new(|s| {
                    let mut bytes = good(s).encode();
                    bytes[40] ^= 1;
                    bytes.to_vec()
                }),
                "header arrived damaged",
            ),
        ];
        for (make, words) in cases {
            number += 1;
            let (mut stream, peer) = shake_by_hand(west.address(), Attempt { run: 1, number }).await.unwrap();
            west.is_up(number as usize).await;
            stream.write_all(&make(peer.session)).await.unwrap();
            stream.shutdown().await.unwrap();
            west.seen.until(|seen| seen.down.borrow().len() == number as usize).await;
            let reason = west.seen.down.borrow()[number as usize - 1].1.clone();
            assert!(reason.contains(words), "{reason:?} does not say {words:?}");
        }
        assert!(west.seen.frames.borrow().is_empty());
    });
}

// proves: P10
#[test]
fn unauthenticated_bytes_at_every_stage_are_refused_and_named() {
    run(async {
        let west = LinkNode::west(|_| {});
        let (_, hello) = Handshake::dial(Rc::new(ours("east", "west")), "west", [3; 32], Attempt { run: 1, number: 1 });
        let mut rng = LinkRandom(77);
        let mut noise = |n: usize| (0..n).map(|_| rng.next() as u8).collect::<Vec<u8>>();
        let mut said = vec![noise(1), noise(12), noise(5000), b"NBDMAGIC".repeat(3), hello.repeat(2)];
        said.extend((0..hello.len()).step_by(9).map(|cut| hello[..cut].to_vec()));
        said.push([&hello[..], &noise(400)].concat());
        let count = said.len();
        for bytes in said {
            let mut stream = TcpStream::connect(west.address()).await.unwrap();
            // It may be refused and closed before all is written.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            assert!(answer.len() <= 1024, "{} bytes said to an unauthenticated peer", answer.len());
        }
        west.seen.until(|seen| seen.refused.borrow().len() == count).await;
        assert!(west.seen.refused.borrow().iter().all(|(who, _)| who.contains("127.0.0.1:")));
        assert!(west.seen.up.borrow().is_empty());
        let east = LinkNode::east(west.address(), |_| {});
        tokio::join!(east.is_up(1), west.is_up(1));
    });
}

// proves: P10
#[test]
fn silent_unauthenticated_peers_are_few_and_soon_gone() {
    run(async {
        let west = LinkNode::west(|config| {
            config.bounds.unauthenticated_max = 3;
            config.bounds.auth_timeout = Duration::from_millis(300);
        });
        let mut silent = Vec::new();
        for _ in 0..12 {
            silent.push(TcpStream::connect(west.address()).await.unwrap());
        }
        west.seen.refused_with("more than 3 connections").await;
        west.seen.refused_with("did not prove who it is within 300ms").await;
        west.seen.until(|seen| seen.refused.borrow().len() == silent.len()).await;
        for stream in &mut silent {
            assert!(matches!(stream.read(&mut [0; 1]).await, Ok(0) | Err(_)));
        }
        // Dripping a flawless greeting, byte by byte, buys no more time.
        let address = west.address();
        let drip = tokio::task::spawn_local(async move {
            let attempt = Attempt { run: 1, number: 1 };
            let (_, hello) = Handshake::dial(Rc::new(ours("east", "west")), "west", [3; 32], attempt);
            let mut stream = TcpStream::connect(address).await.unwrap();
            for byte in hello {
                if stream.write_all(&[byte]).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            panic!("two seconds of dripping were put up with");
        });
        west.seen.until(|seen| seen.refused.borrow().len() == silent.len() + 1).await;
        drip.await.expect("the dripping connection was cut");
        let east = LinkNode::east(west.address(), |_| {});
        tokio::join!(east.is_up(1), west.is_up(1));
    });
}

#[test]
fn a_flood_from_one_address_does_not_crowd_out_another() {
    run(async {
        let west = LinkNode::west(|config| config.bounds.unauthenticated_max = 3);
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let patient = socket.connect(west.address()).await.unwrap();
        let mut flood = Vec::new();
        for pushed_out in 0..20 {
            flood.push(TcpStream::connect(west.address()).await.unwrap());
            west.seen.until(|seen| seen.refused.borrow().len() + 2 >= pushed_out).await;
        }
        assert!(west.seen.refused.borrow().iter().all(|(who, _)| who.contains("127.0.0.1:")));
        shake_on(patient, Attempt { run: 1, number: 1 }).await.unwrap();
        west.is_up(1).await;
    });
}

#[test]
fn a_configuration_may_be_made_on_another_thread() {
    fn needs_send<T: Send>(_: T) {}
    needs_send(config("east", "west", nowhere()));
}

#[test]
fn a_repeated_complaint_is_made_once() {
    run(async {
        let west = LinkNode::west(|config| config.bounds.repeat_after = DEADLINE);
        for _ in 0..20 {
            let mut stream = TcpStream::connect(west.address()).await.unwrap();
            stream.write_all(&[0; 12]).await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
            stream.shutdown().await.ok();
        }
        drop(TcpStream::connect(west.address()).await.unwrap());
        west.seen.refused_with("closed the connection").await;
        assert_eq!(west.seen.refused.borrow().len(), 2);
    });
}
