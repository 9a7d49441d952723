//! Whether frames are packed before they travel, how, and when that is not worth it.
//!
//! Somebody who loads a lorry: while it stands there waiting for its turn, folding the boxes flat costs nothing. When it
//! is the loader whom the lorries wait for, or the boxes turn out to be full of stones, they go as they are.
//!
//! What must hold:
//! * what does not get smaller costs next to nothing: after a failure a sample is tried, and each that fails doubles the
//!   bytes that pass untried, up to [`SKIPPED_BYTES_MAX`];
//! * `auto` packs only while the line is what is waited for, and only at several times the line's rate.

use std::fmt;
use std::time::{Duration, Instant};

use super::envelope::{ENVELOPE_BYTES, Envelope, PLAIN_BYTES_MAX, Packing};

/// Frames packed together, unless one alone is larger: long enough to find repetitions, short enough to be packed in a
/// moment.
pub(super) const BATCH_BYTES: usize = 256 << 10;
/// Heartbeats and confirmations go as they are.
const BATCH_BYTES_MIN: usize = 1 << 10;
/// What is tried of frames that follow others which did not get smaller.
const SAMPLE_BYTES: usize = 16 << 10;
const SKIPPED_BYTES_MIN: u64 = 256 << 10;
/// A sample each so often is a third of a percent of the work.
const SKIPPED_BYTES_MAX: u64 = 8 << 20;
/// `auto` leaves this much of the processor's time to others: packing is so many times faster than the line.
const SPEED_RESERVE: u64 = 4;
/// The line is asked again, and packing measured again, after so long.
const FORGET_AFTER: Duration = Duration::from_secs(5);
/// Shortest stretch that gives a rate.
const RATE_WINDOW: Duration = Duration::from_millis(250);

/// Levels of zstd that a thread which also serves disks can afford: some 20 ms for the largest frame.
pub const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = -7..=9;

/// One way of packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Lz4,
    /// With its level.
    Zstd(i32),
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::Lz4 => write!(f, "lz4"),
            Method::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

/// What is wanted of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compression {
    #[default]
    Off,
    Always(Method),
    /// As the line and the data are.
    Auto,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::Off => write!(f, "off"),
            Compression::Always(method) => method.fmt(f),
            Compression::Auto => write!(f, "auto"),
        }
    }
}

/// What is done with frames now, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PackingState {
    #[default]
    Off,
    /// Nothing was large enough yet.
    Nothing,
    Packing(Method),
    DoesNotShrink,
    /// `auto`: it is not the line that is waited for, or the processor is hardly faster.
    LineIsFast,
}

impl PackingState {
    /// As a sentence; `None`: frames are packed, or nobody asked for it.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            PackingState::Off | PackingState::Packing(_) => None,
            PackingState::Nothing => Some("nothing worth packing was sent yet"),
            PackingState::DoesNotShrink => Some("what is sent does not get smaller"),
            PackingState::LineIsFast => Some("the line takes what is sent as fast as it could be packed"),
        }
    }
}

/// Ways that `auto` knows, the strongest first, with what they do a second until that was measured.
const LADDER: [(Method, u64); 3] =
    [(Method::Zstd(3), 150_000_000), (Method::Zstd(1), 250_000_000), (Method::Lz4, 500_000_000)];

/// Packs the frames of one connection.
pub(super) struct Packer {
    wanted: Compression,
    doing: PackingState,
    skipped: SkippedTrials,
    line: LineRate,
    /// Measured bytes a second of each way in [`LADDER`], and when.
    speeds: [Option<(u64, Instant)>; LADDER.len()],
    zstd: Option<zstd::bulk::Compressor<'static>>,
    plain: Vec<u8>,
}

impl Packer {
    /// `None`: nothing is to be packed.
    pub fn new(wanted: Compression) -> Option<Packer> {
        (wanted != Compression::Off).then(|| Packer {
            wanted,
            doing: PackingState::Nothing,
            skipped: SkippedTrials::default(),
            line: LineRate::default(),
            speeds: [None; LADDER.len()],
            zstd: None,
            plain: Vec::new(),
        })
    }

    pub fn wanted(&self) -> Compression {
        self.wanted
    }

    pub fn doing(&self) -> PackingState {
        self.doing
    }

    /// The line took so many bytes, and `is_full`: it would not take more.
    pub fn line_took(&mut self, now: Instant, bytes: u64, is_full: bool) {
        self.line.took(now, bytes, is_full);
    }

    /// These frames in an envelope; `None`: they go as they are.
    pub fn pack<'a>(&mut self, now: Instant, parts: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Vec<u8>> {
        let plain_bytes: usize = parts.clone().map(<[u8]>::len).sum();
        assert!(plain_bytes <= PLAIN_BYTES_MAX, "a batch is no longer than the largest frame");
        if plain_bytes < BATCH_BYTES_MIN {
            return None;
        }
        let Some(method) = self.method(now) else {
            self.doing = PackingState::LineIsFast;
            return None;
        };
        if self.skipped.lets_pass(plain_bytes as u64) {
            return None;
        }
        if self.skipped.is_any() && plain_bytes > SAMPLE_BYTES {
            self.gather(parts.clone(), SAMPLE_BYTES);
            if self.press(method).is_none() {
                self.skipped.grows();
                return None;
            }
        }
        self.gather(parts, plain_bytes);
        let began = Instant::now();
        let packed = self.press(method);
        self.learn(method, plain_bytes as u64, now, began.elapsed());
        match packed {
            Some(_) => (self.skipped, self.doing) = (SkippedTrials::default(), PackingState::Packing(method)),
            None => {
                self.skipped.grows();
                self.doing = PackingState::DoesNotShrink;
            }
        }
        packed
    }

    fn method(&self, now: Instant) -> Option<Method> {
        match self.wanted {
            Compression::Off => None,
            Compression::Always(method) => Some(method),
            Compression::Auto => {
                let needed = self.line.per_second(now)?.saturating_mul(SPEED_RESERVE);
                let fast_enough = |(way, measured): &(&(Method, u64), &Option<(u64, Instant)>)| {
                    let fresh = measured.filter(|(_, at)| now.duration_since(*at) < FORGET_AFTER);
                    fresh.map_or(way.1, |(speed, _)| speed) >= needed
                };
                LADDER.iter().zip(&self.speeds).find(fast_enough).map(|(way, _)| way.0)
            }
        }
    }

    fn learn(&mut self, method: Method, bytes: u64, now: Instant, took: Duration) {
        let Some(at) = LADDER.iter().position(|(way, _)| *way == method) else { return };
        let measured = per_second(bytes, took);
        let old = self.speeds[at].map_or(measured, |(speed, _)| speed);
        self.speeds[at] = Some((old / 4 * 3 + measured / 4, now));
    }

    fn gather<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>, bytes_max: usize) {
        self.plain.clear();
        for part in parts {
            let room = bytes_max - self.plain.len();
            self.plain.extend_from_slice(&part[..part.len().min(room)]);
        }
    }

    /// What was gathered, in its envelope; `None`: it saves less than a sixteenth.
    fn press(&mut self, method: Method) -> Option<Vec<u8>> {
        let worth = self.plain.len() - self.plain.len() / 16;
        let (packing, bound) = match method {
            Method::Lz4 => (Packing::Lz4, lz4_flex::block::get_maximum_output_size(self.plain.len())),
            Method::Zstd(_) => (Packing::Zstd, zstd::zstd_safe::compress_bound(self.plain.len())),
        };
        let mut out = vec![0; ENVELOPE_BYTES + bound];
        let packed_bytes = match method {
            Method::Lz4 => lz4_flex::block::compress_into(&self.plain, &mut out[ENVELOPE_BYTES..]).ok()?,
            Method::Zstd(level) => {
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Compressor::new(level).ok();
                }
                let zstd = self.zstd.as_mut()?;
                zstd.set_compression_level(level).ok()?;
                zstd.compress_to_buffer(&self.plain, &mut out[ENVELOPE_BYTES..]).ok()?
            }
        };
        if ENVELOPE_BYTES + packed_bytes >= worth {
            return None;
        }
        let (packed_bytes, plain_bytes) = (packed_bytes as u32, self.plain.len() as u32);
        let envelope = Envelope { packing, packed_bytes, plain_bytes };
        out[..ENVELOPE_BYTES].copy_from_slice(&envelope.encode());
        out.truncate(ENVELOPE_BYTES + packed_bytes as usize);
        out.shrink_to_fit();
        Some(out)
    }
}

/// Bytes that pass untried because those before did not get smaller.
#[derive(Clone, Copy, Debug, Default)]
struct SkippedTrials {
    bytes: u64,
    left_bytes: u64,
}

impl SkippedTrials {
    fn is_any(&self) -> bool {
        self.bytes > 0
    }

    fn lets_pass(&mut self, bytes: u64) -> bool {
        let passes = self.left_bytes > 0;
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
        passes
    }

    fn grows(&mut self) {
        self.bytes = (self.bytes * 2).clamp(SKIPPED_BYTES_MIN, SKIPPED_BYTES_MAX);
        self.left_bytes = self.bytes;
    }
}

/// Bytes a second that a line takes while there is more than it takes.
#[derive(Clone, Copy, Debug, Default)]
struct LineRate {
    since: Option<Instant>,
    bytes: u64,
    was_full: bool,
    measured: Option<(u64, Instant)>,
}

impl LineRate {
    fn took(&mut self, now: Instant, bytes: u64, is_full: bool) {
        let since = *self.since.get_or_insert(now);
        self.bytes += bytes;
        self.was_full |= is_full;
        let elapsed = now.duration_since(since);
        if elapsed < RATE_WINDOW {
            return;
        }
        if self.was_full {
            self.measured = Some((per_second(self.bytes, elapsed), now));
        }
        (self.since, self.bytes, self.was_full) = (Some(now), 0, false);
    }

    /// `None`: nobody has waited for it lately.
    fn per_second(&self, now: Instant) -> Option<u64> {
        self.measured.filter(|(_, at)| now.duration_since(*at) < FORGET_AFTER).map(|(rate, _)| rate)
    }
}

fn per_second(bytes: u64, took: Duration) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / took.as_nanos().max(1)).min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAYS: [Method; 3] = [Method::Lz4, Method::Zstd(1), Method::Zstd(-5)];

    fn text(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|n| b"the quick brown fox "[n % 20].wrapping_add((n / 997) as u8)).collect()
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    fn packs(packer: &mut Packer, content: &[u8]) -> Option<Vec<u8>> {
        packer.pack(Instant::now(), [&content[..96], &content[96..]].into_iter())
    }

    #[test]
    fn what_is_packed_unpacks_to_the_same_bytes() {
        for method in WAYS {
            let mut packer = Packer::new(Compression::Always(method)).expect("it is on");
            for bytes in [BATCH_BYTES_MIN, 4096 + 96, BATCH_BYTES, PLAIN_BYTES_MAX] {
                let content = text(bytes);
                let packed = packs(&mut packer, &content).expect("text gets smaller");
                let (head, packed) = packed.split_first_chunk().expect("an envelope");
                let envelope = Envelope::decode(head).expect("a good one");
                let mut plain = vec![0; envelope.plain_bytes as usize];
                envelope.unpack(packed, &mut plain).expect("it unpacks");
                assert!(plain == content, "{method} of {bytes}");
                assert_eq!(packer.doing(), PackingState::Packing(method));
            }
        }
        assert!(Packer::new(Compression::Off).is_none());
    }

    #[test]
    fn small_frames_go_as_they_are() {
        let mut packer = Packer::new(Compression::Always(Method::Lz4)).expect("it is on");
        assert_eq!(packs(&mut packer, &text(BATCH_BYTES_MIN - 1)), None);
        assert_eq!(packer.doing(), PackingState::Nothing);
    }

    #[test]
    fn noise_is_hardly_ever_tried_and_text_is_found_again() {
        for method in WAYS {
            let mut packer = Packer::new(Compression::Always(method)).expect("it is on");
            let (noise, text) = (noise(BATCH_BYTES), text(BATCH_BYTES));
            let mut tried = 0;
            for _ in 0..1024 {
                packer.plain.clear();
                assert_eq!(packs(&mut packer, &noise), None);
                tried += packer.plain.len();
            }
            assert_eq!(packer.doing(), PackingState::DoesNotShrink);
            assert!(tried < 1024 * BATCH_BYTES / 200, "{tried} bytes of noise were tried");
            let until = (0..100u64).find(|_| packs(&mut packer, &text).is_some()).expect("it ends");
            assert!(until * BATCH_BYTES as u64 <= SKIPPED_BYTES_MAX, "{until} batches of text passed unseen");
            assert!(packs(&mut packer, &text).is_some(), "and from there on at once");
        }
    }

    #[test]
    fn auto_packs_what_a_line_makes_it_wait_for_by_the_lines_rate() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let choice = |line_per_second: u64, is_full: bool| {
            let mut packer = Packer::new(Compression::Auto).expect("it is on");
            packer.line_took(start, 0, is_full);
            packer.line_took(at(1000), line_per_second, is_full);
            (packer.method(at(1001)), packer.method(at(7000)))
        };
        for (mbit_per_second, expected) in [
            (1, Some(Method::Zstd(3))),
            (100, Some(Method::Zstd(3))),
            (400, Some(Method::Zstd(1))),
            (900, Some(Method::Lz4)),
            (10_000, None),
        ] {
            let rate = mbit_per_second * 125_000;
            assert_eq!(choice(rate, true), (expected, None), "{mbit_per_second} Mbit/s");
            assert_eq!(choice(rate, false), (None, None), "nobody waits for a line of {mbit_per_second} Mbit/s");
        }
    }

    #[test]
    fn auto_gives_up_a_way_that_is_slower_here() {
        let start = Instant::now();
        let mut packer = Packer::new(Compression::Auto).expect("it is on");
        let second = Duration::from_secs(1);
        packer.line_took(start, 0, true);
        packer.line_took(start + second, 12_500_000, true);
        let now = start + second;
        assert_eq!(packer.method(now), Some(Method::Zstd(3)));
        packer.learn(Method::Zstd(3), 1_000_000, now, second);
        assert_eq!(packer.method(now), Some(Method::Zstd(1)));
        packer.learn(Method::Zstd(1), 1_000_000, now, second);
        packer.learn(Method::Lz4, 1_000_000, now, second);
        assert_eq!(packer.method(now), None, "the processor is what is short");
    }
}
