//! `cargo xtask newcomer`: two fresh machines, the package, and the words of the documentation typed as they stand.
//!
//! Debian 12 in two machines that qemu emulates, with a cable between them and 50 ms of round trip. The clock runs from the
//! first command of the installation to a ledger that PostgreSQL verifies on the other side, after a pulled cable, a killed
//! daemon and a lost site. Emulated without hardware support, both machines are some ten times slower than real ones.

mod machine;
mod words;

use crate::package::debian_package;
use crate::project::{Project, run};
use crate::suite::is_there;
use crate::systems;
use anyhow::{Context, Result, ensure};
use machine::{Answer, Machine, Parts};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use words::Page;

const RELEASE: &str = "bookworm";
/// What the machines have beside a minimal system, before anybody installs anything.
const PACKAGES: &str = "linux-image-amd64 initramfs-tools udev kmod iproute2 lvm2 e2fsprogs postgresql procps";
const PROGRAMS: [&str; 7] = ["debootstrap", "unshare", "chroot", "mke2fs", "qemu-img", "qemu-system-x86_64", "cp"];
const SCRIPTS: [(&str, &str); 2] =
    [("usr/local/sbin/typed-shell", include_str!("shell.sh")), ("usr/local/bin/ledger", include_str!("ledger.sh"))];
const SHELL_UNIT: &str = "[Unit]\nAfter=systemd-networkd.service\n[Service]\nExecStart=/usr/local/sbin/typed-shell\n\
     StandardInput=tty\nStandardOutput=tty\nStandardError=tty\nTTYPath=/dev/ttyS1\nTTYReset=yes\n[Install]\n\
     WantedBy=multi-user.target\n";
/// Room for journal and history, which are reserved and stay empty.
const SYSTEM_SIZE: &str = "40G";
const DATA_BYTES: u64 = 1 << 30;
/// For a command that a person would call slow.
const PATIENCE: Duration = Duration::from_secs(180);
/// For the first sync and for the end of a resync.
const LONG_PATIENCE: Duration = Duration::from_secs(600);
/// How long the cable is out, and how long the ledger grows before the next thing happens.
const CUT: Duration = Duration::from_secs(8);
const WORK: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub struct NewcomerArgs {
    /// A package that is there already, instead of one of this folder
    #[arg(long, value_name = "FILE")]
    package: Option<PathBuf>,
}

/// The pages whose words are typed.
struct Book {
    readme: Page,
    install: Page,
    quickstart: Page,
}

/// Both machines, and the clock.
struct Trial {
    near: Machine,
    far: Machine,
    book: Book,
    began: Instant,
}

/// Makes the machines and plays the trial.
///
/// # Errors
/// When a machine cannot be made, or when something does not come as the documentation says.
pub fn main(arguments: &NewcomerArgs) -> Result<ExitCode> {
    let is_root = rustix::process::geteuid().is_root();
    if let Some(needed) = systems::missing(&PROGRAMS, is_root, is_there) {
        systems::skip(&format!("newcomer: it needs {needed}"))?;
        println!("0 passed, 0 failed, 1 skipped");
        return Ok(ExitCode::SUCCESS);
    }
    let project = Project::find()?;
    let package = match &arguments.package {
        Some(package) => package.clone(),
        None => debian_package(&project)?,
    };
    let book = Book::open(&project)?;
    let parts = make_parts(&project, &package)?;
    // The first one holds the cable's end.
    let near = Machine::switch_on("near", 1, &parts, DATA_BYTES)?;
    let far = Machine::switch_on("far", 2, &parts, DATA_BYTES)?;
    let mut trial = Trial { near, far, book, began: Instant::now() };
    let played = trial.prepare().and_then(|()| trial.play());
    if let Err(error) = played {
        println!("what the machines hold, with their consoles, is kept in {}", parts.folder.display());
        return Err(error);
    }
    drop(trial);
    fs::remove_dir_all(&parts.folder).with_context(|| format!("removing {} failed", parts.folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

impl Book {
    fn open(project: &Project) -> Result<Book> {
        let page = |name: &'static str| -> Result<Page> {
            let text = fs::read_to_string(project.root.join(name)).with_context(|| format!("reading {name} failed"))?;
            Ok(Page::new(name, &text))
        };
        Ok(Book {
            readme: page("README.md")?,
            install: page("docs/book/operate/install.md")?,
            quickstart: page("docs/book/quickstart.md")?,
        })
    }
}

/// A disk with the system, and the kernel that boots it.
fn make_parts(project: &Project, package: &Path) -> Result<Parts> {
    let fresh = systems::system_with(project, RELEASE, "newcomer", PACKAGES)?;
    let folder = project.target.join("newcomer");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("removing {} failed", folder.display()))?;
    }
    fs::create_dir_all(&folder)?;
    let root = folder.join("root");
    run(Command::new("cp").args(["--archive", "--reflink=auto"]).arg(&fresh).arg(&root))?;
    furnish(&root, package)?;
    let boot = |name: &str| -> Result<PathBuf> {
        let files = fs::read_dir(root.join("boot"))?.flatten().map(|entry| entry.path());
        let is_it = |path: &PathBuf| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name));
        let file = files.into_iter().find(is_it).with_context(|| format!("the system has no {name}"))?;
        let copy = folder.join(name);
        fs::copy(file, &copy)?;
        Ok(copy)
    };
    let (kernel, initial, system) = (boot("vmlinuz")?, boot("initrd.img")?, folder.join("system"));
    run(Command::new("mke2fs").args(["-q", "-t", "ext4", "-d"]).arg(&root).arg(&system).arg(SYSTEM_SIZE))?;
    fs::remove_dir_all(&root)?;
    Ok(Parts { kernel, initial, system, folder })
}

/// What a machine has of its owner: addresses, a shell for whoever types, the package where it was downloaded to.
fn furnish(root: &Path, package: &Path) -> Result<()> {
    for (path, text) in SCRIPTS {
        let path = root.join(path);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    let units = root.join("etc/systemd/system");
    fs::write(units.join("typed-shell.service"), SHELL_UNIT)?;
    let wants = units.join("multi-user.target.wants");
    fs::create_dir_all(&wants)?;
    for unit in ["/etc/systemd/system/typed-shell.service", "/usr/lib/systemd/system/systemd-networkd.service"] {
        let link = wants.join(Path::new(unit).file_name().context("a unit has a name")?);
        if fs::symlink_metadata(&link).is_err() {
            symlink(unit, link)?;
        }
    }
    // The ledger's server is started on the mirrored volume and nowhere else.
    symlink("/dev/null", units.join("postgresql.service"))?;
    for (number, address) in [(1, "10.0.0.1"), (2, "10.0.0.2")] {
        // A pulled cable does not take the address with it: it breaks somewhere on the way.
        let network = format!(
            "[Match]\nMACAddress=52:54:00:00:00:0{number}\n[Network]\nAddress={address}/24\nIgnoreCarrierLoss=yes\n\
             ConfigureWithoutCarrier=yes\nLinkLocalAddressing=no\n"
        );
        let folder = root.join("etc/systemd/network");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("{address}.network")), network)?;
    }
    fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n10.0.0.1 near\n10.0.0.2 far\n")?;
    let _ = fs::remove_file(root.join("etc/hostname"));
    let name = package.file_name().context("a package has a name")?;
    fs::copy(package, root.join("root").join(name)).with_context(|| format!("copying {} failed", package.display()))?;
    Ok(())
}

impl Trial {
    /// What was there before somebody heard of the product: a logical volume on each machine, and a distance between them.
    fn prepare(&mut self) -> Result<()> {
        for machine in [&mut self.near, &mut self.far] {
            machine.wait_for_shell()?;
            machine.run(
                "pvcreate -q /dev/vdb && vgcreate -q vg0 /dev/vdb && lvcreate -q -y -L 256M -n data vg0",
                PATIENCE,
            )?;
            machine.run(
                "card=$(ls /sys/class/net | grep -v lo) && tc qdisc add dev $card root netem delay 25ms",
                PATIENCE,
            )?;
        }
        self.near.run("ping -c 1 far || test $(command -v ping | wc -l) = 0", PATIENCE)?;
        self.began = Instant::now();
        Ok(())
    }

    fn play(&mut self) -> Result<()> {
        self.install()?;
        self.mirror()?;
        self.begin_ledger()?;
        self.cut()?;
        self.kill_daemon()?;
        let acknowledged = self.lose_site()?;
        self.fail_over()?;
        self.verify(acknowledged)
    }

    fn note(&self, what: &str) {
        println!("[{:>4.0} s] {what}", self.began.elapsed().as_secs_f64());
    }

    fn install(&mut self) -> Result<()> {
        let command = self.book.install.command("apt install")?.to_owned();
        for machine in [&mut self.near, &mut self.far] {
            machine.run(&command, PATIENCE)?;
        }
        self.note("installed on both machines");
        Ok(())
    }

    /// `up` on one machine, the line it prints on the other, the device.
    fn mirror(&mut self) -> Result<()> {
        let up = self.book.readme.command("farshore up")?.to_owned();
        let join = self.book.readme.command("echo TOKEN")?.to_owned();
        let attach = self.book.quickstart.command("farshore attach main")?.to_owned();
        let waiting = self.near.begin(&up)?;
        let token = self.near.hear(&waiting, PATIENCE, token)?;
        ensure!(join.contains(" TOKEN "), "README.md says no more where the token stands in `{join}`");
        self.far.run(&join.replace(" TOKEN ", &format!(" {token} ")), LONG_PATIENCE)?;
        let Answer { code, .. } = self.near.end(&waiting, LONG_PATIENCE)?;
        ensure!(code == 0, "`{up}` ended with {code}");
        self.note("the first sync is over");
        self.near.run(&attach, PATIENCE)?;
        Ok(())
    }

    /// A file system on the device, a database in it, and writers that never stop.
    fn begin_ledger(&mut self) -> Result<()> {
        let near = &mut self.near;
        near.run("mkfs.ext4 -q /dev/farshore/main/data && mount /dev/farshore/main/data /srv", PATIENCE)?;
        near.run("install -d -o postgres -g postgres -m 700 /srv/ledger", PATIENCE)?;
        near.run("su - postgres -c '/usr/lib/postgresql/*/bin/initdb -D /srv/ledger' > initdb.log", LONG_PATIENCE)?;
        start_server(near)?;
        near.run("ledger begin", PATIENCE)?;
        let mode = self.book.quickstart.command("farshore set main mode=sync")?.to_owned();
        near.run(&mode, PATIENCE)?;
        let wait = self.book.quickstart.command("farshore wait main")?.to_owned();
        near.run(&wait, LONG_PATIENCE)?;
        near.run("(ledger write > writer.log 2>&1 &)", PATIENCE)?;
        self.grows("a ledger is written, in 'sync'")
    }

    /// Waits until more of the ledger is acknowledged.
    fn grows(&mut self, what: &str) -> Result<()> {
        let (before, end) = (self.near.acknowledged(), Instant::now() + PATIENCE);
        while self.near.acknowledged() < before + 5 {
            ensure!(Instant::now() < end, "the ledger stands still at {before}: {what}");
            std::thread::sleep(Duration::from_millis(100));
        }
        self.note(&format!("{what}: {} transactions are acknowledged", self.near.acknowledged()));
        Ok(())
    }

    fn cut(&mut self) -> Result<()> {
        std::thread::sleep(WORK);
        self.near.plug(false)?;
        self.note("the cable is pulled");
        std::thread::sleep(CUT);
        self.near.plug(true)?;
        self.grows("the cable is back")?;
        let wait = self.book.quickstart.command("farshore wait main")?.to_owned();
        self.near.run(&wait, LONG_PATIENCE)?;
        self.note("the copy has caught up");
        Ok(())
    }

    fn kill_daemon(&mut self) -> Result<()> {
        self.near.run("systemctl kill --signal=KILL --kill-whom=main farshore", PATIENCE)?;
        self.grows("the daemon was killed, and the writer noticed nothing")?;
        let wait = self.book.quickstart.command("farshore wait main")?.to_owned();
        // Until the next daemon answers there is nobody who could be asked.
        self.near.run(&format!("until {wait} 2> /dev/null; do sleep 1; done"), LONG_PATIENCE)?;
        std::thread::sleep(WORK);
        Ok(())
    }

    /// Returns the number of the last transaction that was acknowledged.
    fn lose_site(&mut self) -> Result<u64> {
        self.near.lose()?;
        let acknowledged = self.near.acknowledged();
        self.note(&format!("the site is lost after {acknowledged} acknowledged transactions"));
        Ok(acknowledged)
    }

    fn fail_over(&mut self) -> Result<()> {
        let status = self.book.quickstart.command("farshore status main")?.to_owned();
        let promote = self.book.quickstart.command("farshore promote main --force")?.to_owned();
        let attach = self.book.quickstart.command("farshore attach main")?.to_owned();
        let said = self.far.answer(&status, PATIENCE)?;
        ensure!(said.text.contains("Promotable"), "the status does not say what can be promoted");
        let promoted = self.far.answer(&promote, PATIENCE)?;
        // 1: done, with something to know.
        ensure!(promoted.code <= 1, "`{promote}` ended with {}", promoted.code);
        self.far.run(&attach, PATIENCE)?;
        self.far.run("mount /dev/farshore/main/data /srv", PATIENCE)?;
        start_server(&mut self.far)
    }

    /// The copy has every acknowledged transaction, whole, and none is left out.
    fn verify(&mut self, acknowledged: u64) -> Result<()> {
        let said = self.far.run("ledger verify", PATIENCE)?;
        let row =
            said.lines().find_map(|line| line.trim().strip_prefix("ledger|")).context("the ledger says nothing")?;
        let numbers: Vec<i64> = row.split('|').filter_map(|number| number.parse().ok()).collect();
        let [lines, transactions, last, sum] = numbers[..] else {
            anyhow::bail!("the ledger says {row}");
        };
        let is_whole = lines == 2 * transactions && transactions == last && sum == 0;
        ensure!(is_whole, "the ledger is broken: {lines} lines, {transactions} transactions up to {last}, sum {sum}");
        let last = u64::try_from(last)?;
        ensure!(last >= acknowledged, "{} acknowledged transactions are missing", acknowledged - last);
        self.note(&format!(
            "the ledger is whole on the other side: {last} transactions, none of {acknowledged} is missing"
        ));
        println!(
            "1 passed, 0 failed: from the installation to a verified failover {:.0} s",
            self.began.elapsed().as_secs_f64()
        );
        Ok(())
    }
}

/// The token in the line that `up` prints for the other machine.
fn token(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("echo fj")?;
    let (token, _) = rest.split_once(' ')?;
    Some(format!("fj{token}"))
}

fn start_server(machine: &mut Machine) -> Result<()> {
    let start = "su - postgres -c '/usr/lib/postgresql/*/bin/pg_ctl -D /srv/ledger -o \"-k /tmp\" -l /srv/ledger/log -w -t 120 start'";
    machine.run(&format!("{start} > started.log"), LONG_PATIENCE)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_every_command_that_is_typed() {
        let book = Book::open(&Project::find().expect("the project")).expect("its pages");
        book.install.command("apt install").expect("installs");
        for beginning in ["farshore up", "echo TOKEN"] {
            book.readme.command(beginning).expect("the README has it");
        }
        let quickstart = ["set main mode=sync", "wait main", "status main", "promote main --force", "attach main"];
        for beginning in quickstart.map(|words| format!("farshore {words}")) {
            book.quickstart.command(&beginning).expect("the quickstart has it");
        }
    }

    #[test]
    fn the_token_is_what_is_piped_to_join() {
        assert_eq!(
            token("on the other node:\r\n  echo fjaeca | farshore join --device DISK\r\n").as_deref(),
            Some("fjaeca")
        );
        assert_eq!(token("echo fja"), None);
    }
}
