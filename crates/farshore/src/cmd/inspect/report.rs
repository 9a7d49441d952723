//! What an inspection says of one file.

use serde_json::Value;

use crate::outcome::Exit;

/// Of long lists this many are shown.
pub const SHOWN: usize = 16;

/// What was found in one file.
#[derive(Debug, Default)]
pub struct InspectReport {
    /// For people, a line each.
    pub lines: Vec<String>,
    /// The same for programs.
    pub facts: Value,
    /// Damage that Farshore gets by with, and other things an operator should see: a sentence each.
    pub warnings: Vec<String>,
    /// Damage because of which the file is of no use: a sentence.
    pub failure: Option<String>,
}

impl InspectReport {
    pub fn line(&mut self, label: &str, value: impl std::fmt::Display) {
        self.lines.push(format!("  {label:<18} {value}"));
    }

    pub fn failed(sentence: impl Into<String>) -> InspectReport {
        InspectReport { failure: Some(sentence.into()), ..InspectReport::default() }
    }

    pub fn exit(&self) -> Exit {
        match (&self.failure, self.warnings.is_empty()) {
            (Some(_), _) => Exit::Failed,
            (None, false) => Exit::Warning,
            (None, true) => Exit::Done,
        }
    }
}

impl InspectReport {
    /// A list with its middle left out when it is long.
    pub fn push_some(&mut self, lines: impl Iterator<Item = String>, count: usize, what: &str) {
        for (number, line) in lines.enumerate() {
            let at_end = number + SHOWN / 2 >= count;
            if number < SHOWN / 2 || at_end {
                self.lines.push(line);
            } else if number == SHOWN / 2 {
                self.lines.push(format!("    … {} more {what} …", count - SHOWN / 2 * 2));
            }
        }
    }
}
