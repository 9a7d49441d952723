//! A stream socket of either kind, plain or encrypted, read and written without ever waiting.
//!
//! A transfer that stops short has emptied (or filled) the kernel's buffer, and the runtime is told so in the same
//! breath: the next wait then really waits, and the usual extra call that only brings `EAGAIN` is saved. This is sound
//! because readiness is edge-triggered: bytes that arrive after the short transfer raise a new event.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use rustls::pki_types::CertificateDer;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use crate::tls::{CertificateFacts, Channel, ChannelError, Raw, TlsReceived};

pub(super) enum SocketStream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

pub(super) struct ClientSocket {
    stream: SocketStream,
    /// Once encryption was agreed on.
    channel: RefCell<Option<Box<Channel>>>,
}

impl ClientSocket {
    pub fn new(stream: SocketStream) -> ClientSocket {
        ClientSocket { stream, channel: RefCell::default() }
    }

    /// From here on everything is encrypted; [`ClientSocket::shake`] comes first.
    pub fn encrypt(&self, channel: Channel) {
        let earlier = self.channel.borrow_mut().replace(Box::new(channel));
        assert!(earlier.is_none(), "a socket is encrypted once");
    }

    /// Carries the TLS handshake on as far as the socket allows. True: it is done.
    pub fn shake(&self) -> Result<bool, ChannelError> {
        self.channel.borrow_mut().as_mut().map_or(Ok(true), |channel| channel.shake(&self.stream))
    }

    pub fn is_encrypted(&self) -> bool {
        self.channel.borrow().is_some()
    }

    /// What the client's certificate says, if it showed one.
    pub fn certificate(&self) -> Option<CertificateFacts> {
        self.channel.borrow().as_ref().and_then(|channel| channel.peer())
    }

    /// The client's certificate and what it showed with it, if it showed one.
    pub fn chain(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.channel.borrow().as_ref().and_then(|channel| channel.chain())
    }

    /// Fills `slices` from the socket. `None`: nothing there now; `Some(0)`: the other side has finished.
    ///
    /// # Errors
    /// What the kernel says about a broken connection, or that what came does not decrypt.
    pub fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        match self.channel.borrow_mut().as_mut() {
            None => self.stream.readv(slices),
            Some(channel) => Ok(match channel.receive(&self.stream, slices)? {
                TlsReceived::Bytes(count) => Some(count),
                TlsReceived::Part | TlsReceived::Nothing => None,
                TlsReceived::End => Some(0),
            }),
        }
    }

    /// Sends from `slices`. `None`: no room now.
    ///
    /// # Errors
    /// What the kernel says about a broken connection.
    pub fn write(&self, slices: &mut [IoSlice<'_>]) -> io::Result<Option<usize>> {
        match self.channel.borrow_mut().as_mut() {
            None => self.stream.writev(slices),
            Some(channel) => Ok(Some(channel.send(&self.stream, slices)?)),
        }
    }

    /// Sends what was encrypted already. True: nothing of it is left.
    ///
    /// # Errors
    /// What the kernel says about a broken connection.
    pub fn flush(&self) -> io::Result<bool> {
        Ok(self.channel.borrow_mut().as_mut().map_or(Ok(true), |channel| channel.flush(&self.stream))?)
    }

    /// Whether the other side sends nothing more, which a read would show only behind all that was sent.
    pub fn is_hung_up(&self) -> bool {
        let mut look = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        poll(&mut look, Some(&Timespec::default())).is_ok()
            && look[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
    }

    /// Encrypted bytes wait for room.
    pub fn is_pending(&self) -> bool {
        self.channel.borrow().as_ref().is_some_and(|channel| channel.is_pending())
    }

    /// Lets the client know that nothing follows, as far as there is room.
    pub fn say_end(&self) {
        if let Some(channel) = self.channel.borrow_mut().as_mut() {
            channel.say_end();
            // The end of the stream says it too.
            let _ = channel.flush(&self.stream);
        }
    }

    pub fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.channel.borrow().as_ref().is_some_and(|channel| channel.has_more()) {
            return Poll::Ready(Ok(()));
        }
        match &self.stream {
            SocketStream::Unix(stream) => stream.poll_read_ready(context),
            SocketStream::Tcp(stream) => stream.poll_read_ready(context),
        }
    }

    pub fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.stream {
            SocketStream::Unix(stream) => stream.poll_write_ready(context),
            SocketStream::Tcp(stream) => stream.poll_write_ready(context),
        }
    }
}

impl AsFd for ClientSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Raw for SocketStream {
    fn read(&self, space: &mut [u8]) -> io::Result<Option<usize>> {
        self.readv(&mut [IoSliceMut::new(space)])
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        self.writev(slices)
    }
}

impl SocketStream {
    fn readv(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        let capacity: usize = slices.iter().map(|slice| slice.len()).sum();
        assert!(capacity > 0, "a read of nothing would look like the end of the stream");
        self.transfer(Interest::READABLE, capacity, |descriptor| rustix::io::readv(descriptor, slices))
    }

    fn writev(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        let capacity: usize = slices.iter().map(|slice| slice.len()).sum();
        self.transfer(Interest::WRITABLE, capacity, |descriptor| {
            // A client that vanished is an error to handle, not a signal.
            rustix::net::sendmsg(descriptor, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
        })
    }

    fn transfer(
        &self,
        interest: Interest,
        capacity: usize,
        mut call: impl FnMut(BorrowedFd<'_>) -> Result<usize, Errno>,
    ) -> io::Result<Option<usize>> {
        let mut moved = None;
        let attempt = || {
            let count = loop {
                match call(self.as_fd()) {
                    Err(Errno::INTR) => {}
                    result => break result?,
                }
            };
            moved = Some(count);
            if count > 0 && count < capacity { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        };
        let result = match self {
            SocketStream::Unix(stream) => stream.try_io(interest, attempt),
            SocketStream::Tcp(stream) => stream.try_io(interest, attempt),
        };
        match result {
            Ok(()) => Ok(moved),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(moved),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for SocketStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            SocketStream::Unix(stream) => stream.as_fd(),
            SocketStream::Tcp(stream) => stream.as_fd(),
        }
    }
}
