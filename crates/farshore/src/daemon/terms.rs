//! Which of its terms as primary a node is in. A term begins with each promotion, and with each other content that a start finds; it never
//! comes back. So whoever keeps requests for an export that went away knows whether the export that is there now is the same one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use host::driver::entropy;
use rustix::fs::OFlags;
use settings::durable;

use super::group_directory::GROUPS;

/// In the directory of a group.
const FILE: &str = "term";
const BYTES_MAX: u64 = 64;

/// The terms of all groups of a node, each in a file of its group's directory.
pub(super) struct Terms {
    groups: PathBuf,
    known: RefCell<BTreeMap<String, String>>,
}

/// A term that has begun.
#[derive(Debug)]
pub(super) struct BegunTerm {
    term: String,
    /// Why it is on record nowhere, if it is not. Then no other one is either: it holds until the daemon stops, and the next start begins
    /// another.
    unrecorded: Option<io::Error>,
}

impl Terms {
    /// What is on record in the state directory. A term that cannot be read is over.
    pub fn read<'a>(state: &Path, names: impl Iterator<Item = &'a str>) -> Terms {
        let groups = state.join(GROUPS);
        let known = names.map(|name| {
            let directory = groups.join(name);
            let term = read(&directory.join(FILE)).unwrap_or_else(|error| {
                if error.kind() != ErrorKind::NotFound {
                    let path = directory.join(FILE);
                    tracing::warn!(
                        "{} cannot be read: {error}; devices attached before have to be detached",
                        path.display()
                    );
                }
                // A group that is refused has no directory, and serves nothing.
                renew(&directory).map_or_else(|_| new(), |begun| begun.term)
            });
            (name.to_owned(), term)
        });
        let known = RefCell::new(known.collect());
        Terms { known, groups }
    }

    pub fn of(&self, group: &str) -> String {
        self.known.borrow().get(group).cloned().unwrap_or_default()
    }

    /// Has another term begin; a warning where it is not on record. To be called while the node is not primary, as a device that is
    /// attached belongs to the term before; and once at a time for a group.
    ///
    /// # Errors
    /// A sentence: the old term is still on record, and holds.
    pub async fn begin(&self, group: &str) -> Result<Option<String>, String> {
        let directory = self.groups.join(group);
        let path = directory.join(FILE);
        let begun = tokio::task::spawn_blocking(move || renew(&directory)).await.map_err(|error| error.to_string())?;
        let begun = begun.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        self.known.borrow_mut().insert(group.to_owned(), begun.term);
        let warning = begun.unrecorded.map(|error| {
            format!(
                "{} cannot be written: {error}. Make room there; devices of {group} that are attached from now on have to be attached again \
                 after the daemon's next start",
                path.display()
            )
        });
        warning.iter().for_each(|warning| tracing::warn!("{warning}"));
        Ok(warning)
    }
}

/// Has another term begin, on record in the group's directory. A disk that is full keeps no group from its promotion: the old term is
/// written over, and where even that takes room it is removed. What a power loss takes back of that harms nobody: no attached device lives
/// through one.
///
/// # Errors
/// The old one stays on record, and holds.
pub(super) fn renew(directory: &Path) -> io::Result<BegunTerm> {
    let (path, term) = (directory.join(FILE), new());
    let replaced = durable::replace(&path, term.as_bytes());
    let unrecorded = replaced.or_else(|error| write_over(&path, term.as_bytes()).map_err(|_| error)).err();
    if unrecorded.is_some() {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(BegunTerm { term, unrecorded })
}

/// Its few bytes lie in one block, which the disk takes whole or not at all.
fn write_over(path: &Path, content: &[u8]) -> io::Result<()> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    let mut file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    file.write_all(content)?;
    file.set_len(content.len() as u64)?;
    file.sync_all()
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

    #[tokio::test]
    async fn a_term_outlives_the_daemon_and_never_comes_back() {
        let state = tempfile::tempdir().expect("a directory");
        let directory = state.path().join(GROUPS).join("db");
        std::fs::create_dir_all(&directory).expect("made");
        let terms = || Terms::read(state.path(), ["db"].into_iter());
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
        let terms = || Terms::read(state.path(), ["db"].into_iter());
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
        let terms = Terms::read(state.path(), ["db"].into_iter());
        let before = terms.of("db");
        assert!(terms.begin("db").await.expect_err("it stays").contains("cannot be written"));
        assert_eq!(terms.of("db"), before);
    }
}
