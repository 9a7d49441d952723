//! Opens the devices and files of a group again, once it has failed and is reset: looked at, compared and locked as at a start.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::GroupId;
use host::driver::{GroupOpener, OpenedGroup};
use settings::{Config, ConfiguredGroup, NodeName};

use super::open::{self, TakenDevices};
use super::seals::Seals;

/// Why groups are not taken up, by their names. Changed by resets alone.
#[derive(Clone, Default)]
pub(super) struct RefusedGroups(Arc<Mutex<BTreeMap<String, String>>>);

impl RefusedGroups {
    pub fn new(refused: BTreeMap<String, String>) -> RefusedGroups {
        RefusedGroups(Arc::new(Mutex::new(refused)))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        // A map of texts is whole whoever broke down beside it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn why(&self, group: &str) -> Option<String> {
        self.lock().get(group).cloned()
    }

    pub fn count(&self) -> usize {
        self.lock().len()
    }
}

/// What the daemon keeps of groups that are open, besides what the data thread has.
pub(super) struct GroupReopener {
    config: Config,
    node: NodeName,
    /// Held for a moment only: who opens may wait for a disk.
    kept: Mutex<KeptOpen>,
    refused: RefusedGroups,
}

struct KeptOpen {
    seals: Seals,
    taken: TakenDevices,
}

impl GroupReopener {
    pub fn new(
        (config, node): (&Config, &NodeName),
        (seals, taken): (Seals, TakenDevices),
        refused: RefusedGroups,
    ) -> GroupReopener {
        let kept = Mutex::new(KeptOpen { seals, taken });
        GroupReopener { config: config.clone(), node: node.clone(), kept, refused }
    }

    fn kept(&self) -> MutexGuard<'_, KeptOpen> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The seals to be set when all is at rest. One of a group that is being opened is not among them: nobody knows what it came to.
    pub fn take_seals(&self) -> Seals {
        std::mem::take(&mut self.kept().seals)
    }

    fn opened(
        &self,
        (id, group): (GroupId, &ConfiguredGroup),
        let_go: Box<dyn FnOnce() + Send>,
    ) -> Result<OpenedGroup, String> {
        let name = group.name.as_str();
        let taken = {
            let mut kept = self.kept();
            // What fingerprints would be taken of holds the devices, too.
            kept.seals.remove(name);
            kept.taken.leave(name);
            kept.taken.clone()
        };
        let_go();
        let (opened, seals, taken) = open::open_again(&self.config, &self.node, (id, group), taken)?;
        let mut kept = self.kept();
        kept.seals.add(seals);
        kept.taken.join(name, taken);
        Ok(opened)
    }
}

impl GroupOpener for GroupReopener {
    fn open(&self, id: GroupId, let_go: Box<dyn FnOnce() + Send>) -> Result<OpenedGroup, String> {
        let mut groups = self.config.groups_of(&self.node);
        let found = groups.find(|(number, _)| u32::try_from(*number) == Ok(id.0));
        let (_, group) = found.expect("the data thread has the groups of the configuration");
        let opened = self.opened((id, group), let_go);
        match &opened {
            Ok(_) => _ = self.refused.lock().remove(group.name.as_str()),
            Err(why) => {
                tracing::error!("group {}: {why}", group.name);
                self.refused.lock().insert(group.name.to_string(), why.clone());
            }
        }
        opened
    }
}
