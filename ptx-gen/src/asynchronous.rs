//! Asynchronous copies, mbarriers that count their bytes, and overlapping kernels.

use crate::build::{Builder, Pred, Src, U64};
use crate::elem::Elem;
use crate::ir::Operand;
use crate::isa;
use crate::mem::{Ptr, ReadOnly, Shared, Space};
use crate::ty::Kind;

/// An mbarrier in shared memory: a barrier that counts arrivals and copied bytes.
///
/// An mbarrier runs through phases. A phase ends when the expected number of threads has arrived
/// and all expected bytes have been copied. A waiting thread names the phase by its parity: 0 for
/// the first phase, 1 for the second, then 0 again.
///
/// # Example: wait for a bulk copy
/// ```
/// # use ptx_gen::prelude::*;
/// # let ptx = ptx_gen::example(|k, a| {
/// let staged = k.shared::<f32>("staged", 128);
/// let landed = k.shared::<u64>("landed", 1).mbarrier();
/// k.when(k.tid().eq(0), || {
///     landed.init(1);
///     k.fence_mbarriers();
///     landed.arrive_expect(512);
///     a.w.bulk_copy(staged, 512, landed, k.evict_first());
/// });
/// // The barrier publishes the initialized mbarrier to the block.
/// k.barrier();
/// landed.wait(0);
/// a.x.at(k.tid()).st(staged.at(k.tid()).ld());
/// # })?;
/// assert!(ptx.contains("mbarrier.init.shared.b64"));
/// assert!(ptx.contains("mbarrier.arrive.expect_tx.shared::cta.b64 _,"));
/// assert!(ptx.contains("mbarrier.try_wait"));
/// # Ok::<(), ptx_gen::Errors>(())
/// ```
#[derive(Clone, Copy)]
pub struct Mbarrier<'k>(Ptr<'k, u64, Shared>);

impl<'k> Ptr<'k, u64, Shared> {
    /// Returns the 8 bytes at this address as an mbarrier. No instruction is emitted.
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

    /// Initializes the mbarrier: each phase ends after `count` arrivals and all expected bytes
    /// (`mbarrier.init`). Needs sm_80.
    ///
    /// Exactly one thread must execute it. Other threads may use the mbarrier after a barrier of
    /// the block, and copies may use it after [`Builder::fence_mbarriers`].
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

    /// Arrives without waiting (`mbarrier.arrive`). Needs sm_80.
    ///
    /// The arrival publishes the earlier writes of this thread to the threads that wait for the
    /// phase.
    #[track_caller]
    pub fn arrive(self) {
        self.0
            .k
            .inst(&isa::MBAR_ARRIVE, Kind::U32, None, [], [self.0.addr()])
    }

    /// Arrives and adds `bytes` to the bytes that the phase waits for
    /// (`mbarrier.arrive.expect_tx`). Needs sm_90.
    ///
    /// `bytes` must be a multiple of 16.
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

    /// Arrives when all earlier [`copy16`](Ptr::copy16) copies of this thread have completed
    /// (`cp.async.mbarrier.arrive.noinc`). Needs sm_80.
    #[track_caller]
    pub fn arrive_copied(self) {
        self.0
            .k
            .inst(&isa::CP_ASYNC_ARRIVE, Kind::U32, None, [], [self.0.addr()])
    }

    /// Waits until the phase with this parity has ended (`mbarrier.try_wait` in a loop). Needs
    /// sm_90.
    ///
    /// Afterwards the thread sees the writes that arrivals published and the data of the copies.
    /// The parity identifies only the last two phases: a thread that is two phases late waits for
    /// the wrong phase.
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

    /// Waits until the phase with this parity has ended, and acquires writes of the whole cluster
    /// (`mbarrier.try_wait.acquire.cluster` in a loop). Needs sm_90.
    ///
    /// In addition to the guarantees of [`wait`](Mbarrier::wait), the thread sees the writes that
    /// threads of other blocks [published](Mbarrier::publish_to_block).
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

    /// Waits until the phase with this parity has ended (`mbarrier.test_wait` in a loop). Needs
    /// sm_80.
    ///
    /// On sm_90 and newer, prefer [`wait`](Mbarrier::wait), which suspends the thread.
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
    /// Copies `bytes` bytes to shared memory asynchronously (`cp.async.bulk` with a cache policy).
    /// Needs sm_90.
    ///
    /// One thread issues the copy. `landed` counts the bytes as they arrive, and must expect them
    /// ([`arrive_expect`](Mbarrier::arrive_expect)). `bytes` and both addresses must be multiples
    /// of 16. [`evict_first`](Builder::evict_first) and [`evict_last`](Builder::evict_last) return
    /// policies. See [`Mbarrier`] for an example.
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

    /// Prefetches `bytes` bytes from this address into the L2 cache
    /// (`cp.async.bulk.prefetch.L2.global`). Needs sm_90.
    ///
    /// `bytes` and the address must be multiples of 16.
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
    /// Copies 16 bytes to shared memory asynchronously, without the L1 cache (`cp.async.cg`). Needs
    /// sm_80.
    ///
    /// Both addresses must be multiples of 16. Wait for the copy with
    /// [`commit_copies`](Builder::commit_copies) and [`wait_copies`](Builder::wait_copies), or with
    /// an mbarrier and [`arrive_copied`](Mbarrier::arrive_copied).
    ///
    /// # Example
    /// ```
    /// # use ptx_gen::prelude::*;
    /// # let ptx = ptx_gen::example(|k, a| {
    /// let staged = k.shared::<f32>("staged", 512);
    /// let first = k.tid() * 4;
    /// a.w.at(first).copy16(staged.at(first));
    /// k.commit_copies();
    /// k.wait_copies(0);
    /// // The wait covers the copies of this thread, the barrier those of the other threads.
    /// k.barrier();
    /// a.x.at(k.tid()).st(staged.at(511 - k.tid()).ld());
    /// # })?;
    /// assert!(ptx.contains("cp.async.cg.shared.global"));
    /// assert!(ptx.contains("cp.async.wait_group 0;"));
    /// # Ok::<(), ptx_gen::Errors>(())
    /// ```
    #[track_caller]
    pub fn copy16(self, to: Ptr<'k, T, Shared>) {
        let src = [to.addr(), self.addr(), crate::build::lit(16)];
        self.k.inst(&isa::CP_ASYNC_CG, Kind::U32, None, [], src)
    }
}

impl<'k> Builder<'k> {
    /// Makes mbarriers that this thread initialized visible to copies (`fence.mbarrier_init` and
    /// `fence.proxy.async`). Needs sm_90.
    ///
    /// The fence also orders the thread's accesses to shared memory before later asynchronous
    /// copies.
    #[track_caller]
    pub fn fence_mbarriers(self) {
        self.inst(&isa::FENCE_MBAR_INIT, Kind::U32, None, [], []);
        self.inst(&isa::FENCE_ASYNC, Kind::U32, None, [], []);
    }

    /// Returns a cache policy for data that is read once: its lines leave the L2 cache first
    /// (`createpolicy.fractional.L2::evict_first`). Needs sm_80.
    #[track_caller]
    pub fn evict_first(self) -> U64<'k> {
        let policy = self.fresh::<u64>();
        self.inst(&isa::POLICY_FIRST, Kind::U32, None, [policy.reg], []);
        policy
    }

    /// Returns a cache policy for data that is read often: its lines leave the L2 cache last
    /// (`createpolicy.fractional.L2::evict_last`). Needs sm_80.
    #[track_caller]
    pub fn evict_last(self) -> U64<'k> {
        let policy = self.fresh::<u64>();
        self.inst(&isa::POLICY_LAST, Kind::U32, None, [policy.reg], []);
        policy
    }

    /// Groups the [`copy16`](Ptr::copy16) copies of this thread since the last group
    /// (`cp.async.commit_group`). Needs sm_80.
    #[track_caller]
    pub fn commit_copies(self) {
        self.inst(&isa::CP_ASYNC_COMMIT, Kind::U32, None, [], [])
    }

    /// Waits until at most `groups` of the latest groups of copies of this thread are in flight
    /// (`cp.async.wait_group`). Needs sm_80.
    ///
    /// With `wait_copies(1)` a kernel can use one stage while the next is being copied.
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

    /// Allows the next kernel to start before this one ends (`griddepcontrol.launch_dependents`).
    /// Needs sm_90.
    ///
    /// The next kernel starts when every block has called this or ended. The call does not publish
    /// any writes, so the next kernel must call [`grid_wait`](Builder::grid_wait) before it reads
    /// results. Without a programmatic dependency between the launches, the call has no effect.
    #[track_caller]
    pub fn grid_trigger(self) {
        self.inst(&isa::GRID_TRIGGER, Kind::U32, None, [], [])
    }

    /// Waits until the kernels before this one are complete and their writes are visible
    /// (`griddepcontrol.wait`). Needs sm_90.
    ///
    /// Before this call, read only memory that no kernel writes. Every block must execute it, so
    /// validation rejects it inside a branch.
    #[track_caller]
    pub fn grid_wait(self) {
        self.inst(&isa::GRID_WAIT, Kind::U32, None, [], [])
    }

    /// Waits until `threads` threads have arrived at barrier `id`, which is 1 to 15 (`bar.sync id,
    /// threads`).
    ///
    /// `threads` must be a multiple of 32, because whole warps arrive. The barrier orders memory
    /// like [`barrier`](Builder::barrier). Use it if some warps of a block do different work.
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

    /// Arrives at barrier `id` of `threads` threads without waiting (`bar.arrive`).
    ///
    /// The whole warp must execute it. It publishes the earlier writes of the warp to the threads
    /// that wait.
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

    /// Returns a predicate that holds in exactly one lane of the warp, always the same
    /// (`elect.sync`). Needs sm_90.
    ///
    /// The whole warp must execute it.
    #[track_caller]
    pub fn elect(self) -> Pred<'k> {
        self.emit(&isa::ELECT, Kind::U32, [crate::build::full_mask()])
    }

    /// Increases the registers of each thread of the warpgroup to `n` (`setmaxnreg.inc`). Needs
    /// sm_90a.
    ///
    /// `n` must be a multiple of 8 from 24 to 256. The call waits until the registers are
    /// available. Prefer [`roles`](Builder::roles), which checks the totals.
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

    /// Reduces the registers of each thread of the warpgroup to `n` (`setmaxnreg.dec`). Needs
    /// sm_90a.
    ///
    /// `n` must be a multiple of 8 from 24 to 256. Prefer [`roles`](Builder::roles), which checks
    /// the totals.
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
