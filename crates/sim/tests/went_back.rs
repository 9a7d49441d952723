//! A copy whose forced promotion is cut short finishes the way back at its next start, and is the secondary that it was: it
//! follows its primary, whatever that wrote alone meanwhile.

use engine::coverage::CoveragePoint;
use engine::identity::Role;
use engine::limits::KIB;
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

fn slow() -> SimOptions {
    SimOptions { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) }
}

/// The copy on `far` is to be promoted by force, is killed on its way back, and comes back as the secondary it was.
fn goes_back_and_dies(world: &mut ScenarioWorld, far: usize) {
    let entropy = world.rng.draw();
    world.command(far, GROUP, Command::Promote { force: true, entropy });
    let limit = world.now() + SECOND;
    let writes_back =
        |world: &ScenarioWorld| world.cluster[far].explain(GROUP).map(|inside| inside.contains("WriteBack"));
    while writes_back(world) != Some(true) {
        assert!(world.now() < limit);
        world.pass(50_000);
    }
    world.crash(far, true, MILLISECOND);
    world.until("it is back", |world| world.glance(far, GROUP).is_some_and(|g| g.running));
    assert_eq!(world.coverage(far, CoveragePoint::RollbackResumed), 1);
    let glance = world.glance(far, GROUP).expect("up");
    assert_eq!((glance.identity.role, glance.identity.inconsistent), (Role::Secondary, false));
}

fn writes(world: &mut ScenarioWorld, count: u64) {
    for n in 0..count {
        world.write_done((n % 2) as u16, n * 60 * KIB, 60 * KIB);
    }
}

fn converges_by_itself(world: &mut ScenarioWorld, near: usize) {
    world.restore_path();
    world.pass(5 * SECOND);
    let order = world.order(near, Command::Sync { full: false });
    assert!(!matches!(order, CommandResult::Refused(_)), "{order:?}\n{}", world.figures(near).reason);
    world.drain();
}

/// The primary has gone on alone before the sync, and may do so again after it was cut short.
fn goes_back_over_lone_stretches(another: bool) {
    let mut world = ScenarioWorld::in_peace(slow());
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    writes(&mut world, 14);
    let before = world.images_of(1);
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.until("a part is overwritten", |world| world.images_of(1) != before);
    world.cut([false; 2]);
    if another {
        world.pass(6 * SECOND);
        world.write_done(0, 0, 4 * KIB);
    }
    goes_back_and_dies(&mut world, 1);
    assert_eq!(world.images_of(1), before);
    converges_by_itself(&mut world, 0);
}

#[test]
fn it_follows_over_one_lone_stretch() {
    goes_back_over_lone_stretches(false);
}

#[test]
fn it_follows_over_two_lone_stretches() {
    goes_back_over_lone_stretches(true);
}

/// It was the primary until a planned switchover, and wrote nothing since; the first sync to it is cut short.
#[test]
fn it_follows_from_its_handover() {
    let mut world = ScenarioWorld::in_peace(slow());
    writes(&mut world, 4);
    world.drain();
    let mut settings = world.cluster.ledger.settings(GROUP);
    settings.autosync = false;
    assert!(matches!(world.order(1, Command::Set(settings)), CommandResult::Done(_)));
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    world.pass(SECOND);
    assert!(matches!(world.promote(1, false), CommandResult::Done(_)));
    world.pass(SECOND);
    writes(&mut world, 14);
    let before = world.images_of(0);
    assert!(matches!(world.order(1, Command::Sync { full: false }), CommandResult::Done(_)));
    world.until("a part is overwritten", |world| world.images_of(0) != before);
    world.cut([false; 2]);
    world.pass(6 * SECOND);
    goes_back_and_dies(&mut world, 0);
    assert_eq!(world.images_of(0), before);
    converges_by_itself(&mut world, 1);
}
