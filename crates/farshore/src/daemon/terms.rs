//! Which of its terms as primary a node is in. A term begins with each promotion, and with each other content that a start finds; it never
//! comes back. So whoever keeps requests for an export that went away knows whether the export that is there now is the same one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use host::driver::entropy;
use settings::durable;
use tokio::sync::Mutex;

use super::group_directory::GROUPS;

/// In the directory of a group.
const FILE: &str = "term";
const BYTES_MAX: u64 = 64;

/// The terms of all groups of a node, each in a file of its group's directory.
pub(super) struct Terms {
    groups: PathBuf,
    known: RefCell<BTreeMap<String, String>>,
    /// Two promotions do not write one file.
    writing: Mutex<()>,
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
                renew(&directory).unwrap_or_else(|_| new())
            });
            (name.to_owned(), term)
        });
        let known = RefCell::new(known.collect());
        Terms { known, groups, writing: Mutex::new(()) }
    }

    pub fn of(&self, group: &str) -> String {
        self.known.borrow().get(group).cloned().unwrap_or_default()
    }

    /// Has another term begin. To be called while the node is not primary: a device that is attached belongs to the term before.
    ///
    /// # Errors
    /// A sentence: the term cannot be recorded. The old one holds.
    pub async fn begin(&self, group: &str) -> Result<(), String> {
        let _alone = self.writing.lock().await;
        let directory = self.groups.join(group);
        let written = tokio::task::spawn_blocking(move || {
            renew(&directory).map_err(|error| format!("{} cannot be written: {error}", directory.join(FILE).display()))
        });
        let term = written.await.map_err(|error| error.to_string())??;
        self.known.borrow_mut().insert(group.to_owned(), term);
        Ok(())
    }
}

/// Has another term begin, on record in the group's directory; the term.
///
/// # Errors
/// It cannot be recorded. The old one holds.
pub(super) fn renew(directory: &Path) -> io::Result<String> {
    let term = new();
    durable::replace(&directory.join(FILE), term.as_bytes())?;
    Ok(term)
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

    #[tokio::test]
    async fn a_term_that_cannot_be_recorded_does_not_begin() {
        let state = tempfile::tempdir().expect("a directory");
        let terms = Terms::read(state.path(), ["db"].into_iter());
        let before = terms.of("db");
        assert!(terms.begin("db").await.expect_err("no directory").contains("cannot be written"));
        assert_eq!(terms.of("db"), before);
    }
}
