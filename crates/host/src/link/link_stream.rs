//! What a link runs on: a TCP stream, plain or encrypted. Calls that begin with `try_` never wait.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};

use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;

use crate::tls::{CertificateFacts, Channel, ChannelError, Raw, TlsReceived};

impl Raw for TcpStream {
    fn read(&self, space: &mut [u8]) -> io::Result<Option<usize>> {
        not_now(self.try_read(space))
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        not_now(self.try_write_vectored(slices))
    }
}

fn not_now(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) struct LinkStream {
    stream: TcpStream,
    channel: Option<RefCell<Channel>>,
}

impl LinkStream {
    /// Encrypted if there is a channel, which then has to be shaken first.
    pub fn new(stream: TcpStream, channel: Option<Channel>) -> LinkStream {
        LinkStream { stream, channel: channel.map(RefCell::new) }
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// What it is made of, on this thread's runtime.
    pub fn into_halves(self) -> (TcpStream, Option<Channel>) {
        (self.stream, self.channel.map(RefCell::into_inner))
    }

    /// Takes the line off this thread's runtime, to be put together again on another's.
    pub fn into_parts(self) -> io::Result<(std::net::TcpStream, Option<Channel>)> {
        Ok((self.stream.into_std()?, self.channel.map(RefCell::into_inner)))
    }

    /// Carries a TLS handshake to its end; on a plain line there is none.
    pub async fn shake(&self) -> Result<(), ChannelError> {
        let Some(channel) = &self.channel else { return Ok(()) };
        loop {
            if channel.borrow_mut().shake(&self.stream)? {
                return Ok(());
            }
            if channel.borrow().is_pending() {
                tokio::select! {
                    ready = self.stream.writable() => ready?,
                    ready = self.stream.readable() => ready?,
                }
            } else {
                self.stream.readable().await?;
            }
        }
    }

    /// A secret of this connection alone, if it is encrypted.
    pub fn binding(&self) -> Result<Option<[u8; 32]>, ChannelError> {
        self.channel.as_ref().map(|channel| channel.borrow().binding()).transpose()
    }

    /// An encrypted line whose other end means something else than a link.
    pub fn is_misled(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| !channel.borrow().is_link())
    }

    /// What the other end's certificate says, if the line is encrypted.
    pub fn certificate(&self) -> Option<CertificateFacts> {
        self.channel.as_ref().and_then(|channel| channel.borrow().peer())
    }

    /// The other end's certificate and what it showed with it, if the line is encrypted.
    pub fn chain(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.channel.as_ref().and_then(|channel| channel.borrow().chain())
    }

    /// Sends from `slices`; how much of them is taken care of, 0 for "not now".
    pub fn try_write(&self, slices: &mut [IoSlice<'_>]) -> Result<usize, ChannelError> {
        match &self.channel {
            None => Ok(Raw::write(&self.stream, slices)?.unwrap_or(0)),
            Some(channel) => channel.borrow_mut().send(&self.stream, slices),
        }
    }

    /// What it is given it writes anew, into records.
    pub fn is_encrypted(&self) -> bool {
        self.channel.is_some()
    }

    /// Something was taken care of and is not with the kernel yet.
    pub fn is_pending(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.borrow().is_pending())
    }

    pub async fn writable(&self) -> io::Result<()> {
        self.stream.writable().await
    }

    pub async fn readable(&self) -> io::Result<()> {
        if self.channel.as_ref().is_some_and(|channel| channel.borrow().has_more()) {
            return Ok(());
        }
        self.stream.readable().await
    }

    pub fn try_read(&self, spaces: &mut [IoSliceMut<'_>]) -> Result<TlsReceived, ChannelError> {
        match &self.channel {
            Some(channel) => channel.borrow_mut().receive(&self.stream, spaces),
            None => Ok(match not_now(self.stream.try_read_vectored(spaces))? {
                None => TlsReceived::Nothing,
                Some(0) => TlsReceived::End,
                Some(count) => TlsReceived::Bytes(count),
            }),
        }
    }

    pub async fn write_all(&self, mut bytes: &[u8]) -> Result<(), ChannelError> {
        while !bytes.is_empty() || self.is_pending() {
            self.writable().await?;
            let count = self.try_write(&mut [IoSlice::new(bytes)])?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Fills `bytes`, and reads nothing beyond them.
    pub async fn read_exact(&self, bytes: &mut [u8]) -> Result<(), ChannelError> {
        let mut filled = 0;
        while filled < bytes.len() {
            self.readable().await?;
            match self.try_read(&mut [IoSliceMut::new(&mut bytes[filled..])])? {
                TlsReceived::Bytes(count) => filled += count,
                TlsReceived::Part | TlsReceived::Nothing => {}
                TlsReceived::End => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            }
        }
        Ok(())
    }

    /// Lets the other end know that nothing follows, as far as the socket takes it.
    pub fn say_end(&self) {
        if let Some(channel) = &self.channel {
            channel.borrow_mut().say_end();
            // The end of the stream says it too.
            let _ = channel.borrow_mut().flush(&self.stream);
        }
    }
}
