//! How fast traces are read and scanned: `cargo run --release -p plan --example speed [RECORDS]`.
//!
//! Each format's file is made in memory from the same records, read and scanned three times on one core; the median of
//! the thread's own time counts, so that other work on the machine does not.

use std::fmt::Write as _;
use std::io::Write as _;

use plan::scan::TraceScan;
use plan::trace::blktrace::sample_event;
use plan::trace::detect::FormatChoice;
use plan::trace::merge::Merge;
use plan::trace::own::TraceWriter;
use plan::trace::reader::{TraceReader, unpack};
use plan::trace::{TraceKind, TraceRecord};
use units::quantities::Seconds;

const ROUNDS: usize = 3;

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3_000_000);
    let records = records(count);
    println!("{count} records, one core, median of {ROUNDS}");
    println!("{:<16} {:>10} {:>14} {:>10}", "format", "MB", "records/s", "MB/s");
    let iolog = text(&records, "fio version 3 iolog\n", |out, r| {
        writeln!(out, "{} /dev/sdb write {} {}", r.time_ns / 1000, r.offset, r.length)
    });
    measure("farshore", &own(&records), count);
    measure(
        "blktrace",
        &records.iter().flat_map(|r| sample_event(r.time_ns, r.offset / 512, r.length, true)).collect::<Vec<u8>>(),
        count,
    );
    measure("iolog", &iolog, count);
    let blkparse = text(&records, "", |out, r| {
        let (s, ns) = (r.time_ns / 1_000_000_000, r.time_ns % 1_000_000_000);
        writeln!(out, "  8,16   1  1 {s:5}.{ns:09}  4711  Q  WS {} + {} [writer]", r.offset / 512, r.length / 512)
    });
    measure("blkparse", &blkparse, count);
    let msr = text(&records, "", |out, r| {
        writeln!(out, "{},host,1,Write,{},{},1331", 128_166_372_003_061_629 + r.time_ns / 100, r.offset, r.length)
    });
    measure("MSR CSV", &msr, count);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&iolog).expect("memory takes everything");
    measure("iolog, gzip", &gz.finish().expect("memory takes everything"), count);
    measure("iolog, zstd", &zstd::encode_all(iolog.as_slice(), 1).expect("memory takes everything"), count);
}

/// 8 KiB on average over 64 GiB, ten thousand a second, a tenth of them on a hot gigabyte.
fn records(count: u64) -> Vec<TraceRecord> {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = |bound: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % bound
    };
    let mut time_ns = 0;
    let make = |_| {
        time_ns += next(200_000);
        let span = if next(10) == 0 { 1 << 18 } else { 1 << 24 };
        TraceRecord {
            time_ns,
            offset: next(span) * 4096,
            length: (1 + next(3)) as u32 * 4096,
            kind: TraceKind::Write,
            ..TraceRecord::default()
        }
    };
    (0..count).map(make).collect()
}

fn own(records: &[TraceRecord]) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), 0).expect("memory takes everything");
    records.iter().for_each(|record| writer.push(record).expect("memory takes everything"));
    writer.finish().expect("memory takes everything")
}

fn text(records: &[TraceRecord], heading: &str, line: fn(&mut String, &TraceRecord) -> std::fmt::Result) -> Vec<u8> {
    let mut out = heading.to_owned();
    records.iter().for_each(|record| line(&mut out, record).expect("memory takes everything"));
    out.into_bytes()
}

fn measure(name: &str, file: &[u8], count: u64) {
    let mut times: Vec<f64> = (0..ROUNDS).map(|_| once(file, count)).collect();
    times.sort_by(f64::total_cmp);
    let seconds = times[ROUNDS / 2];
    let mb = file.len() as f64 / 1e6;
    println!("{name:<16} {mb:>10.0} {:>14.0} {:>10.0}", count as f64 / seconds, mb / seconds);
}

/// Time this thread was given by the kernel: other work on the machine does not count.
fn cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds: Option<f64> = text.split(' ').next().and_then(|field| field.parse().ok());
    nanoseconds.expect("Linux counts a thread's time") / 1e9
}

fn once(file: &[u8], count: u64) -> f64 {
    let start = cpu_s();
    let reader = TraceReader::open("memory", unpack(file).expect("memory reads"), &FormatChoice::default())
        .expect("a known format");
    let (mut merge, mut scan, mut batch) = (Merge::new(vec![reader]), TraceScan::new(Seconds(60.0)), Vec::new());
    while merge.next_batch(&mut batch).expect("memory reads") {
        scan.add(&batch);
    }
    let work = scan.finish();
    assert_eq!(work.writes, count, "every record was read");
    cpu_s() - start
}
