//! What front ends may do: which volumes are open, who is attached, and their requests.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use engine::{Buf, Input, Request, limits};
use units::size::show_size;

use super::{Plane, PlaneCore};
use crate::buffers::Buffer;
use crate::disk::DiskOp;
use crate::driver::clients::ClientTerms;
use crate::driver::held_clients::HeldRequest;
use crate::frontend::{
    ClientId, ClientOp, ExportInfo, Exports, Gateway, Replies, RequestFailure, RequestOutcome, VolumeHandle,
};

/// Runs in one answer about allocation; clients ask again for the rest.
const RUNS_MAX: usize = 4096;
/// What clients should send at least: a page, below which files and devices read before they write.
pub(super) const PREFERRED_BYTES_MIN: u32 = 4096;

impl Exports for Plane {
    fn list(&self) -> Vec<ExportInfo> {
        let core = self.core.borrow();
        core.offered().map(|at| core.export_of(at)).collect()
    }

    fn find(&self, name: &str) -> Option<ExportInfo> {
        let core = self.core.borrow();
        let at = if name.is_empty() { core.only_export() } else { core.offered_export(name) };
        at.map(|at| core.export_of(at))
    }

    fn count(&self) -> usize {
        let core = self.core.borrow();
        match core.forwards.is_empty() && core.lending.is_empty() {
            true => core.groups.open_volumes(),
            false => core.offered().count(),
        }
    }
}

impl Gateway for Plane {
    fn attach(&self, name: &str, replies: Rc<dyn Replies>) -> Option<(ExportInfo, ClientId)> {
        let core = &mut *self.core.borrow_mut();
        let at = core.offered_export(name)?;
        let export = core.export_of(at);
        let client = core.clients.attach(at, ClientTerms::of(&export), replies);
        core.groups.volume_mut(at).client_came();
        Some((export, client))
    }

    fn detach(&self, client: ClientId) {
        let left = {
            let core = &mut *self.core.borrow_mut();
            let (volume, replies) = core.clients.detach(client);
            core.groups.volume_mut(volume).client_left();
            let left = core.groups.volume(volume);
            if let Some(forward) = core.forwards.of(left.group()) {
                forward.leaves(left.export(), client);
            }
            replies
        };
        // Whatever the line's end does, it does without our borrow.
        drop(left);
    }

    fn buffer(&self, length: usize) -> Option<Buffer> {
        self.front.take(length)
    }

    fn buffer_free(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(self.front.freed())
    }

    fn submit(&self, client: ClientId, cookie: u64, op: ClientOp) {
        self.core.borrow_mut().submit(HeldRequest { client, cookie, op });
    }

    fn kick(&self) {
        self.turn();
    }
}

impl PlaneCore {
    /// The volumes that clients may choose.
    fn offered(&self) -> impl Iterator<Item = usize> {
        self.groups.by_name().filter(|at| self.is_offered(*at))
    }

    fn offered_export(&self, name: &str) -> Option<usize> {
        self.groups.named_volume(name).filter(|at| self.is_offered(*at))
    }

    /// The one that clients may choose, if it is the only one.
    fn only_export(&self) -> Option<usize> {
        let mut offered = self.offered();
        offered.next().filter(|_| offered.next().is_none())
    }

    pub(super) fn export_of(&self, at: usize) -> ExportInfo {
        match self.forwards.of(self.groups.volume(at).group()) {
            Some(forward) => self.forwarded_export(at, forward),
            None => self.local_export(at),
        }
    }

    /// The group says how large it is: the device may hold more.
    pub(super) fn local_export(&self, at: usize) -> ExportInfo {
        let volume = self.groups.volume(at);
        let device = volume.device();
        let size_bytes = self.node.volume_bytes(volume.group(), volume.id()).expect("the engine knows every volume");
        ExportInfo {
            handle: VolumeHandle(u32::try_from(at).expect("fewer volumes than 2^32")),
            name: volume.export().to_owned(),
            description: format!("{}, replicated", show_size(size_bytes)),
            size_bytes,
            block_min_bytes: device.logical_block(),
            block_preferred_bytes: device.physical_block().max(PREFERRED_BYTES_MIN),
            block_max_bytes: limits::REQUEST_BYTES_MAX as u32,
        }
    }

    pub(super) fn submit(&mut self, request: HeldRequest) {
        let at = self.clients.volume_of(request.client);
        let volume = self.groups.volume(at);
        let (group, id) = (volume.group(), volume.id());
        let Some(request) = self.forward_request(at, request) else { return };
        let volume = self.groups.volume(at);
        let Some(HeldRequest { client, cookie, op }) = self.held.keep(group, request) else { return };
        if !self.groups.is_served(at) {
            return self.clients.answer(client, cookie, RequestOutcome::Failed(RequestFailure::Gone));
        }
        let request = match op {
            ClientOp::Read { offset, buffer } => {
                let op = DiskOp::Read { offset, buffer };
                return self.disks.ask((client, cookie), at, volume.device(), op);
            }
            ClientOp::BlockStatus { offset, length, one_extent } => {
                let runs_max = if one_extent { 1 } else { RUNS_MAX };
                let op = DiskOp::BlockStatus { offset, length, runs_max };
                return self.disks.ask((client, cookie), at, volume.device(), op);
            }
            // A hint that volumes past the page cache have no use for.
            ClientOp::Cache { .. } => return self.clients.answer(client, cookie, RequestOutcome::Done),
            ClientOp::Write { offset, buffer, fua } => {
                let length = buffer.len() as u64;
                Request::Write { offset, length, buf: Buf::new(Arc::new(buffer)), fua }
            }
            ClientOp::Trim { offset, length, fua } => Request::Zero { offset, length, no_hole: false, fua },
            ClientOp::Zero { offset, length, fua, no_hole } => Request::Zero { offset, length, no_hole, fua },
            ClientOp::Flush => Request::Flush,
        };
        self.groups.record(group, self.clock, id, &request);
        let request_id = self.clients.asked(client, cookie);
        self.input(Input::Request { group, volume: id, id: request_id, request });
    }
}
