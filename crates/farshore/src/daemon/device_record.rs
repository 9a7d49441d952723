//! Small records of a group's devices in `<state>/groups/<group>`, as text with a checksum: see `docs/book/format.md`.
//!
//! `devices`: which device every volume was on when the group was last taken up. `accepted`: that the operator has said what becomes
//! of the group on devices that are others. `detached`: volumes that the group goes on without, each with the device that it was on.
//! `left`: volumes that were of the group, each with its device, the role of this node, and when it left.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use engine::identity::Role;
use host::disk::device_id::DeviceId;
use settings::durable;

use super::checked_text;

const DEVICES: &str = "devices";
const ACCEPTED: &str = "accepted";
/// Of a record that only says in which role the node was: no superblock has this number.
const NO_UPDATE: u64 = 0;
const DETACHED: &str = "detached";
pub(super) const LEFT: &str = "left";
/// 256 volumes with the longest facts.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The devices of a group's volumes, by name.
pub(super) type GroupDevices = BTreeMap<String, DeviceId>;

/// A volume that left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeftVolume {
    /// This node's, of the group that it left.
    pub role: Role,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    pub device: DeviceId,
}

/// Volumes that left a group, by the names that they had and when they left: a name may have left several times, with another device each.
pub(super) type LeftVolumes = BTreeMap<(String, u64), LeftVolume>;

/// What the operator has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    /// As which the group begins anew on this node.
    pub begins_as: Role,
    /// The update of the superblock that was on record when that was said; `None`: nothing was that could be read.
    pub update: Option<u64>,
    pub devices: GroupDevices,
}

/// Where the record of the devices lies.
pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join(DEVICES)
}

/// Reads `devices`; `None`: there is none.
///
/// # Errors
/// A sentence that goes on from "the record of its devices": it cannot be read, or is damaged.
pub(super) fn read_devices(directory: &Path) -> anyhow::Result<Option<GroupDevices>> {
    let Some((head, devices)) = read(directory, DEVICES)? else { return Ok(None) };
    if !head.is_empty() {
        bail!("is damaged: it has a line that is none of a record");
    }
    Ok(Some(devices))
}

/// Writes `devices`, unless it says the same.
pub(super) fn keep_devices(directory: &Path, devices: &GroupDevices) -> anyhow::Result<()> {
    if matches!(read_devices(directory), Ok(Some(kept)) if kept == *devices) {
        return Ok(());
    }
    write(directory, DEVICES, &[], devices)
}

/// Reads `accepted`; `None`: there is none.
///
/// # Errors
/// A sentence: it cannot be read, or is damaged.
pub(super) fn read_accepted(directory: &Path) -> anyhow::Result<Option<Accepted>> {
    let lost = || {
        format!(
            "{} is of no use, so what 'farshore accept-device' was told is not known: remove it, restart the daemon, and say it again if \
             that is asked",
            directory.join(ACCEPTED).display()
        )
    };
    let Some((head, devices)) = read(directory, ACCEPTED).with_context(lost)? else { return Ok(None) };
    let role = |key: &str| match head.get(key).map(String::as_str) {
        Some("primary") => Ok(Some(Role::Primary)),
        Some("secondary") => Ok(Some(Role::Secondary)),
        None => Ok(None),
        Some(_) => Err(anyhow::anyhow!("it does not say in which role").context(lost())),
    };
    let begins_as = role("begins")?.ok_or_else(|| anyhow::anyhow!("it does not say in which role").context(lost()))?;
    let update = head.get("update").map(|update| update.parse()).transpose().with_context(lost)?;
    let update = update.or_else(|| role("was").transpose().map(|_| NO_UPDATE));
    Ok(Some(Accepted { begins_as, update, devices }))
}

pub(super) fn write_accepted(directory: &Path, accepted: &Accepted) -> anyhow::Result<()> {
    let update = accepted.update.map(|update| update.to_string());
    let begins = ("begins", accepted.begins_as.word());
    let head: Vec<_> = [begins].into_iter().chain(update.as_deref().map(|update| ("update", update))).collect();
    write(directory, ACCEPTED, &head, &accepted.devices)
}

pub(super) fn remove_accepted(directory: &Path) {
    // Left behind it says nothing once the group is on record.
    let _ = std::fs::remove_file(directory.join(ACCEPTED));
}

/// Volumes that are detached; mostly none.
///
/// # Errors
/// A sentence: it cannot be read, or is damaged.
pub(super) fn read_detached(directory: &Path) -> anyhow::Result<GroupDevices> {
    let lost = || {
        format!(
            "{} is of no use, so which volumes are detached is not known: remove it if none is, else write it anew with 'farshore group \
             detach' once the group is up",
            directory.join(DETACHED).display()
        )
    };
    Ok(read(directory, DETACHED).with_context(lost)?.map(|(_, devices)| devices).unwrap_or_default())
}

/// Takes effect when the group is opened next.
pub(super) fn write_detached(directory: &Path, devices: &GroupDevices) -> anyhow::Result<()> {
    write(directory, DETACHED, &[], devices)
}

/// Volumes that left the group.
///
/// # Errors
/// A sentence: it cannot be read, or is damaged.
pub(super) fn read_left(directory: &Path) -> anyhow::Result<LeftVolumes> {
    let lost = || format!("the record {}", directory.join(LEFT).display());
    let Some((head, devices)) = read(directory, LEFT).with_context(lost)? else { return Ok(LeftVolumes::new()) };
    let one = |(key, device): (String, DeviceId)| {
        let (role, named) = head
            .get(&key)
            .map(String::as_str)
            .zip(key.split_once('@'))
            .context("it does not say in which role and when a volume left")?;
        let unix_ms = named.1.parse()?;
        let role = if role == Role::Primary.word() { Role::Primary } else { Role::Secondary };
        Ok(((named.0.to_owned(), unix_ms), LeftVolume { role, unix_ms, device }))
    };
    devices.into_iter().map(one).collect()
}

/// The same, as text.
pub(super) fn text_of_left(left: &LeftVolumes) -> String {
    let keyed: Vec<_> = left.iter().map(|((name, unix_ms), left)| (format!("{name}@{unix_ms}"), left)).collect();
    let head: Vec<_> = keyed.iter().map(|(key, left)| (key.as_str(), left.role.word())).collect();
    encode(LEFT, &head, &keyed.iter().map(|(key, left)| (key.clone(), left.device.clone())).collect())
}

/// Removes all that is recorded of a group on devices that are no longer there, but for which of its volumes are detached: those have no device
/// still. A crash leaves some of it, and it is done again.
pub(super) fn clear(directory: &Path) -> anyhow::Result<()> {
    for name in ["fingerprints", "journal", "bitmap", "activity", "marks", "undo", "superblock"] {
        let path = directory.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{} cannot be removed", path.display()));
            }
            _ => {}
        }
    }
    let synced = std::fs::File::open(directory).and_then(|directory| directory.sync_all());
    synced.with_context(|| format!("{} cannot be flushed", directory.display()))
}

/// What `devices` says, as text.
pub(super) fn text_of(devices: &GroupDevices) -> String {
    encode(DEVICES, &[], devices)
}

/// The same of `detached`.
pub(super) fn text_of_detached(devices: &GroupDevices) -> String {
    encode(DETACHED, &[], devices)
}

fn write(directory: &Path, name: &str, head: &[(&str, &str)], devices: &GroupDevices) -> anyhow::Result<()> {
    let path = directory.join(name);
    durable::replace(&path, encode(name, head, devices).as_bytes())
        .with_context(|| format!("{} cannot be written", path.display()))
}

fn encode(name: &str, head: &[(&str, &str)], devices: &GroupDevices) -> String {
    let mut text = format!("farshore {name} 1\n");
    for (key, value) in head {
        _ = writeln!(text, "{key} {value}");
    }
    for (volume, device) in devices {
        _ = write!(text, "volume {volume}\n{}", device.to_lines());
    }
    let checksum = crc32c::crc32c(text.as_bytes());
    _ = writeln!(text, "checksum {checksum:08x}");
    text
}

type Parsed = (BTreeMap<String, String>, GroupDevices);

fn read(directory: &Path, name: &str) -> anyhow::Result<Option<Parsed>> {
    let path = directory.join(name);
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.len() > FILE_BYTES_MAX => bail!("is damaged: {} is far too long", path.display()),
        _ => {}
    }
    let read = durable::open(&path).and_then(std::io::read_to_string);
    let text = read.with_context(|| format!("{} cannot be read", path.display()))?;
    decode(name, &text).with_context(|| format!("is damaged ({})", path.display())).map(Some)
}

fn decode(name: &str, text: &str) -> anyhow::Result<Parsed> {
    let body = checked_text::body(text)?;
    let mut lines = body.lines();
    let first = lines.next().unwrap_or_default();
    if first != format!("farshore {name} 1") {
        bail!("it begins with {first:?}, which this program does not know");
    }
    let (mut head, mut devices) = (BTreeMap::new(), GroupDevices::new());
    let mut volume: Option<String> = None;
    for line in lines {
        match (line.strip_prefix("volume "), &volume) {
            (Some(name), _) => {
                devices.insert(name.to_owned(), DeviceId::default());
                volume = Some(name.to_owned());
            }
            (None, Some(name)) => devices.entry(name.clone()).or_default().take_line(line)?,
            (None, None) => {
                let (key, value) = line.split_once(' ').context("it has a line without a value")?;
                head.insert(key.to_owned(), value.to_owned());
            }
        }
    }
    Ok((head, devices))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(inode: u64) -> DeviceId {
        let mut id = DeviceId::default();
        for line in ["size 4096", "kind file", &format!("inode {inode}")] {
            id.take_line(line).expect("a fact");
        }
        id
    }

    #[test]
    fn records_come_back_and_every_damage_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let state_dir = directory.path();
        assert_eq!(read_devices(state_dir).expect("nothing is wrong"), None);
        let devices = GroupDevices::from([("data".to_owned(), device(7)), ("log".to_owned(), device(8))]);
        keep_devices(state_dir, &devices).expect("written");
        assert_eq!(read_devices(state_dir).expect("sound"), Some(devices.clone()));
        let whole = std::fs::read(state_dir.join(DEVICES)).expect("there");
        for end in 0..whole.len() - 1 {
            std::fs::write(state_dir.join(DEVICES), &whole[..end]).expect("written");
            assert!(read_devices(state_dir).is_err(), "cut at {end}");
        }
        for at in 0..whole.len() - 1 {
            let mut bad = whole.clone();
            bad[at] ^= 1;
            std::fs::write(state_dir.join(DEVICES), bad).expect("written");
            assert!(read_devices(state_dir).is_err(), "byte {at}");
        }
        keep_devices(state_dir, &devices).expect("written");
        assert_eq!(std::fs::read(state_dir.join(DEVICES)).expect("there"), whole);
    }

    #[test]
    fn what_was_accepted_comes_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let state_dir = directory.path();
        assert_eq!(read_accepted(state_dir).expect("nothing is wrong"), None);
        for begins_as in [Role::Primary, Role::Secondary] {
            let devices = GroupDevices::from([("data".to_owned(), device(7))]);
            let accepted = Accepted { begins_as, update: (begins_as == Role::Primary).then_some(u64::MAX), devices };
            write_accepted(state_dir, &accepted).expect("written");
            assert_eq!(read_accepted(state_dir).expect("sound"), Some(accepted));
        }
        // The form of before has the role of then: it counts where nothing is on record, and of no record.
        for (head, update) in [(vec![], None), (vec![("was", "primary")], Some(NO_UPDATE))] {
            let devices = GroupDevices::from([("data".to_owned(), device(7))]);
            write(state_dir, ACCEPTED, &[vec![("begins", "secondary")], head].concat(), &devices).expect("written");
            let accepted = Accepted { begins_as: Role::Secondary, update, devices };
            assert_eq!(read_accepted(state_dir).expect("sound"), Some(accepted));
        }
        for text in ["", "rubbish", "farshore accepted 1\n"] {
            std::fs::write(state_dir.join(ACCEPTED), text).expect("written");
            let failure = format!("{:#}", read_accepted(state_dir).expect_err("damaged"));
            assert!(failure.contains("accepted is of no use, so what 'farshore accept-device' was told"), "{failure}");
        }
    }
}
