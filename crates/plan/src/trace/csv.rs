//! Tables of any make: the MSR-Cambridge and SNIA ones by name, any other by its columns.

use super::text::{bytes, time, whole};
use super::{ParsedLine, RecordFault, TraceKind, TraceRecord, VolumeNames, byte_range};

const SECOND_NS: u64 = 1_000_000_000;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// In units of so many nanoseconds.
    Time(u64),
    /// In units of so many bytes.
    Offset(u64),
    Size(u64),
    Operation,
    Volume,
    Other,
}

/// The columns of a table, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns(pub Vec<Column>);

impl Columns {
    /// Timestamp in ticks of 100 ns, host, disk, operation, offset, size, response.
    pub fn msr() -> Self {
        use Column::{Offset, Operation, Other, Size, Time, Volume};
        Self(vec![Time(100), Volume, Volume, Operation, Offset(1), Size(1), Other])
    }

    /// The header `Timestamp,Response,IOType,LUN,Offset,Size` of SNIA's newer traces: seconds and bytes.
    pub fn snia() -> Self {
        use Column::{Offset, Operation, Other, Size, Time, Volume};
        Self(vec![Time(SECOND_NS), Other, Operation, Volume, Offset(1), Size(1)])
    }

    /// `time:ms,-,op,offset:sector,size:B,volume`: one word per column, with a unit where there is one to tell.
    ///
    /// # Errors
    /// A sentence: an unknown word, a missing unit, a missing or doubled column.
    pub fn parse(text: &str) -> Result<Self, String> {
        let columns: Vec<Column> = text.split(',').map(|word| column(word.trim())).collect::<Result<_, _>>()?;
        let count = |is: fn(&Column) -> bool| columns.iter().filter(|column| is(column)).count();
        for (name, found) in [
            ("time", count(|c| matches!(c, Column::Time(_)))),
            ("offset", count(|c| matches!(c, Column::Offset(_)))),
            ("size", count(|c| matches!(c, Column::Size(_)))),
        ] {
            if found != 1 {
                return Err(format!("{text:?} names the column {name:?} {found} times; it must be there once"));
            }
        }
        if count(|c| matches!(c, Column::Operation)) > 1 {
            return Err(format!("{text:?} names the column \"op\" twice"));
        }
        Ok(Self(columns))
    }
}

fn column(word: &str) -> Result<Column, String> {
    let (name, unit) = word.split_once(':').unwrap_or((word, ""));
    let time_unit = || match unit {
        "s" => Ok(SECOND_NS),
        "ms" => Ok(1_000_000),
        "us" => Ok(1000),
        "100ns" => Ok(100),
        "ns" => Ok(1),
        _ => Err(format!("the column {word:?} needs a unit of time: time:s, time:ms, time:us, time:100ns or time:ns")),
    };
    let data_unit = || match unit {
        "B" => Ok(1),
        "sector" => Ok(512),
        "KiB" => Ok(1024),
        _ => {
            Err(format!("the column {word:?} needs a unit of data: {name}:B, {name}:sector (512 bytes) or {name}:KiB"))
        }
    };
    match name {
        "time" => Ok(Column::Time(time_unit()?)),
        "offset" => Ok(Column::Offset(data_unit()?)),
        "size" => Ok(Column::Size(data_unit()?)),
        "op" => Ok(Column::Operation),
        "volume" => Ok(Column::Volume),
        "-" | "" => Ok(Column::Other),
        _ => Err(format!(
            "the column {word:?} is unknown; columns are time, offset, size, op, volume and - for any other"
        )),
    }
}

#[derive(Debug)]
pub struct Csv {
    columns: Columns,
    separator: u8,
    volumes: VolumeNames,
    lines: u64,
    volume_name: Vec<u8>,
}

impl Csv {
    pub fn new(columns: Columns, separator: u8) -> Self {
        Self { columns, separator, volumes: VolumeNames::default(), lines: 0, volume_name: Vec::new() }
    }

    /// One line of names may stand above the numbers.
    fn is_heading(&self, line: &[u8]) -> bool {
        let at = self.columns.0.iter().position(|column| matches!(column, Column::Time(_))).unwrap_or(0);
        let time = line.split(|&byte| byte == self.separator).nth(at).unwrap_or_default().trim_ascii();
        time.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'"')
    }

    pub fn line(&mut self, line: &[u8], out: &mut Vec<TraceRecord>) -> Result<ParsedLine, RecordFault> {
        self.lines += 1;
        if line.iter().all(u8::is_ascii_whitespace) || line.first() == Some(&b'#') {
            return Ok(ParsedLine::Passed);
        }
        if self.lines == 1 && self.is_heading(line) {
            return Ok(ParsedLine::Passed);
        }
        let mut record = TraceRecord::default();
        let (mut offset, mut length, mut is_read) = (0, 0, false);
        self.volume_name.clear();
        let mut fields = line.split(|&byte| byte == self.separator);
        for column in &self.columns.0 {
            let field = fields.next().ok_or(RecordFault::TooFewFields)?.trim_ascii();
            match *column {
                Column::Time(unit_ns) => record.time_ns = time(field, unit_ns)?,
                Column::Offset(unit) => offset = bytes(field, unit)?,
                Column::Size(unit) => length = bytes(field, unit)?,
                Column::Operation => match operation(field)? {
                    Some(kind) => record.kind = kind,
                    None => is_read = true,
                },
                Column::Volume => {
                    self.volume_name.extend_from_slice(field);
                    self.volume_name.push(b'/');
                }
                Column::Other => {}
            }
        }
        if is_read {
            return Ok(ParsedLine::Read);
        }
        (record.offset, record.length) = byte_range(offset, length)?;
        record.volume = self.volumes.number(&self.volume_name)?;
        if record.kind == TraceKind::Flush || record.length > 0 {
            out.push(record);
        }
        Ok(ParsedLine::Used)
    }
}

/// `None` for a read.
fn operation(field: &[u8]) -> Result<Option<TraceKind>, RecordFault> {
    match field.first().map(u8::to_ascii_lowercase) {
        Some(b'w' | b'1') => Ok(Some(TraceKind::Write)),
        Some(b'r' | b'0') => Ok(None),
        Some(b'f' | b's') => Ok(Some(TraceKind::Flush)),
        Some(b'd' | b't') => Ok(Some(TraceKind::Trim)),
        _ => Err(RecordFault::UnknownOperation),
    }
}

/// Whether this is a line of the MSR kind.
pub fn looks_like_msr(line: &[u8]) -> bool {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b',').collect();
    fields.len() == 7
        && whole(fields[0]).is_ok()
        && (fields[3].eq_ignore_ascii_case(b"write") || fields[3].eq_ignore_ascii_case(b"read"))
        && whole(fields[4]).is_ok()
        && whole(fields[5]).is_ok()
}

/// Whether this is the heading of SNIA's newer traces.
pub fn looks_like_snia(line: &[u8]) -> bool {
    line.trim_ascii().eq_ignore_ascii_case(b"timestamp,response,iotype,lun,offset,size")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn msr_lines() {
        let line = b"128166372003061629,hm,1,Write,8192,4096,1331";
        assert!(looks_like_msr(line));
        let (mut parser, mut out) = (Csv::new(Columns::msr(), b','), Vec::new());
        assert_eq!(parser.line(line, &mut out), Ok(ParsedLine::Used));
        assert_eq!(parser.line(b"128166372003061630,hm,1,Read,8192,4096,1331", &mut out), Ok(ParsedLine::Read));
        assert_eq!(parser.line(b"128166372003061639,hm,0,Write,0,512,1331", &mut out), Ok(ParsedLine::Used));
        assert_eq!((out[0].offset, out[0].length, out[1].volume), (8192, 4096, 1));
        assert_eq!(out[1].time_ns - out[0].time_ns, 1000);
    }

    #[test]
    fn snia_lines_and_own_columns() {
        assert!(looks_like_snia(b"Timestamp,Response,IOType,LUN,Offset,Size"));
        let (mut parser, mut out) = (Csv::new(Columns::snia(), b','), Vec::new());
        assert_eq!(parser.line(b"Timestamp,Response,IOType,LUN,Offset,Size", &mut out), Ok(ParsedLine::Passed));
        assert_eq!(parser.line(b"1455592930.119,0.000189,W,0,34127872,65536", &mut out), Ok(ParsedLine::Used));
        let columns = Columns::parse("op, offset:sector, size:sector, time:ms, -").unwrap();
        let mut parser = Csv::new(columns, b';');
        assert_eq!(parser.line(b"W; 8; 16; 12.5; x", &mut out), Ok(ParsedLine::Used));
        assert_eq!((out[1].offset, out[1].length, out[1].time_ns), (4096, 8192, 12_500_000));
        assert_eq!(parser.line(b"W; 8; 16", &mut out), Err(RecordFault::TooFewFields));
        assert_eq!(parser.line(b"X; 8; 16; 1; y", &mut out), Err(RecordFault::UnknownOperation));
    }

    #[test]
    fn columns_without_units_are_asked_back() {
        for (text, hint) in [
            ("time,offset:B,size:B", "needs a unit of time"),
            ("time:s,offset,size:B", "offset:sector (512 bytes)"),
            ("time:s,offset:B", "\"size\" 0 times"),
            ("time:s,time:s,offset:B,size:B", "\"time\" 2 times"),
            ("time:s,offset:B,size:B,blah", "is unknown"),
            ("time:s,offset:B,size:B,op,op", "twice"),
        ] {
            let error = Columns::parse(text).expect_err(text);
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
