//! One disk of a group is dead: its volume is detached, the others go on in their order, and it comes back on an empty disk.
// proves: rule 11, rule 12

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::identity::Role;
use engine::limits::{KIB, MIB};
use engine::state::{Degrade, Mode, Policy, State};
use engine::{Command, CommandResult, NodeId, RefusalCode, VolumeId};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, node_failed, options, state};
use sim::world::resets::{attaches, detaches};

const LOST: VolumeId = VolumeId(1);
/// What is on a disk that comes.
const COMES_WITH: u8 = 0x33;
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

// proves: P8
/// What was queued for its volume is more than the peer's window, and is dropped there: none of it counts against the window for good.
#[test]
fn what_is_queued_for_a_dead_disk_does_not_use_up_the_window() {
    let small = SimOptions { window_bytes: 256 * KIB, queue_bytes: 8 * MIB, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(SimOptions { degrade: Degrade::Queue, ..small });
    world.write_done(0, 0, 8 * KIB);
    world.until("all is applied", ScenarioWorld::in_step);
    let syncs = world.figures(0).resynced_bytes;
    world.cut([false; 2]);
    for n in 0..60 {
        world.write_done(1, n % 16 * 64 * KIB, 64 * KIB);
    }
    writes(&mut world, true);
    is_detached(&mut world, 1);
    world.restore_path();
    replicates(&mut world);
    others_are_there(&mut world);
    assert_eq!(world.figures(0).resynced_bytes, syncs, "the order of the others stood");
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

/// Detached and attached on the secondary while the link is away, and the others replicate again: what stands on the device that came.
fn comes_unseen(world: &mut ScenarioWorld) -> Vec<u8> {
    world.cut([false; 2]);
    world.pass(MILLISECOND);
    is_detached(world, 1);
    is_attached(world, 1);
    let came = world.images_of(1)[1].clone();
    writes(world, true);
    world.restore_path();
    replicates(world);
    came
}

// proves: P3, P6, P7
/// Detached and attached while nobody looks: the primary was never told. It overwrites nothing of what stands there before somebody says so,
/// whatever becomes of the two meanwhile, and then sends all of it.
#[test]
fn a_primary_that_was_away_sends_all_of_it() {
    let mut world = peace(Mode::Async);
    let came = comes_unseen(&mut world);
    for node in [1, 0] {
        others_are_there(&mut world);
        assert!(lacks(&world, 0) && lacks(&world, 1));
        assert!(world.images_of(1)[1] == came, "nobody said that it may be overwritten");
        assert!(world.coverage(0, CoveragePoint::PeerUnfilled) > 0 || node == 0);
        world.crash(node, false, 100 * MILLISECOND);
        world.pass(SECOND);
        replicates(&mut world);
        writes(&mut world, true);
    }
    rejoins(&mut world);
    assert!(world.figures(0).resynced_bytes >= MIB / 2);
}

// proves: P6, P7
/// A word that changed nothing was kept, and counted for a device that came there later: all of that was overwritten, and nobody had asked for it.
#[test]
fn a_word_that_changes_nothing_fills_no_device_that_comes_later() {
    let mut world = peace(Mode::Async);
    let answer = world.order(0, REJOIN);
    assert!(matches!(answer, CommandResult::Unchanged(_)), "{answer:?}");
    let came = comes_unseen(&mut world);
    others_are_there(&mut world);
    assert!(lacks(&world, 0) && lacks(&world, 1));
    assert!(world.images_of(1)[1] == came, "nobody said that it may be overwritten");
    rejoins(&mut world);
}

// proves: P6
/// The word counts, whatever ends the sync that it began: it is not asked for again.
#[test]
fn what_was_ordered_is_filled_also_if_the_link_falls() {
    for after in [0, MILLISECOND, 20 * MILLISECOND] {
        let mut world = peace(Mode::Async);
        world.cut([false; 2]);
        world.pass(MILLISECOND);
        is_detached(&mut world, 1);
        is_attached(&mut world, 1);
        world.restore_path();
        replicates(&mut world);
        others_are_there(&mut world);
        done(&mut world, REJOIN);
        world.pass(after);
        world.cut([false; 2]);
        world.pass(SECOND);
        world.restore_path();
        replicates(&mut world);
        world.drain();
        assert!(!lacks(&world, 0) && !lacks(&world, 1), "{after}");
        assert_eq!(world.images_of(0), world.images_of(1));
    }
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

// ---- a disk that nobody has filled --------------------------------------------------------------------------------------

const PROMOTE_BY_FORCE: Command = Command::Promote { force: true, entropy: 7 };

/// No promotion takes what stands on the disk for the volume, and neither a restart nor the loss of power makes one of it.
fn is_not_promoted(world: &mut ScenarioWorld, node: usize) {
    for power in [None, Some(false), Some(true)] {
        if let Some(power) = power {
            world.crash(node, power, SECOND);
            world.until("it is up", |world| world.glance(node, GROUP).is_some_and(|glance| glance.running));
        }
        assert!(world.recorded(node).unfilled.contains(LOST) && world.figures(node).volumes[1].is_unfilled);
        assert!(lacks(world, node), "nor is it part of the image");
        let refusal = world.refusal(node, PROMOTE_BY_FORCE);
        assert_eq!(refusal.code, RefusalCode::VolumeUnfilled);
        assert!(refusal.text.contains("farshore group detach GROUP NAME"), "{}", refusal.text);
    }
}

fn keeps(world: &mut ScenarioWorld, node: usize) {
    let running =
        |world: &ScenarioWorld| (0..2).all(|node| world.glance(node, GROUP).is_some_and(|glance| glance.running));
    world.until("both are there", running);
    world.pass(5 * SECOND);
    if world.figures(1 - node).identity.role == Role::Primary {
        // Both went on: this one's content is the one that counts.
        let demoted = world.order(1 - node, Command::Demote);
        assert!(matches!(demoted, CommandResult::Warning(_)), "{demoted:?}");
        world.pass(5 * SECOND);
    }
    let full = world.order(node, Command::Sync { full: true });
    assert!(matches!(full, CommandResult::Done(_)), "{full:?}");
    let is_sent =
        |world: &ScenarioWorld| world.glance(node, GROUP).is_some_and(|glance| glance.state == State::Replicating);
    world.until("it replicates", is_sent);
    world.pass(SECOND);
}

// proves: P2, P3, P6
/// Its disk was replaced, nobody typed `sync --volume`, and the primary died: the blank disk was served as the volume, and then sent over the
/// only copy.
#[test]
fn a_disk_that_was_never_filled_is_not_promoted_and_overwrites_nothing() {
    for syncs_meanwhile in [false, true] {
        let mut world = peace(Mode::Async);
        writes(&mut world, true);
        world.drain();
        is_detached(&mut world, 1);
        replicates(&mut world);
        writes(&mut world, true);
        is_attached(&mut world, 1);
        replicates(&mut world);
        if syncs_meanwhile {
            // A sync of the others makes that copy whole, and its own bits of the volume are forgotten.
            world.cut([false; 2]);
            world.pass(20 * SECOND);
            writes(&mut world, true);
            world.restore_path();
            replicates(&mut world);
            others_are_there(&mut world);
        }
        let good = world.images_of(0).swap_remove(1);
        world.crash(0, false, 300 * SECOND);
        is_not_promoted(&mut world, 1);
        // Without it, as the sentence says.
        is_detached(&mut world, 1);
        assert!(!world.recorded(1).unfilled.contains(LOST));
        let CommandResult::Warning(text) = world.promote(1, true) else { panic!("not a word") };
        assert!(text.contains("without volume 2 of the group (in the order of names): it is detached"), "{text}");
        assert!(!attaches(&mut world, 1, GROUP, LOST));
        keeps(&mut world, 1);
        assert_eq!(world.images_of(0)[1], good, "what counts of it stands there");
        assert_eq!(world.images_of(0)[0], world.images_of(1)[0]);
    }
}

// proves: P2
/// The sync that fills it was cut short: the copy goes back to the image before it, in which the disk was blank.
#[test]
fn a_disk_that_is_being_filled_is_not_promoted_before_it_is_whole() {
    for after in [5 * MILLISECOND, 30 * MILLISECOND, 60 * MILLISECOND] {
        let mut world = peace(Mode::Async);
        is_detached(&mut world, 1);
        replicates(&mut world);
        // Zeroes would travel in no time.
        for n in 0..64 {
            world.write_done(1, n * 16 * KIB, 16 * KIB);
        }
        is_attached(&mut world, 1);
        replicates(&mut world);
        done(&mut world, REJOIN);
        world.pass(after);
        assert!(world.recorded(1).unfilled.contains(LOST), "after {after}");
        world.crash(0, false, 60 * SECOND);
        is_not_promoted(&mut world, 1);
        world.until("it is back", |world| world.cluster[0].up() && world.serves(GROUP));
        world.drain();
        assert!(world.recorded(1).unfilled.is_empty());
        assert_eq!(world.images_of(0), world.images_of(1));
        // Now it is as good as any.
        world.pass(SECOND);
        let demoted = world.order(0, Command::Demote);
        assert!(matches!(demoted, CommandResult::Done(_)), "{demoted:?}");
        let promoted = world.promote(1, false);
        assert!(matches!(promoted, CommandResult::Done(_)), "{promoted:?}");
    }
}

// proves: P2, P7
/// The runbook's steps in the wrong order, on a node that was the primary.
#[test]
fn a_demoted_primary_is_not_promoted_with_a_disk_that_was_never_filled() {
    for peer_is_there in [false, true] {
        let mut world = peace(Mode::Async);
        writes(&mut world, true);
        world.drain();
        let good = world.images_of(1).swap_remove(1);
        is_detached(&mut world, 0);
        if !peer_is_there {
            world.cut([false; 2]);
        }
        assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
        is_attached(&mut world, 0);
        is_not_promoted(&mut world, 0);
        world.restore_path();
        world.pass(5 * SECOND);
        assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
        keeps(&mut world, 1);
        world.drain();
        assert_eq!(world.images_of(0), world.images_of(1));
        assert_eq!(world.images_of(0)[1], good);
        assert!(world.recorded(0).unfilled.is_empty());
    }
}

/// A disk that came in its place died as well, or is not wanted after all.
#[test]
fn a_disk_that_was_never_filled_may_be_detached_again() {
    let mut world = peace(Mode::Sync);
    is_detached(&mut world, 1);
    is_attached(&mut world, 1);
    is_detached(&mut world, 1);
    assert!(world.recorded(1).unfilled.is_empty());
    replicates(&mut world);
    writes(&mut world, true);
    others_are_there(&mut world);
    is_attached(&mut world, 1);
    assert!(world.recorded(1).unfilled.contains(LOST));
    rejoins(&mut world);
    assert!(world.recorded(1).unfilled.is_empty());
}

// ---- the last one in order ----------------------------------------------------------------------------------------------

const KEPT: VolumeId = VolumeId(0);

// proves: P1
/// Nothing of the group was mirrored, and it said that it replicates.
#[test]
fn a_group_with_nothing_left_in_order_does_not_replicate() {
    for own in [false, true] {
        let mut world = peace(Mode::Sync);
        if own {
            is_detached(&mut world, 0);
            replicates(&mut world);
        } else {
            done(&mut world, Command::SetAside { volume: KEPT });
        }
        let other = if own { KEPT } else { LOST };
        detaches(&mut world, 1, GROUP, other);
        world.until("it is known there", |world| world.figures(0).volumes[usize::from(other.0)].is_detached_at_peer);
        world.pass(5 * SECOND);
        assert_eq!(state(&world), Some(State::Logging), "own: {own}");
        assert!(world.figures(0).reason.contains("no order is left to be mirrored"), "{}", world.figures(0).reason);
        assert!(world.coverage(0, CoveragePoint::NothingInOrder) > 0);
        world.write_done(0, 0, 4 * KIB);
        assert_eq!(world.refusal(0, Command::Sync { full: false }).code, RefusalCode::LastInOrder);
        if own {
            assert_eq!(world.refusal(0, Command::Sync { full: true }).code, RefusalCode::LastInOrder);
            continue;
        }
        // One that rejoins brings the order back.
        done(&mut world, Command::Rejoin { volume: KEPT });
        replicates(&mut world);
        others_are_there(&mut world);
        is_attached(&mut world, 1);
        rejoins(&mut world);
    }
}

// proves: P1, P6
/// Its writers were told that both nodes hold what only one of them does.
#[test]
fn a_demotion_does_not_hand_over_to_a_peer_that_lacks_a_disk() {
    let window = Policy::Hold(Duration::from_secs(30));
    let mut world = ScenarioWorld::in_peace(SimOptions {
        degrade: Degrade::Queue,
        queue_bytes: 8 * MIB,
        wait_limit_ms: 60_000,
        ..options(Mode::Sync, window)
    });
    writes(&mut world, true);
    world.drain();
    world.cut([false; 2]);
    world.pass(MILLISECOND);
    let held = [world.write(1, 256 * KIB, 4 * KIB), world.write(0, 256 * KIB, 4 * KIB)];
    world.pass(SECOND);
    is_detached(&mut world, 1);
    let demotion = world.command(0, GROUP, Command::Demote);
    world.pass(SECOND);
    world.restore_path();
    world.until("it is demoted", |world| world.cluster.ledger.result(demotion).is_some());
    let result = world.cluster.ledger.result(demotion).expect("it was waited for").clone();
    assert!(matches!(result, CommandResult::Warning(_)), "{result:?}");
    assert!(!world.recorded(0).identity.handed_over);
    assert!(held.iter().all(|write| world.reply(*write) != Some(true)), "nobody has it twice");
    assert!(matches!(world.promote(0, true), CommandResult::Warning(_)));
    world.pass(5 * SECOND);
    done(&mut world, Command::Sync { full: true });
    replicates(&mut world);
    others_are_there(&mut world);
    is_attached(&mut world, 1);
    rejoins(&mut world);
}

// proves: P5
/// What the dead disk held said that the copy was too small for a volume that has grown on the primary.
#[test]
fn a_volume_may_grow_while_it_is_detached_on_the_peer() {
    let mut world = peace(Mode::Async);
    is_detached(&mut world, 1);
    replicates(&mut world);
    world.cluster[0].storage.grows_by(256 * KIB);
    world.crash(0, false, SECOND);
    world.until("it is back", |world| world.cluster[0].up() && world.serves(GROUP));
    let grown = |world: &ScenarioWorld| world.figures(0).volumes[1].size_bytes == MIB + 256 * KIB;
    world.until("it has grown", grown);
    // The other volume's disk is too small now, which parts the group whatever is detached: it gets a larger one.
    world.cluster[1].storage.grows_by(256 * KIB);
    world.crash(1, false, SECOND);
    world.until("it is up", |world| world.cluster[1].up());
    replicates(&mut world);
    others_are_there(&mut world);
    is_attached(&mut world, 1);
    rejoins(&mut world);
}

// ---- drawn -----------------------------------------------------------------------------------------------------------

/// A disk of the secondary is detached and attached at any time, beside all that befalls links and nodes, with an operator who promotes what he
/// must not.
struct DrawnLife {
    world: ScenarioWorld,
    is_dead: bool,
    refused: u64,
}

impl DrawnLife {
    fn new(seed: u64) -> DrawnLife {
        let mode = [Mode::Sync, Mode::Async, Mode::Nearsync][(seed % 3) as usize];
        let degrade = if seed.is_multiple_of(2) { Degrade::Queue } else { Degrade::Logging };
        let roomy = SimOptions { queue_bytes: 2 * MIB, wait_limit_ms: 2_000, ..options(mode, Policy::Degrade) };
        let world = ScenarioWorld::in_peace(SimOptions { degrade, seed: 2 * seed + 2, ..roomy });
        DrawnLife { world, is_dead: false, refused: 0 }
    }

    fn runs(&self, node: usize) -> bool {
        self.world.glance(node, GROUP).is_some_and(|glance| glance.running)
    }

    fn step(&mut self) {
        let (runs, is_dead) = ([self.runs(0), self.runs(1)], self.is_dead);
        let world = &mut self.world;
        let (power, down_ns) = (world.rng.percent(50), MILLISECOND * world.rng.between(1, 1500));
        match world.rng.between(0, 12) {
            0..=4 if world.serves(GROUP) => {
                for _ in 0..world.rng.between(1, 12) {
                    let (volume, at) = (world.rng.between(0, 1) as u16, world.rng.between(0, 60) * 16 * KIB);
                    world.write(volume, at, 16 * KIB);
                }
            }
            5 => world.crash(0, power, down_ns),
            6 => world.crash(1, power, down_ns),
            7 => world.flap([0, 1]),
            8 => {
                world.cut([false; 2]);
                // The primary hears of neither.
                let is_replaced = !is_dead && runs[1] && world.rng.percent(50);
                if is_replaced {
                    detaches(world, 1, GROUP, LOST);
                }
                world.pass(down_ns * 2);
                let is_up = world.glance(1, GROUP).is_some_and(|glance| glance.running);
                self.is_dead |= is_replaced && !(is_up && attaches(world, 1, GROUP, LOST));
                world.pass(down_ns * 2);
                world.restore_path();
            }
            9 if !is_dead && runs[1] => {
                self.is_dead = true;
                detaches(&mut self.world, 1, GROUP, LOST);
            }
            9 | 10 if is_dead && runs[1] => self.is_dead = !attaches(&mut self.world, 1, GROUP, LOST),
            11 if runs[0] => _ = world.command(0, GROUP, REJOIN),
            12 => self.promotes_in_vain(),
            _ => {}
        }
        let pause = MILLISECOND * self.world.rng.between(0, 400);
        self.world.pass(pause);
    }

    fn promotes_in_vain(&mut self) {
        // Nobody writes to the end of the volume, which holds what a disk holds that comes.
        let is_blank = self.world.images_of(1)[1].last() == Some(&COMES_WITH);
        if !self.runs(1) || !is_blank || self.world.figures(1).volumes[1].is_detached {
            return;
        }
        let answer = self.world.order(1, PROMOTE_BY_FORCE);
        assert!(matches!(answer, CommandResult::Refused(_)), "{answer:?}");
        self.refused += 1;
    }

    /// The disk is there, whoever is asked gets his answer, and in the end both nodes hold the same.
    fn heals(&mut self) {
        let until = self.world.now() + 500 * SECOND;
        let mut looks = 0;
        loop {
            assert!(self.world.now() < until, "{:?} {}", state(&self.world), self.world.figures(0).reason);
            self.world.pass(500 * MILLISECOND);
            looks += 1;
            if !self.runs(0) || !self.runs(1) {
                continue;
            }
            if self.is_dead {
                self.is_dead = !attaches(&mut self.world, 1, GROUP, LOST);
                continue;
            }
            if looks % 60 == 0 && !self.world.in_step() {
                _ = self.world.command(0, GROUP, Command::Sync { full: true });
            } else if lacks(&self.world, 0) {
                _ = self.world.command(0, GROUP, REJOIN);
            } else if self.world.in_step() && self.world.checkers.writes.pending() == 0 {
                break;
            }
        }
        self.world.drain();
        assert_eq!(self.world.images_of(0), self.world.images_of(1));
        self.world.pass(10 * SECOND);
        for node in 0..2 {
            let record = self.world.recorded(node);
            assert!(record.aside.is_empty() && record.detached.is_empty() && record.unfilled.is_empty());
        }
    }
}

// proves: P1, P2, P3
#[test]
fn a_disk_that_dies_and_comes_at_any_time_costs_nothing_of_what_was_promised() {
    let mut refused = 0;
    // `A..B`: more of them, or one.
    let range = std::env::var("FARSHORE_DETACH_SEEDS").unwrap_or_else(|_| "0..40".to_owned());
    let (from, to) = range.split_once("..").expect("a range");
    for seed in from.parse::<u64>().expect("a number")..to.parse::<u64>().expect("a number") {
        println!("life {seed}");
        let mut life = DrawnLife::new(seed);
        for _ in 0..40 {
            life.step();
        }
        life.heals();
        refused += life.refused;
    }
    assert!(refused > 0 || range != "0..40", "no promotion was tried");
}
