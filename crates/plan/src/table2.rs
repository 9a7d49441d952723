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
pub enum Advice {
    Sync,
    Async,
    /// A point-in-time copy shipped now and then.
    Periodic,
    /// Only mark what changes, resync when it is over.
    Logging,
}

/// A row of the table: what it is for and what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub workload: &'static str,
    pub load: &'static str,
    pub latency: &'static str,
    pub mode: &'static str,
    pub advice: Advice,
}

const fn row(
    workload: &'static str,
    load: &'static str,
    latency: &'static str,
    mode: &'static str,
    advice: Advice,
) -> Row {
    Row { workload, load, latency, mode, advice }
}

/// The rows in the paper's order.
pub const ROWS: [Row; 7] = [
    row("OLTP", "light", "high", "async, or a periodic point-in-time copy", Advice::Async),
    row("OLTP", "light or heavy", "low", "sync", Advice::Sync),
    row("OLTP", "heavy", "high", "point-in-time copy shipped periodically; redo logs sync or async", Advice::Periodic),
    row("DSS", "loading", "any", "logging, then a fast resync", Advice::Logging),
    row("DSS", "load finished, read only", "high", "async", Advice::Async),
    row("DSS", "load finished, few writes", "low", "sync", Advice::Sync),
    row("any", "import, tape restore, short burst", "any", "logging on the volumes concerned", Advice::Logging),
];

/// Round trips below this count as low latency; the paper leaves it to the reader.
pub const LOW_LATENCY_MS: f64 = 10.0;

/// The row for a kind of work; a quiet warehouse falls to the row whose latency it has.
pub fn row_for(work: Work, low_latency: bool) -> &'static Row {
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
            (Work::Transactions { heavy: false }, false, Advice::Async, 0),
            (Work::Transactions { heavy: false }, true, Advice::Sync, 1),
            (Work::Transactions { heavy: true }, true, Advice::Sync, 1),
            (Work::Transactions { heavy: true }, false, Advice::Periodic, 2),
            (Work::Loading, false, Advice::Logging, 3),
            (Work::Loading, true, Advice::Logging, 3),
            (Work::ReadOnly, false, Advice::Async, 4),
            (Work::FewWrites, true, Advice::Sync, 5),
            (Work::Burst, true, Advice::Logging, 6),
            (Work::Burst, false, Advice::Logging, 6),
        ] {
            assert_eq!((row_for(work, low).advice, *row_for(work, low)), (advice, ROWS[index]), "{work:?} {low}");
        }
    }
}
