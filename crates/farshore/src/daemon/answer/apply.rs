//! A changed configuration file is taken up while the daemon runs (decision 62).
//!
//! What must hold:
//! * nothing is done before all of it was looked at: problems, what needs a restart, clients that would be cut off, roles that change;
//! * a group that starts anew on its own devices holds its clients, and cuts them off only if it does not serve again;
//! * a step that cannot be done ends the apply; typed again it goes on with what is left;
//! * groups that the file leaves as they are notice nothing but a new connection of the link.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use engine::Command;
use engine::state::State;
use host::driver::{ClientsOfRemoved, ClientsOrder, Gone};
use settings::{Config, ConfiguredGroup, NodeName};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{sleep, timeout, timeout_at};

use super::{CHANGE_PATIENCE, Desk, beside, turn};
use crate::api::refusals::DeskRefusal;
use crate::api::{CONFIG_PLAN_SCHEMA, ConfigAction, ConfigPlan, ConfigStep, ErrorCode, Reply};
use crate::daemon::attached;
use crate::daemon::configuration::{self, ConfigChange, RunningGroups};
use crate::daemon::disk_queue::QueuePlace;
use crate::daemon::group_directory::{self, GROUPS};
use crate::daemon::other_volumes::{OtherVolumes, Prepared};
use crate::daemon::reconnect::{HeldWriters, ReconnectReason, reconnect};
use crate::daemon::role_changes::{RoleChange, RoleChangeUnderWay};

/// How long a file and its devices are read. A disk that hangs is given up by then.
const READ_PATIENCE: Duration = Duration::from_secs(10);
/// How long a group may take to stop: as the daemon itself.
const STOP_PATIENCE: Duration = host::driver::STOP_PATIENCE;

/// How long the devices and files of groups that come are waited for.
const OPEN_PATIENCE: Duration = Duration::from_secs(60);
/// How long clients of a group that starts anew wait for it, from when it is there again.
const HOLD_PATIENCE: Duration = Duration::from_secs(30);
/// How long the start of groups that came is waited for.
const START_PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Held while records of other volumes are written.
static PREPARING: Mutex<()> = Mutex::new(());

const DEFINED: &str = "the configuration was applied, the link comes up anew with the groups that it has";

/// The file as it is now, and what it means.
struct ReadPlan {
    wanted: Config,
    plan: ConfigPlan,
    /// Why groups cannot go on with other volumes now, by their names.
    obstacles: BTreeMap<String, String>,
}

/// The desk as it takes a file up.
pub(super) struct ConfigDesk<'a>(pub &'a Desk);

impl ConfigDesk<'_> {
    /// What [`ConfigDesk::apply`] would do.
    pub async fn plan(&self) -> Result<Reply, Gone> {
        Ok(match self.read_plan().await? {
            Ok(read) => Reply::ConfigPlan(Box::new(read.plan)),
            Err(problems) => problems,
        })
    }

    /// Takes the file up.
    pub async fn apply(&self, close_clients: bool) -> Result<Reply, Gone> {
        let _alone = match turn(&self.0.changing, ("config apply", &self.0.node), CHANGE_PATIENCE).await {
            Ok(alone) => alone,
            Err(refusal) => return Ok(refusal),
        };
        let ReadPlan { wanted, plan, obstacles } = match self.read_plan().await? {
            Ok(read) => read,
            Err(problems) => return Ok(problems),
        };
        if !plan.needs_restart.is_empty() {
            return Ok(Reply::refused(DeskRefusal::NeedsRestart, needs_restart(&plan)));
        }
        if plan.steps.is_empty() && self.0.config().definitions() == wanted.definitions() {
            // What is written differently and means the same is the file of the next look.
            self.0.config.replace(wanted);
            return Ok(Reply::unchanged(format!("{} says what holds already; nothing to do", plan.file)));
        }
        let opening = self.0.reopener.opening();
        if let Some(name) =
            plan.steps.iter().filter_map(|step| step.group.as_ref()).find(|name| opening.contains(*name))
        {
            return Ok(still_being_opened(name));
        }
        if !obstacles.is_empty() {
            let said: Vec<_> = obstacles.iter().map(|(group, why)| format!("{group}: {why}")).collect();
            return Ok(Reply::refused(DeskRefusal::VolumesInUse, format!("nothing was changed: {}", said.join("\n"))));
        }
        let mut held = Vec::new();
        for group in plan.steps.iter().filter(|step| leaves(step)).filter_map(|step| step.group.as_ref()) {
            match self.0.role_changes.begin(group, RoleChange::Reload, self.0.node.as_str()) {
                Ok(change) => held.push(change),
                Err(refusal) => return Ok(refusal),
            }
        }
        if let Some(refusal) = self.clients_in_the_way(&wanted, &plan, close_clients).await? {
            return Ok(refusal);
        }
        self.carry_out(wanted, &plan, (close_clients, held)).await
    }

    /// The group starts anew as it is configured, with what is recorded of its volumes. Its clients are held, where it serves any.
    pub async fn begins_anew(&self, name: &str, held: RoleChangeUnderWay<'_>) -> Result<Reply, Gone> {
        let running = self.running(&self.0.config()).await?;
        let of_group = running.clients.iter().filter(|(export, _)| configuration::is_of(export, name));
        let clients_held = of_group.map(|(_, count)| *count).sum();
        self.starts_anew(name, clients_held, held).await
    }

    /// The same, and its clients are cut off.
    pub async fn begins_anew_alone(&self, name: &str, held: RoleChangeUnderWay<'_>) -> Result<Reply, Gone> {
        self.starts_anew(name, 0, held).await
    }

    async fn starts_anew(&self, name: &str, clients_held: u64, held: RoleChangeUnderWay<'_>) -> Result<Reply, Gone> {
        let config = self.0.config();
        let plan = ConfigPlan {
            schema: CONFIG_PLAN_SCHEMA.to_owned(),
            node: self.0.node.to_string(),
            file: String::new(),
            steps: vec![begins(name, clients_held)],
            needs_restart: Vec::new(),
        };
        self.carry_out((*config).clone(), &plan, (true, vec![held])).await
    }

    /// A group that was told to begin anew, and has left later than that was waited for, comes again.
    pub async fn comes_back(&self, name: &str) -> Result<(), Gone> {
        let (config, step) = (self.0.config(), begins(name, 0));
        let Some(group) = config.group(name) else { return Ok(()) };
        let writers = HeldWriters::hold(&self.0.control, &self.0.settings_of_groups().await).await?;
        self.0.control.define(config.definitions(), vec![config.group_id(group)], DEFINED).await?;
        for warning in self.groups_come(&[&step], &config).await? {
            tracing::warn!("{warning}");
        }
        self.groups_start(&[&step], &config).await?;
        writers.end(&self.0.control, &self.0.settings_of_groups().await).await
    }

    /// Reads the file, and compares.
    async fn read_plan(&self) -> Result<Result<ReadPlan, Reply>, Gone> {
        let (now, node) = (self.0.config(), self.0.node.clone());
        let read = beside(move || {
            let wanted = configuration::read(&now, &node)?;
            let sizes = configuration::device_sizes(&wanted, &node);
            let on_record = on_record(&now, &wanted, &node);
            Ok::<_, String>((now, wanted, sizes, on_record))
        });
        let (now, wanted, sizes, on_record) = match timeout(READ_PATIENCE, read).await {
            Ok(Ok(read)) => read,
            Ok(Err(problems)) => {
                let message = format!("the file cannot be applied, and nothing was changed:\n{problems}");
                return Ok(Err(Reply::coded(ErrorCode::BadValue, DeskRefusal::BadConfiguration, message)));
            }
            Err(_) => {
                let message =
                    format!("nothing was changed: the file or a device answered nothing for {READ_PATIENCE:?}");
                return Ok(Err(Reply::refused(DeskRefusal::StateDiskSilent, message)));
            }
        };
        let mut running = self.running(&now).await?;
        let changes = on_record.iter().map(|(group, found)| (group.clone(), found.words.clone()));
        running.on_record = changes.collect();
        let obstacles = on_record.into_iter().filter_map(|(group, found)| Some((group, found.obstacle?)));
        running.obstacles.extend(obstacles);
        let (overrides, link_overrides) = (self.0.overrides.lock().await, self.0.link_overrides.lock().await);
        let change = ConfigChange {
            node: &self.0.node,
            now: &now,
            wanted: &wanted,
            overrides: &overrides,
            link_overrides: &link_overrides,
        };
        let others: BTreeSet<_> = change.with_other_volumes().map(|group| group.name.to_string()).collect();
        running.obstacles.retain(|group, _| others.contains(group) || now.group(group).is_none());
        let plan = change.plan(&running, &sizes);
        drop((overrides, link_overrides));
        Ok(Ok(ReadPlan { wanted, plan, obstacles: running.obstacles }))
    }

    async fn running(&self, now: &Config) -> Result<RunningGroups, Gone> {
        let snapshot = self.0.control.snapshot().await?;
        let named = snapshot.groups.iter().filter_map(|group| Some((now.group_by_id(group.status.id)?, group)));
        let sizes =
            |group: &host::driver::GroupSnapshot| group.status.volumes.iter().map(|one| one.device_bytes).collect();
        // What was told to leave is on its way out.
        let stay = named.filter(|(_, group)| !group.is_leaving);
        let mut obstacles = BTreeMap::new();
        let stay = stay.inspect(|(named, group)| {
            if let Some(why) = is_busy(named.name.as_str(), &group.status) {
                obstacles.insert(named.name.to_string(), why);
            }
        });
        let mut groups: BTreeMap<_, _> = stay.map(|(named, group)| (named.name.to_string(), sizes(group))).collect();
        let roles = snapshot
            .groups
            .iter()
            .filter_map(|group| Some((now.group_by_id(group.status.id)?.name.to_string(), group.status.role)));
        let roles = roles.collect();
        groups.extend(self.0.reopener.opening().into_iter().map(|name| (name, Vec::new())));
        let mut clients = BTreeMap::new();
        for client in &snapshot.clients {
            *clients.entry(client.export.clone()).or_insert(0) += 1;
        }
        Ok(RunningGroups { groups, roles, clients, obstacles, on_record: BTreeMap::new() })
    }

    async fn clients_in_the_way(
        &self,
        wanted: &Config,
        plan: &ConfigPlan,
        close_clients: bool,
    ) -> Result<Option<Reply>, Gone> {
        let Some(group) = plan.steps.iter().find(|step| step.clients > 0 && !close_clients) else { return Ok(None) };
        let name = group.group.as_deref().unwrap_or_default();
        let mut clients = self.0.control.snapshot().await?.clients;
        let stays = |volume: &str| {
            let mut volumes = wanted.group(name).into_iter().flat_map(|group| &group.volumes);
            group.clients_held > 0 && volumes.any(|one| one.name.as_str() == volume)
        };
        clients.retain(|client| client.export.split_once('/').is_some_and(|(of, volume)| of == name && !stays(volume)));
        Ok((!clients.is_empty()).then(|| attached::refusal(name, &clients, "config apply")))
    }

    async fn carry_out(
        &self,
        wanted: Config,
        plan: &ConfigPlan,
        (close_clients, held): (bool, Vec<RoleChangeUnderWay<'_>>),
    ) -> Result<Reply, Gone> {
        if !cuts_links(&self.0.config(), &wanted, plan) {
            return self.take_up(wanted, plan, close_clients).await;
        }
        let writers = HeldWriters::hold(&self.0.control, &self.0.settings_of_groups().await).await?;
        let done = self.take_up(wanted, plan, close_clients).await?;
        drop(held);
        writers.end(&self.0.control, &self.0.settings_of_groups().await).await?;
        Ok(done)
    }

    async fn take_up(&self, wanted: Config, plan: &ConfigPlan, close_clients: bool) -> Result<Reply, Gone> {
        let left = match self.groups_leave(plan, close_clients).await? {
            Ok(left) => left,
            Err(refusal) => return Ok(refusal),
        };
        let before = self.0.config();
        let wanted = match self.volumes_change(wanted, plan).await {
            Ok(wanted) => wanted,
            Err(why) => {
                let refusal = Reply::refused(DeskRefusal::VolumesInUse, format!("nothing was changed: {why}"));
                return self.take_back(plan, &left, refusal).await;
            }
        };
        self.0.config.replace(wanted);
        self.parts_with_clients(&before, &left).await?;
        self.give_back_space(&before, plan).await;
        let config = self.0.config();
        let coming: Vec<_> = plan.steps.iter().filter(|step| comes(step)).collect();
        if cuts_links(&before, &config, plan) {
            let ids = coming.iter().filter_map(|step| Some(config.group_id(config.group(step.group.as_deref()?)?)));
            self.0.control.define(config.definitions(), ids.collect(), DEFINED).await?;
        }
        let mut warnings = self.groups_come(&coming, &config).await?;
        self.groups_start(&coming, &config).await?;
        for step in &plan.steps {
            match step.action {
                ConfigAction::Set => warnings.extend(self.takes_settings(step, &config).await?),
                ConfigAction::Link => self.takes_link(&before, &config).await?,
                _ => {}
            }
        }
        warnings.extend(self.clients_go_on(plan).await?);
        let mut message = format!("{} is applied on this node", plan.file);
        if before.definitions() != config.definitions() {
            message += "; groups that the other node defines differently meet once it is applied there too";
        }
        plan.steps.iter().for_each(|step| message += &format!("\n{}", line(step)));
        Ok(Reply::done(message, warnings))
    }

    // ---- groups that leave -------------------------------------------------------------------------------------------

    /// All that have to, or none: where one stays, those that left before it come again.
    async fn groups_leave<'p>(
        &self,
        plan: &'p ConfigPlan,
        close_clients: bool,
    ) -> Result<Result<Vec<&'p ConfigStep>, Reply>, Gone> {
        let told_before = self.told_to_leave().await?;
        let is_leaving = |step: &&ConfigStep| {
            leaves(step) || step.group.as_ref().is_some_and(|group| comes(step) && told_before.contains(group))
        };
        // All at once: they drain in one session, which ends with the last of them.
        let leaving: Vec<_> = plan.steps.iter().filter(is_leaving).collect();
        let told: Vec<_> = leaving.iter().map(|step| self.group_leaves(step, close_clients)).collect();
        let (mut left, mut stays) = (Vec::new(), None);
        for (step, task) in leaving.into_iter().zip(told) {
            match task.await.expect("a question to the data thread does not panic")? {
                Ok(()) => left.push(step),
                Err(refusal) => _ = stays.get_or_insert(refusal),
            }
        }
        Ok(match stays {
            Some(refusal) => Err(self.take_back(plan, &left, refusal).await?),
            None => Ok(left),
        })
    }

    /// A group that is removed leaves nobody behind whom the peer serves, or who is held: its export closes for them too.
    async fn parts_with_clients(&self, before: &Config, left: &[&ConfigStep]) -> Result<(), Gone> {
        let removed = left.iter().filter(|step| !comes(step)).filter_map(|step| step.group.as_deref());
        for group in removed.filter_map(|name| before.group(name)) {
            let id = before.group_id(group);
            self.0.control.clients(id, ClientsOrder::Part).await?;
            self.0.control.part_with_held(id).await?;
        }
        Ok(())
    }

    /// Groups that have left go on with the volumes of the file: all that it gives others, or none. A step that the disk does not allow is
    /// taken when the group comes, which says so if it cannot.
    async fn volumes_change(&self, wanted: Config, plan: &ConfigPlan) -> Result<Config, String> {
        let node = self.0.node.clone();
        // Of the others none has left.
        let steps = plan.steps.iter().filter(|step| leaves(step) && comes(step)).filter_map(|step| step.group.clone());
        let now = self.0.config();
        let volumes = |config: &Config, name: &str| config.group(name).map(|group| group.volumes.clone());
        // One that begins anew as it was has no records to change, and so none that could keep it from that.
        let begin_anew: BTreeSet<String> = steps.filter(|name| volumes(&now, name) != volumes(&wanted, name)).collect();
        if begin_anew.is_empty() {
            return Ok(wanted);
        }
        let prepare = move || {
            // One that nobody waits for any more still writes where this one would. One that broke down writes nothing.
            let _alone = match PREPARING.try_lock() {
                Ok(alone) => alone,
                Err(TryLockError::Poisoned(broken)) => broken.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    return Err("records of other volumes are still being written; type it again".to_owned());
                }
            };
            let mut prepared = Vec::new();
            for group in wanted.groups_of(&node).filter(|group| begin_anew.contains(group.name.as_str())) {
                let tag = wanted.group_tag(group);
                let other = OtherVolumes::of(&wanted, &node, group)
                    .and_then(|other| other.map(|one| one.prepare(tag)).transpose());
                prepared.extend(other.map_err(|why| format!("{}: {why:#}", group.name))?);
            }
            Ok::<_, String>((wanted, prepared))
        };
        // Writers and clients are held for it: whatever becomes of it, there is an answer.
        let broken =
            |_| Err("the records of other volumes could not be prepared: see the log of the daemon".to_owned());
        let prepare = beside(move || catch_unwind(AssertUnwindSafe(prepare)).unwrap_or_else(broken));
        let (wanted, prepared) = timeout(OPEN_PATIENCE, prepare).await.unwrap_or_else(|_| {
            Err(format!("the state disk has not written the records of other volumes for {OPEN_PATIENCE:?}"))
        })?;
        // Not given up: a group must not be opened while its records take their places.
        let step = move || prepared.into_iter().try_for_each(Prepared::take);
        beside(step).await.unwrap_or_else(|why| tracing::error!("{why:#}"));
        Ok(wanted)
    }

    /// Of groups that are gone for good: what is kept of them does not count their disk queue.
    async fn give_back_space(&self, before: &Config, plan: &ConfigPlan) {
        let Some(here) = before.node(&self.0.node) else { return };
        let gone = plan.steps.iter().filter(|step| step.action == ConfigAction::Remove);
        let named = gone.filter_map(|step| before.group(step.group.as_deref()?));
        let gone: Vec<_> = named.map(|group| (group.name.to_string(), before.group_tag(group))).collect();
        let (place, groups) = (QueuePlace::of(here), here.state.join(GROUPS));
        let gives_back = move |(group, tag): &(String, u64)| {
            // A start was cut short while it wrote what the file holds: without the file the volumes are not whole.
            let directory = groups.join(group);
            let recorded = group_directory::recorded(&directory, *tag).map(|recorded| recorded.queue_redo);
            // What cannot be read now may say so.
            match recorded.unwrap_or_else(|| !group_directory::is_new(&directory, *tag)) {
                true => tracing::warn!(
                    "group {group} has left, and its disk queue stays: its volumes are whole only with that"
                ),
                false => place.remove(group),
            }
        };
        beside(move || gone.iter().for_each(gives_back)).await;
    }

    /// It is told to leave. The answer, if it stays.
    fn group_leaves(&self, step: &ConfigStep, close_clients: bool) -> JoinHandle<Result<Result<(), Reply>, Gone>> {
        let config = self.0.config();
        let group = step.group.as_deref().and_then(|name| config.group(name));
        let known = group.map(|group| (group.name.clone(), config.group_id(group)));
        let clients = match (step.clients_held > 0, close_clients || comes(step) && !leaves(step)) {
            (true, _) => ClientsOfRemoved::Hold,
            (false, true) => ClientsOfRemoved::CutOff,
            (false, false) => ClientsOfRemoved::Refuse,
        };
        let control = self.0.control.clone();
        spawn_local(async move {
            let Some((name, id)) = known else { return Ok(Ok(())) };
            Ok(match timeout(STOP_PATIENCE, control.remove(id, clients)).await {
                Ok(removed) => removed?.map_err(|clients| attached::refusal(name.as_str(), &clients, "config apply")),
                Err(_) => {
                    let message = format!(
                        "{name}: the group does not come to rest within {STOP_PATIENCE:?}, as a disk owes it an answer or is slow ('farshore \
                         status {name}', the log): its export is closed, and it leaves as soon as it can. Then type 'farshore config apply' again"
                    );
                    Err(Reply::failed(DeskRefusal::NotDoneYet, message))
                }
            })
        })
    }

    /// Groups that an apply before this one has told to leave, and that have not come to rest.
    async fn told_to_leave(&self) -> Result<BTreeSet<String>, Gone> {
        let (snapshot, config) = (self.0.control.snapshot().await?, self.0.config());
        let leaving = snapshot.groups.iter().filter(|group| group.is_leaving);
        Ok(leaving.filter_map(|group| Some(config.group_by_id(group.status.id)?.name.to_string())).collect())
    }

    /// One stays for this reason: those that had left come again, by the configuration that holds.
    async fn take_back(&self, plan: &ConfigPlan, left: &[&ConfigStep], refusal: Reply) -> Result<Reply, Gone> {
        let warnings = self.groups_come(left, &self.0.config()).await?;
        self.clients_go_on(plan).await?;
        let Reply::Error { mut message, code, refusal, operation } = refusal else { return Ok(refusal) };
        let names: Vec<_> = left.iter().filter_map(|step| step.group.as_deref()).collect();
        if !names.is_empty() {
            message += &format!(". What had stopped for it has started again as it was: {}", names.join(", "));
        }
        warnings.iter().for_each(|warning| message += &format!("\n{warning}"));
        Ok(Reply::Error { message, code, refusal, operation })
    }

    // ---- groups that come --------------------------------------------------------------------------------------------

    /// All at once: none waits for the disks of another one. Which of them are not there, and why.
    async fn groups_come(&self, steps: &[&ConfigStep], config: &Arc<Config>) -> Result<Vec<String>, Gone> {
        let (mut coming, mut warnings) = (Vec::new(), Vec::new());
        for group in steps.iter().filter_map(|step| config.group(step.group.as_deref()?)) {
            let name = group.name.as_str();
            let on_record = async { (self.0.demotions.add(name).await, self.0.reverses.add(name).await).1 };
            match timeout(READ_PATIENCE, on_record).await {
                Ok(is_closed) => {
                    if let Some(peer) = group.peer_of(&self.0.node).filter(|_| is_closed) {
                        self.0.control.lend(config.group_id(group), Some(config.node_id(peer))).await?;
                    }
                    coming.push((name, self.group_comes(group, config).await));
                }
                Err(_) => warnings.push(format!(
                    "{name}: it does not come, as the state disk has not answered for {READ_PATIENCE:?}; type 'farshore config apply' again"
                )),
            }
        }
        let until = tokio::time::Instant::now() + OPEN_PATIENCE;
        for (name, task) in coming {
            match timeout_at(until, task).await {
                Ok(added) => added.expect("opening a group does not panic")?,
                Err(_) => warnings.push(format!(
                    "{name}: its devices and files are not open yet, as a disk is slow or owes an answer, or a large journal is being made; the \
                     group comes when they are"
                )),
            }
            warnings.extend(self.0.refused.why(name).map(|why| format!("{name}: the group is not taken up: {why}")));
        }
        Ok(warnings)
    }

    /// What comes has started, or takes its time: it is told of, and used, right behind the answer.
    async fn groups_start(&self, steps: &[&ConfigStep], config: &Config) -> Result<(), Gone> {
        let ids = steps.iter().filter_map(|step| Some(config.group_id(config.group(step.group.as_deref()?)?)));
        let (ids, began): (BTreeSet<_>, _) = (ids.collect(), Instant::now());
        while began.elapsed() < START_PATIENCE {
            let snapshot = self.0.control.snapshot().await?;
            let mut coming = snapshot.groups.iter().filter(|group| ids.contains(&group.status.id));
            if !coming.any(|group| group.status.starting) {
                break;
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Goes on where nobody waits for it any more.
    async fn group_comes(&self, group: &ConfiguredGroup, config: &Arc<Config>) -> JoinHandle<Result<(), Gone>> {
        let settings = self.0.overrides.lock().await.of(&group.name).effective(&group.settings).for_engine();
        let settings = self.0.reverses.settings_now(group.name.as_str(), settings);
        let (control, reopener, id) = (self.0.control.clone(), self.0.reopener.clone(), config.group_id(group));
        let (group, config) = (group.clone(), config.clone());
        spawn_local(async move {
            let (name, term) = (group.name.clone(), reopener.term(group.name.as_str()));
            let opening = reopener.clone();
            let opened = beside(move || {
                let added = opening.opens(&config, &group, settings);
                let is_same = opening.term(group.name.as_str()) == term;
                added.map(|added| (added, is_same))
            });
            // It is being opened already.
            let Some((added, is_same)) = opened.await else { return Ok(()) };
            if !is_same {
                // What clients had written and cached is of other content than what is found now.
                control.part_with_held(id).await?;
            }
            let added = control.add(added).await;
            reopener.is_there(name.as_str());
            added
        })
    }

    /// Clients that were held are those of groups that serve again, or leave: then what is to be said of it.
    async fn clients_go_on(&self, plan: &ConfigPlan) -> Result<Vec<String>, Gone> {
        let config = self.0.config();
        let held = plan.steps.iter().filter(|step| step.clients_held > 0).filter_map(|step| step.group.as_deref());
        let held: Vec<_> = held.filter_map(|name| Some((name, config.group_id(config.group(name)?)))).collect();
        let (mut warnings, began) = (Vec::new(), Instant::now());
        for (name, id) in held {
            while self.0.control.is_held(id).await?
                && began.elapsed() < HOLD_PATIENCE
                && self.0.refused.why(name).is_none()
            {
                sleep(LOOK_AGAIN).await;
            }
            if self.0.control.part_with_held(id).await? {
                warnings.push(format!("{name}: its clients were cut off, as it does not serve again"));
            }
        }
        Ok(warnings)
    }

    async fn takes_settings(&self, step: &ConfigStep, config: &Config) -> Result<Option<String>, Gone> {
        let Some(group) = step.group.as_deref().and_then(|name| config.group(name)) else { return Ok(None) };
        let effective = self.0.overrides.lock().await.of(&group.name).effective(&group.settings);
        let settings = self.0.reverses.settings_now(group.name.as_str(), effective.for_engine());
        let result = self.0.control.command(config.group_id(group), Command::Set(settings)).await?;
        Ok(match result {
            engine::CommandResult::Warning(text) => Some(format!("{}: {text}", group.name)),
            engine::CommandResult::Refused(refusal) => Some(format!("{}: not taken up: {}", group.name, refusal.text)),
            engine::CommandResult::Done(_) | engine::CommandResult::Unchanged(_) => None,
        })
    }

    async fn takes_link(&self, before: &Config, config: &Config) -> Result<(), Gone> {
        let overrides = self.0.link_overrides.lock().await.clone();
        let effective = overrides.effective(&config.link.settings);
        self.0.link_rate.tell(&effective, &self.0.control).await?;
        let options = effective.socket_options(config.link.timeout);
        if options != overrides.effective(&before.link.settings).socket_options(before.link.timeout) {
            reconnect(&self.0.control, &self.0.settings_of_groups().await, ReconnectReason::Retuned(options)).await?;
        }
        Ok(())
    }
}

/// A group that has other volumes on record.
struct OnRecord {
    /// What stands against it.
    obstacle: Option<String>,
    words: String,
}

/// Groups that have other volumes on record than the file gives them, by their names.
fn on_record(now: &Config, wanted: &Config, node: &NodeName) -> BTreeMap<String, OnRecord> {
    let one = |group: &ConfiguredGroup| {
        let is_running = now.group(group.name.as_str()).is_some();
        let found = match OtherVolumes::of(wanted, node, group) {
            Ok(other) => {
                let other = other?;
                OnRecord { obstacle: other.obstacle(is_running), words: other.in_words() }
            }
            Err(why) => OnRecord { obstacle: Some(format!("{why:#}")), words: String::new() },
        };
        Some((group.name.to_string(), found))
    };
    wanted.groups_of(node).filter_map(one).collect()
}

/// What the group is in the middle of, which has to end before it goes on with other volumes.
fn is_busy(name: &str, status: &engine::status::GroupStatus) -> Option<String> {
    let what = match status.state {
        State::Syncing => "a sync is under way",
        State::CatchingUp if status.sync.is_some() => "a sync is under way",
        _ if status.handover.is_some() || status.is_granted => "a switchover is under way",
        _ => return None,
    };
    Some(format!("{what}: its volumes can change once it has ended ('farshore wait {name} --for replicating')"))
}

/// Nothing goes on in the daemon that would end the operation.
fn still_being_opened(name: &str) -> Reply {
    let message = format!(
        "nothing was changed: {name} is still being opened, as a disk is slow or a large journal is being made; type 'farshore config \
         apply' again once 'farshore status' shows it"
    );
    Reply::refused(DeskRefusal::ChangeUnderWay, message)
}

/// The group starts anew.
fn begins(name: &str, clients_held: u64) -> ConfigStep {
    let (action, group) = (ConfigAction::Restart, Some(name.to_owned()));
    ConfigStep { action, group, text: String::new(), clients: 0, clients_held }
}

/// The group is let go of.
fn leaves(step: &ConfigStep) -> bool {
    matches!(step.action, ConfigAction::Remove | ConfigAction::Restart)
}

/// The links come up anew, with other groups or with groups that start.
fn cuts_links(before: &Config, wanted: &Config, plan: &ConfigPlan) -> bool {
    before.definitions() != wanted.definitions() || plan.steps.iter().any(|step| leaves(step) || comes(step))
}

/// The group starts.
fn comes(step: &ConfigStep) -> bool {
    matches!(step.action, ConfigAction::Add | ConfigAction::Restart)
}

fn line(step: &ConfigStep) -> String {
    match &step.group {
        Some(group) => format!("  {} {group}: {}", step.action, step.text),
        None => format!("  {}: {}", step.action, step.text),
    }
}

fn needs_restart(plan: &ConfigPlan) -> String {
    let list: String = plan.needs_restart.iter().map(|text| format!("\n  {text}")).collect();
    format!(
        "nothing was changed: {} has what counts at a start of the daemon only; restart the daemon to take up all of it:{list}",
        plan.file
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::OperationState;

    /// It changed nothing, and its operation was `running` for ever.
    #[test]
    fn an_apply_beside_a_group_that_is_being_opened_has_ended() {
        let Reply::Error { message, code, refusal: Some(refusal), .. } = still_being_opened("db") else {
            panic!("it is refused")
        };
        assert_eq!((refusal.code.as_str(), refusal.outcome(&code)), ("change-under-way", OperationState::Refused));
        assert!(message.starts_with("nothing was changed: db is still being opened"), "{message}");
    }
}
