//! Nodes, their disks and the paths between them, in virtual time. A world owns the parts, routes events to them and applies
//! what they answer: [`Timeline`], [`SimCluster`], [`SimNetwork`], [`Checkers`]. None of them knows another one but by what it is
//! shown. Who acts in a world, an operator, clients and faults, stands above it, and is called by its cues.

mod links;
mod observing;
pub mod orders;
pub mod other_volumes;
mod processes;
pub mod resets;
pub mod views;

use std::collections::BTreeMap;
use std::fmt::Arguments;

use engine::identity::DecisionRow;
use engine::{CommandId, GroupId, Input, RequestId, Store, Token, status};

use crate::checkers::Checkers;
use crate::network::{LinkEvent, Path, SimNetwork};
use crate::nodes::SimCluster;
use crate::nodes::disk::SimDisk;
use crate::nodes::storage::DiskJob;
use crate::options::SimOptions;
use crate::oracle::{Oracle, OracleFailure};
use crate::rng::Rng;
use crate::tally::RunTally;
use crate::timeline::Timeline;
use crate::trips::TripPlan;

/// A completion or an arrival, some time from now.
pub enum WorldEvent {
    DiskDone {
        node: usize,
        boot: u64,
        token: Token,
        job: DiskJob,
    },
    Link(LinkEvent),
    Dial,
    Wake {
        node: usize,
        boot: u64,
    },
    Restart {
        node: usize,
        boot: u64,
    },
    /// A group that has left the node comes again.
    Added {
        node: usize,
        boot: u64,
        group: GroupId,
    },
    /// A group's stores are open again.
    Reopened {
        node: usize,
        boot: u64,
        group: GroupId,
    },
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
    /// All lines get worse, or better.
    LinesChange,
    /// A node's daemon has heard that the peer handed over to it.
    HandedOver {
        node: usize,
        boot: u64,
        group: GroupId,
    },
    /// The checkers look around, then the operator does.
    Look,
    Cue(ActorCue),
}

impl From<LinkEvent> for WorldEvent {
    fn from(event: LinkEvent) -> WorldEvent {
        WorldEvent::Link(event)
    }
}

/// Somebody who acts in a world is to do so.
pub enum ActorCue {
    Client,
    Fault,
    Operator,
    /// A sync may be at half its way.
    MidSync(GroupId),
    /// A secondary's records are to be copied, once it follows.
    Copy(GroupId),
    /// Records of a node come back as they were.
    Restore(OldCopy),
}

/// What a secondary held as it was.
pub struct OldCopy {
    pub group: GroupId,
    pub node: usize,
    /// The primary that will find out.
    pub primary: usize,
    pub stores: Vec<(Store, Vec<u8>)>,
}

/// What came of a meeting, as a primary reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeetingStep {
    Decided(DecisionRow),
    Syncs { full: bool },
}

/// Records with which the nodes begin: node by node, as they are to stand on its disks.
pub type FirstRecords = Vec<(usize, Store, SimDisk)>;

pub struct World {
    pub rng: Rng,
    pub timeline: Timeline<WorldEvent>,
    pub cluster: SimCluster,
    pub network: SimNetwork,
    pub checkers: Checkers,
    pub trips: TripPlan,
    pub tally: RunTally,
    /// Its operator does nothing unasked, and what nodes say to people is kept.
    pub unattended: bool,
    /// What primaries decided and began, where nobody attends them.
    pub meetings: Vec<(usize, MeetingStep)>,
    /// Its checkers are not asked: somebody else judges it.
    pub is_unjudged: bool,
    /// No daemon acts on what its peer hands over.
    pub daemons_are_deaf: bool,
    /// Lines stay as they are.
    pub is_steady: bool,
    /// What comes next would take hours: nothing more is asked of this world.
    over: bool,
    verdict: Result<(), OracleFailure>,
    next_request: u64,
    /// How each request was answered.
    replies: BTreeMap<RequestId, bool>,
    said: Vec<(usize, String)>,
    /// Commands without an answer whose goal was not reached when they were typed.
    unreached: BTreeMap<CommandId, String>,
    /// Payload of data frames that each node sent.
    data_sent_bytes: Vec<u64>,
}

impl World {
    pub fn new(options: SimOptions, first_records: FirstRecords, verbose: bool) -> World {
        let mut rng = Rng::new(options.seed ^ 0xdead_beef);
        let count = options.nodes();
        let path = Path {
            passes: [true; 2],
            delay_ns: options.delay_ns,
            slower_ns: 0,
            jitter_ns: options.jitter_ns,
            bytes_per_s: options.bytes_per_s,
        };
        let mut world = World {
            timeline: Timeline::new(verbose),
            network: SimNetwork::new(&options.pairs, path),
            checkers: Checkers::new(&options),
            trips: TripPlan::new(count),
            tally: RunTally { crashes: vec![0; count], ..RunTally::default() },
            cluster: SimCluster::new(options, &mut rng),
            rng,
            unattended: false,
            is_unjudged: false,
            daemons_are_deaf: false,
            is_steady: false,
            over: false,
            verdict: Ok(()),
            next_request: 1,
            replies: BTreeMap::new(),
            said: Vec::new(),
            meetings: Vec::new(),
            unreached: BTreeMap::new(),
            data_sent_bytes: vec![0; count],
        };
        world.begins_with(first_records);
        for node in 0..count {
            world.boot(node);
        }
        world.timeline.schedule(1_000_000, WorldEvent::Dial);
        world.timeline.schedule(2_000_000, WorldEvent::Look);
        world
    }

    /// Where the secondary of such nodes stands is where the checkers' knowledge begins.
    fn begins_with(&mut self, records: FirstRecords) {
        if records.is_empty() {
            return;
        }
        for (node, store, disk) in records {
            self.cluster[node].storage.replace(store, disk);
        }
        for group in self.cluster.groups() {
            let secondary = self.cluster.secondary(group);
            let at = self.cluster.superblock(secondary, group).identity.position;
            self.checkers.writes.primary_up(group, at, &self.cluster.views(secondary, group));
        }
    }

    // ---- time --------------------------------------------------------------------------------------------------------

    pub fn now(&self) -> u64 {
        self.timeline.now()
    }

    pub fn log(&self, line: Arguments) {
        self.timeline.print(line);
    }

    /// Whether anything more is asked of it: nobody objected, and nothing takes hours.
    pub fn goes_on(&self) -> bool {
        self.verdict.is_ok() && !self.over
    }

    /// Runs until `until`, or a verdict, or until somebody is to act; then it is to be called again.
    pub fn run_to_cue(&mut self, until: u64) -> Option<ActorCue> {
        while self.goes_on() {
            match self.timeline.next(until) {
                None => break,
                Some(WorldEvent::Cue(cue)) => return Some(cue),
                Some(WorldEvent::Look) => {
                    self.look_around();
                    return Some(ActorCue::Operator);
                }
                Some(event) => self.happen(event),
            }
        }
        self.timeline.reach(until);
        None
    }

    fn happen(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::DiskDone { node, boot, token, job } => self.disk_done(node, boot, token, job),
            WorldEvent::Link(event) => self.link_event(event),
            WorldEvent::Dial => self.dial(),
            WorldEvent::Wake { node, boot } if self.cluster[node].boot() == boot => {
                self.cluster[node].is_woken();
                self.input(node, Input::Tick);
            }
            WorldEvent::TurnEnds { node, boot } if self.cluster[node].boot() == boot => self.drain(node),
            WorldEvent::Restart { node, boot } if self.cluster[node].boot() == boot && !self.cluster[node].up() => {
                self.boot(node);
            }
            WorldEvent::Reopened { node, boot, group } if self.cluster[node].boot() == boot => {
                resets::reopened(self, node, group);
            }
            WorldEvent::Added { node, boot, group } if self.cluster[node].boot() == boot => {
                resets::added(self, node, group);
            }
            WorldEvent::HandedOver { node, boot, group } if self.cluster[node].boot() == boot => {
                observing::promotes_what_was_handed_over(self, node, group);
            }
            WorldEvent::PowerLoss { node } => {
                let down = self.rng.between(100_000_000, 3_000_000_000);
                self.crash(node, true, down);
            }
            WorldEvent::LinesChange => links::lines_change(self),
            WorldEvent::Cable { pair, passes } => self.set_path(pair, passes),
            // Of an older boot, or nobody's of the world.
            _ => {}
        }
    }

    pub fn look_around(&mut self) {
        let wait = self.rng.between(50_000_000, 400_000_000);
        self.timeline.schedule(wait, WorldEvent::Look);
        let looked = self.checkers.look_around(&self.cluster, self.now());
        if looked.as_ref().is_err_and(|failure| failure.oracle == Oracle::Liveness) {
            self.explain();
        }
        self.check(looked);
    }

    // ---- what came of it ---------------------------------------------------------------------------------------------

    pub fn verdict(&self) -> &Result<(), OracleFailure> {
        &self.verdict
    }

    pub fn check(&mut self, checked: Result<(), OracleFailure>) {
        if let Err(failure) = checked {
            self.fail(failure);
        }
    }

    /// The first failure counts.
    pub fn fail(&mut self, failure: OracleFailure) {
        if self.verdict.is_ok() && !self.is_unjudged {
            self.log(format_args!("FAILED: {failure:?}"));
            self.verdict = Err(failure);
        }
    }

    /// What was found is left aside: the checkers know nothing of what a test does behind their back.
    pub fn pardon(&mut self) {
        self.verdict = Ok(());
    }

    /// For a failure report: what each node makes of its groups, and what is on the paths.
    pub fn explain(&self) {
        for group in self.cluster.groups() {
            for node in self.cluster.pair(group) {
                self.log(format_args!("node {node} group {}: {:?}", group.0, self.cluster[node].explain(group)));
            }
        }
        self.log(format_args!("{}", self.network.explain()));
    }

    /// How a request was answered, if it was.
    pub fn reply(&self, id: RequestId) -> Option<bool> {
        self.replies.get(&id).copied()
    }

    /// What nodes said to people, where nobody attends them.
    pub fn said(&self) -> &[(usize, String)] {
        &self.said
    }

    /// Payload of data frames that each node sent.
    pub fn data_sent_bytes(&self) -> &[u64] {
        &self.data_sent_bytes
    }

    pub fn glance(&self, node: usize, group: GroupId) -> Option<status::GroupGlance> {
        self.cluster.glance(node, group)
    }

    /// The verdict and the counts.
    pub fn conclude(mut self) -> (Result<(), OracleFailure>, RunTally) {
        let mut tally = std::mem::take(&mut self.tally);
        for engine in self.cluster.iter().filter_map(|node| node.engine()) {
            tally.coverage.add(engine.coverage());
        }
        (tally.writes, tally.overlaps) = self.checkers.writes.writes();
        tally.prefix_checks = self.checkers.writes.prefix_checks();
        tally.coverage_checks = self.checkers.coverage_checks();
        tally.virtual_ns = self.now();
        tally.unchecked = u64::from(self.over);
        (self.verdict, tally)
    }
}
