//! How large a volume is, is the group's business: the export has that size on whichever node is primary, and what a device holds
//! beyond it is not used.
//!
//! A primary begins with what its devices hold. Its secondary takes its sizes over when a sync begins, durably with all else of that
//! sync, and keeps them when it is promoted. They grow where an operator enlarged the device of a primary, at its next start.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use crate::formats::bitmap::region_span;
use crate::formats::identity::Role;
use crate::formats::wire::{GroupHello, VolumeRange};
use crate::ids::{GroupId, VolumeId, VolumeSet};
use crate::limits::{REGION_BYTES, SECTOR_BYTES};
use crate::shared::peer_copy::PeerCopy;
use crate::shared::size::ExactSize;
use crate::shared::volume::Volume;
use crate::{Store, VolumeConfig};

/// What a sync sends, by which the peer reserves room for what it overwrites.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AmountToSend {
    pub dirty_bytes: u64,
    /// Units of [`crate::limits::SAVE_UNIT_BYTES`] with something of that.
    pub dirty_units: u64,
    /// Dirty and not sent, as the peer has it already.
    pub left_out_bytes: u64,
}

/// The volumes of a group, and what their devices hold.
pub(crate) struct Volumes {
    all: Vec<Volume>,
    devices: Vec<VolumeConfig>,
}

impl Volumes {
    pub fn new(devices: &[VolumeConfig]) -> Volumes {
        Volumes { all: devices.iter().map(|device| Volume::new(*device)).collect(), devices: devices.to_vec() }
    }

    pub fn of(&mut self, id: VolumeId) -> &mut Volume {
        &mut self.all[usize::from(id.0)]
    }

    /// What the peer has of a volume.
    pub fn copy_of(&mut self, id: VolumeId) -> &mut PeerCopy {
        &mut self.of(id).copy
    }

    pub fn copies(&self) -> impl Iterator<Item = &PeerCopy> {
        self.iter().map(|volume| &volume.copy)
    }

    pub fn copies_mut(&mut self) -> impl Iterator<Item = &mut PeerCopy> {
        self.iter_mut().map(|volume| &mut volume.copy)
    }

    /// Whether some volume of the order was written beside it behind the last number; it is asked once.
    pub fn take_number(&mut self) -> bool {
        // Each of them is asked: a word that stays would cost the next sync a number.
        self.iter_mut().fold(false, |some, volume| volume.takes_number() | some)
    }

    /// What the device of a volume holds.
    pub fn device_bytes(&self, id: VolumeId) -> u64 {
        self.devices[usize::from(id.0)].size_bytes
    }

    /// What the devices hold here.
    pub fn device_sizes(&self) -> Vec<u64> {
        self.devices.iter().map(|device| device.size_bytes).collect()
    }

    /// What the group uses of them.
    pub fn sizes(&self) -> Vec<u64> {
        self.iter().map(|volume| volume.size_bytes()).collect()
    }

    /// What the peer is told of: the sizes of the group by its primary, by a secondary what it could take.
    pub fn announced_sizes(&self, role: Role) -> Vec<u64> {
        match role {
            Role::Primary => self.sizes(),
            Role::Secondary => self.device_sizes(),
        }
    }

    /// What is dirty without doubt: all of it is sent.
    pub fn to_send(&self) -> AmountToSend {
        AmountToSend {
            dirty_bytes: self.copies().map(PeerCopy::surely_dirty_bytes).sum(),
            dirty_units: self.copies().map(PeerCopy::surely_dirty_units).sum(),
            left_out_bytes: 0,
        }
    }

    /// The same of the snapshot that was just frozen. `left_out_bytes`: what the peer has of it already.
    pub fn snapshot_to_send(&self, left_out_bytes: u64) -> AmountToSend {
        let each = self.copies().map(PeerCopy::surely_unshipped);
        let (dirty_bytes, dirty_units) = each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        AmountToSend { dirty_bytes, dirty_units, left_out_bytes }
    }

    pub fn dirty_bytes(&self) -> u64 {
        self.copies().map(|copy| copy.dirty.dirty_bytes()).sum()
    }

    /// Of that, what a sync sends: all but what is set aside.
    pub fn dirty_bytes_to_send(&self) -> u64 {
        self.copies().map(PeerCopy::dirty_bytes_to_send).sum()
    }

    /// These volumes are set aside, and no others.
    pub fn set_aside(&mut self, aside: &VolumeSet) {
        for (id, copy) in (0..).map(VolumeId).zip(self.copies_mut()) {
            copy.set_aside(aside.contains(id));
        }
    }

    /// Volumes without a device here.
    pub fn detached(&self) -> VolumeSet {
        let mut detached = VolumeSet::default();
        let ids = (0..).map(VolumeId).zip(self.iter());
        ids.filter(|(_, volume)| volume.is_detached()).for_each(|(id, _)| _ = detached.insert(id));
        detached
    }

    /// The same, of one that may not be of this group.
    pub fn is_detached(&self, id: VolumeId) -> bool {
        self.get(usize::from(id.0)).is_some_and(Volume::is_detached)
    }

    /// What is to be flushed for this volume. Nothing is written to one that is detached: an operation has its answer by a flush of the
    /// group's own file.
    pub fn flush_store(&self, group: GroupId, id: VolumeId) -> Store {
        if self.is_detached(id) { Store::Superblock(group) } else { Store::Volume(group, id) }
    }

    /// What the peer is told of: of volumes that are detached, or wait to be filled, it knows that nothing is here.
    pub fn dirty_bytes_told(&self, unfilled: &VolumeSet) -> u64 {
        let told = (0..).map(VolumeId).zip(self.iter());
        let told = told.filter(|(id, volume)| !volume.is_detached() && !unfilled.contains(*id));
        told.map(|(_, volume)| volume.copy.dirty.dirty_bytes()).sum()
    }

    /// The range is there: it begins and ends in a volume of this group.
    pub fn contain(&self, id: VolumeId, offset: u64, length: u64) -> bool {
        let end = offset.checked_add(length);
        self.get(usize::from(id.0)).is_some_and(|volume| end.is_some_and(|end| end <= volume.size_bytes()))
    }

    /// The range is one of whole sectors inside its volume.
    pub fn has_sectors(&self, range: &VolumeRange) -> bool {
        let aligned = range.offset.is_multiple_of(SECTOR_BYTES) && range.length.is_multiple_of(SECTOR_BYTES);
        aligned && range.length > 0 && self.contain(range.volume, range.offset, range.length)
    }

    pub fn is_stored(&self, id: VolumeId, offset: u64, length: u64) -> bool {
        let (first, last) = region_span(offset, length);
        self[usize::from(id.0)].stored.has_all(first, last)
    }

    /// A start has read what the group used; the devices may hold more.
    pub fn take_up_sizes(&mut self, recorded: &[u64]) {
        for (volume, size) in self.iter_mut().zip(recorded) {
            // One that shrank is refused when its bitmap is read.
            if (1..volume.size_bytes()).contains(size) {
                volume.resize(*size);
            }
        }
    }

    /// A volume that has more in this group, as recorded, than its device holds, and how much.
    pub fn recorded_beyond_device(&self, recorded: &[u64]) -> Option<(VolumeId, u64)> {
        let beyond = |(recorded, device): (&u64, &VolumeConfig)| (*recorded > device.size_bytes).then_some(*recorded);
        let found = recorded.iter().zip(&self.devices).map(beyond);
        (0..).map(VolumeId).zip(found).find_map(|(id, size)| Some((id, size?)))
    }

    /// The device of a primary's volume was enlarged since the last run: the group grows with it, and what is new was never compared.
    pub fn device_grew(&mut self, id: VolumeId) {
        let device_bytes = self.device_bytes(id);
        let volume = self.of(id);
        if volume.size_bytes() < device_bytes {
            volume.resize(device_bytes);
        }
    }

    /// What of the devices here the group does not use.
    pub fn surplus(&self) -> Option<String> {
        let one = |(at, (volume, device)): (usize, (&Volume, &VolumeConfig))| {
            let (used, holds) = (volume.size_bytes(), device.size_bytes);
            (used < holds).then(|| {
                format!(
                    "volume {} of the group (in the order of names) has {}, as on the primary; of the {} that its device holds here the \
                     rest is not used, also after a promotion",
                    at + 1,
                    ExactSize(used),
                    ExactSize(holds)
                )
            })
        };
        let all: Vec<String> = self.iter().zip(&self.devices).enumerate().filter_map(one).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Rule 21: a secondary smaller than its primary is refused with both numbers. `role` is this node's.
    pub fn disagree(&self, role: Role, hello: &GroupHello) -> Option<String> {
        if hello.volume_bytes.len() != self.len() {
            return Some(format!(
                "the peer has {} volumes in this group, this node {}",
                hello.volume_bytes.len(),
                self.len()
            ));
        }
        let ours = self.announced_sizes(role);
        // Of the secondary's: its own device takes over what the primary says, whatever that has a disk for.
        let without = if role == Role::Primary { hello.detached } else { self.detached() };
        for (index, (theirs, ours)) in hello.volume_bytes.iter().copied().zip(ours).enumerate() {
            let (primary, secondary) = if role == Role::Primary { (ours, theirs) } else { (theirs, ours) };
            if without.contains(VolumeId(index as u16)) {
                // The size of a disk that is gone. The one that comes in its place is looked at again.
                continue;
            }
            if secondary < primary && hello.identity.role != role {
                return Some(format!(
                    "volume {} of the group (in the order of names) is smaller on the secondary than on the primary: {} and {}; \
                     enlarge the device there and restart farshore there",
                    index + 1,
                    ExactSize(secondary),
                    ExactSize(primary)
                ));
            }
        }
        None
    }

    /// What both devices hold, and the group does not use yet, it uses from now on. Nothing of it was compared. False: there is no such thing.
    pub fn use_what_both_hold(&mut self, theirs: &[u64]) -> bool {
        let mut grows = false;
        for (volume, both) in
            self.all.iter_mut().zip(self.devices.iter().zip(theirs).map(|(ours, theirs)| ours.size_bytes.min(*theirs)))
        {
            let before_bytes = volume.size_bytes();
            if before_bytes < both {
                grows = true;
                volume.resize(both);
                volume.copy.set_unverified(before_bytes / REGION_BYTES, (both - 1) / REGION_BYTES);
            }
        }
        grows
    }
}

impl Deref for Volumes {
    type Target = [Volume];

    fn deref(&self) -> &[Volume] {
        &self.all
    }
}

impl DerefMut for Volumes {
    fn deref_mut(&mut self) -> &mut [Volume] {
        &mut self.all
    }
}
