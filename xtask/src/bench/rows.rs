//! Turns become rows: medians of both, the median of the ratios within rounds, and whether the bar is met.

use super::BenchSeries;
use super::fio::FioRun;
use super::workload::BenchWorkload;
use crate::measured::{Row, export_text};
use anyhow::Result;
use serde::Serialize;

/// A bar "at least" is met when the median holds and the lower quartile is this near; "at most" likewise above.
const SLACK: f64 = 0.03;

/// A line of the report. `ratio` is the median over the rounds of ours divided by the peer's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReportRow {
    pub name: String,
    pub ours: f64,
    pub peer: &'static str,
    pub peer_value: f64,
    pub unit: &'static str,
    pub ratio: f64,
    pub ratio_quartiles: [f64; 2],
    pub bar: &'static str,
    pub met: bool,
}

/// The turns of one workload, in the order of the rounds.
#[derive(Default)]
pub struct WorkloadRounds {
    ours: Vec<FioRun>,
    peer: Vec<FioRun>,
}

#[derive(Clone, Copy, PartialEq)]
enum BenchBar {
    AtLeastEqual,
    AtMostEqual,
}

impl WorkloadRounds {
    pub fn add(&mut self, is_ours: bool, run: FioRun) {
        if is_ours { &mut self.ours } else { &mut self.peer }.push(run);
    }
}

/// Throughput, and the server's processor time per request.
pub fn of(
    workload: &BenchWorkload,
    series: BenchSeries,
    peer: &'static str,
    rounds: &WorkloadRounds,
) -> Vec<ReportRow> {
    let name = |what: &str| format!("{} {}{what}", series.name(), workload.name);
    let row = |name: String, unit, bar, value: fn(&FioRun) -> f64| {
        let [ours, theirs] = [&rounds.ours, &rounds.peer].map(|runs| runs.iter().map(value).collect::<Vec<f64>>());
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
        let quartiles = [quantile(&ratios, 0.25), quantile(&ratios, 0.75)];
        let ratio = quantile(&ratios, 0.5);
        let (bar, met) = match bar {
            BenchBar::AtLeastEqual => (">= 1.0", ratio >= 1.0 && quartiles[0] >= 1.0 - SLACK),
            BenchBar::AtMostEqual => ("<= 1.0", ratio <= 1.0 && quartiles[1] <= 1.0 + SLACK),
        };
        let (ours, peer_value) = (quantile(&ours, 0.5), quantile(&theirs, 0.5));
        ReportRow { name, ours, peer, peer_value, unit, ratio, ratio_quartiles: quartiles, bar, met }
    };
    vec![
        row(name(""), workload.unit.name(), BenchBar::AtLeastEqual, |run| run.throughput),
        row(name(" cpu"), "us/request", BenchBar::AtMostEqual, |run| run.cpu_us),
    ]
}

/// Linear between neighbours; a ratio of nothing to nothing counts as worst.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// # Errors
/// A row is no JSON.
pub fn print(rows: &[ReportRow]) -> Result<()> {
    let rows = rows.iter().map(Row::of).collect::<Result<Vec<Row>>>()?;
    print!("{}", export_text(&rows)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::workload::WORKLOADS;
    use super::*;

    fn rounds(pairs: &[(f64, f64)]) -> WorkloadRounds {
        let mut rounds = WorkloadRounds::default();
        for &(ours, peer) in pairs {
            rounds.add(true, FioRun { throughput: ours, cpu_us: ours });
            rounds.add(false, FioRun { throughput: peer, cpu_us: peer });
        }
        rounds
    }

    fn met(pairs: &[(f64, f64)]) -> [bool; 2] {
        let rows = of(&WORKLOADS[0], BenchSeries::Direct, "p", &rounds(pairs));
        [rows[0].met, rows[1].met]
    }

    #[test]
    fn bars_hold_for_the_median_and_nearly_for_the_quartile() {
        assert_eq!(met(&[(2.0, 1.0); 9]), [true, false]);
        assert_eq!(met(&[(1.0, 2.0); 9]), [false, true]);
        assert_eq!(met(&[(1.0, 1.0); 9]), [true, true]);
        // The median holds, the lower quartile is at 0.9.
        assert_eq!(met(&[(0.9, 1.0), (0.9, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0)]), [false, true]);
    }

    #[test]
    fn a_row_has_what_the_page_shows() {
        let row = &of(&WORKLOADS[0], BenchSeries::Direct, "p", &rounds(&[(2.0, 1.0)]))[0];
        let text = crate::measured::shown("export", row);
        assert!(text.contains(&format!("{}         2.0         1.0  ", row.name)), "{text}");
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        // A machine that slows down tenfold for both changes nothing.
        let row = &of(&WORKLOADS[0], BenchSeries::Cached, "p", &rounds(&[(20.0, 10.0), (2.0, 1.0), (2.0, 1.0)]))[0];
        assert_eq!((row.ratio, row.ours, row.peer_value), (2.0, 2.0, 1.0));
        assert_eq!(row.name, "cached randread-4k-qd1");
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!([0.0, 0.25, 0.5, 1.0].map(|share| quantile(&values, share)), [1.0, 1.75, 2.5, 4.0]);
    }
}
