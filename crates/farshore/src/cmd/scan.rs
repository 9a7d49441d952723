//! `scan`: what a write trace says about the work that made it.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use plan::scan::{SCAN_SCHEMA, ScanReport, TraceScan};
use plan::show::workload_text;
use plan::trace::own::TraceWriter;
use serde_json::json;

use super::feed::feed;
use crate::args::planner::ScanArgs;
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print, warn};

/// # Errors
/// When a file cannot be read or is no usable trace, or the scan file cannot be written.
pub fn run(args: &ScanArgs) -> CommandOutcome {
    let mut out = args.out.as_deref().map(create).transpose()?;
    let mut scan = TraceScan::new(args.interval);
    let fed = feed(&args.trace, "scan", |records| {
        scan.add(records);
        if let Some((writer, file)) = &mut out {
            records.iter().try_for_each(|record| writer.push(record)).map_err(|error| write_failed(file, &error))?;
        }
        Ok(())
    })?;
    fed.taught(&scan)?;
    let work = scan.finish();
    if let Some((writer, file)) = out {
        let written =
            writer.finish().and_then(|buffer| buffer.into_inner().map_err(std::io::IntoInnerError::into_error));
        written.and_then(|file| file.sync_all()).map_err(|error| write_failed(file, &error))?;
    }
    fed.warnings.iter().for_each(warn);
    let mut exit = if fed.warnings.is_empty() { Exit::Done } else { Exit::Warning };
    if work.duration_s == 0.0 {
        warn("all records have the same time: rates mean nothing, and no plan can be made of this trace");
        exit = Exit::Warning;
    }
    if args.json {
        let (formats, warnings) = (&fed.formats, &fed.warnings);
        let report = ScanReport { schema: SCAN_SCHEMA, formats, reads: fed.reads, warnings, workload: &work };
        print(&format!("{}\n", json!(report)))?;
    } else {
        print(&format!("{} ({} reads passed over)\n{}", fed.formats.join(", "), fed.reads, workload_text(&work)))?;
    }
    Ok(exit.into())
}

/// A scan file is made new: a trace takes a day to record, and nothing here overwrites one.
fn create(file: &Path) -> Result<(TraceWriter<BufWriter<File>>, &Path), CommandFailure> {
    let opened = File::create_new(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            format!("{} is there already and is not overwritten; name another file", file.display())
        }
        _ => format!("{} cannot be made: {error}", file.display()),
    })?;
    let writer =
        TraceWriter::new(BufWriter::with_capacity(1 << 20, opened), 0).map_err(|error| write_failed(file, &error))?;
    Ok((writer, file))
}

fn write_failed(file: &Path, error: &std::io::Error) -> CommandFailure {
    format!("{} cannot be written: {error}", file.display()).into()
}
