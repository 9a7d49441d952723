//! The peer window, as a secondary knows of it: until it ends nothing was acknowledged that this copy lacks, whatever became of the primary
//! (docs/book/decisions/0070-peer-window.md).
//!
//! It counts from the moment in which the secondary asked, on its own clock; the primary counts from its answer, which came later. So the
//! secondary's ends first, also where its clock is slower by a hundredth.

use core::time::Duration;

use crate::injected_fault::{Fault, injected};
use crate::limits::WINDOW_ANSWERED_WITHIN;
use crate::time::Mono;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownWindow {
    until: Mono,
    /// The question that was not answered yet, and when it was asked.
    asked: Option<(u64, Mono)>,
    /// Questions of this session.
    asks: u64,
    /// The primary's newest word of this session.
    heard: u64,
}

impl KnownWindow {
    pub fn until(&self) -> Mono {
        self.until
    }

    /// This copy may lack what was acknowledged.
    pub fn forget(&mut self) {
        (self.until, self.asked) = (Mono(0), None);
    }

    /// Numbers are of a session; what was given in the one before it stands.
    pub fn new_session(&mut self) {
        (self.asked, self.asks, self.heard) = (None, 0, 0);
    }

    /// A question is on its way, and its answer would still be of use.
    pub fn awaits_answer(&self, now: Mono, window: Duration) -> bool {
        self.asked.is_some_and(|(_, at)| now.since(at) < (window / 2).min(WINDOW_ANSWERED_WITHIN))
    }

    /// The numbers of the next question, and of the primary's newest word.
    pub fn ask(&mut self, now: Mono) -> (u64, u64) {
        self.asks += 1;
        self.asked = Some((self.asks, now));
        (self.asks, self.heard)
    }

    /// The primary answers the question `asked`.
    pub fn is_given(&mut self, now: Mono, asked: u64, word: u64, window: Duration) {
        self.heard = word;
        let Some((_, at)) = self.asked.take_if(|(number, _)| *number == asked) else { return };
        let from = if injected(Fault::WindowFromAnswer) { now } else { at };
        self.until = self.until.max(from.plus(window * 99 / 100));
    }

    pub fn is_taken_back(&mut self, word: u64) {
        self.heard = word;
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_window_counts_from_the_question_less_a_hundredth() {
        let mut known = KnownWindow::default();
        let window = Duration::from_secs(10);
        assert_eq!(known.ask(Mono(SECOND)), (1, 0));
        assert!(known.awaits_answer(Mono(2 * SECOND), window));
        known.is_given(Mono(3 * SECOND), 1, 7, window);
        assert_eq!(known.until(), Mono(10_900_000_000));
        // An answer to an older question says nothing.
        assert_eq!(known.ask(Mono(4 * SECOND)), (2, 7));
        known.is_given(Mono(5 * SECOND), 1, 8, window);
        assert_eq!(known.until(), Mono(10_900_000_000));
        // A shorter one takes nothing from the one before.
        known.is_given(Mono(5 * SECOND), 2, 9, Duration::from_secs(1));
        assert_eq!(known.until(), Mono(10_900_000_000));
        known.is_taken_back(10);
        assert_eq!((known.until(), known.ask(Mono(5 * SECOND))), (Mono(0), (3, 10)));
    }
}
