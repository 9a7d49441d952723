//! What the check says, as data and as sentences.

use std::fmt;

use crate::stamp::{RunId, VolumeNumber, WriteName, WriterId};

/// A sector of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SectorPosition {
    pub volume: VolumeNumber,
    pub offset_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrefixVerdict {
    /// The images are a prefix of the write order over all their volumes.
    Prefix(PrefixReport),
    /// They are not, and this is the first reason: damage before disorder; damage in the order of volumes and offsets,
    /// absent writes in the order of their issue.
    Broken(Violation),
}

/// Which prefix it is. Where the images leave a choice (a write that concurrent ones cover wholly may be in or out) the
/// longest prefix is meant, so nothing is called lost that need not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixReport {
    /// Acknowledged writes in the prefix, and those of unknown outcome that are seen in the images.
    pub included_writes: u64,
    /// Acknowledged writes that are not in the prefix.
    pub lost_writes: u64,
    /// Their bytes.
    pub lost_bytes: u64,
    /// The first of them by issue.
    pub lost_first: Option<WriteName>,
    /// Sorted by writer.
    pub newest: Vec<WriterPrefix>,
}

/// How far the prefix goes for one writer. Numbers count from 1; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterPrefix {
    pub writer: WriterId,
    pub included: u64,
    pub acknowledged: u64,
}

/// Why images are no prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A stamp whose check does not hold: the sector is torn inside, or rotten.
    Damaged { position: SectorPosition, claims: WriteName },
    /// Neither a stamp nor the base.
    Garbage { position: SectorPosition },
    /// A whole sector, but of another volume or offset.
    Misplaced { position: SectorPosition, name: WriteName, belongs: SectorPosition },
    /// A stamp of another run.
    Foreign { position: SectorPosition, run: RunId },
    /// A stamp of a write that the log does not have, or has otherwise.
    Unknown { position: SectorPosition, name: WriteName },
    /// The image ends before a write that was issued to it.
    Short { volume: VolumeNumber, size_bytes: u64, needed_bytes: u64 },
    /// Part of a write is there, and here, where another part belongs, is something older (`None`: the base).
    Torn { position: SectorPosition, name: WriteName, found: Option<WriteName>, seen: SectorPosition },
    /// A write is absent (here is something older, `None`: the base), although `later`, issued after it had been
    /// acknowledged, is there.
    Missing {
        position: SectorPosition,
        name: WriteName,
        found: Option<WriteName>,
        later: WriteName,
        later_seen: SectorPosition,
    },
    /// Writes that overlap were ordered one way here and the other way elsewhere: no single order explains both.
    Disorder { position: SectorPosition, names: Vec<WriteName> },
    /// A write that was promised to be durable is not there: here is something older (`None`: the base).
    Forgotten { position: SectorPosition, name: WriteName, found: Option<WriteName> },
}

impl Violation {
    /// Where it shows; for a short image, its end.
    pub fn position(&self) -> SectorPosition {
        match *self {
            Self::Damaged { position, .. }
            | Self::Garbage { position }
            | Self::Misplaced { position, .. }
            | Self::Foreign { position, .. }
            | Self::Unknown { position, .. }
            | Self::Torn { position, .. }
            | Self::Missing { position, .. }
            | Self::Disorder { position, .. }
            | Self::Forgotten { position, .. } => position,
            Self::Short { volume, size_bytes, .. } => SectorPosition { volume, offset_bytes: size_bytes },
        }
    }
}

impl fmt::Display for SectorPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {}, offset {}", self.volume.0, self.offset_bytes)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = |found: &Option<WriteName>| found.map_or("the base".to_owned(), |name| name.to_string());
        write!(f, "{}: ", self.position())?;
        match self {
            Self::Damaged { claims, .. } => {
                write!(f, "a sector that says it is of {claims} fails its own check: torn or rotten")
            }
            Self::Garbage { .. } => write!(f, "neither a writer's sector nor the base"),
            Self::Misplaced { name, belongs, .. } => {
                write!(f, "a sector of {name} that belongs on {belongs}")
            }
            Self::Foreign { run, .. } => write!(f, "a sector of another run, {:016x}", run.0),
            Self::Unknown { name, .. } => {
                write!(f, "a sector of {name}, which the writers' log does not have in this form")
            }
            Self::Short { needed_bytes, .. } => {
                write!(f, "the image ends here, but writes were issued up to byte {needed_bytes}")
            }
            Self::Torn { name, found, seen, .. } => write!(
                f,
                "{name} is there only in part: it is on {seen}, but here is {}, which it replaced",
                content(found)
            ),
            Self::Missing { name, found, later, later_seen, .. } => write!(
                f,
                "{name} is missing: here is {}, which it replaced, yet {later}, issued after that was acknowledged, \
                 is on {later_seen}",
                content(found)
            ),
            Self::Forgotten { name, found, .. } => {
                write!(f, "{name}, promised to be durable, is forgotten: here is {}, which it replaced", content(found))
            }
            Self::Disorder { names, .. } => {
                let names: Vec<String> = names.iter().map(WriteName::to_string).collect();
                write!(f, "no single order of the overlapping writes explains the images: {}", names.join(", "))
            }
        }
    }
}
