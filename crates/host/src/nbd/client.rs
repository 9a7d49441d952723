//! The initiator's half: a small client for our own benchmarks, demonstrations and tests.
//!
//! It asks for simple replies only and keeps as many requests in flight as its owner queues. One owner drives it:
//! [`NbdClient::queue`] costs no I/O, [`NbdClient::next`] moves bytes both ways until an answer is there. Dropping `next`
//! loses nothing, so it may stand in a `select!` beside a timer.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::task::{Context, Poll};

use tokio::net::{TcpStream, UnixStream};

use super::proto::{self, Errno, MalformedMessage, NbdCommand, NbdRequest, flag, info, option, reply};
use super::receive_buffer::ReceiveBuffer;
use super::socket::{ClientSocket, SocketStream};
use crate::link::volume_line::PeerLine;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl std::fmt::Display for Address {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Unix(path) => write!(formatter, "{}", path.display()),
            Address::Tcp(address) => write!(formatter, "{address}"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "cannot connect to the NBD server at {address}: {reason}; check that it runs and that this user may use it"
    )]
    Connect { address: Address, reason: io::Error },
    #[error("the NBD server refused export {export:?}: {reason}")]
    Refused { export: String, reason: String },
    #[error("the connection to the NBD server broke: {0}; requests in flight have an unknown outcome")]
    Broken(#[from] io::Error),
    #[error("the NBD server broke the protocol: {0}; the connection is of no more use")]
    Protocol(&'static str),
}

impl From<MalformedMessage> for ClientError {
    fn from(malformed: MalformedMessage) -> ClientError {
        ClientError::Protocol(malformed.0)
    }
}

/// What the server said about the export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Export {
    pub size_bytes: u64,
    /// See [`proto::transmission`].
    pub flags: u16,
    pub block_min_bytes: u32,
    pub block_preferred_bytes: u32,
    pub block_max_bytes: u32,
}

/// A request, as its asker sees it.
#[derive(Clone, Copy, Debug)]
pub enum Ask<'a> {
    Read { offset: u64, length: u32 },
    Write { offset: u64, data: &'a [u8], fua: bool },
    Flush,
    Trim { offset: u64, length: u32, fua: bool },
    Zero { offset: u64, length: u32, fua: bool, no_hole: bool },
    Cache { offset: u64, length: u32 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdAnswer {
    pub cookie: u64,
    /// A read's bytes; empty for everything else.
    pub result: Result<Vec<u8>, Errno>,
}

/// A connection to one export.
pub struct NbdClient {
    socket: ClientSocket,
    received: ReceiveBuffer,
    export: Export,
    /// Requests not yet sent, and how much of them is.
    out: Vec<u8>,
    out_sent: usize,
    /// In flight: cookie to the bytes its answer brings.
    asked: HashMap<u64, usize>,
    /// A read's answer whose bytes are arriving: cookie, bytes, how many are there.
    arriving: Option<(u64, Vec<u8>, usize)>,
}

impl NbdClient {
    /// Connects and enters `export`; an empty name means the server's only one.
    ///
    /// # Errors
    /// Nobody listens, the export is refused, or the server is not an NBD server.
    pub async fn connect(address: &Address, export: &str) -> Result<NbdClient, ClientError> {
        let failed = |reason| ClientError::Connect { address: address.clone(), reason };
        let stream = match address {
            Address::Unix(path) => SocketStream::Unix(UnixStream::connect(path).await.map_err(failed)?),
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                SocketStream::Tcp(stream)
            }
        };
        NbdClient::enter(ClientSocket::new(stream), export).await
    }

    /// Enters `export` by a connection to a peer's daemon.
    ///
    /// # Errors
    /// As [`NbdClient::connect`].
    pub(crate) async fn at_peer(
        PeerLine { stream, channel }: PeerLine,
        export: &str,
    ) -> Result<NbdClient, ClientError> {
        let socket = ClientSocket::new(SocketStream::Tcp(stream));
        channel.into_iter().for_each(|channel| socket.encrypt(channel));
        NbdClient::enter(socket, export).await
    }

    async fn enter(socket: ClientSocket, export: &str) -> Result<NbdClient, ClientError> {
        let mut client = NbdClient {
            socket,
            received: ReceiveBuffer::new(),
            export: Export::default(),
            out: Vec::new(),
            out_sent: 0,
            asked: HashMap::new(),
            arriving: None,
        };
        client.negotiate(export).await?;
        Ok(client)
    }

    pub fn export(&self) -> &Export {
        &self.export
    }

    /// Requests queued or sent whose answer was not taken yet.
    pub fn in_flight(&self) -> usize {
        self.asked.len() + usize::from(self.arriving.is_some())
    }

    /// Queues a request; it leaves with the next call of [`NbdClient::next`].
    ///
    /// # Panics
    /// When `cookie` is in flight already, or a write's data is longer than 4 GiB.
    pub fn queue(&mut self, cookie: u64, ask: Ask<'_>) {
        let fua = |fua: bool| if fua { flag::FUA } else { 0 };
        let mut payload: &[u8] = &[];
        let mut returns = 0;
        let (command, flags, offset, length) = match ask {
            Ask::Read { offset, length } => {
                returns = length as usize;
                (NbdCommand::Read, 0, offset, length)
            }
            Ask::Write { offset, data, fua: durable } => {
                payload = data;
                let length = u32::try_from(data.len()).expect("a write's data is below 4 GiB");
                (NbdCommand::Write, fua(durable), offset, length)
            }
            Ask::Flush => (NbdCommand::Flush, 0, 0, 0),
            Ask::Trim { offset, length, fua: durable } => (NbdCommand::Trim, fua(durable), offset, length),
            Ask::Zero { offset, length, fua: durable, no_hole } => {
                let hole = if no_hole { flag::NO_HOLE } else { 0 };
                (NbdCommand::WriteZeroes, fua(durable) | hole, offset, length)
            }
            Ask::Cache { offset, length } => (NbdCommand::Cache, 0, offset, length),
        };
        let earlier = self.asked.insert(cookie, returns);
        assert!(earlier.is_none(), "cookie {cookie} is in flight already");
        self.put(&NbdRequest { flags, command, handle: cookie, offset, length }, payload);
    }

    fn put(&mut self, request: &NbdRequest, payload: &[u8]) {
        self.out.extend_from_slice(&proto::encode_request(request));
        self.out.extend_from_slice(payload);
    }

    /// The next answer, in the order the server gives them. Safe to drop and call again.
    ///
    /// # Errors
    /// The connection broke, or the server's bytes are not NBD. Never for a failed request: that is an [`NbdAnswer`].
    ///
    /// # Panics
    /// When nothing is in flight: there would be nothing to wait for.
    pub async fn next(&mut self) -> Result<NbdAnswer, ClientError> {
        assert!(self.in_flight() > 0, "nothing is in flight");
        loop {
            if let Some(answer) = self.take_answer()? {
                return Ok(answer);
            }
            poll_fn(|context| self.poll_transfer(context)).await?;
        }
    }

    /// Asks and waits for this one answer; the client must have nothing else in flight.
    ///
    /// # Errors
    /// As [`NbdClient::next`].
    pub async fn call(&mut self, ask: Ask<'_>) -> Result<Result<Vec<u8>, Errno>, ClientError> {
        assert_eq!(self.in_flight(), 0, "a call is for one request at a time");
        self.queue(0, ask);
        Ok(self.next().await?.result)
    }

    /// Says goodbye and waits until the server has closed. Answers in flight are read and dropped.
    ///
    /// # Errors
    /// The connection broke before the server closed it.
    pub async fn disconnect(mut self) -> Result<(), ClientError> {
        self.put(&NbdRequest { flags: 0, command: NbdCommand::Disconnect, handle: 0, offset: 0, length: 0 }, &[]);
        loop {
            while self.take_answer()?.is_some() {}
            match poll_fn(|context| self.poll_transfer(context)).await {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take_answer(&mut self) -> Result<Option<NbdAnswer>, ClientError> {
        if self.arriving.is_none() {
            let Some(header) = self.received.peek() else {
                return Ok(None);
            };
            let (cookie, error) = proto::parse_simple_reply(header)?;
            self.received.consume(proto::SIMPLE_REPLY_BYTES);
            let unasked = ClientError::Protocol("it answered a request that is not in flight");
            let returns = self.asked.remove(&cookie).ok_or(unasked)?;
            if let Some(errno) = error {
                return Ok(Some(NbdAnswer { cookie, result: Err(errno) }));
            }
            self.arriving = Some((cookie, vec![0; returns], 0));
        }
        let Some((cookie, mut data, mut filled)) = self.arriving.take() else {
            return Ok(None);
        };
        filled += self.received.pour(&mut data[filled..]);
        if filled < data.len() {
            self.arriving = Some((cookie, data, filled));
            return Ok(None);
        }
        Ok(Some(NbdAnswer { cookie, result: Ok(data) }))
    }

    /// Sends what can be sent, and reads; ready once something was read.
    fn poll_transfer(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while (self.out_sent < self.out.len() || self.socket.is_pending())
            && self.socket.poll_write_ready(context)?.is_ready()
        {
            if self.out_sent == self.out.len() {
                self.socket.flush()?;
                continue;
            }
            let sent = self.socket.write(&mut [IoSlice::new(&self.out[self.out_sent..])])?;
            self.out_sent += sent.unwrap_or(0);
        }
        if self.out_sent == self.out.len() {
            self.out.clear();
            self.out_sent = 0;
        }
        while self.socket.poll_read_ready(context)?.is_ready() {
            let filled = match &mut self.arriving {
                Some((_, data, filled)) => {
                    let result = self.received.fill(&self.socket, &mut data[*filled..])?;
                    *filled += result.target;
                    result
                }
                None => self.received.fill(&self.socket, &mut [])?,
            };
            match filled.total {
                Some(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Some(_) => return Poll::Ready(Ok(())),
                None => {}
            }
        }
        Poll::Pending
    }

    async fn receive<const N: usize>(&mut self) -> Result<[u8; N], ClientError> {
        self.await_bytes(N).await?;
        let bytes = *self.received.peek::<N>().expect("the bytes were just awaited");
        self.received.consume(N);
        Ok(bytes)
    }

    async fn await_bytes(&mut self, count: usize) -> Result<(), ClientError> {
        self.received.reserve(count);
        while self.received.unread().len() < count {
            poll_fn(|context| self.poll_transfer(context)).await?;
        }
        Ok(())
    }

    async fn negotiate(&mut self, export: &str) -> Result<(), ClientError> {
        let greeting: [u8; 18] = self.receive().await?;
        if greeting[..8] != proto::MAGIC.to_be_bytes() || greeting[8..16] != proto::OPTION_MAGIC.to_be_bytes() {
            return Err(ClientError::Protocol("its greeting is not NBD's newstyle"));
        }
        let flags = u16::from_be_bytes([greeting[16], greeting[17]]);
        if flags & proto::FLAG_FIXED_NEWSTYLE == 0 {
            return Err(ClientError::Protocol("it does not speak fixed newstyle"));
        }
        let ours = flags & (proto::FLAG_FIXED_NEWSTYLE | proto::FLAG_NO_ZEROES);
        self.out.extend_from_slice(&u32::from(ours).to_be_bytes());
        let length = u32::try_from(export.len()).expect("an export's name is short");
        let parts: [&[u8]; 4] =
            [&length.to_be_bytes(), export.as_bytes(), &1_u16.to_be_bytes(), &info::BLOCK_SIZE.to_be_bytes()];
        proto::put_option(&mut self.out, option::GO, &parts.concat());
        // What a server that names no sizes must be assumed to have.
        self.export.block_min_bytes = 1;
        self.export.block_preferred_bytes = 4096;
        self.export.block_max_bytes = proto::PAYLOAD_BYTES_MAX;
        while self.hear_reply(export).await? {}
        Ok(())
    }

    /// Takes one reply to `GO`; false when it was the last.
    async fn hear_reply(&mut self, export: &str) -> Result<bool, ClientError> {
        let header = proto::parse_option_reply(&self.receive().await?)?;
        if header.length > proto::OPTION_DATA_BYTES_MAX {
            return Err(ClientError::Protocol("a handshake reply is longer than 65536 bytes"));
        }
        let length = header.length as usize;
        self.await_bytes(length).await?;
        let data = self.received.unread()[..length].to_vec();
        self.received.consume(length);
        match header.reply {
            reply::ACK => return Ok(false),
            reply::INFO => self.hear_fact(&data)?,
            other if other & reply::ERROR != 0 => {
                let reason = match data.is_empty() {
                    true => format!("error {}", other & !reply::ERROR),
                    false => String::from_utf8_lossy(&data).into_owned(),
                };
                return Err(ClientError::Refused { export: export.into(), reason });
            }
            _ => {
                return Err(ClientError::Protocol("it answered GO with a reply that does not belong to it"));
            }
        }
        Ok(true)
    }

    fn hear_fact(&mut self, data: &[u8]) -> Result<(), ClientError> {
        let short = ClientError::Protocol("a fact about the export has the wrong length");
        let Some((kind, content)) = data.split_first_chunk::<2>() else {
            return Err(short);
        };
        let word = |at: usize| {
            let bytes = content[at..at + 4].try_into().expect("four bytes");
            u32::from_be_bytes(bytes)
        };
        match (u16::from_be_bytes(*kind), content.len()) {
            (info::EXPORT, 10) => {
                self.export.size_bytes = u64::from(word(0)) << 32 | u64::from(word(4));
                self.export.flags = u16::from_be_bytes([content[8], content[9]]);
            }
            (info::BLOCK_SIZE, 12) => {
                self.export.block_min_bytes = word(0);
                self.export.block_preferred_bytes = word(4);
                self.export.block_max_bytes = word(8);
            }
            (info::EXPORT | info::BLOCK_SIZE, _) => return Err(short),
            _ => {}
        }
        Ok(())
    }
}
