//! Demote here, promote there, and back again: nothing is forced, nothing is lost, and no byte travels twice.

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

// proves: rule 14, rule 15
#[test]
fn a_handover_forth_and_back_resends_nothing() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    let synced = world.data_sent_bytes().to_vec();
    let mut written = [0; 2];
    for round in 0..4u64 {
        let primary = (round % 2) as usize;
        for n in 0..3 {
            world.write_done((n % 2) as u16, (round * 3 + n) * 16 * KIB, 16 * KIB);
            written[primary] += 16 * KIB;
        }
        world.drain();
        let sent = [0, 1].map(|node: usize| world.data_sent_bytes()[node] - synced[node]);
        assert_eq!(sent, written, "round {round}");
        assert!(matches!(world.order(primary, Command::Demote), CommandResult::Done(_)));
        assert!(matches!(world.promote(1 - primary, false), CommandResult::Done(_)));
        world.drain();
    }
    assert_eq!([0, 1].map(|node: usize| world.data_sent_bytes()[node] - synced[node]), written);
}

/// A demotion waits for the peer to have everything; the peer is promoted meanwhile, and so never will.
#[test]
fn a_demotion_does_not_wait_for_a_peer_that_was_promoted() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cluster[1].storage.trouble.slow_until = world.now() + 500 * MILLISECOND;
    for n in 0..8 {
        world.write_done(0, n * 16 * KIB, 16 * KIB);
    }
    let demoted = world.command(0, GROUP, Command::Demote);
    let began = world.now();
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
    world.until("the demotion ends", |world| world.cluster.ledger.result(demoted).is_some());
    assert!(world.now() - began < 2 * SECOND, "after {} ns", world.now() - began);
    assert!(
        matches!(world.cluster.ledger.result(demoted), Some(CommandResult::Warning(text)) if text.contains("may differ"))
    );
    // A secondary again, it confirms numbers of its own run: to nobody.
    assert!(matches!(world.order(1, Command::Demote), CommandResult::Warning(_)));
    world.pass(SECOND);
}

// proves: rule 14
/// A promotion takes its time to be recorded, and the link ends meanwhile: whether anything is missing is what was known when the peer
/// was last heard, and is told so.
#[test]
fn a_promotion_that_was_recorded_slowly_reports_what_it_cannot_know() {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { delay_ns: 50 * MILLISECOND, ..options(Mode::Sync, Policy::Degrade) });
    let id = world.write(0, 0, 64 * KIB);
    assert!(world.answer(id).0);
    world.drain();
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    world.pass(SECOND);
    world.cluster[1].storage.trouble.stalled_until = world.now() + 20 * SECOND;
    let entropy = world.rng.draw();
    let promotion = world.command(1, GROUP, Command::Promote { force: false, entropy });
    world.pass(MILLISECOND);
    assert!(!matches!(world.promote(0, true), CommandResult::Refused(_)));
    world.cut([false; 2]);
    world.until("answered", |world| world.cluster.ledger.result(promotion).is_some());
    let reply = world.cluster.ledger.result(promotion);
    assert!(
        matches!(reply, Some(CommandResult::Warning(text)) if text.contains("when the peer was last heard")),
        "{reply:?}"
    );
}

/// Nobody else was promoted: the peer follows as it did, and nothing is sent again.
#[test]
fn a_demotion_is_taken_back() {
    for connected in [true, false] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
        world.write_done(0, 0, 64 * KIB);
        world.drain();
        assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
        world.pass(SECOND);
        let CommandResult::Refused(why) = world.promote(0, false) else { panic!("the peer may be promoted just now") };
        assert!(why.text.contains("takes the demotion back"), "{why}");
        let sent = world.data_sent_bytes().to_vec();
        if !connected {
            world.cut([false; 2]);
            world.pass(20 * SECOND);
        }
        let answer = world.promote(0, true);
        assert_eq!(matches!(answer, CommandResult::Done(_)), connected, "{answer:?}");
        world.restore_path();
        world.drain();
        assert_eq!(world.coverage(0, CoveragePoint::FullSyncBegan), 1, "the first one");
        assert!(!connected || world.data_sent_bytes() == sent);
    }
}

// proves: P6
/// The peer was promoted meanwhile, and wrote: that is a fork, and nothing of it is overwritten unasked.
#[test]
fn a_demotion_taken_back_beside_a_promotion_is_a_fork() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    assert!(matches!(world.promote(1, false), CommandResult::Done(_)));
    world.cut([false; 2]);
    world.pass(SECOND);
    let id = world.write(0, 0, 64 * KIB);
    world.pass(20 * SECOND);
    assert!(world.reply(id).is_some());
    assert!(matches!(world.promote(0, true), CommandResult::Warning(_)));
    assert!(!matches!(world.order(1, Command::Demote), CommandResult::Refused(_)));
    world.restore_path();
    world.pass(20 * SECOND);
    let why = world.refused(0, Command::Sync { full: false });
    assert!(why.contains("the histories fork"), "{why}");
}

// proves: rule 14
/// The cable is out, and neither node has noticed yet: what the peer was when it was last heard is all that can be said of it.
#[test]
fn a_promotion_beside_a_silent_peer_says_when_it_was_heard() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    world.pass(SECOND);
    world.cut([false; 2]);
    assert!(matches!(world.promote(1, false), CommandResult::Done(text) if text.contains("nothing is missing")));
    world.pass(2 * SECOND);
    world.write_done(0, 0, 4 * KIB);
    world.crash(1, true, 20 * SECOND);
    world.pass(SECOND);
    let answer = world.promote(0, true);
    let CommandResult::Warning(said) = answer else { panic!("{answer:?}") };
    assert!(said.contains("when the peer was last heard"), "{said}");
    world.restore_path();
    world.pass(30 * SECOND);
    assert!(!matches!(world.order(1, Command::Demote), CommandResult::Refused(_)));
    world.pass(5 * SECOND);
    let why = world.refused(0, Command::Sync { full: false });
    assert!(why.contains("the histories fork"), "{why}");
}

/// What it cleared while it was primary is clear on disk as well: it holds nothing against the queue.
#[test]
fn a_node_killed_soon_after_it_handed_over_goes_on_with_the_queue() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Strict));
    for n in 0..40 {
        world.write_done(n % 2, u64::from(n) / 2 * 48 * KIB, 40 * KIB);
    }
    world.drain();
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    assert!(matches!(world.promote(1, false), CommandResult::Done(_)));
    world.drain();
    world.crash(0, false, 100 * MILLISECOND);
    let id = world.write(0, 0, 4 * KIB);
    assert!(world.answer(id).0, "{}", world.figures(1).reason);
}

/// Not a moment passes: what the demotion itself stored is all there is.
#[test]
fn a_node_killed_the_moment_it_is_demoted_holds_nothing_against_its_peer() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Strict));
    // Too long for the activity log: its bits are stored before it is issued.
    let id = world.zero(0, 0, MIB, false);
    assert!(world.answer(id).0);
    world.until("all is confirmed", |world| world.figures(0).peer.dirty_bytes == 0);
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    world.cut([false; 2]);
    world.crash(0, false, 100 * MILLISECOND);
    world.pass(5 * SECOND);
    assert_eq!(world.figures(0).peer.dirty_bytes, 0);
}

/// A node that was forced aside, with all of it dirty, and was made whole by a sync that has just ended: what that reconciled does not
/// come back from its disk.
#[test]
fn a_node_killed_soon_after_a_sync_goes_on_with_the_queue() {
    for policy in [Policy::Strict, Policy::Hold(Duration::from_secs(300))] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Sync, policy));
        world.cut([false; 2]);
        world.pass(20 * SECOND);
        assert!(!matches!(world.promote(1, true), CommandResult::Refused(_)));
        assert!(!matches!(world.order(1, Command::Demote), CommandResult::Refused(_)));
        world.restore_path();
        world.pass(3 * SECOND);
        // The other side shall count.
        assert!(!matches!(world.order(0, Command::Demote), CommandResult::Refused(_)));
        assert!(!matches!(world.promote(0, true), CommandResult::Refused(_)));
        world.pass(SECOND);
        assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
        world.drain();
        world.pass(SECOND);
        let sent = world.figures(0).resynced_bytes;
        world.crash(1, false, 100 * MILLISECOND);
        world.write_done(0, 0, 4 * KIB);
        world.drain();
        assert_eq!(world.figures(0).resynced_bytes, sent, "{policy:?}");
        assert_eq!(world.coverage(0, CoveragePoint::DegradeReleasedWriters), 0);
    }
}
