//! What a volume looked like at a clean stop, so that a start can tell whether somebody wrote behind our back.
//!
//! A seal on a door, not a guard: ordinary use (a mount, a restore, `dd`) breaks it, a deliberate or very small change
//! of a device need not. For files the file system's own times tell of every write. For a device there are its identity
//! and size, within one boot the kernel's count of written sectors, and across boots a hash over the first and last MiB
//! and 1 024 blocks at offsets that the stored seed draws.
//!
//! The stored form, little-endian, version 1:
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 8 | `FARSEAL\0` |
//! | 8 | 2 | version |
//! | 10 | 2 | kind: 1 file, 2 device |
//! | 12 | 4 | length of all, checksum included |
//! | 16 | 8 | seed |
//! | 24 | 8 | size in bytes |
//! | 32 | 8 + 12 + 12 | file: inode; modification and change time (seconds 8, nanoseconds 4) |
//! | 32 | 16 + 8 + 32 + 2 + n | device: boot; sectors written; BLAKE3 of the samples; length and text of the name |
//! | end | 4 | CRC-32C of everything before |

use std::fmt;

use rustix::io::Errno;
use units::size::show_exact;

use super::file::File;
use super::identity::FileIdentity;
use super::op::{DiskError, ErrorKind, OpName};
use crate::buffers::Buffer;

const MAGIC: &[u8; 8] = b"FARSEAL\0";
const VERSION: u16 = 1;
const KIND_FILE: u16 = 1;
const KIND_DEVICE: u16 = 2;
const CHECKSUM_BYTES: usize = 4;
/// Longest device name kept; longer ones are cut, which only makes them a little less telling.
const NAME_BYTES_MAX: usize = 512;

pub(super) const EDGE_BYTES: u64 = 1 << 20;
const SAMPLES: u64 = 1024;
pub(super) const SAMPLE_BYTES: u64 = 4096;

/// The look of a volume at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    seed: u64,
    size_bytes: u64,
    facts: VolumeFacts,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum VolumeFacts {
    File { inode: u64, modified: Time, changed: Time },
    Device(DeviceFacts),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct DeviceFacts {
    /// Identifies the running kernel's boot; 0: unknown.
    boot: u128,
    /// Written or discarded since the device appeared; compared within one boot only.
    sectors_written: u64,
    content: [u8; 32],
    /// What the hardware or mapper calls itself; empty: nothing.
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Time {
    seconds: i64,
    nanoseconds: u32,
}

/// Why a volume is not as it was left. Each reads on after "NAME was changed since the last clean stop: ".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Changed {
    #[error("it was a {was} and is a {is}")]
    Kind { was: &'static str, is: &'static str },
    #[error("it had {} and has {}", show_exact(*.was_bytes), show_exact(*.is_bytes))]
    Size { was_bytes: u64, is_bytes: u64 },
    #[error("another file has taken its place (inode {was}, now {is})")]
    Replaced { was: u64, is: u64 },
    #[error("it was written (its modification time moved by {moved_ms} ms)")]
    Modified { moved_ms: i128 },
    #[error("its times, owner, mode or links were changed (its change time moved by {moved_ms} ms)")]
    Touched { moved_ms: i128 },
    #[error("another device has taken its place (\"{was}\", now \"{is}\")")]
    Device { was: String, is: String },
    #[error("it was written (the kernel counted {was} written sectors then and {is} now)")]
    Written { was: u64, is: u64 },
    #[error("its content differs (the hash of its first and last MiB and of {SAMPLES} samples)")]
    Content,
}

/// Why stored bytes are not a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    #[error("the stored fingerprint is cut short or has trailing bytes")]
    Length,
    #[error("the stored bytes are not a fingerprint")]
    Magic,
    #[error("the stored fingerprint has version {0}, which this program does not know; it knows {VERSION}")]
    Version(u16),
    #[error("the stored fingerprint is damaged: its checksum does not match")]
    Checksum,
    #[error("the stored fingerprint holds a value that no version wrote")]
    Value,
}

impl Fingerprint {
    /// Takes the fingerprint of a volume that nobody writes just now, after its last flush. `seed` is random at a stop,
    /// and at a start the stored one's [`Fingerprint::seed`]. Reads about 6 MiB of a device, in single requests: seconds
    /// on a spinning disk, so not on a data thread.
    ///
    /// # Errors
    /// A failed read or stat.
    pub fn take(file: &File, seed: u64) -> Result<Fingerprint, DiskError> {
        Fingerprint::take_telling(file, seed, &|| {})
    }

    /// The same; `goes_on` hears of each read that was answered.
    ///
    /// # Errors
    /// A failed read or stat.
    pub fn take_telling(file: &File, seed: u64, goes_on: &dyn Fn()) -> Result<Fingerprint, DiskError> {
        // As it is now, which is what the next start finds: a device may have been enlarged under whoever uses it.
        let size_bytes = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))
            .map_err(|errno| DiskError::new(OpName::Fingerprint, file.path(), errno))?;
        let facts = match file.identity() {
            FileIdentity::File { .. } => {
                // The times must be on disk too: after a power loss they would otherwise be older than the stored ones.
                let stat = rustix::fs::fsync(file)
                    .and_then(|()| rustix::fs::fstat(file))
                    .map_err(|errno| DiskError::new(OpName::Fingerprint, file.path(), errno))?;
                VolumeFacts::File {
                    inode: stat.st_ino,
                    modified: Time { seconds: stat.st_mtime as i64, nanoseconds: stat.st_mtime_nsec as u32 },
                    changed: Time { seconds: stat.st_ctime as i64, nanoseconds: stat.st_ctime_nsec as u32 },
                }
            }
            FileIdentity::Device { major, minor } => {
                let content = sample(file, size_bytes, seed, goes_on)?;
                // After the reads: they write nothing, and a writer during them is caught by the count.
                let sectors_written = sectors_written(major, minor);
                VolumeFacts::Device(DeviceFacts {
                    boot: boot(),
                    sectors_written,
                    content,
                    name: device_name(major, minor),
                })
            }
        };
        Ok(Fingerprint { seed, size_bytes, facts })
    }

    /// What drew the sampled offsets.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The volume's size, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let kind = match &self.facts {
            VolumeFacts::File { inode, modified, changed } => {
                body.extend(inode.to_le_bytes());
                for time in [modified, changed] {
                    body.extend(time.seconds.to_le_bytes());
                    body.extend(time.nanoseconds.to_le_bytes());
                }
                KIND_FILE
            }
            VolumeFacts::Device(device) => {
                body.extend(device.boot.to_le_bytes());
                body.extend(device.sectors_written.to_le_bytes());
                body.extend(device.content);
                body.extend((device.name.len() as u16).to_le_bytes());
                body.extend(device.name.as_bytes());
                KIND_DEVICE
            }
        };
        let mut bytes = Vec::from(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(((32 + body.len() + CHECKSUM_BYTES) as u32).to_le_bytes());
        bytes.extend(self.seed.to_le_bytes());
        bytes.extend(self.size_bytes.to_le_bytes());
        bytes.extend(body);
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// # Errors
    /// [`Damaged`] for anything that [`Fingerprint::to_bytes`] did not make.
    pub fn from_bytes(bytes: &[u8]) -> Result<Fingerprint, Damaged> {
        let mut reader = FieldReader(bytes);
        if reader.take::<8>()? != *MAGIC {
            return Err(Damaged::Magic);
        }
        let version = u16::from_le_bytes(reader.take()?);
        if version != VERSION {
            return Err(Damaged::Version(version));
        }
        let kind = u16::from_le_bytes(reader.take()?);
        if u32::from_le_bytes(reader.take()?) as usize != bytes.len() {
            return Err(Damaged::Length);
        }
        let (content, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(Damaged::Length)?;
        if crc32c::crc32c(content) != u32::from_le_bytes(*checksum) {
            return Err(Damaged::Checksum);
        }
        let seed = u64::from_le_bytes(reader.take()?);
        let size_bytes = u64::from_le_bytes(reader.take()?);
        let facts = match kind {
            KIND_FILE => VolumeFacts::File {
                inode: u64::from_le_bytes(reader.take()?),
                modified: reader.time()?,
                changed: reader.time()?,
            },
            KIND_DEVICE => VolumeFacts::Device(DeviceFacts {
                boot: u128::from_le_bytes(reader.take()?),
                sectors_written: u64::from_le_bytes(reader.take()?),
                content: reader.take()?,
                name: reader.name()?,
            }),
            _ => return Err(Damaged::Value),
        };
        if reader.0.len() == CHECKSUM_BYTES {
            Ok(Fingerprint { seed, size_bytes, facts })
        } else {
            Err(Damaged::Length)
        }
    }
}

/// Is the volume as it was left? Both must have been taken with one seed.
///
/// # Errors
/// The first difference found, the most telling first.
pub fn compare(old: &Fingerprint, new: &Fingerprint) -> Result<(), Changed> {
    assert_eq!(old.seed, new.seed, "fingerprints taken at different places cannot be compared");
    if old.kind() != new.kind() {
        return Err(Changed::Kind { was: old.kind(), is: new.kind() });
    }
    if old.size_bytes != new.size_bytes {
        return Err(Changed::Size { was_bytes: old.size_bytes, is_bytes: new.size_bytes });
    }
    match (&old.facts, &new.facts) {
        (
            VolumeFacts::File { inode: was, modified, changed },
            VolumeFacts::File { inode: is, modified: modified_now, changed: changed_now },
        ) => {
            if was != is {
                return Err(Changed::Replaced { was: *was, is: *is });
            }
            if modified != modified_now {
                return Err(Changed::Modified { moved_ms: modified_now.since_ms(*modified) });
            }
            if changed != changed_now {
                return Err(Changed::Touched { moved_ms: changed_now.since_ms(*changed) });
            }
            Ok(())
        }
        (VolumeFacts::Device(was), VolumeFacts::Device(is)) => compare_devices(was, is),
        _ => unreachable!("the kinds were compared"),
    }
}

fn compare_devices(was: &DeviceFacts, is: &DeviceFacts) -> Result<(), Changed> {
    // A kernel or driver update may name a device better than before: only two names contradict each other.
    if !was.name.is_empty() && !is.name.is_empty() && was.name != is.name {
        return Err(Changed::Device { was: was.name.clone(), is: is.name.clone() });
    }
    let same_boot = was.boot == is.boot && was.boot != 0;
    if same_boot && was.sectors_written != is.sectors_written {
        return Err(Changed::Written { was: was.sectors_written, is: is.sectors_written });
    }
    if was.content != is.content {
        return Err(Changed::Content);
    }
    Ok(())
}

impl Fingerprint {
    fn kind(&self) -> &'static str {
        match self.facts {
            VolumeFacts::File { .. } => "file",
            VolumeFacts::Device(_) => "block device",
        }
    }
}

impl Time {
    fn since_ms(self, earlier: Time) -> i128 {
        let milliseconds = |time: Time| i128::from(time.seconds) * 1000 + i128::from(time.nanoseconds / 1_000_000);
        milliseconds(self) - milliseconds(earlier)
    }
}

struct FieldReader<'a>(&'a [u8]);

impl FieldReader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(Damaged::Length)?;
        self.0 = tail;
        Ok(*head)
    }

    fn time(&mut self) -> Result<Time, Damaged> {
        let seconds = i64::from_le_bytes(self.take()?);
        let nanoseconds = u32::from_le_bytes(self.take()?);
        if nanoseconds < 1_000_000_000 { Ok(Time { seconds, nanoseconds }) } else { Err(Damaged::Value) }
    }

    fn name(&mut self) -> Result<String, Damaged> {
        let length = usize::from(u16::from_le_bytes(self.take()?));
        if length > NAME_BYTES_MAX {
            return Err(Damaged::Value);
        }
        let (name, tail) = self.0.split_at_checked(length).ok_or(Damaged::Length)?;
        self.0 = tail;
        String::from_utf8(name.to_vec()).map_err(|_| Damaged::Value)
    }
}

/// The hash over both ends and the seeded samples, read in the order of the disk.
fn sample(file: &File, size: u64, seed: u64, goes_on: &dyn Fn()) -> Result<[u8; 32], DiskError> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = Buffer::detached(EDGE_BYTES as usize);
    let mut add = |offset: u64, length: u64| {
        let part = &mut buffer[..length as usize];
        read_exactly(file, part, offset)?;
        hasher.update(part);
        goes_on();
        Ok(())
    };
    let edge = EDGE_BYTES.min(size);
    add(0, edge)?;
    for offset in sample_offsets(size, seed) {
        add(offset, SAMPLE_BYTES)?;
    }
    add(size - edge, edge)?;
    Ok(*hasher.finalize().as_bytes())
}

pub(super) fn sample_offsets(size_bytes: u64, seed: u64) -> Vec<u64> {
    let blocks = size_bytes / SAMPLE_BYTES;
    if blocks == 0 {
        return Vec::new();
    }
    let mut offsets: Vec<u64> = (1..=SAMPLES).map(|number| mix(seed, number) % blocks * SAMPLE_BYTES).collect();
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

/// A well spread number for each position in the series of a seed (splitmix64). Part of the stored format.
fn mix(seed: u64, number: u64) -> u64 {
    let mut word = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

pub(super) fn read_exactly(file: &File, buffer: &mut [u8], offset: u64) -> Result<(), DiskError> {
    let mut done = 0;
    while done < buffer.len() {
        let position = offset + done as u64;
        let (fd, _) = file.route(position, (buffer.len() - done) as u64);
        match rustix::io::pread(fd, &mut buffer[done..], position) {
            Ok(0) => {
                return Err(DiskError::of_kind(ErrorKind::Truncated, OpName::Fingerprint, file.path()));
            }
            Ok(bytes) => done += bytes,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(DiskError::new(OpName::Fingerprint, file.path(), errno)),
        }
    }
    Ok(())
}

/// The kernel's name for this boot of the machine. `FARSHORE_BOOT_ID` overrides it for tests that take the power from a
/// store while the machine goes on.
pub(crate) fn boot() -> u128 {
    let given = std::env::var("FARSHORE_BOOT_ID").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(boot_of_kernel)
}

fn boot_of_kernel() -> u128 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or(0)
}

/// Sectors written and discarded, or 0 where the kernel does not count.
fn sectors_written(major: u32, minor: u32) -> u64 {
    const WRITTEN: usize = 6;
    const DISCARDED: usize = 13;
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).unwrap_or_default();
    let counts: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
    let count = |at: usize| counts.get(at).copied().unwrap_or(0);
    count(WRITTEN).wrapping_add(count(DISCARDED))
}

/// The most lasting name the device gives itself, with the partition's place where it is one.
fn device_name(major: u32, minor: u32) -> String {
    let device = std::path::PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let text = |path: &str| {
        let text = std::fs::read_to_string(device.join(path)).ok()?;
        let text = text.trim_matches(|character: char| character.is_whitespace() || character == '\0').to_string();
        (!text.is_empty()).then_some(text)
    };
    let whole = [
        "wwid",
        "device/wwid",
        "serial",
        "device/serial",
        "dm/uuid",
        "md/uuid",
        "loop/backing_file",
        "../wwid",
        "../device/wwid",
        "../serial",
        "../device/serial",
    ];
    let mut name = whole.into_iter().find_map(text).unwrap_or_default();
    if let (Some(_), Some(start)) = (text("partition"), text("start")) {
        name.push_str(" from sector ");
        name.push_str(&start);
    }
    let cut = (0..=NAME_BYTES_MAX.min(name.len())).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    name.truncate(cut);
    name
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of {}, ", self.kind(), show_exact(self.size_bytes))?;
        match &self.facts {
            VolumeFacts::File { inode, modified, .. } => {
                write!(formatter, "inode {inode}, modified {}.{:09}", modified.seconds, modified.nanoseconds)
            }
            VolumeFacts::Device(device) => {
                let hash = blake3::Hash::from_bytes(device.content).to_hex();
                write!(formatter, "\"{}\", {} sectors written, content {hash}", device.name, device.sectors_written)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> Fingerprint {
        let device = DeviceFacts { boot: 5, sectors_written: 6, content: [7; 32], name: "disk é".into() };
        Fingerprint { seed: 1, size_bytes: 2, facts: VolumeFacts::Device(device) }
    }

    fn file() -> Fingerprint {
        let modified = Time { seconds: -4, nanoseconds: 5 };
        let changed = Time { seconds: 6, nanoseconds: 999_999_999 };
        Fingerprint { seed: u64::MAX, size_bytes: 2, facts: VolumeFacts::File { inode: 3, modified, changed } }
    }

    fn with_device(change: impl FnOnce(&mut DeviceFacts)) -> Fingerprint {
        let mut fingerprint = device();
        let VolumeFacts::Device(facts) = &mut fingerprint.facts else { unreachable!() };
        change(facts);
        fingerprint
    }

    #[test]
    fn bytes_come_back_and_every_damage_is_named() {
        for fingerprint in [file(), device(), with_device(|facts| facts.name.clear())] {
            let bytes = fingerprint.to_bytes();
            assert_eq!(Fingerprint::from_bytes(&bytes), Ok(fingerprint));
            for length in 0..bytes.len() {
                assert!(Fingerprint::from_bytes(&bytes[..length]).is_err());
            }
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(Fingerprint::from_bytes(&damaged).is_err(), "bit {bit}");
            }
            let longer = [bytes.as_slice(), &[0]].concat();
            assert_eq!(Fingerprint::from_bytes(&longer), Err(Damaged::Length));
        }
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let bytes = file().to_bytes();
        assert_eq!(bytes.len(), 68);
        assert_eq!(&bytes[..12], b"FARSEAL\0\x01\0\x01\0");
        assert_eq!(bytes[12..16], 68u32.to_le_bytes());
        assert_eq!(bytes[16..24], u64::MAX.to_le_bytes());
        assert_eq!(bytes[32..40], 3u64.to_le_bytes());
        assert_eq!(device().to_bytes().len(), 32 + 16 + 8 + 32 + 2 + "disk é".len() + 4);
        assert_eq!(Fingerprint::from_bytes(&[0; 68]), Err(Damaged::Magic));
    }

    /// Another shape is another version: else a node of an older build would read what it does not know.
    #[test]
    fn a_changed_shape_has_a_changed_version() {
        // The last four bytes are a checksum, after which all checksums are the same.
        let sum = |bytes: &[u8]| crc32c::crc32c(&bytes[..bytes.len() - 4]);
        let sums = [file(), device()].map(|fingerprint| sum(&fingerprint.to_bytes()));
        assert_eq!(
            (VERSION, sums),
            (1, [0xf405_7e23, 0xeb89_5d32]),
            "a new shape: give it a new version, and document it"
        );
    }

    #[test]
    fn values_that_nobody_wrote_are_refused_even_with_a_right_checksum() {
        let resealed = |mut bytes: Vec<u8>, at: usize, value: &[u8]| {
            bytes[at..at + value.len()].copy_from_slice(value);
            let end = bytes.len() - CHECKSUM_BYTES;
            let checksum = crc32c::crc32c(&bytes[..end]);
            bytes[end..].copy_from_slice(&checksum.to_le_bytes());
            Fingerprint::from_bytes(&bytes)
        };
        assert_eq!(resealed(file().to_bytes(), 8, &[9, 0]), Err(Damaged::Version(9)));
        assert_eq!(resealed(file().to_bytes(), 10, &[3, 0]), Err(Damaged::Value));
        assert_eq!(resealed(file().to_bytes(), 48, &1_000_000_000u32.to_le_bytes()), Err(Damaged::Value));
        assert_eq!(resealed(device().to_bytes(), 88, &[255, 255]), Err(Damaged::Value));
        assert_eq!(resealed(device().to_bytes(), 88, &[0, 1]), Err(Damaged::Length));
        assert_eq!(resealed(device().to_bytes(), 90, &[0xff]), Err(Damaged::Value));
    }

    #[test]
    fn comparison_names_the_difference() {
        assert_eq!(compare(&device(), &device()), Ok(()));
        assert_eq!(compare(&file(), &file()), Ok(()));
        let resized = Fingerprint { size_bytes: 9, ..device() };
        assert_eq!(compare(&device(), &resized), Err(Changed::Size { was_bytes: 2, is_bytes: 9 }));
        let renamed = with_device(|facts| facts.name = "other".into());
        assert!(compare(&device(), &renamed).unwrap_err().to_string().contains("\"other\""));
        assert_eq!(compare(&device(), &with_device(|facts| facts.name.clear())), Ok(()));
        let written = with_device(|facts| facts.sectors_written = 7);
        assert_eq!(compare(&device(), &written), Err(Changed::Written { was: 6, is: 7 }));
        let rebooted = |facts: &mut DeviceFacts| (facts.boot, facts.sectors_written) = (9, 0);
        assert_eq!(compare(&device(), &with_device(rebooted)), Ok(()));
        let content = with_device(|facts| facts.content[0] = 0);
        assert_eq!(compare(&device(), &content), Err(Changed::Content));
        let as_file = Fingerprint { seed: 1, ..file() };
        assert!(matches!(compare(&device(), &as_file), Err(Changed::Kind { .. })));
    }

    #[test]
    fn samples_lie_inside_and_depend_on_the_seed() {
        for size in [512, 4096, 4608, 1 << 20, 1 << 44] {
            let offsets = sample_offsets(size, 42);
            assert!(offsets.iter().all(|offset| offset + SAMPLE_BYTES <= size && offset % SAMPLE_BYTES == 0));
        }
        assert!(sample_offsets(1 << 44, 1) != sample_offsets(1 << 44, 2));
        assert!(sample_offsets(1 << 44, 1).len() > 1000);
    }
}
