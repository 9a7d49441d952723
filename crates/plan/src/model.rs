//! The queue model: a trace replayed, write by write, against a link, two disks and a bounded queue.
//!
//! Picture a post room. Letters arrive when the trace says; one clerk carries them out at the link's speed, in order; each
//! stays on the shelf until the receipt is back; when the shelf is full the next sender waits at the counter. Nothing is
//! averaged: every write has its moment of admission, departure, arrival and receipt, so queue, lag and waiting are what they
//! would have been. The trace is taken as it is: a writer that had to wait does not change when the next write comes.
//!
//! What holds, and is asserted: moments never run backwards; the shelf never holds more than its limit, save one letter
//! larger than it.

pub mod catch_up;
pub mod fold;
pub mod lean;
mod line;
pub mod stream;
pub mod tally;

use line::LineModel;

use crate::formulas::{CongestionModel, SEGMENT_BYTES, SEGMENT_WIRE_BYTES, loss_chance, loss_delay, loss_limit};
use crate::trace::TraceRecord;
use units::quantities::{Bytes, Rate, Seconds, Share};

/// Frame header of the link's protocol; a test in `farshore` compares it with the engine's, as those below.
pub const FRAME_HEADER_BYTES: u64 = 96;
/// Largest part a write is cut into.
pub const PART_BYTES: u64 = 1 << 20;
/// What a queued item costs beside its payload, and the block its payload is rounded up to.
pub const ITEM_OVERHEAD_BYTES: u64 = 256;
pub const ITEM_BLOCK_BYTES: u64 = 4096;
/// A bit of the dirty bitmap.
pub const REGION_BYTES: u64 = 4 * 1024;
/// The queue when nothing is said.
pub const QUEUE_BYTES_DEFAULT: u64 = 64 << 20;
pub const QUEUE_ITEMS_DEFAULT: u64 = 4_194_304;

/// A mode of replication, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelMode {
    Sync,
    NearSync,
    Async,
    SuperAsync,
    Periodic,
    Logging,
}

impl ModelMode {
    pub const ALL: [Self; 6] =
        [Self::Sync, Self::NearSync, Self::Async, Self::SuperAsync, Self::Periodic, Self::Logging];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::NearSync => "nearsync",
            Self::Async => "async",
            Self::SuperAsync => "superasync",
            Self::Periodic => "periodic",
            Self::Logging => "logging",
        }
    }

    /// # Errors
    /// A sentence with all modes.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| format!("{text:?} is no mode; modes are {}, or all", Self::ALL.map(Self::name).join(", ")))
    }

    /// A queue of writes in order, whose limit makes writers wait.
    pub fn is_ordered(self) -> bool {
        matches!(self, Self::Sync | Self::NearSync | Self::Async)
    }
}

/// The way to the other side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkModel {
    /// As sold: bits on the wire.
    pub rate: Rate,
    pub rtt: Seconds,
    pub loss: Share,
    pub congestion: CongestionModel,
    /// Share of `rate` that carries frames; 1 when the rate was measured.
    pub payload_share: f64,
}

impl LinkModel {
    /// Rate of a line; Ethernet's and TCP's headers are taken off.
    pub fn of_line(rate: Rate, rtt: Seconds) -> Self {
        let payload_share = SEGMENT_BYTES.as_f64() / SEGMENT_WIRE_BYTES.as_f64();
        Self { rate, rtt, loss: Share(0.0), congestion: CongestionModel::Cubic, payload_share }
    }

    /// A rate that was measured between the two ends.
    pub fn measured(rate: Rate, rtt: Seconds) -> Self {
        Self { payload_share: 1.0, ..Self::of_line(rate, rtt) }
    }

    /// What frames get: of a line what it carries without headers, or what loss leaves of that. A measured rate has both in it already.
    pub fn goodput(&self) -> Rate {
        let carried = self.rate.times(self.payload_share);
        if self.is_measured() { carried } else { self.left_by_loss(carried) }
    }

    /// The rate of a line that is so many times as wide. What was measured with loss may be what loss leaves of the line: of a wider one
    /// no more is known to come through than that, or than the formula leaves.
    pub fn widened_rate(&self, factor: f64) -> Rate {
        let wider = self.rate.times(factor);
        if !self.is_measured() {
            return wider;
        }
        let most = self.left_by_loss(wider).bytes_per_s().max(self.rate.bytes_per_s());
        Rate::from_bytes_per_s(wider.bytes_per_s().min(most))
    }

    fn is_measured(&self) -> bool {
        self.payload_share >= 1.0
    }

    fn left_by_loss(&self, rate: Rate) -> Rate {
        loss_limit(rate, self.rtt, self.loss, self.congestion)
    }
}

/// A disk: each write takes `overhead`, and all together no more than `rate`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlannedDisk {
    /// `None`: no limit.
    pub rate: Option<Rate>,
    pub overhead: Seconds,
}

impl PlannedDisk {
    fn busy_s(&self, bytes: u64) -> f64 {
        self.rate.map_or(0.0, |rate| bytes as f64 / rate.bytes_per_s())
    }
    /// One write on an idle disk.
    pub fn write_s(&self, bytes: u64) -> f64 {
        self.overhead.0 + self.busy_s(bytes)
    }
}

/// A disk at work: writes pass one behind the other through its rate, and side by side through its overhead.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskAtWork {
    free_s: f64,
}

impl DiskAtWork {
    /// When a write handed over at this moment is done.
    pub fn write(&mut self, disk: &PlannedDisk, at_s: f64, bytes: u64) -> f64 {
        self.free_s = self.free_s.max(at_s) + disk.busy_s(bytes);
        self.free_s + disk.overhead.0
    }
}

/// Everything that is not the workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelSetup {
    pub link: LinkModel,
    pub local: PlannedDisk,
    pub remote: PlannedDisk,
    pub queue_bytes: u64,
    pub queue_items: u64,
    /// Payload over what of it travels; 1 is no compression.
    pub compression: f64,
    /// The link is down from the first moment to the second.
    pub outage: Option<(f64, f64)>,
    /// Marks of periodic mode.
    pub period: Seconds,
}

impl ModelSetup {
    pub fn new(link: LinkModel) -> Self {
        Self {
            link,
            local: PlannedDisk::default(),
            remote: PlannedDisk::default(),
            queue_bytes: QUEUE_BYTES_DEFAULT,
            queue_items: QUEUE_ITEMS_DEFAULT,
            compression: 1.0,
            outage: None,
            period: Seconds(300.0),
        }
    }

    pub fn unbounded(self) -> Self {
        Self { queue_bytes: u64::MAX, queue_items: u64::MAX, ..self }
    }

    /// Bytes on the link for a payload.
    pub fn wire_bytes(&self, payload: u64) -> f64 {
        payload as f64 / self.compression + (parts(payload) * FRAME_HEADER_BYTES) as f64
    }
}

/// Parts of a write, each with its own header and item.
pub fn parts(payload: u64) -> u64 {
    payload.div_ceil(PART_BYTES).max(1)
}

/// What a write costs in the queue.
pub fn cost_bytes(payload: u64) -> u64 {
    payload.next_multiple_of(ITEM_BLOCK_BYTES) + parts(payload) * ITEM_OVERHEAD_BYTES
}

/// The link at work: one frame behind the other, nothing during an outage, a lost segment holding up all behind it.
#[derive(Clone, Debug)]
pub struct LinkAtWork {
    line: LineModel,
    half_rtt_s: f64,
    loss: Share,
    loss_delay_s: f64,
    outage: Option<(f64, f64)>,
    arrived_s: f64,
    seed: u64,
    pub busy_s: f64,
    pub sent_bytes: f64,
}

impl LinkAtWork {
    pub fn new(setup: &ModelSetup) -> Self {
        let link = &setup.link;
        Self {
            line: LineModel::new(link, link.goodput().bytes_per_s()),
            half_rtt_s: link.rtt.0 / 2.0,
            loss: link.loss,
            loss_delay_s: loss_delay(link.rtt, crate::formulas::RTO_MIN_DEFAULT).0,
            outage: setup.outage,
            arrived_s: 0.0,
            seed: 0x2545_f491_4f6c_dd1d,
            busy_s: 0.0,
            sent_bytes: 0.0,
        }
    }

    /// When the last of what was given to the link has left.
    pub fn free_s(&self) -> f64 {
        self.line.free_s
    }

    /// Sends; says when the last byte has left and when it arrives.
    pub fn send(&mut self, at_s: f64, wire_bytes: f64) -> (f64, f64) {
        let takes_s = wire_bytes / self.line.goodput;
        let mut start_s = self.line.free_s.max(at_s);
        if let Some((down_s, up_s)) = self.outage {
            if (down_s..up_s).contains(&start_s) {
                start_s = up_s;
            } else if start_s < down_s && start_s + takes_s > down_s {
                // The rest leaves when the link is back.
                start_s += up_s - down_s;
            }
        }
        let left_s = self.line.send(start_s, wire_bytes);
        self.busy_s += takes_s;
        self.sent_bytes += wire_bytes;
        let held_s = if self.loses(wire_bytes) { self.loss_delay_s } else { 0.0 };
        self.arrived_s = self.arrived_s.max(left_s + self.half_rtt_s + held_s);
        (left_s, self.arrived_s)
    }

    /// A lot drawn with a fixed seed: the same trace has the same luck every time.
    fn loses(&mut self, wire_bytes: f64) -> bool {
        if self.loss.0 <= 0.0 {
            return false;
        }
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let lot = (self.seed >> 11) as f64 / (1u64 << 53) as f64;
        lot < loss_chance(Bytes(wire_bytes as u64), self.loss).0
    }
}

/// A moment of a record, in seconds since the trace began.
pub fn moment_s(record: &TraceRecord) -> f64 {
    record.time_ns as f64 / 1e9
}
