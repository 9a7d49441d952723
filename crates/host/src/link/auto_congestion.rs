//! Congestion control `auto` on a long line: the system's until the line was full, bbr from then on.
//!
//! bbr paces by the fastest delivery that it has seen. On a line that was never full that is the rate of the program's own
//! pauses: on a fresh line of 100 Mbit/s and 50 ms a lone writer of 64 KiB waited 21 % longer under bbr than under cubic.
//! A full line shows bbr its true rate, and what shows less afterwards because the program paused does not count
//! (`bbr_update_bw` of Linux's `tcp_bbr.c`), so there is no way back: the estimate holds for the lone writer after the load, too.

use std::time::{Duration, Instant};

/// A line is full when the socket took nothing more for this share of the time. A lone writer meets that in the first
/// round trips only, while the congestion window grows.
const FULL: f64 = 1.0 / 3.0;
/// Of so many stretches in a row...
const STRETCHES: u32 = 2;
/// ... each at least so long.
const STRETCH: Duration = Duration::from_secs(1);

/// How long a socket was full.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fullness {
    sum: Duration,
    since: Option<Instant>,
}

impl Fullness {
    /// After a call that offered something to the kernel.
    pub fn saw(&mut self, is_full: bool, now: Instant) {
        match (is_full, self.since) {
            (true, None) => self.since = Some(now),
            (false, Some(since)) => {
                self.sum += now - since;
                self.since = None;
            }
            _ => {}
        }
    }

    /// Since the beginning.
    pub fn total(&self, now: Instant) -> Duration {
        self.sum + self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

/// Finds out that the line is full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chooser {
    began: Instant,
    full_before: Duration,
    full_stretches: u32,
}

impl Chooser {
    pub fn new(now: Instant) -> Chooser {
        Chooser { began: now, full_before: Duration::ZERO, full_stretches: 0 }
    }

    /// A look at the connection; `full`: how long its socket was full since the beginning. Whether the line is full by now.
    pub fn look(&mut self, now: Instant, full: Duration) -> bool {
        let stretch = now - self.began;
        if stretch >= STRETCH {
            let is_full = (full - self.full_before).as_secs_f64() >= FULL * stretch.as_secs_f64();
            self.full_stretches = if is_full { self.full_stretches + 1 } else { 0 };
            (self.began, self.full_before) = (now, full);
        }
        self.full_stretches >= STRETCHES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_socket_is_full_until_it_took_all() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut fullness = Fullness::default();
        for (ms, is_full) in [(0, false), (10, true), (20, true), (40, false), (50, false), (60, true)] {
            fullness.saw(is_full, at(ms));
        }
        assert_eq!(fullness.total(at(60)), Duration::from_millis(30));
        assert_eq!(fullness.total(at(65)), Duration::from_millis(35));
    }

    #[test]
    fn a_line_is_full_after_two_seconds_of_it() {
        let begin = Instant::now();
        let mut chooser = Chooser::new(begin);
        // Milliseconds of each second.
        let looks = [400, 100, 400, 300, 400, 340];
        let mut full = Duration::ZERO;
        let mut found = Vec::new();
        for (second, ms) in (1..).zip(looks) {
            full += Duration::from_millis(ms);
            found.push(chooser.look(begin + SECOND * second, full));
        }
        assert_eq!(found, [false, false, false, false, false, true]);
        // Looks may come more often.
        let mut often = Chooser::new(begin);
        let tenth = Duration::from_millis(100);
        let first = (0..100).find(|look| often.look(begin + tenth * *look, tenth * *look));
        assert_eq!(first, Some(20));
    }
}
