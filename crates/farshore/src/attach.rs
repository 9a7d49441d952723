//! A volume as a block device of the kernel, by a helper process of its own.
//!
//! The helper stands between the kernel's NBD client and the daemon ([`host::nbd::NbdProxy`]), so a daemon that is restarted, upgraded or
//! killed costs requests time and no errors. It is no child of the daemon. When the helper itself dies, the kernel lets requests wait,
//! and the next helper takes the device over.
//!
//! What is known of a device lies in [`record`]: it says who the helper is, and how the device stands. Everything in it is gone after
//! a boot, as the devices are.

mod helper;
pub mod record;

use std::path::PathBuf;
use std::time::Duration;

use host::nbd::Address;

pub use helper::{ended, run};

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
    /// The name of the export, and of the device's backend.
    pub fn export(&self) -> String {
        format!("{}/{}", self.group, self.volume)
    }
}
