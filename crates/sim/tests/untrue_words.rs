//! What a node says of its group is true in the moment in which it is read, also where nothing has happened since that would make it
//! say something new.

use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::status::LinkStatus;
use engine::{Command, CommandResult};
use sim::actors::operator::Operator;
use sim::checkers::facts::KnownFact;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options, state};

const NEAR: usize = 0;
const FAR: usize = 1;

fn link(world: &ScenarioWorld, node: usize) -> LinkStatus {
    world.figures(node).peer.link
}

fn reason(world: &ScenarioWorld, node: usize) -> String {
    world.figures(node).reason
}

/// The peer is back, and its disks do not answer its start.
fn beside_a_peer_that_does_not_start(mode: Mode, policy: Policy, waits_in: State) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(SimOptions { wait_limit_ms: 600_000, ..options(mode, policy) });
    world.pass(2 * SECOND);
    world.crash(FAR, false, SECOND);
    world.cluster[FAR].storage.trouble.stalled_until = world.now() + 300 * SECOND;
    world.until("it is connected again", |world| world.cluster[FAR].up() && link(world, NEAR) == LinkStatus::Connected);
    world.pass(5 * SECOND);
    assert_eq!(state(&world), Some(waits_in));
    assert!(reason(&world, NEAR).contains("the peer is connected, but its half"), "{}", reason(&world, NEAR));
    world
}

/// The reason of a queue that waits went on saying that the peer is connected when the cable was pulled.
#[test]
fn a_peer_is_not_called_connected_once_the_link_is_lost_again() {
    for (mode, policy, waits_in) in
        [(Mode::Async, Policy::Degrade, State::Queuing), (Mode::Sync, Policy::Strict, State::Holding)]
    {
        let mut world = beside_a_peer_that_does_not_start(mode, policy, waits_in);
        world.cut([false; 2]);
        world.pass(20 * SECOND);
        assert_eq!((state(&world), link(&world, NEAR)), (Some(waits_in), LinkStatus::Disconnected));
        let why = reason(&world, NEAR);
        assert!(!why.contains("the peer is connected"), "{mode:?}: {why}");
    }
}

/// The mode is set back while the peer is away: the group does not stay in logging for the sake of a mode that it has not.
#[test]
fn the_mode_is_not_called_logging_once_it_is_another() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    world.pass(10 * SECOND);
    world.set_mode(GROUP, Mode::Logging);
    world.pass(SECOND);
    world.set_mode(GROUP, Mode::Async);
    world.pass(SECOND);
    assert_eq!(state(&world), Some(State::Logging));
    let why = reason(&world, NEAR);
    assert!(!why.contains("mode is logging"), "the mode is async, and the peer is away: {why}");
}

/// The operator took his word back while the peer is away.
#[test]
fn an_operator_who_ordered_a_sync_is_not_said_to_hold_the_group_in_logging() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    world.pass(10 * SECOND);
    assert!(matches!(world.order(NEAR, Command::Logging), CommandResult::Done(_)));
    assert!(matches!(world.order(NEAR, Command::Sync { full: false }), CommandResult::Warning(_)));
    world.pass(SECOND);
    let why = reason(&world, NEAR);
    assert!(!why.contains("the operator asked for logging"), "he asked for a sync since: {why}");
}

/// The peer received writes of which its disks, which stand still for a minute, have none yet. A primary that loses its power serves alone
/// after two seconds.
fn with_writes_that_the_peer_has_not_landed() -> ScenarioWorld {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { start_alone_ms: 2_000, ..options(Mode::Async, Policy::Degrade) });
    world.write_done(0, 0, 64 * KIB);
    world.drain();
    world.cluster[FAR].storage.trouble.stalled_until = world.now() + 60 * SECOND;
    world.write_done(0, 0, 64 * KIB);
    world.pass(200 * MILLISECOND);
    world
}

/// Seeds 430399, 435951, 441398: the operator ordered a sync, and the peer, whose disks stand still, has not answered what it holds.
#[test]
fn a_sync_that_waits_for_what_the_peer_holds_is_not_said_to_wait_for_an_order() {
    let mut world = with_writes_that_the_peer_has_not_landed();
    assert!(matches!(world.order(NEAR, Command::Logging), CommandResult::Done(_)));
    world.crash(NEAR, true, SECOND);
    world.until("they meet", |world| world.cluster[NEAR].up() && link(world, NEAR) == LinkStatus::Connected);
    world.pass(10 * SECOND);
    world.set_mode(GROUP, Mode::Logging);
    world.set_mode(GROUP, Mode::Async);
    assert!(reason(&world, NEAR).contains("the operator holds the group"), "{}", reason(&world, NEAR));
    let CommandResult::Done(reply) = world.order(NEAR, Command::Sync { full: false }) else { panic!("not taken") };
    assert!(reply.contains("as soon as it is known what the peer holds"), "{reply}");
    world.pass(SECOND);
    assert_eq!(state(&world), Some(State::Logging));
    let why = reason(&world, NEAR);
    assert!(why.contains("asking the peer what it confirmed"), "he ordered a sync since: {why}");
    // It served alone meanwhile: what the peer holds is not fetched without his word.
    world.until("the peer has answered", |world| reason(world, NEAR).contains("may be missing here"));
    assert!(matches!(world.order(NEAR, Command::Sync { full: false }), CommandResult::Done(_)));
    world.drain();
}

/// The operator chose this node's content, and the record of that hangs on its disk.
#[test]
fn nothing_is_said_to_be_fetched_once_the_operator_chose() {
    let mut world = with_writes_that_the_peer_has_not_landed();
    world.crash(NEAR, true, SECOND);
    world.until("they meet", |world| world.cluster[NEAR].up() && link(world, NEAR) == LinkStatus::Connected);
    world.until("the operator is asked", |world| reason(world, NEAR).contains("may be missing here"));
    assert!(!world.figures(NEAR).syncs_by_itself, "nothing begins before he has chosen");
    world.cluster[NEAR].storage.trouble.stalled_until = world.now() + 20 * SECOND;
    world.command(NEAR, GROUP, Command::Sync { full: false });
    world.pass(10 * SECOND);
    let why = reason(&world, NEAR);
    assert!(!why.contains("fetching"), "he chose this node's content: {why}");
    world.drain();
}

/// The peer has nothing that is missing here, and the record of that hangs on the disk.
#[test]
fn nothing_is_said_to_be_fetched_where_nothing_is_missing() {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { start_alone_ms: 60_000, ..options(Mode::Async, Policy::Degrade) });
    world.write_done(0, 0, 64 * KIB);
    world.pass(30 * SECOND);
    world.crash(NEAR, true, SECOND);
    let limit = world.now() + 60 * SECOND;
    while !world.cluster[NEAR].up() || !reason(&world, NEAR).contains("asking the peer what it confirmed") {
        world.pass(100_000);
        assert!(world.now() < limit);
    }
    world.cluster[NEAR].storage.trouble.stalled_until = world.now() + 20 * SECOND;
    world.pass(10 * SECOND);
    let why = reason(&world, NEAR);
    assert!(!why.contains("fetching"), "{} bytes: {why}", world.figures(NEAR).pulled_bytes);
    world.drain();
}

/// A primary that is being demoted, or stopped, waits for a disk that hangs. The other one was demoted meanwhile.
#[test]
fn two_nodes_are_not_both_called_primary_once_one_of_them_is_not() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    world.pass(10 * SECOND);
    assert!(matches!(world.promote(FAR, true), CommandResult::Warning(_)));
    world.restore_path();
    world.until("both know", |world| [NEAR, FAR].iter().all(|n| reason(world, *n).contains("both nodes are primary")));
    world.write(0, 0, 64 * KIB);
    world.cluster[FAR].storage.trouble.stalled_until = world.now() + 300 * SECOND;
    world.write(0, 128 * KIB, 64 * KIB);
    world.command(FAR, GROUP, Command::Demote);
    world.pass(SECOND);
    assert!(!matches!(world.order(NEAR, Command::Demote), CommandResult::Refused(_)));
    world.pass(60 * SECOND);
    let seen = world.figures(FAR);
    assert_eq!((seen.role, seen.peer.role), (engine::identity::Role::Primary, Some(engine::identity::Role::Secondary)));
    assert_eq!(seen.peer.link, LinkStatus::Connected);
    assert!(!seen.reason.contains("both nodes are primary"), "{}", seen.reason);
}

/// The power of the primary fails, and its peer is promoted before the link times out.
#[test]
fn a_peer_that_was_not_heard_for_long_is_not_called_primary_now() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.write_done(0, 0, 64 * KIB);
    world.drain();
    world.cut([false; 2]);
    world.crash(NEAR, true, FOR_EVER);
    world.pass(900 * MILLISECOND);
    assert!(!world.cluster[NEAR].up());
    assert_eq!(link(&world, FAR), LinkStatus::Connected, "it has not timed out");
    let CommandResult::Warning(reply) = world.promote(FAR, true) else { panic!("no warning") };
    assert!(!reply.contains("both nodes are primary now"), "the other one lost its power a second ago: {reply}");
}

/// Its start stands still, or it does not fit: it is connected for all that.
#[test]
fn a_peer_that_has_not_spoken_is_not_called_disconnected() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.crash(NEAR, false, SECOND);
    world.cluster[NEAR].storage.trouble.stalled_until = world.now() + 300 * SECOND;
    world.until("it is connected again", |world| world.cluster[NEAR].up() && link(world, FAR) == LinkStatus::Connected);
    world.pass(SECOND);
    let entropy = world.rng.draw();
    let why = world.refused(FAR, Command::Promote { force: false, entropy });
    assert!(!why.contains("the peer is not connected"), "{why}");
}

/// A megabyte waits to be sent.
#[test]
fn a_group_with_a_backlog_is_not_called_in_step() {
    let slow = SimOptions { bytes_per_s: 200_000, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(slow);
    world.cut([false; 2]);
    world.pass(10 * SECOND);
    for n in 0..12 {
        world.write_done(0, n * 64 * KIB, 64 * KIB);
    }
    assert_eq!(state(&world), Some(State::Queuing));
    world.restore_path();
    world.until("the queue goes on", |world| state(world).is_some_and(|state| state != State::Queuing));
    world.pass(10 * MILLISECOND);
    let waiting = world.figures(NEAR).queue.bytes;
    let answer = world.order(NEAR, Command::Sync { full: false });
    let text = match &answer {
        CommandResult::Done(text) | CommandResult::Warning(text) | CommandResult::Unchanged(text) => text,
        CommandResult::Refused(refusal) => &refusal.text,
    };
    assert!(waiting < 100 * KIB || !text.contains("in step"), "{waiting} bytes wait: {text}");
}

/// It was demoted long ago; it is its primary that failed.
#[test]
fn a_secondary_does_not_name_its_own_past_as_the_cause_of_what_its_primary_reports() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    assert!(matches!(world.order(NEAR, Command::Demote), CommandResult::Done(_)));
    assert!(matches!(world.promote(FAR, false), CommandResult::Done(_)));
    world.drain();
    world.cluster[FAR].storage.trouble.fail_next_flush = true;
    world.write(0, 0, 4 * KIB);
    world.pass(MILLISECOND);
    world.flush(0);
    world.pass(20 * SECOND);
    let seen = world.figures(NEAR);
    assert!(matches!(seen.state, State::Failed(_)), "as its primary reports: {:?}", seen.state);
    assert_ne!(seen.reason, "demoted", "that is not why");
}

/// The queue fills while the peer is connected and does not start.
#[test]
fn a_link_that_is_connected_is_not_called_down() {
    let mut world = beside_a_peer_that_does_not_start(Mode::Async, Policy::Degrade, State::Queuing);
    for n in 0..20 {
        world.write(0, n % 10 * 64 * KIB, 64 * KIB);
        world.pass(10 * MILLISECOND);
    }
    world.until("it gave the queue up", |world| state(world) == Some(State::Logging));
    world.pass(10 * SECOND);
    assert_eq!(link(&world, NEAR), LinkStatus::Connected);
    let why = reason(&world, NEAR);
    assert!(!why.contains("the link is down"), "{why}");
}

/// The window was opened because the peer failed, which is connected. When it is over that is still why nothing is sent.
#[test]
fn a_peer_that_failed_is_named_when_the_window_is_over() {
    let hold = Policy::Hold(std::time::Duration::from_secs(5));
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, hold));
    world.pass(2 * SECOND);
    world.cluster[FAR].storage.trouble.fail_next_record = true;
    world.write(0, 0, 4 * KIB);
    world.until("writers are held", |world| state(world) == Some(State::Holding));
    assert!(reason(&world, NEAR).contains("has failed"), "{}", reason(&world, NEAR));
    world.until("the window is over", |world| state(world) == Some(State::Logging));
    world.pass(30 * SECOND);
    assert_eq!(link(&world, NEAR), LinkStatus::Connected);
    let why = reason(&world, NEAR);
    assert!(why.contains("failed"), "{why}");
}

/// Sparse scenario 417150: nothing begins to a peer that has failed, and the setting that held the group was named after it was set back.
#[test]
fn a_peer_that_failed_is_named_once_no_setting_holds_the_group() {
    for by_mode in [true, false] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
        world.pass(2 * SECOND);
        world.cluster[FAR].storage.trouble.fail_next_record = true;
        world.write(0, 0, 4 * KIB);
        world.until("nothing is sent", |world| state(world) == Some(State::Logging));
        let hold = |world: &mut ScenarioWorld, held: bool| match by_mode {
            true => world.set_mode(GROUP, if held { Mode::Logging } else { Mode::Async }),
            false => world.set(GROUP, |settings| settings.autosync = !held),
        };
        hold(&mut world, true);
        world.pass(SECOND);
        hold(&mut world, false);
        world.pass(40 * SECOND);
        assert_eq!((state(&world), link(&world, NEAR)), (Some(State::Logging), LinkStatus::Connected));
        let why = reason(&world, NEAR);
        assert!(why.contains("has failed"), "{why}");
    }
}

/// The link went before the sync could begin; it begins by itself when the peer is back, and until then nothing says so.
#[test]
fn a_full_sync_that_was_ordered_is_shown_as_ordered_without_the_link() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.checkers.facts.add(KnownFact::Spoiled(GROUP, FAR));
    Operator::replaces_spoiled_records(&mut world, FAR);
    world.pass(10 * SECOND);
    let sync = world.command(NEAR, GROUP, Command::Sync { full: true });
    world.pass(MILLISECOND / 4);
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    assert!(matches!(world.cluster.ledger.result(sync), Some(CommandResult::Done(_))));
    assert_eq!(state(&world), Some(State::Logging));
    let shown = world.figures(NEAR).sync_ordered;
    world.restore_path();
    world.drain();
    assert!(shown, "a full sync began by itself that was not shown as ordered");
}

/// In the middle of a sync the image before it is all that the copy could present, and the operator has given that up.
#[test]
fn a_copy_that_holds_no_image_has_no_recovery_point() {
    let slow = SimOptions { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(slow);
    world.write_done(0, 0, 64 * KIB);
    world.drain();
    assert!(matches!(world.order(NEAR, Command::Logging), CommandResult::Done(_)));
    for n in 0..14 {
        world.write_done(n % 2, u64::from(n) * 60 * KIB, 36 * KIB);
    }
    assert!(matches!(world.order(NEAR, Command::Sync { full: false }), CommandResult::Done(_)));
    world.until("a part is overwritten", |world| {
        world.figures(FAR).rollback_point.is_some_and(|point| point.used_bytes > 64 * KIB)
    });
    let name = world.figures(FAR).rollback_point.expect("there is one").name;
    assert!(matches!(world.order(FAR, Command::DropRollbackPoint { name, discard: false }), CommandResult::Done(_)));
    // The link goes, and the sync does not come to its end.
    world.cut([false; 2]);
    world.pass(60 * SECOND);
    assert_eq!(world.figures(FAR).promotable, None);
    let shown = world.figures(NEAR).peer.recovery_point;
    assert_eq!(shown, None, "the copy is a mixture, and its primary shows what it could present");
}

/// Somebody wrote to it while it was stopped: it says itself that it is no image any more.
#[test]
fn a_copy_that_lost_its_image_has_no_recovery_point() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..8 {
        world.write_done(0, n * 64 * KIB, 16 * KIB);
    }
    world.drain();
    world.set(GROUP, |settings| settings.autosync = false);
    assert!(matches!(world.order(NEAR, Command::Logging), CommandResult::Done(_)));
    world.stop(FAR);
    world.boot_changed(FAR);
    world.pass_unchecked(20 * SECOND);
    assert_eq!(link(&world, NEAR), LinkStatus::Connected);
    assert_eq!(world.figures(FAR).promotable, None);
    let shown = world.figures(NEAR).peer.recovery_point;
    assert_eq!(shown, None, "the copy says that it is no image any more");
}
