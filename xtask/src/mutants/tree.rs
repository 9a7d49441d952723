//! The scratch copy of the project: its files, with switches or with one mutant, and what cargo builds of them.

use super::list::{Mutant, fnv1a};
use super::switches::{self, Switched};
use crate::project::Project;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// In processor time, of a process: the long scripted scenarios, which take longest, are done in a third of it.
pub const CPU_SECONDS: &str = "--cpu=600";
/// Address space of each process.
const MEMORY: &str = "--as=6442450944";
/// In any case: what sleeps uses no processor time.
const SECONDS: &str = "1800";

/// A copy of the project's sources with build results of its own.
pub struct Tree {
    root: PathBuf,
    build: PathBuf,
    /// A line for each mutant that did not compile behind a switch.
    refused: PathBuf,
    /// What the project has, by its path there.
    files: BTreeMap<String, Vec<u8>>,
}

/// A program that was built.
#[derive(Clone, Debug)]
pub struct Executable {
    path: PathBuf,
    /// Of its package, where cargo would start it.
    folder: PathBuf,
}

/// What came of a build.
pub enum Build {
    Made(Vec<Executable>),
    Refused(Vec<Complaint>),
}

/// A compiler's error.
#[derive(Debug, Deserialize)]
pub struct Complaint {
    level: String,
    pub message: String,
    spans: Vec<ErrorSpan>,
    children: Vec<Complaint>,
}

#[derive(Debug, Deserialize)]
struct ErrorSpan {
    file_name: String,
    byte_start: usize,
    byte_end: usize,
}

/// A line of cargo's.
#[derive(Deserialize)]
struct Message {
    message: Option<Complaint>,
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
}

/// The copy with switches.
pub struct SwitchedTree {
    /// Those that have a switch. The others are to be built for themselves.
    pub switched: BTreeSet<usize>,
    /// Tells the state of the project's crates from any other.
    pub project_hash: String,
    /// The same for the copy.
    pub copy_hash: String,
}

impl Tree {
    /// Reads the project; nothing is written yet.
    ///
    /// # Errors
    /// When git does not know the project's files.
    pub fn new(project: &Project, folder: &Path) -> Result<Tree> {
        // A file removed but not yet from the index is no file.
        let read = |path: &String| Some((path.clone(), fs::read(project.root.join(path)).ok()?));
        let files = names(project)?.iter().filter_map(read).collect();
        let [root, build, refused] = ["tree", "build", "refused"].map(|name| folder.join(name));
        Ok(Tree { root, build, refused, files })
    }

    /// Makes the copy what the project is, with a switch for each mutant that can have one.
    ///
    /// # Errors
    /// When a file cannot be written, or the engine does not compile and no mutant is the reason.
    pub fn switch(&self, mutants: &[Mutant]) -> Result<SwitchedTree> {
        let line = |mutant: &Mutant| format!("{} {}\n", mutant.fingerprint(), mutant.name);
        // Were these tried again, every program would be built again.
        let mut refused = fs::read_to_string(&self.refused).unwrap_or_default();
        let mut mutants: Vec<&Mutant> = mutants.iter().filter(|mutant| !refused.contains(&line(mutant))).collect();
        loop {
            let with_switches = self.with_switches(&mutants)?;
            let mut copy = self.files.clone();
            copy.insert(switches::MODULE_FILE.to_owned(), switches::MODULE.as_bytes().to_vec());
            for (file, switched) in &with_switches {
                copy.insert(file.clone(), switched.text.clone().into_bytes());
            }
            if let Some(library) = copy.get_mut(switches::LIBRARY_FILE) {
                library.extend(switches::MODULE_NAMED.as_bytes());
            }
            self.write(&copy)?;
            let complaints = match self.cargo(&["check", "--package", "engine"])? {
                Build::Refused(complaints) => complaints,
                Build::Made(_) => {
                    let ranges = with_switches.values().flat_map(|switched| &switched.ranges);
                    let switched = ranges.map(|(id, _)| *id).collect();
                    let (project_hash, copy_hash) = (hash(&self.files), hash(&copy));
                    return Ok(SwitchedTree { switched, project_hash, copy_hash });
                }
            };
            let guilty = guilty(&complaints, &with_switches);
            let (out, rest): (Vec<_>, _) = mutants.into_iter().partition(|mutant| guilty.contains(&mutant.id));
            ensure!(!out.is_empty(), "the engine does not compile: {complaints:?}");
            refused.extend(out.into_iter().map(line));
            fs::write(&self.refused, &refused)?;
            mutants = rest;
        }
    }

    fn with_switches(&self, mutants: &[&Mutant]) -> Result<BTreeMap<String, Switched>> {
        let mut changes: BTreeMap<&String, Vec<switches::TextChange>> = BTreeMap::new();
        for mutant in mutants {
            changes.entry(&mutant.file).or_default().push(mutant.change(self.original(mutant)?)?);
        }
        let switched = |(file, changes): (&String, Vec<_>)| {
            let text = str::from_utf8(&self.files[file])?;
            Ok((file.clone(), Switched::new(text, &changes).with_context(|| file.clone())?))
        };
        changes.into_iter().map(switched).collect()
    }

    fn original(&self, mutant: &Mutant) -> Result<&str> {
        let content = self.files.get(&mutant.file).with_context(|| format!("{} is no file", mutant.file))?;
        Ok(str::from_utf8(content)?)
    }

    /// The copy has this one mutant, as it would be without switches, while `task` runs.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn with_mutant<T>(&self, mutant: &Mutant, task: impl FnOnce() -> Result<T>) -> Result<T> {
        let path = self.root.join(&mutant.file);
        let before = fs::read(&path)?;
        let mut text = mutant.applied(self.original(mutant)?)?;
        if mutant.file == switches::LIBRARY_FILE {
            text.push_str(switches::MODULE_NAMED);
        }
        fs::write(&path, text)?;
        let result = task();
        fs::write(&path, before).with_context(|| format!("restoring {} failed", path.display()))?;
        result
    }

    /// Files that are so already keep their times: they need no new build.
    fn write(&self, copy: &BTreeMap<String, Vec<u8>>) -> Result<()> {
        for (path, content) in copy {
            let path = self.root.join(path);
            if !fs::read(&path).is_ok_and(|there| there == *content) {
                path.parent().map_or(Ok(()), fs::create_dir_all)?;
                fs::write(&path, content).with_context(|| format!("writing {} failed", path.display()))?;
            }
        }
        Ok(())
    }

    /// Builds, and runs nothing.
    ///
    /// # Errors
    /// When cargo fails, and no code is the reason.
    pub fn cargo(&self, arguments: &[&str]) -> Result<Build> {
        let (task, options) = arguments.split_first().context("no task for cargo")?;
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut command = bounded(&cargo, CPU_SECONDS);
        command.args([task, "--profile", "mutants", "--locked", "--quiet", "--message-format=json"]).args(options);
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.build);
        // A warning about code that a mutant left without use says nothing.
        command.env("RUSTFLAGS", "--cap-lints=allow");
        let output = command.output().context("starting `cargo` failed")?;
        let lines = output.stdout.split(|byte| *byte == b'\n');
        let messages = lines.filter_map(|line| serde_json::from_slice::<Message>(line).ok());
        let (mut made, mut complaints) = (Vec::new(), Vec::new());
        for message in messages {
            complaints.extend(message.message.filter(|complaint| complaint.level == "error"));
            let folder = message.manifest_path.and_then(|path| Some(path.parent()?.to_owned()));
            made.extend(message.executable.zip(folder).map(|(path, folder)| Executable { path, folder }));
        }
        match (output.status.success(), complaints.is_empty()) {
            (true, _) => Ok(Build::Made(made)),
            (false, false) => Ok(Build::Refused(complaints)),
            _ => bail!("`cargo {task}` failed: {}", String::from_utf8_lossy(&output.stderr).trim()),
        }
    }
}

impl Executable {
    /// To be run with that switch on, or none.
    pub fn command(&self, switch: Option<usize>, cpu: &str) -> Command {
        let mut command = bounded(&self.path.to_string_lossy(), cpu);
        command.current_dir(&self.folder).env("RUST_BACKTRACE", "0").env_remove(switches::VARIABLE);
        command.envs(switch.map(|id| (switches::VARIABLE, id.to_string())));
        command
    }

    /// Whether it is a program of tests; those stand in a folder of their own.
    pub fn is_of_tests(&self) -> bool {
        self.path.parent().is_some_and(|folder| folder.ends_with("deps"))
    }
}

/// A program that is ended when it comes to no end by itself.
fn bounded(program: &str, cpu: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", SECONDS, "prlimit", cpu, MEMORY, "--core=0", program]);
    command
}

/// Of whose code the compiler complains; if it points at no mutant's, all of the files that it names.
fn guilty(complaints: &[Complaint], files: &BTreeMap<String, Switched>) -> BTreeSet<usize> {
    let (mut guilty, mut beside) = (BTreeSet::new(), BTreeSet::new());
    for complaint in complaints {
        let ranges = complaint.spans.iter().chain(complaint.children.iter().flat_map(|child| &child.spans));
        for span in ranges {
            let Some(switched) = files.get(&span.file_name) else { continue };
            guilty.extend(switched.at(&(span.byte_start..span.byte_end)));
            beside.extend(switched.ranges.iter().map(|(id, _)| *id));
        }
    }
    if guilty.is_empty() { beside } else { guilty }
}

fn hash(files: &BTreeMap<String, Vec<u8>>) -> String {
    let ours = files.iter().filter(|(path, _)| path.starts_with("crates/"));
    let all: Vec<u8> = ours.flat_map(|(_, content)| fnv1a(content).to_le_bytes()).collect();
    format!("{:016x}", fnv1a(&all))
}

/// What belongs to the project.
fn names(project: &Project) -> Result<Vec<String>> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = project.command("git").args(list).output().context("starting `git` failed")?;
    ensure!(output.status.success(), "`git ls-files` failed");
    let list = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    Ok(list.split_terminator('\0').map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The compiler names a place of the changed text; where that is nobody's, no mutant of the file is trusted.
    #[test]
    fn who_does_not_compile_is_found_by_the_line() {
        let text = "fn f() -> u8 { 1 + 2 }\nfn g() -> u8 { 3 * 4 }\n";
        let change = |id, from: &str, to: &str| {
            let start = text.find(from).expect("it is there");
            switches::TextChange { id, range: start..start + from.len(), replacement: to.to_owned() }
        };
        let switched = Switched::new(text, &[change(1, "+", "=="), change(2, "*", "/")]).expect("it is Rust");
        let at = |word: &str| switched.text.find(word).expect("it is there");
        let complaint = |span: usize| Complaint {
            level: "error".to_owned(),
            message: "mismatched types".to_owned(),
            spans: vec![ErrorSpan { file_name: "a.rs".to_owned(), byte_start: span, byte_end: span + 1 }],
            children: Vec::new(),
        };
        let (in_one, in_none) = (complaint(at("==")), complaint(0));
        let files = BTreeMap::from([("a.rs".to_owned(), switched)]);
        assert_eq!(guilty(&[in_one], &files), [1].into());
        assert_eq!(guilty(&[in_none], &files), [1, 2].into());
    }
}
