//! Fingerprints of a group's volumes between a clean stop and the next start: `<state>/groups/<group>/fingerprints`.
//!
//! A seal names the run that ended cleanly and left it, and counts as long as the superblock says the same: clean, and this run.
//! So nobody breaks a seal. The first record of the next run ends it, before that run writes to a volume, in the same
//! update that makes durable what was found changed. At each point in between:
//!
//! * a start is killed, or stopped, before its record: superblock and seal are as they were, and the next start finds the
//!   change again; so nothing is sealed anew for a group that came no further;
//! * it is killed after its record: the superblock is not clean, and nobody compares; what was found is on record;
//! * a stop is killed between the record of its end and the seal: the one that is there is of an earlier run, or none is, and
//!   nobody knows what became of the volumes, as after any crash. A stop that was cut short, or given up for the sake of one
//!   group, is no reason to distrust the copies of all.
//!
//! The journal of a clean stop holds nothing that is still to be applied, and a rollback that was cut short is not clean: such
//! a start writes to no volume before its record. If one did, that would be found as a change, never hidden.
//!
//! The file: see `docs/book/format.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use engine::{Incarnation, superblock};
use host::disk::File;
use host::disk::fingerprint::{Changed, Fingerprint, compare};
use host::disk::meta::read_blocks;
use settings::durable;
use units::size::show_exact;

/// A thousand volumes with the longest device names.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Fingerprints that are taken at once; of a group's volumes, and of groups.
const AT_ONCE_MAX: usize = 16;

/// What the file begins with.
pub const MAGIC: [u8; 8] = *b"FSHSEALS";

/// The seals of all groups of this node.
#[derive(Default)]
pub(super) struct Seals(Vec<GroupSeals>);

pub(super) struct GroupSeals {
    group: String,
    directory: PathBuf,
    tag: u64,
    volumes: Vec<(String, Arc<File>)>,
    /// The run that had ended cleanly before this start; `None`: the last one did not.
    ended: Option<Incarnation>,
    /// What that run left, by volume; `None`: it left nothing.
    left: Option<BTreeMap<String, Fingerprint>>,
}

/// What a file of seals says.
pub struct Sealed {
    /// The run that left them.
    pub run: Incarnation,
    pub volumes: BTreeMap<String, Fingerprint>,
}

impl Seals {
    pub fn add(&mut self, seals: GroupSeals) {
        self.0.push(seals);
    }

    /// A group's files are let go of, and opened again.
    pub fn remove(&mut self, group: &str) {
        self.0.retain(|kept| kept.group != group);
    }

    /// Those of a group that leaves.
    pub fn take(&mut self, group: &str) -> Seals {
        Seals(self.0.extract_if(.., |kept| kept.group == group).collect())
    }

    /// Seals what this run has left at rest. Groups that are not sealed, as no disk answers anything for `silence`: none, mostly.
    ///
    /// Without a thread nothing is sealed, and no disk is to blame for it: the log says so, and nobody is waited for.
    pub fn write_unless_silent(self, silence: Duration) -> Vec<String> {
        let progress = Arc::new(AtomicU64::new(0));
        let unsealed: BTreeSet<String> = self.0.iter().map(|group| group.group.clone()).collect();
        let unsealed = Arc::new(Mutex::new(unsealed));
        let (done, wait) = mpsc::channel();
        let left = unsealed.clone();
        let moved = progress.clone();
        let write = move || {
            at_once(&self.0, |group| {
                group.write_or_warn(&|| _ = moved.fetch_add(1, Ordering::Relaxed));
                moved.fetch_add(1, Ordering::Relaxed);
                left.lock().unwrap_or_else(PoisonError::into_inner).remove(&group.group);
            });
            // Given up, nobody waits any more.
            let _ = done.send(());
        };
        if let Err(error) = std::thread::Builder::new().name("seals".into()).spawn(write) {
            tracing::warn!(
                "no thread can be started that takes the fingerprints of the volumes: {error}; so the next start cannot know whether \
                 they were changed until then; nothing acknowledged is lost by that"
            );
            return Vec::new();
        }
        let mut seen = None;
        while wait.recv_timeout(silence) == Err(RecvTimeoutError::Timeout) {
            let now = progress.load(Ordering::Relaxed);
            if seen.replace(now) == Some(now) {
                break;
            }
        }
        std::mem::take(&mut *unsealed.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect()
    }
}

impl GroupSeals {
    /// Reads the seals in the group's directory that the last run has left; of a damaged file all are broken.
    pub fn load(group: &str, directory: &Path, tag: u64, volumes: Vec<(String, Arc<File>)>) -> GroupSeals {
        let ended = match ended_cleanly(directory, tag) {
            Ok(ended) => ended,
            // The engine may be able to read it, and would take the volumes for unchanged.
            Err(error) if is_unread(&error) => {
                tracing::warn!("group {group}: whether its volumes were changed is not known: {error:#}");
                let left = Some(BTreeMap::new());
                return GroupSeals {
                    group: group.to_owned(),
                    directory: directory.to_owned(),
                    tag,
                    volumes,
                    ended: None,
                    left,
                };
            }
            // One that cannot be used is for the engine to tell.
            Err(_) => None,
        };
        let left = ended.and_then(|run| {
            let path = path(directory);
            read(&path).map(|sealed| sealed.filter(|sealed| sealed.run == run)).unwrap_or_else(|error| {
                tracing::warn!("group {group}: {} is of no use: {error:#}", path.display());
                Some(Sealed { run, volumes: BTreeMap::new() })
            })
        });
        let left = left.map(|sealed| sealed.volumes);
        GroupSeals { group: group.to_owned(), directory: directory.to_owned(), tag, volumes, ended, left }
    }

    /// Whether each volume was changed since the last clean stop, as far as that left seals.
    pub fn compare(&self) -> Vec<bool> {
        at_once(&self.volumes, |(name, file)| {
            self.left.as_ref().is_some_and(|left| self.is_changed(left.get(name), name, file))
        })
    }

    /// A failure costs what seals are for, nothing more.
    fn write_or_warn(&self, goes_on: &(dyn Fn() + Sync)) {
        if let Err(error) = self.write(goes_on) {
            tracing::warn!(
                "group {}: its volumes were not sealed, so the next start cannot know whether they were changed until then: {error:#}",
                self.group
            );
        }
    }

    fn is_changed(&self, left: Option<&Fingerprint>, name: &str, file: &File) -> bool {
        let Some(left) = left else { return true };
        let now = match Fingerprint::take(file, left.seed()) {
            Ok(now) => now,
            Err(error) => {
                tracing::error!("volume {}/{name}: {error}", self.group);
                return true;
            }
        };
        let changed = compare(left, &now).err();
        if let Some(changed) = &changed {
            tracing::warn!("{}", change_words(&self.group, name, changed));
        }
        changed.is_some()
    }

    fn write(&self, goes_on: &(dyn Fn() + Sync)) -> anyhow::Result<()> {
        match ended_cleanly(&self.directory, self.tag)? {
            Some(run) if self.ended != Some(run) => self.seal(run, goes_on),
            // It failed, or was stopped before this run was recorded: a change that it found has to be found again.
            _ => Ok(()),
        }
    }

    fn seal(&self, run: Incarnation, goes_on: &(dyn Fn() + Sync)) -> anyhow::Result<()> {
        let take = |(_, file): &(String, Arc<File>)| {
            let taken = Fingerprint::take_telling(file, host::driver::entropy(), goes_on);
            goes_on();
            taken
        };
        let taken = self.volumes.iter().zip(at_once(&self.volumes, take));
        let sealed = taken.map(|((name, _), seal)| Ok((name.clone(), seal?))).collect::<anyhow::Result<Vec<_>>>()?;
        let path = path(&self.directory);
        durable::replace(&path, &encode(run, &sealed)?).with_context(|| format!("{} cannot be written", path.display()))
    }
}

/// Applies `work` to each item, some at the same time: each waits for a disk, mostly one of its own. The caller takes its turns, too:
/// where no thread can be started, slow is better than never.
fn at_once<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take_turns = || {
        let mut results = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return results };
            results.push((at, work(item)));
        }
    };
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, take_turns).ok();
        let threads: Vec<_> = (1..items.len().min(AT_ONCE_MAX)).map_while(start).collect();
        let own = take_turns();
        let others = threads.into_iter().flat_map(|thread| thread.join().expect("it reads, and does not panic"));
        own.into_iter().chain(others).collect()
    });
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// For the log. Whoever enlarged a device wrote nothing to it, and it counts as if somebody had: what that costs is not to be guessed.
fn change_words(group: &str, volume: &str, changed: &Changed) -> String {
    let words = format!("volume {group}/{volume} was changed since the last clean stop: {changed}");
    match changed {
        Changed::Size { was_bytes, is_bytes } if is_bytes > was_bytes => format!(
            "{words}; a device that was enlarged counts as written from outside: a secondary gives its copy up, and the primary has the \
             only image until 'farshore sync {group} --full' there has ended; a primary serves its content, and sends nothing before \
             'farshore sync {group}' is typed"
        ),
        _ => words,
    }
}

/// The file that this run leaves.
pub(super) fn encode(run: Incarnation, volumes: &[(String, Fingerprint)]) -> anyhow::Result<Vec<u8>> {
    let mut bytes = head(run);
    for (name, seal) in volumes {
        let seal = seal.to_bytes();
        bytes.push(u8::try_from(name.len())?);
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&u32::try_from(seal.len())?.to_le_bytes());
        bytes.extend_from_slice(&seal);
    }
    Ok(bytes)
}

/// Where the seals lie.
pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join("fingerprints")
}

/// It is there, and could not be read.
fn is_unread(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() != std::io::ErrorKind::NotFound)
}

/// The run that the superblock calls the last one, if it calls its end clean.
fn ended_cleanly(directory: &Path, tag: u64) -> anyhow::Result<Option<Incarnation>> {
    let path = directory.join("superblock");
    let bytes =
        read_blocks(&path, superblock::FILE_BYTES).with_context(|| format!("{} cannot be read", path.display()))?;
    let read = superblock::read(&bytes, tag).map_err(|why| anyhow::anyhow!("the superblock is of no use: {why:?}"))?;
    Ok(read.found.filter(|found| found.clean).map(|found| found.identity.incarnation))
}

/// Reads a file of seals; `None`: there is none.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<Sealed>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.len() > FILE_BYTES_MAX => anyhow::bail!("it has {}, far too much", show_exact(found.len())),
        _ => {}
    }
    let mut bytes = Vec::new();
    durable::open(path)?.read_to_end(&mut bytes)?;
    decode(&bytes).map(Some)
}

fn head(run: Incarnation) -> Vec<u8> {
    let mut bytes = [MAGIC, run.0.to_le_bytes()].concat();
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// What a file's bytes say.
///
/// # Errors
/// A sentence that goes on from the file's name: where it is damaged.
pub fn decode(bytes: &[u8]) -> anyhow::Result<Sealed> {
    let run = bytes.get(8..16).and_then(|run| run.first_chunk()).context("it is cut short in its head")?;
    let run = Incarnation(u64::from_le_bytes(*run));
    let mut rest = bytes.strip_prefix(&head(run)[..]).context("its head is damaged")?;
    let mut volumes = BTreeMap::new();
    while let Some((length, behind)) = rest.split_first() {
        let (name, behind) = behind.split_at_checked(usize::from(*length)).context("it is cut short in a name")?;
        let (length, behind) = behind.split_first_chunk::<4>().context("it is cut short after a name")?;
        let length = u32::from_le_bytes(*length) as usize;
        let (seal, behind) = behind.split_at_checked(length).context("it is cut short in a fingerprint")?;
        volumes.insert(std::str::from_utf8(name)?.to_owned(), Fingerprint::from_bytes(seal)?);
        rest = behind;
    }
    Ok(Sealed { run, volumes })
}

#[cfg(test)]
mod tests {
    use engine::identity::Identity;
    use engine::superblock::{FILE_BYTES, Superblock};
    use host::disk::volume::{VolumeOptions, open_volume};

    use super::*;
    use crate::without_threads::has_no_threads;

    const TAG: u64 = 42;

    fn group(directory: &Path) -> GroupSeals {
        let device = directory.join("volume");
        if !device.exists() {
            fs::write(&device, vec![7u8; 1 << 16]).expect("written");
        }
        let file = Arc::new(open_volume(&device, VolumeOptions::default()).expect("opens"));
        GroupSeals::load("db", directory, TAG, vec![("data".to_owned(), file)])
    }

    /// The engine records a run's beginning, or its end.
    fn record(directory: &Path, run: u64, clean: bool) {
        let identity = Identity { incarnation: Incarnation(run), ..Identity::default() };
        let slot = |update| Superblock { update, tag: TAG, clean, identity, ..Superblock::default() }.encode();
        fs::write(directory.join("superblock"), [slot(2), slot(3)].concat()).expect("written");
    }

    fn change(directory: &Path, byte: u8) {
        fs::write(directory.join("volume"), vec![byte; 1 << 16]).expect("written");
    }

    /// A group that has ended its run 5 cleanly, and its seal.
    fn at_rest(directory: &Path) {
        record(directory, 4, false);
        let running = group(directory);
        record(directory, 5, true);
        running.write(&|| {}).expect("sealed");
    }

    #[test]
    fn a_seal_reports_whether_a_volume_was_touched() {
        let directory = tempfile::tempdir().expect("directory");
        let state_dir = directory.path();
        record(state_dir, 5, true);
        assert_eq!(group(state_dir).compare(), [false], "without a seal nobody knows");
        at_rest(state_dir);
        assert_eq!(group(state_dir).compare(), [false]);
        let mut other = group(state_dir);
        other.volumes[0].0 = "another".to_owned();
        assert_eq!(other.compare(), [true], "the stop left seals, and none of this volume");
        drop(other);
        let whole = fs::read(path(state_dir)).expect("there");
        fs::write(path(state_dir), &whole[..40]).expect("written");
        assert_eq!(group(state_dir).compare(), [true], "damaged");
        fs::write(path(state_dir), whole).expect("written");
        change(state_dir, 8);
        assert_eq!(group(state_dir).compare(), [true]);
    }

    /// The log said that it had been written, and not that this cost the only copy.
    #[test]
    fn what_an_enlarged_device_costs_is_said() {
        let of = |was_bytes, is_bytes| change_words("db", "data", &Changed::Size { was_bytes, is_bytes });
        let said = of(4096, 8192);
        let found = "volume db/data was changed since the last clean stop: it had 4 KiB and has 8 KiB";
        assert!(
            said.starts_with(&format!("{found}; a device that was enlarged counts as written from outside: ")),
            "{said}"
        );
        assert!(said.contains("a secondary gives its copy up") && said.contains("'farshore sync db --full'"), "{said}");
        for said in [of(8192, 4096), change_words("db", "data", &Changed::Content)] {
            assert!(said.starts_with("volume db/data was changed") && !said.contains("enlarged"), "{said}");
        }
    }

    #[test]
    fn what_was_found_changed_is_found_until_a_start_has_recorded_it() {
        let directory = tempfile::tempdir().expect("directory");
        let state_dir = directory.path();
        at_rest(state_dir);
        change(state_dir, 8);
        assert_eq!(group(state_dir).compare(), [true], "then it was killed");
        let stopped = group(state_dir);
        stopped.write(&|| {}).expect("nothing to do");
        assert_eq!(stopped.compare(), [true]);
        drop(stopped);
        assert_eq!(group(state_dir).compare(), [true], "it was stopped before its record");

        let started = group(state_dir);
        record(state_dir, 6, false);
        drop(started);
        assert_eq!(group(state_dir).compare(), [false], "it was killed after its record");
        let failed = group(state_dir);
        failed.write(&|| {}).expect("nothing to do");
        assert_eq!(decode(&fs::read(path(state_dir)).expect("there")).expect("sound").run, Incarnation(5));
    }

    #[test]
    fn the_seal_of_an_earlier_run_does_not_count() {
        let directory = tempfile::tempdir().expect("directory");
        let state_dir = directory.path();
        at_rest(state_dir);
        let started = group(state_dir);
        record(state_dir, 6, true);
        drop(started);
        change(state_dir, 8);
        assert_eq!(group(state_dir).compare(), [false], "killed between its record and its seal");
        let started = group(state_dir);
        record(state_dir, 7, true);
        started.write(&|| {}).expect("sealed");
        drop(started);
        assert_eq!(group(state_dir).compare(), [false]);
        change(state_dir, 9);
        assert_eq!(group(state_dir).compare(), [true]);
    }

    /// For want of a descriptor, say: a moment later the engine reads it, and would take the volumes for unchanged.
    #[test]
    fn volumes_count_as_changed_when_the_last_run_cannot_be_asked() {
        let directory = tempfile::tempdir().expect("directory");
        let state_dir = directory.path();
        at_rest(state_dir);
        change(state_dir, 9);
        let superblock = state_dir.join("superblock");
        fs::rename(&superblock, state_dir.join("aside")).expect("away");
        assert_eq!(group(state_dir).compare(), [false], "there was no last run");
        fs::create_dir(&superblock).expect("in its place");
        assert_eq!(group(state_dir).compare(), [true]);
    }

    #[test]
    fn groups_are_sealed_side_by_side_in_their_order() {
        let directories: Vec<_> = (0..40).map(|_| tempfile::tempdir().expect("a directory")).collect();
        let mut seals = Seals::default();
        for directory in &directories {
            record(directory.path(), 4, false);
            seals.add(group(directory.path()));
            record(directory.path(), 5, true);
        }
        assert_eq!(seals.write_unless_silent(Duration::from_secs(60)), [""; 0]);
        assert!(directories.iter().all(|directory| path(directory.path()).exists()));
        assert_eq!(at_once(&[3, 1, 2], |number| number * 2), [6, 2, 4]);
    }

    /// The start broke down then, and a stop said that a disk answers nothing.
    #[test]
    fn without_threads_volumes_are_compared_and_no_disk_is_blamed() {
        if !has_no_threads("daemon::seals::tests::without_threads_volumes_are_compared_and_no_disk_is_blamed") {
            return;
        }
        assert_eq!(at_once(&[3, 1, 2], |number| number * 2), [6, 2, 4]);
        let directory = tempfile::tempdir().expect("directory");
        at_rest(directory.path());
        change(directory.path(), 8);
        let changed = group(directory.path());
        assert_eq!(changed.compare(), [true]);
        let mut seals = Seals::default();
        seals.add(changed);
        assert_eq!(seals.write_unless_silent(Duration::from_secs(60)), [""; 0]);
    }

    #[test]
    fn what_cannot_be_read_is_not_sealed() {
        let directory = tempfile::tempdir().expect("directory");
        let state_dir = directory.path();
        fs::write(state_dir.join("superblock"), [7; FILE_BYTES as usize]).expect("written");
        assert!(group(state_dir).write(&|| {}).is_err());
        assert!(!path(state_dir).exists());
    }

    #[test]
    fn damage_counts_as_no_seal() {
        let directory = tempfile::tempdir().expect("directory");
        let state_dir = directory.path();
        at_rest(state_dir);
        let whole = fs::read(path(state_dir)).expect("there");
        let sound = decode(&whole).expect("sound");
        let head_bytes = head(sound.run).len();
        for end in (0..head_bytes).chain(head_bytes + 1..whole.len()) {
            assert!(decode(&whole[..end]).is_err(), "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 0x40;
            let Ok(seals) = decode(&bad) else { continue };
            assert!(at >= head_bytes, "byte {at} of the head");
            assert!(seals.volumes.get("data").is_none_or(|seal| Some(seal) == sound.volumes.get("data")));
        }
    }
}
