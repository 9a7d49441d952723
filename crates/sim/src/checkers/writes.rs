//! The oracle of writes sees what a client sees (requests and answers), what the operator sees (states), and the disks. Of
//! the engine it believes only the order it says it gave to writes, and checks that against what clients could observe.

mod awaited;
mod pulled;
mod run;

use std::collections::{BTreeMap, VecDeque};

use engine::identity::{Identity, Role};
use engine::state::{Mode, Policy, State};
use engine::{Event, GroupId, Position, RequestId, Seq, Settings, VolumeId, VolumeSet};

use crate::oracle::{Oracle, OracleFailure};
use crate::stamps::{SECTOR, SectorFill, sector_bytes};
use awaited::{AwaitedPeer, Excuses, PeerHas};
use run::{LoggedWrite, PrimaryRun, RunKey};

/// A write counts as overlapping if it meets one of so many before it.
const RECENT: usize = 16;

/// A client's request.
#[derive(Clone, Debug)]
pub enum ClientRequest {
    Write {
        volume: VolumeId,
        offset: u64,
        length: u64,
        fill: SectorFill,
        fua: bool,
    },
    /// `covers`: per sector the newest write acknowledged before the flush was asked for.
    Flush {
        volume: VolumeId,
        covers: Vec<Option<u64>>,
    },
}

impl ClientRequest {
    pub fn flush(volume: VolumeId) -> ClientRequest {
        ClientRequest::Flush { volume, covers: Vec::new() }
    }
}

#[derive(Clone, Debug)]
struct UnansweredRequest {
    group: GroupId,
    node: usize,
    /// When, in virtual time.
    since: u64,
    asked: ClientRequest,
    issued_after_acked: Seq,
    /// What had happened to the group when it was admitted under a promise.
    promised_since: Option<PromiseBreaks>,
    /// The peer's confirmation that its answer waits for.
    awaited: Option<AwaitedPeer>,
    admitted: Option<(Seq, Seq)>,
    /// Another node was promoted while this one still had it: what becomes of it is nobody's order.
    overtaken: bool,
}

/// State changes of a group's primary, and deaths of its secondary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PromiseBreaks {
    changes: u64,
    deaths: u64,
}

/// What a primary's disk is when its exports open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskCaches {
    /// The machine lived on: what was acknowledged is there, flushed or not.
    Kept,
    /// The power failed, or a flush did.
    Lost,
    /// It is another disk than the one that served before.
    Anothers,
}

/// What one sector of a primary's volume may hold after a power loss.
#[derive(Clone, Debug, Default)]
struct SectorVersions {
    /// Contents since the last certainty, oldest first; the flag: acknowledged.
    versions: Vec<(SectorFill, u64, bool)>,
    before: ContentBefore,
}

/// What a sector held before the writes that are known of it.
#[derive(Clone, Debug, Default)]
enum ContentBefore {
    #[default]
    Unknown,
    /// What the volume held when the present run began.
    RunsBase,
    /// The same, or something older: the node that was chosen then had not flushed it.
    Unflushed,
    /// Somebody else wrote it.
    Outside(Box<[u8; SECTOR]>),
}

#[derive(Debug)]
struct GroupWrites {
    /// Generations that began without a promotion, by the tag of the one they go on.
    goes_on: BTreeMap<u64, u64>,
    runs: BTreeMap<RunKey, PrimaryRun>,
    current: Option<(usize, RunKey)>,
    state: State,
    /// As its writers are answered.
    mode: Mode,
    policy: Policy,
    /// What counts on the primary, and what was typed last, which may count already.
    set: Option<Settings>,
    typed: Option<Settings>,
    /// Its mode ladder is down.
    lowered: Option<Mode>,
    happened: PromiseBreaks,
    excuses: Excuses,
    /// What the peer ever confirmed, by run.
    peer_has: BTreeMap<RunKey, PeerHas>,
    sectors: Vec<Vec<SectorVersions>>,
    next_write: u64,
    /// The other side holds writes of its own past the point where the present primary was promoted.
    tail: bool,
    /// Volumes that the present primary has set aside.
    aside: VolumeSet,
    /// What a node said of the image that it is promoted with: these volumes are no part of it.
    promoted_without: BTreeMap<usize, VolumeSet>,
}

#[derive(Debug, Default)]
pub struct WriteOracle {
    groups: BTreeMap<GroupId, GroupWrites>,
    pending: BTreeMap<RequestId, UnansweredRequest>,
    recent: VecDeque<(GroupId, VolumeId, u64, u64)>,
    writes: u64,
    overlaps: u64,
    prefix_checks: u64,
}

impl WriteOracle {
    pub fn new(groups: &[(GroupId, Vec<u64>)], mode: Mode, policy: Policy) -> WriteOracle {
        let groups = groups
            .iter()
            .map(|(id, sizes)| {
                let sectors = sizes.iter().map(|s| vec![SectorVersions::default(); *s as usize / SECTOR]).collect();
                let writes = GroupWrites {
                    goes_on: BTreeMap::new(),
                    runs: BTreeMap::new(),
                    current: None,
                    state: State::Logging,
                    mode,
                    policy,
                    set: None,
                    typed: None,
                    lowered: None,
                    happened: PromiseBreaks::default(),
                    excuses: Excuses::default(),
                    peer_has: BTreeMap::new(),
                    sectors,
                    next_write: 1,
                    tail: false,
                    aside: VolumeSet::default(),
                    promoted_without: BTreeMap::new(),
                };
                (*id, writes)
            })
            .collect();
        WriteOracle { groups, ..WriteOracle::default() }
    }

    pub fn pending_on(&self, node: usize, group: GroupId) -> usize {
        self.pending.values().filter(|p| p.node == node && p.group == group).count()
    }

    /// Payload of requests that a node has not answered: its clients' memory.
    pub fn asked_bytes(&self, node: usize, group: GroupId) -> u64 {
        let payload = |p: &UnansweredRequest| match p.asked {
            ClientRequest::Write { length, fill: SectorFill::Stamp(_), .. } => length,
            ClientRequest::Write { .. } | ClientRequest::Flush { .. } => 0,
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

    /// Writes that were issued, and those of them that met one just before them.
    pub fn writes(&self) -> (u64, u64) {
        (self.writes, self.overlaps)
    }

    pub fn prefix_checks(&self) -> u64 {
        self.prefix_checks
    }

    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    fn group(&mut self, id: GroupId) -> &mut GroupWrites {
        self.groups.get_mut(&id).expect("the oracle knows every group")
    }

    /// A number for a new write's stamp.
    pub fn stamp(&mut self, group: GroupId) -> u64 {
        let g = self.group(group);
        g.next_write += 1;
        g.next_write
    }

    // ---- what clients do ---------------------------------------------------------------------------------------------

    pub fn issued(&mut self, id: RequestId, node: usize, group: GroupId, asked: ClientRequest, since: u64) {
        let g = self.group(group);
        let issued_after_acked = g.current.and_then(|(_, key)| g.runs.get(&key)).map_or(Seq::NONE, |run| run.acked);
        // A primary that another one was promoted over numbers what it is still asked in a run of its own.
        let overtaken = g.current.is_some_and(|(counts, _)| counts != node);
        let asked = match asked {
            ClientRequest::Flush { volume, .. } => {
                let sectors = &g.sectors[usize::from(volume.0)];
                let last_acked = |s: &SectorVersions| s.versions.iter().rfind(|v| v.2).map(|v| v.1);
                ClientRequest::Flush { volume, covers: sectors.iter().map(last_acked).collect() }
            }
            ClientRequest::Write { volume, offset, length, .. } => {
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
        let (promised_since, awaited, admitted) = (None, None, None);
        let pending = UnansweredRequest {
            group,
            node,
            since,
            asked,
            issued_after_acked,
            promised_since,
            awaited,
            admitted,
            overtaken,
        };
        self.pending.insert(id, pending);
    }

    pub fn replied(&mut self, id: RequestId, ok: bool) -> Result<(), OracleFailure> {
        let Some(p) = self.pending.remove(&id) else {
            return Err(OracleFailure::new(Oracle::Order, format!("request {} was answered twice", id.0)));
        };
        let g = self.groups.get_mut(&p.group).expect("known");
        if let (true, Some(awaited), Some((_, last))) = (ok, &p.awaited, p.admitted) {
            g.answered_with_peer(awaited, last, p.overtaken)?;
        }
        if p.overtaken {
            return Ok(());
        }
        if ok && p.admitted.is_none() && matches!(p.asked, ClientRequest::Write { .. }) {
            let what = format!("write {} is acknowledged and was never given a number", id.0);
            return Err(OracleFailure::new(Oracle::Order, what));
        }
        match &p.asked {
            ClientRequest::Flush { volume, covers } if ok => {
                for (sector, covered) in g.sectors[usize::from(volume.0)].iter_mut().zip(covers) {
                    covered.iter().for_each(|write| sector.make_certain(*write));
                }
            }
            ClientRequest::Write { .. } => g.write_answered(id, &p, ok),
            ClientRequest::Flush { .. } => {}
        }
        Ok(())
    }

    /// A write that is about to be answered with success, and that the peer has not confirmed: the group's, and who answers.
    pub fn answered_alone(&self, id: RequestId) -> Option<(GroupId, usize)> {
        let p = self.pending.get(&id)?;
        let (first, last) = p.admitted.filter(|_| matches!(p.asked, ClientRequest::Write { .. }) && !p.overtaken)?;
        let g = &self.groups[&p.group];
        let (_, run) = g.current.filter(|(node, _)| *node == p.node)?;
        let received = g.peer_has.get(&run).map_or(Seq::NONE, PeerHas::received);
        // One to a volume that is set aside has no number: the peer never gets it.
        (first > last || received < last).then_some((p.group, p.node))
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

    /// A group starts anew on a node that lives on. What its secondary had received and not landed is gone, as when the node dies.
    pub fn starts_anew(&mut self, node: usize, group: GroupId) {
        let g = self.group(group);
        if g.current.is_some_and(|(primary, _)| primary != node) {
            g.happened.deaths += 1;
            g.runs.values_mut().for_each(|run| run.received = Seq::NONE);
        }
    }

    // ---- what the engine says ----------------------------------------------------------------------------------------

    pub fn event(&mut self, node: usize, group: GroupId, event: &Event) -> Result<(), OracleFailure> {
        match event {
            Event::State { to, .. } => {
                let g = self.group(group);
                if g.current.is_some_and(|(n, _)| n == node) {
                    g.state = *to;
                    g.happened.changes += 1;
                    g.state_excuses(*to);
                }
            }
            Event::QueuedAlone { .. } => self.queued_alone(node, group),
            Event::SteppedDown { to, .. } => self.steps(node, group, *to, true)?,
            Event::SteppedUp { to, .. } => self.steps(node, group, *to, false)?,
            Event::SetAside { volume } => _ = self.aside_of(node, group).map(|aside| aside.insert(*volume)),
            Event::Rejoins { volume } => _ = self.aside_of(node, group).map(|aside| aside.remove(*volume)),
            Event::PromotesWithout { volumes } => {
                self.group(group).promoted_without.insert(node, *volumes);
            }
            Event::RunGoesOn { at } => return self.group(group).run_goes_on(*at),
            Event::Ready { role: Role::Secondary, .. } => {
                self.group(group).promoted_without.remove(&node);
            }
            Event::Admitted { id, first, last, part_bytes } => return self.admitted(*id, *first, *last, *part_bytes),
            Event::WritesAlone { generation } => {
                let g = self.group(group);
                if let Some((_, key)) = g.current.filter(|(n, _)| *n == node) {
                    g.goes_on.insert(generation.tag, key.0);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn admitted(&mut self, id: RequestId, first: Seq, last: Seq, part_bytes: u64) -> Result<(), OracleFailure> {
        let Some(p) = self.pending.get_mut(&id) else {
            return Err(OracleFailure::new(Oracle::Order, format!("request {} was admitted but never issued", id.0)));
        };
        if p.overtaken {
            return Ok(());
        }
        let g = self.groups.get_mut(&p.group).expect("known");
        let Some((_, key)) = g.current else {
            return Err(OracleFailure::new(Oracle::Order, "a write was admitted without a primary"));
        };
        let ClientRequest::Write { volume, offset, length, fill, .. } = p.asked else {
            return Err(OracleFailure::new(Oracle::Order, "a flush was given a number"));
        };
        // Of a volume that is set aside nothing is promised, and nothing travels.
        let is_aside = g.aside.contains(volume);
        let promised = g.state == State::Replicating && matches!(g.mode, Mode::Sync | Mode::Nearsync) && !is_aside;
        p.promised_since = promised.then_some(g.happened);
        p.awaited = g.awaits(key).filter(|_| !is_aside);
        p.admitted = Some((first, last));
        let streamed = !matches!(g.state, State::Logging | State::Failed(_)) && !is_aside;
        // Such a write has no number of its own: it comes behind the last one given.
        let (first, last) = (first.min(last), last);
        let write = LoggedWrite {
            id,
            first,
            last,
            part_bytes,
            volume,
            offset,
            length,
            fill,
            streamed,
            never_streamed: !streamed,
        };
        g.runs.get_mut(&key).expect("the current run").admits(write, p.issued_after_acked, is_aside)?;
        for sector in offset / SECTOR as u64..(offset + length) / SECTOR as u64 {
            g.sectors[usize::from(volume.0)][sector as usize].versions.push((fill, id.0, false));
        }
        Ok(())
    }

    /// A primary may fence its exports: until they open its volumes are all there is of this run, and what it fetches from
    /// its peer meanwhile is where the run begins.
    pub fn primary_up(&mut self, group: GroupId, at: Position, images: &[&[u8]]) {
        let g = self.group(group);
        let key = (g.history(at.generation.tag), at.incarnation.0);
        let run = g.runs.entry(key).or_insert_with(PrimaryRun::unopened);
        if run.fenced && run.goes_on.is_none() {
            *run = std::mem::take(run).begins_anew(images, true);
        }
    }

    /// A primary's run begins; `images` are its volumes now, `served` those of them that have a device. Checks that what was acknowledged as
    /// durable is there (P4).
    pub fn primary_ready(
        &mut self,
        node: usize,
        group: GroupId,
        (images, served): (&[&[u8]], &[&[u8]]),
        caches: DiskCaches,
        identity: &Identity,
    ) -> Result<(), OracleFailure> {
        let at = identity.position;
        for p in self.pending.values_mut().filter(|p| p.group == group && p.node != node) {
            p.overtaken = true;
        }
        let g = self.group(group);
        if identity.continued {
            let root = g.history(identity.parent.generation.tag);
            g.goes_on.insert(identity.generation.tag, root);
        }
        if caches != DiskCaches::Anothers {
            g.check_durable(served, caches)?;
        }
        // A group that grew shows its clients the new end from here on.
        for (sectors, image) in g.sectors.iter_mut().zip(images) {
            let count = sectors.len().max(image.len() / SECTOR);
            sectors.resize_with(count, SectorVersions::default);
        }
        for sector in g.sectors.iter_mut().flatten() {
            sector.versions.clear();
            sector.before = ContentBefore::RunsBase;
        }
        let key = (g.history(at.generation.tag), at.incarnation.0);
        let mut before = g.runs.remove(&key);
        let is_taken = before.as_ref().is_some_and(|before| !before.fenced);
        let goes_on = before.take_if(|before| before.goes_on.is_some() && before.fenced);
        g.state = if goes_on.is_some() { State::Queuing } else { State::Logging };
        if let Some(mut run) = goes_on {
            // Whatever the volumes held before is what the log says now, flushed.
            let mut without = g.aside;
            let has_none = (0..).zip(served).filter(|(_, image)| image.is_empty());
            has_none.for_each(|(number, _)| _ = without.insert(VolumeId(number)));
            run.has_grown(images);
            run.check_prefix(at, images, &without)?;
            run.fenced = false;
            g.runs.insert(key, run);
            g.starts_from(served);
        } else {
            g.runs.insert(key, before.unwrap_or_default().begins_anew(images, false));
        }
        if is_taken {
            let what = format!("incarnation {} of generation {} was taken twice", at.incarnation.0, at.generation);
            return Err(OracleFailure::new(Oracle::Order, what));
        }
        g.current = Some((node, key));
        g.lowered = None;
        g.happened.changes += 1;
        Ok(())
    }

    /// Of two primaries an operator chose the one that nobody counted on: what it holds now is where its run begins anew.
    pub fn is_chosen(
        &mut self,
        node: usize,
        group: GroupId,
        (images, durable): (&[&[u8]], &[&[u8]]),
        identity: &Identity,
    ) -> Result<(), OracleFailure> {
        let at = identity.position;
        let g = self.group(group);
        if identity.continued {
            let root = g.history(identity.parent.generation.tag);
            g.goes_on.insert(identity.generation.tag, root);
        }
        let key = (g.history(at.generation.tag), at.incarnation.0);
        g.runs.remove(&key);
        self.primary_ready(node, group, (images, images), DiskCaches::Anothers, identity)?;
        // What it had written and not flushed may go with its power.
        for (volume, sectors) in self.group(group).sectors.iter_mut().enumerate() {
            for (index, sector) in sectors.iter_mut().enumerate() {
                let bytes = index * SECTOR..(index + 1) * SECTOR;
                let of = |images: &[&[u8]]| {
                    images.get(volume).and_then(|image| image.get(bytes.clone())).map(<[u8]>::to_vec)
                };
                if of(images) != of(durable) {
                    sector.before = ContentBefore::Unflushed;
                }
            }
        }
        Ok(())
    }

    /// Of the primary that counts.
    fn aside_of(&mut self, node: usize, group: GroupId) -> Option<&mut VolumeSet> {
        let g = self.group(group);
        g.current.is_some_and(|(primary, _)| primary == node).then_some(&mut g.aside)
    }

    /// Its exports open, and it says of these volumes that they are set aside.
    pub fn opens_with(&mut self, group: GroupId, aside: VolumeSet) {
        self.group(group).aside = aside;
    }

    /// Volumes that are no part of the image that a node said to be promoted with.
    pub fn promoted_without(&self, group: GroupId, node: usize) -> VolumeSet {
        let g = self.groups.get(&group);
        g.and_then(|g| g.promoted_without.get(&node)).copied().unwrap_or_default()
    }

    /// A secondary says it holds exactly the prefix up to `at`, of all volumes but these: is it so (P2), and is all there that sync
    /// promised (P1)?
    pub fn check_prefix(
        &mut self,
        group: GroupId,
        at: Position,
        images: &[&[u8]],
        without: &VolumeSet,
    ) -> Result<(), OracleFailure> {
        self.check_image(group, at, images, without)?;
        let g = self.group(group);
        g.promises_kept((g.history(at.generation.tag), at.incarnation.0), at)
    }

    /// These are the volumes, but for some, after exactly the numbers up to `at` (P2); more may have arrived.
    pub fn check_image(
        &mut self,
        group: GroupId,
        at: Position,
        images: &[&[u8]],
        without: &VolumeSet,
    ) -> Result<(), OracleFailure> {
        self.prefix_checks += 1;
        let g = self.group(group);
        let key = (g.history(at.generation.tag), at.incarnation.0);
        if !g.runs.contains_key(&key) {
            return Err(OracleFailure::new(
                Oracle::Prefix,
                format!("the secondary claims a run that never was: {at:?}"),
            ));
        }
        g.runs.get_mut(&key).expect("looked up").check_prefix(at, images, without)
    }

    /// A promotion that nobody had to force: everything acknowledged before it is there (rule 15).
    pub fn check_handover(&mut self, group: GroupId, parent: Position) -> Result<(), OracleFailure> {
        let g = self.group(group);
        let Some((_, (tag, incarnation))) = g.current else { return Ok(()) };
        let acked = g.runs.get(&(tag, incarnation)).map_or(Seq::NONE, |run| run.acked);
        let stood = (g.history(parent.generation.tag), parent.incarnation.0);
        let there = stood.0 == tag && g.begins(stood) == g.begins((tag, incarnation)) && parent.seq >= acked;
        if there || acked == Seq::NONE {
            return Ok(());
        }
        let what = format!(
            "promoted unforced at {parent:?}, number {} of incarnation {incarnation} was acknowledged",
            acked.0
        );
        Err(OracleFailure::new(Oracle::Durability, what))
    }

    /// The primary that counts is overwritten by another one: nothing is known of its volumes before it serves again.
    pub fn overwritten(&mut self, group: GroupId) {
        let sectors = self.group(group).sectors.iter_mut().flatten();
        sectors.for_each(|sector| *sector = SectorVersions::default());
    }

    /// A volume with that number comes to the group.
    pub fn knows(&mut self, group: GroupId, number: VolumeId, bytes: u64) {
        let sectors = &mut self.group(group).sectors;
        sectors.resize_with(sectors.len().max(usize::from(number.0) + 1), Vec::new);
        sectors[usize::from(number.0)].resize_with(bytes as usize / SECTOR, SectorVersions::default);
    }

    /// The primary that counts has the volume no more.
    pub fn forgets(&mut self, group: GroupId, number: VolumeId) {
        self.group(group).sectors[usize::from(number.0)].fill_with(SectorVersions::default);
    }

    /// Some sectors of the group's present run may be on either side of a failed write.
    pub fn has_wild(&self, group: GroupId) -> bool {
        let Some(g) = self.groups.get(&group) else { return false };
        let run = g.current.and_then(|(_, key)| g.runs.get(&key));
        run.is_some_and(PrimaryRun::has_wild)
    }

    /// Both nodes are in step, the secondary at `at`, and nothing is asked: what was wild is repaired, and is what the primary holds.
    pub fn is_repaired(&mut self, group: GroupId, at: Seq, images: &[&[u8]]) {
        let g = self.group(group);
        if let Some(run) = g.current.and_then(|(_, key)| g.runs.get_mut(&key)) {
            run.is_repaired(at, images);
        }
    }

    /// Somebody else wrote to the volume of the primary that counts: from that sector on it holds these bytes.
    pub fn changed_outside(&mut self, group: GroupId, volume: VolumeId, first: u64, bytes: &[u8]) {
        let sectors = &mut self.group(group).sectors[usize::from(volume.0)][first as usize..];
        for (sector, bytes) in sectors.iter_mut().zip(bytes.chunks(SECTOR)) {
            let bytes: [u8; SECTOR] = bytes.try_into().expect("a whole sector");
            *sector = SectorVersions { versions: Vec::new(), before: ContentBefore::Outside(Box::new(bytes)) };
        }
    }

    /// The secondary's stores were damaged, and it said so.
    pub fn promises_void(&mut self, group: GroupId) {
        self.group(group).runs.values_mut().for_each(|run| (run.promised, run.received) = (Seq::NONE, Seq::NONE));
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
}

impl SectorVersions {
    /// This write is certain: what came before it is gone.
    fn make_certain(&mut self, write: u64) {
        if let Some(at) = self.versions.iter().position(|v| v.1 == write) {
            self.versions.drain(..at);
            self.before = ContentBefore::Unknown;
        }
    }
}

impl GroupWrites {
    /// A start goes on from its log: the run that begins is the one before, up to this number. Nothing that was acknowledged is missing, and
    /// the peer has nothing that is not there.
    fn run_goes_on(&mut self, at: Position) -> Result<(), OracleFailure> {
        let tag = self.history(at.generation.tag);
        let runs = self.runs.range((tag, 0)..(tag, at.incarnation.0)).rev();
        let Some((key, before)) = runs.into_iter().find(|(_, run)| !run.fenced) else {
            return Err(OracleFailure::new(Oracle::Order, format!("a log goes on with a run that never was: {at:?}")));
        };
        let has = self.peer_has.get(key).copied().unwrap_or_default();
        if before.acked > at.seq || has.received() > at.seq {
            let (acked, received) = (before.acked.0, has.received().0);
            let what = format!("the log goes on at {at:?}, {acked} was acknowledged, and the peer received {received}");
            return Err(OracleFailure::new(Oracle::Durability, what));
        }
        let run = before.up_to(at.seq, before.goes_on.unwrap_or(key.1));
        self.peer_has.insert((tag, at.incarnation.0), has);
        self.runs.insert((tag, at.incarnation.0), run);
        Ok(())
    }

    /// The run in which the numbers of a run begin: starts go on from logs.
    fn begins(&self, run: RunKey) -> u64 {
        self.runs.get(&run).and_then(|run| run.goes_on).unwrap_or(run.1)
    }

    /// The volumes are this, surely.
    fn starts_from(&mut self, images: &[&[u8]]) {
        // Of a volume without a device nobody knows.
        self.sectors.iter_mut().flatten().for_each(|sector| sector.before = ContentBefore::Unknown);
        for (sectors, image) in self.sectors.iter_mut().zip(images) {
            for (sector, bytes) in sectors.iter_mut().zip(image.chunks_exact(SECTOR)) {
                sector.before = ContentBefore::Outside(Box::new(bytes.try_into().expect("a whole sector")));
            }
        }
    }

    /// The tag of the generation that a promotion, or the first start, began this history with.
    pub fn history(&self, tag: u64) -> u64 {
        self.goes_on.get(&tag).copied().unwrap_or(tag)
    }

    /// The write's versions are acknowledged; with FUA or a kept promise of `sync` they are certain (P1, P4).
    fn write_answered(&mut self, id: RequestId, p: &UnansweredRequest, ok: bool) {
        let ClientRequest::Write { volume, offset, length, fua, .. } = p.asked else { return };
        let Some(run) = self.current.and_then(|(_, key)| self.runs.get_mut(&key)) else { return };
        let Some((_, last)) = p.admitted else { return };
        let sectors = offset / SECTOR as u64..(offset + length) / SECTOR as u64;
        if !ok {
            return run.write_failed(volume, sectors, last);
        }
        run.write_done(volume, sectors.clone(), last);
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
                sector.make_certain(id.0);
            }
        }
    }

    /// What was acknowledged under a promise, in the history of `key`, is within the prefix up to `at` (P1).
    fn promises_kept(&self, key: RunKey, at: Position) -> Result<(), OracleFailure> {
        let newest = |promise: fn(&PrimaryRun) -> Seq| {
            let of_history = self.runs.iter().filter(|(k, run)| k.0 == key.0 && promise(run) > Seq::NONE);
            of_history.map(|(k, run)| (self.begins(*k), promise(run))).max()
        };
        let began = self.begins(key);
        for (mode, promise) in [("sync", newest(|run| run.promised)), ("nearsync", newest(|run| run.received))] {
            let Some((incarnation, promised)) = promise.filter(|p| (began, at.seq) < *p) else { continue };
            let what = format!(
                "{mode} acknowledged number {} of incarnation {incarnation}, the secondary ends at {} of {}",
                promised.0, at.seq.0, key.1
            );
            return Err(OracleFailure::new(Oracle::Durability, what));
        }
        Ok(())
    }

    /// What a sector held before its versions, where that is known.
    fn content_before<'a>(&'a self, sector: &'a SectorVersions, volume: usize, index: usize) -> Option<&'a [u8]> {
        match &sector.before {
            ContentBefore::Unknown | ContentBefore::Unflushed => None,
            ContentBefore::RunsBase => {
                let run = self.current.and_then(|(_, key)| self.runs.get(&key));
                run.expect("the present run").base_sector(volume, index)
            }
            ContentBefore::Outside(bytes) => Some(&bytes[..]),
        }
    }

    /// What an acknowledged flush covered is there, or something newer; with the caches kept what was acknowledged is.
    fn check_durable(&self, images: &[&[u8]], caches: DiskCaches) -> Result<(), OracleFailure> {
        for (volume, image) in images.iter().enumerate() {
            let held = image.len() / SECTOR;
            for (index, sector) in self.sectors[volume].iter().enumerate().take(held) {
                let found = &image[index * SECTOR..(index + 1) * SECTOR];
                let acked =
                    sector.versions.iter().rposition(|version| version.2).filter(|_| caches == DiskCaches::Kept);
                let newest = &sector.versions[acked.unwrap_or(0)..];
                let before = self.content_before(sector, volume, index);
                let known = before.is_some() || !sector.versions.is_empty();
                let may_be_older = matches!(sector.before, ContentBefore::Unflushed);
                let before_ok = acked.is_none() && (may_be_older || before == Some(found));
                let is_found = |fill: SectorFill| sector_bytes(fill, VolumeId(volume as u16), index as u64) == found;
                if known && !before_ok && !newest.iter().any(|version| is_found(version.0)) {
                    let covered = if acked.is_some() { "was acknowledged" } else { "an acknowledged flush covered" };
                    let what = format!(
                        "the primary's volume {volume} sector {index} lost what {covered}: it may hold {newest:?}, it holds {:?}",
                        u64::from_le_bytes(found[..8].try_into().expect("eight bytes"))
                    );
                    return Err(OracleFailure::new(Oracle::Durability, what));
                }
            }
        }
        Ok(())
    }
}
