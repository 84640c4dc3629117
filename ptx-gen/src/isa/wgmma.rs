//! Products of matrices that run beside a warpgroup: four warps, 64 rows.
//!
//! The sums are registers of the warpgroup, the right matrix is in shared memory, the left one in either. An operand in
//! shared memory is a descriptor of 64 bits ("Matrix Descriptor Format"), which [`Tile`](crate::Tile) makes. `$n` is
//! the number of columns, a multiple of 8 up to 256: twice the registers of the sums.
//!
//! The scales of both matrices are 1. A literal that says `transposed` is 1 where the other dimension than the inner
//! one is contiguous in shared memory ("MN-major").

use super::op::*;

const MULTIPLY: Effect = Effect::Wgmma(WgmmaStep::Multiply);
/// A left matrix in registers: one row of 16 for each warp, as in `mma.sync`.
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
    /// Products of warpgroups.
    WGMMA, "Asynchronous Warpgroup-Level Matrix Instructions";
    WGMMA_FENCE     = op("wgmma.fence.sync.aligned", &[], NULLARY, Effect::Wgmma(WgmmaStep::Fence), "let products use registers that other instructions have used before").needs(90, 8, 0).specific().together(Level::Warpgroup);
    WGMMA_COMMIT    = op("wgmma.commit_group.sync.aligned", &[], NULLARY, Effect::Wgmma(WgmmaStep::Commit), "make the products since the last group a group").needs(90, 8, 0).specific().together(Level::Warpgroup);
    WGMMA_WAIT      = op("wgmma.wait_group.sync.aligned", &[], form(&[], &[Lit(0, 7)]), Effect::Wgmma(WgmmaStep::Wait), "wait until at most this many of the latest groups are under way").needs(90, 8, 0).specific().together(Level::Warpgroup);
    WGMMA_HALF      = row("wgmma.mma_async.sync.aligned.m64n$nk16.f32.$t.$t", HALVES, form(SUMS_F32, &[Descriptor, Descriptor, Is(Pred), ONE, ONE, TRANSPOSED, TRANSPOSED]), "d = a b + (c ? d : 0); a is 64 by 16").bound(SUM_BOUND);
    WGMMA_HALF_REG  = row("wgmma.mma_async.sync.aligned.m64n$nk16.f32.$t.$t", HALVES, form(SUMS_F32, &[LEFT, Descriptor, Is(Pred), ONE, ONE, TRANSPOSED]), "the same, a in registers").bound(SUM_BOUND);
    WGMMA_TF32      = row("wgmma.mma_async.sync.aligned.m64n$nk8.f32.tf32.tf32", &[], form(SUMS_F32, &[Descriptor, Descriptor, Is(Pred), ONE, ONE]), "d = a b + (c ? d : 0); a is 64 by 8").bound(SUM_BOUND);
    WGMMA_TF32_REG  = row("wgmma.mma_async.sync.aligned.m64n$nk8.f32.tf32.tf32", &[], form(SUMS_F32, &[LEFT, Descriptor, Is(Pred), ONE, ONE]), "the same, a in registers").bound(SUM_BOUND);
    WGMMA_INT8      = row("wgmma.mma_async.sync.aligned.m64n$nk32.s32.$t.$t", &[U8, S8], form(SUMS_S32, &[Descriptor, Descriptor, Is(Pred)]), "d = a b + (c ? d : 0), wrapping; a is 64 by 32");
    WGMMA_INT8_REG  = row("wgmma.mma_async.sync.aligned.m64n$nk32.s32.$t.$t", &[U8, S8], form(SUMS_S32, &[LEFT, Descriptor, Is(Pred)]), "the same, a in registers");
    WGMMA_U8_S8     = row("wgmma.mma_async.sync.aligned.m64n$nk32.s32.u8.s8", &[], form(SUMS_S32, &[Descriptor, Descriptor, Is(Pred)]), "the same, unsigned bytes by signed ones").needs(90, 8, 4);
    WGMMA_U8_S8_REG = row("wgmma.mma_async.sync.aligned.m64n$nk32.s32.u8.s8", &[], form(SUMS_S32, &[LEFT, Descriptor, Is(Pred)]), "the same, a in registers").needs(90, 8, 4);
    WGMMA_FP8       = row("wgmma.mma_async.sync.aligned.m64n$nk32.f32.$t.$s", FLOAT8, form(SUMS_F32, &[Descriptor, Descriptor, Is(Pred), ONE, ONE]), "d = a b + (c ? d : 0); a is 64 by 32").from(FLOAT8).bound(SUM8_BOUND);
    WGMMA_FP8_REG   = row("wgmma.mma_async.sync.aligned.m64n$nk32.f32.$t.$s", FLOAT8, form(SUMS_F32, &[LEFT, Descriptor, Is(Pred), ONE, ONE]), "the same, a in registers").from(FLOAT8).bound(SUM8_BOUND);
}
