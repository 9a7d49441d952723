//! Fixed socket buffers at growing distance, beside table B-1 of the AVS paper. There Mbit is 2^20 bits, so here too.

use super::pair::{LinkPair, PairSetup};
use super::report::{ReportSection, SeriesRow, mbit_text, median};
use super::{LinkBenchArgs, LinkStage, TableLine};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;
use std::process::Command;

const BUFFERS_KIB: [u64; 2] = [24, 256];
const RTTS_MS: [u64; 5] = [10, 20, 50, 100, 200];
/// The paper's link, in Mbit/s of 10^6 bits.
const LINK_MBIT: f64 = 104.857_6;
const MIBIT_PER_MBIT: f64 = 1e6 / 1_048_576.0;
/// Enough for windows as small as these, and soon empty.
const GROUP: &str = "queue.memory = \"1MiB\"";
const WRITERS: &[&str] = &["--rw=randwrite", "--bs=16k", "--iodepth=16"];

#[derive(Serialize)]
struct BufferCell {
    buffer_kib: u64,
    rtt_ms: u64,
    /// Both Mbit/s of 2^20 bits.
    table_mibit: f64,
    measured_mibit: f64,
    /// What the peer offers, and what that carries at the most.
    window_bytes: f64,
    window_mibit: f64,
    limit: String,
}

impl SeriesRow for BufferCell {
    const HEAD: &'static [&'static str] =
        &["buffers", "round trip", "table B-1", "measured", "window", "window / round trip", "verdict"];

    fn cells(&self) -> Vec<String> {
        vec![
            format!("{} KiB", self.buffer_kib),
            format!("{} ms", self.rtt_ms),
            format!("{}", self.table_mibit),
            mbit_text(self.measured_mibit),
            format!("{:.0} KiB", self.window_bytes / 1024.0),
            mbit_text(self.window_mibit),
            self.limit.clone(),
        ]
    }
}

/// # Errors
/// A pair does not come up, or falls out of step.
pub fn play(stage: &LinkStage, arguments: &LinkBenchArgs) -> Result<ReportSection> {
    let table = table_b1(stage)?;
    let mut section = ReportSection::new::<BufferCell>("buffers (Mbit/s of 2^20 bits)");
    for rtt_ms in RTTS_MS {
        let line = TableLine::new(LINK_MBIT, rtt_ms as f64);
        let setup = PairSetup { line: line.options(), link: "", group: GROUP, volume_bytes: stage.volume_bytes };
        let pair = LinkPair::start(stage, &setup)?;
        for buffer_kib in BUFFERS_KIB {
            pair.tune(&[&format!("buffers={buffer_kib}KiB")])?;
            let run = |_| pair.carry(WRITERS, line.warm_up(), f64::from(arguments.seconds));
            let runs = (0..arguments.rounds).map(run).collect::<Result<Vec<_>>>()?;
            let windows: Vec<f64> = runs.iter().map(|run| run.send_window_bytes as f64).collect();
            let rates: Vec<f64> = runs.iter().map(|run| run.mbit * MIBIT_PER_MBIT).collect();
            let window_bytes = median(&windows);
            section.add(&BufferCell {
                buffer_kib,
                rtt_ms,
                table_mibit: cell_of(&table, buffer_kib, rtt_ms)?,
                measured_mibit: median(&rates),
                window_bytes,
                window_mibit: window_bytes * 8.0 / (rtt_ms as f64 * 1e-3) / 1_048_576.0,
                limit: runs.last().map(|run| run.limit.clone()).unwrap_or_default(),
            })?;
        }
        pair.stop()?;
    }
    Ok(section)
}

/// As our calculator prints it.
fn table_b1(stage: &LinkStage) -> Result<Value> {
    let output = Command::new(&stage.program).args(["calc", "buffers", "--json"]).output()?;
    ensure!(output.status.success(), "farshore calc buffers failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn cell_of(table: &Value, buffer_kib: u64, rtt_ms: u64) -> Result<f64> {
    let rows = table["rows"].as_array().with_context(|| format!("no rows in {table}"))?;
    let row = rows.iter().find(|row| row["buffer_bytes"].as_f64() == Some((buffer_kib * 1024) as f64));
    let cell = row.and_then(|row| row[format!("mibit_per_s_at_{rtt_ms}ms")].as_f64());
    cell.with_context(|| format!("no {buffer_kib} KiB at {rtt_ms} ms in {table}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::shown;

    #[test]
    fn a_row_has_what_the_page_shows() {
        let row = BufferCell {
            buffer_kib: 24,
            rtt_ms: 20,
            table_mibit: 9.375,
            measured_mibit: 7.81,
            window_bytes: 21_730.0,
            window_mibit: 8.29,
            limit: "receiver-window".to_owned(),
        };
        assert!(shown("buffers", &row).ends_with("| 20 | 9.38 | 7.81 | 8.29 |\n"));
    }
}
