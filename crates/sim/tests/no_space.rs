//! Every disk that is full has one outcome, and none is a hang or a loss: see "When something is full" in the manual of
//! reliability.

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB, REGION_BYTES, WRITE_BACKS_MAX};
use engine::state::{Broken, Mode, Pause, Policy, State};
use engine::{Command, CommandResult, Input, Store};
use sim::checkers::facts::KnownFact;
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options};
use sim::world::World;

fn state(world: &ScenarioWorld, node: usize) -> Option<State> {
    world.glance(node, GROUP).map(|glance| glance.state)
}

// proves: P8
#[test]
fn the_secondarys_volume_pauses_apply_and_writers_go_on() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    world.cluster[1].storage.trouble.full_until = world.now() + 5 * SECOND;
    for n in 0..40u64 {
        // Sync asks for the journal, which has room.
        let id = world.write((n % 2) as u16, n * 8 * KIB, 4 * KIB);
        let (done, after) = world.answer(id);
        assert!(done && after < 100 * MILLISECOND, "{after} ns");
    }
    world.until("paused", |world| world.coverage(1, CoveragePoint::ApplyPaused) > 0);
    world.drain();
}

/// Writes that the secondary's full volume does not take, as long as it is full.
fn full() -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    world.cluster[1].storage.trouble.full_until = ALWAYS;
    for n in 0..16u64 {
        world.write_done((n % 2) as u16, n * 8 * KIB, 4 * KIB);
    }
    world.until("paused", |world| matches!(state(world, 0), Some(State::Paused(_))));
    world
}

// proves: P8
/// However often it is tried again: one pause, told once, until there is space.
#[test]
fn a_full_peer_is_called_paused_until_it_has_space() {
    let mut world = full();
    let limit = world.now() + 10 * SECOND;
    while world.now() < limit {
        world.pass(50_000);
        assert_eq!(state(&world, 0), Some(State::Paused(Pause::PeerFull)));
        assert!(world.figures(1).reason.contains("no space"));
    }
    assert_eq!(world.coverage(1, CoveragePoint::ApplyPaused), 1);
    world.cluster[1].storage.trouble.full_until = 0;
    world.pass(2 * SECOND);
    assert_eq!(state(&world, 0), Some(State::Replicating));
    world.drain();
}

// proves: P8
#[test]
fn the_secondarys_journal_stops_the_group_there_and_the_primary_goes_on_alone() {
    for mode in [Mode::Sync, Mode::Async] {
        let mut world = ScenarioWorld::in_peace(options(mode, Policy::Degrade));
        world.cluster[1].storage.trouble.state_full_until = FOR_EVER;
        let id = world.write(0, 0, 64 * KIB);
        let (done, after) = world.answer(id);
        assert!(done && after < SECOND, "{after} ns");
        world.until("told", |world| state(world, 0) == Some(State::Logging));
        assert!(matches!(state(&world, 1), Some(State::Failed(Broken::Journal | Broken::Superblock))));
        assert!(world.figures(0).reason.contains("failed"), "{}", world.figures(0).reason);
        // Room was made, and the daemon there restarted.
        world.cluster[1].storage.trouble.state_full_until = 0;
        world.crash(1, false, SECOND / 10);
        world.drain();
    }
}

// proves: P8
#[test]
fn the_primarys_state_directory_stops_the_group_with_errors_not_with_silence() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.write_done(0, 0, 64 * KIB);
    world.drain();
    world.cluster[0].storage.trouble.state_full_until = FOR_EVER;
    // An order that has to be recorded.
    world.command(0, GROUP, Command::Logging);
    world.until("failed", |world| matches!(state(world, 0), Some(State::Failed(Broken::Superblock))));
    let id = world.write(0, 0, 4 * KIB);
    let (done, after) = world.answer(id);
    assert!(!done && after < 100 * MILLISECOND, "{after} ns");
    world.cluster[0].storage.trouble.state_full_until = 0;
    world.crash(0, false, SECOND / 10);
    world.until("back", |world| world.cluster[0].serves(GROUP));
    world.order(0, Command::Sync { full: false });
    world.drain();
}

// proves: P8, rule 1
#[test]
fn the_primarys_volume_fails_the_write_and_is_repaired() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cluster[0].storage.trouble.serving_full_until = world.now() + SECOND;
    for n in 0..4u64 {
        let id = world.write(0, n * 64 * KIB, 16 * KIB);
        let (done, after) = world.answer(id);
        assert!(!done && after < 100 * MILLISECOND, "{after} ns");
    }
    assert!(world.coverage(0, CoveragePoint::LocalWriteFailed) >= 4);
    world.pass(2 * SECOND);
    let id = world.write(0, 0, 16 * KIB);
    assert!(world.answer(id).0, "there is room again");
    world.drain();
}

// proves: P9
/// Seed 22106472. While applying waits for space, what lands is counted as durable all the same: a batch that rots then is
/// damage, with a part of what it held on the volumes, and not the torn end of a journal.
#[test]
fn a_batch_that_landed_in_a_pause_and_rots_is_damage() {
    let mut damaged = 0;
    for draws in 0..24 {
        let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
        (0..draws).for_each(|_| _ = world.rng.draw());
        world.cluster[1].storage.trouble.full_until = FOR_EVER;
        for n in 0..8 {
            world.write_done(0, n * 8 * KIB, 4 * KIB);
        }
        let written = world.glance(0, GROUP).expect("it runs").identity.position.seq;
        world.pass(2 * SECOND);
        world.crash(1, true, SECOND / 10);
        world.checkers.facts.add(KnownFact::Rotten(1, Store::Journal(GROUP)));
        let World { cluster, rng, .. } = &mut *world;
        cluster[1].disk_mut(Store::Journal(GROUP)).rot(u64::MAX, rng);
        cluster[1].storage.trouble.full_until = 0;
        world.crash(0, false, 10 * SECOND);
        world.until("replayed", |world| world.cluster[1].is_ready(GROUP));
        let identity = world.glance(1, GROUP).expect("it runs").identity;
        damaged += u32::from(identity.inconsistent);
        assert!(identity.inconsistent || identity.position.seq == written, "{draws}: {identity:?}");
        world.drain();
    }
    assert!(damaged > 5, "{damaged}");
}

/// It is told to stop while it waits for space; nothing is on record yet.
fn stops(mut world: ScenarioWorld) {
    let id = world.command(1, GROUP, Command::Promote { force: true, entropy: 7 });
    world.pass(5 * SECOND);
    assert_eq!(world.cluster.ledger.result(id), None, "it waits");
    world.input(1, Input::Stop);
    let limit = world.now() + 60 * SECOND;
    while world.cluster[1].up() {
        world.pass(5 * MILLISECOND);
        assert!(world.now() < limit, "it does not stop");
    }
    assert!(matches!(world.cluster.ledger.result(id), Some(CommandResult::Refused(_))));
}

#[test]
fn a_node_whose_promotion_waits_for_space_can_be_stopped() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cluster[1].storage.trouble.full_until = ALWAYS;
    for n in 0..8 {
        world.write_done(0, n * 8 * KIB, 4 * KIB);
    }
    world.until("paused", |world| world.glance(1, GROUP).is_some_and(|glance| glance.paused.is_some()));
    world.crash(0, false, FOR_EVER);
    world.pass(SECOND);
    stops(world);
}

/// The primary is lost in mid-sync, and there is no space for the way back.
fn full_in_mid_sync() -> ScenarioWorld {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) });
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..14 {
        world.write_done(n % 2, u64::from(n) * 60 * KIB, 36 * KIB);
    }
    let before = world.images_of(1);
    world.order(0, Command::Sync { full: false });
    world.until("a part is overwritten", |world| world.images_of(1) != before);
    world.pass(300 * MILLISECOND);
    world.crash(0, false, FOR_EVER);
    world.cluster[1].storage.trouble.full_until = ALWAYS;
    world
}

#[test]
fn a_node_whose_rollback_waits_for_space_can_be_stopped() {
    stops(full_in_mid_sync());
}

/// Also when a start takes the way back up, and whoever orders something is told the same.
#[test]
fn a_rollback_that_waits_for_space_says_so() {
    let mut world = full_in_mid_sync();
    world.command(1, GROUP, Command::Promote { force: true, entropy: 7 });
    world.pass(5 * SECOND);
    for _ in 0..2 {
        let figures = world.figures(1);
        assert_eq!(figures.state, State::Paused(Pause::PeerFull));
        assert!(figures.reason.contains("no space for the image"), "{}", figures.reason);
        let refused = world.refused(1, Command::Promote { force: true, entropy: 8 });
        assert!(refused.contains(&figures.reason), "{refused}");
        world.crash(1, true, MILLISECOND);
        world.pass(5 * SECOND);
    }
    world.cluster[1].storage.trouble.full_until = 0;
    world.until("it is back", |world| world.glance(1, GROUP).is_some_and(|glance| glance.running));
    assert!(!matches!(world.figures(1).state, State::Paused(_)));
}

/// A start cannot be through before all of its journal is applied.
#[test]
fn a_start_over_a_full_volume_says_why_it_cannot_be_promoted() {
    let mut world = full();
    world.crash(0, true, FOR_EVER);
    world.crash(1, false, MILLISECOND);
    world.pass(5 * SECOND);
    let refused = world.refused(1, Command::Promote { force: true, entropy: 7 });
    assert!(refused.contains(Pause::PeerFull.words()), "{refused}");
}

// proves: rule 22
/// A rollback over a full volume holds no more of what it writes back than one over a volume with space.
#[test]
fn a_rollback_that_waits_for_space_keeps_its_bound_of_memory() {
    let slow = SimOptions { volume_bytes: 4 * MIB, bytes_per_s: 1_000_000, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(slow);
    let write_all = |world: &mut ScenarioWorld| {
        for n in 0..80 {
            // Every other region: each is a range of its own.
            world.write_done(n % 2, u64::from(n / 2) * 2 * REGION_BYTES, REGION_BYTES);
        }
    };
    write_all(&mut world);
    world.drain();
    world.order(0, Command::Logging);
    write_all(&mut world);
    world.order(0, Command::Sync { full: false });
    let saved = |world: &ScenarioWorld| world.figures(1).rollback_point.map_or(0, |point| point.used_bytes);
    world.until("most is overwritten", |world| saved(world) > 50 * REGION_BYTES);
    world.crash(0, false, FOR_EVER);
    world.cluster[1].storage.trouble.full_until = ALWAYS;
    world.command(1, GROUP, Command::Promote { force: true, entropy: 7 });
    let (mut most, limit) = (0, world.now() + 5 * SECOND / 2);
    while world.now() < limit {
        world.pass(20_000);
        most = most.max(written_back_at_once(&world));
    }
    assert!(most > 0 && most <= WRITE_BACKS_MAX, "{most}");
}

fn written_back_at_once(world: &ScenarioWorld) -> usize {
    let explained = world.cluster[1].engine().expect("up").explain(GROUP);
    let (_, back) = explained.split_once("WriteBack(").unwrap_or_default();
    let (_, count) = back.split_once("in_flight: ").unwrap_or_default();
    count.split_once(',').map_or(0, |(count, _)| count.parse().expect("a number"))
}

/// A sync in the stream is at its end here, and its last flush is slow. Behind it a write meets a full volume, and a promotion
/// begins: it waits for space, and no longer.
#[test]
fn a_promotion_as_a_sync_ends_over_a_full_volume_is_answered() {
    let met: usize = (0..300).map(|late| usize::from(promoted_as_a_sync_ends(late * 20_000))).sum();
    assert!(met > 0);
}

/// Whether the promotion came in that moment.
fn promoted_as_a_sync_ends(late_ns: u64) -> bool {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..3 {
        world.write_done(0, n * 64 * KIB, 4 * KIB);
    }
    // What was hot is compared, in the stream.
    world.crash(0, false, SECOND);
    let mid_sync = |world: &ScenarioWorld| world.glance(1, GROUP).filter(|glance| glance.identity.inconsistent);
    while mid_sync(&world).is_none() {
        world.pass(MILLISECOND / 5);
    }
    world.write(0, 0, 4 * KIB);
    world.pass(1_500_000 + late_ns);
    world.cluster[1].storage.trouble.stalled_until = world.now() + 4 * SECOND;
    for _ in 0..40 {
        let explained = world.cluster[1].engine().expect("up").explain(GROUP);
        if explained.contains("cycle: Some") && explained.contains("sync_end: Some") {
            break;
        }
        world.pass(10_000);
    }
    let far = &mut world.cluster[1].storage.trouble;
    (far.stalled_until, far.full_until) = (0, ALWAYS);
    world.write(1, 512 * KIB, 4 * KIB);
    world.pass(300 * MILLISECOND);
    if mid_sync(&world).is_none_or(|glance| glance.paused != Some(Pause::PeerFull)) {
        return false;
    }
    world.crash(0, false, FOR_EVER);
    world.pass(MILLISECOND);
    let id = world.command(1, GROUP, Command::Promote { force: true, entropy: 99 });
    world.pass(2 * SECOND);
    world.cluster[1].storage.trouble.full_until = 0;
    world.pass(60 * SECOND);
    assert!(world.cluster.ledger.result(id).is_some(), "late by {late_ns} ns");
    world.coverage(1, CoveragePoint::RolledBack) == 0
}
