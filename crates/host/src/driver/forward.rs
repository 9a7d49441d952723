//! A group whose volumes another node serves: what clients of this node ask, that node answers (a reverse sync).
//!
//! One connection leads there for each volume. What that node has not answered is asked again on the next connection, in the order in which it
//! came. That node takes no newer connection before all is done that was asked on the older one, so nothing that is asked again lands behind what
//! came later.
//!
//! What must hold:
//! * nothing is answered by this node's disks, and nothing fails because the other node is away: it waits;
//! * a write is answered when it is durable there. Whoever lost power there afterwards has it, and a flush that is asked again says the truth;
//! * what waits is bounded by what clients may have in flight, as before a slow disk.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{sleep, timeout};

use super::held_clients::HeldRequest;
use crate::frontend::{ClientId, ClientOp, RequestFailure, RequestOutcome};
use crate::nbd::proto::Errno;
use crate::nbd::{Ask, Export, NbdAnswer, NbdClient};

/// Requests at the other node at once, of one volume; and their payload.
pub const FORWARDED_MAX: usize = 256;
pub const FORWARDED_BYTES_MAX: usize = 32 << 20;
/// Pauses between two tries to reach it: a node that is back is found within the last.
pub const FORWARD_RETRY_FIRST: Duration = Duration::from_millis(20);
pub const FORWARD_RETRY_MAX: Duration = Duration::from_millis(500);
/// A node that takes a connection and says nothing is tried again.
pub const FORWARD_GREETING: Duration = Duration::from_secs(10);
/// What a connection gets to end in order.
const FAREWELL: Duration = Duration::from_secs(1);

/// Reaches the other node's export of this name.
pub(super) type ReachExport = Rc<dyn Fn(String) -> ReachingExport>;
pub(super) type ReachingExport = Pin<Box<dyn Future<Output = Result<NbdClient, String>>>>;

/// Whom answers go to, and who is told that a connection says what the volume is like.
pub(super) trait ForwardEvents {
    fn answered(&self, client: ClientId, cookie: u64, outcome: RequestOutcome);
    fn reached(&self, export: &str);
}

/// How the other node serves, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardStatus {
    /// Connections to it are up, for all volumes.
    pub is_connected: bool,
    /// Requests of clients that it has not answered.
    pub waiting: usize,
    /// Requests are kept and not asked.
    pub is_paused: bool,
    /// The same, and none is at the other node.
    pub is_quiet: bool,
    /// Why there is no connection.
    pub why: Option<String>,
}

/// A request that has no answer.
struct KeptRequest {
    request: HeldRequest,
    is_asked: bool,
    /// Its client left after it was asked: it is not asked again.
    is_orphan: bool,
}

#[derive(Default)]
struct KeptRequests {
    next: u64,
    kept: BTreeMap<u64, KeptRequest>,
    /// Of these, those that the present connection was not asked.
    unasked: VecDeque<u64>,
    asked_bytes: usize,
}

/// One volume.
struct VolumeForward {
    export: String,
    requests: RefCell<KeptRequests>,
    /// Requests came, or it is paused or not any more.
    changed: Notify,
    is_paused: Cell<bool>,
    is_connected: Cell<bool>,
    /// What the other node says of the volume.
    terms: Cell<Option<Export>>,
    why: RefCell<Option<String>>,
}

/// A group.
pub(super) struct GroupForward {
    /// By export.
    volumes: BTreeMap<String, (Rc<VolumeForward>, JoinHandle<()>)>,
}

impl Drop for GroupForward {
    fn drop(&mut self) {
        self.volumes.values().for_each(|(_, task)| task.abort());
    }
}

impl GroupForward {
    pub fn begin(
        exports: impl Iterator<Item = String>,
        waiting: Vec<(String, HeldRequest)>,
        (reach, events): (ReachExport, Rc<dyn ForwardEvents>),
    ) -> GroupForward {
        let one = |export: String| {
            let volume = Rc::new(VolumeForward::new(export.clone()));
            (export, volume)
        };
        let volumes: BTreeMap<String, Rc<VolumeForward>> = exports.map(one).collect();
        for (export, request) in waiting {
            if let Some(volume) = volumes.get(&export) {
                volume.take(request);
            }
        }
        let run = |(export, volume): (String, Rc<VolumeForward>)| {
            let task = spawn_local(volume.clone().run(reach.clone(), events.clone()));
            (export, (volume, task))
        };
        GroupForward { volumes: volumes.into_iter().map(run).collect() }
    }

    /// A request; comes back where the group has no such volume.
    pub fn take(&self, export: &str, request: HeldRequest) -> Option<HeldRequest> {
        match self.volumes.get(export) {
            Some((volume, _)) => {
                volume.take(request);
                None
            }
            None => Some(request),
        }
    }

    /// The client leaves. What it asked in vain is not asked any more: it may have asked the same elsewhere since.
    pub fn leaves(&self, export: &str, client: ClientId) {
        if let Some((volume, _)) = self.volumes.get(export) {
            volume.leaves(client);
        }
    }

    /// What the other node says of the volume; `None`: it was not reached yet.
    pub fn terms(&self, export: &str) -> Option<Export> {
        self.volumes.get(export).and_then(|(volume, _)| volume.terms.get())
    }

    pub fn has(&self, export: &str) -> bool {
        self.volumes.contains_key(export)
    }

    /// From now on requests are kept, and not asked; or they are asked again.
    pub fn pause(&self, is_paused: bool) {
        for (volume, _) in self.volumes.values() {
            volume.is_paused.set(is_paused);
            volume.changed.notify_one();
        }
    }

    pub fn is_paused(&self) -> bool {
        self.status().is_paused
    }

    /// What was not answered, in the order in which it came.
    pub fn end(self) -> Vec<HeldRequest> {
        let taken = self.volumes.values().map(|(volume, _)| volume.requests.take().kept);
        let kept = taken.flat_map(BTreeMap::into_values);
        kept.filter(|kept| !kept.is_orphan).map(|kept| kept.request).collect()
    }

    pub fn status(&self) -> ForwardStatus {
        let volumes = || self.volumes.values().map(|(volume, _)| volume);
        let is_paused = volumes().all(|volume| volume.is_paused.get());
        ForwardStatus {
            is_connected: volumes().all(|volume| volume.is_connected.get()),
            waiting: volumes().map(|volume| volume.requests.borrow().kept.len()).sum(),
            is_paused,
            is_quiet: is_paused && volumes().all(|volume| !volume.is_connected.get()),
            why: volumes().find_map(|volume| volume.why.borrow().clone()),
        }
    }
}

impl VolumeForward {
    fn new(export: String) -> VolumeForward {
        VolumeForward {
            export,
            requests: RefCell::default(),
            changed: Notify::new(),
            is_paused: Cell::new(false),
            is_connected: Cell::new(false),
            terms: Cell::new(None),
            why: RefCell::default(),
        }
    }

    fn take(&self, request: HeldRequest) {
        let mut requests = self.requests.borrow_mut();
        let number = requests.next;
        requests.next += 1;
        requests.kept.insert(number, KeptRequest { request, is_asked: false, is_orphan: false });
        requests.unasked.push_back(number);
        self.changed.notify_one();
    }

    fn leaves(&self, client: ClientId) {
        let mut requests = self.requests.borrow_mut();
        let KeptRequests { kept, unasked, .. } = &mut *requests;
        kept.retain(|_, kept| kept.is_asked || kept.request.client != client);
        kept.values_mut().filter(|kept| kept.request.client == client).for_each(|kept| kept.is_orphan = true);
        unasked.retain(|number| kept.contains_key(number));
    }

    /// Until dropped.
    async fn run(self: Rc<Self>, reach: ReachExport, events: Rc<dyn ForwardEvents>) {
        let mut pause = FORWARD_RETRY_FIRST;
        loop {
            while self.is_paused.get() {
                self.changed.notified().await;
            }
            let reached = timeout(FORWARD_GREETING, reach(self.export.clone())).await;
            let reached = reached.unwrap_or_else(|_| Err(format!("it says nothing for {FORWARD_GREETING:?}")));
            let why = match reached {
                Ok(client) => {
                    self.terms.set(Some(*client.export()));
                    self.is_connected.set(true);
                    *self.why.borrow_mut() = None;
                    events.reached(&self.export);
                    let (answers, end) = self.carry(client, &*events).await;
                    self.lost();
                    if answers > 0 {
                        pause = FORWARD_RETRY_FIRST;
                    }
                    end
                }
                Err(why) => Some(why),
            };
            if let Some(why) = why {
                tracing::debug!("{}: its server is not there: {why}", self.export);
                *self.why.borrow_mut() = Some(why);
                sleep(pause).await;
                pause = (pause * 2).min(FORWARD_RETRY_MAX);
            }
        }
    }

    /// What was asked has to be asked again.
    fn lost(&self) {
        self.is_connected.set(false);
        let mut requests = self.requests.borrow_mut();
        requests.kept.retain(|_, kept| !kept.is_orphan);
        requests.kept.values_mut().for_each(|kept| kept.is_asked = false);
        requests.unasked = requests.kept.keys().copied().collect();
        requests.asked_bytes = 0;
    }

    /// Carries requests and answers until the connection is of no more use, or all is answered in a pause: how many answers came, and why it
    /// ended, if it broke.
    async fn carry(&self, mut client: NbdClient, events: &dyn ForwardEvents) -> (u64, Option<String>) {
        let mut answers = 0;
        loop {
            if !self.is_paused.get() {
                self.ask_more(&mut client);
            }
            if client.in_flight() == 0 {
                if self.is_paused.get() {
                    // However it ends, nothing is asked on it any more.
                    let _ = timeout(FAREWELL, client.disconnect()).await;
                    return (answers, None);
                }
                self.changed.notified().await;
                continue;
            }
            tokio::select! {
                () = self.changed.notified() => {}
                answer = client.next() => match answer {
                    // It stops, or serves no longer: the request is for whoever serves next.
                    Ok(NbdAnswer { result: Err(Errno::Shutdown), .. }) => return (answers, Some("it does not serve the volume any more".to_owned())),
                    Ok(NbdAnswer { cookie, result }) => {
                        answers += 1;
                        self.pass_on(cookie, result, events);
                    }
                    Err(error) => return (answers, Some(error.to_string())),
                },
            }
        }
    }

    fn ask_more(&self, client: &mut NbdClient) {
        let mut requests = self.requests.borrow_mut();
        let KeptRequests { kept, unasked, asked_bytes, .. } = &mut *requests;
        while client.in_flight() < FORWARDED_MAX
            && let Some(number) = unasked.front().copied()
        {
            let kept = kept.get_mut(&number).expect("what is to be asked is kept");
            let bytes = payload_bytes(&kept.request.op);
            if *asked_bytes > 0 && *asked_bytes + bytes > FORWARDED_BYTES_MAX {
                break;
            }
            unasked.pop_front();
            *asked_bytes += bytes;
            kept.is_asked = true;
            client.queue(number, asked(&kept.request.op));
        }
    }

    fn pass_on(&self, number: u64, result: Result<Vec<u8>, Errno>, events: &dyn ForwardEvents) {
        let kept = {
            let mut requests = self.requests.borrow_mut();
            let Some(kept) = requests.kept.remove(&number) else { return };
            requests.asked_bytes -= payload_bytes(&kept.request.op);
            kept
        };
        let HeldRequest { client, cookie, op } = kept.request;
        let outcome = match (result, op) {
            (Err(errno), _) => RequestOutcome::Failed(failure(errno)),
            (Ok(data), ClientOp::Read { mut buffer, .. }) => {
                buffer.copy_from_slice(&data);
                RequestOutcome::Data(buffer)
            }
            (Ok(_), _) => RequestOutcome::Done,
        };
        events.answered(client, cookie, outcome);
    }
}

fn payload_bytes(op: &ClientOp) -> usize {
    match op {
        ClientOp::Read { buffer, .. } | ClientOp::Write { buffer, .. } => buffer.len(),
        _ => 0,
    }
}

/// Whatever changes the volume has to be durable there before it is answered.
fn asked(op: &ClientOp) -> Ask<'_> {
    let length = |bytes: u64| u32::try_from(bytes).expect("a request's length has 32 bits");
    match op {
        ClientOp::Read { offset, buffer } => Ask::Read { offset: *offset, length: length(buffer.len() as u64) },
        ClientOp::Write { offset, buffer, .. } => Ask::Write { offset: *offset, data: buffer, fua: true },
        ClientOp::Flush => Ask::Flush,
        ClientOp::Trim { offset, length: bytes, .. } => {
            Ask::Trim { offset: *offset, length: length(*bytes), fua: true }
        }
        ClientOp::Zero { offset, length: bytes, no_hole, .. } => {
            Ask::Zero { offset: *offset, length: length(*bytes), fua: true, no_hole: *no_hole }
        }
        ClientOp::Cache { offset, length: bytes } | ClientOp::BlockStatus { offset, length: bytes, .. } => {
            Ask::Cache { offset: *offset, length: length(*bytes) }
        }
    }
}

fn failure(errno: Errno) -> RequestFailure {
    match errno {
        Errno::NoSpace => RequestFailure::NoSpace,
        Errno::NoMemory => RequestFailure::NoMemory,
        Errno::NotSupported => RequestFailure::NotSupported,
        Errno::Invalid | Errno::Permission | Errno::Overflow => RequestFailure::Invalid,
        Errno::Io | Errno::Shutdown => RequestFailure::Io,
    }
}

/// Groups whose clients another node serves.
#[derive(Default)]
pub(super) struct Forwards(BTreeMap<engine::GroupId, GroupForward>);

impl Forwards {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn of(&self, group: engine::GroupId) -> Option<&GroupForward> {
        self.0.get(&group)
    }

    pub fn has(&self, group: engine::GroupId) -> bool {
        self.0.contains_key(&group)
    }

    pub fn begin(&mut self, group: engine::GroupId, forward: GroupForward) {
        self.0.insert(group, forward);
    }

    /// What was not answered; `None`: the clients of that group are served here.
    pub fn end(&mut self, group: engine::GroupId) -> Option<Vec<HeldRequest>> {
        self.0.remove(&group).map(GroupForward::end)
    }
}
