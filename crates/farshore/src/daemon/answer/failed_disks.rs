//! Which disks a group has failed by.

use std::time::Duration;

use engine::RefusalCode;
use host::driver::GroupSnapshot;
use settings::{ConfiguredGroup, ConfiguredVolume, NodeName};
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::{Desk, beside};
use crate::api::Reply;
use crate::daemon::detached::is_dead;
use crate::daemon::view;

/// How long a record in the state directory, or a look at a device, is waited for.
pub(super) const DISK_PATIENCE: Duration = Duration::from_secs(10);

/// The volumes by whose disks a group has failed; none: it has not failed.
///
/// # Errors
/// The answer: it has failed by something else.
pub(super) async fn dead_disks(
    desk: &Desk,
    group: &ConfiguredGroup,
    found: &GroupSnapshot,
) -> Result<Vec<String>, Reply> {
    let name = group.name.as_str();
    let refused = desk.refused.why(name);
    let Some(why) = refused.clone().or_else(|| view::failed_words(group, found)) else { return Ok(Vec::new()) };
    let dead = match refused {
        // It was not taken up: no disk was asked for anything.
        Some(_) => unreadable(group, &desk.node).await,
        None => view::failed_volumes(group, found).into_iter().map(str::to_owned).collect(),
    };
    if dead.is_empty() {
        let message = format!(
            "{name}: nothing was changed: the group has failed: {why}; 'farshore reset {name}', then type this again"
        );
        return Err(Reply::refused(RefusalCode::GroupFailed, message));
    }
    Ok(dead)
}

/// Volumes whose disks are gone, do not give back what they hold, or answer nothing.
async fn unreadable(group: &ConfiguredGroup, node: &NodeName) -> Vec<String> {
    let look = |volume: &ConfiguredVolume| {
        let path = volume.device(node).to_owned();
        (volume.name.to_string(), spawn_local(timeout(DISK_PATIENCE, beside(move || is_dead(&path)))))
    };
    let looks: Vec<_> = group.volumes.iter().map(look).collect();
    let mut dead = Vec::new();
    for (name, looked_at) in looks {
        if looked_at.await.expect("looking at a disk does not panic").unwrap_or(true) {
            dead.push(name);
        }
    }
    dead
}
