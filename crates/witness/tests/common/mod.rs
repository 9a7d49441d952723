//! A small world for the tests: seeded chance, histories with overlaps, and images made by applying writes in order.

use std::collections::BTreeMap;

use witness::{
    PrefixVerdict, RecordedWrite, RunId, SECTOR_BYTES, VolumeImage, VolumeNumber, WriteHistory, WriteRecorder,
    WriteTicket, WriterId, check,
};

pub const RUN: RunId = RunId(0x5eed);

/// Splitmix: a seed gives the same case everywhere.
pub struct CaseRandom(u64);

impl CaseRandom {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % bound
    }

    pub fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// How a random history is drawn.
pub struct HistoryShape {
    pub volumes: u32,
    pub sectors: u64,
    pub length_max: u64,
    pub writers: u32,
    pub depth: usize,
    pub writes: usize,
}

/// Writers that keep up to `depth` writes in flight, answered in any order, a few of them never. Also says the order in
/// which the writes took effect: one that respects the answers.
pub fn draw(chance: &mut CaseRandom, shape: &HistoryShape) -> (WriteHistory, Payloads, Vec<usize>) {
    let recorder = WriteRecorder::new(RUN);
    let mut payloads = Payloads::default();
    let mut flying: Vec<(usize, u32, Option<WriteTicket>)> = Vec::new();
    let mut order = Vec::new();
    let mut effect: Vec<bool> = Vec::new();
    while order.len() < shape.writes {
        let issued = effect.len();
        let writer = chance.below(u64::from(shape.writers)) as u32;
        let busy = flying.iter().filter(|(_, of, ticket)| *of == writer && ticket.is_some()).count();
        if issued < shape.writes && busy < shape.depth && !chance.one_in(2) {
            let volume = VolumeNumber(chance.below(u64::from(shape.volumes)) as u32);
            let length = 1 + chance.below(shape.length_max);
            let first = chance.below(shape.sectors - length + 1);
            let sector = SECTOR_BYTES as u64;
            let ticket = recorder.issue(WriterId(writer), volume, first * sector, (length * sector) as u32);
            let mut bytes = vec![0; (length * sector) as usize];
            ticket.stamp(&mut bytes);
            payloads.0.push(bytes);
            effect.push(false);
            flying.push((issued, writer, Some(ticket)));
        } else if !flying.is_empty() {
            let at = chance.below(flying.len() as u64) as usize;
            if !effect[flying[at].0] {
                effect[flying[at].0] = true;
                order.push(flying[at].0);
            } else {
                let (_, _, ticket) = flying.swap_remove(at);
                let ticket = ticket.expect("a flying write has its ticket");
                if chance.one_in(8) { recorder.fail(ticket) } else { recorder.acknowledge(ticket) }
            }
        }
    }
    // Some of the last are answered, some never.
    for (_, _, ticket) in flying {
        if let Some(ticket) = ticket.filter(|_| chance.one_in(2)) {
            recorder.acknowledge(ticket);
        }
    }
    (recorder.history(), payloads, order)
}

/// The stamped bytes of every write, by its position in the history.
#[derive(Clone, Default)]
pub struct Payloads(pub Vec<Vec<u8>>);

/// Volumes in memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Disks(pub BTreeMap<u32, Vec<u8>>);

impl Disks {
    pub fn new(volumes: u32, sectors: u64) -> Self {
        Self((0..volumes).map(|volume| (volume, vec![0; sectors as usize * SECTOR_BYTES])).collect())
    }

    pub fn apply(&mut self, write: &RecordedWrite, payload: &[u8]) {
        let at = write.offset_bytes as usize;
        self.volume(write.volume)[at..at + payload.len()].copy_from_slice(payload);
    }

    pub fn volume(&mut self, volume: VolumeNumber) -> &mut Vec<u8> {
        self.0.get_mut(&volume.0).expect("a volume of this world")
    }

    pub fn sector(&mut self, volume: u32, sector: usize) -> &mut [u8] {
        &mut self.volume(VolumeNumber(volume))[sector * SECTOR_BYTES..][..SECTOR_BYTES]
    }

    pub fn check(&self, history: &WriteHistory) -> PrefixVerdict {
        let images =
            self.0.iter().map(|(&volume, bytes)| VolumeImage::new(VolumeNumber(volume), bytes.as_slice())).collect();
        check(history, images).expect("images in memory can be read")
    }
}
