//! What instructions do besides computing a result: to memory, to barriers, to the threads they share it with.
//!
//! The checks read these properties and no names of rows, so that they hold for a row that is added. Every row states
//! its effect; [`Effect::Pure`] rows cannot have an address, which the table refuses when it is compiled.

use crate::level::Level;

/// What an instruction does besides computing a result from its operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: the result follows from the operands.
    Pure,
    /// Loads from memory.
    Load(StateSpace, MemoryOrder),
    /// Loads matrices from shared memory; each lane gets its own part of what the lanes address.
    LoadMatrix,
    /// Stores matrices to shared memory; each lane gives its own part of what the lanes address.
    StoreMatrix,
    /// Stores to memory.
    Store(StateSpace, MemoryOrder),
    /// Reads, modifies and writes memory in one step.
    Atomic(StateSpace, MemoryOrder),
    /// Asks for a copy between global and shared memory, which runs beside the thread.
    Copy(Completion),
    /// Makes or awaits groups of copies.
    CopyGroup,
    /// Brings memory into a cache.
    Prefetch,
    /// Orders memory accesses.
    Fence,
    /// Arrives at a barrier of the block or the warp, or waits for it.
    Barrier,
    /// Uses an mbarrier.
    Mbarrier(MbarrierStep),
    /// Multiplies matrices beside the warpgroup, or orders such products with it.
    Wgmma(WgmmaStep),
    /// Exchanges values between the lanes of a warp; how far the results are the same.
    Exchange(Uniformity),
    /// Talks to the kernels before or after this one.
    Grid(GridStep),
    /// Ends or delays the thread, or changes what it has.
    Control,
}

/// Where memory is: the manual's state space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateSpace {
    /// `.global`
    Global,
    /// `.shared`
    Shared,
    /// `.shared::cluster`: shared memory of any block of the cluster.
    Cluster,
    /// `.param`
    Param,
}

/// How an access is ordered with those of other threads, and what caches it may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryOrder {
    /// Plain: for memory that no other thread accesses without a barrier between.
    Weak,
    /// `.nc`: through a cache that is not kept coherent, for memory that nobody writes while the kernel runs.
    Noncoherent,
    /// `.relaxed`: sees and is seen by other threads, in no order with other accesses. Atomics without a word are this.
    Relaxed,
    /// `.acquire`: sees what a releasing thread wrote before.
    Acquire,
    /// `.release`: publishes what this thread wrote before.
    Release,
    /// `.acq_rel`: both.
    AcquireRelease,
}

/// How a copy says that it has landed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// By the group of copies that it is in.
    Group,
    /// By its bytes, at an mbarrier that expects them.
    Mbarrier,
    /// By the group of bulk copies that it is in; out of shared memory.
    BulkGroup,
}

/// A step of asynchronous products of a warpgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WgmmaStep {
    /// Lets products use registers that instructions have used before.
    Fence,
    /// Asks for a product.
    Multiply,
    /// Makes the products since the last group a group.
    Commit,
    /// Waits for groups.
    Wait,
}

/// A step in the life of an mbarrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MbarrierStep {
    /// Makes it.
    Init,
    /// Makes it plain memory again.
    Invalidate,
    /// Arrives.
    Arrive,
    /// Arrives, and lets the phase wait for bytes.
    ArriveExpect,
    /// Arrives when copies of this thread have landed.
    ArriveCopied,
    /// Asks whether a phase has ended, or waits for that.
    Wait,
}

impl MbarrierStep {
    /// Whether it counts as an arrival.
    pub fn arrives(self) -> bool {
        match self {
            MbarrierStep::Arrive | MbarrierStep::ArriveExpect | MbarrierStep::ArriveCopied => true,
            MbarrierStep::Init | MbarrierStep::Invalidate | MbarrierStep::Wait => false,
        }
    }
}

/// A step between kernels that overlap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GridStep {
    /// Lets the next kernel start.
    Trigger,
    /// Waits for the kernels before.
    Wait,
}

/// How far the results of an instruction are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uniformity {
    /// As far as its operands are.
    AsOperands,
    /// This far, even where its operands differ.
    Same(Level),
    /// Each thread may get its own, even with the same operands.
    Differs,
}

impl Effect {
    /// How far the results of an instruction with this effect are the same.
    pub fn uniformity(self) -> Uniformity {
        use MemoryOrder::*;
        match self {
            Effect::Exchange(uniformity) => uniformity,
            // Two threads may load at different times, or take turns.
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

    /// Whether it is on an mbarrier.
    pub fn is_on_mbarrier(self) -> bool {
        matches!(
            self,
            Effect::Mbarrier(_) | Effect::Copy(Completion::Mbarrier)
        )
    }

    /// Whether its results come out of memory.
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
/// A load from global memory that sees what others write meanwhile.
pub(super) const LOAD_RELAXED: Effect = Effect::Load(StateSpace::Global, MemoryOrder::Relaxed);
/// A load from global memory that acquires.
pub(super) const LOAD_ACQUIRE: Effect = Effect::Load(StateSpace::Global, MemoryOrder::Acquire);
/// A plain load from shared memory.
pub(super) const LOAD_SHARED: Effect = Effect::Load(StateSpace::Shared, MemoryOrder::Weak);
/// A load of a parameter.
pub(super) const LOAD_PARAM: Effect = Effect::Load(StateSpace::Param, MemoryOrder::Weak);
/// A plain store to global memory.
pub(super) const STORE_GLOBAL: Effect = Effect::Store(StateSpace::Global, MemoryOrder::Weak);
/// A store to global memory that others may load meanwhile.
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
/// A copy that is in a group.
pub(super) const COPY_IN_GROUP: Effect = Effect::Copy(Completion::Group);
/// A copy whose bytes an mbarrier counts.
pub(super) const COPY_FOR_MBARRIER: Effect = Effect::Copy(Completion::Mbarrier);
/// A copy out of shared memory, in a group of bulk copies.
pub(super) const COPY_IN_BULK_GROUP: Effect = Effect::Copy(Completion::BulkGroup);
/// Making an mbarrier.
pub(super) const MBARRIER_INIT: Effect = Effect::Mbarrier(MbarrierStep::Init);
/// The end of an mbarrier.
pub(super) const MBARRIER_INVALIDATE: Effect = Effect::Mbarrier(MbarrierStep::Invalidate);
/// An arrival.
pub(super) const MBARRIER_ARRIVE: Effect = Effect::Mbarrier(MbarrierStep::Arrive);
/// An arrival that expects bytes.
pub(super) const MBARRIER_EXPECT: Effect = Effect::Mbarrier(MbarrierStep::ArriveExpect);
/// An arrival when copies have landed.
pub(super) const MBARRIER_ARRIVE_COPIED: Effect = Effect::Mbarrier(MbarrierStep::ArriveCopied);
/// A wait for a phase.
pub(super) const MBARRIER_WAIT: Effect = Effect::Mbarrier(MbarrierStep::Wait);
