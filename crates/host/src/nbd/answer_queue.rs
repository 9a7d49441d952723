//! Answers on their way out: small heads and large payloads in one queue, gathered into as few writes as possible.
//!
//! Heads lie end to end in one growing vector that is reused; payloads stay in the buffer the disk filled. Nothing is
//! copied but heads, and nothing is allocated once the two queues have grown to their use.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use super::socket::ClientSocket;
use crate::buffers::Buffer;

/// QueuedParts per write: more than a full batch at depth 32 with structured reads.
const GATHER: usize = 64;

enum QueuedPart {
    /// So many bytes of `heads`.
    Head(usize),
    Data(Buffer),
}

#[derive(Default)]
pub(super) struct AnswerQueue {
    parts: VecDeque<QueuedPart>,
    heads: Vec<u8>,
    /// Where the unsent heads start.
    heads_start: usize,
    /// How much of the first part is sent.
    first_sent: usize,
    /// Everything unsent.
    bytes: usize,
    /// What the payloads cost their pool.
    payload_bytes: usize,
}

pub(super) enum SendState {
    All,
    /// The socket is full.
    Part,
}

impl AnswerQueue {
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Unsent bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What the payloads that are not sent in full cost their pool.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Unsent bytes of heads alone, which no pool bounds.
    pub fn head_bytes(&self) -> usize {
        self.heads.len() - self.heads_start
    }

    pub fn head(&mut self, bytes: &[u8]) {
        self.heads.extend_from_slice(bytes);
        self.bytes += bytes.len();
        match self.parts.back_mut() {
            Some(QueuedPart::Head(length)) => *length += bytes.len(),
            _ => self.parts.push_back(QueuedPart::Head(bytes.len())),
        }
    }

    pub fn data(&mut self, buffer: Buffer) {
        assert!(!buffer.is_empty(), "an empty payload is not queued");
        self.bytes += buffer.len();
        self.payload_bytes += buffer.capacity();
        self.parts.push_back(QueuedPart::Data(buffer));
    }

    /// Sends as much as the socket takes, also of what it has encrypted and not sent yet.
    ///
    /// # Errors
    /// What the kernel says about a broken connection; the queue is then of no more use.
    pub fn send(&mut self, socket: &ClientSocket) -> io::Result<SendState> {
        while !self.is_empty() {
            let (offered, sent) = self.send_some(socket)?;
            self.advance(sent);
            if sent < offered {
                return Ok(SendState::Part);
            }
        }
        Ok(if socket.flush()? { SendState::All } else { SendState::Part })
    }

    fn send_some(&self, socket: &ClientSocket) -> io::Result<(usize, usize)> {
        let mut slices = [IoSlice::new(&[]); GATHER];
        let mut count = 0;
        let mut offered = 0;
        let mut head = self.heads_start;
        let mut skip = self.first_sent;
        for (slice, part) in slices.iter_mut().zip(&self.parts) {
            let bytes = match part {
                QueuedPart::Head(length) => {
                    // `heads_start` has moved past what is sent, a payload's start has not.
                    let unsent = length - std::mem::take(&mut skip);
                    let bytes = &self.heads[head..head + unsent];
                    head += unsent;
                    bytes
                }
                QueuedPart::Data(buffer) => &buffer[std::mem::take(&mut skip)..],
            };
            offered += bytes.len();
            count += 1;
            *slice = IoSlice::new(bytes);
        }
        Ok((offered, socket.write(&mut slices[..count])?.unwrap_or(0)))
    }

    fn advance(&mut self, sent: usize) {
        assert!(sent <= self.bytes);
        self.bytes -= sent;
        let mut left = sent;
        while left > 0 {
            let first = self.parts.front().expect("unsent bytes belong to a part");
            let (length, is_head) = match first {
                QueuedPart::Head(length) => (*length, true),
                QueuedPart::Data(buffer) => (buffer.len(), false),
            };
            let step = left.min(length - self.first_sent);
            left -= step;
            self.first_sent += step;
            if is_head {
                self.heads_start += step;
            }
            if self.first_sent == length {
                if let Some(QueuedPart::Data(buffer)) = self.parts.pop_front() {
                    self.payload_bytes -= buffer.capacity();
                }
                self.first_sent = 0;
            }
        }
        self.tidy();
    }

    /// Gives sent heads' room back: for nothing when all are gone, by moving when the waste has grown.
    fn tidy(&mut self) {
        const WASTE_MAX: usize = 64 << 10;
        if self.heads_start == self.heads.len() {
            self.heads.clear();
            self.heads_start = 0;
        } else if self.heads_start > WASTE_MAX {
            self.heads.drain(..self.heads_start);
            self.heads_start = 0;
        }
    }
}
