//! A disk that kept this and forgot that: promises are checked, and nothing but promises.

use std::collections::HashSet;

use crate::common::{CaseRandom, Disks, HistoryShape, Payloads, RUN, draw};
use witness::{
    SECTOR_BYTES, Violation, VolumeImage, VolumeNumber, WriteHistory, WriteName, WriteRecorder, WriteTicket, WriterId,
    check_kept,
};

fn check(disks: &Disks, history: &WriteHistory, promised: &[WriteName]) -> Result<(), Violation> {
    let images =
        disks.0.iter().map(|(&volume, bytes)| VolumeImage::new(VolumeNumber(volume), bytes.as_slice())).collect();
    check_kept(history, &promised.iter().copied().collect(), images).expect("images in memory can be read")
}

fn issue(recorder: &WriteRecorder, disks: &mut Disks, sectors: std::ops::Range<usize>) -> WriteTicket {
    let (at, length) = (sectors.start * SECTOR_BYTES, sectors.len() * SECTOR_BYTES);
    let ticket = recorder.issue(WriterId(1), VolumeNumber(0), at as u64, length as u32);
    ticket.stamp(&mut disks.volume(VolumeNumber(0))[at..at + length]);
    ticket
}

#[test]
fn a_promised_write_may_be_hidden_by_a_later_or_concurrent_one_only() {
    let (recorder, mut disks) = (WriteRecorder::new(RUN), Disks::new(1, 8));
    let old = issue(&recorder, &mut disks, 0..4);
    let before = disks.clone();
    recorder.acknowledge(old);
    let beside = issue(&recorder, &mut disks, 2..4);
    let promised = issue(&recorder, &mut disks, 0..3);
    let name = promised.name();
    recorder.acknowledge(promised);
    recorder.acknowledge(beside);
    let history = recorder.history();
    assert_eq!(check(&disks, &history, &[name]), Ok(()));

    assert_eq!(check(&before, &history, &[]), Ok(()), "nothing was promised");
    let Err(Violation::Forgotten { position, name: lost, found: Some(found) }) = check(&before, &history, &[name])
    else {
        panic!("the old write is there in its place");
    };
    assert_eq!((position.offset_bytes, lost, found.number), (0, name, 1));

    let mut torn = disks.clone();
    torn.sector(0, 1).fill(0);
    let Err(Violation::Forgotten { position, found: None, .. }) = check(&torn, &history, &[name]) else {
        panic!("one sector is missing");
    };
    assert_eq!(position.offset_bytes, SECTOR_BYTES as u64);
    torn.sector(0, 1).fill(7);
    assert!(matches!(check(&torn, &history, &[name]), Err(Violation::Garbage { .. })));
}

#[test]
fn a_promise_that_is_not_in_the_log_is_refused() {
    let history = WriteRecorder::new(RUN).history();
    let promised = HashSet::from([WriteName { writer: WriterId(1), number: 1 }]);
    assert!(check_kept(&history, &promised, Vec::new()).is_err());
}

/// What took effect up to a flush is kept whole, of the rest each sector or not: every promise of that flush holds. And
/// when one sector of it goes back to what was there before all, that is seen, unless a later write had it anyway.
#[test]
fn drawn_losses_are_checked_by_what_was_acknowledged_before_the_flush() {
    let mut seen = 0;
    for seed in 0..300 {
        let mut chance = CaseRandom::new(seed);
        let shape = HistoryShape { volumes: 2, sectors: 16, length_max: 4, writers: 3, depth: 3, writes: 40 };
        let (history, payloads, order) = draw(&mut chance, &shape);
        let flushed = chance.below(order.len() as u64) as usize;
        // The flush is issued before anything that takes effect after it was acknowledged.
        let rest = || order[flushed..].iter().map(|&write| history.writes[write].acknowledged);
        let tick = rest().map(|tick| tick.unwrap_or(u64::MAX)).min().unwrap_or(u64::MAX);
        let promised: Vec<_> =
            history.writes.iter().filter(|write| write.acknowledged.is_some_and(|acked| acked < tick)).collect();
        let names: Vec<WriteName> = promised.iter().map(|write| write.name).collect();
        let mut disks = Disks::new(2, 16);
        apply(&mut disks, &history, &payloads, &order[..flushed], |_| true);
        apply(&mut disks, &history, &payloads, &order[flushed..], |_| chance.one_in(2));
        assert_eq!(check(&disks, &history, &names), Ok(()), "seed {seed}");
        if let Some(write) = promised.last() {
            disks.sector(write.volume.0, write.offset_bytes as usize / SECTOR_BYTES).fill(0);
            assert!(matches!(check(&disks, &history, &names), Err(Violation::Forgotten { .. })), "seed {seed}");
            seen += 1;
        }
    }
    assert!(seen > 100, "only {seen} seeds had something promised");
}

fn apply(
    disks: &mut Disks,
    history: &WriteHistory,
    payloads: &Payloads,
    order: &[usize],
    mut is_kept: impl FnMut(usize) -> bool,
) {
    for &index in order {
        let write = &history.writes[index];
        for (number, sector) in payloads.0[index].chunks(SECTOR_BYTES).enumerate() {
            if is_kept(number) {
                let at = write.offset_bytes as usize + number * SECTOR_BYTES;
                disks.volume(write.volume)[at..at + SECTOR_BYTES].copy_from_slice(sector);
            }
        }
    }
}
