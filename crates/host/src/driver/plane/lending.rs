//! A peer's connections, and the exports of this node that are theirs alone.

use std::pin::Pin;
use std::rc::Rc;

use engine::state::State;
use engine::{GroupId, NodeId, RequestId};

use super::{Plane, PlaneCore};
use crate::buffers::Buffer;
use crate::driver::clients::ClientTerms;
use crate::frontend::{ClientId, ClientOp, ExportInfo, Exports, Gateway, Replies};
use crate::link::Attempt;

/// What one connection of a peer may see and ask.
pub(in crate::driver) struct PeerExports {
    pub plane: Rc<Plane>,
    pub peer: NodeId,
    pub attempt: Attempt,
}

impl PeerExports {
    fn offered(&self, core: &PlaneCore, at: usize) -> bool {
        core.groups.is_exported(at) && core.lending.is_lent_to(core.groups.volume(at).group(), self.peer)
    }
}

impl Exports for PeerExports {
    fn list(&self) -> Vec<ExportInfo> {
        let core = self.plane.core.borrow();
        core.groups.by_name().filter(|at| self.offered(&core, *at)).map(|at| core.export_of(at)).collect()
    }

    fn find(&self, name: &str) -> Option<ExportInfo> {
        let core = self.plane.core.borrow();
        let at = core.groups.named_volume(name).filter(|at| self.offered(&core, *at))?;
        Some(core.export_of(at))
    }

    fn count(&self) -> usize {
        self.list().len()
    }
}

impl Gateway for PeerExports {
    fn attach(&self, name: &str, replies: Rc<dyn Replies>) -> Option<(ExportInfo, ClientId)> {
        let core = &mut *self.plane.core.borrow_mut();
        let at = core.groups.named_volume(name).filter(|at| self.offered(core, *at))?;
        // It comes again soon.
        core.lending.may_come(name, self.attempt, &mut core.clients).then_some(())?;
        let export = core.export_of(at);
        let client = core.clients.attach(at, ClientTerms::of(&export), replies.clone());
        core.lending.came(name, client, replies);
        core.groups.volume_mut(at).client_came();
        Some((export, client))
    }

    fn detach(&self, client: ClientId) {
        self.plane.detach(client);
    }

    fn buffer(&self, length: usize) -> Option<Buffer> {
        self.plane.buffer(length)
    }

    fn buffer_free(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        self.plane.buffer_free()
    }

    fn submit(&self, client: ClientId, cookie: u64, op: ClientOp) {
        self.plane.submit(client, cookie, op);
    }

    fn kick(&self) {
        self.plane.kick();
    }
}

impl PlaneCore {
    /// The request came from the peer, which asks it again of whoever serves the volume next: this node has stopped serving it, or its group
    /// has failed. Nothing that the peer's clients count on is lost by that: each write is durable before it is answered, and one that is not
    /// answered is written again.
    pub(super) fn is_lost_to_peer(&mut self, request: RequestId) -> bool {
        self.clients.asker(request).is_some_and(|client| self.is_lost_to(client))
    }

    /// The same of what a client asked of a disk.
    pub(super) fn is_lost_to(&mut self, client: ClientId) -> bool {
        if self.lending.is_empty() || !self.clients.is_attached(client) {
            return false;
        }
        let at = self.clients.volume_of(client);
        let group = self.groups.volume(at).group();
        self.lending.is_lent(group) && !self.serves_on(at, group)
    }

    fn serves_on(&self, at: usize, group: GroupId) -> bool {
        let has_failed = self.node.glance(group).is_none_or(|glance| matches!(glance.state, State::Failed(_)));
        self.groups.is_served(at) && !has_failed
    }

    /// From now on the exports of the group are for this peer alone, or for everybody.
    pub(super) fn lend(&mut self, group: GroupId, to: Option<NodeId>) {
        let exports: Vec<String> = self.groups.exports_of(group).collect();
        match to {
            Some(peer) => {
                if !self.lending.is_lent(group) {
                    let groups = &self.groups;
                    self.clients.part_those(|at| groups.is_of(at, group));
                }
                self.lending.lend(group, peer);
            }
            None => {
                self.lending.ends(group);
                self.lending.fence(exports.into_iter());
            }
        }
    }
}
