//! The package under systemd: a fresh system is booted, and a script in it installs, enables, upgrades and removes.

use super::{Tally, host::TrialHost};
use crate::project::run;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Boots a system in a folder.
pub const NSPAWN: &str = "systemd-nspawn";
/// A boot that hangs is ended by `timeout`.
const BOOT_SECONDS_MAX: &str = "180";
const SCRIPT_NAME: &str = "booted.sh";
const LOG_NAME: &str = "booted.log";

/// Says in one line after each step whether the unit is enabled, and whether it runs. The volume is a file outside of
/// the state directory, so the unit is given its folder. Instances of both templates are enabled before the removal: one follows the
/// role of a group, the other finds nothing to attach and tries again and again.
const SCRIPT: &str = r#"#!/bin/sh
exec > /booted.log 2>&1
say() { echo "$1: $(systemctl is-enabled farshore) $(systemctl is-active farshore)"; }
pid() { systemctl show --property MainPID farshore; }
follower=farshore-primary@main.service
device=farshore-attach@main-data.service
instances() { echo "instances$1: $(systemctl is-enabled $device) $(systemctl is-enabled $follower)"; }
left() { find /etc/systemd/system -name 'farshore-*@*'; systemctl list-units --plain --no-legend 'farshore*'; }
dpkg --install /farshore.deb
say installed
mkdir -p /etc/systemd/system/farshore.service.d
printf '[Service]\nReadWritePaths=/srv\n' > /etc/systemd/system/farshore.service.d/volumes.conf
systemctl daemon-reload
systemctl enable --now farshore || journalctl --unit farshore --no-pager --lines 20
say enabled
before=$(pid)
dpkg --install /farshore.deb
say upgraded
test "$before" = "$(pid)" && echo "the same process"
systemctl enable --now --no-block $device $follower
instances
for second in 1 2 3 4 5 6 7 8 9 10; do
    test "$(systemctl show --property NRestarts --value $device)" = 0 || break
    sleep 1
done
systemctl list-units --plain --no-legend 'farshore*'
dpkg --remove farshore
say removed
echo "left behind:$(left)"
dpkg --install /farshore.deb
say returned
instances ' returned'
dpkg --purge farshore
systemctl poweroff
"#;

const UNIT: &str = "[Unit]\nAfter=basic.target dbus.service\n[Service]\nType=oneshot\nExecStart=/booted.sh\n";

/// What each step leaves behind.
const EXPECTED: [(&str, &str); 9] = [
    ("an installation enables and starts nothing", "installed: disabled inactive"),
    ("systemd starts the daemon by the unit", "enabled: enabled active"),
    ("an upgrade leaves the unit as it is", "upgraded: enabled active"),
    ("an upgrade does not restart the daemon", "the same process"),
    ("instances of both templates are enabled", "instances: enabled enabled"),
    ("a removal stops the daemon", "removed:  inactive"),
    ("a removal leaves no instance behind, neither enabled, nor running, nor failed", "left behind:"),
    ("a new installation starts nothing that ran before", "returned: disabled inactive"),
    ("nor has it an instance enabled", "instances returned: disabled disabled"),
];

/// Runs the script in a host that the quickstart has configured.
///
/// # Errors
/// When the system cannot be booted, or a step leaves something else behind.
pub fn play(host: &TrialHost, package: &Path, tally: &mut Tally) -> Result<()> {
    let place = |name: &str| host.root.join(name);
    fs::copy(package, place("farshore.deb"))?;
    fs::write(place(SCRIPT_NAME), SCRIPT)?;
    host.run(&["chmod", "755", "/booted.sh"])?;
    fs::write(place("etc/systemd/system/booted.service"), UNIT)?;
    host.run(&["systemctl", "add-wants", "multi-user.target", "booted.service"])?;
    // What is mounted already counts as wanted so, and this /proc is of other processes.
    run(Command::new("umount").arg(place("proc")).arg(place("sys")))?;
    let mut nspawn = Command::new("timeout");
    nspawn.args([BOOT_SECONDS_MAX, NSPAWN, "--quiet", "--register=no", "--keep-unit", "--boot"]);
    nspawn.arg("--directory").arg(&host.root);
    println!("{}: booted by {NSPAWN}", host.node);
    let boot = nspawn.output().context("starting systemd-nspawn failed")?;
    let log = fs::read_to_string(place(LOG_NAME)).unwrap_or_default();
    let details =
        || format!("{log}\n{}", String::from_utf8_lossy(&[boot.stdout.clone(), boot.stderr.clone()].concat()));
    for (what, line) in EXPECTED {
        let is_said = log.lines().any(|said| said.trim_end() == line);
        tally.expect(&host.of(what), is_said, &details())?;
    }
    Ok(())
}
