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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn failover(mode: Mode, lost_writes: u64, violation: Option<&str>) -> Failover {
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

    fn report(failovers: Vec<Failover>, longest_write_ms: f64) -> Report {
        let cut = Cut {
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
        let cell = Cell {
            size_bytes: 8192,
            mode: Mode::Sync,
            disk: "raw",
            response_ms: 52.0,
            response_p99_ms: 60.0,
            paper_ms: 60.0,
            local_ms: 0.4,
            rtt_ms: 50.0,
            writes: 200,
        };
        let mut report = Report {
            schema: "farshore-demo/1",
            version: "0",
            link: LinkReport { kind: "wan", rate_bits_per_s: RATE_BITS, rtt_ms: 50.0 },
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
    fn the_ending_tells_the_truth() {
        let (lossy, none) = (failover(Mode::Async, 9, None), failover(Mode::Sync, 0, None));
        assert_eq!(report(vec![lossy.clone(), none.clone()], 20.0).ending(), Ending::AsPromised);
        assert_eq!(report(vec![lossy.clone(), none.clone()], 1_001.0).ending(), Ending::Slow);
        for broken in [failover(Mode::Sync, 1, None), failover(Mode::Sync, 0, Some("torn"))] {
            assert_eq!(report(vec![lossy.clone(), broken], 1_001.0).ending(), Ending::Broken);
        }
        assert_eq!(report(vec![failover(Mode::Async, 0, None), none], 20.0).ending(), Ending::Broken);
    }

    #[test]
    fn every_key_of_the_object_is_in_the_manual() {
        let manual = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/demo.md");
        let manual = std::fs::read_to_string(manual).expect("docs/demo.md");
        let report = report(vec![failover(Mode::Async, 9, None), failover(Mode::Sync, 0, None)], 20.0);
        let object = serde_json::to_value(&report).expect("serialises");
        assert_eq!(object["failover"]["mode"], "async");
        let mut waiting = vec![object];
        while let Some(value) = waiting.pop() {
            match value {
                Value::Object(fields) => {
                    for (key, value) in fields {
                        let told = [format!("`{key}`"), format!("`{key}[]`")].iter().any(|form| manual.contains(form));
                        assert!(told, "docs/demo.md does not tell of {key}");
                        waiting.push(value);
                    }
                }
                Value::Array(values) => waiting.extend(values),
                _ => {}
            }
        }
    }
}
