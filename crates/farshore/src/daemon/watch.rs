//! What a start would refuse is looked for while the daemon runs too: a secret or a state directory that others can use by now, or a
//! state directory that is not there any more.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use host::disk::at_rest::{AtRest, at_rest};
use settings::{Config, ConfiguredNode, NodeName};

use crate::api::StateDirectoryView;

/// What is looked at, and the problems that were found last.
pub(super) struct StateWatch {
    state: WatchedDirectory,
    /// Of the directories with customers' data the least protected one.
    exposed: (PathBuf, AtRest),
    problems: RefCell<Vec<String>>,
}

/// A directory, by its path and what the path led to at the start.
#[derive(Clone)]
struct WatchedDirectory {
    path: PathBuf,
    held: Option<(u64, u64)>,
}

impl WatchedDirectory {
    fn is_another(&self) -> bool {
        match std::fs::metadata(&self.path) {
            Ok(found) => self.held.is_some_and(|held| held != (found.dev(), found.ino())),
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    /// A daemon that has lost its state directory writes what nobody will find, and the next one takes the node for new.
    fn problem(&self) -> Option<String> {
        let path = self.path.display();
        self.is_another().then(|| {
            format!(
                "state: {path} is not the directory any more in which this daemon keeps its state: it was moved, unmounted or mounted \
                 over; bring it back before the daemon is started again"
            )
        })
    }
}

/// Of two directories the one that is less protected counts.
fn exposure(at_rest: &AtRest) -> u8 {
    match at_rest {
        AtRest::Encrypted(_) => 0,
        AtRest::Unknown(_) => 1,
        AtRest::Plain(_) => 2,
    }
}

impl StateWatch {
    /// `here`: the node that this daemon runs, which holds its state directory.
    pub fn new(here: &ConfiguredNode) -> StateWatch {
        let state = &here.state;
        let held = std::fs::metadata(state).ok().map(|found| (found.dev(), found.ino()));
        let directories = [Some(state), here.queues.as_ref()].into_iter().flatten();
        let looked_at = directories.map(|directory| (directory.clone(), at_rest(directory)));
        let exposed = looked_at.max_by_key(|(_, at_rest)| exposure(at_rest)).expect("one directory at least");
        StateWatch { state: WatchedDirectory { path: state.to_owned(), held }, exposed, problems: RefCell::default() }
    }

    /// Where customers' data lies besides volumes, as it was at the start.
    pub fn directory(&self) -> StateDirectoryView {
        let (encrypted, lies) = match &self.exposed.1 {
            AtRest::Encrypted(by) => (Some(true), by),
            AtRest::Plain(lies) => (Some(false), lies),
            AtRest::Unknown(why) => (None, why),
        };
        StateDirectoryView { path: self.exposed.0.display().to_string(), encrypted, lies: lies.clone() }
    }

    /// Looks again. A problem is logged when it comes up, and stands in status until it is gone.
    pub async fn look(&self, config: &Arc<Config>, node: &NodeName) {
        let (config, node, state) = (config.clone(), node.clone(), self.state.clone());
        let look = move || {
            let found = config.check_believed(&node).into_iter().map(|problem| problem.message);
            state.problem().into_iter().chain(found).collect()
        };
        // Of a disk that hangs nobody gets an answer, and the control socket must not wait for it.
        let found: Vec<String> = tokio::task::spawn_blocking(look).await.unwrap_or_default();
        let before = self.problems.replace(found);
        self.problems
            .borrow()
            .iter()
            .filter(|problem| !before.contains(problem))
            .for_each(|problem| tracing::error!("{problem}"));
    }

    pub fn warnings(&self) -> Vec<String> {
        self.problems.borrow().clone()
    }
}
