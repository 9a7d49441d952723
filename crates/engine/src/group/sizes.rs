//! How large a volume is, is the group's business: the export has that size on whichever node is primary, and what a device holds
//! beyond it is not used.
//!
//! A primary begins with what its devices hold. Its secondary takes its sizes over when a sync begins, durably with all else of that
//! sync, and keeps them when it is promoted. They grow where an operator enlarged the device of a primary, at its next start.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::common::Common;
use crate::formats::identity::Role;
use crate::formats::wire::GroupHello;
use crate::ids::VolumeId;
use crate::limits::REGION_BYTES;
use crate::shared::size::Exactly;

impl Common {
    /// What the devices hold here.
    pub fn device_sizes(&self) -> Vec<u64> {
        self.config.volumes.iter().map(|volume| volume.size_bytes).collect()
    }

    /// What the group uses of them.
    pub fn sizes(&self) -> Vec<u64> {
        self.volumes.iter().map(|volume| volume.config.size_bytes).collect()
    }

    /// What the peer is told of: the sizes of the group by its primary, by a secondary what it could take.
    pub fn told_sizes(&self, role: Role) -> Vec<u64> {
        match role {
            Role::Primary => self.sizes(),
            Role::Secondary => self.device_sizes(),
        }
    }

    /// A start has read what the group used; the devices may hold more.
    pub fn take_up_sizes(&mut self, recorded: &[u64]) {
        for (volume, size) in self.volumes.iter_mut().zip(recorded) {
            // One that shrank is refused when its bitmap is read.
            if (1..volume.config.size_bytes).contains(size) {
                volume.resize(*size);
            }
        }
    }

    /// A volume that has more in this group than its device holds, and how much.
    pub fn recorded_beyond_device(&self) -> Option<(VolumeId, u64)> {
        let beyond = |(recorded, device): (&u64, u64)| (*recorded > device).then_some(*recorded);
        let found = self.sb.current.sizes.iter().zip(self.device_sizes()).map(beyond);
        (0..).map(VolumeId).zip(found).find_map(|(id, size)| Some((id, size?)))
    }

    /// A device was enlarged since the last run. On a primary the group grows with it, and what is new was never compared; a
    /// secondary follows its primary.
    pub fn device_grew(&mut self, id: VolumeId) {
        if self.role() == Role::Secondary {
            return;
        }
        let device_bytes = self.config.volumes[usize::from(id.0)].size_bytes;
        let volume = self.volume(id);
        let before_bytes = volume.config.size_bytes;
        if before_bytes < device_bytes {
            volume.resize(device_bytes);
        }
    }
}

impl Common {
    /// What of the devices here the group does not use.
    pub fn surplus(&self) -> Option<String> {
        let one = |(at, (volume, device)): (usize, (&crate::shared::volume::Volume, &crate::VolumeConfig))| {
            let (used, holds) = (volume.config.size_bytes, device.size_bytes);
            (used < holds).then(|| {
                format!(
                    "volume {} of the group (in the order of names) has {}, as on the primary; of the {} that its device holds here the \
                     rest is not used, also after a promotion",
                    at + 1,
                    Exactly(used),
                    Exactly(holds)
                )
            })
        };
        let all: Vec<String> = self.volumes.iter().zip(&self.config.volumes).enumerate().filter_map(one).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Rule 21: a secondary smaller than its primary is refused with both numbers.
    pub fn sizes_disagree(&self, hello: &GroupHello) -> Option<String> {
        if hello.volume_bytes.len() != self.volumes.len() {
            return Some(format!(
                "the peer has {} volumes in this group, this node {}",
                hello.volume_bytes.len(),
                self.volumes.len()
            ));
        }
        let ours = self.told_sizes(self.role());
        for (index, (theirs, ours)) in hello.volume_bytes.iter().copied().zip(ours).enumerate() {
            let (primary, secondary) = if self.role() == Role::Primary { (ours, theirs) } else { (theirs, ours) };
            if secondary < primary && hello.identity.role != self.role() {
                return Some(format!(
                    "volume {} of the group (in the order of names) is smaller on the secondary than on the primary: {} and {}; \
                     enlarge the device there and restart farshore there",
                    index + 1,
                    Exactly(secondary),
                    Exactly(primary)
                ));
            }
        }
        None
    }

    /// A promotion with the peer there to see it: what both devices hold, and the group does not use yet, it uses from now on. Nothing of it
    /// was compared.
    pub fn use_what_both_hold(&mut self) {
        let follows = |hello: &&GroupHello| !hello.failed && hello.identity.role == Role::Secondary;
        let Some(hello) = self.hello.as_ref().filter(follows) else { return };
        let theirs = hello.volume_bytes.clone();
        let ours = self.device_sizes();
        for (volume, both) in self.volumes.iter_mut().zip(ours.into_iter().zip(theirs).map(|(a, b)| a.min(b))) {
            let before_bytes = volume.config.size_bytes;
            if before_bytes < both {
                volume.resize(both);
                volume.put_in_doubt(before_bytes / REGION_BYTES, (both - 1) / REGION_BYTES);
            }
        }
        self.sb.current.sizes = self.sizes();
    }
}
