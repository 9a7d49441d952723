//! Writes that continue each other travel as one frame, and are one record at the peer.
// proves: rule 4

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, VerifyOrder};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

const PRIMARY: usize = 0;
const SECONDARY: usize = 1;
const BLOCK: u64 = 4 * KIB;
const COUNT: u64 = 48;

/// The link takes its time, so that writes wait for it.
fn slow(mode: Mode) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(SimOptions { bytes_per_s: 200_000, ..options(mode, Policy::Degrade) });
    world.write_done(1, 0, 8 * KIB);
    world.until("in step", |world| world.figures(PRIMARY).state == State::Replicating);
    world.drain();
    world
}

/// A run of writes, each behind the one before; the first of them are on the link before the flush has ended.
fn run(world: &mut ScenarioWorld, flushed: bool) {
    (0..COUNT).for_each(|n| _ = world.write_done(0, n * BLOCK, BLOCK));
    if flushed {
        let flush = world.flush(0);
        world.answer(flush);
    }
}

fn joined(world: &ScenarioWorld) -> (u64, u64) {
    let figures = world.figures(PRIMARY);
    (figures.joined_writes, figures.joined_frames)
}

#[test]
fn a_backlog_of_neighbours_goes_in_few_frames() {
    let mut world = slow(Mode::Async);
    run(&mut world, true);
    world.drain();
    let (writes, frames) = joined(&world);
    assert!(writes >= COUNT / 3 && frames <= writes / 2, "{writes} writes as {frames} frames");
    assert_eq!(world.coverage(PRIMARY, CoveragePoint::WritesJoined), frames);
    assert_eq!(world.figures(PRIMARY).streamed_bytes, 8 * KIB + COUNT * BLOCK, "each byte once");
}

/// The peer keeps what is not flushed here for a primary that loses its power, write by write.
#[test]
fn what_is_not_flushed_here_is_not_joined() {
    let mut world = slow(Mode::Async);
    run(&mut world, false);
    world.drain();
    assert_eq!(joined(&world), (0, 0));
}

/// Each time a node loses its power, or is killed, at another moment of the backlog; and what it holds then is some moment of the order.
#[test]
fn a_node_that_dies_has_all_of_a_frame_or_nothing() {
    let (mut met, mut pulled) = (0, 0);
    for node in [PRIMARY, SECONDARY] {
        for moment in 0..24 {
            let mut world = slow(Mode::Async);
            run(&mut world, true);
            (0..6).for_each(|n| _ = world.write(0, (n * 7 % COUNT) * BLOCK, BLOCK));
            world.pass(moment * 40 * MILLISECOND);
            met += u64::from(joined(&world).1 > 0 && !world.in_step());
            world.crash(node, moment % 2 == 0, SECOND / 5);
            world.pass(SECOND);
            world.unattended = false;
            world.drain();
            pulled += world.figures(PRIMARY).pulled_bytes;
        }
    }
    assert!(met > 20, "{met}");
    assert!(pulled > 0);
}

/// The queue goes on where the peer stands, which is the end of a frame.
#[test]
fn a_link_that_is_lost_cuts_no_frame_in_two() {
    let mut met = 0;
    for moment in 0..24 {
        let mut world = slow(Mode::Async);
        run(&mut world, true);
        world.pass(moment * 40 * MILLISECOND);
        world.cut([false; 2]);
        world.pass(6 * SECOND);
        world.cut([true; 2]);
        world.drain();
        met += world.coverage(PRIMARY, CoveragePoint::QueueRewound);
    }
    assert!(met > 10, "{met}");
}

/// It is promoted with what it has: the end of a frame.
#[test]
fn a_peer_that_is_promoted_stands_at_the_end_of_a_frame() {
    let mut met = 0;
    for moment in 0..24 {
        let mut world = slow(Mode::Async);
        run(&mut world, true);
        world.pass(moment * 40 * MILLISECOND);
        met += u64::from(joined(&world).1 > 0 && !world.in_step());
        world.cut([false; 2]);
        world.crash(PRIMARY, true, 20 * SECOND);
        let promoted = world.promote(SECONDARY, true);
        assert!(matches!(promoted, CommandResult::Done(_) | CommandResult::Warning(_)), "{promoted:?}");
        world.pass(SECOND);
        assert!(world.serves(GROUP));
    }
    assert!(met > 10, "{met}");
}

/// A comparison has its place in the order: what is before it does not travel with what is behind it.
#[test]
fn a_verify_in_the_backlog_finds_nothing() {
    let mut world = slow(Mode::Async);
    run(&mut world, true);
    let whole = VerifyOrder { rate_bytes_per_s: None, sample_percent: 100, repair: false, entropy: 7, by_timer: false };
    assert!(matches!(world.order(PRIMARY, Command::Verify(whole)), CommandResult::Done(_)));
    run(&mut world, true);
    world.drain();
    assert!(joined(&world).1 > 0);
}
