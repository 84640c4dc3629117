//! Rings of stages in shared memory, which some warps fill and others read.

use ptx_gen::*;

/// A ring of stages. Each stage has a full barrier and an empty barrier.
pub(crate) struct Ring<'k> {
    pub(crate) barriers: Ptr<'k, u8, Shared>,
    pub(crate) first: Ptr<'k, u8, Shared>,
    pub(crate) size: u32,
    pub(crate) count: u32,
}

impl<'k> Ring<'k> {
    /// Initializes the barriers, in one thread. A stage is empty after `arrivals` arrivals.
    pub(crate) fn init(&self, arrivals: u32) {
        for stage in 0..self.count {
            self.barriers
                .at(16 * stage)
                .cast::<u64>()
                .mbarrier()
                .init(1);
            self.barriers
                .at(16 * stage + 8)
                .cast::<u64>()
                .mbarrier()
                .init(arrivals);
        }
    }

    /// Returns the full barrier of a stage.
    pub(crate) fn full(&self, at: &Cursor<'k>) -> Mbarrier<'k> {
        self.barriers.row(&at.stage, 16).cast::<u64>().mbarrier()
    }

    /// Returns the empty barrier of a stage.
    pub(crate) fn empty(&self, at: &Cursor<'k>) -> Mbarrier<'k> {
        self.barriers
            .row(&at.stage, 16)
            .at(8)
            .cast::<u64>()
            .mbarrier()
    }

    /// Arrives at the empty barrier of a stage that this warp has read.
    pub(crate) fn release(&self, stage: &Var<'k, u32>) {
        self.barriers
            .row(stage, 16)
            .at(8)
            .cast::<u64>()
            .mbarrier()
            .arrive();
    }

    /// Fills the next stage with `count` copies of `bytes` bytes. Lane `i` issues copy `i`. The
    /// whole warp must call it.
    pub(crate) fn fill(
        &self,
        k: Builder<'k>,
        at: &mut Cursor<'k>,
        count: u32,
        bytes: u32,
        copy: impl FnOnce(Ptr<'k, u8, Shared>, Mbarrier<'k>),
    ) {
        // In the first pass, the phase before the first one counts as complete.
        self.empty(at).wait(at.parity.get() ^ 1);
        let full = self.full(at);
        k.when(k.lane().eq(0), || full.arrive_expect(count * bytes));

        // No copy may complete before the barrier expects its bytes.
        k.warp_barrier();
        k.when(k.lane().lt(count), || {
            copy(self.stage(at).row(k.lane(), bytes), full)
        });
        self.step(k, at);
    }

    /// Returns the address of a stage.
    pub(crate) fn stage(&self, at: &Cursor<'k>) -> Ptr<'k, u8, Shared> {
        self.first.row(&at.stage, self.size)
    }

    /// Advances to the next stage.
    pub(crate) fn step(&self, k: Builder<'k>, at: &mut Cursor<'k>) {
        at.stage += 1;
        k.when(at.stage.get().ge(self.count), || {
            at.stage.set(0);
            at.parity ^= 1;
        });
    }
}

/// A position in a ring: a stage, and the parity of its phase.
pub(crate) struct Cursor<'k> {
    pub(crate) stage: Var<'k, u32>,
    pub(crate) parity: Var<'k, u32>,
}

impl<'k> Cursor<'k> {
    /// Returns the position of the first stage.
    pub(crate) fn new(k: Builder<'k>) -> Self {
        Cursor {
            stage: k.var(0),
            parity: k.var(0),
        }
    }
}
