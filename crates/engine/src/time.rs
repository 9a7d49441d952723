//! Time is an argument. The monotonic clock drives timers; the primary's wall clock stamps the write order (rule 19).

use alloc::collections::{BTreeMap, BTreeSet};
use core::fmt;
use core::time::Duration;

use crate::limits::CLOCK_BEHIND_NOTICED;

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

impl Wall {
    /// Time since `earlier`; zero if it lies ahead.
    pub fn since(self, earlier: Wall) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// In UTC, to the millisecond: `2026-11-21 17:43:45.120 UTC`; `no time known` for the epoch itself.
impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Wall(0) {
            return f.write_str("no time known");
        }
        let (milliseconds, seconds) = (self.0 / 1_000_000 % 1000, self.0 / 1_000_000_000);
        let (year, month, day) = civil(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{milliseconds:03} UTC")
    }
}

/// Year, month and day of a day since the epoch, in the Gregorian calendar.
fn civil(mut day: u64) -> (u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, day + 1)
}

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

    /// Sets the timer, or moves it if it would run longer (it may then fire early, too).
    pub fn set_sooner(&mut self, key: K, at: Mono) {
        if self.by_key.get(&key).is_none_or(|set| at < *set) {
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

/// How far a stamp stands ahead of a clock, if that is worth a word.
pub(crate) fn ahead(stamp: Wall, clock: Wall) -> Option<Duration> {
    Some(Duration::from_nanos(stamp.0.saturating_sub(clock.0))).filter(|by| *by >= CLOCK_BEHIND_NOTICED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_reads_as_a_date() {
        let text = |seconds: u64| alloc::format!("{}", Wall(seconds * 1_000_000_000 + 120_000_000));
        assert_eq!(text(0), "1970-01-01 00:00:00.120 UTC");
        assert_eq!(text(951_782_400), "2000-02-29 00:00:00.120 UTC");
        assert_eq!(text(1_795_369_425), "2026-11-22 17:43:45.120 UTC");
        assert_eq!(text(4_107_542_399), "2100-02-28 23:59:59.120 UTC");
        assert_eq!(text(4_107_542_400), "2100-03-01 00:00:00.120 UTC");
    }

    // proves: rule 19
    #[test]
    fn timers_fire_in_order_and_once() {
        let mut t = Timers::default();
        t.set("b", Mono(20));
        t.set("a", Mono(10));
        t.set_if_idle("a", Mono(5));
        t.set("b", Mono(15));
        t.set_sooner("c", Mono(40));
        t.set_sooner("c", Mono(45));
        t.set_sooner("c", Mono(35));
        assert_eq!(t.next(), Some((Mono(10), "a")));
        assert_eq!(t.pop_due(Mono(9)), None);
        assert_eq!(t.pop_due(Mono(30)), Some("a"));
        assert_eq!(t.pop_due(Mono(30)), Some("b"));
        assert_eq!(t.pop_due(Mono(34)), None);
        assert_eq!(t.pop_due(Mono(35)), Some("c"));
        assert_eq!(t.pop_due(Mono(50)), None);
    }
}
