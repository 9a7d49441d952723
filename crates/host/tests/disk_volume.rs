//! Opening volumes: what is refused, in which words, and what is held.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use crate::disk_common::root::{LoopDevice, TestMount, root_or_skip, run};
use crate::disk_common::{DiskRig, on_both, scratch, sparse};
use host::buffers::Buffer;
use host::disk::volume::{OpenError, VolumeOptions, identity, open_volume};
use host::disk::{AllocationRun, DiskAnswer, DiskOp, ErrorKind, File, Part, is_zero};

fn open(path: &Path) -> Result<File, OpenError> {
    open_volume(path, VolumeOptions::default())
}

/// Opens what must be refused; the sentence must name the path.
fn refusal(path: &Path) -> OpenError {
    let error = open(path).unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    error
}

fn write(offset: u64, length: usize, byte: u8) -> DiskOp {
    DiskOp::Write { offset, parts: Part::Meta(vec![byte; length]).into(), dsync: false }
}

#[test]
fn what_is_no_volume_is_refused() {
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let at = |name: &str| directory.path().join(name);
    assert!(matches!(refusal(&at("none")), OpenError::Missing(_)));
    assert!(matches!(refusal(&at("none/below")), OpenError::Missing(_)));
    assert!(matches!(refusal(directory.path()), OpenError::WrongKind { what: "a directory", .. }));
    assert!(matches!(refusal(Path::new("/dev/null")), OpenError::WrongKind { what: "a character device", .. }));
    run("mkfifo", &[at("pipe").to_str().unwrap()]).unwrap();
    assert!(matches!(refusal(&at("pipe")), OpenError::WrongKind { what: "a pipe", .. }));
    sparse(&at("empty"), 0);
    assert!(matches!(refusal(&at("empty")), OpenError::Empty(_)));
    sparse(&at("odd"), 1000);
    let odd = refusal(&at("odd"));
    assert!(matches!(odd, OpenError::OddSize { size_bytes: 1000, block_bytes: 512, .. }));
    assert!(odd.to_string().contains("1024"), "{odd}");
}

#[test]
fn a_file_is_described_and_known_under_any_name() {
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let at = |name: &str| directory.path().join(name);
    sparse(&at("one"), 1536);
    sparse(&at("two"), 1536);
    std::os::unix::fs::symlink(at("one"), at("symbolic")).unwrap();
    std::fs::hard_link(at("one"), at("hard")).unwrap();
    let file = open(&at("one")).unwrap();
    assert_eq!((file.size_bytes(), file.logical_block(), file.physical_block()), (1536, 512, 4096));
    assert!(!file.is_block_device());
    for name in ["one", "symbolic", "hard"] {
        assert_eq!(identity(&at(name)).unwrap(), file.identity());
    }
    assert_ne!(identity(&at("two")).unwrap(), file.identity());
    let buffered = open_volume(&at("two"), VolumeOptions { buffered: true }).unwrap();
    assert!(!buffered.direct());
}

// proves: P7
#[test]
fn a_file_is_locked_against_others_in_both_ways_and_freed() {
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let path = directory.path().join("volume");
    sparse(&path, 4096);
    let held = open(&path).unwrap();
    let locked = refusal(&path);
    assert!(matches!(&locked, OpenError::Locked { .. }), "{locked}");
    let process = format!("process {}", std::process::id());
    assert!(locked.to_string().contains(&process), "{locked}");
    let other = run("flock", &["--nonblock", path.to_str().unwrap(), "true"]);
    assert!(other.is_err());
    drop(held);
    run("flock", &["--nonblock", path.to_str().unwrap(), "true"]).unwrap();
    open(&path).unwrap();
    // An emulator knows only locks on ranges.
    let emulator = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let range = libc::flock { l_type: libc::F_RDLCK as i16, l_whence: 0, l_start: 100, l_len: 1, l_pid: 0 };
    // SAFETY: the descriptor is open and the structure complete; the call only reads it.
    let taken = unsafe { libc::fcntl(emulator.as_raw_fd(), libc::F_OFD_SETLK, &range) };
    assert_eq!(taken, 0);
    assert!(matches!(refusal(&path), OpenError::Locked { .. }));
    drop(emulator);
    open(&path).unwrap();
}

// proves: P7
/// A killed daemon's writes go on in the kernel, by the second open file that durable writes use. While one is left, nobody else opens
/// the volume: he would read, and write, what that one is still to change.
#[test]
fn a_file_is_held_by_a_durable_write_that_outlives_its_process() {
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let path = directory.path().join("volume");
    sparse(&path, 4096);
    let held = open(&path).unwrap();
    assert!(lock_behind(&path).is_none(), "its own second open file is locked");
    drop(held);
    let left = lock_behind(&path).expect("it is free again");
    let refused = refusal(&path);
    assert!(refused.to_string().contains("an earlier process that has not ended"), "{refused}");
    drop(left);
    open(&path).unwrap();
}

// proves: P9
/// A write behind the cut makes the file long again, and zeroes of what was lost: it is refused, and so is a trim.
#[test]
fn a_file_that_was_cut_short_is_not_made_long_again() {
    on_both(async |rig: &mut DiskRig| {
        let path = rig.directory.path().join("volume");
        sparse(&path, 1 << 20);
        let file = Arc::new(open(&path).unwrap());
        rig.done(&file, write(0, 4096, 1)).await;
        std::fs::File::options().write(true).open(&path).unwrap().set_len(512 << 10).unwrap();
        let zero = DiskOp::Zero { offset: 768 << 10, length: 4096, no_hole: false };
        for op in [write((1 << 20) - 4096, 4096, 2), write(0, 4096, 2), zero] {
            let error = rig.run(&file, op).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Truncated, "{error}");
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 512 << 10);
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        rig.done(&file, write(0, 4096, 3)).await;
    });
}

// proves: P7
/// The same of a device whose sectors are of 4 KiB: its exclusive hold goes with the first open file.
#[test]
fn a_device_is_held_by_a_durable_write_that_outlives_its_process() {
    if !root_or_skip("a_device_is_held_by_a_durable_write_that_outlives_its_process") {
        return;
    }
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let backing = directory.path().join("backing");
    sparse(&backing, 8 << 20);
    let device = LoopDevice::new(&backing, &["--sector-size", "4096"]);
    let left = lock_behind(&device.path).expect("nobody holds it");
    let refused = refusal(&device.path);
    assert!(refused.to_string().contains("an earlier process that has not ended"), "{refused}");
    drop(left);
    let held = open(&device.path).unwrap();
    assert!(lock_behind(&device.path).is_none(), "its own second open file is locked");
    drop(held);
    assert!(lock_behind(&device.path).is_some());
}

/// The lock of a second open file, as a write that is left in the kernel holds it; `None`: somebody has it.
fn lock_behind(path: &Path) -> Option<std::fs::File> {
    let range = libc::flock { l_type: libc::F_WRLCK as i16, l_whence: 0, l_start: 1 << 62, l_len: 0, l_pid: 0 };
    let left = std::fs::File::options().read(true).write(true).open(path).unwrap();
    // SAFETY: the descriptor is open and the structure complete; the call only reads it.
    let taken = unsafe { libc::fcntl(left.as_raw_fd(), libc::F_OFD_SETLK, &range) };
    (taken == 0).then_some(left)
}

#[test]
fn the_backing_file_of_a_loop_device_is_refused() {
    if !root_or_skip("the_backing_file_of_a_loop_device_is_refused") {
        return;
    }
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let path = directory.path().join("backing file");
    sparse(&path, 1 << 20);
    let device = LoopDevice::new(&path, &[]);
    let error = refusal(&path);
    assert!(matches!(&error, OpenError::LoopBacking { device: found, .. } if *found == device.path), "{error}");
    assert!(error.to_string().contains("mounted or used elsewhere"), "{error}");
    device.detach();
    open(&path).unwrap();
}

// proves: P7
#[test]
fn a_block_device_is_held_exclusively_and_works() {
    if !root_or_skip("a_block_device_is_held_exclusively_and_works") {
        return;
    }
    for sector in [512, 4096] {
        on_both(async |rig: &mut DiskRig| {
            let backing = rig.directory.path().join("backing");
            sparse(&backing, 8 << 20);
            let device = LoopDevice::new(&backing, &["--sector-size", &sector.to_string()]);
            let file = Arc::new(open(&device.path).unwrap());
            assert!(file.is_block_device() && file.direct());
            assert_eq!((file.size_bytes(), file.logical_block()), (8 << 20, sector));
            assert!(file.physical_block() >= sector);
            assert_eq!(identity(&device.path).unwrap(), file.identity());
            assert!(matches!(refusal(&device.path), OpenError::InUse { .. }));
            let block = sector as usize;
            rig.done(&file, write(0, 1 << 20, 1)).await;
            rig.done(&file, write(u64::from(sector), block, 2)).await;
            rig.done(&file, DiskOp::Flush).await;
            let read = rig.read(&file, 0, 4 * block).await;
            let expected: Vec<u8> = [1, 2, 1, 1].into_iter().flat_map(|byte| vec![byte; block]).collect();
            assert_eq!(read[..], expected[..]);
            assert_eq!(rig.run(&file, write(256, block, 1)).await.unwrap_err().kind, ErrorKind::Invalid);
            for no_hole in [false, true] {
                rig.done(&file, write(0, 1 << 20, 3)).await;
                let (offset, length) = (u64::from(sector), (512 << 10) + u64::from(sector));
                rig.done(&file, DiskOp::Zero { offset, length, no_hole }).await;
                let read = rig.read(&file, 0, 1 << 20).await;
                let end = (offset + length) as usize;
                assert!(is_zero(&read[block..end]));
                assert!(read[..block].iter().chain(&read[end..]).all(|byte| *byte == 3));
            }
            let status = rig.run(&file, DiskOp::BlockStatus { offset: 0, length: 8 << 20, runs_max: 9 }).await;
            assert!(
                matches!(status, Ok(DiskAnswer::Runs(runs)) if runs == [AllocationRun { length: 8 << 20, hole: false }])
            );
        });
    }
}

// proves: rule 16, rule 21
/// A primary on 512-byte sectors sends such writes, and trims with such ends, to a secondary on 4 KiB ones.
#[test]
fn sectors_find_their_offset_on_a_device_with_larger_blocks() {
    if !root_or_skip("sectors_find_their_offset_on_a_device_with_larger_blocks") {
        return;
    }
    on_both(async |rig: &mut DiskRig| {
        let backing = rig.directory.path().join("backing");
        sparse(&backing, 8 << 20);
        let device = LoopDevice::new(&backing, &["--sector-size", "4096"]);
        let file = Arc::new(open(&device.path).unwrap());
        let mut expected = vec![1u8; 1 << 20];
        rig.done(&file, write(0, 1 << 20, 1)).await;
        rig.done(&file, write(1536, 1024, 2)).await;
        expected[1536..2560].fill(2);
        // Within a block, over one boundary, over many blocks with both ends inside one, and a whole block.
        let ranges = [(8704, 512), (19_968, 1024), (40_448, 300 << 10), (512 << 10, 4096)];
        for no_hole in [false, true] {
            for (offset, length) in ranges {
                rig.done(&file, write(offset / 4096 * 4096, 400 << 10, 3)).await;
                expected[(offset / 4096 * 4096) as usize..][..400 << 10].fill(3);
                rig.done(&file, DiskOp::Zero { offset, length, no_hole }).await;
                expected[offset as usize..(offset + length) as usize].fill(0);
                rig.done(&file, DiskOp::Flush).await;
                assert!(rig.read(&file, 0, 1 << 20).await[..] == expected[..], "{offset}+{length}, no_hole {no_hole}");
            }
        }
        let small = rig.read(&file, 512, 1536).await;
        assert_eq!(small[..], expected[512..2048]);
        // The medium has it, not only the cache.
        assert!(std::fs::read(&backing).unwrap()[..1 << 20] == expected[..]);
    });
}

#[test]
fn a_read_only_device_or_file_system_is_refused() {
    if !root_or_skip("a_read_only_device_or_file_system_is_refused") {
        return;
    }
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let backing = directory.path().join("backing");
    sparse(&backing, 8 << 20);
    let device = LoopDevice::new(&backing, &["--read-only"]);
    assert!(matches!(refusal(&device.path), OpenError::ReadOnly(_)));
    let mount = TestMount::new(&directory.path().join("mount"), &["-t", "tmpfs", "none"]);
    let path = mount.point.join("volume");
    sparse(&path, 4096);
    mount.remount("ro");
    assert!(matches!(refusal(&path), OpenError::ReadOnly(_)));
}

// proves: P7
#[test]
fn a_mounted_device_is_refused_with_its_mount_point() {
    if !root_or_skip("a_mounted_device_is_refused_with_its_mount_point") {
        return;
    }
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let backing = directory.path().join("backing");
    sparse(&backing, 16 << 20);
    let device = LoopDevice::new(&backing, &[]);
    run("mkfs.ext4", &["-q", device.path.to_str().unwrap()]).unwrap();
    let mount = TestMount::new(&directory.path().join("a mount"), &[device.path.to_str().unwrap()]);
    let error = refusal(&device.path);
    assert!(matches!(&error, OpenError::Mounted { point, .. } if *point == mount.point.to_str().unwrap()), "{error}");
    drop(mount);
    let held = open(&device.path).unwrap();
    // While it is ours the kernel refuses to mount it.
    let point = directory.path().join("a mount");
    assert!(run("mount", &[device.path.to_str().unwrap(), point.to_str().unwrap()]).is_err());
    drop(held);
}

#[test]
fn a_disk_with_a_mounted_partition_is_refused() {
    if !root_or_skip("a_disk_with_a_mounted_partition_is_refused") {
        return;
    }
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let backing = directory.path().join("backing");
    sparse(&backing, 32 << 20);
    let device = LoopDevice::new(&backing, &["--partscan"]);
    // Told to the kernel directly: not every kernel can read partition tables.
    run("addpart", &[device.path.to_str().unwrap(), "1", "2048", "32768"]).unwrap();
    let number = std::fs::read_to_string(format!("/sys/block/{0}/{0}p1/dev", device.name())).unwrap();
    let (major, minor) = number.trim().split_once(':').unwrap();
    let partition = directory.path().join("partition");
    let partition = partition.to_str().unwrap();
    run("mknod", &[partition, "b", major, minor]).unwrap();
    run("mkfs.ext4", &["-q", partition]).unwrap();
    let mount = TestMount::new(&directory.path().join("mount"), &[partition]);
    let error = refusal(&device.path);
    assert!(matches!(&error, OpenError::Mounted { point, .. } if *point == mount.point.to_str().unwrap()), "{error}");
}

#[test]
fn a_file_on_large_sectors_takes_small_requests_too() {
    if !root_or_skip("a_file_on_large_sectors_takes_small_requests_too") {
        return;
    }
    on_both(async |rig: &mut DiskRig| {
        let backing = rig.directory.path().join("backing");
        sparse(&backing, 32 << 20);
        let device = LoopDevice::new(&backing, &["--sector-size", "4096"]);
        run("mkfs.ext4", &["-q", "-b", "4096", device.path.to_str().unwrap()]).unwrap();
        let mount = TestMount::new(&rig.directory.path().join("mount"), &[device.path.to_str().unwrap()]);
        let path = mount.point.join("volume");
        sparse(&path, (1 << 20) + 512);
        let file = Arc::new(open(&path).unwrap());
        assert!(file.direct());
        assert_eq!(file.logical_block(), 512);
        rig.done(&file, write(0, 64 << 10, 1)).await;
        rig.done(&file, write(512, 512, 2)).await;
        rig.done(&file, write(4096, 4096, 3)).await;
        rig.done(&file, write(1 << 20, 512, 4)).await;
        rig.done(&file, DiskOp::Zero { offset: 1024, length: 512, no_hole: false }).await;
        rig.done(&file, DiskOp::Flush).await;
        let read = rig.read(&file, 0, 8192).await;
        let expected: Vec<u8> =
            [(1, 512), (2, 512), (0, 512), (1, 2560), (3, 4096)].iter().flat_map(|(byte, n)| vec![*byte; *n]).collect();
        assert_eq!(read[..], expected[..]);
        assert_eq!(rig.read(&file, (1 << 20) - 512, 1024).await[..], [[0; 512], [4; 512]].concat()[..]);
    });
}

#[test]
fn full_file_systems_and_failing_devices_are_distinguished() {
    if !root_or_skip("full_file_systems_and_failing_devices_are_distinguished") {
        return;
    }
    on_both(async |rig: &mut DiskRig| {
        let mount = TestMount::new(&rig.directory.path().join("tiny"), &["-t", "tmpfs", "-o", "size=1m", "none"]);
        let path = mount.point.join("volume");
        sparse(&path, 8 << 20);
        let file = Arc::new(open(&path).unwrap());
        let error = rig.run(&file, write(0, 4 << 20, 1)).await.unwrap_err();
        assert_eq!((error.kind, error.errno), (ErrorKind::NoSpace, libc::ENOSPC), "{error}");
        drop(file);
        // A device that has lost the ground below it: its writes fail, as they do on a dying disk.
        let backing = mount.point.join("backing");
        sparse(&backing, 8 << 20);
        let device = LoopDevice::new(&backing, &[]);
        let file = Arc::new(open(&device.path).unwrap());
        let error = rig.run(&file, write(0, 4 << 20, 1)).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Io | ErrorKind::NoSpace), "{error}");
        let sentence = error.to_string();
        assert!(sentence.starts_with(&format!("write failed on {}", device.path.display())), "{sentence}");
        // What failed once does not poison the next request.
        let answer = rig.run(&file, DiskOp::Read { offset: 4 << 20, buffer: Buffer::detached(4096) }).await;
        assert!(matches!(answer, Ok(DiskAnswer::Data(_))));
    });
}
