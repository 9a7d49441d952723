//! Who may know whom, what may stand where.

use super::TidyProblem;
use super::source::SourceFile;
use crate::project::Crate;
use std::collections::BTreeMap;

/// What a crate may depend on, tests aside.
enum AllowedDependencies<'a> {
    /// These and nothing else in the world.
    Only(&'a [&'a str]),
    /// Of our own crates these; foreign ones are a matter of taste.
    OfOurs(&'a [&'a str]),
}

/// The arrows of the house. `engine` decides and therefore knows nothing; `sim` never ships; `witness` checks and
/// therefore shares nothing; `plan` calculates and needs no daemon.
const ARROWS: &[(&str, AllowedDependencies)] = &[
    ("engine", AllowedDependencies::Only(&["crc32c"])),
    ("sim", AllowedDependencies::Only(&["engine"])),
    ("units", AllowedDependencies::OfOurs(&[])),
    ("host", AllowedDependencies::OfOurs(&["engine", "units"])),
    ("witness", AllowedDependencies::Only(&[])),
    ("plan", AllowedDependencies::OfOurs(&["units"])),
    ("settings", AllowedDependencies::OfOurs(&["engine", "host", "units"])),
    ("toolkit", AllowedDependencies::OfOurs(&["engine", "host", "plan", "settings", "units"])),
    ("farshore", AllowedDependencies::OfOurs(&["engine", "host", "plan", "settings", "toolkit", "units"])),
    ("demo", AllowedDependencies::OfOurs(&["host", "toolkit", "units", "witness"])),
    // Only tests know it, so it is on nobody's list.
    ("forgetful", AllowedDependencies::OfOurs(&[])),
    (
        "farshore-fuzz",
        AllowedDependencies::OfOurs(&["engine", "farshore", "host", "plan", "settings", "units", "witness"]),
    ),
    ("xtask", AllowedDependencies::OfOurs(&["units"])),
];

/// Where the kernel is spoken to without a wrapper.
const UNSAFE_FOLDERS: &[&str] = &["crates/host/", "xtask/src/wan/"];
const UNFINISHED: &[&str] = &["todo", "unimplemented", "dbg"];
/// What the engine must not name outside of its tests.
const ENGINE_FOLDER: &str = "crates/engine/src/";

pub fn check_arrows(crates: &[Crate]) -> Vec<TidyProblem> {
    let mut problems = Vec::new();
    for Crate { name, dependencies } in crates {
        let manifest = match name.as_str() {
            "xtask" => "xtask/Cargo.toml".to_owned(),
            "farshore-fuzz" => "fuzz/Cargo.toml".to_owned(),
            _ => format!("crates/{name}/Cargo.toml"),
        };
        let mut report = |sentence| problems.push(TidyProblem { path: manifest.clone(), line: 0, sentence });
        let Some((_, may)) = ARROWS.iter().find(|(known, _)| known == name) else {
            report(format!("{name} is a new crate: write a decision page and add its arrows to xtask tidy"));
            continue;
        };
        let is_ours = |dependency: &str| ARROWS.iter().any(|(known, _)| *known == dependency);
        for dependency in dependencies {
            let is_allowed = match may {
                AllowedDependencies::Only(list) => list.contains(&dependency.as_str()),
                AllowedDependencies::OfOurs(list) => !is_ours(dependency) || list.contains(&dependency.as_str()),
            };
            if !is_allowed {
                report(format!("{name} must not depend on {dependency}"));
            }
        }
    }
    problems
}

/// Every crate has its place on the map, once there is one.
pub fn check_code_map(crates: &[Crate], architecture: Option<&str>) -> Vec<TidyProblem> {
    let Some(architecture) = architecture else {
        return Vec::new();
    };
    let is_missing = |name: &str| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        !architecture.split(|c| !is_word(c)).any(|word| word == name)
    };
    let missing = crates.iter().filter(|known| is_missing(&known.name));
    let problem = |known: &Crate| TidyProblem {
        path: "ARCHITECTURE.md".to_owned(),
        line: 0,
        sentence: format!("does not mention the crate {}", known.name),
    };
    missing.map(problem).collect()
}

/// `unsafe` where it does not belong, and marks of unfinished work.
pub fn check_words(source: &SourceFile) -> Vec<TidyProblem> {
    let mut problems = Vec::new();
    let mut report = |at, sentence: String| {
        problems.push(TidyProblem { path: source.path.to_owned(), line: source.line_of(at), sentence });
    };
    if !UNSAFE_FOLDERS.iter().any(|folder| source.path.starts_with(folder)) {
        for at in source.word_starts("unsafe") {
            report(at, format!("unsafe code belongs in {} only", UNSAFE_FOLDERS.join(" and ")));
        }
    }
    for word in UNFINISHED {
        for at in source.word_starts(word) {
            if source.code[at + word.len()..].starts_with('!') {
                report(at, format!("{word}! is unfinished work: finish it, or take it out"));
            }
        }
    }
    problems
}

/// Each integration test is run: a folder of them is one program, `all.rs`, and cargo looks for no other there.
///
/// Takes the texts of Rust files by their paths.
pub fn check_tests(files: &BTreeMap<String, String>) -> Vec<TidyProblem> {
    let mut folders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for path in files.keys() {
        if let Some((folder, name)) = path.rsplit_once('/')
            && folder.ends_with("/tests")
        {
            folders.entry(folder).or_default().push(name);
        }
    }
    let mut problems = Vec::new();
    for (folder, names) in folders {
        let all = files.get(&format!("{folder}/all.rs"));
        let is_run = |name: &str| match all {
            Some(text) => {
                name == "all.rs" || text.lines().any(|line| line == format!("mod {};", name.trim_end_matches(".rs")))
            }
            None => names.len() == 1,
        };
        for name in names.iter().filter(|name| !is_run(name)) {
            let path = format!("{folder}/{name}");
            problems.push(TidyProblem { path, line: 0, sentence: format!("is not a module of {folder}/all.rs") });
        }
    }
    problems
}

/// The engine has no clock, file, socket or thread, because it cannot name one.
pub fn check_purity(source: &SourceFile) -> Vec<TidyProblem> {
    if !source.path.starts_with(ENGINE_FOLDER) {
        return Vec::new();
    }
    let lines = source.word_starts("std").into_iter().map(|at| source.line_of(at));
    let before_tests = lines.filter(|&line| line <= source.lines_before_tests);
    let problem = |line| TidyProblem {
        path: source.path.to_owned(),
        line,
        sentence: "the engine imports core, alloc and a checksum, never std".to_owned(),
    };
    before_tests.map(problem).collect()
}

/// Folders of the machine a file was written on mean nothing anywhere else.
pub fn check_machine_paths(path: &str, text: &str) -> Vec<TidyProblem> {
    // Put together here, or this file would break its own rule.
    let folders = [["/wo", "rk/"], ["/fa", "rm/"], ["/ro", "ot/"], ["/tmp", "/w/"], ["/tmp/", "target"]];
    let folders = folders.map(|parts| parts.concat());
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let is_named = |folder: &String| {
            line.match_indices(folder.as_str()).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                // Behind another name it is a folder of something else.
                !before.is_some_and(|c| c.is_alphanumeric() || "_-.~}".contains(c))
            })
        };
        if let Some(folder) = folders.iter().find(|folder| is_named(folder)) {
            problems.push(TidyProblem {
                path: path.to_owned(),
                line: index + 1,
                sentence: format!("names {folder}, a place on one machine"),
            });
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::lines_of;
    use super::*;

    fn known(name: &str, dependencies: &[&str]) -> Crate {
        let dependencies = dependencies.iter().map(|name| (*name).to_owned()).collect();
        Crate { name: name.to_owned(), dependencies }
    }

    #[test]
    fn arrows_point_inwards() {
        let sound = [
            known("engine", &["crc32c"]),
            known("sim", &["engine"]),
            known("host", &["engine", "tokio"]),
            known("farshore", &["engine", "host", "clap"]),
            known("xtask", &["clap"]),
        ];
        assert_eq!(check_arrows(&sound), []);
        for (name, dependency) in [
            ("engine", "log"),
            ("engine", "host"),
            ("sim", "rand"),
            ("host", "farshore"),
            ("xtask", "engine"),
            ("witness", "engine"),
            ("farshore", "forgetful"),
            ("forgetful", "host"),
            ("plan", "host"),
        ] {
            assert_eq!(check_arrows(&[known(name, &[dependency])]).len(), 1, "{name} -> {dependency}");
        }
        assert_eq!(check_arrows(&[known("extra", &[])]).len(), 1);
    }

    #[test]
    fn the_map_names_every_crate() {
        let crates = [known("sim", &[]), known("host", &[])];
        assert_eq!(check_code_map(&crates, None), []);
        assert_eq!(check_code_map(&crates, Some("`crates/sim`, crates/host: ...")), []);
        assert_eq!(check_code_map(&crates, Some("similar hosts, crates/host")).len(), 1);
    }

    #[test]
    fn words_have_their_places() {
        let text = "unsafe {}\n#![forbid(unsafe_code)]\ntodo!();\nlet todo = 1; // todo!\ndbg!(1);\n";
        assert_eq!(lines_of(&check_words(&SourceFile::new("crates/sim/src/a.rs", text))), [1, 3, 5]);
        assert_eq!(lines_of(&check_words(&SourceFile::new("crates/host/src/a.rs", text))), [3, 5]);
    }

    #[test]
    fn the_engine_is_pure_before_its_tests() {
        let text = "#![no_std]\nuse std::fs;\n// std::fs\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        assert_eq!(lines_of(&check_purity(&SourceFile::new("crates/engine/src/a.rs", text))), [2]);
        assert_eq!(check_purity(&SourceFile::new("crates/host/src/a.rs", text)), []);
    }

    #[test]
    fn every_integration_test_is_run() {
        let problems = |files: &[(&str, &str)]| {
            let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
            check_tests(&files).into_iter().map(|problem| problem.path).collect::<Vec<_>>()
        };
        let folder = [("a/tests/all.rs", "mod common;\nmod one;\n"), ("a/tests/one.rs", ""), ("a/tests/two.rs", "")];
        assert_eq!(problems(&folder), ["a/tests/two.rs"]);
        assert_eq!(problems(&[("a/tests/one.rs", ""), ("a/tests/common/mod.rs", "")]), [""; 0]);
        assert_eq!(problems(&[("a/tests/one.rs", ""), ("a/tests/two.rs", "")]), ["a/tests/one.rs", "a/tests/two.rs"]);
        assert_eq!(problems(&[("a/src/tests.rs", "")]), [""; 0]);
    }

    #[test]
    fn machine_paths_are_found_and_relative_ones_are_not() {
        let root = ["/ro", "ot/"].concat();
        let text = format!("a {root}b\nin network{root}x, ..{root}y\n\"{root}\"\n");
        assert_eq!(lines_of(&check_machine_paths("a.md", &text)), [1, 3]);
    }
}
