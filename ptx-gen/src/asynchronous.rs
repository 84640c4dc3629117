//! Asynchronous copies, the barriers that count their bytes, and kernels that overlap.

use crate::build::{Builder, Pred, Src, U64};
use crate::elem::Elem;
use crate::ir::Operand;
use crate::isa;
use crate::mem::{Ptr, ReadOnly, Shared, Space};
use crate::ty::Kind;

/// An mbarrier: counts arrivals and bytes, phase by phase. Phases are told apart by their parity, 0 first.
#[derive(Clone, Copy)]
pub struct Mbarrier<'k>(Ptr<'k, u64, Shared>);

impl<'k> Ptr<'k, u64, Shared> {
    /// The 8 bytes here, as an mbarrier.
    pub fn mbarrier(self) -> Mbarrier<'k> {
        Mbarrier(self)
    }
}

impl<'k> Mbarrier<'k> {
    pub(crate) fn ptr(self) -> Ptr<'k, u64, Shared> {
        self.0
    }

    pub(crate) fn address(self) -> Operand {
        self.0.addr()
    }

    /// Makes the barrier: each phase ends when `count` have arrived and all bytes expected have landed.
    ///
    /// By one thread. Others may use it after a barrier of the block, copies after [`Builder::fence_mbarriers`].
    #[track_caller]
    pub fn init(self, count: impl Src<'k, u32>) {
        self.0.k.inst(
            &isa::MBAR_INIT,
            Kind::U32,
            None,
            [],
            [self.0.addr(), count.operand()],
        )
    }

    /// Arrives, and publishes what this thread wrote to those who wait.
    #[track_caller]
    pub fn arrive(self) {
        self.0
            .k
            .inst(&isa::MBAR_ARRIVE, Kind::U32, None, [], [self.0.addr()])
    }

    /// Arrives, and lets the phase wait for `bytes` more bytes, a multiple of 16. sm_90.
    #[track_caller]
    pub fn arrive_expect(self, bytes: impl Src<'k, u32>) {
        self.0.k.inst(
            &isa::MBAR_EXPECT,
            Kind::U32,
            None,
            [],
            [self.0.addr(), bytes.operand()],
        )
    }

    /// Arrives when the [`copy16`](Ptr::copy16)s of this thread so far have landed.
    #[track_caller]
    pub fn arrive_copied(self) {
        self.0
            .k
            .inst(&isa::CP_ASYNC_ARRIVE, Kind::U32, None, [], [self.0.addr()])
    }

    /// Waits until the phase of this parity has ended; sees what arrivals published and copies brought. sm_90.
    ///
    /// A wait that is two phases late is indistinguishable from one in time.
    #[track_caller]
    pub fn wait(self, parity: impl Src<'k, u32>) {
        let parity = parity.operand();
        self.0.k.repeat(
            || {
                self.0
                    .k
                    .emit(&isa::MBAR_TRY, Kind::U32, [self.0.addr(), parity])
            },
            || {},
        )
    }

    /// The same; sees, too, what threads of other blocks of the cluster wrote before they
    /// [published](Mbarrier::publish_to_block) it.
    #[track_caller]
    pub fn wait_for_cluster(self, parity: impl Src<'k, u32>) {
        let parity = parity.operand();
        self.0.k.repeat(
            || {
                self.0
                    .k
                    .emit(&isa::MBAR_TRY_CLUSTER, Kind::U32, [self.0.addr(), parity])
            },
            || {},
        )
    }

    /// [`wait`](Mbarrier::wait) by asking again and again, for devices older than sm_90.
    #[track_caller]
    pub fn wait_polling(self, parity: impl Src<'k, u32>) {
        let parity = parity.operand();
        self.0.k.repeat(
            || {
                self.0
                    .k
                    .emit(&isa::MBAR_TEST, Kind::U32, [self.0.addr(), parity])
            },
            || {},
        )
    }
}

impl<'k, T: Elem> Ptr<'k, T, ReadOnly> {
    /// Copies `bytes` bytes, a multiple of 16, to shared memory; `landed` counts them as they arrive. Both
    /// addresses are multiples of 16. One thread asks for all. sm_90.
    #[track_caller]
    pub fn bulk_copy(
        self,
        to: Ptr<'k, T, Shared>,
        bytes: impl Src<'k, u32>,
        landed: Mbarrier<'k>,
        policy: U64<'k>,
    ) {
        let src = [
            to.addr(),
            self.addr(),
            bytes.operand(),
            landed.0.addr(),
            Operand::Reg(policy.reg),
        ];
        self.k.inst(&isa::BULK_COPY_HINT, Kind::U32, None, [], src)
    }

    /// Brings `bytes` bytes from here on, a multiple of 16, into the L2 cache. sm_90.
    #[track_caller]
    pub fn bulk_prefetch_l2(self, bytes: impl Src<'k, u32>) {
        self.k.inst(
            &isa::BULK_PREFETCH,
            Kind::U32,
            None,
            [],
            [self.addr(), bytes.operand()],
        )
    }
}

impl<'k, T: Elem, A: Space> Ptr<'k, T, A> {
    /// Copies 16 bytes to shared memory, past the L1 cache, asynchronously. sm_80.
    #[track_caller]
    pub fn copy16(self, to: Ptr<'k, T, Shared>) {
        let src = [to.addr(), self.addr(), crate::build::lit(16)];
        self.k.inst(&isa::CP_ASYNC_CG, Kind::U32, None, [], src)
    }
}

impl<'k> Builder<'k> {
    /// Lets copies see the mbarriers that this thread made, and orders its accesses to shared memory with theirs.
    /// sm_90.
    #[track_caller]
    pub fn fence_mbarriers(self) {
        self.inst(&isa::FENCE_MBAR_INIT, Kind::U32, None, [], []);
        self.inst(&isa::FENCE_ASYNC, Kind::U32, None, [], []);
    }

    /// The cache policy of what is read once: it leaves the L2 cache first. sm_80.
    #[track_caller]
    pub fn evict_first(self) -> U64<'k> {
        let policy = self.fresh::<u64>();
        self.inst(&isa::POLICY_FIRST, Kind::U32, None, [policy.reg], []);
        policy
    }

    /// The cache policy of what is read again and again: it leaves the L2 cache last. sm_80.
    #[track_caller]
    pub fn evict_last(self) -> U64<'k> {
        let policy = self.fresh::<u64>();
        self.inst(&isa::POLICY_LAST, Kind::U32, None, [policy.reg], []);
        policy
    }

    /// Makes the [`copy16`](Ptr::copy16)s of this thread since the last group a group.
    #[track_caller]
    pub fn commit_copies(self) {
        self.inst(&isa::CP_ASYNC_COMMIT, Kind::U32, None, [], [])
    }

    /// Waits until at most `groups` of this thread's latest groups of copies are under way.
    #[track_caller]
    pub fn wait_copies(self, groups: u32) {
        self.inst(
            &isa::CP_ASYNC_WAIT,
            Kind::U32,
            None,
            [],
            [crate::build::lit(groups)],
        )
    }

    /// Lets the kernel after this one start, once every block has said so or ended. It publishes nothing: the
    /// other must still [`grid_wait`](Builder::grid_wait). Without a programmatic edge it does nothing. sm_90.
    #[track_caller]
    pub fn grid_trigger(self) {
        self.inst(&isa::GRID_TRIGGER, Kind::U32, None, [], [])
    }

    /// Waits until the kernels before this one are complete and what they wrote is visible. Before it, read only
    /// what no kernel writes. sm_90.
    #[track_caller]
    pub fn grid_wait(self) {
        self.inst(&isa::GRID_WAIT, Kind::U32, None, [], [])
    }

    /// Waits until `threads` threads, whole warps of the block, are at barrier `id`, 1 to 15; orders memory.
    #[track_caller]
    pub fn barrier_part(self, id: u32, threads: impl Src<'k, u32>) {
        self.inst(
            &isa::BAR_PART,
            Kind::U32,
            None,
            [],
            [crate::build::lit(id), threads.operand()],
        )
    }

    /// Counts this warp towards barrier `id` of `threads` threads without waiting; publishes what it wrote.
    #[track_caller]
    pub fn barrier_arrive(self, id: u32, threads: impl Src<'k, u32>) {
        self.inst(
            &isa::BAR_ARRIVE,
            Kind::U32,
            None,
            [],
            [crate::build::lit(id), threads.operand()],
        )
    }

    /// One lane of the warp, always the same. Whole warp. sm_90.
    #[track_caller]
    pub fn elect(self) -> Pred<'k> {
        self.emit(&isa::ELECT, Kind::U32, [crate::build::full_mask()])
    }

    /// Takes registers until each thread of these four warps has `n`, a multiple of 8. sm_90a.
    #[track_caller]
    pub fn take_registers(self, n: u32) {
        self.inst(
            &isa::SETMAXNREG_INC,
            Kind::U32,
            None,
            [],
            [crate::build::lit(n)],
        )
    }

    /// Gives registers back until each thread of these four warps has `n`, a multiple of 8. sm_90a.
    #[track_caller]
    pub fn give_registers(self, n: u32) {
        self.inst(
            &isa::SETMAXNREG_DEC,
            Kind::U32,
            None,
            [],
            [crate::build::lit(n)],
        )
    }
}
