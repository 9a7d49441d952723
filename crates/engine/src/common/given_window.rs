//! The peer window that a primary gave: until it ends nothing is acknowledged that the peer does not have
//! (docs/book/decisions/0070-peer-window.md).
//!
//! Under `policy = "hold"` writers wait for a peer that is away. The peer asks how long for, and the answer binds this node, whatever
//! becomes of mode, policy, state or role meanwhile: an answer to a writer that the peer knows nothing of is held until the window is over,
//! or until the peer has heard that it is taken back.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::common::GroupCommon;
use crate::context::{Cx, GroupTimer, TimerKey};
use crate::injected_fault::{Fault, injected};
use crate::shared::coverage::CoveragePoint;
use crate::time::Mono;

#[derive(Debug, Default)]
pub(crate) struct GivenWindow {
    /// Nothing given ends later.
    until: Mono,
    /// Of the newest word on it in this session.
    number: u64,
    /// The word in this session that took it back.
    taken_back: Option<u64>,
    /// So long a window is on record: the next start of this node keeps to it.
    recorded: Duration,
    /// Writes whose answers are held.
    held: VecDeque<u32>,
}

impl GivenWindow {
    pub fn is_open(&self, now: Mono) -> bool {
        now < self.until
    }

    /// How much of it is left, and how many writers wait for its end.
    pub fn held(&self, now: Mono) -> Option<(usize, Duration)> {
        (!self.held.is_empty()).then(|| (self.held.len(), self.until.since(now)))
    }

    pub fn holds_nobody(&self) -> bool {
        self.held.is_empty()
    }

    /// This run begins: one before it may have given so long a window a moment ago.
    pub fn remember(&mut self, now: Mono, window: Duration) {
        (self.until, self.recorded) = (now.plus(window).max(self.until), window);
    }

    /// Numbers are of a session; what was given in the one before it stands.
    pub fn new_session(&mut self) {
        (self.number, self.taken_back) = (0, None);
    }

    pub fn recorded(&self) -> Duration {
        self.recorded
    }

    pub fn is_recorded(&mut self, window: Duration) {
        self.recorded = window;
    }

    /// Gives one that begins now. The number of that word.
    pub fn give(&mut self, now: Mono, window: Duration) -> u64 {
        self.number += 1;
        self.taken_back = None;
        self.until = self.until.max(now.plus(window));
        self.number
    }

    /// Takes it back. The number of that word.
    pub fn take_back(&mut self) -> u64 {
        let number = self.taken_back.unwrap_or(self.number + 1);
        (self.number, self.taken_back) = (number, Some(number));
        number
    }

    /// Of the newest word in this session.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn is_taken_back(&self) -> bool {
        self.taken_back.is_some()
    }

    /// The peer has heard the words through this number. True: it counts on none any more.
    pub fn is_heard(&mut self, number: u64) -> bool {
        let is_over = self.taken_back.is_some_and(|taken_back| number >= taken_back);
        if is_over {
            (self.until, self.taken_back) = (Mono(0), None);
        }
        is_over
    }

    /// The write is answered in another way.
    fn let_go(&mut self, slot: u32) {
        self.held.retain(|held| *held != slot);
    }
}

/// The writer may have success only when the window is over: it is held, and the peer has no part in it.
pub(super) fn holds_answer(common: &mut GroupCommon, cx: &mut Cx, slot: u32) -> bool {
    let op = common.slots.write(slot);
    let counts = !op.answered && !op.peer_has_it && op.failed.is_none();
    let was_held = core::mem::replace(&mut op.is_held, false);
    if was_held {
        common.window.let_go(slot);
    }
    if !counts || !common.window.is_open(cx.now.mono) || common.has_failed() || injected(Fault::WindowNotKept) {
        return false;
    }
    if !was_held {
        cx.coverage.hit(CoveragePoint::AnswerHeldForWindow);
    }
    common.slots.write(slot).is_held = true;
    common.window.held.push_back(slot);
    cx.timers.set(TimerKey::Group(common.id(), GroupTimer::Window), common.window.until);
    true
}

/// The window is over: whoever waited for that has his answer.
pub(crate) fn window_ended(common: &mut GroupCommon, cx: &mut Cx) {
    if common.window.is_open(cx.now.mono) {
        if !common.window.holds_nobody() {
            cx.timers.set(TimerKey::Group(common.id(), GroupTimer::Window), common.window.until);
        }
        return;
    }
    for slot in core::mem::take(&mut common.window.held) {
        common.slots.write(slot).is_held = false;
        common.finish(cx, slot);
    }
}

/// They are told that the outcome is unknown.
pub(crate) fn fail_held_answers(common: &mut GroupCommon, cx: &mut Cx) {
    for slot in core::mem::take(&mut common.window.held) {
        common.slots.write(slot).is_held = false;
        common.fail_write(cx, slot);
    }
}
