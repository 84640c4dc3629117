//! Comparison and selection. Ordered: a comparison with NaN is false, but `ne`.

use super::*;

const COMPARED: &[Kind] = &[U32, S32, U64, S64, F32];
const NOT_EQUAL: &[Kind] = &[U32, S32, U64, S64];

#[rustfmt::skip] // one row a line
table! {
    /// Comparison and selection.
    COMPARISON, "Comparison and Selection Instructions";
    SETP_EQ  = op("setp.eq.$t",  COMPARED,  COMPARE, "p = a == b");
    SETP_NE  = op("setp.ne.$t",  NOT_EQUAL, COMPARE, "p = a != b");
    SETP_NEU = op("setp.neu.$t", FLOAT,     COMPARE, "p = a != b, or one is NaN");
    SETP_LT  = op("setp.lt.$t",  COMPARED,  COMPARE, "p = a < b");
    SETP_LE  = op("setp.le.$t",  COMPARED,  COMPARE, "p = a <= b");
    SETP_GT  = op("setp.gt.$t",  COMPARED,  COMPARE, "p = a > b");
    SETP_GE  = op("setp.ge.$t",  COMPARED,  COMPARE, "p = a >= b");
    SELP     = op("selp.$t",     COMPARED,  form(&[T], &[T, T, Is(Pred)]), "d = c ? a : b");
}
