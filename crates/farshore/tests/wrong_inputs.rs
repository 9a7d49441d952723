//! The tables of docs/book/wrong-inputs.md: what is typed there is typed here, and gets that answer and exit code; the tests that it
//! names are there, and each speaks of the words that its line quotes and asserts its code.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Pair, PairPlan, Side};

/// These know no configuration.
const ALONE: [&str; 5] = ["bench", "calc", "disk", "plan", "inspect"];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The rows of the table under that heading, cell by cell.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("docs/book/wrong-inputs.md")).expect("the manual");
    let (_, section) = text.split_once(&format!("## {heading}\n")).expect("its heading");
    let lines = section.lines().take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("| "));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    lines.skip(1).map(cells).collect()
}

/// Its exit code, and all it said.
fn type_in(pair: &Pair, words: &[&str]) -> (i32, String) {
    let mut command = Command::new("timeout");
    command.arg("60").arg(env!("CARGO_BIN_EXE_farshore")).args(words).current_dir(root()).stdin(Stdio::null());
    if !ALONE.contains(&words[0]) {
        command.env("FARSHORE_CONFIG", pair.config());
        if !words.contains(&"--node") {
            command.args(["--node", Side::Near.name()]);
        }
    }
    let output = command.output().expect("the binary runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().expect("it ends by itself"), String::from_utf8_lossy(&said).into_owned())
}

/// What came of a row, if that is not what the manual says.
fn otherwise(pair: &Pair, [typed, part, code]: [&String; 3]) -> Option<String> {
    let words: Vec<&str> = typed.trim_matches('`').split(' ').skip(1).collect();
    let (came, said) = type_in(pair, &words);
    (!said.contains(part.as_str()) || came.to_string() != *code).then(|| format!("{typed}: {came}: {said}"))
}

#[test]
fn what_is_typed_gets_the_answer_of_the_manual() {
    let mut pair = Pair::new(&PairPlan::DEFAULT);
    Side::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.until("the nodes have met", |pair| {
        pair.status(Side::Near)["reason"].to_string().contains("never been synced")
    });
    let rows = rows("Typed");
    let row = |row: &Vec<String>| {
        let [_, typed, part, code] = &row[..] else { panic!("four cells: {row:?}") };
        otherwise(&pair, [typed, part, code])
    };
    let wrong: Vec<String> = rows.iter().filter_map(row).collect();
    assert!(rows.len() > 15 && wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_prepared_and_typed_gets_the_answer_of_the_manual() {
    let rows = rows("Prepared");
    let row = |row: &Vec<String>| {
        let [_, before, typed, part, code] = &row[..] else { panic!("five cells: {row:?}") };
        let pair = Pair::new(&PairPlan::DEFAULT);
        let mut shell = Command::new("sh");
        let done = shell.args(["-e", "-c", before.trim_matches('`')]).current_dir(pair.path("")).status();
        assert!(done.expect("there is a shell").success(), "{before}");
        otherwise(&pair, [typed, part, code])
    };
    let wrong: Vec<String> = rows.iter().filter_map(row).collect();
    assert!(rows.len() > 8 && wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A text of Rust with its strings as they are meant: on one line each.
fn unbroken(source: &str) -> String {
    let mut parts = source.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start())
}

/// The function of that name, from its first line to its last.
fn body<'a>(source: &'a str, name: &str) -> Option<&'a str> {
    let start = source.find(&format!("fn {name}("))?;
    let line = &source[source[..start].rfind('\n').map_or(0, |end| end + 1)..];
    let indent = line.len() - line.trim_start_matches(' ').len();
    let end = source[start..].find(&format!("\n{}}}\n", " ".repeat(indent)))?;
    Some(&source[start..start + end])
}

/// The file of the test that shows a row's answer, and the test's name.
fn shown_by(row: &[String]) -> Option<(String, &str)> {
    let (file, test) = row[3].trim_matches('`').split_once("::").expect("FILE::TEST");
    let locations = ["farshore/tests", "farshore/src/daemon", "host/tests", "host/src/tls"];
    let sources = locations.map(|location| root().join(format!("crates/{location}/{file}.rs")));
    let mut texts = sources.iter().filter_map(|source| fs::read_to_string(source).ok()).map(|text| unbroken(&text));
    texts.find(|text| body(text, test).is_some()).map(|text| (text, test))
}

#[test]
fn each_test_that_shows_an_answer_is_there_and_speaks_of_its_words() {
    let rows = rows("Found");
    let is_wrong = |row: &&Vec<String>| {
        let shown = shown_by(row);
        let text = shown.as_ref().and_then(|(text, test)| body(text, test));
        let mut quoted = row[1].split('"').skip(1).step_by(2).peekable();
        quoted.peek().is_none() || text.is_none_or(|text| quoted.any(|words| !text.contains(words)))
    };
    let wrong: Vec<_> = rows.iter().filter(is_wrong).collect();
    assert!(rows.len() > 12 && wrong.is_empty(), "{wrong:?}");
}

/// What is called there by name.
fn calls(text: &str) -> impl Iterator<Item = &str> {
    let is_part_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.match_indices('(').map(move |(at, _)| {
        let before = &text[..at];
        &before[before.trim_end_matches(is_part_of_name).len()..]
    })
}

/// The test with all that it calls of its own file and of what tests of damage share, each in one line.
fn with_helpers(source: &str, test: &str) -> String {
    let shared = fs::read_to_string(root().join("crates/farshore/tests/common/damage.rs")).expect("there");
    let mut found = vec![body(source, test).expect("it was found before")];
    let mut next = 0;
    while next < found.len() {
        let helpers = calls(found[next]).filter(|name| !name.is_empty());
        let new: Vec<&str> = helpers.filter_map(|name| body(source, name).or_else(|| body(&shared, name))).collect();
        new.into_iter().for_each(|text| {
            if !found.contains(&text) {
                found.push(text)
            }
        });
        next += 1;
    }
    found.iter().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join("\n")
}

/// Whether something is seen to end with that code, in one of the ways in which our tests say so.
fn asserts(text: &str, code: char) -> bool {
    let ways = [format!("Some({code})"), format!("code == {code}"), format!("code, {code},")];
    let ends_well = [".success()", ".done(", ".stop_both()"];
    let expects = text.split("expect(&").skip(1).filter_map(|rest| rest.split(';').next());
    ways.iter().any(|way| text.contains(way))
        || expects.into_iter().any(|words| words.contains(&format!(", {code},")))
        || (code == '0' && ends_well.iter().any(|way| text.contains(way)))
}

#[test]
fn each_test_that_shows_an_answer_sees_its_exit_code() {
    let rows = rows("Found");
    let is_wrong = |row: &&Vec<String>| {
        let mut codes = row[2].chars().filter(char::is_ascii_digit).peekable();
        let is_known = codes.peek().is_some() || row[2] == "-";
        let Some((source, test)) = shown_by(row) else { return true };
        let text = with_helpers(&source, test);
        !is_known || codes.any(|code| !asserts(&text, code))
    };
    let wrong: Vec<_> = rows.iter().filter(is_wrong).collect();
    assert!(rows.len() > 12 && wrong.is_empty(), "{wrong:#?}");
}
