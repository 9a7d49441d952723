//! Farshore's own files: the state directory and the fixed-size files in it (journals, superblocks, bitmaps).

use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::advisory_lock::{LOCK_NAME, lock, unlock};
use super::file::File;
use super::identity::identity_from;
use super::open_error::OpenError;
use super::volume::{FILE_BLOCK_BYTES, VolumeOptions, finish};
use crate::buffers::Buffer;
use crate::trusted_file::wrong_directory;

/// Appended to a file's name until it is complete.
const UNFINISHED_SUFFIX: &str = ".creating";
const ZERO_PIECE_BYTES: u64 = 1 << 20;
/// Bits of a mode that let others write: a state directory has none of them.
pub const OPEN_TO_OTHERS: u32 = 0o022;
const META_PHYSICAL_BYTES: u32 = 4096;

/// The state directory of one daemon, locked against a second one for as long as this lives.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    lock: OwnedFd,
}

/// An open state file.
#[derive(Debug)]
pub struct MetaFile {
    pub file: File,
    /// It did not exist before and reads as zero throughout.
    pub created: bool,
}

impl StateDirectory {
    /// Opens the directory; creates it (mode 0700) where it is missing.
    ///
    /// # Errors
    /// Another daemon holds it, it is writable by others, full, read-only, or no directory.
    pub fn open(path: &Path) -> Result<StateDirectory, OpenError> {
        let failed = |step| move |error| OpenError::at(path, step, errno_of(&error));
        match fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("creating it"))?;
                sync_directory(path.parent().unwrap_or(Path::new("/")))?;
            }
            Err(error) => return Err(failed("looking at it")(error)),
            Ok(facts) if !facts.is_dir() => {
                let what = "not a directory, as the state directory must be";
                return Err(OpenError::WrongKind { path: path.into(), what });
            }
            Ok(facts) if facts.mode() & OPEN_TO_OTHERS != 0 => {
                let mode = facts.mode() & 0o7777;
                return Err(OpenError::OpenToOthers { path: path.into(), mode, advice: 0o700 });
            }
            Ok(_) => {}
        }
        let lock_path = path.join(LOCK_NAME);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let held = rustix::fs::open(&lock_path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| no_file(&lock_path, "creating it", errno))?;
        let stat = rustix::fs::fstat(&held).map_err(|errno| OpenError::at(&lock_path, "looking at it", errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(OpenError::NoStateFile { path: lock_path, what: "no regular file" });
        }
        lock(&held, path, identity_from(&stat))?;
        // Written and flushed: shows now, not in the middle of work, that the directory is full or broken.
        let owner = format!("{}\n", std::process::id());
        let written = rustix::fs::ftruncate(&held, 0)
            .and_then(|()| write_all(&held, owner.as_bytes(), 0))
            .and_then(|()| rustix::fs::fsync(&held));
        written.map_err(|errno| OpenError::at(&lock_path, "writing it", errno))?;
        sync_directory(path)?;
        Ok(StateDirectory { path: path.into(), lock: held })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        unlock(&self.lock);
    }
}

/// Creates a directory (mode 0700) unless it is there, durable with its name. Its parent must exist.
///
/// # Errors
/// It cannot be created, or its parent cannot be flushed.
pub fn make_directory(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(flush_names(parent)?),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            // Whoever made it may have been killed before it was durable. Or it was the administrator, in a place that
            // we may not even list, or that cannot be flushed.
            match flush_names(parent) {
                Err(errno @ (Errno::IO | Errno::NOSPC | Errno::DQUOT)) => Err(errno.into()),
                _ => Ok(()),
            }
        }
        Err(error) => Err(error),
    }
}

/// The same within the state directory, where nobody else may have made it: a link, another's directory, or one that others may write
/// to is refused.
///
/// # Errors
/// A sentence: what could not be done, or what stands there.
pub fn make_own_directory(path: &Path) -> Result<(), String> {
    let unusable = |error: std::io::Error| format!("the directory {} cannot be used: {error}", path.display());
    make_directory(path).map_err(unusable)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOTDIR | Errno::LOOP => {
            format!("{} is no directory of its own; move what stands there away", path.display())
        }
        other => unusable(other.into()),
    })?;
    let stat = rustix::fs::fstat(&directory).map_err(|errno| unusable(errno.into()))?;
    wrong_directory(&stat, path).map_or(Ok(()), Err)
}

/// Opens a state file of exactly `size_bytes` (a multiple of 512), or creates it: allocated and written with zeroes, so
/// that later durable overwrites change no metadata; complete under its name or not there at all; durable with its
/// directory entry. Creation writes the whole file: seconds for a large journal, so not on a data thread.
///
/// # Errors
/// No space, no permission, a file of another size or locked by another program; a half-made file is removed.
pub fn create_or_open_meta(path: &Path, size_bytes: u64) -> Result<MetaFile, OpenError> {
    create_or_open(path, size_bytes, fill_with_zeroes)
}

/// What makes a file of so many bytes at a path.
type MakeFile = fn(&Path, u64) -> Result<(), Errno>;

fn create_or_open(path: &Path, size_bytes: u64, make: MakeFile) -> Result<MetaFile, OpenError> {
    let created = !path.try_exists().map_err(|error| OpenError::at(path, "looking at it", errno_of(&error)))?;
    if created {
        create_meta(path, size_bytes, make)?;
    } else {
        // Whoever made it may have been killed before its name was durable.
        sync_directory(path.parent().unwrap_or(Path::new("/")))?;
    }
    let file = open_meta(path)?;
    if file.size_bytes() != size_bytes {
        return Err(OpenError::WrongSize {
            path: path.into(),
            size_bytes: file.size_bytes(),
            expected_bytes: size_bytes,
            advice: "restore the old size in the configuration, or remove the file if its content is no longer needed",
        });
    }
    Ok(MetaFile { file, created })
}

/// As [`create_or_open_meta`], but the file is made without space of its own: it takes some as it is written.
///
/// # Errors
/// As [`create_or_open_meta`].
pub fn create_or_open_sparse(path: &Path, size_bytes: u64) -> Result<MetaFile, OpenError> {
    create_or_open(path, size_bytes, make_sparse)
}

/// As [`create_or_open_meta`], but the file has its space reserved and nothing written: what it holds says nothing. One that is there gets what
/// it lacks.
///
/// # Errors
/// As [`create_or_open_meta`]; [`OpenError::CannotReserve`] on a file system that keeps no space for a file.
pub fn create_or_open_reserved(path: &Path, size_bytes: u64) -> Result<MetaFile, OpenError> {
    let opened = create_or_open(path, size_bytes, make_reserved).map_err(cannot_reserve)?;
    if !opened.created {
        let reserved = reserve(&opened.file, size_bytes);
        reserved.map_err(|errno| cannot_reserve(OpenError::at(path, "reserving its space", errno)))?;
    }
    Ok(opened)
}

fn cannot_reserve(error: OpenError) -> OpenError {
    match error {
        OpenError::System { path, errno: Errno::OPNOTSUPP, .. } => OpenError::CannotReserve(path),
        other => other,
    }
}

/// Makes a state file longer. What is new reads as zero and has its space; a crash leaves the old length or the new one.
///
/// # Errors
/// As [`create_or_open_meta`].
pub fn lengthen_meta(path: &Path, size_bytes: u64) -> Result<(), OpenError> {
    let lengthened = || {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        match rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::KEEP_SIZE, 0, size_bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
        rustix::fs::ftruncate(&fd, size_bytes)?;
        rustix::fs::fsync(&fd)
    };
    lengthened().map_err(|errno| OpenError::at(path, "making it longer", errno))
}

/// Opens an existing state file of any size.
///
/// # Errors
/// As [`create_or_open_meta`]; [`OpenError::Missing`] where there is none.
pub fn open_meta(path: &Path) -> Result<File, OpenError> {
    let (fd, stat) = locked_meta(path)?;
    let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
    finish(
        fd,
        path,
        identity_from(&stat),
        size_bytes,
        (FILE_BLOCK_BYTES, META_PHYSICAL_BYTES),
        VolumeOptions::default(),
    )
}

/// Removes a state file of any size, unless another program holds it.
///
/// # Errors
/// As [`open_meta`].
pub fn remove_meta(path: &Path) -> Result<(), OpenError> {
    let _locked = locked_meta(path)?;
    rustix::fs::unlink(path).map_err(|errno| OpenError::at(path, "removing it", errno))
}

fn locked_meta(path: &Path) -> Result<(OwnedFd, Stat), OpenError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| no_file(path, "opening it", errno))?;
    let stat = rustix::fs::fstat(&fd).map_err(|errno| OpenError::at(path, "looking at it", errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OpenError::NoStateFile { path: path.into(), what: "no regular file" });
    }
    lock(&fd, path, identity_from(&stat))?;
    Ok((fd, stat))
}

/// What cannot be opened because it is something else.
fn no_file(path: &Path, step: &'static str, errno: Errno) -> OpenError {
    let what = match errno {
        Errno::LOOP => "a symbolic link",
        Errno::ISDIR => "a directory",
        Errno::NXIO => "no regular file",
        errno => return OpenError::at(path, step, errno),
    };
    OpenError::NoStateFile { path: path.into(), what }
}

fn create_meta(path: &Path, size_bytes: u64, make: MakeFile) -> Result<(), OpenError> {
    assert!(
        size_bytes > 0 && size_bytes.is_multiple_of(u64::from(FILE_BLOCK_BYTES)),
        "a state file's size is a number of ours"
    );
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(UNFINISHED_SUFFIX);
    let unfinished = path.with_file_name(name);
    let made = make(&unfinished, size_bytes)
        .and_then(|()| rustix::fs::rename(&unfinished, path))
        .map_err(|errno| OpenError::at(path, "creating it", errno));
    if made.is_err() {
        // Gives the space back; if even that fails the error at hand says more.
        let _ = fs::remove_file(&unfinished);
    }
    made.and_then(|()| sync_directory(path.parent().unwrap_or(Path::new("/"))))
}

fn fill_with_zeroes(path: &Path, size_bytes: u64) -> Result<(), Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    // First, so that a lack of space is found before gigabytes are written. Not all file systems can.
    match rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, size_bytes) {
        Ok(()) | Err(Errno::OPNOTSUPP) => {}
        Err(errno) => return Err(errno),
    }
    let zeroes = Buffer::detached(ZERO_PIECE_BYTES.min(size_bytes) as usize);
    let mut at = 0;
    while at < size_bytes {
        let bytes = ZERO_PIECE_BYTES.min(size_bytes - at);
        write_all(&fd, &zeroes[..bytes as usize], at)?;
        at += bytes;
    }
    rustix::fs::fsync(&fd)
}

fn make_reserved(path: &Path, size_bytes: u64) -> Result<(), Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    reserve(&fd, size_bytes)?;
    rustix::fs::fsync(&fd)
}

/// Space that is there already stays as it is.
fn reserve(file: impl AsFd, size_bytes: u64) -> Result<(), Errno> {
    rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, size_bytes)
}

fn make_sparse(path: &Path, size_bytes: u64) -> Result<(), Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::ftruncate(&fd, size_bytes)?;
    rustix::fs::fsync(&fd)
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(fd, bytes, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// In place of a block that the disk does not give: no record begins like this, and it is not blank.
const LOST: u8 = 0xff;

/// Records that stand in copies, one to a block, read block by block where the disk refuses them at once: what a bad block
/// takes is one copy, as if it had rotten (P9).
#[derive(Debug)]
pub struct BlockSalvage {
    next: u64,
    found: Vec<u8>,
    length: usize,
    lost: usize,
}

impl BlockSalvage {
    pub const BYTES: usize = META_PHYSICAL_BYTES as usize;

    pub fn begin(offset: u64, length: usize) -> BlockSalvage {
        BlockSalvage { next: offset, found: Vec::with_capacity(length), length, lost: 0 }
    }

    /// Where the next block begins; `None`: that was the last.
    pub fn next(&self) -> Option<u64> {
        (self.found.len() < self.length).then_some(self.next)
    }

    /// The next block, or nothing if it cannot be read.
    pub fn take(&mut self, block: Option<&[u8]>) {
        self.next += BlockSalvage::BYTES as u64;
        self.lost += usize::from(block.is_none());
        self.found.extend_from_slice(block.unwrap_or(&[LOST; BlockSalvage::BYTES]));
    }

    /// What there is, unless that is nothing: then it is not a block that is bad.
    pub fn found(self) -> Option<Vec<u8>> {
        (self.lost * BlockSalvage::BYTES < self.length).then_some(self.found)
    }
}

/// A whole file of such records. One of more than `bytes_max` was not made by us, and is not read: it may be sparse, and larger than
/// all memory.
///
/// # Errors
/// It cannot be opened, it is too large, or nothing of it can be read.
pub fn read_blocks(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    // A pipe in its place is not waited for, a link not followed.
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let length = file.metadata()?.len();
    if length > bytes_max {
        let why = format!("it has {length} bytes, and {bytes_max} at most are its own");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, why));
    }
    let mut bytes = Vec::new();
    let refused = match (&file).take(bytes_max).read_to_end(&mut bytes) {
        Ok(_) => return Ok(bytes),
        Err(error) => error,
    };
    let mut blocks = BlockSalvage::begin(0, usize::try_from(length).expect("it fits into memory"));
    let mut block = [0; BlockSalvage::BYTES];
    while let Some(offset) = blocks.next() {
        let read = file.read_exact_at(&mut block, offset);
        blocks.take(read.is_ok().then_some(&block));
    }
    blocks.found().ok_or(refused)
}

pub(super) fn sync_directory(path: &Path) -> Result<(), OpenError> {
    flush_names(path).map_err(|errno| OpenError::at(path, "flushing the directory", errno))
}

/// Makes names in a directory durable.
fn flush_names(directory: &Path) -> Result<(), Errno> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(directory, flags, Mode::empty()).and_then(rustix::fs::fsync)
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
