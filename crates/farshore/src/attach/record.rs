//! What is known of attached devices: `/run/farshore/attached/GROUP/VOLUME`, JSON, and beside it `VOLUME.lock`, which the helper of the
//! device holds for as long as it lives, and `VOLUME.log`, what the helper has to say.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use host::{nbd, ublk};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use settings::durable;

/// Where records lie.
pub const DIRECTORY: &str = "/run/farshore/attached";
/// Where devices have stable names.
pub const LINKS: &str = "/dev/farshore";
/// The schema of [`AttachedList`].
pub const ATTACHED_SCHEMA: &str = "farshore-attached/1";

/// How the kernel reaches the helper of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// by its own NBD client
    #[default]
    Nbd,
    /// by ublk
    Ublk,
}

impl DeviceKind {
    /// The kernel's name of the device of this number.
    pub fn device_path(self, index: u32) -> PathBuf {
        match self {
            DeviceKind::Nbd => nbd::kernel::device_path(index),
            DeviceKind::Ublk => ublk::device_path(index),
        }
    }

    /// The kernel has devices of lower numbers only, and takes some larger ones for "any".
    pub fn indexes_max(self) -> u32 {
        match self {
            DeviceKind::Nbd => nbd::kernel::INDEXES_MAX,
            DeviceKind::Ublk => ublk::INDEXES_MAX,
        }
    }
}

/// How the requests of a device fare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum AttachedState {
    /// the daemon answers them
    Connected,
    /// the daemon is away, and they wait for it
    Waiting {
        /// milliseconds since 1970: when the device came into this state
        since_unix_ms: u64,
        /// a sentence
        why: String,
    },
    /// they fail
    Failing {
        /// milliseconds since 1970: when the device came into this state
        since_unix_ms: u64,
        /// a sentence
        why: String,
    },
    /// they fail until the device is detached, whoever serves it: the volume may have other content than when the device was attached
    Ended {
        /// milliseconds since 1970: when the device came into this state
        since_unix_ms: u64,
        /// a sentence
        why: String,
    },
    /// they wait for a helper, because the one that served them is gone; also for a moment while `attach` makes the device
    // Whoever reads a record sees it of the helper's lock: it is written only while a device is made or taken over.
    NoHelper,
}

/// What `attach --json` and `attached --json` print.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AttachedList<'a> {
    /// name and version of this schema
    pub schema: &'static str,
    /// by group and volume
    pub devices: &'a [AttachedDevice],
}

/// An attached device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AttachedDevice {
    /// the group
    pub group: String,
    /// the volume
    pub volume: String,
    /// how the kernel reaches the helper
    // One that an older helper has written was of the kernel's NBD.
    #[serde(default)]
    pub kind: DeviceKind,
    /// control socket of the daemon whose volume it is
    pub control: PathBuf,
    /// the volume's `term` when the device was attached
    pub term: String,
    /// the kernel's name, such as `/dev/nbd0` or `/dev/ublkb0`
    pub device: PathBuf,
    /// the stable name, `/dev/farshore/GROUP/VOLUME`
    pub link: PathBuf,
    /// bytes
    pub size_bytes: u64,
    #[serde(flatten)]
    pub state: AttachedState,
    /// process of the helper
    pub helper_pid: u32,
    /// milliseconds since 1970: when it was attached
    pub attached_unix_ms: u64,
    /// seconds: how long requests wait for a daemon, or for a helper
    pub wait_s: u64,
    /// the kernel's number of the device
    pub index: u32,
}

impl AttachedDevice {
    /// The name of the export.
    pub fn export(&self) -> String {
        format!("{}/{}", self.group, self.volume)
    }
}

/// The files of one volume's device.
#[derive(Clone, Debug)]
pub struct RecordFiles {
    directory: PathBuf,
    volume: String,
    link: PathBuf,
}

/// Held by the helper of a device, or by a command that does what only one may do.
#[derive(Debug)]
pub struct HelperLock(#[expect(dead_code, reason = "what counts is that it is open")] File);

/// Who only looks holds the lock for a moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Another `detach` ends in less, unless a helper of it hangs.
const TURN_PATIENCE: Duration = Duration::from_secs(30);

impl RecordFiles {
    pub fn of(group: &str, volume: &str) -> RecordFiles {
        RecordFiles {
            directory: Path::new(DIRECTORY).join(group),
            volume: volume.to_owned(),
            link: Path::new(LINKS).join(group).join(volume),
        }
    }

    pub fn link(&self) -> &Path {
        &self.link
    }

    pub fn log(&self) -> PathBuf {
        self.beside(".log")
    }

    fn beside(&self, ending: &str) -> PathBuf {
        self.directory.join(format!("{}{ending}", self.volume))
    }

    fn record(&self) -> PathBuf {
        self.beside(".json")
    }

    /// Makes the directory.
    ///
    /// # Errors
    /// A sentence: it cannot be made.
    pub fn prepare(&self) -> anyhow::Result<()> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        made.with_context(|| format!("{} cannot be made", self.directory.display()))
    }

    /// `None`: another helper holds it.
    ///
    /// # Errors
    /// A sentence: it cannot be asked for.
    pub fn lock(&self) -> anyhow::Result<Option<HelperLock>> {
        let path = self.beside(".lock");
        let file = File::options().create(true).read(true).write(true).truncate(false).mode(0o600).open(&path);
        let file = file.with_context(|| format!("{} cannot be opened", path.display()))?;
        locked(file, &path, LOCK_PATIENCE)
    }

    /// The process that holds the lock, as the kernel says; `None`: nobody does.
    pub fn helper(&self) -> Option<i32> {
        let found = fs::metadata(self.beside(".lock")).ok()?;
        let (device, inode) = (found.dev(), found.ino());
        let file = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
        let locks = fs::read_to_string("/proc/locks").ok()?;
        holder(&locks, &file).filter(|_| self.has_helper())
    }

    /// Whether a helper lives.
    pub fn has_helper(&self) -> bool {
        // Shared, so that two who look do not see each other.
        let file = File::open(self.beside(".lock"));
        file.is_ok_and(|file| flock(file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK))
    }

    /// What is on record; `None`: nothing.
    ///
    /// # Errors
    /// A sentence: it cannot be read.
    pub fn read(&self) -> anyhow::Result<Option<AttachedDevice>> {
        let path = self.record();
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("{} cannot be read", path.display()))?,
        };
        let found: AttachedDevice = serde_json::from_str(&text)
            .with_context(|| format!("{} is no record of a device: remove it", path.display()))?;
        Ok(Some(match found.state {
            AttachedState::Ended { .. } => found,
            _ if self.has_helper() => found,
            _ => AttachedDevice { state: AttachedState::NoHelper, ..found },
        }))
    }

    /// # Errors
    /// A sentence: it cannot be written.
    pub fn write(&self, device: &AttachedDevice) -> anyhow::Result<()> {
        let path = self.record();
        let text = serde_json::to_string(device).context("a record is text")?;
        durable::replace(&path, text.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))
    }

    /// Gives the device its stable name.
    ///
    /// # Errors
    /// A sentence: it cannot be made.
    pub fn make_link(&self, device: &Path) -> anyhow::Result<()> {
        let make = || {
            fs::create_dir_all(self.link.parent().unwrap_or(Path::new("/")))?;
            // No volume is called so.
            let unfinished = self.link.with_file_name(format!(".{}", self.volume));
            remove_if_there(&unfinished)?;
            std::os::unix::fs::symlink(device, &unfinished)?;
            fs::rename(&unfinished, &self.link)
        };
        make().with_context(|| format!("{} cannot be made", self.link.display()))
    }

    /// The device is gone.
    ///
    /// # Errors
    /// A sentence: something cannot be removed.
    pub fn remove(&self) -> anyhow::Result<()> {
        for path in [&self.link, &self.record()] {
            remove_if_there(path).with_context(|| format!("{} cannot be removed", path.display()))?;
        }
        Ok(())
    }
}

/// Held by one `detach` of a group at a time: two would each take the other's look at a device for a use of it. `None`: nothing of the
/// group was attached since the boot.
///
/// # Errors
/// A sentence: another one is under way for long, or it cannot be asked for.
pub fn turn_to_detach(group: &str) -> anyhow::Result<Option<HelperLock>> {
    let path = Path::new(DIRECTORY).join(group);
    let directory = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(|| format!("{} cannot be opened", path.display()))?,
    };
    let turn = locked(directory, &path, TURN_PATIENCE)?;
    turn.map(Some)
        .with_context(|| format!("another 'farshore detach' of {group} is under way: try again when it has ended"))
}

/// `None`: another process holds it all the while.
fn locked(file: File, path: &Path, patience: Duration) -> anyhow::Result<Option<HelperLock>> {
    let deadline = Instant::now() + patience;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(HelperLock(file))),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() >= deadline => return Ok(None),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(20)),
            Err(errno) => {
                return Err(io::Error::from(errno)).with_context(|| format!("{} cannot be locked", path.display()));
            }
        }
    }
}

/// Of a line such as `1: FLOCK  ADVISORY  WRITE 1234 00:18:4711 0 EOF`.
fn holder(locks: &str, file: &str) -> Option<i32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, locked, ..] = words[..] else { return None };
        pid.parse().ok().filter(|_| locked == file)
    })
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// All devices on record, by group and volume.
///
/// # Errors
/// A sentence: the directory or a record cannot be read.
pub fn all() -> anyhow::Result<Vec<AttachedDevice>> {
    let mut found = Vec::new();
    for group in names(Path::new(DIRECTORY))? {
        for file in names(&Path::new(DIRECTORY).join(&group))? {
            let Some(volume) = file.strip_suffix(".json") else { continue };
            found.extend(RecordFiles::of(&group, volume).read()?);
        }
    }
    Ok(found)
}

fn names(directory: &Path) -> anyhow::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("{} cannot be read", directory.display()))?,
    };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str().map(str::to_owned)).collect();
    names.sort();
    Ok(names)
}

/// A device, for tests.
#[cfg(test)]
pub(crate) fn example(kind: DeviceKind, index: u32) -> AttachedDevice {
    AttachedDevice {
        group: "db".to_owned(),
        volume: "data".to_owned(),
        kind,
        control: "/var/lib/farshore/control.sock".into(),
        term: "0".to_owned(),
        device: kind.device_path(index),
        link: "/dev/farshore/db/data".into(),
        size_bytes: 4096,
        state: AttachedState::Connected,
        helper_pid: 12,
        attached_unix_ms: 5,
        wait_s: 300,
        index,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_a_lock_is_read_of_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:18:47 0 EOF\n2: FLOCK  ADVISORY  WRITE 1234 00:18:4711 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 99 00:18:4711 0 EOF\n3: FLOCK  ADVISORY  READ  7 00:18:5 0 EOF\n";
        let files = ["00:18:4711", "00:19:4711", "00:18:47", "00:18:5", "00:18:1"];
        assert_eq!(files.map(|file| holder(locks, file)), [Some(1234), None, None, None, None]);
    }

    #[test]
    fn a_directory_is_held_by_one_until_that_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let hold = || {
            let directory = File::open(folder.path()).expect("it opens");
            locked(directory, folder.path(), Duration::ZERO).expect("it can be locked")
        };
        let first = hold();
        assert!(first.is_some() && hold().is_none());
        drop(first);
        assert!(hold().is_some());
    }

    #[test]
    fn a_record_comes_back_in_each_state() {
        let (since_unix_ms, why) = (7, "the daemon is gone".to_owned());
        for state in [
            AttachedState::Connected,
            AttachedState::Waiting { since_unix_ms, why: why.clone() },
            AttachedState::Failing { since_unix_ms, why: why.clone() },
            AttachedState::Ended { since_unix_ms, why },
            AttachedState::NoHelper,
        ] {
            for kind in [DeviceKind::Nbd, DeviceKind::Ublk] {
                let device = AttachedDevice { state: state.clone(), ..example(kind, 0) };
                let text = serde_json::to_string(&device).expect("text");
                assert_eq!(serde_json::from_str::<AttachedDevice>(&text).expect(&text), device);
            }
        }
    }

    /// An upgrade finds devices that are attached.
    #[test]
    fn a_record_without_a_kind_is_of_the_kernels_nbd() {
        let mut record = serde_json::to_value(example(DeviceKind::Ublk, 0)).expect("a record");
        assert_eq!(record["kind"], "ublk");
        record.as_object_mut().expect("an object").remove("kind");
        let read: AttachedDevice = serde_json::from_value(record).expect("an older record");
        assert_eq!(read.kind, DeviceKind::Nbd);
    }
}
