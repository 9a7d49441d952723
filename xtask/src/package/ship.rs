//! The program as it ships, and the packages around it.

use super::manifest::registry_folders;
use crate::project::{Project, run, text_of};
use crate::tools::{CARGO_DEB, CARGO_GENERATE_RPM};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The profile, and so the folder: what is built with renamed paths must not take turns with what is not.
const PROFILE: &str = "ship";
/// Where debuggers are told that the sources are.
const SOURCES: &str = "/usr/src/farshore";
const CRATES: &str = "/usr/src/farshore-crates";

/// One build, from a commit.
pub struct ShipBuild<'a> {
    pub project: &'a Project,
    pub commit: String,
    /// Seconds since 1970 of the commit: every date in a package.
    epoch: String,
}

/// The programs that write the archives.
pub struct Packers {
    debian: String,
    rpm: String,
}

impl Packers {
    /// # Errors
    /// When one is not there and cannot be built.
    pub fn install(project: &Project) -> Result<Packers> {
        Ok(Packers { debian: CARGO_DEB.install(project)?, rpm: CARGO_GENERATE_RPM.install(project)? })
    }
}

impl ShipBuild<'_> {
    /// # Errors
    /// When git does not know the last commit.
    pub fn new(project: &Project) -> Result<ShipBuild<'_>> {
        let last = text_of(project.command("git").args(["log", "-1", "--format=%H %ct"]))?;
        let (commit, epoch) = last.trim().split_once(' ').context("git says commit and date")?;
        Ok(ShipBuild { project, commit: commit.to_owned(), epoch: epoch.to_owned() })
    }

    /// Where everything is made; the tables of both tools call it `target/release`.
    pub fn folder(&self) -> PathBuf {
        self.project.target.join(PROFILE)
    }

    /// Builds the program, with its debug symbols still in it.
    ///
    /// # Errors
    /// When cargo or rustc fails.
    pub fn make_program(&self) -> Result<()> {
        let renamed = self.renamed_paths()?;
        let rust = renamed.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
        // gcc takes the last that fits too.
        let c = renamed.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}"));
        let mut cargo = self.command("cargo");
        cargo.args(["build", "--locked", "--profile", PROFILE, "--package", "farshore", "--bin", "farshore"]);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", rust.collect::<Vec<_>>().join("\u{1f}"));
        cargo.env("CFLAGS", c.collect::<Vec<_>>().join(" ")).env("CARGO_INCREMENTAL", "0");
        // No date is in the program, and the commit's would have all C built anew with every commit.
        cargo.env("SOURCE_DATE_EPOCH", "0");
        run(&mut cargo)
    }

    /// Packs what was made, into a folder that holds nothing else: program and debug symbols for Debian, then the same
    /// program as an `.rpm`.
    ///
    /// # Errors
    /// When a tool fails, or a file that is to be packed is missing.
    pub fn make_packages(&self, packers: &Packers) -> Result<Vec<PathBuf>> {
        let (out, unpacked) = (self.folder().join("packages"), self.folder().join("unpacked"));
        for folder in [&out, &unpacked] {
            if folder.exists() {
                fs::remove_dir_all(folder)?;
            }
            fs::create_dir_all(folder)?;
        }
        let mut pack = self.command(&packers.debian);
        pack.args(["--no-build", "--locked", "--profile", PROFILE, "--package", "farshore", "--dbgsym", "--output"]);
        run(pack.arg(&out))?;
        let made = files_of(&out)?;
        let package = made.iter().find(|file| file.extension().is_some_and(|end| end == "deb"));
        run(Command::new("dpkg-deb")
            .arg("--extract")
            .arg(package.context("cargo-deb made no package")?)
            .arg(unpacked))?;
        let mut pack = self.command(&packers.rpm);
        // The other ways to find what the program needs depend on what else is installed.
        pack.args(["--profile", PROFILE, "--package", "crates/farshore", "--auto-req", "builtin", "--output"]);
        run(pack.arg(&out))?;
        files_of(&out)
    }

    /// A program that dates what it makes by the commit, and that hears of nobody's configuration.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.project.command(program);
        command.env("SOURCE_DATE_EPOCH", &self.epoch).env("CARGO_TARGET_DIR", &self.project.target);
        command.env_remove("FARSHORE_CONFIG").env("LC_ALL", "C").env("TZ", "UTC");
        command
    }

    /// Folders of this machine, and what stands for each in the program. The last that fits counts.
    fn renamed_paths(&self) -> Result<Vec<(String, String)>> {
        let sysroot = text_of(self.project.command("rustc").args(["--print", "sysroot"]))?;
        let about = text_of(self.project.command("rustc").arg("-vV"))?;
        let commit = about.lines().find_map(|line| line.strip_prefix("commit-hash: ")).context("rustc has a commit")?;
        let mut renamed = vec![(format!("{}/lib/rustlib/src/rust", sysroot.trim()), format!("/rustc/{commit}"))];
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        renamed.extend(registry_folders(self.project)?.iter().map(|folder| (path(folder), CRATES.to_owned())));
        renamed.push((path(&self.project.root), SOURCES.to_owned()));
        renamed.push((path(&self.project.target), format!("{SOURCES}/target")));
        Ok(renamed)
    }
}

/// By name.
fn files_of(folder: &PathBuf) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {} failed", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}
