//! Marks name points of the write order: of their own, at one moment over several groups, and the same on both nodes.

use std::collections::{BTreeMap, BTreeSet};

use engine::cell::{self, CELL_BYTES};
use engine::marks::{self, Mark};
use engine::wire::{FrameHeader, FrameKind, flags};
use engine::{CommandId, CommandResult, Event, GroupId, Position, Seq, Store};

use crate::nodes::{SimCluster, tag_of};
use crate::oracle::{Oracle, OracleFailure};

#[derive(Default)]
pub struct MarkChecker {
    /// Of the present run of a node: numbers that marks have, and the last one that a write has.
    own: BTreeMap<(usize, GroupId), BTreeSet<Seq>>,
    written: BTreeMap<(usize, GroupId), Seq>,
    /// Orders to set a mark that are not answered.
    asked: BTreeMap<CommandId, (usize, GroupId, String)>,
    /// So many writes a node has numbered, in all of its groups.
    numbered: BTreeMap<usize, u64>,
    /// How many it had when it set the first mark of a moment.
    moments: BTreeMap<(usize, u64), u64>,
    checked: u64,
    said: u64,
}

impl MarkChecker {
    /// Marks that were looked for on the peer's disk.
    pub fn checked(&self) -> u64 {
        self.checked
    }

    /// Frames about marks.
    pub fn said(&self) -> u64 {
        self.said
    }

    /// A secondary says that it has a mark: a loss of power would leave it, at that position.
    pub fn check_frame(
        &mut self,
        cluster: &SimCluster,
        node: usize,
        header: &FrameHeader,
    ) -> Result<(), OracleFailure> {
        self.said += u64::from(matches!(header.kind, FrameKind::MarkTerms | FrameKind::MarkThere));
        if header.kind != FrameKind::MarkThere || header.flags & (flags::UNKNOWN | flags::LAST) != 0 {
            return Ok(());
        }
        self.checked += 1;
        let found = durable_marks(cluster, node, header.group).into_iter().find(|mark| mark.id.0 == header.offset);
        let said = (header.generation_tag, header.incarnation, header.seq);
        let place = |mark: &Mark| (mark.position.generation.tag, mark.position.incarnation, mark.position.seq);
        match found {
            Some(mark) if place(&mark) == said => Ok(()),
            Some(mark) => Err(order(header.group, format!("{mark:?} is reported to be at {said:?}"))),
            None => {
                let what = format!("node {node} reports mark {}, which is not on record there", header.offset);
                Err(order(header.group, what))
            }
        }
    }

    /// Somebody orders a mark.
    pub fn is_ordered(&mut self, id: CommandId, (node, group): (usize, GroupId), name: &str) {
        self.asked.insert(id, (node, group, name.to_owned()));
    }

    /// Whoever is told that a mark is set finds it after a loss of power, unless it was dropped meanwhile.
    pub fn hears_answer(
        &mut self,
        cluster: &SimCluster,
        id: CommandId,
        answer: &CommandResult,
    ) -> Result<(), OracleFailure> {
        let Some((node, group, name)) = self.asked.remove(&id) else { return Ok(()) };
        let is_set = matches!(answer, CommandResult::Done(_) | CommandResult::Warning(_) | CommandResult::Unchanged(_));
        let shown =
            cluster[node].status_of(group).is_some_and(|shown| shown.marks.iter().any(|mark| mark.name == name));
        if !is_set || !shown || durable_marks(cluster, node, group).iter().any(|mark| mark.name == name) {
            return Ok(());
        }
        Err(order(group, format!("mark {name:?} is said to be set, and is not on record at node {node}")))
    }

    pub fn hears(&mut self, (node, group): (usize, GroupId), event: &Event) -> Result<(), OracleFailure> {
        match event {
            Event::Ready { .. } | Event::Promoted { .. } => {
                self.own.remove(&(node, group));
                self.written.remove(&(node, group));
                Ok(())
            }
            Event::Admitted { first, last, .. } if first <= last => self.numbers(node, group, *first, *last),
            Event::Marked { at, moment, alone, .. } => {
                self.is_at_one_moment(node, group, *moment)?;
                self.is_set(node, group, at.seq, *alone)
            }
            _ => Ok(()),
        }
    }

    fn numbers(&mut self, node: usize, group: GroupId, first: Seq, last: Seq) -> Result<(), OracleFailure> {
        *self.numbered.entry(node).or_default() += 1;
        self.written.insert((node, group), last);
        let taken = self.own.get(&(node, group)).is_some_and(|own| own.range(first..=last).next().is_some());
        if taken {
            Err(order(group, format!("a write has number {} .. {}, which is a mark's", first.0, last.0)))
        } else {
            Ok(())
        }
    }

    /// What was numbered before lies before it, and what comes then behind it.
    fn is_set(&mut self, node: usize, group: GroupId, at: Seq, alone: bool) -> Result<(), OracleFailure> {
        let written = self.written.get(&(node, group)).copied().unwrap_or(Seq::NONE);
        if at < written || !alone && at == written {
            let what = format!("a mark at {} was set behind the write of number {}", at.0, written.0);
            return Err(order(group, what));
        }
        if !alone {
            self.own.entry((node, group)).or_default().insert(at);
        }
        Ok(())
    }

    /// Nothing was numbered on that node between two marks of one moment.
    fn is_at_one_moment(&mut self, node: usize, group: GroupId, moment: u64) -> Result<(), OracleFailure> {
        let now = self.numbered.get(&node).copied().unwrap_or(0);
        let first = *self.moments.entry((node, moment)).or_insert(now);
        if moment > 0 && first != now {
            return Err(order(group, "a write was numbered between two marks of one moment".into()));
        }
        Ok(())
    }
}

fn order(group: GroupId, what: String) -> OracleFailure {
    OracleFailure::new(Oracle::Order, format!("group {}: {what}", group.0))
}

/// What a loss of power would leave of a node's marks.
pub fn durable_marks(cluster: &SimCluster, node: usize, group: GroupId) -> Vec<Mark> {
    let file = cluster[node].disk(Store::Marks(group)).durable();
    let cells = (0..).map(|index| index * CELL_BYTES).zip(file.chunks(CELL_BYTES as usize));
    let bodies = cells.filter_map(|(offset, bytes)| {
        let (_, body) = cell::choose(marks::KIND, tag_of(group), offset, bytes).newest.ok()?;
        marks::decode_slots(body).ok()
    });
    bodies.flatten().flatten().collect()
}

/// At rest, in step: whatever one node calls there is there, at the same position and under the same name, and nothing is on its way.
pub fn check_equal(cluster: &SimCluster, group: GroupId) -> Result<(), OracleFailure> {
    let primary = cluster.primary(group);
    let other = cluster.other(group, primary);
    let (Some(here), Some(there)) = (cluster[primary].status_of(group), cluster[other].status_of(group)) else {
        return Ok(());
    };
    let place = |mark: &Mark| -> (Position, String) { (mark.position, mark.name.clone()) };
    for mark in &here.marks {
        let twin = there.marks.iter().find(|twin| twin.id == mark.id);
        match twin {
            _ if !mark.there && !mark.lost => {
                return Err(order(group, format!("mark {:?} is on its way for ever: {mark:?}", mark.name)));
            }
            Some(twin) if place(twin) != place(mark) => {
                return Err(order(
                    group,
                    format!("a mark differs: {mark:?} at the primary, {twin:?} at the secondary"),
                ));
            }
            None if mark.there => {
                return Err(order(group, format!("mark {:?} is not at the secondary, which had it", mark.name)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Nothing is on its way, and what the secondary has besides is called that.
pub fn are_settled(cluster: &SimCluster, group: GroupId) -> bool {
    let primary = cluster.primary(group);
    let [here, there] = [primary, cluster.other(group, primary)].map(|node| cluster[node].status_of(group));
    let (Some(here), Some(there)) = (here, there) else { return false };
    let is_known = |mark: &Mark| mark.lost || here.marks.iter().any(|known| known.id == mark.id);
    here.marks.iter().all(|mark| mark.there || mark.lost && !mark.doubted) && there.marks.iter().all(is_known)
}
