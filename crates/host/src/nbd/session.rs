//! The transmission phase: requests off the socket, in batches, into the data path.
//!
//! One turn: read what the socket has, hand over every complete request, then one `kick`. A write's payload is copied
//! at most once, from the received into the pool's buffer; what was not there yet is read straight into that buffer.

use std::io;
use std::rc::Rc;

use super::check::{Refusal, Terms, Verdict, check};
use super::connection::{Connection, Leaving};
use super::proto::{self, Command, REQUEST_BYTES, Request, flag};
use super::receive_buffer::{ReceiveBuffer, Received};
use crate::buffers::Buffer;
use crate::frontend::{ClientId, Gateway, Op, Replies};

/// The payload of a refused write is read and thrown away up to here, so that the client gets its answer; beyond it
/// the connection ends, as the protocol allows.
const DISCARD_BYTES_MAX: u32 = 2 * proto::PAYLOAD_BYTES_MAX;

/// What follows the header that was read last.
enum Body {
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
        request: Request,
        refusal: Refusal,
        left: usize,
    },
}

/// Why the intake stopped taking requests.
enum Pause {
    /// It needs more bytes.
    Input,
    /// Too much is in flight for this one.
    Room(Command, usize),
    /// Other clients have what this one needs beyond its share.
    Share,
    /// The pool has no buffer.
    Memory,
    Disconnect,
    Violation(&'static str),
}

/// How a session ended.
#[derive(Debug)]
pub(super) enum End {
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

pub(super) struct Session {
    pub connection: Rc<Connection>,
    pub gateway: Rc<dyn Gateway>,
    pub client: ClientId,
    pub terms: Terms,
    pub received: ReceiveBuffer,
    body: Body,
    /// Something was handed over since the last `kick`.
    gathered: bool,
}

impl Session {
    pub fn new(
        connection: Rc<Connection>,
        gateway: Rc<dyn Gateway>,
        client: ClientId,
        terms: Terms,
        received: ReceiveBuffer,
    ) -> Session {
        Session { connection, gateway, client, terms, received, body: Body::None, gathered: false }
    }

    /// Takes requests until the connection should end. Answers may still be due then.
    pub async fn run(&mut self) -> End {
        let end = self.take_requests().await;
        if let Body::Payload { cookie, .. } = std::mem::replace(&mut self.body, Body::None) {
            self.connection.withdraw(cookie);
        }
        end
    }

    async fn take_requests(&mut self) -> End {
        loop {
            let pause = self.advance();
            if std::mem::take(&mut self.gathered) {
                self.gateway.kick();
            }
            self.connection.push();
            match pause {
                Pause::Disconnect => return End::Disconnect,
                Pause::Violation(reason) => return End::Violation(reason),
                Pause::Room(command, payload) => self.connection.room(command, payload).await,
                Pause::Share => self.connection.alongside(self.connection.memory_freed()).await,
                Pause::Memory => self.connection.alongside(self.gateway.buffer_free()).await,
                Pause::Input => {
                    self.connection.readable().await;
                    if self.connection.leaving() == Leaving::No {
                        match self.receive() {
                            Ok(Received { total: Some(0), .. }) => return End::Vanished,
                            // That is worth a line in the log, other than a connection that broke.
                            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                                return End::Broken(error.to_string());
                            }
                            Err(_) => return End::Vanished,
                            // A client that never pauses must not keep the thread from everyone else.
                            Ok(Received { full: true, .. }) => tokio::task::yield_now().await,
                            Ok(_) => {}
                        }
                    }
                }
            }
            match self.connection.leaving() {
                Leaving::No => {}
                Leaving::Stopping | Leaving::Gone => return End::Leaving,
                Leaving::Broken => return End::Vanished,
            }
        }
    }

    fn receive(&mut self) -> io::Result<Received> {
        let socket = self.connection.socket();
        match &mut self.body {
            Body::Payload { buffer, filled, .. } => {
                let result = self.received.fill(socket, &mut buffer[*filled..])?;
                *filled += result.target;
                self.connection.awaits_payload(true, result.target);
                Ok(result)
            }
            _ => self.received.fill(socket, &mut []),
        }
    }

    /// Hands over every request that is complete and may go.
    fn advance(&mut self) -> Pause {
        loop {
            match std::mem::replace(&mut self.body, Body::None) {
                Body::None => {
                    if let Err(pause) = self.next_request() {
                        return pause;
                    }
                }
                Body::Payload { cookie, offset, fua, mut buffer, mut filled } => {
                    let poured = self.received.pour(&mut buffer[filled..]);
                    filled += poured;
                    self.connection.awaits_payload(filled < buffer.len(), poured);
                    if filled < buffer.len() {
                        self.body = Body::Payload { cookie, offset, fua, buffer, filled };
                        return Pause::Input;
                    }
                    self.submit(cookie, Op::Write { offset, buffer, fua });
                }
                Body::Discard { request, refusal, left } => {
                    let count = left.min(self.received.unread().len());
                    self.received.consume(count);
                    self.connection.awaits_payload(count < left, count);
                    if count < left {
                        self.body = Body::Discard { request, refusal, left: left - count };
                        return Pause::Input;
                    }
                    self.connection.answer(&request, Some((refusal.errno, refusal.reason)));
                }
            }
        }
    }

    /// Takes one request's header and what it needs, or nothing at all.
    fn next_request(&mut self) -> Result<(), Pause> {
        let header = self.received.peek::<REQUEST_BYTES>().ok_or(Pause::Input)?;
        let request = proto::parse_request(header).map_err(|malformed| Pause::Violation(malformed.0))?;
        let verdict = check(&request, &self.terms);
        let serves_payload = verdict == Verdict::Serve && matches!(request.command, Command::Read | Command::Write);
        let payload = if serves_payload { request.length as usize } else { 0 };
        if !self.connection.has_room(request.command, payload) {
            return Err(Pause::Room(request.command, payload));
        }
        if !self.connection.has_memory(request.command, payload) {
            return Err(Pause::Share);
        }
        let buffer = match serves_payload {
            true => Some(self.gateway.buffer(payload).ok_or(Pause::Memory)?),
            false => None,
        };
        self.received.consume(REQUEST_BYTES);
        self.connection.received(&request);
        match verdict {
            Verdict::Serve => self.serve(&request, buffer),
            Verdict::Nothing => self.connection.answer(&request, None),
            Verdict::Leave => return Err(Pause::Disconnect),
            Verdict::Refuse(refusal) => self.refuse(request, refusal)?,
        }
        Ok(())
    }

    fn refuse(&mut self, request: Request, refusal: Refusal) -> Result<(), Pause> {
        if request.command != Command::Write || request.length == 0 {
            self.connection.answer(&request, Some((refusal.errno, refusal.reason)));
            return Ok(());
        }
        if request.length > DISCARD_BYTES_MAX {
            self.connection.answer(&request, Some((refusal.errno, refusal.reason)));
            return Err(Pause::Violation("a write's payload is too long even to be thrown away"));
        }
        self.body = Body::Discard { request, refusal, left: request.length as usize };
        Ok(())
    }

    fn serve(&mut self, request: &Request, buffer: Option<Buffer>) {
        let Request { flags, command, offset, .. } = *request;
        let length = u64::from(request.length);
        let fua = flags & flag::FUA != 0;
        let payload = buffer.as_ref().map_or(0, |buffer| buffer.len());
        let cookie = self.connection.expect_answer(request, payload);
        let op = match (command, buffer) {
            (Command::Write, Some(buffer)) => {
                self.body = Body::Payload { cookie, offset, fua, buffer, filled: 0 };
                return;
            }
            (Command::Read, Some(buffer)) => Op::Read { offset, buffer },
            (Command::Flush, None) => Op::Flush,
            (Command::Trim, None) => Op::Trim { offset, length, fua },
            (Command::WriteZeroes, None) => Op::Zero { offset, length, fua, no_hole: flags & flag::NO_HOLE != 0 },
            (Command::Cache, None) => Op::Cache { offset, length },
            (Command::BlockStatus, None) => Op::BlockStatus { offset, length, one_extent: flags & flag::REQ_ONE != 0 },
            (command, _) => {
                unreachable!("the gate lets no {} through to be served", command.name())
            }
        };
        self.submit(cookie, op);
    }

    fn submit(&mut self, cookie: u64, op: Op) {
        self.gateway.submit(self.client, cookie, op);
        self.gathered = true;
    }
}
