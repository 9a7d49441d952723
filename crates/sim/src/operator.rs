//! The operator: knows which node is meant to be primary of each group, and types commands, at good moments and bad.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::identity::Role;
use engine::state::{Mode, Pause, State};
use engine::{Command, CommandId, CommandResult, GroupId, Input, Settings};

use crate::faults::Fault;
use crate::swarm::Options;
use crate::world::{Event, World};

/// A plan that takes several commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    None,
    /// Demote the primary, then promote the other.
    SwitchDemote {
        asked: Option<CommandId>,
    },
    SwitchPromote {
        asked: Option<CommandId>,
    },
    /// The primary is gone: promote the other by force.
    FailOver {
        asked: Option<CommandId>,
    },
}

pub struct Operator {
    authority: BTreeMap<GroupId, usize>,
    settings: BTreeMap<GroupId, Settings>,
    pub plans: BTreeMap<GroupId, Plan>,
    /// Nodes whose copy of a group was given up by a forced promotion of the other.
    given_up: BTreeSet<(GroupId, usize)>,
    answers: BTreeMap<CommandId, bool>,
    /// What came of each command, in words.
    pub results: BTreeMap<CommandId, CommandResult>,
    /// Does nothing unasked: a story gives the commands.
    pub rests: bool,
    next_command: u64,
    /// To which node each command went.
    asked: BTreeMap<CommandId, usize>,
    restart: BTreeSet<usize>,
    first_synced: BTreeSet<GroupId>,
    /// The last sync asked for.
    syncs: BTreeMap<GroupId, CommandId>,
    /// Promotions that took place and have not served yet; the flag: forced.
    promoted: BTreeMap<(GroupId, usize), bool>,
    /// Forced promotions that were asked for and are not refused.
    forces: BTreeMap<CommandId, (GroupId, usize)>,
    /// The same, of nodes that died meanwhile.
    cut_short: BTreeSet<(GroupId, usize)>,
    /// Nodes that were told to sync since they started; the flag: in full.
    pub typed_sync: BTreeMap<(GroupId, usize), bool>,
}

impl Operator {
    pub fn new(options: &Options) -> Operator {
        let settings = Settings {
            mode: options.modes[0],
            policy: options.policy,
            wait_limit: Duration::from_millis(options.wait_limit_ms),
            autosync: true,
            queue_bytes: options.queue_bytes,
            queue_items: options.queue_items,
            start_alone: engine::StartAlone::Wait(Duration::from_millis(options.start_alone_ms)),
        };
        let groups = (0..options.groups()).map(GroupId);
        Operator {
            authority: groups.clone().map(|g| (g, options.first_primary(g.0))).collect(),
            settings: groups.clone().map(|g| (g, settings)).collect(),
            plans: groups.map(|g| (g, Plan::None)).collect(),
            given_up: BTreeSet::new(),
            answers: BTreeMap::new(),
            results: BTreeMap::new(),
            rests: false,
            next_command: 1,
            asked: BTreeMap::new(),
            restart: BTreeSet::new(),
            first_synced: BTreeSet::new(),
            syncs: BTreeMap::new(),
            promoted: BTreeMap::new(),
            forces: BTreeMap::new(),
            cut_short: BTreeSet::new(),
            typed_sync: BTreeMap::new(),
        }
    }

    pub fn authority(&self, group: GroupId) -> usize {
        self.authority[&group]
    }

    pub fn settings(&self, group: GroupId) -> Settings {
        self.settings[&group]
    }

    pub fn settings_mut(&mut self, group: GroupId) -> &mut Settings {
        self.settings.get_mut(&group).expect("known")
    }

    pub fn discarded(&self, group: GroupId, node: usize) -> bool {
        self.given_up.contains(&(group, node))
    }

    /// Whether it was forced.
    pub fn was_promoted(&mut self, group: GroupId, node: usize) -> bool {
        let forced = self.forces.values().any(|asked| *asked == (group, node));
        self.forces.retain(|_, asked| *asked != (group, node));
        self.promoted.insert((group, node), forced);
        forced
    }

    /// A node is through with starting: a forced promotion that its death cut short took place if it comes back as primary.
    pub fn came_back(&mut self, group: GroupId, node: usize, role: Role) -> bool {
        self.cut_short.remove(&(group, node)) && role == Role::Primary && self.authority[&group] != node
    }

    /// A node serves the group: was it forced to? `None`: it is an old primary that came back, another one was promoted
    /// meanwhile.
    pub fn takes_over(&mut self, group: GroupId, node: usize) -> Option<bool> {
        let promoted = self.promoted.remove(&(group, node));
        let before = self.authority[&group];
        if promoted.is_none() && before != node {
            return None;
        }
        let forced = promoted == Some(true);
        if before != node && forced {
            self.given_up.insert((group, before));
        }
        self.given_up.remove(&(group, node));
        self.authority.insert(group, node);
        Some(forced)
    }

    /// This node's copy is nobody's prefix before it is synced again.
    pub fn gives_up(&mut self, group: GroupId, node: usize) {
        self.given_up.insert((group, node));
    }

    /// A sync from this node ended: the other one's copy is of the present history again.
    pub fn synced(&mut self, group: GroupId, node: usize) {
        if self.authority[&group] == node {
            self.given_up.retain(|(g, n)| *g != group || *n == node);
        }
    }

    pub fn needs_restart(&mut self, node: usize) {
        self.restart.insert(node);
    }

    /// The node died: what it was asked and has not answered it never will.
    pub fn node_died(&mut self, node: usize) {
        let (died, alive): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.forces).into_iter().partition(|(_, asked)| asked.1 == node);
        self.forces = alive;
        self.cut_short.extend(died.into_values());
        self.typed_sync.retain(|(_, at), _| *at != node);
        let unanswered: Vec<CommandId> = self
            .asked
            .iter()
            .filter(|(id, at)| **at == node && !self.answers.contains_key(id))
            .map(|(id, _)| *id)
            .collect();
        for id in unanswered {
            self.answers.insert(id, false);
        }
    }

    /// `failed`: its group did, so that what was refused may be on record all the same.
    pub fn command_done(&mut self, id: CommandId, result: &CommandResult, failed: impl Fn(GroupId) -> bool) {
        let refused = matches!(result, CommandResult::Refused(_));
        if refused && let Some(forced) = self.forces.remove(&id).filter(|forced| failed(forced.0)) {
            self.cut_short.insert(forced);
        }
        self.answers.insert(id, !refused);
        self.results.insert(id, result.clone());
    }

    fn next(&mut self) -> CommandId {
        self.next_command += 1;
        CommandId(self.next_command)
    }
}

impl World {
    pub fn command(&mut self, node: usize, group: GroupId, command: Command) -> CommandId {
        let id = self.operator.next();
        self.operator.asked.insert(id, node);
        self.log(format_args!("operator to node {node} group {}: {command:?}", group.0));
        if let Command::Sync { full } = command {
            *self.operator.typed_sync.entry((group, node)).or_default() |= full;
            self.watch.may_flow(group, node);
        }
        match &command {
            Command::Promote { force: true, .. } => {
                self.operator.forces.insert(id, (group, node));
            }
            Command::Sync { full: true } if self.operator.authority(group) == node => self.judge.tail_given_up(group),
            _ => {}
        }
        let set = if let Command::Set(settings) = &command { Some(*settings) } else { None };
        let releases = set.is_some() || matches!(command, Command::Logging);
        if releases {
            self.judge.order_typed(group);
        }
        self.input(node, Input::Command { group, id, command });
        if releases {
            // What was admitted before in the same turn was judged only now.
            self.judge.order_typed(group);
        }
        let counts = self.operator.authority(group) == node && self.operator.answers.get(&id) == Some(&true);
        if let Some(settings) = set.filter(|_| counts) {
            self.judge.set_settings(group, &settings);
        }
        id
    }

    pub fn operate(&mut self) {
        let wait = self.rng.between(50_000_000, 400_000_000);
        self.schedule(wait, Event::Operate);
        self.look_around();
        if self.operator.rests {
            return;
        }
        for node in std::mem::take(&mut self.operator.restart) {
            self.replaces_spoiled_records_of(node);
            self.crash(node, false, 200_000_000);
        }
        for g in 0..self.options.groups() {
            let group = GroupId(g);
            match self.operator.plans[&group] {
                Plan::None => self.tend(group),
                plan => self.follow(group, plan),
            }
            if self.verdict.is_err() {
                return;
            }
        }
    }

    /// Keeps a group going: one primary, a synced secondary, nobody held without need.
    fn tend(&mut self, group: GroupId) {
        let primary = self.operator.authority(group);
        let other = self.other(group, primary);
        if self.helps_paused(primary, group) || self.helps_paused(other, group) {
            return;
        }
        let (Some(p), Some(s)) = (self.glance(primary, group), self.glance(other, group)) else {
            return;
        };
        if self.healing && self.enlarges_what_is_too_small(group) {
            return;
        }
        if s.identity.inconsistent && !self.healing && self.options.forks && self.rng.percent(3) {
            return self.loses_primary_mid_sync(group);
        }
        if p.state == State::CatchingUp && !self.healing && self.options.faults.contains(&Fault::FlushFails) {
            // Catching up is too short for a fault that comes at any time.
            self.nodes[primary].trouble.fail_next_flush |= self.rng.percent(3);
        }
        if p.state == State::Holding && !self.healing && self.rng.percent(3) {
            // Its writers are to go on without the peer.
            return self.set_mode(group, Mode::Async);
        }
        if s.identity.role == Role::Primary {
            self.command(self.other(group, primary), group, Command::Demote);
            return;
        }
        if p.identity.role == Role::Secondary && s.identity.role == Role::Secondary {
            self.operator.plans.insert(group, Plan::SwitchPromote { asked: None });
            return;
        }
        if p.identity.role != Role::Primary || p.state != State::Logging || self.waits_for_turn(primary, group) {
            return;
        }
        let first = self.operator.first_synced.insert(group);
        if first || self.rng.percent(30) || self.healing {
            let related = s.identity.generation == p.identity.generation;
            let handed = s.identity.handed_over && s.identity.generation == p.identity.parent.generation;
            let covered = related || (handed && s.identity.position == p.identity.parent);
            // What cannot be settled without it, the refusal says.
            let last = self.operator.syncs.get(&group).and_then(|id| self.operator.results.get(id));
            let told = matches!(last, Some(CommandResult::Refused(why)) if why.contains("--full"));
            if matches!(last, Some(CommandResult::Refused(why)) if why.contains("must not overwrite it")) {
                // Both sides went on alone: the operator stands by this one.
                self.operator.syncs.remove(&group);
                self.command(primary, group, Command::Demote);
                return;
            }
            // A wide volume is synced in full only if nothing else helps.
            let full = told || !covered && self.options.spread.is_none();
            if self.operator.settings(group).mode == Mode::Logging && self.healing {
                self.set_mode(group, Mode::Async);
            }
            let id = self.command(primary, group, Command::Sync { full });
            self.operator.syncs.insert(group, id);
        }
    }

    /// It stands in line for a sync, and gets there without anybody's help.
    fn waits_for_turn(&self, node: usize, group: GroupId) -> bool {
        let status = self.nodes[node].engine.as_ref().and_then(|engine| engine.status_of(group));
        status.is_some_and(|status| status.reason.starts_with("waiting for its turn"))
    }

    /// A secondary whose history is full gets out of it by giving its rollback point up, sooner or later. True: it was
    /// asked to.
    fn helps_paused(&mut self, node: usize, group: GroupId) -> bool {
        let stuck = self.glance(node, group).is_some_and(|g| g.paused == Some(Pause::HistoryFull));
        if !stuck || !(self.healing || self.rng.percent(10)) {
            return false;
        }
        let Some(name) = self.rollback_point(node, group) else { return false };
        self.command(node, group, Command::DropRollbackPoint { name });
        true
    }

    pub fn rollback_point(&self, node: usize, group: GroupId) -> Option<String> {
        let status = self.nodes[node].engine.as_ref()?.status_of(group)?;
        status.rollback_point.map(|point| point.name)
    }

    /// A secondary has its rollback point: from now on its copy is overwritten. In the stream the primary's dirty regions
    /// clear on the way, so that only the secondary's own tell what a rollback undoes.
    pub fn sync_begins(&mut self, group: GroupId, secondary: usize) {
        if !self.operator.rests && self.watch.syncs_in_stream(group, secondary) && self.rng.percent(60) {
            let primary = self.nodes[self.other(group, secondary)].engine.as_ref();
            let status = primary.map(|engine| engine.status()).unwrap_or_default();
            let dirty: u64 =
                status.iter().filter(|g| g.id == group).flat_map(|g| &g.volumes).map(|v| v.dirty_bytes).sum();
            let after = self.rng.between(1_000_000, 10_000_000 + dirty * 1_000_000 / (self.options.bytes_per_s / 1000));
            self.schedule(after, Event::MidSync { group });
        }
    }

    /// If that sync is still under way, it will not end.
    pub fn mid_sync(&mut self, group: GroupId) {
        let secondary = self.other(group, self.operator.authority(group));
        let half = self.glance(secondary, group).is_some_and(|glance| glance.identity.inconsistent);
        if half && !self.healing && self.options.forks && self.operator.plans[&group] == Plan::None {
            // What would be written now is dirty anyway.
            self.burst = 0;
            self.loses_primary_mid_sync(group);
        }
    }

    /// The site is lost while the copy is being overwritten: what stood before it must come back.
    fn loses_primary_mid_sync(&mut self, group: GroupId) {
        let primary = self.operator.authority(group);
        if self.rng.percent(30) {
            let (power, down) = (self.rng.percent(50), self.rng.between(4_000_000_000, 7_000_000_000));
            self.crash(primary, power, down);
            self.operator.plans.insert(group, Plan::FailOver { asked: None });
            return;
        }
        // An operator who does not ask first.
        let (other, entropy) = (self.other(group, primary), self.rng.draw());
        self.command(other, group, Command::Promote { force: true, entropy });
        self.loses_power_on_the_way_back(other);
    }

    /// More often than not the power of a node goes while it returns to its rollback point.
    fn loses_power_on_the_way_back(&mut self, node: usize) {
        if self.rng.percent(80) {
            let after = self.rng.between(50_000, 8 * self.options.disk_ns.1);
            self.schedule(after, Event::PowerLoss { node });
        }
    }

    pub fn set_mode(&mut self, group: GroupId, mode: Mode) {
        self.set(group, |settings| settings.mode = mode);
    }

    /// Types new settings at both nodes.
    pub fn set(&mut self, group: GroupId, change: impl FnOnce(&mut Settings)) {
        for node in self.options.pairs[group.0 as usize] {
            self.waits_in_doubt(node, group);
        }
        change(self.operator.settings_mut(group));
        let settings = self.operator.settings(group);
        let primary = self.operator.authority(group);
        if self.nodes[primary].up() {
            self.command(primary, group, Command::Set(settings));
        }
        if self.nodes[self.other(group, primary)].up() {
            self.command(self.other(group, primary), group, Command::Set(settings));
        }
    }

    fn follow(&mut self, group: GroupId, plan: Plan) {
        let primary = self.operator.authority(group);
        let answer = |w: &World, id: Option<CommandId>| id.and_then(|id| w.operator.answers.get(&id).copied());
        let next = match plan {
            Plan::None => Plan::None,
            Plan::SwitchDemote { asked: None } if self.nodes[primary].up() => {
                Plan::SwitchDemote { asked: Some(self.command(primary, group, Command::Demote)) }
            }
            Plan::SwitchDemote { asked } => match answer(self, asked) {
                Some(true) => Plan::SwitchPromote { asked: None },
                Some(false) => Plan::None,
                None if !self.nodes[primary].up() => Plan::None,
                None => plan,
            },
            Plan::SwitchPromote { asked: None } => self.promote_someone(group),
            Plan::SwitchPromote { asked } => match answer(self, asked) {
                Some(true) => Plan::None,
                Some(false) => Plan::SwitchPromote { asked: None },
                None if self.options.pairs[group.0 as usize].iter().any(|n| !self.nodes[*n].up()) => {
                    Plan::SwitchPromote { asked: None }
                }
                None => plan,
            },
            Plan::FailOver { asked: None } => self.fail_over(group),
            Plan::FailOver { asked } => match answer(self, asked) {
                Some(_) => Plan::None,
                None if !self.nodes[self.other(group, primary)].up() => Plan::None,
                None => plan,
            },
        };
        self.operator.plans.insert(group, next);
    }

    /// After a demotion: the other node if it may, else the old primary back by force.
    fn promote_someone(&mut self, group: GroupId) -> Plan {
        let primary = self.operator.authority(group);
        let other = self.other(group, primary);
        let role = |w: &World, node: usize| w.glance(node, group).map(|g| g.identity.role);
        if role(self, primary) == Some(Role::Primary) || role(self, other) == Some(Role::Primary) {
            return Plan::None;
        }
        let entropy = self.rng.draw();
        let blank = self.glance(primary, group).is_some_and(|glance| glance.identity.generation.is_blank());
        if blank && self.nodes[other].up() {
            // Its records had to be made anew.
            let asked = self.command(other, group, Command::Promote { force: true, entropy });
            return Plan::SwitchPromote { asked: Some(asked) };
        }
        if self.rng.percent(70) && self.nodes[other].up() {
            let asked = self.command(other, group, Command::Promote { force: false, entropy });
            return Plan::SwitchPromote { asked: Some(asked) };
        }
        if self.rng.percent(30) && self.nodes[primary].up() {
            let asked = self.command(primary, group, Command::Promote { force: true, entropy });
            return Plan::SwitchPromote { asked: Some(asked) };
        }
        Plan::SwitchPromote { asked: None }
    }

    fn fail_over(&mut self, group: GroupId) -> Plan {
        let primary = self.operator.authority(group);
        let other = self.other(group, primary);
        if self.nodes[primary].up() || !self.nodes[other].up() {
            return Plan::None;
        }
        let mid_sync = self.glance(other, group).is_some_and(|g| g.identity.inconsistent);
        let entropy = self.rng.draw();
        let asked = self.command(other, group, Command::Promote { force: true, entropy });
        if mid_sync {
            self.loses_power_on_the_way_back(other);
        }
        Plan::FailOver { asked: Some(asked) }
    }
}
