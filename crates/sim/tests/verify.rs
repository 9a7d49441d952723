//! Online verify: the copy is compared while writers go on, what rotted is named and nothing else is, and it is repaired on request.

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB, REGION_BYTES};
use engine::state::{CopyDoubts, Degrade, Mode, Policy, State};
use engine::status::VerifiedStatus;
use engine::{Command, CommandResult, RefusalCode, VerifyOrder, VolumeId};
use sim::actors::rots;
use sim::nodes::storage::ALWAYS;
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options, state};

const FULL: VerifyOrder =
    VerifyOrder { rate_bytes_per_s: None, sample_percent: 100, repair: false, entropy: 7, by_timer: false };
const REPAIR: VerifyOrder = VerifyOrder { repair: true, ..FULL };
/// At that the two volumes of a scenario take four seconds.
const SLOW: VerifyOrder = VerifyOrder { rate_bytes_per_s: Some(512 * KIB), ..FULL };

fn begin(world: &mut ScenarioWorld, order: VerifyOrder) {
    let result = world.order(0, Command::Verify(order));
    assert!(matches!(result, CommandResult::Done(_)), "{result:?}");
}

fn end(world: &mut ScenarioWorld) -> VerifiedStatus {
    world.until("the verify is over", |world| world.figures(0).verify.is_none());
    world.figures(0).verified.expect("it is over")
}

fn verify(world: &mut ScenarioWorld, order: VerifyOrder) -> VerifiedStatus {
    begin(world, order);
    end(world)
}

fn peace(mode: Mode) -> ScenarioWorld {
    ScenarioWorld::in_peace(options(mode, Policy::Degrade))
}

/// What both nodes have on record, once the secondary has heard of it.
fn doubts(world: &mut ScenarioWorld) -> CopyDoubts {
    world.pass(3 * SECOND);
    let [here, there] = [0, 1].map(|node| world.recorded(node).doubts);
    assert_eq!(here, there, "a promotion changes nothing of it");
    assert_eq!(world.figures(0).doubts, here);
    here
}

fn rot(world: &mut ScenarioWorld, node: usize, volume: u16, byte: u64) {
    rots(world, node, GROUP, VolumeId(volume), byte / 512);
}

// proves: P3, rule 7
/// Writers never pause, over every block, and trim; the secondary is behind all the time.
#[test]
fn equal_copies_are_compared_whole_beside_writers_and_nothing_is_named() {
    for mode in [Mode::Sync, Mode::Nearsync, Mode::Async] {
        let mut world = peace(mode);
        world.cluster[1].storage.trouble.slow_until = ALWAYS;
        world.cluster[0].storage.trouble.slow_until = ALWAYS;
        begin(&mut world, SLOW);
        for n in 0.. {
            if world.figures(0).verify.is_none() {
                break;
            }
            let offset = n * 20 * KIB % (MIB - 16 * KIB) / 512 * 512;
            if n % 13 == 12 {
                world.zero((n % 2) as u16, offset, 8 * KIB + 512, false);
            } else {
                world.write((n % 2) as u16, offset, 16 * KIB);
            }
            world.pass(4 * MILLISECOND);
        }
        let verified = end(&mut world);
        assert_eq!((verified.totals.compared_bytes, verified.totals.differing_bytes), (2 * MIB, 0));
        assert_eq!(verified.given_up, None);
        assert!(world.coverage(0, CoveragePoint::VerifyWaitedForWrite) > 0, "{mode:?}");
        (0..2).for_each(|node| world.cluster[node].storage.trouble.slow_until = 0);
        world.drain();
        assert_eq!(doubts(&mut world), CopyDoubts::default());
    }
}

// proves: P3
/// Each region of it is named, on whichever node it rotted; that stays on record until a verify has repaired it.
#[test]
fn what_rotted_is_named_by_its_region_and_repaired_on_request() {
    let mut world = peace(Mode::Async);
    for n in 0..24 {
        world.write_done((n % 2) as u16, n * 40 * KIB, 16 * KIB);
    }
    world.drain();
    rot(&mut world, 1, 0, 100 * KIB);
    rot(&mut world, 0, 1, MIB - 512);
    let verified = verify(&mut world, FULL);
    let named: Vec<_> = verified.named.iter().map(|range| (range.volume, range.offset, range.length)).collect();
    let region = |byte: u64| byte / REGION_BYTES * REGION_BYTES;
    assert_eq!(named, [(VolumeId(0), region(100 * KIB), REGION_BYTES), (VolumeId(1), region(MIB - 512), REGION_BYTES)]);
    assert_eq!((verified.totals.differing_bytes, verified.totals.left_bytes()), (2 * REGION_BYTES, 2 * REGION_BYTES));
    assert_eq!(verified.totals.compared_bytes, 2 * MIB, "each range counts once");
    let differs = CopyDoubts { differs: true, ..CopyDoubts::default() };
    assert_eq!(doubts(&mut world), differs);
    world.crash(0, true, SECOND);
    world.crash(1, true, SECOND);
    world.drain();
    assert_eq!(doubts(&mut world), differs);
    // What was being written then was compared, and may have been mended.
    rot(&mut world, 1, 0, 100 * KIB);
    rot(&mut world, 0, 1, MIB - 512);
    // A sample does not clear the whole, whatever it finds.
    verify(&mut world, VerifyOrder { sample_percent: 1, ..FULL });
    assert_eq!(doubts(&mut world), differs);
    let verified = verify(&mut world, REPAIR);
    assert_eq!((verified.totals.differing_bytes, verified.totals.left_bytes()), (2 * REGION_BYTES, 0));
    assert_eq!(verified.totals.compared_bytes, 2 * MIB);
    assert_eq!(doubts(&mut world), CopyDoubts::default());
    let verified = verify(&mut world, FULL);
    assert_eq!(verified.totals.differing_bytes, 0);
}

/// Only the regions that differ travel.
#[test]
fn a_repair_sends_what_differs_and_no_more() {
    let mut world = peace(Mode::Async);
    for byte in [0, 300 * KIB, 700 * KIB] {
        rot(&mut world, 1, 0, byte);
    }
    world.write_done(0, 0, MIB);
    world.drain();
    for byte in [0, 300 * KIB, 700 * KIB] {
        rot(&mut world, 1, 0, byte);
    }
    let before = world.figures(0).shipped_bytes;
    let verified = verify(&mut world, REPAIR);
    assert_eq!(verified.totals.repaired_bytes, 3 * REGION_BYTES);
    assert!(world.figures(0).shipped_bytes - before <= 3 * REGION_BYTES);
    assert!(world.coverage(0, CoveragePoint::VerifyRepaired) == 3);
}

// proves: P3
/// Comparisons that wait for their answer when the link is lost are of no use in the next session, whose hashes have another key.
#[test]
fn a_verify_goes_on_behind_a_lost_link_without_a_false_alarm() {
    for mode in [Mode::Async, Mode::Sync] {
        let hold = Policy::Hold(std::time::Duration::from_secs(60));
        let mut world = ScenarioWorld::in_peace(SimOptions { delay_ns: 20 * MILLISECOND, ..options(mode, hold) });
        begin(&mut world, SLOW);
        for round in 0..6 {
            world.pass(300 * MILLISECOND);
            world.cluster[1].storage.trouble.slow_until = world.now() + SECOND / 2;
            world.write(0, round * 64 * KIB, 8 * KIB);
            world.pass(30 * MILLISECOND);
            world.flap([0, 1]);
            world.pass(200 * MILLISECOND);
        }
        let verified = end(&mut world);
        assert_eq!((verified.totals.compared_bytes, verified.totals.differing_bytes), (2 * MIB, 0), "{mode:?}");
        assert!(world.coverage(0, CoveragePoint::VerifyInterrupted) > 0);
        world.drain();
    }
}

/// Where the stream ends, its comparisons do too; what a sync carries over is compared behind it.
#[test]
fn a_verify_waits_while_a_sync_runs_and_then_goes_on() {
    let mut world = peace(Mode::Async);
    begin(&mut world, SLOW);
    world.pass(SECOND);
    let before = world.figures(0).verify.expect("under way");
    assert!(before.totals.compared_bytes > 0 && !before.waits);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..8 {
        world.write_done(0, n * 96 * KIB, 64 * KIB);
    }
    world.pass(SECOND);
    let waiting = world.figures(0).verify.expect("it waits");
    assert!(waiting.waits && waiting.totals.compared_bytes <= before.totals.compared_bytes + 256 * KIB);
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    let verified = end(&mut world);
    assert_eq!((verified.totals.compared_bytes, verified.totals.differing_bytes), (2 * MIB, 0));
    world.drain();
}

// proves: P3
/// A write that failed here leaves a region that may differ: it is compared behind its repair.
#[test]
fn a_local_write_that_fails_beside_a_verify_is_no_difference() {
    for seed in 1..=8 {
        let mut world = ScenarioWorld::in_peace(SimOptions { seed: 2 * seed, ..options(Mode::Async, Policy::Degrade) });
        begin(&mut world, SLOW);
        world.cluster[0].storage.trouble.write_errors_until = world.now() + 2 * SECOND;
        for n in 0..400 {
            world.write((n % 2) as u16, n * 28 * KIB % (MIB - 16 * KIB) / 512 * 512, 16 * KIB);
            world.pass(5 * MILLISECOND);
        }
        let verified = end(&mut world);
        assert!(world.coverage(0, CoveragePoint::LocalWriteFailed) > 0);
        assert_eq!((verified.totals.compared_bytes, verified.totals.differing_bytes), (2 * MIB, 0), "seed {seed}");
        world.drain();
    }
}

/// A whole node is down in its midst, or falls out of its order: nothing is named, and what was compared counts once.
#[test]
fn a_peer_that_dies_in_a_verify_is_compared_when_it_is_back() {
    for power in [false, true] {
        let mut world = peace(Mode::Async);
        begin(&mut world, SLOW);
        for _ in 0..3 {
            world.pass(SECOND / 2);
            world.write(0, 64 * KIB, 16 * KIB);
            world.crash(1, power, SECOND);
            world.pass(2 * SECOND);
        }
        let verified = end(&mut world);
        assert_eq!((verified.totals.compared_bytes, verified.totals.differing_bytes), (2 * MIB, 0));
        world.drain();
    }
}

#[test]
fn a_sample_is_a_part_of_each_volume_and_no_proof() {
    let mut world = peace(Mode::Async);
    for sample_percent in [1, 40] {
        let verified = verify(&mut world, VerifyOrder { sample_percent, ..FULL });
        let compared = verified.totals.compared_bytes;
        assert!((128 * KIB..3 * MIB / 2).contains(&compared), "{sample_percent} %: {compared}");
        assert!(!verified.order.is_full());
    }
    // Another choice finds other chunks.
    let of = |world: &mut ScenarioWorld, entropy| {
        verify(world, VerifyOrder { sample_percent: 40, entropy, ..FULL }).totals.compared_bytes
    };
    let sizes: std::collections::BTreeSet<u64> = (0..8).map(|entropy| of(&mut world, entropy)).collect();
    assert!(sizes.len() > 1);
}

#[test]
fn a_rate_is_kept_and_may_be_changed_on_the_way() {
    let mut world = peace(Mode::Async);
    let began = world.now();
    verify(&mut world, SLOW);
    let took = world.now() - began;
    assert!((3800 * MILLISECOND..4500 * MILLISECOND).contains(&took), "{took} ns");
    begin(&mut world, VerifyOrder { rate_bytes_per_s: Some(KIB), ..FULL });
    world.pass(2 * SECOND);
    let faster = world.now();
    begin(&mut world, VerifyOrder { rate_bytes_per_s: Some(MIB), entropy: 99, ..FULL });
    end(&mut world);
    assert!(world.now() - faster < 3 * SECOND);
}

// proves: P8
/// A writer in `sync` pays for what is read of its own blocks, and for nothing else.
#[test]
fn writers_wait_no_longer_beside_a_verify() {
    let mut world = peace(Mode::Sync);
    let longest = |world: &mut ScenarioWorld| {
        (0..50u64).map(|n| world.write_done((n % 2) as u16, n * 20 * KIB, 4 * KIB)).max().unwrap_or(0)
    };
    let before = longest(&mut world);
    begin(&mut world, VerifyOrder { rate_bytes_per_s: Some(4 * MIB), ..FULL });
    let beside = longest(&mut world);
    assert!(beside <= before + 10 * MILLISECOND, "{before} ns alone, {beside} ns beside a verify");
    end(&mut world);
}

/// A range that one of the nodes cannot read.
#[test]
fn what_cannot_be_read_is_named_on_the_peer_and_left_out_here() {
    let mut world = peace(Mode::Async);
    world.cluster[1].storage.trouble.unreadable_until = ALWAYS;
    let verified = verify(&mut world, VerifyOrder { sample_percent: 1, ..FULL });
    assert!(verified.named.iter().all(|range| range.unreadable) && !verified.named.is_empty());
    assert!(world.figures(0).doubts.differs);
    world.cluster[1].storage.trouble.unreadable_until = 0;
    verify(&mut world, FULL);
    assert!(!world.figures(0).doubts.differs);
    world.cluster[0].storage.trouble.unreadable_until = ALWAYS;
    let verified = verify(&mut world, VerifyOrder { sample_percent: 1, ..FULL });
    assert_eq!((verified.totals.compared_bytes, verified.totals.differing_bytes), (0, 0));
    assert!(verified.totals.unread_bytes > 0);
    assert_eq!(state(&world), Some(State::Replicating), "clients are served meanwhile");
}

/// The peer's disk does not keep what is written: it is sent once, and named all the same.
#[test]
fn a_repair_that_does_not_hold_is_not_repeated_for_ever() {
    let mut world = peace(Mode::Async);
    begin(&mut world, REPAIR);
    for _ in 0..400 {
        if world.figures(0).verify.is_none() {
            break;
        }
        rot(&mut world, 1, 0, 40 * KIB);
        world.pass(10 * MILLISECOND);
    }
    assert!(world.figures(0).verify.is_none(), "it comes to its end");
    world.pass(SECOND);
    let verified = world.figures(0).verified.expect("over");
    assert_eq!(verified.totals.left_bytes(), verified.totals.differing_bytes - verified.totals.repaired_bytes);
}

#[test]
fn orders_for_a_verify_can_be_repeated_and_say_what_stands_in_their_way() {
    let mut world = ScenarioWorld::new(options(Mode::Async, Policy::Degrade));
    world.pass(SECOND);
    assert_eq!(world.refusal(0, Command::Verify(FULL)).code, RefusalCode::NeedsFullSync);
    assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
    world.drain();
    assert_eq!(world.refusal(1, Command::Verify(FULL)).code, RefusalCode::NotPrimary);
    assert_eq!(world.refusal(1, Command::VerifyStop).code, RefusalCode::NotPrimary);
    assert!(matches!(world.order(0, Command::VerifyStop), CommandResult::Unchanged(_)));
    begin(&mut world, SLOW);
    assert!(matches!(world.order(0, Command::Verify(VerifyOrder { entropy: 8, ..SLOW })), CommandResult::Unchanged(_)));
    assert_eq!(world.refusal(0, Command::Verify(REPAIR)).code, RefusalCode::VerifyUnderWay);
    assert!(matches!(world.order(0, Command::VerifyStop), CommandResult::Done(_)));
    let stopped = world.figures(0).verified.expect("over");
    assert!(stopped.given_up.is_some_and(|why| why.contains("operator")));
    assert!(matches!(world.order(0, Command::VerifyStop), CommandResult::Unchanged(_)));
    // It waits for a peer that is away.
    world.crash(1, false, 5 * SECOND);
    world.pass(SECOND);
    assert!(matches!(world.order(0, Command::Verify(FULL)), CommandResult::Warning(_)));
    assert_eq!(end(&mut world).totals.compared_bytes, 2 * MIB);
    world.set_mode(GROUP, Mode::Logging);
    assert_eq!(world.refusal(0, Command::Verify(FULL)).code, RefusalCode::ModeLogging);
}

/// A verify that begins by itself is in nobody's way: it leaves one that was typed as it is, and whoever types one has it.
#[test]
fn a_verify_that_nobody_typed_gives_way_to_one_that_is_typed() {
    const BY_TIMER: VerifyOrder = VerifyOrder { rate_bytes_per_s: Some(64 * KIB), by_timer: true, ..FULL };
    let mut world = peace(Mode::Async);
    begin(&mut world, SLOW);
    assert!(matches!(world.order(0, Command::Verify(BY_TIMER)), CommandResult::Unchanged(_)));
    let run = world.figures(0).verify.expect("under way");
    assert_eq!((run.order.rate_bytes_per_s, run.order.by_timer), (SLOW.rate_bytes_per_s, false));
    end(&mut world);
    // The same at another rate: it goes on, and is the operator's.
    begin(&mut world, BY_TIMER);
    world.pass(3 * SECOND);
    let walked_bytes = world.figures(0).verify.expect("under way").walked_bytes;
    begin(&mut world, FULL);
    let run = world.figures(0).verify.expect("under way");
    assert!(!run.order.by_timer && run.walked_bytes >= walked_bytes && walked_bytes > 0, "{run:?}");
    assert_eq!(end(&mut world).totals.compared_bytes, 2 * MIB);
    // Of another kind: it ends, and the other one begins.
    rot(&mut world, 1, 0, 0);
    begin(&mut world, BY_TIMER);
    world.pass(SECOND);
    let verified = verify(&mut world, REPAIR);
    assert!(verified.given_up.is_none() && verified.order.repair, "{verified:?}");
    assert_eq!(verified.totals.left_bytes(), 0);
    assert!(world.coverage(0, CoveragePoint::VerifyGaveWay) > 0);
}

/// The primary is demoted in its midst, and a restart begins anew.
#[test]
fn a_verify_ends_with_its_primary() {
    let mut world = peace(Mode::Async);
    begin(&mut world, SLOW);
    world.pass(SECOND);
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    assert!(matches!(world.promote(1, false), CommandResult::Done(_)));
    world.pass(SECOND);
    assert!(world.figures(0).verify.is_none());
    assert!(matches!(world.order(1, Command::Verify(FULL)), CommandResult::Done(_) | CommandResult::Warning(_)));
    world.until("the verify is over", |world| world.figures(1).verify.is_none());
    let verified = world.figures(1).verified.expect("over");
    assert_eq!((verified.totals.compared_bytes, verified.totals.differing_bytes), (2 * MIB, 0));
}

// proves: rule 6
/// The bits of a demotion were stored already when the answer came: a crash forgot the region that was to be repaired, and neither node had it dirty.
#[test]
fn an_answer_that_comes_while_a_demotion_is_recorded_sets_no_bit_that_a_crash_forgets() {
    // The last chunk is one region: its first answer tells.
    let odd = SimOptions { volume_bytes: MIB + REGION_BYTES, ..options(Mode::Async, Policy::Degrade) };
    let mut world = ScenarioWorld::in_peace(SimOptions { wait_limit_ms: 600_000, ..odd });
    rot(&mut world, 1, 0, MIB);
    world.cluster[1].storage.trouble.stalled_until = world.now() + 12 * SECOND;
    begin(&mut world, REPAIR);
    // Something is to be stored.
    world.write_done(1, 0, 8 * KIB);
    world.pass(SECOND / 2);
    let demotion = world.command(0, GROUP, Command::Demote);
    // The peer has not answered when the time of the drain is over, and the bits take a while.
    world.pass(19 * SECOND / 2);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 4 * SECOND;
    world.until("it is demoted", |world| world.cluster.ledger.result(demotion).is_some());
    world.cluster[0].storage.trouble.stalled_until = 0;
    assert!(world.figures(0).doubts.differs, "the answer came before that");
    let dirty = |world: &ScenarioWorld| world.figures(0).volumes[0].dirty_bytes;
    let shown = dirty(&world);
    world.cut([false; 2]);
    world.crash(0, false, SECOND);
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    assert_eq!(dirty(&world), shown, "what it showed before the crash");
    assert!(world.recorded(0).doubts.differs);
}

/// A full sync overwrites whatever differed.
#[test]
fn a_full_sync_clears_what_a_verify_found() {
    let mut world = peace(Mode::Async);
    rot(&mut world, 1, 0, 0);
    assert_eq!(verify(&mut world, FULL).totals.left_bytes(), REGION_BYTES);
    assert!(doubts(&mut world).differs);
    assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
    world.drain();
    assert_eq!(doubts(&mut world), CopyDoubts::default());
    assert_eq!(verify(&mut world, FULL).totals.left_bytes(), 0);
}

/// A sample compares little, and knows nothing more of what was found before it once all is sent anew.
#[test]
fn a_full_sync_in_the_midst_of_a_sample_is_not_forgotten_at_its_end() {
    let mut world = peace(Mode::Async);
    rot(&mut world, 1, 0, 0);
    verify(&mut world, FULL);
    begin(&mut world, VerifyOrder { sample_percent: 50, ..SLOW });
    world.pass(SECOND / 2);
    assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
    end(&mut world);
    world.drain();
    assert_eq!(doubts(&mut world), CopyDoubts::default());
}

/// Within one session the peer's half fails and is reset: comparisons that it had not answered begin again.
#[test]
fn a_verify_goes_on_behind_a_peer_that_was_reset() {
    for (mode, policy) in [
        (Mode::Async, Policy::Degrade),
        (Mode::Sync, Policy::Hold(std::time::Duration::from_secs(60))),
        (Mode::Nearsync, Policy::Strict),
    ] {
        let mut world = ScenarioWorld::in_peace(options(mode, policy));
        begin(&mut world, SLOW);
        world.pass(SECOND);
        world.cluster[1].storage.trouble.slow_until = world.now() + SECOND;
        world.pass(SECOND / 4);
        world.cluster[1].storage.trouble.fail_next_record = true;
        world.write(0, 0, 4 * KIB);
        world.until("it fails", |world| sim::scenarios::node_failed(world, 1));
        assert!(matches!(world.order(1, Command::Reset { entropy: 7 }), CommandResult::Done(_)));
        let verified = end(&mut world);
        assert_eq!((verified.totals.compared_bytes, verified.totals.differing_bytes), (2 * MIB, 0), "{mode:?}");
        world.drain();
    }
}

/// The order is kept while the link is away, and the same session may end within one input: no comparison is waited for in vain.
#[test]
fn a_verify_that_queues_goes_on_behind_a_replaced_session() {
    let queue = |settings: &mut engine::Settings| settings.degrade = Degrade::Queue;
    let mut world =
        ScenarioWorld::in_peace(SimOptions { delay_ns: 20 * MILLISECOND, ..options(Mode::Sync, Policy::Degrade) });
    world.set(GROUP, queue);
    begin(&mut world, SLOW);
    for round in 0..12 {
        world.pass(150 * MILLISECOND);
        world.write(0, round * 64 * KIB, 8 * KIB);
        match round % 3 {
            0 => world.flap([0, 1]),
            1 => world.half_open([0, 1]),
            _ => {
                world.cut([false, true]);
                world.pass(2 * SECOND);
                world.write(1, round * 64 * KIB, 8 * KIB);
                world.restore_path();
            }
        }
        world.pass(200 * MILLISECOND);
    }
    let verified = end(&mut world);
    assert_eq!((verified.totals.compared_bytes, verified.totals.differing_bytes), (2 * MIB, 0));
    world.drain();
}

/// Writes failed here, and what they left cannot be read again for their repair: it is left out, and the verify comes to its end.
#[test]
fn what_cannot_be_repaired_is_left_out() {
    let mut world = peace(Mode::Async);
    world.cluster[0].storage.trouble.unreadable_until = ALWAYS;
    world.cluster[0].storage.trouble.write_errors_until = ALWAYS;
    while world.coverage(0, CoveragePoint::LocalWriteFailed) < 4 {
        world.write(0, world.now() / MILLISECOND * 16 * KIB % MIB, 4 * KIB);
        world.pass(7 * MILLISECOND);
    }
    world.cluster[0].storage.trouble.write_errors_until = 0;
    world.pass(3 * SECOND);
    assert!(world.figures(0).volumes[0].dirty_bytes > 0);
    begin(&mut world, FULL);
    let verified = end(&mut world);
    assert!(verified.totals.unread_bytes > 0);
    world.cluster[0].storage.trouble.unreadable_until = 0;
    world.drain();
    assert_eq!(verify(&mut world, FULL).totals.compared_bytes, 2 * MIB);
}

/// A copy that differs everywhere fills neither the log nor memory.
#[test]
fn the_first_ranges_that_differ_are_named_and_the_rest_is_counted() {
    let mut world = peace(Mode::Async);
    (0..40).for_each(|n| rot(&mut world, 1, (n % 2) as u16, n / 2 * 40 * KIB));
    let verified = verify(&mut world, FULL);
    assert_eq!(verified.named.len(), engine::limits::VERIFY_NAMED_MAX);
    assert_eq!(verified.totals.differing_bytes, 40 * REGION_BYTES);
}

// proves: P3
/// A full sync is ordered over a copy that differs, and takes its time: until it has ended, the secondary knows what it holds, and so does
/// whoever promotes it.
#[test]
fn a_full_sync_clears_no_warning_of_the_secondary_before_its_end() {
    let mut world = peace(Mode::Async);
    rot(&mut world, 1, 0, 300 * KIB);
    assert!(verify(&mut world, FULL).totals.differing_bytes > 0);
    assert!(doubts(&mut world).differs);
    world.cluster[1].storage.trouble.slow_until = ALWAYS;
    world.command(0, GROUP, Command::Sync { full: true });
    let mut syncing = 0;
    while state(&world) != Some(State::Replicating) || world.recorded(0).doubts.differs {
        if state(&world) == Some(State::Syncing) {
            syncing += 1;
            assert!(world.recorded(1).doubts.differs, "nothing but the sync's end changes what stands there");
        }
        world.pass(MILLISECOND);
    }
    assert!(syncing > 0);
    assert_eq!(doubts(&mut world), CopyDoubts::default());
}
