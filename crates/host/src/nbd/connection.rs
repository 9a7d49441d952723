//! One client's connection: its socket, the answers leaving on it, and the requests that still owe one.
//!
//! The data path calls [`Replies`] from wherever it stands; answers are encoded at once and leave with the next `push`,
//! in one write, right there. Only when the socket is full does the connection's own task come in: it is the sole
//! waiter, for bytes to read, for room to write, for memory; whatever it waits for, it keeps the answers moving too.

use std::cell::{Cell, Ref, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::answer_queue::SendState;
use super::answers::NbdAnswers;
use super::client_origin::ClientOrigin;
use super::counters::{ExportTally, SharedCounters};
use super::memory_shares::{MemoryAccount, MemoryShares};
use super::pending_requests::{PendingRequest, PendingRequests, cost};
use super::proto::{Errno, NbdCommand, NbdRequest};
use super::socket::ClientSocket;
use super::stall::StallWatch;
use crate::frontend::{ClientInfo, ClientUsage, Replies, RequestOutcome};
use crate::tls::{Channel, ChannelError};

/// Unsent answer heads above which no further request is read: a client that asks must also listen.
const HEADS_BYTES_MAX: usize = 256 << 10;

/// How much one client may have in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientLimits {
    pub requests: usize,
    pub bytes: usize,
}

/// Why the connection should end, apart from what the client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaveReason {
    No,
    /// The server stops: finish what was asked, then close.
    Stopping,
    /// The export is gone: send what is queued, then close.
    Gone,
    /// The socket is broken.
    Broken,
}

/// The export that a client has chosen.
struct ChosenExport {
    export: String,
    since: Instant,
    last_request: Option<Instant>,
    last_flush: Option<Instant>,
    usage: ClientUsage,
    /// What all clients of the export ask of it.
    tally: ExportTally,
    agreed: Vec<&'static str>,
    /// Whom its certificate names: read once, as people ask again and again.
    certificate: Option<String>,
}

impl ChosenExport {
    fn count(&mut self, request: &NbdRequest) {
        let sum = match request.command {
            NbdCommand::Read => &mut self.usage.reads,
            NbdCommand::Write => &mut self.usage.writes,
            NbdCommand::Flush => &mut self.usage.flushes,
            NbdCommand::Trim => &mut self.usage.trims,
            NbdCommand::WriteZeroes => &mut self.usage.zeroes,
            NbdCommand::Disconnect | NbdCommand::Cache | NbdCommand::BlockStatus | NbdCommand::Unknown => return,
        };
        sum.requests += 1;
        sum.bytes += u64::from(request.length);
    }
}

pub(super) struct ClientConnection {
    socket: ClientSocket,
    origin: ClientOrigin,
    chosen: RefCell<Option<ChosenExport>>,
    tally: Rc<SharedCounters>,
    answers: RefCell<NbdAnswers>,
    pending: RefCell<PendingRequests>,
    limits: ClientLimits,
    account: MemoryAccount,
    /// It has begun to send a payload, and the rest is not here.
    is_payload_owed: Cell<bool>,
    incoming: StallWatch,
    outgoing: StallWatch,
    leaving: Cell<LeaveReason>,
    /// The socket is full: the task writes, `push` does not.
    blocked: Cell<bool>,
    /// The task waits for answers to leave or to fall due.
    starved: Cell<bool>,
    /// The connection's own task.
    waiter: RefCell<Option<Waker>>,
}

impl ClientConnection {
    pub fn new(
        socket: ClientSocket,
        origin: ClientOrigin,
        (limits, shares): (ClientLimits, Rc<MemoryShares>),
        tally: Rc<SharedCounters>,
    ) -> ClientConnection {
        ClientConnection {
            socket,
            origin,
            chosen: RefCell::default(),
            tally,
            answers: RefCell::default(),
            pending: RefCell::default(),
            limits,
            account: MemoryAccount::new(shares),
            is_payload_owed: Cell::new(false),
            incoming: StallWatch::default(),
            outgoing: StallWatch::default(),
            leaving: Cell::new(LeaveReason::No),
            blocked: Cell::new(false),
            starved: Cell::new(false),
            waiter: RefCell::default(),
        }
    }

    pub fn socket(&self) -> &ClientSocket {
        &self.socket
    }

    pub fn origin(&self) -> &ClientOrigin {
        &self.origin
    }

    /// From now on reads and errors are answered with structured chunks.
    pub fn use_structured_replies(&self) {
        self.answers.borrow_mut().use_structured_replies();
    }

    /// The export it is at.
    pub fn export(&self) -> Option<Ref<'_, str>> {
        Ref::filter_map(self.chosen.borrow(), |chosen| chosen.as_ref().map(|chosen| chosen.export.as_str())).ok()
    }

    /// It has chosen this export, and agreed to so much.
    pub fn entered(&self, export: &str, mut agreed: Vec<&'static str>) {
        if self.socket.is_encrypted() {
            agreed.insert(0, "tls");
        }
        let chosen = ChosenExport {
            export: export.to_owned(),
            since: Instant::now(),
            last_request: None,
            last_flush: None,
            usage: ClientUsage::default(),
            tally: self.tally.of_export(export),
            agreed,
            certificate: self.socket.certificate().map(|facts| facts.holder()),
        };
        *self.chosen.borrow_mut() = Some(chosen);
    }

    /// A request has come.
    pub fn received(&self, request: &NbdRequest) {
        self.tally.received(request.command, request.flags);
        if let Some(chosen) = self.chosen.borrow_mut().as_mut() {
            chosen.last_request = Some(Instant::now());
            chosen.count(request);
        }
    }

    fn flushed(&self) {
        if let Some(chosen) = self.chosen.borrow_mut().as_mut() {
            chosen.last_flush = Some(Instant::now());
        }
    }

    /// What people may want to know about it; `None`: it has chosen no export.
    pub fn info(&self) -> Option<ClientInfo> {
        self.chosen.borrow().as_ref().map(|chosen| ClientInfo {
            export: chosen.export.clone(),
            who: self.origin.who.clone(),
            attached: chosen.since.elapsed(),
            last_request: chosen.last_request.map(|at| at.elapsed()),
            address: self.origin.address,
            process: self.origin.process,
            user: self.origin.user,
            certificate: chosen.certificate.clone(),
            agreed: chosen.agreed.clone(),
            usage: chosen.usage,
            in_flight: self.pending.borrow().count(),
            last_flush: chosen.last_flush.map(|at| at.elapsed()),
        })
    }

    pub fn leaving(&self) -> LeaveReason {
        self.leaving.get()
    }

    /// The server stops; a connection that already has a stronger reason keeps it.
    pub fn stop(&self) {
        if self.leaving.get() == LeaveReason::No {
            self.leaving.set(LeaveReason::Stopping);
            self.wake();
        }
    }

    /// A payload is awaited, or has come in full; so many bytes of payloads have come.
    pub fn awaits_payload(&self, is_owed: bool, came_bytes: usize) {
        self.is_payload_owed.set(is_owed);
        if is_owed { self.incoming.moved(came_bytes as u64) } else { self.incoming.moved_whole() }
    }

    /// To be asked from time to time: why this client has to be cut off, if it has.
    pub fn look(&self) -> Option<&'static str> {
        let is_blocked = self.blocked.get() && self.leaving.get() != LeaveReason::Broken;
        // Both have to look each time.
        let (incoming, outgoing) =
            (self.incoming.has_stalled(self.is_payload_owed.get()), self.outgoing.has_stalled(is_blocked));
        match (incoming, outgoing) {
            (true, _) => Some("it began a write and did not send the rest"),
            (_, true) => Some("it asked and did not take the answers"),
            _ => None,
        }
    }

    /// Ends the session without waiting for the client.
    pub fn cut_off(&self) {
        self.abandon();
        self.wake();
    }

    /// Memory that its requests and answers hold.
    fn held_bytes(&self) -> usize {
        self.pending.borrow().bytes() + self.answers.borrow().queue().payload_bytes()
    }

    /// What this client holds has changed.
    fn update_account(&self) {
        self.account.set(self.held_bytes());
    }

    /// May a request with this payload be taken now? A lone request always may, however large.
    pub fn has_room(&self, command: NbdCommand, payload_bytes: usize) -> bool {
        let bytes = self.held_bytes();
        self.pending.borrow().count() < self.limits.requests
            && self.answers.borrow().queue().head_bytes() < HEADS_BYTES_MAX
            && (bytes == 0 || bytes + cost(command, payload_bytes) <= self.limits.bytes)
    }

    /// Do the other clients leave the memory for it? If not, [`ClientConnection::memory_freed`] says when to ask again.
    pub fn has_memory(&self, command: NbdCommand, payload_bytes: usize) -> bool {
        self.account.may_take(cost(command, payload_bytes))
    }

    pub async fn memory_freed(&self) {
        self.account.freed().await;
    }

    /// Notes a request that will be answered; the cookie finds it again.
    pub fn expect_answer(&self, request: &NbdRequest, payload_bytes: usize) -> u64 {
        let since = self.chosen.borrow().as_ref().and_then(|chosen| chosen.last_request);
        let since = since.expect("its head was noted just before");
        let cookie = self.pending.borrow_mut().insert(PendingRequest::new(request, payload_bytes, since));
        self.update_account();
        cookie
    }

    /// Takes back a request that was never handed on, because its payload will not come.
    pub fn withdraw(&self, cookie: u64) {
        self.pending.borrow_mut().remove(cookie);
        self.update_account();
    }

    /// Answers at once, without the data path: `None` is success.
    pub fn answer(&self, request: &NbdRequest, refusal: Option<(Errno, &str)>) {
        let mut answers = self.answers.borrow_mut();
        match refusal {
            Some((errno, reason)) => {
                self.tally.failed(request.command);
                answers.put_error(request.handle, errno, reason);
            }
            None => {
                self.tally.done(request.command, 0);
                answers.put_nothing(request.command, request.handle);
            }
        }
    }

    /// Queues bytes of the handshake.
    pub fn say(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.answers.borrow_mut().put_plain(bytes);
        }
    }

    /// Writes what is queued, as far as the socket takes it.
    fn send(&self) {
        let mut answers = self.answers.borrow_mut();
        let unsent = answers.queue().bytes();
        let result = answers.send(&self.socket);
        self.outgoing.moved((unsent - answers.queue().bytes()) as u64);
        drop(answers);
        self.update_account();
        match result {
            Ok(SendState::All) => self.blocked.set(false),
            Ok(SendState::Part) => self.blocked.set(true),
            Err(error) => {
                tracing::debug!(%error, "an NBD client stopped listening");
                self.abandon();
                self.wake();
            }
        }
    }

    /// Nobody listens any more: the payloads go back to the pool now, whoever still holds this line.
    fn abandon(&self) {
        self.leaving.set(LeaveReason::Broken);
        self.blocked.set(false);
        self.answers.borrow_mut().clear();
        self.update_account();
    }

    /// Notices a client that has gone, which reading would show only behind all that it sent.
    pub fn look_for_hang_up(&self) {
        if self.leaving.get() == LeaveReason::No && self.socket.is_hung_up() {
            self.abandon();
        }
    }

    /// Ends the conversation for both sides, even while the data path still knows this line.
    pub fn hang_up(&self) {
        self.socket.say_end();
        self.abandon();
        self.account.close();
        // It fails when the client has hung up first.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    fn wake(&self) {
        if let Some(waiter) = self.waiter.borrow_mut().take() {
            waiter.wake();
        }
    }

    /// Keeps answers moving while the task waits for something else.
    fn progress(&self, context: &mut Context<'_>) {
        let mut waiter = self.waiter.borrow_mut();
        if !waiter.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *waiter = Some(context.waker().clone());
        }
        drop(waiter);
        while self.blocked.get() && self.socket.poll_write_ready(context).is_ready() {
            self.send();
        }
    }

    /// Waits until the socket has bytes, or the connection should end.
    pub async fn readable(&self) {
        poll_fn(|context| {
            self.progress(context);
            if self.leaving.get() != LeaveReason::No {
                return Poll::Ready(());
            }
            self.socket.poll_read_ready(context).map(|_| ())
        })
        .await;
    }

    /// Waits until `enough` holds, looked at whenever an answer falls due or leaves.
    async fn until(&self, enough: impl Fn(&ClientConnection) -> bool) {
        poll_fn(|context| {
            self.progress(context);
            if enough(self) || self.leaving.get() == LeaveReason::Broken {
                self.starved.set(false);
                return Poll::Ready(());
            }
            self.starved.set(true);
            Poll::Pending
        })
        .await;
    }

    /// Waits for [`ClientConnection::has_room`], or until the connection should end.
    pub async fn room(&self, command: NbdCommand, payload_bytes: usize) {
        self.until(|us| us.leaving.get() != LeaveReason::No || us.has_room(command, payload_bytes)).await;
    }

    /// Waits for `event` while answers keep leaving, or until the connection should end.
    pub async fn alongside(&self, event: impl Future<Output = ()>) {
        let mut event = std::pin::pin!(event);
        poll_fn(|context| {
            self.progress(context);
            if self.leaving.get() != LeaveReason::No { Poll::Ready(()) } else { event.as_mut().poll(context) }
        })
        .await;
    }

    /// Nothing waits to be sent, here or in the socket's encryption.
    fn has_sent_all(&self) -> bool {
        self.answers.borrow().queue().is_empty() && !self.blocked.get()
    }

    /// Encrypts the line from here on, and carries the handshake to its end.
    pub async fn encrypt(&self, channel: Channel) -> Result<(), ChannelError> {
        self.socket.encrypt(channel);
        poll_fn(|context| {
            self.progress(context);
            loop {
                if self.leaving.get() != LeaveReason::No {
                    return Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()));
                }
                if self.socket.shake()? {
                    return Poll::Ready(Ok(()));
                }
                let may_write = self.socket.is_pending() && self.socket.poll_write_ready(context)?.is_ready();
                if !may_write && self.socket.poll_read_ready(context)?.is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Sends everything queued, waiting for room as long as it takes.
    ///
    /// # Errors
    /// Nobody listens any more.
    pub async fn push_all(&self) -> Result<(), &'static str> {
        self.push();
        self.until(ClientConnection::has_sent_all).await;
        if self.leaving() == LeaveReason::Broken { Err("the client left during the handshake") } else { Ok(()) }
    }

    /// Waits until every request is answered and every answer has left, or nobody listens.
    pub async fn drained(&self) {
        let drained = |us: &ClientConnection| {
            let is_answered = us.pending.borrow().count() == 0 || us.leaving.get() == LeaveReason::Gone;
            is_answered && us.has_sent_all()
        };
        self.until(drained).await;
    }
}

impl Replies for ClientConnection {
    fn complete(&self, cookie: u64, outcome: RequestOutcome) {
        let request = self.pending.borrow_mut().remove(cookie);
        if self.leaving.get() != LeaveReason::Broken {
            if self.answers.borrow_mut().put_outcome(&request, outcome) {
                let (bytes, took) = (u64::from(request.length), request.since.elapsed());
                self.tally.done_in(request.command, bytes, took);
                if let Some(chosen) = self.chosen.borrow().as_ref() {
                    chosen.tally.done(request.command, bytes, took);
                }
                if request.command == NbdCommand::Flush {
                    self.flushed();
                }
            } else {
                self.tally.failed(request.command);
            }
        }
        self.update_account();
    }

    fn push(&self) {
        if !self.blocked.get() && !self.answers.borrow().queue().is_empty() {
            self.send();
        }
        if self.blocked.get() || self.starved.get() {
            self.wake();
        }
    }

    fn fenced(&self) {
        self.cut_off();
    }

    fn gone(&self) {
        if self.leaving.get() != LeaveReason::Broken {
            self.leaving.set(LeaveReason::Gone);
        }
        self.wake();
    }
}
