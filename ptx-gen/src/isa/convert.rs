//! Conversions. Conversions from float to integer saturate, and NaN becomes 0.

use super::op::*;

#[rustfmt::skip] // one row a line
table! {
    /// Conversions.
    CONVERSION, "Data Conversion Instructions";
    CVT_RN     = pure("cvt.rn.$t.$s",     FLOAT,     CONVERT, "d = the f32 nearest to an integer").from(INTS);
    CVT_RNI    = pure("cvt.rni.$t.$s",    INTS,      CONVERT, "d = the integer nearest to a, ties to even").from(FLOAT);
    CVT_RZI    = pure("cvt.rzi.$t.$s",    INTS,      CONVERT, "d = a without its fraction").from(FLOAT);
    CVT_FLOOR  = pure("cvt.rmi.$t.$t",    FLOAT,     UNARY,   "d = the largest whole number not above a");
    CVT_ROUND  = pure("cvt.rni.$t.$t",    FLOAT,     UNARY,   "d = the whole number nearest to a, ties to even");
    CVT_U64    = pure("cvt.$t.$s",        &[U64],    CONVERT, "d = a, zero-extended").from(&[U32]);
    CVT_S64    = pure("cvt.$t.$s",        &[S64],    CONVERT, "d = a, sign-extended").from(&[S32]);
    CVT_LOW    = pure("cvt.$t.$s",        &[U32],    CONVERT, "d = the low 32 bits of a").from(&[U64]);
    CVT_F32_H  = pure("cvt.$t.$s",        FLOAT,     CONVERT, "d = a, exactly").from(&[F16]);
    CVT_H      = pure("cvt.rn.$t.$s",     &[F16],    CONVERT, "d = the f16 nearest to a").from(FLOAT);
    CVT_F32_B  = pure("cvt.$t.$s",        FLOAT,     CONVERT, "d = a, exactly").from(&[Bf16]).needs(80, 7, 1);
    CVT_B      = pure("cvt.rn.$t.$s",     &[Bf16],   CONVERT, "d = the bf16 nearest to a").from(FLOAT).needs(80, 7, 0);
    CVT_BLOCKS = pure("cvt.u16.u32",      &[],       form(&[Blocks], &[Is(U32)]), "d = the low 16 bits of a");
    CVT_B2     = pure("cvt.rn.bf16x2.f32", &[],      form(&[Is(U32)], &[Is(F32), Is(F32)]), "d = the bf16s nearest to b in the low half and a in the high half").needs(80, 7, 0);
    CVT_H2     = pure("cvt.rn.$t.f32",    &[F16x2],  form(&[T], &[Is(F32), Is(F32)]), "d = the f16s nearest to b in the low half and a in the high half").needs(80, 7, 0);
}
