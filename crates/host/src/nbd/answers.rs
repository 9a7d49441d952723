//! The answers of one client: encoded as it agreed to take them, and queued.

use std::io;

use super::answer_queue::{AnswerQueue, SendState};
use super::pending_requests::{EXTENTS_MAX, PendingRequest};
use super::proto::{self, Errno, NbdCommand};
use super::socket::ClientSocket;
use crate::buffers::Buffer;
use crate::frontend::{AllocationExtent, RequestFailure, RequestOutcome};

#[derive(Default)]
pub(super) struct NbdAnswers {
    queue: AnswerQueue,
    /// Reads and errors are answered with structured chunks.
    is_structured: bool,
}

impl NbdAnswers {
    pub fn use_structured_replies(&mut self) {
        self.is_structured = true;
    }

    /// What is not sent yet.
    pub fn queue(&self) -> &AnswerQueue {
        &self.queue
    }

    /// # Errors
    /// As [`AnswerQueue::send`].
    pub fn send(&mut self, socket: &ClientSocket) -> io::Result<SendState> {
        self.queue.send(socket)
    }

    /// Nobody will take them: the payloads go back to their pool.
    pub fn clear(&mut self) {
        self.queue = AnswerQueue::default();
    }

    /// Bytes of the handshake.
    pub fn put_plain(&mut self, bytes: &[u8]) {
        self.queue.head(bytes);
    }

    /// Success without effect.
    pub fn put_nothing(&mut self, command: NbdCommand, handle: u64) {
        // An empty read has no data chunk; any other answer without payload may be simple.
        if self.is_structured && command == NbdCommand::Read {
            self.queue.head(&proto::last_chunk(proto::chunk::NONE, handle, 0));
        } else {
            self.queue.head(&proto::simple_reply(handle, None));
        }
    }

    pub fn put_error(&mut self, handle: u64, errno: Errno, reason: &str) {
        if !self.is_structured {
            self.queue.head(&proto::simple_reply(handle, Some(errno)));
            return;
        }
        let length = u16::try_from(reason.len()).expect("an error's sentence is short");
        self.queue.head(&proto::last_chunk(proto::chunk::ERROR, handle, 6 + u32::from(length)));
        self.queue.head(&errno.code().to_be_bytes());
        self.queue.head(&length.to_be_bytes());
        self.queue.head(reason.as_bytes());
    }

    /// What the data path answered; whether that is a success.
    pub fn put_outcome(&mut self, request: &PendingRequest, outcome: RequestOutcome) -> bool {
        match (request.command, outcome) {
            (_, RequestOutcome::Failed(failure)) => {
                self.put_error(request.handle, failure.into(), sentence(failure));
                return false;
            }
            (NbdCommand::Read, RequestOutcome::Data(buffer)) => self.put_data(request, buffer),
            (NbdCommand::BlockStatus, RequestOutcome::Extents(extents)) => self.put_extents(request, &extents),
            (
                NbdCommand::Write | NbdCommand::Flush | NbdCommand::Trim | NbdCommand::WriteZeroes | NbdCommand::Cache,
                RequestOutcome::Done,
            ) => {
                self.queue.head(&proto::simple_reply(request.handle, None));
            }
            (command, outcome) => panic!("the data path answered a {} with {outcome:?}", command.name()),
        }
        true
    }

    fn put_data(&mut self, request: &PendingRequest, buffer: Buffer) {
        assert_eq!(buffer.len(), request.length as usize, "the data path answered a read with another length");
        if self.is_structured {
            self.queue.head(&proto::last_chunk(proto::chunk::OFFSET_DATA, request.handle, request.length + 8));
            self.queue.head(&request.offset.to_be_bytes());
        } else {
            self.queue.head(&proto::simple_reply(request.handle, None));
        }
        self.queue.data(buffer);
    }

    fn put_extents(&mut self, request: &PendingRequest, extents: &[AllocationExtent]) {
        let described = describe(extents, request.length, if request.one_extent { 1 } else { EXTENTS_MAX });
        let count = u32::try_from(described.len()).expect("extents are bounded");
        self.queue.head(&proto::last_chunk(proto::chunk::BLOCK_STATUS, request.handle, 4 + 8 * count));
        self.queue.head(&proto::ALLOCATION_ID.to_be_bytes());
        for (length, state) in described {
            self.queue.head(&length.to_be_bytes());
            self.queue.head(&state.to_be_bytes());
        }
    }
}

fn sentence(failure: RequestFailure) -> &'static str {
    match failure {
        RequestFailure::Io => "the volume failed; if this was a write, its outcome is unknown",
        RequestFailure::NoSpace => "there is no space left for this request",
        RequestFailure::Invalid => "the volume refused the request as invalid",
        RequestFailure::NotSupported => "the volume cannot do this",
        RequestFailure::NoMemory => "the server has no memory left for this request",
        RequestFailure::Gone => "the export is no longer served here",
    }
}

/// The extents as NBD tells them: within the request, equal neighbours joined, at least one and at most `limit`.
///
/// An empty list becomes "data", which the protocol allows for any range.
fn describe(extents: &[AllocationExtent], length: u32, limit: usize) -> Vec<(u32, u32)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(length: u64, hole: bool) -> AllocationExtent {
        AllocationExtent { length, hole, zero: hole }
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
}
