//! `cargo xtask tidy`: rules of the house that a program can check. Each is a pure function from
//! text to problems; only this file looks at the disk.

mod house;
mod links;
mod parts;
mod proofs;
mod size;
mod source;
mod walls;

use crate::measured;
use crate::project::Project;
use anyhow::{Context, Result, ensure};
use source::SourceFile;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;

pub use parts::BookWords;

/// A broken rule, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct TidyProblem {
    pub path: String,
    /// Counted from 1; 0 means the file as a whole.
    pub line: usize,
    pub sentence: String,
}

/// Texts of files by their paths from the project's root.
type FileTexts = BTreeMap<String, String>;

impl fmt::Display for TidyProblem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.sentence),
            line => write!(f, "{}:{line}: {}", self.path, self.sentence),
        }
    }
}

/// Checks every file that is tracked, or would be if it were added.
///
/// # Errors
/// When git cannot list the files.
pub fn check(project: &Project) -> Result<Vec<TidyProblem>> {
    let mut problems = house::check_arrows(&project.crates);
    let architecture = fs::read_to_string(project.root.join("ARCHITECTURE.md")).ok();
    problems.extend(house::check_code_map(&project.crates, architecture.as_deref()));
    let (sources, others) = read_files(project)?;
    for (path, text) in sources.iter().chain(&others) {
        problems.extend(house::check_machine_paths(path, text));
    }
    let mut modules = Vec::new();
    for (path, text) in &sources {
        let source = SourceFile::new(path, text);
        problems.extend(size::check_file(&source));
        problems.extend(size::check_functions(&source));
        problems.extend(house::check_words(&source));
        problems.extend(house::check_purity(&source));
        modules.extend(walls::Module::read(path, text));
    }
    let pages = others.iter().filter(|(path, _)| path.ends_with(".md"));
    let pages: Vec<links::Page> = pages.map(|(path, text)| links::Page::read(path, text)).collect();
    problems.extend(links::check(&pages, |path| project.root.join(path).exists()));
    problems.extend(house::check_tests(&sources));
    problems.extend(walls::check(&modules));
    let page = others.get(proofs::PROOFS_PAGE).map(String::as_str);
    problems.extend(collect_proofs(&sources, &others).check(page));
    for (path, text) in others.iter().filter(|(path, _)| path.ends_with(".md")) {
        problems.extend(parts::check(path, text));
    }
    let problem = |(path, sentence)| TidyProblem { path, line: 0, sentence };
    problems.extend(measured::check(&others).into_iter().map(problem));
    Ok(problems)
}

/// How long the book is, and how much of it is made.
///
/// # Errors
/// When git cannot list the files.
pub fn book_words(project: &Project) -> Result<BookWords> {
    Ok(BookWords::count(&read_files(project)?.1))
}

/// Writes docs/book/proofs.md, and returns the page's path.
///
/// # Errors
/// When git cannot list the files, or the page cannot be written.
pub fn write_proofs(project: &Project) -> Result<&'static str> {
    let (sources, others) = read_files(project)?;
    let page = collect_proofs(&sources, &others).page();
    fs::write(project.root.join(proofs::PROOFS_PAGE), page)
        .with_context(|| format!("writing {} failed", proofs::PROOFS_PAGE))?;
    Ok(proofs::PROOFS_PAGE)
}

/// Writes what of the pages is made from `docs/book/measured`, and returns the paths of what changed.
///
/// # Errors
/// When git cannot list the files, a row lacks a figure, a page has no place for a table, or a file cannot be written.
pub fn write_measured(project: &Project) -> Result<Vec<String>> {
    let (_, others) = read_files(project)?;
    let made = measured::make(&others)?;
    let changed = made.into_iter().filter(|(path, text)| others.get(path) != Some(text));
    let write = |(path, text): (String, String)| -> Result<String> {
        fs::write(project.root.join(&path), text).with_context(|| format!("writing {path} failed"))?;
        Ok(path)
    };
    changed.map(write).collect()
}

fn collect_proofs(sources: &FileTexts, others: &FileTexts) -> proofs::Proofs {
    proofs::Proofs::collect(sources, others.get(proofs::CLAIMS_PAGE).map_or("", String::as_str))
}

/// The Rust files, and all others.
fn read_files(project: &Project) -> Result<(FileTexts, FileTexts)> {
    let files = tracked_files(project)?.into_iter().filter_map(|path| {
        // A file removed but not yet from the index is no file.
        let bytes = fs::read(project.root.join(&path)).ok()?;
        Some((path, String::from_utf8_lossy(&bytes).into_owned()))
    });
    Ok(files.partition(|(path, _)| path.ends_with(".rs")))
}

fn tracked_files(project: &Project) -> Result<Vec<String>> {
    let output = project
        .command("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("starting `git` failed; tidy needs it to list the files")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`git ls-files` failed: {}", complaint.trim());
    let list = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    Ok(list.split_terminator('\0').map(str::to_owned).collect())
}

#[cfg(test)]
pub(crate) fn lines_of(problems: &[TidyProblem]) -> Vec<usize> {
    problems.iter().map(|problem| problem.line).collect()
}
