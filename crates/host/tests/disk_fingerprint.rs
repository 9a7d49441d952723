//! Does a fingerprint notice what people do to a disk behind our back?
// proves: P7

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::disk_common::root::{LoopDevice, TestMount, root_or_skip, run};
use crate::disk_common::{DiskRig, on_both, scratch, sparse};
use host::disk::fingerprint::{Changed, Fingerprint, compare};
use host::disk::volume::{OpenError, VolumeOptions, open_volume};
use host::disk::{DiskOp, Part};

const SEED: u64 = 0xfeed;

/// A mount that is gone keeps its device for as long as another process has a namespace that was copied while it was there.
const RELEASED_WITHIN: Duration = Duration::from_secs(60);

fn take(path: &Path) -> Fingerprint {
    let began = Instant::now();
    loop {
        match open_volume(path, VolumeOptions::default()) {
            Err(OpenError::InUse { .. }) if began.elapsed() < RELEASED_WITHIN => {
                std::thread::sleep(Duration::from_millis(10));
            }
            opened => return Fingerprint::take(&opened.unwrap(), SEED).unwrap(),
        }
    }
}

fn changed(path: &Path, before: &Fingerprint) -> Changed {
    compare(before, &take(path)).unwrap_err()
}

#[test]
fn a_file_shows_every_write_and_replacement() {
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let path = directory.path().join("volume");
    sparse(&path, 1 << 20);
    let before = take(&path);
    assert_eq!(compare(&before, &take(&path)), Ok(()));
    let stored = Fingerprint::from_bytes(&before.to_bytes()).unwrap();
    assert_eq!(stored, before);
    assert_eq!(stored.seed(), SEED);

    std::fs::read(&path).unwrap();
    assert_eq!(compare(&before, &take(&path)), Ok(()), "reading is allowed");

    // Old enough that no tick of the file system's clock can hide the write that follows.
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(old).unwrap();
    let before = take(&path);
    file.write_all_at(&[1], 5000).unwrap();
    assert!(matches!(changed(&path, &before), Changed::Modified { .. }));

    let before = take(&path);
    std::fs::copy(&path, directory.path().join("copy")).unwrap();
    std::fs::rename(directory.path().join("copy"), &path).unwrap();
    assert!(matches!(changed(&path, &before), Changed::Replaced { .. }));

    let before = take(&path);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(2 << 20).unwrap();
    assert_eq!(changed(&path, &before), Changed::Size { was_bytes: 1 << 20, is_bytes: 2 << 20 });
}

#[test]
fn our_own_direct_writes_are_seen_and_leave_a_stable_fingerprint() {
    if !root_or_skip("our_own_direct_writes_are_seen_and_leave_a_stable_fingerprint") {
        return;
    }
    on_both(async |rig: &mut DiskRig| {
        let backing = rig.directory.path().join("backing");
        sparse(&backing, 4 << 20);
        let device = LoopDevice::new(&backing, &[]);
        // Fills the page cache with what is about to become old.
        std::fs::read(&device.path).unwrap();
        let file = Arc::new(open_volume(&device.path, VolumeOptions::default()).unwrap());
        let empty = Fingerprint::take(&file, SEED).unwrap();
        for offset in [0, 2 << 20] {
            let parts = Part::Meta(vec![9; 4096]).into();
            rig.done(&file, DiskOp::Write { offset, parts, dsync: false }).await;
            rig.done(&file, DiskOp::Flush).await;
        }
        let after = Fingerprint::take(&file, SEED).unwrap();
        assert!(matches!(compare(&empty, &after), Err(Changed::Written { .. })));
        assert_ne!(empty.to_string().split("content").last(), after.to_string().split("content").last());
        drop(file);
        assert_eq!(compare(&after, &take(&device.path)), Ok(()));
    });
}

#[test]
fn a_device_shows_a_mount_and_a_write() {
    if !root_or_skip("a_device_shows_a_mount_and_a_write") {
        return;
    }
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let backing = directory.path().join("backing");
    sparse(&backing, 16 << 20);
    let device = LoopDevice::new(&backing, &[]);
    run("mkfs.ext4", &["-q", device.path.to_str().unwrap()]).unwrap();
    let before = take(&device.path);
    assert_eq!(compare(&before, &take(&device.path)), Ok(()));
    drop(TestMount::new(&directory.path().join("mount"), &[device.path.to_str().unwrap()]));
    assert!(matches!(changed(&device.path, &before), Changed::Written { .. }));

    let before = take(&device.path);
    let raw = std::fs::File::options().write(true).open(&device.path).unwrap();
    raw.write_all_at(&[0x5a; 512], (16 << 20) - 512).unwrap();
    raw.sync_all().unwrap();
    assert!(matches!(changed(&device.path, &before), Changed::Written { .. }));
    let content = |fingerprint: &Fingerprint| fingerprint.to_string().split("content").last().map(str::to_string);
    assert_ne!(content(&before), content(&take(&device.path)));
}
