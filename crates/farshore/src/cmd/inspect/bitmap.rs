//! The dirty regions of a group's volumes, as the last clean stop left them.

use std::path::Path;

use engine::limits::REGION_BYTES;
use engine::{Bitmap, BitmapFile, BitmapRejected, split_bits};
use serde_json::json;

use super::{Report, SHOWN, push_some, superblock_beside};
use crate::config::units::show_size;
use crate::daemon::seals;

/// A volume as the fingerprints beside the bitmap know it.
struct Known {
    name: String,
    size_bytes: u64,
}

pub(super) fn report(image: &[u8], path: &Path) -> Report {
    let file = match BitmapFile::read(image) {
        Ok(file) => file,
        Err(BitmapRejected::Blank) => {
            let mut blank = Report::default();
            blank.line("holds", "nothing yet: it is written at a clean stop");
            return blank;
        }
        Err(rejected) => return Report::failed(rejected_sentence(rejected, image.len())),
    };
    let mut report = Report::default();
    report.line("group", format!("tag {:016x}", file.tag));
    report.line("peer", format!("node {} (place in the sorted list)", file.peer.0));
    report.line("generation", file.generation);
    report.line("volumes", format!("{}, a bit for each {}", file.volumes, show_size(u64::from(file.region_bytes))));
    let mut facts = json!({
        "tag": format!("{:016x}", file.tag), "peer": file.peer.0, "generation": file.generation.to_string(),
        "volumes": file.volumes, "region_bytes": file.region_bytes,
    });
    facts["maps"] = match known_volumes(&file, path) {
        Some((known, maps)) => known.iter().zip(&maps).map(|(known, map)| volume(&mut report, known, map)).collect(),
        None => whole(&mut report, &file),
    };
    match superblock_beside(path) {
        Some(beside) if !beside.clean => report.warnings.push(
            "the superblock beside it says that the daemon runs, or that its last stop was not clean: these bits are of \
             an earlier stop and are not used"
                .into(),
        ),
        Some(beside) if beside.tag != file.tag || beside.identity.generation != file.generation => report.warnings.push(
            "the superblock beside it is of another group or generation: these bits are not used".into(),
        ),
        _ => {}
    }
    report.facts = facts;
    report
}

fn rejected_sentence(rejected: BitmapRejected, bytes: usize) -> String {
    let what = match rejected {
        BitmapRejected::Blank | BitmapRejected::HeaderDamaged => "the header (bytes 0 to 4095) is damaged".to_owned(),
        BitmapRejected::CutShort => format!("it is cut short: it has {bytes} bytes, and its header announces more"),
        BitmapRejected::BitsDamaged => "the bits (from byte 4096) do not match their checksum".to_owned(),
    };
    format!("{what}; the daemon compares every region instead")
}

/// Names and sizes from the fingerprints beside, which are written at the same stop, if they fit the bits.
fn known_volumes(file: &BitmapFile, path: &Path) -> Option<(Vec<Known>, Vec<Bitmap>)> {
    if u64::from(file.region_bytes) != REGION_BYTES {
        return None;
    }
    let seals = seals::decode(&std::fs::read(path.with_file_name("fingerprints")).ok()?).ok()?;
    let known = seals.into_iter().map(|(name, seal)| Known { name, size_bytes: seal.size_bytes() });
    let known: Vec<Known> = known.collect();
    let sizes: Vec<u64> = known.iter().map(|known| known.size_bytes).collect();
    let maps = (usize::from(file.volumes) == sizes.len()).then(|| split_bits(file.bits, &sizes))??;
    Some((known, maps))
}

fn volume(report: &mut Report, known: &Known, map: &Bitmap) -> serde_json::Value {
    let set = std::iter::successors(map.next_set(0), |region| map.next_set(region + 1));
    let ranges = ranges(set);
    let regions = known.size_bytes.div_ceil(REGION_BYTES);
    let dirty: u64 = ranges.iter().map(|(first, last)| last - first + 1).sum();
    let label = format!("volume {}", known.name);
    report.line(&label, format!("{dirty} of {regions} regions dirty, {}", show_size(map.dirty_bytes())));
    let lines = ranges.iter().map(|(first, last)| {
        let end = ((last + 1) * REGION_BYTES).min(known.size_bytes);
        format!("    regions {first} to {last}: bytes {} to {}", first * REGION_BYTES, end - 1)
    });
    push_some(report, lines, ranges.len(), "ranges");
    json!({
        "name": known.name, "size_bytes": known.size_bytes, "regions": regions, "dirty_regions": dirty,
        "dirty_bytes": map.dirty_bytes(), "first_ranges": &ranges[..ranges.len().min(SHOWN)],
    })
}

/// Without sizes nobody knows where one volume's bits end: all of them, counted from the first.
fn whole(report: &mut Report, file: &BitmapFile) -> serde_json::Value {
    let set = file
        .bits
        .iter()
        .enumerate()
        .flat_map(|(at, byte)| (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at as u64 * 8 + bit));
    let ranges = ranges(set);
    let dirty: u64 = ranges.iter().map(|(first, last)| last - first + 1).sum();
    report.line(
        "all volumes",
        format!("{dirty} regions dirty, at most {}", show_size(dirty * u64::from(file.region_bytes))),
    );
    report.line("", "(which volume's they are needs the file 'fingerprints' of the same stop beside it)");
    let lines = ranges.iter().map(|(first, last)| format!("    bits {first} to {last}"));
    push_some(report, lines, ranges.len(), "ranges");
    json!([{ "name": null, "dirty_regions": dirty, "first_ranges": &ranges[..ranges.len().min(SHOWN)] }])
}

/// Neighbours joined: first and last.
fn ranges(set: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for region in set {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == region => *last = region,
            _ => ranges.push((region, region)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use engine::{Generation, NodeId, encode_bitmaps};

    use super::*;
    use crate::cmd::Exit;

    #[test]
    fn ranges_are_joined_and_damage_is_placed() {
        let mut map = Bitmap::new(100 * REGION_BYTES);
        [3, 4, 5, 64, 99].into_iter().for_each(|region| assert!(map.set(region)));
        let mut image = encode_bitmaps(7, NodeId(1), Generation { number: 1, tag: 2 }, &[&map]);
        let nowhere = Path::new("/nowhere/bitmap");
        let seen = report(&image, nowhere);
        assert_eq!(seen.exit(), Exit::Done);
        assert_eq!(seen.facts["maps"][0]["first_ranges"], json!([[3, 5], [64, 64], [99, 99]]));
        image[4096] ^= 1;
        assert!(report(&image, nowhere).failure.is_some_and(|failure| failure.contains("from byte 4096")));
        assert!(report(&image[..4100], nowhere).failure.is_some_and(|failure| failure.contains("has 4100 bytes")));
        image[9] ^= 1;
        assert!(report(&image, nowhere).failure.is_some_and(|failure| failure.contains("bytes 0 to 4095")));
        assert_eq!(report(&[0; 8192], nowhere).exit(), Exit::Done);
    }
}
