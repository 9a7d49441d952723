//! What the mode ladder sees of a group, and what its steps do: as if an operator had set the other mode, and nothing but the mode.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Role;
use crate::ids::Seq;
use crate::injected_fault::{Fault, injected};
use crate::limits::{LADDER_HEARS, LADDER_LOOK};
use crate::peer::stream::{PeerStream, step_time};
use crate::primary::Primary;
use crate::primary::ladder::{LadderStep, ModeLadder, SeenLine, SlowLine};
use crate::primary::pace::only_paces;
use crate::shared::coverage::CoveragePoint;
use crate::shared::wakes::Wake;
use crate::shared::write::AckLevel;
use crate::state::{Mode, State};
use crate::status::LadderStatus;
use crate::time::Mono;
use crate::{Event, Fallback};

/// Looks at the line, and takes the step that is due.
pub(crate) fn look_at_ladder(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx) {
    let Some(rules) = common.settings.as_set().ladder() else { return };
    let grows_old =
        rules.lag.is_some() && primary.peer.outbox.stream().is_some_and(|stream| !stream.queue().is_empty());
    if (grows_old || primary.ladder.lowering().is_some()) && !common.has_failed() && !common.lifecycle.has_stopped() {
        common.set_timer(cx, GroupTimer::Ladder, LADDER_LOOK);
    }
    if common.role() != Role::Primary || !common.lifecycle.is_running() || common.has_failed() {
        return;
    }
    look_at_step(primary, cx);
    let seen = seen(primary, common, cx);
    match primary.ladder.look(cx.now.mono, &rules, &seen) {
        Some(LadderStep::Down(cause)) => step_down(primary, common, cx, rules.mode, &words(cause, &rules)),
        Some(LadderStep::Up(good_for)) => {
            let why = format!("the line has been good for {} s", good_for.as_secs());
            step_up(primary, common, cx, &why);
        }
        None => {}
    }
}

fn seen(primary: &Primary, common: &mut GroupCommon, cx: &Cx) -> SeenLine {
    let Primary { peer, waiters, .. } = primary;
    let stream = peer.outbox.stream().filter(|stream| stream.is_open() && !stream.syncs());
    let silent = cx.peer.link.map(|_| cx.peer.silent_for(cx.now.mono));
    let in_step = !common.settings.is_lowered() || peer.state(common) == State::Replicating;
    // Who waits for this node's disk queue alone, or is slowed down on purpose, waits for neither line nor peer.
    let is_own = peer.outbox.disk_makes_room(cx, common.settings.wait_limit) || only_paces(primary, common, cx);
    let step = step_borne(primary, common);
    let for_room = waiters.waits_since(common).filter(|_| !is_own);
    let for_room = for_room.map(|since| since.plus(step)).filter(|since| *since <= cx.now.mono);
    let for_peer = waiters.first_for_peer().and_then(|(_, slot)| common.slots.write_ref(slot).done_here());
    // A peer that was away gets its time to confirm.
    let back = stream.map_or(Mono(0), PeerStream::catching_up_since);
    let oldest = for_room.into_iter().chain(for_peer).min().map(|since| since.max(back));
    let promises = common.settings.as_set().mode.promises();
    SeenLine {
        oldest,
        in_order: stream.is_some() && in_step,
        is_heard: silent.is_some_and(|silent| silent <= LADDER_HEARS),
        is_there: silent.is_some_and(|silent| silent <= cx.peer.suspect_after()),
        round_trip: if promises { cx.peer.round_trip } else { Duration::ZERO },
        queue_is_low: stream.is_none_or(|stream| stream.queue().bytes() <= common.settings.queue_bytes / 2),
        keeps_promise: !promises || stream.is_some_and(PeerStream::keeps_promise),
    }
}

fn words(cause: SlowLine, rules: &Fallback) -> String {
    let ms = |duration: Duration| duration.as_millis();
    match cause {
        SlowLine::Average(wait) => {
            format!("writers waited {} ms for the peer on the average, more than {} ms", ms(wait), ms(rules.latency))
        }
        SlowLine::Lag(lag) => format!(
            "a write of {} s ago is not durable at the peer, and {} s are set",
            lag.as_secs(),
            rules.lag.unwrap_or_default().as_secs()
        ),
        SlowLine::One(wait) => format!("a write has waited {} ms for the peer", ms(wait)),
    }
}

/// People know that the mode is another one before anybody is answered by it.
fn step_down(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx, to: Mode, why: &str) {
    cx.coverage.hit(CoveragePoint::LadderSteppedDown);
    let from = common.settings.mode;
    common.settings.lower(to);
    common.set_timer(cx, GroupTimer::Ladder, LADDER_LOOK);
    if injected(Fault::LadderPromisesSync) {
        return primary.release_waiting(common, cx);
    }
    cx.event(common.id(), Event::SteppedDown { from, to, why: why.into() });
    take_step(primary, common, cx, &format!("{} for now: {why}", to.word()));
}

fn step_up(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
    cx.coverage.hit(CoveragePoint::LadderSteppedUp);
    let from = common.settings.mode;
    common.settings.restore();
    let to = common.settings.mode;
    if injected(Fault::LadderPromisesSync) {
        return;
    }
    cx.event(common.id(), Event::SteppedUp { from, to, why: why.into() });
    take_step(primary, common, cx, &format!("{} again: {why}", to.word()));
}

fn take_step(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx, why: &str) {
    primary.mode_changed(common, cx, why);
    if primary.peer.state(common) != State::Holding {
        // Should writers be held, that window is a new one.
        primary.window.forget();
    }
    common.wake(Wake::Room);
    primary.peer.report_primary_state(common, cx);
}

/// The ladder is at its beginning: other settings, or this node is primary no longer. The mode `from` counted until now.
pub(crate) fn end_lowering(primary: &mut Primary, common: &mut GroupCommon, cx: &mut Cx, from: Mode, why: &str) {
    common.settings.restore();
    let to = common.settings.mode;
    if primary.ladder.forget(cx.now.mono) && from != to {
        cx.event(common.id(), Event::SteppedUp { from, to, why: why.into() });
    }
}

// ---- what it is told -----------------------------------------------------------------------------------------------------

/// A write was queued.
pub(super) fn note_numbered(ladder: &mut ModeLadder, common: &GroupCommon, cx: &mut Cx, last: Seq) {
    ladder.numbered(cx.now.mono, last);
    if common.settings.as_set().ladder().is_some_and(|rules| rules.lag.is_some()) {
        common.set_timer(cx, GroupTimer::Ladder, LADDER_LOOK);
    }
}

/// A writer had what it waited for of the peer, since then; `None`: this node was not done with it. A peer that was away until `back` is
/// charged from then on.
pub(super) fn note_wait(ladder: &mut ModeLadder, common: &mut GroupCommon, cx: &Cx, since: Option<Mono>, back: Mono) {
    if common.settings.as_set().ladder().is_some() {
        ladder.waited(cx.now.mono, since.map_or(cx.now.mono, |since| since.max(back)));
        common.wake(Wake::Ladder);
    }
}

/// The same of one who waited for room, since then.
pub(super) fn note_room_wait(primary: &mut Primary, common: &mut GroupCommon, cx: &Cx, since: Mono) {
    let back = primary.peer.outbox.stream().map_or(cx.now.mono, PeerStream::catching_up_since);
    let since = since.plus(step_borne(primary, common)).min(cx.now.mono);
    note_wait(&mut primary.ladder, common, cx, Some(since), back);
}

/// What the link takes for one step of the peer's is known to whoever judges waits for room.
pub(super) fn look_at_step(primary: &mut Primary, cx: &Cx) {
    let step = primary.peer.outbox.stream().map_or(Duration::ZERO, |stream| step_time(stream, cx));
    primary.waiters.step_takes(step);
}

/// What the peer confirms at once makes room at once: who waits for that, for as long as the link takes, waits for no slow line. The ladder
/// is to act before the policy does.
fn step_borne(primary: &Primary, common: &GroupCommon) -> Duration {
    let settings = common.settings.as_set();
    let spare = settings.ladder().map(|rules| settings.wait_limit.saturating_sub(rules.latency + rules.after));
    primary.waiters.step().min(spare.unwrap_or_default() / 2)
}

/// The peer has confirmed something. While the fallback counts a write is followed as if its writer waited for that.
pub(super) fn note_confirmed(primary: &mut Primary, common: &GroupCommon, cx: &Cx) {
    let Primary { peer, ladder, .. } = primary;
    let level = match common.settings.as_set().mode {
        Mode::Sync => AckLevel::Durable,
        Mode::Nearsync => AckLevel::Received,
        _ => AckLevel::Local,
    };
    if let Some(stream) = peer.outbox.stream() {
        ladder.confirmed(cx.now.mono, |seq| stream.has(level, seq));
        ladder.durable(|seq| stream.has(AckLevel::Durable, seq));
    }
}

/// A lower mode counts than the one that is set.
pub(crate) fn is_lowered(primary: &Primary) -> bool {
    primary.ladder.lowering().is_some()
}

/// For status: what counts in place of the mode that is set, since when and why.
pub(crate) fn ladder_status(primary: &Primary, common: &GroupCommon, now: Mono) -> Option<LadderStatus> {
    let (lowering, rules) = (primary.ladder.lowering()?, common.settings.as_set().ladder()?);
    let recovering = primary.ladder.recovering(&rules);
    Some(LadderStatus {
        lasts: now.since(lowering.since),
        why: words(lowering.cause, &rules),
        returns_in: recovering.map(|(since, hold)| since.plus(hold).since(now)),
    })
}
