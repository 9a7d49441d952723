//! Which of its terms as primary a node is in. A term begins with each promotion and never comes back, so whoever keeps requests for an
//! export that went away knows whether the export that is there now is the same one.

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
/// Of a node that was never promoted.
const FIRST: &str = "0";
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
            let path = groups.join(name).join(FILE);
            let term = read(&path).unwrap_or_else(|error| {
                tracing::warn!(
                    "{} cannot be read: {error}; devices attached before have to be detached",
                    path.display()
                );
                new()
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
        let (path, term) = (self.groups.join(group).join(FILE), new());
        let content = term.clone();
        let written = tokio::task::spawn_blocking(move || {
            durable::replace(&path, content.as_bytes())
                .map_err(|error| format!("{} cannot be written: {error}", path.display()))
        });
        written.await.map_err(|error| error.to_string())??;
        self.known.borrow_mut().insert(group.to_owned(), term);
        Ok(())
    }
}

fn new() -> String {
    format!("{:016x}", entropy())
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    match durable::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(FIRST.to_owned()),
        file => file?.take(BYTES_MAX).read_to_string(&mut text)?,
    };
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
        let terms = Terms::read(state.path(), ["db"].into_iter());
        assert_eq!(terms.of("db"), FIRST);
        terms.begin("db").await.expect("recorded");
        let second = terms.of("db");
        assert_ne!(second, FIRST);
        assert_eq!(Terms::read(state.path(), ["db"].into_iter()).of("db"), second);
        std::fs::write(directory.join(FILE), "").expect("emptied");
        let after = Terms::read(state.path(), ["db"].into_iter()).of("db");
        assert!(after != second && after != FIRST && !after.is_empty());
    }

    #[tokio::test]
    async fn a_term_that_cannot_be_recorded_does_not_begin() {
        let state = tempfile::tempdir().expect("a directory");
        let terms = Terms::read(state.path(), ["db"].into_iter());
        assert!(terms.begin("db").await.expect_err("no directory").contains("cannot be written"));
        assert_eq!(terms.of("db"), FIRST);
    }
}
