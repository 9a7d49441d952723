//! Faults injected on purpose, to show that the checkers outside the engine would catch them. The product is built without
//! the feature `injected-faults`: then [`injected`] is `false` at compile time and nothing of this is left in the code.
//!
//! A site costs one line, `if injected(Fault::ClearBeforeApply) { ... }`; a function that nothing else calls has the feature's `cfg`. The simulator chooses one fault for its whole
//! process with [`inject`]. With the feature the engine's own invariants are off: only a checker may object.

/// One line per fault: its variant, its name for people, the rule or promise it breaks, and how.
macro_rules! faults {
    ($($variant:ident, $name:literal, $breaks:literal, $how:literal;)*) => {
        /// A fault that can be injected.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Fault { $(#[doc = $how] $variant,)* }

        impl Fault {
            pub const ALL: &'static [Fault] = &[$(Fault::$variant,)*];

            /// The name it is chosen by.
            pub fn name(self) -> &'static str {
                match self { $(Fault::$variant => $name,)* }
            }

            /// The rule or promise (docs/book/reliability.md) it breaks.
            pub fn breaks(self) -> &'static str {
                match self { $(Fault::$variant => $breaks,)* }
            }

            /// What the engine does instead of the right thing.
            pub fn how(self) -> &'static str {
                match self { $(Fault::$variant => $how,)* }
            }
        }
    };
}

faults! {
    NumberReused, "number-reused", "rule 5",
        "A restart keeps the incarnation: numbers of the run before are given again.";
    ClearBeforeApply, "clear-before-apply", "rule 1, P3",
        "A bit clears when the peer received the write, before it is applied there.";
    ClearForOlder, "clear-for-older", "rule 1, P3",
        "A bit clears for a write that is not the newest of its region.";
    ClearUncovered, "clear-uncovered", "rule 1, P3",
        "A live write's confirmation clears a bit whose older difference was never shipped.";
    FailedWriteClears, "failed-write-clears", "rule 1, P3",
        "A failed local write leaves no bit behind.";
    BitNotSetAlone, "bit-not-set-alone", "rule 2, P3",
        "A write that is not streamed sets no bit.";
    BitNotSetQueued, "bit-not-set-queued", "rules 2 and 10, P3",
        "A streamed write sets no bit: a dropped queue leaves nothing behind.";
    NumberedAfterAnswer, "numbered-after-answer", "rule 4",
        "A write that waits for its range is answered at once and numbered later.";
    WriteIgnoresOverlap, "write-ignores-overlap", "rule 3",
        "Overlapping writes of a primary's clients are on the disk's way at once.";
    ApplyIgnoresOverlap, "apply-ignores-overlap", "rule 3, P2",
        "Overlapping records are on the secondary's disk's way at once.";
    ReplayTorn, "replay-torn", "P9, P2",
        "Replay applies a batch without looking at its payloads' checksums.";
    EpochLandsOpen, "epoch-lands-open", "P2, rule 20",
        "What came of an epoch counts as received, lands and is applied before the last of it is there.";
    EpochLeavesMemory, "epoch-leaves-memory", "P8, rule 20",
        "An epoch is begun of writes that memory lets go of, to the disk queue, before they are sent.";
    EpochOfWholeLink, "epoch-of-whole-link", "P5, rule 20",
        "An epoch takes a second of the link, however many groups share that.";
    RoomWaitNotPeers, "room-wait-not-peers", "rule 17, rule 20",
        "Who waits for more of the peer's window, to fold, says that nothing of the peer's is waited for.";
    EpochOutlivesStream, "epoch-outlives-stream", "P8, rule 20",
        "What came of an epoch is held at the peer after its primary has fallen to logging.";
    StepHeldUp, "step-held-up", "P5, rule 17",
        "Writers who wait until the peer has taken one step count as held up, and as waiting for a slow line.";
    JoinedMisplaced, "joined-misplaced", "P2",
        "Writes that travel joined in one frame stand in it in the wrong order.";
    LoggedAfterWrite, "logged-after-write", "rule 5, P3",
        "A write that is to be in the log of the queue is written before it stands there.";
    SentBeforeLogged, "sent-before-logged", "rule 5, P2",
        "A frame is sent before the log of the queue holds its number.";
    LogKeptOpen, "log-kept-open", "rule 5, P3",
        "The log of the queue goes on to count although it misses writes.";
    RedoSkipped, "redo-skipped", "rule 5, P2",
        "A start goes on from the log of the queue without writing again what that holds.";
    LogBitsForgotten, "log-bits-forgotten", "rule 2, P3",
        "A start that goes on from the log sets no bits for what it queues.";
    TakeUpSkipped, "take-up-skipped", "rule 5, P2",
        "Frames of a run go to a peer that still stands in the run before.";
    LogHeadTooFar, "log-head-too-far", "rule 2, P3",
        "The log of the queue lets go of what the peer has applied or this node has flushed, and not both.";
    LaterBatchMissed, "later-batch-missed", "P3, P9",
        "Behind a batch that is not whole a start looks for one that tells of damage as far as one batch reaches, and several were under way.";
    EndedLogKept, "ended-log-kept", "rule 1, P3",
        "A write fails here behind the end of the stream, and the log that holds it goes on to count.";
    QueueFlushedUnasked, "queue-flushed-unasked", "P8",
        "A start flushes the queue's file also where nothing in it counts.";
    TakeUpUnwatched, "take-up-unwatched", "rule 17",
        "A peer that is asked to take up the run of a start, and never answers, is waited for without end.";
    HungLogWaitedFor, "hung-log-waited-for", "P8",
        "Writers wait for the disk of the log of the queue for as long as that hangs.";
    OwnDiskWaitedFor, "own-disk-waited-for", "P8",
        "In superasync writers wait for the disk of this node's own queue as long as in other modes.";
    SuperasyncWaits, "superasync-waits", "P8",
        "In superasync writers wait for room in a full queue as in async.";
    AsideCountsAsDirty, "aside-counts-as-dirty", "P5",
        "In superasync what is written to a volume set aside counts as what a snapshot would send, and the queue is kept because of that.";
    SpilledNeedsMemory, "spilled-needs-memory", "P8",
        "Where the node's memory is short a large write waits for room for all of it, though the disk queue takes it at once.";
    YoungerImageLate, "younger-image-late", "P5",
        "In superasync all that was queued in an outage is sent before anybody asks whether a snapshot would bring a younger image.";
    SentStaysInMemory, "sent-stays-in-memory", "P8",
        "What was read back from the disk queue stays in memory until the peer has it, however much is on its way.";
    PacedTimeCounted, "paced-time-counted", "rule 10",
        "The time in which writers were slowed down on purpose counts as time that they waited for room.";
    PlacesFreedEarly, "places-freed-early", "rule 10",
        "Places of the disk queue are given out again before the peer has what stands there.";
    SpilledSentAsZeroes, "spilled-sent-as-zeroes", "rule 4, P2",
        "What stands in the disk queue alone is sent as zeroes, and not read back.";
    FetchedMixedUp, "fetched-mixed-up", "rule 4, P2",
        "Each number of a batch that is read back from the disk queue has the bytes of the first.";
    ForkOverwritten, "fork-overwritten", "rule 5, P6",
        "An old primary with a tail of its own is taken for one that handed over, and overwritten by itself.";
    ResyncReadRaces, "resync-read-races", "rule 7",
        "A resync read does not wait for writes under way in its range.";
    SyncNotRecorded, "sync-not-recorded", "P2",
        "A secondary does not record that a sync to it began: half-way it claims to be an image.";
    PromoteMidSync, "promote-mid-sync", "P2",
        "A promotion is granted in the middle of a sync.";
    ProbeAlwaysEqual, "probe-always-equal", "P3",
        "A compared range counts as equal whatever the peer's hash says.";
    HotForgotten, "hot-forgotten", "rule 2, P3",
        "A primary that did not stop cleanly does not look at its activity log.";
    HotTooEarly, "hot-too-early", "rule 2, P3",
        "A write goes ahead when its extent's entry in the activity log was only begun.";
    LogForgetsUnstored, "log-forgets-unstored", "rule 2, P3",
        "An extent leaves the activity log before its dirty regions are in the stored bitmap.";
    ConfirmedForgotten, "confirmed-forgotten", "P3",
        "A start takes up nothing of what the peer had confirmed: one that went back is believed.";
    RollbackWithoutBits, "rollback-without-bits", "rule 6, P3",
        "A rollback undoes and drops without setting the bits of what it touches.";
    RollbackHalf, "rollback-half", "P2",
        "A rollback writes back the first range that was saved, and no more.";
    OverwrittenUnsaved, "overwritten-unsaved", "rule 9, P2",
        "A sync overwrites what it has not saved yet: the saved content may be the new one.";
    ClearUnflushed, "clear-unflushed", "rule 1, P3",
        "A bit clears when the write is applied at the peer, whether or not it was flushed here.";
    FlushTooFar, "flush-too-far", "rule 1, P3",
        "A flush counts for writes that were still under way when it began.";
    MemberDropsAlone, "member-drops-alone", "rule 11, P2",
        "A volume of the secondary that refuses a write is left behind, the others go on.";
    FailedFlushIgnored, "failed-flush-ignored", "rule 12, P4",
        "A primary's failed flush counts as done.";
    FailedApplyFlushIgnored, "failed-apply-flush-ignored", "rule 12, P2",
        "A secondary's failed flush counts as done.";
    FlushSkipped, "flush-skipped", "P4",
        "A client's flush is answered without flushing.";
    FuaSkipped, "fua-skipped", "P4",
        "A write with FUA is answered without being durable.";
    AckBeforeJournal, "ack-before-journal", "P1",
        "The secondary confirms a batch as durable when its journal write was only begun.";
    DurableOverGap, "durable-over-gap", "P1",
        "A journal batch that completed counts as durable though an earlier one has not.";
    SyncAckTooEarly, "sync-ack-too-early", "P1",
        "A writer in sync mode is answered when the secondary received the write, not when it is durable there.";
    NearsyncAckTooEarly, "nearsync-ack-too-early", "P1",
        "A writer in nearsync mode is answered before the secondary received the write.";
    StrictReleased, "strict-released", "P1",
        "Writers who are held under strict are answered when the peer comes back and the queue cannot continue.";
    RepairEndsStream, "repair-ends-stream", "P1",
        "A repair that cannot read its region ends the stream, and whoever waits for the peer is answered without it.";
    AnsweredBeforeDegraded, "answered-before-degraded", "P1",
        "A primary whose link fell answers its held writers first and leaves replicating afterwards.";
    LadderAboveSet, "ladder-above-set", "P1",
        "A mode ladder that goes up again has writers wait as in sync, whatever mode is set.";
    LinkWeightIgnored, "link-weight-ignored", "P8",
        "Groups share their link evenly, whatever their weights.";
    LadderPromisesSync, "ladder-promises-sync", "P1",
        "A mode ladder that goes down answers writers as the fallback does, and tells nobody.";
    ApplyBeforeJournal, "apply-before-journal", "P2",
        "A record is applied while its journal write is still under way.";
    TrimBeforeFlush, "trim-before-flush", "P2, P3",
        "The journal is trimmed and applied is reported without flushing the volumes.";
    RecordNotAwaited, "record-not-awaited", "rule 5",
        "What a superblock update permits is done before the update is durable.";
    HandoverWithoutDrain, "handover-without-drain", "rule 15",
        "A demotion claims that the peer has everything without waiting for it.";
    GrantBeforeRecord, "grant-before-record", "rule 15, P6",
        "A primary that hands over lets its peer go on before its own demotion is on record.";
    HeldAnswered, "held-answered", "rule 15, P1",
        "Behind the point of no return of a switchover the held requests are acknowledged.";
    LentBesidePrimary, "lent-beside-primary", "rule 13, P6",
        "A node that is promoted for its peer's clients does not look again, once it has gone back, whether the peer is primary.";
    TrimDiffers, "trim-differs", "rule 16, P2",
        "The secondary drops the unaligned ends of a trim, the primary zeroes them.";
    ClockGoesBack, "clock-goes-back", "rule 19",
        "The order is stamped with the wall clock as it is, also when it jumped back.";
    WindowIgnored, "window-ignored", "P8, rule 22",
        "A primary sends more than its secondary granted, and the secondary takes it.";
    QueueLimitIgnored, "queue-limit-ignored", "P8, rule 22",
        "The queue grows past its limit instead of making writers wait.";
    PayloadNotCounted, "payload-not-counted", "rule 22",
        "What is queued or received counts its bookkeeping only: every counter of memory lies.";
    OlderSessionWins, "older-session-wins", "rule 18",
        "A second connection to a peer is passed over while the first one is thought to live.";
    TailRegionNotDirty, "tail-region-not-dirty", "rule 21, P3",
        "A write to the partial last region of a volume sets no bit.";
    StartAloneIgnored, "start-alone-ignored", "rule 24, P1",
        "A primary that lost power serves at once, without waiting for its peer as long as it was ordered to.";
    WaiterForgotten, "waiter-forgotten", "P8",
        "A writer that waited for room is not let in when there is some.";
    TailNotPulled, "tail-not-pulled", "P1",
        "A primary that lost power opens without what its secondary confirmed and its caches lost.";
    TailNotKept, "tail-not-kept", "P1",
        "A secondary forgets the ranges of what its primary has not flushed.";
    FlushedIsKept, "flushed-is-kept", "P1, P4",
        "A secondary keeps a write that its primary had flushed before it was sent.";
    GivenUpForgotten, "given-up-forgotten", "P1",
        "What a secondary gave up for a promotion that does not come about is on no record: its primary opens without.";
    ForeignGiven, "foreign-given", "P1, P7",
        "A secondary whose volume was changed from outside gives what stands there to a primary that lost its power.";
    GenerationForgotten, "generation-forgotten", "rule 5",
        "A write that waited for the activity log while the stream ended is numbered in the generation of both.";
    FlushPointNotRecorded, "flush-point-not-recorded", "P1, P4",
        "A flush that covers an overwrite of what the peer keeps is acknowledged without a record: a pull undoes it.";
    BitsNotJoined, "bits-not-joined", "rule 6, P3",
        "A primary does not ask for the dirty regions its secondary holds.";
    PointMoves, "point-moves", "rule 9, P2",
        "A sync that is begun again in the middle takes its rollback point anew.";
    SnapshotNotSaved, "snapshot-not-saved", "rule 8, P2",
        "A write overwrites a region of the snapshot that was not shipped yet.";
    AskedNotSaved, "asked-not-saved", "rule 8, P2",
        "A write overwrites a region of the snapshot whose hash the peer has not answered yet.";
    HeldThoughWritten, "held-though-written", "rule 8, P3",
        "What the peer applied of a snapshot that was cut short is left out of the next one, though it was written since.";
    SnapshotClearsAll, "snapshot-clears-all", "rule 8, P3",
        "The end of a snapshot clears the bits of what was written since its freeze too.";
    SnapshotEndsEarly, "snapshot-ends-early", "rule 8, P2",
        "A snapshot's end is sent while regions of it are still being read.";
    ResetUndrained, "reset-undrained", "rule 12",
        "A group that is reset has its stores closed while something is still asked of them.";
    ResetForgetsLoss, "reset-forgets-loss", "rule 12, P1",
        "A reset leaves behind that a flush failed, where that could not be recorded.";
    ResetServesAtOnce, "reset-serves-at-once", "P6",
        "A primary that was reset opens its export before its peer has said who it is.";
    RepairForgotten, "repair-forgotten", "P5",
        "A region whose local write failed is never sent again.";
    LastWordMasked, "last-word-masked", "rule 2, P3",
        "Whether an extent of several words may leave the activity log is decided without its last word of bits.";
    CompareLeavesTail, "compare-leaves-tail", "rule 21, P3",
        "A comparison leaves out the sectors behind the last whole 4 KiB of a volume.";
    FlushJoined, "flush-joined", "P4",
        "A flush is answered by one that was under way when it was asked for.";
    HeadTooFar, "head-too-far", "P1",
        "The journal's head is recorded one record too far: a start leaves out one that is not on the volumes.";
    ReplayStopsAtWrap, "replay-stops-at-wrap", "P1",
        "A start does not look for the next batch where the journal wrapped.";
    FlushPointsMixed, "flush-points-mixed", "P1, P4",
        "The flush of one volume is recorded for all of the group.";
    TrimsUnordered, "trims-unordered", "rule 3, P2",
        "A trim is applied beside the writes that it overlaps.";
    SnapshotUnflushed, "snapshot-unflushed", "rule 8, P1",
        "A snapshot is announced before its volumes are flushed up to where it stands.";
    SyncWaiterForgotten, "sync-waiter-forgotten", "P5",
        "A group that may not sync yet gets no position in line.";
    WayBackForgotten, "way-back-forgotten", "P1",
        "What a secondary gives up on its way back to an image is on no record.";
    ChoiceForgotten, "choice-forgotten", "P1",
        "An export that waits for its operator opens after a restart.";
    LoneTailJoined, "lone-tail-joined", "rule 5, P6",
        "An old primary that went on alone in its queue is taken for one that handed over, and its tail is overwritten by itself.";
    WindowNotKept, "window-not-kept", "rule 14, P1",
        "A primary answers writers alone while its peer counts on the window that it gave.";
    WindowFromAnswer, "window-from-answer", "rule 14, P1",
        "A secondary counts the peer window from the answer, not from its question.";
    QueuedStillPromised, "queued-still-promised", "P1",
        "Writers of a peer that is too slow or silent are answered without it, and the group still says that both have what it answers.";
    RunsOfPeer, "runs-of-peer", "P1",
        "A peer that went back to a run of its own passes for one that knows a later run of the unverified primary.";
    KeptLostAtStart, "kept-lost-at-start", "P1",
        "A secondary that starts forgets what its journal held of writes that its primary has not flushed.";
    ServedAloneForgotten, "served-alone-forgotten", "P1, P4",
        "A primary that served before it had fetched what its peer confirmed does not know it after a restart.";
    BitsDisplaced, "bits-displaced", "rule 6, P3",
        "Dirty regions behind the first 8 GiB of a volume are reported to the peer as those of the first.";
    ChangedPulledOver, "changed-pulled-over", "P1, P7",
        "A primary that needs verification fetches from its peer over what was written from outside.";
    ChangedSentUnasked, "changed-sent-unasked", "P7",
        "What was written to a primary's volume from outside is sent to its peer without an order.";
    ForkFromOldCopy, "fork-from-old-copy", "P3, rule 5",
        "A fork is resolved by bits though one side was promoted from an older copy than it had confirmed.";
    ForkFollowedBefore, "fork-followed-before", "P3, rule 5",
        "A fork is resolved by bits though one side has forgotten bits since: somebody had followed it.";
    AnyDemotionYields, "any-demotion-yields", "P6",
        "Whoever is demoted while an order to keep the other node stands counts as demoted for it.";
    YieldsToOldWord, "yields-to-old-word", "P6",
        "Of two orders that end each other both nodes are demoted, by what they said before.";
    ForkInOneSession, "fork-in-one-session", "rule 6, P3",
        "A peer that was promoted and demoted within one session is not asked for its bits again.";
    ForkBitsUnjoined, "fork-bits-unjoined", "rule 6, P3",
        "A fork is resolved by the bits of one side.";
    DeltaSkipped, "delta-skipped", "P6",
        "What the peer holds where the two sides of a fork differ counts as saved before it is.";
    DeltaOfOneSide, "delta-of-one-side", "P6",
        "A delta has only what its own node had dirty.";
    ForkSyncedUnsaved, "fork-synced-unsaved", "P6",
        "A full sync overwrites what only its secondary has, and leaves no delta of it.";
    LeftOutForgotten, "left-out-forgotten", "P6",
        "A volume that a sync over a fork left out counts as one without a history of its own.";
    PointNotJudgedAgain, "point-not-judged-again", "P6",
        "A sync over a fork finds an image from a sync that was cut short, and leaves no delta of it.";
    PolicyKeepsEither, "policy-keeps-either", "P6",
        "A fork in which both nodes were promoted is resolved by 'after_forced_failover', without anybody's word.";
    WakeForgotten, "wake-forgotten", "P5, P8",
        "Of all that may go on after an input only the first does.";
    VerifySkipsRange, "verify-skips-range", "P3",
        "A verify leaves out every third of its ranges, and ends as if it had compared them.";
    VerifyReadUnlocked, "verify-read-unlocked", "rule 7, P3",
        "A verify reads a range without locking it: what it compares is of no position in the order.";
    VerifySetsLateBit, "verify-sets-late-bit", "rule 6, P3",
        "What a verify found while a demotion is recorded is dirty in memory alone: a crash forgets it.";
    AsideStillCovered, "aside-still-covered", "rule 1, P3",
        "What the stream brought of a volume clears bits of what was written there after it was set aside.";
    AsideNotAnnounced, "aside-not-announced", "P2, P6",
        "A sync that leaves a volume aside does not say so: its copy passes for an image of all of the group.";
    AsideNotInOrder, "aside-not-in-order", "P2, P6",
        "A volume is set aside while the stream goes on, and the peer does not hear of it.";
    AsideTakesRoom, "aside-takes-room", "P1, P5",
        "A write to a volume that is set aside keeps room in the queue while it waits for its range.";
    AsideCountsAsWritten, "aside-counts-as-written", "P5",
        "What is written to a volume set aside counts as what the stream would have to carry: the others stay with snapshots.";
    AsideForgotten, "aside-forgotten", "P2, P6",
        "A secondary forgets with its next start which volumes are no part of its copy.";
    AttachTakenForWhole, "attach-taken-for-whole", "P2, P3",
        "The device of a volume that was detached counts as what it was before.";
    UnfilledPromoted, "unfilled-promoted", "P2, P6",
        "A disk that came in place of a dead one, and was never filled, is promoted as the volume.";
    FilledUnasked, "filled-unasked", "P6, P7",
        "The peer's device of a volume that came there is overwritten by the next sync, before anybody said that it is to be.";
    CameInOrder, "came-in-order", "P6, P7",
        "A volume that comes to a group is part of its order at once: nobody's word is waited for.";
    CameFilled, "came-filled", "P2, P6",
        "A volume that comes to a group on a secondary counts as filled: what stands on its device is promoted.";
    CameClean, "came-clean", "rule 2, P3",
        "A volume that comes to a group is dirty nowhere.";
    BitsStayInPlace, "bits-stay-in-place", "rule 2, P3",
        "Where a group gets other volumes, the bits of each position are those of the volume that stood there before.";
    KeptOfAnother, "kept-of-another", "P1, P2",
        "Where a group gets other volumes, what a secondary keeps for its primary stays with the positions of before.";
    LeftForgetsKept, "left-forgets-kept", "P1",
        "A volume leaves a secondary with what that kept of it for its primary, and nobody who asks for it is told.";
    RenamedBelieved, "renamed-believed", "P3, P7",
        "A node takes the device of a volume under a new name for what its peer calls so.";
    ChangedMidSync, "changed-mid-sync", "rule 6, P2",
        "A secondary gets other volumes in the midst of a sync: what it goes back to is of the positions of before.";
    MovedInOtherRole, "moved-in-other-role", "P1, P7",
        "A device moves to a group in which this node has the other role: the wrong node's content counts.";
    MarkUnnumbered, "mark-unnumbered", "rule 4",
        "A mark takes no number of its own beside a stream: the peer never hears where it is.";
    MarkToldEarly, "mark-told-early", "P9",
        "A secondary reports a mark before its slot is durable.";
    MarkLostInSpill, "mark-lost-in-spill", "rule 4",
        "A mark that is set while the queue stands on disk leaves for the peer as a number without a meaning.";
    MomentTorn, "moment-torn", "rule 4",
        "Marks of one moment over several groups are set in two turns of the node.";
    MarkFolded, "mark-folded", "rule 4, rule 20",
        "An epoch goes on over a mark, which is left out: the peer never stands where it is.";
    MarkStraysUnasked, "mark-strays-unasked", "P9",
        "A secondary never asks whether it was told of all marks: it goes on with one that its primary has lost.";
    ViewUnsaved, "view-unsaved", "P2",
        "A secondary overwrites what a view still shows, without saving it.";
    ViewAtMovingPoint, "view-at-moving-point", "P2",
        "A view is opened while writes to the volumes are under way: its image is of no position in the order.";
    ViewReadNotCheckedAgain, "view-read-not-checked-again", "P2",
        "What a view reads of a volume counts, although it was saved and overwritten meanwhile.";
    ViewNotSavedForAgain, "view-not-saved-for-again", "P2",
        "What waits to be written when a view opens is saved for the views before it alone.";
    ViewOutlivesSync, "view-outlives-sync", "P2",
        "A view of the image before a sync goes on when that image is given up.";
    RejoinsInStream, "rejoins-in-stream", "rule 8, P2",
        "A volume that rejoins goes on in the stream, and what was written to it meanwhile follows at any time.";
}

#[cfg(feature = "injected-faults")]
mod chosen {
    use core::sync::atomic::{AtomicUsize, Ordering};

    use super::Fault;

    /// One more than the fault's position in the list; 0: none.
    static CHOSEN: AtomicUsize = AtomicUsize::new(0);

    /// Injects the fault of that name, for this process. False: there is none of that name.
    pub fn inject(name: &str) -> bool {
        let found = Fault::ALL.iter().position(|fault| fault.name() == name);
        CHOSEN.store(found.map_or(0, |at| at + 1), Ordering::Relaxed);
        found.is_some()
    }

    pub(crate) fn injected(fault: Fault) -> bool {
        CHOSEN.load(Ordering::Relaxed) == fault as usize + 1
    }
}

#[cfg(feature = "injected-faults")]
pub use chosen::inject;
#[cfg(feature = "injected-faults")]
pub(crate) use chosen::injected;

/// Whether the fault is injected: never in the product.
#[cfg(not(feature = "injected-faults"))]
pub(crate) const fn injected(_: Fault) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_nothing_is_injected_by_itself() {
        for (at, fault) in Fault::ALL.iter().enumerate() {
            assert!(!injected(*fault));
            assert!(Fault::ALL[..at].iter().all(|other| other.name() != fault.name()), "{}", fault.name());
        }
    }
}
