//! The stream of frames on a link, cut into pieces at will.

use engine::wire::{FrameHeader, FrameKind, HEADER_BYTES};
use engine::{FramePayload, GroupId, Seq, SessionId};
use host::buffers::Buffer;
use host::link::envelope::{ENVELOPE_BYTES, Envelope, MAGIC, Packing};
use host::link::frames::{FrameReader, NextFrame};

use crate::wire::with_good_checksum;
use crate::{Mutator, Seed};

const SESSION: SessionId = SessionId(0x5e55);
/// Input before the stream: how to cut it, and whether to mend checksums on the way.
const PREFIX_BYTES: usize = 9;

type FramesRead = (Vec<(FrameHeader, Vec<u8>)>, Option<String>);

/// Rule: frames and verdict do not depend on how the stream was cut, nor on when buffers were to be had.
pub fn frame_stream(bytes: &[u8]) {
    let Some((prefix, stream)) = bytes.split_first_chunk::<PREFIX_BYTES>() else { return };
    let [mend, seed @ ..] = *prefix;
    let mut stream = stream.to_vec();
    if mend & 1 == 1 {
        mend_stream(&mut stream);
    }
    let mut cuts = Mutator::new(u64::from_le_bytes(seed));
    let whole = read(&stream, || usize::MAX, || true);
    let mut buffers = Mutator::new(u64::from_le_bytes(seed));
    let in_pieces = read(&stream, || 1 + cuts.below(700), || !buffers.number().is_multiple_of(3));
    assert_eq!(whole, in_pieces, "the cutting shows");
    for (header, payload) in whole.0 {
        assert_eq!(header.check_payload(&payload), Ok(()));
        assert_eq!(header.session, SESSION);
    }
}

fn read(mut stream: &[u8], mut piece: impl FnMut() -> usize, mut has_buffer: impl FnMut() -> bool) -> FramesRead {
    let mut reader = FrameReader::new(SESSION);
    let mut frames = Vec::new();
    loop {
        match reader.next(|length| has_buffer().then(|| Buffer::detached(length))) {
            Err(violation) => return (frames, Some(violation.to_string())),
            Ok(NextFrame::Buffer(_)) => {}
            Ok(NextFrame::Frame(header, payload)) => frames.push((header, bytes_of(payload))),
            Ok(NextFrame::Bytes) if stream.is_empty() => {
                let verdict = reader.is_inside_frame().then(|| "truncated".to_owned());
                return (frames, verdict);
            }
            Ok(NextFrame::Bytes) => {
                let mut count = piece().min(stream.len());
                let mut filled = 0;
                for mut space in reader.space() {
                    let n = space.len().min(count);
                    space[..n].copy_from_slice(&stream[..n]);
                    (stream, count, filled) = (&stream[n..], count - n, filled + n);
                }
                assert!(filled > 0, "a reader that wants bytes has room for them");
                reader.filled(filled);
            }
        }
    }
}

fn bytes_of(payload: FramePayload) -> Vec<u8> {
    match payload {
        FramePayload::None => Vec::new(),
        FramePayload::Control(bytes) => bytes,
        FramePayload::Data(buf) => buf.get::<Buffer>().expect("data arrives in the host's buffers").to_vec(),
    }
}

/// Gives every header its session and checksum, and every payload its own, where a stream of frames would have them.
fn mend_stream(stream: &mut [u8]) {
    let mut rest = stream;
    loop {
        if rest.starts_with(&MAGIC) && rest.len() >= ENVELOPE_BYTES {
            let crc = crc32c::crc32c(&rest[..16]);
            rest[16..20].copy_from_slice(&crc.to_le_bytes());
            let length = u32::from_le_bytes([rest[8], rest[9], rest[10], rest[11]]) as usize;
            rest = rest.get_mut(ENVELOPE_BYTES.saturating_add(length)..).unwrap_or_default();
            continue;
        }
        let Some((header, behind)) = rest.split_first_chunk_mut::<HEADER_BYTES>() else { return };
        header[8..16].copy_from_slice(&SESSION.0.to_le_bytes());
        let length = u32::from_le_bytes([header[72], header[73], header[74], header[75]]) as usize;
        if let Some(payload) = behind.get(..length) {
            header[76..80].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
        }
        *header = with_good_checksum(*header);
        rest = behind.get_mut(length..).unwrap_or_default();
    }
}

fn frame(kind: FrameKind, seq: u64, payload: &[u8]) -> Vec<u8> {
    let length = if kind.carries_data() { payload.len() as u64 } else { 0 };
    let header = FrameHeader { seq: Seq(seq), length, ..FrameHeader::new(kind, SESSION, GroupId(1)) }.sealed(payload);
    [&header.encode()[..], payload].concat()
}

fn packed(packing: Packing, frames: &[Vec<u8>]) -> Vec<u8> {
    let plain = frames.concat();
    let packed = match packing {
        Packing::Lz4 => lz4_flex::block::compress(&plain),
        Packing::Zstd => zstd::bulk::compress(&plain, 1).expect("it packs"),
    };
    let (packed_bytes, plain_bytes) = (packed.len() as u32, plain.len() as u32);
    [&Envelope { packing, packed_bytes, plain_bytes }.encode()[..], &packed].concat()
}

pub fn frame_stream_seeds() -> Vec<Seed> {
    let input = |mend: u8, frames: &[Vec<u8>]| [&[mend], &7u64.to_le_bytes()[..], &frames.concat()].concat();
    let mixed = [
        frame(FrameKind::GroupHello, 0, &[1; 120]),
        frame(FrameKind::Data, 1, &[2; 512]),
        frame(FrameKind::Void, 2, b""),
        frame(FrameKind::Data, 3, &[3; 1500]),
        frame(FrameKind::Heartbeat, 0, &[4; 8]),
    ];
    vec![
        ("mixed", input(0, &mixed)),
        ("mixed_mended", input(1, &mixed)),
        ("truncated", input(0, &[mixed[1][..300].to_vec()])),
        ("empty_data", input(1, &[frame(FrameKind::Data, 1, b"")])),
        ("packed_lz4", input(0, &[packed(Packing::Lz4, &mixed), mixed[1].clone()])),
        ("packed_zstd", input(0, &[mixed[0].clone(), packed(Packing::Zstd, &mixed)])),
        (
            "packed_cut_short",
            input(1, &[packed(Packing::Lz4, &[mixed[3][..1000].to_vec()]), mixed[3][1000..].to_vec()]),
        ),
        (
            "probe_and_goodbye",
            input(1, &[frame(FrameKind::Probe, 5, &[8; 32]), frame(FrameKind::Goodbye, 0, b"until tomorrow")]),
        ),
    ]
}
