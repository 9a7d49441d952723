//! A peer whose frames contradict what it said of itself, or what it was sent: each is refused with its sentence, and nothing of
//! it is acted on. The peer here is the test; the engine is the real one, over disks that do everything at once.
//!
//! The sentences are those of docs/book/protocol.md, no more and no fewer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::identity::{Identity, Role};
use engine::marks::Mark;
use engine::state::{Mode, State};
use engine::wire::{Ack, FrameHeader, FrameKind, GroupHello, SyncBegin, VolumeRange, encode_ranges, flags};
use engine::*;

const GROUP: GroupId = GroupId(0);
const US: NodeId = NodeId(0);
const PEER: NodeId = NodeId(1);
const LINK: LinkId = LinkId(1);
const SESSION: SessionId = SessionId(9);
const KIB: u64 = 1024;
/// Little enough that all of it is sent in the stream.
const SMALL: u64 = 128 * KIB;
/// Too much for that: it goes by snapshots.
const LARGE: u64 = 4096 * KIB;
/// The run and the history of a primary that is played here.
const RUN: Incarnation = Incarnation(5);
const HISTORY: Generation = Generation { number: 3, tag: 33 };

/// The engine, its disks, and what it did last.
struct EngineBench {
    node: Node,
    role: Role,
    volume_bytes: u64,
    now: Now,
    stores: BTreeMap<Store, Vec<u8>>,
    /// What of this kind is asked for does not end.
    stuck: fn(&Output) -> bool,
    sent: Vec<(FrameHeader, Vec<u8>)>,
    closed: Vec<String>,
    /// Whatever else was asked for that changes something, or tells somebody.
    acts: Vec<String>,
}

fn node(role: Role, volume_bytes: u64) -> Node {
    let group = GroupConfig {
        id: GROUP,
        tag: 1,
        peer: PEER,
        starts_as: role,
        meets_peer_first: false,
        volumes: vec![VolumeConfig {
            size_bytes: volume_bytes,
            block_bytes: 4096,
            changed_outside: false,
            is_detached: false,
        }],
        settings: Settings { mode: Mode::Nearsync, ..Settings::default() },
        journal_bytes: limits::JOURNAL_BYTES_MIN,
        window_bytes: limits::WINDOW_BYTES_MIN,
        activity: ActivityConfig::default(),
        history_bytes: limits::HISTORY_BYTES_MIN,
        view_bytes: 0,
        queue_disk_bytes: 0,
        queue_durable: false,
        queue_file: 0,
    };
    Node::new(NodeConfig {
        node: US,
        groups: vec![group],
        link_timeout: limits::LINK_TIMEOUT_DEFAULT,
        memory_bytes: limits::MEMORY_BYTES_DEFAULT,
        syncs_at_once: limits::SYNCS_AT_ONCE,
    })
}

impl EngineBench {
    fn new(role: Role, volume_bytes: u64) -> EngineBench {
        EngineBench {
            node: node(role, volume_bytes),
            role,
            volume_bytes,
            now: Now { mono: Mono(1), wall: Wall(1) },
            stores: BTreeMap::new(),
            stuck: |_| false,
            sent: Vec::new(),
            closed: Vec::new(),
            acts: Vec::new(),
        }
    }

    /// Started, and connected to a peer that has said nothing yet.
    fn connected(role: Role, volume_bytes: u64) -> EngineBench {
        let mut bench = EngineBench::new(role, volume_bytes);
        bench.boots(1);
        bench
    }

    fn boots(&mut self, boot: u128) {
        self.handle(Input::Start { entropy: 1, boot });
        self.handle(Input::LinkUp { peer: PEER, link: LINK, session: SESSION, apart: Vec::new() });
    }

    /// The process is killed and starts again; another boot of the machine: after a power loss.
    fn killed(&mut self, boot: u128) {
        self.node = node(self.role, self.volume_bytes);
        self.sent.clear();
        self.boots(boot);
    }

    fn handle(&mut self, input: Input) {
        let now = self.now;
        self.node.handle(now, input);
        while let Some(output) = self.node.poll_output() {
            if (self.stuck)(&output) {
                continue;
            }
            if let Some((token, done)) = self.perform(output) {
                self.node.handle(now, Input::Io { token, result: Ok(done) });
            }
        }
    }

    fn waits_a_second(&mut self) {
        self.now.mono = Mono(self.now.mono.0 + 1_000_000_000);
        self.handle(Input::Heard { link: LINK });
        self.handle(Input::Tick);
    }

    fn perform(&mut self, output: Output) -> Option<(Token, IoDone)> {
        match output {
            Output::ReadMeta { token, store, offset, length } => {
                return Some((token, IoDone::Meta(self.bytes(store, offset, length as usize).to_vec())));
            }
            Output::Write { token, store, offset, parts, .. } => {
                self.acts.push(format!("a write to {store:?}"));
                let mut at = offset;
                for part in parts {
                    if let WriteBytes::Meta(bytes) = part {
                        self.bytes(store, at, bytes.len()).copy_from_slice(&bytes);
                        at += bytes.len() as u64;
                    }
                }
                return Some((token, IoDone::Done));
            }
            Output::Zero { token, .. } | Output::Flush { token, .. } => return Some((token, IoDone::Done)),
            Output::Read { token, .. } => {
                return Some((token, IoDone::Payload { buf: buf(&[]), zero: true }));
            }
            Output::FindHole { token, length, .. } => return Some((token, IoDone::Run { length, is_hole: false })),
            Output::ReadHash { token, .. } => return Some((token, IoDone::Hash([7; 32]))),
            Output::Send { header, payload, .. } => {
                let bytes = if let SendPayload::Control(bytes) = payload { bytes } else { Vec::new() };
                self.sent.push((header, bytes));
            }
            Output::CloseLink { reason, .. } => self.closed.push(reason),
            other => self.acts.push(format!("{other:?}")),
        }
        None
    }

    fn bytes(&mut self, store: Store, offset: u64, length: usize) -> &mut [u8] {
        let content = self.stores.entry(store).or_default();
        let end = offset as usize + length;
        content.resize(content.len().max(end), 0);
        &mut content[offset as usize..end]
    }

    fn gets(&mut self, frame: PeerFrame) {
        let PeerFrame(header, payload) = frame;
        self.handle(Input::Frame { link: LINK, header, payload });
    }

    /// The last frame of this kind that the engine sent.
    #[track_caller]
    fn said(&self, kind: FrameKind) -> (FrameHeader, Vec<u8>) {
        let found = self.sent.iter().rev().find(|(header, _)| header.kind == kind);
        found.unwrap_or_else(|| panic!("no {kind:?}: {:?} {}", self.sent, self.node.explain(GROUP))).clone()
    }

    fn has_said(&self, kind: FrameKind) -> bool {
        self.sent.iter().any(|(header, _)| header.kind == kind)
    }

    fn identity(&self) -> Identity {
        self.node.glance(GROUP).expect("there is a group").identity
    }

    fn state(&self) -> State {
        self.node.glance(GROUP).expect("there is a group").state
    }

    /// All that the engine holds, but for whether it still listens.
    fn everything(&self) -> String {
        let (status, inside) =
            (self.node.status(), self.node.explain(GROUP).replace("refused: true", "refused: false"));
        format!("{status:?}\n{inside}\n{:?}", self.node.dirty_regions(GROUP))
    }

    /// The frame ends the session with this sentence, and changes nothing.
    #[track_caller]
    fn refuses(&mut self, frame: PeerFrame, sentence: &str) -> String {
        let kind = frame.0.kind;
        let before = self.everything();
        self.sent.clear();
        self.acts.clear();
        self.gets(frame);
        assert!(self.closed.iter().any(|reason| reason.contains(sentence)), "{kind:?}: {:?}", self.closed);
        assert_eq!(self.closed.len(), 1, "{:?}", self.closed);
        assert!(self.acts.is_empty() && self.sent.is_empty(), "{kind:?}: {:?} {:?}", self.acts, self.sent);
        assert_eq!(before, self.everything(), "{kind:?}");
        self.closed.remove(0)
    }
}

fn buf(bytes: &[u8]) -> Buf {
    Buf::new(Arc::new(bytes.to_vec()))
}

/// What the peer sends.
#[derive(Clone, Debug)]
struct PeerFrame(FrameHeader, FramePayload);

fn bare(kind: FrameKind) -> PeerFrame {
    PeerFrame(FrameHeader::new(kind, SESSION, GROUP), FramePayload::None)
}

fn control(kind: FrameKind, bytes: Vec<u8>) -> PeerFrame {
    PeerFrame(FrameHeader::new(kind, SESSION, GROUP).sealed(&bytes), FramePayload::Control(bytes))
}

fn ack([received, durable, applied]: [u64; 3], granted_bytes: u64) -> PeerFrame {
    let (received, durable, applied) = (Seq(received), Seq(durable), Seq(applied));
    control(FrameKind::Ack, Ack { received, durable, applied, granted_bytes, ..Ack::default() }.encode())
}

fn noting(noted: u64) -> PeerFrame {
    let three = Seq(3);
    let ack = Ack { received: three, durable: three, applied: three, noted: Seq(noted), ..Ack::default() };
    control(FrameKind::Ack, ack.encode())
}

fn seq(kind: FrameKind, seq: u64) -> PeerFrame {
    PeerFrame(FrameHeader { seq: Seq(seq), ..FrameHeader::new(kind, SESSION, GROUP) }, FramePayload::None)
}

fn offset(kind: FrameKind, offset: u64) -> PeerFrame {
    PeerFrame(range(kind, offset, 0), FramePayload::None)
}

fn range(kind: FrameKind, offset: u64, length: u64) -> FrameHeader {
    FrameHeader { offset, length, ..FrameHeader::new(kind, SESSION, GROUP) }
}

/// The last frame of an answer to the first question.
fn last(kind: FrameKind, bytes: Vec<u8>) -> PeerFrame {
    at(kind, 0, bytes)
}

fn at(kind: FrameKind, offset: u64, bytes: Vec<u8>) -> PeerFrame {
    let PeerFrame(header, payload) = control(kind, bytes);
    PeerFrame(FrameHeader { offset, seq: Seq(1), flags: flags::LAST, ..header }, payload)
}

fn pulled(offset: u64) -> PeerFrame {
    PeerFrame(
        FrameHeader { seq: Seq(1), ..range(FrameKind::Pulled, offset, 4096) },
        FramePayload::Data(buf(&[1; 4096])),
    )
}

fn outside() -> VolumeRange {
    VolumeRange { volume: VolumeId(0), offset: SMALL, length: 4096 }
}

fn inside() -> VolumeRange {
    VolumeRange { offset: 0, ..outside() }
}

fn from(generation: Generation, incarnation: Incarnation) -> SyncBegin {
    SyncBegin { from: Position { generation, incarnation, seq: Seq(0) }, ..begin() }
}

fn other_session() -> PeerFrame {
    PeerFrame(FrameHeader::new(FrameKind::Ack, SessionId(8), GROUP), FramePayload::None)
}

fn other_group() -> PeerFrame {
    PeerFrame(FrameHeader::new(FrameKind::Ack, SESSION, GroupId(1)), FramePayload::None)
}

/// A frame of every kind that this role may send, as short as can be.
fn frames_of(role: Role) -> impl Iterator<Item = PeerFrame> {
    (0..=u8::MAX).filter_map(FrameKind::from_byte).filter(move |kind| kind.sender() == Some(role)).map(bare)
}

// ---- a primary, and its peer ----------------------------------------------------------------------------------------

/// The peer is a secondary of the same history that stands here in the engine's present run, or an earlier one.
fn secondary_at(bench: &EngineBench, incarnation: Incarnation, seq: u64) -> GroupHello {
    let generation = bench.identity().generation;
    let position = Position { generation, incarnation, seq: Seq(seq) };
    let identity = Identity { role: Role::Secondary, generation, position, ..Identity::default() };
    GroupHello { identity, volume_bytes: vec![bench.volume_bytes], ..GroupHello::default() }
}

fn greets(bench: &mut EngineBench, hello: &GroupHello) {
    bench.gets(control(FrameKind::GroupHello, hello.encode()));
}

/// A primary that has announced a sync to its peer.
fn primary(volume_bytes: u64) -> EngineBench {
    let mut bench = EngineBench::connected(Role::Primary, volume_bytes);
    let hello = secondary_at(&bench, Incarnation(0), 0);
    greets(&mut bench, &hello);
    assert!(bench.has_said(FrameKind::SyncBegin), "{}", bench.node.explain(GROUP));
    bench
}

fn ready(bench: &EngineBench) -> PeerFrame {
    let begin = SyncBegin::decode(&bench.said(FrameKind::SyncBegin).1).expect("ours");
    let PeerFrame(header, payload) = bare(FrameKind::SyncReady);
    PeerFrame(FrameHeader { offset: begin.attempt, ..header }, payload)
}

/// A primary in step: three numbers were sent, all are confirmed, and there is no window for more.
fn in_step() -> EngineBench {
    let mut bench = primary(SMALL);
    let ready = ready(&bench);
    bench.gets(ready);
    bench.gets(ack([0, 0, 0], 3 * limits::ITEM_OVERHEAD_BYTES));
    assert_eq!(bench.said(FrameKind::SyncEnd).0.seq, Seq(3));
    bench.gets(ack([3, 3, 3], 3 * limits::ITEM_OVERHEAD_BYTES));
    assert_eq!(bench.state(), State::Replicating);
    bench
}

/// The same with a writer who waits for number 4 to be received; it was not sent.
fn with_a_held_write() -> EngineBench {
    let mut bench = in_step();
    bench.sent.clear();
    bench.handle(write());
    assert!(!bench.has_said(FrameKind::Data) && bench.node.status()[0].queue.items == 1);
    bench
}

fn write() -> Input {
    let request = Request::Write { offset: 0, length: 4096, buf: buf(&[1; 4096]), fua: false };
    Input::Request { group: GROUP, volume: VolumeId(0), id: RequestId(1), request }
}

/// A primary in the midst of a snapshot.
fn in_a_snapshot() -> EngineBench {
    let mut bench = primary(LARGE);
    assert!(SyncBegin::decode(&bench.said(FrameKind::SyncBegin).1).is_some_and(|begin| begin.snapshot > 0));
    let ready = ready(&bench);
    bench.gets(ready);
    bench.gets(ack([0, 0, 0], 8 * limits::ITEM_OVERHEAD_BYTES));
    assert_eq!(bench.said(FrameKind::Zero).0.seq, Seq(8));
    bench.gets(ack([4, 3, 2], 8 * limits::ITEM_OVERHEAD_BYTES));
    bench
}

/// A primary that was killed while it wrote, or lost its power, and greets its peer again.
fn back(boot: u128, dirty_bytes: u64) -> EngineBench {
    let mut bench = in_step();
    // What is flushed on both sides is not dirty any more, on disk neither.
    (0..8).for_each(|_| bench.waits_a_second());
    bench.handle(write());
    let run = bench.identity().incarnation;
    bench.killed(boot);
    let hello = GroupHello { dirty_bytes, ..secondary_at(&bench, run, 3) };
    greets(&mut bench, &hello);
    bench
}

/// A primary that was killed: it would have a hash compared, for which there is no window.
fn comparing() -> EngineBench {
    let mut bench = back(1, 0);
    let ready = ready(&bench);
    bench.gets(ready);
    assert!(!bench.has_said(FrameKind::Probe) && bench.node.status()[0].queue.items > 0);
    bench
}

/// A primary that lost its power and asks for a range that its peer named.
fn pulling() -> EngineBench {
    let mut bench = back(2, 0);
    bench.gets(last(FrameKind::Tail, encode_ranges(&[VolumeRange { volume: VolumeId(0), offset: 0, length: 4096 }])));
    assert_eq!(bench.said(FrameKind::Pull).0.length, 4096);
    bench
}

/// A primary with a sync that it cannot tell of yet: what it would send is not flushed.
fn before_its_begin() -> EngineBench {
    let mut bench = in_step();
    bench.handle(Input::Command { group: GROUP, id: CommandId(1), command: Command::Logging });
    bench.handle(write());
    bench.stuck = |output| matches!(output, Output::Flush { .. });
    bench.sent.clear();
    bench.handle(Input::Command { group: GROUP, id: CommandId(2), command: Command::Sync { full: false } });
    assert!(!bench.has_said(FrameKind::SyncBegin) && bench.state() == State::Syncing);
    bench
}

// ---- a secondary, and its peer --------------------------------------------------------------------------------------

fn begin() -> SyncBegin {
    let from = Position { generation: HISTORY, incarnation: RUN, seq: Seq(0) };
    let parent = Position::default();
    SyncBegin {
        from,
        parent,
        to: Incarnation(1),
        nothing_dirty: false,
        dirty_bytes: 0,
        dirty_units: 0,
        left_out_bytes: 0,
        snapshot: 0,
        attempt: 1,
        aside: VolumeSet::default(),
        is_resolved: false,
    }
}

fn second_volume() -> VolumeSet {
    let mut volumes = VolumeSet::default();
    volumes.insert(VolumeId(1));
    volumes
}

fn sets_aside(volume: VolumeId) -> PeerFrame {
    PeerFrame(FrameHeader { kind: FrameKind::Void, flags: flags::SETS_ASIDE, volume, ..data(1) }, FramePayload::None)
}

fn begins(begin: SyncBegin) -> PeerFrame {
    control(FrameKind::SyncBegin, begin.encode())
}

/// A number that is a mark.
fn marks(seq: u64, id: u64, length: u64) -> PeerFrame {
    let (kind, flags, payload_bytes) = (FrameKind::Void, flags::MARK, 0);
    PeerFrame(FrameHeader { kind, flags, offset: id, length, payload_bytes, ..data(seq) }, FramePayload::None)
}

/// What a primary says of a mark.
fn terms(id: u64, seq: u64) -> PeerFrame {
    let position = Position { seq: Seq(seq), ..begin().from };
    let mark = Mark { id: MarkId(id), position, name: format!("m{id}"), ..Mark::default() };
    control(FrameKind::MarkTerms, mark.encode())
}

/// One that was told of as many marks as a group may have.
fn told_of_all() -> EngineBench {
    let mut bench = streaming();
    (1..=limits::MARKS_MAX as u64).for_each(|id| bench.gets(terms(id, 1000 + id)));
    bench
}

/// A primary that has told its peer of a mark.
fn marked() -> EngineBench {
    let mut bench = in_step();
    bench.handle(Input::Mark { groups: vec![(GROUP, CommandId(1))], name: "here".into() });
    assert!(bench.has_said(FrameKind::MarkTerms));
    bench
}

/// The peer's answer to that.
fn there(bench: &EngineBench, seq: u64) -> PeerFrame {
    let (told, bytes) = bench.said(FrameKind::MarkTerms);
    let mark = Mark::decode(&bytes).expect("ours");
    let header = FrameHeader {
        seq: Seq(seq),
        incarnation: mark.position.incarnation,
        generation_tag: mark.position.generation.tag,
        length: told.seq.0,
        ..range(FrameKind::MarkThere, mark.id.0, 0)
    };
    PeerFrame(header, FramePayload::None)
}

/// A secondary that knows its primary.
fn secondary() -> EngineBench {
    let mut bench = EngineBench::connected(Role::Secondary, SMALL);
    let identity = Identity { role: Role::Primary, generation: HISTORY, incarnation: RUN, ..Identity::default() };
    greets(&mut bench, &GroupHello { identity, volume_bytes: vec![SMALL], ..GroupHello::default() });
    bench
}

/// A secondary that takes numbers.
fn streaming() -> EngineBench {
    let mut bench = secondary();
    bench.gets(begins(begin()));
    assert!(bench.has_said(FrameKind::SyncReady) && bench.has_said(FrameKind::Ack));
    bench
}

/// A good frame of the stream.
fn data(seq: u64) -> FrameHeader {
    FrameHeader {
        seq: Seq(seq),
        length: 4096,
        payload_bytes: 4096,
        origin: PEER,
        incarnation: RUN,
        generation_tag: HISTORY.tag,
        ..FrameHeader::new(FrameKind::Data, SESSION, GROUP)
    }
}

fn sends(header: FrameHeader) -> PeerFrame {
    PeerFrame(header, FramePayload::Data(buf(&[1; 4096])))
}

fn of_epoch(header: FrameHeader) -> FrameHeader {
    FrameHeader { flags: header.flags | flags::EPOCH, ..header }
}

fn bare_numbered(kind: FrameKind, seq: u64) -> PeerFrame {
    PeerFrame(FrameHeader { kind, length: 0, payload_bytes: 0, ..data(seq) }, FramePayload::None)
}

/// The first frame of an epoch came, for two numbers.
fn in_epoch() -> EngineBench {
    let mut bench = streaming();
    bench.gets(sends(of_epoch(FrameHeader { more: 1, ..data(2) })));
    assert!(bench.closed.is_empty());
    bench
}

/// As many frames came of one as it may have, and it goes on.
fn in_long_epoch() -> EngineBench {
    let mut bench = streaming();
    (1..=limits::EPOCH_FRAMES_MAX as u64).for_each(|seq| bench.gets(sends(of_epoch(data(seq)))));
    assert!(bench.closed.is_empty(), "{:?}", bench.closed);
    bench
}

/// A secondary that owes as many ranges as may be asked for at once: its disk does not answer.
fn owing() -> EngineBench {
    let mut bench = streaming();
    bench.stuck = |output| matches!(output, Output::Read { .. });
    for n in 0..limits::PULLS_IN_FLIGHT as u64 {
        bench.gets(PeerFrame(range(FrameKind::Pull, n * 4096, 4096), FramePayload::None));
    }
    assert!(bench.closed.is_empty());
    bench
}

/// A node that does not know yet who it is; its peer has said so.
fn starting() -> EngineBench {
    let mut bench = EngineBench::new(Role::Secondary, SMALL);
    bench.stuck = |output| matches!(output, Output::ReadMeta { .. });
    bench.boots(1);
    greets(&mut bench, &GroupHello::default());
    bench
}

/// A secondary that is told of a sync, and has not recorded it yet.
fn unready() -> EngineBench {
    let mut bench = secondary();
    bench.stuck = |output| matches!(output, Output::Write { store: Store::Superblock(_), .. });
    bench.gets(begins(begin()));
    assert!(!bench.has_said(FrameKind::SyncReady));
    bench
}

/// Frames of 4 KiB that a secondary grants to begin with.
const WINDOW_FRAMES: u64 = limits::MEMORY_GROUP_BYTES / (4096 + limits::ITEM_OVERHEAD_BYTES);

/// A secondary that holds all it granted: its journal takes nothing.
fn window_used_up() -> EngineBench {
    let mut bench = streaming();
    bench.stuck = |output| matches!(output, Output::Write { .. });
    (1..=WINDOW_FRAMES).for_each(|seq| bench.gets(sends(data(seq))));
    assert!(bench.closed.is_empty());
    bench
}

// ---- the table ------------------------------------------------------------------------------------------------------

const CANNOT_HAVE: &str = "with a payload it cannot have";
const NOT_SENT: &str = "an acknowledgement of numbers that were not sent to it";
const BACK: &str = "an acknowledgement that goes back";
const MORE: &str = "an acknowledgement of more than it received";
const NOT_BEGUN: &str = "an answer to a sync that was not begun";
const OTHER_RUN: &str = "of another run than its own";
const SECOND_HELLO: &str = "a second GroupHello in one session";
const OTHER_SYNC: &str = "a sync of another run or history than its own";

type ContradictionRow = (fn() -> EngineBench, fn(&EngineBench) -> PeerFrame, &'static str);

const ROWS: &[ContradictionRow] = &[
    // What a secondary confirms.
    (with_a_held_write, |_| ack([4, 3, 3], 0), NOT_SENT),
    (with_a_held_write, |_| ack([4, 4, 4], 0), NOT_SENT),
    (with_a_held_write, |_| ack([9, 3, 3], 0), NOT_SENT),
    (with_a_held_write, |_| ack([2, 2, 2], 0), BACK),
    (with_a_held_write, |_| ack([3, 3, 2], 0), BACK),
    (with_a_held_write, |_| ack([3, 4, 3], 0), MORE),
    (with_a_held_write, |_| ack([3, 3, 4], 0), MORE),
    (in_step, |_| noting(4), "an acknowledgement that notes a flush of what it has not applied"),
    (in_a_snapshot, |_| ack([9, 3, 2], 0), NOT_SENT),
    (in_a_snapshot, |_| ack([4, 3, 1], 0), BACK),
    (in_a_snapshot, |_| ack([4, 5, 2], 0), MORE),
    // What it answers.
    (|| primary(SMALL), |_| offset(FrameKind::SyncReady, 0), NOT_BEGUN),
    (|| primary(SMALL), |_| offset(FrameKind::SyncReady, 2), NOT_BEGUN),
    (before_its_begin, |_| offset(FrameKind::SyncReady, 2), NOT_BEGUN),
    (comparing, |_| seq(FrameKind::ProbeResult, 1), "an answer to a comparison that was not sent to it"),
    (|| back(2, 0), |_| last(FrameKind::Tail, encode_ranges(&[outside()])), CANNOT_HAVE),
    (|| back(2, 0), |_| last(FrameKind::Tail, vec![0; 17]), CANNOT_HAVE),
    (|| back(2, 0), |_| last(FrameKind::Tail, encode_ranges(&[inside(), inside()])), CANNOT_HAVE),
    (pulling, |_| pulled(4096), CANNOT_HAVE),
    (|| back(1, 4096), |_| at(FrameKind::Bits, 64, vec![1; 8]), CANNOT_HAVE),
    (|| back(1, 4096), |_| at(FrameKind::Bits, 0, vec![1; 16]), CANNOT_HAVE),
    (|| back(1, 4096), |_| at(FrameKind::Bits, 1, vec![1; 8]), CANNOT_HAVE),
    (|| back(1, 4096), |_| at(FrameKind::Bits, 0, vec![1; 7]), CANNOT_HAVE),
    (in_step, |_| control(FrameKind::Ack, vec![0; 7]), CANNOT_HAVE),
    (in_step, |_| offset(FrameKind::MarkThere, 7), "an answer for a mark that it was not told of"),
    (marked, |bench| there(bench, 9), "a mark at another position than its own"),
    // How a primary begins.
    (secondary, |_| begins(SyncBegin { from: Position::default(), ..begin() }), "a sync of a blank history"),
    (secondary, |_| begins(from(Generation { tag: 34, ..HISTORY }, RUN)), OTHER_SYNC),
    (secondary, |_| begins(from(Generation { number: 4, ..HISTORY }, RUN)), OTHER_SYNC),
    (secondary, |_| begins(from(HISTORY, Incarnation(6))), OTHER_SYNC),
    (secondary, |_| begins(SyncBegin { parent: begin().from, ..begin() }), OTHER_SYNC),
    (secondary, |_| control(FrameKind::SyncBegin, vec![0; 7]), CANNOT_HAVE),
    (secondary, |_| begins(SyncBegin { aside: second_volume(), ..begin() }), CANNOT_HAVE),
    (unready, |_| sends(data(1)), "number 1 before this node was ready for its sync"),
    // What it sends.
    (streaming, |_| sends(data(2)), "number 2 where 1 was expected"),
    (streaming, |_| sends(data(0)), "number 0 where 1 was expected"),
    (streaming, |_| sends(FrameHeader { more: 1, ..data(3) }), "number 2 where 1 was expected"),
    (
        streaming,
        |_| sends(of_epoch(FrameHeader { flags: flags::RESYNC, ..data(1) })),
        "number 1 in an epoch that cannot be",
    ),
    (
        streaming,
        |_| {
            let PeerFrame(header, payload) = marks(1, 7, 0);
            PeerFrame(FrameHeader { flags: header.flags | flags::EPOCH, ..header }, payload)
        },
        "number 1 in an epoch that cannot be",
    ),
    (in_epoch, |_| marks(3, 7, 0), "number 3 in an epoch that cannot be"),
    (in_epoch, |_| sends(data(3)), "number 3 in an epoch that cannot be"),
    (in_epoch, |_| sends(of_epoch(data(4))), "number 4 where 3 was expected"),
    (in_epoch, |_| bare_numbered(FrameKind::SyncEnd, 3), "number 3 in an epoch that cannot be"),
    (in_long_epoch, |_| sends(of_epoch(data(limits::EPOCH_FRAMES_MAX as u64 + 1))), "in an epoch that cannot be"),
    (streaming, |_| sends(FrameHeader { incarnation: Incarnation(6), ..data(1) }), OTHER_RUN),
    (streaming, |_| sends(FrameHeader { generation_tag: 34, ..data(1) }), OTHER_RUN),
    (streaming, |_| sends(FrameHeader { origin: US, ..data(1) }), OTHER_RUN),
    (streaming, |_| sends(FrameHeader { offset: SMALL, ..data(1) }), "number 1 for a range outside its volume"),
    (streaming, |_| sends(FrameHeader { offset: 100, ..data(1) }), "number 1 for a range outside its volume"),
    (
        streaming,
        |_| sends(FrameHeader { offset: u64::MAX - 511, ..data(1) }),
        "number 1 for a range outside its volume",
    ),
    (streaming, |_| sends(FrameHeader { length: 0, ..data(1) }), "number 1 for a range outside its volume"),
    (streaming, |_| sends(FrameHeader { volume: VolumeId(1), ..data(1) }), "number 1 for a range outside its volume"),
    (streaming, |_| sets_aside(VolumeId(1)), "number 1 for a range outside its volume"),
    (streaming, |_| marks(1, 0, 0), "number 1 for a mark with an id or a range that no mark has"),
    (streaming, |_| marks(1, 1 << 56, 0), "number 1 for a mark with an id or a range that no mark has"),
    (streaming, |_| marks(1, 7, 512), "number 1 for a mark with an id or a range that no mark has"),
    (streaming, |_| control(FrameKind::MarkTerms, vec![0; 7]), CANNOT_HAVE),
    (told_of_all, |_| terms(9999, 9999), "more marks than a group has"),
    (streaming, |_| sends(FrameHeader { kind: FrameKind::Zero, ..data(1) }), "number 1 without its payload"),
    (streaming, |_| PeerFrame(data(1), FramePayload::None), "number 1 without its payload"),
    (window_used_up, |_| sends(data(WINDOW_FRAMES + 1)), "more than the window allows"),
    (streaming, |_| control(FrameKind::Tick, vec![9, 9]), CANNOT_HAVE),
    (streaming, |_| control(FrameKind::TailAsk, vec![0; 7]), CANNOT_HAVE),
    (streaming, |_| PeerFrame(range(FrameKind::Pull, SMALL, 4096), FramePayload::None), CANNOT_HAVE),
    (streaming, |_| PeerFrame(range(FrameKind::Pull, 0, 0), FramePayload::None), CANNOT_HAVE),
    (streaming, |_| control(FrameKind::BitsAsk, vec![0]), CANNOT_HAVE),
    (
        owing,
        |_| PeerFrame(range(FrameKind::Pull, 0, 4096), FramePayload::None),
        "more ranges at once than may be asked for",
    ),
    // Who it is.
    (
        || EngineBench::connected(Role::Secondary, SMALL),
        |_| bare(FrameKind::Data),
        "a Data frame before it said who it is",
    ),
    (starting, |_| bare(FrameKind::Data), "a Data frame before it heard who this node is"),
    (in_step, |_| bare(FrameKind::Data), "a Data frame, though it said that it is the secondary"),
    (in_step, |bench| control(FrameKind::GroupHello, secondary_at(bench, Incarnation(1), 2).encode()), SECOND_HELLO),
    (in_step, |_| control(FrameKind::GroupState, vec![0; 7]), CANNOT_HAVE),
    (in_step, |_| other_session(), "the peer sent a frame of session 8, which is not this one"),
    (in_step, |_| other_group(), "the peer sent a frame for group number 1, which it does not share"),
];

// proves: P9
#[test]
fn every_contradiction_is_refused_with_its_sentence_and_changes_nothing() {
    let mut said = BTreeSet::new();
    for (number, (bench, frame, sentence)) in ROWS.iter().enumerate() {
        println!("row {number}: {sentence}");
        let mut bench = bench();
        let frame = frame(&bench);
        let reason = bench.refuses(frame, sentence);
        said.insert(shape(reason.split_once("the peer sent ").expect("that is how it begins").1));
    }
    assert_eq!(said, documented(), "left: said here, right: docs/book/protocol.md");
}

/// A sentence without its numbers, kinds and roles.
fn shape(sentence: &str) -> String {
    let kinds: Vec<String> = (0..=u8::MAX).filter_map(FrameKind::from_byte).map(|kind| format!("{kind:?}")).collect();
    let word = |word: &str| match word {
        "primary" | "secondary" => "ROLE".into(),
        _ if kinds.iter().any(|kind| kind == word) => "KIND".into(),
        _ if word.trim_end_matches(',').parse::<u64>().is_ok() => {
            format!("N{}", word.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        _ => word.to_owned(),
    };
    sentence.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The sentences of the table in docs/book/protocol.md.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../../docs/book/protocol.md");
    let (_, table) = page.split_once("| The sentence | When |").expect("the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| shape(row.split('`').nth(1).expect("a sentence"))).collect()
}

/// What a role may not send it may not send at any time: not as what it said it is, not before it said so, and not to a node
/// that has not said yet what it is.
#[test]
fn frames_of_the_other_role_and_frames_too_early_are_refused() {
    for role in [Role::Primary, Role::Secondary] {
        for frame in frames_of(role) {
            let mut strange = if role == Role::Primary { with_a_held_write() } else { streaming() };
            let other = if role == Role::Primary { "secondary" } else { "primary" };
            strange.refuses(frame.clone(), &format!("frame, though it said that it is the {other}"));
            let mut silent = EngineBench::connected(Role::Secondary, SMALL);
            silent.refuses(frame.clone(), "frame before it said who it is");
            starting().refuses(frame, "frame before it heard who this node is");
        }
    }
}

/// A peer that was promoted says so: from then on it is nobody's secondary.
#[test]
fn a_peer_that_changed_its_role_is_held_to_the_new_one() {
    for frame in frames_of(Role::Secondary) {
        let mut bench = with_a_held_write();
        let mut hello = secondary_at(&bench, Incarnation(1), 3);
        hello.identity.role = Role::Primary;
        bench.gets(control(FrameKind::GroupState, hello.encode()));
        assert_eq!(bench.state(), State::Logging);
        bench.refuses(frame, "frame, though it said that it is the primary");
    }
}

/// A number that was given and never sent: its peer cannot stand there, whatever it says when it is met again.
#[test]
fn a_queue_does_not_continue_behind_what_was_sent() {
    for (stands_at, continues) in [(3, true), (4, false)] {
        let mut bench = with_a_held_write();
        let settings = Settings { mode: Mode::Async, ..Settings::default() };
        bench.handle(Input::Command { group: GROUP, id: CommandId(1), command: Command::Set(settings) });
        bench.handle(Input::LinkDown { link: LINK, reason: "snapshot".into() });
        bench.sent.clear();
        bench.handle(Input::LinkUp { peer: PEER, link: LINK, session: SESSION, apart: Vec::new() });
        let run = bench.identity().incarnation;
        let hello = GroupHello { granted_bytes: 1 << 20, ..secondary_at(&bench, run, stands_at) };
        greets(&mut bench, &hello);
        assert_eq!(bench.has_said(FrameKind::Data), continues, "{stands_at}");
        assert_eq!(bench.has_said(FrameKind::SyncBegin), !continues, "{stands_at}");
    }
}

/// What a node that does not fit sends is not acted on, and the session goes on for the other groups.
#[test]
fn nothing_of_a_peer_that_does_not_fit_is_acted_on() {
    let mut bench = EngineBench::connected(Role::Secondary, SMALL);
    let identity = Identity { role: Role::Primary, generation: HISTORY, incarnation: RUN, ..Identity::default() };
    let hello = GroupHello { identity, required: 0x20, volume_bytes: vec![SMALL], ..GroupHello::default() };
    greets(&mut bench, &hello);
    let before = bench.everything();
    (bench.sent, bench.acts) = (Vec::new(), Vec::new());
    bench.gets(begins(begin()));
    frames_of(Role::Primary).for_each(|frame| bench.gets(frame));
    assert!(bench.closed.is_empty() && bench.sent.is_empty() && bench.acts.is_empty());
    assert_eq!(before, bench.everything());
}
