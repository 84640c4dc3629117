//! Operands of decoded instructions: registers, addresses, state spaces and memory order.

/// A special register whose value does not change during the life of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Tid(usize),
    Ntid(usize),
    Ctaid(usize),
    Nctaid(usize),
    LaneId,
    WarpId,
    NWarpId,
    SmId,
    NSmId,
    LaneMask(Compare),
    DynamicSmemSize,
    TotalSmemSize,
    /// `%envregN`, a value from the driver.
    EnvReg(u32),
    ClusterCtaRank,
    ClusterNctaRank,
    ClusterCtaid(usize),
    ClusterNctaid(usize),
    ClusterId(usize),
    NclusterId(usize),
}

/// A comparison of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Compare {
    Eq,
    Lt,
    Le,
    Gt,
    Ge,
}

/// The bits of a clock that an instruction reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockPart {
    Low,
    High,
    Whole,
}

/// The representation of a value in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Width {
    /// The size in memory in bytes: 1, 2, 4 or 8.
    pub(crate) bytes: u32,
    pub(crate) signed: bool,
}

/// A state space as an instruction names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstructionSpace {
    Generic,
    Global,
    Const,
    Shared,
    /// The shared memory of all blocks of the cluster.
    Cluster,
    Local,
    /// The parameters of the kernel.
    Param,
}

/// A range of the generic address space that maps another state space.
pub(crate) type Window = InstructionSpace;

/// An address operand: a register and an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) slot: u32,
    pub(crate) wide: bool,
    pub(crate) offset: i64,
}

/// A load or a store.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) space: InstructionSpace,
    pub(crate) address: Address,
    pub(crate) width: Width,
    /// The register of each element, or `None` for the sink `_`.
    pub(crate) regs: Vec<Option<RegisterOperand>>,
    /// Whether the load has `.nc`.
    pub(crate) read_only: bool,
    /// The treatment of uninitialized bytes, for a load from local memory.
    pub(crate) unwritten: Unwritten,
    pub(crate) order: AccessOrdering,
    pub(crate) scope: MemoryScope,
    pub(crate) site: u32,
}

/// The treatment of uninitialized local memory in a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwritten {
    Fault,
    /// They read as zeros, because the kernel only masks and stores the other bits.
    Zeros,
    /// They stay uninitialized in the register, because the value is only stored elsewhere. Copies
    /// of structures with padding do this.
    Copied,
    /// Up to 7 bytes after initialized ones read as zeros, because the whole value is stored
    /// elsewhere.
    Gaps,
}

/// A load of kernel parameters.
#[derive(Clone, Debug)]
pub(crate) struct LoadParam {
    pub(crate) offset: u32,
    pub(crate) width: Width,
    pub(crate) regs: Vec<Option<RegisterOperand>>,
}

/// A register of the 32-bit or the 64-bit bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisterOperand {
    pub(crate) slot: u32,
    /// The width of the register in bits: 16, 32 or 64.
    pub(crate) bits: u32,
}

/// The ordering semantics of an access (PTX ISA, "Memory Consistency Model").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessOrdering {
    Weak,
    /// `.relaxed` or `.volatile`.
    Relaxed,
    Acquire,
    Release,
    AcquireRelease,
}

impl AccessOrdering {
    /// Returns true if the access may meet another strong access at its address without a race.
    pub(crate) fn is_strong(self) -> bool {
        self != AccessOrdering::Weak
    }

    pub(crate) fn acquires(self) -> bool {
        matches!(
            self,
            AccessOrdering::Acquire | AccessOrdering::AcquireRelease
        )
    }

    pub(crate) fn releases(self) -> bool {
        matches!(
            self,
            AccessOrdering::Release | AccessOrdering::AcquireRelease
        )
    }
}

/// The threads among which an order holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryScope {
    /// `.cta` and `.cluster`, because the threads of a cluster share one set of clocks here.
    Block,
    /// `.gpu` and `.sys`.
    Device,
}

/// A predicate operand: a register, possibly negated, or a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PredSource {
    Register { slot: u32, negated: bool },
    Constant(bool),
}

/// The mask slot of `shfl` and `vote` without `.sync`, which apply to the executing lanes.
pub(crate) const EXECUTING: u32 = u32::MAX;

/// A value that is known before the kernel starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Bits(u64),
    /// The address of a module variable by number, plus an offset.
    Variable(u32, i64),
    /// The address of a variable in the local memory of a call.
    Local(u32),
}
