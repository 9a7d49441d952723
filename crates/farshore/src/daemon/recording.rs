//! What the data thread noted of a group's requests, as a trace file holds it.

use host::driver::{RecordedKind, RecordedRequest};
use plan::trace::own::TraceWriter;
use plan::trace::{LENGTH_BYTES_MAX, TraceKind, TraceRecord};

pub(super) fn trace(notes: &[RecordedRequest]) -> Vec<u8> {
    let whole = || {
        let mut out = TraceWriter::new(Vec::new(), 0)?;
        notes.iter().try_for_each(|note| out.push(&record(note)))?;
        out.finish()
    };
    whole().expect("memory takes everything")
}

fn record(note: &RecordedRequest) -> TraceRecord {
    let (kind, fua) = match note.kind {
        RecordedKind::Write { fua } => (TraceKind::Write, fua),
        RecordedKind::Flush => (TraceKind::Flush, false),
        RecordedKind::Zero => (TraceKind::Trim, false),
    };
    let length = note.length.min(LENGTH_BYTES_MAX) as u32;
    TraceRecord { time_ns: note.time_ns, offset: note.offset, length, volume: note.volume, kind, fua, synthetic: false }
}
