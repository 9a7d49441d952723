//! The target of systemd that is up while this node is primary of a group: `farshore-primary@GROUP.target`. What must run
//! beside the primary hangs on it.

use std::process::Command;

use settings::GroupName;

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
    /// A sentence.
    pub fn stop(&self) -> Result<(), String> {
        self.run(&["stop"])
    }

    fn run(&self, words: &[&str]) -> Result<(), String> {
        let said = Command::new("systemctl").args(words).arg(&self.unit).output();
        let said = said.map_err(|error| format!("systemctl cannot be started: {error}"))?;
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
