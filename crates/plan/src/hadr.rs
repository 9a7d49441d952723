//! The HADR calculator's arithmetic, reproduced to the digit: what `--legacy hadr` answers.
//!
//! One flush at a time. A small flush pays the round trip often, a large one seldom, so between the flush size a workload
//! has on an idle link and the one it grows to while it waits lies the size that just carries its rate: the *target*. A page
//! is 4096 bytes and MB is 2^20 here, whatever the simulator of the same product says.

use units::quantities::{Bytes, Rate, Seconds};

const PAGES_PER_MIB: f64 = 256.0;
/// Catch-up reads the log this many pages at a time.
const CATCH_UP_PAGES: f64 = 16.0;

/// How the primary waits, in the HADR sense: its `sync` sends after the local write, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HadrMode {
    Sync,
    NearSync,
    Async,
    /// Also remote catch-up.
    SuperAsync,
}

impl HadrMode {
    pub const ALL: [Self; 4] = [Self::Sync, Self::NearSync, Self::Async, Self::SuperAsync];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "SYNC",
            Self::NearSync => "NEARSYNC",
            Self::Async => "ASYNC",
            Self::SuperAsync => "SUPERASYNC",
        }
    }
}

/// How near the workload is to what the mode can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadRating {
    /// Carried without a thought.
    None,
    /// Below a quarter of the most.
    Some,
    /// Below half.
    Close,
    /// Half or more, or too much.
    Unclear,
}

impl LoadRating {
    /// Empty, `?`, `??` or `???`.
    pub fn text(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Some => "?",
            Self::Close => "??",
            Self::Unclear => "???",
        }
    }

    /// The calculator's rule: none below the least rate, then quarters of the largest.
    pub fn of(actual: f64, min: f64, max: f64) -> Self {
        match actual {
            a if a < min => Self::None,
            a if a < max / 4.0 => Self::Some,
            a if a < max / 2.0 => Self::Close,
            _ => Self::Unclear,
        }
    }

    /// The rule for catch-up: average rate over catch-up rate, in quarters from a half.
    pub fn of_catch_up(average: Rate, catch_up: Rate) -> Self {
        match average.bytes_per_s() / catch_up.bytes_per_s() {
            share if share < 0.5 => Self::None,
            share if share < 0.75 => Self::Some,
            share if share < 1.0 => Self::Close,
            _ => Self::Unclear,
        }
    }
}

/// Link and disks; the disks of both sides are alike.
#[derive(Clone, Copy, Debug)]
pub struct HadrSite {
    pub link: Rate,
    pub rtt: Seconds,
    pub disk: Rate,
    pub disk_overhead: Seconds,
}

/// What the log scanner says of a workload in one interval.
#[derive(Clone, Copy, Debug)]
pub struct HadrWorkload {
    pub actual: Rate,
    pub pages_per_flush: f64,
    pub pages_per_transaction: f64,
    pub open_transactions: f64,
}

/// Flush size, its time, and the rate that makes.
#[derive(Clone, Copy, Debug)]
pub struct FlushGroup {
    pub pages: f64,
    pub time: Seconds,
    pub rate: Rate,
}

/// One cell of the calculator's table.
#[derive(Clone, Copy, Debug)]
pub struct CalculatorCell {
    pub rating: LoadRating,
    pub target: FlushGroup,
    pub min: FlushGroup,
    pub max: FlushGroup,
}

impl HadrSite {
    /// Time of one flush of this many pages, and the rate of such flushes one behind the other.
    pub fn group(&self, mode: HadrMode, pages: f64) -> FlushGroup {
        let pages = if mode == HadrMode::SuperAsync { CATCH_UP_PAGES } else { pages };
        let mib = pages / PAGES_PER_MIB;
        let disk = self.disk_overhead.0 + mib / self.disk.as_mib();
        let send = mib / self.link.as_mib();
        let time = match mode {
            HadrMode::Sync => 2.0 * disk + send + self.rtt.0,
            HadrMode::NearSync => disk.max(send + self.rtt.0),
            HadrMode::Async | HadrMode::SuperAsync => disk.max(send),
        };
        FlushGroup { pages, time: Seconds(time), rate: Rate::from_mib(mib / time) }
    }

    /// The calculator's three groups and mark for a workload.
    pub fn cell(&self, mode: HadrMode, workload: &HadrWorkload) -> CalculatorCell {
        let min = self.group(mode, workload.pages_per_flush);
        let largest = workload.pages_per_transaction * workload.open_transactions;
        let max = self.group(mode, largest.max(workload.pages_per_flush));
        let actual = workload.actual;
        let target = if actual > max.rate {
            max
        } else if actual < min.rate {
            min
        } else {
            self.target(mode, actual, min.pages, max.pages)
        };
        let rating = LoadRating::of(actual.bytes_per_s(), min.rate.bytes_per_s(), max.rate.bytes_per_s());
        CalculatorCell { rating, target, min, max }
    }

    /// The flush size that carries the rate: halved until less than a page is left, then the upper end.
    fn target(&self, mode: HadrMode, actual: Rate, mut low: f64, mut high: f64) -> FlushGroup {
        while high - low >= 1.0 {
            let middle = (low + high) / 2.0;
            if self.group(mode, middle).rate < actual {
                low = middle;
            } else {
                high = middle;
            }
        }
        self.group(mode, high)
    }
}

impl FlushGroup {
    /// Whole pages, cut off as the calculator prints them.
    pub fn printed_pages(&self) -> u64 {
        self.pages as u64
    }
    pub fn size(&self) -> Bytes {
        Bytes((self.pages * 4096.0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(link_mib: f64, rtt_s: f64) -> HadrSite {
        HadrSite {
            link: Rate::from_mib(link_mib),
            rtt: Seconds(rtt_s),
            disk: Rate::from_mib(200.0),
            disk_overhead: Seconds(0.001),
        }
    }

    fn workload(letter: char) -> HadrWorkload {
        let (actual, pages_per_flush, pages_per_transaction, open_transactions) = match letter {
            'A' => (1.469, 8.3, 15.2, 2.9),
            'B' => (7.307, 17.6, 15.9, 22.7),
            'C' => (1.363, 3.5, 4.3, 32.4),
            _ => (3.280, 6.7, 15.1, 45.0),
        };
        HadrWorkload { actual: Rate::from_mib(actual), pages_per_flush, pages_per_transaction, open_transactions }
    }

    #[track_caller]
    fn printed(value: f64, wanted: f64, decimals: i32) {
        let unit = 10f64.powi(-decimals);
        assert!((value - wanted).abs() <= unit * 0.501, "{value} is not {wanted}");
    }

    const WAN: (f64, f64) = (10.0, 0.1);
    const MAN: (f64, f64) = (20.0, 0.005);
    const LAN: (f64, f64) = (120.0, 0.0001);
    use HadrMode::{Async, NearSync, Sync};

    type Published = ((f64, f64), char, HadrMode, &'static str, f64, u64);

    /// Every published cell: network, workload, mode, mark, target rate, pages (0 where the page does not print them).
    const CELLS: [Published; 36] = [
        (WAN, 'A', Sync, "???", 1.424, 44),
        (WAN, 'B', Sync, "???", 5.484, 360),
        (WAN, 'C', Sync, "??", 1.373, 42),
        (WAN, 'D', Sync, "??", 3.283, 134),
        (WAN, 'A', NearSync, "???", 1.469, 44),
        (WAN, 'B', NearSync, "???", 5.850, 360),
        (WAN, 'C', NearSync, "??", 1.370, 40),
        (WAN, 'D', NearSync, "??", 3.280, 124),
        (WAN, 'A', Async, "", 10.0, 8),
        (WAN, 'B', Async, "", 10.0, 17),
        (WAN, 'C', Async, "", 10.0, 3),
        (WAN, 'D', Async, "", 10.0, 6),
        (MAN, 'A', Sync, "", 3.624, 8),
        (MAN, 'B', Sync, "??", 7.363, 23),
        (MAN, 'C', Sync, "", 1.748, 3),
        (MAN, 'D', Sync, "?", 3.294, 7),
        (MAN, 'A', NearSync, "", 4.897, 8),
        (MAN, 'B', NearSync, "", 8.148, 17),
        (MAN, 'C', NearSync, "", 2.405, 3),
        (MAN, 'D', NearSync, "", 4.149, 6),
        (MAN, 'A', Async, "", 20.0, 8),
        (MAN, 'B', Async, "", 20.0, 17),
        (MAN, 'C', Async, "", 12.797, 3),
        (MAN, 'D', Async, "", 20.0, 6),
        (LAN, 'A', Sync, "", 12.033, 8),
        (LAN, 'B', Sync, "", 20.459, 17),
        (LAN, 'C', Sync, "", 5.816, 3),
        (LAN, 'D', Sync, "", 10.145, 6),
        (LAN, 'A', NearSync, "", 27.899, 8),
        (LAN, 'B', NearSync, "", 51.163, 17),
        (LAN, 'C', NearSync, "", 12.797, 3),
        (LAN, 'D', NearSync, "", 23.143, 6),
        (LAN, 'A', Async, "", 27.899, 8),
        (LAN, 'B', Async, "", 51.163, 17),
        (LAN, 'C', Async, "", 12.797, 3),
        (LAN, 'D', Async, "", 23.143, 6),
    ];

    #[test]
    fn all_36_published_cells() {
        for ((link, rtt), letter, mode, rating, rate, pages) in CELLS {
            let cell = site(link, rtt).cell(mode, &workload(letter));
            let what = format!("{link} MB/s {letter} {}", mode.name());
            assert_eq!(cell.rating.text(), rating, "{what}");
            printed(cell.target.rate.as_mib(), rate, 3);
            assert_eq!(cell.target.printed_pages(), pages, "{what}");
        }
    }

    /// The times printed beside the targets, and the least and largest groups where the page lists them.
    #[test]
    fn the_other_groups_where_listed() {
        for ((link, rtt), letter, mode, time) in [
            (WAN, 'A', Sync, 0.120_941),
            (WAN, 'B', Sync, 0.257_087),
            (WAN, 'C', Sync, 0.120_146),
            (WAN, 'D', Sync, 0.159_649),
            (WAN, 'A', NearSync, 0.117_219),
            (WAN, 'B', NearSync, 0.240_988),
            (WAN, 'C', NearSync, 0.115_874),
            (WAN, 'D', NearSync, 0.148_815),
            (WAN, 'A', Async, 0.003_242),
            (WAN, 'B', Async, 0.006_875),
            (WAN, 'C', Async, 0.001_367),
            (WAN, 'D', Async, 0.002_617),
            (MAN, 'B', Sync, 0.012_539),
            (MAN, 'D', Sync, 0.008_724),
            (MAN, 'C', Async, 0.001_068),
        ] {
            printed(site(link, rtt).cell(mode, &workload(letter)).target.time.0, time, 6);
        }
        for ((link, rtt), letter, mode, min) in [
            (WAN, 'A', Sync, 0.307),
            (WAN, 'B', Sync, 0.627),
            (WAN, 'C', Sync, 0.132),
            (WAN, 'D', Sync, 0.250),
            (WAN, 'A', NearSync, 0.314),
            (WAN, 'B', NearSync, 0.643),
            (WAN, 'C', NearSync, 0.135),
            (WAN, 'D', NearSync, 0.255),
            (MAN, 'B', Sync, 6.180),
            (MAN, 'D', Sync, 3.054),
        ] {
            printed(site(link, rtt).cell(mode, &workload(letter)).min.rate.as_mib(), min, 3);
        }
        for ((link, rtt), letter, mode, max) in [
            (WAN, 'A', Sync, 1.424),
            (WAN, 'C', Sync, 3.362),
            (WAN, 'D', Sync, 6.737),
            (WAN, 'A', NearSync, 1.469),
            (WAN, 'C', NearSync, 3.524),
            (WAN, 'D', NearSync, 7.263),
            (MAN, 'B', Sync, 15.393),
            (MAN, 'D', Sync, 15.965),
            (LAN, 'A', Sync, 32.755),
            (LAN, 'B', Sync, 50.447),
            (LAN, 'C', Sync, 45.061),
            (LAN, 'D', Sync, 52.289),
            (LAN, 'A', NearSync, 92.527),
            (LAN, 'B', NearSync, 118.987),
            (LAN, 'C', NearSync, 117.411),
            (LAN, 'D', NearSync, 119.460),
            (LAN, 'A', Async, 92.527),
            (LAN, 'B', Async, 120.0),
            (LAN, 'C', Async, 120.0),
            (LAN, 'D', Async, 120.0),
        ] {
            printed(site(link, rtt).cell(mode, &workload(letter)).max.rate.as_mib(), max, 3);
        }
    }

    /// The footer: the largest target of a network. Workload B's 360 pages for the waiting modes, 17 for ASYNC.
    #[test]
    fn the_footer_of_the_wan() {
        let predicted =
            |mode| "ABCD".chars().map(|w| site(10.0, 0.1).cell(mode, &workload(w)).target.printed_pages()).max();
        assert_eq!((predicted(Sync), predicted(NearSync), predicted(Async)), (Some(360), Some(360), Some(17)));
    }

    /// Catch-up at an average of 4.096 MB/s over links of 10, 7, 5 and 3.
    #[test]
    fn catch_up_and_its_marks() {
        for (link, rating, time) in
            [(10.0, "", Some(0.006_250)), (7.0, "?", None), (5.0, "??", Some(0.012_500)), (3.0, "???", None)]
        {
            let group = site(link, 0.1).group(HadrMode::SuperAsync, 99.0);
            printed(group.rate.as_mib(), link, 3);
            if let Some(time) = time {
                printed(group.time.0, time, 6);
            }
            assert_eq!(LoadRating::of_catch_up(Rate::from_mib(4.096), group.rate).text(), rating, "{link}");
        }
    }
}
