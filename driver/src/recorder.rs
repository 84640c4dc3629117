//! A recorder: a queue whose work becomes a graph, in one of two forms.
//!
//! [`Recorder::new`] draws the fewest edges. Work that reads bytes comes after the last work that wrote them. Work that
//! writes bytes comes after the last work that wrote them and after all work that read them since. An edge that a path
//! of others implies is left out. Each piece of work is one node, and there is no other way to record one, so none is
//! lost.
//!
//! [`Recorder::pipeline`] records a pipeline of overlapped kernels: each piece of work follows the one before it, which
//! devices start fastest. Where a kernel executes `griddepcontrol.wait` and follows a kernel, the edge is programmatic
//! and the two overlap; every other edge is full. A kernel that does not wait is never at the end of a programmatic
//! edge, so a kernel that has waited may rely on all work before it. The exception is what it reads by
//! `ld.global.nc`: no kernel that overlaps it may write that, and the recorder refuses a pipeline in which one does.
//! Full edges need no such check.

use std::ops::Range;

use ptx_gen::Access;

use crate::graph::by_memory::ByMemory;
use crate::graph::edge::can_overlap;
use crate::queue::{Queue, Work, hazard};
use crate::uses::Touch;
use crate::{Context, EdgeKind, Error, Graph, NodeId, NodeKind};

/// A queue that builds a [`Graph`].
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let [x, y, z] = [(); 3].map(|()| Buffer::<f32>::zeroed(&context, 4));
/// let (x, y, z) = (x?, y?, z?);
/// let mut recorder = Recorder::new(&context)?;
/// recorder.fill(&x, 1.0)?;
/// recorder.fill(&y, 2.0)?;
/// recorder.copy(&x, &z)?;
/// let graph = recorder.finish();
/// assert_eq!(graph.edges().len(), 1); // the copy comes after the first fill; the second is beside both
/// graph.instantiate()?.launch(&stream)?;
/// assert_eq!(stream.read(&z)?, [1.0; 4]);
/// # Ok(())
/// # }
/// ```
pub struct Recorder {
    graph: Graph,
    last: Option<NodeId>,
    /// Whether the next edge of a pipeline is full.
    full: bool,
    /// What the fewest edges follow from; none for a pipeline.
    history: Option<History>,
}

/// What was recorded, as far as later work may have to come after it.
#[derive(Default)]
struct History {
    /// The uses by memory, which the nodes of the graph keep alive. Only looked up, never walked.
    past: ByMemory<Vec<Past>>,
    /// The nodes that the present work comes after, by number and by id. Here for their memory only.
    after: (Vec<usize>, Vec<NodeId>),
}

/// A use by a node.
struct Past {
    node: usize,
    bytes: Range<usize>,
    access: Access,
}

impl Recorder {
    /// A recorder of the fewest edges.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn new(context: &Context) -> Result<Self, Error> {
        Ok(Self {
            graph: Graph::new(context)?,
            last: None,
            full: false,
            history: Some(History::default()),
        })
    }

    /// A recorder of a pipeline, whose kernels overlap where they wait and the device can:
    /// [`Graph::programmatic_edges`] says how many do. Its kernels prefer shared memory, all of them, as
    /// [`Function::prefer_shared`](crate::Function::prefer_shared) advises.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn pipeline(context: &Context) -> Result<Self, Error> {
        Ok(Self {
            graph: Graph::new(context)?,
            last: None,
            full: false,
            history: None,
        })
    }

    /// Records work, and gives its node, by which its arguments can be changed later.
    ///
    /// # Errors
    /// Work of another context; in a pipeline, [`Error::Stale`]; or what the driver refuses.
    pub fn record(&mut self, work: impl Into<Work>) -> Result<NodeId, Error> {
        let work = work.into();
        let node = match &mut self.history {
            Some(history) => history.record(&mut self.graph, work)?,
            None => self.link(work)?,
        };
        self.last = Some(node);
        Ok(node)
    }

    /// Makes the next edge of a pipeline a full one, even if the two kernels could overlap. The next kernel, and those
    /// that overlap it, may then read before their wait what any work before this point wrote.
    pub fn full_edge(&mut self) {
        self.full = true;
    }

    /// Adds work to the end of the pipeline.
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
        let (mut after, mut ids) = std::mem::take(&mut self.after);
        work.touches()
            .for_each(|touch| self.add_conflicts(&mut after, touch));
        if after.len() > 1 {
            graph.order().keep_last(&mut after);
        }
        ids.extend(after.iter().map(|i| graph.nodes()[*i].id()));
        let node = graph.add(&ids, work)?;
        after.clear();
        ids.clear();
        self.after = (after, ids);
        if let NodeKind::Work(work) = graph.nodes()[node.index()].kind() {
            work.touches()
                .for_each(|touch| self.remember(node.index(), touch));
        }
        Ok(node)
    }

    /// Adds the nodes that work with this use must come after.
    fn add_conflicts(&self, nodes: &mut Vec<usize>, (_, region, access): Touch<'_>) {
        let bytes = region.range();
        for past in self.past.get(&region.memory()).into_iter().flatten() {
            let meets = past.bytes.start.max(bytes.start) < past.bytes.end.min(bytes.end);
            if meets && hazard(past.access, access).is_some() && !nodes.contains(&past.node) {
                nodes.push(past.node);
            }
        }
    }

    /// Adds a use. A write replaces the uses that it covers: later work that follows it follows them, too.
    fn remember(&mut self, node: usize, (_, region, access): Touch<'_>) {
        let (past, bytes) = (
            self.past.entry(region.memory()).or_default(),
            region.range(),
        );
        if access.writes() {
            let covers = |p: &Past| bytes.start <= p.bytes.start && p.bytes.end <= bytes.end;
            past.retain(|p| p.node == node || !covers(p));
        }
        past.push(Past {
            node,
            bytes,
            access,
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
