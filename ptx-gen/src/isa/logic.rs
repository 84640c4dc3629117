//! Logic and shifts. A shift by the width or more gives 0, or the sign.

use super::*;

const BITS: &[Kind] = &[Pred, U32, S32, F16x2, U64, S64];
const SHIFTED: Form = form(&[T], &[T, Is(U32)]);

#[rustfmt::skip] // one row a line
table! {
    /// Logic and shifts.
    LOGIC, "Logic and Shift Instructions";
    AND      = op("and.$b",        BITS,        BINARY,  "d = a & b");
    OR       = op("or.$b",         BITS,        BINARY,  "d = a | b");
    XOR      = op("xor.$b",        BITS,        BINARY,  "d = a ^ b");
    NOT      = op("not.$b",        BITS,        UNARY,   "d = !a");
    LOP3     = op("lop3.$b",       WORDS,       form(&[T], &[T, T, T, Lit(0, 255)]), "d = any function of the bits of a, b and c, given by its truth table");
    SHF_L    = op("shf.l.wrap.$b", &[U32, S32], form(&[T], &[T, T, Is(U32)]), "d = high word of (b:a) << (c mod 32)");
    SHL      = op("shl.$b",        INTS,        SHIFTED, "d = a << b");
    SHR      = op("shr.$t",        INTS,        SHIFTED, "d = a >> b, with the sign if signed");
    PRMT     = op("prmt.$b",       WORDS,       form(&[T], &[T, T, Is(U32)]), "d = four of the eight bytes of a and b, picked by the nibbles of c");
}
