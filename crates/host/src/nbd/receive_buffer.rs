//! What a socket has delivered and nobody has looked at yet.
//!
//! A payload that is still on its way is read past this buffer, straight to where it belongs; while much of it is
//! missing, no more than the next header is read besides, so that a stream of large payloads is never copied at all.

use std::io::{self, IoSliceMut};

use super::proto::REQUEST_BYTES;
use super::socket::ClientSocket;

/// What an idle connection holds.
const BYTES_MIN: usize = 16 << 10;
/// What a busy one grows to: a batch of 64 writes of 4 KiB, a page table's worth of cache, and no more.
const BYTES_MAX: usize = 256 << 10;
/// A missing payload from this size on is read with only the next header beside it.
const DIRECT_BYTES_MIN: usize = 64 << 10;

/// Received bytes that nobody has looked at yet.
pub(super) struct ReceiveBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReceiveBuffer {
    pub fn new() -> ReceiveBuffer {
        ReceiveBuffer { bytes: vec![0; BYTES_MIN], start: 0, end: 0 }
    }

    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "more was consumed than received");
    }

    /// The next `N` bytes if they are there, still unread.
    pub fn peek<const N: usize>(&self) -> Option<&[u8; N]> {
        self.unread().first_chunk()
    }

    /// Makes sure that `count` unread bytes find room.
    pub fn reserve(&mut self, count: usize) {
        self.compact();
        if self.bytes.len() < count {
            self.bytes.resize(count, 0);
        }
    }

    fn compact(&mut self) {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
    }

    /// Moves unread bytes to where they belong, as many as fit.
    pub fn pour(&mut self, target: &mut [u8]) -> usize {
        let count = target.len().min(self.end - self.start);
        target[..count].copy_from_slice(&self.bytes[self.start..self.start + count]);
        self.consume(count);
        count
    }

    /// Reads from the socket: first into `target`, then here. Returns how much went to `target`, and the whole.
    ///
    /// # Errors
    /// As [`ClientSocket::read`].
    pub fn fill(&mut self, socket: &ClientSocket, target: &mut [u8]) -> io::Result<ReadAmount> {
        self.compact();
        let spare = self.bytes.len() - self.end;
        let here = if target.len() >= DIRECT_BYTES_MIN { spare.min(REQUEST_BYTES) } else { spare };
        let room = target.len() + here;
        let aside = target.len();
        let mut slices = [IoSliceMut::new(target), IoSliceMut::new(&mut self.bytes[self.end..self.end + here])];
        let slices = if aside == 0 { &mut slices[1..] } else { &mut slices[..] };
        let Some(count) = socket.read(slices)? else {
            return Ok(ReadAmount { target: 0, total: None, full: false });
        };
        let target = count.min(aside);
        self.end += count - target;
        if count == room && aside == 0 && self.bytes.len() < BYTES_MAX {
            self.bytes.resize(BYTES_MAX, 0);
        }
        Ok(ReadAmount { target, total: Some(count), full: count == room })
    }
}

pub(super) struct ReadAmount {
    /// Bytes that went to the caller's own target.
    pub target: usize,
    /// Bytes in all; `None`: nothing was there, `Some(0)`: the client has finished.
    pub total: Option<usize>,
    /// There may be more to read.
    pub full: bool,
}
