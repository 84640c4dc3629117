//! A recorder: a queue whose work becomes a graph, in one of two forms.
//!
//! [`Recorder::new`] draws the fewest edges. Work that reads bytes comes after what last wrote them; work that writes bytes comes after what wrote them and
//! after all that read them since. Of the edges this asks for, those that a path of others implies are left out. A
//! node is a piece of work and there is no other way to record one, so that none is lost.
//!
//! [`Recorder::chain`] draws one chain: each piece of work after exactly the one before it, which devices start
//! fastest. Where a kernel executes `griddepcontrol.wait` and the one before it is a kernel too, the edge is
//! programmatic and the two overlap; everything else waits for the end of what is before it. As a kernel that does
//! not wait is never at the end of a programmatic edge, every kernel may rely, once it has waited, on all before it,
//! but for what it reads by `ld.global.nc`: that, no kernel before it may write with which it overlaps, and a chain
//! that would have it so is refused. Where edges are full there is nothing to refuse.

use std::collections::{BTreeSet, HashMap};

use crate::graph::edge::can_overlap;
use crate::graph::order::Order;
use crate::queue::{Queue, Use, Work, hazard};
use crate::{Context, EdgeKind, Error, Graph, NodeId};

/// A queue that builds a [`Graph`].
pub struct Recorder {
    graph: Graph,
    last: Option<NodeId>,
    /// Whether the next work of a chain does not overlap.
    apart: bool,
    /// What the fewest edges follow from; none for a chain.
    history: Option<History>,
}

/// What was recorded, as far as later work may have to come after it.
#[derive(Default)]
struct History {
    order: Order,
    /// The uses by memory. Only looked up, never walked.
    past: HashMap<usize, Vec<Past>>,
}

/// A use by a node.
struct Past {
    node: usize,
    used: Use,
}

impl Recorder {
    /// A recorder of the fewest edges.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn new(context: &Context) -> Result<Self, Error> {
        Ok(Self { graph: Graph::new(context)?, last: None, apart: false, history: Some(History::default()) })
    }

    /// A recorder of one chain, whose kernels overlap where they wait and the device can:
    /// [`Graph::programmatic_edges`] tells how many do. Its kernels prefer shared memory, all of them, as
    /// [`Function::prefer_shared`](crate::Function::prefer_shared) advises.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn chain(context: &Context) -> Result<Self, Error> {
        Ok(Self { graph: Graph::new(context)?, last: None, apart: false, history: None })
    }

    /// Records work, and gives its node, by which its arguments can be changed later.
    ///
    /// # Errors
    /// Work of another context; in a chain, [`Error::Stale`]; or what the driver refuses.
    pub fn record(&mut self, work: impl Into<Work>) -> Result<NodeId, Error> {
        let work = work.into();
        let node = match &mut self.history {
            Some(history) => history.record(&mut self.graph, work)?,
            None => self.link(work)?,
        };
        self.last = Some(node);
        Ok(node)
    }

    /// Lets the next work of a chain wait for the end of what is before it, even if the two could overlap: what it,
    /// or what overlaps with it, reads before it waits may then be what is written before this place.
    pub fn part(&mut self) {
        self.apart = true;
    }

    /// Adds work to the end of the chain.
    fn link(&mut self, work: Work) -> Result<NodeId, Error> {
        if let Work::Launch(launch) = &work
            && self.graph.context().device().has_programmatic_edges()
        {
            launch.function().prefer_shared()?;
        }
        let last = self.last.map(|last| &self.graph.nodes()[last.index()]);
        let apart = std::mem::take(&mut self.apart);
        let overlaps = !apart && last.is_some_and(|last| can_overlap(last, &work));
        let kind = if overlaps { EdgeKind::Programmatic } else { EdgeKind::Full };
        self.graph.add_by(kind, self.last.as_slice(), work)
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
}

impl History {
    /// Adds work after the fewest nodes that it must come after.
    fn record(&mut self, graph: &mut Graph, work: Work) -> Result<NodeId, Error> {
        let uses = work.uses();
        let after = self.order.last_of(&self.conflicts(&uses));
        let ids: Vec<NodeId> = after.iter().map(|i| graph.nodes()[*i].id()).collect();
        let node = graph.add(&ids, work)?;
        self.order.push(&after);
        uses.into_iter().for_each(|used| self.remember(node.index(), used));
        Ok(node)
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
