//! What lies in the undo store is what one rollback point or one snapshot saved, and takes the room that this needs.

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy};
use engine::{Command, CommandResult, Input, Store};
use sim::nodes::disk::SimDisk;
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

/// The snapshot, or the rollback point, that the first batch in the undo store of a node was saved for.
fn first_mark(world: &ScenarioWorld, node: usize) -> u64 {
    let file = world.cluster[node].disk(Store::Undo(GROUP)).view();
    // Scratch of a snapshot is told by its highest bit.
    u64::from_le_bytes(file[40..48].try_into().unwrap()) & !(1 << 63)
}

// proves: P2, rule 9
/// What a snapshot of the primary put into the undo store as scratch is not what a sync saved, also when that node is the
/// secondary later and its rollback point happens to have the number that the snapshot had.
#[test]
fn scratch_of_a_snapshot_is_not_played_back_for_a_rollback_point() {
    // A replicated write is two updates of the superblock.
    let met: usize = (60..62).map(|passes| usize::from(point_named_as_snapshot(passes))).sum();
    assert_eq!(met, 1);
}

fn point_named_as_snapshot(passes: usize) -> bool {
    let mut world = ScenarioWorld::in_peace(SimOptions {
        queue_bytes: 128 * KIB,
        bytes_per_s: 400_000,
        ..options(Mode::Sync, Policy::Degrade)
    });
    // Each session begins with a pass, which has a number of its own.
    for _ in 0..passes {
        world.connect([0, 1]);
        world.pass(100 * MILLISECOND);
        world.drain();
    }
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for volume in 0..2 {
        for region in 0..32 {
            world.write_done(volume, region * 32 * KIB, 4 * KIB);
        }
    }
    let began = world.coverage(0, CoveragePoint::SnapshotBegan);
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.until("a snapshot began", |world| world.coverage(0, CoveragePoint::SnapshotBegan) > began);
    for n in 0..64u64 {
        let id = world.write(1 - (n % 2) as u16, (31 - n / 2) * 32 * KIB, 32 * KIB);
        world.answer(id);
    }
    assert!(world.coverage(0, CoveragePoint::SnapshotSpilled) > 0);
    world.drain();
    let mark = first_mark(&world, 0);
    assert!(matches!(world.order(0, Command::Demote), CommandResult::Done(_)));
    assert!(matches!(world.promote(1, false), CommandResult::Done(_)));
    world.drain();
    // A write to the secondary is a record or two of it.
    while world.recorded(0).update + 1 < mark {
        world.write_done(0, 0, 4 * KIB);
        world.until("applied", |world| world.in_step());
        world.pass(300 * MILLISECOND);
    }
    assert!(matches!(world.order(1, Command::Logging), CommandResult::Done(_)));
    let id = world.write(0, 0, 4 * KIB);
    assert!(world.answer(id).0);
    let before = world.images_of(0);
    world.command(1, GROUP, Command::Sync { full: false });
    while world.recorded(0).rollback_point.id == 0 {
        world.pass(20_000);
    }
    if world.recorded(0).rollback_point.id != mark {
        return false;
    }
    world.crash(1, true, FOR_EVER);
    world.crash(0, false, MILLISECOND);
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|g| g.running));
    assert!(world.images_of(0) == before, "nothing was overwritten");
    world.promote(0, true);
    assert!(world.images_of(0) == before, "the way back changed what had not been overwritten");
    true
}

/// A pair of which all 2 MiB that were written are dirty, room for 3 in the secondary's undo store, and a snapshot that has saved
/// more than 1.
fn mid_snapshot(volume_bytes: u64) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(SimOptions {
        bytes_per_s: 400_000,
        history_bytes: 3 * MIB,
        volume_bytes,
        ..options(Mode::Async, Policy::Degrade)
    });
    for n in 0..64 {
        world.write_done(n % 2, u64::from(n) / 2 * 32 * KIB, 32 * KIB);
    }
    world.drain();
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for volume in 0..2 {
        for region in 0..32 {
            world.write_done(volume, region * 32 * KIB, 32 * KIB);
        }
    }
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    let used = |world: &ScenarioWorld| world.figures(1).rollback_point.map_or(0, |point| point.used_bytes);
    world.until("much is saved", |world| used(world) > MIB);
    world
}

// proves: rule 9
/// A snapshot that a lost session or a restart ended needs no room again for what it has saved already, however large the volumes
/// are.
#[test]
fn an_interrupted_snapshot_finds_room_for_what_it_saved_already() {
    for volume_bytes in [MIB, 8 * MIB] {
        let mut world = mid_snapshot(volume_bytes);
        world.connect([0, 1]);
        world.drain();
        for node in [0, 1] {
            let mut world = mid_snapshot(volume_bytes);
            world.crash(node, false, MILLISECOND);
            world.drain();
        }
    }
}

// proves: P9, rule 9
/// A start that finds the undo store damaged goes on without it, and nothing is saved from then on. A later one that reads it
/// whole again, because it was the way there that was broken, does not take the point for an image.
#[test]
fn a_point_once_damaged_is_never_gone_back_to() {
    let mut world = mid_snapshot(8 * MIB);
    world.cut([false; 2]);
    world.pass(SECOND);
    let store = Store::Undo(GROUP);
    let whole = world.cluster[1].disk(store).view().to_vec();
    let mut damaged = whole.clone();
    damaged[100] ^= 0x40;
    let restart = |world: &mut ScenarioWorld, content: Vec<u8>| {
        world.crash(1, false, SECOND);
        world.cluster[1].disk_mut(store).restore(content);
        world.until("it is back", |world| world.glance(1, GROUP).is_some_and(|g| g.running));
    };
    restart(&mut world, damaged);
    let before = world.images_of(1);
    world.restore_path();
    world.pass(4 * SECOND);
    assert!(world.images_of(1) != before, "the sync goes on");
    assert!(world.glance(1, GROUP).is_some_and(|g| g.identity.inconsistent));
    world.cut([false; 2]);
    restart(&mut world, whole);
    let why = world.refused(1, Command::Promote { force: true, entropy: 7 });
    assert!(why.contains("an earlier start found the undo store damaged"), "{why}");
    world.restore_path();
    world.drain();
}

/// Seed 449926: a promotion in the midst of a sync finds its way back damaged and ends the session. What the primary had sent before
/// it heard of that is still on the way, and no breach of the protocol.
#[test]
fn frames_under_way_are_not_held_against_a_peer_whose_sync_was_given_up() {
    let fenced: u64 = (0..8).map(|n| fenced_behind_a_refused_promotion(n * 300_000)).sum();
    assert!(fenced > 0, "nothing was under way");
}

/// How many frames came behind the end of the session.
fn fenced_behind_a_refused_promotion(after: u64) -> u64 {
    let mut world = ScenarioWorld::in_peace(SimOptions {
        history_bytes: 8 * MIB,
        queue_bytes: 8 * MIB,
        window_bytes: MIB,
        journal_bytes: 8 * MIB,
        bytes_per_s: 20_000_000,
        ..options(Mode::Async, Policy::Degrade)
    });
    for n in 0..64 {
        world.write((n / 32) as u16, n % 32 * 32 * KIB, 32 * KIB);
    }
    world.drain();
    let before = world.images_of(1);
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..32 {
        world.write_done(0, n * 32 * KIB, 32 * KIB);
    }
    world.command(0, GROUP, Command::Sync { full: false });
    while world.images_of(1) == before {
        world.pass(100_000);
    }
    for n in 0..400 {
        world.write(1, n * 2 * KIB, 512);
    }
    world.pass(after);
    world.cluster[1].disk_mut(Store::Undo(GROUP)).rot_all();
    let fenced = world.coverage(1, CoveragePoint::StaleFrameFenced);
    let refused = world.refused(1, Command::Promote { force: true, entropy: 7 });
    assert!(refused.contains("a mixture"), "{refused}");
    world.pass(100 * MILLISECOND);
    let fenced = world.coverage(1, CoveragePoint::StaleFrameFenced) - fenced;
    world.drain();
    fenced
}

// proves: P2, rule 9
/// A start that stands still for want of history is promoted, and its way back is found damaged: the volumes are a mixture.
/// The journal of the run before holds the end of the sync; the next start does not take it for one of its own.
#[test]
fn a_mixture_does_not_become_an_image_by_the_journal_of_before() {
    let mut world = ScenarioWorld::in_peace(SimOptions {
        history_bytes: 58 * 4096,
        queue_bytes: 4 * MIB,
        window_bytes: MIB,
        journal_bytes: 4 * MIB,
        bytes_per_s: 4_000_000,
        ..options(Mode::Async, Policy::Degrade)
    });
    // Another order of the disks' answers.
    (0..9).for_each(|_| _ = world.rng.draw());
    // What stood here before comes back without the undo store: zeroes are not read.
    let id = world.zero(0, 31 * 32 * KIB, 32 * KIB, false);
    assert!(world.answer(id).0);
    world.drain();
    // The link is measured by this: what is dirty then is little for it.
    for n in (32..64).chain(0..31) {
        world.write((n / 32 % 2) as u16, n % 32 * 32 * KIB, 32 * KIB);
    }
    world.drain();
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..6 {
        world.write_done(0, n * 32 * KIB, 32 * KIB);
    }
    let before = world.images_of(1);
    let snapshots = world.coverage(0, CoveragePoint::SnapshotBegan);
    world.command(0, GROUP, Command::Sync { full: false });
    while world.figures(1).rollback_point.is_none() {
        world.pass(20_000);
    }
    // There is room for the index of the first, and not for what all the others overwrite.
    world.write(0, 31 * 32 * KIB, 4 * KIB);
    (0..8).for_each(|n| _ = world.write(1, n * 32 * KIB, 4 * KIB));
    world.pass(5 * SECOND);
    assert_eq!(
        world.coverage(0, CoveragePoint::SnapshotBegan),
        snapshots,
        "in the stream: {:?}",
        world.cluster[0].explain(GROUP)
    );
    assert!(world.coverage(1, CoveragePoint::HistoryFull) > 0, "{:?}", world.glance(1, GROUP));
    assert!(world.images_of(1)[0][31 << 15..] != before[0][31 << 15..]);
    assert!(world.figures(1).unapplied_bytes > 0);
    world.cut([false; 2]);
    world.crash(1, false, SECOND);
    world.until("the start stands still", |world| {
        world.cluster[1].up() && world.coverage(1, CoveragePoint::HistoryFull) > 0
    });
    world.pass(SECOND);
    assert!(world.glance(1, GROUP).is_some_and(|g| !g.running));
    world.cluster[1].disk_mut(Store::Undo(GROUP)).rot_all();
    let refused = world.refused(1, Command::Promote { force: true, entropy: 7 });
    assert!(refused.contains("a mixture"), "{refused}");
    assert!(world.images_of(1)[0][31 << 15..] == before[0][31 << 15..], "that went back");
    assert!(world.figures(1).promotable.is_none());
    world.crash(1, false, SECOND);
    world.until("it is back", |world| world.glance(1, GROUP).is_some_and(|g| g.running));
    assert!(world.figures(1).promotable.is_none(), "no image before the next sync has ended");
}

// proves: rule 9
/// A secondary is killed in the midst of a sync for which there is room enough. The room that its superblock says is still
/// reserved was drawn upon since: the start does not take the history for full.
#[test]
fn a_start_does_not_reserve_again_what_it_finds_saved() {
    for step in 0..40 {
        killed_after(step * 100_000);
    }
}

fn killed_after(instant: u64) {
    let mut world = ScenarioWorld::in_peace(SimOptions {
        history_bytes: 70 * 4096,
        queue_bytes: 4 * MIB,
        window_bytes: MIB,
        journal_bytes: 4 * MIB,
        bytes_per_s: 4_000_000,
        ..options(Mode::Async, Policy::Degrade)
    });
    for n in (32..64).chain(0..32) {
        world.write((n / 32 % 2) as u16, n % 32 * 32 * KIB, 32 * KIB);
    }
    world.drain();
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..6 {
        world.write_done(0, n * 32 * KIB, 32 * KIB);
    }
    let snapshots = world.coverage(0, CoveragePoint::SnapshotBegan);
    world.command(0, GROUP, Command::Sync { full: false });
    let used = |world: &ScenarioWorld| world.figures(1).rollback_point.map_or(0, |point| point.used_bytes);
    while used(&world) < 100 * KIB {
        world.pass(20_000);
    }
    assert_eq!(world.coverage(0, CoveragePoint::SnapshotBegan), snapshots, "in the stream");
    world.cut([false; 2]);
    world.pass(instant);
    assert_eq!(world.coverage(1, CoveragePoint::HistoryFull), 0, "there is room");
    world.crash(1, false, SECOND);
    world.pass(60 * SECOND);
    let running = world.glance(1, GROUP).is_some_and(|g| g.running);
    assert!(running, "{instant}: {:?}", world.figures(1).rollback_point);
}

fn explains(world: &ScenarioWorld, node: usize, what: &str) -> bool {
    world.cluster[node].explain(GROUP).is_some_and(|inside| inside.contains(what))
}

// proves: P2, rule 9
/// A start that stands still with its history full is promoted by force, and its way back is damaged. It stays what it is,
/// a mixture: the journal it stood before was given up with the way back.
#[test]
fn a_mixture_is_no_image_after_the_next_start() {
    let mut stood = 0;
    for delay in 0..50 {
        let mut world =
            ScenarioWorld::in_peace(SimOptions { history_bytes: 400 * KIB, ..options(Mode::Async, Policy::Degrade) });
        for n in 0..24 {
            world.write_done(1, n * 40 * KIB, 40 * KIB);
        }
        world.drain();
        world.pass(5 * SECOND);
        // After a kill a sync compares, and goes in the stream.
        world.crash(0, false, SECOND);
        while !world.glance(1, GROUP).is_some_and(|glance| glance.identity.inconsistent) {
            world.pass(MILLISECOND / 10);
        }
        world.pass(delay * MILLISECOND / 5);
        // Live writes beside the sync, more than the history has room for.
        for n in 0..12 {
            world.write(1, n * 40 * KIB, 40 * KIB);
        }
        world.pass(2 * SECOND);
        world.cut([false; 2]);
        world.crash(1, false, SECOND);
        world.pass(3 * SECOND);
        if !explains(&world, 1, "Starting") {
            continue;
        }
        stood += 1;
        let mut rotten = world.cluster[1].disk(Store::Undo(GROUP)).view().to_vec();
        rotten[4096 + 100] ^= 1;
        world.cluster[1].storage.replace(Store::Undo(GROUP), SimDisk::new(rotten));
        let why = world.refused(1, Command::Promote { force: true, entropy: 7 });
        assert!(why.contains("a mixture"), "{why}");
        let mixture = world.images_of(1);
        world.crash(1, false, SECOND);
        world.until("it is back", |world| world.glance(1, GROUP).is_some_and(|glance| glance.running));
        let identity = world.glance(1, GROUP).expect("up").identity;
        assert!(identity.inconsistent, "{delay}: a mixture, and called an image: {:?}", world.figures(1).promotable);
        if world.images_of(1) != mixture {}
    }
    assert!(stood > 3, "{stood}");
}

/// A start that goes on with a rollback is told to stop, and its last record fails: the node stops all the same.
#[test]
fn a_start_whose_rollback_cannot_be_recorded_can_be_stopped() {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) });
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    for n in 0..14 {
        world.write_done(n % 2, u64::from(n) * 60 * KIB, 36 * KIB);
    }
    let before = world.images_of(1);
    assert!(matches!(world.order(0, Command::Sync { full: false }), CommandResult::Done(_)));
    world.until("a part is overwritten", |world| {
        world.images_of(1) != before && world.figures(1).rollback_point.is_some_and(|p| p.used_bytes > 200 * KIB)
    });
    world.cut([false; 2]);
    world.command(1, GROUP, Command::Promote { force: true, entropy: 7 });
    while !explains(&world, 1, "WriteBack") {
        world.pass(50_000);
    }
    world.crash(1, true, MILLISECOND);
    while !explains(&world, 1, "WriteBack") {
        world.pass(20_000);
    }
    world.cluster[1].storage.trouble.fail_next_record = true;
    world.input(1, Input::Stop);
    let limit = world.now() + 300 * SECOND;
    while world.cluster[1].up() && world.now() < limit {
        world.pass(100 * MILLISECOND);
    }
    assert!(!world.cluster[1].up(), "five minutes later it has not stopped");
}
