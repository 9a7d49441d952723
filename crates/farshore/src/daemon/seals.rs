//! Fingerprints of a group's volumes between a clean stop and the next start: `<state>/groups/<group>/fingerprints`.
//!
//! A seal is set when the groups are at rest, looked at when they are opened again, and broken before anything is
//! written, so that a crash leaves none. Without one nobody knows what became of the volumes, as after any crash: a stop that
//! was cut short, or given up for the sake of one group, is no reason to distrust the copies of all. The file: for each volume one byte for the length of its name, the name, four
//! bytes little-endian for the length of its fingerprint, the fingerprint (which carries its own mark and checksum).

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use host::disk::File;
use host::disk::fingerprint::{Fingerprint, compare};

/// A thousand volumes with the longest device names.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The seals of all groups of this node.
#[derive(Default)]
pub(super) struct Seals(Vec<GroupSeals>);

pub(super) struct GroupSeals {
    group: String,
    path: PathBuf,
    volumes: Vec<(String, Arc<File>)>,
    /// What the last clean stop left, by volume; `None`: it left nothing.
    left: Option<BTreeMap<String, Fingerprint>>,
}

impl Seals {
    pub fn add(&mut self, seals: GroupSeals) {
        self.0.push(seals);
    }

    /// Removes all seals, durably.
    ///
    /// # Errors
    /// A file that cannot be removed: starting with it would hide a later change.
    pub fn break_all(&self) -> anyhow::Result<()> {
        self.0.iter().try_for_each(GroupSeals::remove)
    }

    /// Sets all seals anew. A failure costs what they are for, nothing more.
    pub fn write(&self) {
        for group in &self.0 {
            if let Err(error) = group.write() {
                tracing::warn!(
                    "group {}: its volumes were not sealed, so the next start cannot tell whether they were changed until \
                     then: {error:#}",
                    group.group
                );
            }
        }
    }
}

impl GroupSeals {
    /// Reads the seals that are there; of a damaged file all are broken.
    pub fn load(group: &str, path: PathBuf, volumes: Vec<(String, Arc<File>)>) -> GroupSeals {
        let left = read(&path).unwrap_or_else(|error| {
            tracing::warn!("group {group}: {} is of no use: {error:#}", path.display());
            Some(BTreeMap::new())
        });
        GroupSeals { group: group.to_owned(), path, volumes, left }
    }

    /// Whether each volume was changed since the last clean stop, as far as that left seals.
    pub fn compare(&self) -> Vec<bool> {
        let is_changed = |(name, file): &(String, Arc<File>)| {
            self.left.as_ref().is_some_and(|left| self.is_changed(left.get(name), name, file))
        };
        self.volumes.iter().map(is_changed).collect()
    }

    fn is_changed(&self, left: Option<&Fingerprint>, name: &str, file: &File) -> bool {
        let Some(left) = left else { return true };
        let now = match Fingerprint::take(file, left.seed()) {
            Ok(now) => now,
            Err(error) => {
                tracing::error!("volume {}/{name}: {error}", self.group);
                return true;
            }
        };
        let changed = compare(left, &now).err();
        if let Some(changed) = &changed {
            tracing::warn!("volume {}/{name} was changed since the last clean stop: {changed}", self.group);
        }
        changed.is_some()
    }

    fn remove(&self) -> anyhow::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error).with_context(|| format!("{} cannot be removed", self.path.display())),
            Ok(()) => sync_directory(&self.path),
        }
    }

    fn write(&self) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        for (name, file) in &self.volumes {
            let seal = Fingerprint::take(file, host::driver::entropy())?.to_bytes();
            bytes.push(u8::try_from(name.len())?);
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(&u32::try_from(seal.len())?.to_le_bytes());
            bytes.extend_from_slice(&seal);
        }
        let unfinished = self.path.with_extension("new");
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, &self.path)?;
        sync_directory(&self.path)
    }
}

fn sync_directory(path: &Path) -> anyhow::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let synced = fs::File::open(directory).and_then(|opened| opened.sync_all());
    synced.with_context(|| format!("{} cannot be flushed", directory.display()))
}

fn read(path: &Path) -> anyhow::Result<Option<BTreeMap<String, Fingerprint>>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.len() > FILE_BYTES_MAX => anyhow::bail!("it has {} bytes, far too many", found.len()),
        _ => {}
    }
    decode(&fs::read(path)?).map(Some)
}

/// The fingerprints of a file's bytes, by volume.
///
/// # Errors
/// A sentence that goes on from the file's name: where it is damaged.
pub fn decode(mut rest: &[u8]) -> anyhow::Result<BTreeMap<String, Fingerprint>> {
    let mut seals = BTreeMap::new();
    while let Some((length, behind)) = rest.split_first() {
        let (name, behind) = behind.split_at_checked(usize::from(*length)).context("it is cut short in a name")?;
        let (length, behind) = behind.split_first_chunk::<4>().context("it is cut short after a name")?;
        let length = u32::from_le_bytes(*length) as usize;
        let (seal, behind) = behind.split_at_checked(length).context("it is cut short in a fingerprint")?;
        seals.insert(std::str::from_utf8(name)?.to_owned(), Fingerprint::from_bytes(seal)?);
        rest = behind;
    }
    Ok(seals)
}

#[cfg(test)]
mod tests {
    use host::disk::volume::{VolumeOptions, open_volume};

    use super::*;

    fn group(directory: &Path) -> GroupSeals {
        let device = directory.join("volume");
        if !device.exists() {
            fs::write(&device, vec![7u8; 1 << 16]).expect("written");
        }
        let file = Arc::new(open_volume(&device, VolumeOptions::default()).expect("opens"));
        GroupSeals::load("db", directory.join("fingerprints"), vec![("data".to_owned(), file)])
    }

    #[test]
    fn a_seal_tells_whether_a_volume_was_touched() {
        let directory = tempfile::tempdir().expect("directory");
        let place = directory.path();
        assert_eq!(group(place).compare(), [false], "without a seal nobody knows");
        group(place).write().expect("sealed");
        assert_eq!(group(place).compare(), [false]);
        let mut other = group(place);
        other.volumes[0].0 = "another".to_owned();
        assert_eq!(other.compare(), [true], "the stop left seals, and none of this volume");
        drop(other);
        group(place).remove().expect("broken");
        group(place).remove().expect("twice is as good");
        fs::write(place.join("fingerprints"), b"\x04da").expect("written");
        assert_eq!(group(place).compare(), [true], "damaged");
        group(place).write().expect("sealed");
        fs::write(place.join("volume"), vec![8u8; 1 << 16]).expect("written");
        assert_eq!(group(place).compare(), [true]);
    }

    #[test]
    fn damage_counts_as_no_seal() {
        let directory = tempfile::tempdir().expect("directory");
        let place = directory.path();
        group(place).write().expect("sealed");
        let whole = fs::read(place.join("fingerprints")).expect("there");
        for end in 1..whole.len() {
            assert!(decode(&whole[..end]).is_err(), "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 0x40;
            let seals = decode(&bad).unwrap_or_default();
            assert!(seals.get("data").is_none_or(|seal| Some(seal) == decode(&whole).expect("sound").get("data")));
        }
    }
}
