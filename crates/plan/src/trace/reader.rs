//! One file as batches of records in the order of time.

use std::io::{self, Read};

use super::blkparse::Blkparse;
use super::blktrace::{Blktrace, BlktraceEvent};
use super::csv::Csv;
use super::detect::{Format, FormatChoice, HEAD_BYTES, detect};
use super::iolog::Iolog;
use super::own;
use super::samples::Samples;
use super::{LINE_BYTES_MAX, ParsedLine, RecordFault, TraceRecord, Troubles};

/// Read at once; larger gains nothing.
const CHUNK_BYTES: usize = 1 << 20;
/// Records kept back so that a late one can still find its place.
const REORDER_RECORDS: usize = 4096;

enum Parser {
    Iolog(Iolog),
    Blkparse(Blkparse),
    Csv(Csv),
    Samples(Samples),
    Blktrace(Blktrace),
    Own { block: u32, ended: bool },
}

/// Reads one trace.
pub struct TraceReader<R> {
    name: String,
    input: R,
    format: Format,
    parser: Parser,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that are filled and not yet parsed.
    start: usize,
    end: usize,
    /// Before `start`, in the unpacked file.
    offset: u64,
    line: u64,
    at_end: bool,
    reads: u64,
    items: u64,
    troubles: Troubles,
    order: RecordOrder,
}

/// Undoes a gzip or zstd packing, told by the first bytes.
///
/// # Errors
/// When the input cannot be read or its packing cannot be set up.
pub fn unpack<'a>(mut input: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut head = [0; 4];
    let got = fill(&mut input, &mut head)?;
    let whole = io::Cursor::new(head[..got].to_vec()).chain(input);
    Ok(match &head[..got] {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::stream::read::Decoder::new(whole)?),
        _ => Box::new(whole),
    })
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(bytes) => got += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

impl<R: Read> TraceReader<R> {
    /// Detects the format of an input that is already unpacked; `name` is for messages.
    ///
    /// # Errors
    /// A sentence with the name: unreadable, empty, unknown.
    pub fn open(name: &str, mut input: R, wish: &FormatChoice) -> Result<Self, String> {
        let mut buffer = vec![0; CHUNK_BYTES];
        let (end, is_cut) = match fill(&mut input, &mut buffer[..HEAD_BYTES]) {
            Ok(end) => (end, false),
            // A packed file that breaks off at once still has a beginning.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => (0, true),
            Err(error) => return Err(format!("{name} cannot be read: {error}")),
        };
        if is_cut {
            return Err(format!("{name} is packed and breaks off at its beginning: copy it again"));
        }
        let format = detect(&buffer[..end], wish).map_err(|why| format!("{name} {why}"))?;
        let parser = match &format {
            Format::Iolog(version) => Parser::Iolog(Iolog::new(*version)),
            Format::Blkparse(event) => Parser::Blkparse(Blkparse::new(*event)),
            Format::Blktrace(swapped, event) => Parser::Blktrace(Blktrace::new(*swapped, *event)),
            Format::Csv(columns, separator) => Parser::Csv(Csv::new(columns.clone(), *separator)),
            Format::Samples => Parser::Samples(Samples::default()),
            Format::Own => Parser::Own { block: 0, ended: false },
        };
        let mut start = 0;
        if format == Format::Own {
            own::check_head(&buffer[..end]).map_err(|why| format!("{name} cannot be used: {why}"))?;
            start = own::HEAD_BYTES;
        }
        Ok(Self {
            name: name.to_owned(),
            input,
            format,
            parser,
            buffer,
            start,
            end,
            offset: 0,
            line: 0,
            at_end: false,
            reads: 0,
            items: 0,
            troubles: Troubles::default(),
            order: RecordOrder::default(),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }
    pub fn format(&self) -> &Format {
        &self.format
    }
    /// What an I/O log calls a volume: its file, which other logs may be of as well. Other formats' names are their own.
    pub fn file_of(&self, volume: u16) -> Option<&[u8]> {
        match &self.parser {
            Parser::Iolog(iolog) => iolog.file(volume),
            _ => None,
        }
    }
    /// Reads seen so far; they are not replayed.
    pub fn reads(&self) -> u64 {
        self.reads
    }
    /// Lines or records looked at so far.
    pub fn items(&self) -> u64 {
        self.items
    }
    pub fn troubles(&self) -> &Troubles {
        &self.troubles
    }

    /// The next records, in order of time, in place of what `out` held. `false`: there are no more.
    ///
    /// # Errors
    /// A sentence, when the input cannot be read further for a reason that lies outside of the file.
    pub fn next_batch(&mut self, out: &mut Vec<TraceRecord>) -> Result<bool, String> {
        out.clear();
        while out.is_empty() {
            if self.at_end {
                let at = || before_record(&self.name, self.items);
                self.order.finish(out, &mut self.troubles, at);
                return Ok(!out.is_empty());
            }
            let mut fresh = std::mem::take(&mut self.order.fresh);
            self.parse_chunk(&mut fresh);
            self.order.fresh = fresh;
            let at = || before_record(&self.name, self.items);
            self.order.sort_into(out, &mut self.troubles, at);
            self.refill()?;
        }
        Ok(true)
    }

    fn refill(&mut self) -> Result<(), String> {
        if self.at_end {
            return Ok(());
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        match fill(&mut self.input, &mut self.buffer[self.end..]) {
            Ok(0) => self.end_of_input(),
            Ok(bytes) => self.end += bytes,
            // The packing's own errors: what came before it stays good.
            Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof) => self.cut_off(RecordFault::Truncated),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other
                ) =>
            {
                self.cut_off(RecordFault::Damaged);
            }
            Err(error) => return Err(format!("{} cannot be read further: {error}", self.name)),
        }
        Ok(())
    }

    /// A last line needs no end; a last record does.
    fn end_of_input(&mut self) {
        self.at_end = true;
        let is_text = !matches!(self.parser, Parser::Blktrace(_) | Parser::Own { .. });
        if is_text && self.start < self.end {
            let (start, end) = (self.start, self.end);
            let mut fresh = std::mem::take(&mut self.order.fresh);
            self.parse_line(start, end, &mut fresh);
            self.order.fresh = fresh;
            self.start = end;
        }
        let is_whole = match self.parser {
            Parser::Own { ended, .. } => ended,
            _ => self.start == self.end,
        };
        if !is_whole {
            self.cut_off(RecordFault::Truncated);
        }
    }

    fn cut_off(&mut self, fault: RecordFault) {
        self.at_end = true;
        let at = format!("{}, byte {}", self.name, self.offset + self.start as u64);
        self.troubles.note(fault, || at);
    }

    fn parse_chunk(&mut self, out: &mut Vec<TraceRecord>) {
        let before = self.start;
        match self.parser {
            Parser::Blktrace(_) => self.parse_events(out),
            Parser::Own { .. } => self.parse_blocks(out),
            _ => self.parse_lines(out),
        }
        self.offset += (self.start - before) as u64;
    }

    fn parse_lines(&mut self, out: &mut Vec<TraceRecord>) {
        while let Some(length) = memchr::memchr(b'\n', &self.buffer[self.start..self.end]) {
            let (start, end) = (self.start, self.start + length);
            self.parse_line(start, end, out);
            self.start = end + 1;
        }
        if self.end - self.start > LINE_BYTES_MAX {
            let line = self.line + 1;
            self.troubles.note(RecordFault::LineTooLong, || format!("{}, line {line}", self.name));
            self.items += 1;
            self.start = self.end;
        }
    }

    fn parse_line(&mut self, start: usize, end: usize, out: &mut Vec<TraceRecord>) {
        self.line += 1;
        let mut line = &self.buffer[start..end];
        if let Some(short) = line.strip_suffix(b"\r") {
            line = short;
        }
        let known = out.len();
        let result = match &mut self.parser {
            Parser::Iolog(parser) => parser.line(line, out),
            Parser::Blkparse(parser) => parser.line(line, out),
            Parser::Csv(parser) => parser.line(line, out),
            Parser::Samples(parser) => parser.line(line, out),
            Parser::Blktrace(_) | Parser::Own { .. } => unreachable!("binary formats have no lines"),
        };
        match result {
            Ok(ParsedLine::Used) => self.items += 1,
            Ok(ParsedLine::Read) => (self.items, self.reads) = (self.items + 1, self.reads + 1),
            Ok(ParsedLine::Passed) => {}
            Err(fault) => {
                out.truncate(known);
                self.items += 1;
                let (name, line) = (&self.name, self.line);
                self.troubles.note(fault, || format!("{name}, line {line}"));
            }
        }
    }

    fn parse_events(&mut self, out: &mut Vec<TraceRecord>) {
        let Parser::Blktrace(parser) = &mut self.parser else {
            return;
        };
        loop {
            match parser.event(&self.buffer[self.start..self.end], out) {
                Ok(BlktraceEvent::Short) => return,
                Ok(BlktraceEvent::Used(bytes)) => (self.start, self.items) = (self.start + bytes, self.items + 1),
                Ok(BlktraceEvent::Read(bytes)) => {
                    (self.start, self.items, self.reads) = (self.start + bytes, self.items + 1, self.reads + 1);
                }
                Ok(BlktraceEvent::Passed(bytes)) => self.start += bytes,
                // Without its magic number nothing says where the next event begins.
                Err(RecordFault::Damaged) => return self.cut_off(RecordFault::Damaged),
                Err(fault) => {
                    let at = format!("{}, byte {}", self.name, self.offset + self.start as u64);
                    self.troubles.note(fault, || at);
                    (self.start, self.items) = (self.start + super::blktrace::EVENT_BYTES, self.items + 1);
                }
            }
        }
    }

    fn parse_blocks(&mut self, out: &mut Vec<TraceRecord>) {
        let Parser::Own { block, ended } = &mut self.parser else {
            return;
        };
        let known = out.len();
        let mut fault = None;
        while !*ended && fault.is_none() {
            match own::read_block(&self.buffer[self.start..self.end], *block, out) {
                Ok(own::Block::Short) => break,
                Ok(own::Block::Used(bytes)) => (self.start, *block) = (self.start + bytes, block.wrapping_add(1)),
                Ok(own::Block::End(bytes)) => (self.start, *ended) = (self.start + bytes, true),
                Err(why) => fault = Some(why),
            }
        }
        let is_followed = *ended && self.start < self.end;
        self.items += (out.len() - known) as u64;
        if let Some(fault) = fault.or(is_followed.then_some(RecordFault::NotThisFormat)) {
            self.cut_off(fault);
        }
    }
}

fn before_record(name: &str, items: u64) -> String {
    format!("{name}, before line or record {items}")
}

/// Repairs small disorder: records are kept back until later ones can no longer come before them.
#[derive(Default)]
struct RecordOrder {
    fresh: Vec<TraceRecord>,
    kept: Vec<TraceRecord>,
    emitted_ns: u64,
}

impl RecordOrder {
    /// Moves what is ripe from `fresh` and `kept` to `out`.
    fn sort_into(&mut self, out: &mut Vec<TraceRecord>, troubles: &mut Troubles, at: impl FnOnce() -> String) {
        self.keep(troubles, at);
        let ripe = self.kept.len().saturating_sub(REORDER_RECORDS);
        out.extend(self.kept.drain(..ripe));
        if let Some(last) = out.last() {
            self.emitted_ns = last.time_ns;
        }
    }

    /// Moves all that is left to `out`: a last line without its end is `fresh` until here, and may come too late as well.
    fn finish(&mut self, out: &mut Vec<TraceRecord>, troubles: &mut Troubles, at: impl FnOnce() -> String) {
        self.keep(troubles, at);
        out.append(&mut self.kept);
    }

    /// Moves `fresh` to its places in `kept`, without what lies before records that were handed on.
    fn keep(&mut self, troubles: &mut Troubles, at: impl FnOnce() -> String) {
        self.kept.append(&mut self.fresh);
        if !self.kept.is_sorted_by_key(|record| record.time_ns) {
            self.kept.sort_by_key(|record| record.time_ns);
        }
        let late = self.kept.partition_point(|record| record.time_ns < self.emitted_ns);
        if late > 0 {
            troubles.note_many(RecordFault::OutOfOrder, late as u64, at);
            self.kept.drain(..late);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> (Vec<TraceRecord>, Troubles, u64) {
        let mut reader = TraceReader::open("t", unpack(bytes).unwrap(), &FormatChoice::default()).unwrap();
        let (mut all, mut batch) = (Vec::new(), Vec::new());
        while reader.next_batch(&mut batch).unwrap() {
            all.extend_from_slice(&batch);
        }
        let (troubles, reads) = (reader.troubles().clone(), reader.reads());
        assert!(all.is_sorted_by_key(|record| record.time_ns));
        (all, troubles, reads)
    }

    fn iolog(lines: usize) -> String {
        let line = |n: usize| format!("{} f {} {} 4096\n", n * 10, if n % 4 == 3 { "read" } else { "write" }, n * 4096);
        "fio version 3 iolog\n".to_owned() + &(0..lines).map(line).collect::<String>()
    }

    #[test]
    fn packed_and_plain_read_alike() {
        let text = iolog(50_000);
        let (plain, troubles, reads) = read(text.as_bytes());
        assert_eq!((plain.len(), reads, troubles.is_empty()), (37_500, 12_500, true));
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut gz, text.as_bytes()).unwrap();
        assert_eq!(read(&gz.finish().unwrap()).0, plain);
        assert_eq!(read(&zstd::encode_all(text.as_bytes(), 1).unwrap()).0, plain);
        // Without the last line's end, and with the line ends of other systems.
        assert_eq!(read(text.trim_end().as_bytes()).0, plain);
        assert_eq!(read(text.replace('\n', "\r\n").as_bytes()).0, plain);
    }

    #[test]
    fn a_packed_file_that_breaks_off_says_so_and_keeps_its_beginning() {
        let packed = zstd::encode_all(iolog(200_000).as_bytes(), 1).unwrap();
        let (records, troubles, _) = read(&packed[..packed.len() / 2]);
        assert!(records.len() > 1000 && troubles.has(RecordFault::Truncated), "{troubles}");
    }

    #[test]
    fn own_files_read_back_and_say_when_they_are_cut() {
        let records: Vec<TraceRecord> = (0..100_000)
            .map(|n| TraceRecord { time_ns: n, offset: n * 512, length: 512, ..TraceRecord::default() })
            .collect();
        let mut writer = own::TraceWriter::new(Vec::new(), 0).unwrap();
        records.iter().for_each(|record| writer.push(record).unwrap());
        let file = writer.finish().unwrap();
        let (whole, troubles, _) = read(&file);
        assert!(whole == records && troubles.is_empty());
        let (part, troubles, _) = read(&file[..file.len() - 1000]);
        assert!(part.len() == 98_304 && troubles.has(RecordFault::Truncated), "{} {troubles}", part.len());
        let mut bad = file.clone();
        bad[200_000] ^= 1;
        let (part, troubles, _) = read(&bad);
        assert!(part.len() == 8192 && troubles.has(RecordFault::Damaged), "{} {troubles}", part.len());
        bad = file;
        bad.extend_from_slice(b"more");
        assert!(read(&bad).1.has(RecordFault::NotThisFormat));
    }

    #[test]
    fn small_disorder_is_repaired_and_large_is_left_out() {
        let mut lines: Vec<String> = (0..40_000).map(|n| format!("{} f write 0 512", n * 10)).collect();
        lines.swap(100, 900);
        let text = |lines: &[String]| format!("fio version 3 iolog\n{}\n", lines.join("\n"));
        let (records, troubles, _) = read(text(&lines).as_bytes());
        assert!(records.len() == 40_000 && troubles.is_empty(), "{troubles}");
        // Two runs in one file: the second begins at zero again.
        let twice = [lines.clone(), lines].concat();
        let (records, troubles, _) = read(text(&twice).as_bytes());
        assert!(
            troubles.has(RecordFault::OutOfOrder) && records.len() as u64 + troubles.count() == 80_000,
            "{troubles}"
        );
    }

    /// A log that broke off in its last line, whose time lost its last digits: the line is read all the same.
    #[test]
    fn a_last_line_without_its_end_may_come_too_late_as_well() {
        let text = |last: &str| iolog(10_000) + last;
        let (whole, ..) = read(text("").as_bytes());
        let (records, troubles, _) = read(text("5 f write 0 512").as_bytes());
        assert!(records == whole && troubles.has(RecordFault::OutOfOrder) && troubles.count() == 1, "{troubles}");
        assert!(troubles.to_string().contains("first at t, before line or record 10001"), "{troubles}");
        let (records, troubles, _) = read(text("99990 f write 0 512").as_bytes());
        assert!(records.len() == whole.len() + 1 && troubles.is_empty(), "{troubles}");
    }

    #[test]
    fn bad_lines_are_counted_with_the_first_line() {
        let text =
            "fio version 3 iolog\n1 f write 0 512\nrubbish\n-3 f write 0 512\n2 f write 0 512\nmore rubbish here\n";
        let (records, troubles, _) = read(text.as_bytes());
        assert_eq!(records.len(), 2);
        let problems = troubles.to_string();
        for part in ["line 3", "line 4", "negative"] {
            assert!(problems.contains(part), "{problems}");
        }
        let long = format!("fio version 3 iolog\n1 f write 0 512\n{}", "x".repeat(3 << 20));
        assert!(read(long.as_bytes()).1.has(RecordFault::LineTooLong));
    }

    #[test]
    fn blktrace_that_loses_its_thread_stops() {
        let mut file: Vec<u8> =
            (0..10).flat_map(|n| super::super::blktrace::sample_event(n * 1000, n * 8, 4096, n % 2 == 0)).collect();
        let (records, troubles, reads) = read(&file);
        assert_eq!((records.len(), reads, troubles.is_empty()), (5, 5, true));
        file[48 * 6] ^= 0xff;
        let (records, troubles, _) = read(&file);
        assert!(records.len() == 3 && troubles.to_string().contains("byte 288"), "{troubles}");
        assert!(read(&file[..48 * 3 + 7]).1.has(RecordFault::Truncated));
    }
}
