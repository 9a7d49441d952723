//! A group that failed is started anew while its node lives on: from what is on record, as by a restart of the daemon.
// proves: rule 12

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Broken, Mode, Policy, State};
use engine::{Command, CommandResult, Input, RefusalCode};
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, at_rest, node_failed, options, unflushed};

const RESET: Command = Command::Reset { entropy: 7 };

/// Node 0 knows that its peer was primary, so its export does not open as soon as nobody hears that peer.
fn stays_closed(world: &mut ScenarioWorld) {
    let until = world.now() + 4 * SECOND;
    while world.now() < until {
        world.pass(100 * MILLISECOND);
        assert!(!world.cluster[0].serves(GROUP), "the peer was primary when it was heard last");
    }
}

fn is_failed_of(world: &ScenarioWorld, node: usize, broken: Broken) -> bool {
    world.glance(node, GROUP).is_some_and(|glance| glance.state == State::Failed(broken))
}

fn is_reset(world: &mut ScenarioWorld, node: usize) {
    match world.order(node, RESET) {
        CommandResult::Done(text) => assert!(text.starts_with("reset; the group has started anew"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert!(!node_failed(world, node));
}

/// The primary serves, clients write, and both copies become equal.
fn goes_on(world: &mut ScenarioWorld) {
    world.until("its export is open", |world| world.serves(GROUP));
    world.write_done(0, 64 * KIB, 16 * KIB);
    world.write_done(1, 512 * KIB, 4 * KIB);
    world.drain();
}

/// A primary whose activity log or superblock could not be written.
fn failed_primary(mode: Mode, policy: Policy) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(mode, policy));
    world.pass(10 * SECOND);
    world.cluster[0].storage.trouble.fail_next_record = true;
    // Its extent is cold: it enters the log.
    let id = world.write(0, 32 * KIB, 4 * KIB);
    assert!(!world.answer(id).0 && is_failed_of(&world, 0, Broken::Bits));
    world
}

// proves: P3
/// Settings that a group is told while it has failed are those by which it acts once it is reset.
#[test]
fn what_is_set_while_a_group_has_failed_counts_once_it_is_reset() {
    for (before, after) in [(Policy::Degrade, Policy::Strict), (Policy::Strict, Policy::Degrade)] {
        let mut world = failed_primary(Mode::Sync, before);
        world.set(GROUP, |settings| settings.policy = after);
        is_reset(&mut world, 0);
        goes_on(&mut world);
        assert_eq!(world.figures(0).settings.policy, after);
        world.crash(1, false, FOR_EVER);
        let id = world.write(0, 0, 4 * KIB);
        assert_eq!(world.answer(id).0, after == Policy::Degrade, "{after:?}: {:?}", world.glance(0, GROUP));
    }
}

// proves: rule 19
/// What is set at a failed primary is no mode in which a writer was answered: the copy's is the one of before.
#[test]
fn the_mode_that_is_set_at_a_failed_primary_is_not_the_copys() {
    let mut world = failed_primary(Mode::Async, Policy::Degrade);
    world.set(GROUP, |settings| settings.mode = Mode::Sync);
    world.pass(5 * SECOND);
    let told = world.figures(1);
    assert_eq!(
        told.peer.settings.map(|settings| settings.mode),
        Some(Mode::Sync),
        "each node shows what the other is set to"
    );
    assert_eq!((told.mode, told.acts_as), (Some(Mode::Async), Some(Mode::Async)));
    is_reset(&mut world, 0);
    goes_on(&mut world);
    world.pass(5 * SECOND);
    assert_eq!(world.figures(1).mode, Some(Mode::Sync));
}

/// A secondary whose superblock or journal could not be written.
fn failed_secondary(mode: Mode, policy: Policy) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options(mode, policy));
    world.write_done(0, 0, 4 * KIB);
    world.drain();
    world.cluster[1].storage.trouble.fail_next_record = true;
    world.write(0, 0, 4 * KIB);
    world.until("it fails", |world| node_failed(world, 1));
    world
}

#[test]
fn a_group_that_has_not_failed_is_not_reset() {
    let mut world = at_rest();
    let before = [world.recorded(0).identity, world.recorded(1).identity];
    for node in 0..2 {
        let answer = world.order(node, RESET);
        assert_eq!(answer, CommandResult::Unchanged("the group has not failed; nothing to do".into()));
    }
    assert_eq!([world.recorded(0).identity, world.recorded(1).identity], before);
    goes_on(&mut world);
}

#[test]
fn a_primary_is_reset_beside_a_live_link() {
    for (mode, policy) in [
        (Mode::Async, Policy::Degrade),
        (Mode::Sync, Policy::Hold(Duration::from_secs(5))),
        (Mode::Nearsync, Policy::Strict),
    ] {
        let mut world = failed_primary(mode, policy);
        let run = world.recorded(0).identity.incarnation;
        is_reset(&mut world, 0);
        assert!(world.recorded(0).identity.incarnation > run, "its run is another one");
        goes_on(&mut world);
        assert!(world.coverage(0, CoveragePoint::ResetWhileConnected) == 1);
        assert!(world.coverage(1, CoveragePoint::PeerReset) == 1);
    }
}

/// Its peer is gone, and the link has not told of that yet: nobody said what the export waited for.
#[test]
fn a_primary_that_was_reset_says_what_its_export_waits_for() {
    let mut world = failed_primary(Mode::Async, Policy::Degrade);
    world.cut([false; 2]);
    world.pass(MILLISECOND);
    is_reset(&mut world, 0);
    assert_eq!(world.coverage(0, CoveragePoint::ResetWhileConnected), 1);
    let mut waited = 0;
    while !world.serves(GROUP) {
        let reason = world.figures(0).reason;
        assert!(
            reason.contains("the export opens once the peer has said who it is, or the link to it has ended"),
            "{reason}"
        );
        world.pass(100 * MILLISECOND);
        waited += 1;
    }
    assert!(waited > 5, "it waits for the link's end: {waited}");
    assert!(!world.figures(0).reason.contains("the export opens"));
}

#[test]
fn a_secondary_is_reset_beside_a_live_link() {
    for (mode, policy) in [
        (Mode::Async, Policy::Degrade),
        (Mode::Sync, Policy::Hold(Duration::from_secs(50))),
        (Mode::Nearsync, Policy::Strict),
    ] {
        let mut world = failed_secondary(mode, policy);
        is_reset(&mut world, 1);
        goes_on(&mut world);
        assert!(world.coverage(0, CoveragePoint::PeerReset) == 1);
    }
}

// proves: rule 11
/// Of its volumes, of a flush of them, and of its start.
#[test]
fn a_secondary_is_reset_whatever_it_failed_of() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.cluster[1].storage.trouble.apply_errors_until = ALWAYS;
    world.write_done(0, 0, 4 * KIB);
    world.until("it fails", |world| is_failed_of(world, 1, Broken::VolumeApply));
    // What is in its journal is replayed, and the device still refuses it.
    let refusal = world.refusal(1, RESET);
    assert_eq!((refusal.code, is_failed_of(&world, 1, Broken::VolumeApply)), (RefusalCode::GroupFailed, true));
    world.cluster[1].storage.trouble.apply_errors_until = 0;
    is_reset(&mut world, 1);
    goes_on(&mut world);
    world.cluster[1].storage.trouble.fail_next_flush = true;
    world.write_done(0, 0, 4 * KIB);
    world.until("it fails", |world| node_failed(world, 1));
    is_reset(&mut world, 1);
    goes_on(&mut world);
}

/// Whichever record cannot be written next, on either node; the journal and the bits are among them.
#[test]
fn a_group_is_reset_whichever_record_it_failed_of() {
    let mut met = [Vec::new(), Vec::new()];
    for (node, record) in (0..2).flat_map(|node| (1..=10).map(move |record| (node, record))) {
        let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
        world.pass(10 * SECOND);
        world.cluster[node].storage.trouble.fail_record_in = record;
        for place in 0..10 {
            world.write(0, place * 64 * KIB, 4 * KIB);
            world.pass(SECOND / 2);
        }
        world.cluster[node].storage.trouble.fail_record_in = 0;
        let Some(State::Failed(broken)) = world.glance(node, GROUP).map(|glance| glance.state) else { continue };
        met[node].push(broken);
        is_reset(&mut world, node);
        goes_on(&mut world);
    }
    assert!(met[0].contains(&Broken::Bits) && met[1].contains(&Broken::Journal), "{met:?}");
}

// proves: P1
/// What the failed flush lost is with the peer, and fetched from there before the export opens.
#[test]
fn what_a_failed_flush_lost_is_fetched_by_a_reset() {
    // Whether that is on record when the reset begins, and whether it can be recorded then.
    for recorded in [true, false] {
        let mut world = unflushed();
        let confirmed = world.images_of(1);
        let near = &mut world.cluster[0].storage.trouble;
        (near.fail_next_flush, near.fail_next_record) = (true, !recorded);
        let flush = world.flush(0);
        assert!(!world.answer(flush).0 && is_failed_of(&world, 0, Broken::VolumeFlush));
        let lacks = |world: &ScenarioWorld| world.images_of(0).iter().zip(&confirmed).any(|(held, had)| held != had);
        assert!(lacks(&world), "something was lost");
        world.cluster[0].storage.trouble.fail_next_record = !recorded;
        let CommandResult::Done(text) = world.order(0, RESET) else { panic!("not reset") };
        assert!(text.contains("asked for it"), "{text}");
        world.until("its export is open", |world| world.cluster[0].serves(GROUP));
        assert_eq!(world.coverage(0, CoveragePoint::TailPulled), 1);
        assert!(!lacks(&world), "all that the peer had is here again");
        goes_on(&mut world);
    }
}

#[test]
fn a_reset_that_meets_the_same_cause_fails_in_the_same_words() {
    let mut world = failed_primary(Mode::Async, Policy::Degrade);
    world.cluster[0].storage.trouble.state_full_until = ALWAYS;
    let refusal = world.refusal(0, RESET);
    assert_eq!(refusal.code, RefusalCode::GroupFailed);
    assert!(
        refusal.text.contains(Broken::Bits.words()) || refusal.text.contains(Broken::Superblock.words()),
        "{refusal}"
    );
    assert!(node_failed(&world, 0) && !world.cluster[0].serves(GROUP));
    world.pass(10 * SECOND);
    world.cluster[0].storage.trouble.state_full_until = 0;
    is_reset(&mut world, 0);
    goes_on(&mut world);
}

// proves: P7
#[test]
fn a_group_whose_devices_cannot_be_opened_is_not_taken_up() {
    for node in 0..2 {
        let mut world = [failed_primary, failed_secondary][node](Mode::Async, Policy::Degrade);
        world.cluster[node].storage.trouble.refuses_reopening = true;
        let refusal = world.refusal(node, RESET);
        assert!(refusal.text.contains("another device stands in its place"), "{refusal}");
        assert!(is_failed_of(&world, node, Broken::Device));
        world.pass(10 * SECOND);
        assert!(!world.cluster[0].serves(GROUP) || node == 1);
        let said = world.figures(1 - node).reason;
        assert!(node == 0 || said.contains("failed"), "{said}");
        is_reset(&mut world, node);
        goes_on(&mut world);
    }
}

/// The link is down, or comes up again at any moment of the reset.
#[test]
fn halves_meet_whenever_the_link_comes_up() {
    for node in 0..2 {
        for step in 0..40 {
            let mut world = [failed_primary, failed_secondary][node](Mode::Sync, Policy::Degrade);
            world.cut([false; 2]);
            world.pass(20 * SECOND);
            let slow = &mut world.cluster[node].storage.trouble;
            slow.slow_until = ALWAYS;
            world.restore_path();
            world.pass(step * 40 * MILLISECOND);
            is_reset(&mut world, node);
            world.cluster[node].storage.trouble.slow_until = 0;
            goes_on(&mut world);
        }
    }
}

/// Each at another moment of the other's reset.
#[test]
fn both_halves_are_reset_at_once() {
    for step in 0..60 {
        let mut world = failed_primary(Mode::Async, Policy::Degrade);
        world.cluster[1].storage.trouble.fail_next_record = true;
        world.until("its peer says so", |world| world.figures(1).reason.contains("failed"));
        // It writes its superblock when it takes a point; a promotion that fails does so too.
        let _ = world.promote(1, true);
        assert!(node_failed(&world, 1), "{:?}", world.glance(1, GROUP));
        let first = world.command(1, GROUP, RESET);
        world.pass(step * MILLISECOND);
        let second = world.command(0, GROUP, RESET);
        world.pass(MILLISECOND);
        let third = world.command(1, GROUP, RESET);
        world.until("all are answered", |world| {
            [first, second, third].iter().all(|id| world.cluster.ledger.result(*id).is_some())
        });
        world.pass(10 * SECOND);
        assert!(!node_failed(&world, 0) && !node_failed(&world, 1));
        let peer = |node: usize| world.figures(node).peer.role;
        assert!(peer(0).is_some() && peer(1).is_some(), "both have heard of each other");
    }
}

/// What hangs is waited for: nothing of it may reach the new run.
#[test]
fn what_is_under_way_ends_before_the_stores_are_closed() {
    let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
    world.pass(10 * SECOND);
    for n in 0..4 {
        world.write_done(0, n * 64 * KIB, 4 * KIB);
    }
    let now = world.now();
    world.cluster[0].storage.trouble.stalled_until = now + 5 * SECOND;
    let slow = world.write(0, 0, 16 * KIB);
    let near = &mut world.cluster[0].storage.trouble;
    (near.stalled_until, near.fail_next_record) = (0, true);
    let failing = world.write(1, 960 * KIB, 4 * KIB);
    assert!(!world.answer(failing).0 && node_failed(&world, 0));
    let reset = world.command(0, GROUP, RESET);
    let again = world.command(0, GROUP, RESET);
    world.pass(2 * SECOND);
    assert_eq!((world.cluster.ledger.result(reset), world.reply(slow)), (None, None));
    let why = world.figures(0).reason;
    assert!(why.contains("waits for the group's disks"), "{why}");
    let (_, after) = world.answer(slow);
    assert!(after > 0);
    world.until("it is reset", |world| world.cluster.ledger.result(reset).is_some());
    for id in [reset, again] {
        assert!(matches!(world.cluster.ledger.result(id), Some(CommandResult::Done(_))));
    }
    goes_on(&mut world);
}

// proves: P6
/// The peer was promoted, before the reset or at any moment of it.
#[test]
fn a_primary_is_not_opened_beside_one_that_serves() {
    for step in 0..50 {
        let mut world = failed_primary(Mode::Async, Policy::Degrade);
        world.until("its peer says so", |world| world.figures(1).reason.contains("failed"));
        let reset = (step > 0).then(|| world.command(0, GROUP, RESET));
        world.pass(step * MILLISECOND);
        if world.cluster[0].serves(GROUP) {
            break;
        }
        assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
        let reset = reset.unwrap_or_else(|| world.command(0, GROUP, RESET));
        world.until("it is reset", |world| world.cluster.ledger.result(reset).is_some());
        for _ in 0..40 {
            world.pass(SECOND / 2);
            assert!(!(world.cluster[0].serves(GROUP) && world.cluster[1].serves(GROUP)), "{step}");
        }
        let why = world.figures(0).reason;
        assert!(why.contains("stays closed"), "{why}");
        // Its operator follows what it says.
        let _ = world.order(0, Command::Demote);
        world.order(1, Command::Sync { full: true });
        world.drain();
    }
}

/// The daemon dies in the midst of it, with its machine or without.
#[test]
fn a_reset_may_be_cut_short_anywhere() {
    for node in 0..2 {
        for step in 0..60u64 {
            let mut world = [failed_primary, failed_secondary][node](Mode::Async, Policy::Degrade);
            world.command(node, GROUP, RESET);
            world.pass(step * MILLISECOND);
            world.crash(node, step % 2 == 0, SECOND);
            world.pass(SECOND);
            goes_on(&mut world);
        }
    }
}

/// The node is stopped in the midst of it: whoever ordered it is told.
#[test]
fn a_stop_ends_a_reset() {
    for node in 0..2 {
        for step in 0..60 {
            let mut world = [failed_primary, failed_secondary][node](Mode::Async, Policy::Degrade);
            let reset = world.command(node, GROUP, RESET);
            world.pass(step * MILLISECOND);
            world.stop(node);
            assert!(world.cluster.ledger.result(reset).is_some(), "{step}");
            world.boot(node);
            goes_on(&mut world);
        }
    }
}

/// What no record tells of the failed run is lost with a stop that comes while its stores are closed, and nothing is asked of them.
#[test]
fn a_stop_asks_nothing_of_stores_that_are_closed() {
    for step in 0..60 {
        let mut world = unflushed();
        let near = &mut world.cluster[0].storage.trouble;
        (near.fail_next_flush, near.state_full_until) = (true, ALWAYS);
        let flush = world.flush(0);
        assert!(!world.answer(flush).0 && is_failed_of(&world, 0, Broken::VolumeFlush));
        let reset = world.command(0, GROUP, RESET);
        world.pass(step * MILLISECOND);
        world.stop(0);
        assert!(world.cluster.ledger.result(reset).is_some(), "{step}");
    }
}

// proves: P1
/// Writers who are held under `strict` are answered when the secondary was reset, and have what they were promised.
#[test]
fn writers_who_wait_for_a_failed_peer_go_on_after_its_reset() {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { wait_limit_ms: 60_000, ..options(Mode::Sync, Policy::Strict) });
    world.cluster[1].storage.trouble.fail_next_record = true;
    let held = world.write(0, 0, 4 * KIB);
    world.until("it fails", |world| node_failed(world, 1));
    world.pass(SECOND);
    assert_eq!(world.reply(held), None);
    is_reset(&mut world, 1);
    assert!(world.answer(held).0, "the queue continues");
    goes_on(&mut world);
}

/// A secondary that fails in the midst of a sync goes on with it.
#[test]
fn a_secondary_is_reset_in_the_midst_of_a_sync() {
    let mut met = 0;
    for step in 0..30 {
        let mut world =
            ScenarioWorld::in_peace(SimOptions { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) });
        assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
        for n in 0..24 {
            world.write_done(n % 2, u64::from(n) / 2 * 64 * KIB, 32 * KIB);
        }
        world.order(0, Command::Sync { full: false });
        world.pass(step * 40 * MILLISECOND);
        world.cluster[1].storage.trouble.fail_next_record = true;
        world.pass(500 * MILLISECOND);
        world.cluster[1].storage.trouble.fail_next_record = false;
        if !node_failed(&world, 1) {
            continue;
        }
        met += 1;
        is_reset(&mut world, 1);
        goes_on(&mut world);
    }
    assert!(met > 5, "{met}");
}

/// A group that its host did not take up at the daemon's start.
#[test]
fn a_group_that_was_refused_at_the_start_is_taken_up_by_a_reset() {
    let mut world = at_rest();
    world.crash(1, false, SECOND);
    world.cluster[1].stays_down();
    world.boot_refused(1, "it cannot be opened: no device");
    world.until("it has failed", |world| node_failed(world, 1));
    is_reset(&mut world, 1);
    goes_on(&mut world);
    world.input(1, Input::Stop);
    world.until("it has stopped", |world| !world.cluster[1].up());
}

// proves: P1, P4
/// A primary that lost its power served without its peer, and its clients wrote. Then the group failed of something else: a reset asks the
/// operator, as a restart does, and fetches nothing over what was written since.
#[test]
fn a_primary_that_served_unverified_is_reset_as_one_that_served() {
    for stops in [false, true] {
        let mut world = ScenarioWorld::in_peace(options(Mode::Async, Policy::Degrade));
        world.loses_power_alone();
        world.until("it serves alone", |world| world.cluster[0].serves(GROUP));
        for n in 0..24 {
            world.write_done((n % 2) as u16, n * 32 * KIB, 16 * KIB);
        }
        for volume in 0..2 {
            let flush = world.flush(volume);
            assert!(world.answer(flush).0);
        }
        let written = world.images_of(0);
        world.restore_path();
        world.until("the operator is asked", |world| world.coverage(0, CoveragePoint::TailAskedAbout) > 0);
        world.cluster[0].storage.trouble.fail_next_record = true;
        let id = world.write(0, 900 * KIB, 4 * KIB);
        assert!(!world.answer(id).0 && node_failed(&world, 0));
        is_reset(&mut world, 0);
        if stops {
            world.pass(MILLISECOND);
            world.stop(0);
            world.boot(0);
        }
        world.until("its export is open", |world| world.cluster[0].serves(GROUP));
        world.pass(10 * SECOND);
        assert_eq!(world.coverage(0, CoveragePoint::TailPulled), 0);
        assert_eq!(world.images_of(0), written, "what clients wrote since is not given up unasked");
    }
}

// proves: P1
/// A flush failed, nothing could be recorded, and the reset fails behind the superblock: the tries to record the loss go on.
#[test]
fn a_reset_that_fails_goes_on_recording_what_caches_lost() {
    let mut world = unflushed();
    let confirmed = world.images_of(1);
    let near = &mut world.cluster[0].storage.trouble;
    (near.fail_next_flush, near.state_full_until) = (true, ALWAYS);
    let flush = world.flush(0);
    assert!(!world.answer(flush).0 && node_failed(&world, 0));
    assert_eq!(world.refusal(0, RESET).code, RefusalCode::GroupFailed);
    world.cluster[0].storage.trouble.state_full_until = 0;
    world.pass(5 * SECOND);
    assert_eq!(world.recorded(0).boot, 0, "the next start takes it for a power loss");
    world.crash(0, false, SECOND);
    world.until("its export is open", |world| world.cluster[0].serves(GROUP));
    assert_eq!(world.images_of(0), confirmed, "all that the peer had is here again");
    goes_on(&mut world);
}

// proves: P6
/// The peer was promoted while the group started anew, said so in a session that was over before the start was, and the export opened
/// beside it at once.
#[test]
fn a_primary_is_not_opened_beside_one_that_was_heard_while_it_started() {
    let mut world = failed_primary(Mode::Sync, Policy::Degrade);
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    world.promote(1, true);
    // The start takes its time.
    world.cluster[0].storage.trouble.superblock_ns = 20 * SECOND;
    world.command(0, GROUP, RESET);
    world.pass(SECOND);
    world.cut([true; 2]);
    world.pass(SECOND);
    world.cut([false; 2]);
    world.cluster[0].storage.trouble.superblock_ns = 0;
    world.until("it has started", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    stays_closed(&mut world);
}

// proves: P1
/// A disk that hangs held the reset up, and nobody tried any more to record that a flush had failed: the daemon that was killed over it
/// trusted its caches at the next start.
#[test]
fn a_reset_that_waits_for_a_disk_goes_on_recording_what_caches_lost() {
    let mut world = unflushed();
    let confirmed = world.images_of(1);
    // The other volume's disk owes an answer for a while.
    world.cluster[0].storage.trouble.flush_ns = 30 * SECOND;
    let owed = world.flush(1);
    world.pass(10 * MILLISECOND);
    let near = &mut world.cluster[0].storage.trouble;
    (near.flush_ns, near.fail_next_flush, near.state_full_until) = (0, true, ALWAYS);
    world.flush(0);
    world.until("it has failed", |world| node_failed(world, 0));
    world.command(0, GROUP, RESET);
    world.pass(3 * SECOND);
    world.cluster[0].storage.trouble.state_full_until = 0;
    world.pass(4 * SECOND);
    assert!(world.glance(0, GROUP).is_some_and(|glance| !glance.running || node_failed(&world, 0)), "{owed:?} is owed");
    assert_eq!(world.recorded(0).boot, 0, "the next start takes it for a power loss");
    world.crash(0, false, SECOND);
    world.until("its export is open", |world| world.cluster[0].serves(GROUP));
    assert_eq!(world.images_of(0)[0], confirmed[0], "all that the peer had is here again");
    goes_on(&mut world);
}

// proves: P6
/// The peer was promoted, said so, and then the cable went: a reset does not open beside it before `start_alone` is over.
#[test]
fn a_primary_is_not_opened_beside_one_that_was_heard_before_the_cable_went() {
    let mut world = failed_primary(Mode::Sync, Policy::Degrade);
    world.promote(1, true);
    world.pass(SECOND);
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    is_reset(&mut world, 0);
    stays_closed(&mut world);
}

// proves: P6
/// The peer was promoted and said so while the group started anew, and then the start failed: the next reset did not know it any more.
#[test]
fn a_primary_is_not_opened_beside_one_that_was_heard_by_a_start_that_failed() {
    let mut world = failed_primary(Mode::Sync, Policy::Degrade);
    // The start takes its time.
    world.cluster[0].storage.trouble.superblock_ns = 5 * SECOND;
    world.command(0, GROUP, RESET);
    world.pass(SECOND);
    world.promote(1, true);
    world.pass(SECOND);
    assert!(!node_failed(&world, 0), "it starts");
    world.cluster[0].storage.trouble.fail_next_record = true;
    world.until("its start fails", |world| node_failed(world, 0));
    world.cluster[0].storage.trouble.superblock_ns = 0;
    world.cut([false; 2]);
    world.pass(20 * SECOND);
    is_reset(&mut world, 0);
    stays_closed(&mut world);
}
