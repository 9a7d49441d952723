//! Judges outside the engine. They see what a client sees (requests and answers), what the operator sees (states), and
//! the disks; of the engine they believe only the order it says it gave to writes, and check that against what clients
//! could observe.

use std::collections::{BTreeMap, VecDeque};

use engine::identity::Identity;
use engine::state::{Mode, Policy, State};
use engine::{Event, GroupId, Position, RequestId, Seq, VolumeId};

use crate::awaited::{Awaited, Excuses, PeerHas};
use crate::disk::SECTOR;
use crate::oracle::{Failure, Oracle};

/// What a request leaves in each of its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Stamp(u64),
    Zero,
}

/// The bytes of one sector of a write.
pub fn sector_bytes(fill: Fill, volume: VolumeId, sector: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    if let Fill::Stamp(write) = fill {
        for chunk in bytes.chunks_mut(32) {
            chunk[..8].copy_from_slice(&write.to_le_bytes());
            chunk[8..16].copy_from_slice(&sector.to_le_bytes());
            chunk[16..18].copy_from_slice(&(volume.0 + 1).to_le_bytes());
        }
    }
    bytes
}

/// The bytes of a run of sectors of a write.
pub fn content(fill: Fill, volume: VolumeId, sectors: std::ops::Range<u64>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((sectors.end - sectors.start) as usize * SECTOR);
    sectors.for_each(|sector| bytes.extend_from_slice(&sector_bytes(fill, volume, sector)));
    bytes
}

/// A write counts as overlapping if it meets one of so many before it.
const RECENT: usize = 16;

/// A client's request.
#[derive(Clone, Debug)]
pub enum Asked {
    Write {
        volume: VolumeId,
        offset: u64,
        length: u64,
        fill: Fill,
        fua: bool,
    },
    /// `covers`: per sector the newest write acknowledged before the flush was asked for.
    Flush {
        volume: VolumeId,
        covers: Vec<Option<u64>>,
    },
}

#[derive(Clone, Debug)]
struct Pending {
    group: GroupId,
    node: usize,
    /// When, in virtual time.
    since: u64,
    asked: Asked,
    issued_after_acked: Seq,
    /// What had happened to the group when it was admitted under a promise.
    promised_since: Option<Happened>,
    /// The peer's confirmation that its answer waits for.
    awaited: Option<Awaited>,
    admitted: Option<(Seq, Seq)>,
    /// Another node was promoted while this one still had it: what becomes of it is nobody's order.
    overtaken: bool,
}

/// One write in the order of a run.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub id: RequestId,
    first: Seq,
    pub last: Seq,
    part_bytes: u64,
    pub volume: VolumeId,
    pub offset: u64,
    pub length: u64,
    pub fill: Fill,
    /// It had its place in the stream; otherwise the secondary knows it by a region only.
    pub streamed: bool,
}

/// State changes of a group's primary, and deaths of its secondary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Happened {
    pub changes: u64,
    deaths: u64,
}

/// A sector that a failed write was for.
#[derive(Clone, Copy, Debug)]
struct Wild {
    /// The last write of it that failed.
    failed: Seq,
    /// From this number on it is known again.
    until: Option<Seq>,
}

/// A sector that is what the primary's disk made of a failed write, from a number on.
#[derive(Debug)]
struct Repaired {
    from: Seq,
    volume: VolumeId,
    sector: u64,
    bytes: [u8; SECTOR],
}

/// What a primary's disk is when its exports open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caches {
    /// The machine lived on: what was acknowledged is there, flushed or not.
    Kept,
    /// The power failed, or a flush did.
    Lost,
    /// It is another disk than the one that served before.
    Anothers,
}

/// One primary's run: where its volumes started, and the order of its writes.
#[derive(Debug)]
pub(crate) struct Run {
    base: Vec<Vec<u8>>,
    pub log: Vec<Logged>,
    last: Seq,
    /// Highest number acknowledged to a client, and acknowledged under `sync` while replicating.
    acked: Seq,
    promised: Seq,
    /// Highest number acknowledged under `nearsync` while replicating, since the secondary last died.
    received: Seq,
    /// Sectors whose local write failed: the secondary's may be the one before it or after it, up to this number, or until they
    /// are known to be repaired.
    wild: BTreeMap<(VolumeId, u64), Wild>,
    /// What they were repaired to: from that number on they hold this.
    repaired: Vec<Repaired>,
    /// Its exports have not opened yet.
    withheld: bool,
    /// The prefix that a secondary claimed last, if the next one goes on from there.
    replayed: Option<Replayed>,
}

/// The volumes of a run after a prefix of its writes.
#[derive(Debug)]
struct Replayed {
    seq: Seq,
    /// So many of the log.
    writes: usize,
    /// Nothing of it is half a write.
    is_whole: bool,
    images: Vec<Vec<u8>>,
}

/// Which run: generation's tag and incarnation.
pub(crate) type RunKey = (u64, u64);

/// What one sector of a primary's volume may hold after a power loss.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sector {
    /// Contents since the last certainty, oldest first; the flag: acknowledged.
    pub versions: Vec<(Fill, u64, bool)>,
    /// Content before `versions`.
    before: Option<[u8; SECTOR]>,
}

#[derive(Debug)]
pub(crate) struct GroupJudge {
    /// Generations that began without a promotion, by the tag of the one they go on.
    goes_on: BTreeMap<u64, u64>,
    pub runs: BTreeMap<RunKey, Run>,
    pub current: Option<(usize, RunKey)>,
    pub state: State,
    pub mode: Mode,
    pub policy: Policy,
    pub happened: Happened,
    pub excuses: Excuses,
    /// What the peer ever confirmed, by run.
    pub peer_has: BTreeMap<RunKey, PeerHas>,
    pub sectors: Vec<Vec<Sector>>,
    next_write: u64,
    /// The other side holds writes of its own past the point where the present primary was promoted.
    tail: bool,
}

#[derive(Debug)]
pub struct Judge {
    groups: BTreeMap<GroupId, GroupJudge>,
    pending: BTreeMap<RequestId, Pending>,
    recent: VecDeque<(GroupId, VolumeId, u64, u64)>,
    pub writes: u64,
    pub overlaps: u64,
    pub prefix_checks: u64,
}

impl Judge {
    pub fn new(groups: &[(GroupId, Vec<u64>)], mode: Mode, policy: Policy) -> Judge {
        let groups = groups
            .iter()
            .map(|(id, sizes)| {
                let sectors = sizes.iter().map(|s| vec![Sector::default(); *s as usize / SECTOR]).collect();
                let judge = GroupJudge {
                    goes_on: BTreeMap::new(),
                    runs: BTreeMap::new(),
                    current: None,
                    state: State::Logging,
                    mode,
                    policy,
                    happened: Happened::default(),
                    excuses: Excuses::default(),
                    peer_has: BTreeMap::new(),
                    sectors,
                    next_write: 1,
                    tail: false,
                };
                (*id, judge)
            })
            .collect();
        Judge { groups, pending: BTreeMap::new(), recent: VecDeque::new(), writes: 0, overlaps: 0, prefix_checks: 0 }
    }

    pub fn pending_on(&self, node: usize, group: GroupId) -> usize {
        self.pending.values().filter(|p| p.node == node && p.group == group).count()
    }

    /// Payload of requests that a node has not answered: its clients' memory.
    pub fn asked_bytes(&self, node: usize, group: GroupId) -> u64 {
        let payload = |p: &Pending| match p.asked {
            Asked::Write { length, fill: Fill::Stamp(_), .. } => length,
            Asked::Write { .. } | Asked::Flush { .. } => 0,
        };
        self.pending.values().filter(|p| p.node == node && p.group == group).map(payload).sum()
    }

    /// A write of the volume issued a moment ago, in flight or just done: first sector and count.
    pub fn recent(&self, group: GroupId, volume: VolumeId) -> Option<(u64, u64)> {
        let found = self.recent.iter().rev().find(|r| r.0 == group && r.1 == volume)?;
        Some((found.2 / SECTOR as u64, found.3 / SECTOR as u64))
    }

    /// The request that has waited longest: its node, and since when.
    pub fn oldest(&self) -> Option<(RequestId, usize, u64)> {
        self.pending.first_key_value().map(|(id, p)| (*id, p.node, p.since))
    }

    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn group(&mut self, id: GroupId) -> &mut GroupJudge {
        self.groups.get_mut(&id).expect("the judge knows every group")
    }

    /// A number for a new write's stamp.
    pub fn stamp(&mut self, group: GroupId) -> u64 {
        let g = self.group(group);
        g.next_write += 1;
        g.next_write
    }

    // ---- what clients do ---------------------------------------------------------------------------------------------

    pub fn issued(&mut self, id: RequestId, node: usize, group: GroupId, asked: Asked, since: u64) {
        let g = self.group(group);
        let issued_after_acked = g.current.and_then(|(_, key)| g.runs.get(&key)).map_or(Seq::NONE, |r| r.acked);
        let asked = match asked {
            Asked::Flush { volume, .. } => {
                let sectors = &g.sectors[usize::from(volume.0)];
                let last_acked = |s: &Sector| s.versions.iter().rfind(|v| v.2).map(|v| v.1);
                Asked::Flush { volume, covers: sectors.iter().map(last_acked).collect() }
            }
            Asked::Write { volume, offset, length, .. } => {
                let clash = |r: &&(GroupId, VolumeId, u64, u64)| {
                    r.0 == group && r.1 == volume && r.2 < offset + length && offset < r.2 + r.3
                };
                self.writes += 1;
                self.overlaps += u64::from(self.recent.iter().find(clash).is_some());
                self.recent.push_back((group, volume, offset, length));
                if self.recent.len() > RECENT {
                    self.recent.pop_front();
                }
                asked
            }
        };
        let (promised_since, awaited, admitted, overtaken) = (None, None, None, false);
        let pending =
            Pending { group, node, since, asked, issued_after_acked, promised_since, awaited, admitted, overtaken };
        self.pending.insert(id, pending);
    }

    pub fn replied(&mut self, id: RequestId, ok: bool) -> Result<(), Failure> {
        let Some(p) = self.pending.remove(&id) else {
            return Err(Failure::new(Oracle::Order, format!("request {} was answered twice", id.0)));
        };
        let g = self.groups.get_mut(&p.group).expect("known");
        if let (true, Some(awaited), Some((_, last))) = (ok, &p.awaited, p.admitted) {
            g.answered_with_peer(awaited, last, p.overtaken)?;
        }
        if p.overtaken {
            return Ok(());
        }
        match &p.asked {
            Asked::Flush { volume, covers } if ok => {
                for (sector, covered) in g.sectors[usize::from(volume.0)].iter_mut().zip(covers) {
                    covered.iter().for_each(|write| sector.settle(*write));
                }
            }
            Asked::Write { .. } => g.write_answered(id, &p, ok),
            Asked::Flush { .. } => {}
        }
        Ok(())
    }

    /// A node died: nobody answers its requests any more.
    pub fn node_died(&mut self, node: usize) {
        self.pending.retain(|_, p| p.node != node);
        for g in self.groups.values_mut().filter(|g| g.current.is_some_and(|(primary, _)| primary != node)) {
            // What it had received and not landed is gone with it; the primary sends it again.
            g.happened.deaths += 1;
            g.runs.values_mut().for_each(|run| run.received = Seq::NONE);
        }
    }

    // ---- what the engine says ----------------------------------------------------------------------------------------

    pub fn event(&mut self, node: usize, group: GroupId, event: &Event) -> Result<(), Failure> {
        match event {
            Event::State { to, .. } => {
                let g = self.group(group);
                if g.current.is_some_and(|(n, _)| n == node) {
                    g.state = *to;
                    g.happened.changes += 1;
                    g.state_excuses(*to);
                }
            }
            Event::Admitted { id, first, last, part_bytes } => return self.admitted(*id, *first, *last, *part_bytes),
            Event::WritesAlone { generation } => {
                let g = self.group(group);
                if let Some((_, key)) = g.current.filter(|(n, _)| *n == node) {
                    g.goes_on.insert(generation.tag, key.0);
                }
            }
            Event::LocalWriteFailed { .. } => {}
            _ => {}
        }
        Ok(())
    }

    fn admitted(&mut self, id: RequestId, first: Seq, last: Seq, part_bytes: u64) -> Result<(), Failure> {
        let Some(p) = self.pending.get_mut(&id) else {
            return Err(Failure::new(Oracle::Order, format!("request {} was admitted but never issued", id.0)));
        };
        if p.overtaken {
            return Ok(());
        }
        let g = self.groups.get_mut(&p.group).expect("known");
        let Some((_, key)) = g.current else {
            return Err(Failure::new(Oracle::Order, "a write was admitted without a primary"));
        };
        let promised = g.state == State::Replicating && matches!(g.mode, Mode::Sync | Mode::Nearsync);
        p.promised_since = promised.then_some(g.happened);
        p.awaited = g.awaits(key);
        p.admitted = Some((first, last));
        let Asked::Write { volume, offset, length, fill, .. } = p.asked else {
            return Err(Failure::new(Oracle::Order, "a flush was given a number"));
        };
        let run = g.runs.get_mut(&key).expect("the current run");
        if first <= run.last {
            return Err(Failure::new(Oracle::Order, format!("number {} was given twice in one run", first.0)));
        }
        // Rule 4: issued after an acknowledgement means a higher number.
        if first <= p.issued_after_acked {
            let what = format!("number {} is not above {}, acknowledged before", first.0, p.issued_after_acked.0);
            return Err(Failure::new(Oracle::Order, what));
        }
        run.last = last;
        let streamed = !matches!(g.state, State::Logging | State::Failed(_));
        run.log.push(Logged { id, first, last, part_bytes, volume, offset, length, fill, streamed });
        for sector in offset / SECTOR as u64..(offset + length) / SECTOR as u64 {
            g.sectors[usize::from(volume.0)][sector as usize].versions.push((fill, id.0, false));
        }
        Ok(())
    }

    /// A primary may withhold its exports: until they open its volumes are all there is of this run, and what it fetches from
    /// its peer meanwhile is where the run begins.
    pub fn primary_up(&mut self, group: GroupId, at: Position, images: &[&[u8]]) {
        let g = self.group(group);
        let key = (g.history(at.generation.tag), at.incarnation.0);
        match g.runs.get_mut(&key).filter(|run| run.withheld) {
            Some(run) => run.begins_anew(images),
            None => _ = g.runs.entry(key).or_insert_with(|| Run::new(copied(images), true)),
        }
    }

    /// A primary's run begins; `images` are its volumes now. Checks that what was acknowledged as durable is there (P4).
    pub fn primary_ready(
        &mut self,
        node: usize,
        group: GroupId,
        at: Position,
        images: &[&[u8]],
        caches: Caches,
        identity: &Identity,
    ) -> Result<(), Failure> {
        for p in self.pending.values_mut().filter(|p| p.group == group && p.node != node) {
            p.overtaken = true;
        }
        let g = self.group(group);
        if identity.continued {
            let root = g.history(identity.parent.generation.tag);
            g.goes_on.insert(identity.generation.tag, root);
        }
        if caches != Caches::Anothers {
            g.check_durable(images, caches)?;
        }
        for (volume, image) in images.iter().enumerate() {
            for (index, sector) in g.sectors[volume].iter_mut().enumerate() {
                sector.versions.clear();
                sector.before = image[index * SECTOR..(index + 1) * SECTOR].try_into().ok();
            }
        }
        let key = (g.history(at.generation.tag), at.incarnation.0);
        let run = Run::new(copied(images), false);
        if g.runs.insert(key, run).is_some_and(|before| !before.withheld) {
            let what = format!("incarnation {} of generation {} was taken twice", at.incarnation.0, at.generation);
            return Err(Failure::new(Oracle::Order, what));
        }
        g.current = Some((node, key));
        g.state = State::Logging;
        g.happened.changes += 1;
        Ok(())
    }

    /// A secondary says it holds exactly the prefix up to `at`: is it so (P2), and is all there that sync promised (P1)?
    pub fn check_prefix(&mut self, group: GroupId, at: Position, images: &[&[u8]]) -> Result<(), Failure> {
        self.prefix_checks += 1;
        let g = self.group(group);
        let key = (g.history(at.generation.tag), at.incarnation.0);
        if !g.runs.contains_key(&key) {
            return Err(Failure::new(Oracle::Prefix, format!("the secondary claims a run that never was: {at:?}")));
        }
        g.promises_kept(key, at)?;
        let run = g.runs.get_mut(&key).expect("looked up");
        let replayed = run.replayed_to(at.seq);
        let checked = run.compare_all(images, &replayed.images, at);
        run.replayed = Some(replayed).filter(|replayed| replayed.is_whole);
        checked
    }

    /// A promotion that nobody had to force: everything acknowledged before it is there (rule 15).
    pub fn check_handover(&mut self, group: GroupId, parent: Position) -> Result<(), Failure> {
        let g = self.group(group);
        let Some((_, (tag, incarnation))) = g.current else { return Ok(()) };
        let acked = g.runs.get(&(tag, incarnation)).map_or(Seq::NONE, |r| r.acked);
        let there =
            (g.history(parent.generation.tag), parent.incarnation.0) == (tag, incarnation) && parent.seq >= acked;
        if there || acked == Seq::NONE {
            return Ok(());
        }
        let what = format!(
            "promoted unforced at {parent:?}, number {} of incarnation {incarnation} was acknowledged",
            acked.0
        );
        Err(Failure::new(Oracle::Durability, what))
    }

    /// The primary that counts is overwritten by another one: nothing is known of its volumes before it serves again.
    pub fn overwritten(&mut self, group: GroupId) {
        let sectors = self.group(group).sectors.iter_mut().flatten();
        sectors.for_each(|sector| (sector.versions, sector.before) = (Vec::new(), None));
    }

    /// Some sectors of the group's present run may be on either side of a failed write.
    pub fn has_wild(&self, group: GroupId) -> bool {
        let Some(g) = self.groups.get(&group) else { return false };
        let run = g.current.and_then(|(_, key)| g.runs.get(&key));
        run.is_some_and(|run| run.wild.values().any(|wild| wild.until.is_none()))
    }

    /// Both nodes are in step, the secondary at `at`, and nothing is asked: what was wild is repaired, and is what the primary holds.
    pub fn is_repaired(&mut self, group: GroupId, at: Seq, images: &[&[u8]]) {
        let g = self.group(group);
        let Some(run) = g.current.and_then(|(_, key)| g.runs.get_mut(&key)) else { return };
        let from = run.last.max(at);
        for ((volume, sector), wild) in run.wild.iter_mut().filter(|(_, wild)| wild.until.is_none()) {
            wild.until = Some(from);
            let (volume, sector) = (*volume, *sector);
            let bytes = &images[usize::from(volume.0)][sector as usize * SECTOR..][..SECTOR];
            let bytes = bytes.try_into().expect("a whole sector");
            run.repaired.push(Repaired { from, volume, sector, bytes });
        }
    }

    /// Somebody else wrote to the volume of the primary that counts: from that sector on it holds these bytes.
    pub fn changed_outside(&mut self, group: GroupId, volume: VolumeId, first: u64, bytes: &[u8]) {
        let sectors = &mut self.group(group).sectors[usize::from(volume.0)][first as usize..];
        for (sector, bytes) in sectors.iter_mut().zip(bytes.chunks(SECTOR)) {
            (sector.versions, sector.before) = (Vec::new(), bytes.try_into().ok());
        }
    }

    /// The secondary's stores were damaged, and it said so.
    pub fn promises_void(&mut self, group: GroupId) {
        let runs = self.group(group).runs.values_mut();
        runs.for_each(|run| (run.promised, run.received) = (Seq::NONE, Seq::NONE));
    }

    /// The secondary gave up what it had received and not landed, and said so.
    pub fn received_void(&mut self, group: GroupId) {
        self.group(group).runs.values_mut().for_each(|run| run.received = Seq::NONE);
    }

    /// Another node was promoted at `parent`: does the run before hold more?
    pub fn leaves_tail(&mut self, group: GroupId, parent: Position) {
        let g = self.group(group);
        let Some((_, key)) = g.current else { return };
        let at_parent = key == (g.history(parent.generation.tag), parent.incarnation.0);
        g.tail = g.runs.get(&key).is_some_and(|run| run.last > if at_parent { parent.seq } else { Seq::NONE });
    }

    /// An operator said that the other side's copy may be overwritten, or it was.
    pub fn tail_given_up(&mut self, group: GroupId) {
        self.group(group).tail = false;
    }

    pub fn has_tail(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|g| g.tail)
    }

    /// At rest both nodes hold the same bytes (P5), and every acknowledged write is in them.
    pub fn check_equal(&self, group: GroupId, a: &[&[u8]], b: &[&[u8]]) -> Result<(), Failure> {
        for (volume, (x, y)) in a.iter().zip(b).enumerate() {
            if let Some(at) = (0..x.len() / SECTOR).find(|s| x[s * SECTOR..][..SECTOR] != y[s * SECTOR..][..SECTOR]) {
                let what = format!("group {} volume {volume} sector {at} differs at rest", group.0);
                return Err(Failure::new(Oracle::Equality, what));
            }
        }
        Ok(())
    }
}

impl Sector {
    /// This write is certain: what came before it is gone.
    fn settle(&mut self, write: u64) {
        if let Some(at) = self.versions.iter().position(|v| v.1 == write) {
            self.versions.drain(..at);
            self.before = None;
        }
    }
}

impl GroupJudge {
    /// The tag of the generation that a promotion, or the first start, began this history with.
    pub fn history(&self, tag: u64) -> u64 {
        self.goes_on.get(&tag).copied().unwrap_or(tag)
    }

    /// Marks the write's versions acknowledged; with FUA or a kept promise of `sync` they are certain (P1, P4).
    fn write_answered(&mut self, id: RequestId, p: &Pending, ok: bool) {
        let Asked::Write { volume, offset, length, fua, .. } = p.asked else { return };
        let Some(run) = self.current.and_then(|(_, key)| self.runs.get_mut(&key)) else { return };
        let Some((_, last)) = p.admitted else { return };
        let sectors = offset / SECTOR as u64..(offset + length) / SECTOR as u64;
        if !ok {
            for sector in sectors {
                let wild = run.wild.entry((volume, sector)).or_insert(Wild { failed: last, until: None });
                *wild = Wild { failed: wild.failed.max(last), until: None };
            }
            return;
        }
        for sector in sectors.clone() {
            // An older one may be answered later: it waited for the peer.
            if let Some(Wild { failed, until: until @ None }) = run.wild.get_mut(&(volume, sector))
                && last > *failed
            {
                *until = Some(last);
            }
        }
        run.acked = run.acked.max(last);
        let promise = p.promised_since;
        let kept = promise == Some(self.happened);
        let promised = promise.is_some_and(|p| p.changes == self.happened.changes) && self.mode == Mode::Sync;
        if promised {
            run.promised = run.promised.max(last);
        }
        if kept {
            run.received = run.received.max(last);
        }
        for index in sectors {
            let sector = &mut self.sectors[usize::from(volume.0)][index as usize];
            let Some(version) = sector.versions.iter_mut().find(|v| v.1 == id.0) else { continue };
            version.2 = true;
            if fua || promised {
                sector.settle(id.0);
            }
        }
    }

    /// What was acknowledged under a promise, in the history of `key`, is within the prefix up to `at` (P1).
    fn promises_kept(&self, key: RunKey, at: Position) -> Result<(), Failure> {
        let newest = |promise: fn(&Run) -> Seq| {
            let of_history = self.runs.iter().filter(|(k, run)| k.0 == key.0 && promise(run) > Seq::NONE);
            of_history.map(|(k, run)| (k.1, promise(run))).max()
        };
        for (mode, promise) in [("sync", newest(|run| run.promised)), ("nearsync", newest(|run| run.received))] {
            let Some((incarnation, promised)) = promise.filter(|p| (key.1, at.seq) < *p) else { continue };
            let what = format!(
                "{mode} acknowledged number {} of incarnation {incarnation}, the secondary ends at {} of {}",
                promised.0, at.seq.0, key.1
            );
            return Err(Failure::new(Oracle::Durability, what));
        }
        Ok(())
    }

    /// What an acknowledged flush covered is there, or something newer; with the caches kept what was acknowledged is.
    fn check_durable(&self, images: &[&[u8]], caches: Caches) -> Result<(), Failure> {
        for (volume, image) in images.iter().enumerate() {
            for (index, sector) in self.sectors[volume].iter().enumerate() {
                let found = &image[index * SECTOR..(index + 1) * SECTOR];
                let acked = sector.versions.iter().rposition(|version| version.2).filter(|_| caches == Caches::Kept);
                let newest = &sector.versions[acked.unwrap_or(0)..];
                let known = sector.before.is_some() || !sector.versions.is_empty();
                let before_ok = acked.is_none() && sector.before.as_ref().is_some_and(|b| b == found);
                let is_found = |fill: Fill| sector_bytes(fill, VolumeId(volume as u16), index as u64) == found;
                if known && !before_ok && !newest.iter().any(|version| is_found(version.0)) {
                    let covered = if acked.is_some() { "was acknowledged" } else { "an acknowledged flush covered" };
                    let what = format!(
                        "the primary's volume {volume} sector {index} lost what {covered}: it may hold {newest:?}, it holds {:?}",
                        u64::from_le_bytes(found[..8].try_into().expect("eight bytes"))
                    );
                    return Err(Failure::new(Oracle::Durability, what));
                }
            }
        }
        Ok(())
    }
}

fn copied(images: &[&[u8]]) -> Vec<Vec<u8>> {
    images.iter().map(|image| image.to_vec()).collect()
}

impl Run {
    fn new(base: Vec<Vec<u8>>, withheld: bool) -> Self {
        Run {
            base,
            log: Vec::new(),
            last: Seq::NONE,
            acked: Seq::NONE,
            promised: Seq::NONE,
            received: Seq::NONE,
            wild: BTreeMap::new(),
            repaired: Vec::new(),
            withheld,
            replayed: None,
        }
    }

    /// Nothing has counted in it yet, and its volumes changed; they keep their place in memory.
    fn begins_anew(&mut self, images: &[&[u8]]) {
        let mut base = std::mem::take(&mut self.base);
        for (volume, image) in base.iter_mut().zip(images) {
            volume.clear();
            volume.extend_from_slice(image);
        }
        *self = Run::new(base, true);
    }

    /// The volumes after exactly the numbers up to `seq`: what was looked at last, and what came after it.
    fn replayed_to(&mut self, seq: Seq) -> Replayed {
        // A repair that was found since may belong before what was replayed.
        let goes_on = |of: &Replayed| of.seq <= seq && self.repaired.is_empty();
        let fresh = || Replayed { seq: Seq::NONE, writes: 0, is_whole: true, images: self.base.clone() };
        let mut replayed = self.replayed.take().filter(goes_on).unwrap_or_else(fresh);
        let mut repaired = self.repaired.iter().filter(|of| of.from <= seq).peekable();
        let repair = |images: &mut [Vec<u8>], of: &Repaired| {
            images[usize::from(of.volume.0)][of.sector as usize * SECTOR..][..SECTOR].copy_from_slice(&of.bytes);
        };
        for write in self.log.iter().skip(replayed.writes).take_while(|w| w.first <= seq) {
            while let Some(of) = repaired.next_if(|of| of.from < write.first) {
                repair(&mut replayed.images, of);
            }
            let parts = seq.0.min(write.last.0) - write.first.0 + 1;
            let length = (parts * write.part_bytes).min(write.length);
            for sector in write.offset / SECTOR as u64..(write.offset + length) / SECTOR as u64 {
                let bytes = sector_bytes(write.fill, write.volume, sector);
                let image = &mut replayed.images[usize::from(write.volume.0)];
                image[sector as usize * SECTOR..][..SECTOR].copy_from_slice(&bytes);
            }
            replayed.is_whole &= write.last <= seq;
            replayed.writes += 1;
        }
        repaired.for_each(|of| repair(&mut replayed.images, of));
        replayed.seq = seq;
        replayed
    }

    /// A write of the sector has failed.
    pub fn has_failed(&self, volume: VolumeId, sector: u64) -> bool {
        self.wild.contains_key(&(volume, sector))
    }

    /// Nobody knows which side of a failed write the sector is on at that number.
    pub fn is_wild(&self, volume: VolumeId, sector: u64, at: Seq) -> bool {
        self.wild.get(&(volume, sector)).is_some_and(|wild| wild.until.is_none_or(|until| at < until))
    }

    fn compare_all(&self, images: &[&[u8]], expected: &[Vec<u8>], at: Position) -> Result<(), Failure> {
        for (volume, (image, expected)) in images.iter().zip(expected).enumerate() {
            self.compare(VolumeId(volume as u16), image, expected, at)?;
        }
        Ok(())
    }

    fn compare(&self, volume: VolumeId, image: &[u8], expected: &[u8], at: Position) -> Result<(), Failure> {
        if image == expected {
            return Ok(());
        }
        for sector in 0..image.len().min(expected.len()) / SECTOR {
            let (found, wanted) = (&image[sector * SECTOR..][..SECTOR], &expected[sector * SECTOR..][..SECTOR]);
            if found != wanted && !self.is_wild(volume, sector as u64, at.seq) {
                let word = |b: &[u8]| u64::from_le_bytes(b[..8].try_into().expect("eight bytes"));
                let what = format!(
                    "the secondary is not the prefix up to {}: volume {} sector {sector} holds write {}, not {}",
                    at.seq.0,
                    volume.0,
                    word(found),
                    word(wanted)
                );
                return Err(Failure::new(Oracle::Prefix, what));
            }
        }
        Ok(())
    }
}
