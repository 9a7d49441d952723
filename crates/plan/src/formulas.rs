//! The papers' formulas, each a function of typed quantities, each with its source.
//!
//! Sources: *AVS* is Sun's "Remote Mirror Software in Asynchronous Replication Mode" (StorEdge Availability Suite 3.1);
//! *HADR* is IBM's "TCP tuning" page for Db2 HADR and its wiki (simulator, log scanner, calculator); *RFC* are the IETF's.

use units::quantities::{Bytes, Rate, Seconds, Share};
use units::{KIB, MIB};

/// Smallest socket buffer that any of the sources advises. HADR.
pub const BUFFER_BYTES_MIN: Bytes = Bytes(64 * KIB);
/// Largest that is advised; more is left to the kernel's own tuning. HADR.
pub const BUFFER_BYTES_MAX: Bytes = Bytes(32 * MIB);
/// Remote calls of AVS carry at most this much.
pub const AVS_CALL_BYTES: Bytes = Bytes(32 * KIB);
/// TCP payload of a 1500-byte packet over IPv4 with timestamps.
pub const SEGMENT_BYTES: Bytes = Bytes(1448);
/// The same packet as it occupies an Ethernet wire: header, checksum, preamble and gap included.
pub const SEGMENT_WIRE_BYTES: Bytes = Bytes(1538);
/// Share of a granted socket buffer that Linux lets be in flight at MTU 1500; the rest is its own bookkeeping.
pub const GRANTED_USABLE: f64 = 0.62;
/// Linux adds this, at least, to the smoothed round trip before it sends again.
pub const RTO_MIN_DEFAULT: Seconds = Seconds(0.2);

/// What must be in flight to fill a link: `rate x round trip`. HADR; AVS writes the same as `2 x bandwidth x one-way delay`.
pub fn bandwidth_delay(rate: Rate, rtt: Seconds) -> f64 {
    rate.over(rtt)
}

/// The AVS form, with the delay of one way.
pub fn bandwidth_delay_one_way(rate: Rate, one_way: Seconds) -> f64 {
    2.0 * rate.over(one_way)
}

/// Socket buffer for both directions on both ends: the larger of what the link and the largest flush need, never below
/// [`BUFFER_BYTES_MIN`]. HADR.
pub fn socket_buffer(rate: Rate, rtt: Seconds, flush: Bytes) -> Bytes {
    Bytes::ceil(bandwidth_delay(rate, rtt)).max(flush).max(BUFFER_BYTES_MIN)
}

/// What an asynchronous sender must hold so that a receiver's pause does not stop it; as much may be lost. HADR.
pub fn hiccup_buffer(rate: Rate, pause: Seconds) -> Bytes {
    Bytes::ceil(rate.over(pause))
}

/// Most a connection carries: `min(link, window / round trip)`. AVS, table B-1.
pub fn window_limit(link: Rate, window: Bytes, rtt: Seconds) -> Rate {
    if rtt.0 <= 0.0 {
        return link;
    }
    Rate::from_bytes_per_s((window.as_f64() / rtt.0).min(link.bytes_per_s()))
}

/// One request per round trip: calls per second and bytes per second, `depth` calls in flight, each of at most `call` bytes.
/// AVS (depth 1, calls of 32 KiB).
pub fn request_per_round_trip(size: Bytes, rtt: Seconds, depth: u64, call: Bytes) -> (f64, Rate) {
    let calls = depth as f64 / rtt.0;
    let per_call = size.as_f64() / size.0.div_ceil(call.0).max(1) as f64;
    (calls, Rate::from_bytes_per_s(calls * per_call))
}

/// Time until a queue is full: `queue / (fill - drain)`; never, if it drains as fast as it fills. AVS.
pub fn queue_fill_time(queue: Bytes, fill: Rate, drain: Rate) -> Seconds {
    let net = fill.bytes_per_s() - drain.bytes_per_s();
    Seconds(if net > 0.0 { queue.as_f64() / net } else { f64::INFINITY })
}

/// Time until a backlog is gone while writes go on; never, if they come as fast as the link takes them.
pub fn catch_up_time(backlog: Bytes, fill: Rate, drain: Rate) -> Seconds {
    let net = drain.bytes_per_s() - fill.bytes_per_s();
    Seconds(if net > 0.0 { backlog.as_f64() / net } else { f64::INFINITY })
}

/// From this round trip on the daemons ask for bbr unless told otherwise; a test in `farshore` compares it with theirs.
pub const BBR_FROM: Seconds = Seconds(0.01);

/// What decides how fast a connection sends: how it answers loss, and what it gives up to look at the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionModel {
    Reno,
    Cubic,
    Bbr,
}

impl CongestionModel {
    /// What the daemons' `congestion = "auto"` comes to where the kernel has bbr and its own choice is CUBIC.
    pub fn auto(rtt: Seconds) -> Self {
        if rtt.0 >= BBR_FROM.0 { Self::Bbr } else { Self::Cubic }
    }

    /// The one whose sending is nearest to that of this name: the kernel's others go by loss, as CUBIC does.
    pub fn like(name: &str) -> Self {
        match name {
            "bbr" => Self::Bbr,
            "reno" => Self::Reno,
            _ => Self::Cubic,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

/// Most a connection carries under random loss. Reno: Mathis et al. 1997, `segment/rtt x 1.2247/sqrt(p)`; CUBIC: RFC 9438,
/// `1.054 x (rtt/p)^0.75` segments a round trip, never below Reno; BBR keeps the link's rate at the losses links have.
pub fn loss_limit(link: Rate, rtt: Seconds, loss: Share, control: CongestionModel) -> Rate {
    if loss.0 <= 0.0 || rtt.0 <= 0.0 || control == CongestionModel::Bbr {
        return link;
    }
    let reno_segments = 1.2247 / loss.0.sqrt();
    let segments = match control {
        CongestionModel::Cubic => reno_segments.max(1.054 * (rtt.0 / loss.0).powf(0.75)),
        _ => reno_segments,
    };
    let rate = segments * SEGMENT_BYTES.as_f64() / rtt.0;
    Rate::from_bytes_per_s(rate.min(link.bytes_per_s()))
}

/// What Linux waits before it sends a lost segment again: `rtt + max(4 x deviation, rto_min)`. RFC 6298 with Linux's floor.
pub fn retransmission_timeout(rtt: Seconds, deviation: Seconds, rto_min: Seconds) -> Seconds {
    Seconds(rtt.0 + (4.0 * deviation.0).max(rto_min.0))
}

/// A minimum worth setting: three round trips, at least 20 ms, which is above no peer's delayed acknowledgement unless both
/// ends lower it. Only worth it when the round trip is far below 200 ms and segments are lost.
pub fn rto_min_advice(rtt: Seconds) -> Seconds {
    Seconds((3.0 * rtt.0).clamp(0.02, RTO_MIN_DEFAULT.0))
}

/// Chance that a write of this size loses at least one segment.
pub fn loss_chance(size: Bytes, loss: Share) -> Share {
    let segments = size.0.div_ceil(SEGMENT_BYTES.0).max(1) as f64;
    Share(1.0 - (1.0 - loss.0).powf(segments))
}

/// What a lost tail adds to one answer: the loss probe waits `2 x rtt + rto_min`, and its answer takes another round trip.
pub fn loss_delay(rtt: Seconds, rto_min: Seconds) -> Seconds {
    Seconds(3.0 * rtt.0 + rto_min.0)
}

/// One flush on a warm connection: `rtt + size x packet/payload / rate`.
pub fn warm_flush(size: Bytes, rate: Rate, rtt: Seconds) -> Seconds {
    Seconds(rtt.0 + size.as_f64() * 1500.0 / SEGMENT_BYTES.as_f64() / rate.bytes_per_s())
}

/// Round trips that slow start needs for a flush after an idle time: `ceil(log2(size / (10 segments) + 1))`.
pub fn slow_start_rounds(size: Bytes) -> u32 {
    (size.as_f64() / (10.0 * SEGMENT_BYTES.as_f64()) + 1.0).log2().ceil() as u32
}

/// Time to send again everything under the activity log after a crash: `extents x extent size / rate`.
pub fn activity_log_resync(extents: u64, extent: Bytes, rate: Rate) -> Seconds {
    Seconds(extents as f64 * extent.as_f64() / rate.bytes_per_s())
}

/// Most extents whose resync fits a time: `rate x time / extent size`.
pub fn activity_log_extents(target: Seconds, extent: Bytes, rate: Rate) -> u64 {
    (rate.over(target) / extent.as_f64()).floor() as u64
}

/// Table B-1 of the AVS paper: rate for each buffer (rows) and round trip (columns).
pub fn table_b1(buffers: &[Bytes], latencies: &[Seconds], link: Rate) -> Vec<Vec<Rate>> {
    buffers.iter().map(|&b| latencies.iter().map(|&l| window_limit(link, b, l)).collect()).collect()
}

/// Two decimals, halves up, as table B-1 prints.
pub fn printed_as_b1(value: f64) -> f64 {
    (value * 100.0 + 0.5 + 1e-9).floor() / 100.0
}

/// Table 4 of the AVS paper as a model: a synchronous write makes `ceil(size / 32 KiB)` round trips on top of the
/// asynchronous one's time.
pub fn avs_sync_response(size: Bytes, rtt: Seconds, async_response: Seconds) -> Seconds {
    Seconds(size.0.div_ceil(AVS_CALL_BYTES.0) as f64 * rtt.0 + async_response.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(value: f64, wanted: f64, tolerance: f64) {
        assert!((value - wanted).abs() <= tolerance, "{value} is not {wanted} ± {tolerance}");
    }

    fn ms(count: f64) -> Seconds {
        Seconds::from_ms(count)
    }

    /// AVS, table B-1: KB is 1024, Mbit is 2^20; the link is capped at 100.
    #[test]
    fn table_b1_has_its_ten_cells() {
        let latencies = [10.0, 20.0, 50.0, 100.0, 200.0].map(ms);
        let cells = table_b1(&[Bytes::from_kib(24), Bytes::from_kib(256)], &latencies, Rate::from_mibit(100.0));
        let printed: Vec<Vec<f64>> =
            cells.iter().map(|row| row.iter().map(|rate| printed_as_b1(rate.as_mibit())).collect()).collect();
        assert_eq!(printed, [[18.75, 9.38, 3.75, 1.88, 0.94], [100.0, 100.0, 40.0, 20.0, 10.0]]);
        // The second cell is not capped: it is 100 exactly.
        assert_eq!(window_limit(Rate::from_mibit(1e4), Bytes::from_kib(256), ms(20.0)).as_mibit(), 100.0);
    }

    /// AVS, "2 x bandwidth x delay": 0.05 s ping at 100 Mbit/s is 625 KB.
    #[test]
    fn avs_buffer_of_625_kb() {
        near(bandwidth_delay(Rate::from_mbit(100.0), ms(50.0)), 625_000.0, 1e-6);
        near(bandwidth_delay_one_way(Rate::from_mbit(100.0), ms(25.0)), 625_000.0, 1e-6);
    }

    /// HADR, TCP tuning: 12 500 bytes, 125 000 bytes, 153 KB (153.6 cut off). RFC 6349: 138 KB.
    #[test]
    fn hadr_windows() {
        near(bandwidth_delay(Rate::from_mbit(1000.0), ms(0.1)), 12_500.0, 1e-6);
        near(bandwidth_delay(Rate::from_mbit(10.0), ms(100.0)), 125_000.0, 1e-6);
        near(bandwidth_delay(Rate::from_mb(4.8), ms(32.0)), 153_600.0, 1e-6);
        near(bandwidth_delay(Rate::from_mbit(44.21), ms(25.0)) * 8.0, 1_105_250.0, 1e-6);
        // A short link still gets the floor, a large flush its own size.
        assert_eq!(socket_buffer(Rate::from_mbit(1000.0), ms(0.1), Bytes(4096)), BUFFER_BYTES_MIN);
        assert_eq!(socket_buffer(Rate::from_mbit(10.0), ms(100.0), Bytes::from_mib(1)), Bytes::from_mib(1));
    }

    /// HADR, TCP tuning: 3 MB/s for 10 s is 30 MB.
    #[test]
    fn hadr_hiccup_of_30_mb() {
        assert_eq!(hiccup_buffer(Rate::from_mb(3.0), Seconds(10.0)), Bytes::from_mb(30));
    }

    /// HADR, simulator: 2 097 152 bytes in 12.460158 s are 0.168309 MBytes/sec; 410 255 360 in 4.000821 s are 102.542793.
    #[test]
    fn hadr_simulator_rates_are_decimal() {
        near(Rate::from_bytes_per_s(2_097_152.0 / 12.460_158).as_mb(), 0.168_309, 5e-7);
        near(Rate::from_bytes_per_s(410_255_360.0 / 4.000_821).as_mb(), 102.542_793, 5e-7);
    }

    /// AVS: 50 ms, one call per round trip: 20 a second, 160 KB/s at 8 KB, 640 KB/s at 32 KB; larger writes are cut.
    #[test]
    fn avs_one_request_per_round_trip() {
        let (calls, rate) = request_per_round_trip(Bytes::from_kb(8), ms(50.0), 1, AVS_CALL_BYTES);
        assert_eq!((calls, rate), (20.0, Rate::from_bytes_per_s(160_000.0)));
        let (_, rate) = request_per_round_trip(Bytes::from_kb(32), ms(50.0), 1, AVS_CALL_BYTES);
        assert_eq!(rate, Rate::from_bytes_per_s(640_000.0));
        let (_, cut) = request_per_round_trip(Bytes::from_kib(64), ms(50.0), 1, AVS_CALL_BYTES);
        assert_eq!(cut, Rate::from_bytes_per_s(20.0 * 32_768.0));
    }

    /// AVS, examples 1 and 2: 20 writes of 8 KB at 160 KB/s never fill the queue, 50 fill 8 MB in 33 s and 16 MB in 66.7 s.
    #[test]
    fn avs_queue_fills_in_33_s() {
        let drain = Rate::from_bytes_per_s(160_000.0);
        let fill = Rate::from_bytes_per_s(400_000.0);
        near(queue_fill_time(Bytes::from_mb(8), fill, drain).0, 33.333, 1e-3);
        near(queue_fill_time(Bytes::from_mb(16), fill, drain).0, 66.667, 1e-3);
        // The real default, 16 384 blocks of 512 bytes, against binary kilobytes: the paper's figure either way.
        let real = queue_fill_time(Bytes(16_384 * 512), fill, drain).0;
        assert!((33.0..=35.0).contains(&real), "{real}");
        assert_eq!(queue_fill_time(Bytes::from_mb(8), drain, drain).0, f64::INFINITY);
        assert_eq!(catch_up_time(Bytes::from_mb(8), fill, drain).0, f64::INFINITY);
        near(catch_up_time(Bytes::from_mb(8), drain, fill).0, 33.333, 1e-3);
    }

    /// AVS, table 4: 60/10, 66/18, 124/25 ms at 50 ms; the model gives 60, 68, 125, within 3 %.
    #[test]
    fn avs_table_4_within_three_percent() {
        for (kib, async_ms, model_ms, paper_ms) in
            [(8, 10.0, 60.0, 60.0), (32, 18.0, 68.0, 66.0), (64, 25.0, 125.0, 124.0)]
        {
            let sync = avs_sync_response(Bytes::from_kib(kib), ms(50.0), ms(async_ms)).as_ms();
            near(sync, model_ms, 1e-9);
            assert!((sync / paper_ms - 1.0).abs() <= 0.0304, "{sync} against {paper_ms}");
        }
        for (sync, asynchronous, percent) in [(60.0, 10.0, 500.0), (66.0, 18.0, 266.7), (124.0, 25.0, 396.0)] {
            near((sync - asynchronous) / asynchronous * 100.0, percent, 0.05);
        }
    }

    /// HADR, buffers against throughput at 32 ms, plateau 4.834 MB/s: theory bounds each measured row from above.
    #[test]
    fn hadr_buffer_table_stays_below_theory() {
        for (kib, measured, theory) in
            [(64, 1.554_048, 2.048), (128, 3.347_476, 4.096), (256, 4.734_673, 4.834), (512, 4.834_047, 4.834)]
        {
            let limit = window_limit(Rate::from_mb(4.834), Bytes::from_kib(kib), ms(32.0)).as_mb();
            near(limit, theory, 5e-4);
            assert!(measured <= limit + 1e-3, "{kib} KiB");
        }
    }

    /// Mathis et al. at 50 ms and 1448 bytes: 0.35, 1.12, 3.55 MB/s for a loss of 1 %, 0.1 %, 0.01 %.
    #[test]
    fn loss_limits() {
        let link = Rate::from_mb(12.5);
        for (loss, mb) in [(1e-2, 0.35), (1e-3, 1.12), (1e-4, 3.55)] {
            near(loss_limit(link, ms(50.0), Share(loss), CongestionModel::Reno).as_mb(), mb, 0.01);
            assert!(
                loss_limit(link, ms(50.0), Share(loss), CongestionModel::Cubic)
                    >= loss_limit(link, ms(50.0), Share(loss), CongestionModel::Reno)
            );
        }
        assert_eq!(loss_limit(link, ms(50.0), Share(1e-2), CongestionModel::Bbr), link);
        assert_eq!(loss_limit(link, ms(50.0), Share(0.0), CongestionModel::Reno), link);
    }

    /// Measured on Linux at 50 ms: 252 ms by default, 72 with a minimum of 20 ms, 152 with 100 ms; no deviation to speak of.
    #[test]
    fn retransmission_timeouts_of_linux() {
        for (rto_min, measured) in [(200.0, 252.0), (20.0, 72.0), (100.0, 152.0)] {
            near(retransmission_timeout(ms(50.0), ms(0.5), ms(rto_min)).as_ms(), measured, 2.01);
        }
        near(rto_min_advice(ms(2.5)).as_ms(), 20.0, 1e-9);
        near(rto_min_advice(ms(20.0)).as_ms(), 60.0, 1e-9);
    }

    /// Measured: 4 KiB at 1 % loss and 50 ms has p99 368 ms, 179 ms with a minimum of 20 ms.
    #[test]
    fn a_lost_tail() {
        near(loss_delay(ms(50.0), RTO_MIN_DEFAULT).as_ms(), 368.0, 20.0);
        near(loss_delay(ms(50.0), ms(20.0)).as_ms(), 179.0, 15.0);
        near(loss_chance(Bytes(4096), Share(0.01)).0, 0.0297, 1e-4);
    }

    /// Measured: 1 MiB at 12.5 MB/s and 50 ms takes 137.4 ms warm; after an idle time it starts slowly again.
    #[test]
    fn a_single_flush() {
        near(warm_flush(Bytes::from_mib(1), Rate::from_mb(12.5), ms(50.0)).as_ms(), 137.4, 0.6);
        assert_eq!(slow_start_rounds(Bytes::from_mib(1)), 7);
    }

    #[test]
    fn activity_log_against_resync() {
        near(activity_log_resync(1024, Bytes::from_mib(4), Rate::from_mb(12.5)).0, 343.6, 0.1);
        assert_eq!(activity_log_extents(Seconds(343.6), Bytes::from_mib(4), Rate::from_mb(12.5)), 1024);
    }
}
