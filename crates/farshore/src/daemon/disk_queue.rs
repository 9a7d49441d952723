//! The file of a group's disk queue: its space is reserved at a start, or the log says why the group goes on without it.
//!
//! One of another size is made anew: at most the order of what it held is lost. But if a start was cut short while it wrote what the queue's log
//! holds, the volumes are whole only with that log: then the file stays as it is, and the engine refuses to go on without it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use engine::limits;
use host::disk::File;
use host::disk::meta::create_or_open_reserved;
use settings::ConfiguredGroup;
use settings::limits::QUEUE_DISK_SPARE_BYTES;
use units::exact::show_size;

use super::patience::Patience;

const NAME: &str = "queue";

/// It ends on a block. 0: the group is to have none.
fn size_bytes(group: &ConfiguredGroup) -> u64 {
    group.layout.queue_disk_bytes.next_multiple_of(limits::META_BLOCK_BYTES)
}

/// Opens it in the group's directory, where the group's other files have their space already; `None`: there is none, and the log says why
/// unless nobody wanted it. `is_needed`: a start was cut short while it wrote what the file holds.
pub(super) fn open(
    directory: &Path,
    group: &ConfiguredGroup,
    is_needed: bool,
    patience: Patience,
) -> Option<Arc<File>> {
    match open_or_why(directory, group, is_needed, patience) {
        Ok(file) => file.map(Arc::new),
        Err(why) => {
            tracing::warn!(
                "group {}: it goes on without a disk queue: {why:#}. What has no room in memory waits or becomes dirty regions, as the \
                 mode and 'queue.when_full' say. Make 'queue.disk' smaller and type 'farshore config apply', or make room and restart the daemon",
                group.name
            );
            None
        }
    }
}

/// Gives back the space of a group that has left.
pub(super) fn remove(directory: &Path) {
    let path = directory.join(NAME);
    if let Err(error) = remove_if_other_size(&path, 0) {
        tracing::warn!("{error:#}; remove it by hand: the group has left, and nothing in it counts");
    }
}

fn open_or_why(
    directory: &Path,
    group: &ConfiguredGroup,
    is_needed: bool,
    patience: Patience,
) -> anyhow::Result<Option<File>> {
    let (path, size_bytes) = (directory.join(NAME), size_bytes(group));
    match fs::symlink_metadata(&path) {
        Ok(found) if is_needed && found.len() != size_bytes => bail!(
            "{} has {}, 'queue.disk' is {}, and a start was cut short while it wrote what the file holds: set 'queue.disk' back",
            path.display(),
            show_size(found.len()),
            show_size(size_bytes)
        ),
        _ => remove_if_other_size(&path, size_bytes)?,
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

/// Other files grow beside it, and what they lack stops a sync or keeps another group down.
fn has_room(path: &Path, size_bytes: u64, spare_bytes: u64) -> anyhow::Result<()> {
    let directory = path.parent().expect("it lies in the group's directory");
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
    use std::os::unix::fs::{MetadataExt, symlink};

    use settings::Config;
    use settings::example::EXAMPLE;

    use super::*;

    fn group(queue_disk_bytes: u64) -> ConfiguredGroup {
        let config = Config::parse(Path::new("/etc/farshore/farshore.toml"), EXAMPLE).expect("the example is sound");
        let mut group = config.groups[0].clone();
        group.layout.queue_disk_bytes = queue_disk_bytes;
        group
    }

    /// Its size, if there is one.
    fn opened(directory: &Path, queue_disk_bytes: u64) -> Option<u64> {
        open(directory, &group(queue_disk_bytes), false, Patience::new()).map(|file| file.size_bytes())
    }

    #[test]
    fn it_has_the_size_that_is_wanted_now_and_its_space() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join(NAME);
        for bytes in [8 << 20, 16 << 20, 8 << 20] {
            assert_eq!(opened(scratch.path(), bytes), Some(bytes));
            assert!(fs::metadata(&path).expect("there").blocks() * 512 >= bytes, "it is sparse");
        }
        assert_eq!(opened(scratch.path(), 0), None);
        assert!(!path.exists(), "nobody wants it, and it takes space");
        assert_eq!(opened(scratch.path(), 8 << 20), Some(8 << 20));
        remove(scratch.path());
        assert!(!path.exists());
    }

    // proves: P4
    #[test]
    fn one_that_a_start_still_needs_is_not_made_anew() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join(NAME);
        assert_eq!(opened(scratch.path(), 8 << 20), Some(8 << 20));
        for wanted in [16 << 20, 0] {
            let why = open_or_why(scratch.path(), &group(wanted), true, Patience::new()).expect_err("it is needed");
            assert!(why.to_string().contains("set 'queue.disk' back"), "{why}");
            assert_eq!(fs::metadata(&path).expect("there").len(), 8 << 20);
        }
        assert!(open(scratch.path(), &group(8 << 20), true, Patience::new()).is_some());
    }

    // proves: P8
    #[test]
    fn without_room_there_is_none_and_the_sentence_has_the_numbers() {
        let scratch = tempfile::tempdir().expect("a directory");
        let why = open_or_why(scratch.path(), &group(1 << 50), false, Patience::new())
            .expect_err("no disk has that")
            .to_string();
        let words = "queue needs 1024 TiB and has to leave 1.2 GiB free, and its file system has ";
        assert!(why.contains(words), "{why}");
        assert_eq!(opened(scratch.path(), 1 << 50), None);
        assert_eq!(fs::read_dir(scratch.path()).expect("there").count(), 0, "something stays behind");
    }

    #[test]
    fn what_is_no_file_of_ours_is_left_alone() {
        let scratch = tempfile::tempdir().expect("a directory");
        let victim = scratch.path().join("victim");
        fs::write(&victim, [7; 4096]).expect("written");
        symlink(&victim, scratch.path().join(NAME)).expect("a link");
        assert_eq!(opened(scratch.path(), 8 << 20), None);
        remove(scratch.path());
        assert!(fs::read(&victim).expect("there") == [7; 4096], "it was written to");
        assert!(fs::symlink_metadata(scratch.path().join(NAME)).expect("there").is_symlink());
    }
}
