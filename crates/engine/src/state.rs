//! Mode is what is wanted, state is where the group is, protection is what an acknowledgement means now.

use core::fmt;
use core::time::Duration;

/// What the operator wants of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Sync,
    Nearsync,
    Async,
    Logging,
    /// As `Async`, and a full queue delays no writer either: the order goes, as [`WhenFull::Bitmap`] has it.
    Superasync,
}

impl Mode {
    /// In the order of their numbers.
    pub const ALL: [Mode; 5] = [Mode::Sync, Mode::Nearsync, Mode::Async, Mode::Logging, Mode::Superasync];

    pub fn word(self) -> &'static str {
        match self {
            Mode::Sync => "sync",
            Mode::Nearsync => "nearsync",
            Mode::Async => "async",
            Mode::Logging => "logging",
            Mode::Superasync => "superasync",
        }
    }

    /// An answer to a writer says something of the peer.
    pub fn promises(self) -> bool {
        matches!(self, Mode::Sync | Mode::Nearsync)
    }

    /// Writers never wait for the peer, and what they wrote follows.
    pub fn follows_behind(self) -> bool {
        matches!(self, Mode::Async | Mode::Superasync)
    }

    /// A step of a mode ladder may lead from `other` to this one: it promises less, and nobody waits for the peer any more. In `logging`
    /// nothing is sent, so nobody would see the line get better.
    pub fn is_below(self, other: Mode) -> bool {
        match self {
            Mode::Async => other.promises(),
            Mode::Superasync => other.promises() || other == Mode::Async,
            Mode::Sync | Mode::Nearsync | Mode::Logging => false,
        }
    }

    /// As records and frames name it.
    pub(crate) fn number(self) -> u8 {
        Mode::ALL.iter().position(|mode| *mode == self).unwrap_or(0) as u8
    }

    pub(crate) fn from_number(number: u8) -> Option<Mode> {
        Mode::ALL.get(usize::from(number)).copied()
    }
}

/// What `sync` and `nearsync` do when the peer is unreachable or one write has waited longer than `wait_limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Answer without the peer, as [`Degrade`] says.
    Degrade,
    /// Hold writers for this long (the peer window), then degrade.
    Hold(Duration),
    /// Writers wait, then fail: the outcome is unknown, the region stays dirty.
    Strict,
}

/// What `sync` and `nearsync` make of their order once writers are answered without the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Degrade {
    /// The queue keeps it, as in `async`: what was written meanwhile follows in order, without a resync.
    Queue,
    /// It is given up: regions are dirty, and a resync follows.
    Logging,
}

impl Degrade {
    pub const ALL: [Degrade; 2] = [Degrade::Queue, Degrade::Logging];

    pub fn word(self) -> &'static str {
        match self {
            Degrade::Queue => "queue",
            Degrade::Logging => "logging",
        }
    }

    /// As frames name it.
    pub(crate) fn number(self) -> u8 {
        Degrade::ALL.iter().position(|degrade| *degrade == self).unwrap_or(0) as u8
    }

    pub(crate) fn from_number(number: u8) -> Option<Degrade> {
        Degrade::ALL.get(usize::from(number)).copied()
    }
}

/// What becomes of a write that finds the queue full, memory and disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The writer waits for room; [`Settings::wait_limit`](crate::Settings) says how long.
    Block,
    /// The order is given up at once, and regions are dirty: no writer waits.
    Bitmap,
}

impl WhenFull {
    pub const ALL: [WhenFull; 2] = [WhenFull::Block, WhenFull::Bitmap];

    pub fn word(self) -> &'static str {
        match self {
            WhenFull::Block => "block",
            WhenFull::Bitmap => "bitmap",
        }
    }

    /// As frames name it.
    pub(crate) fn number(self) -> u8 {
        u8::from(self == WhenFull::Bitmap)
    }

    pub(crate) fn from_number(number: u8) -> Option<WhenFull> {
        WhenFull::ALL.get(usize::from(number)).copied()
    }
}

/// What becomes of a write that is overwritten before it was sent (rule 20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// It is left out, where nobody waits for the peer to have it.
    Auto,
    /// Each write is sent.
    Never,
}

impl Fold {
    pub const ALL: [Fold; 2] = [Fold::Auto, Fold::Never];

    pub fn word(self) -> &'static str {
        match self {
            Fold::Auto => "auto",
            Fold::Never => "never",
        }
    }

    /// As frames name it.
    pub(crate) fn number(self) -> u8 {
        u8::from(self == Fold::Never)
    }

    pub(crate) fn from_number(number: u8) -> Option<Fold> {
        Fold::ALL.get(usize::from(number)).copied()
    }
}

/// What becomes of a fork in which one node was promoted with force and the other one only went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterForcedFailover {
    /// Nothing, before an operator says whose content counts.
    Ask,
    /// The node that was promoted is kept, as if its operator had said so.
    KeepPromoted,
}

impl AfterForcedFailover {
    pub const ALL: [AfterForcedFailover; 2] = [AfterForcedFailover::Ask, AfterForcedFailover::KeepPromoted];

    pub fn word(self) -> &'static str {
        match self {
            AfterForcedFailover::Ask => "ask",
            AfterForcedFailover::KeepPromoted => "keep-promoted",
        }
    }

    /// As frames name it.
    pub(crate) fn number(self) -> u8 {
        u8::from(self == AfterForcedFailover::KeepPromoted)
    }

    pub(crate) fn from_number(number: u8) -> Option<AfterForcedFailover> {
        AfterForcedFailover::ALL.get(usize::from(number)).copied()
    }
}

/// Why apply stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The secondary's volume has no space.
    PeerFull,
    /// The secondary has no space for what it would overwrite.
    HistoryFull,
    /// All of a sync over a fork is written, and the delta of what it overwrote cannot be saved.
    DeltaUnsaved,
}

impl Pause {
    pub fn words(self) -> &'static str {
        match self {
            Pause::PeerFull => "the secondary has no space for replicated writes",
            Pause::HistoryFull => {
                "history full: the secondary has no space to keep what the sync overwrites; give its undo store, or its state \
                 directory, more space, or give the rollback point up there ('farshore mark list GROUP', 'farshore mark drop GROUP NAME')"
            }
            Pause::DeltaUnsaved => {
                "delta unsaved: all of the sync is written, and the secondary cannot save the delta of what it had of its own before; \
                 'farshore status GROUP' there says why, and what to do"
            }
        }
    }
}

/// What broke for good until the group is started anew: by a reset, or with the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    VolumeFlush,
    VolumeApply,
    VolumeRead,
    Journal,
    Superblock,
    Bits,
    Marks,
    VolumeShrank,
    Device,
    Undo,
    Start,
}

impl Broken {
    pub fn words(self) -> &'static str {
        match self {
            Broken::VolumeFlush => {
                "a volume's flush failed: what it acknowledged may be lost, repair the device before 'farshore reset GROUP'"
            }
            Broken::VolumeApply => "a volume refused a replicated write",
            Broken::VolumeRead => "a volume could not be read",
            Broken::Journal => "the journal could not be written or read",
            Broken::Bits => "the group's dirty regions or its activity log could not be written or read",
            Broken::Marks => "the group's marks are of another version",
            Broken::Undo => "the undo store could not be written or read",
            Broken::Superblock => "the group's superblock could not be written or read",
            Broken::VolumeShrank => "a volume is smaller than it was",
            Broken::Device => "its devices or its files could not be taken up",
            Broken::Start => "the group's state could not be recovered",
        }
    }
}

/// Where a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Only dirty bits are set.
    Logging,
    /// Link down, the queue keeps its order.
    Queuing,
    /// Dirty regions travel: by snapshots, each a consistent image of its own, or in the stream, with one at the end.
    Syncing,
    /// Ordered, but the mode's promise does not hold yet.
    CatchingUp,
    /// The mode's promise holds.
    Replicating,
    /// Link down, writers wait for the peer (hold, strict).
    Holding,
    Paused(Pause),
    Failed(Broken),
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            State::Logging => "logging",
            State::Queuing => "queuing",
            State::Syncing => "syncing",
            State::CatchingUp => "catching-up",
            State::Replicating => "replicating",
            State::Holding => "holding",
            State::Paused(_) => "paused",
            State::Failed(_) => "failed",
        }
    }

    /// Every word a state is shown with, for `wait --for`.
    pub const WORDS: [&'static str; 8] =
        ["logging", "queuing", "syncing", "catching-up", "replicating", "holding", "paused", "failed"];

    pub(crate) const KINDS: usize = 8;

    pub(crate) fn kind(self) -> usize {
        match self {
            State::Logging => 0,
            State::Queuing => 1,
            State::Syncing => 2,
            State::CatchingUp => 3,
            State::Replicating => 4,
            State::Holding => 5,
            State::Paused(_) => 6,
            State::Failed(_) => 7,
        }
    }

    /// From the number that travels in a tick.
    pub(crate) fn from_kind(kind: u8) -> Option<State> {
        Some(match kind {
            0 => State::Logging,
            1 => State::Queuing,
            2 => State::Syncing,
            3 => State::CatchingUp,
            4 => State::Replicating,
            5 => State::Holding,
            6 => State::Paused(Pause::PeerFull),
            7 => State::Failed(Broken::Start),
            _ => return None,
        })
    }

    /// Whether something is under way to the peer, or waits to be: a stream of writes, or a snapshot.
    pub fn sends(self) -> bool {
        !matches!(self, State::Logging | State::Failed(_))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The legal edges of a group's state on its primary: `EDGES[from]` lists where it may go, and why.
///
/// | from | to | when |
/// |---|---|---|
/// | logging | syncing | the link is up and a sync begins |
/// | logging | queuing | a start goes on from the log of the queue |
/// | logging | failed | a store broke |
/// | queuing | catching-up | the link is back, the queue continues |
/// | queuing | logging | the queue is full, the operator, or the peer cannot continue |
/// | syncing | catching-up | the secondary applied the end of the sync in the stream (from snapshot to snapshot it stays syncing) |
/// | syncing | logging | link lost, operator, stalled |
/// | catching-up | replicating | the mode's promise holds |
/// | catching-up | queuing, holding, logging | link lost (async, degrade to the queue; hold/strict; degrade to logging) |
/// | replicating | catching-up | the mode changed; a writer waited too long and is answered without the peer, from the queue |
/// | replicating | queuing, holding, logging | as from catching-up |
/// | holding | catching-up | the link is back in time |
/// | holding | logging | the peer window ended |
/// | holding | queuing | the mode became async; the peer window ended, and the queue keeps the order |
/// | syncing, catching-up, replicating | paused | the secondary has no space |
/// | paused | syncing, catching-up, logging, queuing, holding | it has again; link lost |
/// | any | failed | a store broke |
/// | failed | logging | an operator reset the group: it starts anew |
const EDGES: [&[usize]; State::KINDS] = [
    &[1, 2, 7],
    &[0, 3, 7],
    &[0, 3, 6, 7],
    &[0, 1, 4, 5, 6, 7],
    &[0, 1, 3, 5, 6, 7],
    &[0, 1, 3, 7],
    &[0, 1, 2, 3, 5, 7],
    &[0],
];

/// Every legal edge, by the words of its ends.
pub fn edges() -> impl Iterator<Item = (&'static str, &'static str)> {
    let from = EDGES.iter().enumerate();
    from.flat_map(|(from, to)| to.iter().map(move |to| (State::WORDS[from], State::WORDS[*to])))
}

/// Whether the edge is in the table. Staying is no edge.
pub fn legal(from: State, to: State) -> bool {
    EDGES[from.kind()].contains(&to.kind())
}

/// What speaks against the copy being what the records take it for. Both nodes keep it on record, so that a promotion changes nothing of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyDoubts {
    /// An operator said that both copies are equal, and no full verify or full sync has ended since.
    pub assumed_equal: bool,
    /// A verify found blocks that differ, and they are not known to be repaired.
    pub differs: bool,
}

impl CopyDoubts {
    pub fn any(self) -> bool {
        self.assumed_equal || self.differs
    }

    /// What either says.
    pub(crate) fn and(self, other: CopyDoubts) -> CopyDoubts {
        CopyDoubts { assumed_equal: self.assumed_equal || other.assumed_equal, differs: self.differs || other.differs }
    }
}

/// What an acknowledgement means now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Durable here and in the secondary's journal.
    BothDurable,
    /// Complete here and in the secondary's memory.
    BothReceived,
    /// Complete here and placed in the queue.
    Queued,
    /// Complete here, its region dirty.
    LocalOnly,
    /// Not answered until the peer is back.
    Held,
    /// This node does not serve the group.
    None,
}

impl Protection {
    pub fn word(self) -> &'static str {
        match self {
            Protection::BothDurable => "both-durable",
            Protection::BothReceived => "both-received",
            Protection::Queued => "queued",
            Protection::LocalOnly => "local-only",
            Protection::Held => "held",
            Protection::None => "none",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_is_reachable_from_everywhere_and_left_by_a_new_start_alone() {
        assert_eq!(EDGES[7], [0]);
        for (from, edges) in EDGES.iter().enumerate() {
            assert_eq!(edges.contains(&7), from != 7);
            assert!(!edges.contains(&from), "staying is no edge");
        }
    }

    #[test]
    fn words_match_their_states() {
        for (word, state) in State::WORDS.iter().zip([
            State::Logging,
            State::Queuing,
            State::Syncing,
            State::CatchingUp,
            State::Replicating,
            State::Holding,
            State::Paused(Pause::PeerFull),
            State::Failed(Broken::Start),
        ]) {
            assert_eq!(*word, state.word());
            assert_eq!(State::WORDS[state.kind()], *word);
        }
    }
}
