//! Lines of a file of measurements: runs, and the rows that they brought.

use super::FileTexts;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Facts of a run, by their keys.
const FACTS: [&str; 4] = ["date", "commit", "command", "machine"];

/// Where and when rows were measured.
#[derive(Debug, Serialize)]
struct RunFacts {
    date: String,
    commit: String,
    command: String,
    machine: String,
}

impl RunFacts {
    /// Of this process, today.
    ///
    /// # Errors
    /// `date` does not run.
    fn new(commit: String, machine: String) -> Result<RunFacts> {
        let date = crate::project::text_of(Command::new("date").args(["-u", "+%F"]))?.trim().to_owned();
        let mut words: Vec<String> = std::env::args().skip(1).collect();
        if let Some(at) = words.iter().position(|word| word == "--append") {
            words.drain(at..words.len().min(at + 2));
        }
        Ok(RunFacts { date, commit, command: format!("cargo xtask {}", words.join(" ")), machine })
    }
}

#[derive(Serialize)]
struct RunLine<'a> {
    run: &'a RunFacts,
}

#[derive(Serialize)]
struct RowLine<'a, R> {
    series: &'a str,
    #[serde(flatten)]
    row: &'a R,
}

/// A file of measurements while a run adds rows to its end. It is opened before the first measurement: some take hours.
#[derive(Debug)]
pub struct RunFile {
    file: File,
    path: PathBuf,
    /// Until they are written, before the first rows.
    facts: Option<RunFacts>,
}

impl RunFile {
    /// `unlike`: options that make another measurement than the page's, and whether they are given. Rows replace the page's
    /// by what was measured on which line, and these options do not stand in a row.
    ///
    /// # Errors
    /// Such an option is given, or the file cannot be opened.
    pub fn open(
        path: &Path,
        commit: String,
        machine: String,
        unlike: impl IntoIterator<Item = (bool, &'static str)>,
    ) -> Result<RunFile> {
        let mut given: Vec<&str> = Vec::new();
        for (_, option) in unlike.into_iter().filter(|(is_given, _)| *is_given) {
            if !given.contains(&option) {
                given.push(option);
            }
        }
        ensure!(
            given.is_empty(),
            "`--append` would replace figures of the page by those of another measurement: {}. Leave out one or the other",
            given.join(", ")
        );
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("opening {} failed", path.display()))?;
        Ok(RunFile { file, path: path.to_owned(), facts: Some(RunFacts::new(commit, machine)?) })
    }

    /// Adds rows of a series.
    ///
    /// # Errors
    /// The file cannot be written, or a row is no object.
    pub fn add<R: Serialize>(&mut self, series: &str, rows: &[R]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::new();
        if let Some(facts) = &self.facts {
            lines.push(serde_json::to_string(&RunLine { run: facts })?);
        }
        for row in rows {
            lines.push(serde_json::to_string(&RowLine { series, row })?);
        }
        let text = lines.join("\n") + "\n";
        self.file.write_all(text.as_bytes()).with_context(|| format!("writing {} failed", self.path.display()))?;
        self.facts = None;
        eprintln!(
            "{} rows of {series} are added to {}; `{}` writes the pages",
            rows.len(),
            self.path.display(),
            super::COMMAND
        );
        Ok(())
    }
}

/// A row: an object whose values are looked up by key.
#[derive(Clone, Debug, PartialEq)]
pub struct Row(Map<String, Value>);

impl Row {
    /// # Errors
    /// The value is no object.
    pub fn of(value: &impl Serialize) -> Result<Row> {
        Ok(Row(serde_json::from_value(serde_json::to_value(value)?)?))
    }

    fn value(&self, key: &str) -> Result<&Value> {
        self.0.get(key).with_context(|| format!("a row has no `{key}`: {}", Value::Object(self.0.clone())))
    }

    /// A ratio of nothing to nothing is `null`: JSON has no other word for it.
    pub fn number(&self, key: &str) -> Result<f64> {
        match self.value(key)? {
            Value::Null => Ok(f64::NAN),
            value => value.as_f64().with_context(|| format!("`{key}` of a row is no number")),
        }
    }

    pub fn numbers(&self, key: &str) -> Result<Vec<f64>> {
        let list: Option<Vec<f64>> =
            self.value(key)?.as_array().and_then(|list| list.iter().map(Value::as_f64).collect());
        list.with_context(|| format!("`{key}` of a row is no list of numbers"))
    }

    pub fn text(&self, key: &str) -> Result<&str> {
        self.value(key)?.as_str().with_context(|| format!("`{key}` of a row is no text"))
    }

    /// The values of some keys, to compare rows by: `10` and `10.0` are the same.
    pub fn values(&self, keys: &[&str]) -> Result<Vec<String>> {
        let text = |value: &Value| value.as_f64().map_or_else(|| value.to_string(), |number| number.to_string());
        keys.iter().map(|key| self.value(key).map(text)).collect()
    }

    /// Whether a bar is met.
    pub fn yes_or_no(&self, key: &str) -> Result<&'static str> {
        let is_met =
            self.value(key)?.as_bool().with_context(|| format!("`{key}` of a row is neither true nor false"))?;
        Ok(if is_met { "yes" } else { "no" })
    }
}

/// The rows of a file, in the order in which they were measured.
pub struct Measurements(Vec<Row>);

impl Measurements {
    /// # Errors
    /// There is no such file, or a line is neither a run with its facts nor a row behind one.
    pub fn read(files: &FileTexts, path: &str) -> Result<Measurements> {
        let text = files.get(path).with_context(|| format!("there is no {path}"))?;
        let mut rows = Vec::new();
        let mut has_run = false;
        for (index, line) in text.lines().enumerate() {
            let place = || format!("{path}:{}", index + 1);
            let row = Row(serde_json::from_str(line).with_context(place)?);
            if let Some(run) = row.0.get("run") {
                let missing: Vec<&str> = FACTS.into_iter().filter(|fact| run.get(fact).is_none()).collect();
                ensure!(missing.is_empty(), "{}: a run has no {}", place(), missing.join(", "));
                has_run = true;
            } else {
                ensure!(has_run, "{}: a row comes before any run", place());
                row.text("series").with_context(place)?;
                rows.push(row);
            }
        }
        Ok(Measurements(rows))
    }

    /// The rows of a series.
    pub fn of(&self, series: &str) -> Vec<Row> {
        self.0.iter().filter(|row| row.text("series").is_ok_and(|of| of == series)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{"run":{"date":"2026-11-27","commit":null,"command":"c","machine":"m"}}"#;

    fn read(text: &str) -> Result<Measurements> {
        Measurements::read(&[("f".to_owned(), text.to_owned())].into(), "f")
    }

    #[test]
    fn rows_stand_behind_a_run_that_says_where_they_come_from() {
        let row = r#"{"series":"s","rate_mbit":1.5}"#;
        let rows = read(&format!("{RUN}\n{row}\n")).expect("sound").of("s");
        assert_eq!(rows[0].number("rate_mbit").expect("a number"), 1.5);
        for (text, wrong) in [
            (row.to_owned(), "f:1: a row comes before any run"),
            (RUN.replace("\"command\":\"c\",", ""), "f:1: a run has no command"),
            (format!("{RUN}\n{{}}"), "f:2"),
            (format!("{RUN}\nno row"), "f:2"),
        ] {
            let error = read(&text).err().expect("it is refused").to_string();
            assert!(error.starts_with(wrong), "{text}: {error}");
        }
    }

    #[test]
    fn what_a_bench_adds_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rows.jsonl");
        let open = || RunFile::open(&file, "abc".to_owned(), "m".to_owned(), []).expect("opened");
        #[derive(Serialize)]
        struct Wait {
            wait_ms: f64,
        }
        let mut run = open();
        run.add("waits", &[Wait { wait_ms: 1.0 }, Wait { wait_ms: 2.0 }]).expect("added");
        run.add("others", &[Wait { wait_ms: 9.0 }]).expect("added");
        open().add("waits", &[Wait { wait_ms: 3.0 }]).expect("added");
        let text = std::fs::read_to_string(&file).expect("the file");
        assert_eq!(text.lines().filter(|line| line.starts_with("{\"run\"")).count(), 2, "{text}");
        let waits = read(&text).expect("sound").of("waits");
        let waits: Vec<f64> = waits.iter().map(|row| row.number("wait_ms").expect("a number")).collect();
        assert_eq!(waits, [1.0, 2.0, 3.0]);
    }

    #[test]
    fn another_measurement_and_a_wrong_path_are_refused_before_anything_is_measured() {
        let folder = tempfile::tempdir().expect("a folder");
        let refusal = |path: &Path, unlike: &[(bool, &'static str)]| {
            let opened = RunFile::open(path, String::new(), String::new(), unlike.iter().copied());
            opened.expect_err("it is refused").to_string()
        };
        let file = folder.path().join("rows.jsonl");
        let unlike = [(true, "`--program`"), (false, "`--ipv6`"), (true, "`--link`"), (true, "`--link`")];
        let refused = refusal(&file, &unlike);
        assert!(refused.contains("measurement: `--program`, `--link`. "), "{refused}");
        assert!(!file.exists(), "refused, and yet there is a file");
        let refused = refusal(&folder.path().join("none/rows.jsonl"), &[]);
        assert!(refused.starts_with("opening ") && refused.ends_with("none/rows.jsonl failed"), "{refused}");
    }
}
