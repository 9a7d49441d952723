//! The primary's view of its secondary: the stream to it, syncs, cuts, what is settled when they meet.

pub mod cut;
pub mod cuts;
pub mod flush;
pub mod meeting;
pub mod numbers;
pub mod orders;
pub mod queue;
pub mod reconcile;
pub mod repair;
pub mod resync;
pub mod stall;
pub mod status;
pub mod stream;

use crate::Event;
use crate::common::Common;
use crate::context::Cx;
use crate::formats::identity::{Role, Unbroken};
use crate::ids::{Generation, Position, Seq};
use crate::peer::cut::Cut;
use crate::peer::cut::saves::Scratch;
use crate::peer::cuts::CatchUp;
use crate::peer::numbers::Numbers;
use crate::peer::orders::Wanted;
use crate::peer::queue::Queue;
use crate::peer::reconcile::Reconcile;
use crate::peer::repair::Repair;
use crate::peer::resync::Resync;
use crate::peer::stall::Stall;
use crate::peer::stream::Stream;
use crate::records::record::AfterSuper;
use crate::shared::marks::Mark;
use crate::shared::time::{Mono, Wall};
use crate::state::{State, legal};
use alloc::string::ToString;

/// What a primary knows of its secondary, and has for it: numbers, queue, stream, syncs, what is not settled yet.
pub(crate) struct Peer {
    pub numbers: Numbers,
    pub queue: Queue,
    pub stream: Option<Stream>,
    /// The peer's journal waits for a flush here: it is told when there is one.
    pub peer_wants_flush: bool,
    /// The number before the stream's first.
    stream_began: Seq,
    pub resync: Option<Resync>,
    /// Beside a stream there is none: a sync goes by cuts, or in the stream.
    pub cut: Option<Cut>,
    pub catch_up: CatchUp,
    scratch: Scratch,
    /// The last number of this run at which the peer is known to be consistent.
    pub recovered: Option<Seq>,
    /// Passes over the dirty regions begun so far: names each one.
    passes: u64,
    pub repair: Repair,
    pub reconcile: Reconcile,
    /// For tags of generations that begin without a promotion.
    entropy: u64,
    /// A new generation is being recorded; writes wait for it.
    pub generation_due: bool,
    /// Room promised to writes that wait for an overlap.
    reserved_bytes: u64,
    reserved_items: u64,
    pub stall: Stall,
    pub applied_wall: Wall,
    /// When that last moved: its age, whatever was done to the wall clock since.
    applied_wall_since: Mono,
    /// It would sync if this node had a place for it.
    wants_turn: bool,
    wanted: Wanted,
}

impl Peer {
    pub fn new() -> Peer {
        Peer {
            numbers: Numbers::new(),
            queue: Queue::default(),
            stream: None,
            peer_wants_flush: false,
            stream_began: Seq::NONE,
            resync: None,
            cut: None,
            catch_up: CatchUp::default(),
            scratch: Scratch::default(),
            recovered: None,
            passes: 0,
            repair: Repair::default(),
            reconcile: Reconcile::new(),
            entropy: 0,
            generation_due: false,
            reserved_bytes: 0,
            reserved_items: 0,
            stall: Stall::default(),
            applied_wall: Wall(0),
            applied_wall_since: Mono(0),
            wants_turn: false,
            wanted: Wanted::default(),
        }
    }

    /// Requests are accepted.
    pub fn serves(&self, common: &Common) -> bool {
        common.role() == Role::Primary && common.lifecycle.is_running() && !self.reconcile.is_withheld()
    }

    /// Of that, what is to be sent. A primary holds nothing else.
    pub fn outgoing_bytes(&self, common: &Common) -> u64 {
        let cut = self.cut.as_ref().map_or(0, Cut::memory_bytes);
        // Without a stream what waits for its range will not be queued: it is its client's memory.
        let reserved = if self.stream.is_some() { self.reserved_bytes } else { 0 };
        self.queue.bytes() + self.sync_waiting_bytes() + reserved + cut + common.answers.held_bytes()
    }

    /// What reads of a sync in the stream that wait for their range will put into the queue.
    pub fn sync_waiting_bytes(&self) -> u64 {
        self.resync.as_ref().map_or(0, |resync| resync.waiting_bytes)
    }

    // ---- state -----------------------------------------------------------------------------------------------------

    /// The one way a state changes.
    pub fn transition(&mut self, common: &mut Common, cx: &mut Cx, to: State, why: &str) {
        if common.reason != why {
            common.reason = why.to_string();
        }
        if common.state == to {
            return;
        }
        assert!(
            legal(common.state, to),
            "group {}: {} -> {to} is not in the table of edges",
            common.id().0,
            common.state
        );
        let from = core::mem::replace(&mut common.state, to);
        cx.event(common.id(), Event::State { from, to, why: why.to_string() });
        self.tell_primary_state(common, cx);
    }

    /// The peer is there, its half of the group is not: a primary that waits for it says so.
    pub fn not_greeted(&mut self, common: &mut Common, cx: &mut Cx) {
        let waits = matches!(common.state, State::Logging | State::Queuing | State::Holding);
        let unheard = cx.peer.link.is_some() && common.greeting.hello().is_none() && common.greeting.unfit().is_none();
        if waits && unheard && common.role() == Role::Primary && common.lifecycle.is_running() {
            let why = "the peer is connected, but its half of the group has not started: it reads its journal, waits for space, or was \
                       refused; see 'status' there";
            self.transition(common, cx, common.state, why);
        }
    }

    /// What can still be sent in order.
    pub fn unbroken(&self) -> Option<Unbroken> {
        let stream = self.stream.as_ref()?;
        let kept_after = self.queue.kept_after().unwrap_or(self.numbers.last());
        debug_assert!(kept_after <= self.numbers.last() && stream.durable <= self.numbers.last());
        Some(Unbroken { kept_after, last: self.sent_through() })
    }

    /// A promotion: numbers begin anew, and the peer stands where this node stands.
    pub fn begin_run(&mut self, cx: &Cx, wall: Wall) {
        self.numbers.begin_run(wall);
        self.applied_wall = Wall(0);
        self.peer_reached(cx, wall);
        self.recovered = None;
    }

    pub fn session_begins(&mut self, cx: &Cx) {
        self.reconcile.session_begins();
        self.stall.link_up(cx.now.mono);
    }

    pub fn session_ends(&mut self) {
        self.reconcile.session_ends();
    }

    /// The peer has all there is.
    pub fn is_in_step(&self, common: &Common) -> bool {
        self.stream.is_some_and(|s| s.applied == self.numbers.last())
            && self.resync.is_none()
            && common.volumes.iter().all(|v| v.dirty.is_clean() && !v.has_writes_in_flight())
    }

    pub fn check_invariants(&self, common: &Common) {
        let sends = self.stream.is_some() || self.cut.is_some();
        assert_eq!(sends, common.state.sends(), "a stream or a cut exists exactly in the states that send");
        assert!(self.cut.is_none() || self.stream.is_none(), "a cut beside a stream");
        assert!(
            self.cut.is_none() || matches!(common.state, State::Syncing | State::Paused(_)),
            "a cut without a sync"
        );
        assert!(self.queue.is_empty() || self.stream.is_some(), "a queue without a stream");
        assert!(common.role() == Role::Primary || !sends, "a secondary sends nothing");
        if let Some(stream) = &self.stream {
            assert!(stream.applied <= stream.durable && stream.durable <= stream.received);
            assert!(stream.received <= self.numbers.last(), "the peer is not ahead of us");
        }
        if common.state == State::Replicating {
            assert!(self.stream.is_some_and(|s| s.promise_from.is_some_and(|from| from <= s.durable)));
        }
    }

    // ---- a history that goes on alone -------------------------------------------------------------------------------

    // ---- a history that goes on alone -------------------------------------------------------------------------------

    /// The first write that the peer will not see in order begins a new generation: should the peer be promoted, both
    /// histories can be told apart (rule 5).
    ///
    /// True: it is being recorded, and writes wait for it.
    pub fn want_generation(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        let sb = &mut common.sb.current;
        if self.stream.is_some()
            || self.cut.is_some()
            || sb.alone
            || self.generation_due
            || sb.identity.generation.is_blank()
        {
            return self.generation_due;
        }
        cx.marks.hit(Mark::GenerationContinued);
        let old = sb.identity;
        sb.identity.parent =
            Position { generation: old.generation, incarnation: old.incarnation, seq: self.numbers.last() };
        let number = old.generation.number_after(0);
        sb.identity.generation = Generation { number, tag: crate::node::mix(self.entropy, number) };
        sb.identity.continued = true;
        sb.alone = true;
        self.generation_due = true;
        common.save_in_both_slots(cx, AfterSuper::NewGeneration);
        true
    }

    pub fn generation_is_due(&self) -> bool {
        self.generation_due
    }

    pub fn generation_recorded(&mut self) {
        self.generation_due = false;
    }
}
