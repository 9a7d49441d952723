//! The peer window: for how long a secondary may be promoted in the knowledge that nothing which was acknowledged is missing there, though
//! nobody can ask its primary.
// proves: P1, rule 14

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, RefusalCode, VolumeId};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

const WINDOW: Duration = Duration::from_secs(20);

fn holding(mode: Mode) -> SimOptions {
    SimOptions { start_alone_ms: 100, wait_limit_ms: 30_000, ..options(mode, Policy::Hold(WINDOW)) }
}

/// A group in step, whose secondary knows of a window.
fn in_window(options: SimOptions) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options);
    world.write_done(0, 0, 8 * KIB);
    world.until("the secondary knows of a window", |world| left(world).is_some());
    world
}

fn left(world: &ScenarioWorld) -> Option<Duration> {
    let until = world.glance(1, GROUP).and_then(|glance| glance.peer_window_until)?;
    let now = world.cluster[1].clocks(world.now()).mono;
    Some(until.since(now)).filter(|left| !left.is_zero())
}

fn promotes(world: &mut ScenarioWorld) -> CommandResult {
    let entropy = world.rng.draw();
    world.order(1, Command::PromoteInWindow { entropy })
}

fn refusal(world: &mut ScenarioWorld) -> RefusalCode {
    match promotes(world) {
        CommandResult::Refused(refusal) => refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

/// The site of the primary is lost under its writers: within the window the copy has all that they were answered for.
#[test]
fn a_promotion_in_the_window_loses_nothing_that_was_acknowledged() {
    for mode in [Mode::Sync, Mode::Nearsync] {
        let mut world = in_window(holding(mode));
        for n in 0..20 {
            world.write_done((n % 2) as u16, n * 16 * KIB, 8 * KIB);
        }
        // Nobody is answered for this one.
        world.cut([false; 2]);
        let unanswered = world.write(0, 800 * KIB, 8 * KIB);
        world.pass(50 * MILLISECOND);
        world.crash(0, true, 60 * SECOND);
        assert_eq!(world.reply(unanswered), None, "{mode:?}");
        world.pass(SECOND);
        let still = left(&world).expect("the window outlives the session");
        assert!(still < WINDOW && still > WINDOW / 2, "{still:?}");
        let CommandResult::Warning(text) = promotes(&mut world) else { panic!("it is promoted, with a warning") };
        assert!(text.contains("nothing that the peer has acknowledged is missing here"), "{text}");
        assert!(world.cluster[1].serves(GROUP));
    }
}

/// The same as a plain forced promotion: it says what is known.
#[test]
fn whoever_forces_a_promotion_in_the_window_is_told_that_nothing_is_lost() {
    let mut world = in_window(holding(Mode::Sync));
    world.crash(0, true, 60 * SECOND);
    world.pass(SECOND);
    let why = world.refused(1, Command::Promote { force: false, entropy: 3 });
    assert!(
        why.contains("nothing that the peer has acknowledged is missing here") && why.contains("--in-window"),
        "{why}"
    );
    let CommandResult::Warning(text) = world.promote(1, true) else { panic!("it is promoted, with a warning") };
    assert!(text.contains("nothing that the peer has acknowledged is missing here"), "{text}");
}

/// Where nothing proves it, a promotion that is to lose nothing is none.
#[test]
fn without_a_window_a_promotion_that_is_to_lose_nothing_is_refused() {
    // Nobody is held for a peer that is away, or waits for it at all.
    let without = [
        SimOptions { policy: Policy::Degrade, ..holding(Mode::Sync) },
        SimOptions { policy: Policy::Strict, ..holding(Mode::Sync) },
        holding(Mode::Async),
    ];
    for options in without {
        let mut world = ScenarioWorld::in_peace(options);
        world.write_done(0, 0, 8 * KIB);
        world.pass(5 * SECOND);
        assert_eq!(left(&world), None);
        world.crash(0, true, 60 * SECOND);
        world.pass(SECOND);
        assert_eq!(refusal(&mut world), RefusalCode::WindowClosed);
    }
    // The primary is there, and can be asked.
    let mut world = in_window(holding(Mode::Sync));
    assert_eq!(refusal(&mut world), RefusalCode::PeerIsPrimary);
    // It is over.
    world.cut([false; 2]);
    world.pass(21 * SECOND);
    assert_eq!(left(&world), None);
    assert_eq!(refusal(&mut world), RefusalCode::WindowClosed);
    // The copy is none of the present: it has begun anew, and knows of no window.
    let mut world = in_window(holding(Mode::Sync));
    world.cut([false; 2]);
    world.crash(1, false, 100 * MILLISECOND);
    world.until("it is back", |world| world.cluster[1].status_of(GROUP).is_some_and(|status| !status.starting));
    assert_eq!(refusal(&mut world), RefusalCode::WindowClosed);
}

/// An operator lets writers go on without the peer: with the link down they are answered when the window is over, and not before.
#[test]
fn with_the_link_down_nothing_lets_writers_go_on_before_the_window_is_over() {
    type Order = fn(&mut ScenarioWorld);
    let orders: [Order; 3] = [
        |world| world.set(GROUP, |settings| settings.mode = Mode::Async),
        |world| world.set(GROUP, |settings| settings.policy = Policy::Degrade),
        |world| _ = world.order(0, Command::Logging),
    ];
    for order in orders {
        let mut world = in_window(holding(Mode::Sync));
        world.cut([false; 2]);
        let since = world.now();
        let held = world.write(0, 64 * KIB, 8 * KIB);
        world.until("writers are held", |world| world.figures(0).state == State::Holding);
        order(&mut world);
        let second = world.write(1, 64 * KIB, 8 * KIB);
        world.pass(SECOND);
        assert_eq!((world.reply(held), world.reply(second)), (None, None));
        let (writers, still) = world.figures(0).held_answers.expect("answers are held");
        assert!(writers == 2 && still > left(&world).expect("the window is open"), "{writers} {still:?}");
        assert!(world.answer(held).0 && world.answer(second).0);
        assert_eq!(left(&world), None);
        assert!(world.now() - since <= WINDOW.as_nanos() as u64 + SECOND);
        assert!(world.write_done(0, 128 * KIB, 8 * KIB) < 100 * MILLISECOND, "nobody waits any more");
        world.restore_path();
        world.set(GROUP, |settings| (settings.mode, settings.policy) = (Mode::Sync, Policy::Hold(WINDOW)));
        assert!(!matches!(world.order(0, Command::Sync { full: false }), CommandResult::Refused(_)));
        world.drain();
        world.until("a window is given again", |world| left(world).is_some());
    }
}

/// Its question and the answer are under way for long: the window that the secondary knows of is over before writers go on without it.
#[test]
fn a_window_counts_from_the_question_however_long_the_answer_takes() {
    let short = SimOptions { policy: Policy::Hold(Duration::from_secs(8)), ..holding(Mode::Sync) };
    let mut world = in_window(short);
    world.network.set_delay(200 * MILLISECOND);
    world.pass(10 * SECOND);
    world.cut([false; 2]);
    let held = world.write(0, 64 * KIB, 8 * KIB);
    world.until("writers are held", |world| world.figures(0).state == State::Holding);
    world.set(GROUP, |settings| settings.mode = Mode::Async);
    world.pass(SECOND);
    let (_, still) = world.figures(0).held_answers.expect("answers are held");
    let known = left(&world).expect("the window is open");
    assert!(still > known + Duration::from_millis(200), "{still:?} {known:?}");
    assert!(world.answer(held).0);
    assert_eq!(left(&world), None);
}

/// With the link up the peer hears that the window is taken back, and writers go on after a round trip.
#[test]
fn with_the_link_up_the_window_is_taken_back_in_a_round_trip() {
    type Order = fn(&mut ScenarioWorld);
    let orders: [Order; 4] = [
        |world| world.set(GROUP, |settings| settings.mode = Mode::Async),
        |world| world.set(GROUP, |settings| settings.policy = Policy::Degrade),
        |world| _ = world.order(0, Command::Logging),
        |world| _ = world.order(0, Command::SetAside { volume: VolumeId(0) }),
    ];
    for order in orders {
        let mut world = in_window(holding(Mode::Sync));
        order(&mut world);
        assert!(world.write_done(0, 64 * KIB, 8 * KIB) < SECOND);
        assert_eq!(left(&world), None);
        assert_eq!(world.coverage(0, CoveragePoint::PeerWindowTakenBack), 1);
        world.pass(5 * SECOND);
        assert_eq!((left(&world), world.recorded(1).window_ms), (None, 0));
    }
}

/// A write is under way on a slow disk while the mode is taken back and typed again: its writer does not wait as long as windows are given.
#[test]
fn whoever_waits_for_a_window_is_let_go_before_the_next_one() {
    let mut world = in_window(holding(Mode::Nearsync));
    world.set(GROUP, |settings| settings.mode = Mode::Async);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 3 * SECOND;
    let slow = world.write(0, 64 * KIB, 8 * KIB);
    world.pass(100 * MILLISECOND);
    world.set(GROUP, |settings| settings.mode = Mode::Nearsync);
    world.until("a window is given again", |world| left(world).is_some());
    let (done, after) = world.answer(slow);
    assert!(done && after < 5 * SECOND, "{after} ns");
    world.until("and again", |world| left(world).is_some());
}

/// A primary that was killed, and starts while its peer is away, keeps to what the run before gave.
#[test]
fn a_primary_that_starts_anew_keeps_to_the_window() {
    let mut world = in_window(holding(Mode::Sync));
    assert_eq!(u128::from(world.recorded(0).window_ms), WINDOW.as_millis());
    world.cut([false; 2]);
    world.crash(0, false, 100 * MILLISECOND);
    world.until("it serves alone", |world| world.cluster[0].serves(GROUP));
    let still = left(&world).expect("the window outlives the primary's run");
    let held = world.write(0, 64 * KIB, 8 * KIB);
    world.pass(still.as_nanos() as u64);
    assert_eq!((world.reply(held), left(&world)), (None, None));
    assert!(world.answer(held).0);
    // In the next run there is nothing to keep to: it went off the record with what was recorded since.
    assert!(world.write_done(0, 128 * KIB, 8 * KIB) < 100 * MILLISECOND);
    world.stop(0);
    assert_eq!(world.recorded(0).window_ms, 0);
}

/// Writers who are answered under the promise never meet the window.
#[test]
fn in_step_nobody_waits_for_the_window() {
    let mut world = in_window(holding(Mode::Sync));
    for n in 0..200 {
        world.write_done((n % 2) as u16, n % 50 * 16 * KIB, 8 * KIB);
        world.pass(50 * MILLISECOND);
    }
    assert_eq!(world.coverage(0, CoveragePoint::AnswerHeldForWindow), 0);
    let still = left(&world).expect("it is given again and again");
    assert!(still > WINDOW / 2, "{still:?}");
    assert_eq!(world.figures(0).state, State::Replicating);
}
