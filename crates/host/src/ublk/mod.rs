//! ublk: a block device whose requests come over rings of io_uring, from Linux 6.5 on (`drivers/block/ublk_drv.c`).
//!
//! `control` makes and removes devices. `server` is a small client of [`crate::nbd::NbdProxy`]: it turns what the kernel asks into
//! requests of NBD, on a socket as the kernel's own NBD client would have one, and the answers back. So whatever holds for the proxy
//! holds for both kinds of device. `abi` has the kernel's numbers and structures, `memory` what is mapped.
//!
//! What must hold:
//! * memory that the kernel was told of stays mapped for as long as the kernel may use it;
//! * one thread alone speaks for the requests of a device: the kernel takes them from no other;
//! * a request of the kernel is answered once, and only with what was asked;
//! * as many bytes as all requests may have together, the proxy keeps: a write to it waits for no answer.

mod abi;
mod control;
mod memory;
mod server;

use std::path::{Path, PathBuf};

pub use abi::DeviceInfo;
pub use control::UblkControl;
pub use server::UblkServer;

use crate::nbd::KEPT_BYTES_MAX;

/// Requests at once: as many as the kernel's NBD client has.
const DEPTH: u16 = 128;
/// Of one request. The kernel makes larger ones of no use to a daemon into several.
const REQUEST_BYTES_MAX: u32 = 512 << 10;
const _: () = assert!(DEPTH as usize * REQUEST_BYTES_MAX as usize <= KEPT_BYTES_MAX);

/// The kernel's bound: one for each minor number.
pub const INDEXES_MAX: u32 = 1 << 20;

/// The device's node.
pub fn device_path(index: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{index}"))
}

/// Where its server meets the kernel.
fn server_path(index: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkc{index}"))
}

/// Indexes that no device has, in the order in which the kernel would take them.
pub fn free_indexes() -> impl Iterator<Item = u32> {
    (0..INDEXES_MAX).filter(|index| !Path::new(&format!("/sys/class/ublk-char/ublkc{index}")).exists())
}
