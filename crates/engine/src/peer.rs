//! The primary's view of its secondary: the stream to it, syncs, cuts, what is settled when they meet.

pub mod cut;
pub mod cuts;
pub mod flush;
pub mod meeting;
pub mod numbers;
pub mod orders;
pub mod pause;
pub mod queue;
pub mod reached;
pub mod reconcile;
pub mod repair;
pub mod resync;
pub mod room;
pub mod sending;
pub mod stall;
pub mod status;
pub mod stream;
pub mod streaming;

use crate::Event;
use crate::common::Common;
use crate::context::Cx;
use crate::formats::identity::{Role, Unbroken};
use crate::peer::cut::saves::Scratch;
use crate::peer::cuts::CatchUp;
use crate::peer::numbers::Numbers;
use crate::peer::orders::Wanted;
use crate::peer::queue::HighWater;
use crate::peer::reached::Reached;
use crate::peer::reconcile::Reconcile;
use crate::peer::repair::Repair;
use crate::peer::room::Promised;
use crate::peer::sending::Sending;
use crate::peer::stall::Stall;
use crate::peer::stream::Stream;
use crate::records::record::AfterSuper;
use crate::shared::marks::Mark;
use crate::shared::time::Wall;
use crate::state::{State, legal};
use alloc::string::ToString;

/// What a primary knows of its secondary, and has for it: numbers, queue, stream, syncs, what is not settled yet.
pub(crate) struct Peer {
    pub numbers: Numbers,
    sending: Sending,
    /// Of the queues of all streams so far.
    high_water: HighWater,
    promised: Promised,
    /// The peer's journal waits for a flush here: it is told when there is one.
    wants_flush: bool,
    catch_up: CatchUp,
    scratch: Scratch,
    reached: Reached,
    /// Passes over the dirty regions begun so far: names each one.
    passes: u64,
    repair: Repair,
    pub reconcile: Reconcile,
    /// For tags of generations that begin without a promotion.
    entropy: u64,
    /// A new generation is being recorded; writes wait for it.
    generation_due: bool,
    stall: Stall,
    /// It would sync if this node had a place for it.
    wants_turn: bool,
    wanted: Wanted,
}

impl Peer {
    pub fn new() -> Peer {
        Peer {
            numbers: Numbers::new(),
            sending: Sending::Apart,
            high_water: HighWater::default(),
            promised: Promised::default(),
            wants_flush: false,
            catch_up: CatchUp::default(),
            scratch: Scratch::default(),
            reached: Reached::nothing(),
            passes: 0,
            repair: Repair::default(),
            reconcile: Reconcile::new(),
            entropy: 0,
            generation_due: false,
            stall: Stall::default(),
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
        // Without a stream what waits for its range will not be queued: it is its client's memory.
        let promised = if self.streams() { self.promised.bytes() } else { 0 };
        self.sending.held_bytes() + promised + common.answers.held_bytes()
    }

    /// What waits to be sent: bytes and items, and the most there ever were.
    pub fn queued(&self) -> (u64, u64, HighWater) {
        self.stream()
            .map(Stream::queue)
            .map_or((0, 0, self.high_water), |queue| (queue.bytes(), queue.len(), queue.high_water()))
    }

    /// For a failure report.
    pub fn sending(&self) -> &Sending {
        &self.sending
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
        self.stream().map(|stream| stream.unbroken(self.numbers.last()))
    }

    /// A promotion: numbers begin anew, and the peer stands where this node stands.
    pub fn begin_run(&mut self, cx: &Cx, wall: Wall) {
        self.numbers.begin_run(wall);
        self.reached.begin_run(cx.now.mono, wall);
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
        self.stream().is_some_and(|stream| stream.has_applied(self.numbers.last()) && !stream.has_pass())
            && common.volumes.iter().all(|v| v.dirty.is_clean() && !v.has_writes_in_flight())
    }

    pub fn check_invariants(&self, common: &Common) {
        let sends = !self.is_apart();
        assert_eq!(sends, common.state.sends(), "a stream or a cut exists exactly in the states that send");
        assert!(
            !self.goes_by_cuts() || matches!(common.state, State::Syncing | State::Paused(_)),
            "a cut without a sync"
        );
        assert!(common.role() == Role::Primary || !sends, "a secondary sends nothing");
        if let Some(stream) = self.stream() {
            stream.check_invariants(self.numbers.last());
        }
        if common.state == State::Replicating {
            assert!(self.stream().is_some_and(Stream::keeps_promise), "the promise of the mode holds");
        }
    }

    // ---- a history that goes on alone -------------------------------------------------------------------------------

    /// The first write that the peer will not see in order begins a new generation: should the peer be promoted, both
    /// histories can be told apart (rule 5).
    ///
    /// True: it is being recorded, and writes wait for it.
    pub fn want_generation(&mut self, common: &mut Common, cx: &mut Cx) -> bool {
        let sb = &common.sb;
        if !self.sending.is_apart() || sb.alone || self.generation_due || sb.identity.generation.is_blank() {
            return self.generation_due;
        }
        cx.marks.hit(Mark::GenerationContinued);
        common.sb.goes_on_alone(self.numbers.last(), |number| crate::ids::mix(self.entropy, number));
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
