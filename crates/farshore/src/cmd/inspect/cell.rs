//! A cell's four copies: which are whole, which one counts, and damage by its offset in the file.

use engine::cell::{self, BYTES, CELL_BYTES, CellChoice, CellHead, CellKind, Copy, Rejected};

use super::report::InspectReport;

/// A cell as it was found.
pub(super) struct SeenCell<'a> {
    kind: CellKind,
    offset: u64,
    pub copies: [Copy<'a>; 4],
    pub choice: CellChoice<'a>,
}

/// Reads the cell at `offset` from its bytes.
pub(super) fn see(kind: CellKind, tag: u64, offset: u64, bytes: &[u8]) -> SeenCell<'_> {
    SeenCell {
        kind,
        offset,
        copies: cell::copies(kind, tag, offset, bytes),
        choice: cell::choose(kind, tag, offset, bytes),
    }
}

/// Whose cells these are: the tag of the newest whole copy. `inspect` knows no configuration to compare it with.
pub(super) fn tag(kind: CellKind, bytes: &[u8]) -> u64 {
    let heads = bytes.chunks(BYTES).filter_map(|block| cell::decode(kind, block).ok()).map(|(head, _)| head);
    heads.max_by_key(|head: &CellHead| head.update).map_or(0, |head| head.tag)
}

impl SeenCell<'_> {
    /// Where copy number `index` stands in the file.
    pub fn offset(&self, index: usize) -> u64 {
        self.offset + (index * BYTES) as u64
    }

    /// Whether copy number `index` holds what counts; its twin may, too.
    pub fn counts(&self, index: usize) -> bool {
        self.choice.newest.is_ok() && self.copies[index] == self.choice.newest
    }

    /// A line for each copy.
    pub fn lines(&self, report: &mut InspectReport) {
        for (index, copy) in self.copies.iter().enumerate() {
            let words = match copy {
                Ok((head, _)) if self.counts(index) => {
                    format!("update {}: the newest whole one, it counts", head.update)
                }
                Ok((head, _)) => format!("update {}", head.update),
                Err(rejected) => rejected_words(self.kind, *rejected),
            };
            report.line(&format!("slot {}, byte {}", index / 2, self.offset(index)), words);
        }
    }

    /// A warning for each copy that is damaged.
    pub fn damage(&self, report: &mut InspectReport) {
        let helps = match self.lost() {
            None => "another copy counts, and updates write this one anew",
            Some(_) => "no other copy makes up for it",
        };
        for (index, copy) in self.copies.iter().enumerate() {
            let (first, last, slot) = (self.offset(index), self.offset(index + 1) - 1, index / 2);
            let what = match copy {
                Err(Rejected::Damaged) => "are damaged: rotten, or torn by a crash during an update",
                Err(Rejected::Astray) => "hold what belongs to another offset: a write went astray",
                _ => continue,
            };
            report.warnings.push(format!("bytes {first} to {last} (slot {slot}) {what}; {helps}"));
        }
    }

    /// Why nothing in the cell counts; [`Rejected::Astray`] when its newest update may be lost. Nothing for a blank one.
    pub fn lost(&self) -> Option<Rejected> {
        match self.choice.newest {
            Ok(_) if self.choice.ambiguous => Some(Rejected::Astray),
            Ok(_) | Err(Rejected::Blank) => None,
            Err(rejected) => Some(rejected),
        }
    }
}

/// Every cell of a file that counts goes to `take`; of the others, damage is reported with its offset, and `costs` says what
/// the daemon does without them. A file of another version is of no use.
///
/// How many cells are lost.
pub(super) fn each(
    kind: CellKind,
    image: &[u8],
    report: &mut InspectReport,
    costs: &str,
    mut take: impl FnMut(&CellHead, &[u8]) -> Result<(), Rejected>,
) -> usize {
    let tag = tag(kind, image);
    let mut lost = 0;
    for (index, bytes) in image.chunks(CELL_BYTES as usize).enumerate() {
        let seen = see(kind, tag, index as u64 * CELL_BYTES, bytes);
        seen.damage(report);
        let why = match (seen.lost(), seen.choice.newest) {
            (None, Ok((head, body))) => take(&head, body).err(),
            (why, _) => why,
        };
        match why {
            None => {}
            Some(Rejected::VersionUnknown(version)) => report.failure = Some(version_sentence(kind, version)),
            Some(_) => {
                lost += 1;
                let (first, last) = (seen.offset(0), seen.offset(4) - 1);
                report.warnings.push(format!("cell {index} (bytes {first} to {last}) is lost: {costs}"));
            }
        }
    }
    lost
}

/// A version that this program does not know, and what to do.
pub(super) fn version_sentence(kind: CellKind, version: u16) -> String {
    if version > kind.version {
        format!(
            "a newer farshore wrote it (format version {version}, this program knows {}); look at it with that one",
            kind.version
        )
    } else {
        format!(
            "it is of format version {version}, which was never released (this program knows {}): start this node with an \
             empty state directory, and sync in full from the other node",
            kind.version
        )
    }
}

pub(super) fn rejected_words(kind: CellKind, rejected: Rejected) -> String {
    match rejected {
        Rejected::Blank => "blank: never written".into(),
        Rejected::Damaged => "damaged: its checksum or its magic number is wrong".into(),
        Rejected::VersionUnknown(version) if version > kind.version => {
            format!("of format version {version}, which a newer farshore wrote")
        }
        Rejected::VersionUnknown(version) => format!("of format version {version}, which was never released"),
        Rejected::Foreign => "of another cluster or group".into(),
        Rejected::Astray => "whole, but of another offset: a write went astray".into(),
    }
}
