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

/// Whether the kernel's device is the recorded one: a record without its device may name one that somebody else has made since.
pub fn is_there(device: &AttachedDevice) -> bool {
    let recorded = backend(&device.control, &device.export());
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let found = kernel::backend_of(device.index);
    kernel::is_connected(device.index) && is_ours(found.as_deref(), &recorded, keeps_backends(&release))
}

/// Without the kernel's word any device may be ours.
fn is_ours(found: Option<&str>, recorded: &str, keeps_backends: bool) -> bool {
    found.map_or(!keeps_backends, |found| found == recorded)
}

/// From Linux 5.14 on the kernel keeps what is said of a device's backend, and each device of ours has it.
fn keeps_backends(release: &str) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(|number| number.parse::<u32>());
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    let version = (next(), next());
    version >= (5, 14)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The helper was killed before the kernel made its device, and nbd-client has taken the index since.
    #[test]
    fn a_device_of_which_the_kernel_says_nothing_is_somebody_elses() {
        for (release, found, is) in [
            ("6.1.0-18-amd64", None, false),
            ("5.14.0", None, false),
            ("5.13.19", None, true),
            ("4.19.0-26-amd64", None, true),
            ("6.1.0", Some("farshore /s db/data"), true),
            ("6.1.0", Some("farshore /s db/log"), false),
            ("5.4.0", Some("other"), false),
        ] {
            assert_eq!(is_ours(found, "farshore /s db/data", keeps_backends(release)), is, "{release} {found:?}");
        }
    }
}
