//! What the documents and the coverage exceptions name is there. The table of injected faults is made here.

use std::path::{Path, PathBuf};

use engine::injected_fault::Fault;
use sim::coverage_exceptions::{BRANCHES_BY_TEST, EDGES_BY_SCENARIO, ROWS_BY_TEST};

#[path = "../../../xtask/src/made.rs"]
mod made;

/// The page with the table of faults, and the figures of its last two columns.
const PAGE: &str = "../../docs/book/simulator.md";
const FIGURES: &str = "../../docs/book/measured/faults.jsonl";
const COMMAND: &str = "BLESS=1 cargo test -p sim documented";

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(path: &str) -> String {
    let path = file(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A value of a line of JSON without objects in it: a number, a text without quotes, or a list without brackets.
fn value<'a>(line: &'a str, key: &str) -> &'a str {
    let begin = format!("\"{key}\":");
    let at = line.find(&begin).unwrap_or_else(|| panic!("{FIGURES}: there is no {key} in {line}"));
    let rest = &line[at + begin.len()..];
    let (inside, end): (&str, &[char]) = match rest.as_bytes().first() {
        Some(b'"') => (&rest[1..], &['"']),
        Some(b'[') => (&rest[1..], &[']']),
        _ => (rest, &[',', '}']),
    };
    inside.split(end).next().unwrap_or_default()
}

/// The median of the ranges, then each range. What is not of the median's kind of worlds says so; seeds go without saying. A line without
/// ranges is of a fault of which a scenario is known, and no count.
fn figures(line: &str) -> String {
    let median_worlds = value(line, "median_worlds");
    if value(line, "counts").is_empty() {
        return format!("{median_worlds}, not counted");
    }
    let worlds = value(line, "worlds").split(',').map(|word| word.trim_matches('"'));
    let range = |(count, worlds): (&str, &str)| match worlds == median_worlds {
        true => count.to_owned(),
        false => format!("{count} {worlds}"),
    };
    let ranges: Vec<String> = value(line, "counts").split(',').zip(worlds).map(range).collect();
    let kind = if median_worlds == "seeds" { String::new() } else { format!(" {median_worlds}") };
    format!("{} ({}){kind}", value(line, "median_count"), ranges.join(", "))
}

fn table_of_faults() -> String {
    let measured = text(FIGURES);
    let mut table = "| Fault | Breaks | Instead of the right thing | Seeds | By |\n|---|---|---|---|---|\n".to_owned();
    for fault in Fault::ALL {
        let is_of = |line: &&str| line.contains("\"fault\":") && value(line, "fault") == fault.name();
        // A fault that was measured again has the figures of the last time.
        let line = measured.lines().rfind(is_of);
        let line = line.unwrap_or_else(|| {
            let name = fault.name();
            panic!("no figures of `{name}`: run `cargo xtask faults {name} --append docs/book/measured/faults.jsonl`")
        });
        let (figures, checker) = (figures(line), value(line, "checker"));
        table += &format!("| `{}` | {} | {} | {figures} | {checker} |\n", fault.name(), fault.breaks(), fault.how());
    }
    table
}

/// `BLESS=1` writes the table anew.
#[test]
fn the_table_of_injected_faults_is_the_engines() {
    let page = text(PAGE);
    let remade = made::remade(&page, COMMAND, &[("injected-faults", table_of_faults())]);
    let remade = remade.unwrap_or_else(|error| panic!("docs/book/simulator.md: {error}"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(file(PAGE), remade).expect("docs/book/simulator.md is written");
    } else {
        assert!(page == remade, "docs/book/simulator.md differs: run {COMMAND}");
    }
}

/// Each line of figures is of a fault that there is.
#[test]
fn figures_are_of_faults_that_can_be_injected() {
    for line in text(FIGURES).lines().filter(|line| line.contains("\"fault\":")) {
        let name = value(line, "fault");
        assert!(Fault::ALL.iter().any(|fault| fault.name() == name), "{FIGURES}: there is no fault `{name}`");
    }
}

#[test]
fn figures_name_the_worlds_that_are_not_the_medians() {
    let line = |counts: &str, worlds: &str, count: u32, median: &str| {
        format!(
            r#"{{"fault":"f","counts":[{counts}],"worlds":[{worlds}],"median_count":{count},"median_worlds":"{median}"}}"#
        )
    };
    let (seeds, sparse) = ("\"seeds\"", "\"sparse\"");
    let all = |word: &str| [word, word, word].join(",");
    assert_eq!(figures(&line("97,34,1", &all(seeds), 34, "seeds")), "34 (97, 34, 1)");
    assert_eq!(figures(&line("237,285,72", &all(sparse), 237, "sparse")), "237 (237, 285, 72) sparse");
    let mixed = [seeds, sparse, sparse].join(",");
    assert_eq!(figures(&line("56,369,419", &mixed, 369, "sparse")), "369 (56 seeds, 369, 419) sparse");
    assert_eq!(figures(&line("", "", 0, "scenario")), "scenario, not counted");
    let mixed = [seeds, seeds, sparse].join(",");
    assert_eq!(figures(&line("185,156,133", &mixed, 185, "seeds")), "185 (185, 156, 133 sparse)");
}

/// What seeds need not come to is shown by a test, not by a promise of one.
#[test]
fn what_is_left_to_tests_has_its_test() {
    let scenarios = std::fs::read_dir(file("tests")).expect("the tests of the simulator");
    let scenarios = scenarios.map(|entry| entry.expect("a file of tests").path());
    let sources: String = scenarios.map(|path| std::fs::read_to_string(path).expect("a file of tests")).collect();
    let sources = sources + &text("../engine/src/formats/identity.rs");
    let edges = EDGES_BY_SCENARIO.iter().map(|(_, name)| *name);
    let branches = BRANCHES_BY_TEST.iter().map(|(_, name)| *name);
    for name in ROWS_BY_TEST.iter().map(|(_, name)| *name).chain(edges).chain(branches) {
        assert!(
            sources.contains(&format!("#[test]\nfn {name}()"))
                || sources.contains(&format!("    #[test]\n    fn {name}()")),
            "there is no test `{name}`"
        );
    }
}
