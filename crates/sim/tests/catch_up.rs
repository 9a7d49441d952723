//! Catching up by snapshots: writers are never held, each snapshot is a consistent point of its own, and what is cut short leaves the
//! point before it.

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy, Protection, State};
use engine::{Command, CommandResult, GroupId, VolumeId};
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options, state};

/// A link of 400 kB/s below two volumes of 1 MiB.
fn slow_link() -> SimOptions {
    SimOptions { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) }
}

/// In step, then away from its peer for a moment, with every region dirty.
fn after_an_outage(options: SimOptions) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for volume in 0..2 {
        for region in 0..32 {
            world.write_done(volume, region * 32 * KIB, 32 * KIB);
        }
    }
    world
}

fn sync(world: &mut ScenarioWorld) {
    let answer = world.order(0, Command::Sync { full: false });
    assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
}

fn shipping(world: &ScenarioWorld) -> bool {
    world.figures(0).sync.is_some_and(|sync| sync.snapshot.is_some() && sync.done_bytes > 200 * KIB)
}

fn recovery_point(world: &ScenarioWorld) -> u64 {
    world.figures(0).peer.recovery_point.map_or(0, |(seq, _)| seq.0)
}

/// Writes of 8 KiB at `bytes_per_s` for `seconds`, all over both volumes; the longest wait.
fn load(
    world: &mut ScenarioWorld,
    bytes_per_s: u64,
    seconds: u64,
    mut each_second: impl FnMut(&mut ScenarioWorld),
) -> u64 {
    let every = 8 * KIB * SECOND / bytes_per_s;
    let mut longest = 0;
    let (began, mut at) = (world.now(), 0u64);
    for second in 0..seconds {
        while world.now() < began + (second + 1) * SECOND {
            // A stride that is prime to the number of places meets them all.
            at = (at + 77) % 256;
            let id = world.write((at % 2) as u16, at / 2 * 8 * KIB, 8 * KIB);
            let asked = world.now();
            let (done, after) = world.answer(id);
            assert!(done);
            longest = longest.max(after);
            world.pass((asked + every).saturating_sub(world.now()));
        }
        each_second(world);
    }
    longest
}

// proves: P5, rule 8
#[test]
fn under_twice_the_link_the_recovery_point_moves_and_nobody_waits() {
    let mut world = after_an_outage(slow_link());
    sync(&mut world);
    let mut points = vec![recovery_point(&world)];
    let longest = load(&mut world, 800_000, 60, |world| points.push(recovery_point(world)));
    let stands = points.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap_or_default();
    assert!(points.is_sorted() && stands <= 12, "it stood still for {stands} s: {points:?}");
    assert!(longest <= 30 * MILLISECOND, "a write waited {longest} ns");
    assert_eq!(state(&world), Some(State::Syncing));
    assert_eq!(world.coverage(0, CoveragePoint::QueueFullWaited), 0);
    let figures = world.figures(0);
    let sync = figures.sync.expect("it goes on");
    let (dirtied, carried) = (sync.dirtied_bytes_per_s.unwrap_or(0), sync.carried_bytes_per_s.unwrap_or(0));
    assert!(sync.snapshot.is_some_and(|snapshot| snapshot >= 5) && carried > 0, "{sync:?}");
    assert_eq!(figures.reason.contains("are missing to catch up"), dirtied > carried, "{}", figures.reason);
    assert!(world.coverage(0, CoveragePoint::SnapshotSavedRegion) > 0);
    world.drain();
}

// proves: P5, rule 8
/// Writers overwrite two MiB again and again, for which the link needs a minute. Each snapshot takes that long, though it brings what they dirty:
/// the copy moves with each minute only, and status names what the link lacks for one each half minute. With less to overwrite nothing is lacking.
#[test]
fn a_snapshot_of_a_minute_names_what_a_copy_each_half_minute_lacks() {
    for (seconds, is_named) in [(60, true), (20, false)] {
        let hot_bytes = 2 * MIB;
        let rate = hot_bytes / seconds;
        let mut world = after_an_outage(SimOptions { bytes_per_s: rate, ..slow_link() });
        sync(&mut world);
        let mut points = vec![recovery_point(&world)];
        load(&mut world, 3 * rate, 6 * seconds, |world| points.push(recovery_point(world)));
        let stands = points.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap_or_default();
        assert_eq!(stands > 30, is_named, "the copy stood still for {stands} s");
        let figures = world.figures(0);
        let missing = figures.sync.and_then(|sync| sync.missing_bytes_per_s).expect("snapshots go on");
        let why = figures.reason;
        if is_named {
            // What two MiB in 30 s are, less what the line is; frames take a part of that.
            let lacking = hot_bytes / 30 - rate;
            assert!((lacking * 9 / 10..lacking * 12 / 10).contains(&missing), "{missing} of {lacking}: {why}");
            let named = format!(" {} KiB/s are missing for a copy that moves every 30 s", missing.div_ceil(KIB));
            assert!(why.ends_with(&named), "{why}");
        } else {
            assert!(missing < rate / 10 && !why.contains("every 30 s"), "{missing}: {why}");
        }
    }
}

// proves: P5, rule 8
#[test]
fn load_that_fits_ends_in_step_while_it_goes_on() {
    let mut world = after_an_outage(slow_link());
    sync(&mut world);
    let longest = load(&mut world, 100_000, 40, |_| {});
    assert_eq!(state(&world), Some(State::Replicating));
    assert!(longest <= 30 * MILLISECOND, "a write waited {longest} ns");
    assert!(world.coverage(0, CoveragePoint::SnapshotEnded) >= 1);
    world.drain();
}

// proves: P5, rule 8
#[test]
fn writes_that_do_not_fit_beside_the_sync_switch_it_to_snapshots() {
    // Little is dirty, so the sync begins in the stream.
    let mut world = ScenarioWorld::in_peace(slow_link());
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.write_done(0, 0, 4 * KIB);
    sync(&mut world);
    world.cluster[1].storage.trouble.stalled_until = world.now() + 10 * SECOND;
    let longest = load(&mut world, 2_000_000, 3, |_| {});
    assert_eq!(world.coverage(0, CoveragePoint::SyncTurnedToSnapshots), 1);
    assert!(longest <= 30 * MILLISECOND, "a write waited {longest} ns");
    world.drain();
}

// proves: P2, rule 8, rule 20
#[test]
fn what_interrupts_a_snapshot_leaves_the_point_before_it() {
    let cases: [fn(&mut ScenarioWorld); 5] = [
        |world| world.crash(0, true, SECOND),
        |world| world.crash(1, true, SECOND),
        |world| world.crash(1, false, SECOND),
        |world| {
            world.cut([false; 2]);
            world.pass(20 * SECOND);
            world.restore_path();
        },
        |world| assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_))),
    ];
    for (case, interrupted) in cases.into_iter().enumerate() {
        let mut world = after_an_outage(slow_link());
        sync(&mut world);
        world.until("regions travel", shipping);
        interrupted(&mut world);
        world.until("both are up", |world| world.cluster.iter().all(|node| node.up()));
        if case == 4 {
            sync(&mut world);
        }
        world.drain();
        assert!(world.coverage(0, CoveragePoint::SnapshotInterrupted) > 0 || case == 0, "case {case}");
    }
}

// proves: P2, rule 8, rule 20
/// And says before that what it will be.
#[test]
fn a_secondary_promoted_in_mid_snapshot_is_the_image_of_the_snapshot_before() {
    let mut world = after_an_outage(slow_link());
    sync(&mut world);
    let load_until_second_snapshot = |world: &mut ScenarioWorld| {
        for n in 0..400u64 {
            world.write_done((n % 2) as u16, (n * 7) % 32 * 32 * KIB, 32 * KIB);
            world.pass(20 * MILLISECOND);
            if world.coverage(0, CoveragePoint::SnapshotEnded) > 0 && shipping(world) {
                return;
            }
        }
        panic!("no second snapshot");
    };
    load_until_second_snapshot(&mut world);
    world.crash(0, true, FOR_EVER);
    world.pass(SECOND);
    let figures = world.figures(1);
    let (position, wall) = figures.promotable.expect("the snapshot before");
    assert_eq!(figures.peer.recovery_point, Some((position.seq, wall)));
    // The checker compares the image it opens with to the prefix it claims.
    assert!(matches!(world.promote(1, true), CommandResult::Warning(_)));
    assert_eq!(world.coverage(1, CoveragePoint::RolledBack), 1);
}

// proves: P8, rule 8
#[test]
fn what_is_overwritten_before_it_was_shipped_goes_to_memory_then_to_the_undo_store() {
    for (queue_bytes, history_bytes, rare) in [
        (MIB, 4 * MIB, CoveragePoint::SnapshotSavedRegion),
        (128 * KIB, 4 * MIB, CoveragePoint::SnapshotSpilled),
        (128 * KIB, 128 * KIB, CoveragePoint::SnapshotGivenUp),
    ] {
        let mut world = after_an_outage(SimOptions { queue_bytes, history_bytes, ..slow_link() });
        sync(&mut world);
        world.until("a snapshot began", |world| world.coverage(0, CoveragePoint::SnapshotBegan) > 0);
        let mut longest = 0;
        for n in 0..64u64 {
            // From the far end, where the walk comes last.
            let id = world.write(1 - (n % 2) as u16, (31 - n / 2) * 32 * KIB, 32 * KIB);
            longest = longest.max(world.answer(id).1);
        }
        assert!(longest <= 30 * MILLISECOND, "{rare:?}: a write waited {longest} ns");
        assert!(world.coverage(0, rare) > 0, "{rare:?}");
        if rare == CoveragePoint::SnapshotGivenUp {
            // The same small store keeps the secondary from taking a rollback point: nothing travels, nothing is lost.
            assert_eq!(world.figures(0).peer.dirty_bytes, 2 * MIB);
        } else {
            world.drain();
        }
    }
}

/// What it lacks is space of its own: the peer's answer to a snapshot that was given up does not begin the next one.
#[test]
fn a_snapshot_that_was_given_up_is_followed_by_a_pause() {
    let small = SimOptions { queue_bytes: 128 * KIB, history_bytes: 128 * KIB, ..slow_link() };
    let mut world = ScenarioWorld::new(SimOptions { delay_ns: 40 * MILLISECOND, ..small });
    world.until("connected", |world| world.figures(0).peer.round_trip > std::time::Duration::ZERO);
    let reply = world.order(0, Command::Sync { full: true });
    assert!(matches!(reply, CommandResult::Done(_)), "{reply:?}");
    for n in 0..6_000u64 {
        world.write_done((n % 2) as u16, (n * 7) % 32 * 32 * KIB, 32 * KIB);
        world.pass(5 * MILLISECOND);
        let why = world.figures(0).reason;
        assert!(!why.contains("devices want a look"), "they are well: {why}");
    }
    let given_up = world.coverage(0, CoveragePoint::SnapshotGivenUp);
    assert!((2..=4).contains(&given_up), "{given_up} times in 30 s");
    world.drain();
}

#[test]
fn one_read_of_a_snapshot_leaves_room_in_a_small_queue() {
    let queue_bytes = 256 * KIB;
    // The link and the window are for frames of a MiB.
    let large_window = SimOptions { queue_bytes, window_bytes: 8 * MIB, ..options(Mode::Async, Policy::Degrade) };
    let mut world = after_an_outage(large_window);
    let mut most = 0;
    for _ in 0..2 {
        // After the outage nothing is sent yet.
        assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_) | CommandResult::Unchanged(_)));
        assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
        while !world.in_step() {
            world.pass(MILLISECOND / 10);
            most = most.max(world.cluster[0].storage.payload()[&GROUP].queued.bytes());
        }
    }
    assert!(world.coverage(0, CoveragePoint::SnapshotBegan) > 0);
    assert!((64 * KIB..=queue_bytes).contains(&most), "{most} bytes at most");
}

// proves: rule 22
/// What waits for its range in a snapshot is its client's memory: it will not be queued.
#[test]
fn writes_that_wait_for_a_snapshot_do_not_count_as_queued() {
    let mut world = after_an_outage(SimOptions { memory_bytes: 384 * KIB, ..slow_link() });
    sync(&mut world);
    world.until("regions travel", |world| world.figures(0).sync.is_some_and(|sync| sync.done_bytes > 0));
    for n in 0..16 {
        // All over one range: one is on its way, the others wait.
        world.write(1, 512 * KIB + n * 512, 128 * KIB);
    }
    world.pass(SECOND);
    world.drain();
}

// proves: P3, rule 8
/// Everything was set dirty while a snapshot travelled. It went on, and its end cleared also the bits of what was not sent.
#[test]
fn a_full_sync_ordered_during_a_snapshot_sends_everything() {
    let mut world = ScenarioWorld::in_peace(slow_link());
    world.write_done(1, 0, MIB);
    world.drain();
    // Only the other volume is dirty.
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    world.write_done(0, 0, MIB);
    sync(&mut world);
    world.until("regions travel", shipping);
    let sent = world.data_sent_bytes()[0];
    let answer = world.order(0, Command::SendAll);
    assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
    assert_eq!(world.figures(0).peer.dirty_bytes, 2 * MIB);
    world.drain();
    let sent = world.data_sent_bytes()[0] - sent;
    assert!(sent >= 2 * MIB, "{sent} bytes");
    assert_eq!(world.coverage(0, CoveragePoint::FullSyncBegan), 2, "this one, and the one at the beginning");
}

// proves: rule 7
/// The disk takes its time over a read of a snapshot, and the node is demoted and promoted meanwhile. What is being read is
/// busy until the read has ended, and free after it.
#[test]
fn a_read_from_before_a_demotion_may_end_after_the_next_promotion() {
    let mut world = after_an_outage(slow_link());
    sync(&mut world);
    world.until("regions travel", shipping);
    world.cluster[0].storage.trouble.stalled_until = world.now() + 3 * SECOND;
    world.pass(400 * MILLISECOND);
    world.cluster[0].storage.trouble.stalled_until = 0;
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Warning(_)));
    assert!(matches!(world.promote(0, true), CommandResult::Warning(_)));
    let mut longest = 0;
    for region in 0..32 {
        let id = world.write(0, region * 32 * KIB, 4 * KIB);
        let (done, after) = world.answer(id);
        assert!(done);
        longest = longest.max(after);
    }
    assert!(longest > SECOND, "nobody waited for the read: {longest} ns");
    assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
    world.drain();
}

// proves: P3, rule 8
#[test]
fn demote_and_a_clean_stop_in_mid_snapshot_keep_every_bit() {
    let mut world = after_an_outage(slow_link());
    sync(&mut world);
    world.until("regions travel", shipping);
    let dirty_bytes = world.figures(0).peer.dirty_bytes;
    world.input(0, engine::Input::Stop);
    world.pass(5 * SECOND);
    world.until("it is back", |world| world.cluster[0].up() && world.glance(0, GROUP).is_some_and(|g| g.running));
    assert!(world.figures(0).peer.dirty_bytes >= dirty_bytes || state(&world) != Some(State::Logging));
    world.until("regions travel again", shipping);
    let CommandResult::Warning(sentence) = world.order(0, Command::Demote) else { panic!("not all is there") };
    assert!(sentence.contains("may differ"), "{sentence}");
}

/// A node, a branch, and how often it takes it at least.
type BranchCount = (usize, CoveragePoint, u64);

/// What each scenario is named after.
const REACHED: &[(&str, &[BranchCount])] = &[
    ("first-sync", &[(0, CoveragePoint::FullSyncBegan, 1), (0, CoveragePoint::SnapshotEnded, 1)]),
    ("sync-mode", &[]),
    ("marks", &[(0, CoveragePoint::MarkThere, 3), (1, CoveragePoint::MarkArrived, 3)]),
    ("marks-failover", &[(1, CoveragePoint::MarkSetAlone, 1)]),
    ("journal-wrap", &[(1, CoveragePoint::JournalWrapped, 1)]),
    ("incarnation-change", &[(0, CoveragePoint::UncleanPrimaryStart, 1)]),
    ("link-lost-and-back", &[(0, CoveragePoint::QueueContinued, 1)]),
    ("queue-full-link-lost", &[(0, CoveragePoint::QueueFullPeerSilent, 1), (0, CoveragePoint::GenerationContinued, 1)]),
    ("history-full", &[(1, CoveragePoint::HistoryFull, 1)]),
    ("snapshot", &[(0, CoveragePoint::SnapshotEnded, 2), (0, CoveragePoint::SnapshotSavedRegion, 1)]),
    ("both-lose-power", &[(0, CoveragePoint::UncleanPrimaryStart, 1), (1, CoveragePoint::JournalReplayedRecords, 1)]),
    ("handover", &[(1, CoveragePoint::PromotedAfterHandover, 1)]),
    (
        "switchover",
        &[(0, CoveragePoint::Granted, 1), (1, CoveragePoint::Granted, 1), (0, CoveragePoint::GrantTaken, 1)],
    ),
    ("switchover-link-lost", &[(0, CoveragePoint::SwitchoverBegan, 1)]),
    ("failover", &[(1, CoveragePoint::PromotedForced, 1)]),
    ("promote-mid-sync", &[(1, CoveragePoint::RollbackPointTaken, 1), (1, CoveragePoint::RolledBack, 1)]),
    (
        "resolve",
        &[(1, CoveragePoint::ForkKept, 1), (0, CoveragePoint::ForkYielded, 1), (0, CoveragePoint::DeltaSaved, 1)],
    ),
    ("fork-overwritten", &[(1, CoveragePoint::FullSyncBegan, 1), (0, CoveragePoint::SyncLeftDelta, 1)]),
    ("spill", &[(0, CoveragePoint::QueueSpilled, 3), (0, CoveragePoint::QueueFetched, 3)]),
    (
        "spill-link-lost",
        &[
            (0, CoveragePoint::QueueSpilled, 3),
            (0, CoveragePoint::QueueFetched, 3),
            (0, CoveragePoint::QueueContinued, 1),
        ],
    ),
    ("spill-wrap", &[(0, CoveragePoint::QueueSpilled, 4), (0, CoveragePoint::QueueContinued, 1)]),
    ("younger-image", &[(0, CoveragePoint::QueueSpilled, 3), (0, CoveragePoint::QueueLeftForYoungerImage, 1)]),
    ("ladder", &[(0, CoveragePoint::LadderSteppedDown, 1), (0, CoveragePoint::LadderSteppedUp, 1)]),
    ("ladder-nearsync", &[(0, CoveragePoint::LadderSteppedDown, 1), (0, CoveragePoint::LadderSteppedUp, 1)]),
    ("durable", &[(0, CoveragePoint::QueueLogOpened, 1)]),
    ("durable-sync-mode", &[(0, CoveragePoint::QueueLogOpened, 1)]),
    ("durable-link-lost", &[(0, CoveragePoint::QueueContinued, 1)]),
    ("durable-restart-twice", &[(0, CoveragePoint::RunTakenUp, 1)]),
    ("durable-wrap", &[(0, CoveragePoint::QueueLogOpened, 1)]),
    ("durable-handover", &[(1, CoveragePoint::PromotedAfterHandover, 1)]),
    ("durable-left", &[(0, CoveragePoint::QueueLogOpened, 1)]),
    ("fold", &[(0, CoveragePoint::EpochFolded, 1)]),
    ("fold-link-lost", &[(0, CoveragePoint::EpochFolded, 2), (1, CoveragePoint::EpochCutShort, 1)]),
    ("fold-promote", &[(1, CoveragePoint::EpochCutShort, 1), (1, CoveragePoint::PromotedForced, 1)]),
    ("promote-mid-snapshot", &[(1, CoveragePoint::RollbackPointTaken, 2), (1, CoveragePoint::RolledBack, 1)]),
];

#[test]
fn every_scenario_reaches_what_it_is_named_after() {
    for script in sim::scenarios::script::all() {
        let (name, reached) = REACHED.iter().find(|(name, _)| *name == script.name).expect("a row for every scenario");
        let world = script.play(&[], std::env::var_os("FARSHORE_SCENARIO").is_some()).world;
        for (node, point, least) in *reached {
            let times = world.cluster[*node].coverage(*point);
            assert!(times >= *least, "{name}: {point:?} on node {node}: {times} times");
        }
        let in_sync = world.glance(0, GROUP).is_some_and(|glance| glance.protection == Protection::BothDurable);
        assert!(in_sync || *name != "sync-mode", "{:?}", world.glance(0, GROUP));
    }
}

// proves: P5
/// Two groups, and for each half of a line that could carry what the writers of one write.
#[test]
fn groups_that_share_a_line_say_what_bandwidth_is_missing() {
    let mut world = ScenarioWorld::new(SimOptions {
        pairs: vec![[0, 1]; 3],
        volumes: 1,
        volume_bytes: 16 * MIB,
        history_bytes: 64 * MIB,
        bytes_per_s: 1_000_000,
        ..options(Mode::Async, Policy::Degrade)
    });
    world.pass(SECOND);
    let groups = [GroupId(0), GroupId(2)];
    for group in groups {
        world.command(0, group, Command::Sync { full: true });
        world.until("synced", |world| world.cluster.in_step(group));
    }
    for group in groups {
        world.command(0, group, Command::Logging);
    }
    let mut said = [false; 2];
    for n in 0..750 {
        for group in groups {
            if n == 20 {
                world.command(0, group, Command::Sync { full: false });
            }
            world.write_to(group, 0, n % 256 * 64 * KIB, 64 * KIB);
        }
        world.pass(94 * MILLISECOND);
        let status = world.cluster[0].engine().expect("up").status();
        let says = |id| status.iter().any(|g| g.id == id && g.reason.contains("are missing to catch up"));
        (0..2).for_each(|at| said[at] |= says(groups[at]));
    }
    assert_eq!(said, [true; 2]);
}

// proves: P5
/// A bulk load goes on in a volume that is set aside, at twice the link's rate. What is written to the other one fits the link, so that comes back to
/// its stream: nothing of the load travels.
#[test]
fn a_load_that_does_not_travel_keeps_nobody_from_the_stream() {
    let mut world = after_an_outage(SimOptions { queue_bytes: 256 * KIB, ..slow_link() });
    assert!(matches!(world.order(0, Command::SetAside { volume: VolumeId(1) }), CommandResult::Done(_)));
    sync(&mut world);
    let began = world.now();
    for n in 0.. {
        // A MB/s and 250 kB/s, so much that no snapshot is small.
        (0..3).for_each(|k| _ = world.write_done(1, (n * 3 + k) * 16 * KIB % MIB, 16 * KIB));
        world.write_done(0, n * 77 % 85 * 12 * KIB, 12 * KIB);
        world.pass((began + (n + 1) * 48 * MILLISECOND).saturating_sub(world.now()));
        if state(&world) == Some(State::Replicating) {
            break;
        }
        assert!(world.now() < began + 30 * SECOND, "it still syncs: {}", world.figures(0).reason);
    }
    assert!(matches!(world.order(0, Command::Rejoin { volume: VolumeId(1) }), CommandResult::Done(_)));
    world.drain();
}
