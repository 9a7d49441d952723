//! The commands, one file each: typed arguments in, an exit code out.

mod accept_device;
mod calc;
mod cert;
mod config;
mod demote;
mod disk;
mod doctor;
mod feed;
mod host;
mod init;
mod inspect;
mod line;
mod link;
mod logging;
mod mark;
mod plan;
mod promote;
mod reach;
mod record;
mod scan;
mod serve;
mod set;
mod status;
mod sync;
mod wait;

use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use ::units::quantities::{Bytes, show_bytes};
use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use serde_json::{Value, json};

use crate::api::Reply;
use crate::args::checks::DiskCommand;
use crate::args::{Args, CertCommand, Command, ConfigCommand, LinkCommand, MarkCommand};

/// How a command ends; the numbers are the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Done = 0,
    /// Done, and something needs an operator's eye.
    Warning = 1,
    Failed = 2,
    Usage = 3,
}

/// Why a command did not do its work: a sentence, and how it ends.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub message: String,
}

impl Failure {
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into() }
    }
}

/// Whatever tells its own story in a sentence is a failed command.
impl<E: Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { exit: Exit::Failed, message: format!("{error:#}") }
    }
}

pub type Outcome = Result<ExitCode, Failure>;

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Reads the command line, runs one command, reports its failure.
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            match below_zero(&error) {
                Some(text) => {
                    let told = format!("farshore: {text:?} is below zero, and nothing here can be");
                    let _ = writeln!(std::io::stderr(), "{told}");
                }
                None => drop(error.print()),
            }
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() };
        }
    };
    match run(args.command) {
        Ok(code) => code,
        Err(failure) => {
            crate::log::last_word(&format!("farshore: {}", failure.message));
            failure.exit.into()
        }
    }
}

/// The value that was taken for an option that there is not: it begins with a minus and a digit.
fn below_zero(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_number = unknown.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let mut all = std::env::args_os().map(|typed| typed.to_string_lossy().into_owned());
    let typed = all.find(|typed| typed.starts_with(unknown));
    typed.filter(|_| is_number && error.kind() == ErrorKind::UnknownArgument)
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Logging(args) => logging::run(&args),
        Command::Sync(args) => sync::run(&args),
        Command::Wait(args) => wait::run(&args),
        Command::Set(args) => set::run(&args),
        Command::Demote(args) => demote::run(&args),
        Command::Promote(args) => promote::run(&args),
        Command::AcceptDevice(args) => accept_device::run(&args),
        Command::Mark(MarkCommand::List(args)) => mark::list(&args),
        Command::Mark(MarkCommand::Drop(args)) => mark::drop(&args),
        Command::Link(LinkCommand::Show(args)) => link::show(&args),
        Command::Link(LinkCommand::Set(args)) => link::set(&args),
        Command::Link(LinkCommand::History(args)) => link::history(&args),
        Command::Link(LinkCommand::Serve(args)) => line::serve(&args),
        Command::Link(LinkCommand::Test(args)) => line::test(&args),
        Command::Link(LinkCommand::Sweep(args)) => line::sweep(&args),
        Command::Link(LinkCommand::Probe(args)) => line::probe(&args),
        Command::Link(LinkCommand::Soak(args)) => line::soak(&args),
        Command::Config(ConfigCommand::Check(args)) => config::check(&args),
        Command::Config(ConfigCommand::Example) => config::example(),
        Command::Init(args) => init::run(&args),
        Command::Cert(CertCommand::Init(args)) => cert::init(&args),
        Command::Cert(CertCommand::Node(args)) => cert::node(&args),
        Command::Cert(CertCommand::Client(args)) => cert::client(&args),
        Command::Cert(CertCommand::Show(args)) => cert::show(&args),
        Command::Cert(CertCommand::Rotate(args)) => cert::rotate(&args),
        Command::Cert(CertCommand::Revoke(args)) => cert::revoke(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Calc(args) => calc::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Disk(DiskCommand::Test(args)) => disk::test(&args),
    }
}

/// Before the first key is read: a core dump, or whoever may trace this user's processes, would have them all.
fn forbid_core_dumps() -> Result<(), Failure> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| format!("the kernel does not take that nobody may dump this process: {error}").into())
}

/// A file that a person or a command wrote, of at most so many bytes.
fn read_bounded(file: &Path, bytes_max: u64) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("it cannot be read: {error}");
    let mut text = String::new();
    let read = File::open(file).map_err(cannot)?.take(bytes_max + 1).read_to_string(&mut text).map_err(cannot)?;
    if read as u64 > bytes_max {
        let most = show_bytes(Bytes(bytes_max));
        return Err(format!("it is larger than {most}; is it the right file?"));
    }
    Ok(text)
}

/// Prints to standard output. `false`: the reader went away (`| head`), which is no failure, and the end of any loop.
fn print(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("the answer cannot be written to standard output: {error}").into()),
    }
}

/// A line of a stream: what happens, as it happens; whether somebody still reads it.
fn event(schema: &str, name: &str, data: &Value) -> Result<bool, Failure> {
    print(&format!("{}\n", json!({ "schema": schema, "event": name, "data": data })))
}

fn warn(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "farshore: warning: {text}");
}

/// Prints what a daemon answered to a command that changes something.
fn report(reply: Reply) -> Outcome {
    match reply {
        Reply::Ok { message, warnings } => {
            print(&format!("{message}\n"))?;
            // What it came to may itself be the warning.
            warnings.iter().filter(|warning| !message.contains(*warning)).for_each(warn);
            Ok(if warnings.is_empty() { Exit::Done } else { Exit::Warning }.into())
        }
        Reply::Error { message, .. } => Err(message.into()),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(reply: &Reply) -> Failure {
    let kind = match reply {
        Reply::Ok { .. } => "a bare success",
        Reply::Error { .. } => "an error",
        Reply::Status(_) => "a status",
        Reply::Counters(_) => "counters",
        Reply::Recorded(_) => "a recording",
        Reply::LinkHistory(_) => "a link's history",
    };
    format!("the daemon answered with {kind}, which does not fit the command; are both of one version?").into()
}
