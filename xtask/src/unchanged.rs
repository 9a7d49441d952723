//! `cargo xtask unchanged`: whether the engine behaves as it did at another commit. Every run of the simulator that is told
//! prints a line per transition; the lines of both are compared, byte for byte.

use crate::project::Project;
use anyhow::{Context, Result, ensure};
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;

#[derive(clap::Args)]
pub struct UnchangedArgs {
    /// The commit that the sources as they are now, uncommitted changes too, are compared with
    #[arg(default_value = "HEAD")]
    since: String,
    /// Seeds, each with its skirmish
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Sparse scenarios
    #[arg(long, default_value_t = 2000)]
    scenarios: u64,
    /// Seeds with volumes of 8 GiB to 16 TiB
    #[arg(long, default_value_t = 10)]
    wide: u64,
    /// Seeds with 65 to 128 groups
    #[arg(long, default_value_t = 4)]
    crowds: u64,
    /// A file of renamed words, `OLD NEW` on each line, or with a tab between phrases: the other commit's lines are compared as if
    /// they had the new ones, and its simulator is called by the old ones
    #[arg(long, value_name = "FILE")]
    words: Option<PathBuf>,
}

/// A program and what it is started with.
type SimRun = Vec<String>;

/// What comparing one run came to.
enum Compared {
    Same { lines: u64 },
    Differs(String),
}

/// Builds the simulator twice, compares every run, and prints the sum. Non-zero if one differs.
pub fn main(arguments: &UnchangedArgs) -> Result<ExitCode> {
    let project = Project::find()?;
    let words = arguments.words.as_deref().map_or_else(|| Ok(Vec::new()), read_words)?;
    let folder = project.target.join("unchanged");
    let commit = commit_of(&project, &arguments.since)?;
    let before = build_commit(&project, &commit, &folder)?;
    let after = build_sim(&project.root, &project.target)?;
    let runs = all_runs(arguments, &after)?;
    let (mut lines, mut differences) = (0, Vec::new());
    for compared in compare_all(&before, &after, runs.clone(), &words)? {
        match compared {
            Compared::Same { lines: of_run } => lines += of_run,
            Compared::Differs(how) => differences.push(how),
        }
    }
    differences.iter().for_each(|how| println!("{how}"));
    let of = format!("{} runs of {} and of the sources as they are", runs.len(), &commit[..commit.len().min(12)]);
    if differences.is_empty() {
        println!("{of}: the same {lines} lines");
        return Ok(ExitCode::SUCCESS);
    }
    println!("{of}: {} differ", differences.len());
    Ok(ExitCode::FAILURE)
}

fn commit_of(project: &Project, name: &str) -> Result<String> {
    let output = project.command("git").args(["rev-parse", "--verify", &format!("{name}^{{commit}}")]).output()?;
    ensure!(output.status.success(), "git knows no commit `{name}`");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The simulator of a commit, built once.
fn build_commit(project: &Project, commit: &str, folder: &Path) -> Result<PathBuf> {
    let made = folder.join(format!("sim-{commit}"));
    if made.exists() {
        return Ok(made);
    }
    let tree = folder.join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree).with_context(|| format!("removing {} failed", tree.display()))?;
    }
    fs::create_dir_all(&tree).with_context(|| format!("making {} failed", tree.display()))?;
    let packed = folder.join("tree.tar");
    let archive = project.command("git").arg("archive").arg("--output").arg(&packed).arg(commit).status()?;
    ensure!(archive.success(), "`git archive {commit}` failed");
    let unpacked = Command::new("tar").arg("-xf").arg(&packed).arg("-C").arg(&tree).status()?;
    ensure!(unpacked.success(), "unpacking {} failed", packed.display());
    let built = build_sim(&tree, &folder.join("build"))?;
    fs::copy(&built, &made).with_context(|| format!("copying {} failed", built.display()))?;
    Ok(made)
}

fn build_sim(root: &Path, target: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--profile", "sim", "--locked", "--package", "sim"])
        .current_dir(root)
        .env("CARGO_TARGET_DIR", target)
        .status()
        .context("starting `cargo build` failed")?;
    ensure!(status.success(), "building the simulator in {} failed; see above", root.display());
    Ok(target.join("sim/sim"))
}

fn all_runs(arguments: &UnchangedArgs, sim: &Path) -> Result<Vec<SimRun>> {
    let seeds = (0..arguments.seeds).map(|seed| vec![seed.to_string()]);
    let scenarios = (0..arguments.scenarios).map(|number| vec!["--sparse".to_owned(), number.to_string()]);
    let alone = |profile: &'static str, count: u64| {
        (0..count).map(move |seed| vec![profile.to_owned(), format!("{seed}..{}", seed + 1)])
    };
    let names = Command::new(sim).args(["--scenarios", "names"]).output().context("starting the simulator failed")?;
    let names = String::from_utf8_lossy(&names.stdout).into_owned();
    let scripted = names.lines().map(|name| vec!["--scenario".to_owned(), name.to_owned()]);
    // The long ones first: no core waits for another one at the end.
    let long = alone("--crowd", arguments.crowds).chain(alone("--wide", arguments.wide));
    Ok(long.chain(scripted).chain(seeds).chain(scenarios).collect())
}

/// Every run, as many at once as there are cores.
fn compare_all(before: &Path, after: &Path, runs: Vec<SimRun>, words: &[(String, String)]) -> Result<Vec<Compared>> {
    let runs = Mutex::new(VecDeque::from(runs));
    let work = || {
        let mut done = Vec::new();
        loop {
            let next = runs.lock().ok().and_then(|mut runs| runs.pop_front());
            let Some(run) = next else { return done };
            done.push(compare_run(before, after, &run, words));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let mut done = Vec::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).for_each(|part| done.extend(part));
    });
    done.into_iter().collect()
}

fn compare_run(before: &Path, after: &Path, run: &SimRun, words: &[(String, String)]) -> Result<Compared> {
    let (before, after) = (renamed(&lines_of(before, &in_old_words(run, words))?, words), lines_of(after, run)?);
    if before == after {
        return Ok(Compared::Same { lines: after.lines().count() as u64 });
    }
    let pairs = before.lines().map(Some).chain([None]).zip(after.lines().map(Some).chain([None]));
    let at = pairs.clone().position(|(before, after)| before != after).unwrap_or_default();
    let line = |text: &str| text.lines().nth(at).unwrap_or("(nothing more)").to_owned();
    Ok(Compared::Differs(format!("sim {}, line {}:\n- {}\n+ {}", run.join(" "), at + 1, line(&before), line(&after))))
}

/// What a run prints, and how it ends.
fn lines_of(sim: &Path, run: &SimRun) -> Result<String> {
    let output = Command::new(sim).args(run).output().with_context(|| format!("starting {} failed", sim.display()))?;
    let code = output.status.code().map_or_else(|| "a signal".to_owned(), |code| code.to_string());
    Ok(format!("{}exit code: {code}\n", String::from_utf8_lossy(&output.stdout)))
}

fn read_words(file: &Path) -> Result<Vec<(String, String)>> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {} failed", file.display()))?;
    let mut words = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let pair = line
            .split_once('\t')
            .or_else(|| line.split_once(' '))
            .with_context(|| format!("{}, line {}: `{line}` is no `OLD NEW`", file.display(), number + 1))?;
        words.push((pair.0.to_owned(), pair.1.to_owned()));
    }
    // Of phrases that begin alike the longest counts.
    words.sort_by_key(|(old, _)| std::cmp::Reverse(old.len()));
    Ok(words)
}

/// With each old word or phrase, where it stands alone, replaced by the new one.
fn renamed(text: &str, words: &[(String, String)]) -> String {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut new = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let stands_alone =
            |old: &String| rest.strip_prefix(old.as_str()).is_some_and(|behind| !behind.starts_with(is_of_word));
        let end = match words.iter().find(|(old, _)| stands_alone(old)) {
            Some((old, word)) => {
                new.push_str(word);
                old.len()
            }
            None => {
                let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
                new.push_str(&rest[..end]);
                end
            }
        };
        rest = &rest[end..];
        let end = rest.find(is_of_word).unwrap_or(rest.len());
        new.push_str(&rest[..end]);
        rest = &rest[end..];
    }
    new
}

/// What the other commit's simulator is called with.
fn in_old_words(run: &SimRun, words: &[(String, String)]) -> SimRun {
    let old = |word: &String| words.iter().find(|(_, new)| new == word).map_or(word, |(old, _)| old).clone();
    run.iter().map(old).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Vec<(String, String)> {
        let pairs =
            [("cut short", "cut short"), ("Settling", "Reconciling"), ("--story", "--scenario"), ("cut", "snapshot")];
        pairs.map(|(old, new)| (old.to_owned(), new.to_owned())).to_vec()
    }

    #[test]
    fn only_whole_words_are_renamed_and_longer_phrases_first() {
        let text = "State { to: Settling, why: \"cut 1: cutting\" } cut short, cut\n";
        let new = "State { to: Reconciling, why: \"snapshot 1: cutting\" } cut short, snapshot\n";
        assert_eq!(renamed(text, &words()), new);
    }

    #[test]
    fn the_other_commit_is_called_by_its_own_words() {
        let run = ["--scenario", "snapshot"].map(str::to_owned).to_vec();
        assert_eq!(in_old_words(&run, &words()), ["--story", "cut"]);
        let seed = vec!["17".to_owned()];
        assert_eq!(in_old_words(&seed, &words()), seed);
    }
}
