//! Runs become rows, and rows a table with the facts of the machine.

use super::super::machine::machine;
use super::super::rows::quantile;
use super::pair::GroupShape;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

const SCHEMA: &str = "farshore-bench-recovery/1";
/// The bar for the first read.
const SERVED_S_MAX: f64 = 5.0;

/// What one blow came to. The times count from the start of the killed daemon.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RecoveryRun {
    /// Until a block was read from the export.
    pub served_s: f64,
    /// Until the group was replicating, the sync that this took being done.
    pub replicating_s: f64,
    /// Writes of 4 KiB before the blow.
    pub writes: u64,
    pub compared_bytes: u64,
    pub shipped_bytes: u64,
    pub pulled_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct RecoveryRow {
    pub name: String,
    /// The bar: as many bytes as the written extents have.
    pub shipped_bytes_max: u64,
    pub runs: Vec<RecoveryRun>,
}

impl RecoveryRow {
    pub fn new(name: String, shipped_bytes_max: u64) -> RecoveryRow {
        RecoveryRow { name, shipped_bytes_max, runs: Vec::new() }
    }

    fn median(&self, value: impl Fn(&RecoveryRun) -> f64) -> f64 {
        quantile(&self.runs.iter().map(value).collect::<Vec<f64>>(), 0.5)
    }

    fn most(&self, value: impl Fn(&RecoveryRun) -> f64) -> f64 {
        self.runs.iter().map(value).fold(0.0, f64::max)
    }

    /// Both bars, in every run.
    fn met(&self) -> bool {
        let holds = |run: &RecoveryRun| run.served_s < SERVED_S_MAX && run.shipped_bytes <= self.shipped_bytes_max;
        self.runs.iter().all(holds)
    }
}

#[derive(Serialize)]
pub struct RecoveryReport {
    schema: &'static str,
    commit: String,
    machine: String,
    volumes: u64,
    volume_bytes: u64,
    first_sync_s: f64,
    rows: Vec<RecoveryRow>,
}

impl RecoveryReport {
    pub fn new(
        commit: String,
        directory: &Path,
        shape: GroupShape,
        first_sync: Duration,
        rows: Vec<RecoveryRow>,
    ) -> RecoveryReport {
        let GroupShape { volumes, volume_bytes } = shape;
        let first_sync_s = first_sync.as_secs_f64();
        RecoveryReport {
            schema: SCHEMA,
            commit,
            machine: machine(directory),
            volumes,
            volume_bytes,
            first_sync_s,
            rows,
        }
    }

    pub fn print(&self) {
        println!("{}", self.machine);
        println!(
            "{} x {} GiB, first sync {:.1} s, {}",
            self.volumes,
            self.volume_bytes >> 30,
            self.first_sync_s,
            self.commit
        );
        println!(
            "{:22}  {:>8}  {:>8}  {:>10}  {:>8}  {:>12}  {:>11}  {:>11}  bars met",
            "", "serves", "worst", "replicates", "writes", "compared MiB", "shipped MiB", "pulled MiB"
        );
        for row in &self.rows {
            let mib = |value: fn(&RecoveryRun) -> u64| row.median(|run| value(run) as f64) / f64::from(1 << 20);
            println!(
                "{:22}  {:6.2} s  {:6.2} s  {:8.2} s  {:>8.0}  {:>12.1}  {:>11.1}  {:>11.1}  {}",
                row.name,
                row.median(|run| run.served_s),
                row.most(|run| run.served_s),
                row.median(|run| run.replicating_s),
                row.median(|run| run.writes as f64),
                mib(|run| run.compared_bytes),
                mib(|run| run.shipped_bytes),
                mib(|run| run.pulled_bytes),
                if row.met() { "yes" } else { "no" }
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(served_s: f64, shipped_bytes: u64) -> RecoveryRun {
        RecoveryRun { served_s, replicating_s: 1.0, writes: 1, compared_bytes: 0, shipped_bytes, pulled_bytes: 0 }
    }

    #[test]
    fn a_bar_is_met_in_every_run_or_not_at_all() {
        let row = |runs: &[RecoveryRun]| RecoveryRow { runs: runs.to_vec(), ..RecoveryRow::new("r".into(), 100) };
        assert!(row(&[run(1.0, 100), run(4.9, 0)]).met());
        assert!(!row(&[run(1.0, 100), run(1.0, 101)]).met());
        assert!(!row(&[run(1.0, 0), run(5.0, 0)]).met());
    }
}
