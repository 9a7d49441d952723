//! One fault each, injected into images that are sound: the check must see it, and name the first.

use crate::common::{Disks, RUN};
use witness::{
    PrefixVerdict, RunId, SECTOR_BYTES, SectorPosition, Violation, VolumeImage, VolumeNumber, WriteHistory, WriteName,
    WriteRecorder, WriterId, check,
};

const SECTORS: u64 = 64;

fn name(writer: u32, number: u64) -> WriteName {
    WriteName { writer: WriterId(writer), number }
}

fn position(volume: u32, sector: u64) -> SectorPosition {
    SectorPosition { volume: VolumeNumber(volume), offset_bytes: sector * SECTOR_BYTES as u64 }
}

/// A recorder with disks that do at once what they are told.
struct WitnessBench {
    recorder: WriteRecorder,
    disks: Disks,
    empty: Disks,
}

impl WitnessBench {
    fn new() -> Self {
        let empty = Disks::new(3, SECTORS);
        Self { recorder: WriteRecorder::new(RUN), disks: empty.clone(), empty }
    }

    /// One acknowledged write; its stamped bytes come back.
    fn write(&mut self, writer: u32, volume: u32, sector: u64, sectors: u32) -> Vec<u8> {
        let at = sector * SECTOR_BYTES as u64;
        let length = sectors * SECTOR_BYTES as u32;
        let ticket = self.recorder.issue(WriterId(writer), VolumeNumber(volume), at, length);
        let mut bytes = vec![0; length as usize];
        ticket.stamp(&mut bytes);
        self.disks.volume(VolumeNumber(volume))[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        self.recorder.acknowledge(ticket);
        bytes
    }

    fn history(&self) -> WriteHistory {
        self.recorder.history()
    }

    fn broken(&self) -> Violation {
        match self.disks.check(&self.history()) {
            PrefixVerdict::Broken(violation) => violation,
            PrefixVerdict::Prefix(report) => panic!("the fault was not seen: {report:?}"),
        }
    }

    fn lost(&self) -> u64 {
        match self.disks.check(&self.history()) {
            PrefixVerdict::Prefix(report) => report.lost_writes,
            PrefixVerdict::Broken(violation) => panic!("{violation}"),
        }
    }
}

/// Ten rounds over three volumes, eight sectors each time, every volume wrapping once.
fn ten_rounds() -> WitnessBench {
    let mut bench = WitnessBench::new();
    for round in 0..10 {
        for volume in 0..3 {
            bench.write(volume, volume, (round * 8) % SECTORS, 8);
        }
    }
    bench
}

#[test]
fn sound_images_lose_nothing_and_empty_ones_lose_all() {
    let mut bench = ten_rounds();
    let PrefixVerdict::Prefix(report) = bench.disks.check(&bench.history()) else { panic!("sound images") };
    assert_eq!((report.lost_writes, report.included_writes, report.lost_first), (0, 30, None));
    assert!(report.newest.iter().all(|newest| newest.included == 10 && newest.acknowledged == 10));
    bench.disks = bench.empty.clone();
    let PrefixVerdict::Prefix(report) = bench.disks.check(&bench.history()) else { panic!("nothing is a prefix") };
    assert_eq!((report.lost_writes, report.included_writes), (30, 0));
    assert_eq!((report.lost_first, report.lost_bytes), (Some(name(0, 1)), 30 * 8 * 512));
}

#[test]
fn swapped_blocks_are_each_at_a_wrong_position() {
    let mut bench = ten_rounds();
    let one = bench.disks.sector(1, 20).to_vec();
    let other = bench.disks.sector(1, 33).to_vec();
    bench.disks.sector(1, 20).copy_from_slice(&other);
    bench.disks.sector(1, 33).copy_from_slice(&one);
    let expected = Violation::Misplaced { position: position(1, 20), name: name(1, 5), belongs: position(1, 33) };
    assert_eq!(bench.broken(), expected);
}

#[test]
fn a_block_of_another_volume_is_at_a_wrong_position() {
    let mut bench = ten_rounds();
    let stray = bench.disks.sector(2, 40).to_vec();
    bench.disks.sector(0, 40).copy_from_slice(&stray);
    let expected = Violation::Misplaced { position: position(0, 40), name: name(2, 6), belongs: position(2, 40) };
    assert_eq!(bench.broken(), expected);
}

#[test]
fn a_missing_write_is_named_with_the_later_one_that_is_there() {
    let mut bench = ten_rounds();
    // Write 5 of volume 1 never arrived; everything after it did.
    for sector in 32..40 {
        bench.disks.sector(1, sector).fill(0);
    }
    let expected = Violation::Missing {
        position: position(1, 32),
        name: name(1, 5),
        found: None,
        later: name(2, 10),
        later_seen: position(2, 8),
    };
    assert_eq!(bench.broken(), expected);
}

#[test]
fn the_first_of_several_missing_writes_is_the_first_issued() {
    let mut bench = ten_rounds();
    for (volume, sector) in [(0, 56), (2, 24), (1, 48)] {
        for sector in sector..sector + 8 {
            bench.disks.sector(volume, sector).fill(0);
        }
    }
    assert!(matches!(bench.broken(), Violation::Missing { name: first, .. } if first == name(2, 4)));
}

#[test]
fn volumes_stopped_at_different_instants_are_no_prefix() {
    let mut bench = WitnessBench::new();
    bench.write(0, 0, 0, 4);
    let early = bench.disks.clone();
    bench.write(0, 0, 4, 4);
    bench.write(1, 1, 0, 4);
    // Volume 0 as it was early, volume 1 as it is late.
    *bench.disks.volume(VolumeNumber(0)) = early.0[&0].clone();
    let expected = Violation::Missing {
        position: position(0, 4),
        name: name(0, 2),
        found: None,
        later: name(1, 1),
        later_seen: position(1, 0),
    };
    assert_eq!(bench.broken(), expected);
}

#[test]
fn a_torn_write_is_seen_even_when_it_is_the_last() {
    let mut bench = ten_rounds();
    let last = bench.write(1, 2, 40, 8);
    bench.write(1, 2, 40, 8);
    bench.disks.volume(VolumeNumber(2))[44 * 512..48 * 512].copy_from_slice(&last[4 * 512..]);
    let expected = Violation::Torn {
        position: position(2, 44),
        name: name(1, 12),
        found: Some(name(1, 11)),
        seen: position(2, 40),
    };
    assert_eq!(bench.broken(), expected);
}

#[test]
fn a_stale_block_under_a_newer_write_is_torn() {
    let mut bench = WitnessBench::new();
    let old = bench.write(0, 0, 0, 8);
    bench.write(0, 0, 0, 8);
    bench.disks.sector(0, 3).copy_from_slice(&old[3 * 512..4 * 512]);
    let expected =
        Violation::Torn { position: position(0, 3), name: name(0, 2), found: Some(name(0, 1)), seen: position(0, 0) };
    assert_eq!(bench.broken(), expected);
}

#[test]
fn an_overwritten_block_that_came_back_is_stale() {
    let mut bench = WitnessBench::new();
    let old = bench.write(0, 0, 0, 1);
    bench.write(0, 0, 0, 1);
    bench.write(1, 1, 0, 1);
    bench.disks.sector(0, 0).copy_from_slice(&old);
    let found = bench.broken();
    assert!(
        matches!(&found, Violation::Missing { name: n, found: Some(f), .. } if *n == name(0, 2) && *f == name(0, 1))
    );
    assert!(found.to_string().contains("write 2 of writer 0 is missing"), "{found}");
}

#[test]
fn a_flipped_bit_and_half_a_sector_are_damage() {
    let mut bench = ten_rounds();
    bench.disks.sector(1, 17)[300] ^= 4;
    assert_eq!(bench.broken(), Violation::Damaged { position: position(1, 17), claims: name(1, 3) });
    let mut bench = ten_rounds();
    bench.disks.sector(0, 63)[256..].fill(0);
    assert_eq!(bench.broken(), Violation::Damaged { position: position(0, 63), claims: name(0, 8) });
}

#[test]
fn bytes_that_nobody_wrote_are_garbage() {
    let mut bench = WitnessBench::new();
    bench.write(0, 0, 0, 1);
    bench.disks.sector(2, 9)[0] = 1;
    assert_eq!(bench.broken(), Violation::Garbage { position: position(2, 9) });
}

#[test]
fn writes_of_another_run_or_unknown_to_the_log_are_named() {
    let mut bench = WitnessBench::new();
    let other = WriteRecorder::new(RunId(9));
    let ticket = other.issue(WriterId(0), VolumeNumber(0), 0, 512);
    ticket.stamp(bench.disks.sector(0, 0));
    assert_eq!(bench.broken(), Violation::Foreign { position: position(0, 0), run: RunId(9) });
    let same_run = WriteRecorder::new(RUN);
    let ticket = same_run.issue(WriterId(0), VolumeNumber(0), 0, 512);
    ticket.stamp(bench.disks.sector(0, 0));
    assert_eq!(bench.broken(), Violation::Unknown { position: position(0, 0), name: name(0, 1) });
}

#[test]
fn concurrent_overlaps_may_land_either_way_but_one_way() {
    let recorder = WriteRecorder::new(RUN);
    let first = recorder.issue(WriterId(0), VolumeNumber(0), 0, 1024);
    let second = recorder.issue(WriterId(1), VolumeNumber(0), 0, 1024);
    let mut bytes = [vec![0; 1024], vec![0; 1024]];
    first.stamp(&mut bytes[0]);
    second.stamp(&mut bytes[1]);
    recorder.acknowledge(second);
    recorder.acknowledge(first);
    let history = recorder.history();
    for whole in &bytes {
        let images = vec![VolumeImage::new(VolumeNumber(0), whole.as_slice())];
        let verdict = check(&history, images).expect("readable");
        assert!(matches!(verdict, PrefixVerdict::Prefix(report) if report.lost_writes == 0));
    }
    let mixed = [&bytes[0][..512], &bytes[1][512..]].concat();
    let verdict = check(&history, vec![VolumeImage::new(VolumeNumber(0), mixed.as_slice())]).expect("readable");
    assert!(matches!(verdict, PrefixVerdict::Broken(Violation::Disorder { names, .. }) if names.len() == 2));
}

#[test]
fn a_write_of_unknown_outcome_may_be_in_or_out_but_not_half() {
    let mut bench = WitnessBench::new();
    bench.write(0, 0, 0, 2);
    let ticket = bench.recorder.issue(WriterId(0), VolumeNumber(0), 0, 1024);
    let mut bytes = vec![0; 1024];
    ticket.stamp(&mut bytes);
    bench.recorder.fail(ticket);
    bench.write(0, 1, 0, 1);
    assert_eq!(bench.lost(), 0);
    bench.disks.volume(VolumeNumber(0))[..1024].copy_from_slice(&bytes);
    assert_eq!(bench.lost(), 0);
    bench.disks.sector(0, 0).fill(0);
    assert!(matches!(bench.broken(), Violation::Torn { .. } | Violation::Missing { .. }));
}

#[test]
fn a_base_other_than_zeroes_may_show_where_nothing_was_written() {
    let mut base = vec![7_u8; 4 * 512];
    let earlier = WriteRecorder::new(RunId(1)).issue(WriterId(0), VolumeNumber(0), 512, 512);
    earlier.stamp(&mut base[512..1024]);
    let recorder = WriteRecorder::new(RUN);
    let ticket = recorder.issue(WriterId(0), VolumeNumber(0), 0, 512);
    let mut image = base.clone();
    ticket.stamp(&mut image[..512]);
    recorder.acknowledge(ticket);
    let check = |image: &[u8]| {
        let image = VolumeImage::new(VolumeNumber(0), image).on_base(base.as_slice());
        check(&recorder.history(), vec![image]).expect("readable")
    };
    assert!(matches!(check(&image), PrefixVerdict::Prefix(report) if report.lost_writes == 0));
    assert!(matches!(check(&base), PrefixVerdict::Prefix(report) if report.lost_writes == 1));
    image[1536..].fill(0);
    assert_eq!(check(&image), PrefixVerdict::Broken(Violation::Garbage { position: position(0, 3) }));
}

#[test]
fn a_short_image_and_an_absent_one_are_refused() {
    let bench = ten_rounds();
    let short = &bench.disks.0[&1][..SECTOR_BYTES * 10];
    let images = |second| {
        let whole = |volume: u32| VolumeImage::new(VolumeNumber(volume), bench.disks.0[&volume].as_slice());
        vec![whole(0), VolumeImage::new(VolumeNumber(1), second), whole(2)]
    };
    let verdict = check(&bench.history(), images(short)).expect("readable");
    let needed_bytes = SECTORS * SECTOR_BYTES as u64;
    let expected = Violation::Short { volume: VolumeNumber(1), size_bytes: SECTOR_BYTES as u64 * 10, needed_bytes };
    assert_eq!(verdict, PrefixVerdict::Broken(expected));
    let mut absent = images(bench.disks.0[&1].as_slice());
    absent.pop();
    let error = check(&bench.history(), absent).expect_err("an image is not given");
    assert!(error.to_string().contains("volume 2"), "{error}");
}

#[test]
fn the_file_says_what_the_memory_says() {
    let path = std::env::temp_dir().join(format!("witness-log-{}", std::process::id()));
    let recorder = WriteRecorder::with_file(RUN, &path).expect("a new file");
    for round in 0..20 {
        let ticket = recorder.issue(WriterId(round % 3), VolumeNumber(round % 2), u64::from(round) * 512, 512);
        if round % 5 == 4 { recorder.fail(ticket) } else { recorder.acknowledge(ticket) }
    }
    recorder.saved().expect("no append failed");
    let text = std::fs::read_to_string(&path).expect("the file");
    std::fs::remove_file(&path).expect("the file is ours");
    assert_eq!(WriteHistory::read(text.as_bytes()).expect("a log"), recorder.history());
    // Killed in the middle of a line: the write it was about to announce was not sent, the rest stands.
    let torn = WriteHistory::read(&text.as_bytes()[..text.len() - 3]).expect("a log");
    assert_eq!(torn.writes.len(), 19);
    let nonsense = text.replace("i 1 1 ", "i 1 one ");
    let error = WriteHistory::read(nonsense.as_bytes()).expect_err("nonsense");
    assert!(error.to_string().contains("line 4"), "{error}");
    let mut both = recorder.history();
    assert!(both.merge(recorder.history()).is_err());
}
