//! A device that answers nothing, beside one that answers: on either kind of file engine the other one is served as
//! before, and the thread waits for neither.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::disk_common::{DiskRig, on_both, skip};
use forgetful::ForgetfulStore;
use host::buffers::Buffer;
use host::disk::volume::{VolumeOptions, open_volume};
use host::disk::{DiskOp, File, Inline, Part};

const PAGE: u64 = 4096;
const SIZE: u64 = 4 << 20;
/// What takes longer has failed.
const DEADLINE: Duration = Duration::from_secs(20);

/// The test with a volume on a store of its own.
fn beside_a_store(test: &str, body: impl AsyncFn(&mut DiskRig, &ForgetfulStore, Arc<File>)) {
    if let Some(needed) = forgetful::missing() {
        return skip(test, needed);
    }
    on_both(async |rig: &mut DiskRig| {
        let directory = rig.directory.path().join("store");
        std::fs::create_dir(&directory).unwrap();
        let store = ForgetfulStore::mount(&directory).unwrap();
        let file = volume(&directory.join("volume"));
        // Now it is known how fast it is.
        for page in 0..100 {
            rig.read(&file, page * PAGE, PAGE as usize).await;
        }
        body(rig, &store, file).await;
    });
}

fn volume(path: &Path) -> Arc<File> {
    std::fs::write(path, vec![1; SIZE as usize]).unwrap();
    Arc::new(open_volume(path, VolumeOptions::default()).unwrap())
}

fn read(page: u64) -> DiskOp {
    DiskOp::Read { offset: page * PAGE, buffer: Buffer::detached(PAGE as usize) }
}

fn write(page: u64, dsync: bool) -> DiskOp {
    let mut buffer = Buffer::detached(PAGE as usize);
    buffer.fill(7);
    DiskOp::Write { offset: page * PAGE, parts: Part::whole(Arc::new(buffer)).into(), dsync }
}

fn zero(page: u64) -> DiskOp {
    DiskOp::Zero { offset: page * PAGE, length: PAGE, no_hole: true }
}

/// What happens while the store hangs. Should it hold this thread, the store's requests fail in the end, and the test does.
fn in_time<T>(store: &ForgetfulStore, action: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (done, watch) = channel::<()>();
        scope.spawn(move || {
            if watch.recv_timeout(DEADLINE) == Err(RecvTimeoutError::Timeout) {
                store.fail_requests();
            }
        });
        let started = Instant::now();
        let result = action();
        drop(done);
        let took = started.elapsed();
        assert!(took < DEADLINE, "the thread was held for {took:?}");
        result
    })
}

/// All kinds of requests, each answered; the token of [`DiskRig::run`] tells them from those of the store.
async fn is_served(rig: &mut DiskRig, file: &Arc<File>) {
    for page in 0..20 {
        rig.done(file, write(page, page % 2 == 0)).await;
        assert!(rig.read(file, page * PAGE, PAGE as usize).await.iter().all(|byte| *byte == 7));
        rig.done(file, DiskOp::Flush).await;
    }
    rig.done(file, zero(3)).await;
    rig.run(file, DiskOp::BlockStatus { offset: 0, length: SIZE, runs_max: 10 }).await.unwrap();
    assert!(rig.read(file, 3 * PAGE, PAGE as usize).await.iter().all(|byte| *byte == 0));
    for token in 1000..1400 {
        rig.engine.submit(token, file, write(token % 256, false), Inline::Allowed);
    }
    rig.engine.kick();
    let mut done = 0;
    while done < 400 {
        for completion in rig.some_completions().await {
            assert!(completion.token >= 1000, "the store answered");
            completion.result.unwrap();
            done += 1;
        }
    }
}

/// Collects so many answers of the store.
async fn drain(rig: &mut DiskRig, mut left: usize) {
    while left > 0 {
        for completion in rig.some_completions().await {
            completion.result.unwrap();
            left -= 1;
        }
    }
    assert_eq!(rig.engine.pending(), 0);
}

#[test]
fn a_device_that_hangs_leaves_slots_and_workers_to_the_others() {
    beside_a_store("a_device_that_hangs_leaves_slots_and_workers_to_the_others", async |rig, store, hung| {
        let file = volume(&rig.directory.path().join("volume"));
        is_served(rig, &file).await;
        store.hang();
        let kinds: [fn(u64) -> DiskOp; 5] =
            [read, |page| write(page, false), |page| write(page, true), |_| DiskOp::Flush, zero];
        // More of each kind than there are places for all of them, in turns of every size.
        let mut asked = 0;
        for kind in kinds {
            for page in 0..600 {
                rig.engine.submit(page, &hung, kind(page), Inline::Allowed);
                asked += 1;
                if page % 7 == 0 {
                    in_time(store, || rig.engine.kick());
                }
            }
        }
        in_time(store, || rig.engine.kick());
        is_served(rig, &file).await;
        assert_eq!(rig.engine.pending(), asked);
        store.answer_again();
        drain(rig, asked).await;
        is_served(rig, &hung).await;
    });
}

#[test]
fn a_device_that_hangs_at_a_lone_request_holds_the_thread_for_a_moment() {
    beside_a_store("a_device_that_hangs_at_a_lone_request_holds_the_thread_for_a_moment", async |rig, store, hung| {
        store.hang();
        for token in 0..3 {
            rig.engine.submit(token, &hung, read(token), Inline::Allowed);
            in_time(store, || rig.engine.kick());
        }
        let file = volume(&rig.directory.path().join("volume"));
        is_served(rig, &file).await;
        store.answer_again();
        drain(rig, 3).await;
    });
}

/// How long a lone read takes beside a device that hangs, and before: printed, as no machine promises it.
#[test]
fn lone_reads_are_as_fast_beside_a_device_that_hangs() {
    beside_a_store("lone_reads_are_as_fast_beside_a_device_that_hangs", async |rig, store, hung| {
        let file = volume(&rig.directory.path().join("volume"));
        let mut medians = Vec::new();
        for hangs in [false, true] {
            if hangs {
                store.hang();
                (0..600).for_each(|page| rig.engine.submit(page, &hung, read(page), Inline::Allowed));
                in_time(store, || rig.engine.kick());
                std::thread::sleep(Duration::from_millis(100));
            }
            let mut took = Vec::new();
            for page in 0..2000 {
                let started = Instant::now();
                rig.read(&file, page % 1024 * PAGE, PAGE as usize).await;
                took.push(started.elapsed());
            }
            took.sort_unstable();
            println!("{:?}, hangs: {hangs}: median {:?}, p99 {:?}", rig.engine.kind(), took[1000], took[1980]);
            medians.push(took[1000]);
        }
        // Ten times would be a machine that is busy; what hangs makes it seconds.
        assert!(medians[1] < medians[0] * 10 + Duration::from_millis(10), "{medians:?}");
        store.answer_again();
        drain(rig, 600).await;
    });
}
