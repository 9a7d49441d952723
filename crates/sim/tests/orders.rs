//! What an operator ordered, and was told had begun, is carried out whatever else happens in that moment; what he sets counts
//! from then on, and what he is told is true.

use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult};
use sim::actors::operator::Operator;
use sim::checkers::facts::KnownFact;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options, state};

fn goes_on(world: &mut ScenarioWorld) {
    world.pass(60 * SECOND);
    assert_eq!(state(world), Some(State::Replicating), "{}", world.figures(0).reason);
}

/// In step; from here on nothing begins by itself.
fn without_autosync(options: SimOptions) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options);
    world.set(GROUP, |settings| settings.autosync = false);
    world.pass(SECOND);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.pass(SECOND);
    world
}

/// The peer's state directory was replaced: only a full sync makes it whole.
fn with_a_blank_peer() -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.checkers.facts.add(KnownFact::Spoiled(GROUP, 1));
    Operator::replaces_spoiled_records(&mut world, 1);
    world.pass(10 * SECOND);
    world
}

fn full_sync_beside_the_first_write(world: &mut ScenarioWorld) {
    let sync = world.command(0, GROUP, Command::Sync { full: true });
    world.write_done(0, 0, 4 * KIB);
    world.until("it is answered", |world| world.cluster.ledger.result(sync).is_some());
    assert!(matches!(world.cluster.ledger.result(sync), Some(CommandResult::Done(_))));
}

/// While it stores its bits the first write alone has a generation recorded, and then the peer is told of that.
#[test]
fn a_full_sync_survives_the_first_write_alone() {
    for mut world in [without_autosync(options(Mode::Async, Policy::Degrade)), with_a_blank_peer()] {
        full_sync_beside_the_first_write(&mut world);
        goes_on(&mut world);
    }
}

/// There is so much to send that it goes by snapshots, and it begins while the generation is being recorded.
#[test]
fn an_update_sync_by_snapshots_survives_the_first_write_alone() {
    let slow = SimOptions { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) };
    let mut world = without_autosync(slow);
    for volume in 0..2 {
        for region in 0..32 {
            world.write_done(volume, region * 32 * KIB, 4 * KIB);
        }
    }
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.until("regions travel", |world| {
        world.figures(0).sync.is_some_and(|sync| sync.snapshot.is_some() && sync.done_bytes > 200 * KIB)
    });
    // The operator needs the link for something else for a while.
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.pass(10 * SECOND);
    world.cluster[0].storage.trouble.slow_until = world.now() + 30 * MILLISECOND;
    let id = world.write(0, 0, 4 * KIB);
    world.pass(MILLISECOND);
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    assert!(world.answer(id).0);
    goes_on(&mut world);
}

/// At every moment up to the peer's word that it is ready.
#[test]
fn a_full_sync_survives_a_link_that_goes_while_it_begins() {
    for instant in 0..16 {
        let mut world = with_a_blank_peer();
        let sync = world.command(0, GROUP, Command::Sync { full: true });
        world.pass(instant * MILLISECOND / 4);
        world.cut([false; 2]);
        world.pass(10 * SECOND);
        assert!(matches!(world.cluster.ledger.result(sync), Some(CommandResult::Done(_))));
        world.restore_path();
        goes_on(&mut world);
    }
}

/// The peer's disk stands still as it is to take up the sync: the attempt is given up, the order is not.
#[test]
fn a_full_sync_survives_a_peer_that_stands_still_while_it_begins() {
    let mut world = with_a_blank_peer();
    world.cluster[1].storage.trouble.stalled_until = world.now() + 100 * SECOND;
    assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
    world.pass(240 * SECOND);
    goes_on(&mut world);
}

/// A peer that stands still, and a write that waits for it under this policy.
fn held(policy: Policy) -> (ScenarioWorld, engine::RequestId) {
    let mut world = ScenarioWorld::in_peace(SimOptions { wait_limit_ms: 15_000, ..options(Mode::Sync, policy) });
    world.cluster[1].storage.trouble.stalled_until = world.now() + 40 * SECOND;
    let id = world.write(0, 0, 4 * KIB);
    world.pass(500 * MILLISECOND);
    assert_eq!(world.reply(id), None);
    (world, id)
}

/// Writers who wait for a slow peer are answered when the mode becomes `async`: otherwise they go on waiting, and their `wait_limit`
/// throws the queue away.
#[test]
fn writers_go_on_when_the_mode_becomes_async() {
    for policy in [Policy::Degrade, Policy::Strict] {
        let (mut world, id) = held(policy);
        world.set(GROUP, |settings| settings.mode = Mode::Async);
        assert_eq!(world.reply(id), Some(true), "not only those that come later");
        world.drain();
    }
}

/// Nobody waits any more whose limit could run out: the queue keeps the order.
#[test]
fn a_queue_is_kept_when_the_mode_became_async_before_the_link_went() {
    let (mut world, _) = held(Policy::Strict);
    world.set(GROUP, |settings| settings.mode = Mode::Async);
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    assert_eq!(state(&world), Some(State::Queuing), "{}", world.figures(0).reason);
}

/// The peer's journal stands still, which `nearsync` does not need: neither those who wait nor those who come wait for it, and
/// under `strict` nobody is failed whose write the peer has received.
#[test]
fn writers_go_on_when_the_mode_becomes_nearsync() {
    for policy in [Policy::Degrade, Policy::Strict] {
        let (mut world, first) = held(policy);
        world.set(GROUP, |settings| settings.mode = Mode::Nearsync);
        world.pass(100 * MILLISECOND);
        let second = world.write(0, 64 * KIB, 4 * KIB);
        world.pass(5 * SECOND);
        assert_eq!((world.reply(first), world.reply(second)), (Some(true), Some(true)), "{:?}", state(&world));
        world.drain();
    }
}

#[test]
fn autosync_begins_what_is_due_when_it_is_switched_on() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    world.set(GROUP, |settings| settings.autosync = false);
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    world.write_done(0, 0, 4 * KIB);
    world.restore_path();
    world.pass(20 * SECOND);
    assert_eq!(world.figures(0).reason, "waiting for 'sync': autosync is off");
    world.set(GROUP, |settings| settings.autosync = true);
    goes_on(&mut world);
}

/// `logging`, nothing is written, `demote`, and then `promote` at the peer: both are equal and connected.
#[test]
fn a_demotion_from_logging_without_a_write_hands_over() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    world.pass(10 * SECOND);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.pass(10 * SECOND);
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    world.pass(SECOND);
    assert!(matches!(world.promote(1, false), CommandResult::Done(_)));
    world.drain();
}

// proves: rule 14, rule 15
/// With a write it does not.
#[test]
fn a_demotion_from_logging_after_a_write_does_not() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.write_done(0, 0, 4 * KIB);
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
    world.pass(SECOND);
    world.refused(1, Command::Promote { force: false, entropy: 7 });
}

#[test]
fn sync_during_a_pause_reports_what_it_waits_for() {
    let tight = SimOptions { bytes_per_s: 100_000, history_bytes: 160 * KIB, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(tight);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..14u64 {
        world.write_done((n % 2) as u16, n * 60 * KIB, 36 * KIB);
    }
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.until("paused", |world| matches!(state(world), Some(State::Paused(_))));
    let CommandResult::Done(reply) = world.order(0, Command::Sync { full: false }) else { panic!("refused") };
    assert!(reply.contains("paused: history full"), "{reply}");
}

#[test]
fn the_mode_logging_is_the_reason_also_after_the_link_was_lost() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.set(GROUP, |settings| settings.mode = Mode::Logging);
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    world.restore_path();
    world.pass(20 * SECOND);
    assert_eq!(world.figures(0).reason, "mode is logging");
}

// proves: P1
/// A write that is under way on the local disk when the mode becomes `sync` is answered under no promise that it does not keep.
#[test]
fn what_is_answered_while_replicating_in_sync_is_on_the_own_disk() {
    for seed in 1..=20u64 {
        let mut world = ScenarioWorld::in_peace(SimOptions { seed: 2 * seed, ..options(Mode::Async, Policy::Degrade) });
        // The extent is hot, and nothing is unflushed.
        world.write_done(0, 128 * KIB, 4 * KIB);
        world.pass(10 * SECOND);
        world.cluster[0].storage.trouble.stalled_until = world.now() + 100 * MILLISECOND;
        let id = world.write(0, 0, 64 * KIB);
        world.pass(MILLISECOND);
        world.set(GROUP, |settings| settings.mode = Mode::Sync);
        world.until("the promise holds", |world| state(world) == Some(State::Replicating));
        assert!(world.answer(id).0);
        let before = world.images_of(0)[0][..64 << 10].to_vec();
        world.crash(0, true, FOR_EVER);
        assert!(world.images_of(0)[0][..64 << 10] == before[..], "seed {seed}");
    }
}

// proves: rule 14, rule 15
/// Its peer is not what it was: somebody replaced it.
#[test]
fn a_demotion_from_logging_beside_a_blank_peer_does_not() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.checkers.facts.add(KnownFact::Spoiled(GROUP, 1));
    Operator::replaces_spoiled_records(&mut world, 1);
    world.pass(10 * SECOND);
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
}

/// Autosync is off: the order alone has it begin again.
#[test]
fn an_ordered_sync_survives_what_interrupts_its_begin_without_autosync() {
    for instant in 0..8 {
        let mut world = without_autosync(options(Mode::Async, Policy::Degrade));
        let sync = world.command(0, GROUP, Command::Sync { full: true });
        world.pass(instant * MILLISECOND / 4);
        world.cut([false; 2]);
        world.pass(10 * SECOND);
        assert!(matches!(world.cluster.ledger.result(sync), Some(CommandResult::Done(_))));
        world.restore_path();
        goes_on(&mut world);
    }
    for full in [false, true] {
        let mut world = without_autosync(options(Mode::Async, Policy::Degrade));
        world.write_done(0, 0, 64 * KIB);
        world.cluster[1].storage.trouble.stalled_until = world.now() + 100 * SECOND;
        assert!(matches!(world.order(0, Command::Sync { full }), CommandResult::Done(_)));
        world.pass(240 * SECOND);
        goes_on(&mut world);
    }
}

/// A link that goes before the peer has taken up what was ordered.
#[test]
fn an_ordered_sync_survives_a_link_that_goes_at_once_without_autosync() {
    for full in [false, true] {
        let mut world = without_autosync(options(Mode::Async, Policy::Degrade));
        world.write_done(0, 0, 64 * KIB);
        world.pass(SECOND);
        let sync = world.command(0, GROUP, Command::Sync { full });
        world.cut([false; 2]);
        world.pass(10 * SECOND);
        assert!(matches!(world.cluster.ledger.result(sync), Some(CommandResult::Done(_))));
        world.restore_path();
        goes_on(&mut world);
    }
}

/// The peer has taken up the new history, and its word that it is ready is lost.
#[test]
fn an_ordered_full_sync_survives_when_the_peers_word_is_lost() {
    let mut world = without_autosync(options(Mode::Async, Policy::Degrade));
    world.write_done(0, 0, 64 * KIB);
    world.pass(SECOND);
    let order = world.command(0, GROUP, Command::Sync { full: true });
    world.cut([true, false]);
    world.until("taken up", |world| world.recorded(1).identity.inconsistent);
    world.until("given up", |world| state(world) == Some(State::Logging));
    assert!(matches!(world.cluster.ledger.result(order), Some(CommandResult::Done(_))));
    assert_eq!(world.recorded(1).identity.generation, world.recorded(0).identity.generation);
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    world.restore_path();
    goes_on(&mut world);
}

/// Autosync is off, and `sync` alone would be refused.
#[test]
fn the_reason_names_the_full_sync_that_is_needed() {
    let mut world = with_a_blank_peer();
    world.set(GROUP, |settings| (settings.autosync, settings.mode) = (false, Mode::Sync));
    world.pass(SECOND);
    assert!(world.figures(0).reason.contains("--full"), "{}", world.figures(0).reason);
    assert!(world.refused(0, Command::Sync { full: false }).contains("--full"));
}

#[test]
fn a_sync_typed_without_the_peer_is_on_record_before_it_is_answered() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    let id = world.command(0, GROUP, Command::Sync { full: false });
    world.until("it is answered", |world| world.cluster.ledger.result(id).is_some());
    assert!(format!("{:?}", world.cluster.ledger.result(id)).contains("begins by itself"));
    world.crash(0, false, SECOND);
    world.pass(5 * SECOND);
    world.restore_path();
    goes_on(&mut world);
}

/// A full sync waits until it is on record that nothing is fetched from the peer; it is called off, and another sync is ordered.
#[test]
fn a_sync_after_a_full_one_that_was_called_off_begins() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..24 {
        world.write_done(n % 2, u64::from(n) * 32 * KIB, 16 * KIB);
    }
    world.pass(200 * MILLISECOND);
    world.cut([false; 2]);
    world.crash(0, true, SECOND);
    world.until("it serves", |world| world.cluster[0].serves(GROUP));
    world.restore_path();
    world.pass(20 * SECOND);
    world.cluster[0].storage.trouble.slow_until = world.now() + 3 * SECOND;
    for command in [Command::Sync { full: true }, Command::Logging, Command::Sync { full: false }] {
        world.command(0, GROUP, command);
        world.pass(MILLISECOND);
    }
    goes_on(&mut world);
}

/// The link was down when the peer was promoted: who is demoted then is not told that this is still to be forced.
#[test]
fn a_demotion_without_the_peer_claims_nothing_of_its_role() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cut([false; 2]);
    world.pass(30 * SECOND);
    let entropy = world.rng.draw();
    assert!(matches!(world.order(1, Command::Promote { force: true, entropy }), CommandResult::Warning(_)));
    let CommandResult::Warning(said) = world.order(0, Command::Demote) else {
        panic!("it is not known who has everything")
    };
    assert!(said.contains("a promotion there, if the peer is not primary already, needs --force"), "{said}");
}

/// The group was handed over, and while the disk there is slow to record the promotion the other node takes its demotion back by force.
#[test]
fn a_promotion_says_that_the_peer_was_promoted_meanwhile() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    world.cluster[1].storage.trouble.slow_until = world.now() + SECOND;
    let entropy = world.rng.draw();
    let unforced = world.command(1, GROUP, Command::Promote { force: false, entropy });
    assert!(!matches!(world.promote(0, true), CommandResult::Refused(_)));
    world.until("it is answered", |world| world.cluster.ledger.result(unforced).is_some());
    let CommandResult::Warning(said) = world.cluster.ledger.result(unforced).expect("answered") else {
        panic!("it heard of the other primary: {:?}", world.cluster.ledger.result(unforced))
    };
    assert!(said.contains("both nodes are primary") && !said.contains("nothing is missing"), "{said}");
}

/// A demotion that was over at once leaves its timer; the next one, of a peer that confirms nothing, ends by its own all the same.
#[test]
fn a_demotion_soon_after_another_ends_in_its_time() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    world.pass(3 * SECOND);
    assert!(!matches!(world.promote(0, true), CommandResult::Refused(_)));
    world.until("in step", |world| world.in_step());
    world.cluster[1].storage.trouble.stalled_until = world.now() + 60 * SECOND;
    world.write_done(0, 0, 64 * 1024);
    world.pass(SECOND);
    let id = world.command(0, GROUP, Command::Demote);
    world.pass(12 * SECOND);
    assert!(world.cluster.ledger.result(id).is_some(), "{}", world.figures(0).reason);
}
