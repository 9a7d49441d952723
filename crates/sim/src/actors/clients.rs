//! What clients ask.

use std::collections::BTreeMap;
use std::rc::Rc;

use engine::{GroupId, VolumeId};

use crate::checkers::writes::ClientRequest;
use crate::stamps::{SECTOR, SectorFill};
use crate::world::{ActorCue, World, WorldEvent};

/// A database writes pages of this size,
const DATABASE_BLOCK_BYTES: u64 = 8 << 10;
/// these few over and over,
const DATABASE_HOT_BLOCKS: u64 = 4;
/// and has a checkpoint once in so many requests.
const DATABASE_TURNS_TO_CHECKPOINT: u64 = 256;

/// The clients of all groups.
#[derive(Default)]
pub struct WriteClients {
    /// Writes that they still owe in this round; then a trickle goes on.
    burst: u64,
    /// Requests of each group's database, where the clients are one.
    turns: BTreeMap<GroupId, u64>,
    /// They ask nothing more.
    quiet: bool,
}

impl WriteClients {
    pub fn burst(&self) -> u64 {
        self.burst
    }

    pub fn set_burst(&mut self, writes: u64) {
        self.burst = writes;
    }

    pub fn fall_silent(&mut self) {
        self.quiet = true;
    }

    pub fn act(&mut self, world: &mut World) {
        let options = Rc::clone(&world.cluster.options);
        // Between the bursts a trickle goes on.
        let mean = options.think_ns * if self.burst > 0 { 1 } else { 30 };
        let think = world.rng.below(2 * mean);
        if !self.quiet {
            world.timeline.schedule(think, WorldEvent::Cue(ActorCue::Client));
        }
        let group = GroupId(world.rng.below(u64::from(options.groups())) as u32);
        let node = world.cluster.primary(group);
        if world.serves(group) && world.checkers.writes.pending_on(node, group) < options.depth {
            self.burst = self.burst.saturating_sub(1);
            let (asked, no_hole) =
                if options.is_database() { (self.draw_of_database(world, group), false) } else { draw(world, group) };
            world.ask(node, group, asked, no_hole);
        }
    }

    /// A database: an entry of its log, in sequence, in the first volume; its flush; one of a few hot blocks of another volume. Now
    /// and then a checkpoint: that volume is flushed.
    fn draw_of_database(&mut self, world: &mut World, group: GroupId) -> ClientRequest {
        let (volumes, volume_bytes) = (world.cluster.options.volumes, world.cluster.options.volume_bytes);
        let turn = self.turns.entry(group).or_default();
        *turn += 1;
        let (turn, hot) = (*turn, VolumeId(1 + world.rng.below(u64::from(volumes) - 1) as u16));
        match turn % 4 {
            1 => return ClientRequest::flush(VolumeId(0)),
            3 if turn.is_multiple_of(DATABASE_TURNS_TO_CHECKPOINT - 1) => return ClientRequest::flush(hot),
            _ => {}
        }
        let blocks = volume_bytes / DATABASE_BLOCK_BYTES;
        let (volume, block) = match turn % 4 {
            0 => (VolumeId(0), turn / 4 % blocks),
            _ => (hot, world.rng.below(DATABASE_HOT_BLOCKS)),
        };
        let fill = SectorFill::Stamp(world.checkers.writes.stamp(group));
        let (offset, length) = (block * DATABASE_BLOCK_BYTES, DATABASE_BLOCK_BYTES);
        ClientRequest::Write { volume, offset, length, fill, fua: false }
    }
}

/// A request, and whether zeroes that it writes are no hole.
fn draw(world: &mut World, group: GroupId) -> (ClientRequest, bool) {
    let options = Rc::clone(&world.cluster.options);
    let volumes = world.cluster.numbers(world.cluster.primary(group), group);
    let volume = *world.rng.pick(&volumes);
    if world.rng.percent(6) {
        return (ClientRequest::flush(volume), false);
    }
    // As large as the export shows itself now.
    let shown = world.cluster.volume_bytes(world.cluster.primary(group), group, volume);
    let bytes = shown.filter(|_| options.spread.is_none()).unwrap_or(options.image_bytes());
    let sectors = bytes / SECTOR as u64;
    let longest = if world.rng.percent(10) { 256 } else { 16 };
    let count = world.rng.between(1, longest);
    let span = if world.rng.percent(options.hot_percent) { sectors / 8 } else { sectors };
    let recent = world.checkers.writes.recent(group, volume);
    let target = recent.filter(|_| world.rng.percent(options.overlap_percent));
    let first = match target {
        Some((at, long)) => (at + world.rng.below(long)).min(sectors - count),
        None => world.rng.below(span.max(count + 1) - count),
    };
    let offset = first * SECTOR as u64;
    let length = options.fit(offset, count * SECTOR as u64);
    let fua = world.rng.percent(5);
    let zero = world.rng.percent(8);
    let fill = if zero { SectorFill::Zero } else { SectorFill::Stamp(world.checkers.writes.stamp(group)) };
    let no_hole = zero && world.rng.percent(50);
    (ClientRequest::Write { volume, offset, length, fill, fua }, no_hole)
}
