//! What the disk tests share: an engine on a small runtime with a directory of its own.

pub mod root;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forgetful::ForgetfulStore;
use host::buffers::{Buffer, Pool};
use host::disk::volume::{VolumeOptions, open_volume};
use host::disk::{Completion, DiskAnswer, DiskError, DiskOp, EngineError, EngineKind, File, FileEngine, Inline};

pub struct DiskRig {
    pub engine: FileEngine,
    pub pool: Pool,
    pub directory: tempfile::TempDir,
    files: u32,
}

impl DiskRig {
    /// A new sparse file of this size, opened as a volume.
    pub fn volume(&mut self, size_bytes: u64) -> Arc<File> {
        self.files += 1;
        let path = self.directory.path().join(format!("volume{}", self.files));
        sparse(&path, size_bytes);
        Arc::new(open_volume(&path, VolumeOptions::default()).unwrap())
    }

    /// Runs one request alone.
    pub async fn run(&mut self, file: &Arc<File>, op: DiskOp) -> Result<DiskAnswer, DiskError> {
        self.engine.submit(77, file, op, Inline::Allowed);
        self.engine.kick();
        let mut completions = self.some_completions().await;
        assert_eq!(completions.len(), 1);
        let completion = completions.pop().unwrap();
        assert_eq!(completion.token, 77);
        completion.result
    }

    pub async fn done(&mut self, file: &Arc<File>, op: DiskOp) {
        let answer = self.run(file, op).await.unwrap();
        assert!(matches!(answer, DiskAnswer::Done), "{answer:?}");
    }

    pub async fn read(&mut self, file: &Arc<File>, offset: u64, length: usize) -> Buffer {
        let mut buffer = self.pool.take(length).unwrap();
        buffer.fill(0xee);
        match self.run(file, DiskOp::Read { offset, buffer }).await.unwrap() {
            DiskAnswer::Data(buffer) => buffer,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until at least one request has completed.
    pub async fn some_completions(&mut self) -> Vec<Completion> {
        let mut out = Vec::new();
        loop {
            self.engine.completions(&mut out);
            if !out.is_empty() {
                return out;
            }
            let waiting = self.engine.ready();
            tokio::time::timeout(std::time::Duration::from_secs(60), waiting).await.expect("a completion is lost");
        }
    }
}

pub fn with_engine(kind: EngineKind, test: impl AsyncFn(&mut DiskRig)) -> Result<(), EngineError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let engine = FileEngine::new(kind)?;
        let directory = tempfile::tempdir_in(scratch()).unwrap();
        test(&mut DiskRig { engine, pool: Pool::new(256 << 20), directory, files: 0 }).await;
        Ok(())
    })
}

/// The same test on both kinds of engine; says so loudly where the ring is not to be had.
pub fn on_both(test: impl AsyncFn(&mut DiskRig)) {
    with_engine(EngineKind::Pool, &test).unwrap();
    match with_engine(EngineKind::Uring, &test) {
        Err(EngineError::NoRing(error)) => {
            eprintln!("SKIPPED for the ring: io_uring does not work here: {error}")
        }
        other => other.unwrap(),
    }
}

/// The test on a store of its own, for files that the kernel would cache and files that it would not.
pub fn on_a_store(test: &str, body: impl AsyncFn(&mut DiskRig, &ForgetfulStore, &Path, VolumeOptions)) {
    if let Some(needed) = forgetful::missing() {
        return skip(test, needed);
    }
    on_both(async |rig: &mut DiskRig| {
        for buffered in [false, true] {
            let directory = rig.directory.path().join(format!("buffered-{buffered}"));
            std::fs::create_dir(&directory).unwrap();
            let store = ForgetfulStore::mount(&directory).unwrap();
            body(rig, &store, &directory, VolumeOptions { buffered }).await;
        }
    });
}

/// A directory on a real file system: a memory file system would hide what O_DIRECT asks.
pub fn scratch() -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

pub fn sparse(path: &Path, size_bytes: u64) {
    std::fs::File::create(path).unwrap().set_len(size_bytes).unwrap();
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A small generator of our own, so that a seed gives the same run everywhere (xorshift64*).
pub struct DiskRandom(pub u64);

impl DiskRandom {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Says aloud, and to `cargo xtask test`, why a test does nothing on this machine.
pub fn skip(test: &str, needed: &str) {
    eprintln!("SKIPPED {test}: it needs {needed}");
    if let Some(path) = std::env::var_os("FARSHORE_TEST_SKIPS") {
        let mut list = std::fs::File::options().append(true).create(true).open(path).unwrap();
        std::io::Write::write_all(&mut list, format!("{test}: it needs {needed}\n").as_bytes()).unwrap();
    }
}
