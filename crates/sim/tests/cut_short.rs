//! A snapshot is cut short: the next one leaves out what the peer has applied of it, so a link that breaks now and then carries a long
//! copy to its end. Where the peer may have lost some of that, all of it is sent again.

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB, REGION_BYTES};
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, Store};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options, state};

const NEAR: usize = 0;
const FAR: usize = 1;
/// Two volumes, dirty as a whole.
const ALL: u64 = 2 * MIB;
/// More than the peer's window holds: what was sent and is not confirmed as applied.
const UNDER_WAY: u64 = 512 * KIB;

fn slow(bytes_per_s: u64) -> SimOptions {
    SimOptions { bytes_per_s, ..options(Mode::Async, Policy::Degrade) }
}

fn sync(world: &mut ScenarioWorld, full: bool) {
    let answer = world.order(NEAR, Command::Sync { full });
    assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
}

/// In the middle of a snapshot of all there is, of which so much has left.
fn in_mid_snapshot(bytes_per_s: u64, percent: u64) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(slow(bytes_per_s));
    assert!(matches!(world.order(NEAR, Command::Logging), CommandResult::Done(_)));
    for region in 0..32 {
        world.write_done(0, region * 32 * KIB, 32 * KIB);
        world.write_done(1, region * 32 * KIB, 32 * KIB);
    }
    sync(&mut world, false);
    world.until("so much has left", |world| {
        let sync = world.figures(NEAR).sync.filter(|sync| sync.snapshot.is_some());
        sync.is_some_and(|sync| sync.done_bytes * 100 >= sync.total_bytes * percent)
    });
    assert_eq!(state(&world), Some(State::Syncing));
    world
}

/// Nothing is zero on the node that serves, and the peer is away or was never synced.
fn fill(world: &mut ScenarioWorld) {
    world.until("it serves", |world| world.serves(GROUP));
    for piece in 0..32 {
        world.write_done(0, piece * 32 * KIB, 32 * KIB);
        world.write_done(1, piece * 32 * KIB, 32 * KIB);
    }
}

fn cable_out(world: &mut ScenarioWorld) {
    world.cut([false; 2]);
    world.pass(20 * SECOND);
}

// proves: P5, rule 8
#[test]
fn a_session_lost_in_mid_snapshot_costs_no_more_than_what_was_under_way() {
    let ways: [fn(&mut ScenarioWorld); 3] = [
        |world| {
            cable_out(world);
            world.restore_path();
        },
        |world| world.connect([NEAR, FAR]),
        |world| world.cluster[FAR].storage.trouble.stalled_until = world.now() + 100 * SECOND,
    ];
    for (way, lose) in ways.into_iter().enumerate() {
        for percent in [10, 50, 90] {
            let mut world = in_mid_snapshot(400_000, percent);
            let before = world.data_sent_bytes()[NEAR];
            lose(&mut world);
            world.drain();
            let sent = world.data_sent_bytes()[NEAR] - before;
            assert!(sent <= ALL * (100 - percent) / 100 + UNDER_WAY, "way {way}, {percent} %: {sent} bytes");
            let went_on = world.coverage(NEAR, CoveragePoint::SnapshotWentOn);
            assert!(went_on > 0 || percent == 10, "way {way}, {percent} %");
        }
    }
}

/// The link carries for a while, and then for a while it does not, over and over; how often it broke before a snapshot of this node ended.
fn breaks_until_it_ends(world: &mut ScenarioWorld, node: usize) -> u32 {
    let ended = world.coverage(node, CoveragePoint::SnapshotEnded);
    for breaks in 0..20 {
        world.pass(12 * SECOND);
        if world.coverage(node, CoveragePoint::SnapshotEnded) > ended {
            return breaks;
        }
        cable_out(world);
        world.restore_path();
    }
    panic!("it begins again and again");
}

// proves: P5, rule 8
/// The link never holds for as long as the copy takes.
#[test]
fn a_copy_comes_to_its_end_over_a_link_that_breaks_again_and_again() {
    let mut world = ScenarioWorld::new(slow(100_000));
    world.pass(SECOND);
    fill(&mut world);
    sync(&mut world, true);
    let first_sync = breaks_until_it_ends(&mut world, NEAR);
    world.drain();
    let later = breaks_until_it_ends(&mut in_mid_snapshot(100_000, 10), NEAR);
    assert!((1..=6).contains(&first_sync) && (1..=6).contains(&later), "{first_sync}, {later}");
}

// proves: P5, rule 8
/// The old primary of a forced failover keeps the bits of what it wrote alone until the copy has ended: they take back nothing of what it
/// has applied since.
#[test]
fn a_failback_comes_to_its_end_over_a_link_that_breaks_again_and_again() {
    let mut world = ScenarioWorld::in_peace(slow(100_000));
    world.cut([false; 2]);
    world.write_done(0, 0, 8 * KIB);
    world.pass(10 * SECOND);
    assert!(matches!(world.promote(FAR, true), CommandResult::Warning(_)));
    fill(&mut world);
    world.restore_path();
    world.pass(30 * SECOND);
    assert!(matches!(world.order(NEAR, Command::Demote), CommandResult::Warning(_)));
    world.pass(SECOND);
    let began = world.coverage(FAR, CoveragePoint::BitsJoined);
    assert!(matches!(world.order(FAR, Command::Sync { full: true }), CommandResult::Done(_)));
    let breaks = breaks_until_it_ends(&mut world, FAR);
    assert!((1..=6).contains(&breaks), "{breaks}");
    assert!(world.coverage(FAR, CoveragePoint::BitsJoined) > began, "it kept none");
    world.drain();
}

/// A first sync whose end has left, and of whose last pieces no confirmation has come yet.
fn whose_end_has_left(history_bytes: u64) -> ScenarioWorld {
    let mut world = ScenarioWorld::new(SimOptions { history_bytes, ..slow(400_000) });
    world.pass(SECOND);
    fill(&mut world);
    sync(&mut world, true);
    world.until("its end has left", |world| {
        world.cluster[NEAR].explain(GROUP).is_some_and(|inside| inside.contains(", end: Some("))
    });
    assert!(world.recorded(FAR).identity.inconsistent);
    world
}

fn comes_to_its_end(world: &mut ScenarioWorld) {
    world.until("the peer has applied it", |world| !world.recorded(FAR).identity.inconsistent);
}

/// Nothing that comes back reaches the primary, and the peer applies all there is.
fn unheard(world: &mut ScenarioWorld) {
    world.cut([true, false]);
    comes_to_its_end(world);
    world.pass(20 * SECOND);
    assert_eq!(state(world), Some(State::Logging));
}

// proves: P5, P8
/// All of it was sent again, to a copy that was an image by then: so it needed room for all that is overwritten, had none, and stood still.
#[test]
fn a_first_sync_whose_last_confirmation_is_lost_needs_no_room() {
    let ways: [fn(&mut ScenarioWorld); 2] = [
        |world| {
            unheard(world);
            world.restore_path();
        },
        // The primary gives it up, and announces another one before the disk there answers again.
        |world| world.cluster[FAR].storage.trouble.stalled_until = world.now() + 100 * SECOND,
    ];
    for (way, lose) in ways.into_iter().enumerate() {
        let mut world = whose_end_has_left(160 * KIB);
        let before = world.data_sent_bytes()[NEAR];
        lose(&mut world);
        world.drain();
        assert_eq!(world.coverage(FAR, CoveragePoint::HistoryFull), 0, "way {way}");
        assert_eq!(world.data_sent_bytes()[NEAR] - before, 0, "way {way}: it was there");
        assert_eq!(world.coverage(NEAR, CoveragePoint::SnapshotEnded), 1, "way {way}");
    }
}

// proves: P5
/// The disk there answers again while the primary leaves the peer alone: the last confirmation comes to nobody.
#[test]
fn a_confirmation_that_comes_when_the_sync_was_given_up_is_made_good_at_the_next_begin() {
    let mut world = whose_end_has_left(160 * KIB);
    let before = world.data_sent_bytes()[NEAR];
    // Given up after 60 s, and begun anew 5 s later.
    world.cluster[FAR].storage.trouble.stalled_until = world.now() + 62 * SECOND;
    comes_to_its_end(&mut world);
    assert_eq!(state(&world), Some(State::Logging));
    world.drain();
    assert_eq!(world.coverage(FAR, CoveragePoint::HistoryFull), 0);
    assert_eq!(world.data_sent_bytes()[NEAR] - before, 0);
}

// proves: P2, P3, rule 8
#[test]
fn what_is_written_behind_a_lost_confirmation_is_sent_and_nothing_else() {
    let mut world = whose_end_has_left(4 * MIB);
    let before = world.data_sent_bytes()[NEAR];
    world.write_done(0, 0, 4 * KIB);
    unheard(&mut world);
    for region in 1..4 {
        world.write_done((region % 2) as u16, region * 96 * KIB, 4 * KIB);
    }
    world.restore_path();
    world.drain();
    let sent = world.data_sent_bytes()[NEAR] - before;
    assert!((16 * KIB..=4 * REGION_BYTES).contains(&sent), "{sent} bytes");
}

// proves: P3, rule 8
/// The run that has applied it is over: nothing is left out on its word.
#[test]
fn the_end_that_a_run_before_had_come_to_counts_for_nothing() {
    let mut world = whose_end_has_left(4 * MIB);
    let before = world.data_sent_bytes()[NEAR];
    unheard(&mut world);
    world.crash(FAR, true, SECOND);
    world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|glance| glance.running));
    world.restore_path();
    world.drain();
    let sent = world.data_sent_bytes()[NEAR] - before;
    assert!(sent >= ALL, "{sent} bytes");
}

// proves: P2, P3, rule 8
/// While it travels, while the link is away, and once it is back: the checkers compare the image of each snapshot that ends.
#[test]
fn what_is_written_since_is_sent_again() {
    for percent in [30, 50, 80] {
        let mut world = in_mid_snapshot(400_000, percent);
        for region in 0..4 {
            world.write_done(0, region * 64 * KIB, 8 * KIB);
        }
        cable_out(&mut world);
        for region in 0..8 {
            world.write_done((region % 2) as u16, region * 96 * KIB, 8 * KIB);
        }
        let trim = world.zero(1, 40 * KIB, 64 * KIB, false);
        assert!(world.answer(trim).0);
        world.restore_path();
        world.until("a snapshot goes on", |world| world.coverage(NEAR, CoveragePoint::SnapshotWentOn) > 0);
        for region in 0..8 {
            world.write_done(0, region * 64 * KIB + 16 * KIB, 8 * KIB);
            world.pass(100 * MILLISECOND);
        }
        cable_out(&mut world);
        world.write_done(1, 0, 4 * KIB);
        world.restore_path();
        world.drain();
    }
}

// proves: P3, rule 8
/// Each node is killed, or loses its power, in the middle of it, or while the link is away. What was applied counts for the run that
/// applied it: all of it is sent again.
#[test]
fn a_node_that_starts_again_has_all_of_it_sent_again() {
    for away in [false, true] {
        for (node, power) in [(NEAR, false), (NEAR, true), (FAR, false), (FAR, true)] {
            for percent in [10, 50, 90] {
                let mut world = in_mid_snapshot(400_000, percent);
                if away {
                    cable_out(&mut world);
                }
                let before = world.data_sent_bytes()[NEAR];
                world.crash(node, power, SECOND);
                world.until("it is back", |world| world.glance(node, GROUP).is_some_and(|glance| glance.running));
                world.restore_path();
                world.drain();
                let sent = world.data_sent_bytes()[NEAR] - before;
                let case = format!("node {node}, power {power}, {percent} %, link away: {away}");
                // Of a killed primary some is compared, and equal.
                assert!(sent >= ALL || node == NEAR, "{case}: {sent} bytes");
                assert_eq!(world.coverage(NEAR, CoveragePoint::SnapshotWentOn), 0, "{case}");
            }
        }
    }
}

// proves: P2, P3, rule 6, rule 8
/// The secondary is on its way back to the image before the sync, and is killed: it is no primary after all, and lacks what it undid.
#[test]
fn what_was_undone_is_sent_again() {
    let mut world = in_mid_snapshot(400_000, 60);
    cable_out(&mut world);
    let entropy = world.rng.draw();
    world.command(FAR, GROUP, Command::Promote { force: true, entropy });
    let writes_back =
        |world: &ScenarioWorld| world.cluster[FAR].explain(GROUP).map(|inside| inside.contains("WriteBack"));
    while writes_back(&world) != Some(true) {
        world.pass(50_000);
    }
    world.crash(FAR, true, MILLISECOND);
    world.until("it is back", |world| world.glance(FAR, GROUP).is_some_and(|glance| glance.running));
    assert_eq!(world.coverage(FAR, CoveragePoint::RollbackResumed), 1);
    world.restore_path();
    world.drain();
    assert_eq!(world.coverage(NEAR, CoveragePoint::SnapshotWentOn), 0);
}

// proves: P3
/// The secondary goes back by itself, and finds its way back damaged: it is a mixture in the very process that had applied a part.
#[test]
fn a_way_back_that_is_given_up_counts_as_a_run_of_its_own() {
    let mut world = in_mid_snapshot(400_000, 60);
    cable_out(&mut world);
    world.cluster[FAR].disk_mut(Store::Undo(GROUP)).rot_all();
    let run = world.recorded(FAR).identity.incarnation;
    let refused = world.refused(FAR, Command::Promote { force: true, entropy: 7 });
    assert!(refused.contains("a mixture"), "{refused}");
    assert!(world.recorded(FAR).identity.incarnation > run);
    let before = world.data_sent_bytes()[NEAR];
    world.restore_path();
    world.drain();
    assert_eq!(world.coverage(NEAR, CoveragePoint::SnapshotWentOn), 0);
    assert!(world.data_sent_bytes()[NEAR] - before >= ALL);
}

// proves: P3
/// A full sync sends all there is, whatever an earlier snapshot has left there.
#[test]
fn a_full_sync_leaves_nothing_out() {
    let mut world = in_mid_snapshot(400_000, 80);
    cable_out(&mut world);
    world.restore_path();
    world.until("they have met", |world| state(world) == Some(State::Syncing));
    let before = world.data_sent_bytes()[NEAR];
    let went_on = world.coverage(NEAR, CoveragePoint::SnapshotWentOn);
    assert!(matches!(world.order(NEAR, Command::SendAll), CommandResult::Done(_)));
    world.drain();
    let sent = world.data_sent_bytes()[NEAR] - before;
    assert!(sent >= ALL, "{sent} bytes");
    assert_eq!(world.coverage(NEAR, CoveragePoint::SnapshotWentOn), went_on);
}

// proves: P5, P8
/// The secondary comes to the end of a first sync while the next begin waits there, and nothing of that comes back: it has an image from
/// then on, keeps it over what follows, and needs room for what is sent, not for all that is dirty.
#[test]
fn an_end_recorded_before_the_next_begin_needs_no_room() {
    let mut world = whose_end_has_left(512 * KIB);
    world.cluster[FAR].storage.trouble.stalled_until = world.now() + 4 * SECOND;
    // All of it is in the memory there.
    world.pass(2 * SECOND);
    let began = world.coverage(NEAR, CoveragePoint::SnapshotBegan);
    world.connect([NEAR, FAR]);
    world.until("the next one has begun", |world| world.coverage(NEAR, CoveragePoint::SnapshotBegan) > began);
    // Its announcement arrives.
    world.pass(100 * MILLISECOND);
    assert!(world.recorded(FAR).identity.inconsistent);
    // The disk there answers before the session ends.
    world.cut([true, false]);
    world.pass(20 * SECOND);
    world.restore_path();
    world.drain();
    assert_eq!(world.coverage(FAR, CoveragePoint::HistoryFull), 0);
}
