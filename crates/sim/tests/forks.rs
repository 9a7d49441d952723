//! Both nodes wrote alone, and an operator keeps the content of one. What differs is known by the bits of both; what the other node held
//! there is saved first; then only that travels. The checkers look at the bits, at the saved blocks and at both copies.
// proves: P3, P6, rule 6

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::identity::{Decision, DecisionReason, DecisionRow, Role};
use engine::limits::{KIB, MIB};
use engine::state::{Degrade, Mode, Policy, State};
use engine::{Command, CommandId, CommandResult, NodeId, RefusalCode, Store, VerifyOrder, VolumeId};
use sim::checkers::facts::KnownFact;
use sim::checkers::writes::ClientRequest;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, node_failed, options};
use sim::stamps::SectorFill;

pub(crate) const OLD: usize = 0;
pub(crate) const NEW: usize = 1;

pub(crate) fn in_peace() -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.write_done(0, 0, 256 * KIB);
    world.drain();
    world
}

pub(crate) fn tag(world: &ScenarioWorld, node: usize) -> u64 {
    world.glance(node, GROUP).expect("it is up").identity.generation.tag
}

/// A client of this node writes there, whoever counts.
pub(crate) fn write_at(world: &mut ScenarioWorld, node: usize, volume: u16, offset: u64, length: u64) {
    let (fill, volume) = (SectorFill::Stamp(world.checkers.writes.stamp(GROUP)), VolumeId(volume));
    let id = world.ask(node, GROUP, ClientRequest::Write { volume, offset, length, fill, fua: false }, false);
    assert!(world.answer(id).0);
}

/// The old primary writes alone, the other one is promoted by force and does the same; then they meet.
fn forked() -> ScenarioWorld {
    forked_from(in_peace())
}

pub(crate) fn forked_from(mut world: ScenarioWorld) -> ScenarioWorld {
    world.cut([false; 2]);
    world.write_done(0, 0, 8 * KIB);
    world.write_done(1, 512 * KIB, 40 * KIB);
    world.pass(10 * SECOND);
    assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
    world.write_done(0, 4 * KIB, 16 * KIB);
    world.write_done(1, 128 * KIB, 8 * KIB);
    meet(&mut world);
    world
}

pub(crate) fn meet(world: &mut ScenarioWorld) {
    world.restore_path();
    world.until("they meet", |world| {
        (0..2).all(|node| world.cluster[node].up() && world.figures(node).reason.contains("both nodes are primary"))
    });
}

pub(crate) fn keep(world: &mut ScenarioWorld, node: usize, discard: bool) -> CommandId {
    let over = tag(world, 1 - node);
    let id = world.command(node, GROUP, Command::Keep { over, discard, by_policy: false });
    // The other one hears of it.
    world.pass(20 * MILLISECOND);
    id
}

pub(crate) fn yields(world: &mut ScenarioWorld, node: usize) {
    let to = tag(world, 1 - node);
    let answer = world.order(node, Command::Yield { to, by_policy: false });
    assert!(!matches!(answer, CommandResult::Refused(_)), "{answer:?}");
}

pub(crate) fn answer_of(world: &mut ScenarioWorld, id: CommandId) -> CommandResult {
    world.until("the order is answered", |world| world.cluster.ledger.result(id).is_some());
    world.cluster.ledger.result(id).expect("it was waited for").clone()
}

pub(crate) fn code(answer: CommandResult) -> RefusalCode {
    match answer {
        CommandResult::Refused(refusal) => refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

/// The content of `node` is kept, and both are equal afterwards.
pub(crate) fn resolve(world: &mut ScenarioWorld, node: usize) {
    let sent = world.data_sent_bytes()[node];
    let kept = keep(world, node, false);
    yields(world, 1 - node);
    let answer = answer_of(world, kept);
    assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
    let ours = world.images_of(node);
    world.drain();
    assert_eq!(world.images_of(node), ours);
    assert_eq!(world.coverage(1 - node, CoveragePoint::DeltaSaved), 1);
    let sent = world.data_sent_bytes()[node] - sent;
    assert!(sent < 1024 * KIB, "{sent} bytes travelled: that is no update");
}

#[test]
fn a_fork_is_resolved_by_what_differs_whichever_side_is_kept() {
    for node in [NEW, OLD] {
        let mut world = forked();
        resolve(&mut world, node);
        // And on it goes, as if nothing had been.
        world.write_done(0, 700 * KIB, 8 * KIB);
        world.drain();
        assert!(matches!(world.order(node, Command::Demote), CommandResult::Done(_)));
        assert!(matches!(world.promote(1 - node, false), CommandResult::Done(_)));
        world.drain();
    }
}

/// Writers of the node that is kept go on meanwhile.
#[test]
fn writes_go_on_while_a_fork_is_resolved() {
    let mut world = forked();
    let kept = keep(&mut world, NEW, false);
    for n in 0..8 {
        world.write_done(0, n * 64 * KIB, 4 * KIB);
    }
    yields(&mut world, OLD);
    for n in 0..8 {
        world.write_done(1, n * 64 * KIB, 4 * KIB);
    }
    assert!(matches!(answer_of(&mut world, kept), CommandResult::Done(_)));
    world.drain();
}

/// Both had been reconciled in this session, before one was promoted in its midst: its bits are asked for all the same.
#[test]
fn a_fork_that_began_and_ended_within_one_session_joins_the_bits_of_both() {
    for node in [OLD, NEW] {
        let mut world = in_peace();
        world.order(OLD, Command::Logging);
        world.write_done(0, 64 * KIB, 8 * KIB);
        assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
        world.write_done(1, 320 * KIB, 24 * KIB);
        world.pass(SECOND);
        resolve(&mut world, node);
    }
}

/// It went back to the image before a sync, in the midst of a session: what it undid is dirty there.
#[test]
fn what_a_promoted_node_undid_for_the_image_before_a_sync_is_joined() {
    for (node, is_cut) in [(OLD, false), (NEW, false), (OLD, true), (NEW, true)] {
        let mut world = in_peace();
        world.order(OLD, Command::Logging);
        for n in 0..16 {
            world.write_done((n % 2) as u16, n * 40 * KIB, 32 * KIB);
        }
        world.pass(10 * SECOND);
        world.order(OLD, Command::Sync { full: false });
        world.until("it is overwritten", |world| world.recorded(NEW).identity.inconsistent);
        world.pass(10 * MILLISECOND);
        assert!(world.recorded(NEW).identity.inconsistent, "the sync is under way");
        if is_cut {
            world.cut([false; 2]);
        }
        assert!(!matches!(world.promote(NEW, true), CommandResult::Refused(_)));
        write_at(&mut world, NEW, 1, 900 * KIB, 8 * KIB);
        if is_cut {
            world.pass(10 * SECOND);
            world.restore_path();
        }
        world.until("they meet", |world| world.figures(NEW).reason.contains("both nodes are primary"));
        resolve(&mut world, node);
    }
}

/// What the old primary had not flushed is gone with its power; the promoted node has it, and keeps it for the old primary.
#[test]
fn what_an_old_primary_lost_with_its_power_differs_by_a_bit() {
    for node in [OLD, NEW] {
        let mut world = in_peace();
        for n in 0..24 {
            world.write_done((n % 2) as u16, n * 32 * KIB, 16 * KIB);
        }
        world.until("the peer has all", |world| world.checkers.writes.pending() == 0 && world.in_step());
        world.crash(OLD, true, 20 * SECOND);
        world.pass(SECOND);
        assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
        world.write_done(0, 0, 8 * KIB);
        meet(&mut world);
        let kept = keep(&mut world, node, false);
        yields(&mut world, 1 - node);
        let answer = answer_of(&mut world, kept);
        assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
        world.drain();
    }
}

pub(crate) fn durable(world: &ScenarioWorld, node: usize) -> Vec<(Store, Vec<u8>)> {
    world.cluster[node].storage.disks().map(|(store, disk)| (*store, disk.durable().to_vec())).collect()
}

/// The whole machine is set back to a copy of its own.
fn comes_back_as(world: &mut ScenarioWorld, node: usize, copy: Vec<(Store, Vec<u8>)>) {
    is_set_back(world, node, copy);
    world.checkers.facts.add(KnownFact::Spoiled(GROUP, node));
    world.cluster.ledger.gives_up(GROUP, node);
    world.until("it is back", |world| world.cluster[node].is_ready(GROUP));
}

/// The same, and the checkers are to object to whatever follows from it.
pub(crate) fn is_set_back(world: &mut ScenarioWorld, node: usize, copy: Vec<(Store, Vec<u8>)>) {
    world.crash(node, true, 3 * SECOND);
    for (store, content) in copy {
        world.cluster[node].disk_mut(store).restore(content);
    }
    world.checkers.wire.forget(GROUP, node);
}

/// A machine comes back as it was before it confirmed more, and is promoted: what it lacks is dirty nowhere.
#[test]
fn a_fork_from_an_old_copy_is_not_resolved_by_bits() {
    for node in [OLD, NEW] {
        let mut world = in_peace();
        world.pass(20 * SECOND);
        let old = durable(&world, NEW);
        world.write_done(0, 0, 64 * KIB);
        world.drain();
        world.until("every bit is clear", |world| world.figures(OLD).volumes.iter().all(|v| v.dirty_bytes == 0));
        world.pass(20 * SECOND);
        world.cut([false; 2]);
        comes_back_as(&mut world, NEW, old);
        assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
        meet(&mut world);
        let over = tag(&world, 1 - node);
        let refusal = world.refusal(node, Command::Keep { over, discard: false, by_policy: false });
        assert_eq!(refusal.code, RefusalCode::ForkUnbounded, "{refusal}");
        assert!((0..2).all(|node| world.cluster[node].serves(GROUP)), "nobody was demoted for it");
        assert!(!matches!(world.order(OLD, Command::Demote), CommandResult::Refused(_)));
        world.until("it is a tail", |world| world.tally.rows.contains(&DecisionRow::LoneTail));
    }
}

/// Each keeps its own by an order of its own: at most one is kept, and never is nobody left who serves.
#[test]
fn two_orders_at_once_keep_at_most_one() {
    for after in [0, 500_000, 2 * MILLISECOND, 50 * MILLISECOND] {
        let mut world = forked();
        let tags = [0, 1].map(|node| tag(&world, node));
        let ids = [0, 1].map(|node: usize| {
            let id =
                world.command(node, GROUP, Command::Keep { over: tags[1 - node], discard: false, by_policy: false });
            world.pass(after.max(1));
            id
        });
        for node in [0, 1] {
            world.command(node, GROUP, Command::Yield { to: tags[1 - node], by_policy: false });
        }
        world.pass(5 * SECOND);
        let kept = ids.map(|id| matches!(world.cluster.ledger.result(id), Some(CommandResult::Done(_))));
        assert!(kept != [true; 2]);
        let serve = [0, 1].map(|node| world.cluster[node].serves(GROUP));
        assert!(serve != [false; 2], "after {after} ns");
        if serve == [true; 2] {
            world
                .until("both orders are over", |world| ids.iter().all(|id| world.cluster.ledger.result(*id).is_some()));
            resolve(&mut world, OLD);
        } else {
            world.drain();
        }
    }
}

/// Whether it can be carried out at all is asked before anybody is demoted.
#[test]
fn an_order_that_cannot_be_carried_out_demotes_nobody() {
    let mut world = forked();
    let (old, new) = (tag(&world, OLD), tag(&world, NEW));
    let refusal = |world: &mut ScenarioWorld, node, command| world.refusal(node, command).code;
    let keeps = |over| Command::Keep { over, discard: false, by_policy: false };
    assert_eq!(refusal(&mut world, NEW, keeps(old + 1)), RefusalCode::ForkChanged);
    assert_eq!(refusal(&mut world, OLD, Command::Yield { to: new, by_policy: false }), RefusalCode::NotKept);
    assert_eq!(refusal(&mut world, OLD, Command::Yield { to: new + 1, by_policy: false }), RefusalCode::ForkChanged);
    world.set_mode(GROUP, Mode::Logging);
    assert_eq!(refusal(&mut world, NEW, keeps(old)), RefusalCode::ModeLogging);
    world.set_mode(GROUP, Mode::Async);
    // Nobody yields: in the end that is said.
    let kept = keep(&mut world, NEW, false);
    assert_eq!(code(answer_of(&mut world, kept)), RefusalCode::NotYielded);
    assert!((0..2).all(|node| world.cluster[node].serves(GROUP)));
    resolve(&mut world, NEW);
    let over = tag(&world, OLD);
    assert!(matches!(world.order(NEW, keeps(over)), CommandResult::Unchanged(_)));
    assert_eq!(refusal(&mut world, OLD, keeps(over)), RefusalCode::NotPrimary);
}

/// There is no space for what would be saved: nothing is overwritten, and `discard` saves nothing.
#[test]
fn without_space_nothing_is_overwritten_unless_it_is_discarded() {
    for discard in [false, true] {
        let mut world = forked();
        let theirs = world.images_of(OLD);
        world.cluster[OLD].storage.trouble.delta_full_until = FOR_EVER;
        let kept = keep(&mut world, NEW, false);
        yields(&mut world, OLD);
        let answer = answer_of(&mut world, kept);
        assert!(format!("{answer:?}").contains("do not promote it"), "{answer:?}");
        assert_eq!(code(answer), RefusalCode::DeltaSpace);
        world.pass(20 * SECOND);
        assert_eq!(world.images_of(OLD), theirs);
        if !discard {
            world.cluster[OLD].storage.trouble.delta_full_until = 0;
        }
        let over = tag(&world, OLD);
        let answer = world.order(NEW, Command::Keep { over, discard, by_policy: false });
        assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
        world.drain();
    }
}

/// The link goes, or a node, while the other side's blocks are saved: nothing was overwritten, and the same words do it later.
#[test]
fn an_order_that_is_cut_short_is_typed_again() {
    for step in 0..12u64 {
        for what in 0..3 {
            let mut world = forked();
            let kept = keep(&mut world, NEW, false);
            yields(&mut world, OLD);
            world.pass(step * 400_000 + 1);
            match what {
                0 => world.cut([false; 2]),
                1 => world.crash(OLD, true, SECOND),
                _ => world.crash(NEW, true, SECOND),
            }
            world.pass(20 * SECOND);
            world.restore_path();
            world.until("both are there", |world| {
                world.cluster[NEW].serves(GROUP) && world.cluster[OLD].up() && world.cluster[OLD].is_ready(GROUP)
            });
            world.pass(5 * SECOND);
            let done = matches!(world.cluster.ledger.result(kept), Some(CommandResult::Done(_)));
            let needs_order = world.figures(NEW).reason.contains("farshore resolve");
            if !done && needs_order {
                let over = tag(&world, OLD);
                let answer = world.order(NEW, Command::Keep { over, discard: false, by_policy: false });
                assert!(!matches!(answer, CommandResult::Refused(_)), "step {step} {what}: {answer:?}");
            }
            world.drain();
        }
    }
}

/// The side that is given up wrote on, in a generation that nobody looked at.
/// Whoever types `resolve` was told that it came to nothing. The order stood all the same, and what came later was taken for the other half.
#[test]
fn an_order_that_is_taken_back_is_followed_by_nobody() {
    for has_yielded in [false, true] {
        let mut world = forked();
        if has_yielded {
            // What is to be saved has no space at first, so the order lasts.
            world.cluster[OLD].storage.trouble.stalled_until = world.now() + 2 * SECOND;
        }
        let kept = keep(&mut world, NEW, false);
        if has_yielded {
            let to = tag(&world, NEW);
            world.command(OLD, GROUP, Command::Yield { to, by_policy: false });
            world.pass(20 * MILLISECOND);
        }
        let over = tag(&world, OLD);
        let taken_back = world.order(NEW, Command::TakeBack { over });
        assert!(matches!(taken_back, CommandResult::Done(_)), "{taken_back:?}");
        assert_eq!(code(answer_of(&mut world, kept)), RefusalCode::NotYielded);
        assert!(world.coverage(NEW, CoveragePoint::ForkTakenBack) > 0);
        let before = world.images_of(OLD);
        if !has_yielded {
            world.pass(SECOND);
            let to = tag(&world, NEW);
            assert_eq!(world.refusal(OLD, Command::Yield { to, by_policy: false }).code, RefusalCode::NotKept);
        }
        for _ in 0..3 {
            world.pass(5 * SECOND);
            world.flap([0, 1]);
        }
        world.pass(5 * SECOND);
        assert_eq!(world.images_of(OLD), before, "nothing is overwritten by an order that was taken back");
        assert_eq!(world.coverage(OLD, CoveragePoint::DeltaSaved), 0);
        let again = world.order(NEW, Command::TakeBack { over });
        assert!(matches!(again, CommandResult::Unchanged(_)), "{again:?}");
        if has_yielded {
            let kept = keep(&mut world, NEW, false);
            assert!(matches!(answer_of(&mut world, kept), CommandResult::Done(_)));
            world.drain();
        } else {
            resolve(&mut world, OLD);
        }
    }
}

#[test]
fn an_order_over_what_changed_since_comes_to_nothing() {
    let mut world = in_peace();
    assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
    let kept = keep(&mut world, NEW, false);
    // It had not written since.
    write_at(&mut world, OLD, 0, 0, 8 * KIB);
    assert_eq!(code(answer_of(&mut world, kept)), RefusalCode::ForkChanged);
}

/// Volumes whose last region is a partial one, with a tail that is no whole block.
#[test]
fn the_partial_end_of_a_volume_is_saved_too() {
    let shape = SimOptions { volume_bytes: 1024 * KIB + 512, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(shape);
    world.cut([false; 2]);
    world.write_done(0, 1023 * KIB, 1536);
    world.pass(10 * SECOND);
    world.promote(NEW, true);
    world.write_done(1, 1023 * KIB, 1536);
    meet(&mut world);
    resolve(&mut world, NEW);
}

/// After a fork that was resolved, a sync that is cut off in its midst can be gone back from; that is a fork again.
#[test]
fn the_copy_that_was_given_up_can_be_promoted_again_in_the_midst_of_its_sync() {
    let shape = SimOptions { bytes_per_s: 200_000, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(shape);
    world.cut([false; 2]);
    for n in 0..8 {
        world.write_done((n % 2) as u16, n * 100 * KIB, 64 * KIB);
    }
    world.pass(10 * SECOND);
    world.promote(NEW, true);
    world.write_done(0, 4 * KIB, 16 * KIB);
    meet(&mut world);
    let kept = keep(&mut world, NEW, false);
    yields(&mut world, OLD);
    assert!(matches!(answer_of(&mut world, kept), CommandResult::Done(_)));
    world.until("it is overwritten", |world| world.recorded(OLD).identity.inconsistent);
    world.crash(NEW, false, 20 * SECOND);
    world.pass(SECOND);
    assert!(!matches!(world.promote(OLD, true), CommandResult::Refused(_)));
    meet(&mut world);
    let over = tag(&world, NEW);
    let answer = world.order(OLD, Command::Keep { over, discard: true, by_policy: false });
    // It is not believed that the bits cover this one.
    assert!(matches!(answer, CommandResult::Refused(_)), "{answer:?}");
    assert!(!matches!(world.order(NEW, Command::Demote), CommandResult::Refused(_)));
    world.order(OLD, Command::Sync { full: true });
    world.until("in step", |world| world.glance(OLD, GROUP).is_some_and(|it| it.state == State::Replicating));
    world.drain();
}

/// Writers were answered alone while the queue kept the order: what they wrote has numbers of the run that the peer followed, and is
/// dirty once the order ends, whatever ends it.
#[test]
fn what_was_answered_alone_from_the_queue_is_one_side_of_a_fork() {
    for (mode, node) in [(Mode::Sync, OLD), (Mode::Sync, NEW), (Mode::Nearsync, OLD), (Mode::Nearsync, NEW)] {
        for crashes in [false, true] {
            let roomy = SimOptions { queue_bytes: 8 * MIB, wait_limit_ms: 30_000, ..options(mode, Policy::Degrade) };
            let mut world = ScenarioWorld::in_peace(SimOptions { degrade: Degrade::Queue, ..roomy });
            world.write_done(0, 0, 256 * KIB);
            world.drain();
            world.until("it promises", |world| world.figures(OLD).state == State::Replicating);
            world.cut([false; 2]);
            for n in 0..6 {
                world.write_done((n % 2) as u16, n * 100 * KIB, 20 * KIB);
            }
            assert!(world.coverage(OLD, CoveragePoint::WentOnAlone) > 0);
            world.pass(8 * SECOND);
            if crashes {
                world.crash(OLD, true, 2 * SECOND);
            }
            assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
            world.write_done(0, 40 * KIB, 16 * KIB);
            meet(&mut world);
            let sent = world.data_sent_bytes()[node];
            let kept = keep(&mut world, node, false);
            yields(&mut world, 1 - node);
            let answer = answer_of(&mut world, kept);
            assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
            world.drain();
            assert!(crashes || world.data_sent_bytes()[node] - sent < 1024 * KIB);
        }
    }
}

/// The same writes, and nobody gave an order before the old primary was demoted: they are named as a tail that the bits cover.
#[test]
fn a_tail_that_was_answered_alone_is_named_as_one_that_bits_cover() {
    let mut world = in_peace();
    world.cut([false; 2]);
    world.write_done(0, 0, 8 * KIB);
    world.pass(10 * SECOND);
    world.promote(NEW, true);
    world.write_done(1, 128 * KIB, 8 * KIB);
    meet(&mut world);
    assert!(!matches!(world.order(OLD, Command::Demote), CommandResult::Refused(_)));
    world.pass(5 * SECOND);
    let meeting = world.figures(NEW).meeting.expect("they have met");
    assert!(matches!(meeting.decision, Decision::NeedsFullSync(DecisionReason::Fork { by_bits: true, .. })));
    let over = tag(&world, OLD);
    let answer = world.order(NEW, Command::Keep { over, discard: false, by_policy: false });
    assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
    world.drain();
}

// proves: rule 12
/// One half fails in the midst of an order, and is started anew within the session: the order is over, and the same words do it then.
#[test]
fn a_half_that_is_reset_in_the_midst_of_an_order_ends_it() {
    let mut failed = [0; 2];
    for step in 0..14u64 {
        for node in [OLD, NEW] {
            let mut world = forked();
            let kept = keep(&mut world, NEW, false);
            yields(&mut world, OLD);
            world.pass(step * 300_000 + 1);
            world.cluster[node].storage.trouble.fail_next_record = true;
            world.pass(5 * SECOND);
            world.cluster[node].storage.trouble.fail_next_record = false;
            if node_failed(&world, node) {
                failed[node] += 1;
                let answer = world.order(node, Command::Reset { entropy: step });
                assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
                world.pass(5 * SECOND);
            }
            let done = match world.cluster.ledger.result(kept) {
                Some(result) => matches!(result, CommandResult::Done(_)),
                None => panic!("step {step}, node {node}: the order was never answered"),
            };
            let needs_order = world.figures(NEW).reason.contains("farshore resolve");
            if !done && needs_order {
                let over = tag(&world, OLD);
                let answer = world.order(NEW, Command::Keep { over, discard: false, by_policy: false });
                assert!(!matches!(answer, CommandResult::Refused(_)), "step {step} node {node}: {answer:?}");
            }
            world.drain();
        }
    }
    assert!(failed.iter().all(|count| *count > 0), "{failed:?}");
}

/// A fork was resolved, and the node that was given up follows. Then its machine is set back to a copy from before that: what it confirmed
/// of the other one's history since is dirty nowhere.
#[test]
fn a_copy_from_before_a_fork_was_resolved_is_not_resolved_by_bits() {
    for went_alone in [true, false] {
        let mut world = in_peace();
        world.pass(20 * SECOND);
        let mut copy = durable(&world, OLD);
        world.cut([false; 2]);
        if went_alone {
            // In a generation of its own.
            world.order(OLD, Command::Logging);
            world.write_done(0, 0, 8 * KIB);
            world.pass(10 * SECOND);
        }
        assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
        world.write_done(1, 320 * KIB, 24 * KIB);
        meet(&mut world);
        if went_alone {
            world.set_mode(GROUP, Mode::Async);
            world.pass(20 * SECOND);
            copy = durable(&world, OLD);
        }
        resolve(&mut world, NEW);
        world.write_done(0, 512 * KIB, 64 * KIB);
        world.drain();
        world.until("every bit is clear", |world| world.figures(NEW).volumes.iter().all(|v| v.dirty_bytes == 0));
        world.pass(20 * SECOND);
        world.cut([false; 2]);
        world.checkers.facts.add(KnownFact::Forked(GROUP));
        comes_back_as(&mut world, OLD, copy);
        meet(&mut world);
        for node in [NEW, OLD] {
            let over = tag(&world, 1 - node);
            let refusal = world.refusal(node, Command::Keep { over, discard: false, by_policy: false });
            assert_eq!(refusal.code, RefusalCode::ForkUnbounded, "{refusal}");
        }
        let is_primary = |node| world.glance(node, GROUP).is_some_and(|it| it.identity.role == Role::Primary);
        assert!((0..2).all(is_primary), "nobody was demoted for it");
    }
}

/// The other node was not demoted for the order, which was refused to whoever gave it: his next verb is not its second half.
#[test]
fn a_demotion_that_nobody_ordered_for_it_is_no_yield() {
    for discard in [true, false] {
        let mut world = forked();
        let kept = keep(&mut world, NEW, discard);
        assert!(!matches!(world.order(OLD, Command::Demote), CommandResult::Refused(_)));
        let theirs = world.images_of(OLD);
        assert_eq!(code(answer_of(&mut world, kept)), RefusalCode::NotYielded);
        world.pass(20 * SECOND);
        assert_eq!(world.images_of(OLD), theirs, "it was overwritten by an order that had been refused");
        assert_eq!(world.coverage(OLD, CoveragePoint::DeltaSaved), 0);
        // Whoever looks again, and orders it again, is heard.
        let over = tag(&world, OLD);
        let answer = world.order(NEW, Command::Keep { over, discard, by_policy: false });
        assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
        world.drain();
    }
}

/// The choice is on record, and before anything is sent the other machine is set back to when it was primary, and begins another run:
/// what it holds by then nobody has given up.
#[test]
fn a_choice_counts_over_what_the_other_node_held_then() {
    let mut world = forked();
    world.pass(20 * SECOND);
    let copy = durable(&world, OLD);
    let kept = keep(&mut world, NEW, false);
    yields(&mut world, OLD);
    assert!(matches!(answer_of(&mut world, kept), CommandResult::Done(_)));
    world.cut([false; 2]);
    assert_eq!(world.recorded(OLD).identity.generation.tag, tag(&world, OLD));
    world.pass(10 * SECOND);
    comes_back_as(&mut world, OLD, copy);
    meet(&mut world);
    assert!(!matches!(world.order(OLD, Command::Demote), CommandResult::Refused(_)));
    let theirs = world.images_of(OLD);
    world.pass(20 * SECOND);
    assert_eq!(world.images_of(OLD), theirs, "it was overwritten without an order");
}

/// Two operators far apart, each for his own node: neither node yields by a word that the other one has taken back meanwhile.
#[test]
fn two_orders_far_apart_demote_at_most_one() {
    let far = SimOptions { delay_ns: 100 * MILLISECOND, ..options(Mode::Async, Policy::Degrade) };
    for after in [5, 25, 50, 75, 95] {
        let mut world = ScenarioWorld::new(far.clone());
        world.until("they are connected", |world| world.figures(OLD).peer.role.is_some());
        let answer = world.order(OLD, Command::Sync { full: true });
        assert!(!matches!(answer, CommandResult::Refused(_)), "{answer:?}");
        world.until("it serves", |world| world.serves(GROUP));
        world.write_done(0, 0, 64 * KIB);
        world.drain();
        let mut world = forked_from(world);
        world.pass(2 * SECOND);
        let tags = [0, 1].map(|node| tag(&world, node));
        for node in [0, 1] {
            world.command(node, GROUP, Command::Keep { over: tags[1 - node], discard: false, by_policy: false });
        }
        world.pass((100 + after) * MILLISECOND);
        for node in [0, 1] {
            world.command(node, GROUP, Command::Yield { to: tags[1 - node], by_policy: false });
        }
        world.pass(5 * SECOND);
        assert!((0..2).any(|node| world.cluster[node].serves(GROUP)), "after {after} ms nobody serves");
    }
}

// proves: rule 15
/// While an order stands nothing else may send to the other node, or take over from this one; and no fork is resolved beside a handover.
#[test]
fn an_order_stands_alone_beside_handovers_verifies_and_syncs() {
    let beside = |world: &mut ScenarioWorld, node: usize, code: RefusalCode| {
        let to = NodeId(1 - node as u16);
        let limit = Duration::from_secs(2);
        let verify =
            VerifyOrder { repair: true, sample_percent: 100, rate_bytes_per_s: None, entropy: 1, by_timer: false };
        for command in [
            Command::Sync { full: true },
            Command::Sync { full: false },
            Command::BringUpToDate,
            Command::Switchover { to, limit, closes_export: false, only_asks: false },
            Command::Verify(verify),
            Command::AssumeEqual,
        ] {
            assert_eq!(world.refusal(node, command.clone()).code, code, "{command:?}");
        }
    };
    let mut world = forked();
    let theirs = world.images_of(OLD);
    let kept = keep(&mut world, NEW, false);
    beside(&mut world, NEW, RefusalCode::RoleChanging);
    world.cluster[OLD].storage.trouble.delta_full_until = FOR_EVER;
    yields(&mut world, OLD);
    world.until("it has yielded", |world| {
        let shown = world.glance(NEW, GROUP).is_some_and(|it| it.state != State::Logging);
        shown || world.cluster.ledger.result(kept).is_some() || world.figures(NEW).peer.role == Some(Role::Secondary)
    });
    if world.cluster.ledger.result(kept).is_none() {
        beside(&mut world, NEW, RefusalCode::RoleChanging);
    }
    assert_eq!(code(answer_of(&mut world, kept)), RefusalCode::DeltaSpace);
    assert_eq!(world.images_of(OLD), theirs);
    world.cluster[OLD].storage.trouble.delta_full_until = 0;
    let over = tag(&world, OLD);
    assert!(matches!(
        world.order(NEW, Command::Keep { over, discard: false, by_policy: false }),
        CommandResult::Done(_)
    ));
    world.drain();
    // And the other way round: both orders are refused in the midst of a handover.
    let tags = [0, 1].map(|node| tag(&world, node));
    let (to, limit) = (NodeId(OLD as u16), Duration::from_secs(2));
    world.command(NEW, GROUP, Command::Switchover { to, limit, closes_export: false, only_asks: false });
    let keeps = Command::Keep { over: tags[OLD], discard: false, by_policy: false };
    for command in [keeps, Command::Yield { to: tags[OLD], by_policy: false }] {
        let refusal = world.refusal(NEW, command);
        assert!(matches!(refusal.code, RefusalCode::RoleChanging | RefusalCode::NoFork), "{refusal}");
    }
    world.pass(5 * SECOND);
    world.drain();
}

/// A verify that waits for its peer outlives the fork: the sync that resolves it comes first.
#[test]
fn a_verify_that_waits_goes_on_behind_the_sync_that_resolves_a_fork() {
    let mut world = in_peace();
    world.cut([false; 2]);
    world.write_done(0, 0, 8 * KIB);
    world.pass(10 * SECOND);
    let verify =
        VerifyOrder { repair: false, sample_percent: 100, rate_bytes_per_s: None, entropy: 1, by_timer: false };
    assert!(!matches!(world.order(OLD, Command::Verify(verify)), CommandResult::Refused(_)));
    assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
    world.write_done(1, 128 * KIB, 8 * KIB);
    meet(&mut world);
    resolve(&mut world, OLD);
    world.until("the verify has ended", |world| world.figures(OLD).verify.is_none());
    world.drain();
}

/// The disk on which the other node saves does not answer: the order ends in words, and nothing was overwritten.
#[test]
fn a_delta_that_is_never_saved_ends_the_order() {
    let mut world = forked();
    let theirs = world.images_of(OLD);
    let kept = keep(&mut world, NEW, false);
    yields(&mut world, OLD);
    world.cluster[OLD].storage.trouble.stalled_until = world.now() + 200 * SECOND;
    assert_eq!(code(answer_of(&mut world, kept)), RefusalCode::DeltaFailed);
    assert_eq!(world.images_of(OLD), theirs);
    // It answers again, to nobody; and the same words do it.
    world.pass(200 * SECOND);
    assert_eq!(world.images_of(OLD), theirs);
    let over = tag(&world, OLD);
    assert!(matches!(
        world.order(NEW, Command::Keep { over, discard: false, by_policy: false }),
        CommandResult::Done(_)
    ));
    world.drain();
}
