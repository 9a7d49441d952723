//! The file engine, both kinds held to the same behaviour.

use std::collections::HashMap;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::disk_common::{DiskRandom, DiskRig, on_both, with_engine};
use host::buffers::{Buffer, Pool};
use host::disk::{
    AllocationRun, DiskAnswer, DiskOp, EngineKind, ErrorKind, File, FileEngine, Inline, OpName, Part, Parts, is_zero,
};

fn filled(length: usize, byte: u8) -> Arc<Buffer> {
    let mut buffer = Buffer::detached(length);
    buffer.fill(byte);
    Arc::new(buffer)
}

fn write(offset: u64, buffer: &Arc<Buffer>) -> DiskOp {
    DiskOp::Write { offset, parts: Part::whole(buffer.clone()).into(), dsync: false }
}

#[test]
fn written_bytes_come_back_and_reach_the_file() {
    on_both(async |rig: &mut DiskRig| {
        let file = rig.volume(1 << 20);
        for (offset, byte, dsync) in [(0, 1, false), (8192, 2, true)] {
            let parts = Part::whole(filled(8192, byte)).into();
            rig.done(&file, DiskOp::Write { offset, parts, dsync }).await;
        }
        rig.done(&file, DiskOp::Flush).await;
        let read = rig.read(&file, 4096, 8192).await;
        assert_eq!(read.len(), 8192);
        let mut outside = vec![0; 1 << 20];
        std::fs::File::open(file.path()).unwrap().read_exact_at(&mut outside, 0).unwrap();
        assert_eq!(&read[..], &outside[4096..12288]);
        assert!(outside[..8192].iter().all(|byte| *byte == 1));
        assert!(is_zero(&outside[16384..]));
    });
}

#[test]
fn a_write_of_many_parts_lands_in_order_whatever_their_alignment() {
    on_both(async |rig: &mut DiskRig| {
        let file = rig.volume(8 << 20);
        let payload = filled(3 << 20, 3);
        let parts = vec![
            Part::Meta(vec![1; 4096]),
            Part::Shared { buffer: payload.clone(), range: 0..1 << 20 },
            Part::Meta(vec![2; 700]),
            Part::Shared { buffer: payload.clone(), range: 100..100 + 324 },
            Part::Shared { buffer: payload, range: 4096..8192 },
            Part::Meta(vec![4; 512]),
        ];
        let expected: Vec<u8> = parts.iter().flat_map(|part| part.bytes().to_vec()).collect();
        let length = expected.len();
        rig.done(&file, DiskOp::Write { offset: 512, parts: parts.into(), dsync: true }).await;
        assert_eq!(&rig.read(&file, 512, length).await[..], &expected[..]);
    });
}

#[test]
fn more_parts_than_one_call_takes_are_continued() {
    on_both(async |rig: &mut DiskRig| {
        let file = rig.volume(4 << 20);
        let parts: Vec<Part> = (0..2500u32).map(|at| Part::whole(filled(512, at as u8))).collect();
        rig.done(&file, DiskOp::Write { offset: 0, parts: parts.into(), dsync: false }).await;
        let read = rig.read(&file, 0, 2500 * 512).await;
        assert!(read.chunks(512).enumerate().all(|(at, block)| block.iter().all(|byte| *byte == at as u8)));
    });
}

#[test]
fn the_longest_payload_and_the_last_sector_work() {
    on_both(async |rig: &mut DiskRig| {
        let size = (33 << 20) + 512;
        let file = rig.volume(size);
        let large = filled(32 << 20, 9);
        rig.done(&file, write(0, &large)).await;
        assert!(rig.read(&file, 0, 32 << 20).await[..] == large[..]);
        rig.done(&file, write(size - 512, &filled(512, 5))).await;
        assert_eq!(&rig.read(&file, size - 1024, 1024).await[..], &[[0; 512], [5; 512]].concat()[..]);
    });
}

// proves: rule 21
#[test]
fn requests_outside_or_off_the_blocks_are_refused_and_empty_ones_done() {
    on_both(async |rig: &mut DiskRig| {
        let file = rig.volume(8192);
        for (offset, length) in [(8192, 512), (u64::MAX - 511, 512), (7680, 1024), (1, 512), (0, 513)] {
            let ops = [
                DiskOp::Read { offset, buffer: Buffer::detached(length) },
                write(offset, &filled(length, 1)),
                DiskOp::Zero { offset, length: length as u64, no_hole: false },
                DiskOp::BlockStatus { offset, length: length as u64, runs_max: 1 },
            ];
            for op in ops {
                let error = rig.run(&file, op).await.unwrap_err();
                assert_eq!(error.kind, ErrorKind::Invalid, "{offset} {length}");
                assert!(error.to_string().contains(&*file.path().to_string_lossy()));
            }
        }
        rig.done(&file, write(8192, &filled(0, 0))).await;
        rig.done(&file, DiskOp::Zero { offset: 0, length: 0, no_hole: true }).await;
        assert!(rig.read(&file, 0, 0).await.is_empty());
        assert_eq!(std::fs::metadata(file.path()).unwrap().len(), 8192);
    });
}

// proves: rule 16
#[test]
fn zeroed_ranges_read_as_zero_and_holes_show_only_where_allowed() {
    on_both(async |rig: &mut DiskRig| {
        let size = 4 << 20;
        let file = rig.volume(size);
        let ones = filled(size as usize, 1);
        for no_hole in [false, true] {
            rig.done(&file, write(0, &ones)).await;
            rig.done(&file, DiskOp::Flush).await;
            let (offset, length) = (64 << 10, (1 << 20) + 512);
            rig.done(&file, DiskOp::Zero { offset, length, no_hole }).await;
            let read = rig.read(&file, 0, size as usize).await;
            let (start, end) = (offset as usize, (offset + length) as usize);
            assert!(is_zero(&read[start..end]));
            assert!(read[..start].iter().chain(&read[end..]).all(|byte| *byte == 1));
            let allocated = std::fs::metadata(file.path()).unwrap().blocks() * 512;
            assert_eq!(allocated >= size, no_hole, "{allocated} bytes allocated");
        }
    });
}

#[test]
fn the_longest_zeroing_works_while_reads_go_on() {
    on_both(async |rig: &mut DiskRig| {
        let file = rig.volume(5 << 30);
        let length = (4u64 << 30) - 512;
        let offsets = [0, (128 << 20) - 512, 2 << 30, length - 512, length];
        for offset in offsets {
            rig.done(&file, write(offset, &filled(512, 1))).await;
        }
        rig.engine.submit(0, &file, DiskOp::Zero { offset: 0, length, no_hole: false }, Inline::Allowed);
        rig.engine.submit(1, &file, DiskOp::Read { offset: length, buffer: Buffer::detached(512) }, Inline::Allowed);
        rig.engine.kick();
        let mut done = Vec::new();
        while done.len() < 2 {
            done.extend(rig.some_completions().await.into_iter().map(|done| done.result.unwrap()));
        }
        for offset in offsets {
            assert_eq!(is_zero(&rig.read(&file, offset, 512).await), offset < length);
        }
    });
}

#[test]
fn block_status_distinguishes_holes_from_data() {
    on_both(async |rig: &mut DiskRig| {
        let file = rig.volume(1 << 20);
        rig.done(&file, write(64 << 10, &filled(64 << 10, 1))).await;
        rig.done(&file, write(256 << 10, &filled(4096, 1))).await;
        let status = async |rig: &mut DiskRig, offset, length, runs_max| match rig
            .run(&file, DiskOp::BlockStatus { offset, length, runs_max })
            .await
        {
            Ok(DiskAnswer::Runs(runs)) => runs,
            other => panic!("{other:?}"),
        };
        let run = |kib: u64, hole| AllocationRun { length: kib << 10, hole };
        let all = vec![run(64, true), run(64, false), run(128, true), run(4, false), run(764, true)];
        assert_eq!(status(rig, 0, 1 << 20, 100).await, all);
        assert_eq!(status(rig, 0, 1 << 20, 2).await, all[..2]);
        assert_eq!(status(rig, 96 << 10, 64 << 10, 100).await, [run(32, false), run(32, true)]);
        rig.done(&file, DiskOp::Zero { offset: 64 << 10, length: 64 << 10, no_hole: false }).await;
        assert_eq!(status(rig, 0, 1 << 20, 1).await, [run(256, true)]);
    });
}

/// Random requests of all kinds, many in flight, checked against plain memory. Overlapping ones wait for each other, as
/// they do in the engine above.
#[test]
fn random_requests_agree_with_a_model() {
    on_both(async |rig: &mut DiskRig| {
        let size: u64 = 2 << 20;
        let file = rig.volume(size);
        let mut model = vec![0u8; size as usize];
        let mut random = DiskRandom(0x5eed);
        let mut busy = Busy::default();
        for token in 0..1500 {
            let length = (1 + random.below(64)) * 512;
            let offset = random.below((size - length) / 512 + 1) * 512;
            while busy.overlaps(offset, length) || busy.ranges.len() >= 40 {
                busy.drain(rig).await;
            }
            let range = offset as usize..(offset + length) as usize;
            let op = match random.below(8) {
                0..3 => {
                    busy.expected.insert(token, model[range].to_vec());
                    DiskOp::Read { offset, buffer: rig.pool.take(length as usize).unwrap() }
                }
                3..6 => {
                    let byte = random.below(256) as u8;
                    model[range].fill(byte);
                    random_write(&mut random, offset, length as usize, byte)
                }
                6 => {
                    model[range].fill(0);
                    DiskOp::Zero { offset, length, no_hole: random.below(2) == 0 }
                }
                _ => DiskOp::Flush,
            };
            busy.ranges.insert(token, if matches!(op, DiskOp::Flush) { (0, 0) } else { (offset, offset + length) });
            rig.engine.submit(token, &file, op, Inline::Allowed);
            if random.below(3) == 0 {
                rig.engine.kick();
            }
        }
        while !busy.ranges.is_empty() {
            busy.drain(rig).await;
        }
        assert_eq!(rig.engine.pending(), 0);
        assert!(rig.read(&file, 0, size as usize).await[..] == model[..]);
    });
}

fn random_write(random: &mut DiskRandom, offset: u64, length: usize, byte: u8) -> DiskOp {
    let parts = if random.below(2) == 0 {
        let cut = random.below(length as u64) as usize;
        Parts::Many([cut, length - cut].map(|bytes| Part::Meta(vec![byte; bytes])).into())
    } else {
        Parts::One(Part::whole(filled(length, byte)))
    };
    DiskOp::Write { offset, parts, dsync: random.below(4) == 0 }
}

#[derive(Default)]
struct Busy {
    /// Token to first and last byte.
    ranges: HashMap<u64, (u64, u64)>,
    /// What each read must bring.
    expected: HashMap<u64, Vec<u8>>,
}

impl Busy {
    fn overlaps(&self, offset: u64, length: u64) -> bool {
        self.ranges.values().any(|(start, end)| *start < offset + length && offset < *end)
    }

    async fn drain(&mut self, rig: &mut DiskRig) {
        rig.engine.kick();
        for completion in rig.some_completions().await {
            self.ranges.remove(&completion.token).expect("each request completes once");
            if let DiskAnswer::Data(buffer) = completion.result.unwrap() {
                assert!(buffer[..] == self.expected.remove(&completion.token).unwrap()[..]);
            }
        }
    }
}

#[test]
fn more_requests_than_the_ring_is_deep_all_complete() {
    on_both(async |rig: &mut DiskRig| {
        let file = rig.volume(4 << 20);
        for token in 0..1000 {
            rig.engine.submit(token, &file, write(token * 4096, &filled(4096, token as u8)), Inline::Allowed);
        }
        rig.engine.kick();
        let mut tokens: Vec<u64> = Vec::new();
        while tokens.len() < 1000 {
            tokens.extend(rig.some_completions().await.into_iter().map(|done| {
                done.result.unwrap();
                done.token
            }));
        }
        tokens.sort();
        assert!(tokens.into_iter().eq(0..1000));
        let read = rig.read(&file, 0, 1000 * 4096).await;
        assert!(read.chunks(4096).enumerate().all(|(at, page)| page.iter().all(|byte| *byte == at as u8)));
    });
}

#[test]
fn a_modelled_disk_completes_writes_late_without_blocking() {
    on_both(async |rig: &mut DiskRig| {
        let file = rig.volume(1 << 20);
        let latency = Duration::from_millis(30);
        file.model_latency(latency);
        for op in [
            write(0, &filled(4096, 1)),
            DiskOp::Flush,
            DiskOp::Zero { offset: 0, length: 4096, no_hole: false },
            DiskOp::Write { offset: 0, parts: Part::Meta(vec![7; 512]).into(), dsync: true },
        ] {
            let issued = Instant::now();
            rig.done(&file, op).await;
            assert!(issued.elapsed() >= latency);
        }
        // The thread goes on: a read passes the writes that are held back.
        for token in 0..10 {
            rig.engine.submit(token, &file, write(token * 4096, &filled(4096, 2)), Inline::Allowed);
        }
        rig.engine.submit(10, &file, DiskOp::Read { offset: 65536, buffer: Buffer::detached(512) }, Inline::Allowed);
        rig.engine.kick();
        let mut out = Vec::new();
        while out.len() < 11 {
            out.extend(rig.some_completions().await);
        }
        assert!(out.iter().filter(|done| done.token < 10).all(|done| done.elapsed >= latency));
        file.model_latency(Duration::ZERO);
        rig.done(&file, write(0, &filled(4096, 3))).await;
        assert_eq!(rig.read(&file, 0, 512).await[0], 3);
    });
}

#[test]
fn a_truncated_file_is_named() {
    on_both(async |rig: &mut DiskRig| {
        let file = rig.volume(1 << 20);
        std::fs::OpenOptions::new().write(true).open(file.path()).unwrap().set_len(4096).unwrap();
        let error = rig.run(&file, DiskOp::Read { offset: 0, buffer: Buffer::detached(8192) }).await.unwrap_err();
        assert_eq!((error.kind, error.op), (ErrorKind::Truncated, OpName::Read));
    });
}

#[test]
fn an_engine_dropped_with_requests_in_flight_lets_go_of_their_memory() {
    on_both(async |rig: &mut DiskRig| {
        let file = rig.volume(16 << 20);
        for token in 0..64 {
            let buffer = rig.pool.take(128 << 10).unwrap();
            rig.engine.submit(token, &file, DiskOp::Read { offset: token * (128 << 10), buffer }, Inline::Forbidden);
        }
        rig.engine.kick();
        rig.engine = FileEngine::new(rig.engine.kind()).unwrap();
        assert_eq!(rig.pool.outstanding_bytes(), 0);
        assert_eq!(Arc::strong_count(&file), 1);
    });
}

#[test]
fn waiting_does_not_need_the_engine_and_every_completion_wakes() {
    on_both(async |rig: &mut DiskRig| {
        let file = rig.volume(1 << 20);
        // Enough lone requests that the pace is known and, on a fast disk, some run inline.
        for round in 0..200u64 {
            let readiness = rig.engine.readiness();
            let waiting = tokio::task::spawn_local(async move { readiness.wait().await });
            tokio::task::yield_now().await;
            rig.engine.submit(round, &file, write(0, &filled(4096, round as u8)), Inline::Allowed);
            rig.engine.kick();
            waiting.await.unwrap();
            assert_eq!(rig.some_completions().await[0].token, round);
        }
    });
}

#[test]
fn auto_takes_the_ring_where_it_works() {
    let works = with_engine(EngineKind::Uring, async |_: &mut DiskRig| {}).is_ok();
    let expected = if works { EngineKind::Uring } else { EngineKind::Pool };
    with_engine(EngineKind::Auto, async |rig: &mut DiskRig| assert_eq!(rig.engine.kind(), expected)).unwrap();
}

#[test]
fn memory_and_files_may_be_shared_between_threads() {
    fn shareable<T: Send + Sync>() {}
    shareable::<Buffer>();
    shareable::<Pool>();
    shareable::<File>();
}

/// Forbids some of io_uring's system calls to the calling thread and those it starts, as container runtimes do.
fn forbid_io_uring(calls: [u32; 3]) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let equals = |k: u32, jt: u8| libc::sock_filter { jt, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k) };
    let mut program = [
        // The system call's number is the first word of what the filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        equals(calls[0], 3),
        equals(calls[1], 2),
        equals(calls[2], 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: both calls change only this thread's own privileges; the program is complete and outlives the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}

#[test]
fn where_io_uring_is_forbidden_the_workers_take_over() {
    let (setup, enter, register) = (425, 426, 427);
    // All of it, as usual; and each alone, where setting a ring up may still work.
    for calls in [[setup, enter, register], [setup; 3], [enter; 3], [register; 3]] {
        // A filter binds one thread and its children: the other tests keep their ring.
        std::thread::spawn(move || works_without_ring(calls)).join().unwrap();
    }
}

fn works_without_ring(forbidden: [u32; 3]) {
    forbid_io_uring(forbidden);
    let refused = with_engine(EngineKind::Uring, async |_: &mut DiskRig| {}).unwrap_err();
    assert!(refused.to_string().contains("\"pool\""), "{refused}");
    with_engine(EngineKind::Auto, async |rig: &mut DiskRig| {
        assert_eq!(rig.engine.kind(), EngineKind::Pool);
        let file = rig.volume(1 << 20);
        for offset in (0..1 << 20).step_by(64 << 10) {
            rig.engine.submit(offset, &file, write(offset, &filled(64 << 10, 7)), Inline::Allowed);
        }
        rig.engine.kick();
        let mut done = 0;
        while done < 16 {
            for completion in rig.some_completions().await {
                completion.result.unwrap();
                done += 1;
            }
        }
        rig.done(&file, DiskOp::Flush).await;
        assert!(rig.read(&file, 0, 1 << 20).await.iter().all(|byte| *byte == 7));
    })
    .unwrap();
}
