//! A reverse sync with a peer that lacks something, or by a node whose disk is dead: what stands here alone is given up.
//!
//! ```text
//! looked at -> on record -> the peer is ready -> [anew, without dead disks] -> demoted here -> a new term -> promoted there -> kept there
//! ```
//! What must hold:
//! * all that may have it refused comes before this node is demoted, the commands of both nodes too. What is refused has not begun;
//! * the two are never primary at once. Once this node is demoted it goes on by itself, also in the next run of the daemon;
//! * of what stands here nothing is overwritten before it is saved, unless that was ordered, and nothing goes to the peer.

use std::time::{Duration, Instant};

use engine::identity::Role;
use engine::state::State;
use engine::status::GroupStatus;
use engine::{Command, GroupId, RefusalCode};
use host::driver::{ClientsOrder, Gone, GroupSnapshot, entropy};
use settings::limits::{REVERSE_AGAIN_AFTER, REVERSE_HEARD_PATIENCE};
use settings::{ConfiguredGroup, NodeName, RoleHook};
use tokio::time::sleep;
use units::exact::{show_seconds, show_size};

use super::Desk;
use super::dead_disk::DiskDesk;
use super::failed_disks::dead_disks;
use super::forks::no_room_for_delta;
use super::lending::{
    answered, asks, begun, ended_meanwhile, gives_content_up, is_expected, is_over_there, never_began,
    stands_still_no_more,
};
use super::roles::{RoleHookCalls, RunHooks, demotes};
use super::unopened::as_recorded;
use crate::api::refusals::{DeskRefusal, RefusalView};
use crate::api::{ApiRequest, Reply, ReverseOrder};
use crate::daemon::attached;
use crate::daemon::reverses::{GivesUp, ReverseHome, ReverseId, ReversePlace};
use crate::daemon::role_changes::{RoleChange, RoleChangeUnderWay};

/// The peer has not heard yet where this node stands.
const KEEP_AGAIN_AFTER: Duration = Duration::from_millis(300);

/// A reverse sync that gives something up.
pub(super) struct GivingUp<'a> {
    pub desk: &'a Desk,
    pub order: &'a ReverseOrder,
    pub group: &'a ConfiguredGroup,
    pub id: GroupId,
    pub peer: &'a NodeName,
    /// Volumes by whose disks the group has failed: it goes on without them.
    pub dead: Vec<String>,
}

/// How far it has come at the peer.
pub(super) enum PeerStep {
    /// The peer is the primary, and its content is kept over what stands here.
    Kept,
    /// The same, and this one is not given up yet.
    NotKept(String),
    NotPromoted(String),
    /// An operator told the peer to serve no clients of this node.
    Over,
    /// An operator has ended it here meanwhile, and what is on record stays as it is.
    Ended,
}

impl GivingUp<'_> {
    fn name(&self) -> &str {
        self.group.name.as_str()
    }

    async fn clients(&self, order: ClientsOrder) -> Result<(), Gone> {
        self.desk.control.clients(self.id, order).await
    }

    /// What the peer lacks is given up: that is asked about first. Its content is another one than clients have seen.
    pub async fn run(&self, now: &GroupStatus) -> Result<Reply, Gone> {
        let (desk, name) = (self.desk, self.name());
        if let Some(refusal) = self.is_refused(now).await? {
            return Ok(refusal);
        }
        let ReverseOrder { full, discard, skip_hooks, .. } = *self.order;
        let gives_up = GivesUp { discard, ..GivesUp::default() };
        let home = ReverseHome { full, skip_hooks, gives_up: Some(gives_up) };
        if let Err(why) = desk.reverses.record(name, ReversePlace::Home(home.clone()), ReverseId(Some(entropy()))).await
        {
            return Ok(Reply::refused(DeskRefusal::StateDiskSilent, format!("{name}: nothing was changed: {why}")));
        }
        let number = desk.reverses.number(name);
        // Nothing else is made of the record meanwhile.
        desk.reverses.begins_step(name);
        let ended = match self.gets_ready().await? {
            Ok(()) => self.goes_over(home, number).await,
            Err(refusal) => never_began(desk, (name, self.id), self.peer).await.map(|()| refusal),
        };
        desk.reverses.is_done(name);
        let mut ended = ended?;
        if let Reply::Ok { warnings, .. } = &mut ended {
            warnings.extend(self.detached_words(now));
        }
        Ok(ended)
    }

    async fn is_refused(&self, now: &GroupStatus) -> Result<Option<Reply>, Gone> {
        let (desk, name, peer) = (self.desk, self.name(), self.peer);
        let clients = desk.clients_of(name).await?;
        if !clients.is_empty() && !self.order.close_clients {
            return Ok(Some(attached::refusal(name, &clients, &format!("sync {name} --reverse"))));
        }
        if !is_agreed_on(self.order, &self.dead) {
            let message = format!(
                "{name}: nothing was changed: {}{}{}. --yes gives that up ({})",
                self.dead_words(),
                self.detached_words(now).map(|words| words + "; ").unwrap_or_default(),
                lacks(peer, now),
                if self.order.discard { "nothing of it is saved" } else { "it is saved first, where it can be" }
            );
            let refusal = RefusalView { dead_volumes: Some(self.dead.clone()), ..DeskRefusal::ReverseGivesUp.into() };
            return Ok(Some(Reply::refused(refusal, message)));
        }
        let volumes = self.group.volumes.iter().zip(&now.volumes);
        let readable = volumes.filter(|(named, now)| !now.is_detached && !self.is_dead(named.name.as_str()));
        let needed = readable.map(|(_, now)| now.dirty_bytes).sum();
        Ok(match self.order.discard {
            true => None,
            false => no_room_for_delta(desk, name, needed).await,
        })
    }

    fn is_dead(&self, volume: &str) -> bool {
        self.dead.iter().any(|dead| dead == volume)
    }

    fn dead_words(&self) -> String {
        match &self.dead[..] {
            [] => String::new(),
            dead => format!(
                "the disk of volume {} has failed here, and the group goes on without it: what only that disk holds is lost, and cannot be saved \
                 (if it is good again: 'farshore reset {}'); ",
                dead.join(" and "),
                self.name()
            ),
        }
    }

    /// Volumes that had no disk here before this was typed: what the peer has of them is of no moment that the others are of.
    fn detached_words(&self, now: &GroupStatus) -> Option<String> {
        let volumes = self.group.volumes.iter().zip(&now.volumes);
        let detached = volumes.filter(|(named, now)| now.is_detached && !self.is_dead(named.name.as_str()));
        let names: Vec<&str> = detached.map(|(named, _)| named.name.as_str()).collect();
        (!names.is_empty()).then(|| {
            format!(
                "volume {} was detached here before: node {} serves what it has of that as it stands, which is older than the other volumes, or of \
                 several moments if a sync wrote it then",
                names.join(" and "),
                self.peer
            )
        })
    }

    /// It is ready: the dead disks are left out, this node is demoted, and the peer promoted. What is refused still says what was done.
    /// `number`: which one it is, unless somebody has ended it meanwhile.
    async fn goes_over(&self, home: ReverseHome, number: Option<u64>) -> Result<Reply, Gone> {
        let (desk, name) = (self.desk, self.name());
        let goes_over = desk.reverses.goes_over(name);
        let ready = match self.is_expected(number).await {
            Ok(()) => self.leaves_dead(home, number).await?,
            Err(refusal) => Err(refusal),
        };
        if ready.is_ok() {
            self.clients(ClientsOrder::Hold).await?;
        }
        if desk.reverses.number(name) != number {
            // By a forced promotion, which found a primary: from here on one is refused until the demotion is on record.
            return self.is_ended().await;
        }
        let turn = match ready {
            Ok(()) => self.turn(number).await,
            Err(refusal) => Err(refusal),
        };
        let turn = match turn {
            Ok(turn) if desk.reverses.number(name) == number => turn,
            // By a forced promotion, before the turn was taken.
            Ok(_) => return self.is_ended().await,
            Err(refusal) => return self.not_demoted(refusal, number).await,
        };
        let hooks = self.hooks(&turn);
        // Whoever came while commands ran is asked about as well.
        let reply = demotes(&hooks, self.id, self.order.close_clients, Command::Demote).await?;
        drop(goes_over);
        let mut demoted = behind_dead(reply, (name, self.peer.as_str()), &self.dead);
        let is_primary = desk.status_of(self.id).await?.is_none_or(|now| now.role == Role::Primary);
        if is_primary || is_record_unknown(&demoted) {
            hooks.after(RoleHook::AfterDemote, &mut demoted).await;
            return match is_record_unknown(&demoted) {
                true => Ok(unknown_role(demoted)),
                false => self.not_demoted(demoted, number).await,
            };
        }
        // Nobody is primary: the peer is promoted beside the command, which may take minutes.
        let after = async {
            self.hooks(&turn).after(RoleHook::AfterDemote, &mut demoted).await;
            drop(turn);
            demoted
        };
        let (gone_on, demoted) = tokio::join!(self.gone_over(number), after);
        match gone_on? {
            Some((step, lent)) => Ok(self.answer(step, besides(demoted).into_iter().chain(lent).collect())),
            None => self.is_ended().await,
        }
    }

    /// This node is the secondary: how far it comes at the peer. `None`: somebody has ended it.
    async fn gone_over(&self, number: Option<u64>) -> Result<Option<(PeerStep, Vec<String>)>, Gone> {
        self.desk.control.part_with_held(self.id).await?;
        if self.desk.reverses.number(self.name()) != number {
            return Ok(None);
        }
        next_step(self.desk, (self.name(), self.id), self.peer, true).await.map(Some)
    }

    fn hooks<'b>(&'b self, change: &'b RoleChangeUnderWay<'b>) -> RoleHookCalls<'b> {
        let runs = RunHooks { skipped: self.order.skip_hooks, before_has_run: true };
        RoleHookCalls { desk: self.desk, change, group: self.group, is_forced: false, runs }
    }

    /// The peer is to serve still. An earlier run of the daemon had it get ready, and goes on also while the peer is away.
    async fn is_expected(&self, number: Option<u64>) -> Result<(), Reply> {
        match is_expected(self.desk, self.name(), self.peer).await {
            Err(refusal) if number != Some(0) || !is_refused_as(&refusal, DeskRefusal::PeerNotReached.word()) => {
                Err(refusal)
            }
            _ => Ok(()),
        }
    }

    /// Nothing else changes the role from here on. The dead disks may have taken a while.
    async fn turn(&self, number: Option<u64>) -> Result<RoleChangeUnderWay<'_>, Reply> {
        let (desk, name) = (self.desk, self.name());
        let turn = match &self.dead[..] {
            [] => Ok(()),
            _ => self.is_expected(number).await,
        };
        let turn = turn.and_then(|()| desk.find_taken_up(name).map(drop));
        let turn = turn.and_then(|()| desk.role_changes.begin(name, RoleChange::Demotion, desk.node.as_str()));
        turn.map_err(|refusal| behind_dead(refusal, (name, self.peer.as_str()), &self.dead))
    }

    /// This node is the primary still.
    async fn not_demoted(&self, demoted: Reply, number: Option<u64>) -> Result<Reply, Gone> {
        let (desk, name) = (self.desk, self.name());
        let refused = match demoted {
            Reply::Error { .. } => demoted,
            _ => Reply::failed(DeskRefusal::Failed, format!("{name}: this node is the primary still")),
        };
        let is_over = is_refused_as(&refused, DeskRefusal::ReverseOver.word());
        match &refused {
            // Of an earlier run, which has left disks out: served now, or sent to the peer, the other volumes would be of a later moment.
            Reply::Error { message, .. } if number == Some(0) && !is_over => waits_still(desk, name, message),
            _ => never_began(desk, (name, self.id), self.peer).await?,
        }
        Ok(refused)
    }

    /// Clients go on here, unless they are held for another one that has begun since.
    async fn is_ended(&self) -> Result<Reply, Gone> {
        if self.desk.reverses.number(self.name()).is_none() {
            stands_still_no_more(self.desk, self.name(), self.id).await?;
            self.clients(ClientsOrder::GoOn).await?;
        }
        Ok(ended_meanwhile(self.name()))
    }

    /// The last that may have it refused, of both nodes.
    async fn gets_ready(&self) -> Result<Result<(), Reply>, Gone> {
        let (desk, name, skip_hooks) = (self.desk, self.name(), self.order.skip_hooks);
        if let Some(refusal) = desk.announce(name, self.peer, (skip_hooks, true)).await {
            return Ok(Err(refusal));
        }
        let alone = match desk.role_changes.begin(name, RoleChange::Demotion, desk.node.as_str()) {
            Ok(alone) => alone,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let runs = RunHooks { skipped: skip_hooks, ..RunHooks::default() };
        let hooks = RoleHookCalls { desk, change: &alone, group: self.group, is_forced: false, runs };
        Ok(hooks.before(RoleHook::BeforeDemote).await)
    }

    /// The group is a primary for a moment: nobody is to write to it, and it is to send nothing, in the next run of the daemon either. The peer
    /// holds an image of all volumes, and would hold one without those that are gone here.
    async fn leaves_dead(&self, home: ReverseHome, number: Option<u64>) -> Result<Result<(), Reply>, Gone> {
        let (desk, name) = (self.desk, self.name());
        if self.dead.is_empty() {
            return Ok(Ok(()));
        }
        // Before the record, which may be written when nobody waits for it any more.
        desk.reverses.stands_still(name, true);
        desk.control.lend(self.id, Some(desk.config().node_id(self.peer))).await?;
        let mut gives_up = home.gives_up.unwrap_or_default();
        if gives_up.without_dead.is_empty() {
            gives_up.without_dead.clone_from(&self.dead);
        }
        let still = ReversePlace::Home(ReverseHome { gives_up: Some(gives_up), ..home });
        match desk.reverses.goes_on(name, still).await {
            Ok(true) => {}
            Ok(false) => return Ok(Err(ended_meanwhile(name))),
            Err(why) => {
                let message = format!("{name}: nothing was changed: {why}");
                return Ok(Err(Reply::refused(DeskRefusal::StateDiskSilent, message)));
            }
        }
        DiskDesk(desk).goes_without(self.group, (&self.dead, number)).await
    }

    fn answer(&self, step: PeerStep, warnings: Vec<String>) -> Reply {
        let begun = begun(self.name(), self.peer, self.order.full);
        answer_of(self.desk, (self.name(), self.peer), step, (begun, warnings))
    }
}

/// Whoever was asked has agreed on the disks that were dead then: another one may have died since.
fn is_agreed_on(order: &ReverseOrder, dead: &[String]) -> bool {
    order.yes && order.agreed_dead.as_ref().is_none_or(|agreed| dead.iter().all(|volume| agreed.contains(volume)))
}

/// A refusal behind the dead disks, which are left out by then, says what was done.
fn behind_dead(mut reply: Reply, (name, peer): (&str, &str), dead: &[String]) -> Reply {
    if let (Reply::Error { message, .. }, false) = (&mut reply, dead.is_empty()) {
        let said = message.replace("nothing was changed: ", "").replace("nothing was demoted: ", "");
        *message = format!(
            "{said}. This node is the primary still, and the group goes on without volume {}, which is detached by now: node {peer} is sent what is \
             written to the others, and will hold them of a later moment than that. When that is put right: 'farshore sync {name} --reverse --yes'",
            dead.join(" and ")
        );
    }
    reply
}

/// What becomes of a reverse sync that the daemon's end has interrupted before this node was demoted.
#[derive(Debug, PartialEq, Eq)]
enum Resumption {
    /// Without these, beside those that are left out by now.
    GoesOn(Vec<String>),
    /// Nothing was left out so far, and nothing need be.
    IsGoodAgain,
    /// These have no disk either, and nobody has agreed to lose them: a disk may come late.
    NotAgreed(Vec<String>),
}

impl Resumption {
    /// `agreed`: volumes that an operator has agreed to lose; `dead`: those that have no disk now; `detached`: those that are left out by now.
    fn of(agreed: &[String], mut dead: Vec<String>, detached: &[&str]) -> Resumption {
        dead.retain(|volume| !detached.contains(&volume.as_str()));
        let others: Vec<String> = dead.iter().filter(|volume| !agreed.contains(volume)).cloned().collect();
        let is_begun = agreed.iter().any(|volume| detached.contains(&volume.as_str()));
        match (others.is_empty(), dead.is_empty() && !is_begun) {
            (false, _) => Resumption::NotAgreed(others),
            (true, true) => Resumption::IsGoodAgain,
            (true, false) => Resumption::GoesOn(dead),
        }
    }
}

/// It is tried again as long as it is on record, and nobody is served before.
fn waits_still(desk: &Desk, name: &str, message: &str) {
    let why = format!(
        "{message}; it is tried again, and nobody is served here before: 'farshore sync {name} --reverse --stop' ends that"
    );
    desk.reverses.refused(name, why, REVERSE_AGAIN_AFTER);
}

fn not_agreed(name: &str, agreed: &[String], others: &[String]) -> String {
    format!(
        "the disk of volume {} is not there, and only the loss of volume {} was agreed on: nobody is served before that disk is there. If it is dead \
         too: 'farshore sync {name} --reverse --stop', then 'farshore sync {name} --reverse'",
        others.join(" and "),
        agreed.join(" and ")
    )
}

/// Before this node was demoted the daemon ended, behind all that may have it refused: it goes on, without the disks that were agreed on.
pub(super) async fn goes_on_without_dead(
    desk: &Desk,
    (group, id): (&ConfiguredGroup, GroupId),
    (peer, home): (&NodeName, ReverseHome),
    found: &GroupSnapshot,
) -> Result<(), Gone> {
    let (name, number) = (group.name.as_str(), desk.reverses.number(group.name.as_str()));
    let GivesUp { discard, without_dead: agreed, .. } = home.gives_up.clone().unwrap_or_default();
    let skip_hooks = home.skip_hooks;
    // Clients of the run before are gone, and nobody was served since.
    let order = ReverseOrder {
        group: name.to_owned(),
        full: home.full,
        yes: true,
        discard,
        skip_hooks,
        close_clients: true,
        ..ReverseOrder::default()
    };
    let said = desk.reverses.why(name);
    let now = as_recorded(desk, group, found.status.clone()).await;
    let named = group.volumes.iter().zip(&now.volumes);
    let detached: Vec<&str> = named.filter(|(_, now)| now.is_detached).map(|(named, _)| named.name.as_str()).collect();
    let dead = dead_disks(desk, group, found).await;
    let reply = match dead.map(|dead| Resumption::of(&agreed, dead, &detached)) {
        Ok(Resumption::GoesOn(dead)) => {
            GivingUp { desk, order: &order, group, id, peer, dead }.goes_over(home, number).await?
        }
        Ok(Resumption::IsGoodAgain) => {
            never_began(desk, (name, id), peer).await?;
            let why =
                format!("{name}: the disk of volume {} is there again: no role has changed", agreed.join(" and "));
            Reply::failed(DeskRefusal::Failed, why)
        }
        Ok(Resumption::NotAgreed(others)) => {
            let why = not_agreed(name, &agreed, &others);
            desk.reverses.refused(name, why, REVERSE_AGAIN_AFTER);
            return Ok(());
        }
        Err(refusal) => {
            match &refusal {
                Reply::Error { message, .. } if agreed.iter().any(|volume| detached.contains(&volume.as_str())) => {
                    waits_still(desk, name, message);
                }
                _ => never_began(desk, (name, id), peer).await?,
            }
            refusal
        }
    };
    match reply {
        Reply::Error { message, .. } if said.is_none() => tracing::warn!("{message}"),
        Reply::Error { .. } => {}
        _ => tracing::info!("{name}: a reverse sync that the end of the daemon has interrupted goes on"),
    }
    Ok(())
}

/// The answer of a demotion that may be on record, or not.
pub(super) fn is_record_unknown(reply: &Reply) -> bool {
    is_refused_as(reply, RefusalCode::RecordUnknown.word())
}

/// Nothing follows before a reset tells which role is on record.
pub(super) fn unknown_role(mut reply: Reply) -> Reply {
    if let Reply::Error { message, .. } = &mut reply {
        *message += ". By the role that is on record the reverse sync goes on behind that, or has not begun; clients of this node wait";
    }
    reply
}

/// What it has come to, and when it is tried again.
fn answer_of(
    desk: &Desk,
    (name, peer): (&str, &NodeName),
    step: PeerStep,
    (begun, mut warnings): (String, Vec<String>),
) -> Reply {
    match step {
        PeerStep::Kept => Reply::done(begun, warnings),
        PeerStep::NotKept(why) => {
            warnings.push(format!(
                "what node {peer} lacks is not given up yet, and nothing of it is overwritten: {why}. It is tried again; 'farshore sync {name} \
                 --reverse --yes --discard' saves nothing of it"
            ));
            desk.reverses.refused(name, why, REVERSE_AGAIN_AFTER);
            Reply::done(begun, warnings)
        }
        PeerStep::NotPromoted(why) => {
            let message = format!(
                "{name}: this node is the secondary, and node {peer} is not promoted yet: {why}. It is tried again, and clients of this node \
                 wait; 'farshore promote {name} --force' here takes it back"
            );
            desk.reverses.refused(name, why, REVERSE_AGAIN_AFTER);
            Reply::failed(DeskRefusal::Failed, message)
        }
        PeerStep::Ended => ended_meanwhile(name),
        PeerStep::Over => {
            let message = format!("{name}: node {peer} serves its own clients alone, as an operator said there");
            Reply::refused(DeskRefusal::ReverseOver, message)
        }
    }
}

/// What a demotion warns of besides what it says itself.
fn besides(reply: Reply) -> Vec<String> {
    let Reply::Ok { message, mut warnings, .. } = reply else { return Vec::new() };
    warnings.retain(|warning| !message.contains(warning));
    warnings
}

/// It was typed before: what has come to nothing so far is tried at once. The step has begun.
pub(super) async fn typed_again(
    desk: &Desk,
    order: &ReverseOrder,
    (id, peer): (GroupId, &NodeName),
) -> Result<Reply, Gone> {
    let name = order.group.as_str();
    let reply = tried_again(desk, order, (id, peer)).await;
    desk.reverses.is_done(name);
    reply
}

async fn tried_again(desk: &Desk, order: &ReverseOrder, (id, peer): (GroupId, &NodeName)) -> Result<Reply, Gone> {
    let name = order.group.as_str();
    let known = desk.reverses.home(name).unwrap_or_default();
    let Some(gives_up) = known.gives_up else {
        if is_secondary_there(desk, id).await? {
            let message = format!(
                "{name}: nothing was changed: node {peer} has served the clients of this node and was demoted there, so nobody serves them now. This \
                 node takes over by itself as soon as it has all that {peer} has ('farshore status {name}' says why not yet). 'farshore promote \
                 {name} --force' on one of both gives up what the other one has alone, and '--stop' here ends the reverse sync"
            );
            return Ok(Reply::refused(DeskRefusal::ReverseUnderWay, message));
        }
        return Ok(under_way_already(name, peer));
    };
    if order.discard && !gives_up.discard {
        let home = ReverseHome { gives_up: Some(GivesUp { discard: true, ..gives_up }), ..known };
        match desk.reverses.goes_on(name, ReversePlace::Home(home)).await {
            Ok(true) => {}
            Ok(false) => return Ok(ended_meanwhile(name)),
            Err(why) => {
                let message = format!("{name}: nothing was changed: {why}");
                return Ok(Reply::refused(DeskRefusal::StateDiskSilent, message));
            }
        }
    }
    let (step, warnings) = next_step(desk, (name, id), peer, true).await?;
    Ok(answer_of(desk, (name, peer), step, (begun(name, peer, known.full), warnings)))
}

pub(super) fn under_way_already(name: &str, peer: &NodeName) -> Reply {
    Reply::unchanged(format!(
        "{name}: a reverse sync is under way already: node {peer} serves the clients of this node"
    ))
}

/// This node is the secondary: the dead disks are given up, and no run of the daemon demotes it without them again; and a term has ended. Nobody is
/// served by the peer before. The error: a sentence.
pub(super) async fn is_demoted_for_good(
    desk: &Desk,
    (name, id): (&str, GroupId),
) -> Result<Result<bool, String>, Gone> {
    stands_still_no_more(desk, name, id).await?;
    match gives_content_up(desk, name, id).await? {
        Ok(()) => Ok(desk.reverses.leaves_dead_behind(name).await),
        Err(why) => Ok(Err(why)),
    }
}

/// This node is the secondary. The peer is promoted with what it has, unless it is the primary, and its content is kept. Each order may be
/// given again. One that has served, and is secondary by now, was demoted by somebody: it is promoted only if that `is_typed`. Beside what that comes
/// to: what the peer warns of.
pub(super) async fn next_step(
    desk: &Desk,
    (name, id): (&str, GroupId),
    peer: &NodeName,
    is_typed: bool,
) -> Result<(PeerStep, Vec<String>), Gone> {
    let is_known = match is_demoted_for_good(desk, (name, id)).await? {
        Ok(is_known) => is_known,
        Err(why) => return Ok((PeerStep::NotPromoted(why), Vec::new())),
    };
    let Some(home) = desk.reverses.home(name).filter(|_| is_known) else { return Ok((PeerStep::Ended, Vec::new())) };
    desk.control.clients(id, ClientsOrder::Forward).await?;
    let Some(GivesUp { discard, has_served, .. }) = home.gives_up else { return Ok((PeerStep::Kept, Vec::new())) };
    if has_served && !is_typed && is_secondary_there(desk, id).await? && !serves_by_its_word(desk, name, peer).await {
        return Ok((was_demoted(desk, name, peer).await, Vec::new()));
    }
    let (reverse, skip_hooks) = (desk.reverses.id(name).0, home.skip_hooks);
    let lends = ApiRequest::Lend { group: name.to_owned(), skip_hooks, ends: false, home_serves: false, reverse };
    let lent = (desk.ask_peer)(peer.to_string(), lends).await;
    if is_over_there(&lent) {
        return Ok((PeerStep::Over, Vec::new()));
    }
    let warnings = match &lent {
        Ok(Reply::Ok { warnings, .. }) => warnings.iter().map(|warning| format!("node {peer}: {warning}")).collect(),
        _ => Vec::new(),
    };
    let step = match answered(lent) {
        Ok(()) => match desk.reverses.has_served(name).await {
            Ok(false) => PeerStep::Ended,
            // What cannot be recorded is tried again with the next step.
            Ok(true) | Err(_) => keeps_content(desk, (name, id), peer, (home.full, discard)).await?,
        },
        Err(why) => PeerStep::NotPromoted(why),
    };
    Ok((step, warnings))
}

/// What the link last told may be of before the peer was promoted.
async fn serves_by_its_word(desk: &Desk, name: &str, peer: &NodeName) -> bool {
    let asks = ApiRequest::Status { group: Some(name.to_owned()) };
    let Ok(Reply::Status(theirs)) = (desk.ask_peer)(peer.to_string(), asks).await else { return false };
    theirs.groups.iter().any(|shown| shown.name == name && shown.role == crate::api::Role::Primary)
}

async fn is_secondary_there(desk: &Desk, id: GroupId) -> Result<bool, Gone> {
    Ok(desk.status_of(id).await?.is_some_and(|now| now.peer.role == Some(Role::Secondary)))
}

/// The peer has served, and was demoted since: it is not promoted over the head of whoever did that.
async fn was_demoted(desk: &Desk, name: &str, peer: &NodeName) -> PeerStep {
    match asks(desk, name, peer, false).await {
        Ok(false) => PeerStep::Over,
        _ => PeerStep::NotPromoted(format!(
            "node {peer} has served, and was demoted there: 'farshore sync {name} --reverse' here has it serve again, and with '--stop' ends that"
        )),
    }
}

/// The peer is the primary: its content is kept over what stands here alone, if anything does.
async fn keeps_content(
    desk: &Desk,
    (name, id): (&str, GroupId),
    peer: &NodeName,
    (full, discard): (bool, bool),
) -> Result<PeerStep, Gone> {
    let kept = keeps(desk, (name, id), peer, discard).await?;
    let is_code = |code: RefusalCode| kept.as_ref().is_ok_and(|kept| is_refused_as(kept, code.word()));
    // Nothing stands here alone; or it is not known what, and then all is compared, and saved as well.
    let (has_none, is_unknown) = (is_code(RefusalCode::NoFork), is_code(RefusalCode::ForkUnbounded));
    if let Err(why) = answered(kept).or_else(|why| if has_none || is_unknown { Ok(()) } else { Err(why) }) {
        return Ok(PeerStep::NotKept(why));
    }
    if has_none {
        let (full, no_compare, volume) = (false, false, None);
        let syncs = ApiRequest::Sync { group: name.to_owned(), full, no_compare, answers_nothing: true, volume };
        if let Err(why) = answered((desk.ask_peer)(peer.to_string(), syncs).await) {
            return Ok(PeerStep::NotKept(why));
        }
    }
    let home = ReverseHome { full: full || is_unknown, ..ReverseHome::default() };
    Ok(match desk.reverses.goes_on(name, ReversePlace::Home(home)).await {
        Ok(true) => PeerStep::Kept,
        Ok(false) => PeerStep::Ended,
        Err(why) => PeerStep::NotKept(why),
    })
}

/// A node that lacks nothing may be followed at once, and each hears of the other's generation a moment later.
async fn keeps(
    desk: &Desk,
    (name, id): (&str, GroupId),
    peer: &NodeName,
    discard: bool,
) -> Result<Result<Reply, String>, Gone> {
    let until = Instant::now() + REVERSE_HEARD_PATIENCE;
    loop {
        let Some(now) = desk.status_of(id).await? else { return Ok(Err("the group is starting".to_owned())) };
        let over = now.identity.generation.tag;
        let keep = ApiRequest::Keep { group: name.to_owned(), over, discard, by_policy: false };
        let kept = (desk.ask_peer)(peer.to_string(), keep).await;
        let has_changed = kept.as_ref().is_ok_and(|kept| is_refused_as(kept, RefusalCode::ForkChanged.word()));
        if !has_changed || Instant::now() >= until {
            return Ok(kept);
        }
        sleep(KEEP_AGAIN_AFTER).await;
    }
}

fn is_refused_as(reply: &Reply, code: &str) -> bool {
    matches!(reply, Reply::Error { refusal: Some(refusal), .. } if refusal.code == code)
}

/// What the peer does not have, as far as this node knows.
fn lacks(peer: &NodeName, now: &GroupStatus) -> String {
    let last = now.identity.position.seq.0;
    let dirty_bytes: u64 = now.volumes.iter().map(|volume| volume.dirty_bytes).sum();
    let bytes = dirty_bytes + now.queue.bytes;
    let point =
        now.peer.recovery_point.map_or_else(|| "no known write".to_owned(), |(seq, _)| format!("write {}", seq.0));
    let age = now.peer.lag.map(|lag| format!(", {} of writes", show_seconds(lag.as_secs_f64()))).unwrap_or_default();
    let differs = match now.state {
        State::Failed(_) => "what differs is not known".to_owned(),
        _ => format!("up to {} here may differ", show_size(bytes)),
    };
    format!(
        "the last write here is {last}, node {peer} has {point}, and {differs}{age}: with the content of node {peer} that is lost"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that came late after a reboot was given up with the one that an operator had agreed on; and a primary with all of its disks was
    /// demoted.
    #[test]
    fn a_start_goes_on_without_the_agreed_disks_alone() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let of = |dead: &[&str], detached: &[&str]| Resumption::of(&names(&["a", "b"]), names(dead), detached);
        assert_eq!(of(&["a", "b"], &[]), Resumption::GoesOn(names(&["a", "b"])));
        assert_eq!(of(&["a"], &[]), Resumption::GoesOn(names(&["a"])), "b is good again");
        assert_eq!(of(&[], &["a", "b"]), Resumption::GoesOn(vec![]), "they are left out by now");
        assert_eq!(of(&["a", "b"], &["a", "b"]), Resumption::GoesOn(vec![]));
        assert_eq!(of(&[], &[]), Resumption::IsGoodAgain);
        assert_eq!(of(&[], &["c"]), Resumption::IsGoodAgain, "that was left out before");
        assert_eq!(of(&["a", "c"], &[]), Resumption::NotAgreed(names(&["c"])));
        assert_eq!(of(&["a", "c"], &["c"]), Resumption::GoesOn(names(&["a"])), "its loss was chosen before");
        assert_eq!(of(&["c"], &["a", "b"]), Resumption::NotAgreed(names(&["c"])));
        let why = not_agreed("db", &names(&["a", "b"]), &names(&["c"]));
        assert!(why.contains("volume c is not there") && why.contains("--reverse --stop"), "{why}");
    }

    /// Another disk died while an operator read the question about the first one: it was given up with that, and never named.
    #[test]
    fn no_disk_is_given_up_that_was_not_named_to_whoever_was_asked() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let order = |yes, agreed: Option<&[&str]>| ReverseOrder {
            yes,
            agreed_dead: agreed.map(names),
            ..ReverseOrder::default()
        };
        assert!(!is_agreed_on(&order(false, None), &names(&[])));
        assert!(is_agreed_on(&order(true, None), &names(&["a", "b"])), "--yes of a script");
        assert!(is_agreed_on(&order(true, Some(&["a"])), &names(&["a"])));
        assert!(is_agreed_on(&order(true, Some(&["a"])), &names(&[])), "it is good again");
        assert!(!is_agreed_on(&order(true, Some(&["a"])), &names(&["a", "b"])));
        assert!(!is_agreed_on(&order(true, Some(&[])), &names(&["b"])));
    }

    /// A refusal that came behind the dead disk said that nothing was changed.
    #[test]
    fn what_is_refused_behind_a_dead_disk_says_what_was_done() {
        let why = "db: nothing was changed: the state disk does not answer";
        let refused = Reply::refused(DeskRefusal::StateDiskSilent, why.to_owned());
        let Reply::Error { message, refusal, .. } = behind_dead(refused, ("db", "beta"), &["data".to_owned()]) else {
            panic!("it is refused still")
        };
        assert_eq!(refusal.map(|refusal| refusal.code), Some(DeskRefusal::StateDiskSilent.word().to_owned()));
        assert!(message.starts_with("db: the state disk does not answer. This node is the primary still"), "{message}");
        let parts =
            ["without volume data, which is detached by now", "node beta", "'farshore sync db --reverse --yes'"];
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
}
