//! Under `strict` nobody is answered alone, whatever becomes of the peer.

use std::rc::Rc;

use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, GroupId, Settings, Store, VolumeId};
use sim::nodes::disk::SimDisk;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options, patient};

// proves: P1
/// The peer is promoted by force while it is connected, and what was sent to it meanwhile it does not take.
#[test]
fn strict_answers_nobody_alone_when_a_connected_peer_is_promoted() {
    let mut world = patient();
    world.cluster[1].storage.trouble.stalled_until = world.now() + 2 * SECOND;
    world.command(1, GROUP, Command::Promote { force: true, entropy: 7 });
    world.pass(100 * MILLISECOND);
    let id = world.write(1, 0, 8 * KIB);
    world.pass(500 * MILLISECOND);
    assert_eq!(world.reply(id), None);
    let (done, _) = world.answer(id);
    let there = world.images_of(0)[1][..8 << 10] == world.images_of(1)[1][..8 << 10];
    assert!(!done || there, "acknowledged under strict, and only here: {}", world.figures(0).reason);
}

/// The held writers' peer comes back with another number of volumes.
#[test]
fn strict_answers_nobody_alone_when_the_peer_does_not_fit_any_more() {
    let mut world = patient();
    world.crash(1, false, FOR_EVER);
    let id = world.write(1, 0, 8 * KIB);
    world.pass(7 * SECOND);
    assert_eq!(world.glance(0, GROUP).map(|glance| glance.state), Some(State::Holding));
    world.cluster.options = Rc::new(SimOptions { volumes: 3, ..(*world.cluster.options).clone() });
    // On both: whoever compares copies looks at as many.
    for node in world.cluster.iter_mut() {
        node.storage.replace(Store::Volume(GROUP, VolumeId(2)), SimDisk::new(vec![0; MIB as usize]));
    }
    let bitmap = world.cluster[1].disk_mut(Store::Bitmap(GROUP));
    let mut content = bitmap.view().to_vec();
    content.resize(content.len() / 2 * 3, 0);
    *bitmap = SimDisk::new(content);
    world.boot(1);
    let (done, _) = world.answer(id);
    assert!(!done, "acknowledged under strict, and only here: {}", world.figures(0).reason);
}

/// Those who waited for room and failed have waited as well.
#[test]
fn writers_who_failed_for_want_of_room_are_counted_as_blocked() {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { queue_bytes: 128 * KIB, ..options(Mode::Sync, Policy::Strict) });
    world.pass(10 * SECOND);
    world.cluster[1].storage.trouble.stalled_until = world.now() + 4 * SECOND;
    let ids: Vec<_> = (0..12).map(|n| world.write(n % 2, u64::from(n) / 2 * 32 * KIB, 32 * KIB)).collect();
    world.pass(SECOND / 2);
    assert!(world.figures(0).queue.blocked_writers > 0);
    world.pass(2 * SECOND);
    assert!(ids.iter().all(|id| world.reply(*id) == Some(false)));
    assert!(world.figures(0).queue.waits.sum().as_millis() > 900);
}

/// Local disks end a write that has waited too long for the peer, and let one go on behind it that finds its room gone: the look at
/// those who wait ends the first.
#[test]
fn a_write_that_gives_way_to_one_without_room_may_be_overdue() {
    for policy in [Policy::Strict, Policy::Degrade] {
        let mut world = ScenarioWorld::in_peace(SimOptions { wait_limit_ms: 1_550, ..options(Mode::Sync, policy) });
        world.pass(5 * SECOND);
        let hot = world.write(1, 0, 64 * KIB);
        world.answer(hot);
        world.cluster[1].storage.trouble.stalled_until = world.now() + 4 * SECOND;
        world.cluster[0].storage.trouble.stalled_until = world.now() + 1_560 * MILLISECOND;
        let first = world.write(1, 0, 64 * KIB);
        let behind = world.write(1, 0, 64 * KIB);
        world.cluster[0].storage.trouble.stalled_until = 0;
        let smaller = Settings { queue_bytes: 64 * KIB, ..world.cluster.ledger.settings(GROUP) };
        assert!(matches!(world.order(0, Command::Set(smaller)), CommandResult::Done(_)));
        let (done, _) = world.answer(first);
        assert_eq!(done, policy == Policy::Degrade);
        world.answer(behind);
        world.pass(20 * SECOND);
        world.drain();
    }
}

/// An operator's full sync ends the stream in which the peer would have had the write, at once or when its turn comes.
#[test]
fn strict_answers_nobody_alone_when_a_full_sync_is_ordered() {
    let mut world = patient();
    world.cluster[1].storage.trouble.stalled_until = world.now() + 2 * SECOND;
    let id = world.write(1, 0, 8 * KIB);
    world.pass(500 * MILLISECOND);
    assert_eq!(world.reply(id), None, "it waits for the peer");
    world.order(0, Command::Sync { full: true });
    let (done, _) = world.answer(id);
    assert!(!done, "acknowledged under strict, and only here: {}", world.figures(0).reason);
    world.drain();
}

/// The same if the full sync had to wait for its turn: what streams goes on streaming until then, and then it ends.
#[test]
fn strict_answers_nobody_alone_when_a_full_sync_has_waited_for_a_permit() {
    let mut world = ScenarioWorld::new(SimOptions {
        pairs: vec![[0, 1]; 4],
        volumes: 1,
        syncs_at_once: 1,
        bytes_per_s: 400_000,
        wait_limit_ms: 60_000,
        ..options(Mode::Sync, Policy::Strict)
    });
    world.pass(SECOND);
    let (busy, waiting) = (GroupId(2), GroupId(0));
    world.command(0, waiting, Command::Sync { full: true });
    world.until("synced", |world| world.cluster.in_step(waiting));
    let glance = |world: &ScenarioWorld, group| world.glance(0, group).expect("up");
    let position_in_line = |world: &ScenarioWorld| {
        let engine = world.cluster[0].engine().expect("up");
        engine.status_of(waiting).expect("there").sync_position
    };
    // Zeroes would be no load.
    world.set(busy, |settings| settings.policy = Policy::Degrade);
    for n in 0..16 {
        world.write_to(busy, 0, n * 64 * KIB, 64 * KIB);
    }
    world.pass(SECOND);
    world.command(0, busy, Command::Sync { full: true });
    world.until("it syncs", |world| glance(world, busy).state == State::Syncing);
    world.command(0, waiting, Command::Sync { full: true });
    world.until("it stands in line", |world| position_in_line(world) == Some(1));
    assert_eq!(glance(&world, waiting).state, State::Replicating);
    world.pass(SECOND / 2);
    // The peer hears nothing any more, and the one before it in line is stopped.
    world.cluster[1].storage.trouble.stalled_until = world.now() + 3 * SECOND;
    let id = world.write_to(waiting, 0, 0, 8 * KIB);
    world.pass(500 * MILLISECOND);
    assert_eq!((world.reply(id), position_in_line(&world)), (None, Some(1)), "it waits for the peer");
    world.command(0, busy, Command::Logging);
    world.until("its turn has come", |world| position_in_line(world).is_none());
    assert!(world.now() < world.cluster[1].storage.trouble.stalled_until, "the peer cannot have taken it");
    let (done, _) = world.answer(id);
    assert!(!done, "acknowledged under strict, and only here: {}", world.figures(0).reason);
    world.drain();
}
