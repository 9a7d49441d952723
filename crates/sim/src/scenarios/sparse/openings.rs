//! What chance would not bring about in a sparse scenario, drawn beside everything else: openings that it begins with, demotions whose
//! flush fails, devices that grow. The other steps of the scenario are those that it has without.

use std::time::Duration;

use engine::state::{Mode, Policy};
use engine::{Command, StartAlone};

use super::{BLOCK, Blocks, DiskDefect, GroupMember, SparseStep};
use crate::options::SimOptions;
use crate::rng::Rng;
use crate::scenarios::{MILLISECOND, SECOND};
use crate::stamps::SECTOR;
use crate::trips::Instant;

const OPENINGS: u64 = 0x09e2_1265_0000_0000;
const DEMOTIONS: u64 = 0xde30_7e00_0000_0000;
const RESETS: u64 = 0x0e5e_7500_0000_0000;
const DEVICES: u64 = 0xde71_ce50_0000_0000;

type Steps = Vec<(u64, SparseStep)>;

/// What the scenario begins with, and what it needs of its world.
pub(crate) fn opening(number: u64, options: &mut SimOptions) -> Steps {
    let rng = &mut Rng::new(number ^ OPENINGS);
    let mut steps = Vec::new();
    match rng.below(100) {
        _ if options.spread.is_some() => {}
        0..3 => {
            options.start_alone_ms = *rng.pick(&[20_000, 300_000, 300_000]);
            is_asked(rng, options, &mut steps);
            chooses_around_restarts(rng, options, &mut steps);
        }
        3..6 => {
            (options.modes, options.wait_limit_ms) = (vec![*rng.pick(&[Mode::Sync, Mode::Nearsync])], 60_000);
            options.policy = *rng.pick(&[Policy::Strict, Policy::Strict, Policy::Degrade]);
            cannot_read_what_it_repairs(rng, options, &mut steps);
        }
        _ => {}
    }
    steps
}

/// The primary of an opening may have lost what nobody knows any more: its operator chooses, in half of them.
pub(crate) fn choices(number: u64, options: &SimOptions) -> Steps {
    let rng = &mut Rng::new(number ^ OPENINGS);
    let mut steps = Vec::new();
    if rng.percent(50) {
        // Both nodes are back by then, or not yet.
        steps.push((rng.below(12 * SECOND), SparseStep::Flush { volume: 0 }));
        chooses_around_restarts(rng, options, &mut steps);
    }
    steps
}

/// A write that is not flushed yet goes before a demotion, whose own flush then fails.
pub(crate) fn fails_demotions(number: u64, options: &SimOptions, steps: &mut Steps) {
    let rng = &mut Rng::new(number ^ DEMOTIONS);
    let is_demotion = |step: &SparseStep| matches!(step, SparseStep::Order { command: Command::Demote, .. });
    for at in (0..steps.len()).rev().filter(|at| is_demotion(&steps[*at].1)).collect::<Vec<_>>() {
        if rng.percent(30) {
            let before = std::mem::take(&mut steps[at].0);
            let write = SparseStep::Write { at: blocks(rng, options), fua: false };
            let fails = SparseStep::Defect { whom: GroupMember::Primary, defect: DiskDefect::FlushFails, for_ns: 0 };
            steps.splice(at..at, [(before, write), (rng.below(60 * MILLISECOND), fails)]);
        }
    }
}

/// What a defect may have broken is reset, in half of the scenarios: soon after it or later, once or again.
pub(crate) fn resets_after_defects(number: u64, steps: &mut Steps) {
    let rng = &mut Rng::new(number ^ RESETS);
    if rng.percent(50) {
        return;
    }
    for at in (0..steps.len()).rev() {
        let SparseStep::Defect { whom, .. } = steps[at].1 else { continue };
        for _ in 0..rng.between(1, 3) {
            let longest = *rng.pick(&[60 * MILLISECOND, SECOND, 6 * SECOND]);
            let command = Command::Reset { entropy: rng.draw() };
            steps.insert(at + 1, (rng.below(longest), SparseStep::Order { whom, command }));
        }
    }
}

/// In one of five scenarios the devices of the nodes have unequal sizes, and grow while their nodes are down.
pub(crate) fn draws_devices(number: u64, options: &mut SimOptions, steps: &mut Steps) {
    let rng = &mut Rng::new(number ^ DEVICES);
    if options.spread.is_some() || !rng.percent(20) {
        return;
    }
    let primary = options.first_primary(0);
    let more = |rng: &mut Rng| {
        let most = *rng.pick(&[8, 64, 256]);
        rng.between(1, most) * SECTOR as u64
    };
    options.extra_bytes[primary] = if rng.percent(30) { more(rng) } else { 0 };
    options.extra_bytes[1 - primary] = options.extra_bytes[primary] + if rng.percent(60) { more(rng) } else { 0 };
    for _ in 0..rng.between(0, 3) {
        let whom = if rng.percent(60) { GroupMember::Primary } else { GroupMember::Secondary };
        let (bytes, down_ns) = (more(rng), rng.between(100 * MILLISECOND, 8 * SECOND));
        let at = rng.below(steps.len() as u64 + 1) as usize;
        let goes_down = match rng.below(4) {
            0 => SparseStep::Stop { whom, down_ns, outside: Vec::new() },
            1 => SparseStep::Crash { whom, power: false, down_ns },
            2 => SparseStep::Crash { whom, power: true, down_ns },
            // At the next start, whenever that is.
            _ => SparseStep::Grow { whom, bytes: 0 },
        };
        steps.splice(at..at, [(rng.below(2 * SECOND), SparseStep::Grow { whom, bytes }), (0, goes_down)]);
    }
}

fn blocks(rng: &mut Rng, options: &SimOptions) -> Blocks {
    let all = options.image_bytes().div_ceil(BLOCK);
    let first = rng.below(all);
    let volume = rng.below(u64::from(options.volumes)) as u16;
    Blocks { volume, first, count: rng.between(1, 3).min(all - first) }
}

fn burst(rng: &mut Rng, options: &SimOptions, count: u64) -> SparseStep {
    SparseStep::Burst((0..count).map(|_| blocks(rng, options)).collect())
}

/// A region whose local write failed cannot be read either, eight times and more, in a group in step; then somebody waits for the peer.
fn cannot_read_what_it_repairs(rng: &mut Rng, options: &SimOptions, steps: &mut Steps) {
    let whom = GroupMember::Primary;
    steps.push((SECOND, SparseStep::Defect { whom, defect: DiskDefect::WritesFail, for_ns: SECOND }));
    steps.push((0, burst(rng, options, 40)));
    let for_ns = rng.between(9 * SECOND, 30 * SECOND);
    steps.push((rng.below(SECOND), SparseStep::Defect { whom, defect: DiskDefect::Unreadable, for_ns }));
    let (pause, for_ns) = (rng.between(4 * SECOND, 9 * SECOND), rng.between(3 * SECOND, 15 * SECOND));
    steps.push((pause, SparseStep::Defect { whom: GroupMember::Secondary, defect: DiskDefect::Stalls, for_ns }));
    for _ in 0..rng.between(1, 4) {
        steps.push((rng.below(SECOND), SparseStep::Write { at: blocks(rng, options), fua: false }));
    }
    // Nothing disturbs it.
    steps.push((rng.between(6 * SECOND, 15 * SECOND), SparseStep::Flush { volume: 0 }));
}

/// A primary lost with its power what only its peer has, was stopped before it met that, and written from outside: its export stays
/// closed until its operator chooses.
fn is_asked(rng: &mut Rng, options: &SimOptions, steps: &mut Steps) {
    let whom = GroupMember::Primary;
    steps.push((SECOND, burst(rng, options, 16)));
    steps.push((rng.between(50 * MILLISECOND, SECOND), SparseStep::Cable([false; 2])));
    let (pause, down_ns) = (rng.below(300 * MILLISECOND), rng.between(SECOND / 2, 2 * SECOND));
    steps.push((pause, SparseStep::Crash { whom, power: true, down_ns }));
    let (pause, outside) = (down_ns + rng.between(SECOND, 4 * SECOND), vec![blocks(rng, options)]);
    steps.push((pause, SparseStep::Stop { whom, down_ns, outside }));
    let met_after = rng.between(0, 6 * SECOND);
    steps.push((down_ns + met_after, SparseStep::Cable([true; 2])));
    // Mostly it has met its peer by then.
    steps.push((rng.below(8 * SECOND), SparseStep::Flush { volume: 0 }));
}

/// What its operator types comes before, in the midst of and after restarts of either node.
fn chooses_around_restarts(rng: &mut Rng, options: &SimOptions, steps: &mut Steps) {
    let pause = |rng: &mut Rng| {
        let longest = *rng.pick(&[MILLISECOND, 60 * MILLISECOND, SECOND, 12 * SECOND]);
        rng.below(longest)
    };
    for _ in 0..rng.between(2, 5) {
        let whom = *rng.pick(&[GroupMember::Primary, GroupMember::Primary, GroupMember::Secondary]);
        let down_ns = rng.between(100 * MILLISECOND, 4 * SECOND);
        let (at, after, power) = (rng.between(1, 6), rng.percent(50), rng.percent(50));
        let outage = match rng.below(6) {
            0 => SparseStep::Crash { whom, power, down_ns },
            1 | 2 => SparseStep::Trip { whom, kind: Instant::Sync, at, after, power, down_ns },
            3 => SparseStep::Stop { whom, down_ns, outside: Vec::new() },
            4 => SparseStep::Defect { whom: GroupMember::Primary, defect: DiskDefect::FlushFails, for_ns: 0 },
            _ => SparseStep::Cable(*rng.pick(&[[false; 2], [true; 2], [true; 2]])),
        };
        steps.push((pause(rng), outage));
        let typed = |command: Command| SparseStep::Order { whom: GroupMember::Primary, command };
        let chooses = match rng.below(7) {
            0 => typed(Command::Sync { full: false }),
            1 => typed(Command::Sync { full: true }),
            2 => typed(Command::Logging),
            3 | 4 => typed(Command::Demote),
            5 => {
                let waits = StartAlone::Wait(Duration::from_secs(1));
                SparseStep::StartAlone(*rng.pick(&[StartAlone::Serve, waits]))
            }
            _ => {
                let command = Command::Promote { force: true, entropy: rng.draw() };
                SparseStep::Order { whom: *rng.pick(&[GroupMember::Primary, GroupMember::Secondary]), command }
            }
        };
        steps.push((pause(rng), chooses));
        if rng.percent(50) {
            steps.push((pause(rng), SparseStep::Write { at: blocks(rng, options), fua: rng.percent(50) }));
        }
    }
    steps.push((pause(rng), SparseStep::Cable([true; 2])));
}
