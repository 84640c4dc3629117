//! Executable graphs: instantiation, launch, changes in place, and the search for missing edges.
//!
//! An executable graph is a list of steps with the edges between them, children unfolded. A launch runs the steps one
//! after the other in some order that the edges permit. Two steps that no path of edges orders may run at the same
//! time on a GPU; so a step is traced when it runs for the first time and after it changes, and what it touched is
//! compared with every step it is not ordered with.
//!
//! On a GPU the two kernels of a programmatic edge may overlap; here the second runs after the first has ended. So
//! what a kernel touched before its `griddepcontrol.wait` is compared with every kernel that may then still run, and
//! a kernel that ends without waiting is reported.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{c_char, c_uint};
use std::sync::{Arc, OnceLock};

use ptx_emu::{Accesses, AllocationInfo, Conflict, ConflictKind, Order, Place};
use warpwright_driver_sys::*;

use crate::capture;
use crate::ffi::{Error, In, KernelNode, Out, Result, exports, kernel_params, refuse, require};
use crate::graph::{Content, EdgeData, Graph, Node, any_content, kernel_content};
use crate::handle::Id;
use crate::machine::Machine;
use crate::memory::{copy_of, fill_of};
use crate::queue::{Mark, Reach, Task, Ticket};
use crate::state::State;
use crate::work::{self, Work};

/// A graph ready to launch.
pub(crate) struct Exec {
    /// The graph as it was instantiated.
    draft: Draft,
    flags: CUgraphInstantiate_flags,
    shape: Arc<Topology>,
    steps: Arc<Vec<ExecStep>>,
    /// The step of each node, for changes.
    of_node: HashMap<Id<Node>, usize>,
    launches: u64,
    last: Option<Ticket>,
}

/// A graph as plain data, so that it outlives its nodes and compares with another.
struct Draft {
    nodes: Vec<DraftNode>,
}

struct DraftNode {
    id: Id<Node>,
    content: DraftContent,
    /// The nodes it waits for, by number, in the order of its edges.
    after: Vec<(usize, EdgeData)>,
}

enum DraftContent {
    Work(Work),
    Child(Draft),
}

/// The edges between steps.
#[derive(Default)]
struct Topology {
    /// The steps that wait for each step.
    next: Vec<Vec<usize>>,
    /// How many steps each step waits for.
    waits: Vec<usize>,
    /// The edges whose second step may start before the first ends.
    programmatic: Vec<(usize, usize)>,
    /// For each step the set of steps before it, in bits; made when first asked for.
    before: OnceLock<Vec<Box<[u64]>>>,
}

#[derive(Clone)]
struct ExecStep {
    work: Work,
    enabled: bool,
    /// What it touched when it was traced; empty again after a change.
    touched: OnceLock<Arc<Accesses>>,
}

exports! {
    required {
        11040 cuGraphInstantiateWithFlags cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: CUgraphInstantiate_flags) => instantiate_with_flags;
        11010 cuGraphUpload cuGraphUpload(exec: CUgraphExec, stream: CUstream) => upload;
        10000 cuGraphLaunch cuGraphLaunch(exec: CUgraphExec, stream: CUstream) => launch;
        10000 cuGraphExecDestroy cuGraphExecDestroy(exec: CUgraphExec) => destroy;
        12000 cuGraphExecKernelNodeSetParams cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v2) => set_kernel;
        12000 cuGraphExecUpdate cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo) => update;
        11060 cuGraphNodeSetEnabled cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint) => set_enabled;
        11060 cuGraphNodeGetEnabled cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint) => get_enabled;
    }
    optional {
        12000 cuGraphInstantiateWithParams cuGraphInstantiateWithParams(exec: *mut CUgraphExec, graph: CUgraph, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) => instantiate_with_params;
    }
    more {
        10000 cuGraphInstantiate cuGraphInstantiate(exec: *mut CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, log: *mut c_char, log_bytes: usize) => instantiate_with_log;
        11000 cuGraphInstantiate cuGraphInstantiate_v2(exec: *mut CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, log: *mut c_char, log_bytes: usize) => instantiate_with_log;
        12000 cuGraphExecGetFlags cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64) => get_flags;
        10010 cuGraphExecKernelNodeSetParams cuGraphExecKernelNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1) => set_kernel;
        10020 cuGraphExecMemcpyNodeSetParams cuGraphExecMemcpyNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMCPY3D_v2, context: CUcontext) => set_copy;
        10020 cuGraphExecMemsetNodeSetParams cuGraphExecMemsetNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext) => set_fill;
        12020 cuGraphExecNodeSetParams cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *mut CUgraphNodeParams) => set_any;
        10020 cuGraphExecUpdate cuGraphExecUpdate(exec: CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, result: *mut CUgraphExecUpdateResult) => update_v1;
    }
}

impl State {
    /// A graph as plain data.
    fn draft(&self, graph: Id<Graph>) -> Draft {
        let graph = &self.graphs[graph];
        let numbers: HashMap<Id<Node>, usize> =
            graph.nodes.iter().enumerate().map(|(i, &id)| (id, i)).collect();
        let content = |id: Id<Node>| match &self.nodes[id].content {
            Content::Work(work) => DraftContent::Work(work.clone()),
            Content::Child(child) => DraftContent::Child(self.draft(*child)),
        };
        let node = |&id: &Id<Node>| DraftNode { id, content: content(id), after: Vec::new() };
        let mut nodes: Vec<DraftNode> = graph.nodes.iter().map(node).collect();
        for edge in &graph.edges {
            nodes[numbers[&edge.to]].after.push((numbers[&edge.from], edge.data));
        }
        Draft { nodes }
    }

    /// A graph made from plain data, with the work that an executable graph has now.
    fn graph_of(&mut self, draft: &Draft, exec: &dyn Fn(Id<Node>) -> Option<Work>) -> Id<Graph> {
        let graph = self.graphs.insert(Graph::default());
        let mut made = Vec::new();
        for node in &draft.nodes {
            let content = match &node.content {
                DraftContent::Work(work) => Content::Work(exec(node.id).unwrap_or_else(|| work.clone())),
                DraftContent::Child(child) => Content::Child(self.graph_of(child, exec)),
            };
            made.push(self.add_node(graph, &[], content));
        }
        for (i, node) in draft.nodes.iter().enumerate() {
            let edges = node.after.iter();
            let edges = edges.map(|&(from, data)| crate::graph::Edge { from: made[from], to: made[i], data });
            self.graphs[graph].edges.extend(edges);
        }
        graph
    }
}

/// Steps and edges under construction.
#[derive(Default)]
struct Unfolding {
    steps: Vec<ExecStep>,
    shape: Topology,
    of_node: HashMap<Id<Node>, usize>,
}

impl Unfolding {
    /// Adds the steps of a graph. A child becomes an empty step before its own steps and one after them.
    fn graph(&mut self, draft: &Draft, before: &[usize]) -> Vec<usize> {
        let mut ends = Vec::new();
        for node in &draft.nodes {
            let first = self.step(match &node.content {
                DraftContent::Work(work) => work.clone(),
                DraftContent::Child(_) => Work::Empty,
            });
            self.of_node.insert(node.id, first);
            ends.push((
                first,
                match &node.content {
                    DraftContent::Work(_) => first,
                    DraftContent::Child(child) => self.child(child, first),
                },
            ));
        }
        for (node, &(first, _)) in draft.nodes.iter().zip(&ends) {
            for &(from, data) in &node.after {
                self.edge(ends[from].1, first);
                if data != [0; 3] {
                    // Both ends are kernels, so that neither was unfolded.
                    self.shape.programmatic.push((ends[from].1, first));
                }
            }
            if node.after.is_empty() {
                before.iter().for_each(|&from| self.edge(from, first));
            }
        }
        let inner = |i: usize| draft.nodes.iter().all(|node| node.after.iter().all(|&(from, _)| from != i));
        (0..ends.len()).filter(|&i| inner(i)).map(|i| ends[i].1).collect()
    }

    /// Adds a child graph after its first step. Returns its last step.
    fn child(&mut self, child: &Draft, first: usize) -> usize {
        let leaves = self.graph(child, &[first]);
        let last = self.step(Work::Empty);
        leaves.iter().for_each(|&leaf| self.edge(leaf, last));
        if leaves.is_empty() {
            self.edge(first, last);
        }
        last
    }

    fn step(&mut self, work: Work) -> usize {
        self.steps.push(ExecStep { work, enabled: true, touched: OnceLock::new() });
        self.shape.next.push(Vec::new());
        self.shape.waits.push(0);
        self.steps.len() - 1
    }

    fn edge(&mut self, from: usize, to: usize) {
        self.shape.next[from].push(to);
        self.shape.waits[to] += 1;
    }
}

impl Topology {
    /// Visits the steps in an order that the edges permit; `pick` chooses among those that are ready. Gives how many
    /// it visited, which is fewer than there are when edges form a cycle.
    fn walk<E>(
        &self,
        mut pick: impl FnMut(&[usize]) -> usize,
        mut visit: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut waits = self.waits.clone();
        let mut ready: Vec<usize> = (0..waits.len()).filter(|&i| waits[i] == 0).collect();
        let mut visited = 0;
        while !ready.is_empty() {
            let step = ready.swap_remove(pick(&ready));
            visit(step)?;
            visited += 1;
            for &next in &self.next[step] {
                waits[next] -= 1;
                if waits[next] == 0 {
                    ready.push(next);
                }
            }
        }
        Ok(visited)
    }

    /// For each step the steps before it, as bits.
    fn before(&self) -> &[Box<[u64]>] {
        self.before.get_or_init(|| {
            let words = self.waits.len().div_ceil(64);
            let mut before = vec![vec![0u64; words].into_boxed_slice(); self.waits.len()];
            let visit = |step: usize| {
                let mut own = before[step].clone();
                own[step / 64] |= 1 << (step % 64);
                for &next in &self.next[step] {
                    before[next].iter_mut().zip(&own).for_each(|(bits, own)| *bits |= own);
                }
                Ok::<(), ()>(())
            };
            let _ = self.walk(|_| 0, visit);
            before
        })
    }

    /// Whether a path of edges orders two steps.
    fn ordered(&self, a: usize, b: usize) -> bool {
        let before = self.before();
        has(&before[a], b) || has(&before[b], a)
    }

    /// For each step the steps that have ended when it starts, as bits, which programmatic edges make fewer than
    /// those before it. A step may start when the step before it on such an edge triggers; `late` says
    /// whether that one has waited for everything before it by then.
    fn ended(&self, late: impl Fn(usize) -> bool) -> Vec<Box<[u64]>> {
        let before = self.before();
        let mut ended: Vec<Box<[u64]>> =
            before.iter().map(|bits| vec![0; bits.len()].into_boxed_slice()).collect();
        let visit = |step: usize| {
            for &next in &self.next[step] {
                let early = self.programmatic.contains(&(step, next));
                let mut known = if early && !late(step) { ended[step].clone() } else { before[step].clone() };
                known[step / 64] |= u64::from(!early) << (step % 64);
                ended[next].iter_mut().zip(&known).for_each(|(bits, known)| *bits |= known);
            }
            Ok::<(), ()>(())
        };
        let _ = self.walk(|_| 0, visit);
        ended
    }

    /// A step on a cycle, or one that a cycle precedes.
    fn stuck(&self) -> Option<usize> {
        let mut seen = vec![false; self.waits.len()];
        let visit = |step: usize| {
            seen[step] = true;
            Ok::<(), ()>(())
        };
        let _ = self.walk(|_| 0, visit);
        seen.iter().position(|seen| !seen)
    }
}

/// Whether a step is in a set of steps.
fn has(bits: &[u64], step: usize) -> bool {
    bits[step / 64] >> (step % 64) & 1 == 1
}

/// Instantiates a graph; when it cannot be, the node to blame and what kind of fault it is.
fn make(
    m: &'static Machine,
    graph: CUgraph,
    flags: CUgraphInstantiate_flags,
) -> Result<CUgraphExec, (Error, CUgraphNode, CUgraphInstantiateResult)> {
    let plain = |error| (error, CUgraphNode::NULL, CUgraphInstantiateResult::ERROR);
    let mut s = m.state();
    let id = s.graphs.find(graph).map_err(plain)?;
    s.context().map_err(plain)?;
    capture::refuse_unsafe(&mut s).map_err(plain)?;
    let known = CUgraphInstantiate_flags::all().contains(flags);
    require(known, || format!("the flags {:#x} are unknown", flags.bits())).map_err(plain)?;
    if flags.contains(CUgraphInstantiate_flags::DEVICE_LAUNCH) {
        let error = Error::new(CUresult::NOT_SUPPORTED, "launches from a kernel are not emulated");
        return Err((error, CUgraphNode::NULL, CUgraphInstantiateResult::NODE_OPERATION_NOT_SUPPORTED));
    }
    let draft = s.draft(id);
    let mut unfolded = Unfolding::default();
    unfolded.graph(&draft, &[]);
    if let Some(step) = unfolded.shape.stuck() {
        let node = unfolded.of_node.iter().find(|(_, at)| **at == step).map(|(id, _)| *id);
        let error = Error::new(CUresult::INVALID_VALUE, "the edges of the graph form a cycle");
        let node = node.map_or(CUgraphNode::NULL, Id::handle);
        return Err((error, node, CUgraphInstantiateResult::INVALID_STRUCTURE));
    }
    let Unfolding { steps, shape, of_node } = unfolded;
    let (shape, steps) = (Arc::new(shape), Arc::new(steps));
    Ok(s.execs.insert(Exec { draft, flags, shape, steps, of_node, launches: 0, last: None }).handle())
}

fn instantiate_with_flags(
    m: &'static Machine,
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    flags: CUgraphInstantiate_flags,
) -> Result {
    require(!exec.is_null(), || "the result pointer is NULL".into())?;
    let upload = flags.contains(CUgraphInstantiate_flags::UPLOAD);
    require(!upload, || "UPLOAD needs cuGraphInstantiateWithParams".into())?;
    exec.set(make(m, graph, flags).map_err(|(error, ..)| error)?)
}

fn instantiate_with_params(
    m: &'static Machine,
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> Result {
    require(!exec.is_null(), || "the result pointer is NULL".into())?;
    let mut p = params.get()?;
    let made = make(m, graph, CUgraphInstantiate_flags::from_bits_retain(p.flags));
    (p.hErrNode_out, p.result_out) = match &made {
        Ok(_) => (CUgraphNode::NULL, CUgraphInstantiateResult::SUCCESS),
        Err((_, node, result)) => (*node, *result),
    };
    params.set(p)?;
    exec.set(made.map_err(|(error, ..)| error)?)
}

fn instantiate_with_log(
    m: &'static Machine,
    exec: Out<CUgraphExec>,
    graph: CUgraph,
    error_node: Out<CUgraphNode>,
    log: Out<c_char>,
    log_bytes: usize,
) -> Result {
    require(!exec.is_null(), || "the result pointer is NULL".into())?;
    match make(m, graph, CUgraphInstantiate_flags::empty()) {
        Ok(made) => exec.set(made),
        Err((error, node, _)) => {
            error_node.set_if(node);
            log.set_text(&error.text, log_bytes);
            Err(error)
        }
    }
}

/// There is nothing to upload; the checks are those of a launch.
fn upload(m: &'static Machine, exec: CUgraphExec, stream: CUstream) -> Result {
    let mut s = m.state();
    let stream = s.stream(m, stream)?;
    capture::refuse_in_stream(&mut s, stream)?;
    s.execs.find(exec).map(drop)
}

fn launch(m: &'static Machine, exec: CUgraphExec, stream: CUstream) -> Result {
    let mut s = m.state();
    let stream = s.stream(m, stream)?;
    let id = s.execs.find(exec)?;
    if s.streams[stream].capture.is_some() {
        return capture_launch(&mut s, id, stream);
    }
    capture::refuse_implicit(&mut s, stream)?;
    // Launches of one executable graph follow each other, in whichever streams they are.
    let queue = Arc::clone(&s.streams[stream].queue);
    let elsewhere = s.execs[id].last.clone().filter(|last| !last.is_in(&queue) && !last.is_done());
    if let Some(last) = elsewhere {
        s.enqueue(stream, Task::After(last))?;
    }
    let exec = &mut s.execs[id];
    exec.launches += 1;
    let run = GraphLaunch::new(m, exec);
    let ticket = s.enqueue(stream, Task::Graph(run))?;
    s.execs[id].last = Some(ticket);
    Ok(())
}

/// A launch in a capture becomes a child graph.
fn capture_launch(s: &mut State, id: Id<Exec>, stream: Id<crate::stream::Stream>) -> Result {
    let Exec { steps, of_node, .. } = &s.execs[id];
    let (steps, of_node) = (Arc::clone(steps), of_node.clone());
    let draft = std::mem::replace(&mut s.execs[id].draft, Draft { nodes: Vec::new() });
    let child = s.graph_of(&draft, &|node| of_node.get(&node).map(|&step| steps[step].work.clone()));
    s.execs[id].draft = draft;
    capture::record_content(s, stream, Content::Child(child))
}

/// One launch of an executable graph.
pub(crate) struct GraphLaunch {
    shape: Arc<Topology>,
    steps: Arc<Vec<ExecStep>>,
    /// The records that the graph waits for, by step, as they were when it was launched.
    waits: HashMap<usize, Arc<Mark>>,
    /// The events that the graph records, by step, reached at the latest when the run is dropped.
    records: HashMap<usize, Reach>,
    seed: u64,
}

impl GraphLaunch {
    fn new(m: &Machine, exec: &Exec) -> Self {
        let steps = || exec.steps.iter().enumerate();
        let wait = |(i, step): (usize, &ExecStep)| match &step.work {
            Work::Wait(cell) => Some((i, cell.last()?)),
            _ => None,
        };
        let record = |(i, step): (usize, &ExecStep)| match &step.work {
            Work::Record(cell) => Some((i, cell.record())),
            _ => None,
        };
        Self {
            shape: Arc::clone(&exec.shape),
            steps: Arc::clone(&exec.steps),
            waits: steps().filter_map(wait).collect(),
            records: steps().filter_map(record).collect(),
            seed: m.config.seed.wrapping_add(exec.launches),
        }
    }

    /// Runs the launch, where nothing in it waits, on a thread of the pool that runs the blocks of kernels: handing
    /// each kernel over to the pool costs ten times as much as a small kernel.
    pub(crate) fn perform(self, m: &Machine) -> Result {
        let waits = |step: &ExecStep| matches!(step.work, Work::Host(_) | Work::Wait(_));
        if self.steps.iter().any(waits) { self.run(m) } else { rayon::scope(|_| self.run(m)) }
    }

    /// Runs the steps, then compares what was traced.
    fn run(mut self, m: &Machine) -> Result {
        let mut fresh = Vec::new();
        let mut random = self.seed;
        let order = m.config.order;
        let pick = |ready: &[usize]| match order {
            Order::InOrder => position_of(ready, ready.iter().min()),
            Order::Reversed => position_of(ready, ready.iter().max()),
            Order::Shuffled => (next_random(&mut random) % ready.len() as u64) as usize,
        };
        let (shape, steps, waits, records) = (&self.shape, &self.steps, &self.waits, &mut self.records);
        let visit = |i: usize| {
            if let Some(mark) = waits.get(&i) {
                mark.wait();
            }
            if run_step(m, i, &steps[i])? {
                fresh.push(i);
            }
            records.remove(&i);
            Ok::<(), Error>(())
        };
        shape.walk(pick, visit)?;
        if fresh.is_empty() { Ok(()) } else { self.compare(&fresh) }
    }

    /// What a step touched, if it runs.
    fn touched(&self, step: usize) -> Option<&Accesses> {
        self.steps[step].touched.get().filter(|_| self.steps[step].enabled).map(Arc::as_ref)
    }

    /// Compares the steps that were traced in this run with every step that nothing orders with them.
    fn compare(&self, fresh: &[usize]) -> Result {
        let touched = |i| self.touched(i);
        for (a, b) in (0..self.steps.len()).flat_map(|b| (0..b).map(move |a| (a, b))) {
            let new = fresh.contains(&a) || fresh.contains(&b);
            let (true, Some(first), Some(second)) = (new, touched(a), touched(b)) else { continue };
            if self.shape.ordered(a, b) {
                continue;
            }
            if let Some(conflict) = first.conflict(second) {
                return Err(self.missing_edge(a, b, &conflict));
            }
        }
        if self.shape.programmatic.is_empty() { Ok(()) } else { self.compare_early() }
    }

    /// Finds kernels that a programmatic edge leads to and that do not wait, or touch shared bytes before they wait.
    fn compare_early(&self) -> Result {
        for &(a, b) in &self.shape.programmatic {
            if self.touched(b).is_some_and(|accesses| !accesses.waited()) {
                return Err(self.missing_wait(a, b));
            }
        }
        // What is switched off has no accesses, and nobody says when it lets the next one start.
        let late = |step| self.touched(step).is_some_and(|a| a.triggers().iter().all(|t| t.waited));
        let (before, ended) = (self.shape.before(), self.shape.ended(late));
        for (a, b) in (0..self.steps.len()).flat_map(|b| (0..self.steps.len()).map(move |a| (a, b))) {
            if !has(&before[b], a) || has(&ended[b], a) {
                continue;
            }
            let (Some(first), Some(second)) = (self.touched(a), self.touched(b)) else { continue };
            if let Some(conflict) = second.before_wait_conflict(first) {
                return Err(self.early_access(a, b, &conflict));
            }
        }
        Ok(())
    }

    fn missing_edge(&self, a: usize, b: usize, c: &Conflict) -> Error {
        let (a, b) = (self.node(a), self.node(b));
        failed(format!(
            "MissingEdge: no path of edges orders {a} and {b}\n{}\n  add an edge between them",
            story(&a, &b, c, "")
        ))
    }

    fn missing_wait(&self, a: usize, b: usize) -> Error {
        let (a, b) = (self.node(a), self.node(b));
        failed(format!(
            "MissingWait: {b} follows {a} by a programmatic edge and ends without griddepcontrol.wait in some block\n  \
             what comes after {b} cannot rely on {a}\n  \
             execute griddepcontrol.wait in every block, or make the edge a full one"
        ))
    }

    fn early_access(&self, a: usize, b: usize, c: &Conflict) -> Error {
        let (a, b) = (self.node(a), self.node(b));
        failed(format!(
            "EarlyAccess: {b} may start before {a} ends, because of a programmatic edge\n{}\n  \
             execute griddepcontrol.wait before, or make the edge a full one",
            story(&a, &b, c, ", before its griddepcontrol.wait")
        ))
    }

    fn node(&self, step: usize) -> String {
        format!("node {step} ({})", self.steps[step].work.name())
    }
}

fn failed(text: String) -> Error {
    Error { code: CUresult::LAUNCH_FAILED, text }
}

/// Describes what two nodes do to the same bytes; `when` says when the second does it.
fn story(a: &str, b: &str, c: &Conflict, when: &str) -> String {
    let (did, does) = match c.kind {
        ConflictKind::WriteWrite => ("writes", "writes"),
        ConflictKind::WriteRead => ("writes", "reads"),
        ConflictKind::ReadWrite => ("reads", "writes"),
    };
    // A copy or a fill has no line.
    let at = |place: &Place| if place.line == 0 { String::new() } else { format!(" at {place}") };
    let AllocationInfo { label, base, bytes } = &c.allocation;
    let (offset, first, second) = (c.address - base, at(&c.first.1), at(&c.second.1));
    format!(
        "  {a} {did} offset {offset} of `{label}` (0x{base:x}, {bytes} bytes){first}\n  {b} {does} it{second}{when}"
    )
}

/// Runs a step, tracing it if that was not done yet; whether it was traced now.
fn run_step(m: &Machine, number: usize, step: &ExecStep) -> Result<bool> {
    if !step.enabled {
        return Ok(false);
    }
    let trace = m.config.check_graphs && step.touched.get().is_none();
    let in_graph = |failure: Error| Error {
        text: format!("{}\n  in node {number} ({}) of a graph", failure.text, step.work.name()),
        ..failure
    };
    let touched = step.work.run(m, trace.then(|| step.work.name())).map_err(in_graph)?;
    Ok(touched.is_some_and(|touched| step.touched.set(Arc::new(touched)).is_ok()))
}

fn position_of(ready: &[usize], wanted: Option<&usize>) -> usize {
    ready.iter().position(|step| Some(step) == wanted).unwrap_or(0)
}

/// SplitMix64: every seed gives another order.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Destroying returns at once; a launch that is queued still runs.
fn destroy(m: &'static Machine, exec: CUgraphExec) -> Result {
    let mut s = m.state();
    let id = s.execs.find(exec)?;
    capture::refuse_unsafe(&mut s)?;
    s.execs.remove(id);
    Ok(())
}

fn get_flags(m: &'static Machine, exec: CUgraphExec, flags: Out<u64>) -> Result {
    let s = m.state();
    flags.set(s.execs[s.execs.find(exec)?].flags.bits())
}

/// The step of a node, which must still exist.
fn step_of(s: &State, exec: CUgraphExec, node: CUgraphNode) -> Result<(Id<Exec>, usize)> {
    let exec = s.execs.find(exec)?;
    let node = s.nodes.find(node)?;
    match s.execs[exec].of_node.get(&node) {
        Some(&step) => Ok((exec, step)),
        None => refuse(CUresult::INVALID_VALUE, "the executable graph was not made from that node"),
    }
}

/// Changes what a step does in launches to come; launches in flight keep the old steps.
fn replace(
    m: &'static Machine,
    exec: CUgraphExec,
    node: CUgraphNode,
    content: impl FnOnce(&mut State) -> Result<Content>,
) -> Result {
    let mut s = m.state();
    let (id, step) = step_of(&s, exec, node)?;
    let Content::Work(work) = content(&mut s)? else {
        return refuse(
            CUresult::NOT_SUPPORTED,
            "a child graph of an executable graph is not changed in place",
        );
    };
    let old = &s.execs[id].steps[step].work;
    if let Some((_, why)) = unlike(old, &work) {
        return refuse(CUresult::INVALID_VALUE, why);
    }
    change(&mut s.execs[id], step, work);
    Ok(())
}

fn change(exec: &mut Exec, step: usize, work: Work) {
    if exec.steps[step].work != work {
        let step = &mut Arc::make_mut(&mut exec.steps)[step];
        (step.work, step.touched) = (work, OnceLock::new());
    }
}

/// Why one piece of work cannot take the place of another, or none.
fn unlike(old: &Work, new: &Work) -> Option<(CUgraphExecUpdateResult, &'static str)> {
    use CUgraphExecUpdateResult as R;
    let side = |place: &work::Location| matches!(place, work::Location::Device(_));
    match (old, new) {
        (Work::Kernel(a), Work::Kernel(b)) if a.function.context != b.function.context => {
            Some((R::ERROR_UNSUPPORTED_FUNCTION_CHANGE, "the function is of another context"))
        }
        (Work::Copy(a), Work::Copy(b))
            if (side(&a.to.place), side(&a.from.place)) != (side(&b.to.place), side(&b.from.place)) =>
        {
            Some((R::ERROR_PARAMETERS_CHANGED, "the copy is between other kinds of memory"))
        }
        _ if old.node_type() != new.node_type() => {
            Some((R::ERROR_NODE_TYPE_CHANGED, "the parameters are of another type than the node"))
        }
        _ => None,
    }
}

fn set_kernel<P: KernelNode>(
    m: &'static Machine,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<P>,
) -> Result {
    let params = kernel_params(params)?;
    replace(m, exec, node, |s| kernel_content(s, params))
}

fn set_copy(
    m: &'static Machine,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_MEMCPY3D_v2>,
    _context: CUcontext,
) -> Result {
    let copy = copy_of(m, &params.get()?)?;
    replace(m, exec, node, |_| Ok(Content::Work(Work::Copy(copy))))
}

fn set_fill(
    m: &'static Machine,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: In<CUDA_MEMSET_NODE_PARAMS_v1>,
    _context: CUcontext,
) -> Result {
    let fill = fill_of(m, &params.get()?)?;
    replace(m, exec, node, |_| Ok(Content::Work(Work::Fill(fill))))
}

fn set_any(
    m: &'static Machine,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: Out<CUgraphNodeParams>,
) -> Result {
    let params = params.get()?;
    replace(m, exec, node, |s| any_content(m, s, None, &params))
}

fn set_enabled(m: &'static Machine, exec: CUgraphExec, node: CUgraphNode, enabled: c_uint) -> Result {
    let mut s = m.state();
    let (id, step) = switchable(&s, exec, node)?;
    let exec = &mut s.execs[id];
    let enabled = enabled != 0;
    if exec.steps[step].enabled != enabled {
        let step = &mut Arc::make_mut(&mut exec.steps)[step];
        // Nobody has compared it with steps that ran while it was off.
        (step.enabled, step.touched) = (enabled, OnceLock::new());
    }
    Ok(())
}

fn get_enabled(m: &'static Machine, exec: CUgraphExec, node: CUgraphNode, enabled: Out<c_uint>) -> Result {
    let s = m.state();
    let (id, step) = switchable(&s, exec, node)?;
    enabled.set(s.execs[id].steps[step].enabled.into())
}

/// The step of a kernel, copy or fill node: no other kind can be switched off.
fn switchable(s: &State, exec: CUgraphExec, node: CUgraphNode) -> Result<(Id<Exec>, usize)> {
    let (id, step) = step_of(s, exec, node)?;
    let kind = matches!(s.execs[id].steps[step].work, Work::Kernel(_) | Work::Copy(_) | Work::Fill(_));
    require(kind, || "only kernel, memcpy and memset nodes can be switched off".into())?;
    Ok((id, step))
}

/// Why a graph does not fit an executable graph: the result and up to two nodes.
struct Difference {
    result: CUgraphExecUpdateResult,
    node: Option<Id<Node>>,
    from: Option<Id<Node>>,
    why: &'static str,
}

/// Pairs the nodes of two graphs by order and finds the first that does not fit.
fn difference(old: &Draft, new: &Draft) -> Option<Difference> {
    use CUgraphExecUpdateResult as R;
    let at =
        |result, node: &DraftNode, from, why| Some(Difference { result, node: Some(node.id), from, why });
    if old.nodes.len() != new.nodes.len() {
        let why = "the number of nodes differs";
        return Some(Difference { result: R::ERROR_TOPOLOGY_CHANGED, node: None, from: None, why });
    }
    for (a, b) in old.nodes.iter().zip(&new.nodes) {
        if a.after != b.after {
            let changed = b.after.iter().enumerate().find(|(i, edge)| a.after.get(*i) != Some(*edge));
            let from = changed.map(|(_, &(from, _))| new.nodes[from].id);
            return at(R::ERROR_TOPOLOGY_CHANGED, b, from, "the dependencies of a node differ");
        }
        match (&a.content, &b.content) {
            (DraftContent::Work(a), DraftContent::Work(work)) => {
                if let Some((result, why)) = unlike(a, work) {
                    return at(result, b, None, why);
                }
            }
            (DraftContent::Child(a), DraftContent::Child(child)) => {
                if let Some(difference) = difference(a, child) {
                    return Some(difference);
                }
            }
            _ => return at(R::ERROR_NODE_TYPE_CHANGED, b, None, "the type of a node differs"),
        }
    }
    None
}

fn update(
    m: &'static Machine,
    exec: CUgraphExec,
    graph: CUgraph,
    info: Out<CUgraphExecUpdateResultInfo>,
) -> Result {
    require(!info.is_null(), || "the result pointer is NULL".into())?;
    let found = update_exec(m, exec, graph)?;
    let node = |id: Option<Id<Node>>| id.map_or(CUgraphNode::NULL, Id::handle);
    let result = found.as_ref().map_or(CUgraphExecUpdateResult::SUCCESS, |d| d.result);
    let (error, from) = found.as_ref().map_or((None, None), |d| (d.node, d.from));
    info.set(CUgraphExecUpdateResultInfo { result, errorNode: node(error), errorFromNode: node(from) })?;
    refuse_difference(found)
}

fn update_v1(
    m: &'static Machine,
    exec: CUgraphExec,
    graph: CUgraph,
    error_node: Out<CUgraphNode>,
    result: Out<CUgraphExecUpdateResult>,
) -> Result {
    require(!result.is_null(), || "the result pointer is NULL".into())?;
    let found = update_exec(m, exec, graph)?;
    let node = found.as_ref().and_then(|d| d.node);
    error_node.set_if(node.map_or(CUgraphNode::NULL, Id::handle));
    result.set(found.as_ref().map_or(CUgraphExecUpdateResult::SUCCESS, |d| d.result))?;
    refuse_difference(found)
}

fn refuse_difference(found: Option<Difference>) -> Result {
    match found {
        None => Ok(()),
        Some(Difference { why, .. }) => refuse(CUresult::GRAPH_EXEC_UPDATE_FAILURE, why),
    }
}

/// Gives every step the work of the graph's node, all or none.
fn update_exec(m: &'static Machine, exec: CUgraphExec, graph: CUgraph) -> Result<Option<Difference>> {
    let mut s = m.state();
    let id = s.execs.find(exec)?;
    let new = s.draft(s.graphs.find(graph)?);
    if let Some(found) = difference(&s.execs[id].draft, &new) {
        return Ok(Some(found));
    }
    let mut unfolded = Unfolding::default();
    unfolded.graph(&new, &[]);
    for (i, step) in unfolded.steps.into_iter().enumerate() {
        change(&mut s.execs[id], i, step.work);
    }
    Ok(None)
}
