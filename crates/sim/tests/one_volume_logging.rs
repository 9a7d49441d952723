//! One volume of a group is set aside for a bulk load: its writers are answered alone, the others go on in their order, everybody says that
//! the order is without it, and it rejoins in one step.
// proves: rule 8, rule 11

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{CopyDoubts, Degrade, Mode, Policy, State};
use engine::{Command, CommandResult, GroupId, NodeId, RefusalCode, VerifyOrder, VolumeId};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options, state};

const LOADED: VolumeId = VolumeId(1);
const ASIDE: Command = Command::SetAside { volume: LOADED };
const REJOIN: Command = Command::Rejoin { volume: LOADED };

fn peace(mode: Mode) -> ScenarioWorld {
    at_rate(mode, 12_500_000)
}

fn at_rate(mode: Mode, bytes_per_s: u64) -> ScenarioWorld {
    let roomy =
        SimOptions { queue_bytes: 8 * MIB, wait_limit_ms: 30_000, bytes_per_s, ..options(mode, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(SimOptions { degrade: Degrade::Queue, ..roomy });
    world.write_done(0, 0, 8 * KIB);
    world.write_done(1, 0, 8 * KIB);
    world.until("the promise holds", |world| state(world) == Some(State::Replicating));
    world.until("all is applied", ScenarioWorld::in_step);
    world
}

/// In step, with volume 1 set aside.
fn aside(mode: Mode) -> ScenarioWorld {
    let mut world = peace(mode);
    done(&mut world, ASIDE);
    world
}

fn done(world: &mut ScenarioWorld, command: Command) {
    let answer = world.order(0, command);
    assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
}

fn lacks(world: &ScenarioWorld, node: usize) -> bool {
    let volumes = world.figures(node).volumes;
    assert!(!volumes[0].is_aside);
    volumes[1].is_aside
}

/// So much is loaded into volume 1, with a write of the other between every two.
fn load(world: &mut ScenarioWorld, bytes: u64) {
    for n in 0..bytes / (16 * KIB) {
        world.write_done(1, n * 16 * KIB % MIB, 16 * KIB);
        world.write_done(0, n * 20 * KIB % (960 * KIB), 4 * KIB);
    }
}

/// The peer has all that was given so far, and holds no other bytes for it.
fn others_are_there(world: &mut ScenarioWorld) {
    let given = |world: &ScenarioWorld| world.figures(0).identity.position;
    world.until("the peer has the others", |world| world.figures(1).identity.position == given(world));
    world.pass(SECOND);
    assert_eq!(world.images_of(0)[0], world.images_of(1)[0]);
}

fn rejoins(world: &mut ScenarioWorld) {
    done(world, REJOIN);
    world.drain();
    assert!(!lacks(world, 0) && !lacks(world, 1));
    assert!((0..2).all(|node| world.recorded(node).aside.is_empty()));
    let syncs = world.figures(0).resynced_bytes;
    load(world, 64 * KIB);
    world.drain();
    assert_eq!(world.figures(0).resynced_bytes, syncs, "it goes in the order of the others");
}

// proves: P1, P2
#[test]
fn the_others_go_on_in_order_and_keep_their_promise_while_one_is_loaded() {
    for mode in [Mode::Sync, Mode::Nearsync, Mode::Async] {
        let mut world = aside(mode);
        let before = world.images_of(1).swap_remove(1);
        let syncs = world.figures(0).resynced_bytes;
        load(&mut world, 512 * KIB);
        assert_eq!(state(&world), Some(State::Replicating), "{mode:?}");
        others_are_there(&mut world);
        assert_eq!(world.images_of(1)[1], before, "nothing of the other is sent");
        assert!(lacks(&world, 0) && lacks(&world, 1));
        assert_eq!(world.figures(0).resynced_bytes, syncs);
        assert!(world.figures(0).volumes[1].dirty_bytes >= 512 * KIB);
        assert!(world.coverage(0, CoveragePoint::WroteAside) > 0);
        rejoins(&mut world);
    }
}

// proves: P1
#[test]
fn nobody_waits_for_the_peer_with_a_write_to_a_volume_that_is_set_aside() {
    let far = SimOptions { delay_ns: 50 * MILLISECOND, ..options(Mode::Sync, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(far);
    world.write_done(0, 0, 8 * KIB);
    world.until("the promise holds", |world| state(world) == Some(State::Replicating));
    done(&mut world, ASIDE);
    assert!(world.write_done(1, 0, 8 * KIB) < 50 * MILLISECOND);
    assert!(world.write_done(0, 0, 8 * KIB) >= 100 * MILLISECOND);
    rejoins(&mut world);
}

// proves: P2, P6
#[test]
fn a_promotion_says_which_volume_its_image_is_without() {
    let mut world = aside(Mode::Async);
    load(&mut world, 256 * KIB);
    others_are_there(&mut world);
    let to = NodeId(1);
    let switchover =
        Command::Switchover { to, limit: std::time::Duration::from_secs(5), closes_export: false, only_asks: false };
    assert_eq!(world.refusal(0, switchover).code, RefusalCode::VolumeAside);
    let CommandResult::Warning(text) = world.order(0, Command::Demote) else { panic!("it handed over") };
    assert!(text.contains("may differ"), "{text}");
    let entropy = 7;
    let refusal = world.refusal(1, Command::Promote { force: false, entropy });
    assert_eq!(refusal.code, RefusalCode::VolumeAside);
    assert!(
        refusal.text.contains("consistent without volume 2 of the group (in the order of names)"),
        "{}",
        refusal.text
    );
    let CommandResult::Warning(text) = world.promote(1, true) else { panic!("not a word") };
    assert!(text.contains("without volume 2 of the group (in the order of names)"), "{text}");
    assert!(world.coverage(1, CoveragePoint::PromotedWithoutVolume) > 0);
    assert!(!lacks(&world, 0) && !lacks(&world, 1), "what stands there counts now");
    let full = world.order(1, Command::Sync { full: true });
    assert!(matches!(full, CommandResult::Done(_)), "{full:?}");
    world.drain();
}

// proves: P2, P3
#[test]
fn it_stays_set_aside_through_the_loss_of_link_process_and_power() {
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
            let mut world = aside(mode);
            load(&mut world, 128 * KIB);
            trouble(&mut world);
            world.until("both are up", |world| world.cluster.iter().all(|node| node.up()) && world.serves(GROUP));
            load(&mut world, 64 * KIB);
            world.until("it replicates", |world| state(world) == Some(State::Replicating));
            others_are_there(&mut world);
            assert!(lacks(&world, 0) && lacks(&world, 1));
            assert!((0..2).all(|node| world.recorded(node).aside.contains(LOADED)));
            assert!(world.figures(0).volumes[1].dirty_bytes >= 128 * KIB, "nothing dirty is forgotten");
            rejoins(&mut world);
        }
    }
}

// proves: P2, P3
/// What it was told is in its journal, and nowhere else yet.
#[test]
fn a_copy_that_dies_right_after_it_heard_of_it_still_knows() {
    for power in [false, true] {
        let mut world = peace(Mode::Async);
        world.cluster[1].storage.trouble.slow_until = ALWAYS;
        done(&mut world, ASIDE);
        load(&mut world, 64 * KIB);
        let durable = |world: &ScenarioWorld| world.figures(0).queue.items == 0;
        world.until("it is in its journal", durable);
        world.cut([false; 2]);
        world.crash(1, power, SECOND);
        world.cluster[1].storage.trouble.slow_until = 0;
        world.until("it is back", |world| world.glance(1, GROUP).is_some_and(|glance| glance.running));
        assert!(lacks(&world, 1));
        assert_eq!(world.refusal(1, Command::Promote { force: false, entropy: 7 }).code, RefusalCode::PeerAway);
        assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
    }
}

// proves: rule 8, P2
#[test]
fn a_sync_of_the_group_leaves_it_out_and_says_so() {
    let mut world = peace(Mode::Async);
    done(&mut world, Command::Logging);
    load(&mut world, 256 * KIB);
    done(&mut world, ASIDE);
    let before = world.images_of(1).swap_remove(1);
    assert!(!lacks(&world, 1), "its image is whole so far");
    done(&mut world, Command::Sync { full: false });
    world.until("it replicates", |world| state(world) == Some(State::Replicating));
    others_are_there(&mut world);
    assert_eq!(world.images_of(1)[1], before);
    assert!(lacks(&world, 0) && lacks(&world, 1));
    rejoins(&mut world);
}

// proves: rule 8
/// What was frozen when it was set aside belongs to that moment; the next one is without it.
#[test]
fn a_snapshot_that_is_under_way_is_still_one_of_all() {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) });
    done(&mut world, Command::Logging);
    for n in 0..48 {
        world.write_done((n % 2) as u16, n / 2 * 32 * KIB, 32 * KIB);
    }
    done(&mut world, Command::Sync { full: false });
    let travels = |world: &ScenarioWorld| world.figures(0).sync.is_some_and(|sync| sync.done_bytes > 100 * KIB);
    world.until("a snapshot travels", travels);
    done(&mut world, ASIDE);
    assert!(world.coverage(0, CoveragePoint::SetAsideInSync) > 0);
    for n in 0..24 {
        world.write_done((n % 2) as u16, n / 2 * 32 * KIB, 32 * KIB);
    }
    world.until("it replicates", |world| state(world) == Some(State::Replicating));
    others_are_there(&mut world);
    assert!(lacks(&world, 0) && lacks(&world, 1));
    rejoins(&mut world);
}

// proves: P2, rule 8, rule 9
/// In the midst of it the image is still the one before, without the volume.
#[test]
fn it_rejoins_in_one_step() {
    let slow = SimOptions { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) };
    for promotes in [false, true] {
        let mut world = ScenarioWorld::in_peace(slow.clone());
        done(&mut world, ASIDE);
        load(&mut world, MIB / 2);
        others_are_there(&mut world);
        done(&mut world, REJOIN);
        let travels = |world: &ScenarioWorld| world.figures(0).sync.is_some_and(|sync| sync.done_bytes > 200 * KIB);
        world.until("its regions travel", travels);
        assert!(!lacks(&world, 0) && lacks(&world, 1));
        if !promotes {
            world.drain();
            assert!(!lacks(&world, 1));
            continue;
        }
        world.cut([false; 2]);
        let CommandResult::Warning(text) = world.promote(1, true) else { panic!("not a word") };
        assert!(text.contains("without volume 2"), "{text}");
    }
}

// proves: P3
#[test]
fn a_full_sync_takes_it_back_in() {
    let mut world = aside(Mode::Async);
    load(&mut world, 128 * KIB);
    done(&mut world, Command::Sync { full: true });
    world.drain();
    assert!(!lacks(&world, 0) && !lacks(&world, 1));
}

// proves: P3
/// What it does not compare it does not vouch for, and it waits for nothing.
#[test]
fn a_verify_leaves_it_out() {
    let mut world = aside(Mode::Async);
    load(&mut world, 128 * KIB);
    let order = VerifyOrder { rate_bytes_per_s: None, sample_percent: 100, repair: true, entropy: 7, by_timer: false };
    done(&mut world, Command::Verify(order));
    world.until("the verify is over", |world| world.figures(0).verify.is_none());
    let verified = world.figures(0).verified.expect("it is over");
    assert_eq!((verified.totals.compared_bytes, verified.totals.differing_bytes), (MIB, 0));
    assert_eq!(world.recorded(0).doubts, CopyDoubts::default());
    rejoins(&mut world);
}

#[test]
fn commands_that_make_no_sense_are_refused_in_words() {
    let mut world = peace(Mode::Async);
    let code = |world: &mut ScenarioWorld, node, command| world.refusal(node, command).code;
    assert_eq!(code(&mut world, 1, ASIDE), RefusalCode::NotPrimary);
    assert_eq!(code(&mut world, 1, REJOIN), RefusalCode::NotPrimary);
    assert_eq!(code(&mut world, 0, Command::SetAside { volume: VolumeId(2) }), RefusalCode::NotInGroup);
    assert!(matches!(world.order(0, REJOIN), CommandResult::Unchanged(_)));
    done(&mut world, ASIDE);
    assert!(matches!(world.order(0, ASIDE), CommandResult::Unchanged(_)));
    assert_eq!(code(&mut world, 0, Command::SetAside { volume: VolumeId(0) }), RefusalCode::LastInOrder);
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    assert_eq!(state(&world), Some(State::Queuing));
    assert_eq!(code(&mut world, 0, REJOIN), RefusalCode::PeerAway, "the queue keeps the order of the others");
    world.restore_path();
    world.until("it replicates", |world| state(world) == Some(State::Replicating));
    rejoins(&mut world);
}

// proves: P1, P5
/// Writers of a volume that is set aside wait for their range, and keep no room of the queue meanwhile: a writer of another volume found none,
/// and the others lost their order to a load that the queue never sees.
#[test]
fn who_waits_for_a_range_of_a_loaded_volume_takes_no_room_from_the_others() {
    let small = SimOptions { queue_items: 20, wait_limit_ms: 2_000, ..options(Mode::Sync, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(SimOptions { degrade: Degrade::Queue, ..small });
    world.write_done(0, 0, 8 * KIB);
    world.until("the promise holds", |world| state(world) == Some(State::Replicating));
    world.until("all is applied", ScenarioWorld::in_step);
    done(&mut world, ASIDE);
    world.cut([false; 2]);
    world.until("the queue keeps the order", |world| state(world) == Some(State::Queuing));
    for _ in 0..30 {
        world.write(LOADED.0, 0, 8 * KIB);
    }
    let other = world.write(0, 0, 4 * KIB);
    assert!(world.answer(other).0);
    assert_eq!(state(&world), Some(State::Queuing), "the queue is almost empty");
    world.restore_path();
    world.until("the promise holds again", |world| state(world) == Some(State::Replicating));
    others_are_there(&mut world);
    rejoins(&mut world);
}

// proves: P1, P4
/// What a flush covers of a volume that is set aside is not undone by what the peer has of it from before.
#[test]
fn what_was_flushed_after_it_was_set_aside_survives_the_power() {
    for mode in [Mode::Sync, Mode::Async] {
        let mut world = peace(mode);
        for n in 0..8 {
            world.write_done(1, n * 16 * KIB, 16 * KIB);
        }
        done(&mut world, ASIDE);
        for n in 0..8 {
            world.write_done(1, n * 16 * KIB, 8 * KIB);
        }
        let flush = world.flush(1);
        assert!(world.answer(flush).0);
        world.crash(0, true, SECOND);
        world.until("it serves again", |world| world.serves(GROUP));
        world.until("it replicates", |world| state(world) == Some(State::Replicating));
        rejoins(&mut world);
    }
}

// proves: rule 17
/// In line for its turn the group would be without its order, for as long as others sync.
#[test]
fn a_volume_rejoins_only_where_its_sync_may_begin() {
    let one_permit = SimOptions {
        pairs: vec![[0, 1]; 4],
        syncs_at_once: 1,
        bytes_per_s: 400_000,
        ..options(Mode::Async, Policy::Degrade)
    };
    let mut world = ScenarioWorld::new(one_permit);
    world.pass(SECOND);
    world.command(0, GROUP, Command::Sync { full: true });
    world.until("synced", |world| world.cluster.in_step(GROUP));
    done(&mut world, ASIDE);
    world.write_done(1, 0, 16 * KIB);
    let busy = GroupId(2);
    world.command(0, busy, Command::Sync { full: true });
    world.pass(100 * MILLISECOND);
    assert_eq!(world.refusal(0, REJOIN).code, RefusalCode::SyncsBusy);
    assert!(lacks(&world, 0) && state(&world) == Some(State::Replicating), "nothing was changed");
    world.until("the other one is done", |world| world.cluster.in_step(busy));
    done(&mut world, REJOIN);
    world.drain();
}

/// Nobody flushes it by itself, and the peer keeps the writes of all volumes up to what is flushed on each: its journal filled.
#[test]
fn a_volume_that_is_set_aside_is_flushed_as_the_others_are() {
    let mut world = aside(Mode::Async);
    world.write_done(1, 0, 64 * KIB);
    world.write_done(0, 0, 4 * KIB);
    world.pass(20 * SECOND);
    let held = world.images_of(0);
    world.crash(0, true, SECOND);
    assert_eq!(world.images_of(0)[1], held[1], "the power takes nothing");
}

// proves: P1, P5
/// For each such write a number without content stood in the queue: enough of them, and the others lost their order.
#[test]
fn what_is_loaded_while_the_link_is_down_costs_the_others_nothing() {
    let small = SimOptions { queue_items: 20, wait_limit_ms: 2_000, ..options(Mode::Sync, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(SimOptions { degrade: Degrade::Queue, ..small });
    world.write_done(0, 0, 8 * KIB);
    world.until("the promise holds", |world| state(world) == Some(State::Replicating));
    world.until("all is applied", ScenarioWorld::in_step);
    done(&mut world, ASIDE);
    let before = world.figures(0).resynced_bytes;
    world.cut([false; 2]);
    world.until("the queue keeps the order", |world| state(world) == Some(State::Queuing));
    world.write_done(0, 0, 4 * KIB);
    for n in 0..100 {
        world.write_done(1, n * 8 * KIB, 8 * KIB);
    }
    assert_eq!(state(&world), Some(State::Queuing));
    world.restore_path();
    world.until("the promise holds again", |world| state(world) == Some(State::Replicating));
    others_are_there(&mut world);
    assert_eq!(world.figures(0).resynced_bytes, before, "the order was kept");
    rejoins(&mut world);
}

// proves: P1
/// What a sync brings to the peer is on this node's disk before: also what was written beside the order, behind the last flush.
#[test]
fn what_was_written_beside_the_order_is_flushed_before_the_peer_gets_it() {
    for mode in [Mode::Sync, Mode::Nearsync, Mode::Async] {
        let mut world = at_rate(mode, 1_000_000);
        done(&mut world, ASIDE);
        // The link is measured by them, so that the little that is dirty goes by the stream.
        (0..16).for_each(|n| _ = world.write(0, n * 32 * KIB, 32 * KIB));
        world.until("all is applied", ScenarioWorld::in_step);
        world.write_done(1, 0, 4 * KIB);
        for volume in [0, 1] {
            let flush = world.flush(volume);
            world.answer(flush);
        }
        world.write_done(1, 0, 4 * KIB);
        done(&mut world, REJOIN);
        world.until("the volume has rejoined", |world| !lacks(world, 1) && state(world) == Some(State::Replicating));
        let there = world.images_of(1).swap_remove(1);
        world.crash(0, true, SECOND);
        world.until("it is back", |world| world.serves(GROUP));
        assert!(world.images_of(0)[1] == there, "{mode:?}: the peer was ahead of what the power left here");
        world.drain();
    }
}

// proves: P6
/// A volume that rejoins is not there before a sync has taken it in, though nothing was written to it.
#[test]
fn a_node_that_owes_a_rejoining_volume_does_not_hand_over() {
    let mut world = aside(Mode::Async);
    world.pass(10 * SECOND);
    done(&mut world, Command::Logging);
    done(&mut world, REJOIN);
    let CommandResult::Warning(text) = world.order(0, Command::Demote) else { panic!("it handed over") };
    assert!(text.contains("needs --force"), "{text}");
    assert_eq!(world.refusal(1, Command::Promote { force: false, entropy: 7 }).code, RefusalCode::VolumeAside);
}

// proves: P6
/// A word that finds its goal reached costs the next demotion nothing.
#[test]
fn what_is_no_rejoin_is_not_owed() {
    let mut world = peace(Mode::Async);
    world.pass(10 * SECOND);
    assert!(matches!(world.order(0, REJOIN), CommandResult::Unchanged(_)));
    done(&mut world, Command::Demote);
    assert!(matches!(world.promote(1, false), CommandResult::Done(_)));
}
