//! A volume was written while its node was stopped, and the host has found it. A start that ends before it is on record leaves
//! the superblock as it was, so the host finds it again; wherever a start ends, the change is not forgotten.
// proves: P7

use engine::state::{Mode, Policy};
use engine::{Command, Input, Store, VolumeId};
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

#[derive(Clone, Copy, Debug)]
enum RunEnd {
    Stop,
    Kill,
}

/// A start that found the change ends after so long; whether it had come to be ready.
fn ends_after(node: usize, end: RunEnd, late_ns: u64) -> bool {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.pass(30 * SECOND);
    world.input(node, Input::Stop);
    world.until("it has stopped", |world| !world.cluster[node].up());
    let volume = Store::Volume(GROUP, VolumeId(0));
    world.cluster[node].disk_mut(volume).goes_astray(64 << 10, &[0xab; 4096]);
    world.boot_changed(node);
    world.pass_unchecked(late_ns);
    let ready = world.glance(node, GROUP).expect("up").running;
    match end {
        RunEnd::Kill => world.crash(node, false, FOR_EVER),
        RunEnd::Stop => world.input(node, Input::Stop),
    }
    while world.cluster[node].up() {
        world.pass_unchecked(MILLISECOND);
    }
    match ready {
        // Its host has a seal of that run, or none that counts.
        true => world.boot(node),
        false => world.boot_changed(node),
    }
    world.pass_unchecked(60 * SECOND);
    let scenario = format!("node {node}, {end:?} after {late_ns} ns");
    let apart = world.images_of(0) != world.images_of(1);
    assert!(!(apart && world.in_step()), "{scenario}: replicating, and the nodes differ");
    if apart {
        // A primary's goes nowhere before its operator says so; a secondary's copy is no image any more.
        world.command(0, GROUP, Command::Sync { full: true });
        world.pass_unchecked(60 * SECOND);
    }
    assert!(world.in_step() && world.images_of(0) == world.images_of(1), "{scenario}: not made whole");
    ready
}

fn at_every_moment_of_a_start(node: usize, end: RunEnd) {
    let mut late_ns = 0;
    let mut moments = 0;
    while !ends_after(node, end, late_ns) {
        late_ns += 50_000;
        moments += 1;
    }
    assert!(moments > 5, "the start was over after {moments} moments");
}

#[test]
fn a_change_to_the_primary_outlives_a_stop_at_any_moment_of_a_start() {
    at_every_moment_of_a_start(0, RunEnd::Stop);
}

#[test]
fn a_change_to_the_primary_outlives_a_kill_at_any_moment_of_a_start() {
    at_every_moment_of_a_start(0, RunEnd::Kill);
}

#[test]
fn a_change_to_the_secondary_outlives_a_stop_at_any_moment_of_a_start() {
    at_every_moment_of_a_start(1, RunEnd::Stop);
}

#[test]
fn a_change_to_the_secondary_outlives_a_kill_at_any_moment_of_a_start() {
    at_every_moment_of_a_start(1, RunEnd::Kill);
}
