//! One disk of a group is dead: its volume is detached, the others go on in their order, and it comes back on an empty disk.
// proves: rule 11, rule 12

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Degrade, Mode, Policy, State};
use engine::{Command, CommandResult, NodeId, RefusalCode, VolumeId};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, node_failed, options, state};
use sim::world::resets::{attaches, detaches};

const LOST: VolumeId = VolumeId(1);
const REJOIN: Command = Command::Rejoin { volume: LOST };

fn peace(mode: Mode) -> ScenarioWorld {
    let roomy = SimOptions { queue_bytes: 8 * MIB, wait_limit_ms: 30_000, ..options(mode, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(SimOptions { degrade: Degrade::Queue, ..roomy });
    world.write_done(0, 0, 8 * KIB);
    world.write_done(1, 0, 8 * KIB);
    world.until("the promise holds", |world| state(world) == Some(State::Replicating));
    world.until("all is applied", ScenarioWorld::in_step);
    world
}

/// Its group has started anew, with this on record.
fn is_back(world: &mut ScenarioWorld, node: usize, detached: bool) {
    let is_so = |world: &ScenarioWorld| world.recorded(node).detached.contains(LOST) == detached;
    world.until("it is back", |world| is_so(world) && world.glance(node, GROUP).is_some_and(|glance| glance.running));
}

fn is_detached(world: &mut ScenarioWorld, node: usize) {
    detaches(world, node, GROUP, LOST);
    is_back(world, node, true);
    assert!(world.figures(node).volumes[1].is_detached && lacks(world, node));
}

fn is_attached(world: &mut ScenarioWorld, node: usize) {
    assert!(attaches(world, node, GROUP, LOST), "it is detached on record");
    is_back(world, node, false);
    assert!(!world.figures(node).volumes[1].is_detached);
}

fn lacks(world: &ScenarioWorld, node: usize) -> bool {
    let volumes = world.figures(node).volumes;
    assert!(!volumes[0].is_aside);
    volumes[1].is_aside
}

fn replicates(world: &mut ScenarioWorld) {
    world.until("it replicates", |world| state(world) == Some(State::Replicating) && world.serves(GROUP));
}

/// What the primary lost with its power may have been on the disk that is dead: then nobody knows, and its operator is asked.
fn serves_or_asks(world: &mut ScenarioWorld) {
    for _ in 0..60 {
        if world.serves(GROUP) {
            return;
        }
        world.pass(SECOND);
    }
    done(world, Command::Sync { full: false });
}

fn done(world: &mut ScenarioWorld, command: Command) {
    let answer = world.order(0, command);
    assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
}

/// Clients write to both volumes of node 0, or to the first alone.
fn writes(world: &mut ScenarioWorld, both: bool) {
    for n in 0..8 {
        world.write_done(0, n * 20 * KIB, 4 * KIB);
        if both {
            world.write_done(1, n * 16 * KIB, 16 * KIB);
        }
    }
}

/// The peer has all of the first volume.
fn others_are_there(world: &mut ScenarioWorld) {
    let given = |world: &ScenarioWorld| world.figures(0).identity.position;
    world.until("the peer has the others", |world| world.figures(1).identity.position == given(world));
    world.pass(SECOND);
    assert_eq!(world.images_of(0)[0], world.images_of(1)[0]);
}

fn rejoins(world: &mut ScenarioWorld) {
    let is_heard = |world: &ScenarioWorld| !world.figures(0).volumes[1].is_detached_at_peer;
    world.until("the peer says that it has a disk", is_heard);
    replicates(world);
    done(world, REJOIN);
    world.drain();
    assert!(!lacks(world, 0) && !lacks(world, 1));
    assert_eq!(world.images_of(0), world.images_of(1));
    writes(world, true);
    world.drain();
    assert!((0..2).all(|node| world.recorded(node).aside.is_empty() && world.recorded(node).detached.is_empty()));
}

// proves: P1, P2, P3
#[test]
fn the_others_go_on_in_order_without_a_disk_of_the_secondary() {
    for mode in [Mode::Sync, Mode::Nearsync, Mode::Async] {
        let mut world = peace(mode);
        let syncs = world.figures(0).resynced_bytes;
        is_detached(&mut world, 1);
        writes(&mut world, true);
        replicates(&mut world);
        writes(&mut world, true);
        others_are_there(&mut world);
        assert!(lacks(&world, 0) && lacks(&world, 1), "{mode:?}");
        assert!(world.figures(0).volumes[1].is_detached_at_peer);
        assert_eq!(world.figures(0).resynced_bytes, syncs, "{mode:?}: the order of the others stood");
        assert!(world.coverage(0, CoveragePoint::PeerDetached) > 0);
        assert_eq!(world.refusal(0, REJOIN).code, RefusalCode::VolumeDetached);
        is_attached(&mut world, 1);
        rejoins(&mut world);
    }
}

/// What failed the group was that disk: the others are as they were.
#[test]
fn a_secondary_that_failed_by_its_disk_comes_back_without_it() {
    let mut world = peace(Mode::Async);
    world.cluster[1].storage.trouble.apply_errors_until = ALWAYS;
    world.write(1, 0, 4 * KIB);
    world.until("it fails", |world| node_failed(world, 1));
    world.cluster[1].storage.trouble.apply_errors_until = 0;
    is_detached(&mut world, 1);
    replicates(&mut world);
    writes(&mut world, true);
    others_are_there(&mut world);
    is_attached(&mut world, 1);
    rejoins(&mut world);
}

// proves: P2, P3, rule 5
#[test]
fn it_stays_detached_through_the_loss_of_link_process_and_power() {
    type Trouble = fn(&mut ScenarioWorld);
    let troubles: [Trouble; 7] = [
        |world| world.flap([0, 1]),
        |world| {
            world.cut([false; 2]);
            world.pass(20 * SECOND);
            world.restore_path();
        },
        |world| world.crash(0, false, SECOND),
        |world| world.crash(0, true, SECOND),
        |world| world.crash(1, false, SECOND),
        |world| world.crash(1, true, SECOND),
        |world| {
            world.crash(0, true, SECOND);
            world.crash(1, true, SECOND);
        },
    ];
    for mode in [Mode::Sync, Mode::Async] {
        for trouble in troubles {
            let mut world = peace(mode);
            is_detached(&mut world, 1);
            replicates(&mut world);
            writes(&mut world, true);
            // What was kept of the volume is gone, and by now the primary has it on its disk.
            world.pass(10 * SECOND);
            trouble(&mut world);
            world.until("both are up", |world| world.cluster.iter().all(|node| node.up()) && world.serves(GROUP));
            writes(&mut world, true);
            replicates(&mut world);
            others_are_there(&mut world);
            assert!(lacks(&world, 0) && lacks(&world, 1) && world.recorded(1).detached.contains(LOST));
            is_attached(&mut world, 1);
            trouble(&mut world);
            world.until("both are up", |world| world.cluster.iter().all(|node| node.up()) && world.serves(GROUP));
            rejoins(&mut world);
        }
    }
}

/// In the midst of detaching and of attaching.
#[test]
fn a_node_that_dies_meanwhile_knows_what_it_was_told() {
    for after in [MILLISECOND / 10, 5 * MILLISECOND, 50 * MILLISECOND, 200 * MILLISECOND] {
        for (node, power) in [(0, true), (1, false), (1, true)] {
            let mut world = peace(Mode::Sync);
            writes(&mut world, true);
            detaches(&mut world, 1, GROUP, LOST);
            world.pass(after);
            world.crash(node, power, 100 * MILLISECOND);
            world.until("it is on record", |world| world.recorded(1).detached.contains(LOST));
            serves_or_asks(&mut world);
            replicates(&mut world);
            writes(&mut world, true);
            assert!(attaches(&mut world, 1, GROUP, LOST));
            world.pass(after);
            world.crash(node, power, 100 * MILLISECOND);
            world.until("it is on record", |world| world.recorded(1).detached.is_empty());
            serves_or_asks(&mut world);
            rejoins(&mut world);
        }
    }
}

// proves: P3
/// Detached and attached while nobody looks: the primary was never told, and takes the whole copy for what it was.
#[test]
fn a_primary_that_was_away_sends_all_of_it() {
    let mut world = peace(Mode::Async);
    world.cut([false; 2]);
    world.pass(MILLISECOND);
    is_detached(&mut world, 1);
    is_attached(&mut world, 1);
    writes(&mut world, true);
    world.restore_path();
    replicates(&mut world);
    world.drain();
    assert_eq!(world.images_of(0), world.images_of(1));
    assert!(!lacks(&world, 0) && !lacks(&world, 1));
    assert!(world.figures(0).resynced_bytes >= MIB / 2);
}

// proves: P3
#[test]
fn a_full_sync_leaves_out_what_has_no_device() {
    let mut world = peace(Mode::Async);
    is_detached(&mut world, 1);
    replicates(&mut world);
    done(&mut world, Command::Sync { full: true });
    replicates(&mut world);
    others_are_there(&mut world);
    assert!(lacks(&world, 0) && lacks(&world, 1));
    is_attached(&mut world, 1);
    rejoins(&mut world);
}

// proves: P2, P6
#[test]
fn a_promotion_is_without_it_and_serves_nothing_of_it() {
    let mut world = peace(Mode::Async);
    is_detached(&mut world, 1);
    replicates(&mut world);
    writes(&mut world, true);
    others_are_there(&mut world);
    let switchover =
        Command::Switchover { to: NodeId(1), limit: Duration::from_secs(5), closes_export: false, only_asks: false };
    assert_eq!(world.refusal(0, switchover).code, RefusalCode::VolumeAside);
    let good = world.images_of(0).swap_remove(1);
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
    assert_eq!(world.refusal(1, Command::Promote { force: false, entropy: 7 }).code, RefusalCode::VolumeAside);
    let CommandResult::Warning(text) = world.promote(1, true) else { panic!("not a word") };
    assert!(text.contains("without volume 2 of the group (in the order of names)"), "{text}");
    assert!(lacks(&world, 1) && world.figures(1).volumes[1].is_detached);
    let full = world.order(1, Command::Sync { full: true });
    assert!(matches!(full, CommandResult::Done(_)), "{full:?}");
    let is_sent =
        |world: &ScenarioWorld| world.glance(1, GROUP).is_some_and(|glance| glance.state == State::Replicating);
    world.until("it replicates", is_sent);
    world.pass(SECOND);
    assert_eq!(world.images_of(0)[1], good, "nothing is sent of what is not there");
    assert_eq!(world.images_of(0)[0], world.images_of(1)[0]);
    assert!(!attaches(&mut world, 1, GROUP, LOST), "what counts stands at the peer");
    assert_eq!(world.refusal(1, REJOIN).code, RefusalCode::VolumeDetached);
}

// proves: P1, P2, P3
#[test]
fn a_primary_serves_the_others_without_a_disk_and_leaves_the_peers_copy_of_it_alone() {
    for mode in [Mode::Sync, Mode::Async] {
        for trouble in [None, Some((0, true)), Some((1, true)), Some((0, false))] {
            let mut world = peace(mode);
            writes(&mut world, true);
            world.drain();
            let good = world.images_of(1).swap_remove(1);
            is_detached(&mut world, 0);
            replicates(&mut world);
            writes(&mut world, false);
            if let Some((node, power)) = trouble {
                world.crash(node, power, SECOND);
                world.until("both are up", |world| world.cluster.iter().all(|node| node.up()));
            }
            replicates(&mut world);
            writes(&mut world, false);
            others_are_there(&mut world);
            assert!(lacks(&world, 0) && lacks(&world, 1));
            assert_eq!(world.images_of(1)[1], good, "{mode:?}");
            // The way back: what counts is with the peer.
            assert!(!attaches(&mut world, 0, GROUP, LOST), "a primary fetches nothing");
            assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
            assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
            is_attached(&mut world, 0);
            world.pass(5 * SECOND);
            let full = world.order(1, Command::Sync { full: true });
            assert!(matches!(full, CommandResult::Done(_)), "{full:?}");
            world.drain();
            assert_eq!(world.images_of(0), world.images_of(1));
            assert_eq!(world.images_of(0)[1], good, "{mode:?}");
        }
    }
}

#[test]
fn nothing_is_written_to_a_volume_without_a_device() {
    let mut world = peace(Mode::Async);
    is_detached(&mut world, 0);
    world.until("it serves", |world| world.serves(GROUP));
    let id = world.write(1, 0, 4 * KIB);
    assert!(!world.answer(id).0, "an error, at once");
    world.write_done(0, 0, 4 * KIB);
}
