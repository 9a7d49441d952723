//! The commands, one file each: typed arguments in, an exit code out.

mod accept_device;
mod answers;
mod assume_equal;
mod attach;
mod calc;
mod cert;
mod clients;
mod config;
mod config_apply;
mod connect;
mod demote;
mod disk;
mod doctor;
mod drain;
mod drain_left;
mod events;
mod failback;
mod feed;
mod first_run;
mod follow;
mod group;
mod init;
mod inputs;
mod inspect;
mod join;
mod line;
mod link;
mod logging;
mod mark;
mod plan;
mod progress;
mod promote;
mod queue;
mod reach;
mod record;
mod reset;
mod resolve;
mod role_target;
mod rpo;
mod scan;
mod serve;
mod set;
mod stats;
mod status;
mod switchover;
mod sync;
mod up;
mod verify;
mod wait;
mod waits;

#[cfg(test)]
pub(crate) use cert::{CERTIFICATES_SCHEMA, CertReport};

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::checks::DiskCommand;
use crate::args::group::GroupCommand;
use crate::args::{Args, CertCommand, CliCommand, ConfigCommand, LinkCommand};
use crate::outcome::{CommandOutcome, Exit};

/// Reads the command line, runs one command, reports its failure.
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            match below_zero(&error) {
                Some(text) => {
                    let text = format!("farshore: {text:?} is below zero, and nothing here can be");
                    let _ = writeln!(std::io::stderr(), "{text}");
                }
                None => drop(error.print()),
            }
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() };
        }
    };
    match run(args.command) {
        Ok(code) => code,
        Err(failure) => {
            crate::log::last_word(&failure.message);
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

fn run(command: CliCommand) -> CommandOutcome {
    match command {
        CliCommand::Serve(args) => serve::run(&args),
        CliCommand::Attach(args) => attach::attach(&args),
        CliCommand::Detach(args) => attach::detach(&args),
        CliCommand::Attached(args) => attach::list(&args),
        CliCommand::Status(args) => status::run(&args),
        CliCommand::Clients(args) => clients::run(&args),
        CliCommand::Events(args) => events::run(&args),
        CliCommand::Rpo(args) => rpo::run(&args),
        CliCommand::Queue(args) => queue::run(&args),
        CliCommand::Drain(args) => drain::run(&args),
        CliCommand::Stats(args) => stats::run(&args),
        CliCommand::Follow(args) => follow::run(&args),
        CliCommand::Connect(args) => connect::run(&args),
        CliCommand::Logging(args) => logging::run(&args),
        CliCommand::Sync(args) => sync::run(&args),
        CliCommand::Verify(args) => verify::run(&args),
        CliCommand::AssumeEqual(args) => assume_equal::run(&args),
        CliCommand::Wait(args) => wait::run(&args),
        CliCommand::Set(args) => set::run(&args),
        CliCommand::Demote(args) => demote::run(&args),
        CliCommand::Promote(args) => promote::run(&args),
        CliCommand::Reset(args) => reset::run(&args),
        CliCommand::Switchover(args) => switchover::run(&args),
        CliCommand::Failback(args) => failback::run(&args),
        CliCommand::Resolve(args) => resolve::run(&args),
        CliCommand::AcceptDevice(args) => accept_device::run(&args),
        CliCommand::Group(GroupCommand::Detach(args)) => group::detach(&args),
        CliCommand::Group(GroupCommand::Attach(args)) => group::attach(&args),
        CliCommand::Mark(args) => mark::run(&args),
        CliCommand::Link(LinkCommand::Show(args)) => link::show(&args),
        CliCommand::Link(LinkCommand::Set(args)) => link::set(&args),
        CliCommand::Link(LinkCommand::History(args)) => link::history(&args),
        CliCommand::Link(LinkCommand::Serve(args)) => line::serve(&args),
        CliCommand::Link(LinkCommand::Test(args)) => line::test(&args),
        CliCommand::Link(LinkCommand::Sweep(args)) => line::sweep(&args),
        CliCommand::Link(LinkCommand::Probe(args)) => line::probe(&args),
        CliCommand::Link(LinkCommand::Soak(args)) => line::soak(&args),
        CliCommand::Config(ConfigCommand::Check(args)) => config::check(&args),
        CliCommand::Config(ConfigCommand::Plan(args)) => config_apply::plan(&args),
        CliCommand::Config(ConfigCommand::Apply(args)) => config_apply::apply(&args),
        CliCommand::Config(ConfigCommand::Example) => config::example(),
        CliCommand::Init(args) => init::run(&args),
        CliCommand::Up(args) => up::run(&args),
        CliCommand::Join(args) => join::run(&args),
        CliCommand::Cert(CertCommand::Init(args)) => cert::init(&args),
        CliCommand::Cert(CertCommand::Node(args)) => cert::node(&args),
        CliCommand::Cert(CertCommand::Client(args)) => cert::client(&args),
        CliCommand::Cert(CertCommand::Show(args)) => cert::show(&args),
        CliCommand::Cert(CertCommand::Rotate(args)) => cert::rotate(&args),
        CliCommand::Cert(CertCommand::Revoke(args)) => cert::revoke(&args),
        CliCommand::Inspect(args) => inspect::run(&args),
        CliCommand::Calc(args) => calc::run(&args),
        CliCommand::Record(args) => record::run(&args),
        CliCommand::Scan(args) => scan::run(&args),
        CliCommand::Plan(args) => plan::run(&args),
        CliCommand::Doctor(args) => doctor::run(&args),
        CliCommand::Disk(DiskCommand::Test(args)) => disk::test(&args),
    }
}
