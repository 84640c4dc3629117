//! The order that edges make: which node is before which, and which edges are enough.

/// For each node the set of nodes before it, as bits.
#[derive(Clone, Default, Debug)]
pub(crate) struct Order(Vec<Vec<u64>>);

impl Order {
    /// The order of `count` nodes under these edges, or none if they form a cycle.
    pub(crate) fn of(count: usize, edges: impl IntoIterator<Item = (usize, usize)>) -> Option<Self> {
        let mut before = vec![Vec::new(); count];
        let mut after = vec![Vec::new(); count];
        for (from, to) in edges {
            before[to].push(from);
            after[from].push(to);
        }
        let mut missing: Vec<usize> = before.iter().map(Vec::len).collect();
        let mut ready: Vec<usize> = (0..count).filter(|n| missing[*n] == 0).collect();
        let mut order = Self(vec![Vec::new(); count]);
        let mut placed = 0;
        while let Some(node) = ready.pop() {
            placed += 1;
            order.0[node] = order.with_ancestors(&before[node]);
            for &next in &after[node] {
                missing[next] -= 1;
                if missing[next] == 0 {
                    ready.push(next);
                }
            }
        }
        (placed == count).then_some(order)
    }

    /// Adds a node after these nodes.
    pub(crate) fn push(&mut self, after: &[usize]) {
        let ancestors = self.with_ancestors(after);
        self.0.push(ancestors);
    }

    /// Whether a path of edges leads from `a` to `b`.
    pub(crate) fn precedes(&self, a: usize, b: usize) -> bool {
        self.0[b].get(a / 64).is_some_and(|word| word >> (a % 64) & 1 == 1)
    }

    /// The fewest of `nodes` after which all of them are done: those that no other of them comes after.
    pub(crate) fn last_of(&self, nodes: &[usize]) -> Vec<usize> {
        nodes.iter().copied().filter(|a| !nodes.iter().any(|b| self.precedes(*a, *b))).collect()
    }

    /// The nodes and all that is before them.
    fn with_ancestors(&self, nodes: &[usize]) -> Vec<u64> {
        let mut set = Vec::new();
        for &node in nodes {
            let ancestors = &self.0[node];
            set.resize(set.len().max(ancestors.len()).max(node / 64 + 1), 0);
            set.iter_mut().zip(ancestors).for_each(|(s, a)| *s |= a);
            set[node / 64] |= 1 << (node % 64);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_order_and_cycles_do_not() {
        // 0 -> 1 -> 3, 0 -> 2 -> 3, and 70 nodes on, so that sets take more than one word.
        let mut edges = vec![(0, 1), (1, 3), (0, 2), (2, 3)];
        edges.extend((3..73).map(|n| (n, n + 1)));
        let order = Order::of(74, edges.iter().copied()).unwrap();
        assert!(order.precedes(0, 73) && order.precedes(2, 70));
        assert!(!order.precedes(1, 2) && !order.precedes(3, 3) && !order.precedes(73, 0));
        assert_eq!(order.last_of(&[0, 1, 2]), [1, 2]);
        assert_eq!(order.last_of(&[0, 1, 2, 3]), [3]);
        edges.push((73, 0));
        assert!(Order::of(74, edges).is_none());
    }
}
