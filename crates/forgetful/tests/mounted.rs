//! The store as programs meet it: through the kernel, with its ways of asking for durability.

use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use forgetful::{Fate, ForgetfulStore};
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::{Errno, ReadWriteFlags};

struct MountedRig {
    // Unmounted before its directory is removed.
    store: ForgetfulStore,
    directory: tempfile::TempDir,
}

/// Runs the test where a store can be mounted; says so where it cannot.
fn on_a_store(test: &str, body: impl FnOnce(&MountedRig)) {
    if let Some(reason) = forgetful::missing() {
        return skip(test, reason);
    }
    let directory = tempfile::tempdir().unwrap();
    let store = ForgetfulStore::mount(directory.path()).unwrap();
    body(&MountedRig { store, directory });
}

fn skip(test: &str, reason: &str) {
    eprintln!("SKIPPED {test}: it needs {reason}");
    if let Some(path) = std::env::var_os("FARSHORE_TEST_SKIPS") {
        let mut list = File::options().append(true).create(true).open(path).unwrap();
        list.write_all(format!("{test}: it needs {reason}\n").as_bytes()).unwrap();
    }
}

impl MountedRig {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A file of pages of ones, durable with its name.
    fn file(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let mut file = File::create(&path).unwrap();
        file.write_all(&[1; 16 << 10]).unwrap();
        file.sync_all().unwrap();
        self.sync_names();
        path
    }

    fn sync_names(&self) {
        File::open(self.directory.path()).unwrap().sync_all().unwrap();
    }

    fn lose_all(&self) {
        self.store.cut_power(Fate::AllLost);
        self.store.restore_power();
    }
}

fn open(path: &Path, flags: i32) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).unwrap()
}

/// Memory that O_DIRECT takes.
#[repr(align(4096))]
struct Aligned([u8; 4096]);

fn write_with(file: &File, offset: u64, byte: u8, flags: ReadWriteFlags) {
    let page = Aligned([byte; 4096]);
    let written = rustix::io::pwritev2(file.as_fd(), &[IoSlice::new(&page.0)], offset, flags).unwrap();
    assert_eq!(written, 4096);
}

fn pages(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    assert!(bytes.chunks(4096).all(|page| page.iter().all(|byte| *byte == page[0])));
    bytes.chunks(4096).map(|page| page[0]).collect()
}

#[test]
fn each_way_to_ask_for_durability_is_heard_and_covers_what_it_should() {
    on_a_store("each_way_to_ask_for_durability_is_heard_and_covers_what_it_should", |rig| {
        for (name, direct) in [("cached", 0), ("direct", libc::O_DIRECT)] {
            let path = rig.file(name);
            let file = open(&path, direct);
            write_with(&file, 0, 2, ReadWriteFlags::empty());
            file.sync_data().unwrap();
            write_with(&file, 0, 3, ReadWriteFlags::empty());
            write_with(&file, 4096, 3, ReadWriteFlags::DSYNC);
            write_with(&open(&path, direct | libc::O_DSYNC), 8192, 3, ReadWriteFlags::empty());
            write_with(&open(&path, direct | libc::O_SYNC), 12288, 3, ReadWriteFlags::empty());
            assert_eq!(pages(&path), [3, 3, 3, 3]);
            drop(file);
            rig.lose_all();
            assert_eq!(pages(&path), [2, 3, 3, 3], "{name}");
        }
    });
}

#[test]
fn zeroes_holes_and_sizes_are_forgotten_too() {
    on_a_store("zeroes_holes_and_sizes_are_forgotten_too", |rig| {
        let path = rig.file("a");
        let change = || {
            let file = open(&path, 0);
            let keep = FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, 0, 4096).unwrap();
            rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE | keep, 8192, 4096).unwrap();
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 20 << 10).unwrap();
            assert_eq!(pages(&path), [0, 1, 0, 1, 0]);
            file
        };
        drop(change());
        rig.lose_all();
        assert_eq!(pages(&path), [1, 1, 1, 1]);
        let mut file = change();
        assert_eq!(file.seek(SeekFrom::Start(0)).unwrap(), 0);
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)), Ok(4096));
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(4096)), Ok(8192));
        file.sync_data().unwrap();
        drop(file);
        rig.lose_all();
        assert_eq!(pages(&path), [0, 1, 0, 1, 0]);
        let refused = rustix::fs::fallocate(open(&path, 0), FallocateFlags::COLLAPSE_RANGE, 0, 4096);
        assert_eq!(refused, Err(Errno::OPNOTSUPP));
    });
}

#[test]
fn names_need_their_directory_flushed() {
    on_a_store("names_need_their_directory_flushed", |rig| {
        let (old, new) = (rig.file("old"), rig.path("new"));
        fs::rename(&old, &new).unwrap();
        File::create(rig.path("created")).unwrap().sync_all().unwrap();
        rig.lose_all();
        assert!(old.exists() && !new.exists() && !rig.path("created").exists());
        fs::rename(&old, &new).unwrap();
        rig.sync_names();
        rig.lose_all();
        assert!(!old.exists() && new.exists());
        fs::create_dir(rig.path("folder")).unwrap();
        (0..300).for_each(|number| drop(File::create(rig.path(&format!("folder/{number}"))).unwrap()));
        assert_eq!(fs::read_dir(rig.path("folder")).unwrap().count(), 300);
        fs::remove_dir_all(rig.path("folder")).unwrap();
        assert_eq!(fs::read_dir(rig.directory.path()).unwrap().count(), 1);
    });
}

#[test]
fn without_power_nothing_is_answered_and_then_everything_fails() {
    on_a_store("without_power_nothing_is_answered_and_then_everything_fails", |rig| {
        let path = rig.file("a");
        let mut old = open(&path, 0);
        old.write_all_at(&[9; 512], 512).unwrap();
        assert_eq!(rig.store.counts().unflushed_bytes, 512);
        let loss = rig.store.cut_power(Fate::AllLost);
        assert_eq!((loss.forgotten_bytes, loss.survived_bytes, loss.forgotten_names), (512, 0, 0));
        let mut child = Command::new("cat").arg(&path).stderr(Stdio::null()).spawn().unwrap();
        assert!(!rig.store.has_power());
        child.kill().unwrap();
        rig.store.fail_requests();
        assert!(!child.wait().unwrap().success());
        let is_dead = |result: std::io::Result<()>| result.unwrap_err().raw_os_error() == Some(libc::EIO);
        assert!(is_dead(fs::metadata(&path).map(drop)) && is_dead(old.sync_all()));
        assert!(is_dead(old.write_all_at(&[1], 0)) && is_dead(old.read_exact(&mut [0; 10])));
        // Not before this: what is open holds its locks.
        drop(old);
        rig.store.restore_power();
        assert_eq!(pages(&path), [1, 1, 1, 1]);
    });
}

#[test]
fn a_cut_can_be_set_to_a_flush() {
    on_a_store("a_cut_can_be_set_to_a_flush", |rig| {
        let path = rig.file("a");
        let before = rig.store.counts().flushes;
        rig.store.cut_power_after(2, Fate::AllLost);
        let script = "for n in 1 2 3 4; do printf $n | dd of=$0 conv=fdatasync,notrunc status=none; done";
        let mut child = Command::new("sh").args(["-c", script]).arg(&path).spawn().unwrap();
        while rig.store.has_power() {
            assert!(child.try_wait().unwrap().is_none());
            std::thread::yield_now();
        }
        child.kill().unwrap();
        rig.store.fail_requests();
        child.wait().unwrap();
        rig.store.restore_power();
        assert_eq!(rig.store.counts().flushes, before + 2);
        assert_eq!((fs::read(&path).unwrap()[0], rig.store.loss().forgotten_bytes), (b'2', 512));
    });
}

#[test]
fn one_call_can_be_set_to_fail_and_what_a_failed_flush_was_to_bring_is_lost() {
    on_a_store("one_call_can_be_set_to_fail_and_what_a_failed_flush_was_to_bring_is_lost", |rig| {
        let path = rig.file("a");
        let calls = rig.store.counts().calls;
        let file = open(&path, 0);
        file.write_all_at(&[2; 4096], 0).unwrap();
        assert_eq!(rig.store.counts().calls, calls + 2);
        rig.store.fail_call_after(1, libc::ENOSPC);
        file.write_all_at(&[2; 4096], 4096).unwrap();
        assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(rig.store.fail_no_call(), Some("flush"));
        // Now they are taken for clean.
        file.write_all_at(&[2; 4096], 8192).unwrap();
        file.sync_data().unwrap();
        assert_eq!((pages(&path), rig.store.fail_no_call()), (vec![2, 2, 2, 1], None));
        drop(file);
        rig.lose_all();
        assert_eq!(pages(&path), [1, 1, 2, 1]);
    });
}

#[test]
fn power_can_be_set_to_be_lost_at_any_call() {
    on_a_store("power_can_be_set_to_be_lost_at_any_call", |rig| {
        let path = rig.file("a");
        let file = open(&path, 0);
        rig.store.die_after_calls(1, Fate::AllLost);
        file.write_all_at(&[2; 4096], 0).unwrap();
        assert_eq!(file.write_all_at(&[2; 4096], 4096).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert!(!rig.store.has_power() && file.sync_data().is_err());
        drop(file);
        rig.store.restore_power();
        assert_eq!(pages(&path), [1, 1, 1, 1]);
    });
}

#[test]
fn locks_and_sockets_work_as_on_a_disk() {
    on_a_store("locks_and_sockets_work_as_on_a_disk", |rig| {
        let path = rig.file("a");
        let (one, other) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        rustix::fs::flock(&one, FlockOperation::NonBlockingLockExclusive).unwrap();
        let refused = rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(refused, Err(Errno::WOULDBLOCK));
        drop(one);
        rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
        let listener = UnixListener::bind(rig.path("socket")).unwrap();
        UnixStream::connect(rig.path("socket")).unwrap().write_all(b"x").unwrap();
        let mut heard = String::new();
        listener.accept().unwrap().0.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "x");
    });
}

#[test]
fn the_mount_is_for_its_thread_and_that_ones_children_only() {
    let test = || {
        on_a_store("the_mount_is_for_its_thread_and_that_ones_children_only", |rig| {
            let path = rig.file("a");
            let child = Command::new("cat").arg(&path).output().unwrap();
            assert_eq!(child.stdout, [1; 16 << 10]);
            let (report, said) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                scope.spawn(|| report.send(path.exists()).unwrap());
            });
            assert!(said.recv().unwrap());
            // The first thread of the process did not mount it.
            let process = format!("/proc/{}/root", std::process::id());
            assert!(!Path::new(&process).join(path.strip_prefix("/").unwrap()).exists());
        })
    };
    std::thread::spawn(test).join().unwrap();
}
