//! The decoded form of instructions that ask for work beside the threads, and of mbarriers, which count it: products of
//! warpgroups, copies into and out of shared memory.

use crate::code::{Address, Element, Item, PredSource, RegisterOperand, Space, Sparsity};
use crate::tensor_map::MapField;

/// `wgmma.mma_async`: `d = a * b + d` with 64 rows, 16 for each warp.
#[derive(Clone, Debug)]
pub(crate) struct Wgmma {
    pub(crate) left: Element,
    pub(crate) right: Element,
    /// What sums are: `F32`, `F16` or `S32`.
    pub(crate) sum: Item,
    /// Whether sums of integers are clamped.
    pub(crate) saturate: bool,
    /// Of which left elements are stored, if not all.
    pub(crate) sparsity: Option<Sparsity>,
    /// Elements of the inner dimension, also those that are not stored.
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

/// Where a box of a tensor is.
#[derive(Clone, Debug)]
pub(crate) struct TensorPlace {
    /// Slot of the generic address of the tensor map.
    pub(crate) map: u32,
    /// Slots of the coordinates, the innermost first.
    pub(crate) place: Vec<u32>,
}

/// A copy of a box of a tensor.
#[derive(Clone, Debug)]
pub(crate) struct TensorCopy {
    pub(crate) at: TensorPlace,
    /// Where the box is in shared memory.
    pub(crate) shared: Address,
    /// For a load, the mbarrier it completes on.
    pub(crate) barrier: Option<Address>,
    /// For a load to several blocks of the cluster, slot of a bit for each.
    pub(crate) blocks: Option<u32>,
    /// Of a reduction, what is done to each element of the tensor: `.add` and others.
    pub(crate) reduction: Option<&'static str>,
}

/// What is done to a tensor map, or to a tensor by it.
#[derive(Clone, Debug)]
pub(crate) enum OfMap {
    /// `tensormap.replace`
    Change(MapChange),
    /// `tensormap.cp_fenceproxy`: to the first address, from the second
    Copy([Address; 2]),
    /// `fence.proxy.tensormap::generic.acquire`
    Fence(Address),
    /// `cp.async.bulk.prefetch.tensor`
    Prefetch(TensorPlace),
}

/// `tensormap.replace`: a field of the tensor map at an address gets a value.
#[derive(Clone, Debug)]
pub(crate) struct MapChange {
    pub(crate) space: Space,
    pub(crate) address: Address,
    pub(crate) field: MapField,
    pub(crate) value: RegisterOperand,
}

/// A bulk copy from shared to global memory.
#[derive(Clone, Debug)]
pub(crate) struct BulkStore {
    pub(crate) to: Address,
    pub(crate) from: Address,
    /// Slot of the number of bytes.
    pub(crate) bytes: u32,
    /// Of a reduction, what is done to each element.
    pub(crate) reduction: Option<Reduction>,
}

/// `cp.reduce.async.bulk` and `red.async`: the bytes of an element, and its new value from the old one and the copied one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reduction {
    pub(crate) bytes: u32,
    pub(crate) f: fn(u64, u64, u64) -> u64,
}

/// What changes an mbarrier.
#[derive(Clone, Debug)]
pub(crate) struct Mbarrier {
    pub(crate) space: Space,
    pub(crate) address: Address,
    pub(crate) operation: MbarrierOperation,
}

/// What is done to an mbarrier; operands are slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MbarrierOperation {
    Init {
        count: u32,
    },
    Inval,
    ExpectTx {
        bytes: u32,
    },
    /// `drops`: later phases expect so many arrivals less; `completes`: whether it may be the last of its phase.
    Arrive {
        state: Option<u32>,
        expect: Option<u32>,
        count: Option<u32>,
        drops: bool,
        completes: bool,
    },
}

/// A wait on an mbarrier.
#[derive(Clone, Debug)]
pub(crate) struct MbarrierWait {
    pub(crate) space: Space,
    pub(crate) address: Address,
    /// Where the answer goes.
    pub(crate) p: Option<u32>,
    pub(crate) phase: Phase,
    /// `try_wait`, which may suspend the thread.
    pub(crate) suspends: bool,
}

/// The phase a wait is for: slot of its parity, or of the state that an arrival gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Parity(u32),
    State(u32),
}

/// A bulk copy to shared memory, from global memory or from shared memory of the block.
#[derive(Clone, Debug)]
pub(crate) struct BulkCopy {
    pub(crate) to: Address,
    pub(crate) from: Address,
    /// Slot of the number of bytes.
    pub(crate) bytes: u32,
    pub(crate) barrier: Address,
    /// For a copy to several blocks of the cluster, slot of a bit for each.
    pub(crate) blocks: Option<u32>,
    pub(crate) source: Space,
}

/// `st.async` and `red.async`: a store to shared memory of the cluster that completes on an mbarrier.
#[derive(Clone, Debug)]
pub(crate) struct AsyncStore {
    /// That of both addresses.
    pub(crate) space: Space,
    pub(crate) to: Address,
    /// One register for each element.
    pub(crate) values: Vec<RegisterOperand>,
    pub(crate) barrier: Address,
    /// Of a reduction, what is done to the element.
    pub(crate) reduction: Option<Reduction>,
}

/// A thread's own copy from global to shared memory.
#[derive(Clone, Debug)]
pub(crate) struct ThreadCopy {
    pub(crate) to: Address,
    pub(crate) from: Address,
    pub(crate) bytes: u32,
    /// Slot of how many bytes are read; the others become zero.
    pub(crate) source_bytes: Option<u32>,
}
