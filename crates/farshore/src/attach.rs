//! A volume as a block device of the kernel, by a helper process of its own.
//!
//! The helper stands between the kernel and the daemon ([`host::nbd::NbdProxy`]), so a daemon that is restarted, upgraded or killed costs
//! requests time and no errors. It is no child of the daemon. When the helper itself dies, the kernel lets requests wait, and the next
//! helper takes the device over.
//!
//! The kernel reaches the helper by its own NBD client, or by ublk (`kernel_side`); everything else is the same for both.
//!
//! What is known of a device lies in [`record`]: it says who the helper is, and how the device stands. A device is on record before it is
//! there, so that one whose helper dies can always be taken over or away. Everything in it is gone after a boot, as the devices are.

mod beside;
mod content;
mod helper;
mod kernel_side;
pub mod record;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use host::nbd::Address;
use host::nbd::kernel::{self, KernelNbd};
use host::ublk::{DeviceInfo, UblkControl};
use record::{AttachedDevice, DeviceKind};
use rustix::io::Errno;

pub use content::same_term;
pub use helper::run;
pub use kernel_side::KernelHangs;

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
    /// What kind of device a new one is. One that is there already may be of ublk where this is the kernel's NBD, which nobody asks for.
    pub kind: DeviceKind,
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
///
/// # Errors
/// The system's own: it does not say. A device that is mounted must not count as gone by that.
pub fn is_there(device: &AttachedDevice) -> io::Result<bool> {
    match device.kind {
        DeviceKind::Nbd => {
            let recorded = backend(&device.control, &device.export());
            let release = rustix::system::uname().release().to_string_lossy().into_owned();
            let found = kernel::backend_of(device.index)?;
            let is_ours = is_ours(found.as_deref(), &recorded, keeps_backends(&release));
            Ok(is_ours && kernel::is_connected(device.index)?)
        }
        DeviceKind::Ublk => Ok(ublk_of(device)?.is_some()),
    }
}

/// Whether its helper was killed before the kernel showed the device, or after the kernel hid it: it can only be taken away.
fn is_unfinished(device: &AttachedDevice) -> io::Result<bool> {
    Ok(device.kind == DeviceKind::Ublk && ublk_of(device)?.is_some_and(|info| !info.is_started()))
}

/// What the kernel says of a device of ours; `None`: it has none.
fn ublk_of(device: &AttachedDevice) -> io::Result<Option<DeviceInfo>> {
    let recorded = backend(&device.control, &device.export());
    let Some(control) = if_there(UblkControl::open())? else { return Ok(None) };
    Ok(control.info(device.index)?.filter(|info| info.is_of(&recorded)))
}

/// `None`: there is no such thing. Any other error says nothing of that.
fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => Ok(None),
            _ => Err(error),
        },
        Ok(found) => Ok(Some(found)),
    }
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

/// Takes the kernel's device away, if it still is the recorded one. Whoever answers its requests must not wait for this. `claim` keeps
/// others from a device that nobody uses until it is gone.
///
/// # Errors
/// The kernel's own.
pub fn disconnect(device: &AttachedDevice, claim: Option<OwnedFd>) -> io::Result<()> {
    if !is_there(device)? {
        return Ok(());
    }
    match device.kind {
        DeviceKind::Nbd => KernelNbd::find()?.disconnect(device.index),
        DeviceKind::Ublk => {
            let control = UblkControl::open()?;
            // Another helper, or another program, may have taken it away since the look.
            if_there(control.stop(device.index))?;
            // Of a disk that is gone nobody can take hold, and what still holds it keeps its index.
            drop(claim);
            if_there(control.delete(device.index)).map(drop)
        }
    }
}

/// Takes a device away that nobody serves. The kernel has nothing to wait for then, and is waited for no longer than is reasonable.
///
/// # Errors
/// The kernel's own, or [`KernelHangs`].
async fn take_away(device: &AttachedDevice) -> anyhow::Result<()> {
    let device = device.clone();
    Ok(kernel_side::bounded("takes a device away", move || disconnect(&device, None)).await??)
}

/// The same for a command.
///
/// # Errors
/// As above.
pub fn take_away_and_wait(device: &AttachedDevice) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(take_away(device))
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

/// Why a volume that has a device is not attached as it is asked for; `None`: it is attached so.
pub fn another_device(device: &AttachedDevice, plan: &AttachPlan) -> Option<String> {
    let is_other_kind = device.kind == DeviceKind::Nbd && plan.kind == DeviceKind::Ublk;
    let wanted = match plan.index {
        Some(index) if (plan.kind, index) != (device.kind, device.index) => {
            plan.kind.device_path(index).display().to_string()
        }
        None if is_other_kind => "a ublk device".to_owned(),
        _ => return None,
    };
    let (export, path) = (device.export(), device.device.display());
    Some(format!("{export} is attached at {path}, so not at {wanted}: detach it first"))
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

    /// `detach` had no more memory for a look at a device that was mounted, and said that it was detached.
    #[test]
    fn only_what_the_kernel_says_is_not_there_is_gone() {
        for (code, is_gone) in [
            (Errno::NOENT, true),
            (Errno::NODEV, true),
            (Errno::NXIO, true),
            (Errno::PERM, false),
            (Errno::ACCESS, false),
            (Errno::NOMEM, false),
            (Errno::MFILE, false),
        ] {
            let end = if_there::<()>(Err(code.into()));
            assert_eq!(matches!(end, Ok(None)), is_gone, "{code:?}: {end:?}");
        }
        assert!(matches!(if_there(Ok(7)), Ok(Some(7))));
        // What was made of another error, such as of io_uring that is forbidden.
        assert!(if_there::<()>(Err(io::Error::from(io::ErrorKind::PermissionDenied))).is_err());
    }

    /// `attach` without words finds whatever kind there is; a word for another kind, or another device, is not passed over.
    #[test]
    fn what_is_attached_otherwise_than_asked_for_is_named() {
        use DeviceKind::{Nbd, Ublk};
        for (is, asked, is_as_asked) in [
            ((Nbd, 0), (Nbd, None), true),
            ((Nbd, 0), (Nbd, Some(0)), true),
            ((Nbd, 0), (Nbd, Some(7)), false),
            ((Nbd, 0), (Ublk, None), false),
            ((Nbd, 0), (Ublk, Some(0)), false),
            ((Ublk, 0), (Ublk, None), true),
            ((Ublk, 0), (Ublk, Some(0)), true),
            ((Ublk, 0), (Ublk, Some(1)), false),
            ((Ublk, 0), (Nbd, None), true),
            ((Ublk, 0), (Nbd, Some(0)), false),
        ] {
            let plan = AttachPlan {
                group: "db".to_owned(),
                volume: "data".to_owned(),
                node: "near".to_owned(),
                control: "/s".into(),
                nbd: Address::Unix("/n".into()),
                wait: Duration::ZERO,
                kind: asked.0,
                index: asked.1,
            };
            let said = another_device(&record::example(is.0, is.1), &plan);
            assert_eq!(said.is_none(), is_as_asked, "{is:?} {asked:?}: {said:?}");
        }
        let device = record::example(Nbd, 3);
        assert_eq!(device.device, Path::new("/dev/nbd3"));
        assert_eq!(record::example(Ublk, 3).device, Path::new("/dev/ublkb3"));
    }
}
