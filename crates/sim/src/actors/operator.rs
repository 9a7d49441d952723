//! The operator: knows which node is meant to be primary of each group, and types commands, at good moments and bad.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::identity::{Identity, Role};
use engine::state::{AfterForcedFailover, Mode, Pause, Policy, State};
use engine::status::{GroupGlance, VolumeStatus};
use engine::{Command, CommandId, CommandResult, GroupId, NodeId, VolumeId};

use crate::actors::follow_policy;
use crate::actors::other_volumes::VolumeKeeper;
use crate::checkers::facts::KnownFact;
use crate::options::fault::FaultKind;
use crate::world::{World, WorldEvent, resets};

/// The node is down for so long while its device is enlarged.
const ENLARGED_WITHIN_NS: u64 = 200_000_000;

/// Whoever has no copy for so long enlarges the device that is too small, trouble or not.
const LONG_WITHOUT_COPY_NS: u64 = 1_500_000_000_000;

/// A plan that takes several commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperatorPlan {
    /// The primary hands over to the other, in one word.
    Switchover {
        asked: Option<CommandId>,
    },
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
    /// The other node is to take over, and this one again once it has the content of that one.
    Reverse {
        home: usize,
        asked: Option<CommandId>,
    },
    /// The same where the other node lacks something: this one is demoted first, then that one is promoted for its clients.
    Lend {
        home: usize,
        demoted: CommandId,
        asked: Option<CommandId>,
    },
    /// Both went on alone: the content of one is kept, and the other one yields.
    Resolve {
        keep: usize,
        /// The generation of the other one when that was ordered.
        over: u64,
        kept: CommandId,
        yielded: Option<CommandId>,
    },
}

#[derive(Default)]
pub struct Operator {
    plans: BTreeMap<GroupId, OperatorPlan>,
    first_synced: BTreeSet<GroupId>,
    /// Groups whose clients are at home on a node, and are served by the other one.
    reversed: BTreeMap<GroupId, usize>,
    /// Groups whose secondary loses its records once both copies are equal; the flag: it has.
    equals: BTreeMap<GroupId, bool>,
    /// The last reset of each half of a group.
    resets: BTreeMap<(usize, GroupId), CommandId>,
    /// The last sync asked for.
    syncs: BTreeMap<GroupId, CommandId>,
    /// Faults are over: everything must heal.
    healing: bool,
    pub volumes: VolumeKeeper,
}

impl Operator {
    /// From now on everything must heal.
    pub fn heals(&mut self) {
        self.healing = true;
    }

    /// He has no plan.
    pub fn is_idle(&self) -> bool {
        self.plans.is_empty()
    }

    pub fn has_plan(&self, group: GroupId) -> bool {
        self.plans.contains_key(&group)
    }

    /// The primary and the other node are to change their roles.
    pub fn plans_switch(&mut self, group: GroupId, in_one_word: bool) {
        let plan = match in_one_word {
            true => OperatorPlan::Switchover { asked: None },
            false => OperatorPlan::SwitchDemote { asked: None },
        };
        self.plans.insert(group, plan);
    }

    /// The primary is lost: the other one is to take over.
    pub fn plans_failover(&mut self, group: GroupId) {
        self.plans.insert(group, OperatorPlan::FailOver { asked: None });
    }

    /// The content of the secondary is to count.
    pub fn plans_reverse(&mut self, world: &World, group: GroupId) {
        let home = world.cluster.primary(group);
        self.plans.insert(group, OperatorPlan::Reverse { home, asked: None });
    }

    /// The secondary's records are lost as soon as both copies hold the same.
    pub fn awaits_equal(&mut self, group: GroupId) {
        self.equals.entry(group).or_insert(false);
    }

    /// Sees to all groups.
    pub fn act(&mut self, world: &mut World) {
        self.helps_failed(world);
        if self.healing {
            self.volumes.brings_together(world);
        }
        for group in world.cluster.groups() {
            if self.healing && self.volumes.replaces_dead_disks(world, group) {
                continue;
            }
            if world.cluster.options.after_forced_failover == AfterForcedFailover::KeepPromoted {
                // Whoever is to yield is waited for only a while.
                let may_keep = world.rng.percent(30);
                follow_policy(world, group, may_keep);
            }
            match self.plans.get(&group).copied() {
                None if self.takes_over_again(world, group) || self.loses_equal_copy(world, group) => {}
                None => self.tend(world, group),
                Some(plan) => self.follow(world, group, plan),
            }
            if world.verdict().is_err() {
                return;
            }
        }
    }

    /// What failed is reset, or started anew with its daemon; and with it where the reset came to nothing.
    fn helps_failed(&mut self, world: &mut World) {
        let came_to_nothing =
            |world: &World, id: &CommandId| matches!(world.cluster.ledger.result(*id), Some(CommandResult::Refused(_)));
        for (node, group) in world.cluster.ledger.take_failed() {
            let before = self.resets.remove(&(node, group));
            let is_spoiled = !world.checkers.facts.spoiled_on(node).is_empty();
            let tries = before.is_none_or(|id| !came_to_nothing(world, &id)) && !is_spoiled;
            if tries && world.rng.percent(60) {
                let entropy = world.rng.draw();
                let id = world.command(node, group, Command::Reset { entropy });
                self.resets.insert((node, group), id);
                continue;
            }
            Operator::replaces_spoiled_records(world, node);
            world.crash(node, false, 200_000_000);
        }
    }

    /// Makes the records of groups anew that failed on spoiled ones.
    pub fn replaces_spoiled_records(world: &mut World, node: usize) {
        for group in world.checkers.facts.spoiled_on(node) {
            world.log(format_args!("the operator empties what node {node} keeps of group {}", group.0));
            world.checkers.facts.remove(KnownFact::Spoiled(group, node));
            world.crash(node, false, 200_000_000);
            world.cluster[node].wipes(group);
            world.copy_is_void(group, node);
        }
    }

    /// A node whose device is smaller than the group's volumes gets a larger one, and one that has not seen yet that it has is started again.
    /// True: it is on its way.
    fn enlarges_what_is_too_small(world: &mut World, group: GroupId) -> bool {
        let (cluster, pair) = (&world.cluster, world.cluster.pair(group));
        let held = pair.iter().filter_map(|node| cluster.volume_bytes(*node, group, VolumeId(0)));
        let bytes = held.max().unwrap_or(0);
        let sees_less = |node: &usize| {
            let seen = cluster[*node].status_of(group).and_then(|now| Some(now.volumes.first()?.device_bytes));
            seen.is_some_and(|seen| seen < bytes.min(cluster.device_bytes(*node)))
        };
        let is_too_small = |node: &usize| cluster.device_bytes(*node) < bytes;
        let Some(node) = pair.into_iter().find(|node| is_too_small(node) || sees_less(node)) else { return false };
        let missing = bytes.saturating_sub(cluster.device_bytes(node));
        world.cluster[node].storage.grows_to(missing);
        world.crash(node, false, ENLARGED_WITHIN_NS);
        true
    }

    /// Types again what was typed, or has one half of the group leave and come again: true.
    fn changes_nothing(world: &mut World, pair: [usize; 2], group: GroupId) -> bool {
        if world.rng.percent(2) {
            Operator::repeats(world, group);
        }
        let reloads = world.rng.percent(1);
        if reloads {
            resets::reloads_either(world, pair, group);
        }
        reloads
    }

    /// True: the node was given an order that what it shows asks for.
    fn helps(&mut self, world: &mut World, node: usize, group: GroupId) -> bool {
        self.helps_paused(world, node, group) || self.ends_load(world, node, group)
    }

    /// A volume that is set aside rejoins, sooner or later. True: it was ordered.
    fn ends_load(&mut self, world: &mut World, primary: usize, group: GroupId) -> bool {
        let shown = world.glance(primary, group).filter(|glance| glance.identity.role == Role::Primary);
        let Some(volume) = shown.and_then(|glance| glance.aside.iter().next()) else { return false };
        if !self.healing && !world.rng.percent(5) {
            return false;
        }
        let id = world.command(primary, group, Command::Rejoin { volume });
        world.cluster.ledger.answer(id) != Some(false)
    }

    /// Keeps a group going: one primary, a synced secondary, nobody held without need.
    fn tend(&mut self, world: &mut World, group: GroupId) {
        let primary = world.cluster.primary(group);
        let other = world.cluster.other(group, primary);
        if self.helps(world, primary, group) || self.helps(world, other, group) {
            return;
        }
        let (Some(p), Some(s)) = (world.glance(primary, group), world.glance(other, group)) else {
            return;
        };
        if (self.healing || world.now() > LONG_WITHOUT_COPY_NS) && Operator::enlarges_what_is_too_small(world, group) {
            return;
        }
        if !self.healing && Operator::changes_nothing(world, [primary, other], group) {
            return;
        }
        if s.identity.inconsistent && !self.healing && world.cluster.options.forks && world.rng.percent(3) {
            return self.loses_primary_mid_sync(world, group);
        }
        if p.state == State::CatchingUp
            && !self.healing
            && world.cluster.options.faults.contains(&FaultKind::FlushFails)
        {
            // Catching up is too short for a fault that comes at any time.
            world.cluster[primary].storage.trouble.fail_next_flush |= world.rng.percent(3);
        }
        if p.state == State::Holding && !self.healing && world.rng.percent(3) {
            // Its writers are to go on without the peer.
            return world.set_mode(group, Mode::Async);
        }
        if s.identity.role == Role::Primary {
            return self.meets_another_primary(world, group, (primary, p.identity.role));
        }
        if p.identity.role == Role::Secondary && s.identity.role == Role::Secondary {
            self.plans.insert(group, OperatorPlan::SwitchPromote { asked: None });
            return;
        }
        if p.identity.role != Role::Primary
            || p.state != State::Logging
            || Operator::waits_for_permit(world, primary, group)
        {
            return;
        }
        if self.first_synced.insert(group) || world.rng.percent(30) || self.healing {
            let covered = is_covered(&p.identity, &s.identity);
            if !covered && self.declares_equal(world, group, primary) {
                return;
            }
            // What cannot be decided without it, the refusal says.
            let last = self.syncs.get(&group).and_then(|id| world.cluster.ledger.result(*id));
            let says = |words: &str| matches!(last, Some(CommandResult::Refused(why)) if why.text.contains(words));
            if says("must not overwrite it") {
                // Both sides went on alone: the operator stands by this one.
                self.syncs.remove(&group);
                _ = world.command(primary, group, Command::Demote);
                return;
            }
            if says("farshore resolve") && world.cluster.options.spread.is_none() && world.rng.percent(70) {
                self.syncs.remove(&group);
                return self.resolves(world, group, primary);
            }
            // A wide volume is synced in full only if nothing else helps.
            let full = says("--full") || !covered && world.cluster.options.spread.is_none();
            if world.cluster.ledger.settings(group).mode == Mode::Logging && self.healing {
                world.set_mode(group, Mode::Async);
            }
            self.orders_sync(world, group, primary, full, covered);
        }
    }

    /// `covered`: the copy is of this primary's history.
    fn orders_sync(&mut self, world: &mut World, group: GroupId, primary: usize, full: bool, covered: bool) {
        let id = world.command(primary, group, Command::Sync { full });
        self.syncs.insert(group, id);
        if full && !covered && !self.healing && world.rng.percent(40) {
            Operator::loads_meanwhile(world, primary, group);
        }
    }

    /// A volume is set aside in a full sync, which begins anew without it.
    fn loads_meanwhile(world: &mut World, primary: usize, group: GroupId) {
        let volumes = world.cluster.numbers(primary, group).len() as u64;
        let volume = VolumeId(world.rng.below(volumes) as u16);
        world.command(primary, group, Command::SetAside { volume });
        if world.rng.percent(50) {
            world.flap([primary, world.cluster.other(group, primary)]);
        } else {
            world.crash(primary, false, 100_000_000);
        }
    }

    /// The secondary lost its records, and its content is what it was. True: that was typed.
    fn declares_equal(&mut self, world: &mut World, group: GroupId, primary: usize) -> bool {
        let declares = self.equals.get(&group) == Some(&true) && is_equal(world, group);
        if declares {
            self.equals.remove(&group);
            self.syncs.insert(group, world.command(primary, group, Command::AssumeEqual));
        }
        declares
    }

    /// The other one is primary: it is demoted, or the fork is resolved, now and then in favour of the one that was primary before.
    fn meets_another_primary(&mut self, world: &mut World, group: GroupId, (primary, role): (usize, Role)) {
        let other = world.cluster.other(group, primary);
        if role == Role::Primary && world.cluster.options.spread.is_none() && world.rng.percent(60) {
            let keep = if world.rng.percent(25) { other } else { primary };
            return self.resolves(world, group, keep);
        }
        world.command(other, group, Command::Demote);
    }

    /// This node's content is kept. Whatever is refused, he looks at both nodes again.
    fn resolves(&mut self, world: &mut World, group: GroupId, keep: usize) {
        let other = world.cluster.other(group, keep);
        let (Some(ours), Some(theirs)) = (world.glance(keep, group), world.glance(other, group)) else { return };
        let discard = world.rng.percent(20);
        let over = theirs.identity.generation.tag;
        let kept = world.command(keep, group, Command::Keep { over, discard, by_policy: false });
        if world.rng.percent(5) {
            // Somebody else does the same for the other one.
            world.command(
                other,
                group,
                Command::Keep { over: ours.identity.generation.tag, discard, by_policy: false },
            );
        }
        self.plans.insert(group, OperatorPlan::Resolve { keep, over, kept, yielded: None });
    }

    /// The other one yields as soon as it knows to whom.
    fn goes_on_resolving(world: &mut World, group: GroupId, plan: OperatorPlan) -> Option<OperatorPlan> {
        let OperatorPlan::Resolve { keep, over, kept, yielded } = plan else { return None };
        let other = world.cluster.other(group, keep);
        if world.cluster.ledger.answer(kept).is_some() || !world.cluster[keep].up() {
            return None;
        }
        if world.rng.percent(3) {
            // The other half of it comes to nothing, or he thinks so.
            world.command(keep, group, Command::TakeBack { over });
            return None;
        }
        let is_primary = world.glance(other, group).is_some_and(|it| it.running && it.identity.role == Role::Primary);
        let was_refused = yielded.is_none_or(|id| world.cluster.ledger.answer(id) == Some(false));
        if !is_primary || !was_refused {
            return Some(plan);
        }
        let to = world.glance(keep, group)?.identity.generation.tag;
        let yielded = Some(world.command(other, group, Command::Yield { to, by_policy: false }));
        Some(OperatorPlan::Resolve { keep, over, kept, yielded })
    }

    /// Types at both nodes what they are already, as an orchestrator does which does not know that it was heard; or what was typed last.
    fn repeats(world: &mut World, group: GroupId) {
        let last = world.cluster.ledger.last_typed(group).cloned();
        if let Some((node, command)) = last.filter(|_| world.rng.percent(40)) {
            if world.cluster[node].up() {
                world.command(node, group, command);
            }
            return;
        }
        for node in world.cluster.pair(group) {
            let Some(glance) = world.glance(node, group).filter(|glance| glance.running) else { continue };
            // One that does not serve yet may still have to say that it was promoted, and how.
            let force = world.cluster[node].serves(group) && world.rng.percent(50);
            let entropy = world.rng.draw();
            if world.rng.percent(20) {
                let to = world.cluster.primary(group);
                Operator::switches_over(world, node, group, to);
                continue;
            }
            let command = match glance.identity.role {
                Role::Primary if glance.state == State::Replicating && world.rng.percent(30) => {
                    Command::Sync { full: false }
                }
                Role::Primary => Command::Promote { force, entropy },
                Role::Secondary => Command::Demote,
            };
            world.command(node, group, command);
        }
    }

    /// Clients may be held for a moment, or for long.
    pub fn switches_over(world: &mut World, node: usize, group: GroupId, to: usize) -> CommandId {
        let limit = Duration::from_millis(*world.rng.pick(&[20, 200, 2000, 10_000]));
        let (to, closes_export, only_asks) = (NodeId(to as u16), world.rng.percent(30), world.rng.percent(5));
        world.command(node, group, Command::Switchover { to, limit, closes_export, only_asks })
    }

    /// It stands in line for a sync, and gets there without anybody's help.
    fn waits_for_permit(world: &World, node: usize, group: GroupId) -> bool {
        let status = world.cluster[node].status_of(group);
        status.is_some_and(|status| status.reason.starts_with("waiting for its turn"))
    }

    /// A secondary whose history is full gets out of it by giving its rollback point up, sooner or later. True: it was
    /// asked to.
    fn helps_paused(&mut self, world: &mut World, node: usize, group: GroupId) -> bool {
        let stuck = world
            .glance(node, group)
            .is_some_and(|g| matches!(g.paused, Some(Pause::HistoryFull | Pause::DeltaUnsaved)));
        if !stuck || !(self.healing || world.rng.percent(10)) {
            return false;
        }
        let Some(name) = world.cluster.rollback_point(node, group) else { return false };
        // It is refused where that loses one side of a fork, and typed again as it says.
        let discard = world.rng.percent(50);
        world.command(node, group, Command::DropRollbackPoint { name, discard });
        true
    }

    /// If that sync is still under way, it will not end. True: what would be written now is dirty anyway.
    pub fn mid_sync(&mut self, world: &mut World, group: GroupId) -> bool {
        let secondary = world.cluster.secondary(group);
        let half = world.glance(secondary, group).is_some_and(|glance| glance.identity.inconsistent);
        let breaks = half && !self.healing && world.cluster.options.forks && !self.has_plan(group);
        if breaks {
            self.loses_primary_mid_sync(world, group);
        }
        breaks
    }

    /// The site is lost while the copy is being overwritten: what stood before it must come back.
    fn loses_primary_mid_sync(&mut self, world: &mut World, group: GroupId) {
        let primary = world.cluster.primary(group);
        if world.rng.percent(30) {
            let (power, down) = (world.rng.percent(50), world.rng.between(4_000_000_000, 7_000_000_000));
            world.crash(primary, power, down);
            return self.plans_failover(group);
        }
        // An operator who does not ask first.
        let (other, entropy) = (world.cluster.other(group, primary), world.rng.draw());
        world.command(other, group, Command::Promote { force: true, entropy });
        Operator::loses_power_on_the_way_back(world, other);
    }

    /// More often than not the power of a node goes while it returns to its rollback point.
    fn loses_power_on_the_way_back(world: &mut World, node: usize) {
        if world.rng.percent(80) {
            let after = world.rng.between(50_000, 8 * world.cluster.options.disk_ns.1);
            world.timeline.schedule(after, WorldEvent::PowerLoss { node });
        }
    }

    fn follow(&mut self, world: &mut World, group: GroupId, plan: OperatorPlan) {
        let (primary, other) = (world.cluster.primary(group), world.cluster.secondary(group));
        let answered = |world: &World, asked: Option<CommandId>| asked.and_then(|id| world.cluster.ledger.answer(id));
        let next = match plan {
            OperatorPlan::Switchover { asked: None } if world.cluster[primary].up() => {
                // He need not know which of the two is the primary.
                let at = if world.rng.percent(80) || !world.cluster[other].up() { primary } else { other };
                Some(OperatorPlan::Switchover { asked: Some(Operator::switches_over(world, at, group, other)) })
            }
            // Whoever is to be promoted after one that came to nothing is seen to like after any other.
            OperatorPlan::Switchover { asked } => {
                Some(plan).filter(|_| answered(world, asked).is_none() && world.cluster[primary].up())
            }
            OperatorPlan::SwitchDemote { asked: None } if world.cluster[primary].up() => {
                Some(OperatorPlan::SwitchDemote { asked: Some(world.command(primary, group, Command::Demote)) })
            }
            OperatorPlan::SwitchDemote { asked } => match answered(world, asked) {
                Some(true) => Some(OperatorPlan::SwitchPromote { asked: None }),
                Some(false) => None,
                None => Some(plan).filter(|_| world.cluster[primary].up()),
            },
            OperatorPlan::SwitchPromote { asked: None } => Operator::promotes_someone(world, group),
            OperatorPlan::SwitchPromote { asked } => match answered(world, asked) {
                Some(true) => None,
                Some(false) => Some(OperatorPlan::SwitchPromote { asked: None }),
                // It takes long, and he types it again: the first one goes on.
                None if world.glance(other, group).is_some_and(|it| !it.running) && world.rng.percent(5) => {
                    let entropy = world.rng.draw();
                    world.command(other, group, Command::Promote { force: false, entropy });
                    Some(plan)
                }
                None if !world.cluster[primary].up() || !world.cluster[other].up() => {
                    Some(OperatorPlan::SwitchPromote { asked: None })
                }
                None => Some(plan),
            },
            OperatorPlan::Reverse { home, asked: None } => Operator::begins_reverse(world, group, home),
            OperatorPlan::Reverse { home, asked } => match answered(world, asked) {
                Some(true) => return self.is_reversed(world, group, home),
                Some(false) => None,
                None => Some(plan).filter(|_| world.cluster[primary].up()),
            },
            OperatorPlan::Lend { home, demoted, asked: None } => match answered(world, Some(demoted)) {
                Some(true) => Operator::lends(world, group, (home, demoted)),
                Some(false) => None,
                None => Some(plan).filter(|_| world.cluster[home].up()),
            },
            OperatorPlan::Lend { home, asked, .. } => match answered(world, asked) {
                Some(true) => return self.is_reversed(world, group, home),
                Some(false) => Some(OperatorPlan::SwitchPromote { asked: None }),
                None => Some(plan).filter(|_| world.cluster[world.cluster.other(group, home)].up()),
            },
            OperatorPlan::Resolve { .. } => Operator::goes_on_resolving(world, group, plan),
            OperatorPlan::FailOver { asked: None } => Operator::fails_over(world, group),
            OperatorPlan::FailOver { asked } => match answered(world, asked) {
                // There was no window any more, or none at all.
                Some(false) if !world.cluster[primary].up() => Operator::fails_over(world, group),
                Some(_) => None,
                None => Some(plan).filter(|_| world.cluster[other].up()),
            },
        };
        match next {
            Some(plan) => self.plans.insert(group, plan),
            None => self.plans.remove(&group),
        };
    }

    /// The other node takes over: by a switchover where it has everything, else what it lacks is given up.
    fn begins_reverse(world: &mut World, group: GroupId, home: usize) -> Option<OperatorPlan> {
        let server = world.cluster.other(group, home);
        let (shown, peer) = (world.cluster[home].status_of(group)?, world.glance(server, group)?);
        let is_pair = (shown.role, peer.identity.role) == (Role::Primary, Role::Secondary);
        if !is_pair || shown.volumes.iter().any(|volume| volume.is_aside && !volume.is_detached) {
            return None;
        }
        let lacks = |volume: &VolumeStatus| volume.is_aside || volume.is_detached || volume.is_unfilled;
        let in_step = matches!(shown.state, State::Replicating | State::CatchingUp);
        let asked = if in_step && !shown.volumes.iter().any(lacks) {
            Operator::switches_over(world, home, group, server)
        } else if world.cluster.options.forks && world.rng.percent(50) {
            let demoted = world.command(home, group, Command::Demote);
            return Some(OperatorPlan::Lend { home, demoted, asked: None });
        } else if shown.state == State::Syncing {
            // It holds no image before that ends.
            return Some(OperatorPlan::Reverse { home, asked: None }).filter(|_| !world.rng.percent(5));
        } else if world.cluster.options.forks {
            let entropy = world.rng.draw();
            world.command(server, group, Command::Promote { force: true, entropy })
        } else {
            return None;
        };
        Some(OperatorPlan::Reverse { home, asked: Some(asked) })
    }

    /// This node is secondary, and the other one is promoted for its clients once it has heard that. Now and then somebody takes it back meanwhile.
    fn lends(world: &mut World, group: GroupId, (home, demoted): (usize, CommandId)) -> Option<OperatorPlan> {
        let server = world.cluster.other(group, home);
        let (plan, entropy) = (OperatorPlan::Lend { home, demoted, asked: None }, world.rng.draw());
        let peer = world.cluster[server].status_of(group).and_then(|shown| shown.peer.role);
        if peer != Some(Role::Secondary) {
            return Some(plan).filter(|_| !world.rng.percent(5));
        }
        let asked = world.command(server, group, Command::PromoteForPeer { entropy });
        if world.rng.percent(50) {
            // That one is slow to go back.
            world.cluster[server].storage.trouble.slow_until = world.now() + 1_000_000_000;
            let entropy = world.rng.draw();
            world.command(home, group, Command::Promote { force: true, entropy });
        }
        Some(OperatorPlan::Lend { home, demoted, asked: Some(asked) })
    }

    /// The other node was promoted: beside a primary its content is kept. Then it travels, now and then all of it.
    fn is_reversed(&mut self, world: &mut World, group: GroupId, home: usize) {
        let server = world.cluster.other(group, home);
        self.reversed.insert(group, home);
        let is_lent = matches!(self.plans.remove(&group), Some(OperatorPlan::Lend { .. }));
        if is_lent || [home, server].into_iter().all(|node| world.cluster.is_primary(node, group)) {
            self.resolves(world, group, server);
        } else if world.cluster.options.spread.is_none() && world.rng.percent(30) {
            world.command(server, group, Command::Sync { full: true });
        }
    }

    /// Home takes over from the node that serves its clients, once both hold the same. True: it does.
    fn takes_over_again(&mut self, world: &mut World, group: GroupId) -> bool {
        let Some(home) = self.reversed.get(&group).copied() else { return false };
        let is_over = self.healing || world.cluster.primary(group) == home || world.rng.percent(1);
        let is_due = !is_over && world.cluster.is_followed(group);
        if is_over || is_due {
            self.reversed.remove(&group);
        }
        if is_due {
            self.plans_switch(group, true);
        }
        is_due
    }

    /// Both copies hold the same, most often when no client writes any more, and the secondary's records are lost. True: they are.
    fn loses_equal_copy(&mut self, world: &mut World, group: GroupId) -> bool {
        let is_due = self.equals.get(&group) == Some(&false) && world.cluster.in_step(group);
        if !is_due || !is_equal(world, group) {
            return false;
        }
        let secondary = world.cluster.secondary(group);
        world.checkers.facts.add(KnownFact::Spoiled(group, secondary));
        Operator::replaces_spoiled_records(world, secondary);
        self.equals.insert(group, true);
        true
    }

    /// After a demotion: the other node if it may, else the old primary back by force.
    fn promotes_someone(world: &mut World, group: GroupId) -> Option<OperatorPlan> {
        let (primary, other) = (world.cluster.primary(group), world.cluster.secondary(group));
        if world.cluster.is_primary(primary, group) || world.cluster.is_primary(other, group) {
            return None;
        }
        let entropy = world.rng.draw();
        let hopeless = |glance: &GroupGlance| glance.identity.generation.is_blank() || glance.identity.inconsistent;
        let handed_over =
            |node: usize| world.glance(node, group).is_some_and(|it| it.identity.handed_over && it.running);
        if handed_over(primary) && world.cluster[other].up() && world.rng.percent(30) {
            // He types the same again.
            let asked = Operator::switches_over(world, primary, group, other);
            return Some(OperatorPlan::SwitchPromote { asked: Some(asked) });
        }
        let whom = if world.glance(primary, group).is_some_and(|it| hopeless(&it)) && world.cluster[other].up() {
            // The old primary's records had to be made anew, or its copy is a mixture.
            Some((other, true))
        } else if world.rng.percent(70) && world.cluster[other].up() {
            Some((other, false))
        } else if world.rng.percent(30) && world.cluster[primary].up() {
            Some((primary, true))
        } else {
            None
        };
        let asked = whom.map(|(node, force)| world.command(node, group, Command::Promote { force, entropy }));
        Some(OperatorPlan::SwitchPromote { asked })
    }

    fn fails_over(world: &mut World, group: GroupId) -> Option<OperatorPlan> {
        let (primary, other) = (world.cluster.primary(group), world.cluster.secondary(group));
        if world.cluster[primary].up() || !world.cluster[other].up() {
            return None;
        }
        let mid_sync = world.glance(other, group).is_some_and(|g| g.identity.inconsistent);
        let entropy = world.rng.draw();
        // Whoever has a peer window tries that first: it says that nothing is lost.
        let has_window = matches!(world.cluster.options.policy, Policy::Hold(_));
        let asked = match has_window && world.rng.percent(60) {
            true => world.command(other, group, Command::PromoteInWindow { entropy }),
            false => world.command(other, group, Command::Promote { force: true, entropy }),
        };
        if mid_sync {
            Operator::loses_power_on_the_way_back(world, other);
        }
        Some(OperatorPlan::FailOver { asked: Some(asked) })
    }
}

/// Both nodes hold the same, and nobody is writing.
pub(super) fn is_equal(world: &World, group: GroupId) -> bool {
    let pair = world.cluster.pair(group);
    let asks = pair.iter().any(|node| world.checkers.writes.pending_on(*node, group) > 0);
    let [a, b] = pair.map(|node| world.cluster.views(node, group));
    !asks && a == b
}

/// What differs is dirty: no full sync is needed.
fn is_covered(ours: &Identity, theirs: &Identity) -> bool {
    let related = theirs.generation == ours.generation;
    let handed = theirs.handed_over && theirs.generation == ours.parent.generation;
    related || handed && theirs.position == ours.parent
}
