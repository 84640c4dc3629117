//! Attributes of kernel nodes.
//!
//! Everything in a [`LaunchConfig`](crate::launch::LaunchConfig) besides grid, block and shared
//! memory becomes attributes of the node when it is added. Attributes can be changed until the
//! graph is instantiated.

use driver_sys::{CUgraphNode, CUlaunchAttributeID, CUlaunchAttributeValue};

use crate::error::Error;
use crate::graph::{Graph, NodeId, NodeKind};
use crate::launch::Launch;
use crate::memory::AccessWindow;
use crate::stream::Work;

/// An attribute of a kernel node.
///
/// ```
/// # use warpwright_driver::graph::NodeAttribute;
/// # use warpwright_driver::prelude::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let module = Module::load(&context, SCALE)?;
/// # let params = [Parameter::value::<u32>("n"), Parameter::value::<f32>("a"), Parameter::buffer::<f32>("y", Access::ReadWrite)];
/// # // SAFETY: the kernel stays below `n` and has these parameters.
/// # let scale = unsafe { module.function("scale", &params) }?;
/// let y = Buffer::<f32>::zeroed(&context, 32)?;
/// let args = vec![HostArg::scalar(32u32), HostArg::scalar(3.0f32), HostArg::from(&*y)];
/// let mut graph = Graph::new(&context)?;
/// let node = graph.add(&[], Launch::new(&scale, LaunchConfig::line(1, 32), args)?)?;
/// graph.set_attribute(node, NodeAttribute::Priority(-1))?;
/// // The value in the query does not matter.
/// match graph.attribute(node, NodeAttribute::Priority(0))? {
///     NodeAttribute::Priority(priority) => assert_eq!(priority, -1),
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NodeAttribute {
    /// The number of blocks per cluster in three dimensions. All are 0 for a kernel without
    /// clusters.
    Cluster([u32; 3]),
    /// Whether all blocks run at the same time, so that they can synchronize with each other.
    Cooperative(bool),
    /// The priority of the node. A smaller number is a higher priority.
    ///
    /// It applies only to graphs that are instantiated with
    /// [`node_priority`](crate::graph::Instantiate::node_priority).
    Priority(i32),
    /// Whether the node uses the remote memory synchronization domain. Its fences then need not
    /// wait for writes of the other domain.
    RemoteDomain(bool),
    /// The percentage of the L1 cache that becomes shared memory, or -1 to leave it to the driver.
    SharedCarveout(i32),
    /// The access window of the L2 cache. A window of 0 bytes means that there is none.
    AccessWindow(AccessWindow),
}

impl NodeAttribute {
    fn id(self) -> CUlaunchAttributeID {
        match self {
            Self::Cluster(_) => CUlaunchAttributeID::CLUSTER_DIMENSION,
            Self::Cooperative(_) => CUlaunchAttributeID::COOPERATIVE,
            Self::Priority(_) => CUlaunchAttributeID::PRIORITY,
            Self::RemoteDomain(_) => CUlaunchAttributeID::MEM_SYNC_DOMAIN,
            Self::SharedCarveout(_) => CUlaunchAttributeID::PREFERRED_SHARED_MEMORY_CARVEOUT,
            Self::AccessWindow(_) => CUlaunchAttributeID::ACCESS_POLICY_WINDOW,
        }
    }

    fn words(self) -> [u64; 4] {
        let word = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        match self {
            Self::Cluster([x, y, z]) => [word(x, y), word(z, 0), 0, 0],
            Self::Cooperative(yes) | Self::RemoteDomain(yes) => [yes.into(), 0, 0, 0],
            Self::Priority(number) | Self::SharedCarveout(number) => {
                [word(number as u32, 0), 0, 0, 0]
            }
            Self::AccessWindow(window) => window.words(),
        }
    }

    /// Returns the attribute of the same kind with this value.
    fn with(self, words: [u64; 4]) -> Self {
        let [low, high, ..] = words;
        match self {
            Self::Cluster(_) => Self::Cluster([low as u32, (low >> 32) as u32, high as u32]),
            Self::Cooperative(_) => Self::Cooperative(low as u32 != 0),
            Self::Priority(_) => Self::Priority(low as u32 as i32),
            Self::RemoteDomain(_) => Self::RemoteDomain(low as u32 != 0),
            Self::SharedCarveout(_) => Self::SharedCarveout(low as u32 as i32),
            Self::AccessWindow(_) => Self::AccessWindow(AccessWindow::from_words(words)),
        }
    }
}

impl Graph {
    /// Sets an attribute of a kernel node for later instantiations.
    ///
    /// ```
    /// # use ptx_gen::{args, Builder, Cpu, Dev, Grid, InOut, KernelDef, Shape, ShapeError, Side};
    /// # args! { pub struct Args { x: InOut<f32> } }
    /// # struct Double;
    /// # impl KernelDef for Double {
    /// #     type Args<S: Side> = Args<S>;
    /// #     fn name(&self) -> String { "double".into() }
    /// #     fn block(&self) -> u32 { 32 }
    /// #     fn grid(&self, _: &Args<Shape>) -> Result<Grid, ShapeError> { Ok(Grid::line(1)) }
    /// #     fn program<'k>(&self, k: Builder<'k>, a: Args<Dev<'k>>) {
    /// #         let x = a.x.at(k.tid()).ld();
    /// #         a.x.at(k.tid()).st(x + x);
    /// #     }
    /// #     fn reference(&self, _: Args<Cpu<'_>>) {}
    /// # }
    /// # use warpwright_driver::graph::NodeAttribute;
    /// # use warpwright_driver::prelude::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
    /// # let double = unsafe { Kernel::load(&context, Double) }?;
    /// # let x = Buffer::<f32>::zeroed(&context, 32)?;
    /// let mut graph = Graph::new(&context)?;
    /// let node = graph.launch(&[], &double, Args { x: &x })?;
    /// graph.set_attribute(node, NodeAttribute::Priority(-1))?;
    /// assert_eq!(graph.attribute(node, NodeAttribute::Priority(0))?, NodeAttribute::Priority(-1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::ForeignNode`] or [`Error::NodeKind`] if the node is not a kernel of this graph.
    /// - [`Error::Transfer`] if the device does not support the access window.
    /// - [`Error::Driver`] if the driver cannot set the attribute.
    pub fn set_attribute(&mut self, node: NodeId, attribute: NodeAttribute) -> Result<(), Error> {
        let raw = self.kernel_node(node)?;
        if let NodeAttribute::AccessWindow(window) = attribute {
            window.expect_on(self.context().device())?;
        }
        self.set_raw_attribute(raw, attribute.id(), attribute.words())
    }

    /// Returns the present value of the attribute of the same kind as `attribute`. The value of
    /// `attribute` does not matter.
    ///
    /// # Errors
    /// Returns the errors of [`set_attribute`](Self::set_attribute).
    pub fn attribute(
        &self,
        node: NodeId,
        attribute: NodeAttribute,
    ) -> Result<NodeAttribute, Error> {
        let raw = self.kernel_node(node)?;
        let mut value = CUlaunchAttributeValue::zeroed();
        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let (_, _calls) = self.raw.begin()?;
        // SAFETY: `value` is a local variable that the driver may write. `kernel_node` has checked
        // the node, and the graph is locked.
        unsafe {
            cu_optional!(
                driver,
                cuGraphKernelNodeGetAttribute(raw, attribute.id(), &mut value)
            )
        }?;
        let [a, b, c, d, ..] = value.words;
        Ok(attribute.with([a, b, c, d]))
    }

    /// Copies all attributes of the kernel node `from` to the kernel node `to`.
    ///
    /// # Errors
    /// Returns the errors of [`set_attribute`](Self::set_attribute).
    pub fn copy_attributes(&mut self, from: NodeId, to: NodeId) -> Result<(), Error> {
        let from = self.kernel_node(from)?;
        let to = self.kernel_node(to)?;
        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let (_, _calls) = self.raw.begin()?;
        // SAFETY: `kernel_node` has checked both nodes, and the graph is locked.
        unsafe { cu_optional!(driver, cuGraphKernelNodeCopyAttributes(to, from)) }?;
        Ok(())
    }

    /// Sets the attributes of a new node from its launch, or removes the node.
    #[cold]
    pub(super) fn take_attributes(&mut self, node: NodeId) -> Result<(), Error> {
        let NodeKind::Work(Work::Launch(launch)) = &self.nodes[node.index].kind else {
            return Ok(());
        };
        let raw = self.nodes[node.index].raw;
        let launch: Launch = launch.clone();
        let set = launch
            .config()
            .attributes()
            .iter()
            .try_for_each(|attribute| {
                let [a, b, c, d, ..] = attribute.value;
                self.set_raw_attribute(raw, attribute.id, [a, b, c, d])
            });
        if let Err(error) = set {
            self.take_back(
                node,
                "a node that lacks the attributes of its launch could not be removed",
            );
            return Err(error);
        }
        Ok(())
    }

    fn set_raw_attribute(
        &self,
        node: CUgraphNode,
        id: CUlaunchAttributeID,
        words: [u64; 4],
    ) -> Result<(), Error> {
        let mut value = CUlaunchAttributeValue::zeroed();
        value.words[..4].copy_from_slice(&words);
        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let (_, _calls) = self.raw.begin()?;
        // SAFETY: `value` lives until the call returns. The callers pass a kernel node of the
        // graph, which is locked.
        unsafe { cu_optional!(driver, cuGraphKernelNodeSetAttribute(node, id, &value)) }?;
        Ok(())
    }

    fn kernel_node(&self, node: NodeId) -> Result<CUgraphNode, Error> {
        let node = &self.nodes[self.index_of(node)?];
        match node.kind {
            NodeKind::Work(Work::Launch(_)) => Ok(node.raw),
            _ => Err(node.wrong_kind("only a kernel has attributes")),
        }
    }
}
