//! `assume-equal`: an operator declares that two copies without a common history hold the same.

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, RefusalCode, Store, VerifyOrder, VolumeId};
use sim::actors::operator::Operator;
use sim::checkers::facts::KnownFact;
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options, state};

const FULL: VerifyOrder =
    VerifyOrder { rate_bytes_per_s: None, sample_percent: 100, repair: false, entropy: 7, by_timer: false };

/// Two new nodes, whose volumes hold the same; somebody copied them by hand.
fn copied_by_hand(options: SimOptions) -> ScenarioWorld {
    let mut world = ScenarioWorld::new(options);
    for volume in 0..2 {
        let store = Store::Volume(GROUP, VolumeId(volume));
        let content = world.cluster[0].disk(store).durable().to_vec();
        world.cluster[1].disk_mut(store).restore(content);
    }
    world.until("they have met", |world| world.figures(0).reason.contains("never been synced"));
    world
}

/// One byte of the peer's second volume is another one.
fn spoils_peer(world: &mut ScenarioWorld) {
    let store = Store::Volume(GROUP, VolumeId(1));
    let mut content = world.cluster[1].disk(store).durable().to_vec();
    content[70_000] ^= 1;
    world.cluster[1].disk_mut(store).restore(content);
}

/// They were in step; then the peer's records were replaced, and its volumes are what they were.
fn with_a_blank_peer(options: SimOptions) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options);
    loses_records(&mut world);
    world
}

fn loses_records(world: &mut ScenarioWorld) {
    world.checkers.facts.add(KnownFact::Spoiled(GROUP, 1));
    Operator::replaces_spoiled_records(world, 1);
    world.pass(10 * SECOND);
}

fn declared(world: &mut ScenarioWorld) {
    let mut result = world.order(0, Command::AssumeEqual);
    if matches!(&result, CommandResult::Refused(refusal) if refusal.code == RefusalCode::GroupStarting) {
        // After a power loss it is recorded first that the peer has nothing to give back.
        world.pass(SECOND);
        result = world.order(0, Command::AssumeEqual);
    }
    assert!(matches!(result, CommandResult::Done(_)), "{result:?}");
}

fn is_assumed(world: &ScenarioWorld) -> [bool; 2] {
    [0, 1].map(|node| world.recorded(node).doubts.assumed_equal)
}

// proves: P3
#[test]
fn two_equal_copies_without_a_common_history_are_declared_equal() {
    let mut world = copied_by_hand(options(Mode::Async, Policy::Degrade));
    declared(&mut world);
    world.drain();
    let figures = world.figures(0);
    assert_eq!((figures.state, figures.shipped_bytes), (State::Replicating, 0), "nothing travels");
    assert_eq!(world.coverage(0, CoveragePoint::AssumedEqual), 1);
    assert!(matches!(world.order(0, Command::AssumeEqual), CommandResult::Unchanged(_)));
    world.pass(3 * SECOND);
    assert_eq!(is_assumed(&world), [true; 2], "both know that nobody has compared them");
    for n in 0..8 {
        world.write_done(0, n * 100 * KIB, 16 * KIB);
    }
    world.drain();
    // It stays so through a change of roles and power losses, and after a sample.
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    assert!(matches!(world.promote(1, false), CommandResult::Done(_)));
    world.drain();
    world.crash(0, true, SECOND);
    world.crash(1, true, SECOND);
    world.drain();
    let verify = |world: &mut ScenarioWorld, order| {
        assert!(!matches!(world.order(1, Command::Verify(order)), CommandResult::Refused(_)));
        world.until("the verify is over", |world| world.figures(1).verify.is_none());
        world.pass(3 * SECOND);
    };
    verify(&mut world, VerifyOrder { sample_percent: 50, ..FULL });
    assert_eq!(is_assumed(&world), [true; 2]);
    verify(&mut world, FULL);
    assert_eq!(is_assumed(&world), [false; 2]);
    assert_eq!(world.figures(1).verified.map(|verified| verified.totals.differing_bytes), Some(0));
}

/// What is written while the declaration is being recorded goes over.
#[test]
fn writes_under_way_in_that_moment_are_sent() {
    for after_ms in 0..12 {
        let mut world = copied_by_hand(options(Mode::Async, Policy::Degrade));
        world.until("the export is open", |world| world.serves(GROUP));
        world.cluster[0].storage.trouble.slow_until = world.now() + SECOND / 5;
        for n in 0..4 {
            world.write((n % 2) as u16, n * 64 * KIB, 16 * KIB);
        }
        let id = world.command(0, GROUP, Command::AssumeEqual);
        for n in 4..8 {
            world.write((n % 2) as u16, n * 64 * KIB, 16 * KIB);
            world.pass(after_ms * MILLISECOND);
        }
        world.until("it is answered", |world| world.cluster.ledger.result(id).is_some());
        world.drain();
    }
}

// proves: P3
/// The link is lost, or a node dies, before the peer has heard of it: it is typed again, and what was written in between goes over.
#[test]
fn a_declaration_that_came_to_nothing_can_be_repeated() {
    for (node, power) in [(1, false), (0, false), (0, true)] {
        for after in [0, 1, 2, 5, 10] {
            let mut world = copied_by_hand(options(Mode::Async, Policy::Degrade));
            world.command(0, GROUP, Command::AssumeEqual);
            world.pass(after * MILLISECOND / 2);
            world.crash(node, power, SECOND);
            world.pass(8 * SECOND);
            if state(&world) == Some(State::Logging) {
                world.until("the export is open", |world| world.serves(GROUP));
                if is_assumed(&world)[0] {
                    world.write_done(0, 0, 64 * KIB);
                }
                declared(&mut world);
            }
            world.drain();
            assert!(is_assumed(&world)[0]);
        }
    }
}

// proves: P3
/// Whoever was wrong learns it by a verify, and mends it.
#[test]
fn a_wrong_declaration_is_found_by_a_verify() {
    let mut world = copied_by_hand(options(Mode::Async, Policy::Degrade));
    spoils_peer(&mut world);
    world.command(0, GROUP, Command::AssumeEqual);
    world.pass_unchecked(5 * SECOND);
    assert_eq!(state(&world), Some(State::Replicating));
    world.command(0, GROUP, Command::Verify(VerifyOrder { repair: true, ..FULL }));
    world.pass_unchecked(10 * SECOND);
    let verified = world.figures(0).verified.expect("over");
    assert_eq!(verified.totals.differing_bytes, 4 * KIB);
    assert_eq!((verified.named[0].volume, verified.named[0].offset), (VolumeId(1), 68 * KIB));
    assert_eq!(verified.totals.left_bytes(), 0);
    assert!(!world.figures(0).doubts.any());
    world.drain();
    assert!(world.images_of(0) == world.images_of(1));
}

#[test]
fn what_cannot_be_equal_is_not_declared_so() {
    let refused = |world: &mut ScenarioWorld, node, code| {
        assert_eq!(world.refusal(node, Command::AssumeEqual).code, code);
    };
    let mut world = copied_by_hand(options(Mode::Async, Policy::Degrade));
    refused(&mut world, 1, RefusalCode::NotPrimary);
    world.cut([false; 2]);
    world.pass(8 * SECOND);
    refused(&mut world, 0, RefusalCode::PeerAway);
    world.restore_path();
    world.set_mode(GROUP, Mode::Logging);
    refused(&mut world, 0, RefusalCode::ModeLogging);
    world.set_mode(GROUP, Mode::Async);
    world.pass(SECOND);
    assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
    world.drain();
    refused(&mut world, 0, RefusalCode::NotUnrelated);
    // Both went on alone.
    world.cut([false; 2]);
    world.pass(8 * SECOND);
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
    world.restore_path();
    world.pass(2 * SECOND);
    refused(&mut world, 1, RefusalCode::HistoriesApart);
    assert!(!is_assumed(&world).contains(&true));
    let mut world = copied_by_hand(SimOptions { extra_bytes: [0, MIB], ..options(Mode::Async, Policy::Degrade) });
    refused(&mut world, 0, RefusalCode::NotAlike);
}

// proves: P3, rule 6
/// Two orders in one moment: whatever the declaration comes to, a full sync that was ordered sends all there is.
#[test]
fn a_full_sync_ordered_beside_a_declaration_sends_everything() {
    let full = || Command::Sync { full: true };
    for seed in 0..60 {
        let full_first = seed % 4 < 2;
        let mut world = with_a_blank_peer(SimOptions { seed: 2 * seed, ..options(Mode::Async, Policy::Degrade) });
        spoils_peer(&mut world);
        world.cluster[0].storage.trouble.slow_until = world.now() + 10 * SECOND;
        let [first, second] = if full_first { [full(), Command::AssumeEqual] } else { [Command::AssumeEqual, full()] };
        let first = world.command(0, GROUP, first);
        world.pass_unchecked(seed / 4 * MILLISECOND);
        let ids = [first, world.command(0, GROUP, second)];
        world.pass_unchecked(30 * SECOND);
        let answers = ids.map(|id| world.cluster.ledger.result(id).cloned());
        let what = format!("seed {seed}: {answers:?}");
        assert_eq!(state(&world), Some(State::Replicating), "{what}");
        assert!(world.images_of(0) == world.images_of(1), "{what}");
        assert_eq!(is_assumed(&world), [false; 2], "{what}");
    }
}

/// An order that came behind it counts: nothing is sent before the next one.
#[test]
fn logging_ordered_behind_a_declaration_holds_the_group() {
    for after in 0..12 {
        let mut world = copied_by_hand(options(Mode::Async, Policy::Degrade));
        world.command(0, GROUP, Command::AssumeEqual);
        world.pass(after * MILLISECOND / 4);
        assert!(!matches!(world.order(0, Command::Logging), CommandResult::Refused(_)));
        world.pass(5 * SECOND);
        assert_eq!(state(&world), Some(State::Logging), "after {after}");
        // It may have taken up this history before.
        if matches!(world.order(0, Command::AssumeEqual), CommandResult::Unchanged(_)) {
            assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
        }
        world.drain();
        assert_eq!(is_assumed(&world), [true; 2]);
    }
}

#[test]
fn a_declaration_can_be_repeated_before_its_answer() {
    let mut world = copied_by_hand(options(Mode::Async, Policy::Degrade));
    let ids = [0, 1].map(|_| world.command(0, GROUP, Command::AssumeEqual));
    world.drain();
    for id in ids {
        let result = world.cluster.ledger.result(id).cloned();
        assert!(matches!(result, Some(CommandResult::Done(_) | CommandResult::Unchanged(_))), "{result:?}");
    }
}

// proves: P3
/// The copy is replaced in the midst of a verify, and the new one declared equal: what was compared was another copy.
#[test]
fn a_verify_of_the_copy_before_says_nothing_of_one_that_was_declared_equal() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    let slow = VerifyOrder { rate_bytes_per_s: Some(512 * KIB), ..FULL };
    assert!(matches!(world.order(0, Command::Verify(slow)), CommandResult::Done(_)));
    world.pass(3 * SECOND);
    assert!(world.figures(0).verify.is_some_and(|verify| verify.totals.compared_bytes > MIB));
    loses_records(&mut world);
    // Of the volume that was compared already.
    let store = Store::Volume(GROUP, VolumeId(0));
    let mut content = world.cluster[0].disk(store).durable().to_vec();
    content[100] ^= 1;
    world.cluster[1].disk_mut(store).restore(content);
    declared(&mut world);
    for _ in 0..200 {
        world.pass_unchecked(SECOND / 10);
    }
    assert!(world.figures(0).verify.is_none(), "it is over");
    let verified = world.figures(0).verified.expect("over");
    assert_eq!((verified.totals.compared_bytes, verified.totals.differing_bytes), (2 * MIB, 4 * KIB));
    assert!(world.figures(0).doubts.differs);
}

// proves: P3
/// A full sync is ordered and taken back, and its bits are stored only when the declaration is being recorded.
#[test]
fn a_full_sync_that_was_taken_back_does_not_take_the_doubt_with_it() {
    for seed in 0..60 {
        let mut world = with_a_blank_peer(SimOptions { seed: 2 * seed, ..options(Mode::Async, Policy::Degrade) });
        world.cluster[0].storage.trouble.slow_until = world.now() + 10 * SECOND;
        world.command(0, GROUP, Command::Sync { full: true });
        world.pass(seed / 8 * MILLISECOND);
        world.command(0, GROUP, Command::Logging);
        world.pass(seed % 8 * MILLISECOND);
        let id = world.command(0, GROUP, Command::AssumeEqual);
        world.pass(20 * SECOND);
        let result = world.cluster.ledger.result(id).cloned();
        let is_done = matches!(result, Some(CommandResult::Done(_)));
        assert_eq!(is_assumed(&world)[0], is_done, "seed {seed}: {result:?}");
    }
}

// proves: P3
/// The disk of before is put back before the copy that was declared equal has taken up the history: what was written since is dirty nowhere
/// any more, and no update sync is enough.
#[test]
fn the_copy_from_before_the_declaration_is_not_taken_for_the_one_that_was_declared_equal() {
    for lies_alone in [false, true] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
        world.write_done(0, 0, 64 * KIB);
        world.drain();
        let old: Vec<_> =
            world.cluster[1].storage.disks().map(|(store, disk)| (*store, disk.durable().to_vec())).collect();
        if lies_alone {
            world.cut([false; 2]);
            world.pass(10 * SECOND);
        }
        world.write_done(0, 512 * KIB, 64 * KIB);
        let flush = world.flush(0);
        assert!(world.answer(flush).0);
        world.cut([false; 2]);
        loses_records(&mut world);
        for volume in 0..2 {
            let store = Store::Volume(GROUP, VolumeId(volume));
            let content = world.cluster[0].disk(store).durable().to_vec();
            world.cluster[1].disk_mut(store).restore(content);
        }
        world.restore_path();
        world.until("they have met", |world| {
            world.figures(0).state == State::Logging && world.figures(0).peer.role.is_some()
        });
        world.pass(3 * SECOND);
        world.command(0, GROUP, Command::AssumeEqual);
        while world.coverage(0, CoveragePoint::AssumedEqual) == 0 {
            world.pass(10_000);
        }
        world.cut([false; 2]);
        world.crash(1, true, 3 * SECOND);
        for (store, content) in old {
            world.cluster[1].disk_mut(store).restore(content);
        }
        world.checkers.facts.add(KnownFact::Spoiled(GROUP, 1));
        world.pass(8 * SECOND);
        world.restore_path();
        world.pass(10 * SECOND);
        let is_equal = world.images_of(0) == world.images_of(1);
        assert!(is_equal || state(&world) == Some(State::Logging), "alone {lies_alone}: {:?}", state(&world));
    }
}
