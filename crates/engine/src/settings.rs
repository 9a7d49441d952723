//! What an operator sets of a group, and how a node reports to its peer: each has its own, and a promotion serves by those of the
//! node that is promoted. So both nodes know which has which.

use core::time::Duration;

use crate::injected_fault::{Fault, injected};
use crate::limits;
use crate::state::{AfterForcedFailover, Degrade, Fold, Mode, Policy, WhenFull};

/// The live-tunable half of a group's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub mode: Mode,
    pub policy: Policy,
    /// What degrading leaves of the order, at once or behind a peer window.
    pub degrade: Degrade,
    pub wait_limit: Duration,
    /// What the group acts as while its line is slow.
    pub fallback: Option<Fallback>,
    pub autosync: bool,
    pub queue_bytes: u64,
    pub queue_items: u64,
    pub when_full: WhenFull,
    /// Writers are slowed down between two marks; `None`: a full queue stops them.
    pub pace: Option<QueuePace>,
    /// What becomes of writes that are overwritten before they were sent.
    pub fold: Fold,
    /// Of a link that several groups send over: how much of it this one gets, beside what others get by theirs; 1 to 100.
    pub link_weight: u8,
    pub start_alone: StartAlone,
    /// Counts where both nodes say the same.
    pub after_forced_failover: AfterForcedFailover,
}

/// Two marks of the queue's fill, percent: from the first on writers are slowed down, at the second they come to the link's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePace {
    from: u8,
    to: u8,
}

impl QueuePace {
    /// `None`: the first is not below the second, or that is above 100.
    pub fn new(from: u8, to: u8) -> Option<QueuePace> {
        (from < to && to <= 100).then_some(QueuePace { from, to })
    }

    pub fn from(self) -> u8 {
        self.from
    }

    pub fn to(self) -> u8 {
        self.to
    }
}

/// The lower rung of a group's mode ladder, and when it is taken (docs/book/decisions/0074-mode-ladder.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Below the mode that is set.
    pub mode: Mode,
    /// The line is slow while writers wait longer than this for the peer.
    pub latency: Duration,
    /// On the average of so much time in which anyone waited.
    pub after: Duration,
    /// It is slow, too, while the oldest write that the peer lacks is as old as this; `None`: as old as it may be.
    pub lag: Option<Duration>,
    /// The line has to be good for so long before the mode that is set counts again.
    pub return_after: Duration,
}

/// What a primary does that starts after a power loss and does not meet its peer, which may have confirmed writes that
/// are lost here (rule 24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAlone {
    /// Serve at once: what only the peer has is asked about when it comes back.
    Serve,
    /// Serve after this long.
    Wait(Duration),
}

impl Settings {
    /// What becomes of a write that finds the queue full, as mode and setting have it together.
    pub fn when_full(&self) -> WhenFull {
        if self.mode == Mode::Superasync { WhenFull::Bitmap } else { self.when_full }
    }

    /// How long a writer waits for the disk of this node's own queue at most.
    pub(crate) fn own_disk_limit(&self, holds_nobody_up: bool) -> Duration {
        let is_short = holds_nobody_up && !injected(Fault::OwnDiskWaitedFor);
        if is_short { limits::OWN_DISK_PATIENCE.min(self.wait_limit) } else { self.wait_limit }
    }

    /// The ladder, if these settings have one: `strict` answers nobody without the peer, and a step goes down.
    pub fn ladder(&self) -> Option<Fallback> {
        self.fallback.filter(|fallback| self.policy != Policy::Strict && fallback.mode.is_below(self.mode))
    }

    /// Writers who wait for the peer are answered without it in the end, and the queue keeps the order then.
    pub fn keeps_order_alone(&self) -> bool {
        self.mode.promises() && self.policy != Policy::Strict && self.degrade == Degrade::Queue
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            mode: Mode::Async,
            policy: Policy::Degrade,
            degrade: Degrade::Queue,
            wait_limit: limits::WAIT_LIMIT_DEFAULT,
            fallback: None,
            autosync: true,
            queue_bytes: limits::QUEUE_BYTES_DEFAULT,
            queue_items: limits::QUEUE_ITEMS_DEFAULT,
            when_full: WhenFull::Block,
            pace: None,
            fold: Fold::Auto,
            link_weight: limits::LINK_WEIGHT_DEFAULT,
            start_alone: StartAlone::Wait(limits::START_ALONE_DEFAULT),
            after_forced_failover: AfterForcedFailover::Ask,
        }
    }
}
