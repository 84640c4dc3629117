//! Half precision: one binary16 value, or two in one register.

use super::op::*;

const HALVES: &[Kind] = &[F16, F16x2];

#[rustfmt::skip] // one row a line
table! {
    /// Half precision.
    HALF, "Half Precision Floating-Point Instructions";
    ADD_H    = pure("add.rn.$t", HALVES, BINARY,  "d = a + b, each half").needs(53, 6, 0);
    SUB_H    = pure("sub.rn.$t", HALVES, BINARY,  "d = a - b, each half").needs(53, 6, 0);
    MUL_H    = pure("mul.rn.$t", HALVES, BINARY,  "d = a * b, each half").needs(53, 6, 0);
    FMA_H    = pure("fma.rn.$t", HALVES, TERNARY, "d = a * b + c, each half, rounded once").needs(53, 6, 0);
}
