//! What a disk test says, for eyes and for programs.

use plan::answer::table;
use plan::inputs::DISK_TEST_SCHEMA;
use serde::Serialize;
use units::quantities::{Bytes, Rate, Seconds, show_bytes, show_rate, show_share, show_time};

use super::DiskMeasurement;
use super::fit::{FittedLine, SizeMean};

/// Farther from the line than this, and a plan made from it is wrong by as much.
const OFF_SHARE_MAX: f64 = 0.25;
/// Of fewer flushes the mean is hardly known.
const FLUSHES_ENOUGH: usize = 20;

/// What `disk test --json` prints; keys are added, never renamed. The comments of fields are the manual's words: docs/book/json.md is made
/// from them.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskReport {
    /// name and version of this schema
    pub schema: &'static str,
    /// what was measured, and how
    pub start: TestStart,
    /// one for each size of a flush, ascending
    pub sizes: Vec<SizeReport>,
    /// what the planner reads
    pub end: TestEnd,
    /// sentences
    pub warnings: Vec<String>,
}

/// What was measured, and how.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestStart {
    /// as it was given
    pub path: String,
    /// its kind; `null` on a device
    pub file_system: Option<String>,
    /// the device below; `null` on a device
    pub source: Option<String>,
    /// bytes of the part that is written
    pub span_bytes: u64,
    /// past the page cache
    pub direct: bool,
    /// `io_uring`, `workers`
    pub engine: &'static str,
    /// bytes
    pub physical_block_bytes: u32,
}

/// The flushes of one size.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SizeReport {
    /// bytes of each flush
    pub bytes: u64,
    /// flushes of this size
    pub flushes: usize,
    /// seconds: the mean
    pub mean_s: f64,
    /// seconds: median of the rounds' mean times, through which the line is laid
    pub typical_s: f64,
    /// seconds: the shortest
    pub min_s: f64,
    /// seconds: the median
    pub p50_s: f64,
    /// seconds: 90 of 100 no longer
    pub p90_s: f64,
    /// seconds: 99 of 100 no longer
    pub p99_s: f64,
    /// seconds: 999 of 1 000 no longer
    pub p999_s: f64,
    /// seconds: the longest
    pub max_s: f64,
    /// bytes a second, one flush after the other
    pub bytes_per_s: f64,
    /// seconds: what the line says
    pub fit_s: f64,
    /// how much longer the typical time is than the line says, as a share of that; below zero: shorter
    pub off_share: f64,
}

/// What `farshore plan --disk` reads.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestEnd {
    /// seconds that each flush takes whatever its size
    pub overhead_s: f64,
    /// bytes a second beyond that
    pub bytes_per_s: f64,
}

impl DiskReport {
    /// # Errors
    /// A sentence: too little was measured for two numbers.
    pub fn of(start: TestStart, measured: &DiskMeasurement, is_in_memory: bool) -> Result<DiskReport, String> {
        let points: Vec<SizeMean> = measured
            .samples
            .iter()
            .map(|sample| SizeMean { bytes: sample.bytes as f64, seconds: sample.typical_s })
            .collect();
        let line = FittedLine::through(&points).ok_or("ended before two sizes were measured; nothing is known yet")?;
        let size = |(sample, point): (&super::FlushSample, &SizeMean)| SizeReport {
            bytes: sample.bytes,
            flushes: sample.times.len(),
            mean_s: sample.mean_s(),
            typical_s: sample.typical_s,
            min_s: sample.quantile_s(0.0),
            p50_s: sample.quantile_s(0.5),
            p90_s: sample.quantile_s(0.9),
            p99_s: sample.quantile_s(0.99),
            p999_s: sample.quantile_s(0.999),
            max_s: sample.quantile_s(1.0),
            bytes_per_s: point.bytes / sample.mean_s(),
            fit_s: line.seconds(point.bytes),
            off_share: line.error(*point),
        };
        let sizes: Vec<SizeReport> = measured.samples.iter().zip(&points).map(size).collect();
        let warnings = warnings(&start, &sizes, measured.interrupted, is_in_memory);
        let end = TestEnd { overhead_s: line.overhead_s, bytes_per_s: line.bytes_per_s };
        Ok(DiskReport { schema: DISK_TEST_SCHEMA, start, sizes, end, warnings })
    }

    /// Size farthest from the line.
    fn farthest(&self) -> Option<&SizeReport> {
        self.sizes.iter().max_by(|a, b| a.off_share.abs().total_cmp(&b.off_share.abs()))
    }

    pub fn text(&self) -> String {
        let start = &self.start;
        let device_text = match (&start.file_system, &start.source) {
            (Some(kind), Some(source)) => format!("a file of {} on {kind} ({source})", size(start.span_bytes)),
            _ => format!("the first {} of the device", size(start.span_bytes)),
        };
        let way = if start.direct { "past the page cache (O_DIRECT)" } else { "through the page cache" };
        let mut out = format!(
            "{}: {device_text}, {way}, by {}; each flush durable before the next\n\n",
            start.path, start.engine
        );
        let header =
            ["size", "flushes", "mean", "typical", "p50", "p90", "p99", "p99.9", "max", "rate", "line says", "off"];
        let rows: Vec<Vec<String>> = self.sizes.iter().map(row).collect();
        out += &table(&header.map(str::to_owned), &rows);
        let (overhead, rate) = (Seconds(self.end.overhead_s), Rate::from_bytes_per_s(self.end.bytes_per_s));
        out += &format!("\ntime = {} + size / {}", show_time(overhead), show_rate(rate));
        if let Some(farthest) = self.farthest() {
            let off = show_share(farthest.off_share.abs());
            out += &format!("; a flush of {} is {off} off that line, the others less", size(farthest.bytes));
        }
        if !grow(&self.sizes) {
            return out + "\n";
        }
        let given = format!("{},{}", show_rate(rate), show_time(overhead)).replace(' ', "");
        out + &format!("\nfor a plan: --disk {given}, or --disk FILE.json with what --json prints\n")
    }
}

/// The largest took longer than the smallest: else the line is a makeshift.
fn grow(sizes: &[SizeReport]) -> bool {
    let typical = |size: Option<&SizeReport>| size.map_or(0.0, |size| size.typical_s);
    typical(sizes.last()) > typical(sizes.first())
}

fn row(of: &SizeReport) -> Vec<String> {
    let time = |seconds| show_time(Seconds(seconds));
    vec![
        size(of.bytes),
        of.flushes.to_string(),
        time(of.mean_s),
        time(of.typical_s),
        time(of.p50_s),
        time(of.p90_s),
        time(of.p99_s),
        time(of.p999_s),
        time(of.max_s),
        show_rate(Rate::from_bytes_per_s(of.bytes_per_s)),
        time(of.fit_s),
        format!("{:+.0} %", of.off_share * 100.0),
    ]
}

fn size(bytes: u64) -> String {
    show_bytes(Bytes(bytes))
}

fn warnings(start: &TestStart, sizes: &[SizeReport], interrupted: bool, is_in_memory: bool) -> Vec<String> {
    let mut list = Vec::new();
    if interrupted {
        list.push("interrupted: what was measured until then is reported".to_owned());
    }
    if is_in_memory {
        let kind = start.file_system.as_deref().unwrap_or("it");
        list.push(format!(
            "{} is in memory ({kind}): its flushes reach no disk, so a plan made from them is wrong; test a directory \
             on the disk that will hold state and volumes",
            start.path
        ));
    }
    if !grow(sizes) {
        list.push("the times do not grow with the sizes, so that they say no rate: include larger ones".to_owned());
    }
    let few: Vec<String> = sizes.iter().filter(|size| size.flushes < FLUSHES_ENOUGH).map(|of| size(of.bytes)).collect();
    if !few.is_empty() {
        list.push(format!(
            "fewer than {FLUSHES_ENOUGH} flushes of {}: their mean is hardly known; more come with --time",
            few.join(", ")
        ));
    }
    let off: Vec<String> =
        sizes.iter().filter(|size| size.off_share.abs() > OFF_SHARE_MAX).map(|of| size(of.bytes)).collect();
    if !off.is_empty() {
        list.push(format!(
            "flushes of {} are more than {} off the line: a cache, a limit of rate, or other load; a plan for such sizes \
             errs by as much",
            off.join(", "),
            show_share(OFF_SHARE_MAX)
        ));
    }
    list
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::FlushSample;
    use super::*;

    fn start() -> TestStart {
        TestStart {
            path: "/srv".to_owned(),
            file_system: Some("ext4".to_owned()),
            source: Some("/dev/sda1".to_owned()),
            span_bytes: 64 << 20,
            direct: true,
            engine: "io_uring",
            physical_block_bytes: 4096,
        }
    }

    /// 1 ms + size / 100 MB/s, but for `odd`.
    fn measured(flushes: usize, odd: Duration) -> DiskMeasurement {
        let samples = [4096u64, 65536, 1_048_576].map(|bytes| {
            let extra = if bytes == 65536 { odd } else { Duration::ZERO };
            let time = Duration::from_secs_f64(0.001 + bytes as f64 / 1e8) + extra;
            FlushSample::new(bytes, &[vec![time; flushes]])
        });
        DiskMeasurement { samples: samples.into(), engine: "io_uring", interrupted: false }
    }

    #[test]
    fn two_numbers_that_a_plan_reads() {
        let report = DiskReport::of(start(), &measured(200, Duration::ZERO), false).expect("three sizes");
        assert_eq!(report.warnings, Vec::<String>::new());
        let json = serde_json::to_string(&report).expect("JSON");
        let disk = plan::inputs::disk(&json).expect("the planner reads it");
        assert!((disk.overhead.0 - 0.001).abs() < 1e-9);
        assert!((disk.rate.expect("a rate").bytes_per_s() - 1e8).abs() < 1.0);
        let text = report.text();
        for part in ["a file of 64 MiB on ext4 (/dev/sda1)", "time = 1 ms + size / 100 MB/s", "--disk 100MB/s,1ms,"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }

    #[test]
    fn what_makes_them_doubtful_is_said() {
        let report = DiskReport::of(start(), &measured(19, Duration::from_millis(4)), true).expect("three sizes");
        let said = report.warnings.join("\n");
        for part in ["in memory (ext4)", "fewer than 20 flushes of 4 KiB, 64 KiB, 1 MiB", "off the line"] {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
        let mut early = measured(200, Duration::ZERO);
        (early.interrupted, early.samples) = (true, early.samples[..2].to_vec());
        assert!(DiskReport::of(start(), &early, false).expect("two sizes").warnings[0].contains("interrupted"));
        early.samples.reverse();
        (early.samples[0].bytes, early.samples[1].bytes) = (4096, 65536);
        let shrinking = DiskReport::of(start(), &early, false).expect("two sizes");
        assert!(shrinking.warnings.concat().contains("say no rate") && !shrinking.text().contains("--disk"));
        early.samples.truncate(1);
        assert!(DiskReport::of(start(), &early, false).is_err());
    }
}
