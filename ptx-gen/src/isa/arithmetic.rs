//! Integer and single-precision arithmetic.
//!
//! Bit fields are of 32 bits: for 64, what ptxas makes of a length past 64 is not what the manual says (seen on an H200).

use super::*;

#[rustfmt::skip] // one row a line
table! {
    /// Integer arithmetic.
    INTEGER, "Integer Arithmetic Instructions";
    ADD      = op("add.$t",          INTS,  BINARY,  "d = a + b, wrapping");
    SUB      = op("sub.$t",          INTS,  BINARY,  "d = a - b, wrapping");
    MUL_LO   = op("mul.lo.$t",       INTS,  BINARY,  "d = low half of a * b");
    MUL_HI   = op("mul.hi.$t",       INTS,  BINARY,  "d = high half of a * b");
    MUL_WIDE = op("mul.wide.$t",     INT32, form(&[Wide], &[T, T]), "d = a * b, twice as wide");
    MAD_LO   = op("mad.lo.$t",       INTS,  TERNARY, "d = low half of a * b, plus c");
    MAD_WIDE = op("mad.wide.$t",     INT32, form(&[Wide], &[T, T, Wide]), "d = a * b + c, product and c twice as wide");
    DIV      = op("div.$t",          INTS,  BINARY,  "d = a / b, towards zero; undefined for b = 0");
    REM      = op("rem.$t",          INTS,  BINARY,  "d = remainder of a / b; undefined for b = 0");
    ABS      = op("abs.$t",          &[S32, S64], UNARY, "d = |a|");
    NEG      = op("neg.$t",          &[S32, S64], UNARY, "d = -a");
    MIN      = op("min.$t",          INTS,  BINARY,  "d = the smaller of a and b");
    MAX      = op("max.$t",          INTS,  BINARY,  "d = the larger of a and b");
    POPC     = op("popc.$b",         &[U32, U64], form(&[Is(U32)], &[T]), "d = number of one bits in a");
    CLZ      = op("clz.$b",          &[U32, U64], form(&[Is(U32)], &[T]), "d = number of leading zero bits of a");
    BREV     = op("brev.$b",         &[U32, U64], UNARY, "d = a with its bits in reverse order");
    BFE      = op("bfe.$t",          INT32, form(&[T], &[T, Is(U32), Is(U32)]), "d = the c bits of a from bit b on, sign-extended if signed");
    BFI      = op("bfi.$b",          &[U32], form(&[T], &[T, T, Is(U32), Is(U32)]), "d = b with its e bits from bit c on replaced by the low bits of a");
    DP4A     = op("dp4a.$t.$t",      INT32, TERNARY, "d = c + the dot product of the four bytes of a and b").needs(61, 5, 0);
    DP4A_US  = op("dp4a.u32.s32",    &[], form(&[Is(S32)], &[Is(U32), Is(S32), Is(S32)]), "d = c + the dot product of the unsigned bytes of a and the signed bytes of b").needs(61, 5, 0);
}

#[rustfmt::skip] // one row a line
table! {
    /// Single precision.
    FLOATING, "Floating-Point Instructions";
    ADD_RN   = op("add.rn.$t",          FLOAT, BINARY,  "d = a + b; .rn forbids contraction");
    SUB_RN   = op("sub.rn.$t",          FLOAT, BINARY,  "d = a - b; .rn forbids contraction");
    MUL_RN   = op("mul.rn.$t",          FLOAT, BINARY,  "d = a * b; .rn forbids contraction");
    FMA_RN   = op("fma.rn.$t",          FLOAT, TERNARY, "d = a * b + c, rounded once");
    DIV_RN   = op("div.rn.$t",          FLOAT, BINARY,  "d = a / b");
    ABS_F    = op("abs.$t",             FLOAT, UNARY,   "d = |a|");
    NEG_F    = op("neg.$t",             FLOAT, UNARY,   "d = -a");
    MIN_F    = op("min.$t",             FLOAT, BINARY,  "d = the smaller of a and b; the other if one is NaN");
    MAX_F    = op("max.$t",             FLOAT, BINARY,  "d = the larger of a and b; the other if one is NaN");
    RCP_RN   = op("rcp.rn.$t",          FLOAT, UNARY,   "d = 1 / a");
    RCP      = op("rcp.approx.ftz.$t",  FLOAT, UNARY,   "d = 1 / a; denormals count as 0").ulp(1);
    SQRT_RN  = op("sqrt.rn.$t",         FLOAT, UNARY,   "d = the square root of a");
    RSQRT    = op("rsqrt.approx.ftz.$t", FLOAT, UNARY,  "d = 1 / the square root of a; denormals count as 0").ulp(2);
    SIN      = op("sin.approx.ftz.$t",  FLOAT, UNARY,   "d = sin(a)").bound("2^-20.9 absolute for a in [-pi, pi]");
    COS      = op("cos.approx.ftz.$t",  FLOAT, UNARY,   "d = cos(a)").bound("2^-20.9 absolute for a in [-pi, pi]");
    LG2      = op("lg2.approx.ftz.$t",  FLOAT, UNARY,   "d = log2(a)").bound("2^-22 absolute for a in [0.5, 2], else 2 ulp");
    EX2      = op("ex2.approx.ftz.$t",  FLOAT, UNARY,   "d = 2^a; denormals count as 0").ulp(2);
    TANH     = op("tanh.approx.$t",     FLOAT, UNARY,   "d = tanh(a)").needs(75, 7, 0).bound("2^-11 relative");
}
