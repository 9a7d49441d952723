//! Who holds a permit to sync, who stands in line for one, and what is said of it, where a sync is paused meanwhile.
// proves: rule 17

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Pause, State};
use engine::status::GroupStatus;
use engine::{Command, GroupId, Settings};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{MILLISECOND, SECOND, ScenarioWorld};

use crate::sync_semaphore::one_permit;

fn status(world: &ScenarioWorld, node: usize, group: GroupId) -> GroupStatus {
    world.cluster[node].engine().expect("up").status_of(group).expect("there")
}

/// The group is in step, and held in logging from then on.
fn held_in_logging(world: &mut ScenarioWorld, group: GroupId) {
    world.command(0, group, Command::Sync { full: true });
    world.until("synced", |world| world.cluster.in_step(group));
    world.command(0, group, Command::Logging);
    world.pass(SECOND);
}

/// Both orders are taken while no permit is held yet: bits are being stored. The second group then waits, and says for what.
#[test]
fn of_two_full_syncs_that_are_ordered_at_once_one_says_that_it_waits() {
    let mut world = ScenarioWorld::new(SimOptions { volumes: 1, ..one_permit(10_000) });
    world.pass(SECOND);
    let groups = [GroupId(0), GroupId(2)];
    for group in groups {
        held_in_logging(&mut world, group);
        for n in 0..12 {
            world.write_to(group, 0, n * 64 * KIB, 64 * KIB);
        }
        world.pass(SECOND);
    }
    _ = groups.map(|group| world.command(0, group, Command::Sync { full: true }));
    world.pass(5 * SECOND);
    let waits = groups.map(|group| status(&world, 0, group)).into_iter().find(|group| group.state == State::Logging);
    let waits = waits.expect("one permit");
    assert!(waits.reason.contains("waiting for its turn"), "{}", waits.reason);
    // Long enough for a checker to object.
    world.pass(40 * SECOND);
}

/// The group's sync is paused for want of history with all of it sent, and the other group syncs for long.
fn paused_with_all_sent(history_bytes: u64, regions: u64) -> (ScenarioWorld, GroupId, GroupId) {
    let roomy = SimOptions { history_bytes, window_bytes: MIB, journal_bytes: 4 * MIB, ..one_permit(100_000) };
    let mut world = ScenarioWorld::new(roomy);
    world.pass(SECOND);
    let (busy, paused) = (GroupId(2), GroupId(0));
    held_in_logging(&mut world, paused);
    for n in 0..regions {
        world.write_to(paused, 0, n * 64 * KIB, 64 * KIB);
    }
    for n in 0..28u64 {
        world.write_to(busy, (n % 2) as u16, n / 2 * 64 * KIB, 64 * KIB);
    }
    world.pass(SECOND);
    world.command(0, paused, Command::Sync { full: false });
    world.until("paused", |world| status(world, 0, paused).state == State::Paused(Pause::HistoryFull));
    world.pass(10 * SECOND);
    world.command(0, busy, Command::Sync { full: true });
    world.until("the other one syncs", |world| status(world, 0, busy).state == State::Syncing);
    (world, busy, paused)
}

/// Gives the copy's rollback point up, if there is one.
fn drop_point(world: &mut ScenarioWorld, group: GroupId) {
    if let Some(point) = status(world, 1, group).rollback_point {
        world.command(1, group, Command::DropRollbackPoint { name: point.name, discard: false });
    }
}

/// The rollback point is given up, and with it what the paused sync waits for. In how many milliseconds after that both groups sync, and
/// in how many the paused one stands in line though it does not sync any more.
fn with_space_again(world: &mut ScenarioWorld, busy: GroupId, paused: GroupId) -> (u64, u64) {
    drop_point(world, paused);
    let (mut both, mut for_nothing) = (0, 0);
    while status(world, 0, busy).state == State::Syncing {
        let now = status(world, 0, paused);
        both += u64::from(now.state == State::Syncing);
        let in_order = matches!(now.state, State::Replicating | State::CatchingUp);
        for_nothing += u64::from(in_order && now.sync_position.is_some());
        world.pass(MILLISECOND);
    }
    (both, for_nothing)
}

/// The end of a snapshot is confirmed while its group waits for a permit to go on: the next snapshot waits as well.
#[test]
fn the_snapshot_behind_a_paused_one_takes_no_permit() {
    let (mut world, busy, paused) = paused_with_all_sent(160 * KIB, 6);
    for n in 0..4 {
        world.write_to(paused, 1, n * 64 * KIB, 64 * KIB);
    }
    world.pass(100 * MILLISECOND);
    assert_eq!(with_space_again(&mut world, busy, paused), (0, 0));
    for _ in 0..20 {
        world.pass(3 * SECOND);
        drop_point(&mut world, paused);
    }
    world.until("in step", |world| world.cluster.in_step(busy) && world.cluster.in_step(paused));
}

/// A sync in the stream ends while its group waits for a permit to go on.
#[test]
fn a_sync_that_has_ended_stands_in_line_no_more() {
    let (mut world, busy, paused) = paused_with_all_sent(32 * KIB, 1);
    assert_eq!(with_space_again(&mut world, busy, paused).1, 0);
}

/// A full sync is ordered while the group's update sync is paused, or waits for a permit to go on: it begins when it is its turn.
#[test]
fn a_full_sync_ordered_over_a_paused_one_is_not_forgotten() {
    for has_space in [false, true] {
        let (mut world, busy, paused) = paused_with_all_sent(160 * KIB, 6);
        if has_space {
            drop_point(&mut world, paused);
            world.until("it waits", |world| status(world, 0, paused).sync_position == Some(1));
        }
        let before = world.coverage(0, CoveragePoint::FullSyncBegan);
        world.command(0, paused, Command::Sync { full: true });
        world.pass(SECOND);
        let now = status(&world, 0, paused);
        assert_eq!((now.state, now.sync_position, now.sync_ordered), (State::Logging, Some(1), true), "{}", now.reason);
        while !world.cluster.in_step(paused) || !world.cluster.in_step(busy) {
            world.pass(3 * SECOND);
            drop_point(&mut world, paused);
            assert!(world.now() < 600 * SECOND, "{:?}: {}", now.state, now.reason);
        }
        assert_eq!(world.coverage(0, CoveragePoint::FullSyncBegan), before + 1, "has space: {has_space}");
        assert!(!status(&world, 0, paused).sync_ordered);
    }
}

/// It stands in line by `autosync`, and `autosync` is turned off.
#[test]
fn a_group_without_autosync_is_not_said_to_wait_for_its_turn() {
    let mut world = ScenarioWorld::new(SimOptions { volumes: 1, ..one_permit(20_000) });
    world.pass(SECOND);
    let (busy, waits) = (GroupId(2), GroupId(0));
    held_in_logging(&mut world, waits);
    world.command(0, waits, Command::Sync { full: false });
    world.until("in step", |world| world.cluster.in_step(waits));
    for n in 0..14 {
        world.write_to(busy, 0, n * 64 * KIB, 64 * KIB);
    }
    world.pass(SECOND);
    world.command(0, busy, Command::Sync { full: true });
    world.pass(SECOND);
    world.set(waits, |settings| settings.mode = Mode::Logging);
    world.set(waits, |settings| settings.mode = Mode::Async);
    world.pass(SECOND);
    assert_eq!(status(&world, 0, waits).sync_position, Some(1), "{}", status(&world, 0, waits).reason);
    // At this node alone: a peer that was set too would send a greeting, and the reason would be looked at again.
    let settings = Settings { autosync: false, ..world.cluster.ledger.settings(waits) };
    world.command(0, waits, Command::Set(settings));
    world.pass(SECOND);
    let now = status(&world, 0, waits);
    assert_eq!(now.sync_position, None);
    assert!(now.reason.contains("autosync is off"), "{}", now.reason);
}

/// A group in step goes on streaming until its full sync has its turn, and then nobody comes between.
#[test]
fn a_full_sync_keeps_its_permit_while_its_bits_are_stored() {
    let mut world = ScenarioWorld::new(SimOptions { disk_ns: (5_000_000, 20_000_000), ..one_permit(100_000) });
    world.pass(SECOND);
    let (busy, full) = (GroupId(2), GroupId(0));
    for group in [busy, full] {
        held_in_logging(&mut world, group);
        world.command(0, group, Command::Sync { full: false });
        world.until("in step", |world| world.cluster.in_step(group));
    }
    world.command(0, busy, Command::Logging);
    world.pass(SECOND);
    world.write_to(busy, 0, 0, 64 * KIB);
    world.pass(SECOND);
    world.command(0, full, Command::Sync { full: true });
    world.command(0, busy, Command::Sync { full: false });
    let mut apart = 0;
    while !world.cluster.in_step(full) || !world.cluster.in_step(busy) {
        world.pass(10 * MILLISECOND);
        let first_waits = status(&world, 0, full).sync_position.is_some();
        apart += u64::from(first_waits && status(&world, 0, full).state == State::Logging);
        assert!(world.now() < 600 * SECOND);
    }
    assert_eq!(apart, 0, "it stood in line again, and was apart meanwhile");
}

/// It stands in line, and the operator wants logging.
#[test]
fn a_group_that_is_held_in_logging_stands_in_line_no_more() {
    let mut world = ScenarioWorld::new(SimOptions { volumes: 1, ..one_permit(20_000) });
    world.pass(SECOND);
    let (busy, waits) = (GroupId(2), GroupId(0));
    for n in 0..14 {
        world.write_to(busy, 0, n * 64 * KIB, 64 * KIB);
    }
    held_in_logging(&mut world, waits);
    world.command(0, busy, Command::Sync { full: true });
    world.pass(SECOND);
    world.command(0, waits, Command::Sync { full: false });
    world.pass(SECOND);
    assert_eq!(status(&world, 0, waits).sync_position, Some(1));
    world.command(0, waits, Command::Logging);
    world.pass(SECOND);
    assert_eq!(status(&world, 0, waits).sync_position, None, "{}", status(&world, 0, waits).reason);
}

/// The peer has space again, the sync waits for a permit to go on, and then the peer is full again.
#[test]
fn a_peer_that_is_full_again_is_not_said_to_have_space() {
    let mut world = ScenarioWorld::new(SimOptions {
        pairs: vec![[0, 1], [2, 0]],
        window_bytes: MIB,
        journal_bytes: 4 * MIB,
        disk_ns: (1_000_000, 20_000_000),
        ..one_permit(100_000)
    });
    world.pass(SECOND);
    let (paused, busy) = (GroupId(0), GroupId(1));
    held_in_logging(&mut world, paused);
    for n in 0..10 {
        world.write_to(paused, 0, n * 64 * KIB, 64 * KIB);
    }
    for n in 0..28u64 {
        world.write_to(busy, (n % 2) as u16, n / 2 * 64 * KIB, 64 * KIB);
    }
    world.pass(5 * SECOND);
    world.command(0, paused, Command::Sync { full: false });
    world.pass(SECOND);
    world.cluster[1].storage.trouble.full_until = ALWAYS;
    world.until("paused", |world| status(world, 0, paused).state == State::Paused(Pause::PeerFull));
    world.pass(8 * SECOND);
    world.command(0, busy, Command::Sync { full: true });
    world.until("the other one syncs", |world| status(world, 0, busy).state == State::Syncing);
    world.cluster[1].storage.trouble.full_until = 0;
    let is_full = |world: &ScenarioWorld| world.glance(1, paused).is_some_and(|glance| glance.paused.is_some());
    let limit = world.now() + 60 * SECOND;
    while is_full(&world) {
        world.pass(50_000);
        assert!(world.now() < limit);
    }
    world.cluster[1].storage.trouble.full_until = ALWAYS;
    world.pass(5 * SECOND);
    assert!(is_full(&world), "the scenario missed");
    let why = status(&world, 0, paused).reason;
    assert!(!why.contains("has space again"), "{why}");
}
