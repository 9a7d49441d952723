//! Whether two paths lead to the same bytes, by whatever way: links, bind mounts, a loop device and its file, a partition and its
//! disk, a mapper and what it is made of, a file and the device that its file system lies on.

use std::fs;
use std::path::{Path, PathBuf};

use super::holders::{DeviceNumber, parse_number, sysfs};
use super::identity::{FileIdentity, identity_of};
use super::open_error::OpenError;

const SECTOR_BYTES: u64 = 512;
/// Layers that are looked through.
const DEPTH_MAX: usize = 16;

/// All that a volume's bytes lie in, layer below layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint(Vec<FootprintPart>);

/// Bytes of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FootprintPart {
    layer: FileIdentity,
    from: u64,
    to: u64,
    /// It is somewhere in there, among others: a logical volume in its disks, a file in the device of its file system.
    somewhere: bool,
}

impl Footprint {
    /// Of what stands behind a path, links followed. Nothing is opened.
    ///
    /// # Errors
    /// The path leads nowhere, or may not be looked at.
    pub fn of(path: &Path) -> Result<Footprint, OpenError> {
        let mut footprint = Footprint(Vec::new());
        let found = identity_of(path).map_err(|errno| OpenError::at(path, "looking at it", errno))?;
        footprint.add(FootprintPart { layer: found, from: 0, to: u64::MAX, somewhere: false }, path, 0);
        Ok(footprint)
    }

    /// Whether a write to one may change what is read from the other.
    pub fn overlaps(&self, other: &Footprint) -> bool {
        let meet = |one: &FootprintPart, other: &FootprintPart| {
            let both_somewhere = one.somewhere && other.somewhere;
            one.layer == other.layer && one.from < other.to && other.from < one.to && !both_somewhere
        };
        self.0.iter().any(|one| other.0.iter().any(|other| meet(one, other)))
    }

    /// Of two that overlap: how, between their names in a sentence.
    pub fn relation(&self, other: &Footprint) -> &'static str {
        if self.identity() == other.identity() { "is the same thing as" } else { "lies on the same bytes as" }
    }

    /// What the path itself leads to.
    pub fn identity(&self) -> FileIdentity {
        self.0[0].layer
    }

    fn add(&mut self, part: FootprintPart, path: &Path, depth: usize) {
        self.0.push(part.clone());
        if depth >= DEPTH_MAX {
            return;
        }
        match part.layer {
            FileIdentity::File { device, .. } => {
                // A file system's own number is no device's where it has none, or several.
                let number = (rustix::fs::major(device), rustix::fs::minor(device));
                if number.0 != 0 && sysfs(number).exists() {
                    self.add_somewhere_in(number, depth);
                }
            }
            FileIdentity::Device { major, minor } => self.add_below((major, minor), &part, path, depth),
        }
    }

    fn add_below(&mut self, number: DeviceNumber, part: &FootprintPart, path: &Path, depth: usize) {
        let here = sysfs(number);
        let count = |name: &str| fs::read_to_string(here.join(name)).ok()?.trim().parse::<u64>().ok();
        if here.join("partition").exists() {
            let (start, size) = (count("start").unwrap_or(0), count("size").unwrap_or(u64::MAX));
            let Some(whole) = number_in(&here.join("../dev")) else { return };
            let length = size.saturating_mul(SECTOR_BYTES);
            self.add(below(part, device(whole), start.saturating_mul(SECTOR_BYTES), length), path, depth + 1);
        }
        if let Ok(backing) = fs::read_to_string(here.join("loop/backing_file")) {
            let backing = PathBuf::from(backing.trim_end_matches('\n'));
            let Ok(layer) = identity_of(&backing) else { return };
            let length = count("size").unwrap_or(u64::MAX).saturating_mul(SECTOR_BYTES);
            self.add(below(part, layer, count("loop/offset").unwrap_or(0), length), &backing, depth + 1);
        }
        let slaves = fs::read_dir(here.join("slaves")).into_iter().flatten().flatten();
        let numbers: Vec<DeviceNumber> = slaves.filter_map(|slave| number_in(&slave.path().join("dev"))).collect();
        numbers.into_iter().for_each(|slave| self.add_somewhere_in(slave, depth));
    }

    fn add_somewhere_in(&mut self, number: DeviceNumber, depth: usize) {
        let part = FootprintPart { layer: device(number), from: 0, to: u64::MAX, somewhere: true };
        if !self.0.contains(&part) {
            self.add(part, Path::new(""), depth + 1);
        }
    }
}

/// The same bytes, one layer down, where they are at most `length` from `start` on.
fn below(part: &FootprintPart, layer: FileIdentity, start: u64, length: u64) -> FootprintPart {
    let from = start.saturating_add(part.from);
    let to = start.saturating_add(part.to.min(length));
    FootprintPart { layer, from, to, somewhere: part.somewhere }
}

fn device((major, minor): DeviceNumber) -> FileIdentity {
    FileIdentity::Device { major, minor }
}

fn number_in(path: &Path) -> Option<DeviceNumber> {
    parse_number(&fs::read_to_string(path).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(minor: u32, from: u64, to: u64, somewhere: bool) -> FootprintPart {
        FootprintPart { layer: device((8, minor)), from, to, somewhere }
    }

    #[test]
    fn bytes_meet_in_a_layer_that_both_lie_in() {
        let whole = Footprint(vec![part(0, 0, u64::MAX, false)]);
        let first = Footprint(vec![part(1, 0, u64::MAX, false), part(0, 512, 1024, false)]);
        let second = Footprint(vec![part(2, 0, u64::MAX, false), part(0, 1024, 2048, false)]);
        assert!(whole.overlaps(&first) && first.overlaps(&whole) && first.overlaps(&first));
        assert!(!first.overlaps(&second), "partitions of one disk");
        let logical = |minor| Footprint(vec![part(minor, 0, u64::MAX, false), part(0, 0, u64::MAX, true)]);
        assert!(!logical(5).overlaps(&logical(6)), "logical volumes of one disk");
        assert!(logical(5).overlaps(&whole) && logical(5).overlaps(&first) && logical(5).overlaps(&logical(5)));
    }

    #[test]
    fn a_layer_down_bytes_are_shifted_and_cut() {
        let layer = device((8, 0));
        let partition = below(&part(1, 0, u64::MAX, false), layer, 4096, 8192);
        assert_eq!((partition.from, partition.to), (4096, 12_288));
        let within = below(&part(1, 512, 1024, true), layer, 4096, 8192);
        assert_eq!(within, FootprintPart { layer, from: 4608, to: 5120, somewhere: true });
    }

    #[test]
    fn links_lead_to_one_file_and_neighbours_do_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        fs::write(path("one"), "1").expect("written");
        fs::write(path("other"), "2").expect("written");
        fs::hard_link(path("one"), path("hard")).expect("a link");
        std::os::unix::fs::symlink(path("one"), path("soft")).expect("a link");
        let of = |name: &str| Footprint::of(&path(name)).expect("there");
        assert!(of("one").overlaps(&of("hard")) && of("one").overlaps(&of("soft")));
        assert!(!of("one").overlaps(&of("other")), "two files of one file system");
        assert!(Footprint::of(&path("none")).is_err());
    }
}
