//! What a sweep tries.

use std::collections::BTreeSet;
use std::time::Duration;

use settings::limits::{Bound, SOCKET_BUFFER};

use crate::line_test::report::{rate, size};
use crate::line_test::terms::{SocketTerms, Terms, TestMode, check_bytes};

/// Where sweeps begin, and the least that is recommended: IBM's "TCP Tuning" for HADR asks for no less.
pub const LEAST_BYTES: u64 = 64 << 10;
/// The most that is recommended, by the same page.
pub const MOST_BYTES: u64 = 32 << 20;
/// More rounds say nothing that those did not.
pub const ROUNDS: Bound<u32> = Bound { min: 1, max: 99, default: 1 };
/// Loaded round trips that are this near each other are alike.
pub const ALIKE_FACTOR: f64 = 1.1;

/// What to try.
#[derive(Clone, Debug)]
pub struct SweepPlan {
    pub from_bytes: u64,
    pub to_bytes: u64,
    /// Of each size.
    pub time: Duration,
    /// What counts as no gain.
    pub tolerance: f64,
    pub largest_flush: u64,
    /// Congestion controls; `None`: what the configuration says. Never empty.
    pub controls: Vec<Option<String>>,
    pub rounds: u32,
    pub timeout: Duration,
}

impl SweepPlan {
    /// # Errors
    /// A sentence: which term is out of bounds.
    pub fn check(&self) -> Result<(), String> {
        if self.from_bytes > self.to_bytes {
            return Err(format!("--from {} is above --to {}", size(self.from_bytes), size(self.to_bytes)));
        }
        for (option, bytes) in [("--from", self.from_bytes), ("--to", self.to_bytes)] {
            check_bytes(option, bytes, SOCKET_BUFFER)?;
        }
        if !(0.001..=0.5).contains(&self.tolerance) {
            return Err("--tolerance: use 0.1% to 50%".to_owned());
        }
        if !(ROUNDS.min..=ROUNDS.max).contains(&self.rounds) {
            return Err(format!("--repeat: {} is out of bounds; use {} to {}", self.rounds, ROUNDS.min, ROUNDS.max));
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = self.controls.iter().flatten().find(|name| !names.insert(*name)) {
            return Err(format!("--congestion: {twice:?} is named twice"));
        }
        let each = self.controls.iter().flat_map(|control| {
            [self.from_bytes, self.to_bytes].map(|bytes| Setting::Fixed { bytes }.sockets(control.as_ref()))
        });
        each.into_iter().try_for_each(|sockets| self.terms(sockets).check())
    }

    pub fn terms(&self, sockets: SocketTerms) -> Terms {
        let (time_s, timeout_s) = (self.time.as_secs_f64(), self.timeout.as_secs_f64());
        Terms { mode: TestMode::Catchup, time_s, timeout_s, sockets, ..Terms::default() }
    }
}

/// How buffers are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    Fixed {
        bytes: u64,
    },
    /// The kernel's autotuning.
    Auto,
    AutoPaced {
        bytes_per_s: u64,
    },
}

impl Setting {
    pub fn sockets(self, congestion: Option<&String>) -> SocketTerms {
        let ours = SocketTerms { congestion: congestion.cloned(), ..SocketTerms::default() };
        match self {
            Setting::Fixed { bytes } => SocketTerms { send_bytes: Some(bytes), receive_bytes: Some(bytes), ..ours },
            Setting::Auto => SocketTerms { autotuned: true, ..ours },
            Setting::AutoPaced { bytes_per_s } => {
                SocketTerms { autotuned: true, pacing_bytes_per_s: Some(bytes_per_s), ..ours }
            }
        }
    }

    pub fn asked_bytes(self) -> Option<u64> {
        if let Setting::Fixed { bytes } = self { Some(bytes) } else { None }
    }

    pub fn paced_bytes_per_s(self) -> Option<u64> {
        if let Setting::AutoPaced { bytes_per_s } = self { Some(bytes_per_s) } else { None }
    }

    pub fn name(self) -> String {
        match self {
            Setting::Fixed { bytes } => size(bytes),
            Setting::Auto => "auto".to_owned(),
            Setting::AutoPaced { bytes_per_s } => format!("auto, paced {}", rate(bytes_per_s as f64)),
        }
    }

    /// As the configuration and `link set` have it.
    pub fn as_set(self) -> String {
        match self {
            Setting::Fixed { bytes } => format!("buffers = {}", units::exact::size_text(bytes)),
            Setting::Auto => "buffers = auto".to_owned(),
            Setting::AutoPaced { bytes_per_s } => format!("buffers = auto, pacing = {}", pace_text(bytes_per_s as f64)),
        }
    }
}

pub fn pace_text(bytes_per_s: f64) -> String {
    units::exact::rate_text((bytes_per_s * 8.0 / 1000.0) as u64 * 1000)
}
