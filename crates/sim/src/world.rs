//! Two nodes, their disks and the path between them, in virtual time. One seed, one run.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use engine::identity::Role;
use engine::marks::Marks;
use engine::state::State;
use engine::wire::Header;
use engine::*;

use crate::judge::{Judge, Violation};
use crate::net::{Connection, Parcel, Path};
use crate::node::SimNode;
use crate::operator::Operator;
use crate::rng::Rng;
use crate::swarm::Options;

/// A completion or an arrival, some time from now.
pub enum Event {
    DiskDone { node: usize, boot: u64, token: Token, job: Job },
    Transmitted { connection: u64, from: usize },
    Arrive { connection: u64, from: usize, parcel: Parcel },
    ConnectionUp { connection: u64, end: usize },
    ConnectionDown { connection: u64, end: usize, reason: &'static str },
    Dial,
    Wake { node: usize, boot: u64 },
    Restart { node: usize, boot: u64 },
    Client,
    Fault,
    Operate,
    Restore,
}

/// What a disk is doing.
pub enum Job {
    Write { store: Store, write: u64, offset: u64, length: u64, durable: bool },
    Flush { store: Store, mark: u64 },
    Read { store: Store, offset: u64, length: u32, crc: Option<u32> },
    ReadMeta { store: Store, offset: u64, length: u32 },
    ReadHash { store: Store, offset: u64, length: u32 },
}

/// How a run ended badly.
#[derive(Debug, Clone)]
pub enum Failure {
    Correctness(String),
    Liveness(String),
}

impl From<Violation> for Failure {
    fn from(v: Violation) -> Failure {
        Failure::Correctness(v.0)
    }
}

/// Counts of one run, for the record.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub writes: u64,
    pub overlaps: u64,
    pub faults: u64,
    pub crashes: [u64; 2],
    pub prefix_checks: u64,
    pub virtual_ns: u64,
    pub marks: Marks,
}

pub struct World {
    pub options: Rc<Options>,
    pub rng: Rng,
    pub now: u64,
    order: u64,
    events: BTreeMap<(u64, u64), Event>,
    pub nodes: [SimNode; 2],
    pub path: Path,
    pub connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    pub judge: Judge,
    pub operator: Operator,
    /// Faults are over: everything must heal.
    pub healing: bool,
    pub next_request: u64,
    /// How each request was answered.
    pub replies: BTreeMap<RequestId, bool>,
    /// Payload of data frames that each node sent.
    pub data_sent_bytes: [u64; 2],
    pub tally: Tally,
    pub verbose: bool,
    pub verdict: Result<(), Failure>,
}

impl World {
    pub fn new(options: Options, verbose: bool) -> World {
        let mut rng = Rng::new(options.seed ^ 0xdead_beef);
        let nodes = [SimNode::new(0, &options, &mut rng), SimNode::new(1, &options, &mut rng)];
        let groups: Vec<_> = (0..options.groups)
            .map(|g| (GroupId(g), vec![options.volume_bytes; usize::from(options.volumes)], options.modes[0]))
            .collect();
        let path = Path { passes: [true; 2], delay_ns: options.delay_ns, bytes_per_s: options.bytes_per_s };
        let mut world = World {
            judge: Judge::new(&groups),
            operator: Operator::new(&options),
            options: Rc::new(options),
            rng,
            now: 1,
            order: 0,
            events: BTreeMap::new(),
            nodes,
            path,
            connections: BTreeMap::new(),
            next_connection: 1,
            healing: false,
            next_request: 1,
            replies: BTreeMap::new(),
            data_sent_bytes: [0; 2],
            tally: Tally::default(),
            verbose,
            verdict: Ok(()),
        };
        for node in 0..2 {
            world.boot(node);
        }
        world.schedule(1_000_000, Event::Dial);
        world.schedule(2_000_000, Event::Operate);
        world
    }

    pub fn schedule(&mut self, after: u64, event: Event) {
        self.order += 1;
        self.events.insert((self.now + after, self.order), event);
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
        while self.verdict.is_ok() {
            let Some((&(at, order), _)) = self.events.first_key_value() else { break };
            if at > until {
                break;
            }
            let event = self.events.remove(&(at, order)).expect("first was there");
            self.now = at;
            self.happen(event);
        }
        self.now = self.now.max(until);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::DiskDone { node, boot, token, job } => self.disk_done(node, boot, token, job),
            Event::Transmitted { connection, from } => self.transmitted(connection, from),
            Event::Arrive { connection, from, parcel } => self.arrive(connection, from, parcel),
            Event::ConnectionUp { connection, end } => self.connection_up(connection, end),
            Event::ConnectionDown { connection, end, reason } => self.connection_down(connection, end, reason),
            Event::Dial => self.dial(),
            Event::Wake { node, boot } => {
                if self.nodes[node].boot == boot {
                    self.nodes[node].wake_at = None;
                    self.input(node, Input::Tick);
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
            Event::Restore => self.restore_path(),
        }
    }

    // ---- nodes -------------------------------------------------------------------------------------------------------

    fn group_config(&self, node: usize, group: u32) -> GroupConfig {
        let o = &self.options;
        let starts_primary = (group as usize + o.seed as usize) % 2 == node;
        GroupConfig {
            id: GroupId(group),
            tag: 0x5151 + u64::from(group),
            peer: NodeId(1 - node as u16),
            starts_as: if starts_primary { Role::Primary } else { Role::Secondary },
            volumes: vec![
                VolumeConfig { size_bytes: o.volume_bytes, block_bytes: 4096, changed_outside: false };
                usize::from(o.volumes)
            ],
            settings: self.operator.settings(GroupId(group)),
            journal_bytes: o.journal_bytes,
            window_bytes: o.window_bytes,
            activity: o.activity,
            history_bytes: o.history_bytes,
        }
    }

    pub fn boot(&mut self, node: usize) {
        let groups = (0..self.options.groups).map(|g| self.group_config(node, g)).collect();
        let config = NodeConfig { node: NodeId(node as u16), groups, link_timeout: limits::LINK_TIMEOUT_DEFAULT };
        let mut engine = Box::new(Node::new(config));
        engine.trace(true);
        let entropy = self.rng.draw();
        let sim = &mut self.nodes[node];
        sim.engine = Some(engine);
        sim.boot += 1;
        sim.booted_at = self.now;
        sim.restart_at = None;
        sim.stopping = false;
        sim.serving.clear();
        self.log(format_args!("node {node} boots"));
        let boot = u128::from(self.nodes[node].machine_boot);
        self.input(node, Input::Start { entropy, boot });
    }

    /// The process ends at once. `power`: the machine with it.
    pub fn crash(&mut self, node: usize, power: bool, down_ns: u64) {
        if !self.nodes[node].up() {
            return;
        }
        self.log(format_args!("node {node} {}", if power { "loses power" } else { "is killed" }));
        self.tally.crashes[node] += 1;
        let sim = &mut self.nodes[node];
        if let Some(engine) = sim.engine.take() {
            self.tally.marks.add(engine.marks());
        }
        sim.boot += 1;
        sim.wake_at = None;
        sim.serving.clear();
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
        // A killed process's kernel closes its sockets; a machine without power says nothing.
        for id in self.connections.keys().copied().collect::<Vec<_>>() {
            let c = self.connections.get_mut(&id).expect("listed");
            if std::mem::replace(&mut c.open[node], false) && !power {
                let delay = self.path.delay_ns;
                self.schedule(delay, Event::ConnectionDown { connection: id, end: 1 - node, reason: "reset" });
            }
        }
        self.schedule(down_ns, Event::Restart { node, boot });
    }

    fn clocks(&self, node: usize) -> Now {
        let sim = &self.nodes[node];
        let wall = (1_700_000_000_000_000_000i64 + self.now as i64 + sim.wall_skew_ns) as u64;
        Now { mono: Mono(self.now - sim.booted_at + 1), wall: Wall(wall) }
    }

    /// One input, then everything that follows from it.
    pub fn input(&mut self, node: usize, input: Input) {
        let now = self.clocks(node);
        let Some(engine) = self.nodes[node].engine.as_mut() else { return };
        engine.handle(now, input);
        while let Some(output) = self.nodes[node].engine.as_mut().and_then(|e| e.poll_output()) {
            self.perform(node, output);
            if self.verdict.is_err() {
                return;
            }
        }
        self.arm(node);
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
                let data: Vec<u8> = parts.iter().flat_map(|p| bytes_of(p).to_vec()).collect();
                self.disk_write(node, token, store, offset, &data, durable);
            }
            Output::Zero { token, store, offset, length, durable, .. } => {
                self.disk_write(node, token, store, offset, &vec![0; length as usize], durable);
            }
            Output::Flush { token, store } => {
                let mark = self.nodes[node].disks[&store].begin_flush();
                self.disk_job(node, token, Job::Flush { store, mark });
            }
            Output::Read { token, store, offset, length, crc } => {
                self.disk_job(node, token, Job::Read { store, offset, length, crc });
            }
            Output::ReadMeta { token, store, offset, length } => {
                self.disk_job(node, token, Job::ReadMeta { store, offset, length });
            }
            Output::ReadHash { token, store, offset, length } => {
                self.disk_job(node, token, Job::ReadHash { store, offset, length });
            }
            Output::Reply { id, result } => {
                self.replies.insert(id, result.is_ok());
                if let Err(v) = self.judge.replied(id, result.is_ok()) {
                    self.fail(v.into());
                }
            }
            Output::Send { link, header, payload } => self.send(node, link, header, payload),
            Output::CloseLink { link, reason } => self.close(node, link, &reason),
            Output::CommandDone { id, result } => {
                self.log(format_args!("node {node} command {}: {result:?}", id.0));
                self.operator.command_done(id, &result);
            }
            Output::Serve { group, open } => {
                let serving = &mut self.nodes[node].serving;
                if open {
                    serving.insert(group)
                } else {
                    serving.remove(&group)
                };
                if open {
                    self.primary_opens(node, group);
                }
            }
            Output::Event { group, event } => self.engine_event(node, group, event),
            Output::Stopped => self.stopped(node),
        }
    }

    fn stopped(&mut self, node: usize) {
        self.log(format_args!("node {node} stopped cleanly"));
        self.crash(node, false, 300_000_000);
    }

    fn engine_event(&mut self, node: usize, group: GroupId, event: engine::Event) {
        match &event {
            engine::Event::Admitted { .. } | engine::Event::AppliedWrite { .. } => {}
            other => self.log(format_args!("node {node} group {} {other:?}", group.0)),
        }
        let verdict = self.judge.event(node, group, &event);
        if let Err(v) = verdict {
            return self.fail(v.into());
        }
        if let engine::Event::Ready { role: Role::Secondary, .. } = event {
            self.check_secondary(node, group);
        }
        let secondary = self.operator.authority(group) != node;
        if let engine::Event::CutEnded { .. } = event
            && secondary
        {
            self.check_secondary(node, group);
        }
        if let engine::Event::Ready { role: Role::Primary, .. } = event {
            let images = self.nodes[node].images(group);
            if let Some(glance) = self.nodes[node].engine.as_ref().and_then(|e| e.glance(group)) {
                self.judge.primary_up(group, glance.identity.position, images);
            }
        }
        if let engine::Event::Promoted { .. } = event {
            self.operator.was_promoted(group, node);
        }
        if let engine::Event::State { to: State::Failed(_), .. } = event {
            // Only a restart helps; the operator sees to it.
            self.operator.needs_restart(node);
        }
    }

    fn primary_opens(&mut self, node: usize, group: GroupId) {
        let Some(glance) = self.nodes[node].engine.as_ref().and_then(|e| e.glance(group)) else { return };
        let was_authority = self.operator.authority(group) == node;
        // A copy that was given up and is promoted again by force is nobody's prefix any more.
        let given_up = self.operator.discarded(group, node);
        if !self.operator.takes_over(group, node) {
            return;
        }
        let images = self.nodes[node].images(group);
        if glance.identity.parent.generation != Generation::BLANK
            && !was_authority
            && !given_up
            && let Err(v) = self.judge.check_prefix(group, glance.identity.parent, &images)
        {
            return self.fail(v.into());
        }
        let mode = self.operator.settings(group).mode;
        self.judge.set_mode(group, mode);
        if let Err(v) =
            self.judge.primary_ready(node, group, glance.identity.position, images, was_authority, &glance.identity)
        {
            self.fail(v.into());
        }
    }

    /// A secondary that just replayed its journal: is it the prefix it claims to be?
    pub fn check_secondary(&mut self, node: usize, group: GroupId) {
        let Some(glance) = self.nodes[node].engine.as_ref().and_then(|e| e.glance(group)) else { return };
        let id = glance.identity;
        if id.inconsistent || id.generation.is_blank() || self.operator.discarded(group, node) {
            return;
        }
        let images = self.nodes[node].images(group);
        if let Err(v) = self.judge.check_prefix(group, id.position, &images) {
            self.fail(v.into());
        }
    }

    // ---- disks -------------------------------------------------------------------------------------------------------

    fn disk_write(&mut self, node: usize, token: Token, store: Store, offset: u64, data: &[u8], durable: bool) {
        let disk = self.nodes[node].disks.get_mut(&store).expect("every store has a disk");
        let write = disk.begin_write(offset, data);
        self.disk_job(node, token, Job::Write { store, write, offset, length: data.len() as u64, durable });
    }

    fn disk_job(&mut self, node: usize, token: Token, job: Job) {
        let (low, high) = self.options.disk_ns;
        let slow = self.nodes[node].trouble.slow_until > self.now;
        let after = self.rng.between(low, high) * if slow { 100 } else { 1 };
        let stalled_ns = self.nodes[node].trouble.stalled_until.saturating_sub(self.now);
        let (after, boot) = (after + stalled_ns, self.nodes[node].boot);
        self.schedule(after, Event::DiskDone { node, boot, token, job });
    }

    fn disk_done(&mut self, node: usize, boot: u64, token: Token, job: Job) {
        if self.nodes[node].boot != boot {
            return;
        }
        let result = self.finish_job(node, job);
        self.input(node, Input::Io { token, result });
    }

    fn finish_job(&mut self, node: usize, job: Job) -> Result<IoDone, IoError> {
        let now = self.now;
        let sim = &mut self.nodes[node];
        let volume = |store: &Store| matches!(store, Store::Volume(..));
        match job {
            Job::Write { store, write, offset, length, durable } => {
                let disk = sim.disks.get_mut(&store).expect("every store has a disk");
                let serving = matches!(store, Store::Volume(g, _) if sim.serving.contains(&g));
                if volume(&store) && serving && sim.trouble.write_errors_until > now && self.rng.percent(5) {
                    disk.fail_write(write, offset, length, &mut self.rng);
                    return Err(IoError::Io);
                }
                if volume(&store) && !serving && sim.trouble.full_until > now && self.rng.percent(30) {
                    disk.fail_write(write, offset, length, &mut self.rng);
                    return Err(IoError::NoSpace);
                }
                disk.end_write(write, offset, length, durable);
                Ok(IoDone::Done)
            }
            Job::Flush { store, mark } => {
                if volume(&store) && std::mem::take(&mut sim.trouble.fail_next_flush) {
                    return Err(IoError::Io);
                }
                sim.disks.get_mut(&store).expect("every store has a disk").end_flush(mark);
                Ok(IoDone::Done)
            }
            Job::Read { store, offset, length, crc } => {
                let failing = volume(&store) && sim.trouble.read_errors_until > now;
                if failing && self.rng.percent(10) {
                    return Err(IoError::Io);
                }
                let data = sim.disks[&store].view()[offset as usize..][..length as usize].to_vec();
                if crc.is_some_and(|crc| crc != crc32c(&data)) {
                    return Err(IoError::Damaged);
                }
                let zero = data.iter().all(|b| *b == 0);
                Ok(IoDone::Payload { buf: Buf::new(Arc::new(data)), zero })
            }
            Job::ReadMeta { store, offset, length } => {
                let view = sim.disks[&store].view();
                let end = (offset as usize + length as usize).min(view.len());
                Ok(IoDone::Meta(view[offset as usize..end].to_vec()))
            }
            Job::ReadHash { store, offset, length } => {
                Ok(IoDone::Hash(hash(&sim.disks[&store].view()[offset as usize..][..length as usize])))
            }
        }
    }

    // ---- the path ----------------------------------------------------------------------------------------------------

    fn dial(&mut self) {
        let wait = self.rng.between(30_000_000, 200_000_000);
        self.schedule(wait, Event::Dial);
        let both = self.nodes.iter().all(SimNode::up) && self.path.passes == [true; 2];
        let connected = self.connections.values().any(|c| c.open[0]);
        if both && !connected {
            self.connect();
        }
    }

    pub fn connect(&mut self) {
        let id = self.next_connection;
        self.next_connection += 1;
        let session = self.rng.draw();
        self.connections.insert(id, Connection::new(id, session));
        let delay = self.path.delay_ns;
        self.schedule(2 * delay, Event::ConnectionUp { connection: id, end: 1 });
        self.schedule(3 * delay, Event::ConnectionUp { connection: id, end: 0 });
    }

    fn connection_up(&mut self, connection: u64, end: usize) {
        let Some(c) = self.connections.get_mut(&connection) else { return };
        if !self.nodes[end].up() || (end == 0 && !c.open[1]) {
            return;
        }
        c.open[end] = true;
        let session = SessionId(c.session);
        let peer = NodeId(1 - end as u16);
        self.input(end, Input::LinkUp { peer, link: LinkId(connection), session });
    }

    fn connection_down(&mut self, connection: u64, end: usize, reason: &'static str) {
        let Some(c) = self.connections.get_mut(&connection) else { return };
        if std::mem::replace(&mut c.open[end], false) {
            self.input(end, Input::LinkDown { link: LinkId(connection), reason: reason.into() });
        }
    }

    /// One end closes: it is told at once, the other end when the path lets it know.
    fn close(&mut self, node: usize, link: LinkId, reason: &str) {
        self.log(format_args!("node {node} closes connection {}: {reason}", link.0));
        let broke_protocol = reason.contains("the peer sent") && !reason.contains("goodbye");
        if broke_protocol {
            return self.fail(Failure::Correctness(format!("node {node}: {reason}")));
        }
        // The host closes a moment later; what arrives meanwhile must be fenced.
        let after = self.rng.below(3_000_000);
        self.schedule(after, Event::ConnectionDown { connection: link.0, end: node, reason: "closed here" });
        if self.path.passes[node] {
            let after = self.path.delay_ns;
            self.schedule(after, Event::ConnectionDown { connection: link.0, end: 1 - node, reason: "closed by peer" });
        }
    }

    fn send(&mut self, node: usize, link: LinkId, header: Header, payload: SendPayload) {
        let payload = match payload {
            SendPayload::None => Vec::new(),
            SendPayload::Control(bytes) => bytes,
            SendPayload::Data(slice) => slice_of(&slice).to_vec(),
        };
        if header.kind.carries_data() {
            self.data_sent_bytes[node] += payload.len() as u64;
        }
        let parcel = Parcel { header: header.sealed(&payload).encode(), payload };
        let Some(c) = self.connections.get_mut(&link.0) else { return };
        if c.open[node] {
            c.directions[node].queue.push_back(parcel);
            self.transmit(link.0, node);
        }
    }

    /// Puts the next parcel on the path, if it passes and none is being put there.
    fn transmit(&mut self, connection: u64, from: usize) {
        let path = self.path;
        let Some(c) = self.connections.get_mut(&connection) else { return };
        let direction = &mut c.directions[from];
        let Some(parcel) = direction.queue.front() else { return };
        if direction.transmitting || !path.passes[from] {
            return;
        }
        direction.transmitting = true;
        let after = path.transmit_ns(parcel.bytes());
        self.schedule(after, Event::Transmitted { connection, from });
    }

    fn transmitted(&mut self, connection: u64, from: usize) {
        let (now, delay) = (self.now, self.path.delay_ns);
        let Some(c) = self.connections.get_mut(&connection) else { return };
        let direction = &mut c.directions[from];
        direction.transmitting = false;
        let Some(parcel) = direction.queue.pop_front() else { return };
        direction.last_arrival = direction.last_arrival.max(now + delay);
        let (after, bytes, open) = (direction.last_arrival - now, parcel.bytes(), c.open[from]);
        self.schedule(after, Event::Arrive { connection, from, parcel });
        self.transmit(connection, from);
        if open {
            self.input(from, Input::Sent { link: LinkId(connection), bytes });
        }
    }

    fn arrive(&mut self, connection: u64, from: usize, parcel: Parcel) {
        let to = 1 - from;
        let passes = self.path.passes[from];
        let Some(c) = self.connections.get_mut(&connection) else { return };
        if !passes || !c.directions[from].held.is_empty() {
            return c.directions[from].held.push_back(parcel);
        }
        if !c.open[to] {
            // Nobody is there: a reset comes back.
            let after = self.path.delay_ns;
            return self.schedule(after, Event::ConnectionDown { connection, end: from, reason: "reset" });
        }
        let header = match Header::decode(&parcel.header) {
            Ok(header) => header,
            Err(e) => return self.fail(Failure::Correctness(format!("an engine's own frame is refused: {e}"))),
        };
        let payload = if header.kind.carries_data() {
            FramePayload::Data(Buf::new(Arc::new(parcel.payload)))
        } else if parcel.payload.is_empty() {
            FramePayload::None
        } else {
            FramePayload::Control(parcel.payload)
        };
        self.input(to, Input::Frame { link: LinkId(connection), header, payload });
    }

    /// The cable is back: what was held arrives, what waited goes out.
    pub fn restore_path(&mut self) {
        self.path.passes = [true; 2];
        for id in self.connections.keys().copied().collect::<Vec<_>>() {
            for from in 0..2 {
                let held = std::mem::take(&mut self.connections.get_mut(&id).expect("listed").directions[from].held);
                for parcel in held {
                    self.schedule(1, Event::Arrive { connection: id, from, parcel });
                }
                self.transmit(id, from);
            }
        }
    }

    pub fn glance(&self, node: usize, group: GroupId) -> Option<status::Glance> {
        self.nodes[node].engine.as_ref()?.glance(group)
    }

    /// Both ends agree that nothing is under way, and the mode's promise holds.
    pub fn in_step(&self, group: GroupId) -> bool {
        let primary = self.operator.authority(group);
        let (Some(p), Some(s)) = (self.glance(primary, group), self.glance(1 - primary, group)) else { return false };
        p.state == State::Replicating && p.settled && s.settled && s.identity.role == Role::Secondary
    }

    /// Virtual time in the words of people.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now)
    }
}

fn slice_of(slice: &Slice) -> &[u8] {
    let bytes = slice.buf.get::<Vec<u8>>().expect("the simulator's buffers are vectors");
    &bytes[slice.start as usize..][..slice.length as usize]
}

fn bytes_of(bytes: &Bytes) -> &[u8] {
    match bytes {
        Bytes::Payload(slice) => slice_of(slice),
        Bytes::Meta(bytes) => bytes,
    }
}

fn crc32c(data: &[u8]) -> u32 {
    Header::new(engine::wire::Kind::Data, SessionId(0), GroupId(0)).sealed(data).payload_crc
}

/// A hash that is good enough to tell two contents apart in a world without an adversary (FNV-1a, four lanes).
fn hash(data: &[u8]) -> [u8; 32] {
    let mut lanes = [0xcbf2_9ce4_8422_2325u64; 4];
    for (i, byte) in data.iter().enumerate() {
        let lane = &mut lanes[i % 4];
        *lane = (*lane ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
    let mut out = [0; 32];
    for (chunk, lane) in out.chunks_mut(8).zip(lanes) {
        chunk.copy_from_slice(&lane.to_le_bytes());
    }
    out
}
