//! Engines start, hear, speak and die; their disks do what they are asked for.

use engine::{Input, Node, Output, RequestId, Token};

use super::{World, WorldEvent, observing, other_volumes, resets, views};
use crate::nodes::storage::{BegunOutput, DiskJob};
use crate::oracle::{Oracle, OracleFailure};
use crate::trips::Instant;

impl World {
    pub fn boot(&mut self, node: usize) {
        let now = self.now();
        resets::enlarges(self, node, 0);
        other_volumes::finishes(self, node, usize::MAX);
        let mut engine = Box::new(Node::new(self.cluster.node_config(node)));
        engine.trace(true);
        let entropy = self.rng.draw();
        self.cluster[node].boots(engine, now);
        self.log(format_args!("node {node} boots"));
        let boot = u128::from(self.cluster[node].machine_boot());
        self.input(node, Input::Start { entropy, boot });
    }

    /// The process ends at once. `power`: the machine with it, unless its peer was restored from an old copy and has not met
    /// it since: what it then asks for is a known limit (docs/book/reliability.md).
    pub fn crash(&mut self, node: usize, power: bool, down_ns: u64) {
        if !self.cluster[node].up() {
            return;
        }
        let (now, groups) = (self.now(), self.cluster.groups_of(node));
        let power = power && !self.checkers.has_spoiled_peer(&self.cluster, node);
        self.log(format_args!("node {node} {}", if power { "loses power" } else { "is killed" }));
        self.tally.crashes[node] += 1;
        for group in groups {
            self.checkers.sees_unverified_run(&self.cluster, now, node, group);
        }
        let sim = &mut self.cluster[node];
        if let Some(engine) = sim.dies(power, &mut self.rng) {
            self.tally.coverage.add(engine.coverage());
        }
        let (boot, stopping) = (sim.boot(), sim.is_stopping());
        if power {
            for group in self.cluster.groups_of(node) {
                let record = self.cluster.readable_record(node, group);
                self.cluster[node].loses_power_with(group, record.as_ref());
            }
        }
        self.checkers.node_died(node);
        self.cluster.ledger.node_died(node);
        let resets = self.network.drop_node(node, power, stopping);
        self.schedule_links(resets);
        self.timeline.schedule(down_ns, WorldEvent::Restart { node, boot });
    }

    /// An instant comes: true if the node crashes before it.
    pub(super) fn trips_before(&mut self, node: usize, kind: Instant) -> bool {
        self.trips.counts(node, kind);
        self.trips(node, kind, false)
    }

    /// True if it crashes now, before the instant or after it.
    pub(super) fn trips(&mut self, node: usize, kind: Instant, after: bool) -> bool {
        if !self.cluster[node].up() {
            return false;
        }
        let trip = self.trips.take(node, kind, after);
        trip.inspect(|trip| self.crash(node, trip.power, trip.down_ns)).is_some()
    }

    /// One input, then everything that follows from it. As in a daemon, whose data thread takes all that its disks and sockets have
    /// for it before it lets the engine speak, what follows may come a moment later, after other inputs.
    pub fn input(&mut self, node: usize, input: Input) {
        let now = self.now();
        let clocks = self.cluster[node].clocks(now);
        let Some(engine) = self.cluster[node].engine_mut() else { return };
        let comes_in_crowds =
            matches!(input, Input::Io { .. } | Input::Frame { .. } | Input::Sent { .. } | Input::Request { .. });
        engine.handle(clocks, input);
        observing::sees_lent(self, node);
        let held = self.checkers.check_held(&self.cluster, node);
        self.check(held);
        let turn_ns = self.cluster.options.turn_ns;
        if turn_ns > 0 && comes_in_crowds && self.rng.percent(70) {
            let (boot, after) = (self.cluster[node].boot(), self.rng.below(turn_ns));
            return self.timeline.schedule(after, WorldEvent::TurnEnds { node, boot });
        }
        self.drain(node);
    }

    /// A node's turn ends: everything that follows from what it was told.
    pub(super) fn drain(&mut self, node: usize) {
        while let Some(output) = self.cluster[node].engine_mut().and_then(|e| e.poll_output()) {
            self.perform(node, output);
            if self.verdict.is_err() {
                return;
            }
        }
        let now = self.now();
        if let Some(after) = self.cluster[node].wakes_after(now) {
            let boot = self.cluster[node].boot();
            self.timeline.schedule(after, WorldEvent::Wake { node, boot });
        }
    }

    fn perform(&mut self, node: usize, output: Output) {
        let other = match self.cluster[node].storage.begin(output) {
            BegunOutput::Job(token, job) => return self.submit(node, token, job),
            BegunOutput::Astray(store, offset) => {
                let what = format!("node {node} writes {store:?} from byte {offset} on, where nobody wrote");
                return self.fail(OracleFailure::new(Oracle::Prefix, what));
            }
            BegunOutput::Other(other) => other,
        };
        match other {
            Output::Reply { id, result } => {
                self.replies.insert(id, result.is_ok());
                if result.is_ok() {
                    let answered = check_window(self, id);
                    self.check(answered);
                }
                let replied = self.checkers.writes.replied(id, result.is_ok());
                self.check(replied);
            }
            Output::Send { link, header, payload } => self.send(node, link, header, payload),
            Output::CloseLink { link, reason } => self.close(node, link, &reason),
            Output::CommandDone { id, result } => {
                self.log(format_args!("node {node} command {}: {result:?}", id.0));
                self.hears_answer(id, &result);
                self.cluster.command_done(node, id, result);
            }
            Output::Serve { group, open } => {
                let served = self.serve(node, group, open);
                self.check(served);
            }
            Output::Event { group, event } => {
                let observed = self.observe(node, group, event);
                self.check(observed);
            }
            Output::Reopen { group } => resets::reopens(self, node, group),
            Output::Removed { group, .. } => resets::removed(self, node, group),
            Output::ViewOpened { group, view, result } => views::is_answered(self, node, group, view, result),
            Output::ViewData { id, result } => {
                let read = self.checkers.views.is_read(id, result);
                self.check(read);
            }
            Output::Stopped => self.stopped(node),
            _ => unreachable!("its disks do the rest"),
        }
    }

    fn stopped(&mut self, node: usize) {
        self.log(format_args!("node {node} stopped cleanly"));
        let stop = self.cluster[node].stopped();
        self.crash(node, false, stop.down_ns);
        for write in stop.outside {
            self.write_from_outside(node, write);
        }
        if stop.takes_up_volumes {
            // It may die before all records have taken their places.
            let most = if self.rng.percent(25) { self.rng.below(8) as usize } else { usize::MAX };
            let taken = other_volumes::takes_up(self, node, most);
            self.log(format_args!("node {node} takes up the file: {taken:?}"));
        }
    }

    fn submit(&mut self, node: usize, token: Token, job: DiskJob) {
        let (now, sim) = (self.timeline.now(), &mut self.cluster[node]);
        let (boot, after) = (sim.boot(), sim.storage.takes_ns(&job, now, &mut self.rng));
        if sim.storage.is_slow(now) {
            self.tally.faults += sim.storage.felt();
        }
        self.timeline.schedule(after, WorldEvent::DiskDone { node, boot, token, job });
    }

    pub(super) fn disk_done(&mut self, node: usize, boot: u64, token: Token, job: DiskJob) {
        let is_sync = job.is_sync();
        if self.cluster[node].boot() != boot || is_sync && self.trips_before(node, Instant::Sync) {
            return;
        }
        let (written, now) = (job.writes_volume(), self.timeline.now());
        let sim = &mut self.cluster[node];
        let result = sim.finish(job, now, &mut self.rng);
        if result.is_err() {
            self.tally.faults += sim.storage.felt();
        }
        // What a primary fetches from its peer before its exports open is where its run begins.
        if let Some(group) = written.filter(|group| !sim.serves(*group))
            && self.cluster.is_primary(node, group)
        {
            self.checkers.sees_primary(&self.cluster, node, group);
        }
        self.input(node, Input::Io { token, result });
        if is_sync {
            self.trips(node, Instant::Sync, true);
        }
    }
}

/// Nobody is answered alone while the peer may be promoted in the belief that nobody is (rule 14).
fn check_window(world: &World, id: RequestId) -> Result<(), OracleFailure> {
    let Some((group, node)) = world.checkers.writes.answered_alone(id) else { return Ok(()) };
    let other = world.cluster.other(group, node);
    let until = world.glance(other, group).and_then(|glance| glance.peer_window_until);
    let now = world.cluster[other].clocks(world.now()).mono;
    if until.is_none_or(|until| until <= now) {
        return Ok(());
    }
    let what = format!(
        "node {node} answers write {} of group {} alone; node {other} counts on it for {:?} more that it does not",
        id.0,
        group.0,
        until.unwrap_or_default().since(now)
    );
    Err(OracleFailure::new(Oracle::Alone, what))
}
