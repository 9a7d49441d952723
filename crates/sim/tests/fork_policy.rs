//! Forks that `after_forced_failover` resolves: of two primaries only one was promoted since they parted, and with force. In every other case
//! an operator is asked, and nothing moves.
// proves: P3, P6

use engine::coverage::CoveragePoint;
use engine::limits::KIB;
use engine::state::{AfterForcedFailover, Degrade};
use engine::{Command, CommandResult, RefusalCode, Settings};
use sim::actors::follow_policy;
use sim::scenarios::{FOR_EVER, GROUP, MILLISECOND, SECOND, ScenarioWorld};

use crate::forks::{
    NEW, OLD, answer_of, code, durable, forked_from, in_peace, is_set_back, keep, meet, resolve, tag, write_at, yields,
};
use crate::rollback::{mid_sync, slow};

/// In peace, and both nodes say that a promoted node is kept.
fn with_policy() -> ScenarioWorld {
    let mut world = in_peace();
    world.set(GROUP, |settings| settings.after_forced_failover = AfterForcedFailover::KeepPromoted);
    world.pass(SECOND);
    world
}

/// Both daemons look at the group for so long, every 100 ms.
fn daemons_look(world: &mut ScenarioWorld, seconds: u64) {
    for _ in 0..10 * seconds {
        follow_policy(world, GROUP, true);
        world.pass(100 * MILLISECOND);
    }
}

fn both_serve(world: &ScenarioWorld) -> bool {
    (0..2).all(|node| world.cluster[node].serves(GROUP))
}

fn kept_by_policy(world: &mut ScenarioWorld) -> u64 {
    (0..2).map(|node| world.coverage(node, CoveragePoint::ForkKeptByPolicy)).sum()
}

/// The old primary only went on, in its queue or alone: the promoted one is kept, and what the old one wrote is saved first.
#[test]
fn a_node_that_alone_was_promoted_is_kept_by_policy() {
    for degrade in Degrade::ALL {
        let mut world = with_policy();
        world.set(GROUP, |settings| settings.degrade = degrade);
        let mut world = forked_from(world);
        daemons_look(&mut world, 5);
        world.drain();
        assert!(!world.cluster[OLD].serves(GROUP) && world.cluster[NEW].serves(GROUP), "{degrade:?}");
        let counts = [CoveragePoint::ForkYieldedByPolicy, CoveragePoint::DeltaSaved].map(|at| world.coverage(OLD, at));
        assert_eq!((counts, kept_by_policy(&mut world)), ([1, 1], 1), "{degrade:?}");
        // In peace it says nothing; and the next fork is another one, whose promoted side is the other node.
        daemons_look(&mut world, 5);
        world.cut([false; 2]);
        world.write_done(0, 0, 8 * KIB);
        world.pass(10 * SECOND);
        assert!(matches!(world.promote(OLD, true), CommandResult::Warning(_)));
        world.write_done(1, 64 * KIB, 8 * KIB);
        meet(&mut world);
        daemons_look(&mut world, 5);
        world.drain();
        assert!(world.cluster[OLD].serves(GROUP) && !world.cluster[NEW].serves(GROUP), "{degrade:?}");
    }
}

/// The old primary was loading a volume that the promoted copy lacks: nobody's forced failover chose the volume's older content, and what was
/// loaded since has no other copy. Whether the volume rejoins before the nodes meet again is all one.
#[test]
fn a_fork_whose_promoted_side_lacks_a_volume_is_asked_about() {
    for rejoins in [false, true] {
        let mut world = with_policy();
        let volume = engine::VolumeId(1);
        assert!(matches!(world.order(OLD, Command::SetAside { volume }), CommandResult::Done(_)));
        world.write_done(1, 0, 256 * KIB);
        world.write_done(0, 0, 8 * KIB);
        world.pass(SECOND);
        world.cut([false; 2]);
        world.pass(10 * SECOND);
        assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
        if rejoins {
            assert!(!matches!(world.order(OLD, Command::Logging), CommandResult::Refused(_)));
            assert!(matches!(world.order(OLD, Command::Rejoin { volume }), CommandResult::Done(_)));
            assert!(!matches!(world.order(OLD, Command::Sync { full: false }), CommandResult::Refused(_)));
        }
        meet(&mut world);
        daemons_look(&mut world, 10);
        assert!(both_serve(&world), "rejoins: {rejoins}");
        let loaded = (world.coverage(OLD, CoveragePoint::DeltaSaved), kept_by_policy(&mut world));
        assert_eq!(loaded, (0, 0), "rejoins: {rejoins}");
    }
}

/// A sync was under way, and the promotion went back to the image before it: what the old primary wrote since then, perhaps for hours, is more
/// than a lost link's worth.
#[test]
fn a_promotion_that_went_back_to_the_image_before_a_sync_is_asked_about() {
    let (mut world, before) = mid_sync(slow());
    world.set(GROUP, |settings| settings.after_forced_failover = AfterForcedFailover::KeepPromoted);
    world.pass(50 * MILLISECOND);
    world.cut([false; 2]);
    world.pass(10 * SECOND);
    assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
    assert_eq!(world.images_of(NEW), before);
    meet(&mut world);
    daemons_look(&mut world, 10);
    assert!(both_serve(&world) && kept_by_policy(&mut world) == 0);
}

/// It came back from a power loss, or was demoted before the two met: nobody knows that its records are not older ones, and whoever
/// demoted it can say what is to be kept.
#[test]
fn an_old_primary_that_restarted_or_was_demoted_is_asked_about() {
    for is_demoted in [false, true] {
        let mut world = with_policy();
        world.cut([false; 2]);
        world.write_done(0, 0, 8 * KIB);
        world.pass(10 * SECOND);
        assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
        world.write_done(0, 4 * KIB, 16 * KIB);
        if is_demoted {
            assert!(!matches!(world.order(OLD, Command::Demote), CommandResult::Refused(_)));
        } else {
            world.crash(OLD, true, SECOND);
            world.pass(10 * SECOND);
        }
        world.restore_path();
        world.pass(2 * SECOND);
        daemons_look(&mut world, 10);
        assert_eq!([0, 1].map(|node| world.cluster[node].serves(GROUP)), [!is_demoted, true]);
        assert_eq!((world.coverage(OLD, CoveragePoint::DeltaSaved), kept_by_policy(&mut world)), (0, 0));
    }
}

/// A promoted node that was started again since may have been set back as well.
#[test]
fn a_promoted_node_that_restarted_is_asked_about() {
    let mut world = with_policy();
    world.cut([false; 2]);
    world.write_done(0, 0, 8 * KIB);
    world.pass(10 * SECOND);
    assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
    world.write_done(0, 4 * KIB, 16 * KIB);
    world.crash(NEW, true, SECOND);
    world.until("it is back", |world| world.cluster[NEW].is_ready(GROUP));
    meet(&mut world);
    daemons_look(&mut world, 5);
    assert!(world.cluster[OLD].serves(GROUP) && kept_by_policy(&mut world) == 0);
}

/// The old primary comes back as an image that was taken while it ran: what it wrote since is dirty nowhere, and the peer has it.
#[test]
fn an_old_primary_that_was_set_back_to_a_copy_of_the_same_run_is_asked_about() {
    let mut world = with_policy();
    world.pass(20 * SECOND);
    let copy = durable(&world, OLD);
    world.write_done(0, 0, 64 * KIB);
    world.write_done(1, 512 * KIB, 64 * KIB);
    world.drain();
    world.until("every bit is clear", |world| world.figures(OLD).volumes.iter().all(|v| v.dirty_bytes == 0));
    world.pass(20 * SECOND);
    world.cut([false; 2]);
    is_set_back(&mut world, OLD, copy);
    assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
    world.write_done(0, 128 * KIB, 8 * KIB);
    world.until("it is back", |world| world.cluster[OLD].up());
    world.restore_path();
    world.pass(5 * SECOND);
    let theirs = world.images_of(OLD);
    daemons_look(&mut world, 20);
    assert_eq!(kept_by_policy(&mut world), 0);
    assert!(world.images_of(OLD) == theirs, "nothing was sent to it");
}

/// The old primary was put to work again while the promoted node was away: it served last, and nobody had to promote it.
#[test]
fn an_old_primary_that_served_in_a_later_run_is_asked_about() {
    let mut world = with_policy();
    world.crash(OLD, true, 8 * SECOND);
    world.pass(SECOND);
    assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
    world.crash(NEW, true, 300 * SECOND);
    world.until("the old one serves alone", |world| world.cluster[OLD].serves(GROUP));
    write_at(&mut world, OLD, 1, 64 * KIB, 8 * KIB);
    world.pass(10 * SECOND);
    let ours = world.images_of(OLD);
    world.until("both are there", |world| world.cluster[NEW].is_ready(GROUP));
    meet(&mut world);
    daemons_look(&mut world, 5);
    assert!(world.cluster[OLD].serves(GROUP) && kept_by_policy(&mut world) == 0);
    assert_eq!(world.images_of(OLD), ours);
}

/// An operator's order waits for the word of an operator at the other node, whether it discards or not.
#[test]
fn the_policy_yields_to_no_order_that_was_typed() {
    for discard in [true, false] {
        let mut world = forked_from(with_policy());
        let kept = keep(&mut world, NEW, discard);
        daemons_look(&mut world, 5);
        assert!(both_serve(&world), "discard: {discard}");
        let counts = [CoveragePoint::ForkYieldedByPolicy, CoveragePoint::DeltaSaved].map(|at| world.coverage(OLD, at));
        assert_eq!((counts, kept_by_policy(&mut world)), ([0, 0], 0));
        yields(&mut world, OLD);
        let answer = answer_of(&mut world, kept);
        assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
        world.drain();
    }
}

/// Who holds the group in logging, or has switched autosync off, says himself when something is to be sent.
#[test]
fn the_policy_gives_way_to_logging_and_to_autosync_off() {
    for (node, is_held) in [(NEW, true), (OLD, true), (NEW, false)] {
        let mut world = forked_from(with_policy());
        let settings = world.cluster.ledger.settings(GROUP);
        let said = match is_held {
            true => Command::Logging,
            false => Command::Set(Settings { autosync: false, ..settings }),
        };
        assert!(!matches!(world.order(node, said), CommandResult::Refused(_)));
        daemons_look(&mut world, 5);
        assert!(both_serve(&world), "node {node}, held: {is_held}");
        assert_eq!(kept_by_policy(&mut world), 0);
        assert_eq!(world.recorded(node).held_in_logging, is_held);
        resolve(&mut world, NEW);
    }
}

/// An operator said of each node that it counts: only he knows which does.
#[test]
fn a_fork_in_which_both_nodes_were_promoted_asks_whatever_the_policy_says() {
    let mut world = with_policy();
    world.cut([false; 2]);
    world.write_done(0, 0, 8 * KIB);
    world.pass(10 * SECOND);
    assert!(!matches!(world.order(OLD, Command::Demote), CommandResult::Refused(_)));
    assert!(matches!(world.promote(NEW, true), CommandResult::Warning(_)));
    world.write_done(0, 4 * KIB, 16 * KIB);
    assert!(!matches!(world.promote(OLD, true), CommandResult::Refused(_)));
    write_at(&mut world, OLD, 1, 64 * KIB, 8 * KIB);
    meet(&mut world);
    daemons_look(&mut world, 5);
    assert!(both_serve(&world));
    assert_eq!(kept_by_policy(&mut world), 0);
    // He says so, and nothing else stood in the way.
    let kept = keep(&mut world, NEW, false);
    yields(&mut world, OLD);
    let answer = answer_of(&mut world, kept);
    assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
    world.drain();
}

/// With the policy on one node only, or taken back before the other one has yielded, a fork asks.
#[test]
fn a_policy_counts_where_both_nodes_have_it() {
    for node in [OLD, NEW] {
        let mut world = with_policy();
        let settings = world.cluster.ledger.settings(GROUP);
        let asks = Command::Set(Settings { after_forced_failover: AfterForcedFailover::Ask, ..settings });
        world.order(node, asks.clone());
        let mut world = forked_from(world);
        daemons_look(&mut world, 5);
        assert!(both_serve(&world) && kept_by_policy(&mut world) == 0);
        // Then it has it, and before the other one yields it has not.
        world.order(node, Command::Set(settings));
        world.pass(SECOND);
        let over = tag(&world, OLD);
        let id = world.command(NEW, GROUP, Command::Keep { over, discard: false, by_policy: true });
        world.pass(100 * MILLISECOND);
        world.order(node, asks);
        world.pass(SECOND);
        assert_eq!(code(answer_of(&mut world, id)), RefusalCode::ForkChanged);
        daemons_look(&mut world, 5);
        assert!(both_serve(&world));
        resolve(&mut world, OLD);
    }
}

/// What cannot be saved is not overwritten, and nothing is ever discarded by the policy.
#[test]
fn a_policy_overwrites_nothing_that_could_not_be_saved() {
    let mut world = forked_from(with_policy());
    let theirs = world.images_of(OLD);
    let over = tag(&world, OLD);
    let discards = Command::Keep { over, discard: true, by_policy: true };
    assert_eq!(world.refusal(NEW, discards).code, RefusalCode::ForkChanged);
    world.cluster[OLD].storage.trouble.delta_full_until = FOR_EVER;
    daemons_look(&mut world, 20);
    assert_eq!(world.images_of(OLD), theirs);
    assert_eq!(world.coverage(NEW, CoveragePoint::ForkKept), 0);
    world.cluster[OLD].storage.trouble.delta_full_until = 0;
    daemons_look(&mut world, 5);
    assert_eq!(world.images_of(OLD), theirs, "an operator is asked");
    let answer = world.order(NEW, Command::Keep { over, discard: false, by_policy: false });
    assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
    world.drain();
    assert_eq!(world.coverage(OLD, CoveragePoint::DeltaSaved), 1);
}

/// An operator keeps the other one, in the moment in which the policy has not begun, or while its order waits.
#[test]
fn an_operator_is_before_the_policy() {
    let mut world = forked_from(with_policy());
    resolve(&mut world, OLD);
    daemons_look(&mut world, 5);
    world.drain();
    assert!(world.cluster[OLD].serves(GROUP) && kept_by_policy(&mut world) == 0);
}
