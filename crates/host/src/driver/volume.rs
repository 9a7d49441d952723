//! One volume of this node: its device, its export's name, and what people should know of it.

use std::sync::Arc;

use engine::{GroupId, VolumeId};

use super::setup::Stores;
use super::snapshot::VolumeSnapshot;
use crate::disk::{DiskError, File, FileEngine};

pub(super) struct LocalVolume {
    group: GroupId,
    id: VolumeId,
    /// `group/volume`.
    export: String,
    /// `None`: its group is refused, or it is detached.
    device: Option<Arc<File>>,
    /// Clients attached now.
    clients: u64,
    /// The first failure of its device since the start.
    error: Option<String>,
}

impl LocalVolume {
    pub fn new(group: GroupId, id: VolumeId, export: String, device: Option<Arc<File>>) -> LocalVolume {
        LocalVolume { group, id, export, device, clients: 0, error: None }
    }

    pub fn group(&self) -> GroupId {
        self.group
    }

    pub fn id(&self) -> VolumeId {
        self.id
    }

    pub fn export(&self) -> &str {
        &self.export
    }

    /// Of a group that was taken up, where it is not detached.
    pub fn device(&self) -> &Arc<File> {
        self.device
            .as_ref()
            .expect("nothing is asked of volumes of a group that is refused, or of one that is detached")
    }

    pub fn has_device(&self) -> bool {
        self.device.is_some()
    }

    /// Its device is let go of; what failed there is history once another one is open.
    pub fn close(&mut self) -> Option<Arc<File>> {
        self.device.take()
    }

    pub fn reopened(&mut self, device: Option<Arc<File>>) {
        (self.device, self.error) = (device, None);
    }

    pub fn client_came(&mut self) {
        self.clients += 1;
    }

    pub fn client_left(&mut self) {
        self.clients -= 1;
    }

    /// The first failure of a device is news, the next thousand are not.
    pub fn failed(&mut self, error: &DiskError) {
        if self.error.is_none() {
            tracing::error!("volume {}: {error}", self.export);
            self.error = Some(error.to_string());
        } else {
            tracing::debug!("volume {}: {error}", self.export);
        }
    }

    pub fn snapshot(&self, disks: &FileEngine, stores: Option<&Stores>) -> VolumeSnapshot {
        VolumeSnapshot {
            clients: self.clients,
            direct: self.device.as_ref().is_some_and(|device| device.direct()),
            error: self.trouble(disks, stores),
            has_failed: self.error.is_some(),
            is_silent: self.device.as_ref().is_some_and(|device| disks.silence(device).is_some()),
        }
    }

    /// What people should know of its device: it, or the files of its group, may have fallen silent.
    fn trouble(&self, disks: &FileEngine, stores: Option<&Stores>) -> Option<String> {
        let silent = |file: &Arc<File>, what: &str| {
            let seconds = disks.silence(file)?.as_secs();
            let path = file.path().display();
            Some(format!(
                "the disk under {what}{path} has answered nothing for {seconds} s; see the kernel log for why"
            ))
        };
        let volume = self.device.as_ref().and_then(|device| silent(device, ""));
        // The disk queue may lie on a disk of its own.
        let stores = || {
            let stores = stores?;
            let queue = || stores.queue.as_ref().and_then(|queue| silent(queue, "the group's disk queue "));
            silent(&stores.journal, "the group's journal ").or_else(queue)
        };
        volume.or_else(stores).or_else(|| self.error.clone())
    }
}
