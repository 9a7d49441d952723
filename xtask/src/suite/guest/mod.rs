//! Tests that need a kernel which this machine does not have: Debian's, in a machine that qemu emulates. It boots in some seconds, plays a
//! scenario from an initial file system, and powers off. What the kernel of this machine's release lacks is tried with a newer one.

mod kernel;

use super::{StepContext, StepOutcome, TestCounts};
use crate::project::Project;
use anyhow::{Context, Result, ensure};
use kernel::Kernel;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Has ublk, and what the kernel's NBD has become.
const NEWER_RELEASE: &str = "trixie";
/// Of the newer kernel: loaded before the scenario, with what they need, and by the scenario.
const NEWER_MODULES: [&str; 2] = ["crc32c_generic", "ext4"];
const NEWER_DEVICES: [&str; 2] = ["nbd", "ublk_drv"];
/// In the order in which they are loaded; `nbd` is loaded by the scenario.
const MODULES: [&str; 6] =
    ["lib/crc16", "crypto/crc32c_generic", "lib/libcrc32c", "fs/mbcache", "fs/jbd2/jbd2", "fs/ext4/ext4"];
const NBD: &str = "drivers/block/nbd";
/// The kernel's targets and initiators, each after what it needs; loaded by the scenario that tries them.
const TARGETS: [&str; 19] = [
    "drivers/scsi/scsi_common",
    "drivers/scsi/scsi_mod",
    "crypto/crct10dif_common",
    "crypto/crct10dif_generic",
    "lib/crc-t10dif",
    "lib/crc64",
    "crypto/crc64_rocksoft_generic",
    "lib/crc64-rocksoft",
    "block/t10-pi",
    "drivers/scsi/sd_mod",
    "fs/configfs/configfs",
    "drivers/target/target_core_mod",
    "drivers/target/target_core_iblock",
    "drivers/target/loopback/tcm_loop",
    "drivers/nvme/host/nvme-core",
    "drivers/nvme/target/nvmet",
    "drivers/nvme/target/nvmet-tcp",
    "drivers/nvme/host/nvme-fabrics",
    "drivers/nvme/host/nvme-tcp",
];
/// For a disk that qemu gives the guest.
const DISK: [&str; 6] = [
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci",
    "drivers/block/virtio_blk",
];
const SCRIPTS: [(&str, &str); 8] = [
    ("check.sh", include_str!("check.sh")),
    ("pair.sh", include_str!("pair.sh")),
    ("attach.sh", include_str!("attach.sh")),
    ("targets.sh", include_str!("targets.sh")),
    ("disk.sh", include_str!("disk.sh")),
    ("ublk.sh", include_str!("ublk.sh")),
    ("ocf/ocf-shellfuncs", include_str!("functions.sh")),
    ("ocf/farshore", include_str!("../../../../packaging/ocf/farshore")),
];
/// Each in a machine of its own.
const SCENARIOS: [&str; 2] = ["attach", "targets"];
const PROGRAMS: [&str; 2] = ["mkfs.ext4", "fio"];
/// The scenario takes a minute and a half on two cores.
const PATIENCE: Duration = Duration::from_secs(480);

/// `cargo xtask test guest`.
pub fn attach(bench: &StepContext) -> Result<StepOutcome> {
    if let Some(missing) = missing() {
        println!("SKIPPED guest: it needs {missing}");
        bench.skip(&format!("guest: it needs {missing}"))?;
        // The suite takes one test off for each skip.
        return Ok(StepOutcome::Ok(TestCounts { passed: 1, ..TestCounts::default() }));
    }
    let built = bench.run("cargo", &["build", "--quiet", "--locked", "--package", "farshore"])?;
    let StepOutcome::Ok(_) = built else { return Ok(built) };
    let folder = bench.project.target.join("guest");
    let kernel = match Kernel::fetch(&folder) {
        Ok(kernel) => kernel,
        Err(error) => {
            println!("SKIPPED guest: {error:#}");
            bench.skip(&format!("guest: {error:#}"))?;
            return Ok(StepOutcome::Ok(TestCounts { passed: 1, ..TestCounts::default() }));
        }
    };
    let initial = make_initial_files(&bench.project, &folder, "", |modules| copy_modules(&kernel, modules))?;
    let mut guests: Vec<Command> = SCENARIOS.iter().map(|scenario| guest(&kernel, &initial, scenario)).collect();
    if rustix::process::geteuid().is_root() && which("unshare").is_some() && which("ip").is_some() {
        guests.push(guest_on_a_volume(&bench.project, &kernel, &initial));
    } else {
        // The other scenarios have passed some that the suite can take off.
        bench.skip("guest, the disk of a guest: it needs root, unshare and ip")?;
    }
    match newer_kernel(&folder) {
        Ok(newer) => {
            let put = |modules: &Path| copy_newer_modules(&newer, modules);
            let initial = make_initial_files(&bench.project, &folder, "-newer", put)?;
            guests.push(guest(&newer, &initial, "ublk"));
        }
        // As above.
        Err(error) => bench.skip(&format!("guest, a device by ublk: {error:#}"))?,
    }
    let counts = boot_all(guests)?;
    Ok(match counts.failed {
        0 => StepOutcome::Ok(counts).or_failed_if_empty(),
        failed => StepOutcome::Failed(counts, format!("{failed} checks failed")),
    })
}

fn newer_kernel(folder: &Path) -> Result<Kernel> {
    ensure!(which("xz").is_some(), "it needs xz (apt: xz-utils)");
    Kernel::fetch_of(folder, NEWER_RELEASE)
}

fn missing() -> Option<&'static str> {
    let is_there = |program: &str| which(program).is_some();
    let needed = [
        ("qemu-system-x86_64 (apt: qemu-system-x86)", is_there("qemu-system-x86_64")),
        ("cpio", is_there("cpio")),
        ("busybox (apt: busybox-static)", is_there("busybox")),
        ("fio", is_there("fio")),
        ("strip (apt: binutils)", is_there("strip")),
        ("a Debian system of x86-64, for its kernel", cfg!(target_arch = "x86_64") && is_there("apt-get")),
    ];
    needed.into_iter().find(|(_, is_there)| !is_there).map(|(what, _)| what)
}

fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|program| program.is_file())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{:?} does not start", command.get_program()))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(output.status.success(), "{command:?} failed: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The guest's file system: busybox, the product, what its scenario runs, and the libraries of all of them.
fn make_initial_files(
    project: &Project,
    folder: &Path,
    variant: &str,
    put_modules: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let root = folder.join(format!("root{variant}"));
    let _ = fs::remove_dir_all(&root);
    for name in ["bin", "dev", "proc", "sys", "run", "tmp", "etc", "root", "mnt", "trial", "modules", "ocf"] {
        fs::create_dir_all(root.join(name))?;
    }
    let busybox = which("busybox").context("busybox was there")?;
    fs::copy(&busybox, root.join("bin/busybox"))?;
    for name in output(Command::new(&busybox).arg("--list"))?.lines().filter(|name| *name != "busybox") {
        symlink("busybox", root.join("bin").join(name))?;
    }
    put_modules(&root.join("modules"))?;
    let farshore = root.join("bin/farshore");
    output(Command::new("strip").arg("-o").args([&farshore, &project.target.join("debug/farshore")]))?;
    let mut programs = vec![farshore];
    for name in PROGRAMS {
        let _ = fs::remove_file(root.join("bin").join(name));
        fs::copy(which(name).with_context(|| format!("{name} is missing"))?, root.join("bin").join(name))?;
        programs.push(root.join("bin").join(name));
    }
    copy_libraries(&root, &programs)?;
    write_program(&root.join("init"), include_str!("init.sh"))?;
    for (name, text) in SCRIPTS {
        write_program(&root.join(name), text)?;
    }
    let archive = folder.join(format!("initial{variant}"));
    let pack = format!("find . | cpio --quiet -o -H newc > '{}'", archive.display());
    output(Command::new("sh").args(["-c", &pack]).current_dir(&root))?;
    Ok(archive)
}

/// The modules of this release's kernel, and lists of them in the order in which they are loaded.
fn copy_modules(kernel: &Kernel, into: &Path) -> Result<()> {
    for module in MODULES.iter().chain([&NBD]).chain(&TARGETS).chain(&DISK) {
        let name = module.rsplit('/').next().unwrap_or(module);
        let file = kernel.modules.join(format!("{module}.ko"));
        fs::copy(&file, into.join(format!("{name}.ko"))).with_context(|| file.display().to_string())?;
    }
    for (list, modules) in [("order", MODULES.as_slice()), ("targets", TARGETS.as_slice()), ("disk", DISK.as_slice())] {
        let names: Vec<&str> = modules.iter().filter_map(|module| module.rsplit('/').next()).collect();
        fs::write(into.join(list), names.join("\n"))?;
    }
    Ok(())
}

/// The same of the newer kernel, whose modules are packed and say themselves what they need.
fn copy_newer_modules(kernel: &Kernel, into: &Path) -> Result<()> {
    fs::write(into.join("order"), kernel.unpack(&NEWER_MODULES, into)?.join("\n"))?;
    kernel.unpack(&NEWER_DEVICES, into).map(drop)
}

fn write_program(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?)
}

/// Each at the place where its loader looks for it.
fn copy_libraries(root: &Path, programs: &[PathBuf]) -> Result<()> {
    let mut libraries = BTreeSet::new();
    for program in programs {
        let list = output(Command::new("ldd").arg(program))?;
        libraries.extend(list.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from));
    }
    for library in libraries {
        let place = root.join(library.strip_prefix("/")?);
        fs::create_dir_all(place.parent().context("a library lies in a folder")?)?;
        fs::copy(&library, &place).with_context(|| library.display().to_string())?;
    }
    Ok(())
}

/// The guest that plays a scenario. It has one processor: qemu emulates several unfaithfully, and a kernel that patches its
/// own code while another processor runs that code dies of it at the start, once in some hundred starts.
fn guest(kernel: &Kernel, initial: &Path, scenario: &str) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-accel", "tcg", "-smp", "1", "-m", "4096", "-nographic", "-no-reboot", "-nic", "none"]);
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initial);
    command.args(["-append", &format!("console=ttyS0 panic=-1 quiet scenario={scenario}")]);
    command
}

/// The guest whose disk is a volume of a pair on this host.
fn guest_on_a_volume(project: &Project, kernel: &Kernel, initial: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "--", "sh"]);
    command.arg(project.root.join("xtask/src/suite/guest/disk-host.sh")).arg(project.target.join("debug/farshore"));
    command.arg(&kernel.image).arg(initial).arg(project.target.join("guest/disk"));
    command
}

/// Boots the guests, two at a time, each to its end even if another breaks down, and sums up their checks.
fn boot_all(guests: Vec<Command>) -> Result<TestCounts> {
    let waiting = Mutex::new(guests.into_iter());
    let next = || waiting.lock().expect("no thread panics with the list").next();
    let lane = || std::iter::from_fn(next).map(boot).collect::<Vec<_>>();
    let ends = std::thread::scope(|scope| {
        let lanes = [scope.spawn(lane), scope.spawn(lane)];
        lanes.map(|lane| lane.join().expect("a lane does not panic"))
    });
    let mut counts = TestCounts::default();
    for end in ends.into_iter().flatten() {
        counts.add(&end?);
    }
    Ok(counts)
}

/// Boots a guest, shows what it said once it has ended, and counts its checks.
fn boot(mut command: Command) -> Result<TestCounts> {
    let mut qemu = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("qemu does not start")?;
    let console = qemu.stdout.take().context("it has a console")?;
    let id = rustix::process::Pid::from_child(&qemu);
    let (ended, wait) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let began = Instant::now();
        if wait.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            println!("the guest does not end: stopped after {:.0} s", began.elapsed().as_secs_f64());
            let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
        }
    });
    let (mut counts, mut has_ended, mut said) = (TestCounts::default(), false, String::new());
    for line in BufReader::new(console).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        said.push_str(&format!("  {line}\n"));
        counts.passed += u64::from(line.starts_with("CHECK ok"));
        counts.failed += u64::from(line.starts_with("CHECK FAILED"));
        has_ended |= line.starts_with("GUEST ENDS");
    }
    drop(ended);
    qemu.wait()?;
    let _ = watchdog.join();
    // In one piece: another guest runs beside this one.
    print!("{said}");
    ensure!(has_ended, "the guest broke down; its console is above");
    Ok(counts)
}
