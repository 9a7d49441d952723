//! What the data thread noted of a group's requests, as a trace file holds it.

use host::driver::{Note, NoteKind};
use plan::trace::own::TraceWriter;
use plan::trace::{Kind, LENGTH_BYTES_MAX, Record};

pub(super) fn trace(notes: &[Note]) -> Vec<u8> {
    let whole = || {
        let mut out = TraceWriter::new(Vec::new(), 0)?;
        notes.iter().try_for_each(|note| out.push(&record(note)))?;
        out.finish()
    };
    whole().expect("memory takes everything")
}

fn record(note: &Note) -> Record {
    let (kind, fua) = match note.kind {
        NoteKind::Write { fua } => (Kind::Write, fua),
        NoteKind::Flush => (Kind::Flush, false),
        NoteKind::Zero => (Kind::Trim, false),
    };
    let length = note.length.min(LENGTH_BYTES_MAX) as u32;
    Record { time_ns: note.time_ns, offset: note.offset, length, volume: note.volume, kind, fua, synthetic: false }
}
