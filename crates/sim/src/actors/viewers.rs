//! Who looks at copies through views: opens some, reads them while their copies go on, and closes them.

use engine::{OpenedView, ViewId, limits};

use crate::rng::Rng;
use crate::stamps::SECTOR;
use crate::world::{World, views};

/// Viewers draw beside everybody else.
const VIEWERS: u64 = 0x71e3_3e25_0000_0000;

/// So many are open of one copy at most: others share the disks with them.
const OPEN_MAX: usize = 4;

/// Sectors of the longest read.
const SECTORS_MAX: u64 = 160;

#[derive(Default)]
pub struct Viewers {
    rng: Option<Rng>,
    /// No further view is opened.
    healing: bool,
}

impl Viewers {
    pub fn heal(&mut self) {
        self.healing = true;
    }

    pub fn act(&mut self, world: &mut World) {
        let options = &world.cluster.options;
        if options.view_bytes == 0 || options.spread.is_some() {
            return;
        }
        let seed = options.seed;
        let mut rng = self.rng.take().unwrap_or_else(|| Rng::new(seed ^ VIEWERS));
        if !self.healing && rng.percent(12) {
            opens(world, &mut rng);
        }
        let open: Vec<(ViewId, OpenedView)> =
            world.checkers.views.open().map(|(view, opened)| (view, opened.clone())).collect();
        for (view, opened) in open {
            // What a read brings out may have it lost.
            if rng.percent(4) {
                views::close(world, view);
            } else {
                reads(world, &mut rng, view, &opened);
            }
        }
        self.rng = Some(rng);
    }
}

/// On a secondary, mostly; whoever asks another node is refused.
fn opens(world: &mut World, rng: &mut Rng) {
    let groups: Vec<_> = world.cluster.groups().collect();
    let group = *rng.pick(&groups);
    let node = match rng.percent(95) {
        true => world.cluster.secondary(group),
        false => world.cluster.primary(group),
    };
    let more = if rng.percent(20) { 2 } else { 1 };
    for _ in 0..more {
        if world.cluster[node].up() && world.checkers.views.count_on(node, group) < OPEN_MAX {
            views::open(world, node, group);
        }
    }
}

/// Where a client has just written, or anywhere.
fn reads(world: &mut World, rng: &mut Rng, view: ViewId, opened: &OpenedView) {
    for _ in 0..rng.below(4) {
        let Some((_, group)) = world.checkers.views.place(view) else { return };
        let volume = rng.below(opened.volume_bytes.len() as u64) as u16;
        let sectors = opened.volume_bytes[usize::from(volume)] / SECTOR as u64;
        if sectors == 0 || opened.without.contains(engine::VolumeId(volume)) {
            continue;
        }
        let recent = world.checkers.writes.recent(group, engine::VolumeId(volume)).filter(|_| rng.percent(60));
        let first = recent.map_or_else(|| rng.below(sectors), |(first, _)| first.min(sectors - 1));
        let most = SECTORS_MAX.min(limits::VIEW_READ_BYTES_MAX / SECTOR as u64).min(sectors - first);
        let count = rng.between(1, most);
        views::read(world, view, volume, first * SECTOR as u64, count * SECTOR as u64);
    }
}
