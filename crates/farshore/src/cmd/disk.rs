//! `disk test`: what the disk takes until a write is durable, as two numbers for the planner.

use std::time::Duration;

use toolkit::disk_test::report::{DiskReport, TestStart};
use toolkit::disk_test::scratch::{Refused, ScratchFile, ScratchOptions};
use toolkit::disk_test::{DiskTestPlan, FLUSH_BYTES_MAX, UNIT_BYTES, measure};
use toolkit::interrupt::Interrupt;
use units::exact::{show_size, size_text};
use units::quantities::Bytes;

use super::record::bar;
use crate::args::checks::DiskTestArgs;
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print, warn};

fn refused(refused: Refused) -> CommandFailure {
    let (exit, hint) = match refused {
        Refused::Usage(_) => (Exit::Usage, ""),
        Refused::Failed(_) => (Exit::Failed, ""),
        Refused::NoRoom(_) => (Exit::Failed, ", or write less with --file-size"),
    };
    CommandFailure { exit, message: format!("{refused}{hint}"), cause: None }
}

/// # Errors
/// When there is nothing to write to, or the disk fails or hangs.
pub fn test(args: &DiskTestArgs) -> CommandOutcome {
    let sizes = sizes(args)?;
    // From here on Ctrl-C is seen, so that the file goes.
    let interrupt = Interrupt::listen()?;
    let options =
        ScratchOptions { bytes: args.file_size.0, buffered: args.buffered, overwrite_device: args.overwrite_device };
    let patience = Duration::from_secs_f64(args.timeout.0);
    let scratch = ScratchFile::open(&args.path, options, patience).map_err(refused)?;
    let plan = DiskTestPlan {
        sizes,
        span_bytes: scratch.fitting(args.file_size.0),
        time: Duration::from_secs_f64(args.time.0),
        patience,
    };
    let largest = plan.sizes.last().copied().unwrap_or(0);
    if largest > plan.span_bytes {
        let path = args.path.display();
        return Err(CommandFailure::usage(format!(
            "{path} is smaller than the largest of --sizes; leave that one out"
        )));
    }
    let bar = bar(&format!("flushing to {}", args.path.display()), plan.time);
    let measured = measure(&scratch.file, &plan, &interrupt, |gone| bar.set_position(gone.as_secs()));
    bar.finish_and_clear();
    let is_in_memory = scratch.is_in_memory();
    let start = TestStart {
        path: args.path.display().to_string(),
        file_system: scratch.file_system.as_ref().map(|system| system.kind.clone()),
        source: scratch.file_system.as_ref().map(|system| system.source.clone()),
        span_bytes: plan.span_bytes,
        direct: scratch.file.direct(),
        engine: measured.as_ref().map_or("none", |measured| measured.engine),
        physical_block_bytes: scratch.file.physical_block(),
    };
    let measured = match (measured, scratch.remove(patience)) {
        (Ok(measured), Ok(())) => measured,
        (Err(why), Ok(())) | (Ok(_), Err(why)) => return Err(why.into()),
        (Err(why), Err(left)) => return Err(format!("{why}; {left}").into()),
    };
    let report = DiskReport::of(start, &measured, is_in_memory)?;
    print(&if args.json { format!("{}\n", serde_json::to_string(&report)?) } else { report.text() })?;
    report.warnings.iter().for_each(warn);
    Ok(if report.warnings.is_empty() { Exit::Done } else { Exit::Warning }.into())
}

/// The sizes to flush, ascending.
fn sizes(args: &DiskTestArgs) -> Result<Vec<u64>, CommandFailure> {
    let mut sizes: Vec<u64> = args.sizes.iter().map(|Bytes(bytes)| *bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < 2 {
        return Err(CommandFailure::usage(
            "two sizes at least are needed for overhead and rate, such as --sizes 4KiB,4MiB",
        ));
    }
    if let Some(odd) = sizes.iter().find(|bytes| **bytes == 0 || !bytes.is_multiple_of(UNIT_BYTES)) {
        return Err(CommandFailure::usage(format!(
            "{odd} bytes are no multiple of 4KiB, as every one of --sizes must be"
        )));
    }
    if let Some(large) = sizes.iter().find(|bytes| **bytes > FLUSH_BYTES_MAX) {
        return Err(CommandFailure::usage(format!(
            "{} are more than one of --sizes can be; the most is {}",
            show_size(*large),
            size_text(FLUSH_BYTES_MAX)
        )));
    }
    if sizes.last().is_some_and(|largest| *largest > args.file_size.0) {
        return Err(CommandFailure::usage("the largest of --sizes does not fit --file-size"));
    }
    Ok(sizes)
}
