//! A primary loses its power, and is demoted before it could ask the peer what that had confirmed. Whatever its role, its volumes
//! lack the same writes: promoted again it fetches them before its export opens, after any restart in between.

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult};
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, needs_verification, options, serves};

/// In step, with writes that are confirmed there and not flushed here: that happens every five seconds.
fn unflushed(mode: Mode) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(mode, Policy::Degrade));
    for n in 0..24 {
        world.write_done((n % 2) as u16, n * 32 * KIB, 16 * KIB);
    }
    world.pass(200 * MILLISECOND);
    world
}

/// Node 0 is back without what its caches held.
fn loses_power(world: &mut ScenarioWorld) {
    world.crash(0, true, SECOND);
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    assert!(!serves(world) && lacks_something(world));
}

/// The peer is there to be asked, or is not.
fn lost_power(peer_is_there: bool) -> ScenarioWorld {
    let mut world = unflushed(Mode::Async);
    world.cut([peer_is_there; 2]);
    loses_power(&mut world);
    world
}

/// It was demoted before it met its peer.
fn demoted_unverified() -> ScenarioWorld {
    let mut world = lost_power(false);
    let CommandResult::Warning(reply) = world.order(0, Command::Demote) else { panic!("it hands nothing over") };
    assert!(reply.contains("not known what the peer confirmed before this node lost power"), "{reply}");
    world
}

fn lacks_something(world: &ScenarioWorld) -> bool {
    world.images_of(0) != world.images_of(1)
}

/// It was promoted with the peer in sight or soon in sight.
fn serves_with_what_was_lost(mut world: ScenarioWorld) {
    world.until("the export is open", serves);
    assert!(!lacks_something(&world) && !needs_verification(&world));
    assert_eq!(world.coverage(0, CoveragePoint::TailPulled), 1);
    // A forced promotion is one all the same: nothing is sent before the operator says so.
    world.refused(0, Command::Sync { full: false });
    world.write_done(0, 4 * KIB, 8 * KIB);
    assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
    world.drain();
}

// proves: P1
#[test]
fn promoted_again_it_fetches_what_the_peer_confirmed() {
    let mut world = demoted_unverified();
    world.restore_path();
    world.pass(10 * SECOND);
    let why = world.refused(0, Command::Promote { force: false, entropy: 7 });
    assert!(why.contains("demoted before it was known what the peer had confirmed"), "{why}");
    assert!(matches!(world.promote(0, true), CommandResult::Warning(_)));
    serves_with_what_was_lost(world);
}

// proves: P1
#[test]
fn promoted_without_its_peer_it_waits_for_it() {
    let mut world = demoted_unverified();
    let CommandResult::Warning(reply) = world.promote(0, true) else { panic!("the fork is told") };
    assert!(reply.contains("the export opens when the peer was asked"), "{reply}");
    world.pass(SECOND);
    assert!(!serves(&world) && lacks_something(&world));
    world.restore_path();
    serves_with_what_was_lost(world);
}

#[test]
fn a_restart_in_between_changes_nothing() {
    for power in [false, true] {
        let mut world = demoted_unverified();
        world.crash(0, power, SECOND);
        world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
        world.restore_path();
        world.pass(10 * SECOND);
        assert!(lacks_something(&world) && needs_verification(&world));
        assert!(matches!(world.promote(0, true), CommandResult::Warning(_)));
        serves_with_what_was_lost(world);
    }
}

/// It was promoted and demoted again before it met its peer: that stands two generations behind by now.
#[test]
fn promoted_twice_it_fetches_what_the_peer_confirmed() {
    let mut world = demoted_unverified();
    assert!(matches!(world.promote(0, true), CommandResult::Warning(_)));
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
    assert!(matches!(world.promote(0, true), CommandResult::Warning(_)));
    world.pass(SECOND);
    assert!(!serves(&world) && lacks_something(&world));
    world.restore_path();
    serves_with_what_was_lost(world);
}

/// It had gone on without its peer when its power failed, which is a generation of its own.
#[test]
fn alone_before_its_power_failed_it_fetches_what_the_peer_confirmed() {
    let mut world = unflushed(Mode::Nearsync);
    let confirmed = world.images_of(1);
    world.cut([false; 2]);
    let before = world.glance(0, GROUP).expect("it runs").identity.generation;
    for n in 0..2 {
        world.write_done(1, (1000 + n * 4) * KIB, 4 * KIB);
        world.pass(100 * MILLISECOND);
    }
    assert_ne!(world.glance(0, GROUP).expect("it runs").identity.generation, before);
    loses_power(&mut world);
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
    assert!(matches!(world.promote(0, true), CommandResult::Warning(_)));
    world.restore_path();
    world.until("the export is open", serves);
    assert_eq!(world.coverage(0, CoveragePoint::TailPulled), 1);
    for (held, confirmed) in world.images_of(0).iter().zip(&confirmed) {
        assert!(held[..1000 << 10] == confirmed[..1000 << 10]);
    }
}

#[test]
fn without_the_peer_start_alone_opens_the_export_and_the_operator_is_asked() {
    let mut world = demoted_unverified();
    let before = world.now();
    assert!(matches!(world.promote(0, true), CommandResult::Warning(_)));
    world.until("the export is open", serves);
    assert!(world.now() - before >= 5 * SECOND && needs_verification(&world));
    world.write_done(0, 0, 8 * KIB);
    world.restore_path();
    world.pass(10 * SECOND);
    assert!(lacks_something(&world), "nothing is pulled under clients, and nothing is sent");
    world.refused(0, Command::Sync { full: false });
    assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
    world.drain();
    assert!(!needs_verification(&world));
}

#[test]
fn a_sync_from_the_peer_ends_verification() {
    let mut world = demoted_unverified();
    world.restore_path();
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
    world.pass(10 * SECOND);
    assert!(needs_verification(&world));
    assert!(matches!(world.order(1, Command::Sync { full: true }), CommandResult::Done(_)));
    world.drain();
    assert!(!needs_verification(&world));
    assert!(matches!(world.order(1, Command::Demote), CommandResult::Done(_)));
    assert!(matches!(world.promote(0, false), CommandResult::Done(_)));
    assert!(serves(&world), "at once");
    world.drain();
}

#[test]
fn a_demotion_in_the_midst_of_fetching_is_undone_like_any_other() {
    let mut interrupted = 0;
    for instant in 0..20 {
        let mut world = lost_power(true);
        let lost = world.images_of(0);
        world.pass(instant * 12 * MILLISECOND);
        assert!(!matches!(world.order(0, Command::Demote), CommandResult::Refused(_)));
        interrupted += usize::from(needs_verification(&world) && world.images_of(0) != lost);
        if instant % 2 == 1 {
            // What was fetched so far stands on its volumes, also after this.
            world.crash(0, true, SECOND);
            world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
        }
        assert!(!matches!(world.promote(0, true), CommandResult::Refused(_)));
        world.until("the export is open", serves);
        assert!(!lacks_something(&world) && !needs_verification(&world));
    }
    assert!(interrupted > 0);
}
