//! `doctor`: what on this machine, its network and its peer keeps the mirror from carrying what it could, and the exact
//! command that mends it. It changes nothing.
//!
//! Like a check-up: one takes the measurements ([`gather`], the only part that looks at the machine) and writes them on
//! a sheet ([`facts`]); the others read the sheet and say what they think of it ([`checks`]), so that every finding is
//! tested on paper. Sheets of both ends side by side: [`ends`].

pub mod checks;
pub mod ends;
pub mod facts;
pub mod gather;
pub mod report;
mod words;

use serde::Serialize;

/// How a check ends; the worst one is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckVerdict {
    Ok,
    /// Nothing is wrong, or nothing can be said: virtual interfaces do not know their speed.
    Info,
    /// It works, and worse than it could.
    Warning,
    /// It does not work, or will not for long.
    Problem,
}

impl CheckVerdict {
    pub fn word(self) -> &'static str {
        match self {
            CheckVerdict::Ok => "ok",
            CheckVerdict::Info => "info",
            CheckVerdict::Warning => "warning",
            CheckVerdict::Problem => "problem",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable, for scripts.
    pub id: &'static str,
    pub verdict: CheckVerdict,
    pub have: String,
    /// Empty: nothing else.
    pub want: String,
    /// Empty: nothing to explain.
    pub why: String,
    /// What to run, exactly; `None`: nothing, or nothing that fits one line.
    pub command: Option<String>,
}

impl Check {
    pub fn new(id: &'static str, verdict: CheckVerdict, have: impl Into<String>) -> Check {
        Check { id, verdict, have: have.into(), want: String::new(), why: String::new(), command: None }
    }

    pub fn ok(id: &'static str, have: impl Into<String>) -> Check {
        Check::new(id, CheckVerdict::Ok, have)
    }

    pub fn unknown(id: &'static str, why: impl Into<String>) -> Check {
        Check::new(id, CheckVerdict::Info, "unknown").why(why)
    }

    #[must_use]
    pub fn want(mut self, want: impl Into<String>) -> Check {
        self.want = want.into();
        self
    }

    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Check {
        self.why = why.into();
        self
    }

    #[must_use]
    pub fn run(mut self, command: impl Into<String>) -> Check {
        self.command = Some(command.into());
        self
    }
}
