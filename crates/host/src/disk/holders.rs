//! Who else uses a disk or a file on this machine: what makes "busy" a sentence that helps.
//!
//! The kernel's exclusive hold is the guard for devices; what is found here only names the user. Nothing in the kernel
//! guards a file, nor a device against who does not ask, so a loop device or swap area on top is looked for here. And
//! which file system a path lies on.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::identity::{FileIdentity, identity_of};
use super::open_error::OpenError;

/// What a path lies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// As the kernel names it: `ext4`, `xfs`, `tmpfs`.
    pub kind: String,
    /// A device, mostly.
    pub source: String,
    pub total_bytes: u64,
    /// What this user may still fill.
    pub free_bytes: u64,
}

/// The file system a path lies on, links followed.
///
/// # Errors
/// The path leads nowhere or may not be looked at.
pub fn file_system_of(path: &Path) -> Result<FileSystem, OpenError> {
    let failed = |step| move |errno| OpenError::at(path, step, errno);
    let whole = fs::canonicalize(path).map_err(|error| {
        let code = error.raw_os_error().unwrap_or(libc::EIO);
        OpenError::at(path, "looking at it", rustix::io::Errno::from_raw_os_error(code))
    })?;
    let facts = rustix::fs::statvfs(&whole).map_err(failed("asking for its space"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let (kind, source) = covering(&mounts, &whole)
        .map_or_else(|| ("unknown".to_owned(), "unknown".to_owned()), |mount| (mount.kind, mount.source));
    let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
    Ok(FileSystem { kind, source, total_bytes: bytes(facts.f_blocks), free_bytes: bytes(facts.f_bavail) })
}

/// The mount that a path is seen through: the deepest, and of those at one place the last, which covers the others.
fn covering(mounts: &str, path: &Path) -> Option<MountEntry> {
    let mounts = mounts.lines().filter_map(MountEntry::parse).filter(|mount| path.starts_with(&mount.point));
    mounts.max_by_key(|mount| Path::new(&mount.point).components().count())
}

pub(super) type DeviceNumber = (u32, u32);

/// Where a device, one of its partitions or something stacked upon it is mounted in this mount namespace.
pub(super) fn mounted_at(major: u32, minor: u32) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let family = family((major, minor));
    mounts.lines().find_map(|line| {
        let mount = MountEntry::parse(line)?;
        // btrfs shows a number of its own; its source still names the device.
        let by_source = || {
            matches!(identity_of(Path::new(&mount.source)), Ok(FileIdentity::Device { major, minor })
            if family.contains(&(major, minor)))
        };
        (family.contains(&mount.number) || by_source()).then_some(mount.point)
    })
}

struct MountEntry {
    number: DeviceNumber,
    point: String,
    kind: String,
    source: String,
}

impl MountEntry {
    fn parse(line: &str) -> Option<MountEntry> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(2);
        let number = parse_number(left.next()?)?;
        let point = unescape(left.nth(1)?);
        let mut right = right.split(' ');
        let (kind, source) = (right.next()?.to_owned(), unescape(right.next()?));
        Some(MountEntry { number, point, kind, source })
    }
}

/// mountinfo and swaps write blanks and backslashes as three octal digits.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(super) fn parse_number(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

pub(super) fn sysfs(number: DeviceNumber) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", number.0, number.1))
}

/// The device, its partitions, and whatever is stacked upon any of them.
fn family(start: DeviceNumber) -> BTreeSet<DeviceNumber> {
    let mut family = BTreeSet::new();
    let mut open = vec![start];
    while let Some(number) = open.pop() {
        if !family.insert(number) {
            continue;
        }
        let directory = sysfs(number);
        let partitions = entries(&directory).filter(|entry| entry.join("partition").exists());
        let holders = entries(&directory.join("holders"));
        let above = partitions.chain(holders).filter_map(|entry| fs::read_to_string(entry.join("dev")).ok());
        open.extend(above.filter_map(|text| parse_number(&text)));
    }
    family
}

pub(super) fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// A name for whoever keeps a device from being opened exclusively.
pub(super) fn claimed_by(major: u32, minor: u32) -> String {
    let identity = FileIdentity::Device { major, minor };
    if let Some(point) = mounted_at(major, minor) {
        return format!("the mount at {point}");
    }
    if is_swap(identity) {
        return "the swap area on it (swapoff ends that)".into();
    }
    let mut holders: Vec<String> = family((major, minor))
        .into_iter()
        .filter(|number| *number != (major, minor))
        .filter_map(|number| {
            let name = fs::read_link(sysfs(number)).ok()?;
            Some(name.file_name()?.to_string_lossy().into_owned())
        })
        .collect();
    holders.sort();
    match holders.len() {
        0 => "another program, or a mount in another namespace".into(),
        _ => format!("what lies on it ({})", holders.join(", ")),
    }
}

/// Who uses this block device, one of its partitions, or what is stacked upon it: a sentence's end. `None`: nobody, as far as this user may
/// see. `may_open`: the device answers, so that it may be opened, which alone shows mounts of other namespaces.
pub fn used_by(path: &Path, may_open: bool) -> Option<String> {
    look_for_users(path, may_open).err()
}

/// Keeps a block device that nobody uses for the caller: until the result is dropped it is not mounted, and nothing is stacked upon it.
/// What was written by somebody who has closed it since is on the device. The device answers, as [`used_by`] wants it. `None`: it is
/// no device, or does not open.
///
/// # Errors
/// Who uses it: a sentence's end.
pub fn claim_unused(path: &Path) -> Result<Option<OwnedFd>, String> {
    let claim = look_for_users(path, true)?;
    if let Some(claim) = &claim {
        write_back(claim);
    }
    Ok(claim)
}

/// The exclusive hold, if it may be opened. Held before processes are looked at: who comes later is kept away, or is seen.
fn look_for_users(path: &Path, may_open: bool) -> Result<Option<OwnedFd>, String> {
    let Ok(identity @ FileIdentity::Device { major, minor }) = identity_of(path) else { return Ok(None) };
    if let Some(point) = mounted_at(major, minor) {
        return Err(format!("the mount at {point}"));
    }
    if let Some(device) = loop_device_of(identity) {
        return Err(device.display().to_string());
    }
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let claim = match may_open.then(|| rustix::fs::open(path, flags, Mode::empty())) {
        Some(Err(Errno::BUSY)) => return Err(claimed_by(major, minor)),
        // Then nothing else can be looked at either.
        Some(Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM))) => {
            return Err(format!("somebody perhaps: it cannot be opened ({errno})"));
        }
        Some(opened) => opened.ok(),
        None => None,
    };
    let family = family((major, minor));
    let is_of_it =
        |open: FileIdentity| matches!(open, FileIdentity::Device { major, minor } if family.contains(&(major, minor)));
    process_that_has(is_of_it).map_or(Ok(claim), Err)
}

/// The last close of a device does this, and ours is the last one. What fails is lost, as it is there: who wrote it asked for no flush.
fn write_back(device: &OwnedFd) {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the call takes numbers only, and the descriptor stays open over it.
    unsafe { libc::sync_file_range(device.as_raw_fd(), 0, 0, flags) };
}

/// The loop device that serves this file or device as another disk.
pub(super) fn loop_device_of(file: FileIdentity) -> Option<PathBuf> {
    entries(Path::new("/sys/block")).find_map(|device| {
        let backing = fs::read_to_string(device.join("loop/backing_file")).ok()?;
        let backing = backing.trim_end_matches('\n');
        (identity_of(Path::new(backing)).ok()? == file).then(|| Path::new("/dev").join(device.file_name()?).into())?
    })
}

pub(super) fn is_swap(identity: FileIdentity) -> bool {
    let Ok(swaps) = fs::read_to_string("/proc/swaps") else {
        return false;
    };
    swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .any(|path| identity_of(Path::new(&unescape(path))) == Ok(identity))
}

/// Another process that has this file or device open, exclusively or not, as far as this user may see: a sentence's end.
pub fn opened_by(path: &Path) -> Option<String> {
    let wanted = identity_of(path).ok()?;
    process_that_has(|open| open == wanted)
}

/// Another process with an open file like that: a sentence's end.
fn process_that_has(is_it: impl Fn(FileIdentity) -> bool) -> Option<String> {
    let own = std::process::id().to_string();
    entries(Path::new("/proc")).find_map(|process| {
        let pid = process.file_name()?.to_str().filter(|pid| pid.parse::<u32>().is_ok() && **pid != own)?;
        let holds = entries(&process.join("fd")).any(|open| identity_of(&open).is_ok_and(&is_it));
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        holds.then(|| format!("process {pid} ({})", name.trim_end()))
    })
}

/// The process that holds a lock on a file, where the kernel tells.
pub(super) fn locked_by(file: FileIdentity) -> Option<u32> {
    let FileIdentity::File { device, inode } = file else {
        return None;
    };
    let wanted = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "->").collect();
        (*words.get(5)? == wanted).then(|| words.get(4)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_are_read_with_blanks_and_optional_fields() {
        let line =
            r"36 35 98:0 /mnt1 /mnt/a\040b\134c rw,noatime master:1 shared:2 - ext3 /dev/my\040disk rw,errors=continue";
        let mount = MountEntry::parse(line).unwrap();
        assert_eq!(mount.number, (98, 0));
        assert_eq!(mount.point, r"/mnt/a b\c");
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("ext3", "/dev/my disk"));
        assert!(MountEntry::parse("36 35 98:0 / /mnt rw").is_none());
        assert!(MountEntry::parse("").is_none());
    }

    #[test]
    fn a_path_is_seen_through_the_deepest_and_last_mount() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /srv rw - xfs /dev/b rw\n\
            3 1 0:9 / /srv/x rw - tmpfs t rw\n4 1 8:3 / /srv rw - btrfs /dev/c rw\n";
        for (path, kind) in [("/", "ext4"), ("/srvx", "ext4"), ("/srv", "btrfs"), ("/srv/x/y", "tmpfs")] {
            assert_eq!(covering(mounts, Path::new(path)).map(|mount| mount.kind).as_deref(), Some(kind), "{path}");
        }
        let here = file_system_of(Path::new("/")).expect("there is a root");
        assert!(here.total_bytes >= here.free_bytes);
        assert!(file_system_of(Path::new("/there/is/no/such/place")).is_err());
    }

    #[test]
    fn odd_escapes_stay_as_they_are() {
        assert_eq!(unescape(r"a\"), r"a\");
        assert_eq!(unescape(r"a\99"), r"a\99");
        assert_eq!(unescape(r"a\999b"), r"a\999b");
    }
}
