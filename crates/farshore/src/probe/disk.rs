//! The disk of one end: none, a model of one, or a real one's file. One write at a time, whoever writes.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use host::buffers::{ALIGNMENT, Buffer};
use host::timer::Pauser;
use plan::model::{self, DiskAtWork};
use rustix::fs::OFlags;
use tokio::sync::Mutex;

use super::terms::FLUSH_BYTES;

/// Written round and round: larger than what a controller keeps to itself, most likely.
const FILE_BYTES: u64 = 256 << 20;

pub enum Disk {
    /// Takes no time.
    None,
    Modelled {
        disk: model::Disk,
        at_work: Cell<DiskAtWork>,
        since: Instant,
    },
    Real(Mutex<Scratch>),
}

impl Disk {
    pub fn modelled(disk: model::Disk) -> Disk {
        Disk::Modelled { disk, at_work: Cell::default(), since: Instant::now() }
    }

    /// Makes the file, which must not be there, and removes it in the end.
    ///
    /// # Errors
    /// A sentence: it is there, or the file system refuses something.
    pub fn file(path: &Path) -> Result<Disk, String> {
        Ok(Disk::Real(Mutex::new(Scratch::new(path)?)))
    }

    /// When `bytes` that are handed over now are durable, if that is known now.
    pub fn due(&self, bytes: u64) -> Option<Instant> {
        let Disk::Modelled { disk, at_work, since } = self else { return None };
        let mut now = at_work.get();
        let done_s = now.write(disk, since.elapsed().as_secs_f64(), bytes);
        at_work.set(now);
        Some(*since + Duration::from_secs_f64(done_s))
    }

    /// Returns when `bytes` more are durable.
    ///
    /// # Errors
    /// The real one failed.
    pub async fn write(&self, bytes: u64, pauser: &Pauser) -> Result<(), String> {
        match self {
            Disk::None => Ok(()),
            Disk::Modelled { .. } => {
                let due = self.due(bytes).expect("a model knows");
                pauser.until(due).await;
                Ok(())
            }
            Disk::Real(scratch) => scratch.lock().await.write(bytes).await,
        }
    }
}

/// A file that is written directly and synchronously, and removed when it is dropped.
pub struct Scratch {
    file: Arc<File>,
    path: PathBuf,
    content: Arc<Buffer>,
    at: u64,
}

impl Scratch {
    fn new(path: &Path) -> Result<Scratch, String> {
        let name = path.display();
        let flags = (OFlags::DIRECT | OFlags::DSYNC).bits() as i32;
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(flags).open(path);
        let file = opened.map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                format!(
                    "{name} exists already, and a disk is only ever tried with a file of the test's own: name another"
                )
            }
            std::io::ErrorKind::InvalidInput => {
                format!(
                    "the file system of {name} does not write past its cache (O_DIRECT): name a file on the disk itself"
                )
            }
            _ => format!("{name} cannot be made: {error}"),
        })?;
        let scratch = Scratch {
            file: Arc::new(file),
            path: path.to_owned(),
            content: Arc::new(Buffer::detached(FLUSH_BYTES.max as usize)),
            at: 0,
        };
        scratch.file.set_len(FILE_BYTES).map_err(|error| format!("{name} cannot be made large: {error}"))?;
        Ok(scratch)
    }

    async fn write(&mut self, bytes: u64) -> Result<(), String> {
        let length = bytes.next_multiple_of(ALIGNMENT as u64);
        if self.at + length > FILE_BYTES {
            self.at = 0;
        }
        let (file, content, at) = (self.file.clone(), self.content.clone(), self.at);
        self.at += length;
        let written = tokio::task::spawn_blocking(move || file.write_all_at(&content[..length as usize], at)).await;
        let name = self.path.display();
        written.map_err(|_| format!("writing {name} ended early"))?.map_err(|error| format!("{name}: {error}"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It was ours alone; if somebody removed it before, so much the better.
        let _ = std::fs::remove_file(&self.path);
    }
}
