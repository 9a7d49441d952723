//! What a meeting of the two nodes of a group comes to: the peer says who it is and where it stands, and what follows is decided.

use crate::Event;
use crate::common::Phase;
use crate::context::Cx;
use crate::formats::identity::{Decision, Role, Row, Why, row, row_back, went_back};
use crate::formats::wire::GroupHello;
use crate::group::Group;
use crate::shared::marks::Mark;
use crate::state::{Mode, Policy, State};

impl Group {
    pub fn peer_hello(&mut self, cx: &mut Cx, hello: GroupHello) {
        if self.is_starting() {
            // Who this node is, is not known yet.
            self.common.early_hello = Some(hello);
            return;
        }
        if !self.fits(cx, &hello) {
            return;
        }
        self.take_peer_hello(hello);
        self.meet_peer(cx);
        self.tell_primary_state(cx);
        self.send_tick(cx);
    }

    /// The peer's role or health changed within the session.
    pub fn peer_changed(&mut self, cx: &mut Cx, hello: GroupHello) {
        if self.is_starting() {
            self.common.early_hello = Some(hello);
            return;
        }
        self.primary.peer.stall.moved(cx.now.mono);
        let failed = hello.failed;
        let promoted = hello.identity.role == Role::Primary;
        if failed || promoted {
            self.stop_asking();
        }
        // A change of roles may turn sizes that were fine into ones that are not.
        if !self.fits(cx, &hello) {
            return;
        }
        self.take_peer_hello(hello);
        if failed {
            return self.peer_failed(cx);
        }
        if promoted && !matches!(self.common.phase, Phase::Running) {
            // Whatever this node is in the middle of, its stream has nobody any more who receives it.
            self.fail_held(cx);
            self.fall_if_primary(cx, "the peer was promoted");
        }
        if self.common.state == State::Logging || promoted {
            self.meet_peer(cx);
        }
    }

    /// The peer is connected and of no use: to its writers that is as good as a lost link, and the policy says whether they
    /// are held.
    fn peer_failed(&mut self, cx: &mut Cx) {
        let why = "the peer reports that its half of the group has failed; see 'status' there";
        let holds = matches!(self.common.settings.policy, Policy::Hold(_) | Policy::Strict);
        let promises = matches!(self.common.settings.mode, Mode::Sync | Mode::Nearsync);
        if self.role() == Role::Primary && holds && promises && self.primary.peer.stream.is_some() {
            return self.stream_lost(cx, why);
        }
        self.fall_if_primary(cx, why);
    }

    fn fall_if_primary(&mut self, cx: &mut Cx, why: &str) {
        if self.role() == Role::Primary && !matches!(self.common.state, State::Failed(_)) {
            self.fall_to_logging(cx, why);
        }
    }

    /// Whether the peer's half can be worked with; if not, both ends say why, and nothing is sent.
    pub fn fits(&mut self, cx: &mut Cx, hello: &GroupHello) -> bool {
        let unfit = features_missing(hello).or_else(|| self.sizes_disagree(hello));
        let Some(what) = &unfit else {
            if self.common.unfit.take().is_some() && self.role() == Role::Secondary {
                self.common.reason.clear();
            }
            return true;
        };
        self.common.hello = None;
        cx.event(self.id(), Event::Note(what.clone()));
        self.fail_held(cx);
        self.fall_if_primary(cx, what);
        if self.role() == Role::Secondary {
            self.common.reason.clone_from(what);
        }
        self.common.unfit = unfit;
        false
    }

    pub fn decision(&self) -> Option<Decision> {
        self.decided().map(|(_, decision)| decision)
    }

    /// The decision, and the row of the table it comes from.
    fn decided(&self) -> Option<(Row, Decision)> {
        let hello = self.common.hello.as_ref()?;
        let (ours, theirs) = (self.identity(), &hello.identity);
        let earliest = self.common.sb.current.confirmed.earliest(theirs, hello.dirty_bytes);
        if let Some(decision) = went_back(earliest, &ours, theirs) {
            return Some((row_back(earliest, theirs), decision));
        }
        let row = row(&ours, theirs, self.unbroken());
        Some((row, row.decision(&ours, theirs)))
    }

    pub fn peer_went_back(&self) -> bool {
        matches!(self.decision(), Some(Decision::NeedsFullSync(Why::PeerWentBack { .. })))
    }

    pub fn meet_peer(&mut self, cx: &mut Cx) {
        if self.role() != Role::Primary
            || !matches!(self.common.phase, Phase::Running)
            || matches!(self.common.state, State::Failed(_))
        {
            return;
        }
        let Some((row, decision)) = self.decided() else { return };
        let Some(hello) = &self.common.hello else { return };
        let (granted, failed) = (hello.granted_bytes, hello.failed);
        cx.event(self.id(), Event::Decided { row, decision });
        if !failed && !matches!(decision, Decision::Continue(_)) {
            self.fail_held(cx);
        }
        match decision {
            _ if failed => self.peer_failed(cx),
            Decision::Continue(_) | Decision::UpdateSync if !self.settle(cx) => {
                if self.primary.peer.stream.is_some() {
                    self.fail_held(cx);
                    self.fall_to_logging(cx, "the peer holds differences of its own");
                }
            }
            Decision::Continue(received) if self.primary.peer.stream.is_some() => {
                self.continue_stream(cx, received, granted);
                self.primary.peer.wanted_update = false;
                if self.full_is_wanted() {
                    self.sync_in_turn(cx, true);
                }
            }
            Decision::Continue(_) | Decision::UpdateSync => {
                self.fall_to_logging(cx, "the link is up, a sync is due");
                self.try_autosync(cx);
            }
            Decision::NeedsFullSync(why) => {
                self.fall_to_logging(cx, &alloc::format!("{why}"));
                if self.full_is_wanted() {
                    // The operator has asked for it already, and it waited for its turn.
                    self.sync_in_turn(cx, true);
                } else {
                    self.settle_fork(cx);
                }
            }
            Decision::Refuse(why) => {
                cx.marks.hit(Mark::ForkRefused);
                self.fall_to_logging(cx, &alloc::format!("{why}"));
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
