//! Where a disk test writes: a new file that is gone afterwards, or a device whose content was given up for it.

use std::fs::{self, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use host::disk::volume::{VolumeOptions, open_volume};
use host::disk::{File, FileSystem, file_system_of, opened_by};

use super::UNIT_BYTES;
use crate::within::within;
use units::exact::{show_seconds, show_size};

/// File systems in memory: what is durable there is not on any disk.
const IN_MEMORY: [&str; 3] = ["tmpfs", "ramfs", "devtmpfs"];

/// Why there is nothing to write to.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Another option would have done it.
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Failed(String),
    /// A smaller file would do.
    #[error("{0}")]
    NoRoom(String),
}

impl Refused {
    fn failed(error: impl std::fmt::Display) -> Refused {
        Refused::Failed(error.to_string())
    }

    fn hung(path: &Path, patience: Duration) -> Refused {
        let waited = show_seconds(patience.as_secs_f64());
        Refused::Failed(format!("{} has not answered for {waited}: see the kernel log", path.display()))
    }
}

/// An open scratch, held against others; its file goes when this does.
pub struct ScratchFile {
    pub file: Arc<File>,
    /// `None` on a device.
    pub file_system: Option<FileSystem>,
    remove: Option<PathBuf>,
}

/// How to open it.
#[derive(Clone, Copy, Debug)]
pub struct ScratchOptions {
    pub bytes: u64,
    /// Through the page cache.
    pub buffered: bool,
    /// What is on the device may be destroyed.
    pub overwrite_device: bool,
}

impl ScratchFile {
    /// A new file in a directory, or a device that nobody uses. A disk that hangs is waited for no longer than
    /// `patience`.
    ///
    /// # Errors
    /// A sentence; nothing was written to what is refused.
    pub fn open(path: &Path, options: ScratchOptions, patience: Duration) -> Result<ScratchFile, Refused> {
        let own_path = path.to_path_buf();
        let opened = within(patience, move || ScratchFile::open_now(&own_path, options));
        opened.unwrap_or_else(|| Err(Refused::hung(path, patience)))
    }

    /// A new file of that name, `bytes` long, past the page cache. A disk that hangs is waited for no longer than `patience`.
    ///
    /// # Errors
    /// A sentence; whatever file was there is never written.
    pub fn new_file(path: &Path, bytes: u64, patience: Duration) -> Result<ScratchFile, Refused> {
        let options = ScratchOptions { bytes, buffered: false, overwrite_device: false };
        let own_path = path.to_path_buf();
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = directory.to_path_buf();
        let made = within(patience, move || ScratchFile::file_at(&directory, own_path, options));
        made.unwrap_or_else(|| Err(Refused::hung(path, patience)))
    }

    fn open_now(path: &Path, options: ScratchOptions) -> Result<ScratchFile, Refused> {
        let facts = fs::metadata(path).map_err(|error| unusable(path, &error))?;
        let kind = facts.file_type();
        if kind.is_block_device() {
            return ScratchFile::device(path, options);
        }
        if options.overwrite_device {
            let path = path.display();
            return Err(Refused::Usage(format!("{path} is no block device; leave --overwrite-device out")));
        }
        if kind.is_dir() {
            return ScratchFile::file_in(path, options);
        }
        let (path, parent) = (path.display(), path.parent().filter(|parent| *parent != Path::new("")));
        Err(Refused::Failed(format!(
            "{path} is not a directory, and what is there is never overwritten; name its directory, {}",
            parent.unwrap_or(Path::new(".")).display()
        )))
    }

    fn device(path: &Path, options: ScratchOptions) -> Result<ScratchFile, Refused> {
        if !options.overwrite_device {
            return Err(Refused::Usage(format!(
                "{} is a block device, and the test would destroy what is on it: name a directory of its file system, \
                 or add --overwrite-device if nothing on it is needed any more",
                path.display()
            )));
        }
        // Held exclusively: the kernel refuses while it is mounted or somebody else holds it so. Whoever does not is asked for.
        let file = open_volume(path, VolumeOptions { buffered: options.buffered }).map_err(Refused::failed)?;
        if let Some(by) = opened_by(path) {
            return Err(Refused::Failed(format!("{} is in use by {by}; stop that first", path.display())));
        }
        Ok(ScratchFile { file: Arc::new(file), file_system: None, remove: None })
    }

    fn file_in(directory: &Path, options: ScratchOptions) -> Result<ScratchFile, Refused> {
        let name = format!(".farshore-disk-test-{}", std::process::id());
        ScratchFile::file_at(directory, directory.join(name), options)
    }

    fn file_at(directory: &Path, path: PathBuf, options: ScratchOptions) -> Result<ScratchFile, Refused> {
        let file_system = file_system_of(directory).map_err(Refused::failed)?;
        // Names and a journal of the file system want some of it too.
        if file_system.free_bytes < options.bytes + (1 << 20) {
            return Err(Refused::NoRoom(format!(
                "{} has {} free, and the test writes a file of {}: free space there",
                directory.display(),
                show_size(file_system.free_bytes),
                show_size(options.bytes)
            )));
        }
        let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let new = new.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Refused::Failed(format!(
                "{} exists already, and a disk is only ever tried with a file of the test's own: name another",
                path.display()
            )),
            _ => unusable(directory, &error),
        })?;
        let guard = Remover(Some(path.clone()));
        new.set_len(options.bytes).map_err(|error| unusable(directory, &error))?;
        let file = open_volume(&path, VolumeOptions { buffered: options.buffered }).map_err(Refused::failed)?;
        Ok(ScratchFile { file: Arc::new(file), file_system: Some(file_system), remove: guard.take() })
    }

    /// How many bytes of it the test uses.
    pub fn fitting(&self, bytes: u64) -> u64 {
        self.file.size_bytes().min(bytes) / UNIT_BYTES * UNIT_BYTES
    }

    pub fn is_in_memory(&self) -> bool {
        self.file_system.as_ref().is_some_and(|system| IN_MEMORY.contains(&system.kind.as_str()))
    }

    /// Removes the file and says so if that fails. A disk that hangs is waited for no longer than `patience`.
    ///
    /// # Errors
    /// A sentence: the file is still there.
    pub fn remove(mut self, patience: Duration) -> Result<(), String> {
        let Some(path) = self.remove.take() else { return Ok(()) };
        let still_there = |why: &str| format!("{} is still there: {why}; remove it", path.display());
        let doomed = path.clone();
        match within(patience, move || fs::remove_file(doomed)) {
            Some(removed) => removed.map_err(|error| still_there(&error.to_string())),
            None => Err(still_there("its disk does not answer")),
        }
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        drop(Remover(self.remove.take()));
    }
}

/// Removes a file when it goes.
struct Remover(Option<PathBuf>);

impl Remover {
    fn take(mut self) -> Option<PathBuf> {
        self.0.take()
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // What is told already is why the test ended.
            let _ = fs::remove_file(path);
        }
    }
}

/// Why nothing can be written there, and what to do.
fn unusable(path: &Path, error: &Error) -> Refused {
    let path = path.display();
    Refused::Failed(match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            format!("{path} does not exist; name a directory on the disk to test")
        }
        ErrorKind::PermissionDenied => format!("{path} may not be written by this user; run as its owner or as root"),
        ErrorKind::ReadOnlyFilesystem => {
            format!("{path} lies on a read-only file system; remount it read-write, or name another directory")
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            return Refused::NoRoom(format!("there is no room in {path}: {error}; free space there"));
        }
        _ => format!("no file can be made in {path}: {error}"),
    })
}
