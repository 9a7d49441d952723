//! One order for all included writes, or the proof that there is none.
//!
//! Two kinds of "before" meet. *Follows* comes from the log: a write whose acknowledgement has a lower tick than
//! another's issue is before it. Writes are intervals on one line, so this needs no edges at all: among the writes not
//! yet placed, one may come next exactly if it was issued before the earliest of their acknowledgements. *Overlap* comes
//! from the images: where two concurrent writes cover a sector, the one seen there is the later one. These are the edges
//! given here. An order exists exactly if placing does not get stuck.

use crate::stamp::VolumeNumber;

/// A write's interval; `acknowledged` is `u64::MAX` for one of unknown outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteSpan {
    pub(crate) issued: u64,
    pub(crate) acknowledged: u64,
}

/// `before` must come before `after`, because `after` is what the sector shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    pub(crate) before: usize,
    pub(crate) after: usize,
    pub(crate) volume: VolumeNumber,
    pub(crate) sector: u64,
}

/// A way round that leads back to its start.
#[derive(Debug)]
pub(crate) struct OrderCycle {
    pub(crate) nodes: Vec<usize>,
    /// The overlap edges on it, at least one.
    pub(crate) edges: Vec<Edge>,
}

struct Sorter<'a> {
    spans: &'a [WriteSpan],
    edges: &'a [Edge],
    /// Edges of `edges` out of a node, as ranges (they are sorted by `before`).
    out: Vec<std::ops::Range<usize>>,
    waiting: Vec<usize>,
    by_ack: Vec<usize>,
    ordered: Vec<bool>,
}

/// An order of `0..spans.len()`, which are sorted by issue. `edges` are sorted and join concurrent writes only.
pub(crate) fn order_all(spans: &[WriteSpan], edges: &[Edge]) -> Result<Vec<usize>, OrderCycle> {
    let mut sorter = Sorter::new(spans, edges);
    let mut order = Vec::with_capacity(spans.len());
    let mut ready = Vec::new();
    let mut admitted = 0;
    let mut oldest = 0;
    loop {
        while oldest < spans.len() && sorter.ordered[sorter.by_ack[oldest]] {
            oldest += 1;
        }
        let Some(&first) = sorter.by_ack.get(oldest) else { return Ok(order) };
        while admitted < spans.len() && spans[admitted].issued < spans[first].acknowledged {
            if sorter.waiting[admitted] == 0 {
                ready.push(admitted);
            }
            admitted += 1;
        }
        let Some(next) = ready.pop() else { return Err(sorter.cycle(first)) };
        sorter.ordered[next] = true;
        order.push(next);
        for edge in &edges[sorter.out[next].clone()] {
            sorter.waiting[edge.after] -= 1;
            if sorter.waiting[edge.after] == 0 && edge.after < admitted {
                ready.push(edge.after);
            }
        }
    }
}

impl<'a> Sorter<'a> {
    fn new(spans: &'a [WriteSpan], edges: &'a [Edge]) -> Self {
        debug_assert!(spans.is_sorted_by_key(|span| span.issued) && edges.is_sorted());
        let mut waiting = vec![0; spans.len()];
        for edge in edges {
            waiting[edge.after] += 1;
        }
        let mut by_ack: Vec<usize> = (0..spans.len()).collect();
        by_ack.sort_by_key(|&node| spans[node].acknowledged);
        Self { spans, edges, out: ranges(spans.len(), edges), waiting, by_ack, ordered: vec![false; spans.len()] }
    }

    /// Stuck: walk backwards along what each write waits for until a write comes up again. `oldest`, the earliest
    /// acknowledged of the writes left, waits for no interval, so every stretch of "follows" can be led back to it.
    fn cycle(&self, oldest: usize) -> OrderCycle {
        let mut came_by: Vec<Option<Option<Edge>>> = vec![None; self.spans.len()];
        let mut walk = vec![oldest];
        loop {
            let node = *walk.last().expect("the walk has a start");
            if came_by[node].is_some() {
                break;
            }
            let free = self.spans[node].issued < self.spans[oldest].acknowledged;
            let edge = self.edges.iter().find(|edge| free && edge.after == node && !self.ordered[edge.before]);
            came_by[node] = Some(edge.copied());
            walk.push(edge.map_or(oldest, |edge| edge.before));
        }
        let end = walk.pop().expect("the walk has an end");
        let start = walk.iter().position(|&node| node == end).expect("the end came up before");
        let nodes: Vec<usize> = walk[start..].iter().rev().copied().collect();
        let edges = nodes.iter().filter_map(|&node| came_by[node].flatten()).collect();
        OrderCycle { nodes, edges }
    }
}

fn ranges(nodes: usize, edges: &[Edge]) -> Vec<std::ops::Range<usize>> {
    let mut at = 0;
    let range_of = |node| {
        let start = at;
        while at < edges.len() && edges[at].before == node {
            at += 1;
        }
        start..at
    };
    (0..nodes).map(range_of).collect()
}

/// For every write, the earliest acknowledgement among the writes that come at or after it in *every* order: what
/// anything placed before it must not have been issued after.
pub(crate) fn earliest_after(spans: &[WriteSpan], edges: &[Edge], order: &[usize]) -> Vec<u64> {
    let out = ranges(spans.len(), edges);
    let mut earliest = vec![u64::MAX; spans.len()];
    let mut suffix = SuffixMin::new(spans.len());
    for &node in order.iter().rev() {
        // Whatever was issued after this write's acknowledgement is later in the order, and so already known.
        let follower = spans.partition_point(|span| span.issued <= spans[node].acknowledged);
        let mut least = spans[node].acknowledged.min(suffix.least_from(follower));
        for edge in &edges[out[node].clone()] {
            least = least.min(earliest[edge.after]);
        }
        earliest[node] = least;
        suffix.lower(node, least);
    }
    earliest
}

/// Minimum over a suffix, values only ever lowered (a Fenwick tree).
struct SuffixMin(Vec<u64>);

impl SuffixMin {
    fn new(length: usize) -> Self {
        Self(vec![u64::MAX; length + 1])
    }

    fn lower(&mut self, index: usize, value: u64) {
        let mut at = self.0.len() - 1 - index;
        while at < self.0.len() {
            self.0[at] = self.0[at].min(value);
            at += at & at.wrapping_neg();
        }
    }

    fn least_from(&self, index: usize) -> u64 {
        let mut at = self.0.len() - 1 - index;
        let mut least = u64::MAX;
        while at > 0 {
            least = least.min(self.0[at]);
            at &= at - 1;
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(issued: u64, acknowledged: u64) -> WriteSpan {
        WriteSpan { issued, acknowledged }
    }

    fn edge(before: usize, after: usize) -> Edge {
        Edge { before, after, volume: VolumeNumber(0), sector: 0 }
    }

    #[test]
    fn intervals_alone_are_always_ordered() {
        let spans = [span(1, 9), span(2, 3), span(4, 5), span(10, u64::MAX)];
        let order = order_all(&spans, &[]).expect("no edges, no cycle");
        let at = |node| order.iter().position(|&other| other == node).expect("placed");
        assert!(at(1) < at(2) && at(2) < at(3) && at(0) < at(3));
    }

    #[test]
    fn two_overlaps_in_two_orders_are_a_cycle() {
        let spans = [span(1, 9), span(2, 8)];
        let cycle = order_all(&spans, &[edge(0, 1), edge(1, 0)]).expect_err("a cycle");
        assert_eq!(cycle.nodes.len(), 2);
        assert_eq!(cycle.edges.len(), 2);
    }

    #[test]
    fn a_cycle_may_go_through_the_log() {
        // 0 spans all; 1 is before 2 by the log; the images say 2, then 0, then 1.
        let spans = [span(1, 9), span(2, 3), span(4, 5)];
        let cycle = order_all(&spans, &[edge(0, 1), edge(2, 0)]).expect_err("a cycle");
        let mut nodes = cycle.nodes;
        nodes.sort_unstable();
        assert_eq!((nodes, cycle.edges.len()), (vec![0, 1, 2], 2));
    }

    #[test]
    fn what_follows_bounds_what_may_come_before() {
        // 0 must come before 1 by overlap; 1 was acknowledged at 3; so nothing issued after 3 is before 0.
        let spans = [span(1, 9), span(2, 3), span(4, 5)];
        let edges = [edge(0, 1)];
        let order = order_all(&spans, &edges).expect("an order");
        assert_eq!(earliest_after(&spans, &edges, &order), vec![3, 3, 5]);
    }

    #[test]
    fn suffix_minimum_agrees_with_a_plain_one() {
        let values = [9_u64, 4, 7, 1, 8, 3, 5];
        let mut tree = SuffixMin::new(values.len());
        for (index, &value) in values.iter().enumerate() {
            tree.lower(index, value);
        }
        for from in 0..=values.len() {
            assert_eq!(tree.least_from(from), values[from..].iter().copied().min().unwrap_or(u64::MAX));
        }
    }
}
