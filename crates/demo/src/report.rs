//! The result as one JSON object, schema `farshore-demo/1` (docs/book/demo.md). Keys are added, never renamed.

use std::time::Duration;

use serde::Serialize;

use crate::stage::DemoStage;
use crate::terms::{QUEUE_BYTES, RATE_BITS, VOLUME_BYTES, VOLUMES};

/// The longest an asynchronous writer may wait, whatever happens to the cable.
pub const GAP_MAX_MS: f64 = 1_000.0;

#[derive(Debug, Serialize)]
pub struct DemoReport {
    pub schema: &'static str,
    pub version: &'static str,
    pub link: DemoLinkReport,
    pub group: GroupReport,
    pub table4: Vec<ResultCell>,
    pub cut: Option<CableCut>,
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
pub struct DemoLinkReport {
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

impl DemoReport {
    pub fn new(stage: &DemoStage) -> Self {
        Self {
            schema: "farshore-demo/1",
            version: env!("CARGO_PKG_VERSION"),
            link: DemoLinkReport { kind: stage.cable.kind(), rate_bits_per_s: RATE_BITS, rtt_ms: 0.0 },
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
        self.failover = self.failovers.iter().find(|failover| failover.mode == DemoMode::Async).cloned();
        for failover in self.failovers.iter().filter(|failover| !failover.as_promised()) {
            let mode = failover.mode.name();
            self.broken.push(match &failover.violation {
                Some(violation) => format!("{mode} failover: the far volumes are no prefix: {violation}"),
                None if failover.mode == DemoMode::Sync => {
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

    pub fn ending(&self) -> DemoEnding {
        match (self.broken.is_empty(), self.slow.is_empty()) {
            (false, _) => DemoEnding::Broken,
            (true, false) => DemoEnding::Slow,
            (true, true) => DemoEnding::AsPromised,
        }
    }
}

/// How the demo ended, when it came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemoEnding {
    /// Everything held that the demo is there to show.
    AsPromised,
    /// It held, but slower than promised.
    Slow,
    /// A promise was broken; the output says which.
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DemoMode {
    Sync,
    Async,
}

impl DemoMode {
    pub fn name(self) -> &'static str {
        match self {
            DemoMode::Sync => "sync",
            DemoMode::Async => "async",
        }
    }
}

/// What a failover came to.
#[derive(Clone, Debug, Serialize)]
pub struct Failover {
    pub mode: DemoMode,
    /// From the kill to the first byte read from the promoted secondary's export.
    pub recovery_s: f64,
    /// Acknowledged writes that are not on the far volumes.
    pub lost_writes: u64,
    pub lost_bytes: u64,
    /// Acknowledged in this pair's whole life.
    pub acknowledged_writes: u64,
    /// The far volumes are a prefix of the write order over all of them.
    pub verified: bool,
    /// What `status` said was unconfirmed just before the kill.
    pub unconfirmed_bytes: u64,
    /// The first thing that is wrong, when not verified.
    pub violation: Option<String>,
}

impl Failover {
    /// Whether it ended as the mode promises.
    pub fn as_promised(&self) -> bool {
        self.verified && (self.mode == DemoMode::Async) == (self.lost_writes > 0)
    }
}

/// What the outage cost.
#[derive(Clone, Debug, Serialize)]
pub struct CableCut {
    pub outage_s: f64,
    /// Acknowledged while the cable was out.
    pub bytes_written: u64,
    pub bytes_resynced: u64,
    /// From the cable's return to `replicating`.
    pub resync_s: f64,
    /// Longest response of a write issued or waiting between the cut and the end of the resync.
    pub longest_write_ms: f64,
    pub longest_write_cut_ms: f64,
    pub longest_write_resync_ms: f64,
    /// The writers' usual times, before the cut.
    pub before_p50_ms: f64,
    pub before_p999_ms: f64,
}

/// One cell of the table. Times are milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct ResultCell {
    pub size_bytes: u32,
    pub mode: DemoMode,
    pub disk: &'static str,
    /// Median response.
    pub response_ms: f64,
    pub response_p99_ms: f64,
    pub paper_ms: f64,
    /// Median response of the same write in `logging`.
    pub local_ms: f64,
    /// Round trip of the bare line.
    pub rtt_ms: f64,
    pub writes: usize,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn failover(mode: DemoMode, lost_writes: u64, violation: Option<&str>) -> Failover {
        Failover {
            mode,
            recovery_s: 0.1,
            lost_writes,
            lost_bytes: lost_writes * 512,
            acknowledged_writes: 10,
            verified: violation.is_none(),
            unconfirmed_bytes: 1 << 20,
            violation: violation.map(str::to_owned),
        }
    }

    fn report(failovers: Vec<Failover>, longest_write_ms: f64) -> DemoReport {
        let cut = CableCut {
            outage_s: 6.0,
            bytes_written: 36 << 20,
            bytes_resynced: 40 << 20,
            resync_s: 7.0,
            longest_write_ms,
            longest_write_cut_ms: longest_write_ms,
            longest_write_resync_ms: 1.0,
            before_p50_ms: 0.2,
            before_p999_ms: 1.0,
        };
        let cell = ResultCell {
            size_bytes: 8192,
            mode: DemoMode::Sync,
            disk: "raw",
            response_ms: 52.0,
            response_p99_ms: 60.0,
            paper_ms: 60.0,
            local_ms: 0.4,
            rtt_ms: 50.0,
            writes: 200,
        };
        let mut report = DemoReport {
            schema: "farshore-demo/1",
            version: "0",
            link: DemoLinkReport { kind: "wan", rate_bits_per_s: RATE_BITS, rtt_ms: 50.0 },
            group: GroupReport { volumes: VOLUMES, volume_bytes: VOLUME_BYTES, queue_bytes: QUEUE_BYTES },
            table4: vec![cell],
            cut: Some(cut),
            failover: None,
            failovers,
            duration_s: 0.0,
            broken: Vec::new(),
            slow: Vec::new(),
        };
        report.finish(Duration::from_secs(80));
        report
    }

    #[test]
    fn the_ending_states_the_truth() {
        let (lossy, none) = (failover(DemoMode::Async, 9, None), failover(DemoMode::Sync, 0, None));
        assert_eq!(report(vec![lossy.clone(), none.clone()], 20.0).ending(), DemoEnding::AsPromised);
        assert_eq!(report(vec![lossy.clone(), none.clone()], 1_001.0).ending(), DemoEnding::Slow);
        for broken in [failover(DemoMode::Sync, 1, None), failover(DemoMode::Sync, 0, Some("torn"))] {
            assert_eq!(report(vec![lossy.clone(), broken], 1_001.0).ending(), DemoEnding::Broken);
        }
        assert_eq!(report(vec![failover(DemoMode::Async, 0, None), none], 20.0).ending(), DemoEnding::Broken);
    }

    #[test]
    fn every_key_of_the_object_is_in_the_manual() {
        let manual = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/demo.md");
        let manual = std::fs::read_to_string(manual).expect("docs/book/demo.md");
        let report = report(vec![failover(DemoMode::Async, 9, None), failover(DemoMode::Sync, 0, None)], 20.0);
        let object = serde_json::to_value(&report).expect("serialises");
        assert_eq!(object["failover"]["mode"], "async");
        let mut waiting = vec![object];
        while let Some(value) = waiting.pop() {
            match value {
                Value::Object(fields) => {
                    for (key, value) in fields {
                        let documented =
                            [format!("`{key}`"), format!("`{key}[]`")].iter().any(|form| manual.contains(form));
                        assert!(documented, "docs/book/demo.md does not tell of {key}");
                        waiting.push(value);
                    }
                }
                Value::Array(values) => waiting.extend(values),
                _ => {}
            }
        }
    }
}
