//! Verifies begin by themselves (`scrub.every`).

use engine::identity::Role;
use engine::state::State;
use engine::status::VerifiedStatus;
use engine::{Command, CommandResult, VerifyOrder};
use host::driver::{DriverSnapshot, Gone, GroupSnapshot, entropy};
use settings::Config;
use tokio::time::timeout;

use super::{Desk, LOOK_EVERY, view};
use crate::api::Reply;
use crate::daemon::scrub::ScrubFacts;
use crate::events::unix_ms;

impl Desk {
    /// Begins what is due, until the data thread has ended.
    pub(super) async fn scrub_for_ever(&self) {
        while self.scrub_what_is_due().await.is_ok() {
            // Sooner where something is to be put on record.
            _ = timeout(LOOK_EVERY, self.scrubs.changed()).await;
            self.scrubs.write().await;
        }
    }

    /// An operator ends a verify: none begins by itself for so long as between two.
    pub(super) async fn stop_verify(&self, group: &str) -> Result<Reply, Gone> {
        let reply = self.command(group, Command::VerifyStop).await?;
        if let Reply::Ok { unchanged: false, .. } = &reply {
            self.scrubs.is_stopped(group, unix_ms());
        }
        Ok(reply)
    }

    async fn scrub_what_is_due(&self) -> Result<(), Gone> {
        let config = self.config();
        let groups: Vec<_> = config.groups_of(&self.node).filter(|group| group.scrub.every.is_some()).collect();
        if groups.is_empty() {
            return Ok(());
        }
        self.scrubs.read(groups.iter().map(|group| group.name.to_string()).collect()).await;
        let (snapshot, changes) = self.snapshot_with_changes().await?;
        let facts = groups.iter().filter_map(|group| {
            let id = config.group_id(group);
            let now = &snapshot.groups.iter().find(|found| found.status.id == id)?.status;
            let is_settled = now.state == State::Replicating && now.handover.is_none();
            (now.role == Role::Primary && !now.starting).then(|| ScrubFacts {
                group: group.name.as_str(),
                every: group.scrub.every.unwrap_or_default(),
                is_in_step: is_settled && !changes.contains_key(group.name.as_str()),
                verified_unix_ms: now.verified.as_ref().and_then(ended_unix_ms),
            })
        });
        let facts: Vec<_> = facts.collect();
        let next = self.scrubs.look(&facts, busy(&config, &snapshot), unix_ms());
        if let Some(group) = next.and_then(|name| config.group(name)) {
            let rate_bytes_per_s = Some((group.scrub.rate_bits_per_s / 8).max(1));
            let entropy = entropy();
            let order = VerifyOrder { rate_bytes_per_s, sample_percent: 100, repair: false, entropy, by_timer: true };
            let result = self.control.command(config.group_id(group), Command::Verify(order)).await?;
            let refusal = match result {
                CommandResult::Refused(refusal) => Some(view::with_names(group, &refusal.text)),
                CommandResult::Done(_) | CommandResult::Warning(_) | CommandResult::Unchanged(_) => None,
            };
            self.scrubs.began(group.name.as_str(), refusal);
        }
        Ok(())
    }
}

/// When it came to its end, if it was a whole one. What this node could not read counts as compared: it would not be read an hour later either,
/// and the verify has said so.
fn ended_unix_ms(verified: &VerifiedStatus) -> Option<u64> {
    let is_whole =
        verified.order.is_full() && !verified.leaves_volume && verified.given_up.is_none() && verified.ended.0 > 0;
    is_whole.then_some(verified.ended.0 / 1_000_000)
}

/// A group that keeps the disks of this node busy.
fn busy<'a>(config: &'a Config, snapshot: &DriverSnapshot) -> Option<&'a str> {
    let is_busy = |group: &&GroupSnapshot| {
        let now = &group.status;
        now.verify.is_some() || matches!(now.state, State::Syncing | State::CatchingUp)
    };
    let busy = snapshot.groups.iter().filter(is_busy).find_map(|group| config.group_by_id(group.status.id));
    busy.map(|group| group.name.as_str())
}
