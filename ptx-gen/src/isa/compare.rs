//! Comparison and selection. A comparison with NaN is false, except for `ne`.

use super::op::*;

const COMPARED: &[Kind] = &[U32, S32, U64, S64, F32];
const NOT_EQUAL: &[Kind] = &[U32, S32, U64, S64];

#[rustfmt::skip] // one row a line
table! {
    /// Comparison and selection.
    COMPARISON, "Comparison and Selection Instructions";
    SETP_EQ  = pure("setp.eq.$t",  COMPARED,  COMPARE, "p = a == b");
    SETP_NE  = pure("setp.ne.$t",  NOT_EQUAL, COMPARE, "p = a != b");
    SETP_NEU = pure("setp.neu.$t", FLOAT,     COMPARE, "p = a != b, or one is NaN");
    SETP_LT  = pure("setp.lt.$t",  COMPARED,  COMPARE, "p = a < b");
    SETP_LE  = pure("setp.le.$t",  COMPARED,  COMPARE, "p = a <= b");
    SETP_GT  = pure("setp.gt.$t",  COMPARED,  COMPARE, "p = a > b");
    SETP_GE  = pure("setp.ge.$t",  COMPARED,  COMPARE, "p = a >= b");
    SELP     = pure("selp.$t",     COMPARED,  form(&[T], &[T, T, Is(Pred)]), "d = c ? a : b");
}
