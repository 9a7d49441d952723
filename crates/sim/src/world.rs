//! Nodes, their disks and the paths between them, in virtual time. One seed, one run.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use engine::identity::{Role, Row};
use engine::marks::Marks;
use engine::state::State;
use engine::*;

use crate::damage::OldCopy;
use crate::faults::Stage;
use crate::judge::{Caches, Judge};
use crate::net::{Net, Parcel, Path};
use crate::node::SimNode;
use crate::operator::Operator;
use crate::oracle::{Failure, Oracle};
use crate::outside::Stop;
use crate::payload::Payload;
use crate::rng::Rng;
use crate::storage::{Job, ReadKind, bytes_of};
use crate::swarm::Options;
use crate::trip::Trips;
use crate::watch::Watch;

/// A completion or an arrival, some time from now.
pub enum Event {
    DiskDone {
        node: usize,
        boot: u64,
        token: Token,
        job: Job,
    },
    Transmitted {
        connection: u64,
        end: usize,
    },
    Arrive {
        connection: u64,
        end: usize,
        parcel: Parcel,
    },
    ConnectionUp {
        connection: u64,
        end: usize,
    },
    ConnectionDown {
        connection: u64,
        end: usize,
        reason: &'static str,
    },
    Dial,
    Wake {
        node: usize,
        boot: u64,
    },
    Restart {
        node: usize,
        boot: u64,
    },
    Client,
    Fault,
    Operate,
    PowerLoss {
        node: usize,
    },
    /// A node's turn ends.
    TurnEnds {
        node: usize,
        boot: u64,
    },
    /// A cable changes: what each way passes from now on.
    Cable {
        pair: [usize; 2],
        passes: [bool; 2],
    },
    /// Records of a node come back as they were.
    Restore(OldCopy),
    /// A secondary's records are to be copied, once it follows.
    Copy(GroupId),
    /// A sync may be at half its way.
    MidSync {
        group: GroupId,
    },
}

/// Counts of one run, for the record.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub writes: u64,
    pub overlaps: u64,
    pub faults: u64,
    /// By node.
    pub crashes: Vec<u64>,
    pub prefix_checks: u64,
    pub coverage_checks: u64,
    pub virtual_ns: u64,
    /// Worlds that ended before they were healed: a full sync of their wide volumes would take hours.
    pub unjudged: u64,
    pub marks: Marks,
    /// Edges of the state table that a primary took, by the words of their ends.
    pub edges: BTreeSet<(&'static str, &'static str)>,
    /// Rows of the identity table that a primary came to.
    pub rows: BTreeSet<Row>,
}

/// The longest write of a client, with its bookkeeping.
const LARGEST_REQUEST_BYTES: u64 = 256 << 10;

pub struct World {
    pub options: Rc<Options>,
    pub rng: Rng,
    pub now: u64,
    order: u64,
    /// Boxed: a map's nodes move what stands in them.
    events: BTreeMap<(u64, u64), Box<Event>>,
    pub nodes: Vec<SimNode>,
    pub net: Net,
    pub judge: Judge,
    pub watch: Watch,
    pub operator: Operator,
    pub trips: Trips,
    /// Faults are over: everything must heal.
    pub healing: bool,
    /// What comes next would take hours: nothing more is asked of this world.
    pub over: bool,
    pub stage: Stage,
    /// Faults that were tried.
    pub strikes: usize,
    /// Writes that clients still owe in this round; then a trickle goes on.
    pub burst: u64,
    pub next_request: u64,
    /// Requests of each group's database, where the clients are one.
    pub turns: BTreeMap<GroupId, u64>,
    /// How each request was answered.
    pub replies: BTreeMap<RequestId, bool>,
    /// What nodes said to people, in stories.
    pub said: Vec<(usize, String)>,
    /// Payload of data frames that each node sent.
    pub data_sent_bytes: Vec<u64>,
    pub tally: Tally,
    pub verbose: bool,
    pub verdict: Result<(), Failure>,
}

impl World {
    pub fn new(options: Options, verbose: bool) -> World {
        let mut rng = Rng::new(options.seed ^ 0xdead_beef);
        let count = options.nodes();
        let groups: Vec<_> = (0..options.groups())
            .map(|g| (GroupId(g), vec![options.image_bytes(); usize::from(options.volumes)]))
            .collect();
        let path = Path {
            passes: [true; 2],
            delay_ns: options.delay_ns,
            jitter_ns: options.jitter_ns,
            bytes_per_s: options.bytes_per_s,
        };
        let mut world = World {
            nodes: (0..count).map(|id| SimNode::new(id, &options, &mut rng)).collect(),
            net: Net::new(&options.pairs, path),
            judge: Judge::new(&groups, options.modes[0], options.policy),
            watch: Watch::default(),
            operator: Operator::new(&options),
            trips: Trips { counted: vec![[0; 2]; count], ..Trips::default() },
            options: Rc::new(options),
            rng,
            now: 1,
            order: 0,
            events: BTreeMap::new(),
            healing: false,
            over: false,
            stage: Stage::Load,
            strikes: 0,
            burst: 0,
            next_request: 1,
            turns: BTreeMap::new(),
            replies: BTreeMap::new(),
            said: Vec::new(),
            data_sent_bytes: vec![0; count],
            tally: Tally { crashes: vec![0; count], ..Tally::default() },
            verbose,
            verdict: Ok(()),
        };
        if world.options.spread.is_some() {
            world.begin_mirrored();
        }
        for node in 0..count {
            world.boot(node);
        }
        world.schedule(1_000_000, Event::Dial);
        world.schedule(2_000_000, Event::Operate);
        world
    }

    pub fn schedule(&mut self, after: u64, event: Event) {
        self.order += 1;
        self.events.insert((self.now + after, self.order), Box::new(event));
    }

    pub fn log(&self, line: std::fmt::Arguments) {
        if self.verbose {
            println!("{:>12.6} {line}", self.now as f64 / 1e9);
        }
    }

    pub fn fail(&mut self, failure: Failure) {
        if self.verdict.is_ok() {
            self.log(format_args!("FAILED: {failure:?}"));
            self.verdict = Err(failure);
        }
    }

    /// Runs until `until` or a verdict.
    pub fn run_until(&mut self, until: u64) {
        while self.verdict.is_ok() && !self.over {
            let Some(next) = self.events.first_entry().filter(|next| next.key().0 <= until) else { break };
            let ((at, _), event) = next.remove_entry();
            self.now = at;
            self.happen(*event);
        }
        self.now = self.now.max(until);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::DiskDone { node, boot, token, job } => self.disk_done(node, boot, token, job),
            Event::Transmitted { connection, end } => self.transmitted(connection, end),
            Event::Arrive { connection, end, parcel } => self.arrive(connection, end, parcel),
            Event::ConnectionUp { connection, end } => self.connection_up(connection, end),
            Event::ConnectionDown { connection, end, reason } => self.connection_down(connection, end, reason),
            Event::Dial => self.dial(),
            Event::Wake { node, boot } => {
                if self.nodes[node].boot == boot {
                    self.nodes[node].wake_at = None;
                    self.input(node, Input::Tick);
                }
            }
            Event::TurnEnds { node, boot } => {
                if self.nodes[node].boot == boot {
                    self.drain(node);
                }
            }
            Event::Restart { node, boot } => {
                if self.nodes[node].boot == boot && !self.nodes[node].up() {
                    self.boot(node);
                }
            }
            Event::Client => self.client_step(),
            Event::Fault => self.fault_step(),
            Event::Operate => self.operate(),
            Event::PowerLoss { node } => {
                let down = self.rng.between(100_000_000, 3_000_000_000);
                self.crash(node, true, down);
            }
            Event::Cable { pair, passes } => self.set_path(pair, passes),
            Event::Restore(copy) => self.restores_records(copy),
            Event::Copy(group) => self.copies_records(group),
            Event::MidSync { group } => self.mid_sync(group),
        }
    }

    // ---- nodes -------------------------------------------------------------------------------------------------------

    pub fn group_config(&self, node: usize, group: GroupId) -> GroupConfig {
        let o = &self.options;
        // A node whose state directory was emptied must not begin a history of its own.
        let starts_primary = o.first_primary(group.0) == node && !self.nodes[node].wiped.contains(&group);
        GroupConfig {
            id: group,
            tag: 0x5151 + u64::from(group.0),
            peer: NodeId(self.other(group, node) as u16),
            starts_as: if starts_primary { Role::Primary } else { Role::Secondary },
            meets_peer_first: true,
            volumes: (0..o.volumes)
                .map(|volume| VolumeConfig {
                    size_bytes: o.volume_bytes + self.nodes[node].extra_bytes,
                    block_bytes: o.block_bytes,
                    changed_outside: self.nodes[node].changed.contains(&(group, VolumeId(volume))),
                })
                .collect(),
            settings: self.operator.settings(group),
            journal_bytes: o.journal_bytes,
            window_bytes: o.window_bytes,
            activity: o.activity,
            history_bytes: o.history_bytes,
        }
    }

    pub fn boot(&mut self, node: usize) {
        self.takes_up_devices(node);
        let groups = self.groups_of(node).into_iter().map(|g| self.group_config(node, g)).collect();
        let config = NodeConfig {
            node: NodeId(node as u16),
            groups,
            link_timeout: limits::LINK_TIMEOUT_DEFAULT,
            memory_bytes: self.options.memory_bytes,
            syncs_at_once: self.options.syncs_at_once,
        };
        let mut engine = Box::new(Node::new(config));
        engine.trace(true);
        let entropy = self.rng.draw();
        let sim = &mut self.nodes[node];
        sim.engine = Some(engine);
        sim.boot += 1;
        sim.stopping = false;
        sim.booted_at = self.now;
        sim.serving.clear();
        sim.ready.clear();
        sim.failed.clear();
        self.log(format_args!("node {node} boots"));
        let boot = u128::from(self.nodes[node].machine_boot);
        self.input(node, Input::Start { entropy, boot });
    }

    /// The process ends at once. `power`: the machine with it, unless its peer was restored from an old copy and has not met
    /// it since: what it then asks for is a known limit (docs/reliability.md).
    pub fn crash(&mut self, node: usize, power: bool, down_ns: u64) {
        if !self.nodes[node].up() {
            return;
        }
        let power =
            power && self.groups_of(node).iter().all(|g| !self.watch.spoiled.contains(&(*g, self.other(*g, node))));
        self.log(format_args!("node {node} {}", if power { "loses power" } else { "is killed" }));
        self.tally.crashes[node] += 1;
        for group in self.groups_of(node) {
            self.waits_in_doubt(node, group);
        }
        let sim = &mut self.nodes[node];
        if let Some(engine) = sim.engine.take() {
            self.tally.marks.add(engine.marks());
        }
        sim.boot += 1;
        sim.wake_at = None;
        sim.stop = None;
        sim.serving.clear();
        sim.ready.clear();
        sim.machine_boot += u64::from(power);
        for disk in sim.disks.values_mut() {
            if power {
                disk.lose_power(&mut self.rng);
            } else {
                disk.kill(&mut self.rng);
            }
        }
        let boot = sim.boot;
        self.judge.node_died(node);
        self.operator.node_died(node);
        self.watch.node_died(node);
        self.drop_connections(node, power);
        self.schedule(down_ns, Event::Restart { node, boot });
    }

    fn clocks(&self, node: usize) -> Now {
        let sim = &self.nodes[node];
        let wall = (1_700_000_000_000_000_000i64 + self.now as i64 + sim.wall_skew_ns) as u64;
        Now { mono: Mono(self.now - sim.booted_at + 1), wall: Wall(wall) }
    }

    /// One input, then everything that follows from it. As in a daemon, whose data thread takes all that its disks and sockets have
    /// for it before it lets the engine speak, what follows may come a moment later, after other inputs.
    pub fn input(&mut self, node: usize, input: Input) {
        let now = self.clocks(node);
        let Some(engine) = self.nodes[node].engine.as_mut() else { return };
        let comes_in_crowds =
            matches!(input, Input::Io { .. } | Input::Frame { .. } | Input::Sent { .. } | Input::Request { .. });
        engine.handle(now, input);
        self.check_node_memory(node);
        self.check_payload(node);
        if self.options.turn_ns > 0 && comes_in_crowds && self.rng.percent(70) {
            let (boot, after) = (self.nodes[node].boot, self.rng.below(self.options.turn_ns));
            return self.schedule(after, Event::TurnEnds { node, boot });
        }
        self.drain(node);
    }

    /// A node's turn ends: everything that follows from what it was told.
    pub fn drain(&mut self, node: usize) {
        while let Some(output) = self.nodes[node].engine.as_mut().and_then(|e| e.poll_output()) {
            self.perform(node, output);
            if self.verdict.is_err() {
                return;
            }
        }
        self.arm(node);
    }

    /// What a node's groups hold stays within its limit, but for the first write and one part of a resync of each.
    fn check_node_memory(&mut self, node: usize) {
        let Some(engine) = self.nodes[node].engine.as_ref() else { return };
        let shared = engine.shared();
        let o = &self.options;
        let slack = u64::from(o.groups()) * (LARGEST_REQUEST_BYTES + limits::PART_BYTES_MAX.min(o.window_bytes));
        if shared.memory_bytes > shared.memory_limit_bytes + slack {
            let (held, limit) = (shared.memory_bytes, shared.memory_limit_bytes);
            let what = format!("node {node} holds {held} bytes, its limit is {limit}");
            self.fail(Failure::new(Oracle::Memory, what));
        }
    }

    fn arm(&mut self, node: usize) {
        let sim = &self.nodes[node];
        let Some(at) = sim.engine.as_ref().and_then(|e| e.next_timeout()) else { return };
        let at = (at.0 + sim.booted_at).saturating_sub(1).max(self.now + 1);
        if sim.wake_at.is_none_or(|w| w > at) {
            let boot = sim.boot;
            self.nodes[node].wake_at = Some(at);
            let after = at - self.now;
            self.schedule(after, Event::Wake { node, boot });
        }
    }

    fn perform(&mut self, node: usize, output: Output) {
        match output {
            Output::Write { token, store, offset, parts, durable, .. } => {
                let data: Vec<u8> = parts.iter().map(bytes_of).collect::<Vec<_>>().concat();
                self.disk_write(node, token, store, offset, data, durable);
            }
            Output::Zero { token, store, offset, length, durable, .. } => {
                self.disk_zero(node, token, store, offset, length, durable);
            }
            Output::Flush { token, store } => {
                self.nodes[node].volume_flushes += u64::from(matches!(store, Store::Volume(..)));
                let mark = self.nodes[node].disks[&store].begin_flush();
                self.disk_job(node, token, Job::Flush { store, mark });
            }
            Output::Read { token, store, offset, length, crc } => {
                self.disk_read(node, token, store, offset, length, ReadKind::Plain { crc });
            }
            Output::ReadMeta { token, store, offset, length } => {
                self.disk_job(node, token, Job::ReadMeta { store, offset, length });
            }
            Output::ReadSummed { token, store, offset, length } => {
                self.disk_read(node, token, store, offset, length, ReadKind::Summed);
            }
            Output::FindHole { token, store, offset, length } => {
                self.disk_job(node, token, Job::FindHole { store, offset, length });
            }
            Output::ReadHash { token, store, offset, length } => {
                self.disk_read(node, token, store, offset, length, ReadKind::Hash);
            }
            Output::Reply { id, result } => {
                self.replies.insert(id, result.is_ok());
                if let Err(failure) = self.judge.replied(id, result.is_ok()) {
                    self.fail(failure);
                }
            }
            Output::Send { link, header, payload } => self.send(node, link, header, payload),
            Output::CloseLink { link, reason } => self.close(node, link, &reason),
            Output::CommandDone { id, result } => {
                self.log(format_args!("node {node} command {}: {result:?}", id.0));
                let engine = self.nodes[node].engine.as_ref();
                let glance = |group| engine.and_then(|engine| engine.glance(group));
                let failed = |group| glance(group).is_some_and(|glance| matches!(glance.state, State::Failed(_)));
                self.operator.command_done(id, &result, failed);
            }
            Output::Serve { group, open } => {
                if open && self.nodes[node].failed.contains(&group) {
                    let what = format!("node {node} opens group {}, which has failed", group.0);
                    return self.fail(Failure::new(Oracle::Durability, what));
                }
                let serving = &mut self.nodes[node].serving;
                if open {
                    serving.insert(group)
                } else {
                    serving.remove(&group)
                };
                if open {
                    self.check_one_writer(node, group);
                    self.primary_opens(node, group);
                }
            }
            Output::Event { group, event } => self.engine_event(node, group, event),
            Output::Stopped => self.stopped(node),
        }
    }

    fn stopped(&mut self, node: usize) {
        self.log(format_args!("node {node} stopped cleanly"));
        self.nodes[node].stopping = true;
        let stop = self.nodes[node].stop.take().unwrap_or(Stop { down_ns: 300_000_000, outside: Vec::new() });
        self.crash(node, false, stop.down_ns);
        self.written_from_outside(node, &stop.outside);
    }

    fn engine_event(&mut self, node: usize, group: GroupId, event: engine::Event) {
        match &event {
            engine::Event::AppliedWrite { .. } => {}
            engine::Event::Admitted { .. } if !self.verbose || std::env::var_os("SIM_ADMITTED").is_none() => {}
            other => self.log(format_args!("node {node} group {} {other:?}", group.0)),
        }
        if let Err(failure) = self.judge.event(node, group, &event) {
            return self.fail(failure);
        }
        match &event {
            engine::Event::SyncBegan { .. } => self.check_asked_for(node, group),
            engine::Event::Ready { .. } => {
                self.nodes[node].ready.insert(group);
                self.change_is_recorded(node, group);
            }
            _ => {}
        }
        self.follows_event(node, group, event);
    }

    /// What the operator and the judges make of what an engine told.
    fn follows_event(&mut self, node: usize, group: GroupId, event: engine::Event) {
        match event {
            engine::Event::Ready { role, .. } if self.operator.came_back(group, node, role) => {
                self.watch.told_is_void(group, node);
                self.watch.forked.insert(group);
                self.primary_up(node, group);
            }
            engine::Event::Ready { role: Role::Secondary, .. } => {
                self.check_named(node, group);
                self.check_confirmed(node, group);
                self.check_secondary(node, group);
            }
            engine::Event::Ready { role: Role::Primary, .. } => self.primary_up(node, group),
            engine::Event::Demoted => {
                self.watch.asked.remove(&(group, node));
                self.primary_up(node, group);
            }
            engine::Event::RollbackPoint { at, .. } => {
                self.sync_begins(group, node);
                self.check_consent(self.other(group, node), group);
                self.check_prefix(node, group, at);
            }
            // What was confirmed of the sync is undone, and that is what was asked for.
            engine::Event::RolledBack { .. } => {
                self.watch.forget(group, node);
                // The image before the sync needs nothing that landed after it: the journal is given up with all that it held.
                self.watch.hit.remove(&(group, node));
            }
            engine::Event::Promoted { .. } => {
                self.watch.may_flow(group, self.other(group, node));
                self.watch.forget(group, node);
                self.watch.told_is_void(group, node);
                // Old records or not: from here on they are what counts.
                self.watch.spoiled.remove(&(group, node));
                self.watch.tells(group, node, State::Logging);
                if self.operator.was_promoted(group, node) {
                    self.watch.forked.insert(group);
                }
                self.primary_up(node, group);
            }
            engine::Event::Admitted { .. } => self.check_alone(node, group),
            engine::Event::Decided { row, .. } => _ = self.tally.rows.insert(row),
            engine::Event::SyncBegan { full: true, .. } if self.options.syncs_for_hours() => self.over = true,
            engine::Event::SyncBegan { full: true, .. } if self.operator.authority(group) != node => {
                self.overwrites_the_primary(self.other(group, node), group);
            }
            engine::Event::SyncBegan { full: false, dirty_bytes, .. } => {
                self.check_consent(node, group);
                self.check_covered(group);
                self.over |= self.options.takes_hours(dirty_bytes);
            }
            engine::Event::Note(words) => self.note(node, group, &words),
            engine::Event::SyncEnded { .. } => self.synced(group, node),
            engine::Event::CutEnded { .. } if self.operator.authority(group) == node => self.synced(group, node),
            engine::Event::CutEnded { .. } => self.check_secondary(node, group),
            engine::Event::State { from, to, .. } => self.state_told(node, group, from, to),
            _ => {}
        }
    }

    fn state_told(&mut self, node: usize, group: GroupId, from: State, to: State) {
        self.watch.tells(group, node, to);
        self.tally.edges.insert((from.word(), to.word()));
        let damaged = self.watch.rotten.contains(&(node, Store::Superblock(group)));
        let starts = !self.nodes[node].ready.contains(&group);
        if damaged && starts && to == State::Failed(engine::state::Broken::Superblock) {
            // One copy was hit while the other was being written. After one that could not be written a start helps.
            self.watch.spoiled.insert((group, node));
        }
        if matches!(to, State::Failed(_)) {
            self.nodes[node].failed.insert(group);
            // Only a restart helps; the operator sees to it.
            self.operator.needs_restart(node);
        }
    }

    /// A sync from this node ended.
    fn synced(&mut self, group: GroupId, node: usize) {
        self.operator.synced(group, node);
        self.watch.waited_alone.remove(&(group, node));
        let other = self.other(group, node);
        // One that is down was synced before its records were spoiled.
        if self.operator.authority(group) == node && self.glance(other, group).is_some_and(|glance| glance.running) {
            self.watch.spoiled.remove(&(group, other));
        }
    }

    fn primary_opens(&mut self, node: usize, group: GroupId) {
        let Some(glance) = self.glance(node, group) else { return };
        let was_authority = self.operator.authority(group) == node;
        // A copy that was given up and is promoted again by force is nobody's prefix any more.
        let given_up = self.operator.discarded(group, node);
        let Some(forced) = self.operator.takes_over(group, node) else { return };
        let (parent, position) = (glance.identity.parent, glance.identity.position);
        if !parent.generation.is_blank() && !was_authority && !given_up {
            let mut checked = self.judge.check_prefix(group, parent, &self.nodes[node].views(group));
            // It goes by what the peer said last: one that was forced in the same moment is a fork (docs/reliability.md).
            if !forced && !self.watch.forked.contains(&group) {
                checked = checked.and_then(|()| self.judge.check_handover(group, parent));
            }
            if let Err(failure) = checked {
                return self.fail(failure);
            }
        }
        let chosen = self.watch.chosen.remove(&group);
        if !was_authority {
            self.judge.leaves_tail(group, parent);
            // Its export waited for the peer, and opens because a full sync was typed.
            if chosen && self.operator.typed_sync.get(&(group, node)) == Some(&true) {
                self.judge.tail_given_up(group);
            }
        }
        if !was_authority && self.watch.forked.contains(&group) {
            // The other one may go on as well, and what it answers from here on is nobody's order.
            self.operator.gives_up(group, self.other(group, node));
        }
        self.judge.set_settings(group, &self.operator.settings(group));
        let lost_power = self.nodes[node].opened_in(group) != Some(self.nodes[node].machine_boot);
        let alone = glance.in_doubt && self.may_serve_alone(node, group);
        if was_authority && lost_power && !alone && !chosen {
            let peer = self.other(group, node);
            let stands = self.glance(peer, group).filter(|g| g.running && !g.identity.inconsistent);
            let mut at = stands.map(|g| g.identity.position).into_iter().chain(self.watch.told(group, peer));
            let images = self.nodes[node].views(group);
            let checked = at.try_for_each(|at| self.judge.check_pulled(group, at, &images));
            if let Err(failure) = checked {
                return self.fail(failure);
            }
        }
        self.nodes[node].opens_in(group);
        self.watch.asked.remove(&(group, node));
        let forgot = self.nodes[node].forgot.remove(&group);
        let caches = match was_authority {
            false => Caches::Anothers,
            true if lost_power || forgot => Caches::Lost,
            true => Caches::Kept,
        };
        let images = self.nodes[node].views(group);
        let begins = self.judge.primary_ready(node, group, position, &images, caches, &glance.identity);
        if let Err(failure) = begins {
            self.fail(failure);
        }
    }

    /// What it waited for may be on record, though it was not seen to serve.
    pub fn waits_in_doubt(&mut self, node: usize, group: GroupId) {
        if self.glance(node, group).is_some_and(|glance| glance.in_doubt) {
            self.may_serve_alone(node, group);
        }
    }

    /// A primary in doubt has waited for its peer as long as it was told to, now or before it died again (rule 24).
    fn may_serve_alone(&mut self, node: usize, group: GroupId) -> bool {
        let limit = match self.operator.settings(group).start_alone {
            StartAlone::Serve => {
                // That is an answer too.
                self.watch.asked.remove(&(group, node));
                Duration::ZERO
            }
            StartAlone::Wait(limit) => limit,
        };
        let waited = u128::from(self.now - self.nodes[node].booted_at) >= limit.as_nanos();
        if self.watch.asked.contains(&(group, node)) {
            return false;
        }
        if waited {
            self.watch.waited_alone.insert((group, node));
        }
        self.watch.waited_alone.contains(&(group, node))
    }

    /// What a primary fetches from its peer before its exports open is where its run begins.
    pub fn withheld_changes(&mut self, node: usize, group: GroupId) {
        if self.is_primary(node, group) {
            self.primary_up(node, group);
        }
    }

    /// A primary knows what it holds, its exports are not open yet, or never were when it is demoted.
    fn primary_up(&mut self, node: usize, group: GroupId) {
        if let Some(glance) = self.glance(node, group) {
            self.judge.primary_up(group, glance.identity.position, &self.nodes[node].views(group));
        }
    }

    /// After a fork somebody had the other primary overwrite this one.
    fn overwrites_the_primary(&mut self, node: usize, group: GroupId) {
        if !self.is_primary(node, group) {
            self.judge.overwritten(group);
        }
        self.operator.gives_up(group, node);
    }

    /// Promoted in the moment in which the other began a sync, say: it takes none.
    fn is_primary(&self, node: usize, group: GroupId) -> bool {
        self.glance(node, group).is_some_and(|glance| glance.identity.role == Role::Primary)
    }

    /// A sync that nobody asked for must not overwrite what the other side alone holds (P6). A node that is down takes none: this one
    /// has not noticed yet, and meets whoever comes back anew.
    fn check_consent(&mut self, node: usize, group: GroupId) {
        let other = self.other(group, node);
        if self.glance(other, group).is_none() || self.is_primary(other, group) {
            return;
        }
        if self.operator.authority(group) == node && self.judge.has_tail(group) {
            let what = format!("group {}: the old primary's own writes are overwritten, nobody asked for it", group.0);
            self.fail(Failure::new(Oracle::OneWriter, what));
        }
    }

    /// A secondary that just replayed its journal: is it the prefix it claims to be?
    pub fn check_secondary(&mut self, node: usize, group: GroupId) {
        let Some(glance) = self.glance(node, group) else { return };
        let id = glance.identity;
        // About to be recorded as primary it stands in a run of its own: what it holds is looked at when it opens.
        let promoted = id.role == Role::Primary;
        if promoted || id.inconsistent || id.generation.is_blank() || self.operator.discarded(group, node) {
            return;
        }
        self.check_prefix(node, group, id.position);
    }

    /// The node says that exactly this place of the order stands on its volumes.
    fn check_prefix(&mut self, node: usize, group: GroupId, at: Position) {
        let images = self.nodes[node].views(group);
        if !self.operator.discarded(group, node)
            && let Err(failure) = self.judge.check_prefix(group, at, &images)
        {
            self.fail(failure);
        }
    }

    pub fn glance(&self, node: usize, group: GroupId) -> Option<status::Glance> {
        self.nodes[node].engine.as_ref()?.glance(group)
    }

    /// Both ends agree that nothing is under way, and the mode's promise holds.
    pub fn in_step(&self, group: GroupId) -> bool {
        let primary = self.operator.authority(group);
        let (p, s) = (self.glance(primary, group), self.glance(self.other(group, primary), group));
        let (Some(p), Some(s)) = (p, s) else { return false };
        p.state == State::Replicating && p.settled && s.settled && s.identity.role == Role::Secondary
    }

    /// The other member of a group.
    pub fn other(&self, group: GroupId, node: usize) -> usize {
        let [a, b] = self.options.pairs[group.0 as usize];
        if a == node { b } else { a }
    }

    /// The groups a node is a member of.
    pub fn groups_of(&self, node: usize) -> Vec<GroupId> {
        let pairs = self.options.pairs.iter().enumerate();
        pairs.filter(|(_, pair)| pair.contains(&node)).map(|(g, _)| GroupId(g as u32)).collect()
    }

    /// Virtual time in the words of people.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now)
    }
}

pub(crate) fn slice_of(slice: &Slice) -> &[u8] {
    let payload = slice.buf.get::<Payload>().expect("the simulator's buffers count themselves");
    &payload.bytes[slice.start as usize..][..slice.length as usize]
}
