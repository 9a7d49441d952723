//! More scenarios for small changes of the engine to which nobody else objected: what writers, operators and a peer are told.

use std::time::Duration;

use engine::identity::Role;
use engine::state::{Degrade, Mode, Policy, State};
use engine::wire::{FrameKind, GroupHello};
use engine::{Command, CommandResult, Input, Mono, Now, Settings, Wall, limits, limits::KIB};
use sim::hostile::machine::{self, BareMachine, MachineShape};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, SECOND, ScenarioWorld, options};

/// A primary that had waited for its peer for more than a minute said that the peer is connected and sends nothing, though nobody was
/// there, and dropped a question that it had just asked.
#[test]
fn an_export_that_opens_without_a_peer_says_nothing_of_one() {
    let mut world =
        ScenarioWorld::in_peace(SimOptions { start_alone_ms: 90_000, ..options(Mode::Sync, Policy::Degrade) });
    world.write_done(0, 0, 4 * KIB);
    world.cut([false; 2]);
    world.crash(0, true, SECOND);
    world.pass(60 * SECOND);
    assert!(!world.cluster[0].serves(GROUP));
    world.until("it serves alone", |world| world.cluster[0].serves(GROUP));
    assert!(!world.said().iter().any(|(_, words)| words.contains("the peer is connected")), "{:?}", world.said());
}

/// The link went while the group was catching up with its mode `sync`: its window was open, and writers were answered alone.
#[test]
fn a_window_holds_writers_also_when_the_group_was_catching_up() {
    let hold = options(Mode::Async, Policy::Hold(Duration::from_secs(20)));
    let mut world = ScenarioWorld::in_peace(SimOptions { bytes_per_s: 50_000, queue_bytes: 8 << 20, ..hold });
    for n in 0..64 {
        world.write_done((n % 2) as u16, n / 2 * 32 * KIB, 32 * KIB);
    }
    let settings = Settings { mode: Mode::Sync, ..world.cluster.ledger.settings(GROUP) };
    assert!(matches!(world.order(0, Command::Set(settings)), CommandResult::Done(_)));
    let state = |world: &ScenarioWorld| world.glance(0, GROUP).map(|glance| glance.state);
    assert_eq!(state(&world), Some(State::CatchingUp));
    world.crash(1, false, 30 * SECOND);
    world.until("the window opens", |world| state(world) == Some(State::Holding));
    let id = world.write(1, 0, 4 * KIB);
    world.pass(10 * SECOND);
    assert_eq!(world.reply(id), None, "the window still runs");
    assert!(world.answer(id).0);
}

// proves: P6
/// A demotion stood in one of the two slots, and the peer was told of it: had that slot been lost, there would have been two primaries.
#[test]
fn a_peer_hears_of_a_demotion_when_both_slots_say_it() {
    let at = Now { mono: Mono(SECOND), wall: Wall(1_700_000_000 * SECOND) };
    let shape = MachineShape {
        volumes: 1,
        volume_bytes: 1 << 20,
        mode: Mode::Async,
        policy: Policy::Degrade,
        degrade: Degrade::Queue,
        memory_bytes: limits::MEMORY_BYTES_DEFAULT,
        link_timeout_s: 5,
    };
    let mut machine = BareMachine::new(0, Role::Primary, shape);
    machine.start(at);
    while machine.under_way() > 0 {
        machine.complete(at, 0);
    }
    machine.handle(at, Input::Command { group: machine::GROUP, id: engine::CommandId(1), command: Command::Demote });
    let mut reply = Vec::new();
    while machine.under_way() > 0 {
        machine.complete(at, 0);
        machine.link_up(at, 5);
        let hello = machine.sent.iter().find(|(header, _)| header.kind == FrameKind::GroupHello);
        reply.extend(hello.and_then(|(_, bytes)| GroupHello::decode(bytes)).map(|hello| hello.identity.role));
    }
    assert!(reply.len() >= 2, "{reply:?}");
    let last = reply.pop();
    assert!(last == Some(Role::Secondary) && !reply.contains(&Role::Secondary), "{reply:?}");
}
