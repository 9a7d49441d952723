//! The disk of one end: none, a model of one, or a real one's file. One write at a time, whoever writes.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use host::disk::File;
use host::timer::Pauser;
use plan::model::{self, DiskAtWork};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::TestFailure;
use super::terms::{FLUSH_BYTES, Terms};
use crate::disk_test::scratch::ScratchFile;
use crate::disk_test::{Pen, UNIT_BYTES};
use crate::within::no_thread;

/// As `disk test` has it, and room for the largest flush.
const FILE_BYTES: u64 = 64 << 20;
const _: () = assert!(FILE_BYTES >= FLUSH_BYTES.max);
/// For the file to be written once: at 1 MiB/s and less a disk is of no use to a mirror.
const FILE_TIME: Duration = Duration::from_secs(60);
/// For it to go from a disk that hangs.
const REMOVE_TIME: Duration = Duration::from_secs(1);
/// Without its word.
const ENDED: &str = "the disk's thread ended";

/// The longest that [`TestDisk::file`] takes.
pub fn file_time(patience: Duration) -> Duration {
    patience + FILE_TIME.max(patience)
}

pub enum TestDisk {
    /// Takes no time.
    None,
    Modelled {
        disk: model::PlannedDisk,
        at_work: Cell<DiskAtWork>,
        since: Instant,
    },
    Real {
        /// `None`: it did not answer.
        trial: Mutex<Option<Box<Trial>>>,
        patience: Duration,
    },
}

impl TestDisk {
    pub fn modelled(disk: model::PlannedDisk) -> TestDisk {
        TestDisk::Modelled { disk, at_work: Cell::default(), since: Instant::now() }
    }

    /// Makes the file, which must not be there, writes it once, and removes it in the end; unless somebody gives it up
    /// meanwhile. A disk that hangs is waited for no longer than the terms' timeout.
    ///
    /// # Errors
    /// It was given up; or a sentence: it is there, or the file system refuses something.
    pub async fn file(path: &Path, terms: &Terms, given_up: impl Future<Output = ()>) -> Result<TestDisk, TestFailure> {
        let patience = terms.timeout();
        let trial = tokio::select! {
            made = Trial::new(path, terms.largest_flush(), patience) => made.map_err(TestFailure::Failed)?,
            () = given_up => return Err(TestFailure::Interrupted),
        };
        Ok(TestDisk::Real { trial: Mutex::new(Some(Box::new(trial))), patience })
    }

    /// What `bytes` take of a modelled disk's rate: what it has to do beside others, one after the other.
    pub fn transfer_time(&self, bytes: u64) -> Option<Duration> {
        let TestDisk::Modelled { disk, .. } = self else { return None };
        let rate = disk.rate.map_or(f64::INFINITY, |rate| rate.bytes_per_s());
        Some(Duration::from_secs_f64(bytes as f64 / rate))
    }

    /// When `bytes` that are handed over now are durable, if that is known now.
    pub fn due(&self, bytes: u64) -> Option<Instant> {
        let TestDisk::Modelled { disk, at_work, since } = self else { return None };
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
            TestDisk::None => Ok(()),
            TestDisk::Modelled { .. } => {
                let due = self.due(bytes).expect("a model knows");
                pauser.until(due).await;
                Ok(())
            }
            TestDisk::Real { trial, patience } => {
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

/// A flush for the disk's thread: offset, length, and whom to tell.
type Flush = (u64, u64, oneshot::Sender<Result<(), String>>);

/// A file of the test's own that is written round and round; it goes when this does.
///
/// The disk is spoken to on a thread of its own: where it hangs it may hold up whoever asks it, io_uring or not. A thread
/// that hangs is left behind.
pub struct Trial {
    flushes: mpsc::UnboundedSender<Flush>,
    /// There until it goes.
    scratch: Option<ScratchFile>,
    at: u64,
}

impl Trial {
    /// The file is made on a thread of its own and not by `spawn_blocking`, which panics where the system gives no thread.
    async fn new(path: &Path, largest: u64, patience: Duration) -> Result<Trial, String> {
        let own_path = path.to_path_buf();
        let (made_to, made) = oneshot::channel();
        let make = move || drop(made_to.send(ScratchFile::new_file(&own_path, FILE_BYTES, patience)));
        thread::Builder::new().spawn(make).map_err(no_thread)?;
        let scratch = made.await.map_err(|_| ENDED.to_owned())?.map_err(|refused| refused.to_string())?;
        if scratch.is_in_memory() {
            return Err(format!("{} lies in memory: name a file on the disk itself", path.display()));
        }
        let (file, limit) = (scratch.file.clone(), FILE_TIME.max(patience));
        let (flushes, work) = mpsc::unbounded_channel();
        let (answer_to, answer) = oneshot::channel();
        let trial = Trial { flushes, scratch: Some(scratch), at: 0 };
        let largest = largest.next_multiple_of(UNIT_BYTES);
        thread::Builder::new().spawn(move || at_the_disk(file, largest, answer_to, work)).map_err(no_thread)?;
        match tokio::time::timeout(limit, answer).await {
            Ok(filled) => filled.unwrap_or_else(|_| Err(ENDED.to_owned())).map(|()| trial),
            Err(_) => Err(trial.give_up(limit)),
        }
    }

    async fn write(&mut self, bytes: u64) -> Result<(), String> {
        let length = bytes.next_multiple_of(UNIT_BYTES);
        let room = self.scratch.as_ref().map_or(0, |scratch| scratch.fitting(FILE_BYTES));
        let at = if self.at + length > room { 0 } else { self.at };
        self.at = at + length;
        let (answer_to, answer) = oneshot::channel();
        // A thread that has ended tells nothing.
        let _ = self.flushes.send((at, length, answer_to));
        answer.await.unwrap_or_else(|_| Err(ENDED.to_owned()))
    }

    /// The disk hangs, and its file is most likely still there. A sentence.
    fn give_up(mut self, waited: Duration) -> String {
        let path = self.scratch.as_ref().map_or(String::new(), |scratch| scratch.file.path().display().to_string());
        let left = self.remove().err().map_or(String::new(), |left| format!("; {left}"));
        format!("{path} has not answered for {waited:?}: see the kernel log{left}")
    }

    fn remove(&mut self) -> Result<(), String> {
        self.scratch.take().map_or(Ok(()), |scratch| scratch.remove(REMOVE_TIME))
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = self.remove();
    }
}

/// Fills the file as long as somebody waits for that, then writes what it is told.
fn at_the_disk(
    file: Arc<File>,
    largest: u64,
    filled: oneshot::Sender<Result<(), String>>,
    mut flushes: mpsc::UnboundedReceiver<Flush>,
) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        let mut pen = match Pen::new(file, largest) {
            Ok(pen) => pen,
            // Who has gone need not be told, here and below.
            Err(why) => return drop(filled.send(Err(why))),
        };
        let result = pen.fill(FILE_BYTES, || !filled.is_closed()).await;
        let _ = filled.send(result.map(drop).map_err(|error| error.to_string()));
        while let Some((at, length, done)) = flushes.recv().await {
            let written = pen.write(at, length, true).await;
            let _ = done.send(written.map(drop).map_err(|error| error.to_string()));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::within::tests::has_no_threads;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_has_its_blocks_and_bytes_that_nothing_saves() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trial");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let new = || Trial::new(&path, 1 << 20, Duration::from_secs(60));
            let mut trial = match new().await {
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
            let again = new().await;
            assert!(again.is_err_and(|why| why.contains("exists already")));
            drop(trial);
            assert!(!path.exists(), "it was removed");
        });
    }

    /// The task that asked panicked in the middle of its test, and every later one was refused for it.
    #[test]
    fn without_a_thread_there_is_no_file_and_a_sentence_says_so() {
        if !has_no_threads("line_test::disk::tests::without_a_thread_there_is_no_file_and_a_sentence_says_so") {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trial");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let made = runtime.block_on(Trial::new(&path, 1 << 20, Duration::from_secs(60)));
        assert!(made.is_err_and(|why| why.contains("no further thread")));
        assert!(!path.exists());
    }
}
