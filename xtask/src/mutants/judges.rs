//! Who judges a mutant, and the scratch copy of the project in which they do.

use super::list::{Mutant, fnv1a};
use super::records::{Outcome, Record};
use crate::project::Project;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

/// One that may object, and what it is to be asked.
struct Judge {
    name: &'static str,
    program: Program,
    arguments: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    /// Unit and integration tests of a package; but for the long stories.
    Tests,
    LongStories,
    Simulator,
}

const fn judge(name: &'static str, program: Program, arguments: &'static [&'static str]) -> Judge {
    Judge { name, program, arguments }
}

/// By what they cost; the first that objects is the last that is asked. Few of a kind come before many: most mutants fall to any
/// of them.
const JUDGES: &[Judge] = &[
    judge("unit tests", Program::Tests, &["--package", "engine", "--lib"]),
    judge("scenarios", Program::Simulator, &["--sparse", "0..40"]),
    judge("scenarios", Program::Simulator, &["--sparse", "40..1000"]),
    judge("engine's own stories", Program::Tests, &["--package", "engine", "--test", EVERY_TEST]),
    judge("seeds", Program::Simulator, &["0..8"]),
    judge("stories", Program::Tests, &["--package", "sim", "--lib", "--test", EVERY_TEST]),
    judge("liars", Program::Simulator, &["--liars", "0..200"]),
    judge("scenarios", Program::Simulator, &["--sparse", "1000..4000"]),
    judge("seeds", Program::Simulator, &["8..40"]),
    judge("wide seeds", Program::Simulator, &["--wide", "0..8"]),
    judge("stories' crashes", Program::Simulator, &["--stories"]),
    judge("crowds", Program::Simulator, &["--crowd", "0..4"]),
    judge("long stories", Program::LongStories, &["--package", "sim", "--test", EVERY_TEST]),
];

/// So many of them are done within seconds.
const QUICK_JUDGES: usize = 5;

/// Tests of `crates/sim`, most of which try every moment of a start: minutes together.
const LONG_STORIES: [&str; 11] = [
    "journal_full::",
    "lost_slots::",
    "lost_records::",
    "changed_outside::",
    "one_damage::",
    "goodbye::",
    "greetings::",
    "grown_in_mid_sync::",
    "failed_group::",
    "no_space::",
    "groups_that_share_a_line",
];

/// In the copy the integration tests of a crate are one program: one to be linked, instead of forty.
const EVERY_TEST: &str = "every_test";
const TEST_FOLDERS: [&str; 2] = ["crates/engine/tests", "crates/sim/tests"];

/// In processor time: the long stories, which take longest, are done in a third of it.
const CPU_SECONDS: &str = "--cpu=600";
const CPU_SECONDS_OF_QUICK: &str = "--cpu=60";
/// Address space of each process.
const MEMORY: &str = "--as=6442450944";
/// In any case: what sleeps uses no processor time.
const SECONDS: &str = "1800";

/// Each judge's name, once.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    JUDGES.iter().for_each(|judge| {
        if !names.contains(&judge.name) {
            names.push(judge.name);
        }
    });
    names
}

/// What came of asking them.
struct Verdict {
    outcome: Outcome,
    by: Option<&'static str>,
    said: Option<String>,
}

impl Verdict {
    fn unviable(text: &str) -> Verdict {
        let said = text.lines().find(|line| line.starts_with("error")).map(str::to_owned);
        Verdict { outcome: Outcome::Unviable, by: None, said }
    }
}

/// A copy of the project's sources with build results of its own.
pub struct Workshop {
    project: PathBuf,
    tree: PathBuf,
    build: PathBuf,
}

impl Workshop {
    /// Copies the project as it is, and asks every judge about it unchanged.
    ///
    /// # Errors
    /// When files cannot be copied, or a judge objects to the engine as it is.
    pub fn set_up(project: &Project, folder: &Path, is_quick: bool) -> Result<Workshop> {
        let workshop =
            Workshop { project: project.root.clone(), tree: folder.join("tree"), build: folder.join("build") };
        let content = workshop.copy(project)? + if is_quick { " quick" } else { " quick and long" };
        // Holds what was last held against every judge without a change.
        let stamp = folder.join("unchanged-is-well");
        if !fs::read_to_string(&stamp).is_ok_and(|there| there.starts_with(&content)) {
            println!("building, and asking the judges about the engine without a change");
            let Verdict { outcome, by, said } = workshop.verdict(is_quick)?;
            let (by, said) = (by.unwrap_or("the compiler"), said.unwrap_or_default());
            ensure!(
                matches!(outcome, Outcome::Missed | Outcome::Open),
                "{by} objects to the engine without a change: {said}"
            );
            fs::write(&stamp, content)?;
        }
        Ok(workshop)
    }

    /// Plants a mutant, asks who objects, and takes it out again.
    pub fn judge(&self, mutant: &Mutant, is_quick: bool) -> Result<Record> {
        let begin = Instant::now();
        let path = self.tree.join(&mutant.file);
        let original = fs::read_to_string(&path)?;
        fs::write(&path, mutant.applied(&original)?)?;
        let verdict = self.verdict(is_quick);
        fs::write(&path, original).with_context(|| format!("restoring {} failed", path.display()))?;
        let Verdict { outcome, by, said } = verdict?;
        let (name, fingerprint) = (mutant.name.clone(), mutant.fingerprint());
        let seconds = begin.elapsed().as_secs();
        Ok(Record { name, fingerprint, outcome, by: by.map(str::to_owned), said, seconds })
    }

    /// Asks one judge after the other. Building is no judge.
    fn verdict(&self, is_quick: bool) -> Result<Verdict> {
        let mut is_built = false;
        for (index, judge) in JUDGES.iter().enumerate() {
            if is_quick && index == QUICK_JUDGES {
                return Ok(Verdict { outcome: Outcome::Open, by: None, said: None });
            }
            if judge.program == Program::Simulator && !is_built {
                is_built = true;
                let output = self.cargo(&["build", "--package", "sim"], CPU_SECONDS)?;
                if !output.status.success() {
                    return Ok(Verdict::unviable(&String::from_utf8_lossy(&output.stderr)));
                }
            }
            let output = self.asked(judge, if index < QUICK_JUDGES { CPU_SECONDS_OF_QUICK } else { CPU_SECONDS })?;
            if !output.status.success() {
                let text = [output.stdout, output.stderr].concat();
                let text = String::from_utf8_lossy(&text);
                if judge.program == Program::Tests && text.contains("error: could not compile") {
                    return Ok(Verdict::unviable(&text));
                }
                let outcome = if was_ended(&output.status, &text) { Outcome::Ended } else { Outcome::Caught };
                return Ok(Verdict { outcome, by: Some(judge.name), said: objection(&text) });
            }
        }
        Ok(Verdict { outcome: Outcome::Missed, by: None, said: None })
    }

    fn asked(&self, judge: &Judge, cpu: &str) -> Result<Output> {
        if judge.program == Program::Simulator {
            return self.simulate(judge.arguments, cpu);
        }
        let mut arguments = [&["test"], judge.arguments, &["--"]].concat();
        match judge.program {
            Program::LongStories => arguments.extend(LONG_STORIES),
            _ => arguments.extend(LONG_STORIES.iter().flat_map(|module| ["--skip", module])),
        }
        self.cargo(&arguments, cpu)
    }

    fn cargo(&self, arguments: &[&str], cpu: &str) -> Result<Output> {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let (task, options) = arguments.split_first().context("no task for cargo")?;
        let mut command = self.bounded(&cargo, cpu);
        command.args([task, "--profile", "mutants", "--locked", "--quiet"]).args(options);
        command.output().context("starting `cargo` failed")
    }

    fn simulate(&self, arguments: &[&str], cpu: &str) -> Result<Output> {
        let program = self.build.join("mutants/sim");
        self.bounded(&program.to_string_lossy(), cpu).args(arguments).output().context("starting the simulator failed")
    }

    /// A program that is ended when it comes to no end by itself.
    fn bounded(&self, program: &str, cpu: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", SECONDS, "prlimit", cpu, MEMORY, "--core=0", program]);
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.build).env("RUST_BACKTRACE", "0");
        // A warning about code that a mutant left without use says nothing.
        command.env("RUSTFLAGS", "--cap-lints=allow");
        command
    }

    /// Makes the copy what the project is, and returns a number that tells the state of its crates from any other. Files that are so
    /// already keep their times: they need no new build.
    fn copy(&self, project: &Project) -> Result<String> {
        let files = files(project)?;
        // A file removed but not yet from the index is no file.
        let read = |path: &String| Some((path.clone(), fs::read(self.project.join(path)).ok()?));
        let mut contents: Vec<(String, Vec<u8>)> = files.iter().filter_map(read).collect();
        for folder in TEST_FOLDERS {
            contents.push((format!("{folder}/{EVERY_TEST}.rs"), every_test(&files, folder).into_bytes()));
        }
        let (crates, mut all) = (self.tree.join("crates"), Vec::new());
        for (path, content) in contents {
            let path = self.tree.join(path);
            if !fs::read(&path).is_ok_and(|there| there == content) {
                path.parent().map_or(Ok(()), fs::create_dir_all)?;
                fs::write(&path, &content).with_context(|| format!("writing {} failed", path.display()))?;
            }
            if path.starts_with(&crates) {
                all.extend(fnv1a(&content).to_le_bytes());
            }
        }
        Ok(format!("{:016x}", fnv1a(&all)))
    }
}

/// What belongs to the project.
fn files(project: &Project) -> Result<Vec<String>> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = project.command("git").args(list).output().context("starting `git` failed")?;
    ensure!(output.status.success(), "`git ls-files` failed");
    let list = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    Ok(list.split_terminator('\0').map(str::to_owned).collect())
}

/// A program of all integration tests of a folder.
fn every_test(files: &[String], folder: &str) -> String {
    let names = files.iter().filter_map(|path| path.strip_prefix(folder)?.strip_prefix('/')?.strip_suffix(".rs"));
    names.filter(|name| !name.contains('/')).map(|name| format!("mod {name};\n")).collect()
}

/// Whether a limit ended a process, or the wish for more memory than there was.
fn was_ended(status: &std::process::ExitStatus, text: &str) -> bool {
    use std::os::unix::process::ExitStatusExt;
    let is_time_up = status.code() == Some(124) || status.signal().is_some();
    is_time_up || ["SIGXCPU", "SIGKILL", "memory allocation of"].iter().any(|word| text.contains(word))
}

/// The line that says what was wrong.
fn objection(text: &str) -> Option<String> {
    let words = ["panicked at", "seed ", "scenario ", "sim --", "FAILED", "memory allocation of", "SIGXCPU"];
    let line = text.lines().find(|line| words.iter().any(|word| line.contains(word)))?;
    Some(line.chars().take(200).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judges_are_named_once_in_their_order() {
        assert_eq!(names()[..3], ["unit tests", "scenarios", "engine's own stories"]);
        assert_eq!(names().len(), 10);
    }

    #[test]
    fn integration_tests_become_modules_of_one() {
        let files = ["a/tests/one.rs", "a/tests/data/two.rs", "b/tests/three.rs", "a/src/lib.rs"].map(str::to_owned);
        assert_eq!(every_test(&files, "a/tests"), "mod one;\n");
    }

    #[test]
    fn an_objection_is_found() {
        let text = "thread 'a' panicked at crates/engine/src/x.rs:1:2:\nno\n1 passed, 1 failed\n";
        assert_eq!(objection(text).as_deref(), Some("thread 'a' panicked at crates/engine/src/x.rs:1:2:"));
        assert_eq!(objection("all well"), None);
    }
}
