//! What a secondary keeps because its primary may lose it: exactly what it made durable above what the primary forgot and
//! what the primary flushed. Less, and an acknowledged write is lost with the primary's power; more, and an old write comes
//! back over a newer one.

use engine::identity::Role;
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, Store, VolumeId};
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, loses_power, options, serves};

fn asks_its_operator(world: &ScenarioWorld) -> bool {
    world.figures(0).reason.contains("cannot be known")
}

// proves: P1, P4
/// A frame leaves with the word that it is flushed already: the peer keeps nothing of it, for the primary forgets it. The
/// next overwrite of that place is flushed without a record, and an older write that was kept would be fetched over it.
#[test]
fn a_write_that_was_flushed_before_it_was_sent_is_not_kept() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.pass(30 * SECOND);
    world.cut([false; 2]);
    let older = world.write(0, 0, 16 * KIB);
    assert!(world.answer(older).0);
    let flush = world.flush(0);
    assert!(world.answer(flush).0);
    world.until("the queue waits", |world| world.figures(0).state == State::Queuing);
    world.restore_path();
    world.until("the peer has it", |world| world.in_step());
    world.pass(30 * SECOND);
    world.cut([false; 2]);
    world.until("the queue waits", |world| world.figures(0).state == State::Queuing);
    world.write_done(0, 0, 16 * KIB);
    let flush = world.flush(0);
    assert!(world.answer(flush).0);
    let held = world.images_of(0);
    loses_power(&mut world);
    world.restore_path();
    world.until("its export is open", serves);
    assert!(world.images_of(0) == held, "an older write came back over one whose flush was acknowledged");
    world.drain();
}

/// The secondary's journal is full of what the primary has not flushed, and more was received.
fn full_journal(mode: Mode) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(SimOptions {
        journal_bytes: 384 * KIB,
        window_bytes: 192 * KIB,
        start_alone_ms: 600_000,
        wait_limit_ms: 100_000,
        ..options(mode, Policy::Degrade)
    });
    for n in 0..4 {
        world.write_done((n % 2) as u16, n / 2 * 256 * KIB, 8 * KIB);
    }
    world.pass(6 * SECOND);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 60 * SECOND;
    for n in 0..70 {
        world.write((n % 2) as u16, n / 2 * 8 * KIB, 8 * KIB);
        world.pass(5 * MILLISECOND);
    }
    world.pass(SECOND);
    assert!(world.figures(1).unapplied_bytes > 0, "the journal is full");
    world
}

/// The primary is gone, and a promotion is ordered at the secondary of which nothing comes: it loses its power `late_ns` after.
/// Whether it is a primary when it is back.
fn interrupted_promotion(world: &mut ScenarioWorld, late_ns: u64) -> bool {
    world.crash(0, true, FOR_EVER);
    world.pass(SECOND);
    world.command(1, GROUP, Command::Promote { force: true, entropy: 7 });
    world.pass(late_ns);
    world.crash(1, true, SECOND);
    world.until("the secondary is back", |world| world.glance(1, GROUP).is_some_and(|glance| glance.running));
    world.recorded(1).identity.role == Role::Primary
}

// proves: P1
/// What the secondary gave up for a promotion is on record with it: wherever the promotion ends, the primary either gets all that
/// was confirmed, or asks its operator. It never opens without.
#[test]
fn what_a_promotion_gave_up_and_did_not_become_is_asked_about() {
    let mut asked = 0;
    for late_ns in (0..).step_by(100_000) {
        let mut world = full_journal(Mode::Nearsync);
        if interrupted_promotion(&mut world, late_ns) {
            break;
        }
        world.cluster[0].storage.trouble.stalled_until = 0;
        world.boot(0);
        world.until("it has an answer", |world| serves(world) || asks_its_operator(world));
        if serves(&world) {
            assert!(world.figures(0).pulled_bytes > 0, "{late_ns}: it opened without what the peer confirmed");
        } else {
            asked += 1;
            world.pass(1_200 * SECOND);
            assert!(!serves(&world), "{late_ns}: it opened by itself");
            assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
            world.until("its export is open", serves);
        }
        world.drain();
    }
    assert!(asked > 2, "{asked}");
}

/// The way out while the operator is asked: the peer is promoted, and has all that it confirmed.
#[test]
fn the_peer_may_be_promoted_while_the_operator_is_asked() {
    let mut world = full_journal(Mode::Nearsync);
    for late_ns in (0..).step_by(100_000) {
        if interrupted_promotion(&mut world, late_ns) {
            panic!("never in between");
        }
        world.cluster[0].storage.trouble.stalled_until = 0;
        world.boot(0);
        world.until("it has an answer", |world| serves(world) || asks_its_operator(world));
        if !serves(&world) {
            break;
        }
        world = full_journal(Mode::Nearsync);
    }
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
}

// proves: P7
/// A secondary whose volume somebody wrote while it was stopped has nothing to give: what it kept is not what stands there. The
/// primary, which flushed, keeps its own; one that may have lost confirmed writes asks its operator.
#[test]
fn nothing_is_fetched_from_a_copy_that_was_changed_from_outside() {
    for flushed in [true, false] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
        world.pass(30 * SECOND);
        world.write_done(0, 0, 16 * KIB);
        world.pass(600 * MILLISECOND);
        world.stop(1);
        if flushed {
            let flush = world.flush(0);
            assert!(world.answer(flush).0);
        }
        let held = world.images_of(0);
        let volume = Store::Volume(GROUP, VolumeId(0));
        world.cluster[1].disk_mut(volume).goes_astray(0, &[0xab; 4096]);
        world.crash(0, true, SECOND);
        world.boot_changed(1);
        world.pass_unchecked(10 * SECOND);
        assert!(world.images_of(0)[0][..4096] != [0xab; 4096], "somebody else's bytes were fetched");
        assert!(!flushed || world.images_of(0) == held, "its own durable writes were overwritten");
        assert!(flushed || !serves(&world), "it opened without what the peer had confirmed");
    }
}

// proves: P7
/// A primary that needs verification that was stopped, and whose volume somebody wrote then, fetches nothing over that: its operator is asked.
#[test]
fn an_unverified_primary_that_was_changed_from_outside_fetches_nothing() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.pass(30 * SECOND);
    world.write_done(0, 0, 16 * KIB);
    world.pass(600 * MILLISECOND);
    world.cut([false; 2]);
    loses_power(&mut world);
    world.stop(0);
    let volume = Store::Volume(GROUP, VolumeId(0));
    world.cluster[0].disk_mut(volume).goes_astray(0, &[0xab; 4096]);
    world.boot_changed(0);
    world.pass_unchecked(2 * SECOND);
    // While the peer is away his word would be forgotten before it counts.
    let early = world.command(0, GROUP, Command::Sync { full: false });
    world.pass_unchecked(SECOND);
    assert!(
        matches!(world.cluster.ledger.result(early), Some(CommandResult::Refused(why)) if why.text.contains("when it is there"))
    );
    world.restore_path();
    world.pass_unchecked(30 * SECOND);
    assert!(world.images_of(0)[0][..4096] == [0xab; 4096], "an older write was fetched over it");
    assert!(world.images_of(1)[0][..4096] != [0xab; 4096], "it went to the peer without a word");
    let reason = world.figures(0).reason;
    assert!(!serves(&world) && reason.contains("written from outside since"), "{reason}");
    world.command(0, GROUP, Command::Sync { full: false });
    world.pass_unchecked(30 * SECOND);
    assert!(serves(&world) && world.images_of(0) == world.images_of(1), "{}", world.figures(0).reason);
}
