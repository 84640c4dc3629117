//! A graph made ready: launched as a whole, changed in place.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use driver_sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphInstantiate_flags,
    CUgraphInstantiateResult, CUgraphNode, CUresult,
};
use ptx_gen::{Access, KernelDef};

use super::Owner;
use super::add::with_kernel_params;
use super::coherence::expect_all_coherent;
use super::order::Order;
use super::{Edge, EdgeKind, Graph, Node, NodeId, NodeKind, RawGraph, conflict, edge};
use crate::capture::{Child, last_node};
use crate::event::expect_same;
use crate::queue::{Use, Work};
use crate::release::Release;
use crate::{Context, DriverError, Error, Host, Kernel, Launch, Region, Stream};

/// A graph ready to launch. It runs once at a time: each launch waits for the one before. Launching takes it mutably,
/// because the driver's graphs are not for two threads at once.
pub struct GraphExec {
    // Dropped first: what the nodes need is released after it.
    inner: Inner,
    id: u64,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    order: Order,
    /// What the whole graph touches, once it is asked for.
    touched: OnceLock<Vec<(Region, Access)>>,
    /// The nodes that use each memory, once it is asked for. Only looked up, never walked.
    users: OnceLock<Users>,
    /// What it needs beside what its nodes name.
    owners: Vec<Owner>,
}

/// The nodes that use each memory.
type Users = HashMap<usize, Vec<usize>>;

fn add_user(users: &mut Users, memory: usize, node: usize) {
    let nodes = users.entry(memory).or_default();
    if !nodes.contains(&node) {
        nodes.push(node);
    }
}

fn remove_user(users: &mut Users, memory: usize, node: usize) {
    if let Some(nodes) = users.get_mut(&memory) {
        nodes.retain(|n| *n != node);
        if nodes.is_empty() {
            users.remove(&memory);
        }
    }
}

struct Inner {
    /// The plan: a change of arguments names its nodes.
    graph: Arc<RawGraph>,
    raw: CUgraphExec,
}

/// The call that says which node it refuses.
const WITH_PARAMS: &str = "cuGraphInstantiateWithParams";

impl Graph {
    /// Makes the graph ready to launch. The graph can change afterwards; what was made of it does not.
    ///
    /// # Errors
    /// [`Error::Instantiate`] with the node that the driver names; [`Error::EdgeKind`] if the driver has an edge of
    /// another kind than was added.
    pub fn instantiate(&self) -> Result<GraphExec, Error> {
        self.expect_edges_as_told()?;
        let raw = self.instantiate_raw()?;
        Ok(GraphExec {
            inner: Inner { graph: self.raw.clone(), raw },
            id: self.id,
            nodes: self.nodes.clone(),
            edges: self.edges.clone(),
            order: self.order.clone(),
            touched: OnceLock::new(),
            users: OnceLock::new(),
            owners: self.owners.clone(),
        })
    }

    fn instantiate_raw(&self) -> Result<CUgraphExec, Error> {
        let _current = self.context().enter()?;
        let (graph, _calls) = self.raw.begin();
        let driver = self.context().driver();
        let mut exec = CUgraphExec::NULL;
        let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed();
        let result = if let Some(instantiate) = driver.api().cuGraphInstantiateWithParams {
            // SAFETY: `exec` and `params` are ours to write; the graph is alive.
            let code = unsafe { instantiate(&mut exec, graph, &mut params) };
            driver.check(WITH_PARAMS, code)
        } else {
            let flags = CUgraphInstantiate_flags::empty();
            // SAFETY: `exec` is ours to write; the graph is alive.
            unsafe { cu_if_there!(driver, cuGraphInstantiateWithFlags(&mut exec, graph, flags)) }
        };
        // With parameters the driver may return success and still report an error in the result.
        let refused = params.result_out != CUgraphInstantiateResult::SUCCESS;
        match result {
            Ok(()) if !refused => Ok(exec),
            other => Err(self.not_instantiated(other.err(), &params)),
        }
    }

    fn not_instantiated(&self, error: Option<DriverError>, params: &CUDA_GRAPH_INSTANTIATE_PARAMS) -> Error {
        let source = error.unwrap_or(DriverError {
            call: WITH_PARAMS,
            code: CUresult::INVALID_VALUE,
            name: None,
            log: Box::default(),
            absent: None,
        });
        Error::Instantiate { source, result: params.result_out, node: self.name_of(params.hErrNode_out) }
    }

    /// The number and name of the node with this handle.
    fn name_of(&self, raw: CUgraphNode) -> Option<String> {
        self.nodes.iter().find(|n| n.raw == raw && !raw.is_null()).map(Node::describe)
    }
}

impl GraphExec {
    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.graph.context
    }

    /// Its nodes with their present arguments, in the order of the graph.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Does now what the first launch would do: hands the graph to the device.
    ///
    /// # Errors
    /// A stream of another context, [`Error::Capturing`], or what the driver refuses.
    pub fn upload(&mut self, stream: &Stream) -> Result<(), Error> {
        self.expect_stream(stream)?;
        let raw = self.inner.raw;
        stream.begin("uploading a graph")?.enqueue(|driver| {
            // SAFETY: exec and stream are alive and of one context, and whoever destroys the exec waits for the stream.
            unsafe { cu_if_there!(driver, cuGraphUpload(raw, stream.raw())) }
        })
    }

    /// Queues the whole graph. What it needs stays alive until it has run, whatever is dropped before.
    ///
    /// In a stream that this thread captures, the graph becomes a node of the captured graph, as it is now.
    ///
    /// # Errors
    /// A stream of another context; [`Error::UnorderedStreams`]; [`Error::Capturing`] if another thread captures the
    /// stream; or what the driver refuses.
    ///
    /// Two threads cannot launch one graph at a time:
    ///
    /// ```compile_fail,E0596
    /// use warpwright_driver::{Error, GraphExec, Stream};
    ///
    /// fn launch(exec: &GraphExec, stream: &Stream) -> Result<(), Error> {
    ///     exec.launch(stream)
    /// }
    /// ```
    #[inline]
    pub fn launch(&mut self, stream: &Stream) -> Result<(), Error> {
        self.expect_stream(stream)?;
        let turn = match stream.begin("a graph") {
            Ok(turn) => turn,
            Err(error) => return self.launch_captured(stream, error),
        };
        if self.context().order().several() {
            turn.admit(self.touched().iter().map(|(region, access)| (region, *access)))?;
        }
        let raw = self.inner.raw;
        // SAFETY: exec and stream are alive and of one context, and whoever releases what the graph needs waits for
        // the stream.
        turn.enqueue(|driver| unsafe { cu_if_there!(driver, cuGraphLaunch(raw, stream.raw())) })
    }

    /// Launches into a stream that this thread captures. The captured graph keeps what this one names now.
    #[cold]
    fn launch_captured(&self, stream: &Stream, refused: Error) -> Result<(), Error> {
        let state = stream.timeline().lock();
        let Some(capture) = state.capture.clone().filter(|capture| capture.is_here()) else {
            return Err(refused);
        };
        let _current = self.context().enter()?;
        // SAFETY: exec and stream are alive and of one context; the driver copies the graph.
        unsafe { cu_if_there!(self.context().driver(), cuGraphLaunch(self.inner.raw, stream.raw())) }?;
        drop(state);
        let uses = self.nodes.iter().flat_map(Node::uses).collect();
        let keeps: Owner = Arc::new((self.nodes.clone(), self.owners.clone()));
        let node = last_node(stream);
        capture.keep(Child { node: node.as_ref().ok().copied().flatten(), uses, keeps });
        node.map(drop)
    }

    /// What the whole graph touches: each region once.
    fn touched(&self) -> &[(Region, Access)] {
        self.touched.get_or_init(|| {
            let mut found: Vec<(Region, Access)> = Vec::new();
            let mut places: HashMap<(usize, usize, usize), usize> = HashMap::new();
            for used in self.nodes.iter().flat_map(Node::uses) {
                let range = used.region.range();
                let place =
                    places.entry((used.region.memory(), range.start, range.end)).or_insert(found.len());
                match found.get_mut(*place) {
                    Some((_, access)) if *access != used.access => *access = Access::ReadWrite,
                    Some(_) => {}
                    None => found.push((used.region, used.access)),
                }
            }
            found
        })
    }

    /// Changes the arguments of a kernel node, and with them its geometry, for launches from now on.
    ///
    /// # Errors
    /// As [`Kernel::with`] and [`set_launch`](Self::set_launch).
    pub fn set_args<K: KernelDef>(
        &mut self,
        node: NodeId,
        kernel: &Kernel<K>,
        args: K::Args<Host<'_>>,
    ) -> Result<(), Error> {
        self.set_launch(node, kernel.with(args)?)
    }

    /// Changes what a kernel node launches, for launches from now on.
    ///
    /// # Errors
    /// A node of another graph or that is no kernel; a kernel of another context; buffers that an unordered node
    /// touches ([`Error::Unordered`]): an edge follows from arguments, and edges do not change here; a kernel that
    /// a programmatic edge leads to and that does not wait ([`Error::Overlap`]); a kernel that reads by `ld.global.nc`
    /// what a kernel writes that may still run when it starts ([`Error::Stale`]).
    pub fn set_launch(&mut self, node: NodeId, launch: Launch) -> Result<(), Error> {
        let index = self.index_of(node)?;
        if !matches!(self.nodes[index].kind, NodeKind::Work(Work::Launch(_))) {
            return Err(self.wrong_kind(index, "only a kernel has arguments"));
        }
        launch.expect_in(self.context())?;
        if self.touches_more(index, &launch) {
            self.expect_place(index, &launch)?;
        }
        self.set_params(self.nodes[index].raw, &launch)?;
        // The node lets go of what it named before; launches in flight that still use it are waited for.
        self.nodes[index].kind = NodeKind::Work(Work::Launch(launch));
        Ok(())
    }

    /// Whether a launch is of another kernel than the node's, or touches bytes that the node's does not.
    fn touches_more(&self, index: usize, launch: &Launch) -> bool {
        let NodeKind::Work(Work::Launch(old)) = &self.nodes[index].kind else { return true };
        let same = |(a, b): ((_, &Region, Access), (_, &Region, Access))| a.2 == b.2 && a.1.covers(b.1);
        !old.function().same(launch.function())
            || old.buffers().count() != launch.buffers().count()
            || !old.buffers().zip(launch.buffers()).all(same)
    }

    /// Refuses a launch that the edges of this node do not fit, and remembers what it touches.
    fn expect_place(&mut self, index: usize, launch: &Launch) -> Result<(), Error> {
        let (node, work) = (self.nodes[index].id, Work::Launch(launch.clone()));
        let overlapped = self.programmatic().filter(|e| e.to == node).map(|e| &self.nodes[e.from.index]);
        edge::expect_overlap(overlapped, index, &work)?;
        self.expect_ordered(index, &work)?;
        self.expect_coherent_with(node, &work)?;
        if let Some(users) = self.users.get_mut() {
            self.nodes[index].uses().iter().for_each(|u| remove_user(users, u.region.memory(), index));
            launch.buffers().for_each(|(_, region, _)| add_user(users, region.memory(), index));
        }
        self.touched = OnceLock::new();
        Ok(())
    }

    /// Switches a kernel, copy or fill off or on, for launches from now on. A node that is off does nothing, and
    /// what is after it runs.
    ///
    /// # Errors
    /// A node of another graph or of another sort; switching off a kernel of programmatic edges, because what is off
    /// does not wait; or what the driver refuses.
    pub fn set_enabled(&mut self, node: NodeId, enabled: bool) -> Result<(), Error> {
        let raw = self.switch(node)?;
        if !enabled && self.programmatic().any(|e| e.to == node || e.from == node) {
            let (node, name) = (node.index, self.nodes[node.index].name());
            let wanted = "only a node of full edges can be switched off, because what is off does not wait";
            return Err(Error::NodeKind { node, name, is: "a kernel of programmatic edges", wanted });
        }
        let _current = self.context().enter()?;
        let (_, _calls) = self.inner.graph.begin();
        // SAFETY: the exec is alive, and the node is of the graph it was made from.
        unsafe {
            cu_if_there!(self.context().driver(), cuGraphNodeSetEnabled(self.inner.raw, raw, enabled.into()))
        }?;
        Ok(())
    }

    /// Whether a kernel, copy or fill is on.
    ///
    /// # Errors
    /// As [`set_enabled`](Self::set_enabled).
    pub fn is_enabled(&self, node: NodeId) -> Result<bool, Error> {
        let raw = self.switch(node)?;
        let _current = self.context().enter()?;
        let (_, _calls) = self.inner.graph.begin();
        let mut enabled = 0;
        // SAFETY: `enabled` is ours to write; exec and node are alive.
        unsafe {
            cu_if_there!(self.context().driver(), cuGraphNodeGetEnabled(self.inner.raw, raw, &mut enabled))
        }?;
        Ok(enabled != 0)
    }

    /// Takes over the arguments of another graph of the same form: the same nodes and edges, added in the same order.
    ///
    /// # Errors
    /// [`Error::Update`] with what differs and the nodes that the driver names, by their number in `graph`. Nothing
    /// has changed then.
    pub fn update(&mut self, graph: &Graph) -> Result<(), Error> {
        expect_same("a graph", graph.context(), "the exec to update", self.context())?;
        let mut info = CUgraphExecUpdateResultInfo::zeroed();
        let result = {
            let _current = self.context().enter()?;
            let (raw, _calls) = graph.raw.begin();
            // SAFETY: exec and graph are alive; `info` is ours to write.
            unsafe {
                cu_if_there!(self.context().driver(), cuGraphExecUpdate_v2(self.inner.raw, raw, &mut info))
            }
        };
        if let Err(source) = result {
            let (node, from) = (graph.name_of(info.errorNode), graph.name_of(info.errorFromNode));
            let source = Box::new(source);
            return Err(Error::Update { source, result: info.result, node, from });
        }
        for (mine, theirs) in self.nodes.iter_mut().zip(&graph.nodes) {
            (mine.kind, mine.keeps) = (theirs.kind.clone(), theirs.keeps.clone());
        }
        self.owners = graph.owners.clone();
        (self.touched, self.users) = (OnceLock::new(), OnceLock::new());
        Ok(())
    }

    fn programmatic(&self) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(|e| e.kind == EdgeKind::Programmatic)
    }

    fn set_params(&self, node: CUgraphNode, launch: &Launch) -> Result<(), Error> {
        let _current = self.context().enter()?;
        let (_, _calls) = self.inner.graph.begin();
        let (driver, exec) = (self.context().driver(), self.inner.raw);
        // SAFETY: the exec is alive, the node is of the graph it was made from, and the driver copies the parameters.
        with_kernel_params(launch, |params| unsafe {
            cu_if_there!(driver, cuGraphExecKernelNodeSetParams_v2(exec, node, params))
        })?;
        Ok(())
    }

    /// Refuses new uses that meet those of a node without a path of edges between them.
    fn expect_ordered(&self, index: usize, work: &Work) -> Result<(), Error> {
        let old = self.nodes[index].uses();
        let same = |a: &Use, b: &Use| a.access == b.access && a.region.covers(&b.region);
        let new: Vec<Use> = work.uses().into_iter().filter(|n| !old.iter().any(|o| same(o, n))).collect();
        for other in self.users_of(&new) {
            let node = &self.nodes[other];
            let ordered =
                other == index || self.order.precedes(other, index) || self.order.precedes(index, other);
            let met = if ordered { None } else { conflict(&new, &node.uses()).map(|region| region.name()) };
            if let Some(buffer) = met {
                let (name, other_name) = (work.name().to_string(), node.name());
                return Err(Error::Unordered { node: index, name, other, other_name, buffer });
            }
        }
        Ok(())
    }

    /// The nodes that may use memory of these uses, in order.
    fn users_of(&self, uses: &[Use]) -> Vec<usize> {
        let all = self.users.get_or_init(|| {
            let mut users = Users::new();
            for (index, node) in self.nodes.iter().enumerate() {
                node.uses().iter().for_each(|u| add_user(&mut users, u.region.memory(), index));
            }
            users
        });
        let mut found: Vec<usize> =
            uses.iter().filter_map(|u| all.get(&u.region.memory())).flatten().copied().collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Refuses work in this node's place by which a kernel would read what may still be written.
    fn expect_coherent_with(&self, node: NodeId, work: &Work) -> Result<(), Error> {
        if !self.programmatic().any(|e| e.to == node || e.from == node) {
            return Ok(());
        }
        let mut nodes = self.nodes.clone();
        nodes[node.index].kind = NodeKind::Work(work.clone());
        expect_all_coherent(&nodes, &self.edges)
    }

    fn switch(&self, node: NodeId) -> Result<CUgraphNode, Error> {
        let index = self.index_of(node)?;
        match self.nodes[index].kind {
            NodeKind::Work(_) => Ok(self.nodes[index].raw),
            _ => Err(self.wrong_kind(index, "only a kernel, a copy or a fill can be switched")),
        }
    }

    fn wrong_kind(&self, index: usize, wanted: &'static str) -> Error {
        let node = &self.nodes[index];
        Error::NodeKind { node: index, name: node.name(), is: node.sort(), wanted }
    }

    fn index_of(&self, node: NodeId) -> Result<usize, Error> {
        let known = node.graph == self.id && node.index < self.nodes.len();
        if known { Ok(node.index) } else { Err(Error::ForeignNode { node: node.index }) }
    }

    fn expect_stream(&self, stream: &Stream) -> Result<(), Error> {
        expect_same("a graph", self.context(), "the stream", stream.context())
    }
}

impl std::fmt::Debug for GraphExec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GraphExec({} nodes)", self.nodes.len())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.graph.context.release(Release::Exec(self.raw));
    }
}
