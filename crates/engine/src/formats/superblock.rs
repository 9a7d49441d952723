//! What a node must know of a group after any crash: one [`cell`], whose newest whole copy counts (docs/book/format.md).

use alloc::vec::Vec;

use crate::formats::cell::{self, CellChoice, CellHead, CellKind};
use crate::formats::codec::{FieldDecoder, FieldEncoder};
use crate::formats::identity::{Confirmed, Identity, Role};
use crate::ids::{Generation, Incarnation, NodeId, Position, Seq, VolumeId, VolumeSet};
use crate::injected_fault::{Fault, injected};
use crate::limits::{SECTOR_BYTES, VOLUMES_MAX};
use crate::state::{CopyDoubts, Mode};
use crate::time::Wall;

pub use crate::formats::cell::Rejected;

/// Format versions: 7 knows what speaks against the copy, what the peer had confirmed before the last change of role, where the copy went
/// back to, over which history this node keeps its own, whether a sync overwrites a history of the copy's own, which volumes are set aside, detached, not filled yet or renamed or hold a history of this node's own, and the peer window that was given; 6 knows the sizes of the group, and the mode of the primary that the copy is of; 5 knows what a secondary gave up; 4 knows the generations of the unverified run; 3 carries what the peer confirmed; 2 keeps each update twice,
/// and knows the flush points, the unverified run and the rollback point. 6 to 1 were never released.
pub const VERSION: u16 = 7;
pub const KIND: CellKind = CellKind { magic: *b"FSHSUPER", version: VERSION, oldest: VERSION };
/// The file: one cell.
pub const FILE_BYTES: u64 = cell::CELL_BYTES;

/// Of a volume's size, in sectors.
const SIZE_BYTES: usize = 6;

/// What stands above that size.
mod volume_flag {
    /// The volume is set aside.
    pub const ASIDE: u64 = 1 << 47;
    /// The sync under way leaves it aside.
    pub const SYNC_ASIDE: u64 = 1 << 46;
    pub const ALL: u64 = ASIDE | SYNC_ASIDE;
    /// Above its flush point, one of: the volume is detached,
    pub const DETACHED: u64 = 2 << 62;
    /// it has a device that was not filled yet,
    pub const UNFILLED: u64 = 1 << 62;
    /// or it has a new name.
    pub const RENAMED: u64 = 3 << 62;
    pub const WHY_ASIDE: u64 = 3 << 62;
    /// A history of this node's own stands in it.
    pub const OWN_HISTORY: u64 = 1 << 61;
    /// A run counts its own writes from 1, and none comes there.
    pub const FLUSHED_MAX: u64 = OWN_HISTORY - 1;
}

/// Where replay of the journal begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct JournalHead {
    pub offset: u64,
    /// Ordinal of the first batch to replay.
    pub ordinal: u64,
}

/// A rollback point in the undo store: the image as it was at `position`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RollbackPoint {
    /// Names it; 0: there is none.
    pub id: u64,
    pub position: Position,
    /// Where that history left the one before.
    pub parent: Position,
    /// The primary's stamp of that position.
    pub wall: Wall,
    /// Batches of the undo store that were durable when this was written: fewer whole ones mean damage.
    pub batches: u64,
    /// What the sync may still overwrite for the first time; reserved in the store.
    pub reserved_bytes: u64,
    /// The sync overwrites a history of this copy's own: before its end is recorded, what was saved for the point stands in a delta.
    pub is_of_fork: bool,
}

impl RollbackPoint {
    /// In place of the count once a start found fewer: nothing was saved since, so whatever a later one reads, the point is
    /// no image.
    const DAMAGED: u64 = u64::MAX;

    pub fn was_damaged(&self) -> bool {
        self.batches == RollbackPoint::DAMAGED
    }

    pub(crate) fn give_up(&mut self) {
        self.batches = RollbackPoint::DAMAGED;
    }
}

/// Why a superblock that names this node as the peer is not taken up.
pub const PEERS_DIRECTORY: &str = "the superblock was written by the other node: this is a copy of its state directory; give each \
     node its own back, or remove the group's state directory here and sync in full from the other node";

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Superblock {
    /// Counts updates; the higher one is newer. Its parity is its slot.
    pub update: u64,
    /// Identity of cluster and group.
    pub tag: u64,
    pub node: NodeId,
    pub peer: NodeId,
    pub identity: Identity,
    /// The last stop was clean: the activity log says nothing.
    pub clean: bool,
    /// All dirty regions are to be compared, not just sent: they were not known exactly.
    pub compare: bool,
    /// The operator asked for logging; autosync waits for `sync`.
    pub held_in_logging: bool,
    /// A volume was written while the node was stopped, as a primary: what stands here goes to the peer when `sync` is typed.
    pub changed_outside: bool,
    /// The volumes are being rolled back to the rollback point: a start goes on with it.
    pub rolling_back: bool,
    /// The peer does not know this generation yet: writes need no new one.
    pub alone: bool,
    /// A primary's: every number that it gave since its log of the queue began stands there, before it was written or sent. The log counts
    /// if this says so, and not otherwise.
    pub queue_logged: bool,
    /// Which log that is: [`queue_log::name_of`] the run that began it, as its cell says too. A file of before may still be there.
    ///
    /// [`queue_log::name_of`]: crate::formats::queue_log::name_of
    pub queue_log: u32,
    /// A primary's: a start is writing what the log of its queue holds once more, and older content may stand on the volumes until that is done.
    /// No start goes on without that log.
    pub queue_redo: bool,
    /// What speaks against the copy, whichever node serves.
    pub doubts: CopyDoubts,
    pub journal: JournalHead,
    /// Batches of the journal below this ordinal were durable when this was written: fewer whole ones mean damage.
    pub confirmed_ordinal: u64,
    /// Batches below this ordinal were whole when this run began, whichever run wrote them; later ones are this run's.
    pub own_from_ordinal: u64,
    /// The primary's stamp of the last applied write.
    pub applied_wall: Wall,
    /// The machine's boot in which this run of the node takes place: after another one, caches are lost.
    pub boot: u128,
    /// An earlier run of this node as primary whose last writes may be missing here while the peer has them; 0: none. A
    /// demotion does not answer it.
    pub unverified_run: Incarnation,
    /// The generations of that run: its last one, and the one before, in which a peer stands that did not hear of the last.
    pub unverified_generations: [Generation; 2],
    /// The group was served before that was reconciled: what only the peer has is asked about.
    pub served_unverified: bool,
    /// A secondary's: writes of its stream up to here may be missing at their primary, and are not kept here any more. `NONE`:
    /// nothing was given up; all ones: whatever it may have confirmed was. All ones on a primary: its export stays closed until its
    /// operator chooses; unverified, what it lost is given up there; else it is new, and opens also when it has met a peer that is.
    pub given_up: Seq,
    pub rollback_point: RollbackPoint,
    /// As a primary: after a clean stop the activity log is forgotten because of this. Blank on a secondary.
    pub confirmed: Confirmed,
    /// What the peer had confirmed of the last history of which this node was primary, before its role changed. Until a sync has made
    /// this copy equal, that history's fork is judged by it.
    pub confirmed_before: Confirmed,
    /// The image before a sync that this copy went back to, the last time; what was undone for it is dirty. Blank: none.
    pub went_back_to: Position,
    /// [`Identity::stand`] of the peer over which this primary's content was chosen, until that takes this history up; 0: none.
    pub kept_over: u64,
    /// The mode in which the primary served whose copy this is, as far as it was told; a primary's own before it was demoted.
    pub primary_mode: Option<Mode>,
    /// For so many milliseconds this node as primary may have told its peer that it answers nobody alone; the next start waits for that.
    pub window_ms: u32,
    /// For each volume its size in this group: its device may hold more. Empty: as much as its device.
    pub sizes: Vec<u64>,
    /// Volumes that are set aside. A primary's: what is written to them is not sent. A secondary's: of what its copy presents they are no
    /// part, or of its rollback point while a sync goes on.
    pub aside: VolumeSet,
    /// A secondary's: of the image that the sync under way will make they are no part.
    pub sync_aside: VolumeSet,
    /// Volumes without a device here, or whose device counts for nothing before a start has recorded that all of it may differ. All of them
    /// are set aside as well.
    pub detached: VolumeSet,
    /// A secondary's: volumes whose device holds nothing of the group, as it came in place of another one, or with the volume, and no sync
    /// has filled it since. No promotion serves what stands in them. They are set aside as well.
    pub unfilled: VolumeSet,
    /// A secondary's: volumes that have a new name here, with the content that they had. Whether the primary calls the same so, nobody knows
    /// before a sync has filled them. They are set aside as well.
    pub renamed: VolumeSet,
    /// Volumes in which a history of this node's own stands, or stood when the sync under way began, and no delta holds it yet: the copy is of
    /// another history. A sync over a fork has not ended, or has left them out; the one that takes them in leaves a delta.
    pub own_history: VolumeSet,
    /// For each volume: numbers up to here are known to be flushed on it (of the unverified run, if there is one, else of
    /// this one). Recorded only where an acknowledged flush would be undone otherwise; a primary's.
    pub flushed: Vec<Seq>,
}

mod flag {
    pub const CLEAN: u16 = 1;
    pub const COMPARE: u16 = 2;
    pub const HELD_IN_LOGGING: u16 = 4;
    pub const ROLLING_BACK: u16 = 8;
    pub const ALONE: u16 = 16;
    pub const SERVED_UNVERIFIED: u16 = 32;
    pub const CHANGED_OUTSIDE: u16 = 64;
    pub const ASSUMED_EQUAL: u16 = 128;
    pub const DIFFERS: u16 = 256;
    pub const POINT_OF_FORK: u16 = 512;
    pub const QUEUE_LOGGED: u16 = 1024;
    pub const QUEUE_REDO: u16 = 2048;
    pub const ALL: u16 = 4095;
}

impl Superblock {
    /// What the peer had confirmed to this node as primary, now or before its role changed.
    pub(crate) fn confirmed_at_last(&self) -> Confirmed {
        if self.confirmed.position.generation.is_blank() { self.confirmed_before } else { self.confirmed }
    }

    /// The operator was asked what becomes of writes that only the peer of this primary may have, and has not answered; or the primary
    /// is new.
    pub(crate) fn is_closed_until_chosen(&self) -> bool {
        self.identity.role == Role::Primary && self.given_up == Seq(u64::MAX)
    }

    /// A new primary that has neither met its peer nor was told to serve without: nothing was ever served.
    pub(crate) fn is_unmet(&self) -> bool {
        self.is_closed_until_chosen() && self.unverified_run == Incarnation(0)
    }

    /// A primary's: a flush of its last run failed, and what its caches held may be lost (rule 12).
    pub fn has_lost_caches(&self) -> bool {
        self.identity.role == Role::Primary && !self.clean && self.boot == 0 && !self.is_unmet()
    }

    fn head(&self) -> CellHead {
        let bit = |on: bool, bit: u16| if on { bit } else { 0 };
        CellHead {
            node: self.node,
            peer: self.peer,
            flags: bit(self.clean, flag::CLEAN)
                | bit(self.compare, flag::COMPARE)
                | bit(self.held_in_logging, flag::HELD_IN_LOGGING)
                | bit(self.changed_outside, flag::CHANGED_OUTSIDE)
                | bit(self.rolling_back, flag::ROLLING_BACK)
                | bit(self.alone, flag::ALONE)
                | bit(self.served_unverified, flag::SERVED_UNVERIFIED)
                | bit(self.doubts.assumed_equal, flag::ASSUMED_EQUAL)
                | bit(self.doubts.differs, flag::DIFFERS)
                | bit(self.rollback_point.is_of_fork, flag::POINT_OF_FORK)
                | bit(self.queue_logged, flag::QUEUE_LOGGED)
                | bit(self.queue_redo, flag::QUEUE_REDO),
            update: self.update,
            tag: self.tag,
            offset: 0,
        }
    }

    /// Both copies of this update, to be written at [`Superblock::slot_offset`].
    pub fn encode(&self) -> Vec<u8> {
        let mut w = FieldEncoder::default();
        self.identity.encode(&mut w);
        w.u64(self.journal.offset);
        w.u64(self.journal.ordinal);
        w.u64(self.confirmed_ordinal);
        w.u64(self.own_from_ordinal);
        w.u64(self.applied_wall.0);
        w.0.extend_from_slice(&self.boot.to_le_bytes());
        w.u64(self.unverified_run.0);
        self.unverified_generations.iter().for_each(|generation| w.generation(*generation));
        w.u64(self.given_up.0);
        w.u64(self.rollback_point.id);
        w.position(self.rollback_point.position);
        w.position(self.rollback_point.parent);
        w.u64(self.rollback_point.wall.0);
        w.u64(self.rollback_point.batches);
        w.u64(self.rollback_point.reserved_bytes);
        self.confirmed.encode(&mut w);
        self.confirmed_before.encode(&mut w);
        w.position(self.went_back_to);
        w.u64(self.kept_over);
        w.u8(self.primary_mode.map_or(0, |mode| mode.number() + 1));
        w.u32(self.window_ms);
        w.u16(self.queue_log as u16);
        w.u8((self.queue_log >> 16) as u8);
        let volumes = self.flushed.len().max(self.sizes.len()).max(self.aside.end()).max(self.sync_aside.end());
        let volumes = volumes.max(self.detached.end()).max(self.unfilled.end()).max(self.renamed.end());
        let volumes = volumes.max(self.own_history.end());
        w.u16(volumes as u16);
        for at in 0..volumes {
            let id = VolumeId(at as u16);
            let flag = |set: &VolumeSet, flag| if set.contains(id) { flag } else { 0 };
            let above = flag(&self.detached, volume_flag::DETACHED)
                | flag(&self.unfilled, volume_flag::UNFILLED)
                | flag(&self.renamed, volume_flag::RENAMED)
                | flag(&self.own_history, volume_flag::OWN_HISTORY);
            let flushed = self.flushed.get(at).map_or(0, |seq| seq.0);
            w.u64(flushed.min(volume_flag::FLUSHED_MAX) | above);
            let sectors = self.sizes.get(at).map_or(0, |size| size / SECTOR_BYTES);
            let flags = flag(&self.aside, volume_flag::ASIDE) | flag(&self.sync_aside, volume_flag::SYNC_ASIDE);
            w.0.extend_from_slice(&(sectors | flags).to_le_bytes()[..SIZE_BYTES]);
        }
        cell::encode(KIND, &self.head(), &w.0)
    }

    /// One copy.
    ///
    /// # Errors
    /// Why it does not count.
    pub fn decode(block: &[u8]) -> Result<Superblock, Rejected> {
        let (head, body) = cell::decode(KIND, block)?;
        Superblock::fields(&head, body).ok_or(Rejected::Damaged)
    }

    fn fields(head: &CellHead, body: &[u8]) -> Option<Superblock> {
        if head.flags & !flag::ALL != 0 {
            return None;
        }
        let is = |flag| head.flags & flag != 0;
        let mut r = FieldDecoder(body);
        let identity = Identity::decode(&mut r)?;
        let journal = JournalHead { offset: r.u64()?, ordinal: r.u64()? };
        let (confirmed_ordinal, own_from_ordinal) = (r.u64()?, r.u64()?);
        let (applied_wall, boot) = (Wall(r.u64()?), r.u128()?);
        let unverified_run = Incarnation(r.u64()?);
        let unverified_generations = [r.generation()?, r.generation()?];
        let given_up = Seq(r.u64()?);
        let rollback_point = point(&mut r, is(flag::POINT_OF_FORK))?;
        let (confirmed, confirmed_before) = (Confirmed::decode(&mut r)?, Confirmed::decode(&mut r)?);
        let (went_back_to, kept_over) = (r.position()?, r.u64()?);
        let primary_mode = decode_mode(r.u8()?)?;
        let window_ms = r.u32()?;
        let queue_log = u32::from(r.u16()?) | u32::from(r.u8()?) << 16;
        let VolumeFields { flushed, sizes, aside, sync_aside, detached, unfilled, renamed, own_history } =
            VolumeFields::decode(&mut r)?;
        Some(Superblock {
            update: head.update,
            tag: head.tag,
            node: head.node,
            peer: head.peer,
            identity,
            clean: is(flag::CLEAN),
            compare: is(flag::COMPARE),
            held_in_logging: is(flag::HELD_IN_LOGGING),
            changed_outside: is(flag::CHANGED_OUTSIDE),
            rolling_back: is(flag::ROLLING_BACK),
            alone: is(flag::ALONE),
            doubts: CopyDoubts { assumed_equal: is(flag::ASSUMED_EQUAL), differs: is(flag::DIFFERS) },
            served_unverified: is(flag::SERVED_UNVERIFIED),
            queue_logged: is(flag::QUEUE_LOGGED),
            queue_log,
            queue_redo: is(flag::QUEUE_REDO),
            journal,
            confirmed_ordinal,
            own_from_ordinal,
            applied_wall,
            boot,
            unverified_run,
            unverified_generations,
            given_up,
            rollback_point,
            confirmed,
            confirmed_before,
            went_back_to,
            kept_over,
            primary_mode,
            window_ms,
            sizes,
            aside,
            sync_aside,
            detached,
            unfilled,
            renamed,
            own_history,
            flushed,
        })
    }

    /// Where this update is written.
    pub fn slot_offset(&self) -> u64 {
        self.head().slot_offset()
    }
}

/// The mode of a primary, if one is known; `None`: it is none.
fn decode_mode(number: u8) -> Option<Option<Mode>> {
    match number {
        0 => Some(None),
        number => Some(Some(Mode::from_number(number - 1)?)),
    }
}

fn point(r: &mut FieldDecoder<'_>, is_of_fork: bool) -> Option<RollbackPoint> {
    Some(RollbackPoint {
        id: r.u64()?,
        position: r.position()?,
        parent: r.position()?,
        wall: Wall(r.u64()?),
        batches: r.u64()?,
        reserved_bytes: r.u64()?,
        is_of_fork,
    })
}

/// What it says volume by volume.
struct VolumeFields {
    flushed: Vec<Seq>,
    sizes: Vec<u64>,
    aside: VolumeSet,
    sync_aside: VolumeSet,
    detached: VolumeSet,
    unfilled: VolumeSet,
    renamed: VolumeSet,
    own_history: VolumeSet,
}

impl VolumeFields {
    fn decode(r: &mut FieldDecoder<'_>) -> Option<VolumeFields> {
        let count = usize::from(r.u16()?);
        if count > VOLUMES_MAX {
            return None;
        }
        let (mut flushed, mut sizes) = (Vec::new(), Vec::new());
        let (mut aside, mut sync_aside) = (VolumeSet::default(), VolumeSet::default());
        let (mut detached, mut unfilled) = (VolumeSet::default(), VolumeSet::default());
        let (mut renamed, mut own_history) = (VolumeSet::default(), VolumeSet::default());
        for id in (0..count as u16).map(VolumeId) {
            let through = r.u64()?;
            flushed.push(Seq(through & volume_flag::FLUSHED_MAX));
            let is = match through & volume_flag::WHY_ASIDE {
                volume_flag::DETACHED => Some(&mut detached),
                volume_flag::UNFILLED => Some(&mut unfilled),
                volume_flag::RENAMED => Some(&mut renamed),
                _ => None,
            };
            is.map(|set| set.insert(id));
            if through & volume_flag::OWN_HISTORY != 0 {
                own_history.insert(id);
            }
            let (low, high) = (r.u32()?, r.u16()?);
            let sectors = u64::from(low) | u64::from(high) << 32;
            sizes.push((sectors & !volume_flag::ALL) * SECTOR_BYTES);
            if sectors & volume_flag::ASIDE != 0 {
                aside.insert(id);
            }
            if sectors & volume_flag::SYNC_ASIDE != 0 {
                sync_aside.insert(id);
            }
        }
        Some(VolumeFields { flushed, sizes, aside, sync_aside, detached, unfilled, renamed, own_history })
    }
}

/// What a superblock file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperblockRead {
    /// The group as it was last recorded; `None`: the group is new.
    pub found: Option<Superblock>,
    /// Copies that do not count, though another does.
    pub damaged: u32,
}

/// Chooses among the copies in a superblock file.
///
/// # Errors
/// Why the group must not be taken up.
pub fn read(bytes: &[u8], tag: u64) -> Result<SuperblockRead, Rejected> {
    let CellChoice { newest, damaged, ambiguous, .. } = cell::choose(KIND, tag, 0, bytes);
    let found = match newest {
        // What was recorded last may be lost: roles and confirmations of it would be forgotten.
        Ok(_) if ambiguous => return Err(Rejected::Astray),
        Ok((head, body)) => Some(Superblock::fields(&head, body).ok_or(Rejected::Damaged)?),
        Err(Rejected::Blank) => None,
        Err(why) => return Err(why),
    };
    Ok(SuperblockRead { found, damaged })
}

/// An unverified run: a primary lost its power, and what it had confirmed may be missing on its volumes. That stands on record until it
/// is verified.
impl Superblock {
    /// Writes of an earlier run of this node may be missing on its volumes, whatever its role has become since.
    pub(crate) fn needs_verification(&self) -> bool {
        self.unverified_run != Incarnation(0)
    }

    /// Whether the peer may have confirmed something of the unverified run: it stands in it, or in its history and at the image of
    /// an earlier run, to which it may have gone back from the midst of a sync. A later run of this node is at home in its last
    /// generation or in one that came after: in the one before, runs may be the peer's own, and are counted apart.
    pub(crate) fn followed_unverified_run(&self, theirs: &Identity) -> bool {
        let (sb, offset) = (self, theirs.position);
        let of_history = |generation: Generation| sb.unverified_generations.contains(&generation);
        let is_there = offset.incarnation == sb.unverified_run && of_history(offset.generation);
        let has_run = |generation| {
            generation == sb.unverified_generations[0] || injected(Fault::RunsOfPeer) && of_history(generation)
        };
        let is_later = offset.incarnation > sb.unverified_run && has_run(offset.generation);
        let follows = !theirs.generation.is_blank() && of_history(theirs.generation);
        self.needs_verification() && (is_there || follows && !is_later)
    }

    /// Volumes of which no sync has made a part of the copy.
    pub(crate) fn lacking(&self) -> VolumeSet {
        self.unfilled.with(&self.renamed)
    }

    /// The same, where no sync that this node knows of is about to: somebody has to order it.
    pub(crate) fn waits_to_be_filled(&self) -> VolumeSet {
        match self.identity.role {
            Role::Secondary => self.lacking().both(&self.sync_aside),
            Role::Primary => VolumeSet::default(),
        }
    }

    /// It was the primary of this history and handed it over, and nobody was followed since: should it be promoted again it goes on
    /// with its own, and a peer that was not promoted meanwhile never left that.
    pub(crate) fn takes_demotion_back(&self) -> bool {
        self.identity.handed_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::cell::BYTES;
    use crate::limits::VOLUME_BYTES_MAX;

    fn sample(update: u64) -> Superblock {
        Superblock {
            update,
            tag: 42,
            node: NodeId(1),
            peer: NodeId(2),
            identity: Identity { role: Role::Primary, incarnation: Incarnation(3), ..Identity::default() },
            clean: true,
            journal: JournalHead { offset: 8192, ordinal: 7 },
            boot: 77,
            primary_mode: Some(Mode::Nearsync),
            sizes: alloc::vec![4096, 0],
            flushed: alloc::vec![Seq(4), Seq(5)],
            ..Superblock::default()
        }
    }

    // proves: P9
    #[test]
    fn a_superblock_comes_back_and_every_flipped_byte_is_noticed() {
        let image = sample(4).encode();
        let copy = &image[..BYTES];
        assert_eq!(Superblock::decode(copy), Ok(sample(4)));
        for at in 0..BYTES {
            let mut bad = copy.to_vec();
            bad[at] ^= 0x10;
            assert!(Superblock::decode(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_largest_group_fits() {
        let all = Superblock {
            flushed: alloc::vec![Seq(1); VOLUMES_MAX],
            sizes: alloc::vec![VOLUME_BYTES_MAX; VOLUMES_MAX],
            ..sample(1)
        };
        assert_eq!(Superblock::decode(&all.encode()[..BYTES]), Ok(all));
    }

    #[test]
    fn the_newer_update_counts_and_an_ambiguous_one_is_refused() {
        let file = [sample(4).encode(), sample(5).encode()].concat();
        assert_eq!(read(&file, 42).map(|r| r.found), Ok(Some(sample(5))));
        assert_eq!(read(&file, 43), Err(Rejected::Foreign));
        assert_eq!(read(&[0; FILE_BYTES as usize], 42).map(|r| r.found), Ok(None));
        let astray = [sample(4).encode(), sample(4).encode()].concat();
        assert_eq!(read(&astray, 42), Err(Rejected::Astray));
    }
}
