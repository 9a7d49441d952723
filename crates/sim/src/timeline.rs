//! Virtual time: what is to happen, in its order, and a line for each thing that did.

use std::collections::BTreeMap;
use std::fmt::Arguments;

/// The clock, in nanoseconds, and the events to come.
pub struct Timeline<E> {
    now: u64,
    /// Of two events of one moment the one that was scheduled first comes first.
    order: u64,
    /// Boxed: a map's nodes move what stands in them.
    events: BTreeMap<(u64, u64), Box<E>>,
    verbose: bool,
}

impl<E> Timeline<E> {
    pub fn new(verbose: bool) -> Timeline<E> {
        Timeline { now: 1, order: 0, events: BTreeMap::new(), verbose }
    }

    pub fn now(&self) -> u64 {
        self.now
    }

    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    pub fn schedule(&mut self, after: u64, event: impl Into<E>) {
        self.order += 1;
        self.events.insert((self.now + after, self.order), Box::new(event.into()));
    }

    /// The next event, if it comes until then: it is that time now.
    pub fn next(&mut self, until: u64) -> Option<E> {
        let next = self.events.first_entry().filter(|next| next.key().0 <= until)?;
        let ((at, _), event) = next.remove_entry();
        self.now = at;
        Some(*event)
    }

    /// Nothing more happens until then.
    pub fn reach(&mut self, until: u64) {
        self.now = self.now.max(until);
    }

    /// Prints a line, if the run is told.
    pub fn print(&self, line: Arguments) {
        if self.verbose {
            println!("{:>12.6} {line}", self.now as f64 / 1e9);
        }
    }
}
