//! What is asked of a test, checked by whoever asks and again by whoever serves.

use std::time::Duration;

use host::link::{Compression, CongestionChoice, FrameOptions, SocketOptions};
use plan::model;
use serde::{Deserialize, Serialize};
use settings::limits::{Bound, KIB, MIB, MIN_RTO, QUEUE_MEMORY, SOCKET_BUFFER, UNSENT};
use settings::link::parse_compression;
use units::quantities::{Bytes, Rate, Seconds, parse_size, show_bytes, show_time};

/// Both ends have to mean the same. 2: a begin that does not count. 3: several writers on a connection, and their pauses.
/// 4: the stream says what counts.
pub const VERSION: u32 = 4;
/// A sector to the largest NBD write twice over.
pub const FLUSH_BYTES: Bound<u64> = Bound { min: 512, max: 64 * MIB, default: 64 * KIB };
pub const CONNECTIONS: Bound<u32> = Bound { min: 1, max: 64, default: 1 };
/// Writers of one connection: what a busy volume has under way, several times over.
pub const DEPTH: Bound<u32> = Bound { min: 1, max: 256, default: 1 };
/// All connections together: each has a timer, which is a descriptor of the 1024 that a process may have.
const WRITERS_MAX: u32 = 512;
/// A minute between two flushes is an idle line.
pub const GAP_S: Bound<f64> = Bound { min: 0.0, max: 60.0, default: 0.0 };
/// Of the sending end's figures: two looks at least.
pub const INTERVAL_S: Bound<f64> = Bound { min: 0.1, max: 3600.0, default: 1.0 };
/// Intervals kept at most: without a word longer tests have longer ones.
const INTERVALS_MAX: f64 = 3600.0;
/// Between two round trips beside the load: the runtime's timers count milliseconds.
pub const PROBE_S: Bound<f64> = Bound { min: 0.001, max: 60.0, default: 0.1 };
/// One flush on a modelled disk.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(10);
/// Silence after which the other end counts as gone.
pub const TIMEOUT: Bound<Duration> =
    Bound { min: Duration::from_secs(1), max: Duration::from_secs(600), default: super::TIMEOUT };
/// A week: longer is a service, not a test.
pub const TIME_S: Bound<f64> = Bound { min: 0.1, max: 7.0 * 86_400.0, default: 10.0 };
/// Longer than any window takes to open.
pub const OMIT_S: Bound<f64> = Bound { min: 0.0, max: 600.0, default: 0.0 };
/// Different sizes in one distribution.
const SIZES_MAX: usize = 4096;
/// As a daemon's, and no larger than what one could have: each part of a flush takes a few hundred bytes to keep.
const QUEUE: Bound<u64> = Bound { max: 16 << 30, ..QUEUE_MEMORY };
/// Flushes on their way, all connections together: twice what fills the queue in sectors.
const OPEN_FLUSHES: usize = 2 * (QUEUE.default / FLUSH_BYTES.min) as usize;

/// What a flush waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum TestMode {
    Sync,
    Nearsync,
    Async,
    Superasync,
    /// no writer: what was dirtied while the peer was away, as fast as it goes
    Catchup,
}

impl TestMode {
    pub const ALL: [TestMode; 5] =
        [TestMode::Sync, TestMode::Nearsync, TestMode::Async, TestMode::Superasync, TestMode::Catchup];

    pub fn word(self) -> &'static str {
        match self {
            TestMode::Sync => "sync",
            TestMode::Nearsync => "nearsync",
            TestMode::Async => "async",
            TestMode::Superasync => "superasync",
            TestMode::Catchup => "catchup",
        }
    }

    /// # Errors
    /// A sentence with the modes there are.
    pub fn parse(text: &str) -> Result<TestMode, String> {
        TestMode::ALL.into_iter().find(|mode| mode.word() == text).ok_or_else(|| {
            let words = || TestMode::ALL.iter().map(|mode| mode.word());
            let hint = settings::suggest::hint(text, words());
            format!("{text:?} is not a mode{hint}; modes are {}", settings::suggest::list(words()))
        })
    }

    /// A writer waits for the far end, at the memory or at the disk.
    pub fn confirms(self) -> bool {
        matches!(self, TestMode::Sync | TestMode::Nearsync)
    }
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum TestDirection {
    Forward,
    Reverse,
    Both,
}

impl TestDirection {
    /// Whether the end that asked, or the one that serves, sends.
    pub fn sends(self, is_far: bool) -> bool {
        match self {
            TestDirection::Forward => !is_far,
            TestDirection::Reverse => is_far,
            TestDirection::Both => true,
        }
    }

    pub fn receives(self, is_far: bool) -> bool {
        self.sends(!is_far)
    }
}

/// A disk as a model: each write takes this long, and all together no more than the rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskModel {
    /// bytes a second, all flushes together; `null`: no limit
    pub bytes_per_s: Option<f64>,
    /// seconds, each flush
    pub overhead_s: f64,
}

impl DiskModel {
    pub fn model(self) -> model::PlannedDisk {
        model::PlannedDisk { rate: self.bytes_per_s.map(Rate::from_bytes_per_s), overhead: Seconds(self.overhead_s) }
    }

    /// `largest`: bytes of the largest flush. Nothing ends a flush that is under way, so that it must not last.
    ///
    /// # Errors
    /// A sentence: what it may be.
    pub fn check(self, largest: u64) -> Result<(), String> {
        if self.bytes_per_s.is_some_and(|rate| !(1.0..1e15).contains(&rate)) || !(0.0..=10.0).contains(&self.overhead_s)
        {
            return Err("use a rate above zero and an overhead of at most 10s".to_owned());
        }
        let takes_s = self.bytes_per_s.map_or(0.0, |rate| largest as f64 / rate) + self.overhead_s;
        if takes_s > FLUSH_TIME_MAX.as_secs_f64() {
            let (largest, takes) = (show_bytes(Bytes(largest)), show_time(Seconds(takes_s)));
            return Err(format!(
                "a flush of {largest} would take {takes}; use a rate and an overhead with which it takes {} at most",
                show_time(Seconds(FLUSH_TIME_MAX.as_secs_f64()))
            ));
        }
        Ok(())
    }
}

/// The far machine's disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FarDisk {
    /// takes no time
    None,
    /// an object
    Modelled(DiskModel),
    /// the file that its operator allowed with `--disk-file`
    File,
}

/// What is asked of the sockets of both ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SocketTerms {
    /// bytes of the send buffer; `null`: as the configuration says
    pub send_bytes: Option<u64>,
    /// bytes of the receive buffer; `null`: as the configuration says
    pub receive_bytes: Option<u64>,
    /// the kernel's autotuning, whatever the configuration says
    pub autotuned: bool,
    /// small segments wait for confirmations
    pub nagle: bool,
    /// congestion control; `null`: as the configuration says
    pub congestion: Option<String>,
    /// bytes a second; `null`: as the configuration says
    pub pacing_bytes_per_s: Option<u64>,
    /// bytes that the kernel may hold unsent; `null`: as the configuration says
    #[serde(default)]
    pub unsent_bytes: Option<u64>,
    /// seconds: shortest pause before a retransmission; `null`: as the configuration says. A kernel without that option fails the test
    #[serde(default)]
    pub min_rto_s: Option<f64>,
}

impl SocketTerms {
    /// What the node's own settings become.
    pub fn options(&self, ours: &SocketOptions) -> SocketOptions {
        let size = |asked: Option<u64>, ours: Option<usize>| {
            let ours = ours.filter(|_| !self.autotuned);
            asked.map_or(ours, |bytes| usize::try_from(bytes).ok())
        };
        SocketOptions {
            send_buffer_bytes: size(self.send_bytes, ours.send_buffer_bytes),
            receive_buffer_bytes: size(self.receive_bytes, ours.receive_buffer_bytes),
            nagle: self.nagle,
            congestion: match &self.congestion {
                Some(name) => CongestionChoice::Named(name.clone()),
                None => ours.congestion.clone(),
            },
            pacing: self.pacing_bytes_per_s.or(ours.pacing),
            unsent_bytes: self.unsent_bytes.map_or(ours.unsent_bytes, |bytes| u32::try_from(bytes).ok()),
            rto_min: self.min_rto_s.map_or(ours.rto_min, |pause| Some(Duration::from_secs_f64(pause))),
            ..ours.clone()
        }
    }
}

/// One test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Terms {
    /// of the terms; both ends must have the same
    pub version: u32,
    /// what a flush waits for
    pub mode: TestMode,
    /// the waits of Db2's HADR instead of Farshore's
    pub legacy_hadr: bool,
    /// `[bytes, weight]`: sizes of flushes, and how often each comes beside the others
    pub sizes: Vec<(u64, u64)>,
    /// seconds
    pub time_s: f64,
    /// seconds before that time: what happens then is in no figure, at either end
    #[serde(default)]
    pub omit_s: f64,
    /// flushes of each connection that end it before the time; `null`: none do
    pub count: Option<u64>,
    /// bytes a second, of all connections together; `null`: as fast as possible
    pub target_bytes_per_s: Option<f64>,
    /// connections side by side
    pub connections: u32,
    /// writers of each connection: so many flushes may be under way on it
    #[serde(default)]
    pub depth: u32,
    /// seconds for which a writer does nothing after each flush
    #[serde(default)]
    pub gap_s: f64,
    /// who sends
    pub direction: TestDirection,
    /// what is asked of the sockets of both ends
    pub sockets: SocketTerms,
    /// as the configuration's `compression`; `null`: none
    pub compression: Option<String>,
    /// 0 to 1, of the content: repeats itself
    pub compressible_share: f64,
    /// the far machine's disk
    pub far_disk: FarDisk,
    /// whether the near machine's disk takes time
    // Then its writers are not slowed by the link alone.
    pub near_disk_takes_time: bool,
    /// bytes written and not confirmed, each connection, at most
    pub queue_bytes: u64,
    /// seconds: length of an interval; `null`: a second, or more where there would be too many
    #[serde(default)]
    pub interval_s: Option<f64>,
    /// seconds between two round trips beside the load, from the end that asked
    #[serde(default)]
    pub probe_s: f64,
    /// seconds of silence after which the other end counts as gone
    pub timeout_s: f64,
}

impl Default for Terms {
    fn default() -> Self {
        Terms {
            version: VERSION,
            mode: TestMode::Nearsync,
            legacy_hadr: false,
            sizes: vec![(FLUSH_BYTES.default, 1)],
            time_s: TIME_S.default,
            omit_s: OMIT_S.default,
            count: None,
            target_bytes_per_s: None,
            connections: 1,
            depth: DEPTH.default,
            gap_s: GAP_S.default,
            direction: TestDirection::Forward,
            sockets: SocketTerms::default(),
            compression: None,
            compressible_share: 0.0,
            far_disk: FarDisk::None,
            near_disk_takes_time: false,
            queue_bytes: QUEUE_MEMORY.default,
            interval_s: None,
            probe_s: PROBE_S.default,
            timeout_s: super::TIMEOUT.as_secs_f64(),
        }
    }
}

impl Terms {
    pub fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout_s)
    }

    /// How long writers write, unless something else ends that.
    pub fn all_time(&self) -> Duration {
        Duration::from_secs_f64(self.omit_s + self.time_s)
    }

    /// Of all connections.
    pub fn writers(&self) -> u32 {
        self.connections * self.depth
    }

    pub fn interval(&self) -> Duration {
        let usual = INTERVAL_S.default.max(self.time_s / INTERVALS_MAX);
        Duration::from_secs_f64(self.interval_s.unwrap_or(usual))
    }

    pub fn probe_every(&self) -> Duration {
        Duration::from_secs_f64(self.probe_s)
    }

    /// Flushes of one connection that are not durable, at most.
    pub fn open_flushes_max(&self) -> usize {
        OPEN_FLUSHES / self.connections as usize
    }

    pub fn largest_flush(&self) -> u64 {
        self.sizes.iter().map(|(size, _)| *size).max().unwrap_or(0)
    }

    /// What is done with frames.
    pub fn flow(&self) -> FrameOptions {
        let asked = self.compression.as_deref().and_then(|text| parse_compression(text).ok());
        FrameOptions { compression: asked.unwrap_or(Compression::Off), rate: None }
    }

    /// Whether something other than the link paces the writers of that end.
    pub fn is_paced(&self, is_far: bool) -> bool {
        let has_disk = if is_far { self.far_disk != FarDisk::None } else { self.near_disk_takes_time };
        self.target_bytes_per_s.is_some() || self.gap_s > 0.0 || (has_disk && self.mode != TestMode::Catchup)
    }

    /// By whoever serves: what he asks was written by this program or another one.
    ///
    /// # Errors
    /// A sentence for who asks.
    pub fn check_version(&self) -> Result<(), String> {
        let asked = self.version;
        if asked == VERSION {
            return Ok(());
        }
        Err(format!("it serves version {VERSION} of the line test and was asked in version {asked}: upgrade the older"))
    }

    /// # Errors
    /// A sentence: which term is out of bounds, and what it may be.
    pub fn check(&self) -> Result<(), String> {
        check_sizes(&self.sizes)?;
        self.check_times()?;
        if self.count == Some(0) {
            return Err("--count: zero flushes test nothing; use 1 or more".to_owned());
        }
        if self.target_bytes_per_s.is_some_and(|rate| !(1.0..1e15).contains(&rate)) {
            return Err("--target-rate: use one byte a second or more".to_owned());
        }
        if !(CONNECTIONS.min..=CONNECTIONS.max).contains(&self.connections) {
            let (min, max) = (CONNECTIONS.min, CONNECTIONS.max);
            return Err(format!("--connections: {} is out of bounds; use {min} to {max}", self.connections));
        }
        if !(DEPTH.min..=DEPTH.max).contains(&self.depth) {
            return Err(format!("--depth: {} is out of bounds; use {} to {}", self.depth, DEPTH.min, DEPTH.max));
        }
        if self.writers() > WRITERS_MAX {
            return Err(format!(
                "--depth: {} on each of {} connections are {} writers; use {WRITERS_MAX} at most, all together",
                self.depth,
                self.connections,
                self.writers()
            ));
        }
        if let Some(text) = &self.compression {
            parse_compression(text).map_err(|why| format!("--compress: {why}"))?;
        }
        if !(0.0..=1.0).contains(&self.compressible_share) {
            return Err("--compressible: use a share from 0% to 100%".to_owned());
        }
        if let FarDisk::Modelled(disk) = self.far_disk {
            disk.check(self.largest_flush()).map_err(|why| format!("--remote-disk: {why}"))?;
        }
        check_bytes("--queue", self.queue_bytes, QUEUE)?;
        self.check_sockets()?;
        self.check_pace()
    }

    fn check_times(&self) -> Result<(), String> {
        let timeout = Bound { min: TIMEOUT.min.as_secs_f64(), max: TIMEOUT.max.as_secs_f64(), default: 0.0 };
        let interval_s = self.interval_s.unwrap_or(INTERVAL_S.default);
        for (option, time_s, bound, use_it) in [
            ("--time", self.time_s, TIME_S, "100ms to 7d"),
            ("--omit", self.omit_s, OMIT_S, "0s to 10m"),
            ("--gap", self.gap_s, GAP_S, "0s to 1m"),
            ("--interval", interval_s, INTERVAL_S, "100ms to 1h"),
            ("--probe-interval", self.probe_s, PROBE_S, "1ms to 1m"),
            ("--timeout", self.timeout_s, timeout, "1s to 10m"),
        ] {
            if !(bound.min..=bound.max).contains(&time_s) {
                return Err(format!("{option}: {} is out of bounds; use {use_it}", show_time(Seconds(time_s))));
            }
        }
        let intervals = self.interval_s.map_or(0.0, |interval| self.time_s / interval);
        if intervals > INTERVALS_MAX {
            let least = show_time(Seconds((self.time_s / INTERVALS_MAX).ceil()));
            return Err(format!(
                "--interval: {intervals:.0} intervals are more than the {INTERVALS_MAX} that are kept; use {least} or more"
            ));
        }
        Ok(())
    }

    fn check_sockets(&self) -> Result<(), String> {
        let SocketTerms { send_bytes, receive_bytes, congestion, pacing_bytes_per_s, .. } = &self.sockets;
        for (option, size) in [("--sndbuf", send_bytes), ("--rcvbuf", receive_bytes)] {
            size.map_or(Ok(()), |bytes| check_bytes(option, bytes, SOCKET_BUFFER))?;
        }
        if let Some(name) = congestion {
            settings::link::parse_congestion(name).map_err(|why| format!("--congestion: {why}"))?;
        }
        if pacing_bytes_per_s.is_some_and(|rate| rate < 1000) {
            return Err("--pace: use 8kbit/s or more".to_owned());
        }
        self.sockets.unsent_bytes.map_or(Ok(()), |bytes| check_bytes("--unsent", bytes, UNSENT))?;
        let [least, most] = [MIN_RTO.min, MIN_RTO.max].map(|pause| pause.as_secs_f64());
        match self.sockets.min_rto_s {
            Some(pause) if !(least..=most).contains(&pause) => {
                Err(format!("--min-rto: {} is out of bounds; use 20ms to 200ms", show_time(Seconds(pause))))
            }
            _ => Ok(()),
        }
    }

    /// Superasync never waits for the link, so somebody else has to slow its writers down.
    fn check_pace(&self) -> Result<(), String> {
        let unpaced = [false, true].into_iter().any(|far| self.direction.sends(far) && !self.is_paced(far));
        if self.mode == TestMode::Superasync && unpaced {
            return Err("superasync, which --mode all has too, never waits for the link, so the disk has to say how fast writers are: give the \
                        sending machine one (--disk or --disk-file, --remote-disk), or a --target-rate or --gap"
                .to_owned());
        }
        Ok(())
    }
}

fn check_sizes(sizes: &[(u64, u64)]) -> Result<(), String> {
    if sizes.is_empty() || sizes.len() > SIZES_MAX {
        return Err(format!("the distribution of flush sizes has {} sizes; use 1 to {SIZES_MAX}", sizes.len()));
    }
    if sizes.iter().map(|(_, weight)| *weight).try_fold(0u64, u64::checked_add).is_none_or(|sum| sum == 0) {
        return Err("the distribution of flush sizes has no weight; give each size a count of 1 or more".to_owned());
    }
    sizes.iter().try_for_each(|(size, _)| check_bytes("flush size", *size, FLUSH_BYTES))
}

/// # Errors
/// A sentence that begins with `option`.
pub fn check_bytes(option: &str, bytes: u64, bound: Bound<u64>) -> Result<(), String> {
    if (bound.min..=bound.max).contains(&bytes) {
        return Ok(());
    }
    let [bytes, min, max] = [bytes, bound.min, bound.max].map(|bytes| show_bytes(Bytes(bytes)));
    Err(format!("{option}: {bytes} is out of bounds; use {min} to {max}"))
}

/// Sizes and how often they come: lines of `SIZE COUNT`, or the JSON of `farshore scan`.
///
/// # Errors
/// A sentence with the line.
pub fn parse_sizes(text: &str) -> Result<Vec<(u64, u64)>, String> {
    let sizes = if text.trim_start().starts_with('{') { scanned_sizes(text)? } else { listed_sizes(text)? };
    check_sizes(&sizes)?;
    Ok(sizes)
}

fn scanned_sizes(text: &str) -> Result<Vec<(u64, u64)>, String> {
    let json: serde_json::Value =
        serde_json::from_str(text).map_err(|error| format!("it begins like JSON and is none: {error}"))?;
    let buckets = json.pointer("/workload/size_bytes/buckets").cloned().unwrap_or_default();
    serde_json::from_value(buckets)
        .map_err(|_| "it is JSON without workload.size_bytes.buckets, as 'farshore scan --json' writes it".to_owned())
}

fn listed_sizes(text: &str) -> Result<Vec<(u64, u64)>, String> {
    let lines =
        text.lines().enumerate().map(|(number, line)| (number + 1, line.split('#').next().unwrap_or("").trim()));
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(number, line)| {
            let (size, count) = line.rsplit_once(char::is_whitespace).unwrap_or((line, "1"));
            let size = parse_size(size).map_err(|why| format!("line {number}: {why}"))?;
            check_bytes(&format!("line {number}"), size.0, FLUSH_BYTES)?;
            let count = count.parse().map_err(|_| {
                format!("line {number}: {count:?} is not how often that size comes; write \"8KiB 120\"")
            })?;
            Ok((size.0, count))
        })
        .collect()
}

/// Draws sizes by their weights, always in the same order.
pub struct Sizes {
    sizes: Vec<(u64, u64)>,
    sum: u64,
    seed: u64,
}

impl Sizes {
    pub fn new(terms: &Terms, seed: u64) -> Sizes {
        let sum = terms.sizes.iter().map(|(_, weight)| weight).sum();
        Sizes { sizes: terms.sizes.clone(), sum, seed }
    }

    pub fn draw(&mut self) -> u64 {
        if let [(size, _)] = self.sizes[..] {
            return size;
        }
        let mut at = mixed(&mut self.seed) % self.sum;
        for (size, weight) in &self.sizes {
            if at < *weight {
                return *size;
            }
            at -= weight;
        }
        unreachable!("the weights add up to their sum")
    }
}

/// SplitMix64: a few lines, and quality is no matter here.
pub fn mixed(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_out_of_bounds_are_reported_by_their_option() {
        let good = Terms::default();
        assert_eq!(good.check(), Ok(()));
        for (change, hint) in [
            ((|terms| terms.sizes = vec![(0, 1)]) as fn(&mut Terms), "0 B is out of bounds; use 512 B to 64 MiB"),
            (|terms| terms.sizes = vec![(65 << 20, 1)], "65 MiB is out of bounds"),
            (|terms| terms.sizes = vec![(4096, 0)], "no weight"),
            (|terms| terms.sizes = vec![(4096, u64::MAX), (512, 1)], "no weight"),
            (|terms| terms.sizes.clear(), "has 0 sizes"),
            (|terms| terms.time_s = 0.0, "--time: 0 s"),
            (|terms| terms.time_s = f64::NAN, "--time"),
            (|terms| terms.omit_s = 601.0, "use 0s to 10m"),
            (|terms| terms.omit_s = f64::NAN, "--omit"),
            (|terms| terms.gap_s = 61.0, "--gap: 61 s is out of bounds; use 0s to 1m"),
            (|terms| terms.gap_s = -1.0, "--gap"),
            (|terms| terms.interval_s = Some(0.05), "--interval: 50 ms is out of bounds; use 100ms to 1h"),
            (
                |terms| (terms.interval_s, terms.time_s) = (Some(0.1), 7200.0),
                "--interval: 72000 intervals are more than the 3600 that are kept; use 2 s or more",
            ),
            (|terms| terms.probe_s = 0.0, "--probe-interval: 0 s is out of bounds; use 1ms to 1m"),
            (|terms| terms.depth = 0, "--depth: 0 is out of bounds; use 1 to 256"),
            (
                |terms| (terms.depth, terms.connections) = (9, 64),
                "--depth: 9 on each of 64 connections are 576 writers",
            ),
            (|terms| terms.sockets.unsent_bytes = Some(1), "--unsent: 1 B is out of bounds; use 16 KiB to 64 MiB"),
            (|terms| terms.sockets.min_rto_s = Some(0.01), "--min-rto: 10 ms is out of bounds; use 20ms to 200ms"),
            (|terms| terms.sockets.min_rto_s = Some(f64::NAN), "--min-rto"),
            (|terms| terms.count = Some(0), "--count"),
            (|terms| terms.target_bytes_per_s = Some(0.0), "--target-rate"),
            (|terms| terms.connections = 0, "use 1 to 64"),
            (|terms| terms.connections = 65, "use 1 to 64"),
            (|terms| terms.compression = Some("zip".into()), "--compress: \"zip\""),
            (|terms| terms.compressible_share = 1.5, "--compressible"),
            (|terms| terms.queue_bytes = 0, "--queue: 0 B"),
            (|terms| terms.queue_bytes = 17 << 30, "use 1 MiB to 16 GiB"),
            (|terms| terms.timeout_s = 0.0, "--timeout"),
            (|terms| terms.sockets.send_bytes = Some(0), "--sndbuf: 0 B"),
            (|terms| terms.sockets.receive_bytes = Some(2 << 30), "--rcvbuf: 2 GiB"),
            (|terms| terms.sockets.congestion = Some("No Such!".into()), "--congestion"),
            (|terms| terms.sockets.pacing_bytes_per_s = Some(1), "--pace"),
            (|terms| terms.mode = TestMode::Superasync, "never waits for the link"),
            (
                |terms| terms.far_disk = FarDisk::Modelled(DiskModel { bytes_per_s: Some(0.0), overhead_s: 0.0 }),
                "--remote-disk",
            ),
            (
                |terms| terms.far_disk = FarDisk::Modelled(DiskModel { bytes_per_s: Some(1.0), overhead_s: 0.0 }),
                "a flush of 64 KiB would take 18 h 12 min",
            ),
        ] {
            let mut terms = good.clone();
            change(&mut terms);
            let problem = terms.check().expect_err(hint);
            assert!(problem.contains(hint), "{hint}: {problem}");
        }
        let newer = Terms { version: VERSION + 1, ..Terms::default() };
        assert!(
            newer.check_version().is_err_and(|why| why.contains("upgrade the older")) && good.check_version().is_ok()
        );
        let paused = Terms { mode: TestMode::Superasync, gap_s: 0.01, ..Terms::default() };
        assert_eq!(paused.check(), Ok(()), "pauses say how fast its writers are");
        assert!(TestMode::parse("snyc").expect_err("misspelt").contains("sync"));
    }

    #[test]
    fn a_distribution_is_drawn_by_its_weights() {
        let terms = Terms { sizes: parse_sizes("4KiB 3 # most\n\n64KiB 1\n").expect("two sizes"), ..Terms::default() };
        let mut sizes = Sizes::new(&terms, 1);
        let small = (0..4000).filter(|_| sizes.draw() == 4096).count();
        assert!((2900..3100).contains(&small), "{small}");
        let scan = r#"{"schema":"farshore-scan/1","workload":{"size_bytes":{"buckets":[[4096,10],[8192,5]]}}}"#;
        assert_eq!(parse_sizes(scan), Ok(vec![(4096, 10), (8192, 5)]));
        for (text, hint) in [
            ("4KB 1", "line 1"),
            ("\n8KiB often", "line 2: \"often\""),
            ("8KiB\n0B", "line 2: 0 B is out of bounds"),
            ("8KiB 0", "no weight"),
            ("{}", "workload"),
            ("{", "JSON"),
        ] {
            assert!(parse_sizes(text).expect_err(text).contains(hint), "{text}");
        }
    }
}
