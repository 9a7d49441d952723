//! `assume-equal`: an operator declares that two copies without a common history hold the same. Nothing is sent but what is written from
//! then on. Both nodes keep on record that nobody has checked it, until a full verify or a full sync has ended (P3).
//!
//! The declaration is durable first, then bits are forgotten, then the peer takes up this history. Until it has, the histories are
//! unrelated and nothing but an operator's order goes over them: so bits that were forgotten too early are not missed.

use crate::common::GroupCommon;
use crate::context::Cx;
use crate::formats::identity::{Confirmed, Decision, DecisionReason, Role};
use crate::ids::CommandId;
use crate::peer::resync::HELD_IN_LOGGING;
use crate::peer::verify;
use crate::primary::Primary;
use crate::records::record::AfterSuper;
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::PEER_FAILED;
use crate::shared::peer_copy::PeerCopy;
use crate::state::{CopyDoubts, Mode};
use crate::{CommandResult, Event, Refusal, RefusalCode};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

fn refused(code: RefusalCode, why: impl Into<String>) -> CommandResult {
    CommandResult::Refused(Refusal::new(code, why))
}

pub(super) fn command(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx, id: CommandId) {
    if let Some(result) = why_not(primary, common, cx) {
        return cx.answer(id, result);
    }
    if common.sb.needs_verification() && !primary.reconcile(common, cx) {
        // The peer has nothing of the run that is unverified: that goes on record first.
        let why =
            "it is being recorded that this node lost nothing to the peer with its power: type it again in a moment";
        return cx.answer(id, refused(RefusalCode::GroupStarting, why));
    }
    let is_first = common.sb.doubts(CopyDoubts { assumed_equal: true, ..common.sb.doubts });
    if is_first {
        // He speaks of this moment: what is written from here on is sent, and what is under way as well.
        common.volumes.copies_mut().for_each(PeerCopy::freeze);
        let under_way: Vec<_> = common.slots.write_ops().into_iter().map(|op| op.range()).collect();
        for (volume, offset, length) in under_way {
            common.volumes.copy_of(volume).set_differs(offset, length);
        }
    }
    // Nothing else that he is asked for holds it.
    common.sb.sync_ordered();
    primary.peer.stall.ordered(cx.now.mono);
    common.save_in_both_slots(cx, AfterSuper::AssumedEqual { id, is_first });
}

/// The declaration is on record. Where it was made before, and came to nothing, what was written since is dirty, and stays so.
pub(super) fn recorded(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx, id: CommandId, is_first: bool) {
    if let Some(result) = overruled(common).or_else(|| why_not(primary, common, cx)) {
        if is_first && matches!(result, CommandResult::Refused(_)) {
            common.sb.doubts(CopyDoubts { assumed_equal: false, ..common.sb.doubts });
            common.save(cx, None);
            if primary.peer.outbox.is_apart() {
                common.volumes.copies_mut().for_each(|copy| copy.drop_snapshot(false));
            }
        }
        return cx.answer(id, result);
    }
    if is_first {
        // The bits speak of the copy that is declared equal from here on: one from before, put back in its place, went back.
        let position = common.last_position();
        common.sb.peer_confirmed(Confirmed { position, image: position });
        common.volumes.copies_mut().for_each(PeerCopy::assume_equal);
    }
    verify::begins_anew(&mut primary.peer, common, cx, "another copy was declared equal");
    cx.coverage.hit(CoveragePoint::AssumedEqual);
    let text = "the operator declared both copies equal: nothing but what is written from now on is sent, and nobody has compared them";
    cx.event(common.id(), Event::Note(text.into()));
    if primary.reconcile(common, cx) {
        primary.peer.begin_sync(common, cx, false);
    }
    let text =
        "both copies are taken for equal; that is unverified until 'farshore verify GROUP' has compared all of it";
    cx.answer(id, CommandResult::Done(text.into()));
}

/// What was ordered behind it, while it was being recorded.
fn overruled(common: &GroupCommon) -> Option<CommandResult> {
    if common.sb.held_in_logging {
        return Some(refused(RefusalCode::ModeLogging, HELD_IN_LOGGING));
    }
    let why = "a full sync was ordered, and all of it is to be sent";
    (!common.sb.doubts.assumed_equal).then(|| refused(RefusalCode::NotUnrelated, why))
}

/// Why nothing is to be declared; `None`: it may be.
fn why_not(primary: &Primary, common: &GroupCommon, cx: &Cx) -> Option<CommandResult> {
    if common.role() != Role::Primary {
        return Some(refused(RefusalCode::NotPrimary, "this node is the secondary; run 'assume-equal' on the primary"));
    }
    if common.has_failed() || !common.lifecycle.is_running() {
        return Some(refused(RefusalCode::RoleChanging, "the group stops, changes its role, or has failed"));
    }
    if common.settings.mode == Mode::Logging {
        let why = "the mode is 'logging'; first 'set GROUP mode=async' (or sync, nearsync)";
        return Some(refused(RefusalCode::ModeLogging, why));
    }
    let peer = &primary.peer;
    if let Some(what) = peer.greeting.unfit() {
        return Some(refused(RefusalCode::PeerUnfit, what));
    }
    let (Some(hello), Some(decision)) = (peer.greeting.hello(), peer.decision(common)) else {
        let (code, why) = match cx.peer.link {
            Some(_) => (RefusalCode::PeerSilent, "the peer's half of the group has not said who it is"),
            None => {
                (RefusalCode::PeerAway, "the peer is not connected: both copies are declared equal when it is there")
            }
        };
        return Some(refused(code, why));
    };
    if hello.failed {
        return Some(refused(RefusalCode::PeerFailed, PEER_FAILED));
    }
    let is_declared = common.sb.doubts.assumed_equal;
    match decision {
        Decision::Refuse(why) => return Some(refused(RefusalCode::HistoriesApart, format!("{why}"))),
        Decision::NeedsFullSync(
            DecisionReason::NeverSynced | DecisionReason::CopyLost | DecisionReason::Unrelated { .. },
        ) => {}
        Decision::NeedsFullSync(why) => {
            let why = format!("the two copies are known to differ: {why}");
            return Some(refused(RefusalCode::NotUnrelated, why));
        }
        _ if is_declared => {
            return Some(CommandResult::Unchanged("both copies are taken for equal already; nothing to do".into()));
        }
        _ => {
            let why = "the peer follows this node's history: 'sync' sends what differs, 'verify' compares";
            return Some(refused(RefusalCode::NotUnrelated, why));
        }
    }
    if peer.wants_full(common) {
        let why = "a full sync is ordered, and sends all of it; 'logging' takes the order back";
        return Some(refused(RefusalCode::NotUnrelated, why));
    }
    if !peer.outbox.is_apart() && is_declared {
        return Some(CommandResult::Unchanged("both copies are taken for equal already; nothing to do".into()));
    }
    if !peer.outbox.is_apart() {
        let why = "a sync is under way, and sends what differs";
        return Some(refused(RefusalCode::NotUnrelated, why));
    }
    why_unlike(primary, common)
}

/// What says that the two copies cannot be equal, or that somebody else has to be asked first.
fn why_unlike(primary: &Primary, common: &GroupCommon) -> Option<CommandResult> {
    let hello = primary.peer.greeting.hello()?;
    if common.sb.followed_unverified_run(&hello.identity) || common.waits_for_choice() {
        let why = "whose content counts is not settled here: see 'status'";
        return Some(refused(RefusalCode::ChoiceNeeded, why));
    }
    if common.sb.changed_outside {
        return Some(refused(RefusalCode::ChoiceNeeded, crate::CHANGED_OUTSIDE));
    }
    let sizes = common.volumes.sizes();
    if hello.volume_bytes != sizes {
        let why = format!("the volumes hold {sizes:?} bytes here and {:?} there", hello.volume_bytes);
        return Some(refused(RefusalCode::NotAlike, why));
    }
    if hello.identity.inconsistent || hello.dirty_bytes > 0 {
        let why = "the peer's copy is in the middle of a sync, or it knows of blocks that differ: 'sync --full' makes it whole";
        return Some(refused(RefusalCode::NotAlike, why));
    }
    None
}
