//! Counts sampled from a disk (`record --device`): no single writes, only how many and how much per interval.
//!
//! A heading `farshore-samples/1 DEVICE`, then a line per interval: `end_s writes bytes flushes`. To be replayed, each
//! interval's writes are scattered in it as independent arrivals would be, by a generator with a fixed seed: the same file
//! always gives the same writes. Their offsets are unknown; they are laid out one behind the other, so that no folding is
//! promised that nobody has seen.

use super::text::{Fields, bytes, time, whole};
use super::{ParsedLine, RecordFault, TraceKind, TraceRecord};

pub const HEADING: &str = "farshore-samples/1";
const SECOND_NS: u64 = 1_000_000_000;
/// More writes in one interval than any disk makes in an hour are a misread column.
const WRITES_MAX: u64 = 1 << 24;

#[derive(Debug)]
pub struct Samples {
    last_ns: u64,
    next_offset: u64,
    seed: u64,
}

impl Default for Samples {
    fn default() -> Self {
        Self { last_ns: 0, next_offset: 0, seed: 0x9e37_79b9_7f4a_7c15 }
    }
}

impl Samples {
    pub fn line(&mut self, line: &[u8], out: &mut Vec<TraceRecord>) -> Result<ParsedLine, RecordFault> {
        let mut fields = Fields::new(line);
        let Some(first) = fields.next() else {
            return Ok(ParsedLine::Passed);
        };
        if first == HEADING.as_bytes() || first.starts_with(b"#") {
            return Ok(ParsedLine::Passed);
        }
        let end_ns = time(first, SECOND_NS)?;
        let (writes, total, flushes) =
            (whole(fields.wanted()?)?, bytes(fields.wanted()?, 1)?, whole(fields.wanted()?)?);
        if end_ns <= self.last_ns {
            return Err(RecordFault::OutOfOrder);
        }
        if writes > WRITES_MAX || flushes > WRITES_MAX || total / writes.max(1) > super::LENGTH_BYTES_MAX {
            return Err(RecordFault::LengthTooLarge);
        }
        let first_index = out.len();
        self.scatter(end_ns, writes, total, flushes, out)?;
        out[first_index..].sort_by_key(|record| record.time_ns);
        self.last_ns = end_ns;
        Ok(ParsedLine::Used)
    }

    fn scatter(
        &mut self,
        end_ns: u64,
        writes: u64,
        total: u64,
        flushes: u64,
        out: &mut Vec<TraceRecord>,
    ) -> Result<(), RecordFault> {
        let mut left = total;
        for index in 0..writes {
            let share = (left / (writes - index)).next_multiple_of(512).min(left);
            left -= share;
            let time_ns = self.moment(end_ns);
            let (offset, length) = super::byte_range(self.next_offset, share)?;
            self.next_offset += share;
            if length > 0 {
                out.push(TraceRecord { time_ns, offset, length, synthetic: true, ..TraceRecord::default() });
            }
        }
        for _ in 0..flushes {
            let time_ns = self.moment(end_ns);
            out.push(TraceRecord { time_ns, kind: TraceKind::Flush, synthetic: true, ..TraceRecord::default() });
        }
        Ok(())
    }

    /// Anywhere in the interval, each moment as likely as any other.
    fn moment(&mut self, end_ns: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.last_ns + self.seed % (end_ns - self.last_ns)
    }
}

/// A disk's counters since the machine started, from `/proc/diskstats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    pub writes: u64,
    pub bytes: u64,
    /// Zero on kernels that do not count them (before 5.5).
    pub flushes: u64,
}

impl DiskCounters {
    /// The line of one disk; sectors are of 512 bytes whatever the disk's are.
    ///
    /// # Errors
    /// A sentence, when the disk has no line or the line is not as the kernel writes it.
    pub fn parse(diskstats: &str, disk: &str) -> Result<Self, String> {
        let line = diskstats.lines().find(|line| line.split_ascii_whitespace().nth(2) == Some(disk));
        let line = line.ok_or_else(|| {
            let known: Vec<&str> = diskstats.lines().filter_map(|line| line.split_ascii_whitespace().nth(2)).collect();
            format!("the kernel counts nothing for {disk:?}; it has {}", known.join(", "))
        })?;
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let field = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let bad = || format!("/proc/diskstats has a line this program cannot read: {line:?}");
        Ok(Self {
            writes: field(7).ok_or_else(bad)?,
            bytes: field(9).ok_or_else(bad)?.wrapping_mul(512),
            flushes: field(18).unwrap_or(0),
        })
    }

    /// What was added since; a counter that went back has begun again at zero.
    pub fn since(&self, before: &Self) -> Self {
        let added = |now: u64, before: u64| if now >= before { now - before } else { now };
        Self {
            writes: added(self.writes, before.writes),
            bytes: added(self.bytes, before.bytes),
            flushes: added(self.flushes, before.flushes),
        }
    }

    /// The line of a sample file for an interval that ended at this time since the start.
    pub fn sample_line(&self, end_s: f64) -> String {
        format!("{end_s:.6} {} {} {}\n", self.writes, self.bytes, self.flushes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_a_disk_become_sample_lines() {
        let text =
            "   8       0 sda 100 0 800 10 200 5 1600 20 0 30 40 0 0 0 0 7 3\n 253 0 dm-0 1 0 8 0 2 0 16 0 0 0 0\n";
        let before = DiskCounters::parse(text, "sda").unwrap();
        assert_eq!(before, DiskCounters { writes: 200, bytes: 1600 * 512, flushes: 7 });
        assert_eq!(DiskCounters::parse(text, "dm-0").unwrap().flushes, 0);
        let after = DiskCounters { writes: 210, bytes: before.bytes + 81_920, flushes: 1 };
        let line = after.since(&before).sample_line(1.0);
        assert_eq!(line, "1.000000 10 81920 1\n");
        let mut out = Vec::new();
        Samples::default().line(line.trim_end().as_bytes(), &mut out).unwrap();
        assert_eq!(out.len(), 11);
        assert!(DiskCounters::parse(text, "sdz").expect_err("no such disk").contains("sda, dm-0"));
        assert!(DiskCounters::parse("8 0 sda x\n", "sda").expect_err("cut").contains("cannot read"));
    }

    #[test]
    fn counts_become_the_same_writes_every_time() {
        let read = || {
            let (mut parser, mut out) = (Samples::default(), Vec::new());
            for line in ["farshore-samples/1 sda", "1.0 10 81920 2", "2.0 0 0 0", "3.0 3 1536 0"] {
                parser.line(line.as_bytes(), &mut out).unwrap();
            }
            out
        };
        let records = read();
        assert_eq!(records, read());
        assert!(records.is_sorted_by_key(|record| record.time_ns));
        let written: u64 = records.iter().map(|record| u64::from(record.length)).sum();
        assert_eq!((records.len(), written), (15, 81_920 + 1536));
        assert!(records[12..].iter().all(|record| (2 * SECOND_NS..3 * SECOND_NS).contains(&record.time_ns)));
        assert_eq!(Samples::default().line(b"0.0 1 1 1", &mut Vec::new()), Err(RecordFault::OutOfOrder));
        assert_eq!(Samples::default().line(b"1.0 99999999999 1 1", &mut Vec::new()), Err(RecordFault::LengthTooLarge));
    }
}
