//! What was written in pieces of 4 KiB while the peer was away travels afterwards, and hardly more: after an outage, after a clean stop, and
//! after a crash, of which the hot extents of the activity log are compared on top.

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy};
use engine::wire::HEADER_BYTES;
use engine::{ActivityConfig, Command, CommandResult};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, ScenarioWorld, options, serves};

const NEAR: usize = 0;
const BLOCK: u64 = 4 * KIB;
/// Two volumes of 8 MiB, of which a part is written: every eighth block or so.
const VOLUME_BYTES: u64 = 8 * MIB;
const WRITES: u64 = 512;
const WRITTEN_BYTES: u64 = WRITES * BLOCK;
const HOT_BYTES: u64 = 4 * 64 * KIB;

fn in_step() -> ScenarioWorld {
    ScenarioWorld::in_peace(SimOptions {
        volume_bytes: VOLUME_BYTES,
        activity: ActivityConfig { extent_bytes: 64 * KIB, extents: 4 },
        queue_bytes: 4 * MIB,
        window_bytes: MIB,
        journal_bytes: 8 * MIB,
        history_bytes: 32 * MIB,
        ..options(Mode::Async, Policy::Degrade)
    })
}

/// Blocks of no order, each once.
fn write_scattered(world: &mut ScenarioWorld, first: u64) {
    let blocks = VOLUME_BYTES / BLOCK;
    for n in first..first + WRITES {
        // 797 has no divisor in common with their number.
        world.write_done((n % 2) as u16, n * 797 % blocks * BLOCK, BLOCK);
    }
}

/// In an outage in which somebody set the group to logging, scattered blocks are written.
fn written_in_an_outage() -> ScenarioWorld {
    let mut world = in_step();
    world.cut([false; 2]);
    assert!(matches!(world.order(NEAR, Command::Logging), CommandResult::Done(_)));
    write_scattered(&mut world, 0);
    world
}

/// The link is back: so much travels until both hold the same.
fn travels(world: &mut ScenarioWorld) -> u64 {
    let before = world.data_sent_bytes()[NEAR];
    world.restore_path();
    world.until("the peer is there", |world| world.figures(NEAR).meeting.is_some());
    let answer = world.order(NEAR, Command::Sync { full: false });
    assert!(!matches!(answer, CommandResult::Refused(_)), "{answer:?}");
    world.drain();
    let sent = world.data_sent_bytes()[NEAR] - before;
    // Each block in a frame of its own, at worst.
    sent + sent / BLOCK * HEADER_BYTES as u64
}

// proves: P3, rule 8
#[test]
fn what_was_written_in_an_outage_travels_and_hardly_more() {
    let mut world = written_in_an_outage();
    let dirty = world.figures(NEAR).peer.dirty_bytes;
    assert_eq!(dirty, WRITTEN_BYTES);
    let sent = travels(&mut world);
    assert!((WRITTEN_BYTES..=WRITTEN_BYTES * 11 / 10).contains(&sent), "{sent} of {WRITTEN_BYTES} bytes");
}

// proves: P3, rule 2
#[test]
fn so_it_is_after_a_clean_stop() {
    let mut world = written_in_an_outage();
    world.stop(NEAR);
    world.boot(NEAR);
    world.until("it serves", serves);
    assert_eq!(world.figures(NEAR).peer.dirty_bytes, WRITTEN_BYTES);
    let sent = travels(&mut world);
    assert!((WRITTEN_BYTES..=WRITTEN_BYTES * 11 / 10).contains(&sent), "{sent} of {WRITTEN_BYTES} bytes");
}

// proves: P3, rule 2
#[test]
fn so_it_is_after_a_crash_but_for_hot_extents() {
    for loses_power in [false, true] {
        let mut world = written_in_an_outage();
        world.crash(NEAR, loses_power, MILLISECOND);
        world.until("it is back", |world| world.glance(NEAR, GROUP).is_some_and(|glance| glance.running));
        let dirty = world.figures(NEAR).peer.dirty_bytes;
        assert!((WRITTEN_BYTES..=WRITTEN_BYTES + HOT_BYTES).contains(&dirty), "{dirty} bytes");
        let sent = travels(&mut world);
        assert!(sent <= WRITTEN_BYTES * 11 / 10 + HOT_BYTES, "{sent} of {WRITTEN_BYTES} bytes");
    }
}

// proves: P3, rule 2
/// Whenever the power fails: what was answered is dirty, and what was not written is not, but for hot extents.
#[test]
fn the_power_may_fail_at_any_moment() {
    for moment in 0..60 {
        let mut world = in_step();
        assert!(matches!(world.order(NEAR, Command::Logging), CommandResult::Done(_)));
        for n in 0..40 + moment % 5 {
            world.write(n as u16 % 2, n * 797 % 2048 * BLOCK, BLOCK);
            world.pass(200_000 + moment * 7_000);
        }
        world.crash(NEAR, moment % 2 == 0, MILLISECOND);
        world.until("it is back", |world| world.glance(NEAR, GROUP).is_some_and(|glance| glance.running));
        let dirty = world.figures(NEAR).peer.dirty_bytes;
        assert!(dirty <= 45 * BLOCK + HOT_BYTES, "moment {moment}: {dirty} bytes");
        _ = world.order(NEAR, Command::Sync { full: false });
        world.drain();
    }
}

fn reserved(world: &ScenarioWorld) -> u64 {
    let point = world.figures(1).rollback_point;
    point.map_or(0, |point| point.reserved_bytes + point.used_bytes)
}

/// The link is back, and the sync has begun.
fn begin_sync(world: &mut ScenarioWorld) {
    world.restore_path();
    world.until("the peer is there", |world| world.figures(NEAR).meeting.is_some());
    _ = world.order(NEAR, Command::Sync { full: false });
    world.until("it is reserved", |world| reserved(world) > 0);
}

// proves: rule 9
/// A sync of scattered blocks over an image reserves twice what is dirty; one of all there is reserves 9/8 of the volumes.
#[test]
fn room_is_reserved_for_regions_or_for_the_whole_image() {
    let mut world = written_in_an_outage();
    begin_sync(&mut world);
    assert!(reserved(&world) <= 2 * WRITTEN_BYTES, "{}", reserved(&world));
    world.drain();
    _ = world.order(NEAR, Command::SendAll);
    world.until("it is reserved", |world| reserved(world) > 4 * WRITTEN_BYTES);
    let (all, now) = (2 * VOLUME_BYTES, reserved(&world));
    assert!((all..=all / 8 * 9).contains(&now), "{now}");
    world.drain();
    assert_eq!(world.coverage(1, CoveragePoint::HistoryFull), 0);
}

// proves: rule 9
/// Of what was written from one end to the other so much fits as did with larger regions: 9/8 of it is reserved, not twice.
#[test]
fn room_for_runs_is_reserved_in_units() {
    let mut world = in_step();
    world.cut([false; 2]);
    assert!(matches!(world.order(NEAR, Command::Logging), CommandResult::Done(_)));
    let written = 4 * MIB;
    for offset in (0..written).step_by(128 * KIB as usize) {
        world.write_done(0, offset, 128 * KIB);
    }
    begin_sync(&mut world);
    assert!((written..=written / 8 * 9).contains(&reserved(&world)), "{}", reserved(&world));
    world.drain();
    assert_eq!(world.coverage(1, CoveragePoint::HistoryFull), 0);
}
