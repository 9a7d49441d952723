//! `record`: a live disk's counters, sampled into a file.

use std::fs::{self, File};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plan::trace::samples::{DiskCounters, HEADING};

use super::{Exit, Failure, Outcome, print};
use crate::args::planner::RecordArgs;

const DISKSTATS: &str = "/proc/diskstats";

/// # Errors
/// When the disk is not counted by the kernel, or the file cannot be written.
pub fn run(args: &RecordArgs) -> Outcome {
    let disk = kernel_name(&args.device)?;
    let mut before = counters(&disk)?;
    let file = args.out.display();
    let mut out = File::create_new(&args.out).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            format!("{file} is there already and is not overwritten; name another file")
        }
        _ => format!("{file} cannot be made: {error}"),
    })?;
    let failed = |error: std::io::Error| Failure::from(format!("{file} cannot be written: {error}"));
    writeln!(out, "{HEADING} {disk}").map_err(failed)?;
    let (start, length) = (Instant::now(), Duration::from_secs_f64(args.length.0));
    let bar = bar(&disk, length);
    let mut next = Duration::from_secs_f64(args.interval.0).min(length);
    let mut samples = 0u64;
    loop {
        std::thread::sleep(next.saturating_sub(start.elapsed()));
        let (now, at) = (counters(&disk)?, start.elapsed());
        // One write for each line: an end at any moment leaves whole lines.
        out.write_all(now.since(&before).sample_line(at.as_secs_f64()).as_bytes()).map_err(failed)?;
        (before, samples) = (now, samples + 1);
        bar.set_position(at.as_secs().min(length.as_secs()));
        if next >= length {
            break;
        }
        // A sample that came late does not bring others near behind it.
        while next <= at {
            next += Duration::from_secs_f64(args.interval.0);
        }
        next = next.min(length);
    }
    bar.finish_and_clear();
    out.sync_all().map_err(failed)?;
    print(&format!("{samples} samples of {disk} in {file}\n"))?;
    Ok(Exit::Done.into())
}

/// The name the kernel counts under: links such as those of /dev/mapper are followed.
fn kernel_name(device: &Path) -> Result<String, Failure> {
    let real =
        fs::canonicalize(device).map_err(|error| format!("{} cannot be looked at: {error}", device.display()))?;
    let name = real.file_name().map(|name| name.to_string_lossy().into_owned());
    name.ok_or_else(|| format!("{} is no disk", device.display()).into())
}

fn counters(disk: &str) -> Result<DiskCounters, Failure> {
    let text = fs::read_to_string(DISKSTATS).map_err(|error| format!("{DISKSTATS} cannot be read: {error}"))?;
    Ok(DiskCounters::parse(&text, disk)?)
}

fn bar(disk: &str, length: Duration) -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(length.as_secs()), target);
    if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {percent} %, {eta} left") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(format!("sampling {disk}"));
    bar
}
