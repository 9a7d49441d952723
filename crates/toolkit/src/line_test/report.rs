//! A test's outcome, for eyes and as JSON. The receiver's figure is *the* figure: a sender counts what is still on its way.

use host::link::meter::{Limit, LinkReading, TrafficSums};
use host::tcp_info::TcpInfo;
use plan::answer::table;
use plan::inputs::LINK_TEST_SCHEMA;
use serde_json::{Value as Json, json};
use std::time::Duration;
use units::quantities::{Bytes, Rate, Seconds, show_bytes, show_rate, show_share, show_time};

use super::client::TestOutcome;
use super::document::{
    DirectionReport, LinkTestReport, LinkTestStart, ReceivedReport, Rfc6349, SentReport, SocketPair, SocketSummary,
};
use super::tally::{EndReport, ReceivedTally, Sent, Socket, SocketBuffer, TestInterval, ValueSpread};
use super::terms::{Terms, TestDirection};

pub const STREAM_SCHEMA: &str = "farshore-link-test-stream/1";
/// From this share of a writer's time on, one reason is the reason.
const MOST: f64 = 0.5;
/// So many flushes that found no room, of those that did, say that the line is the narrower.
const TRACKED: f64 = 0.1;
/// What carries so much of the pacing it was given is as quick as it may be: segments have headers, and the first go unpaced.
const PACED: f64 = 0.9;
/// Bars of a distribution.
const BAR: f64 = 40.0;
const MIB: f64 = 1_048_576.0;

/// One direction of a test: who sent, and what the other end received of it.
pub struct DirectionSummary<'a> {
    pub terms: &'a Terms,
    pub sent: &'a Sent,
    /// `None`: the receiving end was lost before it told.
    pub received: Option<&'a ReceivedTally>,
    pub idle_us: &'a ValueSpread,
    /// The sending end's congestion control.
    pub congestion: &'a str,
    /// Of the line, if somebody said it.
    pub line_rate: Option<Rate>,
    /// It did not come to its end, or nobody waited for that.
    pub is_part: bool,
}

/// What kept the writers from doing more.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitVerdict {
    pub word: &'static str,
    pub sentence: String,
}

impl DirectionSummary<'_> {
    /// Bytes a second that the receiver counted.
    pub fn bytes_per_s(&self) -> f64 {
        self.received.map_or(0.0, ReceivedTally::bytes_per_s)
    }

    /// Of the bytes sent, those that were sent again.
    pub fn loss_share(&self) -> f64 {
        let kernel = &self.sent.kernel;
        if kernel.sent_bytes == 0 { 0.0 } else { kernel.retransmitted_bytes as f64 / kernel.sent_bytes as f64 }
    }

    pub fn rfc6349(&self) -> Rfc6349 {
        let idle = self.sent.kernel.rtt_min_us as f64;
        let ideal = self.line_rate.map(|rate| rate.bytes_per_s());
        let ratio = ideal.filter(|_| self.bytes_per_s() > 0.0).map(|ideal| ideal / self.bytes_per_s());
        Rfc6349 {
            transfer_time_ratio: ratio,
            tcp_efficiency_share: 1.0 - self.loss_share(),
            buffer_delay_share: if idle > 0.0 { (self.sent.rtt_us.mean() - idle).max(0.0) / idle } else { 0.0 },
        }
    }

    pub fn verdict(&self) -> LimitVerdict {
        let sent = self.sent;
        let all_s = self.writers_s();
        let disk_share = self.received.map_or(0.0, |received| received.disk_share);
        let limit_verdict = |word, sentence: String| LimitVerdict { word, sentence };
        if sent.tracked_flushes as f64 > TRACKED * sent.flushes as f64 {
            // Its writers never wait for the line, which lets so much less through than they write.
            return self.kernels_verdict();
        }
        let of = |share: f64, what: &str| format!("{what} ({} of the writers' time)", show_share(share.min(1.0)));
        if sent.waits.pace_s / all_s > MOST {
            let word = if self.terms.target_bytes_per_s.is_some() { "target-rate" } else { "gap" };
            return limit_verdict(
                word,
                of(sent.waits.pace_s / all_s, &format!("limited by {} that was asked for", self.pace())),
            );
        }
        if sent.waits.disk_s / all_s > MOST {
            return limit_verdict("local-disk", of(sent.waits.disk_s / all_s, "limited by the sending machine's disk"));
        }
        if disk_share > MOST {
            return limit_verdict(
                "remote-disk",
                format!("limited by the receiving machine's disk, busy {} of the time", show_share(disk_share)),
            );
        }
        let round_trips = sent.flushes as f64 * self.idle_us.at(0.5) as f64 / 1e6 / all_s;
        if self.terms.mode.confirms() && round_trips > MOST {
            let many = match self.terms.depth {
                1 => "one flush at a time waits for its confirmation".to_owned(),
                depth => format!("{depth} flushes at a time wait for their confirmations"),
            };
            return limit_verdict("round-trip", of(round_trips, &format!("limited by the round trip, as {many}")));
        }
        self.kernels_verdict()
    }

    /// The time of all writers together, while there are any.
    fn writers_s(&self) -> f64 {
        (self.sent.writing_s * f64::from(self.terms.writers())).max(1e-9)
    }

    /// What makes writers wait for their turn.
    fn pace(&self) -> &'static str {
        match (self.terms.target_bytes_per_s.is_some(), self.terms.gap_s > 0.0) {
            (true, true) => "the target rate and the gap",
            (false, true) => "the gap",
            _ => "the target rate",
        }
    }

    fn kernels_verdict(&self) -> LimitVerdict {
        let Terms { sockets, connections, .. } = self.terms;
        let paced = sockets.pacing_bytes_per_s.map_or(f64::INFINITY, |rate| rate as f64 * f64::from(*connections));
        if self.bytes_per_s() > PACED * paced {
            let rate = rate(paced);
            return LimitVerdict {
                word: "pacing",
                sentence: format!("limited by the {rate} of --pace that were asked for"),
            };
        }
        let kernel = &self.sent.kernel;
        let narrow = |us: u64| u32::try_from(us).unwrap_or(u32::MAX);
        let now = TcpInfo {
            rtt_us: narrow(self.sent.rtt_us.mean() as u64),
            rtt_min_us: narrow(kernel.rtt_min_us),
            ..TcpInfo::default()
        };
        let sums = TrafficSums {
            time: Duration::from_secs_f64(self.sent.seconds),
            sent_bytes: kernel.sent_bytes,
            retransmitted_bytes: kernel.retransmitted_bytes,
            busy_us: kernel.busy_us,
            receiver_limited_us: kernel.receiver_limited_us,
            buffer_limited_us: kernel.buffer_limited_us,
            ..TrafficSums::default()
        };
        let limit = Limit::find(&now, &sums);
        let reading = LinkReading { now, lately: sums, limit, risen: None };
        let sentence = match sockets.send_bytes {
            Some(bytes) if limit == Limit::SendBuffer => {
                format!("limited by the send buffer of {} that was asked for", size(bytes))
            }
            _ => reading.sentence(self.congestion),
        };
        LimitVerdict { word: limit.word(), sentence }
    }

    /// In the shape of Db2's simulator, receiver's figures, MBytes of 10^6.
    fn summary(&self) -> String {
        let mode = self.terms.mode.word().to_uppercase();
        let (bytes, seconds) = self.received.map_or((self.sent.bytes, self.sent.seconds), |r| (r.bytes, r.seconds));
        let rate = if seconds > 0.0 { bytes as f64 / seconds / 1e6 } else { 0.0 };
        format!("{mode}: {bytes} bytes, {seconds:.6} seconds, {rate:.6} MBytes/sec\n")
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let sent = self.sent;
        let mut lines = Vec::new();
        if let Some(received) = self.received {
            let rate = received.bytes_per_s();
            lines.push((
                "received",
                format!(
                    "{:.3} MBytes/s ({:.3} MiB/s), {} in {}",
                    rate / 1e6,
                    rate / MIB,
                    size(received.bytes),
                    time(received.seconds)
                ),
            ));
        }
        let until = if self.is_part { "as far as it is confirmed" } else { "until the last confirmation" };
        lines.push(("sent", format!("{} in {}, {until}", size(sent.bytes), time(sent.seconds))));
        lines.push(("flushes", self.flushes()));
        if sent.tracked_flushes > 0 {
            let why = "found the queue full and were not sent: they would have become regions of a catch-up snapshot";
            lines.push(("tracked", format!("{} flushes, {} {why}", sent.tracked_flushes, size(sent.tracked_bytes))));
        }
        lines.push(("response", quantiles(&sent.response_us)));
        lines.push(("confirmed", format!("{} (durable at the far end)", quantiles(&sent.confirmed_us))));
        lines.push(("writers", self.waits()));
        lines.push(("send calls", calls(&sent.send_bytes)));
        if let Some(received) = self.received {
            lines.push(("receive calls", calls(&received.receive_bytes)));
        }
        let full = &sent.congestion_us;
        lines.push((
            "congestions",
            format!(
                "{}, {} in all, {} each, {} at most",
                full.count(),
                us(full.sum()),
                us(full.mean() as u64),
                us(full.max())
            ),
        ));
        if sent.wire_bytes < sent.plain_bytes {
            let ratio = sent.plain_bytes as f64 / sent.wire_bytes.max(1) as f64;
            lines.push(("packed", format!("{} as {} ({ratio:.2} : 1)", size(sent.plain_bytes), size(sent.wire_bytes))));
        }
        let rfc = self.rfc6349();
        let ratio =
            rfc.transfer_time_ratio.map_or("unknown without --line-rate".to_owned(), |ratio| format!("{ratio:.3}"));
        lines.push((
            "RFC 6349",
            format!(
                "transfer time ratio {ratio}, TCP efficiency {:.2} %, buffer delay {}",
                rfc.tcp_efficiency_share * 100.0,
                show_share(rfc.buffer_delay_share),
            ),
        ));
        lines.push(("verdict", self.verdict().sentence));
        lines
    }

    fn flushes(&self) -> String {
        let Sent { response_us, flush_bytes, .. } = self.sent;
        if response_us.count() == 0 {
            return "none came to its end".to_owned();
        }
        let (mean, range) = (size(flush_bytes.mean() as u64), range(flush_bytes, size));
        format!("{} of {mean} ({range}), {} each", response_us.count(), us(response_us.mean() as u64))
    }

    fn waits(&self) -> String {
        let waits = &self.sent.waits;
        let all_s = self.writers_s();
        let share = |s: f64| show_share((s / all_s).min(1.0));
        let [disk, far, room, pace] = [waits.disk_s, waits.far_s, waits.room_s, waits.pace_s].map(share);
        format!("{disk} at their disk, {far} for the far end, {room} for room, {pace} for {}", self.pace())
    }

    fn report(&self) -> DirectionReport {
        let (sent, verdict) = (self.sent, self.verdict());
        DirectionReport {
            received: self.received.map(received_report),
            sent: SentReport {
                bytes: sent.bytes,
                flushes: sent.flushes,
                seconds: sent.seconds,
                tracked_flushes: sent.tracked_flushes,
                tracked_bytes: sent.tracked_bytes,
                plain_bytes: sent.plain_bytes,
                wire_bytes: sent.wire_bytes,
                retransmitted_bytes: sent.kernel.retransmitted_bytes,
                reorderings: sent.kernel.reorderings,
            },
            loss_share: self.loss_share(),
            response_s: sent.response_us.in_seconds(),
            confirmed_s: sent.confirmed_us.in_seconds(),
            flush_bytes: sent.flush_bytes.in_bytes(),
            send_bytes: sent.send_bytes.in_bytes(),
            congestion_s: sent.congestion_us.in_seconds(),
            room_s: sent.room_us.in_seconds(),
            rtt_s: sent.rtt_us.in_seconds(),
            waits: sent.waits,
            rfc6349: self.rfc6349(),
            limiter: verdict.word,
            limiter_reason: verdict.sentence,
            intervals: sent.intervals.clone(),
        }
    }

    fn distributions(&self) -> String {
        let sent = self.sent;
        let empty = ValueSpread::default();
        let receives = self.received.map_or(&empty, |received| &received.receive_bytes);
        bars("response", &sent.response_us, us)
            + &if self.terms.sizes.len() > 1 { bars("flush", &sent.flush_bytes, size) } else { String::new() }
            + &bars("send call", &sent.send_bytes, size)
            + &bars("receive call", receives, size)
            + &bars("congestion", &sent.congestion_us, us)
    }
}

fn received_report(received: &ReceivedTally) -> ReceivedReport {
    let bytes_per_s = received.bytes_per_s();
    ReceivedReport {
        bytes: received.bytes,
        flushes: received.flushes,
        seconds: received.seconds,
        bytes_per_s,
        mib_per_s: bytes_per_s / MIB,
        receive_bytes: received.receive_bytes.in_bytes(),
        disk_share: received.disk_share,
    }
}

/// The directions of a test, the one that was asked for first.
pub fn summaries<'a>(outcome: &'a TestOutcome, line_rate: Option<Rate>) -> Vec<DirectionSummary<'a>> {
    let far = outcome.far.as_ref();
    let summary = |half: &'a EndReport, received| {
        let (sent, congestion) = (half.sent.as_ref()?, half.socket.congestion.as_str());
        let is_part = outcome.lost.is_some() || outcome.interrupted.is_some();
        let (terms, idle_us) = (&outcome.terms, &outcome.idle_us);
        Some(DirectionSummary { terms, sent, received, idle_us, congestion, line_rate, is_part })
    };
    let forward = summary(&outcome.near, far.and_then(|far| far.received.as_ref()));
    let back = far.and_then(|far| summary(far, outcome.near.received.as_ref()));
    forward.into_iter().chain(back).collect()
}

/// What an operator should see to: what the kernels refused or capped.
pub fn warnings(outcome: &TestOutcome) -> Vec<String> {
    let near = outcome.near.socket.warnings.iter().map(|warning| format!("here {warning}"));
    let far =
        outcome.far.iter().flat_map(|far| &far.socket.warnings).map(|warning| format!("at the far end {warning}"));
    near.chain(far).collect()
}

/// What there is to tell before a test has begun.
pub fn start(outcome: &TestOutcome) -> LinkTestStart {
    LinkTestStart {
        address: outcome.address.clone(),
        peer: outcome.peer.clone(),
        encrypted: outcome.is_encrypted,
        terms: outcome.terms.clone(),
        rtt_s: outcome.idle_us.at(0.5) as f64 / 1e6,
        idle_rtt_s: outcome.idle_us.in_seconds(),
        mtu_bytes: outcome.near.socket.mtu_bytes,
        congestion: outcome.near.socket.congestion.clone(),
        sockets: SocketPair {
            near: socket_summary(&outcome.near.socket),
            far: outcome.far.as_ref().map(|far| socket_summary(&far.socket)),
        },
    }
}

/// The whole of it, as types.
pub fn report(outcome: &TestOutcome, line_rate: Option<Rate>) -> LinkTestReport {
    let reports: Vec<DirectionReport> = summaries(outcome, line_rate).iter().map(DirectionSummary::report).collect();
    let mut reports = reports.into_iter();
    let (end, reverse) = (reports.next(), reports.next());
    LinkTestReport {
        schema: LINK_TEST_SCHEMA,
        start: start(outcome),
        intervals: end.as_ref().map(|end| end.intervals.clone()),
        end,
        reverse,
        loaded_rtt_s: outcome.loaded_us.in_seconds(),
        interrupted: outcome.interrupted,
        lost: outcome.lost.clone(),
        warnings: warnings(outcome),
    }
}

pub fn json(outcome: &TestOutcome, line_rate: Option<Rate>) -> Json {
    json!(report(outcome, line_rate))
}

fn socket_summary(socket: &Socket) -> SocketSummary {
    SocketSummary {
        send: socket.send,
        receive: socket.receive,
        congestion: socket.congestion.clone(),
        nagle: socket.nagle,
        segment_bytes: socket.segment_bytes,
        unsent_bytes: socket.unsent_bytes,
        min_rto_s: socket.min_rto_us.map(|us| us as f64 / 1e6),
    }
}

/// The whole page.
pub fn text(outcome: &TestOutcome, line_rate: Option<Rate>) -> String {
    let summaries = summaries(outcome, line_rate);
    let mut out = head(outcome);
    for (number, summary) in summaries.iter().enumerate() {
        let back = number == 1 || outcome.terms.direction == TestDirection::Reverse;
        if summaries.len() > 1 || back {
            out += if back { "\nfrom the far end\n" } else { "\nto the far end\n" };
        }
        out += &format!("\n{}", summary.summary());
        out += if summary.received.is_some() {
            "\n"
        } else {
            "(what was confirmed: the far end did not report what arrived)\n\n"
        };
        out += &summary.lines().iter().map(|(name, value)| format!("{name:<14} {value}\n")).collect::<String>();
        out += &format!("\n{}", summary.distributions());
    }
    out += &format!("\n{}", sockets(&outcome.terms, &outcome.near, outcome.far.as_ref()));
    if let Some(who) = outcome.interrupted {
        out += &format!("\ninterrupted {who}: this is what there was until then\n");
    }
    out
}

/// With whom, and how.
fn who(outcome: &TestOutcome) -> String {
    let who = outcome.peer.as_ref().map_or(outcome.address.clone(), |peer| format!("{peer} ({})", outcome.address));
    format!("{who}, {}", if outcome.is_encrypted { "TLS 1.3" } else { "not encrypted" })
}

/// Of several modes, from the first one's outcome.
pub fn head_of_modes(first: &TestOutcome) -> String {
    let TestOutcome { terms, idle_us: idle, near, .. } = first;
    let each = load(terms);
    let (p50, p99, mtu) = (us(idle.at(0.5)), us(idle.at(0.99)), near.socket.mtu_bytes);
    format!("{}: each mode with {each}\nround trip {p50} (p99 {p99}), path MTU {mtu}\n", who(first))
}

fn head(outcome: &TestOutcome) -> String {
    let who = who(outcome);
    let ask = asked(&outcome.terms);
    let (idle, loaded) = (&outcome.idle_us, &outcome.loaded_us);
    let beside = if loaded.count() == 0 {
        String::new()
    } else {
        format!("; under load {} (p99 {})", us(loaded.at(0.5)), us(loaded.at(0.99)))
    };
    format!(
        "{who}: {ask}\nround trip {} (p99 {}){beside}, path MTU {}\n",
        us(idle.at(0.5)),
        us(idle.at(0.99)),
        outcome.near.socket.mtu_bytes
    )
}

/// The terms in a line.
pub fn asked(terms: &Terms) -> String {
    let legacy = if terms.legacy_hadr { " as in Db2 HADR" } else { "" };
    format!("{}{legacy}, {}", terms.mode.word(), load(terms))
}

fn load(terms: &Terms) -> String {
    let sizes = match &terms.sizes[..] {
        [(bytes, _)] => size(*bytes),
        sizes => format!("{} sizes up to {}", sizes.len(), size(terms.largest_flush())),
    };
    let count = terms.count.map_or(String::new(), |count| format!(" or {count} flushes"));
    let lanes = if terms.connections == 1 { String::new() } else { format!(", {} connections", terms.connections) };
    let depth = if terms.depth == 1 { String::new() } else { format!(", {} at a time", terms.depth) };
    let gap = if terms.gap_s == 0.0 { String::new() } else { format!(", a gap of {} after each", time(terms.gap_s)) };
    let omitted =
        if terms.omit_s == 0.0 { String::new() } else { format!(" after {} that do not count", time(terms.omit_s)) };
    format!("flushes of {sizes}{depth}{gap}, {}{omitted}{count}{lanes}", time(terms.time_s))
}

/// Above the lines of intervals.
pub fn interval_head(terms: &Terms) -> String {
    let mode = terms.mode.word();
    format!(
        "{mode:>12} {:>14} {:>14} {:>10} {:>10} {:>10}",
        "to far end", "from far end", "round trip", "sent again", "unsent"
    )
}

/// What the near end saw of an interval that began at `since_s`.
pub fn interval_line(terms: &Terms, interval: &TestInterval, since_s: f64) -> String {
    let length_s = (interval.t_s - since_s).max(1e-3);
    let mb = |moves: bool, bytes: u64| {
        if moves { format!("{:.3} MB/s", bytes as f64 / length_s / 1e6) } else { String::new() }
    };
    format!(
        "{:>10.1} s {:>14} {:>14} {:>10} {:>10} {:>10}",
        interval.t_s,
        mb(terms.direction.sends(false), interval.acked_bytes),
        mb(terms.direction.receives(false), interval.received_bytes),
        time(interval.rtt_s),
        size(interval.retransmitted_bytes),
        size(interval.unsent_bytes),
    )
}

fn sockets(terms: &Terms, near: &EndReport, far: Option<&EndReport>) -> String {
    let header = ["socket buffer", "asked", "at creation", "resized", "connected", "window"].map(str::to_owned);
    let row = |name: &str, buffer: &SocketBuffer| {
        let asked = buffer.requested_bytes.map_or("auto".to_owned(), size);
        let counted =
            [buffer.created_bytes, buffer.resized_bytes, buffer.connected_bytes, buffer.window_bytes].map(size);
        [vec![name.to_owned(), asked], counted.to_vec()].concat()
    };
    let mut rows = vec![row("near send", &near.socket.send), row("near receive", &near.socket.receive)];
    if let Some(far) = far {
        rows.extend([row("far send", &far.socket.send), row("far receive", &far.socket.receive)]);
    }
    let control =
        |half: &EndReport| format!("{}{}", half.socket.congestion, if half.socket.nagle { " with Nagle" } else { "" });
    let far_control = far.map_or(String::new(), |far| format!(", far {}", control(far)));
    let note = "the kernel counts twice what it grants; window: the largest that was seen";
    let mut out = format!("{}{note}\ncongestion control: near {}{far_control}\n", table(&header, &rows), control(near));
    // Only what was asked for: else it is as the daemon has it.
    let mut put = |name: &str, of: &dyn Fn(&Socket) -> Option<String>| {
        let text = |half: &EndReport| of(&half.socket).unwrap_or_else(|| "refused".to_owned());
        let far = far.map_or(String::new(), |far| format!(", far {}", text(far)));
        out += &format!("{name}: near {}{far}\n", text(near));
    };
    if terms.sockets.unsent_bytes.is_some() {
        put("held unsent at most", &|socket| socket.unsent_bytes.map(size));
    }
    if terms.sockets.min_rto_s.is_some() {
        put("shortest retransmission pause", &|socket| socket.min_rto_us.map(us));
    }
    out
}

/// What the serving end saw of a test.
pub fn far_text(terms: &Terms, half: &EndReport) -> String {
    let empty = ValueSpread::default();
    let mut out = String::new();
    if let Some(sent) = &half.sent {
        let summary = DirectionSummary {
            terms,
            sent,
            received: None,
            idle_us: &empty,
            congestion: "",
            line_rate: None,
            is_part: true,
        };
        out += &format!("sent      {}", summary.summary());
    }
    if let Some(received) = &half.received {
        let mode = terms.mode.word().to_uppercase();
        let rate = received.bytes_per_s() / 1e6;
        out += &format!(
            "received  {mode}: {} bytes, {:.6} seconds, {rate:.6} MBytes/sec\n",
            received.bytes, received.seconds
        );
        out += &format!("          {} flushes; receive calls {}\n", received.flushes, calls(&received.receive_bytes));
    }
    out
}

pub fn size(bytes: u64) -> String {
    show_bytes(Bytes(bytes))
}

pub fn us(us: u64) -> String {
    show_time(Seconds(us as f64 / 1e6))
}

pub fn time(seconds: f64) -> String {
    show_time(Seconds(seconds))
}

/// `4.61 MB/s`.
pub fn rate(bytes_per_s: f64) -> String {
    show_rate(Rate::from_bytes_per_s(bytes_per_s.max(0.0)))
}

fn range(spread: &ValueSpread, show: fn(u64) -> String) -> String {
    if spread.min() == spread.max() {
        "all alike".to_owned()
    } else {
        format!("{} to {}", show(spread.min()), show(spread.max()))
    }
}

fn quantiles(spread: &ValueSpread) -> String {
    if spread.count() == 0 {
        return "none".to_owned();
    }
    let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(|q| us(spread.at(q)));
    format!("p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p999}, max {}", us(spread.max()))
}

fn calls(spread: &ValueSpread) -> String {
    format!("{} of {} each ({})", spread.count(), size(spread.mean() as u64), range(spread, size))
}

fn bars(name: &str, spread: &ValueSpread, show: fn(u64) -> String) -> String {
    let buckets = spread.doubling();
    let most = buckets.iter().map(|(_, count)| *count).max().unwrap_or(1) as f64;
    let line = |(upper, count): &(u64, u64)| {
        let share = show_share(*count as f64 / spread.count().max(1) as f64);
        let bar = "#".repeat((*count as f64 / most * BAR).ceil() as usize);
        format!("{name:<12} <= {:>8} {count:>9} {share:>7}  {bar}\n", show(*upper))
    };
    buckets.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line_test::tally::WriterWaits;
    use crate::line_test::terms::TestMode;

    #[test]
    fn what_was_asked_for_and_what_found_no_room_come_before_the_disk_and_the_network() {
        let mut terms = Terms { mode: TestMode::Superasync, ..Terms::default() };
        let mut sent = Sent { flushes: 100, seconds: 2.0, writing_s: 1.0, ..Sent::default() };
        sent.waits = WriterWaits { disk_s: 0.9, ..WriterWaits::default() };
        let received = ReceivedTally { bytes: 2_000_000, seconds: 2.0, ..ReceivedTally::default() };
        let verdict = |terms: &Terms, sent: &Sent| {
            let idle_us = &ValueSpread::default();
            let received = Some(&received);
            DirectionSummary { terms, sent, received, idle_us, congestion: "cubic", line_rate: None, is_part: false }
                .verdict()
        };
        assert_eq!(verdict(&terms, &sent).word, "local-disk", "nine tenths of the time in which there were writers");
        sent.tracked_flushes = 90;
        assert_ne!(verdict(&terms, &sent).word, "local-disk", "nearly half found no room: the line is the narrower");
        terms.sockets.pacing_bytes_per_s = Some(1_050_000);
        assert_eq!(verdict(&terms, &sent).word, "pacing");
        terms.connections = 2;
        assert_ne!(verdict(&terms, &sent).word, "pacing", "each connection has as much");
    }
}
