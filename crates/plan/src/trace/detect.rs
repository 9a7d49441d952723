//! What a file is, from its first bytes.

use super::csv::{Columns, looks_like_msr, looks_like_snia};
use super::text::Fields;
use super::{blkparse, blktrace, own, samples};

/// How much of a file is looked at.
pub const HEAD_BYTES: usize = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// Version 2 or 3.
    Iolog(u8),
    /// The event to count: `Q` or `D`.
    Blkparse(u8),
    /// Byte-swapped or not, and the event to count.
    Blktrace(bool, u8),
    /// Columns and separator.
    Csv(Columns, u8),
    Samples,
    Own,
}

impl Format {
    pub const NAMES: [&'static str; 7] = ["iolog", "blkparse", "blktrace", "msr", "snia", "samples", "farshore"];

    pub fn name(&self) -> &'static str {
        match self {
            Self::Iolog(2) => "fio iolog v2",
            Self::Iolog(_) => "fio iolog v3",
            Self::Blkparse(_) => "blkparse text",
            Self::Blktrace(..) => "blktrace binary",
            Self::Csv(columns, _) if *columns == Columns::msr() => "MSR CSV",
            Self::Csv(columns, _) if *columns == Columns::snia() => "SNIA CSV",
            Self::Csv(..) => "CSV",
            Self::Samples => "disk samples",
            Self::Own => "farshore trace",
        }
    }
}

/// What the user asked for instead of detection.
#[derive(Clone, Debug, Default)]
pub struct FormatChoice {
    /// One of [`Format::NAMES`].
    pub format: Option<String>,
    pub columns: Option<Columns>,
}

/// # Errors
/// A sentence: the file is empty, is not what was asked for, or is nothing known.
pub fn detect(head: &[u8], wish: &FormatChoice) -> Result<Format, String> {
    if head.is_empty() {
        return Err("is empty".to_owned());
    }
    if let Some(columns) = &wish.columns {
        return Ok(Format::Csv(columns.clone(), separator(head)));
    }
    let found = recognise(head);
    match &wish.format {
        None => found.ok_or_else(|| unknown(head)),
        Some(name) => wished(name, head, found),
    }
}

fn wished(name: &str, head: &[u8], found: Option<Format>) -> Result<Format, String> {
    let event = event_of(head);
    match (name, &found) {
        ("iolog", Some(Format::Iolog(_)))
        | ("blktrace", Some(Format::Blktrace(..)))
        | ("farshore", Some(Format::Own)) => Ok(found.expect("just matched")),
        ("blkparse", _) => Ok(Format::Blkparse(event)),
        ("msr", _) => Ok(Format::Csv(Columns::msr(), b',')),
        ("snia", _) => Ok(Format::Csv(Columns::snia(), b',')),
        ("samples", _) => Ok(Format::Samples),
        ("iolog" | "blktrace" | "farshore", _) => {
            Err(format!("is not of the format {name:?}: its first bytes are {}", shown(head)))
        }
        _ => Err(format!("cannot be read as {name:?}, which is no format; formats are {}", Format::NAMES.join(", "))),
    }
}

fn recognise(head: &[u8]) -> Option<Format> {
    if head.starts_with(own::MAGIC) {
        return Some(Format::Own);
    }
    if let Some(swapped) = blktrace::byte_order(head) {
        return Some(Format::Blktrace(swapped, binary_event(head, swapped)));
    }
    let lines = || head.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).take(1000);
    let first = lines().next()?;
    match first.trim_ascii_end() {
        b"fio version 2 iolog" => return Some(Format::Iolog(2)),
        b"fio version 3 iolog" => return Some(Format::Iolog(3)),
        line if line.starts_with(samples::HEADING.as_bytes()) => return Some(Format::Samples),
        line if looks_like_msr(line) => return Some(Format::Csv(Columns::msr(), b',')),
        line if looks_like_snia(line) => return Some(Format::Csv(Columns::snia(), b',')),
        _ => {}
    }
    let is_blkparse = |line: &[u8]| {
        let fields: Vec<&[u8]> = Fields::new(line).take(7).collect();
        fields.len() == 7 && blkparse::is_device(fields[0]) && fields[3].contains(&b'.') && fields[5].len() <= 2
    };
    if lines().take(5).any(is_blkparse) {
        return Some(Format::Blkparse(event_of(head)));
    }
    // A heading of names above MSR lines is common in copies.
    lines().nth(1).filter(|line| looks_like_msr(line.trim_ascii_end())).map(|_| Format::Csv(Columns::msr(), b','))
}

/// Requests as they were asked for, unless the trace holds only those given to the device.
fn event_of(head: &[u8]) -> u8 {
    let has = |event: &[u8]| head.split(|&byte| byte == b'\n').any(|line| Fields::new(line).nth(5) == Some(event));
    if !has(b"Q") && has(b"D") { b'D' } else { b'Q' }
}

fn binary_event(head: &[u8], swapped: bool) -> u8 {
    let finds = |event: u8| {
        let (mut parser, mut at, mut out) = (blktrace::Blktrace::new(swapped, event), 0, Vec::new());
        loop {
            match parser.event(&head[at..], &mut out) {
                Ok(blktrace::BlktraceEvent::Passed(bytes)) => at += bytes,
                Ok(blktrace::BlktraceEvent::Used(_) | blktrace::BlktraceEvent::Read(_)) => break true,
                Ok(blktrace::BlktraceEvent::Short) | Err(_) => break false,
            }
        }
    };
    if !finds(b'Q') && finds(b'D') { b'D' } else { b'Q' }
}

/// The separator that the first lines hold most of.
fn separator(head: &[u8]) -> u8 {
    let sample = &head[..head.len().min(4096)];
    let count = |separator: u8| sample.iter().filter(|&&byte| byte == separator).count();
    b",;\t ".iter().copied().max_by_key(|&separator| (count(separator), separator != b' ')).expect("four of them")
}

fn unknown(head: &[u8]) -> String {
    format!(
        "is no trace this program knows (it begins with {}); it reads fio iologs, blkparse text, blktrace binary, MSR and SNIA \
         CSV and its own files, plain or packed with gzip or zstd. For another table say what its columns hold, such as \
         --columns time:ms,op,offset:sector,size:B",
        shown(head)
    )
}

/// The first bytes, readable.
fn shown(head: &[u8]) -> String {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let start = &line[..line.len().min(40)];
    format!("\"{}\"", start.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(head: &[u8], name: &str) {
        assert_eq!(detect(head, &FormatChoice::default()).map(|format| format.name()), Ok(name));
    }

    #[test]
    fn formats_are_known_by_their_first_bytes() {
        check(b"fio version 2 iolog\nf add\n", "fio iolog v2");
        check(b"fio version 3 iolog\n1 f add\n", "fio iolog v3");
        check(b"  8,0    3        1     0.000000000   697  Q  WS 223490 + 8 [x]\n", "blkparse text");
        check(&blktrace::sample_event(1, 8, 512, true), "blktrace binary");
        check(b"128166372003061629,hm,1,Write,8192,4096,1331\n", "MSR CSV");
        check(b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n128166372003061629,hm,1,Read,8192,4096,1331\n", "MSR CSV");
        check(b"Timestamp,Response,IOType,LUN,Offset,Size\n", "SNIA CSV");
        check(b"farshore-samples/1 sda\n", "disk samples");
        check(&own::head(0), "farshore trace");
    }

    #[test]
    fn only_events_that_are_there_are_counted() {
        assert_eq!(
            detect(b"8,0 3 1 0.0 6 D WS 8 + 8 [x]\n8,0 3 1 0.1 6 C WS 8 + 8 [x]\n", &FormatChoice::default()),
            Ok(Format::Blkparse(b'D'))
        );
    }

    #[test]
    fn what_is_unknown_says_what_it_saw() {
        for (head, hint) in [(&b""[..], "is empty"), (b"\x7fELF\x02\x01", "\\x7fELF"), (b"a,b,c\n1,2,3\n", "--columns")]
        {
            let error = detect(head, &FormatChoice::default()).expect_err("unknown");
            assert!(error.contains(hint), "{error}");
        }
        let wish = FormatChoice { format: Some("iolog".into()), columns: None };
        assert!(detect(b"1,2,3\n", &wish).expect_err("not an iolog").contains("not of the format"));
        let wish = FormatChoice { format: Some("pcap".into()), columns: None };
        assert!(detect(b"1,2,3\n", &wish).expect_err("no format").contains("formats are iolog"));
        let wish = FormatChoice { format: None, columns: Some(Columns::parse("time:s,offset:B,size:B").unwrap()) };
        assert!(matches!(detect(b"1;2;3\n", &wish), Ok(Format::Csv(_, b';'))));
    }
}
