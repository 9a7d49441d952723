//! What a group is busy with besides serving: one phase at a time, and one table of the edges between them.

use crate::RefusalCode;
use crate::ids::CommandId;
use crate::state::Broken;
use crate::time::Mono;

/// A promotion that was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Promotion {
    pub id: CommandId,
    pub force: bool,
    pub proviso: PromotionProviso,
    pub entropy: u64,
}

/// What must hold still when a promotion is put on record: a rollback before that may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromotionProviso {
    Nothing,
    /// Nothing that was acknowledged can be missing.
    PeerWindow,
    /// The peer is heard as the secondary: this node is promoted for its clients.
    SecondaryPeer,
}

impl Promotion {
    pub fn typed(id: CommandId, force: bool, entropy: u64) -> Promotion {
        Promotion { id, force, proviso: PromotionProviso::Nothing, entropy }
    }
}

/// What a rollback is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterRollback {
    Promote(Promotion),
    /// It was interrupted: finish it and start as a secondary.
    Start,
}

/// What the group is busy with besides serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting(StartStage),
    Running,
    Demoting {
        id: CommandId,
        deadline: Mono,
    },
    Promoting(Promotion),
    /// Back to the rollback point.
    RollingBack(AfterRollback),
    /// A new role is being recorded; nothing is accepted meanwhile.
    Recording,
    /// The peer gets until the deadline to have everything; what it lacks then stays dirty.
    Stopping {
        deadline: Mono,
    },
    /// The dirty regions, then the clean stop are being recorded.
    StopRecording,
    Stopped,
}

/// How far the start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartStage {
    Idle,
    /// What a killed run had not made durable still reads as if it were; a power loss would take it back.
    FlushFiles {
        left: usize,
        entropy: u64,
        boot: u128,
    },
    Marks {
        entropy: u64,
        boot: u128,
    },
    MarksFlush {
        entropy: u64,
        boot: u128,
    },
    Superblocks {
        entropy: u64,
        boot: u128,
    },
    /// There is no superblock: whether the group is new is told by what stands beside it.
    Blank {
        entropy: u64,
        boot: u128,
        beside: OtherFiles,
    },
    /// A new group: what an older one may have left in these files is wiped.
    Wipe {
        left: usize,
    },
    /// Cells are read from this one on.
    Bitmap {
        next: usize,
    },
    Activity,
    StoringBits,
    EmptyingLog,
    /// A sync was under way: what it overwrote is read back first.
    Undo,
    Replay,
    /// A primary's log of its queue, which counts: its file is flushed as the others are,
    QueueFlush,
    /// where it begins,
    QueueHead,
    /// whether it is whole,
    QueueRead,
    /// that it is written again, on record,
    QueueMark,
    /// and what of it is written again.
    QueueWrite,
    Flush {
        left: usize,
    },
    Recording,
}

/// What stands beside a blank superblock, in the order in which it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherFiles {
    Log,
    Bits,
    Journal,
}

/// The legal edges.
///
/// | from | to | when |
/// |---|---|---|
/// | starting | running | the group is ready, or cannot be taken up |
/// | starting | promoting, rolling back | an operator's way out of a start that stands still; a rollback that was interrupted |
/// | running | demoting, promoting, rolling back, stopping | an operator |
/// | running | recording | both nodes are equal, and this one hands over |
/// | demoting, promoting, rolling back | recording | what the new role needs is there |
/// | demoting, promoting, rolling back, recording | running | it is done, or it was refused |
/// | rolling back | promoting | the sync has ended meanwhile: there is no need to go back |
/// | rolling back | starting | an interrupted one is done: this run is recorded |
/// | stopping | stop-recording | all is at rest |
/// | starting, rolling back, stopping, stop-recording | stopped | it is recorded, or cannot be; a failed group may stop before its record ends |
fn legal(from: Phase, to: Phase) -> bool {
    use Phase::*;
    match (from, to) {
        (Starting(from), Starting(to)) => follows(from, to),
        (Starting(_), to) => matches!(to, Running | Promoting(_) | RollingBack(_) | Stopped),
        (Running, to) => matches!(to, Demoting { .. } | Promoting(_) | RollingBack(_) | Recording | Stopping { .. }),
        (Demoting { .. } | Promoting(_), to) => matches!(to, Recording | Running),
        (RollingBack(_), Starting(to)) => to == StartStage::Recording,
        (RollingBack(_), to) => matches!(to, Recording | Promoting(_) | Running | Stopped),
        (Recording, to) => to == Running,
        (Stopping { .. }, to) => matches!(to, StopRecording | Stopped),
        (StopRecording | Stopped, to) => to == Stopped,
    }
}

/// The stages of a start: which may come behind which.
fn follows(from: StartStage, to: StartStage) -> bool {
    use StartStage::*;
    match from {
        Idle => matches!(to, FlushFiles { .. }),
        FlushFiles { .. } => matches!(to, Marks { .. }),
        Marks { .. } => matches!(to, MarksFlush { .. } | Superblocks { .. }),
        MarksFlush { .. } => matches!(to, Superblocks { .. }),
        Superblocks { .. } => matches!(to, Blank { .. } | Bitmap { .. }),
        Blank { .. } => matches!(to, Blank { .. } | Wipe { .. }),
        Wipe { .. } => to == StoringBits,
        Bitmap { .. } => matches!(to, Bitmap { .. } | Activity),
        Activity => to == StoringBits,
        StoringBits => to == EmptyingLog,
        EmptyingLog => matches!(to, Undo | Replay | QueueFlush | Flush { .. }),
        QueueFlush => matches!(to, QueueHead | Flush { .. }),
        QueueHead => matches!(to, QueueRead | Flush { .. }),
        QueueRead => matches!(to, QueueMark | Flush { .. }),
        QueueMark => to == QueueWrite,
        QueueWrite => matches!(to, Flush { .. }),
        Undo => to == Replay,
        Replay => matches!(to, Flush { .. }),
        Flush { .. } => to == Recording,
        Recording => false,
    }
}

/// The phase of a group, and what broke in it.
pub(crate) struct Lifecycle {
    phase: Phase,
    broken: Option<Broken>,
}

impl Lifecycle {
    pub fn new() -> Lifecycle {
        Lifecycle { phase: Phase::Starting(StartStage::Idle), broken: None }
    }

    /// A store broke, for good: only a restart or a reset helps (rule 12). What the group was busy with ends by itself.
    pub fn fail(&mut self, broken: Broken) {
        self.broken.get_or_insert(broken);
    }

    pub fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// The only way from one phase to another.
    pub fn enter(&mut self, to: Phase) {
        assert!(cfg!(feature = "injected-faults") || legal(self.phase, to), "{:?} -> {to:?}", self.phase);
        self.phase = to;
    }

    pub fn enter_stage(&mut self, to: StartStage) {
        self.enter(Phase::Starting(to));
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The stage of the start, while there is one.
    pub fn stage(&self) -> Option<StartStage> {
        match self.phase {
            Phase::Starting(stage) => Some(stage),
            _ => None,
        }
    }

    pub fn is_at(&self, stage: StartStage) -> bool {
        self.stage() == Some(stage)
    }

    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// What a command is told that only a group takes which runs.
    pub fn refusal(&self) -> RefusalCode {
        match self.phase {
            Phase::Starting(_) | Phase::RollingBack(AfterRollback::Start) => RefusalCode::GroupStarting,
            // One that runs has ended what it was busy with: the same command is taken now.
            Phase::Demoting { .. }
            | Phase::Promoting(_)
            | Phase::RollingBack(AfterRollback::Promote(_))
            | Phase::Recording
            | Phase::Running => RefusalCode::RoleChanging,
            Phase::Stopping { .. } | Phase::StopRecording | Phase::Stopped => RefusalCode::GroupStopping,
        }
    }

    pub fn is_rolling_back(&self) -> bool {
        matches!(self.phase, Phase::RollingBack(_))
    }

    pub fn has_stopped(&self) -> bool {
        self.phase == Phase::Stopped
    }

    /// One of the operations that the stage waits for is done; true: it was the last.
    pub fn one_done(&mut self) -> bool {
        match &mut self.phase {
            Phase::Starting(
                StartStage::FlushFiles { left, .. } | StartStage::Wipe { left } | StartStage::Flush { left },
            ) => {
                *left -= 1;
                *left == 0
            }
            other => unreachable!("{other:?} counts nothing"),
        }
    }

    /// The command that waits for a promotion, on its way back or after it.
    pub fn promotion_under_way(&self) -> Option<CommandId> {
        match self.phase {
            Phase::Promoting(promotion) | Phase::RollingBack(AfterRollback::Promote(promotion)) => Some(promotion.id),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_stopped_stays_stopped() {
        let mut lifecycle = Lifecycle::new();
        lifecycle.enter(Phase::Stopped);
        lifecycle.enter(Phase::Stopped);
        assert!(lifecycle.has_stopped());
        for to in [Phase::Running, Phase::Recording, Phase::StopRecording, Phase::Starting(StartStage::Idle)] {
            assert!(!legal(Phase::Stopped, to), "{to:?}");
        }
    }

    #[test]
    #[should_panic(expected = "Stopped -> Running")]
    fn an_edge_that_is_not_in_the_table_is_refused() {
        let mut lifecycle = Lifecycle::new();
        lifecycle.enter(Phase::Stopped);
        lifecycle.enter(Phase::Running);
    }

    #[test]
    fn a_stage_counts_what_it_waits_for() {
        let mut lifecycle = Lifecycle { phase: Phase::Starting(StartStage::Flush { left: 2 }), broken: None };
        assert!(!lifecycle.one_done());
        assert!(lifecycle.one_done());
    }
}
