//! `cargo xtask package --try`: the package in fresh systems, from its installation to its purge.
//!
//! Two systems, Debian 12 as "alpha" and Debian 13 as "beta", are two folders; the addresses of the quickstart stand in
//! a network namespace of their own. So the commands are those that the quickstart tells people to type. The systems come
//! from debootstrap, once per target folder; each trial works on copies. What runs in them ends with the namespace.

mod booted;
mod host;
mod quickstart;

use crate::project::{Project, run};
use crate::systems;
use anyhow::{Context, Result, ensure};
use host::TrialHost;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The node's name, its system and its address.
const ALPHA: (&str, &str, &str) = ("alpha", "bookworm", "10.0.0.1");
const BETA: (&str, &str, &str) = ("beta", "trixie", "10.0.0.2");
/// Each is needed for the whole trial.
const PROGRAMS: [&str; 5] = ["debootstrap", "unshare", "chroot", "ip", "nbdcopy"];

/// What holds so far.
#[derive(Default)]
pub struct Tally {
    passed: u64,
}

impl Tally {
    /// Counts what holds, and ends the trial with what does not.
    ///
    /// # Errors
    /// When it does not hold; `details` says more.
    pub fn expect(&mut self, what: &str, holds: bool, details: &str) -> Result<()> {
        ensure!(holds, "does not hold: {what}\n{details}");
        println!("holds: {what}");
        self.passed += 1;
        Ok(())
    }
}

/// Makes both systems and starts the trial between them.
///
/// # Errors
/// When a system cannot be made. A trial that finds something is no error, but an exit code.
pub fn main(project: &Project, packages: &[PathBuf]) -> Result<ExitCode> {
    let is_root = rustix::process::geteuid().is_root();
    if let Some(needed) = systems::missing(&PROGRAMS, is_root, crate::suite::is_there) {
        systems::skip(&format!("package --try: it needs {needed}"))?;
        println!("0 passed, 0 failed, 1 skipped");
        return Ok(ExitCode::SUCCESS);
    }
    let package = packages.iter().find(|file| file.extension().is_some_and(|end| end == "deb"));
    let package = package.context("there is no package to try")?;
    let home = project.target.join("trial");
    let mut systems = Vec::new();
    for (node, suite, _) in [ALPHA, BETA] {
        let fresh = systems::fresh_system(project, suite)?;
        let system = home.join(node);
        if system.exists() {
            fs::remove_dir_all(&system).with_context(|| format!("removing {} failed", system.display()))?;
        }
        fs::create_dir_all(&home)?;
        run(Command::new("cp").args(["--archive", "--reflink=auto"]).arg(fresh).arg(&system))?;
        systems.push(system);
    }
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--"])
        .arg(std::env::current_exe()?);
    let status = unshare.args(["package", "--inside"]).arg(package).args(&systems).status()?;
    if status.success() {
        fs::remove_dir_all(&home).with_context(|| format!("removing {} failed", home.display()))?;
    } else {
        println!("both systems, with the logs of their daemons, are kept in {}", home.display());
    }
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The trial itself, alone in its namespaces.
///
/// # Errors
/// When something does not hold, with what was seen instead.
pub fn inside(package: &Path, alpha: &Path, beta: &Path) -> Result<ExitCode> {
    let mut tally = Tally::default();
    run(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    let hosts = [TrialHost::new(ALPHA.0, alpha, ALPHA.2)?, TrialHost::new(BETA.0, beta, BETA.2)?];
    for host in &hosts {
        host.install(package, &mut tally)?;
    }
    hosts[0].make_image(&mut tally)?;
    quickstart::play(&hosts, package, &mut tally)?;
    for host in &hosts {
        host.remove(&mut tally)?;
    }
    if !crate::suite::is_there(booted::NSPAWN) {
        println!("SKIPPED package --try, under systemd: it needs {}", booted::NSPAWN);
        println!("{} passed, 0 failed, 1 skipped", tally.passed);
        return Ok(ExitCode::SUCCESS);
    }
    booted::play(&hosts[0], package, &mut tally)?;
    println!("{} passed, 0 failed", tally.passed);
    Ok(ExitCode::SUCCESS)
}
