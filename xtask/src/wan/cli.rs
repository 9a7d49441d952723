//! `cargo xtask wan`: run a program beside a WAN, keep one up, talk to one, measure one.

use super::{Wan, WanOptions, check, control, netns, sys};
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use units::traffic_control;

/// How long a command may take to end after it was asked to.
const END_PATIENCE_SECONDS: i64 = 10;

#[derive(Subcommand)]
pub enum WanCommand {
    /// Set up a WAN, run a command beside it, clean up, exit with the command's status
    Run {
        #[command(flatten)]
        link: WanLinkArgs,
        /// The command; it finds the WAN in FARSHORE_WAN_* variables
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Set up a WAN and keep it until Ctrl-C
    Up {
        #[command(flatten)]
        link: WanLinkArgs,
    },
    /// Change or watch a running WAN: cut [ab|ba], restore, delay 20ms, rate 10mbit, loss 0.1,
    /// corrupt 0.01, reorder 0.5, drop-above 1400, queue 64KiB, stats
    Ctl {
        /// Control socket; default: $FARSHORE_WAN_CONTROL, else the only WAN that runs
        #[arg(long)]
        socket: Option<PathBuf>,
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// Measure round trips and goodput against what was asked for (about three minutes)
    Check {
        /// One JSON object instead of a table
        #[arg(long)]
        json: bool,
    },
}

/// What the link is like. Sizes of packets are IP bytes.
#[derive(Args)]
pub struct WanLinkArgs {
    /// Round trip; half of it each way
    #[arg(long, default_value = "50ms", value_parser = traffic_control::duration_ns, conflicts_with = "delay")]
    rtt: u64,
    /// One-way delay, instead of --rtt
    #[arg(long, value_parser = traffic_control::duration_ns)]
    delay: Option<u64>,
    /// Rate of each direction
    #[arg(long, default_value = "100mbit", value_parser = traffic_control::rate_bits_per_second)]
    rate: u64,
    /// Buffer before the line in bytes [default: rate x round trip]
    #[arg(long, value_parser = traffic_control::bytes)]
    queue: Option<u64>,
    /// Segments lost at random, in percent
    #[arg(long, default_value = "0", value_parser = traffic_control::share)]
    loss: f64,
    /// Segments with one payload bit flipped unnoticed by TCP, in percent
    #[arg(long, default_value = "0", value_parser = traffic_control::share)]
    corrupt: f64,
    /// Segments that take an eighth of the round trip longer, so that others overtake them, in percent
    #[arg(long, default_value = "0", value_parser = traffic_control::share)]
    reorder: f64,
    /// Drop larger packets without a word (a path MTU black hole)
    #[arg(long, value_parser = traffic_control::bytes)]
    drop_above: Option<u64>,
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    /// TCP congestion control of both sides
    #[arg(long, default_value = "cubic")]
    cc: String,
    /// Seed of loss, corruption and reordering
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Namespaces become NAME-near and NAME-far [default: wan-PID]
    #[arg(long)]
    name: Option<String>,
}

impl WanLinkArgs {
    fn options(self) -> WanOptions {
        WanOptions {
            name: self.name,
            delay_ns: self.delay.unwrap_or(self.rtt / 2),
            rate_bits_per_second: self.rate,
            queue_bytes: self.queue,
            loss: self.loss,
            corrupt: self.corrupt,
            reorder: self.reorder,
            drop_above_bytes: self.drop_above,
            mtu: self.mtu,
            congestion: self.cc,
            seed: self.seed,
        }
    }
}

/// Carries out `cargo xtask wan ...`.
pub fn main(command: WanCommand) -> Result<ExitCode> {
    match command {
        WanCommand::Run { link, command } => {
            let (program, arguments) = command.split_first().expect("clap asks for one word");
            let mut command = Command::new(program);
            command.args(arguments);
            run_beside(link.options(), command)
        }
        WanCommand::Up { link } => keep_up(link.options()),
        WanCommand::Ctl { socket, words } => {
            let socket = socket.map_or_else(find_socket, Ok)?;
            println!("{}", control::ask(&socket, &words.join(" "))?);
            Ok(ExitCode::SUCCESS)
        }
        WanCommand::Check { json } => check::main(json),
    }
}

/// Sets up a WAN, runs a command in the namespace of the host with the WAN in its environment, and
/// cleans up. Returns the command's status; a signal becomes 128 plus its number.
pub fn run_beside(options: WanOptions, mut command: Command) -> Result<ExitCode> {
    let signals = sys::signals_as_bytes()?;
    let wan = Wan::start(options)?;
    command.envs(wan.environment());
    sys::end_with_parent(&mut command);
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.spawn().with_context(|| format!("starting `{program}` failed"))?;
    let status = wait_for(child, &signals)?;
    drop(wan);
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    Ok(ExitCode::from(code as u8))
}

fn keep_up(options: WanOptions) -> Result<ExitCode> {
    let mut signals = sys::signals_as_bytes()?;
    let wan = Wan::start(options)?;
    for (name, value) in wan.environment() {
        println!("{name}={value}");
    }
    println!("ready");
    wait_readable(&[&signals], None)?;
    signals.read_exact(&mut [0])?;
    Ok(ExitCode::SUCCESS)
}

/// Waits for the command. A terminal sends Ctrl-C to it as well, so that is left to it the first
/// time; other signals, and the second Ctrl-C, are passed on, and after some patience it is killed.
fn wait_for(mut child: Child, mut signals: &File) -> Result<ExitStatus> {
    let pid = Pid::from_child(&child);
    let ended = File::from(pidfd_open(pid, PidfdFlags::empty())?);
    let mut interrupts = 0;
    let mut patience = None;
    loop {
        let is_ready = wait_readable(&[&ended, signals], patience)?;
        if is_ready[0] {
            return Ok(child.wait()?);
        }
        if !is_ready[1] {
            child.kill()?;
            continue;
        }
        let mut byte = [0];
        signals.read_exact(&mut byte)?;
        interrupts += 1;
        if byte[0] != Signal::INT.as_raw() as u8 || interrupts > 1 {
            kill_process(pid, Signal::TERM)?;
        }
        patience = Some(END_PATIENCE_SECONDS);
    }
}

/// Waits until one of the files can be read, and says which; after the patience, none.
fn wait_readable(files: &[&File], patience_seconds: Option<i64>) -> Result<Vec<bool>> {
    let timeout = patience_seconds.map(|tv_sec| Timespec { tv_sec, tv_nsec: 0 });
    let mut ready: Vec<PollFd> = files.iter().map(|file| PollFd::new(*file, PollFlags::IN)).collect();
    loop {
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) => {
                return Ok(ready.iter().map(|file| !file.revents().is_empty()).collect());
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn find_socket() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("FARSHORE_WAN_CONTROL") {
        return Ok(path.into());
    }
    let entries = fs::read_dir(netns::CLAIMS).into_iter().flatten().flatten();
    let sockets: Vec<PathBuf> =
        entries.map(|entry| entry.path().join("control")).filter(|path| path.exists()).collect();
    match sockets.as_slice() {
        [only] => Ok(only.clone()),
        [] => bail!("no WAN is running; start one with `cargo xtask wan up`"),
        many => {
            let list: Vec<_> = many.iter().map(|path: &PathBuf| display(path)).collect();
            bail!("several WANs are running; name one with --socket: {}", list.join(", "))
        }
    }
}

fn display(path: &Path) -> String {
    path.display().to_string()
}
