//! Graphs under construction: nodes, edges, and the questions a program may ask about them.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{c_char, c_uint, c_void};
use std::sync::Arc;

use warpwright_driver_sys::*;

use crate::capture;
use crate::dot;
use crate::ffi::{
    Callback, ExposedParams, In, KernelNode, KernelParams, Out, Result, exports, kernel_params, node_member,
    refuse, require,
};
use crate::handle::Id;
use crate::machine::Machine;
use crate::memory::{copy_of, fill_of};
use crate::state::State;
use crate::work::Work;

/// A graph: its nodes and edges in the order in which they came.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Id<Node>>,
    pub(crate) edges: Vec<Edge>,
    /// The child node that owns it.
    owner: Option<Id<Node>>,
}

/// An edge with its data.
#[derive(Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) from: Id<Node>,
    pub(crate) to: Id<Node>,
    pub(crate) data: EdgeData,
}

/// From port, to port and type of an edge; all zero is a full dependency.
pub(crate) type EdgeData = [u8; 3];

/// A node of one graph.
pub(crate) struct Node {
    pub(crate) graph: Id<Graph>,
    pub(crate) content: Content,
    /// The node that this one was cloned from.
    original: Option<Id<Node>>,
    /// The parameters as the program was shown them. The node runs its own copy: what a program writes there is lost.
    shown: Option<ExposedParams>,
}

/// What a node does.
#[derive(Clone)]
pub(crate) enum Content {
    Work(Work),
    /// A graph that belongs to the node.
    Child(Id<Graph>),
}

exports! {
    required {
        10000 cuGraphCreate cuGraphCreate(graph: *mut CUgraph, flags: c_uint) => create;
        10000 cuGraphDestroy cuGraphDestroy(graph: CUgraph) => destroy;
        10000 cuGraphClone cuGraphClone(clone: *mut CUgraph, original: CUgraph) => clone_graph;
        12000 cuGraphAddKernelNode cuGraphAddKernelNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS_v2) => add_kernel;
        10000 cuGraphAddMemcpyNode cuGraphAddMemcpyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMCPY3D_v2, context: CUcontext) => add_copy;
        10000 cuGraphAddMemsetNode cuGraphAddMemsetNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext) => add_fill;
        10000 cuGraphAddEmptyNode cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize) => add_empty;
        10000 cuGraphAddHostNode cuGraphAddHostNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_HOST_NODE_PARAMS_v1) => add_host;
        10000 cuGraphAddChildGraphNode cuGraphAddChildGraphNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, child: CUgraph) => add_child;
        11010 cuGraphAddEventRecordNode cuGraphAddEventRecordNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent) => add_record;
        11010 cuGraphAddEventWaitNode cuGraphAddEventWaitNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent) => add_wait;
        10000 cuGraphAddDependencies cuGraphAddDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) => add_edges;
        10000 cuGraphGetNodes cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) => get_nodes;
        10000 cuGraphGetEdges cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize) => get_edges;
        10000 cuGraphNodeGetType cuGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType) => get_type;
        12000 cuGraphKernelNodeGetParams cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS_v2) => get_kernel;
        12000 cuGraphKernelNodeSetParams cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v2) => set_kernel;
        11030 cuGraphDebugDotPrint cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: CUgraphDebugDot_flags) => print_dot;
    }
    optional {
        12030 cuGraphAddNode cuGraphAddNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, params: *mut CUgraphNodeParams) => add_any;
        12030 cuGraphAddDependencies cuGraphAddDependencies_v2(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize) => add_edges_with_data;
        12030 cuGraphGetEdges cuGraphGetEdges_v2(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize) => get_edges_with_data;
    }
    more {
        10000 cuGraphAddKernelNode cuGraphAddKernelNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS_v1) => add_kernel;
        10000 cuGraphKernelNodeGetParams cuGraphKernelNodeGetParams(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS_v1) => get_kernel;
        10000 cuGraphKernelNodeSetParams cuGraphKernelNodeSetParams(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1) => set_kernel;
        12020 cuGraphAddNode cuGraphAddNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *mut CUgraphNodeParams) => add_any_plain;
        12020 cuGraphNodeSetParams cuGraphNodeSetParams(node: CUgraphNode, params: *mut CUgraphNodeParams) => set_any;
        10000 cuGraphMemcpyNodeSetParams cuGraphMemcpyNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMCPY3D_v2) => set_copy;
        10000 cuGraphMemsetNodeSetParams cuGraphMemsetNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS_v1) => set_fill;
        10000 cuGraphRemoveDependencies cuGraphRemoveDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) => remove_edges;
        12030 cuGraphRemoveDependencies cuGraphRemoveDependencies_v2(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize) => remove_edges_with_data;
        10000 cuGraphDestroyNode cuGraphDestroyNode(node: CUgraphNode) => destroy_node;
        10000 cuGraphGetRootNodes cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) => get_roots;
        10000 cuGraphNodeGetDependencies cuGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) => get_before;
        12030 cuGraphNodeGetDependencies cuGraphNodeGetDependencies_v2(node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize) => get_before_with_data;
        10000 cuGraphNodeGetDependentNodes cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) => get_after;
        12030 cuGraphNodeGetDependentNodes cuGraphNodeGetDependentNodes_v2(node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize) => get_after_with_data;
        10000 cuGraphNodeFindInClone cuGraphNodeFindInClone(node: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph) => find_in_clone;
        10000 cuGraphChildGraphNodeGetGraph cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph) => get_child;
    }
}

impl State {
    /// Adds a node after others of its graph.
    pub(crate) fn add_node(
        &mut self,
        graph: Id<Graph>,
        after: &[(Id<Node>, EdgeData)],
        content: Content,
    ) -> Id<Node> {
        let node = self.nodes.insert(Node { graph, content, original: None, shown: None });
        if let Content::Child(child) = self.nodes[node].content {
            self.graphs[child].owner = Some(node);
        }
        let edges = after.iter().map(|&(from, data)| Edge { from, to: node, data });
        let graph = &mut self.graphs[graph];
        graph.nodes.push(node);
        graph.edges.extend(edges);
        node
    }

    /// Removes a graph, its nodes and the graphs that they own.
    pub(crate) fn destroy_graph(&mut self, id: Id<Graph>) {
        for node in self.graphs.remove(id).map(|graph| graph.nodes).unwrap_or_default() {
            self.remove_node(node);
        }
    }

    fn remove_node(&mut self, id: Id<Node>) {
        if let Some(Node { content: Content::Child(child), .. }) = self.nodes.remove(id) {
            self.destroy_graph(child);
        }
    }

    /// A copy of a graph with its children, whose nodes remember what they are copies of.
    pub(crate) fn copy_graph(&mut self, id: Id<Graph>) -> Id<Graph> {
        let copy = self.graphs.insert(Graph::default());
        let mut copies = HashMap::new();
        for original in self.graphs[id].nodes.clone() {
            let content = match self.nodes[original].content.clone() {
                Content::Child(child) => Content::Child(self.copy_graph(child)),
                content => content,
            };
            let node = self.add_node(copy, &[], content);
            self.nodes[node].original = Some(original);
            copies.insert(original, node);
        }
        let edges = self.graphs[id].edges.iter();
        let edges = edges.map(|e| Edge { from: copies[&e.from], to: copies[&e.to], data: e.data }).collect();
        self.graphs[copy].edges = edges;
        copy
    }

    /// The nodes that a caller lists as dependencies, with their edge data: of this graph, each once.
    fn dependencies(
        &self,
        graph: Id<Graph>,
        after: In<CUgraphNode>,
        edges: In<CUgraphEdgeData>,
        count: usize,
    ) -> Result<Vec<(Id<Node>, EdgeData)>> {
        let handles = after.slice(count)?;
        let datas = edge_data(edges, count)?;
        let mut found = Vec::with_capacity(count);
        for (&handle, data) in handles.iter().zip(datas) {
            let id = self.nodes.find(handle)?;
            require(self.nodes[id].graph == graph, || {
                format!("the dependency {id:?} is a node of another graph")
            })?;
            require(found.iter().all(|(other, _)| *other != id), || {
                format!("the dependency {id:?} repeats")
            })?;
            found.push((id, data));
        }
        Ok(found)
    }

    /// Whether an edge may carry its data: a programmatic one joins two kernels and waits for port 1 or 2.
    fn check_edge(&self, from: Id<Node>, to: &Content, data: EdgeData) -> Result {
        let kernel = |content: &Content| matches!(content, Content::Work(Work::Kernel(_)));
        match data {
            [0, 0, 0] => Ok(()),
            [1 | 2, 0, 1] if kernel(&self.nodes[from].content) && kernel(to) => Ok(()),
            _ => refuse(CUresult::INVALID_VALUE, format!("an edge of data {data:?} between these nodes")),
        }
    }
}

/// The data of `count` edges; none is full dependencies.
fn edge_data(edges: In<CUgraphEdgeData>, count: usize) -> Result<Vec<EdgeData>> {
    if edges.is_null() {
        return Ok(vec![[0; 3]; count]);
    }
    let plain = |e: &CUgraphEdgeData| {
        require(e.reserved == [0; 5], || "reserved bytes of an edge are not zero".into())?;
        Ok([e.from_port, e.to_port, e.r#type])
    };
    edges.slice(count)?.iter().map(plain).collect()
}

fn create(m: &'static Machine, graph: Out<CUgraph>, flags: c_uint) -> Result {
    require(flags == 0 && !graph.is_null(), || format!("flags {flags}, or the result pointer is NULL"))?;
    graph.set(m.state().graphs.insert(Graph::default()).handle())
}

fn destroy(m: &'static Machine, graph: CUgraph) -> Result {
    let mut s = m.state();
    let id = s.graphs.find(graph)?;
    capture::refuse_unsafe(&mut s)?;
    require(s.graphs[id].owner.is_none(), || "the graph belongs to a child node".into())?;
    require(s.captures.values().all(|c| c.graph != id), || "the graph belongs to a capture".into())?;
    s.destroy_graph(id);
    Ok(())
}

fn clone_graph(m: &'static Machine, clone: Out<CUgraph>, original: CUgraph) -> Result {
    let mut s = m.state();
    let id = s.graphs.find(original)?;
    require(!clone.is_null(), || "the result pointer is NULL".into())?;
    clone.set(s.copy_graph(id).handle())
}

/// Where a node goes: the arguments that every adder begins with.
struct NewNode<'a> {
    node: Out<'a, CUgraphNode>,
    graph: CUgraph,
    after: In<'a, CUgraphNode>,
    edges: In<'a, CUgraphEdgeData>,
    count: usize,
}

impl NewNode<'_> {
    /// Adds the node that `content` makes, once everything about it is checked.
    fn add(self, m: &'static Machine, content: impl FnOnce(&mut State) -> Result<Content>) -> Result {
        let mut s = m.state();
        let graph = s.graphs.find(self.graph)?;
        require(!self.node.is_null(), || "the result pointer is NULL".into())?;
        let after = s.dependencies(graph, self.after, self.edges, self.count)?;
        let content = content(&mut s)?;
        for &(from, data) in &after {
            s.check_edge(from, &content, data)?;
        }
        self.node.set(s.add_node(graph, &after, content).handle())
    }
}

/// A position with full dependencies.
fn plain<'a>(
    node: Out<'a, CUgraphNode>,
    graph: CUgraph,
    after: In<'a, CUgraphNode>,
    count: usize,
) -> NewNode<'a> {
    NewNode { node, graph, after, edges: In::null(), count }
}

fn add_kernel<P: KernelNode>(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<P>,
) -> Result {
    let params = kernel_params(params)?;
    plain(node, graph, after, count).add(m, |s| kernel_content(s, params))
}

/// A kernel node's work. The values of its parameters are copied here.
pub(crate) fn kernel_content(s: &State, p: KernelParams) -> Result<Content> {
    s.context()?;
    let kernel = s.kernel_work(p.function, p.geometry, p.params, p.extra)?;
    Ok(Content::Work(Work::Kernel(Arc::new(kernel))))
}

/// The context of a copy or fill node must be one; NULL is the current one.
fn check_context(s: &State, context: CUcontext) -> Result {
    let id = if context.is_null() { s.current()? } else { s.contexts.find(context)? };
    Ok(s.contexts[id].sticky.check()?)
}

fn add_copy(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_MEMCPY3D_v2>,
    context: CUcontext,
) -> Result {
    let copy = copy_of(m, &params.get()?)?;
    plain(node, graph, after, count).add(m, |s| {
        check_context(s, context)?;
        Ok(Content::Work(Work::Copy(copy)))
    })
}

fn add_fill(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_MEMSET_NODE_PARAMS_v1>,
    context: CUcontext,
) -> Result {
    let fill = fill_of(m, &params.get()?)?;
    plain(node, graph, after, count).add(m, |s| {
        check_context(s, context)?;
        Ok(Content::Work(Work::Fill(fill)))
    })
}

fn add_empty(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
) -> Result {
    plain(node, graph, after, count).add(m, |_| Ok(Content::Work(Work::Empty)))
}

fn add_host(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: In<CUDA_HOST_NODE_PARAMS_v1>,
) -> Result {
    let callback = Callback::of_node(&params.get()?)?;
    plain(node, graph, after, count).add(m, |_| Ok(Content::Work(Work::Host(callback))))
}

fn add_child(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    child: CUgraph,
) -> Result {
    plain(node, graph, after, count).add(m, |s| child_content(s, graph, child))
}

/// A child node works on a copy of the graph it is given.
fn child_content(s: &mut State, graph: CUgraph, child: CUgraph) -> Result<Content> {
    require(graph != child, || "a graph cannot be its own child".into())?;
    let child = s.graphs.find(child)?;
    Ok(Content::Child(s.copy_graph(child)))
}

fn add_record(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    event: CUevent,
) -> Result {
    plain(node, graph, after, count).add(m, |s| record_content(s, event))
}

fn record_content(s: &State, event: CUevent) -> Result<Content> {
    Ok(Content::Work(Work::Record(s.events[s.events.find(event)?].cell.clone())))
}

fn add_wait(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    event: CUevent,
) -> Result {
    plain(node, graph, after, count).add(m, |s| wait_content(s, event))
}

fn wait_content(s: &State, event: CUevent) -> Result<Content> {
    Ok(Content::Work(Work::Wait(s.events[s.events.find(event)?].cell.clone())))
}

fn add_any(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
    params: Out<CUgraphNodeParams>,
) -> Result {
    let params = params.get()?;
    NewNode { node, graph, after, edges, count }.add(m, |s| any_content(m, s, Some(graph), &params))
}

fn add_any_plain(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    after: In<CUgraphNode>,
    count: usize,
    params: Out<CUgraphNodeParams>,
) -> Result {
    add_any(m, node, graph, after, In::null(), count, params)
}

/// The content that a node of any type describes: the member that `type` selects, everything past it zero.
pub(crate) fn any_content(
    m: &Machine,
    s: &mut State,
    graph: Option<CUgraph>,
    p: &CUgraphNodeParams,
) -> Result<Content> {
    use CUgraphNodeType as T;
    require(p.reserved0 == [0; 3] && p.reserved2 == 0, || "reserved bytes are not zero".into())?;
    let words = match p.r#type {
        T::KERNEL => 9,
        T::MEMCPY => 27,
        T::MEMSET => 6,
        T::HOST => 4,
        T::GRAPH => 2,
        T::EMPTY => 0,
        T::WAIT_EVENT => 1,
        T::EVENT_RECORD => 2,
        other => return refuse(CUresult::NOT_SUPPORTED, format!("nodes of type {other:?} are not emulated")),
    };
    require(p.params[words..].iter().all(|&word| word == 0), || {
        "bytes past the used member are not zero".into()
    })?;
    let event = CUevent(p.params[0] as usize as *mut c_void);
    match p.r#type {
        T::KERNEL => kernel_content(s, kernel_params::<CUDA_KERNEL_NODE_PARAMS_v2>(node_member(p, 0))?),
        T::MEMCPY => {
            Ok(Content::Work(Work::Copy(copy_of(m, &node_member::<CUDA_MEMCPY3D_v2>(p, 2).get()?)?)))
        }
        T::MEMSET => Ok(Content::Work(Work::Fill(fill_of(
            m,
            &node_member::<CUDA_MEMSET_NODE_PARAMS_v1>(p, 0).get()?,
        )?))),
        T::HOST => Ok(Content::Work(Work::Host(Callback::of_node(&node_member(p, 0).get()?)?))),
        T::GRAPH => {
            let Some(graph) = graph else {
                return refuse(CUresult::INVALID_VALUE, "a child graph cannot be changed");
            };
            child_content(s, graph, CUgraph(p.params[0] as usize as *mut c_void))
        }
        T::WAIT_EVENT => wait_content(s, event),
        T::EVENT_RECORD => record_content(s, event),
        _ => Ok(Content::Work(Work::Empty)),
    }
}

/// Changes what a node does, but not its type.
fn replace(
    m: &'static Machine,
    node: CUgraphNode,
    content: impl FnOnce(&mut State) -> Result<Content>,
) -> Result {
    let mut s = m.state();
    let id = s.nodes.find(node)?;
    let content = content(&mut s)?;
    let same = s.node_type(&content) == s.node_type(&s.nodes[id].content);
    require(same, || "the parameters are of another type than the node".into())?;
    let node = &mut s.nodes[id];
    node.content = content;
    node.shown = None;
    Ok(())
}

fn set_kernel<P: KernelNode>(m: &'static Machine, node: CUgraphNode, params: In<P>) -> Result {
    let params = kernel_params(params)?;
    replace(m, node, |s| kernel_content(s, params))
}

fn set_copy(m: &'static Machine, node: CUgraphNode, params: In<CUDA_MEMCPY3D_v2>) -> Result {
    let copy = copy_of(m, &params.get()?)?;
    replace(m, node, |_| Ok(Content::Work(Work::Copy(copy))))
}

fn set_fill(m: &'static Machine, node: CUgraphNode, params: In<CUDA_MEMSET_NODE_PARAMS_v1>) -> Result {
    let fill = fill_of(m, &params.get()?)?;
    replace(m, node, |_| Ok(Content::Work(Work::Fill(fill))))
}

fn set_any(m: &'static Machine, node: CUgraphNode, params: Out<CUgraphNodeParams>) -> Result {
    let params = params.get()?;
    replace(m, node, |s| any_content(m, s, None, &params))
}

fn get_kernel<P: KernelNode>(m: &'static Machine, node: CUgraphNode, params: Out<P>) -> Result {
    let mut s = m.state();
    let id = s.nodes.find(node)?;
    let node = &mut s.nodes[id];
    let Content::Work(Work::Kernel(kernel)) = &node.content else {
        return refuse(CUresult::INVALID_VALUE, "the node is no kernel node");
    };
    let shown = node.shown.get_or_insert_with(|| ExposedParams::new(&kernel.params, &kernel.function.params));
    params.set(P::filled(kernel, shown))
}

impl State {
    pub(crate) fn node_type(&self, content: &Content) -> CUgraphNodeType {
        match content {
            Content::Work(work) => work.node_type(),
            Content::Child(_) => CUgraphNodeType::GRAPH,
        }
    }
}

fn get_type(m: &'static Machine, node: CUgraphNode, kind: Out<CUgraphNodeType>) -> Result {
    let s = m.state();
    kind.set(s.node_type(&s.nodes[s.nodes.find(node)?].content))
}

fn get_child(m: &'static Machine, node: CUgraphNode, graph: Out<CUgraph>) -> Result {
    let s = m.state();
    match s.nodes[s.nodes.find(node)?].content {
        Content::Child(child) => graph.set(child.handle()),
        Content::Work(_) => refuse(CUresult::INVALID_VALUE, "the node is no child graph node"),
    }
}

/// The pairs of nodes that a caller lists as edges.
fn pairs(
    s: &State,
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    count: usize,
) -> Result<Vec<(Id<Node>, Id<Node>)>> {
    let graph = s.graphs.find(graph)?;
    let node = |handle: &CUgraphNode| -> Result<Id<Node>> {
        let id = s.nodes.find(*handle)?;
        require(s.nodes[id].graph == graph, || format!("{id:?} is a node of another graph"))?;
        Ok(id)
    };
    let ends = from.slice(count)?.iter().zip(to.slice(count)?);
    ends.map(|(from, to)| Ok((node(from)?, node(to)?))).collect()
}

fn add_edges(
    m: &'static Machine,
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    count: usize,
) -> Result {
    add_edges_with_data(m, graph, from, to, In::null(), count)
}

/// All edges or none; one that would create a cycle is found when the graph is instantiated.
fn add_edges_with_data(
    m: &'static Machine,
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    edges: In<CUgraphEdgeData>,
    count: usize,
) -> Result {
    let mut s = m.state();
    let pairs = pairs(&s, graph, from, to, count)?;
    let datas = edge_data(edges, count)?;
    let id = s.graphs.find(graph)?;
    let mut all = s.graphs[id].edges.clone();
    for (&(from, to), data) in pairs.iter().zip(datas) {
        require(from != to, || format!("the node {from:?} cannot wait for itself"))?;
        let known = all.iter().any(|e| (e.from, e.to) == (from, to));
        require(!known, || format!("the edge from {from:?} to {to:?} exists already"))?;
        s.check_edge(from, &s.nodes[to].content, data)?;
        all.push(Edge { from, to, data });
    }
    s.graphs[id].edges = all;
    Ok(())
}

fn remove_edges(
    m: &'static Machine,
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    count: usize,
) -> Result {
    let mut s = m.state();
    let pairs = pairs(&s, graph, from, to, count)?;
    let id = s.graphs.find(graph)?;
    let edges = &mut s.graphs[id].edges;
    for pair in &pairs {
        require(edges.iter().any(|e| (e.from, e.to) == *pair), || format!("there is no edge {pair:?}"))?;
    }
    edges.retain(|e| !pairs.contains(&(e.from, e.to)));
    Ok(())
}

fn remove_edges_with_data(
    m: &'static Machine,
    graph: CUgraph,
    from: In<CUgraphNode>,
    to: In<CUgraphNode>,
    _edges: In<CUgraphEdgeData>,
    count: usize,
) -> Result {
    remove_edges(m, graph, from, to, count)
}

fn destroy_node(m: &'static Machine, node: CUgraphNode) -> Result {
    let mut s = m.state();
    let id = s.nodes.find(node)?;
    let graph = s.nodes[id].graph;
    let graph = &mut s.graphs[graph];
    graph.nodes.retain(|&other| other != id);
    graph.edges.retain(|e| e.from != id && e.to != id);
    s.remove_node(id);
    Ok(())
}

/// Writes a list as the driver does: without an array its length, else as much as fits, the rest NULL.
fn write_list(items: &[CUgraphNode], nodes: Out<CUgraphNode>, count: Out<usize>) -> Result {
    require(!count.is_null(), || "the count pointer is NULL".into())?;
    if nodes.is_null() {
        return count.set(items.len());
    }
    let room = count.get()?;
    nodes.set_all(items.iter().copied().chain(std::iter::repeat(CUgraphNode::NULL)).take(room));
    count.set(items.len().min(room))
}

fn handles(ids: impl Iterator<Item = Id<Node>>) -> Vec<CUgraphNode> {
    ids.map(Id::handle).collect()
}

fn get_nodes(m: &'static Machine, graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) -> Result {
    let s = m.state();
    let graph = &s.graphs[s.graphs.find(graph)?];
    write_list(&handles(graph.nodes.iter().copied()), nodes, count)
}

fn get_roots(m: &'static Machine, graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) -> Result {
    let s = m.state();
    let graph = &s.graphs[s.graphs.find(graph)?];
    let root = |id: &Id<Node>| graph.edges.iter().all(|e| e.to != *id);
    write_list(&handles(graph.nodes.iter().copied().filter(root)), nodes, count)
}

/// One end of each edge: where to write it and which it is.
type Ends<'a> = (Out<'a, CUgraphNode>, fn(&Edge) -> Id<Node>);

/// Writes edges as lists of their ends, refusing to drop their data.
fn write_edges(edges: &[&Edge], lists: &[Ends], data: Out<CUgraphEdgeData>, count: Out<usize>) -> Result {
    require(!count.is_null(), || "the count pointer is NULL".into())?;
    if lists.iter().any(|(list, _)| list.is_null()) {
        return count.set(edges.len());
    }
    if data.is_null() && edges.iter().any(|e| e.data != [0; 3]) {
        return refuse(CUresult::LOSSY_QUERY, "the graph has edge data, which this query would lose");
    }
    let room = count.get()?;
    for (list, end) in lists {
        let ends = edges.iter().map(|e| end(e).handle());
        list.set_all(ends.chain(std::iter::repeat(CUgraphNode::NULL)).take(room));
    }
    if !data.is_null() {
        data.set_all(edges.iter().map(|e| shown_edge(e.data)).take(room));
    }
    count.set(edges.len().min(room))
}

fn shown_edge([from_port, to_port, r#type]: EdgeData) -> CUgraphEdgeData {
    CUgraphEdgeData { from_port, to_port, r#type, reserved: [0; 5] }
}

fn get_edges(
    m: &'static Machine,
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    count: Out<usize>,
) -> Result {
    get_edges_with_data(m, graph, from, to, Out::null(), count)
}

fn get_edges_with_data(
    m: &'static Machine,
    graph: CUgraph,
    from: Out<CUgraphNode>,
    to: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Result {
    require(from.is_null() == to.is_null(), || "one of the two arrays is NULL".into())?;
    require(data.is_null() || !from.is_null(), || "edge data is asked for without the edges".into())?;
    let s = m.state();
    let edges: Vec<&Edge> = s.graphs[s.graphs.find(graph)?].edges.iter().collect();
    write_edges(&edges, &[(from, |e| e.from), (to, |e| e.to)], data, count)
}

fn get_before(m: &'static Machine, node: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) -> Result {
    get_before_with_data(m, node, nodes, Out::null(), count)
}

fn get_before_with_data(
    m: &'static Machine,
    node: CUgraphNode,
    nodes: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Result {
    let s = m.state();
    let id = s.nodes.find(node)?;
    let edges: Vec<&Edge> = s.graphs[s.nodes[id].graph].edges.iter().filter(|e| e.to == id).collect();
    write_edges(&edges, &[(nodes, |e| e.from)], data, count)
}

fn get_after(m: &'static Machine, node: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) -> Result {
    get_after_with_data(m, node, nodes, Out::null(), count)
}

fn get_after_with_data(
    m: &'static Machine,
    node: CUgraphNode,
    nodes: Out<CUgraphNode>,
    data: Out<CUgraphEdgeData>,
    count: Out<usize>,
) -> Result {
    let s = m.state();
    let id = s.nodes.find(node)?;
    let edges: Vec<&Edge> = s.graphs[s.nodes[id].graph].edges.iter().filter(|e| e.from == id).collect();
    write_edges(&edges, &[(nodes, |e| e.to)], data, count)
}

fn find_in_clone(
    m: &'static Machine,
    node: Out<CUgraphNode>,
    original: CUgraphNode,
    clone: CUgraph,
) -> Result {
    let s = m.state();
    let original = s.nodes.find(original)?;
    let clone = s.graphs.find(clone)?;
    let found = s.graphs[clone].nodes.iter().find(|&&id| s.nodes[id].original == Some(original));
    match found {
        Some(found) => node.set(found.handle()),
        None => refuse(CUresult::INVALID_VALUE, "the graph has no copy of that node"),
    }
}

fn print_dot(m: &'static Machine, graph: CUgraph, path: In<c_char>, flags: CUgraphDebugDot_flags) -> Result {
    let s = m.state();
    let text = dot::print(&s, s.graphs.find(graph)?, flags);
    let path = path.text()?;
    std::fs::write(path, text).or_else(|error| refuse(CUresult::OPERATING_SYSTEM, format!("{path}: {error}")))
}
