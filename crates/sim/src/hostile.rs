//! A peer that is authenticated and wrong. One real engine is driven with frames of the right form and any content, in every
//! phase it can be in; then the hostile peer is gone and an honest peer comes in its place.
//!
//! Checked: no assertion; what the hostile peer makes the engine hold and do stays inside bounds; no bit is cleared that nobody
//! confirmed; every client is answered; and with the honest peer both images become equal, by themselves or after what an
//! operator is told to type.

pub mod machine;
mod peer;

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use engine::identity::Role;
use engine::state::{Degrade, Mode, Policy, State};
use engine::{Command, Mono, NodeId, Now, Wall, limits};

use crate::rng::Rng;
use machine::{BareMachine, GROUP, MachineShape};
use peer::HostilePeer;

const SECOND: u64 = 1_000_000_000;

/// Outputs for one input of the hostile peer at most: some reads, saves and applies that became possible, never one for each
/// thing it ever asked.
pub const OUTPUTS_MAX: usize = 1200;
/// Ranges read for a peer's pulls, a sync's reads, saves: each has a bound of its own, all of them together this one.
pub const READS_MAX: usize = 400;
/// Inputs of one run.
const INPUTS: usize = 250;

/// What a run came to, for a test that asks whether the generator reaches what it is made for.
#[derive(Clone, Debug, Default)]
pub struct HostileReach {
    pub frames: u64,
    /// Sessions that the victim ended.
    pub refused: u64,
    /// Of the victim, while the hostile peer was there.
    pub states: BTreeSet<&'static str>,
    pub outputs_max: usize,
    pub unsent_max: u64,
    pub payload_max: u64,
    pub reads_max: usize,
    /// Runs in which an operator had to help afterwards.
    pub helped: u64,
}

impl HostileReach {
    fn add(&mut self, other: HostileReach) {
        self.frames += other.frames;
        self.refused += other.refused;
        self.states.extend(other.states);
        self.outputs_max = self.outputs_max.max(other.outputs_max);
        self.unsent_max = self.unsent_max.max(other.unsent_max);
        self.payload_max = self.payload_max.max(other.payload_max);
        self.reads_max = self.reads_max.max(other.reads_max);
        self.helped += other.helped;
    }
}

impl fmt::Display for HostileReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostileReach { frames, refused, outputs_max, unsent_max, payload_max, reads_max, helped, states } = self;
        let states: Vec<&str> = states.iter().copied().collect();
        write!(
            f,
            "{frames} frames of hostile peers, {refused} sessions ended; at most {outputs_max} outputs for one, {unsent_max} bytes unsent, \
             {payload_max} bytes of payload held, {reads_max} reads at once; {helped} helped by an operator; states {}",
            states.join(", ")
        )
    }
}

/// ManyRuns runs, on two threads.
pub struct ManyRuns {
    pub failed: Vec<(u64, String)>,
    pub sum: HostileReach,
}

pub fn run_many(from: u64, to: u64) -> ManyRuns {
    let half = |odd: u64| {
        let mut many = ManyRuns { failed: Vec::new(), sum: HostileReach::default() };
        for seed in (from..to).filter(|seed| seed % 2 == odd) {
            match run(seed, false) {
                Ok(reached) => many.sum.add(reached),
                Err(what) => many.failed.push((seed, what)),
            }
        }
        many
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        let mut many = half(0);
        let other = other.join().expect("runs catch their own panics");
        many.failed.extend(other.failed);
        many.failed.sort();
        many.sum.add(other.sum);
        many
    })
}

struct HostileRun {
    rng: Rng,
    shape: MachineShape,
    now: Now,
    victim: BareMachine,
    honest: BareMachine,
    reads: bool,
    /// The hostile peer wrote under the name of the honest peer's own run: nothing but an operator's full sync can tell.
    forged: bool,
    reached: HostileReach,
    log: bool,
}

/// Runs one seed; an `Err` is a checker's sentence, or the engine's own assertion.
pub fn run(seed: u64, log: bool) -> Result<HostileReach, String> {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let mut run = HostileRun::new(seed, log);
        run.prepare();
        run.attack()?;
        run.heals()?;
        Ok(run.reached)
    }));
    caught.unwrap_or_else(|_| Err("an assertion failed, see above".into()))
}

impl HostileRun {
    fn new(seed: u64, log: bool) -> HostileRun {
        let mut rng = Rng::new(seed);
        let shape = MachineShape {
            volumes: rng.between(1, 2) as usize,
            volume_bytes: *rng.pick(&[1 << 20, 4 << 20]),
            mode: *rng.pick(&[Mode::Sync, Mode::Nearsync, Mode::Async]),
            policy: *rng.pick(&[Policy::Degrade, Policy::Strict, Policy::Hold(std::time::Duration::from_secs(2))]),
            degrade: *rng.pick(&Degrade::ALL),
            memory_bytes: limits::MEMORY_BYTES_MIN,
            link_timeout_s: 5,
        };
        let role = *rng.pick(&[Role::Primary, Role::Secondary]);
        let other = if role == Role::Primary { Role::Secondary } else { Role::Primary };
        let now = Now { mono: Mono(SECOND), wall: Wall(1_700_000_000 * SECOND) };
        let mut victim = BareMachine::new(0, role, shape);
        victim.log = log;
        let honest = BareMachine::new(1, other, shape);
        let reads = rng.percent(50);
        HostileRun { rng, shape, now, victim, honest, reads, forged: false, reached: HostileReach::default(), log }
    }

    // ---- before the hostile peer -------------------------------------------------------------------------------------

    /// In what the hostile peer meets its victim: fresh, in the midst of a sync, in step, or after a power loss.
    fn prepare(&mut self) {
        let now = self.now;
        self.victim.start(now);
        let kind = self.rng.below(5);
        if kind == 0 {
            return self.io(usize::MAX);
        }
        self.io(usize::MAX);
        self.honest.start(now);
        self.honest.complete_all(now);
        self.connect();
        let turns = if kind == 1 { self.rng.below(30) } else { 60 };
        for turn in 0..turns {
            self.exchange();
            if turn == 2 {
                let node = if self.victim.serves { &mut self.victim } else { &mut self.honest };
                node.command(now, Command::Sync { full: true });
            }
            if turn > 20 && turn % 8 == 0 {
                let node = if self.victim.serves { &mut self.victim } else { &mut self.honest };
                if node.serves {
                    node.write(now, &mut self.rng);
                }
            }
            if turn % 10 == 9 {
                self.pass(SECOND / 5);
            }
        }
        let now = self.now;
        self.victim.link_down(now);
        self.honest.link_down(now);
        if kind >= 3 {
            if self.victim.serves {
                (0..3).for_each(|_| self.victim.write(now, &mut self.rng));
                let some = self.rng.below(20) as usize;
                self.io(some);
            }
            let power = kind == 4;
            self.victim.restart(now, power);
            let some = if self.rng.percent(80) { usize::MAX } else { self.rng.below(20) as usize };
            self.io(some);
        }
    }

    fn connect(&mut self) {
        let session = self.rng.draw();
        self.honest.link_up(self.now, session);
        self.victim.link_up(self.now, session);
    }

    /// Frames go both ways and disks do what they were asked for.
    fn exchange(&mut self) {
        let now = self.now;
        for _ in 0..4 {
            let from_victim = std::mem::take(&mut self.victim.sent);
            let from_honest = std::mem::take(&mut self.honest.sent);
            self.victim.takes(now, u64::MAX);
            self.honest.takes(now, u64::MAX);
            for (header, bytes) in from_victim {
                assert!(self.honest.receive(now, header, bytes), "an engine's own frame is refused: {header:?}");
            }
            for (header, bytes) in from_honest {
                assert!(self.victim.receive(now, header, bytes), "an engine's own frame is refused: {header:?}");
            }
            self.io(usize::MAX);
            for _ in 0..200 {
                if self.honest.under_way() == 0 {
                    break;
                }
                self.honest.complete(now, 0);
            }
        }
    }

    fn pass(&mut self, time_ns: u64) {
        self.now = Now { mono: Mono(self.now.mono.0 + time_ns), wall: Wall(self.now.wall.0 + time_ns) };
        let now = self.now;
        self.victim.handle(now, engine::Input::Tick);
        self.honest.handle(now, engine::Input::Tick);
    }

    /// So many of the victim's disk operations end, in any order.
    fn io(&mut self, most: usize) {
        for _ in 0..most.min(100_000) {
            let waiting = self.victim.under_way() as u64;
            if waiting == 0 {
                return;
            }
            let at = self.rng.below(waiting) as usize;
            self.victim.complete(self.now, at);
        }
    }

    // ---- the hostile peer --------------------------------------------------------------------------------------------

    fn attack(&mut self) -> Result<(), String> {
        let honest = self.honest.node.glance(GROUP).map(|glance| glance.identity).unwrap_or_default();
        let mut hostile = HostilePeer::new(&mut self.rng, self.shape, honest);
        self.hostile_connects(&mut hostile);
        for _ in 0..INPUTS {
            self.note_state();
            match self.rng.below(20) {
                0..=10 => self.hostile_sends(&mut hostile)?,
                11..=13 => {
                    let some = if self.rng.percent(30) { usize::MAX } else { self.rng.below(10) as usize };
                    self.io(some);
                }
                14..=15 if self.victim.serves => self.victim.write(self.now, &mut self.rng),
                16 => {
                    let time = *self.rng.pick(&[SECOND / 1000, SECOND / 5, SECOND, 3 * SECOND]);
                    self.pass(time);
                }
                17 => self.operator(),
                18 if self.reads => {
                    let bytes = self.rng.below(2 << 20);
                    self.victim.takes(self.now, bytes);
                }
                _ => {}
            }
            self.check()?;
            self.follow(&mut hostile);
        }
        self.victim.link_down(self.now);
        self.forged = hostile.forged;
        Ok(())
    }

    fn note_state(&mut self) {
        if let Some(glance) = self.victim.node.glance(GROUP) {
            self.reached.states.insert(glance.state.word());
        }
    }

    fn hostile_connects(&mut self, hostile: &mut HostilePeer) {
        let session = self.rng.draw();
        hostile.connects(session);
        self.victim.link_up(self.now, session);
    }

    /// What the victim said is heard; where it closed the session, the hostile peer comes back.
    fn follow(&mut self, hostile: &mut HostilePeer) {
        let heard = std::mem::take(&mut self.victim.sent);
        heard.iter().for_each(|(header, bytes)| hostile.hears(header, bytes));
        if let Some(reason) = self.victim.closed.first() {
            if self.log {
                println!("  closed: {reason}");
            }
            self.reached.refused += 1;
            self.victim.link_down(self.now);
            self.hostile_connects(hostile);
        } else if self.rng.percent(1) {
            self.victim.link_down(self.now);
            self.hostile_connects(hostile);
        }
    }

    fn hostile_sends(&mut self, hostile: &mut HostilePeer) -> Result<(), String> {
        let dirty_bytes = self.dirty_bytes();
        let frames = hostile.frames(&mut self.rng);
        let count = frames.len();
        for (at, (header, bytes)) in frames.into_iter().enumerate() {
            if self.log && at == 0 {
                println!("{} x {header:?} {}", count, summary(&bytes));
            }
            self.reached.frames += 1;
            if !self.victim.receive(self.now, header, bytes) {
                // The host reads no further.
                self.victim.closed.push("a frame that nobody may send".into());
                break;
            }
            self.check()?;
        }
        let glance = self.victim.node.glance(GROUP);
        let primary = glance.is_some_and(|glance| glance.identity.role == Role::Primary);
        if primary && !hostile.confirms && self.dirty_bytes().iter().zip(&dirty_bytes).any(|(now, before)| now < before)
        {
            return Err("a bit was cleared that nobody confirmed".into());
        }
        Ok(())
    }

    fn dirty_bytes(&self) -> Vec<u64> {
        self.victim.node.dirty_regions(GROUP).iter().map(|bits| bits.dirty_bytes()).collect()
    }

    fn operator(&mut self) {
        let entropy = self.rng.draw();
        let command = match self.rng.below(14) {
            0 => Command::Logging,
            1..=4 => Command::Sync { full: false },
            5..=6 => Command::Sync { full: true },
            7 => Command::Demote,
            8 => Command::Promote { force: true, entropy },
            9 => Command::Promote { force: false, entropy },
            10 | 11 => {
                let to = NodeId(self.rng.below(2) as u16);
                let limit = Duration::from_millis(*self.rng.pick(&[100, 5000]));
                Command::Switchover { to, limit, closes_export: self.rng.percent(30), only_asks: false }
            }
            _ => return,
        };
        if self.log {
            println!("operator: {command:?}");
        }
        self.victim.command(self.now, command);
    }

    /// What the victim holds and does is inside its bounds.
    fn check(&mut self) -> Result<(), String> {
        let (reads, read_bytes) = self.victim.volume_reads();
        let reached = &mut self.reached;
        reached.outputs_max = reached.outputs_max.max(self.victim.outputs);
        reached.unsent_max = reached.unsent_max.max(self.victim.unsent_bytes);
        reached.payload_max = reached.payload_max.max(self.victim.meter.bytes());
        reached.reads_max = reached.reads_max.max(reads);
        let group = limits::CONTROL_UNSENT_BYTES_PER_GROUP;
        let unsent = limits::UNSENT_BYTES_MAX + 2 * limits::PART_BYTES_MAX + limits::CONTROL_UNSENT_BYTES_MAX + group;
        let asked = limits::PULLS_IN_FLIGHT as u64 * limits::PART_BYTES_MAX;
        let payload = self.shape.memory_bytes + limits::SAVE_HELD_BYTES_MAX + asked + limits::PART_BYTES_MAX;
        let held = self.victim.node.shared().memory_bytes;
        for (what, found, bound) in [
            ("outputs for one input", self.victim.outputs as u64, OUTPUTS_MAX as u64),
            ("bytes that wait for a peer", self.victim.unsent_bytes, unsent),
            ("bytes of payload held", self.victim.meter.bytes(), payload),
            ("reads of a volume under way", reads as u64, READS_MAX as u64),
            ("bytes being read", read_bytes, payload),
            ("bytes of memory, as it counts", held, self.shape.memory_bytes + limits::PART_BYTES_MAX),
        ] {
            if found > bound {
                return Err(format!("{found} {what}, at most {bound} may be"));
            }
        }
        Ok(())
    }

    // ---- after the hostile peer --------------------------------------------------------------------------------------

    /// An honest peer comes in its place: by itself or by an operator's word both become equal.
    fn heals(&mut self) -> Result<(), String> {
        if self.honest.node.status().is_empty() || self.honest.node.glance(GROUP).is_none_or(|g| !g.running) {
            self.honest.start(self.now);
        }
        self.connect();
        for round in 0..60u64 {
            for _ in 0..40 {
                self.exchange();
                self.pass(SECOND / 10);
            }
            if let Some(reason) = self.victim.closed.first().or(self.honest.closed.first()) {
                if !self.forged {
                    return Err(format!("honest nodes part: {reason}"));
                }
                // What the hostile peer sent as the honest peer's own run stands where that never was.
                self.victim.link_down(self.now);
                self.honest.link_down(self.now);
                self.connect();
            }
            if self.forged && (round == 4 || round == 5) {
                let node = if self.victim.serves { &mut self.victim } else { &mut self.honest };
                node.command(self.now, if round == 4 { Command::Logging } else { Command::Sync { full: true } });
            }
            if self.in_step() && !(self.forged && round < 7) {
                return self.equal();
            }
            if round >= 20 && round % 5 == 0 {
                self.operator_helps(round / 5);
            }
        }
        let status = |machine: &BareMachine| {
            let status = &machine.node.status()[0];
            format!("{:?} {} ({})", status.role, status.state, status.reason)
        };
        if self.log {
            println!("victim {}\nhonest {}", self.victim.node.explain(GROUP), self.honest.node.explain(GROUP));
        }
        Err(format!("not in step: victim {}; honest {}", status(&self.victim), status(&self.honest)))
    }

    fn in_step(&self) -> bool {
        let (Some(a), Some(b)) = (self.victim.node.glance(GROUP), self.honest.node.glance(GROUP)) else { return false };
        let role = a.identity.role != b.identity.role;
        let primary = if a.identity.role == Role::Primary { a } else { b };
        role && a.drained && b.drained && primary.state == State::Replicating && self.victim.unanswered.is_empty()
    }

    fn equal(&self) -> Result<(), String> {
        for (index, (a, b)) in self.victim.image().iter().zip(self.honest.image()).enumerate() {
            if let Some(at) = a.iter().zip(&b).position(|(a, b)| a != b) {
                return Err(format!("in step, and volume {index} differs at byte {at}"));
            }
        }
        Ok(())
    }

    /// What status says is to be typed when nothing goes on by itself.
    fn operator_helps(&mut self, round: u64) {
        self.reached.helped = 1;
        let role = |machine: &BareMachine| machine.node.glance(GROUP).map(|glance| glance.identity.role);
        let entropy = self.rng.draw();
        if self.log {
            println!("help: {}", self.victim.node.status()[0].reason);
        }
        let is_reported =
            |machine: &BareMachine| machine.node.status()[0].reason.contains("'farshore demote GROUP' here");
        match (role(&self.victim), role(&self.honest)) {
            (Some(Role::Primary), Some(Role::Primary)) => self.honest.command(self.now, Command::Demote),
            (Some(Role::Secondary), Some(Role::Secondary)) => {
                let node = if round.is_multiple_of(2) { &mut self.victim } else { &mut self.honest };
                node.command(self.now, Command::Promote { force: true, entropy });
            }
            (Some(Role::Primary), _) if is_reported(&self.victim) => self.victim.command(self.now, Command::Demote),
            (_, Some(Role::Primary)) if is_reported(&self.honest) => self.honest.command(self.now, Command::Demote),
            (Some(Role::Primary), _) => self.victim.command(self.now, Command::Sync { full: true }),
            // It may be refused over a victim that was promoted: then that one is the newer, and this one follows it.
            _ if round.is_multiple_of(2) => self.honest.command(self.now, Command::Sync { full: true }),
            _ => self.honest.command(self.now, Command::Demote),
        }
    }
}

fn summary(bytes: &[u8]) -> String {
    format!("+{}", bytes.len())
}
