//! What the kernel asks, put to the disk.
//!
//! Nothing is cached on the way: no page (every file is opened for direct I/O), no attribute, no name. Locks stay in
//! the kernel, which does them as for any file. A durable write (O_DSYNC, RWF_DSYNC) comes as a write that says so, also
//! from io_uring, and not as a write and a flush.
//!
//! FUSE could be asked to take direct I/O from a ring without a thread waiting for it. It is not: a program that is
//! killed with such requests under way takes seconds to end.

use std::ffi::OsStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::FallocateFlags;

use crate::disk::{Changes, ForgetfulDisk, Power};

/// The kernel asks again each time: the power may have been cut in between.
const NO_TIME: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(0);
/// How long a killed program's files may stay open: io_uring closes them after its process has gone.
const LETTING_GO_MAX: Duration = Duration::from_secs(30);

/// The disk, and who waits for its power.
pub(crate) struct DiskShared {
    disk: Mutex<ForgetfulDisk>,
    /// Its power, or what is open.
    changed: Condvar,
}

impl DiskShared {
    pub fn new(disk: ForgetfulDisk) -> DiskShared {
        DiskShared { disk: Mutex::new(disk), changed: Condvar::new() }
    }

    /// The disk, with or without power. A test that panicked while it held it has failed already; the mount must still
    /// be taken down.
    pub fn disk(&self) -> MutexGuard<'_, ForgetfulDisk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_power(&self, power: Power) {
        self.disk().set_power(power);
        self.changed.notify_all();
    }

    /// Waits until nothing is open from before the last power loss; false: it took too long.
    pub fn wait_for_dead_files(&self) -> bool {
        let has_dead_files = |disk: &mut ForgetfulDisk| disk.has_dead_files();
        let waited = self.changed.wait_timeout_while(self.disk(), LETTING_GO_MAX, has_dead_files);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

pub(crate) struct Served(pub Arc<DiskShared>);

impl Served {
    /// The disk, if it has power. Waits, and with it everyone who asks later, while it hangs or the power is cut.
    fn disk(&self) -> Result<MutexGuard<'_, ForgetfulDisk>, Errno> {
        let is_mute = |disk: &mut ForgetfulDisk| matches!(disk.power(), Power::Hung | Power::Cut);
        let disk = self.0.changed.wait_while(self.0.disk(), is_mute).unwrap_or_else(PoisonError::into_inner);
        if disk.power() == Power::On { Ok(disk) } else { Err(Errno::EIO) }
    }

    /// The disk for a call that counts: the moment in which it may be set to fail.
    fn disk_to_call(&self, call: &'static str) -> Result<MutexGuard<'_, ForgetfulDisk>, Errno> {
        let mut disk = self.disk()?;
        if disk.begins_to_hang() {
            drop(disk);
            disk = self.disk()?;
        }
        disk.begin_call(call)?;
        Ok(disk)
    }

    /// The same, if the handle is not from before a power loss.
    fn disk_of(&self, handle: FileHandle, call: &'static str) -> Result<MutexGuard<'_, ForgetfulDisk>, Errno> {
        of_this_boot(self.disk_to_call(call)?, handle)
    }

    /// The disk for something that makes durable: the moment in which the power may be set to be lost.
    fn disk_to_flush(&self, handle: FileHandle, call: &'static str) -> Result<MutexGuard<'_, ForgetfulDisk>, Errno> {
        let mut disk = self.disk_of(handle, call)?;
        if disk.begin_flush() {
            return Ok(disk);
        }
        drop(disk);
        of_this_boot(self.disk()?, handle)
    }

    fn opened(disk: &mut ForgetfulDisk) -> (FileHandle, FopenFlags) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES | FopenFlags::FOPEN_NOFLUSH;
        (FileHandle(disk.open_file()), flags)
    }
}

fn of_this_boot(
    disk: MutexGuard<'_, ForgetfulDisk>,
    handle: FileHandle,
) -> Result<MutexGuard<'_, ForgetfulDisk>, Errno> {
    if handle.0 == disk.boot() { Ok(disk) } else { Err(Errno::EIO) }
}

fn owner(request: &Request) -> (u32, u32) {
    (request.uid(), request.gid())
}

macro_rules! answer_entry {
    ($reply:expr, $result:expr) => {
        match $result {
            Ok(attributes) => $reply.entry(&NO_TIME, &attributes, GENERATION),
            Err(error) => $reply.error(error),
        }
    };
}

macro_rules! answer_empty {
    ($reply:expr, $result:expr) => {
        match $result {
            Ok(()) => $reply.ok(),
            Err(error) => $reply.error(error),
        }
    };
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer_entry!(reply, self.disk().and_then(|disk| disk.lookup(parent.0, name)));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.disk().and_then(|disk| disk.attributes(ino.0)) {
            Ok(attributes) => reply.attr(&NO_TIME, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let modified = mtime.map(|time| match time {
            TimeOrNow::SpecificTime(time) => time,
            TimeOrNow::Now => SystemTime::now(),
        });
        let permissions = mode.map(|mode| (mode & 0o7777) as u16);
        let changes = Changes { permissions, owner: uid, group: gid, size, modified };
        match self.disk_to_call("attributes").and_then(|mut disk| disk.change(ino.0, changes)) {
            Ok(attributes) => reply.attr(&NO_TIME, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, _: u32, reply: ReplyEntry) {
        answer_entry!(
            reply,
            self.disk_to_call("names").and_then(|mut disk| disk.make(parent.0, name, mode, owner(req)))
        );
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let mode = rustix::fs::FileType::Directory.as_raw_mode() | mode;
        answer_entry!(
            reply,
            self.disk_to_call("names").and_then(|mut disk| disk.make(parent.0, name, mode, owner(req)))
        );
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mode = rustix::fs::FileType::RegularFile.as_raw_mode() | mode;
        let made = self.disk_to_call("names").and_then(|mut disk| {
            let attributes = disk.make(parent.0, name, mode, owner(req))?;
            Ok((attributes, Served::opened(&mut disk)))
        });
        match made {
            Ok((attributes, (handle, flags))) => reply.created(&NO_TIME, &attributes, GENERATION, handle, flags),
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty!(reply, self.disk_to_call("names").and_then(|mut disk| disk.remove(parent.0, name)));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty!(reply, self.disk_to_call("names").and_then(|mut disk| disk.remove(parent.0, name)));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let (from, to) = ((parent.0, name), (newparent.0, newname));
        answer_empty!(reply, self.disk_to_call("names").and_then(|mut disk| disk.rename(from, to, flags.is_empty())));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.disk_to_call("open").map(|mut disk| Served::opened(&mut disk)) {
            Ok((handle, flags)) => reply.opened(handle, flags),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.disk_of(fh, "read").and_then(|disk| disk.read(ino.0, offset, u64::from(size))) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // O_SYNC holds the bit of O_DSYNC.
        let is_durable = flags.0 & libc::O_DSYNC != 0;
        let disk = if is_durable { self.disk_to_flush(fh, "write") } else { self.disk_of(fh, "write") };
        match disk.and_then(|mut disk| disk.write(ino.0, offset, data, is_durable)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // A close makes nothing durable.
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.0.disk().close_file(fh.0);
        self.0.changed.notify_all();
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let flushed = self.disk_to_flush(fh, "flush").and_then(|mut disk| disk.flush(ino.0, datasync));
        if flushed.is_err() {
            self.0.disk().fail_flush(ino.0);
        }
        answer_empty!(reply, flushed);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.disk() {
            Ok(disk) => reply.opened(FileHandle(disk.boot()), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.disk().and_then(|disk| of_this_boot(disk, fh)?.list(ino.0, offset)) {
            Ok(entries) => {
                let mut entries = entries.iter();
                while entries
                    .next()
                    .is_some_and(|(name, entry)| !reply.add(INodeNo(entry.node), entry.cookie, entry.kind, name))
                {
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let flushed = self.disk_to_flush(fh, "flush").and_then(|mut disk| disk.flush(ino.0, false));
        if flushed.is_err() {
            self.0.disk().fail_flush(ino.0);
        }
        answer_empty!(reply, flushed);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        // As large as it may become: 4 TiB in blocks of a page, never full.
        let blocks = 1 << 30;
        reply.statfs(blocks, blocks, blocks, blocks, blocks, 4096, 255, 4096);
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let zeroes = mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE);
        let known = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        if !known.contains(mode) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let grows = !mode.contains(FallocateFlags::KEEP_SIZE);
        let allocate = |mut disk: MutexGuard<'_, ForgetfulDisk>| disk.allocate(ino.0, offset, length, grows, zeroes);
        answer_empty!(reply, self.disk_of(fh, "allocate").and_then(allocate));
    }

    fn lseek(&self, _: &Request, ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let sought = match (u64::try_from(offset), whence) {
            (Ok(offset), libc::SEEK_DATA | libc::SEEK_HOLE) => {
                self.disk_of(fh, "read").and_then(|disk| disk.seek(ino.0, offset, whence == libc::SEEK_DATA))
            }
            _ => Err(Errno::EINVAL),
        };
        match sought {
            Ok(found) => reply.offset(found as i64),
            Err(error) => reply.error(error),
        }
    }
}
