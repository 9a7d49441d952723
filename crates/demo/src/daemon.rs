//! One daemon as a child process: started, asked over its control socket, stopped or killed, never left behind.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use toolkit::interrupt::Interrupt;

use crate::control::{self, DemoReply, DemoStatus, REFUSED, state};
use crate::terms::GROUP;

const START_PATIENCE: Duration = Duration::from_secs(10);
const STOP_PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(40);
/// Lines of a log that an error shows.
const LOG_LINES: usize = 4;

/// A running daemon. Dropped, it is killed.
pub struct DemoDaemon {
    name: &'static str,
    child: Child,
    log: PathBuf,
    control: PathBuf,
    interrupt: Interrupt,
}

impl DemoDaemon {
    /// Start `command` and wait until its control socket answers. What it says goes to `log`.
    ///
    /// # Errors
    /// It does not start, or ends at once; with the last lines of its log.
    pub fn start(
        name: &'static str,
        mut command: Command,
        log: &Path,
        control: &Path,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let output = File::create(log).with_context(|| format!("the log {} cannot be made", log.display()))?;
        // A group of its own: a terminal's Ctrl-C is for us, and we end the daemons in order.
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        let child = command.spawn().with_context(|| format!("daemon {name} cannot be started"))?;
        let (log, control) = (log.to_owned(), control.to_owned());
        let mut daemon = Self { name, child, log, control, interrupt: interrupt.clone() };
        let deadline = Instant::now() + START_PATIENCE;
        while UnixStream::connect(&daemon.control).is_err() {
            if let Some(status) = daemon.child.try_wait()? {
                bail!("daemon {name} ended at its start with {status}{}", daemon.last_words());
            }
            let late = START_PATIENCE.as_secs();
            ensure!(Instant::now() < deadline, "daemon {name} did not answer within {late} s{}", daemon.last_words());
            daemon.interrupt.pause(LOOK_EVERY)?;
        }
        Ok(daemon)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ask something that is answered by `ok`.
    ///
    /// # Errors
    /// No answer, or a refusal, as a sentence.
    pub fn ask(&self, request: &Value) -> Result<()> {
        match self.reply(request)? {
            DemoReply::Ok {} => Ok(()),
            DemoReply::Error { message, .. } => Err(anyhow!("daemon {} refused: {message}", self.name)),
            other => Err(anyhow!("daemon {} answered with something else: {other:?}", self.name)),
        }
    }

    fn reply(&self, request: &Value) -> Result<DemoReply> {
        control::ask(&self.control, request).map_err(|error| anyhow!("{error:#}{}", self.last_words()))
    }

    pub fn set(&self, key: &str, value: &str) -> Result<()> {
        self.ask(&json!({ "request": "set", "group": GROUP, "settings": { key: value } }))
    }

    /// The state of the one group.
    ///
    /// # Errors
    /// No answer.
    pub fn status(&self) -> Result<DemoStatus> {
        match self.reply(&json!({ "request": "status", "group": GROUP }))? {
            DemoReply::Status { mut groups } if !groups.is_empty() => Ok(groups.swap_remove(0)),
            other => Err(anyhow!("daemon {} was asked for its status and said: {other:?}", self.name)),
        }
    }

    /// Look until the peer is connected.
    ///
    /// # Errors
    /// It is not in time.
    pub fn wait_for_link(&self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while self.status()?.peers.iter().any(|peer| peer.link != "connected") {
            let late = patience.as_secs();
            ensure!(
                Instant::now() < deadline,
                "daemon {} found no peer within {late} s{}",
                self.name,
                self.last_words()
            );
            self.interrupt.pause(LOOK_EVERY)?;
        }
        Ok(())
    }

    /// Look until the group is in `state`; each look is shown to `seen`.
    ///
    /// # Errors
    /// It is not there in time, or the group failed.
    pub fn wait_for(&self, state: &str, patience: Duration, mut seen: impl FnMut(&DemoStatus)) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let status = self.status()?;
            seen(&status);
            if status.state == state {
                return Ok(());
            }
            let now = status.explained();
            ensure!(
                status.state != state::FAILED && Instant::now() < deadline,
                "the group did not become {state} on {} within {} s: it {now}{}",
                self.name,
                patience.as_secs(),
                self.last_words()
            );
            self.interrupt.pause(LOOK_EVERY)?;
        }
    }

    /// Ask for something again while it is refused for reasons that pass: a daemon that is still starting, a peer whose
    /// death is not known yet.
    ///
    /// # Errors
    /// It is still refused after `patience`.
    pub fn ask_until_done(&self, request: &Value, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            match self.reply(request)? {
                DemoReply::Ok {} => return Ok(()),
                DemoReply::Error { code, .. } if code == REFUSED && Instant::now() < deadline => {}
                DemoReply::Error { message, .. } => bail!("daemon {} still refuses: {message}", self.name),
                other => bail!("daemon {} answered with something else: {other:?}", self.name),
            }
            self.interrupt.pause(LOOK_EVERY)?;
        }
    }

    /// The power goes: SIGKILL, and gone when this returns.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Ask it to stop and wait until it has.
    ///
    /// # Errors
    /// It does not stop in time (then it is killed), or says that it failed.
    pub fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let deadline = Instant::now() + STOP_PATIENCE;
        let status: ExitStatus = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            let late = STOP_PATIENCE.as_secs();
            ensure!(
                Instant::now() < deadline,
                "daemon {} did not stop within {late} s{}",
                self.name,
                self.last_words()
            );
            self.interrupt.pause(LOOK_EVERY)?;
        };
        ensure!(status.success(), "daemon {} stopped with {status}{}", self.name, self.last_words());
        Ok(())
    }

    /// The end of the log and its place, to close a sentence.
    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n  ");
        let last = if last.is_empty() { String::new() } else { format!(":\n  {last}") };
        format!("; the log {} ends{}", self.log.display(), if last.is_empty() { " empty" } else { &last })
    }
}

impl Drop for DemoDaemon {
    fn drop(&mut self) {
        // Already waited for, these do nothing; there is nobody to tell of a failure.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
