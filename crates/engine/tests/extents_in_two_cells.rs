//! The scenario: an extent leaves a full activity log when its bits are stored. It can lie in two cells of the bitmap, and
//! only the one in which it begins was stored for it. When every extent of the log lay in two, none could leave it: a
//! write to any other extent was never answered.

use std::sync::Arc;

use engine::activity::{self, encode_slots};
use engine::bitmap::{self, BitmapCell, REGIONS_PER_CELL};
use engine::cell::{self, CELL_BYTES, CellHead};
use engine::identity::{Confirmed, Identity, Role};
use engine::superblock::Superblock;
use engine::*;

const GROUP: GroupId = GroupId(0);
const VOLUME: VolumeId = VolumeId(0);
const NODE: NodeId = NodeId(0);
const PEER: NodeId = NodeId(1);
const TAG: u64 = 1;
const LAST_RUN: Incarnation = Incarnation(3);
/// Two cells for each extent of the log.
const SIZE_BYTES: u64 = 2 << 40;
const CELL_COVERS_BYTES: u64 = REGIONS_PER_CELL * limits::REGION_BYTES;

/// A primary whose peer is away.
struct LonePrimary {
    node: Node,
    now: Now,
    superblock: Vec<u8>,
    bitmap: Vec<u8>,
    log: Vec<u8>,
    replies: Vec<RequestId>,
}

fn both_slots(encode: impl Fn(u64) -> Vec<u8>) -> Vec<u8> {
    [encode(4), encode(5)].concat()
}

fn head(update: u64, index: u64) -> CellHead {
    CellHead { node: NODE, peer: PEER, update, tag: TAG, offset: index * CELL_BYTES, flags: 0 }
}

fn superblock() -> Vec<u8> {
    let generation = Generation { number: 1, tag: 77 };
    let identity = Identity { role: Role::Primary, generation, incarnation: LAST_RUN, ..Identity::default() };
    let slot = |update| Superblock {
        update,
        tag: TAG,
        node: NODE,
        peer: PEER,
        identity,
        clean: true,
        alone: true,
        boot: 1,
        ..Superblock::default()
    };
    both_slots(|update| slot(update).encode())
}

/// Nothing is dirty.
fn bitmap() -> Vec<u8> {
    let words = [0u64; (REGIONS_PER_CELL / 64) as usize];
    let cell = |index, update| {
        let body = BitmapCell::encode(VOLUME, SIZE_BYTES, index * REGIONS_PER_CELL, Confirmed::default(), &words);
        cell::encode(bitmap::KIND, &head(update, index), &body)
    };
    let cells = 0..SIZE_BYTES.div_ceil(CELL_COVERS_BYTES);
    cells.flat_map(|index| both_slots(|update| cell(index, update))).collect()
}

/// Nothing was hot.
fn log() -> Vec<u8> {
    let body = encode_slots(LAST_RUN, Confirmed::default(), [None].into_iter());
    let cells = 0..activity_file_bytes(ActivityConfig::default()) / CELL_BYTES;
    cells.flat_map(|index| both_slots(|update| cell::encode(activity::KIND, &head(update, index), &body))).collect()
}

impl LonePrimary {
    fn start() -> LonePrimary {
        let group = GroupConfig {
            id: GROUP,
            tag: TAG,
            peer: PEER,
            starts_as: Role::Primary,
            meets_peer_first: false,
            volumes: vec![VolumeConfig {
                size_bytes: SIZE_BYTES,
                block_bytes: 4096,
                changed_outside: false,
                is_detached: false,
            }],
            settings: Settings::default(),
            journal_bytes: limits::JOURNAL_BYTES_MIN,
            window_bytes: limits::WINDOW_BYTES_MIN,
            activity: ActivityConfig::default(),
            history_bytes: limits::HISTORY_BYTES_MIN,
            view_bytes: 0,
            queue_disk_bytes: 0,
            queue_durable: false,
            queue_file: 0,
        };
        let config = NodeConfig {
            node: NODE,
            groups: vec![group],
            link_timeout: limits::LINK_TIMEOUT_DEFAULT,
            memory_bytes: limits::MEMORY_BYTES_DEFAULT,
            syncs_at_once: limits::SYNCS_AT_ONCE,
        };
        let (node, now) = (Node::new(config), Now { mono: Mono(1), wall: Wall(1) });
        let (superblock, bitmap, log) = (superblock(), bitmap(), log());
        let mut primary = LonePrimary { node, now, superblock, bitmap, log, replies: Vec::new() };
        primary.handle(Input::Start { entropy: 1, boot: 1 });
        assert_eq!(primary.node.status()[0].volumes[0].dirty_bytes, 0);
        primary
    }

    /// Everything is done at once, in so many steps at most.
    fn handle(&mut self, input: Input) {
        self.node.handle(self.now, input);
        for _ in 0..20_000 {
            let Some(output) = self.node.poll_output() else { return };
            let (token, done) = match output {
                Output::ReadMeta { token, store: Store::Marks(_), length, .. } => {
                    (token, IoDone::Meta(vec![0; length as usize]))
                }
                Output::ReadMeta { token, store, offset, length } => {
                    let file = match store {
                        Store::Superblock(_) => &self.superblock,
                        Store::Bitmap(_) => &self.bitmap,
                        Store::Activity(_) => &self.log,
                        other => panic!("{other:?} is not read"),
                    };
                    (token, IoDone::Meta(file[offset as usize..][..length as usize].to_vec()))
                }
                Output::Write { token, .. } | Output::Zero { token, .. } | Output::Flush { token, .. } => {
                    (token, IoDone::Done)
                }
                Output::Reply { id, result } => {
                    assert!(result.is_ok());
                    self.replies.push(id);
                    continue;
                }
                _ => continue,
            };
            self.node.handle(self.now, Input::Io { token, result: Ok(done) });
        }
    }

    /// Whether the write was answered.
    fn write(&mut self, id: u64, offset: u64) -> bool {
        let request = Request::Write { offset, length: 4096, buf: Buf::new(Arc::new(())), fua: false };
        self.handle(Input::Request { group: GROUP, volume: VOLUME, id: RequestId(id), request });
        self.replies.last() == Some(&RequestId(id))
    }
}

// proves: rule 2
/// Each extent of the log lies in two cells that are its own.
#[test]
fn extents_that_lie_in_two_cells_of_the_bitmap_leave_the_log_too() {
    let mut primary = LonePrimary::start();
    let extents = u64::from(limits::EXTENTS_DEFAULT);
    for n in 0..extents {
        let offset = (2 * n + 1) * CELL_COVERS_BYTES;
        assert!(!offset.is_multiple_of(ActivityConfig::default().extent_bytes), "this cell begins within an extent");
        assert!(primary.write(n, offset));
    }
    assert!(primary.write(extents, 0), "no extent can leave the log");
}
