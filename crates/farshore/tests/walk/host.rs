//! Two hosts on this machine, made by `hosts.sh`, and what was typed on them.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use super::page::{HOSTS, root};
use crate::common::{is_installed, is_root, must_skip};

/// In seconds: a walk that takes longer stands still.
const PATIENCE: &str = "200";
const SCRIPTS: [(&str, &str); 3] = [
    ("hosts.sh", include_str!("hosts.sh")),
    ("tools.sh", include_str!("tools.sh")),
    ("words.sh", include_str!("words.sh")),
];
/// What pages and hidden steps use, beside what each system has.
const PROGRAMS: [&str; 11] =
    ["unshare", "setpriv", "nsenter", "ip", "jq", "tar", "nbdinfo", "nbdfuse", "fusermount3", "qemu-io", "qemu-img"];
/// Whether namespaces, mounts in them and a cable between them are allowed here.
const TRY: &str = "mount -o remount,bind,ro / && mount -t tmpfs walk /mnt && mount -t sysfs -o ro walk /sys && \
                   hostname walk && ip link add walk-alpha type veth peer name walk-beta";
/// There a host has something of its own, and nothing of the machine is found. `hosts.sh` mounts it.
const HIDDEN: [&str; 8] = ["/dev", "/media", "/mnt", "/proc", "/run", "/srv", "/sys", "/var/lib"];
/// How the names of walks' folders begin.
const PREFIX: &str = "farshore-walk-";
/// The file in such a folder that is locked while the walk lasts.
const HELD: &str = "held";

/// Commands that are typed one after the other in one shell.
pub struct Step {
    /// Of the page.
    pub line: usize,
    pub host: String,
    pub way: Way,
    /// Each with the exit codes that it may have, such as `0/1`.
    pub commands: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Typed,
    /// Its end comes after that of the next block.
    Meanwhile,
    /// The page does not show it.
    Aside,
}

impl Way {
    fn word(self) -> &'static str {
        match self {
            Way::Typed => "typed",
            Way::Meanwhile => "meanwhile",
            Way::Aside => "aside",
        }
    }
}

/// The folder of a walk, which is removed with it.
pub struct Ground {
    folder: TempDir,
    /// A walk that was killed holds it no more.
    _held: File,
}

impl Ground {
    /// Removes what walks that were killed have left in `home`, too.
    pub fn new(home: &Path) -> Ground {
        for entry in fs::read_dir(home).expect("the folder of temporary files").flatten() {
            let is_walk = entry.file_name().to_string_lossy().starts_with(PREFIX);
            let is_over = || File::open(entry.path().join(HELD)).is_ok_and(|held| held.try_lock().is_ok());
            if is_walk && is_over() {
                // Another walk may be at it.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(home).expect("a folder for the hosts");
        let new = folder.path().join("new");
        let held = File::create(&new).expect("a file to be held");
        held.try_lock().expect("nobody else knows it");
        fs::rename(&new, folder.path().join(HELD)).expect("it is held from its beginning");
        Ground { folder, _held: held }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Whether a walk cannot take place on this machine, which is said.
pub fn cannot_walk(test: &str) -> bool {
    let outside = format!("the checkout, the target folder and TMPDIR outside of {}", HIDDEN.join(", "));
    let mut needed: Vec<(&str, bool)> = PROGRAMS.iter().map(|program| (*program, is_installed(program))).collect();
    needed.push(("root", is_root()));
    needed.push(("/dev/fuse", Path::new("/dev/fuse").exists()));
    let used = [root(), PathBuf::from(env!("CARGO_BIN_EXE_farshore")), std::env::temp_dir()];
    needed.push((outside.as_str(), !used.iter().any(|path| is_hidden(path))));
    if needed.iter().all(|(_, is_there)| *is_there) {
        let mut command = unshare();
        let tried = command.args(["--uts", "sh", "-c", TRY]).stdin(Stdio::null()).stderr(Stdio::null()).status();
        needed.push(("namespaces with mounts and veth", tried.is_ok_and(|status| status.success())));
    }
    must_skip(test, &needed)
}

fn is_hidden(path: &Path) -> bool {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    HIDDEN.iter().any(|hidden| path.starts_with(hidden))
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command
}

/// Walks the steps, and returns what each printed, as far as it was typed.
pub fn walk(folder: &Path, steps: &[Step]) -> Vec<String> {
    for (name, text) in SCRIPTS {
        fs::write(folder.join(name), text).expect("a script is written");
    }
    fs::set_permissions(folder.join("tools.sh"), fs::Permissions::from_mode(0o755)).expect("it can be run");
    let mut list = String::new();
    for (number, step) in steps.iter().enumerate() {
        list += &format!("{number:03} {} {}\n", step.host, step.way.word());
        fs::write(folder.join(format!("{number:03}.sh")), script(step)).expect("a step is written");
    }
    fs::write(folder.join("steps"), list).expect("the steps are written");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for host in HOSTS {
            let home = folder.join(host);
            fs::create_dir(&home).expect("a folder for the host");
            let is_over = &is_over;
            scope.spawn(move || hear(&home, is_over));
        }
        let unit = root().join("packaging/systemd/farshore.service");
        let hosts = unshare();
        // Whoever is killed takes the next one along, also when it is this test.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "timeout", PATIENCE, "setpriv", "--pdeathsig", "KILL"]);
        command.arg(hosts.get_program()).args(hosts.get_args());
        command.arg("bash").arg(folder.join("hosts.sh")).arg(folder).arg(env!("CARGO_BIN_EXE_farshore")).arg(unit);
        let output = command.stdin(Stdio::null()).output();
        is_over.store(true, Ordering::Relaxed);
        let output = output.expect("unshare was tried before");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.starts_with("[hosts]"), "there are no hosts: {}", String::from_utf8_lossy(&output.stderr));
    });
    let text = |number: usize| fs::read(folder.join(format!("{number:03}.out"))).unwrap_or_default();
    (0..steps.len()).map(|number| String::from_utf8_lossy(&text(number)).into_owned()).collect()
}

/// The commands of a step, with a mark before and behind each.
fn script(step: &Step) -> String {
    let commands = step.commands.iter().enumerate();
    let text = commands
        .map(|(number, (command, codes))| format!("echo '[typed {number}]'\n{command}\nended {number} $? {codes}\n"));
    text.collect::<String>() + "echo '[done]'\n"
}

/// A service manager that waits until a daemon of that host is ready.
fn hear(home: &Path, is_over: &AtomicBool) {
    let socket = UnixDatagram::bind(home.join("notify")).expect("a socket for the daemon");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    let mut datagram = [0; 4096];
    while !is_over.load(Ordering::Relaxed) {
        let Ok(length) = socket.recv(&mut datagram) else { continue };
        if String::from_utf8_lossy(&datagram[..length]).lines().any(|line| line == "READY=1") {
            fs::write(home.join("ready"), "").expect("a mark is made");
        }
    }
}

/// What a command of a step printed; `None`: it was not typed, or did not end.
pub fn printed(said: &str, number: usize) -> Option<&str> {
    let (_, rest) = said.split_once(&format!("[typed {number}]\n"))?;
    let (printed, _) = rest.split_once(&format!("[ended {number} "))?;
    Some(printed)
}

/// Whether a step went as the page says.
pub fn is_done(said: &str) -> bool {
    said.lines().any(|line| line == "[done]")
}

/// The last lines of the daemons' logs.
pub fn logs(folder: &Path) -> String {
    let log = |host: &str| -> (String, PathBuf) { (host.to_owned(), folder.join(host).join("journal")) };
    let mut text = String::new();
    for (host, log) in HOSTS.map(log) {
        let log = fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        text += &format!("{host}:\n{}\n", lines[lines.len().saturating_sub(20)..].join("\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_walk_left_is_removed_by_the_next_one() {
        let home = tempfile::tempdir().expect("a folder");
        let (left, other) = (home.path().join("farshore-walk-left"), home.path().join("farshore-other"));
        for folder in [&left, &other] {
            fs::create_dir(folder).expect("a folder");
            File::create(folder.join(HELD)).expect("a file that nobody holds");
        }
        let first = Ground::new(home.path());
        assert!(!left.exists() && other.exists());
        let second = Ground::new(home.path());
        assert!(first.path().exists() && second.path().exists(), "walks that go on");
    }

    #[test]
    fn what_hosts_do_not_see_is_named() {
        let is_there = |path: &str| is_hidden(Path::new(path));
        assert!(is_there("/srv/farshore/target") && is_there("/var/lib/builds") && is_there("/dev"));
        assert!(!is_there("/srv2") && !is_there("/var/library") && !is_there("/home/user/run"));
    }
}
