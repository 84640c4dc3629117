//! The order that edges make: which node is before which, and which edges are enough.

use smallvec::SmallVec;

/// A set of nodes, as bits; of 512 without memory of its own.
type Set = SmallVec<[u64; 8]>;

/// Some nodes, by their numbers.
pub(crate) type Numbers = SmallVec<[usize; 8]>;

/// For each node the set of nodes before it, kept as nodes and edges are added.
#[derive(Clone, Default, Debug)]
pub(crate) struct Order {
    before: Vec<Set>,
    /// Whether an edge leads from the node, so that others may have it in their sets.
    leads: Vec<bool>,
}

impl Order {
    /// Adds a node after these nodes.
    pub(crate) fn push(&mut self, after: &[usize]) {
        // Most nodes come after one, whose set is the beginning of theirs.
        let mut before = after.first().map_or_else(Set::new, |node| Set::from_slice(&self.before[*node]));
        for &node in after {
            self.add_to(&mut before, node);
            self.leads[node] = true;
        }
        self.before.push(before);
        self.leads.push(false);
    }

    /// Adds an edge, which must not create a cycle.
    pub(crate) fn add_edge(&mut self, from: usize, to: usize) {
        let mut earlier = Set::new();
        self.add_to(&mut earlier, from);
        self.leads[from] = true;
        unite(&mut self.before[to], &earlier);
        if self.leads[to] {
            for node in 0..self.before.len() {
                if self.precedes(to, node) {
                    unite(&mut self.before[node], &earlier);
                }
            }
        }
    }

    /// Whether a path of edges leads from `a` to `b`.
    pub(crate) fn precedes(&self, a: usize, b: usize) -> bool {
        self.before[b].get(a / 64).is_some_and(|word| word >> (a % 64) & 1 == 1)
    }

    /// All nodes, each after those that are before it.
    pub(crate) fn sorted(&self) -> Vec<usize> {
        let mut nodes: Vec<usize> = (0..self.before.len()).collect();
        // Whatever is before a node has fewer nodes before it.
        nodes.sort_by_key(|node| self.before[*node].iter().map(|word| word.count_ones()).sum::<u32>());
        nodes
    }

    /// Keeps the fewest of `nodes` after which all of them are done, in order: those that no other of them comes after.
    pub(crate) fn keep_last(&self, nodes: &mut Numbers) {
        nodes.sort_unstable();
        let mut kept = 0;
        for i in 0..nodes.len() {
            if !nodes.iter().any(|b| self.precedes(nodes[i], *b)) {
                nodes.swap(kept, i);
                kept += 1;
            }
        }
        nodes.truncate(kept);
    }

    /// Adds a node and all that is before it to a set.
    #[inline]
    fn add_to(&self, set: &mut Set, node: usize) {
        unite(set, &self.before[node]);
        if set.len() <= node / 64 {
            set.resize(node / 64 + 1, 0);
        }
        set[node / 64] |= 1 << (node % 64);
    }
}

fn unite(set: &mut Set, other: &[u64]) {
    if set.len() < other.len() {
        set.resize(other.len(), 0);
    }
    set.iter_mut().zip(other).for_each(|(a, b)| *a |= b);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_order_the_nodes_whenever_their_edges_come() {
        // 0 -> 1 -> 3, 0 -> 2 -> 3, and 70 nodes on, so that sets take more than one word.
        let mut order = Order::default();
        for after in [&[][..], &[0], &[0], &[]] {
            order.push(after);
        }
        (4..74).for_each(|n| order.push(&[n - 1]));
        assert!(!order.precedes(0, 73));
        order.add_edge(1, 3);
        order.add_edge(2, 3);
        assert!(order.precedes(0, 73) && order.precedes(2, 70));
        assert!(!order.precedes(1, 2) && !order.precedes(3, 3) && !order.precedes(73, 0));
        let last_of = |nodes: &[usize]| {
            let mut nodes = Numbers::from_slice(nodes);
            order.keep_last(&mut nodes);
            nodes.to_vec()
        };
        assert_eq!(last_of(&[2, 0, 1]), [1, 2]);
        assert_eq!(last_of(&[0, 1, 2, 3]), [3]);
    }
}
