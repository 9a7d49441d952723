//! A fork is resolved by two orders: the node that is kept looks first whether that can be done, then the other one yields.

use std::path::Path;

use engine::identity::Role;
use engine::{Command, RefusalCode};
use host::driver::Gone;
use units::exact::show_size;

use super::roles::RunHooks;
use super::{Desk, beside};
use crate::api::refusals::DeskRefusal;
use crate::api::{ApiRequest, Reply};

/// The histories that the two nodes of a group are in.
pub(in crate::daemon) struct ForkOfGroup {
    pub peer: String,
    pub ours: u64,
    pub theirs: u64,
}

/// An order to yield.
struct Yielding {
    to: u64,
    discard: bool,
    close_clients: bool,
    by_policy: bool,
}

/// One of the two halves of an order by which a fork is resolved.
pub(super) async fn half(desk: &Desk, request: ApiRequest) -> Result<Reply, Gone> {
    match request {
        ApiRequest::Keep { group, over, discard, by_policy } => {
            desk.command(&group, Command::Keep { over, discard, by_policy }).await
        }
        ApiRequest::Yield { group, to, discard, close_clients, by_policy } => {
            desk.yields(&group, Yielding { to, discard, close_clients, by_policy }).await
        }
        _ => unreachable!("nothing else is half of it"),
    }
}

impl Desk {
    /// Room for what is saved is looked for before anybody is demoted.
    async fn yields(
        &self,
        name: &str,
        Yielding { to, discard, close_clients, by_policy }: Yielding,
    ) -> Result<Reply, Gone> {
        let id = match self.find_taken_up(name) {
            Ok((id, _)) => id,
            Err(unknown) => return Ok(unknown),
        };
        let now = self.status_of(id).await?.filter(|status| status.role == Role::Primary);
        if let Some(status) = &now
            && status.peer.generation.is_some_and(|theirs| theirs.tag == to)
            && status.peer.keeps_over != status.identity.generation.tag
        {
            // No command is run before a demotion that is refused anyway.
            let why = "the peer is not known yet to keep its content over this node's";
            return Ok(Reply::refused(RefusalCode::NotKept, format!("{name}: {why}")));
        }
        if let Some(status) = now.filter(|_| !discard) {
            let needed = status.peer.dirty_bytes + status.peer.peers_dirty_bytes;
            if let Some(refusal) = no_room_for_delta(self, name, needed).await {
                return Ok(refusal);
            }
        }
        self.demote(name, close_clients, RunHooks::default(), Command::Yield { to, by_policy }).await
    }

    /// How the two nodes of a group stand to each other, for whoever resolves a fork.
    pub async fn fork_in(&self, name: &str) -> Result<ForkOfGroup, Reply> {
        let (id, group) = self.find_taken_up(name)?;
        let gone = |gone: Gone| Reply::failed(DeskRefusal::DaemonStopping, gone.to_string());
        let now = self.status_of(id).await.map_err(gone)?;
        let Some((now, peer)) = now.zip(group.peer_of(&self.node)) else {
            return Err(Reply::refused(RefusalCode::GroupStarting, format!("{name}: the group is starting")));
        };
        let Some(theirs) = now.peer.generation else {
            let why = format!("{name}: node {peer} is not connected, or its half of the group has not said who it is");
            return Err(Reply::refused(RefusalCode::PeerAway, why));
        };
        Ok(ForkOfGroup { peer: peer.to_string(), ours: now.identity.generation.tag, theirs: theirs.tag })
    }
}

/// So much of this node cannot be saved: the answer.
pub(super) async fn no_room_for_delta(desk: &Desk, name: &str, needed: u64) -> Option<Reply> {
    let config = desk.config();
    let directory = config.node(&desk.node).expect("the node was looked up before").state.clone();
    let why = too_little(needed, beside(move || free_bytes(&directory)).await)?;
    Some(Reply::refused(RefusalCode::DeltaSpace, format!("{name}: nothing was changed: {why}")))
}

/// What an index takes beside content, and what a state directory needs for its other files.
const SPARE_BYTES: u64 = 64 << 20;

/// What is free for the daemon in a directory; `None`: the system does not say.
fn free_bytes(directory: &Path) -> Option<u64> {
    let facts = rustix::fs::statvfs(directory).ok()?;
    Some(facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// Why so much cannot be saved.
fn too_little(needed: u64, free: Option<u64>) -> Option<String> {
    let wanted = needed.saturating_add(needed / 64).saturating_add(SPARE_BYTES);
    let free = free.filter(|free| *free < wanted)?;
    Some(format!(
        "what this node holds where the two differ is {} at most, and {} are free in its state directory: make room there, or type this with \
         --discard, which saves nothing",
        show_size(needed),
        show_size(free)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_room_is_said_with_both_numbers() {
        assert_eq!(too_little(1 << 30, Some(2 << 30)), None);
        assert_eq!(too_little(1 << 30, None), None);
        let said = too_little(1 << 30, Some(1 << 30)).expect("too little");
        assert!(said.contains("--discard"), "{said}");
    }
}
