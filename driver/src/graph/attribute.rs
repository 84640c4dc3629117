//! Attributes of kernel nodes.
//!
//! Everything in a [`LaunchConfig`](crate::launch::LaunchConfig) besides grid, block and shared
//! memory becomes attributes of the node when it is added. Attributes can be changed until the
//! graph is instantiated.

use driver_sys::CUlaunchAttributeID;

use crate::memory::AccessWindow;

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
    pub(super) fn id(self) -> CUlaunchAttributeID {
        match self {
            Self::Cluster(_) => CUlaunchAttributeID::CLUSTER_DIMENSION,
            Self::Cooperative(_) => CUlaunchAttributeID::COOPERATIVE,
            Self::Priority(_) => CUlaunchAttributeID::PRIORITY,
            Self::RemoteDomain(_) => CUlaunchAttributeID::MEM_SYNC_DOMAIN,
            Self::SharedCarveout(_) => CUlaunchAttributeID::PREFERRED_SHARED_MEMORY_CARVEOUT,
            Self::AccessWindow(_) => CUlaunchAttributeID::ACCESS_POLICY_WINDOW,
        }
    }

    pub(super) fn words(self) -> [u64; 4] {
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
    pub(super) fn with(self, words: [u64; 4]) -> Self {
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
