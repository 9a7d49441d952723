//! Tables of docs/book/format.md.

use super::bytes::{Field, bytes, checksum, flag_of, flags, magic, number, position, resealed, table, values, zero};
use super::samples;
use engine::activity::SLOTS_PER_CELL;
use engine::bitmap::REGIONS_PER_CELL;
use engine::journal::{BatchOf, JournalIndex, RecordKind};
use engine::limits::{MIB, PART_BYTES_MAX, REGION_BYTES, VOLUMES_MAX};
use engine::marks::Mark;
use engine::state::{CopyDoubts, Mode};
use engine::superblock::{RollbackPoint, Superblock};
use engine::wire::GroupHello;
use engine::{cell, delta, journal, superblock, undo};

/// By the names of their parts in the page.
pub fn parts() -> [(&'static str, String); 13] {
    [
        ("cell", cell_table()),
        ("identity", identity_table()),
        ("superblock-flags", superblock_flags_table()),
        ("superblock", superblock_table()),
        ("activity-log", activity_log_table()),
        ("marks", marks_table()),
        ("bitmap", bitmap_cell_table()),
        ("journal", journal_index_table()),
        ("journal-entry", journal_entry_table()),
        ("undo", undo_index_table()),
        ("saved-range", saved_range_table()),
        ("delta", delta_head_table()),
        ("queue-log", queue_cell_table()),
    ]
}

/// A number with a space before each three digits, as pages have it.
fn spaced(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

fn identity_bytes() -> Vec<u8> {
    samples::superblock().encode()[cell::HEAD_BYTES..][..90].to_vec()
}

/// The rows of what the peer confirmed.
fn confirmed() -> [Field; 8] {
    let link = "[what the peer confirmed](#what-the-peer-confirmed)";
    let [number, tag, incarnation, seq] = position("confirmed", 0x6600, [link, "", "", ""]);
    let [image_number, image_tag, image_incarnation, image_seq] = position("confirmed image", 0x6700, [""; 4]);
    [number, tag, incarnation, seq, image_number, image_tag, image_incarnation, image_seq]
}

/// Sets a flag of the superblock.
type SetFlag = fn(&mut Superblock);

/// Each flag alone is one bit of the cell's head.
fn superblock_flags_table() -> String {
    let flags: [(SetFlag, &str); 12] = [
        (|block| block.clean = true, "clean: the bitmap holds every difference"),
        (|block| block.compare = true, "compare: a start compares every dirty region before sending"),
        (|block| block.held_in_logging = true, "held in `logging` by the operator"),
        (|block| block.rolling_back = true, "rolling back"),
        (|block| block.alone = true, "alone: the peer does not know this generation yet"),
        (|block| block.served_unverified = true, "served before the unverified run was verified"),
        (|block| block.changed_outside = true, "changed outside: a volume was written while this primary was stopped"),
        (
            |block| block.doubts.assumed_equal = true,
            "assumed equal: an operator declared both copies equal, and no full verify has ended since",
        ),
        (
            |block| block.doubts.differs = true,
            "differs: a verify found blocks that differ and are not known to be repaired",
        ),
        (
            |block| block.rollback_point.is_of_fork = true,
            "point of a fork: the sync overwrites a history of this copy's own, and leaves a [delta](#delta)",
        ),
        (|block| block.queue_logged = true, "queue logged: the [log of the queue](#log-of-the-queue) counts"),
        (
            |block| block.queue_redo = true,
            "queue redo: a start writes what that log holds once more, and none goes on without it",
        ),
    ];
    let mut table = "| Flag | Meaning |\n|---|---|\n".to_owned();
    let mut known = 0;
    for (set, meaning) in flags {
        let mut block = Superblock {
            clean: false,
            compare: false,
            held_in_logging: false,
            rolling_back: false,
            alone: false,
            served_unverified: false,
            changed_outside: false,
            queue_logged: false,
            queue_redo: false,
            doubts: CopyDoubts::default(),
            rollback_point: RollbackPoint::default(),
            ..samples::superblock()
        };
        set(&mut block);
        let image = block.encode();
        let flag = u16::from_le_bytes([image[14], image[15]]);
        assert!(flag.is_power_of_two() && flag & known == 0, "{meaning}: {flag}");
        known |= flag;
        table += &format!("| {flag} | {meaning} |\n");
    }
    table
}

/// What stands in every cell, with the superblock's values.
fn cell_table() -> String {
    let image = samples::superblock().encode();
    let image = &image[..cell::BYTES];
    let body = image[cell::HEAD_BYTES..][..cell::BODY_BYTES].to_vec();
    let fields = [
        magic("FSHSUPER", "the kind of cell"),
        number("version", 2, superblock::VERSION.into(), "of the kind"),
        number("node", 2, 0x53, "the writer"),
        number("peer", 2, 0x54, "the other node"),
        number("flags", 2, 1 | 4 | 16 | 32 | 64 | 128 | 256 | 512, "by kind"),
        number("update", 8, 0x5151, "counts the cell's updates, from 1"),
        number("tag", 8, 0x5252, ""),
        number("offset", 8, 0, "where the cell begins in its file"),
        bytes("body", body, "by kind, then zeroes"),
        checksum(image, ""),
    ];
    table("cell", image, fields)
}

/// Roles and flags of an identity. A hello begins with one, and is read without a checksum.
fn identity_values() -> [String; 2] {
    let hello = samples::hello().encode();
    let role = |image: &[u8]| {
        let hello = GroupHello::decode(image)?;
        Some((hello.identity.role.word().to_owned(), hello.encode()))
    };
    let flag = |image: &[u8]| {
        let hello = GroupHello::decode(image)?;
        let meaning = flag_of([
            (hello.identity.inconsistent, "inconsistent: a sync has not ended"),
            (hello.identity.handed_over, "handed over"),
            (hello.identity.continued, "continued: the parent's primary went on alone, or took its demotion back"),
            (
                hello.identity.forced,
                "forced: the generation began with a forced promotion, or one that took a demotion back",
            ),
        ]);
        Some((meaning, hello.encode()))
    };
    [values(&hello, 0, role), flags(&hello, 1, flag)]
}

fn identity_table() -> String {
    let [roles, flags] = identity_values();
    let mut fields = vec![
        number("role", 1, 1, roles),
        number("flags", 1, 15, format!("{flags}. Others are refused")),
        number("generation number", 8, 0x1111, "0: blank, no history"),
        number("generation tag", 8, 0x1212, "random"),
    ];
    fields.extend(position("parent", 0x2100, ["where the generation begins in the parent", "", "", ""]));
    fields.push(number("incarnation", 8, 0x3333, "this node's run"));
    fields.extend(position("position", 0x4100, ["of a secondary: what is applied", "", "the primary's run", ""]));
    table("identity", &identity_bytes(), fields)
}

/// Modes of the primary, as a secondary records them.
fn primary_modes() -> String {
    let image = |primary_mode: Option<Mode>| Superblock { primary_mode, ..samples::superblock() }.encode();
    let unknown = image(None);
    let is_other = |(before, after): (&u8, &u8)| before != after;
    let at = unknown.iter().zip(&image(Some(Mode::Sync))).position(is_other).expect("a byte says the mode");
    let modes = Mode::ALL.map(|mode| format!("{} `{}`", image(Some(mode))[at], mode.word()));
    format!("{}, {} unknown", modes.join(", "), unknown[at])
}

fn superblock_table() -> String {
    let image = samples::superblock().encode();
    let mut fields = vec![
        bytes("identity", identity_bytes(), ""),
        number("journal offset", 8, 0x5555, "where replay begins"),
        number("journal ordinal", 8, 0x5656, "of that batch"),
        number("confirmed ordinal", 8, 0x5858, "lower batches were durable"),
        number("own from ordinal", 8, 0x5454, "lower batches were whole at the start of this run"),
        number("applied wall", 8, 0x5757, "the primary's time of the last applied write, ns since 1970"),
        bytes("boot", b"a machine's boot".to_vec(), "id of the machine's boot; another, or 0: caches are lost"),
        number("unverified run", 8, 0x5959, "as primary; its last writes may be missing here. 0: none"),
        number("unverified generation number", 8, 0x6800, "its last generation"),
        number("unverified generation tag", 8, 0x6801, ""),
        number("unverified parent generation number", 8, 0x6900, "the generation before"),
        number("unverified parent generation tag", 8, 0x6901, ""),
        number("given up", 8, 0x6a6a, "explained below"),
        number("rollback point", 8, 0x5a5a, "its name; 0: none"),
    ];
    fields.extend(position("point", 0x5b00, ["the position of the image", "", "", ""]));
    fields.extend(position("point parent", 0x5b80, ["where its generation begins in the parent", "", "", ""]));
    fields.extend([
        number("point wall", 8, 0x5c5c, "the primary's time of the position"),
        number("point batches", 8, 0x5d5d, "durable in the undo store; all ones: damaged"),
        number("point reserved bytes", 8, 0x5e5e, "for what the sync may still overwrite first"),
    ]);
    fields.extend(confirmed());
    let before = "the same of the last history of which this node was primary, before its role changed";
    fields.extend(position("confirmed before", 0x6c00, [before, "", "", ""]));
    fields.extend(position("confirmed image before", 0x6d00, [""; 4]));
    fields.extend(position(
        "went back to",
        0x6e00,
        ["the image before a sync that the copy went back to last", "", "", ""],
    ));
    fields.extend([
        number(
            "kept over",
            8,
            0x6f6f,
            "digest of the peer's generation tag, run and number over which this primary's content was chosen; 0: none",
        ),
        number(
            "mode of the primary",
            1,
            3,
            format!("as a secondary last heard; kept by a promotion until its copy is in step: {}", primary_modes()),
        ),
        number("peer window", 4, 0x7070, "in milliseconds: what this node as primary may have given its peer; its next start keeps to it"),
        number("queue log", 3, 0x71_7171, "the run that began the [log of the queue](#log-of-the-queue) which counts, its low 24 bits; 0: none counts"),
        number("volumes", 2, 2, format!("number, at most {VOLUMES_MAX}")),
        number(
            "first volume's flushed",
            8,
            0x5f5f | 1 << 62,
            "writes up to here are flushed on it. Bits 63 and 62: 2, the volume is detached; 1, its device is not filled yet; 3, it has a new name. Bit 61: a history of this node's own stands in it, explained below",
        ),
        number(
            "first volume's sectors",
            6,
            0x6b6b | 1 << 47,
            "its size in the group, in 512 bytes; 0: the device's. Bit 47: the volume is set aside; bit 46: the sync to this secondary leaves it aside",
        ),
        number("second volume's flushed", 8, 0x6060 | 1 << 63 | 1 << 61, "and so on"),
        number("second volume's sectors", 6, 0x6c6c | 1 << 46, ""),
        zero(3556, ""),
    ]);
    table("superblock", &image[cell::HEAD_BYTES..][..cell::BODY_BYTES], fields)
}

fn activity_log_table() -> String {
    let slot = |volume: u64, number: u64| ((volume + 1) << 48 | number).to_le_bytes();
    let mut slots = [slot(0x63, 0x6464), [0; 8], slot(0, 0)].concat();
    slots.resize(8 * SLOTS_PER_CELL, 0);
    let mut fields = vec![number("incarnation", 8, 0x65, "the run that wrote the cell")];
    fields.extend(confirmed());
    fields.extend([
        bytes(
            "slots",
            slots,
            "8 bytes each: 0, or number of an extent of 4 MiB (lower 48 bits) and volume + 1 (upper 16)",
        ),
        zero(4, ""),
    ]);
    table("activity log", &samples::activity_body(), fields)
}

fn bitmap_cell_table() -> String {
    let image = samples::bitmap_body();
    let words = image[88..4048].to_vec();
    assert_eq!(words[..9], [2, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(words.len() as u64 * 8, REGIONS_PER_CELL, "the bits fill their row");
    let mut fields = vec![
        number("volume", 2, 0x61, ""),
        zero(2, "has to be zero"),
        number("region bytes", 4, REGION_BYTES, spaced(REGION_BYTES)),
        number("first region", 8, REGIONS_PER_CELL, format!("of the cell: a multiple of {}", spaced(REGIONS_PER_CELL))),
        number("volume bytes", 8, 0x6262, "of the device, as last recorded"),
    ];
    fields.extend(confirmed());
    fields.extend([
        bytes("bits", words, "words of 8 bytes, lowest bit first; ignored past the volume's end"),
        zero(4, ""),
    ]);
    table("bitmap", &image, fields)
}

fn journal_index_table() -> String {
    let image = samples::index().encode(BatchOf::Journal);
    let lines = image[128..4064].to_vec();
    assert_eq!(lines.len(), 48 * journal::ENTRIES_MAX, "the entry lines fill their row");
    let fields = [
        magic("FSHBATCH", "`FSHBATCH`"),
        number("version", 2, journal::VERSION.into(), journal::VERSION.to_string()),
        number("entries", 2, 1, format!("1 to {}", journal::ENTRIES_MAX)),
        number("bytes", 4, 0x2000, "whole blocks"),
        number("tag", 8, 0x81, ""),
        number("ring offset", 8, 0x8282, "in the file"),
        number("ordinal", 8, 0x8383, "counts batches"),
        number("boot", 8, 0x84, "the writer's incarnation"),
        number("generation number", 8, 0x86, "of the stream"),
        number("generation tag", 8, 0x87, ""),
        number("incarnation", 8, 0x88, "the primary's run"),
        number("origin", 2, 0x85, "the node that gave the numbers"),
        zero(6, ""),
        number("snapshot", 8, 0x89, "catch-up snapshot of these numbers; 0: the stream"),
        number(
            "durable below",
            8,
            0,
            "of the queue's log: lower batches were durable when this one was issued; in a journal 0",
        ),
        number("first", 8, 0x8a8a, "the batch's first number; 0: that of its first entry"),
        zero(24, ""),
        bytes("entry lines", lines, "48 bytes each"),
        zero(28, ""),
        checksum(&image, ""),
    ];
    table("journal index", &image, fields)
}

/// Flags of a mark, which a decoder refuses if it does not know them.
fn mark_flags() -> String {
    let flag = |image: &[u8]| {
        let mark = Mark::decode(image)?;
        let meaning = flag_of([
            (mark.locked, "locked"),
            (mark.there, "the peer has it; of a secondary always"),
            (mark.lost, "it is on this node only"),
            (mark.dropped, "dropped: free once the peer has heard of it"),
            (mark.doubted, "beside 4: the peer has not said so, and may have it"),
        ]);
        Some((meaning, mark.encode()))
    };
    let bare = Mark { locked: false, there: false, ..samples::mark() };
    flags(&bare.encode(), 56, flag)
}

fn marks_table() -> String {
    let mut fields = vec![number(
        "id",
        8,
        0x0101_0202,
        "how many ids the run has given (lower 16 bits), the run (24 bits) and the node that set it; 0: a free slot",
    )];
    fields.extend(position(
        "",
        0x61,
        ["where the mark is: number of the history,", "its tag,", "the run", "and the mark's own number; of one that was set beside a stream that of the last write, which lies before it too"],
    ));
    fields.extend([
        number("wall", 8, 0x7777, "the primary's stamp"),
        number("moment", 8, 0x7878, "marks of several groups that were set at one moment have the same; 0: none"),
        number("flags", 2, 3, mark_flags()),
        number("length", 1, 7, "of the name, at most 63; 0: it came without its terms"),
        bytes("name", b"nightly".to_vec(), "letters, digits, `-`, `_`, `.` and `:`; zeroes up to the end of the slot"),
        zero(160 - 66 + 24 * 160 + 52, "further slots of 160 bytes, 25 in all; zero"),
    ]);
    table("marks", &samples::marks_body(), fields)
}

fn queue_cell_table() -> String {
    let mut fields = vec![
        number("generation number", 8, 0x1a1, "whose numbers these are"),
        number("generation tag", 8, 0x1a2, ""),
        number("head offset", 8, 0x1a3, "of the first batch that is needed"),
        number("head ordinal", 8, 0x1a4, ""),
        number("before incarnation", 8, 0x1a5, "the run of the number before that batch,"),
        number("before seq", 8, 0x1a6, "and that number: the peer has it, and every volume holds it, flushed"),
        number("flushed", 8, 0x1a7, "the last number that every volume held, flushed"),
        number("confirmed ordinal", 8, 0x1a8, "batches below it were durable: fewer whole ones are damage"),
    ];
    fields.extend(confirmed());
    fields.push(number("file", 8, 0x1a9, "made of inode and birth of the file: in a copy the log does not count"));
    fields.push(number("begun", 8, 0x1aa, "the run that began the log: the superblock names the one that counts"));
    fields.push(zero(3908, ""));
    table("queue", &samples::queue_body(), fields)
}

/// Kinds and flags of a journal entry.
fn journal_entry_values() -> [String; 2] {
    let sample = samples::index().encode(BatchOf::Journal);
    let kind = |image: &[u8]| {
        // Only data has a payload.
        let mut without_payload = image.to_vec();
        without_payload[128 + 36..128 + 40].fill(0);
        let images = [image.to_vec(), without_payload];
        let index = images.into_iter().find_map(|image| JournalIndex::decode(BatchOf::Journal, &resealed(image)))?;
        let word = match index.entries[0].kind {
            RecordKind::Data => "data",
            RecordKind::Zero => "zeroes",
            RecordKind::Void => "void (only takes a number)",
            RecordKind::SyncEnd => "end of a sync",
        };
        Some((word.to_owned(), index.encode(BatchOf::Journal)))
    };
    let flag = |image: &[u8]| {
        let index = JournalIndex::decode(BatchOf::Journal, &resealed(image.to_vec()))?;
        let entry = &index.entries[0];
        let meaning = flag_of([
            (entry.no_hole, "zeroes stay allocated"),
            (entry.resync, "region of a sync"),
            (entry.sets_aside, "void: from here on the volume is set aside"),
            (entry.mark, "void: a mark, whose id stands in `offset`"),
        ]);
        Some((meaning, index.encode(BatchOf::Journal)))
    };
    [values(&sample, 128 + 46, kind), flags(&sample, 128 + 47, flag)]
}

fn journal_entry_table() -> String {
    let [kinds, flags] = journal_entry_values();
    let void = RecordKind::Void as u8;
    let fields = [
        number(
            "seq",
            8,
            0x7171,
            "the last number that it stands for: all after the entry before it, in the first one from `first` on",
        ),
        number("offset", 8, 0x7373, "on the volume"),
        number("length", 8, 0x200, "of the range"),
        number("wall", 8, 0x7474, "the primary's stamp"),
        number("payload at", 4, 0x1000, "in the batch; 0 without payload"),
        number("payload bytes", 4, 0x200, format!("of data: the length, at most {} MiB; else 0", PART_BYTES_MAX / MIB)),
        number("payload checksum", 4, 0x7575, "from the frame"),
        number("volume", 2, 0x72, ""),
        number(
            "kind",
            1,
            1,
            format!(
                "{kinds}. The end of a sync that makes the copy smaller is written as {void}, so replay leaves it out"
            ),
        ),
        number("flags", 1, 7, flags),
    ];
    table("journal entry", &samples::index().encode(BatchOf::Journal)[128..176], fields)
}

fn undo_index_table() -> String {
    let image = samples::undo_index().encode();
    assert_eq!(undo::UndoIndex::decode(&image), Some(samples::undo_index()));
    let lines = image[64..4072].to_vec();
    assert_eq!(lines.len(), 24 * undo::ENTRIES_MAX, "the saved ranges fill their row");
    let fields = [
        magic("FSHUNDOB", "`FSHUNDOB`"),
        number("version", 2, undo::VERSION.into(), undo::VERSION.to_string()),
        number("entries", 2, 1, format!("1 to {}", undo::ENTRIES_MAX)),
        number("bytes", 4, 0x3000, "whole blocks"),
        number("tag", 8, 0xf3, ""),
        number("ring offset", 8, 0xf4f4, "in the file"),
        number("ordinal", 8, 0xf5f5, "counts batches from 1"),
        number("mark", 8, 0xf6, "name of the rollback point; highest bit set: a catch-up snapshot"),
        number("boot", 8, 0xf7, "the writer's incarnation"),
        number("chain", 4, 0xf8f8, "checksum of the index before; 0: first"),
        zero(4, ""),
        bytes("saved ranges", lines, "24 bytes each"),
        zero(20, ""),
        checksum(&image, ""),
    ];
    table("undo index", &image, fields)
}

fn delta_head_table() -> String {
    let image = samples::delta_head().encode();
    assert_eq!(delta::DeltaHead::decode(&image), Some(samples::delta_head()));
    let mut fields = vec![
        magic("FSHDELTA", "`FSHDELTA`"),
        number("version", 2, delta::VERSION.into(), delta::VERSION.to_string()),
        number("entries", 2, 1, "always 1"),
        number("node", 2, 0xd2, "whose content it is"),
        number("peer", 2, 0xd3, "whose content was chosen"),
        number("tag", 8, 0xd1, "identity of cluster and group"),
    ];
    fields.extend(position("", 0xd400, ["the last position of what was given up", "", "", ""]));
    fields.extend([
        number("chosen generation number", 8, 0xd5, "the history that was chosen"),
        number("chosen generation tag", 8, 0xd6, ""),
        number("batches", 8, 0xd7, "that follow"),
        number("ranges", 8, 0xd8, "in them"),
        number("content bytes", 8, 0xd9, "of the ranges, without the lost ones"),
        number("file bytes", 8, 0xda, "where the last batch ends"),
        number("chain", 4, 0xdb, "checksum of the last index; 0: none"),
        number("lost ranges", 8, 0xdc, "of the ranges: what stood there could not be read any more"),
        number("lost bytes", 8, 0xdd, "of the lost ranges"),
        zero(3968, ""),
        checksum(&image, ""),
    ]);
    table("delta head", &image, fields)
}

fn saved_range_table() -> String {
    let fields = [
        number("offset", 8, 0x20_3000, "a multiple of 4 096; of 512 in what a volume gained behind a partial block"),
        number("length", 4, 0x1e00, "whole blocks, except at the end of a volume"),
        number("payload at", 4, 0x1000, "in the batch; 0: all zeroes, no content kept"),
        number("payload checksum", 4, 0xf2f2, "of the content"),
        number("volume", 2, 0xf1, ""),
        number("flags", 2, 0, "0; 1, in a delta alone: no zeroes, what stood there is lost; others are refused"),
    ];
    table("saved range", &samples::undo_index().encode()[64..88], fields)
}
