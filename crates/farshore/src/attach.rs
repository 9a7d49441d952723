//! A volume as a block device of the kernel, by a helper process of its own.
//!
//! The helper stands between the kernel's NBD client and the daemon ([`host::nbd::NbdProxy`]), so a daemon that is restarted, upgraded or
//! killed costs requests time and no errors. It is no child of the daemon. When the helper itself dies, the kernel lets requests wait,
//! and the next helper takes the device over.
//!
//! What is known of a device lies in [`record`]: it says who the helper is, and how the device stands. A device is on record before it is
//! there, so that one whose helper dies can always be taken over or away. Everything in it is gone after a boot, as the devices are.

mod beside;
mod content;
mod helper;
pub mod record;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::nbd::Address;
use host::nbd::kernel::{self, KernelNbd};
use record::AttachedDevice;

pub use content::same_term;
pub use helper::run;

/// What is to be attached, and how.
#[derive(Clone, Debug)]
pub struct AttachPlan {
    pub group: String,
    pub volume: String,
    pub node: String,
    /// The daemon's control socket.
    pub control: PathBuf,
    /// Where it serves NBD clients.
    pub nbd: Address,
    /// How long requests wait for a daemon, and for a helper.
    pub wait: Duration,
    /// The kernel's device, if one was asked for.
    pub index: Option<u32>,
}

impl AttachPlan {
    /// The name of the export.
    pub fn export(&self) -> String {
        format!("{}/{}", self.group, self.volume)
    }
}

/// What the kernel keeps with a device: whose it is.
fn backend(control: &Path, export: &str) -> String {
    format!("farshore {} {export}", control.display())
}

/// Whether the kernel's device is the recorded one.
pub fn is_there(device: &AttachedDevice) -> bool {
    let recorded = backend(&device.control, &device.export());
    kernel::is_connected(device.index) && kernel::backend_of(device.index).is_none_or(|backend| backend == recorded)
}

/// Takes the kernel's device away, if it still is the recorded one. Whoever reads its socket must not wait for this.
///
/// # Errors
/// The kernel's own.
pub fn disconnect(device: &AttachedDevice) -> io::Result<()> {
    if !is_there(device) {
        return Ok(());
    }
    KernelNbd::find()?.disconnect(device.index)
}

/// Why a volume is not attached where a device of another daemon is.
pub fn another_daemon(device: &AttachedDevice) -> String {
    format!(
        "{} is attached at {} from another daemon ({}): detach that first",
        device.export(),
        device.device.display(),
        device.control.display()
    )
}

/// Why a volume is not attached at another device than the one that has it.
pub fn another_device(device: &AttachedDevice, wanted: u32) -> String {
    format!(
        "{} is attached at {}, so not at {}: detach it first",
        device.export(),
        device.device.display(),
        kernel::device_path(wanted).display()
    )
}

/// What an operator reads of a device that is of no more use.
pub fn ended(device: &AttachedDevice, why: &str) -> String {
    format!(
        "{} is of no more use: {why}. What waits there is not written any more. Unmount what is on it and type 'farshore detach {} \
         --force', then attach again",
        device.device.display(),
        device.export()
    )
}
