//! Recorders: queues that turn work into a graph, with edges of two kinds.
//!
//! [`Recorder::new`] adds the fewest edges that keep the result of running the operations in order.
//! An operation that reads bytes follows the last operation that wrote them. An operation that
//! writes bytes follows the last operation that wrote them and all operations that have read them
//! since. An edge is left out if a path of other edges implies it. Each operation is one node.
//!
//! [`Recorder::pipeline`] records a chain of overlapping kernels, which devices start fastest. Each
//! operation follows the previous one. If a kernel executes `griddepcontrol.wait` and follows
//! another kernel, the edge is programmatic and the two overlap. Every other edge is full.
//!
//! A kernel that does not wait is never the target of a programmatic edge. A kernel that has waited
//! may therefore rely on all earlier work. Reads through `ld.global.nc` are the exception, because
//! they are not coherent with writes of kernels that still run. The recorder refuses a pipeline in
//! which an overlapping kernel may write what is read that way. Full edges need no such check.

use std::ops::Range;

use ptx_gen::Access;

use crate::device::Context;
use crate::error::Error;
use crate::graph::check::by_memory::ByMemory;
use crate::graph::check::overlap::can_overlap;
use crate::graph::{EdgeKind, Graph, NodeId, NodeKind};
use crate::ordering::memory_accesses::{MemoryAccess, hazard};
use crate::stream::{Queue, Work};

/// A queue that builds a [`Graph`].
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let [x, y, z] = [(); 3].map(|()| Buffer::<f32>::zeroed(&context, 4));
/// let x = x?;
/// let y = y?;
/// let z = z?;
/// let mut recorder = Recorder::new(&context)?;
/// recorder.fill(&x, 1.0)?;
/// recorder.fill(&y, 2.0)?;
/// recorder.copy(&x, &z)?;
/// let graph = recorder.finish();
/// assert_eq!(graph.edges().len(), 1); // the copy follows the first fill, and the second fill is independent
/// graph.instantiate()?.launch(&stream)?;
/// assert_eq!(stream.read(&z)?, [1.0; 4]);
/// # Ok(())
/// # }
/// ```
pub struct Recorder {
    graph: Graph,
    last: Option<NodeId>,
    /// Whether the next edge of a pipeline must be full.
    full: bool,
    /// The accesses from which the fewest edges follow, or `None` for a pipeline.
    history: Option<History>,
}

/// The recorded accesses that later operations may conflict with.
#[derive(Default)]
struct History {
    /// The accesses by memory. The nodes of the graph keep the memory alive, so the keys stay
    /// unique.
    ///
    /// The map is only searched and never iterated, because its order is random.
    past: ByMemory<Vec<Past>>,
    /// The nodes that the current operation follows. They are stored here only to reuse their
    /// allocations.
    after: Predecessors,
}

/// The nodes that an operation follows.
#[derive(Default)]
struct Predecessors {
    indices: Vec<usize>,
    ids: Vec<NodeId>,
}

/// An access of a node.
struct Past {
    node: usize,
    bytes: Range<usize>,
    access: Access,
}

impl Recorder {
    /// Creates a recorder that adds the fewest edges.
    ///
    /// # Errors
    /// Returns an error if the driver cannot create a graph.
    pub fn new(context: &Context) -> Result<Self, Error> {
        Ok(Self {
            graph: Graph::new(context)?,
            last: None,
            full: false,
            history: Some(History::default()),
        })
    }

    /// Creates a recorder of a pipeline, whose kernels overlap if they wait and the device supports
    /// it.
    ///
    /// [`Graph::programmatic_edges`] returns the number of overlaps. All kernels of the pipeline
    /// prefer shared memory to L1 cache, because kernels overlap only if they agree on it (see
    /// [`Function::prefer_shared`](crate::module::Function::prefer_shared)).
    ///
    /// # Errors
    /// Returns an error if the driver cannot create a graph.
    pub fn pipeline(context: &Context) -> Result<Self, Error> {
        Ok(Self {
            graph: Graph::new(context)?,
            last: None,
            full: false,
            history: None,
        })
    }

    /// Records an operation and returns its node, which you need to change its arguments later.
    ///
    /// # Errors
    /// - [`Error::WrongContext`] if the work belongs to another context.
    /// - [`Error::Stale`] in a pipeline, if the kernel may read stale values with `ld.global.nc`.
    /// - [`Error::Driver`] if the driver cannot add the node.
    pub fn record(&mut self, work: impl Into<Work>) -> Result<NodeId, Error> {
        let work = work.into();
        let node = match &mut self.history {
            Some(history) => history.record(&mut self.graph, work)?,
            None => self.link(work)?,
        };
        self.last = Some(node);
        Ok(node)
    }

    /// Makes the next edge of a pipeline full, even if the two kernels could overlap.
    ///
    /// The next kernel, and kernels that overlap it, may then read everything written before this
    /// point without a wait.
    pub fn full_edge(&mut self) {
        self.full = true;
    }

    /// Adds an operation to the end of the pipeline.
    fn link(&mut self, work: Work) -> Result<NodeId, Error> {
        if let Work::Launch(launch) = &work
            && self.graph.context().device().has_programmatic_edges()
        {
            launch.function().prefer_shared()?;
        }

        let last = self.last.map(|last| &self.graph.nodes()[last.index()]);
        let full = std::mem::take(&mut self.full);
        let overlaps = !full && last.is_some_and(|last| can_overlap(last, &work));
        let kind = if overlaps {
            EdgeKind::Programmatic
        } else {
            EdgeKind::Full
        };
        self.graph.add_by(kind, self.last.as_slice(), work)
    }

    /// Returns the node that was recorded last.
    pub fn last(&self) -> Option<NodeId> {
        self.last
    }

    /// Returns the graph recorded so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the recorded graph.
    pub fn finish(self) -> Graph {
        self.graph
    }
}

impl History {
    /// Adds an operation after the fewest nodes that it must follow.
    fn record(&mut self, graph: &mut Graph, work: Work) -> Result<NodeId, Error> {
        let mut after = std::mem::take(&mut self.after);
        for touch in work.touches() {
            self.add_conflicts(&mut after.indices, touch);
        }

        // A single predecessor implies no other, so the order is needed only for more.
        if after.indices.len() > 1 {
            graph.order().keep_last(&mut after.indices);
        }

        after
            .ids
            .extend(after.indices.iter().map(|i| graph.nodes()[*i].id()));
        let node = graph.add(&after.ids, work)?;
        after.indices.clear();
        after.ids.clear();
        self.after = after;

        // The accesses are recorded after the node was added. If adding fails, they leave no trace.
        if let NodeKind::Work(work) = graph.nodes()[node.index()].kind() {
            for touch in work.touches() {
                self.remember(node.index(), touch);
            }
        }

        Ok(node)
    }

    /// Appends the nodes that an operation with this access must follow.
    fn add_conflicts(&self, nodes: &mut Vec<usize>, touch: MemoryAccess<'_>) {
        let bytes = touch.region.range();
        for past in self.past.get(&touch.region.memory()).into_iter().flatten() {
            let meets = past.bytes.start.max(bytes.start) < past.bytes.end.min(bytes.end);
            let conflicts = meets && hazard(past.access, touch.access).is_some();
            if conflicts && !nodes.contains(&past.node) {
                nodes.push(past.node);
            }
        }
    }

    /// Records an access. A write replaces the accesses it covers, because work that follows the
    /// write also follows them.
    fn remember(&mut self, node: usize, touch: MemoryAccess<'_>) {
        let past = self.past.entry(touch.region.memory()).or_default();
        let bytes = touch.region.range();
        if touch.access.writes() {
            let covers = |p: &Past| bytes.start <= p.bytes.start && p.bytes.end <= bytes.end;
            past.retain(|p| p.node == node || !covers(p));
        }

        past.push(Past {
            node,
            bytes,
            access: touch.access,
        });
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recorder({:?})", self.graph)
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
