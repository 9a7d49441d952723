//! A stream socket of either kind, read and written without ever waiting.
//!
//! A transfer that stops short has emptied (or filled) the kernel's buffer, and the runtime is told so in the same
//! breath: the next wait then really waits, and the usual extra call that only brings `EAGAIN` is saved. This is sound
//! because readiness is edge-triggered: bytes that arrive after the short transfer raise a new event.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

pub(super) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Fills `slices` from the socket. `None`: nothing there now; `Some(0)`: the other side has finished.
    ///
    /// # Errors
    /// What the kernel says about a broken connection.
    pub fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        let capacity: usize = slices.iter().map(|slice| slice.len()).sum();
        assert!(capacity > 0, "a read of nothing would look like the end of the stream");
        self.transfer(Interest::READABLE, capacity, |descriptor| rustix::io::readv(descriptor, slices))
    }

    /// Sends from `slices`. `None`: no room now.
    ///
    /// # Errors
    /// What the kernel says about a broken connection.
    pub fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
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
            Socket::Unix(stream) => stream.try_io(interest, attempt),
            Socket::Tcp(stream) => stream.try_io(interest, attempt),
        };
        match result {
            Ok(()) => Ok(moved),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(moved),
            Err(error) => Err(error),
        }
    }

    pub fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Unix(stream) => stream.poll_read_ready(context),
            Socket::Tcp(stream) => stream.poll_read_ready(context),
        }
    }

    pub fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Unix(stream) => stream.poll_write_ready(context),
            Socket::Tcp(stream) => stream.poll_write_ready(context),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Unix(stream) => stream.as_fd(),
            Socket::Tcp(stream) => stream.as_fd(),
        }
    }
}
