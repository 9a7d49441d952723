//! How a device that nobody uses is kept from everybody else while it is taken away. The kernel's NBD is tried in a guest
//! (`cargo xtask test guest`); a loop device is claimed in the same way.

use crate::common::{is_installed, is_root, must_skip};
use host::disk::{claim_unused, used_by};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// A file as a disk of its own, until it goes.
struct LoopFile(PathBuf);

impl LoopFile {
    fn new(backing: &Path) -> LoopFile {
        // Another test may take the free device between the search and the attachment.
        let attach = || Command::new("losetup").args(["--find", "--show"]).arg(backing).output().expect("losetup runs");
        let output = (0..20).map(|_| attach()).find(|output| output.status.success()).expect("a loop device");
        LoopFile(String::from_utf8_lossy(&output.stdout).trim().into())
    }
}

impl Drop for LoopFile {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// `mount` comes while `detach` takes a device away of which it has just seen that nobody uses it.
#[test]
fn a_device_that_is_taken_away_is_nobody_elses_until_it_is_gone() {
    let test = "a_device_that_is_taken_away_is_nobody_elses_until_it_is_gone";
    let loops = Path::new("/dev/loop-control").exists() && is_installed("losetup");
    if must_skip(test, &[("root", is_root()), ("loop devices", loops)]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let backing = folder.path().join("disk");
    fs::write(&backing, vec![7u8; 4 << 20]).expect("written");
    let device = LoopFile::new(&backing);
    let mount = || {
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::open(&device.0, flags, Mode::empty())
    };
    // Whoever looks at new disks on this machine does so for a moment.
    let unused = |_: u32| {
        thread::sleep(Duration::from_millis(50));
        claim_unused(&device.0).ok()
    };
    let claim = (0..100).find_map(unused).expect("nobody uses it").expect("it opens");
    assert_eq!(mount().err(), Some(Errno::BUSY));
    assert!(used_by(&device.0, true).is_some());
    drop(claim);
    let mounted = mount().expect("nobody has it");
    assert!(claim_unused(&device.0).is_err_and(|by| by.contains("another program")));
    drop(mounted);
}
