//! A view shows the image of its position, whatever becomes of the copy meanwhile. Whatever goes wrong with a view ends it, and is in the way of
//! nothing else. The checkers compare each read with what stood on the copy, and that with the order of writes.

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB, VIEWS_MAX};
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, IoError, OpenedView, RefusalCode, RequestId, Store, ViewId, VolumeId};
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options, state};
use sim::world::views;

const NEAR: usize = 0;
const FAR: usize = 1;

type Images = Vec<Vec<u8>>;

fn plain() -> SimOptions {
    options(Mode::Async, Policy::Degrade)
}

fn slow_link() -> SimOptions {
    SimOptions { bytes_per_s: 400_000, ..plain() }
}

fn is_done(result: &CommandResult) -> bool {
    matches!(result, CommandResult::Done(_))
}

/// A pair in step, with something of everything on its volumes.
fn in_step(options: SimOptions) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options);
    for n in 0..16 {
        world.write_done(n % 2, u64::from(n) * 60 * KIB, 20 * KIB);
    }
    world.drain();
    world
}

/// Writes and zeroes all over both volumes, 12 KiB at a time; they are not waited for by the copy.
fn overwrites(world: &mut ScenarioWorld, from: u64, count: u64) {
    for n in from..from + count {
        let (volume, offset) = ((n % 2) as u16, n * 20 * KIB % (1000 * KIB));
        if n % 5 == 4 {
            let id = world.zero(volume, offset + 512, 9 * KIB, n % 2 == 0);
            assert!(world.answer(id).0);
        } else {
            world.write_done(volume, offset, 12 * KIB);
        }
    }
}

fn asks(world: &mut ScenarioWorld, node: usize) -> ViewId {
    views::open(world, node, GROUP)
}

fn opened(world: &ScenarioWorld, view: ViewId) -> OpenedView {
    world.checkers.views.opened(view).expect("it is open").clone()
}

fn opens(world: &mut ScenarioWorld) -> ViewId {
    let view = asks(world, FAR);
    let known = |world: &ScenarioWorld| {
        world.checkers.views.opened(view).is_some() || world.checkers.views.refusal(view).is_some()
    };
    world.until("the view is open", known);
    assert_eq!(world.checkers.views.refusal(view), None);
    view
}

fn refused(world: &mut ScenarioWorld, node: usize) -> RefusalCode {
    let view = asks(world, node);
    world.until("it is refused", |world| world.checkers.views.refusal(view).is_some());
    world.checkers.views.refusal(view).expect("just seen").code
}

fn answer(world: &mut ScenarioWorld, read: RequestId) -> Option<Vec<u8>> {
    world.until("the read is answered", |world| world.checkers.views.answer(read).is_some());
    world.checkers.views.answer(read).expect("just seen").map(<[u8]>::to_vec)
}

/// All that a view shows.
fn shown(world: &mut ScenarioWorld, view: ViewId) -> Images {
    let sizes = opened(world, view).volume_bytes;
    let mut images = Vec::new();
    for (volume, bytes) in (0..).zip(sizes) {
        let pieces = (0..bytes).step_by(256 << 10).map(|at| (at, (bytes - at).min(256 * KIB)));
        let reads: Vec<_> = pieces.map(|(at, length)| views::read(world, view, volume, at, length)).collect();
        images.push(reads.into_iter().flat_map(|read| answer(world, read).expect("it can be read")).collect());
    }
    images
}

fn lost(world: &ScenarioWorld, view: ViewId) -> &str {
    world.checkers.views.lost(view).unwrap_or("")
}

fn used(world: &ScenarioWorld) -> u64 {
    world.figures(FAR).views.used_bytes
}

// proves: P2
#[test]
fn a_view_stays_exact_under_writes_zeroes_and_steps_of_many_writes() {
    for folds in [false, true] {
        let mut world = in_step(SimOptions { folds, ..plain() });
        let stood = world.images_of(FAR);
        let view = opens(&mut world);
        assert_eq!(opened(&world, view).position, world.figures(FAR).promotable.expect("an image").0);
        assert_eq!(shown(&mut world, view), stood, "nothing is saved yet");
        overwrites(&mut world, 0, 60);
        let between = shown(&mut world, view);
        overwrites(&mut world, 60, 60);
        world.drain();
        assert!(world.images_of(FAR) != stood);
        assert!(between == stood && shown(&mut world, view) == stood);
        assert!(world.coverage(FAR, CoveragePoint::ViewReadSaved) > 0);
        let status = world.figures(FAR).views;
        assert_eq!((status.open.len(), status.open[0].view, status.open[0].before_sync), (1, view, false));
        assert!(status.open[0].saved_bytes > 500 * KIB && status.used_bytes > status.open[0].saved_bytes / 2);
        views::close(&mut world, view);
        assert_eq!((used(&world), world.figures(FAR).views.open.len()), (0, 0), "nothing is kept for nobody");
        overwrites(&mut world, 0, 20);
        world.drain();
        assert_eq!(used(&world), 0, "nothing is saved for nobody");
    }
}

// proves: P2
/// A sync writes regions over the copy in any order, in the stream and in snapshots. The image of before is nowhere but in the view.
#[test]
fn a_view_stays_exact_under_syncs_and_snapshots() {
    for (options, full) in [(plain(), true), (plain(), false), (slow_link(), false)] {
        let mut world = in_step(options);
        let stood = world.images_of(FAR);
        let view = opens(&mut world);
        assert!(is_done(&world.order(NEAR, Command::Logging)));
        overwrites(&mut world, 0, 90);
        assert!(is_done(&world.order(NEAR, Command::Sync { full })));
        for n in 0..10 {
            overwrites(&mut world, 7 * n, 7);
            assert!(shown(&mut world, view) == stood);
        }
        world.drain();
        assert!(shown(&mut world, view) == stood && world.images_of(FAR) != stood);
    }
}

// proves: P2
#[test]
fn two_views_show_two_points_and_the_older_one_goes_first() {
    let mut world = in_step(plain());
    let mut stood = Vec::new();
    let mut open = Vec::new();
    for round in 0..3 {
        stood.push(world.images_of(FAR));
        open.push(opens(&mut world));
        // The same places again, and others.
        overwrites(&mut world, 10 * round, 40);
        world.drain();
    }
    for (view, stood) in open.iter().zip(&stood) {
        assert!(shown(&mut world, *view) == *stood);
    }
    let before = used(&world);
    views::close(&mut world, open[1]);
    assert_eq!(used(&world), before, "the first needs what was saved for the second");
    assert!(shown(&mut world, open[0]) == stood[0] && shown(&mut world, open[2]) == stood[2]);
    views::close(&mut world, open[0]);
    assert!(used(&world) < before);
    overwrites(&mut world, 50, 30);
    world.drain();
    assert!(shown(&mut world, open[2]) == stood[2]);
}

/// Two who look at one position share what is saved for it.
#[test]
fn views_of_one_position_cost_once() {
    let mut world = in_step(plain());
    let stood = world.images_of(FAR);
    let (first, second) = (opens(&mut world), opens(&mut world));
    assert_eq!(world.coverage(FAR, CoveragePoint::ViewShared), 1);
    overwrites(&mut world, 0, 20);
    world.drain();
    let once = used(&world);
    views::close(&mut world, first);
    assert_eq!(used(&world), once);
    assert!(shown(&mut world, second) == stood);
}

// proves: P2
/// What is being written when a view is asked for is of no position. The opening waits for a moment between two steps, and applying waits for no
/// longer than that.
#[test]
fn a_view_is_opened_between_two_steps_while_the_copy_is_written() {
    for folds in [false, true] {
        let slow_disk = SimOptions { disk_ns: (1_000_000, 6_000_000), folds, depth: 32, ..plain() };
        let mut world = in_step(slow_disk);
        let mut open = Vec::new();
        for round in 0..6u64 {
            let writes: Vec<_> = (0..24)
                .map(|n| world.write((n % 2) as u16, (n * 44 + round * 8) * KIB % (960 * KIB), 16 * KIB))
                .collect();
            world.pass((round + 2) * MILLISECOND);
            let view = asks(&mut world, FAR);
            writes.into_iter().for_each(|id| assert!(world.answer(id).0));
            world.until("it is open", |world| world.checkers.views.opened(view).is_some());
            let seen = shown(&mut world, view);
            open.push((view, seen));
        }
        assert!(world.coverage(FAR, CoveragePoint::ViewOpenWaited) > 0, "some had to wait");
        world.drain();
        for (view, seen) in open {
            assert!(shown(&mut world, view) == seen, "it shows now what it showed then");
        }
    }
}

// proves: P2
/// A read of the volume is slow, and is overtaken by the write that overwrites what it reads: it counts for nothing.
#[test]
fn a_read_that_is_overtaken_by_a_write_is_made_again() {
    let mut again = 0;
    for _ in 0..4 {
        let mut world = in_step(plain());
        let stood = world.images_of(FAR);
        let view = opens(&mut world);
        world.cluster[FAR].storage.trouble.read_ns = 500 * MILLISECOND;
        let read = views::read(&mut world, view, 0, 0, 256 * KIB);
        world.cluster[FAR].storage.trouble.read_ns = 0;
        for n in 0..6 {
            world.write_done(0, n * 40 * KIB, 20 * KIB);
        }
        world.pass(100 * MILLISECOND);
        assert!(world.images_of(FAR)[0][..256 << 10] != stood[0][..256 << 10], "it is overwritten");
        assert_eq!(world.checkers.views.answer(read), None, "the read is still under way");
        assert!(answer(&mut world, read).expect("read") == stood[0][..256 << 10]);
        again += world.coverage(FAR, CoveragePoint::ViewReadAgain);
    }
    assert_eq!(again, 4);
}

// proves: P8
/// A full store costs the oldest view, and never a write its way.
#[test]
fn a_full_store_costs_the_oldest_view_and_applying_goes_on() {
    let mut world = in_step(SimOptions { view_bytes: 640 * KIB, ..plain() });
    // Zeroes would take no room.
    for n in 0..32 {
        world.write_done((n % 2) as u16, n / 2 * 64 * KIB, 64 * KIB);
    }
    world.drain();
    let first = opens(&mut world);
    for n in 0..12 {
        world.write_done(0, n * 40 * KIB, 20 * KIB);
    }
    world.drain();
    let stood = world.images_of(FAR);
    let second = opens(&mut world);
    for n in 0..18 {
        world.write_done(1, n * 40 * KIB, 20 * KIB);
    }
    world.drain();
    assert!(lost(&world, first).contains("no room for more"), "{}", lost(&world, first));
    assert!(shown(&mut world, second) == stood, "the younger one is as it was");
    for n in 0..25 {
        world.write_done((n % 2) as u16, n * 40 * KIB + 20 * KIB, 20 * KIB);
    }
    world.drain();
    assert!(lost(&world, second).contains("no room for more"));
    assert_eq!((used(&world), world.figures(FAR).views.open.len()), (0, 0));
    assert_eq!(state(&world), Some(State::Replicating));
    let stood = world.images_of(FAR);
    let third = opens(&mut world);
    overwrites(&mut world, 0, 8);
    world.drain();
    assert!(shown(&mut world, third) == stood, "and another one can be opened");
}

// proves: P8
/// The store's file cannot be written, or what is to be saved cannot be read: views are lost, and the copy is not.
#[test]
fn a_store_that_fails_costs_views_and_nothing_else() {
    for (fails, words) in [(IoError::Io, "could not be written"), (IoError::NoSpace, "is full")] {
        let mut world = in_step(plain());
        let open = [opens(&mut world), opens(&mut world)];
        world.cluster[FAR].storage.trouble.views_fail = Some(fails);
        overwrites(&mut world, 0, 10);
        world.drain();
        open.into_iter().for_each(|view| assert!(lost(&world, view).contains(words), "{}", lost(&world, view)));
        assert_eq!(state(&world), Some(State::Replicating));
        world.cluster[FAR].storage.trouble.views_fail = None;
        let stood = world.images_of(FAR);
        let view = opens(&mut world);
        overwrites(&mut world, 3, 10);
        world.drain();
        assert!(shown(&mut world, view) == stood);
    }
    let mut world = in_step(plain());
    let view = opens(&mut world);
    world.cluster[FAR].storage.trouble.unreadable_until = world.now() + SECOND;
    overwrites(&mut world, 0, 10);
    world.drain();
    assert!(lost(&world, view).contains("could not be read"), "{}", lost(&world, view));
    assert_eq!(state(&world), Some(State::Replicating));
}

// proves: P9
/// Rot in the store fails the reads that meet it, and no other; it is named, and never shown.
#[test]
fn damage_in_the_store_fails_a_read_and_is_named() {
    let mut world = in_step(plain());
    let stood = world.images_of(FAR);
    let view = opens(&mut world);
    world.write_done(0, 0, 20 * KIB);
    world.drain();
    world.cluster[FAR].disk_mut(Store::History(GROUP)).rot_all();
    let hit = views::read(&mut world, view, 0, 8 * KIB, 4 * KIB);
    let beside = views::read(&mut world, view, 0, 64 * KIB, 64 * KIB);
    assert_eq!(answer(&mut world, hit), None);
    assert!(answer(&mut world, beside).expect("read") == stood[0][64 << 10..128 << 10]);
    assert_eq!(lost(&world, view), "");
    let named = |(node, words): &(usize, String)| *node == FAR && words.contains("is damaged");
    assert_eq!(world.said().iter().filter(|said| named(said)).count(), 1, "{:?}", world.said());
}

// proves: P8
/// The disk of the store hangs: applying waits for a save a while, then the view is lost. An opening meanwhile holds nothing up, and waits no longer
/// than it may.
#[test]
fn a_store_that_hangs_costs_the_view_and_holds_the_copy_up_for_a_while_only() {
    let mut world = in_step(plain());
    let view = opens(&mut world);
    world.cluster[FAR].storage.trouble.views_ns = 300 * SECOND;
    let began = world.now();
    world.write_done(0, 0, 20 * KIB);
    world.until("it is lost", |world| world.checkers.views.lost(view).is_some());
    assert!(lost(&world, view).contains("does not answer") && world.now() - began <= 21 * SECOND);
    let view = asks(&mut world, FAR);
    for n in 0..20 {
        world.write_done((n % 2) as u16, n * 40 * KIB, 20 * KIB);
    }
    world.drain();
    assert!(world.now() - began <= 25 * SECOND, "nothing waits for the opening");
    world.until("it is refused", |world| world.checkers.views.refusal(view).is_some());
    assert_eq!(world.checkers.views.refusal(view).expect("just seen").code, RefusalCode::ViewNotNow);
    world.cluster[FAR].storage.trouble.views_ns = 0;
    world.until("the disk has answered", |world| world.now() - began > 310 * SECOND);
    let stood = world.images_of(FAR);
    let view = opens(&mut world);
    overwrites(&mut world, 0, 10);
    world.drain();
    assert!(shown(&mut world, view) == stood);
}

// proves: P8, P5
/// What a view has under way is nobody's business but the view's: a disk for views that hangs is in the way of no promotion and no sync.
#[test]
fn a_store_that_hangs_is_in_the_way_of_no_role_and_no_sync() {
    for promotes in [false, true] {
        let mut world = in_step(plain());
        let view = opens(&mut world);
        world.cluster[FAR].storage.trouble.views_ns = 300 * SECOND;
        world.write_done(0, 0, 20 * KIB);
        world.until("it is lost", |world| world.checkers.views.lost(view).is_some());
        world.drain();
        let began = world.now();
        if promotes {
            world.crash(NEAR, true, FOR_EVER);
            world.pass(100 * MILLISECOND);
            assert!(matches!(world.promote(FAR, true), CommandResult::Done(_) | CommandResult::Warning(_)));
        } else {
            assert!(is_done(&world.order(NEAR, Command::Logging)));
            world.write_done(1, 0, 36 * KIB);
            assert!(is_done(&world.order(NEAR, Command::Sync { full: false })));
            world.drain();
        }
        assert!(world.now() - began < 20 * SECOND, "promotes: {promotes}; after {} s", (world.now() - began) / SECOND);
    }
}

/// A pair in step, then so much that the copy lacks that a sync of it takes a while; the copy's images.
fn mid_sync(world: &mut ScenarioWorld) -> Images {
    let stood = world.images_of(FAR);
    assert!(is_done(&world.order(NEAR, Command::Logging)));
    for n in 0..14 {
        world.write_done((n % 2) as u16, n * 60 * KIB, 36 * KIB);
    }
    assert!(is_done(&world.order(NEAR, Command::Sync { full: false })));
    let overwrites = |world: &ScenarioWorld| {
        let point = world.figures(FAR).rollback_point;
        point.is_some_and(|point| point.used_bytes > 150 * KIB)
    };
    world.until("a part is overwritten", overwrites);
    assert!(world.images_of(FAR) != stood);
    stood
}

// proves: P2, rule 9
/// In the midst of a sync the volumes are no image: what is shown is the image before, until the sync ends.
#[test]
fn a_view_that_is_opened_in_mid_sync_shows_the_image_before_it() {
    let mut world = in_step(slow_link());
    let stood = mid_sync(&mut world);
    let view = opens(&mut world);
    let seen = opened(&world, view);
    assert!(seen.before_sync && seen.position == world.figures(FAR).promotable.expect("the point").0);
    for _ in 0..5 {
        assert!(shown(&mut world, view) == stood);
        world.pass(100 * MILLISECOND);
    }
    world.drain();
    assert!(lost(&world, view).contains("the sync has ended"), "{}", lost(&world, view));
}

// proves: P2, rule 9
/// A view that was opened before keeps its image through the sync, through its rollback point being given up, and gives way to a promotion.
#[test]
fn a_view_outlives_a_sync_and_ends_with_a_promotion() {
    for gives_up in [false, true] {
        let mut world = in_step(slow_link());
        let view = opens(&mut world);
        let stood = mid_sync(&mut world);
        let beside = opens(&mut world);
        assert!(shown(&mut world, view) == stood && shown(&mut world, beside) == stood);
        if gives_up {
            let name = world.cluster.rollback_point(FAR, GROUP).expect("it stands");
            assert!(is_done(&world.order(FAR, Command::DropRollbackPoint { name, discard: false })));
            assert!(lost(&world, beside).contains("given up"));
            assert_eq!(refused(&mut world, FAR), RefusalCode::ViewNotNow);
            world.drain();
            assert!(shown(&mut world, view) == stood);
            continue;
        }
        world.crash(NEAR, true, FOR_EVER);
        world.pass(100 * MILLISECOND);
        let under_way = views::read(&mut world, view, 0, 0, 64 * KIB);
        assert!(matches!(world.promote(FAR, true), CommandResult::Warning(_)));
        assert!(lost(&world, view).contains("promoted") && lost(&world, beside).contains("promoted"));
        assert!(world.checkers.views.answer(under_way).is_some(), "whoever read it was told");
        assert!(world.images_of(FAR) == stood, "it went back");
        assert_eq!(refused(&mut world, FAR), RefusalCode::ViewOfPrimary);
    }
}

// proves: P8
/// A view has a store of its own: what it lacks is nothing of a rollback point's.
#[test]
fn a_store_for_views_that_fails_is_not_in_the_way_of_a_sync() {
    let mut world = in_step(slow_link());
    let view = opens(&mut world);
    world.cluster[FAR].storage.trouble.views_fail = Some(IoError::NoSpace);
    let stood = mid_sync(&mut world);
    assert!(lost(&world, view).contains("is full"));
    let beside = opens(&mut world);
    assert!(shown(&mut world, beside) == stood, "the image before the sync is in the undo store");
    world.drain();
}

#[test]
fn what_cannot_be_opened_is_refused_in_words() {
    let mut world = ScenarioWorld::new(slow_link());
    world.pass(SECOND);
    assert_eq!(refused(&mut world, FAR), RefusalCode::NoImage);
    assert_eq!(refused(&mut world, NEAR), RefusalCode::ViewOfPrimary);
    world.command(NEAR, GROUP, Command::Sync { full: true });
    world.until("it syncs", |world| world.glance(FAR, GROUP).is_some_and(|glance| glance.identity.inconsistent));
    assert_eq!(refused(&mut world, FAR), RefusalCode::ViewNotNow);
    world.drain();
    let open: Vec<ViewId> = (0..VIEWS_MAX).map(|_| opens(&mut world)).collect();
    assert_eq!(refused(&mut world, FAR), RefusalCode::ViewsFull);
    views::close(&mut world, open[3]);
    opens(&mut world);
    let mut world = in_step(SimOptions { view_bytes: 0, ..plain() });
    assert_eq!(refused(&mut world, FAR), RefusalCode::NoViews);
}

/// A volume has no space, and what was begun there stands still: no moment comes in which the copy is an image.
#[test]
fn an_opening_is_refused_while_applying_waits_for_space() {
    let mut world = in_step(plain());
    world.cluster[FAR].storage.trouble.full_until = FOR_EVER;
    for n in 0..40 {
        world.write(0, n * 20 * KIB, 4 * KIB);
    }
    world.until("it stands still", |world| world.glance(FAR, GROUP).is_some_and(|glance| glance.paused.is_some()));
    assert_eq!(refused(&mut world, FAR), RefusalCode::ViewNotNow);
    world.cluster[FAR].storage.trouble.full_until = 0;
    world.drain();
    opens(&mut world);
}

// proves: P8
/// A disk that hangs holds an opening up for a while, and whoever asked is told.
#[test]
fn an_opening_does_not_wait_for_ever() {
    let mut world = in_step(plain());
    world.cluster[FAR].storage.trouble.stalled_until = world.now() + 60 * SECOND;
    for n in 0..4 {
        world.write(0, n * 20 * KIB, 4 * KIB);
    }
    // What lands is applied only when the journal has it: let some of it get there.
    world.cluster[FAR].storage.trouble.stalled_until = 0;
    world.pass(MILLISECOND);
    world.cluster[FAR].storage.trouble.stalled_until = world.now() + 60 * SECOND;
    world.pass(5 * MILLISECOND);
    let view = asks(&mut world, FAR);
    world.pass(20 * SECOND);
    let views = &world.checkers.views;
    let code = views.refusal(view).map(|refusal| refusal.code);
    assert!(views.opened(view).is_some() || code == Some(RefusalCode::ViewNotNow), "{code:?}");
}

// proves: P2
/// The power fails, or the process is killed, while a view is open: nothing of it is on record, and nothing is in the way of the next run.
#[test]
fn a_crash_ends_views_and_nothing_is_left_of_them() {
    for (step, power) in (0..12).flat_map(|step| [(step, false), (step, true)]) {
        let mut world = in_step(plain());
        let view = opens(&mut world);
        for n in 0..10 {
            world.write((n % 2) as u16, n * 40 * KIB, 20 * KIB);
        }
        _ = views::read(&mut world, view, 0, 0, 64 * KIB);
        world.pass(step * 400_000);
        world.crash(FAR, power, 50 * MILLISECOND);
        world.drain();
        assert_eq!(used(&world), 0);
        let stood = world.images_of(FAR);
        let view = opens(&mut world);
        overwrites(&mut world, 0, 12);
        world.drain();
        assert!(shown(&mut world, view) == stood);
    }
}

/// A stop waits for what views have under way, and whoever reads them is told.
#[test]
fn a_stop_and_a_failure_end_views_in_words() {
    let mut world = in_step(plain());
    let view = opens(&mut world);
    overwrites(&mut world, 0, 6);
    let read = views::read(&mut world, view, 0, 0, 256 * KIB);
    world.stop(FAR);
    assert!(lost(&world, view).contains("stopped") && world.checkers.views.answer(read).is_some());
    world.boot(FAR);
    world.drain();
    let view = opens(&mut world);
    world.cluster[FAR].storage.trouble.fail_next_flush = true;
    world.write_done(0, 0, 4 * KIB);
    world.until("it failed", |world| world.checkers.views.lost(view).is_some());
    assert!(lost(&world, view).contains("failed"), "{}", lost(&world, view));
    assert_eq!(refused(&mut world, FAR), RefusalCode::GroupFailed);
}

/// A front end that asks for what cannot be is answered with an error.
#[test]
fn a_read_of_what_is_not_there_fails() {
    let mut world = in_step(plain());
    let view = opens(&mut world);
    let bad = [(2, 0, 512), (0, MIB, 512), (0, MIB - 512, 1024), (0, 100, 512), (0, 0, 0), (0, u64::MAX - 511, 4096)];
    for (volume, offset, length) in bad {
        let read = views::read(&mut world, view, volume, offset, length);
        assert_eq!(world.checkers.views.answer(read), Some(None), "{volume} {offset} {length}");
    }
    let gone = views::read(&mut world, view, 0, 0, 4096);
    views::close(&mut world, view);
    assert_eq!(answer(&mut world, gone), None);
}

/// A volume that is set aside is no part of the image.
#[test]
fn a_view_is_without_a_volume_that_is_set_aside() {
    let mut world = in_step(plain());
    assert!(!matches!(world.order(NEAR, Command::SetAside { volume: VolumeId(1) }), CommandResult::Refused(_)));
    world.write_done(0, 0, 4 * KIB);
    world.write_done(1, 0, 4 * KIB);
    world.until("it is known there", |world| world.glance(FAR, GROUP).is_some_and(|glance| !glance.aside.is_empty()));
    let view = opens(&mut world);
    assert!(opened(&world, view).without.contains(VolumeId(1)));
    let (read, other) = (views::read(&mut world, view, 1, 0, 4 * KIB), views::read(&mut world, view, 0, 0, 4 * KIB));
    assert_eq!(world.checkers.views.answer(read), Some(None));
    assert!(answer(&mut world, other).is_some());
}
