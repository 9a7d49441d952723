//! fio's I/O log: version 2 (`file action offset length`, times only in `wait` lines) and version 3 with a time in front of
//! each line, in microseconds since the start.

use super::text::{Fields, bytes, time};
use super::{ParsedLine, RecordFault, TraceKind, TraceRecord, VolumeNames, byte_range};

const MICROSECOND_NS: u64 = 1000;

#[derive(Debug)]
pub struct Iolog {
    version: u8,
    volumes: VolumeNames,
    /// Version 2: the sum of the waits so far.
    clock_ns: u64,
}

impl Iolog {
    /// For version 2 or 3.
    pub fn new(version: u8) -> Self {
        Self { version, volumes: VolumeNames::default(), clock_ns: 0 }
    }

    /// The file that a volume is.
    pub fn file(&self, volume: u16) -> Option<&[u8]> {
        self.volumes.name(volume)
    }

    pub fn line(&mut self, line: &[u8], out: &mut Vec<TraceRecord>) -> Result<ParsedLine, RecordFault> {
        let mut fields = Fields::new(line);
        let Some(mut first) = fields.next() else {
            return Ok(ParsedLine::Passed);
        };
        if first == b"fio" {
            return Ok(ParsedLine::Passed);
        }
        let time_ns = if self.version >= 3 {
            let time_ns = time(first, MICROSECOND_NS)?;
            first = fields.wanted()?;
            time_ns
        } else {
            self.clock_ns
        };
        let action = fields.wanted()?;
        let kind = match action {
            b"write" => TraceKind::Write,
            b"sync" | b"datasync" => TraceKind::Flush,
            b"trim" => TraceKind::Trim,
            b"read" => return Ok(ParsedLine::Read),
            b"add" | b"open" | b"close" => return Ok(ParsedLine::Passed),
            b"wait" => {
                let wait_ns = time(fields.wanted()?, MICROSECOND_NS)?;
                self.clock_ns = self.clock_ns.checked_add(wait_ns).ok_or(RecordFault::TimeTooLarge)?;
                return Ok(ParsedLine::Passed);
            }
            _ => return Err(RecordFault::UnknownOperation),
        };
        let (offset, length) = match kind {
            TraceKind::Flush => (0, 0),
            _ => byte_range(bytes(fields.wanted()?, 1)?, bytes(fields.wanted()?, 1)?)?,
        };
        let volume = self.volumes.number(first)?;
        out.push(TraceRecord { time_ns, offset, length, volume, kind, ..TraceRecord::default() });
        Ok(ParsedLine::Used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(version: u8, text: &str) -> Vec<TraceRecord> {
        let (mut parser, mut out) = (Iolog::new(version), Vec::new());
        for line in text.lines() {
            parser.line(line.as_bytes(), &mut out).unwrap_or_else(|fault| panic!("{line}: {}", fault.sentence()));
        }
        out
    }

    #[test]
    fn version_3_has_a_time_in_front() {
        let text = "fio version 3 iolog\n0 /dev/sdb add\n1 /dev/sdb open\n250 /dev/sdb write 4096 8192\n300 /dev/sdb read 0 512\n\
                    301 /dev/sdc sync 0 0\n400 /dev/sdc trim 0 65536\n500 /dev/sdb close\n";
        let found = records(3, text);
        assert_eq!(found[0], TraceRecord { time_ns: 250_000, offset: 4096, length: 8192, ..TraceRecord::default() });
        assert_eq!((found[1].kind, found[1].volume, found[1].time_ns), (TraceKind::Flush, 1, 301_000));
        assert_eq!((found[2].kind, found[2].length, found.len()), (TraceKind::Trim, 65_536, 3));
    }

    #[test]
    fn version_2_adds_up_its_waits() {
        let text = "fio version 2 iolog\nf add\nf open\nf write 0 512\nf wait 1000 0\nf write 512 512\nf wait 500\nf datasync 0 0\n";
        let times: Vec<u64> = records(2, text).iter().map(|record| record.time_ns).collect();
        assert_eq!(times, [0, 1_000_000, 1_500_000]);
    }

    #[test]
    fn bad_lines_are_named() {
        let mut parser = Iolog::new(3);
        for (line, fault) in [
            ("-1 f write 0 512", RecordFault::NegativeTime),
            ("1 f write -512 512", RecordFault::NegativeOffset),
            ("1 f write 9223372036854775808 512", RecordFault::OffsetTooLarge),
            ("1 f write 9223372036854775807 512", RecordFault::OffsetTooLarge),
            ("1 f write 0 99999999999", RecordFault::LengthTooLarge),
            ("1 f write 0", RecordFault::TooFewFields),
            ("1 f", RecordFault::TooFewFields),
            ("1 f wrote 0 1", RecordFault::UnknownOperation),
            ("x f write 0 1", RecordFault::NotANumber),
        ] {
            assert_eq!(parser.line(line.as_bytes(), &mut Vec::new()), Err(fault), "{line}");
        }
    }
}
