//! Conditional nodes: graphs that run depending on a condition.
//!
//! A [`Condition`] is a 32-bit number that belongs to a graph. A kernel before the conditional node
//! or within a body sets it with the device function `cudaGraphSetConditional(handle, value)`. The
//! kernel takes the condition's [handle](Condition::handle) by value, and declares the function as
//! `.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value)`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use driver_sys::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUgraph, CUgraphConditional_flags, CUgraphConditionalHandle,
    CUgraphConditionalNodeType, CUgraphNodeParams, CUgraphNodeType,
};

use crate::error::Error;
use crate::graph::plan::{ConditionalInner, UNUSED_CONDITION};
use crate::graph::{Conditional, EdgeKind, Graph, Node, NodeId, NodeKind};
use crate::stream::Work;

/// A number that kernels set and that decides which graphs run. It belongs to one conditional node
/// of one graph.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut graph = Graph::new(&context)?;
/// let which = graph.condition(Some(2))?;
/// let handle = HostArg::scalar(which.handle()); // for a kernel that sets it
/// graph.switch(&[], which, 3, |case, body| body.fill(&[], &x, case as f32).map(drop))?;
/// graph.instantiate()?.launch(&stream)?;
/// assert_eq!(stream.read(&x)?, [2.0; 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Condition {
    graph: u64,
    handle: CUgraphConditionalHandle,
}

/// A closure that builds the graph of one case.
type Build<'b> = &'b mut dyn FnMut(&mut Graph) -> Result<(), Error>;

impl Condition {
    /// Returns the handle with which a kernel calls `cudaGraphSetConditional`. Pass it by value.
    ///
    /// The handle is a plain number, and safe code can launch the kernel with any other number. The
    /// `unsafe` block that loads such a kernel must account for this. For example, it can keep the
    /// function private to code that passes only handles of the kernel's own graph.
    pub fn handle(&self) -> u64 {
        self.handle
    }
}

impl Graph {
    /// Creates a condition for one conditional node of this graph.
    ///
    /// Each launch of the graph starts with the default value. Without a default, the condition
    /// keeps its value from launch to launch.
    ///
    /// # Errors
    /// Returns an error if the driver cannot create the condition.
    pub fn condition(&mut self, default: Option<u32>) -> Result<Condition, Error> {
        let context = self.raw.context.clone();
        let _current = context.enter()?;
        let (graph, _calls) = self.raw.begin()?;
        let flags = match default {
            Some(_) => CUgraphConditional_flags::ASSIGN_DEFAULT,
            None => CUgraphConditional_flags::empty(),
        };
        let mut handle = 0;
        let default = default.unwrap_or(0);
        let driver = context.driver();

        // SAFETY: `handle` is a local variable that the driver may write. `self` keeps the graph
        // alive, which is locked and of this context.
        unsafe {
            cu_optional!(
                driver,
                cuGraphConditionalHandleCreate(&mut handle, graph, context.raw(), default, flags)
            )
        }?;
        Ok(Condition {
            graph: self.id,
            handle,
        })
    }

    /// Adds a conditional node whose body runs if the condition is not 0. `then` builds the body.
    ///
    /// ```
    /// # use warpwright_driver::prelude::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
    /// # let stream = Stream::new(&context)?;
    /// let x = Buffer::<f32>::zeroed(&context, 4)?;
    /// let mut graph = Graph::new(&context)?;
    /// let condition = graph.condition(Some(1))?;
    /// graph.if_then(&[], condition, |then| then.fill(&[], &x, 5.0).map(drop))?;
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(stream.read(&x)?, [5.0; 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If `then` returns an error or panics, the node is removed and the graph is unchanged.
    ///
    /// # Errors
    /// - The error of `then`.
    /// - [`Error::Graph`] if the condition belongs to another graph.
    /// - [`Error::ForeignNode`] if a node in `after` belongs to another graph.
    /// - [`Error::Driver`] if a driver call fails.
    pub fn if_then(
        &mut self,
        after: &[NodeId],
        condition: Condition,
        mut then: impl FnMut(&mut Graph) -> Result<(), Error>,
    ) -> Result<NodeId, Error> {
        self.conditional(
            after,
            condition,
            CUgraphConditionalNodeType::IF,
            &mut [&mut then],
        )
    }

    /// Adds a conditional node with two bodies. The first runs if the condition is not 0, otherwise
    /// the second.
    ///
    /// # Errors
    /// Returns the errors of [`if_then`](Self::if_then).
    pub fn if_else(
        &mut self,
        after: &[NodeId],
        condition: Condition,
        mut then: impl FnMut(&mut Graph) -> Result<(), Error>,
        mut otherwise: impl FnMut(&mut Graph) -> Result<(), Error>,
    ) -> Result<NodeId, Error> {
        self.conditional(
            after,
            condition,
            CUgraphConditionalNodeType::IF,
            &mut [&mut then, &mut otherwise],
        )
    }

    /// Adds a conditional node whose body runs while the condition is not 0. The condition is read
    /// before each run.
    ///
    /// # Errors
    /// Returns the errors of [`if_then`](Self::if_then).
    pub fn while_loop(
        &mut self,
        after: &[NodeId],
        condition: Condition,
        mut body: impl FnMut(&mut Graph) -> Result<(), Error>,
    ) -> Result<NodeId, Error> {
        self.conditional(
            after,
            condition,
            CUgraphConditionalNodeType::WHILE,
            &mut [&mut body],
        )
    }

    /// Adds a conditional node with `cases` bodies.
    ///
    /// The value of the condition is the index of the body that runs. If there is no such body,
    /// none runs. `build` receives the index of a body and builds it.
    ///
    /// # Errors
    /// Returns the errors of [`if_then`](Self::if_then).
    pub fn switch(
        &mut self,
        after: &[NodeId],
        condition: Condition,
        cases: usize,
        build: impl Fn(usize, &mut Graph) -> Result<(), Error>,
    ) -> Result<NodeId, Error> {
        let build = &build;
        let mut builds: Vec<_> = (0..cases)
            .map(|case| move |graph: &mut Graph| build(case, graph))
            .collect();
        let mut builds: Vec<Build<'_>> = builds.iter_mut().map(|b| b as Build<'_>).collect();
        self.conditional(
            after,
            condition,
            CUgraphConditionalNodeType::SWITCH,
            &mut builds,
        )
    }

    fn conditional(
        &mut self,
        after: &[NodeId],
        condition: Condition,
        kind: CUgraphConditionalNodeType,
        builds: &mut [Build<'_>],
    ) -> Result<NodeId, Error> {
        let what = "adding a conditional node";
        if condition.graph != self.id {
            return Err(Error::Graph {
                what,
                problem: "the condition belongs to another graph",
            });
        }

        let mut raws: Vec<CUgraph> = Vec::new();
        let node = self.insert(EdgeKind::Full, after, NodeKind::Empty, |call, _| {
            let wanted = CUDA_CONDITIONAL_NODE_PARAMS {
                handle: condition.handle,
                r#type: kind,
                size: builds.len() as u32,
                ctx: call.context.raw(),
                ..CUDA_CONDITIONAL_NODE_PARAMS::zeroed()
            };
            let mut params = any_conditional(&wanted);
            let edges = vec![EdgeKind::Full.data(); call.count];
            let driver = call.context.driver();
            let after = call.after;
            let edges = edges.as_ptr();

            // SAFETY: the parameters are those of a conditional node, and `edges` has one entry for
            // each predecessor.
            unsafe {
                cu_optional!(
                    driver,
                    cuGraphAddNode_v2(call.node, call.graph, after, edges, call.count, &mut params)
                )
            }?;
            let bodies = std::ptr::with_exposed_provenance::<CUgraph>(params.params[OUT] as usize);

            // SAFETY: the driver has returned an array with the requested number of graphs.
            raws.extend_from_slice(unsafe { std::slice::from_raw_parts(bodies, builds.len()) });
            Ok(())
        })?;
        self.build_bodies(node, kind, &raws, builds)
    }

    /// Builds the bodies of a node. If that fails or panics, the node is removed, because no object
    /// would keep the resources of its bodies alive.
    fn build_bodies(
        &mut self,
        node: NodeId,
        kind: CUgraphConditionalNodeType,
        raws: &[CUgraph],
        builds: &mut [Build<'_>],
    ) -> Result<NodeId, Error> {
        let mut bodies: Vec<Graph> = raws
            .iter()
            .map(|raw| Self::body(&self.raw, node, *raw))
            .collect();
        let ids: Vec<u64> = bodies.iter().map(|body| body.id).collect();
        let build_all = || {
            bodies
                .iter_mut()
                .zip(builds)
                .try_for_each(|(body, build)| build(body))
        };
        let built = catch_unwind(AssertUnwindSafe(build_all));

        // A closure can swap the body with another graph. The program then owns the body and may
        // add nodes to it that this graph does not know. This graph must never run then.
        let swapped = bodies.iter().map(|body| body.id).ne(ids);

        // A body that can never run makes its graph useless as well.
        let problem = if swapped {
            Some("a conditional node's graph was taken away while it was built")
        } else {
            bodies.iter().find_map(|body| body.broken)
        };
        let failed = !matches!(built, Ok(Ok(())));
        if failed && !swapped {
            // Before the node is removed, because the driver destroys the bodies with it.
            bodies.clear();
            self.take_back(node, UNUSED_CONDITION);
            // Even after the removal, because the condition remains.
            self.broken = Some(UNUSED_CONDITION);
        } else if problem.is_some() {
            self.broken = problem;
        }

        match (built, problem) {
            (Err(panic), _) => resume_unwind(panic),
            (Ok(Err(error)), _) => return Err(error),
            (Ok(Ok(())), Some(problem)) => {
                return Err(Error::Graph {
                    what: "building a conditional node",
                    problem,
                });
            }
            (Ok(Ok(())), None) => {}
        }

        let mut uses = Vec::new();
        for body in &bodies {
            for node in &body.nodes {
                uses.extend(node.uses());
            }
        }

        self.nodes[node.index].kind =
            NodeKind::Conditional(Conditional(Arc::new(ConditionalInner {
                kind,
                bodies,
                uses,
            })));
        self.writers = None;
        Ok(node)
    }
}

/// The index of the parameter word in which the driver returns the bodies.
const OUT: usize = 2;

fn any_conditional(params: &CUDA_CONDITIONAL_NODE_PARAMS) -> CUgraphNodeParams {
    let CUDA_CONDITIONAL_NODE_PARAMS {
        handle,
        r#type,
        size,
        ctx,
        ..
    } = *params;
    let mut words = CUgraphNodeParams::zeroed().params;
    words[0] = handle;
    words[1] = u64::from(r#type.0 as u32) | u64::from(size) << 32;
    words[3] = ctx.0.expose_provenance() as u64;
    CUgraphNodeParams {
        r#type: CUgraphNodeType::CONDITIONAL,
        params: words,
        ..CUgraphNodeParams::zeroed()
    }
}

/// Checks that the body of a conditional node may contain a node.
#[cold]
pub(super) fn refuse_in_body(node: &Node) -> Result<(), Error> {
    match &node.kind {
        NodeKind::Work(Work::Launch(launch)) if launch.config().cooperative => {
            Err(node.wrong_kind("the body of a conditional node must not contain cooperative kernels"))
        }
        NodeKind::Work(_) | NodeKind::Empty | NodeKind::Child(_) | NodeKind::Conditional(_) => {
            Ok(())
        }
        _ => Err(node.wrong_kind(
            "the body of a conditional node may contain kernels, copies, fills, empty nodes, child graphs and conditional nodes",
        )),
    }
}
