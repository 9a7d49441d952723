//! `status`: one look, or one every half second.

use std::io::IsTerminal;
use std::path::Path;

use jiff::Timestamp;
use settings::limits::POLL_INTERVAL;
use toolkit::screen::Paint;

use super::reach;
use crate::api::client::{ControlClient, Unanswered};
use crate::api::{ApiRequest, ErrorCode, NodeView, Reply};
use crate::args::{StatusArgs, StatusForm};
use crate::attach::record;
use crate::metrics::{self, PageFacts, PageForm};
use crate::outcome::{CommandFailure, CommandOutcome, Exit, REDRAW, is_screen, print};
use crate::show;
use crate::show::check::Verdict;

pub fn run(args: &StatusArgs) -> CommandOutcome {
    if args.check {
        return check(args);
    }
    match (form(args), args.watch) {
        (StatusForm::Prometheus, true) => {
            Err(CommandFailure::usage("--watch shows a status for people or as JSON; a page of metrics is read once"))
        }
        (StatusForm::Shell, true) => Err(CommandFailure::usage("--watch and --format shell do not go together")),
        (StatusForm::Prometheus, false) => measure(args),
        (StatusForm::Shell, false) => tell_shell(args),
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

/// Whatever goes wrong is a line too: who runs a plugin shows that line, and nothing else.
fn check(args: &StatusArgs) -> CommandOutcome {
    let verdict = match look(args) {
        Ok(status) => Verdict::of(&status, Timestamp::now().as_second()),
        Err(failure) => Verdict::unknown(&failure.message),
    };
    print(&verdict.line())?;
    Ok(verdict.health.exit().into())
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

/// A script learns from the page, not from the wording of a sentence, why there is no answer.
fn tell_shell(args: &StatusArgs) -> CommandOutcome {
    let name = args.group.as_deref().ok_or_else(|| CommandFailure::usage("--format shell shows one group: name it"))?;
    let socket = reach::socket(&args.reach.here)?;
    let (word, failure) = match ask_for_shell(args, &socket, name) {
        Ok(Reply::Status(status)) => match status.groups.iter().find(|group| group.name == name) {
            Some(group) => {
                let records = args.reach.on.is_none().then(record::all).and_then(Result::ok);
                let beside = show::shell::beside(&status, group, records.as_deref());
                print(&(show::shell::group(&status.node, group) + &beside))?;
                return Ok(examine(&status).into());
            }
            None => ("no-group", format!("the daemon of {} shows no group {name:?}", status.node).into()),
        },
        Ok(Reply::Error { code: ErrorCode::UnknownGroup, message, .. }) => ("no-group", message.into()),
        Ok(Reply::Error { message, .. }) => ("error", message.into()),
        Ok(other) => ("error", reach::unexpected(&other)),
        Err(error @ (Unanswered::NotRunning { .. } | Unanswered::Closed { .. })) => ("no-daemon", error.into()),
        Err(error) => ("error", error.into()),
    };
    print(&show::shell::unanswered(word))?;
    Err(failure)
}

/// Of both nodes, unless one alone is wanted.
fn ask_for_shell(args: &StatusArgs, socket: &Path, name: &str) -> Result<Reply, Unanswered> {
    let group = Some(name.to_owned());
    if !args.local && args.reach.on.is_none() {
        match ControlClient::connect(socket)?.ask(&ApiRequest::StatusOfBoth { group: group.clone() })? {
            // A daemon that still runs from before it was upgraded.
            Reply::Error { code: ErrorCode::BadRequest, .. } => {}
            reply => return Ok(reply),
        }
    }
    ControlClient::connect(socket)?.ask(&reach::addressed(&args.reach, ApiRequest::Status { group }))
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
    // Whoever asks for one group has no question about the node's disks.
    let state_directory = status.state_directory.clone().filter(|_| args.group.is_none());
    show::status(&NodeView { state_directory, ..status.clone() }, &paint())
}

/// As standard output takes it.
pub fn paint() -> Paint {
    if colours_wanted(&std::io::stdout()) { Paint::colours() } else { Paint::plain() }
}

/// Colours on a terminal only, and never against NO_COLOR.
pub fn colours_wanted(stream: &impl IsTerminal) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    is_screen(stream) && !refused
}
