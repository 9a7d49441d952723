//! A group's own files in the state directory: each has its size, and a rule for when it is found with another one.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use engine::identity::Role;
use engine::superblock::{self, Superblock};
use engine::{ActivityConfig, activity_file_bytes, bitmap_file_bytes, limits};
use host::disk::File;
use host::disk::meta::{create_or_open_meta, create_or_open_sparse, lengthen_meta, read_blocks};
use host::disk::volume::OpenError;
use host::driver::Stores;
use rustix::fs::OFlags;
use settings::ConfiguredGroup;
use units::exact::size_text;
use units::size::show_exact;

use super::names;
use super::patience::Patience;

/// A journal ends on a block.
pub(super) fn journal_bytes(group: &ConfiguredGroup) -> u64 {
    group.layout.journal_bytes.next_multiple_of(limits::META_BLOCK_BYTES)
}

/// The undo store ends on a block.
pub(super) fn history_bytes(group: &ConfiguredGroup) -> u64 {
    group.layout.history_bytes.next_multiple_of(limits::META_BLOCK_BYTES)
}

/// The store for views ends on a block. There is no key for it yet: no front end opens a view.
pub(super) fn view_bytes(_: &ConfiguredGroup) -> u64 {
    0
}

pub(super) fn activity(group: &ConfiguredGroup) -> ActivityConfig {
    ActivityConfig { extents: group.layout.activity_extents, ..ActivityConfig::default() }
}

/// Opens the files in `directory`, makes those that are missing. `tag` names cluster and group, `volumes` have these sizes.
///
/// # Errors
/// A sentence: a file is missing beside others, has a size that is not its own, or cannot be made or opened.
pub(super) fn open(
    directory: &Path,
    group: &ConfiguredGroup,
    tag: u64,
    volumes: impl Iterator<Item = u64>,
    patience: Patience,
) -> anyhow::Result<Stores> {
    let files = StateFiles { directory, patience };
    files.nothing_without_superblock()?;
    let superblock = files.sized("superblock", superblock::FILE_BYTES, SUPERBLOCK_ADVICE)?;
    let path = files.path("superblock");
    let recorded = read_blocks(&path, superblock::FILE_BYTES);
    let recorded = recorded.with_context(|| format!("{} cannot be read", path.display()))?;
    let recorded = superblock::read(&recorded, tag).map(|read| read.found);
    names::keep(directory, group, matches!(recorded, Ok(None)))?;
    let journal = files.sized("journal", journal_bytes(group), JOURNAL_ADVICE)?;
    let bitmap_bytes = bitmap_file_bytes(volumes);
    if let Ok(Some(found)) = &recorded {
        files.lengthen_bitmap(bitmap_file_bytes(found.sizes.iter().copied()), bitmap_bytes)?;
    }
    let bitmap = files.sized("bitmap", bitmap_bytes, BITMAP_ADVICE)?;
    let activity_bytes = activity_file_bytes(activity(group));
    // One that says nothing may be replaced. When the superblock does not count the engine refuses the group.
    let says_something = |found: &Superblock| !found.clean && found.identity.role == Role::Primary;
    if recorded.as_ref().is_ok_and(|found| !found.as_ref().is_some_and(says_something)) {
        files.remove_if_other_size("activity", activity_bytes)?;
    }
    let activity = files.sized("activity", activity_bytes, ACTIVITY_ADVICE)?;
    let marks = files.sized("marks", engine::marks::FILE_BYTES, MARKS_ADVICE)?;
    let holds_point = recorded.as_ref().map_or(true, |found| found.as_ref().is_some_and(|f| f.rollback_point.id != 0));
    files.resize_undo(history_bytes(group), holds_point)?;
    let undo = files.opened(|| create_or_open_sparse(&files.path("undo"), history_bytes(group)), "")?;
    let history = match view_bytes(group) {
        0 => None,
        bytes => Some(files.opened(|| create_or_open_sparse(&files.path("history"), bytes), "")?),
    };
    // The disk queue comes last of all groups' files: the others of a group that starts beside this one cannot do without their space.
    let delta = files.path("delta").into();
    Ok(Stores { superblock, journal, bitmap, activity, marks, undo, history, queue: None, delta })
}

const SUPERBLOCK_ADVICE: &str = "it was cut short, or an unreleased version of farshore made it: restore it, or remove the group's \
     state directory here and sync in full from the other node";
const JOURNAL_ADVICE: &str = "give 'journal' its old value in the configuration; if the file was cut short, restore it, or \
     remove it and sync in full from the primary";
const BITMAP_ADVICE: &str = "a volume was given another size, or the file was cut short: give the volume its old size back or \
     restore the file; else remove the group's state directory here and sync in full";
const ACTIVITY_ADVICE: &str = "the last stop was not clean, so what it says is needed: give 'activity.extents' its old value, \
     start and stop once, then change it; if the file was cut short, remove it, and every region is compared";

const MARKS_ADVICE: &str = "it was cut short: restore it, or remove it, and the marks that it held are lost";

struct StateFiles<'a> {
    directory: &'a Path,
    patience: Patience,
}

impl StateFiles<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The superblock is made first. Alone, the others say nothing; and a new one would make the group new.
    fn nothing_without_superblock(&self) -> anyhow::Result<()> {
        let others = ["journal", "bitmap", "activity", "marks", "undo"];
        match others.iter().find(|name| self.path(name).exists()) {
            Some(other) if !self.path("superblock").exists() => bail!(
                "{} is missing, though its {other} is there: restore it, or remove the whole directory and sync in full from \
                 the other node",
                self.path("superblock").display()
            ),
            _ => Ok(()),
        }
    }

    fn sized(&self, name: &str, size_bytes: u64, advice: &'static str) -> anyhow::Result<Arc<File>> {
        self.opened(|| create_or_open_meta(&self.path(name), size_bytes), advice)
    }

    fn opened(
        &self,
        open: impl Fn() -> Result<host::disk::meta::MetaFile, OpenError>,
        other_size: &'static str,
    ) -> anyhow::Result<Arc<File>> {
        let opened = self.patience.free(open).map_err(|error| match error {
            OpenError::WrongSize { path, size_bytes, expected_bytes, .. } => {
                OpenError::WrongSize { path, size_bytes, expected_bytes, advice: other_size }
            }
            other => other,
        })?;
        Ok(Arc::new(opened.file))
    }

    /// Volumes that were enlarged have more cells; where these belong is found out when they are read. A file that has less than the
    /// group had was cut short.
    fn lengthen_bitmap(&self, had_bytes: u64, size_bytes: u64) -> anyhow::Result<()> {
        let path = self.path("bitmap");
        match std::fs::metadata(&path) {
            Ok(found) if found.is_file() && had_bytes > 0 && (had_bytes..size_bytes).contains(&found.len()) => {
                Ok(lengthen_meta(&path, size_bytes)?)
            }
            _ => Ok(()),
        }
    }

    /// A crash in between leaves no file, and the next start makes it.
    fn remove_if_other_size(&self, name: &str, size_bytes: u64) -> anyhow::Result<()> {
        let path = self.path(name);
        match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() && found.len() != size_bytes => {
                std::fs::remove_file(&path).with_context(|| format!("{} cannot be replaced", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// It may grow at any time, and shrink when it holds nothing.
    fn resize_undo(&self, size_bytes: u64, holds_point: bool) -> anyhow::Result<()> {
        let path = self.path("undo");
        let Ok(found) = std::fs::symlink_metadata(&path) else { return Ok(()) };
        if !found.is_file() || found.len() == size_bytes {
            return Ok(());
        }
        if found.len() == 0 && holds_point {
            bail!(
                "{} is empty, though it holds a rollback point: restore it; or remove it, then nothing can be rolled back",
                path.display()
            );
        }
        if found.len() > size_bytes && holds_point {
            bail!(
                "{} holds a rollback point, so it cannot become smaller: give 'history' its old value ({}) until the sync is over",
                path.display(),
                size_text(found.len())
            );
        }
        let resize = || {
            let flags = OFlags::NOFOLLOW.bits().cast_signed();
            let file = std::fs::OpenOptions::new().write(true).custom_flags(flags).open(&path)?;
            file.set_len(size_bytes)?;
            file.sync_all()
        };
        resize().with_context(|| format!("{} cannot be given {}", path.display(), show_exact(size_bytes)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A link there had whatever it led to cut to the size of the undo store, or was removed as if it were the file.
    #[test]
    fn links_in_the_place_of_state_files_are_not_followed() {
        let scratch = tempfile::tempdir().expect("a directory");
        let files = StateFiles { directory: scratch.path(), patience: Patience::new() };
        let victim = scratch.path().join("victim");
        fs::write(&victim, [7; 4096]).expect("written");
        for name in ["undo", "activity", "superblock"] {
            symlink(&victim, files.path(name)).expect("a link");
        }
        files.resize_undo(8192, false).expect("left to whoever opens it");
        files.remove_if_other_size("activity", 8192).expect("left to whoever opens it");
        assert!(fs::read(&victim).expect("there") == [7; 4096], "it was written to");
        assert!(fs::symlink_metadata(files.path("activity")).expect("there").is_symlink());
        assert!(read_blocks(&files.path("superblock"), superblock::FILE_BYTES).is_err());
    }

    /// What it held would be gone without a word, and so would the way back.
    #[test]
    fn an_emptied_undo_store_with_a_rollback_point_is_refused() {
        let scratch = tempfile::tempdir().expect("a directory");
        let files = StateFiles { directory: scratch.path(), patience: Patience::new() };
        let undo = files.path("undo");
        let failure = |size_bytes| files.resize_undo(size_bytes, true).expect_err("refused").to_string();
        fs::write(&undo, []).expect("emptied");
        let said = failure(8192);
        assert!(said.contains("undo is empty, though it holds a rollback point: restore it; or remove it"), "{said}");
        fs::write(&undo, [7; 8192]).expect("written");
        let said = failure(4096);
        assert!(said.contains("so it cannot become smaller: give 'history' its old value (8KiB)"), "{said}");
        assert_eq!(fs::read(&undo).expect("there").len(), 8192);
        files.resize_undo(16384, true).expect("it may grow");
        assert_eq!(fs::read(&undo).expect("there").len(), 16384);
        files.resize_undo(4096, false).expect("it holds nothing");
        assert_eq!(fs::read(&undo).expect("there").len(), 4096);
    }
}
