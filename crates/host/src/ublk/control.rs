//! Orders to `/dev/ublk-control`. Each goes over a ring of its own: they are few, and one that the kernel never ends holds no other up.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::abi::{DeviceInfo, Parameters, SECTOR_BYTES, control_command, feature, mark, order};
use super::{DEPTH, INDEXES_MAX, REQUEST_BYTES_MAX};
use crate::nbd::kernel::KernelDevice;

const PATH: &str = "/dev/ublk-control";
/// What drivers say to an order that they do not know; no name of it is for programs.
const NOT_SUPPORTED: i32 = 524;
/// Of no device; where one is made, of any.
const NO_INDEX: u32 = u32::MAX;
/// The kernel is short of something: it is asked again after this.
const BUSY_PAUSE: Duration = Duration::from_millis(1);
/// A device that nobody has open is free in less.
const FREE_PATIENCE: Duration = Duration::from_secs(2);

/// The kernel's ublk, if its module is there. Each order waits until the kernel has carried it out: a caller with other things to do gives
/// it on another thread.
#[derive(Clone, Debug)]
pub struct UblkControl(Arc<File>);

/// What may be lent to the kernel: any bytes that it writes there are one of these.
trait Lent: Copy {}

impl Lent for () {}
impl Lent for u64 {}
impl Lent for DeviceInfo {}
impl Lent for Parameters {}

impl UblkControl {
    /// # Errors
    /// `NotFound`: the module `ublk_drv` is not loaded. Else the system's own: no permission.
    pub fn open() -> io::Result<UblkControl> {
        Ok(UblkControl(Arc::new(File::options().read(true).write(true).open(PATH)?)))
    }

    /// Whether a device can outlive its server here: from Linux 6.5 on.
    ///
    /// # Errors
    /// The kernel's own: io_uring is forbidden here.
    pub fn is_new_enough(&self) -> io::Result<bool> {
        match self.give(order::FEATURES, NO_INDEX, 0, 0_u64) {
            Ok(features) => Ok(features & feature::ALL == feature::ALL),
            // An older driver looks for the device first.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) || is_unknown(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes a device of this index, of which nobody sees anything until it is started.
    ///
    /// # Errors
    /// The kernel's own: no permission; `EEXIST`: somebody else has the index.
    pub fn add(&self, index: u32, device: &KernelDevice) -> io::Result<()> {
        assert!(index < INDEXES_MAX);
        let wanted = DeviceInfo {
            queues: 1,
            depth: DEPTH,
            request_bytes_max: REQUEST_BYTES_MAX,
            index,
            flags: feature::ALL,
            mark: mark(&device.backend),
            ..DeviceInfo::default()
        };
        let made = self.give(order::ADD, index, 0, wanted)?;
        let is_as_wanted = made.flags & feature::ALL == feature::ALL;
        let end = match is_as_wanted {
            true => self.give(order::SET_PARAMETERS, made.index, 0, Parameters::of(device)).map(drop),
            false => Err(io::Error::new(io::ErrorKind::Unsupported, "its devices do not outlive their server")),
        };
        end.inspect_err(|_| _ = self.delete(made.index))
    }

    /// `None`: there is no such device.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn info(&self, index: u32) -> io::Result<Option<DeviceInfo>> {
        match self.give(order::INFO, index, 0, DeviceInfo::default()) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Shows a device, which this process serves. Before Linux 6.19 this reads the device for its partitions, so whoever answers must not
    /// wait for it.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn start(&self, index: u32) -> io::Result<()> {
        self.give(order::START, index, std::process::id().into(), ()).map(drop)
    }

    /// Begins to give a device another server.
    ///
    /// # Errors
    /// The kernel's own. `EBUSY`: the last server is not quite gone. `EINVAL` of a device that can have another: this was begun before.
    pub fn begin_recovery(&self, index: u32) -> io::Result<()> {
        self.give(order::BEGIN_RECOVERY, index, 0, ()).map(drop)
    }

    /// This process serves the device from now on. What the last server had not answered is asked again.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn end_recovery(&self, index: u32) -> io::Result<()> {
        self.give(order::END_RECOVERY, index, std::process::id().into(), ()).map(drop)
    }

    /// # Errors
    /// The kernel's own; `Unsupported`: it is older than Linux 6.16.
    pub fn resize(&self, index: u32, size_bytes: u64) -> io::Result<()> {
        match self.give(order::RESIZE, index, size_bytes / u64::from(SECTOR_BYTES), ()) {
            Err(error) if is_unknown(&error) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "ublk devices change their size from Linux 6.16 on; detach the device and attach it again",
            )),
            end => end.map(drop),
        }
    }

    /// Takes the disk away, whoever has it open. What its server has is waited for; what comes later fails.
    ///
    /// # Errors
    /// The kernel's own: there is no such device.
    pub fn stop(&self, index: u32) -> io::Result<()> {
        self.give(order::STOP, index, 0, ()).map(drop)
    }

    /// Takes the device away. Its index is free once nobody has it open any more.
    ///
    /// # Errors
    /// The kernel's own: there is no such device.
    pub fn delete(&self, index: u32) -> io::Result<()> {
        match self.give(order::DELETE_LATER, index, 0, ()) {
            Err(error) if is_unknown(&error) => {}
            end => return end,
        }
        // Before Linux 6.9 the order ends when the index is free. The device is gone before that, and the last close frees the rest.
        let (control, (tell, told)) = (self.clone(), mpsc::channel());
        let delete = move || _ = tell.send(control.give(order::DELETE, index, 0, ()));
        thread::Builder::new().name("ublk-delete".into()).spawn(delete)?;
        match told.recv_timeout(FREE_PATIENCE) {
            Ok(end) => end,
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the thread that takes it away broke down")),
        }
    }

    /// What becomes of `data`, which the kernel reads, or writes to.
    fn give<T: Lent>(&self, number: u32, index: u32, argument: u64, data: T) -> io::Result<T> {
        let mut ring: IoUring<squeue::Entry128, cqueue::Entry> = IoUring::builder().build(2).map_err(no_ring)?;
        let lent = Box::into_raw(Box::new(data));
        let address = if size_of::<T>() == 0 { 0 } else { lent as u64 };
        let command = control_command(index, argument, address, size_of::<T>());
        let entry = opcode::UringCmd80::new(Fd(self.0.as_raw_fd()), number).cmd(command).build();
        // SAFETY: `lent` is not freed before the completion was seen, and the descriptor is open for as long as `self` is there.
        unsafe { ring.submission().push(&entry) }.expect("a new ring has room");
        // An error here leaves the memory to the kernel, which may still use it.
        let code = completion(&mut ring)?;
        // SAFETY: the pointer is of a box, and with the completion the kernel has let go of it; any bytes are a `Lent`.
        let data = *unsafe { Box::from_raw(lent) };
        if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(data) }
    }
}

fn completion(ring: &mut IoUring<squeue::Entry128, cqueue::Entry>) -> io::Result<i32> {
    loop {
        if let Err(error) = ring.submit_and_wait(1) {
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::EBUSY) => thread::sleep(BUSY_PAUSE),
                _ => return Err(error),
            }
        }
        if let Some(entry) = ring.completion().next() {
            return Ok(entry.result());
        }
    }
}

/// Said of io_uring, so that nobody looks at the module.
pub(super) fn no_ring(error: io::Error) -> io::Error {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM) => "; 'sysctl kernel.io_uring_disabled' says whether that is forbidden",
        _ => "",
    };
    io::Error::new(error.kind(), format!("io_uring cannot be used: {error}{advice}"))
}

fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | NOT_SUPPORTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is no control device knows no orders.
    #[test]
    fn an_order_that_is_refused_says_why() {
        let file = tempfile::tempfile().expect("a file");
        let refused = UblkControl(Arc::new(file)).give(order::FEATURES, NO_INDEX, 0, 0_u64).expect_err("it is refused");
        assert!(refused.raw_os_error().is_some() || refused.to_string().contains("io_uring"), "{refused}");
    }

    #[test]
    fn a_kernel_that_does_not_know_an_order_is_told_from_one_that_refuses() {
        for (code, is) in [(libc::EOPNOTSUPP, true), (524, true), (libc::EINVAL, false), (libc::EPERM, false)] {
            assert_eq!(is_unknown(&io::Error::from_raw_os_error(code)), is, "{code}");
        }
        assert!(no_ring(io::Error::from_raw_os_error(libc::EPERM)).to_string().contains("kernel.io_uring_disabled"));
    }
}
