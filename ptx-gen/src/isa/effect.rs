//! The effects of instructions on memory, on barriers and on other threads.
//!
//! The checks depend on these properties instead of the names of rows, so they also apply to new
//! rows. Every row states its effect. A row with [`Effect::Pure`] cannot have an address operand,
//! which is checked at compile time.

use crate::level::Level;

/// The effect of an instruction besides computing a result from its operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// No effect: the result depends only on the operands.
    Pure,
    /// Loads from memory.
    Load(StateSpace, MemoryOrder),
    /// Loads matrices from shared memory. Each lane receives a fragment of the rows that all lanes
    /// address.
    LoadMatrix,
    /// Stores matrices to shared memory. Each lane provides a fragment of the rows that all lanes
    /// address.
    StoreMatrix,
    /// Stores to memory.
    Store(StateSpace, MemoryOrder),
    /// Reads, modifies and writes memory atomically.
    Atomic(StateSpace, MemoryOrder),
    /// Starts an asynchronous copy between global and shared memory.
    Copy(Completion),
    /// Forms or waits for groups of copies.
    CopyGroup,
    /// Prefetches memory into a cache.
    Prefetch,
    /// Orders memory accesses.
    Fence,
    /// Arrives at a barrier of the block, the warp or the cluster, or waits for it.
    Barrier,
    /// Operates on an mbarrier.
    Mbarrier(MbarrierStep),
    /// Starts an asynchronous matmul of a warpgroup, or orders such matmuls.
    Wgmma(WgmmaStep),
    /// Exchanges values between the lanes of a warp. The results have this uniformity.
    Exchange(Uniformity),
    /// Synchronizes with the kernels before or after this one.
    Grid(GridStep),
    /// Ends or delays the thread, or changes its number of registers.
    Control,
}

/// A state space of PTX: the memory that an instruction accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateSpace {
    /// `.global`
    Global,
    /// `.shared`
    Shared,
    /// `.shared::cluster`: the shared memory of any block of the cluster.
    Cluster,
    /// `.param`
    Param,
}

/// The memory order of an access, and the caches it may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryOrder {
    /// No modifier: for memory that other threads access only with synchronization in between.
    Weak,
    /// `.nc`: a load through a cache that is not coherent, for memory that no thread writes during
    /// the kernel.
    Noncoherent,
    /// `.relaxed`: an access that is visible to other threads but does not order other accesses.
    /// Atomics without a modifier are relaxed.
    Relaxed,
    /// `.acquire`: the thread sees the earlier writes of the releasing thread.
    Acquire,
    /// `.release`: publishes the earlier writes of this thread.
    Release,
    /// `.acq_rel`: acquires and releases.
    AcquireRelease,
}

/// The mechanism by which a copy reports its completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// The group of copies that contains it.
    Group,
    /// An mbarrier that expects the bytes.
    Mbarrier,
    /// The group of bulk copies out of shared memory that contains it.
    BulkGroup,
}

/// A step in the use of asynchronous matmuls of a warpgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WgmmaStep {
    /// Orders earlier uses of registers before later matmuls.
    Fence,
    /// Starts a matmul.
    Multiply,
    /// Groups the matmuls since the last group.
    Commit,
    /// Waits for groups.
    Wait,
}

/// An operation on an mbarrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MbarrierStep {
    /// Initializes it.
    Init,
    /// Ends its use, so that the memory can be reused.
    Invalidate,
    /// Arrives.
    Arrive,
    /// Arrives and adds bytes that the phase waits for.
    ArriveExpect,
    /// Arrives when earlier copies of this thread have completed.
    ArriveCopied,
    /// Tests or waits for the end of a phase.
    Wait,
}

impl MbarrierStep {
    /// Returns true if the operation counts as an arrival.
    pub fn arrives(self) -> bool {
        match self {
            MbarrierStep::Arrive | MbarrierStep::ArriveExpect | MbarrierStep::ArriveCopied => true,
            MbarrierStep::Init | MbarrierStep::Invalidate | MbarrierStep::Wait => false,
        }
    }
}

/// A step in the synchronization of overlapping kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GridStep {
    /// Allows the next kernel to start.
    Trigger,
    /// Waits for the kernels before.
    Wait,
}

/// The uniformity of the results of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uniformity {
    /// Results are as uniform as the operands.
    AsOperands,
    /// Results are uniform in this group, even if the operands differ.
    Same(Level),
    /// Results may differ from thread to thread, even if the operands are uniform.
    Differs,
}

impl Effect {
    /// Returns the uniformity of the results of an instruction with this effect.
    pub fn uniformity(self) -> Uniformity {
        use MemoryOrder::*;
        match self {
            Effect::Exchange(uniformity) => uniformity,
            // Threads may execute these at different times and see different values.
            Effect::Load(_, Relaxed | Acquire | Release | AcquireRelease)
            | Effect::LoadMatrix
            | Effect::Atomic(..)
            | Effect::Wgmma(WgmmaStep::Multiply)
            | Effect::Mbarrier(_) => Uniformity::Differs,
            Effect::Load(_, Weak | Noncoherent)
            | Effect::Pure
            | Effect::Store(..)
            | Effect::StoreMatrix
            | Effect::Wgmma(WgmmaStep::Fence | WgmmaStep::Commit | WgmmaStep::Wait)
            | Effect::Copy(_)
            | Effect::CopyGroup
            | Effect::Prefetch
            | Effect::Fence
            | Effect::Barrier
            | Effect::Grid(_)
            | Effect::Control => Uniformity::AsOperands,
        }
    }

    /// Returns true if the instruction operates on an mbarrier.
    pub fn is_on_mbarrier(self) -> bool {
        matches!(
            self,
            Effect::Mbarrier(_) | Effect::Copy(Completion::Mbarrier)
        )
    }

    /// Returns true if the results are read from memory.
    pub fn loads(self) -> bool {
        matches!(
            self,
            Effect::Load(..) | Effect::LoadMatrix | Effect::Atomic(..)
        )
    }
}

/// A plain load from global memory.
pub(super) const LOAD_GLOBAL: Effect = Effect::Load(StateSpace::Global, MemoryOrder::Weak);
/// A load from global memory through the cache that is not coherent.
pub(super) const LOAD_NONCOHERENT: Effect =
    Effect::Load(StateSpace::Global, MemoryOrder::Noncoherent);
/// A load from global memory that sees concurrent writes of other threads.
pub(super) const LOAD_RELAXED: Effect = Effect::Load(StateSpace::Global, MemoryOrder::Relaxed);
/// A load from global memory that acquires.
pub(super) const LOAD_ACQUIRE: Effect = Effect::Load(StateSpace::Global, MemoryOrder::Acquire);
/// A plain load from shared memory.
pub(super) const LOAD_SHARED: Effect = Effect::Load(StateSpace::Shared, MemoryOrder::Weak);
/// A load of a parameter.
pub(super) const LOAD_PARAM: Effect = Effect::Load(StateSpace::Param, MemoryOrder::Weak);
/// A plain store to global memory.
pub(super) const STORE_GLOBAL: Effect = Effect::Store(StateSpace::Global, MemoryOrder::Weak);
/// A store to global memory that other threads may load concurrently.
pub(super) const STORE_RELAXED: Effect = Effect::Store(StateSpace::Global, MemoryOrder::Relaxed);
/// A store to global memory that releases.
pub(super) const STORE_RELEASE: Effect = Effect::Store(StateSpace::Global, MemoryOrder::Release);
/// A plain load from shared memory of the cluster.
pub(super) const LOAD_CLUSTER: Effect = Effect::Load(StateSpace::Cluster, MemoryOrder::Weak);
/// A plain store to shared memory of the cluster.
pub(super) const STORE_CLUSTER: Effect = Effect::Store(StateSpace::Cluster, MemoryOrder::Weak);
/// A plain store to shared memory.
pub(super) const STORE_SHARED: Effect = Effect::Store(StateSpace::Shared, MemoryOrder::Weak);
/// An atomic of global memory without an order.
pub(super) const ATOMIC_GLOBAL: Effect = Effect::Atomic(StateSpace::Global, MemoryOrder::Relaxed);
/// An atomic of global memory that releases.
pub(super) const ATOMIC_RELEASE: Effect = Effect::Atomic(StateSpace::Global, MemoryOrder::Release);
/// An atomic of global memory that acquires and releases.
pub(super) const ATOMIC_ACQ_REL: Effect =
    Effect::Atomic(StateSpace::Global, MemoryOrder::AcquireRelease);
/// An atomic of shared memory without an order.
pub(super) const ATOMIC_SHARED: Effect = Effect::Atomic(StateSpace::Shared, MemoryOrder::Relaxed);
/// A prefetch.
pub(super) const PREFETCH: Effect = Effect::Prefetch;
/// A copy that belongs to a group.
pub(super) const COPY_IN_GROUP: Effect = Effect::Copy(Completion::Group);
/// A copy that reports its bytes to an mbarrier.
pub(super) const COPY_FOR_MBARRIER: Effect = Effect::Copy(Completion::Mbarrier);
/// A copy out of shared memory, in a group of bulk copies.
pub(super) const COPY_IN_BULK_GROUP: Effect = Effect::Copy(Completion::BulkGroup);
/// The initialization of an mbarrier.
pub(super) const MBARRIER_INIT: Effect = Effect::Mbarrier(MbarrierStep::Init);
/// The end of the use of an mbarrier.
pub(super) const MBARRIER_INVALIDATE: Effect = Effect::Mbarrier(MbarrierStep::Invalidate);
/// An arrival at an mbarrier.
pub(super) const MBARRIER_ARRIVE: Effect = Effect::Mbarrier(MbarrierStep::Arrive);
/// An arrival at an mbarrier that adds expected bytes.
pub(super) const MBARRIER_EXPECT: Effect = Effect::Mbarrier(MbarrierStep::ArriveExpect);
/// An arrival at an mbarrier when earlier copies have completed.
pub(super) const MBARRIER_ARRIVE_COPIED: Effect = Effect::Mbarrier(MbarrierStep::ArriveCopied);
/// A test or wait for the end of a phase.
pub(super) const MBARRIER_WAIT: Effect = Effect::Mbarrier(MbarrierStep::Wait);
