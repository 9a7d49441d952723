//! `plan`: a trace replayed, in thought, over the link one has.

use std::path::Path;

use plan::advice::{Advice, advise};
use plan::formulas::CongestionModel;
use plan::model::{ModelSetup, PlannedDisk};
use plan::picture::{Chart, svg};
use plan::plan::{ModesPlan, Planner, Questions};
use plan::scan::TraceScan;
use plan::{inputs, plan_text, report};
use units::quantities::{Seconds, show_time};

use super::feed::feed;
use crate::args::planner::{CongestionName, DiskSource, LinkSource, PlanArgs};
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print, warn};

/// Load ratings are taken of intervals of this length.
const INTERVAL: Seconds = Seconds(60.0);

/// # Errors
/// When the trace cannot be used, or a measurement or an output file cannot be read or written.
pub fn run(args: &PlanArgs) -> CommandOutcome {
    if args.trace.files.iter().any(|file| file.as_os_str() == "-") {
        return Err(CommandFailure::usage(
            "a plan reads its trace more than once, which standard input cannot give; keep it first: farshore scan - --out FILE",
        ));
    }
    let setup = setup(args)?;
    let (plan, warnings) = replay(args, setup)?;
    let advice = advise(&plan);
    warnings.iter().for_each(warn);
    write_pictures(args, &plan, &advice)?;
    if args.json {
        print(&format!("{}\n", plan_text::json(&plan, &advice)))?;
    } else {
        print(&plan_text::text(&plan, &advice))?;
    }
    Ok(if warnings.is_empty() { Exit::Done } else { Exit::Warning }.into())
}

/// Two passes, or three when a bandwidth is asked for.
fn replay(args: &PlanArgs, setup: ModelSetup) -> Result<(ModesPlan, Vec<String>), CommandFailure> {
    let mut scan = TraceScan::new(INTERVAL);
    let fed = feed(&args.trace, "look", |records| {
        scan.add(records);
        Ok(())
    })?;
    fed.taught(&scan)?;
    let work = scan.finish();
    if work.duration_s == 0.0 {
        return Err("all records have the same time: without times there is no queue to plan. Record with times, such as fio's \
                    write_iolog of version 3 or blktrace"
            .into());
    }
    if let Some(at) = args.outage_at.filter(|at| at.0 >= work.duration_s) {
        return Err(CommandFailure::usage(format!(
            "--outage-at {} lies behind the trace, which ends after {}",
            show_time(at),
            show_time(Seconds(work.duration_s))
        )));
    }
    let questions = Questions {
        modes: args.mode.clone(),
        rpo: args.rpo,
        max_latency: args.max_latency,
        outage: args.outage,
        outage_at: args.outage_at,
        compression: args.compression,
        what_if: args.what_if,
    };
    let mut planner = Planner::new(setup, questions, work);
    feed(&args.trace, "replay", |records| {
        planner.add(records);
        Ok(())
    })?;
    let mut refined = planner.refinement();
    if let Some(bandwidths) = &mut refined {
        feed(&args.trace, "refine", |records| {
            bandwidths.add(records);
            Ok(())
        })?;
    }
    Ok((planner.finish(refined.as_ref()), fed.warnings))
}

fn setup(args: &PlanArgs) -> Result<ModelSetup, CommandFailure> {
    let mut link = match &args.link {
        LinkSource::Given(link) => *link,
        LinkSource::Measured(file) => measured(file, inputs::link)?,
    };
    link.congestion = match args.congestion {
        CongestionName::Auto => link.congestion,
        CongestionName::Reno => CongestionModel::Reno,
        CongestionName::Cubic => CongestionModel::Cubic,
        CongestionName::Bbr => CongestionModel::Bbr,
    };
    let local = args.disk.as_ref().map(disk).transpose()?.unwrap_or_default();
    let remote = args.remote_disk.as_ref().map(disk).transpose()?.unwrap_or(local);
    Ok(ModelSetup {
        local,
        remote,
        queue_bytes: args.queue.0,
        queue_items: args.queue_items,
        period: args.period,
        ..ModelSetup::new(link)
    })
}

fn disk(source: &DiskSource) -> Result<PlannedDisk, CommandFailure> {
    match source {
        DiskSource::Given(disk) => Ok(*disk),
        DiskSource::Measured(file) => measured(file, inputs::disk),
    }
}

fn measured<T>(file: &Path, read: fn(&str) -> Result<T, String>) -> Result<T, CommandFailure> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    read(&text).map_err(|why| format!("{} cannot be used: {why}", file.display()).into())
}

fn write_pictures(args: &PlanArgs, plan: &ModesPlan, advice: &Advice) -> Result<(), CommandFailure> {
    if let Some(folder) = &args.plots {
        draw(folder, &report::charts(plan))?;
    }
    if let Some(file) = &args.report {
        let names: Vec<String> = args.trace.files.iter().map(|file| file.display().to_string()).collect();
        write(file, report::html(plan, advice, &names.join(", ")).as_bytes())?;
    }
    Ok(())
}

/// Each picture as an SVG file of its name.
pub(super) fn draw(folder: &Path, charts: &[Chart]) -> Result<(), CommandFailure> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
    for chart in charts {
        write(&folder.join(format!("{}.svg", chart.id)), svg(chart).as_bytes())?;
    }
    Ok(())
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), CommandFailure> {
    std::fs::write(file, bytes).map_err(|error| {
        // Half a picture is of no use.
        let _ = std::fs::remove_file(file);
        format!("{} cannot be written: {error}", file.display()).into()
    })
}
