//! The desk behind the control socket: each request to the data thread, each answer back in the socket's words.

mod apply;
mod awaited;
mod dead_disk;
mod failed_disks;
mod forks;
mod giving_up;
mod lending;
pub(super) mod marks;
mod policy;
mod resets;
mod reverse;
mod right_node;
mod roles;
mod schedule;
mod scrubs;
mod switchover;
mod unopened;
mod values;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::identity::Role;
use engine::state::{Mode, State};
use engine::status::GroupStatus;
use engine::{Command, CommandResult, Event, GroupId, Position, RefusalCode, VolumeId};
use host::driver::{DriverControl, DriverNews, DriverSnapshot, Gone, GroupSnapshot, NoticeReceiver, RecordedRequests};
use settings::limits::{METRICS_LOOK_TIMEOUT, PEER_ANSWER_TIMEOUT};
use settings::{Config, ConfiguredGroup, GroupKey, GroupOverrides, Keyed, LinkOverrides, NodeName};
use tokio::sync::{Mutex, MutexGuard, Notify};
use tokio::time::{sleep, timeout};

use super::current_config::CurrentConfig;
use super::demotions::Demotions;
use super::events::commands::{CommandEnd, CommandSource, CommandText};
use super::events::looks::{GroupFacts, GroupLooks, LOOK_EVERY};
use super::events::notices::NoticeReader;
use super::events::{CommandUnderWay, EventKeeper};
use super::link_rate::LinkRate;
use super::operations::Operations;
use super::reconnect::{ReconnectReason, reconnect};
use super::recorder::MinuteRecorder;
use super::renewal::{self, Renewal};
use super::reopening::{GroupReopener, RefusedGroups};
use super::reverses::Reverses;
use super::role_changes::{RoleChange, RoleChanges};
use super::scrub::Scrubs;
use super::terms::{KnownTerms, Terms};
use super::watch::StateWatch;
use super::{attached, history_room, preview, promises, recording, view};
use crate::api::refusals::DeskRefusal;
use crate::api::server::Asker;
use crate::api::{ApiRequest, ErrorCode, NodeView, RecordedBatch, Reply};
use crate::events::log::{EventQuestion, PAGE_EVENTS_MAX};
use crate::events::unix_ms;
use crate::metrics::PageFacts;
use crate::metrics::server::MetricsEndpoint;
use apply::ConfigDesk;
use awaited::AwaitedLook;
use dead_disk::{DiskDesk, LateGroups, LeavingVolumes, volume_of};
use policy::{PolicyTries, SeenGroups};
use right_node::TypedForPrimary;
use roles::{PromotionOrder, RunHooks};
use switchover::AnnouncedSwitchover;
use values::{keys_of, not_carried, typed_verify, values_text};

/// How long a command waits for what its event is to tell: who gave it, and what changed. That takes a millisecond.
const EVENT_PATIENCE: Duration = Duration::from_millis(500);

/// How long a look waits for more syncs to end.
const SYNC_END_PAUSE: Duration = Duration::from_millis(100);

/// How long a change of settings waits for the one before it: longer than links take to connect again, and never so long that whoever
/// typed it has gone.
const CHANGE_PATIENCE: Duration = Duration::from_secs(10);

/// The operation that sets one volume aside.
const SET_ASIDE: &str = "logging-volume";

const _: () = assert!(CHANGE_PATIENCE.as_secs() < PEER_ANSWER_TIMEOUT.as_secs());

/// What the control socket speaks for.
pub(super) struct Desk {
    config: CurrentConfig,
    node: NodeName,
    /// Held while a change is under way, so that two of them come one after the other. What one waits for, a disk, may never come: nobody
    /// waits for that without an end.
    changing: Mutex<()>,
    role_changes: RoleChanges,
    /// Where groups stood when this node took over from a peer that handed over.
    granted: RefCell<BTreeMap<GroupId, Position>>,
    /// To which of them a peer is about to hand over.
    announced: RefCell<BTreeMap<GroupId, AnnouncedSwitchover>>,
    demotions: Demotions,
    scrubs: Scrubs,
    reverses: Reverses,
    policy_tries: PolicyTries,
    operations: Rc<Operations>,
    /// Something was heard by which a sync may have ended.
    sync_ends: Notify,
    overrides: Mutex<GroupOverrides>,
    link_overrides: Mutex<LinkOverrides>,
    recorder: Rc<MinuteRecorder>,
    events: Rc<EventKeeper>,
    looks: Mutex<GroupLooks>,
    control: DriverControl,
    ask_peer: PeerAsk,
    /// With certificates.
    renewal: Option<Renewal>,
    watch: StateWatch,
    terms: Terms,
    /// Why groups were not taken up, by their names.
    refused: RefusedGroups,
    /// Opens groups that come, and seals those that leave.
    reopener: Arc<GroupReopener>,
    link_rate: LinkRate,
    late: LateGroups,
    leaving: LeavingVolumes,
}

/// Asks a peer's daemon, by its node's name, what only looks there, or tells it of a switchover. The answer, or why there is none.
pub(super) type PeerAsk = Box<dyn Fn(String, ApiRequest) -> PeerWord>;
pub(super) type PeerWord = Pin<Box<dyn Future<Output = Result<Reply, String>>>>;

/// By group.
type ShownChanges = BTreeMap<String, RoleChange>;

/// What this node is for a group.
pub(super) struct PlaceInGroup {
    pub role: Role,
    pub peer: String,
    /// As it says itself, while it is connected.
    pub peer_role: Option<Role>,
    /// An image besides the volumes' own is kept here.
    pub has_mark: bool,
    /// Volumes that came to the group, and that no sync has filled here yet. Of a disk that was attached it was said that nothing on it counts.
    pub came: Vec<String>,
}

impl Desk {
    pub fn new(
        (config, node): (CurrentConfig, NodeName),
        (overrides, link_overrides): (GroupOverrides, LinkOverrides),
        (recorder, events): (Rc<MinuteRecorder>, Rc<EventKeeper>),
        (control, ask_peer): (DriverControl, PeerAsk),
        (renewal, reopener, (refused, terms)): (Option<Renewal>, Arc<GroupReopener>, (RefusedGroups, KnownTerms)),
    ) -> Desk {
        let (overrides, link_overrides) = (Mutex::new(overrides), Mutex::new(link_overrides));
        let now = config.get();
        let here = now.node(&node).expect("the node was looked up before");
        let state = &here.state;
        let groups = || now.groups_of(&node).map(|group| group.name.as_str());
        let (watch, terms) = (StateWatch::new(here), Terms::new(state, terms));
        let (role_changes, demotions) = (RoleChanges::default(), Demotions::read(state, groups()));
        let (scrubs, reverses) = (Scrubs::new(state), Reverses::read(state, groups()));
        let changing = Mutex::new(());
        let looks = Mutex::new(GroupLooks::new(events.values(), events.missed()));
        Desk {
            operations: Operations::new(node.as_str()),
            sync_ends: Notify::new(),
            watch,
            terms,
            config,
            node,
            changing,
            role_changes,
            granted: RefCell::default(),
            announced: RefCell::default(),
            demotions,
            scrubs,
            reverses,
            policy_tries: PolicyTries::default(),
            overrides,
            link_overrides,
            recorder,
            events,
            looks,
            control,
            ask_peer,
            renewal,
            refused,
            reopener,
            link_rate: LinkRate::default(),
            late: LateGroups::default(),
            leaving: LeavingVolumes::default(),
        }
    }

    /// As it is now.
    fn config(&self) -> Arc<Config> {
        self.config.get()
    }

    /// Looks again at what is believed, writes down terms that could not be, and takes up new certificates as they come; for ever. A disk
    /// that hangs under the one does not keep the others up: who was revoked goes.
    pub async fn look_for_ever(self: Rc<Self>) {
        let primaries = self.demotions.look_for_ever(&self.config, &self.control);
        let (scrubs, reverses) = (self.scrub_for_ever(), reverse::go_on_for_ever(&self));
        let (terms, rate) = (self.record_terms_for_ever(), schedule::follow_for_ever(&self));
        tokio::join!(self.watch_for_ever(), terms, primaries, self.renew_for_ever(), scrubs, reverses, rate);
    }

    async fn record_terms_for_ever(&self) {
        loop {
            sleep(renewal::LOOK_EVERY).await;
            self.terms.record_again().await;
        }
    }

    async fn watch_for_ever(&self) {
        loop {
            sleep(renewal::LOOK_EVERY).await;
            self.watch.look(&self.config(), &self.node).await;
        }
    }

    async fn renew_for_ever(&self) {
        let Some(renewal) = &self.renewal else { return };
        loop {
            sleep(renewal::LOOK_EVERY).await;
            if renewal.look(&self.config(), &self.node).await
                && matches!(self.renew_links().await, Ok(true) | Err(Gone))
            {
                renewal.links_are_done();
            }
        }
    }

    /// Has the links come up anew, without giving up anything that is under way. False: not now.
    ///
    /// A primary whose writers need its peer holds them meanwhile, instead of going to `logging` as its policy would have
    /// it when the link really falls. A secondary cannot tell its primary to; there the certificate serves the next
    /// connection.
    async fn renew_links(&self) -> Result<bool, Gone> {
        // Nobody changes a setting meanwhile. The end of one that waits for a disk may never come, and who is
        // revoked after that would stay.
        let Ok(_alone) = self.changing.try_lock() else { return Ok(false) };
        let groups = self.control.snapshot().await?.groups;
        let needs_peer = |group: &GroupSnapshot| group.status.mode.is_some_and(Mode::promises);
        let is_under_way = |group: &GroupSnapshot| matches!(group.status.state, State::Syncing | State::CatchingUp);
        if groups.iter().any(is_under_way) {
            return Ok(false);
        }
        if groups.iter().any(|group| needs_peer(group) && group.status.role == Role::Secondary) {
            tracing::info!("the links stay as they are: the new certificates are shown when they next connect");
            return Ok(true);
        }
        let anew = ReconnectReason::Anew("the certificates were replaced, the link comes up anew with them");
        reconnect(&self.control, &self.settings_of_groups().await, anew).await?;
        Ok(true)
    }

    /// Takes down what the data thread tells, until that has ended.
    pub async fn hear_for_ever(self: Rc<Self>, mut told: NoticeReceiver) {
        let mut reader = NoticeReader::new(self.config.clone(), self.node.clone());
        while let Some(notice) = told.next().await {
            self.events.sender().note_lost(told.take_lost());
            if let DriverNews::Group { group: id, event, .. } = &notice.news
                && let Some(group) = self.config().group_by_id(*id)
            {
                if self.operations.hear(group.name.as_str(), event, notice.at) {
                    self.sync_ends.notify_one();
                }
                if matches!(event, Event::HandedOver) {
                    // Each grant is tried once more, whatever became of the one before.
                    self.granted.borrow_mut().remove(id);
                    self.takes_over(group.name.as_str());
                }
            }
            reader.read(notice).into_iter().for_each(|event| self.events.sender().record(event));
        }
    }

    /// Looks for what changed in the groups' settings and lags, until the data thread has ended.
    pub async fn look_at_groups_for_ever(self: Rc<Self>) {
        while let Ok(SeenGroups { granted, by_policy }) = self.look_at_groups().await {
            granted.iter().for_each(|group| self.takes_over(group));
            by_policy.iter().for_each(|(group, step)| policy::follow(&self, group, *step));
            dead_disk::bring_back(&self);
            // Soon where a sync may have ended, and once for all that end together.
            if timeout(LOOK_EVERY, self.sync_ends.notified()).await.is_ok() {
                sleep(SYNC_END_PAUSE).await;
            }
        }
    }

    async fn look_at_groups(&self) -> Result<SeenGroups, Gone> {
        let awaited = AwaitedLook::begin(self);
        let snapshot = self.control.snapshot().await?;
        awaited.ends(self, &snapshot);
        let overrides = self.overrides.lock().await;
        let (mut looks, config) = (self.looks.lock().await, self.config());
        let mut seen = SeenGroups::default();
        for group in snapshot.groups.iter().filter(|group| !group.status.starting) {
            let Some(named) = config.group_by_id(group.status.id) else { continue };
            let (kept, now) = (overrides.of(&named.name), &group.status);
            if now.is_granted {
                seen.granted.push(named.name.to_string());
            } else {
                // The event that said so may be lost: the next grant is another one, wherever it stands.
                self.granted.borrow_mut().remove(&now.id);
            }
            seen.by_policy.extend(now.by_policy.map(|step| (named.name.to_string(), step)));
            let effective = kept.effective(&named.settings);
            let facts = GroupFacts {
                group: named.name.as_str(),
                peer: named.peer_of(&self.node).map(NodeName::as_str).unwrap_or_default(),
                is_primary: now.role == Role::Primary,
                // What a promotion may lack follows from how writers are answered.
                mode: if now.role == Role::Primary { now.mode } else { now.acts_as.or(now.mode) }.map(Mode::word),
                settings: GroupKey::all().map(|key| (key.as_str(), effective.text(key), kept.has(key))).collect(),
                lag: now.peer.lag,
                warn: named.rpo.warn,
                error: named.rpo.error,
                hold_off: named.rpo.hold_off,
            };
            let news = looks.look(&facts, Instant::now());
            news.into_iter().for_each(|event| self.events.sender().record(event));
        }
        Ok(seen)
    }

    /// Answers a request; of one that changes something the log of events has who gave it, and what came of it.
    pub async fn answer(&self, request: ApiRequest, asker: Asker) -> Reply {
        let from_node = asker.node.clone();
        let Some(command) = CommandText::of(&request) else {
            return self.reply(request, from_node.as_deref(), 0).await;
        };
        let begun = Instant::now();
        let course = awaited::course_of(&request);
        // Syncs of a group that are waited for go on while one volume is set aside.
        let verb = if command.is_of_volume() && course.is_none() { SET_ASIDE } else { command.verb() };
        let mut operation = self.operations.begin(verb, command.group(), course);
        let command = command.of_operation(operation.id());
        // It has none yet.
        _ = asker.operation.set(operation.id());
        let who = CommandSource::look_within(asker, EVENT_PATIENCE).await;
        let mut under_way = CommandUnderWay::new(self.events.sender(), Some(command), who, None, begun);
        let typed = TypedForPrimary::of(&request);
        let mut reply = self.reply(request, from_node.as_deref(), operation.seed()).await;
        if let Some(typed) = typed {
            typed.completes(self, &mut reply).await;
        }
        operation.answered(&mut reply);
        under_way.ended(CommandEnd::of(&reply));
        // What was set is told before the command that did it, and at once. Without a data thread there is nothing to be told.
        let _ = timeout(EVENT_PATIENCE, self.look_at_groups()).await;
        drop(under_way);
        reply
    }

    /// `from_node`: the node whose daemon asks, if it is not asked here. `seed`: by which what begins is known.
    async fn reply(&self, request: ApiRequest, from_node: Option<&str>, seed: u64) -> Reply {
        let done = match request {
            // Peers are asked at another desk.
            ApiRequest::Status { group } | ApiRequest::StatusOfBoth { group } => self.status(group.as_deref()).await,
            ApiRequest::On { node, .. } => {
                Ok(not_carried(&self.node, &format!("carries no request of another node on to node {node}")))
            }
            ApiRequest::Operation { id } => Ok(self.operation(&id).await),
            ApiRequest::ConnectPreview { group } => self.preview(&group).await,
            ApiRequest::Clients { group } => self.clients(group.as_deref()).await,
            ApiRequest::Counters => self.counters().await,
            ApiRequest::Record { group } => self.record(&group).await,
            ApiRequest::Logging { group, volume: None } => self.command(&group, Command::Logging).await,
            ApiRequest::Logging { group, volume: Some(volume) } => {
                self.command_volume(&group, &volume, |volume| Command::SetAside { volume }).await
            }
            ApiRequest::Sync { group, full: true, no_compare, .. } => self.sync_fully(&group, no_compare).await,
            ApiRequest::Sync { group, volume: Some(volume), .. } => {
                self.command_volume(&group, &volume, |volume| Command::Rejoin { volume }).await
            }
            ApiRequest::Sync { group, answers_nothing: true, .. } => self.command(&group, Command::BringUpToDate).await,
            ApiRequest::Sync { group, .. } => self.command(&group, Command::Sync { full: false }).await,
            ApiRequest::Demote { group, close_clients, skip_hooks } => {
                let runs = RunHooks { skipped: skip_hooks, ..RunHooks::default() };
                self.demote(&group, close_clients, runs, Command::Demote).await
            }
            ApiRequest::Resolve { .. } => Ok(not_carried(&self.node, "resolves no fork for others: type it there")),
            ApiRequest::TakeBack { group, over } => self.command(&group, Command::TakeBack { over }).await,
            half @ (ApiRequest::Keep { .. } | ApiRequest::Yield { .. }) => forks::half(self, half).await,
            ApiRequest::Promote { group, force, in_window, skip_hooks, is_announced } => {
                let how = PromotionOrder { force: force || in_window, in_window, is_lent: false };
                self.promote(&group, how, RunHooks { skipped: skip_hooks, before_has_run: is_announced }).await
            }
            ApiRequest::Switchover(order) => self.switchover(&order).await,
            take_over @ ApiRequest::TakeOver { .. } => self.announced(&take_over).await,
            ApiRequest::Reverse(order) => reverse::order(self, &order).await,
            lent @ ApiRequest::Lend { .. } => reverse::lend(self, &lent, from_node).await,
            asked @ ApiRequest::InReverse { .. } => Ok(lending::has_part(self, &asked)),
            ApiRequest::Rest { group } => lending::comes_to_rest(self, &group).await,
            ApiRequest::Reset { group } => resets::reset(self, &group).await,
            ApiRequest::DetachVolume { group, volume, close_clients, force } => {
                DiskDesk(self).detach(&group, &volume, (close_clients, force)).await
            }
            ApiRequest::AttachVolume { group, volume } => DiskDesk(self).attach(&group, &volume).await,
            ApiRequest::Marks { group } => marks::list(self, &group).await,
            ApiRequest::Mark { groups, name } => marks::set(self, &groups, name).await,
            change @ (ApiRequest::LockMark { .. } | ApiRequest::DropMark { .. }) => marks::change(self, change).await,
            verify @ ApiRequest::Verify { .. } => begins_verify(self, verify, seed).await,
            ApiRequest::ResetPeaks { group } => self.command(&group, Command::ForgetPeaks).await,
            ApiRequest::VerifyStop { group } => self.stop_verify(&group).await,
            ApiRequest::AssumeEqual { group } => self.command(&group, Command::AssumeEqual).await,
            ApiRequest::Set { group, settings } => self.set(&group, settings).await,
            ApiRequest::ConfigPlan => ConfigDesk(self).plan().await,
            ApiRequest::ConfigApply { close_clients } => ConfigDesk(self).apply(close_clients).await,
            ApiRequest::SetLink { settings } => self.set_link(settings).await,
            ApiRequest::Events { group, since_unix_ms, after, limit, last: newest } => {
                if let Some(Err(unknown)) = group.as_deref().map(|group| self.find(group)) {
                    return unknown;
                }
                let question =
                    EventQuestion { after, since_unix_ms, limit: limit.unwrap_or(PAGE_EVENTS_MAX), newest, group };
                Ok(self.events.answer(question, from_node).await)
            }
            ApiRequest::LinkHistory { peer, since_unix_ms } => {
                self.recorder.history(peer.as_deref(), since_unix_ms, from_node).await
            }
        };
        done.unwrap_or_else(|gone| Reply::failed(DeskRefusal::DaemonStopping, gone.to_string()))
    }

    async fn status(&self, group: Option<&str>) -> Result<Reply, Gone> {
        if let Some(Err(unknown)) = group.map(|group| self.find(group)) {
            return Ok(unknown);
        }
        let (snapshot, changes) = self.snapshot_with_changes().await?;
        let mut view = self.view((&snapshot, &changes), group).await;
        dead_disk::show_leaving(self, &mut view);
        Ok(Reply::Status(Box::new(view)))
    }

    /// What became of an operation. What ended just now has ended.
    async fn operation(&self, id: &str) -> Reply {
        if self.operations.awaits_look() {
            let awaited = AwaitedLook::begin(self);
            if let Ok(snapshot) = self.control.snapshot().await {
                awaited.ends(self, &snapshot);
            }
        }
        match self.operations.view(id) {
            Ok(known) => Reply::Operation(Box::new(known)),
            Err(unknown) => unknown,
        }
    }

    async fn preview(&self, name: &str) -> Result<Reply, Gone> {
        let (id, group) = match self.find(name) {
            Ok(found) => found,
            Err(unknown) => return Ok(unknown),
        };
        let snapshot = self.control.snapshot().await?;
        Ok(preview::answer(&self.node, &group, id, &snapshot))
    }

    async fn clients(&self, group: Option<&str>) -> Result<Reply, Gone> {
        if let Some(Err(unknown)) = group.map(|group| self.find(group)) {
            return Ok(unknown);
        }
        let snapshot = self.control.snapshot().await?;
        Ok(Reply::Clients(Box::new(attached::list(&self.node, &snapshot.clients, group))))
    }

    /// What this node is for a group; `None`: it is not known, or the group takes no orders.
    pub async fn place_in(&self, name: &str) -> Option<PlaceInGroup> {
        let (id, group) = self.find_taken_up(name).ok()?;
        let snapshot = self.control.snapshot().await.ok()?;
        let now = &snapshot.groups.iter().find(|group| group.status.id == id)?.status;
        let peer = group.peer_of(&self.node)?.to_string();
        let has_mark = now.rollback_point.is_some();
        let (role, peer_role) = (now.role, now.peer.role);
        let named = group.volumes.iter().zip(&now.volumes).filter(|(_, volume)| volume.is_unfilled);
        let unfilled = named.map(|(named, _)| named.name.to_string());
        let came = unfilled.filter(|volume| self.terms.may_have_come(name, volume)).collect();
        (!now.starting).then_some(PlaceInGroup { role, peer, peer_role, has_mark, came })
    }

    /// Of the nodes that this one has the group with.
    pub fn shares(&self, name: &str, peer: &str) -> bool {
        self.find(name).is_ok_and(|(_, group)| group.peer_of(&self.node).is_some_and(|other| other.as_str() == peer))
    }

    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// The groups of the data thread, and which of them change their role meanwhile. These are looked up before and after: a change may end,
    /// or begin, while the snapshot is on its way.
    async fn snapshot_with_changes(&self) -> Result<(DriverSnapshot, ShownChanges), Gone> {
        let mut changes = self.role_changes.shown();
        let snapshot = self.control.snapshot().await?;
        changes.extend(self.role_changes.shown());
        Ok((snapshot, changes))
    }

    async fn view(&self, (snapshot, changes): (&DriverSnapshot, &ShownChanges), group: Option<&str>) -> NodeView {
        let (overrides, link_overrides) = (self.overrides.lock().await, self.link_overrides.lock().await);
        let (kept, looks) = ((&*overrides, &*link_overrides), self.looks.lock().await);
        let mut status = view::status(&self.config(), &self.node, kept, snapshot, group);
        for group in &mut status.groups {
            match changes.get(&group.name) {
                Some(RoleChange::Promotion) => group.is_promoted_now(),
                Some(RoleChange::Demotion) => group.is_demoted_now(),
                Some(RoleChange::Switchover) if group.records_handover() => group.is_demoted_now(),
                Some(RoleChange::Switchover | RoleChange::Reload | RoleChange::ReverseStop) | None => {}
            }
            if let Some(named) = self.config().group(&group.name) {
                group.scrub = self.scrubs.view(named.scrub, group, unix_ms());
            }
            looks.show(group, Instant::now());
            self.terms.show(group);
            self.reverses.show(group, self.node.as_str());
            group.warnings.extend(self.terms.unrecorded(&group.name));
        }
        self.add_what_is_known_here(&mut status);
        status
    }

    /// What needs no answer of the data thread.
    fn add_what_is_known_here(&self, status: &mut NodeView) {
        status.warnings.extend(self.watch.warnings());
        status.state_directory = Some(self.watch.directory());
        if let Some(renewal) = &self.renewal {
            status.warnings.extend(renewal.warnings());
            status.tls = Some(renewal.status());
        }
    }

    /// Where metrics are read, if they are.
    pub fn metrics_endpoint(&self) -> Option<MetricsEndpoint> {
        let listen = self.config().node(&self.node)?.metrics.clone()?;
        let needs_tls = listen.tcp().is_some_and(|address| self.config().needs_tls(address));
        let tls = needs_tls.then(|| self.renewal.as_ref().expect("with [tls] there are certificates").store());
        Some(MetricsEndpoint { listen, tls })
    }

    /// What metrics are made of. A data thread that does not answer in time is one of them.
    pub async fn measure(&self) -> PageFacts {
        let look = async {
            let (snapshot, changes) = self.snapshot_with_changes().await?;
            let counters = view::counters(&self.config(), &self.node, &snapshot);
            Ok::<_, Gone>(PageFacts::reported(self.view((&snapshot, &changes), None).await, Some(counters)))
        };
        if let Ok(Ok(facts)) = timeout(METRICS_LOOK_TIMEOUT, look).await {
            return facts;
        }
        let cluster = self.config().top.cluster.to_string();
        let mut facts = PageFacts::unreported(&cluster, self.node.as_str(), env!("CARGO_PKG_VERSION"));
        facts.status.warnings = self.config().warnings();
        facts.status.lost_log_lines = crate::log::lost_lines();
        self.add_what_is_known_here(&mut facts.status);
        facts
    }

    async fn counters(&self) -> Result<Reply, Gone> {
        let snapshot = self.control.snapshot().await?;
        Ok(Reply::Counters(Box::new(view::counters(&self.config(), &self.node, &snapshot))))
    }

    async fn record(&self, name: &str) -> Result<Reply, Gone> {
        let (id, _) = match self.find(name) {
            Ok(found) => found,
            Err(unknown) => return Ok(unknown),
        };
        let RecordedRequests { notes, lost, opened } = self.control.notes(id).await?;
        let trace = recording::trace(&notes);
        Ok(Reply::Recorded(Box::new(RecordedBatch { began: opened, lost, bytes: trace.len(), trace })))
    }

    async fn command(&self, name: &str, command: Command) -> Result<Reply, Gone> {
        let (id, group) = match self.find_taken_up(name) {
            Ok(found) => found,
            Err(unknown) => return Ok(unknown),
        };
        let result = self.control.command(id, command).await?;
        Ok(reply(&group, result))
    }

    async fn command_volume(
        &self,
        name: &str,
        volume: &str,
        command: impl FnOnce(VolumeId) -> Command,
    ) -> Result<Reply, Gone> {
        let group = match self.find_taken_up(name) {
            Ok((_, group)) => group,
            Err(unknown) => return Ok(unknown),
        };
        match volume_of(&group, volume) {
            Ok(id) => self.command(name, command(id)).await,
            Err(unknown) => Ok(unknown),
        }
    }

    /// A secondary keeps its image while it is overwritten, and too little room for that is said with the order: a sync that finds none
    /// stands still.
    async fn sync_fully(&self, name: &str, no_compare: bool) -> Result<Reply, Gone> {
        let (id, group) = match self.find_taken_up(name) {
            Ok(found) => found,
            Err(unknown) => return Ok(unknown),
        };
        let groups = self.control.snapshot().await?.groups;
        let now = groups.iter().find(|group| group.status.id == id);
        // One that is under way goes on: what it lacks is in `status`.
        let begins = now.filter(|group| group.figures.sync.is_none_or(|pace| !pace.full));
        let warning = begins.and_then(|now| history_room::of_full_sync(&self.node, &group, &now.status, !no_compare));
        let command = if no_compare { Command::SendAll } else { Command::Sync { full: true } };
        let mut reply = self.command(name, command).await?;
        if let Reply::Ok { warnings, .. } = &mut reply {
            warnings.extend(warning);
        }
        Ok(reply)
    }

    async fn status_of(&self, id: GroupId) -> Result<Option<GroupStatus>, Gone> {
        let groups = self.control.snapshot().await?.groups;
        Ok(groups.into_iter().map(|group| group.status).find(|status| status.id == id))
    }

    /// Takes effect first and is kept then: what is refused is not kept, and what cannot be kept is said.
    async fn set(&self, name: &str, settings: BTreeMap<String, String>) -> Result<Reply, Gone> {
        let _alone = match turn(&self.changing, (name, &self.node), CHANGE_PATIENCE).await {
            Ok(alone) => alone,
            Err(refusal) => return Ok(refusal),
        };
        // Behind the turn: a configuration that was applied meanwhile is the one that counts.
        let (id, group) = match self.find_taken_up(name) {
            Ok(found) => found,
            Err(unknown) => return Ok(unknown),
        };
        // Not held any longer: `status` needs it, and the data thread or the disk may take their time.
        let mut wanted = self.overrides.lock().await.clone();
        let before = wanted.clone();
        if let Err(wrong) = wanted.change(&group.name, &settings) {
            return Ok(Reply::error(ErrorCode::BadValue, wrong.join("\n")));
        }
        // The order goes to the data path all the same: what waits for a word of the operator has it then.
        let unchanged = wanted == before;
        let effective = wanted.of(&group.name).effective(&group.settings);
        let was_sound = before.of(&group.name).effective(&group.settings).check_ladder().is_ok();
        if let (Err((key, why)), true) = (effective.check_ladder(), was_sound) {
            return Ok(Reply::error(ErrorCode::BadValue, format!("{key}: {why}")));
        }
        let command = Command::Set(self.reverses.settings_now(name, effective.for_engine()));
        let mut warnings = match self.control.command(id, command).await? {
            CommandResult::Done(_) | CommandResult::Unchanged(_) => Vec::new(),
            CommandResult::Warning(text) => vec![text],
            refused @ CommandResult::Refused(_) => return Ok(reply(&group, refused)),
        };
        let config = self.config();
        let here = config.node(&self.node).expect("the node was looked up before");
        let file = here.overrides_file();
        let (wanted, saved) = beside(move || {
            let saved = wanted.save(&file);
            (wanted, saved)
        })
        .await;
        if let Err(problem) = saved {
            warnings.push(format!("it holds until the daemon stops only: {problem}"));
        }
        *self.overrides.lock().await = wanted;
        let peer = group.peer_of(&self.node).map_or_else(|| "the peer".to_string(), |peer| peer.to_string());
        let snapshot = self.control.snapshot().await?;
        let theirs = snapshot.groups.iter().find(|group| group.status.id == id).and_then(|g| g.status.peer.settings);
        let keys = keys_of(&settings);
        if keys.iter().any(|key: &GroupKey| key.as_str() == "queue.memory") {
            let queue = ("queue.memory", effective.queue_memory_bytes);
            warnings.extend(self.config().beyond_memory(here, &group.name, queue));
        }
        let there = promises::of_set(&keys, &effective, (&peer, theirs));
        let message = format!("{name}: {} (on this node; {there})", values_text(&keys, &effective));
        Ok(Reply::of(message, warnings, unchanged))
    }

    /// Is kept first: the links connect again in any case, and a start after this finds the same.
    async fn set_link(&self, settings: BTreeMap<String, String>) -> Result<Reply, Gone> {
        // A `set` meanwhile would be undone by what is put back afterwards, so it waits.
        let _alone = match turn(&self.changing, ("link", &self.node), CHANGE_PATIENCE).await {
            Ok(alone) => alone,
            Err(refusal) => return Ok(refusal),
        };
        let (mut wanted, from_file) = (self.link_overrides.lock().await.clone(), &self.config().link);
        let before = wanted.effective(&from_file.settings);
        if let Err(wrong) = wanted.change(&settings, &from_file.settings, from_file.timeout) {
            return Ok(Reply::error(ErrorCode::BadValue, wrong.join("\n")));
        }
        let effective = wanted.effective(&from_file.settings);
        let mut warnings = Vec::new();
        let file = self.config().node(&self.node).expect("the node was looked up before").link_overrides_file();
        let (wanted, saved) = beside(move || {
            let saved = wanted.save(&file);
            (wanted, saved)
        })
        .await;
        if let Err(problem) = saved {
            warnings.push(format!("it holds until the daemon stops only: {problem}"));
        }
        *self.link_overrides.lock().await = wanted;
        if effective == before {
            let message = "the link's settings are what they were".to_owned();
            let unchanged = warnings.is_empty();
            return Ok(Reply::of(message, warnings, unchanged));
        }
        self.link_rate.tell(&effective, &self.control).await?;
        let options = effective.socket_options(from_file.timeout);
        let reconnects = options != before.socket_options(from_file.timeout);
        if reconnects {
            let groups = self.settings_of_groups().await;
            reconnect(&self.control, &groups, ReconnectReason::Retuned(options)).await?;
        }
        let how = if reconnects { "whose links connect again" } else { "at once, for what it sends" };
        let values_text = values_text(&keys_of(&settings), &effective);
        let message = format!("link: {values_text} (on this node, {how}; set it on the other node too)");
        Ok(Reply::done(message, warnings))
    }

    /// As the data path has them now.
    async fn settings_of_groups(&self) -> Vec<(GroupId, engine::Settings)> {
        let overrides = self.overrides.lock().await;
        let config = self.config();
        let one = |group: &ConfiguredGroup| {
            let settings = overrides.of(&group.name).effective(&group.settings).for_engine();
            (config.group_id(group), self.reverses.settings_now(group.name.as_str(), settings))
        };
        config.groups_of(&self.node).map(one).collect()
    }

    /// A group that can be given orders.
    fn find_taken_up(&self, name: &str) -> Result<(GroupId, ConfiguredGroup), Reply> {
        let found = self.find(name)?;
        match self.refused.why(name) {
            Some(why) => Err(Reply::refused(RefusalCode::GroupFailed, format!("{name}: the group has failed: {why}"))),
            None => Ok(found),
        }
    }

    fn find(&self, name: &str) -> Result<(GroupId, ConfiguredGroup), Reply> {
        let config = self.config();
        let found = config.groups_of(&self.node).find(|group| group.name.as_str() == name);
        let found = found.map(|group| (config.group_id(group), group.clone()));
        found.ok_or_else(|| {
            let names: Vec<_> = config.groups_of(&self.node).map(|group| group.name.as_str()).collect();
            let message = format!("node {} has no group {name:?}; its groups are {}", self.node, names.join(", "));
            Reply::error(ErrorCode::UnknownGroup, message)
        })
    }
}

/// Waits for the change before to end, but not for ever: this one would be carried out when nobody wants it any more. `what` is to be
/// changed on `node`.
///
/// # Errors
/// The answer to whoever asked.
async fn turn<'a>(
    changing: &'a Mutex<()>,
    (what, node): (&str, &NodeName),
    patience: Duration,
) -> Result<MutexGuard<'a, ()>, Reply> {
    timeout(patience, changing.lock()).await.map_err(|_| {
        let message = format!(
            "{what}: nothing was changed: the change of settings before this one is under way still, after {patience:?}; what it waits \
             for, a disk or a link, is in the log of node {node}; type this again when that has ended"
        );
        Reply::refused(DeskRefusal::ChangeUnderWay, message)
    })
}

/// On a thread of its own: a disk that hangs holds up nobody who only looks.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("writing a file does not panic")
}

/// What a command did is its answer, also where it is a warning: there it stands in both places, and is shown once.
async fn begins_verify(desk: &Desk, request: ApiRequest, seed: u64) -> Result<Reply, Gone> {
    let ApiRequest::Verify { group, repair, sample_percent, rate_bytes_per_s: rate } = request else {
        unreachable!("no other request begins one")
    };
    desk.command(&group, Command::Verify(typed_verify((repair, sample_percent), rate, seed))).await
}

fn reply(group: &ConfiguredGroup, result: CommandResult) -> Reply {
    let values_text = |text: &str| format!("{}: {}", group.name, view::with_names(group, text));
    match result {
        CommandResult::Done(text) => Reply::ok(values_text(&text)),
        CommandResult::Warning(text) => {
            let warnings = vec![view::with_names(group, &text)];
            Reply::done(values_text(&text), warnings)
        }
        CommandResult::Unchanged(text) => Reply::unchanged(values_text(&text)),
        CommandResult::Refused(refusal) => Reply::refused(refusal.code, values_text(&refusal.text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One `set` that waited for a disk kept all others waiting behind it, and they were carried out hours later.
    #[tokio::test]
    async fn a_change_of_settings_waits_for_another_one_for_a_while_only() {
        let node = NodeName::parse("alpha").expect("a name");
        let changing = Mutex::new(());
        let turn = || turn(&changing, ("db", &node), Duration::from_millis(20));
        let first = turn().await.expect("nobody changes anything");
        match turn().await {
            Err(Reply::Error { message, code: ErrorCode::Refused, .. }) => {
                assert!(
                    message.starts_with("db: nothing was changed: ") && message.contains("node alpha"),
                    "{message}"
                );
            }
            other => panic!("it is not its turn: {other:?}"),
        }
        drop(first);
        let _third = turn().await.expect("the first has ended, and the second does not come after all");
    }
}
