//! Asynchronous copies, and the mbarriers that report their completion.

use super::op::*;

/// The operands of an arrival without a result: the template ends in the sink `_`.
const ARRIVE: Form = form(&[], &[Barrier]);

#[rustfmt::skip] // one row a line
table! {
    /// Asynchronous copies and mbarriers.
    ASYNCHRONOUS, "Asynchronous Copies and mbarrier";
    CP_ASYNC_CA       = op("cp.async.ca.shared.global",  &[], form(&[], &[Shared, Global, Lit(16, 16)]), COPY_IN_GROUP, "copy 16 bytes, through the L1 cache").needs(80, 7, 0);
    CP_ASYNC_CG       = op("cp.async.cg.shared.global",  &[], form(&[], &[Shared, Global, Lit(16, 16)]), COPY_IN_GROUP, "copy 16 bytes, without the L1 cache").needs(80, 7, 0);
    CP_ASYNC_COMMIT   = op("cp.async.commit_group",      &[], NULLARY, Effect::CopyGroup, "group the copies since the last group").needs(80, 7, 0);
    CP_ASYNC_WAIT     = op("cp.async.wait_group",        &[], form(&[], &[Lit(0, 63)]), Effect::CopyGroup, "wait until at most a of this thread's latest groups are in flight").needs(80, 7, 0);
    CP_ASYNC_WAIT_ALL = op("cp.async.wait_all",          &[], NULLARY, Effect::CopyGroup, "wait for all copies of this thread").needs(80, 7, 0);
    CP_ASYNC_ARRIVE   = op("cp.async.mbarrier.arrive.noinc.shared.b64", &[], ARRIVE, MBARRIER_ARRIVE_COPIED, "arrive when the earlier copies of this thread have completed").needs(80, 7, 0);
    MBAR_INIT         = op("mbarrier.init.shared.b64",   &[], form(&[], &[Barrier, Is(U32)]), MBARRIER_INIT, "initialize a barrier whose phases end after b arrivals").needs(80, 7, 0);
    MBAR_INVAL        = op("mbarrier.inval.shared.b64",  &[], ARRIVE, MBARRIER_INVALIDATE, "end the use of the barrier, so that its memory can be reused").needs(80, 7, 0);
    MBAR_ARRIVE       = op("mbarrier.arrive.shared.b64 _,", &[], ARRIVE, MBARRIER_ARRIVE, "arrive and publish the earlier writes of this thread").needs(80, 7, 1);
    MBAR_EXPECT       = op("mbarrier.arrive.expect_tx.shared::cta.b64 _,", &[], form(&[], &[Barrier, Bytes]), MBARRIER_EXPECT, "arrive and add b to the bytes that the phase waits for").needs(90, 8, 0);
    MBAR_TEST         = op("mbarrier.test_wait.parity.shared.b64", &[], form(&[Is(Pred)], &[Barrier, Parity]), MBARRIER_WAIT, "p = the phase of this parity has ended; acquires the writes of arrivals").needs(80, 7, 1);
    MBAR_TRY          = op("mbarrier.try_wait.parity.shared::cta.b64", &[], form(&[Is(Pred)], &[Barrier, Parity]), MBARRIER_WAIT, "p = the phase of this parity has ended, after a limited wait; acquires").needs(90, 7, 8);
    MBAR_TRY_CLUSTER  = op("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64", &[], form(&[Is(Pred)], &[Barrier, Parity]), MBARRIER_WAIT, "p = the phase of this parity has ended, after a limited wait; acquires from the cluster").needs(90, 8, 0);
    FENCE_MBAR_INIT   = op("fence.mbarrier_init.release.cluster", &[], NULLARY, Effect::Fence, "make initialized barriers visible to asynchronous copies").needs(90, 8, 0);
    FENCE_ASYNC       = op("fence.proxy.async.shared::cta", &[], NULLARY, Effect::Fence, "order this thread's accesses to shared memory with those of bulk copies").needs(90, 8, 0);
    FENCE_CLUSTER     = op("fence.proxy.async.shared::cluster", &[], NULLARY, Effect::Fence, "order this thread's accesses to shared memory of the cluster with those of bulk copies").needs(90, 8, 0);
    POLICY_FIRST      = pure("createpolicy.fractional.L2::evict_first.b64", &[], form(&[Policy], &[]), "d = a policy for lines that leave the L2 cache first").needs(80, 7, 4);
    POLICY_LAST       = pure("createpolicy.fractional.L2::evict_last.b64", &[], form(&[Policy], &[]), "d = a policy for lines that leave the L2 cache last").needs(80, 7, 4);
    BULK_COPY         = op("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", &[], form(&[], &[Shared, Global, Bytes, Barrier]), COPY_FOR_MBARRIER, "copy c bytes; the barrier counts them as they arrive").needs(90, 8, 0);
    BULK_COPY_HINT    = op("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint", &[], form(&[], &[Shared, Global, Bytes, Barrier, Policy]), COPY_FOR_MBARRIER, "copy c bytes under a cache policy; the barrier counts them as they arrive").needs(90, 8, 0);
    BULK_PREFETCH     = op("cp.async.bulk.prefetch.L2.global", &[], form(&[], &[Global, Bytes]), PREFETCH, "prefetch b bytes into the L2 cache").needs(90, 8, 0);
    BULK_STORE        = op("cp.async.bulk.global.shared::cta.bulk_group", &[], form(&[], &[Global, Shared, Bytes]), COPY_IN_BULK_GROUP, "copy c bytes out of shared memory").needs(90, 8, 0);
    TENSOR_LOAD       = op("cp.async.bulk.tensor.$nd.shared::cluster.global.mbarrier::complete_tx::bytes", &[], form(&[], &[Shared, Tensor, Barrier]), COPY_FOR_MBARRIER, "copy the map's box from this position; elements outside the tensor are 0").needs(90, 8, 0);
    TENSOR_LOAD_TO    = op("cp.async.bulk.tensor.$nd.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster", &[], form(&[], &[Shared, Tensor, Barrier, Blocks]), COPY_FOR_MBARRIER, "copy the map's box to these blocks, for the mbarrier at the same address in each").needs(90, 8, 0).specific();
    TENSOR_STORE      = op("cp.async.bulk.tensor.$nd.global.shared::cta.bulk_group", &[], form(&[], &[Tensor, Shared]), COPY_IN_BULK_GROUP, "copy the map's box out of shared memory; elements outside the tensor are skipped").needs(90, 8, 0);
    TENSOR_PREFETCH   = op("prefetch.tensormap", &[], form(&[], &[TensorMap]), PREFETCH, "prefetch a tensor map").needs(90, 8, 0);
    BULK_COMMIT       = op("cp.async.bulk.commit_group", &[], NULLARY, Effect::CopyGroup, "group the bulk copies out of shared memory since the last group").needs(90, 8, 0);
    BULK_WAIT         = op("cp.async.bulk.wait_group",   &[], form(&[], &[Lit(0, 63)]), Effect::CopyGroup, "wait until at most a of this thread's latest bulk groups are in flight").needs(90, 8, 0);
    BULK_WAIT_READ    = op("cp.async.bulk.wait_group.read", &[], form(&[], &[Lit(0, 63)]), Effect::CopyGroup, "wait until at most a of the latest bulk groups still read shared memory").needs(90, 8, 0);
    MBAR_ARRIVE_PEER  = op("mbarrier.arrive.shared::cluster.b64 _,", &[], ARRIVE, MBARRIER_ARRIVE, "arrive at a barrier of another block and publish the earlier writes of this thread").needs(90, 8, 0);
    MBAR_PUBLISH_PEER = op("mbarrier.arrive.release.cluster.shared::cluster.b64 _,", &[], ARRIVE, MBARRIER_ARRIVE, "arrive at a barrier of another block and publish earlier writes to the cluster").needs(90, 8, 0);
    GRID_TRIGGER      = op("griddepcontrol.launch_dependents", &[], NULLARY, Effect::Grid(GridStep::Trigger), "allow the next kernel to start once every block has executed this; publishes nothing").needs(90, 7, 8);
    GRID_WAIT         = op("griddepcontrol.wait",        &[], NULLARY, Effect::Grid(GridStep::Wait), "wait until the kernels before are complete and their writes are visible").needs(90, 7, 8);
}
