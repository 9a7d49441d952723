//! A fork is resolved: an operator chose this primary's content. The order lives in memory until it can be recorded.
//!
//! ```text
//! Keep -> the peer yields -> bits joined -> the union named to the peer -> saved there -> on record -> update sync
//! ```
//! Nothing of the peer is overwritten before the record. Whatever ends the order earlier leaves both sides as they were, but for the
//! role of one that has yielded.

use crate::SendPayload;
use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::fork::{ForkSide, is_covered_by_bits};
use crate::formats::identity::{DecisionRow, Identity, Role, row, was_promoted_over, went_back};
use crate::formats::wire::{FrameHeader, FrameKind, GroupHello, flags};
use crate::ids::{CommandId, Position, Seq};
use crate::injected_fault::{Fault, injected};
use crate::peer::Peer;
use crate::records::record::AfterSuper;
use crate::settings::Settings;
use crate::shared::bits_walk::BitsWalk;
use crate::state::{AfterForcedFailover, Mode};
use crate::status::PolicyStep;
use crate::time::Mono;
use crate::{Refusal, RefusalCode};
use alloc::format;

/// An operator's order to keep this node's content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForkOrder {
    pub id: CommandId,
    /// The tag of the peer's generation that was looked at.
    pub over: u64,
    pub discard: bool,
    /// The tag of this node's own generation then.
    pub own: u64,
    /// Nobody typed it: it ends with the policy.
    pub by_policy: bool,
    /// The peer was primary when this was ordered: only a demotion for this order counts.
    pub awaits_yield: bool,
    /// By then the peer is demoted; or the bits are joined; or what the peer holds is saved.
    pub deadline: Mono,
    /// The session in which it was given has ended.
    pub is_over: bool,
    pub stage: ForkStage,
}

/// How far it has come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ForkStage {
    AwaitsYield,
    /// The bits of both are joined here.
    Joins,
    /// They are named to the peer.
    Names {
        question: Seq,
        walk: BitsWalk,
    },
    /// The peer saves what it holds there.
    AwaitsDelta {
        question: Seq,
    },
}

/// This node as a side of a fork.
pub(crate) fn own_side(common: &GroupCommon, identity: Identity) -> ForkSide {
    let sb = &common.sb;
    ForkSide { identity, confirmed: sb.confirmed_at_last(), went_back_to: sb.went_back_to }
}

/// How this primary's history and a peer's relate, whichever role that has.
fn row_over(common: &GroupCommon, hello: &GroupHello) -> DecisionRow {
    let theirs = Identity { role: Role::Secondary, ..hello.identity };
    row(&common.identity_sent(), &theirs, None)
}

/// The histories parted, and each was written on.
fn is_fork(row: DecisionRow) -> bool {
    matches!(row, DecisionRow::LoneTail | DecisionRow::Tail | DecisionRow::BothWentOn | DecisionRow::PeerIsNewer)
}

/// The history of this primary is to be a twin of the peer's before it can be a source: that one grew out of it.
pub(crate) fn needs_generation(common: &GroupCommon, hello: &GroupHello) -> bool {
    row_over(common, hello) == DecisionRow::PeerIsNewer
}

/// The bits of both cover what differs, and a sync would say so too. A peer of such a fork stands by what it confirmed, if both tell the
/// truth; records that contradict themselves are asked all the same, as that sync would wait for an operator.
pub(crate) fn is_resolvable(common: &GroupCommon, hello: &GroupHello) -> bool {
    let (ours, theirs) = (common.identity_sent(), Identity { role: Role::Secondary, ..hello.identity });
    let earliest = common.sb.confirmed.earliest(&theirs, hello.dirty_bytes);
    let stands_by_its_word = went_back(earliest, &ours, &theirs).is_none();
    let is_covered = is_covered_by_bits(&own_side(common, ours), &ForkSide::of(hello));
    is_fork(row_over(common, hello)) && stands_by_its_word && is_covered
}

/// A choice is on its way to the record.
pub(crate) fn is_being_recorded(common: &GroupCommon) -> bool {
    common.sb.awaits(|then| matches!(then, AfterSuper::ForkKept { .. }))
}

/// What the peer held over which this node's content was chosen, once that is on record; 0: nothing.
pub(crate) fn kept_over(common: &GroupCommon) -> u64 {
    if is_being_recorded(common) { 0 } else { common.sb.kept_over }
}

/// This node's content was chosen over what this peer holds, on record.
pub(crate) fn is_kept_over(common: &GroupCommon, theirs: &Identity) -> bool {
    let kept = kept_over(common);
    kept != 0 && kept == theirs.stand()
}

/// What a hello says of whom this node is kept over: the tag of the peer's generation; 0: nobody.
pub(crate) fn keeps_over(peer: &Peer, common: &GroupCommon) -> u64 {
    let theirs = peer.greeting.hello().map(|hello| hello.identity);
    let kept = theirs.filter(|theirs| common.sb.kept_over == theirs.stand()).map_or(0, |theirs| theirs.generation.tag);
    peer.fork.map_or(kept, |order| order.over)
}

/// What a peer may be asked of a fork, and why not.
fn unusable(peer: &Peer) -> Result<&GroupHello, Refusal> {
    if let Some(what) = peer.greeting.unfit() {
        return Err(Refusal::new(RefusalCode::PeerUnfit, what));
    }
    let Some(hello) = peer.greeting.hello() else {
        return Err(Refusal::new(
            RefusalCode::PeerAway,
            "the peer, or its half of the group, is not there: a fork can only be resolved when both nodes are",
        ));
    };
    if hello.failed {
        return Err(Refusal::new(RefusalCode::PeerFailed, crate::shared::greeting::PEER_FAILED));
    }
    Ok(hello)
}

/// Why this node's content cannot be kept over the peer's; `Ok(false)`: it is kept already.
pub(crate) fn may_keep(peer: &Peer, common: &GroupCommon, over: u64) -> Result<bool, Refusal> {
    let refusal = |code, why: &str| Err(Refusal::new(code, why));
    if common.role() != Role::Primary {
        let why = "this node is the secondary, and only a primary's content can be kept: 'farshore promote GROUP --force' here first, or \
                   keep the other node's";
        return refusal(RefusalCode::NotPrimary, why);
    }
    if common.settings.mode == Mode::Logging {
        let why = "the mode is 'logging'; first 'set GROUP mode=async' (or sync, nearsync)";
        return refusal(RefusalCode::ModeLogging, why);
    }
    let hello = unusable(peer)?;
    let theirs = hello.identity.generation;
    let is_kept = is_kept_over(common, &hello.identity) && over == theirs.tag && is_resolvable(common, hello);
    if theirs == common.sb.identity.generation || is_kept {
        return Ok(false);
    }
    if theirs.tag != over || hello.keeps_over == common.sb.identity.generation.tag {
        return Err(Refusal::new(RefusalCode::ForkChanged, changed(hello, common)));
    }
    let row = row_over(common, hello);
    if matches!(row, DecisionRow::Unrelated | DecisionRow::PeerWentFurther) {
        return Err(unbounded());
    }
    if !is_fork(row) {
        let why =
            "the histories of the two nodes did not part at one position: 'farshore status GROUP' says how they relate";
        return refusal(RefusalCode::NoFork, why);
    }
    if !is_resolvable(common, hello) {
        return Err(unbounded());
    }
    // The size of a disk that is gone says nothing: the one that comes in its place is looked at again.
    let sizes = hello.volume_bytes.iter().zip(common.volumes.iter());
    let mut in_use = sizes.filter(|(_, ours)| !ours.is_detached());
    if hello.volume_bytes.len() != common.volumes.len() || in_use.any(|(theirs, ours)| *theirs < ours.size_bytes()) {
        return refusal(
            RefusalCode::PeerUnfit,
            "the peer's volumes are smaller than this node's, so it cannot follow: enlarge its devices and restart farshore there",
        );
    }
    Ok(true)
}

/// What `after_forced_failover` has this node do, if both nodes have it, one of them alone was promoted since they parted, and both are in
/// the run in which they did. Nothing is ever discarded by it.
pub(crate) fn step_of_policy(peer: &Peer, common: &GroupCommon) -> Option<PolicyStep> {
    let hello = peer.greeting.hello()?;
    let over = hello.identity.generation.tag;
    if hello.keeps_by_policy && would_yield(peer, common) && may_yield(peer, common, over).is_ok() {
        return Some(PolicyStep::Yield { to: over });
    }
    let is_free = peer.fork.is_none() && !is_being_recorded(common);
    // One that was started again may be an older copy, with fewer bits than it set; injected: whoever it is.
    let is_in_its_run = peer.promoted_run == Some(common.sb.identity.incarnation) || injected(Fault::PolicyKeepsEither);
    let is_promoted = is_in_its_run
        && was_promoted_over(&common.identity_sent(), &hello.identity)
        && !began_with_rollback(&common.sb.identity, common.sb.went_back_to);
    let keeps = is_promoted && is_free && hello.would_yield && may_keep_by_policy(peer, common);
    (keeps && matches!(may_keep(peer, common, over), Ok(true))).then_some(PolicyStep::Keep { over })
}

/// By the policy this primary would give its content up for that of its peer. The peer follows it no further than this node sent: else it
/// is this node that was set back, with its memory.
pub(crate) fn would_yield(peer: &Peer, common: &GroupCommon) -> bool {
    let Some(hello) = peer.greeting.hello().filter(|_| follows_policy(peer, common)) else { return false };
    let (ours, theirs) = (common.identity_sent(), hello.identity);
    let was_sent = theirs.parent.seq <= peer.outbox.sent_through() || injected(Fault::PolicyKeepsEither);
    let is_newest = !began_with_rollback(&theirs, hello.went_back_to);
    was_sent && is_newest && was_promoted_over(&theirs, &ours) && is_resolvable(common, hello)
}

/// The promotion went back to the image before a sync: what the other node wrote since, perhaps for hours, was on its way already.
fn began_with_rollback(promoted: &Identity, went_back_to: Position) -> bool {
    promoted.parent == went_back_to && !injected(Fault::PolicyKeepsEither)
}

/// This primary and its peer both say that a promoted node is kept.
fn follows_policy(peer: &Peer, common: &GroupCommon) -> bool {
    let keeps = |settings: &Settings| settings.after_forced_failover == AfterForcedFailover::KeepPromoted;
    let both_keep = keeps(&common.settings) && peer.greeting.settings().is_some_and(|theirs| keeps(&theirs));
    let is_at_work = common.role() == Role::Primary && common.lifecycle.is_running() && !common.has_failed();
    // Where an operator is asked something else first, or holds the group, he answers this, too. Of a volume that is set aside the peer's
    // copy was older before they parted, and nobody's forced failover chose it.
    let lacks_volume = !common.sb.aside.is_empty() && !injected(Fault::PolicyKeepsEither);
    let asks = common.sb.changed_outside || common.waits_for_choice() || common.sb.held_in_logging || lacks_volume;
    both_keep && is_at_work && peer.greeting.is_primary() && !asks
}

/// What is kept is sent without an order.
fn may_keep_by_policy(peer: &Peer, common: &GroupCommon) -> bool {
    follows_policy(peer, common) && common.settings.autosync
}

/// An order that nobody typed, before the other node has yielded to it.
fn is_of_no_policy(peer: &Peer, common: &GroupCommon, order: &ForkOrder) -> bool {
    let awaits = matches!(order.stage, ForkStage::AwaitsYield) && order.awaits_yield && peer.greeting.is_primary();
    order.by_policy && awaits && !may_keep_by_policy(peer, common)
}

pub(crate) fn unbounded() -> Refusal {
    Refusal::new(
        RefusalCode::ForkUnbounded,
        "it is not known which blocks differ: one side was promoted from an older copy than it had confirmed, both were promoted since they \
         parted, or the records of one are old. \
         Nothing was changed; demote the node whose content is to go, then 'farshore sync GROUP --full' on the other one. Where that is \
         refused, as the node that is kept was primary before: 'farshore demote' there, 'farshore promote --force' there, and then the sync",
    )
}

/// Who looked at something else.
fn changed(hello: &GroupHello, common: &GroupCommon) -> alloc::string::String {
    if hello.keeps_over == common.sb.identity.generation.tag {
        return "the other node keeps its own content, by an order that was typed there: only one of the two can be kept".into();
    }
    format!(
        "the other node is in generation {} now, and that is not the one that was looked at: look at both nodes again",
        hello.identity.generation
    )
}

/// Why this primary is not demoted for the peer of that generation.
pub(crate) fn may_yield(peer: &Peer, common: &GroupCommon, to: u64) -> Result<(), Refusal> {
    let hello = unusable(peer)?;
    if peer.awaits_word && !injected(Fault::YieldsToOldWord) {
        let why = "an order to keep this node's content has just come to nothing, and the peer has not said yet what became of its own";
        return Err(Refusal::new(RefusalCode::NotKept, why));
    }
    if hello.identity.generation.tag != to || peer.fork.is_some() {
        return Err(Refusal::new(RefusalCode::ForkChanged, changed(hello, common)));
    }
    if hello.identity.role != Role::Primary || hello.keeps_over != common.sb.identity.generation.tag {
        let why = "the peer is not known to keep its content over this node's: 'farshore resolve GROUP --keep NODE' orders both in turn";
        return Err(Refusal::new(RefusalCode::NotKept, why));
    }
    Ok(())
}

/// Why an order has come to its end before it could be recorded.
pub(crate) fn ends_order(peer: &Peer, common: &GroupCommon, cx: &Cx, order: &ForkOrder) -> Option<Refusal> {
    let refusal = |code, why: &str| Some(Refusal::new(code, why));
    if common.role() != Role::Primary || !common.lifecycle.is_running() || common.has_failed() {
        return refusal(
            RefusalCode::NotYielded,
            "this node changed its role, failed or is being stopped: nothing was overwritten",
        );
    }
    let session_ended = Refusal::new(RefusalCode::PeerAway, "the link, or the half of one node, began anew");
    let hello = match unusable(peer).and_then(|hello| if order.is_over { Err(session_ended) } else { Ok(hello) }) {
        Ok(hello) => hello,
        Err(why) => {
            let text = format!("{}; nothing was overwritten: type it again when it is there", why.text);
            return Some(Refusal::new(why.code, text));
        }
    };
    if hello.identity.generation.tag != order.over || hello.keeps_over == common.sb.identity.generation.tag {
        return Some(Refusal::new(RefusalCode::ForkChanged, changed(hello, common)));
    }
    if is_of_no_policy(peer, common, order) {
        let why =
            "'after_forced_failover' was changed, or an operator holds what would be sent: nothing was overwritten";
        return refusal(RefusalCode::ForkChanged, why);
    }
    let is_late = cx.now.mono >= order.deadline;
    match order.stage {
        ForkStage::AwaitsYield if peer.greeting.is_primary() && is_late => {
            refusal(RefusalCode::NotYielded, "the other node was not demoted in time: nothing was overwritten")
        }
        ForkStage::AwaitsYield if !peer.greeting.is_primary() && order.awaits_yield => {
            let yielded = hello.yields_to == order.own || injected(Fault::AnyDemotionYields);
            let why = "the other node was demoted, and not for this order: nothing was overwritten";
            if yielded { None } else { refusal(RefusalCode::NotYielded, why) }
        }
        ForkStage::Names { .. } | ForkStage::AwaitsDelta { .. } if is_late => {
            let why = "the other node has not saved what it holds where the two differ in time, or its answer is lost ('farshore log' there): \
                       nothing was overwritten";
            refusal(RefusalCode::DeltaFailed, why)
        }
        ForkStage::Joins if is_late => {
            let why = "what the other node wrote could not be recorded here in time: nothing was overwritten";
            refusal(RefusalCode::NotYielded, why)
        }
        _ => None,
    }
}

/// The next frame of what is named to the peer.
pub(crate) fn next_union(peer: &mut Peer, common: &GroupCommon, cx: &Cx) -> Option<(FrameHeader, SendPayload)> {
    let order = peer.fork.as_mut()?;
    let ForkStage::Names { question, walk } = &mut order.stage else { return None };
    let header = FrameHeader { seq: *question, ..FrameHeader::new(FrameKind::Union, cx.peer.session, common.id()) };
    let mut frame = walk.next(header, &common.volumes);
    if frame.0.flags & flags::LAST != 0 {
        frame.0.length = walk.frames();
        order.stage = ForkStage::AwaitsDelta { question: *question };
    }
    Some(frame)
}
