//! What crosses the wire: stamps that only grow, and what a secondary confirmed of which stream.

use std::collections::{BTreeMap, BTreeSet};

use engine::identity::Role;
use engine::wire::{Ack, FrameHeader, FrameKind, GroupHello, SyncBegin};
use engine::{Generation, GroupId, Incarnation, Position, Seq, Wall};

use super::epochs::EpochChecker;
use super::writes::WriteOracle;
use crate::nodes::SimCluster;
use crate::oracle::{Oracle, OracleFailure};

/// A run of numbers on the wire: group, generation's tag, incarnation.
type NumberRun = (GroupId, u64, u64);

#[derive(Default)]
pub struct WireChecker {
    /// The newest number of a run that was sent, and its stamp.
    stamps: BTreeMap<NumberRun, (Seq, Wall)>,
    /// What a secondary confirmed as durable.
    confirmed: BTreeMap<(GroupId, usize), ConfirmedPosition>,
    /// The same, and not forgotten when the secondary gives it up: a primary that lost it does not open without a word.
    ever_confirmed: BTreeMap<(GroupId, usize), ConfirmedPosition>,
    /// Nodes that were told of a catch-up snapshot last: their numbers are the snapshot's, and nothing of it is kept before its end.
    in_snapshot: BTreeSet<(GroupId, usize)>,
    /// Whether what they were told of last is a snapshot. One that was told of a stream is in its snapshot before it is ready for that.
    begins: BTreeMap<(GroupId, usize), bool>,
    epochs: EpochChecker,
}

#[derive(Clone, Copy, Debug)]
pub struct ConfirmedPosition {
    generation: u64,
    tag: u64,
    incarnation: Incarnation,
    durable: Seq,
}

impl ConfirmedPosition {
    fn new(at: Position, durable: Seq) -> ConfirmedPosition {
        let Position { generation, incarnation, .. } = at;
        ConfirmedPosition { generation: generation.number, tag: generation.tag, incarnation, durable }
    }

    /// Who stands there now has kept it.
    pub fn is_kept_at(&self, at: Position) -> bool {
        if at.generation.tag == self.tag {
            (at.incarnation, at.seq) >= (self.incarnation, self.durable)
        } else {
            at.generation.number > self.generation
        }
    }
}

impl WireChecker {
    /// A node's copy is not what it was: wiped by the operator, promoted, or its stores were damaged.
    pub fn forget(&mut self, group: GroupId, node: usize) {
        self.confirmed.remove(&(group, node));
    }

    /// What a node confirmed is nobody's any more: it was promoted, and goes on from there, or came back from an old copy.
    pub fn forget_ever(&mut self, group: GroupId, node: usize) {
        self.ever_confirmed.remove(&(group, node));
    }

    pub fn confirmed(&self, group: GroupId, node: usize) -> Option<ConfirmedPosition> {
        self.confirmed.get(&(group, node)).copied()
    }

    /// The position up to which a secondary ever confirmed its last stream as durable, whatever became of that.
    pub fn ever_confirmed(&self, group: GroupId, node: usize) -> Option<Position> {
        let last_confirmed = self.ever_confirmed.get(&(group, node))?;
        let generation = Generation { number: last_confirmed.generation, tag: last_confirmed.tag };
        Some(Position { generation, incarnation: last_confirmed.incarnation, seq: last_confirmed.durable })
    }

    /// The secondary was told of a sync in the stream last, not of a catch-up snapshot.
    pub fn syncs_in_stream(&self, group: GroupId, secondary: usize) -> bool {
        self.begins.get(&(group, secondary)) == Some(&false)
    }

    fn stamped(&mut self, header: &FrameHeader) -> Result<(), OracleFailure> {
        let run = (header.group, header.generation_tag, header.incarnation.0);
        let (seq, wall) = self.stamps.get(&run).copied().unwrap_or_default();
        if header.seq <= seq {
            return Ok(());
        }
        if header.wall < wall {
            let what =
                format!("number {} is stamped {}, number {} before it {}", header.seq.0, header.wall.0, seq.0, wall.0);
            return Err(OracleFailure::new(Oracle::Order, what));
        }
        self.stamps.insert(run, (header.seq, header.wall));
        Ok(())
    }

    /// A node hands a frame to the wire.
    pub fn observe(
        &mut self,
        cluster: &SimCluster,
        writes: &mut WriteOracle,
        node: usize,
        header: &FrameHeader,
        payload: &[u8],
    ) -> Result<(), OracleFailure> {
        let group = header.group;
        match header.kind {
            FrameKind::Data | FrameKind::Zero | FrameKind::Void | FrameKind::Probe | FrameKind::SyncEnd
                if !self.in_snapshot.contains(&(group, cluster.other(group, node))) =>
            {
                self.stamped(header)?;
                self.epochs.sends(node, header)?;
            }
            FrameKind::SyncBegin => {
                let peer = (group, cluster.other(group, node));
                self.epochs.begins(group, node);
                let is_snapshot = SyncBegin::decode(payload).is_some_and(|begin| begin.snapshot > 0);
                if is_snapshot {
                    self.in_snapshot.insert(peer);
                }
                self.begins.insert(peer, is_snapshot);
            }
            FrameKind::SyncReady if self.syncs_in_stream(group, node) => _ = self.in_snapshot.remove(&(group, node)),
            FrameKind::GroupHello | FrameKind::GroupState => {
                if header.kind == FrameKind::GroupHello {
                    // One that was reset meets its peer anew in the same session, and the stream goes on where it stands.
                    self.epochs.begins(group, cluster.other(group, node));
                }
                // A secondary greets with the position that it has received.
                if let Some(hello) = GroupHello::decode(payload).filter(|hello| hello.identity.role == Role::Secondary)
                {
                    let at = hello.identity.position;
                    writes.peer_confirmed(group, at, &Ack { received: at.seq, ..Ack::default() });
                }
            }
            FrameKind::Ack if !self.in_snapshot.contains(&(group, node)) => {
                let Some(ack) = Ack::decode(payload) else { return Ok(()) };
                check_kept(cluster, node, group, ack.noted)?;
                self.epochs.confirms(cluster.other(group, node), header, &ack)?;
                let Some(glance) = cluster.glance(node, group) else { return Ok(()) };
                let at = glance.identity.position;
                writes.peer_confirmed(group, at, &ack);
                let confirmed = ConfirmedPosition::new(at, ack.durable);
                self.confirmed.insert((group, node), confirmed);
                self.ever_confirmed.insert((group, node), confirmed);
            }
            _ => {}
        }
        Ok(())
    }
}

/// The primary forgets what it is told is not kept: overwriting that and flushing, it records nothing.
fn check_kept(cluster: &SimCluster, node: usize, group: GroupId, noted: Seq) -> Result<(), OracleFailure> {
    let oldest = cluster[node].engine().and_then(|engine| engine.oldest_kept(group));
    let Some(oldest) = oldest.filter(|oldest| *oldest <= noted) else { return Ok(()) };
    let what = format!(
        "node {node} keeps write {} and reports to its primary that it keeps nothing up to {}",
        oldest.0, noted.0
    );
    Err(OracleFailure::new(Oracle::Kept, what))
}
