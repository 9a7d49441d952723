//! The transmission phase: requests off the socket, in batches, into the data path.
//!
//! One turn: read what the socket has, hand over every complete request, then one `kick`. A write's payload is copied
//! at most once, from the received into the pool's buffer; what was not there yet is read straight into that buffer.

use std::io;
use std::rc::Rc;

use super::check::{RequestRefusal, RequestVerdict, SessionTerms, check};
use super::connection::{ClientConnection, LeaveReason};
use super::proto::{self, NbdCommand, NbdRequest, REQUEST_BYTES, flag};
use super::receive_buffer::{ReadAmount, ReceiveBuffer};
use crate::buffers::Buffer;
use crate::frontend::{ClientId, ClientOp, Gateway, Replies};

/// The payload of a refused write is read and thrown away up to here, so that the client gets its answer; beyond it
/// the connection ends, as the protocol allows.
const DISCARD_BYTES_MAX: u32 = 2 * proto::PAYLOAD_BYTES_MAX;

/// What follows the header that was read last.
enum RequestBody {
    None,
    /// A write whose payload is not complete.
    Payload {
        cookie: u64,
        offset: u64,
        fua: bool,
        buffer: Buffer,
        filled: usize,
    },
    /// A refused write whose payload is thrown away before the answer.
    Discard {
        request: NbdRequest,
        refusal: RequestRefusal,
        left: usize,
    },
}

/// Why the intake stopped taking requests.
enum IntakePause {
    /// It needs more bytes.
    Input,
    /// Too much is in flight for this one.
    Room(NbdCommand, usize),
    /// Other clients have what this one needs beyond its share.
    Share,
    /// The pool has no buffer.
    Memory,
    Disconnect,
    Violation(&'static str),
}

/// How a session ended.
#[derive(Debug)]
pub(super) enum SessionEnd {
    /// The client said goodbye: finish what was asked.
    Disconnect,
    /// The server or the export leaves.
    Leaving,
    /// The client is gone; nobody waits for answers.
    Vanished,
    /// The bytes were not NBD.
    Violation(&'static str),
    /// The bytes did not decrypt, and why.
    Broken(String),
}

pub(super) struct ClientSession {
    pub connection: Rc<ClientConnection>,
    pub gateway: Rc<dyn Gateway>,
    pub client: ClientId,
    pub terms: SessionTerms,
    pub received: ReceiveBuffer,
    body: RequestBody,
    /// Something was handed over since the last `kick`.
    gathered: bool,
}

impl ClientSession {
    pub fn new(
        connection: Rc<ClientConnection>,
        gateway: Rc<dyn Gateway>,
        client: ClientId,
        terms: SessionTerms,
        received: ReceiveBuffer,
    ) -> ClientSession {
        ClientSession { connection, gateway, client, terms, received, body: RequestBody::None, gathered: false }
    }

    /// Takes requests until the connection should end. Answers may still be due then.
    pub async fn run(&mut self) -> SessionEnd {
        let end = self.take_requests().await;
        if let RequestBody::Payload { cookie, .. } = std::mem::replace(&mut self.body, RequestBody::None) {
            self.connection.withdraw(cookie);
        }
        end
    }

    async fn take_requests(&mut self) -> SessionEnd {
        loop {
            let pause = self.advance();
            if std::mem::take(&mut self.gathered) {
                self.gateway.kick();
            }
            self.connection.push();
            match pause {
                IntakePause::Disconnect => return SessionEnd::Disconnect,
                IntakePause::Violation(reason) => return SessionEnd::Violation(reason),
                IntakePause::Room(command, payload) => self.paused(self.connection.room(command, payload)).await,
                IntakePause::Share => self.paused(self.connection.alongside(self.connection.memory_freed())).await,
                IntakePause::Memory => self.paused(self.connection.alongside(self.gateway.buffer_free())).await,
                IntakePause::Input => {
                    self.connection.readable().await;
                    if self.connection.leaving() == LeaveReason::No {
                        match self.receive() {
                            Ok(ReadAmount { total: Some(0), .. }) => return SessionEnd::Vanished,
                            // That is worth a line in the log, other than a connection that broke.
                            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                                return SessionEnd::Broken(error.to_string());
                            }
                            Err(_) => return SessionEnd::Vanished,
                            // A client that never pauses must not keep the thread from everyone else.
                            Ok(ReadAmount { full: true, .. }) => tokio::task::yield_now().await,
                            Ok(_) => {}
                        }
                    }
                }
            }
            match self.connection.leaving() {
                LeaveReason::No => {}
                LeaveReason::Stopping | LeaveReason::Gone => return SessionEnd::Leaving,
                LeaveReason::Broken => return SessionEnd::Vanished,
            }
        }
    }

    /// Waits. What is still unread of a client that hung up meanwhile is not begun any more: the client may have asked the same on another
    /// connection, and written over it since.
    async fn paused(&self, event: impl Future<Output = ()>) {
        event.await;
        self.connection.look_for_hang_up();
    }

    fn receive(&mut self) -> io::Result<ReadAmount> {
        let socket = self.connection.socket();
        match &mut self.body {
            RequestBody::Payload { buffer, filled, .. } => {
                let result = self.received.fill(socket, &mut buffer[*filled..])?;
                *filled += result.target;
                self.connection.awaits_payload(true, result.target);
                Ok(result)
            }
            _ => self.received.fill(socket, &mut []),
        }
    }

    /// Hands over every request that is complete and may go.
    fn advance(&mut self) -> IntakePause {
        loop {
            match std::mem::replace(&mut self.body, RequestBody::None) {
                RequestBody::None => {
                    if let Err(pause) = self.next_request() {
                        return pause;
                    }
                }
                RequestBody::Payload { cookie, offset, fua, mut buffer, mut filled } => {
                    let poured = self.received.pour(&mut buffer[filled..]);
                    filled += poured;
                    self.connection.awaits_payload(filled < buffer.len(), poured);
                    if filled < buffer.len() {
                        self.body = RequestBody::Payload { cookie, offset, fua, buffer, filled };
                        return IntakePause::Input;
                    }
                    self.submit(cookie, ClientOp::Write { offset, buffer, fua });
                }
                RequestBody::Discard { request, refusal, left } => {
                    let count = left.min(self.received.unread().len());
                    self.received.consume(count);
                    self.connection.awaits_payload(count < left, count);
                    if count < left {
                        self.body = RequestBody::Discard { request, refusal, left: left - count };
                        return IntakePause::Input;
                    }
                    self.connection.answer(&request, Some((refusal.errno, refusal.reason)));
                }
            }
        }
    }

    /// Takes one request's header and what it needs, or nothing at all.
    fn next_request(&mut self) -> Result<(), IntakePause> {
        let header = self.received.peek::<REQUEST_BYTES>().ok_or(IntakePause::Input)?;
        let request = proto::parse_request(header).map_err(|malformed| IntakePause::Violation(malformed.0))?;
        let verdict = check(&request, &self.terms);
        let serves_payload =
            verdict == RequestVerdict::Serve && matches!(request.command, NbdCommand::Read | NbdCommand::Write);
        let payload = if serves_payload { request.length as usize } else { 0 };
        if !self.connection.has_room(request.command, payload) {
            return Err(IntakePause::Room(request.command, payload));
        }
        if !self.connection.has_memory(request.command, payload) {
            return Err(IntakePause::Share);
        }
        let buffer = match serves_payload {
            true => Some(self.gateway.buffer(payload).ok_or(IntakePause::Memory)?),
            false => None,
        };
        self.received.consume(REQUEST_BYTES);
        self.connection.received(&request);
        match verdict {
            RequestVerdict::Serve => self.serve(&request, buffer),
            RequestVerdict::Nothing => self.connection.answer(&request, None),
            RequestVerdict::Leave => return Err(IntakePause::Disconnect),
            RequestVerdict::Refuse(refusal) => self.refuse(request, refusal)?,
        }
        Ok(())
    }

    fn refuse(&mut self, request: NbdRequest, refusal: RequestRefusal) -> Result<(), IntakePause> {
        if request.command != NbdCommand::Write || request.length == 0 {
            self.connection.answer(&request, Some((refusal.errno, refusal.reason)));
            return Ok(());
        }
        if request.length > DISCARD_BYTES_MAX {
            self.connection.answer(&request, Some((refusal.errno, refusal.reason)));
            return Err(IntakePause::Violation("a write's payload is too long even to be thrown away"));
        }
        self.body = RequestBody::Discard { request, refusal, left: request.length as usize };
        Ok(())
    }

    fn serve(&mut self, request: &NbdRequest, buffer: Option<Buffer>) {
        let NbdRequest { flags, command, offset, .. } = *request;
        let length = u64::from(request.length);
        let fua = flags & flag::FUA != 0;
        let payload = buffer.as_ref().map_or(0, |buffer| buffer.len());
        let cookie = self.connection.expect_answer(request, payload);
        let op = match (command, buffer) {
            (NbdCommand::Write, Some(buffer)) => {
                self.body = RequestBody::Payload { cookie, offset, fua, buffer, filled: 0 };
                return;
            }
            (NbdCommand::Read, Some(buffer)) => ClientOp::Read { offset, buffer },
            (NbdCommand::Flush, None) => ClientOp::Flush,
            (NbdCommand::Trim, None) => ClientOp::Trim { offset, length, fua },
            (NbdCommand::WriteZeroes, None) => {
                ClientOp::Zero { offset, length, fua, no_hole: flags & flag::NO_HOLE != 0 }
            }
            (NbdCommand::Cache, None) => ClientOp::Cache { offset, length },
            (NbdCommand::BlockStatus, None) => {
                ClientOp::BlockStatus { offset, length, one_extent: flags & flag::REQ_ONE != 0 }
            }
            (command, _) => {
                unreachable!("the check lets no {} through to be served", command.name())
            }
        };
        self.submit(cookie, op);
    }

    fn submit(&mut self, cookie: u64, op: ClientOp) {
        self.gateway.submit(self.client, cookie, op);
        self.gathered = true;
    }
}
