//! Each order can be typed again. What is reached already is said, and nothing changes; what is under way goes on, and is not begun anew.

use engine::coverage::CoveragePoint;
use engine::identity::{Identity, Role};
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::status::GroupStatus;
use engine::{BOTH_PRIMARY, Command, CommandResult, Position, RefusalCode, Retry};
use sim::checkers::repeated::is_reached;
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options, state};

fn in_peace() -> ScenarioWorld {
    ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade))
}

fn promote(force: bool) -> Command {
    Command::Promote { force, entropy: 11 }
}

fn is_done(result: Option<&CommandResult>) -> bool {
    matches!(result, Some(CommandResult::Done(_)))
}

/// Who both nodes are on record, but for the positions that move on by themselves.
fn on_record(world: &ScenarioWorld) -> [Identity; 2] {
    [0, 1].map(|node| Identity { position: Position::default(), ..world.recorded(node).identity })
}

/// An order for what is so already: what it says.
fn changes_nothing(world: &mut ScenarioWorld, node: usize, command: Command) -> String {
    let before = on_record(world);
    let answer = world.order(node, command);
    let CommandResult::Unchanged(text) = answer else { panic!("{answer:?}") };
    world.pass(SECOND);
    assert_eq!(on_record(world), before);
    text
}

/// An order that is under way already: it is to be typed again later.
fn is_under_way(world: &mut ScenarioWorld, node: usize, command: Command) {
    let refusal = world.refusal(node, command);
    assert_eq!((refusal.code, refusal.code.retry()), (RefusalCode::RoleChanging, Retry::Later), "{refusal}");
}

#[test]
fn a_promotion_is_repeated_while_it_runs_and_when_it_is_done() {
    let mut world = in_peace();
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    world.pass(SECOND);
    world.cluster[1].storage.trouble.slow_until = world.now() + SECOND;
    let first = world.command(1, GROUP, promote(false));
    assert_eq!(world.cluster.ledger.result(first), None);
    for force in [false, true] {
        is_under_way(&mut world, 1, promote(force));
    }
    is_under_way(&mut world, 1, Command::Demote);
    world.until("it is promoted", |world| world.cluster.ledger.result(first).is_some());
    assert!(is_done(world.cluster.ledger.result(first)), "{:?}", world.cluster.ledger.result(first));
    world.drain();
    for force in [false, true] {
        assert_eq!(changes_nothing(&mut world, 1, promote(force)), "already primary; nothing to do");
    }
    world.write_done(0, 0, 4 * KIB);
    world.drain();
}

#[test]
fn a_demotion_is_repeated_while_it_runs_and_when_it_is_done() {
    let mut world = in_peace();
    world.cluster[0].storage.trouble.slow_until = world.now() + SECOND;
    let first = world.command(0, GROUP, Command::Demote);
    assert_eq!(world.cluster.ledger.result(first), None);
    is_under_way(&mut world, 0, Command::Demote);
    world.until("it is demoted", |world| world.cluster.ledger.result(first).is_some());
    assert!(is_done(world.cluster.ledger.result(first)), "{:?}", world.cluster.ledger.result(first));
    assert_eq!(changes_nothing(&mut world, 0, Command::Demote), "already secondary; nothing to do");
    // It is still the one that handed over.
    assert!(matches!(world.promote(1, false), CommandResult::Done(_)));
    world.drain();
}

#[test]
fn a_secondary_is_demoted_and_a_primary_promoted_by_force_without_any_effect() {
    let mut world = in_peace();
    for connected in [true, false] {
        if !connected {
            world.cut([false; 2]);
            world.pass(20 * SECOND);
        }
        assert_eq!(changes_nothing(&mut world, 1, Command::Demote), "already secondary; nothing to do");
        assert_eq!(changes_nothing(&mut world, 0, promote(true)), "already primary; nothing to do");
    }
    world.restore_path();
    world.until("in step", |world| world.in_step());
    world.write_done(0, 0, 4 * KIB);
    world.drain();
    assert_eq!(on_record(&world).map(|identity| identity.role), [Role::Primary, Role::Secondary]);
}

/// Who orders a promotion wants to use the volumes: what keeps the export closed is part of the answer.
#[test]
fn a_primary_that_serves_nobody_says_so_when_it_is_promoted() {
    let mut world = in_peace();
    for n in 0..24 {
        world.write_done(n % 2, u64::from(n) * 32 * KIB, 16 * KIB);
    }
    world.pass(200 * MILLISECOND);
    world.cut([false; 2]);
    world.crash(0, true, SECOND);
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    assert!(!world.cluster[0].serves(GROUP), "its export waits for the peer");
    let said = changes_nothing(&mut world, 0, promote(true));
    assert!(said.starts_with("already primary; nothing to do; its export is closed: "), "{said}");
    world.restore_path();
    world.drain();
}

#[test]
fn a_sync_of_a_group_in_step_sends_nothing() {
    let mut world = in_peace();
    let (sent, syncs) =
        (world.data_sent_bytes().to_vec(), [CoveragePoint::UpdateSyncBegan, CoveragePoint::SyncNothingDirty]);
    let begun = syncs.map(|point| world.coverage(0, point));
    let said = changes_nothing(&mut world, 0, Command::Sync { full: false });
    assert_eq!(said, "the group is already in step; nothing to do");
    assert_eq!((world.data_sent_bytes(), state(&world)), (&sent[..], Some(State::Replicating)));
    assert_eq!(syncs.map(|point| world.coverage(0, point)), begun);
}

/// A write failed here, and its region is read again and sent a second later: until then the copy lacks what may stand in it.
#[test]
fn a_sync_beside_a_repair_is_not_told_that_nothing_differs() {
    let mut world = in_peace();
    world.cluster[0].storage.trouble.write_errors_until = ALWAYS;
    for n in 0.. {
        let id = world.write(0, n % 16 * 16 * KIB, 4 * KIB);
        if !world.answer(id).0 {
            break;
        }
    }
    world.cluster[0].storage.trouble.write_errors_until = 0;
    world.pass(100 * MILLISECOND);
    let now = world.figures(0);
    assert_eq!((now.state, now.queue.bytes, now.reads_regions), (State::Replicating, 0, true));
    let sync = || Command::Sync { full: false };
    let CommandResult::Done(text) = world.order(0, sync()) else { panic!("it is not in step") };
    assert!(text.contains("which is read again and sent"), "{text}");
    world.drain();
    assert!(!world.figures(0).reads_regions);
    assert_eq!(changes_nothing(&mut world, 0, sync()), "the group is already in step; nothing to do");
}

/// A forced promotion whose answer was lost is typed again: that two nodes hold writes of their own is not to be overheard.
#[test]
fn a_promotion_beside_another_primary_warns_as_often_as_it_is_typed() {
    let mut world = in_peace();
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
    world.restore_path();
    world.until("they have met", |world| world.figures(1).peer.role == Some(Role::Primary));
    for force in [true, false] {
        let CommandResult::Unchanged(text) = world.order(1, promote(force)) else { panic!("it is primary") };
        assert!(text.starts_with("already primary; nothing to do") && text.contains(BOTH_PRIMARY), "{text}");
    }
}

/// Who ordered a sync while the peer was away waits for it as long as nothing else has to be ordered.
#[test]
fn a_sync_that_waits_for_the_peer_begins_by_itself() {
    let mut world = in_peace();
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    world.write_done(0, 0, 4 * KIB);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    assert!(!world.figures(0).syncs_by_itself, "it is held in logging");
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Warning(_)));
    let now = world.figures(0);
    assert_eq!((now.state, now.sync_ordered, now.syncs_by_itself), (State::Logging, false, true));
    world.set(GROUP, |settings| settings.autosync = false);
    assert!(!world.figures(0).syncs_by_itself, "then nothing begins it");
    world.set(GROUP, |settings| settings.autosync = true);
    world.restore_path();
    world.drain();
    assert!(!world.figures(0).syncs_by_itself, "it is no longer in logging");
}

/// It began anew each time, from its first region on.
#[test]
fn a_full_sync_that_is_ordered_again_goes_on() {
    let slow = SimOptions { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(slow);
    for volume in 0..2 {
        for part in 0..16 {
            world.write_done(volume, part * 64 * KIB, 64 * KIB);
        }
    }
    world.drain();
    let full = Command::SendAll;
    let begun = world.coverage(0, CoveragePoint::FullSyncBegan);
    let first = world.command(0, GROUP, full.clone());
    // While it is being recorded that all of it is to be sent, and while that travels.
    for wait in [0, 100 * MILLISECOND, SECOND] {
        world.pass(wait);
        let answer = world.order(0, full.clone());
        assert_eq!(answer, CommandResult::Done("a full sync is under way already".to_owned()));
        assert!(!world.in_step());
    }
    assert!(is_done(world.cluster.ledger.result(first)));
    world.drain();
    assert_eq!(world.coverage(0, CoveragePoint::FullSyncBegan), begun + 1);
    // One that has ended is ordered anew.
    assert!(matches!(world.order(0, full), CommandResult::Done(_)));
    world.drain();
    assert_eq!(world.coverage(0, CoveragePoint::FullSyncBegan), begun + 2);
}

#[test]
fn a_group_that_is_held_in_logging_stays_there() {
    let mut world = in_peace();
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    assert_eq!(changes_nothing(&mut world, 0, Command::Logging), "already logging; nothing to do");
    world.crash(0, false, SECOND);
    world.pass(5 * SECOND);
    assert_eq!(changes_nothing(&mut world, 0, Command::Logging), "already logging; nothing to do");
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.drain();
}

#[test]
fn a_mark_that_is_gone_is_given_up_again() {
    let mut world = in_peace();
    let drop = || Command::DropRollbackPoint { name: "before-sync-1".into(), discard: false };
    assert_eq!(changes_nothing(&mut world, 1, drop()), "no rollback point is kept; nothing to do");
    assert_eq!(world.refusal(0, drop()).code, RefusalCode::NoSuchMark);
}

#[test]
fn refusals_say_whether_the_same_may_be_typed_again() {
    let mut world = in_peace();
    let is = |world: &mut ScenarioWorld, node, command, code, retry| {
        let refusal = world.refusal(node, command);
        assert_eq!((refusal.code, refusal.code.retry()), (code, retry), "{refusal}");
    };
    let sync = |full| Command::Sync { full };
    is(&mut world, 1, sync(false), RefusalCode::NotPrimary, Retry::Never);
    is(&mut world, 1, Command::Logging, RefusalCode::NotPrimary, Retry::Never);
    is(&mut world, 1, promote(false), RefusalCode::PeerIsPrimary, Retry::Never);
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    is(&mut world, 1, promote(false), RefusalCode::PeerAway, Retry::Later);
    is(&mut world, 0, sync(true), RefusalCode::PeerAway, Retry::Later);
    world.restore_path();
    world.until("in step", |world| world.in_step());
    world.set(GROUP, |settings| settings.mode = Mode::Logging);
    is(&mut world, 0, sync(false), RefusalCode::ModeLogging, Retry::Never);
    world.set(GROUP, |settings| settings.mode = Mode::Async);
    world.drain();
}

/// What the checker holds an answer against.
#[test]
fn a_goal_is_reached_when_all_of_it_is() {
    let world = in_peace();
    let (in_step, copy) = (world.figures(0), world.figures(1));
    let sync = |full| Command::Sync { full };
    assert!(is_reached(&sync(false), &in_step));
    assert!(!is_reached(&sync(true), &in_step), "each is a new one");
    let [mut dirty, mut queued] = [in_step.clone(), in_step.clone()];
    dirty.volumes[1].dirty_bytes = 1;
    queued.queue.bytes = 1;
    let catching_up = GroupStatus { state: State::CatchingUp, ..in_step.clone() };
    for not_yet in [dirty, queued, catching_up] {
        assert!(!is_reached(&sync(false), &not_yet), "{not_yet:?}");
    }
    let drop = Command::DropRollbackPoint { name: "before-sync-1".into(), discard: false };
    assert!(is_reached(&drop, &copy) && !is_reached(&drop, &in_step));
    assert!(!is_reached(&Command::Logging, &in_step));
    assert!(is_reached(&Command::Logging, &GroupStatus { state: State::Logging, ..in_step }));
}
