//! One client's line: its socket, the answers leaving on it, and the requests that still owe one.
//!
//! The data path calls [`Replies`] from wherever it stands; answers are encoded at once and leave with the next `push`,
//! in one write, right there. Only when the socket is full does the connection's own task come in: it is the sole
//! waiter, for bytes to read, for room to write, for a slot; whatever it waits for, it keeps the answers moving too.

use std::cell::{Cell, Ref, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::counters::Tally;
use super::outbox::{Outbox, Sent};
use super::proto::{self, Command, Errno, Request};
use super::shares::{Account, Shares};
use super::socket::Socket;
use super::visitor::Visitor;
use crate::buffers::{Buffer, cost_of};
use crate::frontend::{ClientInfo, Extent, Failure, Outcome, Replies};
use crate::tls::{Channel, ChannelError};

/// Extents in one block-status answer. Clients ask again for the rest; 4 096 describe 16 MiB of the worst scatter.
const EXTENTS_MAX: usize = 4096;
/// What a block status may cost in answer bytes, claimed when it is asked.
const EXTENTS_BYTES: usize = EXTENTS_MAX * 8;
/// Unsent answer heads above which no further request is read: a client that asks must also listen.
const HEADS_BYTES_MAX: usize = 256 << 10;
/// Looks in a row that find a client stalled, before it is cut off. Looks are counted instead of time: a thread of ours that stood
/// still for long is no fault of the client's.
pub(super) const LOOKS_MAX: u32 = 8;
/// Between two looks at least so much has to move, for it to count as moving.
const MOVE_BYTES_MIN: u64 = 4096;

/// How much one client may have in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    pub requests: usize,
    pub bytes: usize,
}

/// Whether what a client owes us moves.
#[derive(Default)]
struct Moving {
    /// It has begun to send a payload, and the rest is not here.
    is_owed: Cell<bool>,
    /// So much has moved since the connection was made.
    bytes: Cell<u64>,
    bytes_before: Cell<u64>,
    looks: Cell<u32>,
}

impl Moving {
    fn moved(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Whether nothing that was owed moved for too long.
    fn has_stalled(&self, is_owed: bool) -> bool {
        let now = self.bytes.get();
        let moved = now - self.bytes_before.replace(now);
        self.looks.set(if is_owed && moved < MOVE_BYTES_MIN { self.looks.get() + 1 } else { 0 });
        self.looks.get() >= LOOKS_MAX
    }
}

/// Why the connection should end, apart from what the client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    No,
    /// The server stops: finish what was asked, then close.
    Stopping,
    /// The export is gone: send what is queued, then close.
    Gone,
    /// The socket is broken.
    Broken,
}

/// A client's time at an export.
struct Stay {
    export: String,
    since: Instant,
    last_request: Option<Instant>,
}

pub(super) struct Connection {
    pub socket: Socket,
    pub visitor: Visitor,
    /// Once it has chosen an export.
    stay: RefCell<Option<Stay>>,
    pub tally: Rc<Tally>,
    outbox: RefCell<Outbox>,
    owed: RefCell<Owed>,
    allowance: Allowance,
    pub account: Account,
    incoming: Moving,
    outgoing: Moving,
    structured: Cell<bool>,
    leaving: Cell<Leaving>,
    /// The socket is full: the task writes, `push` does not.
    blocked: Cell<bool>,
    /// The task waits for answers to leave or to fall due.
    starved: Cell<bool>,
    /// The connection's own task.
    waiter: RefCell<Option<Waker>>,
}

impl Connection {
    pub fn new(
        socket: Socket,
        visitor: Visitor,
        (allowance, shares): (Allowance, Rc<Shares>),
        tally: Rc<Tally>,
    ) -> Connection {
        Connection {
            socket,
            visitor,
            stay: RefCell::default(),
            tally,
            outbox: RefCell::default(),
            owed: RefCell::default(),
            allowance,
            account: Account::new(shares),
            incoming: Moving::default(),
            outgoing: Moving::default(),
            structured: Cell::new(false),
            leaving: Cell::new(Leaving::No),
            blocked: Cell::new(false),
            starved: Cell::new(false),
            waiter: RefCell::default(),
        }
    }

    /// From now on reads and errors are answered with structured chunks.
    pub fn use_structured_replies(&self) {
        self.structured.set(true);
    }

    /// The export it is at.
    pub fn export(&self) -> Option<Ref<'_, str>> {
        Ref::filter_map(self.stay.borrow(), |stay| stay.as_ref().map(|stay| stay.export.as_str())).ok()
    }

    /// It has chosen this export.
    pub fn entered(&self, export: &str) {
        let stay = Stay { export: export.to_owned(), since: Instant::now(), last_request: None };
        *self.stay.borrow_mut() = Some(stay);
    }

    /// A request has come.
    pub fn received(&self, request: &Request) {
        self.tally.received(request.command, request.flags);
        if let Some(stay) = self.stay.borrow_mut().as_mut() {
            stay.last_request = Some(Instant::now());
        }
    }

    /// What people may want to know about it; `None`: it has chosen no export.
    pub fn info(&self) -> Option<ClientInfo> {
        self.stay.borrow().as_ref().map(|stay| ClientInfo {
            export: stay.export.clone(),
            who: self.visitor.who.clone(),
            attached: stay.since.elapsed(),
            last_request: stay.last_request.map(|at| at.elapsed()),
        })
    }

    pub fn leaving(&self) -> Leaving {
        self.leaving.get()
    }

    /// The server stops; a connection that already has a stronger reason keeps it.
    pub fn stop(&self) {
        if self.leaving.get() == Leaving::No {
            self.leaving.set(Leaving::Stopping);
            self.wake();
        }
    }

    /// A payload is awaited, or has come in full; so many bytes of payloads have come.
    pub fn awaits_payload(&self, is_owed: bool, came_bytes: usize) {
        self.incoming.is_owed.set(is_owed);
        // A payload that has come in full is a move, however short it is.
        self.incoming.moved(if is_owed { came_bytes as u64 } else { MOVE_BYTES_MIN });
    }

    /// To be asked from time to time: why this client has to be cut off, if it has.
    pub fn look(&self) -> Option<&'static str> {
        let is_blocked = self.blocked.get() && self.leaving.get() != Leaving::Broken;
        // Both have to look each time.
        let (incoming, outgoing) =
            (self.incoming.has_stalled(self.incoming.is_owed.get()), self.outgoing.has_stalled(is_blocked));
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

    /// What this client holds has changed.
    fn settle(&self) {
        self.account.set(self.owed.borrow().bytes + self.outbox.borrow().payload_bytes());
    }

    /// May a request with this payload be taken now? A lone request always may, however large.
    pub fn has_room(&self, command: Command, payload_bytes: usize) -> bool {
        let owed = self.owed.borrow();
        let outbox = self.outbox.borrow();
        let bytes = owed.bytes + outbox.payload_bytes();
        owed.count < self.allowance.requests
            && outbox.head_bytes() < HEADS_BYTES_MAX
            && (bytes == 0 || bytes + cost(command, payload_bytes) <= self.allowance.bytes)
    }

    /// Notes a request that will be answered; the cookie finds it again.
    pub fn owe(&self, request: &Request, payload_bytes: usize) -> u64 {
        let cookie = self.owed.borrow_mut().insert(Due {
            handle: request.handle,
            command: request.command,
            offset: request.offset,
            length: request.length,
            one_extent: request.flags & proto::flag::REQ_ONE != 0,
            cost: cost(request.command, payload_bytes),
        });
        self.settle();
        cookie
    }

    /// Takes back a request that was never handed on, because its payload will not come.
    pub fn forgive(&self, cookie: u64) {
        self.owed.borrow_mut().remove(cookie);
        self.settle();
    }

    /// Answers at once, without the data path: `None` is success.
    pub fn answer(&self, request: &Request, refusal: Option<(Errno, &str)>) {
        let mut outbox = self.outbox.borrow_mut();
        match refusal {
            Some((errno, reason)) => {
                self.tally.failed(request.command);
                self.put_error(&mut outbox, request.handle, errno, reason);
            }
            None => {
                self.tally.done(request.command, 0);
                // An empty read has no data chunk; any other answer without payload may be simple.
                if self.structured.get() && request.command == Command::Read {
                    outbox.head(&proto::last_chunk(proto::chunk::NONE, request.handle, 0));
                } else {
                    outbox.head(&proto::simple_reply(request.handle, None));
                }
            }
        }
    }

    /// Queues bytes of the handshake.
    pub fn say(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.outbox.borrow_mut().head(bytes);
        }
    }

    fn put_error(&self, outbox: &mut Outbox, handle: u64, errno: Errno, reason: &str) {
        if !self.structured.get() {
            outbox.head(&proto::simple_reply(handle, Some(errno)));
            return;
        }
        let length = u16::try_from(reason.len()).expect("an error's sentence is short");
        outbox.head(&proto::last_chunk(proto::chunk::ERROR, handle, 6 + u32::from(length)));
        outbox.head(&errno.code().to_be_bytes());
        outbox.head(&length.to_be_bytes());
        outbox.head(reason.as_bytes());
    }

    fn put_data(&self, outbox: &mut Outbox, due: &Due, buffer: Buffer) {
        assert_eq!(buffer.len(), due.length as usize, "the data path answered a read with another length");
        if self.structured.get() {
            outbox.head(&proto::last_chunk(proto::chunk::OFFSET_DATA, due.handle, due.length + 8));
            outbox.head(&due.offset.to_be_bytes());
        } else {
            outbox.head(&proto::simple_reply(due.handle, None));
        }
        outbox.data(buffer);
    }

    fn put_extents(&self, outbox: &mut Outbox, due: &Due, extents: &[Extent]) {
        let described = describe(extents, due.length, if due.one_extent { 1 } else { EXTENTS_MAX });
        let count = u32::try_from(described.len()).expect("extents are bounded");
        outbox.head(&proto::last_chunk(proto::chunk::BLOCK_STATUS, due.handle, 4 + 8 * count));
        outbox.head(&proto::ALLOCATION_ID.to_be_bytes());
        for (length, state) in described {
            outbox.head(&length.to_be_bytes());
            outbox.head(&state.to_be_bytes());
        }
    }

    /// Writes what is queued, as far as the socket takes it.
    fn send(&self) {
        let unsent = self.outbox.borrow().bytes();
        let result = self.outbox.borrow_mut().send(&self.socket);
        self.outgoing.moved((unsent - self.outbox.borrow().bytes()) as u64);
        self.settle();
        match result {
            Ok(Sent::All) => self.blocked.set(false),
            Ok(Sent::Part) => self.blocked.set(true),
            Err(error) => {
                tracing::debug!(%error, "an NBD client stopped listening");
                self.abandon();
                self.wake();
            }
        }
    }

    /// Nobody listens any more: the payloads go back to the pool now, whoever still holds this line.
    fn abandon(&self) {
        self.leaving.set(Leaving::Broken);
        self.blocked.set(false);
        *self.outbox.borrow_mut() = Outbox::default();
        self.settle();
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
            if self.leaving.get() != Leaving::No {
                return Poll::Ready(());
            }
            self.socket.poll_read_ready(context).map(|_| ())
        })
        .await;
    }

    /// Waits until `enough` holds, looked at whenever an answer falls due or leaves.
    async fn until(&self, enough: impl Fn(&Connection) -> bool) {
        poll_fn(|context| {
            self.progress(context);
            if enough(self) || self.leaving.get() == Leaving::Broken {
                self.starved.set(false);
                return Poll::Ready(());
            }
            self.starved.set(true);
            Poll::Pending
        })
        .await;
    }

    /// Waits for [`Connection::has_room`], or until the connection should end.
    pub async fn room(&self, command: Command, payload_bytes: usize) {
        self.until(|line| line.leaving.get() != Leaving::No || line.has_room(command, payload_bytes)).await;
    }

    /// Waits for `event` while answers keep leaving, or until the connection should end.
    pub async fn alongside(&self, event: impl Future<Output = ()>) {
        let mut event = std::pin::pin!(event);
        poll_fn(|context| {
            self.progress(context);
            if self.leaving.get() != Leaving::No { Poll::Ready(()) } else { event.as_mut().poll(context) }
        })
        .await;
    }

    /// Nothing waits to be sent, here or in the socket's encryption.
    fn has_sent_all(&self) -> bool {
        self.outbox.borrow().is_empty() && !self.blocked.get()
    }

    /// Encrypts the line from here on, and carries the handshake to its end.
    pub async fn encrypt(&self, channel: Channel) -> Result<(), ChannelError> {
        self.socket.encrypt(channel);
        poll_fn(|context| {
            self.progress(context);
            loop {
                if self.leaving.get() != Leaving::No {
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
        self.until(Connection::has_sent_all).await;
        if self.leaving() == Leaving::Broken { Err("the client left during the handshake") } else { Ok(()) }
    }

    /// Waits until every request is answered and every answer has left, or nobody listens.
    pub async fn settled(&self) {
        let settled = |line: &Connection| {
            let answered = line.owed.borrow().count == 0 || line.leaving.get() == Leaving::Gone;
            answered && line.has_sent_all()
        };
        self.until(settled).await;
    }
}

impl Connection {
    fn put_outcome(&self, due: Due, outcome: Outcome) {
        let mut outbox = self.outbox.borrow_mut();
        match (due.command, outcome) {
            (command, Outcome::Failed(failure)) => {
                self.tally.failed(command);
                self.put_error(&mut outbox, due.handle, failure.into(), sentence(failure));
                return;
            }
            (Command::Read, Outcome::Data(buffer)) => self.put_data(&mut outbox, &due, buffer),
            (Command::BlockStatus, Outcome::Extents(extents)) => self.put_extents(&mut outbox, &due, &extents),
            (
                Command::Write | Command::Flush | Command::Trim | Command::WriteZeroes | Command::Cache,
                Outcome::Done,
            ) => {
                outbox.head(&proto::simple_reply(due.handle, None));
            }
            (command, outcome) => panic!("the data path answered a {} with {outcome:?}", command.name()),
        }
        self.tally.done(due.command, u64::from(due.length));
    }
}

impl Replies for Connection {
    fn complete(&self, cookie: u64, outcome: Outcome) {
        let due = self.owed.borrow_mut().remove(cookie);
        if self.leaving.get() != Leaving::Broken {
            self.put_outcome(due, outcome);
        }
        self.settle();
    }

    fn push(&self) {
        if !self.blocked.get() && !self.outbox.borrow().is_empty() {
            self.send();
        }
        if self.blocked.get() || self.starved.get() {
            self.wake();
        }
    }

    fn gone(&self) {
        if self.leaving.get() != Leaving::Broken {
            self.leaving.set(Leaving::Gone);
        }
        self.wake();
    }
}

fn sentence(failure: Failure) -> &'static str {
    match failure {
        Failure::Io => "the volume failed; if this was a write, its outcome is unknown",
        Failure::NoSpace => "there is no space left for this request",
        Failure::Invalid => "the volume refused the request as invalid",
        Failure::NotSupported => "the volume cannot do this",
        Failure::NoMemory => "the server has no memory left for this request",
        Failure::Gone => "the export is no longer served here",
    }
}

/// Bytes of memory a request claims until its answer has left.
pub(super) fn cost(command: Command, payload_bytes: usize) -> usize {
    match command {
        Command::BlockStatus => EXTENTS_BYTES,
        _ if payload_bytes == 0 => 0,
        _ => cost_of(payload_bytes),
    }
}

/// The extents as NBD tells them: within the request, equal neighbours joined, at least one and at most `limit`.
///
/// An empty list becomes "data", which the protocol allows for any range.
fn describe(extents: &[Extent], length: u32, limit: usize) -> Vec<(u32, u32)> {
    let mut described: Vec<(u32, u32)> = Vec::with_capacity(extents.len().min(limit));
    let mut left = length;
    for extent in extents {
        let step = u32::try_from(extent.length).unwrap_or(u32::MAX).min(left);
        if step == 0 {
            continue;
        }
        left -= step;
        let hole = if extent.hole { proto::STATE_HOLE } else { 0 };
        let zero = if extent.zero { proto::STATE_ZERO } else { 0 };
        let full = described.len() == limit;
        match described.last_mut() {
            Some((length, state)) if *state == hole | zero => *length += step,
            _ if full => break,
            _ => described.push((step, hole | zero)),
        }
    }
    if described.is_empty() {
        described.push((length, 0));
    }
    described
}

/// A request that owes an answer.
#[derive(Clone, Copy)]
struct Due {
    handle: u64,
    command: Command,
    offset: u64,
    length: u32,
    one_extent: bool,
    cost: usize,
}

/// Requests in flight, found by cookie: a table whose places are reused, each with a turn number so that an answer
/// given twice is noticed.
#[derive(Default)]
struct Owed {
    places: Vec<(u32, Option<Due>)>,
    free: Vec<u32>,
    count: usize,
    bytes: usize,
}

impl Owed {
    fn insert(&mut self, due: Due) -> u64 {
        self.count += 1;
        self.bytes += due.cost;
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            u32::try_from(self.places.len() - 1).expect("the allowance bounds the table")
        });
        let (turn, content) = &mut self.places[place as usize];
        *turn = turn.wrapping_add(1);
        *content = Some(due);
        u64::from(*turn) << 32 | u64::from(place)
    }

    fn remove(&mut self, cookie: u64) -> Due {
        let place = cookie as u32;
        let (turn, content) = &mut self.places[place as usize];
        assert_eq!(u64::from(*turn), cookie >> 32, "the data path answered a request of an earlier turn");
        let due = content.take().expect("the data path answered a request twice");
        self.free.push(place);
        self.count -= 1;
        self.bytes -= due.cost;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(length: u64, hole: bool) -> Extent {
        Extent { length, hole, zero: hole }
    }

    #[test]
    fn extents_are_joined_and_cut_to_the_request() {
        let extents = [extent(1024, false), extent(512, false), extent(1 << 40, true), extent(512, false)];
        assert_eq!(describe(&extents, u32::MAX - 511, 9), [(1536, 0), (u32::MAX - 511 - 1536, 3)]);
        assert_eq!(describe(&extents, u32::MAX - 511, 1), [(1536, 0)]);
        assert_eq!(describe(&extents, 1536, 9), [(1536, 0)]);
        assert_eq!(describe(&[], 512, 9), [(512, 0)]);
        assert_eq!(describe(&[extent(0, true)], 512, 9), [(512, 0)]);
    }

    #[test]
    fn a_scattered_answer_is_bounded() {
        let extents: Vec<_> = (0..3 * EXTENTS_MAX).map(|index| extent(512, index % 2 == 0)).collect();
        assert_eq!(describe(&extents, u32::MAX, EXTENTS_MAX).len(), EXTENTS_MAX);
    }

    fn a_read() -> Due {
        Due { handle: 5, command: Command::Read, offset: 0, length: 512, one_extent: false, cost: 512 }
    }

    #[test]
    fn places_are_reused_and_cookies_are_not() {
        let due = a_read();
        let mut owed = Owed::default();
        let first = owed.insert(due);
        assert_eq!(owed.remove(first).handle, 5);
        let second = owed.insert(due);
        assert_ne!(first, second);
        assert_eq!((owed.places.len(), owed.count, owed.bytes), (1, 1, 512));
    }

    #[test]
    #[should_panic(expected = "an earlier turn")]
    fn an_answer_given_late_is_a_bug() {
        let due = a_read();
        let mut owed = Owed::default();
        let first = owed.insert(due);
        owed.remove(first);
        owed.insert(due);
        owed.remove(first);
    }
}
