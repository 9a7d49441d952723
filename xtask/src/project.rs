//! Where the project and its build results are.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::Command;

pub struct Project {
    pub root: PathBuf,
    pub target: PathBuf,
    pub crates: Vec<Crate>,
}

/// A workspace member and what it depends on, tests aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crate {
    pub name: String,
    pub dependencies: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    workspace_root: PathBuf,
    target_directory: PathBuf,
    packages: Vec<CargoPackage>,
}

#[derive(Deserialize)]
struct CargoPackage {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

/// This package's folder. Checkouts may share a target folder, and then the program that cargo starts in one of them
/// was perhaps built in another: cargo's word at the start counts, not the one at the build.
pub fn here() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

impl Project {
    /// Asks cargo about the workspace that this program was started from.
    ///
    /// # Errors
    /// When cargo does not run or does not understand the workspace.
    pub fn find() -> Result<Project> {
        let manifest = here().join("Cargo.toml");
        let output = cargo()
            .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
            .arg(manifest)
            .output()
            .context("starting `cargo metadata` failed")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`cargo metadata` failed: {}", complaint.trim());
        let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
        let crates = metadata.packages.into_iter().map(Crate::of).collect();
        Ok(Project { root: metadata.workspace_root, target: metadata.target_directory, crates })
    }

    /// A command that starts in the project's root.
    pub fn command(&self, program: &str) -> Command {
        let mut command = if program == "cargo" { cargo() } else { Command::new(program) };
        command.current_dir(&self.root);
        command
    }

    /// The commit, for whoever compares reports.
    pub fn commit(&self) -> String {
        let output = self.command("git").args(["describe", "--always", "--dirty"]).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    }
}

impl Crate {
    fn of(package: CargoPackage) -> Crate {
        let is_for_tests = |dependency: &Dependency| dependency.kind.as_deref() == Some("dev");
        let dependencies = package.dependencies.into_iter();
        let dependencies = dependencies.filter(|dependency| !is_for_tests(dependency));
        Crate { name: package.name, dependencies: dependencies.map(|dependency| dependency.name).collect() }
    }
}

/// Says what is run, and runs it to its end, its output passing through.
///
/// # Errors
/// When the program cannot be started, or ends with a failure.
pub fn run(command: &mut Command) -> Result<()> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let title = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    println!("$ {title}");
    let status = command.status().with_context(|| format!("starting `{title}` failed"))?;
    ensure!(status.success(), "`{title}` failed; see above");
    Ok(())
}

/// What a program says on standard output.
///
/// # Errors
/// When it cannot be started, or ends with a failure.
pub fn text_of(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("starting `{program}` failed"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{program}` failed: {}", complaint.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The cargo that runs us, so that a chosen toolchain stays chosen.
fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}
