//! The peer window between the two halves of a group: a secondary asks for it, a primary gives it and takes it back, and a promotion
//! that relies on it loses nothing that was acknowledged (docs/book/decisions/0070-peer-window.md).

use alloc::format;
use core::time::Duration;

use crate::common::GroupCommon;
use crate::common::given_window::window_ended;
use crate::context::{Cx, GroupTimer};
use crate::formats::identity::Role;
use crate::formats::wire::{FrameHeader, FrameKind};
use crate::group::Group;
use crate::ids::{CommandId, Seq};
use crate::limits::{HOLD_MAX, WINDOW_ASK_EVERY};
use crate::records::record::{AfterSuper, gives_window};
use crate::shared::coverage::CoveragePoint;
use crate::shared::greeting::Greeting;
use crate::shared::lifecycle::{Promotion, PromotionProviso};
use crate::shared::promotion::NOT_IN_WINDOW;
use crate::state::{Policy, State};
use crate::time::Mono;
use crate::{RefusalCode, SendPayload, Settings};

// ---- the primary gives it ----------------------------------------------------------------------------------------------

/// The secondary asks.
pub(super) fn asked(group: &mut Group, cx: &mut Cx, header: &FrameHeader) {
    if group.common.role() != Role::Primary {
        return;
    }
    if group.common.window.is_heard(header.offset) {
        cx.coverage.hit(CoveragePoint::PeerWindowTakenBack);
        window_ended(&mut group.common, cx);
    }
    // A primary that starts anew has to know what it gave.
    let is_recorded = |window: &Duration| group.common.window.recorded() >= *window;
    let Some(window) = may_give(group, cx).filter(is_recorded) else {
        let number = match group.common.window.is_open(cx.now.mono) {
            true => group.common.window.take_back(),
            false => group.common.window.number(),
        };
        return say(&group.common, cx, header.seq, number, Duration::ZERO);
    };
    cx.coverage.hit(CoveragePoint::PeerWindowGiven);
    let number = group.common.window.give(cx.now.mono, window);
    say(&group.common, cx, header.seq, number, window);
}

/// So long a window may be given, unless that was given up meanwhile.
pub(super) fn recorded(common: &mut GroupCommon, window: Duration) {
    if on_record(common) >= window {
        common.window.is_recorded(window);
    }
}

/// A run begins: the one before may have given the window that is on record.
pub(super) fn remember(common: &mut GroupCommon, now: Mono) {
    let window = on_record(common);
    common.window.remember(now, window);
}

fn on_record(common: &GroupCommon) -> Duration {
    Duration::from_millis(common.sb.window_ms.into())
}

/// Nothing waits for this peer that it could not count on: for so long nobody would be answered alone.
fn may_give(group: &Group, cx: &Cx) -> Option<Duration> {
    let Group { common, primary, .. } = group;
    let window = promised(&common.settings)?;
    let in_step = primary.peer.state(common) == State::Replicating && common.serves() && !common.has_failed();
    let has_all = |greeting: &Greeting| {
        greeting.hello().is_some_and(|hello| !hello.failed && hello.detached.is_empty() && hello.unfilled.is_empty())
    };
    let is_whole = common.sb.aside.is_empty() && has_all(&primary.peer.greeting);
    // Whoever waits for the end of the last one is let go first: a window that is given again and again has none.
    let is_whole = is_whole && common.window.holds_nobody();
    (in_step && is_whole && cx.peer.link.is_some()).then_some(window)
}

/// How long writers are held by these settings for a peer that is away, if it is the peer's durability that they wait for.
fn promised(settings: &Settings) -> Option<Duration> {
    let promises = settings.mode.promises();
    let Policy::Hold(window) = settings.policy else { return None };
    promises.then_some(window)
}

/// What follows from any change: a secondary begins to ask, and a primary takes back what it cannot keep up. Once the peer has heard that,
/// whoever is held goes on.
pub(super) fn review(group: &mut Group, cx: &mut Cx) {
    if let Some(window) = wanted(group, cx) {
        group.common.set_timer(cx, GroupTimer::WindowAsk, ask_again_after(window));
    }
    if let Some(window) = may_give(group, cx)
        && group.common.window.recorded() < window
        && gives_window(&mut group.common.sb, window)
    {
        group.common.save(cx, Some(AfterSuper::WindowRecorded { window }));
    }
    if !group.common.window.is_open(cx.now.mono) {
        let runs = group.common.lifecycle.is_running() && !group.common.has_failed();
        if group.common.sb.window_ms > 0 && runs && may_give(group, cx).is_none() {
            // The next start has nothing to keep to. It goes on record with whatever is recorded next.
            gives_window(&mut group.common.sb, Duration::ZERO);
            group.common.window.is_recorded(Duration::ZERO);
        }
        return;
    }
    let is_primary = group.common.role() == Role::Primary && group.common.sb.durable().role == Role::Primary;
    let hears = cx.peer.link.is_some() && group.primary.peer.greeting.hello().is_some();
    if is_primary && hears && !group.common.window.is_taken_back() && may_give(group, cx).is_none() {
        let number = group.common.window.take_back();
        say(&group.common, cx, Seq::NONE, number, Duration::ZERO);
    }
}

fn say(common: &GroupCommon, cx: &mut Cx, asked: Seq, number: u64, window: Duration) {
    let Some(link) = cx.peer.link else { return };
    let header = FrameHeader {
        seq: asked,
        offset: number,
        length: window.as_millis() as u64,
        ..FrameHeader::new(FrameKind::Window, cx.peer.session, common.id())
    };
    cx.send(link, header, SendPayload::None);
}

// ---- the secondary asks for it -----------------------------------------------------------------------------------------

/// Asks, if the primary holds its writers for a peer that is away, and asks again after a while.
pub(super) fn ask(group: &mut Group, cx: &mut Cx) {
    let Some(window) = wanted(group, cx) else { return };
    if !group.secondary.window.awaits_answer(cx.now.mono, window) && !cx.peer.is_clogged {
        send_question(group, cx);
    }
    group.common.set_timer(cx, GroupTimer::WindowAsk, ask_again_after(window));
}

fn ask_again_after(window: Duration) -> Duration {
    (window / 4).min(WINDOW_ASK_EVERY)
}

fn wanted(group: &Group, cx: &Cx) -> Option<Duration> {
    let is_secondary = group.common.role() == Role::Secondary && group.common.lifecycle.is_running();
    let hello = group.primary.peer.greeting.hello().filter(|hello| hello.identity.role == Role::Primary)?;
    (is_secondary && cx.peer.link.is_some() && !group.common.has_failed()).then_some(())?;
    promised(&hello.settings)
}

fn send_question(group: &mut Group, cx: &mut Cx) {
    let Some(link) = cx.peer.link else { return };
    let (number, heard) = group.secondary.window.ask(cx.now.mono);
    let header = FrameHeader {
        seq: Seq(number),
        offset: heard,
        ..FrameHeader::new(FrameKind::WindowAsk, cx.peer.session, group.common.id())
    };
    cx.send(link, header, SendPayload::None);
}

/// The primary's word.
pub(super) fn heard(group: &mut Group, cx: &mut Cx, header: &FrameHeader) {
    let window = Duration::from_millis(header.length);
    if window > HOLD_MAX {
        let what = format!("a peer window of {} ms", header.length);
        return group.common.protocol_error(cx, &what);
    }
    if group.common.role() != Role::Secondary || !group.common.lifecycle.is_running() || group.common.has_failed() {
        return;
    }
    if window.is_zero() {
        let relied_on_it = group.secondary.window.until() > cx.now.mono;
        group.secondary.window.is_taken_back(header.offset);
        if relied_on_it || header.seq == Seq::NONE {
            // Writers may wait for that.
            send_question(group, cx);
        }
        return;
    }
    group.secondary.window.is_given(cx.now.mono, header.seq.0, header.offset, window);
}

/// For so long nothing was acknowledged that a promotion of this copy would lack.
pub(super) fn left(group: &Group, now: Mono) -> Option<Duration> {
    let Group { common, secondary, .. } = group;
    secondary.window_left(common, now)
}

// ---- a promotion that relies on it ---------------------------------------------------------------------------------------

/// Promotes this node if that loses nothing: by force, as the primary is not asked, and only within the window.
pub(super) fn promote(group: &mut Group, cx: &mut Cx, id: CommandId, entropy: u64) {
    let promotion = Promotion { id, force: true, proviso: PromotionProviso::PeerWindow, entropy };
    if group.common.role() == Role::Primary {
        return group.promote(cx, promotion);
    }
    let serves = group.primary.peer.greeting.hello().is_some_and(|h| h.identity.role == Role::Primary && !h.failed);
    let is_heard = cx.peer.link.is_some() && cx.peer.silent_for(cx.now.mono) <= cx.peer.suspect_after();
    if serves && is_heard {
        let why = "the peer is primary and connected: 'farshore switchover GROUP' moves the role without loss";
        return cx.refuse(id, RefusalCode::PeerIsPrimary, why);
    }
    if left(group, cx.now.mono).is_none() {
        return cx.refuse(id, RefusalCode::WindowClosed, NOT_IN_WINDOW);
    }
    cx.coverage.hit(CoveragePoint::PromotedInWindow);
    group.promote(cx, promotion);
}
