//! `record`: a live disk's counters, sampled into a file; or what clients ask of a running group, exactly.

use std::fs::{self, File};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plan::trace::own::{self, TraceWriter};
use plan::trace::samples::{DiskCounters, HEADING};

use super::reach::{self, unexpected};
use crate::api::client::ControlClient;
use crate::api::{ApiRequest, Reply};
use crate::args::planner::RecordArgs;
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print, warn};

const DISKSTATS: &str = "/proc/diskstats";

/// How often the daemon is asked for what it noted.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// # Errors
/// When the disk is not counted by the kernel, no daemon answers, or the file cannot be written.
pub fn run(args: &RecordArgs) -> CommandOutcome {
    match (&args.device, &args.group) {
        (Some(device), _) => sample(args, device),
        (None, Some(group)) => record(args, group),
        (None, None) => unreachable!("clap asks for one of them"),
    }
}

fn create(file: &Path) -> Result<File, CommandFailure> {
    File::create_new(file).map_err(|error| {
        CommandFailure::from(match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                format!("{} is there already and is not overwritten; name another file", file.display())
            }
            _ => format!("{} cannot be made: {error}", file.display()),
        })
    })
}

fn record(args: &RecordArgs, group: &str) -> CommandOutcome {
    let mut client = ControlClient::connect(&reach::socket(&args.reach)?)?;
    let request = ApiRequest::Record { group: group.to_owned() };
    let ask = |client: &mut ControlClient| match client.ask(&request)? {
        Reply::Recorded(recorded) => Ok(*recorded),
        Reply::Error { message, .. } => Err(CommandFailure::from(message)),
        other => Err(unexpected(&other)),
    };
    // Opens the tap; what somebody else's recording left behind is not ours.
    ask(&mut client)?;
    let file = args.out.display();
    let failed = |error: std::io::Error| CommandFailure::from(format!("{file} cannot be written: {error}"));
    let mut out = TraceWriter::new(create(&args.out)?, unix_ns()).map_err(failed)?;
    let (start, length) = (Instant::now(), Duration::from_secs_f64(args.length.0));
    let bar = bar(&format!("recording {group}"), length);
    let (mut requests, mut lost, mut gaps) = (0, 0, 0u64);
    while start.elapsed() < length {
        std::thread::sleep(ASK_EVERY.min(length.saturating_sub(start.elapsed())));
        let recorded = ask(&mut client)?;
        let records =
            own::read_all(&recorded.trace).map_err(|why| format!("what the daemon recorded is no trace: {why}"))?;
        for record in &records {
            out.push(record).map_err(failed)?;
        }
        // An end at any moment leaves whole blocks.
        out.end_block().map_err(failed)?;
        requests += records.len();
        lost += recorded.lost;
        gaps += u64::from(recorded.began);
        bar.set_position(start.elapsed().as_secs().min(length.as_secs()));
    }
    bar.finish_and_clear();
    out.finish().and_then(|file| file.sync_all()).map_err(failed)?;
    print(&format!("{requests} requests of {group} in {file}\n"))?;
    if lost + gaps > 0 {
        warn(format!("{lost} requests were too many to be kept, and {gaps} times the recording was interrupted"));
        return Ok(Exit::Warning.into());
    }
    Ok(Exit::Done.into())
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(0)
}

fn sample(args: &RecordArgs, device: &Path) -> CommandOutcome {
    let disk = kernel_name(device)?;
    let mut before = counters(&disk)?;
    let file = args.out.display();
    let mut out = create(&args.out)?;
    let failed = |error: std::io::Error| CommandFailure::from(format!("{file} cannot be written: {error}"));
    writeln!(out, "{HEADING} {disk}").map_err(failed)?;
    let (start, length) = (Instant::now(), Duration::from_secs_f64(args.length.0));
    let bar = bar(&format!("sampling {disk}"), length);
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
fn kernel_name(device: &Path) -> Result<String, CommandFailure> {
    let real =
        fs::canonicalize(device).map_err(|error| format!("{} cannot be looked at: {error}", device.display()))?;
    let name = real.file_name().map(|name| name.to_string_lossy().into_owned());
    name.ok_or_else(|| format!("{} is no disk", device.display()).into())
}

fn counters(disk: &str) -> Result<DiskCounters, CommandFailure> {
    let text = fs::read_to_string(DISKSTATS).map_err(|error| format!("{DISKSTATS} cannot be read: {error}"))?;
    Ok(DiskCounters::parse(&text, disk)?)
}

/// Fills in seconds of `length`; hidden where nobody looks.
pub(super) fn bar(what: &str, length: Duration) -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(length.as_secs()), target);
    if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {percent} %, {eta} left") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(what.to_owned());
    bar
}
