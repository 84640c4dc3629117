//! The decoded form of a kernel: instructions with registers, labels and addresses resolved.

use crate::async_code::{AsyncStore, BulkStore, OfMap, TensorCopy, Wgmma};
pub(crate) use crate::async_code::{
    BulkCopy, Mbarrier, MbarrierOperation, MbarrierWait, Phase, ThreadCopy,
};
pub(crate) use crate::atomic_code::{Atomic, High};
pub(crate) use crate::call_code::{ABSENT, Call, CallTarget, Formal, Passed, Routine, SystemCall};
use crate::exec::regs::{Alu, Bank, Regs, Slots, Undefined};
pub(crate) use crate::fragment_code::{
    Element, Fragment, Item, LoadMatrix, Mma, Product, Role, Shape, Sparsity, WarpMatrix,
    quad_place,
};
pub(crate) use crate::video_code::{Second, Video, VideoElement, VideoOp};

/// Everything needed to execute one kernel.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) ops: Vec<Instruction>,
    /// Start and end of each instruction in the text, and its `.loc`.
    pub(crate) places: Vec<crate::fault::SourcePlace>,
    /// The kernel, then the functions that it may call.
    pub(crate) routines: Vec<Routine>,
    /// The routine that each function of the module is here, by its number; [`ABSENT`] for what is never called.
    pub(crate) routine_of: Vec<u32>,
    /// For each instruction, the 32-bit registers that it reads and that it writes, if there are products of warpgroups.
    pub(crate) uses: Vec<[Box<[u32]>; 2]>,
    /// The registers that each instruction names, one instruction after the other.
    pub(crate) mentions: Vec<(Bank, u32)>,
    /// For each instruction, where its registers end.
    pub(crate) mention_ends: Vec<u32>,
    /// Static shared variables; a dynamic one has no size.
    pub(crate) shared: Vec<Region>,
    /// Number of memory instructions, each of which has a cache entry.
    pub(crate) sites: u32,
    /// Whether lanes are scheduled independently and may meet at different instructions, as from sm_70 on.
    pub(crate) independent: bool,
}

impl Code {
    /// Whether some of it calls `malloc` or `free`.
    pub(crate) fn uses_heap(&self) -> bool {
        let heap = |target: &CallTarget| {
            matches!(
                target,
                CallTarget::System(SystemCall::Malloc | SystemCall::Free)
            )
        };
        self.ops
            .iter()
            .any(|step| matches!(&step.op, Op::Call(call) if heap(&call.target)))
    }

    /// Whether some of it asks where the workspace of a cooperative grid is.
    pub(crate) fn uses_workspace(&self) -> bool {
        let asks = |r: &Routine| {
            r.specials
                .iter()
                .any(|(_, s)| matches!(s, Special::EnvReg(1 | 2)))
        };
        self.routines.iter().any(asks)
    }

    /// Returns the dynamic shared memory, if the kernel declares it.
    pub(crate) fn declared_dynamic(&self) -> Option<&Region> {
        self.shared
            .iter()
            .find(|region| region.dynamic && region.name != UNDECLARED_DYNAMIC)
    }

    /// The registers that an instruction names.
    pub(crate) fn mentioned(&self, pc: u32) -> &[(Bank, u32)] {
        let end = |i: u32| {
            self.mention_ends
                .get(i as usize)
                .map_or(self.mentions.len(), |end| *end as usize)
        };
        let start = pc.checked_sub(1).map_or(0, end);
        &self.mentions[start..end(pc)]
    }

    /// The name of a register of a routine.
    pub(crate) fn name_of(&self, routine: u32, bank: Bank, slot: u32) -> Option<&str> {
        let names = &self.routines[routine as usize].names;
        let found = names.binary_search_by_key(&(bank, slot), |(bank, slot, _)| (*bank, *slot));
        found.ok().map(|i| names[i].2.as_str())
    }
}

/// The name of the dynamic shared memory of a kernel that declares none.
pub(crate) const UNDECLARED_DYNAMIC: &str = "dynamic shared memory";

/// A named range of shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) name: String,
    /// Address in the shared space.
    pub(crate) address: u32,
    pub(crate) bytes: u32,
    /// Whether its size is that of the launch's dynamic shared memory.
    pub(crate) dynamic: bool,
}

/// One instruction: its guard and what it does.
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    pub(crate) guard: Option<ResolvedGuard>,
    pub(crate) op: Op,
    /// Whether it uses a register that products of warpgroups use.
    pub(crate) watched: bool,
}

/// `@p` or `@!p`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResolvedGuard {
    pub(crate) pred: u32,
    pub(crate) negated: bool,
}

/// A special register that has one value for the life of a warp.
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
    /// `%envregN`: what the driver tells a kernel.
    EnvReg(u32),
    ClusterCtaRank,
    ClusterNctaRank,
    ClusterCtaid(usize),
    ClusterNctaid(usize),
    ClusterId(usize),
    NclusterId(usize),
}

/// How two numbers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Compare {
    Eq,
    Lt,
    Le,
    Gt,
    Ge,
}

/// The operations.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Arithmetic on registers alone.
    Alu(Alu, Slots),
    /// `setp`
    SetP(Box<SetP>),
    /// `set`: all bits, or 1.0, where the comparison holds.
    Set {
        test: Test,
        d: u32,
        one: u32,
    },
    /// `setp` of the low and of the high halves.
    SetPairP {
        test: Box<PairTest>,
        p: Option<u32>,
        q: Option<u32>,
    },
    /// `set` of halves: a half of `one`, where the comparison holds.
    SetPair {
        test: Box<PairTest>,
        d: u32,
        one: u32,
    },
    Video(Box<Video>),
    /// Logic on predicates: the result by the two inputs, bit `2 * a + b`.
    Logic {
        table: u8,
        d: u32,
        a: PredSource,
        b: PredSource,
    },
    /// A jump to an instruction; `join` is where the lanes that go apart meet again.
    Branch {
        target: u32,
        join: u32,
    },
    /// `brx.idx`: an indirect jump through a list.
    BranchIndexed {
        index: u32,
        targets: Box<[u32]>,
        join: u32,
    },
    Exit,
    Trap,
    /// Does nothing here: `prefetch`, hints.
    Nothing,
    /// `nanosleep`: ends the warp's turn.
    Sleep,
    Call(Box<Call>),
    /// `ret` of a function
    Return,
    /// `alloca`: local memory until the function returns.
    Alloca {
        d: RegisterOperand,
        size: RegisterOperand,
        align: u32,
    },
    /// `stacksave`
    StackSave {
        d: RegisterOperand,
    },
    /// `stackrestore`
    StackRestore {
        a: RegisterOperand,
    },
    /// `griddepcontrol.wait`
    GridWait,
    /// `griddepcontrol.launch_dependents`
    GridTrigger,
    Mma(Box<Mma>),
    /// `wmma.mma`, and forms of `mma` that are seldom
    Product(Box<Product>),
    /// `wmma.load`
    LoadFragment(Box<WarpMatrix>),
    /// `wmma.store`
    StoreFragment(Box<WarpMatrix>),
    /// `getctarank`: where the address is, and the destination
    ClusterRank(Box<(Space, Address, u32)>),
    Mbarrier(Box<Mbarrier>),
    /// `mbarrier.try_wait` and `.test_wait`
    MbarrierWait(Box<MbarrierWait>),
    /// `fence.proxy.async`, and with mbarriers alone `fence.mbarrier_init`: they become known to copies.
    ProxyFence {
        mbarriers: bool,
    },
    Wgmma(Box<Wgmma>),
    /// `wgmma.fence`
    WgmmaFence,
    /// `wgmma.commit_group`
    WgmmaCommit,
    /// `wgmma.wait_group`
    WgmmaWait {
        keep: usize,
    },
    /// `cp.async.bulk.tensor` to shared memory
    TensorLoad(Box<TensorCopy>),
    /// `cp.async.bulk.tensor` out of shared memory
    TensorStore(Box<TensorCopy>),
    TensorMap(Box<OfMap>),
    /// `tex`, `tld4`, `suld`, `sust`, `sured`, `txq`, `suq`
    Image(Box<crate::image_code::OfImage>),
    /// `st.async` and `red.async`
    AsyncStore(Box<AsyncStore>),
    /// `cp.async.bulk` out of shared memory
    BulkStore(Box<BulkStore>),
    /// `cp.async.bulk.commit_group`
    BulkCommit,
    /// `cp.async.bulk.wait_group`
    BulkWait {
        keep: u32,
        read: bool,
    },
    /// `mapa`
    MapAddress {
        d: u32,
        a: u32,
        rank: u32,
        wide: bool,
    },
    /// `barrier.cluster.arrive`
    ClusterArrive {
        releases: bool,
        /// Whether all threads of a warp must execute it together.
        aligned: bool,
    },
    /// `barrier.cluster.wait`
    ClusterWait {
        /// Whether all threads of a warp must execute it together.
        aligned: bool,
    },
    /// `stmatrix`
    StoreMatrix(Box<LoadMatrix>),
    /// `movmatrix`
    MoveMatrix {
        d: u32,
        a: u32,
    },
    /// `cp.async.bulk` to shared memory
    Bulk(Box<BulkCopy>),
    /// `cp.async.bulk.prefetch.L2`
    BulkPrefetch(Box<(Address, u32)>),
    /// `cp.async`
    Copy(Box<ThreadCopy>),
    /// `cp.async.commit_group`
    CopyCommit,
    /// `cp.async.wait_group`, and with nothing to keep `cp.async.wait_all`
    CopyWait {
        keep: Option<u32>,
    },
    /// `cp.async.mbarrier.arrive`, and whether the phase expects one arrival more for it: without `.noinc`
    CopyArrives(Box<(Space, Address, bool)>),
    /// `ldmatrix`
    LoadMatrix(Box<LoadMatrix>),
    /// `setmaxnreg`
    SetMaxRegisters {
        count: u32,
    },
    Clock {
        d: u32,
        part: ClockPart,
    },
    /// `mov.v2` and `mov.v4`
    Copies(Box<[RegisterCopy]>),
    LoadParam(Box<LoadParam>),
    Load(Box<Transfer>),
    Store(Box<Transfer>),
    /// `discard`: two halves
    Discard(Box<[Transfer; 2]>),
    Atomic(Box<Atomic>),
    /// Atomics on the elements of a vector, and its bytes
    Atomics(Box<(u32, Vec<Atomic>)>),
    /// `cvta` of a window: adds its base, or subtracts it.
    Window {
        d: u32,
        a: u32,
        window: Window,
        to: bool,
    },
    /// `isspacep`; the generic space stands for the parameters.
    IsSpace {
        d: u32,
        a: u32,
        space: Space,
    },
    Fence(Fence),
    Barrier(Box<Barrier>),
    WarpBarrier {
        mask: u32,
    },
    Shuffle(Box<Shuffle>),
    Vote {
        mode: Vote,
        d: u32,
        pred: PredSource,
        mask: u32,
    },
    Match {
        all: bool,
        d: u32,
        p: Option<u32>,
        a: u32,
        wide: bool,
        mask: u32,
    },
    Redux {
        f: fn(u32, u32) -> u32,
        d: u32,
        a: u32,
        mask: u32,
    },
    ActiveMask {
        d: u32,
    },
    Elect {
        d: Option<u32>,
        p: u32,
        mask: u32,
    },
}

/// The bits of a clock that an instruction reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockPart {
    Low,
    High,
    Whole,
}

/// How a value lies in memory and in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Width {
    /// Bytes in memory: 1, 2, 4 or 8.
    pub(crate) bytes: u32,
    pub(crate) signed: bool,
}

/// A memory space as an instruction names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Const,
    Shared,
    /// Shared memory of any block of the cluster.
    Cluster,
    Local,
    /// Parameters of the kernel.
    Param,
}

/// A range of the generic address space that maps another space.
pub(crate) type Window = Space;

/// An address: a register and an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) slot: u32,
    pub(crate) wide: bool,
    pub(crate) offset: i64,
}

/// A load or a store.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) space: Space,
    pub(crate) address: Address,
    pub(crate) width: Width,
    /// One register for each element; `None` for a sink.
    pub(crate) regs: Vec<Option<RegisterOperand>>,
    /// `.nc`
    pub(crate) read_only: bool,
    /// For a load from local memory: what bytes without a value are to it.
    pub(crate) unwritten: Unwritten,
    pub(crate) order: MemoryOrder,
    pub(crate) scope: Scope,
    pub(crate) site: u32,
}

/// What bytes of local memory that nobody has written are to a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwritten {
    Fault,
    /// Zeros: the bits that a change of others keeps.
    Zeros,
    /// Passed on: the value is stored elsewhere and goes nowhere else, as in copies of structures with gaps.
    Copied,
    /// Zeros, where up to 7 bytes follow written ones in the same access: all of it is stored elsewhere at once.
    Gaps,
}

/// A load of kernel parameters.
#[derive(Clone, Debug)]
pub(crate) struct LoadParam {
    pub(crate) offset: u32,
    pub(crate) width: Width,
    pub(crate) regs: Vec<Option<RegisterOperand>>,
}

/// A register of either word bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisterOperand {
    pub(crate) slot: u32,
    /// Size of the register: 16, 32 or 64.
    pub(crate) bits: u32,
}

/// How an access is ordered with others (manual, "Memory Consistency Model").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryOrder {
    Weak,
    /// Also `.volatile`.
    Relaxed,
    Acquire,
    Release,
    AcquireRelease,
}

impl MemoryOrder {
    /// Whether it may meet other such accesses at its address.
    pub(crate) fn is_strong(self) -> bool {
        self != MemoryOrder::Weak
    }

    pub(crate) fn acquires(self) -> bool {
        matches!(self, MemoryOrder::Acquire | MemoryOrder::AcquireRelease)
    }

    pub(crate) fn releases(self) -> bool {
        matches!(self, MemoryOrder::Release | MemoryOrder::AcquireRelease)
    }
}

/// The threads among which an order holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// `.cta`, and `.cluster`, whose threads have one set of clocks here.
    Block,
    /// `.gpu` and `.sys`.
    Device,
}

/// `fence` and `membar`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) acquires: bool,
    pub(crate) releases: bool,
    pub(crate) scope: Scope,
}

/// A block barrier.
#[derive(Clone, Debug)]
pub(crate) struct Barrier {
    pub(crate) kind: BarrierKind,
    /// Slot of the barrier's number.
    pub(crate) id: u32,
    /// Slot of the number of threads.
    pub(crate) count: Option<u32>,
    /// Whether all threads of a warp must execute the same barrier instruction together.
    pub(crate) aligned: bool,
}

/// What a barrier does besides counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    /// Population count of a predicate.
    Popc {
        d: u32,
        pred: PredSource,
    },
    And {
        d: u32,
        pred: PredSource,
    },
    Or {
        d: u32,
        pred: PredSource,
    },
}

/// A predicate operand: a register, negated or not, or a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PredSource {
    Register { slot: u32, negated: bool },
    Constant(bool),
}

/// A register that is copied to another of its bank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisterCopy {
    pub(crate) bank: Bank,
    pub(crate) to: u32,
    pub(crate) from: u32,
}

/// Instead of the register of a mask: the lanes that execute the instruction together, as `shfl` and `vote` without `.sync`
/// mean.
pub(crate) const EXECUTING: u32 = u32::MAX;

/// `shfl.sync`, and `shfl`
#[derive(Clone, Debug)]
pub(crate) struct Shuffle {
    pub(crate) mode: ShuffleMode,
    pub(crate) d: Option<u32>,
    pub(crate) p: Option<u32>,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u32,
    pub(crate) mask: u32,
}

/// Direction of a shuffle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Bfly,
    Idx,
}

/// What a vote decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uni,
    Ballot,
}

/// A value known before the kernel starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Bits(u64),
    /// Address of a module variable by number, and an offset.
    Variable(u32, i64),
    /// Address of a variable in the local memory of a call.
    Local(u32),
}

/// Compares two registers: the lanes in which it holds.
pub(crate) type Comparison = fn(&Regs, u32, u32, u32) -> Result<u32, Undefined>;

/// A comparison, combined with a predicate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Test {
    pub(crate) compare: Comparison,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) with: Option<(Combine, PredSource)>,
}

/// A comparison of the low halves of two registers, and of the high ones, each combined with a predicate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairTest {
    /// For which outcomes it holds: less, equal, greater, unordered, from the lowest bit on.
    pub(crate) outcomes: u8,
    /// What a half is compared as.
    pub(crate) wide: fn(u16) -> f32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) with: Option<(Combine, PredSource)>,
}

/// `setp`: destinations for the comparison and for its negation, each combined.
#[derive(Clone, Debug)]
pub(crate) struct SetP {
    pub(crate) test: Test,
    pub(crate) p: Option<u32>,
    pub(crate) q: Option<u32>,
}

/// How a comparison is combined with a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    And,
    Or,
    Xor,
}
