//! Integer and single-precision arithmetic.
//!
//! Bit fields have 32 bits only. For 64-bit fields with a length above 64, the code that `ptxas`
//! generates differs from the manual (observed on an H200).

use super::op::*;

#[rustfmt::skip] // one row a line
table! {
    /// Integer arithmetic.
    INTEGER, "Integer Arithmetic Instructions";
    ADD      = pure("add.$t",          INTS,  BINARY,  "d = a + b, wrapping");
    SUB      = pure("sub.$t",          INTS,  BINARY,  "d = a - b, wrapping");
    MUL_LO   = pure("mul.lo.$t",       INTS,  BINARY,  "d = low half of a * b");
    MUL_HI   = pure("mul.hi.$t",       INTS,  BINARY,  "d = high half of a * b");
    MUL_WIDE = pure("mul.wide.$t",     INT32, form(&[Wide], &[T, T]), "d = a * b, twice as wide");
    MAD_LO   = pure("mad.lo.$t",       INTS,  TERNARY, "d = low half of a * b, plus c");
    MAD_WIDE = pure("mad.wide.$t",     INT32, form(&[Wide], &[T, T, Wide]), "d = a * b + c, product and c twice as wide");
    DIV      = pure("div.$t",          INTS,  BINARY,  "d = a / b, towards zero; undefined for b = 0");
    REM      = pure("rem.$t",          INTS,  BINARY,  "d = remainder of a / b; undefined for b = 0");
    ABS      = pure("abs.$t",          &[S32, S64], UNARY, "d = |a|");
    NEG      = pure("neg.$t",          &[S32, S64], UNARY, "d = -a");
    MIN      = pure("min.$t",          INTS,  BINARY,  "d = the smaller of a and b");
    MAX      = pure("max.$t",          INTS,  BINARY,  "d = the larger of a and b");
    POPC     = pure("popc.$b",         &[U32, U64], form(&[Is(U32)], &[T]), "d = number of one bits in a");
    CLZ      = pure("clz.$b",          &[U32, U64], form(&[Is(U32)], &[T]), "d = number of leading zero bits of a");
    BREV     = pure("brev.$b",         &[U32, U64], UNARY, "d = a with its bits in reverse order");
    BFE      = pure("bfe.$t",          INT32, form(&[T], &[T, Is(U32), Is(U32)]), "d = the c bits of a from bit b on, sign-extended if signed");
    BFI      = pure("bfi.$b",          &[U32], form(&[T], &[T, T, Is(U32), Is(U32)]), "d = b with its e bits from bit c on replaced by the low bits of a");
    DP4A     = pure("dp4a.$t.$t",      INT32, TERNARY, "d = c + the dot product of the four bytes of a and b").needs(61, 5, 0);
    DP4A_US  = pure("dp4a.u32.s32",    &[], form(&[Is(S32)], &[Is(U32), Is(S32), Is(S32)]), "d = c + the dot product of the unsigned bytes of a and the signed bytes of b").needs(61, 5, 0);
}

#[rustfmt::skip] // one row a line
table! {
    /// Single precision.
    FLOATING, "Floating-Point Instructions";
    ADD_RN   = pure("add.rn.$t",          FLOAT, BINARY,  "d = a + b; .rn forbids contraction");
    SUB_RN   = pure("sub.rn.$t",          FLOAT, BINARY,  "d = a - b; .rn forbids contraction");
    MUL_RN   = pure("mul.rn.$t",          FLOAT, BINARY,  "d = a * b; .rn forbids contraction");
    FMA_RN   = pure("fma.rn.$t",          FLOAT, TERNARY, "d = a * b + c, rounded once");
    DIV_RN   = pure("div.rn.$t",          FLOAT, BINARY,  "d = a / b");
    ABS_F    = pure("abs.$t",             FLOAT, UNARY,   "d = |a|");
    NEG_F    = pure("neg.$t",             FLOAT, UNARY,   "d = -a");
    MIN_F    = pure("min.$t",             FLOAT, BINARY,  "d = the smaller of a and b; the other if one is NaN");
    MAX_F    = pure("max.$t",             FLOAT, BINARY,  "d = the larger of a and b; the other if one is NaN");
    RCP_RN   = pure("rcp.rn.$t",          FLOAT, UNARY,   "d = 1 / a");
    RCP      = pure("rcp.approx.ftz.$t",  FLOAT, UNARY,   "d = 1 / a; denormals count as 0").ulp(1);
    SQRT_RN  = pure("sqrt.rn.$t",         FLOAT, UNARY,   "d = the square root of a");
    RSQRT    = pure("rsqrt.approx.ftz.$t", FLOAT, UNARY,  "d = 1 / the square root of a; denormals count as 0").ulp(2);
    SIN      = pure("sin.approx.ftz.$t",  FLOAT, UNARY,   "d = sin(a)").bound("2^-20.9 absolute for a in [-pi, pi]");
    COS      = pure("cos.approx.ftz.$t",  FLOAT, UNARY,   "d = cos(a)").bound("2^-20.9 absolute for a in [-pi, pi]");
    LG2      = pure("lg2.approx.ftz.$t",  FLOAT, UNARY,   "d = log2(a)").bound("2^-22 absolute for a in [0.5, 2], else 2 ulp");
    EX2      = pure("ex2.approx.ftz.$t",  FLOAT, UNARY,   "d = 2^a; denormals count as 0").ulp(2);
    TANH     = pure("tanh.approx.$t",     FLOAT, UNARY,   "d = tanh(a)").needs(75, 7, 0).bound("2^-11 relative");
}
