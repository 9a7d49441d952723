//! What a primary fetches back after a power loss: asked for anew whenever something came in between, so an answer to
//! an older question is nobody's; lost again if the flush behind it fails; and over before anybody writes.

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, Store};
use sim::checkers::facts::KnownFact;
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{
    GROUP, MILLISECOND, SECOND, ScenarioWorld, loses_power, needs_verification, options, serves, unflushed,
};
use sim::world::World;

/// The primary has lost its power and what the peer confirmed, and is back; nothing of it is fetched yet.
fn lost_power() -> ScenarioWorld {
    let mut world = unflushed();
    loses_power(&mut world);
    world
}

fn asks(world: &ScenarioWorld) -> bool {
    let reason = world.figures(0).reason;
    reason.contains("asking the peer what it confirmed") || reason.contains("fetching from the peer")
}

// proves: rule 12
#[test]
fn a_failed_flush_of_what_was_fetched_leaves_the_run_unverified() {
    let mut world = lost_power();
    world.cluster[0].storage.trouble.fail_next_flush = true;
    world.until("the group fails", |world| matches!(world.glance(0, GROUP).map(|g| g.state), Some(State::Failed(_))));
    world.pass(SECOND);
    assert!(!serves(&world), "nobody may read what lacks confirmed writes");
    assert!(needs_verification(&world));
    world.crash(0, true, SECOND);
    world.until("its export is open", serves);
    assert_eq!(world.coverage(0, CoveragePoint::TailPulled), 1);
    world.drain();
}

/// The time to wait for the peer is long over when the session ends.
#[test]
fn a_group_that_failed_over_what_was_fetched_stays_closed_when_its_session_ends() {
    let mut world = unflushed();
    let held = world.images_of(1);
    loses_power(&mut world);
    world.cluster[0].storage.trouble.fail_next_flush = true;
    world.until("the group fails", |world| matches!(world.glance(0, GROUP).map(|g| g.state), Some(State::Failed(_))));
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    assert!(world.images_of(0) != held, "the failed flush took back what was fetched");
    assert!(!serves(&world), "nobody may read what lacks confirmed writes");
    assert!(!world.recorded(0).served_unverified, "it never served");
    world.restore_path();
    world.crash(0, false, SECOND);
    world.until("its export is open", serves);
    assert!(world.images_of(0) == held, "it opened without what the peer confirmed");
    assert_eq!(world.coverage(0, CoveragePoint::TailPulled), 1);
    world.drain();
}

// proves: rule 18
#[test]
fn an_answer_read_for_an_older_session_is_not_given_in_a_newer_one() {
    let mut world = lost_power();
    world.cluster[1].storage.trouble.slow_until = world.now() + 60 * SECOND;
    for _ in 0..20 {
        world.pass(15 * MILLISECOND);
        world.connect([0, 1]);
    }
    world.until("its export is open", serves);
    assert_eq!(world.coverage(0, CoveragePoint::TailPulled), 1);
    world.drain();
}

/// A sync in the stream of writes has overwritten a part of its copy. The last write is at the peer, which keeps it, and is
/// flushed here, which the peer does not know.
fn mid_sync() -> ScenarioWorld {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) });
    // What stood here before comes back without the undo store: zeroes are not read.
    let id = world.zero(0, 0, 256 * KIB, false);
    assert!(world.answer(id).0);
    world.drain();
    world.cut([false; 2]);
    for n in 0..14 {
        world.write_done(0, n * 60 * KIB, 36 * KIB);
    }
    let before = world.images_of(1);
    // After a kill a sync compares, and is no snapshot.
    world.crash(0, false, SECOND);
    world.restore_path();
    world.until("a part is overwritten", |world| world.images_of(1) != before);
    world.write_done(0, 0, 4 * KIB);
    world.until("the peer has it", |world| world.images_of(1)[0][..4 << 10] == world.images_of(0)[0][..4 << 10]);
    world.cut([false; 2]);
    let flush = world.flush(0);
    assert!(world.answer(flush).0);
    world
}

/// Seed 19012831. The peer was to be promoted, and found its way back damaged when it had gone a part of it: what it had
/// received is not to be had there any more, and nobody knows what the primary may have lost of it: its operator is asked.
#[test]
fn nothing_is_fetched_from_a_mixture() {
    let mut world = mid_sync();
    let held = world.images_of(0);
    world.cluster[1].disk_mut(Store::Undo(GROUP)).rot_all();
    let refused = world.refused(1, Command::Promote { force: true, entropy: 7 });
    assert!(refused.contains("a mixture"), "{refused}");
    assert_ne!(world.images_of(1)[0][..4 << 10], held[0][..4 << 10], "that went back");
    world.crash(0, true, SECOND);
    world.restore_path();
    world.until("its operator is asked", |world| world.coverage(0, CoveragePoint::TailUnknown) > 0);
    world.pass(60 * SECOND);
    assert!(!serves(&world), "it opened by itself");
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.until("its export is open", serves);
    assert!(world.images_of(0) == held, "a flush was acknowledged for all of it");
    world.drain();
}

// proves: P9
/// Seed 198. A batch of the peer's journal is rotten, and what came behind it is lost there: an older write to the same place is
/// whole, and must not be fetched over the newer one, which `sync` has on this disk.
#[test]
fn nothing_is_fetched_from_a_journal_that_is_damaged() {
    let mut damaged = 0;
    for draws in 0..12 {
        let mut world = ScenarioWorld::in_peace(options(Mode::Sync, Policy::Degrade));
        (0..draws).for_each(|_| _ = world.rng.draw());
        world.cluster[1].storage.trouble.full_until = ALWAYS;
        for _ in 0..8 {
            world.write_done(0, 0, 4 * KIB);
        }
        // All of it is counted by a record.
        world.pass(2 * SECOND);
        let held = world.images_of(0);
        world.crash(1, true, SECOND / 10);
        world.checkers.facts.add(KnownFact::Rotten(1, Store::Journal(GROUP)));
        let World { cluster, rng, .. } = &mut *world;
        cluster[1].disk_mut(Store::Journal(GROUP)).rot(u64::MAX, rng);
        cluster[1].storage.trouble.full_until = 0;
        world.crash(0, true, SECOND);
        world.until("it has an answer", |world| serves(world) || world.coverage(0, CoveragePoint::TailUnknown) > 0);
        if !serves(&world) {
            assert!(world.coverage(1, CoveragePoint::JournalDamaged) > 0);
            world.pass(60 * SECOND);
            assert!(!serves(&world), "{draws}: its operator is asked, and has not answered");
            assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
            world.until("its export is open", serves);
        }
        damaged += u32::from(world.coverage(1, CoveragePoint::JournalDamaged) > 0);
        assert!(world.images_of(0) == held, "{draws}: a newer write was acknowledged");
        world.drain();
    }
    assert!(damaged > 2, "{damaged}");
}

/// The peer's disk hangs while it reads what is asked for, and its link lives. The export opens as without it, and what the
/// peer has is asked about when it answers again.
#[test]
fn a_peer_that_stands_still_while_it_is_asked_does_not_keep_the_export_closed() {
    let mut world = lost_power();
    world.cluster[1].storage.trouble.stalled_until = world.now() + 300 * SECOND;
    world.pass(30 * SECOND);
    assert!(asks(&world) && !serves(&world));
    world.pass(60 * SECOND);
    assert!(serves(&world) && needs_verification(&world));
    world.write_done(0, 0, 16 * KIB);
    assert!(world.figures(0).reason.contains("to keep the peer's"), "{}", world.figures(0).reason);
    world.pass(300 * SECOND);
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.drain();
}

/// The peer's disk goes on failing while it reads what is asked for: after a few tries it has nothing to give any more. The export
/// opens as without it.
#[test]
fn a_peer_that_fails_while_it_is_asked_does_not_keep_the_export_closed() {
    let mut world = lost_power();
    world.cluster[1].storage.trouble.read_errors_until = ALWAYS;
    world.pass(4 * SECOND);
    assert!(!serves(&world) && !matches!(world.glance(1, GROUP).map(|g| g.state), Some(State::Failed(_))));
    world.until("its export is open", serves);
    assert!(matches!(world.glance(1, GROUP).map(|g| g.state), Some(State::Failed(_))));
    assert!(needs_verification(&world));
}

/// The path is slow, and the answer comes when the primary was demoted, promoted again, and has asked once more: the
/// end of the first answer is not the end of the second.
#[test]
fn an_answer_to_an_older_question_of_the_same_session_is_nobodys() {
    let (mut fetched, mut opened_alone) = (0, 0);
    for instant in (130..190).step_by(3) {
        let mut world = lost_power();
        world.network.path_mut([0, 1]).bytes_per_s = 5_000;
        world.until("it asks", asks);
        world.pass(instant * MILLISECOND);
        assert!(asks(&world));
        assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
        assert!(matches!(world.promote(0, true), CommandResult::Warning(_)));
        world.until("its export is open", serves);
        let complete = world.images_of(0) == world.images_of(1);
        assert!(complete || needs_verification(&world), "{instant}");
        (fetched, opened_alone) = (fetched + u32::from(complete), opened_alone + u32::from(!complete));
    }
    // What is fetched for the first question keeps the path busy for too long.
    assert!(fetched > 4 && opened_alone > 4, "the first answer comes too early or too late: {fetched}, {opened_alone}");
}

/// The primary has waited as long as it was told to, in the very moment in which it stores the bits of what it will
/// fetch: it fetches that first. What came under an open export would be older than what clients write there.
#[test]
fn an_export_that_is_due_waits_for_what_is_about_to_be_fetched() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.pass(30 * SECOND);
    world.write_done(0, 0, 16 * KIB);
    // The peer has it, and does not hear that it is flushed.
    world.pass(600 * MILLISECOND);
    world.cut([false; 2]);
    let flush = world.flush(0);
    assert!(world.answer(flush).0);
    // All over, so that the extent of that write is hot no more: its bit is stored before it is fetched.
    for n in 0..12 {
        world.write_done(1, (n % 4 * 256 + n / 4 * 8) * KIB, 4 * KIB);
        world.pass(100 * MILLISECOND);
    }
    let flush = world.flush(1);
    assert!(world.answer(flush).0);
    loses_power(&mut world);
    assert_eq!(world.figures(0).volumes[0].dirty_bytes, 0);
    world.pass(4900 * MILLISECOND);
    world.restore_path();
    world.connect([0, 1]);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 300 * MILLISECOND;
    world.pass(250 * MILLISECOND);
    assert!(asks(&world) && !serves(&world));
    world.cluster[0].storage.trouble.stalled_until = 0;
    world.cluster[1].storage.trouble.stalled_until = world.now() + 2 * SECOND;
    world.until("its export is open", serves);
    assert_eq!(world.coverage(0, CoveragePoint::TailPulled), 1);
    world.write_done(0, 0, 16 * KIB);
    let flush = world.flush(0);
    assert!(world.answer(flush).0);
    world.drain();
}

/// An operator orders a full sync, whose bits take long to be stored. The session ends, and in the next one the peer is
/// asked what it kept: both would write the same places, so the sync begins when nothing is fetched any more.
#[test]
fn a_full_sync_that_waited_for_its_bits_does_not_begin_beside_a_pull() {
    let mut pulled = 0;
    for instant in (6..20).step_by(2) {
        let mut world = unflushed();
        world.cut([false; 2]);
        loses_power(&mut world);
        world.restore_path();
        world.connect([0, 1]);
        world.pass(instant * MILLISECOND);
        world.cluster[0].storage.trouble.stalled_until = world.now() + 60 * MILLISECOND;
        world.pass(3 * MILLISECOND);
        world.command(0, GROUP, Command::SendAll);
        world.pass(3 * MILLISECOND);
        world.connect([0, 1]);
        let limit = world.now() + SECOND;
        while world.coverage(0, CoveragePoint::FullSyncBegan) == 0 && world.now() < limit {
            world.pass(20_000);
        }
        assert!(!needs_verification(&world), "{instant}: the peer is asked");
        world.cluster[0].storage.trouble.stalled_until = 0;
        world.drain();
        assert_eq!(world.coverage(0, CoveragePoint::FullSyncBegan), 1);
        pulled += world.coverage(0, CoveragePoint::TailPulled);
    }
    assert!(pulled > 3, "{pulled}");
}

/// What the primary asks for cannot be read there for two seconds, and then it can: the primary waits for it, and opens with it.
#[test]
fn reads_for_what_is_fetched_that_fail_for_a_moment_are_tried_again() {
    let mut world = unflushed();
    let held = world.images_of(1);
    world.cluster[1].storage.trouble.read_errors_until = ALWAYS;
    loses_power(&mut world);
    world.pass(2 * SECOND);
    assert!(!serves(&world));
    world.cluster[1].storage.trouble.read_errors_until = 0;
    world.until("its export is open", serves);
    assert!(world.images_of(0) == held, "it opened without what the peer confirmed");
    world.drain();
}

/// It is asked when the two nodes meet, and not when a sync is due: where nothing is synced by itself the export opened without.
#[test]
fn what_the_peer_confirmed_is_fetched_without_autosync_too() {
    let mut world = unflushed();
    world.set(GROUP, |settings| settings.autosync = false);
    world.pass(200 * MILLISECOND);
    loses_power(&mut world);
    world.until("its export is open", serves);
    assert_eq!(world.coverage(0, CoveragePoint::TailPulled), 1);
    assert_eq!(world.coverage(0, CoveragePoint::ServedAloneUnverified), 0);
}

/// Seed 708872. A write was under way on the primary's slow disk, and confirmed by the peer, when the process was killed. The next
/// start flushed what that run had written, and was recorded in the moment in which the power failed. As after a mere kill, nothing
/// that was answered is missing, and nothing is fetched.
#[test]
fn a_kill_and_a_start_before_the_power_fails_leave_nothing_to_fetch() {
    let mut missing = 0;
    // On its slow disk a start is recorded after about a tenth of a second: once before that, and at each instant around it.
    for delay in 60..140 {
        let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
        world.write_done(0, 0, 4 * KIB);
        world.drain();
        // Answered, confirmed, and flushed by nobody yet.
        world.write_done(0, 0, 4 * KIB);
        world.pass(20 * MILLISECOND);
        world.cluster[0].storage.trouble.stalled_until = world.now() + 60 * SECOND;
        let before = world.images_of(1);
        world.write(0, 0, 4 * KIB);
        world.until("the peer has it", |world| world.images_of(1) != before);
        world.pass(5 * MILLISECOND);
        let confirmed = world.images_of(1);
        world.cut([false; 2]);
        let run = world.recorded(0).identity.incarnation.0;
        world.crash(0, false, MILLISECOND);
        world.cluster[0].storage.trouble.stalled_until = 0;
        world.cluster[0].storage.trouble.slow_until = world.now() + 60 * SECOND;
        world.pass(delay * MILLISECOND);
        let has_opened = serves(&world);
        // What was on its way to the record arrives there.
        world.cluster[0].disk_mut(Store::Superblock(GROUP)).will_keep(|_| true);
        world.crash(0, true, SECOND);
        world.cluster[0].storage.trouble.slow_until = 0;
        let is_recorded = world.recorded(0).identity.incarnation.0 == run + 1;
        world.restore_path();
        world.until("its export is open", serves);
        let fetched = world.coverage(0, CoveragePoint::TailPulled) > 0;
        assert!(fetched || is_recorded || world.images_of(0) == confirmed);
        missing += usize::from(is_recorded && !has_opened && world.images_of(0) != confirmed);
        world.drain();
    }
    assert!(missing > 0, "no start was recorded in the moment in which the power failed");
}
