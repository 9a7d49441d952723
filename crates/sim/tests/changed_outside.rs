//! A volume was written while its node was stopped, and the host has found it. A start that ends before it is on record leaves
//! the superblock as it was, so the host finds it again; wherever a start ends, the change is not forgotten.

use engine::state::{Mode, Policy};
use engine::{Command, Input, Node, NodeConfig, NodeId, Store, VolumeId, limits};
use sim::story::{FOR_EVER, GROUP, MILLISECOND, SECOND, options};
use sim::world::World;

#[derive(Clone, Copy, Debug)]
enum End {
    Stop,
    Kill,
}

/// The daemon starts, and its host has found the volumes changed. It says so as long as the superblock says of the run that it
/// sealed that it ended cleanly; the engine knows that better, and does not listen otherwise.
fn boots_over_changed_volumes(world: &mut World, node: usize) {
    let mut group = world.group_config(node, GROUP);
    group.volumes.iter_mut().for_each(|volume| volume.changed_outside = true);
    let config = NodeConfig {
        node: NodeId(node as u16),
        groups: vec![group],
        link_timeout: limits::LINK_TIMEOUT_DEFAULT,
        memory_bytes: world.options.memory_bytes,
        syncs_at_once: world.options.syncs_at_once,
    };
    let sim = &mut world.nodes[node];
    sim.engine = Some(Box::new(Node::new(config)));
    sim.boot += 1;
    (sim.stopping, sim.booted_at) = (false, world.now);
    sim.serving.clear();
    sim.ready.clear();
    let boot = u128::from(sim.machine_boot);
    world.input(node, Input::Start { entropy: 7, boot });
}

/// The judge knows nothing of who writes behind our back: what it says is left aside.
fn on(world: &mut World, time_ns: u64) {
    let until = world.now + time_ns;
    while world.now < until {
        world.run_until(until.min(world.now + 10 * MILLISECOND));
        world.verdict = Ok(());
    }
}

/// A start that found the change ends after so long; whether it had come to be ready.
fn ends_after(node: usize, end: End, late_ns: u64) -> bool {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    world.pass(30 * SECOND);
    world.input(node, Input::Stop);
    world.until("it has stopped", |world| !world.nodes[node].up());
    let volume = Store::Volume(GROUP, VolumeId(0));
    world.nodes[node].disks.get_mut(&volume).expect("there").goes_astray(64 << 10, &[0xab; 4096]);
    boots_over_changed_volumes(&mut world, node);
    on(&mut world, late_ns);
    let ready = world.glance(node, GROUP).expect("up").running;
    match end {
        End::Kill => world.crash(node, false, FOR_EVER),
        End::Stop => world.input(node, Input::Stop),
    }
    while world.nodes[node].up() {
        on(&mut world, MILLISECOND);
    }
    match ready {
        // Its host has a seal of that run, or none that counts.
        true => world.boot(node),
        false => boots_over_changed_volumes(&mut world, node),
    }
    on(&mut world, 60 * SECOND);
    let story = format!("node {node}, {end:?} after {late_ns} ns");
    let apart = world.images_of(0) != world.images_of(1);
    assert!(!(apart && world.in_step(GROUP)), "{story}: replicating, and the nodes differ");
    if apart {
        assert_eq!(node, 1, "{story}: what the primary holds is compared without being asked");
        world.command(0, GROUP, Command::Sync { full: true });
        on(&mut world, 60 * SECOND);
    }
    assert!(world.in_step(GROUP) && world.images_of(0) == world.images_of(1), "{story}: not made whole");
    ready
}

fn at_every_moment_of_a_start(node: usize, end: End) {
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
    at_every_moment_of_a_start(0, End::Stop);
}

#[test]
fn a_change_to_the_primary_outlives_a_kill_at_any_moment_of_a_start() {
    at_every_moment_of_a_start(0, End::Kill);
}

#[test]
fn a_change_to_the_secondary_outlives_a_stop_at_any_moment_of_a_start() {
    at_every_moment_of_a_start(1, End::Stop);
}

#[test]
fn a_change_to_the_secondary_outlives_a_kill_at_any_moment_of_a_start() {
    at_every_moment_of_a_start(1, End::Kill);
}
