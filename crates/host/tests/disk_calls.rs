//! The store under the file engine and the state files fails one call, or loses its power at one: at each in turn, on both kinds of
//! engine. Whatever was acknowledged is there afterwards, what failed was told with the file's name and what to do, and the next start
//! finds its files whole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk_common::root::{LoopDevice, TestMount, root_or_skip, run};
use crate::disk_common::{DiskRig, on_a_store, sparse};
use forgetful::{Fate, ForgetfulStore};
use host::buffers::Buffer;
use host::disk::meta::{StateDirectory, create_or_open_meta, create_or_open_sparse, make_directory};
use host::disk::volume::{OpenError, VolumeOptions, open_volume};
use host::disk::{DiskAnswer, DiskError, DiskOp, EngineKind, ErrorKind, File, Inline, Part};

const PAGE: u64 = 4096;
const PAGES: u64 = 16;
const SIZE: u64 = PAGES * PAGE;
/// What a volume holds before a run.
const OLD: u8 = 1;

/// What a page may hold, as bytes that fill it.
#[derive(Clone, Debug)]
struct FilePage {
    /// Now; more than one after a write that failed.
    now: Vec<u8>,
    /// After a power loss.
    kept: Vec<u8>,
}

impl Default for FilePage {
    fn default() -> FilePage {
        FilePage { now: vec![OLD], kept: vec![OLD] }
    }
}

/// What each file's pages may hold.
#[derive(Default)]
struct Ledger(BTreeMap<(&'static str, u64), FilePage>);

impl Ledger {
    fn page(&mut self, name: &'static str, page: u64) -> &mut FilePage {
        self.0.entry((name, page)).or_default()
    }

    /// A file is there: of zeroes, durable.
    fn made(&mut self, name: &'static str) {
        (0..PAGES).for_each(|page| *self.page(name, page) = FilePage { now: vec![0], kept: vec![0] });
    }

    fn has(&self, name: &'static str) -> bool {
        self.0.contains_key(&(name, 0))
    }

    fn issue(&mut self, change: &PageChange) {
        let PageChange { name, page, byte, .. } = *change;
        self.page(name, page).kept.push(byte);
    }

    fn end(&mut self, change: &PageChange, is_done: bool) {
        let page = self.page(change.name, change.page);
        if !is_done {
            page.now.push(change.byte);
            return;
        }
        page.now = vec![change.byte];
        if change.is_durable {
            page.kept = page.now.clone();
        }
    }

    fn flushed(&mut self, name: &'static str) {
        for ((file, _), page) in &mut self.0 {
            if *file == name {
                page.kept = page.now.clone();
            }
        }
    }

    /// The files' bytes are what a power loss may have left.
    fn check(&mut self, at: impl Fn(&str) -> PathBuf, case: &str) {
        for ((name, page), expected) in &mut self.0 {
            let bytes = std::fs::read(at(name)).unwrap_or_else(|error| panic!("{case}: {name}: {error}"));
            let found = &bytes[(page * PAGE) as usize..][..PAGE as usize];
            // A write that was not acknowledged may be torn.
            let is_expected = found.chunks(512).all(|sector| expected.kept.iter().any(|byte| sector == [*byte; 512]));
            assert!(is_expected, "{case}: page {page} of {name} holds {}, not one of {:?}", found[0], expected.kept);
            expected.now = expected.kept.clone();
        }
    }
}

/// One page that a request fills with a byte.
struct PageChange {
    name: &'static str,
    page: u64,
    byte: u8,
    is_durable: bool,
}

impl PageChange {
    fn write(&self) -> DiskOp {
        let mut buffer = Buffer::detached(PAGE as usize);
        buffer.fill(self.byte);
        let parts = Part::whole(Arc::new(buffer)).into();
        DiskOp::Write { offset: self.page * PAGE, parts, dsync: self.is_durable }
    }
}

const STATE: &str = "superblock";
const UNDO: &str = "undo";
const VOLUME: &str = "volume";

fn path_of(directory: &Path, name: &str) -> PathBuf {
    if name == VOLUME { directory.join(name) } else { directory.join("state/group").join(name) }
}

struct TestFiles {
    _state: StateDirectory,
    files: BTreeMap<&'static str, Arc<File>>,
}

/// What a start of a daemon does with its disk. Not [`OpenError`] alone: a directory's error is named by whoever makes it.
fn open(directory: &Path, options: VolumeOptions, ledger: &mut Ledger) -> Result<TestFiles, String> {
    let said = |error: OpenError| error.to_string();
    let make = |path: &Path| {
        make_directory(path)
            .map_err(|error| format!("{} cannot be made: {error}; check its file system", path.display()))
    };
    make(&directory.join("state"))?;
    let state = StateDirectory::open(&directory.join("state")).map_err(said)?;
    make(&directory.join("state/group"))?;
    let mut files = BTreeMap::new();
    for (name, make) in [(STATE, create_or_open_meta as fn(&Path, u64) -> _), (UNDO, create_or_open_sparse)] {
        let meta = make(&path_of(directory, name), SIZE).map_err(said)?;
        assert!(!meta.created || !ledger.has(name), "{name} was lost");
        // It may be there though its maker was told that it failed; then it is as whole.
        if !ledger.has(name) {
            ledger.made(name);
        }
        files.insert(name, Arc::new(meta.file));
    }
    files.insert(VOLUME, Arc::new(open_volume(&path_of(directory, VOLUME), options).map_err(said)?));
    Ok(TestFiles { _state: state, files })
}

/// One life of a daemon on its disk: a start, then requests of each kind, alone and together; what it was told of failures.
async fn live(rig: &mut DiskRig, directory: &Path, options: VolumeOptions, ledger: &mut Ledger) -> Vec<String> {
    let files = match open(directory, options, ledger) {
        Ok(files) => files.files,
        Err(said) => return vec![said],
    };
    let mut requests = Requests { rig, files, ledger, errors: Vec::new() };
    requests.change(&[(STATE, 0, 2, true), (UNDO, 3, 2, false)]).await;
    requests.flush(UNDO).await;
    requests.change(&[(VOLUME, 0, 2, false)]).await;
    requests.change(&[(VOLUME, 1, 2, false), (VOLUME, 2, 2, false), (VOLUME, 3, 2, true)]).await;
    requests.flush(VOLUME).await;
    requests.look().await;
    requests.zero(1, false).await;
    requests.zero(2, true).await;
    requests.change(&[(VOLUME, 0, 3, true)]).await;
    requests.flush(VOLUME).await;
    requests.change(&[(VOLUME, 4, 3, false), (VOLUME, 5, 3, true), (STATE, 0, 3, true), (STATE, 1, 3, true)]).await;
    requests.change(&[(VOLUME, 3, 4, false)]).await;
    requests.look().await;
    requests.errors
}

struct Requests<'a> {
    rig: &'a mut DiskRig,
    files: BTreeMap<&'static str, Arc<File>>,
    ledger: &'a mut Ledger,
    errors: Vec<String>,
}

impl Requests<'_> {
    /// Writes pages, all in flight together.
    async fn change(&mut self, changes: &[(&'static str, u64, u8, bool)]) {
        let changes: Vec<PageChange> =
            changes.iter().map(|&(name, page, byte, is_durable)| PageChange { name, page, byte, is_durable }).collect();
        for (token, change) in changes.iter().enumerate() {
            self.ledger.issue(change);
            self.rig.engine.submit(token as u64, &self.files[change.name], change.write(), Inline::Allowed);
        }
        self.rig.engine.kick();
        let mut left = changes.len();
        while left > 0 {
            for completion in self.rig.some_completions().await {
                left -= 1;
                let change = &changes[completion.token as usize];
                self.ledger.end(change, completion.result.is_ok());
                self.hear(change.name, completion.result);
            }
        }
    }

    async fn flush(&mut self, name: &'static str) {
        let result = self.rig.run(&self.files[name], DiskOp::Flush).await;
        if result.is_ok() {
            self.ledger.flushed(name);
        } else {
            let again = self.rig.run(&self.files[name], DiskOp::Flush).await;
            assert!(again.is_err(), "a flush succeeded after one that failed");
        }
        self.hear(name, result);
    }

    async fn zero(&mut self, page: u64, no_hole: bool) {
        let change = PageChange { name: VOLUME, page, byte: 0, is_durable: false };
        self.ledger.issue(&change);
        let op = DiskOp::Zero { offset: page * PAGE, length: PAGE, no_hole };
        let result = self.rig.run(&self.files[VOLUME], op).await;
        self.ledger.end(&change, result.is_ok());
        self.hear(VOLUME, result);
    }

    /// Reads each file, and where the volume holds data.
    async fn look(&mut self) {
        for (name, file) in self.files.clone() {
            let buffer = self.rig.pool.take(SIZE as usize).unwrap();
            let result = self.rig.run(&file, DiskOp::Read { offset: 0, buffer }).await;
            if let Ok(DiskAnswer::Data(bytes)) = &result {
                for page in 0..PAGES {
                    let found = bytes[(page * PAGE) as usize];
                    let may = &self.ledger.page(name, page).now;
                    assert!(may.contains(&found), "page {page} of {name} reads as {found}, not one of {may:?}");
                }
            }
            self.hear(name, result);
        }
        let status = DiskOp::BlockStatus { offset: 0, length: SIZE, runs_max: 9 };
        let result = self.rig.run(&self.files[VOLUME], status).await;
        self.hear(VOLUME, result);
    }

    fn hear(&mut self, name: &str, result: Result<DiskAnswer, DiskError>) {
        if let Err(error) = result {
            let kinds = [ErrorKind::Io, ErrorKind::NoSpace];
            assert!(kinds.contains(&error.kind) && error.path.ends_with(name), "{error:?}");
            self.errors.push(error.to_string());
        }
    }
}

/// A sentence that names the file or directory it is about and says what to do.
fn assert_is_sentence(said: &str, directory: &Path, case: &str) {
    let names = said.contains(directory.to_str().unwrap());
    let advises = ["check ", "see ", "free ", "restore "].iter().any(|advice| said.contains(advice));
    assert!(names && advises, "{case}: {said}");
}

/// More than a start needs, fewer than a life.
const OPENING_CALLS: u64 = 35;

/// How far the daemon before had come.
#[derive(Clone, Copy, Debug, PartialEq)]
enum DaemonBefore {
    Nothing,
    /// It was killed when its directories had their names, and these were not durable.
    Directories,
}

fn prepare(directory: &Path, before: DaemonBefore) {
    std::fs::create_dir(directory).unwrap();
    let volume = path_of(directory, VOLUME);
    std::fs::write(&volume, vec![OLD; SIZE as usize]).unwrap();
    for path in [&volume, directory, directory.parent().unwrap()] {
        std::fs::File::open(path).unwrap().sync_all().unwrap();
    }
    if before == DaemonBefore::Directories {
        std::fs::create_dir(directory.join("state")).unwrap();
        std::fs::create_dir(directory.join("state/group")).unwrap();
    }
}

/// Has a life struck at each of its calls in turn. `strike`: at the call after so many. `struck`: whether it came to that, and what was
/// told of it. What is left is checked and taken up again by a second life, which nothing strikes.
async fn at_each_call(
    rig: &mut DiskRig,
    (store, root, options): (&ForgetfulStore, &Path, VolumeOptions),
    (what, before): (&str, DaemonBefore),
    strike: impl Fn(u64),
    struck: impl Fn(&[String], &Path, &str) -> bool,
) {
    // That differs by how the life begins.
    let most = if before == DaemonBefore::Directories { OPENING_CALLS } else { u64::MAX };
    for calls in 0..most {
        let case = format!("{what} at call {calls} after {before:?}, buffered: {}", options.buffered);
        let directory = root.join(format!("{what}-{before:?}-{calls}"));
        prepare(&directory, before);
        let mut ledger = Ledger::default();
        strike(calls);
        let errors = live(rig, &directory, options, &mut ledger).await;
        let is_struck = struck(&errors, &directory, &case);
        if store.has_power() {
            store.cut_power(Fate::AllLost);
        }
        store.restore_power();
        ledger.check(|name| path_of(&directory, name), &case);
        let again = live(rig, &directory, options, &mut ledger).await;
        assert!(again.is_empty(), "{case}: the next start is told {again:?}");
        if !is_struck {
            println!("{what}, {before:?}: {calls} calls");
            assert!(calls > OPENING_CALLS, "{calls} calls are too few to be all");
            return;
        }
    }
}

// proves: P4
#[test]
fn one_call_fails() {
    on_a_store("one_call_fails", async |rig, store, root, options| {
        for (what, errno, before) in [
            ("EIO", libc::EIO, DaemonBefore::Nothing),
            ("EIO", libc::EIO, DaemonBefore::Directories),
            ("ENOSPC", libc::ENOSPC, DaemonBefore::Nothing),
        ] {
            // What a full file system says does not depend on the way there.
            if errno == libc::ENOSPC && options.buffered {
                continue;
            }
            let strike = |calls| store.fail_call_after(calls, errno);
            let struck = |errors: &[String], directory: &Path, case: &str| {
                errors.iter().for_each(|said| assert_is_sentence(said, directory, case));
                let failed = store.fail_no_call();
                // The one read that opens a file finds out how it may be read; what is in it nobody has asked for yet.
                let may_be_silent = failed.is_none_or(|call| call == "read");
                assert!(
                    may_be_silent || !errors.is_empty(),
                    "{case}: a {} failed and nothing was told",
                    failed.unwrap()
                );
                assert!(failed.is_some() || errors.is_empty(), "{case}: nothing failed and {errors:?} was told");
                failed.is_some()
            };
            at_each_call(rig, (store, root, options), (what, before), strike, struck).await;
        }
    });
}

// proves: P4
#[test]
fn power_is_lost_at_a_call() {
    on_a_store("power_is_lost_at_a_call", async |rig, store, root, options| {
        let struck = |_: &[String], _: &Path, _: &str| {
            store.keep_power();
            !store.has_power()
        };
        let lost = |calls| store.die_after_calls(calls, Fate::AllLost);
        at_each_call(rig, (store, root, options), ("all lost", DaemonBefore::Directories), lost, struck).await;
        let drawn = |calls| store.die_after_calls(calls, Fate::Drawn(calls));
        at_each_call(rig, (store, root, options), ("part lost", DaemonBefore::Nothing), drawn, struck).await;
    });
}

// proves: P4, rule 12
/// What the page cache could not write of the ends of a hole was told to the durable write that came next, and the flush that speaks
/// for the hole succeeded.
#[test]
fn a_flush_reports_what_became_of_the_ends_of_a_hole() {
    let test = "a_flush_reports_what_became_of_the_ends_of_a_hole";
    if !root_or_skip(test) {
        return;
    }
    on_a_store(test, async |rig, store, directory, options| {
        let image = directory.join("image");
        sparse(&image, 16 << 20);
        let device = LoopDevice::new(&image, &[]);
        let device_path = device.path.to_str().unwrap();
        run("mkfs.ext4", &["-q", "-O", "^has_journal", device_path]).unwrap();
        let name = format!("mounted-{}-{}", options.buffered, rig.engine.kind() == EngineKind::Pool);
        let mount = TestMount::new(&rig.directory.path().join(name), &[device_path]);
        let path = mount.point.join("volume");
        std::fs::write(&path, vec![OLD; SIZE as usize]).unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        let file = Arc::new(open_volume(&path, options).unwrap());
        rig.done(&file, DiskOp::Zero { offset: 512, length: 512, no_hole: false }).await;
        store.fail_call_after(0, libc::EIO);
        // What the kernel does by itself some seconds later; this one is told on its own.
        let other = std::fs::File::options().write(true).open(&path).unwrap();
        assert!(other.sync_data().is_err(), "the end of the hole is written back");
        assert_eq!(store.fail_no_call(), Some("write"));
        let durable = PageChange { name: VOLUME, page: 3, byte: 3, is_durable: true };
        let errors = rig.run(&file, durable.write()).await;
        let flushed = rig.run(&file, DiskOp::Flush).await;
        assert!(flushed.is_err(), "the flush succeeds, and the write before was told {errors:?}");
    });
}

// proves: P4, rule 12
/// Flushes that are asked for at once: none succeeds beside the one that is told of a lost write.
#[test]
fn no_flush_succeeds_beside_one_that_fails() {
    let test = "no_flush_succeeds_beside_one_that_fails";
    on_a_store(test, async |rig, store, directory, options| {
        let path = directory.join("volume");
        sparse(&path, SIZE);
        for round in 0..20 {
            let file = Arc::new(open_volume(&path, options).unwrap());
            let write = PageChange { name: VOLUME, page: 1, byte: round, is_durable: false };
            rig.run(&file, write.write()).await.unwrap();
            store.fail_call_after(0, libc::EIO);
            (0..4).for_each(|token| rig.engine.submit(token, &file, DiskOp::Flush, Inline::Forbidden));
            rig.engine.kick();
            let mut completions = Vec::new();
            while completions.len() < 4 {
                completions.extend(rig.some_completions().await);
            }
            store.fail_no_call();
            assert!(completions.iter().all(|completion| completion.result.is_err()), "round {round}");
        }
    });
}
