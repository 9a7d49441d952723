//! A world for stories told by hand: the same nodes, disks and path as the seeds have, with an operator who only does
//! what the story says, and clients who only write what it says. The judge watches all the same.

use engine::limits::{KIB, MIB};
use engine::marks::Mark;
use engine::state::{Mode, Policy};
use engine::superblock::{self, Superblock};
use engine::{
    Command, CommandResult, GroupId, Input, Node, NodeConfig, NodeId, Request, RequestId, Store, VolumeId, limits,
    status::GroupStatus,
};

use crate::disk::SECTOR;
use crate::judge::{Asked, Fill, content};
use crate::payload::Payload;
use crate::swarm::Options;
use crate::world::World;

pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLISECOND;
/// Longer than any story.
pub const FOR_EVER: u64 = 100_000 * SECOND;
/// The one group of a story. Node 0 starts as its primary.
pub const GROUP: GroupId = GroupId(0);

/// A fast disk, 100 Mbit/s and 1 ms each way, two volumes of 1 MiB.
pub fn options(mode: Mode, policy: Policy) -> Options {
    Options {
        // Even: node 0 starts as primary.
        seed: 2,
        pairs: vec![[0, 1]],
        volumes: 2,
        volume_bytes: MIB,
        extra_bytes: [0; 2],
        block_bytes: 4096,
        spread: None,
        forks: true,
        writes: 0,
        delay_ns: MILLISECOND,
        jitter_ns: 0,
        bytes_per_s: 12_500_000,
        disk_ns: (20_000, 200_000),
        turn_ns: 0,
        queue_bytes: MIB,
        queue_items: 100_000,
        journal_bytes: MIB,
        window_bytes: 256 * KIB,
        memory_bytes: 64 * MIB,
        syncs_at_once: engine::limits::SYNCS_AT_ONCE,
        activity: engine::ActivityConfig { extent_bytes: 256 * KIB, extents: 4 },
        history_bytes: 4 * MIB,
        modes: vec![mode],
        policy,
        wait_limit_ms: 1000,
        start_alone_ms: 5000,
        depth: 8,
        think_ns: MILLISECOND,
        hot_percent: 0,
        overlap_percent: 0,
        faults: Vec::new(),
        fault_every_ns: FOR_EVER,
        skirmish: false,
    }
}

impl World {
    /// A world in which nothing happens by itself but dialing and restarts.
    pub fn for_story(options: Options) -> World {
        let mut world = World::new(options, std::env::var_os("FARSHORE_STORY").is_some());
        world.operator.rests = true;
        world
    }

    /// Such a world after its first sync.
    pub fn in_peace(options: Options) -> World {
        let mut world = World::for_story(options);
        world.pass(SECOND);
        assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
        world.settle();
        world
    }

    /// Virtual time goes by.
    pub fn pass(&mut self, time_ns: u64) {
        self.run_until(self.now + time_ns);
        if let Err(failure) = &self.verdict {
            panic!("{failure:?}");
        }
    }

    /// Until the condition holds, within ten minutes.
    pub fn until(&mut self, what: &str, holds: impl Fn(&World) -> bool) {
        let limit = self.now + 600 * SECOND;
        while !holds(self) {
            let explain = |node: usize| self.nodes[node].engine.as_ref().map(|engine| engine.explain(GROUP));
            assert!(self.now < limit, "it did not come to this: {what}\n{:?}\n{:?}", explain(0), explain(1));
            self.pass(5 * MILLISECOND);
        }
    }

    /// Until nothing is under way any more; then both nodes must hold the same.
    pub fn settle(&mut self) {
        self.until("in step", |world| world.judge.pending() == 0 && world.in_step(GROUP));
        let (a, b) = (self.nodes[0].views(GROUP), self.nodes[1].views(GROUP));
        self.judge.check_equal(GROUP, &a, &b).expect("in step means equal");
    }

    /// Stops a node cleanly; it stays down until it is booted.
    pub fn stop(&mut self, node: usize) {
        self.input(node, Input::Stop);
        self.until("it has stopped", |world| !world.nodes[node].up());
        // The restart that was due is nobody's.
        self.nodes[node].boot += 1;
    }

    /// A daemon starts whose host found the volumes changed. It says so as long as the superblock says of the run that it sealed
    /// that it ended cleanly; the engine knows that better, and does not listen otherwise.
    pub fn boot_changed(&mut self, node: usize) {
        let mut group = self.group_config(node, GROUP);
        group.volumes.iter_mut().for_each(|volume| volume.changed_outside = true);
        let config = NodeConfig {
            node: NodeId(node as u16),
            groups: vec![group],
            link_timeout: limits::LINK_TIMEOUT_DEFAULT,
            memory_bytes: self.options.memory_bytes,
            syncs_at_once: self.options.syncs_at_once,
        };
        let sim = &mut self.nodes[node];
        sim.engine = Some(Box::new(Node::new(config)));
        sim.boot += 1;
        (sim.stopping, sim.booted_at) = (false, self.now);
        sim.serving.clear();
        sim.ready.clear();
        sim.failed.clear();
        let boot = u128::from(sim.machine_boot);
        self.input(node, Input::Start { entropy: 7, boot });
    }

    /// Virtual time goes by, and what the judge says is left aside: it knows nothing of who writes behind our back.
    pub fn pass_unjudged(&mut self, time_ns: u64) {
        let until = self.now + time_ns;
        while self.now < until {
            self.run_until(until.min(self.now + 10 * MILLISECOND));
            self.verdict = Ok(());
        }
    }

    /// Types a command and waits for what comes of it.
    pub fn order(&mut self, node: usize, command: Command) -> CommandResult {
        let id = self.command(node, GROUP, command);
        self.until("the command is answered", |world| world.operator.results.contains_key(&id));
        self.operator.results[&id].clone()
    }

    /// An order that must be refused; the sentence.
    pub fn refused(&mut self, node: usize, command: Command) -> String {
        match self.order(node, command) {
            CommandResult::Refused(sentence) => sentence,
            other => panic!("not refused: {other:?}"),
        }
    }

    pub fn promote(&mut self, node: usize, force: bool) -> CommandResult {
        let entropy = self.rng.draw();
        self.order(node, Command::Promote { force, entropy })
    }

    /// A client's write of stamped sectors at the node that serves; not waited for.
    pub fn write(&mut self, volume: u16, offset: u64, length: u64) -> RequestId {
        self.write_to(GROUP, volume, offset, length)
    }

    /// The same to another group of the story.
    pub fn write_to(&mut self, group: GroupId, volume: u16, offset: u64, length: u64) -> RequestId {
        let (fill, volume) = (Fill::Stamp(self.judge.stamp(group)), VolumeId(volume));
        self.request(group, Asked::Write { volume, offset, length, fill, fua: false }, false)
    }

    /// The same with FUA.
    pub fn write_fua(&mut self, volume: u16, offset: u64, length: u64) -> RequestId {
        let (fill, volume) = (Fill::Stamp(self.judge.stamp(GROUP)), VolumeId(volume));
        self.request(GROUP, Asked::Write { volume, offset, length, fill, fua: true }, false)
    }

    /// A client's trim or write-zeroes.
    pub fn zero(&mut self, volume: u16, offset: u64, length: u64, no_hole: bool) -> RequestId {
        let (fill, volume) = (Fill::Zero, VolumeId(volume));
        self.request(GROUP, Asked::Write { volume, offset, length, fill, fua: false }, no_hole)
    }

    fn request(&mut self, group: GroupId, asked: Asked, no_hole: bool) -> RequestId {
        let Asked::Write { volume, offset, length, fill, fua } = asked else { unreachable!("a flush has its own way") };
        let node = self.operator.authority(group);
        assert!(self.nodes[node].serving.contains(&group), "node {node} serves");
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.judge.issued(id, node, group, asked, self.now);
        let sectors = offset / SECTOR as u64..(offset + length) / SECTOR as u64;
        let offset = self.options.placed(offset);
        let request = match fill {
            Fill::Zero => Request::Zero { offset, length, no_hole, fua },
            Fill::Stamp(_) => {
                let data = content(fill, volume, sectors);
                let buf = Payload::handed_over(data, self.nodes[node].queued(group));
                Request::Write { offset, length, buf, fua }
            }
        };
        self.input(node, Input::Request { group, volume, id, request });
        id
    }

    /// What a node's superblock holds.
    pub fn recorded(&self, node: usize) -> Superblock {
        let file = self.nodes[node].disks[&Store::Superblock(GROUP)].view();
        let read = superblock::read(file, self.group_config(node, GROUP).tag);
        read.ok().and_then(|read| read.found).expect("recorded")
    }

    /// How a request was answered, if it was.
    pub fn reply(&self, id: RequestId) -> Option<bool> {
        self.replies.get(&id).copied()
    }

    /// Waits for a request's answer: whether it was done, and after how long.
    pub fn answer(&mut self, id: RequestId) -> (bool, u64) {
        let asked = self.now;
        self.until("the request is answered", |world| world.reply(id).is_some());
        (self.replies[&id], self.now - asked)
    }

    pub fn figures(&self, node: usize) -> GroupStatus {
        let engine = self.nodes[node].engine.as_ref().expect("the node is up");
        engine.status().swap_remove(0)
    }

    /// How often a node that is up took a branch since it booted.
    pub fn mark(&self, node: usize, mark: Mark) -> u64 {
        self.nodes[node].engine.as_ref().map_or(0, |engine| engine.marks().count(mark))
    }

    pub fn images_of(&self, node: usize) -> Vec<Vec<u8>> {
        self.nodes[node].images(GROUP)
    }
}
