//! A recorder: a queue whose work becomes a graph.
//!
//! Work that reads bytes comes after what last wrote them; work that writes bytes comes after what wrote them and
//! after all that read them since. Of the edges this asks for, those that a path of others implies are left out. A
//! node is a piece of work and there is no other way to record one, so that none is lost.

use std::collections::{BTreeSet, HashMap};

use crate::graph::order::Order;
use crate::queue::{Queue, Use, Work, hazard};
use crate::{Context, Error, Graph, NodeId};

/// A queue that builds a [`Graph`].
pub struct Recorder {
    graph: Graph,
    order: Order,
    /// By memory, the uses that later work may have to come after. Only looked up, never walked.
    past: HashMap<usize, Vec<Past>>,
    last: Option<NodeId>,
}

/// A use by a node.
struct Past {
    node: usize,
    used: Use,
}

impl Recorder {
    /// A recorder without work.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn new(context: &Context) -> Result<Self, Error> {
        Ok(Self { graph: Graph::new(context)?, order: Order::default(), past: HashMap::new(), last: None })
    }

    /// Records work, and gives its node, by which its arguments can be changed later.
    ///
    /// # Errors
    /// Work of another context, or what the driver refuses.
    pub fn record(&mut self, work: impl Into<Work>) -> Result<NodeId, Error> {
        let work = work.into();
        let uses = work.uses();
        let after = self.order.last_of(&self.conflicts(&uses));
        let ids: Vec<NodeId> = after.iter().map(|i| self.graph.nodes()[*i].id()).collect();
        let node = self.graph.add(&ids, work)?;
        self.order.push(&after);
        uses.into_iter().for_each(|used| self.remember(node.index(), used));
        self.last = Some(node);
        Ok(node)
    }

    /// The node recorded last.
    pub fn last(&self) -> Option<NodeId> {
        self.last
    }

    /// The graph so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The graph.
    pub fn finish(self) -> Graph {
        self.graph
    }

    /// The nodes that work with these uses must come after.
    fn conflicts(&self, uses: &[Use]) -> Vec<usize> {
        let mut nodes = BTreeSet::new();
        for new in uses {
            let past = self.past.get(&new.region.memory()).map_or(&[][..], Vec::as_slice);
            let meets = |p: &&Past| {
                hazard(p.used.access, new.access).is_some() && p.used.region.overlaps(&new.region)
            };
            nodes.extend(past.iter().filter(meets).map(|p| p.node));
        }
        nodes.into_iter().collect()
    }

    /// Adds a use. What a write covers is before it, so that nothing later need look behind the write.
    fn remember(&mut self, node: usize, used: Use) {
        let past = self.past.entry(used.region.memory()).or_default();
        if used.access.writes() {
            past.retain(|p| p.node == node || !used.region.covers(&p.used.region));
        }
        past.push(Past { node, used });
    }
}

impl Queue for Recorder {
    fn context(&self) -> &Context {
        self.graph.context()
    }

    fn push(&mut self, work: Work) -> Result<(), Error> {
        self.record(work).map(drop)
    }
}
