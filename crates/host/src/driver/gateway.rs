//! The door for front ends: which volumes are open, who is attached, and their requests.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use engine::{Buf, GroupId, Input, IoError, Request, RequestId, limits};
use units::size::show_size;

use super::disks::Pending;
use super::plane::{Core, Plane};
use crate::buffers::Buffer;
use crate::disk::{DiskOp, Inline};
use crate::frontend::{ClientId, ExportInfo, Exports, Failure, Gateway, Op, Outcome, Replies, VolumeHandle};

/// Runs in one answer about allocation; clients ask again for the rest.
const RUNS_MAX: usize = 4096;
/// What clients should send at least: a page, below which files and devices read before they write.
const PREFERRED_BYTES_MIN: u32 = 4096;

/// An attached connection.
pub(super) struct Client {
    /// Half of its id, so that the number of one that left never names another.
    generation: u32,
    pub volume: usize,
    pub replies: Rc<dyn Replies>,
    /// It is in the list of those to be pushed.
    pub answered: bool,
}

/// Whom the engine's reply is for.
pub(super) struct Due {
    client: ClientId,
    cookie: u64,
}

fn client_id(number: u32, generation: u32) -> ClientId {
    ClientId(u64::from(generation) << 32 | u64::from(number))
}

fn number_of(client: ClientId) -> u32 {
    client.0 as u32
}

fn generation_of(client: ClientId) -> u32 {
    (client.0 >> 32) as u32
}

impl Exports for Plane {
    fn list(&self) -> Vec<ExportInfo> {
        let core = self.core.borrow();
        let by_name = core.by_name.iter().map(|at| (*at, &core.volumes[*at]));
        by_name.filter(|(_, volume)| core.is_open(volume.group)).map(|(at, _)| core.export_of(at)).collect()
    }

    fn find(&self, name: &str) -> Option<ExportInfo> {
        let core = self.core.borrow();
        let at = if name.is_empty() { core.only_export() } else { core.open_export(name) };
        at.map(|at| core.export_of(at))
    }

    fn count(&self) -> usize {
        self.core.borrow().open_volumes
    }
}

impl Gateway for Plane {
    fn attach(&self, name: &str, replies: Rc<dyn Replies>) -> Option<(ExportInfo, ClientId)> {
        let core = &mut *self.core.borrow_mut();
        let at = core.open_export(name)?;
        core.client_count = core.client_count.wrapping_add(1);
        let generation = core.client_count;
        let number = core.clients.put(Client { generation, volume: at, replies, answered: false });
        core.volumes[at].clients += 1;
        Some((core.export_of(at), client_id(number, generation)))
    }

    fn detach(&self, client: ClientId) {
        let left = {
            let core = &mut *self.core.borrow_mut();
            let number = number_of(client);
            core.client(client).expect("a client detaches once");
            let left = core.clients.take(number).expect("it was there just now");
            core.volumes[left.volume].clients -= 1;
            core.answered.retain(|answered| *answered != number);
            left
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

    fn submit(&self, client: ClientId, cookie: u64, op: Op) {
        self.core.borrow_mut().submit(client, cookie, op);
    }

    fn kick(&self) {
        self.turn();
    }
}

impl Core {
    /// The group says how large it is: the device may hold more.
    fn export_of(&self, at: usize) -> ExportInfo {
        let volume = &self.volumes[at];
        let device = volume.device();
        let size_bytes = self.node.volume_bytes(volume.group, volume.id).expect("the engine knows every volume");
        ExportInfo {
            handle: VolumeHandle(u32::try_from(at).expect("fewer volumes than 2^32")),
            name: volume.export.clone(),
            description: format!("{}, replicated", show_size(size_bytes)),
            size_bytes,
            block_min_bytes: device.logical_block(),
            block_preferred_bytes: device.physical_block().max(PREFERRED_BYTES_MIN),
            block_max_bytes: limits::REQUEST_BYTES_MAX as u32,
        }
    }

    fn is_open(&self, group: GroupId) -> bool {
        self.groups.binary_search_by_key(&group, |group| group.id).is_ok_and(|at| self.groups[at].open)
    }

    /// The volume behind an export's name, if it is open.
    fn open_export(&self, name: &str) -> Option<usize> {
        let found = self.by_name.binary_search_by(|at| self.volumes[*at].export.as_str().cmp(name));
        found.ok().map(|place| self.by_name[place]).filter(|at| self.is_open(self.volumes[*at].group))
    }

    /// The volume that is open, if it is the only one.
    fn only_export(&self) -> Option<usize> {
        let is_only = self.open_volumes == 1;
        is_only.then(|| self.volumes.iter().position(|volume| self.is_open(volume.group))).flatten()
    }

    fn client(&mut self, client: ClientId) -> Option<&mut Client> {
        self.clients.get_mut(number_of(client)).filter(|found| found.generation == generation_of(client))
    }

    fn submit(&mut self, client: ClientId, cookie: u64, op: Op) {
        let volume = self.client(client).expect("only attached clients ask").volume;
        let group = self.volumes[volume].group;
        if !self.is_open(group) {
            return self.answer(client, cookie, Outcome::Failed(Failure::Gone));
        }
        let request = match op {
            Op::Read { offset, buffer } => {
                let pending = Pending::Read { client, cookie, volume };
                return self.ask_device(volume, pending, DiskOp::Read { offset, buffer }, Inline::Allowed);
            }
            Op::BlockStatus { offset, length, one_extent } => {
                let runs_max = if one_extent { 1 } else { RUNS_MAX };
                let pending = Pending::Extents { client, cookie, volume };
                let op = DiskOp::BlockStatus { offset, length, runs_max };
                return self.ask_device(volume, pending, op, Inline::Forbidden);
            }
            // A hint that volumes past the page cache have no use for.
            Op::Cache { .. } => return self.answer(client, cookie, Outcome::Done),
            Op::Write { offset, buffer, fua } => {
                let length = buffer.len() as u64;
                Request::Write { offset, length, buf: Buf::new(Arc::new(buffer)), fua }
            }
            Op::Trim { offset, length, fua } => Request::Zero { offset, length, no_hole: false, fua },
            Op::Zero { offset, length, fua, no_hole } => Request::Zero { offset, length, no_hole, fua },
            Op::Flush => Request::Flush,
        };
        let id = RequestId(u64::from(self.requests.put(Due { client, cookie })));
        let volume = self.volumes[volume].id;
        self.note(group, volume.0, &request);
        self.input(Input::Request { group, volume, id, request });
    }

    fn ask_device(&mut self, volume: usize, pending: Pending, op: DiskOp, inline: Inline) {
        let device = self.volumes[volume].device().clone();
        self.gather(pending, &device, op, inline);
    }

    /// The engine's answer to a request.
    pub fn reply(&mut self, id: RequestId, result: Result<(), IoError>) {
        let due = u32::try_from(id.0).ok().and_then(|number| self.requests.take(number));
        let Due { client, cookie } = due.expect("a request is answered once");
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(IoError::NoSpace) => Outcome::Failed(Failure::NoSpace),
            Err(IoError::Io | IoError::Damaged) => Outcome::Failed(Failure::Io),
        };
        self.answer(client, cookie, outcome);
    }

    /// Keeps an answer for the end of the turn; one for a client that left goes nowhere.
    pub fn answer(&mut self, client: ClientId, cookie: u64, outcome: Outcome) {
        let Some(found) = self.client(client) else { return };
        let replies = found.replies.clone();
        if !std::mem::replace(&mut found.answered, true) {
            self.answered.push(number_of(client));
        }
        self.answers.push((replies, cookie, outcome));
    }

    /// The group's exports appear or disappear.
    pub fn serve(&mut self, id: GroupId, open: bool) {
        let group = self.group(id);
        if std::mem::replace(&mut group.open, open) == open {
            return;
        }
        let (name, first, count) = (group.name.clone(), group.first_volume, group.volume_count);
        if open {
            self.open_volumes += count;
            return tracing::info!("group {name}: its {count} volume(s) are served");
        }
        tracing::info!("group {name}: its volumes are no longer served");
        self.open_volumes -= count;
        let range = first..first + count;
        let leaving = self.clients.iter().filter(|client| range.contains(&client.volume));
        self.parting.extend(leaving.map(|client| client.replies.clone()));
    }
}
