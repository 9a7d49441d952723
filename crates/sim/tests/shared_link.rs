//! Groups that share a link share it by bytes: a group that writes little goes past one that sends much, and nobody takes what we
//! ourselves hold back for a peer that stands still.
// proves: rule 17

use engine::coverage::CoveragePoint;
use engine::limits::{KIB, MIB};
use engine::state::{Mode, Policy, State};
use engine::status::GroupStatus;
use engine::{Command, GroupId, RequestId};
use sim::options::SimOptions;
use sim::scenarios::{MILLISECOND, SECOND, ScenarioWorld, options};

/// Writes little.
const LIGHT: GroupId = GroupId(0);
/// Syncs all its volume, over and over.
const HEAVY: GroupId = GroupId(2);

/// Windows that have room to grow, as the default has.
fn roomy(mode: Mode, bytes_per_s: u64) -> SimOptions {
    SimOptions {
        pairs: vec![[0, 1]; 3],
        volumes: 1,
        volume_bytes: 32 * MIB,
        queue_bytes: 64 * MIB,
        journal_bytes: 64 * MIB,
        window_bytes: 32 * MIB,
        history_bytes: 128 * MIB,
        memory_bytes: 1 << 30,
        activity: engine::ActivityConfig { extent_bytes: MIB, extents: 64 },
        wait_limit_ms: 10_000,
        bytes_per_s,
        ..options(mode, Policy::Degrade)
    }
}

fn status(world: &ScenarioWorld, group: GroupId) -> GroupStatus {
    world.cluster[0].engine().expect("up").status_of(group).expect("there")
}

/// Both are in step, the volume of one is full.
fn both_in_step(options: SimOptions) -> ScenarioWorld {
    let mut world = ScenarioWorld::new(options);
    world.pass(SECOND);
    for n in 0..32 {
        let id = world.write_to(HEAVY, 0, n * MIB, MIB);
        assert!(world.answer(id).0);
    }
    for group in [HEAVY, LIGHT] {
        world.command(0, group, Command::Sync { full: true });
        world.until("synced", |world| world.cluster.in_step(group));
    }
    world
}

/// What a light writer met beside a sync that never ends.
#[derive(Debug, Default)]
struct LightWriterWaits {
    states: Vec<State>,
    most_items: u64,
    longest: u64,
}

/// So many writes of 4 KiB to the light group, `every` ns, while the other one syncs.
fn beside_a_sync(world: &mut ScenarioWorld, writes: u64, every: u64) -> LightWriterWaits {
    let mut met = LightWriterWaits::default();
    let mut open: Vec<(RequestId, u64)> = Vec::new();
    for n in 0..writes {
        if status(world, HEAVY).state != State::Syncing {
            world.command(0, HEAVY, Command::SendAll);
        }
        open.push((world.write_to(LIGHT, 0, n % 512 * 4 * KIB, 4 * KIB), world.now()));
        world.pass(every);
        let now = world.now();
        open.retain(|(id, since)| {
            met.longest = met.longest.max(now - since);
            world.reply(*id).is_none()
        });
        let light = status(world, LIGHT);
        met.most_items = met.most_items.max(light.queue.items);
        if met.states.last() != Some(&light.state) {
            met.states.push(light.state);
        }
    }
    met
}

/// 3 % of the link, and a twelfth of it.
#[test]
fn a_light_writer_is_not_starved_by_another_groups_sync() {
    for (mode, bytes_per_s, every) in [
        (Mode::Sync, 12_500_000, 10 * MILLISECOND),
        (Mode::Async, 12_500_000, 10 * MILLISECOND),
        (Mode::Sync, 1_000_000, 50 * MILLISECOND),
        (Mode::Async, 1_000_000, 50 * MILLISECOND),
    ] {
        let mut world = both_in_step(roomy(mode, bytes_per_s));
        let met = beside_a_sync(&mut world, 20 * SECOND / every, every);
        assert_eq!(met.states, [State::Replicating], "{mode:?}, {bytes_per_s}: {met:?}");
        assert!(met.most_items <= 40 && met.longest <= 100 * MILLISECOND, "{mode:?}, {bytes_per_s}: {met:?}");
    }
}

/// Two groups that sync side by side: by their weights, and as it is set, at once.
#[test]
fn groups_share_a_link_by_their_weights() {
    let mut world = both_in_step(roomy(Mode::Async, 1_000_000));
    for n in 0..32 {
        let id = world.write_to(LIGHT, 0, n * MIB, MIB);
        assert!(world.answer(id).0);
    }
    world.until("in step", |world| world.cluster.in_step(LIGHT));
    let sent = |world: &ScenarioWorld| [LIGHT, HEAVY].map(|group| status(world, group).resynced_bytes);
    [LIGHT, HEAVY].into_iter().for_each(|group| _ = world.command(0, group, Command::SendAll));
    for (weight, least, most) in [(40, 3.6, 4.4), (10, 0.9, 1.1), (1, 0.08, 0.13)] {
        world.set(LIGHT, |settings| settings.link_weight = weight);
        world.pass(SECOND);
        let before = sent(&world);
        world.pass(6 * SECOND);
        let [light, heavy] = [0, 1].map(|n| (sent(&world)[n] - before[n]) as f64);
        assert!((least..most).contains(&(light / heavy)), "weight {weight}: {light} and {heavy}");
        assert!(light + heavy > 0.9 * 6_000_000.0, "the link is full: {light} and {heavy}");
    }
}

// proves: P8
/// The writers of two groups offer the link's rate each: what it carries of each follows the weights, and as they are set, at once. No writer
/// waits for that.
#[test]
fn groups_that_are_written_to_share_a_link_by_their_weights() {
    let mut world = both_in_step(roomy(Mode::Async, 1_000_000));
    let mut longest = 0;
    let mut offer = |world: &mut ScenarioWorld, seconds: u64| {
        let mut open = Vec::new();
        for n in 0..seconds * 16 {
            for group in [LIGHT, HEAVY] {
                open.push((world.write_to(group, 0, n % 512 * 64 * KIB, 64 * KIB), world.now()));
            }
            world.pass(SECOND / 16);
            open.retain(|(id, since)| {
                longest = longest.max(world.now() - since);
                world.reply(*id).is_none()
            });
        }
    };
    // Both have something to send all the time.
    offer(&mut world, 4);
    let left = |world: &ScenarioWorld| [LIGHT, HEAVY].map(|group| status(world, group).queue.left_bytes);
    for (weight, least, most) in [(40, 3.6, 4.4), (10, 0.9, 1.1), (1, 0.08, 0.13)] {
        world.set(LIGHT, |settings| settings.link_weight = weight);
        offer(&mut world, 1);
        let before = left(&world);
        offer(&mut world, 6);
        let [light, heavy] = [0, 1].map(|n| (left(&world)[n] - before[n]) as f64);
        assert!((least..most).contains(&(light / heavy)), "weight {weight}: {light} and {heavy}");
        assert!(light + heavy > 0.9 * 6_000_000.0, "the link is full: {light} and {heavy}");
        let waiting = [LIGHT, HEAVY].map(|group| status(&world, group).queue.items);
        assert!(waiting.iter().all(|items| *items > 0), "{waiting:?}");
    }
    assert!(longest < 200 * MILLISECOND, "{longest} ns");
    for group in [LIGHT, HEAVY] {
        assert_eq!(status(&world, group).state, State::Replicating);
        world.until("in step", |world| world.cluster.in_step(group));
    }
}

/// Eight writers in a row, each waits for its answer before it writes again.
fn answers_in_a_second(world: &mut ScenarioWorld) -> u64 {
    let mut answers = 0;
    let mut open: Vec<(u64, RequestId)> = (0..8).map(|n| (n, world.write_to(LIGHT, 0, n * 4 * KIB, 4 * KIB))).collect();
    let until = world.now() + SECOND;
    while world.now() < until {
        world.pass(MILLISECOND / 4);
        for (n, id) in &mut open {
            if world.reply(*id).is_some() {
                answers += 1;
                *id = world.write_to(LIGHT, 0, *n * 4 * KIB, 4 * KIB);
            }
        }
    }
    answers
}

/// Nothing that is handed to the socket can be overtaken: so little is, while writers of another group wait for the peer.
#[test]
fn writers_in_sync_wait_for_little_of_another_groups_sync() {
    let mut world = both_in_step(roomy(Mode::Sync, 12_500_000));
    let alone = answers_in_a_second(&mut world);
    world.command(0, HEAVY, Command::SendAll);
    world.until("it travels", |world| status(world, HEAVY).sync.is_some_and(|sync| sync.done_bytes > 4 * MIB));
    let beside = answers_in_a_second(&mut world);
    println!("answers in a second: {alone} alone, {beside} beside a sync");
    assert_eq!(status(&world, HEAVY).state, State::Syncing);
    assert!(beside >= 160, "{alone} alone, {beside} beside a sync");
}

/// What waits for the link is no fault of the peer's: its writers go on alone, as the policy says, and nobody leaves a healthy peer
/// alone for longer and longer.
#[test]
fn a_healthy_peer_is_not_said_to_stand_still_when_the_link_is_full() {
    let mut world = both_in_step(SimOptions { wait_limit_ms: 1000, ..roomy(Mode::Sync, 1_000_000) });
    let mut reasons: Vec<String> = Vec::new();
    let mut longest_pause = 0;
    let mut logging_since = None;
    for n in 0..1200u64 {
        if status(&world, HEAVY).state != State::Syncing {
            world.command(0, HEAVY, Command::SendAll);
        }
        if n % 20 == 0 {
            // It is looked at again whether a sync may begin.
            world.set(LIGHT, |_| {});
        }
        // 1.3 times the link.
        world.write_to(LIGHT, 0, n % 512 * 64 * KIB, 64 * KIB);
        world.pass(50 * MILLISECOND);
        let light = status(&world, LIGHT);
        let since = (light.state == State::Logging).then(|| logging_since.unwrap_or(world.now()));
        longest_pause = longest_pause.max(since.map_or(0, |since| world.now() - since));
        logging_since = since;
        if reasons.last() != Some(&light.reason) {
            reasons.push(light.reason);
        }
    }
    assert!(world.coverage(0, CoveragePoint::WaitLimitTripped) > 0, "{reasons:?}");
    assert!(!reasons.iter().any(|reason| reason.contains("stood still")), "{reasons:?}");
    assert_eq!(
        (world.coverage(0, CoveragePoint::StalledAgain), world.coverage(0, CoveragePoint::SyncStalled)),
        (0, 0),
        "{reasons:?}"
    );
    assert!(longest_pause < 6 * SECOND, "{longest_pause} ns: {reasons:?}");
    let ended = world.now();
    world.until("in step", |world| world.cluster.in_step(LIGHT));
    assert!(world.now() - ended < 60 * SECOND, "{} ns", world.now() - ended);
}
