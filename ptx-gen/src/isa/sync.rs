//! Barriers and fences.

use super::op::*;

#[rustfmt::skip] // one row a line
table! {
    /// Barriers and fences.
    SYNCHRONIZATION, "Parallel Synchronization and Communication Instructions";
    BAR_SYNC      = op("bar.sync",          &[], form(&[], &[Lit(0, 15)]), Effect::Barrier, "wait until every thread of the block is here; orders memory").together(Level::Block);
    BAR_PART      = op("bar.sync",          &[], form(&[], &[Lit(0, 15), Threads]), Effect::Barrier, "wait until b threads, whole warps, are at this barrier; orders memory").together(Level::Warp);
    BAR_ARRIVE    = op("bar.arrive",        &[], form(&[], &[Lit(0, 15), Threads]), Effect::Barrier, "count towards a barrier of b threads without waiting; orders memory").together(Level::Warp);
    BAR_WARP_SYNC = op("bar.warp.sync",     &[], form(&[], &[Is(U32)]), Effect::Barrier, "wait until every lane of the mask is here; orders memory").together(Level::Warp);
    FENCE_CTA     = op("fence.acq_rel.cta", &[], NULLARY, Effect::Fence, "order this thread's memory accesses for its block").needs(70, 6, 0);
    FENCE_GPU     = op("fence.acq_rel.gpu", &[], NULLARY, Effect::Fence, "order this thread's memory accesses for the device").needs(70, 6, 0);
}
