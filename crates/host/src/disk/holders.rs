//! Who else uses a disk or a file on this machine: what makes "busy" a sentence that helps.
//!
//! The kernel's exclusive hold is the guard for devices; what is found here only names the user. For files nothing in
//! the kernel guards, so a loop device or swap area on top is looked for here.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::file::Identity;

type Number = (u32, u32);

/// The identity behind a path, links followed.
pub(super) fn identity_of(path: &Path) -> rustix::io::Result<Identity> {
    rustix::fs::stat(path).map(|stat| identity_from(&stat))
}

pub(super) fn identity_from(stat: &rustix::fs::Stat) -> Identity {
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::BlockDevice {
        let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        Identity::Device { major, minor }
    } else {
        Identity::File { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// Where a device, one of its partitions or something stacked upon it is mounted in this mount namespace.
pub(super) fn mounted_at(major: u32, minor: u32) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let family = family((major, minor));
    mounts.lines().find_map(|line| {
        let mount = Mount::parse(line)?;
        // btrfs shows a number of its own; its source still names the device.
        let by_source = || {
            matches!(identity_of(Path::new(&mount.source)), Ok(Identity::Device { major, minor })
            if family.contains(&(major, minor)))
        };
        (family.contains(&mount.number) || by_source()).then_some(mount.point)
    })
}

struct Mount {
    number: Number,
    point: String,
    source: String,
}

impl Mount {
    fn parse(line: &str) -> Option<Mount> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(2);
        let number = parse_number(left.next()?)?;
        let point = unescape(left.nth(1)?);
        let source = unescape(right.split(' ').nth(1)?);
        Some(Mount { number, point, source })
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

fn parse_number(text: &str) -> Option<Number> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn sysfs(number: Number) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", number.0, number.1))
}

/// The device, its partitions, and whatever is stacked upon any of them.
fn family(start: Number) -> BTreeSet<Number> {
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

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// A name for whoever keeps a device from being opened exclusively.
pub(super) fn claimed_by(major: u32, minor: u32) -> String {
    let identity = Identity::Device { major, minor };
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

/// The loop device that serves this file as a disk.
pub(super) fn loop_device_of(file: Identity) -> Option<PathBuf> {
    entries(Path::new("/sys/block")).find_map(|device| {
        let backing = fs::read_to_string(device.join("loop/backing_file")).ok()?;
        let backing = backing.trim_end_matches('\n');
        (identity_of(Path::new(backing)).ok()? == file).then(|| Path::new("/dev").join(device.file_name()?).into())?
    })
}

pub(super) fn is_swap(identity: Identity) -> bool {
    let Ok(swaps) = fs::read_to_string("/proc/swaps") else {
        return false;
    };
    swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .any(|path| identity_of(Path::new(&unescape(path))) == Ok(identity))
}

/// The process that holds a lock on a file, where the kernel tells.
pub(super) fn locked_by(file: Identity) -> Option<u32> {
    let Identity::File { device, inode } = file else {
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
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.number, (98, 0));
        assert_eq!(mount.point, r"/mnt/a b\c");
        assert_eq!(mount.source, "/dev/my disk");
        assert!(Mount::parse("36 35 98:0 / /mnt rw").is_none());
        assert!(Mount::parse("").is_none());
    }

    #[test]
    fn odd_escapes_stay_as_they_are() {
        assert_eq!(unescape(r"a\"), r"a\");
        assert_eq!(unescape(r"a\99"), r"a\99");
        assert_eq!(unescape(r"a\999b"), r"a\999b");
    }
}
