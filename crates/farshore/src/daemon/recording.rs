//! What the data thread noted of a group's requests, as a trace file holds it.

use host::driver::{RecordedKind, RecordedRequest};
use plan::trace::own::TraceWriter;
use plan::trace::{Kind, LENGTH_BYTES_MAX, Record};

pub(super) fn trace(notes: &[RecordedRequest]) -> Vec<u8> {
    let whole = || {
        let mut out = TraceWriter::new(Vec::new(), 0)?;
        notes.iter().try_for_each(|note| out.push(&record(note)))?;
        out.finish()
    };
    whole().expect("memory takes everything")
}

fn record(note: &RecordedRequest) -> Record {
    let (kind, fua) = match note.kind {
        RecordedKind::Write { fua } => (Kind::Write, fua),
        RecordedKind::Flush => (Kind::Flush, false),
        RecordedKind::Zero => (Kind::Trim, false),
    };
    let length = note.length.min(LENGTH_BYTES_MAX) as u32;
    Record { time_ns: note.time_ns, offset: note.offset, length, volume: note.volume, kind, fua, synthetic: false }
}
