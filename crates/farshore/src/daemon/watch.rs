//! What a start would refuse is looked for while the daemon runs too: a secret or a state directory that others can use by now.

use std::cell::RefCell;
use std::sync::Arc;

use crate::config::{Config, NodeName};

/// The problems that were found last.
#[derive(Default)]
pub(super) struct Watch(RefCell<Vec<String>>);

impl Watch {
    /// Looks again. A problem is logged when it comes up, and stands in status until it is gone.
    pub async fn look(&self, config: &Arc<Config>, node: &NodeName) {
        let (config, node) = (config.clone(), node.clone());
        // Of a disk that hangs nobody gets an answer, and the control socket must not wait for it.
        let looked = tokio::task::spawn_blocking(move || config.check_believed(&node)).await;
        let found: Vec<String> = looked.unwrap_or_default().into_iter().map(|problem| problem.message).collect();
        let before = self.0.replace(found);
        self.0
            .borrow()
            .iter()
            .filter(|problem| !before.contains(problem))
            .for_each(|problem| tracing::error!("{problem}"));
    }

    pub fn warnings(&self) -> Vec<String> {
        self.0.borrow().clone()
    }
}
