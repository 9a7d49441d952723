//! `group detach` and `group attach`: a group goes on without a volume of this node whose disk is dead, and takes it back on another disk.
//!
//! What must hold:
//! * the record comes first, then the group starts anew: whatever ends in between, the next start knows;
//! * on a primary nobody uses the volume, or who does is cut off; clients of the others are held;
//! * a disk that has come counts for nothing, and is taken where the peer has what counts.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::identity::Role;
use engine::state::State;
use engine::status::{GroupStatus, VolumeStatus};
use engine::{RefusalCode, VolumeId};
use host::driver::{Gone, GroupSnapshot};
use settings::ConfiguredGroup;
use tokio::sync::MutexGuard;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};
use units::exact::show_size;

use super::apply::ConfigDesk;
use super::failed_disks::{DISK_PATIENCE, dead_disks};
use super::lending::ended_meanwhile;
use super::resets::snapshot_of;
use super::{CHANGE_PATIENCE, Desk, beside, turn};
use crate::api::refusals::DeskRefusal;
use crate::api::{ApiRequest, ErrorCode, NodeView, Reply, VolumeView};
use crate::daemon::attached;
use crate::daemon::detached::{DetachRecord, DiskRecords, NotRecorded, WrittenRecords};
use crate::daemon::role_changes::RoleChange;

/// How long the peer is waited for once the group has started anew.
const MEETING_PATIENCE: Duration = Duration::from_secs(3);
/// How often it is looked whether a group has left that is to come again.
const LATE_LOOK: Duration = Duration::from_millis(500);

/// The disk that died may be the peer's: then the command was typed on the wrong node.
const FAILED_THERE: &str = "PEER is the primary, and its half of the group has failed, so what counts of it may stand here alone. If the dead disk \
                            is PEER's, type this there ('--on PEER')";

/// What is done to a volume.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DiskChange {
    Detach,
    Attach,
}

/// Nothing counts on the disk of the volume `at` this position, or that has told of an error, or hangs. Another disk, under files of the group, may hang
/// as well: that makes no volume dead.
fn is_dead(found: &GroupSnapshot, at: usize) -> bool {
    let holds_nothing = found.status.volumes.get(at).is_none_or(|now| now.is_detached || now.is_unfilled);
    holds_nothing || found.figures.volumes.get(at).is_some_and(|disk| disk.has_failed || disk.is_silent)
}

/// What speaks against giving the volume up here, by what the peer shows of its own disk. An error that it tells there may be of another disk.
fn says_of_disk(shown: &VolumeView) -> Option<(RefusalCode, &'static str)> {
    let leaves = (RefusalCode::VolumeDetached, "it is detached on PEER, or is about to be");
    let is_dead = (RefusalCode::PeerFailed, "its disk on PEER tells of an error: type this there ('--on PEER')");
    let has_failed = shown.device_failed.unwrap_or(shown.error.is_some());
    shown.detached.then_some(leaves).or(has_failed.then_some(is_dead))
}

/// Why the volume `at` this position is not given up by a word; `None`: the peer has what counts.
fn what_peer_lacks(status: &GroupStatus, at: usize) -> Option<(RefusalCode, String)> {
    let now = status.volumes.get(at)?;
    if now.is_detached_at_peer {
        let why = "it is detached on PEER, so what counts of it stands here alone: give it a disk there first ('farshore group attach' there)";
        return Some((RefusalCode::VolumeDetached, why.to_owned()));
    }
    let peer_serves = status.peer.role == Some(Role::Primary);
    // A secondary shows what its primary reports, unless its own half has failed.
    let has_peer_failed = matches!(status.state, State::Failed(_)) && !status.has_failed;
    match status.role {
        Role::Secondary if peer_serves && has_peer_failed => Some((RefusalCode::PeerFailed, FAILED_THERE.to_owned())),
        Role::Secondary if peer_serves && now.dirty_bytes > 0 => Some((RefusalCode::CopyBehind, may_lack(now))),
        Role::Secondary if peer_serves => None,
        Role::Secondary => {
            let why = "PEER is not heard as the primary, so what counts of it may stand here alone: let both nodes meet first";
            Some((RefusalCode::PeerAway, why.to_owned()))
        }
        Role::Primary if now.is_aside => {
            let why = "it is set aside, so what was written since stands here alone: 'farshore sync GROUP --volume NAME' first";
            Some((RefusalCode::VolumeAside, why.to_owned()))
        }
        Role::Primary if status.state != State::Replicating => {
            let why = format!(
                "PEER does not have all of it (the group is in {}), so what counts of it stands here alone: let it sync first",
                status.state.word()
            );
            Some((RefusalCode::CopyBehind, why))
        }
        Role::Primary if now.dirty_bytes > 0 => Some((RefusalCode::CopyBehind, may_lack(now))),
        Role::Primary => None,
    }
}

fn may_lack(volume: &VolumeStatus) -> String {
    let bytes = show_size(volume.dirty_bytes);
    format!(
        "PEER may lack {bytes} of it: wait until nothing of it is dirty ('farshore status'), or resolve the fork if there is one"
    )
}

/// The desk as it changes which volumes of a group are on disks.
pub(super) struct DiskDesk<'a>(pub &'a Desk);

impl DiskDesk<'_> {
    /// `gives_up`: whoever asks knows that what only this node has of it is given up.
    pub async fn detach(
        &self,
        name: &str,
        volume: &str,
        (close_clients, gives_up): (bool, bool),
    ) -> Result<Reply, Gone> {
        let group = match self.0.find(name) {
            Ok((_, group)) => group,
            Err(unknown) => return Ok(unknown),
        };
        if let Err(unknown) = volume_of(&group, volume) {
            return Ok(unknown);
        }
        if !close_clients && let Some(refusal) = self.users_of(name, volume).await? {
            return Ok(refusal);
        }
        let _leaving = self.0.leaving.enter(name, volume);
        if !gives_up && let Some(refusal) = self.stands_here_alone(&group, volume).await? {
            return Ok(refusal);
        }
        self.change_disk(&group, volume, DiskChange::Detach).await
    }

    /// What counts of the volume stands here alone, or nobody knows that it does not, on a disk with which nothing is wrong: nobody gives
    /// that up by a word.
    async fn stands_here_alone(&self, group: &ConfiguredGroup, volume: &str) -> Result<Option<Reply>, Gone> {
        let Some(found) = snapshot_of(self.0, self.0.config().group_id(group)).await? else { return Ok(None) };
        let Some(at) = group.volumes.iter().position(|named| named.name.as_str() == volume) else { return Ok(None) };
        if is_dead(&found, at) || self.has_failed_by(group, &found, volume).await {
            return Ok(None);
        }
        let lacks = match what_peer_lacks(&found.status, at) {
            Some(lacks) => Some(lacks),
            None => self.what_peer_says(group, volume).await,
        };
        let Some((code, lacks)) = lacks else { return Ok(None) };
        let (name, peer) = (&group.name, group.peer_of(&self.0.node).map(ToString::to_string).unwrap_or_default());
        let message = format!(
            "{name}: nothing was changed: nothing is known to be wrong with the disk of volume {volume} here, and {}. If the disk is dead all the \
             same, or nothing in it counts: 'farshore group detach {name} {volume} --force'",
            lacks.replace("PEER", &peer)
        );
        Ok(Some(Reply::refused(code, message)))
    }

    /// This node's half of the group has failed, or was not taken up, and the disk of this volume is why.
    async fn has_failed_by(&self, group: &ConfiguredGroup, found: &GroupSnapshot, volume: &str) -> bool {
        let has_failed = found.status.has_failed || self.0.refused.why(group.name.as_str()).is_some();
        has_failed && dead_disks(self.0, group, found).await.is_ok_and(|dead| dead.iter().any(|name| name == volume))
    }

    /// Its disk is dead there too, or somebody types the same there in this moment: both nodes say so before they look.
    async fn what_peer_says(&self, group: &ConfiguredGroup, volume: &str) -> Option<(RefusalCode, String)> {
        let request = ApiRequest::Status { group: Some(group.name.to_string()) };
        let peer = group.peer_of(&self.0.node).map(ToString::to_string).unwrap_or_default();
        let Ok(Reply::Status(theirs)) = (self.0.ask_peer)(peer, request).await else { return None };
        let theirs = theirs.groups.iter().find(|shown| shown.name == group.name.as_str())?;
        let shown = theirs.volumes.iter().find(|shown| shown.name == volume)?;
        says_of_disk(shown).map(|(code, why)| (code, why.to_owned()))
    }

    pub async fn attach(&self, name: &str, volume: &str) -> Result<Reply, Gone> {
        let group = match self.0.find(name) {
            Ok((_, group)) => group,
            Err(unknown) => return Ok(unknown),
        };
        match volume_of(&group, volume) {
            Ok(_) => self.change_disk(&group, volume, DiskChange::Attach).await,
            Err(unknown) => Ok(unknown),
        }
    }

    /// Clients of that export. One that has just left may be attached for a moment still.
    async fn users_of(&self, name: &str, volume: &str) -> Result<Option<Reply>, Gone> {
        let export = format!("{name}/{volume}");
        for look in 0..attached::LOOKS {
            let mut clients = self.0.control.snapshot().await?.clients;
            clients.retain(|client| client.export == export);
            if clients.is_empty() {
                return Ok(None);
            }
            if look + 1 == attached::LOOKS {
                return Ok(Some(attached::refusal(name, &clients, &format!("group detach {name} {volume}"))));
            }
            sleep(attached::LOOK_AGAIN_AFTER).await;
        }
        Ok(None)
    }

    async fn change_disk(&self, group: &ConfiguredGroup, volume: &str, change: DiskChange) -> Result<Reply, Gone> {
        let name = group.name.as_str();
        let _alone = match turn(&self.0.changing, (name, &self.0.node), CHANGE_PATIENCE).await {
            Ok(alone) => alone,
            Err(refusal) => return Ok(refusal),
        };
        let held = match self.0.role_changes.begin(name, RoleChange::Reload, self.0.node.as_str()) {
            Ok(held) => held,
            Err(refusal) => return Ok(refusal),
        };
        let elsewhere = self.detached_at_peer(group).await?;
        let was_taken_up = self.0.refused.why(name).is_none();
        let before = match self.record_disk(group, volume, (change, elsewhere)).await {
            Ok(Some(before)) => Some(before),
            Ok(None) if self.is_up(group, volume, change).await? => {
                let word = if change == DiskChange::Detach { "is detached already" } else { "is not detached" };
                return Ok(Reply::unchanged(format!("{name}: volume {volume} {word}; nothing to do")));
            }
            Ok(None) => None,
            Err(refusal) => return Ok(refusal),
        };
        let reply = ConfigDesk(self.0).begins_anew(name, held).await?;
        let warnings = match reply {
            Reply::Ok { warnings, .. } => warnings,
            Reply::Error { refusal: Some(refusal), .. } if refusal.code == DeskRefusal::NotDoneYet.word() => {
                self.0.late.is_late(name, volume, (change, before.filter(|_| was_taken_up)));
                let message = format!(
                    "{name}: it is on record, and the group has not come to rest, as a disk owes it an answer: its export is closed, and it \
                     starts anew when it has that. If the disk hangs for good, restart the daemon of this node"
                );
                return Ok(Reply::failed(DeskRefusal::NotDoneYet, message));
            }
            other => return Ok(other),
        };
        if let Some(why) = self.0.refused.why(name) {
            return match before.filter(|_| change == DiskChange::Attach && was_taken_up) {
                Some(before) => self.put_back(name, (before, why)).await,
                None => {
                    let message = format!("{name}: it is on record, and the group is not taken up: {why}");
                    Ok(Reply::refused(RefusalCode::GroupFailed, message))
                }
            };
        }
        self.meets_peer(group).await?;
        Ok(Reply::done(self.said(group, volume, change).await?, warnings))
    }

    /// The group begins anew without these volumes, also if nothing is left of it: its node is about to be demoted, and clients are cut off.
    /// `number`: of the reverse sync for which it does, unless that has ended meanwhile.
    pub async fn goes_without(
        &self,
        group: &ConfiguredGroup,
        (dead, number): (&[String], Option<u64>),
    ) -> Result<Result<(), Reply>, Gone> {
        let name = group.name.as_str();
        let _alone = match turn(&self.0.changing, (name, &self.0.node), CHANGE_PATIENCE).await {
            Ok(alone) => alone,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let held = match self.0.role_changes.begin(name, RoleChange::Reload, self.0.node.as_str()) {
            Ok(held) => held,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if self.0.reverses.number(name) != number {
            return Ok(Err(ended_meanwhile(name)));
        }
        let (config, node, named, volumes) = (self.0.config(), self.0.node.clone(), group.clone(), dead.to_vec());
        let records = beside(move || DetachRecord::of(&config, &node, &named).detach_all(&volumes));
        if let Err(refusal) = written(name, records).await {
            return Ok(Err(refusal));
        }
        let why = match ConfigDesk(self.0).begins_anew_alone(name, held).await? {
            Reply::Error { refusal: Some(refusal), .. } if refusal.code == DeskRefusal::NotDoneYet.word() => {
                dead.iter().for_each(|volume| self.0.late.is_late(name, volume, (DiskChange::Detach, None)));
                "it has not come to rest, as a disk owes it an answer, and begins anew when it has that: type this again then. If the disk hangs \
                 for good, restart the daemon of this node first"
                    .to_owned()
            }
            Reply::Error { message, .. } => message,
            _ => match self.0.refused.why(name) {
                Some(why) => format!("it is not taken up: {why}"),
                None => return Ok(Ok(())),
            },
        };
        let message = format!(
            "{name}: it is on record that the group goes on without {}, and no role has changed: {why}",
            dead.join(" and ")
        );
        Ok(Err(Reply::refused(RefusalCode::GroupFailed, message)))
    }

    /// The disk that came cannot be opened: the group goes on without it, as before.
    async fn put_back(&self, name: &str, (before, why): (WrittenRecords, String)) -> Result<Reply, Gone> {
        let message = match beside(move || before.write()).await {
            Err(error) => format!("{name}: the group is not taken up: {why}. Nor can it go on as before: {error:#}"),
            Ok(()) => match self.0.role_changes.begin(name, RoleChange::Reload, self.0.node.as_str()) {
                Err(_) => format!(
                    "{name}: nothing was changed: {why}. 'farshore reset {name}' takes the group up without the disk"
                ),
                Ok(held) => {
                    ConfigDesk(self.0).begins_anew(name, held).await?;
                    format!("{name}: nothing was changed, and the group goes on without the disk: {why}")
                }
            },
        };
        Ok(Reply::refused(DeskRefusal::Failed, message))
    }

    /// Volumes of which the peer says that it has no disk for them.
    async fn detached_at_peer(&self, group: &ConfiguredGroup) -> Result<Vec<String>, Gone> {
        let Some(status) = self.0.status_of(self.0.config().group_id(group)).await? else { return Ok(Vec::new()) };
        let named = group.volumes.iter().zip(&status.volumes).filter(|(_, now)| now.is_detached_at_peer);
        Ok(named.map(|(named, _)| named.name.to_string()).collect())
    }

    /// So that what is typed next finds a peer that has heard of it. If it is away, it will hear.
    async fn meets_peer(&self, group: &ConfiguredGroup) -> Result<(), Gone> {
        let (id, until) = (self.0.config().group_id(group), Instant::now() + MEETING_PATIENCE);
        while Instant::now() < until {
            sleep(attached::LOOK_AGAIN_AFTER).await;
            if self.0.status_of(id).await?.is_some_and(|status| !status.starting && status.peer.role.is_some()) {
                break;
            }
        }
        Ok(())
    }

    /// Records it: what stood there before, or `None` if it says so already.
    async fn record_disk(
        &self,
        group: &ConfiguredGroup,
        volume: &str,
        (change, elsewhere): (DiskChange, Vec<String>),
    ) -> Result<Option<WrittenRecords>, Reply> {
        let size_bytes = self.size_of(group, volume).await;
        let (config, node, named) = (self.0.config(), self.0.node.clone(), group.clone());
        let (name, volume) = (group.name.to_string(), volume.to_owned());
        let looked_at = beside(move || {
            let record = DetachRecord::of(&config, &node, &named);
            match change {
                DiskChange::Detach => record.detach(&volume, &elsewhere),
                DiskChange::Attach => record.attach(&volume, size_bytes),
            }
        });
        written(&name, looked_at).await
    }

    /// Of the volume by now; 0: nobody knows.
    async fn size_of(&self, group: &ConfiguredGroup, volume: &str) -> u64 {
        let Ok(Some(status)) = self.0.status_of(self.0.config().group_id(group)).await else { return 0 };
        let mut named = group.volumes.iter().zip(&status.volumes);
        named.find(|(named, _)| named.name.as_str() == volume).map_or(0, |(_, now)| now.size_bytes)
    }

    /// The group runs in accordance with the record.
    async fn is_up(&self, group: &ConfiguredGroup, volume: &str, change: DiskChange) -> Result<bool, Gone> {
        let Some(status) = self.0.status_of(self.0.config().group_id(group)).await? else { return Ok(false) };
        let named = group.volumes.iter().zip(&status.volumes);
        let mut is_as_recorded = named.filter(|(named, _)| named.name.as_str() == volume);
        let is_so = is_as_recorded.any(|(_, now)| now.is_detached == (change == DiskChange::Detach));
        let has_failed = matches!(status.state, engine::state::State::Failed(_));
        // What is attached already, and failed for another reason, is a matter for 'reset'.
        Ok(is_so && (!has_failed || change == DiskChange::Attach))
    }

    async fn said(&self, group: &ConfiguredGroup, volume: &str, change: DiskChange) -> Result<String, Gone> {
        let (name, peer) = (&group.name, group.peer_of(&self.0.node).map(ToString::to_string).unwrap_or_default());
        let status = self.0.status_of(self.0.config().group_id(group)).await?;
        let named = status.iter().flat_map(|status| group.volumes.iter().zip(&status.volumes));
        let is_unfilled = named.into_iter().any(|(named, now)| named.name.as_str() == volume && now.is_unfilled);
        let role = status.as_ref().map(|status| status.role);
        Ok(match (change, role) {
            (DiskChange::Detach, Some(Role::Primary)) => format!(
                "{name}: volume {volume} is detached: its export is closed, and the copy on {peer} stays as it is; the other volumes go on"
            ),
            (DiskChange::Detach, _) => format!(
                "{name}: volume {volume} is detached: nothing of it is kept here, and the other volumes go on; with another disk in its place: \
                 farshore group attach {name} {volume}"
            ),
            (DiskChange::Attach, _) if !is_unfilled => {
                format!("{name}: volume {volume} is on its disk as before: the group never ran without the disk")
            }
            (DiskChange::Attach, _) => format!(
                "{name}: volume {volume} has a disk again, which holds nothing of it before all of it was sent, and this node is not promoted \
                 before that: farshore sync {name} --volume {volume}"
            ),
        })
    }
}

/// Writes what is to be recorded: what stood there before, or `None` if it says so already.
///
/// # Errors
/// The answer: nothing was recorded.
async fn written(
    name: &str,
    records: impl Future<Output = Result<Option<DiskRecords>, NotRecorded>>,
) -> Result<Option<WrittenRecords>, Reply> {
    let records = match timeout(DISK_PATIENCE, records).await {
        Ok(Ok(records)) => records,
        Ok(Err((code, why))) => {
            let message = format!("{name}: nothing was changed: {why}");
            return Err(match code {
                Some(code) => Reply::refused(code, message),
                None => Reply::refused(DeskRefusal::Failed, message),
            });
        }
        Err(_) => {
            let message = format!(
                "{name}: nothing was changed: the state disk, or the device, has answered nothing for {DISK_PATIENCE:?}"
            );
            return Err(Reply::refused(DeskRefusal::StateDiskSilent, message));
        }
    };
    let Some(DiskRecords { before, after }) = records else { return Ok(None) };
    // Not given up: what is written when nobody waits for it any more is a surprise to whoever comes next.
    let written = beside(move || after.write()).await;
    written.map(|()| Some(before)).map_err(|error| Reply::refused(DeskRefusal::Failed, format!("{name}: {error:#}")))
}

/// The volume of this name.
///
/// # Errors
/// The answer: there is none.
pub(super) fn volume_of(group: &ConfiguredGroup, volume: &str) -> Result<VolumeId, Reply> {
    let found = group.volumes.iter().position(|named| named.name.as_str() == volume);
    found.and_then(|at| u16::try_from(at).ok()).map(VolumeId).ok_or_else(|| {
        let names: Vec<_> = group.volumes.iter().map(|volume| volume.name.as_str()).collect();
        let message = format!("group {} has no volume {volume:?}; its volumes are {}", group.name, names.join(", "));
        Reply::error(ErrorCode::BadValue, message)
    })
}

/// Volumes that are about to be detached here: `status` shows them as detached, for a peer that is about to do the same.
#[derive(Default)]
pub(super) struct LeavingVolumes(RefCell<BTreeSet<(String, String)>>);

/// One of them, until this is dropped.
struct LeavingVolume<'a> {
    all: &'a LeavingVolumes,
    named: (String, String),
}

impl LeavingVolumes {
    fn enter(&self, group: &str, volume: &str) -> LeavingVolume<'_> {
        let named = (group.to_owned(), volume.to_owned());
        self.0.borrow_mut().insert(named.clone());
        LeavingVolume { all: self, named }
    }

    pub fn show(&self, view: &mut NodeView) {
        let leaving = self.0.borrow();
        for group in &mut view.groups {
            let leave = |volume: &VolumeView| leaving.contains(&(group.name.clone(), volume.name.clone()));
            group.volumes.iter_mut().filter(|volume| leave(volume)).for_each(|volume| volume.detached = true);
        }
    }
}

impl Drop for LeavingVolume<'_> {
    fn drop(&mut self) {
        self.all.0.borrow_mut().remove(&self.named);
    }
}

/// Groups that were told to begin anew, and had not come to rest when nobody waited any longer.
#[derive(Default)]
pub(super) struct LateGroups(RefCell<BTreeMap<String, LateGroup>>);

#[derive(Default)]
struct LateGroup {
    /// What was on record before the disk was attached with which it is to begin.
    before: Option<WrittenRecords>,
    /// Volumes with which it does not begin: the run that goes on for now has them still.
    detached: BTreeSet<String>,
    is_awaited: bool,
}

impl LateGroups {
    fn is_late(&self, group: &str, volume: &str, (change, before): (DiskChange, Option<WrittenRecords>)) {
        let mut all = self.0.borrow_mut();
        let late = all.entry(group.to_owned()).or_default();
        match change {
            DiskChange::Detach => {
                late.detached.insert(volume.to_owned());
                late.before = None;
            }
            DiskChange::Attach => {
                late.detached.remove(volume);
                late.before = late.before.take().or(before);
            }
        }
    }

    /// Those of which nobody waits that they leave.
    fn take_unawaited(&self) -> Vec<String> {
        let mut all = self.0.borrow_mut();
        let is_awaited = all.iter_mut().map(|(group, late)| (group, std::mem::replace(&mut late.is_awaited, true)));
        is_awaited.filter(|(_, is_awaited)| !is_awaited).map(|(group, _)| group.clone()).collect()
    }

    fn has_left(&self, group: &str) -> Option<WrittenRecords> {
        self.0.borrow_mut().remove(group)?.before
    }
}

/// As they are for whoever is about to give the same up at the other node.
pub(super) fn show_leaving(desk: &Desk, view: &mut NodeView) {
    desk.leaving.show(view);
    let late = desk.late.0.borrow();
    for group in &mut view.groups {
        let Some(LateGroup { detached, .. }) = late.get(&group.name) else { continue };
        let leave = |volume: &&mut VolumeView| detached.contains(&volume.name);
        group.volumes.iter_mut().filter(leave).for_each(|volume| volume.detached = true);
    }
}

/// They come again once they have left, whoever typed that.
pub(super) fn bring_back(desk: &Rc<Desk>) {
    for group in desk.late.take_unawaited() {
        let desk = desk.clone();
        spawn_local(async move {
            match comes_again(&desk, &group).await {
                Ok(failed) => desk.operations.came_back(&group, failed.as_deref()),
                Err(Gone) => tracing::warn!("{group}: it does not begin anew, as the daemon ends"),
            }
        });
    }
}

/// What became of it, unless it is there as it is on record.
async fn comes_again(desk: &Desk, group: &str) -> Result<Option<String>, Gone> {
    let attached = comes_when_left(desk, group).await?;
    let Some(why) = desk.refused.why(group) else { return Ok(None) };
    // The turn is kept: what somebody records meanwhile would be overwritten by what was on record before that.
    let Some((_alone, before)) = attached else {
        return Ok(Some(format!("{group}: it is on record, and the group is not taken up: {why}")));
    };
    let Reply::Error { message, .. } = DiskDesk(desk).put_back(group, (before, why)).await? else { return Ok(None) };
    tracing::warn!("{message}");
    Ok(Some(message))
}

/// Brings it back. If a disk came that it was to begin with: what was on record before that, and the turn to change it.
async fn comes_when_left<'a>(desk: &'a Desk, name: &str) -> Result<Option<(MutexGuard<'a, ()>, WrittenRecords)>, Gone> {
    let is_leaving = || async {
        let config = desk.config();
        let Some(id) = config.group(name).map(|group| config.group_id(group)) else { return Ok::<_, Gone>(None) };
        let groups = desk.control.snapshot().await?.groups;
        Ok(groups.iter().find(|group| group.status.id == id).map(|group| group.is_leaving))
    };
    loop {
        sleep(LATE_LOOK).await;
        if is_leaving().await? == Some(true) {
            continue;
        }
        let alone = desk.changing.lock().await;
        let is_there = match is_leaving().await? {
            Some(true) => continue,
            other => other.is_some() || desk.reopener.opening().contains(name),
        };
        let before = desk.late.has_left(name);
        if is_there || desk.config().group(name).is_none() {
            // Somebody else has brought it back, or taken it out: what is late of the run before says nothing of this one.
            return Ok(None);
        }
        tracing::info!("group {name}: it has come to rest, and begins anew");
        ConfigDesk(desk).comes_back(name).await?;
        return Ok(before.map(|before| (alone, before)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hanging disk of queues is told beside each volume: a healthy copy was refused to leave, for the disk of the peer's volume.
    #[test]
    fn an_error_of_another_disk_is_none_of_the_volume() {
        let shown = |wrong: &str, is_set: bool| {
            let mut shown = serde_json::json!({
                "name": "data", "size_bytes": 1, "device": "/dev/x", "dirty_bytes": 0, "direct": true, "error": "the disk queue hangs",
                "device_failed": false
            });
            shown[wrong] = is_set.into();
            says_of_disk(&serde_json::from_value(shown).expect("a volume")).map(|(code, _)| code)
        };
        assert_eq!(shown("device_failed", false), None);
        assert_eq!(shown("device_failed", true), Some(RefusalCode::PeerFailed));
        assert_eq!(shown("detached", true), Some(RefusalCode::VolumeDetached));
        // An older daemon says the error alone.
        let mut older = serde_json::json!({
            "name": "data", "size_bytes": 1, "device": "/dev/x", "dirty_bytes": 0, "direct": true, "error": "the device hangs"
        });
        let code = |shown: &serde_json::Value| {
            says_of_disk(&serde_json::from_value(shown.clone()).expect("a volume")).map(|(code, _)| code)
        };
        assert_eq!(code(&older), Some(RefusalCode::PeerFailed));
        older["error"] = serde_json::Value::Null;
        assert_eq!(code(&older), None);
    }
}
