//! A switchover in one word: requests are held, both nodes become equal, the old primary is secondary on record, and the peer goes on.
//! Whatever stands in its way before the point of no return leads back; behind it no word makes a second primary.
// proves: rule 15

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::identity::Role;
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::status::HandoverStage;
use engine::{Command, CommandId, CommandResult, NodeId, RefusalCode, Settings, VerifyOrder};
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, node_failed, options, state};

fn switchover(to: usize) -> Command {
    within(to, 5000)
}

fn within(to: usize, limit_ms: u64) -> Command {
    let limit = Duration::from_millis(limit_ms);
    Command::Switchover { to: NodeId(to as u16), limit, closes_export: false, only_asks: false }
}

fn result(world: &ScenarioWorld, id: CommandId) -> Option<CommandResult> {
    world.cluster.ledger.result(id).cloned()
}

fn refused_with(world: &ScenarioWorld, id: CommandId) -> Option<RefusalCode> {
    match result(world, id)? {
        CommandResult::Refused(refusal) => Some(refusal.code),
        other => panic!("not refused: {other:?}"),
    }
}

fn role(world: &ScenarioWorld, node: usize) -> Option<Role> {
    world.glance(node, GROUP).filter(|glance| glance.running).map(|glance| glance.identity.role)
}

fn stage(world: &ScenarioWorld, node: usize) -> Option<HandoverStage> {
    world.figures(node).handover.map(|handover| handover.stage)
}

// proves: rule 14
#[test]
fn a_switchover_forth_and_back_resends_nothing() {
    for mode in [Mode::Sync, Mode::Nearsync, Mode::Async] {
        let mut world = ScenarioWorld::in_peace(options(mode, Policy::Degrade));
        let synced = world.data_sent_bytes().to_vec();
        let mut written = [0; 2];
        for round in 0..4u64 {
            let primary = (round % 2) as usize;
            for n in 0..3 {
                world.write_done((n % 2) as u16, (round * 3 + n) * 16 * KIB, 16 * KIB);
                written[primary] += 16 * KIB;
            }
            world.until("in step", |world| world.figures(primary).state == State::Replicating);
            match world.order(primary, switchover(1 - primary)) {
                CommandResult::Done(text) => assert!(text.contains("the peer is primary"), "{text}"),
                other => panic!("{other:?}"),
            }
            assert_eq!(
                (role(&world, primary), role(&world, 1 - primary)),
                (Some(Role::Secondary), Some(Role::Primary))
            );
            world.drain();
        }
        assert_eq!([0, 1].map(|node: usize| world.data_sent_bytes()[node] - synced[node]), written, "{mode:?}");
        assert!((0..2).all(|node| world.coverage(node, CoveragePoint::FullSyncBegan) <= 1));
    }
}

/// Without `autosync` no sync begins by itself: the old primary follows all the same, as that was ordered with the switchover.
#[test]
fn the_old_primary_follows_without_autosync() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.set(GROUP, |settings| settings.autosync = false);
    assert!(matches!(world.order(0, switchover(1)), CommandResult::Done(_)));
    world.drain();
    assert_eq!(world.figures(1).state, State::Replicating);
}

/// Whoever types it again, at whichever node, hears that there is nothing to do.
#[test]
fn a_switchover_that_is_done_is_not_done_again() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for (node, to) in [(0, 0), (1, 0)] {
        assert!(matches!(world.order(node, switchover(to)), CommandResult::Unchanged(_)), "{node} {to}");
    }
    assert_eq!(world.refusal(1, switchover(1)).code, RefusalCode::NotPrimary);
    assert_eq!(world.refusal(0, switchover(7)).code, RefusalCode::NotInGroup);
    assert!(matches!(world.order(0, switchover(1)), CommandResult::Done(_)));
    for node in 0..2 {
        assert!(matches!(world.order(node, switchover(1)), CommandResult::Unchanged(_)), "{node}");
    }
    world.drain();
}

/// Each reason is told before a single request is held.
#[test]
fn what_stands_in_its_way_is_told_before_anything_is_held() {
    let slow = SimOptions { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(slow);
    world.set_mode(GROUP, Mode::Logging);
    assert_eq!(world.refusal(0, switchover(1)).code, RefusalCode::ModeLogging);
    for n in 0..8 {
        world.write_done(0, n * 64 * KIB, 64 * KIB);
    }
    world.set_mode(GROUP, Mode::Async);
    world.until("it syncs", |world| state(world) == Some(State::Syncing));
    assert_eq!(world.refusal(0, switchover(1)).code, RefusalCode::NotInStep);
    world.drain();
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    let refusal = world.refusal(0, switchover(1));
    assert!(refusal.code == RefusalCode::NotInStep && refusal.text.contains("not in step"), "{refusal}");
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.drain();
    world.cut([false; 2]);
    world.until("the link is down", |world| state(world) == Some(State::Queuing));
    assert_eq!(world.refusal(0, switchover(1)).code, RefusalCode::PeerAway);
    world.restore_path();
    world.drain();
    world.cluster[1].storage.trouble.fail_next_flush = true;
    world.write_done(0, 0, 4 * KIB);
    world.until("the peer failed", |world| node_failed(world, 1) && world.figures(0).state == State::Logging);
    assert_eq!(world.refusal(0, switchover(1)).code, RefusalCode::PeerFailed);
    assert!(world.serves(GROUP));
    assert_eq!(world.coverage(0, CoveragePoint::SwitchoverBegan), 0);
}

// proves: P8
/// The peer cannot apply the last writes in time: who was held goes on, in order, and nothing was changed.
#[test]
fn what_was_held_goes_on_when_the_time_is_over() {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { wait_limit_ms: 60_000, ..options(Mode::Async, Policy::Degrade) });
    world.pass(10 * SECOND);
    world.write_done(0, 0, 16 * KIB);
    world.cluster[1].storage.trouble.stalled_until = world.now() + 4 * SECOND;
    world.write_done(0, 0, 16 * KIB);
    let id = world.command(0, GROUP, within(1, 1000));
    assert_eq!(stage(&world, 0), Some(HandoverStage::Draining));
    let held: Vec<_> = (0..4).map(|n| world.write((n % 2) as u16, n * 16 * KIB, 16 * KIB)).collect();
    let flush = world.flush(0);
    world.pass(900 * MILLISECOND);
    assert!(held.iter().all(|id| world.reply(*id).is_none()) && world.reply(flush).is_none());
    assert_eq!(world.figures(0).handover.map(|handover| handover.held_requests), Some(5));
    world.pass(300 * MILLISECOND);
    assert_eq!(refused_with(&world, id), Some(RefusalCode::HandoverTimeout));
    for id in held.into_iter().chain([flush]) {
        assert!(world.answer(id).0);
    }
    assert_eq!(world.coverage(0, CoveragePoint::HandoverRolledBack), 1);
    world.drain();
    assert!(matches!(world.order(0, switchover(1)), CommandResult::Done(_)));
    world.drain();
}

// proves: P1
/// Behind the point of no return nobody is acknowledged: who was held hears of a failure, once, and neither copy has the write.
#[test]
fn what_was_held_fails_behind_the_point_of_no_return() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    world.write_done(0, 0, 16 * KIB);
    world.write(0, 64 * KIB, 16 * KIB);
    let id = world.command(0, GROUP, switchover(1));
    let held: Vec<_> = (0..4).map(|n| world.write(1, n * 16 * KIB, 16 * KIB)).collect();
    world.until("answered", |world| result(world, id).is_some());
    assert!(matches!(result(&world, id), Some(CommandResult::Done(_))));
    for id in held {
        assert_eq!(world.reply(id), Some(false));
    }
    world.drain();
}

/// A write that is not flushed anywhere, and a switchover.
fn typed_after_a_write() -> (ScenarioWorld, CommandId) {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    world.write_done(0, 0, 16 * KIB);
    let id = world.command(0, GROUP, switchover(1));
    (world, id)
}

/// Until the old primary hears that it is done, if nothing goes wrong.
fn takes_ns() -> u64 {
    let (mut world, id) = typed_after_a_write();
    let began = world.now();
    world.until("done", |world| result(world, id).is_some());
    world.now() - began
}

/// The last instants of a switchover.
const MOMENTS: u64 = 90;

/// The cable is cut at one of them: what becomes of the grant?
fn cut_at(takes_ns: u64, moment: u64, ways: [bool; 2]) -> (ScenarioWorld, CommandId) {
    let (mut world, id) = typed_after_a_write();
    world.pass(takes_ns - (MOMENTS - moment) * MILLISECOND / 4);
    world.cut(ways);
    world.until("answered", |world| result(world, id).is_some());
    (world, id)
}

// proves: rule 14, P6
/// At no instant do two nodes serve; and whatever was lost, what the operator is told to type makes one primary, without force.
#[test]
fn a_grant_that_is_lost_leaves_one_node_that_may_be_promoted_without_force() {
    let (mut lost, mut back, mut done) = (0, 0, 0);
    let takes_ns = takes_ns();
    for moment in 0..=MOMENTS {
        let ways = [[false; 2], [false, true], [true, false]][moment as usize % 3];
        let (mut world, id) = cut_at(takes_ns, moment, ways);
        let told = result(&world, id);
        match &told {
            Some(CommandResult::Done(_)) => done += 1,
            Some(CommandResult::Refused(refusal)) if refusal.code == RefusalCode::GrantUnanswered => {
                assert!(
                    refusal.text.contains("'farshore promote GROUP' there")
                        && !refusal.text.contains("promote GROUP --force")
                );
                let shown = world.figures(0).reason;
                assert!(shown.contains("handed over") && shown.contains("could make a second primary"), "{shown}");
                // Not here, unless by force.
                assert!(matches!(world.promote(0, false), CommandResult::Refused(_)));
                lost += usize::from(role(&world, 1) == Some(Role::Secondary));
            }
            Some(CommandResult::Refused(_)) => {
                assert!(world.serves(GROUP), "{told:?}");
                back += 1;
            }
            other => panic!("{other:?}"),
        }
        world.restore_path();
        world.until("they meet", |world| (0..2).all(|node| world.figures(node).peer.role.is_some()));
        if (0..2).all(|node| role(&world, node) == Some(Role::Secondary)) {
            assert!(
                world.figures(1).reason.contains("the peer handed over to this node"),
                "{}",
                world.figures(1).reason
            );
            assert!(matches!(world.promote(1, false), CommandResult::Done(_)));
        }
        world.drain();
        assert_eq!(
            world.coverage(0, CoveragePoint::FullSyncBegan) + world.coverage(1, CoveragePoint::FullSyncBegan),
            1
        );
    }
    assert!(lost > 0 && back > 0 && done > 0, "{lost} {back} {done}");
}

/// The same word at the node that granted, and an unforced promotion at the other one, bring to its end what a lost grant left half-way.
#[test]
fn a_switchover_whose_grant_was_lost_is_typed_again() {
    let (mut met, takes_ns) = ([0; 2], takes_ns());
    for moment in 0..MOMENTS {
        let (mut world, id) = cut_at(takes_ns, moment, [false; 2]);
        if refused_with_if(&world, id) != Some(RefusalCode::GrantUnanswered) || role(&world, 1) != Some(Role::Secondary)
        {
            continue;
        }
        world.restore_path();
        world.until("they meet", |world| (0..2).all(|node| world.figures(node).peer.role.is_some()));
        let node = usize::from(met[0] > met[1]);
        let ended = if node == 0 { world.order(0, switchover(1)) } else { world.promote(1, false) };
        assert!(matches!(ended, CommandResult::Done(_)), "typed at {node}: {ended:?}");
        world.drain();
        assert_eq!(world.figures(1).role, Role::Primary);
        met[node] += 1;
    }
    assert!(met.iter().all(|met| *met > 0), "{met:?}");
}

fn refused_with_if(world: &ScenarioWorld, id: CommandId) -> Option<RefusalCode> {
    match result(world, id)? {
        CommandResult::Refused(refusal) => Some(refusal.code),
        _ => None,
    }
}

/// The disk of the primary takes seconds to store that nothing is dirty. What happens meanwhile, between the freeze and the point of no return?
fn storing(policy: Policy) -> (ScenarioWorld, CommandId) {
    let mut world = ready_to_store(policy, 8 * SECOND);
    let id = world.command(0, GROUP, within(1, 10_000));
    assert_eq!(stage(&world, 0), Some(HandoverStage::Storing), "{:?}", result(&world, id));
    (world, id)
}

/// Both nodes are equal, the old bits are on disk, and the primary's disk stands still from now on.
fn ready_to_store(policy: Policy, stalls_ns: u64) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(SimOptions { wait_limit_ms: 60_000, ..options(Mode::Sync, policy) });
    for n in 0..8 {
        world.write_done((n % 2) as u16, n * 32 * KIB, 16 * KIB);
    }
    world.until("all is confirmed and flushed", |world| world.figures(0).peer.dirty_bytes == 0);
    world.cluster[0].storage.trouble.stalled_until = world.now() + stalls_ns;
    world
}

// proves: P8
/// The disk stores nothing for longer than requests may be held: they go on, and what it stores later makes nobody secondary.
#[test]
fn a_disk_that_does_not_store_holds_nobody_longer_than_was_said() {
    for demoted in [false, true] {
        let mut world = ready_to_store(Policy::Degrade, 8 * SECOND);
        let id = world.command(0, GROUP, within(1, 2000));
        assert_eq!(stage(&world, 0), Some(HandoverStage::Storing), "{:?}", result(&world, id));
        let held = world.write(0, 0, 16 * KIB);
        world.pass(2 * SECOND + 10 * MILLISECOND);
        assert_eq!(refused_with(&world, id), Some(RefusalCode::HandoverTimeout));
        assert_eq!((stage(&world, 0), role(&world, 0)), (None, Some(Role::Primary)));
        assert_eq!(world.coverage(0, CoveragePoint::HandoverNotStored), 1);
        if demoted {
            // What the switchover had asked for ends before what this one asks for.
            let demote = world.command(0, GROUP, Command::Demote);
            world.until("answered", |world| result(world, demote).is_some());
            assert_eq!(role(&world, 0), Some(Role::Secondary));
            continue;
        }
        assert!(world.answer(held).0);
        world.drain();
        assert_eq!(role(&world, 0), Some(Role::Primary));
        assert!(matches!(world.order(0, switchover(1)), CommandResult::Done(_)));
        world.drain();
    }
}

/// The link is lost in that moment, and back; a setting was typed. Nothing of it is forgotten on the way back.
#[test]
fn what_happens_beside_the_last_record_is_made_up_for_on_the_way_back() {
    for returns in [true, false] {
        let (mut world, id) = storing(Policy::Strict);
        let held = world.write(0, 0, 16 * KIB);
        world.cut([false; 2]);
        world.pass(6 * SECOND);
        let settings = Settings { autosync: false, policy: Policy::Degrade, ..world.cluster.ledger.settings(GROUP) };
        world.set(GROUP, |now| *now = settings);
        if returns {
            world.restore_path();
            world.pass(SECOND);
        }
        world.until("answered", |world| result(world, id).is_some());
        assert!(matches!(refused_with(&world, id), Some(RefusalCode::PeerAway | RefusalCode::NotInStep)));
        assert_eq!(world.coverage(0, CoveragePoint::HandoverBackFromStoring), 1);
        assert!(world.answer(held).0, "under 'degrade' nobody waits for a peer that is away");
        world.restore_path();
        world.until("they meet", |world| world.figures(1).peer.settings.is_some_and(|seen| seen == settings));
        assert_eq!(world.figures(1).peer.settings.map(|seen| seen.policy), Some(Policy::Degrade));
        if state(&world) == Some(State::Logging) {
            // It fell to logging, and nothing syncs by itself any more.
            assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
        }
        world.drain();
    }
}

/// A region whose local write failed is read again and sent before the peer is equal: it is neither forgotten nor handed over without.
#[test]
fn a_repair_that_falls_due_is_waited_for() {
    for limit_ms in [200, 10_000] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
        world.write_done(0, 0, 16 * KIB);
        world.cluster[0].storage.trouble.write_errors_until = world.now() + 50 * MILLISECOND;
        for n in 0..60 {
            world.write(0, n % 12 * 32 * KIB, 16 * KIB);
        }
        let id = world.command(0, GROUP, within(1, limit_ms));
        world.until("answered", |world| result(world, id).is_some());
        assert!(world.coverage(0, CoveragePoint::LocalWriteFailed) > 0);
        match result(&world, id) {
            Some(CommandResult::Done(_)) => assert_eq!(limit_ms, 10_000),
            Some(CommandResult::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::HandoverTimeout),
            other => panic!("{other:?}"),
        }
        world.drain();
    }
}

/// Settings are taken while requests are held; a mode that sends nothing ends the switchover.
#[test]
fn the_mode_becomes_logging_while_requests_are_held() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cluster[1].storage.trouble.stalled_until = world.now() + 2 * SECOND;
    world.write_done(0, 0, 16 * KIB);
    let id = world.command(0, GROUP, switchover(1));
    let held = world.write(0, 0, 16 * KIB);
    for command in [Command::Demote, Command::Sync { full: true }, Command::Logging, switchover(1)] {
        assert_eq!(world.refusal(0, command).code, RefusalCode::RoleChanging);
    }
    world.set_mode(GROUP, Mode::Logging);
    assert_eq!(refused_with(&world, id), Some(RefusalCode::ModeLogging));
    assert!(world.answer(held).0);
    world.set_mode(GROUP, Mode::Async);
    world.drain();
}

/// The node is stopped while requests are held: they are answered, and the command is.
#[test]
fn a_stop_ends_a_switchover() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cluster[1].storage.trouble.stalled_until = world.now() + SECOND;
    world.write_done(0, 0, 16 * KIB);
    let id = world.command(0, GROUP, switchover(1));
    let held = world.write(0, 0, 16 * KIB);
    world.stop(0);
    assert_eq!(refused_with(&world, id), Some(RefusalCode::GroupStopping));
    assert!(world.reply(held).is_some());
}

/// The peer is promoted by force while requests are held: they go on here, as both are primary now and the operator is told.
#[test]
fn a_peer_that_is_promoted_by_force_ends_a_switchover() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cluster[1].storage.trouble.slow_until = world.now() + SECOND;
    for n in 0..8 {
        world.write_done(0, n * 16 * KIB, 16 * KIB);
    }
    let id = world.command(0, GROUP, switchover(1));
    let held = world.write(1, 0, 16 * KIB);
    assert!(!matches!(world.promote(1, true), CommandResult::Refused(_)));
    world.until("answered", |world| result(world, id).is_some());
    assert_eq!(refused_with(&world, id), Some(RefusalCode::HistoriesApart));
    assert!(world.answer(held).0);
}

/// The old primary is promoted again by force before the peer was heard: that is an operator's word, and the fork is told.
#[test]
fn a_grant_is_taken_back_by_force_only() {
    let (mut taken_back, mut waited) = (0, 0);
    for moment in 0..80 {
        let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
        let id = world.command(0, GROUP, switchover(1));
        world.pass(moment * MILLISECOND / 2);
        if stage(&world, 0) != Some(HandoverStage::Granted) {
            continue;
        }
        waited += 1;
        world.cluster[1].storage.trouble.stalled_until = world.now() + 5 * SECOND;
        let entropy = world.rng.draw();
        let forced = world.command(0, GROUP, Command::Promote { force: true, entropy });
        assert_eq!(refused_with(&world, id), Some(RefusalCode::GrantUnanswered));
        world.until("answered", |world| result(world, forced).is_some());
        taken_back += usize::from(!matches!(result(&world, forced), Some(CommandResult::Refused(_))));
        world.pass(20 * SECOND);
    }
    assert!(waited > 0 && taken_back == waited, "{taken_back} of {waited}");
}

/// A record of the old primary fails at each of its steps: the command is answered, nobody is acknowledged twice, and the other node
/// serves only if this one does not.
#[test]
fn a_record_that_fails_ends_a_switchover_in_words() {
    for nth in 1..8 {
        let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
        world.write_done(0, 0, 16 * KIB);
        world.cluster[0].storage.trouble.fail_record_in = nth;
        let id = world.command(0, GROUP, switchover(1));
        let held = world.write(0, 0, 16 * KIB);
        world.until("answered", |world| result(world, id).is_some());
        world.pass(SECOND);
        assert!(world.reply(held).is_some());
        assert!(node_failed(&world, 0) || matches!(result(&world, id), Some(CommandResult::Done(_))), "record {nth}");
    }
}

/// The peer dies with the grant in its hands: it comes back as what it has on record, and the old primary said what to do.
#[test]
fn a_peer_that_dies_with_the_grant_is_promoted_when_it_is_back() {
    let mut met = 0;
    for moment in 0..80 {
        let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
        let id = world.command(0, GROUP, switchover(1));
        world.pass(moment * MILLISECOND / 2);
        world.crash(1, true, SECOND);
        world.until("answered", |world| result(world, id).is_some());
        world.until("it is back", |world| (0..2).all(|node| world.glance(node, GROUP).is_some_and(|it| it.running)));
        world.until("they meet", |world| (0..2).all(|node| world.figures(node).peer.role.is_some()));
        if (0..2).all(|node| role(&world, node) == Some(Role::Secondary)) {
            met += 1;
            assert!(matches!(world.promote(1, false), CommandResult::Done(_)));
        }
        world.until("somebody serves", |world| world.serves(GROUP));
        world.write_done(0, 0, 4 * KIB);
        world.drain();
    }
    assert!(met > 0);
}

/// The old primary dies behind the point of no return, for good: what it did is on record, and the peer serves, or may be promoted.
#[test]
fn an_old_primary_that_dies_in_a_switchover_leaves_one_that_serves() {
    let mut served = 0;
    for moment in 0..80 {
        let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
        world.command(0, GROUP, switchover(1));
        world.pass(moment * MILLISECOND / 2);
        world.crash(0, true, FOR_EVER);
        world.pass(20 * SECOND);
        if role(&world, 1) == Some(Role::Primary) {
            served += 1;
            assert!(world.cluster[1].serves(GROUP));
        } else {
            // What it acknowledged alone nobody can know.
            assert_eq!(world.promote(1, false), world.promote(1, false));
            assert!(matches!(world.promote(1, false), CommandResult::Refused(_)));
        }
    }
    assert!(served > 0 && served < 80, "{served}");
}

// proves: P1, P6, P7
/// A primary that served without its peer lost what that had confirmed, and its operator is asked whose content counts. Neither a switchover
/// nor the sync before a failback is an answer.
#[test]
fn a_failback_answers_no_question() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.loses_power_alone();
    world.until("it serves alone", |world| world.cluster[0].serves(GROUP));
    for n in 0..24 {
        world.write_done((n % 2) as u16, n * 32 * KIB, 16 * KIB);
    }
    world.restore_path();
    world.until("the operator is asked", |world| world.coverage(0, CoveragePoint::TailAskedAbout) > 0);
    let kept = world.images_of(1);
    for command in [switchover(1), Command::BringUpToDate] {
        let refusal = world.refusal(0, command);
        assert_eq!(refusal.code, RefusalCode::ChoiceNeeded, "{refusal}");
        assert!(refusal.text.contains("keeps this node's content"), "{refusal}");
        world.pass(5 * SECOND);
        assert_eq!(world.images_of(1), kept, "only the operator says that this is given up");
    }
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.drain();
    assert!(matches!(world.order(0, Command::BringUpToDate), CommandResult::Unchanged(_)));
    assert!(matches!(world.order(0, switchover(1)), CommandResult::Done(_)));
}

/// What differs is sent, where nobody is asked anything.
#[test]
fn a_failback_sends_what_the_peer_lacks() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.write_done(0, 0, 64 * KIB);
    assert_eq!(world.refusal(0, switchover(1)).code, RefusalCode::NotInStep);
    assert!(matches!(world.order(0, Command::BringUpToDate), CommandResult::Done(_)));
    world.drain();
    assert!(matches!(world.order(0, switchover(1)), CommandResult::Done(_)));
    world.drain();
}

/// Nobody was attached when it was typed: nobody comes in to be held and cut off, and on the way back the export is open again.
#[test]
fn an_export_that_nobody_uses_is_closed_at_once() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cluster[1].storage.trouble.stalled_until = world.now() + 3 * SECOND;
    world.write_done(0, 0, 16 * KIB);
    let command = |limit_ms| Command::Switchover {
        to: NodeId(1),
        limit: Duration::from_millis(limit_ms),
        closes_export: true,
        only_asks: false,
    };
    let id = world.command(0, GROUP, command(1000));
    assert_eq!(stage(&world, 0), Some(HandoverStage::Draining));
    assert!(!world.cluster[0].serves(GROUP));
    world.until("answered", |world| result(world, id).is_some());
    assert_eq!(refused_with(&world, id), Some(RefusalCode::HandoverTimeout));
    assert!(world.cluster[0].serves(GROUP));
    world.drain();
    world.write_done(0, 0, 16 * KIB);
    world.until("in step", |world| world.figures(0).state == State::Replicating);
    assert!(matches!(world.order(0, command(5000)), CommandResult::Done(_)));
    world.drain();
}

/// Whoever only asks hears what stands in the way, and changes nothing.
#[test]
fn whoever_only_asks_holds_nobody() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    let asks = || Command::Switchover { to: NodeId(1), limit: Duration::ZERO, closes_export: true, only_asks: true };
    assert!(matches!(world.order(0, asks()), CommandResult::Done(_)));
    assert!(world.serves(GROUP) && stage(&world, 0).is_none());
    world.set_mode(GROUP, Mode::Logging);
    assert_eq!(world.refusal(0, asks()).code, RefusalCode::ModeLogging);
    assert_eq!(world.coverage(0, CoveragePoint::SwitchoverBegan), 0);
}

/// The new primary serves as it is set itself: whoever typed the switchover hears that the promise is another one from now on.
#[test]
fn a_switchover_to_a_node_of_another_mode_is_told() {
    for mode in [Mode::Async, Mode::Logging] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
        let settings = Settings { mode, ..world.cluster.ledger.settings(GROUP) };
        assert!(matches!(world.order(1, Command::Set(settings)), CommandResult::Done(_)));
        match world.order(0, switchover(1)) {
            CommandResult::Warning(text) => {
                assert!(text.contains(mode.word()) && text.contains("mode=sync' there"), "{text}");
                assert_eq!(text.contains("sends nothing"), mode == Mode::Logging, "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A daemon did not act on a grant. The next one is heard as a new one, and an old one does not stand for ever.
#[test]
fn each_grant_is_heard_once() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.daemons_are_deaf = true;
    for round in 1..=3 {
        let id = world.command(0, GROUP, switchover(1));
        world.until("answered", |world| result(world, id).is_some());
        assert_eq!(refused_with(&world, id), Some(RefusalCode::GrantUnanswered));
        world.pass(SECOND);
        assert_eq!(world.coverage(1, CoveragePoint::GrantTaken), round);
        assert!(!world.figures(1).is_granted, "nobody waits for it any more");
        let told = world.figures(0).reason;
        assert!(told.contains("which has everything") && told.contains("there makes it primary"), "{told}");
    }
    world.daemons_are_deaf = false;
    assert!(matches!(world.order(0, switchover(1)), CommandResult::Done(_)));
    world.drain();
}

// proves: rule 15
/// A verify reads for longer than anybody is held, and each of its comparisons has a number: none begins while the peer is given the last writes.
#[test]
fn a_verify_stands_in_no_switchovers_way() {
    let far_away = SimOptions { delay_ns: 100 * MILLISECOND, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(far_away);
    // Two seconds for all there is, and several comparisons in each round trip.
    let verify = VerifyOrder {
        rate_bytes_per_s: Some(1024 * KIB),
        sample_percent: 100,
        repair: false,
        entropy: 7,
        by_timer: false,
    };
    for primary in [0, 1] {
        assert!(matches!(world.order(primary, Command::Verify(verify)), CommandResult::Done(_)));
        world.pass(300 * MILLISECOND);
        let result = world.order(primary, within(1 - primary, 1200));
        assert!(matches!(result, CommandResult::Done(_)), "{result:?}");
        world.drain();
    }
}
