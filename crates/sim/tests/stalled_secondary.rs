//! The secondary's disk answers nothing any more while its link lives: one write waits `wait_limit`, the group falls to
//! logging, and nothing is tried over and over.

use engine::limits::{KIB, MIB};
use engine::marks::Mark;
use engine::state::{Mode, Policy, State};
use sim::story::{GROUP, MILLISECOND, SECOND, options};
use sim::swarm::Options;
use sim::world::World;

#[test]
fn a_stall_trips_the_wait_limit_once() {
    // Room for all that is written while the next sync stalls too: a full queue is another story.
    let roomy = Options { queue_bytes: 8 * MIB, ..options(Mode::Sync, Policy::Degrade) };
    let mut world = World::in_peace(roomy);
    let connections = world.connections.len();
    world.nodes[1].trouble.stalled_until = world.now + 40 * SECOND;
    let first = world.write(0, 0, 4 * KIB);
    let (done, after) = world.answer(first);
    assert!(done && (900 * MILLISECOND..1200 * MILLISECOND).contains(&after), "{after} ns");
    assert_eq!(world.glance(0, GROUP).map(|g| g.state), Some(State::Logging));
    let mut longest = 0;
    for n in 0..300u64 {
        let id = world.write((n % 2) as u16, n * 2 * KIB, 2 * KIB);
        longest = longest.max(world.answer(id).1);
        world.pass(100 * MILLISECOND);
    }
    assert!(longest <= 1200 * MILLISECOND, "{longest} ns");
    assert_eq!(world.mark(0, Mark::WaitLimitTripped), 1, "in 30 s");
    assert_eq!(world.connections.len(), connections, "a slow peer is not a dead peer");
    world.settle();
}
