//! Rows of every series, as a table for eyes and as JSON.

use super::super::rows::quantile;
use crate::measured::three_digits;
use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

const SCHEMA: &str = "farshore-bench-link/1";

/// A line of a series.
pub trait SeriesRow: Serialize {
    /// What stands above the columns.
    const HEAD: &'static [&'static str];
    fn cells(&self) -> Vec<String>;
}

/// One series, done.
#[derive(Serialize)]
pub struct ReportSection {
    pub series: &'static str,
    #[serde(skip)]
    head: &'static [&'static str],
    #[serde(skip)]
    table: Vec<Vec<String>>,
    rows: Vec<Value>,
}

impl ReportSection {
    pub fn new<R: SeriesRow>(series: &'static str) -> ReportSection {
        ReportSection { series, head: R::HEAD, table: Vec::new(), rows: Vec::new() }
    }

    /// Adds a row, and tells it at once: the whole takes long.
    ///
    /// # Errors
    /// The row is no JSON.
    pub fn add<R: SeriesRow>(&mut self, row: &R) -> Result<()> {
        let cells = row.cells();
        eprintln!("{}: {}", self.series, cells.join(", "));
        self.table.push(cells);
        self.rows.push(serde_json::to_value(row)?);
        Ok(())
    }

    /// As a file of measurements has them.
    pub fn rows(&self) -> &[Value] {
        &self.rows
    }

    fn print(&self) {
        let width = |at: usize| {
            let cells = self.table.iter().map(|row| row[at].chars().count());
            cells.chain([self.head[at].chars().count()]).max().unwrap_or(0)
        };
        let line = |cells: Vec<&str>| {
            let padded = cells.iter().enumerate().map(|(at, cell)| format!("{cell:width$}", width = width(at)));
            println!("| {} |", padded.collect::<Vec<String>>().join(" | "));
        };
        println!("\n{}\n", self.series);
        line(self.head.to_vec());
        println!("|{}", "---|".repeat(self.head.len()));
        self.table.iter().for_each(|row| line(row.iter().map(String::as_str).collect()));
    }
}

#[derive(Serialize)]
pub struct LinkBenchReport {
    schema: &'static str,
    commit: String,
    machine: String,
    ipv6: bool,
    rounds: u32,
    seconds: u32,
    series: Vec<ReportSection>,
}

impl LinkBenchReport {
    pub fn new(commit: String, machine: String, ipv6: bool, (rounds, seconds): (u32, u32)) -> LinkBenchReport {
        LinkBenchReport { schema: SCHEMA, commit, machine, ipv6, rounds, seconds, series: Vec::new() }
    }

    pub fn add(&mut self, section: ReportSection) {
        self.series.push(section);
    }

    /// # Errors
    /// It is no JSON.
    pub fn show(&self, json: bool) -> Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        println!("{}, {}", self.machine, self.commit);
        self.series.iter().for_each(ReportSection::print);
        Ok(())
    }
}

pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// A rate of a line or on it, in Mbit/s of 10^6 bits, at three digits.
pub fn mbit_text(mbit: f64) -> String {
    three_digits(mbit)
}

pub fn share_text(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
