//! Which mutants there are, and which of them are drawn.

use super::switches::TextChange;
use crate::project::Project;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::process::Command;
use std::str::FromStr;

/// Pinned: a new version may know new mutants, and a sample is to be drawn again from the same ones.
const VERSION: &str = "27.1.0";

/// A change of one place of the engine.
#[derive(Clone, Debug, Deserialize)]
pub struct Mutant {
    /// Its place in the draw.
    #[serde(skip)]
    pub id: usize,
    /// `FILE:LINE:COLUMN: replace ...`
    pub name: String,
    /// From the project's root.
    pub file: String,
    replacement: String,
    span: MutantSpan,
    diff: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct MutantSpan {
    start: LineColumn,
    end: LineColumn,
}

/// In characters, both counted from 1.
#[derive(Clone, Copy, Debug, Deserialize)]
struct LineColumn {
    line: usize,
    column: usize,
}

impl Mutant {
    /// The file as the mutant has it.
    ///
    /// # Errors
    /// When the file is not the one that the mutant was made of.
    pub fn applied(&self, text: &str) -> Result<String> {
        let TextChange { range, replacement, .. } = self.change(text)?;
        Ok(format!("{}{replacement}{}", &text[..range.start], &text[range.end..]))
    }

    /// What the mutant does to the file, in bytes.
    ///
    /// # Errors
    /// When the file is not the one that the mutant was made of.
    pub fn change(&self, text: &str) -> Result<TextChange> {
        let (start, end) = (self.span.start.offset(text), self.span.end.offset(text));
        let range = start.zip(end).map(|(start, end)| start..end).filter(|range| text.get(range.clone()).is_some());
        let range = range.with_context(|| format!("{} has no such range: {}", self.file, self.name))?;
        Ok(TextChange { id: self.id, range, replacement: self.replacement.clone() })
    }

    /// What tells this mutant from one of the same name in another state of the code.
    pub fn fingerprint(&self) -> String {
        format!("{:016x}", fnv1a(self.diff.as_bytes()))
    }
}

impl LineColumn {
    fn offset(self, text: &str) -> Option<usize> {
        let line_start: usize = text.split_inclusive('\n').take(self.line - 1).map(str::len).sum();
        let line = text.get(line_start..)?;
        let mut ranges = line.char_indices().map(|(at, _)| at).chain([line.len()]);
        Some(line_start + ranges.nth(self.column - 1)?)
    }
}

/// One of several parts of a sample, each for a machine of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    index: usize,
    count: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let number = |text: &str| text.parse::<usize>().ok();
        let parts = text.split_once('/').and_then(|(k, n)| Some((number(k)?, number(n)?)));
        match parts {
            Some((k, count)) if 1 <= k && k <= count => Ok(Shard { index: k - 1, count }),
            _ => Err(format!("`{text}` is no shard: write which of how many, such as 1/1 or 2/4")),
        }
    }
}

impl Shard {
    /// How many of a sample are in it.
    pub fn share_of(self, sample: usize) -> usize {
        (sample + self.count - 1 - self.index) / self.count
    }
}

/// All mutants of the engine but for those that `.cargo/mutants.toml` leaves out.
pub fn all(project: &Project) -> Result<Vec<Mutant>> {
    let program = installed(project)?;
    let mut command = Command::new(program);
    command.args(["mutants", "--package", "engine", "--list", "--json"]).current_dir(&project.root);
    let output = command.output().context("starting cargo-mutants failed")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo-mutants did not list the mutants: {}", complaint.trim());
    serde_json::from_slice(&output.stdout).context("cargo-mutants' list is not as expected")
}

/// The mutants in the order in which they are drawn by that seed, of which a sample is the beginning; each depends on its own name
/// alone.
pub fn draw(mut mutants: Vec<Mutant>, seed: u64, shard: Shard) -> Vec<Mutant> {
    mutants.sort_by_cached_key(|mutant| mix(fnv1a(mutant.name.as_bytes()) ^ mix(seed)));
    let mut drawn: Vec<Mutant> = mutants.into_iter().skip(shard.index).step_by(shard.count).collect();
    drawn.iter_mut().enumerate().for_each(|(index, mutant)| mutant.id = index);
    drawn
}

/// Built from source, once per target folder: some minutes.
fn installed(project: &Project) -> Result<String> {
    let home = project.target.join(format!("tools/cargo-mutants-{VERSION}"));
    let program = home.join("bin/cargo-mutants").to_string_lossy().into_owned();
    if !is_wanted(&program) {
        let mut install = project.command("cargo");
        install.args(["install", "--locked", "cargo-mutants", "--version", VERSION, "--root"]).arg(&home);
        let status = install.status().context("starting `cargo install` failed")?;
        ensure!(status.success() && is_wanted(&program), "installing cargo-mutants {VERSION} failed; see above");
    }
    Ok(program)
}

fn is_wanted(program: &str) -> bool {
    let output = Command::new(program).args(["mutants", "--version"]).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == format!("cargo-mutants {VERSION}"))
}

/// A small hash that is the same everywhere, for ever.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A bijection after which near numbers are far apart (the end of splitmix64).
fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(name: &str) -> Mutant {
        let (start, end) = (LineColumn { line: 2, column: 3 }, LineColumn { line: 2, column: 4 });
        let (name, file, replacement) = (name.to_owned(), "a.rs".to_owned(), "-".to_owned());
        Mutant { id: 0, name, file, replacement, span: MutantSpan { start, end }, diff: String::new() }
    }

    #[test]
    fn a_mutant_replaces_its_range() {
        let one = mutant("one");
        assert_eq!(one.applied("é\né + 1\n").expect("the place is there"), "é\né - 1\n");
        assert_eq!(one.applied("a\nb +").expect("the place is there"), "a\nb -");
        assert!(one.applied("a\n").is_err());
    }

    #[test]
    fn shards_are_parts_of_one_draw() {
        let all = || (0..10).map(|n| mutant(&n.to_string())).collect::<Vec<_>>();
        let names = |seed, shard: &str| -> Vec<String> {
            let shard = shard.parse().expect("a shard");
            draw(all(), seed, shard).into_iter().map(|mutant| mutant.name).collect()
        };
        let whole = names(7, "1/1");
        let (odd, even) = (names(7, "1/2"), names(7, "2/2"));
        assert_eq!(whole.iter().step_by(2).cloned().collect::<Vec<_>>(), odd);
        assert_eq!(whole.iter().skip(1).step_by(2).cloned().collect::<Vec<_>>(), even);
        assert_ne!(whole, names(8, "1/1"));
        let shares = ["1/4", "2/4", "3/4", "4/4"].map(|shard| shard.parse::<Shard>().expect("a shard").share_of(250));
        assert_eq!(shares, [63, 63, 62, 62]);
    }

    #[test]
    fn shards_are_read() {
        for wrong in ["", "1", "0/4", "5/4", "1/0", "a/b"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
