//! The decoded form of asynchronous instructions: `wgmma`, copies into and out of shared memory,
//! and the mbarriers that count them.

use crate::module::code::{
    Address, Element, InstructionSpace, MatrixElement, PredSource, RegisterOperand, Sparsity,
};
use crate::module::tensor_map::MapField;

/// `wgmma.mma_async`, which computes `d = a * b + d` with 64 rows, 16 for each warp.
#[derive(Clone, Debug)]
pub(crate) struct Wgmma {
    pub(crate) left: Element,
    pub(crate) right: Element,
    /// The type of the accumulators: `F32`, `F16` or `S32`.
    pub(crate) sum: MatrixElement,
    /// Whether integer accumulators saturate.
    pub(crate) saturate: bool,
    /// The positions of the stored elements of the left matrix, if it is sparse.
    pub(crate) sparsity: Option<Sparsity>,
    /// The size of the inner dimension in elements, including those that a sparse matrix does not
    /// store.
    pub(crate) depth: usize,
    pub(crate) columns: usize,
    pub(crate) d: Vec<u32>,
    pub(crate) a: LeftMatrix,
    /// The slot of the descriptor of the right matrix.
    pub(crate) b: u32,
    /// Whether the products are added to the accumulators instead of replacing them.
    pub(crate) add: PredSource,
    /// Whether the left and the right matrix are transposed, so that the inner dimension is not
    /// contiguous.
    pub(crate) transposed: [bool; 2],
    /// Whether the left and the right matrix are negated.
    pub(crate) negated: [bool; 2],
}

/// The location of the left matrix.
#[derive(Clone, Debug)]
pub(crate) enum LeftMatrix {
    /// Shared memory, with the slot of the descriptor.
    Shared(u32),
    /// Registers, with their slots.
    Registers(Vec<u32>),
}

/// The position of a box in a tensor.
#[derive(Clone, Debug)]
pub(crate) struct TensorPlace {
    /// The slot of the generic address of the tensor map.
    pub(crate) map: u32,
    /// The slots of the coordinates, innermost first.
    pub(crate) place: Vec<u32>,
}

/// A copy of a box of a tensor.
#[derive(Clone, Debug)]
pub(crate) struct TensorCopy {
    pub(crate) at: TensorPlace,
    /// The address of the box in shared memory.
    pub(crate) shared: Address,
    /// The mbarrier on which a load completes.
    pub(crate) barrier: Option<Address>,
    /// The slot of the mask of destination blocks, for a load to several blocks of the cluster.
    pub(crate) blocks: Option<u32>,
    /// The reduction operator, for example `.add`, or `None` for a copy.
    pub(crate) reduction: Option<&'static str>,
}

/// An operation on a tensor map, or a prefetch through it.
#[derive(Clone, Debug)]
pub(crate) enum OfMap {
    /// `tensormap.replace`.
    Change(MapChange),
    /// `tensormap.cp_fenceproxy`, with the destination and the source.
    Copy([Address; 2]),
    /// `fence.proxy.tensormap::generic.acquire`.
    Fence(Address),
    /// `cp.async.bulk.prefetch.tensor`.
    Prefetch(TensorPlace),
}

/// `tensormap.replace`: the tensor map, the field and its new value.
#[derive(Clone, Debug)]
pub(crate) struct MapChange {
    pub(crate) space: InstructionSpace,
    pub(crate) address: Address,
    pub(crate) field: MapField,
    pub(crate) value: RegisterOperand,
}

/// A bulk copy from shared to global memory.
#[derive(Clone, Debug)]
pub(crate) struct BulkStore {
    pub(crate) to: Address,
    pub(crate) from: Address,
    /// The slot of the number of bytes.
    pub(crate) bytes: u32,
    /// The reduction of each element, or `None` for a copy.
    pub(crate) reduction: Option<Reduction>,
}

/// The reduction of `cp.reduce.async.bulk` and `red.async`: the size of an element in bytes, and
/// the function of the old value and the copied value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reduction {
    pub(crate) bytes: u32,
    pub(crate) f: fn(u64, u64, u64) -> u64,
}

/// An instruction that changes an mbarrier.
#[derive(Clone, Debug)]
pub(crate) struct MbarrierInstruction {
    pub(crate) space: InstructionSpace,
    pub(crate) address: Address,
    pub(crate) operation: MbarrierOperation,
}

/// The change of an mbarrier. Operands are slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MbarrierOperation {
    Init {
        count: u32,
    },
    Inval,
    ExpectTx {
        bytes: u32,
    },
    /// An arrival. With `drops`, later phases expect this many arrivals less. Without `completes`,
    /// the arrival must not be the last of its phase.
    Arrive {
        state: Option<u32>,
        expect: Option<u32>,
        count: Option<u32>,
        drops: bool,
        completes: bool,
    },
}

/// A wait for an mbarrier.
#[derive(Clone, Debug)]
pub(crate) struct MbarrierWait {
    pub(crate) space: InstructionSpace,
    pub(crate) address: Address,
    /// The slot of the resulting predicate.
    pub(crate) p: Option<u32>,
    pub(crate) phase: Phase,
    /// Whether it is `try_wait`, which may suspend the thread.
    pub(crate) suspends: bool,
}

/// The phase of a wait, as the slot of its parity or of the state that an arrival returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Parity(u32),
    State(u32),
}

/// A bulk copy to shared memory, from global memory or from the shared memory of the block.
#[derive(Clone, Debug)]
pub(crate) struct BulkCopy {
    pub(crate) to: Address,
    pub(crate) from: Address,
    /// The slot of the number of bytes.
    pub(crate) bytes: u32,
    pub(crate) barrier: Address,
    /// The slot of the mask of destination blocks, for a copy to several blocks of the cluster.
    pub(crate) blocks: Option<u32>,
    pub(crate) source: InstructionSpace,
}

/// `st.async` and `red.async`: a store to the shared memory of the cluster that completes on an
/// mbarrier.
#[derive(Clone, Debug)]
pub(crate) struct AsyncStore {
    /// The state space of both addresses.
    pub(crate) space: InstructionSpace,
    pub(crate) to: Address,
    /// The register of each element.
    pub(crate) values: Vec<RegisterOperand>,
    pub(crate) barrier: Address,
    /// The reduction of the element, or `None` for a store.
    pub(crate) reduction: Option<Reduction>,
}

/// `cp.async`: the copy of one thread from global to shared memory.
#[derive(Clone, Debug)]
pub(crate) struct ThreadCopy {
    pub(crate) to: Address,
    pub(crate) from: Address,
    pub(crate) bytes: u32,
    /// The slot of the number of bytes that are read. The remaining bytes become zero.
    pub(crate) source_bytes: Option<u32>,
}
