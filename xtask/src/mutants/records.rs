//! What came of each mutant: a file with a line for each, which is only added to.

use super::Mutant;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MutantOutcome {
    /// A checker objected.
    Caught,
    /// It came to no end, or took all memory it was given.
    Ended,
    /// Nobody objected.
    Missed,
    /// The quick checkers did not; the others were not asked.
    Open,
    /// It does not compile, which says nothing about tests.
    Unviable,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MutantRecord {
    pub name: String,
    pub fingerprint: String,
    pub outcome: MutantOutcome,
    /// The checker.
    pub by: Option<String>,
    /// What the checker said last.
    pub said: Option<String>,
    pub seconds: u64,
}

impl MutantRecord {
    /// For people.
    pub fn summary(&self) -> String {
        let by = self.by.as_deref().unwrap_or_default();
        let verdict = match self.outcome {
            MutantOutcome::Caught => format!("caught by {by}"),
            MutantOutcome::Ended => format!("caught by {by}, which had to be ended"),
            MutantOutcome::Missed => "MISSED".to_owned(),
            MutantOutcome::Open => "nobody objected yet".to_owned(),
            MutantOutcome::Unviable => "does not compile".to_owned(),
        };
        format!("{verdict} ({} s)", self.seconds)
    }
}

pub struct MutantRecords {
    path: PathBuf,
    /// By name and fingerprint; the last line counts.
    by_mutant: HashMap<(String, String), MutantRecord>,
}

impl MutantRecords {
    /// What earlier runs wrote down; nothing if there were none.
    pub fn load(path: &Path) -> Result<MutantRecords> {
        let mut records = MutantRecords { path: path.to_owned(), by_mutant: HashMap::new() };
        let text = if path.exists() { fs::read_to_string(path)? } else { String::new() };
        for line in text.lines() {
            // A line cut short is that of a run that was stopped: its mutant is examined again.
            if let Ok(record) = serde_json::from_str::<MutantRecord>(line) {
                records.by_mutant.insert((record.name.clone(), record.fingerprint.clone()), record);
            }
        }
        Ok(records)
    }

    pub fn of(&self, mutant: &Mutant) -> Option<&MutantRecord> {
        self.by_mutant.get(&(mutant.name.clone(), mutant.fingerprint()))
    }

    pub fn add(&mut self, record: MutantRecord) -> Result<()> {
        let mut line = serde_json::to_string(&record)?;
        line.push('\n');
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&self.path)?;
        file.write_all(line.as_bytes()).with_context(|| format!("writing to {} failed", self.path.display()))?;
        self.by_mutant.insert((record.name.clone(), record.fingerprint.clone()), record);
        Ok(())
    }
}
