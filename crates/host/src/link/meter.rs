//! What the looks at a peer's connections add up to: rates, what stands in the way, and a minute at a time for the history.
//!
//! Fed once a second, through all connections with the peer; knows no clock and no socket.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::tcp_info::TcpInfo;

/// Looks that a rate and a verdict are made of.
const WINDOW: usize = 10;
/// From this share of the sending time on, something stands in the way.
const LIMITED: f64 = 0.05;
/// From this share of the time on, what waits for the rate allowed is no short burst.
const HELD: f64 = 0.5;
/// From this share of bytes sent again on, the path loses packets.
const LOSSY: f64 = 0.001;
/// Fewer bytes say nothing about loss, nor about queues.
const ENOUGH_BYTES: u64 = 1 << 20;
/// A slow line that is full has something to send nearly all of the time; heartbeats and their late acknowledgements take less.
const QUIET: f64 = 0.5;
/// A round trip this much longer than the shortest is time spent in queues.
const QUEUED: f64 = 1.5;
const QUEUED_MIN_US: u32 = 5_000;
/// While the round trip is at most this much of the shortest, no queue is kept filled: what is lost did not overflow one.
const CLEAR: f64 = 1.25;
/// Loss explains a rate that is at least this part of what so much loss allows: ten seconds see few losses, and their number varies.
const EXPLAINED: f64 = 0.5;
/// From this part of the setting `pacing` on, that is what limits: with the queueing discipline fq headers count too.
const PACED: f64 = 0.8;

/// What passed between looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficSums {
    pub time: Duration,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub retransmitted_bytes: u64,
    pub busy_us: u64,
    pub receiver_limited_us: u64,
    pub buffer_limited_us: u64,
    pub held_us: u64,
}

impl TrafficSums {
    /// From one look at a connection to a later one.
    pub fn between(old: &TcpInfo, new: &TcpInfo, time: Duration) -> TrafficSums {
        TrafficSums {
            time,
            sent_bytes: new.bytes_sent.saturating_sub(old.bytes_sent),
            received_bytes: new.bytes_received.saturating_sub(old.bytes_received),
            retransmitted_bytes: new.bytes_retransmitted.saturating_sub(old.bytes_retransmitted),
            busy_us: new.busy_us.saturating_sub(old.busy_us),
            receiver_limited_us: new.receiver_limited_us.saturating_sub(old.receiver_limited_us),
            buffer_limited_us: new.buffer_limited_us.saturating_sub(old.buffer_limited_us),
            held_us: new.held_us.saturating_sub(old.held_us),
        }
    }

    pub fn add(&mut self, more: &TrafficSums) {
        self.time += more.time;
        self.sent_bytes += more.sent_bytes;
        self.received_bytes += more.received_bytes;
        self.retransmitted_bytes += more.retransmitted_bytes;
        self.busy_us += more.busy_us;
        self.receiver_limited_us += more.receiver_limited_us;
        self.buffer_limited_us += more.buffer_limited_us;
        self.held_us += more.held_us;
    }

    pub fn sent_per_s(&self) -> f64 {
        per_second(self.sent_bytes, self.time)
    }

    pub fn received_per_s(&self) -> f64 {
        per_second(self.received_bytes, self.time)
    }

    /// Of the time with something to send.
    pub fn receiver_limited(&self) -> f64 {
        share(self.receiver_limited_us, self.busy_us)
    }

    pub fn buffer_limited(&self) -> f64 {
        share(self.buffer_limited_us, self.busy_us)
    }

    /// Of the whole time: frames waited for the rate allowed.
    pub fn held(&self) -> f64 {
        share(self.held_us, self.time.as_micros() as u64)
    }

    /// Of the whole time.
    pub fn busy(&self) -> f64 {
        share(self.busy_us, self.time.as_micros() as u64)
    }

    /// Of the bytes sent.
    pub fn retransmitted(&self) -> f64 {
        share(self.retransmitted_bytes, self.sent_bytes)
    }
}

fn per_second(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 / time.as_secs_f64() }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

/// What keeps the link from carrying more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// What the operator allows.
    Rate,
    ReceiverWindow,
    SendBuffer,
    Loss,
    Queueing,
    /// There is no more to send.
    Nothing,
    Network,
}

impl Limit {
    pub const ALL: [Limit; 7] = [
        Limit::Rate,
        Limit::ReceiverWindow,
        Limit::SendBuffer,
        Limit::Loss,
        Limit::Queueing,
        Limit::Nothing,
        Limit::Network,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Limit::Rate => "rate",
            Limit::ReceiverWindow => "receiver-window",
            Limit::SendBuffer => "send-buffer",
            Limit::Loss => "loss",
            Limit::Queueing => "queueing",
            Limit::Nothing => "nothing",
            Limit::Network => "network",
        }
    }

    /// The first row that holds, the surest sign first.
    pub fn find(now: &TcpInfo, lately: &TrafficSums) -> Limit {
        // A few milliseconds of a quiet link are no limit.
        let is_enough = |us: u64| us as f64 >= lately.time.as_micros() as f64 / 100.0;
        let slow = now.rtt_us.saturating_sub(now.rtt_min_us) >= QUEUED_MIN_US
            && f64::from(now.rtt_us) > QUEUED * f64::from(now.rtt_min_us);
        // Heartbeats fill no queue: on a quiet link a long round trip is a busy machine, or somebody else's traffic.
        // The kernel's own word for it comes and goes with each packet, so little to send most of the time says it too.
        let quiet = lately.sent_bytes < ENOUGH_BYTES && (now.app_limited || lately.busy() < QUIET);
        let rows = [
            (Limit::Rate, lately.held() > HELD),
            (Limit::ReceiverWindow, lately.receiver_limited() > LIMITED && is_enough(lately.receiver_limited_us)),
            (Limit::SendBuffer, lately.buffer_limited() > LIMITED && is_enough(lately.buffer_limited_us)),
            (Limit::Loss, lately.retransmitted() > LOSSY && lately.sent_bytes >= ENOUGH_BYTES),
            (Limit::Queueing, now.rtt_min_us > 0 && slow && !quiet),
            (Limit::Nothing, now.app_limited || quiet),
            (Limit::Loss, loss_explains(now, lately)),
        ];
        rows.into_iter().find(|(_, holds)| *holds).map_or(Limit::Network, |(limit, _)| limit)
    }
}

/// Whether so little loss, with no queue on the way, explains the rate: a congestion control that goes by loss sends no more than
/// about `segment / round trip x 1.22 / sqrt(loss)` (Mathis et al. 1997).
fn loss_explains(now: &TcpInfo, lately: &TrafficSums) -> bool {
    let (rate, round_trip_us) = (lately.sent_per_s(), f64::from(now.rtt_us));
    let is_clear = now.rtt_us > 0 && round_trip_us <= CLEAR * f64::from(now.rtt_min_us);
    let is_paced = now.pacing_bytes_per_s_max > 0 && rate >= PACED * now.pacing_bytes_per_s_max as f64;
    if !now.congestion.is_loss_based() || !is_clear || is_paced || lately.sent_bytes < ENOUGH_BYTES {
        return false;
    }
    // Of nothing lost no bound follows: it is infinite.
    let allowed = f64::from(now.snd_mss) * 1e6 / round_trip_us * 1.22 / lately.retransmitted().sqrt();
    now.snd_mss > 0 && rate >= EXPLAINED * allowed
}

/// A peer's link as it is now.
#[derive(Clone, Debug)]
pub struct LinkReading {
    pub now: TcpInfo,
    pub lately: TrafficSums,
    pub limit: Limit,
    /// Retransmissions rose after the settings changed: shares before and after, and how long ago that was.
    pub risen: Option<(f64, f64, Duration)>,
}

impl LinkReading {
    /// The verdict in words, under this congestion control.
    pub fn sentence(&self, congestion: &str) -> String {
        let bbr = |advice: &str| if congestion == "bbr" { String::new() } else { advice.to_owned() };
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let again = match self.lately.retransmitted() {
            share if share > LOSSY => format!("{:.2} %", share * 100.0),
            share => format!("{:.4} %", share * 100.0),
        };
        let ms = |us: u32| format!("{:.1} ms", f64::from(us) / 1000.0);
        match self.limit {
            Limit::Rate => format!(
                "limited by the setting rate: frames waited for it {} of the time; farshore link set rate=unlimited \
                 lifts it",
                percent(self.lately.held())
            ),
            Limit::ReceiverWindow => format!(
                "limited by the receiver's window {} of the time: the other node takes data too slowly (its processor \
                 is busy), or its receive buffer is too small: raise net.ipv4.tcp_rmem there, or set buffers",
                percent(self.lately.receiver_limited())
            ),
            Limit::SendBuffer => format!(
                "limited by the send buffer {} of the time: raise net.ipv4.tcp_wmem on this node, or set buffers",
                percent(self.lately.buffer_limited())
            ),
            Limit::Loss if congestion == "bbr" => format!(
                "{again} of what is sent is sent again, which bbr does not heed: the line is full, or loses packets by itself; \
                 pacing below its rate helps where queues overflow"
            ),
            Limit::Loss => format!(
                "limited by loss: {again} of what is sent is sent again; pacing below the line's rate helps where queues \
                 overflow, congestion = \"bbr\" where the line loses packets by itself"
            ),
            Limit::Queueing => format!(
                "packets wait in queues on the way: the round trip is {}, at best {}; pacing below the line's rate{} keeps \
                 queues short",
                ms(self.now.rtt_us),
                ms(self.now.rtt_min_us),
                bbr(" or congestion = \"bbr\"")
            ),
            Limit::Nothing => "carries all there is to send".to_owned(),
            Limit::Network => "limited by the network".to_owned(),
        }
    }
}

/// A stretch of time, mostly a minute, for the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Minute {
    pub covered: Duration,
    /// How much of it a connection was up is `sums.time`.
    pub sums: TrafficSums,
    pub rtt_min_us: u32,
    pub rtt_max_us: u32,
    rtt_sum_us: u64,
    looks: u32,
    /// The best second.
    pub sent_per_s_max: u64,
    /// How often a connection came up.
    pub connections: u32,
}

impl Minute {
    pub fn rtt_mean_us(&self) -> u32 {
        self.rtt_sum_us.checked_div(u64::from(self.looks)).map_or(0, |mean| u32::try_from(mean).unwrap_or(u32::MAX))
    }

    fn look(&mut self, info: &TcpInfo, step: &TrafficSums) {
        self.sums.add(step);
        self.sent_per_s_max = self.sent_per_s_max.max(step.sent_per_s() as u64);
        if info.rtt_us > 0 {
            self.rtt_min_us = if self.looks == 0 { info.rtt_us } else { self.rtt_min_us.min(info.rtt_us) };
            self.rtt_max_us = self.rtt_max_us.max(info.rtt_us);
            self.rtt_sum_us += u64::from(info.rtt_us);
            self.looks += 1;
        }
    }
}

/// All connections with one peer, one after the other.
#[derive(Debug)]
pub struct LinkMeter {
    /// The last look at the connection that is up.
    last: Option<(Instant, TcpInfo)>,
    window: VecDeque<TrafficSums>,
    minute: Minute,
    minute_since: Instant,
    /// Under the settings that hold, and under those before.
    since_change: TrafficSums,
    before_change: Option<(TrafficSums, Instant)>,
    connections: u64,
}

impl LinkMeter {
    pub fn new(now: Instant) -> LinkMeter {
        LinkMeter {
            last: None,
            window: VecDeque::new(),
            minute: Minute::default(),
            minute_since: now,
            since_change: TrafficSums::default(),
            before_change: None,
            connections: 0,
        }
    }

    /// A connection came up: its sums begin at zero.
    pub fn up(&mut self, now: Instant) {
        self.last = Some((now, TcpInfo::default()));
        self.window.clear();
        self.minute.connections += 1;
        self.connections += 1;
    }

    pub fn down(&mut self) {
        self.last = None;
        self.window.clear();
    }

    pub fn look(&mut self, now: Instant, info: TcpInfo) {
        let Some((at, old)) = self.last.replace((now, info)) else { return };
        let step = TrafficSums::between(&old, &info, now.saturating_duration_since(at));
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(step);
        self.minute.look(&info, &step);
        self.since_change.add(&step);
    }

    /// From here on the settings are others.
    pub(crate) fn retuned(&mut self, now: Instant) {
        let before = std::mem::take(&mut self.since_change);
        // A change that had no time to show does not hide the one before.
        if before.sent_bytes >= ENOUGH_BYTES || self.before_change.is_none() {
            self.before_change = Some((before, now));
        }
    }

    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// `None`: no connection is up, or it was not looked at yet.
    pub fn reading(&self, now: Instant) -> Option<LinkReading> {
        let (_, info) = self.last.filter(|_| !self.window.is_empty())?;
        let mut lately = TrafficSums::default();
        self.window.iter().for_each(|step| lately.add(step));
        Some(LinkReading { now: info, lately, limit: Limit::find(&info, &lately), risen: self.risen(now) })
    }

    fn risen(&self, now: Instant) -> Option<(f64, f64, Duration)> {
        let (before, at) = self.before_change.as_ref()?;
        let is_enough = before.sent_bytes.min(self.since_change.sent_bytes) >= ENOUGH_BYTES;
        let (old, new) = (before.retransmitted(), self.since_change.retransmitted());
        (is_enough && new > 2.0 * old + LOSSY).then(|| (old, new, now.saturating_duration_since(*at)))
    }

    /// What has gathered since the last minute was taken.
    pub fn minute(&self, now: Instant) -> Minute {
        Minute { covered: now.saturating_duration_since(self.minute_since), ..self.minute }
    }

    pub(crate) fn take_minute(&mut self, now: Instant) -> Minute {
        let minute = self.minute(now);
        (self.minute, self.minute_since) = (Minute::default(), now);
        minute
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp_info::ControlName;

    const SECOND: Duration = Duration::from_secs(1);

    /// A connection that sends 10 MB/s, looked at every second; `change` makes it another kind of connection.
    fn looks(meter: &mut LinkMeter, from: Instant, seconds: u32, change: impl Fn(&mut TcpInfo)) {
        meter.up(from);
        for second in 1..=seconds {
            let n = u64::from(second);
            let mut info = TcpInfo {
                rtt_us: 50_000,
                rtt_min_us: 49_000,
                bytes_sent: n * 10_000_000,
                bytes_received: n * 1000,
                busy_us: n * 1_000_000,
                ..TcpInfo::default()
            };
            change(&mut info);
            meter.look(from + second * SECOND, info);
        }
    }

    #[test]
    fn each_limit_is_recognised_by_its_sign() {
        for (limit, change) in [
            (Limit::Network, (|_| {}) as fn(&mut TcpInfo)),
            (Limit::Nothing, |info| info.app_limited = true),
            (Limit::ReceiverWindow, |info| info.receiver_limited_us = info.busy_us / 2),
            (Limit::SendBuffer, |info| info.buffer_limited_us = info.busy_us / 4),
            (Limit::Loss, |info| info.bytes_retransmitted = info.bytes_sent / 100),
            (Limit::Queueing, |info| info.rtt_us = 90_000),
            // Long only beside a very short one: a scheduler's pause, no queue.
            (Limit::Network, |info| (info.rtt_us, info.rtt_min_us) = (300, 20)),
            (Limit::Rate, |info| (info.held_us, info.app_limited) = (info.busy_us / 4 * 3, true)),
            (Limit::Nothing, |info| (info.held_us, info.app_limited) = (info.busy_us / 4, true)),
            // The surest sign first.
            (Limit::ReceiverWindow, |info| {
                (info.receiver_limited_us, info.rtt_us, info.app_limited) = (info.busy_us, 90_000, true);
            }),
        ] {
            let (mut meter, start) = (LinkMeter::new(Instant::now()), Instant::now());
            looks(&mut meter, start, 20, change);
            let reading = meter.reading(start + 20 * SECOND).expect("it is up");
            assert_eq!(reading.limit, limit);
            let used = reading.sentence("bbr");
            assert!(!used.contains("congestion = ") && !used.contains("limited by loss"), "it is in use: {used}");
            let advises = matches!(limit, Limit::Loss | Limit::Queueing);
            assert_eq!(reading.sentence("cubic").contains("congestion = \"bbr\""), advises);
            assert_eq!(reading.lately.time, 10 * SECOND);
            assert!((reading.lately.sent_per_s() - 10e6).abs() < 1.0);
        }
    }

    /// 0.001 % leave a connection of 50 ms 11 MB/s: the verdict was `network`, which nothing can be done about.
    #[test]
    fn a_little_loss_limits_what_goes_by_loss() {
        for (control, lost_per_million, rtt_us, paced, limit) in [
            ("cubic", 10, 50_000, 0, Limit::Loss),
            ("reno", 10, 50_000, 0, Limit::Loss),
            ("cubic", 10, 50_000, 40_000_000, Limit::Loss),
            ("cubic", 10, 50_000, 12_000_000, Limit::Network),
            ("bbr", 10, 50_000, 0, Limit::Network),
            ("", 10, 50_000, 0, Limit::Network),
            // Far more could be sent with so little loss, or with none.
            ("cubic", 2, 50_000, 0, Limit::Network),
            ("cubic", 0, 50_000, 0, Limit::Network),
            // A queue is kept filled, and what is lost overflowed it: the line is full.
            ("cubic", 10, 65_000, 0, Limit::Network),
            ("cubic", 10, 90_000, 0, Limit::Queueing),
        ] {
            let (mut meter, start) = (LinkMeter::new(Instant::now()), Instant::now());
            looks(&mut meter, start, 20, |info| {
                (info.congestion, info.snd_mss, info.rtt_us) = (ControlName::named(control.as_bytes()), 1448, rtt_us);
                info.bytes_retransmitted = info.bytes_sent / 1_000_000 * lost_per_million;
                info.pacing_bytes_per_s_max = paced;
            });
            let reading = meter.reading(start + 20 * SECOND).expect("it is up");
            assert_eq!(reading.limit, limit, "{control}, {lost_per_million} of a million, {rtt_us} µs, {paced} B/s");
            let says_how_much = reading.sentence(control).contains("limited by loss: 0.0010 % of what is sent");
            assert_eq!(says_how_much, limit == Limit::Loss);
        }
    }

    #[test]
    fn only_a_link_with_traffic_waits_in_its_own_queues() {
        for (app_limited, sent, busy_share, limit) in [
            (true, 40_000, 1, Limit::Nothing),
            (false, 40_000, 1, Limit::Queueing),
            // Heartbeats alone, whose acknowledgements were late: nothing of a queue, whatever the last packet was.
            (false, 40_000, 5, Limit::Nothing),
            (true, 2_000_000, 1, Limit::Queueing),
        ] {
            let (mut meter, start) = (LinkMeter::new(Instant::now()), Instant::now());
            looks(&mut meter, start, 10, |info| {
                (info.rtt_us, info.rtt_min_us) = (18_700, 20);
                (info.app_limited, info.bytes_sent) = (app_limited, info.bytes_sent * sent / 100_000_000);
                info.busy_us /= busy_share;
            });
            assert_eq!(meter.reading(start + 10 * SECOND).expect("it is up").limit, limit, "{sent} bytes");
        }
    }

    #[test]
    fn minutes_add_up_over_connections() {
        let start = Instant::now();
        let mut meter = LinkMeter::new(start);
        looks(&mut meter, start, 20, |_| {});
        meter.down();
        assert!(meter.reading(start).is_none());
        looks(&mut meter, start + 30 * SECOND, 10, |info| info.rtt_us = 70_000);
        let minute = meter.take_minute(start + 60 * SECOND);
        assert_eq!((minute.covered, minute.sums.time), (60 * SECOND, 30 * SECOND));
        assert_eq!((minute.sums.sent_bytes, minute.connections), (300_000_000, 2));
        assert_eq!((minute.rtt_min_us, minute.rtt_max_us), (50_000, 70_000));
        assert_eq!(minute.rtt_mean_us(), (20 * 50_000 + 10 * 70_000) / 30);
        assert_eq!(minute.sent_per_s_max, 10_000_000);
        assert_eq!(meter.minute(start + 61 * SECOND), Minute { covered: SECOND, ..Minute::default() });
    }

    #[test]
    fn a_rise_of_retransmissions_after_a_change_is_reported() {
        for (before, after, is_reported) in [(0, 0, false), (0, 100, true), (10, 500, true), (100, 150, false)] {
            let start = Instant::now();
            let mut meter = LinkMeter::new(start);
            looks(&mut meter, start, 5, |info| info.bytes_retransmitted = info.bytes_sent / 10_000 * before);
            assert_eq!(meter.reading(start).expect("up").risen, None, "nothing changed yet");
            meter.retuned(start);
            looks(&mut meter, start, 5, |info| info.bytes_retransmitted = info.bytes_sent / 10_000 * after);
            let risen = meter.reading(start + 5 * SECOND).expect("up").risen;
            assert_eq!(risen.is_some(), is_reported, "{before} to {after}: {risen:?}");
        }
    }
}
