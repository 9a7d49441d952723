//! The names of a group's volumes, as its state files count them: `<state>/groups/<group>/volumes`, one a line.
//!
//! Bits, journal and history call a volume by its place in the order of names. Under other names they would speak of other
//! volumes, and both nodes would agree on it.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, bail};

use crate::config::Group;
use crate::durable;

/// Holds the names in the configuration against those that the group was begun with. `is_new`: nothing was recorded under any
/// names yet.
///
/// # Errors
/// A sentence: they are others, or cannot be read or kept.
pub(super) fn keep(directory: &Path, group: &Group, is_new: bool) -> anyhow::Result<()> {
    let path = directory.join("volumes");
    let names: Vec<&str> = group.volumes.iter().map(|volume| volume.name.as_str()).collect();
    let kept = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        read => Some(read.with_context(|| format!("{} cannot be read", path.display()))?),
    };
    match kept {
        Some(kept) if kept.lines().eq(names.iter().copied()) => return Ok(()),
        Some(kept) if !is_new => bail!(
            "its volumes are {} in the configuration, and were {} ({}): what is recorded of one would be taken for another's. Give them \
             their old names back. To add, remove or rename volumes remove the group's state directory on both nodes, with 'primary' \
             naming the node whose content counts, and sync in full",
            names.join(", "),
            kept.lines().collect::<Vec<_>>().join(", "),
            path.display()
        ),
        _ => {}
    }
    let text: String = names.iter().map(|name| format!("{name}\n")).collect();
    durable::replace(&path, text.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))
}
