//! Integers, logic, shifts, and moves.

use super::case::Exact;
use super::scalar::{Form, Table, listed};

const ARITHMETIC: &Table = &[
    ("{add,sub,min,max}{.u16,.s16}", "b16 = b16 b16", ""),
    ("{add,sub,min,max}{.u32,.s32}", "b32 = b32 b32", ""),
    ("{add,sub,min,max}{.u64,.s64}", "b64 = b64 b64", ""),
    ("{add,sub}.sat.s32", "b32 = b32 b32", ""),
    ("{add,min,max}{.u16x2,.s16x2}", "b32 = b32 b32", ""),
    ("{min,max}.relu{.s16x2,.s32}", "b32 = b32 b32", ""),
    ("mul{.lo,.hi}{.u16,.s16}", "b16 = b16 b16", ""),
    ("mul{.lo,.hi}{.u32,.s32}", "b32 = b32 b32", ""),
    ("mul{.lo,.hi}{.u64,.s64}", "b64 = b64 b64", ""),
    ("mul.wide{.u16,.s16}", "b32 = b16 b16", ""),
    ("mul.wide{.u32,.s32}", "b64 = b32 b32", ""),
    ("mad{.lo,.hi}{.u16,.s16}", "b16 = b16 b16 b16", ""),
    ("mad{.lo,.hi}{.u32,.s32}", "b32 = b32 b32 b32", ""),
    ("mad{.lo,.hi}{.u64,.s64}", "b64 = b64 b64 b64", ""),
    ("mad.hi.sat.s32", "b32 = b32 b32 b32", ""),
    ("mad.wide{.u16,.s16}", "b32 = b16 b16 b32", ""),
    ("mad.wide{.u32,.s32}", "b64 = b32 b32 b64", ""),
    ("mul24{.lo,.hi}{.u32,.s32}", "b32 = b32 b32", ""),
    ("mad24{.lo,.hi}{.u32,.s32}", "b32 = b32 b32 b32", ""),
    ("mad24.hi.sat.s32", "b32 = b32 b32 b32", ""),
    ("sad{.u16,.s16}", "b16 = b16 b16 b16", ""),
    ("sad{.u32,.s32}", "b32 = b32 b32 b32", ""),
    ("sad{.u64,.s64}", "b64 = b64 b64 b64", ""),
    // The result of a division by zero is undefined.
    ("{div,rem}{.u16,.s16}", "b16 = b16 n16", ""),
    ("{div,rem}{.u32,.s32}", "b32 = b32 n32", ""),
    ("{div,rem}{.u64,.s64}", "b64 = b64 n64", ""),
    ("{abs,neg}.s16", "b16 = b16", ""),
    ("{abs,neg}.s32", "b32 = b32", ""),
    ("{abs,neg}.s64", "b64 = b64", ""),
    (
        "{dp2a.lo,dp2a.hi,dp4a}{.u32,.s32}{.u32,.s32}",
        "b32 = b32 b32 b32",
        "",
    ),
];

const BITS: &Table = &[
    ("{popc,clz}.b32", "b32 = b32", ""),
    ("{popc,clz}.b64", "b32 = b64", ""),
    ("bfind{,.shiftamt}{.u32,.s32}", "b32 = b32", ""),
    ("bfind{,.shiftamt}{.u64,.s64}", "b32 = b64", ""),
    ("brev.b32", "b32 = b32", ""),
    ("brev.b64", "b64 = b64", ""),
    ("fns.b32", "b32 = b32 b5 b32", ""),
    ("bfe{.u32,.s32}", "b32 = b32 shift shift", ""),
    ("bfe{.u64,.s64}", "b64 = b64 shift shift", ""),
    ("bfi.b32", "b32 = b32 b32 shift shift", ""),
    ("bfi.b64", "b64 = b64 b64 shift shift", ""),
    ("szext{.wrap,.clamp}{.u32,.s32}", "b32 = b32 shift", ""),
    ("bmsk{.wrap,.clamp}.b32", "b32 = shift shift", ""),
    ("{and,or,xor}.b16", "b16 = b16 b16", ""),
    ("{and,or,xor}.b32", "b32 = b32 b32", ""),
    ("{and,or,xor}.b64", "b64 = b64 b64", ""),
    ("{and,or,xor}.pred", "p = p p", ""),
    ("{not,cnot}.b16", "b16 = b16", ""),
    ("{not,cnot}.b32", "b32 = b32", ""),
    ("{not,cnot}.b64", "b64 = b64", ""),
    ("not.pred", "p = p", ""),
    ("shf{.l,.r}{.wrap,.clamp}.b32", "b32 = b32 b32 shift", ""),
    ("{shl.b16,shr.b16,shr.u16,shr.s16}", "b16 = b16 shift", ""),
    ("{shl.b32,shr.b32,shr.u32,shr.s32}", "b32 = b32 shift", ""),
    ("{shl.b64,shr.b64,shr.u64,shr.s64}", "b64 = b64 shift", ""),
    (
        "prmt.b32{,.f4e,.b4e,.rc8,.ecl,.ecr,.rc16}",
        "b32 = b32 b32 b32",
        "",
    ),
];

/// Parts of registers, apart and together.
const MOVES: &Table = &[
    ("mov{.b16,.u16,.s16}", "b16 = b16", ""),
    ("mov{.b32,.u32,.s32,.f32}", "b32 = b32", ""),
    ("mov{.b64,.u64,.s64,.f64}", "b64 = b64", ""),
    ("mov.pred", "p = p", ""),
    ("mov.b32", "b32 = b16 b16", "%d, {%a, %b}"),
    ("mov.b64", "b64 = b32 b32", "%d, {%a, %b}"),
    ("mov.b64", "b64 = b16 b16 b16 b16", "%d, {%a, %b, %c, %e}"),
    (
        "mov.b64",
        "b64 = b64",
        "{%x, %y}, %a;\nmov.b64 %d, {%y, %x}",
    ),
    ("mov.b64", "b32 = b64", "{_, %d}, %a"),
    (
        "mov.b128",
        "b64 = b64 b64",
        "%wide, {%a, %b};\nmov.b128 {%d, %v}, %wide",
    ),
    (
        "mov.b128",
        "b64 = b64 b64",
        "%wide, {%a, %b};\nmov.b128 {%u, %d}, %wide",
    ),
    ("movmatrix.sync.aligned.m8n8.trans.b16", "b32 = b32", ""),
];

/// Tables of `lop3`.
const TABLES: [u8; 12] = [
    0x00, 0x01, 0x1b, 0x2d, 0x40, 0x78, 0x96, 0xca, 0xd8, 0xe8, 0xf7, 0xff,
];

pub(crate) fn forms() -> Vec<Form> {
    let tables = [ARITHMETIC, BITS, MOVES];
    let mut all: Vec<Form> = tables
        .into_iter()
        .flat_map(|table| listed(table, Exact::Bits))
        .collect();
    for table in TABLES {
        let text = format!("lop3.b32 %d, %a, %b, %c, {table:#x}");
        all.push(Form {
            text,
            types: "b32 = b32 b32 b32".into(),
            exact: Exact::Bits,
        });
    }

    all
}
