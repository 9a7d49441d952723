//! What an operator sets of a group, and how a node tells its peer: each has its own, and a promotion serves by those of the
//! node that is promoted. So both nodes know which has which.

use core::time::Duration;

use crate::formats::codec::{Reader, Writer};
use crate::limits;
use crate::state::{Mode, Policy};

/// The live-tunable half of a group's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub mode: Mode,
    pub policy: Policy,
    pub wait_limit: Duration,
    pub autosync: bool,
    pub queue_bytes: u64,
    pub queue_items: u64,
    pub start_alone: StartAlone,
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

impl Default for Settings {
    fn default() -> Self {
        Settings {
            mode: Mode::Async,
            policy: Policy::Degrade,
            wait_limit: limits::WAIT_LIMIT_DEFAULT,
            autosync: true,
            queue_bytes: limits::QUEUE_BYTES_DEFAULT,
            queue_items: limits::QUEUE_ITEMS_DEFAULT,
            start_alone: StartAlone::Wait(limits::START_ALONE_DEFAULT),
        }
    }
}

impl Settings {
    pub(crate) fn encode(&self, w: &mut Writer) {
        let ns = |duration: Duration| duration.as_nanos() as u64;
        let (policy, window) = match self.policy {
            Policy::Degrade => (0, 0),
            Policy::Hold(window) => (1, ns(window)),
            Policy::Strict => (2, 0),
        };
        let (start, wait) = match self.start_alone {
            StartAlone::Serve => (0, 0),
            StartAlone::Wait(wait) => (1, ns(wait)),
        };
        w.u8(self.mode.number());
        w.u8(policy);
        w.u64(window);
        w.u64(ns(self.wait_limit));
        w.u8(u8::from(self.autosync));
        w.u8(start);
        w.u64(wait);
        w.u64(self.queue_bytes);
        w.u64(self.queue_items);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Option<Settings> {
        let (mode, policy, window) = (Mode::from_number(r.u8()?)?, r.u8()?, Duration::from_nanos(r.number()?));
        let (wait_limit, autosync) = (Duration::from_nanos(r.number()?), r.u8()? != 0);
        let (start, wait) = (r.u8()?, Duration::from_nanos(r.number()?));
        let policy = match policy {
            0 => Policy::Degrade,
            1 => Policy::Hold(window),
            2 => Policy::Strict,
            _ => return None,
        };
        let start_alone = match start {
            0 => StartAlone::Serve,
            1 => StartAlone::Wait(wait),
            _ => return None,
        };
        let (queue_bytes, queue_items) = (r.number()?, r.number()?);
        Some(Settings { mode, policy, wait_limit, autosync, queue_bytes, queue_items, start_alone })
    }
}
