//! The decoded form of instructions that ask for work beside the threads: products of warpgroups, tensor copies, copies
//! out of shared memory.

use crate::code::{Address, Element, PredSource};

/// `wgmma.mma_async`: `d = a * b + d` with 64 rows, 16 for each warp.
#[derive(Clone, Debug)]
pub(crate) struct Wgmma {
    pub(crate) left: Element,
    pub(crate) right: Element,
    /// Elements of the inner dimension.
    pub(crate) depth: usize,
    pub(crate) columns: usize,
    pub(crate) d: Vec<u32>,
    pub(crate) a: LeftMatrix,
    /// Slot of the descriptor of the right matrix.
    pub(crate) b: u32,
    /// Whether sums are added to, and not replaced.
    pub(crate) add: PredSource,
    /// Whether the inner dimension is not the contiguous one, of either matrix.
    pub(crate) transposed: [bool; 2],
    /// Whether either matrix is negated.
    pub(crate) negated: [bool; 2],
}

/// Where a left matrix is.
#[derive(Clone, Debug)]
pub(crate) enum LeftMatrix {
    /// Slot of its descriptor.
    Shared(u32),
    /// Slots of its registers.
    Registers(Vec<u32>),
}

/// A copy of a box of a tensor.
#[derive(Clone, Debug)]
pub(crate) struct TensorCopy {
    /// Slot of the generic address of the tensor map.
    pub(crate) map: u32,
    /// Slots of the coordinates, the innermost first.
    pub(crate) place: Vec<u32>,
    /// Where the box is in shared memory.
    pub(crate) shared: Address,
    /// For a load, the mbarrier it completes on.
    pub(crate) barrier: Option<Address>,
    /// For a load to several blocks of the cluster, slot of a bit for each.
    pub(crate) blocks: Option<u32>,
}

/// A bulk copy from shared to global memory.
#[derive(Clone, Debug)]
pub(crate) struct BulkStore {
    pub(crate) to: Address,
    pub(crate) from: Address,
    /// Slot of the number of bytes.
    pub(crate) bytes: u32,
}
