//! The ring of stages in shared memory, and a position in it.

use super::layout::{EMPTY, FULL};
use ptx_gen::*;

/// The ring and its mbarriers: each stage has one that completes when its tiles have landed, and one that completes when
/// they have been read.
pub(super) struct Ring<'k> {
    /// The start of the block's shared memory, where the mbarriers are.
    pub(super) base: Ptr<'k, u8, Shared>,
    pub(super) stages: Ptr<'k, u8, Shared>,
    /// Bytes of a stage.
    pub(super) size: u32,
    pub(super) count: U32<'k>,
}

impl<'k> Ring<'k> {
    pub(super) fn full(&self, slot: impl Src<'k, u32>) -> Mbarrier<'k> {
        self.base.at(FULL).row(slot, 8).cast::<u64>().mbarrier()
    }

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
    pub(super) fn new(k: Builder<'k>) -> Self {
        RingCursor {
            slot: k.var(0),
            phase: k.var(0),
        }
    }

    pub(super) fn at(k: Builder<'k>, slot: U32<'k>) -> Self {
        RingCursor {
            slot: k.var(slot),
            phase: k.var(0),
        }
    }

    /// Advances by `by` stages; the number of stages is a multiple of `by`.
    pub(super) fn step(&mut self, k: Builder<'k>, by: u32, count: U32<'k>) {
        self.slot += by;
        k.when(self.slot.get().ge(count), || {
            self.slot -= count;
            self.phase ^= 1;
        });
    }
}
