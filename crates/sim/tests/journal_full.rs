//! A journal full of what the primary has not flushed: room comes with its flush, and where no flush will come nobody waits
//! for it.

use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, Input};
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

/// The primary's disk stands still, the secondary's journal fills up and more has arrived than it has room for.
fn full() -> ScenarioWorld {
    full_in(Mode::Async)
}

fn full_in(mode: Mode) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(SimOptions {
        journal_bytes: 384 * KIB,
        window_bytes: 192 * KIB,
        start_alone_ms: 600_000,
        wait_limit_ms: 100_000,
        ..options(mode, Policy::Degrade)
    });
    // These extents are in the activity log then, and stay there.
    for n in 0..4 {
        world.write_done((n % 2) as u16, n / 2 * 256 * KIB, 8 * KIB);
    }
    world.pass(6 * SECOND);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 60 * SECOND;
    for n in 0..70 {
        world.write((n % 2) as u16, n / 2 * 8 * KIB, 8 * KIB);
        world.pass(5 * MILLISECOND);
    }
    world.pass(SECOND);
    assert!(unlanded(&world), "{:?}", world.glance(1, GROUP));
    world
}

/// Something was received that the journal has no room for.
fn unlanded(world: &ScenarioWorld) -> bool {
    world.figures(1).unapplied_bytes > 0
}

// proves: P1, P8
#[test]
fn a_primary_that_lost_power_hears_what_landed() {
    let mut world = full();
    world.crash(0, true, SECOND);
    world.cluster[0].storage.trouble.stalled_until = 0;
    world.until("it serves again", |world| world.cluster[0].serves(GROUP));
    assert!(world.figures(0).pulled_bytes > 0);
    world.drain();
}

#[test]
fn a_primary_that_was_killed_syncs() {
    let mut world = full();
    world.crash(0, false, SECOND);
    world.cluster[0].storage.trouble.stalled_until = 0;
    world.until("it is back", |world| world.cluster[0].serves(GROUP));
    world.drain();
}

// proves: P8
#[test]
fn a_primary_whose_disk_moves_again_goes_on_in_order() {
    let mut world = full();
    world.until("all is there", |world| world.checkers.writes.pending() == 0 && !unlanded(world));
    assert!(world.glance(0, GROUP).is_some_and(|glance| glance.state == State::Replicating));
    world.drain();
}

// proves: P2
#[test]
fn a_promotion_lands_what_was_received() {
    let mut world = full();
    world.crash(0, true, FOR_EVER);
    world.pass(SECOND);
    // The checker compares the image that it opens with to the prefix that it claims.
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
}

#[test]
fn a_clean_stop_ends() {
    let mut world = full();
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    world.input(1, engine::Input::Stop);
    world.until("it stopped", |world| !world.cluster[1].up() || world.cluster[1].boot() > 2);
    world.restore_path();
    world.until("both are up", |world| world.cluster.iter().all(|node| node.up()));
    if world.glance(0, GROUP).is_some_and(|glance| glance.state == State::Logging) {
        world.order(0, Command::Sync { full: false });
    }
    world.drain();
}

/// What a stop drops was confirmed as received, and stays confirmed: taking it back would end the primary's session as a
/// breach of protocol.
#[test]
fn a_stop_with_a_full_journal_takes_no_confirmation_back() {
    for mode in [Mode::Async, Mode::Nearsync] {
        let mut world = full_in(mode);
        world.input(1, Input::Stop);
        world.pass(10 * SECOND);
        world.cluster[0].storage.trouble.stalled_until = 0;
        world.pass(60 * SECOND);
        world.until("both are up", |world| world.cluster.iter().all(|node| node.up()));
        if world.glance(0, GROUP).is_some_and(|glance| glance.state == State::Logging) {
            world.order(0, Command::Sync { full: false });
        }
        world.drain();
    }
}
