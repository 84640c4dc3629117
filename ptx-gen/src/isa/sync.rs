//! Barriers and fences.

use super::op::*;

#[rustfmt::skip] // one row a line
table! {
    /// Barriers and fences.
    SYNCHRONIZATION, "Parallel Synchronization and Communication Instructions";
    BAR_SYNC      = op("bar.sync",          &[], form(&[], &[Lit(0, 15)]), Effect::Barrier, "wait until every thread of the block has arrived; orders memory").together(Level::Block);
    BAR_PART      = op("bar.sync",          &[], form(&[], &[Lit(0, 15), Threads]), Effect::Barrier, "wait until b threads, whole warps, have arrived at barrier a; orders memory").together(Level::Warp);
    BAR_ARRIVE    = op("bar.arrive",        &[], form(&[], &[Lit(0, 15), Threads]), Effect::Barrier, "arrive at barrier a of b threads without waiting; orders memory").together(Level::Warp);
    BAR_WARP_SYNC = op("bar.warp.sync",     &[], form(&[], &[Is(U32)]), Effect::Barrier, "wait until every lane of the mask has arrived; orders memory").together(Level::Warp);
    CLUSTER_ARRIVE = op("barrier.cluster.arrive.release.aligned", &[], NULLARY, Effect::Barrier, "arrive at the cluster's barrier and publish the earlier writes of this thread").needs(90, 8, 0).together(Level::Warp);
    CLUSTER_ARRIVE_RELAXED = op("barrier.cluster.arrive.relaxed.aligned", &[], NULLARY, Effect::Barrier, "arrive at the cluster's barrier without ordering memory").needs(90, 8, 0).together(Level::Warp);
    CLUSTER_WAIT  = op("barrier.cluster.wait.acquire.aligned", &[], NULLARY, Effect::Barrier, "wait until every thread of the cluster has arrived; acquires their writes").needs(90, 8, 0).together(Level::Warp);
    FENCE_CTA     = op("fence.acq_rel.cta", &[], NULLARY, Effect::Fence, "order this thread's memory accesses for its block").needs(70, 6, 0);
    FENCE_GPU     = op("fence.acq_rel.gpu", &[], NULLARY, Effect::Fence, "order this thread's memory accesses for the device").needs(70, 6, 0);
}
