//! Bringing a store up and down, so that nothing is left behind however the test ends.
//!
//! The mount lives in a namespace that ends with the test's last thread and child. The kernel drops all requests under
//! way when the process that answers them is gone, so nobody can be left waiting for it.

use std::cell::Cell;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use fuser::{Config, Session, SessionACL};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use crate::serve::{DiskShared, Served};

const DEVICE: &str = "/dev/fuse";

/// Why a store cannot be mounted.
#[derive(Debug)]
pub struct MountError {
    step: &'static str,
    error: io::Error,
}

impl std::fmt::Display for MountError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let MountError { step, error } = self;
        write!(formatter, "a store that forgets cannot be mounted: {step} failed: {error}; run as root where FUSE is")
    }
}

impl std::error::Error for MountError {}

fn failed<E: Into<io::Error>>(step: &'static str) -> impl Fn(E) -> MountError {
    move |error| MountError { step, error: error.into() }
}

/// What this machine lacks for a store, if anything.
pub fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("root");
    }
    (!Path::new(DEVICE).exists()).then_some(DEVICE)
}

pub(crate) fn mount(at: &Path, shared: Arc<DiskShared>) -> Result<(), MountError> {
    enter_own_namespace()?;
    // Closed on exec: a daemon that the test starts must not keep the store's side of it open.
    let device = File::options().read(true).write(true).open(DEVICE).map_err(failed("opening /dev/fuse"))?;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // With `default_permissions` the kernel checks modes and owners, as on a disk.
    let options =
        format!("fd={},rootmode=40000,user_id={user},group_id={group},default_permissions", device.as_raw_fd());
    let options = CString::new(options).expect("there is no zero in it");
    let flags = MountFlags::NODEV | MountFlags::NOSUID;
    rustix::mount::mount("forgetful", at, "fuse", flags, Some(options.as_c_str())).map_err(failed("mount(2)"))?;
    let session = Session::from_fd(Served(shared), device.into(), SessionACL::Owner, Config::default());
    // The thread ends by itself when the kernel has let go of the mount. Nobody waits for it: it would be for ever if
    // a program still has a file open.
    session.and_then(Session::spawn).map(drop).map_err(|error| {
        unmount(at);
        failed("answering the kernel")(error)
    })
}

/// Takes the mount away from its place; it ends when its last user has ended.
pub(crate) fn unmount(at: &Path) {
    // It fails where nothing is mounted any more, which is as good.
    let _ = rustix::mount::unmount(at, UnmountFlags::DETACH);
}

/// Moves this thread into a mount namespace of its own, once.
fn enter_own_namespace() -> Result<(), MountError> {
    thread_local!(static HAS_ITS_OWN: Cell<bool> = const { Cell::new(false) });
    if HAS_ITS_OWN.get() {
        return Ok(());
    }
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).map_err(failed("unshare(2)"))?;
    // Else what is mounted here would show everywhere.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).map_err(failed("making mounts private"))?;
    HAS_ITS_OWN.set(true);
    Ok(())
}
