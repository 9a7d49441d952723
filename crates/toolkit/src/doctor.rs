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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CheckVerdict {
    /// nothing is wrong
    Ok,
    /// nothing is wrong, or nothing can be said
    // Virtual interfaces do not know their speed.
    Info,
    /// it works, and worse than possible
    Warning,
    /// it does not work, or will not for long
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    /// one of [the lines](doctor.md#the-lines); `link`, `tls` and `daemon` may come several times
    pub id: &'static str,
    /// how it ends
    pub verdict: CheckVerdict,
    /// what was found
    pub have: String,
    /// what is wanted; empty: nothing else
    pub want: String,
    /// the reason; empty: nothing to explain
    pub why: String,
    /// what to run, exactly; `null`: nothing, or nothing that fits one line
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
