//! Table 2 of the AVS paper as a decision: which mode suits which kind of work on which link.

/// What the application does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Transactions: small scattered writes, light or heavy against the link.
    Transactions { heavy: bool },
    /// A warehouse being loaded: long runs of large writes.
    Loading,
    /// A warehouse that is only read now.
    ReadOnly,
    /// A warehouse with few writes after its load.
    FewWrites,
    /// An import, a tape restore, a short burst.
    Burst,
}

/// What the row advises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableAdvice {
    Sync,
    Async,
    /// A point-in-time copy shipped now and then.
    Periodic,
    /// Only track what changes, resync when it is over.
    Logging,
}

/// A row of the table: what it is for and what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRow {
    pub workload: &'static str,
    pub load: &'static str,
    pub latency: &'static str,
    pub mode: &'static str,
    pub advice: TableAdvice,
}

const fn row(
    workload: &'static str,
    load: &'static str,
    latency: &'static str,
    mode: &'static str,
    advice: TableAdvice,
) -> TableRow {
    TableRow { workload, load, latency, mode, advice }
}

/// The rows in the paper's order.
pub const ROWS: [TableRow; 7] = [
    row("OLTP", "light", "high", "async, or a periodic point-in-time copy", TableAdvice::Async),
    row("OLTP", "light or heavy", "low", "sync", TableAdvice::Sync),
    row(
        "OLTP",
        "heavy",
        "high",
        "point-in-time copy shipped periodically; redo logs sync or async",
        TableAdvice::Periodic,
    ),
    row("DSS", "loading", "any", "logging, then a fast resync", TableAdvice::Logging),
    row("DSS", "load finished, read only", "high", "async", TableAdvice::Async),
    row("DSS", "load finished, few writes", "low", "sync", TableAdvice::Sync),
    row("any", "import, tape restore, short burst", "any", "logging on the volumes concerned", TableAdvice::Logging),
];

/// Round trips below this count as low latency; the paper leaves it to the reader.
pub const LOW_LATENCY_MS: f64 = 10.0;

/// The row for a kind of work; a quiet warehouse falls to the row whose latency it has.
pub fn row_for(work: Work, low_latency: bool) -> &'static TableRow {
    let index = match (work, low_latency) {
        (Work::Transactions { .. }, true) => 1,
        (Work::Transactions { heavy: false }, false) => 0,
        (Work::Transactions { heavy: true }, false) => 2,
        (Work::Loading, _) => 3,
        (Work::ReadOnly | Work::FewWrites, false) => 4,
        (Work::ReadOnly | Work::FewWrites, true) => 5,
        (Work::Burst, _) => 6,
    };
    &ROWS[index]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AVS, table 2: every row is reached, and says what the paper says.
    #[test]
    fn every_row_of_the_paper() {
        for (work, low, advice, index) in [
            (Work::Transactions { heavy: false }, false, TableAdvice::Async, 0),
            (Work::Transactions { heavy: false }, true, TableAdvice::Sync, 1),
            (Work::Transactions { heavy: true }, true, TableAdvice::Sync, 1),
            (Work::Transactions { heavy: true }, false, TableAdvice::Periodic, 2),
            (Work::Loading, false, TableAdvice::Logging, 3),
            (Work::Loading, true, TableAdvice::Logging, 3),
            (Work::ReadOnly, false, TableAdvice::Async, 4),
            (Work::FewWrites, true, TableAdvice::Sync, 5),
            (Work::Burst, true, TableAdvice::Logging, 6),
            (Work::Burst, false, TableAdvice::Logging, 6),
        ] {
            assert_eq!((row_for(work, low).advice, *row_for(work, low)), (advice, ROWS[index]), "{work:?} {low}");
        }
    }
}
