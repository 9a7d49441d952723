//! What the two programs say to each other beside the traffic itself: JSON in control frames, cut where one is too small.

use engine::wire::{Header, Kind, flags};
use engine::{GroupId, SendPayload, SessionId, limits};
use host::link::LinkSender;
use serde::{Deserialize, Serialize};

use super::tally::Half;
use super::terms::Terms;

/// A report of a long test with all its distributions is a few hundred KiB.
const WORD_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// What is to be tested.
    Ask(Box<Terms>),
    /// The connections may come, with this token.
    Ready {
        token: u64,
    },
    No {
        why: String,
        is_usage: bool,
    },
    /// This connection carries data of the test with that token.
    Join {
        token: u64,
    },
    Go,
    /// No more flushes: somebody interrupted.
    Stop,
    /// All that was sent has been confirmed.
    Finish {
        interrupted: bool,
    },
    Report(Box<Half>),
    /// What the time is there, in microseconds since 1970: asked with ours, answered with theirs.
    Clock {
        unix_us: u64,
    },
}

/// Gathers a word out of its frames.
#[derive(Default)]
pub struct Ear(Vec<u8>);

impl Ear {
    /// # Errors
    /// A sentence about the peer.
    pub fn hear(&mut self, header: &Header, payload: &[u8]) -> Result<Option<Word>, String> {
        self.0.extend_from_slice(payload);
        if self.0.len() > WORD_BYTES_MAX {
            return Err("the other end sends a message without an end".to_owned());
        }
        if header.flags & flags::LAST == 0 {
            return Ok(None);
        }
        let word = serde_json::from_slice(&std::mem::take(&mut self.0));
        word.map(Some).map_err(|error| {
            format!(
                "the other end sent a message that this program does not understand ({error}); are both of one version?"
            )
        })
    }
}

pub fn say(sender: &LinkSender, session: SessionId, word: &Word) {
    let bytes = serde_json::to_vec(word).expect("plain data becomes JSON");
    let mut pieces = bytes.chunks(limits::CONTROL_BYTES_MAX as usize).peekable();
    while let Some(piece) = pieces.next() {
        let mut header = Header::new(Kind::GroupState, session, GroupId(0));
        header.flags = if pieces.peek().is_none() { flags::LAST } else { 0 };
        sender.push(header, SendPayload::Control(piece.to_vec()));
    }
    sender.flush();
}
