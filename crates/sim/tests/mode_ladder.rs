//! A group whose line gets slow acts as a lower mode until the line has been good for a while. Nobody is promised what the lower mode does
//! not hold, nobody waits for longer than was set, and a line that is slow and good in turns has no group step up and down with it.
// proves: P1

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Degrade, Mode, Policy, Protection, State};
use engine::{Command, CommandResult, Fallback};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

const GOOD: u64 = 5 * MILLISECOND;
const SLOW: u64 = 110 * MILLISECOND;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The longest that anyone waits: for latency and time together, and until somebody looks.
const LONGEST: u64 = 700 * MILLISECOND;

fn fallback(mode: Mode) -> Fallback {
    Fallback { mode, latency: ms(100), after: ms(500), lag: None, return_after: ms(5000) }
}

fn with_ladder(mode: Mode, falls_back: Mode) -> SimOptions {
    let policy = Policy::Degrade;
    let roomy = SimOptions { delay_ns: GOOD, queue_bytes: 8 * MIB, wait_limit_ms: 30_000, ..options(mode, policy) };
    SimOptions { degrade: Degrade::Queue, fallback: Some(fallback(falls_back)), ..roomy }
}

/// A group in step, whose first primary answers under the mode's promise.
fn in_step(options: SimOptions) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options);
    world.write_done(0, 0, 8 * KIB);
    world.until("the promise holds", |world| world.figures(0).state == State::Replicating);
    world
}

fn acts_as(world: &ScenarioWorld) -> Mode {
    world.figures(0).acts_as.expect("a primary knows")
}

fn steps(world: &ScenarioWorld) -> [u64; 2] {
    [CoveragePoint::LadderSteppedDown, CoveragePoint::LadderSteppedUp].map(|point| world.coverage(0, point))
}

/// One write after the other, with a pause between them, until it comes to this: the longest wait.
fn writes_until(world: &mut ScenarioWorld, what: &str, holds: impl Fn(&ScenarioWorld) -> bool) -> u64 {
    let (limit, mut longest) = (world.now() + 300 * SECOND, 0);
    for n in 0.. {
        if holds(world) {
            break;
        }
        assert!(world.now() < limit, "it did not come to this: {what}; {:?}", world.figures(0).ladder);
        longest = longest.max(world.write_done((n % 2) as u16, n * 12 * KIB % (960 * KIB), 8 * KIB));
        world.pass(20 * MILLISECOND);
    }
    longest
}

fn writes_for(world: &mut ScenarioWorld, time_ns: u64) -> u64 {
    let until = world.now() + time_ns;
    writes_until(world, "time passes", |world| world.now() >= until)
}

/// Its line is slow, and writers know.
fn lowered(options: SimOptions) -> ScenarioWorld {
    let (mode, mut world) = (options.fallback.expect("a ladder").mode, in_step(options));
    world.network.set_delay(SLOW);
    writes_until(&mut world, "it steps down", |world| acts_as(world) == mode);
    world
}

/// The line gets slow while writers write, and good again.
#[test]
fn a_slow_line_costs_writers_the_promise_and_not_their_time() {
    for (mode, whole) in [(Mode::Sync, Protection::BothDurable), (Mode::Nearsync, Protection::BothReceived)] {
        for falls_back in [Mode::Async, Mode::Superasync] {
            let mut world = in_step(with_ladder(mode, falls_back));
            assert_eq!(world.figures(0).protection, whole);
            writes_for(&mut world, SECOND);
            world.network.set_delay(SLOW);
            let from = world.now();
            let longest = writes_until(&mut world, "it steps down", |world| acts_as(world) == falls_back);
            assert!(world.now() - from <= 2 * SECOND, "after {} ms", (world.now() - from) / MILLISECOND);
            assert!(longest <= LONGEST, "{longest} ns");
            let shown = world.figures(0);
            assert_eq!((shown.settings.mode, shown.mode, shown.protection), (mode, Some(mode), Protection::Queued));
            let ladder = shown.ladder.expect("it is down");
            assert!(ladder.why.contains("more than 100 ms"), "{}", ladder.why);
            assert!(shown.reason.contains(falls_back.word()) || shown.state == State::Replicating, "{}", shown.reason);
            let longest = writes_for(&mut world, 20 * SECOND);
            assert!(longest <= 10 * MILLISECOND, "nobody waits for the peer: {longest} ns");
            assert_eq!(acts_as(&world), falls_back);
            let there = world.figures(1);
            assert_eq!((there.mode, there.acts_as), (Some(mode), Some(falls_back)), "the secondary knows both");
            world.network.set_delay(GOOD);
            let from = world.now();
            let longest = writes_until(&mut world, "it steps up", |world| acts_as(world) == mode);
            let took = world.now() - from;
            assert!((5 * SECOND..9 * SECOND).contains(&took), "after {took} ns");
            assert!(longest <= 50 * MILLISECOND, "{longest} ns");
            writes_until(&mut world, "the promise holds again", |world| world.figures(0).protection == whole);
            assert_eq!(world.figures(0).ladder, None);
            assert_eq!(steps(&world), [1, 1]);
            world.drain();
        }
    }
}

/// Writers offer twice what the line carries, and the queue is far from full: by the lag the group steps down before anybody waits, and it
/// comes back once the copy is near. Without `fallback_lag` it stays in `async`.
#[test]
fn a_copy_that_is_too_far_behind_is_reason_enough_before_anybody_waits() {
    for lag in [None, Some(ms(3000))] {
        let ladder = Fallback { lag, ..fallback(Mode::Superasync) };
        let options =
            SimOptions { bytes_per_s: 400_000, fallback: Some(ladder), ..with_ladder(Mode::Async, Mode::Superasync) };
        let mut world = in_step(options);
        let (from, mut longest) = (world.now(), 0);
        let mut n = 0;
        while world.now() < from + 14 * SECOND && acts_as(&world) == Mode::Async {
            longest = longest.max(world.write_done((n % 2) as u16, n * 12 * KIB % (960 * KIB), 8 * KIB));
            world.pass(9 * MILLISECOND);
            n += 1;
        }
        assert!(longest <= 50 * MILLISECOND, "nobody waits: {longest} ns");
        let Some(lag) = lag else {
            assert_eq!((acts_as(&world), steps(&world)), (Mode::Async, [0, 0]));
            continue;
        };
        assert_eq!(acts_as(&world), Mode::Superasync);
        let took = Duration::from_nanos(world.now() - from);
        assert!((lag..5 * lag).contains(&took), "after {took:?}");
        assert!(world.figures(0).queue.bytes < 4 * MIB, "the queue is far from full");
        let why = world.figures(0).ladder.expect("it is down").why;
        assert!(why.contains("a write of 3 s ago is not durable at the peer"), "{why}");
        world.until("it steps up", |world| acts_as(world) == Mode::Async);
        assert_eq!(steps(&world), [1, 1]);
        world.drain();
    }
}

/// The secondary is heard, and confirms nothing: its journal's disk stands still. A write that nobody would answer for 20 s.
#[test]
fn a_peer_that_stands_still_holds_nobody_for_longer_than_was_set() {
    let mut world = in_step(with_ladder(Mode::Sync, Mode::Async));
    world.cluster[1].storage.trouble.stalled_until = world.now() + 20 * SECOND;
    let waited = world.write_done(0, 64 * KIB, 8 * KIB);
    assert!((500 * MILLISECOND..LONGEST).contains(&waited), "{waited} ns");
    assert_eq!(acts_as(&world), Mode::Async);
    assert!(world.figures(0).ladder.expect("it is down").why.contains("waited"));
    assert!(writes_for(&mut world, 10 * SECOND) <= 10 * MILLISECOND);
    world.pass(30 * SECOND);
    assert_eq!(acts_as(&world), Mode::Sync);
    world.drain();
}

/// A burst that one packet's loss held up, and a writer who comes once in a while: neither is a slow line.
#[test]
fn one_write_that_waits_is_no_slow_line() {
    let mut world = in_step(with_ladder(Mode::Sync, Mode::Async));
    for _ in 0..10 {
        world.network.set_delay(100 * MILLISECOND);
        assert!(world.write_done(0, 64 * KIB, 8 * KIB) > 200 * MILLISECOND);
        world.network.set_delay(GOOD);
        writes_for(&mut world, 4 * SECOND);
    }
    assert_eq!(steps(&world), [0, 0]);
}

/// Slow for two seconds and good for two, again and again: the group steps down once.
#[test]
fn a_line_that_comes_and_goes_has_nobody_step_up_and_down_with_it() {
    let mut world = in_step(with_ladder(Mode::Sync, Mode::Async));
    for _ in 0..20 {
        world.network.set_delay(SLOW);
        writes_for(&mut world, 2 * SECOND);
        world.network.set_delay(GOOD);
        writes_for(&mut world, 2 * SECOND);
    }
    assert_eq!(steps(&world), [1, 0]);
    // Good for as long as it takes to come back, and then slow again: each return takes twice as long as the one before.
    for _ in 0..30 {
        world.network.set_delay(GOOD);
        writes_for(&mut world, 8 * SECOND);
        world.network.set_delay(SLOW);
        writes_for(&mut world, 2 * SECOND);
    }
    let [down, up] = steps(&world);
    assert!(down <= 2 && up <= 1, "{down} down, {up} up");
    world.network.set_delay(GOOD);
    writes_until(&mut world, "it steps up", |world| acts_as(world) == Mode::Sync);
}

/// Nobody writes: what heartbeats take keeps the group down, and lets it come back.
#[test]
fn without_writers_the_round_trip_says_whether_the_line_is_good() {
    let mut world = lowered(with_ladder(Mode::Sync, Mode::Async));
    world.pass(60 * SECOND);
    assert_eq!(acts_as(&world), Mode::Async);
    world.network.set_delay(GOOD);
    let from = world.now();
    world.until("it steps up", |world| acts_as(world) == Mode::Sync);
    assert!(world.now() - from <= 9 * SECOND);
    assert_eq!(world.figures(0).protection, Protection::BothDurable);
}

/// More is written than the line carries. The queue's backlog is what a writer would wait for.
#[test]
fn a_backlog_keeps_it_down() {
    let options = SimOptions { bytes_per_s: 400_000, ..with_ladder(Mode::Sync, Mode::Async) };
    let mut world = in_step(options);
    let mut ids = Vec::new();
    for n in 0..600 {
        ids.push(world.write((n % 2) as u16, n * 16 * KIB % (960 * KIB), 8 * KIB));
        world.pass(10 * MILLISECOND);
        assert!(n < 300 || acts_as(&world) == Mode::Async, "write {n}");
    }
    assert!(ids.into_iter().all(|id| world.answer(id).0));
    assert_eq!(steps(&world), [1, 0]);
    world.until("it steps up", |world| acts_as(world) == Mode::Sync);
    assert!(world.figures(0).queue.bytes < MIB);
    world.drain();
}

/// A primary that starts begins with what it is set to.
#[test]
fn a_restart_begins_with_the_mode_that_is_set() {
    for power in [false, true] {
        let mut world = lowered(with_ladder(Mode::Sync, Mode::Async));
        world.crash(0, power, SECOND);
        world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
        assert_eq!((acts_as(&world), world.figures(0).ladder), (Mode::Sync, None));
        world.network.set_delay(GOOD);
        world.drain();
        assert_eq!(steps(&world), [0, 0]);
    }
}

/// What is set while the ladder is down.
#[test]
fn settings_are_the_last_word() {
    let after = |change: fn(&mut engine::Settings)| {
        let mut world = lowered(with_ladder(Mode::Sync, Mode::Async));
        world.set(GROUP, change);
        let mode = acts_as(&world);
        world.pass(50 * MILLISECOND);
        assert_eq!(acts_as(&world), mode);
        world.network.set_delay(GOOD);
        world.write_done(0, 64 * KIB, 8 * KIB);
        world.drain();
        mode
    };
    assert_eq!(after(|settings| settings.queue_items = 50_000), Mode::Async, "nothing is said of the ladder");
    assert_eq!(after(|settings| settings.fallback = None), Mode::Sync);
    assert_eq!(after(|settings| settings.mode = Mode::Nearsync), Mode::Nearsync, "never above what is set");
    assert_eq!(after(|settings| settings.mode = Mode::Async), Mode::Async);
    assert_eq!(after(|settings| settings.policy = Policy::Strict), Mode::Sync, "strict answers nobody alone");
    assert_eq!(after(|settings| settings.fallback = Some(fallback(Mode::Superasync))), Mode::Sync);
    // It steps from there.
    let mut world = lowered(with_ladder(Mode::Sync, Mode::Async));
    world.set(GROUP, |settings| settings.mode = Mode::Nearsync);
    writes_until(&mut world, "it steps down", |world| acts_as(world) == Mode::Async);
    world.network.set_delay(GOOD);
    writes_until(&mut world, "it steps up", |world| acts_as(world) == Mode::Nearsync);
    world.drain();
}

/// A return that did not last doubles the next one, whatever else is set meanwhile.
#[test]
fn settings_that_say_nothing_of_the_ladder_leave_its_waiting_time() {
    let mut world = lowered(with_ladder(Mode::Sync, Mode::Async));
    world.network.set_delay(GOOD);
    writes_until(&mut world, "it steps up", |world| acts_as(world) == Mode::Sync);
    world.set(GROUP, |settings| settings.queue_items = 50_000);
    world.network.set_delay(SLOW);
    writes_until(&mut world, "it steps down", |world| acts_as(world) == Mode::Async);
    world.network.set_delay(GOOD);
    let from = world.now();
    writes_until(&mut world, "it steps up again", |world| acts_as(world) == Mode::Sync);
    assert!(world.now() - from >= 10 * SECOND, "twice as long: {}", (world.now() - from) / MILLISECOND);
}

/// Packets are late while the line recovers, for nearly half a second: a gap, and no line that is slow again.
#[test]
fn a_gap_between_two_packets_does_not_begin_the_return_anew() {
    let mut world = lowered(with_ladder(Mode::Sync, Mode::Async));
    world.network.set_delay(GOOD);
    let returns_in = |world: &ScenarioWorld| world.figures(0).ladder.and_then(|ladder| ladder.returns_in);
    world.until("it recovers", |world| returns_in(world).is_some_and(|left| left < ms(4000)));
    world.cut([false; 2]);
    world.pass(450 * MILLISECOND);
    world.restore_path();
    world.pass(500 * MILLISECOND);
    assert!(returns_in(&world).is_some_and(|left| left < ms(3500)), "{:?}", world.figures(0).ladder);
    world.until("it steps up", |world| acts_as(world) == Mode::Sync);
}

/// Under `strict` a fallback is none, and so is one that is not below the mode.
#[test]
fn what_is_no_lower_rung_never_counts() {
    for (mode, policy, falls_back) in [
        (Mode::Sync, Policy::Strict, Mode::Async),
        (Mode::Nearsync, Policy::Degrade, Mode::Sync),
        (Mode::Sync, Policy::Degrade, Mode::Sync),
        (Mode::Sync, Policy::Degrade, Mode::Nearsync),
        (Mode::Sync, Policy::Degrade, Mode::Logging),
    ] {
        let mut world = in_step(SimOptions { policy, ..with_ladder(mode, falls_back) });
        world.network.set_delay(SLOW);
        writes_for(&mut world, 5 * SECOND);
        assert_eq!((acts_as(&world), steps(&world)), (mode, [0, 0]));
    }
}

// proves: rule 10
/// The link falls while the ladder is down: as in `async` the queue keeps the order, and a link that is back is not yet a good one.
#[test]
fn a_link_that_falls_meanwhile_is_the_fallbacks_affair() {
    for policy in [Policy::Degrade, Policy::Hold(Duration::from_secs(20))] {
        let mut world = lowered(SimOptions { policy, ..with_ladder(Mode::Sync, Mode::Async) });
        let resynced = world.figures(0).resynced_bytes;
        world.pass(SECOND);
        world.cut([false; 2]);
        assert!(writes_for(&mut world, 12 * SECOND) <= 10 * MILLISECOND);
        assert_eq!((world.figures(0).state, world.figures(0).protection), (State::Queuing, Protection::Queued));
        world.network.set_delay(GOOD);
        world.restore_path();
        world.until("it goes on", |world| world.figures(0).state == State::Replicating);
        assert_eq!(acts_as(&world), Mode::Async);
        writes_until(&mut world, "it steps up", |world| acts_as(world) == Mode::Sync);
        assert_eq!(world.figures(0).resynced_bytes, resynced, "no resync");
        world.drain();
    }
}

/// The link falls in `sync`: that is the policy's affair, and no slow line, however long the peer is silent.
#[test]
fn a_lost_link_is_no_slow_line() {
    for policy in [Policy::Degrade, Policy::Hold(Duration::from_secs(8))] {
        let mut world = in_step(SimOptions { policy, ..with_ladder(Mode::Sync, Mode::Async) });
        world.cut([false; 2]);
        let id = world.write(0, 64 * KIB, 8 * KIB);
        world.pass(7 * SECOND);
        assert_eq!(world.reply(id).is_none(), policy != Policy::Degrade, "who is to wait for a lost peer waits");
        world.restore_path();
        assert!(world.answer(id).0);
        writes_for(&mut world, 5 * SECOND);
        world.until("the promise holds again", |world| world.figures(0).protection == Protection::BothDurable);
        assert_eq!(steps(&world), [0, 0], "{policy:?}");
        world.drain();
    }
}

// proves: rule 14
/// The secondary counts on a peer window. Before anybody is answered alone it has heard that the window is taken back.
#[test]
fn a_peer_window_is_taken_back_before_anybody_is_answered_alone() {
    let policy = Policy::Hold(Duration::from_secs(20));
    let mut world = in_step(SimOptions { policy, ..with_ladder(Mode::Sync, Mode::Async) });
    let window = |world: &ScenarioWorld| {
        let until = world.glance(1, GROUP).and_then(|glance| glance.peer_window_until);
        until.is_some_and(|until| until > world.cluster[1].clocks(world.now()).mono)
    };
    world.until("the secondary knows of a window", window);
    world.network.set_delay(SLOW);
    // A round trip more than without a window.
    let longest = writes_until(&mut world, "it steps down", |world| acts_as(world) == Mode::Async);
    assert!(longest <= LONGEST + 3 * SLOW, "{longest} ns");
    writes_for(&mut world, 2 * SECOND);
    assert!(!window(&world));
    let entropy = world.rng.draw();
    world.crash(0, true, 600 * SECOND);
    world.until("the link is lost", |world| world.figures(1).peer.link != engine::status::LinkStatus::Connected);
    let refused = world.refusal(1, Command::PromoteInWindow { entropy });
    assert_eq!(refused.code, engine::RefusalCode::WindowClosed);
}

// proves: P2
/// The primary is lost while the ladder is down: what was acknowledged in `sync` is on the secondary, and what came after it is so in part.
#[test]
fn what_was_acknowledged_before_the_step_outlives_the_primary() {
    let mut world = in_step(with_ladder(Mode::Sync, Mode::Async));
    world.write_done(0, 64 * KIB, 8 * KIB);
    world.network.set_delay(SLOW);
    writes_until(&mut world, "it steps down", |world| acts_as(world) == Mode::Async);
    // Nothing of these gets there.
    world.cut([false; 2]);
    writes_for(&mut world, SECOND);
    world.crash(0, true, 30 * SECOND);
    world.pass(10 * SECOND);
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_) | CommandResult::Done(_)));
    world.pass(SECOND);
}

/// A switchover while the ladder is down: the new primary begins with its own mode, and so does the old one if it comes back.
#[test]
fn a_switchover_leaves_the_ladder_behind() {
    let mut world = lowered(with_ladder(Mode::Sync, Mode::Async));
    world.pass(2 * SECOND);
    assert_eq!(acts_as(&world), Mode::Async);
    let to = engine::NodeId(1);
    let limit = Duration::from_secs(30);
    let switch = |to| Command::Switchover { to, limit, closes_export: false, only_asks: false };
    let done = world.order(0, switch(to));
    assert!(matches!(done, CommandResult::Done(_)), "{done:?}");
    assert_eq!(world.figures(0).ladder, None);
    assert_eq!((world.figures(1).mode, world.figures(1).acts_as), (Some(Mode::Sync), Some(Mode::Sync)));
    world.network.set_delay(GOOD);
    world.drain();
    assert_eq!(world.figures(0).acts_as, Some(Mode::Sync), "as its primary says");
}

// proves: P8
/// In `async` writers wait for the peer when the queue is full. As `superasync` they do not.
#[test]
fn a_full_queue_is_a_slow_line_to_async() {
    let options =
        SimOptions { bytes_per_s: 100_000, queue_bytes: 256 * KIB, ..with_ladder(Mode::Async, Mode::Superasync) };
    let mut world = in_step(options);
    let mut longest = 0;
    for n in 0..200 {
        longest = longest.max(world.write_done((n % 2) as u16, n * 16 * KIB % (960 * KIB), 16 * KIB));
    }
    assert_eq!(acts_as(&world), Mode::Superasync);
    assert!(longest <= LONGEST, "{longest} ns");
    assert!(world.coverage(0, CoveragePoint::QueueFullToBitmap) > 0);
    world.until("it steps up", |world| acts_as(world) == Mode::Async);
    world.drain();
}
