//! What is ordered of the peer, and waits for its turn.

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::identity::Role;
use crate::ids::{CommandId, Generation, VolumeId, VolumeSet};
use crate::peer::Peer;
use crate::peer::meeting::why_apart;
use crate::peer::reconcile::closed_words;
use crate::peer::repair::reads_regions;
use crate::records::record::AfterSuper;
use crate::shared::greeting::Greeting;
use crate::shared::lifecycle::Phase;
use crate::shared::size::ShownSize;
use crate::state::State;
use crate::{CommandResult, Output, Refusal, RefusalCode, limits};
use alloc::format;

/// What is told of a full sync that is ordered again.
pub(crate) const FULL_UNDER_WAY: &str = "a full sync is under way already";

/// What became of permits to sync since this was asked last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PermitEvents {
    /// A sync could have begun if this node had a permit for it.
    pub wanted: bool,
    /// A full one begins by the permit that it was given, and is recorded first.
    pub taken: bool,
}

/// Syncs that are wanted and have not begun yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WantedSyncs {
    /// An operator's: in full, over a peer of this generation: what it became since he did not see.
    full: Option<Generation>,
    /// An operator's, of what is dirty: without `autosync` nothing else begins it.
    update: bool,
    /// The full one compares nothing.
    sends_all: bool,
    permits: PermitEvents,
    /// Volumes that an operator has the peer's devices filled of, until the peer takes a sync up.
    fills: VolumeSet,
    /// Volumes that were set aside and rejoin, until then.
    rejoins: VolumeSet,
}

impl WantedSyncs {
    /// An operator said that of these volumes this node's content counts, whatever stands on the peer's devices.
    pub fn fill(&mut self, volumes: &VolumeSet) {
        self.fills = self.fills.with(volumes);
    }

    pub fn fills(self) -> VolumeSet {
        self.fills
    }

    /// A volume that was set aside is part of the order again, once a sync has taken it in, whatever stands on the peer's device. Of one that was
    /// part of the order no word is kept: it would count for a device that comes there later.
    pub fn rejoin(&mut self, volume: VolumeId) {
        _ = self.rejoins.insert(volume);
        _ = self.fills.insert(volume);
    }

    /// The peer is still without what was written to a volume beside the order.
    pub fn owes_rejoin(self) -> bool {
        !self.rejoins.is_empty()
    }

    /// The peer has taken up a sync that fills them, or this node is primary no more.
    pub fn is_filled(&mut self) {
        (self.fills, self.rejoins) = (VolumeSet::default(), VolumeSet::default());
    }

    /// A full sync over the peer that is connected is ordered, or is not any more.
    pub fn order_full(&mut self, peer: &Greeting, full: bool) {
        self.full = peer.generation().filter(|_| full);
    }

    /// A sync waits for its turn.
    pub fn wait_for_permit(&mut self, peer: &Greeting, full: bool) {
        self.permits.wanted = true;
        if full {
            self.order_full(peer, true);
        }
    }

    /// Whether a full sync that is ordered compares before it sends.
    pub fn compares(&mut self, compares: bool) {
        self.sends_all = !compares;
    }

    /// A full sync sends all of it, whatever the peer holds.
    pub fn sends_all(self) -> bool {
        self.sends_all
    }

    pub fn order_update(&mut self) {
        self.update = true;
    }

    pub fn update_is_done(&mut self) {
        self.update = false;
    }

    /// What was ordered begins, or is not to begin any more.
    pub fn forget_orders(&mut self) {
        (self.full, self.update, self.sends_all) = (None, false, false);
    }

    pub fn is_update(self) -> bool {
        self.update
    }

    pub fn begin_with_permit(&mut self) {
        self.permits.taken = true;
    }

    pub fn take_permit_events(&mut self) -> PermitEvents {
        core::mem::take(&mut self.permits)
    }
}

impl Peer {
    /// A full sync is ordered, over the peer as it is. One that was promoted since may hold writes of its own; one that has taken up our
    /// history meanwhile holds none.
    pub fn wants_full(&self, common: &GroupCommon) -> bool {
        let (full, theirs) = (self.wanted.full, self.greeting.generation());
        full.is_some() && (full == theirs || theirs == Some(common.sb.identity.generation))
    }

    /// A sync was ordered and has not begun; of a full one as far as that is known while the peer is away.
    pub fn sync_is_ordered(&self, common: &GroupCommon) -> bool {
        let full = self.wanted.full.is_some() && self.greeting.hello().is_none() || self.wants_full(common);
        let waits = full || self.wanted.update || self.reconcile.is_full_sync_due();
        waits && common.role() == Role::Primary && !common.has_failed() && !self.outbox.syncs()
    }

    /// What was given so far was not given under the promise of this mode.
    pub fn promise_anew(&mut self, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
        let replicates = self.state(common) == State::Replicating;
        if let Some(stream) = self.outbox.sending.stream_mut() {
            stream.promise_anew(cx.now.mono);
        }
        if replicates {
            self.report_state(common, cx, why);
        }
    }

    pub fn sync_without_peer(&mut self, common: &mut GroupCommon, cx: &mut Cx, id: CommandId, full: bool) {
        if let Some(what) = self.greeting.unfit() {
            return cx.refuse(id, RefusalCode::PeerUnfit, what);
        }
        let missing = match cx.peer.link {
            Some(_) => "the peer's half of the group has not started, see 'status' there",
            None => "the peer is not connected",
        };
        if full {
            let why = format!("{missing}; a full sync can only be begun when it is there");
            return cx.refuse(id, RefusalCode::PeerAway, why);
        }
        if common.sb.changed_outside && common.sb.needs_verification() {
            let why = format!(
                "{missing}, and the peer may have confirmed what this node lost with its power before a volume was written from outside; \
                 type 'sync' when it is there, or open the export without it by 'set GROUP start_alone=serve'"
            );
            return cx.refuse(id, RefusalCode::ChoiceNeeded, why);
        }
        if common.waits_for_choice() {
            // It would be forgotten before it counts.
            return cx.refuse(id, RefusalCode::ChoiceNeeded, format!("{missing}; {}", closed_words(common, false)));
        }
        common.sb.sync_ordered();
        self.stall.ordered(cx.now.mono);
        if self.state(common) == State::Logging {
            self.report_state(common, cx, why_apart(common, cx));
            // An export that is closed says when it opens.
            self.reconcile.start_alone(common, cx, &self.greeting);
        }
        let text = format!("{missing}; the sync begins by itself when it is there (if autosync is on)");
        common.save(cx, Some(AfterSuper::Answer { id, result: CommandResult::Warning(text) }));
    }

    pub fn demote(&mut self, common: &mut GroupCommon, cx: &mut Cx, id: CommandId) {
        if common.role() != Role::Primary {
            let text = "already secondary; nothing to do".into();
            return cx.answer(id, CommandResult::Unchanged(text));
        }
        cx.out.push_back(Output::Serve { group: common.id(), open: false });
        self.reconcile.stop(common);
        self.wanted.forget_orders();
        let deadline = cx.now.mono.plus(limits::DRAIN_LIMIT);
        common.lifecycle.enter(Phase::Demoting { id, deadline });
        // One of an earlier demotion may be left.
        cx.timers.set(TimerKey::Group(common.id(), GroupTimer::Drain), deadline);
    }

    /// Nothing is read for a sync that waits to go on.
    pub fn waits_to_resume(&self, common: &GroupCommon) -> bool {
        self.catch_up.resumes && matches!(self.state(common), State::Paused(_))
    }
}

/// An operator is asked whose content counts: why nothing but his word moves anything.
pub(crate) fn open_choice(peer: &Peer, common: &GroupCommon) -> Option<Refusal> {
    let is_asked = peer.reconcile.asks_operator() || common.waits_for_choice();
    if common.role() != Role::Primary || !(is_asked || common.sb.changed_outside) {
        return None;
    }
    let why =
        if is_asked { peer.reconcile.shown_reason(common, &peer.greeting) } else { crate::CHANGED_OUTSIDE.into() };
    Some(Refusal::new(RefusalCode::ChoiceNeeded, format!("an operator has to choose whose content counts: {why}")))
}

/// What an operator is told whose `sync` has nothing to begin; `None`: it has. A full one that is under way does not begin anew.
pub(crate) fn under_way(peer: &Peer, common: &GroupCommon, full: bool) -> Option<CommandResult> {
    let state = peer.state(common);
    let does_it = if full { peer.outbox.syncs() && peer.catch_up.full } else { state.sends() };
    if !does_it {
        return None;
    }
    let text = match (state, peer.outbox.queued().0.bytes) {
        (State::Paused(_), _) if peer.catch_up.resumes => format!("under way already: {}", common.standing.why()),
        (State::Paused(pause), _) => format!("under way already, and paused: {}", pause.words()),
        _ if full => FULL_UNDER_WAY.into(),
        (State::Syncing, _) => "a sync is under way already".into(),
        (_, 0) if reads_regions(peer) => {
            "in step but for what could not be written here, which is read again and sent by itself".into()
        }
        (state, 0) => {
            let text = "the group is already in step; nothing to do".into();
            // A region stays dirty until this node has flushed it too: whoever is told that nothing differs can rely on the record.
            let is_reached = state == State::Replicating && common.volumes.dirty_bytes_to_send() == 0;
            return Some(if is_reached { CommandResult::Unchanged(text) } else { CommandResult::Done(text) });
        }
        (_, bytes) => {
            format!("{} of writes are on their way to the peer, in their order; nothing to do", ShownSize(bytes))
        }
    };
    Some(CommandResult::Done(text))
}
