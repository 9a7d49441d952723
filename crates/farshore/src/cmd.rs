//! The commands, one file each: typed arguments in, an exit code out.

mod accept_device;
mod calc;
mod cert;
mod config;
mod demote;
mod disk;
mod doctor;
mod feed;
mod init;
mod inputs;
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

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::checks::DiskCommand;
use crate::args::{Args, CertCommand, Command, ConfigCommand, LinkCommand, MarkCommand};
use crate::outcome::{Exit, Outcome};

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
