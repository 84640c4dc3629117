//! The ring of stages in shared memory, and a position in it.

use super::layout::{EMPTY, FULL};
use ptx_gen::*;

/// The ring of stages. Each stage has two mbarriers: the full barrier completes when its tiles have
/// arrived, and the empty barrier when they have been read.
pub(super) struct Ring<'k> {
    /// The start of the block's shared memory, where the mbarriers are.
    pub(super) base: Ptr<'k, u8, Shared>,
    pub(super) stages: Ptr<'k, u8, Shared>,
    /// The bytes of a stage.
    pub(super) size: u32,
    pub(super) count: U32<'k>,
}

impl<'k> Ring<'k> {
    /// Returns the full barrier of a stage.
    pub(super) fn full(&self, slot: impl Src<'k, u32>) -> Mbarrier<'k> {
        self.base.at(FULL).row(slot, 8).cast::<u64>().mbarrier()
    }

    /// Returns the empty barrier of a stage.
    pub(super) fn empty(&self, slot: impl Src<'k, u32>) -> Mbarrier<'k> {
        self.base.at(EMPTY).row(slot, 8).cast::<u64>().mbarrier()
    }
}

/// A position in the ring: a stage, and the parity of its phase.
pub(super) struct RingCursor<'k> {
    pub(super) slot: Var<'k, u32>,
    pub(super) phase: Var<'k, u32>,
}

impl<'k> RingCursor<'k> {
    /// Returns the position of the first stage.
    pub(super) fn new(k: Builder<'k>) -> Self {
        RingCursor {
            slot: k.var(0),
            phase: k.var(0),
        }
    }

    /// Returns the position of stage `slot` in the first pass.
    pub(super) fn at(k: Builder<'k>, slot: U32<'k>) -> Self {
        RingCursor {
            slot: k.var(slot),
            phase: k.var(0),
        }
    }

    /// Advances by `by` stages. The number of stages must be a multiple of `by`.
    pub(super) fn step(&mut self, k: Builder<'k>, by: u32, count: U32<'k>) {
        self.slot += by;
        k.when(self.slot.get().ge(count), || {
            self.slot -= count;
            self.phase ^= 1;
        });
    }
}
