//! Opens the devices and files of a group again, once it has failed and is reset: looked at, compared and locked as at a start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{GroupId, Settings};
use host::driver::{AddedGroup, GroupOpener, LetGo, OpenedGroup};
use settings::{Config, ConfiguredGroup, NodeName};

use super::SILENCE_MAX;
use super::current_config::CurrentConfig;
use super::open::{self, OpenedAddition, TakenDevices};
use super::seals::Seals;
use super::terms::KnownTerms;

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
    config: CurrentConfig,
    node: NodeName,
    /// Held for a moment only: who opens may wait for a disk.
    kept: Mutex<KeptOpen>,
    refused: RefusedGroups,
    terms: KnownTerms,
}

struct KeptOpen {
    seals: Seals,
    taken: TakenDevices,
    /// Groups that are being opened, until the data thread has them.
    opening: BTreeSet<String>,
}

impl GroupReopener {
    pub fn new(
        (config, node): (CurrentConfig, NodeName),
        (seals, taken): (Seals, TakenDevices),
        (refused, terms): (RefusedGroups, KnownTerms),
    ) -> GroupReopener {
        let kept = Mutex::new(KeptOpen { seals, taken, opening: BTreeSet::new() });
        GroupReopener { config, node, kept, refused, terms }
    }

    fn kept(&self) -> MutexGuard<'_, KeptOpen> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The seals to be set when all is at rest. One of a group that is being opened is not among them: nobody knows what it came to.
    pub fn take_seals(&self) -> Seals {
        std::mem::take(&mut self.kept().seals)
    }

    fn opened(&self, (id, group): (GroupId, &ConfiguredGroup), let_go: LetGo) -> Result<OpenedGroup, String> {
        let name = group.name.as_str();
        let taken = {
            let mut kept = self.kept();
            // What fingerprints would be taken of holds the devices, too.
            kept.seals.remove(name);
            kept.taken.leave(name);
            kept.taken.clone()
        };
        let_go();
        let (opened, seals, taken) = open::open_again(&self.config.get(), &self.node, (id, group), taken)?;
        let mut kept = self.kept();
        kept.seals.add(seals);
        kept.taken.join(name, taken);
        drop(kept);
        self.looks_at_term(name);
        Ok(opened)
    }

    /// Other content was found, perhaps, and another term begun for it.
    fn looks_at_term(&self, group: &str) {
        if let Some(here) = self.config.get().node(&self.node) {
            self.terms.look_again(&here.state, group);
        }
    }
}

impl GroupReopener {
    /// One more group, for the data thread, which is to be told [`GroupReopener::is_there`] of; `None`: it is being opened already. Waits
    /// for disks.
    pub fn opens(&self, config: &Config, group: &ConfiguredGroup, settings: Settings) -> Option<AddedGroup> {
        let name = group.name.as_str();
        let taken = {
            let mut kept = self.kept();
            if !kept.opening.insert(name.to_owned()) {
                return None;
            }
            // What a run before had is no other group's.
            kept.taken.leave(name);
            kept.taken.clone()
        };
        let OpenedAddition { added, seals, taken, refused } =
            open::open_addition(config, &self.node, group, (settings, taken));
        let mut kept = self.kept();
        seals.into_iter().for_each(|seals| kept.seals.add(seals));
        kept.taken.join(name, taken);
        drop(kept);
        self.looks_at_term(name);
        match refused {
            None => _ = self.refused.lock().remove(name),
            Some(why) => {
                tracing::error!("group {name}: {why}");
                self.refused.lock().insert(name.to_owned(), why);
            }
        }
        Some(added)
    }

    /// The data thread has the group.
    pub fn is_there(&self, group: &str) {
        self.kept().opening.remove(group);
    }

    /// The term of a group that is known.
    pub fn term(&self, group: &str) -> String {
        self.terms.of(group)
    }

    /// Groups whose files and devices are being opened, for the first time or again.
    pub fn opening(&self) -> BTreeSet<String> {
        self.kept().opening.clone()
    }
}

impl GroupOpener for GroupReopener {
    fn open(&self, id: GroupId, let_go: LetGo) -> Result<OpenedGroup, String> {
        let config = self.config.get();
        let group = config.group_by_id(id).expect("the data thread has the groups of the configuration");
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

    /// What the group leaves at rest gets its fingerprints.
    fn left(&self, name: &str, let_go: LetGo) {
        let seals = {
            let mut kept = self.kept();
            kept.taken.leave(name);
            kept.seals.take(name)
        };
        self.refused.lock().remove(name);
        let unsealed = seals.write_unless_silent(SILENCE_MAX);
        if !unsealed.is_empty() {
            tracing::warn!("group {name}: its volumes get no fingerprint: a disk answers nothing");
        }
        // Waits for whoever holds them still, of whom the seals were one.
        let_go();
    }
}
