//! Whoever lets a silent peer keep its session for minutes has a peer whose disks may stand still for minutes: it is not given up
//! earlier than its session.
// proves: rule 17

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, Input, Node};
use sim::scenarios::{SECOND, ScenarioWorld, options, state};

const TIMEOUT_S: u64 = 300;

/// The primary, stopped cleanly, starts with another timeout of its links.
fn patient() -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.stop(0);
    let mut config = world.cluster.node_config(0);
    config.link_timeout = Duration::from_secs(TIMEOUT_S);
    let mut engine = Box::new(Node::new(config));
    engine.trace(true);
    let (now, entropy) = (world.now(), world.rng.draw());
    world.cluster[0].boots(engine, now);
    let boot = u128::from(world.cluster[0].machine_boot());
    world.input(0, Input::Start { entropy, boot });
    world.drain();
    world
}

/// A sync is under way to a peer whose disk answers nothing for so long.
fn syncs_to_a_disk_that_hangs(world: &mut ScenarioWorld, seconds: u64) {
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..8 {
        world.write_done(0, n * 64 * KIB, 4 * KIB);
    }
    world.cluster[1].storage.trouble.stalled_until = world.now() + seconds * SECOND;
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
}

/// It was given up after 60 s, and again after each pause.
#[test]
fn a_peer_whose_disk_hangs_for_less_than_the_timeout_is_not_given_up() {
    let mut world = patient();
    syncs_to_a_disk_that_hangs(&mut world, 120);
    world.pass(119 * SECOND);
    assert_eq!(world.coverage(0, CoveragePoint::SyncStalled), 0);
    assert_eq!(state(&world), Some(State::Syncing));
    world.drain();
    assert_eq!(world.coverage(0, CoveragePoint::SyncStalled), 0);
}

#[test]
fn one_that_hangs_for_longer_is() {
    let mut world = patient();
    syncs_to_a_disk_that_hangs(&mut world, 2 * TIMEOUT_S);
    let began = world.now();
    world.until("given up", |world| world.coverage(0, CoveragePoint::SyncStalled) == 1);
    assert!((TIMEOUT_S - 5..=TIMEOUT_S + 5).contains(&((world.now() - began) / SECOND)));
    assert_eq!(state(&world), Some(State::Logging));
    world.drain();
}
