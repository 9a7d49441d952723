//! What was typed at the nodes, what came of it, and what it makes of them: which one is meant to be primary of a group, by which
//! settings, and whose copy was given up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::identity::Role;
use engine::state::Fold;
use engine::{Command, CommandId, CommandResult, GroupId, Settings, StartAlone};

use crate::options::SimOptions;

#[derive(Default)]
pub struct CommandLedger {
    authority: BTreeMap<GroupId, usize>,
    settings: BTreeMap<GroupId, Settings>,
    /// Nodes whose copy of a group was given up by a forced promotion of the other.
    given_up: BTreeSet<(GroupId, usize)>,
    answers: BTreeMap<CommandId, bool>,
    /// What came of each command, in words.
    results: BTreeMap<CommandId, CommandResult>,
    next_command: u64,
    /// To which node each command went.
    asked: BTreeMap<CommandId, usize>,
    failed: BTreeSet<(usize, GroupId)>,
    /// Promotions that took place and have not served yet; the flag: forced.
    promoted: BTreeMap<(GroupId, usize), bool>,
    /// Forced promotions that were asked for and are not refused.
    forces: BTreeMap<CommandId, (GroupId, usize)>,
    /// Promotions that are to lose nothing, and are not answered.
    in_window: BTreeMap<CommandId, (GroupId, usize)>,
    /// Promotions for the clients of a peer, and not answered; the flag: that was last heard as the primary.
    lent: BTreeMap<CommandId, (GroupId, usize, bool)>,
    /// Forced promotions that were asked for, of nodes that died meanwhile.
    interrupted: BTreeSet<(GroupId, usize)>,
    /// The same of promotions that were not forced.
    asked_to_promote: BTreeMap<CommandId, (GroupId, usize)>,
    perhaps_promoted: BTreeSet<(GroupId, usize)>,
    /// What was typed last that means the same at any later time.
    last_typed: BTreeMap<GroupId, (usize, Command)>,
    /// Nodes that were told to sync since they started; the flag: in full.
    typed_sync: BTreeMap<(GroupId, usize), bool>,
}

impl CommandLedger {
    pub fn new(options: &SimOptions) -> CommandLedger {
        let settings = Settings {
            mode: options.modes[0],
            policy: options.policy,
            degrade: options.degrade,
            wait_limit: Duration::from_millis(options.wait_limit_ms),
            fallback: options.fallback,
            autosync: true,
            queue_bytes: options.queue_bytes,
            queue_items: options.queue_items,
            when_full: options.when_full,
            pace: options.pace,
            fold: if options.folds { Fold::Auto } else { Fold::Never },
            link_weight: engine::limits::LINK_WEIGHT_DEFAULT,
            start_alone: StartAlone::Wait(Duration::from_millis(options.start_alone_ms)),
            after_forced_failover: options.after_forced_failover,
        };
        let groups = (0..options.groups()).map(GroupId);
        CommandLedger {
            authority: groups.clone().map(|g| (g, options.first_primary(g.0))).collect(),
            settings: groups.map(|g| (g, settings)).collect(),
            next_command: 1,
            ..CommandLedger::default()
        }
    }

    /// The node that is meant to be the group's primary.
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

    /// A command goes to a node.
    pub fn typed(&mut self, node: usize, group: GroupId, command: &Command) -> CommandId {
        self.next_command += 1;
        let id = CommandId(self.next_command);
        self.asked.insert(id, node);
        // Settings are typed at both nodes, and copies that were equal need not be so any more.
        if !matches!(command, Command::Set(_) | Command::AssumeEqual) {
            self.last_typed.insert(group, (node, command.clone()));
        }
        match command {
            Command::Sync { full } => *self.typed_sync.entry((group, node)).or_default() |= full,
            Command::SendAll => _ = self.typed_sync.insert((group, node), true),
            Command::Promote { force: true, .. } => _ = self.forces.insert(id, (group, node)),
            Command::PromoteForPeer { .. } => {
                self.forces.insert(id, (group, node));
                self.lent.insert(id, (group, node, false));
            }
            Command::PromoteInWindow { .. } => {
                self.forces.insert(id, (group, node));
                self.in_window.insert(id, (group, node));
            }
            Command::Promote { force: false, .. } => _ = self.asked_to_promote.insert(id, (group, node)),
            _ => {}
        }
        id
    }

    /// Where, and what.
    pub fn last_typed(&self, group: GroupId) -> Option<&(usize, Command)> {
        self.last_typed.get(&group)
    }

    /// Whether the command was done, once that is known.
    pub fn answer(&self, id: CommandId) -> Option<bool> {
        self.answers.get(&id).copied()
    }

    pub fn result(&self, id: CommandId) -> Option<&CommandResult> {
        self.results.get(&id)
    }

    /// A sync was typed there since it started: in full?
    pub fn typed_sync(&self, group: GroupId, node: usize) -> Option<bool> {
        self.typed_sync.get(&(group, node)).copied()
    }

    /// A promotion under way there is one that is to lose nothing.
    pub fn promotes_in_window(&self, group: GroupId, node: usize) -> bool {
        self.in_window.values().any(|asked| *asked == (group, node))
    }

    /// Groups for which this node is being promoted for the clients of its peer.
    pub fn lent(&self, node: usize) -> Vec<GroupId> {
        self.lent.values().filter(|lent| lent.1 == node).map(|lent| lent.0).collect()
    }

    /// On the way back it hears that its peer is primary, or is not.
    pub fn hears_of_primary(&mut self, group: GroupId, node: usize, is_primary: bool) {
        self.lent.values_mut().filter(|lent| (lent.0, lent.1) == (group, node)).for_each(|lent| lent.2 = is_primary);
    }

    /// It is to be promoted for the clients of a peer that it knew to be primary.
    pub fn is_lent_beside_primary(&self, group: GroupId, node: usize) -> bool {
        self.lent.values().any(|lent| *lent == (group, node, true))
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
        if self.perhaps_promoted.remove(&(group, node)) && role == Role::Primary {
            self.promoted.entry((group, node)).or_insert(false);
        }
        self.interrupted.remove(&(group, node)) && role == Role::Primary && self.authority[&group] != node
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

    /// The operator stands by this node, which does not serve yet.
    pub fn will_take_over(&mut self, group: GroupId, node: usize) {
        self.promoted.insert((group, node), true);
        self.given_up.insert((group, node));
    }

    /// The operator stands by this node: the other one's copy is given up.
    pub fn stands_by(&mut self, group: GroupId, node: usize) {
        let before = self.authority[&group];
        if before != node {
            self.given_up.insert((group, before));
            self.promoted.remove(&(group, before));
        }
        self.given_up.remove(&(group, node));
        self.authority.insert(group, node);
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

    pub fn group_failed(&mut self, node: usize, group: GroupId) {
        self.failed.insert((node, group));
    }

    /// Nodes and groups that only a reset or a restart helps, since this was asked last.
    pub fn take_failed(&mut self) -> BTreeSet<(usize, GroupId)> {
        std::mem::take(&mut self.failed)
    }

    /// A group starts anew on a node that lives on: what it was told before is forgotten there.
    pub fn starts_anew(&mut self, node: usize, group: GroupId) {
        self.typed_sync.remove(&(group, node));
    }

    /// The node died: what it was asked and has not answered it never will.
    pub fn node_died(&mut self, node: usize) {
        let (died, alive): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.forces).into_iter().partition(|(_, asked)| asked.1 == node);
        self.forces = alive;
        self.in_window.retain(|_, asked| asked.1 != node);
        self.lent.retain(|_, asked| asked.1 != node);
        self.interrupted.extend(died.into_values());
        let (died, alive): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.asked_to_promote).into_iter().partition(|(_, asked)| asked.1 == node);
        self.asked_to_promote = alive;
        self.perhaps_promoted.extend(died.into_values());
        self.typed_sync.retain(|(_, at), _| *at != node);
        for id in self.asked.iter().filter(|(_, at)| **at == node).map(|(id, _)| *id) {
            self.answers.entry(id).or_insert(false);
        }
    }

    /// `failed`: its group did, so that what was refused may be on record all the same.
    pub fn command_done(&mut self, id: CommandId, result: CommandResult, failed: impl Fn(GroupId) -> bool) {
        let refused = matches!(result, CommandResult::Refused(_));
        self.in_window.remove(&id);
        self.lent.remove(&id);
        if refused && let Some(forced) = self.forces.remove(&id).filter(|forced| failed(forced.0)) {
            self.interrupted.insert(forced);
        }
        if matches!(result, CommandResult::Unchanged(_)) {
            // It was primary: nothing was forced.
            self.forces.remove(&id);
        }
        if let Some(asked) = self.asked_to_promote.remove(&id)
            && refused
            && failed(asked.0)
        {
            self.perhaps_promoted.insert(asked);
        }
        self.answers.insert(id, !refused);
        self.results.insert(id, result);
    }
}
