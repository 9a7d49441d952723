//! What ledger and checkers make of what an engine reports.

use std::borrow::Cow;

use engine::identity::Role;
use engine::state::State;
use engine::status::HandoverStage;
use engine::{Command, Event, GroupId, Store, VolumeId};

use super::{ActorCue, MeetingStep, World, WorldEvent, resets};
use crate::checkers::ExportOpening;
use crate::checkers::facts::KnownFact;
use crate::checkers::verify::NamedRange;
use crate::nodes::node::{OutsideWrite, SimNode};
use crate::oracle::{Oracle, OracleFailure};
use crate::stamps::SECTOR;
use crate::stamps::{SectorFill, content};

/// A stamp that no client's write has.
const FOREIGN: u64 = 1 << 60;

impl World {
    pub(super) fn observe(&mut self, node: usize, group: GroupId, event: Event) -> Result<(), OracleFailure> {
        match &event {
            Event::AppliedWrite { .. } => {}
            Event::Admitted { .. } if !self.timeline.is_verbose() || std::env::var_os("SIM_ADMITTED").is_none() => {}
            other => self.log(format_args!("node {node} group {} {other:?}", group.0)),
        }
        notes_step(self, node, group, &event);
        hears_order(self, node, group, &event)?;
        match event {
            Event::Ready { role, .. } => self.is_ready(node, group, role),
            Event::Demoted => {
                self.checkers.facts.remove(KnownFact::OperatorAsked(group, node));
                self.checkers.facts.remove(KnownFact::Overwrites(group, node));
                self.checkers.sees_primary(&self.cluster, node, group);
                Ok(())
            }
            Event::RollbackPoint { at, .. } => {
                self.sync_begins(group, node);
                self.checkers.takes_point(&self.cluster, node, group, at)?;
                self.checkers.views.takes_point(&self.cluster, node, group, at);
                self.checkers.newcomers.sync_taken_up(group);
                kept_in_doubt(self, self.cluster.other(group, node), group)?;
                self.checkers.check_consent(&self.cluster, self.cluster.other(group, node), group)?;
                self.checkers.check_prefix(&self.cluster, node, group, at)
            }
            Event::RolledBack { .. } => {
                self.checkers.is_rolled_back(group, node);
                Ok(())
            }
            Event::ViewLost { view, why } => {
                self.checkers.views.is_lost(view, &why);
                Ok(())
            }
            Event::ForkKept { .. } => fork_kept(self, node, group),
            Event::DeltaSaved(_) => self.checkers.check_saved(&self.cluster, node, group),
            Event::Promoted { .. } => {
                self.checkers.facts.remove(KnownFact::Resolved(group));
                check_promotion(self, node, group)?;
                is_promoted(self, node, group);
                self.checkers.newcomers.is_promoted(&self.cluster, node, group)
            }
            Event::QueuedAlone { .. } => self.checkers.check_queued(&self.cluster, node, group),
            Event::HandedOver => hears_handover(self, node, group),
            Event::Admitted { .. } => self.checkers.check_alone(&self.cluster, node, group),
            Event::Decided { row, .. } => {
                self.tally.rows.insert(row);
                Ok(())
            }
            Event::SyncBegan { full, dirty_bytes, .. } => self.sync_began(node, group, full, dirty_bytes),
            Event::Note(words) => {
                self.checkers.hears(&self.cluster, node, group, &words);
                if self.unattended {
                    self.said.push((node, words));
                }
                Ok(())
            }
            Event::SnapshotEnded { .. } if self.cluster.primary(group) != node => {
                self.checkers.check_secondary(&self.cluster, node, group)
            }
            Event::SyncEnded { .. } | Event::SnapshotEnded { .. } => has_synced(self, node, group),
            Event::State { from, to, .. } => {
                changes_state(self, node, group, (from, to));
                Ok(())
            }
            _ => sees_verify(self, node, group, &event),
        }
    }

    fn is_ready(&mut self, node: usize, group: GroupId, role: Role) -> Result<(), OracleFailure> {
        let is_primary = self.cluster.is_primary(node, group);
        self.cluster[node].is_started(group, is_primary);
        let came_back = self.cluster.ledger.came_back(group, node, role);
        if came_back {
            self.checkers.wire.forget_ever(group, node);
            self.checkers.facts.add(KnownFact::Forked(group));
        }
        if role == Role::Secondary && !came_back {
            return self.checkers.check_returned(&self.cluster, node, group);
        }
        self.checkers.sees_primary(&self.cluster, node, group);
        Ok(())
    }

    fn sync_began(&mut self, node: usize, group: GroupId, full: bool, dirty_bytes: u64) -> Result<(), OracleFailure> {
        if is_kept_with_what_changed(self, node, group) {
            self.checkers.facts.remove(KnownFact::ChangedOutside(group, node));
        }
        self.checkers.check_asked_for(&self.cluster, node, group)?;
        // Whether it overwrites what only the other one has is asked when that one takes its rollback point: it may be another by now than
        // this node has heard, and take none of this.
        if !full {
            self.checkers.check_covered(&self.cluster, group)?;
            self.over |= self.cluster.options.takes_hours(dirty_bytes);
        } else if self.cluster.options.syncs_for_hours() {
            self.over = true;
        } else if self.cluster.primary(group) != node {
            // After a fork somebody had the other primary overwrite this one.
            let other = self.cluster.other(group, node);
            if !self.cluster.is_primary(other, group) {
                self.checkers.writes.overwritten(group);
            }
            self.cluster.ledger.gives_up(group, other);
            self.checkers.facts.add(KnownFact::Overwrites(group, node));
        }
        Ok(())
    }

    /// A secondary has its rollback point: from now on its copy is overwritten. In the stream the primary's dirty regions
    /// clear on the way, so that only the secondary's own tell what a rollback undoes.
    fn sync_begins(&mut self, group: GroupId, secondary: usize) {
        if !self.unattended && self.checkers.wire.syncs_in_stream(group, secondary) && self.rng.percent(60) {
            let status = self.cluster[self.cluster.other(group, secondary)].status_of(group);
            let dirty: u64 = status.iter().flat_map(|status| &status.volumes).map(|v| v.dirty_bytes).sum();
            let bytes_per_s = self.cluster.options.bytes_per_s;
            let after = self.rng.between(1_000_000, 10_000_000 + dirty * 1_000_000 / (bytes_per_s / 1000));
            self.timeline.schedule(after, WorldEvent::Cue(ActorCue::MidSync(group)));
        }
    }

    /// A node opens a group's exports, or closes them.
    pub(super) fn serve(&mut self, node: usize, group: GroupId, open: bool) -> Result<(), OracleFailure> {
        if open && self.cluster[node].has_failed(group) {
            let what = format!("node {node} opens group {}, which has failed", group.0);
            return Err(OracleFailure::new(Oracle::Durability, what));
        }
        self.cluster[node].set_serving(group, open);
        if !open {
            sees_switchover_close(&mut self.cluster[node], group);
            return Ok(());
        }
        self.checkers.check_one_writer(&self.cluster, node, group)?;
        let incarnation = self.glance(node, group).map(|glance| glance.identity.incarnation);
        if incarnation.is_some_and(|incarnation| self.cluster[node].opens_again(group, incarnation)) {
            return Ok(());
        }
        resets::check_opening(self, node, group)?;
        let Some(glance) = self.glance(node, group) else { return Ok(()) };
        let was_authority = self.cluster.primary(group) == node;
        let given_up = self.cluster.ledger.discarded(group, node);
        let Some(forced) = self.cluster.ledger.takes_over(group, node) else { return Ok(()) };
        if !was_authority && self.checkers.facts.has(KnownFact::Forked(group)) {
            // The other one may go on as well, and what it answers from here on is nobody's order.
            let other = self.cluster.other(group, node);
            self.cluster.ledger.gives_up(group, other);
        }
        let lost_at_reset = self.cluster[node].lost_at_reset(group);
        let lost_power = self.cluster[node].lost_power_since_open(group) || lost_at_reset;
        let flushed_before = self.cluster[node].flushed_before(group);
        let forgot = self.cluster[node].storage.has_forgotten(group);
        self.cluster[node].opens(group);
        let opening =
            ExportOpening { node, group, glance, was_authority, given_up, forced, flushed_before, lost_power, forgot };
        self.checkers.check_opening(&self.cluster, self.timeline.now(), &opening)
    }

    /// Somebody else writes to a volume while its node is stopped cleanly: an administrator mounts it, restores it, or copies
    /// something over it. The host finds that at the next start, and until a start is on record at each one after it.
    pub(super) fn write_from_outside(&mut self, node: usize, write: OutsideWrite) {
        let OutsideWrite { group, volume, first, sectors } = write;
        // After any other stop nobody can tell (docs/book/reliability.md, P7); so after one in whose midst a start was being recorded, or of
        // a group that had failed: what its file says may be in a cache.
        let stopped = Some(()).filter(|()| !self.cluster[node].has_failed(group));
        let record = stopped.and_then(|()| self.cluster.readable_record(node, group));
        let Some(record) = record.filter(|record| record.clean) else { return };
        self.draw_request();
        let bytes = content(SectorFill::Stamp(FOREIGN + self.next_request), volume, first..first + sectors);
        self.log(format_args!(
            "somebody writes {sectors} sectors of volume {} of node {node} from {first} on",
            volume.0
        ));
        let sim = &mut self.cluster[node];
        sim.disk_mut(Store::Volume(group, volume)).goes_astray(first as usize * SECTOR, &bytes);
        sim.is_changed(group, volume);
        // Whatever it was, its copy is not that any more.
        self.checkers.wire.forget(group, node);
        if record.identity.role == Role::Primary {
            self.checkers.facts.add(KnownFact::ChangedOutside(group, node));
        }
        // What was saved of it for a fork is what stood there before.
        self.checkers.forks.delta_is_moved(group, self.cluster.other(group, node));
        if self.cluster.primary(group) == node {
            self.checkers.writes.changed_outside(group, volume, first, &bytes);
        } else {
            self.checkers.writes.promises_void(group);
        }
    }
}

/// What the write order becomes by it.
fn hears_order(world: &mut World, node: usize, group: GroupId, event: &Event) -> Result<(), OracleFailure> {
    world.checkers.marks.hears((node, group), event)?;
    world.checkers.writes.event(node, group, &numbered(world, node, group, event))
}

fn notes_step(world: &mut World, node: usize, group: GroupId, event: &Event) {
    let step = match *event {
        Event::Decided { row, .. } => MeetingStep::Decided(row),
        Event::SyncBegan { full, .. } => MeetingStep::Syncs { full },
        Event::SetAside { volume } => return notes_set_aside(world, node, group, volume),
        _ => return,
    };
    if world.unattended {
        world.meetings.push((node, step));
    }
}

/// It was ordered under a condition, if it was, that holds.
fn check_promotion(world: &mut World, node: usize, group: GroupId) -> Result<(), OracleFailure> {
    check_lent(world, node, group)?;
    check_window(world, node, group)
}

/// A promotion that is to lose nothing has all that was acknowledged.
fn check_window(world: &mut World, node: usize, group: GroupId) -> Result<(), OracleFailure> {
    let is_in_window = world.cluster.ledger.promotes_in_window(group, node);
    let was_forked = world.checkers.facts.has(KnownFact::Forked(group)) || world.cluster.primary(group) == node;
    let Some(glance) = world.glance(node, group).filter(|_| is_in_window && !was_forked) else { return Ok(()) };
    world.checkers.writes.check_handover(group, glance.identity.parent)
}

/// Whoever goes back for the clients of his peer hears meanwhile who that is by now.
pub(super) fn sees_lent(world: &mut World, node: usize) {
    for group in world.cluster.ledger.lent(node) {
        let goes_back = |inside: String| inside.starts_with("RollingBack");
        if world.cluster[node].explain(group).is_some_and(goes_back) {
            let shown = world.cluster[node].status_of(group);
            let is_primary = shown.is_some_and(|shown| shown.peer.role == Some(Role::Primary));
            world.cluster.ledger.hears_of_primary(group, node, is_primary);
        }
    }
}

/// A promotion for the clients of a peer is none beside a primary.
fn check_lent(world: &World, node: usize, group: GroupId) -> Result<(), OracleFailure> {
    if !world.cluster.ledger.is_lent_beside_primary(group, node) {
        return Ok(());
    }
    let what = format!("node {node} is promoted for the clients of a peer that it knows to be primary");
    Err(OracleFailure::new(Oracle::OneWriter, what))
}

/// What the oracle of writes hears: by the numbers of volumes, and not by their positions.
fn numbered<'a>(world: &World, node: usize, group: GroupId, event: &'a Event) -> Cow<'a, Event> {
    if world.cluster[node].volumes(group).is_none() {
        return Cow::Borrowed(event);
    }
    let number = |volume: VolumeId| world.cluster.numbers(node, group)[usize::from(volume.0)];
    match event {
        Event::SetAside { volume } => Cow::Owned(Event::SetAside { volume: number(*volume) }),
        Event::Rejoins { volume } => Cow::Owned(Event::Rejoins { volume: number(*volume) }),
        Event::PromotesWithout { volumes } => {
            Cow::Owned(Event::PromotesWithout { volumes: world.cluster.numbers_of(node, group, *volumes) })
        }
        other => Cow::Borrowed(other),
    }
}

fn changes_state(world: &mut World, node: usize, group: GroupId, (from, to): (State, State)) {
    world.tally.edges.insert((from.word(), to.word()));
    world.checkers.sees_state(&world.cluster, group, node, to);
    if matches!(from, State::Failed(_)) {
        resets::starts_anew(world, node, group);
    }
    if matches!(to, State::Failed(_)) {
        world.cluster[node].fails(group);
        // The operator sees to it.
        world.cluster.ledger.group_failed(node, group);
    }
}

/// Requests may be held behind an export that is closed, as long as nothing is decided.
fn sees_switchover_close(node: &mut SimNode, group: GroupId) {
    let Some(shown) = node.status_of(group) else { return };
    let stage = shown.handover.map(|handover| handover.stage);
    if matches!(stage, Some(HandoverStage::Draining | HandoverStage::Storing)) {
        node.closes_over(group, shown.identity.incarnation);
    }
}

fn is_promoted(world: &mut World, node: usize, group: GroupId) {
    let World { checkers, cluster, .. } = world;
    checkers.is_promoted(cluster, group, node);
    let forced = cluster.ledger.was_promoted(group, node);
    if let Some(glance) = cluster.glance(node, group) {
        checkers.forks.is_promoted(node, group, &glance.identity, forced);
    }
    if forced {
        checkers.facts.add(KnownFact::Forked(group));
    }
    checkers.sees_primary(cluster, node, group);
}

/// The node's daemon acts on it soon; under load later, or never.
fn hears_handover(world: &mut World, node: usize, group: GroupId) -> Result<(), OracleFailure> {
    let after = match world.rng.below(20) {
        _ if world.daemons_are_deaf => return Ok(()),
        0 if !world.unattended => return Ok(()),
        1 | 2 if !world.unattended => world.rng.between(10_000_000, 15_000_000_000),
        _ => world.rng.between(50_000, 500_000),
    };
    let boot = world.cluster[node].boot();
    world.timeline.schedule(after, WorldEvent::HandedOver { node, boot, group });
    Ok(())
}

/// The daemon of a node that was handed over to promotes it, unless that is of the past.
pub(super) fn promotes_what_was_handed_over(world: &mut World, node: usize, group: GroupId) {
    let entropy = world.rng.draw();
    if world.cluster[node].status_of(group).is_some_and(|status| status.is_granted) {
        world.command(node, group, Command::Promote { force: false, entropy });
    }
}

/// A primary's sync has ended, or a snapshot of one.
fn has_synced(world: &mut World, node: usize, group: GroupId) -> Result<(), OracleFailure> {
    let World { cluster, checkers, .. } = world;
    checkers.check_behind(cluster, node, group)?;
    // One that is down was synced before its records were emptied.
    if cluster[cluster.other(group, node)].up() {
        cluster.ledger.synced(group, node);
    }
    checkers.is_synced(cluster, group, node);
    Ok(())
}

/// A verify begins, names a range, or ends.
fn sees_verify(world: &mut World, node: usize, group: GroupId, event: &Event) -> Result<(), OracleFailure> {
    let World { cluster, checkers, timeline, .. } = world;
    match *event {
        Event::VerifyBegan { .. } => {
            let aside = cluster.glance(node, group).map(|glance| glance.aside).unwrap_or_default();
            checkers.verify.began(group, node, timeline.now(), aside);
        }
        Event::SetAside { volume } => checkers.verify.leaves_out(group, node, volume),
        // An old copy may stand there that nobody can tell from the newest (docs/book/reliability.md).
        Event::VerifyDiffers { .. } if checkers.facts.has(KnownFact::Spoiled(group, cluster.other(group, node))) => {}
        Event::VerifyDiffers { volume, offset, length, unreadable: false } => {
            return checkers.verify.names(cluster, group, node, NamedRange { volume, offset, length });
        }
        Event::VerifyEnded { sample_percent, totals } => {
            return checkers.verify.ended(cluster, (group, node), sample_percent >= 100, totals);
        }
        _ => {}
    }
    Ok(())
}

/// The record of an operator's choice was cut short, or one of its slots failed, and the next start found it: then it counts, and all
/// that had to come before it must have.
fn kept_in_doubt(world: &mut World, node: usize, group: GroupId) -> Result<(), OracleFailure> {
    let is_kept = world.cluster.record(node, group).is_some_and(|recorded| recorded.kept_over != 0);
    let is_news = world.checkers.writes.has_tail(group) || world.cluster.primary(group) != node;
    if is_kept && is_news && world.checkers.forks.was_ordered(node, group) {
        return fork_kept(world, node, group);
    }
    Ok(())
}

/// The order that keeps this node was cut short behind its record: what somebody wrote here from outside was chosen with the rest, and
/// the record says so. What was written there later is on record again.
fn is_kept_with_what_changed(world: &World, node: usize, group: GroupId) -> bool {
    let record = world.cluster.readable_record(node, group);
    record.is_some_and(|recorded| recorded.kept_over != 0 && !recorded.changed_outside)
        && world.checkers.forks.was_ordered(node, group)
}

/// The operator's choice of this node is on record.
fn fork_kept(world: &mut World, node: usize, group: GroupId) -> Result<(), OracleFailure> {
    world.checkers.check_kept(&world.cluster, node, group)?;
    world.checkers.forks.check_policy(&world.cluster, node, group)?;
    // Whoever keeps this node's content keeps what somebody wrote to it from outside: with the content it is chosen over the peer's, as by
    // `sync --full`, and what stands there since is what both are to hold.
    world.checkers.facts.remove(KnownFact::ChangedOutside(group, node));
    let other = world.cluster.other(group, node);
    if world.cluster.primary(group) == node {
        world.cluster.ledger.gives_up(group, other);
        return Ok(());
    }
    // He stands by the one that nobody counted on.
    if !world.cluster[node].serves(group) {
        // Its export waited for that.
        world.cluster.ledger.will_take_over(group, node);
        world.checkers.facts.add(KnownFact::Overwrites(group, node));
        return Ok(());
    }
    world.cluster.ledger.stands_by(group, node);
    let Some(glance) = world.glance(node, group) else { return Ok(()) };
    let (images, durable) = (world.cluster.views(node, group), world.cluster.durable_volumes(node, group));
    world.checkers.writes.is_chosen(node, group, (&images, &durable), &glance.identity)?;
    world.checkers.writes.opens_with(group, world.cluster.aside(node, group));
    world.checkers.writes.tail_given_up(group);
    let settings = world.cluster.ledger.settings(group);
    world.checkers.writes.acts_in(group, &settings, glance.mode);
    world.checkers.writes.set_settings(group, &settings);
    Ok(())
}

/// What of the volume waits in the queue goes to the peer without content.
fn notes_set_aside(world: &mut World, node: usize, group: GroupId, volume: VolumeId) {
    let confirmed = world.checkers.ever_confirmed(group, world.cluster.other(group, node));
    world.checkers.writes.streams_no_more(node, group, volume, confirmed);
}
