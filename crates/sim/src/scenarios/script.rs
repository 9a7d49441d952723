//! Scenarios that go their way whatever happens: at each time a step, done if it can be done then. So the same one can be
//! played again with a crash at any of its instants.

use std::time::Duration;

use engine::limits::{KIB, MIB};
use engine::state::{Degrade, Mode, Policy};
use engine::{Command, Fallback, NodeId};

use super::{GROUP, MILLISECOND, SECOND, options};
use crate::options::SimOptions;
use crate::oracle::OracleFailure;
use crate::simulation::Simulation;
use crate::trips::Trip;
use crate::world::{World, orders};

/// One thing that happens in a scripted scenario.
#[derive(Clone, Copy, Debug)]
pub enum ScriptStep {
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
    /// Typed at a node, to another one.
    Switchover {
        node: usize,
        to: usize,
    },
    /// Of a fork: this node's content is kept; the other one yields to it.
    Keep(usize),
    Yield(usize),
    /// Of the group, where it has its primary.
    Mark(&'static str),
    DropMark(&'static str),
    Crash {
        node: usize,
        power: bool,
        down_ns: u64,
    },
    Cable([bool; 2]),
}

/// A world, and what happens in it when.
pub struct ScriptedScenario {
    pub name: &'static str,
    pub options: SimOptions,
    pub steps: Vec<(u64, ScriptStep)>,
}

/// After its last step it goes on for so long before it is healed.
const EPILOGUE_NS: u64 = SECOND;

impl ScriptedScenario {
    /// Plays the scenario up to its end; with trips it is cut short there.
    pub fn play(&self, trips: &[Trip], verbose: bool) -> Simulation {
        let mut simulation = Simulation::new(self.options.clone(), verbose);
        simulation.world.unattended = true;
        simulation.world.trips.set_due(trips.to_vec());
        for (at, step) in &self.steps {
            simulation.run_until(*at);
            if simulation.world.verdict().is_ok() {
                step.play(&mut simulation.world);
            }
        }
        simulation.pass(EPILOGUE_NS);
        simulation
    }

    /// Plays it and heals the world: the verdict, and the virtual time it took.
    pub fn check(&self, trips: &[Trip], verbose: bool) -> (Result<(), OracleFailure>, u64) {
        let mut simulation = self.play(trips, verbose);
        simulation.world.unattended = false;
        simulation.heal();
        (simulation.world.verdict().clone(), simulation.world.now())
    }
}

impl ScriptStep {
    fn play(self, world: &mut World) {
        world.log(format_args!("scenario: {self:?}"));
        let primary = world.cluster.primary(GROUP);
        let entropy = world.rng.draw();
        match self {
            ScriptStep::Write { .. } | ScriptStep::Zero { .. } | ScriptStep::Flush { .. } if !world.serves(GROUP) => {}
            ScriptStep::Write { volume, offset, length } => _ = world.write_at(GROUP, volume, offset, length, false),
            ScriptStep::Zero { volume, offset, length } => _ = world.zero_at(GROUP, volume, offset, length, false),
            ScriptStep::Flush { volume } => _ = world.flush_at(GROUP, volume),
            ScriptStep::Sync { full } => _ = world.command(primary, GROUP, Command::Sync { full }),
            ScriptStep::Mode(mode) => world.set_mode(GROUP, mode),
            ScriptStep::Demote(node) => _ = world.command(node, GROUP, Command::Demote),
            ScriptStep::Promote { node, force } => _ = world.command(node, GROUP, Command::Promote { force, entropy }),
            ScriptStep::Switchover { node, to } => {
                let (to, limit) = (NodeId(to as u16), Duration::from_secs(2));
                world.command(node, GROUP, Command::Switchover { to, limit, closes_export: false, only_asks: false });
            }
            ScriptStep::Keep(node) => {
                if let Some(over) = tag_of(world, 1 - node) {
                    world.command(node, GROUP, Command::Keep { over, discard: false, by_policy: false });
                }
            }
            ScriptStep::Yield(node) => {
                if let Some(to) = tag_of(world, 1 - node) {
                    world.command(node, GROUP, Command::Yield { to, by_policy: false });
                }
            }
            ScriptStep::Mark(name) => _ = orders::mark(world, primary, &[GROUP], name),
            ScriptStep::DropMark(name) => {
                world.command(primary, GROUP, Command::DropMark { name: name.into(), override_lock: false });
            }
            ScriptStep::Crash { node, power, down_ns } => world.crash(node, power, down_ns),
            ScriptStep::Cable(passes) => world.cut(passes),
        }
    }
}

/// The tag of the generation that a node is in.
fn tag_of(world: &World, node: usize) -> Option<u64> {
    world.glance(node, GROUP).map(|glance| glance.identity.generation.tag)
}

/// Two small volumes, a small log and journal: a scenario meets every one of its limits soon.
fn small(mode: Mode) -> SimOptions {
    SimOptions {
        volume_bytes: 256 * KIB,
        journal_bytes: 384 * KIB,
        window_bytes: 128 * KIB,
        queue_bytes: 128 * KIB,
        start_alone_ms: 1000,
        ..options(mode, Policy::Degrade)
    }
}

/// `count` writes of 8 KiB over both volumes, every 5 ms from `from` on, a flush behind every eighth.
fn load(steps: &mut Vec<(u64, ScriptStep)>, from: u64, count: u64) {
    for n in 0..count {
        let at = from + n * 5 * MILLISECOND;
        let volume = (n % 2) as u16;
        let offset = n * 12 * KIB % (240 * KIB);
        steps.push((at, ScriptStep::Write { volume, offset, length: 8 * KIB }));
        if n % 8 == 7 {
            steps.push((at + MILLISECOND, ScriptStep::Flush { volume }));
        }
        if n % 11 == 10 {
            steps.push((at + 2 * MILLISECOND, ScriptStep::Zero { volume, offset: offset + 512, length: 5 * KIB }));
        }
    }
}

/// The first sync, in peace, then `more`.
fn in_step(name: &'static str, mode: Mode, more: impl FnOnce(&mut Vec<(u64, ScriptStep)>)) -> ScriptedScenario {
    let mut steps = vec![(SECOND / 5, ScriptStep::Sync { full: true })];
    more(&mut steps);
    steps.sort_by_key(|(at, _)| *at);
    ScriptedScenario { name, options: small(mode), steps }
}

/// Over 400 kB/s everything is dirty and goes over in snapshots; `more` begins a moment after them, at four seconds.
fn slow_link(name: &'static str, more: impl FnOnce(&mut Vec<(u64, ScriptStep)>)) -> ScriptedScenario {
    let script = in_step(name, Mode::Async, |steps| {
        load(steps, 3 * SECOND, 20);
        steps.push((4 * SECOND - MILLISECOND, ScriptStep::Sync { full: true }));
        more(steps);
    });
    ScriptedScenario { options: SimOptions { bytes_per_s: 400_000, ..script.options }, ..script }
}

/// Every one there is.
pub fn all() -> Vec<ScriptedScenario> {
    let all = [in_one_role(), with_marks(), in_both_roles(), spilled(), lowered(), logged(), folded()];
    all.into_iter().flatten().collect()
}

/// The primary stays the primary.
fn in_one_role() -> Vec<ScriptedScenario> {
    let second = |n: u64| n * SECOND;
    vec![
        ScriptedScenario {
            name: "first-sync",
            options: small(Mode::Async),
            steps: {
                let mut steps = vec![(SECOND / 5, ScriptStep::Sync { full: true })];
                load(&mut steps, SECOND / 10, 40);
                steps.sort_by_key(|(at, _)| *at);
                steps
            },
        },
        in_step("sync-mode", Mode::Sync, |steps| load(steps, second(1), 24)),
        in_step("journal-wrap", Mode::Async, |steps| load(steps, second(1), 90)),
        in_step("incarnation-change", Mode::Async, |steps| {
            load(steps, second(1), 20);
            let crash = ScriptStep::Crash { node: 0, power: true, down_ns: SECOND / 5 };
            steps.push((second(1) + 97 * MILLISECOND, crash));
            load(steps, second(1) + SECOND / 2, 30);
        }),
        in_step("link-lost-and-back", Mode::Async, |steps| {
            // What the queue has room for, until the silence is noticed and longer.
            load(steps, second(1), 12);
            steps.push((second(1) + 20 * MILLISECOND, ScriptStep::Cable([false; 2])));
            steps.push((second(8), ScriptStep::Cable([true; 2])));
            load(steps, second(8) + SECOND / 2, 40);
        }),
        in_step("queue-full-link-lost", Mode::Async, |steps| {
            load(steps, second(1), 60);
            steps.push((second(1) + 20 * MILLISECOND, ScriptStep::Cable([false; 2])));
            steps.push((second(2), ScriptStep::Cable([true; 2])));
            load(steps, second(2), 20);
        }),
        ScriptedScenario {
            options: SimOptions { history_bytes: 160 * KIB, ..small(Mode::Async) },
            ..in_step("history-full", Mode::Async, |steps| {
                load(steps, second(1), 20);
                steps.push((second(1) + SECOND / 2, ScriptStep::Mode(Mode::Logging)));
                load(steps, second(1) + SECOND * 3 / 5, 40);
                steps.push((second(2), ScriptStep::Mode(Mode::Async)));
                steps.push((second(2) + MILLISECOND, ScriptStep::Sync { full: false }));
            })
        },
        slow_link("snapshot", |steps| load(steps, second(4), 60)),
        in_step("both-lose-power", Mode::Sync, |steps| {
            load(steps, second(1), 30);
            steps.push((second(1) + 70 * MILLISECOND, ScriptStep::Crash { node: 1, power: true, down_ns: SECOND / 2 }));
            steps.push((second(1) + 71 * MILLISECOND, ScriptStep::Crash { node: 0, power: true, down_ns: SECOND / 3 }));
            load(steps, second(2), 10);
        }),
    ]
}

/// Over 400 kB/s more is written than memory's queue has room for: the rest waits on disk, and a start finds nothing there.
fn on_disk(name: &'static str, disk_bytes: u64, more: impl FnOnce(&mut Vec<(u64, ScriptStep)>)) -> ScriptedScenario {
    let script = in_step(name, Mode::Async, more);
    let options = SimOptions { queue_disk_bytes: disk_bytes, bytes_per_s: 400_000, ..script.options };
    ScriptedScenario { options: SimOptions { degrade: Degrade::Queue, wait_limit_ms: 10_000, ..options }, ..script }
}

/// The disk queue, and what leaves it.
fn spilled() -> Vec<ScriptedScenario> {
    let second = |n: u64| n * SECOND;
    // The first sync takes a while.
    let begins = second(3);
    vec![
        on_disk("spill", MIB, |steps| load(steps, begins, 40)),
        on_disk("spill-link-lost", MIB, |steps| {
            load(steps, begins, 40);
            steps.push((begins + 100 * MILLISECOND, ScriptStep::Cable([false; 2])));
            steps.push((second(10), ScriptStep::Cable([true; 2])));
            load(steps, second(10) + 100 * MILLISECOND, 20);
        }),
        // So small that it goes round, while what was read of it is sent and confirmed.
        on_disk("spill-wrap", 256 * KIB, |steps| {
            for round in 0..4 {
                load(steps, begins + round * 450 * MILLISECOND, 20);
            }
            let cut = begins + 1500 * MILLISECOND;
            steps.push((cut, ScriptStep::Cable([false; 2])));
            steps.push((cut + second(7), ScriptStep::Cable([true; 2])));
            load(steps, cut + second(8), 12);
        }),
        // The same places again and again, over a line that is far too slow for all of that: the order is left for snapshots.
        {
            let script = on_disk("younger-image", 4 * MIB, |steps| {
                for round in 0..4 {
                    load(steps, second(30) + round * SECOND, 60);
                }
                load(steps, second(60), 8);
            });
            let modes = vec![Mode::Superasync];
            let options = SimOptions { bytes_per_s: 40_000, queue_bytes: MIB, modes, ..script.options };
            ScriptedScenario { options, ..script }
        },
    ]
}

/// The mode ladder goes down while the line is slow, and up again.
fn lowered() -> Vec<ScriptedScenario> {
    let second = |n: u64| n * SECOND;
    let ms = Duration::from_millis;
    let ladder = |name: &'static str, mode: Mode| {
        let script = in_step(name, mode, |steps| {
            // Writers who wait behind each other for a slow line, and one who comes later.
            load(steps, second(3), 40);
            load(steps, second(8), 10);
        });
        let fallback =
            Fallback { mode: Mode::Async, latency: ms(40), after: ms(100), lag: None, return_after: ms(1000) };
        let options = SimOptions { bytes_per_s: 400_000, fallback: Some(fallback), ..script.options };
        ScriptedScenario { options: SimOptions { degrade: Degrade::Queue, wait_limit_ms: 10_000, ..options }, ..script }
    };
    vec![ladder("ladder", Mode::Sync), ladder("ladder-nearsync", Mode::Nearsync)]
}

/// The primary's queue is logged: a start goes on from there.
fn in_log(
    name: &'static str,
    mode: Mode,
    ring_bytes: u64,
    more: impl FnOnce(&mut Vec<(u64, ScriptStep)>),
) -> ScriptedScenario {
    let script = in_step(name, mode, more);
    // The log is open soon after the sync.
    let options = SimOptions { queue_disk_bytes: ring_bytes, queue_durable: true, ..script.options };
    ScriptedScenario { options: SimOptions { degrade: Degrade::Queue, wait_limit_ms: 1000, ..options }, ..script }
}

fn logged() -> Vec<ScriptedScenario> {
    let second = |n: u64| n * SECOND;
    let down = |node: usize, power: bool| ScriptStep::Crash { node, power, down_ns: SECOND / 5 };
    vec![
        in_log("durable", Mode::Async, 1024 * KIB, |steps| load(steps, second(1), 40)),
        in_log("durable-sync-mode", Mode::Sync, 1024 * KIB, |steps| load(steps, second(1), 24)),
        in_log("durable-link-lost", Mode::Async, 1024 * KIB, |steps| {
            load(steps, second(1), 12);
            steps.push((second(1) + 20 * MILLISECOND, ScriptStep::Cable([false; 2])));
            steps.push((second(8), ScriptStep::Cable([true; 2])));
            load(steps, second(8) + SECOND / 2, 20);
        }),
        in_log("durable-restart-twice", Mode::Async, 1024 * KIB, |steps| {
            load(steps, second(1), 20);
            steps.push((second(1) + 60 * MILLISECOND, ScriptStep::Cable([false; 2])));
            steps.push((second(1) + 97 * MILLISECOND, down(0, true)));
            load(steps, second(2), 10);
            steps.push((second(2) + 40 * MILLISECOND, down(0, false)));
            load(steps, second(3), 10);
            steps.push((second(4), ScriptStep::Cable([true; 2])));
            load(steps, second(5), 6);
        }),
        // So small that it goes round, and is full at times.
        in_log("durable-wrap", Mode::Async, 256 * KIB, |steps| load(steps, second(1), 90)),
        in_log("durable-handover", Mode::Async, 1024 * KIB, |steps| {
            load(steps, second(1), 20);
            steps.push((second(1) + 60 * MILLISECOND, ScriptStep::Demote(0)));
            steps.push((second(1) + 900 * MILLISECOND, ScriptStep::Promote { node: 1, force: false }));
            load(steps, second(2), 20);
        }),
        in_log("durable-left", Mode::Async, 1024 * KIB, |steps| {
            load(steps, second(1), 20);
            steps.push((second(1) + 70 * MILLISECOND, ScriptStep::Mode(Mode::Logging)));
            load(steps, second(1) + SECOND / 2, 10);
            steps.push((second(2), ScriptStep::Mode(Mode::Async)));
            steps.push((second(2) + MILLISECOND, ScriptStep::Sync { full: false }));
            load(steps, second(3), 12);
        }),
    ]
}

/// Points of the order have names: in step, beside a lost link, and over a change of roles.
fn with_marks() -> Vec<ScriptedScenario> {
    let second = |n: u64| n * SECOND;
    vec![
        in_step("marks", Mode::Async, |steps| {
            load(steps, second(1), 16);
            steps.push((second(1) + 31 * MILLISECOND, ScriptStep::Mark("one")));
            steps.push((second(1) + 32 * MILLISECOND, ScriptStep::Mark("two")));
            steps.push((second(1) + 80 * MILLISECOND, ScriptStep::DropMark("one")));
            steps.push((second(2), ScriptStep::Cable([false; 2])));
            steps.push((second(2) + 1, ScriptStep::Mark("queued")));
            load(steps, second(2) + 2, 8);
            steps.push((second(8), ScriptStep::Cable([true; 2])));
            steps.push((second(9), ScriptStep::Mark("last")));
        }),
        in_step("marks-failover", Mode::Nearsync, |steps| {
            load(steps, second(1), 12);
            steps.push((second(1) + 31 * MILLISECOND, ScriptStep::Mark("before")));
            steps.push((second(1) + 60 * MILLISECOND, ScriptStep::Crash { node: 0, power: true, down_ns: 2 * SECOND }));
            steps.push((second(2), ScriptStep::Promote { node: 1, force: true }));
            steps.push((second(3), ScriptStep::Mark("after")));
        }),
    ]
}

/// `count` writes of 4 KiB to three places of each volume, and a flush of both behind every eighth: a backlog of which little travels.
fn rewrites(steps: &mut Vec<(u64, ScriptStep)>, from: u64, count: u64) {
    for n in 0..count {
        let at = from + n * 3 * MILLISECOND;
        let (volume, offset) = ((n % 2) as u16, n / 2 % 3 * 8 * KIB);
        steps.push((at, ScriptStep::Write { volume, offset, length: 4 * KIB }));
        if n % 8 == 7 {
            steps.extend([0, 1].map(|volume| (at + MILLISECOND, ScriptStep::Flush { volume })));
        }
    }
}

/// Over 100 kB/s, so that writes wait, and what is overwritten meanwhile is left out.
fn folds(name: &'static str, more: impl FnOnce(&mut Vec<(u64, ScriptStep)>)) -> ScriptedScenario {
    let script = in_step(name, Mode::Async, more);
    // Memory has room for all that waits, and the peer's window for a step of some writes.
    let options = SimOptions { bytes_per_s: 100_000, folds: true, queue_bytes: 512 * KIB, ..script.options };
    let options = SimOptions { window_bytes: 256 * KIB, journal_bytes: 640 * KIB, ..options };
    ScriptedScenario { options, ..script }
}

fn folded() -> Vec<ScriptedScenario> {
    let second = |n: u64| n * SECOND;
    vec![
        folds("fold", |steps| {
            rewrites(steps, second(8), 96);
            // By then all of it is there.
            steps.push((second(12), ScriptStep::Flush { volume: 0 }));
        }),
        folds("fold-link-lost", |steps| {
            rewrites(steps, second(8), 96);
            steps.push((second(9) + SECOND / 5, ScriptStep::Cable([false; 2])));
            steps.push((second(17), ScriptStep::Cable([true; 2])));
            rewrites(steps, second(17) + SECOND / 2, 16);
        }),
        folds("fold-promote", |steps| {
            rewrites(steps, second(8), 96);
            let crash = ScriptStep::Crash { node: 0, power: true, down_ns: 2 * SECOND };
            steps.push((second(9) + SECOND / 5, crash));
            steps.push((second(10), ScriptStep::Promote { node: 1, force: true }));
            rewrites(steps, second(10) + SECOND / 2, 16);
            steps.push((second(14), ScriptStep::Demote(0)));
            steps.push((second(16), ScriptStep::Sync { full: true }));
        }),
    ]
}

/// The secondary becomes the primary.
fn in_both_roles() -> Vec<ScriptedScenario> {
    let second = |n: u64| n * SECOND;
    vec![
        in_step("handover", Mode::Async, |steps| {
            load(steps, second(1), 20);
            steps.push((second(1) + 60 * MILLISECOND, ScriptStep::Demote(0)));
            steps.push((second(1) + 900 * MILLISECOND, ScriptStep::Promote { node: 1, force: false }));
            load(steps, second(2), 20);
        }),
        in_step("switchover", Mode::Async, |steps| {
            load(steps, second(1), 20);
            steps.push((second(1) + 60 * MILLISECOND, ScriptStep::Switchover { node: 0, to: 1 }));
            load(steps, second(2), 20);
            steps.push((second(2) + 60 * MILLISECOND, ScriptStep::Switchover { node: 1, to: 0 }));
            load(steps, second(3), 8);
        }),
        in_step("switchover-link-lost", Mode::Sync, |steps| {
            load(steps, second(1), 12);
            steps.push((second(1) + 40 * MILLISECOND, ScriptStep::Switchover { node: 0, to: 1 }));
            steps.push((second(1) + 45 * MILLISECOND, ScriptStep::Cable([false; 2])));
            steps.push((second(8), ScriptStep::Cable([true; 2])));
            // At the node that gave a grant which may have been lost.
            steps.push((second(9), ScriptStep::Switchover { node: 0, to: 1 }));
            steps.push((second(10), ScriptStep::Promote { node: 1, force: false }));
            load(steps, second(11), 8);
        }),
        in_step("failover", Mode::Nearsync, |steps| {
            load(steps, second(1), 20);
            steps.push((second(1) + 60 * MILLISECOND, ScriptStep::Crash { node: 0, power: true, down_ns: 2 * SECOND }));
            steps.push((second(2), ScriptStep::Promote { node: 1, force: true }));
            load(steps, second(2) + SECOND / 2, 20);
            steps.push((second(4), ScriptStep::Demote(0)));
            steps.push((second(5), ScriptStep::Sync { full: true }));
        }),
        in_step("promote-mid-sync", Mode::Async, |steps| {
            load(steps, second(1), 20);
            steps.push((second(1) + SECOND / 2, ScriptStep::Mode(Mode::Logging)));
            load(steps, second(1) + SECOND * 3 / 5, 40);
            steps.push((second(2), ScriptStep::Mode(Mode::Async)));
            steps.push((second(2) + MILLISECOND, ScriptStep::Sync { full: false }));
            let crash = ScriptStep::Crash { node: 0, power: true, down_ns: 2 * SECOND };
            steps.push((second(2) + 12 * MILLISECOND, crash));
            steps.push((second(2) + SECOND / 4, ScriptStep::Promote { node: 1, force: true }));
            load(steps, second(2) + SECOND / 2, 10);
            steps.push((second(5), ScriptStep::Demote(0)));
            steps.push((second(6), ScriptStep::Sync { full: true }));
        }),
        in_step("resolve", Mode::Async, |steps| {
            load(steps, second(1), 12);
            steps.push((second(1) + 70 * MILLISECOND, ScriptStep::Cable([false; 2])));
            load(steps, second(1) + 80 * MILLISECOND, 8);
            steps.push((second(2), ScriptStep::Promote { node: 1, force: true }));
            load(steps, second(2) + SECOND / 2, 8);
            steps.push((second(8), ScriptStep::Cable([true; 2])));
            steps.push((second(12), ScriptStep::Keep(1)));
            steps.push((second(12) + 50 * MILLISECOND, ScriptStep::Yield(0)));
            load(steps, second(12) + 20 * MILLISECOND, 30);
        }),
        fork_overwritten(),
        promoted_mid_snapshot(),
    ]
}

/// Nobody resolves the fork: one node is demoted, and overwritten in full.
fn fork_overwritten() -> ScriptedScenario {
    let second = |n: u64| n * SECOND;
    in_step("fork-overwritten", Mode::Async, |steps| {
        load(steps, second(1), 12);
        steps.push((second(1) + 70 * MILLISECOND, ScriptStep::Cable([false; 2])));
        load(steps, second(1) + 80 * MILLISECOND, 16);
        steps.push((second(2), ScriptStep::Promote { node: 1, force: true }));
        load(steps, second(2) + SECOND / 2, 8);
        steps.push((second(8), ScriptStep::Cable([true; 2])));
        steps.push((second(12), ScriptStep::Demote(0)));
        steps.push((second(12) + 50 * MILLISECOND, ScriptStep::Sync { full: true }));
        load(steps, second(12) + 20 * MILLISECOND, 30);
    })
}

fn promoted_mid_snapshot() -> ScriptedScenario {
    let second = |n: u64| n * SECOND;
    slow_link("promote-mid-snapshot", |steps| {
        load(steps, second(4), 60);
        for n in 0..8 {
            let (volume, offset) = ((n % 2) as u16, n / 2 * 64 * KIB);
            let at = second(4) + (320 + n * 5) * MILLISECOND;
            steps.push((at, ScriptStep::Write { volume, offset, length: 32 * KIB }));
        }
        // The first snapshot has ended, the second carries what was written meanwhile.
        steps.push((second(5) + SECOND / 5, ScriptStep::Crash { node: 0, power: true, down_ns: 2 * SECOND }));
        steps.push((second(6), ScriptStep::Promote { node: 1, force: true }));
        load(steps, second(6) + SECOND / 2, 10);
        steps.push((second(9), ScriptStep::Demote(0)));
        steps.push((second(10), ScriptStep::Sync { full: true }));
    })
}
