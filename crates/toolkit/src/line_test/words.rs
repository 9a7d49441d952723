//! What the two programs say to each other beside the traffic itself: JSON in control frames, cut where one is too small.

use engine::wire::{FrameHeader, FrameKind, flags};
use engine::{GroupId, SendPayload, SessionId, limits};
use host::link::LinkSender;
use serde::{Deserialize, Serialize};

use super::tally::EndReport;
use super::terms::Terms;
use crate::screen::clean;

/// Longest word of one who asks: the most sizes that a distribution may have take half of it.
pub const ASKED_BYTES_MAX: usize = 256 << 10;
/// Of one who serves: a report with eight distributions, each of every value that three digits tell apart, is half of it.
pub const WORD_BYTES_MAX: usize = 16 << 20;

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
    Report(Box<EndReport>),
    /// What the time is there, in microseconds since 1970: asked with ours, answered with theirs.
    Clock {
        unix_us: u64,
    },
}

impl Word {
    /// Its texts as a terminal may have them, its numbers as a test may have them.
    fn checked(mut self) -> Result<Word, String> {
        match &mut self {
            Word::No { why, .. } => *why = clean(why),
            Word::Report(half) => half.check()?,
            _ => {}
        }
        Ok(self)
    }
}

/// Gathers a word out of its frames.
pub struct WordAssembler {
    gathered: Vec<u8>,
    bytes_max: usize,
}

impl WordAssembler {
    pub fn new(bytes_max: usize) -> WordAssembler {
        WordAssembler { gathered: Vec::new(), bytes_max }
    }

    /// # Errors
    /// A sentence about the peer.
    pub fn hear(&mut self, header: &FrameHeader, payload: &[u8]) -> Result<Option<Word>, String> {
        if self.gathered.len() + payload.len() > self.bytes_max {
            return Err(format!("the other end sends a message of more than {} KiB", self.bytes_max >> 10));
        }
        self.gathered.extend_from_slice(payload);
        if header.flags & flags::LAST == 0 {
            return Ok(None);
        }
        let word: Result<Word, _> = serde_json::from_slice(&std::mem::take(&mut self.gathered));
        let word = word.map_err(|error| {
            // Which may be in its own words.
            let error = clean(&error.to_string());
            format!(
                "the other end sent a message that this program does not understand ({error}); are both of one version?"
            )
        })?;
        word.checked().map(Some)
    }
}

/// Hands a word over; it goes with the next flush.
pub fn push(sender: &LinkSender, session: SessionId, word: &Word) {
    let bytes = serde_json::to_vec(word).expect("plain data becomes JSON");
    let mut pieces = bytes.chunks(limits::CONTROL_BYTES_MAX as usize).peekable();
    while let Some(piece) = pieces.next() {
        let mut header = FrameHeader::new(FrameKind::GroupState, session, GroupId(0));
        header.flags = if pieces.peek().is_none() { flags::LAST } else { 0 };
        sender.push(header, SendPayload::Control(piece.to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(ear: &mut WordAssembler, text: &str, flags: u16) -> Result<Option<Word>, String> {
        let mut header = FrameHeader::new(FrameKind::GroupState, SessionId(1), GroupId(0));
        header.flags = flags;
        ear.hear(&header, text.as_bytes())
    }

    #[test]
    fn a_word_without_an_end_is_not_gathered_for_ever() {
        let mut ear = WordAssembler::new(100);
        assert!(heard(&mut ear, &"x".repeat(60), 0).is_ok_and(|word| word.is_none()));
        assert!(heard(&mut ear, &"x".repeat(60), 0).is_err_and(|why| why.contains("of more than")));
        let most = Terms { sizes: vec![(64 << 20, u64::MAX); 4096], ..Terms::default() };
        let asked = serde_json::to_vec(&Word::Ask(Box::new(most))).expect("JSON");
        assert!(asked.len() < ASKED_BYTES_MAX, "{}", asked.len());
    }

    #[test]
    fn what_a_peer_says_does_not_reach_the_terminal_as_it_is() {
        let mut ear = WordAssembler::new(1000);
        let no = heard(&mut ear, r#"{"no":{"why":"\u001b]0;mine\u0007 no","is_usage":false}}"#, flags::LAST);
        assert!(matches!(no, Ok(Some(Word::No { why, .. })) if why == "?]0;mine? no"));
        let unknown = heard(&mut ear, r#""\u001b[2J""#, flags::LAST).expect_err("no word of ours");
        assert!(unknown.contains("unknown variant `?[2J`"), "{unknown:?}");
    }
}
