//! The tables of docs/wrong-inputs.md: what is typed there is typed here, and gets that answer and exit code; the tests that it
//! names are there.

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

#[test]
fn what_is_typed_gets_the_answer_of_the_manual() {
    let mut pair = Pair::new(&Plan::DEFAULT);
    Node::BOTH.into_iter().for_each(|node| pair.serve(node));
    pair.until("the nodes have met", |pair| {
        pair.status(Node::Near)["reason"].to_string().contains("never been synced")
    });
    let mut wrong = Vec::new();
    let rows = rows("Typed");
    for row in &rows {
        let [_, typed, part, code] = &row[..] else { panic!("four cells: {row:?}") };
        let words: Vec<&str> = typed.trim_matches('`').split(' ').skip(1).collect();
        let (came, said) = type_in(&pair, &words);
        if !said.contains(part.as_str()) || came.to_string() != *code {
            wrong.push(format!("{typed}: {came}: {said}"));
        }
    }
    assert!(rows.len() > 15 && wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_test_that_shows_an_answer_is_there() {
    let rows = rows("Found");
    let is_missing = |row: &&Vec<String>| {
        let (file, test) = row[3].trim_matches('`').split_once("::").expect("FILE::TEST");
        let sources = ["farshore", "host"].map(|krate| root().join(format!("crates/{krate}/tests/{file}.rs")));
        let texts = sources.iter().filter_map(|source| fs::read_to_string(source).ok());
        !texts.into_iter().any(|text| text.contains(&format!("fn {test}()")))
    };
    let missing: Vec<_> = rows.iter().filter(is_missing).collect();
    assert!(rows.len() > 12 && missing.is_empty(), "{missing:?}");
}
