//! A group leaves its node and comes again while the node lives on, as when its operator applies a changed configuration.

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::status::LinkStatus;
use engine::{Command, CommandResult, GroupId, RefusalCode};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, at_rest, node_failed, options, unflushed};
use sim::world::resets::reloads;

/// Clients write, and both copies become equal.
fn goes_on(world: &mut ScenarioWorld) {
    world.until("its export is open", |world| world.serves(GROUP));
    world.write_done(0, 64 * KIB, 16 * KIB);
    world.write_done(1, 512 * KIB, 4 * KIB);
    world.drain();
}

fn is_back(world: &mut ScenarioWorld, node: usize) {
    world.until("it is gone", |world| world.glance(node, GROUP).is_none());
    world.until("it is back", |world| world.glance(node, GROUP).is_some_and(|glance| glance.running));
}

// proves: P3
#[test]
fn either_half_leaves_and_comes_again_without_a_resync() {
    for (mode, policy) in [
        (Mode::Async, Policy::Degrade),
        (Mode::Sync, Policy::Hold(Duration::from_secs(5))),
        (Mode::Nearsync, Policy::Strict),
    ] {
        for node in 0..2 {
            let mut world = ScenarioWorld::in_peace(options(mode, policy));
            world.write_done(0, 0, 16 * KIB);
            world.drain();
            let sent = world.figures(0).resynced_bytes;
            let (run, generation) = (world.recorded(node).identity.incarnation, world.recorded(0).identity.generation);
            reloads(&mut world, node, GROUP);
            is_back(&mut world, node);
            world.until("they are in step", ScenarioWorld::in_step);
            goes_on(&mut world);
            assert!(node == 1 || world.recorded(node).identity.incarnation > run, "its run is another one");
            assert_eq!(world.recorded(0).identity.generation, generation);
            let before = if node == 0 { 0 } else { sent };
            assert_eq!(world.figures(0).resynced_bytes, before, "what both had is known");
            assert_eq!(world.coverage(node, CoveragePoint::GroupRemoved), 1);
        }
    }
}

/// A clean stop waits for what is queued, as that of a daemon does.
#[test]
fn what_is_queued_reaches_the_peer_before_the_group_leaves() {
    let mut world = at_rest();
    let ids: Vec<_> = (0..8).map(|at| world.write(0, at * 64 * KIB, 64 * KIB)).collect();
    world.until("they are answered", |world| ids.iter().all(|id| world.reply(*id).is_some()));
    reloads(&mut world, 0, GROUP);
    is_back(&mut world, 0);
    world.drain();
    assert_eq!(world.figures(0).resynced_bytes, 0);
}

#[test]
fn both_halves_at_once() {
    let mut world = at_rest();
    world.write(0, 0, 4 * KIB);
    reloads(&mut world, 0, GROUP);
    reloads(&mut world, 1, GROUP);
    is_back(&mut world, 0);
    goes_on(&mut world);
}

/// The daemon dies in the middle: with the group leaving, gone, and starting.
#[test]
fn a_node_that_dies_meanwhile_takes_up_all_its_groups() {
    for after in [MILLISECOND / 10, MILLISECOND, 5 * MILLISECOND, 50 * MILLISECOND, 200 * MILLISECOND] {
        for (node, power) in [(0, false), (0, true), (1, false), (1, true)] {
            let mut world = at_rest();
            world.write_done(0, 0, 4 * KIB);
            reloads(&mut world, node, GROUP);
            world.pass(after);
            world.crash(node, power, 100 * MILLISECOND);
            goes_on(&mut world);
        }
    }
}

#[test]
fn a_command_for_a_group_that_is_gone_is_answered() {
    let mut world = at_rest();
    reloads(&mut world, 0, GROUP);
    world.until("it is gone", |world| world.glance(0, GROUP).is_none());
    let refusal = world.refusal(0, Command::Sync { full: false });
    assert_eq!((refusal.code, refusal.text.as_str()), (RefusalCode::GroupStopping, "the group has left this node"));
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    goes_on(&mut world);
}

/// The node stops cleanly while a group is on its way out, or has gone.
#[test]
fn a_clean_stop_comes_to_its_end_beside_a_group_that_leaves() {
    for after in [0, MILLISECOND, 10 * MILLISECOND] {
        let mut world = at_rest();
        reloads(&mut world, 0, GROUP);
        world.pass(after);
        world.stop(0);
        world.boot(0);
        goes_on(&mut world);
    }
}

/// In the middle of a full sync, on both sides: the sync goes on after it, or begins anew.
#[test]
fn a_sync_survives_that_a_half_is_reloaded() {
    for node in 0..2 {
        let mut world = at_rest();
        assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
        world.until("it syncs", |world| world.glance(0, GROUP).is_some_and(|glance| glance.state == State::Syncing));
        reloads(&mut world, node, GROUP);
        is_back(&mut world, node);
        goes_on(&mut world);
    }
}

/// One group of several: the others are served all the time, and meet again.
#[test]
fn other_groups_go_on() {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { pairs: vec![[0, 1]; 3], ..options(Mode::Async, Policy::Degrade) });
    let other = GroupId(GROUP.0 + 1);
    let primary = world.cluster.primary(other);
    reloads(&mut world, 0, GROUP);
    for at in 0..20 {
        assert!(world.cluster[primary].takes_requests(other), "its export is open");
        let id = world.write_to(other, 0, at * 4 * KIB, 4 * KIB);
        assert!(world.answer(id).0);
        world.pass(10 * MILLISECOND);
    }
    world.pass(2 * SECOND);
    goes_on(&mut world);
}

// proves: P6
/// An old primary failed, and its peer was promoted. Its operator corrects the path of a device and applies that: the group that comes again
/// knew nothing of the peer, and served beside it.
#[test]
fn a_primary_that_comes_again_is_not_opened_beside_one_that_serves() {
    for is_cut in [false, true] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
        world.pass(10 * SECOND);
        world.cluster[0].storage.trouble.fail_next_record = true;
        let id = world.write(0, 32 * KIB, 4 * KIB);
        assert!(!world.answer(id).0 && node_failed(&world, 0));
        assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
        world.pass(SECOND);
        if is_cut {
            world.cut([false; 2]);
            world.pass(20 * SECOND);
        }
        reloads(&mut world, 0, GROUP);
        is_back(&mut world, 0);
        for _ in 0..if is_cut { 8 } else { 40 } {
            world.pass(SECOND / 2);
            assert!(!(world.cluster[0].serves(GROUP) && world.cluster[1].serves(GROUP)), "{is_cut}");
        }
        assert!(is_cut || world.figures(0).reason.contains("stays closed"), "{}", world.figures(0).reason);
    }
}

// proves: P1
/// A flush failed, and no record tells: what the group knew of it went with the group.
#[test]
fn what_a_failed_flush_lost_is_fetched_by_a_group_that_comes_again() {
    let mut world = unflushed();
    let confirmed = world.images_of(1);
    let near = &mut world.cluster[0].storage.trouble;
    (near.fail_next_flush, near.state_full_until) = (true, ALWAYS);
    let flush = world.flush(0);
    assert!(!world.answer(flush).0 && node_failed(&world, 0));
    reloads(&mut world, 0, GROUP);
    world.until("it is gone", |world| world.glance(0, GROUP).is_none());
    world.cluster[0].storage.trouble.state_full_until = 0;
    world.until("its export is open", |world| world.cluster[0].serves(GROUP));
    assert_eq!(world.coverage(0, CoveragePoint::TailPulled), 1);
    assert_eq!(world.images_of(0), confirmed, "all that the peer had is here again");
    goes_on(&mut world);
}

/// Writers of a group that starts anew beside a peer that is well are not answered alone: the export opens when both have met.
#[test]
fn the_export_of_a_group_that_comes_again_waits_for_its_peer() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Strict));
    world.write_done(0, 0, 16 * KIB);
    world.drain();
    reloads(&mut world, 0, GROUP);
    is_back(&mut world, 0);
    world.until("its export is open", |world| world.serves(GROUP));
    let status = world.cluster[0].status_of(GROUP).expect("it is here");
    assert!(status.meeting.is_some(), "the two have met: {}", status.peer.link_reason);
    world.until("they are in step", ScenarioWorld::in_step);
}

// proves: P1
/// Each group that left ended the session, in which the next one still had to drain: a write that waited for the peer failed.
#[test]
fn groups_that_leave_at_once_drain_in_one_session() {
    let mut world = ScenarioWorld::in_peace(SimOptions {
        pairs: vec![[0, 1]; 3],
        delay_ns: 50 * MILLISECOND,
        ..options(Mode::Sync, Policy::Hold(Duration::from_secs(5)))
    });
    let here: Vec<_> = (0..3).map(|n| GroupId(GROUP.0 + n)).filter(|id| world.cluster.primary(*id) == 0).collect();
    let [first, last] = [here[0], here[here.len() - 1]];
    assert_ne!(first, last);
    here.iter().for_each(|id| _ = world.command(0, *id, Command::Sync { full: true }));
    world.until("all replicate", |world| {
        here.iter().all(|id| world.glance(0, *id).is_some_and(|glance| glance.state == State::Replicating))
    });
    let id = world.write_to(last, 0, 0, 4 * KIB);
    here.iter().for_each(|id| reloads(&mut world, 0, *id));
    world.until("the first is gone", |world| world.glance(0, first).is_none());
    let status = world.cluster[0].status_of(last).expect("its write is on its way");
    assert_eq!(status.peer.link, LinkStatus::Connected);
    assert!(world.answer(id).0, "the write has what it waits for");
    world.until("all replicate again", |world| {
        here.iter().all(|id| world.glance(0, *id).is_some_and(|glance| glance.state == State::Replicating))
    });
}

// proves: P6
/// The operator applies one change right after the other. The group that came had not met its peer, which was promoted meanwhile, and the
/// next one opened at once: it did not know that it was its own leaving that had ended the session.
#[test]
fn a_primary_that_comes_again_twice_waits_for_its_peer() {
    for step in [0, 5, 20, 35] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
        world.pass(10 * SECOND);
        reloads(&mut world, 0, GROUP);
        world.until("it is gone", |world| world.glance(0, GROUP).is_none());
        world.command(1, GROUP, Command::Promote { force: true, entropy: 3 });
        world.until("it has come", |world| world.glance(0, GROUP).is_some());
        world.pass(step * MILLISECOND);
        reloads(&mut world, 0, GROUP);
        is_back(&mut world, 0);
        for _ in 0..100 {
            world.pass(SECOND / 10);
            assert!(!(world.cluster[0].serves(GROUP) && world.cluster[1].serves(GROUP)), "{step}");
        }
        assert!(world.figures(0).reason.contains("stays closed"), "{}", world.figures(0).reason);
    }
}

// proves: P6
/// The group came again, its start failed, and it was reset before the link was up. The reset did not know that the link was about to come.
#[test]
fn a_primary_that_comes_again_and_is_reset_waits_for_its_peer() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.pass(10 * SECOND);
    reloads(&mut world, 0, GROUP);
    world.until("it is gone", |world| world.glance(0, GROUP).is_none());
    world.command(1, GROUP, Command::Promote { force: true, entropy: 3 });
    world.cluster[0].storage.trouble.fail_next_record = true;
    world.until("its start has failed", |world| node_failed(world, 0));
    assert_ne!(world.figures(0).peer.link, LinkStatus::Connected, "the link is not up yet");
    world.command(0, GROUP, Command::Reset { entropy: 4 });
    world.until("it has started", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    for _ in 0..100 {
        world.pass(SECOND / 10);
        assert!(!(world.cluster[0].serves(GROUP) && world.cluster[1].serves(GROUP)));
    }
}

// proves: P6
/// The peer was promoted while the cable was out. That comes back for as long as the two need to connect, and what the peer says of itself
/// is lost with it: the export opened beside it three seconds later, while the link still stood.
#[test]
fn a_primary_that_comes_again_is_not_opened_over_a_link_that_has_fallen_silent() {
    let mut unmet = 0;
    for step in 0..8 {
        let slow_path = SimOptions { delay_ns: 25 * MILLISECOND, ..options(Mode::Async, Policy::Degrade) };
        let mut world = ScenarioWorld::in_peace(slow_path);
        world.pass(10 * SECOND);
        world.cut([false; 2]);
        world.pass(20 * SECOND);
        world.promote(1, true);
        world.pass(SECOND + step * 60 * MILLISECOND);
        // The start takes its time.
        world.cluster[0].storage.trouble.superblock_ns = 2 * SECOND;
        reloads(&mut world, 0, GROUP);
        while world.glance(0, GROUP).is_some() {
            world.pass(MILLISECOND / 20);
        }
        world.pass(400 * MILLISECOND);
        world.restore_path();
        let is_connected = |world: &ScenarioWorld| world.figures(0).peer.link == LinkStatus::Connected;
        while !is_connected(&world) {
            world.pass(MILLISECOND / 4);
        }
        world.cut([true, false]);
        while is_connected(&world) {
            assert!(!world.cluster[0].serves(GROUP), "the peer serves, and the link stands");
            world.pass(50 * MILLISECOND);
        }
        unmet += u64::from(world.figures(0).peer.role.is_none());
    }
    assert!(unmet > 0, "what the peer said of itself came through each time");
}
