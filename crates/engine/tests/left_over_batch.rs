//! The scenario: a secondary crashed with batches 10 and 11 in flight; 11 reached the disk whole, 10 did not. The next run
//! gave the ordinals 10 and 11 again, to a newer stream. Its batch 10 happened to have the old one's length, was applied
//! and trimmed, and then came the next crash. So replay began exactly where the old batch 11 lies, with exactly its
//! ordinal: older writes would have gone over newer ones. Only the run that wrote it tells it apart.

use std::sync::Arc;

use engine::identity::{Identity, Role};
use engine::journal::{BatchOf, INDEX_BYTES, JournalEntry, JournalIndex, RecordKind};
use engine::state::State;
use engine::superblock::{self, JournalHead, RollbackPoint, Superblock};
use engine::undo::{UndoEntry, UndoIndex};
use engine::*;

const RING_OFFSET: u64 = 8192;
const TAG: u64 = 7;
const HISTORY: Generation = Generation { number: 1, tag: 9 };
const PRIMARYS_RUN: Incarnation = Incarnation(3);
/// The run that recorded the journal's head last.
const LAST_RUN: u64 = 5;

const STANDS_AT: Position = Position { generation: HISTORY, incarnation: PRIMARYS_RUN, seq: Seq(100) };

/// It counts the batches before this one as durable.
fn superblock(confirmed_ordinal: u64, rollback_point: RollbackPoint) -> Vec<u8> {
    let identity = Identity {
        role: Role::Secondary,
        generation: HISTORY,
        incarnation: Incarnation(LAST_RUN),
        position: STANDS_AT,
        inconsistent: rollback_point.id != 0,
        ..Identity::default()
    };
    let journal = JournalHead { offset: RING_OFFSET, ordinal: 11 };
    let slot = |update| Superblock {
        update,
        tag: TAG,
        peer: NodeId(1),
        identity,
        journal,
        confirmed_ordinal,
        rollback_point,
        ..Superblock::default()
    };
    [slot(2).encode(), slot(1).encode()].concat()
}

const PAYLOAD: [u8; 512] = [0xaa; 512];

fn index(boot: u64, seq: u64) -> JournalIndex {
    let entry = JournalEntry {
        seq: Seq(seq),
        kind: RecordKind::Data,
        no_hole: false,
        resync: false,
        sets_aside: false,
        mark: false,
        volume: VolumeId(0),
        offset: 0,
        length: 512,
        wall: Wall(1),
        payload_at: INDEX_BYTES as u32,
        payload_bytes: 512,
        payload_crc: crc32c::crc32c(&PAYLOAD),
    };
    JournalIndex {
        tag: TAG,
        ring_offset: RING_OFFSET,
        ordinal: 11,
        boot: Incarnation(boot),
        origin: NodeId(1),
        generation: HISTORY,
        incarnation: PRIMARYS_RUN,
        snapshot: 0,
        durable_below: 0,
        bytes: 8192,
        first: Seq(seq),
        entries: vec![entry],
    }
}

fn batch(boot: u64, seq: u64) -> Vec<u8> {
    let mut bytes = index(boot, seq).encode(BatchOf::Journal);
    bytes.extend(PAYLOAD);
    bytes.resize(8192, 0);
    bytes
}

/// What came of a start.
struct Started {
    node: Node,
    /// Something was written to its volume.
    wrote: bool,
    /// `None`: the journal was not replayed.
    stands: Option<Position>,
    notes: Vec<String>,
}

impl Started {
    fn has_failed(&self) -> bool {
        self.node.glance(GroupId(0)).is_some_and(|glance| matches!(glance.state, State::Failed(_)))
    }
}

/// Starts a secondary over this batch; whether anything was written to its volume, and where it stands then.
fn start_over(batch: &[u8]) -> (bool, Position) {
    let started = start(batch, 0);
    (started.wrote, started.stands.expect("the journal was replayed"))
}

fn start(batch: &[u8], confirmed_ordinal: u64) -> Started {
    start_with(superblock(confirmed_ordinal, RollbackPoint::default()), batch, &[])
}

/// The undo store begins with `undo`.
fn start_with(mut superblocks: Vec<u8>, batch: &[u8], undo: &[u8]) -> Started {
    superblocks.resize(superblock::FILE_BYTES as usize, 0);
    let mut journal = vec![0; limits::JOURNAL_BYTES_MIN as usize];
    journal[RING_OFFSET as usize..][..batch.len()].copy_from_slice(batch);
    let group = GroupConfig {
        id: GroupId(0),
        tag: TAG,
        peer: NodeId(1),
        starts_as: Role::Secondary,
        meets_peer_first: false,
        volumes: vec![VolumeConfig {
            size_bytes: 1 << 20,
            block_bytes: 4096,
            changed_outside: false,
            is_detached: false,
        }],
        settings: Settings::default(),
        journal_bytes: journal.len() as u64,
        window_bytes: limits::WINDOW_BYTES_MIN,
        activity: ActivityConfig::default(),
        history_bytes: limits::HISTORY_BYTES_MIN,
        view_bytes: 0,
        queue_disk_bytes: 0,
        queue_durable: false,
        queue_file: 0,
    };
    let config = NodeConfig {
        node: NodeId(0),
        groups: vec![group],
        link_timeout: limits::LINK_TIMEOUT_DEFAULT,
        memory_bytes: limits::MEMORY_BYTES_DEFAULT,
        syncs_at_once: limits::SYNCS_AT_ONCE,
    };
    let (mut node, now) = (Node::new(config), Now { mono: Mono(1), wall: Wall(1) });
    let (mut wrote, mut stands, mut notes) = (false, None, Vec::new());
    node.handle(now, Input::Start { entropy: 1, boot: 1 });
    while let Some(output) = node.poll_output() {
        let mut answer = |token, result| node.handle(now, Input::Io { token, result });
        let mut done = |token, result| answer(token, Ok(result));
        match output {
            Output::ReadMeta { token, store: Store::Superblock(_), .. } => {
                done(token, IoDone::Meta(superblocks.clone()))
            }
            Output::ReadMeta { token, store: store @ (Store::Undo(_) | Store::Marks(_)), offset, length } => {
                let stands = undo.get(offset as usize..(offset + u64::from(length)) as usize);
                let stands = stands.filter(|_| matches!(store, Store::Undo(_)));
                done(token, IoDone::Meta(stands.map_or(vec![0; length as usize], <[u8]>::to_vec)));
            }
            Output::ReadMeta { token, offset, length, .. } => {
                done(token, IoDone::Meta(journal[offset as usize..][..length as usize].to_vec()));
            }
            Output::Read { token, offset, length, crc, .. } => {
                let bytes = journal[offset as usize..][..length as usize].to_vec();
                let whole = crc == Some(crc32c::crc32c(&bytes));
                let read = IoDone::Payload { buf: Buf::new(Arc::new(bytes)), zero: false };
                answer(token, if whole { Ok(read) } else { Err(IoError::Damaged) });
            }
            Output::Write { token, store, .. } => {
                wrote |= matches!(store, Store::Volume(..));
                done(token, IoDone::Done);
            }
            Output::Flush { token, .. } => done(token, IoDone::Done),
            Output::Event { event: Event::Replayed { to, .. }, .. } => stands = Some(to),
            Output::Event { event: Event::Note(note), .. } => notes.push(note),
            _ => {}
        }
    }
    Started { node, wrote, stands, notes }
}

// proves: P2
#[test]
fn a_whole_batch_of_an_earlier_run_is_not_replayed() {
    let (wrote, stands) = start_over(&batch(LAST_RUN - 1, 40));
    assert!(!wrote, "an old write went over newer ones");
    assert_eq!(stands.seq, Seq(100));
}

// proves: P1
#[test]
fn a_batch_of_the_last_run_is_replayed() {
    let (wrote, stands) = start_over(&batch(LAST_RUN, 101));
    assert!(wrote);
    assert_eq!(stands.seq, Seq(101));
}

#[test]
fn a_batch_that_adds_nothing_is_not_replayed() {
    let (wrote, stands) = start_over(&batch(LAST_RUN, 40));
    assert!(!wrote, "an old write went over newer ones");
    assert_eq!(stands.seq, Seq(100));
}

/// What a forced promotion answers; disks do everything at once.
fn promote(node: &mut Node) -> CommandResult {
    let now = Now { mono: Mono(2), wall: Wall(2) };
    let command = Command::Promote { force: true, entropy: 4 };
    node.handle(now, Input::Command { group: GroupId(0), id: CommandId(1), command });
    let mut answered = None;
    while let Some(output) = node.poll_output() {
        match output {
            Output::Write { token, .. } | Output::Flush { token, .. } => {
                node.handle(now, Input::Io { token, result: Ok(IoDone::Done) });
            }
            Output::CommandDone { result, .. } => answered = Some(result),
            _ => {}
        }
    }
    answered.expect("it is answered")
}

// proves: P2, P9
/// One byte of the last batch is another than it was: in its index, or in its content.
#[test]
fn a_rotten_batch_that_the_superblock_counts_is_named_and_leaves_no_image() {
    for at in [40, INDEX_BYTES + 100] {
        let mut rotten = batch(LAST_RUN, 101);
        rotten[at] ^= 1;
        let mut started = start(&rotten, 12);
        assert!(!started.wrote && started.stands == Some(STANDS_AT), "byte {at}");
        let named = "the journal is damaged at byte 8192: batch 11 was durable and is not whole any more";
        assert!(started.notes.iter().any(|note| note.contains(named)), "byte {at}: {:?}", started.notes);
        assert!(started.node.glance(GroupId(0)).is_some_and(|glance| glance.identity.inconsistent));
        let CommandResult::Refused(why) = promote(&mut started.node) else { panic!("byte {at}: promoted a mixture") };
        assert!(why.text.contains("no consistent image"), "{why}");
    }
}

/// The same damage behind what the superblock counts: that batch was being written when the power failed.
#[test]
fn a_torn_batch_that_was_never_confirmed_is_no_alarm() {
    for at in [40, INDEX_BYTES + 100] {
        let mut torn = batch(LAST_RUN, 101);
        torn[at] ^= 1;
        let mut started = start(&torn, 11);
        assert!(!started.wrote && started.stands == Some(STANDS_AT), "byte {at}");
        assert!(!started.notes.iter().any(|note| note.contains("journal")), "byte {at}: {:?}", started.notes);
        assert!(started.node.glance(GroupId(0)).is_some_and(|glance| !glance.identity.inconsistent));
        assert!(matches!(promote(&mut started.node), CommandResult::Warning(_)), "byte {at}");
    }
}

/// The index block at the beginning as a program wrote it that knew version 2: without its first number.
fn of_version_2(mut block: Vec<u8>) -> Vec<u8> {
    block[8] = 2;
    block[96..104].fill(0);
    sealed(block)
}

// proves: P9, rule 23
/// What an older program left in the journal is replayed after an upgrade, and none of it is taken for damage.
#[test]
fn a_batch_of_the_version_before_is_replayed() {
    let started = start(&of_version_2(batch(LAST_RUN, 101)), 12);
    assert!(!started.has_failed() && started.wrote, "{:?}", started.notes);
    assert_eq!(started.stands, Some(Position { seq: Seq(101), ..STANDS_AT }));
    assert!(!started.notes.iter().any(|note| note.contains("journal")), "{:?}", started.notes);
}

/// The index block at the beginning is of the next version.
fn of_next_version(mut block: Vec<u8>) -> Vec<u8> {
    block[8] += 1;
    sealed(block)
}

fn sealed(mut block: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&block[..INDEX_BYTES - 4]);
    block[INDEX_BYTES - 4..INDEX_BYTES].copy_from_slice(&crc.to_le_bytes());
    block
}

// proves: P9, rule 23
/// Any whole block of another version made the group fail: also one that is not this group's, that is older than the head, or that an
/// earlier run had left there.
#[test]
fn a_batch_of_another_version_is_the_journals_end_unless_it_is_the_next_one() {
    let start_over = |change: fn(&mut JournalIndex)| {
        let mut index = index(LAST_RUN, 101);
        change(&mut index);
        start(&of_next_version(index.encode(BatchOf::Journal)), 11)
    };
    assert!(start_over(|_| {}).has_failed(), "the next one was passed over");
    let later = start_over(|index| (index.boot, index.ordinal) = (Incarnation(LAST_RUN + 1), 40));
    assert!(later.has_failed(), "the superblock is older than the journal");
    let left_over: [fn(&mut JournalIndex); 4] = [
        |index| index.tag += 1,
        |index| index.ordinal -= 1,
        |index| index.ring_offset += 4096,
        |index| index.boot = Incarnation(LAST_RUN - 1),
    ];
    for (case, change) in left_over.into_iter().enumerate() {
        let started = start_over(change);
        assert!(!started.has_failed(), "case {case}: {:?}", started.notes);
        assert!(!started.wrote && started.stands == Some(STANDS_AT), "case {case}");
    }
}

// proves: P9, rule 23
/// The same in the undo store: after an upgrade, what an older program saved for an earlier sync stands in the way of none.
#[test]
fn a_saved_batch_of_another_version_ends_the_store_unless_it_is_the_next_one() {
    let entry =
        UndoEntry { volume: VolumeId(0), offset: 0, length: 4096, payload_at: 4096, payload_crc: 1, is_lost: false };
    let start_over = |mark, tag| {
        let (boot, entries) = (Incarnation(LAST_RUN), vec![entry]);
        let index = UndoIndex { tag, ring_offset: 0, ordinal: 1, mark, boot, chain: 0, bytes: 8192, entries };
        let point = RollbackPoint { id: 5, position: STANDS_AT, ..RollbackPoint::default() };
        start_with(superblock(11, point), &[], &of_next_version(index.encode()))
    };
    assert!(start_over(5, TAG).has_failed(), "what the point needs was passed over");
    for (mark, tag) in [(4, TAG), ((1 << 63) | 9, TAG), (5, TAG + 1)] {
        let started = start_over(mark, tag);
        assert!(!started.has_failed() && started.stands == Some(STANDS_AT), "{mark}, {tag}: {:?}", started.notes);
    }
}
