//! Rare branches, counted: the simulator's runs must reach every one of them, else its green means nothing.

macro_rules! coverage_points {
    ($($point:ident),* $(,)?) => {
        /// A branch that is easy to leave untested.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(usize)]
        pub enum CoveragePoint {
            $($point),*
        }

        impl CoveragePoint {
            pub const COUNT: usize = [$(stringify!($point)),*].len();
            pub const ALL: [CoveragePoint; CoveragePoint::COUNT] = [$(CoveragePoint::$point),*];
        }
    };
}

coverage_points! {
    GroupReset,
    ResetWhileConnected,
    PeerReset,
    GroupAdded,
    GroupRemoved,
    FrameForGroupGone,
    ResetBesidePrimary,
    ResetRefused,
    OverlapWaited,
    QueueFullWaited,
    QueueFullLinkDown,
    QueueFullPeerSilent,
    WaitLimitTripped,
    LinkWasFull,
    NewPairMet,
    HeldUpTooLong,
    WriteSplitInParts,
    WritesJoined,
    EpochFolded,
    FoldAwaited,
    EpochCutShort,
    QueueContinued,
    QueueRewound,
    UpdateSyncBegan,
    FullSyncBegan,
    CompareSyncBegan,
    ProbeEqual,
    ProbeDiffered,
    SnapshotProbeEqual,
    SnapshotProbeDiffered,
    SnapshotProbeNarrowed,
    SnapshotProbeOvertaken,
    ResyncSkippedCovered,
    ResyncWaitedForWrite,
    WriteWaitedForResync,
    SyncInterrupted,
    SyncNothingDirty,
    HoldEnded,
    HoldSavedByReconnect,
    StrictFailedWrite,
    DegradeReleasedWriters,
    WentOnAlone,
    SilentPeerLeftBehind,
    PromisedAfterAlone,
    ModeChangedLive,
    LadderSteppedDown,
    LadderSteppedUp,
    ApplyOverlapWaited,
    JournalWrapped,
    JournalFullWaited,
    JournalTornTail,
    JournalReplayedRecords,
    UncleanPrimaryStart,
    CleanPrimaryStart,
    SessionSuperseded,
    StaleFrameFenced,
    ApplyPaused,
    CountedWithoutCycle,
    LocalWriteFailed,
    FlushFailedLatched,
    PromotedForced,
    PromotedAfterHandover,
    PromoteRefusedMidSync,
    SwitchoverBegan,
    HandoverRolledBack,
    HandoverBackFromStoring,
    HandoverNotStored,
    Granted,
    GrantTaken,
    GrantUnanswered,
    GrantedAgain,
    ForkRefused,
    VoidSent,
    WaitedForActivityLog,
    BitmapCellLost,
    ActivityLogLost,
    RollbackPointTaken,
    RollbackPointKept,
    RollbackPointDropped,
    RolledBack,
    RollbackResumed,
    HistoryFull,
    UndoTornTail,
    JournalDamaged,
    FlushPointRecorded,
    FlushedForPeer,
    GenerationContinued,
    BitsJoined,
    ForkKept,
    ForkYielded,
    ForkUnbounded,
    ForkKeptByPolicy,
    ForkYieldedByPolicy,
    DeltaSaved,
    DeltaWithoutSpace,
    SyncWithoutDelta,
    SyncLeftDelta,
    DeltaLacksRange,
    TookInOwnHistory,
    PointJudgedAgain,
    ForkOrderEnded,
    ForkTakenBack,
    TailPulled,
    NothingToPull,
    ServedAloneUnverified,
    TailAskedAbout,
    TailUnknown,
    WentBackUnverified,
    MemoryShort,
    WindowGrew,
    WindowTakenBack,
    StalledAgain,
    SyncStalled,
    SyncWaitedForPermit,
    GoodbyeHeard,
    SnapshotBegan,
    SnapshotEnded,
    SnapshotSavedRegion,
    HoleFound,
    SnapshotSaveWaited,
    SnapshotSpilled,
    SnapshotInterrupted,
    QueueSpilled,
    QueueFetched,
    QueueSpillFailed,
    QueueFetchFailed,
    QueueLogged,
    QueueLogOpened,
    QueueLogClosed,
    QueueLogFailed,
    // Nothing of it is durable for as long as one may wait for a disk.
    QueueLogHung,
    QueueRedone,
    QueueTornTail,
    QueueLogDropped,
    RunTakenUp,
    QueueFullToBitmap,
    QueueLeftForYoungerImage,
    WriterPaced,
    SnapshotWentOn,
    SnapshotGivenUp,
    SyncTurnedToSnapshots,
    VerifyWaitedForWrite,
    VerifyInterrupted,
    VerifyNarrowed,
    VerifyRepaired,
    VerifyEnded,
    VerifyBeganAnew,
    VerifyGaveWay,
    AssumedEqual,
    SetAside,
    SetAsideInSync,
    WroteAside,
    CopySetAside,
    MarkSet,
    MarkSetAlone,
    MarkArrived,
    MarkThere,
    MarkLost,
    MarkMoment,
    Rejoined,
    PromotedWithoutVolume,
    VolumeDetached,
    VolumeAttached,
    PeerDetached,
    PeerUnfilled,
    PromoteRefusedUnfilled,
    NothingInOrder,
    PeerWindowGiven,
    PeerWindowTakenBack,
    AnswerHeldForWindow,
    PromotedInWindow,
    PromotedForPeer,
    PromotionForPeerEnded,
    PrimaryGrew,
    SecondaryGrew,
    GrewByPromotion,
    PeerUnfit,
    ViewOpened,
    ViewOpenWaited,
    ViewOfPoint,
    ViewShared,
    ViewSaved,
    ViewReadSaved,
    ViewReadAgain,
    ViewLostForSpace,
    ViewLost,
}

/// How often each branch was taken.
#[derive(Clone, Debug)]
pub struct CoverageCounts([u64; CoveragePoint::COUNT]);

impl Default for CoverageCounts {
    fn default() -> Self {
        CoverageCounts([0; CoveragePoint::COUNT])
    }
}

impl CoverageCounts {
    pub(crate) fn hit(&mut self, point: CoveragePoint) {
        self.0[point as usize] += 1;
    }

    pub fn count(&self, point: CoveragePoint) -> u64 {
        self.0[point as usize]
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &CoverageCounts) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}
