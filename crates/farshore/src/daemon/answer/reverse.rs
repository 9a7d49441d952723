//! `sync --reverse`: the peer becomes the primary and serves the clients of this node, which takes over again once the peer's content is here.
//!
//! What must hold:
//! * the record comes first, on either node: whatever ends in between, the next start knows whose clients are served where;
//! * clients stay attached where the peer has all that was acknowledged; else they leave before the content under them changes;
//! * this node takes over only while nothing is asked at the peer any more, and only as a switchover does.

use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::identity::Role;
use engine::state::State;
use engine::status::GroupStatus;
use engine::{GroupId, RefusalCode};
use host::driver::{ClientsOrder, DriverSnapshot, Gone, GroupSnapshot, entropy};
use settings::limits::{REVERSE_AGAIN_AFTER, REVERSE_HANDOVER_PATIENCE, REVERSE_HEARD_PATIENCE, REVERSE_STEP_PATIENCE};
use settings::{ConfiguredGroup, NodeName, RoleHook};
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::Desk;
use super::failed_disks::dead_disks;
use super::giving_up::{
    GivingUp, PeerStep, goes_on_without_dead, is_demoted_for_good, is_record_unknown, next_step, typed_again,
    under_way_already, unknown_role,
};
use super::lending::{
    QUIET_LOOK, answered, asks, begun, cut_off, ends, in_reverse, is_being_begun, is_changing, is_over, is_over_there,
    is_primary, is_served, never_began, role_is_unknown, serves, serves_again, stands_still_no_more,
};
use super::resets::snapshot_of;
use super::roles::{PromotionOrder, RunHooks, is_unanswered};
use super::switchover::{AnnouncedSwitchover, cannot_take_over};
use super::unopened::as_recorded;
use crate::api::refusals::DeskRefusal;
use crate::api::{ApiRequest, Reply, ReverseOrder, SwitchoverOrder};
use crate::daemon::reverses::{ReverseHome, ReverseId, ReversePlace};
use crate::daemon::role_changes::{RoleChange, RoleChangeUnderWay};
use crate::daemon::view;

/// How often it is looked whether a reverse sync may go on.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What runs on either node before this one takes over.
const COMMANDS_BEFORE: [RoleHook; 2] = [RoleHook::BeforePromote, RoleHook::BeforeDemote];

pub(super) async fn order(desk: &Desk, order: &ReverseOrder) -> Result<Reply, Gone> {
    let name = order.group.as_str();
    let (id, group) = match desk.find(name) {
        Ok(found) => found,
        Err(unknown) => return Ok(unknown),
    };
    let Some(peer) = group.peer_of(&desk.node).cloned() else { unreachable!("a group has two nodes") };
    if order.stop {
        return stop_in_turn(desk, (name, id), &peer).await;
    }
    if let Some(answer) = under_way(desk, order, (id, &peer)).await? {
        return Ok(answer);
    }
    let Some(found) = snapshot_of(desk, id).await? else {
        return Ok(Reply::refused(RefusalCode::GroupStarting, format!("{name}: the group is starting")));
    };
    if let Some(refusal) = obstacle(name, &peer, &found.status) {
        return Ok(refusal);
    }
    let dead = match dead_disks(desk, &group, &found).await {
        Ok(dead) => dead,
        Err(refusal) => return Ok(refusal),
    };
    let now = as_recorded(desk, &group, found.status).await;
    if !desk.obeys_peers() {
        let message = format!(
            "{name}: nothing was changed: node {peer} has this node take over when the reverse sync ends, and 'peer_commands' in \
             [nodes.{0}] does not let it: set that to \"all\" and restart the daemon of node {0}, or change sides with 'farshore switchover'",
            desk.node
        );
        return Ok(Reply::refused(DeskRefusal::PeerForbids, message));
    }
    if let Some(refusal) = unfit_volume(&group, &peer, &now) {
        return Ok(refusal);
    }
    Begin { desk, order, group: &group, id, peer: &peer }.run(&now, dead).await
}

/// The answer where one is under way. One that another command is about to begin, or that did not begin, is waited for: which of the two, the
/// role tells. So is a step that goes on, for a while: what that comes to is not known before.
async fn under_way(desk: &Desk, order: &ReverseOrder, (id, peer): (GroupId, &NodeName)) -> Result<Option<Reply>, Gone> {
    let name = order.group.as_str();
    let until = Instant::now() + REVERSE_STEP_PATIENCE;
    while desk.reverses.is_home(name) || desk.reverses.is_begun(name) {
        let now = desk.status_of(id).await?;
        if now.as_ref().is_some_and(role_is_unknown) {
            let message = format!("{name}: nothing was changed: the group has failed: first 'farshore reset {name}'");
            return Ok(Some(Reply::refused(RefusalCode::GroupFailed, message)));
        }
        let demoted = now.filter(|now| !now.starting && now.role == Role::Secondary);
        let is_demoted = demoted.is_some();
        // Nothing more is to be done of one that gives nothing up, whatever becomes of the step.
        let is_served_there = demoted.is_some_and(|now| now.peer.role == Some(Role::Primary));
        if desk.reverses.is_home(name) && is_demoted && desk.reverses.begins_step(name) {
            return typed_again(desk, order, (id, peer)).await.map(Some);
        }
        if Instant::now() >= until {
            let gives_up = desk.reverses.home(name).is_none_or(|home| home.gives_up.is_some());
            return Ok(Some(match is_served_there && !gives_up {
                true => under_way_already(name, peer),
                false => is_being_begun(name),
            }));
        }
        sleep(QUIET_LOOK).await;
    }
    if desk.reverses.is_server(name) && is_primary(desk, id).await? {
        let message = format!(
            "{name}: this node serves the clients of node {peer} in a reverse sync; it ends by itself, or by 'farshore sync {name} --reverse \
             --stop' there"
        );
        return Ok(Some(Reply::refused(DeskRefusal::ReverseUnderWay, message)));
    }
    Ok(None)
}

/// What no way leads around.
fn obstacle(name: &str, peer: &NodeName, now: &GroupStatus) -> Option<Reply> {
    let refused = |code, why: String| Some(Reply::refused(code, format!("{name}: nothing was changed: {why}")));
    if now.starting {
        return refused(RefusalCode::GroupStarting, "the group is starting; try again in a moment".to_owned());
    }
    if now.role == Role::Secondary {
        let why = format!("this node is the secondary: type it on node {peer}, if that is the primary");
        return refused(RefusalCode::NotPrimary, why);
    }
    if now.handover.is_some() {
        return refused(RefusalCode::RoleChanging, "a switchover is under way".to_owned());
    }
    match now.peer.role {
        // A group that has failed, or was not taken up, may not have heard: the peer is asked.
        None if matches!(now.state, State::Failed(_)) => None,
        None => refused(
            RefusalCode::PeerAway,
            format!("node {peer} is not connected, or its half of the group has not said who it is"),
        ),
        Some(Role::Primary) => refused(
            RefusalCode::HistoriesApart,
            format!("node {peer} is primary too: first 'farshore resolve {name} --keep NODE'"),
        ),
        Some(Role::Secondary) => None,
    }
}

/// A volume of which the peer has no image.
fn unfit_volume(group: &ConfiguredGroup, peer: &NodeName, now: &GroupStatus) -> Option<Reply> {
    let name = &group.name;
    let refused = |code, volume, why: String| {
        Some(Reply::refused(code, format!("{name}: nothing was changed: volume {volume} {why}")))
    };
    group.volumes.iter().zip(&now.volumes).find_map(|(volume, now)| {
        let volume = &volume.name;
        if now.is_detached_at_peer {
            return refused(
                RefusalCode::VolumeDetached,
                volume,
                format!("is detached on node {peer}, which has nothing of it"),
            );
        }
        if now.is_aside && !now.is_detached {
            let why = format!(
                "is set aside, so node {peer} has no image of it: first 'farshore sync {name} --volume {volume}'"
            );
            return refused(RefusalCode::VolumeAside, volume, why);
        }
        None
    })
}

/// A reverse sync that begins.
struct Begin<'a> {
    desk: &'a Desk,
    order: &'a ReverseOrder,
    group: &'a ConfiguredGroup,
    id: GroupId,
    peer: &'a NodeName,
}

impl Begin<'_> {
    async fn run(&self, now: &GroupStatus, dead: Vec<String>) -> Result<Reply, Gone> {
        // Until it is on record, for which a disk may be waited, nothing else tells of it.
        let Some(_alone) = self.desk.reverses.begin(self.name()) else { return Ok(is_being_begun(self.name())) };
        let is_whole = now.volumes.iter().all(|volume| !volume.is_aside && !volume.is_detached && !volume.is_unfilled);
        let in_step = matches!(now.state, State::Replicating | State::CatchingUp);
        if in_step && is_whole {
            return self.handed_over(now).await;
        }
        if now.state == State::Syncing {
            let name = &self.group.name;
            let why = format!(
                "{name}: nothing was changed: a sync to node {} is under way, which holds no image until it ends",
                self.peer
            );
            return Ok(Reply::refused(RefusalCode::NotInStep, why));
        }
        let Begin { desk, order, group, id, peer } = *self;
        GivingUp { desk, order, group, id, peer, dead }.run(now).await
    }

    fn name(&self) -> &str {
        self.group.name.as_str()
    }

    async fn clients(&self, order: ClientsOrder) -> Result<(), Gone> {
        self.desk.control.clients(self.id, order).await
    }

    /// The peer has everything: it takes over.
    async fn handed_over(&self, now: &GroupStatus) -> Result<Reply, Gone> {
        let (desk, name) = (self.desk, self.name());
        let alone = match desk.role_changes.begin(name, RoleChange::Switchover, desk.node.as_str()) {
            Ok(alone) => alone,
            Err(refusal) => return Ok(refusal),
        };
        if let Err(refusal) = self.record().await {
            return Ok(refusal);
        }
        // Nothing else is made of the record meanwhile: it is not stopped either.
        desk.reverses.begins_step(name);
        let handed_over = self.hands_over(now, &alone).await;
        desk.reverses.is_done(name);
        handed_over
    }

    async fn hands_over(&self, now: &GroupStatus, alone: &RoleChangeUnderWay<'_>) -> Result<Reply, Gone> {
        let (desk, name) = (self.desk, self.name());
        let switchover = SwitchoverOrder {
            group: name.to_owned(),
            to: Some(self.peer.to_string()),
            // They are held then, whatever becomes of it.
            close_clients: true,
            skip_hooks: self.order.skip_hooks,
            ..SwitchoverOrder::default()
        };
        let reply = desk.hand_over((self.group, self.peer), &switchover, (now, alone)).await?;
        if is_record_unknown(&reply) {
            return Ok(unknown_role(reply));
        }
        if desk.status_of(self.id).await?.is_none_or(|now| now.role == Role::Primary) {
            never_began(desk, (name, self.id), self.peer).await?;
            return Ok(reply);
        }
        self.clients(ClientsOrder::Forward).await?;
        let warnings = match reply {
            Reply::Error { ref message, .. } if is_unanswered(&reply) => {
                vec![format!("{message}. Clients of this node wait until that node is primary")]
            }
            // Of a command that was to run behind the demotion.
            Reply::Ok { warnings, .. } => warnings,
            _ => Vec::new(),
        };
        Ok(Reply::done(begun(name, self.peer, self.order.full), warnings))
    }

    async fn record(&self) -> Result<(), Reply> {
        let ReverseOrder { full, skip_hooks, .. } = *self.order;
        let place = ReversePlace::Home(ReverseHome { full, skip_hooks, gives_up: None });
        self.desk.reverses.record(self.name(), place, ReverseId(Some(entropy()))).await.map_err(|why| {
            Reply::refused(DeskRefusal::StateDiskSilent, format!("{}: nothing was changed: {why}", self.name()))
        })
    }
}

// ---- it ends -------------------------------------------------------------------------------------------------------------

/// It ends where it stands: the peer stays the primary, and serves its own clients. Not beside one of its steps: the step would go on without a
/// record, or what was stopped would begin again with it. So this node does not take over meanwhile, and the one that serves does not hand over. An
/// order that was given before may have that hand over still, and this one take over: neither is stopped then.
async fn stop_in_turn(desk: &Desk, (name, id): (&str, GroupId), peer: &NodeName) -> Result<Reply, Gone> {
    if desk.reverses.is_server(name) {
        return stops_in_turn(desk, (name, id), peer).await;
    }
    let until = Instant::now() + REVERSE_STEP_PATIENCE;
    loop {
        if desk.status_of(id).await?.is_some_and(|now| view::is_starting(&now)) {
            // As which role is not known before: one that comes up as the primary must not be told to promote the other one.
            let message = format!("{name}: nothing was changed: the group is starting; try again in a moment");
            return Ok(Reply::refused(RefusalCode::GroupStarting, message));
        }
        if !desk.reverses.is_home(name) && !desk.reverses.is_begun(name) {
            return stop(desk, (name, id), peer).await;
        }
        if desk.reverses.begins_step(name) {
            let stopped = stops_in_turn(desk, (name, id), peer).await;
            desk.reverses.is_done(name);
            return stopped;
        }
        if Instant::now() >= until {
            return Ok(is_being_begun(name));
        }
        sleep(QUIET_LOOK).await;
    }
}

/// Not beside a step of the peer either, which is asked. One that does not answer keeps nobody from a stop. A node that serves by now is not asked: it
/// is the one that hands over.
async fn stops_in_turn(desk: &Desk, (name, id): (&str, GroupId), peer: &NodeName) -> Result<Reply, Gone> {
    let _alone = match desk.role_changes.begin(name, RoleChange::ReverseStop, desk.node.as_str()) {
        Ok(alone) => alone,
        Err(refusal) => return Ok(refusal),
    };
    let is_home_there = desk.reverses.is_server(name);
    if is_home_there && is_primary(desk, id).await? {
        return stop(desk, (name, id), peer).await;
    }
    let may = (desk.ask_peer)(peer.to_string(), in_reverse(desk, name, (is_home_there, true))).await;
    match may {
        Ok(Reply::Error { message, refusal: Some(refusal), .. })
            if refusal.code == RefusalCode::RoleChanging.word() =>
        {
            Ok(Reply::refused(
                RefusalCode::RoleChanging,
                format!("{name}: nothing was changed: node {peer} says: {message}"),
            ))
        }
        _ => stop(desk, (name, id), peer).await,
    }
}

async fn stop(desk: &Desk, (name, id): (&str, GroupId), peer: &NodeName) -> Result<Reply, Gone> {
    let reverse = desk.reverses.id(name);
    let Some(place) = desk.reverses.place(name) else {
        return stop_there(desk, (name, id), peer).await;
    };
    if let Err(why) = desk.reverses.end(name).await {
        return Ok(Reply::refused(DeskRefusal::StateDiskSilent, format!("{name}: nothing was changed: {why}")));
    }
    if place == ReversePlace::Server {
        desk.control.lend(id, None).await?;
        return Ok(Reply::ok(format!(
            "{name}: this node does not serve the clients of node {peer} any more; its own exports are open, if it is the primary"
        )));
    }
    stands_still_no_more(desk, name, id).await?;
    desk.control.clients(id, ClientsOrder::Part).await?;
    if is_primary(desk, id).await? {
        // They were held for it.
        desk.control.clients(id, ClientsOrder::GoOn).await?;
        let warnings = serves_again(desk, name, peer, reverse).await.into_iter().collect();
        let message = format!("{name}: the reverse sync is over before it has begun: this node is the primary");
        return Ok(Reply::done(message, warnings));
    }
    // They were held for a demotion of which nobody knows whether it is on record: others may write before this node is promoted.
    desk.control.part_with_held(id).await?;
    let serves = desk.status_of(id).await?.is_some_and(|now| now.peer.role == Some(Role::Primary));
    let mut warnings = Vec::new();
    let told = (desk.ask_peer)(peer.to_string(), ends(name, false, reverse)).await;
    if let Err(why) = answered(told) {
        warnings.push(format!(
            "node {peer} was not told: {why}. It serves nobody until 'farshore sync {name} --reverse --stop' is typed there"
        ));
    }
    let there = match serves {
        true => format!("node {peer} stays the primary with exports of its own"),
        false => format!(
            "node {peer} is not known to be the primary: 'farshore promote {name} --force' on the node whose content counts"
        ),
    };
    let message = format!("{name}: the exports of this node are closed, and {there}");
    Ok(Reply::done(message, warnings))
}

/// None is on record here, and the peer may not have heard the end of one.
async fn stop_there(desk: &Desk, (name, id): (&str, GroupId), peer: &NodeName) -> Result<Reply, Gone> {
    let request = ends(name, is_primary(desk, id).await?, ReverseId::default());
    let told = (desk.ask_peer)(peer.to_string(), request).await;
    if let Ok(Reply::Ok { message, unchanged: false, .. }) = &told {
        return Ok(Reply::ok(format!("node {peer} says: {message}")));
    }
    let message = format!("{name}: no reverse sync is under way; nothing to do");
    Ok(match answered(told) {
        Ok(()) => Reply::unchanged(message),
        Err(why) => {
            let message = format!("{name}: no reverse sync is on record at node {}", desk.node);
            let warning = format!(
                "node {peer} was not told: {why}. If it has one on record it serves nobody until 'farshore sync {name} --reverse --stop' is \
                 typed there, or here again"
            );
            Reply::of(message, vec![warning], true)
        }
    })
}

// ---- on the node that serves -----------------------------------------------------------------------------------------------

/// The peer, which is the secondary, has this node promoted for its clients, with what it has; or `ends`: its clients are not served here any
/// more. `home_serves`: the peer is the primary, and serves them itself.
pub(super) async fn lend(desk: &Desk, lent: &ApiRequest, from_node: Option<&str>) -> Result<Reply, Gone> {
    let ApiRequest::Lend { group: name, skip_hooks, ends, home_serves, reverse } = lent else {
        unreachable!("it is asked for nothing else")
    };
    let (name, skip_hooks, reverse) = (name.as_str(), *skip_hooks, ReverseId(*reverse));
    let (id, group) = match desk.find_taken_up(name) {
        Ok(found) => found,
        Err(unknown) => return Ok(unknown),
    };
    let peer = group.peer_of(&desk.node).cloned();
    let Some(peer) = peer.filter(|peer| from_node == Some(peer.as_str())) else {
        let message =
            format!("{name}: daemons order this of each other: type 'farshore sync {name} --reverse' on the primary");
        return Ok(Reply::refused(DeskRefusal::NotCarried, message));
    };
    if *ends {
        return lends_no_more(desk, (name, id), &peer, (*home_serves, reverse)).await;
    }
    if let Some(answer) = is_primary_already(desk, (name, id), reverse).await? {
        return Ok(answer);
    }
    if let Err(refusal) = hears_demotion(desk, (name, id), &peer).await? {
        return Ok(refusal);
    }
    // Its role was not known before, if it was starting then.
    if let Some(answer) = is_primary_already(desk, (name, id), reverse).await? {
        return Ok(answer);
    }
    // Hours may lie behind the look that came before the peer's demotion.
    if let Some((code, why)) = cannot_take_over(desk, id, true).await? {
        return Ok(Reply::refused(code, format!("{name}: {}", view::with_names(&group, &why))));
    }
    // It stands there since before the peer was demoted. Without it somebody had this node serve those clients no more.
    if !serves_in(desk, name, reverse) {
        let message = format!("{name}: node {} was told to serve the clients of node {peer} no more", desk.node);
        return Ok(Reply::refused(DeskRefusal::ReverseOver, message));
    }
    // Another one of these may be under way: what that one recorded is its own.
    if desk.role_changes.is_changing(name) {
        return Ok(is_changing(desk, name));
    }
    if let Err(refusal) = serves(desk, name, (true, desk.reverses.id(name))).await? {
        return Ok(refusal);
    }
    let announced = desk.announced.borrow_mut().remove(&id).filter(AnnouncedSwitchover::is_fresh);
    let runs = RunHooks { skipped: skip_hooks, before_has_run: announced.is_some() };
    let mut reply = desk.promote(name, PromotionOrder::LENT, runs).await?;
    if let Reply::Ok { message, warnings, .. } = &mut reply {
        // What the peer has that is missing here it has given up by then, and of which volumes it had no disk it knows.
        warnings.retain(|warning| !message.contains(warning.as_str()));
    }
    Ok(reply)
}

/// The answer of a node that is not to be promoted any more: it serves the peer's clients, or is not to.
async fn is_primary_already(
    desk: &Desk,
    (name, id): (&str, GroupId),
    reverse: ReverseId,
) -> Result<Option<Reply>, Gone> {
    if !is_primary(desk, id).await? {
        return Ok(None);
    }
    let message = format!("{name}: node {} is the primary already", desk.node);
    Ok(Some(match serves_in(desk, name, reverse) {
        true => Reply::unchanged(message),
        false => Reply::refused(DeskRefusal::ReverseOver, format!("{message}, and serves its own clients alone")),
    }))
}

fn serves_in(desk: &Desk, name: &str, reverse: ReverseId) -> bool {
    desk.reverses.is_server(name) && desk.reverses.is_of(name, reverse)
}

/// What home says of itself is so, whatever goes on here. An order is not carried out beside a change of role.
async fn lends_no_more(
    desk: &Desk,
    (name, id): (&str, GroupId),
    peer: &NodeName,
    (home_serves, reverse): (bool, ReverseId),
) -> Result<Reply, Gone> {
    let is_promoted = home_serves && is_primary(desk, id).await?;
    if desk.reverses.is_server(name) && !desk.reverses.is_of(name, reverse) {
        return Ok(Reply::unchanged(format!("{name}: that reverse sync is over, and another one is under way")));
    }
    let alone = match home_serves {
        true => None,
        false => Some(desk.role_changes.begin(name, RoleChange::ReverseStop, desk.node.as_str())),
    };
    if let Some(Err(refusal)) = alone {
        return Ok(refusal);
    }
    desk.announced.borrow_mut().remove(&id);
    if is_promoted {
        // It was promoted for clients that never came: both would serve.
        let message = format!(
            "{name}: node {peer} is the primary, and this node was promoted for its clients: the exports here stay closed. 'farshore resolve \
             {name}' says whose content counts; if that is the one here, 'farshore sync {name} --reverse --stop' here opens them behind that"
        );
        return Ok(Reply::refused(RefusalCode::HistoriesApart, message));
    }
    match desk.reverses.is_server(name) {
        true => stop(desk, (name, id), peer).await,
        false => Ok(Reply::unchanged(format!("{name}: no reverse sync is under way; nothing to do"))),
    }
}

/// An order that comes late is for a peer that may be the primary again: this node is promoted beside a secondary only.
async fn hears_demotion(desk: &Desk, (name, id): (&str, GroupId), peer: &NodeName) -> Result<Result<(), Reply>, Gone> {
    let until = Instant::now() + REVERSE_HEARD_PATIENCE;
    loop {
        let now = desk.status_of(id).await?.filter(|now| !now.starting);
        if now.is_some_and(|now| now.peer.role == Some(Role::Secondary)) {
            return Ok(Ok(()));
        }
        if Instant::now() >= until {
            let message = format!(
                "{name}: node {peer} is not heard as the secondary here, so this node is not promoted for its clients"
            );
            return Ok(Err(Reply::refused(RefusalCode::PeerSilent, message)));
        }
        sleep(QUIET_LOOK).await;
    }
}

// ---- it goes on ------------------------------------------------------------------------------------------------------------

/// Takes each reverse sync whose clients are at home here a step further, until the data thread has ended.
pub(super) async fn go_on_for_ever(desk: &Rc<Desk>) {
    loop {
        sleep(LOOK_EVERY).await;
        if let Ok(snapshot) = desk.control.snapshot().await {
            for name in desk.reverses.servers() {
                serves_in_vain(desk, &name, &snapshot);
            }
        }
        for name in desk.reverses.homes() {
            if !desk.reverses.begins_step(&name) {
                continue;
            }
            let desk = desk.clone();
            spawn_local(async move {
                // The next run of the daemon goes on.
                let _ = go_on(&desk, &name).await;
                desk.reverses.is_done(&name);
            });
        }
    }
}

/// The peer was about to hand over to this node, and is the primary still, or again: if it has no reverse sync on record, its clients are not served
/// here. It may have given that up, or have taken over, and this node has not heard of it.
fn serves_in_vain(desk: &Rc<Desk>, name: &str, snapshot: &DriverSnapshot) {
    let Ok((id, group)) = desk.find(name) else { return };
    let Some(peer) = group.peer_of(&desk.node).cloned() else { return };
    let now = snapshot.groups.iter().map(|found| &found.status).find(|now| now.id == id);
    let peer_serves =
        now.is_some_and(|now| !now.starting && now.role == Role::Secondary && now.peer.role == Some(Role::Primary));
    // A record that cannot be read may be that of a node whose clients are served: it stands until somebody ends it.
    let is_readable = desk.reverses.why(name).is_none();
    let is_in_vain = peer_serves && is_readable && !desk.role_changes.is_changing(name);
    if !desk.reverses.is_in_vain(name, is_in_vain) || !desk.reverses.begins_step(name) {
        return;
    }
    let (desk, name, reverse) = (desk.clone(), name.to_owned(), desk.reverses.id(name));
    spawn_local(async move {
        let is_awaited = asks(&desk, &name, &peer, true).await;
        desk.reverses.is_in_vain(&name, false);
        // Another one may have been announced meanwhile.
        let is_same = desk.reverses.is_server(&name) && desk.reverses.id(&name) == reverse;
        if is_awaited == Ok(false) && !desk.role_changes.is_changing(&name) && is_same {
            tracing::info!("{name}: the peer serves its clients itself: a reverse sync that was announced is none");
            // The next run of the daemon looks again.
            let _ = serves(&desk, &name, (false, reverse)).await;
        }
        desk.reverses.is_done(&name);
    });
}

async fn go_on(desk: &Desk, name: &str) -> Result<(), Gone> {
    let Ok((id, group)) = desk.find(name) else { return Ok(()) };
    let Some(peer) = group.peer_of(&desk.node).cloned() else { return Ok(()) };
    let snapshot = desk.control.snapshot().await?;
    let Some(found) = snapshot.groups.into_iter().find(|found| found.status.id == id) else { return Ok(()) };
    let now = &found.status;
    // It is being begun, or this node takes over just now; or only a reset tells which of the two.
    if now.starting || desk.role_changes.is_changing(name) || role_is_unknown(now) {
        return Ok(());
    }
    if now.role == Role::Primary {
        return match desk.reverses.left_over(name) {
            Some(_) if !desk.reverses.is_due(name) => Ok(()),
            Some(home) => goes_on_without_dead(desk, (&group, id), (&peer, home), &found).await,
            None => is_over(desk, (name, id), &peer).await,
        };
    }
    let is_due = desk.reverses.is_due(name);
    if is_due && let Err(why) = is_demoted_for_good(desk, (name, id)).await? {
        desk.reverses.refused(name, why, REVERSE_AGAIN_AFTER);
        return Ok(());
    }
    if found.forward.is_none() && desk.reverses.home(name).is_some_and(|home| !home.owes_term()) {
        desk.control.clients(id, ClientsOrder::Forward).await?;
    }
    if !is_due {
        return Ok(());
    }
    if desk.reverses.home(name).is_some_and(|home| home.gives_up.is_some()) {
        return match now.peer.role {
            Some(_) => gives_up(desk, (name, id), &peer).await,
            None => Ok(()),
        };
    }
    match now.peer.role {
        Some(Role::Secondary) => nobody_is_primary(desk, (name, &peer), now).await,
        Some(Role::Primary) => follows(desk, (name, id), &peer, &found).await,
        None => Ok(()),
    }
}

/// The peer is the primary: its content comes here, and this node takes over once it is equal. One that does not let this node in may have been told
/// to serve others: that is asked also where this node will never be equal.
async fn follows(desk: &Desk, (name, id): (&str, GroupId), peer: &NodeName, found: &GroupSnapshot) -> Result<(), Gone> {
    let is_reached = found.forward.as_ref().is_some_and(|forward| forward.is_connected);
    if !is_reached && !is_served(desk, (name, id), peer).await? {
        return Ok(());
    }
    if found.forward.as_ref().is_some_and(|forward| forward.is_paused) {
        // It was not primary for a while.
        desk.control.clients(id, ClientsOrder::Forward).await?;
    }
    if desk.reverses.home(name).is_some_and(|home| home.full) {
        return order_full_sync(desk, name, peer).await;
    }
    match lacks_still(&found.status) {
        Some(_) => Ok(()),
        None => take_over(desk, (name, id), peer).await,
    }
}

/// Why this node is not equal to its peer yet.
fn lacks_still(now: &GroupStatus) -> Option<&'static str> {
    let is_whole = now.volumes.iter().all(|volume| !volume.is_aside && !volume.is_detached && !volume.is_unfilled);
    match now.state {
        State::Replicating if is_whole => None,
        State::Replicating => Some("a volume has no disk here, or one that no sync has filled"),
        _ => Some("the sync goes on"),
    }
}

/// A grant was lost on its way, in one direction or the other: what both have on record decides, and no force.
async fn nobody_is_primary(desk: &Desk, (name, peer): (&str, &NodeName), now: &GroupStatus) -> Result<(), Gone> {
    // Nobody has ordered a promotion of this node otherwise.
    if !is_served(desk, (name, now.id), peer).await? || desk.role_changes.is_changing(name) {
        return Ok(());
    }
    // Nobody serves: what is asked waits for whichever node is promoted.
    desk.control.clients(now.id, ClientsOrder::Pause).await?;
    let reply = match now.identity.handed_over {
        true => {
            let again = SwitchoverOrder {
                group: name.to_owned(),
                to: Some(peer.to_string()),
                skip_hooks: desk.reverses.home(name).is_some_and(|home| home.skip_hooks),
                ..SwitchoverOrder::default()
            };
            desk.switchover(&again).await?
        }
        false => desk.promote(name, PromotionOrder::UNFORCED, Default::default()).await?,
    };
    let is_by_command = is_refused_by_command(&reply);
    match reply {
        Reply::Error { message, .. } if is_by_command => desk.reverses.refused_behind_commands(name, message),
        Reply::Error { message, .. } => desk.reverses.refused(name, message, REVERSE_AGAIN_AFTER),
        _ => {}
    }
    Ok(())
}

async fn order_full_sync(desk: &Desk, name: &str, peer: &NodeName) -> Result<(), Gone> {
    let request = ApiRequest::Sync {
        group: name.to_owned(),
        full: true,
        no_compare: false,
        answers_nothing: false,
        volume: None,
    };
    let ordered = match answered((desk.ask_peer)(peer.to_string(), request).await) {
        Ok(()) => desk.reverses.goes_on(name, ReversePlace::Home(ReverseHome::default())).await,
        Err(why) => Err(why),
    };
    match ordered {
        // It shows in the state before this node looks again.
        Ok(_) => desk.reverses.refused(name, "the full sync begins".to_owned(), REVERSE_AGAIN_AFTER),
        Err(why) => desk.reverses.refused(name, why, REVERSE_AGAIN_AFTER),
    }
    Ok(())
}

/// Both are equal: the peer hands over to this node. Clients are served there until that has run its commands.
async fn take_over(desk: &Desk, (name, id): (&str, GroupId), peer: &NodeName) -> Result<(), Gone> {
    let order = |only_asks| {
        let order = SwitchoverOrder {
            group: name.to_owned(),
            to: Some(desk.node.to_string()),
            only_asks,
            ends_reverse: true,
            ..SwitchoverOrder::default()
        };
        (desk.ask_peer)(peer.to_string(), ApiRequest::Switchover(order))
    };
    let may = order(true).await;
    if is_over_there(&may) {
        return cut_off(desk, (name, id), peer).await.map(drop);
    }
    if let Err(why) = answered(may) {
        desk.reverses.refused(name, why, REVERSE_AGAIN_AFTER);
        return Ok(());
    }
    let announced = announced_at(desk, id);
    let ordered = order(false).await;
    if desk.status_of(id).await?.as_ref().is_some_and(role_is_unknown) {
        // Those who wait are not left behind without a record that leads to them: a reset tells which role is on record.
        return Ok(());
    }
    if is_primary(desk, id).await? {
        return is_over(desk, (name, id), peer).await;
    }
    let has_commands = desk
        .find(name)
        .is_ok_and(|(_, group)| COMMANDS_BEFORE.iter().any(|which| !group.hooks.command(*which).is_empty()));
    let has_run =
        has_commands && announced_at(desk, id) != announced || ordered.as_ref().is_ok_and(is_refused_by_command);
    let (is_refused, answer) = (is_refused_for_good(&ordered), answered(ordered));
    let why = answer.err().unwrap_or_else(|| format!("node {peer} handed over, and this node is not the primary"));
    if !is_refused {
        // What waits here goes on in order once this node is promoted; and there, if the peer is the primary then.
        desk.reverses.refused(name, why, REVERSE_HANDOVER_PATIENCE);
        return Ok(());
    }
    desk.control.clients(id, ClientsOrder::Forward).await?;
    match has_run {
        true => desk.reverses.refused_behind_commands(name, why),
        false => desk.reverses.refused(name, why, REVERSE_AGAIN_AFTER),
    }
    Ok(())
}

/// When the peer had this node get ready for the last time: that comes behind its command.
fn announced_at(desk: &Desk, id: GroupId) -> Option<Instant> {
    desk.announced.borrow().get(&id).map(AnnouncedSwitchover::at)
}

fn is_refused_by_command(reply: &Reply) -> bool {
    matches!(reply, Reply::Error { refusal: Some(refusal), .. } if refusal.code == DeskRefusal::HookFailed.word())
}

/// It has come to nothing. Else the peer may hand over still, also by an order that was given before.
fn is_refused_for_good(reply: &Result<Reply, String>) -> bool {
    let Ok(Reply::Error { refusal: Some(refusal), .. }) = reply else { return false };
    let goes_on =
        [RefusalCode::GrantUnanswered.word(), RefusalCode::RoleChanging.word(), DeskRefusal::NotDoneYet.word()];
    !goes_on.contains(&refusal.code.as_str())
}

/// The peer is not promoted yet, or its content is not kept yet over what stands here.
async fn gives_up(desk: &Desk, (name, id): (&str, GroupId), peer: &NodeName) -> Result<(), Gone> {
    let (step, warnings) = next_step(desk, (name, id), peer, false).await?;
    warnings.iter().for_each(|warning| tracing::warn!("{name}: {warning}"));
    match step {
        PeerStep::Kept => tracing::info!("{name}: the content of node {peer} counts, and comes here"),
        PeerStep::Ended => tracing::info!("{name}: an operator has ended the reverse sync"),
        PeerStep::NotKept(why) | PeerStep::NotPromoted(why) => desk.reverses.refused(name, why, REVERSE_AGAIN_AFTER),
        PeerStep::Over => return cut_off(desk, (name, id), peer).await.map(drop),
    }
    Ok(())
}
