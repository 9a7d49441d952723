//! Text as `blkparse` prints it: `8,0 1 12 0.123456789 697 Q WFS 223490 + 8 [postgres]`, sectors of 512 bytes.

use super::text::{Fields, bytes, time};
use super::{ParsedLine, RecordFault, TraceKind, TraceRecord, VolumeNames, byte_range};

pub const SECTOR_BYTES: u64 = 512;
const SECOND_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub struct Blkparse {
    /// `Q` (asked for) or `D` (given to the device): one event per request, or each would count several times.
    event: u8,
    volumes: VolumeNames,
    in_summary: bool,
}

/// What blkparse's letters say: preflush before `W`, forced unit access behind it.
pub fn read_letters(letters: &[u8]) -> Option<(TraceKind, bool, bool)> {
    let preflush = letters.first() == Some(&b'F');
    let rest = if preflush { &letters[1..] } else { letters };
    let (kind, tail) = match rest.first() {
        Some(b'W') => (TraceKind::Write, &rest[1..]),
        Some(b'D') => (TraceKind::Trim, &rest[1..]),
        Some(b'F' | b'N' | b'S') | None if preflush => (TraceKind::Flush, rest),
        _ => return None,
    };
    Some((kind, preflush, tail.contains(&b'F')))
}

impl Blkparse {
    pub fn new(event: u8) -> Self {
        Self { event, volumes: VolumeNames::default(), in_summary: false }
    }

    pub fn line(&mut self, line: &[u8], out: &mut Vec<TraceRecord>) -> Result<ParsedLine, RecordFault> {
        let mut fields = Fields::new(line);
        let Some(device) = fields.next() else {
            return Ok(ParsedLine::Passed);
        };
        if !is_device(device) {
            // The totals at the end: `CPU0 (8,0):`, `Reads Queued: ...`.
            self.in_summary |= device.starts_with(b"CPU") || device == b"Total";
            return if self.in_summary || is_note(device) {
                Ok(ParsedLine::Passed)
            } else {
                Err(RecordFault::NotThisFormat)
            };
        }
        let (_cpu, _number) = (fields.wanted()?, fields.wanted()?);
        let when = fields.wanted()?;
        let (_process, event) = (fields.wanted()?, fields.wanted()?);
        if event != [self.event] {
            return Ok(ParsedLine::Passed);
        }
        let letters = fields.wanted()?;
        let Some((kind, preflush, fua)) = read_letters(letters) else {
            return Ok(if letters.contains(&b'R') { ParsedLine::Read } else { ParsedLine::Passed });
        };
        let time_ns = time(when, SECOND_NS)?;
        let volume = self.volumes.number(device)?;
        if preflush {
            out.push(TraceRecord { time_ns, volume, kind: TraceKind::Flush, ..TraceRecord::default() });
        }
        if kind == TraceKind::Flush {
            return Ok(ParsedLine::Used);
        }
        let sector = bytes(fields.wanted()?, SECTOR_BYTES)?;
        let length = match fields.next() {
            Some(b"+") => bytes(fields.wanted()?, SECTOR_BYTES)?,
            // A flush that carries no data is written without a length.
            _ => 0,
        };
        let (offset, length) = byte_range(sector, length)?;
        if length > 0 {
            out.push(TraceRecord { time_ns, offset, length, volume, kind, fua, ..TraceRecord::default() });
        }
        Ok(ParsedLine::Used)
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
        let lines: Vec<ParsedLine> = text.lines().map(|line| parser.line(line.as_bytes(), &mut out).unwrap()).collect();
        assert_eq!(lines.iter().filter(|&&line| line == ParsedLine::Read).count(), 1);
        assert_eq!(
            out[0],
            TraceRecord { time_ns: 1829, offset: 223_490 * 512, length: 4096, ..TraceRecord::default() }
        );
        assert_eq!((out[1].kind, out[1].volume), (TraceKind::Flush, 1));
        assert_eq!((out[2].kind, out[2].fua, out[2].length), (TraceKind::Write, true, 8192));
        assert_eq!((out[3].kind, out[4].kind, out.len()), (TraceKind::Flush, TraceKind::Trim, 5));
        assert_eq!(Blkparse::new(b'Q').line(b"fio version 3 iolog", &mut out), Err(RecordFault::NotThisFormat));
        assert_eq!(Blkparse::new(b'Q').line(b"8,0 1 1 -0.5 7 Q W 8 + 8", &mut out), Err(RecordFault::NegativeTime));
    }
}
