//! What a meeting of the two nodes of a group comes to: the peer says who it is and where it stands, and what follows is decided.

use crate::Event;
use crate::common::Common;
use crate::common::Phase;
use crate::context::Cx;
use crate::formats::identity::{Decision, Role, Row, Why, row, row_back, went_back};
use crate::formats::wire::GroupHello;
use crate::group::Group;
use crate::primary::Primary;
use crate::shared::marks::Mark;
use crate::state::{Mode, Policy, State};

impl Group {
    pub fn peer_hello(&mut self, cx: &mut Cx, hello: GroupHello) {
        if self.common.is_starting() {
            // Who this node is, is not known yet.
            self.common.early_hello = Some(hello);
            return;
        }
        if !self.primary.fits(&mut self.common, cx, &hello) {
            return;
        }
        self.secondary.take_peer_hello(&mut self.common, hello);
        self.meet_peer(cx);
        self.bits_saved(cx);
        self.primary.peer.tell_primary_state(&mut self.common, cx);
        self.primary.peer.send_tick(&mut self.common, cx);
    }

    /// The peer's role or health changed within the session.
    pub fn peer_changed(&mut self, cx: &mut Cx, hello: GroupHello) {
        if self.common.is_starting() {
            self.common.early_hello = Some(hello);
            return;
        }
        self.primary.peer.stall.moved(cx.now.mono);
        let failed = hello.failed;
        let promoted = hello.identity.role == Role::Primary;
        if failed || promoted {
            self.primary.peer.stop_asking();
        }
        // A change of roles may turn sizes that were fine into ones that are not.
        if !self.primary.fits(&mut self.common, cx, &hello) {
            return;
        }
        self.secondary.take_peer_hello(&mut self.common, hello);
        if failed {
            return self.primary.peer_failed(&mut self.common, cx);
        }
        if promoted && !matches!(self.common.phase, Phase::Running) {
            // Whatever this node is in the middle of, its stream has nobody any more who receives it.
            self.primary.fail_held(&mut self.common, cx);
            self.primary.fall_if_primary(&mut self.common, cx, "the peer was promoted");
        }
        if self.common.state == State::Logging || promoted {
            self.meet_peer(cx);
            self.bits_saved(cx);
        }
    }
}

impl Primary {
    /// The peer is connected and of no use: to its writers that is as good as a lost link, and the policy says whether they
    /// are held.
    fn peer_failed(&mut self, common: &mut Common, cx: &mut Cx) {
        let why = "the peer reports that its half of the group has failed; see 'status' there";
        let holds = matches!(common.settings.policy, Policy::Hold(_) | Policy::Strict);
        let promises = matches!(common.settings.mode, Mode::Sync | Mode::Nearsync);
        if common.role() == Role::Primary && holds && promises && self.peer.stream.is_some() {
            return self.stream_lost(common, cx, why);
        }
        self.fall_if_primary(common, cx, why);
    }

    fn fall_if_primary(&mut self, common: &mut Common, cx: &mut Cx, why: &str) {
        if common.role() == Role::Primary && !matches!(common.state, State::Failed(_)) {
            self.fall_to_logging(common, cx, why);
        }
    }

    /// Whether the peer's half can be worked with; if not, both ends say why, and nothing is sent.
    pub fn fits(&mut self, common: &mut Common, cx: &mut Cx, hello: &GroupHello) -> bool {
        let unfit = features_missing(hello).or_else(|| common.sizes_disagree(hello));
        let Some(what) = &unfit else {
            if common.unfit.take().is_some() && common.role() == Role::Secondary {
                common.reason.clear();
            }
            return true;
        };
        common.hello = None;
        cx.event(common.id(), Event::Note(what.clone()));
        self.fail_held(common, cx);
        self.fall_if_primary(common, cx, what);
        if common.role() == Role::Secondary {
            common.reason.clone_from(what);
        }
        common.unfit = unfit;
        false
    }
}

impl Group {
    pub fn decision(&self) -> Option<Decision> {
        self.decided().map(|(_, decision)| decision)
    }

    /// On a primary: the decision, and the row of the table it comes from.
    fn decided(&self) -> Option<(Row, Decision)> {
        let hello = self.common.hello.as_ref().filter(|_| self.common.role() == Role::Primary)?;
        let (ours, theirs) = (self.primary.peer.identity_sent(&self.common), &hello.identity);
        let earliest = self.common.sb.current.confirmed.earliest(theirs, hello.dirty_bytes);
        if let Some(decision) = went_back(earliest, &ours, theirs) {
            return Some((row_back(earliest, theirs), decision));
        }
        let row = row(&ours, theirs, self.primary.peer.unbroken());
        Some((row, row.decision(&ours, theirs)))
    }

    pub fn peer_went_back(&self) -> bool {
        matches!(self.decision(), Some(Decision::NeedsFullSync(Why::PeerWentBack { .. })))
    }

    pub fn meet_peer(&mut self, cx: &mut Cx) {
        if self.common.role() != Role::Primary
            || !matches!(self.common.phase, Phase::Running)
            || matches!(self.common.state, State::Failed(_))
        {
            return;
        }
        let Some((row, decision)) = self.decided() else { return };
        let Some(hello) = &self.common.hello else { return };
        let (granted, failed) = (hello.granted_bytes, hello.failed);
        cx.event(self.common.id(), Event::Decided { row, decision });
        if !failed && !matches!(decision, Decision::Continue(_)) {
            self.primary.fail_held(&mut self.common, cx);
        }
        match decision {
            _ if failed => self.primary.peer_failed(&mut self.common, cx),
            Decision::Continue(_) | Decision::UpdateSync if !self.settle(cx) => {
                if self.primary.peer.stream.is_some() {
                    self.primary.fail_held(&mut self.common, cx);
                    self.primary.fall_to_logging(&mut self.common, cx, "the peer holds differences of its own");
                }
            }
            Decision::Continue(received) if self.primary.peer.stream.is_some() => {
                self.primary.continue_stream(&mut self.common, cx, received, granted);
                self.primary.peer.wanted_update = false;
                if self.primary.peer.full_is_wanted(&self.common) {
                    self.sync_in_turn(cx, true);
                }
            }
            Decision::Continue(_) | Decision::UpdateSync => {
                self.primary.fall_to_logging(&mut self.common, cx, "the link is up, a sync is due");
                self.try_autosync(cx);
            }
            Decision::NeedsFullSync(why) => {
                self.primary.fall_to_logging(&mut self.common, cx, &alloc::format!("{why}"));
                if self.primary.peer.full_is_wanted(&self.common) {
                    // The operator has asked for it already, and it waited for its turn.
                    self.sync_in_turn(cx, true);
                } else {
                    self.settle_fork(cx);
                }
            }
            Decision::Refuse(why) => {
                cx.marks.hit(Mark::ForkRefused);
                self.primary.fall_to_logging(&mut self.common, cx, &alloc::format!("{why}"));
            }
            Decision::Idle => {}
        }
    }
}

/// Rule 23: a peer that cannot do without something this program does not know is refused.
fn features_missing(hello: &GroupHello) -> Option<alloc::string::String> {
    let unknown = hello.required & !crate::formats::wire::FEATURES_KNOWN;
    (unknown != 0).then(|| {
        alloc::format!(
            "the peer runs a newer farshore and needs features this one does not have (bits {unknown:#x}); upgrade this node"
        )
    })
}
