//! `inspect`: what our files are and hold. Opens for reading only, and works while no daemon runs; what it says of a
//! running daemon's files is a moment's look.

mod activity;
mod bitmap;
mod cell;
mod delta;
mod journal;
mod marks;
mod queue;
mod report;
mod small;
mod superblock;
mod undo;

use std::fs::File;
use std::path::Path;

use serde_json::{Value, json};

use crate::args::InspectArgs;
use crate::daemon::seals;
use crate::outcome::{CommandOutcome, Exit, print};
use report::InspectReport;
use superblock::read_up_to;

/// A magic stands at the start of a block; the first blocks of a young file may still be blank.
const BLOCK_BYTES: usize = engine::limits::META_BLOCK_BYTES as usize;
const BLOCKS_LOOKED_AT: usize = 16;
/// Bitmaps, fingerprints and overrides are read whole; the largest is the bitmap of a group of 16 TiB, four times over.
const WHOLE_BYTES_MAX: u64 = 256 << 20;

/// What a file can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Superblock,
    Bitmaps,
    Activity,
    Journal,
    Undo,
    Marks,
    Delta,
    DiskQueue,
    Fingerprints,
    Overrides,
    LinkOverrides,
    LinkHistory,
    /// All blank so far, and its name says nothing.
    Blank,
}

const MAGICS: [(&[u8; 8], FileKind); 9] = [
    (b"FSHSUPER", FileKind::Superblock),
    (b"FSHBITMP", FileKind::Bitmaps),
    (b"FSHACTIV", FileKind::Activity),
    (b"FSHMARKS", FileKind::Marks),
    (b"FSHBATCH", FileKind::Journal),
    (b"FSHDELTA", FileKind::Delta),
    (b"FSHUNDOB", FileKind::Undo),
    (b"FSHRLINK", FileKind::LinkHistory),
    (&seals::MAGIC, FileKind::Fingerprints),
];

impl FileKind {
    fn words(self) -> &'static str {
        match self {
            FileKind::Superblock => "superblock of a group",
            FileKind::Bitmaps => "dirty bitmaps of a group",
            FileKind::Activity => "activity log of a group",
            FileKind::Marks => "named marks of a group",
            FileKind::Journal => "journal of a group",
            FileKind::Undo => "undo store of a group",
            FileKind::Delta => "what a node held where it differed from the peer that was chosen over it",
            FileKind::Fingerprints => "fingerprints of a group's volumes",
            FileKind::Overrides => "settings changed by 'farshore set'",
            FileKind::LinkOverrides => "settings changed by 'farshore link set'",
            FileKind::LinkHistory => "history of a link",
            FileKind::DiskQueue => "disk queue of a group",
            FileKind::Blank => "blank: made, and nothing written yet",
        }
    }

    /// What our own file names promise, for files whose content no longer says it.
    fn by_name(file: &Path) -> Option<FileKind> {
        match file.file_name()?.to_str()? {
            "superblock" => Some(FileKind::Superblock),
            "bitmap" => Some(FileKind::Bitmaps),
            "activity" => Some(FileKind::Activity),
            "marks" => Some(FileKind::Marks),
            "journal" => Some(FileKind::Journal),
            "undo" => Some(FileKind::Undo),
            "queue" => Some(FileKind::DiskQueue),
            "delta" => Some(FileKind::Delta),
            "fingerprints" => Some(FileKind::Fingerprints),
            "overrides.toml" => Some(FileKind::Overrides),
            "link.toml" => Some(FileKind::LinkOverrides),
            _ => None,
        }
    }
}

pub fn run(args: &InspectArgs) -> CommandOutcome {
    if let Some(range) = &args.extract {
        return delta::extract(&args.files, range);
    }
    let mut worst = Exit::Done;
    let mut objects = Vec::new();
    for file in &args.files {
        let (kind, size_bytes, report) = match look(file) {
            Ok((kind, size_bytes, report)) => (Some(kind), size_bytes, report),
            Err(sentence) => (None, 0, InspectReport::failed(sentence)),
        };
        if report.exit() as u8 > worst as u8 {
            worst = report.exit();
        }
        if args.json {
            objects.push(object(file, kind, size_bytes, report));
        } else if !print(&text(file, kind, size_bytes, &report))? {
            break;
        }
    }
    if args.json {
        print(&format!("{}\n", json!({ "schema": "farshore-inspect/1", "files": objects })))?;
    }
    Ok(worst.into())
}

fn object(file: &Path, kind: Option<FileKind>, size_bytes: u64, report: InspectReport) -> Value {
    json!({
        "file": file, "size_bytes": size_bytes, "kind": kind.map(|kind| format!("{kind:?}").to_lowercase()),
        "facts": report.facts, "warnings": report.warnings, "failure": report.failure,
    })
}

fn text(file: &Path, kind: Option<FileKind>, size_bytes: u64, report: &InspectReport) -> String {
    let mut text = String::new();
    if let Some(kind) = kind {
        text += &format!("{}: {}, {size_bytes} bytes\n", file.display(), kind.words());
    }
    for line in &report.lines {
        text += &format!("{line}\n");
    }
    for warning in &report.warnings {
        text += &format!("  warning: {warning}\n");
    }
    if let Some(failure) = &report.failure {
        text += &format!("{}{failure}\n", if kind.is_some() { "  failed: " } else { "" });
    }
    text
}

fn look(file: &Path) -> Result<(FileKind, u64, InspectReport), String> {
    let cannot = |error: std::io::Error| format!("{} cannot be read: {error}", file.display());
    // Looked at before it is opened: opening a pipe would wait for its writer.
    let found = std::fs::metadata(file).map_err(cannot)?;
    if !found.is_file() {
        return Err(format!("{} is not a plain file, and all of Farshore's files are", file.display()));
    }
    let opened = File::open(file).map_err(cannot)?;
    let head = read_up_to(&opened, (BLOCK_BYTES * BLOCKS_LOOKED_AT) as u64).map_err(cannot)?;
    let kind = detect(&head, file).ok_or_else(|| {
        format!("{} is not one of Farshore's files: it starts with none of their magic numbers", file.display())
    })?;
    let whole = || match found.len() {
        size if size > WHOLE_BYTES_MAX => {
            Err(format!("{} has {size} bytes, far more than any {} needs", file.display(), kind.words()))
        }
        _ => std::fs::read(file).map_err(cannot),
    };
    let report = match kind {
        FileKind::Superblock => superblock::report(&head),
        FileKind::Bitmaps => bitmap::report(&whole()?, file),
        FileKind::Activity => activity::report(&whole()?, file),
        FileKind::Marks => marks::report(&whole()?),
        FileKind::Journal => journal::report(&opened, found.len(), file).map_err(cannot)?,
        FileKind::Delta => delta::report(&opened, found.len()).map_err(cannot)?,
        FileKind::Undo => undo::report(&opened, found.len(), file).map_err(cannot)?,
        FileKind::Fingerprints => small::fingerprints(&whole()?),
        FileKind::Overrides => small::overrides(&whole()?, file),
        FileKind::LinkOverrides => small::link_overrides(&whole()?, file),
        FileKind::LinkHistory => small::link_history(&whole()?),
        FileKind::DiskQueue => queue::report(&opened, found.len(), file).map_err(cannot)?,
        FileKind::Blank => InspectReport::default(),
    };
    Ok((kind, found.len(), report))
}

fn detect(head: &[u8], file: &Path) -> Option<FileKind> {
    // Files of blocks are never of another size.
    let in_blocks = !head.is_empty() && head.len().is_multiple_of(BLOCK_BYTES);
    let is_small =
        |kind: &FileKind| matches!(kind, FileKind::Fingerprints | FileKind::Overrides | FileKind::LinkOverrides);
    let by_name = FileKind::by_name(file).filter(|kind| in_blocks || is_small(kind));
    // Its first bytes are somebody's payload, which may look like anything.
    if by_name == Some(FileKind::DiskQueue) {
        return by_name;
    }
    let has_magic = head
        .chunks(BLOCK_BYTES)
        .find_map(|block| MAGICS.iter().find(|(magic, _)| block.starts_with(&magic[..])).map(|(_, kind)| *kind));
    let is_override = || {
        let heads = [
            (&b"# Written by `farshore set`"[..], FileKind::Overrides),
            (b"# Written by `farshore link set`", FileKind::LinkOverrides),
        ];
        heads.into_iter().find(|(words, _)| head.starts_with(words)).map(|(_, kind)| kind)
    };
    let blank = !head.is_empty() && head.iter().all(|byte| *byte == 0);
    has_magic.or_else(is_override).or(by_name).or(blank.then_some(FileKind::Blank))
}

#[cfg(test)]
mod tests {
    use super::report::SHOWN;
    use super::*;

    #[test]
    fn kinds_are_recognised_by_their_magic_then_by_their_names() {
        let mut second_block = vec![0u8; 2 * BLOCK_BYTES];
        second_block[BLOCK_BYTES..BLOCK_BYTES + 8].copy_from_slice(b"FSHSUPER");
        let mut inside = vec![0u8; BLOCK_BYTES];
        inside[7] = 1;
        inside[8..16].copy_from_slice(b"FSHBATCH");
        for (bytes, name, kind) in [
            (b"FSHBATCH and more".to_vec(), "x", Some(FileKind::Journal)),
            (b"FSHBITMP".to_vec(), "journal", Some(FileKind::Bitmaps)),
            (second_block, "x", Some(FileKind::Superblock)),
            (vec![0; 10_000], "x", Some(FileKind::Blank)),
            (vec![0; 8192], "journal", Some(FileKind::Journal)),
            (vec![0; 8192], "queue", Some(FileKind::DiskQueue)),
            ([&b"FSHBATCH"[..], &[7; 8184]].concat(), "queue", Some(FileKind::DiskQueue)),
            (b"something else".to_vec(), "journal", None),
            (inside.clone(), "x", None),
            (inside, "superblock", Some(FileKind::Superblock)),
            (b"FSHSEALS".to_vec(), "x", Some(FileKind::Fingerprints)),
            (b"# Written by `farshore set`; x".to_vec(), "x", Some(FileKind::Overrides)),
            (b"# Written by `farshore link set`; x".to_vec(), "x", Some(FileKind::LinkOverrides)),
            (b"FSHRLINK".to_vec(), "beta", Some(FileKind::LinkHistory)),
            (b"FSHBAT".to_vec(), "x", None),
            (Vec::new(), "x", None),
        ] {
            assert_eq!(detect(&bytes, Path::new(name)), kind, "{name}");
        }
    }

    #[test]
    fn long_lists_lose_their_middle() {
        let mut report = InspectReport::default();
        report.push_some((0..40).map(|n| n.to_string()), 40, "things");
        assert_eq!(report.lines.len(), SHOWN + 1);
        assert_eq!((report.lines[7].as_str(), report.lines[9].as_str()), ("7", "32"));
        assert!(report.lines[8].contains("24 more things"));
    }
}
