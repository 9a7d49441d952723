//! What one run, or many, came to.

use std::collections::BTreeSet;

use engine::coverage::{CoverageCounts, CoveragePoint};
use engine::identity::DecisionRow;

use crate::coverage_exceptions::{BRANCHES_BY_TEST, EDGES_BY_SCENARIO, ROWS_BY_TEST};

/// Counts of one run, for the record.
#[derive(Clone, Debug, Default)]
pub struct RunTally {
    pub writes: u64,
    pub overlaps: u64,
    pub faults: u64,
    /// By node.
    pub crashes: Vec<u64>,
    pub prefix_checks: u64,
    pub coverage_checks: u64,
    pub virtual_ns: u64,
    /// Worlds that ended before they were healed: a full sync of their wide volumes would take hours.
    pub unchecked: u64,
    /// Coverage points of the engine.
    pub coverage: CoverageCounts,
    /// Edges of the state table that a primary took, by the words of their ends.
    pub edges: BTreeSet<(&'static str, &'static str)>,
    /// Rows of the identity table that a primary came to.
    pub rows: BTreeSet<DecisionRow>,
}

impl RunTally {
    /// Adds another's counts.
    pub fn add(&mut self, other: &RunTally) {
        self.writes += other.writes;
        self.overlaps += other.overlaps;
        self.faults += other.faults;
        self.prefix_checks += other.prefix_checks;
        self.coverage_checks += other.coverage_checks;
        self.virtual_ns += other.virtual_ns;
        self.unchecked += other.unchecked;
        self.crashes.resize(self.crashes.len().max(other.crashes.len()), 0);
        self.crashes.iter_mut().zip(&other.crashes).for_each(|(mine, theirs)| *mine += theirs);
        self.coverage.add(&other.coverage);
        self.edges.extend(&other.edges);
        self.rows.extend(&other.rows);
    }

    /// In a line; `seeds`: how many there were, and of what.
    pub fn describe(&self, seeds: (u64, &str)) -> String {
        let (seeds, what) = seeds;
        let crashes: u64 = self.crashes.iter().sum();
        let unchecked = match self.unchecked {
            0 => String::new(),
            count => format!(", {count} not checked at rest: a full sync would have taken hours"),
        };
        format!(
            "{seeds} {what}: {} writes ({} % overlapping), {} faults, {crashes} crashes, {} prefixes and {} coverages \
             checked, {:.1} virtual hours{unchecked}",
            self.writes,
            self.overlaps * 100 / self.writes.max(1),
            self.faults,
            self.prefix_checks,
            self.coverage_checks,
            self.virtual_ns as f64 / 3.6e12
        )
    }

    /// Rare branches, edges of the state table and rows of the identity table that were never taken.
    pub fn missing(&self) -> Vec<String> {
        let by_test = |point: &CoveragePoint| BRANCHES_BY_TEST.iter().any(|(taken, _)| taken == point);
        let points = CoveragePoint::ALL.into_iter().filter(|point| !by_test(point) && self.coverage.count(*point) == 0);
        let by_scenario = |edge: &(&str, &str)| EDGES_BY_SCENARIO.iter().any(|(taken, _)| taken == edge);
        let edges = engine::state::edges().filter(|edge| !by_scenario(edge) && !self.edges.contains(edge));
        let points = points.map(|point| format!("branch {point:?}"));
        let edges = edges.map(|(from, to)| format!("edge {from} -> {to}"));
        let elsewhere = |row: &DecisionRow| ROWS_BY_TEST.iter().any(|(taken, _)| taken == row);
        let rows = DecisionRow::ALL.iter().filter(|row| !elsewhere(row) && !self.rows.contains(row));
        points.chain(edges).chain(rows.map(|row| format!("row {} of the identity table", row.name()))).collect()
    }

    /// How often a coverage point was passed.
    pub fn coverage(&self, point: CoveragePoint) -> u64 {
        self.coverage.count(point)
    }
}
