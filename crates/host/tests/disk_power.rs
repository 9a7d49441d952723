//! What the file engine calls durable survives a power loss, on either of its kinds; what it does not, need not: the
//! store under it forgets all of that, so each row shows both.

use std::path::Path;
use std::sync::Arc;

use crate::disk_common::{DiskRig, on_a_store};
use forgetful::{Fate, ForgetfulStore};
use host::buffers::Buffer;
use host::disk::meta::{create_or_open_meta, make_directory};
use host::disk::volume::{VolumeOptions, open_volume};
use host::disk::{DiskOp, File, Inline, Part};

const PAGE: u64 = 4096;
const SIZE: u64 = 64 * PAGE;

fn write(page: u64, pages: u64, byte: u8, dsync: bool) -> DiskOp {
    let mut buffer = Buffer::detached((pages * PAGE) as usize);
    buffer.fill(byte);
    DiskOp::Write { offset: page * PAGE, parts: Part::whole(Arc::new(buffer)).into(), dsync }
}

fn zero(page: u64, no_hole: bool) -> DiskOp {
    DiskOp::Zero { offset: page * PAGE, length: PAGE, no_hole }
}

/// A durable volume full of ones.
async fn volume(rig: &mut DiskRig, path: &Path, options: VolumeOptions) -> Arc<File> {
    std::fs::write(path, vec![1; SIZE as usize]).unwrap();
    std::fs::File::open(path).unwrap().sync_all().unwrap();
    std::fs::File::open(path.parent().unwrap()).unwrap().sync_all().unwrap();
    let file = Arc::new(open_volume(path, options).unwrap());
    assert_eq!(file.direct(), !options.buffered);
    // Now it is known to be fast: lone requests run inline.
    rig.read(&file, 0, PAGE as usize).await;
    file
}

fn lose_all(store: &ForgetfulStore) -> u64 {
    let loss = store.cut_power(Fate::AllLost);
    store.restore_power();
    loss.forgotten_bytes
}

fn first_bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap().chunks(PAGE as usize).map(|page| page[0]).collect()
}

// proves: P4
#[test]
fn a_flush_and_a_durable_write_survive() {
    on_a_store("a_flush_and_a_durable_write_survive", async |rig, store, directory, options| {
        let path = directory.join("volume");
        let file = volume(rig, &path, options).await;
        for op in [write(0, 1, 2, false), zero(1, false), zero(2, true), DiskOp::Flush] {
            rig.done(&file, op).await;
        }
        for op in [write(3, 1, 3, false), write(4, 8, 4, true), zero(12, false), zero(13, true)] {
            rig.done(&file, op).await;
        }
        drop(file);
        let before = first_bytes(&path);
        assert_eq!(before[..15], [2, 0, 0, 3, 4, 4, 4, 4, 4, 4, 4, 4, 0, 0, 1]);
        assert_eq!(lose_all(store), 3 * PAGE);
        let after = first_bytes(&path);
        assert_eq!(after[..15], [2, 0, 0, 1, 4, 4, 4, 4, 4, 4, 4, 4, 1, 1, 1]);
    });
}

// proves: P4
#[test]
fn durable_writes_in_flight_together_each_survive() {
    on_a_store("durable_writes_in_flight_together_each_survive", async |rig, store, directory, options| {
        let path = directory.join("volume");
        let file = volume(rig, &path, options).await;
        for page in 0..SIZE / PAGE {
            rig.engine.submit(page, &file, write(page, 1, 2 + page as u8, page % 2 == 0), Inline::Allowed);
        }
        rig.engine.kick();
        let mut done = 0;
        while done < SIZE / PAGE {
            for completion in rig.some_completions().await {
                completion.result.unwrap();
                done += 1;
            }
        }
        drop(file);
        assert_eq!(lose_all(store), SIZE / 2);
        let expected = (0..SIZE / PAGE).map(|page| if page % 2 == 0 { 2 + page as u8 } else { 1 });
        assert_eq!(first_bytes(&path), expected.collect::<Vec<_>>());
    });
}

#[test]
fn a_state_file_and_its_directory_are_there_whole_once_they_were_made() {
    on_a_store(
        "a_state_file_and_its_directory_are_there_whole_once_they_were_made",
        async |rig, store, directory, _| {
            let folder = directory.join("group");
            make_directory(&folder).unwrap();
            let path = folder.join("journal");
            drop(create_or_open_meta(&path, SIZE).unwrap());
            lose_all(store);
            assert_eq!(std::fs::read(&path).unwrap(), vec![0; SIZE as usize]);
            let made = create_or_open_meta(&path, SIZE).unwrap();
            assert!(!made.created);
            rig.done(&Arc::new(made.file), write(0, 1, 9, true)).await;
            lose_all(store);
            assert_eq!(first_bytes(&path)[..2], [9, 0]);
        },
    );
}

#[test]
fn a_state_file_that_is_found_keeps_its_name() {
    on_a_store("a_state_file_that_is_found_keeps_its_name", async |_, store, directory, _| {
        let folder = directory.join("group");
        make_directory(&folder).unwrap();
        let path = folder.join("superblock");
        drop(create_or_open_meta(&path, SIZE).unwrap());
        // As if it had got its name right before its maker was killed.
        let before = folder.join("superblock.creating");
        std::fs::rename(&path, &before).unwrap();
        std::fs::File::open(&folder).unwrap().sync_all().unwrap();
        std::fs::rename(&before, &path).unwrap();
        assert!(!create_or_open_meta(&path, SIZE).unwrap().created);
        lose_all(store);
        assert!(path.exists(), "the node would take itself for a new one");
    });
}
