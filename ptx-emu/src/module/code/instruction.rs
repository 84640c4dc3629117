//! The decoded form of a kernel, in which registers, labels and addresses are resolved.

use crate::module::code::asynchronous::{
    AsyncStore, BulkCopy, BulkStore, MbarrierInstruction, MbarrierWait, OfMap, TensorCopy,
    ThreadCopy, Wgmma,
};
use crate::module::code::atomic::Atomic;
use crate::module::code::call::{Call, CallTarget, Routine, SystemCall};
use crate::module::code::matrix::{LoadMatrix, Mma, Product, WarpMatrix};
use crate::module::code::operand::{
    Address, ClockPart, InstructionSpace, LoadParam, MemoryScope, PredSource, RegisterOperand,
    Special, Transfer, Window,
};
use crate::module::code::video::Video;
use crate::module::registers::{Alu, Bank, OperandSlots, RegisterCopy, Regs, Undefined};

/// A decoded kernel with the functions that it calls.
#[derive(Debug, Default)]
pub(crate) struct KernelCode {
    pub(crate) ops: Vec<Instruction>,
    /// The place of each instruction in the text, and its `.loc`.
    pub(crate) places: Vec<crate::fault::SourcePlace>,
    /// The kernel, followed by the functions that it may call.
    pub(crate) routines: Vec<Routine>,
    /// The index in `routines` of each function of the module, or [`ABSENT`] for functions that are
    /// never called.
    pub(crate) routine_of: Vec<u32>,
    /// The 32-bit registers that each instruction reads and writes. Empty if the kernel has no
    /// `wgmma`.
    pub(crate) uses: Vec<[Box<[u32]>; 2]>,
    /// The registers that each instruction names, concatenated.
    pub(crate) mentions: Vec<(Bank, u32)>,
    /// The end of the registers of each instruction in `mentions`.
    pub(crate) mention_ends: Vec<u32>,
    /// The static shared variables. A dynamic variable has no size.
    pub(crate) shared: Vec<SharedRegion>,
    /// The number of memory instructions. Each has a cache entry.
    pub(crate) sites: u32,
    /// Whether lanes are scheduled independently and may meet at different instructions, as from
    /// sm_70 on.
    pub(crate) independent: bool,
}

impl KernelCode {
    /// Returns true if the code calls `malloc` or `free`.
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

    /// Returns true if the code reads the address of the workspace of a cooperative grid.
    pub(crate) fn uses_workspace(&self) -> bool {
        let asks = |r: &Routine| {
            r.specials
                .iter()
                .any(|(_, s)| matches!(s, Special::EnvReg(1 | 2)))
        };
        self.routines.iter().any(asks)
    }

    /// Returns true if the code reads a special register that depends on the number of threads in a
    /// block.
    pub(crate) fn reads_thread_index(&self) -> bool {
        self.reads_special(|special| {
            matches!(
                special,
                Special::Tid(_)
                    | Special::Ntid(_)
                    | Special::LaneId
                    | Special::WarpId
                    | Special::NWarpId
                    | Special::LaneMask(_)
            )
        })
    }

    /// Returns true if the code reads a special register that depends on the number of blocks.
    pub(crate) fn reads_block_index(&self) -> bool {
        self.reads_special(|special| {
            matches!(
                special,
                Special::Ctaid(_)
                    | Special::Nctaid(_)
                    | Special::ClusterId(_)
                    | Special::NclusterId(_)
            )
        })
    }

    /// Returns true if the kernel, or a function that it may call, reads such a special register.
    fn reads_special(&self, wanted: impl Fn(&Special) -> bool) -> bool {
        let mut specials = self.routines.iter().flat_map(|routine| &routine.specials);
        specials.any(|(_, special)| wanted(special))
    }

    /// Returns the dynamic shared memory, if the kernel declares it.
    pub(crate) fn declared_dynamic(&self) -> Option<&SharedRegion> {
        self.shared
            .iter()
            .find(|region| region.dynamic && region.name != UNDECLARED_DYNAMIC)
    }

    /// Returns the registers that an instruction names.
    pub(crate) fn mentioned(&self, pc: u32) -> &[(Bank, u32)] {
        let end = |i: u32| {
            self.mention_ends
                .get(i as usize)
                .map_or(self.mentions.len(), |end| *end as usize)
        };
        let start = pc.checked_sub(1).map_or(0, end);
        &self.mentions[start..end(pc)]
    }

    /// Returns the name of a register of a routine.
    pub(crate) fn name_of(&self, routine: u32, bank: Bank, slot: u32) -> Option<&str> {
        let names = &self.routines[routine as usize].names;
        let found = names.binary_search_by_key(&(bank, slot), |(bank, slot, _)| (*bank, *slot));
        found.ok().map(|i| names[i].2.as_str())
    }
}

/// The name of the dynamic shared memory of a kernel that does not declare it.
pub(crate) const UNDECLARED_DYNAMIC: &str = "dynamic shared memory";

/// A named range of shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedRegion {
    pub(crate) name: String,
    /// The address in the shared space.
    pub(crate) address: u32,
    pub(crate) bytes: u32,
    /// Whether the size is the dynamic shared memory of the launch.
    pub(crate) dynamic: bool,
}

/// An instruction with its guard.
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    pub(crate) guard: Option<ResolvedGuard>,
    pub(crate) op: Op,
    /// The work before the operation.
    pub(crate) preparation: Preparation,
}

/// The work that an instruction needs before its operation. Common instructions need none, which
/// the interpreter finds out by one comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preparation(u8);

impl Preparation {
    /// It uses a register that a `wgmma` uses.
    const USES_PRODUCT: u8 = 1;
    /// Lanes may have to meet before they execute it together.
    const GATHERS: u8 = 2;
    /// It may have an effect that other threads can see, and does not report it itself.
    const ACTS: u8 = 4;

    /// Returns the preparation of an operation, which does not use the registers of a `wgmma`.
    pub(crate) fn new(op: &Op) -> Preparation {
        let gathers = if op.gathers() { Self::GATHERS } else { 0 };
        let acts = if op.acts() { Self::ACTS } else { 0 };
        Preparation(gathers | acts)
    }

    /// Returns the preparation of an instruction that uses a register of a `wgmma`.
    pub(crate) fn with_product(self) -> Preparation {
        Preparation(self.0 | Self::USES_PRODUCT)
    }

    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn uses_product(self) -> bool {
        self.0 & Self::USES_PRODUCT != 0
    }

    pub(crate) fn gathers(self) -> bool {
        self.0 & Self::GATHERS != 0
    }

    pub(crate) fn acts(self) -> bool {
        self.0 & Self::ACTS != 0
    }
}

/// A guard, `@p` or `@!p`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResolvedGuard {
    pub(crate) pred: u32,
    pub(crate) negated: bool,
}

/// The operation of an instruction.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// An instruction that computes registers of a lane from other registers of the lane.
    Alu(Alu, OperandSlots),
    /// `setp`.
    SetP(Box<SetP>),
    /// `set`: all bits, or 1.0, if the comparison holds.
    Set {
        test: Test,
        d: u32,
        one: u32,
    },
    /// `setp` on the low and on the high half of a register.
    SetPairP {
        test: Box<PairTest>,
        p: Option<u32>,
        q: Option<u32>,
    },
    /// `set` on the two halves of a register. A half is the half of `one` if its comparison holds.
    SetPair {
        test: Box<PairTest>,
        d: u32,
        one: u32,
    },
    Video(Box<Video>),
    /// A logic instruction on predicates. Bit `2 * a + b` of the table is the result.
    Logic {
        table: u8,
        d: u32,
        a: PredSource,
        b: PredSource,
    },
    /// A branch. Diverged lanes reconverge at `join`.
    Branch {
        target: u32,
        join: u32,
    },
    /// `brx.idx`, an indirect branch through a list of labels.
    BranchIndexed {
        index: u32,
        targets: Box<[u32]>,
        join: u32,
    },
    Exit,
    Trap,
    /// An instruction without an effect here, for example `prefetch`.
    Nothing,
    /// `nanosleep`, which ends the turn of the warp.
    Sleep,
    Call(Box<Call>),
    /// `ret` in a function.
    Return,
    /// `alloca`, which allocates local memory until the function returns.
    Alloca {
        d: RegisterOperand,
        size: RegisterOperand,
        align: u32,
    },
    /// `stacksave`.
    StackSave {
        d: RegisterOperand,
    },
    /// `stackrestore`.
    StackRestore {
        a: RegisterOperand,
    },
    /// `griddepcontrol.wait`.
    GridWait,
    /// `griddepcontrol.launch_dependents`.
    GridTrigger,
    Mma(Box<Mma>),
    /// `wmma.mma`, and rare forms of `mma`.
    Product(Box<Product>),
    /// `wmma.load`.
    LoadFragment(Box<WarpMatrix>),
    /// `wmma.store`.
    StoreFragment(Box<WarpMatrix>),
    /// `getctarank` with the state space, the address and the destination.
    ClusterRank(Box<(InstructionSpace, Address, u32)>),
    Mbarrier(Box<MbarrierInstruction>),
    /// `mbarrier.try_wait` and `mbarrier.test_wait`.
    MbarrierWait(Box<MbarrierWait>),
    /// `fence.proxy.async`, or `fence.mbarrier_init` if only mbarriers become visible to copies.
    ProxyFence {
        mbarriers: bool,
    },
    Wgmma(Box<Wgmma>),
    /// `wgmma.fence`.
    WgmmaFence,
    /// `wgmma.commit_group`.
    WgmmaCommit,
    /// `wgmma.wait_group`.
    WgmmaWait {
        keep: usize,
    },
    /// `cp.async.bulk.tensor` to shared memory.
    TensorLoad(Box<TensorCopy>),
    /// `cp.async.bulk.tensor` from shared memory.
    TensorStore(Box<TensorCopy>),
    TensorMap(Box<OfMap>),
    /// `tex`, `tld4`, `suld`, `sust`, `sured`, `txq` and `suq`.
    Image(Box<crate::module::code::image::OfImage>),
    /// `st.async` and `red.async`.
    AsyncStore(Box<AsyncStore>),
    /// `cp.async.bulk` from shared memory.
    BulkStore(Box<BulkStore>),
    /// `cp.async.bulk.commit_group`.
    BulkCommit,
    /// `cp.async.bulk.wait_group`.
    BulkWait {
        keep: u32,
        read: bool,
    },
    /// `mapa`.
    MapAddress {
        d: u32,
        a: u32,
        rank: u32,
        wide: bool,
    },
    /// `barrier.cluster.arrive`.
    ClusterArrive {
        releases: bool,
        /// Whether all threads of a warp must execute it together.
        aligned: bool,
    },
    /// `barrier.cluster.wait`.
    ClusterWait {
        /// Whether all threads of a warp must execute it together.
        aligned: bool,
    },
    /// `stmatrix`.
    StoreMatrix(Box<LoadMatrix>),
    /// `movmatrix`.
    MoveMatrix {
        d: u32,
        a: u32,
    },
    /// `cp.async.bulk` to shared memory.
    Bulk(Box<BulkCopy>),
    /// `cp.async.bulk.prefetch.L2`.
    BulkPrefetch(Box<(Address, u32)>),
    /// `cp.async`.
    Copy(Box<ThreadCopy>),
    /// `cp.async.commit_group`.
    CopyCommit,
    /// `cp.async.wait_group`. `cp.async.wait_all` keeps no group.
    CopyWait {
        keep: Option<u32>,
    },
    /// `cp.async.mbarrier.arrive`. The flag is set without `.noinc`: the phase then expects one
    /// more arrival.
    CopyArrives(Box<(InstructionSpace, Address, bool)>),
    /// `ldmatrix`.
    LoadMatrix(Box<LoadMatrix>),
    /// `setmaxnreg`.
    SetMaxRegisters {
        count: u32,
    },
    Clock {
        d: u32,
        part: ClockPart,
    },
    /// `mov.v2` and `mov.v4`.
    Copies(Box<[RegisterCopy]>),
    LoadParam(Box<LoadParam>),
    Load(Box<Transfer>),
    Store(Box<Transfer>),
    /// `discard`, as two accesses.
    Discard(Box<[Transfer; 2]>),
    Atomic(Box<Atomic>),
    /// Atomics on the elements of a vector, with the size of the vector in bytes.
    Atomics(Box<(u32, Vec<Atomic>)>),
    /// `cvta` for a window of the generic address space, whose base is added or subtracted.
    Window {
        d: u32,
        a: u32,
        window: Window,
        to: bool,
    },
    /// `isspacep`. The generic space stands for the parameters.
    IsSpace {
        d: u32,
        a: u32,
        space: InstructionSpace,
    },
    Fence(FenceInstruction),
    Barrier(Box<Barrier>),
    Exchange(Exchange),
    ActiveMask {
        d: u32,
    },
}

/// `fence` and `membar`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FenceInstruction {
    pub(crate) acquires: bool,
    pub(crate) releases: bool,
    pub(crate) scope: MemoryScope,
}

/// A block barrier.
#[derive(Clone, Debug)]
pub(crate) struct Barrier {
    pub(crate) kind: BarrierKind,
    /// The slot of the barrier number.
    pub(crate) id: u32,
    /// The slot of the thread count.
    pub(crate) count: Option<u32>,
    /// Whether all threads of a warp must execute the same instruction together.
    pub(crate) aligned: bool,
}

/// The variant of a barrier instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    /// A count of the threads whose predicate is true.
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

impl Op {
    /// Returns true if lanes may have to meet before they execute the operation together.
    fn gathers(&self) -> bool {
        !matches!(
            self,
            Op::Alu(..)
                | Op::SetP(_)
                | Op::Set { .. }
                | Op::Logic { .. }
                | Op::Branch { .. }
                | Op::Load(_)
                | Op::Store(_)
                | Op::LoadParam(_)
        )
    }

    /// Returns true if the operation may have an effect that other threads can see. Loads, stores,
    /// atomics and barriers report their effects themselves, and control flow has none.
    fn acts(&self) -> bool {
        self.gathers()
            && !matches!(
                self,
                Op::Exit
                    | Op::Call(_)
                    | Op::Return
                    | Op::Barrier(_)
                    | Op::MbarrierWait(_)
                    | Op::Sleep
                    | Op::ClusterWait { .. }
                    | Op::SetMaxRegisters { .. }
                    | Op::BranchIndexed { .. }
                    | Op::Atomic(_)
                    | Op::Atomics(_)
                    | Op::Exchange(_)
                    | Op::Fence(_)
                    | Op::ActiveMask { .. }
                    | Op::Window { .. }
                    | Op::IsSpace { .. }
                    | Op::Clock { .. }
                    | Op::Copies(_)
                    | Op::SetPairP { .. }
                    | Op::SetPair { .. }
                    | Op::Video(_)
                    | Op::Nothing
                    | Op::Mma(_)
                    | Op::LoadMatrix(_)
                    | Op::MoveMatrix { .. }
                    | Op::Product(_)
                    | Op::LoadFragment(_)
                    | Op::MapAddress { .. }
                    | Op::Image(_)
            )
    }
}

/// An exchange of values between the lanes of a warp, or a barrier of them. Its lanes are named by
/// the mask in a register.
#[derive(Clone, Debug)]
pub(crate) enum Exchange {
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
    Elect {
        d: Option<u32>,
        p: u32,
        mask: u32,
    },
}

impl Exchange {
    /// Returns the register of the mask.
    pub(crate) fn mask_register(&self) -> u32 {
        match self {
            Exchange::Shuffle(s) => s.mask,
            Exchange::WarpBarrier { mask }
            | Exchange::Vote { mask, .. }
            | Exchange::Match { mask, .. }
            | Exchange::Redux { mask, .. }
            | Exchange::Elect { mask, .. } => *mask,
        }
    }
}

/// `shfl.sync` and `shfl`.
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

/// The direction of a shuffle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Bfly,
    Idx,
}

/// The result of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uni,
    Ballot,
}

/// A function that compares two registers and returns the lanes in which the comparison holds.
pub(crate) type Comparison = fn(&Regs, u32, u32, u32) -> Result<u32, Undefined>;

/// A comparison combined with a predicate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Test {
    pub(crate) compare: Comparison,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) with: Option<(Combine, PredSource)>,
}

/// Comparisons of the low and the high halves of two registers, each combined with a predicate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairTest {
    /// The outcomes for which the comparison holds. The bits, starting at bit 0, stand for less,
    /// equal, greater and unordered.
    pub(crate) outcomes: u8,
    /// The conversion of a half to `f32` for the comparison.
    pub(crate) wide: fn(u16) -> f32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) with: Option<(Combine, PredSource)>,
}

/// `setp`: the destinations of the comparison and of its negation, each combined with a predicate.
#[derive(Clone, Debug)]
pub(crate) struct SetP {
    pub(crate) test: Test,
    pub(crate) p: Option<u32>,
    pub(crate) q: Option<u32>,
}

/// The logic operation that combines a comparison with a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    And,
    Or,
    Xor,
}

impl KernelCode {
    /// Returns true if an uninitialized register may come from a fetch of a missing channel.
    pub(crate) fn fetches_to(&self, u: Undefined) -> bool {
        let fetches = |op: &Op| matches!(op, Op::Image(of) if of.fetches_to(u.slot));
        u.bank == Bank::W32 && self.ops.iter().any(|step| fetches(&step.op))
    }
}
