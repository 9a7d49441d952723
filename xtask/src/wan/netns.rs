//! The two sites: network namespaces, their names, and how nothing of them stays behind.
//!
//! A namespace is held by this process's open handle alone. Its public name, `/run/netns/NAME`, is
//! a symbolic link to that handle under `/proc`, so when the process dies, by SIGKILL too, the
//! kernel removes namespace, TUN device and routes, unless a program still runs inside. What can
//! remain is a dangling name and such programs. A *claim* (a directory of our own with a lock file
//! held as long as we live) records them, and every start sweeps the claims whose lock is free.

use super::sys;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where claims live; one directory per running WAN.
pub const CLAIMS: &str = "/run/farshore-wan";
const NAMES: &str = "/run/netns";
const ALLOWED_CONGESTION: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const INTERFACE: &str = "wan0";
/// Autotuned TCP buffers may grow to this: enough for 1 Gbit/s over 200 ms.
const TCP_BUFFER_BYTES_MAX: u64 = 128 << 20;
/// Packets (each up to 64 KiB) the TUN device may hold while a forwarder thread is not running.
const TUN_QUEUE_PACKETS: u32 = 4096;
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Where starters pass one at a time: two could sweep each other's half-made claims, or undo each
/// other's passing change of the host's settings.
pub struct Turnstile {
    _lock: File,
}

impl Turnstile {
    /// Waits for other starters, then sweeps what dead owners left behind.
    ///
    /// # Errors
    /// When `/run` cannot be written or leftovers cannot be removed.
    pub fn enter() -> Result<Turnstile> {
        let claims = Path::new(CLAIMS);
        make_private_directory(claims)?;
        let lock = File::create(claims.join("lock")).context("opening the lock of all WANs")?;
        flock(&lock, FlockOperation::LockExclusive)?;
        sweep(claims)?;
        Ok(Turnstile { _lock: lock })
    }

    /// Lets new namespaces choose a congestion control as long as the returned value lives.
    /// Outside the first namespace the kernel only takes what the host allows everybody.
    ///
    /// # Errors
    /// When the kernel does not know it.
    pub fn allow_congestion<'a>(&'a self, congestion: &str) -> Result<Allowance<'a>> {
        let before = fs::read_to_string(ALLOWED_CONGESTION)?;
        let during = format!("{} {congestion}", before.trim());
        fs::write(ALLOWED_CONGESTION, during).with_context(|| {
            let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
            let known = known.unwrap_or_default();
            format!("congestion control `{congestion}` was refused; known here: {}", known.trim())
        })?;
        Ok(Allowance { before, _turnstile: self })
    }
}

/// Puts the host's list of allowed congestion controls back when dropped.
pub struct Allowance<'a> {
    before: String,
    _turnstile: &'a Turnstile,
}

impl Drop for Allowance<'_> {
    fn drop(&mut self) {
        if let Err(error) = fs::write(ALLOWED_CONGESTION, self.before.trim()) {
            eprintln!("wan: {ALLOWED_CONGESTION} could not be put back: {error}");
        }
    }
}

/// The right to a name, and the record of what belongs to it. Dropping it forgets the record.
pub struct Claim {
    name: String,
    directory: PathBuf,
    _lock: File,
}

impl Claim {
    /// Takes the name.
    ///
    /// # Errors
    /// When the name is malformed or in use.
    pub fn take(_turnstile: &Turnstile, name: &str) -> Result<Claim> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        ensure!(
            (1..=32).contains(&name.len()) && name.chars().all(is_plain),
            "`{name}` cannot name a WAN: use 1 to 32 of a-z, 0-9 and -"
        );
        let directory = Path::new(CLAIMS).join(name);
        ensure!(
            !directory.exists(),
            "a WAN named {name} is already running (see {}); choose another --name",
            directory.display()
        );
        make_private_directory(&directory)?;
        let lock = File::create(directory.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Claim { name: name.to_owned(), directory, _lock: lock })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn control_path(&self) -> PathBuf {
        self.directory.join("control")
    }

    fn record(&self, identity: NamespaceIdentity) -> Result<()> {
        let path = self.directory.join("namespaces");
        let mut record = File::options().create(true).append(true).open(&path)?;
        writeln!(record, "{} {}", identity.device, identity.inode)?;
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Err(error) = remove_directory(&self.directory) {
            eprintln!("wan: {} stays behind: {error}", self.directory.display());
        }
    }
}

/// Removes what owners that died without cleaning up left behind. Claims in use are not touched.
fn sweep(claims: &Path) -> Result<()> {
    for entry in fs::read_dir(claims)? {
        let directory = entry?.path();
        if !directory.is_dir() {
            continue;
        }
        if let Ok(lock) = File::open(directory.join("lock"))
            && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err()
        {
            continue;
        }
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let record = fs::read_to_string(directory.join("namespaces")).unwrap_or_default();
        let killed: usize = record
            .lines()
            .filter_map(NamespaceIdentity::parse)
            .map(|identity| end_programs(identity, Some(&name)))
            .sum::<Result<usize>>()?;
        for side in ["near", "far"] {
            remove_name(&name_path(&name, side))?;
        }
        remove_directory(&directory)?;
        if !record.is_empty() {
            eprintln!("wan: removed what {name} left behind ({killed} programs ended)");
        }
    }
    Ok(())
}

/// One site: a network namespace with loopback and one TUN device towards the other site.
pub struct Namespace {
    name: String,
    handle: File,
}

/// What a site is given when it is made.
pub struct SitePlan<'a> {
    pub side: &'a str,
    /// With prefix length, such as `10.203.0.1/24`.
    pub address4: &'a str,
    pub address6: &'a str,
    pub mtu: u32,
    pub congestion: &'a str,
}

impl Namespace {
    /// Makes the namespace with its device and addresses; returns it and the device's other end.
    ///
    /// # Errors
    /// Without root, without `/dev/net/tun`, without iproute2, or when `/proc/sys` is read-only.
    pub fn make(claim: &Claim, plan: &SitePlan) -> Result<(Namespace, File)> {
        // A thread of its own enters the new namespace; the rest of the process stays outside.
        let (handle, tun) = std::thread::scope(|scope| {
            let builder = scope.spawn(|| furnish(claim, plan));
            builder.join().unwrap_or_else(|_| bail!("the thread that makes a namespace panicked"))
        })?;
        claim.record(NamespaceIdentity::of(&handle)?)?;
        let path = name_path(claim.name(), plan.side);
        fs::create_dir_all(NAMES)?;
        let target = format!("/proc/{}/fd/{}", std::process::id(), handle.as_raw_fd());
        symlink(target, &path).with_context(|| {
            format!("naming a namespace: {} exists and is not ours; choose another --name", path.display())
        })?;
        let name = format!("{}-{}", claim.name(), plan.side);
        Ok((Namespace { name, handle }, tun))
    }

    /// The name for `ip netns exec`.
    pub fn name(&self) -> &str {
        &self.name
    }

    #[cfg(test)]
    pub fn handle(&self) -> &File {
        &self.handle
    }

    /// A program that will start inside.
    pub fn command(&self, program: &str) -> Result<Command> {
        let mut command = Command::new(program);
        sys::start_in_namespace(&mut command, &self.handle)?;
        Ok(command)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let ended = NamespaceIdentity::of(&self.handle).and_then(|identity| end_programs(identity, None));
        match ended {
            Ok(0) => {}
            Ok(count) => eprintln!("wan: ended {count} programs that still ran in {}", self.name),
            Err(error) => eprintln!("wan: namespace {} may stay behind: {error:#}", self.name),
        }
        if let Err(error) = remove_name(&Path::new(NAMES).join(&self.name)) {
            eprintln!("wan: the name {} stays behind: {error:#}", self.name);
        }
    }
}

/// Runs on a thread that is given up afterwards.
fn furnish(claim: &Claim, plan: &SitePlan) -> Result<(File, File)> {
    let handle =
        sys::new_network_namespace().context("making a network namespace failed; this needs root (CAP_SYS_ADMIN)")?;
    set_sysctls(plan)?;
    let tun = sys::open_tun(INTERFACE)
        .context("opening a TUN device failed; /dev/net/tun must exist and this needs root (CAP_NET_ADMIN)")?;
    let SitePlan { address4, address6, mtu, .. } = plan;
    let mut script = format!(
        "link set lo alias {}\n\
         link set lo up\n\
         link set {INTERFACE} addrgenmode none\n\
         link set {INTERFACE} mtu {mtu} txqueuelen {TUN_QUEUE_PACKETS} up\n\
         addr add {address4} dev {INTERFACE}\n",
        marker(claim.name())
    );
    if has_ipv6() {
        script += &format!("addr add {address6} dev {INTERFACE} nodad\n");
    }
    ip_batch(&script)?;
    Ok((handle, tun))
}

pub fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

/// The calling thread's namespace decides whose settings these files are.
fn set_sysctls(plan: &SitePlan) -> Result<()> {
    let set =
        |path: &str, value: &str| fs::write(path, value).with_context(|| format!("setting {path} to `{value}` failed"));
    set("/proc/sys/net/ipv4/tcp_congestion_control", plan.congestion)?;
    set("/proc/sys/net/ipv4/tcp_rmem", &format!("4096 131072 {TCP_BUFFER_BYTES_MAX}"))?;
    set("/proc/sys/net/ipv4/tcp_wmem", &format!("4096 16384 {TCP_BUFFER_BYTES_MAX}"))?;
    // A measurement must not start from what an earlier connection learned.
    set("/proc/sys/net/ipv4/tcp_no_metrics_save", "1")?;
    if has_ipv6() {
        set("/proc/sys/net/ipv6/conf/all/disable_ipv6", "0")?;
        set("/proc/sys/net/ipv6/conf/default/disable_ipv6", "0")?;
    }
    Ok(())
}

fn ip_batch(script: &str) -> Result<()> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting `ip` failed; install the package iproute2")?;
    child.stdin.take().expect("stdin is piped").write_all(script.as_bytes())?;
    let output = child.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`ip` could not set up the namespace: {}", complaint.trim());
    Ok(())
}

/// Which namespace, as the kernel numbers them. Numbers are used again after a namespace is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NamespaceIdentity {
    device: u64,
    inode: u64,
}

impl NamespaceIdentity {
    fn of(handle: &File) -> Result<NamespaceIdentity> {
        let metadata = handle.metadata()?;
        Ok(NamespaceIdentity { device: metadata.dev(), inode: metadata.ino() })
    }

    fn parse(line: &str) -> Option<NamespaceIdentity> {
        let (device, inode) = line.split_once(' ')?;
        Some(NamespaceIdentity { device: device.parse().ok()?, inode: inode.parse().ok()? })
    }
}

/// Kills every program inside the namespace and returns how many there were. With `left_by`, only
/// if the namespace carries that WAN's marker: its number may belong to another program by now.
fn end_programs(identity: NamespaceIdentity, left_by: Option<&str>) -> Result<usize> {
    let deadline = Instant::now() + KILL_PATIENCE;
    let mut killed = Vec::new();
    loop {
        let inside = programs_in(identity)?;
        let Some(first) = inside.first() else {
            return Ok(killed.len());
        };
        if let Some(name) = left_by
            && !carries_marker(*first, name)?
        {
            return Ok(killed.len());
        }
        for pid in inside {
            match kill_process(pid, Signal::KILL) {
                Ok(()) if !killed.contains(&pid) => killed.push(pid),
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => bail!("cannot end program {}: {error}", pid.as_raw_nonzero()),
            }
        }
        ensure!(Instant::now() < deadline, "programs in it do not die: {killed:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn programs_in(identity: NamespaceIdentity) -> Result<Vec<Pid>> {
    let mut inside = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        // A program that ends meanwhile, or is dead and unburied, has no namespace to look at.
        if let (Some(pid), Ok(metadata)) = (pid, fs::metadata(entry.path().join("ns/net")))
            && (NamespaceIdentity { device: metadata.dev(), inode: metadata.ino() }) == identity
        {
            inside.push(pid);
        }
    }
    Ok(inside)
}

fn carries_marker(pid: Pid, name: &str) -> Result<bool> {
    let Ok(handle) = File::open(format!("/proc/{}/ns/net", pid.as_raw_nonzero())) else {
        return Ok(false);
    };
    let mut command = Command::new("ip");
    sys::start_in_namespace(&mut command, &handle)?;
    let output = command.args(["-o", "link", "show", "dev", "lo"]).output()?;
    let words = String::from_utf8_lossy(&output.stdout);
    let marker = marker(name);
    Ok(words.split_whitespace().any(|word| word == marker))
}

fn marker(name: &str) -> String {
    format!("farshore-wan:{name}")
}

fn name_path(name: &str, side: &str) -> PathBuf {
    Path::new(NAMES).join(format!("{name}-{side}"))
}

/// Removes a namespace's name if it is one of our symbolic links.
fn remove_name(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => Ok(fs::remove_file(path)?),
        _ => Ok(()),
    }
}

/// An owner that is just leaving and a starter that sweeps may both be at it.
fn remove_directory(path: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn make_private_directory(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("creating {} failed; this needs root", path.display()))
        }
        _ => Ok(()),
    }
}
