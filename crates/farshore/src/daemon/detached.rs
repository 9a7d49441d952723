//! Volumes whose disk is dead: their group goes on without them (docs/book/decisions/0067-detach.md).
//!
//! The record is written first, and takes effect when the group is opened next. What the engine then has on record is the other half: only a
//! volume that it knows to have been without a device is given one that counts for nothing.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use engine::identity::Role;
use engine::superblock::{self, Superblock};
use engine::{RefusalCode, VolumeId, VolumeSet};
use host::disk::device_id::DeviceId;
use host::disk::meta::read_blocks;
use host::disk::volume::look;
use rustix::fs::OFlags;
use rustix::io::Errno;
use settings::{Config, ConfiguredGroup, ConfiguredNode, DetachedVolumes, NodeName};
use units::size::show_exact;

use super::device_record::{self as record, GroupDevices};
use super::group_directory::GROUPS;

/// The volumes without a device of `node`, and of other nodes of its machine as far as their records can be read.
pub fn of_machine(config: &Config, node: &NodeName) -> DetachedVolumes {
    let mut found = DetachedVolumes::default();
    for ConfiguredNode { name, .. } in config.nodes_of_machine(node) {
        for group in config.groups_of(name) {
            let detached = DetachRecord::of(config, name, group).read().unwrap_or_default();
            detached.keys().for_each(|volume| found.add(name, group.name.as_str(), volume));
        }
    }
    found
}

/// Why nothing is recorded, and the code if it is a refusal of its own.
pub(super) type NotRecorded = (Option<RefusalCode>, String);

/// What is recorded of the devices of a group, and what is to be.
pub(super) struct DiskRecords {
    pub before: WrittenRecords,
    pub after: WrittenRecords,
}

/// As it stands in the state directory, or is to stand there.
#[derive(Clone)]
pub(super) struct WrittenRecords {
    directory: PathBuf,
    devices: GroupDevices,
    detached: GroupDevices,
}

/// A group of this node, with what is recorded of its volumes.
pub(super) struct DetachRecord<'a> {
    config: &'a Config,
    node: &'a NodeName,
    group: &'a ConfiguredGroup,
    directory: PathBuf,
}

impl<'a> DetachRecord<'a> {
    pub fn of(config: &'a Config, node: &'a NodeName, group: &'a ConfiguredGroup) -> DetachRecord<'a> {
        let here = config.node(node).expect("the node was looked up before");
        let directory = here.state.join(GROUPS).join(group.name.as_str());
        DetachRecord { config, node, group, directory }
    }

    /// The volumes that are detached, with the devices that they were on.
    ///
    /// # Errors
    /// A sentence: the record cannot be read.
    pub fn read(&self) -> anyhow::Result<GroupDevices> {
        record::read_detached(&self.directory)
    }

    fn peer(&self) -> String {
        self.group.peer_of(self.node).map(ToString::to_string).unwrap_or_default()
    }

    fn recorded(&self) -> Option<Superblock> {
        let blocks = read_blocks(&self.directory.join("superblock"), superblock::FILE_BYTES).ok()?;
        superblock::read(&blocks, self.config.group_tag(self.group)).ok()?.found
    }

    /// For each volume: the engine knows it to have no device.
    pub fn known_without_device(&self) -> Vec<bool> {
        let known = self.recorded().map(|found| found.detached).unwrap_or_default();
        (0..).map(VolumeId).take(self.group.volumes.len()).map(|id| known.contains(id)).collect()
    }

    fn is_known_without_device(&self, volume: &str) -> bool {
        let known = self.known_without_device();
        self.group.volumes.iter().zip(known).any(|(named, known)| known && named.name.as_str() == volume)
    }

    /// The group is to go on without this volume from its next opening on; `None`: it does. Of the others `elsewhere` are without a device
    /// at the peer.
    ///
    /// # Errors
    /// Why that cannot be, with the code of a refusal.
    pub fn detach(&self, volume: &str, elsewhere: &[String]) -> Result<Option<DiskRecords>, NotRecorded> {
        let before = self.records()?;
        if before.detached.contains_key(volume) {
            return Ok(None);
        }
        let Some(sb) = self.recorded() else {
            return Err(failed("nothing is recorded of the group on this node, so it has no volume to go on without"));
        };
        let is_primary = sb.identity.role == Role::Primary;
        self.leaves_an_order(volume, &before.detached, (&sb.aside, elsewhere), is_primary)?;
        let mut after = before.clone();
        after.detached.insert(volume.to_owned(), self.device_of(volume, &before, &sb)?);
        Ok(Some(DiskRecords { before, after }))
    }

    /// The same for all of these, whatever is left: what counts of the group stands at the peer from then on.
    ///
    /// # Errors
    /// The same.
    pub fn detach_all(&self, volumes: &[String]) -> Result<Option<DiskRecords>, NotRecorded> {
        let before = self.records()?;
        let Some(sb) = self.recorded() else {
            return Err(failed("nothing is recorded of the group on this node, so it has no volume to go on without"));
        };
        let mut after = before.clone();
        for volume in volumes.iter().filter(|volume| !before.detached.contains_key(*volume)) {
            after.detached.insert(volume.clone(), self.device_of(volume, &before, &sb)?);
        }
        Ok((after.detached.len() > before.detached.len()).then_some(DiskRecords { before, after }))
    }

    fn device_of(&self, volume: &str, before: &WrittenRecords, sb: &Superblock) -> Result<DeviceId, NotRecorded> {
        match before.devices.get(volume) {
            Some(device) => Ok(device.clone()),
            None => self.of_size(volume, sb),
        }
    }

    /// Something is left of the group, and something in order if this volume is.
    fn leaves_an_order(
        &self,
        volume: &str,
        detached: &GroupDevices,
        (aside, elsewhere): (&VolumeSet, &[String]),
        is_primary: bool,
    ) -> Result<(), NotRecorded> {
        let named = (0..).map(VolumeId).zip(self.group.volumes.iter().map(|named| named.name.as_str()));
        let named: Vec<_> = named.filter(|(_, name)| !detached.contains_key(*name)).collect();
        let mut others = named.iter().filter(|(_, name)| *name != volume);
        if others.clone().next().is_none() {
            let instead = match is_primary {
                true => format!(
                    "; 'farshore sync {} --reverse --yes' has node {} serve the clients of this node",
                    self.group.name,
                    self.peer()
                ),
                false => String::new(),
            };
            let why = format!("the group would be left with no volume: what is there to go on?{instead}");
            return Err((Some(RefusalCode::LastInOrder), why));
        }
        let in_order =
            |(id, name): &(VolumeId, &str)| !aside.contains(*id) && !elsewhere.iter().any(|there| there == name);
        let is_in_order = named.iter().any(|one| one.1 == volume && in_order(one));
        if is_in_order && !others.any(in_order) {
            let why = format!(
                "no other volume of the group is in its order, so nothing of it would be mirrored: 'farshore sync {} --volume NAME' takes one in \
                 first",
                self.group.name
            );
            return Err((Some(RefusalCode::LastInOrder), why));
        }
        Ok(())
    }

    /// All that is known of a device which is not on record.
    fn of_size(&self, volume: &str, sb: &Superblock) -> Result<DeviceId, NotRecorded> {
        let at = self.group.volumes.iter().position(|named| named.name.as_str() == volume);
        let size = at.and_then(|at| sb.sizes.get(at)).filter(|size| **size > 0);
        let size = size.ok_or_else(|| failed("how large the volume was is not on record"))?;
        let mut device = DeviceId::default();
        device.take_line(&format!("size {size}")).map_err(|error| failed(format!("{error:#}")))?;
        Ok(device)
    }

    /// The volume is to be on a device again, from the group's next opening on; `None`: it is. Looks at the device.
    ///
    /// # Errors
    /// Why it stays detached, with the code of a refusal.
    ///
    /// `size_bytes`: of the volume by now, as far as the group knows.
    pub fn attach(&self, volume: &str, size_bytes: u64) -> Result<Option<DiskRecords>, NotRecorded> {
        let before = self.records()?;
        let mut after = before.clone();
        let Some(was) = after.detached.remove(volume) else { return Ok(None) };
        if !self.is_known_without_device(volume) {
            // The group never ran without it: what stands there counts as before, if it is the device on record.
            return Ok(Some(DiskRecords { before, after }));
        }
        if self.recorded().is_some_and(|found| found.identity.role == Role::Primary) {
            let (name, peer) = (&self.group.name, self.peer());
            let why = format!(
                "this node is the primary, and what counts of the volume stands on {peer}: 'farshore sync {name} --reverse --yes' here has that \
                 node serve the clients of this one, and then type this again. To move them there for good: 'farshore demote {name}' here, \
                 'farshore promote {name} --force' on {peer}, and then 'farshore group attach {name} {volume}' here"
            );
            return Err((Some(RefusalCode::VolumeDetached), why));
        }
        self.fits(volume, was.size_bytes, size_bytes).map_err(|error| failed(format!("{error:#}")))?;
        // Whatever device is found there is taken from here on. The volume is detached still.
        after.devices.remove(volume);
        Ok(Some(DiskRecords { before, after }))
    }

    /// What is at its path can take the place of the device that it had.
    fn fits(&self, volume: &str, was_bytes: u64, size_bytes: u64) -> anyhow::Result<()> {
        let named = self.group.volumes.iter().find(|named| named.name.as_str() == volume);
        let path = named.context("the group has no such volume")?.device(self.node);
        look(path, &self.config.node(self.node).expect("it was looked up before").state)?;
        let device = DeviceId::of(path).with_context(|| format!("{} cannot be looked at", path.display()))?;
        let (needed, whose) = match size_bytes > was_bytes {
            true => (size_bytes, "the volume has by now"),
            false => (was_bytes, "the device that it replaces had"),
        };
        if device.size_bytes < needed {
            bail!(
                "{} has {}, and {whose} {}: give it one that is as large at least",
                path.display(),
                show_exact(device.size_bytes),
                show_exact(needed)
            );
        }
        Ok(())
    }

    fn records(&self) -> Result<WrittenRecords, NotRecorded> {
        let detached = self.read().map_err(|error| failed(format!("{error:#}")))?;
        let devices = record::read_devices(&self.directory).context("the record of its devices");
        let devices = devices.map_err(|error| failed(format!("{error:#}")))?.unwrap_or_default();
        Ok(WrittenRecords { directory: self.directory.clone(), devices, detached })
    }
}

impl WrittenRecords {
    /// # Errors
    /// A sentence: the state disk does not take them. Between the two the volume is detached, as before or as it will be.
    pub fn write(&self) -> anyhow::Result<()> {
        record::keep_devices(&self.directory, &self.devices)?;
        record::write_detached(&self.directory, &self.detached)
    }
}

/// The disk is gone, or does not give back what it holds. One that hangs is waited for.
pub(super) fn is_dead(path: &Path) -> bool {
    let mut options = File::options();
    // Whatever stands there, nobody waits for somebody who writes to it.
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let Err(error) = options.open(path).and_then(|file| file.read_exact_at(&mut [0; 512], 0)) else { return false };
    let is_lost = |errno| matches!(errno, Errno::IO | Errno::NXIO | Errno::NODEV | Errno::REMOTEIO | Errno::NOMEDIUM);
    error.kind() == ErrorKind::NotFound || Errno::from_io_error(&error).is_some_and(is_lost)
}

fn failed(why: impl Into<String>) -> NotRecorded {
    (None, why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_gone_is_dead_and_one_that_may_not_be_read_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = directory.path().join("disk");
        assert!(is_dead(&disk));
        std::fs::write(&disk, [0; 4096]).expect("written");
        assert!(!is_dead(&disk));
        assert!(!is_dead(directory.path()), "no disk, and none that is known to be lost");
    }
}
