//! `cargo xtask pacemaker`: the OCF agent in a real cluster, and the target of a role under a real systemd.
//!
//! The cluster is two nodes of Debian 12 with corosync and Pacemaker, each in namespaces of its own on one system of
//! debootstrap (`cluster.sh`, `scenario.sh`); a fence agent kills a node as a loss of power would. The target is tried in
//! a system that systemd boots (`systemd.sh`, `role.sh`). Whatever runs there ends with the namespaces.

use crate::project::{Project, run};
use crate::suite::is_there;
use crate::systems;
use anyhow::{Context, Result};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const RELEASE: &str = "bookworm";
/// What the nodes have beside a minimal system.
const PACKAGES: &str =
    "pacemaker corosync resource-agents pacemaker-cli-utils iproute2 procps libnbd-bin libxml2-utils";
const PROGRAMS: [&str; 7] = ["debootstrap", "unshare", "nsenter", "chroot", "ip", "strip", "pgrep"];
const NSPAWN: &str = "systemd-nspawn";
/// The cluster's scenario takes four minutes, the other one less than one.
const CLUSTER_SECONDS_MAX: &str = "600";
const SYSTEMD_SECONDS_MAX: &str = "240";

#[derive(clap::Args)]
pub struct PacemakerArgs {
    /// Only the agent in the cluster, or only the target of a role
    #[arg(long, value_name = "PART")]
    only: Option<TrialPart>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TrialPart {
    Cluster,
    Target,
}

/// What was checked so far.
#[derive(Default)]
struct CheckCounts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// Builds, makes the system, and plays what was asked for.
///
/// # Errors
/// When the build or the system fails. A check that fails is no error, but an exit code.
pub fn main(arguments: &PacemakerArgs) -> Result<ExitCode> {
    let mut counts = CheckCounts::default();
    let is_root = rustix::process::geteuid().is_root();
    if let Some(needed) = systems::missing(&PROGRAMS, is_root, is_there) {
        counts.skip(&format!("pacemaker: it needs {needed}"))?;
        return Ok(counts.conclude());
    }
    let project = Project::find()?;
    run(project.command("cargo").args(["build", "--quiet", "--locked", "--package", "farshore"]))?;
    let home = project.target.join("pacemaker");
    if home.exists() {
        fs::remove_dir_all(&home).with_context(|| format!("removing {} failed", home.display()))?;
    }
    fs::create_dir_all(&home)?;
    let farshore = home.join("farshore");
    run(Command::new("strip").arg("-o").arg(&farshore).arg(project.target.join("debug/farshore")))?;
    let trial = Trial { system: systems::system_with(&project, RELEASE, "cluster", PACKAGES)?, farshore, project };
    let wants = |part| arguments.only.is_none_or(|only| only == part);
    if wants(TrialPart::Cluster) {
        let agent = trial.project.root.join("packaging/ocf/farshore");
        trial.play("cluster.sh", CLUSTER_SECONDS_MAX, &home.join("cluster"), &agent, &mut counts)?;
    }
    if wants(TrialPart::Target) {
        if is_there(NSPAWN) {
            let units = trial.project.root.join("packaging/systemd");
            trial.play("systemd.sh", SYSTEMD_SECONDS_MAX, &home.join("target"), &units, &mut counts)?;
        } else {
            counts.skip(&format!("pacemaker, the target of a role: it needs {NSPAWN}"))?;
        }
    }
    Ok(counts.conclude())
}

struct Trial {
    project: Project,
    system: PathBuf,
    farshore: PathBuf,
}

impl Trial {
    /// Plays a script in namespaces of its own, and counts its checks. `product`: what is tried.
    fn play(&self, script: &str, seconds: &str, work: &Path, product: &Path, counts: &mut CheckCounts) -> Result<()> {
        fs::create_dir_all(work)?;
        let parts = self.project.root.join("xtask/src/pacemaker");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
        command.args(["timeout", "--kill-after=5", seconds, "sh"]).arg(parts.join(script));
        command.args([&self.system, work, &self.farshore, product]).arg(&parts);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("it has an output")?;
        let failed = counts.failed;
        for line in BufReader::new(output).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            counts.passed += u64::from(line.starts_with("CHECK ok"));
            counts.failed += u64::from(line.starts_with("CHECK FAILED"));
        }
        let status = child.wait()?;
        if !status.success() {
            println!("{script} did not come to its end: {status}");
            counts.failed += 1;
        }
        if counts.failed > failed {
            println!("what the nodes hold, with their logs, is kept in {}", work.display());
        } else {
            fs::remove_dir_all(work).with_context(|| format!("removing {} failed", work.display()))?;
        }
        Ok(())
    }
}

impl CheckCounts {
    fn skip(&mut self, line: &str) -> Result<()> {
        self.skipped += 1;
        systems::skip(line)
    }

    fn conclude(&self) -> ExitCode {
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
