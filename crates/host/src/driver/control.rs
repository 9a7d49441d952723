//! How people reach the data thread: a bounded channel of questions, each with its answer's own way back.

use engine::{Command, CommandResult, GroupId, NodeId};
use tokio::sync::{mpsc, oneshot};

use super::request_recorder::RecordedRequests;
use super::setup::AddedGroup;
use super::snapshot::DriverSnapshot;
use crate::frontend::ClientInfo;
use crate::link::meter::Minute;
use crate::link::{FrameOptions, SocketOptions};

/// The data thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data thread has ended: this daemon is stopping")]
pub struct Gone;

/// The way to the data thread, from any thread.
#[derive(Clone)]
pub struct DriverControl(mpsc::Sender<ControlQuestion>);

pub(super) enum ControlQuestion {
    Snapshot(oneshot::Sender<DriverSnapshot>),
    Command { group: GroupId, command: Command, answer: oneshot::Sender<CommandResult> },
    Mark { groups: Vec<GroupId>, name: String, answer: oneshot::Sender<Vec<oneshot::Receiver<CommandResult>>> },
    CommandIfUnused { group: GroupId, command: Command, answer: oneshot::Sender<ClientsOrResult> },
    Add(Box<AddedGroup>),
    Remove { group: GroupId, clients: ClientsOfRemoved, answer: oneshot::Sender<ClientsOrRemoved> },
    PartWithHeld { group: GroupId, answer: oneshot::Sender<bool> },
    Clients { group: GroupId, order: ClientsOrder },
    Lend { group: GroupId, to: Option<NodeId> },
    IsHeld { group: GroupId, answer: oneshot::Sender<bool> },
    Define { definitions: String, coming: Vec<GroupId>, reason: String },
    Notes { group: GroupId, answer: oneshot::Sender<RecordedRequests> },
    Minutes { take: bool, answer: oneshot::Sender<Vec<(NodeId, Minute)>> },
    Retune(SocketOptions),
    Flow(FrameOptions),
    Reconnect { reason: String },
    Stop,
}

/// What becomes of the clients of a group that stops and leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientsOfRemoved {
    /// While there is one, the group stays.
    Refuse,
    CutOff,
    /// They stay attached, and their requests wait, until a group of the same number serves, or [`DriverControl::part_with_held`].
    Hold,
}

/// What becomes of what clients of a group ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientsOrder {
    /// It waits.
    Hold,
    /// It is held no longer: the group serves as before, or its clients leave.
    GoOn,
    /// The peer answers, also what was held, until this node serves again.
    Forward,
    /// It is kept from the peer, and goes there again with the next `Forward`.
    Pause,
    /// The peer answers no longer, and clients leave.
    Part,
}

/// Who is attached to a group, or, if nobody is, the way of the command's result.
pub(super) type ClientsOrResult = Result<oneshot::Receiver<CommandResult>, Vec<ClientInfo>>;

/// Who is attached to a group that stays for that reason, or the way of the word that it has left.
pub(super) type ClientsOrRemoved = Result<oneshot::Receiver<()>, Vec<ClientInfo>>;

pub(super) struct ControlReceiver(mpsc::Receiver<ControlQuestion>);

impl ControlReceiver {
    pub async fn next(&mut self) -> Option<ControlQuestion> {
        self.0.recv().await
    }
}

pub(super) fn channel(depth: usize) -> (DriverControl, ControlReceiver) {
    let (sender, receiver) = mpsc::channel(depth);
    (DriverControl(sender), ControlReceiver(receiver))
}

impl DriverControl {
    /// # Errors
    /// The data thread has ended.
    pub async fn snapshot(&self) -> Result<DriverSnapshot, Gone> {
        let (answer, wait) = oneshot::channel();
        self.0.send(ControlQuestion::Snapshot(answer)).await.map_err(|_| Gone)?;
        wait.await.map_err(|_| Gone)
    }

    /// Runs a command on a group of this node and waits for what came of it.
    ///
    /// # Errors
    /// The data thread has ended; then it is unknown whether the command was done.
    pub async fn command(&self, group: GroupId, command: Command) -> Result<CommandResult, Gone> {
        let (answer, wait) = oneshot::channel();
        self.0.send(ControlQuestion::Command { group, command, answer }).await.map_err(|_| Gone)?;
        wait.await.map_err(|_| Gone)
    }

    /// Sets a mark of these groups, at one moment: what came of each.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn mark(&self, groups: Vec<GroupId>, name: String) -> Result<Vec<CommandResult>, Gone> {
        let (answer, wait) = oneshot::channel();
        self.0.send(ControlQuestion::Mark { groups, name, answer }).await.map_err(|_| Gone)?;
        let mut results = Vec::new();
        for result in wait.await.map_err(|_| Gone)? {
            results.push(result.await.map_err(|_| Gone)?);
        }
        Ok(results)
    }

    /// As [`DriverControl::command`], unless clients are attached to the group: then nothing is done, and they are returned. Nobody attaches between the look
    /// and the command.
    ///
    /// # Errors
    /// As of [`DriverControl::command`].
    pub async fn command_if_unused(
        &self,
        group: GroupId,
        command: Command,
    ) -> Result<Result<CommandResult, Vec<ClientInfo>>, Gone> {
        let (answer, wait) = oneshot::channel();
        self.0.send(ControlQuestion::CommandIfUnused { group, command, answer }).await.map_err(|_| Gone)?;
        match wait.await.map_err(|_| Gone)? {
            Ok(result) => result.await.map(Ok).map_err(|_| Gone),
            Err(clients) => Ok(Err(clients)),
        }
    }

    /// One more group starts, as at a start of the node. Links come up anew for it, see [`DriverControl::define`].
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn add(&self, group: AddedGroup) -> Result<(), Gone> {
        self.0.send(ControlQuestion::Add(Box::new(group))).await.map_err(|_| Gone)
    }

    /// A group stops cleanly and leaves, unless clients are attached to it that keep it: then they are returned. Resolves when its files are
    /// let go of; the group leaves also where nobody waits for that any more.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn remove(&self, group: GroupId, clients: ClientsOfRemoved) -> Result<Result<(), Vec<ClientInfo>>, Gone> {
        let (answer, wait) = oneshot::channel();
        self.0.send(ControlQuestion::Remove { group, clients, answer }).await.map_err(|_| Gone)?;
        match wait.await.map_err(|_| Gone)? {
            Ok(removed) => removed.await.map(Ok).map_err(|_| Gone),
            Err(clients) => Ok(Err(clients)),
        }
    }

    /// Has something else become of what clients of the group ask.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn clients(&self, group: GroupId, order: ClientsOrder) -> Result<(), Gone> {
        self.0.send(ControlQuestion::Clients { group, order }).await.map_err(|_| Gone)
    }

    /// The exports of the group are for this peer alone from now on, or for everybody.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn lend(&self, group: GroupId, to: Option<NodeId>) -> Result<(), Gone> {
        self.0.send(ControlQuestion::Lend { group, to }).await.map_err(|_| Gone)
    }

    /// Whether clients of the group wait for it to serve again.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn is_held(&self, group: GroupId) -> Result<bool, Gone> {
        let (answer, wait) = oneshot::channel();
        self.0.send(ControlQuestion::IsHeld { group, answer }).await.map_err(|_| Gone)?;
        wait.await.map_err(|_| Gone)
    }

    /// Clients of the group that still wait for it are cut off; whether they waited.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn part_with_held(&self, group: GroupId) -> Result<bool, Gone> {
        let (answer, wait) = oneshot::channel();
        self.0.send(ControlQuestion::PartWithHeld { group, answer }).await.map_err(|_| Gone)?;
        wait.await.map_err(|_| Gone)
    }

    /// From the next connections on this node defines other groups, of which `coming` are added soon; the links that are up end, and come
    /// again.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn define(&self, definitions: String, coming: Vec<GroupId>, reason: &str) -> Result<(), Gone> {
        let question = ControlQuestion::Define { definitions, coming, reason: reason.to_owned() };
        self.0.send(question).await.map_err(|_| Gone)
    }

    /// What clients asked of a group since the last such question; the first one begins to record.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn notes(&self, group: GroupId) -> Result<RecordedRequests, Gone> {
        let (answer, wait) = oneshot::channel();
        self.0.send(ControlQuestion::Notes { group, answer }).await.map_err(|_| Gone)?;
        wait.await.map_err(|_| Gone)
    }

    /// What each link did since the last time it was taken.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn minutes(&self, take: bool) -> Result<Vec<(NodeId, Minute)>, Gone> {
        let (answer, wait) = oneshot::channel();
        self.0.send(ControlQuestion::Minutes { take, answer }).await.map_err(|_| Gone)?;
        wait.await.map_err(|_| Gone)
    }

    /// Other socket options for all links: they connect again.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn retune(&self, options: SocketOptions) -> Result<(), Gone> {
        self.0.send(ControlQuestion::Retune(options)).await.map_err(|_| Gone)
    }

    /// Other ways with the frames of all links, which stay up.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn set_flow(&self, flow: FrameOptions) -> Result<(), Gone> {
        self.0.send(ControlQuestion::Flow(flow)).await.map_err(|_| Gone)
    }

    /// Ends all links, so that they come up again as new connections; the reason is for the log.
    ///
    /// # Errors
    /// The data thread has ended.
    pub async fn reconnect(&self, reason: &str) -> Result<(), Gone> {
        self.0.send(ControlQuestion::Reconnect { reason: reason.to_owned() }).await.map_err(|_| Gone)
    }

    /// Begins the clean stop; the thread ends when it is done or time is up.
    ///
    /// # Errors
    /// It has ended already.
    pub async fn stop(&self) -> Result<(), Gone> {
        self.0.send(ControlQuestion::Stop).await.map_err(|_| Gone)
    }
}
