//! The link is cut in `sync`: each policy does what it says, and nothing else.

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options, patient};

/// A pair in step, the link cut, and a write under way since.
fn cut(policy: Policy) -> (ScenarioWorld, engine::RequestId) {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, policy));
    world.write_done(0, 0, 8192);
    world.cut([false; 2]);
    let id = world.write(1, 4096, 8192);
    (world, id)
}

fn heals(world: &mut ScenarioWorld) {
    world.restore_path();
    world.drain();
    assert_eq!(world.figures(0).peer.dirty_bytes, 0);
}

// proves: P3, rule 10
#[test]
fn degrade_answers_after_the_wait_limit_and_keeps_the_region() {
    let (mut world, id) = cut(Policy::Degrade);
    world.pass(900 * MILLISECOND);
    assert_eq!(world.reply(id), None, "the promise holds until the limit");
    let (done, _) = world.answer(id);
    assert!(done && world.now() < 20 * SECOND);
    assert_eq!(world.glance(0, GROUP).map(|g| g.state), Some(State::Logging));
    assert!(world.figures(0).peer.dirty_bytes > 0);
    let (done, after) = {
        let id = world.write(0, 65536, 4096);
        world.answer(id)
    };
    assert!(done && after < 100 * MILLISECOND, "in logging nobody waits: {after} ns");
    heals(&mut world);
}

#[test]
fn hold_keeps_the_writer_for_the_window_then_degrades() {
    let (mut world, id) = cut(Policy::Hold(Duration::from_secs(4)));
    world.until("the window opens", |world| world.glance(0, GROUP).is_some_and(|g| g.state == State::Holding));
    let opened = world.now();
    world.pass(3 * SECOND);
    assert_eq!(world.reply(id), None, "held");
    assert!(world.answer(id).0);
    assert!(world.now() - opened < 5 * SECOND);
    assert_eq!(world.coverage(0, CoveragePoint::HoldEnded), 1);
    heals(&mut world);
}

#[test]
fn a_link_that_returns_within_the_window_saves_the_promise() {
    let (mut world, id) = cut(Policy::Hold(Duration::from_secs(30)));
    world.until("the window opens", |world| world.glance(0, GROUP).is_some_and(|g| g.state == State::Holding));
    world.pass(SECOND);
    world.restore_path();
    assert!(world.answer(id).0);
    world.drain();
    assert_eq!(
        (world.coverage(0, CoveragePoint::HoldEnded), world.coverage(0, CoveragePoint::DegradeReleasedWriters)),
        (0, 0)
    );
    assert_eq!(world.coverage(0, CoveragePoint::HoldSavedByReconnect), 1);
}

// proves: P1, rule 10
#[test]
fn strict_fails_the_write_and_keeps_the_region() {
    let (mut world, id) = cut(Policy::Strict);
    world.pass(900 * MILLISECOND);
    assert_eq!(world.reply(id), None);
    assert!(!world.answer(id).0, "no acknowledgement without the peer");
    assert!(world.figures(0).peer.dirty_bytes > 0, "its outcome is unknown: the region is dirty");
    let (done, _) = {
        let id = world.write(0, 65536, 4096);
        world.answer(id)
    };
    assert!(!done, "and so for the next one");
    heals(&mut world);
    let (done, _) = {
        let id = world.write(0, 65536, 4096);
        world.answer(id)
    };
    assert!(done);
}

// proves: P1, rule 11
#[test]
fn a_failed_peer_holds_writers_as_a_lost_link_does() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Hold(Duration::from_secs(600))));
    world.cluster[1].storage.trouble.fail_next_flush = true;
    world.write_done(0, 0, 8192);
    world.until("the primary hears of it", |world| world.glance(0, GROUP).is_some_and(|g| g.state == State::Holding));
    let id = world.write(0, 65536, 4096);
    world.pass(30 * SECOND);
    assert_eq!(world.reply(id), None, "nothing is acknowledged alone while the window is open");
    world.crash(1, false, SECOND);
    let (done, _) = world.answer(id);
    assert!(done, "the peer came back");
    world.drain();
}

/// Writers are held without an end when the operator gives them one.
#[test]
fn strict_that_becomes_hold_while_writers_are_held_has_an_end() {
    let (mut world, _) = cut(Policy::Strict);
    world.pass(6 * SECOND);
    assert_eq!(world.glance(0, GROUP).map(|glance| glance.state), Some(State::Holding));
    let mut settings = world.cluster.ledger.settings(GROUP);
    settings.policy = Policy::Hold(Duration::from_secs(4));
    assert!(matches!(world.order(0, Command::Set(settings)), CommandResult::Done(_)));
    let id = world.write(1, 64 * KIB, 8 * KIB);
    let (done, after) = world.answer(id);
    assert!(done && (3 * SECOND..6 * SECOND).contains(&after), "{after} ns");
}

/// A region whose write failed here is being read again when the link falls: that breaks no order, and nobody is answered alone.
#[test]
fn strict_holds_writers_also_beside_a_repair() {
    let mut world = patient();
    world.cluster[0].storage.trouble.serving_full_until = world.now() + 2 * MILLISECOND;
    let id = world.write(0, 512 * KIB, 8 * KIB);
    assert!(!world.answer(id).0);
    world.pass(900 * MILLISECOND);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 20 * SECOND;
    world.pass(300 * MILLISECOND);
    world.cluster[0].storage.trouble.stalled_until = 0;
    world.cut([false; 2]);
    let id = world.write(1, 0, 8 * KIB);
    world.pass(10 * SECOND);
    assert_eq!(world.reply(id), None);
    assert_eq!(world.glance(0, GROUP).map(|glance| glance.state), Some(State::Holding));
    heals(&mut world);
}

/// The peer was promoted meanwhile, and will never have what is held here: its outcome is not known.
#[test]
fn strict_fails_held_writers_when_the_peer_was_promoted() {
    let mut world = patient();
    world.cut([false; 2]);
    let id = world.write(1, 0, 8 * KIB);
    world.pass(7 * SECOND);
    world.command(1, GROUP, Command::Promote { force: true, entropy: 7 });
    world.pass(SECOND);
    assert_eq!(world.reply(id), None);
    world.restore_path();
    assert!(!world.answer(id).0);
    assert!(world.figures(0).reason.contains("both nodes are primary"), "{}", world.figures(0).reason);
}

/// A peer whose answer takes its time, and a link that is lost under policy `hold`.
fn far(wait_limit_ms: u64, window: u64) -> ScenarioWorld {
    let hold = Policy::Hold(Duration::from_secs(window));
    let mut world =
        ScenarioWorld::in_peace(SimOptions { delay_ns: 140 * MILLISECOND, wait_limit_ms, ..options(Mode::Sync, hold) });
    world.pass(10 * SECOND);
    world.cut([false; 2]);
    world
}

/// The link comes back: nobody is answered alone, unless the window has ended before.
fn is_saved_by_the_link(world: &mut ScenarioWorld) {
    assert_eq!(world.glance(0, GROUP).map(|g| g.state), Some(State::Holding));
    world.restore_path();
    world.until("the link is back", |world| world.glance(0, GROUP).is_some_and(|g| g.state != State::Holding));
    world.pass(3 * SECOND);
    let ended = world.coverage(0, CoveragePoint::HoldEnded) > 0;
    let alone = world.coverage(0, CoveragePoint::DegradeReleasedWriters) > 0;
    assert!(
        ended || !alone && world.coverage(0, CoveragePoint::HoldSavedByReconnect) > 0,
        "{}",
        world.figures(0).reason
    );
}

#[test]
fn a_link_that_returns_within_the_window_leaves_the_peer_time_to_answer() {
    for back in [8, 12, 16, 20, 22, 23] {
        let mut world = far(1000, 20);
        let id = world.write(0, 0, 4 * KIB);
        world.pass(back * SECOND);
        assert_eq!(world.reply(id), None);
        is_saved_by_the_link(&mut world);
    }
}

/// The window is made shorter while writers are held: it counts anew from there.
#[test]
fn a_link_that_returns_within_a_changed_window_saves_the_promise() {
    let mut world = far(10_000, 120);
    let id = world.write(0, 0, 4 * KIB);
    world.pass(60 * SECOND);
    world.set(GROUP, |settings| settings.policy = Policy::Hold(Duration::from_secs(30)));
    world.pass(5 * SECOND);
    assert_eq!(world.reply(id), None);
    is_saved_by_the_link(&mut world);
    assert_eq!(world.coverage(0, CoveragePoint::HoldEnded), 0);
}

/// The peer's disk hangs, and the connection breaks every three seconds: that is one window, not always a new one.
#[test]
fn a_link_that_flaps_does_not_hold_a_writer_for_ever() {
    let hold = Policy::Hold(Duration::from_secs(5));
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, hold));
    world.cluster[1].storage.trouble.stalled_until = world.now() + 100 * SECOND;
    let id = world.write(0, 0, 4 * KIB);
    for _ in 0..5 {
        world.flap([0, 1]);
        world.pass(3 * SECOND);
    }
    assert_eq!(world.reply(id), Some(true));
}

/// The link is back while the window still runs, and then the operator sets something: should it go again, the window is the one
/// that is set now.
#[test]
fn a_window_ends_with_the_settings_it_was_begun_under() {
    let hold = |seconds| Policy::Hold(Duration::from_secs(seconds));
    for mode_too in [false, true] {
        let mut world = ScenarioWorld::in_peace(SimOptions {
            bytes_per_s: 100_000,
            wait_limit_ms: 60_000,
            ..options(Mode::Sync, hold(3))
        });
        world.cut([false; 2]);
        world.pass(SECOND / 2);
        for n in 0..40 {
            world.write(n % 2, u64::from(n) * 16 * KIB, 16 * KIB);
        }
        let state = |world: &ScenarioWorld| world.glance(0, GROUP).map(|glance| glance.state);
        let back = |world: &ScenarioWorld| matches!(state(world), Some(State::CatchingUp | State::Replicating));
        world.until("held", |world| state(world) == Some(State::Holding));
        world.restore_path();
        world.until("back", back);
        if mode_too {
            world.set(GROUP, |settings| settings.mode = Mode::Async);
            world.cut([false; 2]);
            world.until("queuing", |world| state(world) == Some(State::Queuing));
            world.pass(600 * SECOND);
            world.set(GROUP, |settings| settings.mode = Mode::Sync);
            world.restore_path();
            world.until("back", back);
        } else {
            world.set(GROUP, |settings| settings.policy = hold(300));
            world.pass(4 * SECOND);
        }
        world.cut([false; 2]);
        world.until("noticed", |world| !back(world));
        assert_eq!(state(&world), Some(State::Holding), "{}", world.figures(0).reason);
    }
}
