//! What the disks of a node do with what its engine asks for, and what goes wrong there.

use std::sync::Arc;

use engine::wire::Header;
use engine::*;

use crate::oracle::{Failure, Oracle};
use crate::payload::{Meter, Payload};
use crate::rng::Rng;
use crate::trip::Instant;
use crate::wide::Spread;
use crate::world::{Event, World, slice_of};

/// Until then a trouble strikes each time, and not by chance.
pub const ALWAYS: u64 = u64::MAX;

/// What a disk is doing.
pub enum Job {
    Write {
        store: Store,
        write: u64,
        offset: u64,
        length: u64,
        durable: bool,
    },
    Flush {
        store: Store,
        mark: u64,
    },
    /// `image`: where it begins on the disk.
    Read {
        store: Store,
        offset: u64,
        length: u32,
        image: u64,
        before: Vec<u8>,
        kind: ReadKind,
    },
    ReadMeta {
        store: Store,
        offset: u64,
        length: u32,
    },
    FindHole {
        store: Store,
        offset: u64,
        length: u64,
    },
}

/// What is wanted of what was read.
pub enum ReadKind {
    /// The content, if it has this checksum where one is given.
    Plain {
        crc: Option<u32>,
    },
    Summed,
    Hash,
}

/// Zeroes are holes here, in blocks of 4 KiB.
fn first_run(image: &[u8]) -> (u64, bool) {
    let is_hole = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    let mut blocks = image.chunks(4096);
    let first = blocks.next().is_some_and(is_hole);
    let more: usize = blocks.take_while(|block| is_hole(block) == first).map(<[u8]>::len).sum();
    ((image.len().min(4096) + more) as u64, first)
}

impl World {
    pub fn disk_write(&mut self, node: usize, token: Token, store: Store, offset: u64, data: Vec<u8>, durable: bool) {
        if let Some(spread) = self.spread_of(store) {
            let Some(folded) = spread.folded(offset, &data) else {
                let what = format!("node {node} writes {store:?} from byte {offset} on, where nobody wrote");
                return self.fail(Failure::new(Oracle::Prefix, what));
            };
            let offset = spread.image(offset, data.len() as u64).start;
            return self.begin_write(node, token, store, offset, folded, durable);
        }
        self.begin_write(node, token, store, offset, data, durable);
    }

    pub fn disk_zero(&mut self, node: usize, token: Token, store: Store, offset: u64, length: u64, durable: bool) {
        let image = self.spread_of(store).map(|spread| spread.image(offset, length));
        let range = image.unwrap_or(offset..offset + length);
        let zeroes = vec![0; (range.end - range.start) as usize];
        self.begin_write(node, token, store, range.start, zeroes, durable);
    }

    fn begin_write(&mut self, node: usize, token: Token, store: Store, offset: u64, data: Vec<u8>, durable: bool) {
        let disk = self.nodes[node].disks.get_mut(&store).expect("every store has a disk");
        let length = data.len() as u64;
        let write = disk.begin_write(offset, data);
        self.disk_job(node, token, Job::Write { store, write, offset, length, durable });
    }

    /// A volume's, if it is wide.
    fn spread_of(&self, store: Store) -> Option<Arc<Spread>> {
        self.options.spread.clone().filter(|_| matches!(store, Store::Volume(..)))
    }

    /// A write that ends while the read is under way may be in what it returns, or not.
    pub fn disk_read(&mut self, node: usize, token: Token, store: Store, offset: u64, length: u32, kind: ReadKind) {
        let image = self.spread_of(store).map(|spread| spread.image(offset, u64::from(length)));
        let image = image.unwrap_or(offset..offset + u64::from(length));
        let before = self.nodes[node].disks[&store].view()[image.start as usize..image.end as usize].to_vec();
        self.disk_job(node, token, Job::Read { store, offset, length, image: image.start, before, kind });
    }

    pub fn disk_job(&mut self, node: usize, token: Token, job: Job) {
        let (low, high) = self.options.disk_ns;
        let slow = self.nodes[node].trouble.slow_until > self.now;
        let flush = matches!(job, Job::Flush { store: Store::Volume(..), .. });
        let flush_ns = if flush { self.nodes[node].trouble.flush_ns } else { 0 };
        let after = self.rng.between(low, high) * if slow { 100 } else { 1 } + flush_ns;
        if slow {
            self.felt(node);
        }
        let stalled_ns = self.nodes[node].trouble.stalled_until.saturating_sub(self.now);
        let (after, boot) = (after + stalled_ns, self.nodes[node].boot);
        self.schedule(after, Event::DiskDone { node, boot, token, job });
    }

    pub fn disk_done(&mut self, node: usize, boot: u64, token: Token, job: Job) {
        if self.nodes[node].boot != boot {
            return;
        }
        let is_sync = matches!(job, Job::Flush { .. } | Job::Write { durable: true, .. });
        if is_sync && self.trips_before(node, Instant::Sync) {
            return;
        }
        let written = match &job {
            Job::Write { store: Store::Volume(group, _), .. } => Some(*group),
            _ => None,
        };
        let result = self.finish_job(node, job);
        if result.is_err() {
            self.felt(node);
        }
        if let Some(group) = written.filter(|group| !self.nodes[node].serving.contains(group)) {
            self.withheld_changes(node, group);
        }
        self.input(node, Input::Io { token, result });
        if is_sync {
            self.trips_after(node, Instant::Sync);
        }
    }

    fn finish_job(&mut self, node: usize, job: Job) -> Result<IoDone, IoError> {
        let now = self.now;
        let sim = &mut self.nodes[node];
        let is_volume = |store: &Store| matches!(store, Store::Volume(..));
        match job {
            Job::Write { store, write, offset, length, durable } => {
                let error = self.write_error(node, store);
                let disk = self.nodes[node].disks.get_mut(&store).expect("every store has a disk");
                match error {
                    Some(_) => disk.fail_write(write, offset, length, &mut self.rng),
                    None => disk.end_write(now, write, offset, length, durable),
                }
                error.map_or(Ok(IoDone::Done), Err)
            }
            Job::Flush { store, mark } => {
                let disk = sim.disks.get_mut(&store).expect("every store has a disk");
                if let Store::Volume(group, _) = store
                    && std::mem::take(&mut sim.trouble.fail_next_flush)
                {
                    disk.fail_flush(mark, &mut self.rng);
                    sim.forgot.insert(group);
                    return Err(IoError::Io);
                }
                disk.end_flush(mark);
                Ok(IoDone::Done)
            }
            Job::ReadMeta { store, offset, length } => {
                let all = sim.disks[&store].view();
                let end = (offset as usize + length as usize).min(all.len());
                Ok(IoDone::Meta(all[offset as usize..end].to_vec()))
            }
            Job::FindHole { store, offset, length } => {
                // Of a wide volume most is no part of the image.
                let known = self.options.spread.is_none().then(|| &sim.disks[&store].view()[offset as usize..]);
                let (run, is_hole) = known.map_or((length, false), |image| first_run(&image[..length as usize]));
                Ok(IoDone::Run { length: run, is_hole })
            }
            Job::Read { store, offset, length, image, before, kind } => {
                if is_volume(&store) {
                    sim.volume_read_bytes += u64::from(length);
                }
                let unreadable = sim.trouble.unreadable_until > now;
                if is_volume(&store) && (unreadable || strikes(sim.trouble.read_errors_until, now, 10, &mut self.rng)) {
                    return Err(IoError::Io);
                }
                let view = &sim.disks[&store].view()[image as usize..][..before.len()];
                let data = if view != before && self.rng.percent(50) { before } else { view.to_vec() };
                let spread = self.options.spread.as_ref().filter(|_| is_volume(&store));
                let meter = sim.read_from(store);
                match spread {
                    Some(spread) if matches!(kind, ReadKind::Hash) => {
                        Ok(IoDone::Hash(spread.hash(offset, u64::from(length), &data)))
                    }
                    Some(spread) => {
                        // Not looked at byte by byte: most of it is no part of the image.
                        let zero = data.iter().all(|b| *b == 0);
                        kind.answer(spread.unfolded(offset, u64::from(length), &data), zero, meter)
                    }
                    None => {
                        let zero = data.iter().all(|b| *b == 0);
                        kind.answer(data, zero, meter)
                    }
                }
            }
        }
    }

    /// Whether a write fails now, and how.
    fn write_error(&mut self, node: usize, store: Store) -> Option<IoError> {
        let now = self.now;
        let sim = &mut self.nodes[node];
        let Store::Volume(group, _) = store else {
            if sim.trouble.state_full_until > now {
                return Some(IoError::NoSpace);
            }
            let fails = sim.trouble.fail_record_in == 1;
            sim.trouble.fail_record_in = sim.trouble.fail_record_in.saturating_sub(1);
            return (std::mem::take(&mut sim.trouble.fail_next_record) || fails).then_some(IoError::Io);
        };
        let serves = sim.serving.contains(&group);
        if serves && sim.trouble.serving_full_until > now {
            return Some(IoError::NoSpace);
        }
        if serves {
            let fails = sim.trouble.write_errors_until > now && self.rng.percent(5);
            return fails.then(|| *self.rng.pick(&[IoError::Io, IoError::NoSpace]));
        }
        if strikes(sim.trouble.full_until, now, 30, &mut self.rng) {
            return Some(IoError::NoSpace);
        }
        strikes(sim.trouble.apply_errors_until, now, 5, &mut self.rng).then_some(IoError::Io)
    }
}

/// Whether a trouble that lasts until then strikes now: by chance, or each time where a story has it last [`ALWAYS`].
fn strikes(until: u64, now: u64, percent: u64, rng: &mut Rng) -> bool {
    until > now && (until == ALWAYS || rng.percent(percent))
}

impl ReadKind {
    fn answer(self, data: Vec<u8>, zero: bool, meter: &Meter) -> Result<IoDone, IoError> {
        match self {
            ReadKind::Plain { crc: Some(crc) } if crc != crc32c(&data) => Err(IoError::Damaged),
            ReadKind::Plain { .. } => Ok(IoDone::Payload { buf: Payload::handed_over(data, meter), zero }),
            ReadKind::Summed => {
                let crc = crc32c(&data);
                Ok(IoDone::Summed { buf: Payload::handed_over(data, meter), zero, crc })
            }
            ReadKind::Hash => Ok(IoDone::Hash(hash(&data))),
        }
    }
}

pub fn bytes_of(bytes: &Bytes) -> &[u8] {
    match bytes {
        Bytes::Payload(slice) => slice_of(slice),
        Bytes::Meta(bytes) => bytes,
    }
}

fn crc32c(data: &[u8]) -> u32 {
    Header::new(engine::wire::Kind::Data, SessionId(0), GroupId(0)).sealed(data).payload_crc
}

/// A hash that is good enough to tell two contents apart in a world without an adversary (FNV-1a, four lanes).
pub(crate) fn hash(data: &[u8]) -> [u8; 32] {
    let mut lanes = [0xcbf2_9ce4_8422_2325u64; 4];
    for (i, byte) in data.iter().enumerate() {
        let lane = &mut lanes[i % 4];
        *lane = (*lane ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
    let mut out = [0; 32];
    for (chunk, lane) in out.chunks_mut(8).zip(lanes) {
        chunk.copy_from_slice(&lane.to_le_bytes());
    }
    out
}
