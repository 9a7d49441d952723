//! Stories that go their way whatever happens: at each time a step, done if it can be done then. So the same story can be
//! told again with a crash at any of its instants.

use engine::limits::KIB;
use engine::state::{Mode, Policy};
use engine::{Command, Request, RequestId, VolumeId};

use crate::judge::Asked;
use crate::story::{GROUP, MILLISECOND, SECOND, options};
use crate::swarm::Options;
use crate::trip::Trip;
use crate::world::World;
use crate::{heal, oracle::Failure};

/// One thing that happens in a story.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A client's write at the node that serves, if one does.
    Write {
        volume: u16,
        offset: u64,
        length: u64,
    },
    Zero {
        volume: u16,
        offset: u64,
        length: u64,
    },
    Flush {
        volume: u16,
    },
    Sync {
        full: bool,
    },
    Mode(Mode),
    /// To a node, by its number.
    Demote(usize),
    Promote {
        node: usize,
        force: bool,
    },
    Crash {
        node: usize,
        power: bool,
        down_ns: u64,
    },
    Cable([bool; 2]),
}

/// A story: its world, and what happens when.
pub struct Script {
    pub name: &'static str,
    pub options: Options,
    pub steps: Vec<(u64, Step)>,
}

/// After its last step a story goes on for so long before it is healed.
const EPILOGUE_NS: u64 = SECOND;

impl Script {
    /// Tells the story up to its end; with trips it is cut short there.
    pub fn tell(&self, trips: &[Trip], verbose: bool) -> World {
        let mut world = World::new(self.options.clone(), verbose);
        world.operator.rests = true;
        world.trips.due = trips.to_vec();
        for (at, step) in &self.steps {
            world.run_until(*at);
            if world.verdict.is_ok() {
                world.step(*step);
            }
        }
        world.run_until(world.now + EPILOGUE_NS);
        world
    }

    /// Tells it, heals the world and judges it.
    pub fn judge(&self, trips: &[Trip], verbose: bool) -> (Result<(), Failure>, World) {
        let mut world = self.tell(trips, verbose);
        world.operator.rests = false;
        heal(&mut world);
        (world.verdict.clone(), world)
    }
}

impl World {
    fn step(&mut self, step: Step) {
        self.log(format_args!("story: {step:?}"));
        let primary = self.operator.authority(GROUP);
        let entropy = self.rng.draw();
        match step {
            Step::Write { .. } | Step::Zero { .. } | Step::Flush { .. } if !self.serves(primary) => {}
            Step::Write { volume, offset, length } => _ = self.write(volume, offset, length),
            Step::Zero { volume, offset, length } => _ = self.zero(volume, offset, length, false),
            Step::Flush { volume } => _ = self.flush(volume),
            Step::Sync { full } => _ = self.command(primary, GROUP, Command::Sync { full }),
            Step::Mode(mode) => self.set_mode(GROUP, mode),
            Step::Demote(node) => _ = self.command(node, GROUP, Command::Demote),
            Step::Promote { node, force } => _ = self.command(node, GROUP, Command::Promote { force, entropy }),
            Step::Crash { node, power, down_ns } => self.crash(node, power, down_ns),
            Step::Cable(passes) => self.cut(passes),
        }
    }

    fn serves(&self, node: usize) -> bool {
        self.nodes[node].up() && self.nodes[node].serving.contains(&GROUP)
    }

    /// A client's flush at the node that serves; not waited for.
    pub fn flush(&mut self, volume: u16) -> RequestId {
        let (node, volume) = (self.operator.authority(GROUP), VolumeId(volume));
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.judge.issued(id, node, GROUP, Asked::Flush { volume, covers: Vec::new() }, self.now);
        self.input(node, engine::Input::Request { group: GROUP, volume, id, request: Request::Flush });
        id
    }
}

/// Two small volumes, a small log and journal: a story meets every one of its limits soon.
fn small(mode: Mode) -> Options {
    Options {
        volume_bytes: 256 * KIB,
        journal_bytes: 384 * KIB,
        window_bytes: 128 * KIB,
        queue_bytes: 128 * KIB,
        start_alone_ms: 1000,
        ..options(mode, Policy::Degrade)
    }
}

/// `count` writes of 8 KiB over both volumes, every 5 ms from `from` on, a flush behind every eighth.
fn load(steps: &mut Vec<(u64, Step)>, from: u64, count: u64) {
    for n in 0..count {
        let at = from + n * 5 * MILLISECOND;
        let volume = (n % 2) as u16;
        let offset = n * 12 * KIB % (240 * KIB);
        steps.push((at, Step::Write { volume, offset, length: 8 * KIB }));
        if n % 8 == 7 {
            steps.push((at + MILLISECOND, Step::Flush { volume }));
        }
        if n % 11 == 10 {
            steps.push((at + 2 * MILLISECOND, Step::Zero { volume, offset: offset + 512, length: 5 * KIB }));
        }
    }
}

/// The first sync, in peace, then `more`.
fn in_step(name: &'static str, mode: Mode, more: impl FnOnce(&mut Vec<(u64, Step)>)) -> Script {
    let mut steps = vec![(SECOND / 5, Step::Sync { full: true })];
    more(&mut steps);
    steps.sort_by_key(|(at, _)| *at);
    Script { name, options: small(mode), steps }
}

/// Over 400 kB/s everything is dirty and goes over in cuts; `more` begins a moment after them, at four seconds.
fn slow_link(name: &'static str, more: impl FnOnce(&mut Vec<(u64, Step)>)) -> Script {
    let script = in_step(name, Mode::Async, |steps| {
        load(steps, 3 * SECOND, 20);
        steps.push((4 * SECOND - MILLISECOND, Step::Sync { full: true }));
        more(steps);
    });
    Script { options: Options { bytes_per_s: 400_000, ..script.options }, ..script }
}

/// Every story there is.
pub fn all() -> Vec<Script> {
    [in_one_role(), in_both_roles()].into_iter().flatten().collect()
}

/// The primary stays the primary.
fn in_one_role() -> Vec<Script> {
    let second = |n: u64| n * SECOND;
    vec![
        Script {
            name: "first-sync",
            options: small(Mode::Async),
            steps: {
                let mut steps = vec![(SECOND / 5, Step::Sync { full: true })];
                load(&mut steps, SECOND / 10, 40);
                steps.sort_by_key(|(at, _)| *at);
                steps
            },
        },
        in_step("sync-mode", Mode::Sync, |steps| load(steps, second(1), 24)),
        in_step("journal-wrap", Mode::Async, |steps| load(steps, second(1), 90)),
        in_step("incarnation-change", Mode::Async, |steps| {
            load(steps, second(1), 20);
            let crash = Step::Crash { node: 0, power: true, down_ns: SECOND / 5 };
            steps.push((second(1) + 97 * MILLISECOND, crash));
            load(steps, second(1) + SECOND / 2, 30);
        }),
        in_step("link-lost-and-back", Mode::Async, |steps| {
            // What the queue has room for, until the silence is noticed and longer.
            load(steps, second(1), 12);
            steps.push((second(1) + 20 * MILLISECOND, Step::Cable([false; 2])));
            steps.push((second(8), Step::Cable([true; 2])));
            load(steps, second(8) + SECOND / 2, 40);
        }),
        in_step("queue-full-link-lost", Mode::Async, |steps| {
            load(steps, second(1), 60);
            steps.push((second(1) + 20 * MILLISECOND, Step::Cable([false; 2])));
            steps.push((second(2), Step::Cable([true; 2])));
            load(steps, second(2), 20);
        }),
        Script {
            options: Options { history_bytes: 160 * KIB, ..small(Mode::Async) },
            ..in_step("history-full", Mode::Async, |steps| {
                load(steps, second(1), 20);
                steps.push((second(1) + SECOND / 2, Step::Mode(Mode::Logging)));
                load(steps, second(1) + SECOND * 3 / 5, 40);
                steps.push((second(2), Step::Mode(Mode::Async)));
                steps.push((second(2) + MILLISECOND, Step::Sync { full: false }));
            })
        },
        slow_link("cut", |steps| load(steps, second(4), 60)),
        in_step("both-lose-power", Mode::Sync, |steps| {
            load(steps, second(1), 30);
            steps.push((second(1) + 70 * MILLISECOND, Step::Crash { node: 1, power: true, down_ns: SECOND / 2 }));
            steps.push((second(1) + 71 * MILLISECOND, Step::Crash { node: 0, power: true, down_ns: SECOND / 3 }));
            load(steps, second(2), 10);
        }),
    ]
}

/// The secondary becomes the primary.
fn in_both_roles() -> Vec<Script> {
    let second = |n: u64| n * SECOND;
    vec![
        in_step("handover", Mode::Async, |steps| {
            load(steps, second(1), 20);
            steps.push((second(1) + 60 * MILLISECOND, Step::Demote(0)));
            steps.push((second(1) + 900 * MILLISECOND, Step::Promote { node: 1, force: false }));
            load(steps, second(2), 20);
        }),
        in_step("failover", Mode::Nearsync, |steps| {
            load(steps, second(1), 20);
            let crash = Step::Crash { node: 0, power: true, down_ns: 2 * SECOND };
            steps.push((second(1) + 60 * MILLISECOND, crash));
            steps.push((second(2), Step::Promote { node: 1, force: true }));
            load(steps, second(2) + SECOND / 2, 20);
            steps.push((second(4), Step::Demote(0)));
            steps.push((second(5), Step::Sync { full: true }));
        }),
        in_step("promote-mid-sync", Mode::Async, |steps| {
            load(steps, second(1), 20);
            steps.push((second(1) + SECOND / 2, Step::Mode(Mode::Logging)));
            load(steps, second(1) + SECOND * 3 / 5, 40);
            steps.push((second(2), Step::Mode(Mode::Async)));
            steps.push((second(2) + MILLISECOND, Step::Sync { full: false }));
            let crash = Step::Crash { node: 0, power: true, down_ns: 2 * SECOND };
            steps.push((second(2) + 12 * MILLISECOND, crash));
            steps.push((second(2) + SECOND / 4, Step::Promote { node: 1, force: true }));
            load(steps, second(2) + SECOND / 2, 10);
            steps.push((second(5), Step::Demote(0)));
            steps.push((second(6), Step::Sync { full: true }));
        }),
        slow_link("promote-mid-cut", |steps| {
            load(steps, second(4), 60);
            // The first cut has ended, the second carries what was written meanwhile.
            steps.push((second(5) + SECOND / 2, Step::Crash { node: 0, power: true, down_ns: 2 * SECOND }));
            steps.push((second(6), Step::Promote { node: 1, force: true }));
            load(steps, second(6) + SECOND / 2, 10);
            steps.push((second(9), Step::Demote(0)));
            steps.push((second(10), Step::Sync { full: true }));
        }),
    ]
}
