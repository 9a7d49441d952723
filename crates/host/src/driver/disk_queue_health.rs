//! Failures of a disk queue, for the log, which gets the file and the error once. What follows the engine says.

use crate::disk::{DiskError, OpName};

/// What has been said of one group's disk queue.
#[derive(Default)]
pub(super) struct DiskQueueHealth {
    told: Vec<OpName>,
}

impl DiskQueueHealth {
    pub fn failed(&mut self, group: &str, error: &DiskError) {
        if self.is_news(error.op) {
            tracing::error!("group {group}: {error}");
        } else {
            tracing::debug!("group {group}: {error}");
        }
    }

    /// Once for writes and once for reads, as something else follows from each.
    fn is_news(&mut self, op: OpName) -> bool {
        let is_news = !self.told.contains(&op);
        if is_news {
            self.told.push(op);
        }
        is_news
    }

    /// Something was written.
    pub fn written(&mut self) {
        self.told.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_once_until_the_disk_has_taken_something() {
        let mut health = DiskQueueHealth::default();
        assert!(health.is_news(OpName::Write) && !health.is_news(OpName::Write));
        assert!(health.is_news(OpName::Read) && !health.is_news(OpName::Read), "what is lost is another matter");
        health.written();
        assert!(health.is_news(OpName::Write) && health.is_news(OpName::Read));
    }
}
