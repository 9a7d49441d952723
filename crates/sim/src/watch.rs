//! Judges that look at the world as a whole: what crosses the wire, what both nodes' disks hold, who serves, how much
//! is held in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use engine::identity::Role;
use engine::limits::{KIB, REGION_BYTES, SAVE_HELD_BYTES_MAX};
use engine::state::State;
use engine::wire::{Ack, GroupHello, Header, Kind, SyncBegin};
use engine::{Generation, GroupId, Incarnation, Position, Seq, Store, VolumeId, Wall, superblock};

use crate::disk::SECTOR;
use crate::oracle::{Failure, Oracle};
use crate::world::World;

const SECOND: u64 = 1_000_000_000;

/// A request may wait for `wait_limit`, a peer window and a slow disk, never for longer than this beside them.
const ANSWER_SLACK_NS: u64 = 60 * SECOND;

/// What one write and one region read may hold beyond the queue's limit: a lone write is always let in.
const QUEUE_SLACK_BYTES: u64 = 256 * KIB;

/// Payload that lives beyond what is counted: a lone write and one region read, and as much that is confirmed in part.
const PAYLOAD_SLACK_BYTES: u64 = 2 * QUEUE_SLACK_BYTES;

/// A run of numbers on the wire: group, generation's tag, incarnation.
type Run = (GroupId, u64, u64);

/// The two copies of a region, compared when one of them had changed.
struct Compared {
    region: u64,
    /// Of the image.
    bytes: Range<usize>,
    /// The image's in both nodes, when they were compared.
    revisions: Option<[u64; 2]>,
    differ: bool,
}

/// What the judges remember of the wire.
#[derive(Default)]
pub struct Watch {
    /// The newest number of a run that was sent, and its stamp.
    stamps: BTreeMap<Run, (Seq, Wall)>,
    /// What a secondary confirmed as durable.
    confirmed: BTreeMap<(GroupId, usize), Confirmed>,
    /// The same, and not forgotten when the secondary gives it up: a primary that lost it does not open without a word.
    told: BTreeMap<(GroupId, usize), Confirmed>,
    /// Nodes that were told of a cut last: their numbers are the cut's, and nothing of it is kept before its end.
    in_cut: BTreeSet<(GroupId, usize)>,
    /// Whether what they were told of last is a cut. One that was told of a stream is in its cut before it is ready for that.
    begins: BTreeMap<(GroupId, usize), bool>,
    /// Groups with a forced promotion that took place and has not been settled: two nodes may serve.
    pub forked: BTreeSet<GroupId>,
    pub coverage_checks: u64,
    /// What was found when the two copies of a volume were compared last, and how much of it both have.
    compared: BTreeMap<(GroupId, VolumeId), (usize, Vec<Compared>)>,
    /// Stores that were damaged.
    pub rotten: BTreeSet<(usize, Store)>,
    /// Secondaries with a journal in which a batch that they count as durable was hit.
    pub hit: BTreeSet<(GroupId, usize)>,
    /// Secondaries with old records, or with a superblock in doubt, before they are synced again.
    pub spoiled: BTreeSet<(GroupId, usize)>,
    /// Primaries in doubt that have waited for their peer as long as they were told to, and may serve without it.
    pub waited_alone: BTreeSet<(GroupId, usize)>,
    /// Primaries in doubt whose operator was asked, and told that the export stays closed until he chooses.
    pub asked: BTreeSet<(GroupId, usize)>,
    /// Primaries with a volume that somebody else wrote to: nothing of that flows before an operator's word.
    unasked: BTreeSet<(GroupId, usize)>,
    /// Groups whose operator chose the primary's content over what only its peer has.
    pub chosen: BTreeSet<GroupId>,
    /// Primaries that send, by the state they told last.
    sends: BTreeSet<(GroupId, usize)>,
    /// Those that do not, and were seen to number a write in a generation of their own.
    alone: BTreeSet<(GroupId, usize)>,
}

#[derive(Clone, Copy, Debug)]
struct Confirmed {
    generation: u64,
    tag: u64,
    incarnation: Incarnation,
    durable: Seq,
}

impl Watch {
    /// A node's copy is not what it was: wiped by the operator, promoted, or its stores were damaged.
    pub fn forget(&mut self, group: GroupId, node: usize) {
        self.confirmed.remove(&(group, node));
    }

    /// What a node confirmed is nobody's any more: it was promoted, and goes on from there, or came back from an old copy.
    pub fn told_is_void(&mut self, group: GroupId, node: usize) {
        self.told.remove(&(group, node));
    }

    /// The place up to which a secondary ever confirmed its last stream as durable, whatever became of that.
    pub fn told(&self, group: GroupId, node: usize) -> Option<Position> {
        // The end of its journal may have rotted before a record counted it: that looks torn (docs/reliability.md, P9).
        let told = self.told.get(&(group, node)).filter(|_| !self.rotten.contains(&(node, Store::Journal(group))))?;
        let generation = Generation { number: told.generation, tag: told.tag };
        Some(Position { generation, incarnation: told.incarnation, seq: told.durable })
    }

    /// Somebody else wrote to a volume of a primary.
    pub fn changed_outside(&mut self, group: GroupId, node: usize) {
        self.unasked.insert((group, node));
    }

    /// The operator typed `sync` there, the other node's content took its place, or nobody knows any more: its records were damaged.
    pub fn may_flow(&mut self, group: GroupId, node: usize) {
        self.unasked.remove(&(group, node));
    }

    /// A node tells the state of a group.
    pub fn tells(&mut self, group: GroupId, node: usize, state: State) {
        self.alone.remove(&(group, node));
        if state.sends() {
            self.sends.insert((group, node));
        } else {
            self.sends.remove(&(group, node));
        }
    }

    pub fn node_died(&mut self, node: usize) {
        self.sends.retain(|(_, at)| *at != node);
        self.alone.retain(|(_, at)| *at != node);
    }

    /// The secondary was told of a sync in the stream last, not of a cut.
    pub fn syncs_in_stream(&self, group: GroupId, secondary: usize) -> bool {
        self.begins.get(&(group, secondary)) == Some(&false)
    }

    fn stamped(&mut self, header: &Header) -> Result<(), Failure> {
        let run = (header.group, header.generation_tag, header.incarnation.0);
        let (seq, wall) = self.stamps.get(&run).copied().unwrap_or_default();
        if header.seq <= seq {
            return Ok(());
        }
        if header.wall < wall {
            let what =
                format!("number {} is stamped {}, number {} before it {}", header.seq.0, header.wall.0, seq.0, wall.0);
            return Err(Failure::new(Oracle::Order, what));
        }
        self.stamps.insert(run, (header.seq, header.wall));
        Ok(())
    }
}

impl World {
    /// A node hands a frame to the wire.
    pub fn observe_frame(&mut self, node: usize, header: &Header, payload: &[u8]) -> Result<(), Failure> {
        match header.kind {
            Kind::Data | Kind::Zero | Kind::Void | Kind::Probe | Kind::SyncEnd => {
                let peer = (header.group, self.other(header.group, node));
                if self.watch.in_cut.contains(&peer) { Ok(()) } else { self.watch.stamped(header) }
            }
            Kind::SyncBegin => {
                let peer = (header.group, self.other(header.group, node));
                let is_cut = SyncBegin::decode(payload).is_some_and(|begin| begin.cut > 0);
                if is_cut {
                    self.watch.in_cut.insert(peer);
                }
                self.watch.begins.insert(peer, is_cut);
                Ok(())
            }
            Kind::SyncReady => {
                let here = (header.group, node);
                if self.watch.begins.get(&here) == Some(&false) {
                    self.watch.in_cut.remove(&here);
                }
                Ok(())
            }
            Kind::GroupHello | Kind::GroupState => {
                // A secondary greets with the place that it has received.
                if let Some(hello) = GroupHello::decode(payload).filter(|hello| hello.identity.role == Role::Secondary)
                {
                    let at = hello.identity.position;
                    self.judge.peer_confirmed(header.group, at, &Ack { received: at.seq, ..Ack::default() });
                }
                Ok(())
            }
            Kind::Ack if self.watch.in_cut.contains(&(header.group, node)) => Ok(()),
            Kind::Ack => {
                let Some(ack) = Ack::decode(payload) else { return Ok(()) };
                self.check_kept(node, header.group, ack.noted)?;
                let Some(glance) = self.glance(node, header.group) else { return Ok(()) };
                let at = glance.identity.position;
                self.judge.peer_confirmed(header.group, at, &ack);
                let confirmed = Confirmed {
                    generation: at.generation.number,
                    tag: at.generation.tag,
                    incarnation: at.incarnation,
                    durable: ack.durable,
                };
                self.watch.confirmed.insert((header.group, node), confirmed);
                self.watch.told.insert((header.group, node), confirmed);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The primary forgets what it is told is not kept: overwriting that and flushing, it records nothing.
    fn check_kept(&self, node: usize, group: GroupId, noted: Seq) -> Result<(), Failure> {
        let oldest = self.nodes[node].engine.as_ref().and_then(|engine| engine.oldest_kept(group));
        match oldest.filter(|oldest| *oldest <= noted) {
            None => Ok(()),
            Some(oldest) => {
                let what = format!(
                    "node {node} keeps write {} and tells its primary that it keeps nothing up to {}",
                    oldest.0, noted.0
                );
                Err(Failure::new(Oracle::Kept, what))
            }
        }
    }

    /// A node says something about a group.
    pub fn note(&mut self, node: usize, group: GroupId, words: &str) {
        if self.operator.rests {
            self.said.push((node, words.to_owned()));
        }
        if words.contains("not yet durable are dropped") {
            self.judge.received_void(group);
        }
        if words.contains("is damaged at byte") && words.contains("what stood on volume") {
            // Half-way back: what the promotion undid is gone, whether the node lives to say so or not.
            self.watch.forget(group, node);
        }
        if words.contains("stays closed until you choose") {
            self.watch.asked.insert((group, node));
        }
        let typed = self.operator.typed_sync.contains_key(&(group, node));
        if words.contains("the operator chose this node's content") {
            self.watch.asked.remove(&(group, node));
            if typed {
                self.watch.chosen.insert(group);
            }
        }
    }

    /// A primary numbers a write. One that no stream carries needs a generation that the peer does not know, on record (rule 5).
    pub fn check_alone(&mut self, node: usize, group: GroupId) {
        let place = (group, node);
        if self.watch.sends.contains(&place) || self.watch.alone.contains(&place) {
            return;
        }
        let file = self.nodes[node].disks[&Store::Superblock(group)].durable();
        let read = superblock::read(file, self.group_config(node, group).tag);
        // One that was damaged says nothing.
        let Some(recorded) = read.ok().and_then(|read| read.found) else { return };
        if recorded.alone || recorded.identity.generation.is_blank() {
            self.watch.alone.insert(place);
            return;
        }
        let what = format!("node {node} group {}: a write goes alone in a generation that the peer knows", group.0);
        self.fail(Failure::new(Oracle::Order, what));
    }

    /// What somebody wrote to a primary's volume from outside never flows to its peer without an order (P7).
    pub fn check_asked_for(&mut self, node: usize, group: GroupId) {
        let other = self.other(group, node);
        // That one's own content is overwritten.
        self.watch.may_flow(group, other);
        if self.watch.unasked.contains(&(group, node)) {
            let what = format!(
                "node {node} group {}: a sync sends what somebody wrote to a volume from outside, and nobody typed `sync`",
                group.0
            );
            self.fail(Failure::new(Oracle::Outside, what));
        }
    }

    /// A secondary came back whose journal was hit: it says that it is no image (P9).
    pub fn check_named(&mut self, node: usize, group: GroupId) {
        let Some(glance) = self.glance(node, group).filter(|_| self.watch.hit.remove(&(group, node))) else { return };
        let id = glance.identity;
        if !id.inconsistent && !id.generation.is_blank() {
            let what = format!(
                "node {node} stands at {:?} as if nothing was missing, and a batch that it had confirmed is not whole",
                id.position
            );
            self.fail(Failure::new(Oracle::Damage, what));
        }
    }

    /// A secondary came back: where it stands is not behind what it confirmed (P1).
    pub fn check_confirmed(&mut self, node: usize, group: GroupId) {
        let Some(told) = self.watch.confirmed.get(&(group, node)).copied() else { return };
        let Some(glance) = self.glance(node, group) else { return };
        let at = glance.identity.position;
        let kept = if at.generation.tag == told.tag {
            (at.incarnation, at.seq) >= (told.incarnation, told.durable)
        } else {
            at.generation.number > told.generation
        };
        if kept {
            return;
        }
        let undo_rots = self.watch.rotten.contains(&(node, Store::Undo(group)));
        if undo_rots && self.watch.forked.contains(&group) {
            // A rollback that a forced promotion began met the damage and was given up; what it had undone is gone.
            return self.watch.forget(group, node);
        }
        if self.watch.rotten.contains(&(node, Store::Journal(group))) {
            // It says that it lost something, or the rot is in the journal's last batch, which looks like one that was torn
            // (docs/reliability.md, P9): what the other side was promised of it is void.
            self.watch.forget(group, node);
            self.judge.promises_void(group);
        } else {
            let what = format!("node {node} confirmed {told:?} as durable and comes back at {at:?}");
            self.fail(Failure::new(Oracle::Confirmation, what));
        }
    }

    /// Looks at everything that must hold at any moment.
    pub fn look_around(&mut self) {
        for g in 0..self.options.groups() {
            let group = GroupId(g);
            self.check_covered(group);
            self.check_forks_settled(group);
            self.sees_repaired(group);
        }
        self.check_memory();
        self.check_answers();
    }

    /// At rest a failed write is known to have happened, or not, on both sides.
    fn sees_repaired(&mut self, group: GroupId) {
        let primary = self.operator.authority(group);
        let asks =
            |world: &World| self.options.pairs[group.0 as usize].iter().any(|n| world.judge.pending_on(*n, group) > 0);
        if !self.judge.has_wild(group) || !self.in_step(group) || asks(self) {
            return;
        }
        let Some(at) = self.glance(self.other(group, primary), group).map(|glance| glance.identity.position.seq) else {
            return;
        };
        self.judge.is_repaired(group, at, &self.nodes[primary].views(group));
    }

    /// The group's present primary and secondary, if both are up and through with starting.
    fn working_pair(&self, group: GroupId) -> Option<(usize, usize)> {
        let primary = self.operator.authority(group);
        let secondary = self.other(group, primary);
        let (p, s) = (self.glance(primary, group)?, self.glance(secondary, group)?);
        let roles = (p.identity.role, s.identity.role) == (Role::Primary, Role::Secondary);
        (roles && p.running && s.running && self.nodes[primary].serving.contains(&group))
            .then_some((primary, secondary))
    }

    /// Every sector that differs between two related copies lies in a dirty region of one of them (P3).
    pub fn check_covered(&mut self, group: GroupId) {
        let Some((primary, secondary)) = self.working_pair(group) else { return };
        // A copy that was given up is nobody's before it is synced again.
        if self.operator.discarded(group, secondary) || self.watch.spoiled.contains(&(group, secondary)) {
            return;
        }
        self.watch.coverage_checks += 1;
        self.compare_changed(group, primary);
        if let Some(what) = self.uncovered(group, primary, secondary) {
            self.fail(Failure::new(Oracle::Coverage, what));
        }
    }

    /// Looks which regions of the two copies differ, where one of them has changed since.
    fn compare_changed(&mut self, group: GroupId, primary: usize) {
        for v in 0..self.options.volumes {
            let store = Store::Volume(group, VolumeId(v));
            let [a, b] = self.options.pairs[group.0 as usize].map(|node| &self.nodes[node].disks[&store]);
            let used = self.volume_bytes(primary, group, VolumeId(v)).unwrap_or(0) as usize;
            let both = a.size().min(b.size()).min(used);
            let (known, compared) = self.watch.compared.entry((group, VolumeId(v))).or_default();
            if *known != both {
                let one = |(region, bytes)| Compared { region, bytes, revisions: None, differ: false };
                (*known, *compared) = (both, self.options.regions(both).into_iter().map(one).collect());
            }
            for part in compared {
                let revisions = Some([a.revision(&part.bytes), b.revision(&part.bytes)]);
                if part.revisions != revisions {
                    part.revisions = revisions;
                    part.differ = a.view()[part.bytes.clone()] != b.view()[part.bytes.clone()];
                }
            }
        }
    }

    fn uncovered(&self, group: GroupId, primary: usize, secondary: usize) -> Option<String> {
        let engines = [primary, secondary].map(|n| self.nodes[n].engine.as_ref());
        let [Some(ours), Some(theirs)] = engines else { return None };
        let volumes = (0..self.options.volumes).map(VolumeId);
        let differ = volumes.flat_map(|v| self.watch.compared[&(group, v)].1.iter().map(move |part| (v, part)));
        let mut differ = differ.filter(|(_, part)| part.differ).peekable();
        differ.peek()?;
        let (ours, theirs) = (ours.dirty_regions(group), theirs.dirty_regions(group));
        let is_dirty =
            |v: VolumeId, region: u64| [&ours, &theirs].iter().any(|dirty| dirty[usize::from(v.0)].get(region));
        let (volume, part) = differ.find(|(v, part)| !is_dirty(*v, part.region))?;
        let of = |node: usize| &self.nodes[node].disks[&Store::Volume(group, volume)].view()[part.bytes.clone()];
        Some(format!(
            "group {} volume {} region {} differs between nodes {primary} and {secondary}, and neither holds it for dirty; {}",
            group.0,
            volume.0,
            part.region,
            first_difference(part.region, of(primary), of(secondary))
        ))
    }

    fn check_memory(&mut self) {
        let engines = self.nodes.iter().enumerate().filter_map(|(node, sim)| Some((node, sim.engine.as_ref()?)));
        for (node, status) in engines.flat_map(|(node, engine)| engine.status().into_iter().map(move |s| (node, s))) {
            // One that was made smaller holds what it held.
            let queue_limit = status.settings.queue_bytes.max(self.options.queue_bytes) + QUEUE_SLACK_BYTES;
            let queue_items = status.settings.queue_items.max(self.options.queue_items);
            let over = if status.queue.bytes > queue_limit {
                format!("its queue holds {} bytes of {queue_limit}", status.queue.bytes)
            } else if status.queue.items > queue_items + 64 {
                format!("its queue holds {} items of {queue_items}", status.queue.items)
            } else if status.unapplied_bytes > self.options.window_bytes {
                format!(
                    "it holds {} bytes unapplied, the window is {}",
                    status.unapplied_bytes, self.options.window_bytes
                )
            } else {
                continue;
            };
            return self.fail(Failure::new(Oracle::Memory, format!("node {node} group {}: {over}", status.id.0)));
        }
    }

    /// The payload that lives on a node, counted by its buffers, stays within what is configured, but for what clients
    /// have not been answered for and a few pieces that are let go of in part.
    pub fn check_payload(&mut self, node: usize) {
        let o = &self.options;
        let sim = &self.nodes[node];
        let (mut most, mut sum) = (o.memory_bytes, 0);
        for (group, meters) in &sim.payload {
            let (held, aside) = (meters.queued.bytes(), meters.aside.bytes());
            let own = PAYLOAD_SLACK_BYTES + self.judge.asked_bytes(node, *group);
            let limit = if sim.serving.contains(group) { o.queue_bytes } else { o.queue_bytes.max(o.window_bytes) };
            (most, sum) = (most + own, sum + held);
            if held > limit + own || aside > SAVE_HELD_BYTES_MAX {
                let what = format!(
                    "node {node} group {} holds {held} bytes of payload of {limit} + {own}, and {aside} aside",
                    group.0
                );
                return self.fail(Failure::new(Oracle::Memory, what));
            }
        }
        if sum > most {
            let what = format!("node {node} holds {sum} bytes of payload, it may hold {most}");
            self.fail(Failure::new(Oracle::Memory, what));
        }
    }

    /// Every client is answered in bounded time while its node serves (P8).
    fn check_answers(&mut self) {
        let limit = self.options.wait_limit_ms * 1_000_000 + ANSWER_SLACK_NS;
        let Some((id, node, since)) = self.judge.oldest() else { return };
        if self.now - since > limit && self.nodes[node].trouble.stalled_until < since {
            for group in self.groups_of(node) {
                let inside = self.nodes[node].engine.as_ref().map(|engine| engine.explain(group));
                self.log(format_args!("node {node} group {}: {inside:?}", group.0));
            }
            let what = format!("request {} on node {node} has waited {} s", id.0, (self.now - since) / SECOND);
            self.fail(Failure::new(Oracle::Liveness, what));
        }
    }

    /// A node opens its exports while the other's are open: only after a forced promotion (P6).
    pub fn check_one_writer(&mut self, node: usize, group: GroupId) {
        let other = self.other(group, node);
        let both = self.nodes[other].up() && self.nodes[other].serving.contains(&group);
        if both && !self.watch.forked.contains(&group) {
            let what = format!("nodes {node} and {other} both serve group {}, nobody forced it", group.0);
            self.fail(Failure::new(Oracle::OneWriter, what));
        }
    }

    /// One primary again, in step with its secondary: the fork is history.
    fn check_forks_settled(&mut self, group: GroupId) {
        let Some((primary, _)) = self.working_pair(group) else { return };
        if self.glance(primary, group).is_some_and(|g| g.state == State::Replicating) {
            self.watch.forked.remove(&group);
        }
    }
}

/// The first sector that differs, and whose writes its two versions are.
fn first_difference(region: u64, a: &[u8], b: &[u8]) -> String {
    let mut sectors = a.chunks(SECTOR).zip(b.chunks(SECTOR)).enumerate();
    let Some((at, (x, y))) = sectors.find(|(_, (x, y))| x != y) else { return String::new() };
    let stamp = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let sector = region * REGION_BYTES / SECTOR as u64 + at as u64;
    format!("sector {sector}: write {} and write {}", stamp(x), stamp(y))
}
