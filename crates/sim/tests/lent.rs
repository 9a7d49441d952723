//! A node that is promoted for the clients of its peer, in a reverse sync: beside a secondary only.
// proves: P6, rule 13

use engine::coverage::CoveragePoint;
use engine::identity::Role;
use engine::limits::KIB;
use engine::state::State;
use engine::{Command, CommandId, CommandResult, RefusalCode};
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld};

use crate::forks;
use crate::rollback::{mid_sync, slow};

const HOME: usize = 0;
const SERVER: usize = 1;

/// A sync was cut off, and the node whose clients are to be served elsewhere is demoted. Both have met again. The images before the sync.
fn demoted_in_mid_sync() -> (ScenarioWorld, Vec<Vec<u8>>) {
    let (mut world, before) = mid_sync(slow());
    world.cut([false; 2]);
    world.until("the link is lost", |world| world.figures(HOME).state == State::Logging);
    let demoted = world.order(HOME, Command::Demote);
    assert!(matches!(demoted, CommandResult::Warning(_)), "{demoted:?}");
    world.restore_path();
    world.until("the server hears of it", |world| hears(world, Role::Secondary));
    (world, before)
}

fn hears(world: &ScenarioWorld, role: Role) -> bool {
    world.cluster[SERVER].status_of(GROUP).is_some_and(|status| status.peer.role == Some(role))
}

fn goes_back(world: &ScenarioWorld) -> bool {
    world.cluster[SERVER].explain(GROUP).is_some_and(|inside| inside.contains("RollingBack"))
}

/// The server is told to serve, and its disk takes its time to go back.
fn begins(world: &mut ScenarioWorld) -> CommandId {
    world.cluster[SERVER].storage.trouble.flush_ns = 20 * SECOND;
    let entropy = world.rng.draw();
    let id = world.command(SERVER, GROUP, Command::PromoteForPeer { entropy });
    world.until("it goes back", goes_back);
    id
}

fn refused(world: &ScenarioWorld, id: CommandId) -> RefusalCode {
    match world.cluster.ledger.result(id) {
        Some(CommandResult::Refused(refusal)) => refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

fn role(world: &ScenarioWorld, node: usize) -> Role {
    world.glance(node, GROUP).expect("up").identity.role
}

#[test]
fn a_node_is_promoted_for_the_clients_of_a_secondary() {
    let (mut world, before) = demoted_in_mid_sync();
    let id = begins(&mut world);
    world.until("it is answered", |world| world.cluster.ledger.result(id).is_some());
    let result = world.cluster.ledger.result(id);
    assert!(matches!(result, Some(CommandResult::Warning(_))), "{result:?}");
    assert_eq!((role(&world, HOME), role(&world, SERVER)), (Role::Secondary, Role::Primary));
    assert_eq!(world.images_of(SERVER), before);
}

/// The way back to the rollback point took longer than the peer's operator waited, who forced the peer: both were primary, with exports open.
#[test]
fn a_peer_that_was_promoted_meanwhile_serves_alone() {
    for loses_power in [false, true] {
        let (mut world, before) = demoted_in_mid_sync();
        let id = begins(&mut world);
        let forced = world.promote(HOME, true);
        assert!(!matches!(forced, CommandResult::Refused(_)), "{forced:?}");
        world.until("it hears of that", |world| hears(world, Role::Primary));
        assert!(goes_back(&world), "it hears in time");
        world.until("it is answered", |world| world.cluster.ledger.result(id).is_some());
        assert_eq!(refused(&world, id), RefusalCode::PeerIsPrimary);
        assert_eq!((role(&world, HOME), role(&world, SERVER)), (Role::Primary, Role::Secondary));
        assert_eq!(world.coverage(SERVER, CoveragePoint::PromotionForPeerEnded), 1);
        world.cluster[SERVER].storage.trouble.flush_ns = 0;
        if loses_power {
            world.crash(SERVER, true, MILLISECOND);
            world.until("it is back", |world| world.glance(SERVER, GROUP).is_some_and(|glance| glance.running));
        }
        assert_eq!(world.images_of(SERVER), before);
        // It follows once that is ordered, as any copy that a demotion left in the middle of a sync.
        world.until("they meet", |world| world.figures(HOME).peer.role == Some(Role::Secondary));
        assert!(matches!(world.order(HOME, Command::SendAll), CommandResult::Done(_)));
        world.write_done(0, 0, 4096);
        world.drain();
    }
}

/// The word that the peer is promoted comes too late: the promotion for its clients is being recorded by then, or is recorded. Both are primary, as
/// after any forced failover. Both say so, nothing of either is overwritten before somebody has chosen, and what the other one has alone is
/// saved then.
#[test]
fn a_word_that_comes_while_the_promotion_is_recorded_leaves_a_fork_that_is_told() {
    for moment in 0..24 {
        let mut world = forks::in_peace();
        world.order(HOME, Command::Logging);
        world.write_done(0, 64 * KIB, 8 * KIB);
        assert!(matches!(world.order(HOME, Command::Demote), CommandResult::Warning(_)));
        world.until("the server hears of it", |world| hears(world, Role::Secondary));
        let entropy = world.rng.draw();
        world.cluster[SERVER].storage.trouble.flush_ns = 100 * MILLISECOND;
        let id = world.command(SERVER, GROUP, Command::PromoteForPeer { entropy });
        world.pass(moment * 10 * MILLISECOND);
        let forced = world.promote(HOME, true);
        assert!(!matches!(forced, CommandResult::Refused(_)), "{forced:?}");
        world.until("it is answered", |world| world.cluster.ledger.result(id).is_some());
        world.cluster[SERVER].storage.trouble.flush_ns = 0;
        assert_eq!((role(&world, HOME), role(&world, SERVER)), (Role::Primary, Role::Primary), "{moment}");
        world.until("both say so", |world| {
            [HOME, SERVER].iter().all(|node| world.figures(*node).reason.contains("both nodes are primary"))
        });
        let [home, server] = [HOME, SERVER].map(|node| world.images_of(node));
        world.pass(10 * SECOND);
        assert_eq!([HOME, SERVER].map(|node| world.images_of(node)), [home, server]);
        forks::write_at(&mut world, HOME, 0, 0, 4096);
        // Each was promoted since they parted, so bits do not tell what differs: the refusal says what does.
        let kept = forks::keep(&mut world, HOME, false);
        let Some(CommandResult::Refused(why)) = world.cluster.ledger.result(kept).cloned() else {
            panic!("it is kept by bits")
        };
        assert!(why.code == RefusalCode::ForkUnbounded && why.text.contains("sync GROUP --full"), "{}", why.text);
        assert!(!matches!(world.order(SERVER, Command::Demote), CommandResult::Refused(_)));
        assert!(matches!(world.order(HOME, Command::Sync { full: true }), CommandResult::Done(_)));
        world.until("they are in step", |world| {
            let is_drained = |node: usize| world.glance(node, GROUP).is_some_and(|glance| glance.drained);
            world.figures(HOME).state == State::Replicating && is_drained(HOME) && is_drained(SERVER)
        });
        assert_eq!(world.images_of(HOME), world.images_of(SERVER));
        assert!(world.figures(SERVER).saved_delta.is_some_and(|saved| saved.bytes > 0 && saved.lost_bytes == 0));
    }
}

/// Whom it would be promoted beside nobody knows: the link was lost on the way.
#[test]
fn a_peer_that_is_not_heard_any_more_may_be_the_primary() {
    let (mut world, _) = demoted_in_mid_sync();
    let id = begins(&mut world);
    world.cut([false; 2]);
    world.until("it knows that", |world| !hears(world, Role::Secondary));
    assert!(goes_back(&world), "it knows in time");
    world.until("it is answered", |world| world.cluster.ledger.result(id).is_some());
    assert_eq!(refused(&world, id), RefusalCode::PeerSilent);
    let why = world.refusal(SERVER, Command::PromoteForPeer { entropy: 7 });
    assert_eq!((why.code, role(&world, SERVER)), (RefusalCode::PeerSilent, Role::Secondary));
}
