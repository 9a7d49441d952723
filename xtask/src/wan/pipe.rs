//! One direction of the WAN, as arithmetic: no clock, no socket, no thread.
//!
//! Picture a fast LAN in front of a router with a slow line and a buffer that drops at the tail.
//! The line keeps a virtual clock, `link_free_ns`: the moment at which everything accepted so far
//! has been sent. A packet that arrives is sent from that moment on, and is due at the far end one
//! delay later. The buffer's fill needs no counting: it is the time until the line is free, times
//! the rate.
//!
//! Invariants: packets leave in the order they came, but for those that are sent on a detour; each segment is checked (loss, size, buffer)
//! on its own; the rate is exact over any stretch, with no burst allowance.

use super::packet::PacketShape;
use super::ring::{Flight, PacketRing};
use serde::Serialize;
use std::ops::Range;

/// A piece takes at most this much line time, or a super-packet would arrive as one lump.
const PIECE_LINE_TIME_NS: u64 = 500_000;
/// The smallest buffer when it is left to us: two initial TCP windows.
const QUEUE_BYTES_MIN: u64 = 30_000;
/// Bound of what is in flight and queued, per direction: 10 Gbit/s for 200 ms.
pub const RING_BYTES: usize = 256 << 20;
/// A detour takes so much of the round trip longer: others overtake, and yet TCP, which waits a quarter of it (RFC 8985), has
/// not given the segment up for lost.
const DETOUR_PART: u64 = 8;
/// And so much at least.
const DETOUR_NS_MIN: u64 = 200_000;

/// How one direction behaves. Everything may be changed while running.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineSettings {
    /// One way, in nanoseconds.
    pub delay_ns: u64,
    pub rate_bits_per_second: u64,
    /// Bytes the buffer before the line holds; `None`: one bandwidth-delay product of the round trip.
    pub queue_bytes: Option<u64>,
    /// Share of segments lost, 0 to 1.
    pub loss: f64,
    /// Share of segments with one payload bit flipped, 0 to 1.
    pub corrupt: f64,
    /// Share of segments that take a detour, so that later ones overtake them, 0 to 1.
    pub reorder: f64,
    /// Packets with more IP bytes than this vanish without a word.
    pub drop_above_bytes: Option<u64>,
    /// A cut cable: what arrives and what is in flight is gone.
    pub is_cut: bool,
}

/// What happened since the start, in segments unless the name says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PipeCounters {
    pub arrived: u64,
    pub arrived_bytes: u64,
    pub delivered: u64,
    pub delivered_bytes: u64,
    pub lost: u64,
    pub dropped_queue_full: u64,
    pub dropped_too_big: u64,
    pub dropped_cut: u64,
    pub dropped_ring_full: u64,
    pub dropped_malformed: u64,
    pub corrupted: u64,
    pub reordered: u64,
    pub write_errors: u64,
    pub queue_bytes_max: u64,
    pub pieces_delivered: u64,
    /// How long after their due time pieces were delivered.
    pub late_ns_max: u64,
    pub late_ns_sum: u64,
}

pub struct PacketPipe {
    line: LineSettings,
    round_trip_ns: u64,
    link_free_ns: u64,
    random: PipeRandom,
    road: Road,
    detour: Road,
    counters: PipeCounters,
}

/// One way to the far end, on which nobody overtakes.
struct Road {
    due_ns_last: u64,
    ring: PacketRing,
}

impl Road {
    fn new(ring_bytes: usize) -> Road {
        Road { due_ns_last: 0, ring: PacketRing::new(ring_bytes) }
    }

    fn due_ns(&self) -> Option<u64> {
        self.ring.front().map(|(flight, _)| flight.due_ns)
    }

    fn clear(&mut self) -> u64 {
        self.due_ns_last = 0;
        self.ring.clear()
    }
}

impl PacketPipe {
    /// `round_trip_ns` is the sum of both directions' delays; it sizes the default buffer.
    pub fn new(line: LineSettings, round_trip_ns: u64, seed: u64, ring_bytes: usize) -> PacketPipe {
        PacketPipe {
            line,
            round_trip_ns,
            link_free_ns: 0,
            random: PipeRandom(seed),
            road: Road::new(ring_bytes),
            detour: Road::new(ring_bytes),
            counters: PipeCounters::default(),
        }
    }

    pub fn line(&self) -> &LineSettings {
        &self.line
    }

    pub fn counters(&self) -> &PipeCounters {
        &self.counters
    }

    /// Changes the line. Delay and rate hold for packets that arrive from now on.
    pub fn set_line(&mut self, line: LineSettings, round_trip_ns: u64) {
        self.line = line;
        self.round_trip_ns = round_trip_ns;
        if self.line.is_cut {
            self.counters.dropped_cut += self.road.clear() + self.detour.clear();
            self.link_free_ns = 0;
        }
    }

    /// The buffer's limit in bytes.
    pub fn queue_bytes(&self) -> u64 {
        self.line.queue_bytes.unwrap_or_else(|| {
            let bits = u128::from(self.line.rate_bits_per_second) * u128::from(self.round_trip_ns);
            ((bits / 8_000_000_000) as u64).max(QUEUE_BYTES_MIN)
        })
    }

    /// Takes a frame from the near TUN device.
    pub fn arrive(&mut self, now_ns: u64, frame: &[u8]) {
        let Some(shape) = PacketShape::of(frame) else {
            self.counters.dropped_malformed += 1;
            return;
        };
        let segments = shape.segments();
        self.counters.arrived += segments as u64;
        if self.line.is_cut {
            self.counters.dropped_cut += segments as u64;
            return;
        }
        // The run of accepted segments not yet sent on, and the line time it takes.
        let (mut run_start, mut run_ns) = (0, 0);
        for segment in 0..segments {
            let bytes = shape.segment_bytes(segment) as u64;
            self.counters.arrived_bytes += bytes;
            let line_time_ns = self.line_time_ns(bytes);
            let is_accepted = self.accepts(now_ns, bytes);
            let is_overtaken = is_accepted && self.random.happens(self.line.reorder);
            let is_apart = !is_accepted || is_overtaken;
            if is_apart || (run_ns > 0 && run_ns + line_time_ns > PIECE_LINE_TIME_NS) {
                self.depart(frame, &shape, run_start..segment, false);
                (run_start, run_ns) = (segment, 0);
            }
            if is_accepted {
                self.link_free_ns = self.link_free_ns.max(now_ns) + line_time_ns;
                run_ns += line_time_ns;
            }
            if is_overtaken {
                self.depart(frame, &shape, segment..segment + 1, true);
            }
            if is_apart {
                (run_start, run_ns) = (segment + 1, 0);
            }
        }
        self.depart(frame, &shape, run_start..segments, false);
    }

    /// When the oldest packet in flight is due.
    pub fn next_due_ns(&self) -> Option<u64> {
        [self.road.due_ns(), self.detour.due_ns()].into_iter().flatten().min()
    }

    /// The packet that is due first, if it is due. `delivered` removes it.
    pub fn due(&self, now_ns: u64) -> Option<&[u8]> {
        let road = if self.is_detour_next() { &self.detour } else { &self.road };
        road.ring.front().filter(|(flight, _)| flight.due_ns <= now_ns).map(|(_, frame)| frame)
    }

    fn is_detour_next(&self) -> bool {
        self.detour.due_ns().is_some_and(|detour| self.road.due_ns().is_none_or(|road| detour < road))
    }

    /// Removes the packet that `due` returned after it was handed to the far side, or refused by it.
    pub fn delivered(&mut self, now_ns: u64, was_accepted: bool) {
        let road = if self.is_detour_next() { &mut self.detour } else { &mut self.road };
        let flight = road.ring.pop().expect("due() returned it");
        if !was_accepted {
            self.counters.write_errors += u64::from(flight.segments);
            return;
        }
        let late_ns = now_ns.saturating_sub(flight.due_ns);
        self.counters.delivered += u64::from(flight.segments);
        self.counters.delivered_bytes += flight.wire_bytes;
        self.counters.pieces_delivered += 1;
        self.counters.late_ns_max = self.counters.late_ns_max.max(late_ns);
        self.counters.late_ns_sum += late_ns;
    }

    /// Checks one segment: size, loss, buffer. Counts the verdict if it is a drop.
    fn accepts(&mut self, now_ns: u64, bytes: u64) -> bool {
        if self.line.drop_above_bytes.is_some_and(|limit| bytes > limit) {
            self.counters.dropped_too_big += 1;
            return false;
        }
        if self.random.happens(self.line.loss) {
            self.counters.lost += 1;
            return false;
        }
        let backlog_ns = self.link_free_ns.saturating_sub(now_ns);
        let queued_bits = u128::from(backlog_ns) * u128::from(self.line.rate_bits_per_second);
        let queued_bytes = (queued_bits / 8_000_000_000) as u64;
        // An idle line takes any packet: it goes onto the line, not into the buffer.
        if queued_bytes > 0 && queued_bytes + bytes > self.queue_bytes() {
            self.counters.dropped_queue_full += 1;
            return false;
        }
        self.counters.queue_bytes_max = self.counters.queue_bytes_max.max(queued_bytes + bytes);
        true
    }

    /// Puts a run of accepted segments in flight; its last one leaves the line at `link_free_ns`.
    fn depart(&mut self, frame: &[u8], shape: &PacketShape, segments: Range<usize>, is_overtaken: bool) {
        if segments.is_empty() {
            return;
        }
        let (road, further_ns) = if is_overtaken {
            self.counters.reordered += segments.len() as u64;
            (&mut self.detour, (self.round_trip_ns / DETOUR_PART).max(DETOUR_NS_MIN))
        } else {
            (&mut self.road, 0)
        };
        // A shorter delay does not overtake: packets in flight stay in order.
        let due_ns = road.due_ns_last.max(self.link_free_ns + self.line.delay_ns + further_ns);
        let wire_bytes = segments.clone().map(|segment| shape.segment_bytes(segment) as u64).sum();
        let flight = Flight { due_ns, segments: segments.len() as u32, wire_bytes };
        let frame_bytes = shape.piece_frame_bytes(segments.clone());
        let Some(piece) = road.ring.push(frame_bytes, flight) else {
            self.counters.dropped_ring_full += segments.len() as u64;
            return;
        };
        road.due_ns_last = due_ns;
        shape.write_piece(frame, segments.clone(), piece);
        if self.line.corrupt > 0.0 {
            for segment in 0..segments.len() {
                let is_hit = self.random.happens(self.line.corrupt);
                if is_hit && shape.corrupt(piece, segment, self.random.next()) {
                    self.counters.corrupted += 1;
                }
            }
        }
    }

    fn line_time_ns(&self, bytes: u64) -> u64 {
        (bytes * 8_000_000_000).div_ceil(self.line.rate_bits_per_second)
    }
}

/// A small generator (splitmix64): the seed and the order of packets decide everything.
struct PipeRandom(u64);

impl PipeRandom {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn happens(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        unit < probability
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::tests::tcp4_train;
    use super::*;

    const MBIT_100: u64 = 100_000_000;
    const SEGMENT_NS: u64 = 120_000; // 1500 bytes at 100 Mbit/s

    fn line() -> LineSettings {
        LineSettings {
            delay_ns: 25_000_000,
            rate_bits_per_second: MBIT_100,
            queue_bytes: Some(1_000_000),
            loss: 0.0,
            corrupt: 0.0,
            reorder: 0.0,
            drop_above_bytes: None,
            is_cut: false,
        }
    }

    fn pipe(line: LineSettings) -> PacketPipe {
        PacketPipe::new(line, 50_000_000, 7, 1 << 20)
    }

    fn drain(pipe: &mut PacketPipe) -> Vec<(u64, usize)> {
        let mut arrivals = Vec::new();
        while let Some(due_ns) = pipe.next_due_ns() {
            assert!(pipe.due(due_ns - 1).is_none(), "nothing is early");
            arrivals.push((due_ns, pipe.due(due_ns).expect("due now").len()));
            pipe.delivered(due_ns, true);
        }
        arrivals
    }

    #[test]
    fn a_packet_is_due_after_line_time_and_delay() {
        let mut pipe = pipe(line());
        pipe.arrive(1_000, &tcp4_train(1448, 0, 0x10));
        assert_eq!(pipe.next_due_ns(), Some(1_000 + SEGMENT_NS + 25_000_000));
    }

    #[test]
    fn the_rate_is_exact_and_trains_are_cut_to_half_a_millisecond() {
        let mut pipe = pipe(line());
        pipe.arrive(0, &tcp4_train(1448 * 40, 1448, 0x10));
        let arrivals = drain(&mut pipe);
        assert_eq!(arrivals.len(), 10, "four segments of 0.12 ms each");
        assert_eq!(arrivals[0].0, 4 * SEGMENT_NS + 25_000_000);
        assert_eq!(arrivals[9].0, 40 * SEGMENT_NS + 25_000_000);
        assert_eq!(pipe.counters().delivered, 40);
        assert_eq!(pipe.counters().delivered_bytes, 40 * 1500);
    }

    #[test]
    fn the_buffer_drops_the_tail_per_segment() {
        let mut pipe = pipe(LineSettings { queue_bytes: Some(15_000), ..line() });
        pipe.arrive(0, &tcp4_train(1448 * 40, 1448, 0x10));
        assert_eq!(pipe.counters().dropped_queue_full, 30);
        pipe.arrive(SEGMENT_NS, &tcp4_train(1448, 0, 0x10));
        assert_eq!(pipe.counters().dropped_queue_full, 30, "one segment left, one fits");
        assert_eq!(pipe.counters().queue_bytes_max, 15_000);
    }

    #[test]
    fn the_default_buffer_is_one_round_trip_of_the_rate() {
        assert_eq!(pipe(LineSettings { queue_bytes: None, ..line() }).queue_bytes(), 625_000);
        let short = PacketPipe::new(LineSettings { queue_bytes: None, ..line() }, 0, 7, 1 << 20);
        assert_eq!(short.queue_bytes(), QUEUE_BYTES_MIN);
    }

    #[test]
    fn loss_is_per_segment_and_follows_the_seed() {
        let survivors = |seed| {
            let line = LineSettings { loss: 0.1, queue_bytes: Some(1 << 30), ..line() };
            let mut pipe = PacketPipe::new(line, 50_000_000, seed, 1 << 20);
            for _ in 0..100 {
                pipe.arrive(0, &tcp4_train(1448 * 40, 1448, 0x10));
                drain(&mut pipe);
            }
            assert_eq!(pipe.counters().lost + pipe.counters().delivered, 4_000);
            pipe.counters().delivered
        };
        let delivered = survivors(1);
        assert!((3_500..3_700).contains(&delivered), "{delivered} of 4000 at 10 % loss");
        assert_eq!(survivors(1), delivered);
        assert_ne!(survivors(2), delivered);
    }

    #[test]
    fn total_loss_and_a_size_limit_let_nothing_big_through() {
        let mut lossy = pipe(LineSettings { loss: 1.0, ..line() });
        lossy.arrive(0, &tcp4_train(1448 * 40, 1448, 0x10));
        assert!(drain(&mut lossy).is_empty());
        let mut narrow = pipe(LineSettings { drop_above_bytes: Some(1400), ..line() });
        narrow.arrive(0, &tcp4_train(1448 * 2 + 100, 1448, 0x10));
        assert_eq!(narrow.counters().dropped_too_big, 2);
        assert_eq!(drain(&mut narrow).len(), 1, "the short last segment fits");
    }

    #[test]
    fn a_cut_drops_what_is_in_flight_and_what_arrives() {
        let mut pipe = pipe(line());
        pipe.arrive(0, &tcp4_train(1448 * 4, 1448, 0x10));
        pipe.set_line(LineSettings { is_cut: true, ..line() }, 50_000_000);
        pipe.arrive(0, &tcp4_train(1448 * 4, 1448, 0x10));
        assert_eq!((pipe.next_due_ns(), pipe.counters().dropped_cut), (None, 8));
        pipe.set_line(line(), 50_000_000);
        pipe.arrive(1_000, &tcp4_train(1448, 0, 0x10));
        assert_eq!(pipe.next_due_ns(), Some(1_000 + SEGMENT_NS + 25_000_000));
    }

    #[test]
    fn a_shorter_delay_keeps_the_order() {
        let mut pipe = pipe(line());
        pipe.arrive(0, &tcp4_train(1448, 0, 0x10));
        pipe.set_line(LineSettings { delay_ns: 0, ..line() }, 0);
        pipe.arrive(0, &tcp4_train(100, 0, 0x10));
        let dues: Vec<u64> = drain(&mut pipe).iter().map(|(due_ns, _)| *due_ns).collect();
        assert_eq!(dues, [SEGMENT_NS + 25_000_000; 2]);
    }

    #[test]
    fn segments_on_a_detour_are_overtaken_and_none_is_lost() {
        let mut pipe = pipe(LineSettings { reorder: 0.1, ..line() });
        let train = tcp4_train(1448 * 40, 1448, 0x10);
        let whole = PacketShape::of(&train).expect("a train").piece_frame_bytes(0..1);
        pipe.arrive(0, &train);
        let arrivals = drain(&mut pipe);
        assert!(arrivals.is_sorted(), "time goes forward");
        let counters = pipe.counters();
        assert!((1..=10).contains(&counters.reordered), "{counters:?}");
        assert_eq!((counters.delivered, counters.delivered_bytes), (40, 40 * 1500));
        // The whole train takes less than the detour: those that were overtaken come last.
        let late = arrivals.iter().filter(|(due_ns, _)| *due_ns > 40 * SEGMENT_NS + 25_000_000);
        let late: Vec<_> = late.collect();
        assert_eq!(late.len() as u64, counters.reordered);
        assert!(late.iter().all(|(_, bytes)| *bytes == whole), "one segment each");
    }

    #[test]
    fn corruption_counts_segments_and_garbage_is_dropped() {
        let mut pipe = pipe(LineSettings { corrupt: 1.0, ..line() });
        pipe.arrive(0, &tcp4_train(1448 * 40, 1448, 0x10));
        pipe.arrive(0, &[0; 30]);
        assert_eq!((pipe.counters().corrupted, pipe.counters().dropped_malformed), (40, 1));
    }
}
