//! Forks are resolved by order: one node keeps its content, the other one yields (P6).
//!
//! The order is given to the node that is kept first. It looks whether it can be carried out before anybody is demoted, and says in its
//! hello over which generation it keeps. The other one yields only to a peer that says so, and not while it keeps itself. Both are named
//! by generation: who looked at something else is refused.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::formats::identity::Role;
use crate::formats::wire::{FrameHeader, FrameKind, flags};
use crate::group::Group;
use crate::ids::CommandId;
use crate::injected_fault::{Fault, injected};
use crate::limits;
use crate::peer::Peer;
use crate::peer::detached::fill_all;
use crate::peer::forks::{
    ForkOrder, ForkStage, ends_order, is_being_recorded, is_resolvable, may_keep, may_yield, needs_generation,
    step_of_policy, unbounded, would_yield,
};
use crate::records::record::{AfterSuper, keep_over};
use crate::shared::bits_walk::BitsWalk;
use crate::shared::coverage::CoveragePoint;
use crate::shared::size::ShownSize;
use crate::shared::wakes::Wake;
use crate::status::PolicyStep;
use crate::{Command, CommandResult, Event, Refusal, RefusalCode};

/// Behind the reason why an order came to nothing for which the other node was demoted.
const NOW_SECONDARY: &str = "the other node is secondary now: do not promote it, as a third history would be known by no bits, and resolve \
     again when that is put right";

/// What an order to keep this node's content says.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepWish {
    pub over: u64,
    pub discard: bool,
    pub by_policy: bool,
}

/// The policy does not say so, or not any more.
fn not_by_policy() -> Refusal {
    let why = "'after_forced_failover' says nothing of this fork: both nodes need it, one of them alone was promoted, with force, and neither was \
               started again since, or is held by its operator; 'farshore resolve GROUP --keep NODE' says whose content counts";
    Refusal::new(RefusalCode::ForkChanged, why)
}

const KEPT_BY_POLICY: &str = "this node was promoted with force, and the other one was not: its content is to be kept, as \
    'after_forced_failover' says on both nodes";

/// This node's content is to be kept.
pub(super) fn keep(group: &mut Group, cx: &mut Cx, id: CommandId, wish: KeepWish) {
    let KeepWish { over, discard, by_policy } = wish;
    if by_policy && (discard || step_of_policy(&group.primary.peer, &group.common) != Some(PolicyStep::Keep { over })) {
        return cx.answer(id, CommandResult::Refused(not_by_policy()));
    }
    match may_keep(&group.primary.peer, &group.common, over) {
        Err(why) => {
            if why.code == RefusalCode::ForkUnbounded {
                cx.coverage.hit(CoveragePoint::ForkUnbounded);
            }
            return cx.answer(id, CommandResult::Refused(why));
        }
        Ok(false) => {
            let text = "this node's content is kept already; nothing to do".into();
            return cx.answer(id, CommandResult::Unchanged(text));
        }
        Ok(true) => {}
    }
    match group.primary.peer.fork {
        None if !is_being_recorded(&group.common) => {}
        // It was for what stood here then: nobody yields to it any more.
        Some(order @ ForkOrder { stage: ForkStage::AwaitsYield, .. }) => {
            let why = "the order was typed again before the other node had yielded";
            end(group, cx, &order, Refusal::new(RefusalCode::NotYielded, why));
        }
        _ => {
            let why = "an order to keep this node's content is under way already";
            return cx.refuse(id, RefusalCode::RoleChanging, why);
        }
    }
    let Group { common, primary, .. } = &mut *group;
    let deadline = cx.now.mono.plus(limits::YIELD_LIMIT);
    let awaits_yield = primary.peer.greeting.is_primary();
    let own = common.sb.identity.generation.tag;
    primary.peer.fork = Some(ForkOrder {
        id,
        over,
        discard,
        own,
        by_policy,
        awaits_yield,
        deadline,
        is_over: false,
        stage: ForkStage::AwaitsYield,
    });
    cx.timers.set(TimerKey::Group(common.id(), GroupTimer::Yield), deadline);
    if by_policy {
        cx.coverage.hit(CoveragePoint::ForkKeptByPolicy);
        cx.event(common.id(), Event::Note(KEPT_BY_POLICY.into()));
    }
    // The other one yields to nobody who does not say so.
    group.say_hello(cx, FrameKind::GroupState);
}

/// A command comes beside an order: why it is refused, if it is. None may overwrite what is being saved, or begin what the sync behind the
/// order would cut short; what ends the order is taken. Once the choice is on record a verify waits for the sync, as for any other.
pub(super) fn refuses(peer: &Peer, common: &GroupCommon, command: &Command) -> Option<Refusal> {
    let is_beside = matches!(
        command,
        Command::Sync { .. }
            | Command::SendAll
            | Command::Rejoin { .. }
            | Command::SetAside { .. }
            | Command::BringUpToDate
            | Command::Switchover { .. }
            | Command::Verify(_)
            | Command::AssumeEqual
    );
    let is_under_way = peer.fork.is_some() || is_being_recorded(common);
    let why = "a fork is being resolved ('farshore resolve'), and this node's content is to be kept; try again when that has ended, or end \
               it with 'demote'";
    (is_beside && is_under_way).then(|| Refusal::new(RefusalCode::RoleChanging, why))
}

/// The other half of an order to keep this node's content came to nothing: whoever yields later does not yield to it. What the policy orders
/// stands by itself.
pub(super) fn take_back(group: &mut Group, cx: &mut Cx, id: CommandId, over: u64) {
    let Some(order) = group.primary.peer.fork.filter(|order| order.over == over && !order.by_policy) else {
        let text = "no order to keep this node's content stands; nothing to do".into();
        return cx.answer(id, CommandResult::Unchanged(text));
    };
    cx.coverage.hit(CoveragePoint::ForkTakenBack);
    let why = "the order was taken back, as the other node's half of it came to nothing: nothing was overwritten";
    end(group, cx, &order, Refusal::new(RefusalCode::NotYielded, why));
    cx.answer(id, CommandResult::Done("the order to keep this node's content is taken back".into()));
}

/// This node's content is given up for the peer's.
pub(super) fn give_way(group: &mut Group, cx: &mut Cx, id: CommandId, to: u64, by_policy: bool) {
    let Group { common, primary, .. } = group;
    if common.role() != Role::Primary {
        let text = "already secondary; nothing to do".into();
        return cx.answer(id, CommandResult::Unchanged(text));
    }
    if let Err(why) = may_yield(&primary.peer, common, to) {
        return cx.answer(id, CommandResult::Refused(why));
    }
    if by_policy && step_of_policy(&primary.peer, common) != Some(PolicyStep::Yield { to }) {
        return cx.answer(id, CommandResult::Refused(not_by_policy()));
    }
    cx.coverage.hit(if by_policy { CoveragePoint::ForkYieldedByPolicy } else { CoveragePoint::ForkYielded });
    primary.peer.yields_to = to;
    primary.peer.demote(common, cx, id);
}

/// Called after every input: the order goes on, or is over.
pub(super) fn proceed(group: &mut Group, cx: &mut Cx) {
    let own = group.common.sb.identity.generation.tag;
    group.primary.peer.awaits_word &= group.primary.peer.greeting.hello().is_some_and(|hello| hello.keeps_over == own);
    if group.primary.peer.said_to_yield != would_yield(&group.primary.peer, &group.common) {
        group.say_hello(cx, FrameKind::GroupState);
    }
    let Some(order) = group.primary.peer.fork else { return };
    if let Some(why) = ends_order(&group.primary.peer, &group.common, cx, &order) {
        return end(group, cx, &order, why);
    }
    let Group { common, primary, .. } = &mut *group;
    let Some(hello) = primary.peer.greeting.hello() else { return };
    match order.stage {
        ForkStage::AwaitsYield if primary.peer.greeting.is_primary() || common.numbers.generation_is_due() => {}
        ForkStage::AwaitsYield if order.awaits_yield => {
            // It has, for this order.
            let order = ForkOrder { awaits_yield: false, deadline: cx.now.mono.plus(limits::YIELD_LIMIT), ..order };
            primary.peer.fork = Some(order);
            cx.timers.set(TimerKey::Group(common.id(), GroupTimer::Yield), order.deadline);
            proceed(group, cx);
        }
        ForkStage::AwaitsYield if needs_generation(common, hello) => {
            assert!(primary.peer.outbox.is_apart(), "no stream is in two generations");
            // Only the holder of the newest history is ever a source: this one goes on in a twin of the peer's.
            common.begin_generation(cx, hello.identity.generation.number);
        }
        ForkStage::AwaitsYield if !is_resolvable(common, hello) => end(group, cx, &order, unbounded()),
        ForkStage::AwaitsYield => {
            // The two may have been reconciled in this session, before they parted.
            if !injected(Fault::ForkInOneSession) {
                primary.peer.reconcile.begin_anew(true);
            }
            primary.peer.fork = Some(ForkOrder { stage: ForkStage::Joins, ..order });
            joins(group, cx);
        }
        ForkStage::Joins => joins(group, cx),
        ForkStage::Names { .. } | ForkStage::AwaitsDelta { .. } => {}
    }
}

/// The bits of both are joined here, durable; then the peer is told.
fn joins(group: &mut Group, cx: &mut Cx) {
    let Group { common, primary, .. } = &mut *group;
    let Some(order) = primary.peer.fork else { return };
    if !primary.reconcile(common, cx) {
        return;
    }
    if order.discard {
        return record(group, cx, &order, "what the other node held is not saved, as was ordered");
    }
    let question = primary.peer.reconcile.ask();
    let at_least = Duration::from_secs(common.volumes.dirty_bytes() / limits::DELTA_BYTES_PER_S_MIN);
    let deadline = cx.now.mono.plus(limits::YIELD_LIMIT + at_least);
    let stage = ForkStage::Names { question, walk: BitsWalk::default() };
    primary.peer.fork = Some(ForkOrder { deadline, stage, ..order });
    cx.timers.set(TimerKey::Group(common.id(), GroupTimer::Yield), deadline);
}

/// The peer has saved what it holds where the two differ, or says why not.
pub(super) fn saved(group: &mut Group, cx: &mut Cx, header: &FrameHeader) {
    let Some(order) = group.primary.peer.fork else { return };
    let ForkStage::AwaitsDelta { question } = order.stage else { return };
    if question != header.seq {
        return;
    }
    if header.flags & flags::NO_SPACE != 0 {
        let why = format!(
            "the state directory of the other node has no space for what it holds where the two differ ({} at most): make room there and \
             type it again; '--discard' saves nothing. Nothing was overwritten",
            ShownSize(group.common.volumes.dirty_bytes())
        );
        return end(group, cx, &order, Refusal::new(RefusalCode::DeltaSpace, why));
    }
    let unsaved = [
        (
            flags::TOO_LARGE,
            "the file system of the other node's state directory takes no file as large as what it holds where the two differ (16 TiB \
            on ext4; 'ulimit -f' is a limit too): nothing was overwritten; '--discard' saves nothing",
        ),
        (
            flags::TOO_MANY,
            "the state directory of the other node keeps as many earlier deltas as it may ('delta.1' and so on in the group's \
            directory): move one away or remove it, and type it again; nothing was overwritten, and '--discard' saves nothing",
        ),
    ];
    if let Some((_, why)) = unsaved.into_iter().find(|(flag, _)| header.flags & flag != 0) {
        return end(group, cx, &order, Refusal::new(RefusalCode::DeltaFailed, why));
    }
    if header.flags & flags::FAILED != 0 {
        let why = "a disk of the other node failed while it saved what it holds where the two differ ('farshore log' there says which): \
                   nothing was overwritten; '--discard' saves nothing";
        return end(group, cx, &order, Refusal::new(RefusalCode::DeltaFailed, why));
    }
    let text = format!("the other node saved {} that it held where the two differ", ShownSize(header.length));
    record(group, cx, &order, &text);
}

/// From here on the fork is one that was resolved.
fn record(group: &mut Group, cx: &mut Cx, order: &ForkOrder, saved: &str) {
    let Group { common, primary, .. } = group;
    primary.peer.fork = None;
    // Somebody who said this is there: an order over one that is gone has ended.
    let Some(theirs) = primary.peer.greeting.hello().map(|hello| hello.identity) else { return };
    if !order.by_policy {
        // What differs of every volume is sent, as somebody typed.
        common.all_rejoin(cx);
        fill_all(&mut primary.peer);
    }
    keep_over(&mut common.sb, &theirs);
    let text =
        format!("this node's content is kept; {saved}; {} go to it now", ShownSize(common.volumes.dirty_bytes()));
    common.save_in_both_slots(cx, AfterSuper::ForkKept { id: order.id, text });
}

/// The choice is on record: what differs is sent.
pub(super) fn kept(group: &mut Group, cx: &mut Cx, id: CommandId, text: String) {
    cx.coverage.hit(CoveragePoint::ForkKept);
    let Group { common, primary, .. } = &mut *group;
    cx.event(common.id(), Event::ForkKept { differing_bytes: common.volumes.dirty_bytes() });
    cx.answer(id, CommandResult::Done(text));
    if common.role() != Role::Primary || common.has_failed() {
        return;
    }
    primary.peer.wanted.order_update();
    primary.peer.stall.ordered(cx.now.mono);
    if !injected(Fault::ForkInOneSession) {
        primary.peer.reconcile.begin_anew(false);
    }
    common.wake(Wake::Meet);
}

/// The order comes to nothing.
fn end(group: &mut Group, cx: &mut Cx, order: &ForkOrder, why: Refusal) {
    cx.coverage.hit(CoveragePoint::ForkOrderEnded);
    let Group { common, primary, .. } = &mut *group;
    primary.peer.fork = None;
    let hello = primary.peer.greeting.hello();
    primary.peer.awaits_word = hello.is_some_and(|hello| hello.keeps_over == common.sb.identity.generation.tag);
    let is_secondary = hello.is_some_and(|hello| hello.identity.role == Role::Secondary);
    let has_yielded = (is_secondary || !order.awaits_yield) && common.role() == Role::Primary && !common.has_failed();
    let why = match has_yielded && why.code != RefusalCode::ForkUnbounded {
        true => Refusal::new(why.code, format!("{}; {NOW_SECONDARY}", why.text)),
        false => why,
    };
    if !matches!(order.stage, ForkStage::AwaitsYield) {
        primary.peer.reconcile.begin_anew(false);
    }
    cx.answer(order.id, CommandResult::Refused(why));
    common.wake(Wake::Meet);
    group.say_hello(cx, FrameKind::GroupState);
}
