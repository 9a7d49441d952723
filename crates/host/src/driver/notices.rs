//! What the data thread tells whoever keeps a log of events: a bounded channel, never waited for.
//!
//! A notice that finds no room is lost and counted. Nothing on the data thread depends on who listens.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use engine::{Event, GroupId, NodeId};
use tokio::sync::mpsc;

/// Notices that may wait: a start of a thousand groups makes a few for each of them at once.
const WAITING_MAX: usize = 16_384;

/// Something that happened, and when.
#[derive(Clone, Debug)]
pub struct DriverNotice {
    /// By this node's wall clock, milliseconds since 1970.
    pub unix_ms: u64,
    pub at: Instant,
    pub news: DriverNews,
}

#[derive(Clone, Debug)]
pub enum DriverNews {
    /// An event that the log tells, and what it says, without the group's name.
    Group {
        group: GroupId,
        event: Event,
        text: String,
    },
    /// Every connection is told of, so that times are right; one of too many is not to be shown (`is_shown`).
    LinkUp {
        peer: NodeId,
        address: SocketAddr,
        is_shown: bool,
    },
    LinkDown {
        peer: NodeId,
        reason: String,
        is_shown: bool,
    },
    /// So many connections came up that were not shown one by one. The one that is up, if one is, is shown from here on.
    LinkUnsteady {
        peer: NodeId,
        connections: u32,
        up: Option<SocketAddr>,
    },
}

/// The data thread's end.
#[derive(Clone)]
pub struct NoticeSender {
    notices: mpsc::Sender<DriverNotice>,
    lost: Arc<AtomicU64>,
}

/// The end of who listens.
pub struct NoticeReceiver {
    notices: mpsc::Receiver<DriverNotice>,
    lost: Arc<AtomicU64>,
}

/// Both ends.
pub fn notices() -> (NoticeSender, NoticeReceiver) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let lost = Arc::new(AtomicU64::new(0));
    (NoticeSender { notices: sender, lost: lost.clone() }, NoticeReceiver { notices: receiver, lost })
}

impl NoticeSender {
    pub(super) fn tell(&self, news: DriverNews) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        // With nobody left to listen nothing is lost either.
        if let Err(mpsc::error::TrySendError::Full(_)) =
            self.notices.try_send(DriverNotice { unix_ms, at: Instant::now(), news })
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl NoticeReceiver {
    /// The next notice; `None` once the data thread is gone and all it told was taken.
    pub async fn next(&mut self) -> Option<DriverNotice> {
        self.notices.recv().await
    }

    /// The next one that is there already.
    pub fn next_at_hand(&mut self) -> Option<DriverNotice> {
        self.notices.try_recv().ok()
    }

    /// How many found no room since this was last asked.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted_and_nobody_waits() {
        let (sender, mut receiver) = notices();
        for connections in 0..WAITING_MAX as u32 + 3 {
            sender.tell(DriverNews::LinkUnsteady { peer: NodeId(1), connections, up: None });
        }
        assert_eq!((receiver.take_lost(), receiver.take_lost()), (3, 0));
        assert!(receiver.next_at_hand().is_some());
        drop(receiver);
        sender.tell(DriverNews::LinkUnsteady { peer: NodeId(1), connections: 0, up: None });
    }
}
