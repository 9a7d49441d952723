//! What is asked of a group, recorded for whoever wants it: moment, offset, length, never the bytes.
//!
//! Recording begins with the first question for it and ends by itself when nobody has asked for a while, so a reader that
//! died costs nothing. Between two questions a bounded number of notes is held; what does not fit is counted.

use std::time::Duration;

use engine::{Mono, Request};

use super::clock::NodeClock;

/// Notes between two questions: a quarter of a second of a million requests a second, 8 MiB.
const NOTES_MAX: usize = 1 << 18;
/// A reader asks several times a second; one that is silent for this long is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a noted request wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedKind {
    Write {
        fua: bool,
    },
    Flush,
    /// Trimmed, or written as zeroes: no bytes travel.
    Zero,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// Nanoseconds since the data thread started.
    pub time_ns: u64,
    /// The volume's number in its group.
    pub volume: u16,
    pub kind: RecordedKind,
    pub offset: u64,
    pub length: u64,
}

/// What was noted since the last question.
#[derive(Clone, Debug, Default)]
pub struct RecordedRequests {
    pub notes: Vec<RecordedRequest>,
    /// Requests that did not fit.
    pub lost: u64,
    /// Recording began with this question: nothing before it was noted.
    pub opened: bool,
}

/// Records the requests of one group while somebody asks for them.
#[derive(Default)]
pub(super) struct RequestRecorder(Option<Recording>);

struct Recording {
    notes: Vec<RecordedRequest>,
    lost: u64,
    /// The last question.
    asked: Mono,
}

impl RequestRecorder {
    /// Notes a request while recording: a clock read and a push.
    pub fn record(&mut self, clock: NodeClock, volume: u16, request: &Request) {
        let Some(recording) = &mut self.0 else { return };
        let now = clock.mono();
        if now.since(recording.asked) > PATIENCE {
            self.0 = None;
            return;
        }
        if recording.notes.len() == NOTES_MAX {
            recording.lost += 1;
            return;
        }
        let (kind, offset, length) = match *request {
            Request::Write { offset, length, fua, .. } => (RecordedKind::Write { fua }, offset, length),
            Request::Zero { offset, length, .. } => (RecordedKind::Zero, offset, length),
            Request::Flush => (RecordedKind::Flush, 0, 0),
        };
        recording.notes.push(RecordedRequest { time_ns: now.0, volume, kind, offset, length });
    }

    /// What was noted since the last question; begins to record.
    pub fn take(&mut self, now: Mono) -> RecordedRequests {
        let before = self.0.replace(Recording { notes: Vec::new(), lost: 0, asked: now });
        before.map_or_else(
            || RecordedRequests { opened: true, ..RecordedRequests::default() },
            |recording| RecordedRequests { notes: recording.notes, lost: recording.lost, opened: false },
        )
    }
}
