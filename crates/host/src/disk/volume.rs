//! Opening the volumes: what they must be, and holding them so that nobody else writes.
//!
//! A device is opened exclusively: the kernel then refuses mounts, and refuses us where one exists. A file can only be
//! locked by agreement: programs that do not ask (dd, cp) are not kept out, and the fingerprint tells of them later.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use engine::limits::SECTOR_BYTES;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::advisory_lock::{LOCK_NAME, lock, lock_second};
use super::file::{DirectRules, File, FileDescriptors, OpenedFile};
use super::holders;
use super::identity::{FileIdentity, identity_from, identity_of};
use super::op::ErrorKind;
pub use super::open_error::OpenError;
use crate::buffers::{ALIGNMENT, Buffer};

/// The unit of files: what every client can address.
pub(crate) const FILE_BLOCK_BYTES: u32 = 512;
/// What a file's medium is taken to write at once: a page, whatever lies below it.
const FILE_PHYSICAL_BYTES: u32 = 4096;
/// How to open a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VolumeOptions {
    /// Go through the page cache even where O_DIRECT works: slower to flush, useful on odd file systems.
    pub buffered: bool,
}

/// Opens a file or block device as a volume, read-write and held against others for as long as the result lives.
///
/// # Errors
/// See [`OpenError`]; nothing is changed on the volume in any case.
pub fn open_volume(path: &Path, options: VolumeOptions) -> Result<File, OpenError> {
    let stat = rustix::fs::stat(path).map_err(|errno| OpenError::at(path, "looking at it", errno))?;
    let identity = identity_from(&stat);
    check_kind(path, FileType::from_raw_mode(stat.st_mode))?;
    check_free(path, identity)?;
    let exclusive = match identity {
        FileIdentity::Device { .. } => OFlags::EXCL,
        FileIdentity::File { .. } => OFlags::empty(),
    };
    let fd = open_device(path, OFlags::RDWR | exclusive, identity)?;
    let stat = rustix::fs::fstat(&fd).map_err(|errno| OpenError::at(path, "looking at it", errno))?;
    if identity_from(&stat) != identity {
        let by = "somebody who replaced it in this very moment".into();
        return Err(OpenError::InUse { path: path.into(), by });
    }
    match identity {
        FileIdentity::File { .. } => {
            lock(&fd, path, identity)?;
            let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
            let blocks = (FILE_BLOCK_BYTES, FILE_PHYSICAL_BYTES);
            finish(fd, path, identity, size_bytes, blocks, options)
        }
        FileIdentity::Device { .. } => {
            let (size_bytes, logical, physical) = device_sizes(&fd, path)?;
            finish(fd, path, identity, size_bytes, (logical, physical), options)
        }
    }
}

/// Opens what a path was seen to lead to; for a device that somebody holds, with their name.
fn open_device(path: &Path, flags: OFlags, identity: FileIdentity) -> Result<OwnedFd, OpenError> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match (identity, errno) {
        (FileIdentity::Device { major, minor }, Errno::BUSY) => {
            OpenError::InUse { path: path.into(), by: holders::claimed_by(major, minor) }
        }
        _ => OpenError::at(path, "opening it", errno),
    })
}

/// All of its bytes, its logical block and its physical one.
fn device_sizes(fd: &OwnedFd, path: &Path) -> Result<(u64, u32, u32), OpenError> {
    let failed = |errno| OpenError::at(path, "asking for its size", errno);
    let size_bytes = rustix::fs::seek(fd, rustix::fs::SeekFrom::End(0)).map_err(failed)?;
    let logical = rustix::fs::ioctl_blksszget(fd).map_err(failed)?;
    let physical = rustix::fs::ioctl_blkpbszget(fd).map_err(failed)?.max(logical);
    Ok((size_bytes, logical, physical))
}

fn check_size(path: &Path, size_bytes: u64, block_bytes: u32) -> Result<(), OpenError> {
    if size_bytes == 0 {
        return Err(OpenError::Empty(path.into()));
    }
    if !size_bytes.is_multiple_of(u64::from(block_bytes)) {
        return Err(OpenError::OddSize { path: path.into(), size_bytes, block_bytes });
    }
    Ok(())
}

/// What [`open_volume`] would refuse, as far as that shows without writing, locking or holding anything. The daemon whose
/// state directory is `state` may have the volume open: that is no objection.
///
/// # Errors
/// See [`OpenError`].
pub fn look(path: &Path, state: &Path) -> Result<(), OpenError> {
    let stat = rustix::fs::stat(path).map_err(|errno| OpenError::at(path, "looking at it", errno))?;
    let identity = identity_from(&stat);
    check_kind(path, FileType::from_raw_mode(stat.st_mode))?;
    check_free(path, identity)?;
    let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    rustix::fs::access(path, access).map_err(|errno| OpenError::at(path, "looking at it", errno))?;
    let daemon = identity_of(&state.join(LOCK_NAME)).ok().and_then(holders::locked_by);
    match identity {
        FileIdentity::File { .. } => {
            check_size(path, u64::try_from(stat.st_size).unwrap_or(0), FILE_BLOCK_BYTES)?;
            match holders::locked_by(identity) {
                Some(holder) if Some(holder) != daemon => {
                    Err(OpenError::Locked { path: path.into(), holder: format!("process {holder}") })
                }
                _ => Ok(()),
            }
        }
        FileIdentity::Device { .. } => {
            let exclusive = if daemon.is_some() { OFlags::empty() } else { OFlags::EXCL };
            let fd = open_device(path, OFlags::RDONLY | exclusive, identity)?;
            let (size_bytes, logical, _) = device_sizes(&fd, path)?;
            check_size(path, size_bytes, logical)
        }
    }
}

/// Asks a device or file for its first bytes, past the page cache where it allows that. Whatever comes of it, it has answered; it may
/// take for ever.
pub fn ask(path: &Path) {
    let open =
        |extra| rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | extra, Mode::empty());
    let Ok(fd) = open(OFlags::DIRECT).or_else(|_| open(OFlags::empty())) else { return };
    let mut bytes = [0; 2 * ASKED_BYTES];
    let aligned = bytes.as_ptr().align_offset(ASKED_BYTES);
    let _ = rustix::io::pread(&fd, &mut bytes[aligned..aligned + ASKED_BYTES], 0);
}

/// As long and as aligned as any device may want it.
const ASKED_BYTES: usize = 4096;

/// Which thing a path leads to, without opening it: two volumes with one identity are one volume under two names.
///
/// # Errors
/// The path leads nowhere or may not be looked at.
pub fn identity(path: &Path) -> Result<FileIdentity, OpenError> {
    identity_of(path).map_err(|errno| OpenError::at(path, "looking at it", errno))
}

pub(super) fn check_kind(path: &Path, kind: FileType) -> Result<(), OpenError> {
    let what = match kind {
        FileType::RegularFile | FileType::BlockDevice => return Ok(()),
        FileType::Directory => "a directory",
        FileType::CharacterDevice => "a character device",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "neither file nor device",
    };
    Err(OpenError::WrongKind { path: path.into(), what })
}

/// Refuses what is visibly used by others, with the user's name.
fn check_free(path: &Path, identity: FileIdentity) -> Result<(), OpenError> {
    let path = path.to_path_buf();
    if holders::is_swap(identity) {
        return Err(OpenError::InUse { path, by: "the swap (swapoff ends that)".into() });
    }
    if let FileIdentity::Device { major, minor } = identity {
        let read_only = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
        if read_only.is_ok_and(|text| text.trim() == "1") {
            return Err(OpenError::ReadOnly(path));
        }
        if let Some(point) = holders::mounted_at(major, minor) {
            return Err(OpenError::Mounted { path, point });
        }
    }
    // Which holds neither a file nor a device exclusively.
    match holders::loop_device_of(identity) {
        Some(device) => Err(OpenError::LoopBacking { path, device }),
        None => Ok(()),
    }
}

/// Checks the size and finds out how the file takes direct requests.
pub(super) fn finish(
    fd: OwnedFd,
    path: &Path,
    identity: FileIdentity,
    size_bytes: u64,
    (logical_block, physical_block): (u32, u32),
    options: VolumeOptions,
) -> Result<File, OpenError> {
    check_size(path, size_bytes, logical_block)?;
    let direct = if options.buffered { None } else { go_direct(&fd, path, logical_block)? };
    let takes_small = direct.is_none_or(|rules| rules.offset <= SECTOR_BYTES);
    // A file system zeroes the ends of a hole in its page cache, however the file was opened.
    let is_cached = direct.is_none() || !takes_small || matches!(identity, FileIdentity::File { .. });
    let again = |direct: bool| {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | if direct { OFlags::DIRECT } else { OFlags::empty() };
        let opened = rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty());
        opened.map_err(|errno| OpenError::at(path, "opening it a second time", errno))
    };
    // All ways lead to one inode; the kernel keeps them coherent, and overlapping requests are kept apart above.
    let small = || (!takes_small).then(|| again(false)).transpose();
    let durable =
        if is_cached { Some(FileDescriptors { fd: again(direct.is_some())?, buffered: small()? }) } else { None };
    // Of a device too: its exclusive hold goes with the first open file.
    if let Some(durable) = &durable {
        lock_second(&durable.fd, path)?;
    }
    let buffered = small()?;
    let (plain, path) = (FileDescriptors { fd, buffered }, path.into());
    let grows = false;
    Ok(File::new(OpenedFile {
        plain,
        durable,
        direct,
        path,
        size_bytes,
        logical_block,
        physical_block,
        identity,
        grows,
    }))
}

/// Switches the descriptor to O_DIRECT if a real read proves that it works; else leaves it buffered.
fn go_direct(fd: &OwnedFd, path: &Path, logical_block: u32) -> Result<Option<DirectRules>, OpenError> {
    let failed = |errno| OpenError::at(path, "a first read", errno);
    let flags = rustix::fs::fcntl_getfl(fd).map_err(failed)?;
    if rustix::fs::fcntl_setfl(fd, flags | OFlags::DIRECT).is_err() {
        return Ok(None);
    }
    for rules in direct_candidates(fd, logical_block) {
        match probe(fd, rules).map_err(|errno| (ErrorKind::of(errno), errno)) {
            // A block that is bad was asked for as it should be; what becomes of it is for whoever needs it.
            Ok(()) | Err((ErrorKind::Io, _)) => return Ok(Some(rules)),
            Err((ErrorKind::Invalid | ErrorKind::NotSupported, _)) => {}
            Err((_, errno)) => return Err(failed(errno)),
        }
    }
    rustix::fs::fcntl_setfl(fd, flags).map_err(failed)?;
    Ok(None)
}

/// What O_DIRECT may ask here, most generous first: what the kernel announces, else the usual two.
fn direct_candidates(fd: &OwnedFd, logical_block: u32) -> Vec<DirectRules> {
    let block = u64::from(logical_block);
    if let Ok(facts) = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && facts.stx_mask & StatxFlags::DIOALIGN.bits() != 0
    {
        let (memory, offset) = (facts.stx_dio_mem_align as usize, u64::from(facts.stx_dio_offset_align));
        let usable = memory > 0 && offset > 0 && memory <= ALIGNMENT;
        // Coarser memory alignment than asked costs nothing: payload is always block aligned.
        return if usable { vec![DirectRules { memory: memory.max(512), offset: offset.max(block) }] } else { vec![] };
    }
    [512, ALIGNMENT].into_iter().map(|step| DirectRules { memory: step, offset: block.max(step as u64) }).collect()
}

/// Reads the first block into memory that is aligned exactly as the rules allow.
fn probe(fd: &OwnedFd, rules: DirectRules) -> Result<(), Errno> {
    let length = rules.offset as usize;
    let mut buffer = Buffer::detached(ALIGNMENT + length);
    let shift = rules.memory % ALIGNMENT;
    loop {
        match rustix::io::pread(fd.as_fd(), &mut buffer[shift..shift + length], 0) {
            Err(Errno::INTR) => {}
            result => return result.map(|_| ()),
        }
    }
}
