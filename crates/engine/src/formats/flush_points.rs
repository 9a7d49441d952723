//! What a primary that lost its power asks its peer by.

use alloc::vec::Vec;

use crate::formats::codec::{FieldDecoder, FieldEncoder};
use crate::ids::{Incarnation, Seq};

/// Payload of `TailAsk`: for each volume, what is known to be flushed on it of the unverified run.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FlushPoints {
    pub incarnation: Incarnation,
    pub volumes: Vec<Seq>,
}

impl FlushPoints {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = FieldEncoder::default();
        w.u64(self.incarnation.0);
        w.u16(self.volumes.len() as u16);
        for seq in &self.volumes {
            w.u64(seq.0);
        }
        w.0
    }

    pub fn decode(bytes: &[u8]) -> Option<FlushPoints> {
        let mut r = FieldDecoder(bytes);
        let (incarnation, count) = (Incarnation(r.number()?), usize::from(r.u16()?));
        if count > crate::limits::VOLUMES_MAX {
            return None;
        }
        let volumes = (0..count).map(|_| r.number().map(Seq)).collect::<Option<Vec<Seq>>>()?;
        r.is_empty().then_some(FlushPoints { incarnation, volumes })
    }
}
