//! Volumes whose disk is dead: their group goes on without them (docs/book/decisions/0067-detach.md).
//!
//! The record is written first, and takes effect when the group is opened next. What the engine then has on record is the other half: only a
//! volume that it knows to have been without a device is given one that counts for nothing.

use std::path::PathBuf;

use anyhow::{Context, bail};
use engine::VolumeId;
use engine::identity::Role;
use engine::superblock::{self, Superblock};
use host::disk::device_id::DeviceId;
use host::disk::meta::read_blocks;
use host::disk::volume::look;
use settings::{Config, ConfiguredGroup, NodeName};
use units::size::show_exact;

use super::device_record::{self as record, GroupDevices};
use super::group_directory::GROUPS;

/// What became of an order.
pub(super) enum DetachOutcome {
    Recorded,
    /// The record says so already.
    WasSo,
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

    /// The group goes on without this volume from its next opening on.
    ///
    /// # Errors
    /// A sentence: nothing was changed.
    pub fn detach(&self, volume: &str) -> anyhow::Result<DetachOutcome> {
        let mut detached = self.read()?;
        if detached.contains_key(volume) {
            return Ok(DetachOutcome::WasSo);
        }
        if self.recorded().is_none() {
            bail!("nothing is recorded of the group on this node, so it has no volume to go on without");
        }
        let devices = record::read_devices(&self.directory).context("the record of its devices")?.unwrap_or_default();
        let device = devices.get(volume).context("the device that the volume was on is not on record")?;
        detached.insert(volume.to_owned(), device.clone());
        record::write_detached(&self.directory, &detached)?;
        Ok(DetachOutcome::Recorded)
    }

    /// The volume is on a device again, from the group's next opening on.
    ///
    /// # Errors
    /// A sentence: why it stays detached.
    pub fn attach(&self, volume: &str) -> anyhow::Result<DetachOutcome> {
        let mut detached = self.read()?;
        let Some(was) = detached.remove(volume) else { return Ok(DetachOutcome::WasSo) };
        let named = self.group.volumes.iter().find(|named| named.name.as_str() == volume);
        let path = named.context("the group has no such volume")?.device(self.node);
        if !self.is_known_without_device(volume) {
            bail!(
                "the group has not run without the volume since it was detached, as it could not be taken up: put that right first \
                 ('farshore status {0}'), then 'farshore reset {0}'",
                self.group.name
            );
        }
        look(path, &self.config.node(self.node).expect("it was looked up before").state)?;
        let device = DeviceId::of(path).with_context(|| format!("{} cannot be looked at", path.display()))?;
        if device.size_bytes < was.size_bytes {
            bail!(
                "{} has {}, and the device that it replaces had {}: give it one that is as large at least",
                path.display(),
                show_exact(device.size_bytes),
                show_exact(was.size_bytes)
            );
        }
        // Whatever device is found there is taken from here on. The volume is detached still.
        let mut devices =
            record::read_devices(&self.directory).context("the record of its devices")?.unwrap_or_default();
        devices.remove(volume);
        record::keep_devices(&self.directory, &devices)?;
        record::write_detached(&self.directory, &detached)?;
        Ok(DetachOutcome::Recorded)
    }

    /// The role on record.
    pub fn role(&self) -> Option<Role> {
        self.recorded().map(|found| found.identity.role)
    }
}
