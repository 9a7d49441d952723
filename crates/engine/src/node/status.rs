//! What is shown of a node and its groups.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::ids::{GroupId, Seq, VolumeId};
use crate::node::Node;
use crate::status::{GroupGlance, GroupStatus, SharedStatus};

impl Node {
    /// Inner states of a group as one line, for a simulator's failure report.
    pub fn explain(&self, id: GroupId) -> String {
        self.groups.get(&id).map_or_else(String::new, |group| {
            format!("{} link {:?}", group.shown().explain(), self.links.get(&group.peer()))
        })
    }

    /// As a secondary: the number of the oldest write that is kept for a primary that may lose it.
    pub fn oldest_kept(&self, id: GroupId) -> Option<Seq> {
        self.groups.get(&id)?.shown().oldest_kept()
    }

    /// The few facts a checker looks at after every step.
    pub fn glance(&self, id: GroupId) -> Option<GroupGlance> {
        self.groups.get(&id).map(|group| group.shown().glance())
    }

    /// The regions of each volume that this node holds for perhaps different from its peer's; for checkers.
    pub fn dirty_regions(&self, id: GroupId) -> Vec<&crate::Bitmap> {
        self.groups
            .get(&id)
            .map_or_else(Vec::new, |group| group.common().volumes.iter().map(|v| &v.copy.dirty).collect())
    }

    pub fn shared(&self) -> SharedStatus {
        SharedStatus {
            memory_bytes: self.memory.held_bytes(),
            memory_limit_bytes: self.memory.limit_bytes(),
            starting: self.starts.counts(),
            syncing: self.syncs.counts(),
        }
    }

    /// How large a volume is in its group: what its export has, on whichever node that opens.
    pub fn volume_bytes(&self, group: GroupId, volume: VolumeId) -> Option<u64> {
        self.groups.get(&group)?.common().volumes.get(usize::from(volume.0)).map(|volume| volume.size_bytes())
    }

    pub fn status(&self) -> Vec<GroupStatus> {
        self.groups.keys().filter_map(|id| self.status_of(*id)).collect()
    }

    /// `None`: there is no such group.
    pub fn status_of(&self, id: GroupId) -> Option<GroupStatus> {
        let group = self.groups.get(&id)?;
        let status = group.shown().status(self.links.get(&group.peer())?.shown_to(id), self.now);
        Some(GroupStatus { sync_position: self.syncs.position(id), ..status })
    }
}
