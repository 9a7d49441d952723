//! Rare branches, counted: the simulator's runs must reach every one of them, else its green means nothing.

macro_rules! marks {
    ($($mark:ident),* $(,)?) => {
        /// A branch that is easy to leave untested.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(usize)]
        pub enum Mark {
            $($mark),*
        }

        impl Mark {
            pub const COUNT: usize = [$(stringify!($mark)),*].len();
            pub const ALL: [Mark; Mark::COUNT] = [$(Mark::$mark),*];
        }
    };
}

marks! {
    OverlapWaited,
    QueueFullWaited,
    QueueFullLinkDown,
    QueueFullPeerSilent,
    WaitLimitTripped,
    LinkWasFull,
    NewPairMet,
    HeldUpTooLong,
    WriteSplitInParts,
    QueueContinued,
    QueueRewound,
    UpdateSyncBegan,
    FullSyncBegan,
    CompareSyncBegan,
    ProbeEqual,
    ProbeDiffered,
    ResyncSkippedCovered,
    ResyncWaitedForWrite,
    WriteWaitedForResync,
    SyncInterrupted,
    SyncNothingDirty,
    HoldEnded,
    HoldSavedByReconnect,
    StrictFailedWrite,
    DegradeReleasedWriters,
    ModeChangedLive,
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
    TailPulled,
    NothingToPull,
    ServedAloneInDoubt,
    TailAskedAbout,
    TailUnknown,
    WentBackInDoubt,
    MemoryShort,
    WindowGrew,
    WindowTakenBack,
    StalledAgain,
    SyncStalled,
    SyncWaitedForTurn,
    GoodbyeHeard,
    CutBegan,
    CutEnded,
    CutSavedRegion,
    HoleFound,
    CutSaveWaited,
    CutSpilled,
    CutInterrupted,
    CutGivenUp,
    SyncTurnedToCuts,
}

/// How often each branch was taken.
#[derive(Clone, Debug)]
pub struct Marks([u64; Mark::COUNT]);

impl Default for Marks {
    fn default() -> Self {
        Marks([0; Mark::COUNT])
    }
}

impl Marks {
    pub(crate) fn hit(&mut self, mark: Mark) {
        self.0[mark as usize] += 1;
    }

    pub fn count(&self, mark: Mark) -> u64 {
        self.0[mark as usize]
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Marks) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}
