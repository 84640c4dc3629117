//! Attributes of kernel nodes.
//!
//! What a launch asks for beside blocks, threads and shared memory ([`LaunchConfig`](crate::LaunchConfig)) becomes
//! attributes of its node when it is added. They can be changed until the graph is instantiated.

use driver_sys::{CUgraphNode, CUlaunchAttributeID, CUlaunchAttributeValue};

use super::{Graph, NodeId, NodeKind};
use crate::queue::Work;
use crate::{AccessWindow, Error, Launch};

/// What a kernel node asks for beside its launch.
///
/// ```
/// # use warpwright_driver::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let module = Module::load(&context, SCALE)?;
/// # let params = [Parameter::value::<u32>("n"), Parameter::value::<f32>("a"), Parameter::buffer::<f32>("y", Access::ReadWrite)];
/// # // SAFETY: the kernel stays below `n`, and these are its parameters.
/// # let scale = unsafe { module.function("scale", &params) }?;
/// let y = Buffer::<f32>::zeroed(&context, 32)?;
/// let args = vec![HostArg::scalar(32u32), HostArg::scalar(3.0f32), HostArg::from(&*y)];
/// let mut graph = Graph::new(&context)?;
/// let node = graph.add(&[], Launch::new(&scale, LaunchConfig::line(1, 32), args)?)?;
/// graph.set_attribute(node, NodeAttribute::Priority(-1))?;
/// // The value that one asks with does not matter.
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
    /// Blocks of a cluster, in three dimensions. All 0 for a kernel without clusters.
    Cluster([u32; 3]),
    /// Whether all blocks run at the same time, so that they may wait for each other.
    Cooperative(bool),
    /// Before or after other nodes, where the graph is instantiated
    /// [so](crate::Instantiate::node_priority): the higher, the smaller the number.
    Priority(i32),
    /// Whether its memory fences need not wait for what kernels of the other domain write.
    RemoteDomain(bool),
    /// How much of what it shares with the first-level cache shared memory gets, in percent; -1 to leave it to the driver.
    SharedCarveout(i32),
    /// A range of memory that the second-level cache treats in its own way; one of no bytes is none.
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

    /// The attribute of the same sort with this value.
    fn with(self, words: [u64; 4]) -> Self {
        let [low, high, ..] = words;
        match self {
            Self::Cluster(_) => Self::Cluster([low as u32, (low >> 32) as u32, high as u32]),
            Self::Cooperative(_) => Self::Cooperative(low as u32 != 0),
            Self::Priority(_) => Self::Priority(low as u32 as i32),
            Self::RemoteDomain(_) => Self::RemoteDomain(low as u32 != 0),
            Self::SharedCarveout(_) => Self::SharedCarveout(low as u32 as i32),
            Self::AccessWindow(_) => Self::AccessWindow(AccessWindow::of_words(words)),
        }
    }
}

impl Graph {
    /// Sets an attribute of a kernel node, for what is instantiated from now on.
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
    /// # use warpwright_driver::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
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
    /// A node of another graph or that is no kernel; a window that the device does not have ([`Error::Transfer`]); or
    /// what the driver refuses.
    pub fn set_attribute(&mut self, node: NodeId, attribute: NodeAttribute) -> Result<(), Error> {
        let raw = self.kernel_node(node)?;
        if let NodeAttribute::AccessWindow(window) = attribute {
            window.expect_on(self.context().device())?;
        }
        self.set_raw_attribute(raw, attribute.id(), attribute.words())
    }

    /// The present value of the attribute of the same sort as `attribute`, whose own value does not matter.
    ///
    /// # Errors
    /// As [`set_attribute`](Self::set_attribute).
    pub fn attribute(
        &self,
        node: NodeId,
        attribute: NodeAttribute,
    ) -> Result<NodeAttribute, Error> {
        let raw = self.kernel_node(node)?;
        let mut value = CUlaunchAttributeValue::zeroed();
        let (_current, driver) = (self.context().enter()?, self.context().driver());
        let (_, _calls) = self.raw.begin()?;
        // SAFETY: `value` is ours to write; the node is a kernel of the graph.
        unsafe {
            cu_if_there!(
                driver,
                cuGraphKernelNodeGetAttribute(raw, attribute.id(), &mut value)
            )
        }?;
        let [a, b, c, d, ..] = value.words;
        Ok(attribute.with([a, b, c, d]))
    }

    /// Gives a kernel node all attributes of another one.
    ///
    /// # Errors
    /// As [`set_attribute`](Self::set_attribute).
    pub fn copy_attributes(&mut self, from: NodeId, to: NodeId) -> Result<(), Error> {
        let (from, to) = (self.kernel_node(from)?, self.kernel_node(to)?);
        let (_current, driver) = (self.context().enter()?, self.context().driver());
        let (_, _calls) = self.raw.begin()?;
        // SAFETY: both nodes are kernels of the graph.
        unsafe { cu_if_there!(driver, cuGraphKernelNodeCopyAttributes(to, from)) }?;
        Ok(())
    }

    /// Gives a new node what its launch asks for, or removes it.
    #[cold]
    pub(super) fn take_attributes(&mut self, node: NodeId) -> Result<(), Error> {
        let NodeKind::Work(Work::Launch(launch)) = &self.nodes[node.index].kind else {
            return Ok(());
        };
        let (raw, launch): (_, Launch) = (self.nodes[node.index].raw, launch.clone());
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
        let (_current, driver) = (self.context().enter()?, self.context().driver());
        let (_, _calls) = self.raw.begin()?;
        // SAFETY: the value is lent; the node is a kernel of the graph.
        unsafe { cu_if_there!(driver, cuGraphKernelNodeSetAttribute(node, id, &value)) }?;
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
