//! Changing and watching a running WAN: one line of text in, one line out.
//!
//! `ab` is near to far, `ba` far to near; without either a command means both directions.

use super::forward::{PipeDirection, StopSignal};
use super::pipe::{LineSettings, PipeCounters};
use anyhow::{Context, Error, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use units::traffic_control;

/// The longest command line accepted, and how long a client may take to send it.
const LINE_BYTES_MAX: u64 = 1024;
const CLIENT_PATIENCE: Duration = Duration::from_secs(2);

/// Both directions of a WAN.
#[derive(Clone)]
pub struct Network {
    pub ab: Arc<PipeDirection>,
    pub ba: Arc<PipeDirection>,
}

#[derive(Clone, Copy, PartialEq)]
enum PipeChoice {
    Both,
    Ab,
    Ba,
}

#[derive(Serialize)]
struct WanReport<'a> {
    schema: u32,
    name: &'a str,
    ab: DirectionReport,
    ba: DirectionReport,
}

#[derive(Serialize)]
struct DirectionReport {
    line: LineSettings,
    queue_bytes_limit: u64,
    counters: PipeCounters,
    failure: Option<String>,
}

impl Network {
    /// Carries out one command and returns the answer: `ok` or a line of JSON. When it returns, the
    /// change is in force: after `cut` not one more packet gets through.
    ///
    /// # Errors
    /// A sentence about the command, which then changed nothing.
    pub fn execute(&self, name: &str, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (verb, rest) = words.split_first().context("an empty command; try `stats`")?;
        let (which, value) = match rest {
            ["ab", value @ ..] => (PipeChoice::Ab, value),
            ["ba", value @ ..] => (PipeChoice::Ba, value),
            value => (PipeChoice::Both, value),
        };
        match (*verb, value) {
            ("cut", []) => self.change(which, |line| line.is_cut = true),
            ("restore", []) => self.change(which, |line| line.is_cut = false),
            ("delay", [value]) => {
                let delay_ns = typed(traffic_control::duration_ns(value))?;
                self.change(which, |line| line.delay_ns = delay_ns);
            }
            ("rtt", [value]) if which == PipeChoice::Both => {
                let delay_ns = typed(traffic_control::duration_ns(value))? / 2;
                self.change(which, |line| line.delay_ns = delay_ns);
            }
            ("rate", [value]) => {
                let rate = typed(traffic_control::rate_bits_per_second(value))?;
                self.change(which, |line| line.rate_bits_per_second = rate);
            }
            ("queue", [value]) => {
                let bytes = optional_bytes(value, "auto")?;
                self.change(which, |line| line.queue_bytes = bytes);
            }
            ("loss", [value]) => {
                let share = typed(traffic_control::share(value))?;
                self.change(which, |line| line.loss = share);
            }
            ("corrupt", [value]) => {
                let share = typed(traffic_control::share(value))?;
                self.change(which, |line| line.corrupt = share);
            }
            ("reorder", [value]) => {
                let share = typed(traffic_control::share(value))?;
                self.change(which, |line| line.reorder = share);
            }
            ("drop-above", [value]) => {
                let bytes = optional_bytes(value, "none")?;
                self.change(which, |line| line.drop_above_bytes = bytes);
            }
            ("stats", []) if which == PipeChoice::Both => return self.report(name),
            _ => bail!(
                "`{line}` is no command; known are: cut, restore, delay TIME, rate RATE, queue BYTES|auto, \
                 loss PERCENT, corrupt PERCENT, reorder PERCENT, drop-above BYTES|none, each with ab or ba behind \
                 the verb for one direction; rtt TIME; stats"
            ),
        }
        Ok("ok".to_owned())
    }

    fn change(&self, which: PipeChoice, edit: impl Fn(&mut LineSettings)) {
        // Both locks in one order, so that the round trip is never computed from half a change.
        let mut ab = self.ab.pipe();
        let mut ba = self.ba.pipe();
        let (mut ab_line, mut ba_line) = (ab.line().clone(), ba.line().clone());
        if which != PipeChoice::Ba {
            edit(&mut ab_line);
        }
        if which != PipeChoice::Ab {
            edit(&mut ba_line);
        }
        let round_trip_ns = ab_line.delay_ns + ba_line.delay_ns;
        ab.set_line(ab_line, round_trip_ns);
        ba.set_line(ba_line, round_trip_ns);
    }

    fn report(&self, name: &str) -> Result<String> {
        let report =
            WanReport { schema: 1, name, ab: DirectionReport::of(&self.ab), ba: DirectionReport::of(&self.ba) };
        Ok(serde_json::to_string(&report)?)
    }
}

impl DirectionReport {
    fn of(direction: &PipeDirection) -> DirectionReport {
        let pipe = direction.pipe();
        DirectionReport {
            line: pipe.line().clone(),
            queue_bytes_limit: pipe.queue_bytes(),
            counters: pipe.counters().clone(),
            failure: direction.failure(),
        }
    }
}

fn optional_bytes(text: &str, nothing: &str) -> Result<Option<u64>> {
    if text == nothing { Ok(None) } else { typed(traffic_control::bytes(text)).map(Some) }
}

/// What was typed, or what is wrong with it.
fn typed<T>(read: Result<T, String>) -> Result<T> {
    read.map_err(Error::msg)
}

/// Answers commands on a Unix socket until told to stop.
pub fn serve(path: &Path, name: String, network: Network, stop: StopSignal) -> Result<JoinHandle<()>> {
    let listener =
        UnixListener::bind(path).with_context(|| format!("listening on the control socket {}", path.display()))?;
    let worker = move || {
        loop {
            let mut ready = [PollFd::new(&listener, PollFlags::IN), stop.poll_fd()];
            let _ = poll(&mut ready, None);
            if !ready[1].revents().is_empty() {
                return;
            }
            if !ready[0].revents().is_empty()
                && let Ok((stream, _)) = listener.accept()
            {
                // A client that goes away in the middle hurts only itself.
                let _ = answer(stream, &name, &network);
            }
        }
    };
    Ok(std::thread::Builder::new().name("wan-control".to_owned()).spawn(worker)?)
}

fn answer(mut stream: UnixStream, name: &str, network: &Network) -> Result<()> {
    stream.set_read_timeout(Some(CLIENT_PATIENCE))?;
    stream.set_write_timeout(Some(CLIENT_PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LINE_BYTES_MAX)).read_line(&mut line)?;
    let answer = match network.execute(name, line.trim()) {
        Ok(answer) => answer,
        Err(error) => format!("error: {error:#}"),
    };
    stream.write_all(format!("{answer}\n").as_bytes())?;
    Ok(())
}

/// Sends one command to a running WAN and returns its answer.
///
/// # Errors
/// When nobody listens, or the WAN refused the command.
pub fn ask(path: &Path, line: &str) -> Result<String> {
    let mut stream = UnixStream::connect(path)
        .with_context(|| format!("no WAN answers on {}; is it still running?", path.display()))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    match answer.trim_end().strip_prefix("error: ") {
        Some(sentence) => bail!("{sentence}"),
        None => Ok(answer.trim_end().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::pipe::PacketPipe;
    use super::*;

    fn network() -> Network {
        let line = LineSettings {
            delay_ns: 25_000_000,
            rate_bits_per_second: 100_000_000,
            queue_bytes: None,
            loss: 0.0,
            corrupt: 0.0,
            reorder: 0.0,
            drop_above_bytes: None,
            is_cut: false,
        };
        let direction = || Arc::new(PipeDirection::new(PacketPipe::new(line.clone(), 50_000_000, 1, 4096)));
        Network { ab: direction(), ba: direction() }
    }

    #[test]
    fn commands_change_one_or_both_directions() {
        let network = network();
        for line in ["cut ab", "delay ba 5ms", "loss 0.1%", "drop-above 1400", "queue 64KiB", "rate ab 10mbit"] {
            assert_eq!(network.execute("t", line).ok().as_deref(), Some("ok"), "{line}");
        }
        let (ab, ba) = (network.ab.pipe().line().clone(), network.ba.pipe().line().clone());
        assert!(ab.is_cut && !ba.is_cut);
        assert_eq!((ab.delay_ns, ba.delay_ns), (25_000_000, 5_000_000));
        assert_eq!((ab.loss, ba.drop_above_bytes), (0.001, Some(1400)));
        assert_eq!((ab.rate_bits_per_second, ba.queue_bytes), (10_000_000, Some(65_536)));
        network.execute("t", "queue auto").expect("a command");
        network.execute("t", "rate 80mbit").expect("a command");
        assert_eq!(network.ba.pipe().queue_bytes(), 300_000, "80 Mbit/s for 25 + 5 ms");
    }

    #[test]
    fn a_wrong_command_says_so_and_changes_nothing() {
        let network = network();
        let lines = ["", "slice", "cut cd", "cut ab ba", "delay", "delay 5", "rtt ab 5ms", "stats ab", "loss -1"];
        for line in lines {
            assert!(network.execute("t", line).is_err(), "{line}");
        }
        assert_eq!(network.ab.pipe().line(), network.ba.pipe().line());
    }

    #[test]
    fn the_report_is_json_with_both_directions() {
        let report = network().execute("t", "stats").expect("a report");
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        assert_eq!(report["ba"]["queue_bytes_limit"], 625_000);
        assert_eq!(report["ab"]["counters"]["lost"], 0);
    }
}
