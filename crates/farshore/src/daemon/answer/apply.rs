//! A changed configuration file is taken up while the daemon runs (decision 62).
//!
//! What must hold:
//! * nothing is done before all of it was looked at: problems, what needs a restart, clients that would be cut off, roles that change;
//! * a step that cannot be done ends the apply; typed again it goes on with what is left;
//! * groups that the file leaves as they are notice nothing but a new connection of the link.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Command;
use host::driver::Gone;
use settings::Config;
use tokio::time::timeout;

use super::{CHANGE_PATIENCE, Desk, beside, turn};
use crate::api::refusals::DeskRefusal;
use crate::api::{ConfigAction, ConfigPlan, ConfigStep, ErrorCode, Reply};
use crate::daemon::attached;
use crate::daemon::configuration::{self, ConfigChange, RunningGroups};
use crate::daemon::reconnect::{ReconnectReason, reconnect};
use crate::daemon::role_changes::{RoleChange, RoleChangeUnderWay};

/// How long a file and its devices are read. A disk that hangs is given up by then.
const READ_PATIENCE: Duration = Duration::from_secs(10);
/// How long a group may take to stop: as the daemon itself.
const STOP_PATIENCE: Duration = host::driver::STOP_PATIENCE;

/// The file as it is now, and what it means.
struct ReadPlan {
    wanted: Config,
    plan: ConfigPlan,
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
        let ReadPlan { wanted, plan } = match self.read_plan().await? {
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
        let mut held = Vec::new();
        for group in plan.steps.iter().filter(|step| leaves(step)).filter_map(|step| step.group.as_ref()) {
            match self.0.role_changes.begin(group, RoleChange::Reload, self.0.node.as_str()) {
                Ok(change) => held.push(change),
                Err(refusal) => return Ok(refusal),
            }
        }
        if let Some(refusal) = self.clients_in_the_way(&plan, close_clients).await? {
            return Ok(refusal);
        }
        self.carry_out(wanted, &plan, (close_clients, held)).await
    }

    /// Reads the file, and compares.
    async fn read_plan(&self) -> Result<Result<ReadPlan, Reply>, Gone> {
        let (now, node) = (self.0.config(), self.0.node.clone());
        let read = beside(move || {
            let wanted = configuration::read(&now, &node)?;
            let sizes = configuration::device_sizes(&wanted, &node);
            Ok::<_, String>((now, wanted, sizes))
        });
        let (now, wanted, sizes) = match timeout(READ_PATIENCE, read).await {
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
        let running = self.running(&now).await?;
        let (overrides, link_overrides) = (self.0.overrides.lock().await, self.0.link_overrides.lock().await);
        let change = ConfigChange {
            node: &self.0.node,
            now: &now,
            wanted: &wanted,
            overrides: &overrides,
            link_overrides: &link_overrides,
        };
        let plan = change.plan(&running, &sizes);
        drop((overrides, link_overrides));
        Ok(Ok(ReadPlan { wanted, plan }))
    }

    async fn running(&self, now: &Config) -> Result<RunningGroups, Gone> {
        let snapshot = self.0.control.snapshot().await?;
        let named = snapshot.groups.iter().filter_map(|group| Some((now.group_by_id(group.status.id)?, group)));
        let sizes =
            |group: &host::driver::GroupSnapshot| group.status.volumes.iter().map(|one| one.device_bytes).collect();
        let groups = named.map(|(named, group)| (named.name.to_string(), sizes(group))).collect();
        let mut clients = BTreeMap::new();
        for client in &snapshot.clients {
            if let Some((group, _)) = client.export.split_once('/') {
                *clients.entry(group.to_owned()).or_insert(0) += 1;
            }
        }
        Ok(RunningGroups { groups, clients })
    }

    async fn clients_in_the_way(&self, plan: &ConfigPlan, close_clients: bool) -> Result<Option<Reply>, Gone> {
        let Some(group) = plan.steps.iter().find(|step| step.clients > 0 && !close_clients) else { return Ok(None) };
        let name = group.group.as_deref().unwrap_or_default();
        let mut clients = self.0.control.snapshot().await?.clients;
        clients.retain(|client| client.export.split_once('/').is_some_and(|(of, _)| of == name));
        Ok((!clients.is_empty()).then(|| attached::refusal(name, &clients, "config apply")))
    }

    async fn carry_out(
        &self,
        wanted: Config,
        plan: &ConfigPlan,
        (close_clients, held): (bool, Vec<RoleChangeUnderWay<'_>>),
    ) -> Result<Reply, Gone> {
        let (mut lines, mut warnings) = (Vec::new(), Vec::new());
        for step in plan.steps.iter().filter(|step| leaves(step)) {
            if let Err(refusal) = self.group_leaves(step, close_clients).await? {
                return Ok(refusal);
            }
        }
        let before = self.0.config();
        self.0.config.replace(wanted);
        let config = self.0.config();
        for step in &plan.steps {
            match step.action {
                ConfigAction::Add | ConfigAction::Restart => warnings.extend(self.group_comes(step, &config).await?),
                ConfigAction::Set => warnings.extend(self.takes_settings(step, &config).await?),
                ConfigAction::Link => self.takes_link(&before, &config).await?,
                _ => {}
            }
            lines.push(line(step));
        }
        drop(held);
        let comes_or_leaves = |step: &ConfigStep| leaves(step) || step.action == ConfigAction::Add;
        if before.definitions() != config.definitions() || plan.steps.iter().any(comes_or_leaves) {
            let reason = ReconnectReason::Defined(config.definitions());
            reconnect(&self.0.control, &self.0.settings_of_groups().await, reason).await?;
        }
        let mut message = format!("{} is applied on this node", plan.file);
        if before.definitions() != config.definitions() {
            message += "; groups that the other node defines differently meet once it is applied there too";
        }
        lines.insert(0, message);
        Ok(Reply::done(lines.join("\n"), warnings))
    }

    /// The answer, if it stays.
    async fn group_leaves(&self, step: &ConfigStep, close_clients: bool) -> Result<Result<(), Reply>, Gone> {
        let Some(name) = step.group.clone() else { return Ok(Ok(())) };
        let config = self.0.config();
        let Some(id) = config.group(&name).map(|group| config.group_id(group)) else { return Ok(Ok(())) };
        let let_go = match timeout(STOP_PATIENCE, self.0.control.remove(id, close_clients)).await {
            Ok(removed) => match removed? {
                Ok(let_go) => let_go,
                Err(clients) => return Ok(Err(attached::refusal(&name, &clients, "config apply"))),
            },
            Err(_) => {
                let message = format!(
                    "{name}: the group does not come to rest within {STOP_PATIENCE:?}, as a disk owes it an answer ('farshore status \
                     {name}', the log): its export is closed. Type 'farshore config apply' again when the disk answers"
                );
                return Ok(Err(Reply::failed(DeskRefusal::NotDoneYet, message)));
            }
        };
        let reopener = self.0.reopener.clone();
        beside(move || reopener.leaves(&name, let_go)).await;
        Ok(Ok(()))
    }

    /// Why it is not taken up, if it is not.
    async fn group_comes(&self, step: &ConfigStep, config: &Config) -> Result<Option<String>, Gone> {
        let Some(group) = step.group.as_deref().and_then(|name| config.group(name)).cloned() else { return Ok(None) };
        let settings = self.0.overrides.lock().await.of(&group.name).effective(&group.settings).for_engine();
        let (reopener, wanted, name) = (self.0.reopener.clone(), self.0.config(), group.name.to_string());
        let added = beside(move || reopener.opens(&wanted, &group, settings)).await;
        self.0.demotions.add(&name).await;
        self.0.control.add(added).await?;
        let why = self.0.refused.why(&name);
        Ok(why.map(|why| format!("{name}: the group is not taken up: {why}")))
    }

    async fn takes_settings(&self, step: &ConfigStep, config: &Config) -> Result<Option<String>, Gone> {
        let Some(group) = step.group.as_deref().and_then(|name| config.group(name)) else { return Ok(None) };
        let effective = self.0.overrides.lock().await.of(&group.name).effective(&group.settings);
        let result = self.0.control.command(config.group_id(group), Command::Set(effective.for_engine())).await?;
        Ok(match result {
            engine::CommandResult::Warning(text) => Some(format!("{}: {text}", group.name)),
            engine::CommandResult::Refused(refusal) => Some(format!("{}: not taken up: {}", group.name, refusal.text)),
            engine::CommandResult::Done(_) | engine::CommandResult::Unchanged(_) => None,
        })
    }

    async fn takes_link(&self, before: &Config, config: &Config) -> Result<(), Gone> {
        let overrides = self.0.link_overrides.lock().await.clone();
        let effective = overrides.effective(&config.link.settings);
        self.0.control.set_flow(effective.flow()).await?;
        let options = effective.socket_options(config.link.timeout);
        if options != overrides.effective(&before.link.settings).socket_options(before.link.timeout) {
            reconnect(&self.0.control, &self.0.settings_of_groups().await, ReconnectReason::Retuned(options)).await?;
        }
        Ok(())
    }
}

/// The group is let go of.
fn leaves(step: &ConfigStep) -> bool {
    matches!(step.action, ConfigAction::Remove | ConfigAction::Restart)
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
