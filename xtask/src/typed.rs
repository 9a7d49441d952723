//! Each `cargo xtask ...` of the manual, in a block or within a sentence, is a command line that this program understands.

use clap::Parser;
use clap::error::ErrorKind;
use std::fs;
use std::path::PathBuf;

/// What words of pages stand for, where they alone would not be understood.
const FILLED: [(&str, &str); 3] = [("K/N", "1/2"), ("N", "1"), ("SEED", "1")];
const PROGRAM: &str = "cargo xtask";

fn root() -> PathBuf {
    crate::project::here().join("..")
}

fn pages() -> Vec<PathBuf> {
    let mut pages = ["README.md", "ARCHITECTURE.md", "STYLE.md"].map(|name| root().join(name)).to_vec();
    let mut folders = vec![root().join("docs/book")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of pages") {
            let path = entry.expect("a page").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The command lines of a page; of those in blocks it is said that they are whole.
fn lines(text: &str) -> Vec<(&str, bool)> {
    let (mut lines, mut in_block) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            lines.push((line, true));
        } else {
            lines.extend(line.split('`').skip(1).step_by(2).map(|span| (span, false)));
        }
    }
    lines.retain(|(line, _)| line.starts_with(PROGRAM));
    lines
}

/// Why the program does not understand a line.
fn problem(line: &str, is_whole: bool) -> Option<String> {
    let line = line.split_once(" # ").map_or(line, |(command, _)| command);
    let words = line.strip_prefix(PROGRAM)?.split_whitespace();
    let filled = words.map(|word| FILLED.iter().find(|(name, _)| *name == word).map_or(word, |(_, meaning)| *meaning));
    let error = crate::Arguments::try_parse_from(std::iter::once(PROGRAM).chain(filled)).err()?;
    let ends_early = [
        ErrorKind::MissingRequiredArgument,
        ErrorKind::MissingSubcommand,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    (is_whole || !ends_early.contains(&error.kind())).then(|| error.to_string())
}

#[test]
fn this_program_understands_each_line_of_the_manual() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for (line, is_whole) in lines(&text) {
            count += 1;
            wrong.extend(problem(line, is_whole).map(|problem| format!("{}: {line}: {problem}", page.display())));
        }
    }
    println!("{count} command lines of cargo xtask, in blocks and sentences");
    assert!(count > 50 && wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_line_that_means_nothing_is_found() {
    assert!(problem("cargo xtask tidy  # rules", true).is_none());
    assert!(problem("cargo xtask tidily", false).is_some());
    assert!(problem("cargo xtask wan", false).is_none() && problem("cargo xtask wan", true).is_some());
    assert_eq!(
        lines("`cargo xtask tidy`\n```\ncargo xtask proofs\n```\n"),
        [("cargo xtask tidy", false), ("cargo xtask proofs", true)]
    );
}
