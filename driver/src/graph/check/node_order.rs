//! The transitive order of the nodes of a graph, as a bit matrix.

/// The set of predecessors of each node, as rows of bits. It is updated as nodes and edges are
/// added.
///
/// A query is one bit test. The memory is quadratic in the number of nodes, about 128 KB for 1000
/// nodes.
#[derive(Clone, Default, Debug)]
pub(crate) struct NodeOrder {
    /// The rows, each of `stride` words.
    before: Vec<u64>,
    /// The number of words per row, enough for one bit per node.
    stride: usize,
    /// Whether an edge leads from the node, so that other rows may contain it.
    leads: Vec<bool>,
}

impl NodeOrder {
    /// Returns the order of `nodes` nodes with these edges, which must not contain a cycle.
    pub(crate) fn from_edges(nodes: usize, edges: impl Iterator<Item = (usize, usize)>) -> Self {
        let stride = nodes.div_ceil(64);
        let mut order = Self {
            before: vec![0; nodes * stride],
            stride,
            leads: vec![false; nodes],
        };
        for (from, to) in edges {
            order.add_edge(from, to);
        }

        order
    }

    /// Adds a node after these nodes.
    pub(crate) fn push(&mut self, after: &[usize]) {
        let node = self.leads.len();
        if node == self.stride * 64 {
            self.widen();
        }
        self.before.resize((node + 1) * self.stride, 0);
        self.leads.push(false);
        for from in after {
            self.put_before(*from, node);
        }
    }

    /// Adds an edge, which must not create a cycle.
    pub(crate) fn add_edge(&mut self, from: usize, to: usize) {
        self.put_before(from, to);
        // Usually `to` is the newest node, which nothing follows. Only otherwise the rows of its
        // successors change as well.
        if self.leads[to] {
            for node in 0..self.leads.len() {
                if self.precedes(to, node) {
                    self.put_before(from, node);
                }
            }
        }
    }

    /// Returns true if a path of edges leads from `a` to `b`.
    #[inline]
    pub(crate) fn precedes(&self, a: usize, b: usize) -> bool {
        self.before[b * self.stride + a / 64] >> (a % 64) & 1 == 1
    }

    /// Returns all nodes in a topological order.
    pub(crate) fn sorted(&self) -> Vec<usize> {
        let count = self.leads.len();

        // A predecessor of a node has fewer predecessors than the node. Sorting by that number and
        // then by index is therefore a topological order, and it is the same in every run.
        let earlier = |node| {
            self.row(node)
                .iter()
                .map(|word| word.count_ones() as usize)
                .sum::<usize>()
        };
        let mut nodes: Vec<usize> = (0..count)
            .map(|node| earlier(node) * count + node)
            .collect();
        nodes.sort_unstable();
        for node in &mut nodes {
            *node %= count;
        }

        nodes
    }

    /// Keeps only those nodes that no other of them follows, in ascending order. A node after the
    /// kept ones follows all of them.
    pub(crate) fn keep_last(&self, nodes: &mut Vec<usize>) {
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

    fn row(&self, node: usize) -> &[u64] {
        &self.before[node * self.stride..][..self.stride]
    }

    /// Adds a node and all its predecessors to the predecessors of another node.
    #[inline]
    fn put_before(&mut self, from: usize, to: usize) {
        let row = |node: usize| node * self.stride..(node + 1) * self.stride;
        if let Ok([earlier, later]) = self.before.get_disjoint_mut([row(from), row(to)]) {
            for (word, inherited) in later.iter_mut().zip(earlier) {
                *word |= *inherited;
            }
            later[from / 64] |= 1 << (from % 64);
        }
        self.leads[from] = true;
    }

    /// Doubles the width of the rows.
    #[cold]
    fn widen(&mut self) {
        let old = self.stride;
        let stride = (2 * self.stride).max(1);
        let mut wide = vec![0; self.leads.len() * stride];
        for node in 0..self.leads.len() {
            wide[node * stride..][..old].copy_from_slice(self.row(node));
        }
        self.before = wide;
        self.stride = stride;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_order_the_nodes_whenever_their_edges_come() {
        // 0 -> 1 -> 3, 0 -> 2 -> 3, and 70 nodes on, so that sets take more than one word.
        let mut order = NodeOrder::default();
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
            let mut nodes = nodes.to_vec();
            order.keep_last(&mut nodes);
            nodes
        };
        assert_eq!(last_of(&[2, 0, 1]), [1, 2]);
        assert_eq!(last_of(&[0, 1, 2, 3]), [3]);
    }
}
