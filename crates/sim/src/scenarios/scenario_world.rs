//! A world for scenarios written by hand: the same nodes, disks and path as the seeds have, with an operator who only does
//! what the scenario says, and clients who only write what it says. The checkers watch all the same.

use std::ops::{Deref, DerefMut};

use engine::coverage::CoveragePoint;
use engine::superblock::Superblock;
use engine::{Command, CommandResult, GroupId, Input, Node, Refusal, RequestId, status::GroupStatus};

use super::{GROUP, KIB, MILLISECOND, SECOND};
use crate::options::SimOptions;
use crate::simulation::Simulation;
use crate::world::World;

/// A world in which nothing happens by itself but dialing and restarts. Whatever can be done in a world can be done here.
pub struct ScenarioWorld {
    world: World,
}

impl Deref for ScenarioWorld {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl DerefMut for ScenarioWorld {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

impl ScenarioWorld {
    pub fn new(options: SimOptions) -> ScenarioWorld {
        let verbose = std::env::var_os("FARSHORE_SCENARIO").is_some();
        let mut world = Simulation::new(options, verbose).world;
        world.unattended = true;
        ScenarioWorld { world }
    }

    /// Such a world after its first sync.
    pub fn in_peace(options: SimOptions) -> ScenarioWorld {
        let mut world = ScenarioWorld::new(options);
        world.pass(SECOND);
        assert!(matches!(world.order(0, Command::Sync { full: true }), CommandResult::Done(_)));
        world.drain();
        world
    }

    /// Runs until `until` or a verdict.
    pub fn run_until(&mut self, until: u64) {
        while self.world.run_to_cue(until).is_some() {}
    }

    /// Virtual time goes by.
    pub fn pass(&mut self, time_ns: u64) {
        self.run_until(self.now() + time_ns);
        if let Err(failure) = self.verdict() {
            panic!("{failure:?}");
        }
    }

    /// The same, and what the checkers say is left aside: they know nothing of who writes behind our back.
    pub fn pass_unchecked(&mut self, time_ns: u64) {
        let until = self.now() + time_ns;
        while self.now() < until {
            self.run_until(until.min(self.now() + 10 * MILLISECOND));
            self.pardon();
        }
    }

    /// Until the condition holds, within ten minutes.
    pub fn until(&mut self, what: &str, holds: impl Fn(&ScenarioWorld) -> bool) {
        let limit = self.now() + 600 * SECOND;
        while !holds(self) {
            let explain = |node: usize| self.cluster[node].explain(GROUP);
            assert!(self.now() < limit, "it did not come to this: {what}\n{:?}\n{:?}", explain(0), explain(1));
            self.pass(5 * MILLISECOND);
        }
    }

    pub fn in_step(&self) -> bool {
        self.cluster.in_step(GROUP)
    }

    /// Until nothing is under way any more; then both nodes must hold the same.
    pub fn drain(&mut self) {
        self.until("in step", |world| world.checkers.writes.pending() == 0 && world.in_step());
        self.checkers.check_equal(&self.cluster, GROUP).expect("in step means equal");
    }

    /// Stops a node cleanly; it stays down until it is booted.
    pub fn stop(&mut self, node: usize) {
        self.input(node, Input::Stop);
        self.until("it has stopped", |world| !world.cluster[node].up());
        self.cluster[node].stays_down();
    }

    /// A daemon starts whose host found the volumes changed. It says so as long as the superblock says of the run that it sealed
    /// that it ended cleanly; the engine knows that better, and does not listen otherwise.
    pub fn boot_changed(&mut self, node: usize) {
        let mut config = self.cluster.node_config(node);
        config.groups[0].volumes.iter_mut().for_each(|volume| volume.changed_outside = true);
        let now = self.now();
        self.cluster[node].boots(Box::new(Node::new(config)), now);
        let boot = u128::from(self.cluster[node].machine_boot());
        self.input(node, Input::Start { entropy: 7, boot });
    }

    /// A daemon starts whose host does not take up the group.
    pub fn boot_refused(&mut self, node: usize, why: &str) {
        let (now, config) = (self.now(), self.cluster.node_config(node));
        let mut engine = Box::new(Node::new(config));
        engine.refuse(GROUP, why.to_owned(), None);
        self.cluster[node].boots(engine, now);
        let boot = u128::from(self.cluster[node].machine_boot());
        self.input(node, Input::Start { entropy: 7, boot });
    }

    pub fn figures(&self, node: usize) -> GroupStatus {
        self.cluster[node].engine().expect("the node is up").status().swap_remove(0)
    }

    /// How often a node that is up passed a coverage point since it booted.
    pub fn coverage(&self, node: usize, point: CoveragePoint) -> u64 {
        self.cluster[node].coverage(point)
    }

    /// What a node's superblock holds.
    pub fn recorded(&self, node: usize) -> Superblock {
        self.cluster.superblock(node, GROUP)
    }

    /// A copy of a node's volumes.
    pub fn images_of(&self, node: usize) -> Vec<Vec<u8>> {
        self.cluster[node].storage.views(GROUP).into_iter().map(<[u8]>::to_vec).collect()
    }

    /// Types a command and waits for what comes of it.
    pub fn order(&mut self, node: usize, command: Command) -> CommandResult {
        let id = self.command(node, GROUP, command);
        self.until("the command is answered", |world| world.cluster.ledger.result(id).is_some());
        self.cluster.ledger.result(id).expect("it was waited for").clone()
    }

    /// An order that must be refused; the sentence.
    pub fn refused(&mut self, node: usize, command: Command) -> String {
        self.refusal(node, command).text
    }

    /// The same with its code.
    pub fn refusal(&mut self, node: usize, command: Command) -> Refusal {
        match self.order(node, command) {
            CommandResult::Refused(refusal) => refusal,
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

    /// The same, answered with success: after how long.
    pub fn write_done(&mut self, volume: u16, offset: u64, length: u64) -> u64 {
        let id = self.write(volume, offset, length);
        let (done, after) = self.answer(id);
        assert!(done, "the write failed");
        after
    }

    /// The primary, node 0, loses its power with writes that its peer has confirmed and nobody has flushed, and its link with it.
    pub fn loses_power_alone(&mut self) {
        for n in 0..24 {
            self.write_done((n % 2) as u16, n * 32 * KIB, 16 * KIB);
        }
        self.pass(200 * MILLISECOND);
        self.cut([false; 2]);
        self.crash(0, true, SECOND);
    }

    /// A client's write to another group.
    pub fn write_to(&mut self, group: GroupId, volume: u16, offset: u64, length: u64) -> RequestId {
        assert!(self.serves(group), "the primary serves");
        self.write_at(group, volume, offset, length, false)
    }

    /// The same with FUA.
    pub fn write_fua(&mut self, volume: u16, offset: u64, length: u64) -> RequestId {
        assert!(self.serves(GROUP), "the primary serves");
        self.write_at(GROUP, volume, offset, length, true)
    }

    /// A client's trim or write-zeroes.
    pub fn zero(&mut self, volume: u16, offset: u64, length: u64, no_hole: bool) -> RequestId {
        assert!(self.serves(GROUP), "the primary serves");
        self.zero_at(GROUP, volume, offset, length, no_hole)
    }

    /// A client's flush.
    pub fn flush(&mut self, volume: u16) -> RequestId {
        self.flush_at(GROUP, volume)
    }

    /// Waits for a request's answer: whether it was done, and after how long.
    pub fn answer(&mut self, id: RequestId) -> (bool, u64) {
        let asked = self.now();
        self.until("the request is answered", |world| world.reply(id).is_some());
        (self.reply(id).expect("it was waited for"), self.now() - asked)
    }
}
