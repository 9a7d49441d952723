//! `status`: one look, or one every half second.

use std::io::IsTerminal;

use settings::limits::POLL_INTERVAL;
use toolkit::screen::Paint;

use super::reach;
use crate::api::{ApiRequest, NodeView, Reply};
use crate::args::{StatusArgs, StatusForm};
use crate::metrics::{self, PageFacts, PageForm};
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print};
use crate::show;

/// Home, and erase what stands below: less flicker than erasing first.
const REDRAW: &str = "\x1b[H\x1b[J";

pub fn run(args: &StatusArgs) -> CommandOutcome {
    match (form(args), args.watch) {
        (StatusForm::Prometheus, true) => {
            Err(CommandFailure::usage("--watch shows a status for people or as JSON; a page of metrics is read once"))
        }
        (StatusForm::Prometheus, false) => measure(args),
        (_, true) => watch(args),
        (_, false) => {
            let status = look(args)?;
            print(&rendered(args, &status))?;
            Ok(examine(&status).into())
        }
    }
}

/// With what the peers say, unless that is not wanted.
fn look(args: &StatusArgs) -> Result<NodeView, CommandFailure> {
    match args.local {
        true => reach::status_any(&args.reach, args.group.as_deref()),
        false => reach::status_of_both(&args.reach, args.group.as_deref()),
    }
}

fn form(args: &StatusArgs) -> StatusForm {
    if args.json { StatusForm::Json } else { args.format }
}

/// Failed, paused, writers held up or a broken volume: something an operator should look at.
fn examine(status: &NodeView) -> Exit {
    if status.groups.iter().any(show::needs_attention) { Exit::Warning } else { Exit::Done }
}

/// A page that says that nobody answers is worth more than a file of yesterday, so there is one in any case.
fn measure(args: &StatusArgs) -> CommandOutcome {
    match facts(args) {
        Ok(facts) => {
            print(&metrics::page(facts, PageForm::Plain))?;
            Ok(Exit::Done.into())
        }
        Err(failure) => {
            print(&metrics::page(PageFacts::unreported("", "", ""), PageForm::Plain))?;
            Err(failure)
        }
    }
}

fn facts(args: &StatusArgs) -> Result<PageFacts, CommandFailure> {
    let status = reach::status_any(&args.reach, args.group.as_deref())?;
    match reach::ask_any(&args.reach, ApiRequest::Counters)? {
        Reply::Counters(counters) => Ok(PageFacts::reported(status, Some(*counters))),
        Reply::Error { message, .. } => Err(message.into()),
        other => Err(reach::unexpected(&other)),
    }
}

fn watch(args: &StatusArgs) -> CommandOutcome {
    let is_json = form(args) == StatusForm::Json;
    let redraw = !is_json && std::io::stdout().is_terminal();
    let mut first = true;
    loop {
        let text = match look(args) {
            Ok(status) => rendered(args, &status),
            // The first look tells of a wrong name or socket; later the daemon may just be restarting.
            Err(failure) if first || is_json => return Err(failure),
            Err(failure) => format!("{}\n", failure.message),
        };
        let frame = match (redraw, is_json || first) {
            (true, _) => format!("{REDRAW}{text}"),
            (false, true) => text,
            (false, false) => format!("\n{text}"),
        };
        if !print(&frame)? {
            return Ok(Exit::Done.into());
        }
        first = false;
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn rendered(args: &StatusArgs, status: &NodeView) -> String {
    if form(args) == StatusForm::Json {
        return serde_json::to_string(status).map(|line| line + "\n").unwrap_or_default();
    }
    show::status(status, &paint())
}

/// As standard output takes it.
pub fn paint() -> Paint {
    if colours_wanted(&std::io::stdout()) { Paint::colours() } else { Paint::plain() }
}

/// Colours on a terminal only, and never against NO_COLOR.
pub fn colours_wanted(stream: &impl IsTerminal) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    stream.is_terminal() && !refused && !dumb
}
