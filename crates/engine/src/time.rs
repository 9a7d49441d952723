//! Time is an argument. The monotonic clock drives timers; the primary's wall clock stamps the write order (rule 19).

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

/// Nanoseconds on this node's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mono(pub u64);

impl Mono {
    pub fn plus(self, d: Duration) -> Mono {
        Mono(self.0.saturating_add(d.as_nanos() as u64))
    }

    /// Time since `earlier`; zero if it lies ahead.
    pub fn since(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Nanoseconds since the Unix epoch on some node's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Wall(pub u64);

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    pub mono: Mono,
    pub wall: Wall,
}

/// All timers of a machine in one table; the next wake-up is its minimum.
#[derive(Debug)]
pub struct Timers<K> {
    due: BTreeSet<(Mono, K)>,
    by_key: BTreeMap<K, Mono>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Timers { due: BTreeSet::new(), by_key: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> Timers<K> {
    /// Sets or moves the timer.
    pub fn set(&mut self, key: K, at: Mono) {
        self.clear(key);
        self.by_key.insert(key, at);
        self.due.insert((at, key));
    }

    /// Sets the timer unless it already runs (it may then fire early: the handler looks again).
    pub fn set_if_idle(&mut self, key: K, at: Mono) {
        if !self.by_key.contains_key(&key) {
            self.set(key, at);
        }
    }

    pub fn clear(&mut self, key: K) {
        if let Some(at) = self.by_key.remove(&key) {
            self.due.remove(&(at, key));
        }
    }

    /// The next wake-up and why.
    pub fn next(&self) -> Option<(Mono, K)> {
        self.due.first().copied()
    }

    /// Takes the first timer that is due.
    pub fn pop_due(&mut self, now: Mono) -> Option<K> {
        let (at, key) = self.next()?;
        if at > now {
            return None;
        }
        self.clear(key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_and_once() {
        let mut t = Timers::default();
        t.set("b", Mono(20));
        t.set("a", Mono(10));
        t.set_if_idle("a", Mono(5));
        t.set("b", Mono(15));
        assert_eq!(t.next(), Some((Mono(10), "a")));
        assert_eq!(t.pop_due(Mono(9)), None);
        assert_eq!(t.pop_due(Mono(30)), Some("a"));
        assert_eq!(t.pop_due(Mono(30)), Some("b"));
        assert_eq!(t.pop_due(Mono(30)), None);
    }
}
