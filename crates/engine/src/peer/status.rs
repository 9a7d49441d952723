//! What is told and shown of the peer: how far it is behind, what is under way to it.

use crate::common::GroupCommon;
use crate::formats::identity::Role;
use crate::ids::Seq;
use crate::peer::Peer;
use crate::peer::logging::note_fill;
use crate::state::{Mode, Protection, State};
use crate::status::{QueuePeaks, SyncStatus};
use crate::time::{Now, Wall};

use core::time::Duration;

/// How far the copy is behind, as the primary sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyLag {
    pub lag_bytes: u64,
    /// Numbers that are not durable there; `None`: regions are behind, and have none.
    pub lag_items: Option<u64>,
    /// `None`: unknown, nothing was applied yet.
    pub lag: Option<Duration>,
    /// The last write known to be applied, and its time.
    pub applied: Option<(Seq, Wall)>,
}

impl Peer {
    pub fn sync_status(&self) -> Option<SyncStatus> {
        let before = self.catch_up.sent_bytes();
        if let Some(snapshot) = self.outbox.sending.snapshot() {
            let (rates, (done_bytes, total_bytes, payload_bytes)) = (self.catch_up.rates(), snapshot.progress());
            return Some(SyncStatus {
                done_bytes,
                total_bytes,
                sent_bytes: before + payload_bytes,
                snapshot: Some(self.catch_up.snapshots()),
                dirtied_bytes_per_s: rates.map(|r| r.dirtied),
                carried_bytes_per_s: rates.map(|r| r.carried),
                missing_bytes_per_s: self.catch_up.missing(),
            });
        }
        self.outbox.stream()?.sync_progress().map(|(done_bytes, total_bytes, sent_bytes)| SyncStatus {
            done_bytes,
            total_bytes,
            sent_bytes: before + sent_bytes,
            snapshot: None,
            dirtied_bytes_per_s: None,
            carried_bytes_per_s: None,
            missing_bytes_per_s: None,
        })
    }

    // ---- the primary's half ----------------------------------------------------------------------------------------

    pub fn behind(&self, common: &GroupCommon, now: Now) -> CopyLag {
        let in_order = self.outbox.stream().filter(|stream| !stream.has_pass());
        let (wall, lag) = age(self, now);
        let known = lag.is_some();
        CopyLag {
            lag_bytes: in_order.map_or_else(|| common.volumes.dirty_bytes(), |stream| stream.queue().bytes()),
            lag_items: in_order.map(|stream| stream.queue().len()),
            lag,
            applied: self.reached.seq().filter(|_| known).map(|seq| (seq, wall)),
        }
    }

    pub fn protection(&self, common: &GroupCommon) -> Protection {
        if !common.serves() {
            return Protection::None;
        }
        match (self.state(common), common.settings.mode) {
            (State::Replicating, Mode::Sync) => Protection::BothDurable,
            (State::Replicating, Mode::Nearsync) => Protection::BothReceived,
            (State::Holding, _) => Protection::Held,
            (State::Failed(_), _) => Protection::None,
            // What the queue brings over is of no use alone: there is no consistent copy before the sync ends.
            (State::Syncing | State::Paused(_), _) if self.outbox.syncs() => Protection::LocalOnly,
            _ if self.outbox.streams() => Protection::Queued,
            _ => Protection::LocalOnly,
        }
    }
}

/// The time of what the peer can present, and how old that is; `None`: unknown.
fn age(peer: &Peer, now: Now) -> (Wall, Option<Duration>) {
    let in_step = peer.outbox.stream().is_some_and(|stream| !stream.has_pass() && stream.is_applied());
    let wall = if in_step { now.wall } else { peer.reached.wall() };
    let by_wall = Duration::from_nanos(now.wall.0.saturating_sub(wall.0));
    // A wall clock that was set back would have it younger than it is.
    let lag = if in_step { by_wall } else { by_wall.max(now.mono.since(peer.reached.since())) };
    let known = wall != Wall(0) && peer.greeting.has_image();
    (wall, known.then_some(lag))
}

/// The age of the oldest write that is not durable at the peer; zero: there is none. `None`: nothing goes in its order, and what is dirty has
/// no age.
pub(crate) fn oldest_unconfirmed(peer: &Peer, now: Now) -> Option<Duration> {
    let queue = peer.outbox.stream().filter(|stream| !stream.has_pass())?.queue();
    let by_wall = queue.oldest().map(|wall| Duration::from_nanos(now.wall.0.saturating_sub(wall.0)));
    // A wall clock that was set back would have it younger than it is.
    let on_its_way = queue.oldest_sent().map(|since| now.mono.since(since));
    Some(by_wall.max(on_its_way).unwrap_or_default())
}

// ---- peaks -----------------------------------------------------------------------------------------------------------

/// The copy is about to move: as old as now it was at most since it moved last.
pub(super) fn note_age(peer: &mut Peer, now: Now) {
    let (_, lag) = age(peer, now);
    peer.reached.saw(lag);
}

/// The most since the node started, and since somebody had that forgotten.
pub(crate) fn peaks(peer: &Peer, common: &GroupCommon, now: Now) -> (QueuePeaks, QueuePeaks) {
    let (_, record) = peer.outbox.queued();
    // On a secondary what its peer held when it was primary last has no age.
    let (_, lag) = if common.role() == Role::Primary { age(peer, now) } else { (Wall(0), None) };
    let (oldest, late_oldest) = peer.reached.oldest();
    let peaks = QueuePeaks { lag: oldest.max(lag), ..record.peaks };
    (peaks, QueuePeaks { lag: late_oldest.max(lag), ..record.late_peaks })
}

/// The peaks that people look at begin with what is there now.
pub(crate) fn forget_peaks(peer: &mut Peer) {
    peer.outbox.forget_peaks();
    note_fill(&mut peer.outbox);
    peer.reached.forget_peak();
}
