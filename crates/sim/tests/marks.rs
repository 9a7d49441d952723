//! Marks: named points of the write order, at the same position on both nodes.
// proves: rule 4

use engine::cell::{self, CELL_BYTES, CellHead};
use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MARKS_MAX, MIB};
use engine::marks::{self, Mark};
use engine::state::{Degrade, Mode, Policy, State};
use engine::{Command, CommandId, CommandResult, GroupId, RefusalCode, Seq, Store};
use sim::checkers::marks::durable_marks;
use sim::nodes::tag_of;
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options, state};
use sim::world::orders;

const OTHER: GroupId = GroupId(1);

fn roomy(mode: Mode) -> SimOptions {
    SimOptions {
        queue_bytes: 4 * MIB,
        wait_limit_ms: 30_000,
        degrade: Degrade::Queue,
        ..options(mode, Policy::Degrade)
    }
}

fn in_step(options: SimOptions) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options);
    world.write_done(0, 0, 8 * KIB);
    world.until("it replicates", |world| state(world) == Some(State::Replicating) && world.in_step());
    world
}

fn sets(world: &mut ScenarioWorld, node: usize, groups: &[GroupId], name: &str) -> Vec<CommandResult> {
    let ids = orders::mark(world, node, groups, name);
    let result = |world: &ScenarioWorld, at: usize| world.cluster.ledger.result(ids[at]).cloned();
    world.until("the marks are answered", |world| (0..ids.len()).all(|at| result(world, at).is_some()));
    (0..ids.len()).filter_map(|at| result(world, at)).collect()
}

fn is_set(world: &mut ScenarioWorld, name: &str) {
    let answers = sets(world, 0, &[GROUP], name);
    assert!(matches!(answers[..], [CommandResult::Done(_)]), "{answers:?}");
}

fn mark(world: &ScenarioWorld, node: usize, name: &str) -> Option<Mark> {
    world.figures(node).marks.into_iter().find(|mark| mark.name == name)
}

/// Both nodes have it, at one position; which.
fn is_on_both(world: &mut ScenarioWorld, name: &str) -> Seq {
    world.until("it is there", |world| mark(world, 0, name).is_some_and(|mark| mark.there));
    let (here, there) = (mark(world, 0, name).unwrap(), mark(world, 1, name).unwrap());
    assert_eq!((here.position, here.moment, here.locked), (there.position, there.moment, there.locked));
    here.position.seq
}

fn refused(world: &mut ScenarioWorld, node: usize, groups: &[GroupId], name: &str) -> RefusalCode {
    match &sets(world, node, groups, name)[0] {
        CommandResult::Refused(refusal) => refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

/// What was written before lies before it, what comes then behind it; and it is there under its name.
#[test]
fn a_mark_has_a_number_of_its_own_and_both_nodes_have_it() {
    for mode in [Mode::Sync, Mode::Nearsync, Mode::Async] {
        let mut world = in_step(roomy(mode));
        for round in 0..3 {
            world.write_done(0, round * 64 * KIB, 8 * KIB);
            let before = world.figures(0).identity.position.seq;
            is_set(&mut world, &format!("m{round}"));
            world.write_done(1, round * 64 * KIB, 8 * KIB);
            assert_eq!(is_on_both(&mut world, &format!("m{round}")), before.next(), "{mode:?}");
        }
        assert!(world.checkers.marks.checked() >= 3);
        world.drain();
    }
}

/// The same name again is the same mark; a name that could be a rollback point's is none; the secondary sets none.
#[test]
fn what_cannot_be_set_is_refused() {
    let mut world = in_step(roomy(Mode::Async));
    is_set(&mut world, "nightly");
    let again = sets(&mut world, 0, &[GROUP], "nightly");
    assert!(matches!(&again[..], [CommandResult::Unchanged(text)] if text.contains("taken already")), "{again:?}");
    for name in ["", "-x", "a b", "before-sync-1"] {
        assert_eq!(refused(&mut world, 0, &[GROUP], name), RefusalCode::MarkName, "{name:?}");
    }
    assert_eq!(refused(&mut world, 1, &[GROUP], "x"), RefusalCode::NotPrimary);
    let lock = |name: &str| Command::LockMark { name: name.into(), locked: true };
    assert_eq!(world.refusal(0, lock("none")).code, RefusalCode::NoSuchMark);
    assert_eq!(world.refusal(1, lock("nightly")).code, RefusalCode::NotPrimary);
    for n in 1..MARKS_MAX {
        orders::mark(&mut world, 0, &[GROUP], &format!("n{n}"));
    }
    assert_eq!(refused(&mut world, 0, &[GROUP], "one-more"), RefusalCode::MarksFull);
    is_on_both(&mut world, &format!("n{}", MARKS_MAX - 1));
    assert_eq!(world.figures(1).marks.len(), MARKS_MAX);
}

/// A lock is known to both nodes, and a dropped mark to neither.
#[test]
fn a_locked_mark_is_dropped_only_by_whoever_says_so() {
    let mut world = in_step(roomy(Mode::Async));
    is_set(&mut world, "a");
    let lock = |locked| Command::LockMark { name: "a".into(), locked };
    assert!(matches!(world.order(0, lock(true)), CommandResult::Done(_)));
    assert!(matches!(world.order(0, lock(true)), CommandResult::Unchanged(_)));
    world.until("the peer knows of the lock", |world| mark(world, 1, "a").is_some_and(|mark| mark.locked));
    let drop = |override_lock| Command::DropMark { name: "a".into(), override_lock };
    assert_eq!(world.refusal(0, drop(false)).code, RefusalCode::MarkLocked);
    assert!(matches!(world.order(0, drop(true)), CommandResult::Done(_)));
    assert_eq!(mark(&world, 0, "a"), None);
    let is_gone = |world: &ScenarioWorld, node| durable_marks(&world.cluster, node, GROUP).is_empty();
    world.until("nobody has it", |world| is_gone(world, 0) && is_gone(world, 1));
    // Its name is free.
    is_set(&mut world, "a");
    is_on_both(&mut world, "a");
}

/// A queue that waits for the link carries it; one that is dropped leaves it here alone, and says so (rule 10).
#[test]
fn a_mark_waits_in_the_queue_and_is_lost_with_it() {
    let mut world = in_step(roomy(Mode::Async));
    world.cut([false; 2]);
    world.write_done(0, 0, 8 * KIB);
    is_set(&mut world, "queued");
    world.write_done(0, 64 * KIB, 8 * KIB);
    world.until("it queues", |world| state(world) == Some(State::Queuing));
    assert!(mark(&world, 0, "queued").is_some_and(|mark| !mark.there && !mark.lost));
    world.restore_path();
    is_on_both(&mut world, "queued");
    world.cut([false; 2]);
    world.until("the loss of the link is known", |world| state(world) == Some(State::Queuing));
    is_set(&mut world, "dropped");
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_) | CommandResult::Warning(_)));
    assert!(mark(&world, 0, "dropped").is_some_and(|mark| mark.lost));
    let alone = sets(&mut world, 0, &[GROUP], "alone");
    assert!(matches!(&alone[..], [CommandResult::Warning(text)] if text.contains("here alone")), "{alone:?}");
    world.restore_path();
    world.order(0, Command::Sync { full: false });
    world.drain();
    world.pass(SECOND);
    assert!(world.coverage(0, CoveragePoint::MarkLost) > 0);
    for name in ["dropped", "alone"] {
        assert!(mark(&world, 0, name).is_some_and(|mark| mark.lost && !mark.there));
        assert_eq!(mark(&world, 1, name), None, "{name}");
    }
}

/// The queue stands on disk: a mark keeps its place between what is read back.
#[test]
fn a_mark_keeps_its_place_in_a_queue_on_disk() {
    let spilled = SimOptions { queue_bytes: 128 * KIB, queue_disk_bytes: 4 * MIB, ..roomy(Mode::Async) };
    let mut world = in_step(spilled);
    world.cut([false; 2]);
    for n in 0..40 {
        world.write_done(0, n * 16 * KIB, 16 * KIB);
        if n == 20 {
            is_set(&mut world, "spilled");
        }
    }
    assert!(world.coverage(0, CoveragePoint::QueueSpilled) > 0);
    world.restore_path();
    is_on_both(&mut world, "spilled");
    world.drain();
}

/// A mark is answered once it stands in the log of the queue, and a start brings it back from there.
#[test]
fn a_mark_in_the_log_survives_its_primary() {
    let logged = SimOptions { queue_disk_bytes: 4 * MIB, queue_durable: true, ..roomy(Mode::Async) };
    for power in [false, true] {
        let mut world = in_step(logged.clone());
        let is_open = |world: &ScenarioWorld| world.coverage(0, CoveragePoint::QueueLogOpened) > 0;
        world.until("the log is open", is_open);
        world.cut([false; 2]);
        world.write_done(0, 0, 8 * KIB);
        is_set(&mut world, "logged");
        world.write_done(0, 32 * KIB, 8 * KIB);
        let at = mark(&world, 0, "logged").unwrap().position.seq;
        world.crash(0, power, SECOND);
        world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
        world.restore_path();
        assert_eq!(is_on_both(&mut world, "logged"), at, "power {power}");
        world.drain();
    }
}

/// A start from the log found a mark there that the peer had already, and gave it the position of the new run: the two tables differed.
#[test]
fn a_mark_that_is_there_keeps_its_position_over_a_start_from_the_log() {
    let mut world = in_step(SimOptions { queue_disk_bytes: 4 * MIB, queue_durable: true, ..roomy(Mode::Async) });
    world.until("the log is open", |world| world.coverage(0, CoveragePoint::QueueLogOpened) > 0);
    world.write_done(0, 0, 8 * KIB);
    is_set(&mut world, "there");
    is_on_both(&mut world, "there");
    let before = mark(&world, 0, "there").unwrap();
    // Until the two meet again nobody puts it right.
    world.cut([false; 2]);
    world.crash(0, false, SECOND);
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    assert!(world.figures(0).queue.items > 0, "the log has it still");
    assert_eq!(mark(&world, 0, "there"), Some(before));
    world.restore_path();
    replicates(&mut world);
    is_on_both(&mut world, "there");
}

/// Whoever is promoted has the marks that were there, and sets others.
#[test]
fn marks_outlive_a_change_of_roles() {
    let mut world = in_step(roomy(Mode::Async));
    is_set(&mut world, "before");
    is_on_both(&mut world, "before");
    world.cut([false; 2]);
    is_set(&mut world, "never-sent");
    world.crash(0, true, 5 * SECOND);
    assert!(!matches!(world.promote(1, true), CommandResult::Refused(_)));
    world.restore_path();
    assert!(mark(&world, 1, "before").is_some());
    let answers = sets(&mut world, 1, &[GROUP], "after");
    assert!(matches!(answers[..], [CommandResult::Warning(_)]), "{answers:?}");
    world.until("the old primary is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    assert_eq!(mark(&world, 0, "never-sent").map(|mark| (mark.there, mark.lost)), Some((false, true)));
}

/// Node 0 is the primary of two groups, both in step.
fn two_groups() -> ScenarioWorld {
    let mut world = in_step(SimOptions { pairs: vec![[0, 1], [0, 1]], ..roomy(Mode::Async) });
    let is_in_step = |world: &ScenarioWorld| world.cluster.in_step(OTHER);
    let orders =
        [(1, Command::Sync { full: true }), (1, Command::Demote), (0, Command::Promote { force: false, entropy: 7 })];
    for (node, command) in orders {
        let id = world.command(node, OTHER, command);
        let is_done = |world: &ScenarioWorld| result(world, id).is_some();
        world.until("the order is answered", is_done);
        assert!(!matches!(result(&world, id), Some(CommandResult::Refused(_))), "{:?}", result(&world, id));
        if node == 1 {
            world.pass(SECOND);
        }
    }
    world.until("the other one is in step", is_in_step);
    assert_eq!(world.cluster.primary(OTHER), 0);
    world
}

/// One moment over two groups: what was acknowledged before lies before both marks.
#[test]
fn marks_of_several_groups_are_of_one_moment() {
    let mut world = two_groups();
    for round in 0..4 {
        world.write_to(GROUP, 0, round * 16 * KIB, 8 * KIB);
        world.write_to(OTHER, 0, round * 16 * KIB, 8 * KIB);
        let ids = orders::mark(&mut world, 0, &[GROUP, OTHER], &format!("both{round}"));
        world.write_to(OTHER, 1, round * 16 * KIB, 8 * KIB);
        world.write_to(GROUP, 1, round * 16 * KIB, 8 * KIB);
        world.pass(200 * MILLISECOND);
        let is_done = |id| matches!(world.cluster.ledger.result(id), Some(CommandResult::Done(_)));
        assert!(ids.into_iter().all(is_done));
    }
    assert!(world.coverage(0, CoveragePoint::MarkMoment) > 0);
    let moment = |group| world.cluster[0].status_of(group).unwrap().marks[0].moment;
    assert!(moment(GROUP) > 0 && moment(GROUP) == moment(OTHER));
}

/// The groups have their primaries on two nodes: no mark is set.
#[test]
fn marks_of_two_primaries_are_of_no_one_moment() {
    let mut world = in_step(SimOptions { pairs: vec![[0, 1], [0, 1]], ..roomy(Mode::Async) });
    assert_eq!(world.cluster.primary(OTHER), 1);
    assert_eq!(refused(&mut world, 0, &[GROUP, OTHER], "both"), RefusalCode::NotPrimary);
    assert!(world.figures(0).marks.is_empty(), "none of them is set");
}

fn replicates(world: &mut ScenarioWorld) {
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    world.until("in step", |world| state(world) == Some(State::Replicating) && world.in_step());
}

/// The peer had a mark whose primary was killed before its own slot was durable. The counter went on from the slots: the next mark had the id of that
/// one, at another position, and no session lasted any more.
#[test]
fn an_id_is_given_once() {
    let mut world = in_step(roomy(Mode::Async));
    for n in 0..20 {
        is_set(&mut world, &format!("b{n}"));
    }
    is_on_both(&mut world, "b19");
    world.cluster[0].storage.trouble.marks_ns = 60 * SECOND;
    orders::mark(&mut world, 0, &[GROUP], "last");
    world.until("the peer has it", |world| {
        durable_marks(&world.cluster, 1, GROUP).iter().any(|mark| mark.name == "last")
    });
    world.cluster[0].storage.trouble.marks_ns = 0;
    let last = mark(&world, 1, "last").unwrap();
    world.crash(0, true, SECOND);
    replicates(&mut world);
    assert_eq!(mark(&world, 0, "last"), None, "nobody was told, and no slot was written");
    world.until("the peer hears that it has no twin", |world| mark(world, 1, "last").is_some_and(|mark| mark.lost));
    let before = world.figures(0).resynced_bytes;
    is_set(&mut world, "again");
    is_on_both(&mut world, "again");
    assert_ne!(mark(&world, 1, "again").unwrap().id, last.id);
    world.pass(5 * SECOND);
    assert_eq!((state(&world), world.figures(0).resynced_bytes), (Some(State::Replicating), before));
}

/// A contradiction on record ends no session: what the primary says counts.
#[test]
fn two_positions_of_one_mark_end_no_session() {
    let mut world = in_step(roomy(Mode::Async));
    is_set(&mut world, "a");
    let seq = is_on_both(&mut world, "a");
    world.stop(1);
    puts(&mut world, 1, |mark| mark.position.seq = seq.next());
    world.boot(1);
    // After a start a primary tells of all marks.
    world.crash(0, false, SECOND);
    replicates(&mut world);
    is_set(&mut world, "b");
    is_on_both(&mut world, "b");
    world.until("it is settled", |world| mark(world, 0, "a").is_some_and(|mark| mark.lost));
    assert_eq!(state(&world), Some(State::Replicating));
    assert_eq!(mark(&world, 1, "a"), None);
}

/// Changes what a node has on record of its marks, as nobody does.
fn puts(world: &mut ScenarioWorld, node: usize, change: impl Fn(&mut Mark)) {
    let tag = tag_of(GROUP);
    let disk = world.cluster[node].disk_mut(Store::Marks(GROUP));
    let content = disk.durable().to_vec();
    let choice = cell::choose(marks::KIND, tag, 0, &content[..CELL_BYTES as usize]);
    let (head, body) = choice.newest.expect("the cell is whole");
    let mut slots = marks::decode_slots(body).expect("of this version");
    slots.iter_mut().flatten().for_each(change);
    let head = CellHead { update: head.update + 1, ..head };
    let image = cell::encode(marks::KIND, &head, &marks::encode_slots(slots.iter().map(Option::as_ref)));
    disk.goes_astray(head.slot_offset() as usize, &image);
}

/// The file of marks is no reason to stop clients, nor the stream: marks are refused, and nothing else is.
#[test]
fn a_file_of_marks_that_cannot_be_written_costs_marks_alone() {
    let mut world = in_step(roomy(Mode::Async));
    is_set(&mut world, "before");
    is_on_both(&mut world, "before");
    world.cluster[0].storage.trouble.marks_fail = true;
    assert_eq!(refused(&mut world, 0, &[GROUP], "a"), RefusalCode::StoreFailed);
    assert_eq!(refused(&mut world, 0, &[GROUP], "b"), RefusalCode::StoreFailed);
    let lock = Command::LockMark { name: "before".into(), locked: true };
    assert_eq!(world.refusal(0, lock).code, RefusalCode::StoreFailed);
    world.write_done(0, 0, 8 * KIB);
    world.pass(SECOND);
    assert_eq!(state(&world), Some(State::Replicating));
    world.cluster[0].storage.trouble.marks_fail = false;
    world.crash(0, false, SECOND);
    replicates(&mut world);
    assert!(mark(&world, 0, "before").is_some_and(|mark| mark.there), "its slot is whole");
    is_set(&mut world, "c");
    is_on_both(&mut world, "c");
}

/// The same at the secondary: it says that it has none, and goes on to flush and to record.
#[test]
fn a_secondary_that_cannot_record_marks_says_so() {
    let mut world = in_step(roomy(Mode::Async));
    world.cluster[1].storage.trouble.marks_fail = true;
    is_set(&mut world, "a");
    world.until("it is known to be here alone", |world| mark(world, 0, "a").is_some_and(|mark| mark.lost));
    world.write_done(0, 0, 8 * KIB);
    is_set(&mut world, "b");
    world.until("the next one too", |world| mark(world, 0, "b").is_some_and(|mark| mark.lost));
    world.drain();
    world.pass(2 * SECOND);
    let last = world.figures(0).identity.position.seq;
    world.until("it records", |world| world.recorded(1).identity.position.seq >= last);
    assert_eq!(state(&world), Some(State::Replicating));
}

/// A start that cannot read the file goes on without marks, on either node.
#[test]
fn a_file_of_marks_that_cannot_be_read_stops_no_start() {
    for node in [0, 1] {
        let mut world = in_step(roomy(Mode::Async));
        is_set(&mut world, "a");
        is_on_both(&mut world, "a");
        world.cluster[node].storage.trouble.marks_unreadable = true;
        world.crash(node, false, SECOND);
        world.until("it is down", |world| !world.cluster[node].up());
        replicates(&mut world);
        world.write_done(0, 0, 8 * KIB);
        world.drain();
        if node == 0 {
            assert_eq!(refused(&mut world, 0, &[GROUP], "b"), RefusalCode::StoreFailed);
        }
    }
}

/// What became of an order.
fn result(world: &ScenarioWorld, id: CommandId) -> Option<&CommandResult> {
    world.cluster.ledger.result(id)
}

/// The stop did not wait until the number of a mark was in the log: the next start took the log for damaged, and gave the order up.
#[test]
fn a_stop_behind_a_mark_keeps_the_log() {
    for limit_ms in [5_000, 30_000] {
        let mut world = in_step(SimOptions {
            queue_disk_bytes: 4 * MIB,
            queue_durable: true,
            wait_limit_ms: limit_ms,
            ..roomy(Mode::Async)
        });
        world.until("the log is open", |world| world.coverage(0, CoveragePoint::QueueLogOpened) > 0);
        world.cut([false; 2]);
        world.write_done(0, 0, 8 * KIB);
        world.until("the loss of the link is known", |world| state(world) == Some(State::Queuing));
        world.write_done(0, 32 * KIB, 8 * KIB);
        world.cluster[0].storage.trouble.queue_ns = SECOND;
        // The second one waits until the first one's batch is written.
        orders::mark(&mut world, 0, &[GROUP], "first");
        world.pass(MILLISECOND);
        let order = orders::mark(&mut world, 0, &[GROUP], "parting")[0];
        world.stop(0);
        world.cluster[0].storage.trouble.queue_ns = 0;
        world.boot(0);
        world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
        assert_eq!(world.coverage(0, CoveragePoint::QueueLogDropped), 0);
        assert!(matches!(result(&world, order), Some(CommandResult::Done(_))));
        world.restore_path();
        is_on_both(&mut world, "parting");
        world.drain();
        assert_eq!(world.figures(0).resynced_bytes, 0);
    }
}

/// The secondary is killed before the slot is durable, and once more while its next start writes it: that start had recorded already that the journal
/// is applied, so no replay brought the mark back.
#[test]
fn a_mark_outlives_two_crashes_of_the_secondary() {
    let mut without_slot = 0;
    for seed in (2..18).step_by(2) {
        let mut world = in_step(SimOptions { seed, ..roomy(Mode::Nearsync) });
        world.cluster[1].storage.trouble.marks_ns = 5 * SECOND;
        is_set(&mut world, "twice");
        world.write_done(0, 0, 8 * KIB);
        world.pass(50 * MILLISECOND);
        world.crash(1, true, SECOND);
        world.cut([false; 2]);
        world.until("it is back", |world| world.cluster[1].up());
        world.pass(2 * SECOND);
        world.crash(1, true, SECOND);
        // A loss of power may leave a write that was under way.
        without_slot += u64::from(durable_marks(&world.cluster, 1, GROUP).is_empty());
        world.cluster[1].storage.trouble.marks_ns = 0;
        world.until("it is back", |world| world.cluster[1].up());
        world.restore_path();
        replicates(&mut world);
        is_on_both(&mut world, "twice");
    }
    assert!(without_slot > 0);
}

/// A node loses what it has on record of its marks.
fn forgets(world: &mut ScenarioWorld, node: usize) {
    world.stop(node);
    world.cluster[node].disk_mut(Store::Marks(GROUP)).restore(vec![0; marks::FILE_BYTES as usize]);
    world.boot(node);
    replicates(world);
}

/// A secondary without its file of marks has none: its primary, which runs on, hears that in the next session.
#[test]
fn a_mark_that_the_peer_lost_is_on_both_nodes_no_longer() {
    let mut world = in_step(roomy(Mode::Async));
    for n in 0..40 {
        is_set(&mut world, &format!("b{n}"));
    }
    is_on_both(&mut world, "b39");
    forgets(&mut world, 1);
    let is_lost = |mark: &Mark| mark.lost && !mark.there;
    world.until("the primary knows of it", |world| world.figures(0).marks.iter().all(is_lost));
    is_set(&mut world, "after");
    is_on_both(&mut world, "after");
}

/// Marks of which the primary knows nothing are called what they are, can be dropped, and make room; a locked one stays.
#[test]
fn marks_of_which_the_primary_knows_nothing_are_shown_and_make_room() {
    let mut world = in_step(roomy(Mode::Async));
    for n in 0..MARKS_MAX {
        orders::mark(&mut world, 0, &[GROUP], &format!("n{n}"));
    }
    is_on_both(&mut world, &format!("n{}", MARKS_MAX - 1));
    let lock = Command::LockMark { name: "n0".into(), locked: true };
    assert!(matches!(world.order(0, lock), CommandResult::Done(_)));
    world.until("the peer knows of the lock", |world| mark(world, 1, "n0").is_some_and(|mark| mark.locked));
    forgets(&mut world, 0);
    world.until("they are strays", |world| world.figures(1).marks.iter().all(|mark| mark.lost));
    let drop = |name: &str| Command::DropMark { name: name.into(), override_lock: false };
    assert_eq!(world.refusal(1, drop("n0")).code, RefusalCode::MarkLocked);
    assert!(matches!(world.order(1, drop("n7")), CommandResult::Done(_)));
    for name in ["one", "two", "three"] {
        is_set(&mut world, name);
        is_on_both(&mut world, name);
    }
    assert!(mark(&world, 1, "n0").is_some(), "it is locked");
    assert_eq!(world.refusal(1, drop("three")).code, RefusalCode::NotPrimary);
}

/// A dropped mark stood in the log of the queue still, and a start brought it back under a number.
#[test]
fn a_dropped_mark_does_not_come_back_from_the_log() {
    let mut world = in_step(SimOptions { queue_disk_bytes: 4 * MIB, queue_durable: true, ..roomy(Mode::Async) });
    world.until("the log is open", |world| world.coverage(0, CoveragePoint::QueueLogOpened) > 0);
    world.write_done(0, 0, 8 * KIB);
    is_set(&mut world, "x");
    is_on_both(&mut world, "x");
    let drop = Command::DropMark { name: "x".into(), override_lock: false };
    assert!(matches!(world.order(0, drop), CommandResult::Done(_)));
    world.until("the peer has dropped it", |world| durable_marks(&world.cluster, 1, GROUP).is_empty());
    world.pass(5 * MILLISECOND);
    world.crash(0, false, SECOND);
    replicates(&mut world);
    assert_eq!(world.figures(0).marks, []);
    let is_free = |world: &ScenarioWorld| durable_marks(&world.cluster, 0, GROUP).is_empty();
    world.write_done(0, 0, 8 * KIB);
    world.flush(0);
    world.until("its slot is free", is_free);
    assert_eq!(world.figures(1).marks, []);
}

/// The same name again is answered no earlier than the first time.
#[test]
fn the_same_name_again_waits_for_the_same_log() {
    let mut world = in_step(SimOptions { queue_disk_bytes: 4 * MIB, queue_durable: true, ..roomy(Mode::Async) });
    world.until("the log is open", |world| world.coverage(0, CoveragePoint::QueueLogOpened) > 0);
    world.cut([false; 2]);
    world.cluster[0].storage.trouble.queue_ns = SECOND;
    let ids = [(); 2].map(|()| orders::mark(&mut world, 0, &[GROUP], "x")[0]);
    world.pass(SECOND / 2);
    assert!(ids.iter().all(|id| result(&world, *id).is_none()), "its number is in no log");
    world.pass(SECOND);
    assert!(ids.iter().all(|id| result(&world, *id).is_some()));
}

/// Two marks of one name that were set at two moments are not taken for one.
#[test]
fn marks_of_two_moments_are_not_taken_for_one() {
    let mut world = two_groups();
    is_set(&mut world, "x");
    let other = orders::mark(&mut world, 0, &[OTHER], "x")[0];
    world.until("both are set", |world| result(world, other).is_some());
    assert_eq!(refused(&mut world, 0, &[GROUP, OTHER], "x"), RefusalCode::MarkName);
    let at_once = sets(&mut world, 0, &[GROUP, OTHER], "y");
    assert!(!at_once.iter().any(|answer| matches!(answer, CommandResult::Refused(_))), "{at_once:?}");
    let again = sets(&mut world, 0, &[GROUP, OTHER], "y");
    assert!(again.iter().all(|answer| matches!(answer, CommandResult::Unchanged(_))), "{again:?}");
}

/// The primary is killed before the peer's answer came. It called the mark lost, and the peer had it: nobody is told so before the peer was asked.
#[test]
fn a_mark_is_called_lost_once_the_peer_has_said_so() {
    let mut world = in_step(roomy(Mode::Async));
    is_set(&mut world, "sent");
    is_on_both(&mut world, "sent");
    world.cluster[1].storage.trouble.marks_ns = SECOND;
    is_set(&mut world, "unanswered");
    world.pass(50 * MILLISECOND);
    world.crash(0, false, SECOND);
    world.cluster[1].storage.trouble.marks_ns = 0;
    world.cut([false; 2]);
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    assert!(mark(&world, 0, "unanswered").is_some_and(|mark| mark.lost && mark.doubted));
    assert_eq!(world.coverage(0, CoveragePoint::MarkLost), 0);
    world.restore_path();
    replicates(&mut world);
    is_on_both(&mut world, "unanswered");
    assert_eq!(world.coverage(0, CoveragePoint::MarkLost), 0);
}

/// Beside a stream no mark names a history that a crash may undo.
#[test]
fn no_mark_names_a_generation_that_is_not_on_record() {
    let mut world = in_step(roomy(Mode::Async));
    world.cut([false; 2]);
    world.until("the loss of the link is known", |world| state(world) == Some(State::Queuing));
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_) | CommandResult::Warning(_)));
    world.cluster[0].storage.trouble.superblock_ns = SECOND;
    let write = world.write(0, 0, 8 * KIB);
    world.pass(100 * MILLISECOND);
    assert_eq!(refused(&mut world, 0, &[GROUP], "a"), RefusalCode::NotInStep);
    world.cluster[0].storage.trouble.superblock_ns = 0;
    assert!(world.answer(write).0);
    let alone = sets(&mut world, 0, &[GROUP], "a");
    assert!(matches!(alone[..], [CommandResult::Warning(_)]), "{alone:?}");
    assert_eq!(mark(&world, 0, "a").unwrap().position.generation, world.recorded(0).identity.generation);
}

/// Where nobody sets a mark nothing is said of marks in a session, and a start flushes nothing for them.
#[test]
fn without_marks_nothing_is_said_or_flushed() {
    let mut world = in_step(roomy(Mode::Async));
    for power in [false, true] {
        world.crash(1, power, SECOND);
        world.crash(0, power, SECOND);
        replicates(&mut world);
    }
    assert_eq!((world.checkers.marks.said(), flushes(&world)), (0, [0; 2]));
    is_set(&mut world, "one");
    is_on_both(&mut world, "one");
    for node in [0, 1] {
        world.crash(node, false, SECOND);
        replicates(&mut world);
    }
    is_on_both(&mut world, "one");
    assert_eq!(flushes(&world), [1; 2]);
}

fn flushes(world: &ScenarioWorld) -> [u64; 2] {
    [0, 1].map(|node| world.cluster[node].storage.marks_flushes())
}

/// Hot blocks are written again and again over a slow link, with marks in the midst. A step of the peer ends before each mark: one that dies there stands
/// at it, and what is promoted of it is exactly what was written before.
#[test]
fn a_peer_stands_at_a_mark_among_folded_rewrites() {
    let (mut exact, mut folded) = (0, 0);
    for (moment, name) in ["a", "b", "c"].into_iter().cycle().take(24).enumerate() {
        let slow = SimOptions { bytes_per_s: 100_000, folds: true, ..options(Mode::Async, Policy::Degrade) };
        let mut world = in_step(slow);
        for name in ["a", "b", "c"] {
            for n in 0..24 {
                world.write_done((n % 2) as u16, n % 3 * 8 * KIB, 4 * KIB);
                if n == moment as u64 {
                    orders::mark(&mut world, 0, &[GROUP], name);
                }
            }
        }
        // Only what is flushed here is left out.
        for volume in 0..2 {
            let flush = world.flush(volume);
            world.answer(flush);
        }
        let has_it =
            |world: &ScenarioWorld| durable_marks(&world.cluster, 1, GROUP).iter().any(|mark| mark.name == name);
        world.until("the peer has it", has_it);
        folded += world.figures(0).folded_writes;
        world.cut([false; 2]);
        world.crash(1, moment % 2 == 0, SECOND / 5);
        world.until("it is back", |world| world.glance(1, GROUP).is_some_and(|glance| glance.running));
        world.crash(0, true, 60 * SECOND);
        let at = mark(&world, 1, name).expect("its slot is durable").position.seq;
        exact += u64::from(world.recorded(1).identity.position.seq == at);
        let promoted = world.promote(1, true);
        assert!(matches!(promoted, CommandResult::Done(_) | CommandResult::Warning(_)), "{promoted:?}");
        world.pass(SECOND);
        assert!(world.serves(GROUP));
    }
    assert!(exact > 12 && folded > 200, "{exact} stood at their mark, {folded} writes were left out");
}
