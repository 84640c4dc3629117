//! Logic and shifts. A shift by the width or more returns 0, or the sign for a signed right shift.

use super::op::*;

const BITS: &[Kind] = &[Pred, U32, S32, F16x2, U64, S64];
const SHIFTED: Form = form(&[T], &[T, Is(U32)]);

#[rustfmt::skip] // one row a line
table! {
    /// Logic and shifts.
    LOGIC, "Logic and Shift Instructions";
    AND      = pure("and.$b",        BITS,        BINARY,  "d = a & b");
    OR       = pure("or.$b",         BITS,        BINARY,  "d = a | b");
    XOR      = pure("xor.$b",        BITS,        BINARY,  "d = a ^ b");
    NOT      = pure("not.$b",        BITS,        UNARY,   "d = !a");
    LOP3     = pure("lop3.$b",       WORDS,       form(&[T], &[T, T, T, Lit(0, 255)]), "d = a bitwise function of a, b and c with the truth table e");
    SHF_L    = pure("shf.l.wrap.$b", &[U32, S32], form(&[T], &[T, T, Is(U32)]), "d = high word of (b:a) << (c mod 32)");
    SHL      = pure("shl.$b",        INTS,        SHIFTED, "d = a << b");
    SHR      = pure("shr.$t",        INTS,        SHIFTED, "d = a >> b, with the sign if signed");
    PRMT     = pure("prmt.$b",       WORDS,       form(&[T], &[T, T, Is(U32)]), "d = four of the eight bytes of a and b, selected by the nibbles of c");
}
