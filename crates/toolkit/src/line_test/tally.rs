//! What was counted: distributions, and each end's half of the report. Plain data that travels to the other end.

use std::time::Duration;

use hdrhistogram::Histogram;
use host::link::{BufferReport, SocketReport};
use host::tcp_info::TcpInfo;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::screen::clean;

/// Values above count as this: 51 days in microseconds, or 4 TiB.
const VALUE_MAX: u64 = 1 << 42;

/// A distribution of whole numbers (bytes, microseconds), exact to three digits.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Buckets", into = "Buckets")]
pub struct ValueSpread {
    histogram: Histogram<u64>,
    sum: u64,
    max: u64,
}

/// As it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Buckets {
    sum: u64,
    max: u64,
    counts: Vec<(u64, u64)>,
}

impl Default for ValueSpread {
    fn default() -> Self {
        // It grows with its values: most are small, and there are many of them.
        let histogram = Histogram::new(3).expect("three digits are possible");
        ValueSpread { histogram, sum: 0, max: 0 }
    }
}

impl From<Buckets> for ValueSpread {
    fn from(buckets: Buckets) -> ValueSpread {
        let mut spread = ValueSpread { sum: buckets.sum, max: buckets.max, ..ValueSpread::default() };
        for (value, count) in buckets.counts {
            spread.count_n(value, count);
        }
        spread
    }
}

impl From<ValueSpread> for Buckets {
    fn from(spread: ValueSpread) -> Buckets {
        let values = spread.histogram.iter_recorded();
        let counts = values.map(|step| {
            (spread.histogram.lowest_equivalent(step.value_iterated_to()), step.count_since_last_iteration())
        });
        Buckets { sum: spread.sum, max: spread.max, counts: counts.collect() }
    }
}

impl ValueSpread {
    pub fn add(&mut self, value: u64) {
        self.count_n(value, 1);
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
    }

    fn count_n(&mut self, value: u64, count: u64) {
        self.histogram.record_n(value.min(VALUE_MAX), count).expect("it grows up to the largest value");
    }

    pub fn add_time(&mut self, time: Duration) {
        self.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    pub fn merge(&mut self, other: &ValueSpread) {
        self.histogram.add(&other.histogram).expect("it grows");
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub fn sum(&self) -> u64 {
        self.sum
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    pub fn min(&self) -> u64 {
        if self.histogram.is_empty() { 0 } else { self.histogram.min() }
    }

    pub fn mean(&self) -> f64 {
        if self.histogram.is_empty() { 0.0 } else { self.sum as f64 / self.count() as f64 }
    }

    pub fn at(&self, quantile: f64) -> u64 {
        if self.histogram.is_empty() {
            return 0;
        }
        self.histogram.lowest_equivalent(self.histogram.value_at_quantile(quantile)).min(self.max)
    }

    /// Counts by doubling upper bounds, for eyes.
    pub fn doubling(&self) -> Vec<(u64, u64)> {
        let mut buckets: Vec<(u64, u64)> = Vec::new();
        for step in self.histogram.iter_recorded() {
            let upper = self.histogram.lowest_equivalent(step.value_iterated_to()).max(1).next_power_of_two();
            match buckets.last_mut() {
                Some((last, count)) if *last == upper => {
                    *count = count.saturating_add(step.count_since_last_iteration());
                }
                _ => buckets.push((upper, step.count_since_last_iteration())),
            }
        }
        buckets
    }

    /// Of microseconds, in seconds.
    pub fn in_seconds(&self) -> SpreadReport {
        self.report(|us| us / 1e6)
    }

    /// Of bytes.
    pub fn in_bytes(&self) -> SpreadReport {
        self.report(|bytes| bytes)
    }

    fn report(&self, unit: fn(f64) -> f64) -> SpreadReport {
        let counts = Buckets::from(self.clone()).counts;
        SpreadReport {
            count: self.count(),
            sum: unit(self.sum as f64),
            mean: unit(self.mean()),
            min: unit(self.min() as f64),
            p50: unit(self.at(0.5) as f64),
            p90: unit(self.at(0.9) as f64),
            p99: unit(self.at(0.99) as f64),
            p999: unit(self.at(0.999) as f64),
            max: unit(self.max as f64),
            histogram: counts.into_iter().map(|(value, count)| (unit(value as f64), count)).collect(),
        }
    }
}

/// A distribution, in the unit that the key names.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpreadReport {
    /// number of values
    pub count: u64,
    /// all values together
    pub sum: f64,
    /// 0 without a value
    pub mean: f64,
    /// the smallest; 0 without a value
    pub min: f64,
    /// the median
    pub p50: f64,
    /// 90 of 100 are no larger
    pub p90: f64,
    /// 99 of 100 are no larger
    pub p99: f64,
    /// 999 of 1 000 are no larger
    pub p999: f64,
    /// the largest
    pub max: f64,
    /// `[value, count]`, exact to three digits
    pub histogram: Vec<(f64, u64)>,
}

/// Where the writers' time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WriterWaits {
    /// seconds at their own disk
    pub disk_s: f64,
    /// seconds for the far end's confirmation, or for the socket to take it all
    pub far_s: f64,
    /// seconds for room in the queue
    pub room_s: f64,
    /// seconds for their turn under a target rate, or in a gap
    pub pace_s: f64,
}

/// One second of a sending end, or longer for long tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestInterval {
    /// seconds from the begin of the test to its end
    pub t_s: f64,
    /// bytes confirmed
    pub acked_bytes: u64,
    /// bytes from the other end, where that sends (`--bidir`)
    #[serde(default)]
    pub received_bytes: u64,
    /// seconds: smoothed round trip
    pub rtt_s: f64,
    /// seconds: shortest round trip of the connection
    pub min_rtt_s: f64,
    /// bytes: congestion window
    pub cwnd_bytes: u64,
    /// bytes that the receiver lets the sender have on the way
    pub send_window_bytes: u64,
    /// bytes in the kernel, not yet on the line
    pub unsent_bytes: u64,
    /// bytes sent again
    pub retransmitted_bytes: u64,
    /// 0 to 1, of the time with data in flight: the receiver's window full
    pub receiver_limited_share: f64,
    /// 0 to 1, of the time with data in flight: the send buffer full
    pub buffer_limited_share: f64,
}

/// What the kernel tells of all connections together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    pub sent_bytes: u64,
    pub retransmitted_bytes: u64,
    /// How often segments were seen to arrive in another order.
    #[serde(default)]
    pub reorderings: u64,
    pub busy_us: u64,
    pub receiver_limited_us: u64,
    pub buffer_limited_us: u64,
    pub rtt_min_us: u64,
}

impl Kernel {
    pub fn add(&mut self, info: &TcpInfo) {
        self.sent_bytes += info.bytes_sent;
        self.retransmitted_bytes += info.bytes_retransmitted;
        self.reorderings += u64::from(info.reorderings);
        self.busy_us += info.busy_us;
        self.receiver_limited_us += info.receiver_limited_us;
        self.buffer_limited_us += info.buffer_limited_us;
        let least = u64::from(info.rtt_min_us);
        self.rtt_min_us = if self.rtt_min_us == 0 { least } else { self.rtt_min_us.min(least) };
    }

    /// What came since; the least round trip is that of the connection's life.
    pub fn since(&self, before: &Kernel) -> Kernel {
        Kernel {
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            retransmitted_bytes: self.retransmitted_bytes.saturating_sub(before.retransmitted_bytes),
            reorderings: self.reorderings.saturating_sub(before.reorderings),
            busy_us: self.busy_us.saturating_sub(before.busy_us),
            receiver_limited_us: self.receiver_limited_us.saturating_sub(before.receiver_limited_us),
            buffer_limited_us: self.buffer_limited_us.saturating_sub(before.buffer_limited_us),
            rtt_min_us: self.rtt_min_us,
        }
    }
}

/// What an end sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sent {
    /// Confirmed by the other end, as the flushes are.
    pub bytes: u64,
    pub flushes: u64,
    /// From the first flush to the last confirmation, or until nobody waited for it any more.
    pub seconds: f64,
    /// Of these, until the last writer ended.
    #[serde(default)]
    pub writing_s: f64,
    /// Superasync: found the queue full and would have become regions of a catch-up snapshot.
    pub tracked_flushes: u64,
    pub tracked_bytes: u64,
    /// What writers waited, each flush, microseconds.
    pub response_us: ValueSpread,
    /// From handing over until the far end's durable confirmation.
    pub confirmed_us: ValueSpread,
    pub flush_bytes: ValueSpread,
    /// Those of the waits for room that were any.
    pub room_us: ValueSpread,
    pub send_bytes: ValueSpread,
    pub congestion_us: ValueSpread,
    /// The kernel's smoothed round trip, looked at twenty times a second.
    pub rtt_us: ValueSpread,
    pub kernel: Kernel,
    /// Of frames, before and after packing.
    pub plain_bytes: u64,
    pub wire_bytes: u64,
    pub waits: WriterWaits,
    pub intervals: Vec<TestInterval>,
}

/// What an end received.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReceivedTally {
    pub bytes: u64,
    pub flushes: u64,
    /// From where the stream's figures begin to its last byte, and what its writer waited for behind that.
    pub seconds: f64,
    pub receive_bytes: ValueSpread,
    /// Share of the time in which its disk was busy.
    pub disk_share: f64,
}

impl ReceivedTally {
    pub fn bytes_per_s(&self) -> f64 {
        // Nothing is measured that is shorter than a nanosecond, and what is divided by less is no rate any more.
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds.max(1e-9) } else { 0.0 }
    }
}

/// One buffer of a socket, as the kernel counts: twice what it grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SocketBuffer {
    /// bytes; `null`: the kernel tunes it
    pub requested_bytes: Option<u64>,
    /// bytes before anything was asked
    pub created_bytes: u64,
    /// bytes after that
    pub resized_bytes: u64,
    /// bytes once connected
    pub connected_bytes: u64,
    /// bytes: the largest window seen, the receiver's when sending, this end's when receiving
    pub window_bytes: u64,
}

impl From<&BufferReport> for SocketBuffer {
    fn from(report: &BufferReport) -> SocketBuffer {
        SocketBuffer {
            requested_bytes: report.requested.map(|bytes| bytes as u64),
            created_bytes: report.untouched as u64,
            resized_bytes: report.granted_at_creation as u64,
            connected_bytes: report.granted_when_connected as u64,
            window_bytes: 0,
        }
    }
}

/// One end of one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    pub send: SocketBuffer,
    pub receive: SocketBuffer,
    pub congestion: String,
    pub mtu_bytes: u64,
    pub segment_bytes: u64,
    pub nagle: bool,
    /// What the kernel might hold unsent when the connection began.
    #[serde(default)]
    pub unsent_bytes: Option<u64>,
    /// The shortest pause before a retransmission; `None`: nobody asked, or the kernel has no such option.
    #[serde(default)]
    pub min_rto_us: Option<u64>,
    pub warnings: Vec<String>,
}

impl Socket {
    pub fn of(report: &SocketReport) -> Socket {
        let granted = |name| report.options.iter().find(|option| option.name == name)?.granted;
        Socket {
            send: (&report.send_buffer).into(),
            receive: (&report.receive_buffer).into(),
            congestion: report.congestion.clone(),
            nagle: granted("TCP_NODELAY") == Some(0),
            unsent_bytes: granted("TCP_NOTSENT_LOWAT"),
            min_rto_us: granted("TCP_RTO_MIN_US"),
            warnings: report.warnings.clone(),
            ..Socket::default()
        }
    }

    pub fn look(&mut self, info: &TcpInfo) {
        let congestion = info.congestion.to_string();
        if !congestion.is_empty() {
            self.congestion = congestion;
        }
        self.mtu_bytes = u64::from(info.path_mtu);
        self.segment_bytes = u64::from(info.snd_mss);
        self.send.window_bytes = self.send.window_bytes.max(u64::from(info.send_window_bytes));
        self.receive.window_bytes = self.receive.window_bytes.max(u64::from(info.receive_window_bytes));
    }
}

/// Numbers of a report are no larger: what a week at a terabit per second comes to, and still exact as a fraction.
const NUMBER_MAX: f64 = (1u64 << 53) as f64;

/// What one end has to tell.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EndReport {
    pub sent: Option<Sent>,
    pub received: Option<ReceivedTally>,
    /// Of the first connection; the others are asked the same.
    pub socket: Socket,
    /// How the far end's writer was stopped, if it was.
    pub interrupted: bool,
}

impl EndReport {
    /// Of the other end: everything here adds, divides and prints them. Its texts become harmless.
    ///
    /// # Errors
    /// A sentence: a number that no test comes to.
    pub fn check(&mut self) -> Result<(), String> {
        let Socket { congestion, warnings, .. } = &mut self.socket;
        for text in warnings.iter_mut().chain([congestion]) {
            *text = clean(text);
        }
        let odd = serde_json::to_value(&*self).ok().and_then(|value| odd_number(&value));
        odd.map_or(Ok(()), |odd| Err(format!("the other end reports {odd}, which no test comes to")))
    }
}

/// One below zero, or beyond [`NUMBER_MAX`].
fn odd_number(value: &Json) -> Option<f64> {
    match value {
        Json::Number(number) => number.as_f64().filter(|number| !(0.0..=NUMBER_MAX).contains(number)),
        Json::Array(list) => list.iter().find_map(odd_number),
        Json::Object(object) => object.values().find_map(odd_number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line_test::report::rate;

    #[test]
    fn a_report_that_no_test_comes_to_is_refused() {
        let half = |seconds| EndReport { sent: Some(Sent { seconds, ..Sent::default() }), ..EndReport::default() };
        assert_eq!(half(1.5).check(), Ok(()));
        for seconds in [-1.0, 1e300] {
            assert!(half(seconds).check().is_err_and(|why| why.contains("no test comes to")), "{seconds}");
        }
        let mut half = half(1.5);
        half.socket.congestion = "\u{1b}[31mbbr".to_owned();
        half.sent.as_mut().expect("it sent").kernel.busy_us = u64::MAX;
        assert!(half.check().is_err());
        assert_eq!(half.socket.congestion, "?[31mbbr");
    }

    #[test]
    fn a_time_next_to_nothing_makes_no_rate_beyond_all_numbers() {
        for (seconds, bytes_per_s) in [(2.0, 512.0), (0.0, 0.0), (1e-300, 1024.0 / 1e-9)] {
            let received = ReceivedTally { bytes: 1024, seconds, ..ReceivedTally::default() };
            assert!(EndReport { received: Some(received.clone()), ..EndReport::default() }.check().is_ok());
            assert_eq!(received.bytes_per_s(), bytes_per_s);
        }
        let most = ReceivedTally { bytes: 1 << 53, seconds: f64::MIN_POSITIVE, ..ReceivedTally::default() };
        assert!(rate(most.bytes_per_s()).ends_with("TB/s"), "{}", rate(most.bytes_per_s()));
    }

    #[test]
    fn counts_that_do_not_add_up_are_as_many_as_can_be() {
        let text = format!(r#"{{"sum":1,"max":1,"counts":[[1,{0}],[1,{0}],[3,{0}],[4,{0}]]}}"#, u64::MAX);
        let spread: ValueSpread = serde_json::from_str(&text).expect("it reads");
        assert_eq!(spread.doubling().last(), Some(&(4, u64::MAX)));
    }

    #[test]
    fn a_distribution_travels_and_adds_up() {
        let (mut one, mut other) = (ValueSpread::default(), ValueSpread::default());
        (1..=1000).for_each(|value| one.add(value));
        (1..=10).for_each(|_| other.add(5_000_000));
        one.merge(&other);
        let text = serde_json::to_string(&one).expect("JSON");
        let back: ValueSpread = serde_json::from_str(&text).expect("reads back");
        assert_eq!((back.count(), back.sum(), back.max(), back.min()), (1010, 500_500 + 50_000_000, 5_000_000, 1));
        assert_eq!(back.at(0.5), one.at(0.5));
        assert!(
            (500..=510).contains(&back.at(0.5)) && back.at(0.999) > 4_990_000,
            "{} {}",
            back.at(0.5),
            back.at(0.999)
        );
        assert_eq!(back.doubling().last(), Some(&(8_388_608, 10)));
        assert_eq!((one.in_seconds().max, one.in_bytes().max), (5.0, 5_000_000.0));
        assert_eq!(ValueSpread::default().at(0.99), 0, "nothing was counted");
    }
}
