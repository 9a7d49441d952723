//! A group: volumes that share one write order, queue, mode and role. This file owns the outermost state and routes;
//! a write's life is in `primary/`, the receiving side in `secondary/`, regions in `peer/`, start in `group/start.rs`.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use crate::durability::saving::Saver;
use crate::formats::identity::{Confirmed, Identity, Role, Unbroken};
use crate::formats::wire::{GroupHello, Header, Kind};
use crate::group::start::StartStage;
use crate::group::told::Told;
use crate::ids::*;
use crate::limits;
use crate::peer::cuts::{CatchUp, Cut};
use crate::peer::queue::Queue;
use crate::peer::repair::Repair;
use crate::peer::resync::Resync;
use crate::peer::settle::{Pulling, Settling};
use crate::peer::stall::Stall;
use crate::primary::held_up::HeldUp;
use crate::primary::write::{WriteOp, frame_bytes};
use crate::records::activity::Activity;
use crate::records::bits::BitmapWriter;
use crate::records::record::SuperWriter;
use crate::secondary::answers::Answers;
use crate::secondary::receive::Replica;
use crate::secondary::rollback::{Rollback, Then};
use crate::shared::link::{LinkUse, PeerView};
use crate::shared::marks::Marks;
use crate::shared::memory::reserve;
use crate::shared::slots::{Op, Slots};
use crate::shared::time::{Mono, Now, Timers, Wall};
use crate::shared::volume::Volume;
use crate::state::{Broken, State, legal};
use crate::{CommandResult, Event, GroupConfig, IoDone, IoError, Output, Request, SendPayload, Settings};

/// All timers of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerKey {
    Group(GroupId, GroupTimer),
    Link(NodeId, LinkTimer),
    /// A group has been starting, or syncing, for longer than its turn: the next may begin.
    Starts,
    Syncs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GroupTimer {
    /// A writer waits: for room, or for the peer.
    Waits,
    LocalFlush,
    Tick,
    HoldEnd,
    Autosync,
    /// The next cut may begin.
    Cut,
    /// A sync may have come to a stand.
    Stall,
    CatchUp,
    ApplyFlush,
    ApplyRetry,
    Drain,
    TidyBits,
    StartAlone,
    /// A record failed that the next start has to find.
    RecordAgain,
    /// The peer's half of the group has said nothing in this session.
    Greeting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LinkTimer {
    Heartbeat,
    Silence,
}

/// What a group may use while it handles one input.
pub(crate) struct Cx<'a> {
    pub now: Now,
    pub out: &'a mut VecDeque<Output>,
    pub timers: &'a mut Timers<TimerKey>,
    pub marks: &'a mut Marks,
    /// Report every admission (the simulator's judges want it, the data path does not).
    pub trace: bool,
    pub peer: PeerView,
    /// What the node's pool lets this group hold in memory, all in all.
    pub allowance: u64,
    /// A place for a sync is free for this group.
    pub may_sync: bool,
    /// Bytes of control frames handed to the link meanwhile.
    pub handed_bytes: u64,
    /// The peer contradicted itself: nothing more of this session is listened to.
    pub refused: bool,
}

/// What the group is busy with besides serving.
#[derive(Debug)]
pub(crate) enum Phase {
    Starting(StartStage),
    Running,
    Demoting {
        id: CommandId,
        deadline: Mono,
    },
    Promoting {
        id: CommandId,
        force: bool,
        entropy: u64,
    },
    /// Back to the rollback point.
    RollingBack(Rollback),
    /// A new role is being recorded; nothing is accepted meanwhile.
    Recording,
    /// The peer gets until the deadline to have everything; what it lacks then stays marked.
    Stopping {
        deadline: Mono,
    },
    /// The dirty regions, then the clean stop are being recorded.
    StopRecording,
    Stopped,
}

/// The ordered stream to the peer, on a primary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// The peer may be sent to: it said SyncReady, or continued from the queue.
    pub open: bool,
    pub granted_bytes: u64,
    pub sent_bytes: u64,
    /// How often the peer's grant went back on this stream.
    pub recalls: u64,
    pub received: Seq,
    pub durable: Seq,
    pub applied: Seq,
    /// Writers follow the mode's promise for numbers above this.
    pub promise_from: Option<Seq>,
    /// When catching-up began.
    pub catching_up_since: Mono,
}

/// Counters for people.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub blocked_ns: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub resynced_bytes: u64,
    pub compared_bytes: u64,
    pub shipped_bytes: u64,
    pub pulled_bytes: u64,
    pub syncs: u64,
}

pub(crate) struct Group {
    pub config: GroupConfig,
    pub node: NodeId,
    pub settings: Settings,
    pub phase: Phase,
    pub state: State,
    /// Why the state is what it is, for people.
    pub reason: String,
    pub sb: SuperWriter,
    pub volumes: Vec<Volume>,
    pub bitmap: BitmapWriter,
    pub activity: Activity,
    pub slots: Slots,
    // The primary's half.
    pub last_seq: Seq,
    pub last_wall: Wall,
    pub queue: Queue,
    pub stream: Option<Stream>,
    /// The peer's journal waits for a flush here: it is told when there is one.
    pub peer_wants_flush: bool,
    /// The number before the stream's first.
    pub stream_began: Seq,
    pub resync: Option<Resync>,
    /// Beside a stream there is none: a sync goes by cuts, or in the stream.
    pub cut: Option<Cut>,
    pub catch_up: CatchUp,
    /// Writes of cuts to the undo store that are on their way.
    pub scratch_writes: u64,
    /// The last number of this run at which the peer is known to be consistent.
    pub recovered: Option<Seq>,
    /// Passes over the dirty regions begun so far: names each one.
    pub passes: u64,
    pub repair: Repair,
    /// Not served yet: what the peer confirmed of the run before may be missing here.
    pub withheld: bool,
    pub withheld_since: Mono,
    /// How far this session's settling has come.
    pub settling: Settling,
    /// What the peer was asked so far, counted.
    pub questions: u64,
    pub pulling: Pulling,
    /// What the peer asked for and has not got.
    pub answers: Answers,
    /// A full sync begins when the settling is on record.
    pub full_sync_due: bool,
    /// For tags of generations that begin without a promotion.
    pub entropy: u64,
    /// A new generation is being recorded; writes wait for it.
    pub generation_due: bool,
    /// Stop as soon as the change of role is done.
    pub stop_wanted: bool,
    /// Writes waiting for the peer, in write order.
    pub waiting_ack: VecDeque<(Seq, u32)>,
    /// Writes waiting for room in the queue, in order of arrival.
    pub blocked: VecDeque<u32>,
    /// Writes that were asked for in this run.
    pub came: u64,
    /// Room promised to writes that wait for an overlap.
    pub reserved_bytes: u64,
    pub reserved_items: u64,
    pub hold_until: Option<Mono>,
    pub stall: Stall,
    pub held_up: HeldUp,
    pub applied_wall: Wall,
    /// When that last moved: its age, whatever was done to the wall clock since.
    pub applied_wall_since: Mono,
    // The secondary's half.
    pub replica: Replica,
    /// Either half's: what is overwritten since the newest mark.
    pub saver: Saver,
    /// Why the rollback point cannot be gone back to.
    pub undo_damaged: Option<String>,
    /// What the superblock says in memory is true: a start may have to say more before it stands.
    pub may_count: bool,
    /// Why it is not taken up in this run: [`crate::Node::refuse`].
    pub refused: Option<String>,
    pub told: Option<Told>,
    /// What the peer is set to, as it told last.
    pub peer_settings: Option<Settings>,
    /// It was said that the wall clock stands behind the stamps of writes.
    pub clock_is_behind: bool,
    pub clock_said_at: Option<Mono>,
    // The peer.
    pub hello: Option<GroupHello>,
    /// Why the connected peer's half does not fit ours, if it does not.
    pub unfit: Option<String>,
    /// The peer's hello came while this node was starting.
    pub early_hello: Option<GroupHello>,
    pub counters: Counters,
    /// What the node's pool was told last that this group holds.
    pub counted_bytes: u64,
    /// What the link counts of it.
    pub counted_use: LinkUse,
    /// What the pool lets it hold however short memory is.
    pub reserve_bytes: u64,
    /// The pool kept it from something just now; it waits in line for memory.
    pub wants_memory: bool,
    pub waits_for_memory: bool,
    /// It would sync if this node had a place for it.
    pub wants_turn: bool,
    /// In full, as the operator asked, over a peer of this generation: what it became since he did not see.
    pub wanted_full: Option<Generation>,
    /// The operator typed `sync`, and it has not begun yet: without `autosync` nothing else begins it.
    pub wanted_update: bool,
}

impl Group {
    pub fn new(node: NodeId, config: GroupConfig) -> Group {
        Group {
            node,
            settings: config.settings,
            phase: Phase::Starting(StartStage::Idle),
            state: State::Logging,
            reason: String::new(),
            sb: SuperWriter::default(),
            volumes: config.volumes.iter().map(|v| Volume::new(*v)).collect(),
            bitmap: BitmapWriter::new(config.volumes.iter().map(|v| v.size_bytes)),
            activity: Activity::new(config.activity),
            slots: Slots::default(),
            last_seq: Seq::NONE,
            last_wall: Wall(0),
            queue: Queue::default(),
            stream: None,
            peer_wants_flush: false,
            stream_began: Seq::NONE,
            resync: None,
            cut: None,
            catch_up: CatchUp::default(),
            scratch_writes: 0,
            recovered: None,
            passes: 0,
            repair: Repair::default(),
            withheld: false,
            withheld_since: Mono(0),
            settling: Settling::NotYet,
            questions: 0,
            pulling: Pulling::default(),
            answers: Answers::default(),
            full_sync_due: false,
            entropy: 0,
            generation_due: false,
            stop_wanted: false,
            waiting_ack: VecDeque::new(),
            blocked: VecDeque::new(),
            came: 0,
            reserved_bytes: 0,
            reserved_items: 0,
            hold_until: None,
            stall: Stall::default(),
            held_up: HeldUp::default(),
            applied_wall: Wall(0),
            applied_wall_since: Mono(0),
            replica: Replica::new(config.window_bytes, config.journal_bytes),
            saver: Saver::new(config.history_bytes),
            undo_damaged: None,
            may_count: false,
            refused: None,
            told: None,
            peer_settings: None,
            clock_is_behind: false,
            clock_said_at: None,
            hello: None,
            unfit: None,
            early_hello: None,
            counters: Counters::default(),
            counted_bytes: 0,
            counted_use: LinkUse::default(),
            reserve_bytes: reserve(config.window_bytes),
            wants_memory: false,
            waits_for_memory: false,
            wants_turn: false,
            wanted_full: None,
            wanted_update: false,
            config,
        }
    }

    pub fn id(&self) -> GroupId {
        self.config.id
    }

    pub fn role(&self) -> Role {
        self.sb.current.identity.role
    }

    /// Requests are accepted.
    pub fn serves(&self) -> bool {
        self.role() == Role::Primary && matches!(self.phase, Phase::Running) && !self.withheld
    }

    pub fn volume(&mut self, id: VolumeId) -> &mut Volume {
        &mut self.volumes[usize::from(id.0)]
    }

    /// Memory this group holds or has promised to take: what counts against the node's pool (rule 22).
    pub fn held_bytes(&self) -> u64 {
        let lease = if self.role() == Role::Secondary { self.replica.window.lease_bytes() } else { 0 };
        let cut = self.cut.as_ref().map_or(0, Cut::memory_bytes);
        // Without a stream what waits for its range will not be queued: it is its client's memory.
        let reserved = if self.stream.is_some() { self.reserved_bytes } else { 0 };
        self.queue.bytes() + self.sync_waiting_bytes() + reserved + lease + cut + self.answers.held_bytes()
    }

    /// What reads of a sync in the stream that wait for their range will put into the queue.
    pub fn sync_waiting_bytes(&self) -> u64 {
        self.resync.as_ref().map_or(0, |resync| resync.waiting_bytes)
    }

    pub fn dirty_bytes(&self) -> u64 {
        self.volumes.iter().map(|v| v.dirty.dirty_bytes()).sum()
    }

    // ---- tokens and operations -------------------------------------------------------------------------------------

    pub fn start_op(&mut self, op: Op) -> Token {
        Token::new(self.id(), self.slots.insert(op))
    }

    /// A completed operation.
    pub fn io(&mut self, cx: &mut Cx, slot: u32, result: Result<IoDone, IoError>) {
        match self.slots.get(slot) {
            Some(Op::Write(_)) => return self.write_done(cx, slot, result.map(|_| ())),
            Some(Op::Resync(_)) => return self.resync_read_done(cx, slot, result),
            Some(Op::Cut(_)) => return self.cut_read_done(cx, slot, result),
            Some(&Op::CutHole(question)) => return self.hole_found(cx, slot, question, result),
            Some(Op::CutSpill(_)) => return self.spill_done(cx, slot, result.map(|_| ())),
            Some(_) => {}
            None => unreachable!("a completion for slot {slot}, which is free"),
        }
        match self.slots.take(slot) {
            Some(Op::LocalFlush(volume)) => self.local_flush_done(cx, volume, result.is_ok()),
            Some(Op::Superblock) => self.super_done(cx, result.is_ok()),
            Some(Op::BitmapCell { index, words }) => self.cell_written(cx, index, &words, result.is_ok()),
            Some(Op::PullRead { range, session, question }) => self.pull_read(cx, range, (session, question), result),
            Some(Op::PullWrite { bytes }) => self.pull_written(cx, bytes, result.is_ok()),
            Some(Op::PullFlush) => self.pull_flushed(cx, result.is_ok()),
            Some(Op::ActivityCell) => self.activity_written(cx, result.is_ok()),
            Some(Op::JournalBatch { ordinal }) => self.batch_done(cx, ordinal, result.is_ok()),
            Some(Op::Apply { seq }) => self.apply_done(cx, seq, result),
            Some(Op::ReplicaFlush) => self.replica_flush_done(cx, result.is_ok()),
            Some(Op::StartRead) => self.start_read_done(cx, result),
            Some(Op::CutFetch(spilled)) => self.spilled_read(cx, spilled, result),
            Some(Op::SaveRead { piece }) => self.save_read_done(cx, piece, result),
            Some(Op::SaveBatch { last_piece }) => self.save_batch_done(cx, last_piece, result.map(|_| ())),
            Some(Op::RestoreRead(saved)) => self.restore_read_done(cx, saved, result),
            Some(Op::RestoreWrite(saved)) => self.restore_write_done(cx, saved, result.map(|_| ())),
            Some(Op::RestoreFlush) => self.restore_flushed(cx, result.is_ok()),
            Some(Op::Write(_) | Op::Resync(_) | Op::Cut(_) | Op::CutHole(_) | Op::CutSpill(_)) | None => {
                unreachable!("handled above")
            }
        }
    }

    // ---- state -----------------------------------------------------------------------------------------------------

    /// The one way a state changes.
    pub fn transition(&mut self, cx: &mut Cx, to: State, why: &str) {
        if self.reason != why {
            self.reason = why.to_string();
        }
        if self.state == to {
            return;
        }
        assert!(legal(self.state, to), "group {}: {} -> {to} is not in the table of edges", self.id().0, self.state);
        let from = core::mem::replace(&mut self.state, to);
        cx.event(self.id(), Event::State { from, to, why: why.to_string() });
        self.tell_primary_state(cx);
    }

    /// A store broke: stop acknowledging, drop the stream, say so; only a restart helps (rule 12).
    pub fn fail(&mut self, cx: &mut Cx, broken: Broken) {
        if broken == Broken::VolumeFlush && !self.sb.lost_caches {
            self.caches_lost();
            if self.sb.lost_caches {
                self.save(cx, None);
            }
        }
        if matches!(self.state, State::Failed(_)) {
            return;
        }
        if self.stream.is_some() {
            self.end_stream(cx, broken.words());
        }
        self.drop_cut(cx);
        self.transition(cx, State::Failed(broken), broken.words());
        if self.role() == Role::Secondary {
            let slots = &self.slots;
            self.replica.let_go(|seq| slots.applies(seq));
            self.set_timer(cx, GroupTimer::ApplyFlush, crate::limits::APPLY_FLUSH_AFTER);
        }
        self.fail_waiting(cx);
        if let Some(link) = cx.peer.link {
            let hello = self.make_hello();
            cx.send_control(link, Kind::GroupState, self.id(), hello.encode());
        }
    }

    // ---- the peer --------------------------------------------------------------------------------------------------

    pub fn identity(&self) -> Identity {
        let mut identity = self.sb.current.identity;
        identity.position = match identity.role {
            Role::Primary => self.place(self.last_seq),
            Role::Secondary => self.replica.position(),
        };
        identity
    }

    /// A number of this primary's present run.
    pub fn place(&self, seq: Seq) -> Position {
        let identity = &self.sb.current.identity;
        Position { generation: identity.generation, incarnation: identity.incarnation, seq }
    }

    /// Who the peer may take this node for: it has the role that is on record, also while another one is being recorded, and
    /// when that failed.
    fn told_identity(&self) -> Identity {
        let durable = self.sb.durable;
        if durable.role == self.role() {
            return self.identity();
        }
        let position = match durable.role {
            Role::Primary => {
                Position { generation: durable.generation, incarnation: durable.incarnation, seq: self.last_seq }
            }
            Role::Secondary => self.replica.position(),
        };
        Identity { position, ..durable }
    }

    pub fn make_hello(&self) -> GroupHello {
        let identity = self.told_identity();
        GroupHello {
            identity,
            granted_bytes: self.replica.window.granted_bytes(),
            dirty_bytes: self.dirty_bytes(),
            failed: matches!(self.state, State::Failed(_)),
            features: 0,
            required: 0,
            settings: self.settings,
            volume_bytes: self.told_sizes(identity.role),
        }
    }

    /// It is not known yet who this node is. A rollback that was cut short is finished first.
    pub fn is_starting(&self) -> bool {
        match &self.phase {
            // One that failed on the way says so, to operators and to its peer.
            _ if matches!(self.state, State::Failed(_)) => false,
            Phase::Starting(_) => true,
            Phase::RollingBack(rollback) => matches!(rollback.then, Then::Start),
            _ => false,
        }
    }

    fn has_stopped(&self) -> bool {
        matches!(self.phase, Phase::Stopped)
    }

    /// A session with the peer begins: say who we are.
    pub fn link_up(&mut self, cx: &mut Cx) {
        self.hello = None;
        self.unfit = None;
        self.early_hello = None;
        self.told_is_past();
        self.settling = Settling::NotYet;
        self.answers.forget();
        self.stall.link_up(cx.now.mono);
        if self.is_starting() || self.has_stopped() {
            return;
        }
        self.replica.new_session();
        self.say_hello(cx, Kind::GroupHello);
        self.set_timer(cx, GroupTimer::Greeting, limits::GREETING_LATE_AFTER);
    }

    /// The peer is there, its half of the group is not: a primary that waits for it says so.
    fn not_greeted(&mut self, cx: &mut Cx) {
        let waits = matches!(self.state, State::Logging | State::Queuing | State::Holding);
        let unheard = cx.peer.link.is_some() && self.hello.is_none() && self.unfit.is_none();
        if waits && unheard && self.role() == Role::Primary && matches!(self.phase, Phase::Running) {
            let why = "the peer is connected, but its half of the group has not started: it reads its journal, waits for space, or was \
                       refused; see 'status' there";
            self.transition(cx, self.state, why);
        }
    }

    pub fn say_hello(&mut self, cx: &mut Cx, kind: Kind) {
        if let Some(link) = cx.peer.link {
            let hello = self.make_hello();
            cx.send_control(link, kind, self.id(), hello.encode());
        }
    }

    pub fn link_down(&mut self, cx: &mut Cx, why: &str) {
        self.hello = None;
        self.unfit = None;
        self.early_hello = None;
        self.told_is_past();
        self.settling = Settling::NotYet;
        self.answers.forget();
        self.full_sync_due = false;
        match self.role() {
            Role::Primary => self.stream_lost(cx, why),
            Role::Secondary => self.replica.lost_session(),
        }
    }

    /// What can still be sent in order.
    pub fn unbroken(&self) -> Option<Unbroken> {
        let stream = self.stream.as_ref()?;
        let kept_after = self.queue.kept_after().unwrap_or(self.last_seq);
        debug_assert!(kept_after <= self.last_seq && stream.durable <= self.last_seq);
        Some(Unbroken { kept_after, last: self.sent_through() })
    }

    pub fn frame(&mut self, cx: &mut Cx, header: Header, payload: crate::FramePayload) {
        if self.unfit.is_some() && header.kind.sender().is_some() {
            // Of a peer that does not fit nothing is acted on; the other groups of the session go on.
            return;
        }
        if self.has_stopped() {
            // It may never have known who it is. Other groups of the node are still on their way.
            return;
        }
        if let Some(what) = self.contradiction(&header) {
            return self.protocol_error(cx, &what);
        }
        let control = match &payload {
            crate::FramePayload::Control(bytes) => bytes.as_slice(),
            _ => &[],
        };
        let parsed = match header.kind {
            Kind::GroupHello => GroupHello::decode(control).map(|h| self.peer_hello(cx, h)),
            Kind::GroupState => GroupHello::decode(control).map(|h| self.peer_changed(cx, h)),
            Kind::SyncReady => {
                self.peer_sync_ready(cx, &header);
                Some(())
            }
            Kind::Ack => crate::formats::wire::Ack::decode(control).map(|ack| self.ack(cx, ack, header.offset)),
            Kind::ProbeResult => {
                self.probe_result(cx, &header);
                Some(())
            }
            Kind::SyncBegin => crate::formats::wire::SyncBegin::decode(control).map(|b| self.sync_begin(cx, b)),
            Kind::Tick => self.primary_tick(cx, &header, control),
            Kind::Data | Kind::Zero | Kind::Void | Kind::Probe | Kind::SyncEnd => {
                self.receive(cx, &header, payload);
                Some(())
            }
            Kind::TailAsk | Kind::Tail | Kind::Pull | Kind::Pulled | Kind::BitsAsk | Kind::Bits => {
                self.settling_frame(cx, &header, &payload)
            }
            Kind::Heartbeat | Kind::HeartbeatEcho | Kind::Goodbye => None,
        };
        if parsed.is_none() {
            self.protocol_error(cx, &format!("a {:?} frame with a payload it cannot have", header.kind));
        }
    }

    /// The peer broke the protocol: this session ends.
    pub fn protocol_error(&mut self, cx: &mut Cx, what: &str) {
        if let Some(link) = cx.peer.link {
            cx.refused = true;
            let reason = format!("group {}: the peer sent {what}", self.id().0);
            cx.out.push_back(Output::CloseLink { link, reason });
        }
    }

    // ---- timers ----------------------------------------------------------------------------------------------------

    pub fn timer(&mut self, cx: &mut Cx, timer: GroupTimer) {
        match timer {
            GroupTimer::Waits => self.check_waits(cx),
            GroupTimer::LocalFlush => self.flush_for_bits(cx),
            GroupTimer::RecordAgain => self.record_again(cx),
            GroupTimer::Greeting => self.not_greeted(cx),
            GroupTimer::Tick => self.send_tick(cx),
            GroupTimer::HoldEnd => self.hold_ended(cx),
            GroupTimer::Autosync => self.try_autosync(cx),
            GroupTimer::Cut => self.cut_due(cx),
            GroupTimer::Stall => self.check_stall(cx),
            GroupTimer::CatchUp => self.take_up_promise(cx),
            GroupTimer::ApplyFlush => {
                self.flush_replica(cx);
                self.count_batches(cx);
            }
            GroupTimer::ApplyRetry => self.retry_apply(cx),
            // `proceed` looks at the deadline.
            GroupTimer::Drain => {}
            GroupTimer::TidyBits => self.tidy_bits(cx),
            GroupTimer::StartAlone => self.start_alone(cx),
        }
    }

    pub fn set_timer(&self, cx: &mut Cx, timer: GroupTimer, after: Duration) {
        let (key, at) = (TimerKey::Group(self.id(), timer), cx.now.mono.plus(after));
        if timer == GroupTimer::Autosync {
            // It may stand as far ahead as a peer is left alone: a repair, or that peer's answer, does not wait for that.
            cx.timers.set_sooner(key, at);
        } else {
            cx.timers.set_if_idle(key, at);
        }
    }

    // ---- invariants ------------------------------------------------------------------------------------------------

    /// What must hold after every input.
    pub fn check_invariants(&self) {
        if cfg!(feature = "planted") {
            return;
        }
        let sends = self.stream.is_some() || self.cut.is_some();
        assert_eq!(sends, self.state.sends(), "a stream or a cut exists exactly in the states that send");
        assert!(self.cut.is_none() || self.stream.is_none(), "a cut beside a stream");
        assert!(self.cut.is_none() || matches!(self.state, State::Syncing | State::Paused(_)), "a cut without a sync");
        assert!(self.queue.is_empty() || self.stream.is_some(), "a queue without a stream");
        assert!(self.role() == Role::Primary || !sends, "a secondary sends nothing");
        let told = self.sb.current.confirmed != Confirmed::default();
        assert!(self.role() == Role::Primary || !told, "nobody confirms anything to a secondary");
        if let Some(stream) = &self.stream {
            assert!(stream.applied <= stream.durable && stream.durable <= stream.received);
            assert!(stream.received <= self.last_seq, "the peer is not ahead of us");
        }
        self.replica.kept.check_invariants(self.replica.durable, self.replica.noted);
        if self.state == State::Replicating {
            assert!(self.stream.is_some_and(|s| s.promise_from.is_some_and(|from| from <= s.durable)));
        }
    }
}

impl Cx<'_> {
    pub fn event(&mut self, group: GroupId, event: Event) {
        self.out.push_back(Output::Event { group, event });
    }

    pub fn answer(&mut self, id: CommandId, result: CommandResult) {
        self.out.push_back(Output::CommandDone { id, result });
    }

    pub fn refuse(&mut self, id: CommandId, why: &str) {
        self.answer(id, CommandResult::Refused(why.to_string()));
    }

    pub fn reply(&mut self, id: RequestId, result: Result<(), IoError>) {
        self.out.push_back(Output::Reply { id, result });
    }

    pub fn send(&mut self, link: LinkId, header: Header, payload: SendPayload) {
        self.handed_bytes += frame_bytes(&payload);
        self.out.push_back(Output::Send { link, header, payload });
    }

    pub fn send_control(&mut self, link: LinkId, kind: Kind, group: GroupId, payload: Vec<u8>) {
        let header = Header::new(kind, self.peer.session, group);
        self.send(link, header, if payload.is_empty() { SendPayload::None } else { SendPayload::Control(payload) });
    }
}

pub mod contradiction;
pub mod orders;
pub mod roles;
pub mod sizes;
pub mod start;
pub mod status;
pub mod told;
pub mod turns;

/// A request for a volume of this group.
impl Group {
    pub fn request(&mut self, cx: &mut Cx, volume: VolumeId, id: RequestId, request: Request) {
        let broken = matches!(self.state, State::Failed(_)) || self.volume(volume).latched;
        if !self.serves() || broken {
            return cx.reply(id, Err(IoError::Io));
        }
        match request {
            Request::Flush => self.request_flush(cx, volume, id),
            Request::Write { offset, length, buf, fua } => {
                self.request_write(cx, WriteOp::data(id, volume, offset, length, buf, fua, cx.now.mono));
            }
            Request::Zero { offset, length, no_hole, fua } => {
                self.request_write(cx, WriteOp::zero(id, volume, offset, length, no_hole, fua, cx.now.mono));
            }
        }
    }
}
