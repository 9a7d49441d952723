//! The sending end of the link: one frame behind the other at what the link carries, less what bbr gives up to look at it.
//!
//! bbr sends as fast as the line goes and takes the shortest round trip it saw for the line's length. When that is ten
//! seconds old it nearly empties the line to see it anew: for 200 ms and a round trip at most four segments are under way.
//! A 40th of a long line's time, and every ten seconds a quarter of a second in which the far copy grows older. Linux:
//! `bbr_min_rtt_win_sec`, `bbr_probe_rtt_mode_ms`, `bbr_cwnd_min_target` in `net/ipv4/tcp_bbr.c`; the why in
//! draft-cardwell-iccrg-bbr-congestion-control-00, 4.3.5. Measured on a line of 20 Mbit/s and 50 ms that was always full:
//! 230 to 240 ms with 16 segments every 10.3 to 13 s.
//!
//! What nobody knows beforehand is when the ten seconds begin: any shorter round trip seen meanwhile starts them again.
//! Here they begin with the trace, so looks come as often as they can.

use super::LinkModel;
use crate::formulas::{CongestionModel, SEGMENT_BYTES};

/// Age at which the shortest round trip is looked at anew.
const LOOK_EVERY_S: f64 = 10.0;
/// How long a look lasts beyond a round trip.
const LOOK_S: f64 = 0.2;
/// What is under way meanwhile.
const LOOK_SEGMENTS: u64 = 4;

/// Frames leave one behind the other.
#[derive(Clone, Debug)]
pub struct LineModel {
    pub goodput: f64,
    /// When all that was given has left.
    pub free_s: f64,
    looks: Option<Looks>,
}

#[derive(Clone, Debug)]
struct Looks {
    rtt_s: f64,
    /// Bytes per second during a look.
    goodput: f64,
    due_s: f64,
    until_s: f64,
}

impl LineModel {
    pub fn new(link: &LinkModel, goodput: f64) -> Self {
        let rtt_s = link.rtt.0;
        // Four segments a round trip may be all that the link carries: then nothing is given up.
        let slow = (LOOK_SEGMENTS * SEGMENT_BYTES.0) as f64 / rtt_s;
        let is_bbr = link.congestion == CongestionModel::Bbr && slow < goodput;
        let looks = is_bbr.then_some(Looks { rtt_s, goodput: slow, due_s: LOOK_EVERY_S, until_s: 0.0 });
        Self { goodput, free_s: 0.0, looks }
    }

    /// Sends behind all that was sent before, from this moment at the earliest; says when the last byte has left.
    pub fn send(&mut self, at_s: f64, bytes: f64) -> f64 {
        let start_s = self.free_s.max(at_s);
        self.free_s = match &mut self.looks {
            Some(looks) => looks.leave(start_s, self.free_s, bytes, self.goodput),
            None => start_s + bytes / self.goodput,
        };
        self.free_s
    }
}

impl Looks {
    /// When bytes that begin to leave at `now_s` have left; before them the line was busy until `busy_until_s`.
    fn leave(&mut self, mut now_s: f64, busy_until_s: f64, mut bytes: f64, goodput: f64) -> f64 {
        if now_s >= self.due_s && now_s > busy_until_s + self.rtt_s {
            // All was confirmed: the next round trip is an empty line's by itself.
            self.due_s = now_s + LOOK_EVERY_S;
        }
        loop {
            if now_s >= self.due_s {
                self.until_s = now_s + self.rtt_s + LOOK_S;
                self.due_s = self.until_s + LOOK_EVERY_S;
            }
            let looking = now_s < self.until_s;
            let (rate, end_s) = if looking { (self.goodput, self.until_s) } else { (goodput, self.due_s) };
            let fits = (end_s - now_s) * rate;
            if bytes <= fits {
                return now_s + bytes / rate;
            }
            bytes -= fits;
            now_s = end_s;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::quantities::{Rate, Seconds};

    fn line(congestion: CongestionModel, mb_per_s: f64, rtt_ms: f64) -> LineModel {
        let link = LinkModel { congestion, ..LinkModel::measured(Rate::from_mb(mb_per_s), Seconds::from_ms(rtt_ms)) };
        LineModel::new(&link, link.goodput().bytes_per_s())
    }

    /// Nine looks in a hundred seconds, however the bytes are cut into frames.
    #[test]
    fn bbr_gives_up_a_fortieth_of_a_full_line() {
        let whole = line(CongestionModel::Bbr, 2.4, 50.0).send(0.0, 2.4e6 * 100.0);
        let mut cut = line(CongestionModel::Bbr, 2.4, 50.0);
        let pieces = (0..24_000).map(|_| cut.send(0.0, 1e4)).last();
        assert!((pieces.unwrap() - whole).abs() < 1e-6);
        let share = 100.0 / whole;
        assert!((0.976..0.98).contains(&share), "{share}");
        assert_eq!(line(CongestionModel::Cubic, 2.4, 50.0).send(0.0, 2.4e8), 100.0);
    }

    #[test]
    fn a_look_holds_up_what_comes_during_it_and_four_segments_a_round_trip_still_leave() {
        let mut busy = line(CongestionModel::Bbr, 2.4, 50.0);
        busy.send(9.97, 48_000.0);
        // Begun at 10 s: the first frame is four segments, the next waits for the end.
        assert!((busy.send(10.0, 5792.0) - 10.05).abs() < 1e-9);
        assert!((busy.send(10.1, 48_000.0) - 10.26).abs() < 0.02);
        assert!((busy.send(15.0, 24_000.0) - 15.01).abs() < 1e-9);
    }

    #[test]
    fn a_line_that_falls_silent_and_a_slow_one_are_never_looked_at() {
        let mut quiet = line(CongestionModel::Bbr, 2.4, 50.0);
        let lone = (0..100).map(|n| f64::from(n) * 0.3).map(|at_s| quiet.send(at_s, 24_000.0) - at_s);
        assert!(lone.fold(0.0, f64::max) < 0.0101);
        let mut slow = line(CongestionModel::Bbr, 0.1, 50.0);
        assert_eq!(slow.send(0.0, 1e7), 100.0);
    }
}
