//! `link probe`: what the way is like. Round trips idle and beside a load in both directions, what it loses, whether it lets
//! large packets through and how large they may be, and how far the clocks are apart.

use std::rc::Rc;
use std::time::{Duration, Instant};

use host::link::SocketOptions;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tokio::sync::Notify;
use units::quantities::show_share;

use super::TestFailure;
use super::client::{self, TestOutcome, TestTarget, TestWatch};
use super::disk::TestDisk;
use super::report::{self, rate, us};
use super::serve::unix_us;
use super::tally::{Socket, SpreadReport, ValueSpread};
use super::terms::{Terms, TestDirection, TestMode};
use super::wire::TestWire;
use super::words::Word;

pub const PROBE_SCHEMA: &str = "farshore-link-probe/1";
pub const STREAM_SCHEMA: &str = "farshore-link-probe-stream/1";
/// Questions for the time: the quickest answer counts.
const CLOCK_ROUNDS: usize = 10;
/// Longer and large packets are taken for swallowed: TCP has then tried again three or four times.
const LARGE_TIMEOUT: Duration = Duration::from_secs(5);
/// What is tried where full segments vanish: what a link that lost large packets uses, which fits the smallest packet every IPv6
/// path must carry; then what fits the smallest that every IPv4 host must take (RFC 9293, 3.7.1).
const SMALL_SEGMENTS_BYTES: [u16; 2] = [host::link::SMALL_SEGMENT_BYTES, 536];
/// Headers of a packet beside its segment, options included in the segment: IPv4 or IPv6, and TCP.
const HEADERS_BYTES: [u16; 2] = [40, 60];
/// For the search of the largest packet that passes: each try, and all of them.
const EDGE_TRY: Duration = Duration::from_secs(3);
const EDGE_TIME: Duration = Duration::from_secs(60);
/// Clocks further apart than this mislead whoever compares logs.
pub const CLOCK_WARN_US: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub struct PathProbe {
    pub address: String,
    pub idle_us: ValueSpread,
    /// The far clock is so many microseconds ahead, give or take half of that round trip.
    pub clock_us: i64,
    pub clock_error_us: u64,
    /// Full segments vanish and small ones pass; `None`: they pass both ways.
    pub hole: Option<Hole>,
    pub mtu_bytes: u64,
    pub segment_bytes: u64,
    /// Both directions at full load; `None`: somebody here asked to stop before.
    pub load: Option<TestOutcome>,
}

/// A path that swallows large packets, in bytes of segments as TCP announces them and of the headers before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    pub passes: u16,
    pub vanishes: u16,
    pub headers: u16,
}

impl Hole {
    /// The largest IP packet that was seen to pass.
    pub fn path_mtu_bytes(self) -> u64 {
        u64::from(self.passes) + u64::from(self.headers)
    }

    /// One byte more vanishes: there was time to find that out.
    pub fn is_exact(self) -> bool {
        self.vanishes == self.passes + 1
    }

    fn sentence(self) -> String {
        let [passes, vanishes] =
            [self.passes, self.vanishes].map(|segment| u64::from(segment) + u64::from(self.headers));
        if self.is_exact() {
            format!("packets of up to {passes} bytes pass, larger ones vanish")
        } else {
            format!("packets of {passes} bytes pass, those of {vanishes} vanish, and not all between were tried")
        }
    }

    /// A try between what passes and what vanishes; `None`: there is nothing between.
    fn next(self) -> Option<u16> {
        (!self.is_exact()).then(|| self.passes + (self.vanishes - self.passes) / 2)
    }

    fn tried(&mut self, segment: u16, has_passed: bool) {
        *(if has_passed { &mut self.passes } else { &mut self.vanishes }) = segment;
    }
}

/// What `link probe --json` prints. The comments of fields are the manual's words: docs/book/json.md is made from them.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProbeReport<'a> {
    /// name and version of this schema
    pub schema: &'static str,
    /// address of the far end
    pub address: &'a str,
    #[serde(flatten)]
    pub path: PathFound,
    #[serde(flatten)]
    pub idle: IdleFound,
    #[serde(flatten)]
    pub load: LoadFound,
    /// somebody here asked to stop: the load is not there, or not all of it
    pub interrupted: bool,
    /// a sentence: why the load did not come to its end; `null`: it did
    pub lost: Option<&'a str>,
    /// sentences
    pub warnings: Vec<String>,
}

/// What packets pass.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathFound {
    /// bytes of the largest packet, by the route
    pub mtu_bytes: u64,
    /// bytes of a full segment
    pub segment_bytes: u64,
    /// `pass`, `vanish`
    pub large_packets: &'static str,
    /// bytes of the largest packet seen to pass
    pub path_mtu_bytes: u64,
    /// nothing vanished, or a packet of one byte more than `path_mtu_bytes` does
    pub path_mtu_is_exact: bool,
}

/// What the idle line is like.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IdleFound {
    /// seconds: round trips through both programs on a connection of its own
    pub idle_rtt_s: SpreadReport,
    /// seconds by which the far clock is ahead
    pub clock_offset_s: f64,
    /// seconds by which that may be wrong
    pub clock_error_s: f64,
}

/// What the full line is like.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadFound {
    /// seconds: round trips beside the load; `null`: an interrupt came before
    pub loaded_rtt_s: Option<SpreadReport>,
    /// to the far end; `null`: an interrupt or a loss came before
    pub forward: Option<LoadedDirection>,
    /// from the far end; `null`: an interrupt or a loss came before
    pub reverse: Option<LoadedDirection>,
}

/// One direction at full load.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadedDirection {
    /// bytes a second that were received; `null`: the receiving end did not report
    pub bytes_per_s: Option<f64>,
    /// 0 to 1, of the bytes sent: sent again
    pub loss_share: f64,
    /// how often segments arrived in another order
    pub reorderings: u64,
    /// seconds: the kernel's smoothed round trip
    pub rtt_s: SpreadReport,
    /// how much longer the round trip is under load, as a share of the idle one
    pub buffer_delay_share: f64,
}

/// # Errors
/// There is no connection, nothing passes it, or it was lost.
pub async fn run(
    target: &TestTarget,
    time: Duration,
    timeout: Duration,
    stop: &Notify,
    watch: &dyn TestWatch,
) -> Result<PathProbe, TestFailure> {
    let PathVerdict { hole, socket, interrupted } = black_hole(target, timeout, stop, watch).await?;
    let target = hole.map_or(target.clone(), |hole| with_segments(target, hole.passes));
    let mut probe = PathProbe {
        address: target.address.clone(),
        idle_us: ValueSpread::default(),
        clock_us: 0,
        clock_error_us: 0,
        hole,
        mtu_bytes: socket.mtu_bytes,
        segment_bytes: socket.segment_bytes,
        load: None,
    };
    watch.found("path", &json!(probe.path_found()));
    let idle = async {
        let (control, _) = client::control(&target, timeout).await?;
        let idle_us = client::idle_round_trips(&control, timeout).await?;
        let clock = far_clock(&control, timeout).await?;
        control.end("the probe is over");
        Ok((idle_us, clock))
    };
    (probe.idle_us, (probe.clock_us, probe.clock_error_us)) = client::unless_stopped(stop, idle).await?;
    watch.found("idle", &json!(probe.idle_found()));
    let terms = Terms {
        mode: TestMode::Catchup,
        direction: TestDirection::Both,
        time_s: time.as_secs_f64(),
        timeout_s: timeout.as_secs_f64(),
        ..Terms::default()
    };
    let loaded = match interrupted {
        true => Err(TestFailure::Interrupted),
        false => client::run(&target, &terms, Rc::new(TestDisk::None), stop, watch).await,
    };
    match loaded {
        // What is known stands.
        Err(TestFailure::Interrupted) => {}
        load => {
            probe.load = Some(load?);
            watch.found("load", &json!(probe.load_found()));
        }
    }
    Ok(probe)
}

/// How far the far clock is ahead, and how far that may be wrong, in microseconds.
async fn far_clock(control: &TestWire, timeout: Duration) -> Result<(i64, u64), TestFailure> {
    let (mut clock_us, mut quickest) = (0, u64::MAX);
    for _ in 0..CLOCK_ROUNDS {
        let asked = unix_us();
        control.say(&Word::Clock { unix_us: asked });
        let Word::Clock { unix_us: theirs } = control.word_within(timeout).await? else {
            return Err(TestFailure::failed("the other end spoke out of turn; are both of one version?"));
        };
        let answered = unix_us();
        let took = answered.saturating_sub(asked);
        if took < quickest {
            let difference = i128::from(theirs) - i128::from(asked / 2 + answered / 2);
            let difference = difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
            (clock_us, quickest) = (difference, took);
        }
    }
    Ok((clock_us, quickest / 2))
}

/// Whether a path swallows large packets, and the connection whose segments passed.
struct PathVerdict {
    hole: Option<Hole>,
    socket: Socket,
    /// Somebody asked to stop while the edge of the hole was looked for.
    interrupted: bool,
}

impl PathVerdict {
    fn free(outcome: TestOutcome) -> PathVerdict {
        PathVerdict { hole: None, socket: outcome.near.socket, interrupted: false }
    }
}

/// The same, and no segment larger than this: what the dialer announces holds for both directions.
fn with_segments(target: &TestTarget, bytes: u16) -> TestTarget {
    let ours = SocketOptions { segment_bytes: Some(bytes), ..target.ours.clone() };
    TestTarget { ours, ..target.clone() }
}

/// Whether full segments vanish where small ones pass, and from which size on.
///
/// # Errors
/// Nothing passes, or nobody tests with us: that says nothing about the path.
async fn black_hole(
    target: &TestTarget,
    timeout: Duration,
    stop: &Notify,
    watch: &dyn TestWatch,
) -> Result<PathVerdict, TestFailure> {
    let patience = LARGE_TIMEOUT.min(timeout);
    let why = match tried(target, patience, stop).await? {
        Ok(outcome) => return Ok(PathVerdict::free(outcome)),
        Err(why) => why,
    };
    let (small, passes, above) = small_segments(target, patience, stop)
        .await?
        .ok_or_else(|| TestFailure::failed(format!("nothing passes to {}: {why}", target.address)))?;
    // What is lost once may be lost for any reason; a path that swallows large packets does it again.
    if let Ok(outcome) = tried(target, patience, stop).await? {
        return Ok(PathVerdict::free(outcome));
    }
    let headers = HEADERS_BYTES[usize::from(small.is_over_ipv6)];
    let mtu = u16::try_from(small.near.socket.mtu_bytes).unwrap_or(u16::MAX);
    let vanishes = above.unwrap_or(mtu.saturating_sub(headers)).max(passes + 1);
    let mut hole = Hole { passes, vanishes, headers };
    let (mut socket, mut interrupted) = (small.near.socket, false);
    let began = Instant::now();
    while let Some(segment) = hole.next().filter(|_| began.elapsed() < EDGE_TIME) {
        watch.says(&format!("a black hole: trying packets of {} bytes", segment + headers));
        match tried(&with_segments(target, segment), EDGE_TRY.min(timeout), stop).await {
            Ok(result) => {
                hole.tried(segment, result.is_ok());
                socket = result.map_or(socket, |outcome| outcome.near.socket);
            }
            // What is known stands.
            Err(trouble) => {
                interrupted = trouble == TestFailure::Interrupted;
                break;
            }
        }
    }
    Ok(PathVerdict { hole: Some(hole), socket, interrupted })
}

/// The first small size that passes, and the one before it, which did not.
///
/// # Errors
/// There was no test for another reason.
async fn small_segments(
    target: &TestTarget,
    patience: Duration,
    stop: &Notify,
) -> Result<Option<(TestOutcome, u16, Option<u16>)>, TestFailure> {
    let mut above = None;
    for bytes in SMALL_SEGMENTS_BYTES {
        if let Ok(outcome) = tried(&with_segments(target, bytes), patience, stop).await? {
            return Ok(Some((outcome, bytes, above)));
        }
        above = Some(bytes);
    }
    Ok(None)
}

/// Sends a few segments as large as may be, both ways; or why they did not pass.
///
/// # Errors
/// There was no test for another reason.
async fn tried(
    target: &TestTarget,
    patience: Duration,
    stop: &Notify,
) -> Result<Result<TestOutcome, String>, TestFailure> {
    struct Unseen;
    impl TestWatch for Unseen {
        fn progress(&self, _: Duration, _: u64) {}
    }
    let timeout_s = patience.as_secs_f64();
    let terms = Terms { direction: TestDirection::Both, count: Some(2), timeout_s, ..Terms::default() };
    match client::run(target, &terms, Rc::new(TestDisk::None), stop, &Unseen).await {
        Ok(outcome) if outcome.interrupted == Some("here") => Err(TestFailure::Interrupted),
        Ok(outcome) => Ok(outcome.lost.clone().map_or(Ok(outcome), Err)),
        // Where credentials are shown there are full segments as well.
        Err(TestFailure::Silent(why)) => Ok(Err(why)),
        Err(trouble) => Err(trouble),
    }
}

impl PathProbe {
    /// What an operator should see to.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(hole) = self.hole {
            warnings.push(format!(
                "the path swallows large packets ({}): set net.ipv4.tcp_mtu_probing = 1 on both nodes, or mend the MTU \
                 of the path",
                hole.sentence()
            ));
        }
        let by = self.clock_us.unsigned_abs();
        if by > CLOCK_WARN_US {
            let ahead = if self.clock_us > 0 { "ahead of" } else { "behind" };
            warnings
                .push(format!("the far clock is {} {ahead} this one: logs of both nodes cannot be compared", us(by)));
        }
        if let Some(load) = &self.load {
            warnings.extend(report::warnings(load));
        }
        warnings
    }

    /// Somebody here asked to stop: the load is not, or not all of it, there.
    pub fn is_interrupted(&self) -> bool {
        self.load.as_ref().is_none_or(|load| load.interrupted.is_some())
    }

    /// Why the load did not come to its end.
    pub fn lost(&self) -> Option<&str> {
        self.load.as_ref()?.lost.as_deref()
    }

    fn summaries(&self) -> Vec<report::DirectionSummary<'_>> {
        self.load.iter().flat_map(|load| report::summaries(load, None)).collect()
    }

    pub fn text(&self) -> String {
        let spread = |spread: &ValueSpread| {
            let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|q| us(spread.at(q)));
            format!("{} at best, p50 {p50}, p90 {p90}, p99 {p99}, {} at most", us(spread.min()), us(spread.max()))
        };
        let sign = if self.clock_us < 0 { "-" } else { "+" };
        let mut out = format!("{}\n", self.address);
        let mut put = |name: &str, value: String| out += &format!("{name:<18} {value}\n");
        put("round trip, idle", spread(&self.idle_us));
        if let Some(load) = &self.load {
            put("          loaded", spread(&load.loaded_us));
        }
        for (name, summary) in ["to the far end", "from the far end"].into_iter().zip(self.summaries()) {
            let delay = show_share(summary.rfc6349().buffer_delay_share);
            put(
                name,
                format!(
                    "{}, {} sent again at full load, {}, TCP round trip {} (buffer delay {delay})",
                    summary.received.map_or("unknown".to_owned(), |received| rate(received.bytes_per_s())),
                    show_share(summary.loss_share()),
                    order(summary.sent.kernel.reorderings),
                    us(summary.sent.rtt_us.mean() as u64),
                ),
            );
        }
        put(
            "path",
            format!(
                "MTU {} by the route, segments of {}; {}",
                self.mtu_bytes,
                self.segment_bytes,
                match self.hole {
                    None => "full segments pass both ways".to_owned(),
                    Some(hole) => format!("a black hole: {}", hole.sentence()),
                }
            ),
        );
        put("far clock", format!("{sign}{} (to within {})", us(self.clock_us.unsigned_abs()), us(self.clock_error_us)));
        if self.is_interrupted() {
            out += "interrupted: this is what there was until then\n";
        }
        out
    }

    pub fn json(&self) -> Json {
        json!(ProbeReport {
            schema: PROBE_SCHEMA,
            address: &self.address,
            path: self.path_found(),
            idle: self.idle_found(),
            load: self.load_found(),
            interrupted: self.is_interrupted(),
            lost: self.lost(),
            warnings: self.warnings(),
        })
    }

    // In the order in which they are found out.

    fn path_found(&self) -> PathFound {
        PathFound {
            mtu_bytes: self.mtu_bytes,
            segment_bytes: self.segment_bytes,
            large_packets: if self.hole.is_none() { "pass" } else { "vanish" },
            path_mtu_bytes: self.hole.map_or(self.mtu_bytes, Hole::path_mtu_bytes),
            path_mtu_is_exact: self.hole.is_none_or(Hole::is_exact),
        }
    }

    fn idle_found(&self) -> IdleFound {
        IdleFound {
            idle_rtt_s: self.idle_us.in_seconds(),
            clock_offset_s: self.clock_us as f64 / 1e6,
            clock_error_s: self.clock_error_us as f64 / 1e6,
        }
    }

    fn load_found(&self) -> LoadFound {
        let mut ways = self.summaries().into_iter().map(|summary| LoadedDirection {
            bytes_per_s: summary.received.map(|received| received.bytes_per_s()),
            loss_share: summary.loss_share(),
            reorderings: summary.sent.kernel.reorderings,
            rtt_s: summary.sent.rtt_us.in_seconds(),
            buffer_delay_share: summary.rfc6349().buffer_delay_share,
        });
        LoadFound {
            loaded_rtt_s: self.load.as_ref().map(|load| load.loaded_us.in_seconds()),
            forward: ways.next(),
            reverse: ways.next(),
        }
    }
}

fn order(reorderings: u64) -> String {
    match reorderings {
        0 => "in order".to_owned(),
        1 => "out of order once".to_owned(),
        times => format!("out of order {times} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edge_of_a_black_hole_is_found_to_the_byte() {
        for largest in [1200, 1201, 1260, 1459] {
            let mut hole = Hole { passes: 1200, vanishes: 1460, headers: 40 };
            let mut tries = 0;
            while let Some(segment) = hole.next() {
                hole.tried(segment, segment <= largest);
                tries += 1;
            }
            assert_eq!(hole.path_mtu_bytes(), u64::from(largest) + 40);
            assert!(tries <= 9, "{largest}: {tries}");
            assert!(hole.sentence().contains(&format!("up to {} bytes", largest + 40)), "{}", hole.sentence());
        }
        let unfinished = Hole { passes: 1200, vanishes: 1330, headers: 60 };
        assert!(!unfinished.is_exact() && unfinished.sentence().contains("those of 1390 vanish"));
    }
}
