//! Demotion and promotion, by hand: the operator demotes one side, then promotes the other. A promotion takes a new
//! generation that names where it left the old one, durable before the first write is served (rule 5).

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::formats::wire::{FrameKind, GroupHello};
use crate::group::demotion::{become_secondary, save_demotion};
use crate::group::meeting::take_up;
use crate::group::{Group, handover, lent, peer_window};
use crate::ids::*;
use crate::injected_fault::{Fault, injected};
use crate::peer::Peer;
use crate::records::bits::AfterBits;
use crate::records::record::AfterSuper;
use crate::secondary::roles::unfilled;
use crate::secondary::rollback::{stands_at_point, take_undone};
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::Greeting;
use crate::shared::lifecycle::{Phase, Promotion, PromotionProviso};
use crate::shared::promotion::{BOTH_PRIMARY, NOT_HERE, PromotionAnswer, loses_nothing};
use crate::shared::size::ShownSize;
use crate::state::{Broken, Mode};
use crate::status::HandoverStage;
use crate::time::Mono;
use crate::{CommandResult, RefusalCode};

impl Group {
    pub fn proceed_demote(&mut self, cx: &mut Cx, id: CommandId, deadline: Mono) {
        let overdue = cx.now.mono >= deadline;
        if overdue {
            self.primary.fail_waiting(&mut self.common, cx);
        }
        if self.common.has_failed() {
            self.common.lifecycle.enter(Phase::Running);
            let why = "a volume failed while the group was being drained; it stays primary, and failed";
            return cx.refuse(id, RefusalCode::StoreFailed, why);
        }
        if overdue {
            self.primary.abort_sync(&mut self.common, cx);
        }
        if !self.common.is_at_rest(cx) || !self.primary.peer.reconcile.pulled_is_durable(&mut self.common, cx) {
            return;
        }
        if self.primary.peer.outbox.drains() && !overdue && !injected(Fault::HandoverWithoutDrain) {
            return;
        }
        // Not running until the new role is durable: no request, no frame is accepted meanwhile.
        self.common.lifecycle.enter(Phase::Recording);
        // A secondary has no activity log: what it would find after a crash stands in the bitmap first, and nothing else, or it would
        // hold that against what it follows.
        self.common.bits().save_exactly(cx, AfterBits::Demote { id });
    }

    pub fn record_demotion(&mut self, cx: &mut Cx, id: CommandId) {
        if let Some(broken) = self.common.lifecycle.broken() {
            // Another store failed while the bits were being stored.
            self.common.lifecycle.enter(Phase::Running);
            return cx.refuse(id, RefusalCode::StoreFailed, broken.words());
        }
        let (dirty_bytes, position) = (self.common.volumes.dirty_bytes(), self.common.last_position());
        // Also without a stream, if nothing was written since the last one had brought everything over.
        let all_there = self.primary.peer.outbox.stream_brought_all().unwrap_or_else(|| {
            self.common.sb.confirmed.position == position && self.primary.peer.greeting.stands_at(position)
        });
        // Of what the peer has no disk for, or one that nobody filled, it has nothing, whatever it confirmed.
        let has_all = |hello: &GroupHello| hello.detached.is_empty() && hello.unfilled.is_empty();
        let lacks_none = self.primary.peer.greeting.hello().is_none_or(has_all);
        // Nor is it known to have what a volume that rejoins was written beside the order, before a sync has taken the volume in.
        let owes_sync = self.primary.peer.wanted.owes_rejoin();
        let is_whole = lacks_none && self.common.sb.aside.is_empty() && !owes_sync;
        let clean = (all_there && dirty_bytes == 0 && is_whole) || injected(Fault::HandoverWithoutDrain);
        become_secondary(self, cx, clean, "demoted");
        let text = demoted_words(&self.primary.peer.greeting, self.common.sb.needs_verification(), clean, dirty_bytes);
        save_demotion(self, cx, id, text, !clean);
    }

    pub fn demoted(&mut self, cx: &mut Cx, id: CommandId, text: String, warn: bool) {
        if self.handover.is_at(HandoverStage::Recording) {
            return handover::grant(self, cx);
        }
        self.common.lifecycle.enter(Phase::Running);
        cx.event(self.common.id(), crate::Event::Demoted);
        self.say_hello(cx, FrameKind::GroupState);
        if let Some(broken) = self.common.lifecycle.broken() {
            let text = format!("{text}; but meanwhile this node failed: {}", broken.words());
            return cx.answer(id, CommandResult::Warning(text));
        }
        cx.answer(id, if warn { CommandResult::Warning(text) } else { CommandResult::Done(text) });
    }

    pub fn promote(&mut self, cx: &mut Cx, promotion: Promotion) {
        let Promotion { id, force, .. } = promotion;
        if self.common.role() == Role::Primary {
            let Peer { reconcile, greeting, .. } = &self.primary.peer;
            let closed = (!self.common.serves()).then(|| reconcile.shown_reason(&self.common, greeting));
            let text = already_primary(closed, greeting.is_primary());
            return cx.answer(id, CommandResult::Unchanged(text));
        }
        let identity = self.common.sb.identity;
        if identity.generation.is_blank() {
            let why = match identity.is_new() {
                true => "this node has never completed a sync: it holds no image of the group, --force or not",
                false => {
                    "a volume was written while farshore was stopped here: this copy is no image of the group any more, --force or not, \
                     before a sync from the other node has ended"
                }
            };
            return cx.refuse(id, RefusalCode::NoImage, why);
        }
        if self.secondary.promotable(&self.common).is_none() && !injected(Fault::PromoteMidSync) {
            cx.coverage.hit(CoveragePoint::PromoteRefusedMidSync);
            return cx.refuse(id, RefusalCode::SyncUnfinished, self.secondary.no_image());
        }
        if !force && let Some(why) = self.secondary.promote_needs_force(&self.common, cx, &self.primary.peer.greeting) {
            return cx.answer(id, CommandResult::Refused(why));
        }
        if let Some(why) = unfilled(&self.common)
            && !injected(Fault::UnfilledPromoted)
        {
            cx.coverage.hit(CoveragePoint::PromoteRefusedUnfilled);
            return cx.refuse(id, RefusalCode::VolumeUnfilled, why);
        }
        handover::take_back(self, cx);
        cx.coverage.hit(if force { CoveragePoint::PromotedForced } else { CoveragePoint::PromotedAfterHandover });
        if let Some(hello) = self.primary.peer.greeting.take_early() {
            // Out of a start that stands still: from here on the peer's newest word counts, and this is the first.
            take_up(&mut self.secondary, &mut self.primary.peer, hello);
        }
        if identity.inconsistent && !injected(Fault::PromoteMidSync) {
            self.secondary.begin_rollback(&mut self.common, cx, promotion);
            return;
        }
        // A sync that was about to begin has overwritten nothing yet.
        self.secondary.lost_session(cx);
        self.common.lifecycle.enter(Phase::Promoting(promotion));
    }

    pub fn proceed_promote(&mut self, cx: &mut Cx, promotion: Promotion) {
        if self.common.has_failed() {
            self.common.lifecycle.enter(Phase::Running);
            let why = "a store of this node failed while the journal was being applied";
            return cx.refuse(promotion.id, RefusalCode::StoreFailed, why);
        }
        self.secondary.replica.land(&mut self.common, cx);
        self.secondary.replica.waits_for_primary_no_more(&mut self.common);
        if !self.secondary.replica.replica_at_rest(&mut self.common, cx) {
            return;
        }
        self.store_promotion_bits(cx, promotion);
    }

    /// The volumes hold the image that is promoted.
    pub fn store_promotion_bits(&mut self, cx: &mut Cx, promotion: Promotion) {
        self.common.lifecycle.enter(Phase::Recording);
        let peer_ahead = self.secondary.peer_may_be_ahead(&self.common, &self.primary.peer.greeting);
        if promotion.force && peer_ahead {
            dirty_what_peer_may_lack(self);
        }
        let follows = |hello: &&GroupHello| !hello.failed && hello.identity.role == Role::Secondary;
        if let Some(hello) = self.primary.peer.greeting.hello().filter(follows) {
            if self.common.volumes.use_what_both_hold(&hello.volume_bytes) {
                cx.coverage.hit(CoveragePoint::GrewByPromotion);
            }
            self.common.sb.has_sizes(self.common.volumes.sizes());
        }
        self.common.bits().save(cx, AfterBits::Promote { promotion, peer_ahead });
    }

    /// `peer_ahead`: the peer may have what is not here, as was decided when the bits were stored.
    pub fn record_promotion(&mut self, cx: &mut Cx, promotion: Promotion, peer_ahead: bool) {
        let Promotion { id, force, proviso, entropy } = promotion;
        if let Some(broken) = self.common.lifecycle.broken() {
            self.common.lifecycle.enter(Phase::Running);
            return cx.refuse(id, RefusalCode::StoreFailed, broken.words());
        }
        let window = peer_window::left(self, cx.now.mono);
        if let Some((code, why)) = holds_no_more(self, proviso, window) {
            if proviso == PromotionProviso::SecondaryPeer {
                cx.coverage.hit(CoveragePoint::PromotionForPeerEnded);
            }
            // What it went back to is on record before that is all that is left.
            return self.common.save_in_both_slots(cx, AfterSuper::StaysSecondary { id, code, why });
        }
        let position = self.secondary.replica.progress().position();
        self.secondary.replica.empty_journal(&mut self.common);
        self.common.sb.keep_unverified_run(self.primary.peer.greeting.hello(), self.common.volumes.len());
        // Above the peer's too, where that is known: what the operator promotes is the newest there is.
        let peers = self.primary.peer.greeting.hello().map_or(0, |hello| hello.identity.generation.number);
        let takes_back = self.common.sb.takes_demotion_back();
        let aside = aside_words(&self.common);
        if aside.is_some() {
            cx.coverage.hit(CoveragePoint::PromotedWithoutVolume);
            cx.event(self.common.id(), crate::Event::PromotesWithout { volumes: self.common.sb.aside });
        }
        self.common.sb.promoted(position, (peers, entropy), (force, takes_back && !peer_ahead));
        let wall = self.secondary.replica.progress().applied_wall();
        self.common.numbers.begin_run(wall);
        self.primary.peer.begin_run(cx, wall, self.common.sb.identity.incarnation);
        self.common.volumes.iter_mut().for_each(|volume| volume.begin_run());
        self.common.volumes.set_aside(&self.common.sb.aside);
        let image = format!("sequence {} of generation {}, {wall}", position.seq.0, position.generation);
        let needs_verification = self.common.sb.needs_verification() && !self.common.sb.served_unverified;
        let nothing = window.map(loses_nothing);
        let missing = if needs_verification {
            Some("the peer follows after 'resolve --keep', or 'sync --full'".into())
        } else if takes_back && peer_ahead {
            Some(
                "the demotion is taken back; a peer that was not promoted meanwhile follows by itself, and all is sent to it; what one \
                 that was has written is not here"
                    .into(),
            )
        } else if force && peer_ahead {
            let lost = nothing.clone().unwrap_or_else(|| NOT_HERE.into());
            Some(format!("{lost}; the peer follows after 'resolve --keep', or 'sync --full'"))
        } else {
            None
        };
        let other_mode =
            serves_otherwise(self.common.sb.primary_mode, self.common.settings.as_set().mode).unwrap_or_default();
        let warn = force && peer_ahead || !other_mode.is_empty() || aside.is_some();
        let at = format!("promoted at {image}{}{}", take_undone(&mut self.secondary), aside.unwrap_or_default());
        let answer = PromotionAnswer { at, needs_verification, missing, loses_nothing: nothing, other_mode, warn };
        self.secondary.primary_report.forget();
        self.primary.peer.yields_to = 0;
        self.common.save_in_both_slots(cx, AfterSuper::Promoted { id, answer });
    }

    pub fn promoted(&mut self, cx: &mut Cx, id: CommandId, answer: PromotionAnswer) {
        self.common.lifecycle.enter(Phase::Running);
        let generation = self.common.sb.identity.generation;
        cx.event(self.common.id(), crate::Event::Promoted { generation });
        self.secondary.after_promotion(&self.common.config);
        self.secondary.empty_undo(&mut self.common);
        if let Some(broken) = self.common.lifecycle.broken() {
            cx.refuse(id, RefusalCode::RoleRecorded, failed_meanwhile(broken));
        } else {
            self.common.standing.explain("promoted");
            let peer = &mut self.primary.peer;
            peer.reconcile.open_or_fence(&mut self.common, cx, &peer.greeting);
            let silent = cx.peer.silent_for(cx.now.mono);
            let unheard = cx.peer.link.is_none() || silent > cx.peer.suspect_after();
            let is_primary = self.primary.peer.greeting.is_primary();
            cx.answer(id, answer.into_result(is_primary, Some(silent).filter(|_| unheard)));
        }
        self.say_hello(cx, FrameKind::GroupState);
        if self.primary.peer.greeting.hello().is_some_and(|hello| hello.grants) {
            // Whoever ordered the switchover wants the old primary to follow, also where nothing syncs by itself.
            self.primary.peer.wanted.order_update();
        }
        // As a primary it may be one that the peer does not fit.
        let hello = self.primary.peer.greeting.hello().cloned();
        if hello.is_none_or(|hello| self.primary.fits(&mut self.common, cx, &hello)) {
            self.primary.meet_peer(&mut self.common, cx);
        }
        // The session began while this node was secondary, and nobody has set the clock's timer.
        self.primary.peer.send_tick(&mut self.common, cx);
    }
}

/// A promotion came to nothing, perhaps behind a way back to the rollback point.
pub(super) fn stays_secondary(group: &mut Group, cx: &mut Cx, id: CommandId, (code, why): (RefusalCode, &str)) {
    group.common.lifecycle.enter(Phase::Running);
    stands_at_point(&mut group.secondary, &mut group.common);
    cx.refuse(id, code, why);
    // What the peer asked or began meanwhile has no answer here.
    group.common.end_session(cx, "this node was not promoted after all");
}

/// Why a promotion is not put on record after all.
fn holds_no_more(
    group: &Group,
    proviso: PromotionProviso,
    window: Option<Duration>,
) -> Option<(RefusalCode, &'static str)> {
    match proviso {
        PromotionProviso::Nothing => None,
        PromotionProviso::PeerWindow => window.is_none().then_some((
            RefusalCode::WindowClosed,
            "the peer window ended while the journal was being applied: this node stays secondary",
        )),
        PromotionProviso::SecondaryPeer if injected(Fault::LentBesidePrimary) => None,
        PromotionProviso::SecondaryPeer => lent::obstacle(group),
    }
}

/// The peer may be ahead, and what it wrote alone stands in its own bits: they are asked for before anything is sent to it. Here is
/// dirty what stands here, and there perhaps not (P3).
fn dirty_what_peer_may_lack(group: &mut Group) {
    let Group { common, secondary, .. } = group;
    if common.sb.takes_demotion_back() || common.sb.given_up > Seq::NONE {
        // One that follows by itself is not asked when it parted; and of what is kept no more nobody knows where it stands.
        return common.volumes.copies_mut().for_each(|copy| copy.dirty.set_all());
    }
    // What a primary has not flushed it loses with its power.
    for range in secondary.replica.journal().kept_ranges() {
        common.volumes.copy_of(range.volume).set_differs(range.offset, range.length);
    }
}

/// Volumes that are no part of the image that is promoted.
fn aside_words(common: &GroupCommon) -> Option<String> {
    let detached = common.volumes.detached();
    let named = common.sb.aside.without(&detached).named();
    let stands_here = named.map(|named| {
        format!(", without {named}: it was set aside, and what stands in it here is older than that image, or of several moments")
    });
    let nothing_here = detached.named().map(|named| format!(", without {named}: it is detached, and is not served"));
    let words = [stands_here, nothing_here].into_iter().flatten().collect::<String>();
    (!words.is_empty()).then_some(words)
}

/// What whoever promotes a primary is told. `closed`: why its export is. Who did not hear the answer to a promotion by force is warned again.
fn already_primary(closed: Option<String>, both_are_primary: bool) -> String {
    let closed = closed.map(|why| format!("; its export is closed: {why}")).unwrap_or_default();
    let both = if both_are_primary { format!("; {BOTH_PRIMARY}") } else { String::new() };
    format!("already primary; nothing to do{closed}{both}")
}

/// Another store failed while the promotion was being recorded: nothing is opened over it.
fn failed_meanwhile(broken: Broken) -> String {
    format!(
        "{}; the promotion is on record, but nothing is opened: put that right, then 'farshore reset GROUP' here: this node is the primary",
        broken.words()
    )
}

/// What a demotion came to, and what follows for a promotion of the peer, or for a peer that was promoted before.
fn demoted_words(peer: &Greeting, needs_verification: bool, clean: bool, dirty_bytes: u64) -> String {
    if clean {
        return "demoted; the peer has everything and may be promoted".into();
    }
    let dirty = ShownSize(dirty_bytes);
    let differs = match (dirty_bytes, needs_verification) {
        (0, false) => {
            "demoted; nothing here is known to differ from the peer, but it has not said that it has everything".into()
        }
        (_, false) => format!("demoted, but {dirty} here may differ from the peer"),
        (_, true) => format!(
            "demoted, but {dirty} here may differ from the peer, and it is not known what the peer confirmed before this node lost \
             power"
        ),
    };
    let there = match peer.hello() {
        None => "a promotion there, if the peer is not primary already, needs --force",
        Some(_) => "a promotion there needs --force",
    };
    let follows = match (dirty_bytes, needs_verification) {
        _ if peer.serves() => {
            "the peer is primary and goes on: 'farshore status GROUP' there says how this node follows it, which gives up what only \
             this node has"
                .into()
        }
        _ if peer.is_primary() => {
            "the peer is primary too and its half of the group has failed: 'farshore status GROUP' there says what is wrong".into()
        }
        (0, false) => there.into(),
        (_, false) => format!("{there} and gives that up"),
        (_, true) => format!("{there} and gives up what only this node has, one here asks the peer first"),
    };
    format!("{differs}; {follows}")
}

/// What is set on this node counts from now on, whatever the primary before had.
fn serves_otherwise(before: Option<Mode>, now: Mode) -> Option<String> {
    let before = before?;
    (before != now).then(|| {
        format!(
            "; it serves in mode {}, as set on this node, and the primary before it served in {}: 'farshore set GROUP mode={}' here \
             goes on with that",
            now.word(),
            before.word(),
            before.word()
        )
    })
}
