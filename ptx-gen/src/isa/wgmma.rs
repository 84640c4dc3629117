//! Asynchronous matmuls of a warpgroup, which is four warps with 64 rows.
//!
//! The accumulators are registers of the warpgroup. The right matrix is in shared memory, and the
//! left matrix is in shared memory or in registers. An operand in shared memory is a 64-bit
//! descriptor (PTX manual, "Matrix Descriptor Format"), which [`Descriptor`](crate::Descriptor)
//! computes from a [`Tile`](crate::Tile). `$n` is the number of columns, a multiple of 8 up to 256:
//! twice the number of accumulators per lane.
//!
//! The scales of both matrices are fixed to 1. The transpose literals are 1 if the contiguous
//! dimension in shared memory is not the inner one ("MN-major").

use super::op::*;

const MULTIPLY: Effect = Effect::Wgmma(WgmmaStep::Multiply);
/// The left matrix in registers: 16 rows for each warp, as in `mma.sync`.
const LEFT: Slot = Regs(U32, 4);
const ONE: Slot = Lit(1, 1);
const TRANSPOSED: Slot = Lit(0, 1);
const HALVES: &[Kind] = &[F16, Bf16];
const FLOAT8: &[Kind] = &[E4m3, E5m2];
const SUM_BOUND: &str =
    "one step cuts 16 exact products and the sum to 2^-25 of the largest, adds, cuts to 24 bits";
const SUM8_BOUND: &str =
    "one step cuts 32 exact products and the sum to 2^-13 of the largest, adds, cuts to 14 bits";

const SUMS_F32: &[Slot] = &[Accumulators(F32)];
const SUMS_S32: &[Slot] = &[Accumulators(S32)];

const fn row(template: &'static str, types: &'static [Kind], form: Form, doc: &'static str) -> Op {
    op(template, types, form, MULTIPLY, doc)
        .needs(90, 8, 0)
        .specific()
        .together(Level::Warpgroup)
}

#[rustfmt::skip] // one row a line
table! {
    /// Asynchronous matmuls of warpgroups.
    WGMMA, "Asynchronous Warpgroup-Level Matrix Instructions";
    WGMMA_FENCE     = op("wgmma.fence.sync.aligned", &[], NULLARY, Effect::Wgmma(WgmmaStep::Fence), "order earlier uses of registers before later matmuls").needs(90, 8, 0).specific().together(Level::Warpgroup);
    WGMMA_COMMIT    = op("wgmma.commit_group.sync.aligned", &[], NULLARY, Effect::Wgmma(WgmmaStep::Commit), "group the matmuls since the last group").needs(90, 8, 0).specific().together(Level::Warpgroup);
    WGMMA_WAIT      = op("wgmma.wait_group.sync.aligned", &[], form(&[], &[Lit(0, 7)]), Effect::Wgmma(WgmmaStep::Wait), "wait until at most a of the latest groups are in flight").needs(90, 8, 0).specific().together(Level::Warpgroup);
    WGMMA_HALF      = row("wgmma.mma_async.sync.aligned.m64n$nk16.f32.$t.$t", HALVES, form(SUMS_F32, &[Descriptor, Descriptor, Is(Pred), ONE, ONE, TRANSPOSED, TRANSPOSED]), "d = a b + (c ? d : 0); a is 64 by 16").bound(SUM_BOUND);
    WGMMA_HALF_REG  = row("wgmma.mma_async.sync.aligned.m64n$nk16.f32.$t.$t", HALVES, form(SUMS_F32, &[LEFT, Descriptor, Is(Pred), ONE, ONE, TRANSPOSED]), "d = a b + (c ? d : 0); a is 64 by 16, in registers").bound(SUM_BOUND);
    WGMMA_TF32      = row("wgmma.mma_async.sync.aligned.m64n$nk8.f32.tf32.tf32", &[], form(SUMS_F32, &[Descriptor, Descriptor, Is(Pred), ONE, ONE]), "d = a b + (c ? d : 0); a is 64 by 8").bound(SUM_BOUND);
    WGMMA_TF32_REG  = row("wgmma.mma_async.sync.aligned.m64n$nk8.f32.tf32.tf32", &[], form(SUMS_F32, &[LEFT, Descriptor, Is(Pred), ONE, ONE]), "d = a b + (c ? d : 0); a is 64 by 8, in registers").bound(SUM_BOUND);
    WGMMA_INT8      = row("wgmma.mma_async.sync.aligned.m64n$nk32.s32.$t.$t", &[U8, S8], form(SUMS_S32, &[Descriptor, Descriptor, Is(Pred)]), "d = a b + (c ? d : 0), wrapping; a is 64 by 32");
    WGMMA_INT8_REG  = row("wgmma.mma_async.sync.aligned.m64n$nk32.s32.$t.$t", &[U8, S8], form(SUMS_S32, &[LEFT, Descriptor, Is(Pred)]), "d = a b + (c ? d : 0), wrapping; a is 64 by 32, in registers");
    WGMMA_U8_S8     = row("wgmma.mma_async.sync.aligned.m64n$nk32.s32.u8.s8", &[], form(SUMS_S32, &[Descriptor, Descriptor, Is(Pred)]), "d = a b + (c ? d : 0), wrapping; a is 64 by 32 unsigned bytes, b signed bytes").needs(90, 8, 4);
    WGMMA_U8_S8_REG = row("wgmma.mma_async.sync.aligned.m64n$nk32.s32.u8.s8", &[], form(SUMS_S32, &[LEFT, Descriptor, Is(Pred)]), "d = a b + (c ? d : 0), wrapping; a is 64 by 32 unsigned bytes in registers, b signed bytes").needs(90, 8, 4);
    WGMMA_FP8       = row("wgmma.mma_async.sync.aligned.m64n$nk32.f32.$t.$s", FLOAT8, form(SUMS_F32, &[Descriptor, Descriptor, Is(Pred), ONE, ONE]), "d = a b + (c ? d : 0); a is 64 by 32").from(FLOAT8).bound(SUM8_BOUND);
    WGMMA_FP8_REG   = row("wgmma.mma_async.sync.aligned.m64n$nk32.f32.$t.$s", FLOAT8, form(SUMS_F32, &[LEFT, Descriptor, Is(Pred), ONE, ONE]), "d = a b + (c ? d : 0); a is 64 by 32, in registers").from(FLOAT8).bound(SUM8_BOUND);
}
