//! A file system for tests that forgets, when its power is cut, what was not flushed.
//!
//! Think of a machine's disk, its cache and its kernel's caches as one box with a plug. As long as it has power, all
//! that was written reads back. When the plug is pulled, what the box had promised to keep is there, and of the rest an
//! arbitrary part. The box lives in memory and is mounted by FUSE, so that whole processes can work on it; the test that
//! mounted it holds the plug ([`ForgetfulStore::cut_power`]).
//!
//! What survives for certain:
//! * bytes and size of a file that were there when an fsync or fdatasync of it began, or were written by a write that is
//!   itself durable (O_DSYNC, O_SYNC, RWF_DSYNC), which brings its own bytes and no others;
//! * permissions, owners and times with fsync, not with fdatasync;
//! * names (created, renamed, removed) with an fsync of their *directory*, never with one of the file, nor with one of a
//!   directory further down. A rename is one change.
//!
//! Of everything else a drawn part survives: bytes by sectors of 512, so that a request may be torn, or in larger pieces;
//! of several versions of a sector any one; zeroing and holes like bytes; a size apart from its bytes; names up to some
//! point of their order. So it is bolder than any one file system (ext4 makes a name durable with its file, and never
//! keeps a size without what was done to its bytes): what survives here survives there.
//!
//! From the cut on nobody gets an answer, so that a program learns nothing of it, as on a machine that is out. The test
//! kills what ran there, and only then has the requests that still wait fail ([`ForgetfulStore::fail_requests`]), or their
//! processes could not end. Of a descriptor from before a cut every use fails.
//!
//! It also fails one call of those to come ([`ForgetfulStore::fail_call_after`]), hangs ([`ForgetfulStore::hang`]), or has bad sectors
//! ([`ForgetfulStore::refuse_reads`]).
//!
//! Not there, as nothing here needs them: symbolic and hard links, extended attributes, shared mappings, a limit of
//! space.

mod content;
mod disk;
mod mount;
mod random;
mod serve;

use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{ForgetfulDisk, Power};
use fuser::Errno;
use serve::DiskShared;

pub use mount::{MountError, missing};

/// What becomes of that which was not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing of it is left that the cache had not written back before by itself.
    AllLost,
    /// A part of it survives, drawn from this seed.
    Drawn(u64),
}

/// What a cut has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Bytes, in whole sectors, that are now something else than before.
    pub forgotten_bytes: u64,
    /// Bytes, in whole sectors, that were not flushed and are there all the same.
    pub survived_bytes: u64,
    /// Changes of names that did not come about.
    pub forgotten_names: u64,
}

/// What the store was asked to keep, and what it need not keep yet. Bytes in whole sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Calls that began: opens, reads, writes, flushes, space taken and given back, names and attributes changed. Looks at names and
    /// attributes do not count.
    pub calls: u64,
    /// Flushes and durable writes that began.
    pub flushes: u64,
    pub flushed_bytes: u64,
    pub flushed_names: u64,
    pub unflushed_bytes: u64,
    pub unflushed_names: u64,
}

/// A mounted store. Dropped, it is unmounted and forgotten, whoever still uses it.
///
/// The mount is visible to the thread that made it, to threads and programs which that thread starts later, and to
/// nobody else; it ends with the last of them. So a test that is killed leaves no mount behind.
pub struct ForgetfulStore {
    shared: Arc<DiskShared>,
    at: PathBuf,
}

impl ForgetfulStore {
    /// Mounts a new, empty store on a directory. From then on this thread lives in a mount namespace of its own.
    ///
    /// # Errors
    /// [`MountError`]: there is no FUSE, or this is not root.
    pub fn mount(at: &Path) -> Result<ForgetfulStore, MountError> {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let shared = Arc::new(DiskShared::new(ForgetfulDisk::new(owner.0, owner.1)));
        mount::mount(at, shared.clone())?;
        Ok(ForgetfulStore { shared, at: at.to_owned() })
    }

    /// Pulls the plug. Nothing is answered from now on.
    ///
    /// # Panics
    /// It has no power.
    pub fn cut_power(&self, fate: Fate) -> Loss {
        self.shared.disk().cut_power(fate);
        self.loss()
    }

    /// Has the plug pulled after so many more flushes (fsync, fdatasync, durable writes): the next one gets no answer.
    pub fn cut_power_after(&self, flushes: u64, fate: Fate) {
        self.shared.disk().cut_power_after(flushes, fate);
    }

    /// Has the plug pulled in the moment of the first flush that finds at least so many bytes not flushed.
    pub fn cut_power_when_unflushed(&self, bytes: u64, fate: Fate) {
        self.shared.disk().cut_power_when_unflushed(bytes, fate);
    }

    /// Has the plug pulled after so many more calls (see [`StoreCounts::calls`]): the next one and all later ones fail with EIO. For tests that
    /// ask the store themselves, and could not wait for an answer that never comes.
    pub fn die_after_calls(&self, calls: u64, fate: Fate) {
        self.shared.disk().die_after_calls(calls, fate);
    }

    /// After so many more calls (see [`StoreCounts::calls`]) the next one fails with this number of an error, and changes nothing. If that is a
    /// flush, what it was to bring never gets to the medium, whatever later flushes say.
    pub fn fail_call_after(&self, calls: u64, errno: i32) {
        self.shared.disk().fail_call_after(calls, Errno::from_i32(errno));
    }

    /// Calls off a failure that has not come. Which call it was if it has: "open", "read", "write", "flush", "allocate", "attributes", or
    /// "names".
    pub fn fail_no_call(&self) -> Option<&'static str> {
        self.shared.disk().fail_no_call()
    }

    /// Name of the file or folder of the last flush that failed.
    pub fn failed_flush_of(&self) -> Option<std::ffi::OsString> {
        self.shared.disk().failed_flush_of()
    }

    /// Calls off a cut that is due and has not come.
    pub fn keep_power(&self) {
        self.shared.disk().keep_power();
    }

    pub fn has_power(&self) -> bool {
        self.shared.disk().power() == Power::On
    }

    /// What the last cut has cost.
    pub fn loss(&self) -> Loss {
        self.shared.disk().loss()
    }

    /// From now on reading these bytes of a file fails with ENODATA, until a write goes over all of them.
    ///
    /// # Errors
    /// There is no such file.
    pub fn refuse_reads(&self, path: &Path, bytes: Range<u64>) -> io::Result<()> {
        let node = std::fs::metadata(path)?.ino();
        self.shared.disk().refuse_reads(node, bytes);
        Ok(())
    }

    /// From now on nothing is answered, as by a disk that hangs; nothing is lost by that.
    pub fn hang(&self) {
        self.shared.set_power(Power::Hung);
    }

    /// The same from the call after so many more (see [`StoreCounts::calls`]) on, unless it is told before to answer again.
    pub fn hang_after_calls(&self, calls: u64) {
        self.shared.disk().hang_after_calls(calls);
    }

    /// It hangs no more: what waits is answered.
    pub fn answer_again(&self) {
        self.shared.set_power(Power::On);
    }

    /// From now on what waits, and whatever is asked, fails with EIO. For when those who ask cannot hear it any more.
    pub fn fail_requests(&self) {
        self.shared.set_power(Power::Off);
    }

    /// What is left can be used again. Programs that ran before the cut must have ended; this waits until the kernel has
    /// closed their files and with that freed their locks, which it may do a little later.
    ///
    /// # Panics
    /// Files stay open.
    pub fn restore_power(&self) {
        assert!(self.shared.wait_for_dead_files(), "{}: files from before the cut are still open", self.at.display());
        self.shared.set_power(Power::On);
    }

    pub fn counts(&self) -> StoreCounts {
        self.shared.disk().counts()
    }
}

impl Drop for ForgetfulStore {
    fn drop(&mut self) {
        // Whoever waits for an answer could not be killed.
        self.fail_requests();
        mount::unmount(&self.at);
    }
}

impl std::fmt::Debug for ForgetfulStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Store({}, {:?})", self.at.display(), self.counts())
    }
}
