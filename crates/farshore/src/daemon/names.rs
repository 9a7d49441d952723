//! The names of a group's volumes and nodes, as its state files count them: `volumes` and `nodes` in `<state>/groups/<group>`, one
//! a line.
//!
//! Bits, journal and history call a volume by its position in the order of names, and the superblock a node by its own. Under other
//! names they would speak of others, and both nodes would agree on it. A group under another name would be a new one, with the
//! role that the configuration gives it, and its first sync would overwrite whoever was promoted since.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use settings::{Config, ConfigProblem, ConfiguredGroup, NodeName, durable};

use super::group_directory::{self, GROUPS};

/// Names that are kept.
struct NameRecord {
    /// The name of the file, and whose they are.
    file: &'static str,
    listed: fn(&ConfiguredGroup) -> String,
    advice: &'static str,
}

const VOLUMES: NameRecord = NameRecord {
    file: "volumes",
    listed: |group| group.volumes.iter().map(|volume| format!("{}\n", volume.name)).collect(),
    advice: "A group that is opened is given others first where that can be done",
};

const NODES: NameRecord = NameRecord {
    file: "nodes",
    listed: |group| {
        let mut names = [&group.primary, &group.secondary].map(|node| format!("{node}\n"));
        names.sort();
        names.concat()
    },
    advice: "A node that is replaced keeps its name, and its host may have another: 'serve --node NAME' says which one it is",
};

/// State directories of groups that the configuration does not name, with the names of their volumes.
pub(super) struct Strays(Vec<(PathBuf, String)>);

impl Strays {
    /// Those under `groups`.
    pub fn find(groups: &Path, config: &Config, node: &NodeName) -> Strays {
        let is_named = |name: &str| config.groups_of(node).any(|group| group.name.as_str() == name);
        let entries = std::fs::read_dir(groups).into_iter().flatten().flatten();
        let strays = entries.filter(|entry| !entry.file_name().to_str().is_some_and(is_named));
        let named = strays.filter_map(|entry| {
            let path = entry.path();
            let names = durable::open(&path.join(VOLUMES.file)).and_then(std::io::read_to_string).ok()?;
            Some((path, names))
        });
        Strays(named.collect())
    }

    /// A group that is new here must not be one of them under another name.
    ///
    /// # Errors
    /// A sentence: one of them has volumes of these names.
    pub fn hold_against(&self, directory: &Path, group: &ConfiguredGroup) -> anyhow::Result<()> {
        let names = (VOLUMES.listed)(group);
        let Some((stray, _)) = self.0.iter().find(|(_, theirs)| *theirs == names) else { return Ok(()) };
        if directory.exists() {
            return Ok(());
        }
        let old = stray.file_name().unwrap_or_default().display();
        bail!(
            "it is new here, and {} holds what is recorded of group {old}, which the configuration does not name and whose volumes \
             have the same names: if it is that group, give it its old name back, as a new one knows nothing of roles and \
             differences. If {old} is gone for good, remove {} and start again",
            stray.display(),
            stray.display()
        )
    }
}

/// The volumes on record, in their order; `None`: none are.
///
/// # Errors
/// A sentence: they cannot be read.
pub(super) fn volumes_on_record(directory: &Path) -> anyhow::Result<Option<Vec<String>>> {
    let kept = VOLUMES.kept(directory, false)?;
    Ok(kept.map(|kept| kept.lines().map(str::to_owned).collect()))
}

/// What is on record of a group with these volumes.
pub(super) fn volumes_listed(group: &ConfiguredGroup) -> String {
    (VOLUMES.listed)(group)
}

/// Holds the names in the configuration against those that the group was begun with, and keeps them if it has none. `is_new`:
/// nothing was recorded under any names yet.
///
/// # Errors
/// A sentence: they are others, or cannot be read or kept.
pub(super) fn keep(directory: &Path, group: &ConfiguredGroup, is_new: bool) -> anyhow::Result<()> {
    for record in [VOLUMES, NODES] {
        if record.compare(directory, group, is_new)? {
            continue;
        }
        let path = directory.join(record.file);
        let names = (record.listed)(group);
        durable::replace(&path, names.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

impl NameRecord {
    /// The text on record; `None`: there is none.
    fn kept(&self, directory: &Path, is_new: bool) -> anyhow::Result<Option<String>> {
        let path = directory.join(self.file);
        let kept = match durable::open(&path).and_then(std::io::read_to_string) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("{} cannot be read", path.display()))?,
        };
        if (kept.is_empty() || !kept.ends_with('\n')) && !is_new {
            bail!(
                "{} is {}, so the names under which the group was begun are not known: restore it; it lists its {}, one a line, as they \
                 were at the first start",
                path.display(),
                if kept.is_empty() { "empty" } else { "cut short" },
                self.file
            )
        }
        Ok(Some(kept))
    }

    /// Whether the names kept are those of the configuration; `false`: they may become so.
    fn compare(&self, directory: &Path, group: &ConfiguredGroup, is_new: bool) -> anyhow::Result<bool> {
        let path = directory.join(self.file);
        let names = (self.listed)(group);
        let Some(kept) = self.kept(directory, is_new)? else { return Ok(false) };
        if kept != names && !is_new {
            bail!(
                "its {} are {} in the configuration, and were {} ({}): what is recorded of one would be taken for another's. Give \
                 them their old names back. {}",
                self.file,
                in_words(&names),
                in_words(&kept),
                path.display(),
                self.advice
            )
        }
        Ok(kept == names)
    }
}

/// What a start of `node` would refuse for the names of its groups and volumes, each at its place. Nothing is changed.
pub fn refused(config: &Config, node: &NodeName) -> Vec<ConfigProblem> {
    let Some(here) = config.node(node) else { return Vec::new() };
    let groups = here.state.join(GROUPS);
    let strays = Strays::find(&groups, config, node);
    let held = config.groups_of(node).map(|group| {
        let directory = groups.join(group.name.as_str());
        let tag = config.group_tag(group);
        let is_new = group_directory::is_new(&directory, tag);
        // Other volumes are taken up, if any of those on record stays.
        let volumes = || VOLUMES.kept(&directory, is_new).map(drop);
        let nodes = || NODES.compare(&directory, group, is_new).map(drop);
        let result = strays.hold_against(&directory, group).and_then(|()| volumes()).and_then(|()| nodes());
        let refused = result.err()?;
        Some(config.problem(&format!("groups.{}", group.name), format!("group {}: {refused:#}", group.name)))
    });
    held.flatten().collect()
}

fn in_words(listed: &str) -> String {
    listed.lines().collect::<Vec<_>>().join(", ")
}
