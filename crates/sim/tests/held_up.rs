//! More is written than the link carries, and the link is up: nobody waits for ever, not by small steps either.

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, RequestId};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

/// So many writers of 4 KiB, each of whom writes again as soon as it is answered.
struct HeldWriters {
    under_way: Vec<RequestId>,
    asked: u64,
    failed: u64,
}

impl HeldWriters {
    fn new(count: usize) -> HeldWriters {
        HeldWriters { under_way: vec![RequestId(u64::MAX); count], asked: 0, failed: 0 }
    }

    /// They write until the condition holds or the time is over; how long that took.
    fn write(&mut self, world: &mut ScenarioWorld, time_ns: u64, done: impl Fn(&ScenarioWorld) -> bool) -> u64 {
        let began = world.now();
        while world.now() - began < time_ns && !done(world) {
            for at in 0..self.under_way.len() {
                let answer = world.reply(self.under_way[at]);
                if answer.is_none() && self.under_way[at].0 != u64::MAX {
                    continue;
                }
                self.failed += u64::from(answer == Some(false));
                let offset = self.asked % 256 * 4 * KIB;
                self.under_way[at] = world.write((self.asked / 256 % 2) as u16, offset, 4 * KIB);
                self.asked += 1;
            }
            world.pass(5 * MILLISECOND);
        }
        world.now() - began
    }
}

/// 100 kB/s: eight writers of 4 KiB at a full queue wait 0.3 s each.
fn slow(mode: Mode, policy: Policy) -> SimOptions {
    SimOptions {
        bytes_per_s: 100_000,
        queue_bytes: 128 * KIB,
        queue_items: 16,
        wait_limit_ms: 10_000,
        ..options(mode, policy)
    }
}

fn state(world: &ScenarioWorld) -> Option<State> {
    world.glance(0, GROUP).map(|g| g.state)
}

// proves: P8, rule 17
#[test]
fn many_small_writers_are_let_go_after_the_wait_limit_though_each_waits_less() {
    let mut world = ScenarioWorld::in_peace(slow(Mode::Async, Policy::Degrade));
    let mut writers = HeldWriters::new(8);
    let after = writers.write(&mut world, 60 * SECOND, |world| state(world) == Some(State::Logging));
    assert!((10 * SECOND..15 * SECOND).contains(&after), "{after} ns, {:?}", world.figures(0).queue);
    assert_eq!(
        (world.coverage(0, CoveragePoint::HeldUpTooLong), world.coverage(0, CoveragePoint::WaitLimitTripped)),
        (1, 0)
    );
    let reason = world.figures(0).reason;
    assert_eq!(reason, "writers were held up for too long: more is written than the link carries");
    // From here on nobody waits, whatever they write: in logging, and then beside snapshots.
    let (before, blocked) = (writers.asked, world.figures(0).queue.waits);
    writers.write(&mut world, 20 * SECOND, |_| false);
    assert!(writers.asked - before > 8 * 1000, "{} writes in 20 s", writers.asked - before);
    assert_eq!(world.figures(0).queue.waits, blocked);
    world.drain();
}

#[test]
fn who_writes_at_the_speed_of_the_link_waits_and_nothing_is_given_up() {
    // 1 MB/s: four writers wait some 17 ms for each write, all the time.
    let mut world =
        ScenarioWorld::in_peace(SimOptions { bytes_per_s: 1_000_000, ..slow(Mode::Async, Policy::Degrade) });
    let mut writers = HeldWriters::new(4);
    writers.write(&mut world, 60 * SECOND, |_| false);
    let queue = world.figures(0).queue;
    assert!(queue.waits.sum() > Duration::from_secs(6), "it was slowed down: {queue:?}");
    assert_eq!((state(&world), queue.held_up), (Some(State::Replicating), Duration::ZERO));
    world.drain();
}

#[test]
fn a_burst_that_fits_into_the_wait_limit_is_waited_for() {
    let mut world = ScenarioWorld::in_peace(slow(Mode::Async, Policy::Degrade));
    let mut writers = HeldWriters::new(8);
    for _ in 0..4 {
        writers.write(&mut world, 8 * SECOND, |_| false);
        assert!(world.figures(0).queue.held_up > Duration::from_secs(5), "{:?}", world.figures(0).queue);
        world.pass(10 * SECOND);
        assert_eq!(world.figures(0).queue.held_up, Duration::ZERO, "it runs back");
    }
    assert_eq!((state(&world), world.coverage(0, CoveragePoint::HeldUpTooLong)), (Some(State::Replicating), 0));
}

// proves: P8
#[test]
fn under_strict_writers_who_wait_less_than_the_limit_go_on_waiting() {
    let mut world = ScenarioWorld::in_peace(slow(Mode::Nearsync, Policy::Strict));
    let mut writers = HeldWriters::new(32);
    writers.write(&mut world, 60 * SECOND, |_| false);
    let queue = world.figures(0).queue;
    assert_eq!((queue.held_up, queue.held_up_limit), (Duration::from_secs(10), None));
    assert_eq!((state(&world), writers.failed), (Some(State::Replicating), 0));
    // The same writers under another policy.
    let mut settings = world.figures(0).settings;
    settings.policy = Policy::Degrade;
    assert!(matches!(world.order(0, Command::Set(settings)), CommandResult::Done(_)));
    let after = writers.write(&mut world, 5 * SECOND, |world| state(world) == Some(State::Logging));
    assert!(after < SECOND, "{after} ns");
}

#[test]
fn under_hold_writers_are_held_up_for_the_window_as_well() {
    let mut world = ScenarioWorld::in_peace(slow(Mode::Nearsync, Policy::Hold(Duration::from_secs(20))));
    let mut writers = HeldWriters::new(32);
    let after = writers.write(&mut world, 60 * SECOND, |world| state(world) == Some(State::Logging));
    assert!((30 * SECOND..33 * SECOND).contains(&after), "{after} ns");
}
