//! `inspect`: what our files are and hold. Opens for reading only, and works while no daemon runs; what it says of a
//! running daemon's files is a moment's look.

mod activity;
mod bitmap;
mod cell;
mod journal;
mod report;
mod small;
mod superblock;
mod undo;

use std::fs::File;
use std::path::Path;

use serde_json::{Value, json};

use crate::args::InspectArgs;
use crate::daemon::seals;
use crate::outcome::{Exit, Outcome, print};
use report::Report;
use superblock::read_up_to;

/// A magic stands at the start of a block; the first blocks of a young file may still be blank.
const BLOCK_BYTES: usize = engine::limits::META_BLOCK_BYTES as usize;
const BLOCKS_LOOKED_AT: usize = 16;
/// Bitmaps, fingerprints and overrides are read whole; the largest is the bitmap of a group of 16 TiB, four times over.
const WHOLE_BYTES_MAX: u64 = 256 << 20;

/// What a file can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Superblock,
    Bitmaps,
    Activity,
    Journal,
    Undo,
    Fingerprints,
    Overrides,
    LinkOverrides,
    LinkHistory,
    /// All blank so far, and its name says nothing.
    Blank,
}

const MAGICS: [(&[u8; 8], Kind); 7] = [
    (b"FSHSUPER", Kind::Superblock),
    (b"FSHBITMP", Kind::Bitmaps),
    (b"FSHACTIV", Kind::Activity),
    (b"FSHBATCH", Kind::Journal),
    (b"FSHUNDOB", Kind::Undo),
    (b"FSHRLINK", Kind::LinkHistory),
    (&seals::MAGIC, Kind::Fingerprints),
];

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Kind::Superblock => "superblock of a group",
            Kind::Bitmaps => "dirty bitmaps of a group",
            Kind::Activity => "activity log of a group",
            Kind::Journal => "journal of a group",
            Kind::Undo => "undo store of a group",
            Kind::Fingerprints => "fingerprints of a group's volumes",
            Kind::Overrides => "settings changed by 'farshore set'",
            Kind::LinkOverrides => "settings changed by 'farshore link set'",
            Kind::LinkHistory => "history of a link",
            Kind::Blank => "blank: made, and nothing written yet",
        }
    }

    /// What our own file names promise, for files whose content no longer says it.
    fn by_name(file: &Path) -> Option<Kind> {
        match file.file_name()?.to_str()? {
            "superblock" => Some(Kind::Superblock),
            "bitmap" => Some(Kind::Bitmaps),
            "activity" => Some(Kind::Activity),
            "journal" => Some(Kind::Journal),
            "undo" => Some(Kind::Undo),
            "fingerprints" => Some(Kind::Fingerprints),
            "overrides.toml" => Some(Kind::Overrides),
            "link.toml" => Some(Kind::LinkOverrides),
            _ => None,
        }
    }
}

pub fn run(args: &InspectArgs) -> Outcome {
    let mut worst = Exit::Done;
    let mut objects = Vec::new();
    for file in &args.files {
        let (kind, size_bytes, report) = match look(file) {
            Ok((kind, size_bytes, report)) => (Some(kind), size_bytes, report),
            Err(sentence) => (None, 0, Report::failed(sentence)),
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

fn object(file: &Path, kind: Option<Kind>, size_bytes: u64, report: Report) -> Value {
    json!({
        "file": file, "size_bytes": size_bytes, "kind": kind.map(|kind| format!("{kind:?}").to_lowercase()),
        "facts": report.facts, "warnings": report.warnings, "failure": report.failure,
    })
}

fn text(file: &Path, kind: Option<Kind>, size_bytes: u64, report: &Report) -> String {
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

fn look(file: &Path) -> Result<(Kind, u64, Report), String> {
    let cannot = |error: std::io::Error| format!("{} cannot be read: {error}", file.display());
    // Looked at before it is opened: opening a pipe would wait for its writer.
    let found = std::fs::metadata(file).map_err(cannot)?;
    if !found.is_file() {
        return Err(format!("{} is not a plain file, and all of Farshore's files are", file.display()));
    }
    let opened = File::open(file).map_err(cannot)?;
    let head = read_up_to(&opened, (BLOCK_BYTES * BLOCKS_LOOKED_AT) as u64).map_err(cannot)?;
    let kind = detect(&head, file).ok_or_else(|| {
        format!("{} is not one of Farshore's files: it starts with none of their marks", file.display())
    })?;
    let whole = || match found.len() {
        size if size > WHOLE_BYTES_MAX => {
            Err(format!("{} has {size} bytes, far more than any {} needs", file.display(), kind.words()))
        }
        _ => std::fs::read(file).map_err(cannot),
    };
    let report = match kind {
        Kind::Superblock => superblock::report(&head),
        Kind::Bitmaps => bitmap::report(&whole()?, file),
        Kind::Activity => activity::report(&whole()?, file),
        Kind::Journal => journal::report(&opened, found.len(), file).map_err(cannot)?,
        Kind::Undo => undo::report(&opened, found.len(), file).map_err(cannot)?,
        Kind::Fingerprints => small::fingerprints(&whole()?),
        Kind::Overrides => small::overrides(&whole()?, file),
        Kind::LinkOverrides => small::link_overrides(&whole()?, file),
        Kind::LinkHistory => small::link_history(&whole()?),
        Kind::Blank => Report::default(),
    };
    Ok((kind, found.len(), report))
}

fn detect(head: &[u8], file: &Path) -> Option<Kind> {
    // Files of blocks are never of another size.
    let in_blocks = !head.is_empty() && head.len().is_multiple_of(BLOCK_BYTES);
    let is_small = |kind: &Kind| matches!(kind, Kind::Fingerprints | Kind::Overrides | Kind::LinkOverrides);
    let by_name = Kind::by_name(file).filter(|kind| in_blocks || is_small(kind));
    let marked = head
        .chunks(BLOCK_BYTES)
        .find_map(|block| MAGICS.iter().find(|(magic, _)| block.starts_with(&magic[..])).map(|(_, kind)| *kind));
    let is_override = || {
        let heads = [
            (&b"# Written by `farshore set`"[..], Kind::Overrides),
            (b"# Written by `farshore link set`", Kind::LinkOverrides),
        ];
        heads.into_iter().find(|(words, _)| head.starts_with(words)).map(|(_, kind)| kind)
    };
    let blank = !head.is_empty() && head.iter().all(|byte| *byte == 0);
    marked.or_else(is_override).or(by_name).or(blank.then_some(Kind::Blank))
}

#[cfg(test)]
mod tests {
    use super::report::SHOWN;
    use super::*;

    #[test]
    fn kinds_are_told_by_their_marks_then_by_their_names() {
        let mut second_block = vec![0u8; 2 * BLOCK_BYTES];
        second_block[BLOCK_BYTES..BLOCK_BYTES + 8].copy_from_slice(b"FSHSUPER");
        let mut inside = vec![0u8; BLOCK_BYTES];
        inside[7] = 1;
        inside[8..16].copy_from_slice(b"FSHBATCH");
        for (bytes, name, kind) in [
            (b"FSHBATCH and more".to_vec(), "x", Some(Kind::Journal)),
            (b"FSHBITMP".to_vec(), "journal", Some(Kind::Bitmaps)),
            (second_block, "x", Some(Kind::Superblock)),
            (vec![0; 10_000], "x", Some(Kind::Blank)),
            (vec![0; 8192], "journal", Some(Kind::Journal)),
            (b"something else".to_vec(), "journal", None),
            (inside.clone(), "x", None),
            (inside, "superblock", Some(Kind::Superblock)),
            (b"FSHSEALS".to_vec(), "x", Some(Kind::Fingerprints)),
            (b"# Written by `farshore set`; x".to_vec(), "x", Some(Kind::Overrides)),
            (b"# Written by `farshore link set`; x".to_vec(), "x", Some(Kind::LinkOverrides)),
            (b"FSHRLINK".to_vec(), "beta", Some(Kind::LinkHistory)),
            (b"FSHBAT".to_vec(), "x", None),
            (Vec::new(), "x", None),
        ] {
            assert_eq!(detect(&bytes, Path::new(name)), kind, "{name}");
        }
    }

    #[test]
    fn long_lists_lose_their_middle() {
        let mut report = Report::default();
        report.push_some((0..40).map(|n| n.to_string()), 40, "things");
        assert_eq!(report.lines.len(), SHOWN + 1);
        assert_eq!((report.lines[7].as_str(), report.lines[9].as_str()), ("7", "32"));
        assert!(report.lines[8].contains("24 more things"));
    }
}
