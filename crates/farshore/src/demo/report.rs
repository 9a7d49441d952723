//! The result as one JSON object, schema `farshore-demo/1` (docs/demo.md). Keys are added, never renamed.

use std::time::Duration;

use serde::Serialize;

use super::failover::{Failover, Mode};
use super::outage::{Cut, GAP_MAX_MS};
use super::stage::{QUEUE_BYTES, Stage, VOLUME_BYTES, VOLUMES};
use super::table4::Cell;
use super::{Ending, RATE_BITS};

#[derive(Debug, Serialize)]
pub struct Report {
    pub schema: &'static str,
    pub version: &'static str,
    pub link: LinkReport,
    pub group: GroupReport,
    pub table4: Vec<Cell>,
    pub cut: Option<Cut>,
    /// The asynchronous one.
    pub failover: Option<Failover>,
    /// Both.
    pub failovers: Vec<Failover>,
    pub duration_s: f64,
    /// What did not hold, as sentences.
    pub broken: Vec<String>,
    /// What held, but slower than promised.
    pub slow: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct LinkReport {
    /// `wan` or `relay`.
    pub kind: &'static str,
    pub rate_bits_per_s: u64,
    pub rtt_ms: f64,
}

#[derive(Debug, Serialize)]
pub struct GroupReport {
    pub volumes: u32,
    pub volume_bytes: u64,
    pub queue_bytes: u64,
}

impl Report {
    pub fn new(stage: &Stage) -> Self {
        Self {
            schema: "farshore-demo/1",
            version: env!("CARGO_PKG_VERSION"),
            link: LinkReport { kind: stage.cable.kind(), rate_bits_per_s: RATE_BITS, rtt_ms: 0.0 },
            group: GroupReport { volumes: VOLUMES, volume_bytes: VOLUME_BYTES, queue_bytes: QUEUE_BYTES },
            table4: Vec::new(),
            cut: None,
            failover: None,
            failovers: Vec::new(),
            duration_s: 0.0,
            broken: Vec::new(),
            slow: Vec::new(),
        }
    }

    pub fn finish(&mut self, took: Duration) {
        self.duration_s = took.as_secs_f64();
        self.failover = self.failovers.iter().find(|failover| failover.mode == Mode::Async).cloned();
        for failover in self.failovers.iter().filter(|failover| !failover.as_promised()) {
            let mode = failover.mode.name();
            self.broken.push(match &failover.violation {
                Some(violation) => format!("{mode} failover: the far volumes are no prefix: {violation}"),
                None if failover.mode == Mode::Sync => {
                    format!("sync failover: {} acknowledged writes were lost", failover.lost_writes)
                }
                None => "async failover: nothing was lost, so nothing was unconfirmed and nothing was shown".to_owned(),
            });
        }
        for cut in self.cut.iter().filter(|cut| cut.longest_write_ms > GAP_MAX_MS) {
            self.slow.push(format!(
                "a write took {:.0} ms while the cable was out or the resync ran; {GAP_MAX_MS:.0} ms is promised",
                cut.longest_write_ms
            ));
        }
    }

    pub fn ending(&self) -> Ending {
        match (self.broken.is_empty(), self.slow.is_empty()) {
            (false, _) => Ending::Broken,
            (true, false) => Ending::Slow,
            (true, true) => Ending::AsPromised,
        }
    }
}
