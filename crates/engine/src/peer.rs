//! The peer: what it said of itself, and on a primary what goes to it, syncs, what is reconciled when they meet.

pub mod answers;
pub mod catch_up;
pub(crate) mod detached;
pub mod disk_queue;
mod epoch;
pub mod forks;
mod framing;
pub mod logging;
pub mod meeting;
pub mod orders;
pub mod outbox;
pub mod pause;
pub mod queue;
pub mod queue_log;
pub mod queue_redo;
pub mod reconcile;
pub mod recovery_point;
pub mod repair;
pub mod reservation;
pub mod resync;
pub mod sending;
pub mod snapshot;
pub mod stall;
pub mod status;
pub mod stream;
pub mod streaming;
pub mod ticks;
pub mod verify;

use crate::Event;
use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::ids::Incarnation;
use crate::peer::catch_up::CatchUp;
use crate::peer::forks::ForkOrder;
use crate::peer::orders::WantedSyncs;
use crate::peer::outbox::Outbox;
use crate::peer::reconcile::Reconciliation;
use crate::peer::recovery_point::PeerRecoveryPoint;
use crate::peer::repair::RegionRepair;
use crate::peer::snapshot::left::LeftSnapshot;
use crate::peer::stall::PeerStall;
use crate::peer::verify::Verification;
use crate::shared::greeting::Greeting;
use crate::state::State;
use crate::time::Wall;
use alloc::string::ToString;

/// The peer is connected, and has not said who it is.
pub(crate) const NOT_GREETED: &str = "the peer is connected, but its half of the group has not answered yet: it reads its journal, waits for \
                                      space, or was refused; see 'status' there";

/// What is known of the peer, and what a primary has for it; its parts have fields of their own.
#[derive(Default)]
pub(crate) struct Peer {
    /// Who it said it is.
    pub greeting: Greeting,
    pub outbox: Outbox,
    /// The peer's journal waits for a flush here: it is told when there is one.
    wants_flush: bool,
    catch_up: CatchUp,
    left: LeftSnapshot,
    reached: PeerRecoveryPoint,
    /// Passes over the dirty regions begun so far: names each one.
    passes: u64,
    repair: RegionRepair,
    pub reconcile: Reconciliation,
    pub stall: PeerStall,
    pub wanted: WantedSyncs,
    pub verify: Verification,
    /// A fork is being resolved, and this node's content was chosen.
    pub fork: Option<ForkOrder>,
    /// This node was demoted for the peer of the generation with this tag, in this session; 0: for nobody.
    pub yields_to: u64,
    /// An order here ended by the peer's own one. That ends by this one, and until the peer has said so this node yields to nobody.
    pub awaits_word: bool,
    /// The run that began with the last promotion since this node was started. It is not on record: a start ends the run, and may be that of
    /// an older copy.
    pub promoted_run: Option<Incarnation>,
    /// The peer was told that the policy would have this node yield.
    pub said_to_yield: bool,
}

impl Peer {
    // ---- state -----------------------------------------------------------------------------------------------------

    /// Where the group is: it follows from what broke and from what is sent.
    pub fn state(&self, common: &GroupCommon) -> State {
        common.lifecycle.broken().map_or_else(|| self.outbox.sending.state(), State::Failed)
    }

    /// What the state follows from has changed, or its reason has: both are said, also to the peer.
    pub fn report_state(&mut self, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
        let to = self.state(common);
        let Some(from) = common.standing.report(common.config.id, to, why) else { return };
        cx.event(common.id(), Event::State { from, to, why: why.to_string() });
        self.report_primary_state(common, cx);
    }

    /// The peer is there, its half of the group is not: a primary that waits for it says so.
    pub fn not_greeted(&mut self, common: &mut GroupCommon, cx: &mut Cx) {
        let waits = matches!(self.state(common), State::Logging | State::Queuing | State::Holding);
        let unheard = cx.peer.link.is_some() && self.greeting.is_missing();
        if waits && unheard && common.role() == Role::Primary && common.lifecycle.is_running() {
            self.report_state(common, cx, NOT_GREETED);
        }
    }

    /// A promotion: the peer stands where this node stands.
    pub fn begin_run(&mut self, cx: &Cx, wall: Wall, run: Incarnation) {
        self.promoted_run = Some(run);
        self.outbox.begin_run();
        self.reached.begin_run(cx.now.mono, wall);
    }

    pub fn session_begins(&mut self, cx: &Cx) {
        self.greeting.forget();
        self.outbox.answers.forget();
        self.reconcile.session_begins();
        self.stall.link_up(cx.now.mono);
    }

    pub fn session_ends(&mut self) {
        self.greeting.forget();
        self.outbox.answers.forget();
        self.reconcile.session_ends();
        (self.yields_to, self.awaits_word) = (0, false);
        if let Some(order) = &mut self.fork {
            // Whoever is there next has heard nothing of it.
            order.is_over = true;
        }
    }

    pub fn check_invariants(&self, common: &GroupCommon) {
        let sends = !self.outbox.is_apart();
        assert!(!common.has_failed() || !sends, "a group that failed sends nothing");
        assert!(common.role() == Role::Primary || !sends, "a secondary sends nothing");
        assert_eq!(common.standing.reported(), self.state(common), "each change of the state is reported");
        if let Some(stream) = self.outbox.stream() {
            stream.check_invariants(common.numbers.last());
        }
    }
}
