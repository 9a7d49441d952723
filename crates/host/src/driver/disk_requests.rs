//! What the engine and the readers want of disks, and what came of it.

use std::sync::Arc;

use engine::{Buf, GroupId, IoDone, IoError, Output, SpilledPart, Store, Token, WriteBytes};

use super::groups::LocalGroups;
use super::slab::Slab;
use super::spill;
use crate::buffers::{Buffer, Pool};
use crate::disk::meta::BlockSalvage;
use crate::disk::{
    AllocationRun, Completion, DiskAnswer, DiskError, DiskOp, ErrorKind, File, FileEngine, Inline, Part, Parts, is_zero,
};
use crate::frontend::{AllocationExtent, ClientId, RequestFailure, RequestOutcome};

/// Who waits for a request at the disks.
enum PendingDiskRequest {
    /// A client's read or question about allocation; neither passes the engine.
    Client {
        client: ClientId,
        cookie: u64,
        volume: usize,
    },
    Engine {
        token: Token,
        store: Store,
        then: AfterDisk,
    },
}

/// What came of a request.
pub(super) enum Finished {
    /// It goes on with another one.
    Continued,
    Client {
        client: ClientId,
        cookie: u64,
        outcome: RequestOutcome,
    },
    Engine {
        token: Token,
        result: Result<IoDone, IoError>,
    },
    /// The engine wants these bytes of a volume hashed, with the key of the group's link.
    Unhashed {
        token: Token,
        group: GroupId,
        buffer: Buffer,
    },
}

impl Finished {
    fn failed(token: Token, error: IoError) -> Finished {
        Finished::Engine { token, result: Err(error) }
    }
}

/// What becomes of the engine's request when the disk is done.
enum AfterDisk {
    Done,
    /// The zeroes must be durable too.
    Flush,
    Payload {
        crc: Option<u32>,
    },
    Summed,
    /// What was written has these sums.
    Spilled(Vec<u32>),
    /// What was read has to have the sums of these parts.
    Fetched(Vec<SpilledPart>),
    Meta {
        offset: u64,
        length: u32,
    },
    /// A disk refused cells; they are read again block by block.
    Block(BlockSalvage),
    Hash,
    Run,
    Renewed,
}

/// The file engine, and what it has been given.
pub(super) struct DiskRequests {
    engine: FileEngine,
    /// The number is the file engine's token.
    pending: Slab<PendingDiskRequest>,
    /// What the engine reads: bounded by the engine's own limits on reads in flight.
    reads: Pool,
}

impl DiskRequests {
    pub fn new(engine: FileEngine) -> DiskRequests {
        DiskRequests { engine, pending: Slab::default(), reads: Pool::new(usize::MAX) }
    }

    pub fn engine(&self) -> &FileEngine {
        &self.engine
    }

    pub fn engine_mut(&mut self) -> &mut FileEngine {
        &mut self.engine
    }

    /// Puts a client's request on the tray, for the volume at this position.
    pub fn ask(&mut self, (client, cookie): (ClientId, u64), volume: usize, device: &Arc<File>, op: DiskOp) {
        let inline = if matches!(op, DiskOp::Read { .. }) { Inline::Allowed } else { Inline::Forbidden };
        self.put(PendingDiskRequest::Client { client, cookie, volume }, device, op, inline);
    }

    /// Puts one of the engine's disk requests on the tray.
    pub fn submit(&mut self, output: Output, groups: &LocalGroups) {
        let (token, store, op, inline, then) = match output {
            Output::Write { token, store, offset, parts, durable, waits_for_peer } => {
                groups.note_stored(store, parts.iter().map(WriteBytes::length).sum());
                let inline = if durable || waits_for_peer { Inline::Forbidden } else { Inline::Allowed };
                let op = DiskOp::Write { offset, parts: parts_of(parts), dsync: durable };
                (token, store, op, inline, AfterDisk::Done)
            }
            Output::Zero { token, store, offset, length, no_hole, durable } => {
                let then = if durable { AfterDisk::Flush } else { AfterDisk::Done };
                (token, store, DiskOp::Zero { offset, length, no_hole }, Inline::Forbidden, then)
            }
            Output::Flush { token, store } => (token, store, DiskOp::Flush, Inline::Forbidden, AfterDisk::Done),
            Output::Read { token, store, offset, length, crc } => {
                (token, store, self.read(offset, length), Inline::Allowed, AfterDisk::Payload { crc })
            }
            Output::ReadSummed { token, store, offset, length } => {
                (token, store, self.read(offset, length), Inline::Allowed, AfterDisk::Summed)
            }
            Output::ReadMeta { token, store, offset, length } => {
                (token, store, self.read(offset, length), Inline::Allowed, AfterDisk::Meta { offset, length })
            }
            Output::Spill { token, store, offset, parts } => {
                let (parts, sums) = spill::laid_out(parts);
                groups.note_stored(store, parts.length() as u64);
                let op = DiskOp::Write { offset, parts, dsync: false };
                // No writer waits for it, so the data thread does not either.
                (token, store, op, Inline::Forbidden, AfterDisk::Spilled(sums))
            }
            Output::Append { token, store, offset, index, parts } => {
                let (parts, sums) = spill::logged(index, parts);
                groups.note_stored(store, parts.length() as u64);
                (
                    token,
                    store,
                    DiskOp::Write { offset, parts, dsync: true },
                    Inline::Forbidden,
                    AfterDisk::Spilled(sums),
                )
            }
            Output::Fetch { token, store, offset, parts } => {
                let op = self.read(offset, spill::blocks_bytes(&parts));
                (token, store, op, Inline::Forbidden, AfterDisk::Fetched(parts))
            }
            Output::Renew { token, store } => {
                let Store::Delta(group) = store else { unreachable!("only a delta is made anew") };
                let (beside, path) = groups.delta_place(group);
                let op = DiskOp::RenewDelta { path };
                let pending = PendingDiskRequest::Engine { token, store, then: AfterDisk::Renewed };
                return self.put(pending, beside, op, Inline::Forbidden);
            }
            Output::FindHole { token, store, offset, length } => {
                (token, store, DiskOp::BlockStatus { offset, length, runs_max: 1 }, Inline::Forbidden, AfterDisk::Run)
            }
            Output::ReadHash { token, store, offset, length } => {
                (token, store, self.read(offset, length), Inline::Allowed, AfterDisk::Hash)
            }
            other => unreachable!("not a request for a disk: {other:?}"),
        };
        self.put(PendingDiskRequest::Engine { token, store, then }, groups.file(store), op, inline);
    }

    fn read(&self, offset: u64, length: u32) -> DiskOp {
        let buffer = self.reads.take(length as usize).expect("this pool has no limit");
        DiskOp::Read { offset, buffer }
    }

    fn put(&mut self, pending: PendingDiskRequest, file: &Arc<File>, op: DiskOp, inline: Inline) {
        let token = self.pending.put(pending);
        self.engine.submit(u64::from(token), file, op, inline);
    }

    /// One request is done.
    pub fn completed(&mut self, completion: Completion, groups: &mut LocalGroups) -> Finished {
        let number = u32::try_from(completion.token).expect("tokens are our own numbers");
        match self.pending.take(number).expect("a request completes once") {
            PendingDiskRequest::Client { client, cookie, volume } => {
                if let Err(error) = &completion.result {
                    groups.volume_mut(volume).failed(error);
                }
                Finished::Client { client, cookie, outcome: outcome_of(completion.result) }
            }
            PendingDiskRequest::Engine { token, store, then } => match completion.result {
                Ok(answer) => self.answered(token, store, then, answer, groups),
                // A file system that cannot say: what stands there is read.
                Err(_) if matches!(then, AfterDisk::Run) => {
                    self.answered(token, store, then, DiskAnswer::Runs(Vec::new()), groups)
                }
                Err(error) => {
                    groups.store_failed(store, &error);
                    self.failed(token, store, then, error.kind, groups)
                }
            },
        }
    }

    fn failed(
        &mut self,
        token: Token,
        store: Store,
        then: AfterDisk,
        kind: ErrorKind,
        groups: &LocalGroups,
    ) -> Finished {
        match then {
            AfterDisk::Meta { offset, length } if kind == ErrorKind::Io && is_of_cells(store) => {
                self.read_block(token, store, BlockSalvage::begin(offset, length as usize), groups)
            }
            AfterDisk::Block(blocks) if kind == ErrorKind::Io => self.block_read(token, store, blocks, None, groups),
            _ => Finished::failed(token, io_error(store, kind)),
        }
    }

    fn answered(
        &mut self,
        token: Token,
        store: Store,
        then: AfterDisk,
        answer: DiskAnswer,
        groups: &mut LocalGroups,
    ) -> Finished {
        let result = match (then, answer) {
            (AfterDisk::Renewed, DiskAnswer::Opened(file)) => {
                let Store::Delta(group) = store else { unreachable!("only a delta is made anew") };
                groups.delta_made(group, file);
                Ok(IoDone::Done)
            }
            (AfterDisk::Flush, DiskAnswer::Done) => {
                let pending = PendingDiskRequest::Engine { token, store, then: AfterDisk::Done };
                self.put(pending, groups.file(store), DiskOp::Flush, Inline::Forbidden);
                return Finished::Continued;
            }
            (AfterDisk::Hash, DiskAnswer::Data(buffer)) => {
                let Store::Volume(group, _) = store else { unreachable!("only volumes are compared") };
                return Finished::Unhashed { token, group, buffer };
            }
            (AfterDisk::Block(blocks), DiskAnswer::Data(buffer)) => {
                return self.block_read(token, store, blocks, Some(&buffer), groups);
            }
            (AfterDisk::Done, DiskAnswer::Done) => Ok(IoDone::Done),
            (AfterDisk::Payload { crc }, DiskAnswer::Data(buffer)) => payload(buffer, crc),
            (AfterDisk::Summed, DiskAnswer::Data(buffer)) => {
                let (zero, crc) = (is_zero(&buffer), crc32c::crc32c(&buffer));
                Ok(IoDone::Summed { buf: Buf::new(Arc::new(buffer)), zero, crc })
            }
            (AfterDisk::Spilled(sums), DiskAnswer::Done) => {
                let Store::Queue(group) = store else { unreachable!("only a queue is spilled") };
                groups.spilled(group);
                Ok(IoDone::Sums(sums))
            }
            (AfterDisk::Fetched(parts), DiskAnswer::Data(buffer)) => spill::checked(buffer, &parts),
            (AfterDisk::Meta { .. }, DiskAnswer::Data(buffer)) => Ok(IoDone::Meta(buffer.to_vec())),
            (AfterDisk::Run, DiskAnswer::Runs(runs)) => {
                let first = runs.first().copied().unwrap_or(AllocationRun { length: 0, hole: false });
                Ok(IoDone::Run { length: first.length, is_hole: first.hole })
            }
            _ => unreachable!("the disks answer what was asked"),
        };
        if matches!(result, Err(IoError::Damaged)) {
            let path = groups.file(store).path().display().to_string();
            tracing::error!(
                "{path} holds bytes whose checksum does not match: the medium is failing, or it was written by others"
            );
        }
        Finished::Engine { token, result }
    }

    fn block_read(
        &mut self,
        token: Token,
        store: Store,
        mut blocks: BlockSalvage,
        block: Option<&[u8]>,
        groups: &LocalGroups,
    ) -> Finished {
        blocks.take(block);
        self.read_block(token, store, blocks, groups)
    }

    fn read_block(&mut self, token: Token, store: Store, blocks: BlockSalvage, groups: &LocalGroups) -> Finished {
        let Some(offset) = blocks.next() else {
            let result = blocks.found().map(IoDone::Meta).ok_or(IoError::Io);
            return Finished::Engine { token, result };
        };
        let op = self.read(offset, BlockSalvage::BYTES as u32);
        self.put(
            PendingDiskRequest::Engine { token, store, then: AfterDisk::Block(blocks) },
            groups.file(store),
            op,
            Inline::Allowed,
        );
        Finished::Continued
    }
}

/// What the engine is told of it.
fn io_error(store: Store, kind: ErrorKind) -> IoError {
    match kind {
        ErrorKind::TooLarge if matches!(store, Store::Delta(_)) => IoError::TooLarge,
        // All others have their size: only a limit of the process can be in the way, and there is room once that is gone.
        ErrorKind::NoSpace | ErrorKind::TooLarge => IoError::NoSpace,
        ErrorKind::TooManyDeltas => IoError::TooManyDeltas,
        _ => IoError::Io,
    }
}

/// Of these files each record stands in copies, one to a block.
fn is_of_cells(store: Store) -> bool {
    matches!(store, Store::Superblock(_) | Store::Bitmap(_) | Store::Activity(_) | Store::Marks(_))
}

fn payload(buffer: Buffer, crc: Option<u32>) -> Result<IoDone, IoError> {
    if crc.is_some_and(|crc| crc != crc32c::crc32c(&buffer)) {
        return Err(IoError::Damaged);
    }
    let zero = is_zero(&buffer);
    Ok(IoDone::Payload { buf: Buf::new(Arc::new(buffer)), zero })
}

fn parts_of(parts: Vec<WriteBytes>) -> Parts {
    if parts.len() == 1 {
        return Parts::One(parts.into_iter().next().map(part_of).expect("there is one"));
    }
    Parts::Many(parts.into_iter().map(part_of).collect())
}

fn part_of(bytes: WriteBytes) -> Part {
    match bytes {
        WriteBytes::Meta(bytes) => Part::Meta(bytes),
        WriteBytes::Payload(slice) => spill::part_of(slice),
    }
}

fn outcome_of(result: Result<DiskAnswer, DiskError>) -> RequestOutcome {
    match result {
        Ok(DiskAnswer::Done) => RequestOutcome::Done,
        Ok(DiskAnswer::Data(buffer)) => RequestOutcome::Data(buffer),
        Ok(DiskAnswer::Runs(runs)) => RequestOutcome::Extents(runs.into_iter().map(extent_of).collect()),
        Ok(DiskAnswer::Opened(_)) => unreachable!("no client makes a delta"),
        Err(error) => RequestOutcome::Failed(match error.kind {
            ErrorKind::NoSpace | ErrorKind::TooLarge => RequestFailure::NoSpace,
            ErrorKind::Invalid => RequestFailure::Invalid,
            ErrorKind::NotSupported => RequestFailure::NotSupported,
            ErrorKind::NoMemory => RequestFailure::NoMemory,
            ErrorKind::Io | ErrorKind::ReadOnly | ErrorKind::Truncated | ErrorKind::TooManyDeltas => RequestFailure::Io,
        }),
    }
}

fn extent_of(run: AllocationRun) -> AllocationExtent {
    AllocationExtent { length: run.length, hole: run.hole, zero: run.hole }
}
