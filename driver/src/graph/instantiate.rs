//! Making a graph ready to launch.

use std::sync::OnceLock;

use driver_sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraphExec, CUgraphInstantiate_flags, CUgraphInstantiateResult,
    CUgraphNode, CUresult,
};

use super::exec::GraphExec;
use super::exec::Inner;
use super::{Graph, Node};
use crate::{DriverError, Error, Stream};

/// How a graph is made ready.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let mut graph = Graph::new(&context)?;
/// let (allocated, scratch) = graph.alloc::<f32>(&[], 100)?;
/// graph.fill(&[allocated], &scratch, 1.0)?; // and nobody frees it
/// let how = Instantiate { auto_free: true, upload: Some(&stream), ..Instantiate::default() };
/// let mut exec = graph.instantiate_with(how)?;
/// exec.launch(&stream)?;
/// exec.launch(&stream)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct Instantiate<'s> {
    /// Whether a launch frees first what the last one left allocated. Without it, such a launch is refused.
    pub auto_free: bool,
    /// Whether kernels may launch it.
    pub device_launch: bool,
    /// Hands the graph to the device at once, in the order of this stream.
    pub upload: Option<&'s Stream>,
    /// Whether nodes run by their own priorities
    /// ([`NodeAttribute::Priority`](crate::NodeAttribute::Priority)), not by the one of the stream.
    pub node_priority: bool,
}

impl Instantiate<'_> {
    fn flags(&self) -> CUgraphInstantiate_flags {
        let mut flags = CUgraphInstantiate_flags::empty();
        flags.set(CUgraphInstantiate_flags::AUTO_FREE_ON_LAUNCH, self.auto_free);
        flags.set(CUgraphInstantiate_flags::DEVICE_LAUNCH, self.device_launch);
        flags.set(CUgraphInstantiate_flags::USE_NODE_PRIORITY, self.node_priority);
        flags
    }
}

/// The call that says which node it refuses.
const WITH_PARAMS: &str = "cuGraphInstantiateWithParams";

impl Graph {
    /// Makes the graph ready to launch. The graph can change afterwards; what was made of it does not.
    ///
    /// # Errors
    /// [`Error::Instantiate`] with the node that the driver names; [`Error::EdgeKind`] if the driver has an edge of
    /// another kind than was added; [`Error::GraphMemory`] for memory of graphs that is not there when a node uses it;
    /// [`Error::Graph`] for the body of a conditional node.
    pub fn instantiate(&self) -> Result<GraphExec, Error> {
        self.instantiate_with(Instantiate::default())
    }

    /// Makes the graph ready to launch in a way of one's own.
    ///
    /// # Errors
    /// As [`instantiate`](Self::instantiate); a stream of another context, [`Error::Capturing`].
    pub fn instantiate_with(&self, how: Instantiate<'_>) -> Result<GraphExec, Error> {
        crate::regions::forbid("instantiating a graph")?;
        self.expect_whole("instantiating it")?;
        self.expect_edges_as_told()?;
        self.expect_memory_in_order()?;
        let raw = self.instantiate_raw(how)?;
        let mut exec = GraphExec {
            inner: Inner { graph: self.raw.clone(), raw },
            id: self.id,
            nodes: self.nodes.clone(),
            edges: self.edges.clone(),
            order: self.order.clone(),
            touched: OnceLock::new(),
            users: OnceLock::new(),
            owners: self.owners.clone(),
            paired: true,
        };
        if let Some(stream) = how.upload {
            exec.upload(stream)?;
        }
        Ok(exec)
    }

    fn instantiate_raw(&self, how: Instantiate<'_>) -> Result<CUgraphExec, Error> {
        let _current = self.context().enter()?;
        let (graph, _calls) = self.raw.begin();
        let driver = self.context().driver();
        let mut exec = CUgraphExec::NULL;
        let flags = how.flags();
        let mut params =
            CUDA_GRAPH_INSTANTIATE_PARAMS { flags: flags.bits(), ..CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed() };
        let result = if let Some(instantiate) = driver.api().cuGraphInstantiateWithParams {
            // SAFETY: `exec` and `params` are ours to write; the graph is alive.
            let code = unsafe { instantiate(&mut exec, graph, &mut params) };
            driver.check(WITH_PARAMS, code)
        } else {
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
    pub(super) fn name_of(&self, raw: CUgraphNode) -> Option<String> {
        self.nodes.iter().find(|n| n.raw == raw && !raw.is_null()).map(Node::describe)
    }
}
