//! Who checks a mutant.

use super::list::Mutant;
use super::records::{MutantOutcome, MutantRecord};
use super::tree::{Build, CPU_SECONDS, Complaint, Executable, Tree};
use crate::project::Project;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Output};
use std::time::Instant;

/// One that may object, and what it is to be asked.
struct MutantChecker {
    name: &'static str,
    program: Program,
    arguments: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Program {
    UnitTests,
    EngineTests,
    /// All tests of the simulator but for the long scripted scenarios.
    ScriptedScenarios,
    LongScenarios,
    Simulator,
}

impl Program {
    /// What cargo is asked for.
    const fn build(self) -> &'static [&'static str] {
        match self {
            Program::UnitTests => &["test", "--no-run", "--package", "engine", "--lib"],
            Program::EngineTests => &["test", "--no-run", "--package", "engine", "--test", "all"],
            Program::ScriptedScenarios | Program::LongScenarios => {
                &["test", "--no-run", "--package", "sim", "--lib", "--test", "all"]
            }
            Program::Simulator => &["build", "--package", "sim"],
        }
    }
}

const fn checker(name: &'static str, program: Program, arguments: &'static [&'static str]) -> MutantChecker {
    MutantChecker { name, program, arguments }
}

/// By what they cost; the first that objects is the last that is asked. Few of a kind come before many: most mutants fall to any
/// of them.
const CHECKERS: &[MutantChecker] = &[
    checker("unit tests", Program::UnitTests, &SKIPPED_UNIT_TESTS),
    checker("scenarios", Program::Simulator, &["--sparse", "0..40"]),
    checker("scenarios", Program::Simulator, &["--sparse", "40..200"]),
    checker("engine's own scenarios", Program::EngineTests, &[]),
    checker("seeds", Program::Simulator, &["0..8"]),
    checker("unit tests", Program::UnitTests, &LONG_UNIT_TESTS),
    checker("scenarios", Program::Simulator, &["--sparse", "200..1000"]),
    checker("scripted scenarios", Program::ScriptedScenarios, &[]),
    checker("hostile peers", Program::Simulator, &["--hostile", "0..200"]),
    checker("scenarios", Program::Simulator, &["--sparse", "1000..4000"]),
    checker("seeds", Program::Simulator, &["8..40"]),
    checker("wide seeds", Program::Simulator, &["--wide", "0..8"]),
    checker("scripted crashes", Program::Simulator, &["--scenarios"]),
    checker("crowds", Program::Simulator, &["--crowd", "0..4"]),
    checker("long scripted scenarios", Program::LongScenarios, &[]),
];

/// They try every state of something small, and take longer than all others together.
const LONG_UNIT_TESTS: [&str; 3] = [
    "what_a_trim_holds_grows_with_the_writes_and_not_with_their_length",
    "small_identities_come_to_every_row_and_each_row_decides_one_thing",
    "no_torn_update_leaves_the_cell_ambiguous",
];
const SKIPPED_UNIT_TESTS: [&str; 6] =
    ["--skip", LONG_UNIT_TESTS[0], "--skip", LONG_UNIT_TESTS[1], "--skip", LONG_UNIT_TESTS[2]];

/// So many of them are done within seconds.
const QUICK_CHECKERS: usize = 7;

/// Tests of `crates/sim`, most of which try every moment of a start: minutes together.
const LONG_SCENARIOS: [&str; 11] = [
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

/// In processor time: what has not ended by then comes to no end.
const CPU_SECONDS_OF_QUICK: &str = "--cpu=20";

/// Each checker's name, once.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    CHECKERS.iter().for_each(|checker| {
        if !names.contains(&checker.name) {
            names.push(checker.name);
        }
    });
    names
}

/// What came of asking them.
struct MutantVerdict {
    outcome: MutantOutcome,
    by: Option<&'static str>,
    said: Option<String>,
}

impl MutantVerdict {
    const fn nobody(outcome: MutantOutcome) -> MutantVerdict {
        MutantVerdict { outcome, by: None, said: None }
    }

    fn unviable(complaints: Vec<Complaint>) -> MutantVerdict {
        let said = complaints.into_iter().next().map(|complaint| complaint.message);
        MutantVerdict { outcome: MutantOutcome::Unviable, by: None, said }
    }
}

/// A copy of the project in which mutants have switches, and the programs that check them.
pub struct Workshop {
    tree: Tree,
    is_quick: bool,
    switched: BTreeSet<usize>,
    programs: HashMap<Program, Vec<Executable>>,
}

impl Workshop {
    /// Builds everything, with all of these mutants and none of them on, and asks the checkers about that.
    ///
    /// # Errors
    /// When files cannot be copied, or a checker objects to the engine as it is.
    pub fn set_up(project: &Project, folder: &Path, mutants: &[Mutant], is_quick: bool) -> Result<Workshop> {
        let tree = Tree::new(project, folder)?;
        let switched_tree = tree.switch(mutants)?;
        println!(
            "building {} of {} mutants in one, with a switch for each",
            switched_tree.switched.len(),
            mutants.len()
        );
        let mut programs = HashMap::new();
        for checker in asked(is_quick) {
            let Build::Made(executables) = tree.cargo(checker.program.build())? else {
                bail!("the checkers do not compile: {}", checker.name);
            };
            programs.insert(checker.program, executables);
        }
        let workshop = Workshop { tree, is_quick, switched: switched_tree.switched, programs };
        // What was held against checkers before: the project, which all of them were asked about, and copies, which the quick ones were.
        let known = folder.join("unchanged-is-well");
        let known_text = fs::read_to_string(&known).unwrap_or_default();
        let is_known = |line: &String| known_text.lines().any(|known| known == line);
        let of_project = format!("{} all", switched_tree.project_hash);
        let is_quick = is_quick || is_known(&of_project);
        if !is_quick || !is_known(&switched_tree.copy_hash) {
            println!("asking the checkers about the engine without a change");
            let MutantVerdict { by, said, .. } =
                workshop.verdict(None, is_quick, &|program| workshop.built(program))?;
            let said = said.unwrap_or_default();
            ensure!(by.is_none(), "{} object to the engine without a change: {said}", by.unwrap_or_default());
            let all = if is_quick { String::new() } else { of_project + "\n" };
            fs::write(&known, known_text + &all + &switched_tree.copy_hash + "\n")?;
        }
        Ok(workshop)
    }

    pub fn has_switch(&self, mutant: &Mutant) -> bool {
        self.switched.contains(&mutant.id)
    }

    /// Asks who objects to a mutant: one with a switch at any time; the others one at a time, and after the last that has a switch,
    /// since they overwrite the programs.
    ///
    /// # Errors
    /// When a program does not start.
    pub fn checker(&self, mutant: &Mutant) -> Result<MutantRecord> {
        let begin = Instant::now();
        let verdict = if self.has_switch(mutant) {
            self.verdict(Some(mutant.id), self.is_quick, &|program| self.built(program))?
        } else {
            let build = |program: Program| self.tree.cargo(program.build());
            // Not as its own tests have it, where what is in `std` is at hand.
            self.tree.with_mutant(mutant, || match self.tree.cargo(&["check", "--package", "engine"])? {
                Build::Refused(complaints) => Ok(MutantVerdict::unviable(complaints)),
                Build::Made(_) => self.verdict(None, self.is_quick, &build),
            })?
        };
        let MutantVerdict { outcome, by, said } = verdict;
        let (name, fingerprint) = (mutant.name.clone(), mutant.fingerprint());
        let seconds = begin.elapsed().as_secs();
        Ok(MutantRecord { name, fingerprint, outcome, by: by.map(str::to_owned), said, seconds })
    }

    fn built(&self, program: Program) -> Result<Build> {
        Ok(Build::Made(self.programs.get(&program).context("a program was not built")?.clone()))
    }

    /// Asks one checker after the other. Building is no checker.
    fn verdict(
        &self,
        switch: Option<usize>,
        is_quick: bool,
        build: &dyn Fn(Program) -> Result<Build>,
    ) -> Result<MutantVerdict> {
        for (index, checker) in asked(is_quick).iter().enumerate() {
            let executables = match build(checker.program)? {
                Build::Made(executables) => executables,
                Build::Refused(complaints) => return Ok(MutantVerdict::unviable(complaints)),
            };
            let is_of_checker = |executable: &&Executable| executable.is_of_tests() == checker.is_of_tests();
            for executable in executables.iter().filter(is_of_checker) {
                let cpu = if index < QUICK_CHECKERS { CPU_SECONDS_OF_QUICK } else { CPU_SECONDS };
                let mut command = executable.command(switch, cpu);
                let output = command.args(checker.words()).output().context("starting a checker failed")?;
                if !output.status.success() {
                    return Ok(objection(checker.name, output));
                }
            }
        }
        Ok(MutantVerdict::nobody(if is_quick { MutantOutcome::Open } else { MutantOutcome::Missed }))
    }
}

fn asked(is_quick: bool) -> &'static [MutantChecker] {
    if is_quick { &CHECKERS[..QUICK_CHECKERS] } else { CHECKERS }
}

impl MutantChecker {
    fn is_of_tests(&self) -> bool {
        self.program != Program::Simulator
    }

    /// What its program is started with.
    fn words(&self) -> Vec<&'static str> {
        match self.program {
            Program::LongScenarios => LONG_SCENARIOS.to_vec(),
            Program::ScriptedScenarios => LONG_SCENARIOS.iter().flat_map(|module| ["--skip", module]).collect(),
            _ => self.arguments.to_vec(),
        }
    }
}

fn objection(checker: &'static str, output: Output) -> MutantVerdict {
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let outcome = if was_ended(output.status, &text) { MutantOutcome::Ended } else { MutantOutcome::Caught };
    MutantVerdict { outcome, by: Some(checker), said: sentence(&text) }
}

/// Whether a limit ended a process, or the wish for more memory than there was.
fn was_ended(status: ExitStatus, text: &str) -> bool {
    let is_time_up = status.code() == Some(124) || status.signal().is_some();
    is_time_up || text.contains("memory allocation of")
}

/// The line that says what was wrong.
fn sentence(text: &str) -> Option<String> {
    let words = ["panicked at", "seed ", "scenario ", "sim --", "FAILED", "memory allocation of"];
    let line = text.lines().find(|line| words.iter().any(|word| line.contains(word)))?;
    Some(line.chars().take(200).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkers_are_named_once_in_their_order() {
        assert_eq!(names()[..3], ["unit tests", "scenarios", "engine's own scenarios"]);
        assert_eq!(names().len(), 10);
    }

    #[test]
    fn what_a_checker_said_is_found() {
        let text = "thread 'a' panicked at crates/engine/src/x.rs:1:2:\nno\n1 passed, 1 failed\n";
        assert_eq!(sentence(text).as_deref(), Some("thread 'a' panicked at crates/engine/src/x.rs:1:2:"));
        assert_eq!(sentence("all well"), None);
    }
}
