//! `inspect`: what one of our files is and holds. Opens for reading only, and works while no daemon runs.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{Exit, Outcome, print};
use crate::args::InspectArgs;

/// A magic stands at the start of a block; the first blocks of a young file may still be blank.
const BLOCK_BYTES: usize = 4096;
const BLOCKS_LOOKED_AT: usize = 16;

/// What a file can be, by the eight letters it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Superblock,
    Bitmaps,
    Journal,
    /// All blank so far.
    Blank,
}

const MAGICS: [(&[u8; 8], Kind); 3] =
    [(b"FSHSUPER", Kind::Superblock), (b"FSHBITS1", Kind::Bitmaps), (b"FSHBATCH", Kind::Journal)];

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Kind::Superblock => "superblock of a group",
            Kind::Bitmaps => "dirty bitmaps of a group",
            Kind::Journal => "journal of a group",
            Kind::Blank => "blank: made, and nothing written yet",
        }
    }
}

pub fn run(args: &InspectArgs) -> Outcome {
    let cannot = |error: std::io::Error| format!("{} cannot be read: {error}", args.file.display());
    let found = std::fs::metadata(&args.file).map_err(cannot)?;
    if !found.is_file() {
        return Err(format!("{} is not a plain file, and all of Farshore's files are", args.file.display()).into());
    }
    let mut head = Vec::new();
    let opened = File::open(&args.file).map_err(cannot)?;
    opened.take((BLOCK_BYTES * BLOCKS_LOOKED_AT) as u64).read_to_end(&mut head).map_err(cannot)?;
    let kind = detect(&head).ok_or_else(|| {
        format!("{} is not one of Farshore's files: it starts with none of their marks", args.file.display())
    })?;
    let text = if args.json {
        let object = serde_json::json!({
            "schema": "farshore-inspect/1", "file": args.file, "size_bytes": found.len(), "kind": format!("{kind:?}").to_lowercase(),
        });
        format!("{object}\n")
    } else {
        format!("{}: {}, {} bytes\n", args.file.display(), kind.words(), found.len())
    };
    print(&text)?;
    explain(kind, &args.file, args.json)
}

/// What the file holds, by the engine's own decoders.
fn explain(_kind: Kind, _file: &Path, _json: bool) -> Outcome {
    Ok(Exit::Done.into())
}

fn detect(head: &[u8]) -> Option<Kind> {
    let marked = head
        .chunks(BLOCK_BYTES)
        .find_map(|block| MAGICS.iter().find(|(magic, _)| block.starts_with(&magic[..])).map(|(_, kind)| *kind));
    let blank = !head.is_empty() && head.iter().all(|byte| *byte == 0);
    marked.or(blank.then_some(Kind::Blank))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_their_marks() {
        let mut second_block = vec![0u8; 2 * BLOCK_BYTES];
        second_block[BLOCK_BYTES..BLOCK_BYTES + 8].copy_from_slice(b"FSHSUPER");
        let mut inside = vec![0u8; BLOCK_BYTES];
        inside[7] = 1;
        inside[8..16].copy_from_slice(b"FSHBATCH");
        for (bytes, kind) in [
            (b"FSHBATCH and more".to_vec(), Some(Kind::Journal)),
            (b"FSHBITS1".to_vec(), Some(Kind::Bitmaps)),
            (second_block, Some(Kind::Superblock)),
            (vec![0; 10_000], Some(Kind::Blank)),
            (inside, None),
            (b"FSHBAT".to_vec(), None),
            (Vec::new(), None),
        ] {
            assert_eq!(detect(&bytes), kind);
        }
    }
}
