//! What is asked of a group, noted for whoever records it: moment, place, length, never the bytes.
//!
//! A tap is opened by the first question for it and closes by itself when nobody has asked for a while, so a recorder that
//! died costs nothing. Between two questions it holds a bounded number of notes; what does not fit is counted.

use std::time::Duration;

use engine::{GroupId, Mono, Request};

use super::plane::Core;

/// Notes between two questions: a quarter of a second of a million requests a second, 8 MiB.
const NOTES_MAX: usize = 1 << 18;
/// A recorder asks several times a second; one that is silent for this long is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a noted request wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    Write {
        fua: bool,
    },
    Flush,
    /// Trimmed, or written as zeroes: no bytes travel.
    Zero,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// Nanoseconds since the data thread started.
    pub time_ns: u64,
    /// The volume's number in its group.
    pub volume: u16,
    pub kind: NoteKind,
    pub offset: u64,
    pub length: u64,
}

/// What was noted since the last question.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    pub notes: Vec<Note>,
    /// Requests that did not fit.
    pub lost: u64,
    /// The tap was opened by this question: nothing before it was noted.
    pub opened: bool,
}

pub(super) struct Tap {
    notes: Vec<Note>,
    lost: u64,
    asked: Mono,
}

impl Core {
    /// Notes a request if its group's tap is open: a clock read and a push.
    pub fn note(&mut self, group: GroupId, volume: u16, request: &Request) {
        let clock = self.clock;
        let tap = &mut self.group(group).tap;
        let Some(open) = tap else { return };
        let now = clock.mono();
        if now.since(open.asked) > PATIENCE {
            *tap = None;
            return;
        }
        if open.notes.len() == NOTES_MAX {
            open.lost += 1;
            return;
        }
        let (kind, offset, length) = match *request {
            Request::Write { offset, length, fua, .. } => (NoteKind::Write { fua }, offset, length),
            Request::Zero { offset, length, .. } => (NoteKind::Zero, offset, length),
            Request::Flush => (NoteKind::Flush, 0, 0),
        };
        open.notes.push(Note { time_ns: now.0, volume, kind, offset, length });
    }

    /// What was noted since the last question; opens the tap if it is closed.
    pub fn take_notes(&mut self, group: GroupId) -> Notes {
        let asked = self.clock.mono();
        let tap = &mut self.group(group).tap;
        match tap {
            Some(open) => {
                open.asked = asked;
                let notes = std::mem::take(&mut open.notes);
                Notes { notes, lost: std::mem::take(&mut open.lost), opened: false }
            }
            None => {
                *tap = Some(Tap { notes: Vec::new(), lost: 0, asked });
                Notes { opened: true, ..Notes::default() }
            }
        }
    }
}
