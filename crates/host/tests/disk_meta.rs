//! State directories and the files in them.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::disk_common::root::{TestMount, root_or_skip};
use crate::disk_common::{DiskRig, on_both, scratch};
use host::disk::meta::{BlockSalvage, StateDirectory, create_or_open_meta, create_or_open_reserved, open_meta};
use host::disk::volume::OpenError;
use host::disk::{AllocationRun, DiskOp, Part, block_status, is_zero};

// proves: P10
#[test]
fn a_state_directory_is_made_private_and_belongs_to_one() {
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let path = directory.path().join("lib/state");
    let state = StateDirectory::open(&path).unwrap();
    assert_eq!(state.path(), path);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
    let error = StateDirectory::open(&path).unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }));
    let sentence = error.to_string();
    assert!(
        sentence.contains(path.to_str().unwrap()) && sentence.contains(&std::process::id().to_string()),
        "{sentence}"
    );
    drop(state);
    StateDirectory::open(&path).unwrap();
}

#[test]
fn unfit_state_directories_are_refused() {
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(matches!(StateDirectory::open(&file), Err(OpenError::WrongKind { .. })));
    let open = directory.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
    let error = StateDirectory::open(&open).unwrap_err();
    assert!(matches!(error, OpenError::OpenToOthers { mode: 0o777, .. }));
    assert!(error.to_string().contains("chmod 0700"), "{error}");
}

// proves: P8
#[test]
fn full_and_read_only_state_directories_are_reported() {
    if !root_or_skip("full_and_read_only_state_directories_are_reported") {
        return;
    }
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let mount = TestMount::new(&directory.path().join("tiny"), &["-t", "tmpfs", "-o", "size=64k,mode=700", "none"]);
    let journal = mount.point.join("journal");
    let error = create_or_open_meta(&journal, 1 << 20).unwrap_err();
    assert!(matches!(error, OpenError::NoSpace { .. }), "{error}");
    assert_eq!(std::fs::read_dir(&mount.point).unwrap().count(), 0, "a half-made file stays behind");
    let filler = vec![1; 64 << 10];
    std::fs::write(mount.point.join("filler"), &filler).unwrap();
    let error = StateDirectory::open(&mount.point).unwrap_err();
    assert!(matches!(error, OpenError::NoSpace { .. }), "{error}");
    mount.remount("ro");
    for error in [StateDirectory::open(&mount.point).unwrap_err(), create_or_open_meta(&journal, 512).unwrap_err()] {
        assert!(matches!(error, OpenError::ReadOnly(_)), "{error}");
    }
}

#[test]
fn a_state_file_is_made_whole_and_keeps_its_content() {
    on_both(async |rig: &mut DiskRig| {
        let path = rig.directory.path().join("journal");
        let size = (3 << 20) + 512;
        let meta = create_or_open_meta(&path, size).unwrap();
        assert!(meta.created);
        let file = std::sync::Arc::new(meta.file);
        assert_eq!(file.size_bytes(), size);
        let facts = std::fs::metadata(&path).unwrap();
        assert_eq!(facts.mode() & 0o777, 0o600);
        assert!(facts.blocks() * 512 >= size, "not allocated");
        // Written, not merely reserved: reserved space would still show as a hole.
        assert_eq!(block_status(&file, 0, size, 9).unwrap(), [AllocationRun { length: size, hole: false }]);
        assert!(is_zero(&rig.read(&file, 0, size as usize).await));
        let parts = vec![Part::Meta(vec![1; 512]), Part::Meta(vec![2; 512])].into();
        rig.done(&file, DiskOp::Write { offset: 1024, parts, dsync: true }).await;
        assert!(matches!(create_or_open_meta(&path, size), Err(OpenError::Locked { .. })));
        drop(file);
        let meta = create_or_open_meta(&path, size).unwrap();
        assert!(!meta.created);
        let file = std::sync::Arc::new(meta.file);
        assert_eq!(rig.read(&file, 1024, 1024).await[..], [[1; 512], [2; 512]].concat()[..]);
        drop(file);
        let error = create_or_open_meta(&path, 4096).unwrap_err();
        assert!(matches!(error, OpenError::WrongSize { expected_bytes: 4096, .. }), "{error}");
    });
}

// proves: P8
#[test]
fn a_reserved_file_has_its_space_before_anything_is_written() {
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let path = directory.path().join("queue");
    let taken = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let size = 8 << 20;
    let meta = create_or_open_reserved(&path, size).unwrap();
    assert!(meta.created && meta.file.size_bytes() == size && taken() >= size);
    drop(meta);
    // As a copy of the directory may leave it.
    std::fs::remove_file(&path).unwrap();
    std::fs::File::create(&path).unwrap().set_len(size).unwrap();
    assert!(taken() < size);
    assert!(!create_or_open_reserved(&path, size).unwrap().created && taken() >= size);
    let error = create_or_open_reserved(&path, 2 * size).unwrap_err();
    assert!(matches!(error, OpenError::WrongSize { .. }), "{error}");
    std::fs::remove_file(&path).unwrap();
    let error = create_or_open_reserved(&path, 1 << 50).unwrap_err();
    assert!(matches!(error, OpenError::NoSpace { .. }), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "a half-made file stays behind");
}

// proves: P9
/// Somebody cuts a file short that is in use: what is gone is not told as a hole that reads as zeroes.
#[test]
fn the_lost_end_of_a_file_is_no_hole() {
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let path = directory.path().join("journal");
    let file = create_or_open_meta(&path, 1 << 20).unwrap().file;
    std::fs::File::options().write(true).open(&path).unwrap().set_len(512 << 10).unwrap();
    let error = block_status(&file, 768 << 10, 64 << 10, 9).unwrap_err();
    assert!(error.to_string().contains("shorter than when it was opened"), "{error}");
    assert_eq!(block_status(&file, 0, 512 << 10, 9).unwrap(), [AllocationRun { length: 512 << 10, hole: false }]);
}

#[test]
fn an_interrupted_creation_is_begun_anew() {
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let path = directory.path().join("bitmap");
    std::fs::write(directory.path().join("bitmap.creating"), [7; 10_000]).unwrap();
    let meta = create_or_open_meta(&path, 8192).unwrap();
    assert!(meta.created);
    drop(meta);
    assert!(is_zero(&std::fs::read(&path).unwrap()));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn what_is_no_state_file_is_refused() {
    let directory = tempfile::tempdir_in(scratch()).unwrap();
    let at = |name: &str| directory.path().join(name);
    assert!(matches!(open_meta(&at("none")), Err(OpenError::Missing(_))));
    assert!(matches!(open_meta(directory.path()), Err(OpenError::NoStateFile { .. })));
    std::fs::write(at("target"), [0; 512]).unwrap();
    std::os::unix::fs::symlink(at("target"), at("link")).unwrap();
    assert!(matches!(open_meta(&at("link")), Err(OpenError::NoStateFile { .. })));
    std::fs::write(at("odd"), [0; 100]).unwrap();
    assert!(matches!(open_meta(&at("odd")), Err(OpenError::OddSize { .. })));
    let missing = create_or_open_meta(&at("none/journal"), 512).unwrap_err();
    assert!(matches!(missing, OpenError::Missing(_)), "{missing}");
}

#[test]
fn a_block_that_cannot_be_read_is_damage_and_a_file_that_cannot_is_an_error() {
    const BYTES: usize = BlockSalvage::BYTES;
    let read = |given: [Option<&[u8]>; 2]| {
        let mut blocks = BlockSalvage::begin(8 * BYTES as u64, 2 * BYTES);
        for (n, block) in given.into_iter().enumerate() {
            assert_eq!(blocks.next(), Some((8 + n as u64) * BYTES as u64));
            blocks.take(block);
        }
        assert_eq!(blocks.next(), None);
        blocks.found()
    };
    assert_eq!(read([Some(&[1; BYTES]), Some(&[2; BYTES])]), Some([[1; BYTES], [2; BYTES]].concat()));
    let found = read([None, Some(&[2; BYTES])]).expect("one is there");
    assert_eq!(found[BYTES..], [2; BYTES]);
    assert_ne!(found[..BYTES], [0; BYTES], "it would pass for blank");
    assert_eq!(read([None, None]), None);
}
