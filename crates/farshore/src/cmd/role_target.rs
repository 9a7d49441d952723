//! The target of systemd that is up while this node is primary of a group: `farshore-primary@GROUP.target`. What must run
//! beside the primary hangs on it.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use settings::GroupName;
use toolkit::interrupt::Interrupt;

/// How often it is looked whether a stop has ended.
const STOP_LOOK: Duration = Duration::from_millis(50);

pub struct RoleTarget {
    unit: String,
}

impl RoleTarget {
    /// A name that was checked: systemctl would take others for patterns, of the targets of every group.
    pub fn of(group: &GroupName) -> RoleTarget {
        RoleTarget { unit: format!("farshore-primary@{group}.target") }
    }

    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// Up, or on its way up or down. `false` also where there is no systemd.
    pub fn is_up(&self) -> bool {
        let shown =
            Command::new("systemctl").args(["show", "--property", "ActiveState", "--value", &self.unit]).output();
        shown.is_ok_and(|shown| {
            let state = String::from_utf8_lossy(&shown.stdout);
            shown.status.success() && !matches!(state.trim(), "" | "inactive" | "failed")
        })
    }

    /// Asks for its start, and does not wait for it.
    ///
    /// # Errors
    /// A sentence.
    pub fn start(&self) -> Result<(), String> {
        self.run(&["start", "--no-block"])
    }

    /// Asks for its stop, and does not wait for it.
    ///
    /// # Errors
    /// A sentence.
    pub fn begin_stop(&self) -> Result<(), String> {
        self.run(&["stop", "--no-block"])
    }

    /// Stops the target and what hangs on it, and waits until all of that has stopped.
    ///
    /// # Errors
    /// A sentence: also when somebody asks to wait no more. What was begun goes on then.
    pub fn stop(&self, interrupt: &Interrupt) -> Result<(), String> {
        let mut command = self.command(&["stop"]);
        let streams = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut systemctl = streams.spawn().map_err(not_started)?;
        while matches!(systemctl.try_wait(), Ok(None)) {
            if interrupt.pause(STOP_LOOK).is_err() {
                let _ = systemctl.kill();
                break;
            }
        }
        let said = systemctl.wait_with_output().map_err(not_started)?;
        match said.status.code() {
            Some(_) => self.judge(&["stop"], &said),
            // Ended by us, or by the Ctrl-C that reaches both.
            None => Err(format!("interrupted while {} was being stopped", self.unit)),
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("systemctl");
        command.args(words).arg(&self.unit);
        command
    }

    fn run(&self, words: &[&str]) -> Result<(), String> {
        let said = self.command(words).output().map_err(not_started)?;
        self.judge(words, &said)
    }

    fn judge(&self, words: &[&str], said: &Output) -> Result<(), String> {
        if said.status.success() {
            return Ok(());
        }
        Err(format!(
            "'systemctl {} {}' failed: {}",
            words.join(" "),
            self.unit,
            String::from_utf8_lossy(&said.stderr).trim()
        ))
    }
}

fn not_started(error: std::io::Error) -> String {
    format!("systemctl cannot be started: {error}")
}
