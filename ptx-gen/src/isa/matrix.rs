//! Matmuls of a warp.
//!
//! The manual describes the lanes that hold each element under "Matrix Fragments for mma.m16n8k16"
//! and "mma.m16n8k32". The types of [`Sums`](crate::Sums) keep the three kinds of fragments apart.

use super::op::*;

#[rustfmt::skip] // one row a line
table! {
    /// Matmuls of a warp, and loads and stores of matrices.
    MATRIX, "Warp-Level Matrix Instructions";
    MMA_HALF    = pure("mma.sync.aligned.m16n8k16.row.col.f32.$t.$t.f32", &[F16, Bf16], form(&[Regs(F32, 4)], &[Regs(U32, 4), Regs(U32, 2), Regs(F32, 4)]), "d = a b + c; a is 16 by 16, b 16 by 8").needs(80, 7, 0).together(Level::Warp).bound("exact products, and each sum within 2^-22 of the largest term");
    MMA_INT8    = pure("mma.sync.aligned.m16n8k32.row.col.s32.$t.s8.s32", &[U8, S8], form(&[Regs(S32, 4)], &[Regs(U32, 4), Regs(U32, 2), Regs(S32, 4)]), "d = a b + c, wrapping; a is 16 by 32 bytes of this type, b 32 by 8 signed bytes").needs(80, 7, 0).together(Level::Warp);
    LDMATRIX_X2 = op("ldmatrix.sync.aligned.m8n8.x2.shared.b16", &[], form(&[Regs(U32, 2)], &[Shared]), Effect::LoadMatrix, "load two 8 by 8 matrices of 16-bit elements; lanes 0 to 15 address their rows").needs(75, 6, 5).together(Level::Warp);
    LDMATRIX_X4 = op("ldmatrix.sync.aligned.m8n8.x4.shared.b16", &[], form(&[Regs(U32, 4)], &[Shared]), Effect::LoadMatrix, "load four 8 by 8 matrices of 16-bit elements; each lane addresses a row").needs(75, 6, 5).together(Level::Warp);
    LDMATRIX_X4_TRANS = op("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", &[], form(&[Regs(U32, 4)], &[Shared]), Effect::LoadMatrix, "load four 8 by 8 matrices and transpose each; each lane addresses a row").needs(75, 6, 5).together(Level::Warp);
    STMATRIX_X1 = op("stmatrix.sync.aligned.m8n8.x1.shared.b16", &[], form(&[], &[Shared, Regs(U32, 1)]), Effect::StoreMatrix, "store an 8 by 8 matrix of 16-bit elements; lanes 0 to 7 address its rows").needs(90, 7, 8).together(Level::Warp);
    STMATRIX_X2 = op("stmatrix.sync.aligned.m8n8.x2.shared.b16", &[], form(&[], &[Shared, Regs(U32, 2)]), Effect::StoreMatrix, "store two 8 by 8 matrices of 16-bit elements; lanes 0 to 15 address their rows").needs(90, 7, 8).together(Level::Warp);
    STMATRIX_X4 = op("stmatrix.sync.aligned.m8n8.x4.shared.b16", &[], form(&[], &[Shared, Regs(U32, 4)]), Effect::StoreMatrix, "store four 8 by 8 matrices of 16-bit elements; each lane addresses a row").needs(90, 7, 8).together(Level::Warp);
    STMATRIX_X1_TRANS = op("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16", &[], form(&[], &[Shared, Regs(U32, 1)]), Effect::StoreMatrix, "transpose and store an 8 by 8 matrix of 16-bit elements").needs(90, 7, 8).together(Level::Warp);
    STMATRIX_X2_TRANS = op("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16", &[], form(&[], &[Shared, Regs(U32, 2)]), Effect::StoreMatrix, "transpose and store two 8 by 8 matrices of 16-bit elements").needs(90, 7, 8).together(Level::Warp);
    STMATRIX_X4_TRANS = op("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16", &[], form(&[], &[Shared, Regs(U32, 4)]), Effect::StoreMatrix, "transpose and store four 8 by 8 matrices of 16-bit elements").needs(90, 7, 8).together(Level::Warp);
    MOVMATRIX   = op("movmatrix.sync.aligned.m8n8.trans.b16", &[], form(&[Is(U32)], &[Is(U32)]), Effect::Exchange(Uniformity::Differs), "d = a transposed: an 8 by 8 matrix of 16-bit elements over the warp").needs(75, 7, 8).together(Level::Warp);
}
