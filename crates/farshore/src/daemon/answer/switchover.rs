//! `switchover`: the primary hands over, and the daemon of the other node promotes that one on its word, as if an operator had typed
//! `promote` there. So a term begins there first, as with each promotion.

use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::identity::Role;
use engine::state::State;
use engine::status::GroupStatus;
use engine::{Command, GroupId, RefusalCode, limits};
use host::driver::{ClientsOrder, Gone};
use settings::limits::ROLE_HOOK_TIMEOUT;
use settings::{ConfiguredGroup, NodeName, PeerCommands, RoleHook};
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::roles::{PromotionOrder, RoleHookCalls, RunHooks, is_unanswered};
use super::{Desk, lending, reply};
use crate::api::refusals::DeskRefusal;
use crate::api::server::Asker;
use crate::api::{ApiRequest, Reply, SwitchoverOrder};
use crate::daemon::reverses::ReverseId;
use crate::daemon::role_changes::{RoleChange, RoleChangeUnderWay};
use crate::daemon::role_hooks::Candidate;
use crate::daemon::{attached, view};

/// The peer is about to hand over, and this node is ready for that.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnnouncedSwitchover {
    at: Instant,
    skip_hooks: bool,
}

impl AnnouncedSwitchover {
    pub(super) fn at(&self) -> Instant {
        self.at
    }

    /// The peer may have a command of its own to run before it hands over.
    pub(super) fn is_fresh(&self) -> bool {
        self.at.elapsed() < ROLE_HOOK_TIMEOUT.max + limits::HANDOVER_LIMIT_MAX * 2
    }
}

impl Desk {
    /// A switchover to that node is one to this node.
    pub fn is_wanted_here(&self, name: &str, to: Option<&str>) -> bool {
        self.find(name).is_ok_and(|(_, group)| wanted(&group, to) == Some(&self.node))
    }

    pub(super) async fn switchover(&self, order: &SwitchoverOrder) -> Result<Reply, Gone> {
        let name = order.group.as_str();
        let (id, group) = match self.find_taken_up(name) {
            Ok(found) => found,
            Err(unknown) => return Ok(unknown),
        };
        let Some(to) = wanted(&group, order.to.as_deref()) else {
            let (to, primary, secondary) = (order.to.as_deref().unwrap_or_default(), &group.primary, &group.secondary);
            let message = format!("{name}: node {to:?} has no copy of it: its nodes are {primary} and {secondary}");
            return Ok(Reply::refused(RefusalCode::NotInGroup, message));
        };
        if order.only_asks {
            return match is_reverse_over(self, to, order) {
                Some(refusal) => Ok(refusal),
                None => self.command(name, self.handover_to(to, order)).await,
            };
        }
        if *to != self.node
            && let Some(refusal) = lending::ends_before(self, name).await?
        {
            return Ok(refusal);
        }
        let now = self.status_of(id).await?.filter(|status| !status.starting);
        let is_copy = now.as_ref().is_some_and(|status| status.role == Role::Secondary);
        let primary_is_there = now.as_ref().is_some_and(|status| status.peer.role == Some(Role::Primary));
        if *to == self.node && is_copy && !primary_is_there {
            // The grant may have been lost: what the peer has on record decides, and no force.
            let runs = RunHooks { skipped: order.skip_hooks, ..RunHooks::default() };
            return self.promote(name, PromotionOrder::UNFORCED, runs).await;
        }
        let alone = match self.role_changes.begin(name, RoleChange::Switchover, self.node.as_str()) {
            Ok(alone) => alone,
            Err(refusal) => return Ok(refusal),
        };
        // It is not stopped beside this.
        if let Some(refusal) = is_reverse_over(self, to, order) {
            return Ok(refusal);
        }
        match now.filter(|_| !is_copy && *to != self.node) {
            Some(now) => self.hand_over((&group, to), order, (&now, &alone)).await,
            None => {
                // Handed over already, and the peer is asked again: it hears of this order's hooks, not of an older one's.
                if is_copy
                    && *to != self.node
                    && !primary_is_there
                    && let Some(refusal) = self.announce(name, to, (order.skip_hooks, false)).await
                {
                    return Ok(refusal);
                }
                self.command(name, self.handover_to(to, order)).await
            }
        }
    }

    fn handover_to(&self, to: &NodeName, order: &SwitchoverOrder) -> Command {
        let limit = order.timeout_ms.map_or(limits::HANDOVER_LIMIT, Duration::from_millis);
        let SwitchoverOrder { close_clients, only_asks, .. } = *order;
        Command::Switchover { to: self.config().node_id(to), limit, closes_export: !close_clients, only_asks }
    }

    /// This node is the primary. Whatever has it refused comes before a command of the configuration is run, on either node, and all of that
    /// before requests are held.
    pub(super) async fn hand_over(
        &self,
        (group, to): (&ConfiguredGroup, &NodeName),
        order: &SwitchoverOrder,
        (now, alone): (&GroupStatus, &RoleChangeUnderWay<'_>),
    ) -> Result<Reply, Gone> {
        let (name, again) = (group.name.as_str(), format!("switchover {} --to {to}", group.name));
        // At the end of a reverse sync those that are attached leave last of all.
        let leave = order.close_clients || order.ends_reverse;
        if let Some(refusal) = self.no_demotion(name, now, (leave, &again)).await? {
            return Ok(refusal);
        }
        let asks = SwitchoverOrder { only_asks: true, ..order.clone() };
        match self.command(name, self.handover_to(to, &asks)).await? {
            Reply::Ok { unchanged: false, .. } => {}
            refusal => return Ok(refusal),
        }
        if let Some(refusal) = self.announce(name, to, (order.skip_hooks, false)).await {
            return Ok(refusal);
        }
        let generation = now.identity.generation;
        let turn = match self.record_begin(name, generation).await {
            Ok(turn) => turn,
            Err(refusal) => return Ok(refusal),
        };
        let runs = RunHooks { skipped: order.skip_hooks, ..RunHooks::default() };
        // In a reverse sync clients are held, and nobody is cut off.
        let is_forced = order.close_clients && !self.reverses.is_home(name);
        let hooks = RoleHookCalls { desk: self, change: alone, group, is_forced, runs };
        if let Err(refusal) = hooks.before(RoleHook::BeforeDemote).await {
            return Ok(refusal);
        }
        let is_home = self.reverses.is_home(name);
        let goes_over = if is_home { self.reverses.goes_over(name) } else { None };
        if let Err(refusal) = meets_clients(self, (name, now.id), to, (is_home, order.ends_reverse)).await? {
            return Ok(refusal);
        }
        let command = self.handover_to(to, order);
        self.operations.hands_over(name);
        let mut reply = match order.close_clients {
            true => self.order_anyway(name, command).await?,
            false => self.order_if_unused(name, command, &again).await?,
        };
        drop(goes_over);
        let is_demoted = is_unanswered(&reply) || matches!(reply, Reply::Ok { unchanged: false, .. });
        self.operations.has_handed_over(name, is_demoted);
        if is_demoted {
            // Whoever types `demote` here next hears that the peer has everything.
            let unrecorded = self.record_end(name, Some(generation), &[], Some(turn)).await;
            if let Reply::Ok { warnings, .. } = &mut reply {
                warnings.extend(unrecorded);
            }
            if is_home {
                // The other node serves them, or is about to, and the command may take minutes.
                self.control.clients(now.id, ClientsOrder::Forward).await?;
            }
        }
        hooks.after(RoleHook::AfterDemote, &mut reply).await;
        Ok(reply)
    }

    /// Has the other node get ready; why it does not, if so. `gives_up`: what it lacks.
    pub(super) async fn announce(
        &self,
        name: &str,
        to: &NodeName,
        (skip_hooks, gives_up): (bool, bool),
    ) -> Option<Reply> {
        let (group, serves_asker) = (name.to_owned(), self.reverses.is_home(name));
        let reverse = self.reverses.id(name).0.filter(|_| serves_asker);
        agreed(self, name, to, ApiRequest::TakeOver { group, skip_hooks, serves_asker, gives_up, reverse }).await
    }

    // ---- on the other node -------------------------------------------------------------------------------------------

    /// The peer is about to hand over to this node. What would stop the promotion later is looked at, and run, now.
    pub(super) async fn announced(&self, take_over: &ApiRequest) -> Result<Reply, Gone> {
        let ApiRequest::TakeOver { group: name, skip_hooks, serves_asker, gives_up, reverse } = take_over else {
            unreachable!("it is asked for nothing else")
        };
        let (name, skip_hooks, serves_asker) = (name.as_str(), *skip_hooks, *serves_asker);
        let serves = (serves_asker, ReverseId(*reverse));
        let (id, group) = match self.find_taken_up(name) {
            Ok(found) => found,
            Err(unknown) => return Ok(unknown),
        };
        let alone = match self.role_changes.begin(name, RoleChange::Promotion, self.node.as_str()) {
            Ok(alone) => alone,
            Err(refusal) => return Ok(refusal),
        };
        alone.is_shown(false);
        if let Some((code, why)) = cannot_take_over(self, id, *gives_up).await? {
            return Ok(Reply::refused(code, format!("{name}: {}", view::with_names(&group, &why))));
        }
        // The peer has served clients of this node, and was told to stop, which this one has not heard: it refuses that.
        if serves_asker
            && self.reverses.is_home(name)
            && let Err(refusal) = lending::serves(self, name, serves).await?
        {
            return Ok(refusal);
        }
        let runs = RunHooks { skipped: skip_hooks, ..RunHooks::default() };
        let hooks = RoleHookCalls { desk: self, change: &alone, group: &group, is_forced: false, runs };
        if let Err(refusal) = hooks.before(RoleHook::BeforePromote).await {
            return Ok(refusal);
        }
        // The peer may be at home in a reverse sync, and take over again from this node.
        if !self.reverses.is_home(name)
            && let Err(refusal) = lending::serves(self, name, serves).await?
        {
            return Ok(refusal);
        }
        self.announced.borrow_mut().insert(id, AnnouncedSwitchover { at: Instant::now(), skip_hooks });
        Ok(Reply::ok(format!("{name}: this node takes over when its peer hands over")))
    }

    /// The peer handed over to this node. That is heard by an event, and seen at the next look if that was lost; each grant is tried once, and
    /// again where another change of the role or the start of the group stood in the way.
    pub(super) fn takes_over(self: &Rc<Self>, name: &str) {
        let (desk, name) = (self.clone(), name.to_owned());
        spawn_local(async move {
            let Ok((id, group)) = desk.find_taken_up(&name) else { return };
            let peer = group.peer_of(&desk.node).map(NodeName::to_string);
            if !desk.is_granted_anew(id).await {
                return;
            }
            if desk.role_changes.is_changing(&name) {
                // That ends: the next look tries, and nothing was typed that has to be told of meanwhile.
                desk.granted.borrow_mut().remove(&id);
                return;
            }
            if !desk.obeys_peers() {
                let note = "the peer handed over, and 'peer_commands' does not let it have this node promoted: type 'farshore promote' here";
                return tracing::warn!("{name}: {note}");
            }
            let announced = desk.announced.borrow_mut().remove(&id).filter(AnnouncedSwitchover::is_fresh);
            let promotion = ApiRequest::Promote {
                group: name.clone(),
                force: false,
                in_window: false,
                skip_hooks: announced.as_ref().is_some_and(|announced| announced.skip_hooks),
                is_announced: announced.is_some(),
            };
            let reply = desk.answer(promotion, Asker { node: peer, ..Asker::default() }).await;
            let Reply::Error { message, refusal, .. } = reply else { return };
            tracing::warn!("{name}: the peer handed over, and this node is not promoted: {message}");
            if refusal.is_some_and(|refusal| ends_by_itself(&refusal.code)) {
                desk.granted.borrow_mut().remove(&id);
                announced.map(|announced| *desk.announced.borrow_mut().entry(id).or_insert(announced));
            }
        });
    }

    /// Peers may have something changed here.
    pub(super) fn obeys_peers(&self) -> bool {
        self.config().node(&self.node).is_some_and(|here| here.peer_commands == PeerCommands::All)
    }

    /// It is to be promoted, and was not tried yet where it stands.
    async fn is_granted_anew(&self, id: GroupId) -> bool {
        let Ok(Some(now)) = self.status_of(id).await else { return false };
        let at = now.identity.position;
        now.is_granted && self.granted.borrow_mut().insert(id, at) != Some(at)
    }

    // ---- clients -----------------------------------------------------------------------------------------------------

    /// Whoever is attached is not cut off unasked: a mounted file system would fail with what it has not flushed. `again`: the command as
    /// it is typed.
    pub(super) async fn order_if_unused(&self, name: &str, command: Command, again: &str) -> Result<Reply, Gone> {
        let (id, group) = match self.find_taken_up(name) {
            Ok(found) => found,
            Err(unknown) => return Ok(unknown),
        };
        let mut looks = attached::LOOKS;
        loop {
            match self.control.command_if_unused(id, command.clone()).await? {
                Ok(result) => return Ok(reply(&group, result)),
                Err(clients) if looks == 0 => return Ok(attached::refusal(name, &clients, again)),
                // Those that have just said goodbye are as good as gone.
                Err(_) => sleep(attached::LOOK_AGAIN_AFTER).await,
            }
            looks -= 1;
        }
    }

    /// Cuts clients off, and says whom.
    pub(super) async fn order_anyway(&self, name: &str, command: Command) -> Result<Reply, Gone> {
        let mut clients = self.clients_of(name).await?;
        let mut reply = self.command(name, command).await?;
        if matches!(reply, Reply::Error { .. }) {
            // Refused at once it has cut nobody off, failed while it drained it may have.
            let still_there = self.control.snapshot().await?.clients;
            attached::leave_gone(&mut clients, &still_there);
        }
        attached::name_cut_off(&mut reply, &clients);
        Ok(reply)
    }
}

/// What keeps a node from being promoted is over soon.
fn ends_by_itself(code: &str) -> bool {
    let codes =
        [RefusalCode::RoleChanging.word(), RefusalCode::GroupStarting.word(), DeskRefusal::PromotionUnderWay.word()];
    codes.contains(&code)
}

fn is_reverse_over(desk: &Desk, to: &NodeName, order: &SwitchoverOrder) -> Option<Reply> {
    let is_over = order.ends_reverse && !desk.reverses.is_server(&order.group);
    is_over.then(|| {
        let message = format!(
            "{}: node {} serves the clients of node {to} no more, as an operator said there",
            order.group, desk.node
        );
        Reply::refused(DeskRefusal::ReverseOver, message)
    })
}

/// Commands have run, and the role is about to change. At the end of a reverse sync the clients that are at home at the other node come to rest
/// there. At its begin those of this node wait: they go on at the other node, or here if this one stays the primary.
async fn meets_clients(
    desk: &Desk,
    (name, id): (&str, GroupId),
    to: &NodeName,
    (is_home, ends_reverse): (bool, bool),
) -> Result<Result<(), Reply>, Gone> {
    if ends_reverse && let Some(refusal) = rests(desk, name, to).await {
        return Ok(Err(refusal));
    }
    if is_home {
        if let Err(refusal) = lending::is_expected(desk, name, to).await {
            return Ok(Err(refusal));
        }
        desk.control.clients(id, ClientsOrder::Hold).await?;
    }
    Ok(Ok(()))
}

/// The other node's clients, which this one serves, are attached here no more; why not, if so.
async fn rests(desk: &Desk, name: &str, to: &NodeName) -> Option<Reply> {
    agreed(desk, name, to, ApiRequest::Rest { group: name.to_owned() }).await
}

async fn agreed(desk: &Desk, name: &str, to: &NodeName, request: ApiRequest) -> Option<Reply> {
    let nothing = "nothing was changed";
    match (desk.ask_peer)(to.to_string(), request).await {
        Ok(Reply::Ok { .. }) => None,
        Ok(Reply::Error { message, code, refusal, .. }) => {
            let message = format!("{name}: {nothing}: node {to} says: {message}");
            Some(Reply::Error { message, code, refusal, operation: None })
        }
        Ok(_) => {
            let message = format!("{name}: {nothing}: node {to} answers otherwise: are both nodes of one version?");
            Some(Reply::refused(DeskRefusal::PeerNotReached, message))
        }
        Err(why) => {
            let message = format!("{name}: {nothing}: the daemon of node {to} did not get ready: {why}");
            Some(Reply::refused(DeskRefusal::PeerNotReached, message))
        }
    }
}

/// What speaks against a promotion of this node when its peer has been demoted, as far as it shows before.
pub(super) async fn cannot_take_over(
    desk: &Desk,
    id: GroupId,
    gives_up: bool,
) -> Result<Option<(RefusalCode, String)>, Gone> {
    let refused = |code, why: &str| Ok(Some((code, why.to_owned())));
    let now = match desk.status_of(id).await? {
        Some(now) if !now.starting => now,
        _ => return refused(RefusalCode::GroupStarting, "the group is starting; try again in a moment"),
    };
    if now.role == Role::Primary {
        return refused(RefusalCode::HistoriesApart, "this node is primary too");
    }
    if let (State::Failed(broken), true) = (now.state, now.has_failed) {
        return refused(RefusalCode::GroupFailed, &format!("the group has failed: {}", broken.words()));
    }
    if !gives_up {
        return Ok(None);
    }
    if now.volumes.iter().any(|volume| volume.is_detached) {
        return refused(
            RefusalCode::VolumeDetached,
            "a volume is detached here, so nothing of it is there to be served",
        );
    }
    Ok(Candidate::of(&now).no_promotion(true))
}

/// The node of a group that is to be its primary: the one that is named, or the one that the configuration has as that.
fn wanted<'a>(group: &'a ConfiguredGroup, to: Option<&str>) -> Option<&'a NodeName> {
    let Some(to) = to else { return Some(&group.primary) };
    [&group.primary, &group.secondary].into_iter().find(|node| node.as_str() == to)
}
