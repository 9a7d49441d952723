//! Trace files from disk or standard input into the planner, with a progress bar when it takes long.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plan::scan::TraceScan;
use plan::trace::TraceRecord;
use plan::trace::detect::FormatChoice;
use plan::trace::merge::Merge;
use plan::trace::reader::{TraceReader, unpack};

use crate::args::planner::TraceArgs;
use crate::outcome::CommandFailure;

/// A shorter reading needs no bar.
const BAR_AFTER: Duration = Duration::from_secs(1);

/// What was read beside the records.
pub struct Fed {
    pub formats: Vec<&'static str>,
    pub reads: u64,
    /// Sentences about what was left out, one per file; empty when nothing was.
    pub warnings: Vec<String>,
}

/// Reads all files once, in order of time.
///
/// # Errors
/// A sentence: a file cannot be opened, is no trace, or too much of it cannot be used.
pub fn feed(
    args: &TraceArgs,
    what: &str,
    mut sink: impl FnMut(&[TraceRecord]) -> Result<(), CommandFailure>,
) -> Result<Fed, CommandFailure> {
    let wish = FormatChoice { format: args.format.clone(), columns: args.columns.clone() };
    let done = Rc::new(Cell::new(0));
    let mut total = Some(0);
    let mut readers = Vec::new();
    for file in &args.files {
        let (input, bytes) = open(file)?;
        total = total.zip(bytes).map(|(sum, bytes)| sum + bytes);
        let name = if file.as_os_str() == "-" { "standard input".to_owned() } else { file.display().to_string() };
        let counted = Counted { input, done: Rc::clone(&done) };
        let input = unpack(counted).map_err(|error| format!("{name} cannot be read: {error}"))?;
        readers.push(TraceReader::open(&name, input, &wish)?);
    }
    let mut merge = Merge::new(readers);
    let mut batch = Vec::new();
    let mut bar = FeedProgress::new(what, total);
    while merge.next_batch(&mut batch)? {
        sink(&batch)?;
        bar.show(done.get());
    }
    bar.end();
    let mut fed = Fed { formats: Vec::new(), reads: 0, warnings: Vec::new() };
    for reader in merge.readers() {
        reader.troubles().verdict(reader.items(), args.skip_bad)?;
        fed.formats.push(reader.format().name());
        fed.reads += reader.reads();
        if !reader.troubles().is_empty() {
            fed.warnings.push(format!("{}: {}", reader.name(), reader.troubles()));
        }
    }
    if !merge.troubles().is_empty() {
        fed.warnings.push(merge.troubles().to_string());
    }
    Ok(fed)
}

impl Fed {
    /// # Errors
    /// A sentence, when there was no write to learn from: and what was left out.
    pub fn taught(&self, scan: &TraceScan) -> Result<(), CommandFailure> {
        let why = |why: String| [&[why][..], &self.warnings].concat().join("; ");
        Ok(scan.verdict(self.reads).map_err(why)?)
    }
}

/// A file or standard input, and its size if it has one.
fn open(file: &Path) -> Result<(Box<dyn Read>, Option<u64>), CommandFailure> {
    if file.as_os_str() == "-" {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let opened = File::open(file).map_err(|error| format!("{} cannot be opened: {error}", file.display()))?;
    let metadata = opened.metadata().map_err(|error| format!("{} cannot be looked at: {error}", file.display()))?;
    if metadata.is_dir() {
        return Err(format!("{} is a directory; name the trace files in it", file.display()).into());
    }
    Ok((Box::new(opened), metadata.is_file().then_some(metadata.len())))
}

/// Counts what is read from the file itself, packed or not.
struct Counted {
    input: Box<dyn Read>,
    done: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.read(buffer)?;
        self.done.set(self.done.get() + bytes as u64);
        Ok(bytes)
    }
}

/// Appears on a terminal only, and only after a while.
struct FeedProgress {
    what: String,
    total: Option<u64>,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl FeedProgress {
    fn new(what: &str, total: Option<u64>) -> Self {
        Self { what: what.to_owned(), total, started: Instant::now(), bar: None }
    }

    fn show(&mut self, done: u64) {
        if self.bar.is_none() && self.started.elapsed() > BAR_AFTER && io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(self.total, ProgressDrawTarget::stderr());
            let template = match self.total {
                Some(_) => "{prefix} [{bar:30}] {percent} % {binary_bytes_per_sec}, {eta} left",
                None => "{prefix} {binary_bytes} {binary_bytes_per_sec}",
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_prefix(self.what.clone());
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
