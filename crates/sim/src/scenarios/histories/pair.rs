//! A pair of nodes that a history happens to, on the engines, disks and paths of the simulator.

use std::collections::BTreeSet;

use engine::identity::{DecisionRow, Role};
use engine::state::{Mode, State};
use engine::{Command, CommandId, CommandResult, RequestId, Store, VolumeId};

use super::event::{ALPHABET, HistoryEvent};
use super::truth::{SeenNode, Truth, WriteSet};
use crate::checkers::writes::ClientRequest;
use crate::options::SimOptions;
use crate::scenarios::{GROUP, MILLISECOND, SECOND};
use crate::simulation::Simulation;
use crate::stamps::{SECTOR, SectorFill, content};
use crate::world::{MeetingStep, World, resets};

/// Each write has a block of its own: what an image holds is a set of writes.
const BLOCK: u64 = 4096;
/// Of the first roles.
const SECONDARY: usize = 1;
/// More than a history has.
const WRITES_MAX: usize = 24;

/// How long both nodes are left alone after an event, and after one that may begin a sync.
const PAUSE_NS: u64 = 300 * MILLISECOND;
const SYNC_NS: u64 = 1000 * MILLISECOND;
/// Longer than a primary that starts waits for its peer. At the end of a history nodes that start wait for `SYNC_NS`, and serve later.
const START_NS: u64 = 2 * SECOND;
/// An order that is not answered by then never is.
const ANSWER_LIMIT: u64 = 60 * SECOND;
/// Two nodes that have not joined by then do not join by themselves.
const JOIN_LIMIT: u64 = 10 * SECOND;

/// Where a write stands, and what it left there.
struct PlacedWrite {
    volume: VolumeId,
    offset: u64,
    bytes: Vec<u8>,
}

/// Whether the nodes came together at the end of a history, and whether they should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryEnd {
    Joined,
    /// One node's writes would be lost.
    ApartForReason,
    /// Nothing would be lost, and this row keeps them apart.
    ApartWithoutLoss(DecisionRow),
}

pub struct HistoryPair {
    world: World,
    truth: Truth,
    writes: Vec<PlacedWrite>,
    /// Steps of meetings before both were in step.
    met: usize,
    is_cut: bool,
    was_forced: bool,
    /// The secondary's stores as they were then. `None`: it was set back to them, and of that the checkers of the world know nothing.
    copy: Option<Vec<(Store, Vec<u8>)>>,
    /// The generation in which a node last answered a write, and which node that was.
    wrote: Vec<(u64, usize)>,
    /// What was wrong first.
    objection: Option<String>,
}

impl HistoryPair {
    /// Both are in step, and node 0 is the primary.
    pub fn in_step(options: SimOptions, truth_alone: bool, verbose: bool) -> HistoryPair {
        let mut world = Simulation::new(options, verbose).world;
        (world.unattended, world.is_unjudged) = (true, truth_alone);
        let mut pair = HistoryPair {
            world,
            truth: Truth::default(),
            writes: Vec::new(),
            met: 0,
            is_cut: false,
            was_forced: false,
            copy: None,
            wrote: Vec::new(),
            objection: None,
        };
        pair.pass(SECOND / 2);
        pair.world.command(0, GROUP, Command::Sync { full: true });
        pair.pass_until(20 * SECOND, HistoryPair::is_joined);
        pair.pass(2 * SECOND);
        assert!(pair.is_joined(), "the first sync has ended");
        pair.look();
        let stores = pair.world.cluster[SECONDARY].storage.disks();
        pair.copy = Some(stores.map(|(store, disk)| (*store, disk.durable().to_vec())).collect());
        pair.met = pair.world.meetings.len();
        pair
    }

    pub fn objection(&self) -> Option<&str> {
        self.objection.as_deref()
    }

    /// Rows that were taken since both were in step.
    pub fn rows(&self) -> BTreeSet<DecisionRow> {
        let decided = self.world.meetings[self.met..].iter().filter_map(|(_, step)| row_of(step));
        decided.collect()
    }

    pub fn now(&self) -> u64 {
        self.world.now()
    }

    fn objects(&mut self, what: String) {
        self.world.log(format_args!("OBJECTION: {what}"));
        self.objection.get_or_insert(what);
    }

    // ---- time --------------------------------------------------------------------------------------------------------

    /// Virtual time goes by. What the checkers of the world object to counts, too.
    fn pass(&mut self, time_ns: u64) {
        let until = self.world.now() + time_ns;
        while self.world.run_to_cue(until).is_some() {}
        if let Err(failure) = self.world.verdict().clone() {
            self.objects(failure.to_string());
        }
    }

    fn pass_until(&mut self, limit_ns: u64, holds: impl Fn(&HistoryPair) -> bool) {
        let limit = self.world.now() + limit_ns;
        while !holds(self) && self.world.now() < limit {
            self.pass(10 * MILLISECOND);
        }
    }

    // ---- what the nodes show -----------------------------------------------------------------------------------------

    fn role(&self, node: usize) -> Option<Role> {
        self.world.glance(node, GROUP).filter(|glance| glance.running).map(|glance| glance.identity.role)
    }

    fn serves(&self, node: usize) -> bool {
        self.world.cluster[node].takes_requests(GROUP)
    }

    fn is_up(&self, node: usize) -> bool {
        self.world.cluster[node].up()
    }

    /// One sends all it has to the other, and nothing is under way.
    fn is_joined(&self) -> bool {
        let (Some(a), Some(b)) = (self.world.glance(0, GROUP), self.world.glance(1, GROUP)) else { return false };
        let is_pair = |p: Role, s: Role| (p, s) == (Role::Primary, Role::Secondary);
        let replicates = |state: State| state == State::Replicating;
        a.drained
            && b.drained
            && (is_pair(a.identity.role, b.identity.role) && replicates(a.state)
                || is_pair(b.identity.role, a.identity.role) && replicates(b.state))
    }

    /// The writes whose blocks are on the node's volumes.
    fn image(&self, node: usize) -> WriteSet {
        let volumes = self.world.cluster.views(node, GROUP);
        let holds = |write: &PlacedWrite| {
            let from = write.offset as usize;
            volumes[usize::from(write.volume.0)][from..from + write.bytes.len()] == write.bytes
        };
        let held = self.writes.iter().enumerate().filter(|(_, write)| holds(write));
        held.fold(WriteSet::default(), |all, (number, _)| all.and(WriteSet::of(number)))
    }

    fn images(&self) -> [WriteSet; 2] {
        [0, 1].map(|node| self.image(node))
    }

    /// Compares what the nodes show with the truth.
    fn look(&mut self) {
        for node in 0..2 {
            let Some(glance) = self.world.glance(node, GROUP).filter(|glance| glance.running) else { continue };
            let is_primary = glance.identity.role == Role::Primary;
            let (is_overwritten, is_at_rest) = (glance.identity.inconsistent, glance.drained || is_primary);
            let seen = SeenNode { is_primary, is_overwritten, is_at_rest, image: self.image(node) };
            if let Err(what) = self.truth.look(node, seen) {
                self.objects(what);
            }
        }
        if self.serves(0) && self.serves(1) && !self.was_forced {
            self.objects("both nodes serve, and nobody forced a promotion".to_owned());
        }
    }

    // ---- events ------------------------------------------------------------------------------------------------------

    /// What may happen next and change something.
    pub fn possible(&self) -> Vec<HistoryEvent> {
        ALPHABET.iter().map(|(_, event)| *event).filter(|event| self.is_possible(*event)).collect()
    }

    fn is_possible(&self, event: HistoryEvent) -> bool {
        let has_role = |node, role| self.role(node) == Some(role);
        match event {
            HistoryEvent::Write(node) | HistoryEvent::Cached(node) => {
                self.serves(node) && self.writes.len() < WRITES_MAX
            }
            HistoryEvent::Cut => !self.is_cut,
            HistoryEvent::Join => self.is_cut,
            HistoryEvent::JoinBriefly | HistoryEvent::JoinAndWrite => self.is_cut && self.is_up(0) && self.is_up(1),
            HistoryEvent::PowerLoss(node) => self.is_up(node),
            HistoryEvent::Start(node) => !self.is_up(node),
            HistoryEvent::Promote(node) | HistoryEvent::Force(node) => has_role(node, Role::Secondary),
            HistoryEvent::Demote(node) => has_role(node, Role::Primary),
            HistoryEvent::Keep(_) => !self.is_cut && [0, 1].into_iter().all(|node| has_role(node, Role::Primary)),
            HistoryEvent::Reload(node) => self.role(node).is_some(),
            HistoryEvent::SetBack => self.copy.is_some() && !self.writes.is_empty(),
        }
    }

    /// False: nothing changed.
    pub fn happens(&mut self, event: HistoryEvent) -> bool {
        self.world.log(format_args!("history: {event}"));
        let entropy = self.world.rng.draw();
        let changes = match event {
            HistoryEvent::Write(node) => self.writes(node, true),
            HistoryEvent::Cached(node) => self.writes(node, false),
            HistoryEvent::Cut => self.cuts(),
            HistoryEvent::Join => self.restores(),
            HistoryEvent::JoinBriefly => {
                let was_half = self.joins_half();
                self.cuts();
                was_half
            }
            HistoryEvent::JoinAndWrite => self.joins_half() && self.writes_beside_sync(),
            HistoryEvent::PowerLoss(node) => self.loses_power(node),
            HistoryEvent::Start(node) => self.starts(node),
            HistoryEvent::Promote(node) => self.order(node, Command::Promote { force: false, entropy }),
            HistoryEvent::Force(node) => {
                self.was_forced = true;
                self.order(node, Command::Promote { force: true, entropy })
            }
            HistoryEvent::Demote(node) => {
                let is_demoted = self.order(node, Command::Demote);
                if is_demoted {
                    self.truth.flushed(node);
                }
                is_demoted
            }
            HistoryEvent::Keep(node) => self.keeps(node),
            HistoryEvent::Reload(node) => {
                self.truth.run_ends(node);
                resets::reloads(&mut self.world, node, GROUP);
                true
            }
            HistoryEvent::SetBack => self.is_set_back(),
        };
        self.pass(match event {
            HistoryEvent::Write(_) | HistoryEvent::Cached(_) | HistoryEvent::Cut => PAUSE_NS,
            HistoryEvent::Start(_) | HistoryEvent::SetBack => START_NS,
            _ => SYNC_NS,
        });
        self.look();
        changes
    }

    fn writes(&mut self, node: usize, flushes: bool) -> bool {
        let number = self.writes.len();
        let fill = SectorFill::Stamp(self.world.checkers.writes.stamp(GROUP));
        let (volume, offset) = (VolumeId((number % 2) as u16), number as u64 / 2 * BLOCK);
        let sectors = offset / SECTOR as u64..(offset + BLOCK) / SECTOR as u64;
        let image = self.image(node);
        self.writes.push(PlacedWrite { volume, offset, bytes: content(fill, volume, sectors) });
        self.truth.issued(node, WriteSet::of(number), image);
        let asked = ClientRequest::Write { volume, offset, length: BLOCK, fill, fua: false };
        let in_step = self.is_joined();
        let write = self.world.ask(node, GROUP, asked, false);
        if !self.answered(write) {
            return true;
        }
        self.truth.acknowledged(node, WriteSet::of(number));
        self.wrote_in_generation(node);
        if in_step && self.is_joined() && self.world.cluster.ledger.settings(GROUP).mode == Mode::Sync {
            self.truth.is_on_both(node, WriteSet::of(number));
        }
        if flushes {
            let flushes =
                [0, 1].map(|volume| self.world.ask(node, GROUP, ClientRequest::flush(VolumeId(volume)), false));
            if flushes.into_iter().all(|flush| self.answered(flush)) {
                self.truth.flushed(node);
            }
        }
        true
    }

    /// A generation has one node that gives its numbers.
    fn wrote_in_generation(&mut self, node: usize) {
        let Some(glance) = self.world.glance(node, GROUP) else { return };
        let generation = glance.identity.generation.tag;
        if self.wrote.contains(&(generation, 1 - node)) {
            self.objects(format!("both nodes answered writes in generation {generation:x}"));
        }
        self.wrote.push((generation, node));
    }

    fn answered(&mut self, id: RequestId) -> bool {
        self.pass_until(ANSWER_LIMIT, |pair| pair.world.reply(id).is_some());
        self.world.reply(id) == Some(true)
    }

    fn order(&mut self, node: usize, command: Command) -> bool {
        let id = self.world.command(node, GROUP, command);
        self.is_done(id)
    }

    fn is_done(&mut self, id: CommandId) -> bool {
        self.pass_until(ANSWER_LIMIT, |pair| pair.world.cluster.ledger.result(id).is_some());
        matches!(self.world.cluster.ledger.result(id), Some(CommandResult::Done(_) | CommandResult::Warning(_)))
    }

    fn cuts(&mut self) -> bool {
        self.is_cut = true;
        self.world.cut([false; 2]);
        self.world.flap([0, 1]);
        true
    }

    fn restores(&mut self) -> bool {
        self.is_cut = false;
        self.world.restore_path();
        true
    }

    /// The link is back, and goes on until a sync is half-way. False: none was.
    fn joins_half(&mut self) -> bool {
        self.restores();
        let limit = self.world.now() + SYNC_NS;
        let is_overwritten = |pair: &HistoryPair, node: usize| {
            pair.world.glance(node, GROUP).is_some_and(|glance| glance.identity.inconsistent)
        };
        let is_half = |pair: &HistoryPair| is_overwritten(pair, 0) || is_overwritten(pair, 1);
        while !is_half(self) && self.world.now() < limit {
            self.pass(MILLISECOND / 10);
        }
        is_half(self)
    }

    fn writes_beside_sync(&mut self) -> bool {
        let sender = [0, 1].into_iter().find(|node| self.serves(*node));
        sender.is_some_and(|sender| self.writes(sender, false))
    }

    fn loses_power(&mut self, node: usize) -> bool {
        self.world.crash(node, true, SECOND);
        self.world.cluster[node].stays_down();
        self.truth.lost_power(node);
        true
    }

    fn starts(&mut self, node: usize) -> bool {
        self.world.boot(node);
        true
    }

    fn is_set_back(&mut self) -> bool {
        self.world.is_unjudged = true;
        self.loses_power(SECONDARY);
        for (store, content) in self.copy.take().into_iter().flatten() {
            self.world.cluster[SECONDARY].disk_mut(store).restore(content);
        }
        self.truth.is_set_back(SECONDARY);
        self.starts(SECONDARY)
    }

    fn keeps(&mut self, node: usize) -> bool {
        let tag = |pair: &HistoryPair, node| pair.world.glance(node, GROUP).map_or(0, |it| it.identity.generation.tag);
        let tags = [tag(self, 0), tag(self, 1)];
        let images = self.images();
        let kept =
            self.world.command(node, GROUP, Command::Keep { over: tags[1 - node], discard: false, by_policy: false });
        self.pass(20 * MILLISECOND);
        self.order(1 - node, Command::Yield { to: tags[node], by_policy: false });
        if self.is_done(kept) {
            self.truth.is_chosen(node, images);
        }
        true
    }

    // ---- the end -----------------------------------------------------------------------------------------------------

    /// Both are up, and they meet: whether they come together by themselves, and whether they should.
    pub fn ends(&mut self) -> HistoryEnd {
        if !(self.is_up(0) && self.is_up(1)) {
            // They are apart as it is, and what each holds is to be seen before they meet.
            if !self.is_cut {
                self.cuts();
            }
            let down = [0, 1].into_iter().filter(|node| !self.is_up(*node)).collect::<Vec<_>>();
            down.into_iter().for_each(|node| _ = self.starts(node));
            self.pass(SYNC_NS);
            self.look();
        }
        let (images, roles) = (self.images(), [self.role(0), self.role(1)]);
        let met = self.world.meetings.len();
        if self.is_cut {
            self.restores();
        }
        self.world.log(format_args!("history: the end, {images:?} {roles:?}"));
        self.pass_until(JOIN_LIMIT, HistoryPair::is_joined);
        self.pass(PAUSE_NS);
        self.look();
        if self.is_joined() {
            self.check_equal();
            if self.world.meetings[met..].iter().any(|(_, step)| *step == MeetingStep::Syncs { full: true }) {
                self.objects("they joined by a full sync that nobody asked for".to_owned());
            }
            return HistoryEnd::Joined;
        }
        self.world.explain();
        for node in 0..2 {
            let reason = self.world.cluster[node].status_of(GROUP).map(|status| status.reason);
            self.world.log(format_args!("history: node {node} stays apart: {reason:?}"));
        }
        self.is_apart(images, roles)
    }

    fn check_equal(&mut self) {
        let volumes = [0, 1].map(|node| self.world.cluster.views(node, GROUP));
        if volumes[0] != volumes[1] {
            self.objects("they have joined, and their images differ".to_owned());
        }
    }

    fn is_apart(&mut self, images: [WriteSet; 2], roles: [Option<Role>; 2]) -> HistoryEnd {
        let primaries: Vec<usize> = [0, 1].into_iter().filter(|node| roles[*node] == Some(Role::Primary)).collect();
        if primaries.is_empty() {
            return HistoryEnd::ApartWithoutLoss(DecisionRow::TwoSecondaries);
        }
        if !primaries.iter().any(|primary| self.truth.is_prefix_of(*primary, images)) {
            return HistoryEnd::ApartForReason;
        }
        match self.world.meetings.iter().rev().find_map(|(_, step)| row_of(step)) {
            Some(row) => HistoryEnd::ApartWithoutLoss(row),
            None => {
                self.objects("they do not join, nothing would be lost, and no row says why".to_owned());
                HistoryEnd::ApartForReason
            }
        }
    }
}

fn row_of(step: &MeetingStep) -> Option<DecisionRow> {
    match step {
        MeetingStep::Decided(row) => Some(*row),
        MeetingStep::Syncs { .. } => None,
    }
}
