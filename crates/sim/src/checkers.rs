//! Checkers look at a world from outside of its engines: at disks, answers, frames and states. Each says what is wrong, and
//! changes nothing but what it remembers.

mod bounds;
mod coverage;
mod epochs;
pub mod facts;
pub mod forks;
pub mod marks;
pub mod newcomers;
pub mod overwritten;
pub mod repeated;
mod status;
pub mod verify;
pub mod views;
pub mod wire;
pub mod writes;

use std::time::Duration;

use engine::identity::Role;
use engine::state::{Broken, Protection, State};
use engine::status::GroupGlance;
use engine::wire::FrameHeader;
use engine::{GroupId, Incarnation, Position, StartAlone, Store, VolumeId};

use crate::nodes::SimCluster;
use crate::options::SimOptions;
use crate::oracle::{Oracle, OracleFailure};
use coverage::CoverageChecker;
use facts::{KnownFact, KnownFacts};
use forks::ForkChecker;
use marks::MarkChecker;
use newcomers::NewcomerChecker;
use overwritten::OverwrittenChecker;
use status::StatusChecker;
use verify::VerifyChecker;
use views::ViewChecker;
use wire::WireChecker;
use writes::{DiskCaches, WriteOracle};

/// A node opens the exports of a group.
pub struct ExportOpening {
    pub node: usize,
    pub group: GroupId,
    pub glance: GroupGlance,
    /// It was the primary that counts already.
    pub was_authority: bool,
    /// Its copy had been given up.
    pub given_up: bool,
    /// Its promotion was forced.
    pub forced: bool,
    /// What runs before this one had written was flushed before the power failed.
    pub flushed_before: Option<Incarnation>,
    /// The machine has lost its power since they were open last, or a flush has failed.
    pub lost_power: bool,
    pub forgot: bool,
}

pub struct Checkers {
    pub writes: WriteOracle,
    pub facts: KnownFacts,
    pub wire: WireChecker,
    pub verify: VerifyChecker,
    pub forks: ForkChecker,
    pub overwritten: OverwrittenChecker,
    pub newcomers: NewcomerChecker,
    pub marks: MarkChecker,
    pub views: ViewChecker,
    coverage: CoverageChecker,
    status: StatusChecker,
}

impl Checkers {
    pub fn new(options: &SimOptions) -> Checkers {
        let sizes = vec![options.image_bytes(); usize::from(options.volumes)];
        let groups: Vec<_> = (0..options.groups()).map(|group| (GroupId(group), sizes.clone())).collect();
        Checkers {
            writes: WriteOracle::new(&groups, options.modes[0], options.policy),
            facts: KnownFacts::default(),
            wire: WireChecker::default(),
            verify: VerifyChecker::default(),
            forks: ForkChecker::default(),
            overwritten: OverwrittenChecker::default(),
            newcomers: NewcomerChecker::default(),
            marks: MarkChecker::default(),
            views: ViewChecker::default(),
            coverage: CoverageChecker::default(),
            status: StatusChecker::default(),
        }
    }

    pub fn coverage_checks(&self) -> u64 {
        self.coverage.checks()
    }

    // ---- what happens to a copy --------------------------------------------------------------------------------------

    pub fn node_died(&mut self, node: usize) {
        self.writes.node_died(node);
        self.facts.node_died(node);
        self.views.node_died(node);
        self.newcomers.starts_anew(node, None);
    }

    /// What the node's copy was known to be no longer holds.
    pub fn copy_is_void(&mut self, group: GroupId, node: usize) {
        self.wire.forget(group, node);
        self.wire.forget_ever(group, node);
        self.facts.remove(KnownFact::Resolved(group));
        self.newcomers.is_void(group, node);
        self.overwritten.forget(group, node);
        self.facts.remove(KnownFact::ChangedOutside(group, node));
        self.facts.remove(KnownFact::JournalHit(group, node));
        self.writes.promises_void(group);
    }

    /// It was promoted: old records or not, from here on they are what counts.
    pub fn is_promoted(&mut self, cluster: &SimCluster, group: GroupId, node: usize) {
        self.facts.remove(KnownFact::ChangedOutside(group, cluster.other(group, node)));
        self.wire.forget(group, node);
        self.wire.forget_ever(group, node);
        self.facts.remove(KnownFact::Spoiled(group, node));
        self.facts.reports(group, node, State::Logging);
        self.overwritten.is_promoted(cluster, group, node);
    }

    /// What was confirmed of a sync is undone, and that is what was asked for. The image before it needs nothing that landed
    /// after it: the journal is given up with all that it held.
    pub fn is_rolled_back(&mut self, group: GroupId, node: usize) {
        self.overwritten.went_back(group, node);
        self.wire.forget(group, node);
        self.facts.remove(KnownFact::JournalHit(group, node));
    }

    /// The copy of a group that a node shares with it is spoiled.
    pub fn has_spoiled_peer(&self, cluster: &SimCluster, node: usize) -> bool {
        let is_spoiled = |group| self.facts.has(KnownFact::Spoiled(group, cluster.other(group, node)));
        cluster.groups_of(node).into_iter().any(is_spoiled)
    }

    /// A sync from this node ended.
    pub fn is_synced(&mut self, cluster: &SimCluster, group: GroupId, node: usize) {
        self.facts.remove(KnownFact::WaitedAlone(group, node));
        let other = cluster.other(group, node);
        // One that is down was synced before its records were spoiled.
        if cluster.primary(group) == node && cluster.glance(other, group).is_some_and(|glance| glance.running) {
            self.facts.remove(KnownFact::Spoiled(group, other));
        }
    }

    /// A node reports a group's state.
    pub fn sees_state(&mut self, cluster: &SimCluster, group: GroupId, node: usize, state: State) {
        self.facts.reports(group, node, state);
        let starts = !cluster[node].is_ready(group);
        let damaged = self.facts.has(KnownFact::Rotten(node, Store::Superblock(group)));
        if damaged && starts && state == State::Failed(Broken::Superblock) {
            // One copy was hit while the other was being written. After one that could not be written a start helps.
            self.facts.add(KnownFact::Spoiled(group, node));
        }
    }

    /// A node says something about a group.
    pub fn hears(&mut self, cluster: &SimCluster, node: usize, group: GroupId, words: &str) {
        if words.contains("not yet durable are dropped") {
            self.writes.received_void(group);
        }
        if words.contains("is damaged at byte") && words.contains("what stood on volume") {
            // Half-way back: what the promotion undid is gone, whether the node lives to say so or not.
            self.wire.forget(group, node);
        }
        if words.contains("stays closed until you choose") {
            self.facts.add(KnownFact::OperatorAsked(group, node));
        }
        if words.contains("the operator chose this node's content") {
            self.facts.remove(KnownFact::OperatorAsked(group, node));
            if cluster.ledger.typed_sync(group, node).is_some() {
                self.facts.add(KnownFact::Chosen(group));
            }
        }
    }

    /// The position up to which a secondary ever confirmed its last stream as durable, whatever became of that.
    pub fn ever_confirmed(&self, group: GroupId, node: usize) -> Option<Position> {
        // The end of its journal may have rotted before a record counted it: that looks torn (docs/book/reliability.md, P9).
        let rotten = self.facts.has(KnownFact::Rotten(node, Store::Journal(group)));
        self.wire.ever_confirmed(group, node).filter(|_| !rotten)
    }

    // ---- what must hold at a moment ----------------------------------------------------------------------------------

    /// A node hands a frame to the wire.
    pub fn check_frame(
        &mut self,
        cluster: &SimCluster,
        node: usize,
        header: &FrameHeader,
        payload: &[u8],
    ) -> Result<(), OracleFailure> {
        self.marks.check_frame(cluster, node, header)?;
        self.wire.observe(cluster, &mut self.writes, node, header, payload)
    }

    /// After every input of a node: what it holds.
    pub fn check_held(&self, cluster: &SimCluster, node: usize) -> Result<(), OracleFailure> {
        bounds::check_node(cluster, node)?;
        bounds::check_payload(cluster, &self.writes, node)
    }

    /// A primary answers without its peer, from its queue: it shows so, and no more than that (P1).
    pub fn check_queued(&self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        let Some(glance) = cluster.glance(node, group) else { return Ok(()) };
        if !matches!(glance.protection, Protection::BothDurable | Protection::BothReceived | Protection::Held) {
            return Ok(());
        }
        let shows = glance.protection.word();
        let what =
            format!("node {node} group {}: writers are answered without the peer, and '{shows}' is shown", group.0);
        Err(OracleFailure::new(Oracle::Alone, what))
    }

    /// A primary numbers a write. One that no stream carries needs a generation that the peer does not know, on record (rule 5).
    pub fn check_alone(&mut self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        if self.facts.has(KnownFact::Sends(group, node)) || self.facts.has(KnownFact::Alone(group, node)) {
            return Ok(());
        }
        // One that was damaged says nothing.
        let Some(recorded) = cluster.record(node, group) else { return Ok(()) };
        if recorded.alone || recorded.identity.generation.is_blank() {
            self.facts.add(KnownFact::Alone(group, node));
            return Ok(());
        }
        let what = format!("node {node} group {}: a write goes alone in a generation that the peer knows", group.0);
        Err(OracleFailure::new(Oracle::Order, what))
    }

    /// What somebody wrote to a primary's volume from outside never flows to its peer without an order (P7).
    pub fn check_asked_for(&mut self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        // The other one's own content is overwritten.
        self.facts.remove(KnownFact::ChangedOutside(group, cluster.other(group, node)));
        if !self.facts.has(KnownFact::ChangedOutside(group, node)) {
            return Ok(());
        }
        let what = format!(
            "node {node} group {}: a sync sends what somebody wrote to a volume from outside, and nobody typed `sync`",
            group.0
        );
        Err(OracleFailure::new(Oracle::Outside, what))
    }

    /// The primary's sync has ended: nothing that the peer got by it may be lost here with the power.
    pub fn check_behind(&self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        if cluster.primary(group) != node {
            return Ok(());
        }
        let other = cluster.other(group, node);
        self.writes.check_behind(group, &cluster.durable_volumes(node, group), &cluster.views(other, group))
    }

    /// A sync that nobody asked for must not overwrite what the other side alone holds (P6). A node that is down takes none: this one
    /// has not noticed yet, and meets whoever comes back anew.
    pub fn check_consent(&self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        let other = cluster.other(group, node);
        let takes_none = cluster.glance(other, group).is_none() || cluster.is_primary(other, group);
        if takes_none || cluster.primary(group) != node || !self.writes.has_tail(group) {
            return Ok(());
        }
        let what = format!("group {}: the old primary's own writes are overwritten, nobody asked for it", group.0);
        Err(OracleFailure::new(Oracle::OneWriter, what))
    }

    /// A node opens its exports while the other's are open: only after a forced promotion (P6).
    pub fn check_one_writer(&self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        let other = cluster.other(group, node);
        if !cluster[other].takes_requests(group) || self.facts.has(KnownFact::Forked(group)) {
            return Ok(());
        }
        let what = format!("nodes {node} and {other} both serve group {}, nobody forced it", group.0);
        Err(OracleFailure::new(Oracle::OneWriter, what))
    }

    // ---- a primary opens its exports ---------------------------------------------------------------------------------

    /// What it waited for may be on record, though it was not seen to serve.
    pub fn sees_unverified_run(&mut self, cluster: &SimCluster, now: u64, node: usize, group: GroupId) {
        if cluster.glance(node, group).is_some_and(|glance| glance.needs_verification) {
            self.may_serve_alone(cluster, now, node, group);
        }
    }

    /// A primary that needs verification has waited for its peer as long as it was told to, now or before it died again (rule 24).
    fn may_serve_alone(&mut self, cluster: &SimCluster, now: u64, node: usize, group: GroupId) -> bool {
        let limit = match cluster.ledger.settings(group).start_alone {
            StartAlone::Serve => {
                // That is an answer too.
                self.facts.remove(KnownFact::OperatorAsked(group, node));
                Duration::ZERO
            }
            StartAlone::Wait(limit) => limit,
        };
        if self.facts.has(KnownFact::OperatorAsked(group, node)) {
            return false;
        }
        if u128::from(cluster[node].up_ns(now)) >= limit.as_nanos() {
            self.facts.add(KnownFact::WaitedAlone(group, node));
        }
        self.facts.has(KnownFact::WaitedAlone(group, node))
    }

    /// A primary knows what it holds, its exports are not open yet, or never were when it is demoted.
    pub fn sees_primary(&mut self, cluster: &SimCluster, node: usize, group: GroupId) {
        if let Some(glance) = cluster.glance(node, group) {
            self.writes.primary_up(group, glance.identity.position, &cluster.views(node, group));
        }
    }

    /// A node opens its exports: what it was promoted with is there, and what it may have lost with its power is back.
    pub fn check_opening(
        &mut self,
        cluster: &SimCluster,
        now: u64,
        opening: &ExportOpening,
    ) -> Result<(), OracleFailure> {
        let ExportOpening { node, group, glance, .. } = opening;
        let (node, group, identity) = (*node, *group, &glance.identity);
        let chosen = if opening.was_authority {
            self.facts.remove(KnownFact::Chosen(group))
        } else {
            self.check_takeover(cluster, opening)?;
            true
        };
        self.writes.set_settings(group, &cluster.ledger.settings(group));
        let alone = glance.needs_verification && self.may_serve_alone(cluster, now, node, group);
        self.newcomers.opens(cluster, node, group)?;
        let images = cluster.views(node, group);
        // Of a volume that is detached here nothing is served, fetched or flushed: nobody knows what its disk holds.
        let has_device = |number: u16| {
            let position = cluster.position(node, group, VolumeId(number));
            position.is_none_or(|position| !cluster[node].storage.is_detached(group, position))
        };
        let served: Vec<&[u8]> =
            (0..).zip(&images).map(|(number, image)| if has_device(number) { *image } else { &[] }).collect();
        if opening.lost_power && !alone && !chosen {
            let peer = cluster.other(group, node);
            let stands = cluster.glance(peer, group).filter(|g| g.running && !g.identity.inconsistent);
            let mut at = stands.map(|g| g.identity.position).into_iter().chain(self.ever_confirmed(group, peer));
            at.try_for_each(|at| {
                // A start has flushed what a killed run had written, before it was recorded: from then on nothing of that run is fetched.
                let flushed = opening.flushed_before.is_some_and(|run| run > at.incarnation);
                self.writes.check_pulled(group, at, flushed, &served)
            })?;
        }
        self.facts.remove(KnownFact::OperatorAsked(group, node));
        let caches = match opening.was_authority {
            false => DiskCaches::Anothers,
            true if opening.lost_power || opening.forgot => DiskCaches::Lost,
            true => DiskCaches::Kept,
        };
        self.writes.primary_ready(node, group, (&images, &served), caches, identity)?;
        self.writes.opens_with(group, cluster.aside(node, group));
        Ok(())
    }

    /// It was not the primary that counted.
    fn check_takeover(&mut self, cluster: &SimCluster, opening: &ExportOpening) -> Result<(), OracleFailure> {
        let (node, group, parent) = (opening.node, opening.group, opening.glance.identity.parent);
        // A copy that was given up and is promoted again by force is nobody's prefix any more. Nor is one that was promoted, and written by
        // somebody else before its export opened.
        let changed = self.facts.has(KnownFact::ChangedOutside(group, node));
        if !parent.generation.is_blank() && !opening.given_up && !changed {
            let without = self.writes.promoted_without(group, node);
            self.writes.check_prefix(group, parent, &cluster.views(node, group), &without)?;
            // It goes by what the peer said last: one that was forced in the same moment is a fork (docs/book/reliability.md).
            if !opening.forced && !self.facts.has(KnownFact::Forked(group)) {
                self.writes.check_handover(group, parent)?;
            }
        }
        self.writes.leaves_tail(group, parent);
        // Its export waited for the peer, and opens because a full sync was typed.
        let chosen = self.facts.remove(KnownFact::Chosen(group));
        let overwrites = self.facts.remove(KnownFact::Overwrites(group, node));
        self.facts.remove(KnownFact::Overwrites(group, cluster.other(group, node)));
        if overwrites || chosen && cluster.ledger.typed_sync(group, node) == Some(true) {
            self.writes.tail_given_up(group);
        }
        Ok(())
    }

    // ---- a secondary comes back --------------------------------------------------------------------------------------

    /// It says what was damaged, stands where it confirmed to stand, and is the prefix that it claims.
    pub fn check_returned(&mut self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        self.check_named(cluster, node, group)?;
        self.check_confirmed(cluster, node, group)?;
        self.check_secondary(cluster, node, group)
    }

    /// A secondary whose journal was hit says that it is no image (P9).
    fn check_named(&mut self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        let Some(glance) = cluster.glance(node, group) else { return Ok(()) };
        let id = glance.identity;
        let was_hit = self.facts.remove(KnownFact::JournalHit(group, node));
        if !was_hit || id.inconsistent || id.generation.is_blank() {
            return Ok(());
        }
        let what = format!(
            "node {node} stands at {:?} as if nothing was missing, and a batch that it had confirmed is not whole",
            id.position
        );
        Err(OracleFailure::new(Oracle::Damage, what))
    }

    /// Where it stands is not behind what it confirmed (P1).
    fn check_confirmed(&mut self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        let Some(reported) = self.wire.confirmed(group, node) else { return Ok(()) };
        let Some(glance) = cluster.glance(node, group) else { return Ok(()) };
        let at = glance.identity.position;
        if reported.is_kept_at(at) {
            return Ok(());
        }
        if self.facts.has(KnownFact::Rotten(node, Store::Undo(group))) && self.facts.has(KnownFact::Forked(group)) {
            // A rollback that a forced promotion began met the damage and was given up; what it had undone is gone.
            self.wire.forget(group, node);
            return Ok(());
        }
        if self.facts.has(KnownFact::Rotten(node, Store::Journal(group))) {
            // It says that it lost something, or the rot is in the journal's last batch, which looks like one that was torn
            // (docs/book/reliability.md, P9): what the other side was promised of it is void.
            self.wire.forget(group, node);
            self.writes.promises_void(group);
            return Ok(());
        }
        let what = format!("node {node} confirmed {reported:?} as durable and comes back at {at:?}");
        Err(OracleFailure::new(Oracle::Confirmation, what))
    }

    /// A secondary that just replayed its journal: is it the prefix it claims to be?
    pub fn check_secondary(&mut self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        let Some(glance) = cluster.glance(node, group) else { return Ok(()) };
        let id = glance.identity;
        // About to be recorded as primary it stands in a run of its own: what it holds is looked at when it opens.
        let promoted = id.role == Role::Primary;
        if promoted || id.inconsistent || id.generation.is_blank() {
            return Ok(());
        }
        self.check_prefix(cluster, node, group, id.position)
    }

    /// The node says that exactly this position of the order stands on its volumes.
    pub fn check_prefix(
        &mut self,
        cluster: &SimCluster,
        node: usize,
        group: GroupId,
        at: Position,
    ) -> Result<(), OracleFailure> {
        if cluster.ledger.discarded(group, node) {
            return Ok(());
        }
        let without = cluster.aside(node, group);
        self.writes.check_prefix(group, at, &cluster.views(node, group), &without)
    }

    // ---- what must hold at any moment, and at rest -------------------------------------------------------------------

    /// Looks at everything that must hold at any moment.
    pub fn look_around(&mut self, cluster: &SimCluster, now: u64) -> Result<(), OracleFailure> {
        for group in cluster.groups() {
            self.check_covered(cluster, group)?;
            self.sees_fork_reconciled(cluster, group);
            self.sees_repaired(cluster, group);
            self.newcomers.look(cluster, group)?;
            self.sees_overwritten(cluster, group)?;
            self.status.look(cluster, now, group)?;
        }
        self.views.check_answers(cluster, now)?;
        bounds::check_groups(cluster)?;
        bounds::check_answers(cluster, &self.writes, now)
    }

    /// The node takes a rollback point: the one before is gone by then.
    pub fn takes_point(
        &mut self,
        cluster: &SimCluster,
        node: usize,
        group: GroupId,
        at: Position,
    ) -> Result<(), OracleFailure> {
        self.sees_overwritten(cluster, group)?;
        let is_resolved = self.facts.has(KnownFact::Resolved(group));
        self.overwritten.takes_point(cluster, node, group, at, is_resolved);
        Ok(())
    }

    /// A delta of what a sync overwrites on the node has its head.
    pub fn check_saved(&mut self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        self.sees_overwritten(cluster, group)?;
        self.overwritten.check_saved(cluster, node, group)
    }

    /// What has become of syncs over forks.
    fn sees_overwritten(&mut self, cluster: &SimCluster, group: GroupId) -> Result<(), OracleFailure> {
        let facts = &self.facts;
        self.overwritten.look(cluster, group, |node| facts.has(KnownFact::Rotten(node, Store::Undo(group))))
    }

    /// Every sector that differs between two related copies lies in a dirty region of one of them (P3).
    pub fn check_covered(&mut self, cluster: &SimCluster, group: GroupId) -> Result<(), OracleFailure> {
        let Some(pair) = cluster.working_pair(group) else { return Ok(()) };
        // A copy that was given up is nobody's before it is synced again.
        let is_given_up = cluster.ledger.discarded(group, pair.1) && !self.facts.has(KnownFact::Resolved(group));
        if is_given_up || self.facts.has(KnownFact::Spoiled(group, pair.1)) {
            return Ok(());
        }
        self.coverage.check(cluster, group, pair)
    }

    /// A fork was resolved in favour of this node: the bits of both cover what differs, and what the other one held there is saved.
    pub fn check_kept(&mut self, cluster: &SimCluster, node: usize, group: GroupId) -> Result<(), OracleFailure> {
        let other = cluster.other(group, node);
        self.forks.check_delta(cluster, node, group)?;
        if cluster[other].up() {
            self.coverage.check(cluster, group, (node, other))?;
        }
        self.writes.tail_given_up(group);
        self.facts.add(KnownFact::Resolved(group));
        Ok(())
    }

    /// One primary again, in step with its secondary: the fork is history.
    fn sees_fork_reconciled(&mut self, cluster: &SimCluster, group: GroupId) {
        let Some((primary, _)) = cluster.working_pair(group) else { return };
        if cluster.glance(primary, group).is_some_and(|glance| glance.state == State::Replicating) {
            self.facts.remove(KnownFact::Forked(group));
            self.facts.remove(KnownFact::Resolved(group));
        }
    }

    /// At rest a failed write is known to have happened, or not, on both sides.
    fn sees_repaired(&mut self, cluster: &SimCluster, group: GroupId) {
        let asks = cluster.pair(group).iter().any(|node| self.writes.pending_on(*node, group) > 0);
        if asks || !self.writes.has_wild(group) || !cluster.in_step(group) {
            return;
        }
        let Some(glance) = cluster.glance(cluster.secondary(group), group) else { return };
        let at = glance.identity.position.seq;
        self.writes.is_repaired(group, at, &cluster.views(cluster.primary(group), group));
    }

    /// Both copies of a group in step are equal, and the secondary's is the prefix that it claims.
    pub fn check_rest(&mut self, cluster: &SimCluster, group: GroupId) -> Result<(), OracleFailure> {
        self.check_equal(cluster, group)?;
        coverage::check_larger_part(cluster, group)?;
        check_nothing_aside(cluster, group)?;
        marks::check_equal(cluster, group)?;
        self.check_secondary(cluster, cluster.secondary(group), group)
    }

    /// Both copies of a group in step are equal.
    pub fn check_equal(&self, cluster: &SimCluster, group: GroupId) -> Result<(), OracleFailure> {
        coverage::check_equal(cluster, group)
    }

    /// The records of one node were spoiled and emptied, or somebody wrote to its copy, and the other never held an image, or
    /// gave it up: no command brings the group back.
    pub fn is_lost(&self, cluster: &SimCluster, group: GroupId) -> bool {
        let pair = cluster.pair(group);
        let has_no_image = |node: usize| {
            let runs = cluster.glance(node, group).is_some_and(|glance| glance.running);
            let status = cluster[node].status_of(group).filter(|_| runs);
            status.is_some_and(|status| status.identity.role == Role::Secondary && status.promotable.is_none())
        };
        let was_emptied = pair.iter().any(|node| cluster[*node].lost_its_image(group));
        was_emptied && self.writes.pending() == 0 && pair.into_iter().all(has_no_image)
    }
}

/// At rest a secondary does without no volume that its primary does not set aside.
fn check_nothing_aside(cluster: &SimCluster, group: GroupId) -> Result<(), OracleFailure> {
    let (primary, secondary) =
        (cluster.aside(cluster.primary(group), group), cluster.aside(cluster.secondary(group), group));
    if secondary.iter().all(|volume| primary.contains(volume)) {
        return Ok(());
    }
    let what =
        format!("group {}: at rest the copy says that it is without {secondary:?}, and the primary sends all", group.0);
    Err(OracleFailure::new(Oracle::Prefix, what))
}
