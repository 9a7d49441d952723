//! The tables of docs/wrong-inputs.md: what is typed there is typed here, and gets that answer and exit code; the tests that it
//! names are there, and each speaks of the words that its line quotes.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Node, Pair, Plan};

/// These know no configuration.
const ALONE: [&str; 4] = ["bench", "calc", "plan", "inspect"];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The rows of the table under that heading, cell by cell.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("docs/wrong-inputs.md")).expect("the manual");
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
            command.args(["--node", Node::Near.name()]);
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
    let mut pair = Pair::new(&Plan::DEFAULT);
    Node::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.until("the nodes have met", |pair| {
        pair.status(Node::Near)["reason"].to_string().contains("never been synced")
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
        let pair = Pair::new(&Plan::DEFAULT);
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

/// The test of that name, from its first line to its last.
fn body<'a>(source: &'a str, test: &str) -> Option<&'a str> {
    let start = source.find(&format!("fn {test}()"))?;
    let indent = start - source[..start].rfind('\n').map_or(0, |end| end + 1);
    let end = source[start..].find(&format!("\n{}}}\n", " ".repeat(indent)))?;
    Some(&source[start..start + end])
}

#[test]
fn each_test_that_shows_an_answer_is_there_and_speaks_of_its_words() {
    let rows = rows("Found");
    let is_wrong = |row: &&Vec<String>| {
        let (file, test) = row[3].trim_matches('`').split_once("::").expect("FILE::TEST");
        let places = ["farshore/tests", "farshore/src/daemon", "host/tests", "host/src/tls"];
        let sources = places.map(|place| root().join(format!("crates/{place}/{file}.rs")));
        let texts = sources.iter().filter_map(|source| fs::read_to_string(source).ok());
        let text = texts.map(|text| unbroken(&text)).find_map(|text| body(&text, test).map(str::to_owned));
        let mut quoted = row[1].split('"').skip(1).step_by(2).peekable();
        quoted.peek().is_none() || text.is_none_or(|text| quoted.any(|words| !text.contains(words)))
    };
    let wrong: Vec<_> = rows.iter().filter(is_wrong).collect();
    assert!(rows.len() > 12 && wrong.is_empty(), "{wrong:?}");
}
