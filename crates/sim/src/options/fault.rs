//! What can go wrong in a seed, and how a seed draws it.

use crate::rng::Rng;

macro_rules! fault_kinds {
    ($($(#[$doc:meta])* $kind:ident,)*) => {
        /// What can go wrong; each seed draws some.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FaultKind {
            $($(#[$doc])* $kind,)*
        }

        impl FaultKind {
            const EACH: &[FaultKind] = &[$(FaultKind::$kind),*];
        }
    };
}

fault_kinds! {
    KillPrimary,
    KillSecondary,
    PowerPrimary,
    PowerSecondary,
    PowerBoth,
    CleanRestart,
    Cut,
    CutOneWay,
    Swizzle,
    Flap,
    HalfOpen,
    DuplicateSession,
    ClockJump,
    LocalWriteErrors,
    ApplyErrors,
    RecordError,
    FlushFails,
    SecondaryFull,
    ReadErrors,
    SlowSecondary,
    SlowPrimary,
    StalledSecondary,
    /// While a node has no power, a bit of one of its records turns over.
    Rot,
    /// The same, and nothing of its bitmap or its activity log is left whole.
    RotAll,
    /// The same, and a write meant for another place is found over one of its records.
    Astray,
    /// A secondary's records come back as they were a while ago.
    OldCopy,
    /// Sectors of volumes rot, and a verify is ordered.
    RotVolume,
    /// The secondary's disks are slow, and in their midst its power fails, or the primary's does for good.
    SlowThenPower,
    ModeChange,
    Switchover,
    Failover,
    /// The copy's content is to count: the other node serves until it has arrived, then the primary takes over again.
    ReverseSync,
    /// A secondary's records are lost in a moment in which both copies are equal, and its operator knows that.
    EqualCopies,
    OperatorLogging,
    /// A volume is set aside for a bulk load, or one rejoins.
    BulkLoad,
    FullSync,
    /// Devices of one node or of both are enlarged while the group is used; a node that starts again, or its half of the group, sees it.
    LargerDevices,
    /// Any command, to any node, at any moment.
    Whim,
    /// The same to both nodes at once.
    WhimOfTwo,
    /// The file gets other volumes for a group, or a node takes that up.
    OtherVolumes,
    /// A disk of a volume dies and is detached, or another one comes in its place.
    DeadDisk,
}

/// What a life draws from, beside what makes it one.
const LIVES: [FaultKind; 21] = [
    FaultKind::KillPrimary,
    FaultKind::KillSecondary,
    FaultKind::PowerPrimary,
    FaultKind::PowerSecondary,
    FaultKind::PowerBoth,
    FaultKind::CleanRestart,
    FaultKind::Cut,
    FaultKind::CutOneWay,
    FaultKind::Flap,
    FaultKind::HalfOpen,
    FaultKind::LocalWriteErrors,
    FaultKind::RecordError,
    FaultKind::SecondaryFull,
    FaultKind::SlowSecondary,
    FaultKind::SlowThenPower,
    FaultKind::ModeChange,
    FaultKind::Switchover,
    FaultKind::Failover,
    FaultKind::ReverseSync,
    FaultKind::BulkLoad,
    FaultKind::FullSync,
];

impl FaultKind {
    /// All but what lives alone have.
    pub const ALL: &[FaultKind] = FaultKind::EACH.split_at(FaultKind::EACH.len() - 2).0;

    /// Every seed kills each node of a group at least once; the rest is drawn, and comes in any order.
    pub fn draw(rng: &mut Rng) -> Vec<FaultKind> {
        let mut faults = vec![FaultKind::KillPrimary, FaultKind::PowerSecondary, FaultKind::Cut];
        for fault in FaultKind::ALL.iter().copied().filter(|_| rng.percent(35)).collect::<Vec<_>>() {
            let at = rng.between(3, faults.len() as u64);
            faults.insert(at as usize, fault);
        }
        faults
    }

    /// Groups get other volumes and disks die, among whatever else befalls a pair.
    pub fn draw_life(rng: &mut Rng) -> Vec<FaultKind> {
        let mut faults = vec![FaultKind::OtherVolumes; 6];
        faults.extend((0..rng.below(3)).map(|_| FaultKind::DeadDisk));
        faults.extend((0..rng.between(2, 8)).map(|_| *rng.pick(&LIVES)));
        faults
    }

    /// Mostly commands, among a few faults.
    pub fn draw_skirmish(rng: &mut Rng) -> Vec<FaultKind> {
        let mut faults = vec![
            FaultKind::Whim,
            FaultKind::Whim,
            FaultKind::WhimOfTwo,
            FaultKind::DuplicateSession,
            FaultKind::CleanRestart,
        ];
        faults.extend((0..rng.between(2, 8)).map(|_| *rng.pick(FaultKind::ALL)));
        faults
    }
}
