//! What kind of world a seed draws: a swarm of options, so that each run stresses a different corner.

mod crowd;
pub mod fault;
pub mod spread;
mod wide;

use std::sync::Arc;
use std::time::Duration;

use engine::limits::{self, KIB, MIB};
use engine::state::{AfterForcedFailover, Degrade, Mode, Policy, WhenFull};
use engine::{ActivityConfig, Fallback, QueuePace};

use crate::rng::Rng;
use fault::FaultKind;
use spread::WriteSpread;

pub use wide::{BITS_FRAME_BYTES, TIB};

/// What makes a skirmish another world than its seed's.
const SKIRMISH: u64 = 0x5c1e_4115_0000_0000;
/// The same of a life.
const LIFE: u64 = 0x11fe_0000_0000_0000;
/// What degrading leaves of the order is drawn beside everything else.
const DEGRADES: u64 = 0xde94_ade0_0000_0000;
/// Sizes are drawn beside everything else.
const SIZES: u64 = 0x517e_5000_0000_0000;
/// So is how much a node hears in one turn.
const TURNS: u64 = 0x7042_0000_0000_0000;
/// And disk queues, and what becomes of a full queue.
const DISK_QUEUES: u64 = 0xd15c_0000_0000_0000;
const DURABLE_QUEUES: u64 = 0xd07a_b1e0_0000_0000;
const FULL_QUEUES: u64 = 0xf011_0000_0000_0000;
/// And whether a backlog is folded.
const FOLDS: u64 = 0xf01d_0000_0000_0000;
/// And whether writers are slowed down before it is.
const PACED: u64 = 0x9ace_d000_0000_0000;
/// And whether views are opened, and how large their store is.
/// And what a mode falls back to, and whether lines change.
const FALLBACKS: u64 = 0xfa77_bacc_0000_0000;
const LINES: u64 = 0x11e5_0000_0000_0000;
/// And what becomes of a fork after a forced promotion.
const FAILOVERS: u64 = 0xfa11_0000_0000_0000;

#[derive(Clone, Debug)]
pub struct SimOptions {
    pub seed: u64,
    /// The two nodes of each group. Node numbers begin at 0, each is a member of at least one group.
    pub pairs: Vec<[usize; 2]>,
    pub volumes: u16,
    pub volume_bytes: u64,
    /// So much more the devices of the first two nodes hold.
    pub extra_bytes: [u64; 2],
    /// Physical block of the media.
    pub block_bytes: u64,
    /// Where clients write, if the volumes are far larger than that.
    pub spread: Option<Arc<WriteSpread>>,
    /// Histories may fork: a full sync, which follows, is over in good time.
    pub forks: bool,
    pub writes: u64,
    pub delay_ns: u64,
    /// A parcel takes up to so much longer than `delay_ns`; the order in a connection is kept.
    pub jitter_ns: u64,
    pub bytes_per_s: u64,
    /// Under fire each path takes so long instead, and `delay_ns` again, in turns; 0: it never changes.
    pub slow_delay_ns: u64,
    pub disk_ns: (u64, u64),
    /// What comes to a node within such a time may be one turn of its engine; 0: each input has its own.
    pub turn_ns: u64,
    pub queue_bytes: u64,
    pub queue_items: u64,
    /// 0: there is no disk queue.
    pub queue_disk_bytes: u64,
    /// What is overwritten before it was sent is left out.
    pub folds: bool,
    /// The disk queue is a log that a start goes on from.
    pub queue_durable: bool,
    pub when_full: WhenFull,
    pub pace: Option<QueuePace>,
    pub journal_bytes: u64,
    pub window_bytes: u64,
    /// Of a node, for all its groups.
    pub memory_bytes: u64,
    pub syncs_at_once: usize,
    pub activity: ActivityConfig,
    pub history_bytes: u64,
    /// Of the store for views; 0: nobody opens any.
    pub view_bytes: u64,
    pub modes: Vec<Mode>,
    pub policy: Policy,
    pub degrade: Degrade,
    pub after_forced_failover: AfterForcedFailover,
    pub fallback: Option<Fallback>,
    pub wait_limit_ms: u64,
    pub start_alone_ms: u64,
    pub depth: usize,
    /// Mean time between requests.
    pub think_ns: u64,
    /// Percent of writes that aim at one small area.
    pub hot_percent: u64,
    /// Percent of writes that aim at a write in flight.
    pub overlap_percent: u64,
    pub faults: Vec<FaultKind>,
    pub fault_every_ns: u64,
    /// Faults and commands come without a pause, at the worst moment of one another.
    pub skirmish: bool,
}

impl SimOptions {
    pub fn draw(seed: u64) -> SimOptions {
        SimOptions::draw_small(seed).with_drawn_sizes(&mut Rng::new(seed ^ SIZES))
    }

    fn draw_small(seed: u64) -> SimOptions {
        let mut rng = Rng::new(seed);
        let mut modes = vec![*rng.pick(&[Mode::Sync, Mode::Nearsync, Mode::Async, Mode::Superasync])];
        if rng.percent(40) {
            modes.push(*rng.pick(&Mode::ALL));
        }
        let window_bytes = *rng.pick(&[192 * KIB, 256 * KIB, MIB, 4 * MIB]);
        let delay_ns = *rng.pick(&[100_000, 1_000_000, 5_000_000, 25_000_000]);
        let pairs = draw_pairs(&mut rng);
        let groups = pairs.len() as u64;
        SimOptions {
            seed,
            pairs,
            volumes: rng.between(3, 4) as u16,
            volume_bytes: rng.between(6, 12) * 64 * KIB - rng.below(2) * 20 * KIB,
            extra_bytes: [0; 2],
            block_bytes: 4096,
            spread: None,
            forks: true,
            writes: rng.between(2000, 2600),
            delay_ns,
            jitter_ns: *rng.pick(&[0, delay_ns / 10, 4 * delay_ns]),
            bytes_per_s: *rng.pick(&[100_000, 400_000, 4_000_000, 12_500_000, 125_000_000]),
            slow_delay_ns: *Rng::new(seed ^ LINES).pick(&[0, 0, 0, 40_000_000, 150_000_000]),
            disk_ns: *rng.pick(&[(20_000, 200_000), (50_000, 3_000_000)]),
            turn_ns: SimOptions::draw_turn(seed),
            // One of them is no multiple of anything.
            queue_bytes: *rng.pick(&[256 * KIB, MIB + 76 * KIB + 1, 8 * MIB]),
            queue_items: *rng.pick(&[200, 100_000, 100_000]),
            queue_disk_bytes: SimOptions::queue_disk_bytes(seed),
            folds: SimOptions::folds(seed),
            queue_durable: SimOptions::queue_durable(seed),
            when_full: SimOptions::when_full(&mut Rng::new(seed ^ FULL_QUEUES)),
            pace: SimOptions::pace(&mut Rng::new(seed ^ PACED)),
            journal_bytes: window_bytes * 2 + rng.below(3) * 256 * KIB,
            window_bytes,
            // Hardly more than the groups' own shelves, or plenty.
            memory_bytes: groups * window_bytes.min(limits::MEMORY_GROUP_BYTES)
                + *rng.pick(&[128 * KIB, 2 * MIB, 64 * MIB]),
            syncs_at_once: rng.between(1, 2) as usize,
            activity: ActivityConfig { extent_bytes: 64 * KIB, extents: rng.between(4, 12) as u32 },
            history_bytes: *rng.pick(&[512 * KIB, 8 * MIB]),
            // Not before what views hold is in the account of the node's memory: seed 914 shows that it is not.
            view_bytes: 0,
            modes,
            policy: SimOptions::policy(&mut rng),
            degrade: SimOptions::degrade(&mut Rng::new(seed ^ DEGRADES)),
            after_forced_failover: SimOptions::after_forced_failover(&mut Rng::new(seed ^ FAILOVERS)),
            fallback: SimOptions::fallback(&mut Rng::new(seed ^ FALLBACKS)),
            wait_limit_ms: *rng.pick(&[300, 1500, 10_000]),
            start_alone_ms: *rng.pick(&[1000, 5000, 60_000]),
            depth: rng.between(4, 16) as usize,
            think_ns: *rng.pick(&[100_000, 1_000_000, 4_000_000]),
            hot_percent: rng.between(20, 70),
            overlap_percent: rng.between(15, 40),
            faults: FaultKind::draw(&mut rng),
            fault_every_ns: *rng.pick(&[300_000_000, 1_000_000_000, 2_500_000_000]),
            skirmish: false,
        }
    }

    /// The same kind of world, where what takes hours elsewhere comes within seconds.
    pub fn draw_skirmish(seed: u64) -> SimOptions {
        let mut rng = Rng::new(seed ^ SKIRMISH);
        let skirmish = SimOptions {
            faults: FaultKind::draw_skirmish(&mut rng),
            fault_every_ns: *rng.pick(&[2_000_000, 20_000_000, 200_000_000]),
            // A record takes as long as several of them.
            disk_ns: *rng.pick(&[(20_000, 200_000), (1_000_000, 20_000_000), (5_000_000, 60_000_000)]),
            start_alone_ms: *rng.pick(&[100, 1000, 5000]),
            skirmish: true,
            ..SimOptions::draw_small(seed ^ SKIRMISH)
        };
        skirmish.with_drawn_sizes(&mut Rng::new(seed ^ SKIRMISH ^ SIZES))
    }

    /// The life of one or two groups on two nodes, which get other volumes and lose disks.
    pub fn draw_life(seed: u64) -> SimOptions {
        let mut rng = Rng::new(seed ^ LIFE);
        let small = SimOptions::draw_small(seed ^ LIFE);
        SimOptions {
            // No database, which knows its volumes.
            seed: (seed ^ LIFE) & !7,
            pairs: rng.pick(&[vec![[0, 1]], vec![[0, 1], [0, 1]], vec![[0, 1], [0, 1]]]).clone(),
            volumes: rng.between(2, 3) as u16,
            faults: FaultKind::draw_life(&mut rng),
            fault_every_ns: *rng.pick(&[20_000_000, 200_000_000, 1_000_000_000]),
            bytes_per_s: small.bytes_per_s.max(4_000_000),
            start_alone_ms: *rng.pick(&[100, 1000, 5000]),
            skirmish: true,
            ..small
        }
    }

    /// In half of all worlds each input has a turn of its own.
    pub fn draw_turn(seed: u64) -> u64 {
        *Rng::new(seed ^ TURNS).pick(&[0, 0, 0, 20_000, 300_000, 2_000_000])
    }

    pub fn policy(rng: &mut Rng) -> Policy {
        *rng.pick(&[Policy::Degrade, Policy::Degrade, Policy::Hold(Duration::from_secs(2)), Policy::Strict])
    }

    pub fn degrade(rng: &mut Rng) -> Degrade {
        *rng.pick(&[Degrade::Queue, Degrade::Queue, Degrade::Logging])
    }

    /// In half of all worlds, soon taken and soon left. Some are none of the mode that is set, and never count.
    pub fn fallback(rng: &mut Rng) -> Option<Fallback> {
        let mode = *rng.pick(&[Mode::Async, Mode::Async, Mode::Superasync]);
        let ms = Duration::from_millis;
        let fallback = Fallback {
            mode,
            latency: ms(*rng.pick(&[5, 20, 100])),
            after: ms(*rng.pick(&[100, 500])),
            lag: None,
            return_after: ms(*rng.pick(&[1000, 3000])),
        };
        rng.percent(50).then_some(fallback)
    }

    /// Half of all worlds have a disk queue: one that is soon full, or one that never is.
    pub fn folds(seed: u64) -> bool {
        Rng::new(seed ^ FOLDS).percent(50)
    }

    pub fn queue_disk_bytes(seed: u64) -> u64 {
        *Rng::new(seed ^ DISK_QUEUES).pick(&[0, 0, 128 * KIB, 4 * MIB])
    }

    /// Of half of the disk queues a start goes on from their log.
    pub fn queue_durable(seed: u64) -> bool {
        SimOptions::queue_disk_bytes(seed) > 0 && Rng::new(seed ^ DURABLE_QUEUES).percent(50)
    }

    /// Of a few groups writers are slowed down before the queue is full.
    pub fn pace(rng: &mut Rng) -> Option<QueuePace> {
        let from = rng.between(0, 80) as u8;
        let to = rng.between(u64::from(from) + 1, 100) as u8;
        QueuePace::new(from, to).filter(|_| rng.percent(30))
    }

    pub fn when_full(rng: &mut Rng) -> WhenFull {
        *rng.pick(&[WhenFull::Block, WhenFull::Block, WhenFull::Bitmap])
    }

    pub fn after_forced_failover(rng: &mut Rng) -> AfterForcedFailover {
        *rng.pick(&[AfterForcedFailover::Ask, AfterForcedFailover::Ask, AfterForcedFailover::KeepPromoted])
    }

    /// One seed in eight has a database for its clients, with long outages: a quarter of what it asks are flushes. It wants a volume
    /// for its log and another one, and both whole.
    pub fn is_database(&self) -> bool {
        self.seed % 8 == 5 && self.volumes > 1 && self.spread.is_none()
    }

    pub fn nodes(&self) -> usize {
        self.pairs.iter().flatten().max().map_or(0, |last| last + 1)
    }

    pub fn groups(&self) -> u32 {
        self.pairs.len() as u32
    }

    /// The node that is a group's primary before anybody says otherwise.
    pub fn first_primary(&self, group: u32) -> usize {
        self.pairs[group as usize][(u64::from(group) + self.seed) as usize % 2]
    }
}

/// One or two groups on two nodes, or a third node that shares a group of its own with each of the others.
fn draw_pairs(rng: &mut Rng) -> Vec<[usize; 2]> {
    match rng.below(4) {
        0 | 1 => vec![[0, 1]],
        2 => vec![[0, 1], [0, 1]],
        _ => vec![[0, 1], [0, 2], [1, 2]],
    }
}
