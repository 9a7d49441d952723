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
}

#[derive(Clone, Debug, Default)]
pub struct Truth {
    nodes: [NodeTruth; 2],
}

impl Truth {
    /// A write was sent to a node: it may be there.
    pub fn issued(&mut self, node: usize, write: WriteSet) {
        let node = &mut self.nodes[node];
        node.had = node.had.and(write);
    }

    /// It was answered.
    pub fn acknowledged(&mut self, node: usize, write: WriteSet) {
        let node = &mut self.nodes[node];
        node.cached = node.cached.and(write);
    }

    /// A flush of all volumes was answered, or a demotion, which flushes.
    pub fn flushed(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.sure = node.sure.and(node.cached);
        node.cached = WriteSet::default();
    }

    pub fn lost_power(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.lost = node.lost.and(node.cached);
        (node.cached, node.was_primary) = (WriteSet::default(), false);
    }

    /// Its machine comes back as it was before any write.
    pub fn is_set_back(&mut self, node: usize) {
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

    /// Nothing is lost if this primary's content takes the place of the other node's.
    pub fn is_prefix_of(&self, primary: usize, images: [WriteSet; 2]) -> bool {
        let (ours, theirs) = (&self.nodes[primary], &self.nodes[1 - primary]);
        let known = images[primary].and(ours.lost).and(theirs.given_up);
        images[1 - primary].without(known).is_empty()
    }
}
