//! Runs become rows, and rows a table with the facts of the machine.

use super::super::rows::quantile;
use super::pair::GroupShape;
use crate::measured::{Row, RunFile, recovery_text};
use anyhow::Result;
use serde::Serialize;
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

/// A row as it is shown: medians over the runs, and the slowest.
#[derive(Serialize)]
struct ShownRow<'a> {
    name: &'a str,
    volumes: u64,
    volume_gib: u64,
    first_sync_s: f64,
    served_s: f64,
    served_s_most: f64,
    replicating_s: f64,
    writes: f64,
    compared_mib: f64,
    shipped_mib: f64,
    pulled_mib: f64,
    met: bool,
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
        machine: String,
        shape: GroupShape,
        first_sync: Duration,
        rows: Vec<RecoveryRow>,
    ) -> RecoveryReport {
        let GroupShape { volumes, volume_bytes } = shape;
        let first_sync_s = first_sync.as_secs_f64();
        RecoveryReport { schema: SCHEMA, commit, machine, volumes, volume_bytes, first_sync_s, rows }
    }

    fn shown<'a>(&self, row: &'a RecoveryRow) -> ShownRow<'a> {
        let mib = |value: fn(&RecoveryRun) -> u64| row.median(|run| value(run) as f64) / f64::from(1 << 20);
        ShownRow {
            name: &row.name,
            volumes: self.volumes,
            volume_gib: self.volume_bytes >> 30,
            first_sync_s: self.first_sync_s,
            served_s: row.median(|run| run.served_s),
            served_s_most: row.most(|run| run.served_s),
            replicating_s: row.median(|run| run.replicating_s),
            writes: row.median(|run| run.writes as f64),
            compared_mib: mib(|run| run.compared_bytes),
            shipped_mib: mib(|run| run.shipped_bytes),
            pulled_mib: mib(|run| run.pulled_bytes),
            met: row.met(),
        }
    }

    /// # Errors
    /// A row is no JSON.
    pub fn print(&self) -> Result<()> {
        let rows = self.rows.iter().map(|row| Row::of(&self.shown(row))).collect::<Result<Vec<Row>>>()?;
        println!("{}, {}", self.machine, self.commit);
        print!("{}", recovery_text(&rows)?);
        Ok(())
    }

    /// Adds the rows to a file of measurements.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&self, file: &mut RunFile) -> Result<()> {
        file.add("recovery", &self.rows.iter().map(|row| self.shown(row)).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(served_s: f64, shipped_bytes: u64) -> RecoveryRun {
        RecoveryRun { served_s, replicating_s: 1.0, writes: 1, compared_bytes: 0, shipped_bytes, pulled_bytes: 0 }
    }

    #[test]
    fn a_row_has_what_the_page_shows() {
        let rows = vec![RecoveryRow { runs: vec![run(0.07, 1 << 20)], ..RecoveryRow::new("kill -9".into(), 100) }];
        let shape = GroupShape { volumes: 1, volume_bytes: 1 << 40 };
        let report = RecoveryReport::new(String::new(), String::new(), shape, Duration::from_secs(52), rows);
        let text = crate::measured::shown("recovery", &report.shown(&report.rows[0]));
        assert!(text.contains("\n1 x 1024 GiB, first sync 52.0 s\n") && text.contains("   0.07 s"), "{text}");
    }

    #[test]
    fn a_bar_is_met_in_every_run_or_not_at_all() {
        let row = |runs: &[RecoveryRun]| RecoveryRow { runs: runs.to_vec(), ..RecoveryRow::new("r".into(), 100) };
        assert!(row(&[run(1.0, 100), run(4.9, 0)]).met());
        assert!(!row(&[run(1.0, 100), run(1.0, 101)]).met());
        assert!(!row(&[run(1.0, 0), run(5.0, 0)]).met());
    }
}
