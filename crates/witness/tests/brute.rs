//! The checker against the definition itself: every order that respects the log is tried, every prefix of it applied
//! and compared. Only feasible for a handful of writes, so thousands of tiny cases are drawn, with many overlaps.

use crate::common::{CaseRandom, Disks, HistoryShape, Payloads, draw};
use witness::{PrefixVerdict, RecordedWrite, Violation, WriteHistory};

/// The least number of acknowledged writes that any fitting prefix leaves out; `None` when no prefix fits.
fn definition(history: &WriteHistory, payloads: &Payloads, target: &Disks, empty: &Disks) -> Option<u64> {
    let mut least = None;
    try_all(history, payloads, target, empty.clone(), &mut vec![false; history.writes.len()], &mut least);
    least
}

fn try_all(
    history: &WriteHistory,
    payloads: &Payloads,
    target: &Disks,
    disks: Disks,
    done: &mut Vec<bool>,
    least: &mut Option<u64>,
) {
    if disks == *target {
        let out =
            history.writes.iter().zip(done.iter()).filter(|(write, done)| write.acknowledged.is_some() && !**done);
        let lost = out.count() as u64;
        *least = Some(least.map_or(lost, |least: u64| least.min(lost)));
    }
    for next in 0..done.len() {
        let follows =
            |before: &RecordedWrite| before.acknowledged.is_some_and(|tick| tick < history.writes[next].issued);
        let waits = history.writes.iter().zip(done.iter()).any(|(before, done)| !done && follows(before));
        if done[next] || waits {
            continue;
        }
        let mut after = disks.clone();
        after.apply(&history.writes[next], &payloads.0[next]);
        done[next] = true;
        try_all(history, payloads, target, after, done, least);
        done[next] = false;
    }
}

fn shape(chance: &mut CaseRandom) -> HistoryShape {
    HistoryShape {
        volumes: 1 + chance.below(2) as u32,
        sectors: 3,
        length_max: 3,
        writers: 1 + chance.below(3) as u32,
        depth: 1 + chance.below(3) as usize,
        writes: 2 + chance.below(4) as usize,
    }
}

fn agree(seed: u64, history: &WriteHistory, payloads: &Payloads, target: &Disks, empty: &Disks) -> bool {
    let expected = definition(history, payloads, target, empty);
    match (target.check(history), expected) {
        (PrefixVerdict::Prefix(report), Some(lost)) => {
            assert_eq!(report.lost_writes, lost, "seed {seed}: {history:#?}")
        }
        (PrefixVerdict::Broken(_), None) => {}
        (verdict, expected) => panic!("seed {seed}: said {verdict:?}, but the truth is {expected:?}: {history:#?}"),
    }
    expected.is_some()
}

/// True prefixes: always accepted, and the loss is the least possible.
#[test]
fn every_prefix_of_a_possible_order_is_accepted() {
    for seed in 0..3_000 {
        let mut chance = CaseRandom::new(seed);
        let shape = shape(&mut chance);
        let (history, payloads, order) = draw(&mut chance, &shape);
        let empty = Disks::new(shape.volumes, shape.sectors);
        let mut disks = empty.clone();
        for &index in &order[..chance.below(order.len() as u64 + 1) as usize] {
            disks.apply(&history.writes[index], &payloads.0[index]);
        }
        assert!(agree(seed, &history, &payloads, &disks, &empty), "seed {seed}");
    }
}

/// Anything: every sector holds any write that covers it, or the base. Mostly wrong; the verdict is exact either way.
#[test]
fn any_mixture_is_checked_as_the_definition_says() {
    let (mut fit, mut disorders) = (0, 0);
    for seed in 0..5_000 {
        let mut chance = CaseRandom::new(seed ^ 0xa11_0000);
        let shape = shape(&mut chance);
        let (history, payloads, order) = draw(&mut chance, &shape);
        let empty = Disks::new(shape.volumes, shape.sectors);
        let mut disks = empty.clone();
        // Half start from a true prefix, so that near misses are common.
        let kept = if chance.one_in(2) { order.len() } else { chance.below(order.len() as u64 + 1) as usize };
        for &index in &order[..kept] {
            disks.apply(&history.writes[index], &payloads.0[index]);
        }
        for _ in 0..1 + chance.below(4) {
            let index = chance.below(history.writes.len() as u64) as usize;
            let write = &history.writes[index];
            let first = (write.offset_bytes / 512) as usize;
            let nth = chance.below(u64::from(write.length_bytes) / 512) as usize;
            let volume = write.volume.0;
            match chance.below(8) {
                0 => disks.sector(volume, first + nth).fill(0),
                _ => disks.sector(volume, first + nth).copy_from_slice(&payloads.0[index][nth * 512..][..512]),
            }
        }
        fit += usize::from(agree(seed, &history, &payloads, &disks, &empty));
        disorders += usize::from(matches!(disks.check(&history), PrefixVerdict::Broken(Violation::Disorder { .. })));
    }
    assert!((800..4_200).contains(&fit), "both verdicts must be common: {fit} of 5 000 fit");
    assert!(disorders > 10, "disorder among concurrent writes must come up: {disorders}");
}

/// Larger histories, too large for the definition: true prefixes, whose loss is known when nothing is hidden.
#[test]
fn long_prefixes_are_accepted_and_their_loss_is_counted() {
    for seed in 0..40 {
        let mut chance = CaseRandom::new(seed ^ 0xb16);
        let shape = HistoryShape { volumes: 4, sectors: 256, length_max: 16, writers: 5, depth: 4, writes: 1_500 };
        let (history, payloads, order) = draw(&mut chance, &shape);
        let cut = chance.below(order.len() as u64 + 1) as usize;
        let mut disks = Disks::new(shape.volumes, shape.sectors);
        for &index in &order[..cut] {
            disks.apply(&history.writes[index], &payloads.0[index]);
        }
        let lost = order[cut..].iter().filter(|&&index| history.writes[index].acknowledged.is_some()).count() as u64;
        match disks.check(&history) {
            PrefixVerdict::Prefix(report) => {
                assert!(report.lost_writes <= lost, "seed {seed}: {} lost, at most {lost}", report.lost_writes);
                // Only a write hidden under its contemporaries can be spared: never more than were in flight.
                assert!(report.lost_writes + 20 >= lost, "seed {seed}: {} lost, about {lost}", report.lost_writes);
            }
            PrefixVerdict::Broken(violation) => panic!("seed {seed}: {violation}"),
        }
    }
}
