//! What a primary reports to its secondary of the group: how far behind it is, the mode, the clock. Both nodes show the same, or the
//! secondary says since when it does not know (rule 19).

use std::rc::Rc;
use std::time::Duration;

use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, Input, Settings, Store, superblock};
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

const NEAR: usize = 0;
const FAR: usize = 1;
const HOUR: u64 = 3600 * SECOND;

// proves: rule 19
/// A slow line that is never idle: frames travel all the while, and the primary goes on reporting.
#[test]
fn a_busy_primary_reports_how_much_waits() {
    let slow = SimOptions { bytes_per_s: 100_000, queue_bytes: 16 * MIB, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(SimOptions { wait_limit_ms: 100_000, ..slow });
    for n in 0..60 {
        world.write_done(n % 2, u64::from(n / 2) * 32 * KIB, 32 * KIB);
    }
    for _ in 0..8 {
        world.pass(SECOND);
        let (near, far) = (world.figures(NEAR).peer, world.figures(FAR).peer);
        let near_bytes = near.lag_bytes.expect("a primary knows");
        assert!(near_bytes > 512 * KIB, "{near_bytes}: the line was too fast for this scenario");
        // What it reported travels behind what it sent before.
        let reply = far.lag_bytes.expect("it is told");
        assert!(reply >= near_bytes && reply < near_bytes + 600 * KIB, "{reply} for {near_bytes}");
        assert!(far.lag > Some(Duration::from_millis(500)), "{:?}", far.lag);
    }
    world.crash(NEAR, false, FOR_EVER);
    world.pass(6 * SECOND);
    world.input(FAR, Input::Tick);
    let far = world.figures(FAR).peer;
    assert_eq!((far.lag_bytes, far.lag), (None, None));
    let reply = far.reported.expect("it was reported before");
    assert!(reply.lag_bytes > 256 * KIB && reply.since > Duration::from_secs(6), "{reply:?}");
}

// proves: rule 19
/// It is never synced, so everything is missing; and a node that only waits for a promotion is behind nobody.
#[test]
fn a_blank_secondary_is_behind_by_everything() {
    let mut world = ScenarioWorld::new(options(Mode::Async, Policy::Degrade));
    world.pass(SECOND);
    assert_eq!(world.figures(FAR).peer.lag_bytes, Some(2 * MIB));
    assert!(matches!(world.order(NEAR, Command::Sync { full: true }), CommandResult::Done(_)));
    world.drain();
    world.pass(2 * SECOND);
    assert_eq!(world.figures(FAR).peer.lag_bytes, Some(0));
    world.until("every bit is cleared", |world| world.figures(NEAR).peer.dirty_bytes == 0);
    assert!(matches!(world.order(NEAR, Command::Demote), CommandResult::Done(_)));
    world.pass(SECOND);
    assert_eq!([NEAR, FAR].map(|node| world.figures(node).peer.lag_bytes), [None; 2]);
}

fn set(world: &mut ScenarioWorld, node: usize, mode: Mode) {
    let settings = engine::Settings { mode, ..world.figures(node).settings };
    assert!(matches!(world.order(node, Command::Set(settings)), CommandResult::Done(_)));
    world.pass(100 * MILLISECOND);
}

// proves: rule 19
/// The copy is made in the primary's mode, whatever is set beside it; and a promotion into another one says so.
#[test]
fn the_mode_is_the_primarys_until_a_promotion() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    set(&mut world, FAR, Mode::Async);
    assert_eq!([NEAR, FAR].map(|node| world.figures(node).mode), [Some(Mode::Sync); 2]);
    let known = world.figures(NEAR).peer.settings.expect("the peer reported it");
    assert_eq!(known.mode, Mode::Async);
    world.crash(NEAR, false, FOR_EVER);
    world.crash(FAR, false, FOR_EVER);
    // It starts by its configuration, which says otherwise.
    world.cluster.options = Rc::new(SimOptions { modes: vec![Mode::Async], ..(*world.cluster.options).clone() });
    world.boot(FAR);
    world.until("it runs", |world| world.glance(FAR, GROUP).is_some_and(|glance| glance.running));
    set(&mut world, FAR, Mode::Async);
    assert_eq!(world.figures(FAR).mode, Some(Mode::Sync), "on record");
    let CommandResult::Warning(said) = world.promote(FAR, true) else { panic!("forced") };
    assert!(said.contains("serves in mode async") && said.contains("before it served in sync"), "{said}");
    let status = world.figures(FAR);
    assert_eq!((status.mode, status.served_before_in), (Some(Mode::Async), Some(Mode::Sync)));
    set(&mut world, FAR, Mode::Sync);
    assert_eq!(world.figures(FAR).served_before_in, None);
}

/// A group that did not start knows nothing of itself: what it is told must not go over its records.
#[test]
fn a_group_that_failed_records_nothing_of_what_is_reported_to_it() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.crash(FAR, false, FOR_EVER);
    let superblock = |world: &ScenarioWorld| world.cluster[FAR].disk(Store::Superblock(GROUP)).view().to_vec();
    let disk = world.cluster[FAR].disk_mut(Store::Superblock(GROUP));
    disk.goes_astray(0, &vec![0xff; superblock::FILE_BYTES as usize]);
    let damaged = superblock(&world);
    world.boot(FAR);
    world.pass(3 * SECOND);
    assert!(matches!(world.figures(FAR).state, State::Failed(_)));
    set(&mut world, NEAR, Mode::Sync);
    world.pass(3 * SECOND);
    assert!(superblock(&world) == damaged, "it was written");
}

fn said(world: &ScenarioWorld, node: usize, what: &str) -> usize {
    world.said().iter().filter(|(who, words)| *who == node && words.contains(what)).count()
}

// proves: rule 19
/// The primary's wall clock was set back by two hours. Stamps of writes never go back, so what the secondary showed stood still for
/// two hours, and nobody said why.
#[test]
fn a_clock_that_is_set_back_is_said_on_both_nodes() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.pass(3 * SECOND);
    world.cluster[NEAR].skews(-(2 * HOUR as i64));
    world.write_done(0, 0, 4 * KIB);
    world.drain();
    world.pass(5 * SECOND);
    let clock = |world: &ScenarioWorld| world.cluster[NEAR].clocks(world.now()).wall;
    for node in [NEAR, FAR] {
        let status = world.figures(node);
        let behind = status.clock_behind.expect("said").as_secs();
        assert!((7150..7200).contains(&behind), "{behind} s");
        let (_, at) = status.peer.recovery_point.expect("in step");
        let apart = clock(&world).0 - at.0;
        assert!(apart < 3 * SECOND, "node {node}: the copy is at {at}, the primary's clock at {}", clock(&world));
        assert_eq!(said(&world, node, "behind the time of the last write"), 1, "{:?}", world.said());
    }
    assert_eq!(world.figures(NEAR).state, State::Replicating);
    // A copy that is not in step has its stamps alone.
    world.cut([false; 2]);
    world.pass(2 * HOUR + 10 * SECOND);
    world.cut([true; 2]);
    world.write_done(0, 0, 4 * KIB);
    world.drain();
    world.pass(3 * SECOND);
    for node in [NEAR, FAR] {
        assert_eq!(world.figures(node).clock_behind, None);
        assert_eq!(said(&world, node, "times of writes go on"), 1, "{:?}", world.said());
    }
}

// proves: rule 19
/// A primary is demoted and promoted again within one session, and writes alone: its numbers begin anew, and when they reach those of the
/// copy, that is none the younger.
#[test]
fn the_time_of_another_run_is_not_the_time_of_the_copy() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..8 {
        world.write_done(0, n * 32 * KIB, 4 * KIB);
    }
    world.drain();
    world.pass(10 * SECOND);
    assert!(matches!(world.order(NEAR, Command::Demote), CommandResult::Done(_)));
    let alone = Settings { mode: Mode::Logging, ..world.cluster.ledger.settings(GROUP) };
    world.order(NEAR, Command::Set(alone));
    let recovery_point = |world: &ScenarioWorld| world.figures(FAR).peer.recovery_point;
    let before = recovery_point(&world);
    assert!(!matches!(world.promote(NEAR, true), CommandResult::Refused(_)));
    for n in 0..20 {
        world.write_done(0, n * 32 * KIB, 4 * KIB);
        world.pass(10 * SECOND);
        assert_eq!(recovery_point(&world), before);
    }
}

// proves: rule 19
/// The nodes exchange their roles within one session, and nothing is written afterwards: the new primary goes on reporting its clock.
#[test]
fn a_primary_that_was_promoted_within_the_session_reports_as_any_other() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    assert!(matches!(world.order(NEAR, Command::Demote), CommandResult::Done(_)));
    world.pass(100 * MILLISECOND);
    assert!(matches!(world.promote(FAR, false), CommandResult::Done(_)));
    world.until("in step", |world| world.figures(FAR).state == State::Replicating);
    let copied = |world: &ScenarioWorld| world.figures(NEAR).promotable.expect("an image").1;
    world.pass(10 * SECOND);
    let before = copied(&world);
    world.pass(20 * SECOND);
    world.input(NEAR, Input::Tick);
    assert_eq!(world.figures(NEAR).peer.lag, Some(Duration::ZERO), "it is heard of");
    let moved = copied(&world).0 - before.0;
    assert!(moved > 18 * SECOND, "the time of an idle copy moves on: {moved}");
}

// proves: P5, rule 19
/// The link is down for 20 s: the primary says how old the oldest write is that its peer lacks, and how many those are. The secondary does not know.
/// Over a slow link both nodes say how many there are, and afterwards that there are none.
#[test]
fn both_nodes_say_how_many_writes_the_copy_lacks_and_the_primary_how_old_they_are() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.write_done(0, 0, 8 * KIB);
    world.until("in step", |world| world.figures(0).state == State::Replicating && world.in_step());
    world.pass(3 * SECOND);
    let shown = |world: &ScenarioWorld| {
        let (near, far) = (world.figures(0), world.figures(1));
        let oldest = near.queue.oldest_unconfirmed.map(|age| age.as_secs());
        (oldest, near.peer.lag_items, far.peer.lag_items)
    };
    assert_eq!(shown(&world), (Some(0), Some(0), Some(0)));
    world.cut([false; 2]);
    for n in 0..10 {
        world.write_done(0, n * 16 * KIB, 8 * KIB);
    }
    world.pass(20 * SECOND);
    world.write_done(0, 0, 8 * KIB);
    assert_eq!(shown(&world), (Some(20), Some(11), None));
    world.restore_path();
    world.until("in step", |world| world.figures(0).state == State::Replicating && world.in_step());
    world.pass(3 * SECOND);
    assert_eq!(shown(&world), (Some(0), Some(0), Some(0)));
    world.order(0, Command::Logging);
    world.write_done(0, 0, 8 * KIB);
    assert_eq!(shown(&world).0, None, "what is dirty has no age");
    assert_eq!(shown(&world).1, None, "and no number");
}

// proves: P5, rule 19
/// Over a slow link a write waits for some seconds. What the secondary says is as old as the last report, which had to come over that link.
#[test]
fn a_secondary_behind_a_slow_link_says_how_many_writes_it_lacks() {
    let slow = SimOptions { bytes_per_s: 40_000, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(slow);
    world.write_done(0, 0, 4 * KIB);
    world.until("in step", |world| world.figures(0).state == State::Replicating && world.in_step());
    for n in 0..200 {
        world.write_done(0, n % 100 * 8 * KIB, 4 * KIB);
    }
    world.pass(3 * SECOND);
    // Some ten of them are through each second.
    for _ in 0..8 {
        world.pass(SECOND);
        let (near, far) = (world.figures(0), world.figures(1).peer.lag_items);
        let (items, far) = (near.queue.items, far.expect("it hears its primary"));
        assert_eq!(near.peer.lag_items, Some(items));
        assert!(items > 0 && far.abs_diff(items) <= 25, "{items} on the primary, {far} on the secondary");
        let (oldest, lag) = (near.queue.oldest_unconfirmed.expect("in order"), near.peer.lag.expect("known"));
        assert!(!oldest.is_zero() && oldest <= lag, "{oldest:?} of {lag:?}");
    }
    world.drain();
}

// proves: rule 19
/// A node that was primary shows no copy that grows older and older: what its peer held then says nothing of now.
#[test]
fn a_former_primary_shows_no_peak_that_grows() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.write_done(0, 0, 8 * KIB);
    world.until("in step", |world| world.figures(NEAR).state == State::Replicating && world.in_step());
    let (to, limit) = (engine::NodeId(1), Duration::from_secs(30));
    let done = world.order(NEAR, Command::Switchover { to, limit, closes_export: false, only_asks: false });
    assert!(matches!(done, CommandResult::Done(_)), "{done:?}");
    world.pass(30 * SECOND);
    for node in [NEAR, FAR] {
        let peaks = world.figures(node).queue.peaks;
        assert!(peaks.lag < Some(Duration::from_secs(5)), "node {node}: {peaks:?}");
    }
    world.drain();
}
