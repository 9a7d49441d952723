//! Real block devices and file systems for tests that run as root; each is taken down again on drop.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a tool and gives what it printed.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
    } else {
        Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// Says loudly why a test does nothing on this machine.
pub fn root_or_skip(test: &str) -> bool {
    let able = super::is_root() && Path::new("/dev/loop-control").exists();
    if !able {
        eprintln!("SKIPPED {test}: it needs root and loop devices");
    }
    able
}

pub struct LoopDevice {
    pub path: PathBuf,
}

impl LoopDevice {
    pub fn new(backing: &Path, options: &[&str]) -> LoopDevice {
        let backing = backing.to_str().unwrap();
        let arguments = [&["--find", "--show"], options, &[backing]].concat();
        // Another test may take the free device between the search and the attachment.
        let path = (0..20).find_map(|_| run("losetup", &arguments).ok()).expect("no loop device can be had");
        LoopDevice { path: path.into() }
    }

    /// Detaches and waits until that is done: while any other program looks at the device the kernel puts it off.
    pub fn detach(self) {
        let backing = format!("/sys/block/{}/loop/backing_file", self.name());
        let before = std::fs::read_to_string(&backing).unwrap();
        drop(self);
        let attached = || std::fs::read_to_string(&backing).is_ok_and(|now| now == before);
        let mut rounds_left = 1000;
        while attached() {
            rounds_left -= 1;
            assert!(rounds_left > 0, "{before} stays attached");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    pub fn name(&self) -> &str {
        self.path.file_name().unwrap().to_str().unwrap()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = run("losetup", &["--detach", self.path.to_str().unwrap()]) {
            eprintln!("{error}");
        }
    }
}

pub struct TestMount {
    pub point: PathBuf,
}

impl TestMount {
    /// `arguments` as for mount(8), without the mount point.
    pub fn new(point: &Path, arguments: &[&str]) -> TestMount {
        std::fs::create_dir_all(point).unwrap();
        let point_text = point.to_str().unwrap();
        run("mount", &[arguments, &[point_text]].concat()).unwrap();
        TestMount { point: point.into() }
    }

    pub fn remount(&self, options: &str) {
        run("mount", &["-o", &format!("remount,{options}"), self.point.to_str().unwrap()]).unwrap();
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        if let Err(error) = run("umount", &[self.point.to_str().unwrap()]) {
            eprintln!("{error}");
        }
    }
}
