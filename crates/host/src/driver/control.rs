//! How people reach the data thread: a bounded channel of questions, each with its answer's own way back.

use std::time::Duration;

use engine::status::GroupStatus;
use engine::{Command, CommandId, CommandResult, GroupId, Input, Mono, NodeId};
use tokio::sync::{mpsc, oneshot};

use super::links::LinkSnapshot;
use super::plane::{Core, GroupHere, Plane};
use super::tap::Notes;
use crate::disk::EngineKind;
use crate::frontend::ClientInfo;
use crate::link::meter::Minute;
use crate::link::{Flow, Links, SocketOptions};
use crate::nbd;

/// Shortest stretch a sync's rate is measured over.
const RATE_WINDOW: Duration = Duration::from_secs(2);

/// Everything the data thread knows that people may want to see, at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Since the data thread started.
    pub uptime: Duration,
    /// In the order of their ids.
    pub groups: Vec<GroupSnapshot>,
    pub links: Vec<LinkSnapshot>,
    pub nbd: nbd::Counters,
    /// Who is attached, sorted by export.
    pub clients: Vec<ClientInfo>,
    /// `Uring` or `Pool`.
    pub file_engine: EngineKind,
    /// What the groups share: memory, turns.
    pub shared: engine::status::SharedStatus,
    /// Memory that front ends hold, and may hold.
    pub front_bytes: (usize, usize),
}

#[derive(Clone, Debug)]
pub struct GroupSnapshot {
    pub status: GroupStatus,
    /// In the order of their ids.
    pub volumes: Vec<VolumeSnapshot>,
    pub sync: Option<SyncPace>,
    /// How long the link has been as it is.
    pub link_for: Duration,
    /// Why no connection comes about, when that is known.
    pub link_problem: Option<String>,
}

#[derive(Clone, Debug)]
pub struct VolumeSnapshot {
    pub clients: u64,
    /// Used past the page cache.
    pub direct: bool,
    /// That its device has fallen silent, or the first failure since the start.
    pub error: Option<String>,
}

/// What the engine's own figures do not say about a sync.
#[derive(Clone, Copy, Debug)]
pub struct SyncPace {
    pub full: bool,
    /// Lately.
    pub bytes_per_s: f64,
}

/// The data thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data thread has ended: this daemon is stopping")]
pub struct Gone;

/// The way to the data thread, from any thread.
#[derive(Clone)]
pub struct Control(mpsc::Sender<Question>);

pub(super) enum Question {
    Snapshot(oneshot::Sender<Snapshot>),
    Command { group: GroupId, command: Command, answer: oneshot::Sender<CommandResult> },
    CommandIfUnused { group: GroupId, command: Command, answer: oneshot::Sender<Used> },
    Notes { group: GroupId, answer: oneshot::Sender<Notes> },
    Minutes { take: bool, answer: oneshot::Sender<Vec<(NodeId, Minute)>> },
    Retune(SocketOptions),
    Flow(Flow),
    Reconnect { reason: String },
    Stop,
}

/// Who is attached to a group, or, if nobody is, the way of the command's result.
pub(super) type Used = Result<oneshot::Receiver<CommandResult>, Vec<ClientInfo>>;

pub(super) struct Commands(mpsc::Receiver<Question>);

impl Commands {
    pub async fn next(&mut self) -> Option<Question> {
        self.0.recv().await
    }
}

pub(super) fn channel(depth: usize) -> (Control, Commands) {
    let (sender, receiver) = mpsc::channel(depth);
    (Control(sender), Commands(receiver))
}

impl Control {
    /// # Errors
    /// The data thread has ended.
    pub async fn snapshot(&self) -> Result<Snapshot, Gone> {
        let (answer, wait) = oneshot::channel();
        self.0.send(Question::Snapshot(answer)).await.map_err(|_| Gone)?;
        wait.await.map_err(|_| Gone)
    }

    /// Runs a command on a group of this node and waits for what came of it.
    ///
    /// # Errors
    /// The data thread has ended; then it is unknown whether the command was done.
    pub async fn command(&self, group: GroupId, command: Command) -> Result<CommandResult, Gone> {
        let (answer, wait) = oneshot::channel();
        self.0.send(Question::Command { group, command, answer }).await.map_err(|_| Gone)?;
        wait.await.map_err(|_| Gone)
    }

    /// The same, unless clients are attached to the group: then nothing is done, and they are told. Nobody attaches between the look
    /// and the command.
    ///
    /// # Errors
    /// As of [`Control::command`].
    pub async fn command_if_unused(
        &self,
        group: GroupId,
        command: Command,
    ) -> Result<Result<CommandResult, Vec<ClientInfo>>, Gone> {
        let (answer, wait) = oneshot::channel();
        self.0.send(Question::CommandIfUnused { group, command, answer }).await.map_err(|_| Gone)?;
        match wait.await.map_err(|_| Gone)? {
            Ok(result) => result.await.map(Ok).map_err(|_| Gone),
            Err(clients) => Ok(Err(clients)),
        }
    }

    /// What clients asked of a group since the last such question; the first one opens the tap.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn notes(&self, group: GroupId) -> Result<Notes, Gone> {
        let (answer, wait) = oneshot::channel();
        self.0.send(Question::Notes { group, answer }).await.map_err(|_| Gone)?;
        wait.await.map_err(|_| Gone)
    }

    /// What each link did since the last time it was taken.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn minutes(&self, take: bool) -> Result<Vec<(NodeId, Minute)>, Gone> {
        let (answer, wait) = oneshot::channel();
        self.0.send(Question::Minutes { take, answer }).await.map_err(|_| Gone)?;
        wait.await.map_err(|_| Gone)
    }

    /// Other socket options for all links: they connect again.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn retune(&self, options: SocketOptions) -> Result<(), Gone> {
        self.0.send(Question::Retune(options)).await.map_err(|_| Gone)
    }

    /// Other ways with the frames of all links, which stay up.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn set_flow(&self, flow: Flow) -> Result<(), Gone> {
        self.0.send(Question::Flow(flow)).await.map_err(|_| Gone)
    }

    /// Ends all links, so that they come up again as new connections; the reason is for the log.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn reconnect(&self, reason: &str) -> Result<(), Gone> {
        self.0.send(Question::Reconnect { reason: reason.to_owned() }).await.map_err(|_| Gone)
    }

    /// Begins the clean stop; the thread ends when it is done or time is up.
    ///
    /// # Errors
    /// It has ended already.
    pub async fn stop(&self) -> Result<(), Gone> {
        self.0.send(Question::Stop).await.map_err(|_| Gone)
    }
}

impl Plane {
    pub fn serve_control(&self, question: Question, server: &nbd::Server, links: &Links) {
        match question {
            Question::Snapshot(answer) => {
                let snapshot = self.snapshot(server);
                // Whoever asked may have gone meanwhile.
                let _ = answer.send(snapshot);
            }
            Question::Command { group, command, answer } => self.core.borrow_mut().command(group, command, answer),
            Question::CommandIfUnused { group, command, answer } => {
                let used = self.core.borrow_mut().command_if_unused(group, command, server.clients());
                // Whoever asked may have gone meanwhile.
                let _ = answer.send(used);
            }
            Question::Notes { group, answer } => {
                let notes = self.core.borrow_mut().take_notes(group);
                // Whoever asked may have gone meanwhile.
                let _ = answer.send(notes);
            }
            Question::Minutes { take, answer } => {
                let minutes = self.core.borrow_mut().meeting.minutes(take);
                // Whoever asked may have gone meanwhile.
                let _ = answer.send(minutes);
            }
            Question::Retune(options) => {
                self.core.borrow_mut().meeting.retuned();
                links.retune(options);
            }
            Question::Flow(flow) => links.set_flow(flow),
            Question::Reconnect { reason } => self.hang_up(&reason),
            Question::Stop => self.stop(),
        }
        self.turn();
    }

    fn snapshot(&self, server: &nbd::Server) -> Snapshot {
        let core = &mut *self.core.borrow_mut();
        // Ages are told by the engine's clock, and that of a node at rest stands still.
        core.input(Input::Tick);
        let now = core.clock.mono();
        let groups = core.node.status().into_iter().map(|status| core.group_snapshot(status, now)).collect();
        Snapshot {
            uptime: Duration::from_nanos(now.0),
            groups,
            links: core.link_snapshots(),
            shared: core.node.shared(),
            nbd: server.counters(),
            clients: server.clients(),
            file_engine: core.disks.kind(),
            front_bytes: (self.front.outstanding_bytes(), self.front.limit_bytes()),
        }
    }
}

impl Core {
    fn command(&mut self, group: GroupId, command: Command, answer: oneshot::Sender<CommandResult>) {
        let id = CommandId(u64::from(self.commands.put(answer)));
        self.input(Input::Command { group, id, command });
    }

    fn command_if_unused(&mut self, group: GroupId, command: Command, mut clients: Vec<ClientInfo>) -> Used {
        let (first, count) = {
            let group = self.group(group);
            (group.first_volume, group.volume_count)
        };
        let volumes = &self.volumes[first..first + count];
        clients.retain(|client| volumes.iter().any(|volume| volume.export == client.export));
        if !clients.is_empty() {
            return Err(clients);
        }
        let (answer, result) = oneshot::channel();
        self.command(group, command, answer);
        Ok(result)
    }

    fn group_snapshot(&mut self, status: GroupStatus, now: Mono) -> GroupSnapshot {
        let group = self.group(status.id);
        let range = group.first_volume..group.first_volume + group.volume_count;
        let peer = group.peer;
        let sync = pace(group, &status, now);
        let at = self.groups.binary_search_by_key(&status.id, |group| group.id).expect("the engine names its groups");
        let stores = self.groups[at].stores.as_ref();
        let volumes = self.volumes[range]
            .iter()
            .map(|volume| VolumeSnapshot {
                clients: volume.clients,
                direct: volume.is_direct(),
                error: volume.trouble(&self.disks, stores),
            })
            .collect();
        GroupSnapshot {
            volumes,
            sync,
            link_for: now.since(status.peer.link_since),
            link_problem: self.meeting.problem(peer),
            status,
        }
    }
}

/// The rate since a moment that moves along, at least one window ago where the sync is that old.
fn pace(group: &mut GroupHere, status: &GroupStatus, now: Mono) -> Option<SyncPace> {
    let done = status.sync?.done_bytes;
    let sync = group.sync.as_mut()?;
    if now.since(sync.next.0) >= RATE_WINDOW {
        (sync.since, sync.next) = (sync.next, (now, done));
    }
    let seconds = now.since(sync.since.0).as_secs_f64();
    let bytes_per_s = if seconds > 0.0 { done.saturating_sub(sync.since.1) as f64 / seconds } else { 0.0 };
    Some(SyncPace { full: sync.full, bytes_per_s })
}
