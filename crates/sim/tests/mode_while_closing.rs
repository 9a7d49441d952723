//! What happened: a mode was set while an export was being closed. The group was said to be in step in it at once, though writes that
//! were still under way had been given under another promise.

use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, Input, Settings};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

/// In `async` the peer keeps a write that is not flushed here, and what comes after it waits in the queue.
fn behind() -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.pass(10 * SECOND);
    world.write_done(1, 0, 8 * KIB);
    world.pass(200 * MILLISECOND);
    world.cluster[1].storage.trouble.stalled_until = world.now() + 2 * SECOND;
    let many: Vec<_> = (0..16).map(|n| world.write(0, n * 32 * KIB, 32 * KIB)).collect();
    for id in many {
        assert!(world.answer(id).0);
    }
    world
}

/// A write with FUA is under way; its flush goes on record, or the older write is fetched over it after a power loss.
fn outlives_the_power(close: fn(&mut ScenarioWorld)) {
    let mut world = behind();
    world.cluster[0].storage.trouble.stalled_until = world.now() + 20 * MILLISECOND;
    let id = world.write_fua(1, 0, 8 * KIB);
    close(&mut world);
    let settings = Settings { mode: Mode::Sync, ..world.cluster.ledger.settings(GROUP) };
    assert!(matches!(world.order(0, Command::Set(settings)), CommandResult::Done(_)));
    assert!(world.answer(id).0);
    assert_eq!(world.glance(0, GROUP).map(|glance| glance.state), Some(State::CatchingUp));
    let written = world.images_of(0)[1][..8 << 10].to_vec();
    world.crash(0, true, SECOND);
    world.pass(10 * SECOND);
    assert!(world.images_of(0)[1][..8 << 10] == written[..], "lost though acknowledged: {}", world.figures(0).reason);
    world.drain();
}

// proves: P4
#[test]
fn a_write_that_is_answered_while_its_export_closes_for_a_demotion_outlives_the_power() {
    outlives_the_power(|world| _ = world.command(0, GROUP, Command::Demote));
}

// proves: P4
#[test]
fn a_write_that_is_answered_while_its_export_closes_for_a_stop_outlives_the_power() {
    outlives_the_power(|world| world.input(0, Input::Stop));
}

// proves: P1
/// A writer waited for a peer that was promoted by force in that very moment: he was answered alone.
#[test]
fn strict_answers_nobody_alone_when_the_mode_is_set_while_the_export_closes() {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { wait_limit_ms: 60_000, ..options(Mode::Sync, Policy::Strict) });
    world.pass(5 * SECOND);
    world.cluster[1].storage.trouble.stalled_until = world.now() + 2 * SECOND;
    world.command(1, GROUP, Command::Promote { force: true, entropy: 7 });
    world.pass(100 * MILLISECOND);
    let id = world.write(1, 0, 8 * KIB);
    world.pass(500 * MILLISECOND);
    world.command(0, GROUP, Command::Demote);
    let settings = Settings { mode: Mode::Nearsync, ..world.cluster.ledger.settings(GROUP) };
    assert!(matches!(world.order(0, Command::Set(settings)), CommandResult::Done(_)));
    assert_eq!(world.reply(id), None);
    let (done, _) = world.answer(id);
    let there = world.images_of(0)[1][..8 << 10] == world.images_of(1)[1][..8 << 10];
    assert!(!done || there, "acknowledged under strict, and only here: {}", world.figures(0).reason);
}
