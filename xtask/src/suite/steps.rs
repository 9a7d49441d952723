//! The steps of `cargo xtask test`, in their order. A new one is a line in `STEPS` and a function.

use super::{StepContext, StepOutcome, TestCounts, guest, packages};
use crate::tidy;
use crate::tools::{CARGO_DENY, MDBOOK};
use anyhow::Result;

pub struct SuiteStep {
    pub name: &'static str,
    pub what: &'static str,
    /// Left out by `--quick`.
    pub is_slow: bool,
    pub run: fn(&StepContext) -> Result<StepOutcome>,
}

pub const STEPS: &[SuiteStep] = &[
    SuiteStep { name: "prepare", what: "install what the tests need", is_slow: true, run: packages::prepare },
    SuiteStep { name: "fmt", what: "formatting", is_slow: false, run: format },
    SuiteStep { name: "clippy", what: "lints; every warning is an error", is_slow: false, run: clippy },
    SuiteStep { name: "deny", what: "licences and origins of dependencies", is_slow: true, run: deny },
    SuiteStep { name: "tidy", what: "rules of the house", is_slow: false, run: tidy_up },
    SuiteStep { name: "book", what: "the manual as a book, into target/book", is_slow: true, run: book },
    SuiteStep {
        name: "test",
        what: "unit, scenario and whole-process tests, replay of fuzz corpora",
        is_slow: false,
        run: tests,
    },
    SuiteStep {
        name: "guest",
        what: "a volume as a device of Debian's kernel, in an emulated machine",
        is_slow: true,
        run: guest::attach,
    },
    SuiteStep { name: "doc", what: "examples in documentation", is_slow: true, run: examples },
    SuiteStep { name: "sim", what: "simulated clusters, one per seed", is_slow: false, run: simulate },
    SuiteStep { name: "sparse", what: "sparse scenarios", is_slow: false, run: play_scenarios },
    SuiteStep {
        name: "hostile",
        what: "peers that are authenticated and wrong",
        is_slow: false,
        run: meet_hostile_peers,
    },
    SuiteStep {
        name: "histories",
        what: "every short history of a pair, judged by what both images hold",
        is_slow: false,
        run: judge_histories,
    },
    SuiteStep {
        name: "crashes",
        what: "scripted scenarios with a crash at their instants",
        is_slow: true,
        run: enumerate_crashes,
    },
];

/// Seeds for the simulator: it prints one summary line, `N passed, N failed`. From a thousand on it also wants every rare
/// branch and every edge of the state table taken.
const SIM_ARGUMENTS: &[&str] = &["--seeds", "1000"];
const SIM_ARGUMENTS_QUICK: &[&str] = &["--seeds", "20"];

/// A minute or two on two cores: each of the losses that only they have met comes up several times.
const SPARSE_ARGUMENTS: &[&str] = &["--sparse", "0..10000"];
const SPARSE_ARGUMENTS_QUICK: &[&str] = &["--sparse", "0..2000"];

const HOSTILE_ARGUMENTS: &[&str] = &["--hostile", "0..2000"];
const HOSTILE_ARGUMENTS_QUICK: &[&str] = &["--hostile", "0..200"];

/// Half a minute of one core; the quick ones are an eighth.
const HISTORY_ARGUMENTS: &[&str] = &["--histories"];
const HISTORY_ARGUMENTS_QUICK: &[&str] = &["--histories", "3"];

fn format(bench: &StepContext) -> Result<StepOutcome> {
    bench.run("cargo", &["fmt", "--all", "--check"])
}

fn clippy(bench: &StepContext) -> Result<StepOutcome> {
    bench.run("cargo", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])
}

fn deny(bench: &StepContext) -> Result<StepOutcome> {
    let program = CARGO_DENY.install(&bench.project)?;
    bench.run(&program, &["check", "--hide-inclusion-graph", "licenses", "bans", "sources"])
}

/// That each page is in it and each link leads somewhere is what `tidy` checks.
fn book(bench: &StepContext) -> Result<StepOutcome> {
    let program = MDBOOK.install(&bench.project)?;
    let folder = bench.project.target.join("book");
    bench.run(&program, &["build", "docs/book", "--dest-dir", &folder.to_string_lossy()])
}

fn tidy_up(bench: &StepContext) -> Result<StepOutcome> {
    let problems = tidy::check(&bench.project)?;
    for problem in &problems {
        println!("{problem}");
    }
    Ok(match problems.len() {
        0 => StepOutcome::Ok(TestCounts::default()),
        count => StepOutcome::Failed(TestCounts::default(), format!("{count} problems")),
    })
}

fn tests(bench: &StepContext) -> Result<StepOutcome> {
    let mut nextest = bench.project.command("cargo");
    let has_nextest = nextest.args(["nextest", "--version"]).output()?.status.success();
    // Half of the tests of whole processes wait most of the time, for a deadline of theirs: four at once leave a fifth of two cores idle.
    let cores = std::thread::available_parallelism()?.get();
    let threads = (cores + cores.div_ceil(2).max(2)).to_string();
    let at_once = ["--test-threads", threads.as_str()];
    let (runner, at_once): (&[&str], &[&str]) =
        if has_nextest { (&["nextest", "run"], &at_once) } else { (&["test", "--tests"], &[]) };
    let common = [runner, at_once, &["--locked", "--no-fail-fast"]].concat();
    let whole = bench.run("cargo", &[&common[..], &["--workspace", "--exclude", "sim"]].concat())?.or_failed_if_empty();
    // Scenarios only compute: they are built as the seeds are, optimized and with every assertion on.
    let profile = if has_nextest { "--cargo-profile" } else { "--profile" };
    let scenarios = bench.run("cargo", &[&common[..], &["--package", "sim", profile, "sim"]].concat())?;
    Ok(whole.and(scenarios.or_failed_if_empty()))
}

fn examples(bench: &StepContext) -> Result<StepOutcome> {
    bench.run("cargo", &["test", "--workspace", "--locked", "--doc"])
}

fn simulate(bench: &StepContext) -> Result<StepOutcome> {
    run_simulator(bench, if bench.is_quick { SIM_ARGUMENTS_QUICK } else { SIM_ARGUMENTS })
}

fn play_scenarios(bench: &StepContext) -> Result<StepOutcome> {
    run_simulator(bench, if bench.is_quick { SPARSE_ARGUMENTS_QUICK } else { SPARSE_ARGUMENTS })
}

fn meet_hostile_peers(bench: &StepContext) -> Result<StepOutcome> {
    run_simulator(bench, if bench.is_quick { HOSTILE_ARGUMENTS_QUICK } else { HOSTILE_ARGUMENTS })
}

fn judge_histories(bench: &StepContext) -> Result<StepOutcome> {
    run_simulator(bench, if bench.is_quick { HISTORY_ARGUMENTS_QUICK } else { HISTORY_ARGUMENTS })
}

fn enumerate_crashes(bench: &StepContext) -> Result<StepOutcome> {
    run_simulator(bench, &["--scenarios"])
}

fn run_simulator(bench: &StepContext, with: &[&str]) -> Result<StepOutcome> {
    let mut arguments = vec!["run", "--quiet", "--locked", "--profile", "sim", "--package", "sim", "--"];
    arguments.extend(with);
    Ok(bench.run("cargo", &arguments)?.or_failed_if_empty())
}
