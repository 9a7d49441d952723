//! Measurements, and the tables that pages make of them. Figures stand in `docs/book/measured/NAME.jsonl` and nowhere else by hand.
//!
//! A line is an object. One with the key `run` says where the rows behind it come from: `date`, `commit` (`null` where nobody noted
//! it), `command` and `machine`. A row names its `series`, what was measured on what, and the figures, with units in their keys. Benches
//! add such lines with `--append FILE`. A row that was measured again replaces the older one, so a run may renew a part of a table.
//!
//! Reading order: `rows` (lines), `table` (rows as text), then `bench`, `link`, `other` (the tables of the pages), `chart`.

mod bench;
mod chart;
mod link;
mod other;
mod rows;
mod table;

use crate::made::remade;
use anyhow::{Context, Result, anyhow};
use rows::Measurements;
use std::collections::BTreeMap;

pub use bench::{beside_text, export_text, recovery_text};
pub use rows::{Row, RunFile};
pub use table::{rate_text, three_digits};

/// Texts of files by their paths from the project's root.
type FileTexts = BTreeMap<String, String>;

/// The command that makes all of it.
const COMMAND: &str = "cargo xtask measured";
const FOLDER: &str = "docs/book/measured/";

/// A part of a page: its name in the page, of which file of measurements it is made, and how.
struct MeasuredPart {
    page: &'static str,
    name: &'static str,
    file: &'static str,
    make: fn(&[Row]) -> Result<String>,
}

const fn part(
    page: &'static str,
    name: &'static str,
    file: &'static str,
    make: fn(&[Row]) -> Result<String>,
) -> MeasuredPart {
    MeasuredPart { page, name, file, make }
}

/// A part's name is the series that it shows.
const PARTS: [MeasuredPart; 26] = [
    part("docs/book/bench.md", "export", "bench", |rows| export_text(rows).map(fenced)),
    part("docs/book/bench.md", "beside", "beside", |rows| beside_text(rows).map(fenced)),
    part("docs/book/recovery.md", "recovery", "recovery", |rows| recovery_text(rows).map(fenced)),
    part("docs/book/link.md", "throughput", "link", link::throughput),
    part("docs/book/link.md", "loss", "link", link::loss),
    part("docs/book/link.md", "buffers", "link", link::buffers),
    part("docs/book/link.md", "outage", "link", link::outage),
    part("docs/book/link.md", "idle", "link", link::idle),
    part("docs/book/link.md", "lone", "link", link::lone),
    part("docs/book/link.md", "fall", "link", link::fall),
    part("docs/book/link.md", "rto", "link", link::rto),
    part("docs/book/link.md", "nagle", "link", other::nagle),
    part("docs/book/link.md", "modes", "link", link::modes),
    part("docs/book/link.md", "paper", "link", link::paper),
    part("docs/book/link.md", "durable", "link", link::durable),
    part("docs/book/link.md", "overload", "link", link::overload),
    part("docs/book/link.md", "spill", "link", link::spill),
    part("docs/book/link.md", "waits", "link", link::waits),
    part("docs/book/bench.md", "fold", "link", link::fold),
    part("docs/book/link.md", "encryption", "link", other::encryption),
    part("docs/book/planner.md", "recording", "planner", other::recording),
    part("docs/book/planner.md", "reality", "planner", other::reality),
    part("docs/book/planner.md", "scan", "planner", other::scan),
    part("docs/book/toolkit.md", "line-modes", "toolkit", other::line_modes),
    part("docs/book/toolkit.md", "line-buffers", "toolkit", other::line_buffers),
    part("docs/book/wan.md", "wan", "wan", other::wan),
];

/// Pictures: where, of which file and series, and how.
const PICTURES: [MeasuredPart; 1] = [part("docs/book/measured/link-loss.svg", "loss", "link", chart::loss)];

/// As a block that keeps its columns.
fn fenced(text: String) -> String {
    format!("```text\n{text}```\n")
}

/// All pages with their tables, and the pictures, by path.
///
/// # Errors
/// A line is no row, a row lacks a figure, or a page has no place for a table.
pub fn make(files: &FileTexts) -> Result<FileTexts> {
    let mut made = FileTexts::new();
    for part in &PARTS {
        let page = made.get(part.page).or_else(|| files.get(part.page)).map_or("", String::as_str);
        let text = part.text(files)?;
        let page = remade(page, COMMAND, &[(part.name, text)]).map_err(|error| anyhow!("{}: {error}", part.page))?;
        made.insert(part.page.to_owned(), page);
    }
    for picture in &PICTURES {
        made.insert(picture.page.to_owned(), picture.text(files)?);
    }
    Ok(made)
}

/// What differs from the measurements, or is wrong with them: a path and a sentence for each.
pub fn check(files: &FileTexts) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    for path in files.keys().filter(|path| path.starts_with(FOLDER) && path.ends_with(".jsonl")) {
        if let Err(error) = Measurements::read(files, path) {
            problems.push((path.clone(), format!("{error:#}")));
        }
    }
    match make(files) {
        Ok(made) => {
            let differ = made.into_iter().filter(|(path, text)| files.get(path) != Some(text));
            let sentence = format!("is not what {FOLDER} says: run `{COMMAND}`");
            problems.extend(differ.map(|(path, _)| (path, sentence.clone())));
        }
        Err(error) => problems.push((FOLDER.to_owned(), format!("{error:#}"))),
    }
    problems
}

/// What a page shows of one row that a bench adds.
#[cfg(test)]
pub fn shown(series: &str, row: &impl serde::Serialize) -> String {
    let part = PARTS.iter().find(|part| part.name == series).expect("a part of that name");
    let rows = [Row::of(row).expect("an object")];
    (part.make)(&rows).unwrap_or_else(|error| panic!("{series}: {error:#}"))
}

impl MeasuredPart {
    fn text(&self, files: &FileTexts) -> Result<String> {
        let path = format!("{FOLDER}{}.jsonl", self.file);
        let measurements = Measurements::read(files, &path)?;
        let text = (self.make)(&measurements.of(self.name));
        text.with_context(|| format!("{path}, series {}, for {}", self.name, self.page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The project's own files, as far as measurements need them.
    fn files() -> FileTexts {
        let root = crate::project::here().join("..");
        let pages = PARTS.iter().chain(&PICTURES).flat_map(|part| {
            let file = format!("{FOLDER}{}.jsonl", part.file);
            [part.page.to_owned(), file]
        });
        let read = |path: String| {
            let text = std::fs::read_to_string(root.join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
            (path, text)
        };
        pages.map(read).collect()
    }

    #[test]
    fn the_pages_have_the_tables_of_their_measurements() {
        assert_eq!(check(&files()), []);
    }

    #[test]
    fn a_figure_changed_in_a_page_or_in_the_measurements_is_found() {
        let mut files = files();
        let page = files.get_mut("docs/book/recovery.md").expect("a page");
        *page = page.replace("0.07 s ", "0.06 s ");
        let rows = files.get_mut("docs/book/measured/wan.jsonl").expect("measurements");
        *rows = rows.replace("0.19 / ", "0.18 / ");
        let found: Vec<String> = check(&files).into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, ["docs/book/recovery.md", "docs/book/wan.md"]);
    }

    #[test]
    fn a_row_without_a_figure_is_named() {
        let mut files = files();
        let rows = files.get_mut("docs/book/measured/recovery.jsonl").expect("measurements");
        *rows = rows.replace("\"writes\"", "\"wrote\"");
        let problems = check(&files);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].1.contains("series recovery") && problems[0].1.contains("`writes`"), "{problems:?}");
    }
}
