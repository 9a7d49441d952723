//! The tables of docs/book/format.md and docs/book/protocol.md are made here, of what the code writes: each row is looked up in an encoded
//! sample whose fields all differ. And a digest of each sample is kept beside its version, so that a shape that changed without
//! its version is noticed.

mod bytes;
mod disk;
mod link;
#[path = "../../../xtask/src/made.rs"]
mod made;
mod samples;

use engine::{activity, bitmap, cell, delta, journal, marks, queue_log, superblock, undo, wire};
use std::path::Path;

const COMMAND: &str = "BLESS=1 cargo test -p engine format_doc";

/// The page has these parts. `BLESS=1` writes them anew; read them before committing.
fn check_page(name: &str, parts: &[(&str, String)]) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book").join(name);
    let page = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let remade = made::remade(&page, COMMAND, parts).unwrap_or_else(|error| panic!("docs/book/{name}: {error}"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, remade).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    } else {
        assert!(page == remade, "docs/book/{name} differs: run {COMMAND}");
    }
}

#[test]
fn the_page_of_formats_has_the_tables_of_what_is_written() {
    check_page("format.md", &disk::parts());
}

#[test]
fn the_page_of_the_protocol_has_the_tables_of_what_is_sent() {
    check_page("protocol.md", &link::parts());
}

/// And the page says which magic and version each kind has.
#[test]
fn cells_are_two_slots_of_two_copies() {
    let image = samples::superblock().encode();
    assert_eq!(image.len() as u64, cell::SLOT_BYTES);
    assert_eq!(cell::CELL_BYTES, 2 * cell::SLOT_BYTES);
    let (copy, twin) = image.split_at(cell::BYTES);
    assert_eq!(copy, twin);
    let page = include_str!("../../../docs/book/format.md");
    for kind in [superblock::KIND, activity::KIND, bitmap::KIND, queue_log::KIND, marks::KIND] {
        let said = format!("kind `{}`, version {}", String::from_utf8_lossy(&kind.magic), kind.version);
        assert!(page.contains(&said), "docs/book/format.md does not say {said:?}");
    }
}

/// FNV-1a: enough to notice a change, and not the checksum that the samples carry themselves.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// One line per shape: name, version, digest of the sample. A new version gets a new line in place of the old.
const SHAPES: [(&str, u64, u64); 16] = [
    ("superblock", 7, 0x0cb0_782d_6829_eb41),
    ("bitmap", 4, 0xc951_2882_64c5_9d0a),
    ("activity log", 2, 0x4b01_f9bf_7799_8211),
    ("marks", 1, 0x5da2_c99e_4ddb_27b0),
    ("journal index", 3, 0x9168_e31e_b14c_e3c1),
    ("queue's batch", 2, 0x8950_0650_5774_318e),
    ("queue's cell", 2, 0xb188_68f3_b450_2aa6),
    ("undo index", 1, 0x1361_0fa2_876b_4ffb),
    ("delta head", 2, 0x04ae_69c3_6a50_ff8a),
    ("frame header", 9, 0x7ae2_d03d_c3fb_2135),
    ("Ack", 9, 0x47bc_9dbe_02da_7fdf),
    ("GroupHello", 9, 0xc5e0_49a7_b710_e14f),
    ("Tick", 9, 0x3ec3_a83c_8d5f_9edb),
    ("SyncBegin", 9, 0x7823_1caa_2781_7f83),
    ("TailAsk", 9, 0x4f4a_ba98_c466_0f4f),
    ("Tail", 9, 0xa40f_9916_8abf_3a45),
];

// proves: rule 23
#[test]
fn a_changed_shape_has_a_changed_version() {
    let protocol = wire::VERSION as u64;
    let samples: [_; SHAPES.len()] = [
        (u64::from(superblock::VERSION), samples::superblock().encode()),
        (u64::from(bitmap::VERSION), samples::bitmap_body()),
        (u64::from(activity::VERSION), samples::activity_body()),
        (u64::from(marks::VERSION), samples::marks_body()),
        (u64::from(journal::VERSION), samples::index().encode(journal::BatchOf::Journal)),
        (u64::from(journal::QUEUE_VERSION), samples::index().encode(journal::BatchOf::Queue)),
        (u64::from(queue_log::VERSION), samples::queue_body()),
        (u64::from(undo::VERSION), samples::undo_index().encode()),
        (u64::from(delta::VERSION), samples::delta_head().encode()),
        (protocol, samples::header().encode().to_vec()),
        (protocol, samples::ack().encode()),
        (protocol, samples::hello().encode()),
        (protocol, samples::tick().encode()),
        (protocol, samples::begin().encode()),
        (protocol, samples::flush_points().encode()),
        (protocol, samples::range()),
    ];
    let mut wrong = Vec::new();
    for ((name, version, wanted), (now, image)) in SHAPES.into_iter().zip(samples) {
        let found = digest(&image);
        if version != now {
            wrong.push(format!("{name} has version {now}: put its digest {found:#018x} into SHAPES, and document it"));
        } else if found != wanted {
            wrong.push(format!(
                "{name} changed its shape but not its version {now} (its digest is {found:#018x} now): nodes of two \
                 builds would misread each other. Give it a new version with a reason, document it, then change SHAPES"
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
