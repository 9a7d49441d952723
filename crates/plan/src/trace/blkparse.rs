//! Text as `blkparse` prints it: `8,0 1 12 0.123456789 697 Q WFS 223490 + 8 [postgres]`, sectors of 512 bytes.

use super::text::{Fields, bytes, time};
use super::{Fault, Kind, Line, Record, Volumes, place};

pub const SECTOR_BYTES: u64 = 512;
const SECOND_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub struct Blkparse {
    /// `Q` (asked for) or `D` (given to the device): one event per request, or each would count several times.
    event: u8,
    volumes: Volumes,
    in_summary: bool,
}

/// What blkparse's letters say: preflush before `W`, forced unit access behind it.
pub fn read_letters(letters: &[u8]) -> Option<(Kind, bool, bool)> {
    let preflush = letters.first() == Some(&b'F');
    let rest = if preflush { &letters[1..] } else { letters };
    let (kind, tail) = match rest.first() {
        Some(b'W') => (Kind::Write, &rest[1..]),
        Some(b'D') => (Kind::Trim, &rest[1..]),
        Some(b'F' | b'N' | b'S') | None if preflush => (Kind::Flush, rest),
        _ => return None,
    };
    Some((kind, preflush, tail.contains(&b'F')))
}

impl Blkparse {
    pub fn new(event: u8) -> Self {
        Self { event, volumes: Volumes::default(), in_summary: false }
    }

    pub fn line(&mut self, line: &[u8], out: &mut Vec<Record>) -> Result<Line, Fault> {
        let mut fields = Fields::new(line);
        let Some(device) = fields.next() else {
            return Ok(Line::Passed);
        };
        if !is_device(device) {
            // The totals at the end: `CPU0 (8,0):`, `Reads Queued: ...`.
            self.in_summary |= device.starts_with(b"CPU") || device == b"Total";
            return if self.in_summary || is_note(device) { Ok(Line::Passed) } else { Err(Fault::NotThisFormat) };
        }
        let (_cpu, _number) = (fields.wanted()?, fields.wanted()?);
        let when = fields.wanted()?;
        let (_process, event) = (fields.wanted()?, fields.wanted()?);
        if event != [self.event] {
            return Ok(Line::Passed);
        }
        let letters = fields.wanted()?;
        let Some((kind, preflush, fua)) = read_letters(letters) else {
            return Ok(if letters.contains(&b'R') { Line::Read } else { Line::Passed });
        };
        let time_ns = time(when, SECOND_NS)?;
        let volume = self.volumes.number(device)?;
        if preflush {
            out.push(Record { time_ns, volume, kind: Kind::Flush, ..Record::default() });
        }
        if kind == Kind::Flush {
            return Ok(Line::Used);
        }
        let sector = bytes(fields.wanted()?, SECTOR_BYTES)?;
        let length = match fields.next() {
            Some(b"+") => bytes(fields.wanted()?, SECTOR_BYTES)?,
            // A flush that carries no data is written without a length.
            _ => 0,
        };
        let (offset, length) = place(sector, length)?;
        if length > 0 {
            out.push(Record { time_ns, offset, length, volume, kind, fua, ..Record::default() });
        }
        Ok(Line::Used)
    }
}

/// `8,0`.
pub fn is_device(field: &[u8]) -> bool {
    let mut parts = field.split(|&byte| byte == b',');
    let is_number =
        |part: Option<&[u8]>| part.is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit));
    is_number(parts.next()) && is_number(parts.next()) && parts.next().is_none()
}

fn is_note(field: &[u8]) -> bool {
    field == b"Input" || field == b"Skips:" || field == b"Throughput" || field == b"Events"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_blkparse() {
        let text = "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n\
                    8,0    3        2     0.000001829   697  Q  WS 223490 + 8 [kjournald]\n\
                    8,0    3        3     0.000002000   697  D  WS 223490 + 8 [kjournald]\n\
                    8,16   0        4     1.500000000   697  Q FWFS 0 + 16 [x]\n\
                    8,0    0        5     1.600000000   697  Q  FN [x]\n\
                    8,0    0        6     1.700000000   697  Q   R 8 + 8 [x]\n\
                    8,0    0        7     1.800000000   697  Q  DS 8 + 64 [x]\n\
                    8,0    0        8     1.900000000   697  m   N cfq workload slice:100\n\
                    \nCPU0 (8,0):\n Reads Queued:           1,        4KiB  Writes Queued: 3\n";
        let (mut parser, mut out) = (Blkparse::new(b'Q'), Vec::new());
        let lines: Vec<Line> = text.lines().map(|line| parser.line(line.as_bytes(), &mut out).unwrap()).collect();
        assert_eq!(lines.iter().filter(|&&line| line == Line::Read).count(), 1);
        assert_eq!(out[0], Record { time_ns: 1829, offset: 223_490 * 512, length: 4096, ..Record::default() });
        assert_eq!((out[1].kind, out[1].volume), (Kind::Flush, 1));
        assert_eq!((out[2].kind, out[2].fua, out[2].length), (Kind::Write, true, 8192));
        assert_eq!((out[3].kind, out[4].kind, out.len()), (Kind::Flush, Kind::Trim, 5));
        assert_eq!(Blkparse::new(b'Q').line(b"fio version 3 iolog", &mut out), Err(Fault::NotThisFormat));
        assert_eq!(Blkparse::new(b'Q').line(b"8,0 1 1 -0.5 7 Q W 8 + 8", &mut out), Err(Fault::NegativeTime));
    }
}
