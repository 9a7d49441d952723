//! Groups get other volumes: between a clean stop and a start, on one node first and then on the other.
// proves: P3, P7

use std::time::Duration;

use engine::coverage::CoveragePoint;
use engine::identity::Role;
use engine::limits::{KIB, MIB};
use engine::other_volumes::Obstacle;
use engine::state::{Degrade, Mode, Policy, State};
use engine::{Command, CommandResult, GroupId, NodeId, RefusalCode, VolumeId};
use sim::options::SimOptions;
use sim::scenarios::{GROUP, MILLISECOND, SECOND, ScenarioWorld, options, state};
use sim::simulation::run_life;
use sim::world::other_volumes::{self, Refusal};

const OTHER: GroupId = GroupId(1);
const DATA: VolumeId = VolumeId(0);
const LOG: VolumeId = VolumeId(1);
/// Before, between and behind the names of the first two volumes.
const NAMES: [u32; 3] = [500, 1500, 2500];
const ORDERS: [[usize; 2]; 2] = [[0, 1], [1, 0]];

fn peace_of(options: SimOptions) -> ScenarioWorld {
    let roomy = SimOptions { queue_bytes: 8 * MIB, wait_limit_ms: 30_000, degrade: Degrade::Queue, ..options };
    let mut world = ScenarioWorld::in_peace(roomy);
    writes(&mut world, 0);
    writes(&mut world, 1);
    world.drain();
    world
}

fn peace(mode: Mode) -> ScenarioWorld {
    peace_of(options(mode, Policy::Degrade))
}

/// Of the volume with that number.
fn writes(world: &mut ScenarioWorld, volume: u16) {
    for n in 0..6 {
        world.write_done(volume, n * 96 * KIB, 16 * KIB);
    }
}

fn takes_up(world: &mut ScenarioWorld, node: usize) {
    world.stop(node);
    other_volumes::takes_up(world, node, usize::MAX).expect("nothing speaks against it");
    world.boot(node);
    world.until("it runs", |world| world.glance(node, GROUP).is_some_and(|glance| glance.running));
}

/// Why it does not; it goes on as it was.
fn refuses(world: &mut ScenarioWorld, node: usize) -> (GroupId, Refusal) {
    world.stop(node);
    let refused = other_volumes::takes_up(world, node, usize::MAX).expect_err("something speaks against it");
    world.boot(node);
    refused
}

fn replicates(world: &mut ScenarioWorld) {
    world.until("it replicates", |world| state(world) == Some(State::Replicating) && world.serves(GROUP));
}

/// What stands on the device of a volume.
fn content(world: &ScenarioWorld, node: usize, group: GroupId, number: VolumeId) -> Vec<u8> {
    world.cluster.volume_disk(node, group, number).expect("the node has it").view().to_vec()
}

fn is_aside(world: &ScenarioWorld, number: VolumeId) -> [bool; 2] {
    [0, 1].map(|node| world.cluster.aside(node, GROUP).contains(number))
}

/// The operator says that the primary's content of it counts.
fn word(world: &mut ScenarioWorld, number: VolumeId) {
    let volume = world.cluster.position(0, GROUP, number).expect("the primary has it");
    let answer = world.order(0, Command::Rejoin { volume });
    assert!(matches!(answer, CommandResult::Done(_)), "{answer:?}");
    world.drain();
    assert_eq!(is_aside(world, number), [false; 2]);
    assert_eq!(content(world, 0, GROUP, number), content(world, 1, GROUP, number));
}

/// Writes to each volume go in their order, and a clean handover has nobody object.
fn goes_on(world: &mut ScenarioWorld) {
    for number in world.cluster.numbers(0, GROUP) {
        writes(world, number.0);
    }
    world.drain();
    hands_over(world, GROUP, 0, 1);
    hands_over(world, GROUP, 1, 0);
    world.drain();
}

#[test]
fn a_volume_that_comes_waits_for_the_word_on_both_nodes() {
    for (name, order) in NAMES.into_iter().flat_map(|name| ORDERS.map(|order| (name, order))) {
        for mode in [Mode::Sync, Mode::Nearsync, Mode::Async] {
            let mut world = peace(mode);
            let came = world.cluster.file.adds(GROUP, name);
            for node in order {
                takes_up(&mut world, node);
            }
            replicates(&mut world);
            assert_eq!(is_aside(&world, came), [true; 2], "{name} {order:?} {mode:?}");
            let before = content(&world, 1, GROUP, came);
            // Its export is open; what is written is dirty, and the others go on in their order.
            writes(&mut world, came.0);
            writes(&mut world, 0);
            world.pass(10 * SECOND);
            assert!(content(&world, 1, GROUP, came) == before, "nobody said that it may be overwritten");
            assert_ne!(content(&world, 0, GROUP, came), before);
            assert!(world.figures(0).resynced_bytes < 512 * KIB, "the others kept their history");
            word(&mut world, came);
            goes_on(&mut world);
        }
    }
}

/// Also if the primary dies: the secondary's device is none that anybody filled.
#[test]
fn a_volume_that_came_is_not_promoted_before_a_sync_has_filled_it() {
    for power in [false, true] {
        let mut world = peace(Mode::Async);
        let came = world.cluster.file.adds(GROUP, NAMES[1]);
        takes_up(&mut world, 1);
        takes_up(&mut world, 0);
        replicates(&mut world);
        assert!(world.coverage(0, CoveragePoint::PeerUnfilled) > 0 || world.cluster.aside(0, GROUP).contains(came));
        world.crash(0, false, 30 * SECOND);
        world.crash(1, power, SECOND);
        world.until("it is up", |world| world.glance(1, GROUP).is_some_and(|glance| glance.running));
        for force in [false, true] {
            let promote = Command::Promote { force, entropy: 7 };
            let code = world.refusal(1, promote).code;
            assert!(code == RefusalCode::VolumeUnfilled || !force, "{code:?}");
        }
        world.until("the primary is back", |world| world.cluster[0].up() && world.serves(GROUP));
        replicates(&mut world);
        word(&mut world, came);
        goes_on(&mut world);
    }
}

#[test]
fn a_volume_leaves_and_the_others_keep_their_history() {
    for (left, order) in [DATA, LOG].into_iter().flat_map(|left| ORDERS.map(|order| (left, order))) {
        for mode in [Mode::Sync, Mode::Nearsync, Mode::Async] {
            let mut world = peace(mode);
            world.cluster.file.removes(GROUP, left);
            let stays = VolumeId(1 - left.0);
            takes_up(&mut world, order[0]);
            if order[0] == 1 {
                // While the nodes do not meet, the order of what stays is kept, or its bits are.
                writes(&mut world, stays.0);
            }
            takes_up(&mut world, order[1]);
            replicates(&mut world);
            world.drain();
            assert_eq!(world.cluster.numbers(0, GROUP), [stays]);
            assert!(world.figures(0).resynced_bytes < 512 * KIB);
            goes_on(&mut world);
        }
    }
}

#[test]
fn a_new_name_on_both_nodes_waits_for_the_word() {
    for (name, order) in NAMES.into_iter().flat_map(|name| ORDERS.map(|order| (name, order))) {
        let mut world = peace(Mode::Async);
        world.cluster.file.renames(GROUP, LOG, name);
        for node in order {
            takes_up(&mut world, node);
        }
        replicates(&mut world);
        assert_eq!(is_aside(&world, LOG), [true; 2]);
        let before = content(&world, 1, GROUP, LOG);
        world.pass(10 * SECOND);
        assert!(content(&world, 1, GROUP, LOG) == before);
        word(&mut world, LOG);
        goes_on(&mut world);
    }
}

/// A primary that wrote alone is demoted, and a volume of it gets another name on both nodes. Whichever of them is promoted, by force alone, what
/// the other one has of the volume stands there until somebody orders otherwise.
#[test]
fn a_demoted_primary_whose_volume_has_a_new_name_loses_nothing_unasked() {
    for (order, chosen) in ORDERS.into_iter().flat_map(|order| [(order, 0), (order, 1)]) {
        let mut world = peace(Mode::Async);
        world.cut([false; 2]);
        for n in 0..4 {
            world.write_done(LOG.0, n * 64 * KIB, 32 * KIB);
        }
        let demoted = world.order(0, Command::Demote);
        assert!(matches!(demoted, CommandResult::Warning(_)), "{demoted:?}");
        world.cluster.file.renames(GROUP, LOG, NAMES[1]);
        for node in order {
            takes_up(&mut world, node);
        }
        world.restore_path();
        world.pass(5 * SECOND);
        let of_both = |world: &ScenarioWorld| [0, 1].map(|node| content(world, node, GROUP, LOG));
        let before = of_both(&world);
        assert_ne!(before[0], before[1]);
        let refusal = world.refusal(chosen, Command::Promote { force: false, entropy: 7 });
        let promoted = world.promote(chosen, true);
        assert!(matches!(promoted, CommandResult::Warning(_)), "{refusal}, {promoted:?}");
        world.pass(30 * SECOND);
        assert!(of_both(&world) == before, "{order:?} {chosen}: nobody said whose content counts");
        if state(&world) == Some(State::Logging) {
            // Only this is left where the histories parted, and it is the word for every volume.
            let reason = world.figures(chosen).reason;
            assert!(reason.contains("sync GROUP --full"), "{order:?} {chosen}: {reason}");
            world.order(chosen, Command::Sync { full: true });
            world.drain();
            assert!(world.coverage(1 - chosen, CoveragePoint::SyncLeftDelta) > 0, "what was there stands in a delta");
        }
        let volume = world.cluster.position(chosen, GROUP, LOG).expect("the primary has it");
        let rejoins = world.order(chosen, Command::Rejoin { volume });
        assert!(matches!(rejoins, CommandResult::Done(_) | CommandResult::Unchanged(_)), "{rejoins:?}");
        world.drain();
        assert_eq!(of_both(&world)[1 - chosen], before[chosen]);
        assert_eq!(is_aside(&world, LOG), [false; 2]);
    }
}

/// The operator takes each of two devices for the other one, on the secondary: nothing of that is believed there.
#[test]
fn devices_that_were_mistaken_on_the_secondary_are_made_equal_by_the_word() {
    for order in ORDERS {
        let mut world = peace(Mode::Async);
        world.cluster.file.renames(GROUP, DATA, 700);
        world.cluster.file.renames(GROUP, LOG, 800);
        world.cluster.file.swaps_devices(GROUP, 1, [DATA, LOG]);
        for node in order {
            takes_up(&mut world, node);
        }
        world.until("they meet", |world| world.figures(0).reason.contains("no order is left"));
        for number in [DATA, LOG] {
            let volume = world.cluster.position(0, GROUP, number).expect("the primary has it");
            assert!(matches!(world.order(0, Command::Rejoin { volume }), CommandResult::Done(_)));
        }
        world.drain();
        goes_on(&mut world);
    }
}

/// A node of two groups, both with the same primary, or each with another one.
fn two_groups(same_primary: bool) -> ScenarioWorld {
    let mut world = ScenarioWorld::new(SimOptions {
        pairs: vec![[0, 1]; 2],
        queue_bytes: 8 * MIB,
        degrade: Degrade::Queue,
        ..options(Mode::Async, Policy::Degrade)
    });
    world.pass(SECOND);
    for group in [GROUP, OTHER] {
        let primary = world.cluster.primary(group);
        world.command(primary, group, Command::Sync { full: true });
        world.until("it is synced", |world| world.cluster.in_step(group));
        for volume in 0..2 {
            let id = world.write_to(group, volume, 64 * KIB, 16 * KIB);
            assert!(world.answer(id).0);
        }
        world.until("it is in step", |world| world.cluster.in_step(group));
    }
    if same_primary {
        hands_over(&mut world, OTHER, 1, 0);
    }
    world
}

fn hands_over(world: &mut ScenarioWorld, group: GroupId, from: usize, to: usize) {
    let (limit, to_node) = (Duration::from_secs(5), NodeId(to as u16));
    world.command(from, group, Command::Switchover { to: to_node, limit, closes_export: false, only_asks: false });
    world.until("the other one serves", |world| world.cluster[to].takes_requests(group));
    world.until("it is in step", |world| world.cluster.in_step(group));
}

fn moves(world: &mut ScenarioWorld) -> VolumeId {
    let volume = world.cluster.file.removes(GROUP, LOG);
    world.cluster.file.takes_in(OTHER, volume.name + 7, volume.devices)
}

#[test]
fn a_device_moves_to_another_group_with_what_counts_of_it() {
    for order in ORDERS {
        let mut world = two_groups(true);
        let counts = content(&world, 0, GROUP, LOG);
        let came = moves(&mut world);
        for node in order {
            takes_up(&mut world, node);
        }
        world.until("both replicate", |world| {
            [GROUP, OTHER].iter().all(|group| world.glance(0, *group).is_some_and(|it| it.state == State::Replicating))
        });
        assert!(world.cluster.aside(0, OTHER).contains(came) && world.cluster.aside(1, OTHER).contains(came));
        assert!(content(&world, 0, OTHER, came) == counts);
        let volume = world.cluster.position(0, OTHER, came).expect("it is there");
        let id = world.command(0, OTHER, Command::Rejoin { volume });
        world
            .until("it rejoins", |world| world.cluster.in_step(OTHER) && !world.cluster.aside(1, OTHER).contains(came));
        assert_eq!(world.cluster.ledger.answer(id), Some(true));
        assert!(content(&world, 1, OTHER, came) == counts);
    }
}

/// Both nodes refuse, and go on as they were; behind a switchover both take it up.
#[test]
fn a_device_does_not_move_to_a_group_in_which_the_node_has_the_other_role() {
    let mut world = two_groups(false);
    moves(&mut world);
    for node in [0, 1] {
        assert_eq!(refuses(&mut world, node), (OTHER, Refusal::OtherRole), "node {node}");
    }
    world.until("both are back", |world| [GROUP, OTHER].iter().all(|group| world.cluster.in_step(*group)));
    hands_over(&mut world, OTHER, 1, 0);
    for node in [0, 1] {
        takes_up(&mut world, node);
    }
}

/// It left while this node was primary, and comes back when it is secondary: what it holds counts no more.
#[test]
fn a_volume_that_comes_back_in_another_role_is_refused() {
    let mut world = peace(Mode::Async);
    let volume = world.cluster.file.removes(GROUP, LOG);
    for node in [0, 1] {
        takes_up(&mut world, node);
    }
    replicates(&mut world);
    world.drain();
    hands_over(&mut world, GROUP, 0, 1);
    world.drain();
    world.cluster.file.takes_in(GROUP, volume.name, volume.devices);
    for node in [0, 1] {
        assert_eq!(refuses(&mut world, node), (GROUP, Refusal::OtherRole), "node {node}");
    }
    world.until("it is in step", |world| world.in_step());
}

#[test]
fn what_is_under_way_is_refused_with_what_to_wait_for() {
    let mut world = peace_of(SimOptions { bytes_per_s: 400_000, ..options(Mode::Async, Policy::Degrade) });
    assert!(matches!(world.order(0, Command::Logging), CommandResult::Done(_)));
    writes(&mut world, 0);
    writes(&mut world, 1);
    world.command(0, GROUP, Command::Sync { full: false });
    world.until("a part is overwritten", |world| world.recorded(1).rollback_point.id != 0);
    world.cluster.file.adds(GROUP, NAMES[0]);
    assert_eq!(refuses(&mut world, 1), (GROUP, Refusal::Obstacle(Obstacle::SyncUnderWay)));
    world.until("it goes on as it was", |world| world.in_step());
    world.drain();
    takes_up(&mut world, 1);
    takes_up(&mut world, 0);
    replicates(&mut world);
}

/// In whatever order its records have taken their places: the next opening goes on from there.
#[test]
fn a_crash_at_any_point_of_the_step_finds_the_old_set_or_the_new_one() {
    for (most, node) in (0..5).flat_map(|most| [0, 1].map(|node| (most, node))) {
        let mut world = peace(Mode::Sync);
        let came = world.cluster.file.adds(GROUP, NAMES[1]);
        world.cluster.file.removes(GROUP, DATA);
        world.stop(node);
        other_volumes::takes_up(&mut world, node, most).expect("the step is taken");
        // Another start is cut short in the midst of the same.
        other_volumes::finishes(&mut world, node, most / 2);
        world.boot(node);
        world.until("it runs", |world| world.glance(node, GROUP).is_some_and(|glance| glance.running));
        world.crash(node, true, SECOND);
        world.until("it runs", |world| world.glance(node, GROUP).is_some_and(|glance| glance.running));
        assert_eq!(world.cluster.numbers(node, GROUP), [came, LOG]);
        if world.figures(node).role == Role::Secondary {
            takes_up(&mut world, 1 - node);
            replicates(&mut world);
            word(&mut world, came);
            goes_on(&mut world);
        }
    }
}

// proves: P1
/// The secondary kept writes of it that the primary has not flushed, and keeps none of them any more: whoever asks for them is told. In `sync`
/// the primary flushes before it answers, and lacks nothing.
#[test]
fn a_primary_that_loses_its_power_after_a_volume_left_is_told_that_nobody_knows() {
    for mode in [Mode::Sync, Mode::Nearsync, Mode::Async] {
        let mut world = peace(mode);
        world.cluster[0].storage.trouble.flush_ns = 100 * SECOND;
        writes(&mut world, 1);
        world.pass(200 * MILLISECOND);
        // Out of the file, and in again: the primary never takes that up.
        let volume = world.cluster.file.removes(GROUP, LOG);
        takes_up(&mut world, 1);
        world.cluster.file.takes_in(GROUP, volume.name, volume.devices);
        takes_up(&mut world, 1);
        assert!(world.recorded(1).given_up > engine::Seq::NONE, "{mode:?}");
        world.cluster[0].storage.trouble.flush_ns = 0;
        world.crash(0, true, SECOND);
        world.until("both are up", |world| {
            (0..2).all(|node| world.glance(node, GROUP).is_some_and(|glance| glance.running))
        });
        world.pass(5 * SECOND);
        assert_eq!(world.serves(GROUP), mode == Mode::Sync, "{mode:?}: {}", world.figures(0).reason);
        if !world.serves(GROUP) {
            let answer = world.order(0, Command::Sync { full: false });
            assert!(matches!(answer, CommandResult::Done(_) | CommandResult::Warning(_)), "{answer:?}");
        }
        world.until("it serves", |world| world.serves(GROUP));
        replicates(&mut world);
        word(&mut world, LOG);
        goes_on(&mut world);
    }
}

// proves: P1, P2
/// What the secondary keeps of a volume that stays is that volume's, though its position changes as another one leaves and comes again: the primary
/// that loses its power gets it back in its place.
#[test]
fn what_is_kept_for_a_primary_is_of_the_volume_that_it_was_written_to() {
    for mode in [Mode::Nearsync, Mode::Async] {
        let mut world = peace(mode);
        // Of the one that leaves the primary has flushed everything.
        world.pass(20 * SECOND);
        world.cluster[0].storage.trouble.flush_ns = 100 * SECOND;
        writes(&mut world, 1);
        world.pass(200 * MILLISECOND);
        let data = content(&world, 0, GROUP, DATA);
        let volume = world.cluster.file.removes(GROUP, DATA);
        takes_up(&mut world, 1);
        world.cluster.file.takes_in(GROUP, volume.name, volume.devices);
        takes_up(&mut world, 1);
        assert_eq!(world.recorded(1).given_up, engine::Seq::NONE, "{mode:?}: nothing of it was kept");
        world.cluster[0].storage.trouble.flush_ns = 0;
        world.crash(0, true, SECOND);
        world.until("it serves", |world| world.serves(GROUP));
        replicates(&mut world);
        assert!(content(&world, 0, GROUP, DATA) == data, "{mode:?}: nobody has written to it");
        word(&mut world, DATA);
        goes_on(&mut world);
    }
}

// proves: P1, P2, P3, P6
/// Volumes come, leave, move, and get other names and wrong devices, and disks die, among writes, cuts, crashes, promotions and switchovers.
#[test]
fn whatever_volumes_come_and_leave_meanwhile_the_promises_hold() {
    // `A..B`: more of them, or one.
    let range = std::env::var("FARSHORE_LIVES").unwrap_or_else(|_| "0..24".to_owned());
    let (from, to) = range.split_once("..").expect("a range");
    for seed in from.parse::<u64>().expect("a number")..to.parse::<u64>().expect("a number") {
        let (verdict, _) = run_life(seed, false);
        assert!(verdict.is_ok(), "life {seed}: {verdict:?}");
    }
}
