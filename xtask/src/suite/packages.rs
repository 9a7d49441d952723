//! What the tests need from the system beside cargo and a C compiler.

use super::{StepContext, StepOutcome, TestCounts};
use anyhow::{Result, ensure};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

struct TestPackage {
    /// Its name in Debian.
    name: &'static str,
    /// A program that is there when the package is.
    program: &'static str,
    reason: &'static str,
}

const fn package(name: &'static str, program: &'static str, reason: &'static str) -> TestPackage {
    TestPackage { name, program, reason }
}

const PACKAGES: &[TestPackage] = &[
    package("fio", "fio", "verified load on the export (ioengine=nbd, --verify)"),
    package("qemu-utils", "qemu-img", "qemu-img and qemu-io as clients, qemu-nbd as the peer in bench"),
    package("libnbd-bin", "nbdinfo", "nbdinfo and nbdcopy as clients, nbdfuse for file systems"),
    package("python3-libnbd", "nbdsh", "nbdsh as a client"),
    package("nbdkit", "nbdkit", "the other peer in bench"),
    package("nbd-client", "nbd-client", "the classic client, and the kernel's where it has one"),
    package("iperf3", "iperf3", "goodput of the emulated WAN"),
    package("fuse3", "fusermount3", "nbdfuse mounts through it"),
    package("iproute2", "ip", "sets up the emulated WAN's namespaces"),
    package("iputils-ping", "ping", "round trips of the emulated WAN"),
    package("ethtool", "ethtool", "what a link report is compared with"),
    package("jq", "jq", "what pages of the manual do with --json"),
    package("sqlite3", "sqlite3", "a database that must survive a failover"),
    package("postgresql", "postgres", "a database with its own crash recovery, as a second witness"),
    package(
        "qemu-system-x86",
        "qemu-system-x86_64",
        "an emulated machine with Debian's kernel, which has an NBD client",
    ),
    package("busybox-static", "busybox", "the emulated machine's tools"),
    package("cpio", "cpio", "the emulated machine's first files"),
    package("e2fsprogs", "mkfs.ext4", "a file system on the export"),
    package("prometheus", "promtool", "a Prometheus that scrapes a pair, and promtool for rules and pages"),
    package("xfsprogs", "mkfs.xfs", "a file system with a log of its own on the export"),
];

/// Installs what is missing, or says exactly what to install.
pub fn prepare(bench: &StepContext) -> Result<StepOutcome> {
    add_cargo_components(bench)?;
    // A package may take another one's place, as qemu's of another release do: then that one comes back in the version that fits.
    for _ in 0..2 {
        let missing: Vec<&TestPackage> = PACKAGES.iter().filter(|package| !is_there(package.program)).collect();
        if missing.is_empty() {
            println!("all {} packages are there", PACKAGES.len());
            return Ok(StepOutcome::Ok(TestCounts::default()));
        }
        install(bench, &missing)?;
    }
    Ok(StepOutcome::Ok(TestCounts::default()))
}

fn install(bench: &StepContext, missing: &[&TestPackage]) -> Result<()> {
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    for TestPackage { name, program, reason } in missing {
        println!("missing: {name} ({program}): {reason}");
    }
    let by_hand = format!("apt-get install --no-install-recommends {}", names.join(" "));
    ensure!(rustix::process::geteuid().is_root(), "as root, run: {by_hand}");
    ensure!(is_there("apt-get"), "this is no Debian; install the equivalent of: {}", names.join(" "));
    // Package lists may be missing altogether (containers), or too old to fetch what they name.
    bench.run("apt-get", &["-qq", "update"])?;
    let mut arguments = vec!["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y"];
    arguments.extend(["install", "--no-install-recommends"]);
    arguments.extend(&names);
    let quiet = NoServices::begin();
    bench.run("env", &arguments)?;
    drop(quiet);
    for package in missing {
        ensure!(
            is_there(package.program),
            "{} is installed but has no {}; try: {by_hand}",
            package.name,
            package.program
        );
    }
    Ok(())
}

/// While it stands, what is installed starts no service: a test wants the programs of a database or of Prometheus, and not a server of
/// theirs on its usual port. From the next boot on they are as their packages have it: `systemctl disable prometheus postgresql`.
struct NoServices(Option<&'static str>);

impl NoServices {
    /// Debian asks this program whether a service may be started; 101 is no. One that is there already has its reasons.
    const POLICY: &str = "/usr/sbin/policy-rc.d";

    fn begin() -> NoServices {
        let mut file = std::fs::OpenOptions::new();
        let made = file.write(true).create_new(true).mode(0o755).open(NoServices::POLICY);
        let is_written = made.and_then(|mut file| file.write_all(b"#!/bin/sh\nexit 101\n")).is_ok();
        NoServices(is_written.then_some(NoServices::POLICY))
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A toolchain of rustup's minimal profile has neither a formatter nor clippy.
fn add_cargo_components(bench: &StepContext) -> Result<()> {
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        let is_there_already =
            bench.project.command("cargo").args([subcommand, "--version"]).output()?.status.success();
        if is_there_already {
            continue;
        }
        ensure!(is_there("rustup"), "`cargo {subcommand}` is missing; install {component} for your toolchain");
        bench.run("rustup", &["component", "add", component])?;
    }
    Ok(())
}

/// Whether a program can be started; servers and tools for root hide beside the path.
pub fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = ["/usr/sbin", "/sbin"].map(Into::into);
    let is_in_path = std::env::split_paths(&path).chain(beside).any(|folder| folder.join(program).is_file());
    is_in_path || is_in_versioned_folder(Path::new("/usr/lib/postgresql"), program)
}

/// Debian keeps several PostgreSQL servers side by side, outside of the path.
fn is_in_versioned_folder(parent: &Path, program: &str) -> bool {
    let versions = std::fs::read_dir(parent).into_iter().flatten().flatten();
    versions.into_iter().any(|version| version.path().join("bin").join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_programs_in_the_path_and_in_versioned_folders() {
        assert!(is_there("sh"));
        assert!(!is_there("no-such-program-anywhere"));
        let parent = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir_all(parent.path().join("15/bin")).expect("a folder");
        assert!(!is_in_versioned_folder(parent.path(), "postgres"));
        std::fs::write(parent.path().join("15/bin/postgres"), "").expect("a file");
        assert!(is_in_versioned_folder(parent.path(), "postgres"));
    }
}
