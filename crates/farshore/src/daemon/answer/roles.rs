//! Changes of a group's role: one of a group at a time, in the order that survives the daemon's end at each point.

use engine::identity::Role;
use engine::{BOTH_PRIMARY, Command, Generation, RefusalCode};
use host::driver::{Gone, entropy};
use tokio::time::sleep;

use super::{Desk, reply};
use crate::api::Reply;
use crate::api::refusals::DeskRefusal;
use crate::daemon::demotions::RecordTurn;
use crate::daemon::role_changes::RoleChange;
use crate::daemon::{attached, view};

impl Desk {
    /// One change of role of a group at a time: a term might begin on a node that another promotion has just made primary, or none where a
    /// demotion ends meanwhile. Before the node becomes primary its term is another one: what was asked in an earlier one must not reach this
    /// content.
    pub(super) async fn promote(&self, name: &str, force: bool) -> Result<Reply, Gone> {
        let id = match self.find_taken_up(name) {
            Ok((id, _)) => id,
            Err(unknown) => return Ok(unknown),
        };
        let _alone = match self.role_changes.begin(name, RoleChange::Promotion, self.node.as_str()) {
            Ok(alone) => alone,
            Err(refusal) => return Ok(refusal),
        };
        let now = self.status_of(id).await?;
        if now.as_ref().is_none_or(view::is_starting) {
            // Its role is not known yet.
            let message = format!("{name}: the group is starting; try again in a moment");
            return Ok(Reply::refused(RefusalCode::GroupStarting, message));
        }
        let mut unrecorded = None;
        if now.is_some_and(|status| status.role == Role::Secondary) {
            unrecorded = match self.terms.begin(name).await {
                Ok(unrecorded) => unrecorded,
                Err(why) => {
                    let message = format!("{name}: {why}; the node was not promoted");
                    return Ok(Reply::failed(DeskRefusal::TermNotRecorded, message));
                }
            };
        }
        let mut reply = self.command(name, Command::Promote { force, entropy: entropy() }).await?;
        if let Reply::Ok { message, warnings, unchanged, .. } = &mut reply {
            // Whoever types it again may not have heard the first warning.
            let again = (*unchanged && message.contains(BOTH_PRIMARY)).then(|| BOTH_PRIMARY.to_owned());
            warnings.extend(unrecorded.into_iter().chain(again));
        }
        Ok(reply)
    }

    /// Who asks again, and may not have heard the first answer, is warned of the same: that not everything is known to have arrived decides
    /// about the peer.
    pub(super) async fn demote(&self, name: &str, close_clients: bool) -> Result<Reply, Gone> {
        let id = match self.find_taken_up(name) {
            Ok((id, _)) => id,
            Err(unknown) => return Ok(unknown),
        };
        let alone = match self.role_changes.begin(name, RoleChange::Demotion, self.node.as_str()) {
            Ok(alone) => alone,
            Err(refusal) => return Ok(refusal),
        };
        let before = self.status_of(id).await?.filter(|status| status.role == Role::Primary);
        let before = before.map(|status| status.identity.generation);
        let turn = match before {
            Some(generation) => match self.record_begin(name, generation).await {
                Ok(turn) => Some(turn),
                Err(refusal) => return Ok(refusal),
            },
            None => None,
        };
        alone.is_shown(turn.is_some());
        let mut reply = match close_clients {
            true => self.demote_anyway(name).await?,
            false => self.demote_if_unused(name).await?,
        };
        // It is on record, or was refused; or its group has failed.
        alone.is_shown(false);
        if let Reply::Ok { warnings, unchanged, .. } = &mut reply {
            // It is done, also where the data thread ends now.
            let now = self.status_of(id).await.unwrap_or_default().map(|status| status.identity);
            if *unchanged {
                warnings.extend(self.demotions.warnings(name, now.as_ref()));
            } else {
                let generation = now.map(|identity| identity.generation).or(before);
                let unrecorded = self.record_end(name, generation, warnings, turn).await;
                warnings.extend(unrecorded);
            }
        }
        Ok(reply)
    }

    /// The record that warns where the daemon ends over the demotion.
    ///
    /// # Errors
    /// The answer to whoever asked: the disk hangs, and a demotion that went on when it answers again would come unawaited.
    async fn record_begin(&self, name: &str, generation: Generation) -> Result<RecordTurn, Reply> {
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
    async fn record_end(
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

    /// Whoever is attached is not cut off unasked: a mounted file system would fail with what it has not flushed.
    async fn demote_if_unused(&self, name: &str) -> Result<Reply, Gone> {
        let (id, group) = match self.find_taken_up(name) {
            Ok(found) => found,
            Err(unknown) => return Ok(unknown),
        };
        let mut looks = attached::LOOKS;
        loop {
            match self.control.command_if_unused(id, Command::Demote).await? {
                Ok(result) => return Ok(reply(group, result)),
                Err(clients) if looks == 0 => return Ok(attached::refusal(name, &clients)),
                // Those that have just said goodbye are as good as gone.
                Err(_) => sleep(attached::LOOK_AGAIN_AFTER).await,
            }
            looks -= 1;
        }
    }

    /// Cuts clients off, and says whom.
    async fn demote_anyway(&self, name: &str) -> Result<Reply, Gone> {
        let mut clients = self.control.snapshot().await?.clients;
        clients.retain(|client| client.export.split_once('/').is_some_and(|(group, _)| group == name));
        let mut reply = self.command(name, Command::Demote).await?;
        if matches!(reply, Reply::Error { .. }) {
            // Refused at once it has cut nobody off, failed while it drained it has.
            let still_there = self.control.snapshot().await?.clients;
            attached::leave_gone(&mut clients, &still_there);
        }
        attached::name_cut_off(&mut reply, &clients);
        Ok(reply)
    }
}
