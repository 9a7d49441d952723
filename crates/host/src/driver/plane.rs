//! The data plane: the loop's state, and its turn.
//!
//! [`PlaneCore`] routes: what the engine asks for goes to the part that does it, and what a part returns goes to the engine or
//! to a client. The parts know nothing of one another, nor of the engine's node.

mod forwarding;
mod gateway;
mod holding;
mod lending;
mod link_events;
mod questions;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use engine::{CommandId, CommandResult, GroupId, Input, IoDone, Mono, Node, NodeConfig, NodeId, Output};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, oneshot};

use super::clients::AttachedClients;
use super::clock::NodeClock;
use super::disk_requests::{DiskRequests, Finished};
use super::forward::Forwards;
use super::groups::LocalGroups;
use super::held_clients::HeldClients;
use super::lending::Lending;
use super::notices::{DriverNews, NoticeSender};
use super::peers::Peers;
use super::reopening::{Reopened, Reopening};
use super::setup::{GroupOpener, GroupSetup, OpenedGroup, RefusedGroup};
use super::slab::Slab;
use crate::buffers::Pool;
use crate::disk::{Completion, FileEngine, OwedAnswers};
use crate::frontend::{RequestFailure, RequestOutcome};
use crate::link::PeerDialer;

pub(super) use lending::PeerExports;

/// Rounds of one turn at most: the completion of a write that was waited for is worth a second round, an endless chain of them would
/// keep the thread from its sockets.
const ROUNDS_MAX: usize = 4;

/// Pause between two looks for disks that owe an answer.
const SILENCE_LOOK: Duration = Duration::from_secs(5);

/// All of one data thread. Shared by its tasks; each borrows the core for the length of one call.
pub(super) struct Plane {
    core: RefCell<PlaneCore>,
    front: Pool,
    clock: NodeClock,
    /// What the clock's task sleeps for.
    armed: Cell<Option<Mono>>,
    rearm: Notify,
    stop_wanted: Notify,
    came_to_rest: Notify,
    link_ended: Notify,
    /// Taken by the one task that waits for it.
    reopened: RefCell<Option<UnboundedReceiver<Reopened>>>,
}

/// How peers are reached beside the links: for their volumes.
pub(super) struct PeerWays {
    pub dialer: Rc<PeerDialer>,
    /// With their names.
    pub addresses: BTreeMap<NodeId, (String, SocketAddr)>,
}

struct PlaneCore {
    node: Node,
    clock: NodeClock,
    disks: DiskRequests,
    groups: LocalGroups,
    peers: Peers,
    notices: NoticeSender,
    reopening: Reopening,
    clients: AttachedClients,
    held: HeldClients,
    forwards: Forwards,
    lending: Lending,
    ways: PeerWays,
    commands: Slab<oneshot::Sender<CommandResult>>,
    /// Groups that are to leave, and who waits for that.
    leaving: BTreeMap<GroupId, oneshot::Sender<()>>,
    stop_begun: bool,
    at_rest: bool,
    /// Emptied in every use; kept for its capacity.
    completions: Vec<Completion>,
}

impl Plane {
    pub fn new(
        config: NodeConfig,
        (groups, opener): (Vec<GroupSetup>, Arc<dyn GroupOpener>),
        disks: FileEngine,
        front: Pool,
        (peers, notices, ways): (Peers, NoticeSender, PeerWays),
    ) -> Plane {
        let (groups, refused) = LocalGroups::new(&config, groups);
        let (reopening, reopened) = Reopening::new(opener);
        let clock = NodeClock::new();
        let mut node = Node::new(config);
        refused.into_iter().for_each(|(id, RefusedGroup { why, recorded })| node.refuse(id, why, recorded));
        let core = PlaneCore {
            node,
            clock,
            disks: DiskRequests::new(disks),
            groups,
            peers,
            notices,
            reopening,
            clients: AttachedClients::default(),
            held: HeldClients::default(),
            forwards: Forwards::default(),
            lending: Lending::default(),
            ways,
            commands: Slab::default(),
            leaving: BTreeMap::new(),
            stop_begun: false,
            at_rest: false,
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
            reopened: RefCell::new(Some(reopened)),
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

    /// Which disks have given no answer for at least so long.
    pub fn owing(&self, at_least: Duration) -> Vec<OwedAnswers> {
        self.core.borrow().disks.engine().owing(at_least)
    }

    /// One turn: what the engine wants is done, in order; frames leave, then the disks' tray, then the answers.
    pub fn turn(&self) {
        for round in 1..=ROUNDS_MAX {
            {
                let core = &mut *self.core.borrow_mut();
                core.drain();
                core.peers.flush();
                core.disks.engine_mut().kick();
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
        let mut deliveries = self.core.borrow_mut().clients.take_deliveries();
        deliveries.answer();
        loop {
            let answered = self.core.borrow_mut().clients.next_answered();
            let Some(replies) = answered else { break };
            replies.push();
        }
        deliveries.part();
        self.core.borrow_mut().clients.delivered(deliveries);
    }

    /// Feeds completions to the engine, for ever.
    pub async fn watch_disks(self: Rc<Self>) {
        let readiness = self.core.borrow().disks.engine().readiness();
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

    /// Feeds groups whose files are open again to the engine, for ever.
    pub async fn watch_reopened(self: Rc<Self>) {
        let Some(mut reopened) = self.reopened.take() else { return };
        while let Some((group, opened)) = reopened.recv().await {
            self.core.borrow_mut().reopened(group, opened);
            self.turn();
        }
    }

    /// Says which disks have stopped answering, for ever.
    pub async fn watch_silence(self: Rc<Self>) {
        loop {
            tokio::time::sleep(SILENCE_LOOK).await;
            for news in self.core.borrow_mut().disks.engine_mut().silence_news() {
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

impl PlaneCore {
    /// Tells the engine what happened. Once its groups are at rest and recorded it hears no more: what is recorded must
    /// stay true.
    fn input(&mut self, input: Input) {
        if !self.at_rest {
            self.node.handle(self.clock.now(), input);
        }
    }

    /// Performs everything the engine asks for.
    fn drain(&mut self) {
        while let Some(output) = self.node.poll_output() {
            self.perform(output);
        }
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Send { link, header, payload } => self.peers.send(link, header, payload),
            Output::Reply { id, result: Err(_) } if self.is_lost_to_peer(id) => self.clients.lose(id),
            Output::Reply { id, result } => self.clients.reply(id, result),
            Output::CloseLink { link, reason } => self.peers.close(link, &reason),
            Output::CommandDone { id, result } => self.command_done(id, result),
            Output::Serve { group, open } => self.serve(group, open),
            Output::Event { group, event } => {
                if let Some(text) = self.groups.log_event(group, &event, self.clock.mono()) {
                    self.notices.tell(DriverNews::Group { group, event, text });
                }
            }
            Output::Reopen { group } => {
                let let_go = self.groups.close(group);
                self.reopening.begin(group, let_go);
            }
            Output::Removed { group, failed } => self.removed(group, failed),
            Output::ViewOpened { .. } | Output::ViewData { .. } => unreachable!("no front end opens a view yet"),
            Output::Stopped => self.at_rest = true,
            disk => self.disks.submit(disk, &self.groups),
        }
    }

    fn serve(&mut self, group: GroupId, open: bool) {
        let leaving = self.groups.serve(group, open);
        if open {
            self.go_on_with_held(group);
        } else if !self.held.holds(group) && !self.forwards.has(group) {
            self.clients.part(leaving);
        }
    }

    fn removed(&mut self, group: GroupId, failed: bool) {
        if failed {
            // A flush that they ask for in the next run would answer for writes that were lost in this one (rule 12).
            self.part_with_held(group);
        }
        self.serve(group, false);
        let (name, let_go) = self.groups.remove(group);
        self.reopening.left(name, let_go, self.leaving.remove(&group));
    }

    fn reopened(&mut self, group: GroupId, opened: Result<OpenedGroup, String>) {
        let opened = opened.map(|opened| Box::new(self.groups.reopened(group, opened)));
        self.input(Input::Reopened { group, opened });
    }

    fn command_done(&mut self, id: CommandId, result: CommandResult) {
        let asker = u32::try_from(id.0).ok().and_then(|number| self.commands.take(number));
        // Whoever asked may have gone; the command stands all the same.
        let _ = asker.expect("a command is answered once").send(result);
    }

    /// Takes what the disks have done; whether that was anything.
    fn collect(&mut self) -> bool {
        let mut completions = std::mem::take(&mut self.completions);
        self.disks.engine_mut().completions(&mut completions);
        let any = !completions.is_empty();
        completions.drain(..).for_each(|completion| self.completed(completion));
        self.completions = completions;
        any
    }

    fn completed(&mut self, completion: Completion) {
        match self.disks.completed(completion, &mut self.groups) {
            Finished::Continued => {}
            Finished::Client { client, cookie, outcome: RequestOutcome::Failed(_) } if self.is_lost_to(client) => {
                self.clients.answer(client, cookie, RequestOutcome::Failed(RequestFailure::Gone));
            }
            Finished::Client { client, cookie, outcome } => self.clients.answer(client, cookie, outcome),
            Finished::Engine { token, result } => self.input(Input::Io { token, result }),
            Finished::Unhashed { token, group, buffer } => {
                // A hash that outlives its session is of no use, and is keyed with whatever is there.
                let key = self.peers.key(self.groups.peer(group));
                let hash = *blake3::keyed_hash(&key, &buffer).as_bytes();
                self.input(Input::Io { token, result: Ok(IoDone::Hash(hash)) });
            }
        }
    }
}
