//! Instantiation: makes a graph ready to launch.

use std::sync::OnceLock;

use driver_sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraphExec, CUgraphInstantiate_flags, CUgraphInstantiateResult,
    CUgraphNode, CUresult,
};

use crate::error::{DriverError, Error};
use crate::graph::check::memory_order::expect_memory_in_order;
use crate::graph::check::overlap::expect_edges_as_told;
use crate::graph::check::races::expect_no_races;
use crate::graph::exec::graph_exec::{Inner, RaceCheck};
use crate::graph::{Graph, GraphExec, Node};
use crate::stream::Stream;

/// Options of [`Graph::instantiate_with`].
///
/// ```
/// # use warpwright_driver::graph::Instantiate;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let mut graph = Graph::new(&context)?;
/// let (allocated, scratch) = graph.alloc::<f32>(&[], 100)?;
/// graph.fill(&[allocated], &scratch, 1.0)?; // no node frees it
/// let how = Instantiate { auto_free: true, upload: Some(&stream), ..Instantiate::default() };
/// let mut exec = graph.instantiate_with(how)?;
/// exec.launch(&stream)?;
/// exec.launch(&stream)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct Instantiate<'s> {
    /// Whether a launch first frees memory that the last launch left allocated. Otherwise such a
    /// launch is an error.
    pub auto_free: bool,
    /// Whether kernels may launch the graph.
    pub device_launch: bool,
    /// The stream in whose order the graph is uploaded to the device immediately.
    pub upload: Option<&'s Stream>,
    /// Whether nodes run with their own priorities
    /// ([`NodeAttribute::Priority`](crate::graph::NodeAttribute::Priority)) and not with the
    /// priority of the stream.
    pub node_priority: bool,
}

impl Instantiate<'_> {
    fn flags(&self) -> CUgraphInstantiate_flags {
        let mut flags = CUgraphInstantiate_flags::empty();
        flags.set(
            CUgraphInstantiate_flags::AUTO_FREE_ON_LAUNCH,
            self.auto_free,
        );
        flags.set(CUgraphInstantiate_flags::DEVICE_LAUNCH, self.device_launch);
        flags.set(
            CUgraphInstantiate_flags::USE_NODE_PRIORITY,
            self.node_priority,
        );
        flags
    }
}

/// The driver call that reports which node it refuses.
const WITH_PARAMS: &str = "cuGraphInstantiateWithParams";

impl Graph {
    /// Makes the graph ready to launch. Later changes of the graph do not affect the result.
    ///
    /// # Errors
    /// - [`Error::Races`] if nodes access the same bytes without an order (see
    ///   [`races`](Self::races)).
    /// - [`Error::GraphMemory`] if a node uses memory of a graph before it is allocated or after it
    ///   is freed.
    /// - [`Error::Graph`] for the body of a conditional node.
    /// - [`Error::EdgeKind`] if the driver reports another kind of edge than was added.
    /// - [`Error::Instantiate`] if the driver refuses the graph, with the node that it names.
    pub fn instantiate(&self) -> Result<GraphExec, Error> {
        self.instantiate_with(Instantiate::default())
    }

    /// Makes the graph ready to launch, with options.
    ///
    /// # Errors
    /// Returns the errors of [`instantiate`](Self::instantiate). Also returns an error if the
    /// stream of [`upload`](Instantiate::upload) belongs to another context or captures.
    pub fn instantiate_with(&self, how: Instantiate<'_>) -> Result<GraphExec, Error> {
        self.instantiate_by(how, RaceCheck::Refuse)
    }

    /// Makes a graph ready to launch whose nodes access the same bytes without an order by edges.
    ///
    /// [`GraphExec::update`] does not check the result for races either.
    ///
    /// ```
    /// # use warpwright_driver::graph::Instantiate;
    /// # use warpwright_driver::prelude::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
    /// # let stream = Stream::new(&context)?;
    /// // Two matrices side by side in the rows of one buffer. Their byte ranges overlap.
    /// let x = Buffer::<f32>::zeroed(&context, 4 * 8)?;
    /// let halves = Boxed::rows(&x, 8);
    /// let mut graph = Graph::new(&context)?;
    /// graph.add(&[], Work::fill_box(halves, [4, 4, 1], 1.0)?)?;
    /// graph.add(&[], Work::fill_box(halves.at([4, 0, 0]), [4, 4, 1], 2.0)?)?;
    /// assert_eq!(graph.races().len(), 1);
    /// // SAFETY: the fills write different columns.
    /// let mut exec = unsafe { graph.instantiate_with_races(Instantiate::default()) }?;
    /// exec.launch(&stream)?;
    /// assert_eq!(stream.read(&x)?[..8], [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`instantiate_with`](Self::instantiate_with), except for
    /// [`Error::Races`].
    ///
    /// # Safety
    /// The obligations apply to every pair that [`races`](Self::races) returns, for this graph and
    /// for each graph that updates the result. One of these must be true:
    ///
    /// - The two nodes access different bytes.
    /// - They use only atomic operations on the bytes that both access.
    /// - Something that this crate does not see orders them, for example a flag in memory.
    pub unsafe fn instantiate_with_races(&self, how: Instantiate<'_>) -> Result<GraphExec, Error> {
        self.instantiate_by(how, RaceCheck::Waived)
    }

    fn instantiate_by(&self, how: Instantiate<'_>, races: RaceCheck) -> Result<GraphExec, Error> {
        // The checks come before the driver call, because the driver detects neither races nor uses
        // of freed memory.
        crate::lifetime::active_captures::forbid("instantiating a graph")?;
        self.expect_whole("instantiating it")?;
        expect_edges_as_told(self)?;
        expect_memory_in_order(self)?;
        if races == RaceCheck::Refuse {
            expect_no_races(self, "instantiating it")?;
        }

        let raw = self.instantiate_raw(how)?;
        let mut exec = GraphExec {
            inner: Inner {
                graph: self.raw.clone(),
                raw,
            },
            id: self.id,
            nodes: self.nodes.clone(),
            edges: self.edges.clone(),
            order: self.order.clone(),
            touched: OnceLock::new(),
            users: OnceLock::new(),
            owners: self.owners.clone(),
            paired: true,
            races,
        };
        if let Some(stream) = how.upload {
            exec.upload(stream)?;
        }

        Ok(exec)
    }

    fn instantiate_raw(&self, how: Instantiate<'_>) -> Result<CUgraphExec, Error> {
        let _current = self.context().enter()?;
        let (graph, _calls) = self.raw.begin()?;
        let driver = self.context().driver();
        let mut exec = CUgraphExec::NULL;
        let flags = how.flags();
        let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
            flags: flags.bits(),
            ..CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed()
        };
        let result = if let Some(instantiate) = driver.api().cuGraphInstantiateWithParams {
            // SAFETY: `exec` and `params` are local variables that the driver may write. `self`
            // keeps the graph alive, which is locked.
            let code = unsafe { instantiate(&mut exec, graph, &mut params) };
            driver.check(WITH_PARAMS, code)
        } else {
            // SAFETY: `exec` is a local variable that the driver may write. `self` keeps the graph
            // alive, which is locked.
            unsafe { cu_optional!(driver, cuGraphInstantiateWithFlags(&mut exec, graph, flags)) }
        };

        // With parameters the driver may return success and still report an error in the result.
        let refused = params.result_out != CUgraphInstantiateResult::SUCCESS;
        match result {
            Ok(()) if !refused => Ok(exec),
            other => Err(self.not_instantiated(other.err(), &params)),
        }
    }

    fn not_instantiated(
        &self,
        error: Option<DriverError>,
        params: &CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) -> Error {
        let source =
            error.unwrap_or_else(|| DriverError::new(WITH_PARAMS, CUresult::INVALID_VALUE));
        Error::Instantiate {
            source,
            result: params.result_out,
            node: self.name_of(params.hErrNode_out),
        }
    }

    /// Returns the index and name of the node with this handle.
    pub(crate) fn name_of(&self, raw: CUgraphNode) -> Option<String> {
        self.nodes
            .iter()
            .find(|n| n.raw == raw && !raw.is_null())
            .map(Node::describe)
    }
}
