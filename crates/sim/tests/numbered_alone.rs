//! The first write that the peer does not see in order begins a generation (rule 5), also when it took its place while there was a
//! stream, and waited for the activity log until there was none.
// proves: rule 5

use engine::limits::KIB;
use engine::state::{Mode, Policy, State};
use engine::{Command, CommandResult, Generation, Settings};
use sim::options::SimOptions;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld, options};

fn in_step(options: SimOptions) -> ScenarioWorld {
    let mut world = ScenarioWorld::in_peace(options);
    world.pass(5 * SECOND);
    assert_eq!(world.figures(0).state, State::Replicating);
    world
}

/// As it is on record.
fn generation(world: &ScenarioWorld) -> Generation {
    world.recorded(0).identity.generation
}

/// A write to an extent that is not in the log yet, whose disk lets it wait for so long.
fn cold_write(world: &mut ScenarioWorld, ns: u64) -> engine::RequestId {
    world.cluster[0].storage.trouble.stalled_until = world.now() + ns;
    let id = world.write(1, 768 * KIB, 64 * KIB);
    world.cluster[0].storage.trouble.stalled_until = 0;
    id
}

fn changed(world: &mut ScenarioWorld, change: impl FnOnce(&mut Settings)) {
    let mut settings = world.cluster.ledger.settings(GROUP);
    change(&mut settings);
    assert!(matches!(world.order(0, Command::Set(settings)), CommandResult::Done(_)));
}

#[test]
fn a_write_that_waits_for_the_log_while_the_stream_ends_begins_a_generation() {
    for mode in [Mode::Sync, Mode::Async] {
        let mut world = in_step(options(mode, Policy::Degrade));
        let before = generation(&world);
        let id = cold_write(&mut world, 300 * MILLISECOND);
        match mode {
            Mode::Sync => world.crash(1, false, FOR_EVER),
            _ => changed(&mut world, |settings| settings.mode = Mode::Logging),
        }
        world.pass(100 * MILLISECOND);
        assert_eq!((world.figures(0).state, world.reply(id)), (State::Logging, None));
        assert!(world.answer(id).0);
        assert_ne!(generation(&world), before, "{mode:?}: answered alone in the generation of both");
    }
}

/// The peer was promoted and demoted again while it was dead: both histories went on, and the operator may choose its own.
#[test]
fn who_answered_such_a_write_may_be_chosen_over_a_peer_that_was_promoted() {
    let mut world = in_step(options(Mode::Sync, Policy::Degrade));
    let id = cold_write(&mut world, 300 * MILLISECOND);
    world.crash(1, false, FOR_EVER);
    assert!(world.answer(id).0);
    world.crash(0, false, FOR_EVER);
    world.boot(1);
    world.pass(SECOND);
    assert!(!matches!(world.promote(1, true), CommandResult::Refused(_)));
    assert!(!matches!(world.order(1, Command::Demote), CommandResult::Refused(_)));
    world.boot(0);
    world.pass(5 * SECOND);
    let reply = world.order(0, Command::Sync { full: true });
    assert!(matches!(reply, CommandResult::Done(_)), "{reply:?}");
}

// proves: rule 4
/// It finds its room gone, the group stops to queue, and it is looked at again while its generation is being recorded.
#[test]
fn a_write_is_not_answered_before_its_generation_is_on_record() {
    for seed in (2..32).step_by(2) {
        let mut world = in_step(SimOptions { seed, ..options(Mode::Async, Policy::Degrade) });
        world.crash(1, false, FOR_EVER);
        world.pass(100 * MILLISECOND);
        assert_eq!(world.figures(0).state, State::Queuing);
        world.write_done(0, 0, 64 * KIB);
        let before = generation(&world);
        let id = cold_write(&mut world, 100 * MILLISECOND);
        changed(&mut world, |settings| settings.queue_bytes = 64 * KIB);
        while world.reply(id).is_none() {
            world.run_until(world.now() + 1_000);
        }
        assert_eq!(world.reply(id), Some(true));
        assert_ne!(generation(&world), before, "seed {seed}: answered alone before the generation is on record");
    }
}
