//! The pure half of Farshore: it decides, and never performs.
//!
//! A [`Node`] owns this node's half of every group and its links to the peers. It has no clock, socket, file, thread,
//! randomness or hash order inside. The caller (the host's driver, or the simulator) does three things:
//!
//! 1. [`Node::handle`] an [`Input`] with the time it happened;
//! 2. [`Node::poll_output`] until it is empty, performing each [`Output`] in order;
//! 3. call [`Node::handle`] with [`Input::Tick`] no later than [`Node::next_timeout`].
//!
//! Payload never passes through here: a [`Buf`] is an opaque, shared name for bytes that the caller holds.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod common;
mod context;
mod durability;
mod formats;
mod group;
mod ids;
pub mod injected_fault;
pub mod limits;
mod node;
mod payload;
mod peer;
mod primary;
mod records;
pub mod refusal;
mod secondary;
mod settings;
mod shared;
pub mod state;
pub mod status;
mod time;
mod view;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

pub use activity::file_bytes as activity_file_bytes;
pub use bitmap::{Bitmap, file_bytes as bitmap_file_bytes};
pub use formats::{bitmap, cell, delta, identity, journal, marks, other_volumes, queue_log, superblock, undo, wire};
pub use ids::*;
pub use node::Node;
pub use payload::{Buf, Slice, WriteBytes};
pub use records::activity;
pub use refusal::{Refusal, RefusalCode, Retry};
pub use settings::{Fallback, QueuePace, Settings, StartAlone};
pub use shared::coverage;
pub use shared::promotion::{BOTH_PRIMARY, NOT_HERE, NOT_IN_WINDOW, peer_away};
pub use time::{Mono, Now, Timers, Wall};
pub use view::{OpenedView, ViewPart};

use state::State;

/// A store of one group on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Store {
    Volume(GroupId, VolumeId),
    Journal(GroupId),
    /// One [`cell`].
    Superblock(GroupId),
    Bitmap(GroupId),
    /// Which extents were written lately.
    Activity(GroupId),
    /// Named points of the write order.
    Marks(GroupId),
    /// What was overwritten since the rollback point, or before a snapshot could ship it.
    Undo(GroupId),
    /// What was overwritten on a secondary since views of it were opened. It says nothing after a start.
    History(GroupId),
    /// What this node held where it differed from the peer that an operator chose over it. It has no size of its own.
    Delta(GroupId),
    /// What of a primary's queue has no room in memory, which says nothing after a start; or the log of that queue.
    Queue(GroupId),
}

/// What a volume looks like to the engine.
#[derive(Clone, Copy, Debug)]
pub struct VolumeConfig {
    pub size_bytes: u64,
    /// Ranges are widened to this before overlap is decided (rule 3): the device's physical block.
    pub block_bytes: u64,
    /// The fingerprint differs from the one of the last clean stop: written behind our back (P7).
    pub changed_outside: bool,
    /// An operator detached it: there is no device, and nothing is asked of one. Its size is the one that its device had.
    pub is_detached: bool,
}

/// Why a primary sends nothing whose volume was written while its node was stopped.
pub const CHANGED_OUTSIDE: &str = "a volume was written while farshore was stopped, and nothing of that goes to the peer unasked: 'farshore sync \
    GROUP' here sends what differs; to keep the peer's copy, demote this node and promote the peer with --force";

/// One group as this node takes part in it.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    pub id: GroupId,
    /// Identity of cluster and group on disk: a journal of another group is never replayed here.
    pub tag: u64,
    pub peer: NodeId,
    /// The role to start with when no superblock exists yet.
    pub starts_as: identity::Role,
    /// A primary without a superblock opens its export when it has met its peer, or when its operator says so: what it does not know,
    /// the peer may.
    pub meets_peer_first: bool,
    pub volumes: Vec<VolumeConfig>,
    pub settings: Settings,
    pub journal_bytes: u64,
    pub window_bytes: u64,
    pub activity: ActivityConfig,
    /// Size of the undo store.
    pub history_bytes: u64,
    /// Size of [`Store::History`]; 0: there is none, and nobody opens a view of this copy.
    pub view_bytes: u64,
    /// Size of [`Store::Queue`]; 0: there is none.
    pub queue_disk_bytes: u64,
    /// It is a log: whatever the stream carries stands there first, and a start goes on from it.
    pub queue_durable: bool,
    /// What tells the file of [`Store::Queue`] from a copy of it, across boots.
    pub queue_file: u64,
}

/// The shape of the activity log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityConfig {
    /// A power of two, a multiple of a region.
    pub extent_bytes: u64,
    pub extents: u32,
}

impl Default for ActivityConfig {
    fn default() -> Self {
        ActivityConfig { extent_bytes: limits::EXTENT_BYTES, extents: limits::EXTENTS_DEFAULT }
    }
}

#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub node: NodeId,
    pub groups: Vec<GroupConfig>,
    pub link_timeout: Duration,
    /// What all groups together may hold in memory (rule 22).
    pub memory_bytes: u64,
    /// Groups that sync at once as primaries (rule 17).
    pub syncs_at_once: usize,
}

/// A request of a front end, already checked against the volume's size and block.
#[derive(Clone, Debug)]
pub enum Request {
    Write { offset: u64, length: u64, buf: Buf, fua: bool },
    Zero { offset: u64, length: u64, no_hole: bool, fua: bool },
    Flush,
}

/// Why an operation of the host failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoError {
    Io,
    NoSpace,
    /// Content differs from the checksum the engine gave with the read.
    Damaged,
    /// The file would be larger than its file system allows.
    TooLarge,
    /// As many earlier deltas are kept as may be.
    TooManyDeltas,
}

/// What an operation of the host came to.
pub type IoResult = Result<IoDone, IoError>;

/// A successful operation's result.
#[derive(Clone, Debug)]
pub enum IoDone {
    /// Write, flush, zero.
    Done,
    /// A read of payload; `zero` when all its bytes are zero.
    Payload { buf: Buf, zero: bool },
    /// A read of metadata.
    Meta(Vec<u8>),
    /// A read of payload with its CRC-32C; `zero` when all its bytes are zero.
    Summed { buf: Buf, zero: bool, crc: u32 },
    /// A read for its hash.
    Hash([u8; 32]),
    /// The CRC-32C of each part that was written.
    Sums(Vec<u32>),
    /// The range begins with so many bytes of a hole, which reads as zeroes, or of what may be data.
    Run { length: u64, is_hole: bool },
}

/// An operator's command.
#[derive(Clone, Debug)]
pub enum Command {
    Logging,
    /// In full: all of it is compared, and what differs is sent. A peer that never had an image is sent all of it.
    Sync {
        full: bool,
    },
    /// A full sync that compares nothing: the copy is known to differ.
    SendAll,
    /// An update sync that a program orders: where an operator is asked whose content counts, it is no answer, and is refused.
    BringUpToDate,
    /// One volume is set aside: what is written to it is tracked, and not sent. The others go on in their order.
    SetAside {
        volume: VolumeId,
    },
    /// It is part of the order again, by a sync of the group.
    Rejoin {
        volume: VolumeId,
    },
    Set(Settings),
    Demote,
    /// `entropy` makes the new generation's tag.
    Promote {
        force: bool,
        entropy: u64,
    },
    /// As a forced one, but only while a peer window proves that nothing which was acknowledged is missing here (rule 14).
    PromoteInWindow {
        entropy: u64,
    },
    /// As a forced one, for the clients of the peer, but only beside a peer that is heard as the secondary, also when it is put on record
    /// (rule 13).
    PromoteForPeer {
        entropy: u64,
    },
    /// The primary hands over to this node of the group (rule 15). `limit`: for how long its clients may be held.
    Switchover {
        to: NodeId,
        limit: Duration,
        /// Nobody is attached, and nobody is to be before it has ended: the export closes at once.
        closes_export: bool,
        /// Nothing is changed: what it would be refused for now is the answer.
        only_asks: bool,
    },
    /// A fork is resolved: this primary's content counts, over the peer's of the generation with this tag. What the peer holds where
    /// they differ is saved there first, unless it is to be discarded. Waits for the peer to yield.
    Keep {
        over: u64,
        discard: bool,
        /// Nobody typed it: `after_forced_failover` says so on both nodes.
        by_policy: bool,
    },
    /// An order to keep this node's content over the peer's of that generation ends, as the other half of it came to nothing.
    TakeBack {
        over: u64,
    },
    /// The same on the other side: this primary is demoted for the peer of the generation with this tag, which keeps its content.
    Yield {
        to: u64,
        by_policy: bool,
    },
    /// Give the rollback point up: apply goes on without saving what it overwrites. `discard`: also where the sync overwrites a history of
    /// this node's own, of which no delta is saved then.
    DropRollbackPoint {
        name: String,
        discard: bool,
    },
    /// Name this point of the write order. `moment`: others of the same one are set in the same turn, or 0.
    Mark {
        name: String,
        moment: u64,
    },
    /// A mark is dropped only by whoever overrides its lock, or no longer so.
    LockMark {
        name: String,
        locked: bool,
    },
    /// A mark goes, or the rollback point if that has the name.
    DropMark {
        name: String,
        override_lock: bool,
    },
    /// Start a group that failed anew, from what is on record (rule 12). `entropy` seeds new generations' tags.
    Reset {
        entropy: u64,
    },
    /// Compare the copy with this primary's volumes, while writers go on.
    Verify(VerifyOrder),
    VerifyStop,
    /// The queue's peaks that people look at begin with what is there now.
    ForgetPeaks,
    /// Both copies hold the same, whatever the records say: nothing is sent, and each node keeps on record that nobody has checked it.
    AssumeEqual,
}

/// How a copy is to be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyOrder {
    /// Bytes of this node's volumes that are read per second at most; `None`: as the link, the disks and the writers leave room.
    pub rate_bytes_per_s: Option<u64>,
    /// Of what there is, 1 to 100; less than 100 is a sample, and proves nothing of the rest.
    pub sample_percent: u8,
    /// What differs is sent again.
    pub repair: bool,
    /// Chooses the sample.
    pub entropy: u64,
    /// Nobody typed it: it leaves a verify that is under way as it is, and gives way to one that is typed.
    pub by_timer: bool,
}

impl VerifyOrder {
    /// All of it is compared.
    pub fn is_full(&self) -> bool {
        self.sample_percent >= 100
    }
}

/// What came of a command, in a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandResult {
    Done(String),
    Warning(String),
    /// What was asked for was so already: nothing was changed.
    Unchanged(String),
    Refused(Refusal),
}

/// Payload of an arrived frame, already checked against its header.
#[derive(Clone, Debug)]
pub enum FramePayload {
    None,
    Control(Vec<u8>),
    Data(Buf),
}

impl FramePayload {
    /// Of a control frame; empty if it has none.
    pub(crate) fn control(&self) -> &[u8] {
        match self {
            FramePayload::Control(bytes) => bytes,
            _ => &[],
        }
    }
}

/// Everything that can happen to a node.
#[derive(Debug)]
pub enum Input {
    /// Read the stores and take up the groups. `entropy` seeds new generations' tags; `boot` names the machine's boot: after
    /// another one what was not flushed may be lost.
    Start {
        entropy: u64,
        boot: u128,
    },
    Request {
        group: GroupId,
        volume: VolumeId,
        id: RequestId,
        request: Request,
    },
    Io {
        token: Token,
        result: IoResult,
    },
    /// An authenticated connection to `peer`; it supersedes any older one (rule 18).
    LinkUp {
        peer: NodeId,
        link: LinkId,
        session: SessionId,
        /// Groups that the two nodes define differently, or that the peer does not have: they do not meet. Both nodes find the same ones.
        apart: Vec<GroupId>,
    },
    LinkDown {
        link: LinkId,
        reason: String,
    },
    Frame {
        link: LinkId,
        header: wire::FrameHeader,
        payload: FramePayload,
    },
    /// Bytes arrived, perhaps in the middle of a frame: the peer lives.
    Heard {
        link: LinkId,
    },
    /// This many bytes of frames handed over have been taken by the socket.
    Sent {
        link: LinkId,
        bytes: u64,
    },
    Command {
        group: GroupId,
        id: CommandId,
        command: Command,
    },
    /// One moment of several groups has a name: a command of each is answered.
    Mark {
        groups: Vec<(GroupId, CommandId)>,
        name: String,
    },
    /// Open a view of the secondary's volumes, as they stand at one number of the order: [`Output::ViewOpened`]. The caller chooses `view`,
    /// and none that it had before. The image stays readable until the view is closed or lost.
    ViewOpen {
        group: GroupId,
        view: ViewId,
    },
    /// Read from an open view: [`Output::ViewData`]. `offset` and `length` are multiples of [`limits::SECTOR_BYTES`], `length` is at most
    /// [`limits::VIEW_READ_BYTES_MAX`], and at most [`limits::VIEW_REQUESTS_MAX`] reads of a view wait at once.
    ViewRead {
        group: GroupId,
        view: ViewId,
        id: RequestId,
        volume: VolumeId,
        offset: u64,
        length: u64,
    },
    /// Nobody reads the view any more; reads under way are answered with an error. No answer.
    ViewClose {
        group: GroupId,
        view: ViewId,
    },
    /// The answer to [`Output::Reopen`]: the group as a start finds it now, or why it is not taken up. Settings stay as they are.
    Reopened {
        group: GroupId,
        opened: Result<Box<GroupConfig>, String>,
    },
    /// Groups that this node defines already, and adds soon: what a peer sends for them meanwhile is ignored.
    Expect {
        groups: Vec<GroupId>,
    },
    /// Take up one more group, as at a start. `refused`: as of [`Node::refuse`].
    Add {
        config: Box<GroupConfig>,
        entropy: u64,
        refused: Option<(String, Option<identity::Identity>)>,
    },
    /// Stop one group cleanly, and let go of it: then [`Output::Removed`].
    Remove {
        group: GroupId,
    },
    /// Stop cleanly: answer what is due, flush, record, then [`Output::Stopped`].
    Stop,
    /// A timer may be due.
    Tick,
}

/// Everything a node can ask for.
#[derive(Debug)]
pub enum Output {
    /// Write `parts` one after the other at `offset`. `durable`: on stable storage before completion.
    Write {
        token: Token,
        store: Store,
        offset: u64,
        parts: Vec<WriteBytes>,
        durable: bool,
        waits_for_peer: bool,
    },
    /// Make the range read as zeroes; `no_hole`: keep it allocated.
    Zero {
        token: Token,
        store: Store,
        offset: u64,
        length: u64,
        no_hole: bool,
        durable: bool,
    },
    /// The delta begins anew, empty. One that stood there whole is kept beside it under another name.
    Renew {
        token: Token,
        store: Store,
    },
    /// All completed writes of the store become durable.
    Flush {
        token: Token,
        store: Store,
    },
    /// Read payload; with `crc`, `Damaged` unless it matches.
    Read {
        token: Token,
        store: Store,
        offset: u64,
        length: u32,
        crc: Option<u32>,
    },
    /// Read payload and sum it up: [`IoDone::Summed`].
    ReadSummed {
        token: Token,
        store: Store,
        offset: u64,
        length: u32,
    },
    /// Read metadata into the engine.
    ReadMeta {
        token: Token,
        store: Store,
        offset: u64,
        length: u32,
    },
    /// Write `parts` of payload at `offset`, each from the next whole block of [`limits::META_BLOCK_BYTES`] on, in a cache at least; and
    /// sum each up: [`IoDone::Sums`].
    Spill {
        token: Token,
        store: Store,
        offset: u64,
        parts: Vec<Slice>,
    },
    /// Write a batch of the log at `offset`, durably: its index, and `parts` of payload, each from the next whole block on. The index gets
    /// the sum of each, which are the answer too: [`IoDone::Sums`].
    Append {
        token: Token,
        store: Store,
        offset: u64,
        index: journal::JournalIndex,
        parts: Vec<Slice>,
    },
    /// Read what was spilled there: one [`IoDone::Payload`] of all these parts, each in whole blocks; or `Damaged` unless each has its sum.
    Fetch {
        token: Token,
        store: Store,
        offset: u64,
        parts: Vec<SpilledPart>,
    },
    /// What the range begins with, and how far that goes: [`IoDone::Run`].
    FindHole {
        token: Token,
        store: Store,
        offset: u64,
        length: u64,
    },
    /// Read and hash, keyed per session.
    ReadHash {
        token: Token,
        store: Store,
        offset: u64,
        length: u32,
    },
    Reply {
        id: RequestId,
        result: Result<(), IoError>,
    },
    /// A view is open, or cannot be.
    ViewOpened {
        group: GroupId,
        view: ViewId,
        result: Result<Box<OpenedView>, Refusal>,
    },
    /// What a view holds in the range, in order; or why it cannot be read: the medium, or the view is lost.
    ViewData {
        id: RequestId,
        result: Result<Vec<ViewPart>, IoError>,
    },
    /// Send a frame; the host seals it with the payload's checksum.
    Send {
        link: LinkId,
        header: wire::FrameHeader,
        payload: SendPayload,
    },
    CloseLink {
        link: LinkId,
        reason: String,
    },
    CommandDone {
        id: CommandId,
        result: CommandResult,
    },
    /// The group's exports may open or must close.
    Serve {
        group: GroupId,
        open: bool,
    },
    /// Nothing of the group is under way: close all of its stores, drop what caches hold of them, and open them again as at a start,
    /// then [`Input::Reopened`].
    Reopen {
        group: GroupId,
    },
    Event {
        group: GroupId,
        event: Event,
    },
    /// The group is at rest and recorded, or has failed, and is none of this node's any more: its stores may be closed.
    Removed {
        group: GroupId,
        /// It had failed: what its clients wrote last may be lost with its caches.
        failed: bool,
    },
    /// Every group is at rest and recorded; the process may end.
    Stopped,
}

/// What [`Output::Spill`] wrote of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpilledPart {
    pub length: u32,
    /// CRC-32C.
    pub crc: u32,
}

#[derive(Clone, Debug)]
pub enum SendPayload {
    None,
    Control(Vec<u8>),
    Data(Slice),
    /// Content of neighbours on the volume, in their order: one payload.
    Gathered(Vec<Slice>),
}

/// What happened, for logs and the simulator: a closed list.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The group's stores are read, its identity is durable.
    Ready {
        role: identity::Role,
        incarnation: Incarnation,
        generation: Generation,
        clean: bool,
    },
    State {
        from: State,
        to: State,
        why: String,
    },
    /// A request was given its position in the write order: parts `first..=last` of `part_bytes` each, the last one shorter. To a volume
    /// that is set aside it has none: `last` was the last one given.
    Admitted {
        id: RequestId,
        first: Seq,
        last: Seq,
        part_bytes: u64,
    },
    /// A record reached this secondary's volumes (not yet flushed).
    AppliedWrite {
        seq: Seq,
    },
    /// The journal was replayed up to here.
    Replayed {
        to: Position,
        records: u64,
    },
    /// An unclean start: these many extents were being written and may differ.
    HotExtents {
        extents: u64,
        extent_bytes: u64,
    },
    /// What this primary had lost with its power was fetched from its peer.
    Pulled {
        bytes: u64,
    },
    /// Writers are answered without the peer though the mode promises more; the queue keeps the order, and with it the generation.
    QueuedAlone {
        why: String,
    },
    /// The line is slow: the group acts as a lower mode than the one that is set.
    SteppedDown {
        from: state::Mode,
        to: state::Mode,
        why: String,
    },
    /// The mode that is set counts again.
    SteppedUp {
        from: state::Mode,
        to: state::Mode,
        why: String,
    },
    /// A start goes on from the log of the queue, or does no more.
    QueueLog {
        is_live: bool,
    },
    /// A start goes on from the log of the queue: the volumes hold what was written up to this number, and numbers go on.
    RunGoesOn {
        at: Position,
    },
    /// Writes that the peer does not see in order begin a generation of their own.
    WritesAlone {
        generation: Generation,
    },
    Decided {
        row: identity::DecisionRow,
        decision: identity::Decision,
    },
    SyncBegan {
        full: bool,
        compare: bool,
        dirty_bytes: u64,
    },
    SyncEnded {
        sent_bytes: u64,
    },
    /// A snapshot is done: the secondary is consistent at its mark. Both ends say so.
    SnapshotEnded {
        at: Position,
        sent_bytes: u64,
    },
    /// A verify begins; `sample_percent` of 100: of all there is.
    VerifyBegan {
        sample_percent: u8,
        repair: bool,
        by_timer: bool,
    },
    /// At one position of the order both nodes held different bytes in this range. `unreadable`: the peer could not read its own.
    VerifyDiffers {
        volume: VolumeId,
        offset: u64,
        length: u64,
        unreadable: bool,
    },
    /// A verify has come to its end.
    VerifyEnded {
        sample_percent: u8,
        totals: status::VerifyTotals,
    },
    QueueDropped {
        items: u64,
        bytes: u64,
        why: String,
    },
    LocalWriteFailed {
        volume: VolumeId,
        offset: u64,
    },
    /// The queue stays full: writers wait, one after the other. `acts_in`: until the policy acts, if it will.
    WritersHeldUp {
        acts_in: Option<Duration>,
    },
    WritersGoOn,
    Promoted {
        generation: Generation,
    },
    /// A sync to this secondary begins: the image that is on its volumes now can be gone back to.
    RollbackPoint {
        name: String,
        at: Position,
    },
    /// The volumes hold the image of the rollback point again.
    RolledBack {
        to: Position,
    },
    /// What this node holds where it differs from the peer that was chosen over it is saved, durable.
    DeltaSaved(status::SavedDelta),
    /// A view was opened, at this position.
    ViewOpened {
        view: ViewId,
        at: Position,
    },
    /// A view ended before it was closed: nothing more can be read of it.
    ViewLost {
        view: ViewId,
        why: String,
    },
    /// An operator chose this primary's content over what its peer wrote since they parted.
    ForkKept {
        differing_bytes: u64,
    },
    Demoted,
    /// A point of the write order has a name. `alone`: nothing was sent to the peer in order.
    Marked {
        id: MarkId,
        name: String,
        at: Position,
        moment: u64,
        alone: bool,
    },
    /// The peer has the mark, durable.
    MarkThere {
        id: MarkId,
        name: String,
        at: Position,
    },
    /// The mark is not at the peer, and will not come there.
    MarkLost {
        id: MarkId,
        name: String,
    },
    /// From here on the group's order is without the volume.
    SetAside {
        volume: VolumeId,
    },
    /// It is part of the sync that begins next, and of the order behind that.
    Rejoins {
        volume: VolumeId,
    },
    /// A promotion goes on record, of an image that these volumes are no part of.
    PromotesWithout {
        volumes: VolumeSet,
    },
    /// The old primary handed over to this node, which may be promoted without force: whoever runs it does so, by a command like an
    /// operator's.
    HandedOver,
    Note(String),
}
