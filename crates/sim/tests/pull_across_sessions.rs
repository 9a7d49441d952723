//! What a primary fetches back after a power loss is asked for anew in each session: what is read for an older one is nobody's.

use engine::limits::KIB;
use engine::marks::Mark;
use engine::state::{Mode, Policy};
use sim::story::{GROUP, MILLISECOND, SECOND, options};
use sim::world::World;

#[test]
fn an_answer_read_for_an_older_session_is_not_given_in_a_newer_one() {
    let mut world = World::in_peace(options(Mode::Async, Policy::Degrade));
    for n in 0..24 {
        let id = world.write((n % 2) as u16, n * 32 * KIB, 16 * KIB);
        assert!(world.answer(id).0);
    }
    // Confirmed there, and not flushed here: that happens every five seconds.
    world.pass(200 * MILLISECOND);
    world.crash(0, true, SECOND);
    world.until("it is back", |world| world.glance(0, GROUP).is_some_and(|glance| glance.running));
    world.nodes[1].trouble.slow_until = world.now + 60 * SECOND;
    for _ in 0..20 {
        world.pass(15 * MILLISECOND);
        world.connect([0, 1]);
    }
    world.until("its export is open", |world| world.nodes[0].serving.contains(&GROUP));
    assert_eq!(world.mark(0, Mark::TailPulled), 1);
    world.settle();
}
