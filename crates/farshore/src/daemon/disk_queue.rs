//! The file of a group's disk queue: its space is reserved at a start, or the log says why the group goes on without it.
//!
//! One of another size is made anew: at most the order of what it held is lost. But if a start was cut short while it wrote what the queue's log
//! holds, the volumes are whole only with that log: then the file stays as it is, and the engine refuses to go on without it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use engine::limits;
use host::disk::File;
use host::disk::meta::{create_or_open_reserved, make_own_directory};
use settings::limits::QUEUE_DISK_SPARE_BYTES;
use settings::{ConfiguredGroup, ConfiguredNode};
use units::exact::show_size;

use super::group_directory::GROUPS;
use super::patience::Patience;

const NAME: &str = "queue";

/// Where a node keeps the disk queues of its groups.
pub(super) struct QueuePlace {
    /// Of all groups.
    state: PathBuf,
    /// The disk queues alone, by the node's name; `None`: each lies beside the other files of its group.
    apart: Option<PathBuf>,
}

impl QueuePlace {
    pub fn of(node: &ConfiguredNode) -> QueuePlace {
        let apart = node.queues.as_ref().map(|queues| queues.join(node.name.as_str()));
        QueuePlace { state: node.state.join(GROUPS), apart }
    }

    fn beside(&self, group: &str) -> PathBuf {
        self.state.join(group).join(NAME)
    }

    fn file(&self, group: &str) -> PathBuf {
        self.apart.as_ref().map_or_else(|| self.beside(group), |apart| apart.join(group))
    }

    /// Opens the disk queue of a group whose other files have their space already; `None`: there is none, and the log says why unless
    /// nobody wanted it. `is_needed`: a start was cut short while it wrote what the file holds.
    pub fn open(&self, group: &ConfiguredGroup, is_needed: bool, patience: Patience) -> Option<Arc<File>> {
        match self.open_or_why(group, is_needed, patience) {
            Ok(file) => file.map(Arc::new),
            Err(why) => {
                tracing::warn!(
                    "group {}: it goes on without a disk queue: {why:#}. What has no room in memory waits or becomes dirty regions, as \
                     the mode and 'queue.when_full' say. {}",
                    group.name,
                    self.advice()
                );
                None
            }
        }
    }

    fn advice(&self) -> &'static str {
        match self.apart {
            Some(_) => {
                "Mount the disk of the directory 'queues', make room there or name another one, and restart the daemon"
            }
            None => "Make 'queue.disk' smaller and type 'farshore config apply', or make room and restart the daemon",
        }
    }

    fn open_or_why(
        &self,
        group: &ConfiguredGroup,
        is_needed: bool,
        patience: Patience,
    ) -> anyhow::Result<Option<File>> {
        let (path, size_bytes) = (self.file(group.name.as_str()), size_bytes(group));
        if is_needed {
            holds_what_is_needed(&path, size_bytes)?;
        } else {
            if let Some(apart) = &self.apart {
                make_own_directory(apart).map_err(anyhow::Error::msg)?;
                remove_if_other_size(&self.beside(group.name.as_str()), 0)?;
            }
            remove_if_other_size(&path, size_bytes)?;
        }
        if size_bytes == 0 {
            return Ok(None);
        }
        // One that has its space keeps it, however full the file system has become.
        if !path.exists() {
            has_room(&path, size_bytes, group.layout.journal_bytes + QUEUE_DISK_SPARE_BYTES)?;
        }
        let file = patience.free(|| create_or_open_reserved(&path, size_bytes))?.file;
        // A start reads what stands on the disk, and not what a failed write left in the page cache.
        file.forget_cache();
        Ok(Some(file))
    }

    /// Gives back the space of a group that has left.
    pub fn remove(&self, group: &str) {
        if let Err(error) = remove_if_other_size(&self.file(group), 0) {
            tracing::warn!("{error:#}; remove it by hand: the group has left, and nothing in it counts");
        }
    }
}

/// It ends on a block. 0: the group is to have none.
fn size_bytes(group: &ConfiguredGroup) -> u64 {
    group.layout.queue_disk_bytes.next_multiple_of(limits::META_BLOCK_BYTES)
}

/// Other files grow beside it, and what they lack stops a sync or keeps another group down.
fn has_room(path: &Path, size_bytes: u64, spare_bytes: u64) -> anyhow::Result<()> {
    let directory = path.parent().expect("it lies in a directory");
    let facts = rustix::fs::statvfs(directory).with_context(|| format!("the space for {}", path.display()))?;
    let free_bytes = facts.f_bavail.saturating_mul(facts.f_frsize);
    if free_bytes < size_bytes.saturating_add(spare_bytes) {
        bail!(
            "{} needs {} and has to leave {} free, and its file system has {} free",
            path.display(),
            show_size(size_bytes),
            show_size(spare_bytes),
            show_size(free_bytes)
        );
    }
    Ok(())
}

/// A start was cut short while it wrote what the file holds: one that is made here now, or removed, would only be in the way.
fn holds_what_is_needed(path: &Path, size_bytes: u64) -> anyhow::Result<()> {
    let why =
        "a start was cut short while it wrote what the group's disk queue holds: set 'queue.disk' and 'queues' back";
    match fs::symlink_metadata(path) {
        Ok(found) if found.len() == size_bytes => Ok(()),
        Ok(found) => {
            let (has, configured) = (show_size(found.len()), show_size(size_bytes));
            bail!("{} has {has}, one of {configured} is configured for this place, and {why}", path.display())
        }
        Err(error) => bail!("{}: {error}, and {why}", path.display()),
    }
}

fn remove_if_other_size(path: &Path, size_bytes: u64) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() && (found.len() != size_bytes || size_bytes == 0) => {
            fs::remove_file(path).with_context(|| format!("{} cannot be removed", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use settings::Config;
    use settings::example::EXAMPLE;

    use super::*;

    fn group(queue_disk_bytes: u64) -> ConfiguredGroup {
        let config = Config::parse(Path::new("/etc/farshore/farshore.toml"), EXAMPLE).expect("the example is sound");
        let mut group = config.groups[0].clone();
        group.layout.queue_disk_bytes = queue_disk_bytes;
        group
    }

    /// The files of all groups lie there, and that of this one in a directory of its name.
    fn place(scratch: &Path, apart: Option<PathBuf>) -> (QueuePlace, PathBuf) {
        let directory = scratch.join(group(0).name.as_str());
        fs::create_dir_all(&directory).expect("made");
        (QueuePlace { state: scratch.to_owned(), apart }, directory.join(NAME))
    }

    /// Its size, if there is one.
    fn opened(place: &QueuePlace, queue_disk_bytes: u64) -> Option<u64> {
        place.open(&group(queue_disk_bytes), false, Patience::new()).map(|file| file.size_bytes())
    }

    #[test]
    fn it_has_the_size_that_is_wanted_now_and_its_space() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (place, path) = place(scratch.path(), None);
        for bytes in [8 << 20, 16 << 20, 8 << 20] {
            assert_eq!(opened(&place, bytes), Some(bytes));
            assert!(fs::metadata(&path).expect("there").blocks() * 512 >= bytes, "it is sparse");
        }
        assert_eq!(opened(&place, 0), None);
        assert!(!path.exists(), "nobody wants it, and it takes space");
        assert_eq!(opened(&place, 8 << 20), Some(8 << 20));
        place.remove(group(0).name.as_str());
        assert!(!path.exists());
    }

    // proves: P4
    #[test]
    fn one_that_a_start_still_needs_is_not_made_anew() {
        let [state, fast] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let (beside, path) = place(state.path(), None);
        let (apart, _) = place(state.path(), Some(fast.path().join("alpha")));
        assert_eq!(opened(&beside, 8 << 20), Some(8 << 20));
        for (place, wanted) in [(&beside, 16 << 20), (&beside, 0), (&apart, 8 << 20)] {
            let why = place.open_or_why(&group(wanted), true, Patience::new()).expect_err("it is needed").to_string();
            assert!(why.contains("set 'queue.disk' and 'queues' back"), "{why}");
            assert_eq!(fs::metadata(&path).expect("there").len(), 8 << 20);
        }
        assert!(!fast.path().join("alpha").exists(), "a blank one is in the way once 'queues' is set back");
        assert!(beside.open(&group(8 << 20), true, Patience::new()).is_some());
    }

    // proves: P8
    #[test]
    fn without_room_there_is_none_and_the_sentence_has_the_numbers() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (place, path) = place(scratch.path(), None);
        let why = place.open_or_why(&group(1 << 50), false, Patience::new()).expect_err("no disk has that").to_string();
        let words = "queue needs 1024 TiB and has to leave 1.2 GiB free, and its file system has ";
        assert!(why.contains(words), "{why}");
        assert_eq!(opened(&place, 1 << 50), None);
        assert!(!path.exists(), "something stays behind");
    }

    #[test]
    fn what_is_no_file_of_ours_is_left_alone() {
        let scratch = tempfile::tempdir().expect("a directory");
        let victim = scratch.path().join("victim");
        fs::write(&victim, [7; 4096]).expect("written");
        let (place, path) = place(scratch.path(), None);
        symlink(&victim, &path).expect("a link");
        assert_eq!(opened(&place, 8 << 20), None);
        place.remove(group(0).name.as_str());
        assert!(fs::read(&victim).expect("there") == [7; 4096], "it was written to");
        assert!(fs::symlink_metadata(&path).expect("there").is_symlink());
    }

    #[test]
    fn it_may_lie_on_a_disk_of_its_own() {
        let [state, fast] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let (beside, path) = place(state.path(), None);
        assert_eq!(opened(&beside, 8 << 20), Some(8 << 20));
        let (apart, _) = place(state.path(), Some(fast.path().join("alpha")));
        assert_eq!(opened(&apart, 8 << 20), Some(8 << 20));
        assert!(!path.exists(), "the one in the state directory takes space");
        let (file, name) = (fast.path().join("alpha").join(group(0).name.as_str()), group(0).name);
        assert_eq!(fs::metadata(&file).expect("there").len(), 8 << 20);
        apart.remove(name.as_str());
        assert!(!file.exists());
        // A disk that is not mounted, and a directory in which others may put a file for ours.
        let (nowhere, _) = place(state.path(), Some(fast.path().join("missing/alpha")));
        assert_eq!(opened(&nowhere, 8 << 20), None);
        fs::set_permissions(fast.path().join("alpha"), fs::Permissions::from_mode(0o777)).expect("set");
        let why =
            apart.open_or_why(&group(8 << 20), false, Patience::new()).expect_err("others may write there").to_string();
        assert!(why.contains("alpha"), "{why}");
    }
}
