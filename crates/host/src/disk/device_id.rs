//! What tells a file or a block device from every other one, across boots and whatever it is called today.
//!
//! A path is a name that others may come to bear: the kernel hands out `/dev/sdb` anew at each boot, and a file that is removed
//! and made again has its path, its size and often its inode. So what stands behind a volume's path is known by what stays with it:
//!
//! * a file: its inode and the moment in which it was made. Not the number of its file system's device, which changes with the boot;
//! * a block device: what the hardware or a mapper calls itself (WWN, serial number, UUID of an LVM or md volume), and of a
//!   partition its place. One that has no such name: where it is plugged in, and its size;
//! * a loop device: the same of what lies below it, and from which byte on. Its own number is drawn anew each time.
//!
//! What lies on the device, a file system's UUID say, does not count: it belongs to the content, and goes along with a copy.
//!
//! The text, a line for each fact, is part of `devices` in a group's state directory: see `docs/book/format.md`.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};
use units::size::show_exact;

use super::file::File;
use super::holders::{DeviceNumber, sysfs};
use super::identity::{FileIdentity, identity_from, identity_of};
use super::open_error::OpenError;
use super::volume::check_kind;

/// Longest value kept; longer ones are cut, which only makes them a little less telling.
const VALUE_BYTES_MAX: usize = 512;
/// Loop devices upon loop devices that are looked through.
const DEPTH_MAX: usize = 8;
/// Before the name of a fact: it is one of what lies below.
const BELOW: &str = "on.";

/// Names that a device has from its maker or its mapper, and where the kernel tells them.
const NAMES: [(&str, &[&str]); 7] = [
    ("wwid", &["wwid", "device/wwid"]),
    ("serial", &["serial", "device/serial"]),
    ("cid", &["device/cid"]),
    ("dm-uuid", &["dm/uuid"]),
    ("md-uuid", &["md/uuid"]),
    ("dm-name", &["dm/name"]),
    ("partuuid", &[]),
];

/// What is known of one file or block device.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DeviceId {
    pub size_bytes: u64,
    /// By name: `kind`, then what that kind has.
    facts: BTreeMap<String, String>,
}

/// In what a device that was found contradicts the one that is recorded. Each ends a sentence about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    #[error("it was a {was} and is a {is}")]
    Kind { was: String, is: String },
    #[error("it was made at another time, and only its path is the same")]
    Made,
    #[error("its {what} was {was} and is {is}")]
    Fact { what: String, was: String, is: String },
    #[error("its {what} was {was}, and it has none")]
    NameGone { what: String, was: String },
    #[error("it had neither WWN nor serial number, and its {what} is {is}")]
    NameCame { what: String, is: String },
    #[error("it has neither WWN nor serial number, and had {} where it has {}", show_exact(*.was_bytes), show_exact(*.is_bytes))]
    Size { was_bytes: u64, is_bytes: u64 },
}

/// A line that is no fact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no fact about a device")]
pub struct BadFact(String);

impl DeviceId {
    /// What stands behind a path, links followed. Nothing is opened.
    ///
    /// # Errors
    /// The path leads nowhere, or may not be looked at.
    pub fn of(path: &Path) -> Result<DeviceId, OpenError> {
        DeviceId::behind(path, path)
    }

    /// What a file that is open stands for, wherever its path leads by now.
    ///
    /// # Errors
    /// It may not be looked at.
    pub fn of_open(file: &File) -> Result<DeviceId, OpenError> {
        DeviceId::behind(Path::new(&format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())), file.path())
    }

    /// `name`: what an error calls it.
    fn behind(path: &Path, name: &Path) -> Result<DeviceId, OpenError> {
        let failed = |errno| OpenError::at(name, "looking at it", errno);
        let stat = rustix::fs::stat(path).map_err(failed)?;
        check_kind(name, FileType::from_raw_mode(stat.st_mode))?;
        let identity = identity_from(&stat);
        let mut id = DeviceId::default();
        match identity {
            FileIdentity::File { .. } => {
                id.size_bytes = stat.st_size.unsigned_abs();
                id.add_file("", path).map_err(failed)?;
            }
            FileIdentity::Device { major, minor } => {
                let sectors = text(&sysfs((major, minor)).join("size")).and_then(|text| text.parse::<u64>().ok());
                id.size_bytes = sectors.unwrap_or(0).saturating_mul(512);
                id.add_device("", (major, minor), 0);
            }
        }
        Ok(id)
    }

    /// The facts as lines, `name value` each.
    pub fn to_lines(&self) -> String {
        let facts = self.facts.iter().map(|(name, value)| format!("{name} {value}\n"));
        std::iter::once(format!("size {}\n", self.size_bytes)).chain(facts).collect()
    }

    /// Takes up a line that [`DeviceId::to_lines`] made.
    ///
    /// # Errors
    /// It is none of these.
    pub fn take_line(&mut self, line: &str) -> Result<(), BadFact> {
        let bad = || BadFact(line.to_owned());
        let (name, value) = line.split_once(' ').filter(|(name, _)| !name.is_empty()).ok_or_else(bad)?;
        if name == "size" {
            self.size_bytes = value.parse().map_err(|_| bad())?;
        } else if self.facts.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(bad());
        }
        Ok(())
    }

    fn add(&mut self, prefix: &str, name: &str, value: &str) {
        let plain: String = value.trim().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let end = (0..=VALUE_BYTES_MAX.min(plain.len())).rev().find(|at| plain.is_char_boundary(*at)).unwrap_or(0);
        if end > 0 {
            self.facts.insert(format!("{prefix}{name}"), plain[..end].to_owned());
        }
    }

    fn add_file(&mut self, prefix: &str, path: &Path) -> rustix::io::Result<()> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let found = rustix::fs::statx(CWD, path, AtFlags::empty(), wanted)?;
        self.add(prefix, "kind", "file");
        self.add(prefix, "inode", &found.stx_ino.to_string());
        if found.stx_mask & StatxFlags::BTIME.bits() != 0 {
            let made = found.stx_btime;
            self.add(prefix, "made", &format!("{}.{:09}", made.tv_sec, made.tv_nsec));
        }
        Ok(())
    }

    fn add_device(&mut self, prefix: &str, number: DeviceNumber, depth: usize) {
        let here = sysfs(number);
        let whole = if here.join("partition").exists() { here.join("..") } else { here.clone() };
        self.add(prefix, "kind", "device");
        if whole != here {
            for (name, file) in [("partition", "partition"), ("start", "start")] {
                self.add(prefix, name, &text(&here.join(file)).unwrap_or_default());
            }
            self.add(prefix, "partuuid", &uevent(&here, "PARTUUID").unwrap_or_default());
        }
        if let Some(backing) = text(&whole.join("loop/backing_file")) {
            self.add(prefix, "kind", "loop");
            self.add(prefix, "offset", &text(&whole.join("loop/offset")).unwrap_or_default());
            return self.add_below(prefix, &PathBuf::from(backing), depth);
        }
        for (name, paths) in NAMES {
            let found = paths.iter().find_map(|bus_path| text(&whole.join(bus_path)));
            self.add(prefix, name, &found.unwrap_or_default());
        }
        if self.facts.contains_key(&format!("{prefix}dm-uuid")) {
            // A name that may be changed, where there is a better one.
            self.facts.remove(&format!("{prefix}dm-name"));
        }
        self.add(prefix, "plugged", &fs::canonicalize(&whole).map(|path| plugged(&path)).unwrap_or_default());
    }

    fn add_below(&mut self, prefix: &str, backing: &Path, depth: usize) {
        let prefix = format!("{prefix}{BELOW}");
        match identity_of(backing) {
            Ok(FileIdentity::File { .. }) if self.add_file(&prefix, backing).is_ok() => {}
            Ok(FileIdentity::Device { major, minor }) if depth < DEPTH_MAX => {
                self.add_device(&prefix, (major, minor), depth + 1);
            }
            // Removed since, or another mount namespace: its path is all there is.
            _ => self.add(&prefix, "path", &backing.to_string_lossy()),
        }
    }

    fn fact(&self, name: &str) -> Option<&str> {
        self.facts.get(name).map(String::as_str)
    }

    /// The layers, as the prefixes of their facts: the device itself first.
    fn layers(&self) -> impl Iterator<Item = String> {
        (0..=DEPTH_MAX)
            .map(|depth| BELOW.repeat(depth))
            .take_while(|prefix| self.facts.contains_key(&format!("{prefix}kind")))
    }

    fn names<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'static str, &'a str)> {
        NAMES.iter().filter_map(move |(name, _)| Some((*name, self.fact(&format!("{prefix}{name}"))?)))
    }

    /// For a sentence: `a file (inode 12, made ...), 40 KiB`. `date` shows seconds since 1970.
    pub fn words(&self, date: impl Fn(i64) -> String) -> String {
        let layers: Vec<String> = self.layers().map(|prefix| self.layer_in_words(&prefix, &date)).collect();
        let what = if layers.is_empty() { "nothing known".to_owned() } else { layers.join(" upon ") };
        format!("{what}, {}", show_exact(self.size_bytes))
    }

    fn layer_in_words(&self, prefix: &str, date: &impl Fn(i64) -> String) -> String {
        let get = |name: &str| self.fact(&format!("{prefix}{name}"));
        let mut facts = Vec::new();
        facts.extend(get("inode").map(|inode| format!("inode {inode}")));
        let seconds = get("made").and_then(|made| made.split('.').next()?.parse().ok());
        facts.extend(seconds.map(|seconds| format!("made {}", date(seconds))));
        facts.extend(self.names(prefix).map(|(name, value)| format!("{} {value}", called(name))));
        facts.extend(
            get("partition").map(|number| format!("partition {number} from sector {}", get("start").unwrap_or("?"))),
        );
        facts.extend(get("offset").filter(|offset| *offset != "0").map(|offset| format!("from byte {offset}")));
        facts.extend(get("path").map(|path| format!("a file that was at {path}")));
        if get("kind") == Some("device") && self.names(prefix).next().is_none() {
            facts.push("without WWN or serial number".to_owned());
            facts.extend(get("plugged").map(|bus_path| format!("at {bus_path}")));
        }
        let kind = kind_in_words(get("kind").unwrap_or_default());
        if facts.is_empty() { format!("a {kind}") } else { format!("a {kind} ({})", facts.join(", ")) }
    }
}

/// Is what was found the device that is recorded? What only one of them knows contradicts nothing, so that a kernel that tells
/// more, or less, refuses nobody; but one that has a name is not one that has none.
///
/// # Errors
/// The first contradiction, the most telling first.
pub fn compare(recorded: &DeviceId, found: &DeviceId) -> Result<(), Contradiction> {
    let mut layers: Vec<String> = recorded.layers().chain(found.layers()).collect();
    layers.sort();
    layers.dedup();
    layers.iter().try_for_each(|prefix| compare_layer(recorded, found, prefix))?;
    let bare = recorded.fact("kind") == Some("device") && recorded.names("").next().is_none();
    if bare && recorded.size_bytes != found.size_bytes {
        return Err(Contradiction::Size { was_bytes: recorded.size_bytes, is_bytes: found.size_bytes });
    }
    Ok(())
}

fn compare_layer(recorded: &DeviceId, found: &DeviceId, prefix: &str) -> Result<(), Contradiction> {
    let get = |id: &DeviceId, name: &str| id.fact(&format!("{prefix}{name}")).map(str::to_owned);
    let (was, is) = (get(recorded, "kind"), get(found, "kind"));
    if was != is {
        let shown = |kind: Option<String>| kind_in_words(kind.as_deref().unwrap_or("nothing")).to_owned();
        return Err(Contradiction::Kind { was: shown(was), is: shown(is) });
    }
    compare_names(recorded, found, prefix)?;
    for what in ["inode", "made", "offset", "path"] {
        if let (Some(was), Some(is)) = (get(recorded, what), get(found, what))
            && was != is
        {
            if what == "made" {
                return Err(Contradiction::Made);
            }
            return Err(Contradiction::Fact { what: called(what).to_owned(), was, is });
        }
    }
    // What is no partition says nothing of a place, and is another device all the same.
    for what in ["partition", "start"] {
        let shown = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
        let (was, is) = (get(recorded, what), get(found, what));
        if was != is {
            return Err(Contradiction::Fact { what: called(what).to_owned(), was: shown(was), is: shown(is) });
        }
    }
    let plugged = (get(recorded, "plugged"), get(found, "plugged"));
    match plugged {
        (Some(was), Some(is)) if was != is && recorded.names(prefix).next().is_none() => {
            Err(Contradiction::Fact { what: called("plugged").to_owned(), was, is })
        }
        _ => Ok(()),
    }
}

fn compare_names(recorded: &DeviceId, found: &DeviceId, prefix: &str) -> Result<(), Contradiction> {
    let (was, is): (Vec<_>, Vec<_>) = (recorded.names(prefix).collect(), found.names(prefix).collect());
    let mut both = was.iter().filter_map(|(what, was)| {
        let (_, is) = is.iter().find(|(other, _)| other == what)?;
        Some((what, was, is))
    });
    if let Some((what, was, is)) = both.clone().find(|(_, was, is)| was != is) {
        let (was, is) = ((*was).to_owned(), (*is).to_owned());
        return Err(Contradiction::Fact { what: called(what).to_owned(), was, is });
    }
    match (was.first(), is.first()) {
        _ if both.next().is_some() => Ok(()),
        (Some((what, was)), _) => {
            Err(Contradiction::NameGone { what: called(what).to_owned(), was: (*was).to_owned() })
        }
        (None, Some((what, is))) => {
            Err(Contradiction::NameCame { what: called(what).to_owned(), is: (*is).to_owned() })
        }
        (None, None) => Ok(()),
    }
}

fn kind_in_words(kind: &str) -> &str {
    match kind {
        "device" => "block device",
        "loop" => "loop device",
        kind => kind,
    }
}

/// A fact's name, for people.
fn called(name: &str) -> &str {
    match name {
        "wwid" => "WWN",
        "serial" => "serial number",
        "dm-uuid" | "md-uuid" => "UUID",
        "dm-name" => "name",
        "partuuid" => "partition UUID",
        "partition" => "partition number",
        "start" => "first sector",
        "offset" => "first byte",
        "plugged" => "bus path",
        name => name,
    }
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim_matches(|character: char| character.is_whitespace() || character == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

fn uevent(device: &Path, key: &str) -> Option<String> {
    let lines = text(&device.join("uevent"))?;
    lines.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix('=')?.to_owned()))
}

/// Where a device hangs in the machine, without the numbers that are given in the order of finding.
fn plugged(path: &Path) -> String {
    let parts: Vec<String> = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    let numbered = |part: &str, word: &str| {
        part.strip_prefix(word).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let is_virtual = parts.iter().any(|part| part == "virtual");
    let last = parts.len().saturating_sub(1);
    let kept = parts.iter().enumerate().skip(3).filter_map(|(at, part)| match part.as_str() {
        "block" => None,
        // A name that the kernel gave, unless there is nothing else.
        _ if at == last && !is_virtual => None,
        part if ["virtio", "host", "target", "ata"].iter().any(|word| numbered(part, word)) => None,
        // Host, channel, target, unit: the host's number is drawn.
        part => match part.split_once(':') {
            Some((host, rest)) if host.chars().all(|c| c.is_ascii_digit()) && part.matches(':').count() == 3 => {
                Some(rest.to_owned())
            }
            _ => Some(part.to_owned()),
        },
    });
    kept.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::super::volume::{VolumeOptions, open_volume};
    use super::*;

    fn id(lines: &str) -> DeviceId {
        let mut id = DeviceId::default();
        lines.lines().map(str::trim).for_each(|line| id.take_line(line).expect("a fact"));
        id
    }

    #[track_caller]
    fn same(recorded: &str, found: &str) {
        assert_eq!(compare(&id(recorded), &id(found)), Ok(()), "{recorded} / {found}");
    }

    #[track_caller]
    fn other(recorded: &str, found: &str, sentence: &str) {
        let why = compare(&id(recorded), &id(found)).expect_err("another one").to_string();
        assert_eq!(why, sentence);
    }

    #[test]
    fn an_open_file_is_known_whatever_its_path_leads_to() {
        let directory = tempfile::tempdir().expect("a directory");
        let [path, other] = ["volume", "other"].map(|name| directory.path().join(name));
        [&path, &other].iter().for_each(|path| std::fs::write(path, [7; 4096]).expect("written"));
        let was = DeviceId::of(&path).expect("there");
        let open = open_volume(&path, VolumeOptions::default()).expect("opens");
        std::fs::rename(&other, &path).expect("in its place");
        assert_eq!(DeviceId::of_open(&open).expect("open"), was);
        assert!(compare(&was, &DeviceId::of(&path).expect("there")).is_err());
    }

    #[test]
    fn files_are_recognised_by_inode_and_by_when_they_were_made() {
        let file = "size 4096\nkind file\ninode 7\nmade 5.000000001";
        same(file, file);
        same(file, "size 8192\nkind file\ninode 7\nmade 5.000000001");
        same(file, "size 4096\nkind file\ninode 7");
        other(file, "size 4096\nkind file\ninode 8\nmade 5.000000001", "its inode was 7 and is 8");
        let again = "size 4096\nkind file\ninode 7\nmade 6.000000000";
        other(file, again, "it was made at another time, and only its path is the same");
        other(file, "size 4096\nkind device\nserial A", "it was a file and is a block device");
    }

    #[test]
    fn devices_are_recognised_by_what_they_call_themselves() {
        let disk = "size 512\nkind device\nwwid naa.5\nserial A\nplugged pci0000:00/1:0:0";
        same(disk, disk);
        same(disk, "size 1024\nkind device\nwwid naa.5\nserial A\nplugged pci0000:00/2:0:0");
        same(disk, "size 512\nkind device\nserial A");
        same("size 512\nkind device\nserial A", disk);
        other(disk, "size 512\nkind device\nwwid naa.6\nserial B", "its WWN was naa.5 and is naa.6");
        other(disk, "size 512\nkind device\nwwid naa.5\nserial B", "its serial number was A and is B");
        other(disk, "size 512\nkind device\ncid 9", "its WWN was naa.5, and it has none");
        other(disk, "size 512\nkind device", "its WWN was naa.5, and it has none");
        let why = "it had neither WWN nor serial number, and its serial number is A";
        other("size 512\nkind device", "size 512\nkind device\nserial A", why);
    }

    #[test]
    fn partitions_of_one_disk_are_recognised_by_their_offset() {
        let first = "size 512\nkind device\nserial A\npartition 1\nstart 2048";
        same(first, first);
        other(first, "size 512\nkind device\nserial A\npartition 2\nstart 9000", "its partition number was 1 and is 2");
        other(
            first,
            "size 512\nkind device\nserial A\npartition 1\nstart 4096",
            "its first sector was 2048 and is 4096",
        );
        other(first, "size 512\nkind device\nserial A", "its partition number was 1 and is none");
        let with_uuid = format!("{first}\npartuuid x");
        same(first, &with_uuid);
        other(&with_uuid, &format!("{first}\npartuuid y"), "its partition UUID was x and is y");
    }

    #[test]
    fn what_has_no_name_is_recognised_by_its_bus_path_and_size() {
        let disk = "size 512\nkind device\nplugged pci0000:00/0000:00:04.0";
        same(disk, disk);
        let moved = "size 512\nkind device\nplugged pci0000:00/0000:00:05.0";
        other(disk, moved, "its bus path was pci0000:00/0000:00:04.0 and is pci0000:00/0000:00:05.0");
        let why = "it has neither WWN nor serial number, and had 512 B where it has 1 KiB";
        other(disk, "size 1024\nkind device\nplugged pci0000:00/0000:00:04.0", why);
    }

    #[test]
    fn loop_devices_are_what_lies_below_them() {
        let device = "size 512\nkind loop\noffset 0\non.kind file\non.inode 7\non.made 1.000000000";
        same(device, device);
        other(device, "size 512\nkind loop\noffset 0\non.kind file\non.inode 8", "its inode was 7 and is 8");
        other(device, "size 512\nkind loop\noffset 512\non.kind file\non.inode 7", "its first byte was 0 and is 512");
        let why = "it was a file and is a block device";
        other(device, "size 512\nkind loop\noffset 0\non.kind device\non.serial A", why);
        other(device, "size 512\nkind file\ninode 7", "it was a loop device and is a file");
        let words = id(device).words(|seconds| format!("<{seconds}>"));
        assert_eq!(words, "a loop device upon a file (inode 7, made <1>), 512 B");
    }

    #[test]
    fn lines_come_back_and_others_are_refused() {
        let found = id("size 512\nkind device\nserial A B  C\nplugged x");
        assert_eq!(id(&found.to_lines()), found);
        for line in ["", "serial", " x", "size many", "kind file"] {
            assert!(id("kind file").take_line(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn a_file_made_again_is_another_and_a_name_is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, link) = (directory.path().join("volume"), directory.path().join("link"));
        fs::write(&path, [0; 4096]).expect("written");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let first = DeviceId::of(&path).expect("there");
        assert_eq!(first.size_bytes, 4096);
        assert_eq!(compare(&first, &DeviceId::of(&link).expect("there")), Ok(()));
        fs::rename(&path, directory.path().join("moved")).expect("moved");
        assert_eq!(compare(&first, &DeviceId::of(&directory.path().join("moved")).expect("there")), Ok(()));
        fs::write(&path, [0; 4096]).expect("written");
        assert!(compare(&first, &DeviceId::of(&path).expect("there")).is_err());
        assert!(DeviceId::of(&directory.path().join("none")).is_err());
    }

    #[test]
    fn a_bus_path_has_no_numbers_that_are_drawn() {
        let bus_path = |path: &str| plugged(Path::new(path));
        assert_eq!(bus_path("/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda"), "pci0000:00/0000:00:02.0");
        let scsi = "/sys/devices/pci0000:00/0000:00:1f.2/ata3/host2/target2:0:1/2:0:1:0/block/sdb";
        assert_eq!(bus_path(scsi), "pci0000:00/0000:00:1f.2/0:1:0");
        assert_eq!(bus_path("/sys/devices/virtual/block/nbd0"), "virtual/nbd0");
    }
}
