//! Who may go on. A handler changes its own part and says here what may have come true by that; the group looks at each once the
//! input is handled, in one loop (`group/wakes.rs`). So nobody goes on in the midst of somebody else's change.

use alloc::collections::VecDeque;

use crate::ids::VolumeId;
use crate::injected_fault::{Fault, injected};

/// What may have come true for those who wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// This write is in no line any more: it goes on from the stage it is in.
    Write(u32),
    /// A range of this volume was given back.
    Range(VolumeId),
    /// The queue, or this node's memory, has room for writers.
    Room,
    /// The activity log or the stored bits cover what waits for that, or may be asked to.
    Covered,
    /// The mode's promise to writers can be taken up.
    Promise,
    /// A writer has begun to wait: how long may it?
    Waits,
    /// Something was seen of the line: the mode ladder may step.
    Ladder,
    /// Records that have landed may be written to the volumes.
    Apply,
    /// What is on record now may decide otherwise about a peer with whom nothing is under way.
    Meet,
}

/// In the order in which they were said, each once.
#[derive(Debug, Default)]
pub(crate) struct Wakes(VecDeque<Wake>);

impl Wakes {
    pub fn push(&mut self, wake: Wake) {
        if injected(Fault::WakeForgotten) && !self.0.is_empty() {
            return;
        }
        // A write stands in one line at most: it is said once anyway.
        if matches!(wake, Wake::Write(_)) || !self.0.contains(&wake) {
            self.0.push_back(wake);
        }
    }

    pub fn next(&mut self) -> Option<Wake> {
        self.0.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
