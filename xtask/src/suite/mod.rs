//! `cargo xtask test`: everything that must hold, in one command. CI runs this and nothing more.
//!
//! Each step runs to its end even if one before it failed, so one run tells everything. Programs'
//! output passes through; on the way their test counts are read off. The last line is the sum.

mod counts;
mod guest;
mod packages;
mod steps;

use crate::project::Project;
use anyhow::{Context, Result, ensure};
use counts::TestCounts;
pub use packages::is_there;
use std::fs;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use steps::{STEPS, SuiteStep};

/// Tests that cannot run here append a line with the reason to the file this variable names, and
/// pass. The runner counts them as skipped, not as passed, and repeats the reasons at the end.
const SKIPS_VARIABLE: &str = "FARSHORE_TEST_SKIPS";
/// Names this program to tests that want an emulated WAN (`$FARSHORE_XTASK wan up ...`).
const XTASK_VARIABLE: &str = "FARSHORE_XTASK";

#[derive(clap::Args)]
pub struct TestArgs {
    /// Leave out the steps that install something or take minutes
    #[arg(long)]
    quick: bool,
    /// Run only these steps
    steps: Vec<String>,
}

/// What a step works with.
pub struct StepContext {
    pub project: Project,
    pub is_quick: bool,
    skips: PathBuf,
}

/// How a step ended.
pub enum StepOutcome {
    Ok(TestCounts),
    Failed(TestCounts, String),
}

struct StepRecord {
    name: &'static str,
    time: Duration,
    outcome: StepOutcome,
}

/// Runs the chosen steps and prints the table. The exit code is non-zero if anything failed.
pub fn main(arguments: TestArgs) -> Result<ExitCode> {
    let chosen = choose(&arguments)?;
    let project = Project::find()?;
    let skips = project.target.join("test-skips.txt");
    fs::create_dir_all(&project.target)?;
    fs::write(&skips, "").with_context(|| format!("writing {} failed", skips.display()))?;
    let bench = StepContext { project, is_quick: arguments.quick, skips };
    let mut records = Vec::new();
    for step in chosen {
        println!("\n== {}: {}", step.name, step.what);
        let start = Instant::now();
        let outcome = (step.run)(&bench).unwrap_or_else(|error| {
            println!("{}: {error:#}", step.name);
            StepOutcome::Failed(TestCounts::default(), format!("{error:#}"))
        });
        records.push(StepRecord { name: step.name, time: start.elapsed(), outcome });
    }
    let skips = fs::read_to_string(&bench.skips)?;
    Ok(conclude(&records, &skips))
}

fn choose(arguments: &TestArgs) -> Result<Vec<&'static SuiteStep>> {
    for name in &arguments.steps {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        ensure!(names.contains(&name.as_str()), "there is no step `{name}`; the steps are: {}", names.join(", "));
    }
    let is_chosen = |step: &&SuiteStep| {
        let is_named = arguments.steps.iter().any(|name| name == step.name);
        is_named || (arguments.steps.is_empty() && !(arguments.quick && step.is_slow))
    };
    Ok(STEPS.iter().filter(is_chosen).collect())
}

/// Prints the table, the skips and the sum.
fn conclude(records: &[StepRecord], skips: &str) -> ExitCode {
    println!("\n{:<10} {:>8}  result", "step", "seconds");
    let mut sum = TestCounts::default();
    let mut is_ok = true;
    for StepRecord { name, time, outcome } in records {
        let verdict = match outcome {
            StepOutcome::Ok(counts) => {
                sum.add(counts);
                if counts.flaky > 0 { format!("ok, but {} flaky", counts.flaky) } else { "ok".to_owned() }
            }
            StepOutcome::Failed(counts, reason) => {
                is_ok = false;
                // A step without tests, or one that broke before its tests, still fails the sum.
                sum.add(&TestCounts { failed: counts.failed.max(1), ..*counts });
                format!("FAILED ({reason})")
            }
        };
        println!("{name:<10} {:>8.1}  {verdict}", time.as_secs_f64());
    }
    for skip in skips.lines() {
        println!("SKIPPED {skip}");
    }
    sum.turn_into_skips(skips.lines().count() as u64);
    println!("{sum}");
    if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl StepContext {
    /// Runs a program in the project's root, its output passing through, and reads the counts off.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<StepOutcome> {
        let mut command = self.project.command(program);
        command.args(arguments).env(SKIPS_VARIABLE, &self.skips);
        command.env(XTASK_VARIABLE, std::env::current_exe()?);
        if std::io::stdout().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
        let title = format!("{program} {}", arguments.join(" "));
        println!("$ {title}");
        let (is_success, counts) = run_through(command).with_context(|| format!("running `{title}` failed"))?;
        Ok(if is_success { StepOutcome::Ok(counts) } else { StepOutcome::Failed(counts, format!("`{title}`")) })
    }
}

impl StepContext {
    /// A step that cannot run here: the reason is repeated at the end.
    pub fn skip(&self, reason: &str) -> Result<()> {
        let mut list = fs::File::options().append(true).create(true).open(&self.skips)?;
        Ok(writeln!(list, "{}", reason.replace('\n', " "))?)
    }
}

impl StepOutcome {
    /// A runner that found no test at all has not shown anything.
    pub fn or_failed_if_empty(self) -> StepOutcome {
        match self {
            StepOutcome::Ok(counts) if counts.passed == 0 => {
                StepOutcome::Failed(counts, "it reported no test".to_owned())
            }
            other => other,
        }
    }

    /// Two halves of one step: the sum of what they counted, and the reasons of those that failed.
    pub fn and(self, other: StepOutcome) -> StepOutcome {
        let (mut counts, reasons) = self.parts();
        let (more, more_reasons) = other.parts();
        counts.add(&more);
        match reasons.into_iter().chain(more_reasons).reduce(|all, next| format!("{all}; {next}")) {
            None => StepOutcome::Ok(counts),
            Some(reason) => StepOutcome::Failed(counts, reason),
        }
    }

    fn parts(self) -> (TestCounts, Option<String>) {
        match self {
            StepOutcome::Ok(counts) => (counts, None),
            StepOutcome::Failed(counts, reason) => (counts, Some(reason)),
        }
    }
}

fn run_through(mut command: Command) -> Result<(bool, TestCounts)> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().expect("stdout is piped");
    let stderr = child.stderr.take().expect("stderr is piped");
    let counts = std::thread::scope(|scope| {
        let complaints = scope.spawn(|| pass_through(stderr));
        let mut counts = pass_through(stdout)?;
        counts.add(&complaints.join().expect("no panic while copying lines")?);
        anyhow::Ok(counts)
    })?;
    Ok((child.wait()?.success(), counts))
}

fn pass_through(output: impl Read) -> Result<TestCounts> {
    let mut counts = TestCounts::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        if let Some(more) = TestCounts::of_line(&line) {
            counts.add(&more);
        }
    }
    Ok(counts)
}
