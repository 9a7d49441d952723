//! An emulated machine: its power switch, its network cable, and a shell in which commands are typed.

use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A boot without hardware support for virtual machines, beside another one, on two cores.
const BOOT_PATIENCE: Duration = Duration::from_secs(300);
/// What the shell of the machine says first.
const READY: &str = "[ready]";

/// Files that two machines are made of.
pub struct Parts {
    pub kernel: PathBuf,
    pub initial: PathBuf,
    /// The system's disk; each machine writes to an overlay of its own.
    pub system: PathBuf,
    /// Where disks, sockets and logs go.
    pub folder: PathBuf,
}

pub struct Machine {
    pub name: &'static str,
    folder: PathBuf,
    qemu: Child,
    shell: UnixStream,
    said: Arc<Said>,
    /// How many commands were typed so far.
    typed: u32,
}

/// What the shell has written so far.
#[derive(Default)]
struct Said {
    text: Mutex<String>,
    more: Condvar,
}

/// What a command wrote, and how it ended.
pub struct Answer {
    pub text: String,
    pub code: i32,
}

/// A command that was typed and has not ended yet.
#[must_use]
pub struct Typed {
    from: usize,
    end: String,
}

impl Machine {
    /// Switches a machine on. `number` tells its network card from the other's; the first one holds the cable's socket.
    ///
    /// # Errors
    /// When qemu does not start.
    pub fn switch_on(name: &'static str, number: u8, parts: &Parts, data_bytes: u64) -> Result<Machine> {
        let folder = parts.folder.join(name);
        std::fs::create_dir_all(&folder)?;
        let (system, data) = (folder.join("system"), folder.join("data"));
        std::fs::File::create(&data)?.set_len(data_bytes)?;
        let mut overlay = Command::new("qemu-img");
        overlay.args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"]).arg(&parts.system).arg(&system);
        crate::project::text_of(&mut overlay)?;
        let place = |what: &str| folder.join(what).to_string_lossy().into_owned();
        let cable = parts.folder.join("cable");
        let end = if number == 1 { "on" } else { "off" };
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-accel", "tcg", "-smp", "1", "-m", "2048", "-nodefaults", "-display", "none", "-no-reboot"]);
        qemu.arg("-kernel").arg(&parts.kernel).arg("-initrd").arg(&parts.initial);
        let words = format!("root=/dev/vda rw console=ttyS0 quiet systemd.hostname={name} systemd.show_status=no");
        qemu.args(["-append", &words]);
        for (disk, format) in [(system, "qcow2"), (data, "raw")] {
            // Losing its power loses a machine what its disks had not flushed, but not what this host's cache holds.
            qemu.args(["-drive", &format!("file={},format={format},if=virtio,cache=writeback", disk.display())]);
        }
        qemu.args(["-serial", &format!("file:{}", place("console"))]);
        qemu.args(["-serial", &format!("unix:{},server=on,wait=off", place("shell"))]);
        qemu.args(["-serial", &format!("file:{}", place("acknowledged"))]);
        qemu.args(["-monitor", &format!("unix:{},server=on,wait=off", place("monitor"))]);
        let cable = format!("stream,id=cable,server={end},addr.type=unix,addr.path={}", cable.display());
        qemu.args(["-netdev", &cable, "-device", &format!("virtio-net-pci,netdev=cable,mac=52:54:00:00:00:0{number}")]);
        let log = std::fs::File::create(folder.join("qemu"))?;
        let mut qemu =
            qemu.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn().context("qemu does not start")?;
        let shell = connect(&folder.join("shell"), &mut qemu)?;
        let said = Arc::new(Said::default());
        let (mut ear, heard) = (shell.try_clone()?, Arc::clone(&said));
        // Ends with the machine.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = ear.read(&mut bytes) {
                heard.add(&String::from_utf8_lossy(&bytes[..length]));
            }
        });
        Ok(Machine { name, folder, qemu, shell, said, typed: 0 })
    }

    /// # Errors
    /// When the machine does not come up in time.
    pub fn wait_for_shell(&self) -> Result<()> {
        let found = self.said.wait(0, BOOT_PATIENCE, |text| text.contains(READY).then_some(()));
        found.with_context(|| format!("{} does not boot; see {}", self.name, self.folder.join("console").display()))
    }

    /// Types a command, shows it, and leaves it to run.
    ///
    /// # Errors
    /// When the machine is gone.
    pub fn begin(&mut self, command: &str) -> Result<Typed> {
        println!("{}# {command}", self.name);
        self.typed += 1;
        let end = format!("[ended {} ", self.typed);
        let from = self.said.length();
        // The mark stands in two words here, so that an echo of the line would not be taken for it.
        writeln!(self.shell, "{command}; echo '[ended' {} $?]", self.typed)?;
        Ok(Typed { from, end })
    }

    /// Waits until a command that runs has written something.
    ///
    /// # Errors
    /// When it does not in time, or ends without.
    pub fn hear<T>(&self, typed: &Typed, patience: Duration, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let heard = self.said.wait(typed.from, patience, |text| match find(text) {
            Some(found) => Some(Ok(found)),
            None => text.contains(&typed.end).then(|| Err(text.to_owned())),
        });
        match heard.with_context(|| format!("{}: nothing was heard in time", self.name))? {
            Ok(found) => Ok(found),
            Err(text) => bail!("{}: the command ended too soon: {text}", self.name),
        }
    }

    /// Waits for the end of a command, and shows what it wrote.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn end(&self, typed: &Typed, patience: Duration) -> Result<Answer> {
        let ended = self.said.wait(typed.from, patience, |text| {
            let (before, after) = text.split_once(&typed.end)?;
            let (code, _) = after.split_once(']')?;
            Some(Answer { text: before.replace('\r', "\n"), code: code.parse().unwrap_or(-1) })
        });
        let answer = ended.with_context(|| {
            let so_far = self.said.since(typed.from);
            format!("{}: the command does not end; so far it wrote: {so_far}", self.name)
        })?;
        for line in answer.text.lines().filter(|line| !line.trim().is_empty()) {
            println!("    {line}");
        }
        Ok(answer)
    }

    /// Types a command and waits for its end.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn answer(&mut self, command: &str, patience: Duration) -> Result<Answer> {
        let typed = self.begin(command)?;
        self.end(&typed, patience)
    }

    /// The same for a command that has to succeed.
    ///
    /// # Errors
    /// When it fails, or does not end in time.
    pub fn run(&mut self, command: &str, patience: Duration) -> Result<String> {
        let answer = self.answer(command, patience)?;
        ensure!(answer.code == 0, "{}: `{command}` ended with {}", self.name, answer.code);
        Ok(answer.text)
    }

    /// Pulls the cable, or plugs it in.
    ///
    /// # Errors
    /// When the monitor does not answer.
    pub fn plug(&mut self, is_in: bool) -> Result<()> {
        let mut monitor = connect(&self.folder.join("monitor"), &mut self.qemu)?;
        writeln!(monitor, "set_link cable {}", if is_in { "on" } else { "off" })?;
        // What it says is its prompt; the connection's end must not come before the command.
        std::thread::sleep(Duration::from_millis(200));
        Ok(())
    }

    /// The site is lost: nothing of it goes on.
    ///
    /// # Errors
    /// When it cannot be ended.
    pub fn lose(&mut self) -> Result<()> {
        self.qemu.kill()?;
        self.qemu.wait()?;
        Ok(())
    }

    /// The number in the last whole line that the ledger's writer wrote on the second console.
    pub fn acknowledged(&self) -> u64 {
        let text = std::fs::read_to_string(self.folder.join("acknowledged")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().rev().find_map(|line| line.trim().strip_prefix("acked ")?.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

impl Said {
    fn lock(&self) -> std::sync::MutexGuard<'_, String> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, text: &str) {
        self.lock().push_str(text);
        self.more.notify_all();
    }

    fn length(&self) -> usize {
        self.lock().len()
    }

    fn since(&self, from: usize) -> String {
        self.lock()[from..].to_owned()
    }

    /// Until what was written from there on is enough. `None`: time is up.
    fn wait<T>(&self, from: usize, patience: Duration, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        let end = Instant::now() + patience;
        let mut text = self.lock();
        loop {
            if let Some(found) = find(&text[from..]) {
                return Some(found);
            }
            let left = end.checked_duration_since(Instant::now())?;
            text = self.more.wait_timeout(text, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// qemu makes its sockets soon after its start.
fn connect(path: &Path, qemu: &mut Child) -> Result<UnixStream> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match UnixStream::connect(path) {
            Ok(socket) => return Ok(socket),
            Err(error) => {
                ensure!(qemu.try_wait()?.is_none(), "qemu ended; see its log beside {}", path.display());
                ensure!(Instant::now() < end, "{} does not answer: {error}", path.display());
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
