//! What a sparse scenario is made of, drawn from its number: a world, a few kinds of steps at a pace of its own, and now and then a
//! sequence that chance would not bring about.

use std::sync::Arc;
use std::time::Duration;

use engine::limits::{KIB, MIB};
use engine::state::Mode;
use engine::{Command, StartAlone, VolumeId};

use super::openings::{choices, draws_devices, fails_demotions, opening, resets_after_defects};
use super::{BLOCK, Blocks, DiskDefect, GroupMember, SparseScenario, SparseStep};
use crate::options::BITS_FRAME_BYTES;
use crate::options::SimOptions;
use crate::options::spread::WriteSpread;
use crate::rng::Rng;
use crate::scenarios::{GROUP, MILLISECOND, SECOND, options};
use crate::stamps::SECTOR;
use crate::trips::Instant;

/// What makes a scenario's draws others than those of the seed of its number.
const SPARSE: u64 = 0x5fa7_5e00_0000_0000;
/// Reads that fail, and odd sizes, are drawn beside everything else.
const READS: u64 = 0x4ead_0000_0000_0000;
const SIZES: u64 = 0x512e_0000_0000_0000;

/// One in so many scenarios has a volume of more than 8 GiB. Each full sync of one costs as much as a hundred other scenarios.
const WIDE_EVERY: u64 = 512;

/// On such a link a sync of a few blocks takes a while.
const SLOW_LINK_BYTES_PER_S: u64 = 400_000;

impl SparseScenario {
    pub fn draw(number: u64) -> SparseScenario {
        let mut rng = Rng::new(number ^ SPARSE);
        let mut options = draw_options(number, &mut rng);
        let mut flush_ns = [0; 2].map(|_: u64| *rng.pick(&[0, 30 * MILLISECOND, 500 * MILLISECOND]));
        let mut draw = Draw::new(&options, &mut rng);
        let count = draw.rng.between(6, 26);
        let (mut steps, mut may_be_asked) = (Vec::new(), None);
        if draw.is_wide {
            draw.goes_back_far_out(&mut steps);
        } else {
            match draw.rng.below(100) {
                0..2 => draw.loses_its_link_in_a_sync(&mut steps),
                2..4 => {
                    draw.loses_its_primary_in_a_sync(&mut steps);
                    // The sync goes in the stream, takes a while, and its end is not on record at once; the primary waits for its peer.
                    (options.queue_bytes, options.bytes_per_s) = (MIB, SLOW_LINK_BYTES_PER_S);
                    options.start_alone_ms = 300_000;
                    flush_ns[1 - options.first_primary(GROUP.0)] = 500 * MILLISECOND;
                    may_be_asked = Some(steps.len());
                }
                _ => {}
            }
        }
        while (steps.len() as u64) < count {
            let kind = draw.kind();
            let pause = draw.pause();
            let step = draw.step(kind);
            steps.push((pause, step));
            draw.follow_up(kind, &mut steps);
        }
        let epilogue_ns = draw.pause();
        let mut reads = Rng::new(number ^ READS);
        for (_, step) in &mut steps {
            if let SparseStep::Defect { defect, .. } = step
                && !matches!(defect, DiskDefect::RecordFails(_) | DiskDefect::FlushFails)
                && reads.percent(20)
            {
                *defect = DiskDefect::ReadsFail;
            }
        }
        match may_be_asked {
            Some(at) => drop(steps.splice(at..at, choices(number, &options))),
            None => drop(steps.splice(0..0, opening(number, &mut options))),
        }
        fails_demotions(number, &options, &mut steps);
        resets_after_defects(number, &mut steps);
        draws_devices(number, &mut options, &mut steps);
        SparseScenario { options, flush_ns, steps, epilogue_ns }
    }
}

fn draw_options(number: u64, rng: &mut Rng) -> SimOptions {
    let mode = *rng.pick(&[Mode::Async, Mode::Superasync, Mode::Nearsync, Mode::Sync]);
    let delay_ns = *rng.pick(&[100_000, MILLISECOND, 20 * MILLISECOND, 20 * MILLISECOND]);
    let window_bytes = *rng.pick(&[40 * KIB, 64 * KIB]);
    let base = options(mode, SimOptions::policy(rng));
    let drawn = SimOptions {
        seed: number,
        volumes: rng.between(1, 2) as u16,
        volume_bytes: rng.between(4, 12) * BLOCK,
        delay_ns,
        jitter_ns: *rng.pick(&[0, delay_ns]),
        bytes_per_s: *rng.pick(&[400_000, 4_000_000, 125_000_000]),
        disk_ns: *rng.pick(&[(20_000, 200_000), (20_000, 200_000), (1_000_000, 10_000_000)]),
        turn_ns: SimOptions::draw_turn(number),
        queue_bytes: *rng.pick(&[64 * KIB, 256 * KIB]),
        queue_disk_bytes: SimOptions::queue_disk_bytes(number),
        folds: SimOptions::folds(number),
        queue_durable: SimOptions::queue_durable(number),
        journal_bytes: *rng.pick(&[2 * window_bytes, 2 * window_bytes, 512 * KIB]),
        window_bytes,
        activity: engine::ActivityConfig { extent_bytes: 32 * KIB, extents: rng.between(1, 4) as u32 },
        history_bytes: *rng.pick(&[128 * KIB, 512 * KIB]),
        view_bytes: 0,
        wait_limit_ms: *rng.pick(&[300, 1500, 10_000]),
        start_alone_ms: *rng.pick(&[1000, 20_000, 300_000, 300_000]),
        ..base
    };
    if number % WIDE_EVERY == WIDE_EVERY - 1 { far_apart(drawn, rng) } else { with_an_odd_end(drawn, number) }
}

/// For some the volumes' last block is cut short by an odd number of sectors, on media of either kind.
fn with_an_odd_end(mut options: SimOptions, number: u64) -> SimOptions {
    let mut rng = Rng::new(number ^ SIZES);
    if rng.percent(30) {
        options.block_bytes = *rng.pick(&[512, 4096]);
        options.volume_bytes -= SECTOR as u64 * (2 * rng.below(4) + 1);
    }
    options
}

/// One volume of more regions than a frame of dirty bits tells of, of which few blocks are written, most of them behind those.
fn far_apart(options: SimOptions, rng: &mut Rng) -> SimOptions {
    let blocks = |from: u64, count: u64| from..from + count * BLOCK;
    let near = blocks(rng.below(100) * MIB, 2);
    let far = (0..rng.between(6, 12)).map(|n| blocks(BITS_FRAME_BYTES + n * 5 * MIB, rng.between(2, 8)));
    SimOptions {
        volumes: 1,
        volume_bytes: BITS_FRAME_BYTES + 64 * MIB,
        spread: Some(Arc::new(WriteSpread::new(far.chain([near]).collect()))),
        // A full sync of zeroes is over in good time, the update of a few blocks can be cut short.
        window_bytes: 4 * MIB,
        queue_bytes: 4 * MIB,
        journal_bytes: 8 * MIB,
        bytes_per_s: SLOW_LINK_BYTES_PER_S,
        disk_ns: (20_000, 200_000),
        delay_ns: MILLISECOND,
        jitter_ns: 0,
        activity: engine::ActivityConfig { extent_bytes: MIB, ..options.activity },
        history_bytes: 64 * MIB,
        ..options
    }
}

/// What a step is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepKind {
    Write,
    Flush,
    /// A write and its flush.
    Commit,
    Zero,
    Burst,
    Cut,
    Heal,
    Drop,
    Kill,
    Power,
    PowerOfBoth,
    Trip,
    Stop,
    Outside,
    Promote,
    Force,
    Demote,
    Switchover,
    Sync,
    Logging,
    Aside,
    Mode,
    Settings,
    Limits,
    Point,
    Defect,
}

/// Each with its weight, and how many in a hundred scenarios have it at all.
const KINDS: &[(StepKind, u64, u64)] = &[
    (StepKind::Write, 24, 100),
    (StepKind::Flush, 12, 80),
    (StepKind::Commit, 20, 60),
    (StepKind::Zero, 4, 40),
    (StepKind::Burst, 10, 50),
    (StepKind::Cut, 10, 60),
    (StepKind::Heal, 10, 60),
    (StepKind::Drop, 4, 30),
    (StepKind::Kill, 6, 40),
    (StepKind::Power, 10, 75),
    (StepKind::PowerOfBoth, 3, 25),
    (StepKind::Trip, 6, 40),
    (StepKind::Stop, 5, 35),
    (StepKind::Outside, 6, 25),
    (StepKind::Promote, 3, 25),
    (StepKind::Force, 6, 50),
    (StepKind::Demote, 4, 30),
    (StepKind::Switchover, 6, 40),
    (StepKind::Sync, 4, 40),
    (StepKind::Logging, 3, 25),
    (StepKind::Aside, 5, 30),
    (StepKind::Mode, 3, 25),
    (StepKind::Settings, 4, 30),
    (StepKind::Limits, 3, 25),
    (StepKind::Point, 2, 15),
    (StepKind::Defect, 6, 35),
];

/// Draws the steps of one scenario: a few kinds of them, at its own pace, on a few blocks.
struct Draw<'a> {
    rng: &'a mut Rng,
    kinds: Vec<(StepKind, u64)>,
    volumes: u16,
    /// Of a volume: of its image, if it is wide.
    blocks: u64,
    is_wide: bool,
    hot: Blocks,
    hot_percent: u64,
    /// The writer is a database: where the next entry of its log goes, in the first volume.
    log: Option<u64>,
    /// These kinds are among them.
    has_power: bool,
    has_force: bool,
    /// The cable is cut.
    is_cut: bool,
    /// How long the node is down that the last step took down.
    down_ns: u64,
    /// Pauses to pick from.
    pace: &'static [(u64, u64)],
}

const US: u64 = 1000;
const MS: u64 = MILLISECOND;
const QUICK: &[(u64, u64)] = &[(0, 0), (0, 2 * MS), (0, 50 * MS), (0, SECOND), (SECOND, 8 * SECOND)];
const EVEN: &[(u64, u64)] =
    &[(0, 500 * US), (0, 20 * MS), (0, SECOND), (SECOND, 8 * SECOND), (SECOND, 8 * SECOND), (8 * SECOND, 40 * SECOND)];
const SLOW: &[(u64, u64)] = &[
    (0, 20 * MS),
    (0, SECOND),
    (SECOND, 8 * SECOND),
    (SECOND, 8 * SECOND),
    (5 * SECOND, 30 * SECOND),
    (30 * SECOND, 150 * SECOND),
];

impl Draw<'_> {
    fn new<'a>(options: &SimOptions, rng: &'a mut Rng) -> Draw<'a> {
        // Some scenarios have a few kinds, some have many; some have a writer that commits, and outages that nothing disturbs.
        let outages = rng.percent(30);
        let share = if outages { 30 } else { *rng.pick(&[30, 50, 100]) };
        let mut has = |kind: &StepKind, percent: u64| match kind {
            StepKind::Burst | StepKind::Trip | StepKind::Defect if outages => false,
            StepKind::Commit | StepKind::Cut | StepKind::Heal | StepKind::Power if outages => true,
            _ => rng.percent(percent * share.max(percent) / 100),
        };
        let has: Vec<_> = KINDS.iter().filter(|(kind, _, percent)| has(kind, *percent)).collect();
        let kinds: Vec<_> =
            has.into_iter().map(|(kind, weight, _)| (*kind, weight * *rng.pick(&[1, 1, 2, 4]))).collect();
        let among = |kind: StepKind| kinds.iter().any(|(has, _)| *has == kind);
        let (has_power, has_force) = (among(StepKind::Power), among(StepKind::Force));
        let (volumes, blocks) = (options.volumes, options.image_bytes().div_ceil(BLOCK));
        let hot = Blocks { volume: rng.below(u64::from(volumes)) as u16, first: rng.below(blocks), count: 1 };
        let hot_percent = *rng.pick(&[20, 50, 80, 100]);
        // A log written in sequence and flushed at each commit, one hot block overwritten for ever.
        let log = (among(StepKind::Commit) && rng.percent(25)).then_some(0);
        let hot_percent = if log.is_some() { 90 } else { hot_percent };
        let pace = *rng.pick(&[QUICK, EVEN, EVEN, SLOW]);
        Draw {
            rng,
            kinds,
            volumes,
            blocks,
            is_wide: options.spread.is_some(),
            hot,
            hot_percent,
            log,
            has_power,
            has_force,
            is_cut: false,
            down_ns: 0,
            pace,
        }
    }

    fn kind(&mut self) -> StepKind {
        let sum: u64 = self.kinds.iter().map(|(_, weight)| weight).sum();
        let mut at = self.rng.below(sum);
        for (kind, weight) in &self.kinds {
            if at < *weight {
                return match kind {
                    StepKind::Cut | StepKind::Heal if self.is_cut => StepKind::Heal,
                    StepKind::Cut | StepKind::Heal => StepKind::Cut,
                    other => *other,
                };
            }
            at -= weight;
        }
        StepKind::Write
    }

    /// As long as something takes that is under way.
    fn moment(&mut self) -> u64 {
        let longest = *self.rng.pick(&[MS, 60 * MS, SECOND]);
        self.rng.below(longest)
    }

    /// Often a node that was taken down is waited for.
    fn pause(&mut self) -> u64 {
        let (low, high) = *self.rng.pick(self.pace);
        let down_ns = std::mem::take(&mut self.down_ns);
        let waits = self.rng.percent(60);
        self.rng.between(low, high) + if waits { down_ns } else { 0 }
    }

    fn down(&mut self) -> u64 {
        self.down_ns = self.draw_down();
        self.down_ns
    }

    fn draw_down(&mut self) -> u64 {
        let (low, high) = *self.rng.pick(&[
            (100 * MS, SECOND),
            (100 * MS, SECOND),
            (SECOND, 8 * SECOND),
            (SECOND, 8 * SECOND),
            (8 * SECOND, 90 * SECOND),
        ]);
        self.rng.between(low, high)
    }

    fn blocks(&mut self) -> Blocks {
        if self.rng.percent(self.hot_percent) {
            return self.hot;
        }
        self.wide_blocks()
    }

    fn wide_blocks(&mut self) -> Blocks {
        let volume = self.rng.below(u64::from(self.volumes)) as u16;
        let first = self.rng.below(self.blocks);
        let count = self.rng.between(1, 4).min(self.blocks - first);
        Blocks { volume, first, count }
    }

    fn whom(&mut self, primary_percent: u64) -> GroupMember {
        if self.rng.percent(primary_percent) { GroupMember::Primary } else { GroupMember::Secondary }
    }

    /// What often comes right behind a step of this kind: an outage after a flush, something amiss under an order.
    fn follow_up(&mut self, kind: StepKind, steps: &mut Vec<(u64, SparseStep)>) {
        match kind {
            StepKind::Commit => {
                let Some((_, SparseStep::Write { at, .. })) = steps.last() else { return };
                let flush = SparseStep::Flush { volume: at.volume };
                steps.push((self.moment(), flush));
                self.follow_up(StepKind::Flush, steps);
            }
            StepKind::Flush | StepKind::Burst
                if self.has_power && self.rng.percent(if kind == StepKind::Burst { 60 } else { 25 }) =>
            {
                let longest = if kind == StepKind::Burst { *self.rng.pick(&[60 * MS, 400 * MS]) } else { SECOND };
                let pause = self.rng.below(longest);
                let step = self.step(StepKind::Power);
                steps.push((pause, step));
                self.follow_up(StepKind::Power, steps);
            }
            StepKind::Power if self.has_force && self.rng.percent(60) => {
                let Some((_, SparseStep::Crash { whom: GroupMember::Primary, .. })) = steps.last() else { return };
                // Somebody does not wait for it.
                let pause = self.rng.below(self.down_ns.min(4 * SECOND));
                let step = self.order(GroupMember::Secondary, true);
                steps.push((pause, step));
                self.amiss(steps);
            }
            StepKind::Promote | StepKind::Force | StepKind::Demote | StepKind::Sync if self.rng.percent(40) => {
                self.amiss(steps)
            }
            StepKind::Switchover if self.rng.percent(70) => self.amiss(steps),
            _ => {}
        }
    }

    /// The order before it has something in its way.
    fn amiss(&mut self, steps: &mut Vec<(u64, SparseStep)>) {
        let (whom, of_both) = match steps.last() {
            Some((_, SparseStep::Order { whom, .. })) => (*whom, false),
            Some((_, SparseStep::Switchover { .. })) => (self.whom(60), true),
            _ => return,
        };
        if of_both && self.rng.percent(30) {
            // The link goes on its way, and is back after a while.
            let (moment, ways) =
                (self.moment(), *self.rng.pick(&[[false; 2], [false; 2], [false, true], [true, false]]));
            let back = self.rng.between(MS, 15 * SECOND);
            return steps.extend([(moment, SparseStep::Cable(ways)), (back, SparseStep::Cable([true; 2]))]);
        }
        let down_ns = self.down();
        let at = steps.len() - 1;
        let step = match self.rng.below(6) {
            0 => return,
            1 => SparseStep::Defect { whom, defect: DiskDefect::RecordFails(self.rng.between(1, 8)), for_ns: 0 },
            2 => SparseStep::Defect { whom, defect: DiskDefect::RecordsFull, for_ns: self.rng.between(MS, 3 * SECOND) },
            _ => SparseStep::Trip {
                whom,
                kind: if of_both && self.rng.percent(50) { Instant::Message } else { Instant::Sync },
                at: self.rng.between(1, 8),
                after: self.rng.percent(50),
                power: self.rng.percent(70),
                down_ns,
            },
        };
        // It is there when the order comes.
        let pause = std::mem::take(&mut steps[at].0);
        steps.insert(at, (pause, step));
        if of_both && self.rng.percent(40) {
            // What is being recorded takes longer than what is sent.
            let whom = GroupMember::Primary;
            let slow =
                SparseStep::Defect { whom, defect: DiskDefect::Slow, for_ns: self.rng.between(SECOND, 8 * SECOND) };
            steps.insert(at + 1, (0, slow));
        }
    }

    /// What was written alone is synced, which is cut short; the copy is promoted and has to go back to where it was.
    fn loses_its_link_in_a_sync(&mut self, steps: &mut Vec<(u64, SparseStep)>) {
        let (pause, burst) = (self.moment(), self.step(StepKind::Burst));
        steps.push((pause, burst));
        self.is_written_alone_and_synced(steps);
        let longest = *self.rng.pick(&[20 * MS, 300 * MS, SECOND]);
        steps.push((self.rng.below(longest), SparseStep::Cable([false; 2])));
        let force = self.order(GroupMember::Secondary, true);
        steps.push((self.moment(), force));
        self.amiss(steps);
        steps.push((self.moment(), SparseStep::Cable([true; 2])));
    }

    /// The same, and the primary loses with its power what only the copy has, which dies on its way back.
    fn loses_its_primary_in_a_sync(&mut self, steps: &mut Vec<(u64, SparseStep)>) {
        // So the link is measured, and a little goes in the stream.
        steps.push((SECOND, self.long_burst(48)));
        if self.rng.percent(40) {
            self.is_handed_over_and_back(steps);
        } else {
            self.is_written_alone_and_synced(steps);
        }
        // Nobody flushes it: the copy keeps it, in its journal.
        let (pause, burst) = (self.rng.below(100 * MS), self.step(StepKind::Burst));
        steps.push((pause, burst));
        let (pause, down_ns) = (self.rng.between(50 * MS, 600 * MS), self.rng.between(2 * SECOND, 8 * SECOND));
        steps.push((pause, SparseStep::Crash { whom: GroupMember::Primary, power: true, down_ns }));
        self.dies_on_its_way_back(steps);
    }

    fn dies_on_its_way_back(&mut self, steps: &mut Vec<(u64, SparseStep)>) {
        let (at, after, down_ns) = (self.rng.between(1, 8), self.rng.percent(50), self.down());
        let whom = GroupMember::Secondary;
        steps.push((self.moment(), SparseStep::Trip { whom, kind: Instant::Sync, at, after, power: true, down_ns }));
        steps.push((0, self.order(whom, true)));
    }

    /// The secondary, which has been started often, is the primary for a while; then the first one is again, writes alone and syncs.
    fn is_handed_over_and_back(&mut self, steps: &mut Vec<(u64, SparseStep)>) {
        for _ in 0..self.rng.between(2, 6) {
            steps.push((3 * SECOND, SparseStep::Crash { whom: GroupMember::Secondary, power: false, down_ns: SECOND }));
        }
        for mode in [None, Some(Mode::Logging)] {
            steps.push((3 * SECOND, SparseStep::Order { whom: GroupMember::Primary, command: Command::Demote }));
            mode.into_iter().for_each(|mode| steps.push((SECOND, SparseStep::Mode(mode))));
            steps.push((SECOND, self.order(GroupMember::Secondary, false)));
        }
        let burst = self.step(StepKind::Burst);
        steps.push((SECOND, burst));
        steps.push((SECOND, SparseStep::Mode(Mode::Async)));
    }

    /// The same on a wide volume. Nothing was streamed before, so the sync is in the stream, and what both sides flush meanwhile
    /// clears the primary's bits. What the copy undoes on its way back then only its own bits tell, most of them behind the first
    /// frame.
    fn goes_back_far_out(&mut self, steps: &mut Vec<(u64, SparseStep)>) {
        self.is_written_alone_and_synced(steps);
        steps.push((self.rng.between(100 * MS, 250 * MS), SparseStep::Flush { volume: 0 }));
        steps.push((self.rng.between(250 * MS, 450 * MS), SparseStep::Cable([false; 2])));
        self.dies_on_its_way_back(steps);
        steps.push((self.moment(), SparseStep::Cable([true; 2])));
    }

    fn long_burst(&mut self, count: u64) -> SparseStep {
        SparseStep::Burst((0..count).map(|_| self.wide_blocks()).collect())
    }

    fn is_written_alone_and_synced(&mut self, steps: &mut Vec<(u64, SparseStep)>) {
        steps.push((2 * SECOND, SparseStep::Order { whom: GroupMember::Primary, command: Command::Logging }));
        let pause = self.moment();
        let burst = if self.is_wide {
            let count = self.rng.between(24, 48);
            self.long_burst(count)
        } else {
            self.step(StepKind::Burst)
        };
        steps.push((pause, burst));
        steps.push((SECOND, SparseStep::Order { whom: GroupMember::Primary, command: Command::Sync { full: false } }));
    }

    fn step(&mut self, kind: StepKind) -> SparseStep {
        match kind {
            StepKind::Commit if self.log.is_some() => {
                let entry = self.log.get_or_insert_default();
                let at = Blocks { volume: 0, first: *entry % self.blocks, count: 1 };
                *entry += 1;
                SparseStep::Write { at, fua: false }
            }
            StepKind::Write | StepKind::Commit => SparseStep::Write { at: self.blocks(), fua: self.rng.percent(12) },
            StepKind::Zero => SparseStep::Zero { at: self.blocks(), no_hole: self.rng.percent(50) },
            StepKind::Burst => {
                let count = self.rng.between(4, 48);
                let wide = self.rng.percent(40);
                let one = |at: Blocks| Blocks { count: 1, ..at };
                SparseStep::Burst(
                    (0..count).map(|_| if wide { self.wide_blocks() } else { one(self.wide_blocks()) }).collect(),
                )
            }
            StepKind::Flush => {
                let any = self.rng.below(u64::from(self.volumes)) as u16;
                SparseStep::Flush { volume: *self.rng.pick(&[any, self.hot.volume]) }
            }
            StepKind::Cut => {
                SparseStep::Cable(*self.rng.pick(&[[false; 2], [false; 2], [false; 2], [false, true], [true, false]]))
            }
            StepKind::Heal => SparseStep::Cable([true; 2]),
            StepKind::Drop => self.rng.pick(&[SparseStep::Flap, SparseStep::HalfOpen]).clone(),
            StepKind::Kill => SparseStep::Crash { whom: self.whom(50), power: false, down_ns: self.down() },
            StepKind::Power => SparseStep::Crash { whom: self.whom(65), power: true, down_ns: self.down() },
            StepKind::PowerOfBoth => SparseStep::PowerOfBoth { down_ns: [self.down(), self.down()] },
            StepKind::Trip => SparseStep::Trip {
                whom: self.whom(50),
                kind: *self.rng.pick(&[Instant::Sync, Instant::Message]),
                at: self.rng.between(1, 12),
                after: self.rng.percent(50),
                power: self.rng.percent(60),
                down_ns: self.down(),
            },
            StepKind::Stop => SparseStep::Stop { whom: self.whom(50), down_ns: self.down(), outside: Vec::new() },
            // Nobody writes to a wide volume from outside: a full sync would follow each time.
            StepKind::Outside if self.is_wide => {
                SparseStep::Stop { whom: self.whom(50), down_ns: self.down(), outside: Vec::new() }
            }
            StepKind::Outside => {
                let outside = (0..self.rng.between(1, 2)).map(|_| self.blocks()).collect();
                SparseStep::Stop { whom: self.whom(35), down_ns: self.down(), outside }
            }
            StepKind::Promote => self.order(GroupMember::Secondary, false),
            StepKind::Force => {
                let whom = self.whom(25);
                self.order(whom, true)
            }
            _ => self.quiet_step(kind),
        }
    }

    /// The steps that touch no data by themselves.
    fn quiet_step(&mut self, kind: StepKind) -> SparseStep {
        let waits = |ms: u64| Duration::from_millis(ms);
        let nth = self.rng.between(1, 4);
        match kind {
            StepKind::Demote => SparseStep::Order { whom: self.whom(85), command: Command::Demote },
            StepKind::Switchover => {
                let to = if self.rng.percent(95) { GroupMember::Secondary } else { GroupMember::Primary };
                let limit = waits(*self.rng.pick(&[5, 200, 2000, 10_000]));
                SparseStep::Switchover { whom: self.whom(85), to, limit }
            }
            StepKind::Sync => {
                let full = self.rng.percent(40) && !self.is_wide;
                SparseStep::Order { whom: self.whom(85), command: Command::Sync { full } }
            }
            StepKind::Logging => SparseStep::Order { whom: GroupMember::Primary, command: Command::Logging },
            StepKind::Aside => {
                let volume = VolumeId(self.rng.below(u64::from(self.volumes)) as u16);
                let command = match self.rng.percent(65) {
                    true => Command::SetAside { volume },
                    false => Command::Rejoin { volume },
                };
                SparseStep::Order { whom: self.whom(90), command }
            }
            StepKind::Mode => SparseStep::Mode(*self.rng.pick(&Mode::ALL)),
            StepKind::Settings => match self.rng.below(4) {
                0 => SparseStep::Policy(SimOptions::policy(self.rng)),
                3 => SparseStep::Degrade(SimOptions::degrade(self.rng)),
                1 => SparseStep::Autosync(self.rng.percent(50)),
                _ => SparseStep::StartAlone(*self.rng.pick(&[
                    StartAlone::Serve,
                    StartAlone::Wait(waits(1000)),
                    StartAlone::Wait(waits(300_000)),
                ])),
            },
            StepKind::Limits => match self.rng.below(2) {
                0 => SparseStep::WaitLimit(waits(*self.rng.pick(&[100, 1000, 10_000]))),
                _ => SparseStep::Queue {
                    bytes: *self.rng.pick(&[32 * KIB, 64 * KIB, 256 * KIB]),
                    items: *self.rng.pick(&[4, 100_000]),
                },
            },
            StepKind::Point => SparseStep::DropPoint(self.whom(20)),
            _ => SparseStep::Defect {
                whom: self.whom(50),
                defect: *self.rng.pick(&[
                    DiskDefect::RecordFails(nth),
                    DiskDefect::FlushFails,
                    DiskDefect::WritesFail,
                    DiskDefect::AppliesFail,
                    DiskDefect::VolumesFull,
                    DiskDefect::RecordsFull,
                    DiskDefect::Slow,
                    DiskDefect::Stalls,
                ]),
                for_ns: self.rng.between(MS, 5 * SECOND),
            },
        }
    }

    fn order(&mut self, whom: GroupMember, force: bool) -> SparseStep {
        SparseStep::Order { whom, command: Command::Promote { force, entropy: self.rng.draw() } }
    }
}
