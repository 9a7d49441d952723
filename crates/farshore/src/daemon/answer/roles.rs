//! Changes of a group's role: one of a group at a time, in the order that survives the daemon's end at each point.

use engine::identity::Role;
use engine::state::State;
use engine::status::GroupStatus;
use engine::{BOTH_PRIMARY, Command, Generation, GroupId, NOT_HERE, RefusalCode};
use host::driver::{Gone, entropy};
use host::frontend::ClientInfo;
use settings::{ConfiguredGroup, NodeName, RoleHook};
use tokio::time::sleep;

use super::{Desk, lending};
use crate::api::refusals::DeskRefusal;
use crate::api::{ApiRequest, MissingView, NodeView, Reply};
use crate::daemon::demotions::RecordTurn;
use crate::daemon::role_changes::{RoleChange, RoleChangeUnderWay};
use crate::daemon::role_hooks::{self, Candidate, RoleHookRun};
use crate::daemon::{attached, view};

/// Which commands around a change of role are run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunHooks {
    /// None of them.
    pub skipped: bool,
    /// Only the one after the change.
    pub before_has_run: bool,
}

/// How a node is to be promoted.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromotionOrder {
    pub force: bool,
    /// Only while the peer window proves that nothing which was acknowledged is missing.
    pub in_window: bool,
    /// The peer is secondary, and has this node serve its clients: its commands are none of a forced promotion, and a fence is not for it.
    pub is_lent: bool,
}

impl PromotionOrder {
    pub const UNFORCED: PromotionOrder = PromotionOrder { force: false, in_window: false, is_lent: false };
    /// For clients of the peer, with what this node has.
    pub const LENT: PromotionOrder = PromotionOrder { force: true, in_window: false, is_lent: true };

    fn command(self) -> Command {
        let entropy = entropy();
        match self {
            PromotionOrder { in_window: true, .. } => Command::PromoteInWindow { entropy },
            PromotionOrder { is_lent: true, .. } => Command::PromoteForPeer { entropy },
            PromotionOrder { force, .. } => Command::Promote { force, entropy },
        }
    }
}

/// The commands around one change of role.
pub(super) struct RoleHookCalls<'a> {
    pub desk: &'a Desk,
    pub change: &'a RoleChangeUnderWay<'a>,
    pub group: &'a ConfiguredGroup,
    pub is_forced: bool,
    pub runs: RunHooks,
}

/// The answer of a node that handed over, and did not hear what became of it.
pub(super) fn is_unanswered(reply: &Reply) -> bool {
    let Reply::Error { refusal: Some(refusal), .. } = reply else { return false };
    refusal.code == RefusalCode::GrantUnanswered.word()
}

impl RoleHookCalls<'_> {
    fn has(&self, which: RoleHook) -> bool {
        let is_before = matches!(which, RoleHook::BeforePromote | RoleHook::BeforeDemote);
        let has_run = self.runs.before_has_run && is_before;
        !self.runs.skipped && !has_run && !self.group.hooks.command(which).is_empty()
    }

    /// # Errors
    /// The answer to whoever asked for the change: it is not made.
    pub async fn before(&self, which: RoleHook) -> Result<(), Reply> {
        let verb = if which == RoleHook::BeforePromote { "promoted" } else { "demoted" };
        let (name, node) = (self.group.name.as_str(), self.desk.node.as_str());
        self.run(which, None).await.map_err(|why| role_hooks::refusal(name, verb, node, &why))
    }

    /// Of a change that was made just now, also where nobody knows what the other node made of it; a failure is one more warning.
    pub async fn after(&self, which: RoleHook, reply: &mut Reply) {
        if let Reply::Error { message, refusal: Some(refusal), .. } = reply
            && refusal.code == RefusalCode::RoleRecorded.word()
            && self.has(which)
        {
            // What it would move to this node is not served here yet, and 'reset' runs no commands.
            *message += &format!("; the command '{}' has not run: run it yourself behind that", which.as_str());
        }
        let text = match &*reply {
            Reply::Ok { message, unchanged: false, .. } => message.clone(),
            Reply::Error { message, .. } if is_unanswered(reply) => message.clone(),
            _ => return,
        };
        let Err(why) = self.run(which, Some(&text)).await else { return };
        let why = format!("{why}; what it said is in the log of node {}", self.desk.node);
        match reply {
            Reply::Ok { warnings, .. } => warnings.push(why),
            Reply::Error { message, .. } => *message += &format!("; {why}"),
            _ => {}
        }
    }

    async fn run(&self, which: RoleHook, text: Option<&str>) -> Result<(), String> {
        if !self.has(which) {
            return Ok(());
        }
        let desk = self.desk;
        let run = RoleHookRun {
            hooks: &self.group.hooks,
            which,
            config_file: desk.config().file.clone(),
            node: desk.node.as_str(),
            peer: self.group.peer_of(&desk.node).map(NodeName::as_str).unwrap_or_default(),
            group: self.group.name.as_str(),
            is_forced: self.is_forced,
            text,
            events: desk.events.sender(),
        };
        self.change.runs(Some(which));
        let ended = run.run().await;
        self.change.runs(None);
        ended
    }
}

fn starting(name: &str) -> Reply {
    let message = format!("{name}: the group is starting; try again in a moment");
    Reply::refused(RefusalCode::GroupStarting, message)
}

impl Desk {
    /// One change of role of a group at a time: a term might begin on a node that another promotion has just made primary, or none where a
    /// demotion ends meanwhile. Before the node becomes primary its term is another one: what was asked in an earlier one must not reach this
    /// content. A forced promotion of a home in a reverse sync begins the term last of all: a promotion that is refused ends no term of clients
    /// that are served. A command before the promotion comes last of what may have it refused here: a fence is not run for nothing.
    pub(super) async fn promote(&self, name: &str, how: PromotionOrder, runs: RunHooks) -> Result<Reply, Gone> {
        let (id, group) = match self.find_taken_up(name) {
            Ok(found) => found,
            Err(unknown) => return Ok(unknown),
        };
        let alone = match self.role_changes.begin(name, RoleChange::Promotion, self.node.as_str()) {
            Ok(alone) => alone,
            Err(refusal) => return Ok(refusal),
        };
        let now = self.status_of(id).await?;
        let Some(now) = now.filter(|now| !view::is_starting(now)) else {
            // Its role is not known yet.
            return Ok(starting(name));
        };
        if (how.force || now.role == Role::Secondary)
            && let Err(why) = self.reverses.leaves_dead_behind(name).await
        {
            // The next run of the daemon would demote it again.
            return Ok(Reply::refused(DeskRefusal::StateDiskSilent, format!("{name}: nothing was changed: {why}")));
        }
        let is_forced = how.force && !how.is_lent;
        let hooks = RoleHookCalls { desk: self, change: &alone, group: &group, is_forced, runs };
        let ready = match now.role {
            Role::Primary => GotReady::default(),
            Role::Secondary => match gets_ready(&hooks, &now, how).await? {
                Ok(ready) => ready,
                Err(refusal) => return Ok(refusal),
            },
        };
        let mut reply = self.command(name, how.command()).await?;
        // It is on record, or was refused; or its group has failed.
        alone.is_shown(false);
        if is_forced
            && let Reply::Ok { message, unchanged, .. } = &mut reply
            && lending::is_forced(self, name, id).await?
        {
            *message += "; the reverse sync is over: this node serves its own clients alone";
            *unchanged = false;
        }
        if let (Reply::Ok { message, .. }, Some(words)) = (&mut reply, ready.serves) {
            *message += &format!("; {words}");
        }
        if now.role == Role::Secondary {
            self.say_what_may_be_missing(id, &now, &mut reply).await?;
        }
        if let Reply::Ok { message, warnings, unchanged, .. } = &mut reply {
            // Whoever types it again may not have heard the first warning.
            let again = (*unchanged && message.contains(BOTH_PRIMARY)).then(|| BOTH_PRIMARY.to_owned());
            warnings.extend(ready.unrecorded.into_iter().chain(again));
        }
        hooks.after(RoleHook::AfterPromote, &mut reply).await;
        Ok(reply)
    }

    /// In numbers, as the primary told them last: the promotion has forgotten them. `before`: the status from before the promotion.
    async fn say_what_may_be_missing(&self, id: GroupId, before: &GroupStatus, reply: &mut Reply) -> Result<(), Gone> {
        let Reply::Ok { message, warnings, may_be_missing, .. } = reply else { return Ok(()) };
        if !message.contains(NOT_HERE) {
            return Ok(());
        }
        let Some(after) = self.status_of(id).await? else { return Ok(()) };
        let promoted = after.identity.parent.seq;
        let image = before.promotable.filter(|(position, _)| position.seq == promoted);
        let reported = before.peer.reported;
        let missing = MissingView {
            sequence: promoted.0,
            time: image.and_then(|(_, wall)| view::time(wall)),
            bytes: reported.map(|reported| reported.lag_bytes),
            seconds: reported.and_then(|reported| reported.lag).map(|lag| lag.as_secs_f64()),
            heard_s: reported.map(|reported| reported.since.as_secs_f64()),
        };
        let words = missing.words();
        *message += &format!("; {words}");
        warnings.push(words);
        *may_be_missing = Some(Box::new(missing));
        Ok(())
    }

    /// Whether a secondary would be promoted, before a command is run for that: the refusal, or `None`. Whether a peer handed over what stands
    /// here only its own daemon tells; one that does not answer speaks against nothing.
    async fn no_promotion(
        &self,
        group: &ConfiguredGroup,
        now: &GroupStatus,
        how: PromotionOrder,
    ) -> Result<Option<Reply>, Gone> {
        let mut refused = Candidate::of(now).no_promotion(how.force);
        if refused.is_none() && how.in_window && now.peer_window.is_none() {
            refused = Some((RefusalCode::WindowClosed, engine::NOT_IN_WINDOW.to_owned()));
        }
        if refused.is_none() && !how.force && !now.starting {
            let request = ApiRequest::Status { group: Some(group.name.to_string()) };
            let peer = group.peer_of(&self.node).map(NodeName::as_str).unwrap_or_default();
            let theirs = (self.ask_peer)(peer.to_owned(), request).await;
            let ours = self.status(Some(group.name.as_str())).await?;
            refused = match (&ours, &theirs) {
                (Reply::Status(ours), Ok(Reply::Status(theirs))) => {
                    let of_group = |status: &NodeView| {
                        status.groups.iter().find(|shown| shown.name == group.name.as_str()).cloned()
                    };
                    of_group(ours)
                        .zip(of_group(theirs))
                        .and_then(|(ours, theirs)| role_hooks::no_handover(&ours, &theirs))
                }
                _ => None,
            };
        }
        Ok(refused
            .map(|(code, why)| Reply::refused(code, format!("{}: {}", group.name, view::with_names(group, &why)))))
    }

    /// `command`: what the engine is asked for, [`Command::Demote`] or one that demotes under a condition.
    pub(super) async fn demote(
        &self,
        name: &str,
        close_clients: bool,
        runs: RunHooks,
        command: Command,
    ) -> Result<Reply, Gone> {
        let found = match self.find_taken_up(name) {
            Ok(found) => found,
            Err(unknown) => return Ok(unknown),
        };
        let alone = match self.role_changes.begin(name, RoleChange::Demotion, self.node.as_str()) {
            Ok(alone) => alone,
            Err(refusal) => return Ok(refusal),
        };
        let is_forced = close_clients && !self.reverses.is_home(name);
        let hooks = RoleHookCalls { desk: self, change: &alone, group: &found.1, is_forced, runs };
        let mut reply = demotes(&hooks, found.0, close_clients, command).await?;
        hooks.after(RoleHook::AfterDemote, &mut reply).await;
        Ok(reply)
    }

    /// Whether a primary would be demoted, before a command is run for that: the refusal, or `None`.
    /// `again`: the command as it is typed.
    pub(super) async fn no_demotion(
        &self,
        name: &str,
        now: &GroupStatus,
        (close_clients, again): (bool, &str),
    ) -> Result<Option<Reply>, Gone> {
        if let State::Failed(broken) = now.state {
            let message = format!("{name}: the group has failed: {}", broken.words());
            return Ok(Some(Reply::refused(RefusalCode::GroupFailed, message)));
        }
        if now.starting {
            return Ok(Some(starting(name)));
        }
        for look in 0..=attached::LOOKS {
            let clients = self.clients_of(name).await?;
            if close_clients || clients.is_empty() {
                break;
            }
            if look == attached::LOOKS {
                return Ok(Some(attached::refusal(name, &clients, again)));
            }
            // Those that have just said goodbye are as good as gone.
            sleep(attached::LOOK_AGAIN_AFTER).await;
        }
        Ok(None)
    }

    /// Who is attached to a group's exports.
    pub(super) async fn clients_of(&self, name: &str) -> Result<Vec<ClientInfo>, Gone> {
        let mut clients = self.control.snapshot().await?.clients;
        clients.retain(|client| client.export.split_once('/').is_some_and(|(group, _)| group == name));
        Ok(clients)
    }

    /// The record that warns where the daemon ends over the demotion.
    ///
    /// # Errors
    /// The answer to whoever asked: the disk hangs, and a demotion that went on when it answers again would come unawaited.
    pub(super) async fn record_begin(&self, name: &str, generation: Generation) -> Result<RecordTurn, Reply> {
        let begun = async { self.demotions.begins(name, generation, self.demotions.enter(name).await?).await };
        begun.await.map_err(|why| {
            let message = format!(
                "{name}: nothing was changed: {why}; type this again when that disk answers, and see the log of node {}",
                self.node
            );
            Reply::refused(DeskRefusal::StateDiskSilent, message)
        })
    }

    /// A warning where what the demotion warned of is not on record. `turn`: of a group whose role was not known before it has none.
    pub(super) async fn record_end(
        &self,
        name: &str,
        generation: Option<Generation>,
        warnings: &[String],
        turn: Option<RecordTurn>,
    ) -> Option<String> {
        let turn = match turn {
            Some(turn) => turn,
            None => match self.demotions.enter(name).await {
                Ok(turn) => turn,
                Err(why) => return Some(why),
            },
        };
        self.demotions.ended(name, generation, warnings, turn).await
    }
}

/// What is said of a promotion besides what came of it.
#[derive(Default)]
struct GotReady {
    /// A warning of the term.
    unrecorded: Option<String>,
    /// Whom it serves, if that is not everybody.
    serves: Option<String>,
}

/// A secondary is about to be promoted: all that may have it refused before the engine is asked. The error: the answer.
async fn gets_ready(
    hooks: &RoleHookCalls<'_>,
    now: &GroupStatus,
    how: PromotionOrder,
) -> Result<Result<GotReady, Reply>, Gone> {
    let (desk, group, name) = (hooks.desk, hooks.group, hooks.group.name.as_str());
    let has_command = hooks.has(RoleHook::BeforePromote);
    // The peer serves clients of this node until this is promoted: they are in the term before, as is whoever comes meanwhile.
    let is_served_there = how.force && desk.reverses.is_home(name);
    if (has_command || is_served_there)
        && let Some(refusal) = desk.no_promotion(group, now, how).await?
    {
        return Ok(Err(refusal));
    }
    let Some(peer) = group.peer_of(&desk.node) else { unreachable!("a group has two nodes") };
    let mut ready = GotReady::default();
    if !is_served_there {
        match lending::begins_term(desk, (name, now), peer, how.force).await? {
            Ok(unrecorded) => ready.unrecorded = unrecorded,
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    if let Err(refusal) = hooks.before(RoleHook::BeforePromote).await {
        return Ok(Err(refusal));
    }
    // The command may have run for minutes: the peer may have served others since it was asked.
    if is_served_there || has_command && !how.force && desk.reverses.is_home(name) {
        match lending::begins_term(desk, (name, now), peer, how.force).await? {
            Ok(again) => ready.unrecorded = again.or(ready.unrecorded),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    // A node that is promoted as its peer handed over to it has heard of that just now.
    if !how.force && !hooks.runs.before_has_run {
        ready.serves = lending::serves_still(desk, name, peer).await?;
    }
    Ok(Ok(ready))
}

/// A demotion up to the command behind it, which is left to whoever calls. Who asks again, and may not have heard the first answer, is warned of the
/// same: that not everything is known to have arrived decides about the peer.
pub(super) async fn demotes(
    hooks: &RoleHookCalls<'_>,
    id: GroupId,
    close_clients: bool,
    command: Command,
) -> Result<Reply, Gone> {
    let (desk, name, alone) = (hooks.desk, hooks.group.name.as_str(), hooks.change);
    let now = desk.status_of(id).await?;
    let Some(now) = now.filter(|now| !view::is_starting(now)) else {
        // Its role is not known yet: a primary would be demoted without its commands and without a record of the begin.
        return Ok(starting(name));
    };
    let before = Some(now).filter(|now| now.role == Role::Primary);
    let is_reverse = desk.reverses.is_home(name);
    let again = if is_reverse { format!("sync {name} --reverse") } else { format!("demote {name}") };
    if let Some(now) = &before
        && hooks.has(RoleHook::BeforeDemote)
        && let Some(refusal) = desk.no_demotion(name, now, (close_clients, &again)).await?
    {
        return Ok(refusal);
    }
    let before = before.map(|status| status.identity.generation);
    let turn = match before {
        Some(generation) => match desk.record_begin(name, generation).await {
            Ok(turn) => Some(turn),
            Err(refusal) => return Ok(refusal),
        },
        None => None,
    };
    if before.is_some()
        && let Err(refusal) = hooks.before(RoleHook::BeforeDemote).await
    {
        return Ok(refusal);
    }
    alone.is_shown(turn.is_some());
    let mut reply = match close_clients {
        true => desk.order_anyway(name, command).await?,
        false => desk.order_if_unused(name, command, &again).await?,
    };
    // It is on record, or was refused; or its group has failed.
    alone.is_shown(false);
    if let Reply::Ok { warnings, unchanged, .. } = &mut reply {
        // It is done, also where the data thread ends now.
        let now = desk.status_of(id).await.unwrap_or_default().map(|status| status.identity);
        if *unchanged {
            warnings.extend(desk.demotions.warnings(name, now.as_ref()));
        } else {
            let generation = now.map(|identity| identity.generation).or(before);
            let unrecorded = desk.record_end(name, generation, warnings, turn).await;
            warnings.extend(unrecorded);
        }
    }
    Ok(reply)
}
