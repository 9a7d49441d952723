//! What goes wrong in a seed, and when.

use std::rc::Rc;
use std::time::Duration;

use engine::state::Mode;
use engine::{Command, CommandResult, GroupId, Input, StartAlone, VerifyOrder, VolumeId};

use super::clients::WriteClients;
use super::damage::{damage_records, rots};
use super::operator::{Operator, is_equal};
use super::other_volumes::disk_dies_or_comes;
use crate::nodes::node::{CleanStop, OutsideWrite};
use crate::options::SimOptions;
use crate::options::fault::FaultKind;
use crate::rng::Rng;
use crate::stamps::SECTOR;
use crate::world::{ActorCue, World, WorldEvent, orders, resets};

const SECOND: u64 = 1_000_000_000;
const HOUR: i64 = 3_600_000_000_000;
/// A node's volumes become no larger than by so much.
const EXTRA_BYTES_MAX: u64 = 256 << 10;

/// Bursts over which a seed's writes are spread.
const ROUNDS: u64 = 10;
/// How long a round waits for everybody to be in step.
const PEACE_LIMIT: u64 = 15 * SECOND;

/// Where a seed is in its round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RoundStage {
    /// A burst begins.
    #[default]
    Load,
    /// In its midst something goes wrong.
    Strike,
    /// Everybody may come to rest.
    Peace { until: u64 },
}

/// Strikes a world.
#[derive(Default)]
pub struct FaultInjector {
    stage: RoundStage,
    /// Faults that were tried.
    strikes: usize,
    /// Nothing more goes wrong.
    over: bool,
}

impl FaultInjector {
    pub fn strikes(&self) -> usize {
        self.strikes
    }

    /// Nothing more goes wrong.
    pub fn end(&mut self) {
        self.over = true;
    }

    pub fn is_over(&self) -> bool {
        self.over
    }

    /// The rounds of a seed: a burst of writes, a fault or two in its midst, then perhaps peace until everybody is in
    /// step again.
    pub fn act(&mut self, world: &mut World, operator: &mut Operator, clients: &mut WriteClients) {
        if self.over {
            return;
        }
        let every = world.cluster.options.fault_every_ns;
        let after = if world.cluster.options.skirmish {
            clients.set_burst(clients.burst().max(world.rng.below(30)));
            self.strike_once(world, operator);
            world.rng.below(every) * *world.rng.pick(&[1, 1, 1, 10])
        } else {
            self.goes_on(world, operator, clients, every)
        };
        world.timeline.schedule(after, WorldEvent::Cue(ActorCue::Fault));
    }

    /// Until the next step of the round.
    fn goes_on(&mut self, world: &mut World, operator: &mut Operator, clients: &mut WriteClients, every: u64) -> u64 {
        match self.stage {
            RoundStage::Load => {
                clients.set_burst(world.cluster.options.writes / ROUNDS);
                self.stage = RoundStage::Strike;
                world.rng.between(every / 50, every)
            }
            RoundStage::Strike => {
                self.strike_once(world, operator);
                if world.rng.percent(35) {
                    return world.rng.between(SECOND / 1000, SECOND / 5);
                }
                let peace = if world.rng.percent(65) { PEACE_LIMIT } else { 0 };
                self.stage = RoundStage::Peace { until: world.now() + peace };
                world.rng.between(every / 4, every)
            }
            RoundStage::Peace { until } => {
                if world.now() >= until || world.cluster.groups().all(|group| world.cluster.in_step(group)) {
                    self.stage = RoundStage::Load;
                }
                SECOND / 5
            }
        }
    }

    fn strike_once(&mut self, world: &mut World, operator: &mut Operator) {
        let options = Rc::clone(&world.cluster.options);
        // The first faults are the ones every seed must have.
        let fault = options.faults.get(self.strikes).copied().unwrap_or(*world.rng.pick(&options.faults));
        self.strikes += 1;
        world.log(format_args!("fault: {fault:?}"));
        let felt = strike(world, operator, fault);
        world.tally.faults += u64::from(felt);
    }
}

/// True if it did something there and then. What does it later, a disk's trouble or records that come back, counts
/// when it does.
fn strike(world: &mut World, operator: &mut Operator, fault: FaultKind) -> bool {
    let group = GroupId(world.rng.below(u64::from(world.cluster.options.groups())) as u32);
    let primary = world.cluster.primary(group);
    let secondary = world.cluster.secondary(group);
    match fault {
        FaultKind::KillPrimary
        | FaultKind::KillSecondary
        | FaultKind::PowerPrimary
        | FaultKind::PowerSecondary
        | FaultKind::PowerBoth
        | FaultKind::CleanRestart => take_down(world, fault, primary, secondary),
        FaultKind::Cut
        | FaultKind::CutOneWay
        | FaultKind::Swizzle
        | FaultKind::Flap
        | FaultKind::HalfOpen
        | FaultKind::DuplicateSession => trouble_link(world, fault, world.cluster.pair(group)),
        FaultKind::ClockJump => {
            let node = world.rng.below(world.cluster.count() as u64) as usize;
            world.cluster[node].skews(world.rng.below(2 * HOUR as u64) as i64 - HOUR);
            true
        }
        FaultKind::LocalWriteErrors
        | FaultKind::ApplyErrors
        | FaultKind::RecordError
        | FaultKind::FlushFails
        | FaultKind::SecondaryFull
        | FaultKind::ReadErrors
        | FaultKind::SlowSecondary
        | FaultKind::SlowPrimary => trouble_disks(world, fault, primary, secondary),
        // Longer than a sync may stand still; seldom, as little else happens meanwhile.
        FaultKind::StalledSecondary => {
            let stalls = world.rng.percent(20) && operator.is_idle();
            if stalls {
                world.cluster[secondary].storage.trouble.stalled_until = world.now() + 100 * SECOND;
            }
            stalls
        }
        FaultKind::ModeChange => {
            let mode = *world.rng.pick(&Mode::ALL);
            let before = world.cluster.ledger.settings(group).mode;
            world.set_mode(group, mode);
            mode != before
        }
        FaultKind::Rot | FaultKind::RotAll | FaultKind::Astray | FaultKind::OldCopy => {
            damage_records(world, fault, group)
        }
        FaultKind::RotVolume => rots_and_verifies(world, group, primary),
        FaultKind::SlowThenPower => {
            let node = *world.rng.pick(&[primary, secondary, secondary]);
            loses_power_at_work(world, secondary, node)
        }
        FaultKind::Switchover | FaultKind::Failover | FaultKind::ReverseSync => {
            change_primary(world, operator, group, fault)
        }
        FaultKind::OperatorLogging => types(world, primary, group, Command::Logging),
        FaultKind::FullSync => types(world, primary, group, Command::Sync { full: true }),
        FaultKind::Whim => {
            let node = if world.rng.percent(65) { primary } else { secondary };
            whim(world, group, node)
        }
        FaultKind::WhimOfTwo => {
            let first = whim(world, group, primary);
            whim(world, group, secondary) || first
        }
        _ => trouble_volumes(world, operator, fault, (group, primary)),
    }
}

fn trouble_volumes(
    world: &mut World,
    operator: &mut Operator,
    fault: FaultKind,
    (group, primary): (GroupId, usize),
) -> bool {
    match fault {
        FaultKind::EqualCopies => {
            if world.cluster.options.spread.is_none() {
                operator.awaits_equal(group);
            }
            false
        }
        FaultKind::OtherVolumes => operator.volumes.changes(world, group),
        FaultKind::LargerDevices => enlarge_devices(world, group, primary),
        FaultKind::DeadDisk => {
            let felt = disk_dies_or_comes(world, group);
            if felt && operator.is_idle() && world.rng.percent(25) {
                operator.plans_reverse(world, group);
            }
            felt
        }
        _ => loads_one(world, group, primary),
    }
}

/// The operator enlarges the devices of one node, or of both in either order. A node sees it when its half of the group begins anew, or when the
/// node starts: at once, or whenever that comes. True: some are larger now.
fn enlarge_devices(world: &mut World, group: GroupId, primary: usize) -> bool {
    let secondary = world.cluster.other(group, primary);
    // A shelf has devices of the first size.
    let has_others = [primary, secondary].iter().any(|node| world.cluster[*node].volumes(group).is_some());
    if world.cluster.options.spread.is_some() || has_others {
        return false;
    }
    let orders: [&[usize]; 5] =
        [&[primary], &[secondary], &[primary, secondary], &[secondary, primary], &[secondary, primary]];
    let order = *world.rng.pick(&orders);
    let most = *world.rng.pick(&[1, 16, 128]);
    let more = world.rng.between(1, most) * SECTOR as u64;
    let mut felt = false;
    for node in order.iter().copied() {
        let other = world.rng.between(1, most) * SECTOR as u64;
        let more = if world.rng.percent(75) { more } else { other };
        if world.cluster[node].storage.extra_bytes() + more <= EXTRA_BYTES_MAX {
            resets::enlarges(world, node, more);
            felt = true;
            sees_its_devices(world, node, group);
        }
    }
    felt
}

fn sees_its_devices(world: &mut World, node: usize, group: GroupId) {
    if !world.cluster[node].up() {
        return;
    }
    let (power, down) = (world.rng.percent(50), world.rng.between(SECOND / 10, 3 * SECOND));
    match world.rng.below(6) {
        0 => {}
        1 | 2 => resets::reloads(world, node, group),
        3 | 4 => world.input(node, Input::Stop),
        _ => world.crash(node, power, down),
    }
}

/// Sectors rot, or none, and whoever serves is told to compare.
fn rots_and_verifies(world: &mut World, group: GroupId, primary: usize) -> bool {
    if world.cluster.options.spread.is_some() {
        return false;
    }
    for _ in 0..world.rng.below(4) {
        let node = *world.rng.pick(&world.cluster.pair(group));
        let volume = VolumeId(world.rng.below(u64::from(world.cluster.options.volumes)) as u16);
        let sector = world.rng.below(world.cluster.options.volume_bytes / SECTOR as u64);
        rots(world, node, group, volume, sector);
    }
    let order = verify_order(world);
    let begins = types(world, primary, group, Command::Verify(order));
    if order.by_timer && world.rng.percent(50) {
        // Somebody types another one over what had begun by itself.
        let typed = VerifyOrder { repair: !order.repair, by_timer: false, ..order };
        types(world, primary, group, Command::Verify(typed));
    }
    begins
}

/// Begins a bulk load, or ends one.
fn loads_one(world: &mut World, group: GroupId, primary: usize) -> bool {
    let aside = world.glance(primary, group).map(|glance| glance.aside).unwrap_or_default();
    let command = match aside.iter().next() {
        Some(volume) if world.rng.percent(70) => Command::Rejoin { volume },
        _ => Command::SetAside { volume: any_volume(world, group) },
    };
    types(world, primary, group, command)
}

/// By its position at the primary.
fn any_volume(world: &mut World, group: GroupId) -> VolumeId {
    let volumes = world.cluster.numbers(world.cluster.primary(group), group).len();
    VolumeId(world.rng.below(volumes as u64) as u16)
}

fn verify_order(world: &mut World) -> VerifyOrder {
    VerifyOrder {
        rate_bytes_per_s: *world.rng.pick(&[None, None, Some(1 << 20)]),
        sample_percent: *world.rng.pick(&[100, 100, 100, 30]),
        repair: world.rng.percent(50),
        entropy: world.rng.draw(),
        by_timer: world.rng.percent(25),
    }
}

/// The disks of `slow` are slow, and while much is on its way to them the power of `node` goes.
fn loses_power_at_work(world: &mut World, slow: usize, node: usize) -> bool {
    world.cluster[slow].storage.trouble.slow_until = world.now() + SECOND;
    let after = world.rng.between(SECOND / 100, SECOND / 2);
    world.timeline.schedule(after, WorldEvent::PowerLoss { node });
    world.cluster[node].up()
}

/// True unless the node is down or refuses at once.
fn types(world: &mut World, node: usize, group: GroupId, command: Command) -> bool {
    let id = world.command(node, group, command);
    world.cluster[node].up() && !matches!(world.cluster.ledger.result(id), Some(CommandResult::Refused(_)))
}

fn take_down(world: &mut World, fault: FaultKind, primary: usize, secondary: usize) -> bool {
    let crashes: u64 = world.tally.crashes.iter().sum();
    let down = world.rng.between(SECOND / 10, 3 * SECOND);
    match fault {
        FaultKind::PowerSecondary if world.rng.percent(50) => return loses_power_at_work(world, secondary, secondary),
        FaultKind::KillPrimary => world.crash(primary, false, down),
        FaultKind::KillSecondary => world.crash(secondary, false, down),
        FaultKind::PowerPrimary => world.crash(primary, true, down),
        FaultKind::PowerSecondary => world.crash(secondary, true, down),
        FaultKind::PowerBoth => {
            world.crash(primary, true, down);
            let other = world.rng.between(SECOND / 10, 3 * SECOND);
            world.crash(secondary, true, other);
        }
        _ => {
            let node = *world.rng.pick(&[primary, secondary]);
            let up = world.cluster[node].up();
            // A wide volume would need a full sync after it; and groups may have other volumes by then.
            let is_first = |group| world.cluster[node].volumes(group).is_none();
            let fits = world.cluster.options.spread.is_none() && world.cluster.groups().all(is_first);
            if up && fits && node == secondary && world.rng.percent(25) {
                stops_and_is_written(world, node, primary);
            }
            world.input(node, Input::Stop);
            return up;
        }
    }
    world.tally.crashes.iter().sum::<u64>() > crashes
}

/// While it is stopped somebody writes to a volume of it, of a group in which the other one serves.
fn stops_and_is_written(world: &mut World, node: usize, primary: usize) {
    let served = |group: &GroupId| world.cluster[primary].serves(*group);
    let Some(group) = world.cluster.groups_of(node).into_iter().find(served) else { return };
    let volume = VolumeId(world.rng.below(u64::from(world.cluster.options.volumes)) as u16);
    let sectors = world.rng.between(1, 64);
    let first = world.rng.below(world.cluster.options.volume_bytes / SECTOR as u64 - sectors);
    let down_ns = world.rng.between(SECOND / 10, 3 * SECOND);
    let outside = vec![OutsideWrite { group, volume, first, sectors }];
    world.cluster[node].plans_stop(CleanStop { down_ns, outside, takes_up_volumes: false });
}

fn trouble_link(world: &mut World, fault: FaultKind, pair: [usize; 2]) -> bool {
    let passed = world.network.path(pair).passes != [false; 2];
    let open = world.network.open_between(pair).is_some();
    match fault {
        FaultKind::Cut => cut_for_a_while(world, pair, [false; 2]),
        FaultKind::CutOneWay => {
            let way = world.rng.percent(50);
            cut_for_a_while(world, pair, [way, !way]);
        }
        FaultKind::Swizzle => swizzle(world),
        FaultKind::Flap => world.flap(pair),
        FaultKind::HalfOpen => world.half_open(pair),
        _ => {
            if world.reachable(pair) {
                world.connect(pair);
            }
            return open && world.reachable(pair);
        }
    }
    if matches!(fault, FaultKind::Flap | FaultKind::HalfOpen) { open } else { passed }
}

fn trouble_disks(world: &mut World, fault: FaultKind, primary: usize, secondary: usize) -> bool {
    let now = world.now();
    let either = *world.rng.pick(&[primary, secondary]);
    match fault {
        FaultKind::LocalWriteErrors => world.cluster[primary].storage.trouble.write_errors_until = now + SECOND / 2,
        FaultKind::ApplyErrors => world.cluster[secondary].storage.trouble.apply_errors_until = now + SECOND / 2,
        FaultKind::RecordError => world.cluster[either].storage.trouble.fail_next_record = true,
        FaultKind::FlushFails => world.cluster[either].storage.trouble.fail_next_flush = true,
        FaultKind::SecondaryFull => world.cluster[secondary].storage.trouble.full_until = now + 2 * SECOND,
        FaultKind::ReadErrors => world.cluster[primary].storage.trouble.read_errors_until = now + SECOND,
        FaultKind::SlowPrimary => world.cluster[primary].storage.trouble.slow_until = now + 2 * SECOND,
        _ => world.cluster[secondary].storage.trouble.slow_until = now + 2 * SECOND,
    }
    let struck = match fault {
        FaultKind::LocalWriteErrors | FaultKind::ReadErrors | FaultKind::SlowPrimary => primary,
        FaultKind::RecordError | FaultKind::FlushFails => either,
        _ => secondary,
    };
    world.cluster[struck].storage.trouble.unfelt += 1;
    false
}

/// True: the operator had nothing else to do, and does.
fn change_primary(world: &mut World, operator: &mut Operator, group: GroupId, fault: FaultKind) -> bool {
    if !operator.is_idle() {
        return false;
    }
    let primary = world.cluster.primary(group);
    match fault {
        FaultKind::Switchover => {
            let in_one_word = world.rng.percent(60);
            operator.plans_switch(group, in_one_word);
        }
        FaultKind::ReverseSync => {
            if world.rng.percent(30) {
                // A volume of the primary fails first.
                world.cluster[primary].storage.trouble.write_errors_until = world.now() + SECOND / 2;
            }
            operator.plans_reverse(world, group);
        }
        _ => {
            let power = world.rng.percent(50);
            let down = world.rng.between(4 * SECOND, 7 * SECOND);
            world.crash(primary, power, down);
            if power && world.rng.percent(50) {
                world.crash(world.cluster.other(group, primary), true, SECOND / 10);
            }
            operator.plans_failover(group);
        }
    }
    true
}

/// Restoring is an event of the path; a fault already under way is simply overtaken.
fn cut_for_a_while(world: &mut World, pair: [usize; 2], passes: [bool; 2]) {
    world.set_path(pair, passes);
    let longest = if world.cluster.options.is_database() { 60 * SECOND } else { 12 * SECOND };
    let back = world.rng.between(SECOND / 10, longest);
    world.timeline.schedule(back, WorldEvent::Cable { pair, passes: [true; 2] });
}

/// Every way of every cable is cut, one by one, and they heal in another order.
fn swizzle(world: &mut World) {
    let pairs: Vec<[usize; 2]> = world.network.pairs();
    for pair in pairs {
        let first = world.rng.percent(50);
        let mut at = 0;
        for passes in [[first, !first], [false; 2], [!first, first], [true; 2]] {
            at += world.rng.between(SECOND / 50, 3 * SECOND);
            world.timeline.schedule(at, WorldEvent::Cable { pair, passes });
        }
    }
}

/// As if the other half of an order to keep this node had come to nothing.
fn takes_back(world: &World, group: GroupId, node: usize) -> Command {
    let theirs = world.glance(world.cluster.other(group, node), group);
    Command::TakeBack { over: theirs.map_or(0, |theirs| theirs.identity.generation.tag) }
}

/// Half of an order to resolve a fork, perhaps where there is none; a promotion that is to lose nothing; or that both copies are equal, which
/// is true.
fn decides(world: &mut World, group: GroupId, node: usize) -> Option<Command> {
    // Nobody hears what is typed at a node that is down, and a promotion that is not answered may still take place.
    world.glance(node, group)?;
    let theirs = world.glance(world.cluster.other(group, node), group)?.identity.generation.tag;
    let discard = world.rng.percent(20);
    let entropy = world.rng.draw();
    match world.rng.below(4) {
        3 => is_equal(world, group).then_some(Command::AssumeEqual),
        // It is answered by a full sync, which would take days.
        0 if world.cluster.options.spread.is_some() => None,
        0 => Some(Command::Keep { over: theirs, discard, by_policy: false }),
        1 => Some(Command::Yield { to: theirs, by_policy: false }),
        _ => Some(Command::PromoteInWindow { entropy }),
    }
}

fn sets_policy(world: &mut World, group: GroupId, entropy: u64) -> bool {
    let (policy, degrade) = (SimOptions::policy(&mut world.rng), SimOptions::degrade(&mut world.rng));
    let fallback = SimOptions::fallback(&mut Rng::new(entropy));
    world.set(group, |settings| (settings.policy, settings.degrade, settings.fallback) = (policy, degrade, fallback));
    true
}

/// Points get names: of one group, or of all that the node has; some are locked, or dropped.
fn marks(world: &mut World, group: GroupId, node: usize) -> bool {
    let name = format!("m{}", world.rng.below(12));
    if let Some(mark) = world.cluster[node].status_of(group).and_then(|shown| shown.marks.first().cloned())
        && world.rng.percent(40)
    {
        let (name, override_lock) = (mark.name, world.rng.percent(50));
        let command = match world.rng.below(3) {
            0 => Command::LockMark { name, locked: !mark.locked },
            _ => Command::DropMark { name, override_lock },
        };
        return types(world, node, group, command);
    }
    let groups = if world.rng.percent(50) { vec![group] } else { world.cluster.groups_of(node) };
    let ids = orders::mark(world, node, &groups, &name);
    let is_refused = |id| matches!(world.cluster.ledger.result(id), Some(CommandResult::Refused(_)));
    world.cluster[node].up() && !ids.into_iter().any(is_refused)
}

/// An operator types whatever comes to mind.
fn whim(world: &mut World, group: GroupId, node: usize) -> bool {
    let entropy = world.rng.draw();
    let command = match world.rng.below(36) {
        29..=35 => return marks(world, group, node),
        24 => takes_back(world, group, node),
        25..=28 => return decides(world, group, node).is_some_and(|command| types(world, node, group, command)),
        0 => Command::Logging,
        1 if world.rng.percent(30) => Command::SendAll,
        1 => Command::Sync { full: true },
        2 if world.rng.percent(40) => Command::BringUpToDate,
        2 => Command::Sync { full: false },
        3 => Command::Demote,
        4 => Command::Promote { force: true, entropy },
        5 => Command::Promote { force: false, entropy },
        6 => match world.cluster.rollback_point(node, group) {
            Some(name) => Command::DropRollbackPoint { name, discard: world.rng.percent(30) },
            None => return false,
        },
        7 => return sets_policy(world, group, entropy),
        8 => {
            let waits = Duration::from_millis(*world.rng.pick(&[0, 500, 5000, 20_000]));
            let start_alone = if waits.is_zero() { StartAlone::Serve } else { StartAlone::Wait(waits) };
            world.set(group, |settings| settings.start_alone = start_alone);
            return true;
        }
        9 => {
            let autosync = world.rng.percent(50);
            world.set(group, |settings| settings.autosync = autosync);
            return true;
        }
        10 => {
            // What waits may be more than the new one: what a node may hold goes by the largest there was.
            let bytes = world.cluster.options.queue_bytes / *world.rng.pick(&[4, 2, 1]);
            let (when_full, pace) = (SimOptions::when_full(&mut world.rng), SimOptions::pace(&mut world.rng));
            world.set(group, |settings| {
                (settings.queue_bytes, settings.when_full, settings.pace) = (bytes, when_full, pace);
            });
            return true;
        }
        11 => {
            let limit = Duration::from_millis(*world.rng.pick(&[100, 1000, world.cluster.options.wait_limit_ms]));
            world.set(group, |settings| settings.wait_limit = limit);
            return true;
        }
        12 => Command::Reset { entropy },
        13 => Command::Verify(verify_order(world)),
        14 => Command::VerifyStop,
        21 | 22 => Command::SetAside { volume: any_volume(world, group) },
        23 => Command::Rejoin { volume: any_volume(world, group) },
        15..=17 => {
            let mode = *world.rng.pick(&Mode::ALL);
            world.set_mode(group, mode);
            return true;
        }
        // Mostly to the other node.
        _ => {
            let pair = world.cluster.pair(group);
            let to = if world.rng.percent(80) { world.cluster.secondary(group) } else { *world.rng.pick(&pair) };
            let id = Operator::switches_over(world, node, group, to);
            return world.cluster[node].up()
                && !matches!(world.cluster.ledger.result(id), Some(CommandResult::Refused(_)));
        }
    };
    if matches!(command, Command::Verify(_)) && world.cluster.options.spread.is_some() {
        // It would take days.
        return false;
    }
    types(world, node, group, command)
}
