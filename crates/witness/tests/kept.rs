//! A disk that kept this and forgot that: promises are judged, and nothing but promises.

use std::collections::HashSet;

use crate::common::{Chance, Disks, Payloads, RUN, Shape, draw};
use witness::{History, Image, Recorder, SECTOR_BYTES, Ticket, Violation, VolumeId, WriteName, WriterId, check_kept};

fn judge(disks: &Disks, history: &History, promised: &[WriteName]) -> Result<(), Violation> {
    let images = disks.0.iter().map(|(&volume, bytes)| Image::new(VolumeId(volume), bytes.as_slice())).collect();
    check_kept(history, &promised.iter().copied().collect(), images).expect("images in memory can be read")
}

fn issue(recorder: &Recorder, disks: &mut Disks, sectors: std::ops::Range<usize>) -> Ticket {
    let (at, length) = (sectors.start * SECTOR_BYTES, sectors.len() * SECTOR_BYTES);
    let ticket = recorder.issue(WriterId(1), VolumeId(0), at as u64, length as u32);
    ticket.stamp(&mut disks.volume(VolumeId(0))[at..at + length]);
    ticket
}

#[test]
fn a_promised_write_may_be_hidden_by_a_later_or_concurrent_one_only() {
    let (recorder, mut disks) = (Recorder::new(RUN), Disks::new(1, 8));
    let old = issue(&recorder, &mut disks, 0..4);
    let before = disks.clone();
    recorder.acknowledge(old);
    let beside = issue(&recorder, &mut disks, 2..4);
    let promised = issue(&recorder, &mut disks, 0..3);
    let name = promised.name();
    recorder.acknowledge(promised);
    recorder.acknowledge(beside);
    let history = recorder.history();
    assert_eq!(judge(&disks, &history, &[name]), Ok(()));

    assert_eq!(judge(&before, &history, &[]), Ok(()), "nothing was promised");
    let Err(Violation::Forgotten { place, name: lost, found: Some(found) }) = judge(&before, &history, &[name]) else {
        panic!("the old write is there in its place");
    };
    assert_eq!((place.offset_bytes, lost, found.number), (0, name, 1));

    let mut torn = disks.clone();
    torn.sector(0, 1).fill(0);
    let Err(Violation::Forgotten { place, found: None, .. }) = judge(&torn, &history, &[name]) else {
        panic!("one sector is missing");
    };
    assert_eq!(place.offset_bytes, SECTOR_BYTES as u64);
    torn.sector(0, 1).fill(7);
    assert!(matches!(judge(&torn, &history, &[name]), Err(Violation::Garbage { .. })));
}

#[test]
fn a_promise_that_is_not_in_the_log_is_refused() {
    let history = Recorder::new(RUN).history();
    let promised = HashSet::from([WriteName { writer: WriterId(1), number: 1 }]);
    assert!(check_kept(&history, &promised, Vec::new()).is_err());
}

/// What took effect up to a flush is kept whole, of the rest each sector or not: every promise of that flush holds. And
/// when one sector of it goes back to what was there before all, that is seen, unless a later write had it anyway.
#[test]
fn drawn_losses_are_judged_by_what_was_acknowledged_before_the_flush() {
    let mut seen = 0;
    for seed in 0..300 {
        let mut chance = Chance::new(seed);
        let shape = Shape { volumes: 2, sectors: 16, length_max: 4, writers: 3, depth: 3, writes: 40 };
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
        assert_eq!(judge(&disks, &history, &names), Ok(()), "seed {seed}");
        if let Some(write) = promised.last() {
            disks.sector(write.volume.0, write.offset_bytes as usize / SECTOR_BYTES).fill(0);
            assert!(matches!(judge(&disks, &history, &names), Err(Violation::Forgotten { .. })), "seed {seed}");
            seen += 1;
        }
    }
    assert!(seen > 100, "only {seen} seeds had something promised");
}

fn apply(
    disks: &mut Disks,
    history: &History,
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
