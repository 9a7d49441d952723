//! One end of an encrypted connection, without a socket: the caller lends it one for each call.
//!
//! Outwards, plaintext is gathered from the caller's slices into records of up to 16 KiB, encrypted where it was
//! gathered, and handed to the kernel in one vectored call: the copy into the record is the only one. Inwards, the
//! kernel is asked for a table full of records at a time, whatever the library's own appetite.
//!
//! What must hold:
//! * what [`Channel::send`] accepted stays in here until the kernel took it: [`Channel::is_pending`] tells;
//! * an unauthenticated peer is read [`HANDSHAKE_BYTES_MAX`] bytes at most;
//! * after an error only the peer's last words (an alert of ours) may still go out.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;

use rustls::client::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use super::facts::CertificateFacts;
use super::refusal::sentence;

/// Both ends of a link name it, so that a connection meant for another service of the same certificates ends here.
pub(super) const LINK_PROTOCOL: &[u8] = b"farshore-link";
/// The buffer during the handshake: an unauthenticated peer is not worth a larger one.
const HANDSHAKE_BUFFER_BYTES: usize = 4096;
/// What is read during the handshake: two certificates of the largest keys in use fit several times.
const HANDSHAKE_BYTES_MAX: usize = 32 << 10;
/// Plaintext encrypted ahead of the kernel: one full vectored call of 16 records.
const SEALED_BYTES_MAX: usize = 256 << 10;

/// The socket, as far as a channel needs it; both calls never wait. `None`: not now.
pub(crate) trait Raw {
    fn read(&self, space: &mut [u8]) -> io::Result<Option<usize>>;
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>>;
}

/// Why a channel is of no more use.
#[derive(Debug)]
pub(crate) enum ChannelError {
    Io(io::Error),
    /// The other side's certificate or bytes are not accepted, or ours were not.
    Tls(rustls::Error),
    TooLong,
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelError::Io(error) => error.fmt(f),
            ChannelError::Tls(error) => f.write_str(&sentence(error)),
            ChannelError::TooLong => {
                write!(f, "it sent more than {HANDSHAKE_BYTES_MAX} bytes without finishing the TLS handshake")
            }
        }
    }
}

impl std::error::Error for ChannelError {}

impl From<io::Error> for ChannelError {
    fn from(error: io::Error) -> ChannelError {
        // The library hands its own errors through an I/O error now and then.
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(inner) => ChannelError::Tls(inner.clone()),
            None => ChannelError::Io(error),
        }
    }
}

impl From<rustls::Error> for ChannelError {
    fn from(error: rustls::Error) -> ChannelError {
        ChannelError::Tls(error)
    }
}

impl From<ChannelError> for io::Error {
    fn from(error: ChannelError) -> io::Error {
        match error {
            ChannelError::Io(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidData, other),
        }
    }
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsReceived {
    Bytes(usize),
    /// Part of a record: a sign of life and nothing to look at.
    Part,
    Nothing,
    End,
}

pub(crate) struct Channel {
    connection: Connection,
    buffer_bytes: usize,
    /// Ciphertext that was read and not looked at: `input[start..end]`.
    input: Box<[u8]>,
    start: usize,
    end: usize,
    /// The caller's space ran out first: there is more without another read.
    has_more: bool,
    handshake_bytes: usize,
}

impl Channel {
    /// `buffer_bytes`: ciphertext read at once, when the other side is known.
    pub fn client(config: Arc<ClientConfig>, buffer_bytes: usize) -> Result<Channel, rustls::Error> {
        // Names are compared by our own verifier, and this one is not sent.
        let name = ServerName::try_from("farshore.invalid").expect("a valid name");
        Ok(Channel::new(ClientConnection::new(config, name)?.into(), buffer_bytes))
    }

    pub fn server(config: Arc<ServerConfig>, buffer_bytes: usize) -> Result<Channel, rustls::Error> {
        Ok(Channel::new(ServerConnection::new(config)?.into(), buffer_bytes))
    }

    fn new(mut connection: Connection, buffer_bytes: usize) -> Channel {
        connection.set_buffer_limit(Some(SEALED_BYTES_MAX));
        let input = vec![0; HANDSHAKE_BUFFER_BYTES].into();
        Channel { connection, buffer_bytes, input, start: 0, end: 0, has_more: false, handshake_bytes: 0 }
    }

    /// Carries the handshake on as far as the socket allows. True: it is done.
    pub fn shake(&mut self, raw: &impl Raw) -> Result<bool, ChannelError> {
        loop {
            self.flush(raw)?;
            if !self.connection.is_handshaking() {
                self.enlarge_table();
                // The first words may have come with the last of the handshake.
                self.has_more = true;
                return Ok(true);
            }
            if self.start == self.end {
                match raw.read(&mut self.input)? {
                    None => return Ok(false),
                    Some(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                    Some(count) => (self.start, self.end) = (0, count),
                }
                self.handshake_bytes += self.end;
                if self.handshake_bytes > HANDSHAKE_BYTES_MAX {
                    return Err(ChannelError::TooLong);
                }
            }
            self.open(raw)?;
        }
    }

    /// Enlarges the table; what is on it stays.
    fn enlarge_table(&mut self) {
        if self.input.len() < self.buffer_bytes {
            let mut input = vec![0; self.buffer_bytes];
            let rest = self.end - self.start;
            input[..rest].copy_from_slice(&self.input[self.start..self.end]);
            (self.input, self.start, self.end) = (input.into(), 0, rest);
        }
    }

    /// Has the library take ciphertext off the table, and open what is whole.
    fn open(&mut self, raw: &impl Raw) -> Result<(), ChannelError> {
        let mut rest = &self.input[self.start..self.end];
        let taken = self.connection.read_tls(&mut rest)?;
        self.start += taken;
        if let Err(error) = self.connection.process_new_packets() {
            // An alert, if it can go out at once; the connection ends either way.
            let _ = self.flush(raw);
            return Err(error.into());
        }
        Ok(())
    }

    /// Fills `spaces` with plaintext.
    pub fn receive(&mut self, raw: &impl Raw, spaces: &mut [IoSliceMut<'_>]) -> Result<TlsReceived, ChannelError> {
        let room: usize = spaces.iter().map(|space| space.len()).sum();
        assert!(room > 0, "a read of nothing would look like the end of the stream");
        let (mut filled, mut is_part, mut ended) = (0, false, false);
        loop {
            filled += drain(&mut self.connection, spaces, filled, &mut ended)?;
            self.has_more = filled == room;
            if filled == room || (filled > 0 && (ended || self.start == self.end)) {
                return Ok(TlsReceived::Bytes(filled));
            }
            if ended {
                return Ok(TlsReceived::End);
            }
            if self.start == self.end {
                match raw.read(&mut self.input)? {
                    None => return Ok(if is_part { TlsReceived::Part } else { TlsReceived::Nothing }),
                    Some(0) => return Ok(TlsReceived::End),
                    Some(count) => (self.start, self.end) = (0, count),
                }
                is_part = true;
            }
            self.open(raw)?;
        }
    }

    /// There may be something to read although the socket has nothing.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Encrypts and sends from `slices`; how much of them is taken care of.
    pub fn send(&mut self, raw: &impl Raw, mut slices: &mut [IoSlice<'_>]) -> Result<usize, ChannelError> {
        let mut accepted = 0;
        while self.flush(raw)? && !slices.is_empty() {
            let count = self.connection.writer().write_vectored(slices)?;
            accepted += count;
            IoSlice::advance_slices(&mut slices, count);
        }
        Ok(accepted)
    }

    /// Hands encrypted bytes to the kernel. True: all of them.
    pub fn flush(&mut self, raw: &impl Raw) -> Result<bool, ChannelError> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Outlet(raw)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Encrypted bytes wait for the kernel.
    pub fn is_pending(&self) -> bool {
        self.connection.wants_write()
    }

    /// Says that nothing follows; to be flushed.
    pub fn say_end(&mut self) {
        self.connection.send_close_notify();
    }

    /// Bytes that both ends of this connection know and nobody else: whoever proves to hold them is at its other end.
    pub fn binding(&self) -> Result<[u8; 32], ChannelError> {
        Ok(self.connection.export_keying_material([0; 32], b"EXPORTER-farshore-link", None)?)
    }

    /// Both ends mean a link between nodes.
    pub fn is_link(&self) -> bool {
        self.connection.alpn_protocol() == Some(LINK_PROTOCOL)
    }

    /// The other side's certificate and what it showed with it; `None`: it showed none.
    pub fn chain(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.connection.peer_certificates().map(<[_]>::to_vec)
    }

    /// What the other side's certificate says; `None`: it showed none.
    pub fn peer(&self) -> Option<CertificateFacts> {
        let [certificate, ..]: &[CertificateDer<'_>] = self.connection.peer_certificates()? else { return None };
        CertificateFacts::of(certificate).ok()
    }
}

/// Moves opened plaintext to `spaces`, from byte `skip` of them on.
fn drain(
    connection: &mut Connection,
    spaces: &mut [IoSliceMut<'_>],
    mut skip: usize,
    ended: &mut bool,
) -> io::Result<usize> {
    let mut moved = 0;
    for space in spaces {
        let full = skip.min(space.len());
        skip -= full;
        let mut rest = &mut space[full..];
        while !rest.is_empty() {
            match connection.reader().read(rest) {
                Ok(0) => {
                    *ended = true;
                    return Ok(moved);
                }
                Ok(count) => {
                    moved += count;
                    rest = &mut rest[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(moved),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(moved)
}

/// The socket, as the library wants to write to it.
struct Outlet<'a, R>(&'a R);

impl<R: Raw> Write for Outlet<'_, R> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(slices)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
