//! What the superblock says of the group, changed by what happens to the group. Whoever calls one of these saves it: several
//! changes go on record in one update.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Deref;
use core::time::Duration;

use crate::formats::identity::{Confirmed, Identity, Role};
use crate::formats::superblock::{JournalHead, RollbackPoint, Superblock};
use crate::formats::wire::{GroupHello, SyncBegin};
use crate::ids::{CommandId, Generation, Incarnation, Position, Seq, VolumeId, VolumeSet};
use crate::injected_fault::{Fault, injected};
use crate::records::record::{AfterSuper, SuperWriter};
use crate::state::{CopyDoubts, Mode};
use crate::time::Wall;

/// What it says now, in memory.
impl Deref for SuperWriter {
    type Target = Superblock;

    fn deref(&self) -> &Superblock {
        &self.current
    }
}

/// An operator chose this primary's content over what the peer holds.
pub(crate) fn keep_over(sb: &mut SuperWriter, peer: &Identity) {
    sb.current.kept_over = peer.stand();
    sb.sync_ordered();
}

/// The volume is set aside, or is part of the order again; false: it was so.
pub(crate) fn set_aside(sb: &mut SuperWriter, id: VolumeId, is_aside: bool) -> bool {
    let aside = &mut sb.current.aside;
    if is_aside { aside.insert(id) } else { aside.remove(id) }
}

/// Every volume that there is here is part of the order again.
pub(crate) fn all_rejoin(sb: &mut SuperWriter) {
    sb.current.aside = sb.current.detached;
}

/// The volume has no device in this run: whatever this node holds of the group is without it.
pub(crate) fn is_detached(sb: &mut SuperWriter, id: VolumeId) {
    let sb = &mut sb.current;
    for set in [&mut sb.detached, &mut sb.aside, &mut sb.sync_aside] {
        set.insert(id);
    }
    sb.unfilled.remove(id);
    sb.renamed.remove(id);
}

/// The volume has another device: before a sync has filled it, nothing in it is of the group.
pub(crate) fn is_unfilled(sb: &mut SuperWriter, id: VolumeId) {
    let sb = &mut sb.current;
    for set in [&mut sb.unfilled, &mut sb.aside] {
        set.insert(id);
    }
    sb.renamed.remove(id);
}

/// A run begins in which these volumes have no device, and no others. Of those that have one again it is stored that all may differ.
pub(crate) fn without_devices(sb: &mut SuperWriter, detached: VolumeSet) {
    sb.current.detached = detached;
}

/// Which log of the queue counts from here on, if any.
pub(crate) fn queue_is_logged(sb: &mut SuperWriter, log: Option<u32>) {
    (sb.current.queue_logged, sb.current.queue_log) = (log.is_some(), log.unwrap_or(0));
}

/// Whether a start is writing what that log holds.
pub(crate) fn queue_is_redone(sb: &mut SuperWriter, is_redone: bool) {
    sb.current.queue_redo = is_redone;
}

/// A peer window that is so long may be given once this is on record. True: that is news.
pub(crate) fn gives_window(sb: &mut SuperWriter, window: Duration) -> bool {
    let ms = u32::try_from(window.as_millis()).unwrap_or(u32::MAX);
    core::mem::replace(&mut sb.current.window_ms, ms) != ms
}

/// From this position on the primary sends nothing of the volume. The image before a sync that goes on is not touched by that.
pub(crate) fn set_aside_by_primary(sb: &mut SuperWriter, id: VolumeId) {
    let sb = &mut sb.current;
    sb.sync_aside.insert(id);
    if !sb.identity.inconsistent {
        sb.aside.insert(id);
    }
}

/// A sync begins, as it is recorded with this. What it overwrites of a history of the copy's own is to stand in a delta at its end, if there is
/// an image to go back to. `parted`: how many volumes there are, if the sync is of another history than the copy. `was_saved`: what an order
/// was given for stands in a delta, or was given up, but for what has no device on one of the nodes. True: it takes in what an earlier one left
/// out.
pub(crate) fn overwrites_own(sb: &mut SuperWriter, parted: Option<usize>, was_saved: bool) -> bool {
    let sb = &mut sb.current;
    if sb.rollback_point.id == 0 || sb.rollback_point.was_damaged() {
        return false;
    }
    let takes_in = !sb.rollback_point.is_of_fork && !sb.own_history.without(&sb.sync_aside).is_empty();
    let volumes = (0..).map(VolumeId).take(parted.unwrap_or_default());
    for id in volumes.filter(|id| !sb.unfilled.contains(*id) && (!was_saved || sb.sync_aside.contains(*id))) {
        sb.own_history.insert(id);
    }
    sb.rollback_point.is_of_fork |= !sb.own_history.without(&sb.sync_aside).is_empty();
    takes_in
}

/// What the sync under way takes in is not to be saved any more: that was done, or given up.
fn owes_no_delta(sb: &mut Superblock) {
    let left_out = if injected(Fault::LeftOutForgotten) { VolumeSet::default() } else { sb.sync_aside };
    sb.own_history = sb.own_history.both(&left_out);
}

impl SuperWriter {
    // ---- of either role ----------------------------------------------------------------------------------------------

    pub fn has_sizes(&mut self, sizes: Vec<u64>) {
        self.current.sizes = sizes;
    }

    /// The clean stop.
    pub fn stops_cleanly(&mut self, identity: Identity) {
        (self.current.clean, self.current.identity) = (true, identity);
    }

    /// A primary becomes a secondary at this position; `handed_over`: its peer has everything. As a primary it comes back in another
    /// generation.
    pub fn demoted(&mut self, position: Position, handed_over: bool, mode: Mode, wall: Wall) {
        // Not earlier: should the demotion come to nothing, the export waits for its operator as before.
        self.has_chosen();
        let sb = &mut self.current;
        if !sb.confirmed.position.generation.is_blank() {
            sb.confirmed_before = sb.confirmed;
        }
        (sb.kept_over, sb.queue_logged) = (0, false);
        (sb.identity.role, sb.identity.position) = (Role::Secondary, position);
        (sb.identity.handed_over, sb.identity.inconsistent) = (handed_over, false);
        (sb.primary_mode, sb.confirmed, sb.applied_wall) = (Some(mode), Confirmed::default(), wall);
        // All of it stands here, whatever the peer has; but not what has no device.
        (sb.aside, sb.sync_aside) = (sb.detached, sb.detached);
    }

    /// A secondary becomes a primary, in a generation above its own and its peer's. `both_hold`: the peer holds the same image. `forced`: an
    /// operator said that this one counts, whatever the peer has.
    pub fn promoted(&mut self, position: Position, (peers_number, tag): (u64, u64), (forced, both_hold): (bool, bool)) {
        let sb = &mut self.current;
        if both_hold {
            sb.confirmed = Confirmed { position, image: position };
        }
        let continued = sb.takes_demotion_back();
        // What stands here is what counts, but for what has no device now.
        sb.own_history = sb.own_history.both(&sb.detached);
        let identity = &mut sb.identity;
        identity.parent = position;
        identity.generation = Generation { number: identity.generation.number_after(peers_number), tag };
        identity.incarnation.0 += 1;
        identity.role = Role::Primary;
        identity.handed_over = false;
        // Content that lacks a volume is not what anybody would choose unasked.
        (identity.continued, identity.forced) = (continued, continued || forced && sb.aside.is_empty());
        (sb.given_up, sb.alone, sb.compare, sb.held_in_logging, sb.kept_over) = (Seq::NONE, true, false, false, 0);
        // What stands in each volume here counts from now on; where nothing stands, nothing is sent.
        (sb.aside, sb.sync_aside) = (sb.detached, sb.detached);
        (sb.unfilled, sb.renamed) = (VolumeSet::default(), VolumeSet::default());
    }

    /// What speaks against the copy is this from here on; whether it was something else.
    pub fn doubts(&mut self, doubts: CopyDoubts) -> bool {
        core::mem::replace(&mut self.current.doubts, doubts) != doubts
    }

    // ---- a primary's -------------------------------------------------------------------------------------------------

    pub fn held_in_logging(&mut self) {
        self.current.held_in_logging = true;
    }

    /// An operator ordered a sync: nothing else that he is asked for holds it.
    pub fn sync_ordered(&mut self) {
        (self.current.held_in_logging, self.current.changed_outside) = (false, false);
    }

    /// The history goes on without the peer behind this number, in a generation whose tag is made from its own number.
    /// `peers_number`: that of a peer's generation, above which this one is to be.
    pub fn goes_on_alone(&mut self, last: Seq, peers_number: u64, tag: impl FnOnce(u64) -> u64) {
        let old = self.current.identity;
        let number = old.generation.number_after(peers_number);
        let identity = &mut self.current.identity;
        identity.parent = Position { generation: old.generation, incarnation: old.incarnation, seq: last };
        identity.generation = Generation { number, tag: tag(number) };
        (identity.continued, identity.forced) = (true, false);
        // What is written from here on is in no log.
        (self.current.alone, self.current.queue_logged) = (true, false);
    }

    /// The peer has taken up this history.
    pub fn peer_took_up(&mut self) {
        (self.current.alone, self.current.kept_over) = (false, 0);
    }

    /// Whether what is dirty is compared before it is sent, also after a restart. True: so it was before.
    pub fn compares(&mut self, compares: bool) -> bool {
        core::mem::replace(&mut self.current.compare, compares)
    }

    /// The copy is made in the present mode.
    pub fn copied_in_own_mode(&mut self) {
        self.current.primary_mode = None;
    }

    /// The peer confirmed so much.
    pub fn peer_confirmed(&mut self, confirmed: Confirmed) {
        self.current.confirmed = confirmed;
    }

    /// A flush is to be answered of which nothing else on the disk would tell.
    pub fn flushed(&mut self, volume: VolumeId, through: Seq) {
        let flushed = &mut self.current.flushed;
        flushed[usize::from(volume.0)] = through;
        if injected(Fault::FlushPointsMixed) {
            flushed.fill(through);
        }
    }

    // ---- an unverified run ----------------------------------------------------------------------------------------------

    /// The export opens while the run is unverified: by 'start_alone' the operator may just have chosen.
    pub fn served_unverified(&mut self) {
        self.current.served_unverified = true;
        self.has_chosen();
    }

    pub fn not_served(&mut self) {
        self.current.served_unverified = false;
    }

    /// The export stays closed until its operator chooses.
    pub fn close_until_chosen(&mut self) {
        self.give_up(Seq(u64::MAX));
    }

    /// What the export waits for was answered: by its operator, by the peer, or by a demotion that is about to be recorded.
    fn has_chosen(&mut self) {
        if self.current.is_closed_until_chosen() {
            self.current.given_up = Seq::NONE;
        }
    }

    /// What was missing is there, or these volumes hold another node's content by now.
    pub fn clear_unverified_run(&mut self, volumes: usize) {
        self.current.unverified_run = Incarnation(0);
        self.has_chosen();
        self.current.unverified_generations = [Generation::BLANK; 2];
        self.current.served_unverified = false;
        self.begin_flush_points(volumes);
    }

    /// A run's flush points begin anew, unless those of the unverified run are still needed.
    pub fn begin_flush_points(&mut self, volumes: usize) {
        if !self.current.needs_verification() {
            self.current.flushed = vec![Seq::NONE; volumes];
        }
    }

    /// A promotion begins: what was unverified before it still is, but for a peer that has gone on from there or never was there
    /// and so has nothing to give.
    pub fn keep_unverified_run(&mut self, hello: Option<&GroupHello>, volumes: usize) {
        // One that failed may not know where it stands.
        let hello = hello.filter(|hello| !hello.failed);
        if hello.is_some_and(|hello| !self.current.followed_unverified_run(&hello.identity)) {
            self.clear_unverified_run(volumes);
        }
        self.begin_flush_points(volumes);
    }

    // ---- a secondary's -----------------------------------------------------------------------------------------------

    /// The mode in which the primary serves, as it reports.
    pub fn primary_serves_in(&mut self, mode: Mode) {
        self.current.primary_mode = Some(mode);
    }

    /// A batch of the journal is durable.
    pub fn batch_durable(&mut self, ordinal: u64) {
        self.current.confirmed_ordinal = ordinal + 1;
    }

    /// Nothing in the journal is needed any more.
    pub fn journal_emptied(&mut self, head: JournalHead) {
        let sb = &mut self.current;
        (sb.journal, sb.confirmed_ordinal, sb.own_from_ordinal) = (head, head.ordinal, head.ordinal);
    }

    /// Another stream begins; its journal does at `journal`.
    pub fn sync_begins(&mut self, begin: &SyncBegin, journal: JournalHead) {
        let identity = &mut self.current.identity;
        identity.generation = begin.from.generation;
        identity.parent = begin.parent;
        identity.position = begin.from;
        identity.inconsistent |= !begin.nothing_dirty && !injected(Fault::SyncNotRecorded);
        identity.handed_over = false;
        (identity.continued, identity.forced) = (false, false);
        (self.current.given_up, self.current.changed_outside) = (Seq::NONE, false);
        self.current.went_back_to = Position::default();
        let aside = begin.aside.with(&self.current.detached);
        self.current.sync_aside = aside;
        if !self.current.identity.inconsistent {
            self.current.aside = aside.with(&self.current.lacking());
            self.current.own_history = self.current.own_history.both(&self.current.aside);
        }
        if begin.nothing_dirty {
            self.current.confirmed_before = Confirmed::default();
        }
        self.current.journal = journal;
    }

    /// Writes up to here may be missing at their primary and are not kept for it any more; all ones: nobody knows which.
    pub fn give_up(&mut self, upto: Seq) {
        self.current.given_up = self.current.given_up.max(upto);
    }

    /// What was written up to here is flushed.
    pub fn applied_through(&mut self, seq: Seq) {
        self.current.identity.position.seq = seq;
    }

    /// A sync has ended: this is an image again, and nothing of it needs verification.
    pub fn made_whole(&mut self, volumes: usize) {
        self.current.identity.inconsistent = false;
        // What it filled, it filled whole: all of that was dirty.
        self.current.unfilled = self.current.unfilled.both(&self.current.sync_aside);
        self.current.renamed = self.current.renamed.both(&self.current.sync_aside);
        self.current.aside = self.current.sync_aside;
        owes_no_delta(&mut self.current);
        self.current.confirmed_before = Confirmed::default();
        self.clear_unverified_run(volumes);
    }

    /// Replay begins there from now on. `flushed`: what the primary is known to have flushed. The time of the copy.
    pub fn trimmed(&mut self, journal: JournalHead, wall: Wall, flushed: Seq) -> Wall {
        let sb = &mut self.current;
        if !sb.identity.inconsistent {
            sb.applied_wall = wall;
        }
        if flushed >= sb.given_up {
            sb.given_up = Seq::NONE;
        }
        sb.journal = journal;
        sb.applied_wall
    }

    /// The journal was found damaged: no prefix stands here.
    pub fn image_lost(&mut self) {
        self.current.identity.inconsistent = true;
    }

    /// Replay has come to `next`, at this position; batches are kept from `journal` on.
    pub fn replayed(&mut self, position: Position, wall: Wall, journal: JournalHead, next: JournalHead) {
        let sb = &mut self.current;
        (sb.identity.position, sb.applied_wall) = (position, wall);
        (sb.journal, sb.own_from_ordinal, sb.confirmed_ordinal) = (journal, next.ordinal, next.ordinal);
    }

    // ---- the rollback point ------------------------------------------------------------------------------------------

    /// The copy as it stands here, before the sync that is recorded with it.
    pub fn take_point(&mut self, position: Position, wall: Wall) -> RollbackPoint {
        let parent = self.current.identity.parent;
        let id = self.current.update + 1;
        let (batches, reserved_bytes, is_of_fork) = (0, 0, false);
        self.current.rollback_point = RollbackPoint { id, position, parent, wall, batches, reserved_bytes, is_of_fork };
        self.current.rollback_point
    }

    /// A fault on purpose.
    #[cfg(feature = "injected-faults")]
    pub fn move_point(&mut self, position: Position) {
        self.current.rollback_point.position = position;
    }

    /// It is no image, whatever a later start reads.
    pub fn point_damaged(&mut self) {
        self.current.rollback_point.give_up();
    }

    /// The sync has ended: the update that makes the copy whole has no rollback point.
    pub fn sync_ended(&mut self, volumes: usize) {
        self.made_whole(volumes);
        if self.current.rollback_point.id != 0 {
            self.drop_point(None);
        }
    }

    /// An operator gives the rollback point up.
    pub fn give_point_up(&mut self, id: CommandId, text: String) {
        owes_no_delta(&mut self.current);
        self.drop_point(Some((id, text)));
    }

    /// What is overwritten goes into the undo store until both slots say so: a start that found the point again, and not all that was
    /// overwritten since, would go back to a mixture (P2).
    fn drop_point(&mut self, answer: Option<(CommandId, String)>) {
        self.current.rollback_point = RollbackPoint::default();
        self.after_both_slots(AfterSuper::PointGone { answer });
    }

    /// The way back begins, as a run of its own: no primary counts on what this one had applied of a sync, also if nothing comes of it.
    pub fn rolls_back(&mut self) {
        self.current.identity.incarnation.0 += 1;
        self.current.rolling_back = true;
    }

    /// The volumes hold the image of the point. Until a promotion is on record this stays a follower of the history that it has
    /// taken up: its primary counts on that, and what it lacks of it is dirty.
    pub fn rolled_back(&mut self) {
        let sb = &mut self.current;
        let point = core::mem::take(&mut sb.rollback_point);
        sb.identity.position = point.position;
        sb.went_back_to = point.position;
        (sb.identity.inconsistent, sb.identity.handed_over) = (false, false);
        (sb.applied_wall, sb.rolling_back) = (point.wall, false);
    }

    /// The way back cannot be gone to its end: the volumes are a mixture.
    pub fn rollback_given_up(&mut self) {
        let sb = &mut self.current;
        (sb.rolling_back, sb.rollback_point, sb.identity.inconsistent) = (false, RollbackPoint::default(), true);
    }
}
