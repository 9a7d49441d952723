//! Fresh systems for trials: as debootstrap makes them, once per target folder, with what a trial wants besides.

use crate::project::{Project, text_of};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// The list of tests that could not run, where `cargo xtask test` wants one.
const SKIPS_VARIABLE: &str = "FARSHORE_TEST_SKIPS";

/// Why there can be no trial here: what is missing of these programs, and root.
pub fn missing(programs: &[&str], is_root: bool, is_there: impl Fn(&str) -> bool) -> Option<String> {
    let programs = programs.iter().copied().filter(|program| !is_there(program));
    let missing: Vec<&str> = programs.chain((!is_root).then_some("root")).collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

/// Says that a trial does not take place, and why.
///
/// # Errors
/// When the list of skips cannot be written.
pub fn skip(line: &str) -> Result<()> {
    println!("SKIPPED {line}");
    if let Some(path) = std::env::var_os(SKIPS_VARIABLE) {
        writeln!(fs::File::options().append(true).create(true).open(path)?, "{line}")?;
    }
    Ok(())
}

/// A minimal Debian that can be booted, as debootstrap makes it.
///
/// # Errors
/// When debootstrap fails.
pub fn fresh_system(project: &Project, release: &str) -> Result<PathBuf> {
    let home = project.target.join("systems");
    let system = home.join(release);
    if !system.exists() {
        fs::create_dir_all(&home)?;
        let unfinished = home.join(format!("{release}.unfinished"));
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished)?;
        }
        let mut debootstrap = Command::new("debootstrap");
        debootstrap
            .args(["--variant=minbase", "--include=systemd,systemd-sysv,dbus", release])
            .arg(&unfinished)
            .args(mirror());
        // A page of names of packages is no news.
        text_of(&mut debootstrap).with_context(|| format!("making a fresh {release} failed"))?;
        fs::rename(unfinished, &system)?;
    }
    Ok(system)
}

/// The same with further packages. `name` tells it from others of its release.
///
/// # Errors
/// When a package cannot be installed.
pub fn system_with(project: &Project, release: &str, name: &str, packages: &str) -> Result<PathBuf> {
    let fresh = fresh_system(project, release)?;
    let system = fresh.with_file_name(format!("{release}-{name}"));
    if system.exists() {
        return Ok(system);
    }
    let unfinished = fresh.with_file_name(format!("{release}-{name}.unfinished"));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)?;
    }
    text_of(Command::new("cp").args(["--archive", "--reflink=auto"]).arg(&fresh).arg(&unfinished))?;
    let _ = fs::copy("/etc/resolv.conf", unfinished.join("etc/resolv.conf"));
    // An installation starts no service.
    let install = format!(
        "mount -t proc proc /proc && printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d && \
         apt-get -qq update && apt-get -qq -y install --no-install-recommends {packages} && apt-get clean; \
         code=$?; rm -f /usr/sbin/policy-rc.d; exit $code"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "chroot"]).arg(&unfinished);
    command.args(["sh", "-c", &install]).env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C.UTF-8");
    let output = command.output().context("starting `unshare` failed")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "installing {packages} failed: {}", complaint.trim());
    fs::rename(unfinished, &system)?;
    Ok(system)
}

/// Where this machine has its own packages from; elsewhere debootstrap knows one.
pub fn mirror() -> Option<String> {
    let targets = ["indextargets", "--format", "$(SITE)", "Created-By: Packages", "Component: main"];
    let sites = text_of(Command::new("apt-get").args(targets)).ok()?;
    sites.lines().find(|site| site.ends_with("/debian") || site.ends_with("/debian/")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_that_cannot_be_says_all_that_it_needs() {
        assert_eq!(missing(&["ip"], true, |_| true), None);
        assert_eq!(missing(&["cp", "ip"], false, |program| program != "ip").as_deref(), Some("ip, root"));
    }
}
