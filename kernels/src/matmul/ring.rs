//! Rings of stages in shared memory, which some warps fill and others read.

use ptx_gen::*;

/// Stages in shared memory, each with a barrier that says it is full, and one that says it is empty.
pub(super) struct Ring<'k> {
    pub(super) barriers: Ptr<'k, u8, Shared>,
    pub(super) first: Ptr<'k, u8, Shared>,
    pub(super) size: u32,
    pub(super) count: u32,
}

impl<'k> Ring<'k> {
    /// A thread: `arrivals` say that a stage is empty.
    pub(super) fn init(&self, arrivals: u32) {
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

    pub(super) fn full(&self, at: &Cursor<'k>) -> Mbarrier<'k> {
        self.barriers.row(&at.stage, 16).cast::<u64>().mbarrier()
    }

    pub(super) fn empty(&self, at: &Cursor<'k>) -> Mbarrier<'k> {
        self.barriers
            .row(&at.stage, 16)
            .at(8)
            .cast::<u64>()
            .mbarrier()
    }

    /// Says that this warp has read a stage.
    pub(super) fn give_back(&self, stage: &Var<'k, u32>) {
        self.barriers
            .row(stage, 16)
            .at(8)
            .cast::<u64>()
            .mbarrier()
            .arrive();
    }

    /// A warp: fills the next stage, `count` parts of `bytes` bytes, each by the lane of its number.
    pub(super) fn fill(
        &self,
        k: Builder<'k>,
        at: &mut Cursor<'k>,
        (count, bytes): (u32, u32),
        copy: impl FnOnce(Ptr<'k, u8, Shared>, Mbarrier<'k>),
    ) {
        self.empty(at).wait(at.parity.get() ^ 1);
        let full = self.full(at);
        k.when(k.lane().eq(0), || full.arrive_expect(count * bytes));
        k.warp_barrier();
        k.when(k.lane().lt(count), || {
            copy(self.stage(at).row(k.lane(), bytes), full)
        });
        self.step(k, at);
    }

    pub(super) fn stage(&self, at: &Cursor<'k>) -> Ptr<'k, u8, Shared> {
        self.first.row(&at.stage, self.size)
    }

    pub(super) fn step(&self, k: Builder<'k>, at: &mut Cursor<'k>) {
        at.stage += 1;
        k.when(at.stage.get().ge(self.count), || {
            at.stage.set(0);
            at.parity ^= 1;
        });
    }
}

/// A position in a ring: a stage, and the parity of its phase.
pub(super) struct Cursor<'k> {
    pub(super) stage: Var<'k, u32>,
    pub(super) parity: Var<'k, u32>,
}

impl<'k> Cursor<'k> {
    pub(super) fn new(k: Builder<'k>) -> Self {
        Cursor {
            stage: k.var(0),
            parity: k.var(0),
        }
    }
}
