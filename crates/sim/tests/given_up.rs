//! What a secondary kept and gives up by going back: its primary, should it have lost that with its power, is told that nobody
//! knows, and asks its operator.

use engine::identity::Role;
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, Settings, StartAlone, Store};
use sim::checkers::facts::KnownFact;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options, serves};

fn asks_its_operator(world: &ScenarioWorld) -> bool {
    let reason = world.figures(0).reason;
    reason.contains("cannot be known") && reason.contains("'farshore sync GROUP")
}

/// Whose image a sync overwrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OverwrittenImage {
    /// Of the run that syncs.
    SameRun,
    /// Of an earlier run of this primary, which was killed since.
    EarlierRun,
    /// Of the secondary itself, which was the primary and handed over; it has had many more runs than the other node.
    OwnReign,
}

/// The secondary was the primary for a while, and stands where it handed over: nothing was sent to it since.
fn handed_over(world: &mut ScenarioWorld) {
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    assert!(matches!(world.promote(1, false), CommandResult::Done(_)));
    world.drain();
    assert!(matches!(world.order(1, Command::Demote), CommandResult::Done(_)));
    let settings = Settings { mode: Mode::Logging, ..world.cluster.ledger.settings(GROUP) };
    world.order(0, Command::Set(settings));
    // It serves in another mode than the copy was made in, and says so.
    assert!(matches!(world.promote(0, false), CommandResult::Warning(_)));
    let [ours, theirs] = [0, 1].map(|node| world.recorded(node).identity);
    assert!(theirs.position.incarnation > ours.incarnation && theirs.generation == ours.parent.generation);
}

/// A sync in the stream of writes is under way, and has overwritten a part of the secondary's copy. What was written meanwhile the
/// secondary has confirmed as durable; the primary has not flushed it.
fn mid_sync(image: OverwrittenImage) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(SimOptions {
        bytes_per_s: 400_000,
        start_alone_ms: 600_000,
        ..options(Mode::Async, Policy::Degrade)
    });
    if image == OverwrittenImage::OwnReign {
        for _ in 0..6 {
            world.crash(1, false, SECOND);
            world.pass(5 * SECOND);
        }
        world.drain();
    }
    // So the link is measured, and a little goes in the stream.
    for n in 0..16 {
        world.write(0, n * 32 * KIB, 32 * KIB);
    }
    world.drain();
    if image == OverwrittenImage::OwnReign {
        handed_over(&mut world);
    } else {
        world.order(0, Command::Logging);
    }
    for n in 0..4 {
        world.write_done(0, n * 64 * KIB, 32 * KIB);
    }
    if image == OverwrittenImage::EarlierRun {
        world.crash(0, false, SECOND);
        world.until("it is back", serves);
    }
    let before = world.images_of(1);
    // The end of the sync takes long to be on record.
    world.cluster[1].storage.trouble.flush_ns = 5 * SECOND;
    if image == OverwrittenImage::OwnReign {
        let settings = world.cluster.ledger.settings(GROUP);
        world.command(0, GROUP, Command::Set(settings));
    } else {
        world.command(0, GROUP, Command::Sync { full: false });
    }
    world.until("a part is overwritten", |world| world.images_of(1) != before);
    assert!(world.checkers.wire.syncs_in_stream(GROUP, 1));
    world.write_done(1, 512 * KIB, 4 * KIB);
    world.until("it is kept", |world| world.cluster[1].engine().expect("up").oldest_kept(GROUP).is_some());
    world.pass(5 * MILLISECOND);
    assert_eq!(world.figures(0).state, State::Syncing);
    world.cluster[1].storage.trouble.flush_ns = 0;
    world
}

/// The way back is damaged: the secondary is a mixture, stands where it stood, and its journal was given up for the way back.
#[test]
fn what_was_kept_before_a_way_back_that_is_damaged_is_asked_about() {
    let mut world = mid_sync(OverwrittenImage::SameRun);
    world.crash(0, true, FOR_EVER);
    world.pass(SECOND);
    world.cluster[1].disk_mut(Store::Undo(GROUP)).rot_all();
    let refused = world.refused(1, Command::Promote { force: true, entropy: 7 });
    assert!(refused.contains("a mixture"), "{refused}");
    world.boot(0);
    world.until("it has an answer", |world| serves(world) || asks_its_operator(world));
    assert!(!serves(&world), "it opened without what the peer had confirmed");
    world.pass(1_200 * SECOND);
    assert!(!serves(&world), "it opened by itself");
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.until("its export is open", serves);
    world.drain();
}

/// The primary is gone, and the secondary, which is in the middle of a sync, is promoted by force.
fn goes_back(image: OverwrittenImage) -> ScenarioWorld {
    let mut world = mid_sync(image);
    world.crash(0, true, FOR_EVER);
    world.pass(SECOND);
    world.command(1, GROUP, Command::Promote { force: true, entropy: 7 });
    world
}

/// It loses its power on its way back to the image before the sync, at each moment of that.
fn interrupted_way_back(image: OverwrittenImage) {
    let mut world = goes_back(image);
    let typed = world.now();
    while !world.recorded(1).rolling_back {
        world.pass(100_000);
    }
    let (recorded_ns, mut asked) = (world.now() - typed, 0);
    for late_ns in (recorded_ns - 500_000..).step_by(100_000) {
        let mut world = goes_back(image);
        world.pass(late_ns);
        world.crash(1, true, SECOND);
        world.until("the secondary is back", |world| world.glance(1, GROUP).is_some_and(|glance| glance.running));
        if world.recorded(1).identity.role == Role::Primary {
            break;
        }
        world.boot(0);
        world.until("it has an answer", |world| serves(world) || asks_its_operator(world));
        if serves(&world) {
            assert!(world.figures(0).pulled_bytes > 0, "{late_ns}: it opened without what the peer confirmed");
        } else {
            asked += 1;
            assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
            world.until("its export is open", serves);
        }
        world.drain();
    }
    assert!(asked > 2, "{asked}");
}

// proves: P1
#[test]
fn what_a_way_back_gave_up_is_asked_about() {
    interrupted_way_back(OverwrittenImage::SameRun);
}

#[test]
fn what_a_way_back_to_an_earlier_run_gave_up_is_asked_about() {
    interrupted_way_back(OverwrittenImage::EarlierRun);
}

/// The runs of the two nodes are counted apart: that the secondary has had more says nothing of what it followed.
#[test]
fn what_a_way_back_to_its_own_reign_gave_up_is_asked_about() {
    interrupted_way_back(OverwrittenImage::OwnReign);
}

/// The primary's operator is asked: its peer does not know any more what it had confirmed.
fn is_asked() -> ScenarioWorld {
    let mut world = mid_sync(OverwrittenImage::SameRun);
    world.crash(0, true, FOR_EVER);
    world.pass(SECOND);
    world.cluster[1].disk_mut(Store::Undo(GROUP)).rot_all();
    world.refused(1, Command::Promote { force: true, entropy: 7 });
    world.boot(0);
    world.until("its operator is asked", asks_its_operator);
    world
}

/// The peer is gone for good while the operator is asked: he reads the way out, and what he types is not taken for done.
#[test]
fn an_operator_who_is_asked_reads_the_way_out_while_the_peer_is_away() {
    let mut world = is_asked();
    world.cut([false; 2]);
    world.pass(60 * SECOND);
    let reason = world.figures(0).reason;
    assert!(!serves(&world) && reason.contains("start_alone=serve"), "{reason}");
    let refused = world.refused(0, Command::Sync { full: false });
    assert!(refused.contains("start_alone=serve"), "{refused}");
    world.set(GROUP, |settings| settings.start_alone = StartAlone::Serve);
    world.until("its export is open", serves);
}

/// He opens it without the peer's content, which is connected: what he reads then is true of an export that is open.
#[test]
fn an_operator_who_has_opened_the_export_does_not_read_that_it_stays_closed() {
    let mut world = is_asked();
    world.set(GROUP, |settings| settings.start_alone = StartAlone::Serve);
    world.until("its export is open", serves);
    world.pass(SECOND);
    let reason = world.figures(0).reason;
    assert!(reason.contains("has served since") && !reason.contains("stays closed"), "{reason}");
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.drain();
}

/// Demoted and promoted again before he chose, his node has a history of its own: what he is told to type then is what is taken.
#[test]
fn an_operator_who_is_asked_after_a_promotion_reads_an_order_that_is_taken() {
    let mut world = is_asked();
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
    assert!(matches!(world.promote(0, true), CommandResult::Warning(_)));
    world.until("its operator is asked", asks_its_operator);
    let reason = world.figures(0).reason;
    let full = reason.contains("'farshore sync GROUP --full' here keeps");
    let result = world.order(0, Command::Sync { full });
    assert!(matches!(result, CommandResult::Done(_)), "{reason}: {result:?}");
    world.until("its export is open", serves);
    world.drain();
}

// proves: P1
/// The answer is still missing after a restart, and the peer cannot be asked again.
#[test]
fn an_export_that_waits_for_its_operator_stays_closed_through_restarts() {
    for power in [None, Some(false), Some(true)] {
        let mut world = is_asked();
        world.cut([false; 2]);
        match power {
            Some(power) => world.crash(0, power, SECOND),
            None => {
                world.stop(0);
                world.boot(0);
            }
        }
        world.pass(1_200 * SECOND);
        assert!(!serves(&world), "{power:?}: it opened by itself");
        let reason = world.figures(0).reason;
        assert!(reason.contains("start_alone=serve"), "{reason}");
        world.restore_path();
        world.until("its operator is asked again", asks_its_operator);
        assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
        world.until("its export is open", serves);
        world.drain();
        world.crash(0, false, SECOND);
        world.until("its export is open", serves);
    }
}

/// A store fails while what the operator typed is being recorded: nothing is opened after that (a checker looks), and the next start
/// knows his word, or asks again.
#[test]
fn an_export_stays_closed_if_a_store_fails_under_its_operators_word() {
    // Which of the records under way is through first is drawn.
    for (nth, draws) in (1..=2).flat_map(|nth| (0..12).map(move |draws| (nth, draws))) {
        let mut world = is_asked();
        (0..draws).for_each(|_| _ = world.rng.draw());
        world.cluster[0].storage.trouble.fail_record_in = nth;
        world.command(0, GROUP, Command::SendAll);
        world.pass(5 * SECOND);
        if matches!(world.figures(0).state, State::Failed(_)) {
            world.crash(0, false, SECOND);
            world.pass(2 * SECOND);
            world.until("it has an answer", |world| serves(world) || asks_its_operator(world));
            if !serves(&world) {
                world.order(0, Command::Sync { full: false });
            }
        }
        world.until("its export is open", serves);
        world.drain();
    }
}

/// A part of what the peer had confirmed was fetched, and is not flushed, when the peer loses the rest: the primary's operator is asked.
fn is_asked_half_way() -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..24 {
        world.write_done((n % 2) as u16, n * 32 * KIB, 16 * KIB);
    }
    world.pass(200 * MILLISECOND);
    world.network.path_mut([0, 1]).bytes_per_s = 100_000;
    world.crash(0, true, SECOND);
    world.pass(500 * MILLISECOND);
    let before = world.images_of(0);
    world.until("a part is fetched", |world| world.images_of(0) != before);
    world.crash(1, true, SECOND);
    world.checkers.facts.add(KnownFact::Rotten(1, Store::Journal(GROUP)));
    world.cluster[1].disk_mut(Store::Journal(GROUP)).rot_all();
    world.until("its operator is asked", asks_its_operator);
    world
}

/// A demotion first flushes what was fetched. One that does not come about answers nothing: the flush fails, or the node is killed
/// meanwhile, with records under way that are due for other reasons.
#[test]
fn an_export_whose_demotion_does_not_come_about_stays_closed() {
    for fails in [false, true] {
        let mut world = is_asked_half_way();
        world.cut([false; 2]);
        world.pass(10 * SECOND);
        if fails {
            world.cluster[0].storage.trouble.fail_next_flush = true;
            let refused = world.refused(0, Command::Demote);
            assert!(refused.contains("it stays primary"), "{refused}");
        } else {
            world.cluster[0].storage.trouble.flush_ns = 5 * SECOND;
            world.command(0, GROUP, Command::Logging);
            world.command(0, GROUP, Command::Logging);
            world.command(0, GROUP, Command::Demote);
        }
        world.pass(SECOND);
        world.cluster[0].storage.trouble.flush_ns = 0;
        world.crash(0, false, SECOND);
        world.pass(1_200 * SECOND);
        assert_eq!(world.recorded(0).identity.role, Role::Primary);
        assert!(!serves(&world), "fails: {fails}: it opened by itself");
        world.restore_path();
        world.until("its operator is asked again", asks_its_operator);
        // What the operator asked for before he was killed still stands.
        assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
        world.until("its export is open", serves);
        world.drain();
    }
}

/// Time is up, and that it serves without the peer is being recorded, when the peer says that it does not know. Killed at any moment of
/// that it stays closed, once it is on record that its operator is asked.
#[test]
fn an_answer_that_comes_while_it_is_recorded_that_time_is_up_keeps_the_export_closed() {
    let mut closed = 0;
    for late_ms in (0..8).chain((10..100).step_by(10)) {
        let mut world = mid_sync(OverwrittenImage::SameRun);
        world.crash(0, true, FOR_EVER);
        world.pass(SECOND);
        world.cluster[1].disk_mut(Store::Undo(GROUP)).rot_all();
        world.refused(1, Command::Promote { force: true, entropy: 7 });
        world.boot(0);
        while !world.figures(0).reason.contains("asking the peer what it confirmed") {
            world.pass(200_000);
        }
        world.cluster[0].storage.trouble.slow_until = world.now() + SECOND;
        world.set(GROUP, |settings| settings.start_alone = StartAlone::Wait(std::time::Duration::from_millis(1)));
        world.pass(late_ms * MILLISECOND);
        if serves(&world) {
            break;
        }
        world.cut([false; 2]);
        world.crash(0, false, SECOND);
        let asked = world.recorded(0).given_up == engine::Seq(u64::MAX);
        world.pass(60 * SECOND);
        closed += u32::from(asked);
        assert!(!asked || !serves(&world), "{late_ms}: it opened by itself");
    }
    assert!(closed > 2, "{closed}");
}
