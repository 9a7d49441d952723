//! What the planner reads: traces of every make, packed or not, tables by their columns, quantities with units, and what the
//! toolkit measured.

use plan::inputs;
use plan::model::ModelMode;
use plan::plan::WhatIf;
use plan::scan::TraceScan;
use plan::trace::blktrace::sample_event;
use plan::trace::csv::Columns;
use plan::trace::detect::FormatChoice;
use plan::trace::own::TraceWriter;
use plan::trace::reader::{TraceReader, unpack};
use plan::trace::samples::DiskCounters;
use plan::trace::{OFFSET_BYTES_MAX, RecordFault, TraceKind, TraceRecord};
use units::quantities::{Seconds, parse_rate, parse_share, parse_size, parse_time};

use crate::Seed;

/// Unpacks to more than this are cut: a few bytes of gzip can stand for gigabytes.
const UNPACKED_BYTES_MAX: u64 = 1 << 20;

/// Rule: whatever the bytes, records come in order of time and within bounds, and all that was left out is counted.
fn read(bytes: &[u8], wish: &FormatChoice) {
    let Ok(input) = unpack(bytes) else {
        return;
    };
    let Ok(mut reader) = TraceReader::open("fuzz", std::io::Read::take(input, UNPACKED_BYTES_MAX), wish) else {
        return;
    };
    let (mut batch, mut last_ns) = (Vec::new(), 0);
    while reader.next_batch(&mut batch).expect("memory reads") {
        for record in &batch {
            assert!(record.time_ns >= last_ns && record.offset + u64::from(record.length) <= OFFSET_BYTES_MAX);
            last_ns = record.time_ns;
        }
    }
    // Each line counts once, and the end of the file once more.
    let of_lines = reader.troubles().kinds().filter(|(fault, ..)| *fault != RecordFault::OutOfOrder);
    assert!(of_lines.map(|(_, count, _)| count).sum::<u64>() <= reader.items() + 1);
    let problems = reader.troubles().to_string();
    assert_eq!(problems.is_empty(), reader.troubles().is_empty());
}

pub fn trace(bytes: &[u8]) {
    read(bytes, &FormatChoice::default());
}

/// Rule: as for a trace; the columns stand in the first line.
pub fn trace_columns(bytes: &[u8]) {
    let (first, rest) = bytes.split_at(bytes.iter().position(|&byte| byte == b'\n').unwrap_or(0));
    if let Ok(columns) = Columns::parse(&String::from_utf8_lossy(first)) {
        read(rest, &FormatChoice { format: None, columns: Some(columns) });
    }
}

/// Rule: a short trace of our own kind can be scanned and replayed whatever its times, offsets and lengths are.
pub fn trace_scan(bytes: &[u8]) {
    let mut records: Vec<TraceRecord> = bytes
        .chunks_exact(8)
        .take(200)
        .map(|b| TraceRecord {
            time_ns: u64::from(u16::from_le_bytes([b[0], b[1]])) << (b[2] % 40),
            offset: u64::from(b[3]) << (b[4] % 54),
            length: u32::from(b[5]) << (b[6] % 21),
            volume: u16::from(b[7] & 3),
            kind: [TraceKind::Write, TraceKind::Flush, TraceKind::Trim, TraceKind::Write][usize::from(b[7] >> 6)],
            fua: b[7] & 4 != 0,
            synthetic: b[7] & 8 != 0,
        })
        .collect();
    records.sort_by_key(|record| record.time_ns);
    let mut scan = TraceScan::new(Seconds(1.0));
    scan.add(&records);
    let verdict = scan.verdict(0);
    let work = scan.finish();
    assert_eq!(verdict.is_ok(), work.writes > 0);
    let in_intervals: u64 = work.intervals.iter().map(|interval| interval.bytes).sum();
    assert_eq!(in_intervals, work.bytes);
}

/// Rule: text becomes a quantity or a sentence; what became one is finite and not negative.
pub fn quantities(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for part in text.split('\n') {
        let sizes = parse_size(part).map(|size| size.as_f64());
        let rates = parse_rate(part).map(|rate| rate.bytes_per_s());
        let times = parse_time(part).map(|time| time.0);
        let shares = parse_share(part).map(|share| share.0);
        for result in [sizes, rates, times, shares] {
            match result {
                Ok(value) => assert!(value.is_finite() && value >= 0.0, "{part}: {value}"),
                Err(sentence) => assert!(!sentence.is_empty()),
            }
        }
        let _ = (WhatIf::parse(part), ModelMode::parse(part));
    }
}

/// Rule: a measurement is taken with sane numbers or refused with a sentence.
pub fn measurements(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(link) = inputs::link(&text) {
        assert!(link.goodput().bytes_per_s() > 0.0 && link.rtt.0 >= 0.0);
    }
    if let Ok(disk) = inputs::disk(&text) {
        assert!(disk.overhead.0 >= 0.0);
    }
    if let Ok(counters) = DiskCounters::parse(&text, "sda") {
        assert!(counters.since(&counters) == DiskCounters::default());
    }
}

const IOLOG: &str = "fio version 3 iolog\n0 /dev/sdb add\n1 /dev/sdb open\n250 /dev/sdb write 4096 8192\n300 /dev/sdb read 0 512\n\
                     301 /dev/sdb sync 0 0\n400 /dev/sdb trim 0 65536\n500 /dev/sdb close\n";

pub fn trace_seeds() -> Vec<Seed> {
    let events: Vec<u8> = (0..6).flat_map(|n| sample_event(n * 1000, n * 8, 4096, n % 2 == 0)).collect();
    let mut own = TraceWriter::new(Vec::new(), 7).expect("memory takes everything");
    for n in 0..3 {
        let record = TraceRecord { time_ns: n * 10, offset: n * 4096, length: 4096, ..TraceRecord::default() };
        own.push(&record).expect("memory takes everything");
    }
    vec![
        ("iolog_v3", IOLOG.into()),
        (
            "iolog_v2",
            "fio version 2 iolog\nf add\nf open\nf write 0 512\nf wait 1000 0\nf write 512 512\nf datasync 0 0\n"
                .into(),
        ),
        (
            "blkparse",
            "  8,0 3 1 0.000000000 697 Q FWFS 223490 + 8 [x]\n8,0 3 2 0.000002000 697 D WS 223490 + 8 [x]\n\
             8,0 0 3 1.6 697 Q FN [x]\nCPU0 (8,0):\n Reads Queued: 1\n"
                .into(),
        ),
        ("blktrace", events),
        ("msr", "128166372003061629,hm,1,Write,8192,4096,1331\n128166372003061630,hm,1,Read,8192,4096,1331\n".into()),
        ("snia", "Timestamp,Response,IOType,LUN,Offset,Size\n1455592930.119,0.000189,W,0,34127872,65536\n".into()),
        ("samples", "farshore-samples/1 sda\n1.0 10 81920 2\n2.0 0 0 0\n3.0 3 1536 0\n".into()),
        ("own", own.finish().expect("memory takes everything")),
        ("gzip_iolog", GZIP_IOLOG.to_vec()),
        ("zstd_iolog", ZSTD_IOLOG.to_vec()),
    ]
}

/// `fio version 3 iolog` and one write, packed once and kept: packers change their output from version to version.
const GZIP_IOLOG: &[u8] = include_bytes!("planner/iolog.gz");
const ZSTD_IOLOG: &[u8] = include_bytes!("planner/iolog.zst");

pub fn trace_columns_seeds() -> Vec<Seed> {
    vec![
        ("semicolons", "op,offset:sector,size:sector,time:ms,-\nW;8;16;12.5;x\nR;8;16;13;x\nF;0;0;14;x\n".into()),
        ("volumes", "time:us,volume,offset:B,size:KiB\n1,a,0,4\n2,b,4096,4\n".into()),
    ]
}

pub fn trace_scan_seeds() -> Vec<Seed> {
    let bytes = |n: u8| [n, 1, n % 40, n, n % 54, 8, 9, n.wrapping_mul(37)];
    vec![("spread", (0..60).flat_map(bytes).collect())]
}

pub fn quantities_seeds() -> Vec<Seed> {
    vec![("all", "8MiB\n100Mbit/s\n12.5MB/s\n2h 30m\n0.1%\n100Mb\n8KB\n-1\nbandwidth=2x,rtt=0.5x\nasync\n".into())]
}

pub fn measurements_seeds() -> Vec<Seed> {
    vec![
        ("link", r#"{"schema":"farshore-link-test/1","start":{"rtt_s":0.05},"end":{"received":{"bytes_per_s":1e7},"loss_share":0.001}}"#.into()),
        ("diskstats", b"   8       0 sda 100 0 800 10 200 5 1600 20 0 30 40 0 0 0 0 7 3\n".to_vec()),
        ("disk", r#"{"schema":"farshore-disk-test/1","end":{"bytes_per_s":2e8,"overhead_s":0.001}}"#.into()),
    ]
}
