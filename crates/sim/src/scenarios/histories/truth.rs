//! The truth of a history: which writes each node gave, held and lost. It comes from the writes that the history issued and from what the
//! images hold. Of the engine it knows no generation, position, bit or row.

/// Writes by their numbers, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WriteSet(u64);

impl WriteSet {
    pub fn of(write: usize) -> WriteSet {
        WriteSet(1 << write)
    }

    pub fn and(self, other: WriteSet) -> WriteSet {
        WriteSet(self.0 | other.0)
    }

    pub fn without(self, other: WriteSet) -> WriteSet {
        WriteSet(self.0 & !other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What a node shows of itself when the truth is looked at.
#[derive(Clone, Copy, Debug)]
pub struct SeenNode {
    pub is_primary: bool,
    /// Its image is being overwritten by a sync.
    pub is_overwritten: bool,
    /// Nothing is on its way to its volumes.
    pub is_at_rest: bool,
    /// The writes that its image holds.
    pub image: WriteSet,
}

/// What is true of a node.
#[derive(Clone, Copy, Debug, Default)]
struct NodeTruth {
    /// What no loss of power takes from it.
    sure: WriteSet,
    /// All that it ever was asked to write, or held.
    had: WriteSet,
    /// What it has answered and not flushed.
    cached: WriteSet,
    /// What it lost with its power.
    lost: WriteSet,
    /// What an operator gave up here, when he chose the other node's content.
    given_up: WriteSet,
    /// It was primary when it was looked at last, and has lived since.
    was_primary: bool,
    /// It was a copy when it was looked at last.
    was_copy: bool,
}

/// What one primary wrote, in its order: from when it was first asked for a write until its run ended.
#[derive(Clone, Debug)]
struct WriteOrder {
    node: usize,
    is_over: bool,
    /// What it held before.
    base: WriteSet,
    /// Each write, and whether it was answered: one that was not may be there or not.
    asked: Vec<(WriteSet, bool)>,
}

#[derive(Clone, Debug, Default)]
pub struct Truth {
    nodes: [NodeTruth; 2],
    orders: Vec<WriteOrder>,
    /// What primaries held before they were asked for anything. Of what caches lost no order is left.
    begun_with: Vec<WriteSet>,
}

impl WriteOrder {
    /// The image is what the order leaves after some of its first writes, and nothing else.
    fn has_prefix(&self, image: WriteSet) -> bool {
        let (mut most, mut least) = (self.base, self.base);
        let is_it = |least: WriteSet, most: WriteSet| least.without(image).is_empty() && image.without(most).is_empty();
        let mut found = is_it(least, most);
        for (write, is_answered) in &self.asked {
            most = most.and(*write);
            least = if *is_answered { least.and(*write) } else { least };
            found |= is_it(least, most);
        }
        found
    }
}

impl Truth {
    /// A write was sent to a node, whose `image` was that: it may be there.
    pub fn issued(&mut self, number: usize, write: WriteSet, image: WriteSet) {
        let node = &mut self.nodes[number];
        node.had = node.had.and(write);
        match self.order_of(number) {
            Some(order) => order.asked.push((write, false)),
            None => {
                let asked = vec![(write, false)];
                self.orders.push(WriteOrder { node: number, is_over: false, base: image, asked });
            }
        }
    }

    /// It was answered.
    pub fn acknowledged(&mut self, number: usize, write: WriteSet) {
        let node = &mut self.nodes[number];
        node.cached = node.cached.and(write);
        let asked = self.order_of(number).and_then(|order| order.asked.last_mut());
        asked.filter(|(asked, _)| *asked == write).into_iter().for_each(|(_, is_answered)| *is_answered = true);
    }

    /// That of its present run, if it was asked for a write in that.
    fn order_of(&mut self, node: usize) -> Option<&mut WriteOrder> {
        self.orders.iter_mut().find(|order| order.node == node && !order.is_over)
    }

    /// Its run ends: another begins with what it holds then.
    pub fn run_ends(&mut self, node: usize) {
        self.order_of(node).into_iter().for_each(|order| order.is_over = true);
    }

    /// What some primary wrote, up to a write and without a gap (P2).
    fn is_some_prefix(&self, image: WriteSet) -> bool {
        image.is_empty() || self.begun_with.contains(&image) || self.orders.iter().any(|order| order.has_prefix(image))
    }

    /// A flush of all volumes was answered, or a demotion, which flushes.
    pub fn flushed(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.sure = node.sure.and(node.cached);
        node.cached = WriteSet::default();
    }

    pub fn lost_power(&mut self, node: usize) {
        self.run_ends(node);
        let node = &mut self.nodes[node];
        node.lost = node.lost.and(node.cached);
        (node.cached, node.was_primary) = (WriteSet::default(), false);
    }

    /// Its machine comes back as it was before any write.
    pub fn is_set_back(&mut self, node: usize) {
        self.run_ends(node);
        let node = &mut self.nodes[node];
        *node = NodeTruth { had: node.had, ..NodeTruth::default() };
    }

    /// A write was answered that both nodes hold for good.
    pub fn is_on_both(&mut self, node: usize, write: WriteSet) {
        let other = &mut self.nodes[1 - node];
        other.sure = other.sure.and(write);
    }

    /// An operator chose this node's content: what only the other one holds is given up.
    pub fn is_chosen(&mut self, node: usize, images: [WriteSet; 2]) {
        let other = &mut self.nodes[1 - node];
        other.given_up = other.given_up.and(images[1 - node].without(images[node]));
    }

    /// A node that runs is looked at. What no loss of power has taken it still holds, and what it holds as primary was once its own.
    pub fn look(&mut self, number: usize, seen: SeenNode) -> Result<(), String> {
        self.look_at_order(number, seen)?;
        let node = &mut self.nodes[number];
        let missing = node.sure.and(node.cached).without(seen.image).without(node.given_up);
        if !missing.is_empty() {
            return Err(format!("node {number} held {missing:?} for good, nobody gave that up, and it is gone"));
        }
        let merged = seen.image.without(node.had);
        if node.was_primary && seen.is_primary && !merged.is_empty() {
            return Err(format!("node {number} was primary all the time and holds {merged:?}, which it never had"));
        }
        node.had = node.had.and(seen.image);
        node.was_primary = seen.is_primary;
        if seen.is_primary || !seen.is_overwritten {
            node.sure = seen.image.without(node.cached);
        }
        Ok(())
    }

    /// An image is what a primary wrote up to some write: of a copy always, and of a node that was one and is promoted.
    fn look_at_order(&mut self, number: usize, seen: SeenNode) -> Result<(), String> {
        let is_image = seen.is_at_rest && !seen.is_overwritten;
        let was_copy = core::mem::replace(&mut self.nodes[number].was_copy, !seen.is_primary);
        if is_image && (!seen.is_primary || was_copy) && !self.is_some_prefix(seen.image) {
            return Err(format!("node {number} holds {:?}: no primary ever wrote that, and nothing else", seen.image));
        }
        if !seen.is_primary {
            self.run_ends(number);
        } else if self.order_of(number).is_none() && !self.begun_with.contains(&seen.image) {
            self.begun_with.push(seen.image);
        }
        Ok(())
    }

    /// Nothing is lost if this primary's content takes the place of the other node's.
    pub fn is_prefix_of(&self, primary: usize, images: [WriteSet; 2]) -> bool {
        let (ours, theirs) = (&self.nodes[primary], &self.nodes[1 - primary]);
        let known = images[primary].and(ours.lost).and(theirs.given_up);
        images[1 - primary].without(known).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(writes: &[usize]) -> WriteSet {
        writes.iter().fold(WriteSet::default(), |all, write| all.and(WriteSet::of(*write)))
    }

    fn seen(is_primary: bool, writes: &[usize]) -> SeenNode {
        SeenNode { is_primary, is_overwritten: false, is_at_rest: true, image: set(writes) }
    }

    /// Node 0 has written three times, and its third write was not answered.
    fn written() -> Truth {
        let mut truth = Truth::default();
        truth.look(0, seen(true, &[])).expect("nothing was written");
        for write in 0..3 {
            truth.issued(0, set(&[write]), set(&(0..write).collect::<Vec<_>>()));
            if write < 2 {
                truth.acknowledged(0, set(&[write]));
            }
        }
        truth
    }

    // proves: P2
    /// No set of writes was lost, and none is of another history. A copy that holds the second write without the first one passed.
    #[test]
    fn a_copy_with_a_gap_is_objected_to() {
        for (writes, is_prefix) in [
            (&[][..], true),
            (&[0], true),
            (&[0, 1], true),
            (&[0, 1, 2], true),
            (&[1], false),
            (&[0, 2], false),
            (&[2], false),
            (&[0, 1, 3], false),
        ] {
            assert_eq!(written().look(1, seen(false, writes)).is_ok(), is_prefix, "{writes:?}");
            let mut truth = written();
            truth.look(1, seen(false, &[])).expect("nothing has arrived");
            assert_eq!(truth.look(1, seen(true, writes)).is_ok(), is_prefix, "{writes:?}, and it is promoted");
        }
    }

    /// What its caches lose follows no order, and whoever follows it then has what it has.
    #[test]
    fn what_a_primary_begins_with_after_a_loss_of_power_is_an_image() {
        let mut truth = written();
        truth.lost_power(0);
        truth.look(0, seen(true, &[1])).expect("nothing of it was flushed");
        truth.look(1, seen(false, &[1])).expect("it follows");
        truth.issued(0, set(&[3]), set(&[1]));
        truth.look(1, seen(false, &[1, 3])).expect("and goes on");
        assert!(truth.look(1, seen(false, &[3])).is_err());
    }
}
