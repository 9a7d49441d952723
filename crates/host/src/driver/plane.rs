//! The data plane's state, and its turn.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use engine::{CommandId, CommandResult, Event, GroupId, Input, Mono, Node, NodeConfig, Output, VolumeId};
use tokio::sync::{Notify, oneshot};

use super::clock::Clock;
use super::disks::Pending;
use super::gateway::{Client, Due};
use super::links::{LinkHere, Meeting};
use super::slab::Slab;
use super::tap::Tap;
use super::{GroupSetup, Refused, Stores, VolumeSetup, story};
use crate::buffers::Pool;
use crate::disk::{Completion, File, FileEngine};
use crate::frontend::{Outcome, Replies};
use std::sync::Arc;

/// Rounds of one turn at most: the completion of a write that was waited for is worth a second round, an endless chain of them would
/// keep the thread from its sockets.
const ROUNDS_MAX: usize = 4;

/// Pause between two looks for disks that owe an answer.
const SILENCE_LOOK: Duration = Duration::from_secs(5);

/// All of one data thread. Shared by its tasks; each borrows the core for the length of one call.
pub(super) struct Plane {
    pub core: RefCell<Core>,
    pub front: Pool,
    clock: Clock,
    /// What the clock's task sleeps for.
    armed: Cell<Option<Mono>>,
    rearm: Notify,
    pub stop_wanted: Notify,
    pub came_to_rest: Notify,
    pub link_ended: Notify,
}

/// A volume of this node.
pub(super) struct VolumeHere {
    pub group: GroupId,
    pub id: VolumeId,
    /// `group/volume`.
    pub export: String,
    /// `None`: its group is refused.
    device: Option<Arc<File>>,
    /// Clients attached now.
    pub clients: u64,
    /// The first failure of its device since the start.
    pub error: Option<String>,
}

impl VolumeHere {
    /// What people should know of its device: it, or the files of its group, may have fallen silent.
    pub fn trouble(&self, disks: &FileEngine, stores: Option<&Stores>) -> Option<String> {
        let silent = |file: &Arc<File>, what: &str| {
            let seconds = disks.silence(file)?.as_secs();
            let path = file.path().display();
            Some(format!(
                "the disk under {what}{path} has answered nothing for {seconds} s; see the kernel log for why"
            ))
        };
        let volume = self.device.as_ref().and_then(|device| silent(device, ""));
        let stores = || stores.and_then(|stores| silent(&stores.journal, "the group's journal "));
        volume.or_else(stores).or_else(|| self.error.clone())
    }

    /// Of a group that was taken up.
    pub fn device(&self) -> &Arc<File> {
        self.device.as_ref().expect("a group that is refused asks for nothing of its volumes")
    }

    /// Requests pass the page cache by.
    pub fn is_direct(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.direct())
    }
}

/// A group of this node.
pub(super) struct GroupHere {
    pub id: GroupId,
    pub peer: engine::NodeId,
    pub name: String,
    /// Where its volumes start in [`Core::volumes`].
    pub first_volume: usize,
    pub volume_count: usize,
    /// `None`: it is refused.
    pub stores: Option<Stores>,
    /// Its exports are open.
    pub open: bool,
    pub sync: Option<SyncHere>,
    pub decided: story::Decided,
    /// Somebody records what is asked of it.
    pub tap: Option<Tap>,
}

impl GroupHere {
    /// Of a group that was taken up.
    pub fn stores(&self) -> &Stores {
        self.stores.as_ref().expect("a group that is refused asks for nothing of its stores")
    }
}

/// A sync under way, for people.
pub(super) struct SyncHere {
    pub full: bool,
    /// Where the rate is measured from, and where it will be next.
    pub since: (Mono, u64),
    pub next: (Mono, u64),
}

/// An answer that waits for the borrow to end.
type Answer = (Rc<dyn Replies>, u64, Outcome);

pub(super) struct Core {
    pub node: Node,
    pub clock: Clock,
    pub disks: FileEngine,
    /// In the order of their ids.
    pub groups: Vec<GroupHere>,
    /// All groups' volumes; a place here is the volume's handle.
    pub volumes: Vec<VolumeHere>,
    /// The same by their exports' names: places in `volumes`.
    pub by_name: Vec<usize>,
    /// How many of them have an open export.
    pub open_volumes: usize,
    pub clients: Slab<Client>,
    pub client_count: u32,
    /// Requests the engine has.
    pub requests: Slab<Due>,
    /// Requests the disks have; the number is the token.
    pub pending: Slab<Pending>,
    /// What the engine reads: bounded by the engine's own limits on reads in flight.
    pub reads: Pool,
    pub links: Vec<LinkHere>,
    pub meeting: Meeting,
    pub commands: Slab<oneshot::Sender<CommandResult>>,
    pub stop_begun: bool,
    pub at_rest: bool,
    pub answers: Vec<Answer>,
    /// Clients with answers in `answers`.
    pub answered: Vec<u32>,
    pub parting: Vec<Rc<dyn Replies>>,
    /// Emptied in every use; kept for its capacity.
    completions: Vec<Completion>,
}

fn is_open(setup: &GroupSetup) -> bool {
    setup.stores.is_some() && setup.volumes.iter().all(|volume| volume.device.is_some())
}

/// Places of the volumes, in the order of their exports' names.
fn sorted_by_export(volumes: &[VolumeHere]) -> Vec<usize> {
    let mut by_name: Vec<usize> = (0..volumes.len()).collect();
    by_name.sort_by(|a, b| volumes[*a].export.cmp(&volumes[*b].export));
    by_name
}

impl Plane {
    pub fn new(node: NodeConfig, groups: Vec<GroupSetup>, disks: FileEngine, front: Pool, meeting: Meeting) -> Plane {
        assert_eq!(node.groups.len(), groups.len(), "every group has its stores");
        assert!(node.groups.is_sorted_by_key(|group| group.id), "groups come in the order of their ids");
        let (mut here, mut volumes, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for (config, setup) in node.groups.iter().zip(groups) {
            assert_eq!(config.volumes.len(), setup.volumes.len(), "every volume has its device");
            assert_eq!(is_open(&setup), setup.refused.is_none(), "what is not refused is open");
            refused.extend(setup.refused.map(|refused| (config.id, refused)));
            let first_volume = volumes.len();
            for (number, VolumeSetup { name, device }) in setup.volumes.into_iter().enumerate() {
                let id = VolumeId(u16::try_from(number).expect("a group has at most 1 024 volumes"));
                let export = format!("{}/{name}", setup.name);
                volumes.push(VolumeHere { group: config.id, id, export, device, clients: 0, error: None });
            }
            here.push(GroupHere {
                id: config.id,
                peer: config.peer,
                name: setup.name,
                first_volume,
                volume_count: volumes.len() - first_volume,
                stores: setup.stores,
                open: false,
                sync: None,
                decided: story::Decided::default(),
                tap: None,
            });
        }
        let by_name = sorted_by_export(&volumes);
        let clock = Clock::new();
        let mut engine = Node::new(node);
        refused.into_iter().for_each(|(id, Refused { why, recorded })| engine.refuse(id, why, recorded));
        let core = Core {
            node: engine,
            clock,
            disks,
            groups: here,
            volumes,
            by_name,
            open_volumes: 0,
            clients: Slab::default(),
            client_count: 0,
            requests: Slab::default(),
            pending: Slab::default(),
            reads: Pool::new(usize::MAX),
            links: Vec::new(),
            meeting,
            commands: Slab::default(),
            stop_begun: false,
            at_rest: false,
            answers: Vec::new(),
            answered: Vec::new(),
            parting: Vec::new(),
            completions: Vec::new(),
        };
        Plane {
            core: RefCell::new(core),
            front,
            clock,
            armed: Cell::new(None),
            rearm: Notify::new(),
            stop_wanted: Notify::new(),
            came_to_rest: Notify::new(),
            link_ended: Notify::new(),
        }
    }

    /// The engine reads its stores.
    pub fn start(&self, entropy: u64) {
        let boot = crate::disk::fingerprint::boot();
        self.core.borrow_mut().input(Input::Start { entropy, boot });
        self.turn();
    }

    /// Begins the clean stop; again changes nothing.
    pub fn stop(&self) {
        let mut core = self.core.borrow_mut();
        if !std::mem::replace(&mut core.stop_begun, true) {
            core.input(Input::Stop);
            drop(core);
            self.turn();
            self.stop_wanted.notify_one();
        }
    }

    pub async fn stop_is_wanted(&self) {
        self.stop_wanted.notified().await;
    }

    /// Resolves when every group is at rest and recorded.
    pub async fn stopped(&self) {
        while !self.core.borrow().at_rest {
            self.came_to_rest.notified().await;
        }
    }

    /// One turn: what the engine wants is done, in order; frames leave, then the disks' tray, then the answers.
    pub fn turn(&self) {
        for round in 1..=ROUNDS_MAX {
            {
                let core = &mut *self.core.borrow_mut();
                core.drain();
                core.flush_links();
                core.disks.kick();
                if core.at_rest {
                    self.came_to_rest.notify_one();
                }
            }
            self.deliver();
            // What is not collected here rings the disks' bell by itself.
            if round == ROUNDS_MAX || !self.core.borrow_mut().collect() {
                break;
            }
        }
        let due = self.core.borrow().node.next_timeout();
        if due.is_some_and(|due| self.armed.get().is_none_or(|armed| due < armed)) {
            self.rearm.notify_one();
        }
    }

    /// Hands out the answers gathered; nothing is borrowed while clients are called.
    fn deliver(&self) {
        let (mut answers, mut parting) = {
            let core = &mut *self.core.borrow_mut();
            (std::mem::take(&mut core.answers), std::mem::take(&mut core.parting))
        };
        for (replies, cookie, outcome) in answers.drain(..) {
            replies.complete(cookie, outcome);
        }
        loop {
            let replies = {
                let core = &mut *self.core.borrow_mut();
                let Some(number) = core.answered.pop() else { break };
                core.clients.get_mut(number).map(|client| {
                    client.answered = false;
                    client.replies.clone()
                })
            };
            if let Some(replies) = replies {
                replies.push();
            }
        }
        parting.drain(..).for_each(|replies| replies.gone());
        let core = &mut *self.core.borrow_mut();
        assert!(core.answers.is_empty() && core.parting.is_empty(), "clients do not call back");
        (core.answers, core.parting) = (answers, parting);
    }

    /// Feeds completions to the engine, for ever.
    pub async fn watch_disks(self: Rc<Self>) {
        let readiness = self.core.borrow().disks.readiness();
        loop {
            readiness.wait().await;
            if self.core.borrow_mut().collect() {
                self.turn();
            }
            // Reads of holes are done as soon as they are asked for, so the next ones may be ready already: first the
            // sockets get their turn, or a peer that speaks would pass for dead.
            tokio::task::yield_now().await;
        }
    }

    /// Says which disks have stopped answering, for ever.
    pub async fn watch_silence(self: Rc<Self>) {
        loop {
            tokio::time::sleep(SILENCE_LOOK).await;
            for news in self.core.borrow_mut().disks.silence_news() {
                tracing::warn!("{news}");
            }
        }
    }

    /// Ticks when the engine wants it, until it is at rest.
    pub async fn watch_clock(self: Rc<Self>) {
        while !self.core.borrow().at_rest {
            let due = self.core.borrow().node.next_timeout();
            self.armed.set(due);
            let Some(due) = due else {
                self.rearm.notified().await;
                continue;
            };
            tokio::select! {
                () = tokio::time::sleep_until(self.clock.instant(due).into()) => self.tick(),
                () = self.rearm.notified() => {}
            }
        }
    }

    fn tick(&self) {
        let mut core = self.core.borrow_mut();
        // The timer may have been moved while we slept.
        if core.node.next_timeout().is_some_and(|due| due <= self.clock.mono()) {
            core.input(Input::Tick);
            drop(core);
            self.turn();
        }
    }
}

impl Core {
    /// Tells the engine what happened. Once its groups are at rest and recorded it hears no more: what is recorded must
    /// stay true.
    pub fn input(&mut self, input: Input) {
        if !self.at_rest {
            self.node.handle(self.clock.now(), input);
        }
    }

    pub fn group(&mut self, id: GroupId) -> &mut GroupHere {
        let at = self.groups.binary_search_by_key(&id, |group| group.id).expect("the engine names groups it was given");
        &mut self.groups[at]
    }

    /// Performs everything the engine asks for.
    fn drain(&mut self) {
        while let Some(output) = self.node.poll_output() {
            self.perform(output);
        }
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Send { link, header, payload } => self.send(link, header, payload),
            Output::Reply { id, result } => self.reply(id, result),
            Output::CloseLink { link, reason } => self.close_link(link, &reason),
            Output::CommandDone { id, result } => self.command_done(id, result),
            Output::Serve { group, open } => self.serve(group, open),
            Output::Event { group, event } => self.tell(group, event),
            Output::Stopped => self.at_rest = true,
            disk => self.submit_disk(disk),
        }
    }

    fn command_done(&mut self, id: CommandId, result: CommandResult) {
        let asker = u32::try_from(id.0).ok().and_then(|number| self.commands.take(number));
        // Whoever asked may have gone; the command stands all the same.
        let _ = asker.expect("a command is answered once").send(result);
    }

    fn tell(&mut self, id: GroupId, event: Event) {
        let now = self.clock.mono();
        let group = self.group(id);
        match &event {
            Event::SyncBegan { full, .. } => {
                group.sync = Some(SyncHere { full: *full, since: (now, 0), next: (now, 0) });
            }
            Event::SyncEnded { .. } => group.sync = None,
            _ => {}
        }
        if !group.decided.is_news(&event) {
            return;
        }
        let (first, count) = (group.first_volume, group.volume_count);
        let name = self.group(id).name.clone();
        story::tell(&name, &self.volumes[first..first + count], &event);
    }

    /// Takes what the disks have done; whether that was anything.
    pub fn collect(&mut self) -> bool {
        let mut completions = std::mem::take(&mut self.completions);
        self.disks.completions(&mut completions);
        let any = !completions.is_empty();
        completions.drain(..).for_each(|completion| self.completed(completion));
        self.completions = completions;
        any
    }
}
