//! The ids of nodes.

use crate::error::Error;

/// The id of a node, which is unique among all graphs.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut graph = Graph::new(&context)?;
/// let mut other = Graph::new(&context)?;
/// let first = graph.fill(&[], &x, 1.0)?;
/// let second = graph.fill(&[first], &x, 2.0)?;
/// assert_eq!((first.index(), graph.nodes()[second.index()].id()), (0, second));
/// assert!(matches!(other.empty(&[first]), Err(Error::ForeignNode { node: 0 })));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId {
    pub(super) graph: u64,
    pub(super) index: usize,
}

impl NodeId {
    /// Returns the index of the node in its graph, from 0 in the order of adding.
    pub fn index(self) -> usize {
        self.index
    }

    #[cold]
    pub(super) fn removed(self) -> Error {
        Error::RemovedNode { node: self.index }
    }

    #[cold]
    pub(super) fn foreign(self) -> Error {
        Error::ForeignNode { node: self.index }
    }
}
