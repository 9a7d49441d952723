//! Who holds a permit to sync, who stands in line for one, and what is said of it, where a sync is paused meanwhile.
// proves: rule 17

use engine::limits::{KIB, MIB};
use engine::state::{Mode, Pause, Policy, State};
use engine::status::GroupStatus;
use engine::{Command, GroupId};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{MILLISECOND, SECOND, ScenarioWorld, options};

fn status(world: &ScenarioWorld, node: usize, group: GroupId) -> GroupStatus {
    world.cluster[node].engine().expect("up").status_of(group).expect("there")
}

/// Node 0 is primary of every second of these groups, and one of them syncs at a time.
fn one_permit(bytes_per_s: u64) -> SimOptions {
    SimOptions { pairs: vec![[0, 1]; 4], syncs_at_once: 1, bytes_per_s, ..options(Mode::Async, Policy::Degrade) }
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

/// The rollback point is given up, and with it what the paused sync waits for. In how many milliseconds after that both groups sync, and
/// in how many the paused one stands in line though it does not sync any more.
fn with_space_again(world: &mut ScenarioWorld, busy: GroupId, paused: GroupId) -> (u64, u64) {
    let name = status(world, 1, paused).rollback_point.expect("taken").name;
    world.command(1, paused, Command::DropRollbackPoint { name });
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
        if let Some(point) = status(&world, 1, paused).rollback_point {
            world.command(1, paused, Command::DropRollbackPoint { name: point.name });
        }
    }
    world.until("in step", |world| world.cluster.in_step(busy) && world.cluster.in_step(paused));
}

/// A sync in the stream ends while its group waits for a permit to go on.
#[test]
fn a_sync_that_has_ended_stands_in_line_no_more() {
    let (mut world, busy, paused) = paused_with_all_sent(32 * KIB, 1);
    assert_eq!(with_space_again(&mut world, busy, paused).1, 0);
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
