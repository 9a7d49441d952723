//! Which of its terms as primary a node is in. A term begins with each promotion, with each other content that a start finds, and behind a
//! flush that failed; it never comes back. So whoever keeps requests for an export that went away knows whether the export that is there now is the same one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};

use anyhow::Context;
use host::driver::entropy;
use rustix::fs::OFlags;
use settings::durable;
use tokio::sync::Mutex;

use super::checked_text;
use super::group_directory::GROUPS;
use crate::api::GroupView;

/// In the directory of a group.
const FILE: &str = "term";
/// The same: what has come to the group, or has a new name, is another volume than what was called so before.
pub(super) const CAME: &str = "came";
const BYTES_MAX: u64 = 64;
/// 256 names of volumes.
const CAME_BYTES_MAX: u64 = 1 << 20;

/// The terms of all groups of a node, each in a file of its group's directory.
pub(super) struct Terms {
    groups: PathBuf,
    known: KnownTerms,
    /// By group, held while its file is written: of two terms the older one must not be written last.
    writing: RefCell<BTreeMap<String, Rc<Mutex<()>>>>,
}

/// Shared with whoever opens a group again: what that finds may begin another term, and is told before the export opens.
#[derive(Clone)]
pub(super) struct KnownTerms(Arc<StdMutex<BTreeMap<String, KnownTerm>>>);

/// The term that a group is in.
struct KnownTerm {
    term: String,
    /// Of volumes that are in a term of their own, beside the group's; `None`: what is on record of them cannot be read.
    volumes: Option<VolumeTerms>,
    /// Why it is not on record, as a warning.
    unrecorded: Option<String>,
}

/// By the names of volumes that came, or were renamed: a word that no other volume of that name had.
pub(super) type VolumeTerms = BTreeMap<String, String>;

/// A term that has begun.
#[derive(Debug)]
pub(super) struct BegunTerm {
    term: String,
    /// Why it is on record nowhere, if it is not. Then no other one is either: where that lasts until the daemon stops, the next start
    /// begins another.
    unrecorded: Option<io::Error>,
}

impl KnownTerms {
    /// What is on record in the state directory. A term that cannot be read is over.
    pub fn read<'a>(state: &Path, names: impl Iterator<Item = &'a str>) -> KnownTerms {
        let groups = state.join(GROUPS);
        let known = names.map(|name| (name.to_owned(), KnownTerm::find(name, &groups.join(name)))).collect();
        KnownTerms(Arc::new(StdMutex::new(known)))
    }

    /// A group was opened, for the first time or again: the term that is on record now. Waits for the disk.
    pub fn look_again(&self, state: &Path, group: &str) {
        let found = KnownTerm::find(group, &state.join(GROUPS).join(group));
        self.lock().insert(group.to_owned(), found);
    }

    /// The term of a group; empty: none is known.
    pub fn of(&self, group: &str) -> String {
        self.lock().get(group).map(|known| known.term.clone()).unwrap_or_default()
    }

    /// The term of a volume of that group.
    fn of_volume(&self, group: &str, volume: &str) -> String {
        let all = self.lock();
        let Some(known) = all.get(group) else { return String::new() };
        let own = known.volumes.as_ref().and_then(|volumes| volumes.get(volume));
        own.map_or_else(|| known.term.clone(), |own| format!("{}.{own}", known.term))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, KnownTerm>> {
        // A map of texts is whole whoever broke down beside it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Terms {
    /// Of the groups in this state directory.
    pub fn new(state: &Path, known: KnownTerms) -> Terms {
        Terms { groups: state.join(GROUPS), known, writing: RefCell::default() }
    }

    fn writing(&self, group: &str) -> Rc<Mutex<()>> {
        self.writing.borrow_mut().entry(group.to_owned()).or_default().clone()
    }

    pub fn of(&self, group: &str) -> String {
        self.known.of(group)
    }

    /// The group and its volumes are shown with their terms.
    pub fn show(&self, group: &mut GroupView) {
        group.term = self.of(&group.name);
        for volume in &mut group.volumes {
            volume.term = self.known.of_volume(&group.name, &volume.name);
        }
    }

    /// The volume came to the group, or got another name, since that has been running; or nobody knows.
    pub fn may_have_come(&self, group: &str, volume: &str) -> bool {
        let all = self.known.lock();
        let came = all.get(group).and_then(|known| known.volumes.as_ref());
        came.is_none_or(|came| came.contains_key(volume))
    }

    /// Why its term is not on record, as a warning.
    pub fn unrecorded(&self, group: &str) -> Option<String> {
        self.known.lock().get(group)?.unrecorded.clone()
    }

    /// Has another term begin; a warning where it is not on record. To be called while the node is not primary, as a device that is
    /// attached belongs to the term before; and once at a time for a group.
    ///
    /// # Errors
    /// A sentence: the old term is still on record, and holds.
    pub async fn begin(&self, group: &str) -> Result<Option<String>, String> {
        let directory = self.groups.join(group);
        let path = directory.join(FILE);
        let writing = self.writing(group);
        let _alone = writing.lock().await;
        let begun = tokio::task::spawn_blocking(move || renew(&directory)).await.map_err(|error| error.to_string())?;
        let begun = begun.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        let unrecorded = begun.unrecorded.map(|error| warned(group, &path, &error));
        let mut all = self.known.lock();
        let volumes = all.remove(group).and_then(|known| known.volumes);
        all.insert(group.to_owned(), KnownTerm { term: begun.term, volumes, unrecorded: unrecorded.clone() });
        Ok(unrecorded)
    }

    /// Writes down the terms that could not be, where that is possible by now. To be called again and again.
    pub async fn record_again(&self) {
        let is_unrecorded = |(_, known): &(&String, &KnownTerm)| known.unrecorded.is_some();
        let groups: Vec<String> =
            self.known.lock().iter().filter(is_unrecorded).map(|(group, _)| group.clone()).collect();
        for group in groups {
            // Where another one begins right now, that is written down instead.
            let writing = self.writing(&group);
            let Ok(_alone) = writing.try_lock() else { continue };
            let (term, path) = (self.of(&group), self.groups.join(&group).join(FILE));
            let written = tokio::task::spawn_blocking(move || durable::replace(&path, term.as_bytes())).await;
            if !matches!(written, Ok(Ok(()))) {
                continue;
            }
            if let Some(known) = self.known.lock().get_mut(&group) {
                known.unrecorded = None;
            }
            tracing::info!("the term of {group} is on record now; its devices outlive a restart of the daemon");
        }
    }
}

impl KnownTerm {
    /// The one on record at a start, or another that begins with it.
    fn find(group: &str, directory: &Path) -> KnownTerm {
        let path = directory.join(FILE);
        let recorded = came(directory).inspect_err(|why| {
            tracing::warn!("{} cannot be read: {why}; another term of {group} begins", directory.join(CAME).display());
        });
        let volumes = recorded.ok();
        let found = match volumes {
            Some(_) => read(&path),
            None => Err(ErrorKind::NotFound.into()),
        };
        let error = match found {
            Ok(term) => return KnownTerm { term, volumes, unrecorded: None },
            Err(error) => error,
        };
        if error.kind() != ErrorKind::NotFound {
            tracing::warn!("{} cannot be read: {error}; devices attached before have to be detached", path.display());
        }
        let (term, error) = match renew(directory) {
            Ok(BegunTerm { term, unrecorded }) => (term, unrecorded),
            Err(error) => (new(), Some(error)),
        };
        // A group that is refused may have no directory, and serves nothing.
        let error = error.filter(|_| directory.is_dir());
        KnownTerm { term, volumes, unrecorded: error.map(|error| warned(group, &path, &error)) }
    }
}

/// The warning about a term that is not on record; the log has it too.
fn warned(group: &str, path: &Path, error: &io::Error) -> String {
    let warning = format!(
        "{} cannot be written: {error}. Make room there, and it is written; if the daemon is restarted before, devices of {group} that are \
         attached by then have to be attached again",
        path.display()
    );
    tracing::warn!("{warning}");
    warning
}

/// Has another term begin, on record in the group's directory. A disk that is full keeps no group from its promotion: the old term is
/// written over, and where even that takes room it is removed. What a power loss takes back of that harms nobody: no attached device lives
/// through one.
///
/// # Errors
/// The old one stays on record, and holds.
pub(super) fn renew(directory: &Path) -> io::Result<BegunTerm> {
    let (path, term) = (directory.join(FILE), new());
    let unrecorded = match durable::replace(&path, term.as_bytes()) {
        Ok(()) => None,
        Err(error) => match write_over(&path, term.as_bytes()) {
            Ok(()) => {
                // The disk is full, or begins to fail.
                tracing::warn!("{} was written over, as it cannot be replaced: {error}", path.display());
                None
            }
            Err(_) => Some(error),
        },
    };
    if unrecorded.is_some() {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(BegunTerm { term, unrecorded })
}

/// Its few bytes lie in one block, which the disk takes whole or not at all.
pub(super) fn write_over(path: &Path, content: &[u8]) -> io::Result<()> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    let mut file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    file.write_all(content)?;
    file.set_len(content.len() as u64)?;
    file.sync_all()
}

/// What is on record of volumes in terms of their own.
///
/// # Errors
/// It cannot be read, or is damaged: a sentence.
pub(super) fn came(directory: &Path) -> anyhow::Result<VolumeTerms> {
    let read = durable::open(&directory.join(CAME)).and_then(|file| {
        let mut text = String::new();
        file.take(CAME_BYTES_MAX).read_to_string(&mut text).map(|_| text)
    });
    let text = match read {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(VolumeTerms::new()),
        read => read?,
    };
    let body = checked_text::body(&text)?;
    let pairs = body.lines().skip(1).map(|line| line.split_once(' ').context("it has a line without a term"));
    pairs.map(|pair| pair.map(|(name, term)| (name.to_owned(), term.to_owned()))).collect()
}

/// The same as text, with a term that begins for each of `begin`.
pub(super) fn text_of_came(mut terms: VolumeTerms, begin: impl Iterator<Item = String>) -> String {
    terms.extend(begin.map(|volume| (volume, new())));
    let lines: String = terms.iter().map(|(volume, term)| format!("{volume} {term}\n")).collect();
    let text = format!("farshore came 1\n{lines}");
    format!("{text}checksum {:08x}\n", crc32c::crc32c(text.as_bytes()))
}

fn new() -> String {
    format!("{:016x}", entropy())
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    durable::open(path)?.take(BYTES_MAX).read_to_string(&mut text)?;
    match text.trim() {
        "" => Err(ErrorKind::InvalidData.into()),
        term => Ok(term.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: P7
    #[test]
    fn a_volume_that_came_is_in_a_term_of_its_own() {
        let state = tempfile::tempdir().expect("a directory");
        let directory = state.path().join(GROUPS).join("db");
        std::fs::create_dir_all(&directory).expect("made");
        let known = || KnownTerms::read(state.path(), ["db"].into_iter());
        let group = known().of("db");
        assert_eq!(known().of_volume("db", "log"), group);
        let comes = || {
            let before = came(&directory).expect("sound");
            let text = text_of_came(before, ["log".to_owned()].into_iter());
            std::fs::write(directory.join(CAME), text).expect("written");
            known().of_volume("db", "log")
        };
        let (first, second) = (comes(), comes());
        assert!(first.starts_with(&group) && first != group && second != first, "{first} {second}");
        assert_eq!((known().of_volume("db", "log"), known().of_volume("db", "data")), (second, group.clone()));
        let may_have_come =
            || ["log", "data"].map(|volume| Terms::new(state.path(), known()).may_have_come("db", volume));
        assert_eq!(may_have_come(), [true, false]);
        std::fs::write(directory.join(CAME), "log 7\n").expect("written");
        assert_eq!(may_have_come(), [true, true], "nobody knows");
        assert_ne!(known().of_volume("db", "log"), group, "it is not known any more what came");
    }

    #[tokio::test]
    async fn a_term_outlives_the_daemon_and_never_comes_back() {
        let state = tempfile::tempdir().expect("a directory");
        let directory = state.path().join(GROUPS).join("db");
        std::fs::create_dir_all(&directory).expect("made");
        let terms = || Terms::new(state.path(), KnownTerms::read(state.path(), ["db"].into_iter()));
        let first = terms().of("db");
        assert_eq!(terms().of("db"), first, "a restart is no promotion");
        let running = terms();
        running.begin("db").await.expect("recorded");
        let second = running.of("db");
        assert_ne!(second, first);
        assert_eq!(terms().of("db"), second);
        std::fs::write(directory.join(FILE), "").expect("emptied");
        let third = terms().of("db");
        std::fs::remove_file(directory.join(FILE)).expect("it was written anew");
        let fourth = terms().of("db");
        let all = std::collections::BTreeSet::from([first, second, third, fourth]);
        assert_eq!(all.len(), 4, "{all:?}");
    }

    /// A sync filled the state disk with what it keeps, the primary died, and every promotion was refused.
    #[tokio::test]
    async fn a_full_disk_keeps_no_term_from_beginning() {
        let state = tempfile::tempdir().expect("a directory");
        let directory = state.path().join(GROUPS).join("db");
        std::fs::create_dir_all(&directory).expect("made");
        let terms = || Terms::new(state.path(), KnownTerms::read(state.path(), ["db"].into_iter()));
        let running = terms();
        let first = running.of("db");
        // As on a full disk: another file cannot be made.
        std::fs::create_dir(directory.join("term.new")).expect("made");
        assert_eq!(running.begin("db").await, Ok(None), "it is written over");
        let second = running.of("db");
        assert_eq!(terms().of("db"), second, "and on record");
        std::fs::remove_file(directory.join(FILE)).expect("it is there");
        let warning = running.begin("db").await.expect("it begins").expect("it is on record nowhere");
        assert!(warning.contains("term cannot be written: ") && warning.contains("attached again"), "{warning}");
        let third = running.of("db");
        let all = std::collections::BTreeSet::from([first, second, third, terms().of("db"), terms().of("db")]);
        assert_eq!(all.len(), 5, "none comes back: {all:?}");
    }

    #[tokio::test]
    async fn a_term_does_not_begin_while_the_old_one_stays_on_record() {
        let state = tempfile::tempdir().expect("a directory");
        let directory = state.path().join(GROUPS).join("db");
        // It can be neither replaced, nor written over, nor removed.
        std::fs::create_dir_all(directory.join(FILE)).expect("made");
        let terms = Terms::new(state.path(), KnownTerms::read(state.path(), ["db"].into_iter()));
        let before = terms.of("db");
        assert!(terms.begin("db").await.expect_err("it stays").contains("cannot be written"));
        assert_eq!(terms.of("db"), before);
    }

    /// A daemon was restarted while its state disk was full, and said nothing: the term was in memory only, and the next restart ended a
    /// device that was attached meanwhile.
    #[tokio::test]
    async fn a_term_that_a_start_cannot_record_is_told_and_written_when_there_is_room() {
        let state = tempfile::tempdir().expect("a directory");
        let directory = state.path().join(GROUPS).join("db");
        std::fs::create_dir_all(&directory).expect("made");
        // As on a full disk: another file cannot be made.
        std::fs::create_dir(directory.join("term.new")).expect("made");
        let terms = || Terms::new(state.path(), KnownTerms::read(state.path(), ["db", "refused"].into_iter()));
        let running = terms();
        let term = running.of("db");
        let warning = running.unrecorded("db").expect("it is on record nowhere");
        assert!(warning.contains("term cannot be written: ") && warning.contains("attached again"), "{warning}");
        assert_eq!(running.unrecorded("refused"), None, "a group without a directory has no devices");
        running.record_again().await;
        assert!(running.unrecorded("db").is_some(), "there is no room yet");
        std::fs::remove_dir(directory.join("term.new")).expect("it is there");
        running.record_again().await;
        assert_eq!((running.unrecorded("db"), running.of("db")), (None, term.clone()));
        assert_eq!(terms().of("db"), term, "a restart is no end of a device");
    }

    #[tokio::test]
    async fn a_term_that_a_promotion_could_not_record_is_written_when_there_is_room() {
        let state = tempfile::tempdir().expect("a directory");
        let directory = state.path().join(GROUPS).join("db");
        std::fs::create_dir_all(directory.join("term.new")).expect("made");
        let terms = || Terms::new(state.path(), KnownTerms::read(state.path(), ["db"].into_iter()));
        let running = terms();
        let warning = running.begin("db").await.expect("it begins");
        assert!(warning.is_some() && warning == running.unrecorded("db"), "{warning:?}");
        std::fs::remove_dir(directory.join("term.new")).expect("it is there");
        running.record_again().await;
        assert_eq!((running.unrecorded("db"), terms().of("db")), (None, running.of("db")));
    }
}
