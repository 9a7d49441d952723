//! Many groups want a sync at once: only so many run, the others say that they wait and go on by themselves.

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Pause, Policy, Protection, State};
use engine::{Command, CommandResult, GroupId};
use sim::options::SimOptions;
use sim::scenarios::{MILLISECOND, SECOND, ScenarioWorld, options};

/// Node 0 is primary of every second of these groups, and one of them syncs at a time.
pub fn one_permit(bytes_per_s: u64) -> SimOptions {
    SimOptions { pairs: vec![[0, 1]; 4], syncs_at_once: 1, bytes_per_s, ..options(Mode::Async, Policy::Degrade) }
}

/// Two groups: one that will be busy, and one that is in step and will have to wait.
fn one_in_step() -> (ScenarioWorld, GroupId, GroupId) {
    let mut world = ScenarioWorld::new(SimOptions { volumes: 1, ..one_permit(400_000) });
    world.pass(SECOND);
    let (busy, waiting) = (GroupId(2), GroupId(0));
    world.command(0, waiting, Command::Sync { full: true });
    world.until("synced", |world| world.cluster.in_step(waiting));
    (world, busy, waiting)
}

// proves: P5, rule 17
#[test]
fn syncs_share_the_permits_and_all_end() {
    // Every second group has its primary on node 0.
    let mut world = ScenarioWorld::new(SimOptions {
        pairs: vec![[0, 1]; 8],
        volumes: 1,
        syncs_at_once: 2,
        bytes_per_s: 400_000,
        ..options(Mode::Async, Policy::Degrade)
    });
    world.pass(SECOND);
    let ours: Vec<GroupId> = (0..8).step_by(2).map(GroupId).collect();
    let ids: Vec<_> = ours.iter().map(|group| world.command(0, *group, Command::Sync { full: true })).collect();
    world.pass(100 * MILLISECOND);
    assert!(ids.iter().all(|id| world.cluster.ledger.result(*id).is_some()));
    let status = |world: &ScenarioWorld| world.cluster[0].engine().expect("up").status();
    let now = status(&world);
    let waiting = now.iter().filter(|group| group.reason.contains("waiting for its turn")).count();
    let syncing: Vec<_> = now.iter().filter(|group| group.state == State::Syncing).collect();
    assert_eq!((syncing.len(), waiting), (2, 2));
    assert!(now.iter().filter(|group| group.sync_position.is_some()).all(|group| group.sync_ordered));
    let mut line: Vec<_> = now.iter().filter_map(|group| group.sync_position).collect();
    line.sort_unstable();
    assert_eq!(line, [1, 2]);
    assert!(syncing.iter().all(|group| group.protection == Protection::LocalOnly), "the copy is of no use yet");
    let mut most = 0;
    while !ours.iter().all(|group| world.cluster.in_step(*group)) {
        world.pass(20 * MILLISECOND);
        most = most.max(status(&world).iter().filter(|group| group.state == State::Syncing).count());
        assert!(world.now() < 600 * SECOND, "they do not end");
    }
    assert_eq!(most, 2);
}

// proves: P6
/// What an operator asked for is over the copy that he saw.
#[test]
fn a_full_sync_that_waited_does_not_overwrite_a_peer_that_was_promoted_since() {
    let (mut world, busy, waiting) = one_in_step();
    for n in 0..16 {
        world.write_to(busy, 0, n * 64 * 1024, 64 * 1024);
    }
    world.pass(SECOND);
    world.command(0, busy, Command::Sync { full: true });
    world.pass(100 * MILLISECOND);
    world.command(0, waiting, Command::Sync { full: true });
    world.pass(100 * MILLISECOND);
    let promote = |entropy| Command::Promote { force: true, entropy };
    world.command(1, waiting, promote(11));
    world.pass(100 * MILLISECOND);
    let id = world.write_to(waiting, 0, 0, 4096);
    world.pass(100 * MILLISECOND);
    assert_eq!(world.reply(id), Some(true));
    for (node, command) in [(0, Command::Demote), (1, Command::Demote), (0, promote(12))] {
        world.command(node, waiting, command);
        world.pass(300 * MILLISECOND);
    }
    world.pass(30 * SECOND);
    let status = world.cluster[0].engine().expect("up").status();
    let now = status.iter().find(|group| group.id == waiting).expect("there");
    assert_eq!(now.state, State::Logging, "{}", now.reason);
    assert!(now.reason.contains("--full"), "{}", now.reason);
}

/// Without `autosync` an update sync that had to wait for its turn begins when it has it: the operator was told so.
#[test]
fn a_sync_that_was_promised_a_permit_begins_without_autosync() {
    let (mut world, busy, waiting) = one_in_step();
    world.set(waiting, |settings| settings.autosync = false);
    world.command(0, waiting, Command::Logging);
    world.pass(100 * MILLISECOND);
    world.write_to(waiting, 0, 0, 64 * KIB);
    for n in 0..16 {
        world.write_to(busy, 0, n * 64 * KIB, 64 * KIB);
    }
    world.pass(SECOND);
    world.command(0, busy, Command::Sync { full: true });
    world.pass(100 * MILLISECOND);
    world.command(0, waiting, Command::Sync { full: false });
    world.pass(100 * MILLISECOND);
    world.until("the busy one is done", |world| world.cluster.in_step(busy));
    world.pass(120 * SECOND);
    let status = world.cluster[0].engine().expect("up").status();
    let now = status.iter().find(|group| group.id == waiting).expect("there");
    assert!(world.cluster.in_step(waiting), "{:?}: {}", now.state, now.reason);
}

/// One group has been synced, and nothing begins by itself any more unless its next sync is to be a full one; another one would
/// take long.
fn one_synced(full: bool) -> (ScenarioWorld, GroupId, GroupId) {
    let (mut world, busy, waiting) = one_in_step();
    if !full {
        world.set(waiting, |settings| settings.autosync = false);
        world.command(0, waiting, Command::Logging);
        world.pass(100 * MILLISECOND);
        world.write_to(waiting, 0, 0, 64 * KIB);
    }
    for n in 0..16 {
        world.write_to(busy, 0, n * 64 * KIB, 64 * KIB);
    }
    world.pass(SECOND);
    (world, busy, waiting)
}

/// The busy one syncs, and so the other one's next sync waits in line.
fn put_in_line(world: &mut ScenarioWorld, busy: GroupId, waiting: GroupId, full: bool) {
    world.command(0, busy, Command::Sync { full: true });
    world.pass(100 * MILLISECOND);
    let id = world.command(0, waiting, Command::Sync { full });
    world.pass(100 * MILLISECOND);
    let CommandResult::Done(reply) = world.cluster.ledger.result(id).cloned().expect("answered") else {
        panic!("refused")
    };
    assert!(reply.contains("begins by itself when it is its turn"), "{reply}");
}

// proves: P5
/// The link flaps, which frees the slot and takes the peer; when that is back, the queue goes on.
#[test]
fn a_sync_in_line_survives_a_link_that_flaps() {
    for full in [false, true] {
        let (mut world, busy, waiting) = one_synced(full);
        put_in_line(&mut world, busy, waiting, full);
        let before = world.coverage(0, CoveragePoint::FullSyncBegan);
        world.cut([false; 2]);
        world.pass(10 * SECOND);
        world.restore_path();
        world.pass(300 * SECOND);
        assert!(world.cluster.in_step(busy) && world.cluster.in_step(waiting), "full: {full}");
        assert!(!full || world.coverage(0, CoveragePoint::FullSyncBegan) > before, "it never began");
    }
}

/// However often its peer was given up before: the operator has mended that.
#[test]
fn an_ordered_sync_that_waited_for_a_permit_begins_with_it() {
    let (mut world, busy, waiting) = one_synced(false);
    let reason = |world: &ScenarioWorld| {
        let status = world.cluster[0].engine().expect("up").status();
        status.into_iter().find(|group| group.id == waiting).expect("there").reason
    };
    world.cluster[1].storage.trouble.stalled_until = world.now() + 1000 * SECOND;
    world.command(0, waiting, Command::Sync { full: false });
    world.until("given up", |world| world.coverage(0, CoveragePoint::SyncStalled) == 5);
    world.cluster[1].storage.trouble.stalled_until = 0;
    world.crash(1, false, SECOND);
    world.pass(3 * SECOND);
    assert!(reason(&world).contains("left alone for a while"), "{}", reason(&world));
    put_in_line(&mut world, busy, waiting, false);
    assert!(reason(&world).contains("waiting for its turn"), "{}", reason(&world));
    world.until("the busy one is done", |world| world.cluster.in_step(busy));
    world.pass(SECOND);
    assert_eq!(world.glance(0, waiting).map(|g| g.state), Some(State::Replicating), "{}", reason(&world));
}

/// While it was paused its slot was another one's, and it comes back.
#[test]
fn a_sync_that_was_paused_waits_for_a_permit_to_go_on() {
    let mut world = ScenarioWorld::new(SimOptions {
        pairs: vec![[0, 1]; 4],
        syncs_at_once: 1,
        bytes_per_s: 100_000,
        history_bytes: 160 * KIB,
        ..options(Mode::Async, Policy::Degrade)
    });
    world.pass(SECOND);
    let (busy, paused) = (GroupId(2), GroupId(0));
    world.command(0, paused, Command::Sync { full: true });
    world.until("synced", |world| world.cluster.in_step(paused));
    world.command(0, paused, Command::Logging);
    world.pass(100 * MILLISECOND);
    for n in 0..14u64 {
        world.write_to(paused, (n % 2) as u16, n * 60 * KIB, 36 * KIB);
        world.write_to(busy, (n % 2) as u16, n * 64 * KIB, 64 * KIB);
    }
    world.pass(SECOND);
    world.command(0, paused, Command::Sync { full: false });
    let status = |world: &ScenarioWorld, node: usize, group| {
        world.cluster[node].engine().expect("up").status_of(group).expect("there")
    };
    let is_paused = |world: &ScenarioWorld| status(world, 0, paused).state == State::Paused(Pause::HistoryFull);
    world.until("paused", is_paused);
    world.command(0, busy, Command::Sync { full: true });
    world.until("the other one syncs", |world| status(world, 0, busy).state == State::Syncing);
    let name = status(&world, 1, paused).rollback_point.expect("taken").name;
    world.command(1, paused, Command::DropRollbackPoint { name, discard: false });
    let mut waited = false;
    while status(&world, 0, busy).state == State::Syncing {
        assert!(is_paused(&world), "it takes a slot that is not free");
        let now = status(&world, 0, paused);
        waited |= now.reason.contains("waiting for its turn") && now.sync_position == Some(1);
        world.pass(20 * MILLISECOND);
    }
    assert!(waited);
    world.pass(100 * MILLISECOND);
    assert!(!is_paused(&world), "{}", status(&world, 0, paused).reason);
    world.until("in step", |world| world.cluster.in_step(busy) && world.cluster.in_step(paused));
}
