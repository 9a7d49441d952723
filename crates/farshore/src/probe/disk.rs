//! The disk of one end: none, a model of one, or a real one's file. One write at a time, whoever writes.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use host::timer::Pauser;
use plan::model::{self, DiskAtWork};
use tokio::sync::Mutex;

use super::terms::FLUSH_BYTES;
use crate::disk_test::scratch::Scratch;
use crate::disk_test::{Pen, UNIT_BYTES};

/// As `disk test` has it, and room for the largest flush.
const FILE_BYTES: u64 = 64 << 20;
const _: () = assert!(FILE_BYTES >= FLUSH_BYTES.max);
/// For the file to be written once: at 1 MiB/s and less a disk is of no use to a mirror.
pub const FILE_TIME: Duration = Duration::from_secs(60);
/// For it to go from a disk that hangs.
const REMOVE_TIME: Duration = Duration::from_secs(1);

pub enum Disk {
    /// Takes no time.
    None,
    Modelled {
        disk: model::Disk,
        at_work: Cell<DiskAtWork>,
        since: Instant,
    },
    Real {
        /// `None`: it did not answer.
        trial: Mutex<Option<Box<Trial>>>,
        patience: Duration,
    },
}

impl Disk {
    pub fn modelled(disk: model::Disk) -> Disk {
        Disk::Modelled { disk, at_work: Cell::default(), since: Instant::now() }
    }

    /// Makes the file, which must not be there, writes it once, and removes it in the end. For flushes of `largest` bytes at
    /// most; a disk that hangs is waited for no longer than `patience`.
    ///
    /// # Errors
    /// A sentence: it is there, or the file system refuses something.
    pub async fn file(path: &Path, largest: u64, patience: Duration) -> Result<Disk, String> {
        let trial = Mutex::new(Some(Box::new(Trial::new(path, largest, patience).await?)));
        Ok(Disk::Real { trial, patience })
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
            Disk::Real { trial, patience } => {
                let mut held = trial.lock().await;
                let trial = held.as_mut().ok_or("the disk does not answer")?;
                match tokio::time::timeout(*patience, trial.write(bytes)).await {
                    Ok(written) => written,
                    Err(_) => Err(held.take().map_or_else(String::new, |trial| trial.give_up(*patience))),
                }
            }
        }
    }
}

/// A file of the test's own that is written round and round; it goes when this does.
pub struct Trial {
    // Before the file: what it has under way ends first.
    pen: Pen,
    scratch: Scratch,
    at: u64,
}

impl Trial {
    async fn new(path: &Path, largest: u64, patience: Duration) -> Result<Trial, String> {
        let scratch = Scratch::new_file(path, FILE_BYTES, patience).map_err(|refused| refused.to_string())?;
        if scratch.is_in_memory() {
            return Err(format!("{} lies in memory: name a file on the disk itself", path.display()));
        }
        let pen = Pen::new(scratch.file.clone(), largest)?;
        let mut trial = Trial { pen, scratch, at: 0 };
        let limit = FILE_TIME.max(patience);
        match tokio::time::timeout(limit, trial.pen.fill(FILE_BYTES, || true)).await {
            Ok(filled) => filled.map(|_| trial).map_err(|error| error.to_string()),
            Err(_) => Err(trial.give_up(limit)),
        }
    }

    async fn write(&mut self, bytes: u64) -> Result<(), String> {
        let length = bytes.next_multiple_of(UNIT_BYTES);
        if self.at + length > self.scratch.fitting(FILE_BYTES) {
            self.at = 0;
        }
        let written = self.pen.write(self.at, length, true).await;
        self.at += length;
        written.map(drop).map_err(|error| error.to_string())
    }

    /// The disk hangs: nothing of this is waited for, and its file is most likely still there. A sentence.
    fn give_up(self, waited: Duration) -> String {
        let path = self.scratch.file.path().display().to_string();
        // Who lets go of the engine waits for what it has under way.
        std::mem::forget(self.pen);
        let left = self.scratch.remove(REMOVE_TIME).err().map_or(String::new(), |left| format!("; {left}"));
        format!("{path} has not answered for {waited:?}: see the kernel log{left}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_has_its_blocks_and_bytes_that_nothing_saves() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trial");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut trial = match Trial::new(&path, 1 << 20, Duration::from_secs(60)).await {
                // There is no disk below it.
                Err(why) if why.contains("in memory") => return,
                made => made.expect("room for it"),
            };
            let facts = fs::metadata(&path).expect("it is there");
            assert!(facts.blocks() * 512 >= FILE_BYTES, "{} blocks", facts.blocks());
            trial.write(512).await.expect("written");
            trial.write(1 << 20).await.expect("written");
            let bytes = fs::read(&path).expect("readable");
            let mut units: Vec<&[u8]> = bytes.chunks(UNIT_BYTES as usize).collect();
            units.sort_unstable();
            units.dedup();
            assert_eq!(units.len() as u64, FILE_BYTES / UNIT_BYTES, "two units are alike");
            let again = Trial::new(&path, 1 << 20, Duration::from_secs(60)).await;
            assert!(again.is_err_and(|why| why.contains("exists already")));
            drop(trial);
            assert!(!path.exists(), "it was removed");
        });
    }
}
