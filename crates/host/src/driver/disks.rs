//! What the engine and the readers want of disks, and what came of it.

use std::sync::Arc;

use engine::{Buf, Bytes, GroupId, Input, IoDone, IoError, Output, Slice, Store, Token};

use super::plane::Core;
use crate::buffers::Buffer;
use crate::disk::meta::Blocks;
use crate::disk::{Answer, Completion, DiskError, DiskOp, ErrorKind, File, Inline, Part, Parts, Run, is_zero};
use crate::frontend::{ClientId, Extent, Failure, Outcome};

/// Who waits for a request at the disks.
pub(super) enum Pending {
    /// A client's read; it never passes the engine.
    Read {
        client: ClientId,
        cookie: u64,
        volume: usize,
    },
    Extents {
        client: ClientId,
        cookie: u64,
        volume: usize,
    },
    Engine {
        token: Token,
        store: Store,
        then: Then,
    },
}

/// What becomes of the engine's request when the disk is done.
pub(super) enum Then {
    Done,
    /// The zeroes must be durable too.
    Flush,
    Payload {
        crc: Option<u32>,
    },
    Summed,
    Meta {
        offset: u64,
        length: u32,
    },
    /// A disk refused cells; they are read again block by block.
    Block(Blocks),
    Hash,
    Run,
}

impl Core {
    /// Puts one of the engine's disk requests on the tray.
    pub fn submit_disk(&mut self, output: Output) {
        let (token, store, op, inline, then) = match output {
            Output::Write { token, store, offset, parts, durable, waits_for_peer } => {
                let inline = if durable || waits_for_peer { Inline::Forbidden } else { Inline::Allowed };
                let op = DiskOp::Write { offset, parts: parts_of(parts), dsync: durable };
                (token, store, op, inline, Then::Done)
            }
            Output::Zero { token, store, offset, length, no_hole, durable } => {
                let then = if durable { Then::Flush } else { Then::Done };
                (token, store, DiskOp::Zero { offset, length, no_hole }, Inline::Forbidden, then)
            }
            Output::Flush { token, store } => (token, store, DiskOp::Flush, Inline::Forbidden, Then::Done),
            Output::Read { token, store, offset, length, crc } => {
                (token, store, self.read(offset, length), Inline::Allowed, Then::Payload { crc })
            }
            Output::ReadSummed { token, store, offset, length } => {
                (token, store, self.read(offset, length), Inline::Allowed, Then::Summed)
            }
            Output::ReadMeta { token, store, offset, length } => {
                (token, store, self.read(offset, length), Inline::Allowed, Then::Meta { offset, length })
            }
            Output::FindHole { token, store, offset, length } => {
                (token, store, DiskOp::BlockStatus { offset, length, runs_max: 1 }, Inline::Forbidden, Then::Run)
            }
            Output::ReadHash { token, store, offset, length } => {
                (token, store, self.read(offset, length), Inline::Allowed, Then::Hash)
            }
            other => unreachable!("not a request for a disk: {other:?}"),
        };
        self.send_to_disk(Pending::Engine { token, store, then }, store, op, inline);
    }

    fn read(&self, offset: u64, length: u32) -> DiskOp {
        let buffer = self.reads.take(length as usize).expect("this pool has no limit");
        DiskOp::Read { offset, buffer }
    }

    fn send_to_disk(&mut self, pending: Pending, store: Store, op: DiskOp, inline: Inline) {
        let file = self.file(store).clone();
        self.gather(pending, &file, op, inline);
    }

    pub fn gather(&mut self, pending: Pending, file: &Arc<File>, op: DiskOp, inline: Inline) {
        let token = self.pending.put(pending);
        self.disks.submit(u64::from(token), file, op, inline);
    }

    fn file(&mut self, store: Store) -> &Arc<File> {
        match store {
            Store::Volume(group, volume) => {
                let at = self.group(group).first_volume + usize::from(volume.0);
                self.volumes[at].device()
            }
            Store::Journal(group) => &self.group(group).stores().journal,
            Store::Superblock(group) => &self.group(group).stores().superblock,
            Store::Bitmap(group) => &self.group(group).stores().bitmap,
            Store::Activity(group) => &self.group(group).stores().activity,
            Store::Undo(group) => &self.group(group).stores().undo,
        }
    }

    /// One request is done: tell whoever waits for it.
    pub fn completed(&mut self, completion: Completion) {
        let number = u32::try_from(completion.token).expect("tokens are our own numbers");
        let pending = self.pending.take(number).expect("a request completes once");
        match pending {
            Pending::Read { client, cookie, volume } | Pending::Extents { client, cookie, volume } => {
                if let Err(error) = &completion.result {
                    self.note_failure(volume, error);
                }
                self.answer(client, cookie, outcome_of(completion.result));
            }
            Pending::Engine { token, store, then } => self.engine_completed(token, store, then, completion.result),
        }
    }

    fn engine_completed(&mut self, token: Token, store: Store, then: Then, result: Result<Answer, DiskError>) {
        let answer = match result {
            Ok(answer) => answer,
            // A file system that cannot say: what stands there is read.
            Err(_) if matches!(then, Then::Run) => Answer::Runs(Vec::new()),
            Err(error) => {
                self.note_store_failure(store, &error);
                if error.kind == ErrorKind::Io {
                    match then {
                        Then::Meta { offset, length } if is_of_cells(store) => {
                            return self.read_block(token, store, Blocks::begin(offset, length as usize));
                        }
                        Then::Block(blocks) => return self.block_read(token, store, blocks, None),
                        _ => {}
                    }
                }
                let error = if error.kind == ErrorKind::NoSpace { IoError::NoSpace } else { IoError::Io };
                return self.input(Input::Io { token, result: Err(error) });
            }
        };
        let result = match (then, answer) {
            (Then::Flush, Answer::Done) => {
                let pending = Pending::Engine { token, store, then: Then::Done };
                return self.send_to_disk(pending, store, DiskOp::Flush, Inline::Forbidden);
            }
            (Then::Done, Answer::Done) => Ok(IoDone::Done),
            (Then::Payload { crc }, Answer::Data(buffer)) => payload(buffer, crc),
            (Then::Summed, Answer::Data(buffer)) => {
                let (zero, crc) = (is_zero(&buffer), crc32c::crc32c(&buffer));
                Ok(IoDone::Summed { buf: Buf::new(Arc::new(buffer)), zero, crc })
            }
            (Then::Block(salvage), Answer::Data(buffer)) => {
                return self.block_read(token, store, salvage, Some(&buffer));
            }
            (Then::Meta { .. }, Answer::Data(buffer)) => Ok(IoDone::Meta(buffer.to_vec())),
            (Then::Run, Answer::Runs(runs)) => {
                let first = runs.first().copied().unwrap_or(Run { length: 0, hole: false });
                Ok(IoDone::Run { length: first.length, is_hole: first.hole })
            }
            (Then::Hash, Answer::Data(buffer)) => Ok(IoDone::Hash(self.hash(store, &buffer))),
            _ => unreachable!("the disks answer what was asked"),
        };
        if matches!(result, Err(IoError::Damaged)) {
            let path = self.file(store).path().display().to_string();
            tracing::error!(
                "{path} holds bytes whose checksum does not match: the medium is failing, or it was written by others"
            );
        }
        self.input(Input::Io { token, result });
    }

    fn block_read(&mut self, token: Token, store: Store, mut blocks: Blocks, block: Option<&[u8]>) {
        blocks.take(block);
        self.read_block(token, store, blocks);
    }

    fn read_block(&mut self, token: Token, store: Store, blocks: Blocks) {
        let Some(offset) = blocks.next() else {
            let result = blocks.found().map(IoDone::Meta).ok_or(IoError::Io);
            return self.input(Input::Io { token, result });
        };
        let op = self.read(offset, Blocks::BYTES as u32);
        self.send_to_disk(Pending::Engine { token, store, then: Then::Block(blocks) }, store, op, Inline::Allowed);
    }

    fn hash(&mut self, store: Store, bytes: &[u8]) -> [u8; 32] {
        let Store::Volume(group, _) = store else { unreachable!("only volumes are compared") };
        let key = self.session_key(group);
        *blake3::keyed_hash(&key, bytes).as_bytes()
    }

    /// The key of the group's link. A hash that outlives its session is of no use, and is keyed with whatever is there.
    fn session_key(&mut self, group: GroupId) -> [u8; 32] {
        let peer = self.group(group).peer;
        self.meeting.key(peer)
    }

    fn note_store_failure(&mut self, store: Store, error: &DiskError) {
        match store {
            Store::Volume(group, volume) => {
                let at = self.group(group).first_volume + usize::from(volume.0);
                self.note_failure(at, error);
            }
            _ => tracing::error!("{error}"),
        }
    }

    /// The first failure of a device is news, the next thousand are not.
    fn note_failure(&mut self, volume: usize, error: &DiskError) {
        let volume = &mut self.volumes[volume];
        if volume.error.is_none() {
            tracing::error!("volume {}: {error}", volume.export);
            volume.error = Some(error.to_string());
        } else {
            tracing::debug!("volume {}: {error}", volume.export);
        }
    }
}

/// Of these files each record stands in copies, one to a block.
fn is_of_cells(store: Store) -> bool {
    matches!(store, Store::Superblock(_) | Store::Bitmap(_) | Store::Activity(_))
}

fn payload(buffer: Buffer, crc: Option<u32>) -> Result<IoDone, IoError> {
    if crc.is_some_and(|crc| crc != crc32c::crc32c(&buffer)) {
        return Err(IoError::Damaged);
    }
    let zero = is_zero(&buffer);
    Ok(IoDone::Payload { buf: Buf::new(Arc::new(buffer)), zero })
}

fn parts_of(parts: Vec<Bytes>) -> Parts {
    if parts.len() == 1 {
        return Parts::One(parts.into_iter().next().map(part_of).expect("there is one"));
    }
    Parts::Many(parts.into_iter().map(part_of).collect())
}

fn part_of(bytes: Bytes) -> Part {
    match bytes {
        Bytes::Meta(bytes) => Part::Meta(bytes),
        Bytes::Payload(Slice { buf, start, length }) => {
            let buffer = buf.shared::<Buffer>().expect("payload is always one of this host's buffers");
            let range = start as usize..start as usize + length as usize;
            assert!(range.end <= buffer.len(), "a slice lies inside its buffer");
            Part::Shared { buffer, range }
        }
    }
}

fn outcome_of(result: Result<Answer, DiskError>) -> Outcome {
    match result {
        Ok(Answer::Done) => Outcome::Done,
        Ok(Answer::Data(buffer)) => Outcome::Data(buffer),
        Ok(Answer::Runs(runs)) => Outcome::Extents(runs.into_iter().map(extent_of).collect()),
        Err(error) => Outcome::Failed(match error.kind {
            ErrorKind::NoSpace => Failure::NoSpace,
            ErrorKind::Invalid => Failure::Invalid,
            ErrorKind::NotSupported => Failure::NotSupported,
            ErrorKind::NoMemory => Failure::NoMemory,
            ErrorKind::Io | ErrorKind::ReadOnly | ErrorKind::Truncated => Failure::Io,
        }),
    }
}

fn extent_of(run: Run) -> Extent {
    Extent { length: run.length, hole: run.hole, zero: run.hole }
}
