//! fio's I/O log: version 2 (`file action offset length`, times only in `wait` lines) and version 3 with a time in front of
//! each line, in microseconds since the start.

use super::text::{Fields, bytes, time};
use super::{Fault, Kind, Line, Record, Volumes, place};

const MICROSECOND_NS: u64 = 1000;

#[derive(Debug)]
pub struct Iolog {
    version: u8,
    volumes: Volumes,
    /// Version 2: the sum of the waits so far.
    clock_ns: u64,
}

impl Iolog {
    /// For version 2 or 3.
    pub fn new(version: u8) -> Self {
        Self { version, volumes: Volumes::default(), clock_ns: 0 }
    }

    /// The file that a volume is.
    pub fn file(&self, volume: u16) -> Option<&[u8]> {
        self.volumes.name(volume)
    }

    pub fn line(&mut self, line: &[u8], out: &mut Vec<Record>) -> Result<Line, Fault> {
        let mut fields = Fields::new(line);
        let Some(mut first) = fields.next() else {
            return Ok(Line::Passed);
        };
        if first == b"fio" {
            return Ok(Line::Passed);
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
            b"write" => Kind::Write,
            b"sync" | b"datasync" => Kind::Flush,
            b"trim" => Kind::Trim,
            b"read" => return Ok(Line::Read),
            b"add" | b"open" | b"close" => return Ok(Line::Passed),
            b"wait" => {
                let wait_ns = time(fields.wanted()?, MICROSECOND_NS)?;
                self.clock_ns = self.clock_ns.checked_add(wait_ns).ok_or(Fault::TimeTooLarge)?;
                return Ok(Line::Passed);
            }
            _ => return Err(Fault::UnknownOperation),
        };
        let (offset, length) = match kind {
            Kind::Flush => (0, 0),
            _ => place(bytes(fields.wanted()?, 1)?, bytes(fields.wanted()?, 1)?)?,
        };
        let volume = self.volumes.number(first)?;
        out.push(Record { time_ns, offset, length, volume, kind, ..Record::default() });
        Ok(Line::Used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(version: u8, text: &str) -> Vec<Record> {
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
        assert_eq!(found[0], Record { time_ns: 250_000, offset: 4096, length: 8192, ..Record::default() });
        assert_eq!((found[1].kind, found[1].volume, found[1].time_ns), (Kind::Flush, 1, 301_000));
        assert_eq!((found[2].kind, found[2].length, found.len()), (Kind::Trim, 65_536, 3));
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
            ("-1 f write 0 512", Fault::NegativeTime),
            ("1 f write -512 512", Fault::NegativeOffset),
            ("1 f write 9223372036854775808 512", Fault::OffsetTooLarge),
            ("1 f write 9223372036854775807 512", Fault::OffsetTooLarge),
            ("1 f write 0 99999999999", Fault::LengthTooLarge),
            ("1 f write 0", Fault::TooFewFields),
            ("1 f", Fault::TooFewFields),
            ("1 f wrote 0 1", Fault::UnknownOperation),
            ("x f write 0 1", Fault::NotANumber),
        ] {
            assert_eq!(parser.line(line.as_bytes(), &mut Vec::new()), Err(fault), "{line}");
        }
    }
}
