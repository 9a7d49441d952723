//! Clients of this node are served by the peer.

use std::rc::Rc;

use engine::GroupId;

use super::{Plane, PlaneCore};
use crate::driver::clients::ClientTerms;
use crate::driver::forward::{ForwardEvents, ForwardStatus, GroupForward, ReachExport};
use crate::driver::held_clients::HeldRequest;
use crate::driver::setup::ServedElsewhere;
use crate::frontend::{ClientId, ClientOp, ExportInfo, RequestFailure, RequestOutcome, VolumeHandle};
use crate::link::volume_line;
use crate::nbd::NbdClient;

/// A volume of another node has a device that is not known here.
const BLOCK_MIN_BYTES: u32 = 512;

impl ForwardEvents for Plane {
    fn answered(&self, client: ClientId, cookie: u64, outcome: RequestOutcome) {
        self.core.borrow_mut().clients.answer(client, cookie, outcome);
        self.deliver();
    }

    /// Clients that were told something else of the volume leave.
    fn reached(&self, export: &str) {
        {
            let core = &mut *self.core.borrow_mut();
            let Some(at) = core.groups.named_volume(export).filter(|at| core.is_offered(*at)) else { return };
            let now = ClientTerms::of(&core.export_of(at));
            let groups = &core.groups;
            core.clients.part_unlike(|at| groups.volume(at).export() == export, now);
        }
        self.deliver();
    }
}

impl Plane {
    /// Groups that are in a reverse sync when the node starts.
    pub fn begin_served_elsewhere(self: &Rc<Self>, served: &ServedElsewhere) {
        served.lent.iter().for_each(|(group, peer)| self.core.borrow_mut().lend(*group, Some(*peer)));
        served.forwarded.iter().for_each(|group| self.forward(*group));
    }

    /// Clients of the group are served by its peer from now on, those that are held too. Not where it serves here by now: whoever ordered this has
    /// not seen that.
    pub(super) fn forward(self: &Rc<Self>, group: GroupId) {
        let core = &mut *self.core.borrow_mut();
        if core.groups.is_open(group) {
            return;
        }
        let Some((peer, _)) = core.groups.named(group) else { return };
        if core.forwards.has(group) {
            return core.forwards.of(group).expect("it is there").pause(false);
        }
        let Some((name, address)) = core.ways.addresses.get(&peer).cloned() else { return };
        let waiting = core.held.end(group).unwrap_or_default();
        let mut named = Vec::new();
        for request in waiting {
            if core.clients.is_attached(request.client) {
                let export = core.groups.volume(core.clients.volume_of(request.client)).export().to_owned();
                named.push((export, request));
            }
        }
        let dialer = core.ways.dialer.clone();
        let reach: ReachExport = Rc::new(move |export| {
            let (dialer, name) = (dialer.clone(), name.clone());
            Box::pin(async move {
                let line = volume_line::dial(&dialer, &name, address).await?;
                NbdClient::at_peer(line, &export).await.map_err(|error| error.to_string())
            })
        });
        let exports: Vec<String> = core.groups.exports_of(group).collect();
        let forward = GroupForward::begin(exports.into_iter(), named, (reach, self.clone()));
        core.forwards.begin(group, forward);
    }
}

impl PlaneCore {
    /// Clients may choose the volume at this position.
    pub(super) fn is_offered(&self, at: usize) -> bool {
        let volume = self.groups.volume(at);
        match self.forwards.of(volume.group()) {
            Some(forward) => {
                let is_known = volume.has_device() && self.size_of(at) > 0;
                forward.has(volume.export()) && (is_known || forward.terms(volume.export()).is_some())
            }
            None => self.groups.is_exported(at) && !self.lending.is_lent(volume.group()),
        }
    }

    pub(super) fn size_of(&self, at: usize) -> u64 {
        let volume = self.groups.volume(at);
        self.node.volume_bytes(volume.group(), volume.id()).unwrap_or(0)
    }

    /// As the peer says; before it was reached, as this node knows it.
    pub(super) fn forwarded_export(&self, at: usize, forward: &GroupForward) -> ExportInfo {
        let volume = self.groups.volume(at);
        let mut info = match volume.has_device() {
            true => self.local_export(at),
            false => ExportInfo {
                handle: VolumeHandle(u32::try_from(at).expect("fewer volumes than 2^32")),
                name: volume.export().to_owned(),
                description: String::new(),
                size_bytes: 0,
                block_min_bytes: BLOCK_MIN_BYTES,
                block_preferred_bytes: super::gateway::PREFERRED_BYTES_MIN,
                block_max_bytes: engine::limits::REQUEST_BYTES_MAX as u32,
            },
        };
        if let Some(terms) = forward.terms(volume.export()) {
            info.size_bytes = terms.size_bytes;
            info.block_min_bytes = terms.block_min_bytes;
            info.block_preferred_bytes = terms.block_preferred_bytes;
            info.block_max_bytes = terms.block_max_bytes.min(info.block_max_bytes);
        }
        info.description = format!("{}, replicated, served by the peer", units::size::show_size(info.size_bytes));
        info
    }

    /// A request of a client that the peer serves; it comes back if none does.
    pub(super) fn forward_request(&mut self, at: usize, request: HeldRequest) -> Option<HeldRequest> {
        let volume = self.groups.volume(at);
        let Some(forward) = self.forwards.of(volume.group()) else { return Some(request) };
        let outcome = match &request.op {
            ClientOp::Cache { .. } => RequestOutcome::Done,
            // All of it may hold data: that is right of every volume.
            ClientOp::BlockStatus { .. } => RequestOutcome::Extents(Vec::new()),
            _ => {
                if let Some(HeldRequest { client, cookie, .. }) = forward.take(volume.export(), request) {
                    self.clients.answer(client, cookie, RequestOutcome::Failed(RequestFailure::Gone));
                }
                return None;
            }
        };
        self.clients.answer(request.client, request.cookie, outcome);
        None
    }

    /// All clients that the peer served leave, whoever serves the group from now on.
    pub(super) fn cut_off_forwarded(&mut self, group: GroupId) {
        let Some(waiting) = self.forwards.end(group) else { return };
        for HeldRequest { client, cookie, .. } in waiting {
            self.clients.answer(client, cookie, RequestOutcome::Failed(RequestFailure::Gone));
        }
        let groups = &self.groups;
        self.clients.part_those(|at| groups.is_of(at, group));
    }

    /// Nobody serves clients of the group here any more: they leave.
    pub(super) fn part_with_forwarded(&mut self, group: GroupId) {
        let Some(waiting) = self.forwards.end(group) else { return };
        for HeldRequest { client, cookie, .. } in waiting {
            self.clients.answer(client, cookie, RequestOutcome::Failed(RequestFailure::Gone));
        }
        let groups = &self.groups;
        self.clients.part_those(|at| groups.is_of(at, group) && !groups.is_served(at));
    }

    pub(super) fn forward_status(&self, group: GroupId) -> Option<ForwardStatus> {
        self.forwards.of(group).map(GroupForward::status)
    }
}
