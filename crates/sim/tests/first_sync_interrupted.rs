//! The first sync has begun and the secondary loses power: no consistent image exists, so no promotion, forced or not;
//! and the sync goes on by itself when the node is back.

use engine::Command;
use engine::CommandResult;
use engine::state::{Mode, Policy, State};
use sim::scenarios::{FOR_EVER, GROUP, SECOND, ScenarioWorld, options};

// proves: P2
#[test]
fn no_promotion_before_the_first_sync_has_ended() {
    let mut slow = options(Mode::Async, Policy::Degrade);
    slow.bytes_per_s = 400_000;
    let mut world = ScenarioWorld::new(slow);
    world.pass(SECOND);
    for force in [false, true] {
        assert!(matches!(world.promote(1, force), CommandResult::Refused(_)), "before any sync");
    }
    assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
    world.until("data arrives", |world| world.data_sent_bytes()[0] > 300_000);
    assert_eq!(world.glance(0, GROUP).map(|g| g.state), Some(State::Syncing));
    for force in [false, true] {
        assert!(matches!(world.promote(1, force), CommandResult::Refused(_)), "while it runs");
    }
    world.cut([false; 2]);
    world.crash(1, true, SECOND);
    world.crash(0, true, FOR_EVER);
    world.until("the secondary is back", |world| world.glance(1, GROUP).is_some_and(|_| world.cluster[1].up()));
    world.pass(SECOND);
    for force in [false, true] {
        let CommandResult::Refused(sentence) = world.promote(1, force) else { panic!("promoted a mixture") };
        assert!(sentence.text.contains("--force or not"), "{sentence}");
    }
    world.restore_path();
    world.boot(0);
    world.drain();
}
