//! Frames packed together: an envelope, and in it a run of whole frames, compressed. Byte by byte in docs/book/protocol.md.
//!
//! Nothing in the envelope is a frame's own: headers, checksums and sessions are those of the frames inside, and are
//! checked as if they had come as they are.
//!
//! What must hold:
//! * nothing is allocated, and nothing unpacked, before the envelope passed its own checksum and its bounds;
//! * unpacking fills exactly what was announced, at most one largest frame, whatever the packed bytes say.

use std::fmt;

use engine::limits;
use engine::wire::HEADER_BYTES;

pub const ENVELOPE_BYTES: usize = 20;
/// What may come out of one envelope: the largest frame.
pub(crate) const PLAIN_BYTES_MAX: usize = limits::PART_BYTES_MAX as usize + HEADER_BYTES;
/// How an envelope begins, where a frame may begin.
pub const MAGIC: [u8; 4] = *b"FSHZ";

/// How the content is packed, as the envelope says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Packing {
    /// One LZ4 block.
    Lz4 = 1,
    /// One zstd frame.
    Zstd = 2,
}

/// What stands before packed frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub packing: Packing,
    pub packed_bytes: u32,
    pub plain_bytes: u32,
}

/// Why packed frames are not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackError {
    Damaged,
    Unknown(u8),
    Lengths { packed: u32, plain: u32 },
    DoesNotUnpack { plain: u32 },
    FrameCutShort,
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PackError::Damaged => write!(f, "an envelope of packed frames arrived damaged (its checksum differs)"),
            PackError::Unknown(byte) => {
                write!(f, "the peer packed frames in a way this node does not know (number {byte})")
            }
            PackError::Lengths { packed, plain } => write!(
                f,
                "the peer announced {packed} packed bytes that become {plain}; they have to become more than that with \
                 the envelope, and {PLAIN_BYTES_MAX} at most"
            ),
            PackError::DoesNotUnpack { plain } => {
                write!(f, "the peer's packed frames do not unpack into the {plain} bytes it announced")
            }
            PackError::FrameCutShort => write!(f, "the peer packed a frame that ends beyond its envelope"),
        }
    }
}

impl Envelope {
    pub fn encode(&self) -> [u8; ENVELOPE_BYTES] {
        let mut bytes = [0; ENVELOPE_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = self.packing as u8;
        bytes[8..12].copy_from_slice(&self.packed_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.plain_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..16]);
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Checks and decodes what begins with [`MAGIC`].
    pub fn decode(bytes: &[u8; ENVELOPE_BYTES]) -> Result<Envelope, PackError> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..4] != MAGIC || number(16) != crc32c::crc32c(&bytes[..16]) || bytes[5..8] != [0; 3] {
            return Err(PackError::Damaged);
        }
        let packing = match bytes[4] {
            1 => Packing::Lz4,
            2 => Packing::Zstd,
            other => return Err(PackError::Unknown(other)),
        };
        let (packed, plain) = (number(8), number(12));
        let gains = u64::from(packed) + (ENVELOPE_BYTES as u64) < u64::from(plain);
        if packed == 0 || !gains || plain as usize > PLAIN_BYTES_MAX {
            return Err(PackError::Lengths { packed, plain });
        }
        Ok(Envelope { packing, packed_bytes: packed, plain_bytes: plain })
    }

    /// Unpacks into `plain`, which is as long as announced.
    pub fn unpack(&self, packed: &[u8], plain: &mut [u8]) -> Result<(), PackError> {
        assert_eq!((packed.len(), plain.len()), (self.packed_bytes as usize, self.plain_bytes as usize));
        let length = match self.packing {
            Packing::Lz4 => lz4_flex::block::decompress_into(packed, plain).ok(),
            Packing::Zstd => zstd::bulk::decompress_to_buffer(packed, plain).ok(),
        };
        match length {
            Some(length) if length == plain.len() => Ok(()),
            _ => Err(PackError::DoesNotUnpack { plain: self.plain_bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: u32 = 60_000;

    fn lz4(plain: &[u8]) -> (Envelope, Vec<u8>) {
        let packed = lz4_flex::block::compress(plain);
        (Envelope { packing: Packing::Lz4, packed_bytes: packed.len() as u32, plain_bytes: plain.len() as u32 }, packed)
    }

    fn zstd(plain: &[u8]) -> (Envelope, Vec<u8>) {
        let packed = zstd::bulk::compress(plain, 1).expect("it packs");
        let (packed_bytes, plain_bytes) = (packed.len() as u32, plain.len() as u32);
        (Envelope { packing: Packing::Zstd, packed_bytes, plain_bytes }, packed)
    }

    #[test]
    fn what_was_packed_comes_out() {
        let plain: Vec<u8> = (0..PLAIN).map(|n| (n / 100) as u8).collect();
        for (envelope, packed) in [lz4(&plain), zstd(&plain)] {
            assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope));
            let mut out = vec![0; plain.len()];
            assert_eq!(envelope.unpack(&packed, &mut out), Ok(()));
            assert!(out == plain);
        }
    }

    /// A few bytes that become far more than was said, or less: refused, and never a byte beyond the space.
    #[test]
    fn what_becomes_more_or_less_than_announced_is_refused() {
        let plain = vec![0; 64 << 20];
        for (envelope, packed) in [lz4(&plain), zstd(&plain)] {
            for plain_bytes in [PLAIN, PLAIN_BYTES_MAX as u32] {
                let forged = Envelope { plain_bytes, ..envelope };
                let mut out = vec![0; plain_bytes as usize];
                assert_eq!(forged.unpack(&packed, &mut out), Err(PackError::DoesNotUnpack { plain: plain_bytes }));
            }
        }
        for (envelope, packed) in [lz4(&plain[..1000]), zstd(&plain[..1000])] {
            let forged = Envelope { plain_bytes: 1001, ..envelope };
            assert!(forged.unpack(&packed, &mut [0; 1001]).is_err());
        }
    }

    #[test]
    fn damage_unknown_ways_and_lengths_out_of_bounds_are_refused() {
        let good = Envelope { packing: Packing::Lz4, packed_bytes: 100, plain_bytes: 1000 };
        for bit in 0..ENVELOPE_BYTES * 8 {
            let mut bad = good.encode();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Envelope::decode(&bad), Err(PackError::Damaged), "bit {bit}");
        }
        let mut unknown = good.encode();
        unknown[4] = 9;
        let crc = crc32c::crc32c(&unknown[..16]);
        unknown[16..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Envelope::decode(&unknown), Err(PackError::Unknown(9)));
        let most = PLAIN_BYTES_MAX as u32;
        for (packed_bytes, plain_bytes) in [(0, 1000), (980, 1000), (u32::MAX, 1000), (100, most + 1), (100, u32::MAX)]
        {
            let bad = Envelope { packed_bytes, plain_bytes, ..good };
            let refused = Err(PackError::Lengths { packed: packed_bytes, plain: plain_bytes });
            assert_eq!(Envelope::decode(&bad.encode()), refused);
        }
        let largest = Envelope { plain_bytes: most, ..good };
        assert_eq!(Envelope::decode(&largest.encode()), Ok(largest));
    }
}
